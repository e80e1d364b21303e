#include "same.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* NaNs are alike whatever their bits. */
static bool same_bits(const float *a, const float *b, uint64_t count, uint64_t *index)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t a_bits;
        uint32_t b_bits;
        memcpy(&a_bits, &a[i], sizeof(a_bits));
        memcpy(&b_bits, &b[i], sizeof(b_bits));
        if (a_bits != b_bits && !(isnan(a[i]) && isnan(b[i]))) {
            *index = i;
            return false;
        }
    }
    return true;
}

typedef enum same_way {
    WAY_REPEATED = 0,
    WAY_CUT,
    WAY_ALONE,
    WAY_LONGER,
    WAY_UNPACKED,
    WAY_CACHED,
    WAY_CONTIGUOUS,
    WAY_TOLD,
    NUM_WAYS,
} same_way;

/* What is known of each way; those that few shapes allow are drawn more often. */
static const struct {
    const char *how;
    vkmha_feature feature;
    uint32_t share;
} ways[NUM_WAYS] = {
    [WAY_REPEATED] = {"run again", VKMHA_FEATURE_SAME_REPEATED, 1},
    [WAY_CUT] = {"with another work limit", VKMHA_FEATURE_SAME_CUT, 2},
    [WAY_ALONE] = {"as a batch of its own", VKMHA_FEATURE_SAME_ALONE, 2},
    [WAY_LONGER] = {"padded with keys that are not there", VKMHA_FEATURE_SAME_PADDED, 2},
    [WAY_UNPACKED] = {"padded instead of packed", VKMHA_FEATURE_SAME_UNPACKED, 6},
    [WAY_CACHED] = {"with its past in a cache", VKMHA_FEATURE_SAME_CACHE, 20},
    [WAY_CONTIGUOUS] = {"without strides", VKMHA_FEATURE_SAME_CONTIGUOUS, 4},
    [WAY_TOLD] = {"with something told or nothing", VKMHA_FEATURE_SAME_TOLD, 4},
};

static bool tells_anything(const vkmha_plan_params *plan)
{
    bool is_asked = false;
    for (uint32_t t = 0; t < VKMHA_NUM_TOLD; t++) {
        is_asked = is_asked || vkmha_told_is_asked(plan, (vkmha_told)t);
    }
    return is_asked;
}

/* Whether what is told has the same shapes too. */
static bool tells_the_same(same_way way)
{
    return way == WAY_REPEATED || way == WAY_CUT || way == WAY_CONTIGUOUS;
}

static bool can_run(same_way way, const vkmha_problem *problem)
{
    const vkmha_plan_params *plan = &problem->plan;
    const bool has_key_mask =
        plan->has_attend_keys || (plan->mask != VKMHA_MASK_NONE && plan->mask_dims[3] != 1);
    switch (way) {
    case WAY_REPEATED:
    case WAY_CUT:
    case WAY_TOLD:
        return true;
    case WAY_ALONE:
        return plan->batch_size > 1;
    case WAY_LONGER:
        return !plan->is_packed && !plan->has_key_lengths && !plan->has_present && !has_key_mask;
    case WAY_UNPACKED:
        return plan->is_packed;
    case WAY_CACHED:
        /* A cache takes keys that it turns itself, and values by the layer's projections. */
        return plan->past_len > 0 && plan->batch_size > 0 && !plan->has_key_lengths &&
               problem->layer.attention_only && problem->layer.rope.style == VKMHA_ROPE_NONE;
    case WAY_CONTIGUOUS:
        return plan->query_strides.is_given || plan->key_strides.is_given ||
               plan->output_strides.is_given;
    case NUM_WAYS:
        break;
    }
    return false;
}

static same_way draw_way(vkmha_random *random, const vkmha_problem *problem)
{
    uint32_t total = 0;
    for (same_way way = WAY_REPEATED; way < NUM_WAYS; way++) {
        total += can_run(way, problem) ? ways[way].share : 0;
    }
    uint64_t drawn = vkmha_random_below(random, total);
    for (same_way way = WAY_CUT; way < NUM_WAYS; way++) {
        const uint32_t share = can_run(way, problem) ? ways[way].share : 0;
        if (drawn < share) {
            return way;
        }
        drawn -= share;
    }
    return WAY_REPEATED;
}

