/* The tensors that options of a run need, by their names in the library's API. */
#include "run.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

typedef enum tensor_kind {
    KIND_FLOATS,
    KIND_INTEGERS,
    KIND_BYTES,
} tensor_kind;

typedef struct option_tensor {
    const char *name;
    tensor_kind kind;
    /* b batch, h heads, g key/value heads, q query length, k new keys, a all keys, d, v features of
     * heads, p past keys, n buckets, r rotary positions, f pairs, Q, K packed rows */
    const char *axes;
    size_t offset; /* in vkmha_problem */
    size_t has;    /* of a has_ field; 0: none */
} option_tensor;

#define LAYER(field) offsetof(vkmha_problem, layer.field)
#define PLAN(field)  offsetof(vkmha_problem, plan.field)
#define INPUT(field) offsetof(vkmha_problem, inputs.field)

/* What tells a size to others comes first. */
static const option_tensor table[] = {
    {"past_key", KIND_FLOATS, "bgpd", INPUT(past_key), 0},
    {"past_value", KIND_FLOATS, "bgpv", INPUT(past_value), 0},
    {"attend_keys", KIND_BYTES, "ba", INPUT(attend_keys), PLAN(has_attend_keys)},
    {"key_lengths", KIND_INTEGERS, "b", INPUT(key_lengths), PLAN(has_key_lengths)},
    {"first_keys", KIND_INTEGERS, "b", INPUT(first_keys), PLAN(has_first_keys)},
    {"position_offsets", KIND_INTEGERS, "b", INPUT(position_offsets), PLAN(has_position_offsets)},
    {"query_positions", KIND_INTEGERS, "bq", INPUT(query_positions), PLAN(has_positions)},
    {"key_positions", KIND_INTEGERS, "bk", INPUT(key_positions), PLAN(has_positions)},
    {"head_gates", KIND_FLOATS, "h", INPUT(head_gates), PLAN(has_head_gates)},
    {"bias_k", KIND_FLOATS, "gd", LAYER(bias_k), 0},
    {"bias_v", KIND_FLOATS, "gv", LAYER(bias_v), 0},
    {"sinks", KIND_FLOATS, "h", LAYER(sinks), 0},
    {"alibi_slopes", KIND_FLOATS, "h", LAYER(alibi_slopes), LAYER(has_alibi)},
    {"relative_bias.table", KIND_FLOATS, "hn", LAYER(relative_bias.table), 0},
    {"rope.cos", KIND_FLOATS, "rf", LAYER(rope.cos), 0},
    {"rope.sin", KIND_FLOATS, "rf", LAYER(rope.sin), 0},
};

#define NUM_TENSORS (sizeof(table) / sizeof(table[0]))

void vkmha_run_print_tensors(void)
{
    static const char *const others[] = {"mask", "cu_query_lens", "cu_key_lens"};
    printf(" ");
    for (size_t i = 0; i < NUM_TENSORS; i++) {
        printf(" %s%s", table[i].name, i % 5 == 4 ? "\n " : "");
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        printf(" %s", others[i]);
    }
    printf("\n");
}

const vkmha_tensor *vkmha_run_find(const vkmha_run_state *run, const char *name, const char **path)
{
    const vkmha_run_file *files[] = {&run->tensors, &run->input};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const vkmha_tensor *tensor = files[i]->file ? vkmha_file_find(files[i]->file, name) : NULL;
        if (tensor) {
            *path = files[i]->path;
            return tensor;
        }
    }
    return NULL;
}

/* ---- Elements ------------------------------------------------------------------------------ */

static vkmha_status out_of_memory(const vkmha_run_state *run)
{
    return vkmha_tool_fail(run->error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

static vkmha_status wrong_type(const vkmha_run_state *run, const vkmha_tensor *tensor,
                               const char *path, const char *rule)
{
    return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE, "%s: tensor %s is not %s", path,
                           tensor->name, rule);
}

vkmha_status vkmha_run_integers(vkmha_run_state *run, const vkmha_tensor *tensor, const char *path,
                                const int32_t **values)
{
    if (tensor->type != VKMHA_FILE_I32 && tensor->type != VKMHA_FILE_I64) {
        return wrong_type(run, tensor, path, "I32 or I64");
    }
    int32_t *copied = vkmha_pool_allocate(&run->pool, tensor->count, sizeof(int32_t));
    if (!copied) {
        return out_of_memory(run);
    }
    for (uint64_t i = 0; i < tensor->count; i++) {
        int32_t narrow = 0;
        int64_t wide = 0;
        if (tensor->type == VKMHA_FILE_I32) {
            memcpy(&narrow, (const char *)tensor->data + i * sizeof(narrow), sizeof(narrow));
            wide = narrow;
        } else {
            memcpy(&wide, (const char *)tensor->data + i * sizeof(wide), sizeof(wide));
        }
        if (wide < INT32_MIN || wide > INT32_MAX) {
            return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                                   "%s: %s[%" PRIu64 "] %" PRId64 " does not fit in 32 bits", path,
                                   tensor->name, i, wide);
        }
        copied[i] = (int32_t)wide;
    }
    *values = copied;
    return VKMHA_OK;
}

