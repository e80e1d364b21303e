/* Attention's dispatches: bindings and pushes of a box, whole, cut over its keys, or split and
 * merged. */
#include "schedule_attention.h"

enum {
    SPLIT_GROUPS = 64
}; /* dispatches of fewer workgroups leave devices idle: their keys are split */

/* Binds the inputs of keys: tensors, masks. */
static void bind_keys(const vkmha_planner *planner, const vkmha_attention *attention,
                      const vkmha_box *box, vkmha_step *step)
{
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_box keys = vkmha_attention_keys_box(planner, box);
    vkmha_attention_push *push = &step->push.attention;
    vkmha_range *bindings = step->bindings;
    uint32_t base = 0;
    bindings[VKMHA_BIND_KEY] = vkmha_box_window(planner, &attention->tensors.key, &keys, &base);
    push->key = vkmha_view_push(&attention->tensors.key, base);
    bindings[VKMHA_BIND_VALUE] = vkmha_box_window(planner, &attention->tensors.value, &keys, &base);
    push->value = vkmha_view_push(&attention->tensors.value, base);
    if (plan->mask != VKMHA_MASK_NONE) {
        bindings[VKMHA_BIND_MASK] = vkmha_box_window(planner, &attention->mask, box, &base);
        push->mask = vkmha_view_push(&attention->mask, base);
        push->flags |= plan->mask_dims[3] > 1 ? VKMHA_FLAG_MASK_KEYS : 0;
    }
    if (plan->has_attend_keys) {
        const vkmha_box batches = {box->first_batch, box->batches, 0, 1, 0, 1};
        bindings[VKMHA_BIND_ATTEND_KEYS] =
            vkmha_box_window(planner, &attention->attend_keys, &batches, &push->attend_base);
    }
}

/* Everything of a step that does not depend on the cut over keys. */
vkmha_step vkmha_attention_step(const vkmha_planner *planner, const vkmha_attention *attention,
                                const vkmha_box *box)
{
    const uint32_t tile_rows = attention->tile.rows;
    const vkmha_box queries = vkmha_attention_query_box(planner, box);
    const vkmha_box results = vkmha_attention_result_box(planner, attention, box);
    const uint32_t options = planner->schedule->options.bits;
    vkmha_step step = {
        .stage = VKMHA_STAGE_ATTENTION,
        .variant = attention->variant,
        .constants = attention->tile.constants,
        .groups = {(uint32_t)((box->rows + tile_rows - 1) / tile_rows), (uint32_t)box->heads,
                   (uint32_t)box->batches},
        .shared_bytes = attention->tile.shared_bytes,
        .push_bytes = sizeof(vkmha_attention_push),
    };
    uint32_t base = 0;
    vkmha_attention_push *push = &step.push.attention;
    vkmha_range *bindings = step.bindings;
    bindings[VKMHA_BIND_QUERY] =
        vkmha_box_window(planner, &attention->tensors.query, &queries, &base);
    push->query = vkmha_view_push(&attention->tensors.query, base);
    bindings[VKMHA_BIND_OUTPUT] =
        vkmha_box_window(planner, &attention->tensors.output, &results, &base);
    bindings[VKMHA_BIND_OUTPUT].is_written = true;
    push->result = vkmha_view_push(&attention->tensors.output, base);

    /* The kernel names every binding: those without a tensor get the query's window, which it only
     * reads. */
    for (uint32_t i = 0; i < VKMHA_NUM_STORAGE_BINDINGS; i++) {
        if (bindings[i].resource == VKMHA_RESOURCE_NONE) {
            bindings[i] = bindings[VKMHA_BIND_QUERY];
        }
    }
    bindings[VKMHA_BIND_SEQUENCES] = vkmha_no_array();
    bindings[VKMHA_BIND_GATES] = vkmha_no_array();
    bindings[VKMHA_BIND_OPTIONS] =
        (vkmha_range){.resource = VKMHA_RESOURCE_OPTIONS, .bytes = VKMHA_OPTIONS_BYTES};
    if (planner->packing->tables.count > 0) {
        bindings[VKMHA_BIND_TABLES] = vkmha_tables_window(planner, planner->packing->tables_piece);
    }
    if (attention->tensors.all_rows > 0) {
        bind_keys(planner, attention, box, &step);
    }
    if ((options & VKMHA_OPTION_SEQUENCES) != 0) {
        bindings[VKMHA_BIND_SEQUENCES] =
            vkmha_sequences_window(planner, box->first_batch, box->batches, &push->sequences_base);
    }
    if ((options & VKMHA_OPTION_GATES) != 0) {
        const vkmha_box heads = {box->first_batch, box->batches, box->first_head, box->heads, 0, 1};
        bindings[VKMHA_BIND_GATES] =
            vkmha_box_window(planner, &attention->gates, &heads, &push->gates_base);
        push->gates_batch_stride = (uint32_t)attention->gates.batch_stride;
    }
    if (attention->rows.row_elements > 0) {
        bindings[VKMHA_BIND_STATE] =
            vkmha_box_window(planner, &attention->rows, box, &push->state_base);
        bindings[VKMHA_BIND_STATE].is_written = !attention->is_told;
    } else if (!attention->is_told) {
        /* A state that is not kept: the kernel names it as written. */
        bindings[VKMHA_BIND_STATE] = bindings[VKMHA_BIND_OUTPUT];
    }
    push->first_query = (uint32_t)box->first_row;
    push->query_count = (uint32_t)box->rows;
    push->first_head = (uint32_t)box->first_head;
    push->position_offset = (int32_t)(vkmha_position_offset(planner) + (int64_t)box->first_row);
    return step;
}

