/* Case files: safetensors whose metadata says what to compute. */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What loading works on. */
typedef struct loader {
    const char *path;
    vkmha_case *loaded;
    vkmha_error *error;
    uint64_t batch_size;
    uint64_t query_len;
    uint64_t key_len;
    uint64_t past_len;
    uint64_t num_heads;
    uint64_t num_kv_heads;
    uint64_t head_dim;
    uint64_t v_head_dim;
    uint64_t embed_dim;
    uint64_t key_dim;
    uint64_t value_dim;
    uint64_t output_dim;
    bool has_projections;
    bool has_head_first_layout;
} loader;

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const vkmha_status try_status = (call);                                                    \
        if (try_status != VKMHA_OK) {                                                              \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

/* ---- Metadata ------------------------------------------------------------------------------------- */

static vkmha_status refuse(const loader *load, const char *field, const char *value, const char *rule)
{
    return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE, "%s: %s \"%s\" %s", load->path, field, value,
                           rule);
}

static const char *text_of(const loader *load, const char *field, const char *fallback)
{
    const char *value = vkmha_file_metadata(load->loaded->file, field);
    return value ? value : fallback;
}

static bool is_text(const loader *load, const char *field, const char *fallback, const char *value)
{
    return strcmp(text_of(load, field, fallback), value) == 0;
}

static vkmha_status read_size(const loader *load, const char *field, const char *fallback, uint64_t *size)
{
    const char *value = text_of(load, field, fallback);
    if (!vkmha_parse_number(value, INT32_MAX, size)) {
        return refuse(load, field, value, "is not a size");
    }
    return VKMHA_OK;
}

static vkmha_status read_double(const loader *load, const char *field, const char *fallback,
                                double *number)
{
    const char *value = text_of(load, field, fallback);
    char *end = NULL;
    *number = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(*number)) {
        return refuse(load, field, value, "is not a finite number");
    }
    return VKMHA_OK;
}

static vkmha_status read_flag(const loader *load, const char *field, bool *flag)
{
    const char *value = text_of(load, field, "false");
    *flag = strcmp(value, "true") == 0;
    if (!*flag && strcmp(value, "false") != 0) {
        return refuse(load, field, value, "is neither true nor false");
    }
    return VKMHA_OK;
}

static vkmha_status read_sizes(loader *load)
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
            TRY(read_size(load, fields[i].field, fields[i].fallback, fields[i].size));
        }
    }
    return VKMHA_OK;
}

/* ---- Tensors -------------------------------------------------------------------------------------- */

/* The tensor, or the one that alias_NAME points at; NULL where there is none. */
static const vkmha_tensor *find_tensor(const loader *load, const char *name)
{
    char field[64];
    snprintf(field, sizeof(field), "alias_%s", name);
    const char *alias = vkmha_file_metadata(load->loaded->file, field);
    return vkmha_file_find(load->loaded->file, alias ? alias : name);
}

static vkmha_status require_tensor(const loader *load, const char *name, const vkmha_tensor **tensor)
{
    *tensor = find_tensor(load, name);
    if (!*tensor) {
        return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE, "%s: tensor %s is missing", load->path,
                               name);
    }
    return VKMHA_OK;
}

static vkmha_status require_dims(const loader *load, const vkmha_tensor *tensor, const uint64_t *dims,
                                 uint32_t num_dims)
{
    bool agrees = tensor->num_dims == num_dims;
    for (uint32_t i = 0; agrees && i < num_dims; i++) {
        if (tensor->dims[i] != dims[i]) {
            return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE,
                                   "%s: tensor %s has %" PRIu64 " at dimension %u, the sizes say %" PRIu64,
                                   load->path, tensor->name, tensor->dims[i], i, dims[i]);
        }
    }
    if (!agrees) {
        return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE,
                               "%s: tensor %s has %u dimensions instead of %u", load->path,
                               tensor->name, tensor->num_dims, num_dims);
    }
    return VKMHA_OK;
}

static vkmha_status out_of_memory(const loader *load)
{
    return vkmha_tool_fail(load->error, VKMHA_ERROR_OUT_OF_MEMORY, "%s: out of memory", load->path);
}

static vkmha_status load_floats(const loader *load, const char *name, const uint64_t *dims,
                                uint32_t num_dims, const float **values)
{
    const vkmha_tensor *tensor = NULL;
    TRY(require_tensor(load, name, &tensor));
    TRY(require_dims(load, tensor, dims, num_dims));
    float *copy = vkmha_pool_allocate(&load->loaded->pool, tensor->count, sizeof(float));
    if (!copy) {
        return out_of_memory(load);
    }
    TRY(vkmha_tensor_to_f32(tensor, copy, load->error));
    *values = copy;
    return VKMHA_OK;
}

