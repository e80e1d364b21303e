/*
 * Known faults of other libraries, by number, on the reference and on every kernel row of every device. Inputs are exact:
 * element i of a tensor is (((29 i + 53 seed) mod 61) - 30) / 32 times a factor. Expected numbers come from an independent
 * float64 implementation.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { MAX_ELEMENTS = 1 << 16 };

/* A problem, its expected output and how near it must come. */
typedef struct vkmha_fault {
    const char *name;
    vkmha_layer_params layer;
    vkmha_plan_params plan;
    vkmha_inputs inputs;
    uint64_t count;         /* of the output */
    const double *expected; /* of the first `num_expected` elements */
    uint64_t num_expected;
    const double *digest; /* sum, sum of |x|, sum of x_i ((i mod 7) + 1); or NULL */
    double tolerance;
} vkmha_fault;

static void generate(float *values, uint64_t count, int64_t seed, float factor)
{
    for (uint64_t i = 0; i < count; i++) {
        const int64_t number = (29 * (int64_t)i + 53 * seed) % 61 - 30;
        values[i] = factor * (float)number / 32.0f;
    }
}

static void judge(const char *fault, const char *who, const vkmha_fault *problem, const double *got)
{
    for (uint64_t i = 0; i < problem->num_expected; i++) {
        cr_assert(fabs(got[i] - problem->expected[i]) <= problem->tolerance,
                  "%s on %s: element %llu is %.9g, expected %.9g within %g", fault, who,
                  (unsigned long long)i, got[i], problem->expected[i], problem->tolerance);
    }
    if (problem->digest) {
        double sums[3] = {0.0, 0.0, 0.0};
        for (uint64_t i = 0; i < problem->count; i++) {
            sums[0] += got[i];
            sums[1] += fabs(got[i]);
            sums[2] += got[i] * (double)(i % 7 + 1);
        }
        for (int k = 0; k < 3; k++) {
            cr_assert(fabs(sums[k] - problem->digest[k]) <= 1e-4 * problem->digest[1],
                      "%s on %s: digest %d is %.9g, expected %.9g", fault, who, k, sums[k],
                      problem->digest[k]);
        }
    }
}

static const vkmha_fault *current; /* what the bodies below run: Criterion forks a process a test */

static void run_on_target(const vkmha_test_target *target)
{
    char who[256];
    snprintf(who, sizeof(who), "%s, %s", target->device_name,
             target->attention_kernel ? target->attention_kernel : "chosen kernels");
    vkmha_error error;
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    cr_assert_eq(vkmha_layer_create(target->device, &current->layer, &layer, &error), VKMHA_OK,
                 "%s", error.message);
    vkmha_plan_params params = current->plan;
    params.project_kernel = current->layer.attention_only ? NULL : target->project_kernel;
    params.attention_kernel = target->attention_kernel;
    cr_assert_eq(vkmha_plan_create(layer, &params, &plan, &error), VKMHA_OK, "%s", error.message);
    float *output = calloc(current->count + 1, sizeof(float));
    double *got = calloc(current->count + 1, sizeof(double));
    for (uint64_t i = 0; i <= current->count; i++) {
        output[i] = 7.0f;
    }
    cr_assert_eq(vkmha_run(plan, &current->inputs, &(vkmha_outputs){.output = output}, &error),
                 VKMHA_OK, "%s", error.message);
    cr_assert(output[current->count] == 7.0f, "%s on %s: written past the end", current->name, who);
    for (uint64_t i = 0; i < current->count; i++) {
        got[i] = (double)output[i];
    }
    judge(current->name, who, current, got);
    free(output);
    free(got);
    vkmha_plan_destroy(plan);
    vkmha_layer_destroy(layer);
}