/* A copy, so that the data is aligned. */
static vkmha_status copy_bytes(vkmha_run_state *run, const vkmha_tensor *tensor,
                               const void **values)
{
    void *copied = vkmha_pool_allocate(&run->pool, tensor->size_bytes, 1);
    if (!copied) {
        return out_of_memory(run);
    }
    if (tensor->size_bytes > 0) {
        memcpy(copied, tensor->data, (size_t)tensor->size_bytes);
    }
    *values = copied;
    return VKMHA_OK;
}

static vkmha_status take_elements(vkmha_run_state *run, const option_tensor *option,
                                  const vkmha_tensor *tensor, const char *path)
{
    char *field = (char *)&run->problem + option->offset;
    const int32_t *integers = NULL;
    const void *bytes = NULL;
    float *floats = NULL;
    vkmha_status status = VKMHA_OK;
    switch (option->kind) {
    case KIND_FLOATS:
        floats = vkmha_pool_allocate(&run->pool, tensor->count, sizeof(float));
        status = floats ? vkmha_tensor_to_f32(tensor, floats, run->error) : out_of_memory(run);
        *(const float **)(void *)field = floats;
        break;
    case KIND_INTEGERS:
        status = vkmha_run_integers(run, tensor, path, &integers);
        *(const int32_t **)(void *)field = integers;
        break;
    case KIND_BYTES:
        if (tensor->type != VKMHA_FILE_U8 && tensor->type != VKMHA_FILE_BOOL) {
            return wrong_type(run, tensor, path, "U8 or BOOL");
        }
        status = copy_bytes(run, tensor, &bytes);
        *(const void **)(void *)field = bytes;
        break;
    }
    return status;
}

/* ---- Dimensions ---------------------------------------------------------------------------- */

/* A size that layer or plan have; where they leave it open, the tensor's. */
static uint64_t size_of_axis(vkmha_run_state *run, char axis, uint64_t given)
{
    vkmha_layer_params *layer = &run->problem.layer;
    vkmha_plan_params *plan = &run->problem.plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(&run->problem);
    uint32_t *open = NULL;
    switch (axis) {
    case 'b':
        return plan->batch_size;
    case 'h':
        return layer->num_heads;
    case 'g':
        return sizes.num_kv_heads;
    case 'd':
        return layer->head_dim;
    case 'v':
        return sizes.v_head_dim;
    case 'q':
        return plan->query_len;
    case 'k':
        return plan->key_len;
    case 'a':
        return sizes.all_keys;
    case 'Q':
        return sizes.query_rows;
    case 'K':
        return sizes.key_rows;
    case 'f':
        return (layer->rope.dim ? layer->rope.dim : layer->head_dim) / 2;
    case 'p':
        plan->past_len = plan->past_len ? plan->past_len : given;
        return plan->past_len;
    case 'n':
        open = &layer->relative_bias.num_buckets;
        break;
    default:
        open = &layer->rope.max_positions;
        break;
    }
    *open = *open || given > UINT32_MAX ? *open : (uint32_t)given;
    return *open;
}

static vkmha_status check_dims(vkmha_run_state *run, const char *axes, const vkmha_tensor *tensor,
                               const char *path)
{
    if (tensor->num_dims != strlen(axes)) {
        return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                               "%s: tensor %s has %u dimensions instead of %zu", path, tensor->name,
                               tensor->num_dims, strlen(axes));
    }
    for (uint32_t i = 0; i < tensor->num_dims; i++) {
        const uint64_t size = size_of_axis(run, axes[i], tensor->dims[i]);
        if (size != tensor->dims[i]) {
            return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                                   "%s: tensor %s has %" PRIu64 " at dimension %u, %" PRIu64
                                   " is needed",
                                   path, tensor->name, tensor->dims[i], i, size);
        }
    }
    return VKMHA_OK;
}

