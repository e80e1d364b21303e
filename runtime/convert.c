#include "convert.h"

#include <string.h>

static float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    const uint32_t fraction = half & 0x3ffu;
    if (exponent == 0) {
        const float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 0x1f) {
        return bits_to_float(sign | 0x7f800000u | fraction << 13);
    }
    return bits_to_float(sign | (exponent + 112u) << 23 | fraction << 13);
}

float vkmha_load_element(const void *data, vkmha_type type, uint64_t index)
{
    const unsigned char *bytes = data;
    if (type == VKMHA_TYPE_F32) {
        float value;
        memcpy(&value, bytes + index * sizeof(value), sizeof(value));
        return value;
    }
    uint16_t word;
    memcpy(&word, bytes + index * sizeof(word), sizeof(word));
    return type == VKMHA_TYPE_F16 ? half_to_float(word) : bits_to_float((uint32_t)word << 16);
}
