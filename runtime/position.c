#include "position.h"

#include <math.h>

float vkmha_alibi_slope(uint32_t num_heads, uint32_t head)
{
    uint32_t power = 1;
    while (power <= num_heads / 2) {
        power *= 2;
    }
    const double exponent = head < power
                                ? 8.0 * ((double)head + 1.0) / (double)power
                                : 4.0 * (2.0 * (double)(head - power) + 1.0) / (double)power;
    return (float)exp2(-exponent);
}

uint32_t vkmha_relative_bucket(const vkmha_relative_bias *bias, int64_t distance)
{
    uint32_t count = bias->num_buckets;
    uint32_t first = 0;
    uint64_t away = 0;
    if (bias->is_bidirectional) {
        count /= 2;
        first = distance > 0 ? count : 0;
        away = distance > 0 ? (uint64_t)distance : (uint64_t)-distance;
    } else {
        away = distance < 0 ? (uint64_t)-distance : 0;
    }
    const uint32_t exact = count / 2;
    if (away < exact) {
        return first + (uint32_t)away;
    }
    if (away >= bias->max_distance) {
        return first + count - 1;
    }
    const double steps = log((double)away / (double)exact) /
                         log((double)bias->max_distance / (double)exact) * (double)(count - exact);
    /* A distance where a bucket begins must not fall short of it by the logarithms' rounding. */
    const uint32_t bucket = exact + (uint32_t)floor(steps * (1.0 + 0x1p-46));
    return first + (bucket < count ? bucket : count - 1);
}
