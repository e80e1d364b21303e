/* Plain loops in double, each element with the error that fp32 kernels may make in it. */
#include <vkmha/vkmha_reference.h>

#include <inttypes.h>
#include <string.h>

#include "convert.h"
#include "host.h"
#include "params.h"
#include "reference_bound.h"

/* A tensor in double with what its elements may be off by; batch, head, position by strides. */
typedef struct vkmha_values {
    double *value;
    double *bound; /* NULL: exact */
    uint64_t batch_stride;
    uint64_t head_stride;
    uint64_t row_stride;
} vkmha_values;

/* Of one query: its keys, key_len of each at most; and the features of its result. */
typedef struct vkmha_scratch {
    uint64_t *key; /* those allowed, in ascending order */
    double *score;
    double *slack;     /* how far a kernel's score may be off */
    double *weight;    /* exp(score - maximum), not normalised */
    double *most;      /* what a kernel's weight is at most */
    double *moved;     /* how far the weighted sum may move, by weights and values that are off */
    double *farthest;  /* a value's largest distance from the average */
    double *magnitude; /* sum of |weighted values| */
    double *largest;   /* |value| */
} vkmha_scratch;

typedef struct vkmha_reference {
    const vkmha_layer_params *layer;
    const vkmha_plan_params *plan;
    const vkmha_inputs *inputs;
    vkmha_chains chains;
    double scale;
    double scale_off; /* of its fp32 form */
    vkmha_values query;
    vkmha_values key;
    vkmha_values value;
    vkmha_values attention;
    double *weights; /* the caller's, or NULL */
    vkmha_scratch scratch;
} vkmha_reference;

static double longest(uint64_t chain, uint64_t worst)
{
    return chain != 0 ? (double)chain : (double)worst;
}

static uint32_t at_most(uint64_t count, uint32_t limit)
{
    return count < limit ? (uint32_t)count : limit;
}

/* ---- Projections ----------------------------------------------------------------------------- */

/* Rows of features: exact fp32, or, where `value` is given, double with what each may be off by. */
typedef struct vkmha_feature_rows {
    const float *exact;
    const double *value;
    const double *bound;
} vkmha_feature_rows;

/* Products are summed a tile at a time, so that a weight is converted once for several rows. */
enum { TILE_ROWS = 16, TILE_FEATURES = 8, TILE_DEPTH = 64 };

typedef struct vkmha_project_tile {
    uint32_t rows;
    uint32_t features;
    uint32_t depth;
    double input[TILE_ROWS][TILE_DEPTH];
    double off[TILE_ROWS][TILE_DEPTH];
    double weight[TILE_DEPTH][TILE_FEATURES];
    /* Sums over the whole depth. */
    double sum[TILE_ROWS][TILE_FEATURES];
    double magnitude[TILE_ROWS][TILE_FEATURES]; /* of the products' absolute values */
    double carried[TILE_ROWS][TILE_FEATURES];   /* what the input's bounds make of it */
    double row_size[TILE_ROWS];                 /* of the input's absolute values */
    double feature_size[TILE_FEATURES];         /* of the weights' */
} vkmha_project_tile;

static void load_tile(vkmha_project_tile *tile, const vkmha_feature_rows *input, uint64_t first_row,
                      const vkmha_matrix *weight, uint64_t first_feature, uint64_t first_depth)
{
    for (uint32_t r = 0; r < tile->rows; r++) {
        const uint64_t row = (first_row + r) * weight->columns + first_depth;
        for (uint32_t k = 0; k < tile->depth; k++) {
            tile->input[r][k] =
                input->value ? input->value[row + k] : (double)input->exact[row + k];
            tile->off[r][k] = input->value ? input->bound[row + k] : 0.0;
            tile->row_size[r] += fabs(tile->input[r][k]) + tile->off[r][k];
        }
    }
    for (uint32_t k = 0; k < tile->depth; k++) {
        for (uint32_t f = 0; f < TILE_FEATURES; f++) {
            const uint64_t at = (first_feature + f) * weight->row_stride +
                                (first_depth + k) * weight->column_stride;
            if (f < tile->features) {
                tile->weight[k][f] = (double)vkmha_load_element(weight->data, weight->type, at);
            }
            tile->feature_size[f] += fabs(tile->weight[k][f]);
        }
    }
}

