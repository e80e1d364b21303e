/* Options of attention in the CPU reference: numbers checked by hand, and plans that say the same
 * in two ways. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include <vkmha/vkmha_reference.h>

#include "runtime/position.h"
#include "runtime/rope.h"

enum { MAX_ELEMENTS = 1024 };

/* ((29 i + 53 seed) mod 61 - 30) / 32: exact in every type. */
static const float *generate(float *values, uint32_t count, uint32_t seed, float factor)
{
    for (uint32_t i = 0; i < count; i++) {
        values[i] = factor * ((float)((29 * i + 53 * seed) % 61) - 30.0f) / 32.0f;
    }
    return values;
}

typedef struct vkmha_result {
    double output[MAX_ELEMENTS];
    double bound[MAX_ELEMENTS];
    double weights[MAX_ELEMENTS];
} vkmha_result;

static void run(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                const vkmha_inputs *inputs, vkmha_result *result)
{
    const vkmha_reference_outputs outputs = {
        .output = result->output,
        .output_bound = result->bound,
        .weights = plan->is_packed ? NULL : result->weights,
    };
    vkmha_error error;
    cr_assert_eq(vkmha_reference_run(layer, plan, inputs, NULL, NULL, &outputs, &error), VKMHA_OK,
                 "%s", error.message);
}

static void expect(const double *got, const double *expected, uint32_t count, double tolerance)
{
    for (uint32_t i = 0; i < count; i++) {
        cr_assert(fabs(got[i] - expected[i]) <= tolerance, "element %u is %.9g instead of %.9g", i,
                  got[i], expected[i]);
    }
}

static void expect_same(const double *got, const double *expected, uint32_t count)
{
    cr_assert(memcmp(got, expected, count * sizeof(double)) == 0);
}

/* ---- Positions and biases ------------------------------------------------------------------- */

Test(reference_options, F11_softcap_comes_before_the_mask)
{
    float q[16];
    float k[16];
    float v[16];
    const vkmha_layer_params layer = {
        .num_heads = 1, .head_dim = 4, .softcap = 1.0f, .attention_only = true};
    const vkmha_plan_params plan = {
        .batch_size = 1,
        .query_len = 4,
        .key_len = 4,
        .mask = VKMHA_MASK_ADDITIVE,
        .mask_dims = {1, 1, 1, 4},
    };
    const vkmha_inputs inputs = {
        .query = generate(q, 16, 1, 32.0f),
        .key = generate(k, 16, 2, 1.0f),
        .value = generate(v, 16, 3, 1.0f),
        .mask = (float[]){0.0f, 0.0f, -INFINITY, -INFINITY},
    };
    vkmha_result result;
    run(&layer, &plan, &inputs, &result);
    expect(result.output, (double[]){0.125, 0.078125, 0.03125, -0.015625}, 4, 1e-6);
}

/* Scores of +-s become +-tanh(s). */
Test(reference_options, softcap_by_hand)
{
    const vkmha_layer_params layer = {
        .num_heads = 1, .head_dim = 1, .softcap = 2.0f, .attention_only = true};
    const vkmha_plan_params plan = {.batch_size = 1, .query_len = 1, .key_len = 2};
    const vkmha_inputs inputs = {
        .query = (float[]){3.0f}, .key = (float[]){1.0f, -1.0f}, .value = (float[]){1.0f, 0.0f}};
    vkmha_result result;
    run(&layer, &plan, &inputs, &result);
    const double weight = 1.0 / (1.0 + exp(-4.0 * tanh(1.5)));
    expect(result.output, &weight, 1, 1e-15);
    cr_assert(result.bound[0] > 0.0 && result.bound[0] < 1e-4);
}

/* Weights of equal scores, for 6 queries and keys. */
static void run_uniform(vkmha_layer_params layer, vkmha_plan_params plan, uint32_t length,
                        vkmha_result *result)
{
    static const float zeros[MAX_ELEMENTS];
    layer.head_dim = 1;
    layer.attention_only = true;
    plan.batch_size = 1;
    plan.query_len = length;
    plan.key_len = length;
    const vkmha_inputs inputs = {.query = zeros, .key = zeros, .value = zeros};
    run(&layer, &plan, &inputs, result);
}

