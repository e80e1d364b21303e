/*
 * The CPU reference against plain fp32 kernels written here: an honest one stays within its bound
 * in every order of sums, a wrong one does not; and vkmha_compare.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { MAX_HEAD_DIM = 64 };

/* How a simulated kernel sums, and what it gets wrong. */
typedef struct vkmha_simulation {
    uint64_t tile; /* keys of a step of the online softmax */
    bool is_fused;
    bool is_backward; /* the order of keys and features */
    bool scales_query;
    float scale_factor; /* 1 is right */
    uint64_t dropped;   /* a key that is left out; UINT64_MAX: none */
    bool is_inverted;   /* attend_keys is read the other way round */
    uint64_t late;      /* causal: keys more than a query may see */
    float grain;        /* accumulators keep 11 bits where this is 2^13 + 1, 24 where it is 0 */
} vkmha_simulation;

static const vkmha_simulation honest[] = {
    {.tile = 8, .is_fused = true, .scale_factor = 1.0f, .dropped = UINT64_MAX},
    {.tile = 32, .scales_query = true, .scale_factor = 1.0f, .dropped = UINT64_MAX},
    {.tile = 64, .is_backward = true, .scale_factor = 1.0f, .dropped = UINT64_MAX},
    {.tile = 1, .is_fused = true, .is_backward = true, .scale_factor = 1.0f, .dropped = UINT64_MAX},
};

/* Rounds to fewer bits by Dekker's splitting. */
static float coarse(const vkmha_simulation *kernel, float x)
{
    if (kernel->grain == 0.0f) {
        return x;
    }
    const volatile float product = kernel->grain * x;
    const volatile float rest = product - x;
    return product - rest;
}

static float multiply_add(const vkmha_simulation *kernel, float a, float b, float sum)
{
    const volatile float product = a * b;
    return coarse(kernel, kernel->is_fused ? fmaf(a, b, sum) : product + sum);
}

static bool attends(const vkmha_simulation *kernel, const vkmha_test_problem *problem, uint64_t b,
                    uint64_t i, uint64_t j)
{
    const vkmha_plan_params *plan = &problem->plan;
    if (j == kernel->dropped) {
        return false;
    }
    if (plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT &&
        j + plan->query_len > i + plan->key_len + kernel->late) {
        return false;
    }
    return !plan->has_attend_keys ||
           (problem->attend_keys[b * plan->key_len + j] != 0) != kernel->is_inverted;
}

/* One query of one head by the online softmax; tensors are [batch, position, head, feature]. */
static void simulate_row(const vkmha_simulation *kernel, const vkmha_test_problem *problem,
                         uint64_t b, uint64_t h, uint64_t i, float *output)
{
    const vkmha_layer_params *layer = &problem->layer;
    const uint64_t key_len = problem->plan.key_len;
    const uint64_t head_dim = layer->head_dim;
    const float scale =
        kernel->scale_factor * (layer->has_scale ? layer->scale : 1.0f / sqrtf((float)head_dim));
    const float *query =
        problem->query + ((b * problem->plan.query_len + i) * layer->num_heads + h) * head_dim;
    float maximum = -FLT_MAX;
    float sum = 0.0f;
    float sums[MAX_HEAD_DIM] = {0};
    for (uint64_t start = 0; start < key_len; start += kernel->tile) {
        const uint64_t count = key_len - start < kernel->tile ? key_len - start : kernel->tile;
        float scores[64];
        float raised = maximum;
        for (uint64_t c = 0; c < count; c++) {
            const uint64_t j = kernel->is_backward ? key_len - 1 - start - c : start + c;
            const float *key = problem->key + ((b * key_len + j) * layer->num_heads + h) * head_dim;
            float score = 0.0f;
            for (uint64_t n = 0; n < head_dim; n++) {
                const uint64_t d = kernel->is_backward ? head_dim - 1 - n : n;
                const float factor = kernel->scales_query ? query[d] * scale : query[d];
                score = multiply_add(kernel, factor, key[d], score);
            }
            scores[c] = kernel->scales_query ? score : score * scale;
            if (attends(kernel, problem, b, i, j) && scores[c] > raised) {
                raised = scores[c];
            }
        }
        const float factor = expf(maximum - raised);
        maximum = raised;
        sum = coarse(kernel, sum * factor);
        for (uint64_t d = 0; d < head_dim; d++) {
            sums[d] = coarse(kernel, sums[d] * factor);
        }
        for (uint64_t c = 0; c < count; c++) {
            const uint64_t j = kernel->is_backward ? key_len - 1 - start - c : start + c;
            if (!attends(kernel, problem, b, i, j)) {
                continue;
            }
            const float *value =
                problem->value + ((b * key_len + j) * layer->num_heads + h) * head_dim;
            const float weight = expf(scores[c] - maximum);
            sum = coarse(kernel, sum + weight);
            for (uint64_t d = 0; d < head_dim; d++) {
                sums[d] = multiply_add(kernel, weight, value[d], sums[d]);
            }
        }
    }
    for (uint64_t d = 0; d < head_dim; d++) {
        output[d] = sum != 0.0f ? sums[d] / sum : 0.0f;
    }
}

