/* vkmha check --grid: random shapes. */
#include "report.h"
#include "same.h"
#include "shape.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    SAME_PERCENT = 25, /* shapes that are run a second way */
    MIN_FAMILIES = 24,
    SHAPES_PER_FAMILY = 8,
};

/* ---- Probes -------------------------------------------------------------------------------- */

/*
 * Scale 0 and a power of two of keys, all seen: each feature is the mean of its values, which are
 * integers. All weights are one number, so only it and one division may round.
 */
static vkmha_status verify_uniform(const vkmha_problem *stage, const float *attention,
                                   vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(stage);
    const vkmha_plan_params *plan = &stage->plan;
    const uint64_t heads = stage->layer.num_heads;
    const uint64_t group = heads / sizes.num_kv_heads;
    const bool is_heads_first = plan->layout == VKMHA_LAYOUT_BHSD;
    const float *value = vkmha_problem_value(stage);
    double *expected = vkmha_pool_allocate(pool, sizes.output, sizeof(double));
    double *bound = vkmha_pool_allocate(pool, sizes.output, sizeof(double));
    float *got = vkmha_pool_allocate(pool, sizes.output, sizeof(float));
    if (!expected || !bound || !got) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    if (sizes.output > 0) {
        memcpy(got, attention, (size_t)sizes.output * sizeof(float));
    }
    for (uint64_t e = 0; e < sizes.output; e++) {
        const uint64_t d = e % sizes.v_head_dim;
        const uint64_t row = e / sizes.v_head_dim;
        const uint64_t h = is_heads_first ? row / plan->query_len % heads : row % heads;
        const uint64_t b = row / (heads * plan->query_len);
        double sum = 0.0;
        double largest = 0.0;
        for (uint64_t j = 0; j < plan->key_len; j++) {
            const uint64_t at = is_heads_first
                                    ? (b * sizes.num_kv_heads + h / group) * plan->key_len + j
                                    : (b * plan->key_len + j) * sizes.num_kv_heads + h / group;
            const double term = (double)value[at * sizes.v_head_dim + d];
            sum += term;
            largest = fmax(largest, fabs(term));
        }
        expected[e] = sum / (double)plan->key_len;
        bound[e] = ldexp(16.0, -24) * largest;
    }
    const vkmha_axes axes =
        is_heads_first
            ? (vkmha_axes){{plan->batch_size, heads, plan->query_len, sizes.v_head_dim}, "bhid"}
            : (vkmha_axes){{plan->batch_size, plan->query_len, heads, sizes.v_head_dim}, "bihd"};
    vkmha_judge(verdict, "attention, exact mean", axes, got, expected, bound, false);
    return VKMHA_OK;
}

static vkmha_status verify_probes(const vkmha_shape *shape, const vkmha_results *results,
                                  vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem *problem = &shape->problem;
    const bool has_projections = !problem->layer.attention_only;
    if (vkmha_problem_measure(problem).query_rows == 0) {
        return VKMHA_OK;
    }
    vkmha_status status = VKMHA_OK;
    if (vkmha_shape_has(shape, VKMHA_FEATURE_INTEGERS) && has_projections) {
        vkmha_projection projections[VKMHA_NUM_PROJECTIONS];
        status = vkmha_projections_of(problem, results, pool, projections, error);
        for (uint32_t i = 0; status == VKMHA_OK && i < 3; i++) {
            status = vkmha_verify_projection(&projections[i], 0, true, pool, verdict, error);
        }
    }
    const bool is_uniform = vkmha_shape_has(shape, VKMHA_FEATURE_UNIFORM) &&
                            !vkmha_shape_has(shape, VKMHA_FEATURE_NAN_QUERY);
    if (status == VKMHA_OK && is_uniform) {
        const vkmha_problem stage =
            has_projections ? vkmha_attention_problem(problem, results) : *problem;
        status = verify_uniform(&stage, has_projections ? results->attention : results->output,
                                pool, verdict, error);
    }
    return status;
}

/* ---- One shape ----------------------------------------------------------------------------- */

typedef struct grid_run {
    const char *project;
    const char *attention;
    uint64_t seed;
    uint64_t without;
} grid_run;

typedef struct grid_outcome {
    vkmha_status status;
    bool has_failed;
    uint64_t options; /* of the shape */
    char sizes[400];
    char what[640];
} grid_outcome;

