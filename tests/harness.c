#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CANARIES = 16, MAX_ROWS = 8 };

static const uint32_t canary = 0x7fc0beefu; /* a NaN that no kernel writes */

/* ---- Devices and rows ------------------------------------------------------------------------ */

typedef struct rows {
    const char *project[MAX_ROWS];
    const char *attention[MAX_ROWS];
    uint32_t num_project;
    uint32_t num_attention;
} rows;

static rows find_rows(const vkmha_device *device, const char *device_name)
{
    rows found = {0};
    vkmha_kernel_info kernel;
    for (uint32_t i = 0; vkmha_device_get_kernel(device, i, &kernel); i++) {
        const bool is_project = strncmp(kernel.name, "project_", 8) == 0;
        const bool is_attention = strncmp(kernel.name, "attention_", 10) == 0;
        if (!kernel.usable) {
            cr_log_warn("%s skips %s: %s", device_name, kernel.name, kernel.reason);
        } else if (is_project && found.num_project < MAX_ROWS) {
            found.project[found.num_project++] = kernel.name;
        } else if (is_attention && found.num_attention < MAX_ROWS) {
            found.attention[found.num_attention++] = kernel.name;
        }
    }
    cr_assert(found.num_project > 0 && found.num_attention > 0, "%s has no usable kernels",
              device_name);
    return found;
}

typedef enum choice { CHOSEN, PROJECT_ROWS, ATTENTION_ROWS, ALL_ROWS, ALL_PAIRS } choice;

static void visit(const vkmha_test_target *chosen, choice which, vkmha_test_body *body)
{
    const rows found = find_rows(chosen->device, chosen->device_name);
    const uint32_t num_project = found.num_project;
    const uint32_t num_attention = found.num_attention;
    const uint32_t most = num_project > num_attention ? num_project : num_attention;
    const uint32_t counts[] = {1, num_project, num_attention, most, num_project * num_attention};
    for (uint32_t i = 0; i < counts[which]; i++) {
        const uint32_t attention = which == ALL_PAIRS ? i / num_project : i;
        vkmha_test_target target = *chosen;
        if (which != CHOSEN && which != ATTENTION_ROWS) {
            target.project_kernel = found.project[i % num_project];
        }
        if (which != CHOSEN && which != PROJECT_ROWS) {
            target.attention_kernel = found.attention[attention % num_attention];
        }
        body(&target);
    }
}

static void each(choice which, vkmha_test_body *body)
{
    vkmha_error error;
    uint32_t count = 0;
    vkmha_status status = vkmha_device_list(NULL, &count, &error);
    if (status == VKMHA_ERROR_NO_DEVICE || (status == VKMHA_OK && count == 0)) {
        cr_skip_test("no Vulkan device is present");
    }
    cr_assert(status == VKMHA_OK, "vkmha_device_list: %s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        const vkmha_device_params params = {.has_index = true, .index = i};
        vkmha_device *device = NULL;
        status = vkmha_device_create(&params, &device, &error);
        cr_assert(status == VKMHA_OK, "device %u: %s", i, error.message);
        vkmha_device_info info;
        vkmha_device_get_info(device, &info);
        const vkmha_test_target target = {.device = device, .device_name = info.name};
        visit(&target, which, body);
        vkmha_device_destroy(device);
    }
}

void vkmha_test_each_device(vkmha_test_body *body)
{
    each(CHOSEN, body);
}

void vkmha_test_each_project_row(vkmha_test_body *body)
{
    each(PROJECT_ROWS, body);
}

void vkmha_test_each_attention_row(vkmha_test_body *body)
{
    each(ATTENTION_ROWS, body);
}

void vkmha_test_each_row(vkmha_test_body *body)
{
    each(ALL_ROWS, body);
}

void vkmha_test_each_pair(vkmha_test_body *body)
{
    each(ALL_PAIRS, body);
}

/* ---- Random data ----------------------------------------------------------------------------- */

uint64_t vkmha_test_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        const char *text = getenv("VKMHA_TEST_SEED");
        seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
        seed = seed ? seed : 1;
    }
    return seed;
}

/* Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators". */
uint64_t vkmha_test_random(uint64_t *state)
{
    uint64_t mixed = *state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

float vkmha_test_random_float(uint64_t *state)
{
    return (float)(int32_t)(vkmha_test_random(state) >> 40) / 8388608.0f - 1.0f;
}

void *vkmha_test_allocate(uint64_t count, size_t element_size)
{
    void *memory = calloc(count ? (size_t)count : 1, element_size);
    cr_assert(memory != NULL, "out of host memory for %llu elements", (unsigned long long)count);
    return memory;
}

void vkmha_test_fill(float *values, uint64_t count, float value)
{
    for (uint64_t i = 0; i < count; i++) {
        values[i] = value;
    }
}

void vkmha_test_fill_integers(float *values, uint64_t count, int32_t limit)
{
    uint64_t state = vkmha_test_seed() + count;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t span = 2 * (uint64_t)limit + 1;
        values[i] = (float)((int64_t)(vkmha_test_random(&state) % span) - limit);
    }
}

static float *random_floats(uint64_t count, float amplitude, uint64_t *state)
{
    float *values = vkmha_test_allocate(count, sizeof(float));
    for (uint64_t i = 0; i < count; i++) {
        values[i] = amplitude * vkmha_test_random_float(state);
    }
    return values;
}

/* Random numbers of a type, of about `amplitude` in fp32; 16-bit types get 2^-6..2^-2 with either
 * sign. */
static void *random_of_type(uint64_t count, vkmha_type type, float amplitude, uint64_t *state)
{
    if (type == VKMHA_TYPE_F32) {
        return random_floats(count, amplitude, state);
    }
    uint16_t *values = vkmha_test_allocate(count, sizeof(uint16_t));
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t random = vkmha_test_random(state);
        const uint64_t exponent = random % 4 + (type == VKMHA_TYPE_F16 ? 15 - 6 : 127 - 6);
        const uint32_t mantissa_bits = type == VKMHA_TYPE_F16 ? 10 : 7;
        const uint64_t mantissa = (random >> 8) & ((1u << mantissa_bits) - 1);
        values[i] = (uint16_t)((random >> 63) << 15 | exponent << mantissa_bits | mantissa);
    }
    return values;
}

/* ---- Problems -------------------------------------------------------------------------------- */

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value ? value : otherwise;
}

static void make_weights(vkmha_test_problem *problem, uint64_t *state)
{
    vkmha_layer_params *layer = &problem->layer;
    const uint32_t kv_heads = or_default(layer->num_kv_heads, layer->num_heads);
    const uint32_t v_head_dim = or_default(layer->v_head_dim, layer->head_dim);
    const uint64_t sizes[4][2] = {
        {(uint64_t)layer->num_heads * layer->head_dim, layer->embed_dim},
        {(uint64_t)kv_heads * layer->head_dim, or_default(layer->key_dim, layer->embed_dim)},
        {(uint64_t)kv_heads * v_head_dim, or_default(layer->value_dim, layer->embed_dim)},
        {or_default(layer->output_dim, layer->embed_dim), (uint64_t)layer->num_heads * v_head_dim},
    };
    vkmha_matrix *matrices[] = {&layer->w_q, &layer->w_k, &layer->w_v, &layer->w_o};
    vkmha_vector *vectors[] = {&layer->b_q, &layer->b_k, &layer->b_v, &layer->b_o};
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t rows_of = sizes[i][0];
        const uint64_t columns = sizes[i][1];
        problem->weights[i] = random_of_type(rows_of * columns, matrices[i]->type,
                                             2.0f / sqrtf((float)columns), state);
        problem->biases[i] = random_of_type(rows_of, vectors[i]->type, 1.0f, state);
        matrices[i]->data = problem->weights[i];
        matrices[i]->rows = rows_of;
        matrices[i]->columns = columns;
        vectors[i]->data = problem->biases[i];
        vectors[i]->size = rows_of;
    }
}