/* A cache that holds the past: a run without queries appends it. */
static vkmha_status fill_cache(const vkmha_problem *problem, const vkmha_trial *trial,
                               vkmha_cache *cache, vkmha_error *error)
{
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_plan_params append = {
        .batch_size = plan->batch_size,
        .key_len = plan->past_len,
        .layout = VKMHA_LAYOUT_BHSD, /* as the past is */
        .cache_capacity = plan->past_len + plan->key_len,
    };
    const vkmha_inputs inputs = {
        .key = problem->inputs.past_key,
        .value = problem->inputs.past_value,
        .cache = cache,
    };
    vkmha_plan *appending = NULL;
    vkmha_status status = vkmha_plan_create(trial->layer, &append, &appending, error);
    if (status == VKMHA_OK) {
        float nothing = 0.0f;
        status = vkmha_run(appending, &inputs, &(vkmha_outputs){.output = &nothing}, error);
    }
    vkmha_plan_destroy(appending);
    for (uint64_t b = 0; status == VKMHA_OK && b < plan->batch_size; b++) {
        if (vkmha_cache_length(cache, b) != plan->past_len) {
            status = vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                     "cache length %" PRIu64 " of sequence %" PRIu64
                                     " is not the %" PRIu64 " keys appended",
                                     vkmha_cache_length(cache, b), b, plan->past_len);
        }
    }
    return status;
}

/* Another run of a shape. */
typedef struct same_run {
    same_way way;
    vkmha_problem problem;
    uint64_t first; /* sequences of the shape that it has */
    uint64_t count;
    const char *project_kernel;
    const char *attention_kernel;
} same_run;

static vkmha_status make_other(vkmha_random *random, const vkmha_problem *given, vkmha_pool *pool,
                               same_run *run, vkmha_error *error)
{
    vkmha_problem told = *given;
    const vkmha_problem *problem = &told;
    vkmha_problem contiguous;
    vkmha_status status = VKMHA_OK;
    if (!tells_the_same(run->way)) {
        vkmha_told_nothing(&told);
    }
    run->problem = *problem;
    run->count = problem->plan.batch_size;
    switch (run->way) {
    case WAY_REPEATED:
    case NUM_WAYS:
        break;
    case WAY_CUT:
        /* Far apart: one dispatch a stage, or tens. */
        run->problem.plan.max_work_per_dispatch =
            problem->plan.max_work_per_dispatch ? 0 : 1 + vkmha_random_below(random, 100000);
        break;
    case WAY_ALONE:
        run->first = vkmha_random_below(random, problem->plan.batch_size);
        run->count = 1;
        return vkmha_same_alone(problem, run->first, pool, &run->problem, error);
    case WAY_LONGER:
    case WAY_UNPACKED:
        status = vkmha_same_contiguous(problem, pool, &contiguous, error);
        if (status == VKMHA_OK) {
            status = run->way == WAY_UNPACKED
                         ? vkmha_same_unpacked(&contiguous, pool, &run->problem, error)
                         : vkmha_same_longer(&contiguous, 1 + vkmha_random_below(random, 70), pool,
                                             &run->problem, error);
        }
        return status;
    case WAY_CACHED:
        run->problem.plan.past_len = 0;
        run->problem.plan.has_present = false;
        run->problem.plan.cache_capacity = problem->plan.past_len + problem->plan.key_len;
        run->problem.inputs.past_key = NULL;
        run->problem.inputs.past_value = NULL;
        break;
    case WAY_CONTIGUOUS:
        return vkmha_same_contiguous(problem, pool, &run->problem, error);
    case WAY_TOLD:
        return tells_anything(&given->plan) ? VKMHA_OK
                                            : vkmha_told_everything(&run->problem, pool, error);
    }
    return status;
}