/* The rows drawn for a shape, or the next ones that can run it. */
static vkmha_status make_trial(const vkmha_check_options *options, vkmha_random *random,
                               const vkmha_problem *problem, vkmha_report *report, grid_run *run,
                               vkmha_trial *trial, vkmha_error *error)
{
    const vkmha_rows *projects = &options->kernels.project;
    const vkmha_rows *attentions = &options->kernels.attention;
    const bool has_projections = !problem->layer.attention_only;
    const uint64_t project = vkmha_random_next(random);
    const uint64_t attention = vkmha_random_next(random);
    vkmha_status status = VKMHA_ERROR_UNSUPPORTED;
    for (uint64_t i = 0; i < attentions->count && status == VKMHA_ERROR_UNSUPPORTED; i++) {
        run->project = has_projections ? projects->names[(project + i) % projects->count] : NULL;
        run->attention = attentions->names[(attention + i) % attentions->count];
        status = vkmha_trial_create(options->device, problem, run->project, run->attention, trial,
                                    error);
        const bool is_unfit = status == VKMHA_ERROR_UNSUPPORTED;
        vkmha_report_row(report, run->project, is_unfit);
        vkmha_report_row(report, run->attention, is_unfit);
    }
    return status;
}

/* counts: NULL where the shape's features are not counted. */
static grid_outcome run_shape(const vkmha_check_options *options, vkmha_report *report,
                              grid_run *run, uint64_t *counts)
{
    grid_outcome outcome = {0};
    vkmha_shape shape;
    vkmha_error error = {0};
    vkmha_pool pool = {0};
    vkmha_trial trial = {0};
    vkmha_results results = {0};
    vkmha_verdict verdict = {0};
    vkmha_random random = {~run->seed};
    vkmha_status status = vkmha_shape_create(run->seed, run->without, &shape, &error);
    if (status == VKMHA_OK) {
        status = make_trial(options, &random, &shape.problem, report, run, &trial, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, &shape.problem, true, &pool, &results, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_verify(&shape.problem, &trial, &results, NULL, &pool, &verdict, &error);
    }
    if (status == VKMHA_OK) {
        status = verify_probes(&shape, &results, &pool, &verdict, &error);
    }
    if (status == VKMHA_OK) {
        const uint64_t head = vkmha_random_below(&random, shape.problem.layer.num_heads);
        status = vkmha_verify_gates(options->device, &shape.problem, head, run->project,
                                    run->attention, &results, &pool, &verdict, &error);
    }
    if (status == VKMHA_OK && vkmha_random_chance(&random, SAME_PERCENT)) {
        status = vkmha_verify_same(options->device, &random, &shape, run->project, run->attention,
                                   &results, &pool, &verdict, &error);
    }
    outcome.status = status;
    outcome.has_failed = status != VKMHA_OK || verdict.has_failed;
    outcome.options = shape.options;
    vkmha_shape_describe(&shape, outcome.sizes, sizeof(outcome.sizes));
    snprintf(outcome.what, sizeof(outcome.what), "%s", error.message);
    if (status == VKMHA_OK && verdict.has_failed) {
        vkmha_verdict_describe(&verdict, outcome.what, sizeof(outcome.what));
    }
    for (uint32_t i = 0; counts && i < VKMHA_NUM_FEATURES; i++) {
        counts[i] += vkmha_shape_has(&shape, (vkmha_feature)i);
    }
    vkmha_trial_finish(&trial);
    vkmha_pool_finish(&pool);
    vkmha_shape_finish(&shape);
    return outcome;
}

/* Leaves out each option without which the shape fails still. */
static grid_outcome shrink_failure(const vkmha_check_options *options, vkmha_report *report,
                                   grid_run *run, grid_outcome failed)
{
    for (uint32_t i = 0; i < VKMHA_NUM_OPTIONS; i++) {
        const uint64_t bit = UINT64_C(1) << i;
        if ((failed.options & bit) == 0) {
            continue;
        }
        grid_run smaller = *run;
        smaller.without |= bit;
        const grid_outcome outcome = run_shape(options, report, &smaller, NULL);
        if (outcome.status == VKMHA_ERROR_DEVICE_LOST) {
            report->is_lost = true;
            break;
        }
        if (outcome.has_failed) {
            *run = smaller;
            failed = outcome;
        }
    }
    return failed;
}

static void report_shape(const vkmha_check_options *options, const grid_run *run,
                         const grid_outcome *outcome, vkmha_report *report)
{
    char subject[480];
    char kernels[128];
    char arguments[160];
    char without[VKMHA_NUM_OPTIONS * 32] = "";
    char repeat[VKMHA_NUM_OPTIONS * 32 + 512];
    size_t length = 0;
    snprintf(subject, sizeof(subject), "shape 0x%016" PRIx64 " (%s)", run->seed, outcome->sizes);
    snprintf(kernels, sizeof(kernels), "%s%s%s", run->project ? run->project : "",
             run->project && run->attention ? " + " : "", run->attention ? run->attention : "");
    vkmha_kernel_arguments(run->project, run->attention, arguments, sizeof(arguments));
    for (uint32_t i = 0; i < VKMHA_NUM_OPTIONS && length < sizeof(without); i++) {
        if ((run->without >> i & 1u) != 0) {
            length += (size_t)snprintf(without + length, sizeof(without) - length, " --without %s",
                                       vkmha_option_text((vkmha_option)i));
        }
    }
    const char *device = options->device_choice;
    snprintf(repeat, sizeof(repeat), "vkmha check --grid --shape-seed 0x%016" PRIx64 "%s%s%s%s%s",
             run->seed, without, device ? " --device '" : "", device ? device : "",
             device ? "'" : "", arguments);
    vkmha_report_failure(report, subject, kernels, outcome->what, repeat);
}

static void check_shape(const vkmha_check_options *options, uint64_t seed, vkmha_report *report,
                        uint64_t *counts)
{
    grid_run run = {.seed = seed, .without = options->without};
    grid_outcome outcome = run_shape(options, report, &run, counts);
    if (!outcome.has_failed) {
        report->passed++;
        return;
    }
    report->failed++;
    report->is_lost = outcome.status == VKMHA_ERROR_DEVICE_LOST;
    if (!report->is_lost && !options->stops_at_failure) {
        outcome = shrink_failure(options, report, &run, outcome);
    }
    report_shape(options, &run, &outcome, report);
}

/* ---- The grid ------------------------------------------------------------------------------ */

static void tell_counts(const uint64_t *counts, uint64_t num_shapes, uint64_t seed, cJSON *document)
{
    if (!document) {
        printf("grid: seed %" PRIu64 ", %" PRIu64 " shapes\n", seed, num_shapes);
        for (uint32_t i = 0; i < VKMHA_NUM_FEATURES; i++) {
            printf("  %-34s %8" PRIu64 "\n", vkmha_feature_text((vkmha_feature)i), counts[i]);
        }
        return;
    }
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, seed);
    cJSON_AddStringToObject(document, "seed", text); /* a JSON number would lose its low bits */
    cJSON_AddNumberToObject(document, "shapes", (double)num_shapes);
    cJSON *features = cJSON_AddObjectToObject(document, "options");
    for (uint32_t i = 0; i < VKMHA_NUM_FEATURES; i++) {
        cJSON_AddNumberToObject(features, vkmha_feature_text((vkmha_feature)i), (double)counts[i]);
    }
}

