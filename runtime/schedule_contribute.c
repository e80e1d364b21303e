/* What each head adds to the output, as norms and as products with a gradient: dispatches over boxes
 * of rows and heads for each range of W_O's columns. */
#include "schedule_attention.h"

#include <inttypes.h>

typedef struct vkmha_contribution {
    const vkmha_variant *variant;
    vkmha_tile tile;
    vkmha_view input;    /* attention's result, heads side by side */
    vkmha_view gradient; /* of the output: no heads */
    vkmha_view norms;    /* [batch, heads, query_len], as the next */
    vkmha_view products;
    /* Columns of this range, all in one piece of W_O. */
    const vkmha_piece *piece;
    uint32_t first_column;
    uint32_t columns;
    uint32_t flags;
} vkmha_contribution;

/* Rows of the input: all of them where packed. */
static vkmha_box input_box(const vkmha_planner *planner, const vkmha_box *box)
{
    return vkmha_attention_query_box(planner, box);
}

static vkmha_box gradient_box(const vkmha_planner *planner, const vkmha_box *box)
{
    vkmha_box rows = input_box(planner, box);
    rows.first_head = 0;
    rows.heads = 1;
    return rows;
}

static uint64_t box_work(const vkmha_planner *planner, const vkmha_contribution *contribution,
                         const vkmha_box *box)
{
    return box->batches * box->heads * box->rows * contribution->columns *
           planner->layer->v_head_dim;
}

static vkmha_cut judge(const vkmha_planner *planner, const vkmha_contribution *contribution,
                       const vkmha_box *box)
{
    const vkmha_limits *limits = planner->limits;
    const uint32_t tile_rows = contribution->tile.rows;
    const vkmha_cut next = vkmha_box_next_cut(box, tile_rows);
    const vkmha_box inputs = input_box(planner, box);
    const vkmha_box gradients = gradient_box(planner, box);
    const struct {
        const vkmha_view *view;
        const vkmha_box *box;
        bool is_used;
    } windows[] = {
        {&contribution->input, &inputs, true},
        {&contribution->gradient, &gradients, (contribution->flags & VKMHA_FLAG_PRODUCTS) != 0},
        {&contribution->norms, box, (contribution->flags & VKMHA_FLAG_NORMS) != 0},
        {&contribution->products, box, (contribution->flags & VKMHA_FLAG_PRODUCTS) != 0},
    };
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        if (windows[i].is_used && vkmha_box_bytes(planner, windows[i].view, windows[i].box) >
                                      limits->max_storage_range_bytes) {
            return next;
        }
    }
    const bool is_packed = planner->plan->is_packed;
    if ((is_packed && !vkmha_sequences_fit(planner, box->first_batch, box->batches)) ||
        box->batches > limits->max_groups[2]) {
        return VKMHA_CUT_BATCHES;
    }
    if (box->heads > limits->max_groups[1]) {
        return VKMHA_CUT_HEADS;
    }
    if ((box->rows + tile_rows - 1) / tile_rows > limits->max_groups[0]) {
        return VKMHA_CUT_ROWS;
    }
    /* One workgroup's tile is the least that a dispatch can do. */
    const bool is_long = box_work(planner, contribution, box) > planner->max_work;
    return is_long && next != VKMHA_CUT_IMPOSSIBLE ? next : VKMHA_CUT_NONE;
}

