/* Tensors of random problems. */
#include "shape.h"

#include <math.h>
#include <string.h>

void *vkmha_filler_allocate(vkmha_filler *fill, uint64_t count, uint64_t size)
{
    void *memory = fill->has_memory ? vkmha_pool_allocate(&fill->shape->pool, count, size) : NULL;
    fill->has_memory = memory != NULL;
    return memory;
}

float vkmha_filler_value(vkmha_filler *fill)
{
    if (vkmha_shape_has(fill->shape, VKMHA_FEATURE_INTEGERS)) {
        return (float)vkmha_random_below(&fill->random, 7) - 3.0f;
    }
    return ((float)vkmha_random_below(&fill->random, 257) - 128.0f) / 64.0f;
}

float *vkmha_filler_tensor(vkmha_filler *fill, uint64_t count)
{
    float *values = vkmha_filler_allocate(fill, count, sizeof(float));
    for (uint64_t i = 0; values && i < count; i++) {
        values[i] = vkmha_filler_value(fill);
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

static vkmha_type draw_type(vkmha_filler *fill)
{
    static const vkmha_type types[] = {VKMHA_TYPE_F32, VKMHA_TYPE_F32, VKMHA_TYPE_F16,
                                       VKMHA_TYPE_BF16};
    const vkmha_type type =
        types[vkmha_random_below(&fill->random, sizeof(types) / sizeof(types[0]))];
    if (type != VKMHA_TYPE_F32) {
        if (!vkmha_filler_takes(fill, VKMHA_OPTION_WEIGHT_TYPES)) {
            return VKMHA_TYPE_F32;
        }
        vkmha_shape_mark(fill->shape, type == VKMHA_TYPE_F16 ? VKMHA_FEATURE_WEIGHTS_F16
                                                             : VKMHA_FEATURE_WEIGHTS_BF16);
    }
    return type;
}

/* Quarters of the values above, so that projected values keep their size. */
static float draw_weight(vkmha_filler *fill)
{
    const float value = vkmha_filler_value(fill);
    return vkmha_shape_has(fill->shape, VKMHA_FEATURE_INTEGERS) ? value : value / 4.0f;
}

static vkmha_matrix draw_matrix(vkmha_filler *fill, uint64_t rows, uint64_t columns)
{
    vkmha_matrix matrix = {.type = draw_type(fill), .rows = rows, .columns = columns};
    void *data = vkmha_filler_allocate(fill, rows * columns, sizeof(float));
    if (vkmha_random_chance(&fill->random, 15)) {
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

static vkmha_vector draw_vector(vkmha_filler *fill, uint64_t size)
{
    const bool is_left_out = vkmha_random_chance(&fill->random, 30);
    if (is_left_out || !vkmha_filler_takes(fill, VKMHA_OPTION_BIASES)) {
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_NO_BIAS);
        return (vkmha_vector){0};
    }
    vkmha_shape_mark(fill->shape, VKMHA_FEATURE_BIAS);
    const vkmha_type type = draw_type(fill);
    void *data = vkmha_filler_allocate(fill, size, sizeof(float));
    for (uint64_t i = 0; data && i < size; i++) {
        store_element(data, type, i, vkmha_filler_value(fill));
    }
    return (vkmha_vector){.data = data, .type = type, .size = size};
}

static void draw_weights(vkmha_filler *fill)
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
}

static void draw_biases(vkmha_filler *fill)
{
    vkmha_layer_params *layer = &fill->shape->problem.layer;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(&fill->shape->problem);
    layer->b_q = draw_vector(fill, (uint64_t)layer->num_heads * layer->head_dim);
    layer->b_k = draw_vector(fill, sizes.num_kv_heads * layer->head_dim);
    layer->b_v = draw_vector(fill, sizes.num_kv_heads * sizes.v_head_dim);
    layer->b_o = draw_vector(fill, sizes.output_dim);
}

/* ---- Inputs -------------------------------------------------------------------------------- */

/* The inputs without gaps, before they are laid where the strides say. */
typedef struct input_set {
    float *query;
    float *key;   /* `query` where both are one tensor */
    float *value; /* NULL where it is the key's */
} input_set;

static void set_row(const vkmha_span *span, float *values, uint64_t b, uint64_t s, float value)
{
    const vkmha_strides *strides = &span->strides;
    for (uint64_t h = 0; h < span->heads; h++) {
        float *row = values + b * strides->batch + s * strides->row + h * strides->head;
        for (uint64_t d = 0; d < span->features; d++) {
            row[d] = value;
        }
    }
}

static bool is_ever_seen(const vkmha_problem *problem, const vkmha_problem_item *item, uint64_t b,
                         uint64_t j)
{
    for (uint64_t h = 0; h < problem->layer.num_heads; h++) {
        for (uint64_t i = 0; i < item->query_length; i++) {
            if (vkmha_shape_allows(problem, item, b, h, i, j)) {
                return true;
            }
        }
    }
    return false;
}

/* One key of the past, in every head. */
static void set_past(const vkmha_problem *problem, uint64_t b, uint64_t j, float value)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t past_len = problem->plan.past_len;
    /* The shape's own tensors, which are const only to those that read them. */
    float *past_key = (float *)problem->inputs.past_key;
    float *past_value = (float *)problem->inputs.past_value;
    for (uint64_t h = 0; h < sizes.num_kv_heads; h++) {
        const uint64_t row = (b * sizes.num_kv_heads + h) * past_len + j;
        for (uint64_t d = 0; d < problem->layer.head_dim; d++) {
            past_key[row * problem->layer.head_dim + d] = value;
        }
        for (uint64_t d = 0; d < sizes.v_head_dim; d++) {
            past_value[row * sizes.v_head_dim + d] = value;
        }
    }
}

static void poison(vkmha_filler *fill, const input_set *set)
{
    const vkmha_problem *problem = &fill->shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_span key = vkmha_problem_contiguous(problem, VKMHA_ROLE_KEY);
    const vkmha_span value = vkmha_problem_contiguous(problem, VKMHA_ROLE_VALUE);
    const bool is_query = set->key == set->query;
    /*
     * Junk that is projected, turned, or a query itself, must not overflow fp32, where the
     * reference's double does not, nor leave exact integers.
     */
    const bool is_plain =
        problem->layer.attention_only && !is_query && problem->layer.rope.style == VKMHA_ROPE_NONE;
    /* Scores that are told of keys that are not allowed must not overflow either, nor be capped. */
    const bool tells_masked =
        plan->scores == VKMHA_SCORES_SCALED || plan->scores == VKMHA_SCORES_CAPPED;
    const float junk = is_plain && !tells_masked ? 3.0e38f : 1.0e3f;
    /* A query that is Inf makes scores that fp32 and double turn into different things. */
    const float values[] = {NAN, junk, NAN, INFINITY, -INFINITY};
    const uint64_t num_values = is_query || tells_masked ? 2 : sizeof(values) / sizeof(values[0]);
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const vkmha_problem_item item = vkmha_problem_sequence(problem, b);
        for (uint64_t j = 0; j < plan->past_len + item.new_keys; j++) {
            if (is_ever_seen(problem, &item, b, j)) {
                continue;
            }
            const float bad = values[vkmha_random_below(&fill->random, num_values)];
            vkmha_shape_mark(fill->shape, VKMHA_FEATURE_POISON);
            if (j < plan->past_len) {
                set_past(problem, b, j, bad);
                continue;
            }
            const uint64_t row = j - plan->past_len + (plan->is_packed ? item.first_key_row : 0);
            const uint64_t batch = plan->is_packed ? 0 : b;
            set_row(&key, set->key, batch, row, bad);
            if (set->value) {
                set_row(&value, set->value, batch, row, bad);
            }
        }
    }
}