void vkmha_attention_set_keys(const vkmha_planner *planner, const vkmha_attention *attention,
                              const vkmha_box *box, uint64_t begin, uint64_t end, uint32_t flags,
                              vkmha_step *step)
{
    vkmha_attention_push *push = &step->push.attention;
    push->key_begin = (uint32_t)begin;
    push->key_end = (uint32_t)end;
    push->flags = (push->flags & VKMHA_FLAG_MASK_KEYS) | flags;
    step->work = vkmha_attention_work(planner, box, end - begin);
    step->loop_trips =
        attention->tile.trips_base +
        attention->tile.trips_per_unit * (vkmha_chunk_round_up(end - begin) / VKMHA_KEY_CHUNK);
}

uint64_t vkmha_state_bytes(const vkmha_attention *attention)
{
    return (uint64_t)VKMHA_STATE_FLOATS(attention->tile.constants.CLASSES) * 4;
}

vkmha_range vkmha_state_range(vkmha_planner *planner, uint64_t offset, uint64_t bytes)
{
    vkmha_region *region = &planner->schedule->state;
    region->bytes = offset + bytes > region->bytes ? offset + bytes : region->bytes;
    return (vkmha_range){
        .resource = VKMHA_RESOURCE_WORKSPACE,
        .offset = region->offset + offset,
        .bytes = bytes,
        .is_written = true,
    };
}

/* ---- Split keys: one workgroup a chunk, then a merge ---- */

