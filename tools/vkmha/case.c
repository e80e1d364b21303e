/* Case files: safetensors whose metadata says what to compute. */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Metadata ------------------------------------------------------------------------------ */

vkmha_status vkmha_loader_refuse(const vkmha_loader *load, const char *field, const char *value,
                                 const char *rule)
{
    return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE, "%s: %s \"%s\" %s", load->path, field,
                           value, rule);
}

const char *vkmha_loader_text(const vkmha_loader *load, const char *field, const char *fallback)
{
    const char *value = vkmha_file_metadata(load->loaded->file, field);
    return value ? value : fallback;
}

bool vkmha_loader_says(const vkmha_loader *load, const char *field, const char *fallback,
                       const char *value)
{
    return strcmp(vkmha_loader_text(load, field, fallback), value) == 0;
}

static vkmha_status read_size(const vkmha_loader *load, const char *field, const char *fallback,
                              uint64_t *size)
{
    const char *value = vkmha_loader_text(load, field, fallback);
    if (!vkmha_parse_number(value, INT32_MAX, size)) {
        return vkmha_loader_refuse(load, field, value, "is not a size");
    }
    return VKMHA_OK;
}

vkmha_status vkmha_loader_double(const vkmha_loader *load, const char *field, const char *fallback,
                                 double *number)
{
    const char *value = vkmha_loader_text(load, field, fallback);
    char *end = NULL;
    *number = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(*number)) {
        return vkmha_loader_refuse(load, field, value, "is not a finite number");
    }
    return VKMHA_OK;
}

vkmha_status vkmha_loader_flag(const vkmha_loader *load, const char *field, bool *flag)
{
    const char *value = vkmha_loader_text(load, field, "false");
    *flag = strcmp(value, "true") == 0;
    if (!*flag && strcmp(value, "false") != 0) {
        return vkmha_loader_refuse(load, field, value, "is neither true nor false");
    }
    return VKMHA_OK;
}

static vkmha_status read_sizes(vkmha_loader *load)
{
    const struct {
        const char *field;
        const char *fallback;
        uint64_t *size;
        bool is_projections;
    } fields[] = {
        {"batch", "", &load->batch_size, false},
        {"q_len", "", &load->query_len, false},
        {"kv_len", "", &load->key_len, false},
        {"past_len", "0", &load->past_len, false},
        {"num_heads", "", &load->num_heads, false},
        {"num_kv_heads", "", &load->num_kv_heads, false},
        {"head_dim", "", &load->head_dim, false},
        {"v_head_dim", "", &load->v_head_dim, false},
        {"d_model", "", &load->embed_dim, true},
        {"k_dim", "", &load->key_dim, true},
        {"v_dim", "", &load->value_dim, true},
        {"out_dim", "", &load->output_dim, true},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (!fields[i].is_projections || load->has_projections) {
            VKMHA_TRY(read_size(load, fields[i].field, fields[i].fallback, fields[i].size));
        }
    }
    return VKMHA_OK;
}

/* ---- What is asked ------------------------------------------------------------------------- */

