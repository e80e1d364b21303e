/*
 * Every check of layers, plans and inputs, and every default (params*.c). Later code trusts what comes from
 * here.
 */
#ifndef VKMHA_RUNTIME_PARAMS_H
#define VKMHA_RUNTIME_PARAMS_H

#include "status.h"

/* *product = a * b, or false where that does not fit in 63 bits. */
bool vkmha_multiply(uint64_t a, uint64_t b, uint64_t *product);

/* `count` factors multiplied; false as above. */
bool vkmha_multiply_all(const uint64_t *factors, uint32_t count, uint64_t *product);

/* Checks `given` and writes a copy without defaults: kv heads, dims, scale (has_scale set), strides
 * of weights, rope.dim and rope.base. The pointers of options stay the caller's. */
vkmha_status vkmha_check_layer(const vkmha_layer_params *given, vkmha_layer_params *layer,
                               vkmha_error *error) VKMHA_CHECKED;

/*
 * Checks `given` against a checked layer and writes a copy without defaults: positions agree with
 * causal; has_head_gates is set with has_gates_per_sequence; all four strides are given (a tensor's
 * unused axes have stride 0: batch where packed, head with projections). Kernel names are checked
 * by the planner.
 */
vkmha_status vkmha_check_plan(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                              vkmha_plan_params *plan, vkmha_error *error) VKMHA_CHECKED;

/*
 * The type of keys and values as attention sees them: the cache's where any are kept, from earlier
 * calls or for later ones, else fp32. Keys that are given and not moved have their own.
 */
static inline vkmha_type vkmha_kept_type(const vkmha_layer_params *layer,
                                         const vkmha_plan_params *plan)
{
    const bool is_kept = plan->past_len > 0 || plan->has_present || plan->cache_capacity > 0;
    return is_kept ? layer->cache_type : VKMHA_TYPE_F32;
}

/* Elements of each tensor of a plan, 0 where it has none; every byte size of them fits in 63 bits.
 */
typedef struct vkmha_sizes {
    uint64_t query_rows; /* of all sequences: batch_size * query_len, or total_queries */
    uint64_t key_rows;   /* new keys */
    uint64_t all_keys;   /* of a sequence: past_len + key_len, or cache_capacity */
    /* Elements from the start of a memory to the last that any tensor in it reaches. key and value:
     * 0 where they lie in another's memory (key_is_query, value_is_key). */
    uint64_t query;
    uint64_t key;
    uint64_t value;
    uint64_t output;
    uint64_t mask; /* bits: words */
    uint64_t mask_bytes;
    uint64_t attend_keys;
    uint64_t sequences; /* batch_size, where any of a vkmha_sequence may differ from the plan's */
    uint64_t positions; /* query_rows + key_rows, where something is rotated */
    uint64_t head_gates;
    uint64_t past_key;
    uint64_t past_value;
    uint64_t present_key;
    uint64_t present_value;
    uint64_t columns; /* of weights: all keys, bias_k's, the zero key's */
    uint64_t chosen_heads; /* how many, as the next */
    uint64_t chosen_queries;
    uint64_t lse; /* as the next, 0 where it is not asked for */
    uint64_t weights;
    uint64_t mean_weights;
    uint64_t scores;
    uint64_t statistics; /* floats */
    uint64_t key_mass;
    uint64_t contributions;
    uint64_t gate_gradients;
    uint64_t output_gradient;
    uint64_t heads_query;     /* [query rows, num_heads, head_dim] */
    uint64_t heads_key;       /* [key rows, num_kv_heads, head_dim] */
    uint64_t heads_value;     /* [key rows, num_kv_heads, v_head_dim] */
    uint64_t heads_attention; /* [query rows, num_heads, v_head_dim] */
} vkmha_sizes;

/* Never fails for a checked plan. */
void vkmha_plan_sizes(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                      vkmha_sizes *sizes);

/* What is so for one sequence, as vkmha_sequence tells it to the device (vkmha_vulkan.h). */
typedef struct vkmha_item {
    int64_t first_key;
    int64_t key_length;
    int64_t position_offset;
    int64_t past_length;     /* keys before the new ones: past_len, or the cache's */
    int64_t first_query_row; /* among all query rows: b * query_len, or where packed it begins */
    int64_t query_length;
    int64_t first_key_row; /* among all new keys' rows */
    int64_t new_keys;
} vkmha_item;

/* `cached`: keys that the cache holds of sequence b; 0 without. */
vkmha_item vkmha_plan_item(const vkmha_plan_params *plan, const vkmha_inputs *inputs,
                           uint64_t cached, uint64_t b);

/* Of host tensors, only the arrays that tell of sequences: lengths, offsets, positions; and that a
 * cache is there. */
vkmha_status vkmha_check_sequences(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                   const vkmha_inputs *given, vkmha_error *error) VKMHA_CHECKED;

/* Checks host tensors against a checked plan; *inputs is a copy whose key and value follow
 * key_is_query and value_is_key. The cache is only checked to be there or not; its owner checks the
 * rest. */
vkmha_status vkmha_check_inputs(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                const vkmha_inputs *given, vkmha_inputs *inputs,
                                vkmha_error *error) VKMHA_CHECKED;

/* Checks that there is memory for what the plan was asked, and for nothing else. */
vkmha_status vkmha_check_outputs(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                 const vkmha_sizes *sizes, const vkmha_outputs *outputs,
                                 vkmha_error *error) VKMHA_CHECKED;

#endif
