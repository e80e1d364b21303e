/* Options of a layer: softcap, rotary positions, biases, sinks, further keys. */
#include <inttypes.h>
#include <math.h>

#include "params_check.h"

enum { MAX_POSITIONS = 1 << 24, MIN_BUCKETS = 4, MAX_DISTANCE = 65536 };

/* Nothing may be said of an option that is not asked for. */
static vkmha_status refuse_rope_fields(const vkmha_rope *given, vkmha_error *error)
{
    const struct {
        const char *field;
        bool is_given;
    } fields[] = {
        {"rope.dim", given->dim != 0},    {"rope.max_positions", given->max_positions != 0},
        {"rope.base", given->base != 0},  {"rope.cos", given->cos != NULL},
        {"rope.sin", given->sin != NULL},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].is_given) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "%s is given, but rope.style is none", fields[i].field);
        }
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_rope(const vkmha_rope *given, uint32_t head_dim, vkmha_rope *rope,
                              vkmha_error *error)
{
    if ((uint32_t)given->style > VKMHA_ROPE_INTERLEAVED) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "rope.style %u is no vkmha_rope_style", (uint32_t)given->style);
    }
    *rope = *given;
    if (given->style == VKMHA_ROPE_NONE) {
        return refuse_rope_fields(given, error);
    }
    rope->dim = given->dim ? given->dim : head_dim;
    if (rope->dim % 2 != 0 || rope->dim > head_dim) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "rope.dim %u is not an even number in 2..head_dim %u", rope->dim,
                          head_dim);
    }
    vkmha_status status =
        vkmha_check_range("rope.max_positions", given->max_positions, 1, MAX_POSITIONS, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (!given->cos != !given->sin) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "rope.%s is NULL, but rope.%s is given: a table needs both",
                          given->cos ? "sin" : "cos", given->cos ? "cos" : "sin");
    }
    if (given->cos && given->base != 0.0f) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "rope.base %g is given together with rope.cos and rope.sin",
                          (double)given->base);
    }
    if (!isfinite(given->base) || given->base < 0.0f) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "rope.base %g is not finite and above 0", (double)given->base);
    }
    if (!given->cos && given->base == 0.0f) {
        rope->base = 10000.0f;
    }
    return VKMHA_OK;
}

static vkmha_status check_alibi(const vkmha_layer_params *given, vkmha_error *error)
{
    if (given->alibi_slopes && !given->has_alibi) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "alibi_slopes is given without has_alibi");
    }
    for (uint32_t h = 0; given->alibi_slopes && h < given->num_heads; h++) {
        if (!isfinite(given->alibi_slopes[h])) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "alibi_slopes[%u] %g is not finite", h,
                              (double)given->alibi_slopes[h]);
        }
    }
    return VKMHA_OK;
}

static vkmha_status check_relative_bias(const vkmha_layer_params *given, vkmha_error *error)
{
    const vkmha_relative_bias *bias = &given->relative_bias;
    if (!bias->table) {
        const char *field = bias->num_buckets        ? "num_buckets"
                            : bias->max_distance     ? "max_distance"
                            : bias->is_bidirectional ? "is_bidirectional"
                                                     : NULL;
        return field ? vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                  "relative_bias.%s is given without relative_bias.table", field)
                     : VKMHA_OK;
    }
    if (bias->num_buckets < MIN_BUCKETS) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "relative_bias.num_buckets %u is less than %d", bias->num_buckets,
                          MIN_BUCKETS);
    }
    if (bias->is_bidirectional && bias->num_buckets % 2 != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "relative_bias.num_buckets %u is odd, and is_bidirectional halves it",
                          bias->num_buckets);
    }
    const uint32_t exact = bias->num_buckets / (bias->is_bidirectional ? 4 : 2);
    if (bias->max_distance <= exact || bias->max_distance > MAX_DISTANCE) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "relative_bias.max_distance %u is not more than the %u exact buckets "
                          "and at most %d",
                          bias->max_distance, exact, MAX_DISTANCE);
    }
    const uint64_t count = (uint64_t)given->num_heads * bias->num_buckets;
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(bias->table[i])) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "relative_bias.table[%" PRIu64 "] %g is not finite", i,
                              (double)bias->table[i]);
        }
    }
    return VKMHA_OK;
}

static vkmha_status check_further_keys(const vkmha_layer_params *given, vkmha_error *error)
{
    for (uint32_t h = 0; given->sinks && h < given->num_heads; h++) {
        const float sink = given->sinks[h];
        if (isnan(sink) || sink == INFINITY) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "sinks[%u] %g is neither finite nor -Inf", h, (double)sink);
        }
    }
    if (!given->bias_k != !given->bias_v) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s is NULL, but %s is given: one more key needs both",
                          given->bias_k ? "bias_v" : "bias_k", given->bias_k ? "bias_k" : "bias_v");
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_options(const vkmha_layer_params *given, vkmha_layer_params *layer,
                                 vkmha_error *error)
{
    if (!isfinite(given->softcap) || given->softcap < 0.0f) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "softcap %g is not finite and at least 0", (double)given->softcap);
    }
    vkmha_status status = vkmha_check_rope(&given->rope, layer->head_dim, &layer->rope, error);
    if (status == VKMHA_OK) {
        status = check_alibi(given, error);
    }
    if (status == VKMHA_OK) {
        status = check_relative_bias(given, error);
    }
    return status == VKMHA_OK ? check_further_keys(given, error) : status;
}