/* Positions matter to the causal order alone here: without it, any offset is harmless. */
static vkmha_status read_causal(vkmha_loader *load)
{
    vkmha_case *loaded = load->loaded;
    const char *causal = vkmha_loader_text(load, "causal", "none");
    const char *offset = vkmha_loader_text(load, "q_pos_offset", "0");
    const bool is_per_item = strcmp(offset, "per_item") == 0;
    uint64_t number = 0;
    if (!is_per_item &&
        !vkmha_parse_number(offset[0] == '-' ? offset + 1 : offset, INT32_MAX, &number)) {
        return vkmha_loader_refuse(load, "q_pos_offset", offset,
                                   "is neither an integer nor per_item");
    }
    const int64_t position = offset[0] == '-' ? -(int64_t)number : (int64_t)number;
    const int64_t ends = (int64_t)(load->past_len + load->key_len) - (int64_t)load->query_len;
    bool has_lengths = false;
    VKMHA_TRY(vkmha_loader_flag(load, "use_kv_lengths", &has_lengths));
    if (is_per_item && !has_lengths) {
        return vkmha_loader_refuse(load, "q_pos_offset", offset, "needs use_kv_lengths");
    }
    if (strcmp(causal, "none") == 0) {
        return VKMHA_OK;
    }
    bool is_supported = false;
    if (strcmp(causal, "top_left") == 0) {
        loaded->problem.plan.causal = VKMHA_CAUSAL_TOP_LEFT;
        is_supported = !is_per_item && position == 0;
    } else if (strcmp(causal, "bottom_right") == 0) {
        /* Where lengths are given, the last key of a sequence is its own. */
        loaded->problem.plan.causal = VKMHA_CAUSAL_BOTTOM_RIGHT;
        is_supported = has_lengths ? is_per_item : position == ends;
    } else if (strcmp(causal, "offset") != 0) {
        return vkmha_loader_refuse(load, "causal", causal,
                                   "is not none, top_left, bottom_right or offset");
    }
    if (!is_supported) {
        loaded->option_skips |=
            1u << (is_per_item ? VKMHA_SKIP_PER_ITEM_POSITIONS : VKMHA_SKIP_CAUSAL_OFFSET);
    }
    return VKMHA_OK;
}

static vkmha_status read_options(vkmha_loader *load)
{
    const struct {
        const char *field;
        vkmha_skip skip;
    } flags[] = {
        {"alibi", VKMHA_SKIP_ALIBI},
        {"add_bias_kv", VKMHA_SKIP_BIAS_KV},
        {"add_zero_attn", VKMHA_SKIP_ZERO_ATTN},
        {"head_mask", VKMHA_SKIP_HEAD_MASK},
    };
    uint32_t *skips = &load->loaded->option_skips;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        bool is_on = false;
        VKMHA_TRY(vkmha_loader_flag(load, flags[i].field, &is_on));
        *skips |= is_on ? 1u << flags[i].skip : 0;
    }
    double softcap = 0.0;
    VKMHA_TRY(vkmha_loader_double(load, "softcap", "0", &softcap));
    *skips |= softcap != 0.0 ? 1u << VKMHA_SKIP_SOFTCAP : 0;
    const bool has_window = !vkmha_loader_says(load, "window_left", "-1", "-1") ||
                            !vkmha_loader_says(load, "window_right", "-1", "-1");
    *skips |= has_window ? 1u << VKMHA_SKIP_WINDOW : 0;
    *skips |= vkmha_file_metadata(load->loaded->file, "rope_style") ? 1u << VKMHA_SKIP_ROPE : 0;
    *skips |= load->past_len > 0 ? 1u << VKMHA_SKIP_PAST : 0;
    return read_causal(load);
}

static vkmha_status read_output(vkmha_loader *load, const char *name)
{
    vkmha_case *loaded = load->loaded;
    char field[64];
    snprintf(field, sizeof(field), "tol_f32_%s", name);
    double tolerance = 0.0;
    VKMHA_TRY(vkmha_loader_double(load, field, "", &tolerance));
    if (tolerance < 0.0) {
        return vkmha_loader_refuse(load, field, vkmha_loader_text(load, field, ""), "is negative");
    }
    if (strcmp(name, "output") == 0) {
        loaded->tolerance = tolerance;
        return vkmha_loader_sequence(load, name, load->query_len, load->output_dim, load->num_heads,
                                     load->v_head_dim, &loaded->expected);
    }
    if (strcmp(name, "weights") == 0) {
        loaded->output_skips |= 1u << VKMHA_SKIP_WEIGHTS;
        loaded->weights_tolerance = tolerance;
        const uint64_t dims[] = {load->batch_size, load->num_heads, load->query_len, load->key_len};
        return loaded->option_skips
                   ? VKMHA_OK
                   : vkmha_loader_floats(load, name, dims, 4, &loaded->expected_weights);
    }
    if (strcmp(name, "weights_avg") == 0) {
        loaded->output_skips |= 1u << VKMHA_SKIP_WEIGHTS_AVG;
    } else if (strcmp(name, "scores") == 0) {
        loaded->output_skips |= 1u << VKMHA_SKIP_SCORES;
    } else if (strcmp(name, "present_key") == 0 || strcmp(name, "present_value") == 0) {
        loaded->output_skips |= 1u << VKMHA_SKIP_PRESENT;
    } else {
        return vkmha_loader_refuse(load, "outputs", name, "is no output of a case");
    }
    return VKMHA_OK;
}