/* The largest error / bound of a simulated kernel. */
static double ratio_of(const vkmha_simulation *kernel, const vkmha_test_problem *problem)
{
    const vkmha_plan_params *plan = &problem->plan;
    const uint64_t num_heads = problem->layer.num_heads;
    const uint64_t head_dim = problem->layer.head_dim;
    float *got = vkmha_test_allocate(problem->num_output, sizeof(float));
    double *expected = vkmha_test_allocate(problem->num_output, sizeof(double));
    double *bound = vkmha_test_allocate(problem->num_output, sizeof(double));
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        for (uint64_t i = 0; i < plan->query_len; i++) {
            for (uint64_t h = 0; h < num_heads; h++) {
                simulate_row(kernel, problem, b, h, i,
                             got + ((b * plan->query_len + i) * num_heads + h) * head_dim);
            }
        }
    }
    const vkmha_chains chains = {
        .score = head_dim,
        .value = plan->key_len,
        .rescale = plan->key_len / kernel->tile + 1,
    };
    const vkmha_reference_outputs outputs = {.output = expected, .output_bound = bound};
    vkmha_error error;
    cr_assert_eq(vkmha_reference_run(&problem->layer, plan, &problem->inputs, &chains, NULL,
                                     &outputs, &error),
                 VKMHA_OK, "%s", error.message);
    vkmha_comparison comparison;
    vkmha_compare(got, expected, bound, problem->num_output, &comparison);
    free(got);
    free(expected);
    free(bound);
    return comparison.max_ratio;
}

static void problem_of(vkmha_test_problem *problem, uint64_t query_len, uint64_t key_len,
                       uint32_t head_dim, const char *name)
{
    const vkmha_layer_params layer = {
        .num_heads = 2,
        .head_dim = head_dim,
        .attention_only = true,
    };
    const vkmha_plan_params plan = {
        .batch_size = 1,
        .query_len = query_len,
        .key_len = key_len,
        .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
        .has_attend_keys = true,
    };
    vkmha_test_problem_init(problem, &layer, &plan, "%s", name);
}

static void expect_honest(const vkmha_test_problem *problem)
{
    for (size_t k = 0; k < sizeof(honest) / sizeof(honest[0]); k++) {
        const double ratio = ratio_of(&honest[k], problem);
        cr_assert(ratio <= 1.0, "%s: honest kernel %zu has error / bound %g (seed %llu)",
                  problem->name, k, ratio, (unsigned long long)vkmha_test_seed());
    }
}

static void multiply(float *values, uint64_t count, float factor)
{
    for (uint64_t i = 0; i < count; i++) {
        values[i] *= factor;
    }
}

/* ---- The bound is sound ---------------------------------------------------------------------- */

Test(reference, honest_kernels_stay_within_the_bound)
{
    const uint64_t lengths[] = {1, 2, 31, 64, 65, 200};
    const uint32_t head_dims[] = {1, 3, 16, 64};
    const float factors[] = {0.01f, 1.0f, 5.0f, 300.0f, 1e5f};
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        for (size_t d = 0; d < sizeof(head_dims) / sizeof(head_dims[0]); d++) {
            for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++) {
                vkmha_test_problem problem;
                problem_of(&problem, 3, lengths[l], head_dims[d], "random");
                multiply(problem.query, problem.num_query, factors[f]);
                expect_honest(&problem);
                vkmha_test_problem_finish(&problem);
            }
        }
    }
}

