/*
 * Every check of user input and every default, in one place. Later code trusts what comes from here.
 */
#ifndef VKMHA_RUNTIME_PARAMS_H
#define VKMHA_RUNTIME_PARAMS_H

#include "status.h"

/* *product = a * b, or false where that does not fit in 63 bits. */
bool vkmha_multiply(uint64_t a, uint64_t b, uint64_t *product);

/* `count` factors multiplied; false as above. */
bool vkmha_multiply_all(const uint64_t *factors, uint32_t count, uint64_t *product);

/* Checks `given` and writes a copy without defaults: kv heads, dims, scale (has_scale set), strides. */
vkmha_status vkmha_check_layer(const vkmha_layer_params *given, vkmha_layer_params *layer,
                               vkmha_error *error) VKMHA_CHECKED;

/* Checks `given` against a checked layer. Kernel names are checked by the planner. */
vkmha_status vkmha_check_plan(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                              vkmha_plan_params *plan, vkmha_error *error) VKMHA_CHECKED;

/* Elements of each tensor of a plan; every byte size of them fits in 63 bits. */
typedef struct vkmha_sizes {
    uint64_t query;
    uint64_t key;
    uint64_t value;
    uint64_t output;
    uint64_t mask;        /* 0 without */
    uint64_t mask_bytes;
    uint64_t attend_keys; /* 0 without */
    uint64_t key_lengths; /* 0 without */
    uint64_t heads_query;     /* [batch_size, query_len, num_heads, head_dim] */
    uint64_t heads_key;       /* [batch_size, key_len, num_kv_heads, head_dim] */
    uint64_t heads_value;     /* [batch_size, key_len, num_kv_heads, v_head_dim] */
    uint64_t heads_attention; /* [batch_size, query_len, num_heads, v_head_dim] */
} vkmha_sizes;

/* Never fails for a checked plan. */
void vkmha_plan_sizes(const vkmha_layer_params *layer, const vkmha_plan_params *plan, vkmha_sizes *sizes);

/* Checks host tensors against a checked plan; *inputs is a copy whose key and value follow key_is_query and
 * value_is_key. */
vkmha_status vkmha_check_inputs(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                const vkmha_inputs *given, vkmha_inputs *inputs,
                                vkmha_error *error) VKMHA_CHECKED;

#endif