Test(reference_options, F22_windows)
{
    vkmha_result result;
    const vkmha_layer_params layer = {.num_heads = 1};
    const vkmha_plan_params causal = {
        .causal = VKMHA_CAUSAL_TOP_LEFT, .has_window_left = true, .window_left = 2};
    run_uniform(layer, causal, 6, &result);
    const double third = 1.0 / 3.0;
    expect(result.weights,
           (double[]){1,     0,     0,     0,     0,     0, 0.5, 0.5,   0,     0,     0,     0,
                      third, third, third, 0,     0,     0, 0,   third, third, third, 0,     0,
                      0,     0,     third, third, third, 0, 0,   0,     0,     third, third, third},
           36, 1e-15);
    const vkmha_plan_params offset = {
        .positions = VKMHA_POSITIONS_OFFSET,
        .position_offset = -1,
        .has_window_left = true,
        .has_window_right = true,
        .window_right = 1,
    };
    run_uniform(layer, offset, 3, &result);
    expect(result.weights, (double[]){1, 0, 0, 0.5, 0.5, 0, 0, 0.5, 0.5}, 9, 1e-15);
}

Test(reference_options, F24_alibi)
{
    const float six[] = {0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f};
    const double twelve[] = {0.5,       0.25,       0.125,      0.0625,     0.03125,   0.015625,
                             0.0078125, 0.00390625, 0.70710678, 0.35355339, 0.1767767, 0.08838835};
    for (uint32_t h = 0; h < 12; h++) {
        cr_assert(h >= 6 || vkmha_alibi_slope(6, h) == six[h]);
        cr_assert(fabs((double)vkmha_alibi_slope(12, h) - twelve[h]) < 5e-8);
    }
    cr_assert(vkmha_alibi_slope(1, 0) == 0.00390625f);
    vkmha_result result;
    const vkmha_layer_params layer = {.num_heads = 6, .has_alibi = true};
    const vkmha_plan_params plan = {.causal = VKMHA_CAUSAL_TOP_LEFT};
    run_uniform(layer, plan, 4, &result);
    expect(result.weights + 12, (double[]){0.165296, 0.212244, 0.272527, 0.349932}, 4, 1e-6);
    expect(result.weights + 76, (double[]){0.101536, 0.167405, 0.276004, 0.455054}, 4, 1e-6);
    expect(result.weights + 92, (double[]){0.205248, 0.232576, 0.263543, 0.298633}, 4, 1e-6);
}

/* Numbers of T5's own function, and the thresholds 16, 32 and 64, which are exact. */
Test(reference_options, relative_buckets)
{
    const vkmha_relative_bias two_sided = {
        .num_buckets = 32, .max_distance = 128, .is_bidirectional = true};
    const vkmha_relative_bias one_sided = {.num_buckets = 32, .max_distance = 128};
    const int32_t expected[][3] = {
        {0, 0, 0},     {1, 17, 0},   {-1, 1, 1},     {-7, 7, 7},     {-8, 8, 8},      {-11, 8, 11},
        {-12, 9, 12},  {-15, 9, 15}, {-16, 10, 16},  {-31, 11, 21},  {-32, 12, 21},   {-63, 13, 26},
        {-64, 14, 26}, {64, 30, 0},  {-127, 15, 31}, {-128, 15, 31}, {100000, 31, 0},
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        cr_assert_eq(vkmha_relative_bucket(&two_sided, expected[i][0]), (uint32_t)expected[i][1],
                     "two-sided %d", expected[i][0]);
        cr_assert_eq(vkmha_relative_bucket(&one_sided, expected[i][0]), (uint32_t)expected[i][2],
                     "one-sided %d", expected[i][0]);
    }
    const float table[] = {0.0f, 1.0f, 2.0f, 3.0f, 9.0f, 9.0f, 9.0f, 9.0f};
    const vkmha_layer_params layer = {
        .num_heads = 2, .relative_bias = {.table = table, .num_buckets = 4, .max_distance = 3}};
    vkmha_result result;
    run_uniform(layer, (vkmha_plan_params){0}, 2, &result);
    const double far = exp(1.0) / (1.0 + exp(1.0));
    expect(result.weights, (double[]){0.5, 0.5, far, 1.0 - far, 0.5, 0.5, 0.5, 0.5}, 8, 1e-15);
}

