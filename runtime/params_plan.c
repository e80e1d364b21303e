/* Plans: shapes, masks, positions, and which options exclude each other. */
#include <inttypes.h>

#include "params_check.h"

static vkmha_status refuse_with(const char *field, const char *rule, vkmha_error *error)
{
    return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is given, but %s", field, rule);
}

static vkmha_status check_kinds(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                                vkmha_error *error)
{
    const struct {
        const char *field;
        uint32_t value;
        uint32_t last;
    } kinds[] = {
        {"layout", (uint32_t)given->layout, VKMHA_LAYOUT_BHSD},
        {"causal", (uint32_t)given->causal, VKMHA_CAUSAL_OFFSET},
        {"positions", (uint32_t)given->positions, VKMHA_POSITIONS_OFFSET},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].value > kinds[i].last) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s %u is no vkmha_%s",
                              kinds[i].field, kinds[i].value, kinds[i].field);
        }
    }
    if (!layer->attention_only && given->layout != VKMHA_LAYOUT_BSHD) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "layout BHSD is for attention_only layers; inputs of projections are "
                          "[batch_size, length, features]");
    }
    return VKMHA_OK;
}

/* ---- Lengths --------------------------------------------------------------------------------- */

static vkmha_status check_packed(const vkmha_plan_params *given, vkmha_error *error)
{
    const struct {
        const char *field;
        uint64_t total;
        const char *length_name;
        uint64_t length;
    } totals[] = {
        {"total_queries", given->total_queries, "query_len", given->query_len},
        {"total_keys", given->total_keys, "key_len", given->key_len},
    };
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        if (!given->is_packed) {
            if (totals[i].total != 0) {
                return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                  "%s %" PRIu64 " is given without is_packed", totals[i].field,
                                  totals[i].total);
            }
            continue;
        }
        vkmha_status status =
            vkmha_check_range(totals[i].field, totals[i].total, 0, VKMHA_MAX_LENGTH, error);
        if (status != VKMHA_OK) {
            return status;
        }
        /* Two checked lengths' product fits. */
        const uint64_t most = given->batch_size * totals[i].length;
        if (totals[i].total > most) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "%s %" PRIu64 " is more than batch_size * %s = %" PRIu64,
                              totals[i].field, totals[i].total, totals[i].length_name, most);
        }
    }
    if (given->is_packed && given->key_is_query && given->total_keys != given->total_queries) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "total_keys %" PRIu64 " differs from total_queries %" PRIu64
                          ", but key_is_query",
                          given->total_keys, given->total_queries);
    }
    return VKMHA_OK;
}

static vkmha_status check_lengths(const vkmha_plan_params *given, vkmha_error *error)
{
    const struct {
        const char *field;
        uint64_t value;
    } lengths[] = {
        {"batch_size", given->batch_size},
        {"query_len", given->query_len},
        {"key_len", given->key_len},
        {"past_len", given->past_len},
        {"cache_capacity", given->cache_capacity},
    };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        vkmha_status status =
            vkmha_check_range(lengths[i].field, lengths[i].value, 0, VKMHA_MAX_LENGTH, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    if (given->past_len + given->key_len > VKMHA_MAX_LENGTH) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "past_len %" PRIu64 " + key_len %" PRIu64 " is more than %" PRIu64,
                          given->past_len, given->key_len, VKMHA_MAX_LENGTH);
    }
    if (given->cache_capacity != 0 && given->key_len > given->cache_capacity) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "key_len %" PRIu64 " is more than cache_capacity %" PRIu64,
                          given->key_len, given->cache_capacity);
    }
    return check_packed(given, error);
}

/* What makes no sense together. */
static vkmha_status check_exclusions(const vkmha_layer_params *layer,
                                     const vkmha_plan_params *given, vkmha_error *error)
{
    const bool has_cache = given->cache_capacity != 0;
    const char *cached = "cache_capacity keeps the earlier keys";
    const char *packed = "not with is_packed";
    const struct {
        bool is_refused;
        const char *field;
        const char *rule;
    } rules[] = {
        {has_cache && given->past_len != 0, "past_len", cached},
        {has_cache && given->has_present, "has_present", cached},
        {given->is_packed && given->past_len != 0, "past_len", packed},
        {given->is_packed && given->has_present, "has_present", packed},
        {given->is_packed && has_cache, "cache_capacity", packed},
        {given->is_packed && given->has_key_lengths, "has_key_lengths", "cu_key_lens tells them"},
        {has_cache && given->has_key_lengths, "has_key_lengths", "the cache tells them"},
        {given->has_positions && layer->rope.style == VKMHA_ROPE_NONE, "has_positions",
         "the layer has no rope.style"},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (rules[i].is_refused) {
            return refuse_with(rules[i].field, rules[i].rule, error);
        }
    }
    return VKMHA_OK;
}