/* attention_only: values whose averages tell which keys were seen. */
static void set_probe_values(vkmha_filler *fill, float *values)
{
    const vkmha_span span = vkmha_problem_contiguous(&fill->shape->problem, VKMHA_ROLE_VALUE);
    const bool is_one_hot = vkmha_shape_has(fill->shape, VKMHA_FEATURE_ONE_HOT);
    const bool is_index = vkmha_shape_has(fill->shape, VKMHA_FEATURE_INDEX_VALUES);
    const bool is_constant = vkmha_shape_has(fill->shape, VKMHA_FEATURE_CONSTANT_VALUES);
    if (!is_one_hot && !is_index && !is_constant) {
        return;
    }
    for (uint64_t b = 0; b < span.batch; b++) {
        for (uint64_t j = 0; j < span.rows; j++) {
            set_row(&span, values, b, j, is_one_hot ? 0.0f : is_index ? (float)j : 100.0f);
            for (uint64_t h = 0; is_one_hot && h < span.heads; h++) {
                values[b * span.strides.batch + j * span.strides.row + h * span.strides.head +
                       j % span.features] = 1.0f;
            }
        }
    }
}

static bool has_repeated_batch(const vkmha_problem *problem)
{
    return vkmha_problem_span(problem, VKMHA_ROLE_QUERY).strides.batch == 0 ||
           vkmha_problem_span(problem, VKMHA_ROLE_KEY).strides.batch == 0 ||
           vkmha_problem_span(problem, VKMHA_ROLE_VALUE).strides.batch == 0;
}

