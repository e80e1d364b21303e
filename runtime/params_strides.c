/* Where elements lie: strides, sizes, and what is so for one sequence. */
#include <inttypes.h>

#include "params_check.h"

enum { MAX_AXES = 3 };

/* A tensor [batch, row, head, feature]; axes that it does not have are of size 1. */
typedef struct vkmha_shape {
    uint64_t batch;
    uint64_t rows;
    uint64_t heads;
    uint64_t features;
} vkmha_shape;

/* `heads` and `head_features` describe an attention_only tensor, `features` a projected one. */
static vkmha_shape shape_of(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                            bool is_query, uint32_t heads, uint32_t head_features,
                            uint32_t features)
{
    const uint64_t length = is_query ? plan->query_len : plan->key_len;
    const uint64_t total = is_query ? plan->total_queries : plan->total_keys;
    return (vkmha_shape){
        .batch = plan->is_packed ? 1 : plan->batch_size,
        .rows = plan->is_packed ? total : length,
        .heads = layer->attention_only ? heads : 1,
        .features = layer->attention_only ? head_features : features,
    };
}

static vkmha_shape query_shape(const vkmha_layer_params *layer, const vkmha_plan_params *plan)
{
    return shape_of(layer, plan, true, layer->num_heads, layer->head_dim, layer->embed_dim);
}

static vkmha_shape key_shape(const vkmha_layer_params *layer, const vkmha_plan_params *plan)
{
    return shape_of(layer, plan, false, layer->num_kv_heads, layer->head_dim, layer->key_dim);
}

static vkmha_shape value_shape(const vkmha_layer_params *layer, const vkmha_plan_params *plan)
{
    return shape_of(layer, plan, false, layer->num_kv_heads, layer->v_head_dim, layer->value_dim);
}

static vkmha_shape output_shape(const vkmha_layer_params *layer, const vkmha_plan_params *plan)
{
    return shape_of(layer, plan, true, layer->num_heads, layer->v_head_dim, layer->output_dim);
}

/* ---- Strides --------------------------------------------------------------------------------- */

static vkmha_strides contiguous(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                const vkmha_shape *shape)
{
    const bool heads_first = plan->layout == VKMHA_LAYOUT_BHSD;
    const uint64_t heads_row = shape->heads * shape->features;
    const uint64_t head = heads_first ? shape->rows * shape->features : shape->features;
    return (vkmha_strides){
        .is_given = true,
        .batch = plan->is_packed ? 0 : shape->rows * heads_row,
        .row = heads_first ? shape->features : heads_row,
        .head = layer->attention_only ? head : 0,
    };
}

static bool is_empty(const vkmha_shape *shape)
{
    return shape->batch == 0 || shape->rows == 0;
}

/* Elements from the start of the memory to the tensor's last, or false where that is too many. */
static bool extent_of(const vkmha_shape *shape, const vkmha_strides *strides, uint64_t *extent)
{
    *extent = 0;
    if (is_empty(shape)) {
        return true;
    }
    const uint64_t limit = (uint64_t)INT64_MAX / 8;
    const uint64_t steps[MAX_AXES][2] = {
        {shape->batch - 1, strides->batch},
        {shape->rows - 1, strides->row},
        {shape->heads - 1, strides->head},
    };
    if (strides->offset > limit) {
        return false;
    }
    uint64_t total = strides->offset + shape->features;
    for (uint32_t axis = 0; axis < MAX_AXES; axis++) {
        uint64_t reach = 0;
        if (!vkmha_multiply(steps[axis][0], steps[axis][1], &reach) || reach > limit) {
            return false;
        }
        total += reach;
    }
    *extent = total;
    return total <= limit;
}

