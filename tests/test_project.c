/*
 * The projection kernels, each row of the table on each device: every stage is compared with the
 * reference fed the device's own input of that stage.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "runtime/variants.h"

/* All stages of one run; each is NULL or what vkmha_outputs says. */
typedef struct stages {
    vkmha_chains chains;
    float *query;
    float *key;
    float *value;
    float *attention;
    float *output;
} stages;

static stages run_stages(const vkmha_test_target *target, const vkmha_test_problem *problem)
{
    const vkmha_layer_params *given = &problem->layer;
    const uint64_t queries = problem->plan.batch_size * problem->plan.query_len;
    const uint64_t keys = problem->plan.batch_size * problem->plan.key_len;
    stages made = {
        .query = vkmha_test_allocate(queries * given->w_q.rows, sizeof(float)),
        .key = vkmha_test_allocate(keys * given->w_k.rows, sizeof(float)),
        .value = vkmha_test_allocate(keys * given->w_v.rows, sizeof(float)),
        .attention = vkmha_test_allocate(queries * given->w_o.columns, sizeof(float)),
        .output = vkmha_test_allocate(problem->num_output, sizeof(float)),
    };
    const vkmha_outputs outputs = {
        .output = made.output,
        .projected_query = made.query,
        .projected_key = made.key,
        .projected_value = made.value,
        .attention = made.attention,
    };
    vkmha_error error;
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    vkmha_status status = vkmha_layer_create(target->device, given, &layer, &error);
    cr_assert(status == VKMHA_OK, "%s: layer: %s", problem->name, error.message);
    vkmha_plan_params params = problem->plan;
    params.project_kernel = target->project_kernel;
    params.attention_kernel = target->attention_kernel;
    status = vkmha_plan_create(layer, &params, &plan, &error);
    cr_assert(status == VKMHA_OK, "%s: plan: %s", problem->name, error.message);
    vkmha_plan_info info;
    vkmha_plan_get_info(plan, &info);
    made.chains = info.chains;
    status = vkmha_run(plan, &problem->inputs, &outputs, &error);
    cr_assert(status == VKMHA_OK, "%s: run: %s", problem->name, error.message);
    vkmha_plan_destroy(plan);
    vkmha_layer_destroy(layer);
    return made;
}

static void finish_stages(stages *made)
{
    free(made->query);
    free(made->key);
    free(made->value);
    free(made->attention);
    free(made->output);
}

static void compare_stage(const vkmha_test_target *target, const vkmha_test_problem *problem,
                          const char *stage, const float *input, uint64_t num_rows,
                          const vkmha_matrix *weight, const vkmha_vector *bias, uint64_t chain,
                          const float *got)
{
    const uint64_t count = num_rows * weight->rows;
    double *expected = vkmha_test_allocate(count, sizeof(double));
    double *bound = vkmha_test_allocate(count, sizeof(double));
    vkmha_error error;
    const vkmha_status status =
        vkmha_reference_project(input, num_rows, weight, bias, chain, expected, bound, &error);
    cr_assert(status == VKMHA_OK, "%s: %s: %s", problem->name, stage, error.message);
    vkmha_comparison comparison;
    vkmha_compare(got, expected, bound, count, &comparison);
    const uint64_t worst = comparison.worst_index;
    cr_assert(
        comparison.passed,
        "%s, %s, case %s, %s: row %llu column %llu is %.9g, the reference %.9g, the bound %.3g; "
        "%llu fail, VKMHA_TEST_SEED=%llu",
        target->device_name, target->project_kernel, problem->name, stage,
        (unsigned long long)(worst / weight->rows), (unsigned long long)(worst % weight->rows),
        (double)got[worst], expected[worst], bound[worst],
        (unsigned long long)comparison.num_failed, (unsigned long long)vkmha_test_seed());
    free(expected);
    free(bound);
}