/* ---- Positions ------------------------------------------------------------------------------- */

static vkmha_status check_positions(const vkmha_plan_params *given, vkmha_positions *positions,
                                    vkmha_error *error)
{
    *positions = given->positions;
    if (given->causal != VKMHA_CAUSAL_NONE) {
        static const vkmha_positions of_causal[] = {
            [VKMHA_CAUSAL_TOP_LEFT] = VKMHA_POSITIONS_TOP_LEFT,
            [VKMHA_CAUSAL_BOTTOM_RIGHT] = VKMHA_POSITIONS_BOTTOM_RIGHT,
            [VKMHA_CAUSAL_OFFSET] = VKMHA_POSITIONS_OFFSET,
        };
        *positions = of_causal[given->causal];
        if (given->positions != 0 && given->positions != *positions) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "positions %u differs from those of causal %u, which are %u",
                              (uint32_t)given->positions, (uint32_t)given->causal,
                              (uint32_t)*positions);
        }
    }
    const bool has_offset = *positions == VKMHA_POSITIONS_OFFSET;
    if (given->position_offset != 0 && !has_offset) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "position_offset %" PRId64
                          " is given without VKMHA_CAUSAL_OFFSET or VKMHA_POSITIONS_OFFSET",
                          given->position_offset);
    }
    if (given->position_offset < -VKMHA_MAX_OFFSET || given->position_offset > VKMHA_MAX_OFFSET) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "position_offset %" PRId64 " is not in %d..%d", given->position_offset,
                          -VKMHA_MAX_OFFSET, VKMHA_MAX_OFFSET);
    }
    if (given->has_position_offsets && !has_offset) {
        return refuse_with("has_position_offsets",
                           "neither VKMHA_CAUSAL_OFFSET nor VKMHA_POSITIONS_OFFSET is", error);
    }
    if (given->has_position_offsets && given->position_offset != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "position_offset %" PRId64 " is given together with has_position_offsets",
                          given->position_offset);
    }
    return VKMHA_OK;
}

static vkmha_status check_windows(const vkmha_plan_params *given, vkmha_error *error)
{
    const struct {
        const char *field;
        bool is_given;
        uint32_t value;
    } windows[] = {
        {"window_left", given->has_window_left, given->window_left},
        {"window_right", given->has_window_right, given->window_right},
    };
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        if (!windows[i].is_given && windows[i].value != 0) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s %u is given without has_%s",
                              windows[i].field, windows[i].value, windows[i].field);
        }
        vkmha_status status =
            vkmha_check_range(windows[i].field, windows[i].value, 0, INT32_MAX, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static vkmha_status check_mask(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                               vkmha_error *error)
{
    if ((uint32_t)given->mask > VKMHA_MASK_ATTEND_BITS) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "mask %u is no vkmha_mask_type",
                          (uint32_t)given->mask);
    }
    const bool has_new_keys_alone = given->past_len == 0 && given->cache_capacity == 0;
    const char *const axis_names[4] = {
        "batch_size",
        "num_heads",
        "query_len",
        has_new_keys_alone      ? "key_len"
        : given->cache_capacity ? "cache_capacity"
                                : "past_len + key_len =",
    };
    const uint64_t full[4] = {given->batch_size, layer->num_heads, given->query_len,
                              vkmha_all_keys(given)};
    for (uint32_t axis = 0; axis < 4; axis++) {
        const uint64_t size = given->mask_dims[axis];
        if (given->mask == VKMHA_MASK_NONE) {
            if (size != 0) {
                return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                  "mask_dims[%u] %" PRIu64 " is given without a mask", axis, size);
            }
        } else if (size != full[axis] && size != 1) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "mask_dims[%u] %" PRIu64 " is neither 1 nor %s %" PRIu64, axis, size,
                              axis_names[axis], full[axis]);
        }
    }
    return VKMHA_OK;
}