static vkmha_status check_given(const char *field, const vkmha_layer_params *layer,
                                const vkmha_plan_params *plan, const vkmha_shape *shape,
                                const vkmha_strides *strides, vkmha_error *error)
{
    if (!strides->is_given) {
        const uint64_t values[] = {strides->offset, strides->batch, strides->row, strides->head};
        static const char *const names[] = {"offset", "batch", "row", "head"};
        for (uint32_t i = 0; i < 4; i++) {
            if (values[i] != 0) {
                return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                  "%s.%s %" PRIu64 " is given without is_given", field, names[i],
                                  values[i]);
            }
        }
        return VKMHA_OK;
    }
    if (!layer->attention_only && strides->head != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s.head %" PRIu64 " is not 0, but a layer with projections has no heads "
                          "in its tensors",
                          field, strides->head);
    }
    if (plan->is_packed && strides->batch != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s.batch %" PRIu64 " is not 0, but packed tensors have no batch axis",
                          field, strides->batch);
    }
    uint64_t extent = 0;
    if (!extent_of(shape, strides, &extent)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s %" PRIu64 " + %" PRIu64 ", %" PRIu64 ", %" PRIu64
                          " reach past the address space",
                          field, strides->offset, strides->batch, strides->row, strides->head);
    }
    return VKMHA_OK;
}

/* Steps along an axis, from the shortest on, must clear all that the shorter ones reach. */
static vkmha_status check_disjoint(const vkmha_shape *shape, const vkmha_strides *strides,
                                   vkmha_error *error)
{
    if (is_empty(shape)) {
        return VKMHA_OK;
    }
    const struct {
        const char *name;
        uint64_t size;
        uint64_t stride;
    } axes[MAX_AXES] = {
        {"batch", shape->batch, strides->batch},
        {"row", shape->rows, strides->row},
        {"head", shape->heads, strides->head},
    };
    bool is_done[MAX_AXES] = {false};
    uint64_t extent = shape->features;
    for (uint32_t round = 0; round < MAX_AXES; round++) {
        uint32_t shortest = MAX_AXES;
        for (uint32_t axis = 0; axis < MAX_AXES; axis++) {
            if (axes[axis].size > 1 && !is_done[axis] &&
                (shortest == MAX_AXES || axes[axis].stride < axes[shortest].stride)) {
                shortest = axis;
            }
        }
        if (shortest == MAX_AXES) {
            return VKMHA_OK;
        }
        if (axes[shortest].stride < extent) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "output_strides.%s %" PRIu64 " is less than %" PRIu64
                              ": elements of the output overlap",
                              axes[shortest].name, axes[shortest].stride, extent);
        }
        is_done[shortest] = true;
        extent += (axes[shortest].size - 1) * axes[shortest].stride;
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_strides(const vkmha_layer_params *layer, vkmha_plan_params *plan,
                                 vkmha_error *error)
{
    const struct {
        const char *field;
        vkmha_strides *strides;
        const vkmha_strides *same; /* where they are not given */
        vkmha_shape shape;
    } tensors[] = {
        {"query_strides", &plan->query_strides, NULL, query_shape(layer, plan)},
        {"key_strides", &plan->key_strides, plan->key_is_query ? &plan->query_strides : NULL,
         key_shape(layer, plan)},
        {"value_strides", &plan->value_strides, plan->value_is_key ? &plan->key_strides : NULL,
         value_shape(layer, plan)},
        {"output_strides", &plan->output_strides, NULL, output_shape(layer, plan)},
    };
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        vkmha_status status = check_given(tensors[i].field, layer, plan, &tensors[i].shape,
                                          tensors[i].strides, error);
        if (status != VKMHA_OK) {
            return status;
        }
        if (!tensors[i].strides->is_given) {
            *tensors[i].strides =
                tensors[i].same ? *tensors[i].same : contiguous(layer, plan, &tensors[i].shape);
        }
    }
    return check_disjoint(&tensors[3].shape, &plan->output_strides, error);
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