static void spoil_inputs(vkmha_shape *shape, const input_set *set)
{
    const vkmha_problem *problem = &shape->problem;
    vkmha_filler poisoner = vkmha_filler_start(shape, VKMHA_OPTION_POISON);
    const uint32_t percent = set->key == set->query ? 10 : 60;
    /* A repeated tensor's rows are seen by other sequences too. */
    if (vkmha_random_chance(&poisoner.random, percent) &&
        (problem->plan.is_packed || !has_repeated_batch(problem)) &&
        vkmha_filler_takes(&poisoner, VKMHA_OPTION_POISON)) {
        poison(&poisoner, set);
    }
    vkmha_filler spoiler = vkmha_filler_start(shape, VKMHA_OPTION_NAN_QUERY);
    const vkmha_span query = vkmha_problem_contiguous(problem, VKMHA_ROLE_QUERY);
    const uint64_t rows = query.batch * query.rows;
    if (vkmha_random_chance(&spoiler.random, 2) && rows > 0 &&
        vkmha_filler_takes(&spoiler, VKMHA_OPTION_NAN_QUERY)) {
        const uint64_t row = vkmha_random_below(&spoiler.random, rows);
        set_row(&query, set->query, row / query.rows, row % query.rows, NAN);
        vkmha_shape_mark(shape, VKMHA_FEATURE_NAN_QUERY);
    }
}

/* The memories of query, key and value; between their elements there is NaN. */
static void lay_out(vkmha_filler *fill, const input_set *set)
{
    vkmha_problem *problem = &fill->shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    const float *values[] = {set->query, set->key == set->query ? NULL : set->key, set->value};
    const vkmha_role home_of_key = plan->key_is_query ? VKMHA_ROLE_QUERY : VKMHA_ROLE_KEY;
    const vkmha_role homes[] = {VKMHA_ROLE_QUERY, home_of_key,
                                plan->value_is_key ? home_of_key : VKMHA_ROLE_VALUE};
    uint64_t extents[3] = {0};
    for (uint32_t role = 0; role < 3; role++) {
        const vkmha_span span = vkmha_problem_span(problem, (vkmha_role)role);
        const uint64_t extent = vkmha_span_extent(&span);
        extents[homes[role]] = extent > extents[homes[role]] ? extent : extents[homes[role]];
    }
    float *memories[3] = {NULL};
    for (uint32_t role = 0; role < 3; role++) {
        if ((uint32_t)homes[role] == role) {
            memories[role] = vkmha_filler_allocate(fill, extents[role], sizeof(float));
            for (uint64_t i = 0; memories[role] && i < extents[role]; i++) {
                memories[role][i] = NAN;
            }
        }
    }
    for (uint32_t role = 0; fill->has_memory && role < 3; role++) {
        if (values[role]) {
            const vkmha_span from = vkmha_problem_contiguous(problem, (vkmha_role)role);
            const vkmha_span to = vkmha_problem_span(problem, (vkmha_role)role);
            vkmha_span_copy(&from, values[role], &to, memories[homes[role]]);
        }
    }
    problem->inputs.query = memories[VKMHA_ROLE_QUERY];
    problem->inputs.key = memories[VKMHA_ROLE_KEY];
    problem->inputs.value = memories[VKMHA_ROLE_VALUE];
}

static void draw_inputs(vkmha_filler *fill)
{
    const vkmha_problem *problem = &fill->shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    /* Tensors side by side in one memory are tensors of their own. */
    const bool has_key = !plan->key_is_query || plan->key_strides.is_given;
    const bool has_value = !plan->value_is_key || plan->value_strides.is_given;
    input_set set = {
        .query = vkmha_filler_tensor(fill, sizes.query_rows * sizes.query_dim),
    };
    set.key = has_key ? vkmha_filler_tensor(fill, sizes.key_rows * sizes.key_dim) : set.query;
    set.value = has_value ? vkmha_filler_tensor(fill, sizes.key_rows * sizes.value_dim) : NULL;
    if (!fill->has_memory) {
        return;
    }
    if (set.value) {
        set_probe_values(fill, set.value);
    }
    spoil_inputs(fill->shape, &set);
    lay_out(fill, &set);
}

bool vkmha_shape_fill(vkmha_shape *shape)
{
    vkmha_filler weights = vkmha_filler_start(shape, VKMHA_STREAM_WEIGHTS);
    vkmha_filler biases = vkmha_filler_start(shape, VKMHA_OPTION_BIASES);
    vkmha_filler inputs = vkmha_filler_start(shape, VKMHA_STREAM_INPUTS);
    if (!shape->problem.layer.attention_only) {
        draw_weights(&weights);
        draw_biases(&biases);
    }
    draw_inputs(&inputs);
    return weights.has_memory && biases.has_memory && inputs.has_memory;
}
