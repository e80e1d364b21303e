/* What attention reads and writes: tensors, masks, options; and the parts of them that a box
 * reaches. */
#include "schedule_attention.h"

/* The options in use, as bits. */
static uint32_t option_bits(const vkmha_planner *planner)
{
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_plan_params *plan = planner->plan;
    const struct {
        bool is_used;
        uint32_t bit;
    } options[] = {
        {plan->has_attend_keys, VKMHA_OPTION_ATTEND_KEYS},
        {planner->sizes.sequences > 0, VKMHA_OPTION_SEQUENCES},
        {plan->is_packed, VKMHA_OPTION_PACKED},
        {plan->causal != VKMHA_CAUSAL_NONE, VKMHA_OPTION_CAUSAL},
        {plan->has_window_left, VKMHA_OPTION_WINDOW_LEFT},
        {plan->has_window_right, VKMHA_OPTION_WINDOW_RIGHT},
        {layer->softcap > 0.0f, VKMHA_OPTION_SOFTCAP},
        {layer->add_zero_attn, VKMHA_OPTION_ZERO_ATTN},
        {plan->has_head_gates, VKMHA_OPTION_GATES},
        {vkmha_leaves_rows(plan), VKMHA_OPTION_ROWS},
        {vkmha_leaves_rows(plan) || plan->scores != VKMHA_SCORES_NONE, VKMHA_OPTION_TOLD},
    };
    uint32_t bits = planner->packing->tables.options;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        bits |= options[i].is_used ? options[i].bit : 0;
    }
    return bits;
}

/* The classes that the options in use belong to. */
static uint32_t class_bits(uint32_t options, const vkmha_plan_params *plan)
{
    static const struct {
        uint32_t options;
        uint32_t bit;
    } classes[] = {
        {VKMHA_OPTION_ATTEND_KEYS, VKMHA_CLASS_MASKS},
        {VKMHA_OPTION_SOFTCAP | VKMHA_OPTION_ALIBI | VKMHA_OPTION_RELATIVE, VKMHA_CLASS_SCORES},
        {VKMHA_OPTION_SINKS | VKMHA_OPTION_BIAS_KV | VKMHA_OPTION_ZERO_ATTN, VKMHA_CLASS_EXTRAS},
    };
    uint32_t bits = plan->mask != VKMHA_MASK_NONE ? VKMHA_CLASS_MASKS : 0;
    bits |= plan->has_window_left || plan->has_first_keys ? VKMHA_CLASS_FIRSTS : 0;
    bits |= plan->has_statistics ? VKMHA_CLASS_STATISTICS : 0;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        bits |= (options & classes[i].options) != 0 ? classes[i].bit : 0;
    }
    return bits;
}

static vkmha_attention_options describe_options(const vkmha_planner *planner)
{
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_tables *tables = &planner->packing->tables;
    return (vkmha_attention_options){
        .bits = option_bits(planner),
        .mask = (uint32_t)plan->mask,
        .key_len = (uint32_t)planner->sizes.all_keys,
        .head_dim = layer->head_dim,
        .v_head_dim = layer->v_head_dim,
        .group_size = layer->num_heads / layer->num_kv_heads,
        .scale = layer->scale,
        .softcap = layer->softcap,
        .window_left = (int32_t)plan->window_left,
        .window_right = (int32_t)plan->window_right,
        .attend_batch_stride = (uint32_t)planner->sizes.all_keys,
        .slopes = tables->slopes,
        .sinks = tables->sinks,
        .relative = tables->relative,
        .relative_reach = (int32_t)tables->relative_reach,
        .bias_k = tables->bias_k,
        .bias_v = tables->bias_v,
        .total_queries = (uint32_t)plan->total_queries,
        .total_keys = (uint32_t)plan->total_keys,
        .num_heads = layer->num_heads,
        .query_len = (uint32_t)plan->query_len,
        .mean_heads = (uint32_t)planner->sizes.chosen_heads,
    };
}

/* Elements of the mask's rows: bytes, halves, floats, or words of bits. */
static uint32_t mask_element_bytes(vkmha_mask_type mask)
{
    switch (mask) {
    case VKMHA_MASK_NONE:
    case VKMHA_MASK_ATTEND:
        return 1;
    case VKMHA_MASK_ADDITIVE_F16:
        return 2;
    case VKMHA_MASK_ADDITIVE:
    case VKMHA_MASK_ATTEND_BITS:
        return 4;
    }
    return 4;
}