Test(reference, equal_terms_drift_within_the_bound)
{
    const float constants[] = {0.1f, 1.0f / 3.0f, 0.7f, 100.0f, 70000.0f};
    for (size_t c = 0; c < sizeof(constants) / sizeof(constants[0]); c++) {
        vkmha_test_problem problem;
        problem_of(&problem, 1, 4096, 4, "constant values");
        memset(problem.attend_keys, 1, 4096);
        vkmha_test_fill(problem.query, problem.num_query, 0.0f);
        vkmha_test_fill(problem.value, problem.num_value, constants[c]);
        expect_honest(&problem);
        vkmha_test_problem_finish(&problem);
    }
}

/* Weights below half an ULP of the sum vanish in it one by one, all to the same side. */
Test(reference, vanishing_weights_stay_within_the_bound)
{
    vkmha_test_problem problem;
    problem_of(&problem, 1, 4096, 1, "one key far above the others");
    memset(problem.attend_keys, 1, 4096);
    vkmha_test_fill(problem.query, problem.num_query, 16.66f);
    vkmha_test_fill(problem.key, problem.num_key, 0.0f);
    vkmha_test_fill(problem.value, problem.num_value, 1.0f);
    for (uint32_t h = 0; h < 2; h++) {
        problem.key[h] = 1.0f;
        problem.value[h] = -1.0f;
    }
    expect_honest(&problem);
    vkmha_test_problem_finish(&problem);
}

Test(reference, projections_stay_within_the_bound)
{
    const uint64_t depths[] = {1, 7, 100, 384, 1600, 4096};
    enum { ROWS = 19, FEATURES = 11 }; /* no multiples of the reference's tiles */
    uint64_t state = vkmha_test_seed();
    for (size_t k = 0; k < sizeof(depths) / sizeof(depths[0]); k++) {
        for (int is_constant = 0; is_constant < 2; is_constant++) {
            const uint64_t depth = depths[k];
            float *input = vkmha_test_allocate(ROWS * depth, sizeof(float));
            float *weights = vkmha_test_allocate(FEATURES * depth, sizeof(float));
            float biases[FEATURES];
            double output[ROWS * FEATURES];
            double bound[ROWS * FEATURES];
            float got[ROWS * FEATURES];
            for (uint64_t n = 0; n < FEATURES; n++) {
                biases[n] = vkmha_test_random_float(&state);
                const float constant = vkmha_test_random_float(&state);
                for (uint64_t i = 0; i < depth; i++) {
                    weights[n * depth + i] =
                        is_constant ? constant : vkmha_test_random_float(&state);
                }
            }
            for (uint64_t i = 0; i < ROWS * depth; i++) {
                input[i] = is_constant ? 0.1f : vkmha_test_random_float(&state);
            }
            for (uint64_t r = 0; r < ROWS; r++) {
                for (uint64_t n = 0; n < FEATURES; n++) {
                    float sum = 0.0f;
                    for (uint64_t i = 0; i < depth; i++) {
                        sum = multiply_add(&honest[r % 4], input[r * depth + i],
                                           weights[n * depth + i], sum);
                    }
                    got[r * FEATURES + n] = sum + biases[n];
                }
            }
            const vkmha_matrix weight = {.data = weights, .rows = FEATURES, .columns = depth};
            const vkmha_vector bias = {.data = biases, .size = FEATURES};
            vkmha_error error;
            vkmha_comparison comparison;
            cr_assert_eq(
                vkmha_reference_project(input, ROWS, &weight, &bias, 0, output, bound, &error),
                VKMHA_OK, "%s", error.message);
            vkmha_compare(got, output, bound, ROWS * FEATURES, &comparison);
            cr_assert(comparison.passed, "depth %llu, constant %d: error / bound %g (seed %llu)",
                      (unsigned long long)depth, is_constant, comparison.max_ratio,
                      (unsigned long long)vkmha_test_seed());
            for (uint64_t i = 0; i < ROWS * FEATURES; i++) {
                got[i] -= biases[i % FEATURES];
            }
            vkmha_compare(got, output, bound, ROWS * FEATURES, &comparison);
            cr_assert(!comparison.passed, "depth %llu: a lost bias goes unseen",
                      (unsigned long long)depth);
            free(input);
            free(weights);
        }
    }
}

