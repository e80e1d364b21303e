/* The options of a case file. */
#include "case.h"

#include <string.h>

/* ---- Positions ----------------------------------------------------------------------------- */

/* An integer that fits in 32 bits. */
static vkmha_status read_integer(const vkmha_loader *load, const char *field, const char *fallback,
                                 const char *rule, int64_t *number)
{
    const char *value = vkmha_loader_text(load, field, fallback);
    const bool is_negative = value[0] == '-';
    uint64_t size = 0;
    if (!vkmha_parse_number(is_negative ? value + 1 : value, INT32_MAX, &size)) {
        return vkmha_loader_refuse(load, field, value, rule);
    }
    *number = is_negative ? -(int64_t)size : (int64_t)size;
    return VKMHA_OK;
}

static vkmha_status read_window(const vkmha_loader *load, const char *field, bool *is_given,
                                uint32_t *window)
{
    int64_t number = 0;
    VKMHA_TRY(read_integer(load, field, "-1", "is no integer", &number));
    if (number < -1) {
        return vkmha_loader_refuse(load, field, vkmha_loader_text(load, field, ""),
                                   "is less than -1");
    }
    *is_given = number >= 0;
    *window = number >= 0 ? (uint32_t)number : 0;
    return VKMHA_OK;
}

/* q_pos_offset holds; the name of the causal order only where it says the same. */
static vkmha_status read_causal(const vkmha_loader *load, bool is_per_item, int64_t offset)
{
    vkmha_plan_params *plan = &load->loaded->problem.plan;
    const char *causal = vkmha_loader_text(load, "causal", "none");
    const int64_t ends = (int64_t)(load->past_len + load->key_len) - (int64_t)load->query_len;
    bool has_lengths = false;
    VKMHA_TRY(vkmha_loader_flag(load, "use_kv_lengths", &has_lengths));
    if (is_per_item && !has_lengths) {
        return vkmha_loader_refuse(load, "q_pos_offset", "per_item", "needs use_kv_lengths");
    }
    /* Where lengths are given, the last key of a sequence is its own. */
    const bool is_at_end = has_lengths ? is_per_item : offset == ends;
    const bool is_at_start = !is_per_item && offset == 0;
    if (strcmp(causal, "none") == 0) {
        plan->positions = is_per_item   ? VKMHA_POSITIONS_BOTTOM_RIGHT
                          : is_at_start ? VKMHA_POSITIONS_TOP_LEFT
                                        : VKMHA_POSITIONS_OFFSET;
    } else if (strcmp(causal, "top_left") == 0) {
        plan->causal = is_per_item   ? VKMHA_CAUSAL_BOTTOM_RIGHT
                       : is_at_start ? VKMHA_CAUSAL_TOP_LEFT
                                     : VKMHA_CAUSAL_OFFSET;
    } else if (strcmp(causal, "bottom_right") == 0) {
        plan->causal = is_at_end ? VKMHA_CAUSAL_BOTTOM_RIGHT : VKMHA_CAUSAL_OFFSET;
    } else if (strcmp(causal, "offset") == 0) {
        plan->causal = is_per_item ? VKMHA_CAUSAL_BOTTOM_RIGHT : VKMHA_CAUSAL_OFFSET;
    } else {
        return vkmha_loader_refuse(load, "causal", causal,
                                   "is not none, top_left, bottom_right or offset");
    }
    const bool has_offset =
        plan->causal == VKMHA_CAUSAL_OFFSET || plan->positions == VKMHA_POSITIONS_OFFSET;
    plan->position_offset = has_offset ? offset : 0;
    return VKMHA_OK;
}

vkmha_status vkmha_loader_positions(vkmha_loader *load)
{
    vkmha_plan_params *plan = &load->loaded->problem.plan;
    const bool is_per_item = vkmha_loader_says(load, "q_pos_offset", "0", "per_item");
    int64_t offset = 0;
    if (!is_per_item) {
        VKMHA_TRY(
            read_integer(load, "q_pos_offset", "0", "is neither an integer nor per_item", &offset));
    }
    VKMHA_TRY(read_causal(load, is_per_item, offset));
    VKMHA_TRY(read_window(load, "window_left", &plan->has_window_left, &plan->window_left));
    return read_window(load, "window_right", &plan->has_window_right, &plan->window_right);
}