static vkmha_status emit_box(vkmha_planner *planner, const vkmha_contribution *contribution,
                             const vkmha_box *box)
{
    const vkmha_tile *tile = &contribution->tile;
    const vkmha_piece *piece = contribution->piece;
    const vkmha_section *section = &planner->packing->sections[VKMHA_SECTION_OUTPUT];
    const uint32_t depth = planner->packing->matrices[section->matrix].depth;
    const vkmha_box inputs = input_box(planner, box);
    const vkmha_box gradients = gradient_box(planner, box);
    const uint32_t vectors = section->input_pitch / 4;
    vkmha_step step = {
        .stage = VKMHA_STAGE_OUTPUT,
        .variant = contribution->variant,
        .constants = tile->constants,
        .groups = {(uint32_t)((box->rows + tile->rows - 1) / tile->rows), (uint32_t)box->heads,
                   (uint32_t)box->batches},
        .work = box_work(planner, contribution, box),
        .loop_trips = tile->trips_base + (1 + vectors) * ((uint64_t)contribution->columns /
                                                              tile->constants.WORKGROUP +
                                                          1),
        .shared_bytes = tile->shared_bytes,
        .push_bytes = sizeof(vkmha_contribute_push),
    };
    vkmha_contribute_push *push = &step.push.contribute;
    *push = (vkmha_contribute_push){
        .first_query = (uint32_t)box->first_row,
        .query_count = (uint32_t)box->rows,
        .total_queries = (uint32_t)planner->plan->total_queries,
        .columns = contribution->columns,
        .depth_vectors = depth / 4,
        .input_vectors = vectors,
        .head_offset = (uint32_t)box->first_head * vectors,
        .flags = contribution->flags | (planner->plan->is_packed ? VKMHA_FLAG_PACKED : 0),
    };
    vkmha_range *bindings = step.bindings;
    uint32_t base = 0;
    bindings[VKMHA_BIND_CONTRIBUTE_INPUT] =
        vkmha_box_window(planner, &contribution->input, &inputs, &base);
    push->source = vkmha_view_push(&contribution->input, base);

    uint64_t skip;
    const uint32_t weight_bytes = vkmha_type_bytes(planner->layer->weight_type);
    const uint64_t column_bytes = (uint64_t)depth * weight_bytes;
    bindings[VKMHA_BIND_CONTRIBUTE_WEIGHT] = vkmha_aligned_window(
        planner->limits, VKMHA_RESOURCE_WEIGHTS,
        piece->offset + (contribution->first_column - piece->first_column) * column_bytes,
        contribution->columns * column_bytes, &skip);
    bindings[VKMHA_BIND_CONTRIBUTE_WEIGHT].block = piece->block;
    push->weight_base = (uint32_t)(skip / weight_bytes);

    /* The kernel names all: those that it does not reach get a window that it reads, or writes, as it
     * would theirs. */
    bindings[VKMHA_BIND_CONTRIBUTE_GRADIENT] = bindings[VKMHA_BIND_CONTRIBUTE_INPUT];
    push->target = vkmha_view_push(&contribution->norms, 0);
    if ((contribution->flags & VKMHA_FLAG_NORMS) != 0) {
        bindings[VKMHA_BIND_CONTRIBUTE_NORMS] =
            vkmha_box_window(planner, &contribution->norms, box, &push->target.base);
        bindings[VKMHA_BIND_CONTRIBUTE_NORMS].is_written = true;
    }
    if ((contribution->flags & VKMHA_FLAG_PRODUCTS) != 0) {
        bindings[VKMHA_BIND_CONTRIBUTE_PRODUCTS] =
            vkmha_box_window(planner, &contribution->products, box, &push->products_base);
        bindings[VKMHA_BIND_CONTRIBUTE_PRODUCTS].is_written = true;
        bindings[VKMHA_BIND_CONTRIBUTE_GRADIENT] =
            vkmha_box_window(planner, &contribution->gradient, &gradients, &base);
        push->gradient = vkmha_view_push(&contribution->gradient, base);
    }
    if ((contribution->flags & VKMHA_FLAG_NORMS) == 0) {
        bindings[VKMHA_BIND_CONTRIBUTE_NORMS] = bindings[VKMHA_BIND_CONTRIBUTE_PRODUCTS];
    }
    if ((contribution->flags & VKMHA_FLAG_PRODUCTS) == 0) {
        bindings[VKMHA_BIND_CONTRIBUTE_PRODUCTS] = bindings[VKMHA_BIND_CONTRIBUTE_NORMS];
    }
    push->gradient.head_stride = 0;
    bindings[VKMHA_BIND_SEQUENCES] =
        planner->plan->is_packed
            ? vkmha_sequences_window(planner, box->first_batch, box->batches, &push->sequences_base)
            : vkmha_no_array();
    return vkmha_planner_append(planner, &step);
}

