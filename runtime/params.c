#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "params_check.h"

enum { MAX_HEADS = 65535 };

/* Features of an input or output: keeps heads * dims and padded pitches far inside 32 bits. */
enum { MAX_FEATURES = 1 << 24 };

bool vkmha_multiply(uint64_t a, uint64_t b, uint64_t *product)
{
    if (a != 0 && b > (uint64_t)INT64_MAX / a) {
        return false;
    }
    *product = a * b;
    return true;
}

bool vkmha_multiply_all(const uint64_t *factors, uint32_t count, uint64_t *product)
{
    /* A zero factor makes the product zero however large the others are. */
    for (uint32_t i = 0; i < count; i++) {
        if (factors[i] == 0) {
            *product = 0;
            return true;
        }
    }
    uint64_t total = 1;
    for (uint32_t i = 0; i < count; i++) {
        if (!vkmha_multiply(total, factors[i], &total)) {
            return false;
        }
    }
    *product = total;
    return true;
}

/* ---- Layers
 * ----------------------------------------------------------------------------------------- */

vkmha_status vkmha_check_range(const char *field, uint64_t value, uint64_t low, uint64_t high,
                               vkmha_error *error)
{
    if (value < low || value > high) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s %" PRIu64 " is not in %" PRIu64 "..%" PRIu64, field, value, low,
                          high);
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_type(const char *field, vkmha_type type, vkmha_error *error)
{
    if ((uint32_t)type > VKMHA_TYPE_BF16) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s %u is no vkmha_type", field,
                          (uint32_t)type);
    }
    return VKMHA_OK;
}

/* The type of a weight or bias. */
static vkmha_status check_data_type(const char *field, vkmha_type type, vkmha_error *error)
{
    char name[16];
    snprintf(name, sizeof(name), "%s.type", field);
    return vkmha_check_type(name, type, error);
}

static vkmha_status check_matrix(const char *field, const vkmha_matrix *given, uint64_t rows,
                                 uint64_t columns, vkmha_matrix *matrix, vkmha_error *error)
{
    *matrix = *given;
    if (!given->data) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s is missing: a layer with projections needs it", field);
    }
    vkmha_status status = check_data_type(field, given->type, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (given->rows != rows || given->columns != columns) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s is [%" PRIu64 ", %" PRIu64 "], the layer needs [%" PRIu64 ", %" PRIu64
                          "] (out, in)",
                          field, given->rows, given->columns, rows, columns);
    }
    matrix->row_stride = given->row_stride ? given->row_stride : columns;
    matrix->column_stride = given->column_stride ? given->column_stride : 1;
    uint64_t last_row = 0;
    uint64_t last_column = 0;
    if (!vkmha_multiply(rows - 1, matrix->row_stride, &last_row) ||
        !vkmha_multiply(columns - 1, matrix->column_stride, &last_column) ||
        last_row > (uint64_t)INT64_MAX / 8 || last_column > (uint64_t)INT64_MAX / 8) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s strides %" PRIu64 ", %" PRIu64 " reach past the address space", field,
                          matrix->row_stride, matrix->column_stride);
    }
    return VKMHA_OK;
}

static vkmha_status check_vector(const char *field, const vkmha_vector *given, uint64_t size,
                                 vkmha_error *error)
{
    if (!given->data) {
        return given->size == 0
                   ? VKMHA_OK
                   : vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                "%s.size %" PRIu64 " is given without data", field, given->size);
    }
    if (given->size != size) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s has %" PRIu64 " elements, the layer needs %" PRIu64, field,
                          given->size, size);
    }
    return check_data_type(field, given->type, error);
}

static vkmha_status check_heads(const vkmha_layer_params *given, vkmha_layer_params *layer,
                                vkmha_error *error)
{
    vkmha_status status = vkmha_check_range("num_heads", given->num_heads, 1, MAX_HEADS, error);
    if (status != VKMHA_OK) {
        return status;
    }
    layer->num_kv_heads = given->num_kv_heads ? given->num_kv_heads : given->num_heads;
    status = vkmha_check_range("num_kv_heads", layer->num_kv_heads, 1, MAX_HEADS, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (given->num_heads % layer->num_kv_heads != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "num_heads %u is not a multiple of num_kv_heads %u", given->num_heads,
                          layer->num_kv_heads);
    }
    status = vkmha_check_range("head_dim", given->head_dim, 1, VKMHA_MAX_HEAD_DIM, error);
    if (status != VKMHA_OK) {
        return status;
    }
    layer->v_head_dim = given->v_head_dim ? given->v_head_dim : given->head_dim;
    status = vkmha_check_range("v_head_dim", layer->v_head_dim, 1, VKMHA_MAX_HEAD_DIM, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (!given->has_scale) {
        if (given->scale != 0.0f) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "scale %g is given without has_scale", (double)given->scale);
        }
        layer->has_scale = true;
        layer->scale = (float)(1.0 / sqrt((double)given->head_dim));
    } else if (!isfinite(given->scale)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "scale %g is not finite",
                          (double)given->scale);
    }
    return VKMHA_OK;
}

