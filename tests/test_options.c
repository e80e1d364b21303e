/*
 * Options of attention on every attention row of every device: known faults of other libraries with
 * their exact numbers, sinks, gates and pruned heads.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "made.h"

static void expect(const vkmha_test_target *target, const char *what, const float *got,
                   const double *expected, uint64_t count, double tolerance)
{
    for (uint64_t i = 0; i < count; i++) {
        cr_assert(fabs((double)got[i] - expected[i]) <= tolerance,
                  "%s, %s: %s: element %llu is %.9g, expected %.9g within %g", target->device_name,
                  target->attention_kernel, what, (unsigned long long)i, (double)got[i],
                  expected[i], tolerance);
    }
}

/* Runs, compares with the reference and gives the output back. */
static float *run(const vkmha_test_target *target, const char *name,
                  const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                  const vkmha_inputs *inputs, uint64_t num_output)
{
    const vkmha_test_problem problem = vkmha_test_problem_of(name, layer, plan, inputs, num_output);
    float *output = vkmha_test_run(target, &problem);
    vkmha_test_compare(target, &problem, NULL, output);
    return output;
}

/* Fails unless the outputs hold the same bits. */
static void same(const vkmha_test_target *target, const char *what, const float *got,
                 const float *expected, uint64_t count)
{
    const vkmha_test_problem problem = {.name = "options"};
    vkmha_test_same_bits(target, &problem, what, got, expected, count);
}

/* ---- Known faults ---------------------------------------------------------------------------- */

static void softcap(const vkmha_test_target *target)
{
    float query[16];
    float key[16];
    float value[16];
    vkmha_test_generate(query, 16, 1, 32.0f);
    vkmha_test_generate(key, 16, 2, 1.0f);
    vkmha_test_generate(value, 16, 3, 1.0f);
    const uint8_t attend[] = {1, 1, 0, 0};
    const float additive[] = {0.0f, 0.0f, -INFINITY, -INFINITY};
    const vkmha_layer_params layer = {
        .num_heads = 1, .head_dim = 4, .softcap = 1.0f, .attention_only = true};
    for (int32_t type = VKMHA_MASK_ATTEND; type <= VKMHA_MASK_ADDITIVE; type++) {
        const vkmha_plan_params plan = {.batch_size = 1,
                                        .query_len = 4,
                                        .key_len = 4,
                                        .mask = (vkmha_mask_type)type,
                                        .mask_dims = {1, 1, 1, 4}};
        const vkmha_inputs inputs = {.query = query,
                                     .key = key,
                                     .value = value,
                                     .mask = type == VKMHA_MASK_ATTEND ? (const void *)attend
                                                                       : (const void *)additive};
        float *output = run(target, "F11", &layer, &plan, &inputs, 16);
        expect(target, "F11 softcap before the mask", output,
               (double[]){0.125, 0.078125, 0.03125, -0.015625}, 4, 1e-5);
        free(output);
    }
}

Test(options, F11_softcap_comes_before_the_mask)
{
    vkmha_test_each_attention_row(softcap);
}

static void further_keys(const vkmha_test_target *target)
{
    float query[12];
    float key[12];
    float value[12];
    const float bias_k[] = {1.0f, 2.0f, 3.0f, 4.0f};
    const float bias_v[] = {5.0f, 6.0f, 7.0f, 8.0f};
    for (uint32_t kind = 1; kind < 4; kind++) {
        vkmha_test_generate(query, 12, 1, 1.0f);
        vkmha_test_generate(key, 12, 2, 1.0f);
        vkmha_test_generate(value, 12, 3, 1.0f);
        const vkmha_layer_params layer = {
            .num_heads = 1,
            .head_dim = 4,
            .attention_only = true,
            .bias_k = kind & 1 ? bias_k : NULL,
            .bias_v = kind & 1 ? bias_v : NULL,
            .add_zero_attn = kind & 2,
        };
        const vkmha_plan_params plan = {
            .batch_size = 1, .query_len = 3, .key_len = 3, .causal = VKMHA_CAUSAL_TOP_LEFT};
        const vkmha_inputs inputs = {.query = query, .key = key, .value = value};
        float *first = run(target, "F17", &layer, &plan, &inputs, 12);
        vkmha_test_fill(query + 8, 4, 7.0f);
        vkmha_test_fill(key + 8, 4, -5.0f);
        vkmha_test_fill(value + 8, 4, 3.0f);
        float *second = run(target, "F17", &layer, &plan, &inputs, 12);
        same(target, "F17: token 2 changed", second, first, 8);
        cr_assert(memcmp(second + 8, first + 8, 4 * sizeof(float)) != 0);
        free(first);
        free(second);
    }
}