static void make_masks(vkmha_test_problem *problem, uint64_t *state)
{
    const vkmha_plan_params *plan = &problem->plan;
    problem->num_mask =
        plan->mask_dims[0] * plan->mask_dims[1] * plan->mask_dims[2] * plan->mask_dims[3];
    if (plan->mask == VKMHA_MASK_ATTEND) {
        problem->attend_mask = vkmha_test_allocate(problem->num_mask, 1);
        for (uint64_t i = 0; i < problem->num_mask; i++) {
            problem->attend_mask[i] = vkmha_test_random(state) % 4 != 0;
        }
        problem->inputs.mask = problem->attend_mask;
    }
    if (plan->mask == VKMHA_MASK_ADDITIVE) {
        problem->additive_mask = random_floats(problem->num_mask, 2.0f, state);
        for (uint64_t i = 0; i < problem->num_mask; i++) {
            if (vkmha_test_random(state) % 4 == 0) {
                problem->additive_mask[i] = -INFINITY;
            }
        }
        problem->inputs.mask = problem->additive_mask;
    }
    if (plan->has_attend_keys) {
        const uint64_t count = plan->batch_size * plan->key_len;
        problem->attend_keys = vkmha_test_allocate(count, 1);
        for (uint64_t i = 0; i < count; i++) {
            problem->attend_keys[i] = vkmha_test_random(state) % 4 != 0 ? 255 : 0;
        }
        problem->inputs.attend_keys = problem->attend_keys;
    }
    if (plan->has_key_lengths) {
        problem->key_lengths = vkmha_test_allocate(plan->batch_size, sizeof(int32_t));
        for (uint64_t b = 0; b < plan->batch_size; b++) {
            problem->key_lengths[b] = (int32_t)(vkmha_test_random(state) % (plan->key_len + 1));
        }
        problem->inputs.key_lengths = problem->key_lengths;
    }
}

void vkmha_test_problem_init(vkmha_test_problem *problem, const vkmha_layer_params *layer,
                             const vkmha_plan_params *plan, const char *format, ...)
{
    *problem = (vkmha_test_problem){.layer = *layer, .plan = *plan};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem->name, sizeof(problem->name), format, arguments);
    va_end(arguments);
    uint64_t state = vkmha_test_seed();
    const bool alone = layer->attention_only;
    const uint32_t kv_heads = or_default(layer->num_kv_heads, layer->num_heads);
    const uint32_t v_head_dim = or_default(layer->v_head_dim, layer->head_dim);
    const uint64_t queries = plan->batch_size * plan->query_len;
    const uint64_t keys = plan->batch_size * plan->key_len;
    problem->num_query =
        queries * (alone ? (uint64_t)layer->num_heads * layer->head_dim : layer->embed_dim);
    problem->num_key = keys * (alone ? (uint64_t)kv_heads * layer->head_dim
                                     : or_default(layer->key_dim, layer->embed_dim));
    problem->num_value = keys * (alone ? (uint64_t)kv_heads * v_head_dim
                                       : or_default(layer->value_dim, layer->embed_dim));
    problem->num_output = queries * (alone ? (uint64_t)layer->num_heads * v_head_dim
                                           : or_default(layer->output_dim, layer->embed_dim));
    problem->query = random_floats(problem->num_query, 1.0f, &state);
    if (!plan->key_is_query) {
        problem->key = random_floats(problem->num_key, 1.0f, &state);
    }
    if (!plan->value_is_key) {
        problem->value = random_floats(problem->num_value, 1.0f, &state);
    }
    if (!alone) {
        make_weights(problem, &state);
    }
    problem->inputs.query = problem->query;
    problem->inputs.key = problem->key;
    problem->inputs.value = problem->value;
    make_masks(problem, &state);
}

void vkmha_test_problem_finish(vkmha_test_problem *problem)
{
    free(problem->query);
    free(problem->key);
    free(problem->value);
    free(problem->additive_mask);
    free(problem->attend_mask);
    free(problem->attend_keys);
    free(problem->key_lengths);
    for (uint32_t i = 0; i < 4; i++) {
        free(problem->weights[i]);
        free(problem->biases[i]);
    }
    *problem = (vkmha_test_problem){0};
}

/* ---- Run and compare ------------------------------------------------------------------------- */

/* Where a failure happened, in one line that a person can repeat. */
typedef struct place {
    char text[400];
} place;

static place describe(const vkmha_test_target *target, const vkmha_test_problem *problem)
{
    place where;
    snprintf(where.text, sizeof(where.text), "%s, %s, %s, case %s, VKMHA_TEST_SEED=%llu",
             target->device_name, target->project_kernel ? target->project_kernel : "chosen",
             target->attention_kernel ? target->attention_kernel : "chosen", problem->name,
             (unsigned long long)vkmha_test_seed());
    return where;
}

