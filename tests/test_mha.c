/*
 * Whole layers on each device: against the reference for every pair of kernel rows, and the
 * promises of same bits.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* ---- Against the reference ------------------------------------------------------------------- */

typedef struct whole_case {
    const char *name;
    vkmha_layer_params layer;
    vkmha_plan_params plan;
} whole_case;

static const whole_case whole_cases[] = {
    {
        "self-attention, causal",
        {.num_heads = 4, .head_dim = 8, .embed_dim = 32},
        {.batch_size = 2,
         .query_len = 37,
         .key_len = 37,
         .key_is_query = true,
         .value_is_key = true,
         .causal = VKMHA_CAUSAL_TOP_LEFT},
    },
    {
        "cross-attention, grouped heads, key lengths",
        {.num_heads = 6,
         .num_kv_heads = 2,
         .head_dim = 8,
         .embed_dim = 40,
         .key_dim = 24,
         .value_dim = 24},
        {.batch_size = 3,
         .query_len = 5,
         .key_len = 70,
         .value_is_key = true,
         .has_key_lengths = true},
    },
    {
        "separate inputs, every dim another, additive mask",
        {.num_heads = 3,
         .num_kv_heads = 1,
         .head_dim = 5,
         .v_head_dim = 7,
         .embed_dim = 11,
         .key_dim = 13,
         .value_dim = 17,
         .output_dim = 19},
        {.batch_size = 2,
         .query_len = 9,
         .key_len = 33,
         .mask = VKMHA_MASK_ADDITIVE,
         .mask_dims = {1, 3, 9, 33}},
    },
    {
        "one token after many, bottom-right causal, mask over keys",
        {.num_heads = 4, .num_kv_heads = 2, .head_dim = 8, .embed_dim = 32},
        {.batch_size = 2,
         .query_len = 1,
         .key_len = 1025,
         .value_is_key = true,
         .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
         .has_attend_keys = true},
    },
    {
        "every mask at once",
        {.num_heads = 2, .head_dim = 8, .embed_dim = 16},
        {.batch_size = 3,
         .query_len = 41,
         .key_len = 45,
         .value_is_key = true,
         .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
         .mask = VKMHA_MASK_ATTEND,
         .mask_dims = {3, 1, 1, 45},
         .has_attend_keys = true,
         .has_key_lengths = true},
    },
    {
        "one of everything",
        {.num_heads = 1, .head_dim = 1, .embed_dim = 1},
        {.batch_size = 1, .query_len = 1, .key_len = 1, .key_is_query = true, .value_is_key = true},
    },
    {
        "fp16 and bf16 weights",
        {.num_heads = 2,
         .head_dim = 8,
         .embed_dim = 16,
         .w_q = {.type = VKMHA_TYPE_F16},
         .w_k = {.type = VKMHA_TYPE_BF16},
         .w_v = {.type = VKMHA_TYPE_F16},
         .w_o = {.type = VKMHA_TYPE_BF16},
         .b_q = {.type = VKMHA_TYPE_BF16},
         .b_o = {.type = VKMHA_TYPE_F16}},
        {.batch_size = 1,
         .query_len = 17,
         .key_len = 17,
         .key_is_query = true,
         .value_is_key = true},
    },
};

static void whole_layers(const vkmha_test_target *target)
{
    for (size_t i = 0; i < sizeof(whole_cases) / sizeof(whole_cases[0]); i++) {
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &whole_cases[i].layer, &whole_cases[i].plan, "%s",
                                whole_cases[i].name);
        vkmha_test_check(target, &problem);
        vkmha_test_problem_finish(&problem);
    }
}

Test(mha, whole_layers, .timeout = 300)
{
    vkmha_test_each_pair(whole_layers);
}

/* ---- The same bits --------------------------------------------------------------------------- */