Test(options, F17_further_keys_keep_causal_order)
{
    vkmha_test_each_attention_row(further_keys);
}

/* bias_k's score is softcapped in one workgroup, and where the merge of many joins it. */
static void capped_bias(const vkmha_test_target *target)
{
    enum { KEYS = 2 * 1024 + 5 }; /* split over chunks */
    const float query[] = {8.0f, 8.0f, 8.0f, 8.0f};
    const float bias_k[] = {1.0f, 2.0f, 3.0f, 4.0f};
    const float bias_v[] = {5.0f, 6.0f, 7.0f, 8.0f};
    float *key = vkmha_test_allocate(4 * KEYS, sizeof(float));
    float *value = vkmha_test_allocate(4 * KEYS, sizeof(float));
    vkmha_test_generate(key, 4 * KEYS, 2, 1.0f);
    vkmha_test_generate(value, 4 * KEYS, 3, 1.0f);
    const vkmha_layer_params layer = {.num_heads = 1,
                                      .head_dim = 4,
                                      .softcap = 1.0f,
                                      .bias_k = bias_k,
                                      .bias_v = bias_v,
                                      .attention_only = true};
    const vkmha_inputs inputs = {.query = query, .key = key, .value = value};
    const uint64_t lengths[] = {3, KEYS};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        const vkmha_plan_params plan = {.batch_size = 1, .query_len = 1, .key_len = lengths[i]};
        free(run(target, "softcapped bias_k", &layer, &plan, &inputs, 4));
    }
    free(key);
    free(value);
}

Test(options, bias_k_is_softcapped_where_keys_are_split)
{
    vkmha_test_each_attention_row(capped_bias);
}

/* Weights as outputs: with a query of zeros and values that are rows of the identity. */
static float *weights_of(const vkmha_test_target *target, const char *name,
                         vkmha_layer_params layer, vkmha_plan_params plan, uint32_t length)
{
    const uint64_t heads = layer.num_heads;
    layer.head_dim = layer.v_head_dim = length;
    layer.attention_only = true;
    plan.batch_size = 1;
    plan.query_len = plan.key_len = length;
    plan.layout = VKMHA_LAYOUT_BHSD;
    const uint64_t count = heads * length * length;
    float *query = vkmha_test_allocate(count, sizeof(float));
    float *value = vkmha_test_allocate(count, sizeof(float));
    for (uint64_t i = 0; i < heads * length; i++) {
        value[i * length + i % length] = 1.0f;
    }
    const vkmha_inputs inputs = {.query = query, .key = query, .value = value};
    float *output = run(target, name, &layer, &plan, &inputs, count);
    free(query);
    free(value);
    return output;
}

static void window(const vkmha_test_target *target)
{
    const double third = 1.0 / 3.0;
    const double expected[] = {1,     0,     0,     0, 0, 0, 0.5,   0.5,   0,     0,    0, 0, third,
                               third, third, 0,     0, 0, 0, third, third, third, 0,    0, 0, 0,
                               third, third, third, 0, 0, 0, 0,     third, third, third};
    const vkmha_layer_params layer = {.num_heads = 1};
    const vkmha_plan_params plan = {
        .causal = VKMHA_CAUSAL_TOP_LEFT, .has_window_left = true, .window_left = 2};
    float *output = weights_of(target, "F22", layer, plan, 6);
    expect(target, "F22 window of 3", output, expected, 36, 1e-6);
    for (uint32_t i = 0; i < 36; i++) {
        cr_assert(expected[i] != 0.0 || output[i] == 0.0f);
    }
    free(output);
}

Test(options, F22_window_of_three)
{
    vkmha_test_each_attention_row(window);
}