/* ---- The bound is sharp ---------------------------------------------------------------------- */

Test(reference, wrong_kernels_exceed_the_bound)
{
    const struct {
        const char *name;
        vkmha_simulation kernel;
    } wrong[] = {
        {"scale off by 1 %", {.tile = 32, .scale_factor = 1.01f, .dropped = UINT64_MAX}},
        {"a key dropped", {.tile = 32, .scale_factor = 1.0f, .dropped = 17}},
        {"half accumulators",
         {.tile = 32, .scale_factor = 1.0f, .dropped = UINT64_MAX, .grain = 8193.0f}},
        {"mask inverted",
         {.tile = 32, .scale_factor = 1.0f, .dropped = UINT64_MAX, .is_inverted = true}},
        {"causal off by one", {.tile = 32, .scale_factor = 1.0f, .dropped = UINT64_MAX, .late = 1}},
    };
    const uint64_t lengths[] = {33, 1024};
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        vkmha_test_problem problem;
        problem_of(&problem, 4, lengths[l], 64, "random");
        problem.attend_keys[17] = 1;
        problem.attend_keys[lengths[l] - 1] = 1;
        multiply(problem.query, problem.num_query, 6.0f);
        for (size_t w = 0; w < sizeof(wrong) / sizeof(wrong[0]); w++) {
            const double ratio = ratio_of(&wrong[w].kernel, &problem);
            cr_assert(ratio > 1.0, "%s goes unseen at %llu keys: error / bound %g (seed %llu)",
                      wrong[w].name, (unsigned long long)lengths[l], ratio,
                      (unsigned long long)vkmha_test_seed());
        }
        vkmha_test_problem_finish(&problem);
    }
}

/* ---- Results --------------------------------------------------------------------------------- */

static void reference_of(const vkmha_test_problem *problem, double *output, double *bound,
                         double *weights)
{
    const vkmha_reference_outputs outputs = {
        .output = output,
        .output_bound = bound,
        .weights = weights,
    };
    vkmha_error error;
    cr_assert_eq(vkmha_reference_run(&problem->layer, &problem->plan, &problem->inputs, NULL, NULL,
                                     &outputs, &error),
                 VKMHA_OK, "%s", error.message);
}

Test(reference, F16_weights)
{
    vkmha_test_problem problem;
    problem_of(&problem, 3, 3, 4, "F16");
    problem.plan.causal = VKMHA_CAUSAL_NONE;
    memcpy(problem.attend_keys, (uint8_t[]){1, 0, 1}, 3);
    double output[24];
    double again[24];
    double weights[18];
    reference_of(&problem, output, NULL, weights);
    reference_of(&problem, again, NULL, NULL);
    cr_assert(memcmp(output, again, sizeof(output)) == 0, "asking for weights changes the output");
    for (uint32_t h = 0; h < 2; h++) {
        for (uint32_t i = 0; i < 3; i++) {
            const double *row = weights + (h * 3 + i) * 3;
            cr_assert(row[1] == 0.0 && fabs(row[0] + row[2] - 1.0) < 1e-15);
            for (uint32_t d = 0; d < 4; d++) {
                const double sum = row[0] * (double)problem.value[h * 4 + d] +
                                   row[2] * (double)problem.value[(4 + h) * 4 + d];
                cr_assert(fabs(sum - output[(i * 2 + h) * 4 + d]) < 1e-14);
            }
        }
    }
    vkmha_test_problem_finish(&problem);
}

Test(reference, rows_without_keys_are_exact_zeros)
{
    vkmha_test_problem problem;
    problem_of(&problem, 4, 2, 3, "two queries before the first key");
    memset(problem.attend_keys, 1, 2);
    double output[24];
    double bound[24];
    double weights[16];
    reference_of(&problem, output, bound, weights);
    for (uint32_t i = 0; i < 12; i++) {
        cr_assert(output[i] == 0.0 && bound[i] == 0.0);
    }
    cr_assert(weights[0] == 0.0 && weights[3] == 0.0 && weights[4] == 1.0);
    vkmha_test_problem_finish(&problem);
}