static uint64_t longer(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void memory_sizes(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                         vkmha_sizes *sizes)
{
    const vkmha_shape query = query_shape(layer, plan);
    const vkmha_shape key = key_shape(layer, plan);
    const vkmha_shape value = value_shape(layer, plan);
    const vkmha_shape output = output_shape(layer, plan);
    /* A checked plan's extents fit. */
    extent_of(&query, &plan->query_strides, &sizes->query);
    extent_of(&key, &plan->key_strides, &sizes->key);
    extent_of(&value, &plan->value_strides, &sizes->value);
    extent_of(&output, &plan->output_strides, &sizes->output);
    if (plan->value_is_key) {
        sizes->key = longer(sizes->key, sizes->value);
        sizes->value = 0;
    }
    if (plan->key_is_query) {
        sizes->query = longer(sizes->query, sizes->key);
        sizes->key = 0;
    }
}

static void mask_sizes(const vkmha_plan_params *plan, vkmha_sizes *sizes)
{
    const uint64_t *dims = plan->mask_dims;
    const uint64_t rows = dims[0] * dims[1] * dims[2];
    switch (plan->mask) {
    case VKMHA_MASK_NONE:
        break;
    case VKMHA_MASK_ATTEND:
        sizes->mask = rows * dims[3];
        sizes->mask_bytes = sizes->mask;
        break;
    case VKMHA_MASK_ADDITIVE:
        sizes->mask = rows * dims[3];
        sizes->mask_bytes = sizes->mask * 4;
        break;
    case VKMHA_MASK_ADDITIVE_F16:
        sizes->mask = rows * dims[3];
        sizes->mask_bytes = sizes->mask * 2;
        break;
    case VKMHA_MASK_ATTEND_BITS:
        sizes->mask = rows * ((dims[3] + 31) / 32);
        sizes->mask_bytes = sizes->mask * 4;
        break;
    }
}

void vkmha_plan_sizes(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                      vkmha_sizes *sizes)
{
    const uint64_t batch = plan->batch_size;
    const uint64_t queries = plan->is_packed ? plan->total_queries : batch * plan->query_len;
    const uint64_t keys = plan->is_packed ? plan->total_keys : batch * plan->key_len;
    const uint64_t all_keys = vkmha_all_keys(plan);
    const bool has_sequences = plan->has_key_lengths || plan->has_first_keys ||
                               plan->has_position_offsets || plan->cache_capacity ||
                               plan->is_packed;
    const uint64_t kv_rows = batch * layer->num_kv_heads;
    const uint64_t gates = plan->has_gates_per_sequence ? batch * layer->num_heads
                           : plan->has_head_gates       ? layer->num_heads
                                                        : 0;
    *sizes = (vkmha_sizes){
        .query_rows = queries,
        .key_rows = keys,
        .all_keys = all_keys,
        .attend_keys = plan->has_attend_keys ? batch * all_keys : 0,
        .sequences = has_sequences ? batch : 0,
        .positions = layer->rope.style != VKMHA_ROPE_NONE ? queries + keys : 0,
        .head_gates = gates,
        .past_key = kv_rows * plan->past_len * layer->head_dim,
        .past_value = kv_rows * plan->past_len * layer->v_head_dim,
        .present_key = plan->has_present ? kv_rows * all_keys * layer->head_dim : 0,
        .present_value = plan->has_present ? kv_rows * all_keys * layer->v_head_dim : 0,
        .heads_query = queries * layer->num_heads * layer->head_dim,
        .heads_key = keys * layer->num_kv_heads * layer->head_dim,
        .heads_value = keys * layer->num_kv_heads * layer->v_head_dim,
        .heads_attention = queries * layer->num_heads * layer->v_head_dim,
    };
    memory_sizes(layer, plan, sizes);
    mask_sizes(plan, sizes);
    vkmha_told_sizes(layer, plan, sizes);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

vkmha_item vkmha_plan_item(const vkmha_plan_params *plan, const vkmha_inputs *inputs,
                           uint64_t cached, uint64_t b)
{
    vkmha_item item = {
        .past_length = (int64_t)(plan->cache_capacity ? cached : plan->past_len),
        .first_key = plan->has_first_keys ? inputs->first_keys[b] : 0,
    };
    if (plan->is_packed) {
        item.first_query_row = inputs->cu_query_lens[b];
        item.query_length = inputs->cu_query_lens[b + 1] - item.first_query_row;
        item.first_key_row = inputs->cu_key_lens[b];
        item.new_keys = inputs->cu_key_lens[b + 1] - item.first_key_row;
    } else {
        item.first_query_row = (int64_t)(b * plan->query_len);
        item.query_length = (int64_t)plan->query_len;
        item.first_key_row = (int64_t)(b * plan->key_len);
        item.new_keys = (int64_t)plan->key_len;
    }
    item.key_length =
        plan->has_key_lengths ? inputs->key_lengths[b] : item.past_length + item.new_keys;
    if (plan->positions == VKMHA_POSITIONS_BOTTOM_RIGHT) {
        item.position_offset = item.key_length - item.query_length;
    } else if (plan->positions == VKMHA_POSITIONS_OFFSET) {
        item.position_offset =
            plan->has_position_offsets ? inputs->position_offsets[b] : plan->position_offset;
    }
    return item;
}