static void check_stages(const vkmha_test_target *target, const vkmha_test_problem *problem)
{
    const vkmha_layer_params *layer = &problem->layer;
    const uint64_t queries = problem->plan.batch_size * problem->plan.query_len;
    const uint64_t keys = problem->plan.batch_size * problem->plan.key_len;
    const float *key = problem->plan.key_is_query ? problem->query : problem->key;
    const float *value = problem->plan.value_is_key ? key : problem->value;
    stages made = run_stages(target, problem);
    const uint64_t chain = made.chains.project;
    compare_stage(target, problem, "query", problem->query, queries, &layer->w_q, &layer->b_q,
                  chain, made.query);
    compare_stage(target, problem, "key", key, keys, &layer->w_k, &layer->b_k, chain, made.key);
    compare_stage(target, problem, "value", value, keys, &layer->w_v, &layer->b_v, chain,
                  made.value);
    compare_stage(target, problem, "output", made.attention, queries, &layer->w_o, &layer->b_o,
                  made.chains.output, made.output);
    finish_stages(&made);
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

/* Rows around the tile's, output columns around the tile's, depths around a vector and a slice of
 * them. */
static void tile_edges(const vkmha_test_target *target)
{
    vkmha_device_info info;
    vkmha_device_get_info(target->device, &info);
    vkmha_tile tile = {0};
    const vkmha_variant *variant = NULL;
    vkmha_error error;
    const vkmha_status status = vkmha_variant_pick(VKMHA_KERNEL_PROJECT, target->project_kernel,
                                                   &info.limits, 1, 1, &variant, &tile, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    const uint32_t depths[] = {1, 3, 4, 5, 31, 32, 33, 65};
    uint32_t number = 0;
    for (int32_t row_step = -1; row_step <= 1; row_step++) {
        for (int32_t column_step = -1; column_step <= 1; column_step++) {
            for (uint32_t i = 0; i < 3; i++) {
                const vkmha_layer_params layer = {
                    .num_heads = 2,
                    .head_dim = 5,
                    .embed_dim = depths[number++ % 8],
                    .output_dim = (uint32_t)((int64_t)tile.columns + column_step),
                };
                const uint64_t num_rows = (uint64_t)((int64_t)tile.rows + row_step);
                const vkmha_plan_params plan = {
                    .batch_size = 1,
                    .query_len = num_rows,
                    .key_len = num_rows,
                    .key_is_query = true,
                    .value_is_key = true,
                };
                vkmha_test_problem problem;
                vkmha_test_problem_init(&problem, &layer, &plan, "%llu rows, %u columns, depth %u",
                                        (unsigned long long)num_rows, layer.output_dim,
                                        layer.embed_dim);
                check_stages(target, &problem);
                vkmha_test_problem_finish(&problem);
            }
        }
    }
}

Test(project, tile_edges, .timeout = 300)
{
    vkmha_test_each_project_row(tile_edges);
}

/* Self, cross and separate inputs: one, two and three packed matrices; head dims that need padding
 * or none. */
static void input_sharing(const vkmha_test_target *target)
{
    for (uint32_t sharing = 0; sharing < 3; sharing++) {
        for (uint32_t head_dim = 3; head_dim <= 8; head_dim += 5) {
            vkmha_layer_params layer = {
                .num_heads = 6,
                .num_kv_heads = 2,
                .head_dim = head_dim,
                .v_head_dim = head_dim + 2,
                .embed_dim = 36,
                .output_dim = 10,
            };
            layer.key_dim = sharing == 0 ? 0 : 20;
            layer.value_dim = sharing == 2 ? 7 : layer.key_dim;
            const vkmha_plan_params plan = {
                .batch_size = 3,
                .query_len = 11,
                .key_len = sharing == 0 ? 11 : 13,
                .key_is_query = sharing == 0,
                .value_is_key = sharing <= 1,
            };
            vkmha_test_problem problem;
            vkmha_test_problem_init(&problem, &layer, &plan, "%s inputs, head_dim %u",
                                    sharing == 0   ? "shared"
                                    : sharing == 1 ? "two"
                                                   : "three",
                                    head_dim);
            check_stages(target, &problem);
            problem.layer.b_k = (vkmha_vector){0};
            problem.layer.b_o = (vkmha_vector){0};
            check_stages(target, &problem);
            vkmha_test_problem_finish(&problem);
        }
    }
}

Test(project, shared_and_separate_inputs, .timeout = 300)
{
    vkmha_test_each_project_row(input_sharing);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Sums of small integers are exact in any order, so a single lost or doubled product shows. */
static void exact_products(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = {.num_heads = 3, .head_dim = 7, .embed_dim = 131};
    const vkmha_plan_params plan = {
        .batch_size = 2,
        .query_len = 19,
        .key_len = 19,
        .key_is_query = true,
        .value_is_key = true,
    };
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "small integers");
    vkmha_test_fill_integers(problem.query, problem.num_query, 8);
    vkmha_test_fill_integers(problem.weights[0], problem.layer.w_q.rows * layer.embed_dim, 8);
    vkmha_test_fill_integers(problem.biases[0], problem.layer.b_q.size, 8);
    stages made = run_stages(target, &problem);
    const uint64_t count = 2 * 19 * problem.layer.w_q.rows;
    float *expected = vkmha_test_allocate(count, sizeof(float));
    double *exact = vkmha_test_allocate(count, sizeof(double));
    vkmha_error error;
    const vkmha_status status = vkmha_reference_project(problem.query, 2 * 19, &problem.layer.w_q,
                                                        &problem.layer.b_q, 0, exact, NULL, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    for (uint64_t i = 0; i < count; i++) {
        expected[i] = (float)exact[i];
    }
    vkmha_test_near(target, &problem, made.query, expected, count, 0.0);
    free(expected);
    free(exact);
    finish_stages(&made);
    vkmha_test_problem_finish(&problem);
}

Test(project, small_integers_are_exact)
{
    vkmha_test_each_project_row(exact_products);
}

/* A unit vector as input picks a column of W: more bytes than maxStorageBufferRange of many
 * devices. */
static void large_weights(const vkmha_test_target *target)
{
    enum { WIDTH = 5800, HEADS = 29, PICKED = 4321 };
    const vkmha_layer_params layer = {
        .num_heads = HEADS,
        .head_dim = WIDTH / HEADS,
        .v_head_dim = 1,
        .num_kv_heads = 1,
        .embed_dim = WIDTH,
        .key_dim = 1,
        .value_dim = 1,
        .output_dim = 1,
    };
    const vkmha_plan_params plan = {.batch_size = 1, .query_len = 1, .key_len = 1};
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "F51 5800 x 5800 weights");
    vkmha_test_fill(problem.query, WIDTH, 0.0f);
    problem.query[PICKED] = 1.0f;
    problem.layer.b_q = (vkmha_vector){0};
    stages made = run_stages(target, &problem);
    const float *weight = problem.weights[0];
    float *column = vkmha_test_allocate(WIDTH, sizeof(float));
    for (uint64_t n = 0; n < WIDTH; n++) {
        column[n] = weight[n * WIDTH + PICKED];
    }
    vkmha_test_near(target, &problem, made.query, column, WIDTH, 0.0);
    free(column);
    finish_stages(&made);
    vkmha_test_problem_finish(&problem);
}

Test(project, F51_weights_past_the_binding_range, .timeout = 300)
{
    vkmha_test_each_device(large_weights);
}

/* ---- Stored forms ---------------------------------------------------------------------------- */

static void stored_types(const vkmha_test_target *target)
{
    const vkmha_type types[] = {VKMHA_TYPE_F16, VKMHA_TYPE_BF16};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        vkmha_layer_params layer = {.num_heads = 2, .head_dim = 7, .embed_dim = 21};
        vkmha_matrix *matrices[] = {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o};
        vkmha_vector *vectors[] = {&layer.b_q, &layer.b_k, &layer.b_v, &layer.b_o};
        for (size_t m = 0; m < 4; m++) {
            matrices[m]->type = types[(i + m / 3) % 2]; /* the output's differs from the others' */
            vectors[m]->type = types[i];
        }
        const vkmha_plan_params plan = {
            .batch_size = 1,
            .query_len = 9,
            .key_len = 9,
            .key_is_query = true,
            .value_is_key = true,
        };
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "%s weights",
                                types[i] == VKMHA_TYPE_F16 ? "fp16" : "bf16");
        check_stages(target, &problem);
        vkmha_test_problem_finish(&problem);
    }
}

