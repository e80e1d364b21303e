/* The names that real checkpoints use -> views of one layer's weights. */
#include "file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 512 };

/* How the weights of one kind of checkpoint are called, after the layer's prefix. */
typedef struct vkmha_naming {
    const char *anchor;     /* the tensor that shows a layer of this kind */
    const char *weights[4]; /* query, key, value, output */
    const char *biases[4];
    bool is_fused;      /* weights or biases of the first three that share a name are its thirds */
    bool is_transposed; /* stored [in, out] */
} vkmha_naming;

static const vkmha_naming namings[] = {
    /* BERT, MiniLM */
    {"self.query.weight",
     {"self.query.weight", "self.key.weight", "self.value.weight", "output.dense.weight"},
     {"self.query.bias", "self.key.bias", "self.value.bias", "output.dense.bias"},
     false,
     false},
    /* torch.nn.MultiheadAttention, one width */
    {"in_proj_weight",
     {"in_proj_weight", "in_proj_weight", "in_proj_weight", "out_proj.weight"},
     {"in_proj_bias", "in_proj_bias", "in_proj_bias", "out_proj.bias"},
     true,
     false},
    /* torch.nn.MultiheadAttention with kdim or vdim */
    {"q_proj_weight",
     {"q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"},
     {"in_proj_bias", "in_proj_bias", "in_proj_bias", "out_proj.bias"},
     true,
     false},
    /* Llama and its kin */
    {"o_proj.weight",
     {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"},
     {"q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"},
     false,
     false},
    /* GPT-2 */
    {"c_attn.weight",
     {"c_attn.weight", "c_attn.weight", "c_attn.weight", "c_proj.weight"},
     {"c_attn.bias", "c_attn.bias", "c_attn.bias", "c_proj.bias"},
     true,
     true},
};

/* Tensors beside a layer's that change what it computes, and that vkmha_layer_params cannot say. */
static const char *const unsupported[] = {
    "bias_k", /* nn.MultiheadAttention(add_bias_kv=True) */
    "bias_v",
    "q_norm.weight", /* Qwen3, Gemma 3: queries and keys are normalised */
    "k_norm.weight",
    "sinks",                          /* gpt-oss: one more term in the softmax */
    "self.distance_embedding.weight", /* BERT with relative positions */
    "q_attn.weight",                  /* GPT-2's cross-attention: c_attn is key and value alone */
};

typedef struct vkmha_found_layer {
    const vkmha_naming *naming;
    char prefix[MAX_NAME]; /* with its dot, or empty */
} vkmha_found_layer;

/* Whether the tensor shows a layer; then its prefix. */
static bool shows_layer(const char *name, vkmha_found_layer *found)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof(namings) / sizeof(namings[0]); i++) {
        const size_t anchor = strlen(namings[i].anchor);
        if (length < anchor || length - anchor >= MAX_NAME ||
            strcmp(name + length - anchor, namings[i].anchor) != 0 ||
            (length > anchor && name[length - anchor - 1] != '.')) {
            continue;
        }
        found->naming = &namings[i];
        memcpy(found->prefix, name, length - anchor);
        found->prefix[length - anchor] = '\0';
        return true;
    }
    return false;
}

/* `wanted` names the prefix itself, or its end after a model's own prefix; a dot at the end does
 * not count. */
static bool prefix_matches(const char *prefix, const char *wanted)
{
    size_t length = strlen(prefix);
    size_t wanted_length = strlen(wanted);
    length -= length > 0;
    wanted_length -= wanted_length > 0 && wanted[wanted_length - 1] == '.';
    if (wanted_length > length ||
        strncmp(prefix + length - wanted_length, wanted, wanted_length) != 0) {
        return false;
    }
    return wanted_length == length || prefix[length - wanted_length - 1] == '.';
}

