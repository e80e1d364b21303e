#include "verify.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Honest rounding errors are spread over their bound; a wrong kernel pushes many elements to it.
 * Few elements, or sums of one product, may lie near it by chance. */
static const double max_rms_ratio = 0.5;
enum {
    MIN_RMS_COUNT = 256,
};

/* ---- One tensor ---------------------------------------------------------------------------- */

static uint64_t axes_count(const vkmha_axes *axes)
{
    uint64_t count = 1;
    for (size_t i = 0; axes->letters[i] != '\0'; i++) {
        count *= axes->dims[i];
    }
    return count;
}

static void describe_element(const vkmha_axes *axes, uint64_t index, char *text, size_t size)
{
    uint64_t place[4] = {0};
    const size_t num_axes = strlen(axes->letters);
    for (size_t i = num_axes; i-- > 0;) {
        place[i] = index % axes->dims[i];
        index /= axes->dims[i];
    }
    size_t length = 0;
    for (size_t i = 0; i < num_axes && length < size; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s%c %" PRIu64,
                                   i == 0 ? "[" : ", ", axes->letters[i], place[i]);
    }
    if (length < size) {
        snprintf(text + length, size - length, "]");
    }
}

void vkmha_judge(vkmha_verdict *verdict, const char *stage, vkmha_axes axes, float *got,
                 double *expected, double *bound, bool is_bound)
{
    const uint64_t count = axes_count(&axes);
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(expected[i]) && !isfinite(got[i])) {
            got[i] = 0.0f;
            expected[i] = 0.0;
            bound[i] = 0.0;
        }
    }
    vkmha_judgement judgement = {.stage = stage, .is_bound = is_bound};
    vkmha_comparison *comparison = &judgement.comparison;
    vkmha_compare(got, expected, bound, count, comparison);
    const bool is_spread =
        !is_bound || count < MIN_RMS_COUNT || comparison->rms_ratio <= max_rms_ratio;
    if (verdict->count < VKMHA_MAX_JUDGEMENTS) {
        verdict->judgements[verdict->count++] = judgement;
    }
    if ((comparison->passed && is_spread) || verdict->has_failed) {
        return;
    }
    verdict->has_failed = true;
    verdict->stage = stage;
    const uint64_t worst = comparison->worst_index;
    describe_element(&axes, worst, verdict->where, sizeof(verdict->where));
    if (comparison->passed) {
        const size_t length = strlen(verdict->where);
        snprintf(verdict->where + length, sizeof(verdict->where) - length,
                 " (root mean square of error / bound %.2g)", comparison->rms_ratio);
    }
    verdict->got = (double)got[worst];
    verdict->expected = expected[worst];
    verdict->bound = bound[worst];
}

void vkmha_judge_fail(vkmha_verdict *verdict, const char *stage, const char *what)
{
    if (verdict->has_failed) {
        return;
    }
    verdict->has_failed = true;
    verdict->stage = stage;
    snprintf(verdict->where, sizeof(verdict->where), "%s", what);
    verdict->got = NAN;
    verdict->expected = NAN;
    verdict->bound = NAN;
}

void vkmha_verdict_describe(const vkmha_verdict *verdict, char *text, size_t size)
{
    if (verdict->where[0] == '[') {
        snprintf(text, size, "%s, element %s: got %.9g, expected %.9g, bound %.3g", verdict->stage,
                 verdict->where, verdict->got, verdict->expected, verdict->bound);
    } else {
        snprintf(text, size, "%s: %s", verdict->stage, verdict->where);
    }
}

/* ---- Stages -------------------------------------------------------------------------------- */

typedef struct answer {
    float *got; /* a copy: judging may change it */
    double *expected;
    double *bound;
} answer;

static vkmha_status prepare(const float *got, uint64_t count, vkmha_pool *pool, answer *ready,
                            vkmha_error *error)
{
    *ready = (answer){
        .got = vkmha_pool_allocate(pool, count, sizeof(float)),
        .expected = vkmha_pool_allocate(pool, count, sizeof(double)),
        .bound = vkmha_pool_allocate(pool, count, sizeof(double)),
    };
    if (!ready->got || !ready->expected || !ready->bound) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    if (count > 0) {
        memcpy(ready->got, got, (size_t)count * sizeof(float));
    }
    return VKMHA_OK;
}

