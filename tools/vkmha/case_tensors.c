/* The tensors of a case file: weights, inputs, masks. */
#include "case.h"

#include <inttypes.h>
#include <string.h>

/* ---- Tensors ------------------------------------------------------------------------------- */

/* The tensor, or the one that alias_NAME points at; NULL where there is none. */
static const vkmha_tensor *find_tensor(const vkmha_loader *load, const char *name)
{
    char field[64];
    snprintf(field, sizeof(field), "alias_%s", name);
    const char *alias = vkmha_file_metadata(load->loaded->file, field);
    return vkmha_file_find(load->loaded->file, alias ? alias : name);
}

static vkmha_status require_tensor(const vkmha_loader *load, const char *name,
                                   const vkmha_tensor **tensor)
{
    *tensor = find_tensor(load, name);
    if (!*tensor) {
        return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE, "%s: tensor %s is missing",
                               load->path, name);
    }
    return VKMHA_OK;
}

static vkmha_status require_dims(const vkmha_loader *load, const vkmha_tensor *tensor,
                                 const uint64_t *dims, uint32_t num_dims)
{
    bool agrees = tensor->num_dims == num_dims;
    for (uint32_t i = 0; agrees && i < num_dims; i++) {
        if (tensor->dims[i] != dims[i]) {
            return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE,
                                   "%s: tensor %s has %" PRIu64
                                   " at dimension %u, the sizes say %" PRIu64,
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

static vkmha_status out_of_memory(const vkmha_loader *load)
{
    return vkmha_tool_fail(load->error, VKMHA_ERROR_OUT_OF_MEMORY, "%s: out of memory", load->path);
}

vkmha_status vkmha_loader_floats(const vkmha_loader *load, const char *name, const uint64_t *dims,
                                 uint32_t num_dims, const float **values)
{
    const vkmha_tensor *tensor = NULL;
    VKMHA_TRY(require_tensor(load, name, &tensor));
    VKMHA_TRY(require_dims(load, tensor, dims, num_dims));
    float *copy = vkmha_pool_allocate(&load->loaded->pool, tensor->count, sizeof(float));
    if (!copy) {
        return out_of_memory(load);
    }
    VKMHA_TRY(vkmha_tensor_to_f32(tensor, copy, load->error));
    *values = copy;
    return VKMHA_OK;
}

/* A copy of the tensor's bytes, so that the data is aligned. */
static vkmha_status load_bytes(const vkmha_loader *load, const vkmha_tensor *tensor,
                               const void **bytes)
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

static vkmha_status require_bytes_type(const vkmha_loader *load, const vkmha_tensor *tensor)
{
    if (tensor->type != VKMHA_FILE_U8 && tensor->type != VKMHA_FILE_BOOL) {
        return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE,
                               "%s: tensor %s is neither U8 nor BOOL", load->path, tensor->name);
    }
    return VKMHA_OK;
}

static vkmha_status weight_type(const vkmha_loader *load, const vkmha_tensor *tensor,
                                vkmha_type *type)
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

/* ---- Parts of the problem ------------------------------------------------------------------ */

static vkmha_status load_weights(const vkmha_loader *load, vkmha_layer_params *layer)
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
        {"w_o", "b_o", &layer->w_o, &layer->b_o, load->output_dim,
         load->num_heads * load->v_head_dim},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const vkmha_tensor *tensor = NULL;
        VKMHA_TRY(require_tensor(load, fields[i].weight, &tensor));
        VKMHA_TRY(
            require_dims(load, tensor, (const uint64_t[]){fields[i].rows, fields[i].columns}, 2));
        *fields[i].matrix = (vkmha_matrix){
            .data = tensor->data, .rows = fields[i].rows, .columns = fields[i].columns};
        VKMHA_TRY(weight_type(load, tensor, &fields[i].matrix->type));
        tensor = find_tensor(load, fields[i].bias);
        if (tensor) {
            VKMHA_TRY(require_dims(load, tensor, &fields[i].rows, 1));
            *fields[i].vector = (vkmha_vector){.data = tensor->data, .size = fields[i].rows};
            VKMHA_TRY(weight_type(load, tensor, &fields[i].vector->type));
        }
    }
    return VKMHA_OK;
}