static vkmha_status read_outputs(vkmha_loader *load)
{
    const char *list = vkmha_loader_text(load, "outputs", "");
    while (true) {
        const size_t length = strcspn(list, ",");
        char name[32] = "";
        if (length == 0 || length >= sizeof(name)) {
            return vkmha_loader_refuse(load, "outputs", vkmha_loader_text(load, "outputs", ""),
                                       "is no list of outputs");
        }
        memcpy(name, list, length);
        VKMHA_TRY(read_output(load, name));
        if (list[length] == '\0') {
            return VKMHA_OK;
        }
        list += length + 1;
    }
}

static vkmha_status load_all(vkmha_loader *load)
{
    const char *operation = vkmha_loader_text(load, "op", "");
    load->has_projections = strcmp(operation, "mha") == 0;
    if (!load->has_projections && strcmp(operation, "sdpa") != 0) {
        return vkmha_loader_refuse(load, "op", operation, "is neither mha nor sdpa");
    }
    const char *layout = vkmha_loader_text(load, "layout", load->has_projections ? "bse" : "");
    load->has_head_first_layout = strcmp(layout, "bhsd") == 0;
    const bool is_known = load->has_projections
                              ? strcmp(layout, "bse") == 0
                              : load->has_head_first_layout || strcmp(layout, "bshd") == 0;
    if (!is_known) {
        return vkmha_loader_refuse(load, "layout", layout, "does not belong to the op");
    }
    VKMHA_TRY(read_sizes(load));
    vkmha_plan_params *plan = &load->loaded->problem.plan;
    plan->batch_size = load->batch_size;
    plan->query_len = load->query_len;
    plan->key_len = load->key_len;
    plan->layout = load->has_head_first_layout ? VKMHA_LAYOUT_BHSD : VKMHA_LAYOUT_BSHD;
    VKMHA_TRY(read_options(load));
    VKMHA_TRY(read_outputs(load));
    if (load->loaded->option_skips) {
        return VKMHA_OK;
    }
    VKMHA_TRY(vkmha_loader_layer(load));
    VKMHA_TRY(vkmha_loader_inputs(load));
    return vkmha_loader_masks(load);
}

vkmha_status vkmha_case_load(const char *path, vkmha_case *loaded, bool *is_case,
                             vkmha_error *error)
{
    *loaded = (vkmha_case){0};
    *is_case = false;
    VKMHA_TRY(vkmha_file_open(path, NULL, &loaded->file, error));
    vkmha_loader load = {.path = path, .loaded = loaded, .error = error};
    const char *version = vkmha_loader_text(&load, "vkmha_case", NULL);
    vkmha_status status = VKMHA_OK;
    if (!version) {
        vkmha_case_finish(loaded);
        return VKMHA_OK;
    }
    *is_case = true;
    if (strcmp(version, "1") != 0) {
        status = vkmha_loader_refuse(&load, "vkmha_case", version, "is not 1");
    } else {
        status = load_all(&load);
    }
    if (status != VKMHA_OK) {
        vkmha_case_finish(loaded);
        return status;
    }
    loaded->name = vkmha_loader_text(&load, "name", path);
    loaded->sentences = vkmha_loader_text(&load, "sentences", NULL);
    return VKMHA_OK;
}

void vkmha_case_finish(vkmha_case *loaded)
{
    vkmha_pool_finish(&loaded->pool);
    vkmha_file_close(loaded->weights_file);
    vkmha_file_close(loaded->file);
    *loaded = (vkmha_case){0};
}