/* As the table says, but for tensors that have two shapes. */
static const char *axes_of(vkmha_run_state *run, const option_tensor *option,
                           const vkmha_tensor *tensor)
{
    vkmha_plan_params *plan = &run->problem.plan;
    if (plan->is_packed && strcmp(option->axes, "bq") == 0) {
        return "Q";
    }
    if (plan->is_packed && strcmp(option->axes, "bk") == 0) {
        return "K";
    }
    if (strcmp(option->name, "head_gates") == 0 && tensor->num_dims == 2) {
        plan->has_gates_per_sequence = true;
        return "bh";
    }
    return option->axes;
}

static vkmha_status load_mask(vkmha_run_state *run)
{
    vkmha_plan_params *plan = &run->problem.plan;
    const char *path = NULL;
    const vkmha_tensor *tensor = vkmha_run_find(run, "mask", &path);
    if (!tensor) {
        return VKMHA_OK;
    }
    switch (tensor->type) {
    case VKMHA_FILE_U8:
    case VKMHA_FILE_BOOL:
        plan->mask = VKMHA_MASK_ATTEND;
        break;
    case VKMHA_FILE_F32:
        plan->mask = VKMHA_MASK_ADDITIVE;
        break;
    case VKMHA_FILE_F16:
        plan->mask = VKMHA_MASK_ADDITIVE_F16;
        break;
    case VKMHA_FILE_I32:
        plan->mask = VKMHA_MASK_ATTEND_BITS;
        break;
    default:
        return wrong_type(run, tensor, path, "U8, BOOL, F32, F16 or I32 (words of bits)");
    }
    if (tensor->num_dims > 4 || tensor->num_dims == 0) {
        return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                               "%s: tensor mask has %u dimensions, not 1 to 4", path,
                               tensor->num_dims);
    }
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t missing = 4 - tensor->num_dims;
        plan->mask_dims[i] = i < missing ? 1 : tensor->dims[i - missing];
    }
    if (plan->mask == VKMHA_MASK_ATTEND_BITS) {
        const uint64_t all_keys = vkmha_problem_measure(&run->problem).all_keys;
        if (plan->mask_dims[3] != (all_keys + 31) / 32) {
            return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                                   "%s: tensor mask has rows of %" PRIu64 " words, %" PRIu64
                                   " keys need %" PRIu64,
                                   path, plan->mask_dims[3], all_keys, (all_keys + 31) / 32);
        }
        plan->mask_dims[3] = all_keys;
    }
    return copy_bytes(run, tensor, &run->problem.inputs.mask);
}

/* ---- All of them --------------------------------------------------------------------------- */

static bool is_known(const char *name)
{
    static const char *const others[] = {"mask",  "cu_query_lens", "cu_key_lens",
                                         "query", "key",           "value"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(name, others[i]) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < NUM_TENSORS; i++) {
        if (strcmp(name, table[i].name) == 0) {
            return true;
        }
    }
    return false;
}

static vkmha_status load_tensor(vkmha_run_state *run, const option_tensor *option)
{
    const char *path = NULL;
    const vkmha_tensor *tensor = vkmha_run_find(run, option->name, &path);
    if (!tensor) {
        return VKMHA_OK;
    }
    const void *earlier = NULL;
    memcpy(&earlier, (const char *)&run->problem + option->offset, sizeof(earlier));
    if (earlier) {
        return vkmha_tool_fail(run->error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "%s: tensor %s is given as a setting too", path, option->name);
    }
    vkmha_status status = check_dims(run, axes_of(run, option, tensor), tensor, path);
    if (status == VKMHA_OK) {
        status = take_elements(run, option, tensor, path);
    }
    if (status == VKMHA_OK && option->has) {
        const bool has = true;
        memcpy((char *)&run->problem + option->has, &has, sizeof(has));
    }
    return status;
}

vkmha_status vkmha_run_load_tensors(vkmha_run_state *run)
{
    for (uint64_t i = 0; run->tensors.file && i < vkmha_file_num_tensors(run->tensors.file); i++) {
        const char *name = vkmha_file_tensor(run->tensors.file, i)->name;
        if (!is_known(name)) {
            return vkmha_tool_fail(run->error, VKMHA_ERROR_FILE,
                                   "%s: \"%.100s\" is no tensor of an option; see vkmha run --help",
                                   run->tensors.path, name);
        }
    }
    vkmha_status status = VKMHA_OK;
    for (size_t i = 0; status == VKMHA_OK && i < NUM_TENSORS; i++) {
        status = load_tensor(run, &table[i]);
    }
    return status == VKMHA_OK ? load_mask(run) : status;
}