static void check_fault(const vkmha_fault *fault)
{
    vkmha_error error;
    double *expected = calloc(fault->count + 1, sizeof(double));
    const vkmha_reference_outputs outputs = {.output = expected};
    cr_assert_eq(vkmha_reference_run(&fault->layer, &fault->plan, &fault->inputs, NULL, NULL, &outputs,
                                     &error),
                 VKMHA_OK, "%s", error.message);
    judge(fault->name, "the reference", fault, expected);
    free(expected);
    current = fault;
    vkmha_test_each_row(run_on_target);
}

static float query_data[MAX_ELEMENTS];
static float key_data[MAX_ELEMENTS];
static float value_data[MAX_ELEMENTS];

/* Core attention [B, S, H, d] on q = G(1) factor, k = G(2), v = G(3). */
static vkmha_fault core(const char *name, uint64_t batch, uint64_t query_len, uint64_t key_len,
                        uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t v_head_dim,
                        float factor)
{
    generate(query_data, batch * query_len * heads * head_dim, 1, factor);
    generate(key_data, batch * key_len * kv_heads * head_dim, 2, 1.0f);
    generate(value_data, batch * key_len * kv_heads * v_head_dim, 3, 1.0f);
    return (vkmha_fault){
        .name = name,
        .layer = {.num_heads = heads,
                  .num_kv_heads = kv_heads,
                  .head_dim = head_dim,
                  .v_head_dim = v_head_dim,
                  .attention_only = true},
        .plan = {.batch_size = batch, .query_len = query_len, .key_len = key_len},
        .inputs = {.query = query_data, .key = key_data, .value = value_data},
        .count = batch * query_len * heads * v_head_dim,
        .tolerance = 1e-5,
    };
}

static void expect(vkmha_fault *fault, const double *expected, uint64_t count)
{
    fault->expected = expected;
    fault->num_expected = count;
}

static void set_mask(vkmha_fault *fault, vkmha_mask_type type, const void *mask, const uint64_t dims[4])
{
    fault->plan.mask = type;
    memcpy(fault->plan.mask_dims, dims, 4 * sizeof(uint64_t));
    fault->inputs.mask = mask;
}

Test(faults, F01_fully_masked_row)
{
    vkmha_fault fault = core("F01", 1, 4, 4, 1, 1, 4, 4, 4.0f);
    const uint8_t mask[16] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1};
    set_mask(&fault, VKMHA_MASK_ATTEND, mask, (uint64_t[]){1, 1, 4, 4});
    expect(&fault,
           (double[]){0.106256, 0.036685, 0.012506, -0.057065, 0.103497, 0.130277, 0.009747, 0.036527,
                      0, 0, 0, 0, 0.089337, 0.336828, -0.004413, 0.243078},
           16);
    check_fault(&fault);
}

Test(faults, F03_mask_of_the_lowest_float)
{
    vkmha_fault fault = core("F03", 1, 4, 4, 1, 1, 4, 4, 4.0f);
    float mask[16] = {0};
    for (int j = 8; j < 12; j++) {
        mask[j] = -3.4028235e38f;
    }
    set_mask(&fault, VKMHA_MASK_ADDITIVE, mask, (uint64_t[]){1, 1, 4, 4});
    expect(&fault,
           (double[]){0.106256, 0.036685, 0.012506, -0.057065, 0.103497, 0.130277, 0.009747, 0.036527,
                      -0.0625, 0.367188, -0.15625, 0.273438},
           12);
    check_fault(&fault);
}