/* A copy of the tensor's bytes, so that the data is aligned. */
static vkmha_status load_bytes(const loader *load, const vkmha_tensor *tensor, const void **bytes)
{
    void *copy = vkmha_pool_allocate(&load->loaded->pool, tensor->size_bytes, 1);
    if (!copy) {
        return out_of_memory(load);
    }
    if (tensor->size_bytes > 0) {
        memcpy(copy, tensor->data, tensor->size_bytes);
    }
    *bytes = copy;
    return VKMHA_OK;
}

static vkmha_status require_bytes_type(const loader *load, const vkmha_tensor *tensor)
{
    if (tensor->type != VKMHA_FILE_U8 && tensor->type != VKMHA_FILE_BOOL) {
        return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE, "%s: tensor %s is neither U8 nor BOOL",
                               load->path, tensor->name);
    }
    return VKMHA_OK;
}

static vkmha_status weight_type(const loader *load, const vkmha_tensor *tensor, vkmha_type *type)
{
    switch (tensor->type) {
    case VKMHA_FILE_F32:
        *type = VKMHA_TYPE_F32;
        return VKMHA_OK;
    case VKMHA_FILE_F16:
        *type = VKMHA_TYPE_F16;
        return VKMHA_OK;
    case VKMHA_FILE_BF16:
        *type = VKMHA_TYPE_BF16;
        return VKMHA_OK;
    default:
        return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE,
                               "%s: tensor %s is not F32, F16 or BF16", load->path, tensor->name);
    }
}

/* ---- Parts of the problem ------------------------------------------------------------------------- */

static vkmha_status load_weights(const loader *load, vkmha_layer_params *layer)
{
    const uint64_t query_rows = load->num_heads * load->head_dim;
    const uint64_t key_rows = load->num_kv_heads * load->head_dim;
    const uint64_t value_rows = load->num_kv_heads * load->v_head_dim;
    const struct {
        const char *weight;
        const char *bias;
        vkmha_matrix *matrix;
        vkmha_vector *vector;
        uint64_t rows;
        uint64_t columns;
    } fields[] = {
        {"w_q", "b_q", &layer->w_q, &layer->b_q, query_rows, load->embed_dim},
        {"w_k", "b_k", &layer->w_k, &layer->b_k, key_rows, load->key_dim},
        {"w_v", "b_v", &layer->w_v, &layer->b_v, value_rows, load->value_dim},
        {"w_o", "b_o", &layer->w_o, &layer->b_o, load->output_dim, load->num_heads * load->v_head_dim},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const vkmha_tensor *tensor = NULL;
        TRY(require_tensor(load, fields[i].weight, &tensor));
        TRY(require_dims(load, tensor, (const uint64_t[]){fields[i].rows, fields[i].columns}, 2));
        *fields[i].matrix = (vkmha_matrix){
            .data = tensor->data, .rows = fields[i].rows, .columns = fields[i].columns};
        TRY(weight_type(load, tensor, &fields[i].matrix->type));
        tensor = find_tensor(load, fields[i].bias);
        if (tensor) {
            TRY(require_dims(load, tensor, &fields[i].rows, 1));
            *fields[i].vector = (vkmha_vector){.data = tensor->data, .size = fields[i].rows};
            TRY(weight_type(load, tensor, &fields[i].vector->type));
        }
    }
    return VKMHA_OK;
}

/* Weights that stand in another file beside the case, by the names of a real checkpoint. */
static vkmha_status load_checkpoint(loader *load, const char *name, vkmha_layer_params *layer)
{
    if (name[0] == '\0' || strpbrk(name, "/\\")) {
        return refuse(load, "weights_file", name, "is not the name of a file beside the case");
    }
    const char *slash = strrchr(load->path, '/');
    const size_t folder = slash ? (size_t)(slash - load->path) + 1 : 0;
    const size_t size = folder + strlen(name) + 1;
    char *path = vkmha_pool_allocate(&load->loaded->pool, size, 1);
    if (!path) {
        return out_of_memory(load);
    }
    memcpy(path, load->path, folder);
    memcpy(path + folder, name, size - folder);
    TRY(vkmha_file_open(path, NULL, &load->loaded->weights_file, load->error));
    const vkmha_checkpoint_params params = {
        .prefix = text_of(load, "weights_prefix", NULL),
        .num_heads = (uint32_t)load->num_heads,
        .num_kv_heads = (uint32_t)load->num_kv_heads,
        .head_dim = (uint32_t)load->head_dim,
    };
    TRY(vkmha_checkpoint_layer(load->loaded->weights_file, &params, layer, load->error));
    const uint32_t value_dim = layer->value_dim ? layer->value_dim : layer->embed_dim;
    const uint32_t key_dim = layer->key_dim ? layer->key_dim : layer->embed_dim;
    const uint32_t output_dim = layer->output_dim ? layer->output_dim : layer->embed_dim;
    const uint32_t v_head_dim = layer->v_head_dim ? layer->v_head_dim : layer->head_dim;
    if (layer->embed_dim != load->embed_dim || key_dim != load->key_dim ||
        value_dim != load->value_dim || output_dim != load->output_dim ||
        v_head_dim != load->v_head_dim) {
        return refuse(load, "weights_file", name, "holds weights of other sizes than the case");
    }
    return VKMHA_OK;
}

