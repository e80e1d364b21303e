#include "stored.h"
#include "verify.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Honest rounding errors are spread over their bound; a wrong kernel pushes many elements to it.
 * One rounding, as of a score beside a large mask, is uniform: 1 / sqrt(3) = 0.58 of its bound, and
 * the features of a row share it, so that rows are the samples, and few of them tell nothing. Where
 * the bound is far above fp32's grain, large scores make it, and all rows may share their rounding.
 */
static const double max_rms_ratio = 0.7;
static const double max_spread_bound = 1e-4; /* root mean square of the bound / of the expected */
enum {
    MIN_RMS_ROWS = 64,
};

static bool is_fine(const double *expected, const double *bound, uint64_t count)
{
    double values = 0.0;
    double bounds = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        values += expected[i] * expected[i];
        bounds += bound[i] * bound[i];
    }
    return bounds <= max_spread_bound * max_spread_bound * values;
}

/* ---- One tensor ---------------------------------------------------------------------------- */

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
    const uint64_t count = vkmha_axes_count(&axes);
    for (uint64_t i = 0; i < count; i++) {
        const bool asks_infinity = isinf(expected[i]) && bound[i] == 0.0;
        const bool is_allowed = !asks_infinity || (double)got[i] == expected[i];
        if (!isfinite(expected[i]) && !isfinite(got[i]) && is_allowed) {
            got[i] = 0.0f;
            expected[i] = 0.0;
            bound[i] = 0.0;
        }
    }
    vkmha_judgement judgement = {.stage = stage, .is_bound = is_bound};
    vkmha_comparison *comparison = &judgement.comparison;
    vkmha_compare(got, expected, bound, count, comparison);
    const uint64_t features = axes.dims[strlen(axes.letters) - 1];
    const bool is_spread = !is_bound || count < MIN_RMS_ROWS * features ||
                           comparison->rms_ratio <= max_rms_ratio ||
                           !is_fine(expected, bound, count);
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

vkmha_status vkmha_answer_prepare(const float *got, uint64_t count, vkmha_pool *pool,
                                  vkmha_answer *answer, vkmha_error *error)
{
    *answer = (vkmha_answer){
        .got = vkmha_pool_allocate(pool, count, sizeof(float)),
        .expected = vkmha_pool_allocate(pool, count, sizeof(double)),
        .bound = vkmha_pool_allocate(pool, count, sizeof(double)),
    };
    if (!answer->got || !answer->expected || !answer->bound) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    if (count > 0) {
        memcpy(answer->got, got, (size_t)count * sizeof(float));
    }
    return VKMHA_OK;
}

vkmha_axes vkmha_output_axes(const vkmha_problem *problem)
{
    const vkmha_span span = vkmha_problem_contiguous(problem, VKMHA_ROLE_OUTPUT);
    if (!problem->layer.attention_only) {
        return (vkmha_axes){{span.batch, span.rows, span.features}, "bid"};
    }
    if (problem->plan.layout == VKMHA_LAYOUT_BHSD) {
        return (vkmha_axes){{span.batch, span.heads, span.rows, span.features}, "bhid"};
    }
    return (vkmha_axes){{span.batch, span.rows, span.heads, span.features}, "bihd"};
}

/* ---- The whole ----------------------------------------------------------------------------- */