Test(faults, F05_nan_in_masked_keys)
{
    static const double expected[] = {0.115136, 0.02631,  0.021386, -0.06744, 0.107881, 0.12604,
                                      0.014131, 0.03229,  0.099392, 0.231247, 0.005642, 0.137497,
                                      0.090315, 0.336318, -0.003435, 0.242568};
    const uint8_t attend[4] = {1, 1, 1, 0};
    const uint8_t mask[16] = {1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0};
    const float bias[4] = {0, 0, 0, -INFINITY};
    const int32_t length = 3;
    for (int form = 0; form < 4; form++) {
        vkmha_fault fault = core("F05", 1, 4, 4, 1, 1, 4, 4, 4.0f);
        for (int d = 0; d < 4; d++) {
            key_data[12 + d] = NAN;
            value_data[12 + d] = d % 2 ? NAN : INFINITY;
        }
        switch (form) {
        case 0:
            fault.plan.has_attend_keys = true;
            fault.inputs.attend_keys = attend;
            break;
        case 1:
            set_mask(&fault, VKMHA_MASK_ATTEND, mask, (uint64_t[]){1, 1, 4, 4});
            break;
        case 2:
            set_mask(&fault, VKMHA_MASK_ADDITIVE, bias, (uint64_t[]){1, 1, 1, 4});
            break;
        default:
            fault.plan.has_key_lengths = true;
            fault.inputs.key_lengths = &length;
            break;
        }
        expect(&fault, expected, 16);
        check_fault(&fault);
    }
}

Test(faults, F09_first_tiles_fully_masked)
{
    vkmha_fault fault = core("F09", 1, 1, 200, 1, 1, 4, 4, 4.0f);
    uint8_t attend[200] = {0};
    memset(attend + 190, 1, 10);
    fault.plan.has_attend_keys = true;
    fault.inputs.attend_keys = attend;
    expect(&fault, (double[]){0.368988, -0.535794, 0.281882, -0.335197}, 4);
    check_fault(&fault);
}

Test(faults, F13_three_spellings_of_a_key_mask)
{
    static const double expected[] = {
        0.198261, -0.732304, 0.104511, -0.826054, 0.019659, 0.925909, -0.074091, 0.832159,
        -0.251695, 0.654555, -0.345445, 0.560805, 0.215107, -0.772548, 0.121357, -0.866298,
        -0.5258, 0.38045, -0.61955, 0.2867, -0.637395, 0.268855, -0.731145, 0.175105,
        0.4375, -0.5625, 0.34375, -0.65625, 0.25, -0.75, 0.15625, -0.84375,
        0.0625, -0.9375, -0.03125, 0.875, 0.4375, -0.5625, 0.34375, -0.65625,
        0.25, -0.75, 0.15625, -0.84375, 0.0625, -0.9375, -0.03125, 0.875};
    const uint8_t attend[6] = {1, 1, 0, 1, 0, 0};
    const float bias[6] = {0, 0, -INFINITY, 0, -INFINITY, -INFINITY};
    const int32_t lengths[2] = {2, 1};
    for (int form = 0; form < 4; form++) {
        vkmha_fault fault = core("F13", 2, 2, 3, 3, 3, 4, 4, 4.0f);
        if (form == 0) {
            fault.plan.has_attend_keys = true;
            fault.inputs.attend_keys = attend;
        } else if (form == 1) {
            set_mask(&fault, VKMHA_MASK_ATTEND, attend, (uint64_t[]){2, 1, 1, 3});
        } else if (form == 2) {
            set_mask(&fault, VKMHA_MASK_ADDITIVE, bias, (uint64_t[]){2, 1, 1, 3});
        } else {
            fault.plan.has_key_lengths = true;
            fault.inputs.key_lengths = lengths;
        }
        expect(&fault, expected, 48);
        check_fault(&fault);
    }
}