Test(reference, F05_only_attended_nan_counts)
{
    vkmha_test_problem problem;
    problem_of(&problem, 4, 4, 3, "NaN in key 2");
    memset(problem.attend_keys, 1, 4);
    for (uint32_t d = 0; d < 6; d++) {
        problem.key[12 + d] = NAN;
        problem.value[12 + d] = NAN;
    }
    double output[24];
    double bound[24];
    reference_of(&problem, output, bound, NULL);
    for (uint32_t i = 0; i < 24; i++) {
        const bool sees_it = i / 6 >= 2;
        cr_assert(isnan(output[i]) == sees_it && isfinite(bound[i]) != sees_it);
    }
    vkmha_test_problem_finish(&problem);
}

/* A mask that absorbs the scores leaves nothing to be unsure of; one that absorbs them in part
 * does. */
Test(reference, F03_absorbed_scores)
{
    const float masks[] = {-FLT_MAX, -1e10f, -2.5f};
    double output[2][12];
    double bound[12];
    for (size_t m = 0; m < 3; m++) {
        const vkmha_layer_params layer = {.num_heads = 1, .head_dim = 4, .attention_only = true};
        const vkmha_plan_params plan = {
            .batch_size = 1,
            .query_len = 3,
            .key_len = 8,
            .mask = VKMHA_MASK_ADDITIVE,
            .mask_dims = {1, 1, 1, 1},
        };
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "F03 mask %g", (double)masks[m]);
        problem.additive_mask[0] = masks[m];
        reference_of(&problem, output[0], bound, NULL);
        for (uint32_t i = 0; i < 12; i++) {
            double mean = 0.0;
            for (uint32_t j = 0; j < 8; j++) {
                mean += (double)problem.value[4 * j + i % 4] / 8.0;
            }
            const double distance = fabs(output[0][i] - mean);
            if (m == 0) {
                cr_assert(distance < 1e-15 && bound[i] < 1e-4);
            } else if (m == 1) {
                cr_assert(distance <= bound[i], "fp32 gives the mean, the bound must reach it");
            }
        }
        if (m == 2) {
            /* The same number added to every score changes nothing. */
            problem.additive_mask[0] = 0.0f;
            reference_of(&problem, output[1], NULL, NULL);
            for (uint32_t i = 0; i < 12; i++) {
                cr_assert(fabs(output[0][i] - output[1][i]) < 1e-15 && bound[i] < 1e-4);
            }
        }
        vkmha_test_problem_finish(&problem);
    }
}

