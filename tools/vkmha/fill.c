/* Tensors of random problems. */
#include "shape.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct filler {
    vkmha_random *random;
    vkmha_shape *shape;
    bool has_memory;
} filler;

static void *allocate(filler *fill, uint64_t count, uint64_t size)
{
    void *memory = fill->has_memory ? vkmha_pool_allocate(&fill->shape->pool, count, size) : NULL;
    fill->has_memory = memory != NULL;
    return memory;
}

/* Multiples of 1/64 within 2, or integers within 3: exact in every type. */
static float draw_value(filler *fill)
{
    if (vkmha_shape_has(fill->shape, VKMHA_FEATURE_INTEGERS)) {
        return (float)vkmha_random_below(fill->random, 7) - 3.0f;
    }
    return ((float)vkmha_random_below(fill->random, 257) - 128.0f) / 64.0f;
}

static float *draw_tensor(filler *fill, uint64_t count)
{
    float *values = allocate(fill, count, sizeof(float));
    for (uint64_t i = 0; values && i < count; i++) {
        values[i] = draw_value(fill);
    }
    return values;
}

/* ---- Weights ------------------------------------------------------------------------------- */

/* Values here have at most 8 significant bits and small exponents, so both 16-bit types hold them.
 */
static void store_element(void *data, vkmha_type type, uint64_t index, float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof(value));
    uint16_t half = 0;
    switch (type) {
    case VKMHA_TYPE_F32:
        memcpy((char *)data + 4 * index, &value, sizeof(value));
        return;
    case VKMHA_TYPE_F16:
        if ((bits & 0x7fffffffu) != 0) {
            const uint32_t exponent = (bits >> 23 & 0xffu) - 127u + 15u;
            half = (uint16_t)((bits >> 16 & 0x8000u) | exponent << 10 | (bits & 0x7fffffu) >> 13);
        }
        break;
    case VKMHA_TYPE_BF16:
        half = (uint16_t)(bits >> 16);
        break;
    }
    memcpy((char *)data + 2 * index, &half, sizeof(half));
}

static vkmha_type draw_type(filler *fill)
{
    static const vkmha_type types[] = {VKMHA_TYPE_F32, VKMHA_TYPE_F32, VKMHA_TYPE_F16,
                                       VKMHA_TYPE_BF16};
    const vkmha_type type =
        types[vkmha_random_below(fill->random, sizeof(types) / sizeof(types[0]))];
    if (type != VKMHA_TYPE_F32) {
        vkmha_shape_mark(fill->shape, type == VKMHA_TYPE_F16 ? VKMHA_FEATURE_WEIGHTS_F16
                                                             : VKMHA_FEATURE_WEIGHTS_BF16);
    }
    return type;
}

/* Quarters of the values above, so that projected values keep their size. */
static float draw_weight(filler *fill)
{
    const float value = draw_value(fill);
    return vkmha_shape_has(fill->shape, VKMHA_FEATURE_INTEGERS) ? value : value / 4.0f;
}

static vkmha_matrix draw_matrix(filler *fill, uint64_t rows, uint64_t columns)
{
    vkmha_matrix matrix = {.type = draw_type(fill), .rows = rows, .columns = columns};
    void *data = allocate(fill, rows * columns, sizeof(float));
    if (vkmha_random_chance(fill->random, 15)) {
        matrix.row_stride = 1;
        matrix.column_stride = rows;
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_WEIGHTS_STRIDED);
    }
    for (uint64_t i = 0; data && i < rows * columns; i++) {
        store_element(data, matrix.type, i, draw_weight(fill));
    }
    matrix.data = data;
    return matrix;
}

static vkmha_vector draw_vector(filler *fill, uint64_t size)
{
    if (vkmha_random_chance(fill->random, 30)) {
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_NO_BIAS);
        return (vkmha_vector){0};
    }
    vkmha_shape_mark(fill->shape, VKMHA_FEATURE_BIAS);
    const vkmha_type type = draw_type(fill);
    void *data = allocate(fill, size, sizeof(float));
    for (uint64_t i = 0; data && i < size; i++) {
        store_element(data, type, i, draw_value(fill));
    }
    return (vkmha_vector){.data = data, .type = type, .size = size};
}