static vkmha_status load_layer(loader *load)
{
    vkmha_layer_params *layer = &load->loaded->problem.layer;
    double scale = 0.0;
    TRY(read_double(load, "scale", "", &scale));
    if (load->num_heads == 0 || load->num_kv_heads == 0 || load->num_heads % load->num_kv_heads != 0) {
        return refuse(load, "num_kv_heads", text_of(load, "num_kv_heads", ""),
                      "does not divide num_heads");
    }
    if (load->has_projections) {
        const char *weights_file = vkmha_file_metadata(load->loaded->file, "weights_file");
        if (weights_file) {
            TRY(load_checkpoint(load, weights_file, layer));
        } else {
            layer->embed_dim = (uint32_t)load->embed_dim;
            layer->key_dim = (uint32_t)load->key_dim;
            layer->value_dim = (uint32_t)load->value_dim;
            layer->output_dim = (uint32_t)load->output_dim;
            TRY(load_weights(load, layer));
        }
    }
    layer->attention_only = !load->has_projections;
    layer->num_heads = (uint32_t)load->num_heads;
    layer->num_kv_heads = (uint32_t)load->num_kv_heads;
    layer->head_dim = (uint32_t)load->head_dim;
    layer->v_head_dim = (uint32_t)load->v_head_dim;
    layer->has_scale = true;
    layer->scale = (float)scale;
    return VKMHA_OK;
}

/* [batch, seq, features] with projections, else heads as the layout says. */
static vkmha_status load_sequence(const loader *load, const char *name, uint64_t length, uint64_t features,
                                  uint64_t heads, uint64_t head_dim, const float **values)
{
    if (load->has_projections) {
        return load_floats(load, name, (const uint64_t[]){load->batch_size, length, features}, 3, values);
    }
    if (load->has_head_first_layout) {
        return load_floats(load, name, (const uint64_t[]){load->batch_size, heads, length, head_dim}, 4,
                           values);
    }
    return load_floats(load, name, (const uint64_t[]){load->batch_size, length, heads, head_dim}, 4,
                       values);
}

static vkmha_status load_inputs(const loader *load)
{
    vkmha_problem *problem = &load->loaded->problem;
    vkmha_plan_params *plan = &problem->plan;
    vkmha_inputs *inputs = &problem->inputs;
    TRY(load_sequence(load, "query", load->query_len, load->embed_dim, load->num_heads, load->head_dim,
                      &inputs->query));
    TRY(load_sequence(load, "key", load->key_len, load->key_dim, load->num_kv_heads, load->head_dim,
                      &inputs->key));
    TRY(load_sequence(load, "value", load->key_len, load->value_dim, load->num_kv_heads,
                      load->v_head_dim, &inputs->value));
    plan->key_is_query = is_text(load, "alias_key", "", "query");
    plan->value_is_key = is_text(load, "alias_value", "", "key") ||
                         (plan->key_is_query && is_text(load, "alias_value", "", "query"));
    inputs->key = plan->key_is_query ? NULL : inputs->key;
    inputs->value = plan->value_is_key ? NULL : inputs->value;
    return VKMHA_OK;
}

