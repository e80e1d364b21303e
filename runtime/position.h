/* What distances between a query and a key make: ALiBi's slopes and the buckets of a relative bias.
 */
#ifndef VKMHA_RUNTIME_POSITION_H
#define VKMHA_RUNTIME_POSITION_H

#include <vkmha/vkmha.h>

/* The slope of a head by Press et al. 2022: a geometric series from 2^(-8 / n) for the first n
 * heads, n the largest power of two in num_heads; the others take every second one of the series
 * for 2 n. */
float vkmha_alibi_slope(uint32_t num_heads, uint32_t head);

/* The bucket of distance j - p by Raffel et al. 2020; `bias` is checked. */
uint32_t vkmha_relative_bucket(const vkmha_relative_bias *bias, int64_t distance);

#endif