static void draw_weights(filler *fill)
{
    vkmha_layer_params *layer = &fill->shape->problem.layer;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(&fill->shape->problem);
    const uint64_t query = (uint64_t)layer->num_heads * layer->head_dim;
    const uint64_t key = sizes.num_kv_heads * layer->head_dim;
    const uint64_t value = sizes.num_kv_heads * sizes.v_head_dim;
    layer->w_q = draw_matrix(fill, query, sizes.query_dim);
    layer->w_k = draw_matrix(fill, key, sizes.key_dim);
    layer->w_v = draw_matrix(fill, value, sizes.value_dim);
    layer->w_o = draw_matrix(fill, sizes.output_dim, layer->num_heads * sizes.v_head_dim);
    layer->b_q = draw_vector(fill, query);
    layer->b_k = draw_vector(fill, key);
    layer->b_v = draw_vector(fill, value);
    layer->b_o = draw_vector(fill, sizes.output_dim);
}

/* ---- Masks --------------------------------------------------------------------------------- */

/* One row of the mask gets one value. */
static void draw_mask_row(filler *fill, float *additive, uint8_t *attend, float value)
{
    const uint64_t *dims = fill->shape->problem.plan.mask_dims;
    const uint64_t rows = dims[0] * dims[1] * dims[2];
    if (rows == 0 || dims[3] == 0) {
        return;
    }
    const uint64_t row = vkmha_random_below(fill->random, rows);
    for (uint64_t j = 0; j < dims[3]; j++) {
        if (additive) {
            additive[row * dims[3] + j] = value;
        } else {
            attend[row * dims[3] + j] = 0;
        }
    }
    vkmha_shape_mark(fill->shape,
                     value == -FLT_MAX ? VKMHA_FEATURE_LOWEST_ROW : VKMHA_FEATURE_MASKED_ROW);
}

static void draw_mask(filler *fill)
{
    const vkmha_plan_params *plan = &fill->shape->problem.plan;
    const uint64_t *dims = plan->mask_dims;
    const uint64_t count = dims[0] * dims[1] * dims[2] * dims[3];
    const bool is_additive = plan->mask == VKMHA_MASK_ADDITIVE;
    float *additive = is_additive ? allocate(fill, count, sizeof(float)) : NULL;
    uint8_t *attend = is_additive ? NULL : allocate(fill, count, 1);
    if (!fill->has_memory) {
        return;
    }
    const float lowest = vkmha_random_chance(fill->random, 70) ? -INFINITY : -FLT_MAX;
    for (uint64_t i = 0; i < count; i++) {
        const bool is_kept = vkmha_random_chance(fill->random, 75);
        if (is_additive) {
            additive[i] = is_kept ? draw_value(fill) : lowest;
        } else {
            attend[i] = is_kept ? (uint8_t)(1 + vkmha_random_below(fill->random, 255)) : 0;
        }
    }
    if (vkmha_random_chance(fill->random, 40)) {
        draw_mask_row(fill, additive, attend, -INFINITY);
    }
    if (is_additive && vkmha_random_chance(fill->random, 40)) {
        draw_mask_row(fill, additive, attend, -FLT_MAX);
    }
    fill->shape->problem.inputs.mask = is_additive ? (const void *)additive : attend;
}

static void draw_keys_mask(filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    if (plan->has_attend_keys) {
        const uint64_t count = plan->batch_size * plan->key_len;
        uint8_t *attend = allocate(fill, count, 1);
        const bool is_empty = vkmha_random_chance(fill->random, 5);
        for (uint64_t i = 0; attend && i < count; i++) {
            attend[i] = !is_empty && vkmha_random_chance(fill->random, 70);
        }
        problem->inputs.attend_keys = attend;
    }
    if (plan->has_key_lengths) {
        int32_t *lengths = allocate(fill, plan->batch_size, sizeof(int32_t));
        for (uint64_t b = 0; lengths && b < plan->batch_size; b++) {
            lengths[b] = vkmha_random_chance(fill->random, 20)
                             ? (int32_t)plan->key_len
                             : (int32_t)vkmha_random_below(fill->random, plan->key_len + 1);
        }
        problem->inputs.key_lengths = lengths;
    }
}

/* ---- Inputs -------------------------------------------------------------------------------- */

/* The floats of position j of batch b, in every head. */
typedef struct rows_of_position {
    uint64_t first;
    uint64_t stride;
    uint64_t count;
    uint64_t features;
} rows_of_position;

static rows_of_position locate(const vkmha_problem *problem, uint64_t b, uint64_t j,
                               uint64_t length, uint64_t heads, uint64_t features)
{
    if (!problem->layer.attention_only) {
        return (rows_of_position){(b * length + j) * features, 0, 1, features};
    }
    const uint64_t head_dim = features / heads;
    if (problem->plan.layout == VKMHA_LAYOUT_BHSD) {
        return (rows_of_position){(b * heads * length + j) * head_dim, length * head_dim, heads,
                                  head_dim};
    }
    return (rows_of_position){(b * length + j) * features, head_dim, heads, head_dim};
}