static vkmha_status cut_box(vkmha_planner *planner, const vkmha_contribution *contribution,
                            const vkmha_box *box)
{
    const vkmha_cut cut = judge(planner, contribution, box);
    if (cut == VKMHA_CUT_NONE) {
        return emit_box(planner, contribution, box);
    }
    if (cut == VKMHA_CUT_IMPOSSIBLE) {
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "has_contributions or has_gate_gradients: a row of attention or of the "
                          "gradient does not fit this device's bindings of %" PRIu64 " bytes",
                          planner->limits->max_storage_range_bytes);
    }
    vkmha_box first;
    vkmha_box second;
    vkmha_box_halve(box, cut, contribution->tile.rows, &first, &second);
    vkmha_status status = cut_box(planner, contribution, &first);
    return status == VKMHA_OK ? cut_box(planner, contribution, &second) : status;
}

/* Columns that one dispatch may take: those that the driver's loops allow. */
static uint32_t most_columns(const vkmha_planner *planner, const vkmha_contribution *contribution)
{
    const uint64_t limit = planner->limits->max_loop_trips;
    const vkmha_tile *tile = &contribution->tile;
    if (limit == 0) {
        return UINT32_MAX;
    }
    /* v_head_dim is at most 256: a workgroup's columns always fit. */
    const uint64_t passes = (limit - tile->trips_base) / tile->trips_per_unit - 1;
    const uint64_t columns = passes * tile->constants.WORKGROUP;
    return columns < UINT32_MAX ? (uint32_t)columns : UINT32_MAX;
}

vkmha_status vkmha_schedule_contributions(vkmha_planner *planner)
{
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_plan_params *plan = planner->plan;
    const uint32_t wanted = (plan->has_contributions ? VKMHA_FLAG_NORMS : 0) |
                            (plan->has_gate_gradients ? VKMHA_FLAG_PRODUCTS : 0);
    if (wanted == 0) {
        return VKMHA_OK;
    }
    const vkmha_section *section = &planner->packing->sections[VKMHA_SECTION_OUTPUT];
    const vkmha_packed_matrix *matrix = &planner->packing->matrices[section->matrix];
    vkmha_tensors tensors;
    vkmha_tensors_describe(planner, &tensors);
    const uint64_t rows = plan->is_packed ? 0 : plan->query_len;
    vkmha_contribution contribution = {
        .input = tensors.output,
        .gradient = {.resource = VKMHA_RESOURCE_OUTPUT_GRADIENT,
                     .element_bytes = 4,
                     .batch_stride = rows * section->dim,
                     .row_stride = section->dim,
                     .row_elements = section->dim},
        .norms = vkmha_heads_view(VKMHA_RESOURCE_CONTRIBUTIONS, VKMHA_TYPE_F32, 0, layer->num_heads,
                                  plan->query_len, 1),
        .products = vkmha_heads_view(VKMHA_RESOURCE_GATE_GRADIENTS, VKMHA_TYPE_F32, 0, layer->num_heads,
                                     plan->query_len, 1),
    };
    vkmha_status status = vkmha_variant_pick(
        VKMHA_KERNEL_CONTRIBUTE, NULL, planner->limits, layer->head_dim, layer->v_head_dim,
        &contribution.variant, &contribution.tile, planner->error);
    contribution.tile.constants.TYPES =
        VKMHA_TYPE_BITS(VKMHA_BIND_CONTRIBUTE_WEIGHT, (uint32_t)layer->weight_type);
    const vkmha_box all = {0, plan->batch_size, 0, layer->num_heads, 0, plan->query_len};
    for (uint32_t i = 0; i < matrix->num_pieces && status == VKMHA_OK; i++) {
        contribution.piece = &planner->packing->pieces[matrix->first_piece + i];
        const uint32_t piece_end = contribution.piece->first_column + contribution.piece->columns;
        const uint32_t end = piece_end < section->dim ? piece_end : section->dim;
        const uint32_t most = most_columns(planner, &contribution);
        for (uint32_t next = contribution.piece->first_column; next < end && status == VKMHA_OK;
             next += contribution.columns) {
            contribution.first_column = next;
            contribution.columns = end - next < most ? end - next : most;
            contribution.flags = wanted | (next == 0 ? VKMHA_FLAG_FIRST : 0) |
                                 (next + contribution.columns == section->dim ? VKMHA_FLAG_LAST : 0);
            contribution.gradient.offset = (uint64_t)next * 4;
            contribution.gradient.row_elements = contribution.columns;
            status = cut_box(planner, &contribution, &all);
        }
    }
    return status;
}
