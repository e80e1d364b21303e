/* One layer with many sets of gates. */
#include "subject.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TENSOR_BYTES = 64 << 20, /* half of what every device binds */
};

/* Variants of which no tensor is larger than that. */
static uint64_t variants_at_once(const vkmha_problem *problem, uint64_t count)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t elements[] = {sizes.output,
                                 sizes.heads_query,
                                 sizes.heads_key,
                                 sizes.heads_value,
                                 sizes.attention,
                                 sizes.query_rows * sizes.query_dim,
                                 sizes.key_rows * sizes.key_dim,
                                 sizes.key_rows * sizes.value_dim};
    uint64_t most = 1;
    for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++) {
        most = elements[i] > most ? elements[i] : most;
    }
    const uint64_t fit = MAX_TENSOR_BYTES / (most * sizeof(float));
    return fit < 1 ? 1 : fit < count ? fit : count;
}

float *vkmha_gates_join(const vkmha_problem *problem, const float *gates, uint64_t count,
                        vkmha_pool *pool)
{
    const uint64_t batch = problem->plan.batch_size;
    const uint64_t num_heads = problem->layer.num_heads;
    const float *own = problem->inputs.head_gates;
    float *joined = vkmha_pool_allocate(pool, count * batch * num_heads, sizeof(float));
    for (uint64_t i = 0; joined && i < count * batch * num_heads; i++) {
        const uint64_t h = i % num_heads;
        const uint64_t b = i / num_heads % batch;
        const float gate = gates[i / num_heads / batch * num_heads + h];
        joined[i] = !own                                   ? gate
                    : problem->plan.has_gates_per_sequence ? gate * own[b * num_heads + h]
                                                           : gate * own[h];
    }
    return joined;
}

/* `count` variants from `first` on, as one batch. */
static vkmha_status run_batch(vkmha_layer *layer, const vkmha_problem *problem, const float *gates,
                              uint64_t first, uint64_t count, vkmha_gated_visit *visit, void *user,
                              vkmha_error *error)
{
    vkmha_pool pool = {0};
    vkmha_problem repeated;
    vkmha_plan *plan = NULL;
    const uint64_t size = vkmha_problem_measure(problem).output;
    float *output = vkmha_pool_allocate(&pool, count * size, sizeof(float));
    float *joined =
        vkmha_gates_join(problem, gates + first * problem->layer.num_heads, count, &pool);
    vkmha_status status = output && joined
                              ? vkmha_subject_repeat(problem, count, &pool, &repeated, error)
                              : vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    if (status == VKMHA_OK) {
        repeated.plan.has_head_gates = false;
        repeated.plan.has_gates_per_sequence = true;
        repeated.inputs.head_gates = joined;
        status = vkmha_plan_create(layer, &repeated.plan, &plan, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_run(plan, &repeated.inputs, &(vkmha_outputs){.output = output}, error);
    }
    for (uint64_t r = 0; status == VKMHA_OK && r < count; r++) {
        visit(user, first + r, output + r * size);
    }
    vkmha_plan_destroy(plan);
    vkmha_pool_finish(&pool);
    return status;
}

vkmha_status vkmha_gated_run(vkmha_device *device, const vkmha_problem *problem, const float *gates,
                             uint64_t count, vkmha_gated_visit *visit, void *user,
                             vkmha_error *error)
{
    vkmha_layer *layer = NULL;
    vkmha_progress progress;
    vkmha_progress_start(&progress);
    const uint64_t at_once = variants_at_once(problem, count);
    vkmha_status status = vkmha_layer_create(device, &problem->layer, &layer, error);
    for (uint64_t first = 0; status == VKMHA_OK && first < count; first += at_once) {
        vkmha_progress_show(&progress, "gates", first, count);
        const uint64_t left = count - first;
        status = run_batch(layer, problem, gates, first, left < at_once ? left : at_once, visit,
                           user, error);
    }
    vkmha_progress_clear(&progress);
    vkmha_layer_destroy(layer);
    return status;
}

/* ---- Importance ---------------------------------------------------------------------------- */

typedef struct leave_one_out {
    const vkmha_subject *subject;
    vkmha_importance *importance;
} leave_one_out;

/* Variant 0 has all heads, variant h + 1 all but h. */
static void measure(void *user, uint64_t variant, const float *output)
{
    const leave_one_out *measured = user;
    const vkmha_subject *subject = measured->subject;
    if (variant == 0) {
        memcpy(measured->importance->base, output,
               (size_t)(subject->rows * subject->row_size) * sizeof(float));
        return;
    }
    measured->importance->changes[variant - 1] =
        vkmha_subject_change(subject, output, measured->importance->base);
}

/* Least important first; of equal ones, the first. */
static void sort_heads(const double *changes, uint32_t num_heads, uint32_t *order)
{
    for (uint32_t h = 0; h < num_heads; h++) {
        uint32_t place = h;
        while (place > 0 && changes[order[place - 1]] > changes[h]) {
            order[place] = order[place - 1];
            place--;
        }
        order[place] = h;
    }
}

vkmha_status vkmha_subject_importance(vkmha_subject *subject, vkmha_importance *importance,
                                      vkmha_error *error)
{
    const uint32_t num_heads = subject->problem.layer.num_heads;
    vkmha_pool *pool = &subject->pool;
    float *gates = vkmha_pool_allocate(pool, (uint64_t)(num_heads + 1) * num_heads, sizeof(float));
    *importance = (vkmha_importance){
        .base = vkmha_pool_allocate(pool, subject->rows * subject->row_size, sizeof(float)),
        .changes = vkmha_pool_allocate(pool, num_heads, sizeof(double)),
        .order = vkmha_pool_allocate(pool, num_heads, sizeof(uint32_t)),
    };
    if (!gates || !importance->base || !importance->changes || !importance->order) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    for (uint64_t i = 0; i < (uint64_t)(num_heads + 1) * num_heads; i++) {
        gates[i] = i / num_heads == i % num_heads + 1 ? 0.0f : 1.0f;
    }
    leave_one_out measured = {subject, importance};
    const vkmha_status status = vkmha_gated_run(subject->device, &subject->problem, gates,
                                                num_heads + 1, measure, &measured, error);
    for (uint32_t h = 0; status == VKMHA_OK && h < num_heads; h++) {
        if (!isfinite(importance->changes[h])) {
            return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                   "the layer's output is 0 or not finite: no change can be "
                                   "measured (head %" PRIu32 ")",
                                   h);
        }
    }
    sort_heads(importance->changes, num_heads, importance->order);
    return status;
}