Test(reference_options, rotary_positions_by_hand)
{
    const int32_t positions[] = {1, 9};
    const double c[] = {cos(1.0), cos(0.01)};
    const double s[] = {sin(1.0), sin(0.01)};
    vkmha_rope rope = {.style = VKMHA_ROPE_HALF, .dim = 4, .max_positions = 2};
    double values[] = {1, 2, 3, 4, 5, 1, 2, 3, 4, 5};
    double bound[10] = {0};
    cr_assert_eq(vkmha_reference_rotate(&rope, 5, 2, 1, positions, values, bound, NULL), VKMHA_OK);
    const double half[] = {c[0] - 3 * s[0], 2 * c[1] - 4 * s[1], 3 * c[0] + s[0],
                           4 * c[1] + 2 * s[1], 5};
    expect(values, half, 5, 1e-6);
    expect_same(values, values + 5, 5); /* past the table: its end */
    cr_assert(bound[0] > 0.0 && bound[0] < 1e-6 && bound[4] == 0.0);
    rope.style = VKMHA_ROPE_INTERLEAVED;
    memcpy(values, (double[]){1, 2, 3, 4, 5}, 5 * sizeof(double));
    cr_assert_eq(vkmha_reference_rotate(&rope, 5, 1, 1, positions, values, NULL, NULL), VKMHA_OK);
    const double interleaved[] = {c[0] - 2 * s[0], 2 * c[0] + s[0], 3 * c[1] - 4 * s[1],
                                  4 * c[1] + 3 * s[1], 5};
    expect(values, interleaved, 5, 1e-6);
    rope.dim = 6;
    vkmha_error error;
    cr_assert_eq(vkmha_reference_rotate(&rope, 5, 1, 1, positions, values, NULL, &error),
                 VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "rope.dim 6"), "%s", error.message);
    const vkmha_rope table = {.style = VKMHA_ROPE_HALF,
                              .max_positions = 2,
                              .cos = (float[]){1, 2, 3, 4},
                              .sin = (float[]){5, 6, 7, 8}};
    float cosine;
    float sine;
    vkmha_rope_entry(&table, 4, 1, 1, &cosine, &sine);
    cr_assert(cosine == 4.0f && sine == 8.0f);
}

/* ---- Further keys and gates ------------------------------------------------------------------ */

/* bias_k is a key behind the others that every query sees: a later token changes nothing. */
Test(reference_options, F17_further_keys_keep_causal_order)
{
    float q[12];
    float k[12];
    float v[12];
    const vkmha_layer_params layer = {
        .num_heads = 1,
        .head_dim = 4,
        .attention_only = true,
        .bias_k = (float[]){1, 2, 3, 4},
        .bias_v = (float[]){5, 6, 7, 8},
        .add_zero_attn = true,
    };
    const vkmha_plan_params plan = {
        .batch_size = 1, .query_len = 3, .key_len = 3, .causal = VKMHA_CAUSAL_TOP_LEFT};
    const vkmha_inputs inputs = {
        .query = generate(q, 12, 1, 1.0f),
        .key = generate(k, 12, 2, 1.0f),
        .value = generate(v, 12, 3, 1.0f),
    };
    vkmha_result first;
    vkmha_result second;
    run(&layer, &plan, &inputs, &first);
    for (uint32_t d = 0; d < 4; d++) {
        q[8 + d] = 7.0f;
        k[8 + d] = -5.0f;
        v[8 + d] = NAN;
    }
    run(&layer, &plan, &inputs, &second);
    expect_same(first.output, second.output, 8);
    cr_assert(isnan(second.output[8]));
}