/* F14: every broadcast equals the fully expanded mask, whose result the reference gives. */
Test(faults, F14_mask_broadcasts)
{
    static const uint64_t shapes[][4] = {{1, 1, 2, 3}, {2, 1, 1, 3}, {1, 3, 2, 3},
                                         {2, 3, 2, 3}, {2, 3, 1, 1}, {2, 1, 2, 1}};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        const uint64_t *dims = shapes[s];
        const uint64_t count = dims[0] * dims[1] * dims[2] * dims[3];
        uint8_t *exact = malloc(count); /* to the byte: a sanitizer sees a read past it */
        for (uint64_t i = 0; i < count; i++) {
            exact[i] = (uint8_t)(i % 5 != 1);
        }
        uint8_t expanded[36];
        for (uint64_t i = 0; i < 36; i++) {
            const uint64_t at[4] = {i / 18, i / 6 % 3, i / 3 % 2, i % 3};
            uint64_t index = 0;
            for (int axis = 0; axis < 4; axis++) {
                index = index * dims[axis] + (dims[axis] > 1 ? at[axis] : 0);
            }
            expanded[i] = exact[index];
        }
        vkmha_fault fault = core("F14", 2, 2, 3, 3, 3, 4, 4, 4.0f);
        double expected[48];
        set_mask(&fault, VKMHA_MASK_ATTEND, expanded, (uint64_t[]){2, 3, 2, 3});
        cr_assert_eq(vkmha_reference_run(&fault.layer, &fault.plan, &fault.inputs, NULL, NULL,
                                         &(vkmha_reference_outputs){.output = expected}, NULL),
                     VKMHA_OK);
        expect(&fault, expected, 48);
        check_fault(&fault);
        set_mask(&fault, VKMHA_MASK_ATTEND, exact, dims);
        check_fault(&fault);
        free(exact);
    }
}

Test(faults, F18_causal_and_mask_intersect)
{
    vkmha_fault fault = core("F18", 1, 7, 7, 1, 1, 4, 7, 0.0f);
    memset(value_data, 0, sizeof(value_data));
    for (int j = 0; j < 7; j++) {
        value_data[j * 7 + j] = 1.0f;
    }
    const uint8_t attend[7] = {0, 1, 1, 0, 0, 1, 0};
    fault.plan.has_attend_keys = true;
    fault.plan.causal = VKMHA_CAUSAL_TOP_LEFT;
    fault.inputs.attend_keys = attend;
    const double third = 1.0 / 3.0;
    expect(&fault,
           (double[]){0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0.5, 0.5, 0, 0, 0, 0, 0, 0.5, 0.5, 0,
                      0, 0, 0, 0, 0.5, 0.5, 0, 0, 0, 0, 0, third, third, 0, 0, third, 0, 0, third,
                      third, 0, 0, third, 0},
           49);
    check_fault(&fault);
}

Test(faults, F19_causal_alignment)
{
    vkmha_fault fault = core("F19", 1, 2, 5, 1, 1, 4, 4, 4.0f);
    fault.plan.causal = VKMHA_CAUSAL_BOTTOM_RIGHT;
    expect(&fault,
           (double[]){0.106256, 0.036685, 0.012506, -0.057065, 0.097252, 0.132685, 0.003502, 0.038935},
           8);
    check_fault(&fault);
    fault.plan.causal = VKMHA_CAUSAL_TOP_LEFT;
    expect(&fault,
           (double[]){0.21875, -0.78125, 0.125, -0.875, 0.123901, 0.088195, 0.030151, -0.005555}, 8);
    check_fault(&fault);
}

Test(faults, F25_heads_and_sequence_do_not_swap)
{
    vkmha_fault fault = core("F25", 2, 3, 3, 4, 4, 8, 8, 1.0f);
    double expected[192];
    for (int i = 0; i < 192; i++) {
        expected[i] = 100.0 * (i / 96) + 10.0 * (i / 8 % 4);
        value_data[i] = (float)expected[i];
    }
    expect(&fault, expected, 192);
    check_fault(&fault);
}

Test(faults, F26_grouped_heads)
{
    vkmha_fault fault = core("F26", 1, 1, 3, 6, 2, 4, 4, 1.0f);
    for (int i = 0; i < 24; i++) {
        query_data[i] = key_data[i] = 1.0f;
        value_data[i] = (float)(i / 4 % 2);
    }
    double expected[24];
    for (int i = 0; i < 24; i++) {
        expected[i] = i / 4 < 3 ? 0.0 : 1.0;
    }
    expect(&fault, expected, 24);
    check_fault(&fault);
}

