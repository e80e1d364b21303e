/*
 * Copies of rows of heads: past keys and values into the workspace; where nothing projects, new
 * ones into workspace or cache; present ones out, and a result of attention that is stored in 16
 * bits. Rotated, put in order and rounded on the way.
 */
#include "schedule.h"

#include <inttypes.h>

typedef struct vkmha_placement {
    const char *name;
    vkmha_tile tile;
    const vkmha_variant *variant;
    vkmha_view source;
    vkmha_view target;
    uint32_t features;
    uint64_t target_rows; /* append: rows of the target, any of which may be written */
    uint64_t positions;   /* of row 0 of batch 0, as its batch's stride */
    uint64_t positions_stride;
} vkmha_placement;

static bool appends(const vkmha_placement *placement)
{
    return (placement->tile.constants.PLACE & VKMHA_PLACE_APPEND) != 0;
}

static bool rotates(const vkmha_placement *placement)
{
    return (placement->tile.constants.PLACE &
            (VKMHA_PLACE_ROTATE_HALF | VKMHA_PLACE_ROTATE_INTERLEAVED)) != 0;
}

static vkmha_box target_box(const vkmha_placement *placement, const vkmha_box *box)
{
    vkmha_box target = *box;
    if (appends(placement)) {
        target.first_row = 0;
        target.rows = placement->target_rows;
    }
    return target;
}

static uint64_t count_groups(const vkmha_placement *placement, uint64_t rows)
{
    const uint64_t vectors = (placement->target.row_elements + 3) / 4;
    const uint64_t workgroup = placement->tile.constants.WORKGROUP;
    return (rows * vectors + workgroup - 1) / workgroup;
}

static bool fits(const vkmha_planner *planner, const vkmha_placement *placement,
                 const vkmha_box *box)
{
    const vkmha_limits *limits = planner->limits;
    const vkmha_box target = target_box(placement, box);
    const uint64_t storage = limits->max_storage_range_bytes;
    return vkmha_box_bytes(planner, &placement->source, box) <= storage &&
           vkmha_box_bytes(planner, &placement->target, &target) <= storage &&
           box->batches <= limits->max_groups[2] && box->heads <= limits->max_groups[1] &&
           count_groups(placement, box->rows) <= limits->max_groups[0] &&
           (!appends(placement) || vkmha_sequences_fit(planner, box->first_batch, box->batches));
}

static vkmha_status emit(vkmha_planner *planner, const vkmha_placement *placement,
                         const vkmha_box *box)
{
    const vkmha_box target = target_box(placement, box);
    vkmha_step step = {
        .stage = placement->target.resource == VKMHA_RESOURCE_OUTPUT ? VKMHA_STAGE_ATTENTION
                                                                     : VKMHA_STAGE_PROJECT,
        .variant = placement->variant,
        .constants = placement->tile.constants,
        .groups = {(uint32_t)count_groups(placement, box->rows), (uint32_t)box->heads,
                   (uint32_t)box->batches},
        .loop_trips = placement->tile.trips_base,
        .push_bytes = sizeof(vkmha_place_push),
    };
    vkmha_place_push *push = &step.push.place;
    vkmha_range *bindings = step.bindings;
    uint32_t base = 0;
    bindings[VKMHA_BIND_PLACE_SOURCE] = vkmha_box_window(planner, &placement->source, box, &base);
    push->source = vkmha_view_push(&placement->source, base);
    bindings[VKMHA_BIND_PLACE_TARGET] =
        vkmha_box_window(planner, &placement->target, &target, &base);
    bindings[VKMHA_BIND_PLACE_TARGET].is_written = true;
    push->target = vkmha_view_push(&placement->target, base);
    /* The kernel names these, and reaches them only where it appends or rotates. */
    bindings[VKMHA_BIND_ROTATION] = bindings[VKMHA_BIND_PLACE_SOURCE];
    bindings[VKMHA_BIND_POSITIONS] = bindings[VKMHA_BIND_PLACE_SOURCE];
    bindings[VKMHA_BIND_SEQUENCES] = vkmha_no_array();
    push->rows = (uint32_t)box->rows;
    push->new_rows = (uint32_t)planner->plan->key_len;
    push->features = placement->features;
    push->pitch = (uint32_t)placement->target.row_elements;
    if (appends(placement)) {
        push->target.base += (uint32_t)(box->first_row * placement->target.row_stride);
        bindings[VKMHA_BIND_SEQUENCES] =
            vkmha_sequences_window(planner, box->first_batch, box->batches, &push->sequences_base);
    }
    if (rotates(placement)) {
        bindings[VKMHA_BIND_ROTATION] =
            vkmha_tables_window(planner, planner->packing->rotation_piece);
        bindings[VKMHA_BIND_POSITIONS] = vkmha_positions_window(planner);
        push->positions_base =
            (uint32_t)(placement->positions + box->first_batch * placement->positions_stride +
                       box->first_row);
        push->positions_batch_stride = (uint32_t)placement->positions_stride;
    }
    return vkmha_planner_append(planner, &step);
}

