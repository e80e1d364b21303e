/* What is told besides the output: the reference's bounds, and what one told tensor says of
 * another. */
#include "stored.h"
#include "verify.h"

#include <math.h>
#include <string.h>

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

vkmha_status vkmha_told_prepare(const vkmha_problem *problem, float *const told[VKMHA_NUM_TOLD],
                                vkmha_pool *pool, vkmha_told_answers *answers, vkmha_error *error)
{
    *answers = (vkmha_told_answers){0};
    /* Without a query a run writes nothing. */
    if (vkmha_problem_measure(problem).query_rows == 0) {
        return VKMHA_OK;
    }
    vkmha_status status = VKMHA_OK;
    for (uint32_t t = 0; t < VKMHA_NUM_TOLD && status == VKMHA_OK; t++) {
        if (vkmha_told_is_asked(&problem->plan, (vkmha_told)t)) {
            const vkmha_axes axes = vkmha_told_axes(problem, (vkmha_told)t);
            status = vkmha_answer_prepare(told[t], vkmha_axes_count(&axes), pool, &answers->of[t],
                                          error);
        }
    }
    return status;
}

void vkmha_told_fill(const vkmha_told_answers *answers, vkmha_reference_outputs *outputs)
{
    double *values[VKMHA_NUM_TOLD];
    double *bounds[VKMHA_NUM_TOLD];
    for (uint32_t t = 0; t < VKMHA_NUM_TOLD; t++) {
        values[t] = answers->of[t].expected;
        bounds[t] = answers->of[t].bound;
    }
    vkmha_told_reference(values, bounds, outputs);
}

void vkmha_judge_told(const vkmha_problem *problem, vkmha_told_answers *answers, bool is_whole,
                      vkmha_verdict *verdict)
{
    static const char *const whole_names[VKMHA_NUM_TOLD] = {
        [VKMHA_TOLD_LSE] = "lse end to end",
        [VKMHA_TOLD_WEIGHTS] = "weights end to end",
        [VKMHA_TOLD_MEAN_WEIGHTS] = "mean_weights end to end",
        [VKMHA_TOLD_SCORES] = "scores end to end",
        [VKMHA_TOLD_STATISTICS] = "statistics end to end",
        [VKMHA_TOLD_KEY_MASS] = "key_mass end to end",
        [VKMHA_TOLD_CONTRIBUTIONS] = "contributions end to end",
        [VKMHA_TOLD_GATE_GRADIENTS] = "gate_gradients end to end",
    };
    for (uint32_t t = 0; t < VKMHA_NUM_TOLD; t++) {
        const vkmha_answer *answer = &answers->of[t];
        if (answer->got) {
            vkmha_judge(verdict, is_whole ? whole_names[t] : vkmha_told_name((vkmha_told)t),
                        vkmha_told_axes(problem, (vkmha_told)t), answer->got, answer->expected,
                        answer->bound, true);
        }
    }
}

/* ---- Statistics of weights ----------------------------------------------------------------- */

/* NaN stays. */
static double entropy_term(double weight)
{
    return weight <= 0.0 ? 0.0 : -weight * log(weight);
}

/* How far the term may be off where the weight is by `off`; it is concave, with its top at 1 / e.
 */
static double entropy_term_off(double weight, double off)
{
    const double low = fmax(weight - off, 0.0);
    const double high = weight + off;
    const double top = exp(-1.0);
    const double term = entropy_term(weight);
    const double ends = fmax(fabs(entropy_term(low) - term), fabs(entropy_term(high) - term));
    return low < top && top < high ? fmax(ends, top - term) : ends;
}

