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

/* Keys, then those of add_bias_kv and add_zero_attn. */
static vkmha_status count_columns(const vkmha_loader *load, uint64_t *columns)
{
    bool has_bias = false;
    bool has_zero = false;
    VKMHA_TRY(vkmha_loader_flag(load, "add_bias_kv", &has_bias));
    VKMHA_TRY(vkmha_loader_flag(load, "add_zero_attn", &has_zero));
    *columns = load->past_len + load->key_len + has_bias + has_zero;
    return VKMHA_OK;
}

static vkmha_status read_scores_mode(vkmha_loader *load)
{
    static const vkmha_scores stages[] = {VKMHA_SCORES_SCALED, VKMHA_SCORES_CAPPED,
                                          VKMHA_SCORES_MASKED};
    uint64_t mode = 0;
    VKMHA_TRY(vkmha_loader_size(load, "scores_mode", "", &mode));
    if (mode >= sizeof(stages) / sizeof(stages[0])) {
        return vkmha_loader_refuse(load, "scores_mode", vkmha_loader_text(load, "scores_mode", ""),
                                   "is not 0, 1 or 2");
    }
    load->loaded->scores = stages[mode];
    return VKMHA_OK;
}

/* What attention tells besides the output. */
static vkmha_status read_told(vkmha_loader *load, const char *name, double tolerance)
{
    vkmha_case *loaded = load->loaded;
    uint64_t columns = 0;
    VKMHA_TRY(count_columns(load, &columns));
    const uint64_t dims[] = {load->batch_size, load->num_heads, load->query_len, columns};
    const uint64_t mean_dims[] = {load->batch_size, load->query_len, columns};
    const struct {
        const char *name;
        vkmha_told told;
        const uint64_t *dims;
        uint32_t num_dims;
    } outputs[] = {
        {"weights", VKMHA_TOLD_WEIGHTS, dims, 4},
        {"weights_avg", VKMHA_TOLD_MEAN_WEIGHTS, mean_dims, 3},
        {"scores", VKMHA_TOLD_SCORES, dims, 4},
    };
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
        if (strcmp(name, outputs[i].name) == 0) {
            if (outputs[i].told == VKMHA_TOLD_SCORES) {
                VKMHA_TRY(read_scores_mode(load));
            }
            loaded->told_tolerance[outputs[i].told] = tolerance;
            return vkmha_loader_floats(load, name, outputs[i].dims, outputs[i].num_dims,
                                       &loaded->expected_told[outputs[i].told]);
        }
    }
    return vkmha_loader_refuse(load, "outputs", name, "is no output of a case");
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
    return read_told(load, name, tolerance);
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
