#include "verify.h"

#include <math.h>
#include <string.h>

enum {
    GUARD = 16, /* elements past an output's end that must survive */
};

static const float guard_value = -1234.5f;

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

static float *allocate_output(vkmha_pool *pool, uint64_t count)
{
    float *values = vkmha_pool_allocate(pool, count + GUARD, sizeof(float));
    for (uint64_t i = 0; values && i < count + GUARD; i++) {
        values[i] = i < count ? NAN : guard_value;
    }
    return values;
}

static bool has_guard(const float *values, uint64_t count)
{
    for (uint64_t i = 0; values && i < GUARD; i++) {
        if (values[count + i] != guard_value) {
            return false;
        }
    }
    return true;
}

vkmha_status vkmha_trial_run(const vkmha_trial *trial, const vkmha_problem *problem,
                             bool wants_stages, vkmha_pool *pool, vkmha_results *results,
                             vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    *results = (vkmha_results){.output = allocate_output(pool, sizes.output)};
    bool has_memory = results->output != NULL;
    if (wants_stages && !problem->layer.attention_only) {
        results->projected_query = allocate_output(pool, sizes.heads_query);
        results->projected_key = allocate_output(pool, sizes.heads_key);
        results->projected_value = allocate_output(pool, sizes.heads_value);
        results->attention = allocate_output(pool, sizes.attention);
        has_memory = has_memory && results->projected_query && results->projected_key &&
                     results->projected_value && results->attention;
    }
    if (!has_memory) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    const vkmha_outputs outputs = {
        .output = results->output,
        .projected_query = results->projected_query,
        .projected_key = results->projected_key,
        .projected_value = results->projected_value,
        .attention = results->attention,
        .stage_ns = trial->has_times ? results->stage_ns : NULL,
    };
    const vkmha_status status = vkmha_run(trial->plan, &problem->inputs, &outputs, error);
    if (status != VKMHA_OK) {
        return status;
    }
    results->is_overrun = !has_guard(results->output, sizes.output) ||
                          !has_guard(results->projected_query, sizes.heads_query) ||
                          !has_guard(results->projected_key, sizes.heads_key) ||
                          !has_guard(results->projected_value, sizes.heads_value) ||
                          !has_guard(results->attention, sizes.attention);
    return VKMHA_OK;
}
