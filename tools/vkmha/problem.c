#include "problem.h"

#include <string.h>

vkmha_problem_sizes vkmha_problem_measure(const vkmha_problem *problem)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    vkmha_problem_sizes sizes = {
        .num_kv_heads = layer->num_kv_heads ? layer->num_kv_heads : layer->num_heads,
        .v_head_dim = layer->v_head_dim ? layer->v_head_dim : layer->head_dim,
        .query_rows = plan->is_packed ? plan->total_queries : plan->batch_size * plan->query_len,
        .key_rows = plan->is_packed ? plan->total_keys : plan->batch_size * plan->key_len,
        .all_keys = plan->cache_capacity ? plan->cache_capacity : plan->past_len + plan->key_len,
    };
    if (plan->has_present) {
        const uint64_t rows = plan->batch_size * sizes.num_kv_heads * sizes.all_keys;
        sizes.present_key = rows * layer->head_dim;
        sizes.present_value = rows * sizes.v_head_dim;
    }
    if (plan->has_head_gates || plan->has_gates_per_sequence) {
        sizes.head_gates = layer->num_heads * (plan->has_gates_per_sequence ? plan->batch_size : 1);
    }
    sizes.heads_query = sizes.query_rows * layer->num_heads * layer->head_dim;
    sizes.heads_key = sizes.key_rows * sizes.num_kv_heads * layer->head_dim;
    sizes.heads_value = sizes.key_rows * sizes.num_kv_heads * sizes.v_head_dim;
    sizes.attention = sizes.query_rows * layer->num_heads * sizes.v_head_dim;
    if (layer->attention_only) {
        sizes.query_dim = (uint64_t)layer->num_heads * layer->head_dim;
        sizes.key_dim = sizes.num_kv_heads * layer->head_dim;
        sizes.value_dim = sizes.num_kv_heads * sizes.v_head_dim;
        sizes.output_dim = layer->num_heads * sizes.v_head_dim;
    } else {
        sizes.query_dim = layer->embed_dim;
        sizes.key_dim = layer->key_dim ? layer->key_dim : layer->embed_dim;
        sizes.value_dim = layer->value_dim ? layer->value_dim : layer->embed_dim;
        sizes.output_dim = layer->output_dim ? layer->output_dim : layer->embed_dim;
    }
    sizes.output = sizes.query_rows * sizes.output_dim;
    return sizes;
}

const float *vkmha_problem_key(const vkmha_problem *problem)
{
    return problem->plan.key_is_query ? problem->inputs.query : problem->inputs.key;
}

const float *vkmha_problem_value(const vkmha_problem *problem)
{
    return problem->plan.value_is_key ? vkmha_problem_key(problem) : problem->inputs.value;
}

/* ---- Sequences ----------------------------------------------------------------------------- */

vkmha_problem_item vkmha_problem_sequence(const vkmha_problem *problem, uint64_t b)
{
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_inputs *inputs = &problem->inputs;
    vkmha_problem_item item = {
        .first_query_row = b * plan->query_len,
        .query_length = plan->query_len,
        .first_key_row = b * plan->key_len,
        .new_keys = plan->key_len,
        .first_key = plan->has_first_keys ? inputs->first_keys[b] : 0,
    };
    if (plan->is_packed) {
        item.first_query_row = (uint64_t)inputs->cu_query_lens[b];
        item.query_length = (uint64_t)inputs->cu_query_lens[b + 1] - item.first_query_row;
        item.first_key_row = (uint64_t)inputs->cu_key_lens[b];
        item.new_keys = (uint64_t)inputs->cu_key_lens[b + 1] - item.first_key_row;
    }
    item.key_length =
        plan->has_key_lengths ? inputs->key_lengths[b] : (int64_t)(plan->past_len + item.new_keys);
    if (plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT ||
        plan->positions == VKMHA_POSITIONS_BOTTOM_RIGHT) {
        item.position_offset = item.key_length - (int64_t)item.query_length;
    } else if (plan->causal == VKMHA_CAUSAL_OFFSET || plan->positions == VKMHA_POSITIONS_OFFSET) {
        item.position_offset =
            plan->has_position_offsets ? inputs->position_offsets[b] : plan->position_offset;
    }
    return item;
}

/* ---- Places of elements -------------------------------------------------------------------- */

vkmha_span vkmha_problem_contiguous(const vkmha_problem *problem, vkmha_role role)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const bool is_query = role == VKMHA_ROLE_QUERY || role == VKMHA_ROLE_OUTPUT;
    const uint64_t dims[] = {sizes.query_dim, sizes.key_dim, sizes.value_dim, sizes.output_dim};
    vkmha_span span = {
        .batch = plan->is_packed ? 1 : plan->batch_size,
        .rows = is_query ? plan->query_len : plan->key_len,
        .heads = !layer->attention_only ? 1
                 : is_query             ? layer->num_heads
                                        : sizes.num_kv_heads,
    };
    if (plan->is_packed) {
        span.rows = is_query ? sizes.query_rows : sizes.key_rows;
    }
    span.features = dims[role] / span.heads;
    const bool is_heads_first = plan->layout == VKMHA_LAYOUT_BHSD;
    span.strides = (vkmha_strides){
        .is_given = true,
        .batch = plan->is_packed ? 0 : span.rows * dims[role],
        .row = is_heads_first ? span.features : dims[role],
    };
    if (layer->attention_only) {
        span.strides.head = is_heads_first ? span.rows * span.features : span.features;
    }
    return span;
}

vkmha_span vkmha_problem_span(const vkmha_problem *problem, vkmha_role role)
{
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_strides *given[] = {&plan->query_strides, &plan->key_strides, &plan->value_strides,
                                    &plan->output_strides};
    vkmha_span span = vkmha_problem_contiguous(problem, role);
    vkmha_role from = role;
    if (from == VKMHA_ROLE_VALUE && plan->value_is_key && !given[from]->is_given) {
        from = VKMHA_ROLE_KEY;
    }
    if (from == VKMHA_ROLE_KEY && plan->key_is_query && !given[from]->is_given) {
        from = VKMHA_ROLE_QUERY;
    }
    if (given[from]->is_given) {
        span.strides = *given[from];
    }
    return span;
}

uint64_t vkmha_span_extent(const vkmha_span *span)
{
    const vkmha_strides *strides = &span->strides;
    if (span->batch == 0 || span->rows == 0) {
        return 0;
    }
    return strides->offset + (span->batch - 1) * strides->batch + (span->rows - 1) * strides->row +
           (span->heads - 1) * strides->head + span->features;
}

static uint64_t place_of(const vkmha_span *span, uint64_t b, uint64_t s, uint64_t h)
{
    const vkmha_strides *strides = &span->strides;
    return strides->offset + b * strides->batch + s * strides->row + h * strides->head;
}

void vkmha_span_copy(const vkmha_span *from, const float *values, const vkmha_span *to,
                     float *copied)
{
    for (uint64_t b = 0; b < from->batch; b++) {
        for (uint64_t s = 0; s < from->rows; s++) {
            for (uint64_t h = 0; h < from->heads; h++) {
                memcpy(copied + place_of(to, b, s, h), values + place_of(from, b, s, h),
                       (size_t)from->features * sizeof(float));
            }
        }
    }
}
