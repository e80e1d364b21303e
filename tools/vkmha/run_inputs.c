/* Query, key and value of a run. */
#include "run.h"

#include <inttypes.h>
#include <string.h>

/* One input, [batch, length, features], or of attention alone heads by the layout; the batch axis
 * may be missing. */
typedef struct sequence {
    const char *path;
    const float *values;
    uint32_t num_dims;
    uint64_t dims[4];
    uint64_t batch_size;
    uint64_t length;
    uint64_t heads;
    uint64_t features; /* of a head */
} sequence;

static const vkmha_tensor *find_role(const vkmha_run_file *file, const char *role)
{
    const bool is_only = vkmha_file_num_tensors(file->file) == 1;
    return is_only ? vkmha_file_tensor(file->file, 0) : vkmha_file_find(file->file, role);
}

static vkmha_status load_sequence(vkmha_run_state *run, const vkmha_run_file *file,
                                  const char *role, sequence *loaded)
{
    const bool has_heads = run->problem.layer.attention_only;
    const uint32_t rank = has_heads ? 3 : 2;
    const vkmha_tensor *tensor = find_role(file, role);
    if (!tensor) {
        return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                               "%s: %" PRIu64 " tensors, and none of them is called %s", file->path,
                               vkmha_file_num_tensors(file->file), role);
    }
    if (tensor->num_dims != rank && tensor->num_dims != rank + 1) {
        return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                               "%s: tensor %s has %u dimensions; %s, or with a batch axis before "
                               "them, are needed",
                               file->path, role, tensor->num_dims,
                               !has_heads ? "[seq, features]"
                               : run->problem.plan.layout == VKMHA_LAYOUT_BHSD
                                   ? "[heads, seq, dim]"
                                   : "[seq, heads, dim]");
    }
    float *values = vkmha_pool_allocate(&run->pool, tensor->count, sizeof(float));
    if (!values) {
        return vkmha_tool_fail(run->error, VKMHA_ERROR_OUT_OF_MEMORY, "%s: out of memory",
                               file->path);
    }
    const uint64_t *dims = tensor->dims + (tensor->num_dims - rank);
    const bool is_heads_first = has_heads && run->problem.plan.layout == VKMHA_LAYOUT_BHSD;
    *loaded = (sequence){
        .path = file->path,
        .values = values,
        .num_dims = tensor->num_dims,
        .batch_size = tensor->num_dims > rank ? tensor->dims[0] : 1,
        .length = dims[is_heads_first ? 1 : 0],
        .heads = has_heads ? dims[is_heads_first ? 0 : 1] : 1,
        .features = dims[rank - 1],
    };
    memcpy(loaded->dims, tensor->dims, tensor->num_dims * sizeof(uint64_t));
    return vkmha_tensor_to_f32(tensor, values, run->error);
}

/* A tensor by its role in its own file, or in the input beside the others. */
static bool find_file(const vkmha_run_state *run, const vkmha_run_file *own, const char *role,
                      const vkmha_run_file **file)
{
    *file = own->path ? own : &run->input;
    return own->path ||
           (vkmha_file_num_tensors(run->input.file) > 1 && vkmha_file_find(run->input.file, role));
}

static vkmha_status require_equal(const vkmha_run_state *run, const char *path, const char *what,
                                  uint64_t got, const char *rule, uint64_t needed)
{
    if (got == needed) {
        return VKMHA_OK;
    }
    return vkmha_tool_fail(run->error, VKMHA_ERROR_INVALID_ARGUMENT,
                           "%s: %s %" PRIu64 " differs from %s %" PRIu64, path, what, got, rule,
                           needed);
}

/* ---- Packing ------------------------------------------------------------------------------- */

/* Ends of sequences: how many there are and the longest. The library checks the rest. */
static vkmha_status load_ends(vkmha_run_state *run, const char *name, uint64_t total,
                              const int32_t **ends, uint64_t *batch_size, uint64_t *longest)
{
    const char *path = NULL;
    const vkmha_tensor *tensor = vkmha_run_find(run, name, &path);
    if (!tensor || tensor->num_dims != 1 || tensor->count == 0) {
        return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                               "%s: tensor %s is not [batch + 1], as packed sequences need it",
                               path ? path : run->input.path, name);
    }
    const vkmha_status status = vkmha_run_integers(run, tensor, path, ends);
    if (status != VKMHA_OK) {
        return status;
    }
    *batch_size = tensor->count - 1;
    *longest = 0;
    for (uint64_t b = 0; b < *batch_size; b++) {
        const int64_t length = (int64_t)(*ends)[b + 1] - (*ends)[b];
        if (length < 0 || (uint64_t)length > total) {
            return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                                   "%s: %s[%" PRIu64 "] %" PRId32
                                   " is no end of a sequence in %" PRIu64 " rows",
                                   path, name, b + 1, (*ends)[b + 1], total);
        }
        *longest = (uint64_t)length > *longest ? (uint64_t)length : *longest;
    }
    return VKMHA_OK;
}

