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

vkmha_status vkmha_loader_size(const vkmha_loader *load, const char *field, const char *fallback,
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
            VKMHA_TRY(vkmha_loader_size(load, fields[i].field, fields[i].fallback, fields[i].size));
        }
    }
    return VKMHA_OK;
}

/* ---- What is asked ------------------------------------------------------------------------- */

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
    const uint64_t all_keys = load->past_len + load->key_len;
    if (strcmp(name, "present_key") == 0) {
        loaded->problem.plan.has_present = true;
        loaded->present_key_tolerance = tolerance;
        const uint64_t dims[] = {load->batch_size, load->num_kv_heads, all_keys, load->head_dim};
        return vkmha_loader_floats(load, name, dims, 4, &loaded->expected_present_key);
    }
    if (strcmp(name, "present_value") == 0) {
        loaded->problem.plan.has_present = true;
        loaded->present_value_tolerance = tolerance;
        const uint64_t dims[] = {load->batch_size, load->num_kv_heads, all_keys, load->v_head_dim};
        return vkmha_loader_floats(load, name, dims, 4, &loaded->expected_present_value);
    }
    if (strcmp(name, "weights") == 0) {
        loaded->skips |= 1u << VKMHA_SKIP_WEIGHTS;
        loaded->weights_tolerance = tolerance;
        /* The reference leaves the keys of add_bias_kv and add_zero_attn out of its weights. */
        if (!vkmha_loader_says(load, "add_bias_kv", "false", "false") ||
            !vkmha_loader_says(load, "add_zero_attn", "false", "false")) {
            return VKMHA_OK;
        }
        const uint64_t dims[] = {load->batch_size, load->num_heads, load->query_len, all_keys};
        return vkmha_loader_floats(load, name, dims, 4, &loaded->expected_weights);
    }
    if (strcmp(name, "weights_avg") == 0) {
        loaded->skips |= 1u << VKMHA_SKIP_WEIGHTS_AVG;
    } else if (strcmp(name, "scores") == 0) {
        loaded->skips |= 1u << VKMHA_SKIP_SCORES;
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
    VKMHA_TRY(read_outputs(load));
    VKMHA_TRY(vkmha_loader_layer(load));
    VKMHA_TRY(vkmha_loader_inputs(load));
    VKMHA_TRY(vkmha_loader_positions(load));
    VKMHA_TRY(vkmha_loader_options(load));
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