vkmha_status vkmha_verify_projection(const vkmha_projection *projection, uint64_t chain,
                                     bool is_exact, vkmha_pool *pool, vkmha_verdict *verdict,
                                     vkmha_error *error)
{
    const uint64_t count = projection->rows * projection->weight->rows;
    answer ready;
    vkmha_status status = prepare(projection->got, count, pool, &ready, error);
    if (status == VKMHA_OK) {
        status =
            vkmha_reference_project(projection->input, projection->rows, projection->weight,
                                    projection->bias, chain, ready.expected, ready.bound, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    if (is_exact && count > 0) {
        memset(ready.bound, 0, (size_t)count * sizeof(double));
    }
    vkmha_judge(verdict, projection->stage, projection->axes, ready.got, ready.expected,
                ready.bound, !is_exact);
    return VKMHA_OK;
}

static vkmha_axes output_axes(const vkmha_problem *problem, const vkmha_problem_sizes *sizes)
{
    const vkmha_plan_params *plan = &problem->plan;
    const uint64_t num_heads = problem->layer.num_heads;
    if (!problem->layer.attention_only) {
        return (vkmha_axes){{plan->batch_size, plan->query_len, sizes->output_dim}, "bid"};
    }
    if (plan->layout == VKMHA_LAYOUT_BHSD) {
        return (vkmha_axes){{plan->batch_size, num_heads, plan->query_len, sizes->v_head_dim},
                            "bhid"};
    }
    return (vkmha_axes){{plan->batch_size, plan->query_len, num_heads, sizes->v_head_dim}, "bihd"};
}

vkmha_status vkmha_verify_attention(const vkmha_problem *stage, const vkmha_chains *chains,
                                    const char *name, const float *got, vkmha_pool *pool,
                                    vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(stage);
    answer ready;
    vkmha_status status = prepare(got, sizes.output, pool, &ready, error);
    if (status == VKMHA_OK) {
        const vkmha_reference_outputs outputs = {.output = ready.expected,
                                                 .output_bound = ready.bound};
        status = vkmha_reference_run(&stage->layer, &stage->plan, &stage->inputs, chains, NULL,
                                     &outputs, error);
    }
    if (status == VKMHA_OK) {
        vkmha_judge(verdict, name, output_axes(stage, &sizes), ready.got, ready.expected,
                    ready.bound, true);
    }
    return status;
}

vkmha_problem vkmha_attention_problem(const vkmha_problem *problem, const vkmha_results *results)
{
    vkmha_problem stage = {
        .layer =
            {
                .num_heads = problem->layer.num_heads,
                .num_kv_heads = problem->layer.num_kv_heads,
                .head_dim = problem->layer.head_dim,
                .v_head_dim = problem->layer.v_head_dim,
                .has_scale = problem->layer.has_scale,
                .scale = problem->layer.scale,
                .attention_only = true,
            },
        .plan = problem->plan,
        .inputs = problem->inputs,
    };
    stage.plan.key_is_query = false;
    stage.plan.value_is_key = false;
    stage.inputs.query = results->projected_query;
    stage.inputs.key = results->projected_key;
    stage.inputs.value = results->projected_value;
    return stage;
}

void vkmha_projections_of(const vkmha_problem *problem, const vkmha_results *results,
                          vkmha_projection *projections)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t batch = plan->batch_size;
    projections[0] = (vkmha_projection){
        .stage = "project query",
        .input = problem->inputs.query,
        .rows = sizes.query_rows,
        .weight = &layer->w_q,
        .bias = &layer->b_q,
        .axes = {{batch, plan->query_len, layer->num_heads, layer->head_dim}, "bihd"},
        .got = results->projected_query,
    };
    projections[1] = (vkmha_projection){
        .stage = "project key",
        .input = vkmha_problem_key(problem),
        .rows = sizes.key_rows,
        .weight = &layer->w_k,
        .bias = &layer->b_k,
        .axes = {{batch, plan->key_len, sizes.num_kv_heads, layer->head_dim}, "bjhd"},
        .got = results->projected_key,
    };
    projections[2] = (vkmha_projection){
        .stage = "project value",
        .input = vkmha_problem_value(problem),
        .rows = sizes.key_rows,
        .weight = &layer->w_v,
        .bias = &layer->b_v,
        .axes = {{batch, plan->key_len, sizes.num_kv_heads, sizes.v_head_dim}, "bjhd"},
        .got = results->projected_value,
    };
    projections[3] = (vkmha_projection){
        .stage = "output projection",
        .input = results->attention,
        .rows = sizes.query_rows,
        .weight = &layer->w_o,
        .bias = &layer->b_o,
        .axes = output_axes(problem, &sizes),
        .got = results->output,
    };
}

static vkmha_status verify_stages(const vkmha_problem *problem, const vkmha_chains *chains,
                                  const vkmha_results *results, vkmha_pool *pool,
                                  vkmha_verdict *verdict, vkmha_error *error)
{
    /* Without a query nothing is run, and the projected keys are nobody's. */
    if (vkmha_problem_measure(problem).query_rows == 0) {
        return VKMHA_OK;
    }
    vkmha_projection projections[VKMHA_NUM_PROJECTIONS];
    vkmha_projections_of(problem, results, projections);
    vkmha_status status = VKMHA_OK;
    for (uint32_t i = 0; status == VKMHA_OK && i < 3; i++) {
        status =
            vkmha_verify_projection(&projections[i], chains->project, false, pool, verdict, error);
    }
    if (status == VKMHA_OK) {
        const vkmha_problem stage = vkmha_attention_problem(problem, results);
        status = vkmha_verify_attention(&stage, chains, "attention", results->attention, pool,
                                        verdict, error);
    }
    if (status == VKMHA_OK) {
        status =
            vkmha_verify_projection(&projections[3], chains->output, false, pool, verdict, error);
    }
    return status;
}

/* ---- The whole ----------------------------------------------------------------------------- */

static vkmha_status verify_expected(const float *values, double tolerance, const float *given,
                                    vkmha_axes axes, const char *stage, vkmha_pool *pool,
                                    vkmha_verdict *verdict, vkmha_error *error)
{
    const uint64_t count = axes_count(&axes);
    answer ready;
    const vkmha_status status = prepare(values, count, pool, &ready, error);
    if (status != VKMHA_OK) {
        return status;
    }
    for (uint64_t i = 0; i < count; i++) {
        ready.expected[i] = (double)given[i];
        ready.bound[i] = tolerance;
    }
    vkmha_judge(verdict, stage, axes, ready.got, ready.expected, ready.bound, false);
    return VKMHA_OK;
}

static float *round_values(const double *values, uint64_t count, vkmha_pool *pool)
{
    float *rounded = vkmha_pool_allocate(pool, count, sizeof(float));
    for (uint64_t i = 0; rounded && i < count; i++) {
        rounded[i] = (float)values[i];
    }
    return rounded;
}

/* The reference itself and the device, both against values that neither of them made. */
static vkmha_status verify_case(const vkmha_problem *problem, const vkmha_results *results,
                                const vkmha_reference_outputs *reference,
                                const vkmha_case *expected, vkmha_pool *pool,
                                vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const vkmha_axes axes = output_axes(problem, &sizes);
    vkmha_status status = VKMHA_OK;
    if (expected->expected) {
        const float *rounded = round_values(reference->output, sizes.output, pool);
        if (!rounded) {
            return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
        }
        status = verify_expected(rounded, expected->tolerance, expected->expected, axes,
                                 "reference output against the case", pool, verdict, error);
        if (status == VKMHA_OK) {
            status = verify_expected(results->output, expected->tolerance, expected->expected, axes,
                                     "output against the case", pool, verdict, error);
        }
    }
    if (status == VKMHA_OK && expected->expected_weights && reference->weights) {
        const vkmha_axes weights = {{problem->plan.batch_size, problem->layer.num_heads,
                                     problem->plan.query_len, problem->plan.key_len},
                                    "bhij"};
        const float *rounded = round_values(reference->weights, axes_count(&weights), pool);
        if (!rounded) {
            return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
        }
        status =
            verify_expected(rounded, expected->weights_tolerance, expected->expected_weights,
                            weights, "reference weights against the case", pool, verdict, error);
    }
    return status;
}

vkmha_status vkmha_verify(const vkmha_problem *problem, const vkmha_trial *trial,
                          const vkmha_results *results, const vkmha_case *expected,
                          vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const vkmha_chains *chains = &trial->info.chains;
    *verdict = (vkmha_verdict){0};
    if (results->is_overrun) {
        vkmha_judge_fail(verdict, "output", "memory past the end of an output was written");
    }
    answer ready;
    vkmha_status status = prepare(results->output, sizes.output, pool, &ready, error);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_reference_outputs reference = {.output = ready.expected, .output_bound = ready.bound};
    if (expected && expected->expected_weights) {
        const vkmha_plan_params *plan = &problem->plan;
        reference.weights = vkmha_pool_allocate(
            pool, plan->batch_size * problem->layer.num_heads * plan->query_len * plan->key_len,
            sizeof(double));
        if (!reference.weights) {
            return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
        }
    }
    status = vkmha_reference_run(&problem->layer, &problem->plan, &problem->inputs, chains, NULL,
                                 &reference, error);
    if (status == VKMHA_OK && expected) {
        status = verify_case(problem, results, &reference, expected, pool, verdict, error);
    }
    if (status == VKMHA_OK && !problem->layer.attention_only) {
        status = verify_stages(problem, chains, results, pool, verdict, error);
    }
    if (status == VKMHA_OK) {
        vkmha_judge(verdict, problem->layer.attention_only ? "attention" : "end to end",
                    output_axes(problem, &sizes), ready.got, ready.expected, ready.bound, true);
    }
    return status;
}