static vkmha_status verify_expected(const float *values, double tolerance, const float *given,
                                    vkmha_axes axes, const char *stage, vkmha_pool *pool,
                                    vkmha_verdict *verdict, vkmha_error *error)
{
    const uint64_t count = vkmha_axes_count(&axes);
    vkmha_answer ready;
    const vkmha_status status = vkmha_answer_prepare(values, count, pool, &ready, error);
    if (status != VKMHA_OK) {
        return status;
    }
    for (uint64_t i = 0; i < count; i++) {
        ready.expected[i] = (double)given[i];
        ready.bound[i] = isfinite(given[i]) ? tolerance : 0.0;
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

typedef struct expectation {
    const char *name;
    const double *reference; /* NULL: not asked */
    const float *device;
    const float *given; /* NULL: the case does not list it */
    double tolerance;
    vkmha_axes axes;
} expectation;

/* The reference itself and the device, both against values that neither of them made. */
static vkmha_status verify_expectation(const expectation *one, vkmha_pool *pool,
                                       vkmha_verdict *verdict, vkmha_error *error)
{
    enum { NAME_SIZE = 64 };
    if (!one->given || !one->reference) {
        return VKMHA_OK;
    }
    const float *rounded = round_values(one->reference, vkmha_axes_count(&one->axes), pool);
    char *reference_stage = vkmha_pool_allocate(pool, NAME_SIZE, 1);
    char *device_stage = vkmha_pool_allocate(pool, NAME_SIZE, 1);
    if (!rounded || !reference_stage || !device_stage) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    snprintf(reference_stage, NAME_SIZE, "reference %s against the case", one->name);
    snprintf(device_stage, NAME_SIZE, "%s against the case", one->name);
    const vkmha_status status = verify_expected(rounded, one->tolerance, one->given, one->axes,
                                                reference_stage, pool, verdict, error);
    return status != VKMHA_OK ? status
                              : verify_expected(one->device, one->tolerance, one->given, one->axes,
                                                device_stage, pool, verdict, error);
}

/* What the whole is judged by. */
typedef struct vkmha_whole {
    vkmha_answer output;
    vkmha_answer present_key;
    vkmha_answer present_value;
    vkmha_told_answers told;
} vkmha_whole;

static vkmha_status verify_case(const vkmha_problem *problem, const vkmha_results *results,
                                const vkmha_whole *whole, const vkmha_case *expected,
                                vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t batch = problem->plan.batch_size;
    const uint64_t heads = sizes.num_kv_heads;
    const vkmha_axes keys = {{batch, heads, sizes.all_keys, problem->layer.head_dim}, "bhjd"};
    const vkmha_axes values = {{batch, heads, sizes.all_keys, sizes.v_head_dim}, "bhjd"};
    const expectation expectations[] = {
        {"output", whole->output.expected, results->output, expected->expected, expected->tolerance,
         vkmha_output_axes(problem)},
        {"present_key", whole->present_key.expected, results->present_key,
         expected->expected_present_key, expected->present_key_tolerance, keys},
        {"present_value", whole->present_value.expected, results->present_value,
         expected->expected_present_value, expected->present_value_tolerance, values},
    };
    vkmha_status status = VKMHA_OK;
    for (size_t i = 0; i < sizeof(expectations) / sizeof(expectations[0]) && status == VKMHA_OK;
         i++) {
        status = verify_expectation(&expectations[i], pool, verdict, error);
    }
    for (uint32_t t = 0; t < VKMHA_NUM_TOLD && status == VKMHA_OK; t++) {
        const expectation told = {
            .name = vkmha_told_name((vkmha_told)t),
            .reference = whole->told.of[t].expected,
            .device = results->told[t],
            .given = expected->expected_told[t],
            .tolerance = expected->told_tolerance[t],
            .axes = vkmha_told_axes(problem, (vkmha_told)t),
        };
        status = verify_expectation(&told, pool, verdict, error);
    }
    return status;
}

static vkmha_status prepare_whole(const vkmha_problem *problem, const vkmha_results *results,
                                  vkmha_pool *pool, vkmha_whole *whole, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    *whole = (vkmha_whole){0};
    vkmha_status status =
        vkmha_answer_prepare(results->output, sizes.output, pool, &whole->output, error);
    if (status == VKMHA_OK && problem->plan.has_present) {
        status = vkmha_answer_prepare(results->present_key, sizes.present_key, pool,
                                      &whole->present_key, error);
    }
    if (status == VKMHA_OK && problem->plan.has_present) {
        status = vkmha_answer_prepare(results->present_value, sizes.present_value, pool,
                                      &whole->present_value, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_told_prepare(problem, results->told, pool, &whole->told, error);
    }
    return status;
}

static void judge_whole(const vkmha_problem *problem, vkmha_whole *whole, vkmha_verdict *verdict)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    vkmha_judge(verdict, problem->layer.attention_only ? "attention" : "end to end",
                vkmha_output_axes(problem), whole->output.got, whole->output.expected,
                whole->output.bound, true);
    vkmha_judge_told(problem, &whole->told, !problem->layer.attention_only, verdict);
    if (!problem->plan.has_present) {
        return;
    }
    const uint64_t batch = problem->plan.batch_size;
    const vkmha_axes keys = {{batch, sizes.num_kv_heads, sizes.all_keys, problem->layer.head_dim},
                             "bhjd"};
    const vkmha_axes values = {{batch, sizes.num_kv_heads, sizes.all_keys, sizes.v_head_dim},
                               "bhjd"};
    vkmha_judge(verdict, "present_key", keys, whole->present_key.got, whole->present_key.expected,
                whole->present_key.bound, true);
    vkmha_judge(verdict, "present_value", values, whole->present_value.got,
                whole->present_value.expected, whole->present_value.bound, true);
}

vkmha_status vkmha_verify(const vkmha_problem *problem, const vkmha_trial *trial,
                          const vkmha_results *results, const vkmha_case *expected,
                          vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_chains *chains = &trial->info.chains;
    *verdict = (vkmha_verdict){0};
    if (results->is_overrun) {
        vkmha_judge_fail(verdict, "output", "memory that is no output's was written");
    }
    vkmha_whole whole;
    vkmha_status status = prepare_whole(problem, results, pool, &whole, error);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_reference_outputs reference = {
        .output = whole.output.expected,
        .output_bound = whole.output.bound,
        .present_key = whole.present_key.expected,
        .present_key_bound = whole.present_key.bound,
        .present_value = whole.present_value.expected,
        .present_value_bound = whole.present_value.bound,
    };
    vkmha_told_fill(&whole.told, &reference);
    status = vkmha_stored_reference(problem, chains, &reference, pool, error);
    if (status == VKMHA_OK && expected) {
        status = verify_case(problem, results, &whole, expected, pool, verdict, error);
    }
    if (status == VKMHA_OK && problem->layer.attention_only) {
        status = vkmha_verify_statistics(problem, &whole.told, pool, verdict, error);
    }
    if (status == VKMHA_OK && !problem->layer.attention_only) {
        status = vkmha_verify_stages(problem, chains, results, pool, verdict, error);
    }
    if (status == VKMHA_OK) {
        judge_whole(problem, &whole, verdict);
    }
    return status;
}