/* Tensors in one memory: with strides of their own, only what the projections need must agree. */
static vkmha_status check_shared_inputs(const vkmha_layer_params *layer,
                                        const vkmha_plan_params *given, vkmha_error *error)
{
    if (given->key_is_query && given->key_len != given->query_len) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "key_len %" PRIu64 " differs from query_len %" PRIu64
                          ", but key_is_query",
                          given->key_len, given->query_len);
    }
    const bool is_alone = layer->attention_only;
    const struct {
        bool is_shared;
        bool has_strides;
        const char *name;
        uint32_t value;
        const char *other_name;
        uint32_t other;
        const char *rule;
    } tensors[] = {
        {given->key_is_query, given->key_strides.is_given, is_alone ? "num_kv_heads" : "key_dim",
         is_alone ? layer->num_kv_heads : layer->key_dim, is_alone ? "num_heads" : "embed_dim",
         is_alone ? layer->num_heads : layer->embed_dim, "key_is_query"},
        {given->value_is_key, given->value_strides.is_given, is_alone ? "v_head_dim" : "value_dim",
         is_alone ? layer->v_head_dim : layer->value_dim, is_alone ? "head_dim" : "key_dim",
         is_alone ? layer->head_dim : layer->key_dim, "value_is_key"},
    };
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        const bool is_checked = tensors[i].is_shared && !(is_alone && tensors[i].has_strides);
        if (is_checked && tensors[i].value != tensors[i].other) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "%s %u differs from %s %u, but %s", tensors[i].name, tensors[i].value,
                              tensors[i].other_name, tensors[i].other, tensors[i].rule);
        }
    }
    return VKMHA_OK;
}

/* Tensors in one memory are of one type. */
static vkmha_status check_types(const vkmha_plan_params *given, vkmha_error *error)
{
    const struct {
        const char *field;
        vkmha_type type;
    } types[] = {
        {"query_type", given->query_type},
        {"key_type", given->key_type},
        {"value_type", given->value_type},
        {"output_type", given->output_type},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        vkmha_status status = vkmha_check_type(types[i].field, types[i].type, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    if (given->key_is_query && given->key_type != given->query_type) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "key_type %u differs from query_type %u, but key_is_query",
                          (uint32_t)given->key_type, (uint32_t)given->query_type);
    }
    if (given->value_is_key && given->value_type != given->key_type) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "value_type %u differs from key_type %u, but value_is_key",
                          (uint32_t)given->value_type, (uint32_t)given->key_type);
    }
    return VKMHA_OK;
}

/* Every tensor's fp32 byte size must fit, so that later arithmetic on sizes cannot wrap. */
static vkmha_status check_sizes(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                                vkmha_error *error)
{
    const uint64_t batch = given->batch_size;
    const uint64_t widest_query =
        (uint64_t)layer->num_heads *
        (layer->head_dim > layer->v_head_dim ? layer->head_dim : layer->v_head_dim);
    const uint64_t embed =
        layer->embed_dim > layer->output_dim ? layer->embed_dim : layer->output_dim;
    const uint64_t key = layer->key_dim > layer->value_dim ? layer->key_dim : layer->value_dim;
    const struct {
        const char *name;
        uint64_t factors[5];
    } tensors[] = {
        {"query", {batch, given->query_len, widest_query > embed ? widest_query : embed, 8, 1}},
        {"key", {batch, vkmha_all_keys(given), widest_query > key ? widest_query : key, 8, 1}},
        {"mask",
         {given->mask_dims[0], given->mask_dims[1], given->mask_dims[2], given->mask_dims[3], 8}},
    };
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        uint64_t bytes = 0;
        if (!vkmha_multiply_all(tensors[i].factors, 5, &bytes)) {
            return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                              "%s tensor is too large: its size in bytes does not fit in 63 bits",
                              tensors[i].name);
        }
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_plan(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                              vkmha_plan_params *plan, vkmha_error *error)
{
    if (!given) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "plan params is NULL");
    }
    if (!vkmha_is_zero(given->reserved, sizeof(given->reserved))) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "plan params.reserved is not zero");
    }
    if (given->has_head_gates && given->has_gates_per_sequence) {
        return refuse_with("has_head_gates", "has_gates_per_sequence is", error);
    }
    if (layer->attention_only && given->project_kernel) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "project_kernel \"%s\" is given, but attention_only projects nothing",
                          given->project_kernel);
    }
    vkmha_plan_params checked = *given;
    checked.has_head_gates = given->has_head_gates || given->has_gates_per_sequence;
    vkmha_status status = check_kinds(layer, given, error);
    if (status == VKMHA_OK) {
        status = check_lengths(given, error);
    }
    if (status == VKMHA_OK) {
        status = check_exclusions(layer, given, error);
    }
    if (status == VKMHA_OK) {
        status = check_positions(given, &checked.positions, error);
    }
    if (status == VKMHA_OK) {
        status = check_windows(given, error);
    }
    if (status == VKMHA_OK) {
        status = check_mask(layer, given, error);
    }
    if (status == VKMHA_OK) {
        status = check_shared_inputs(layer, given, error);
    }
    if (status == VKMHA_OK) {
        status = check_types(given, error);
    }
    if (status == VKMHA_OK) {
        status = check_sizes(layer, given, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_asked(layer, given, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_strides(layer, &checked, error);
    }
    if (status == VKMHA_OK) {
        *plan = checked;
    }
    return status;
}