Test(reference_options, further_keys_by_hand)
{
    vkmha_layer_params layer = {
        .num_heads = 1,
        .head_dim = 1,
        .attention_only = true,
        .bias_k = (float[]){2.0f},
        .bias_v = (float[]){10.0f},
        .add_zero_attn = true,
        .sinks = (float[]){0.5f},
    };
    vkmha_plan_params plan = {
        .batch_size = 1, .query_len = 1, .key_len = 1, .has_attend_keys = true};
    uint8_t attend = 1;
    const vkmha_inputs inputs = {.query = (float[]){1.0f},
                                 .key = (float[]){3.0f},
                                 .value = (float[]){1.0f},
                                 .attend_keys = &attend};
    vkmha_result result;
    run(&layer, &plan, &inputs, &result);
    const double further = exp(2.0) + 1.0 + exp(0.5);
    const double sum = exp(3.0) + further;
    expect(result.output, (double[]){(exp(3.0) + 10.0 * exp(2.0)) / sum}, 1, 1e-14);
    expect(result.weights, (double[]){exp(3.0) / sum}, 1, 1e-15);
    attend = 0;
    run(&layer, &plan, &inputs, &result);
    expect(result.output, (double[]){10.0 * exp(2.0) / further}, 1, 1e-14);
    /* Without it, a query without keys gets exact zeros. */
    layer.bias_k = NULL;
    layer.bias_v = NULL;
    run(&layer, &plan, &inputs, &result);
    cr_assert(result.output[0] == 0.0 && result.bound[0] == 0.0 && result.weights[0] == 0.0);
}

Test(reference_options, gates)
{
    const vkmha_layer_params layer = {.num_heads = 2, .head_dim = 1, .attention_only = true};
    const vkmha_plan_params plan = {
        .batch_size = 2, .query_len = 1, .key_len = 1, .has_gates_per_sequence = true};
    const vkmha_inputs inputs = {.query = (float[]){1, 1, 1, 1},
                                 .key = (float[]){1, 1, 1, 1},
                                 .value = (float[]){3, NAN, 5, 7},
                                 .head_gates = (float[]){2, 0, -1, 0.5f}};
    vkmha_result result;
    run(&layer, &plan, &inputs, &result);
    expect(result.output, (double[]){6, 0, -5, 3.5}, 4, 0.0);
    cr_assert(result.bound[1] == 0.0 && result.bound[0] > 0.0);
}

/* ---- The same in two ways ---------------------------------------------------------------------
 */

/* Everything that goes by position, so that a wrong one shows. */
static vkmha_layer_params positional(void)
{
    return (vkmha_layer_params){
        .num_heads = 4,
        .num_kv_heads = 2,
        .head_dim = 4,
        .softcap = 3.0f,
        .rope = {.style = VKMHA_ROPE_INTERLEAVED, .max_positions = 16, .base = 100.0f},
        .has_alibi = true,
        .attention_only = true,
    };
}

Test(reference_options, packed_sequences_are_separate_ones)
{
    float q[5 * 16];
    float k[7 * 8];
    float v[7 * 8];
    const vkmha_layer_params layer = positional();
    const int32_t query_ends[] = {0, 3, 3, 5};
    const int32_t key_ends[] = {0, 4, 5, 7};
    const vkmha_plan_params packed = {
        .batch_size = 3,
        .query_len = 3,
        .key_len = 4,
        .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
        .is_packed = true,
        .total_queries = 5,
        .total_keys = 7,
    };
    const vkmha_inputs inputs = {
        .query = generate(q, 80, 1, 4.0f),
        .key = generate(k, 56, 2, 1.0f),
        .value = generate(v, 56, 3, 1.0f),
        .cu_query_lens = query_ends,
        .cu_key_lens = key_ends,
    };
    vkmha_result whole;
    vkmha_result part;
    run(&layer, &packed, &inputs, &whole);
    for (uint32_t b = 0; b < 3; b++) {
        const vkmha_plan_params plan = {
            .batch_size = 1,
            .query_len = (uint64_t)(query_ends[b + 1] - query_ends[b]),
            .key_len = (uint64_t)(key_ends[b + 1] - key_ends[b]),
            .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
        };
        const vkmha_inputs one = {.query = q + query_ends[b] * 16,
                                  .key = k + key_ends[b] * 8,
                                  .value = v + key_ends[b] * 8};
        run(&layer, &plan, &one, &part);
        expect_same(whole.output + query_ends[b] * 16, part.output, (uint32_t)plan.query_len * 16);
        expect_same(whole.bound + query_ends[b] * 16, part.bound, (uint32_t)plan.query_len * 16);
    }
}

