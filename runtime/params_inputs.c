/* Host tensors against a checked plan. */
#include <inttypes.h>

#include "params_check.h"

typedef struct vkmha_presence {
    const char *field;
    const void *data;
    uint64_t count;
    bool is_wanted;
    const char *rule;
} vkmha_presence;

/* What is wanted must be there, and nothing else. */
static vkmha_status check_presence(const vkmha_presence *members, size_t num_members,
                                   vkmha_error *error)
{
    for (size_t i = 0; i < num_members; i++) {
        if (!members[i].is_wanted && members[i].data) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is given, but %s",
                              members[i].field, members[i].rule);
        }
        if (members[i].is_wanted && members[i].count != 0 && !members[i].data) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "%s is NULL, the plan needs %" PRIu64 " elements", members[i].field,
                              members[i].count);
        }
    }
    return VKMHA_OK;
}

static vkmha_status check_tensors(const vkmha_plan_params *plan, const vkmha_sizes *sizes,
                                  const vkmha_inputs *given, vkmha_error *error)
{
    const bool has_past = plan->past_len != 0;
    const vkmha_presence tensors[] = {
        {"query", given->query, sizes->query, true, ""},
        {"key", given->key, sizes->key, !plan->key_is_query, "key_is_query takes the query input"},
        {"value", given->value, sizes->value, !plan->value_is_key,
         "value_is_key takes the key input"},
        {"mask", given->mask, sizes->mask, plan->mask != VKMHA_MASK_NONE, "the plan has no mask"},
        {"attend_keys", given->attend_keys, sizes->attend_keys, plan->has_attend_keys,
         "the plan has no has_attend_keys"},
        {"head_gates", given->head_gates, sizes->head_gates, plan->has_head_gates,
         "the plan has no has_head_gates"},
        {"output_gradient", given->output_gradient, sizes->output_gradient,
         plan->has_gate_gradients, "the plan has no has_gate_gradients"},
        {"past_key", given->past_key, sizes->past_key, has_past, "the plan has no past_len"},
        {"past_value", given->past_value, sizes->past_value, has_past, "the plan has no past_len"},
    };
    return check_presence(tensors, sizeof(tensors) / sizeof(tensors[0]), error);
}

static vkmha_status check_arrays(const vkmha_plan_params *plan, const vkmha_sizes *sizes,
                                 const vkmha_inputs *given, vkmha_error *error)
{
    const uint64_t batch = plan->batch_size;
    const char *no_positions = "the plan has no has_positions";
    const vkmha_presence arrays[] = {
        {"key_lengths", given->key_lengths, batch, plan->has_key_lengths,
         "the plan has no has_key_lengths"},
        {"first_keys", given->first_keys, batch, plan->has_first_keys,
         "the plan has no has_first_keys"},
        {"position_offsets", given->position_offsets, batch, plan->has_position_offsets,
         "the plan has no has_position_offsets"},
        {"query_positions", given->query_positions, sizes->query_rows, plan->has_positions,
         no_positions},
        {"key_positions", given->key_positions, sizes->key_rows, plan->has_positions, no_positions},
        {"cu_query_lens", given->cu_query_lens, batch + 1, plan->is_packed,
         "the plan is not is_packed"},
        {"cu_key_lens", given->cu_key_lens, batch + 1, plan->is_packed,
         "the plan is not is_packed"},
        {"cache", given->cache, 1, plan->cache_capacity != 0, "the plan has no cache_capacity"},
    };
    return check_presence(arrays, sizeof(arrays) / sizeof(arrays[0]), error);
}

static vkmha_status check_values(const char *field, const int32_t *values, uint64_t count,
                                 int64_t low, int64_t high, const char *high_name,
                                 vkmha_error *error)
{
    for (uint64_t i = 0; i < count; i++) {
        if (values[i] < low || values[i] > high) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "%s[%" PRIu64 "] %" PRId32 " is not in %" PRId64 "..%s %" PRId64,
                              field, i, values[i], low, high_name, high);
        }
    }
    return VKMHA_OK;
}

/* Ends of sequences in a packed tensor of `total` rows, none longer than `longest`. */
static vkmha_status check_ends(const char *field, const int32_t *ends, uint64_t batch_size,
                               uint64_t total, const char *total_name, uint64_t longest,
                               const char *longest_name, vkmha_error *error)
{
    if (ends[0] != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s[0] %" PRId32 " is not 0", field,
                          ends[0]);
    }
    for (uint64_t b = 0; b < batch_size; b++) {
        const int64_t length = (int64_t)ends[b + 1] - ends[b];
        if (length < 0) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "%s[%" PRIu64 "] %" PRId32 " is less than the one before, %" PRId32,
                              field, b + 1, ends[b + 1], ends[b]);
        }
        if ((uint64_t)length > longest) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "%s[%" PRIu64 "] %" PRId32 " ends a sequence of %" PRId64
                              ", longer than %s %" PRIu64,
                              field, b + 1, ends[b + 1], length, longest_name, longest);
        }
    }
    if ((uint64_t)ends[batch_size] != total) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s[%" PRIu64 "] %" PRId32 " is not %s %" PRIu64, field, batch_size,
                          ends[batch_size], total_name, total);
    }
    return VKMHA_OK;
}

