/* Each stage of a run against the reference fed the device's own inputs of that stage. */
#include "stored.h"
#include "verify.h"

#include <string.h>

vkmha_status vkmha_verify_projection(const vkmha_projection *projection, uint64_t chain,
                                     bool is_exact, vkmha_pool *pool, vkmha_verdict *verdict,
                                     vkmha_error *error)
{
    const uint64_t count = projection->rows * projection->weight->rows;
    vkmha_answer ready;
    vkmha_status status = vkmha_answer_prepare(projection->got, count, pool, &ready, error);
    if (status == VKMHA_OK) {
        status =
            vkmha_reference_project(projection->input, projection->rows, projection->weight,
                                    projection->bias, chain, ready.expected, ready.bound, error);
    }
    if (status == VKMHA_OK && projection->rope) {
        status = vkmha_reference_rotate(projection->rope, projection->head_dim, projection->rows,
                                        projection->weight->rows / projection->head_dim,
                                        projection->positions, ready.expected, ready.bound, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    if (is_exact && count > 0) {
        memset(ready.bound, 0, (size_t)count * sizeof(double));
    }
    vkmha_stored_round(projection->type, count, ready.expected, ready.bound);
    vkmha_judge(verdict, projection->stage, projection->axes, ready.got, ready.expected,
                ready.bound, !is_exact);
    return VKMHA_OK;
}

vkmha_status vkmha_verify_attention(const vkmha_problem *stage, const vkmha_chains *chains,
                                    const char *name, const float *got,
                                    float *const told[VKMHA_NUM_TOLD], vkmha_pool *pool,
                                    vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(stage);
    vkmha_answer ready;
    vkmha_told_answers answers;
    vkmha_status status = vkmha_answer_prepare(got, sizes.output, pool, &ready, error);
    if (status == VKMHA_OK) {
        status = vkmha_told_prepare(stage, told, pool, &answers, error);
    }
    if (status == VKMHA_OK) {
        vkmha_reference_outputs outputs = {.output = ready.expected, .output_bound = ready.bound};
        vkmha_told_fill(&answers, &outputs);
        status = vkmha_stored_reference(stage, chains, &outputs, pool, error);
    }
    if (status == VKMHA_OK) {
        vkmha_judge(verdict, name, vkmha_output_axes(stage), ready.got, ready.expected, ready.bound,
                    true);
        status = vkmha_verify_statistics(stage, &answers, pool, verdict, error);
    }
    if (status == VKMHA_OK) {
        vkmha_judge_told(stage, &answers, false, verdict);
    }
    return status;
}

vkmha_problem vkmha_attention_problem(const vkmha_problem *problem, const vkmha_results *results)
{
    vkmha_problem stage = *problem;
    vkmha_layer_params *layer = &stage.layer;
    layer->attention_only = true;
    layer->embed_dim = 0;
    layer->key_dim = 0;
    layer->value_dim = 0;
    layer->output_dim = 0;
    layer->weight_type = VKMHA_TYPE_F32;
    layer->w_q = layer->w_k = layer->w_v = layer->w_o = (vkmha_matrix){0};
    layer->b_q = layer->b_k = layer->b_v = layer->b_o = (vkmha_vector){0};
    layer->rope = (vkmha_rope){0}; /* the projected tensors are turned already */
    stage.plan.has_positions = false;
    stage.inputs.query_positions = NULL;
    stage.inputs.key_positions = NULL;
    stage.plan.has_present = false;
    stage.plan.has_contributions = false;
    stage.plan.has_gate_gradients = false;
    stage.inputs.output_gradient = NULL;
    stage.plan.key_is_query = false;
    stage.plan.value_is_key = false;
    stage.plan.query_type = stage.plan.key_type = stage.plan.value_type = VKMHA_TYPE_F32;
    stage.plan.output_type = VKMHA_TYPE_F32;
    stage.plan.query_strides = stage.plan.key_strides = (vkmha_strides){0};
    stage.plan.value_strides = stage.plan.output_strides = (vkmha_strides){0};
    stage.inputs.query = results->projected_query;
    stage.inputs.key = results->projected_key;
    stage.inputs.value = results->projected_value;
    return stage;
}

static bool same_strides(const vkmha_strides *a, const vkmha_strides *b)
{
    return a->offset == b->offset && a->batch == b->batch && a->row == b->row && a->head == b->head;
}

/* Rows [rows, features] of an input, one after the other; the input itself where it lies so. */
static vkmha_status gather_rows(const vkmha_problem *problem, vkmha_role role, vkmha_pool *pool,
                                const float **rows, vkmha_error *error)
{
    const float *inputs[] = {problem->inputs.query, vkmha_problem_key(problem),
                             vkmha_problem_value(problem)};
    const vkmha_span from = vkmha_problem_span(problem, role);
    const vkmha_span to = vkmha_problem_contiguous(problem, role);
    if (same_strides(&from.strides, &to.strides)) {
        *rows = inputs[role];
        return VKMHA_OK;
    }
    float *copied = vkmha_pool_allocate(pool, vkmha_span_extent(&to), sizeof(float));
    if (!copied) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    vkmha_span_copy(&from, inputs[role], &to, copied);
    *rows = copied;
    return VKMHA_OK;
}

/* Where queries and new keys stand: as given, else p and j. */
static vkmha_status find_positions(const vkmha_problem *problem, vkmha_pool *pool,
                                   const int32_t **query, const int32_t **key, vkmha_error *error)
{
    const vkmha_plan_params *plan = &problem->plan;
    if (plan->has_positions) {
        *query = problem->inputs.query_positions;
        *key = problem->inputs.key_positions;
        return VKMHA_OK;
    }
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    int32_t *queries = vkmha_pool_allocate(pool, sizes.query_rows, sizeof(int32_t));
    int32_t *keys = vkmha_pool_allocate(pool, sizes.key_rows, sizeof(int32_t));
    if (!queries || !keys) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const vkmha_problem_item item = vkmha_problem_sequence(problem, b);
        for (uint64_t i = 0; i < item.query_length; i++) {
            queries[item.first_query_row + i] = (int32_t)((int64_t)i + item.position_offset);
        }
        for (uint64_t j = 0; j < item.new_keys; j++) {
            keys[item.first_key_row + j] = (int32_t)(plan->past_len + j);
        }
    }
    *query = queries;
    *key = keys;
    return VKMHA_OK;
}

vkmha_status vkmha_projections_of(const vkmha_problem *problem, const vkmha_results *results,
                                  vkmha_pool *pool, vkmha_projection *projections,
                                  vkmha_error *error)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t batch = problem->plan.is_packed ? 1 : problem->plan.batch_size;
    const uint64_t queries = problem->plan.is_packed ? sizes.query_rows : problem->plan.query_len;
    const uint64_t keys = problem->plan.is_packed ? sizes.key_rows : problem->plan.key_len;
    const bool is_turned = layer->rope.style != VKMHA_ROPE_NONE;
    const int32_t *query_positions = NULL;
    const int32_t *key_positions = NULL;
    const float *inputs[3] = {NULL};
    vkmha_status status = VKMHA_OK;
    if (is_turned) {
        status = find_positions(problem, pool, &query_positions, &key_positions, error);
    }
    for (uint32_t role = 0; status == VKMHA_OK && role < 3; role++) {
        status = gather_rows(problem, (vkmha_role)role, pool, &inputs[role], error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    projections[0] = (vkmha_projection){
        .stage = "project query",
        .input = inputs[VKMHA_ROLE_QUERY],
        .rows = sizes.query_rows,
        .weight = &layer->w_q,
        .bias = &layer->b_q,
        .rope = is_turned ? &layer->rope : NULL,
        .positions = query_positions,
        .head_dim = layer->head_dim,
        .axes = {{batch, queries, layer->num_heads, layer->head_dim}, "bihd"},
        .got = results->projected_query,
    };
    projections[1] = (vkmha_projection){
        .stage = "project key",
        .input = inputs[VKMHA_ROLE_KEY],
        .rows = sizes.key_rows,
        .weight = &layer->w_k,
        .bias = &layer->b_k,
        .rope = is_turned ? &layer->rope : NULL,
        .positions = key_positions,
        .head_dim = layer->head_dim,
        .axes = {{batch, keys, sizes.num_kv_heads, layer->head_dim}, "bjhd"},
        .type = vkmha_problem_kept_type(problem),
        .got = results->projected_key,
    };
    projections[2] = (vkmha_projection){
        .stage = "project value",
        .input = inputs[VKMHA_ROLE_VALUE],
        .rows = sizes.key_rows,
        .weight = &layer->w_v,
        .bias = &layer->b_v,
        .axes = {{batch, keys, sizes.num_kv_heads, sizes.v_head_dim}, "bjhd"},
        .type = vkmha_problem_kept_type(problem),
        .got = results->projected_value,
    };
    projections[3] = (vkmha_projection){
        .stage = "output projection",
        .input = results->attention,
        .rows = sizes.query_rows,
        .weight = &layer->w_o,
        .bias = &layer->b_o,
        .type = problem->plan.output_type,
        .axes = vkmha_output_axes(problem),
        .got = results->output,
    };
    return VKMHA_OK;
}

vkmha_status vkmha_verify_stages(const vkmha_problem *problem, const vkmha_chains *chains,
                                 const vkmha_results *results, vkmha_pool *pool,
                                 vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    /* Without a query nothing is run but what present outputs need, and the keys are nobody's. */
    if (sizes.query_rows == 0) {
        return VKMHA_OK;
    }
    vkmha_projection projections[VKMHA_NUM_PROJECTIONS];
    vkmha_status status = vkmha_projections_of(problem, results, pool, projections, error);
    for (uint32_t i = 0; status == VKMHA_OK && i < 3; i++) {
        status =
            vkmha_verify_projection(&projections[i], chains->project, false, pool, verdict, error);
    }
    if (status == VKMHA_OK) {
        const vkmha_problem stage = vkmha_attention_problem(problem, results);
        status = vkmha_verify_attention(&stage, chains, "attention", results->attention,
                                        results->told, pool, verdict, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_verify_contributions(problem, results, pool, verdict, error);
    }
    if (status == VKMHA_OK) {
        status =
            vkmha_verify_projection(&projections[3], chains->output, false, pool, verdict, error);
    }
    return status;
}