/* Queries, keys and values of a token side by side, the last two behind the first. */
Test(reference_options, strided_tensors_are_contiguous_ones)
{
    enum { LENGTH = 3, BATCH = 2, TOKEN = 32 };
    float fused[BATCH * LENGTH * TOKEN];
    float q[BATCH * LENGTH * 16];
    float k[BATCH * LENGTH * 8];
    float v[BATCH * LENGTH * 8];
    generate(fused, BATCH * LENGTH * TOKEN, 4, 2.0f);
    for (uint32_t row = 0; row < BATCH * LENGTH; row++) {
        memcpy(q + row * 16, fused + row * TOKEN, 16 * sizeof(float));
        memcpy(k + row * 8, fused + row * TOKEN + 16, 8 * sizeof(float));
        memcpy(v + row * 8, fused + row * TOKEN + 24, 8 * sizeof(float));
    }
    const vkmha_layer_params layer = positional();
    const vkmha_plan_params plan = {.batch_size = BATCH, .query_len = LENGTH, .key_len = LENGTH};
    vkmha_plan_params strided = plan;
    strided.key_is_query = true;
    strided.value_is_key = true;
    strided.query_strides = (vkmha_strides){true, 0, LENGTH * TOKEN, TOKEN, 4};
    strided.key_strides = (vkmha_strides){true, 16, LENGTH * TOKEN, TOKEN, 4};
    strided.value_strides = (vkmha_strides){true, 24, LENGTH * TOKEN, TOKEN, 4};
    vkmha_result expected;
    vkmha_result got;
    run(&layer, &plan, &(vkmha_inputs){.query = q, .key = k, .value = v}, &expected);
    run(&layer, &strided, &(vkmha_inputs){.query = fused}, &got);
    expect_same(got.output, expected.output, BATCH * LENGTH * 16);
    expect_same(got.bound, expected.bound, BATCH * LENGTH * 16);
}

/* The second half of a sequence after the first: what the present outputs say goes in as past. */
Test(reference_options, past_keys_are_earlier_ones)
{
    enum { LENGTH = 6, PAST = 4, FRESH = LENGTH - PAST };
    float q[LENGTH * 16];
    float k[LENGTH * 8];
    float v[LENGTH * 8];
    const vkmha_layer_params layer = positional();
    const vkmha_plan_params whole = {
        .batch_size = 1, .query_len = LENGTH, .key_len = LENGTH, .causal = VKMHA_CAUSAL_TOP_LEFT};
    const vkmha_inputs inputs = {
        .query = generate(q, LENGTH * 16, 1, 4.0f),
        .key = generate(k, LENGTH * 8, 2, 1.0f),
        .value = generate(v, LENGTH * 8, 3, 1.0f),
    };
    vkmha_result expected;
    vkmha_result got;
    double present[2][LENGTH * 8];
    run(&layer, &whole, &inputs, &expected);
    const vkmha_reference_outputs outputs = {.present_key = present[0],
                                             .present_value = present[1]};
    cr_assert_eq(vkmha_reference_run(&layer, &whole, &inputs, NULL, NULL, &outputs, NULL),
                 VKMHA_OK);
    float past[2][PAST * 8];
    for (uint32_t tensor = 0; tensor < 2; tensor++) {
        for (uint32_t h = 0; h < 2; h++) {
            for (uint32_t n = 0; n < PAST * 4; n++) {
                past[tensor][h * PAST * 4 + n] = (float)present[tensor][h * LENGTH * 4 + n];
            }
        }
    }
    const vkmha_plan_params step = {
        .batch_size = 1,
        .query_len = FRESH,
        .key_len = FRESH,
        .past_len = PAST,
        .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
    };
    const vkmha_inputs fresh = {
        .query = q + PAST * 16,
        .key = k + PAST * 8,
        .value = v + PAST * 8,
        .past_key = past[0],
        .past_value = past[1],
    };
    run(&layer, &step, &fresh, &got);
    expect(got.output, expected.output + PAST * 16, FRESH * 16, 1e-6);
    vkmha_plan_params cached = step;
    cached.past_len = 0;
    cached.cache_capacity = 8;
    vkmha_error error;
    cr_assert_eq(vkmha_reference_run(&layer, &cached, &fresh, NULL, NULL, &outputs, &error),
                 VKMHA_ERROR_UNSUPPORTED);
    cr_assert(strstr(error.message, "cache_capacity 8"), "%s", error.message);
}