Test(project, fp16_and_bf16_weights)
{
    vkmha_test_each_project_row(stored_types);
}

/* A transposed view, as GPT-2 stores weights, and one with a row pitch give the bits of the plain
 * matrix. */
static void strided_weights(const vkmha_test_target *target)
{
    enum { WIDTH = 12, PITCH = 17 };
    const vkmha_layer_params layer = {.num_heads = 3, .head_dim = 4, .embed_dim = WIDTH};
    const vkmha_plan_params plan = {
        .batch_size = 2,
        .query_len = 5,
        .key_len = 5,
        .key_is_query = true,
        .value_is_key = true,
    };
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "F38 strided weights");
    float *plain = vkmha_test_run(target, &problem);
    const float *weight = problem.weights[0];
    float *other = vkmha_test_allocate(WIDTH * PITCH, sizeof(float));
    for (uint32_t form = 0; form < 2; form++) {
        const uint64_t row_stride = form == 0 ? 1 : PITCH;
        const uint64_t column_stride = form == 0 ? PITCH : 1;
        for (uint64_t r = 0; r < WIDTH; r++) {
            for (uint64_t c = 0; c < WIDTH; c++) {
                other[r * row_stride + c * column_stride] = weight[r * WIDTH + c];
            }
        }
        problem.layer.w_q.data = other;
        problem.layer.w_q.row_stride = row_stride;
        problem.layer.w_q.column_stride = column_stride;
        float *strided = vkmha_test_run(target, &problem);
        vkmha_test_same_bits(target, &problem, form == 0 ? "transposed" : "row pitch", strided,
                             plain, problem.num_output);
        free(strided);
    }
    free(other);
    free(plain);
    vkmha_test_problem_finish(&problem);
}

Test(project, F38_strided_weights)
{
    vkmha_test_each_project_row(strided_weights);
}
