/* Keys and values of earlier tokens: [batch, key/value heads, capacity, features rounded up to 4].
 */
#ifndef VKMHA_RUNTIME_CACHE_H
#define VKMHA_RUNTIME_CACHE_H

#include "layer.h"

struct vkmha_cache {
    vkmha_layer *layer; /* holds a reference */
    uint64_t batch_size;
    uint64_t capacity;
    uint64_t *lengths; /* of each sequence */
    vkmha_block key;
    vkmha_block value;
};

/* Whether the cache takes the plan's new keys, at positions that the layer's table has. Errors:
 * INVALID_ARGUMENT. */
vkmha_status vkmha_cache_check(const vkmha_cache *cache, const vkmha_layer *layer,
                               const vkmha_plan_params *plan, const vkmha_inputs *inputs,
                               vkmha_error *error) VKMHA_CHECKED;

/* The plan's new keys are there. */
void vkmha_cache_advance(vkmha_cache *cache, uint64_t new_keys);

#endif
