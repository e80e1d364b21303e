/* Problems that must give the same bits as another. */
#include "same.h"

#include <math.h>
#include <string.h>

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* ---- One sequence alone -------------------------------------------------------------------- */

static void copy_cell(vkmha_mask_type type, const char *from, uint64_t from_cell, char *to,
                      uint64_t to_cell)
{
    const uint32_t *from_words;
    uint32_t *to_words;
    switch (type) {
    case VKMHA_MASK_NONE:
        break;
    case VKMHA_MASK_ATTEND:
        to[to_cell] = from[from_cell];
        break;
    case VKMHA_MASK_ADDITIVE:
        memcpy(to + to_cell * sizeof(float), from + from_cell * sizeof(float), sizeof(float));
        break;
    case VKMHA_MASK_ADDITIVE_F16:
        memcpy(to + to_cell * sizeof(uint16_t), from + from_cell * sizeof(uint16_t),
               sizeof(uint16_t));
        break;
    case VKMHA_MASK_ATTEND_BITS:
        from_words = (const uint32_t *)(const void *)from;
        to_words = (uint32_t *)(void *)to;
        to_words[to_cell / 32] |= (from_words[from_cell / 32] >> from_cell % 32 & 1u)
                                  << to_cell % 32;
        break;
    }
}

/* Keys of a mask's row, with what fills its last word. */
static uint64_t row_cells(vkmha_mask_type type, uint64_t keys)
{
    return type == VKMHA_MASK_ATTEND_BITS ? (keys + 31) / 32 * 32 : keys;
}

/* The part of the mask that sequence b has. */
static const void *slice_mask(const vkmha_problem *problem, uint64_t b, vkmha_problem *alone,
                              vkmha_pool *pool)
{
    const vkmha_mask_type type = problem->plan.mask;
    const uint64_t *dims = problem->plan.mask_dims;
    uint64_t *sliced = alone->plan.mask_dims;
    const uint64_t all_keys = alone->plan.past_len + alone->plan.key_len;
    sliced[0] = 1;
    sliced[2] = dims[2] == 1 ? 1 : alone->plan.query_len;
    sliced[3] = dims[3] == 1 ? 1 : all_keys;
    const uint64_t from_row = row_cells(type, dims[3]);
    const uint64_t to_row = row_cells(type, sliced[3]);
    char *mask = vkmha_pool_allocate(pool, sliced[1] * sliced[2] * (to_row + 1), sizeof(float));
    const uint64_t first = dims[0] > 1 ? b * dims[1] * dims[2] : 0;
    for (uint64_t row = 0; mask && row < sliced[1] * sliced[2]; row++) {
        const uint64_t from = first + row / sliced[2] * dims[2] + row % sliced[2];
        for (uint64_t j = 0; j < sliced[3]; j++) {
            copy_cell(type, problem->inputs.mask, from * from_row + j, mask, row * to_row + j);
        }
    }
    return mask;
}

/* The rows of one sequence, where they are. */
static vkmha_strides strides_of(const vkmha_problem *problem, vkmha_role role, uint64_t b,
                                uint64_t first_row)
{
    vkmha_strides strides = vkmha_problem_span(problem, role).strides;
    strides.is_given = true;
    strides.offset += problem->plan.is_packed ? first_row * strides.row : b * strides.batch;
    strides.batch = 0;
    return strides;
}