/* Whether splitting the box's keys is worth it and possible. */
bool vkmha_plan_split(const vkmha_planner *planner, const vkmha_attention *attention,
                      const vkmha_box *box, vkmha_split *split)
{
    const vkmha_limits *limits = planner->limits;
    const uint64_t tiles = (box->rows + attention->tile.rows - 1) / attention->tile.rows;
    const uint64_t rows = box->batches * box->heads * box->rows;
    *split = (vkmha_split){
        .chunks = vkmha_chunk_round_up(vkmha_needed_keys(planner, box)) / VKMHA_KEY_CHUNK,
    };
    split->state_bytes = split->chunks * rows * vkmha_state_bytes(attention);
    split->output_bytes = split->chunks * rows * vkmha_round_up(planner->layer->v_head_dim, 4) * 4;
    const uint64_t merge_trips =
        attention->merge_tile.trips_base + attention->merge_tile.trips_per_unit * split->chunks;
    return split->chunks > 1 && tiles * box->heads * box->batches < SPLIT_GROUPS &&
           tiles * split->chunks <= limits->max_groups[0] &&
           split->state_bytes <= limits->max_storage_range_bytes &&
           split->output_bytes <= limits->max_storage_range_bytes &&
           planner->schedule->state.offset + split->state_bytes + 256 + split->output_bytes <=
               limits->max_allocation_bytes &&
           (limits->max_loop_trips == 0 || merge_trips <= limits->max_loop_trips);
}

vkmha_status vkmha_emit_split(vkmha_planner *planner, const vkmha_attention *attention,
                              const vkmha_box *box, const vkmha_split *split)
{
    const vkmha_key_span span = vkmha_chunk_span(planner, box);
    const uint32_t pitch = vkmha_round_up(planner->layer->v_head_dim, 4);
    const uint64_t aligned = (split->state_bytes + 255) / 256 * 256;
    const vkmha_range state = vkmha_state_range(planner, 0, split->state_bytes);
    const vkmha_range parts = vkmha_state_range(planner, aligned, split->output_bytes);
    vkmha_step step = vkmha_attention_step(planner, attention, box);
    const vkmha_step whole = step;
    step.constants.CLASSES |= VKMHA_CLASS_SPLIT;
    step.constants.VECTOR_C = 1;
    step.groups[0] *= (uint32_t)split->chunks;
    step.bindings[VKMHA_BIND_STATE] = state;
    step.bindings[VKMHA_BIND_OUTPUT] = parts;
    step.push.attention.result = (vkmha_tensor_push){.row_stride = pitch};
    vkmha_attention_set_keys(planner, attention, box, span.begin, span.end, VKMHA_FLAG_FIRST,
                             &step);
    step.loop_trips = attention->tile.trips_base + attention->tile.trips_per_unit;
    vkmha_status status = vkmha_planner_append(planner, &step);
    if (status != VKMHA_OK) {
        return status;
    }
    step = whole;
    step.variant = attention->merge;
    step.constants = attention->merge_tile.constants;
    /* The extra keys come last, and bias_k's score is softcapped as any other. */
    step.constants.CLASSES =
        attention->tile.constants.CLASSES &
        (VKMHA_CLASS_EXTRAS | VKMHA_CLASS_SCORES | VKMHA_CLASS_STATISTICS);
    step.constants.VECTOR_A = attention->tile.constants.VECTOR_A;
    step.constants.TYPES =
        attention->tile.constants.TYPES & VKMHA_TYPE_BITS(VKMHA_BIND_QUERY, VKMHA_TYPE_MASK);
    step.constants.VECTOR_C = attention->tile.constants.VECTOR_C;
    step.shared_bytes = attention->merge_tile.shared_bytes;
    step.groups[0] = (uint32_t)box->rows; /* its tiles are of one row */
    step.bindings[VKMHA_BIND_VALUE] = state;
    step.bindings[VKMHA_BIND_VALUE].is_written = false;
    step.bindings[VKMHA_BIND_KEY] = parts;
    step.bindings[VKMHA_BIND_KEY].is_written = false;
    step.push.attention.key = (vkmha_tensor_push){.row_stride = pitch};
    vkmha_attention_set_keys(planner, attention, box, span.begin, span.end,
                             VKMHA_FLAG_FIRST | VKMHA_FLAG_LAST, &step);
    step.work = 0; /* a sum for each of the split dispatch's rows */
    step.loop_trips =
        attention->merge_tile.trips_base + attention->merge_tile.trips_per_unit * split->chunks;
    return vkmha_planner_append(planner, &step);
}