/* A shape that every kernel cuts over queries and over keys where the work limit is low. */
static void init_long(vkmha_test_problem *problem, const char *name)
{
    const vkmha_layer_params layer = {
        .num_heads = 4,
        .num_kv_heads = 2,
        .head_dim = 8,
        .embed_dim = 32,
    };
    const vkmha_plan_params plan = {
        .batch_size = 3,
        .query_len = 21,
        .key_len = 2100,
        .value_is_key = true,
        .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
        .has_key_lengths = true,
    };
    vkmha_test_problem_init(problem, &layer, &plan, "%s", name);
    const int32_t lengths[] = {2100, 1030, 40};
    memcpy(problem->key_lengths, lengths, sizeof(lengths));
}

static vkmha_plan_info plan_info(const vkmha_test_target *target, const vkmha_test_problem *problem)
{
    vkmha_error error;
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    vkmha_plan_params params = problem->plan;
    params.project_kernel = target->project_kernel;
    params.attention_kernel = target->attention_kernel;
    vkmha_status status = vkmha_layer_create(target->device, &problem->layer, &layer, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    status = vkmha_plan_create(layer, &params, &plan, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    vkmha_plan_info info;
    vkmha_plan_get_info(plan, &info);
    vkmha_plan_destroy(plan);
    vkmha_layer_destroy(layer);
    return info;
}

static void work_limits(const vkmha_test_target *target)
{
    vkmha_test_problem problem;
    init_long(&problem, "F73 work limit");
    float *whole = vkmha_test_run(target, &problem);
    uint32_t dispatches = plan_info(target, &problem).num_dispatches;
    /* The last is less than one tile of queries by one chunk of keys, which is not cut further. */
    enum { FINEST = 2 };
    const uint64_t limits[] = {3000000, 400000, 50000};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        problem.plan.max_work_per_dispatch = limits[i];
        const vkmha_plan_info info = plan_info(target, &problem);
        const bool is_kept = i == FINEST || info.max_dispatch_work <= limits[i];
        cr_assert(info.num_dispatches > dispatches && is_kept,
                  "%s: limit %llu gives %u dispatches of up to %llu", target->attention_kernel,
                  (unsigned long long)limits[i], info.num_dispatches,
                  (unsigned long long)info.max_dispatch_work);
        dispatches = info.num_dispatches;
        float *cut = vkmha_test_run(target, &problem);
        vkmha_test_same_bits(target, &problem, "a work limit", cut, whole, problem.num_output);
        free(cut);
    }
    free(whole);
    vkmha_test_problem_finish(&problem);
}

Test(mha, F73_same_bits_for_any_work_limit, .timeout = 300)
{
    vkmha_test_each_row(work_limits);
}

static void alone(const vkmha_test_target *target)
{
    vkmha_test_problem problem;
    init_long(&problem, "alone or in a batch");
    float *together = vkmha_test_run(target, &problem);
    const uint64_t batch_size = problem.plan.batch_size;
    for (uint64_t b = 0; b < batch_size; b++) {
        vkmha_test_problem one = problem; /* a view: the problem keeps the memory */
        one.plan.batch_size = 1;
        one.num_output /= batch_size;
        one.inputs.query =
            (const float *)problem.inputs.query + b * problem.num_query / batch_size;
        one.inputs.key = (const float *)problem.inputs.key + b * problem.num_key / batch_size;
        one.inputs.key_lengths += b;
        float *output = vkmha_test_run(target, &one);
        vkmha_test_same_bits(target, &one, "an item alone", output, together + b * one.num_output,
                             one.num_output);
        free(output);
    }
    free(together);
    vkmha_test_problem_finish(&problem);
}

Test(mha, same_bits_alone_and_in_a_batch, .timeout = 300)
{
    vkmha_test_each_row(alone);
}

/* F56: a race shows as a bit that differs between runs. */
static void repeated(const vkmha_test_target *target)
{
    enum { RUNS = 50 };
    const vkmha_layer_params layer = {.num_heads = 4, .head_dim = 16, .embed_dim = 64};
    const vkmha_plan_params plan = {
        .batch_size = 2,
        .query_len = 96,
        .key_len = 96,
        .key_is_query = true,
        .value_is_key = true,
    };
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "F56 fifty runs");
    float *first = vkmha_test_run(target, &problem);
    for (uint32_t i = 1; i < RUNS; i++) {
        float *again = vkmha_test_run(target, &problem);
        vkmha_test_same_bits(target, &problem, "a run again", again, first, problem.num_output);
        free(again);
    }
    free(first);
    vkmha_test_problem_finish(&problem);
}