Test(reference, refuses_bad_input)
{
    vkmha_test_problem problem;
    problem_of(&problem, 1, 1, 2, "refused");
    vkmha_error error;
    double output[4] = {7.0, 7.0, 7.0, 7.0};
    const vkmha_reference_outputs outputs = {.output = output};
    cr_assert_eq(vkmha_reference_run(&problem.layer, &problem.plan, &problem.inputs, NULL, NULL,
                                     NULL, &error),
                 VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(error.message, "outputs"));
    vkmha_inputs inputs = problem.inputs;
    inputs.key = NULL;
    cr_assert_eq(
        vkmha_reference_run(&problem.layer, &problem.plan, &inputs, NULL, NULL, &outputs, &error),
        VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(error.message, "key"));
    cr_assert(output[0] == 7.0, "a refused call wrote its output");
    const float number = 1.0f;
    const vkmha_matrix weight = {.data = &number, .rows = 1, .columns = 1};
    const vkmha_vector bias = {.data = &number, .size = 2};
    cr_assert_eq(vkmha_reference_project(&number, 1, &weight, &bias, 0, output, NULL, &error),
                 VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(error.message, "bias has 2"));
    cr_assert_eq(vkmha_reference_project(NULL, 1, &weight, NULL, 0, output, NULL, &error),
                 VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert_eq(vkmha_reference_project(&number, 1, NULL, NULL, 0, output, NULL, &error),
                 VKMHA_ERROR_INVALID_ARGUMENT);
    vkmha_test_problem_finish(&problem);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

typedef struct vkmha_allocations {
    int32_t left; /* allocations that succeed */
    int32_t held;
} vkmha_allocations;

static void *allocate(void *user, size_t bytes)
{
    vkmha_allocations *allocations = user;
    if (allocations->left-- <= 0) {
        return NULL;
    }
    allocations->held++;
    return malloc(bytes);
}

static void release(void *user, void *memory)
{
    ((vkmha_allocations *)user)->held--;
    free(memory);
}

Test(reference, memory_may_be_out_at_any_allocation)
{
    vkmha_test_problem problem;
    problem_of(&problem, 2, 3, 2, "out of memory");
    for (int32_t limit = 0;; limit++) {
        vkmha_allocations allocations = {.left = limit};
        const vkmha_host host = {.user = &allocations, .allocate = allocate, .release = release};
        double output[8] = {7.0};
        const vkmha_reference_outputs outputs = {.output = output};
        const vkmha_status status = vkmha_reference_run(
            &problem.layer, &problem.plan, &problem.inputs, NULL, &host, &outputs, NULL);
        cr_assert_eq(allocations.held, 0, "%d blocks are not released", allocations.held);
        if (status == VKMHA_OK) {
            cr_assert_gt(limit, 3);
            break;
        }
        cr_assert_eq(status, VKMHA_ERROR_OUT_OF_MEMORY);
        cr_assert(output[0] == 7.0);
    }
    vkmha_test_problem_finish(&problem);
}

/* ---- vkmha_compare --------------------------------------------------------------------------- */

Test(compare, measures)
{
    const float got[] = {1.0f, 2.0f, 3.0f, 0.0f};
    const double expected[] = {1.0, 2.5, 3.0, 0.0};
    const double bound[] = {0.1, 1.0, 0.0, 0.0};
    vkmha_comparison comparison;
    vkmha_compare(got, expected, bound, 4, &comparison);
    cr_assert(comparison.passed && comparison.num_failed == 0);
    cr_assert(comparison.max_abs == 0.5 && comparison.max_rel == 0.2);
    cr_assert(comparison.max_ratio == 0.5 && comparison.worst_index == 1);
    cr_assert(comparison.rms_ratio == 0.25);
    vkmha_compare(NULL, NULL, NULL, 0, &comparison);
    cr_assert(comparison.passed && comparison.rms_ratio == 0.0);
}

Test(compare, fails_what_is_over_the_bound)
{
    const float got[] = {1.0f, 2.0f, 3.0f};
    const double expected[] = {1.0, 2.5, 3.0};
    vkmha_comparison comparison;
    vkmha_compare(got, expected, (double[]){0.1, 0.25, 0.1}, 3, &comparison);
    cr_assert(!comparison.passed && comparison.num_failed == 1 && comparison.worst_index == 1);
    cr_assert(comparison.max_ratio == 2.0);
    vkmha_compare(got, expected, (double[]){0.1, 0.0, 0.1}, 3, &comparison);
    cr_assert(!comparison.passed && comparison.worst_index == 1 && isinf(comparison.max_ratio));
}

Test(compare, fails_what_is_not_finite)
{
    const double broken[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 3; k++) {
        for (int where = 0; where < 3; where++) {
            float got[] = {9.0f, 2.0f, 3.0f, 4.0f};
            double expected[] = {1.0, 2.0, 3.0, 4.0};
            double bound[] = {0.1, 0.1, 0.1, 0.1};
            if (where == 0) {
                got[2] = (float)broken[k];
            } else if (where == 1) {
                expected[2] = broken[k];
            } else {
                bound[2] = broken[k];
            }
            vkmha_comparison comparison;
            vkmha_compare(got, expected, bound, 4, &comparison);
            cr_assert(!comparison.passed && comparison.num_failed == 2);
            cr_assert_eq(comparison.worst_index, 2);
            cr_assert(!(comparison.max_ratio <= 1.0) && !(comparison.rms_ratio <= 1.0));
        }
    }
    /* Infinity where infinity is expected is no result that a bound covers. */
    const float infinite = INFINITY;
    vkmha_comparison comparison;
    vkmha_compare(&infinite, &broken[1], &(double){1.0}, 1, &comparison);
    cr_assert(!comparison.passed);
    /* A bound of 0 asks for it. */
    vkmha_compare(&infinite, &broken[1], &(double){0.0}, 1, &comparison);
    cr_assert(comparison.passed && comparison.max_abs == 0.0 && comparison.rms_ratio == 0.0);
    vkmha_compare(&infinite, &broken[2], &(double){0.0}, 1, &comparison);
    cr_assert(!comparison.passed);
}
