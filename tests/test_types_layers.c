/* Layers and plans with types of storage, mixed as the caller says, against the reference. */
#include "typed.h"

#include <math.h>
#include <stdio.h>

#include "runtime/device.h"

static const vkmha_type types[] = {VKMHA_TYPE_F32, VKMHA_TYPE_F16, VKMHA_TYPE_BF16};

/* ---- A problem of any types ------------------------------------------------------------------ */

typedef struct typed_problem {
    const char *name;
    vkmha_layer_params layer; /* checked, with weights */
    vkmha_plan_params plan;   /* checked */
    vkmha_sizes sizes;
    vkmha_inputs inputs;
    void *memory[9];
    uint64_t num_output; /* without gaps */
} typed_problem;

static void problem_init(const char *name, const vkmha_layer_params *layer,
                         const vkmha_plan_params *plan, typed_problem *problem)
{
    *problem = (typed_problem){.name = name};
    vkmha_error error;
    vkmha_layer_params weighted = *layer;
    vkmha_matrix *matrices[] = {&weighted.w_q, &weighted.w_k, &weighted.w_v, &weighted.w_o};
    const uint64_t kv_heads = layer->num_kv_heads ? layer->num_kv_heads : layer->num_heads;
    const uint64_t v_head_dim = layer->v_head_dim ? layer->v_head_dim : layer->head_dim;
    const uint64_t output_dim = layer->output_dim ? layer->output_dim : layer->embed_dim;
    const uint64_t shapes[4][2] = {
        {(uint64_t)layer->num_heads * layer->head_dim, layer->embed_dim},
        {kv_heads * layer->head_dim, layer->key_dim ? layer->key_dim : layer->embed_dim},
        {kv_heads * v_head_dim, layer->value_dim ? layer->value_dim : layer->embed_dim},
        {output_dim, layer->num_heads * v_head_dim},
    };
    for (uint32_t i = 0; i < 4 && !layer->attention_only; i++) {
        float *values = vkmha_test_values(shapes[i][0] * shapes[i][1], 10 + i);
        for (uint64_t n = 0; n < shapes[i][0] * shapes[i][1]; n++) {
            values[n] *= 2.0f / sqrtf((float)shapes[i][1]);
        }
        problem->memory[i] = values;
        *matrices[i] =
            (vkmha_matrix){.data = values, .rows = shapes[i][0], .columns = shapes[i][1]};
    }
    cr_assert_eq(vkmha_check_layer(&weighted, &problem->layer, &error), VKMHA_OK, "%s: %s", name,
                 error.message);
    cr_assert_eq(vkmha_check_plan(&problem->layer, plan, &problem->plan, &error), VKMHA_OK,
                 "%s: %s", name, error.message);
    vkmha_plan_sizes(&problem->layer, &problem->plan, &problem->sizes);
    const vkmha_sizes *sizes = &problem->sizes;
    const struct {
        const void **data;
        uint64_t count;
        vkmha_type type;
    } tensors[] = {
        {&problem->inputs.query, sizes->query, plan->query_type},
        {&problem->inputs.key, sizes->key, plan->key_type},
        {&problem->inputs.value, sizes->value, plan->value_type},
        {&problem->inputs.past_key, sizes->past_key, layer->cache_type},
        {&problem->inputs.past_value, sizes->past_value, layer->cache_type},
    };
    for (uint32_t i = 0; i < 5; i++) {
        if (tensors[i].count > 0) {
            problem->memory[4 + i] = vkmha_test_drawn(tensors[i].count, tensors[i].type, 20 + i);
            *tensors[i].data = problem->memory[4 + i];
        }
    }
    problem->num_output = sizes->query_rows *
                          (layer->attention_only ? layer->num_heads * v_head_dim : output_dim);
}

static void problem_finish(typed_problem *problem)
{
    for (uint32_t i = 0; i < 9; i++) {
        free(problem->memory[i]);
    }
}

/* Takes the output out of its memory, where nothing else may have been written, as the reference
 * orders it. */