static vkmha_status cut_box(vkmha_planner *planner, const vkmha_placement *placement,
                            const vkmha_box *box)
{
    if (fits(planner, placement, box)) {
        return emit(planner, placement, box);
    }
    const vkmha_cut cut = vkmha_box_next_cut(box, 1);
    if (cut == VKMHA_CUT_IMPOSSIBLE) {
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "the %s of one head do not fit this device's bindings of %" PRIu64
                          " bytes",
                          placement->name, planner->limits->max_storage_range_bytes);
    }
    vkmha_box first;
    vkmha_box second;
    vkmha_box_halve(box, cut, 1, &first, &second);
    vkmha_status status = cut_box(planner, placement, &first);
    return status == VKMHA_OK ? cut_box(planner, placement, &second) : status;
}

static vkmha_status place(vkmha_planner *planner, const char *name, const vkmha_view *source,
                          const vkmha_view *target, uint32_t features, uint64_t positions,
                          uint64_t positions_stride, uint32_t bits, vkmha_box box)
{
    if (box.batches == 0 || box.rows == 0) {
        return VKMHA_OK;
    }
    const vkmha_layer_params *layer = planner->layer;
    vkmha_placement placement = {
        .name = name,
        .source = *source,
        .target = *target,
        .features = features,
        .target_rows = planner->sizes.all_keys,
        .positions = positions,
        .positions_stride = positions_stride,
    };
    vkmha_status status =
        vkmha_variant_pick(VKMHA_KERNEL_PLACE, NULL, planner->limits, layer->head_dim,
                           layer->v_head_dim, &placement.variant, &placement.tile, planner->error);
    if (status != VKMHA_OK) {
        return status;
    }
    const uint32_t in_order = VKMHA_PLACE_ROTATE_HALF | VKMHA_PLACE_ROTATE_INTERLEAVED |
                              VKMHA_PLACE_PAIR | VKMHA_PLACE_UNPAIR;
    placement.tile.constants.PLACE = bits;
    placement.tile.constants.TYPES =
        VKMHA_TYPE_BITS(VKMHA_BIND_PLACE_SOURCE, (uint32_t)source->type) |
        VKMHA_TYPE_BITS(VKMHA_BIND_PLACE_TARGET, (uint32_t)target->type);
    placement.tile.constants.ROTATE = (bits & in_order) != 0 ? layer->rope.dim : 0;
    return cut_box(planner, &placement, &box);
}

/* attention_only: the bits that rotate what is placed. */
static uint32_t rotation_bits(const vkmha_layer_params *layer)
{
    switch (layer->rope.style) {
    case VKMHA_ROPE_HALF:
        return VKMHA_PLACE_ROTATE_HALF;
    case VKMHA_ROPE_INTERLEAVED:
        return VKMHA_PLACE_ROTATE_INTERLEAVED;
    case VKMHA_ROPE_NONE:
        break;
    }
    return 0;
}

static vkmha_box rows_box(const vkmha_tensors *tensors, uint64_t heads, uint64_t rows)
{
    return (vkmha_box){0, tensors->batches, 0, heads, 0, rows};
}