static vkmha_status load_mask(const loader *load)
{
    vkmha_plan_params *plan = &load->loaded->problem.plan;
    vkmha_inputs *inputs = &load->loaded->problem.inputs;
    const char *kind = text_of(load, "mask", "none");
    const vkmha_tensor *mask = NULL;
    if (strcmp(kind, "bool_keep") == 0 || strcmp(kind, "additive") == 0) {
        TRY(require_tensor(load, "mask", &mask));
        if (mask->num_dims != 4) {
            return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE,
                                   "%s: tensor mask has %u dimensions instead of 4", load->path,
                                   mask->num_dims);
        }
        memcpy(plan->mask_dims, mask->dims, sizeof(plan->mask_dims));
        if (strcmp(kind, "additive") == 0) {
            const float *values = NULL;
            plan->mask = VKMHA_MASK_ADDITIVE;
            TRY(load_floats(load, "mask", mask->dims, 4, &values));
            inputs->mask = values;
        } else {
            plan->mask = VKMHA_MASK_ATTEND;
            TRY(require_bytes_type(load, mask));
            TRY(load_bytes(load, mask, &inputs->mask));
        }
    } else if (strcmp(kind, "none") != 0 && strcmp(kind, "key_padding") != 0) {
        return refuse(load, "mask", kind, "is not none, key_padding, bool_keep or additive");
    }
    TRY(read_flag(load, "key_padding", &plan->has_attend_keys));
    if (plan->has_attend_keys) {
        const vkmha_tensor *tensor = NULL;
        const void *bytes = NULL;
        TRY(require_tensor(load, "key_padding_mask", &tensor));
        TRY(require_dims(load, tensor, (const uint64_t[]){load->batch_size, load->key_len}, 2));
        TRY(require_bytes_type(load, tensor));
        TRY(load_bytes(load, tensor, &bytes));
        inputs->attend_keys = bytes;
    }
    TRY(read_flag(load, "use_kv_lengths", &plan->has_key_lengths));
    if (plan->has_key_lengths) {
        const vkmha_tensor *tensor = NULL;
        const void *bytes = NULL;
        TRY(require_tensor(load, "kv_lengths", &tensor));
        TRY(require_dims(load, tensor, &load->batch_size, 1));
        if (tensor->type != VKMHA_FILE_I32) {
            return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE, "%s: tensor kv_lengths is not I32",
                                   load->path);
        }
        TRY(load_bytes(load, tensor, &bytes));
        inputs->key_lengths = bytes;
    }
    return VKMHA_OK;
}

/* ---- What is asked -------------------------------------------------------------------------------- */

/* Whether positions make a difference: an unsupported kind of them is harmless otherwise. */
static vkmha_status read_causal(loader *load)
{
    vkmha_case *loaded = load->loaded;
    const char *causal = text_of(load, "causal", "none");
    const char *offset = text_of(load, "q_pos_offset", "0");
    const bool is_per_item = strcmp(offset, "per_item") == 0;
    uint64_t number = 0;
    if (!is_per_item && !vkmha_parse_number(offset[0] == '-' ? offset + 1 : offset, INT32_MAX, &number)) {
        return refuse(load, "q_pos_offset", offset, "is neither an integer nor per_item");
    }
    const int64_t position = offset[0] == '-' ? -(int64_t)number : (int64_t)number;
    const int64_t ends = (int64_t)(load->past_len + load->key_len) - (int64_t)load->query_len;
    bool has_lengths = false;
    TRY(read_flag(load, "use_kv_lengths", &has_lengths));
    if (is_per_item && !has_lengths) {
        return refuse(load, "q_pos_offset", offset, "needs use_kv_lengths");
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
        return refuse(load, "causal", causal, "is not none, top_left, bottom_right or offset");
    }
    if (!is_supported) {
        loaded->option_skips |=
            1u << (is_per_item ? VKMHA_SKIP_PER_ITEM_POSITIONS : VKMHA_SKIP_CAUSAL_OFFSET);
    }
    return VKMHA_OK;
}

static vkmha_status read_options(loader *load)
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
        TRY(read_flag(load, flags[i].field, &is_on));
        *skips |= is_on ? 1u << flags[i].skip : 0;
    }
    double softcap = 0.0;
    TRY(read_double(load, "softcap", "0", &softcap));
    *skips |= softcap != 0.0 ? 1u << VKMHA_SKIP_SOFTCAP : 0;
    const bool has_window = !is_text(load, "window_left", "-1", "-1") ||
                            !is_text(load, "window_right", "-1", "-1");
    *skips |= has_window ? 1u << VKMHA_SKIP_WINDOW : 0;
    *skips |= vkmha_file_metadata(load->loaded->file, "rope_style") ? 1u << VKMHA_SKIP_ROPE : 0;
    *skips |= load->past_len > 0 ? 1u << VKMHA_SKIP_PAST : 0;
    return read_causal(load);
}