/* Adds to bounds; weights of one row, and what each may be off by. */
static void statistics_of(const vkmha_problem_item *item, uint64_t i, uint64_t keys,
                          const float *weights, const double *off, double *statistics,
                          double *bounds)
{
    const int64_t position = (int64_t)i + item->position_offset;
    double largest_off = 0.0;
    for (uint64_t j = 0; j < keys; j++) {
        const double weight = (double)weights[j];
        const double distance = fabs((double)((int64_t)j - position));
        statistics[0] += entropy_term(weight);
        bounds[0] += entropy_term_off(weight, off[j]);
        const bool is_larger = !(weight <= statistics[1]) && !isnan(statistics[1]); /* NaN stays */
        statistics[1] = is_larger ? weight : statistics[1];
        largest_off = fmax(largest_off, off[j]);
        statistics[2] += weight * distance;
        bounds[2] += off[j] * distance;
    }
    bounds[1] += largest_off;
    const int64_t places[] = {position - 1, position, position + 1, item->first_key,
                              item->key_length - 1};
    for (uint32_t n = 0; n < sizeof(places) / sizeof(places[0]); n++) {
        if (places[n] >= 0 && places[n] < (int64_t)keys) {
            statistics[3 + n] = (double)weights[places[n]];
            bounds[3 + n] += off[places[n]];
        }
    }
}

vkmha_status vkmha_verify_statistics(const vkmha_problem *problem,
                                     const vkmha_told_answers *answers, vkmha_pool *pool,
                                     vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_answer *weights = &answers->of[VKMHA_TOLD_WEIGHTS];
    const vkmha_answer *statistics = &answers->of[VKMHA_TOLD_STATISTICS];
    const vkmha_plan_params *plan = &problem->plan;
    if (!weights->got || !statistics->got || plan->chosen_heads || plan->chosen_queries) {
        return VKMHA_OK;
    }
    const vkmha_axes axes = vkmha_told_axes(problem, VKMHA_TOLD_STATISTICS);
    const uint64_t columns = vkmha_told_axes(problem, VKMHA_TOLD_WEIGHTS).dims[3];
    const uint64_t keys = vkmha_problem_measure(problem).all_keys;
    const uint64_t count = vkmha_axes_count(&axes);
    vkmha_answer ready;
    const vkmha_status status = vkmha_answer_prepare(statistics->got, count, pool, &ready, error);
    if (status != VKMHA_OK) {
        return status;
    }
    for (uint64_t row = 0; row < count / VKMHA_NUM_STATISTICS; row++) {
        const vkmha_problem_item item =
            vkmha_problem_sequence(problem, row / plan->query_len / problem->layer.num_heads);
        const uint64_t at = row * VKMHA_NUM_STATISTICS;
        memcpy(ready.bound + at, statistics->bound + at,
               VKMHA_NUM_STATISTICS * sizeof(*ready.bound));
        statistics_of(&item, row % plan->query_len, keys, weights->got + row * columns,
                      weights->bound + row * columns, ready.expected + at, ready.bound + at);
    }
    vkmha_judge(verdict, "statistics of the weights told", axes, ready.got, ready.expected,
                ready.bound, false);
    return VKMHA_OK;
}

/* ---- Contributions ------------------------------------------------------------------------- */

static const double unit = 0x1p-24;
static const double smallest = 0x1p-126; /* normal number */

/* n rounded additions, as a part of their magnitudes. */
static double sum_error(double count)
{
    return count * unit / (1.0 - count * unit);
}

/* A head's part of the output, in double from its own attention, and how far it may be off. */
typedef struct added_rows {
    float *attention; /* [rows, v_head_dim] */
    double *value;    /* [rows, output_dim] */
    double *bound;
} added_rows;

static void judge_row(const double *added, const double *off, const float *gradient,
                      uint64_t output_dim, double *norm, double *norm_bound, double *product,
                      double *product_bound)
{
    const double count = (double)output_dim + 1.0;
    double squares = 0.0;
    double squares_off = 0.0;
    for (uint64_t n = 0; n < output_dim; n++) {
        squares += added[n] * added[n];
        squares_off += off[n] * off[n];
    }
    const double moved = sqrt(squares_off);
    *norm = sqrt(squares);
    /* A sum of squares, which may vanish, and its square root. */
    *norm_bound =
        moved + (sum_error(count) + 10.0 * unit) * (*norm + moved) + sqrt(smallest * count);
    *product = 0.0;
    *product_bound = 0.0;
    for (uint64_t n = 0; gradient && n < output_dim; n++) {
        const double slope = (double)gradient[n];
        const double size = fabs(added[n]) + off[n];
        *product += added[n] * slope;
        *product_bound += off[n] * fabs(slope) + sum_error(count) * size * fabs(slope) +
                          smallest * (1.0 + size + fabs(slope));
    }
}