static vkmha_status load_packing(vkmha_run_state *run, const sequence *query, const sequence *key)
{
    vkmha_plan_params *plan = &run->problem.plan;
    vkmha_inputs *inputs = &run->problem.inputs;
    const char *path = NULL;
    if (!vkmha_run_find(run, "cu_query_lens", &path) &&
        !vkmha_run_find(run, "cu_key_lens", &path)) {
        return VKMHA_OK;
    }
    uint64_t key_batch = 0;
    plan->is_packed = true;
    plan->total_queries = query->length;
    plan->total_keys = key->length;
    vkmha_status status =
        require_equal(run, query->path, "batch", query->batch_size, "the packed tensors'", 1);
    if (status == VKMHA_OK) {
        status = load_ends(run, "cu_query_lens", query->length, &inputs->cu_query_lens,
                           &plan->batch_size, &plan->query_len);
    }
    if (status == VKMHA_OK) {
        status = load_ends(run, "cu_key_lens", key->length, &inputs->cu_key_lens, &key_batch,
                           &plan->key_len);
    }
    return status == VKMHA_OK ? require_equal(run, path, "sequences of cu_key_lens", key_batch,
                                              "those of cu_query_lens", plan->batch_size)
                              : status;
}

/* ---- All of them --------------------------------------------------------------------------- */

vkmha_status vkmha_run_load_inputs(vkmha_run_state *run)
{
    vkmha_plan_params *plan = &run->problem.plan;
    const vkmha_run_file *key_file = NULL;
    const vkmha_run_file *value_file = NULL;
    const bool has_key = find_file(run, &run->key, "key", &key_file);
    const bool has_value = find_file(run, &run->value, "value", &value_file);
    sequence query = {0};
    vkmha_status status = load_sequence(run, &run->input, "query", &query);
    sequence key = query;
    if (status == VKMHA_OK && has_key) {
        status = load_sequence(run, key_file, "key", &key);
    }
    sequence value = key;
    if (status == VKMHA_OK && has_value) {
        status = load_sequence(run, value_file, "value", &value);
    }
    const struct {
        const char *path;
        const char *what;
        uint64_t got;
        const char *rule;
        uint64_t needed;
    } rules[] = {
        {key.path, "batch", key.batch_size, "the query's", query.batch_size},
        {value.path, "batch", value.batch_size, "the query's", query.batch_size},
        {value.path, "length", value.length, "the key's", key.length},
        {value.path, "heads", value.heads, "the key's", key.heads},
    };
    for (size_t i = 0; status == VKMHA_OK && i < sizeof(rules) / sizeof(rules[0]); i++) {
        status = require_equal(run, rules[i].path, rules[i].what, rules[i].got, rules[i].rule,
                               rules[i].needed);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    plan->batch_size = query.batch_size;
    plan->query_len = query.length;
    plan->key_len = key.length;
    plan->key_is_query = !has_key;
    plan->value_is_key = !has_value;
    run->problem.inputs.query = query.values;
    run->problem.inputs.key = has_key ? key.values : NULL;
    run->problem.inputs.value = has_value ? value.values : NULL;
    if (run->problem.layer.attention_only) {
        vkmha_layer_params *layer = &run->problem.layer;
        layer->num_heads = (uint32_t)query.heads;
        layer->num_kv_heads = (uint32_t)key.heads;
        layer->head_dim = (uint32_t)query.features;
        layer->v_head_dim = (uint32_t)value.features;
        status = require_equal(run, key.path, "features of a head", key.features, "the query's",
                               query.features);
        if (query.heads > UINT32_MAX || key.heads > UINT32_MAX || query.features > UINT32_MAX ||
            value.features > UINT32_MAX) {
            status =
                vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                                "%s: heads or features are more than 32 bits hold", query.path);
        }
    } else {
        const vkmha_problem_sizes sizes = vkmha_problem_measure(&run->problem);
        status = require_equal(run, query.path, "features", query.features, "the layer's embed_dim",
                               sizes.query_dim);
        if (status == VKMHA_OK) {
            status = require_equal(run, key.path, "features", key.features, "the layer's key_dim",
                                   sizes.key_dim);
        }
        if (status == VKMHA_OK) {
            status = require_equal(run, value.path, "features", value.features,
                                   "the layer's value_dim", sizes.value_dim);
        }
    }
    if (status == VKMHA_OK) {
        status = load_packing(run, &query, &key);
    }
    memcpy(run->output_dims, query.dims, sizeof(run->output_dims));
    run->num_output_dims = query.num_dims;
    return status;
}

vkmha_status vkmha_run_check_heads(const vkmha_run_state *run, const vkmha_problem *before)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(before);
    const vkmha_problem_sizes now = vkmha_problem_measure(&run->problem);
    const char *path = run->input.path;
    vkmha_status status = require_equal(run, path, "num_heads", before->layer.num_heads,
                                        "the setting's", run->problem.layer.num_heads);
    if (status == VKMHA_OK) {
        status = require_equal(run, path, "num_kv_heads", sizes.num_kv_heads, "the setting's",
                               now.num_kv_heads);
    }
    if (status == VKMHA_OK) {
        status = require_equal(run, path, "head_dim", before->layer.head_dim, "the setting's",
                               run->problem.layer.head_dim);
    }
    return status;
}