/* Given positions turn queries and keys as their own do; ALiBi goes by the places all the same. */
Test(reference_options, given_positions_turn_alone)
{
    float q[3 * 16];
    float k[3 * 8];
    float v[3 * 8];
    const int32_t places[] = {0, 1, 2};
    const int32_t shifted[] = {5, 6, 7};
    const vkmha_layer_params layer = positional();
    vkmha_plan_params plan = {.batch_size = 1, .query_len = 3, .key_len = 3};
    vkmha_inputs inputs = {
        .query = generate(q, 48, 1, 4.0f),
        .key = generate(k, 24, 2, 1.0f),
        .value = generate(v, 24, 3, 1.0f),
    };
    vkmha_result expected;
    vkmha_result got;
    run(&layer, &plan, &inputs, &expected);
    plan.has_positions = true;
    inputs.query_positions = places;
    inputs.key_positions = places;
    run(&layer, &plan, &inputs, &got);
    expect_same(got.output, expected.output, 48);
    /* Only differences count, up to the table's rounding. */
    inputs.query_positions = shifted;
    inputs.key_positions = shifted;
    run(&layer, &plan, &inputs, &got);
    expect(got.output, expected.output, 48, 1e-5);
    inputs.key_positions = places;
    run(&layer, &plan, &inputs, &got);
    cr_assert(fabs(got.output[0] - expected.output[0]) > 1e-3);
}

/* Bits, halves, first keys and lengths against a mask of bytes or floats. */
Test(reference_options, masks_in_other_forms)
{
    enum { KEYS = 35 };
    float q[2];
    float k[KEYS];
    float v[KEYS];
    uint8_t bytes[2 * KEYS];
    uint32_t words[4] = {0};
    float floats[KEYS];
    uint16_t halves[KEYS];
    for (uint32_t n = 0; n < 2 * KEYS; n++) {
        bytes[n] = n % 3 != 0;
        words[n / KEYS * 2 + n % KEYS / 32] |= (uint32_t)bytes[n] << n % KEYS % 32;
    }
    for (uint32_t j = 0; j < KEYS; j++) {
        const bool is_open = j >= 4 && j < 33;
        floats[j] = is_open ? 0.5f * (float)(j % 2) : -INFINITY;
        halves[j] = !is_open ? 0xfc00 : j % 2 ? 0x3800 : 0;
    }
    const vkmha_layer_params layer = {.num_heads = 1, .head_dim = 1, .attention_only = true};
    const vkmha_inputs tensors = {
        .query = generate(q, 2, 1, 1.0f),
        .key = generate(k, KEYS, 2, 1.0f),
        .value = generate(v, KEYS, 3, 1.0f),
    };
    const vkmha_plan_params plan = {.batch_size = 1, .query_len = 2, .key_len = KEYS};
    const struct {
        vkmha_mask_type mask;
        uint64_t rows;
        const void *data;
    } masks[] = {
        {VKMHA_MASK_ATTEND, 2, bytes},
        {VKMHA_MASK_ATTEND_BITS, 2, words},
        {VKMHA_MASK_ADDITIVE, 1, floats},
        {VKMHA_MASK_ADDITIVE_F16, 1, halves},
    };
    vkmha_result results[4];
    for (uint32_t n = 0; n < 4; n++) {
        vkmha_plan_params masked = plan;
        vkmha_inputs inputs = tensors;
        masked.mask = masks[n].mask;
        memcpy(masked.mask_dims, (uint64_t[]){1, 1, masks[n].rows, KEYS}, sizeof(masked.mask_dims));
        inputs.mask = masks[n].data;
        run(&layer, &masked, &inputs, &results[n]);
    }
    expect_same(results[0].weights, results[1].weights, 2 * KEYS);
    expect_same(results[2].weights, results[3].weights, 2 * KEYS);
    cr_assert(results[0].weights[33] == 0.0 && results[0].weights[34] > 0.0);
    vkmha_plan_params cut = plan;
    vkmha_inputs inputs = tensors;
    cut.has_first_keys = true;
    cut.has_key_lengths = true;
    inputs.first_keys = (int32_t[]){4};
    inputs.key_lengths = (int32_t[]){33};
    run(&layer, &cut, &inputs, &results[0]);
    for (uint32_t j = 0; j < KEYS; j++) {
        cr_assert((results[0].weights[j] != 0.0) == (results[2].weights[j] != 0.0));
    }
}