static vkmha_status check_projections(const vkmha_layer_params *given, vkmha_layer_params *layer,
                                      vkmha_error *error)
{
    layer->key_dim = given->key_dim ? given->key_dim : given->embed_dim;
    layer->value_dim = given->value_dim ? given->value_dim : given->embed_dim;
    layer->output_dim = given->output_dim ? given->output_dim : given->embed_dim;
    const uint64_t query_features = (uint64_t)layer->num_heads * layer->head_dim;
    const uint64_t key_features = (uint64_t)layer->num_kv_heads * layer->head_dim;
    const uint64_t value_features = (uint64_t)layer->num_kv_heads * layer->v_head_dim;
    const uint64_t attention_features = (uint64_t)layer->num_heads * layer->v_head_dim;
    const struct {
        const char *field;
        uint64_t value;
    } features[] = {
        {"embed_dim", layer->embed_dim},          {"key_dim", layer->key_dim},
        {"value_dim", layer->value_dim},          {"output_dim", layer->output_dim},
        {"num_heads * head_dim", query_features}, {"num_heads * v_head_dim", attention_features},
    };
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
        vkmha_status status =
            vkmha_check_range(features[i].field, features[i].value, 1, MAX_FEATURES, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    const struct {
        const char *matrix_field;
        const char *vector_field;
        const vkmha_matrix *given;
        vkmha_matrix *matrix;
        const vkmha_vector *vector;
        uint64_t rows;
        uint64_t columns;
    } weights[] = {
        {"w_q", "b_q", &given->w_q, &layer->w_q, &given->b_q, query_features, layer->embed_dim},
        {"w_k", "b_k", &given->w_k, &layer->w_k, &given->b_k, key_features, layer->key_dim},
        {"w_v", "b_v", &given->w_v, &layer->w_v, &given->b_v, value_features, layer->value_dim},
        {"w_o", "b_o", &given->w_o, &layer->w_o, &given->b_o, layer->output_dim,
         attention_features},
    };
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        vkmha_status status =
            check_matrix(weights[i].matrix_field, weights[i].given, weights[i].rows,
                         weights[i].columns, weights[i].matrix, error);
        if (status == VKMHA_OK) {
            status =
                check_vector(weights[i].vector_field, weights[i].vector, weights[i].rows, error);
        }
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

/* attention_only: whatever describes projections must be absent, not ignored. */
static vkmha_status refuse_projections(const vkmha_layer_params *given, vkmha_error *error)
{
    const struct {
        const char *field;
        bool is_given;
    } fields[] = {
        {"embed_dim", given->embed_dim != 0},
        {"key_dim", given->key_dim != 0},
        {"value_dim", given->value_dim != 0},
        {"output_dim", given->output_dim != 0},
        {"w_q", !vkmha_is_zero(&given->w_q, sizeof(given->w_q))},
        {"w_k", !vkmha_is_zero(&given->w_k, sizeof(given->w_k))},
        {"w_v", !vkmha_is_zero(&given->w_v, sizeof(given->w_v))},
        {"w_o", !vkmha_is_zero(&given->w_o, sizeof(given->w_o))},
        {"b_q", !vkmha_is_zero(&given->b_q, sizeof(given->b_q))},
        {"b_k", !vkmha_is_zero(&given->b_k, sizeof(given->b_k))},
        {"b_v", !vkmha_is_zero(&given->b_v, sizeof(given->b_v))},
        {"b_o", !vkmha_is_zero(&given->b_o, sizeof(given->b_o))},
        {"weight_type", given->weight_type != VKMHA_TYPE_F32},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].is_given) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "%s is given, but attention_only has no projections",
                              fields[i].field);
        }
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_layer(const vkmha_layer_params *given, vkmha_layer_params *layer,
                               vkmha_error *error)
{
    if (!given) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "layer params is NULL");
    }
    if (!vkmha_is_zero(given->reserved, sizeof(given->reserved))) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "layer params.reserved is not zero");
    }
    vkmha_layer_params checked = *given;
    vkmha_status status = check_heads(given, &checked, error);
    if (status == VKMHA_OK) {
        status = vkmha_check_options(given, &checked, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_type("weight_type", given->weight_type, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_type("cache_type", given->cache_type, error);
    }
    if (status == VKMHA_OK) {
        status = given->attention_only ? refuse_projections(given, error)
                                       : check_projections(given, &checked, error);
    }
    if (status == VKMHA_OK) {
        *layer = checked;
    }
    return status;
}

vkmha_status vkmha_layer_params_init(vkmha_layer_params *params, uint32_t embed_dim,
                                     uint32_t num_heads, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!params) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "params is NULL");
    }
    vkmha_status status = vkmha_check_range("num_heads", num_heads, 1, MAX_HEADS, error);
    if (status != VKMHA_OK) {
        return status;
    }
    status = vkmha_check_range("embed_dim", embed_dim, 1, MAX_FEATURES, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (embed_dim % num_heads != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "embed_dim %u is not a multiple of num_heads %u", embed_dim, num_heads);
    }
    *params = (vkmha_layer_params){
        .num_heads = num_heads,
        .head_dim = embed_dim / num_heads,
        .embed_dim = embed_dim,
    };
    return VKMHA_OK;
}