static float *gather(const typed_problem *problem, void *memory)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_strides *strides = &plan->output_strides;
    const vkmha_type type = plan->output_type;
    const uint64_t batch = plan->is_packed ? 1 : plan->batch_size;
    const uint64_t rows = plan->is_packed ? plan->total_queries : plan->query_len;
    const uint64_t heads = layer->attention_only ? layer->num_heads : 1;
    const uint64_t dim = layer->attention_only ? layer->v_head_dim : layer->output_dim;
    float *values = vkmha_test_allocate(problem->num_output, sizeof(float));
    bool *is_taken = vkmha_test_allocate(problem->sizes.output, sizeof(bool));
    for (uint64_t e = 0; e < problem->num_output; e++) {
        const bool is_heads_first = plan->layout == VKMHA_LAYOUT_BHSD;
        const uint64_t row = e / dim;
        const uint64_t h = is_heads_first ? row / rows % heads : row % heads;
        const uint64_t s = is_heads_first ? row % rows : row / heads % rows;
        const uint64_t b = row / (rows * heads);
        cr_assert(b < batch);
        const uint64_t at = strides->offset + b * strides->batch + s * strides->row +
                            h * strides->head + e % dim;
        values[e] = vkmha_load_element(memory, type, at);
        is_taken[at] = true;
    }
    for (uint64_t i = 0; i < problem->sizes.output; i++) {
        cr_assert(is_taken[i] || vkmha_test_is_canary(memory, type, i),
                  "%s: element %llu between the output's was written", problem->name,
                  (unsigned long long)i);
    }
    free(is_taken);
    return values;
}

static void compare(const vkmha_test_target *target, const char *name, const char *what,
                    const float *got, const double *expected, const double *bound, uint64_t count)
{
    vkmha_comparison comparison;
    vkmha_compare(got, expected, bound, count, &comparison);
    const uint64_t worst = comparison.worst_index;
    cr_assert(comparison.passed, "%s, %s, %s: %s: %s %llu is %.9g, the reference %.9g, the bound %.3g",
              target->device_name, target->project_kernel ? target->project_kernel : "chosen",
              target->attention_kernel ? target->attention_kernel : "chosen", name, what,
              (unsigned long long)worst, (double)got[worst], expected[worst], bound[worst]);
}

typedef struct results {
    float *output;
    float *present_key;
    float *present_value;
} results;

static void results_finish(results *made)
{
    free(made->output);
    free(made->present_key);
    free(made->present_value);
}

static results run_problem(const vkmha_test_target *target, const typed_problem *problem,
                           vkmha_chains *chains)
{
    const vkmha_sizes *sizes = &problem->sizes;
    const vkmha_type kept = problem->layer.cache_type;
    void *memory = vkmha_test_canaries(sizes->output, problem->plan.output_type);
    void *present_key = vkmha_test_canaries(sizes->present_key + 1, kept);
    void *present_value = vkmha_test_canaries(sizes->present_value + 1, kept);
    const bool has_present = problem->plan.has_present;
    const vkmha_outputs outputs = {.output = memory,
                                   .present_key = has_present ? present_key : NULL,
                                   .present_value = has_present ? present_value : NULL};
    vkmha_error error;
    vkmha_test_made made = vkmha_test_make(target, &problem->layer, &problem->plan);
    cr_assert_eq(vkmha_run(made.plan, &problem->inputs, &outputs, &error), VKMHA_OK, "%s: %s",
                 problem->name, error.message);
    *chains = made.info.chains;
    vkmha_test_unmake(&made);
    const results got = {.output = gather(problem, memory),
                         .present_key = vkmha_test_loaded(present_key, sizes->present_key, kept),
                         .present_value =
                             vkmha_test_loaded(present_value, sizes->present_value, kept)};
    cr_assert(vkmha_test_is_canary(present_key, kept, sizes->present_key) &&
              vkmha_test_is_canary(present_value, kept, sizes->present_value));
    free(memory);
    free(present_key);
    free(present_value);
    return got;
}