static void alibi(const vkmha_test_target *target)
{
    const double slopes[] = {0.5,       0.25,       0.125,      0.0625,     0.03125,   0.015625,
                             0.0078125, 0.00390625, 0.70710678, 0.35355339, 0.1767767, 0.08838835};
    const vkmha_plan_params plan = {.causal = VKMHA_CAUSAL_TOP_LEFT};
    const vkmha_layer_params six = {.num_heads = 6, .has_alibi = true};
    float *output = weights_of(target, "F24 six heads", six, plan, 4);
    expect(target, "F24 six heads, head 0", output + 12,
           (double[]){0.165296, 0.212244, 0.272527, 0.349932}, 4, 2e-6);
    expect(target, "F24 six heads, head 4", output + 76,
           (double[]){0.101536, 0.167405, 0.276004, 0.455054}, 4, 2e-6);
    expect(target, "F24 six heads, head 5", output + 92,
           (double[]){0.205248, 0.232576, 0.263543, 0.298633}, 4, 2e-6);
    free(output);
    const vkmha_layer_params twelve = {.num_heads = 12, .has_alibi = true};
    output = weights_of(target, "F24 twelve heads", twelve, plan, 4);
    for (uint32_t h = 0; h < 12; h++) {
        double weights[4];
        double sum = 0.0;
        for (uint32_t j = 0; j < 4; j++) {
            weights[j] = exp(-slopes[h] * (3.0 - j));
            sum += weights[j];
        }
        for (uint32_t j = 0; j < 4; j++) {
            weights[j] /= sum;
        }
        expect(target, "F24 twelve heads", output + h * 16 + 12, weights, 4, 2e-6);
    }
    free(output);
}

Test(options, F24_alibi_of_six_and_twelve_heads)
{
    vkmha_test_each_attention_row(alibi);
}

/* ---- Sinks ----------------------------------------------------------------------------------- */

static void sinks(const vkmha_test_target *target)
{
    enum { HEADS = 3, DIM = 8, QUERIES = 5, KEYS = 45, OUT = QUERIES * HEADS * DIM };
    const vkmha_plan_params plan = {.batch_size = 1, .query_len = QUERIES, .key_len = KEYS};
    float *query = vkmha_test_values(OUT, 1);
    float *key = vkmha_test_values((uint64_t)KEYS * HEADS * DIM, 2);
    float *value = vkmha_test_values((uint64_t)KEYS * HEADS * DIM, 3);
    const vkmha_inputs inputs = {.query = query, .key = key, .value = value};
    vkmha_layer_params layer = {.num_heads = HEADS, .head_dim = DIM, .attention_only = true};
    float *none = run(target, "no sink", &layer, &plan, &inputs, OUT);
    layer.sinks = (const float[]){-INFINITY, -INFINITY, -INFINITY};
    float *absent = run(target, "sinks of -Inf", &layer, &plan, &inputs, OUT);
    same(target, "a sink of -Inf changed a bit", absent, none, OUT);
    layer.sinks = (const float[]){-INFINITY, 2.0f, 200.0f};
    float *mixed = run(target, "sinks", &layer, &plan, &inputs, OUT);
    for (uint32_t i = 0; i < OUT; i++) {
        const uint32_t head = i / DIM % HEADS;
        cr_assert(head != 0 || memcmp(&mixed[i], &none[i], sizeof(float)) == 0);
        cr_assert(head != 1 || fabsf(mixed[i]) < fabsf(none[i]));
        cr_assert(head != 2 || fabsf(mixed[i]) < 1e-30f, "a sink of 200 left %g", (double)mixed[i]);
    }
    free(none);
    free(absent);
    free(mixed);
    free(query);
    free(key);
    free(value);
}

Test(options, sinks)
{
    vkmha_test_each_attention_row(sinks);
}

/* ---- Gates ----------------------------------------------------------------------------------- */

