/* Rotary positions (Su et al. 2021): the table of cosines and sines. */
#ifndef VKMHA_RUNTIME_ROPE_H
#define VKMHA_RUNTIME_ROPE_H

#include <vkmha/vkmha.h>

/* Entry [position, pair] of the given table, or of the one that base and dim make. Positions past
 * the table are taken as its end. `rope` is a layer's, as given or checked. */
void vkmha_rope_entry(const vkmha_rope *rope, uint32_t head_dim, uint64_t position, uint32_t pair,
                      float *cosine, float *sine);

#endif