static void set_position(float *values, rows_of_position rows, float value)
{
    for (uint64_t r = 0; r < rows.count; r++) {
        for (uint64_t d = 0; d < rows.features; d++) {
            values[rows.first + r * rows.stride + d] = value;
        }
    }
}

/* Keys that no query may see. */
static bool is_never_seen(const vkmha_problem *problem, uint64_t b, uint64_t j)
{
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_inputs *inputs = &problem->inputs;
    return (plan->has_key_lengths && j >= (uint64_t)inputs->key_lengths[b]) ||
           (plan->has_attend_keys && !inputs->attend_keys[b * plan->key_len + j]) ||
           (plan->causal == VKMHA_CAUSAL_TOP_LEFT && j >= plan->query_len);
}

static void poison(filler *fill, float *key, float *value)
{
    const vkmha_problem *problem = &fill->shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    /*
     * Junk that is projected, or a query itself, must not overflow fp32, where the reference's
     * double does not, nor leave exact integers.
     */
    const float junk = problem->layer.attention_only && !plan->key_is_query ? 3.0e38f : 1.0e3f;
    /* A query that is Inf makes scores that fp32 and double turn into different things. */
    const float values[] = {NAN, junk, NAN, INFINITY, -INFINITY};
    const uint64_t num_values = plan->key_is_query ? 2 : sizeof(values) / sizeof(values[0]);
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        for (uint64_t j = 0; j < plan->key_len; j++) {
            if (!is_never_seen(problem, b, j)) {
                continue;
            }
            const float bad =
                values[vkmha_random_below(fill->random, num_values)];
            set_position(
                key, locate(problem, b, j, plan->key_len, sizes.num_kv_heads, sizes.key_dim), bad);
            if (value) {
                set_position(
                    value,
                    locate(problem, b, j, plan->key_len, sizes.num_kv_heads, sizes.value_dim), bad);
            }
            vkmha_shape_mark(fill->shape, VKMHA_FEATURE_POISON);
        }
    }
}

/* attention_only: values whose averages tell which keys were seen. */
static void set_probe_values(filler *fill, float *value)
{
    const vkmha_problem *problem = &fill->shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const bool is_one_hot = vkmha_shape_has(fill->shape, VKMHA_FEATURE_ONE_HOT);
    const bool is_index = vkmha_shape_has(fill->shape, VKMHA_FEATURE_INDEX_VALUES);
    const bool is_constant = vkmha_shape_has(fill->shape, VKMHA_FEATURE_CONSTANT_VALUES);
    if (!is_one_hot && !is_index && !is_constant) {
        return;
    }
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        for (uint64_t j = 0; j < plan->key_len; j++) {
            const rows_of_position rows =
                locate(problem, b, j, plan->key_len, sizes.num_kv_heads, sizes.value_dim);
            set_position(value, rows, is_one_hot ? 0.0f : is_index ? (float)j : 100.0f);
            for (uint64_t r = 0; is_one_hot && r < rows.count; r++) {
                value[rows.first + r * rows.stride + j % sizes.v_head_dim] = 1.0f;
            }
        }
    }
}

static void draw_inputs(filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    float *query = draw_tensor(fill, sizes.query_rows * sizes.query_dim);
    float *key = plan->key_is_query ? query : draw_tensor(fill, sizes.key_rows * sizes.key_dim);
    float *value = plan->value_is_key ? NULL : draw_tensor(fill, sizes.key_rows * sizes.value_dim);
    if (!fill->has_memory) {
        return;
    }
    if (value) {
        set_probe_values(fill, value);
    }
    if (vkmha_random_chance(fill->random, plan->key_is_query ? 10 : 60)) {
        poison(fill, key, value);
    }
    if (vkmha_random_chance(fill->random, 2) && sizes.query_rows > 0) {
        const uint64_t row = vkmha_random_below(fill->random, sizes.query_rows);
        set_position(query,
                     locate(problem, row / plan->query_len, row % plan->query_len, plan->query_len,
                            problem->layer.num_heads, sizes.query_dim),
                     NAN);
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_NAN_QUERY);
    }
    problem->inputs.query = query;
    problem->inputs.key = plan->key_is_query ? NULL : key;
    problem->inputs.value = value;
}

bool vkmha_shape_fill(vkmha_random *random, vkmha_shape *shape)
{
    filler fill = {random, shape, true};
    if (!shape->problem.layer.attention_only) {
        draw_weights(&fill);
    }
    if (shape->problem.plan.mask != VKMHA_MASK_NONE) {
        draw_mask(&fill);
    }
    draw_keys_mask(&fill);
    if (fill.has_memory) {
        draw_inputs(&fill);
    }
    return fill.has_memory;
}