/* ---- Scores, heads and keys ---------------------------------------------------------------- */

static vkmha_status read_rope(const vkmha_loader *load, vkmha_rope *rope)
{
    const char *style = vkmha_loader_text(load, "rope_style", NULL);
    if (!style) {
        return VKMHA_OK;
    }
    uint64_t dim = 0;
    uint64_t positions = 0;
    VKMHA_TRY(vkmha_loader_size(load, "rope_dim", "", &dim));
    VKMHA_TRY(vkmha_loader_size(load, "rope_max_pos", "", &positions));
    if (strcmp(style, "half") == 0) {
        rope->style = VKMHA_ROPE_HALF;
    } else if (strcmp(style, "interleaved") == 0) {
        rope->style = VKMHA_ROPE_INTERLEAVED;
    } else {
        return vkmha_loader_refuse(load, "rope_style", style, "is neither half nor interleaved");
    }
    const uint64_t dims[] = {positions, dim / 2};
    VKMHA_TRY(vkmha_loader_floats(load, "rope_cos", dims, 2, &rope->cos));
    VKMHA_TRY(vkmha_loader_floats(load, "rope_sin", dims, 2, &rope->sin));
    rope->dim = (uint32_t)dim;
    rope->max_positions = (uint32_t)positions;
    return VKMHA_OK;
}

static vkmha_status read_further_keys(const vkmha_loader *load, vkmha_layer_params *layer)
{
    bool has_bias = false;
    VKMHA_TRY(vkmha_loader_flag(load, "add_bias_kv", &has_bias));
    if (has_bias) {
        const uint64_t key = load->num_kv_heads * load->head_dim;
        const uint64_t value = load->num_kv_heads * load->v_head_dim;
        VKMHA_TRY(vkmha_loader_floats(load, "bias_k", &key, 1, &layer->bias_k));
        VKMHA_TRY(vkmha_loader_floats(load, "bias_v", &value, 1, &layer->bias_v));
    }
    return vkmha_loader_flag(load, "add_zero_attn", &layer->add_zero_attn);
}

vkmha_status vkmha_loader_options(vkmha_loader *load)
{
    vkmha_problem *problem = &load->loaded->problem;
    vkmha_layer_params *layer = &problem->layer;
    double softcap = 0.0;
    VKMHA_TRY(vkmha_loader_double(load, "softcap", "0", &softcap));
    layer->softcap = (float)softcap;
    VKMHA_TRY(read_rope(load, &layer->rope));
    VKMHA_TRY(vkmha_loader_flag(load, "alibi", &layer->has_alibi));
    if (layer->has_alibi) {
        VKMHA_TRY(
            vkmha_loader_floats(load, "alibi_slopes", &load->num_heads, 1, &layer->alibi_slopes));
    }
    VKMHA_TRY(read_further_keys(load, layer));
    VKMHA_TRY(vkmha_loader_flag(load, "head_mask", &problem->plan.has_head_gates));
    if (problem->plan.has_head_gates) {
        VKMHA_TRY(vkmha_loader_floats(load, "head_mask", &load->num_heads, 1,
                                      &problem->inputs.head_gates));
    }
    problem->plan.past_len = load->past_len;
    if (load->past_len > 0) {
        const uint64_t key[] = {load->batch_size, load->num_kv_heads, load->past_len,
                                load->head_dim};
        const uint64_t value[] = {load->batch_size, load->num_kv_heads, load->past_len,
                                  load->v_head_dim};
        const float *past_key;
        const float *past_value;
        VKMHA_TRY(vkmha_loader_floats(load, "past_key", key, 4, &past_key));
        VKMHA_TRY(vkmha_loader_floats(load, "past_value", value, 4, &past_value));
        problem->inputs.past_key = past_key;
        problem->inputs.past_value = past_value;
    }
    return VKMHA_OK;
}
