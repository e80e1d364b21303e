/* Where the tensors of a plan lie, and the windows that do not depend on a box. */
#include "schedule_attention.h"

vkmha_view vkmha_heads_view(vkmha_resource resource, vkmha_type type, uint64_t offset,
                            uint64_t heads, uint64_t rows, uint32_t pitch)
{
    return (vkmha_view){
        .resource = resource,
        .offset = offset,
        .element_bytes = vkmha_type_bytes(type),
        .type = type,
        .batch_stride = heads * rows * pitch,
        .head_stride = rows * pitch,
        .row_stride = pitch,
        .row_elements = pitch,
    };
}

vkmha_view vkmha_strided_view(vkmha_resource resource, vkmha_type type, const vkmha_strides *strides,
                              uint64_t features)
{
    return (vkmha_view){
        .resource = resource,
        .offset = strides->offset * vkmha_type_bytes(type),
        .element_bytes = vkmha_type_bytes(type),
        .type = type,
        .batch_stride = strides->batch,
        .head_stride = strides->head,
        .row_stride = strides->row,
        .row_elements = features,
    };
}

bool vkmha_view_is_vector(const vkmha_view *view)
{
    return view->offset % ((uint64_t)4 * view->element_bytes) == 0 && view->batch_stride % 4 == 0 &&
           view->head_stride % 4 == 0 && view->row_stride % 4 == 0 && view->row_elements % 4 == 0;
}

vkmha_tensor_push vkmha_view_push(const vkmha_view *view, uint32_t base)
{
    return (vkmha_tensor_push){
        .base = base,
        .batch_stride = (uint32_t)view->batch_stride,
        .head_stride = (uint32_t)view->head_stride,
        .row_stride = (uint32_t)view->row_stride,
    };
}

/* Keys that something is done to before attention sees them: rotated, joined to others, kept. */
static bool moves_keys(const vkmha_layer_params *layer, const vkmha_plan_params *plan)
{
    return !layer->attention_only || layer->rope.style != VKMHA_ROPE_NONE || plan->past_len > 0 ||
           plan->has_present || plan->cache_capacity > 0;
}

static bool moves_query(const vkmha_layer_params *layer)
{
    return !layer->attention_only || layer->rope.style != VKMHA_ROPE_NONE;
}

/* Between its chunks of keys attention keeps rows in its output, which fp32 alone can hold. */
static bool moves_output(const vkmha_layer_params *layer, const vkmha_plan_params *plan)
{
    return layer->attention_only && plan->output_type != VKMHA_TYPE_F32;
}

vkmha_workspace vkmha_workspace_measure(const vkmha_layer_params *layer,
                                        const vkmha_plan_params *plan, const vkmha_sizes *sizes)
{
    const uint64_t key_pitch = vkmha_round_up(layer->head_dim, 4);
    const uint64_t value_pitch = vkmha_round_up(layer->v_head_dim, 4);
    /* The checked sizes of the plan bound these products to 63 bits. */
    const uint64_t queries = sizes->query_rows * layer->num_heads;
    const uint64_t keys = (plan->is_packed ? sizes->key_rows : plan->batch_size * sizes->all_keys) *
                          layer->num_kv_heads;
    const bool has_keys = moves_keys(layer, plan) && plan->cache_capacity == 0;
    return (vkmha_workspace){
        .query = moves_query(layer) ? queries * key_pitch : 0,
        .key = has_keys ? keys * key_pitch : 0,
        .value = has_keys ? keys * value_pitch : 0,
        .attention =
            layer->attention_only && !moves_output(layer, plan) ? 0 : queries * value_pitch,
        .rows = vkmha_leaves_rows(plan)
                    ? plan->batch_size * plan->query_len * layer->num_heads * VKMHA_TOLD_FLOATS
                    : 0,
    };
}

vkmha_view vkmha_output_view(const vkmha_planner *planner)
{
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_plan_params *plan = planner->plan;
    return vkmha_strided_view(VKMHA_RESOURCE_OUTPUT, plan->output_type, &plan->output_strides,
                              layer->attention_only ? layer->v_head_dim : layer->output_dim);
}