static void check_digest(const char *name, uint32_t heads, uint32_t head_dim, const double digest[3])
{
    vkmha_fault fault = core(name, 1, 5, 5, heads, heads, head_dim, head_dim, 1.0f);
    fault.digest = digest;
    check_fault(&fault);
}

Test(faults, F31_odd_head_dims)
{
    check_digest("F31 d 37", 3, 37, (double[]){-0.771099, 122.770006, -7.352163});
    check_digest("F31 d 1", 2, 1, (double[]){1.285754, 1.285754, 4.177627});
    check_digest("F31 d 3", 2, 3, (double[]){0.703293, 6.19979, 3.374315});
    check_digest("F31 d 20", 2, 20, (double[]){1.252047, 88.090796, -2.5749});
    check_digest("F31 d 40", 2, 40, (double[]){1.012643, 162.675127, 3.104907});
    check_digest("F31 d 72", 2, 72, (double[]){-0.813587, 221.365668, -5.272329});
    check_digest("F31 d 96", 2, 96, (double[]){-0.676506, 298.989212, -11.168537});
}

Test(faults, F33_lengths_beside_the_tile)
{
    static const uint64_t lengths[] = {1, 7, 31, 33, 63, 64, 65, 77, 100};
    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
        for (uint64_t queries = 1; queries <= 5; queries += 2) {
            vkmha_fault fault = core("F33", 1, queries, lengths[k], 2, 2, 8, 8, 0.0f);
            for (uint64_t i = 0; i < lengths[k] * 16; i++) {
                value_data[i] = (float)(i / 16);
            }
            double expected[80];
            for (int i = 0; i < 80; i++) {
                expected[i] = ((double)lengths[k] - 1.0) / 2.0;
            }
            expect(&fault, expected, fault.count);
            fault.tolerance = 1e-5 * expected[0];
            check_fault(&fault);
        }
    }
}

Test(faults, F35_scale_of_the_head_dim)
{
    /* The published numbers belong to queries and keys both times 4. */
    vkmha_fault fault = core("F35", 1, 2, 3, 4, 4, 2, 2, 16.0f);
    expect(&fault,
           (double[]){0.168034, -0.574252, 0.124932, -0.874794, 0.03122, 0.93747, -0.062515, 0.843735,
                      -0.077557, 0.428666, 0.124995, -0.874991, 0.031247, 0.937497, -0.062502,
                      0.843748},
           16);
    check_fault(&fault);
    fault.layer.has_scale = true;
    fault.layer.scale = (float)(1.0 / sqrt(8.0));
    expect(&fault,
           (double[]){0.109052, -0.343547, 0.116715, -0.852554, 0.025545, 0.931795, -0.066565,
                      0.839685, -0.029261, 0.229401, 0.122752, -0.870691, 0.029524, 0.935774,
                      -0.063845, 0.842405},
           16);
    check_fault(&fault);
    /* 0 given is a scale, not the default: the mean of the values. */
    fault.layer.scale = 0.0f;
    double mean[16];
    for (int i = 0; i < 16; i++) {
        mean[i] = ((double)value_data[i % 8] + (double)value_data[8 + i % 8] +
                   (double)value_data[16 + i % 8]) /
                  3.0;
    }
    expect(&fault, mean, 16);
    check_fault(&fault);
}

Test(faults, F36_values_of_another_head_dim)
{
    vkmha_fault fault = core("F36", 1, 2, 3, 2, 2, 4, 6, 4.0f);
    expect(&fault,
           (double[]){0.122118, -0.597912, 0.075873, -0.691662, -0.017877, 0.840868, -0.057446, 0.809403,
                      -0.151196, 0.715653, -0.244946, 0.621903, 0.149941, -0.643873, 0.083191,
                      -0.737623, -0.010559, 0.868691, -0.055499, 0.828765, -0.149249, 0.735015,
                      -0.242999, 0.641265},
           24);
    check_fault(&fault);
}

