/*
 * The rounding errors that an honest fp32 kernel may make (vkmha_reference.h tells the sources).
 * Units: the unit roundoff u = 2^-24; one ULP is at most 2 u of the value.
 */
#ifndef VKMHA_RUNTIME_REFERENCE_BOUND_H
#define VKMHA_RUNTIME_REFERENCE_BOUND_H

#include <float.h>
#include <math.h>
#include <stdint.h>

#define VKMHA_UNIT 0x1p-24
/* What flushing a denormal to zero can take away. */
#define VKMHA_FLUSH 0x1p-126

/* Higham's gamma: relative error of `count` roundings, whatever their signs. */
static inline double vkmha_rounding_error(double count)
{
    const double sum = count * VKMHA_UNIT;
    return sum < 1.0 ? sum / (1.0 - sum) : INFINITY;
}

/*
 * The same where the signs may be taken as random: the smaller of gamma and lambda sqrt(n) u,
 * lambda = 10. Equal terms are not random: each is rounded the same way while the sum keeps its
 * exponent, by half an ULP at most, which adds up to less than n u / 3.
 */
static inline double vkmha_likely_error(double count)
{
    const double likely = fmax(10.0 * sqrt(count), count / 3.0) * VKMHA_UNIT;
    return fmin(vkmha_rounding_error(count), likely);
}

/*
 * How far `exponentials` chained factors exp(x_1) exp(x_2)... with |x_1| + |x_2| + ... = x may be
 * off, as an exponent: Vulkan allows each 3 + 2|x| ULP, and x itself is a rounded difference.
 */
static inline double vkmha_exp_error(double x, double exponentials)
{
    return (6.0 * exponentials + 5.0 * x) * VKMHA_UNIT;
}

/* NaN stays. */
static inline double vkmha_clamp_score(double score)
{
    return score < -FLT_MAX ? -FLT_MAX : score > FLT_MAX ? FLT_MAX : score;
}

/*
 * The fp32 sum of a score and a mask: rounding is monotonic, so the ends of the score's interval
 * bound it, which keeps a mask of -FLT_MAX sharp: it absorbs the scores. What lies below -FLT_MAX
 * counts as that.
 */
static inline double vkmha_mask_score(double score, double added, double *slack)
{
    const double sum = vkmha_clamp_score(score + added);
    const double lowest = (double)(float)vkmha_clamp_score(score - *slack + added);
    const double highest = (double)(float)vkmha_clamp_score(score + *slack + added);
    *slack = fmax(highest - sum, sum - lowest);
    return sum;
}

/* sum / least, but never more than `limit`. */
static inline double vkmha_limited_ratio(double sum, double least, double limit)
{
    return sum < limit * least ? sum / least : limit;
}

#endif