static void gates(const vkmha_test_target *target)
{
    enum { HEADS = 4, DIM = 8, QUERIES = 7, KEYS = 45, ROW = HEADS * DIM, OUT = QUERIES * ROW };
    const vkmha_layer_params layer = {.num_heads = HEADS, .head_dim = DIM, .attention_only = true};
    vkmha_plan_params plan = {.batch_size = 1, .query_len = QUERIES, .key_len = KEYS};
    float *query = vkmha_test_values(OUT, 1);
    float *key = vkmha_test_values((uint64_t)KEYS * ROW, 2);
    float *value = vkmha_test_values((uint64_t)KEYS * ROW, 3);
    vkmha_inputs inputs = {.query = query, .key = key, .value = value};
    float *plain = run(target, "no gates", &layer, &plan, &inputs, OUT);
    plan.has_head_gates = true;
    inputs.head_gates = (const float[]){1.0f, 1.0f, 1.0f, 1.0f};
    float *ones = run(target, "gates of 1", &layer, &plan, &inputs, OUT);
    same(target, "a gate of 1 changed a bit", ones, plain, OUT);
    free(ones);

    /* Head 1's keys and values are not even read. */
    for (uint32_t i = 0; i < KEYS * ROW; i++) {
        if (i / DIM % HEADS == 1) {
            value[i] = NAN;
            key[i] = i % 2 ? INFINITY : NAN;
        }
    }
    inputs.head_gates = (const float[]){1.0f, 0.0f, -0.5f, 2.0f};
    const vkmha_test_problem closed = vkmha_test_problem_of("gate 0", &layer, &plan, &inputs, OUT);
    float *gated = vkmha_test_run(target, &closed);
    for (uint32_t i = 0; i < OUT; i++) {
        const float gate = inputs.head_gates[i / DIM % HEADS];
        /* Factors of two are exact, so the gate may be applied anywhere after the sum. */
        cr_assert(gate == 0.0f ? gated[i] == 0.0f : gated[i] == gate * plain[i],
                  "%s: element %u of gate %g is %.9g", target->attention_kernel, i, (double)gate,
                  (double)gated[i]);
    }
    free(gated);
    free(plain);
    free(query);
    free(key);
    free(value);
}

Test(options, gates)
{
    vkmha_test_each_attention_row(gates);
}

/* Leaving out each head in turn: one call of a batch that repeats its inputs by strides of 0. */
static void leave_one_out(const vkmha_test_target *target)
{
    enum { HEADS = 4, DIM = 8, LEN = 37, ROW = HEADS * DIM, OUT = LEN * ROW };
    const vkmha_layer_params shape = {.num_heads = HEADS, .head_dim = DIM, .embed_dim = ROW};
    vkmha_plan_params plan = {.batch_size = 1,
                              .query_len = LEN,
                              .key_len = LEN,
                              .key_is_query = true,
                              .value_is_key = true,
                              .has_head_gates = true};
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &shape, &plan, "leave one head out");
    double *sum = vkmha_test_allocate(OUT, sizeof(double));
    double *allowed = vkmha_test_allocate(OUT, sizeof(double));
    double *expected = vkmha_test_allocate(OUT, sizeof(double));
    double *bound = vkmha_test_allocate(OUT, sizeof(double));
    float all_gates[HEADS * HEADS];
    float *single[HEADS + 1];
    for (uint32_t h = 0; h <= HEADS; h++) {
        float head_gates[HEADS];
        for (uint32_t i = 0; i < HEADS; i++) {
            head_gates[i] = i == h ? 0.0f : 1.0f;
        }
        if (h < HEADS) {
            memcpy(all_gates + h * HEADS, head_gates, sizeof(head_gates));
        }
        problem.inputs.head_gates = head_gates;
        single[h] = vkmha_test_run(target, &problem);
        vkmha_test_compare(target, &problem, NULL, single[h]);
        const vkmha_reference_outputs outputs = {.output = expected, .output_bound = bound};
        cr_assert(vkmha_reference_run(&problem.layer, &problem.plan, &problem.inputs, NULL, NULL,
                                      &outputs, NULL) == VKMHA_OK);
        for (uint32_t i = 0; i < OUT; i++) {
            allowed[i] += h < HEADS ? bound[i] : (HEADS + 1) * bound[i];
        }
    }
    /* y(all) - y(without h) is head h's part: together they are y(all) without the bias. */
    const float *all = single[HEADS];
    const float *bias = problem.biases[3];
    for (uint32_t i = 0; i < OUT; i++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            sum[i] += (double)all[i] - single[h][i];
        }
        const double whole = (double)all[i] - bias[i % ROW];
        cr_assert(fabs(sum[i] - whole) <= allowed[i], "%s: element %u: %g, not %g within %g",
                  target->attention_kernel, i, sum[i], whole, allowed[i]);
    }

    vkmha_test_problem batch = problem; /* a view */
    batch.plan.batch_size = HEADS;
    batch.plan.query_strides = batch.plan.key_strides = batch.plan.value_strides =
        (vkmha_strides){.is_given = true, .batch = 0, .row = ROW};
    batch.plan.has_head_gates = false;
    batch.plan.has_gates_per_sequence = true;
    batch.inputs.head_gates = all_gates;
    batch.num_output = HEADS * OUT;
    float *together = vkmha_test_run(target, &batch);
    for (uint32_t h = 0; h < HEADS; h++) {
        same(target, "one call of all heads", together + h * OUT, single[h], OUT);
    }
    free(together);
    for (uint32_t h = 0; h <= HEADS; h++) {
        free(single[h]);
    }
    free(sum);
    free(allowed);
    free(expected);
    free(bound);
    vkmha_test_problem_finish(&problem);
}

