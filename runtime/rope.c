#include "rope.h"

#include <math.h>

void vkmha_rope_entry(const vkmha_rope *rope, uint32_t head_dim, uint64_t position, uint32_t pair,
                      float *cosine, float *sine)
{
    const uint32_t dim = rope->dim ? rope->dim : head_dim;
    const uint64_t last = rope->max_positions ? rope->max_positions - 1 : 0;
    const uint64_t row = position < last ? position : last;
    if (rope->cos) {
        *cosine = rope->cos[row * (dim / 2) + pair];
        *sine = rope->sin[row * (dim / 2) + pair];
        return;
    }
    const double base = rope->base != 0.0f ? (double)rope->base : 10000.0;
    const double angle = (double)row * pow(base, -2.0 * (double)pair / (double)dim);
    *cosine = (float)cos(angle);
    *sine = (float)sin(angle);
}
