/* What a run tells the device of each sequence: lengths, offsets, rows, rotary positions. */
#include "fill.h"

static int32_t clamp_rotary(int64_t position)
{
    return (int32_t)(position < 0 ? 0 : position > INT32_MAX ? INT32_MAX : position);
}

static void fill_positions(const vkmha_plan *plan, const vkmha_inputs *inputs,
                           const vkmha_item *item, int32_t *positions)
{
    const bool is_given = plan->params.has_positions;
    int32_t *queries = positions + item->first_query_row;
    int32_t *keys = positions + plan->sizes.query_rows + item->first_key_row;
    for (int64_t i = 0; i < item->query_length; i++) {
        queries[i] = is_given ? inputs->query_positions[item->first_query_row + i]
                              : clamp_rotary(i + item->position_offset);
    }
    for (int64_t j = 0; j < item->new_keys; j++) {
        keys[j] = is_given ? inputs->key_positions[item->first_key_row + j]
                           : clamp_rotary(j + item->past_length);
    }
}

void vkmha_fill_sequences(const vkmha_plan *plan, const vkmha_inputs *inputs,
                          vkmha_sequence *sequences, int32_t *positions)
{
    const vkmha_plan_params *params = &plan->params;
    for (uint64_t b = 0; b < params->batch_size; b++) {
        const uint64_t cached =
            params->cache_capacity > 0 ? vkmha_cache_length(inputs->cache, b) : 0;
        const vkmha_item item = vkmha_plan_item(params, inputs, cached, b);
        if (plan->sizes.sequences > 0) {
            sequences[b] = (vkmha_sequence){
                .first_key = (int32_t)item.first_key,
                .key_length = (int32_t)item.key_length,
                .position_offset = (int32_t)item.position_offset,
                .past_length = (int32_t)item.past_length,
                .first_query_row = params->is_packed ? (int32_t)item.first_query_row : 0,
                .query_length = (int32_t)item.query_length,
                .first_key_row = params->is_packed ? (int32_t)item.first_key_row : 0,
            };
        }
        if (plan->sizes.positions > 0) {
            fill_positions(plan, inputs, &item, positions);
        }
    }
}

vkmha_status vkmha_plan_fill(const vkmha_plan *plan, const vkmha_inputs *inputs,
                             vkmha_sequence *sequences, int32_t *positions, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!plan || !inputs) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL",
                          plan ? "inputs" : "plan");
    }
    if ((plan->sizes.sequences > 0 && !sequences) || (plan->sizes.positions > 0 && !positions)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL, but the plan needs it",
                          plan->sizes.sequences > 0 && !sequences ? "sequences" : "positions");
    }
    vkmha_status status = vkmha_check_sequences(&plan->layer->params, &plan->params, inputs, error);
    if (status == VKMHA_OK && plan->params.cache_capacity > 0) {
        status = vkmha_cache_check(inputs->cache, plan->layer, &plan->params, inputs, error);
    }
    if (status == VKMHA_OK) {
        vkmha_fill_sequences(plan, inputs, sequences, positions);
    }
    return status;
}