/* Families come back, so that a pipeline serves several shapes, and new ones come all along. */
static uint64_t draw_seed(vkmha_random *seeds, uint64_t grid_seed, uint64_t done)
{
    const uint64_t number = vkmha_random_below(seeds, MIN_FAMILIES + done / SHAPES_PER_FAMILY);
    vkmha_random family = {grid_seed + number};
    const uint64_t upper = vkmha_random_next(&family) >> VKMHA_FAMILY_SHIFT << VKMHA_FAMILY_SHIFT;
    const uint64_t lower = UINT64_MAX >> (64 - VKMHA_FAMILY_SHIFT);
    return upper | (vkmha_random_next(seeds) & lower);
}

void vkmha_check_grid(const vkmha_check_options *options, vkmha_report *report, cJSON *document)
{
    uint64_t counts[VKMHA_NUM_FEATURES] = {0};
    if (options->has_shape_seed) {
        check_shape(options, options->shape_seed, report, counts);
        return;
    }
    if (!options->is_json) {
        printf("grid: seed %" PRIu64 "\n", options->seed);
        fflush(stdout);
    }
    vkmha_random seeds = {options->seed};
    vkmha_progress progress;
    vkmha_progress_start(&progress);
    const double started = vkmha_seconds();
    uint64_t done = 0;
    while (!report->is_lost && !(options->stops_at_failure && report->failed > 0) &&
           (!options->has_count || done < options->count) &&
           (options->seconds == 0 || vkmha_seconds() - started < (double)options->seconds)) {
        check_shape(options, draw_seed(&seeds, options->seed, done), report, counts);
        done++;
        vkmha_progress_show(&progress, "shape", done, options->has_count ? options->count : 0);
    }
    vkmha_progress_clear(&progress);
    tell_counts(counts, done, options->seed, document);
}