static vkmha_matrix matrix(float *data, uint64_t rows, uint64_t columns, int64_t seed)
{
    generate(data, rows * columns, seed, 1.0f);
    return (vkmha_matrix){.data = data, .rows = rows, .columns = columns};
}

static vkmha_vector vector(float *data, uint64_t size, int64_t seed)
{
    generate(data, size, seed, 1.0f);
    return (vkmha_vector){.data = data, .size = size};
}

/* The layer of F38, with or without biases. */
static vkmha_fault whole_layer(const char *name, bool has_biases, float weights[8][32], float x[15])
{
    generate(x, 15, 4, 1.0f);
    vkmha_fault fault = {
        .name = name,
        .layer = {.num_heads = 2, .head_dim = 3, .embed_dim = 5, .output_dim = 4},
        .plan = {.batch_size = 1,
                 .query_len = 3,
                 .key_len = 3,
                 .key_is_query = true,
                 .value_is_key = true},
        .inputs = {.query = x},
        .count = 12,
        .tolerance = 1e-5,
    };
    fault.layer.w_q = matrix(weights[0], 6, 5, 5);
    fault.layer.w_k = matrix(weights[1], 6, 5, 6);
    fault.layer.w_v = matrix(weights[2], 6, 5, 7);
    fault.layer.w_o = matrix(weights[3], 4, 6, 8);
    if (has_biases) {
        fault.layer.b_q = vector(weights[4], 6, 9);
        fault.layer.b_k = vector(weights[5], 6, 10);
        fault.layer.b_v = vector(weights[6], 6, 11);
        fault.layer.b_o = vector(weights[7], 4, 12);
    }
    return fault;
}

Test(faults, F38_weight_orientation_and_biases)
{
    float weights[8][32];
    float x[15];
    vkmha_fault fault = whole_layer("F38", true, weights, x);
    expect(&fault,
           (double[]){-1.72011, -0.943208, -2.072555, 2.716159, -0.452886, -0.140866, -1.735097,
                      1.742024, -1.528026, -0.740416, -1.859056, 2.483987},
           12);
    check_fault(&fault);
    fault = whole_layer("F38 without biases", false, weights, x);
    expect(&fault,
           (double[]){-1.29499, -1.104583, -0.914176, 1.326839, 0.051294, -0.235991, -0.523277, 0.244857,
                      -0.992795, -0.796354, -0.599912, 0.954197},
           12);
    check_fault(&fault);
}

Test(faults, F29_empty_axes)
{
    float weights[8][32];
    float x[15];
    for (int axis = 0; axis < 3; axis++) {
        vkmha_fault fault = whole_layer("F29", true, weights, x);
        fault.plan.key_is_query = false;
        fault.inputs.key = x;
        if (axis == 0) {
            fault.plan.batch_size = 0;
            fault.count = 0;
        } else if (axis == 1) {
            fault.plan.query_len = 0;
            fault.count = 0;
        } else {
            /* No keys: each row is W_O's bias. */
            fault.plan.key_len = 0;
            double rows[12];
            for (int i = 0; i < 12; i++) {
                rows[i] = (double)weights[7][i % 4];
            }
            expect(&fault, rows, 12);
            fault.tolerance = 0.0;
            check_fault(&fault);
            continue;
        }
        check_fault(&fault);
    }
}

/* F37: inputs are contiguous in this version; a layout that is none of the two is refused by name. */
Test(faults, F37_unknown_layout_is_refused)
{
    vkmha_fault fault = core("F37", 2, 3, 3, 2, 2, 4, 4, 1.0f);
    vkmha_error error;
    double output[48];
    fault.plan.layout = (vkmha_layout)2;
    cr_assert_eq(vkmha_reference_run(&fault.layer, &fault.plan, &fault.inputs, NULL, NULL,
                                     &(vkmha_reference_outputs){.output = output}, &error),
                 VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "layout"), "%s", error.message);
}