static vkmha_status list_layers(const vkmha_file *file, const char *wanted, uint64_t matches,
                                vkmha_error *error)
{
    char list[320] = "";
    size_t length = 0;
    uint64_t left_out = 0;
    uint64_t count = 0;
    vkmha_found_layer found;
    for (uint64_t i = 0; i < file->num_tensors; i++) {
        if (!shows_layer(file->tensors[i].name, &found)) {
            continue;
        }
        const int shown = (int)strlen(found.prefix) - (found.prefix[0] != '\0');
        count++;
        if (length + (size_t)shown + 4 >= sizeof(list)) {
            left_out++;
            continue;
        }
        length += (size_t)snprintf(list + length, sizeof(list) - length, "%s\"%.*s\"",
                                   length ? ", " : "", shown, found.prefix);
    }
    if (count == 0) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "no attention layer by known names is in it (BERT, "
                               "nn.MultiheadAttention, Llama, GPT-2)");
    }
    char more[40] = "";
    if (left_out > 0) {
        snprintf(more, sizeof(more), " and %" PRIu64 " more", left_out);
    }
    return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                           "prefix \"%.60s\" names %s; found %s%s", wanted,
                           matches == 0 ? "no layer" : "several layers", list, more);
}

static vkmha_status find_layer(const vkmha_file *file, const char *wanted, vkmha_found_layer *layer,
                               vkmha_error *error)
{
    uint64_t matches = 0;
    vkmha_found_layer found;
    for (uint64_t i = 0; i < file->num_tensors; i++) {
        if (!shows_layer(file->tensors[i].name, &found) ||
            (wanted[0] != '\0' && !prefix_matches(found.prefix, wanted))) {
            continue;
        }
        const size_t exact = strlen(found.prefix) - (found.prefix[0] != '\0');
        const bool is_exact = wanted[0] != '\0' && strncmp(found.prefix, wanted, exact) == 0 &&
                              (wanted[exact] == '\0' || strcmp(wanted + exact, ".") == 0);
        *layer = found;
        matches++;
        if (is_exact) {
            return VKMHA_OK;
        }
    }
    return matches == 1 ? VKMHA_OK : list_layers(file, wanted, matches, error);
}

/* ---- Tensors of a layer ---------------------------------------------------------------------- */

static vkmha_status find_tensor(const vkmha_file *file, const vkmha_found_layer *layer,
                                const char *name, uint32_t num_dims, bool is_required,
                                const vkmha_tensor **tensor, vkmha_type *type, vkmha_error *error)
{
    char full[2 * MAX_NAME];
    snprintf(full, sizeof(full), "%s%s", layer->prefix, name);
    *tensor = vkmha_file_find(file, full);
    if (!*tensor) {
        return is_required ? vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                             "tensor \"%.300s\" is missing", full)
                           : VKMHA_OK;
    }
    if ((*tensor)->num_dims != num_dims) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "tensor \"%.300s\" has %" PRIu32 " dimensions, not %" PRIu32, full,
                               (*tensor)->num_dims, num_dims);
    }
    for (uint32_t i = 0; i < num_dims; i++) {
        if ((*tensor)->dims[i] == 0 || (*tensor)->dims[i] > UINT32_MAX) {
            return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                   "tensor \"%.300s\": dimension %" PRIu32 " is %" PRIu64
                                   ", not in 1..2^32-1",
                                   full, i, (*tensor)->dims[i]);
        }
    }
    switch ((*tensor)->type) {
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
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "tensor \"%.300s\" is not F32, F16 or BF16", full);
    }
}

static const void *element(const vkmha_tensor *tensor, uint64_t index)
{
    return (const char *)tensor->data + index * vkmha_file_type_bytes(tensor->type);
}

/* Which third of a fused tensor projection `index` is; the output projection is no third. */
static vkmha_status third_of(const vkmha_file *file, const vkmha_tensor *tensor, uint64_t size,
                             uint32_t index, uint64_t *first, uint64_t *part, vkmha_error *error)
{
    if (size % 3 != 0) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "tensor \"%.300s\" holds query, key and value, but %" PRIu64
                               " is not a multiple of 3",
                               tensor->name, size);
    }
    *part = size / 3;
    *first = *part * index;
    return VKMHA_OK;
}