static vkmha_status place_inputs(vkmha_planner *planner, const vkmha_tensors *tensors)
{
    const vkmha_layer_params *layer = planner->layer;
    const uint32_t rotation = rotation_bits(layer);
    const uint32_t append = planner->plan->cache_capacity > 0 ? VKMHA_PLACE_APPEND : 0;
    const uint64_t kv_heads = layer->num_kv_heads;
    vkmha_status status = VKMHA_OK;
    if (tensors->is_query_moved) {
        status = place(planner, "queries", &tensors->input_query, &tensors->query, layer->head_dim,
                       0, tensors->query_rows, rotation,
                       rows_box(tensors, layer->num_heads, tensors->query_rows));
    }
    if (status == VKMHA_OK && tensors->is_key_moved) {
        status = place(planner, "keys", &tensors->input_key, &tensors->new_key, layer->head_dim,
                       planner->sizes.query_rows, tensors->new_rows, rotation | append,
                       rows_box(tensors, kv_heads, tensors->new_rows));
    }
    if (status == VKMHA_OK && tensors->is_key_moved) {
        status =
            place(planner, "values", &tensors->input_value, &tensors->new_value, layer->v_head_dim,
                  0, 0, append, rows_box(tensors, kv_heads, tensors->new_rows));
    }
    return status;
}

vkmha_status vkmha_schedule_places(vkmha_planner *planner)
{
    const vkmha_layer_params *layer = planner->layer;
    const uint64_t past = planner->plan->past_len;
    const uint64_t heads = layer->num_kv_heads;
    vkmha_tensors tensors;
    vkmha_tensors_describe(planner, &tensors);
    vkmha_status status = VKMHA_OK;
    if (layer->attention_only) {
        status = place_inputs(planner, &tensors);
    }
    if (status == VKMHA_OK) {
        const vkmha_view source = vkmha_heads_view(VKMHA_RESOURCE_PAST_KEY, layer->cache_type, 0,
                                                   heads, past, layer->head_dim);
        status = place(planner, "past keys", &source, &tensors.key, layer->head_dim, 0, 0,
                       vkmha_paired_features(layer) > 0 ? VKMHA_PLACE_PAIR : 0,
                       rows_box(&tensors, heads, past));
    }
    if (status == VKMHA_OK) {
        const vkmha_view source = vkmha_heads_view(VKMHA_RESOURCE_PAST_VALUE, layer->cache_type, 0,
                                                   heads, past, layer->v_head_dim);
        status = place(planner, "past values", &source, &tensors.value, layer->v_head_dim, 0, 0, 0,
                       rows_box(&tensors, heads, past));
    }
    return status;
}

vkmha_status vkmha_schedule_presents(vkmha_planner *planner)
{
    const vkmha_layer_params *layer = planner->layer;
    const uint64_t heads = layer->num_kv_heads;
    if (!planner->plan->has_present) {
        return VKMHA_OK;
    }
    vkmha_tensors tensors;
    vkmha_tensors_describe(planner, &tensors);
    const vkmha_view key = vkmha_heads_view(VKMHA_RESOURCE_PRESENT_KEY, layer->cache_type, 0, heads,
                                            tensors.all_rows, layer->head_dim);
    const vkmha_view value = vkmha_heads_view(VKMHA_RESOURCE_PRESENT_VALUE, layer->cache_type, 0,
                                              heads, tensors.all_rows, layer->v_head_dim);
    vkmha_status status = place(planner, "present keys", &tensors.key, &key, layer->head_dim, 0, 0,
                                vkmha_paired_features(layer) > 0 ? VKMHA_PLACE_UNPAIR : 0,
                                rows_box(&tensors, heads, tensors.all_rows));
    if (status == VKMHA_OK) {
        status = place(planner, "present values", &tensors.value, &value, layer->v_head_dim, 0, 0,
                       0, rows_box(&tensors, heads, tensors.all_rows));
    }
    return status;
}

vkmha_status vkmha_schedule_result(vkmha_planner *planner)
{
    vkmha_tensors tensors;
    vkmha_tensors_describe(planner, &tensors);
    if (!tensors.is_output_moved) {
        return VKMHA_OK;
    }
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_view target = vkmha_output_view(planner);
    return place(planner, "results", &tensors.output, &target,
                 layer->v_head_dim, 0, 0, 0,
                 rows_box(&tensors, layer->num_heads, tensors.query_rows));
}