static float *run(const vkmha_test_target *target, const vkmha_test_problem *problem,
                  vkmha_chains *chains)
{
    const place where = describe(target, problem);
    vkmha_error error;
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    vkmha_status status = vkmha_layer_create(target->device, &problem->layer, &layer, &error);
    cr_assert(status == VKMHA_OK, "%s: layer: %s", where.text, error.message);
    vkmha_plan_params params = problem->plan;
    params.project_kernel = problem->layer.attention_only ? NULL : target->project_kernel;
    params.attention_kernel = target->attention_kernel;
    status = vkmha_plan_create(layer, &params, &plan, &error);
    cr_assert(status == VKMHA_OK, "%s: plan: %s", where.text, error.message);
    vkmha_plan_info info;
    vkmha_plan_get_info(plan, &info);
    *chains = info.chains;

    const uint64_t count = problem->num_output;
    float *padded = vkmha_test_allocate(count + 2 * CANARIES, sizeof(float));
    for (uint64_t i = 0; i < count + 2 * CANARIES; i++) {
        memcpy(&padded[i], &canary, sizeof(canary));
    }
    const vkmha_outputs outputs = {.output = padded + CANARIES};
    status = vkmha_run(plan, &problem->inputs, &outputs, &error);
    cr_assert(status == VKMHA_OK, "%s: run: %s", where.text, error.message);
    for (uint64_t i = 0; i < count + 2 * CANARIES; i++) {
        const bool is_padding = i < CANARIES || i >= count + CANARIES;
        const bool is_canary = memcmp(&padded[i], &canary, sizeof(canary)) == 0;
        cr_assert(is_padding == is_canary, "%s: element %lld was %s", where.text,
                  (long long)i - CANARIES, is_padding ? "overwritten" : "not written");
    }
    memmove(padded, padded + CANARIES, (size_t)count * sizeof(float));
    vkmha_plan_destroy(plan);
    vkmha_layer_destroy(layer);
    return padded;
}

float *vkmha_test_run(const vkmha_test_target *target, const vkmha_test_problem *problem)
{
    vkmha_chains chains;
    return run(target, problem, &chains);
}

void vkmha_test_compare(const vkmha_test_target *target, const vkmha_test_problem *problem,
                        const vkmha_chains *chains, const float *output)
{
    const place where = describe(target, problem);
    const uint64_t count = problem->num_output;
    double *expected = vkmha_test_allocate(count, sizeof(double));
    double *bound = vkmha_test_allocate(count, sizeof(double));
    const vkmha_reference_outputs outputs = {.output = expected, .output_bound = bound};
    vkmha_error error;
    vkmha_status status = vkmha_reference_run(&problem->layer, &problem->plan, &problem->inputs,
                                              chains, NULL, &outputs, &error);
    cr_assert(status == VKMHA_OK, "%s: reference: %s", where.text, error.message);
    vkmha_comparison comparison;
    vkmha_compare(output, expected, bound, count, &comparison);
    const uint64_t worst = comparison.worst_index;
    cr_assert(comparison.passed,
              "%s: element %llu is %.9g, the reference %.9g, the bound %.3g; %llu of %llu fail",
              where.text, (unsigned long long)worst, (double)output[worst], expected[worst],
              bound[worst], (unsigned long long)comparison.num_failed, (unsigned long long)count);
    free(expected);
    free(bound);
}

void vkmha_test_check(const vkmha_test_target *target, const vkmha_test_problem *problem)
{
    vkmha_chains chains;
    float *output = run(target, problem, &chains);
    vkmha_test_compare(target, problem, &chains, output);
    free(output);
}

void vkmha_test_near(const vkmha_test_target *target, const vkmha_test_problem *problem,
                     const float *got, const float *expected, uint64_t count, double tolerance)
{
    const place where = describe(target, problem);
    uint64_t worst = 0;
    double worst_error = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        const double error = fabs((double)got[i] - expected[i]);
        if (!(error <= worst_error)) {
            worst = i;
            worst_error = error;
            if (isnan(error)) {
                break;
            }
        }
    }
    cr_assert(worst_error <= tolerance, "%s: element %llu is %.9g, not %.9g within %g", where.text,
              (unsigned long long)worst, (double)got[worst], (double)expected[worst], tolerance);
}

void vkmha_test_same_bits(const vkmha_test_target *target, const vkmha_test_problem *problem,
                          const char *what, const float *got, const float *expected, uint64_t count)
{
    const place where = describe(target, problem);
    for (uint64_t i = 0; i < count; i++) {
        cr_assert(memcmp(&got[i], &expected[i], sizeof(float)) == 0,
                  "%s: %s: element %llu is %.9g, not %.9g", where.text, what, (unsigned long long)i,
                  (double)got[i], (double)expected[i]);
    }
}