static void check_problem(const vkmha_test_target *target, const typed_problem *problem)
{
    const vkmha_sizes *sizes = &problem->sizes;
    vkmha_chains chains;
    results got = run_problem(target, problem, &chains);
    double *expected[3];
    double *bound[3];
    const uint64_t counts[] = {problem->num_output, sizes->present_key, sizes->present_value};
    const float *values[] = {got.output, got.present_key, got.present_value};
    static const char *const names[] = {"output", "present key", "present value"};
    for (uint32_t i = 0; i < 3; i++) {
        expected[i] = vkmha_test_allocate(counts[i], sizeof(double));
        bound[i] = vkmha_test_allocate(counts[i], sizeof(double));
    }
    const bool has_present = problem->plan.has_present;
    const vkmha_reference_outputs outputs = {
        .output = expected[0],
        .output_bound = bound[0],
        .present_key = has_present ? expected[1] : NULL,
        .present_key_bound = has_present ? bound[1] : NULL,
        .present_value = has_present ? expected[2] : NULL,
        .present_value_bound = has_present ? bound[2] : NULL,
    };
    vkmha_error error;
    cr_assert_eq(vkmha_reference_run(&problem->layer, &problem->plan, &problem->inputs, &chains,
                                     NULL, &outputs, &error),
                 VKMHA_OK, "%s: %s", problem->name, error.message);
    for (uint32_t i = 0; i < 3; i++) {
        compare(target, problem->name, names[i], values[i], expected[i], bound[i], counts[i]);
        free(expected[i]);
        free(bound[i]);
    }
    results_finish(&got);
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static float *attend(const vkmha_test_target *target, const vkmha_layer_params *layer,
                     const vkmha_plan_params *plan, const float *const inputs[3], uint64_t count)
{
    typed_problem problem;
    problem_init("given", layer, plan, &problem);
    const uint64_t counts[] = {problem.sizes.query, problem.sizes.key, problem.sizes.value};
    const vkmha_type given[] = {plan->query_type, plan->key_type, plan->value_type};
    const void **data[] = {&problem.inputs.query, &problem.inputs.key, &problem.inputs.value};
    for (uint32_t i = 0; i < 3; i++) {
        free(problem.memory[4 + i]);
        problem.memory[4 + i] = vkmha_test_stored(inputs[i], counts[i], given[i]);
        *data[i] = problem.memory[4 + i];
    }
    check_problem(target, &problem);
    vkmha_chains chains;
    results got = run_problem(target, &problem, &chains);
    float *output = vkmha_test_allocate(count, sizeof(float));
    memcpy(output, got.output, count * sizeof(float));
    results_finish(&got);
    problem_finish(&problem);
    return output;
}

static vkmha_plan_params all_of(vkmha_type type, uint64_t queries, uint64_t keys)
{
    return (vkmha_plan_params){.batch_size = 1,
                               .query_len = queries,
                               .key_len = keys,
                               .query_type = type,
                               .key_type = type,
                               .value_type = type,
                               .output_type = type};
}

static void overflowing_products(const vkmha_test_target *target)
{
    enum { DIM = 32 };
    const vkmha_layer_params layer = {.num_heads = 1, .head_dim = DIM, .attention_only = true};
    float query[DIM];
    float key[2 * DIM];
    float value[2 * DIM] = {0.0f};
    vkmha_test_fill(query, DIM, 64.0f);
    vkmha_test_fill(key, DIM, 64.0f);
    vkmha_test_fill(key + DIM, DIM, 63.0f);
    value[0] = 1.0f;
    value[1] = 2.0f;
    value[DIM] = 3.0f;
    value[DIM + 1] = 4.0f;
    for (uint32_t t = 0; t < 3; t++) {
        const vkmha_plan_params plan = all_of(types[t], 1, 2);
        float *output =
            attend(target, &layer, &plan, (const float *const[]){query, key, value}, DIM);
        cr_assert(output[0] == 1.0f && output[1] == 2.0f, "%s: type %u: %g, %g",
                  target->attention_kernel, types[t], (double)output[0], (double)output[1]);
        free(output);
    }
}

Test(types_layers, F07_products_past_fp16, .timeout = 120)
{
    vkmha_test_each_attention_row(overflowing_products);
}

static void stored_values(const vkmha_test_target *target)
{
    enum { DIM = 6 };
    const vkmha_layer_params layer = {.num_heads = 1, .head_dim = DIM, .attention_only = true};
    const float ones[DIM] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    const float value[DIM] = {1.0f + 0x1p-11f, 1.0f + 0x1.8p-10f, 65504.0f, 6.1e-5f, 6e-8f, -0.0f};
    const float expected[DIM] = {1.0f, 1.0f + 0x1p-9f, 65504.0f, 0x1.ff8p-15f, 0x1p-24f, 0.0f};
    vkmha_plan_params plan = all_of(VKMHA_TYPE_F32, 1, 1);
    plan.output_type = VKMHA_TYPE_F16;
    float *output = attend(target, &layer, &plan, (const float *const[]){ones, ones, value}, DIM);
    for (uint32_t d = 0; d < DIM; d++) {
        cr_assert(output[d] == expected[d], "%s: %a is stored as %a, not %a",
                  target->attention_kernel, (double)value[d], (double)output[d],
                  (double)expected[d]);
    }
    free(output);
}

Test(types_layers, F12_values_of_the_report, .timeout = 120)
{
    vkmha_test_each_attention_row(stored_values);
}

/* An average of what is all one number: accumulators and rounding, in every precision. */
static void constant_values(const vkmha_test_target *target)
{
    enum { DIM = 8, KEYS = 4096, QUERIES = 3 };
    const vkmha_layer_params layer = {.num_heads = 1, .head_dim = DIM, .attention_only = true};
    float *query = vkmha_test_values(QUERIES * DIM, 1);
    float *key = vkmha_test_values(KEYS * DIM, 2);
    float *value = vkmha_test_allocate(KEYS * DIM, sizeof(float));
    vkmha_test_fill(value, KEYS * DIM, 100.0f);
    for (uint32_t t = 0; t < 3; t++) {
        const vkmha_plan_params plan = all_of(types[t], QUERIES, KEYS);
        float *output = attend(target, &layer, &plan, (const float *const[]){query, key, value},
                               QUERIES * DIM);
        for (uint32_t i = 0; i < QUERIES * DIM && types[t] != VKMHA_TYPE_F32; i++) {
            cr_assert(output[i] == 100.0f, "%s: type %u: %g", target->attention_kernel, types[t],
                      (double)output[i]);
        }
        free(output);
    }
    vkmha_test_fill(value, KEYS * DIM, 70000.0f);
    for (uint32_t t = 0; t < 3; t++) {
        vkmha_plan_params plan = all_of(VKMHA_TYPE_F32, QUERIES, KEYS);
        plan.output_type = types[t];
        float *output = attend(target, &layer, &plan, (const float *const[]){query, key, value},
                               QUERIES * DIM);
        const float expected = types[t] == VKMHA_TYPE_F16    ? INFINITY
                               : types[t] == VKMHA_TYPE_BF16 ? 70144.0f
                                                             : 70000.0f;
        const float most = types[t] == VKMHA_TYPE_F32 ? 1.0f : 0.0f;
        for (uint32_t i = 0; i < QUERIES * DIM; i++) {
            cr_assert(output[i] == expected || fabsf(output[i] - expected) <= most,
                      "%s: type %u: %g", target->attention_kernel, types[t], (double)output[i]);
        }
        free(output);
    }
    free(query);
    free(key);
    free(value);
}

Test(types_layers, constant_values_stay, .timeout = 300)
{
    vkmha_test_each_attention_row(constant_values);
}

/* ---- Mixed types ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    vkmha_layer_params layer;
    vkmha_plan_params plan;
} cases[] = {
    {"vectors, all fp16",
     {.num_heads = 4, .num_kv_heads = 2, .head_dim = 32, .attention_only = true},
     {.batch_size = 2, .query_len = 19, .key_len = 45, .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
      .query_type = VKMHA_TYPE_F16, .key_type = VKMHA_TYPE_F16, .value_type = VKMHA_TYPE_F16,
      .output_type = VKMHA_TYPE_F16}},
    {"odd heads, each its type, odd strides and offsets",
     {.num_heads = 2, .head_dim = 5, .v_head_dim = 7, .attention_only = true},
     {.batch_size = 2, .query_len = 9, .key_len = 37,
      .query_strides = {true, 3, 200, 11, 5},
      .key_strides = {true, 1, 501, 13, 6},
      .value_strides = {true, 5, 601, 15, 7},
      .output_strides = {true, 7, 151, 15, 7},
      .query_type = VKMHA_TYPE_F16, .key_type = VKMHA_TYPE_BF16, .value_type = VKMHA_TYPE_F16,
      .output_type = VKMHA_TYPE_BF16}},
    {"heads first, fp32 but for the output",
     {.num_heads = 3, .head_dim = 9, .attention_only = true},
     {.batch_size = 1, .query_len = 33, .key_len = 65, .layout = VKMHA_LAYOUT_BHSD,
      .output_strides = {true, 1, 0, 9, 299}, .output_type = VKMHA_TYPE_F16}},
    {"packed QKV of one memory",
     {.num_heads = 2, .head_dim = 6, .attention_only = true},
     {.batch_size = 2, .query_len = 21, .key_len = 21, .key_is_query = true, .value_is_key = true,
      .query_strides = {true, 0, 756, 36, 6}, .key_strides = {true, 12, 756, 36, 6},
      .value_strides = {true, 24, 756, 36, 6}, .query_type = VKMHA_TYPE_BF16,
      .key_type = VKMHA_TYPE_BF16, .value_type = VKMHA_TYPE_BF16, .output_type = VKMHA_TYPE_BF16}},
    {"many chunks of few queries",
     {.num_heads = 1, .head_dim = 16, .attention_only = true},
     {.batch_size = 1, .query_len = 2, .key_len = 2500, .query_type = VKMHA_TYPE_BF16,
      .key_type = VKMHA_TYPE_F16, .value_type = VKMHA_TYPE_BF16, .output_type = VKMHA_TYPE_F16}},
    {"chunks in cuts",
     {.num_heads = 1, .head_dim = 16, .attention_only = true},
     {.batch_size = 1, .query_len = 40, .key_len = 2500, .query_type = VKMHA_TYPE_F16,
      .key_type = VKMHA_TYPE_F16, .value_type = VKMHA_TYPE_F16, .output_type = VKMHA_TYPE_BF16,
      .max_work_per_dispatch = 300000}},
    {"projections of odd rows, weights rounded to fp16",
     {.num_heads = 3, .head_dim = 7, .embed_dim = 27, .output_dim = 13, .weight_type = VKMHA_TYPE_F16},
     {.batch_size = 2, .query_len = 17, .key_len = 17, .key_is_query = true, .value_is_key = true,
      .query_type = VKMHA_TYPE_F16, .key_type = VKMHA_TYPE_F16, .value_type = VKMHA_TYPE_F16,
      .output_type = VKMHA_TYPE_F16}},
    {"projections of three types, weights rounded to bf16, output with gaps",
     {.num_heads = 2, .head_dim = 16, .embed_dim = 48, .key_dim = 36, .value_dim = 20,
      .weight_type = VKMHA_TYPE_BF16},
     {.batch_size = 2, .query_len = 21, .key_len = 30, .output_strides = {true, 5, 1200, 53, 0},
      .query_type = VKMHA_TYPE_F16, .key_type = VKMHA_TYPE_BF16, .output_type = VKMHA_TYPE_BF16}},
    {"past and present in fp16 of paired heads",
     {.num_heads = 4, .num_kv_heads = 2, .head_dim = 10, .v_head_dim = 5, .embed_dim = 24,
      .rope = {.style = VKMHA_ROPE_HALF, .max_positions = 64}, .cache_type = VKMHA_TYPE_F16},
     {.batch_size = 2, .query_len = 5, .key_len = 5, .key_is_query = true, .value_is_key = true,
      .past_len = 7, .has_present = true, .causal = VKMHA_CAUSAL_BOTTOM_RIGHT}},
    {"past in bf16, attention alone, turned",
     {.num_heads = 2, .head_dim = 6, .v_head_dim = 3, .attention_only = true,
      .rope = {.style = VKMHA_ROPE_INTERLEAVED, .dim = 4, .max_positions = 64},
      .cache_type = VKMHA_TYPE_BF16},
     {.batch_size = 3, .query_len = 3, .key_len = 3, .past_len = 11,
      .causal = VKMHA_CAUSAL_BOTTOM_RIGHT, .query_type = VKMHA_TYPE_F16,
      .value_type = VKMHA_TYPE_F16, .output_type = VKMHA_TYPE_F16}},
    {"present in fp16 of bf16 keys",
     {.num_heads = 1, .head_dim = 3, .attention_only = true, .cache_type = VKMHA_TYPE_F16},
     {.batch_size = 2, .query_len = 1, .key_len = 9, .has_present = true,
      .key_type = VKMHA_TYPE_BF16}},
};

static void mixed(const vkmha_test_target *target)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        typed_problem problem;
        problem_init(cases[i].name, &cases[i].layer, &cases[i].plan, &problem);
        check_problem(target, &problem);
        problem_finish(&problem);
    }
}

Test(types_layers, mixed_types, .timeout = 600)
{
    vkmha_test_each_row(mixed);
}

/* The same bits whatever the cut, the batch, and the window that a device binds. */
static void same_bits(const vkmha_test_target *target)
{
    vkmha_limits *limits = &target->device->info.limits;
    const vkmha_limits kept = *limits;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        typed_problem problem;
        problem_init(cases[i].name, &cases[i].layer, &cases[i].plan, &problem);
        vkmha_chains chains;
        results whole = run_problem(target, &problem, &chains);
        for (uint32_t way = 0; way < 2; way++) {
            const uint64_t given = problem.plan.max_work_per_dispatch;
            problem.plan.max_work_per_dispatch = way == 0 ? 5000 : given;
            limits->max_storage_range_bytes = way == 1 && problem.sizes.all_keys < 100
                                                  ? 16384
                                                  : kept.max_storage_range_bytes;
            results cut = run_problem(target, &problem, &chains);
            cr_assert(memcmp(cut.output, whole.output, problem.num_output * sizeof(float)) == 0,
                      "%s, %s: %s: other bits when cut, way %u", target->project_kernel,
                      target->attention_kernel, cases[i].name, way);
            results_finish(&cut);
            problem.plan.max_work_per_dispatch = given;
            *limits = kept;
        }
        if (problem.plan.batch_size > 1 && !problem.plan.key_is_query) {
            /* The first sequence alone. */
            problem.plan.batch_size = 1;
            vkmha_plan_params alone = problem.plan;
            typed_problem first = problem;
            first.plan = alone;
            vkmha_plan_sizes(&first.layer, &first.plan, &first.sizes);
            first.num_output = problem.num_output / cases[i].plan.batch_size;
            results single = run_problem(target, &first, &chains);
            cr_assert(memcmp(single.output, whole.output, first.num_output * sizeof(float)) == 0,
                      "%s: %s: other bits alone", target->attention_kernel, cases[i].name);
            results_finish(&single);
        }
        results_finish(&whole);
        problem_finish(&problem);
    }
}

Test(types_layers, same_bits_cut_alone_and_in_small_windows, .timeout = 900)
{
    vkmha_test_each_row(same_bits);
}