vkmha_status vkmha_same_alone(const vkmha_problem *problem, uint64_t b, vkmha_pool *pool,
                              vkmha_problem *alone, vkmha_error *error)
{
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const vkmha_problem_item item = vkmha_problem_sequence(problem, b);
    const uint32_t num_heads = problem->layer.num_heads;
    *alone = *problem;
    vkmha_inputs *inputs = &alone->inputs;
    alone->plan.batch_size = 1;
    alone->plan.is_packed = false;
    alone->plan.total_queries = 0;
    alone->plan.total_keys = 0;
    alone->plan.query_len = item.query_length;
    alone->plan.key_len = item.new_keys;
    alone->plan.query_strides = strides_of(problem, VKMHA_ROLE_QUERY, b, item.first_query_row);
    alone->plan.key_strides = strides_of(problem, VKMHA_ROLE_KEY, b, item.first_key_row);
    alone->plan.value_strides = strides_of(problem, VKMHA_ROLE_VALUE, b, item.first_key_row);
    alone->plan.output_strides = (vkmha_strides){0};
    inputs->cu_query_lens = NULL;
    inputs->cu_key_lens = NULL;
    if (plan->mask != VKMHA_MASK_NONE) {
        inputs->mask = slice_mask(problem, b, alone, pool);
        if (!inputs->mask) {
            return out_of_memory(error);
        }
    }
    inputs->attend_keys += plan->has_attend_keys ? b * sizes.all_keys : 0;
    inputs->key_lengths += plan->has_key_lengths ? b : 0;
    inputs->position_offsets += plan->has_position_offsets ? b : 0;
    inputs->query_positions += plan->has_positions ? item.first_query_row : 0;
    inputs->key_positions += plan->has_positions ? item.first_key_row : 0;
    inputs->head_gates += plan->has_gates_per_sequence ? b * num_heads : 0;
    const uint64_t past_rows = b * sizes.num_kv_heads * plan->past_len;
    if (plan->past_len) {
        inputs->past_key =
            (const float *)inputs->past_key + past_rows * problem->layer.head_dim;
        inputs->past_value = (const float *)inputs->past_value + past_rows * sizes.v_head_dim;
    }
    if (plan->has_first_keys) {
        /* Of a longer sequence it may be past this one's end. */
        const int64_t last = (int64_t)(plan->past_len + item.new_keys);
        int32_t *first_key = vkmha_pool_allocate(pool, 1, sizeof(int32_t));
        if (!first_key) {
            return out_of_memory(error);
        }
        *first_key = (int32_t)(item.first_key < last ? item.first_key : last);
        inputs->first_keys = first_key;
    }
    return VKMHA_OK;
}

/* ---- Without gaps -------------------------------------------------------------------------- */

vkmha_status vkmha_same_contiguous(const vkmha_problem *problem, vkmha_pool *pool,
                                   vkmha_problem *contiguous, vkmha_error *error)
{
    const float *inputs[] = {problem->inputs.query, vkmha_problem_key(problem),
                             vkmha_problem_value(problem)};
    float *copies[3] = {NULL};
    for (uint32_t role = 0; role < 3; role++) {
        const vkmha_span from = vkmha_problem_span(problem, (vkmha_role)role);
        const vkmha_span to = vkmha_problem_contiguous(problem, (vkmha_role)role);
        copies[role] = vkmha_pool_allocate(pool, vkmha_span_extent(&to), sizeof(float));
        if (!copies[role]) {
            return out_of_memory(error);
        }
        vkmha_span_copy(&from, inputs[role], &to, copies[role]);
    }
    *contiguous = *problem;
    vkmha_plan_params *plan = &contiguous->plan;
    plan->key_is_query = false;
    plan->value_is_key = false;
    plan->query_strides = plan->key_strides = (vkmha_strides){0};
    plan->value_strides = plan->output_strides = (vkmha_strides){0};
    contiguous->inputs.query = copies[VKMHA_ROLE_QUERY];
    contiguous->inputs.key = copies[VKMHA_ROLE_KEY];
    contiguous->inputs.value = copies[VKMHA_ROLE_VALUE];
    return VKMHA_OK;
}

/* ---- Longer, unpacked ---------------------------------------------------------------------- */

/* A tensor of `to`'s dimensions whose first rows are those of `from`, the others NaN; packed
 * sequences go where their batch items begin. */
static const float *pad_rows(const vkmha_problem *problem, const vkmha_problem *longer,
                             vkmha_role role, const float *values, vkmha_pool *pool)
{
    vkmha_span from = vkmha_problem_contiguous(problem, role);
    vkmha_span to = vkmha_problem_contiguous(longer, role);
    const uint64_t count = vkmha_span_extent(&to);
    float *padded = vkmha_pool_allocate(pool, count, sizeof(float));
    for (uint64_t i = 0; padded && i < count; i++) {
        padded[i] = NAN;
    }
    from.batch = 1;
    for (uint64_t b = 0; padded && b < problem->plan.batch_size; b++) {
        const vkmha_problem_item item = vkmha_problem_sequence(problem, b);
        const bool is_query = role == VKMHA_ROLE_QUERY;
        const uint64_t first = is_query ? item.first_query_row : item.first_key_row;
        from.rows = is_query ? item.query_length : item.new_keys;
        from.strides.offset =
            problem->plan.is_packed ? first * from.strides.row : b * from.strides.batch;
        to.strides.offset = b * to.strides.batch;
        vkmha_span_copy(&from, values, &to, padded);
    }
    return padded;
}

