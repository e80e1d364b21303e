/* The attention kernels alone, each row of the table on each device. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "runtime/variants.h"

static vkmha_layer_params heads_of(uint32_t num_heads, uint32_t head_dim, uint32_t v_head_dim)
{
    return (vkmha_layer_params){
        .num_heads = num_heads,
        .head_dim = head_dim,
        .v_head_dim = v_head_dim,
        .attention_only = true,
    };
}

static vkmha_plan_params shape_of(uint64_t batch_size, uint64_t query_len, uint64_t key_len)
{
    return (vkmha_plan_params){
        .batch_size = batch_size,
        .query_len = query_len,
        .key_len = key_len,
    };
}

static void check(const vkmha_test_target *target, const vkmha_layer_params *layer,
                  const vkmha_plan_params *plan, const char *name)
{
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, layer, plan, "%s", name);
    vkmha_test_check(target, &problem);
    vkmha_test_problem_finish(&problem);
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static vkmha_tile tile_of(const vkmha_test_target *target, uint32_t head_dim)
{
    vkmha_device_info info;
    vkmha_device_get_info(target->device, &info);
    vkmha_tile tile = {0};
    const vkmha_variant *variant = NULL;
    vkmha_error error;
    const vkmha_status status =
        vkmha_variant_pick(VKMHA_KERNEL_ATTENTION, target->attention_kernel, &info.limits, head_dim,
                           head_dim, &variant, &tile, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    return tile;
}

static void tile_edges(const vkmha_test_target *target)
{
    const vkmha_tile tile = tile_of(target, 8);
    const vkmha_layer_params layer = heads_of(2, 8, 0);
    for (int32_t query_step = -1; query_step <= 1; query_step++) {
        for (int32_t key_step = -1; key_step <= 1; key_step++) {
            const vkmha_plan_params plan = shape_of(2, (uint64_t)((int64_t)tile.rows + query_step),
                                                    (uint64_t)((int64_t)tile.columns + key_step));
            vkmha_test_problem problem;
            vkmha_test_problem_init(&problem, &layer, &plan, "F33 query_len %llu key_len %llu",
                                    (unsigned long long)plan.query_len,
                                    (unsigned long long)plan.key_len);
            vkmha_test_check(target, &problem);
            vkmha_test_problem_finish(&problem);
        }
    }
    const uint64_t key_lens[] = {1, 2, VKMHA_KEY_CHUNK - 1, VKMHA_KEY_CHUNK, VKMHA_KEY_CHUNK + 1};
    for (size_t i = 0; i < sizeof(key_lens) / sizeof(key_lens[0]); i++) {
        const vkmha_plan_params plan = shape_of(1, 3, key_lens[i]);
        check(target, &layer, &plan, "key_len around a chunk");
    }
}

Test(attention, F33_tile_edges)
{
    vkmha_test_each_attention_row(tile_edges);
}

static void head_dims(const vkmha_test_target *target)
{
    const uint32_t dims[][2] = {{1, 0},  {3, 0},   {37, 0}, {64, 0}, {72, 0},
                                {96, 0}, {256, 0}, {4, 6},  {7, 1},  {64, 256}};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        const vkmha_layer_params layer = heads_of(3, dims[i][0], dims[i][1]);
        const vkmha_plan_params plan = shape_of(1, 5, 9);
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "F31 F36 head_dim %u v_head_dim %u",
                                dims[i][0], dims[i][1]);
        vkmha_test_check(target, &problem);
        vkmha_test_problem_finish(&problem);
    }
}

Test(attention, F31_F36_head_dims)
{
    vkmha_test_each_attention_row(head_dims);
}

static void layouts(const vkmha_test_target *target)
{
    vkmha_layer_params layer = heads_of(6, 8, 0);
    const uint32_t kv_heads[] = {1, 2, 3, 6};
    for (size_t i = 0; i < sizeof(kv_heads) / sizeof(kv_heads[0]); i++) {
        layer.num_kv_heads = kv_heads[i];
        vkmha_plan_params plan = shape_of(2, 5, 7);
        check(target, &layer, &plan, "F26 grouped heads, BSHD");
        plan.layout = VKMHA_LAYOUT_BHSD;
        check(target, &layer, &plan, "F25 F26 grouped heads, BHSD");
    }
}

Test(attention, F25_F26_layouts_and_groups)
{
    vkmha_test_each_attention_row(layouts);
}

static void scales(const vkmha_test_target *target)
{
    const float values[] = {0.0f, 1.0f, -0.5f, 3.0f};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        vkmha_layer_params layer = heads_of(2, 8, 0);
        layer.has_scale = true;
        layer.scale = values[i];
        const vkmha_plan_params plan = shape_of(1, 4, 11);
        check(target, &layer, &plan, "F35 a scale of its own");
    }
}

Test(attention, F35_scales)
{
    vkmha_test_each_attention_row(scales);
}

static void empty_axes(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = heads_of(2, 8, 0);
    const uint64_t shapes[][3] = {{0, 2, 3}, {2, 0, 3}, {2, 2, 0}};
    for (size_t i = 0; i < 3; i++) {
        const vkmha_plan_params plan = shape_of(shapes[i][0], shapes[i][1], shapes[i][2]);
        check(target, &layer, &plan, "F29 an empty axis");
    }
}

Test(attention, F29_empty_axes)
{
    vkmha_test_each_attention_row(empty_axes);
}

static void many_batches(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = heads_of(1, 4, 0);
    const vkmha_plan_params plan = shape_of(65537, 1, 1);
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "F44 65537 batches");
    float *output = vkmha_test_run(target, &problem);
    vkmha_test_near(target, &problem, output, problem.value, problem.num_output, 0.0);
    free(output);
    vkmha_test_problem_finish(&problem);
}

Test(attention, F44_many_batches)
{
    vkmha_test_each_device(many_batches);
}

/* ---- Masks ----------------------------------------------------------------------------------- */