static vkmha_status check_packing(const vkmha_plan_params *plan, const vkmha_inputs *given,
                                  vkmha_error *error)
{
    if (!plan->is_packed) {
        return VKMHA_OK;
    }
    vkmha_status status =
        check_ends("cu_query_lens", given->cu_query_lens, plan->batch_size, plan->total_queries,
                   "total_queries", plan->query_len, "query_len", error);
    if (status == VKMHA_OK) {
        status = check_ends("cu_key_lens", given->cu_key_lens, plan->batch_size, plan->total_keys,
                            "total_keys", plan->key_len, "key_len", error);
    }
    return status;
}

vkmha_status vkmha_check_item_positions(const vkmha_layer_params *layer,
                                        const vkmha_plan_params *plan, const vkmha_item *item,
                                        uint64_t b, vkmha_error *error)
{
    if (layer->rope.style == VKMHA_ROPE_NONE || plan->has_positions) {
        return VKMHA_OK;
    }
    const int64_t last_query = item->query_length - 1 + item->position_offset;
    /* Keys past the sequence's length are not there, whatever their place. */
    const int64_t end = item->past_length + item->new_keys;
    const int64_t last_key = (item->key_length < end ? item->key_length : end) - 1;
    const bool is_query =
        item->query_length > 0 && last_query >= (int64_t)layer->rope.max_positions;
    const bool is_key =
        last_key >= item->past_length && last_key >= (int64_t)layer->rope.max_positions;
    if (is_query || is_key) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "sequence %" PRIu64 "'s last %s stands at position %" PRId64
                          ", not below rope.max_positions %u",
                          b, is_query ? "query" : "key", is_query ? last_query : last_key,
                          layer->rope.max_positions);
    }
    return VKMHA_OK;
}

static vkmha_status check_positions(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                    const vkmha_sizes *sizes, const vkmha_inputs *given,
                                    vkmha_error *error)
{
    if (plan->has_positions) {
        const int64_t last = (int64_t)layer->rope.max_positions - 1;
        vkmha_status status =
            check_values("query_positions", given->query_positions, sizes->query_rows, 0, last,
                         "rope.max_positions - 1 =", error);
        if (status == VKMHA_OK) {
            status = check_values("key_positions", given->key_positions, sizes->key_rows, 0, last,
                                  "rope.max_positions - 1 =", error);
        }
        return status;
    }
    if (plan->cache_capacity != 0) {
        return VKMHA_OK;
    }
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const vkmha_item item = vkmha_plan_item(plan, given, 0, b);
        vkmha_status status = vkmha_check_item_positions(layer, plan, &item, b, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_sequences(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                   const vkmha_inputs *given, vkmha_error *error)
{
    vkmha_sizes sizes;
    vkmha_plan_sizes(layer, plan, &sizes);
    const struct {
        const char *field;
        const int32_t *values;
        bool is_given;
        int64_t low;
        int64_t high;
        const char *high_name;
    } arrays[] = {
        {"key_lengths", given->key_lengths, plan->has_key_lengths, 0, (int64_t)sizes.all_keys,
         "all keys,"},
        {"first_keys", given->first_keys, plan->has_first_keys, 0, (int64_t)sizes.all_keys,
         "all keys,"},
        {"position_offsets", given->position_offsets, plan->has_position_offsets, -VKMHA_MAX_OFFSET,
         VKMHA_MAX_OFFSET, ""},
    };
    vkmha_status status = check_arrays(plan, &sizes, given, error);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]) && status == VKMHA_OK; i++) {
        if (arrays[i].is_given) {
            status = check_values(arrays[i].field, arrays[i].values, plan->batch_size,
                                  arrays[i].low, arrays[i].high, arrays[i].high_name, error);
        }
    }
    if (status == VKMHA_OK) {
        status = check_packing(plan, given, error);
    }
    if (status == VKMHA_OK) {
        status = check_positions(layer, plan, &sizes, given, error);
    }
    return status;
}

vkmha_status vkmha_check_inputs(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                const vkmha_inputs *given, vkmha_inputs *inputs, vkmha_error *error)
{
    if (!given) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "inputs is NULL");
    }
    vkmha_sizes sizes;
    vkmha_plan_sizes(layer, plan, &sizes);
    vkmha_status status = check_tensors(plan, &sizes, given, error);
    if (status == VKMHA_OK) {
        status = vkmha_check_sequences(layer, plan, given, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    *inputs = *given;
    if (plan->key_is_query) {
        inputs->key = inputs->query;
    }
    if (plan->value_is_key) {
        inputs->value = inputs->key;
    }
    return VKMHA_OK;
}