void vkmha_attention_describe(vkmha_planner *planner, vkmha_attention *attention)
{
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_tensors *tensors = &attention->tensors;
    vkmha_tensors_describe(planner, &attention->tensors);
    planner->schedule->options = describe_options(planner);
    vkmha_constants *constants = &attention->tile.constants;
    constants->VECTOR_A =
        vkmha_view_is_vector(&tensors->query) && vkmha_view_is_vector(&tensors->key);
    constants->VECTOR_B = vkmha_view_is_vector(&tensors->value);
    constants->VECTOR_C = vkmha_view_is_vector(&tensors->output);
    constants->TYPES = VKMHA_TYPE_BITS(VKMHA_BIND_QUERY, tensors->query.type) |
                       VKMHA_TYPE_BITS(VKMHA_BIND_KEY, tensors->key.type) |
                       VKMHA_TYPE_BITS(VKMHA_BIND_VALUE, tensors->value.type);
    constants->CLASSES = class_bits(planner->schedule->options.bits, plan);
    if (vkmha_leaves_rows(plan)) {
        attention->rows =
            vkmha_heads_view(VKMHA_RESOURCE_WORKSPACE, VKMHA_TYPE_F32, planner->schedule->rows.offset,
                             planner->layer->num_heads, plan->query_len, VKMHA_TOLD_FLOATS);
    }

    const uint64_t *dims = plan->mask_dims;
    const uint64_t row = plan->mask == VKMHA_MASK_ATTEND_BITS ? (dims[3] + 31) / 32 : dims[3];
    attention->mask = (vkmha_view){
        .resource = VKMHA_RESOURCE_MASK,
        .element_bytes = mask_element_bytes(plan->mask),
        .batch_stride = dims[0] > 1 ? dims[1] * dims[2] * row : 0,
        .head_stride = dims[1] > 1 ? dims[2] * row : 0,
        .row_stride = dims[2] > 1 ? row : 0,
        .row_elements = row,
    };
    attention->attend_keys = (vkmha_view){
        .resource = VKMHA_RESOURCE_ATTEND_KEYS,
        .element_bytes = 1,
        .batch_stride = planner->sizes.all_keys,
        .row_elements = planner->sizes.all_keys,
    };
    attention->gates = (vkmha_view){
        .resource = VKMHA_RESOURCE_GATES,
        .element_bytes = 4,
        .batch_stride = plan->has_gates_per_sequence ? planner->layer->num_heads : 0,
        .head_stride = 1,
        .row_elements = 1,
    };
}

/* The box of a tensor of rows: all rows of its one batch where packed. */
static vkmha_box rows_box(const vkmha_planner *planner, const vkmha_box *box, uint64_t total)
{
    vkmha_box rows = *box;
    if (planner->plan->is_packed) {
        rows.first_batch = 0;
        rows.batches = 1;
        rows.first_row = 0;
        rows.rows = total;
    }
    return rows;
}

/* The box of key/value heads that a box of query heads reads; all keys. */
vkmha_box vkmha_attention_keys_box(const vkmha_planner *planner, const vkmha_box *box)
{
    const uint32_t group = planner->layer->num_heads / planner->layer->num_kv_heads;
    vkmha_box keys = *box;
    keys.first_head = box->first_head / group;
    keys.heads = (box->first_head + box->heads - 1) / group - keys.first_head + 1;
    keys.first_row = 0;
    keys.rows = planner->sizes.all_keys;
    return rows_box(planner, &keys, planner->plan->total_keys);
}

vkmha_box vkmha_attention_query_box(const vkmha_planner *planner, const vkmha_box *box)
{
    return rows_box(planner, box, planner->plan->total_queries);
}

vkmha_box vkmha_attention_result_box(const vkmha_planner *planner,
                                     const vkmha_attention *attention, const vkmha_box *box)
{
    return attention->is_told ? *box : vkmha_attention_query_box(planner, box);
}

uint64_t vkmha_attention_work(const vkmha_planner *planner, const vkmha_box *box, uint64_t keys)
{
    const vkmha_layer_params *layer = planner->layer;
    return box->batches * box->heads * box->rows * keys * (layer->head_dim + layer->v_head_dim);
}

uint64_t vkmha_chunk_round_up(uint64_t keys)
{
    return (keys + VKMHA_KEY_CHUNK - 1) / VKMHA_KEY_CHUNK * VKMHA_KEY_CHUNK;
}

/* Keys that are seen by any query of the box, from the chunk on where they begin. */
vkmha_key_span vkmha_chunk_span(const vkmha_planner *planner, const vkmha_box *box)
{
    vkmha_key_span span = vkmha_visible_keys(planner, box->first_row, box->rows);
    span.begin = span.begin / VKMHA_KEY_CHUNK * VKMHA_KEY_CHUNK;
    return span;
}

uint64_t vkmha_needed_keys(const vkmha_planner *planner, const vkmha_box *box)
{
    const vkmha_key_span span = vkmha_chunk_span(planner, box);
    return span.end - span.begin;
}