static vkmha_status add_head(const vkmha_problem *problem, const vkmha_results *results, uint64_t b,
                             uint64_t h, const added_rows *added, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const vkmha_problem_item item = vkmha_problem_sequence(problem, b);
    const uint64_t features = sizes.v_head_dim;
    const uint64_t heads = problem->layer.num_heads;
    for (uint64_t i = 0; i < item.query_length; i++) {
        const uint64_t row = item.first_query_row + i;
        memcpy(added->attention + i * features, results->attention + (row * heads + h) * features,
               (size_t)features * sizeof(float));
    }
    vkmha_matrix weight = problem->layer.w_o;
    const uint64_t row_stride = weight.row_stride ? weight.row_stride : weight.columns;
    const uint64_t column_stride = weight.column_stride ? weight.column_stride : 1;
    const uint64_t element_bytes = weight.type == VKMHA_TYPE_F32 ? 4 : 2;
    weight.data = (const char *)weight.data + h * features * column_stride * element_bytes;
    weight.columns = features;
    weight.row_stride = row_stride;
    weight.column_stride = column_stride;
    return vkmha_reference_project(added->attention, item.query_length, &weight, NULL, 0,
                                   added->value, added->bound, error);
}

vkmha_status vkmha_verify_contributions(const vkmha_problem *problem, const vkmha_results *results,
                                        vkmha_pool *pool, vkmha_verdict *verdict,
                                        vkmha_error *error)
{
    const vkmha_plan_params *plan = &problem->plan;
    if (!plan->has_contributions && !plan->has_gate_gradients) {
        return VKMHA_OK;
    }
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t heads = problem->layer.num_heads;
    const vkmha_axes axes = vkmha_told_axes(problem, VKMHA_TOLD_CONTRIBUTIONS);
    const uint64_t count = vkmha_axes_count(&axes);
    const added_rows added = {
        .attention = vkmha_pool_allocate(pool, plan->query_len * sizes.v_head_dim, sizeof(float)),
        .value = vkmha_pool_allocate(pool, plan->query_len * sizes.output_dim, sizeof(double)),
        .bound = vkmha_pool_allocate(pool, plan->query_len * sizes.output_dim, sizeof(double)),
    };
    const float *told[2] = {results->told[VKMHA_TOLD_CONTRIBUTIONS],
                            results->told[VKMHA_TOLD_GATE_GRADIENTS]};
    vkmha_answer ready[2];
    vkmha_status status =
        added.attention && added.value && added.bound ? VKMHA_OK : out_of_memory(error);
    for (uint32_t n = 0; n < 2 && status == VKMHA_OK; n++) {
        status = vkmha_answer_prepare(told[n], told[n] ? count : 0, pool, &ready[n], error);
    }
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const vkmha_problem_item item = vkmha_problem_sequence(problem, b);
        for (uint64_t h = 0; h < heads && status == VKMHA_OK; h++) {
            status = add_head(problem, results, b, h, &added, error);
            for (uint64_t i = 0; i < item.query_length && status == VKMHA_OK; i++) {
                const uint64_t at = (b * heads + h) * plan->query_len + i;
                const float *gradient = problem->inputs.output_gradient;
                double values[2];
                double bounds[2];
                judge_row(added.value + i * sizes.output_dim, added.bound + i * sizes.output_dim,
                          gradient ? gradient + (item.first_query_row + i) * sizes.output_dim
                                   : NULL,
                          sizes.output_dim, &values[0], &bounds[0], &values[1], &bounds[1]);
                for (uint32_t n = 0; n < 2; n++) {
                    if (told[n]) {
                        ready[n].expected[at] = values[n];
                        ready[n].bound[at] = bounds[n];
                    }
                }
            }
        }
    }
    for (uint32_t n = 0; n < 2 && status == VKMHA_OK; n++) {
        if (told[n]) {
            vkmha_judge(verdict, n == 0 ? "contributions" : "gate_gradients", axes, ready[n].got,
                        ready[n].expected, ready[n].bound, true);
        }
    }
    return status;
}