/* Weights that stand in another file beside the case, by the names of a real checkpoint. */
static vkmha_status load_checkpoint(vkmha_loader *load, const char *name, vkmha_layer_params *layer)
{
    if (name[0] == '\0' || strpbrk(name, "/\\")) {
        return vkmha_loader_refuse(load, "weights_file", name,
                                   "is not the name of a file beside the case");
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
    VKMHA_TRY(vkmha_file_open(path, NULL, &load->loaded->weights_file, load->error));
    const vkmha_checkpoint_params params = {
        .prefix = vkmha_loader_text(load, "weights_prefix", NULL),
        .num_heads = (uint32_t)load->num_heads,
        .num_kv_heads = (uint32_t)load->num_kv_heads,
        .head_dim = (uint32_t)load->head_dim,
    };
    VKMHA_TRY(vkmha_checkpoint_layer(load->loaded->weights_file, &params, layer, load->error));
    const uint32_t value_dim = layer->value_dim ? layer->value_dim : layer->embed_dim;
    const uint32_t key_dim = layer->key_dim ? layer->key_dim : layer->embed_dim;
    const uint32_t output_dim = layer->output_dim ? layer->output_dim : layer->embed_dim;
    const uint32_t v_head_dim = layer->v_head_dim ? layer->v_head_dim : layer->head_dim;
    if (layer->embed_dim != load->embed_dim || key_dim != load->key_dim ||
        value_dim != load->value_dim || output_dim != load->output_dim ||
        v_head_dim != load->v_head_dim) {
        return vkmha_loader_refuse(load, "weights_file", name,
                                   "holds weights of other sizes than the case");
    }
    return VKMHA_OK;
}

vkmha_status vkmha_loader_layer(vkmha_loader *load)
{
    vkmha_layer_params *layer = &load->loaded->problem.layer;
    double scale = 0.0;
    VKMHA_TRY(vkmha_loader_double(load, "scale", "", &scale));
    if (load->num_heads == 0 || load->num_kv_heads == 0 ||
        load->num_heads % load->num_kv_heads != 0) {
        return vkmha_loader_refuse(load, "num_kv_heads",
                                   vkmha_loader_text(load, "num_kv_heads", ""),
                                   "does not divide num_heads");
    }
    if (load->has_projections) {
        const char *weights_file = vkmha_file_metadata(load->loaded->file, "weights_file");
        if (weights_file) {
            VKMHA_TRY(load_checkpoint(load, weights_file, layer));
        } else {
            layer->embed_dim = (uint32_t)load->embed_dim;
            layer->key_dim = (uint32_t)load->key_dim;
            layer->value_dim = (uint32_t)load->value_dim;
            layer->output_dim = (uint32_t)load->output_dim;
            VKMHA_TRY(load_weights(load, layer));
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
vkmha_status vkmha_loader_sequence(const vkmha_loader *load, const char *name, uint64_t length,
                                   uint64_t features, uint64_t heads, uint64_t head_dim,
                                   const float **values)
{
    if (load->has_projections) {
        return vkmha_loader_floats(
            load, name, (const uint64_t[]){load->batch_size, length, features}, 3, values);
    }
    if (load->has_head_first_layout) {
        return vkmha_loader_floats(
            load, name, (const uint64_t[]){load->batch_size, heads, length, head_dim}, 4, values);
    }
    return vkmha_loader_floats(
        load, name, (const uint64_t[]){load->batch_size, length, heads, head_dim}, 4, values);
}

vkmha_status vkmha_loader_inputs(const vkmha_loader *load)
{
    vkmha_problem *problem = &load->loaded->problem;
    vkmha_plan_params *plan = &problem->plan;
    vkmha_inputs *inputs = &problem->inputs;
    const float *query;
    const float *key;
    const float *value;
    VKMHA_TRY(vkmha_loader_sequence(load, "query", load->query_len, load->embed_dim,
                                    load->num_heads, load->head_dim, &query));
    VKMHA_TRY(vkmha_loader_sequence(load, "key", load->key_len, load->key_dim, load->num_kv_heads,
                                    load->head_dim, &key));
    VKMHA_TRY(vkmha_loader_sequence(load, "value", load->key_len, load->value_dim,
                                    load->num_kv_heads, load->v_head_dim, &value));
    inputs->query = query;
    plan->key_is_query = vkmha_loader_says(load, "alias_key", "", "query");
    plan->value_is_key =
        vkmha_loader_says(load, "alias_value", "", "key") ||
        (plan->key_is_query && vkmha_loader_says(load, "alias_value", "", "query"));
    inputs->key = plan->key_is_query ? NULL : key;
    inputs->value = plan->value_is_key ? NULL : value;
    return VKMHA_OK;
}

/* Key padding is of the new keys; those of the past are all there. */
static vkmha_status join_padding(const vkmha_loader *load, const uint8_t *padding,
                                 const uint8_t **attend_keys)
{
    const uint64_t all_keys = load->past_len + load->key_len;
    uint8_t *joined =
        vkmha_pool_allocate(&load->loaded->pool, load->batch_size, all_keys ? all_keys : 1);
    if (!joined) {
        return out_of_memory(load);
    }
    for (uint64_t i = 0; i < load->batch_size * all_keys; i++) {
        const uint64_t b = i / all_keys;
        const uint64_t j = i % all_keys;
        joined[i] = j < load->past_len ? 1 : padding[b * load->key_len + (j - load->past_len)];
    }
    *attend_keys = joined;
    return VKMHA_OK;
}

vkmha_status vkmha_loader_masks(const vkmha_loader *load)
{
    vkmha_plan_params *plan = &load->loaded->problem.plan;
    vkmha_inputs *inputs = &load->loaded->problem.inputs;
    const char *kind = vkmha_loader_text(load, "mask", "none");
    const vkmha_tensor *mask = NULL;
    if (strcmp(kind, "bool_keep") == 0 || strcmp(kind, "additive") == 0) {
        VKMHA_TRY(require_tensor(load, "mask", &mask));
        if (mask->num_dims != 4) {
            return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE,
                                   "%s: tensor mask has %u dimensions instead of 4", load->path,
                                   mask->num_dims);
        }
        memcpy(plan->mask_dims, mask->dims, sizeof(plan->mask_dims));
        if (strcmp(kind, "additive") == 0) {
            const float *values = NULL;
            plan->mask = VKMHA_MASK_ADDITIVE;
            VKMHA_TRY(vkmha_loader_floats(load, "mask", mask->dims, 4, &values));
            inputs->mask = values;
        } else {
            plan->mask = VKMHA_MASK_ATTEND;
            VKMHA_TRY(require_bytes_type(load, mask));
            VKMHA_TRY(load_bytes(load, mask, &inputs->mask));
        }
    } else if (strcmp(kind, "none") != 0 && strcmp(kind, "key_padding") != 0) {
        return vkmha_loader_refuse(load, "mask", kind,
                                   "is not none, key_padding, bool_keep or additive");
    }
    VKMHA_TRY(vkmha_loader_flag(load, "key_padding", &plan->has_attend_keys));
    if (plan->has_attend_keys) {
        const vkmha_tensor *tensor = NULL;
        const void *bytes = NULL;
        VKMHA_TRY(require_tensor(load, "key_padding_mask", &tensor));
        VKMHA_TRY(
            require_dims(load, tensor, (const uint64_t[]){load->batch_size, load->key_len}, 2));
        VKMHA_TRY(require_bytes_type(load, tensor));
        VKMHA_TRY(load_bytes(load, tensor, &bytes));
        VKMHA_TRY(join_padding(load, bytes, &inputs->attend_keys));
    }
    VKMHA_TRY(vkmha_loader_flag(load, "use_kv_lengths", &plan->has_key_lengths));
    if (plan->has_key_lengths) {
        const vkmha_tensor *tensor = NULL;
        const void *bytes = NULL;
        VKMHA_TRY(require_tensor(load, "kv_lengths", &tensor));
        VKMHA_TRY(require_dims(load, tensor, &load->batch_size, 1));
        if (tensor->type != VKMHA_FILE_I32) {
            return vkmha_tool_fail(load->error, VKMHA_ERROR_FILE,
                                   "%s: tensor kv_lengths is not I32", load->path);
        }
        VKMHA_TRY(load_bytes(load, tensor, &bytes));
        inputs->key_lengths = bytes;
    }
    return VKMHA_OK;
}