Test(mha, F56_same_bits_in_every_run, .timeout = 300)
{
    vkmha_test_each_row(repeated);
}

/* Runs with all stage outputs and, where the queue has timestamps, with times. */
static float *run_with_stages(const vkmha_test_target *target, const vkmha_test_problem *problem)
{
    const vkmha_layer_params *given = &problem->layer;
    const uint64_t queries = problem->plan.batch_size * problem->plan.query_len;
    const uint64_t keys = problem->plan.batch_size * problem->plan.key_len;
    vkmha_device_info info;
    vkmha_device_get_info(target->device, &info);
    uint64_t times[VKMHA_NUM_STAGES] = {0};
    const vkmha_outputs outputs = {
        .output = vkmha_test_allocate(problem->num_output, sizeof(float)),
        .projected_query = vkmha_test_allocate(queries * given->w_q.rows, sizeof(float)),
        .projected_key = vkmha_test_allocate(keys * given->w_k.rows, sizeof(float)),
        .projected_value = vkmha_test_allocate(keys * given->w_v.rows, sizeof(float)),
        .attention = vkmha_test_allocate(queries * given->w_o.columns, sizeof(float)),
        .stage_ns = info.limits.timestamp_period_ns > 0.0 ? times : NULL,
    };
    vkmha_error error;
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    vkmha_status status = vkmha_layer_create(target->device, given, &layer, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    vkmha_plan_params params = problem->plan;
    params.project_kernel = target->project_kernel;
    params.attention_kernel = target->attention_kernel;
    status = vkmha_plan_create(layer, &params, &plan, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    status = vkmha_run(plan, &problem->inputs, &outputs, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    vkmha_plan_destroy(plan);
    vkmha_layer_destroy(layer);
    free(outputs.projected_query);
    free(outputs.projected_key);
    free(outputs.projected_value);
    free(outputs.attention);
    return outputs.output;
}

static void with_stages(const vkmha_test_target *target)
{
    vkmha_test_problem problem;
    init_long(&problem, "F16 stage outputs");
    float *plain = vkmha_test_run(target, &problem);
    float *staged = run_with_stages(target, &problem);
    vkmha_test_same_bits(target, &problem, "stage outputs asked for", staged, plain,
                         problem.num_output);
    free(plain);
    free(staged);
    vkmha_test_problem_finish(&problem);
}

Test(mha, F16_same_bits_with_stage_outputs)
{
    vkmha_test_each_row(with_stages);
}

static void through_staging(const vkmha_test_target *target)
{
    vkmha_test_problem problem;
    init_long(&problem, "staging buffers");
    float *straight = vkmha_test_run(target, &problem);
    const vkmha_device_params params = {.name = target->device_name, .force_staging = true};
    vkmha_test_target other = *target;
    vkmha_error error;
    const vkmha_status status = vkmha_device_create(&params, &other.device, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    float *staged = vkmha_test_run(&other, &problem);
    vkmha_test_same_bits(&other, &problem, "staging", staged, straight, problem.num_output);
    float *stages = run_with_stages(&other, &problem);
    vkmha_test_same_bits(&other, &problem, "staging with stage outputs", stages, straight,
                         problem.num_output);
    vkmha_device_destroy(other.device);
    free(stages);
    free(staged);
    free(straight);
    vkmha_test_problem_finish(&problem);
}

Test(mha, same_bits_through_staging)
{
    vkmha_test_each_row(through_staging);
}

/* Nothing of one run, shape, layer or failed call stays behind for the next. */
static void no_state(const vkmha_test_target *target)
{
    vkmha_test_problem problems[3];
    float *first[3];
    for (uint32_t i = 0; i < 3; i++) {
        const vkmha_layer_params layer = {.num_heads = 2, .head_dim = 8, .embed_dim = 16};
        const vkmha_plan_params plan = {
            .batch_size = 1,
            .query_len = i == 1 ? 65 : 7,
            .key_len = i == 1 ? 65 : 7,
            .key_is_query = true,
            .value_is_key = true,
        };
        vkmha_test_problem_init(&problems[i], &layer, &plan, "F57 problem %u", i);
    }
    float *weight = problems[2].weights[3];
    for (uint64_t i = 0; i < problems[2].layer.w_o.rows * problems[2].layer.w_o.columns; i++) {
        weight[i] = -weight[i];
    }
    const uint32_t order[] = {0, 1, 2, 0, 2, 1, 0};
    for (uint32_t n = 0; n < sizeof(order) / sizeof(order[0]); n++) {
        const vkmha_test_problem *problem = &problems[order[n]];
        float *output = vkmha_test_run(target, problem);
        if (n < 3) {
            first[n] = output;
            vkmha_plan_params wrong = problem->plan;
            wrong.attention_kernel = "no such row";
            vkmha_layer *layer = NULL;
            vkmha_plan *plan = NULL;
            cr_assert(vkmha_layer_create(target->device, &problem->layer, &layer, NULL) ==
                      VKMHA_OK);
            cr_assert(vkmha_plan_create(layer, &wrong, &plan, NULL) ==
                      VKMHA_ERROR_INVALID_ARGUMENT);
            cr_assert(plan == NULL);
            vkmha_layer_destroy(layer);
        } else {
            vkmha_test_same_bits(target, problem, "a run after others", output, first[order[n]],
                                 problem->num_output);
            free(output);
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        free(first[i]);
        vkmha_test_problem_finish(&problems[i]);
    }
}

Test(mha, F57_no_state_between_runs)
{
    vkmha_test_each_row(no_state);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* KiB of memory that the process holds; 0 where the system does not tell. */
static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%*s %ld", &pages) != 1) {
            pages = 0;
        }
        fclose(file);
    }
    return pages * 4;
}

/* AddressSanitizer keeps freed memory for a while, and finds leaks itself. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define VKMHA_TEST_KEEPS_FREED
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define VKMHA_TEST_KEEPS_FREED
#endif
#ifdef VKMHA_TEST_KEEPS_FREED
enum { ALLOWED_KIB = 1 << 20 };
#else
enum { ALLOWED_KIB = 256 };
#endif

static void rounds(const vkmha_test_target *target)
{
    enum { SETTLED = 20, ROUNDS = 220 };
    const vkmha_layer_params layer = {.num_heads = 2, .head_dim = 8, .embed_dim = 16};
    const vkmha_plan_params plan = {
        .batch_size = 1,
        .query_len = 7,
        .key_len = 7,
        .key_is_query = true,
        .value_is_key = true,
    };
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "F68 rounds");
    long settled = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        free(vkmha_test_run(target, &problem)); /* makes and destroys layer and plan */
        settled = round == SETTLED ? resident_kib() : settled;
    }
    const long grown = resident_kib() - settled;
    cr_assert(grown <= ALLOWED_KIB, "%s: %d rounds took %ld KiB", target->device_name,
              ROUNDS - SETTLED, grown);
    vkmha_test_problem_finish(&problem);
}

Test(mha, F68_rounds_take_no_memory)
{
    vkmha_test_each_device(rounds);
}
