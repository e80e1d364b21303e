/*
 * For tests that keep a layer and its plan: making both for a target, running them, and data of
 * which the test chooses the numbers.
 */
#ifndef VKMHA_TESTS_MADE_H
#define VKMHA_TESTS_MADE_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

typedef struct vkmha_test_made {
    vkmha_layer *layer;
    vkmha_plan *plan;
    vkmha_plan_info info;
} vkmha_test_made;

/* A plan of a layer that is there already. */
static inline vkmha_test_made vkmha_test_plan_of(const vkmha_test_target *target,
                                                 vkmha_layer *layer,
                                                 const vkmha_layer_params *layer_params,
                                                 const vkmha_plan_params *plan_params)
{
    vkmha_test_made made = {.layer = layer};
    vkmha_error error;
    vkmha_plan_params params = *plan_params;
    params.project_kernel = layer_params->attention_only ? NULL : target->project_kernel;
    params.attention_kernel = target->attention_kernel;
    const vkmha_status status = vkmha_plan_create(layer, &params, &made.plan, &error);
    cr_assert(status == VKMHA_OK, "%s, %s: plan: %s", target->device_name, target->attention_kernel,
              error.message);
    vkmha_plan_get_info(made.plan, &made.info);
    return made;
}

static inline vkmha_test_made vkmha_test_make(const vkmha_test_target *target,
                                              const vkmha_layer_params *layer_params,
                                              const vkmha_plan_params *plan_params)
{
    vkmha_error error;
    vkmha_layer *layer = NULL;
    const vkmha_status status = vkmha_layer_create(target->device, layer_params, &layer, &error);
    cr_assert(status == VKMHA_OK, "%s: layer: %s", target->device_name, error.message);
    return vkmha_test_plan_of(target, layer, layer_params, plan_params);
}

static inline void vkmha_test_unmake(vkmha_test_made *made)
{
    vkmha_plan_destroy(made->plan);
    vkmha_layer_destroy(made->layer);
    *made = (vkmha_test_made){0};
}

static inline void vkmha_test_made_run(const vkmha_test_made *made, const vkmha_inputs *inputs,
                                       float *output)
{
    vkmha_error error;
    const vkmha_outputs outputs = {.output = output};
    const vkmha_status status = vkmha_run(made->plan, inputs, &outputs, &error);
    cr_assert(status == VKMHA_OK, "run: %s", error.message);
}

/* A problem of data that the test owns: finish it by freeing those alone. */
static inline vkmha_test_problem vkmha_test_problem_of(const char *name,
                                                       const vkmha_layer_params *layer,
                                                       const vkmha_plan_params *plan,
                                                       const vkmha_inputs *inputs,
                                                       uint64_t num_output)
{
    vkmha_test_problem problem = {
        .layer = *layer, .plan = *plan, .inputs = *inputs, .num_output = num_output};
    strncpy(problem.name, name, sizeof(problem.name) - 1);
    return problem;
}

/* G(seed) * factor: element i is (((29 i + 53 seed) mod 61) - 30) / 32 * factor, exact in every
 * type. */
static inline void vkmha_test_generate(float *values, uint64_t count, uint64_t seed, float factor)
{
    for (uint64_t i = 0; i < count; i++) {
        values[i] = factor * ((float)((29 * i + 53 * seed) % 61) - 30.0f) / 32.0f;
    }
}

/* `count` random numbers in -1..1, another sequence for each `stream`; the caller frees them. */
static inline float *vkmha_test_values(uint64_t count, uint64_t stream)
{
    uint64_t state = vkmha_test_seed() + 1000003 * stream;
    float *values = vkmha_test_allocate(count, sizeof(float));
    for (uint64_t i = 0; i < count; i++) {
        values[i] = vkmha_test_random_float(&state);
    }
    return values;
}

#endif