void vkmha_tensors_describe(const vkmha_planner *planner, vkmha_tensors *tensors)
{
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_schedule *schedule = planner->schedule;
    const vkmha_sizes *sizes = &planner->sizes;
    const uint32_t key_pitch = vkmha_round_up(layer->head_dim, 4);
    const uint32_t value_pitch = vkmha_round_up(layer->v_head_dim, 4);
    const vkmha_resource key_input = plan->key_is_query ? VKMHA_RESOURCE_QUERY : VKMHA_RESOURCE_KEY;
    const vkmha_resource value_input = plan->value_is_key ? key_input : VKMHA_RESOURCE_VALUE;
    const vkmha_type kept = vkmha_kept_type(layer, plan);
    *tensors = (vkmha_tensors){
        .batches = plan->is_packed ? 1 : plan->batch_size,
        .query_rows = plan->is_packed ? plan->total_queries : plan->query_len,
        .new_rows = plan->is_packed ? plan->total_keys : plan->key_len,
        .all_rows = plan->is_packed ? plan->total_keys : sizes->all_keys,
        .input_query =
            vkmha_strided_view(VKMHA_RESOURCE_QUERY, plan->query_type, &plan->query_strides,
                               layer->head_dim),
        .input_key =
            vkmha_strided_view(key_input, plan->key_type, &plan->key_strides, layer->head_dim),
        .input_value = vkmha_strided_view(value_input, plan->value_type, &plan->value_strides,
                                          layer->v_head_dim),
        .is_query_moved = moves_query(layer),
        .is_key_moved = moves_keys(layer, plan),
        .is_output_moved = moves_output(layer, plan),
    };
    tensors->query = tensors->input_query;
    tensors->key = tensors->input_key;
    tensors->value = tensors->input_value;
    if (tensors->is_query_moved) {
        tensors->query =
            vkmha_heads_view(VKMHA_RESOURCE_WORKSPACE, VKMHA_TYPE_F32, schedule->query.offset,
                             layer->num_heads, tensors->query_rows, key_pitch);
    }
    if (tensors->is_key_moved) {
        const bool is_cached = plan->cache_capacity > 0;
        tensors->key =
            vkmha_heads_view(is_cached ? VKMHA_RESOURCE_CACHE_KEY : VKMHA_RESOURCE_WORKSPACE,
                             kept, is_cached ? 0 : schedule->key.offset, layer->num_kv_heads,
                             tensors->all_rows, key_pitch);
        tensors->value =
            vkmha_heads_view(is_cached ? VKMHA_RESOURCE_CACHE_VALUE : VKMHA_RESOURCE_WORKSPACE,
                             kept, is_cached ? 0 : schedule->value.offset, layer->num_kv_heads,
                             tensors->all_rows, value_pitch);
    }
    if (plan->is_packed) {
        /* One batch of all rows, whichever sequence a workgroup computes. */
        tensors->query.batch_stride = 0;
        tensors->key.batch_stride = 0;
        tensors->value.batch_stride = 0;
    }
    tensors->new_key = tensors->key;
    tensors->new_key.offset += plan->past_len * key_pitch * tensors->key.element_bytes;
    tensors->new_value = tensors->value;
    tensors->new_value.offset += plan->past_len * value_pitch * tensors->value.element_bytes;
    if (layer->attention_only && !tensors->is_output_moved) {
        tensors->output = vkmha_output_view(planner);
        return;
    }
    /* Concatenation by layout: head h writes its columns of [batch, query, heads * pitch]. */
    tensors->output = (vkmha_view){
        .resource = VKMHA_RESOURCE_WORKSPACE,
        .offset = schedule->attention.offset,
        .element_bytes = 4,
        .batch_stride = plan->is_packed ? 0 : tensors->query_rows * layer->num_heads * value_pitch,
        .head_stride = value_pitch,
        .row_stride = (uint64_t)layer->num_heads * value_pitch,
        .row_elements = value_pitch,
    };
}

/* ---- Windows
 * ---------------------------------------------------------------------------------------- */

enum { SEQUENCE_BYTES = 32 };

static vkmha_range sequences_window(const vkmha_planner *planner, uint64_t first_batch,
                                    uint64_t batches, uint64_t *skip)
{
    return vkmha_aligned_window(planner->limits, VKMHA_RESOURCE_SEQUENCES,
                                first_batch * SEQUENCE_BYTES, batches * SEQUENCE_BYTES, skip);
}

vkmha_range vkmha_sequences_window(const vkmha_planner *planner, uint64_t first_batch,
                                   uint64_t batches, uint32_t *base)
{
    uint64_t skip;
    const vkmha_range range = sequences_window(planner, first_batch, batches, &skip);
    *base = (uint32_t)(skip / SEQUENCE_BYTES);
    return range;
}

bool vkmha_sequences_fit(const vkmha_planner *planner, uint64_t first_batch, uint64_t batches)
{
    const uint64_t kernels = (uint64_t)VKMHA_MAX_UNIFORM_SEQUENCES * SEQUENCE_BYTES;
    const uint64_t device = planner->limits->max_uniform_range_bytes;
    uint64_t skip;
    return sequences_window(planner, first_batch, batches, &skip).bytes <=
           (device < kernels ? device : kernels);
}

vkmha_range vkmha_no_array(void)
{
    return (vkmha_range){.resource = VKMHA_RESOURCE_NULL_UNIFORM, .bytes = 16};
}

vkmha_range vkmha_tables_window(const vkmha_planner *planner, uint32_t piece)
{
    const vkmha_piece *table = &planner->packing->pieces[piece];
    return (vkmha_range){
        .resource = VKMHA_RESOURCE_WEIGHTS,
        .block = table->block,
        .offset = table->offset, /* aligned for any device */
        .bytes = table->bytes,
    };
}

vkmha_range vkmha_positions_window(const vkmha_planner *planner)
{
    return (vkmha_range){
        .resource = VKMHA_RESOURCE_POSITIONS,
        .bytes = planner->sizes.positions * 4,
    };
}