static vkmha_status view_matrix(const vkmha_file *file, const vkmha_found_layer *layer,
                                uint32_t index, vkmha_matrix *matrix, vkmha_error *error)
{
    const vkmha_naming *naming = layer->naming;
    const vkmha_tensor *tensor = NULL;
    vkmha_status status =
        find_tensor(file, layer, naming->weights[index], 2, true, &tensor, &matrix->type, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const uint64_t pitch = tensor->dims[1];
    uint64_t rows = tensor->dims[naming->is_transposed ? 1 : 0];
    uint64_t first = 0;
    const bool is_third =
        naming->is_fused && index < 3 && strcmp(naming->weights[0], naming->weights[1]) == 0;
    if (is_third) {
        status = third_of(file, tensor, rows, index, &first, &rows, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    matrix->rows = rows;
    matrix->columns = tensor->dims[naming->is_transposed ? 0 : 1];
    matrix->row_stride = naming->is_transposed ? 1 : pitch;
    matrix->column_stride = naming->is_transposed ? pitch : 1;
    matrix->data = element(tensor, first * matrix->row_stride);
    return VKMHA_OK;
}

static vkmha_status view_bias(const vkmha_file *file, const vkmha_found_layer *layer,
                              uint32_t index, vkmha_vector *bias, vkmha_error *error)
{
    const vkmha_naming *naming = layer->naming;
    const vkmha_tensor *tensor = NULL;
    vkmha_status status =
        find_tensor(file, layer, naming->biases[index], 1, false, &tensor, &bias->type, error);
    if (status != VKMHA_OK || !tensor) {
        return status;
    }
    uint64_t first = 0;
    bias->size = tensor->dims[0];
    if (naming->is_fused && index < 3) {
        status = third_of(file, tensor, tensor->dims[0], index, &first, &bias->size, error);
    }
    bias->data = element(tensor, first);
    return status;
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* The head count that the file tells; 0 where it tells none. */
static vkmha_status read_num_heads(const vkmha_file *file, uint64_t *num_heads, vkmha_error *error)
{
    const char *const names[] = {"num_heads", "num_attention_heads"};
    *num_heads = 0;
    for (size_t i = 0; i < 2 && *num_heads == 0; i++) {
        const char *text = vkmha_file_metadata(file, names[i]);
        if (!text) {
            continue;
        }
        const size_t digits = strspn(text, "0123456789");
        *num_heads =
            digits > 0 && digits < 10 && text[digits] == '\0' ? strtoul(text, NULL, 10) : 0;
        if (*num_heads == 0) {
            return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                   "metadata %s \"%.40s\" is no number of heads", names[i], text);
        }
    }
    return VKMHA_OK;
}

/* Refuses the query, key or value weight, of `rows` output features, that is not num_heads of
 * head_dim. */
static vkmha_status check_rows(const vkmha_file *file, const vkmha_found_layer *found,
                               uint32_t index, uint64_t rows, uint64_t num_heads, uint64_t head_dim,
                               vkmha_status refusal, vkmha_error *error)
{
    if (num_heads > 0 && num_heads * head_dim == rows) {
        return VKMHA_OK;
    }
    return vkmha_file_fail(error, refusal, file->path,
                           "tensor \"%.240s%s\": its %" PRIu64
                           " output features are not %s %" PRIu64 " x %s %" PRIu64,
                           found->prefix, found->naming->weights[index], rows,
                           index == 0 ? "num_heads" : "num_kv_heads", num_heads,
                           index == 2 ? "v_head_dim" : "head_dim", head_dim);
}

/* Sets the counts and sizes of a layer whose weights are set. */
static vkmha_status count_heads(const vkmha_file *file, const vkmha_found_layer *found,
                                const vkmha_checkpoint_params *params, vkmha_layer_params *layer,
                                vkmha_error *error)
{
    const uint64_t rows[] = {layer->w_q.rows, layer->w_k.rows, layer->w_v.rows};
    /* Counts that were asked for are the caller's mistake, others the file's. */
    const bool is_asked = params->num_heads || params->num_kv_heads || params->head_dim;
    const vkmha_status refusal = is_asked ? VKMHA_ERROR_INVALID_ARGUMENT : VKMHA_ERROR_FILE;
    uint64_t num_heads = params->num_heads;
    vkmha_status status = VKMHA_OK;
    if (num_heads == 0 && params->head_dim != 0) {
        num_heads = rows[0] / params->head_dim;
    } else if (num_heads == 0) {
        status = read_num_heads(file, &num_heads, error);
        if (status == VKMHA_OK && num_heads == 0) {
            status = vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                "num_heads is 0, and the file does not tell it: give num_heads or "
                                "head_dim");
        }
    }
    if (status != VKMHA_OK) {
        return status;
    }
    const uint64_t head_dim = params->head_dim ? params->head_dim : rows[0] / num_heads;
    status = check_rows(file, found, 0, rows[0], num_heads, head_dim, refusal, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const uint64_t num_kv_heads = params->num_kv_heads ? params->num_kv_heads : rows[1] / head_dim;
    status = check_rows(file, found, 1, rows[1], num_kv_heads, head_dim, refusal, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (num_heads % num_kv_heads != 0) {
        return vkmha_file_fail(error, refusal, file->path,
                               "num_kv_heads %" PRIu64 " does not divide num_heads %" PRIu64,
                               num_kv_heads, num_heads);
    }
    const uint64_t v_head_dim = rows[2] / num_kv_heads;
    status = check_rows(file, found, 2, rows[2], num_kv_heads, v_head_dim, refusal, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (layer->w_o.columns != num_heads * v_head_dim) {
        return vkmha_file_fail(
            error, VKMHA_ERROR_FILE, file->path,
            "tensor \"%.240s%s\": its %" PRIu64 " input features are not num_heads %" PRIu64
            " x v_head_dim %" PRIu64,
            found->prefix, found->naming->weights[3], layer->w_o.columns, num_heads, v_head_dim);
    }
    layer->num_heads = (uint32_t)num_heads;
    layer->num_kv_heads = (uint32_t)num_kv_heads;
    layer->head_dim = (uint32_t)head_dim;
    layer->v_head_dim = (uint32_t)v_head_dim;
    layer->embed_dim = (uint32_t)layer->w_q.columns;
    layer->key_dim = (uint32_t)layer->w_k.columns;
    layer->value_dim = (uint32_t)layer->w_v.columns;
    layer->output_dim = (uint32_t)layer->w_o.rows;
    return VKMHA_OK;
}

vkmha_status vkmha_checkpoint_layer(const vkmha_file *file, const vkmha_checkpoint_params *params,
                                    vkmha_layer_params *layer, vkmha_error *error)
{
    vkmha_error_clear(error);
    const vkmha_checkpoint_params defaults = {0};
    if (!file || !layer) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL",
                          file ? "layer" : "file");
    }
    if (!params) {
        params = &defaults;
    }
    if (!vkmha_is_zero(params->reserved, sizeof(params->reserved))) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "checkpoint params.reserved is not zero");
    }
    vkmha_found_layer found;
    vkmha_status status = find_layer(file, params->prefix ? params->prefix : "", &found, error);
    for (size_t i = 0; status == VKMHA_OK && i < sizeof(unsupported) / sizeof(unsupported[0]);
         i++) {
        char name[2 * MAX_NAME];
        snprintf(name, sizeof(name), "%s%s", found.prefix, unsupported[i]);
        if (vkmha_file_find(file, name)) {
            status = vkmha_file_fail(error, VKMHA_ERROR_UNSUPPORTED, file->path,
                                     "tensor \"%.300s\": such layers are not supported", name);
        }
    }
    vkmha_layer_params made = {0};
    vkmha_matrix *matrices[] = {&made.w_q, &made.w_k, &made.w_v, &made.w_o};
    vkmha_vector *biases[] = {&made.b_q, &made.b_k, &made.b_v, &made.b_o};
    for (uint32_t i = 0; i < 4 && status == VKMHA_OK; i++) {
        status = view_matrix(file, &found, i, matrices[i], error);
        if (status == VKMHA_OK) {
            status = view_bias(file, &found, i, biases[i], error);
        }
        if (status == VKMHA_OK && biases[i]->data && biases[i]->size != matrices[i]->rows) {
            status = vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                     "tensor \"%.240s%s\": %" PRIu64
                                     " elements are no bias of %" PRIu64 " output features",
                                     found.prefix, found.naming->biases[i], biases[i]->size,
                                     matrices[i]->rows);
        }
    }
    if (status == VKMHA_OK) {
        status = count_heads(file, &found, params, &made, error);
    }
    if (status == VKMHA_OK) {
        *layer = made;
    }
    return status;
}