static vkmha_status read_output(loader *load, const char *name)
{
    vkmha_case *loaded = load->loaded;
    char field[64];
    snprintf(field, sizeof(field), "tol_f32_%s", name);
    double tolerance = 0.0;
    TRY(read_double(load, field, "", &tolerance));
    if (tolerance < 0.0) {
        return refuse(load, field, text_of(load, field, ""), "is negative");
    }
    if (strcmp(name, "output") == 0) {
        loaded->tolerance = tolerance;
        return load_sequence(load, name, load->query_len, load->output_dim, load->num_heads,
                             load->v_head_dim, &loaded->expected);
    }
    if (strcmp(name, "weights") == 0) {
        loaded->output_skips |= 1u << VKMHA_SKIP_WEIGHTS;
        loaded->weights_tolerance = tolerance;
        const uint64_t dims[] = {load->batch_size, load->num_heads, load->query_len, load->key_len};
        return loaded->option_skips ? VKMHA_OK
                                    : load_floats(load, name, dims, 4, &loaded->expected_weights);
    }
    if (strcmp(name, "weights_avg") == 0) {
        loaded->output_skips |= 1u << VKMHA_SKIP_WEIGHTS_AVG;
    } else if (strcmp(name, "scores") == 0) {
        loaded->output_skips |= 1u << VKMHA_SKIP_SCORES;
    } else if (strcmp(name, "present_key") == 0 || strcmp(name, "present_value") == 0) {
        loaded->output_skips |= 1u << VKMHA_SKIP_PRESENT;
    } else {
        return refuse(load, "outputs", name, "is no output of a case");
    }
    return VKMHA_OK;
}

static vkmha_status read_outputs(loader *load)
{
    const char *list = text_of(load, "outputs", "");
    while (true) {
        const size_t length = strcspn(list, ",");
        char name[32] = "";
        if (length == 0 || length >= sizeof(name)) {
            return refuse(load, "outputs", text_of(load, "outputs", ""), "is no list of outputs");
        }
        memcpy(name, list, length);
        TRY(read_output(load, name));
        if (list[length] == '\0') {
            return VKMHA_OK;
        }
        list += length + 1;
    }
}

static vkmha_status load_all(loader *load)
{
    const char *operation = text_of(load, "op", "");
    load->has_projections = strcmp(operation, "mha") == 0;
    if (!load->has_projections && strcmp(operation, "sdpa") != 0) {
        return refuse(load, "op", operation, "is neither mha nor sdpa");
    }
    const char *layout = text_of(load, "layout", load->has_projections ? "bse" : "");
    load->has_head_first_layout = strcmp(layout, "bhsd") == 0;
    const bool is_known = load->has_projections
                              ? strcmp(layout, "bse") == 0
                              : load->has_head_first_layout || strcmp(layout, "bshd") == 0;
    if (!is_known) {
        return refuse(load, "layout", layout, "does not belong to the op");
    }
    TRY(read_sizes(load));
    vkmha_plan_params *plan = &load->loaded->problem.plan;
    plan->batch_size = load->batch_size;
    plan->query_len = load->query_len;
    plan->key_len = load->key_len;
    plan->layout = load->has_head_first_layout ? VKMHA_LAYOUT_BHSD : VKMHA_LAYOUT_BSHD;
    TRY(read_options(load));
    TRY(read_outputs(load));
    if (load->loaded->option_skips) {
        return VKMHA_OK;
    }
    TRY(load_layer(load));
    TRY(load_inputs(load));
    return load_mask(load);
}

vkmha_status vkmha_case_load(const char *path, vkmha_case *loaded, bool *is_case, vkmha_error *error)
{
    *loaded = (vkmha_case){0};
    *is_case = false;
    TRY(vkmha_file_open(path, NULL, &loaded->file, error));
    loader load = {.path = path, .loaded = loaded, .error = error};
    const char *version = text_of(&load, "vkmha_case", NULL);
    vkmha_status status = VKMHA_OK;
    if (!version) {
        vkmha_case_finish(loaded);
        return VKMHA_OK;
    }
    *is_case = true;
    if (strcmp(version, "1") != 0) {
        status = refuse(&load, "vkmha_case", version, "is not 1");
    } else {
        status = load_all(&load);
    }
    if (status != VKMHA_OK) {
        vkmha_case_finish(loaded);
        return status;
    }
    loaded->name = text_of(&load, "name", path);
    loaded->sentences = text_of(&load, "sentences", NULL);
    return VKMHA_OK;
}

void vkmha_case_finish(vkmha_case *loaded)
{
    vkmha_pool_finish(&loaded->pool);
    vkmha_file_close(loaded->weights_file);
    vkmha_file_close(loaded->file);
    *loaded = (vkmha_case){0};
}
