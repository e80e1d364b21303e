#include "prune.h"

#include <inttypes.h>
#include <string.h>

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* Heads that share a key/value head stay contiguous, so what is left can be said where each
 * key/value head that stays has as many of them. */
static vkmha_status check_groups(const vkmha_selection *selection, vkmha_error *error)
{
    const uint32_t group = selection->num_heads / selection->num_kv_heads;
    uint32_t first_left = 0;
    uint32_t first = 0;
    for (uint32_t g = 0; g < selection->num_kv_heads; g++) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < group; i++) {
            left += selection->keeps[g * group + i];
        }
        if (left > 0 && first_left > 0 && left != first_left) {
            return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                   "key/value head %" PRIu32 " keeps %" PRIu32
                                   " query heads and key/value head %" PRIu32 " keeps %" PRIu32
                                   ": of grouped-query layers whole groups of %" PRIu32
                                   " go, or as many heads of each",
                                   first, first_left, g, left, group);
        }
        if (left > 0 && first_left == 0) {
            first_left = left;
            first = g;
        }
    }
    return VKMHA_OK;
}

vkmha_status vkmha_selection_make(const vkmha_problem *problem, const bool *keeps, vkmha_pool *pool,
                                  vkmha_selection *selection, vkmha_error *error)
{
    const uint32_t num_heads = problem->layer.num_heads;
    const uint32_t num_kv_heads = (uint32_t)vkmha_problem_measure(problem).num_kv_heads;
    const uint32_t group = num_heads / num_kv_heads;
    *selection = (vkmha_selection){
        .num_heads = num_heads,
        .num_kv_heads = num_kv_heads,
        .heads = vkmha_pool_allocate(pool, num_heads, sizeof(uint32_t)),
        .kv_heads = vkmha_pool_allocate(pool, num_kv_heads, sizeof(uint32_t)),
        .keeps = vkmha_pool_allocate(pool, num_heads, sizeof(bool)),
        .keeps_kv = vkmha_pool_allocate(pool, num_kv_heads, sizeof(bool)),
    };
    if (!selection->heads || !selection->kv_heads || !selection->keeps || !selection->keeps_kv) {
        return out_of_memory(error);
    }
    for (uint32_t h = 0; h < num_heads; h++) {
        selection->keeps[h] = keeps[h];
        if (!keeps[h]) {
            continue;
        }
        selection->heads[selection->num_kept++] = h;
        if (!selection->keeps_kv[h / group]) {
            selection->keeps_kv[h / group] = true;
            selection->kv_heads[selection->num_kv_kept++] = h / group;
        }
    }
    if (selection->num_kept == 0) {
        return vkmha_tool_fail(
            error, VKMHA_ERROR_INVALID_ARGUMENT,
            "all num_heads %" PRIu32 " heads are removed; one at least must stay", num_heads);
    }
    return check_groups(selection, error);
}

/* [outer, heads, inner bytes] of the kept heads. */
static const void *keep_parts(const void *values, uint64_t outer, uint64_t heads, uint64_t inner,
                              const uint32_t *kept, uint32_t num_kept, vkmha_pool *pool)
{
    char *made = vkmha_pool_allocate(pool, outer * num_kept, inner > 0 ? inner : 1);
    for (uint64_t i = 0; made && i < outer * num_kept; i++) {
        const uint64_t from = i / num_kept * heads + kept[i % num_kept];
        memcpy(made + i * inner, (const char *)values + from * inner, (size_t)inner);
    }
    return made;
}

vkmha_status vkmha_selection_apply(const vkmha_selection *selection, const vkmha_problem *problem,
                                   vkmha_pool *pool, vkmha_problem *pruned, vkmha_error *error)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_inputs *inputs = &problem->inputs;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    *pruned = *problem;
    pruned->layer.num_heads = selection->num_kept;
    pruned->layer.num_kv_heads = selection->num_kv_kept;
    if (layer->has_alibi && !layer->alibi_slopes) {
        return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "alibi_slopes are not given: those of the paper are for all "
                               "num_heads %" PRIu32 " heads",
                               layer->num_heads);
    }
    enum { SLOPES, BUCKETS, SINKS, BIAS_K, BIAS_V, GATES, PAST_KEY, PAST_VALUE, MASK, NUM_PARTS };
    const bool is_mask_of_heads = plan->mask != VKMHA_MASK_NONE && plan->mask_dims[1] > 1;
    const uint64_t past = plan->past_len * sizeof(float);
    const struct {
        const void *values;
        uint64_t outer;
        uint64_t inner; /* bytes */
        bool is_kv;
    } parts[NUM_PARTS] = {
        [SLOPES] = {layer->alibi_slopes, 1, sizeof(float), false},
        [BUCKETS] = {layer->relative_bias.table, 1,
                     layer->relative_bias.num_buckets * sizeof(float), false},
        [SINKS] = {layer->sinks, 1, sizeof(float), false},
        [BIAS_K] = {layer->bias_k, 1, layer->head_dim * sizeof(float), true},
        [BIAS_V] = {layer->bias_v, 1, sizes.v_head_dim * sizeof(float), true},
        [GATES] = {inputs->head_gates, plan->has_gates_per_sequence ? plan->batch_size : 1,
                   sizeof(float), false},
        [PAST_KEY] = {inputs->past_key, plan->batch_size, past * layer->head_dim, true},
        [PAST_VALUE] = {inputs->past_value, plan->batch_size, past * sizes.v_head_dim, true},
        [MASK] = {is_mask_of_heads ? inputs->mask : NULL, plan->mask_dims[0],
                  plan->mask_dims[2] * vkmha_mask_row_bytes(plan), false},
    };
    const void *made[NUM_PARTS] = {NULL};
    for (uint32_t i = 0; i < NUM_PARTS; i++) {
        if (!parts[i].values) {
            continue;
        }
        made[i] =
            parts[i].is_kv
                ? keep_parts(parts[i].values, parts[i].outer, selection->num_kv_heads,
                             parts[i].inner, selection->kv_heads, selection->num_kv_kept, pool)
                : keep_parts(parts[i].values, parts[i].outer, selection->num_heads, parts[i].inner,
                             selection->heads, selection->num_kept, pool);
        if (!made[i]) {
            return out_of_memory(error);
        }
    }
    pruned->layer.alibi_slopes = made[SLOPES];
    pruned->layer.relative_bias.table = made[BUCKETS];
    pruned->layer.sinks = made[SINKS];
    pruned->layer.bias_k = made[BIAS_K];
    pruned->layer.bias_v = made[BIAS_V];
    pruned->inputs.head_gates = made[GATES];
    pruned->inputs.past_key = made[PAST_KEY];
    pruned->inputs.past_value = made[PAST_VALUE];
    if (is_mask_of_heads) {
        pruned->inputs.mask = made[MASK];
        pruned->plan.mask_dims[1] = selection->num_kept;
    }
    return VKMHA_OK;
}