static void masks(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = heads_of(3, 8, 0);
    const uint64_t dims[][4] = {{2, 3, 37, 41}, {1, 1, 37, 41}, {2, 1, 1, 41}, {1, 3, 37, 41},
                                {1, 3, 37, 1},  {2, 3, 1, 1},   {1, 1, 1, 1}};
    for (int32_t type = VKMHA_MASK_ATTEND; type <= VKMHA_MASK_ADDITIVE; type++) {
        for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
            vkmha_plan_params plan = shape_of(2, 37, 41);
            plan.mask = (vkmha_mask_type)type;
            memcpy(plan.mask_dims, dims[i], sizeof(plan.mask_dims));
            check(target, &layer, &plan,
                  type == VKMHA_MASK_ATTEND ? "F14 attend mask" : "F14 additive mask");
        }
    }
}

Test(attention, F14_masks_broadcast)
{
    vkmha_test_each_attention_row(masks);
}

static void all_masks(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = heads_of(2, 8, 0);
    const uint64_t lens[][2] = {{37, 41}, {41, 37}, {1, 70}, {70, 70}};
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        for (int32_t causal = 0; causal <= VKMHA_CAUSAL_BOTTOM_RIGHT; causal++) {
            for (uint32_t kinds = 0; kinds < 4; kinds++) {
                vkmha_plan_params plan = shape_of(3, lens[i][0], lens[i][1]);
                plan.causal = (vkmha_causal)causal;
                plan.has_key_lengths = kinds & 1;
                plan.has_attend_keys = kinds & 2;
                if (kinds == 3) {
                    plan.mask = VKMHA_MASK_ADDITIVE;
                    const uint64_t dims[4] = {1, 2, plan.query_len, plan.key_len};
                    memcpy(plan.mask_dims, dims, sizeof(dims));
                }
                vkmha_test_problem problem;
                vkmha_test_problem_init(&problem, &layer, &plan,
                                        "F18 F19 query_len %llu key_len %llu causal %d masks %u",
                                        (unsigned long long)lens[i][0],
                                        (unsigned long long)lens[i][1], (int)causal, kinds);
                vkmha_test_check(target, &problem);
                vkmha_test_problem_finish(&problem);
            }
        }
    }
}

Test(attention, F18_F19_masks_intersect)
{
    vkmha_test_each_attention_row(all_masks);
}

