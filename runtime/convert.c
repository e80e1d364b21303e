#include "convert.h"

#include <math.h>
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

static uint32_t float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* value / 2^shift, 0 < shift < 32, to the nearest integer, to the even one of two. */
static uint32_t shift_to_nearest(uint32_t value, uint32_t shift)
{
    return (value + (1u << (shift - 1)) - 1u + (value >> shift & 1u)) >> shift;
}

/* A carry out of the mantissa is the next exponent, and after the last one Inf. */
static uint32_t magnitude_to_half(uint32_t magnitude)
{
    const uint32_t largest = 0x47800000u; /* 2^16, Inf already */
    if (magnitude < 0x38800000u) {        /* below 2^-14: in units of 2^-24 */
        const uint32_t shift = 126u - (magnitude >> 23);
        return shift_to_nearest((magnitude & 0x7fffffu) | 0x800000u, shift < 31u ? shift : 31u);
    }
    return shift_to_nearest((magnitude < largest ? magnitude : largest) - (112u << 23), 13);
}

void vkmha_store_element(void *data, vkmha_type type, uint64_t index, float value)
{
    unsigned char *bytes = data;
    if (type == VKMHA_TYPE_F32) {
        memcpy(bytes + index * sizeof(value), &value, sizeof(value));
        return;
    }
    const uint32_t bits = float_to_bits(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t word = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u) {
        word |= type == VKMHA_TYPE_F16 ? 0x7e00u : magnitude >> 16 | 0x40u;
    } else {
        word |= type == VKMHA_TYPE_F16 ? magnitude_to_half(magnitude) : shift_to_nearest(magnitude, 16);
    }
    const uint16_t stored = (uint16_t)word;
    memcpy(bytes + index * sizeof(stored), &stored, sizeof(stored));
}

double vkmha_round_value(vkmha_type type, double value)
{
    if (type == VKMHA_TYPE_F32 || !isfinite(value) || value == 0.0) {
        return value;
    }
    const int digits = type == VKMHA_TYPE_F16 ? 11 : 8;
    const int lowest = type == VKMHA_TYPE_F16 ? -13 : -125; /* frexp's exponent of the least normal */
    const int highest = type == VKMHA_TYPE_F16 ? 16 : 128;
    int exponent;
    frexp(value, &exponent);
    const int unit = (exponent > lowest ? exponent : lowest) - digits;
    /* rint rounds to nearest even, as the host's arithmetic does here. */
    const double rounded = ldexp(rint(ldexp(value, -unit)), unit);
    return fabs(rounded) >= ldexp(1.0, highest) ? copysign(INFINITY, value) : rounded;
}

void vkmha_round_interval(vkmha_type type, double *value, double *bound)
{
    if (type == VKMHA_TYPE_F32 || isnan(*value) || !isfinite(*bound)) {
        return;
    }
    const double low = vkmha_round_value(type, *value - *bound);
    const double high = vkmha_round_value(type, *value + *bound);
    *value = vkmha_round_value(type, *value);
    *bound = low == high ? 0.0 : fmax(high - *value, *value - low);
    *bound = isnan(*bound) ? INFINITY : *bound;
}