static vkmha_status run_other(vkmha_device *device, const vkmha_problem *problem, same_run *run,
                              vkmha_pool *pool, vkmha_results *results, vkmha_error *error)
{
    vkmha_trial trial = {0};
    vkmha_cache *cache = NULL;
    vkmha_status status = vkmha_trial_create(device, &run->problem, run->project_kernel,
                                             run->attention_kernel, &trial, error);
    if (status == VKMHA_OK && run->way == WAY_CACHED) {
        status = vkmha_cache_create(trial.layer, problem->plan.batch_size,
                                    run->problem.plan.cache_capacity, &cache, error);
        if (status == VKMHA_OK) {
            status = fill_cache(problem, &trial, cache, error);
        }
        run->problem.inputs.cache = cache;
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, &run->problem, false, pool, results, error);
    }
    vkmha_cache_destroy(cache);
    vkmha_trial_finish(&trial);
    return status;
}

/* The rows of sequence `b`, which is number `item` of a problem. */
static float *take_sequence(const vkmha_problem *problem, uint64_t item, uint64_t rows,
                            const float *output, vkmha_pool *pool, vkmha_span *span)
{
    vkmha_span from = vkmha_problem_contiguous(problem, VKMHA_ROLE_OUTPUT);
    const uint64_t first = vkmha_problem_sequence(problem, item).first_query_row;
    from.strides.offset =
        problem->plan.is_packed ? first * from.strides.row : item * from.strides.batch;
    from.batch = 1;
    from.rows = rows;
    *span = from;
    span->strides = (vkmha_strides){
        .row = from.heads * from.features,
        .head = from.features,
    };
    float *values = vkmha_pool_allocate(pool, vkmha_span_extent(span), sizeof(float));
    if (values) {
        vkmha_span_copy(&from, output, span, values);
    }
    return values;
}

/* What both runs tell. */
static void compare_told(const vkmha_problem *problem, const same_run *run,
                         const vkmha_results *results, const vkmha_results *other,
                         vkmha_verdict *verdict)
{
    for (uint32_t t = 0; t < VKMHA_NUM_TOLD && tells_the_same(run->way); t++) {
        const vkmha_axes axes = vkmha_told_axes(problem, (vkmha_told)t);
        const float *expected = results->told[t];
        const float *got = other->told[t];
        uint64_t index = 0;
        if (expected && !same_bits(expected, got, vkmha_axes_count(&axes), &index)) {
            char what[128];
            snprintf(what, sizeof(what), "other bits %s: %.9g, then %.9g at %" PRIu64,
                     ways[run->way].how, (double)expected[index], (double)got[index], index);
            vkmha_judge_fail(verdict, vkmha_told_name((vkmha_told)t), what);
        }
    }
}

vkmha_status vkmha_verify_same(vkmha_device *device, vkmha_random *random, vkmha_shape *shape,
                               const char *project_kernel, const char *attention_kernel,
                               const vkmha_results *results, vkmha_pool *pool,
                               vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem *problem = &shape->problem;
    same_run run = {
        .way = draw_way(random, problem),
        .project_kernel = project_kernel,
        .attention_kernel = attention_kernel,
    };
    vkmha_results other = {0};
    vkmha_status status = make_other(random, problem, pool, &run, error);
    if (status == VKMHA_OK) {
        status = run_other(device, problem, &run, pool, &other, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_shape_mark(shape, ways[run.way].feature);
    for (uint64_t item = 0; item < run.count; item++) {
        const uint64_t b = run.first + item;
        const uint64_t rows = vkmha_problem_sequence(problem, b).query_length;
        vkmha_span span;
        const float *expected = take_sequence(problem, b, rows, results->output, pool, &span);
        const float *got = take_sequence(&run.problem, item, rows, other.output, pool, &span);
        uint64_t index = 0;
        if (!expected || !got) {
            return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
        }
        if (!same_bits(expected, got, vkmha_span_extent(&span), &index)) {
            char what[128];
            snprintf(what, sizeof(what),
                     "other bits %s: %.9g, then %.9g at %" PRIu64 " of sequence %" PRIu64,
                     ways[run.way].how, (double)expected[index], (double)got[index], index, b);
            vkmha_judge_fail(verdict, "output", what);
            break;
        }
    }
    compare_told(problem, &run, results, &other, verdict);
    return VKMHA_OK;
}