/* One mask said in three ways must give one result. */
static void mask_spellings(const vkmha_test_target *target)
{
    enum { BATCH = 3, QUERIES = 5, KEYS = 45 };
    const int32_t lengths[BATCH] = {45, 0, 33};
    const vkmha_layer_params layer = heads_of(2, 8, 0);
    float *first = NULL;
    for (uint32_t spelling = 0; spelling < 4; spelling++) {
        vkmha_plan_params plan = shape_of(BATCH, QUERIES, KEYS);
        const uint64_t dims[4] = {BATCH, 1, 1, KEYS};
        if (spelling == 1 || spelling == 2) {
            plan.mask = spelling == 1 ? VKMHA_MASK_ATTEND : VKMHA_MASK_ADDITIVE;
            memcpy(plan.mask_dims, dims, sizeof(dims));
        }
        plan.has_key_lengths = spelling == 0;
        plan.has_attend_keys = spelling == 3;
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "F13 spelling %u", spelling);
        for (uint32_t i = 0; i < BATCH * KEYS; i++) {
            const bool is_allowed = (int32_t)(i % KEYS) < lengths[i / KEYS];
            if (spelling == 1) {
                problem.attend_mask[i] = is_allowed;
            } else if (spelling == 2) {
                problem.additive_mask[i] = is_allowed ? 0.0f : -INFINITY;
            } else if (spelling == 3) {
                problem.attend_keys[i] = is_allowed;
            }
        }
        if (spelling == 0) {
            memcpy(problem.key_lengths, lengths, sizeof(lengths));
        }
        float *output = vkmha_test_run(target, &problem);
        if (first) {
            vkmha_test_near(target, &problem, output, first, problem.num_output, 1e-5);
            free(output);
        } else {
            first = output;
            const uint64_t item = problem.num_output / BATCH;
            for (uint64_t i = item; i < 2 * item; i++) {
                cr_assert(first[i] == 0.0f, "F01: a row without keys holds %g", (double)first[i]);
            }
        }
        vkmha_test_problem_finish(&problem);
    }
    free(first);
}

Test(attention, F01_F13_mask_spellings)
{
    vkmha_test_each_attention_row(mask_spellings);
}

static void late_keys(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = heads_of(1, 8, 0);
    vkmha_plan_params plan = shape_of(1, 3, 2200);
    plan.has_attend_keys = true;
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "F09 only the last ten keys");
    memset(problem.attend_keys, 0, 2190);
    memset(problem.attend_keys + 2190, 1, 10);
    vkmha_test_check(target, &problem);
    vkmha_test_problem_finish(&problem);
}

Test(attention, F09_first_tiles_masked)
{
    vkmha_test_each_attention_row(late_keys);
}

/* ---- NaN ------------------------------------------------------------------------------------- */

static void poison_row(float *tensor, uint64_t row, uint64_t row_size, float value)
{
    vkmha_test_fill(tensor + row * row_size, row_size, value);
}

static void masked_nan(const vkmha_test_target *target)
{
    enum { BATCH = 2, QUERIES = 9, KEYS = 75, HEADS = 2, DIM = 8, ROW = HEADS * DIM };
    const vkmha_layer_params layer = heads_of(HEADS, DIM, 0);
    const int32_t lengths[BATCH] = {40, 75};
    const float poisons[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t kind = 0; kind < 4; kind++) {
        vkmha_plan_params plan = shape_of(BATCH, QUERIES, KEYS);
        plan.has_key_lengths = kind == 0;
        plan.has_attend_keys = kind == 1;
        if (kind >= 2) {
            plan.mask = kind == 2 ? VKMHA_MASK_ATTEND : VKMHA_MASK_ADDITIVE;
            const uint64_t dims[4] = {BATCH, 1, QUERIES, KEYS};
            memcpy(plan.mask_dims, dims, sizeof(dims));
        }
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "F05 masked NaN, mask kind %u", kind);
        if (kind == 0) {
            memcpy(problem.key_lengths, lengths, sizeof(lengths));
        }
        bool is_masked[BATCH * KEYS];
        for (uint32_t i = 0; i < BATCH * KEYS; i++) {
            const uint32_t j = i % KEYS;
            is_masked[i] = kind == 0 ? (int32_t)j >= lengths[i / KEYS] : j % 3 == 1 || j > 70;
            if (kind == 1) {
                problem.attend_keys[i] = !is_masked[i];
            }
        }
        for (uint32_t i = 0; i < BATCH * QUERIES * KEYS && kind >= 2; i++) {
            const bool masked = is_masked[i / (QUERIES * KEYS) * KEYS + i % KEYS];
            if (kind == 2) {
                problem.attend_mask[i] = !masked;
            } else {
                problem.additive_mask[i] = masked ? -INFINITY : 0.25f;
            }
        }
        float *clean = vkmha_test_run(target, &problem);
        for (size_t p = 0; p < sizeof(poisons) / sizeof(poisons[0]); p++) {
            for (uint32_t i = 0; i < BATCH * KEYS; i++) {
                if (is_masked[i]) {
                    poison_row(problem.key, i, ROW, poisons[p]);
                    poison_row(problem.value, i, ROW, poisons[p]);
                }
            }
            float *poisoned = vkmha_test_run(target, &problem);
            vkmha_test_same_bits(target, &problem, "a masked value changed a bit", poisoned, clean,
                                 problem.num_output);
            free(poisoned);
        }
        free(clean);
        vkmha_test_problem_finish(&problem);
    }
}

Test(attention, F05_masked_nan_changes_no_bit)
{
    vkmha_test_each_attention_row(masked_nan);
}