static vkmha_status pad_inputs(const vkmha_problem *problem, vkmha_pool *pool,
                               vkmha_problem *longer, vkmha_error *error)
{
    const vkmha_inputs *inputs = &problem->inputs;
    const uint64_t batch = problem->plan.batch_size;
    int32_t *lengths = vkmha_pool_allocate(pool, batch, sizeof(int32_t));
    for (uint64_t b = 0; lengths && b < batch; b++) {
        lengths[b] = (int32_t)vkmha_problem_sequence(problem, b).key_length;
    }
    longer->plan.has_key_lengths = true;
    longer->inputs.key_lengths = lengths;
    longer->inputs.query = pad_rows(problem, longer, VKMHA_ROLE_QUERY, inputs->query, pool);
    longer->inputs.key = pad_rows(problem, longer, VKMHA_ROLE_KEY, inputs->key, pool);
    longer->inputs.value = pad_rows(problem, longer, VKMHA_ROLE_VALUE, inputs->value, pool);
    return lengths && longer->inputs.query && longer->inputs.key && longer->inputs.value
               ? VKMHA_OK
               : out_of_memory(error);
}

/* What each row is turned by, given; padding stands at 0. */
static vkmha_status pad_positions(const vkmha_problem *problem, vkmha_pool *pool,
                                  vkmha_problem *longer, vkmha_error *error)
{
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(longer);
    const int64_t last = (int64_t)problem->layer.rope.max_positions - 1;
    int32_t *queries = vkmha_pool_allocate(pool, sizes.query_rows, sizeof(int32_t));
    int32_t *keys = vkmha_pool_allocate(pool, sizes.key_rows, sizeof(int32_t));
    if (!queries || !keys) {
        return out_of_memory(error);
    }
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const vkmha_problem_item item = vkmha_problem_sequence(problem, b);
        for (uint64_t i = 0; i < item.query_length; i++) {
            const int64_t place = plan->has_positions
                                      ? problem->inputs.query_positions[item.first_query_row + i]
                                      : (int64_t)i + item.position_offset;
            /* The table's nearer end is what a position outside it gets. */
            queries[b * longer->plan.query_len + i] = (int32_t)(place < 0      ? 0
                                                                : place > last ? last
                                                                               : place);
        }
        for (uint64_t j = 0; j < item.new_keys; j++) {
            const int64_t place = plan->has_positions
                                      ? problem->inputs.key_positions[item.first_key_row + j]
                                      : (int64_t)(plan->past_len + j);
            keys[b * longer->plan.key_len + j] = (int32_t)(place > last ? last : place);
        }
    }
    longer->plan.has_positions = true;
    longer->inputs.query_positions = queries;
    longer->inputs.key_positions = keys;
    return VKMHA_OK;
}

vkmha_status vkmha_same_longer(const vkmha_problem *problem, uint64_t extra, vkmha_pool *pool,
                               vkmha_problem *longer, vkmha_error *error)
{
    *longer = *problem;
    longer->plan.key_len += extra;
    vkmha_status status = pad_inputs(problem, pool, longer, error);
    if (status == VKMHA_OK && problem->layer.rope.style != VKMHA_ROPE_NONE) {
        status = pad_positions(problem, pool, longer, error);
    }
    return status;
}

vkmha_status vkmha_same_unpacked(const vkmha_problem *problem, vkmha_pool *pool,
                                 vkmha_problem *unpacked, vkmha_error *error)
{
    *unpacked = *problem;
    vkmha_plan_params *plan = &unpacked->plan;
    plan->is_packed = false;
    plan->total_queries = 0;
    plan->total_keys = 0;
    unpacked->inputs.cu_query_lens = NULL;
    unpacked->inputs.cu_key_lens = NULL;
    /* The queries' own lengths are told to no one, so their places are. */
    const bool is_causal = plan->causal != VKMHA_CAUSAL_NONE;
    int32_t *offsets = vkmha_pool_allocate(pool, plan->batch_size, sizeof(int32_t));
    if (!offsets) {
        return out_of_memory(error);
    }
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        offsets[b] = (int32_t)vkmha_problem_sequence(problem, b).position_offset;
    }
    plan->causal = is_causal ? VKMHA_CAUSAL_OFFSET : VKMHA_CAUSAL_NONE;
    plan->positions = VKMHA_POSITIONS_OFFSET;
    plan->position_offset = 0;
    plan->has_position_offsets = true;
    unpacked->inputs.position_offsets = offsets;
    vkmha_status status = pad_inputs(problem, pool, unpacked, error);
    if (status == VKMHA_OK && problem->layer.rope.style != VKMHA_ROPE_NONE) {
        status = pad_positions(problem, pool, unpacked, error);
    }
    return status;
}
