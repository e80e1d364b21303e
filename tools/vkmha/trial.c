#include "stored.h"
#include "verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 16, /* elements past an output's end that must survive */
};

static const float guard_value = -1232.0f; /* exact in every type */

vkmha_status vkmha_trial_create(vkmha_device *device, const vkmha_problem *problem,
                                const char *project_kernel, const char *attention_kernel,
                                vkmha_trial *trial, vkmha_error *error)
{
    *trial = (vkmha_trial){0};
    vkmha_device_info info;
    vkmha_device_get_info(device, &info);
    trial->has_times = info.limits.timestamp_period_ns > 0.0;
    vkmha_plan_params plan = problem->plan;
    plan.project_kernel = problem->layer.attention_only ? NULL : project_kernel;
    plan.attention_kernel = attention_kernel;
    vkmha_status status = vkmha_layer_create(device, &problem->layer, &trial->layer, error);
    if (status == VKMHA_OK) {
        status = vkmha_plan_create(trial->layer, &plan, &trial->plan, error);
    }
    if (status != VKMHA_OK) {
        vkmha_trial_finish(trial);
        return status;
    }
    vkmha_plan_get_info(trial->plan, &trial->info);
    return VKMHA_OK;
}

void vkmha_trial_finish(vkmha_trial *trial)
{
    vkmha_plan_destroy(trial->plan);
    vkmha_layer_destroy(trial->layer);
    *trial = (vkmha_trial){0};
}

/* `memory` floats of an output whose elements, `count` without the gaps, lie as `span` says. */
static void spread_values(const vkmha_span *span, float *memory, float value, uint64_t count,
                          float *scratch)
{
    vkmha_span without_gaps = *span;
    without_gaps.strides = (vkmha_strides){
        .batch = span->rows * span->heads * span->features,
        .row = span->heads * span->features,
        .head = span->features,
    };
    for (uint64_t i = 0; i < count; i++) {
        scratch[i] = value;
    }
    vkmha_span_copy(&without_gaps, scratch, span, memory);
}

static float *allocate_output(vkmha_pool *pool, uint64_t count)
{
    float *values = vkmha_pool_allocate(pool, count + GUARD, sizeof(float));
    for (uint64_t i = 0; values && i < count + GUARD; i++) {
        values[i] = i < count ? NAN : guard_value;
    }
    return values;
}

static bool is_guard(const float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (values[i] != guard_value) {
            return false;
        }
    }
    return true;
}

static bool has_guard(const float *values, uint64_t count)
{
    return !values || is_guard(values + count, GUARD);
}

static uint64_t told_count(const vkmha_problem *problem, uint32_t told)
{
    const vkmha_axes axes = vkmha_told_axes(problem, (vkmha_told)told);
    return vkmha_axes_count(&axes);
}

/* The output as the kernels see it: its memory may have gaps, which must survive. */
typedef struct strided_output {
    vkmha_span span;
    uint64_t extent;
    float *memory;
    float *scratch;
} strided_output;

static bool allocate_strided(const vkmha_problem *problem, uint64_t count, vkmha_pool *pool,
                             strided_output *output)
{
    output->span = vkmha_problem_span(problem, VKMHA_ROLE_OUTPUT);
    output->extent = vkmha_span_extent(&output->span);
    output->memory = vkmha_pool_allocate(pool, output->extent + GUARD, sizeof(float));
    output->scratch = vkmha_pool_allocate(pool, count, sizeof(float));
    if (!output->memory || !output->scratch) {
        return false;
    }
    for (uint64_t i = 0; i < output->extent + GUARD; i++) {
        output->memory[i] = guard_value;
    }
    spread_values(&output->span, output->memory, NAN, count, output->scratch);
    return true;
}