static void attended_nan(const vkmha_test_target *target)
{
    enum { LEN = 45, POISONED = 20, DIM = 8 };
    const vkmha_layer_params layer = heads_of(1, DIM, 0);
    vkmha_plan_params plan = shape_of(1, LEN, LEN);
    plan.causal = VKMHA_CAUSAL_TOP_LEFT;
    for (uint32_t tensor = 0; tensor < 3; tensor++) {
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "attended NaN in %s",
                                tensor == 0   ? "query"
                                : tensor == 1 ? "key"
                                              : "value");
        float *clean = vkmha_test_run(target, &problem);
        float *tensors[] = {problem.query, problem.key, problem.value};
        poison_row(tensors[tensor], POISONED, DIM, NAN);
        float *poisoned = vkmha_test_run(target, &problem);
        for (uint32_t i = 0; i < LEN; i++) {
            const bool sees = tensor == 0 ? i == POISONED : i >= POISONED;
            if (!sees) {
                vkmha_test_same_bits(target, &problem, "a row that sees no NaN", poisoned + i * DIM,
                                     clean + i * DIM, DIM);
                continue;
            }
            for (uint32_t d = 0; d < DIM; d++) {
                cr_assert(isnan(poisoned[i * DIM + d]), "%s, %s: row %u feature %u is %g, not NaN",
                          target->attention_kernel, problem.name, i, d,
                          (double)poisoned[i * DIM + d]);
            }
        }
        free(clean);
        free(poisoned);
        vkmha_test_problem_finish(&problem);
    }
}

Test(attention, F05_attended_nan_poisons_its_rows)
{
    vkmha_test_each_attention_row(attended_nan);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static void lowest_mask(const vkmha_test_target *target)
{
    enum { LEN = 40, DIM = 8 };
    const vkmha_layer_params layer = heads_of(1, DIM, 0);
    vkmha_plan_params plan = shape_of(1, LEN, LEN);
    plan.mask = VKMHA_MASK_ADDITIVE;
    plan.mask_dims[0] = plan.mask_dims[1] = 1;
    plan.mask_dims[2] = plan.mask_dims[3] = LEN;
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "F03 a row of -FLT_MAX");
    vkmha_test_fill(problem.additive_mask, LEN * LEN, 0.0f);
    vkmha_test_fill(problem.additive_mask + 2 * LEN, LEN, -FLT_MAX);
    float *output = vkmha_test_run(target, &problem);
    float mean[DIM] = {0};
    for (uint32_t j = 0; j < LEN; j++) {
        for (uint32_t d = 0; d < DIM; d++) {
            mean[d] += problem.value[j * DIM + d] / LEN;
        }
    }
    vkmha_test_near(target, &problem, output + 2 * DIM, mean, DIM, 1e-5);
    free(output);
    vkmha_test_check(target, &problem);
    vkmha_test_problem_finish(&problem);
}

Test(attention, F03_lowest_additive_mask)
{
    vkmha_test_each_attention_row(lowest_mask);
}

static void large_logits(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = heads_of(2, 64, 0);
    const vkmha_plan_params plan = shape_of(1, 9, 100);
    const float amplitudes[] = {30.0f, 1000.0f};
    for (size_t a = 0; a < sizeof(amplitudes) / sizeof(amplitudes[0]); a++) {
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "logits of amplitude %g",
                                (double)(amplitudes[a] * amplitudes[a]));
        for (uint64_t i = 0; i < problem.num_query; i++) {
            problem.query[i] *= amplitudes[a];
        }
        for (uint64_t i = 0; i < problem.num_key; i++) {
            problem.key[i] *= amplitudes[a];
        }
        vkmha_test_check(target, &problem);
        vkmha_test_problem_finish(&problem);
    }
    vkmha_plan_params pair = shape_of(1, 1, 2);
    const vkmha_layer_params wide = heads_of(1, 32, 0);
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &wide, &pair, "F07 logits of 131072 before scaling");
    vkmha_test_fill(problem.query, 32, 64.0f);
    vkmha_test_fill(problem.key, 32, 64.0f);
    vkmha_test_fill(problem.key + 32, 32, 63.0f);
    float *output = vkmha_test_run(target, &problem);
    vkmha_test_near(target, &problem, output, problem.value, 32, 0.0);
    free(output);
    vkmha_test_problem_finish(&problem);
}

Test(attention, F07_large_logits)
{
    vkmha_test_each_attention_row(large_logits);
}