/* ---- Gates --------------------------------------------------------------------------------- */

static vkmha_status run_without(vkmha_device *device, const vkmha_problem *problem,
                                const char *project_kernel, const char *attention_kernel,
                                vkmha_pool *pool, vkmha_results *results, vkmha_error *error)
{
    vkmha_trial trial = {0};
    vkmha_status status =
        vkmha_trial_create(device, problem, project_kernel, attention_kernel, &trial, error);
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, problem, false, pool, results, error);
    }
    vkmha_trial_finish(&trial);
    return status;
}

static vkmha_status bound_output(const vkmha_problem *problem, double *output_bound,
                                 double *gradient_bound, vkmha_pool *pool, vkmha_error *error)
{
    const vkmha_reference_outputs outputs = {.output_bound = output_bound,
                                             .gate_gradients_bound = gradient_bound};
    return vkmha_stored_reference(problem, NULL, &outputs, pool, error);
}

vkmha_status vkmha_verify_gates(vkmha_device *device, const vkmha_problem *problem,
                                uint64_t left_out, const char *project_kernel,
                                const char *attention_kernel, const vkmha_results *results,
                                vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error)
{
    const float *gradients = results->told[VKMHA_TOLD_GATE_GRADIENTS];
    const uint64_t heads = problem->layer.num_heads;
    const uint64_t count = vkmha_problem_measure(problem).output;
    /* Outputs that are rounded apart have lost their difference. */
    if (!gradients || count == 0 || problem->plan.output_type != VKMHA_TYPE_F32) {
        return VKMHA_OK;
    }
    const vkmha_axes axes = vkmha_told_axes(problem, VKMHA_TOLD_GATE_GRADIENTS);
    const uint64_t rows = vkmha_axes_count(&axes);
    float *gates = vkmha_pool_allocate(pool, heads, sizeof(float));
    double *bound = vkmha_pool_allocate(pool, count, sizeof(double));
    double *bound_without = vkmha_pool_allocate(pool, count, sizeof(double));
    double *gradient_bound = vkmha_pool_allocate(pool, rows, sizeof(double));
    if (!gates || !bound || !bound_without || !gradient_bound) {
        return out_of_memory(error);
    }
    for (uint64_t h = 0; h < heads; h++) {
        gates[h] = h == left_out ? 0.0f : 1.0f;
    }
    vkmha_problem without = *problem;
    vkmha_told_nothing(&without);
    without.plan.has_head_gates = true;
    without.inputs.head_gates = gates;
    vkmha_results other = {0};
    vkmha_status status =
        run_without(device, &without, project_kernel, attention_kernel, pool, &other, error);
    if (status == VKMHA_OK) {
        status = bound_output(problem, bound, gradient_bound, pool, error);
    }
    if (status == VKMHA_OK) {
        status = bound_output(&without, bound_without, NULL, pool, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    double gradient = 0.0;
    double difference = 0.0;
    double off = 0.0;
    for (uint64_t row = 0; row < rows; row++) {
        if (row / axes.dims[2] % heads == left_out) {
            gradient += (double)gradients[row];
            off += gradient_bound[row];
        }
    }
    for (uint64_t e = 0; e < count; e++) {
        const double slope = (double)problem->inputs.output_gradient[e];
        difference += slope * ((double)results->output[e] - (double)other.output[e]);
        off += fabs(slope) * (bound[e] + bound_without[e]);
    }
    float got = (float)gradient;
    off += 2.0 * unit * fabs(gradient);
    vkmha_judge(verdict, "gate gradients and the loss without a head", (vkmha_axes){{1}, "h"}, &got,
                &difference, &off, false);
    return VKMHA_OK;
}