/* Takes the elements out; false where something else was written. */
static bool take_strided(const vkmha_problem *problem, uint64_t count, strided_output *output,
                         float *values)
{
    const vkmha_span to = vkmha_problem_contiguous(problem, VKMHA_ROLE_OUTPUT);
    vkmha_span_copy(&output->span, output->memory, &to, values);
    spread_values(&output->span, output->memory, guard_value, count, output->scratch);
    return is_guard(output->memory, output->extent + GUARD);
}

vkmha_status vkmha_trial_run(const vkmha_trial *trial, const vkmha_problem *problem,
                             bool wants_stages, vkmha_pool *pool, vkmha_results *results,
                             vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    strided_output output = {0};
    *results = (vkmha_results){.output = allocate_output(pool, sizes.output)};
    bool has_memory = allocate_strided(problem, sizes.output, pool, &output) && results->output;
    const struct {
        float **values;
        uint64_t count;
        bool is_wanted;
    } others[] = {
        {&results->present_key, sizes.present_key, problem->plan.has_present},
        {&results->present_value, sizes.present_value, problem->plan.has_present},
        {&results->projected_query, sizes.heads_query, wants_stages},
        {&results->projected_key, sizes.heads_key, wants_stages},
        {&results->projected_value, sizes.heads_value, wants_stages},
        {&results->attention, sizes.attention, wants_stages},
    };
    const size_t num_others = sizeof(others) / sizeof(others[0]);
    for (size_t i = 0; i < num_others; i++) {
        const bool is_stage = i >= 2;
        if (others[i].is_wanted && !(is_stage && problem->layer.attention_only)) {
            *others[i].values = allocate_output(pool, others[i].count);
            has_memory = has_memory && *others[i].values;
        }
    }
    for (uint32_t t = 0; t < VKMHA_NUM_TOLD; t++) {
        if (vkmha_told_is_asked(&problem->plan, (vkmha_told)t)) {
            results->told[t] = allocate_output(pool, told_count(problem, t));
            has_memory = has_memory && results->told[t];
        }
    }
    if (!has_memory) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    vkmha_outputs outputs = {
        .output = output.memory,
        .present_key = results->present_key,
        .present_value = results->present_value,
        .projected_query = results->projected_query,
        .projected_key = results->projected_key,
        .projected_value = results->projected_value,
        .attention = results->attention,
        .stage_ns = trial->has_times ? results->stage_ns : NULL,
    };
    vkmha_told_outputs(results->told, &outputs);
    const vkmha_status status =
        vkmha_stored_run(trial->plan, problem, &outputs, GUARD, pool, error);
    if (status != VKMHA_OK) {
        return status;
    }
    results->is_overrun = !take_strided(problem, sizes.output, &output, results->output);
    for (size_t i = 0; i < num_others; i++) {
        results->is_overrun = results->is_overrun || !has_guard(*others[i].values, others[i].count);
    }
    for (uint32_t t = 0; t < VKMHA_NUM_TOLD; t++) {
        results->is_overrun =
            results->is_overrun || !has_guard(results->told[t], told_count(problem, t));
    }
    return VKMHA_OK;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

vkmha_status vkmha_trial_time(const vkmha_trial *trial, const vkmha_problem *problem, uint64_t runs,
                              float *output, uint64_t *times, vkmha_error *error)
{
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t stage_ns[VKMHA_NUM_STAGES] = {0};
        const vkmha_outputs outputs = {.output = output, .stage_ns = stage_ns};
        const vkmha_status status = vkmha_run(trial->plan, &problem->inputs, &outputs, error);
        if (status != VKMHA_OK) {
            return status;
        }
        for (uint32_t stage = 0; stage < VKMHA_NUM_STAGES; stage++) {
            times[stage * runs + run] = stage_ns[stage];
        }
    }
    for (uint32_t stage = 0; stage < VKMHA_NUM_STAGES; stage++) {
        qsort(times + stage * runs, runs, sizeof(uint64_t), compare_times);
    }
    return VKMHA_OK;
}

double vkmha_trial_median(const uint64_t *times, uint64_t runs)
{
    return 0.5 * ((double)times[(runs - 1) / 2] + (double)times[runs / 2]);
}
