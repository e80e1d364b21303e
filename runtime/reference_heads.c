/* Query, key and value heads: projected or given, turned by their positions, after the past's. */
#include <inttypes.h>
#include <string.h>

#include "params_check.h"
#include "reference.h"
#include "reference_bound.h"
#include "rope.h"

/* ---- Rotary positions ------------------------------------------------------------------------ */

/* What a c + b s may be off by: carried, two rounded products and their sum, denormals. */
static double turned_bound(double a, double a_off, double c, double b, double b_off, double s)
{
    const double carried = fabs(c) * a_off + fabs(s) * b_off;
    const double size = fabs(c) * (fabs(a) + a_off) + fabs(s) * (fabs(b) + b_off);
    const double flushed =
        VKMHA_FLUSH * (3.0 + fabs(c) + fabs(s) + fabs(a) + fabs(b) + a_off + b_off);
    return carried + vkmha_rounding_error(2.0) * size + flushed;
}

void vkmha_reference_turn(const vkmha_rope *rope, uint32_t head_dim, uint64_t heads,
                          int64_t position, double *values, double *bound)
{
    const uint32_t pairs = (rope->dim ? rope->dim : head_dim) / 2;
    const bool is_half = rope->style == VKMHA_ROPE_HALF;
    for (uint32_t k = 0; k < pairs; k++) {
        float cosine;
        float sine;
        vkmha_rope_entry(rope, head_dim, position < 0 ? 0 : (uint64_t)position, k, &cosine, &sine);
        const double c = (double)cosine;
        const double s = (double)sine;
        for (uint64_t h = 0; h < heads; h++) {
            const uint64_t first = h * head_dim + (is_half ? k : 2 * k);
            const uint64_t second = first + (is_half ? pairs : 1);
            const double a = values[first];
            const double b = values[second];
            values[first] = a * c - b * s;
            values[second] = b * c + a * s;
            if (bound) {
                const double a_off = bound[first];
                const double b_off = bound[second];
                bound[first] = turned_bound(a, a_off, c, b, b_off, s);
                bound[second] = turned_bound(b, b_off, c, a, a_off, s);
            }
        }
    }
}

vkmha_status vkmha_reference_rotate(const vkmha_rope *rope, uint32_t head_dim, uint64_t rows,
                                    uint64_t heads, const int32_t *positions, double *values,
                                    double *bound, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!rope) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "rope is NULL");
    }
    vkmha_rope checked;
    vkmha_status status = vkmha_check_range("head_dim", head_dim, 1, VKMHA_MAX_HEAD_DIM, error);
    if (status == VKMHA_OK) {
        status = vkmha_check_rope(rope, head_dim, &checked, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    if (rows > 0 && heads > 0 && (!positions || !values)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s is NULL, %" PRIu64 " rows are asked for",
                          positions ? "values" : "positions", rows);
    }
    for (uint64_t r = 0; r < rows && checked.style != VKMHA_ROPE_NONE; r++) {
        const uint64_t at = r * heads * head_dim;
        vkmha_reference_turn(&checked, head_dim, heads, positions[r], values + at,
                             bound ? bound + at : NULL);
    }
    return VKMHA_OK;
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* One tensor of heads: projected from the input, or the input itself, which is exact. */
static void make_heads(const vkmha_reference *reference, const float *input,
                       const vkmha_strides *strides, uint64_t rows, uint64_t length,
                       const vkmha_matrix *weight, const vkmha_vector *bias,
                       const vkmha_values *values)
{
    if (rows == 0) {
        return;
    }
    const uint64_t rows_per_batch = reference->plan->is_packed ? rows : length;
    const float *first = input + strides->offset;
    if (!reference->layer->attention_only) {
        const vkmha_feature_rows features = {
            .exact = first,
            .rows_per_batch = rows_per_batch,
            .batch_stride = strides->batch,
            .row_stride = strides->row,
        };
        vkmha_reference_project_rows(&features, rows, weight, bias, reference->chains.project,
                                     values->value, values->bound);
        return;
    }
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t h = 0; h < values->heads; h++) {
            const float *from = first + row / rows_per_batch * strides->batch +
                                row % rows_per_batch * strides->row + h * strides->head;
            double *to = values->value + vkmha_values_at(values, row, h);
            for (uint64_t d = 0; d < values->features; d++) {
                to[d] = (double)from[d];
            }
        }
    }
}