static void constant_values(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = heads_of(1, 8, 0);
    const vkmha_plan_params plan = shape_of(1, 3, 4096);
    const float constants[] = {100.0f, 70000.0f};
    for (size_t c = 0; c < sizeof(constants) / sizeof(constants[0]); c++) {
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "V = %g over 4096 keys",
                                (double)constants[c]);
        vkmha_test_fill(problem.value, problem.num_value, constants[c]);
        float *output = vkmha_test_run(target, &problem);
        float *expected = vkmha_test_allocate(problem.num_output, sizeof(float));
        vkmha_test_fill(expected, problem.num_output, constants[c]);
        vkmha_test_near(target, &problem, output, expected, problem.num_output,
                        1e-5 * constants[c]);
        free(expected);
        free(output);
        vkmha_test_check(target, &problem);
        vkmha_test_problem_finish(&problem);
    }
}

Test(attention, constant_values)
{
    vkmha_test_each_attention_row(constant_values);
}

/* With a query of zeros the weights are uniform, so V = j tells which keys took part. */
static void key_numbers(const vkmha_test_target *target)
{
    const uint64_t key_lens[] = {1, 7, 31, 33, 63, 64, 65, 77, 100, 1025};
    const vkmha_layer_params layer = heads_of(2, 8, 0);
    for (size_t n = 0; n < sizeof(key_lens) / sizeof(key_lens[0]); n++) {
        const vkmha_plan_params plan = shape_of(1, 3, key_lens[n]);
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "F33 V = j, key_len %llu",
                                (unsigned long long)key_lens[n]);
        vkmha_test_fill(problem.query, problem.num_query, 0.0f);
        for (uint64_t j = 0; j < key_lens[n]; j++) {
            poison_row(problem.value, j, 16, (float)j);
        }
        const double mean = (double)(key_lens[n] - 1) / 2.0;
        float *output = vkmha_test_run(target, &problem);
        float *expected = vkmha_test_allocate(problem.num_output, sizeof(float));
        vkmha_test_fill(expected, problem.num_output, (float)mean);
        vkmha_test_near(target, &problem, output, expected, problem.num_output, 1e-5 * mean);
        free(expected);
        free(output);
        vkmha_test_problem_finish(&problem);
    }
}

Test(attention, F33_values_name_their_keys)
{
    vkmha_test_each_attention_row(key_numbers);
}

/* V is the identity, so the output is the softmax weights themselves. */
static void one_hot_values(const vkmha_test_target *target)
{
    enum { KEYS = 64, QUERIES = 5 };
    const vkmha_layer_params layer = heads_of(1, 8, KEYS);
    const vkmha_plan_params plan = shape_of(1, QUERIES, KEYS);
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "one-hot V");
    for (uint64_t i = 0; i < problem.num_value; i++) {
        problem.value[i] = i / KEYS == i % KEYS ? 1.0f : 0.0f;
    }
    float *output = vkmha_test_run(target, &problem);
    for (uint32_t i = 0; i < QUERIES; i++) {
        double sum = 0.0;
        for (uint32_t j = 0; j < KEYS; j++) {
            cr_assert(output[i * KEYS + j] > 0.0f, "query %u gives key %u no weight", i, j);
            sum += output[i * KEYS + j];
        }
        cr_assert(fabs(sum - 1.0) < 1e-5, "%s: the weights of query %u sum to %.9g",
                  target->attention_kernel, i, sum);
    }
    free(output);
    vkmha_test_check(target, &problem);
    vkmha_test_problem_finish(&problem);
}

Test(attention, F16_one_hot_values_show_the_weights)
{
    vkmha_test_each_attention_row(one_hot_values);
}

/* Uniform weights over a power of two of keys: a mean of small integers is exact in any order. */
static void exact_means(const vkmha_test_target *target)
{
    enum { KEYS = 128, DIM = 8 };
    const vkmha_layer_params layer = heads_of(1, DIM, 0);
    const vkmha_plan_params plan = shape_of(1, 33, KEYS);
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "small integers");
    vkmha_test_fill(problem.query, problem.num_query, 0.0f);
    vkmha_test_fill_integers(problem.value, problem.num_value, 60);
    float mean[DIM] = {0};
    for (uint32_t i = 0; i < KEYS * DIM; i++) {
        mean[i % DIM] += problem.value[i] / KEYS;
    }
    float *output = vkmha_test_run(target, &problem);
    for (uint64_t i = 0; i < plan.query_len; i++) {
        vkmha_test_near(target, &problem, output + i * DIM, mean, DIM, 0.0);
    }
    free(output);
    vkmha_test_problem_finish(&problem);
}

Test(attention, small_integers_are_exact)
{
    vkmha_test_each_attention_row(exact_means);
}