Test(options, leave_one_head_out)
{
    vkmha_test_each_attention_row(leave_one_out);
}

/* ---- Pruned heads ---------------------------------------------------------------------------- */

/* A layer that lost heads 0 and 2 of four is the whole layer with their gates closed. */
static void pruned_heads(const vkmha_test_target *target)
{
    enum { HEADS = 4, DIM = 8, LEN = 9, ROW = HEADS * DIM, OUT = LEN * ROW };
    const vkmha_layer_params shape = {.num_heads = HEADS, .head_dim = DIM, .embed_dim = ROW};
    const vkmha_plan_params plan = {.batch_size = 1,
                                    .query_len = LEN,
                                    .key_len = LEN,
                                    .key_is_query = true,
                                    .value_is_key = true,
                                    .has_head_gates = true};
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &shape, &plan, "pruned heads");
    problem.inputs.head_gates = (const float[]){0.0f, 1.0f, 0.0f, 1.0f};
    float *gated = vkmha_test_run(target, &problem);
    vkmha_test_compare(target, &problem, NULL, gated);

    vkmha_test_problem less = problem; /* a view; rows of heads 1 and 3 by copies */
    float *copies[8] = {0};
    less.layer.num_heads = 2;
    less.plan.has_head_gates = false;
    less.inputs.head_gates = NULL;
    vkmha_matrix *matrices[] = {&less.layer.w_q, &less.layer.w_k, &less.layer.w_v};
    vkmha_vector *vectors[] = {&less.layer.b_q, &less.layer.b_k, &less.layer.b_v};
    for (uint32_t m = 0; m < 3; m++) {
        copies[m] = vkmha_test_allocate(2 * DIM * ROW, sizeof(float));
        copies[4 + m] = vkmha_test_allocate(2 * DIM, sizeof(float));
        for (uint32_t h = 0; h < 2; h++) {
            memcpy(copies[m] + h * DIM * ROW, (float *)problem.weights[m] + (2 * h + 1) * DIM * ROW,
                   DIM * ROW * sizeof(float));
            memcpy(copies[4 + m] + h * DIM, (float *)problem.biases[m] + (2 * h + 1) * DIM,
                   DIM * sizeof(float));
        }
        matrices[m]->data = copies[m];
        matrices[m]->rows = 2 * DIM;
        vectors[m]->data = copies[4 + m];
        vectors[m]->size = 2 * DIM;
    }
    copies[3] = vkmha_test_allocate(2 * DIM * ROW, sizeof(float));
    for (uint32_t i = 0; i < 2 * DIM * ROW; i++) {
        const uint32_t column = i % (2 * DIM);
        const uint32_t head = 2 * (column / DIM) + 1;
        copies[3][i] =
            ((float *)problem.weights[3])[i / (2 * DIM) * ROW + head * DIM + column % DIM];
    }
    less.layer.w_o.data = copies[3];
    less.layer.w_o.columns = 2 * DIM;
    float *output = vkmha_test_run(target, &less);
    vkmha_test_compare(target, &less, NULL, output);
    vkmha_test_near(target, &less, output, gated, OUT, 1e-4);
    for (uint32_t i = 0; i < 8; i++) {
        free(copies[i]);
    }
    free(output);
    free(gated);
    vkmha_test_problem_finish(&problem);
}

Test(options, pruned_heads)
{
    vkmha_test_each_attention_row(pruned_heads);
}
