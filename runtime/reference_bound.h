/*
 * The rounding errors that an honest fp32 kernel may make (vkmha_reference.h tells the sources). Units: the unit
 * roundoff u = 2^-24; one ULP is at most 2 u of the value.
 */
#ifndef VKMHA_RUNTIME_REFERENCE_BOUND_H
#define VKMHA_RUNTIME_REFERENCE_BOUND_H

#include <math.h>
#include <stdint.h>

#define VKMHA_UNIT 0x1p-24
/* What flushing a denormal to zero can take away. */
#define VKMHA_FLUSH 0x1p-126

/* Relative error of a sum of `count` terms: the smaller of Higham's gamma and lambda sqrt(n) u, lambda = 10. */
static inline double vkmha_sum_error(uint64_t count)
{
    const double n = (double)count;
    const double worst = n * VKMHA_UNIT < 0.5 ? n * VKMHA_UNIT / (1.0 - n * VKMHA_UNIT) : INFINITY;
    const double probable = 10.0 * sqrt(n) * VKMHA_UNIT;
    return worst < probable ? worst : probable;
}

/* Relative error of exp(x) in fp32, its argument rounded: Vulkan allows 3 + 2|x| ULP. */
static inline double vkmha_exp_error(double x)
{
    return (3.0 + 2.0 * fabs(x)) * 2.0 * VKMHA_UNIT + fabs(x) * VKMHA_UNIT;
}

#endif