static void add_tile(vkmha_project_tile *tile)
{
    for (uint32_t r = 0; r < tile->rows; r++) {
        for (uint32_t k = 0; k < tile->depth; k++) {
            const double x = tile->input[r][k];
            const double off = tile->off[r][k];
            const double size = fabs(x) + off;
            for (uint32_t f = 0; f < TILE_FEATURES; f++) {
                const double w = tile->weight[k][f];
                tile->sum[r][f] += x * w;
                tile->magnitude[r][f] += size * fabs(w);
                tile->carried[r][f] += off * fabs(w);
            }
        }
    }
}

/* output[r, n] = sum_k input[r, k] * weight[n, k] + bias[n]; output and bound may be NULL. */
static void project(const vkmha_feature_rows *input, uint64_t rows, const vkmha_matrix *weight,
                    const vkmha_vector *bias, uint64_t chain, double *output, double *bound)
{
    /* The bias is one term more. */
    const double sum_error = vkmha_likely_error(longest(chain, weight->columns) + 1.0);
    for (uint64_t n = 0; n < weight->rows; n += TILE_FEATURES) {
        for (uint64_t row = 0; row < rows; row += TILE_ROWS) {
            vkmha_project_tile tile = {
                .rows = at_most(rows - row, TILE_ROWS),
                .features = at_most(weight->rows - n, TILE_FEATURES),
            };
            for (uint64_t k = 0; k < weight->columns; k += TILE_DEPTH) {
                tile.depth = at_most(weight->columns - k, TILE_DEPTH);
                load_tile(&tile, input, row, weight, n, k);
                add_tile(&tile);
            }
            for (uint32_t f = 0; f < tile.features; f++) {
                const bool has_bias = bias && bias->data;
                const double added =
                    has_bias ? (double)vkmha_load_element(bias->data, bias->type, n + f) : 0.0;
                for (uint32_t r = 0; r < tile.rows; r++) {
                    const uint64_t at = (row + r) * weight->rows + n + f;
                    const double flushed = VKMHA_FLUSH * ((double)weight->columns +
                                                          tile.row_size[r] + tile.feature_size[f]);
                    if (output) {
                        output[at] = tile.sum[r][f] + added;
                    }
                    if (bound) {
                        bound[at] = tile.carried[r][f] + flushed +
                                    sum_error * (tile.magnitude[r][f] + fabs(added));
                    }
                }
            }
        }
    }
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* Keys from here on are hidden from query i by lengths and causality. */
static uint64_t visible_keys(const vkmha_reference *reference, uint64_t b, uint64_t i)
{
    const vkmha_plan_params *plan = reference->plan;
    const int64_t length =
        plan->has_key_lengths ? reference->inputs->key_lengths[b] : (int64_t)plan->key_len;
    int64_t end = length;
    if (plan->causal == VKMHA_CAUSAL_TOP_LEFT) {
        end = (int64_t)i + 1;
    } else if (plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT) {
        end = (int64_t)i + 1 + length - (int64_t)plan->query_len;
    }
    return end < 0 ? 0 : end > length ? (uint64_t)length : (uint64_t)end;
}

static uint64_t mask_index(const vkmha_plan_params *plan, uint64_t b, uint64_t h, uint64_t i,
                           uint64_t j)
{
    const uint64_t *dims = plan->mask_dims;
    const uint64_t at[4] = {b, h, i, j};
    uint64_t index = 0;
    for (uint32_t axis = 0; axis < 4; axis++) {
        index = index * dims[axis] + (dims[axis] > 1 ? at[axis] : 0);
    }
    return index;
}

/* Whether the masks allow key j, and what an additive one adds to its score. */
static bool masks_allow(const vkmha_reference *reference, uint64_t b, uint64_t h, uint64_t i,
                        uint64_t j, double *added)
{
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_inputs *inputs = reference->inputs;
    *added = 0.0;
    if (plan->has_attend_keys && inputs->attend_keys[b * plan->key_len + j] == 0) {
        return false;
    }
    if (plan->mask == VKMHA_MASK_ATTEND) {
        return ((const uint8_t *)inputs->mask)[mask_index(plan, b, h, i, j)] != 0;
    }
    if (plan->mask == VKMHA_MASK_ADDITIVE) {
        *added =
            (double)vkmha_load_element(inputs->mask, VKMHA_TYPE_F32, mask_index(plan, b, h, i, j));
        return *added != -INFINITY;
    }
    return true;
}

static uint64_t row_of(const vkmha_values *values, uint64_t b, uint64_t h, uint64_t position)
{
    return b * values->batch_stride + h * values->head_stride + position * values->row_stride;
}

/* The score of query i and key j, and how far an fp32 kernel's may be off. */
static double score_key(const vkmha_reference *reference, uint64_t query_row, uint64_t key_row,
                        double added, double *slack)
{
    const uint32_t head_dim = reference->layer->head_dim;
    const double *query = reference->query.value + query_row;
    const double *key = reference->key.value + key_row;
    const bool is_exact = reference->layer->attention_only;
    double sum = 0.0;
    double magnitude = 0.0;
    double carried = 0.0;
    double size = 0.0;
    for (uint32_t d = 0; d < head_dim; d++) {
        const double query_off = is_exact ? 0.0 : reference->query.bound[query_row + d];
        const double key_off = is_exact ? 0.0 : reference->key.bound[key_row + d];
        const double query_size = fabs(query[d]) + query_off;
        const double key_size = fabs(key[d]) + key_off;
        sum += query[d] * key[d];
        magnitude += query_size * key_size;
        carried += fabs(query[d]) * key_off + query_off * key_size;
        size += query_size + key_size;
    }
    const double scale = fabs(reference->scale);
    const double sum_error = vkmha_rounding_error(longest(reference->chains.score, head_dim));
    /* One unit for the scaling, of the query or of the sum; one for terms of second order. */
    *slack = scale * (carried + (sum_error + 2.0 * VKMHA_UNIT) * magnitude) +
             reference->scale_off * magnitude +
             (1.0 + scale) * VKMHA_FLUSH * ((double)head_dim + size);
    const double score = reference->scale * sum;
    return added == 0.0 ? score : vkmha_mask_score(score, added, slack);
}

/* Finds the keys that query i may attend and their scores; returns how many. */
static uint64_t score_keys(const vkmha_reference *reference, uint64_t b, uint64_t h, uint64_t i)
{
    const vkmha_scratch *scratch = &reference->scratch;
    const uint64_t group = reference->layer->num_heads / reference->layer->num_kv_heads;
    const uint64_t end = visible_keys(reference, b, i);
    uint64_t count = 0;
    for (uint64_t j = 0; j < end; j++) {
        double added;
        if (masks_allow(reference, b, h, i, j, &added)) {
            scratch->key[count] = j;
            scratch->score[count] =
                score_key(reference, row_of(&reference->query, b, h, i),
                          row_of(&reference->key, b, h / group, j), added, &scratch->slack[count]);
            count++;
        }
    }
    return count;
}

/*
 * Weights of the keys, not normalised, in truth and in a kernel, whose exponents are off by its
 * scores and its exponentials. Returns the weights' sum; *least is what a kernel's is at least.
 */
static double weigh_keys(const vkmha_reference *reference, uint64_t count, double *least)
{
    const vkmha_scratch *scratch = &reference->scratch;
    double maximum = -INFINITY;
    double ceiling = -INFINITY;
    for (uint64_t n = 0; n < count; n++) {
        maximum = fmax(maximum, scratch->score[n]);
        ceiling = fmax(ceiling, scratch->score[n] + scratch->slack[n]);
    }
    const double exponentials = 1.0 + longest(reference->chains.rescale, count);
    double sum = 0.0;
    *least = 0.0;
    for (uint64_t n = 0; n < count; n++) {
        const double exponent = scratch->score[n] - maximum;
        const double distance = ceiling - scratch->score[n] + scratch->slack[n];
        const double off = scratch->slack[n] + vkmha_exp_error(distance, exponentials);
        scratch->weight[n] = exp(exponent);
        /* Kept finite: what a weight can do is limited by the values' range anyway. */
        scratch->most[n] = exp(fmin(exponent + off, 700.0)) + VKMHA_FLUSH;
        sum += scratch->weight[n];
        *least += fmax(exp(exponent - off) - VKMHA_FLUSH, 0.0);
    }
    return sum;
}

/*
 * The average o = sum_j w_j v_j / sum_j w_j, with its bound. A kernel's weights w' and values v',
 * the same weights in both sums, move it by
 *
 *     sum_j w'_j (v'_j - o) / sum_j w'_j
 *     = sum_j ((w'_j - w_j) (v_j - o) + w'_j (v'_j - v_j)) / sum_j w'_j,
 *
 * never by more than max_j |v'_j - o|. Then both sums are rounded, and divided.
 */
static void average_values(const vkmha_reference *reference, uint64_t b, uint64_t h, uint64_t count,
                           double *average, double *bound)
{
    const vkmha_scratch *scratch = &reference->scratch;
    const vkmha_values *values = &reference->value;
    const uint32_t v_head_dim = reference->layer->v_head_dim;
    const uint64_t group = reference->layer->num_heads / reference->layer->num_kv_heads;
    const size_t bytes = v_head_dim * sizeof(double);
    memset(average, 0, bytes);
    memset(bound, 0, bytes);
    if (count == 0) {
        return;
    }
    double least;
    const double sum = weigh_keys(reference, count, &least);
    for (uint64_t n = 0; n < count; n++) {
        const double *value = values->value + row_of(values, b, h / group, scratch->key[n]);
        const double weight = scratch->weight[n];
        for (uint32_t d = 0; d < v_head_dim; d++) {
            average[d] += weight * value[d];
        }
    }
    for (uint32_t d = 0; d < v_head_dim; d++) {
        average[d] /= sum;
        scratch->moved[d] = 0.0;
        scratch->farthest[d] = 0.0;
        scratch->magnitude[d] = 0.0;
        scratch->largest[d] = 0.0;
    }
    for (uint64_t n = 0; n < count; n++) {
        const uint64_t row = row_of(values, b, h / group, scratch->key[n]);
        const double most = scratch->most[n];
        const double excess = most - scratch->weight[n];
        for (uint32_t d = 0; d < v_head_dim; d++) {
            const double off = values->bound ? values->bound[row + d] : 0.0;
            const double distance = fabs(values->value[row + d] - average[d]);
            const double size = fabs(values->value[row + d]) + off;
            scratch->moved[d] += excess * distance + most * off;
            scratch->magnitude[d] += most * size;
            if (scratch->farthest[d] < distance + off) {
                scratch->farthest[d] = distance + off;
            }
            if (scratch->largest[d] < size) {
                scratch->largest[d] = size;
            }
        }
    }
    /* Weights are of one sign, and small ones may vanish in the sum one like the other: nothing is
     * random here. A term is rounded once for each other term, and again by each rescale. */
    const double rescales = longest(reference->chains.rescale, count);
    const double terms = fmin(longest(reference->chains.value, count), (double)count);
    const double value_error = vkmha_rounding_error(terms + rescales + 1.0);
    const double weight_error = vkmha_rounding_error(terms + rescales);
    for (uint32_t d = 0; d < v_head_dim; d++) {
        const double size = vkmha_limited_ratio(scratch->magnitude[d], least, scratch->largest[d]);
        const double moved = vkmha_limited_ratio(scratch->moved[d], least, scratch->farthest[d]);
        const double rounded =
            (value_error * size + weight_error * fmin(size, fabs(average[d]) + moved)) /
            (1.0 - weight_error);
        const double flushed = VKMHA_FLUSH * ((double)count + rescales + 2.0);
        /* A division within 2.5 ULP, or a reciprocal so exact and a product. */
        const double divided = 6.0 * VKMHA_UNIT * (fabs(average[d]) + moved + rounded);
        bound[d] = isfinite(average[d]) ? moved + rounded + divided + flushed : INFINITY;
    }
}

/* One query's softmax weights, 0 for keys that are not allowed. */
static void write_weights(const vkmha_reference *reference, uint64_t count, double *weights)
{
    const vkmha_scratch *scratch = &reference->scratch;
    memset(weights, 0, reference->plan->key_len * sizeof(double));
    double sum = 0.0;
    for (uint64_t n = 0; n < count; n++) {
        sum += scratch->weight[n];
    }
    for (uint64_t n = 0; n < count; n++) {
        weights[scratch->key[n]] = scratch->weight[n] / sum;
    }
}

static void attend(const vkmha_reference *reference)
{
    const vkmha_plan_params *plan = reference->plan;
    const uint64_t num_heads = reference->layer->num_heads;
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        for (uint64_t h = 0; h < num_heads; h++) {
            for (uint64_t i = 0; i < plan->query_len; i++) {
                const uint64_t count = score_keys(reference, b, h, i);
                const uint64_t row = row_of(&reference->attention, b, h, i);
                average_values(reference, b, h, count, reference->attention.value + row,
                               reference->attention.bound + row);
                if (reference->weights) {
                    write_weights(reference, count,
                                  reference->weights +
                                      ((b * num_heads + h) * plan->query_len + i) * plan->key_len);
                }
            }
        }
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

static vkmha_values lay_out(vkmha_layout layout, uint64_t heads, uint64_t positions,
                            uint64_t features)
{
    const bool heads_first = layout == VKMHA_LAYOUT_BHSD;
    return (vkmha_values){
        .batch_stride = heads * positions * features,
        .head_stride = heads_first ? positions * features : features,
        .row_stride = heads_first ? features : heads * features,
    };
}

/* Values and bounds of one head tensor: projected from the input, or the input itself. */
static void make_heads(const vkmha_reference *reference, const float *input, uint64_t rows,
                       uint64_t count, const vkmha_matrix *weight, const vkmha_vector *bias,
                       vkmha_values *values)
{
    if (!reference->layer->attention_only) {
        const vkmha_feature_rows features = {.exact = input};
        project(&features, rows, weight, bias, reference->chains.project, values->value,
                values->bound);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        values->value[i] = (double)input[i];
    }
    values->bound = NULL;
}

static void run(vkmha_reference *reference, const vkmha_sizes *sizes,
                const vkmha_reference_outputs *outputs)
{
    const vkmha_layer_params *layer = reference->layer;
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_inputs *inputs = reference->inputs;
    const uint64_t queries = plan->batch_size * plan->query_len;
    const uint64_t keys = plan->batch_size * plan->key_len;
    make_heads(reference, inputs->query, queries, sizes->query, &layer->w_q, &layer->b_q,
               &reference->query);
    make_heads(reference, inputs->key, keys, sizes->key, &layer->w_k, &layer->b_k, &reference->key);
    make_heads(reference, inputs->value, keys, sizes->value, &layer->w_v, &layer->b_v,
               &reference->value);
    attend(reference);
    const vkmha_values *attention = &reference->attention;
    if (!layer->attention_only) {
        const vkmha_feature_rows features = {.value = attention->value, .bound = attention->bound};
        project(&features, queries, &layer->w_o, &layer->b_o, reference->chains.output,
                outputs->output, outputs->output_bound);
        return;
    }
    if (outputs->output) {
        memcpy(outputs->output, attention->value, sizes->output * sizeof(double));
    }
    if (outputs->output_bound) {
        memcpy(outputs->output_bound, attention->bound, sizes->output * sizeof(double));
    }
}

vkmha_status vkmha_reference_run(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                 const vkmha_inputs *inputs, const vkmha_chains *chains,
                                 const vkmha_host *host, const vkmha_reference_outputs *outputs,
                                 vkmha_error *error)
{
    vkmha_error_clear(error);
    vkmha_layer_params checked_layer;
    vkmha_plan_params checked_plan;
    vkmha_inputs checked_inputs;
    vkmha_host services;
    vkmha_status status = outputs
                              ? vkmha_host_init(&services, host, error)
                              : vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "outputs is NULL");
    if (status == VKMHA_OK) {
        status = vkmha_check_layer(layer, &checked_layer, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_plan(&checked_layer, plan, &checked_plan, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_inputs(&checked_layer, &checked_plan, inputs, &checked_inputs, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }

    vkmha_sizes sizes;
    vkmha_plan_sizes(&checked_layer, &checked_plan, &sizes);
    const vkmha_layout layout = checked_plan.layout;
    const uint32_t head_dim = checked_layer.head_dim;
    const uint32_t v_head_dim = checked_layer.v_head_dim;
    const uint64_t key_len = checked_plan.key_len;
    const double fp32_scale = (double)checked_layer.scale;
    const double scale = layer->has_scale ? fp32_scale : 1.0 / sqrt((double)head_dim);
    vkmha_reference reference = {
        .layer = &checked_layer,
        .plan = &checked_plan,
        .inputs = &checked_inputs,
        .chains = chains ? *chains : (vkmha_chains){0},
        .scale = scale,
        .scale_off = fabs(scale - fp32_scale),
        .query = lay_out(layout, checked_layer.num_heads, checked_plan.query_len, head_dim),
        .key = lay_out(layout, checked_layer.num_kv_heads, key_len, head_dim),
        .value = lay_out(layout, checked_layer.num_kv_heads, key_len, v_head_dim),
        .attention = lay_out(layout, checked_layer.num_heads, checked_plan.query_len, v_head_dim),
        .weights = outputs->weights,
    };
    vkmha_scratch *scratch = &reference.scratch;
    const struct {
        double **memory;
        uint64_t count;
    } blocks[] = {
        {&reference.query.value, sizes.heads_query},
        {&reference.query.bound, sizes.heads_query},
        {&reference.key.value, sizes.heads_key},
        {&reference.key.bound, sizes.heads_key},
        {&reference.value.value, sizes.heads_value},
        {&reference.value.bound, sizes.heads_value},
        {&reference.attention.value, sizes.heads_attention},
        {&reference.attention.bound, sizes.heads_attention},
        {&scratch->score, key_len},
        {&scratch->slack, key_len},
        {&scratch->weight, key_len},
        {&scratch->most, key_len},
        {&scratch->moved, v_head_dim},
        {&scratch->farthest, v_head_dim},
        {&scratch->magnitude, v_head_dim},
        {&scratch->largest, v_head_dim},
    };
    const size_t num_blocks = sizeof(blocks) / sizeof(blocks[0]);
    double *memory[sizeof(blocks) / sizeof(blocks[0])] = {0};
    scratch->key = vkmha_host_allocate(&services, key_len, sizeof(*scratch->key));
    bool has_memory = scratch->key != NULL;
    for (size_t i = 0; i < num_blocks && has_memory; i++) {
        memory[i] = vkmha_host_allocate(&services, blocks[i].count, sizeof(double));
        *blocks[i].memory = memory[i];
        has_memory = memory[i] != NULL;
    }
    if (has_memory) {
        run(&reference, &sizes, outputs);
    } else {
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    for (size_t i = 0; i < num_blocks; i++) {
        vkmha_host_release(&services, memory[i]);
    }
    vkmha_host_release(&services, scratch->key);
    return status;
}

vkmha_status vkmha_reference_project(const float *input, uint64_t rows, const vkmha_matrix *weight,
                                     const vkmha_vector *bias, uint64_t chain, double *output,
                                     double *bound, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!weight || !weight->data) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "weight is NULL");
    }
    if (!input && rows > 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "input is NULL, %" PRIu64 " rows are asked for", rows);
    }
    if (bias && bias->data && bias->size != weight->rows) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "bias has %" PRIu64 " elements, weight has %" PRIu64 " rows", bias->size,
                          weight->rows);
    }
    vkmha_matrix resolved = *weight;
    resolved.row_stride = weight->row_stride ? weight->row_stride : weight->columns;
    resolved.column_stride = weight->column_stride ? weight->column_stride : 1;
    const vkmha_feature_rows features = {.exact = input};
    project(&features, rows, &resolved, bias, chain, output, bound);
    return VKMHA_OK;
}