uint64_t vkmha_reference_first_key_row(const vkmha_reference *reference, const vkmha_item *item,
                                       uint64_t b)
{
    return reference->plan->is_packed ? (uint64_t)item->first_key_row
                                      : b * reference->sizes.all_keys;
}

static void turn_rows(const vkmha_reference *reference, const vkmha_item *item,
                      const vkmha_values *new_key)
{
    const vkmha_rope *rope = &reference->layer->rope;
    const vkmha_inputs *inputs = reference->inputs;
    const vkmha_values *query = &reference->query;
    const uint32_t head_dim = reference->layer->head_dim;
    for (int64_t i = 0; i < item->query_length; i++) {
        const uint64_t row = (uint64_t)(item->first_query_row + i);
        const uint64_t at = vkmha_values_at(query, row, 0);
        const int64_t position = reference->plan->has_positions ? inputs->query_positions[row]
                                                                : i + item->position_offset;
        vkmha_reference_turn(rope, head_dim, query->heads, position, query->value + at,
                             query->bound + at);
    }
    for (int64_t j = 0; j < item->new_keys; j++) {
        const uint64_t row = (uint64_t)(item->first_key_row + j);
        const uint64_t at = vkmha_values_at(new_key, row, 0);
        const int64_t position =
            reference->plan->has_positions ? inputs->key_positions[row] : item->past_length + j;
        vkmha_reference_turn(rope, head_dim, new_key->heads, position, new_key->value + at,
                             new_key->bound + at);
    }
}

/* A sequence's past, [head, key, feature] and exact, and then its new rows. */
static void join_past(const vkmha_reference *reference, const vkmha_item *item, uint64_t b,
                      const float *past, const vkmha_values *fresh, const vkmha_values *all)
{
    const uint64_t first_row = vkmha_reference_first_key_row(reference, item, b);
    const uint64_t past_len = (uint64_t)item->past_length;
    for (uint64_t j = 0; j < past_len; j++) {
        for (uint64_t h = 0; h < all->heads; h++) {
            const float *from = past + ((b * all->heads + h) * past_len + j) * all->features;
            double *to = all->value + vkmha_values_at(all, first_row + j, h);
            for (uint64_t d = 0; d < all->features; d++) {
                to[d] = (double)from[d];
            }
        }
    }
    const uint64_t from = vkmha_values_at(fresh, (uint64_t)item->first_key_row, 0);
    const uint64_t to = vkmha_values_at(all, first_row + past_len, 0);
    const size_t bytes = (uint64_t)item->new_keys * all->heads * all->features * sizeof(double);
    memcpy(all->value + to, fresh->value + from, bytes);
    memcpy(all->bound + to, fresh->bound + from, bytes);
    vkmha_reference_store(vkmha_kept_type(reference->layer, reference->plan), bytes / sizeof(double),
                          all->value + to, all->bound + to);
}

static void load_bias(const float *bias, uint64_t row, const vkmha_values *values)
{
    const uint64_t at = vkmha_values_at(values, row, 0);
    for (uint64_t i = 0; bias && i < values->heads * values->features; i++) {
        values->value[at + i] = (double)bias[i];
    }
}

void vkmha_reference_heads(vkmha_reference *reference, const vkmha_values *new_key,
                           const vkmha_values *new_value)
{
    const vkmha_layer_params *layer = reference->layer;
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_inputs *inputs = reference->inputs;
    const vkmha_sizes *sizes = &reference->sizes;
    make_heads(reference, inputs->query, &plan->query_strides, sizes->query_rows, plan->query_len,
               &layer->w_q, &layer->b_q, &reference->query);
    make_heads(reference, inputs->key, &plan->key_strides, sizes->key_rows, plan->key_len,
               &layer->w_k, &layer->b_k, new_key);
    make_heads(reference, inputs->value, &plan->value_strides, sizes->key_rows, plan->key_len,
               &layer->w_v, &layer->b_v, new_value);
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const vkmha_item item = vkmha_plan_item(plan, inputs, 0, b);
        if (layer->rope.style != VKMHA_ROPE_NONE) {
            turn_rows(reference, &item, new_key);
        }
        join_past(reference, &item, b, inputs->past_key, new_key, &reference->key);
        join_past(reference, &item, b, inputs->past_value, new_value, &reference->value);
    }
    load_bias(layer->bias_k, reference->bias_row, &reference->key);
    load_bias(layer->bias_v, reference->bias_row, &reference->value);
}
