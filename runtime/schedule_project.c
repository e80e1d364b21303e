/* Projections: runs of sections that share an input become dispatches of rows x packed columns. */
#include "schedule.h"

#include <inttypes.h>

/* One run of sections of one matrix, all read from one input. */
typedef struct vkmha_projection {
    vkmha_stage stage;
    const vkmha_variant *variant;
    vkmha_tile tile;
    const vkmha_packed_matrix *matrix;
    uint32_t first_section;
    uint32_t num_sections; /* 1..3 */
    vkmha_view input;
    vkmha_view outputs[3];
    uint64_t batches;
    uint64_t positions;
    uint32_t first_column; /* in the matrix; the kernel counts columns from here */
    uint32_t end_column;
    uint64_t cache_rows; /* segments in APPEND: rows of the cache, any of which may be written */
    uint64_t
        rotation[2]; /* of a segment: where its rows' positions begin; VKMHA_NOT_ROTATED: nowhere */
    uint32_t valid_columns; /* columns from here on are padding that has no place in the output */
} vkmha_projection;

/* A part of a projection: rows of batches first_batch.., positions first_row.., and columns. */
typedef struct vkmha_project_part {
    vkmha_box rows; /* heads are 1 */
    uint32_t first_column;
    uint32_t columns;
} vkmha_project_part;

typedef enum vkmha_project_cut {
    FITS = 0,
    CUT_BATCHES,
    CUT_ROWS,
    CUT_COLUMNS,
    TOO_LARGE,
} vkmha_project_cut;

/* The heads of section `index` that the part's columns touch, as a box of its output; false: none.
 */
static bool output_box(const vkmha_planner *planner, const vkmha_projection *projection,
                       uint32_t index, const vkmha_project_part *part, vkmha_box *box)
{
    const vkmha_section *section = &planner->packing->sections[projection->first_section + index];
    const uint32_t section_end = section->first_column + section->num_heads * section->pitch;
    const uint32_t part_end = part->first_column + part->columns;
    if (part_end <= section->first_column || part->first_column >= section_end) {
        return false;
    }
    const uint32_t first =
        part->first_column > section->first_column ? part->first_column - section->first_column : 0;
    const uint32_t end = (part_end < section_end ? part_end : section_end) - section->first_column;
    *box = part->rows;
    box->first_head = first / section->pitch;
    box->heads = (end + section->pitch - 1) / section->pitch - box->first_head;
    if ((projection->tile.constants.APPEND >> index & 1u) != 0) {
        box->first_row = 0;
        box->rows = projection->cache_rows;
    }
    return true;
}

static uint64_t part_work(const vkmha_projection *projection, const vkmha_project_part *part)
{
    return part->rows.batches * part->rows.rows * part->columns * projection->matrix->depth;
}

/* What has to be cut first, or FITS. */
static vkmha_project_cut judge(const vkmha_planner *planner, const vkmha_projection *projection,
                       const vkmha_project_part *part)
{
    const vkmha_limits *limits = planner->limits;
    const vkmha_tile *tile = &projection->tile;
    const bool can_cut_batches = part->rows.batches > 1;
    const bool can_cut_rows = part->rows.rows > tile->rows;
    const bool can_cut_columns = part->columns > tile->columns;
    const vkmha_project_cut cut_rows = can_cut_batches ? CUT_BATCHES : can_cut_rows ? CUT_ROWS : TOO_LARGE;
    const vkmha_project_cut cut_columns = can_cut_columns ? CUT_COLUMNS : TOO_LARGE;

    if (vkmha_box_bytes(planner, &projection->input, &part->rows) >
        limits->max_storage_range_bytes) {
        return cut_rows;
    }
    for (uint32_t i = 0; i < projection->num_sections; i++) {
        vkmha_box box;
        if (output_box(planner, projection, i, part, &box) &&
            vkmha_box_bytes(planner, &projection->outputs[i], &box) >
                limits->max_storage_range_bytes) {
            /* Heads that lie apart are what makes one batch's box large; else its rows are. */
            const bool heads_apart = box.heads > 1 && projection->outputs[i].head_stride >
                                                          projection->outputs[i].row_stride;
            return can_cut_batches ? CUT_BATCHES : heads_apart ? CUT_COLUMNS : cut_rows;
        }
    }
    if (tile->constants.APPEND != 0 &&
        !vkmha_sequences_fit(planner, part->rows.first_batch, part->rows.batches)) {
        return cut_rows;
    }
    const uint64_t rows = part->rows.batches * part->rows.rows;
    if ((rows + tile->rows - 1) / tile->rows > limits->max_groups[1]) {
        return cut_rows;
    }
    if ((part->columns + tile->columns - 1) / tile->columns > limits->max_groups[0]) {
        return cut_columns;
    }
    if (part_work(projection, part) > planner->max_work) {
        /* One workgroup's tile is the least that a dispatch can do. */
        return cut_rows != TOO_LARGE ? cut_rows : can_cut_columns ? CUT_COLUMNS : FITS;
    }
    return FITS;
}

static vkmha_project_segment segment_of(const vkmha_planner *planner,
                                        const vkmha_projection *projection, uint32_t index,
                                        const vkmha_box *box, uint32_t base)
{
    const vkmha_section *section = &planner->packing->sections[projection->first_section + index];
    const vkmha_view *view = &projection->outputs[index];
    return (vkmha_project_segment){
        .end =
            section->first_column + section->num_heads * section->pitch - projection->first_column,
        .pitch = section->pitch,
        /* The kernel counts heads from the section's first: modulo 2^32 the base makes up for it.
         */
        .base = base - (uint32_t)(box->first_head * view->head_stride),
        .batch_stride = (uint32_t)view->batch_stride,
        .head_stride = (uint32_t)view->head_stride,
        .row_stride = (uint32_t)view->row_stride,
    };
}

static vkmha_status emit_part(vkmha_planner *planner, const vkmha_projection *projection,
                              const vkmha_piece *piece, const vkmha_project_part *part)
{
    const vkmha_tile *tile = &projection->tile;
    const vkmha_packed_matrix *matrix = projection->matrix;
    const vkmha_piece *bias = &planner->packing->pieces[matrix->bias_piece];
    const uint64_t rows = part->rows.batches * part->rows.rows;
    vkmha_step step = {
        .stage = projection->stage,
        .variant = projection->variant,
        .constants = tile->constants,
        .groups = {(part->columns + tile->columns - 1) / tile->columns,
                   (uint32_t)((rows + tile->rows - 1) / tile->rows), 1},
        .work = part_work(projection, part),
        .loop_trips = tile->trips_base + tile->trips_per_unit * (matrix->depth / 4),
        .shared_bytes = tile->shared_bytes,
        .push_bytes = sizeof(vkmha_project_push),
    };
    vkmha_project_push *push = &step.push.project;
    *push = (vkmha_project_push){
        .rows = (uint32_t)rows,
        /* One batch may be cut in rows, and has them all as positions: see past_rows in project.glsl. */
        .positions = (uint32_t)(part->rows.batches == 1 ? projection->positions : part->rows.rows),
        .columns = part->columns,
        .first_column = part->first_column - projection->first_column,
        .valid_columns = projection->valid_columns,
        .depth = (uint32_t)projection->input.row_elements,
        .rotation = {VKMHA_NOT_ROTATED, VKMHA_NOT_ROTATED},
        .input_batch_stride = (uint32_t)projection->input.batch_stride,
        .input_row_stride = (uint32_t)projection->input.row_stride,
    };
    step.bindings[VKMHA_BIND_PROJECT_INPUT] =
        vkmha_box_window(planner, &projection->input, &part->rows, &push->input_base);

    uint64_t skip;
    const uint32_t weight_bytes = vkmha_type_bytes(planner->layer->weight_type);
    const uint64_t column_bytes = (uint64_t)matrix->depth * weight_bytes;
    vkmha_range *weight = &step.bindings[VKMHA_BIND_PROJECT_WEIGHT];
    *weight = vkmha_aligned_window(planner->limits, VKMHA_RESOURCE_WEIGHTS,
                                   piece->offset +
                                       (part->first_column - piece->first_column) * column_bytes,
                                   part->columns * column_bytes, &skip);
    weight->block = piece->block;
    push->weight_base = (uint32_t)(skip / weight_bytes);
    vkmha_range *bias_range = &step.bindings[VKMHA_BIND_PROJECT_BIAS];
    *bias_range = vkmha_aligned_window(planner->limits, VKMHA_RESOURCE_WEIGHTS,
                                       bias->offset + (uint64_t)part->first_column * 4,
                                       (uint64_t)part->columns * 4, &skip);
    bias_range->block = bias->block;
    push->bias_base = (uint32_t)(skip / 4);

    /* The kernel names these, and reaches them only where it rotates or appends. */
    step.bindings[VKMHA_BIND_ROTATION] = step.bindings[VKMHA_BIND_PROJECT_INPUT];
    step.bindings[VKMHA_BIND_POSITIONS] = step.bindings[VKMHA_BIND_PROJECT_INPUT];
    step.bindings[VKMHA_BIND_SEQUENCES] = vkmha_no_array();
    if (tile->constants.APPEND != 0) {
        step.bindings[VKMHA_BIND_SEQUENCES] = vkmha_sequences_window(
            planner, part->rows.first_batch, part->rows.batches, &push->sequences_base);
    }
    if (tile->constants.ROTATE != 0) {
        step.bindings[VKMHA_BIND_ROTATION] =
            vkmha_tables_window(planner, planner->packing->rotation_piece);
        step.bindings[VKMHA_BIND_POSITIONS] = vkmha_positions_window(planner);
    }
    for (uint32_t i = 0; i < 2; i++) {
        if (projection->rotation[i] != VKMHA_NOT_ROTATED) {
            /* Rows are cut only within one batch, so that they follow each other. */
            push->rotation[i] =
                (uint32_t)(projection->rotation[i] +
                           part->rows.first_batch * projection->positions + part->rows.first_row);
        }
    }

    const vkmha_range *any_output = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        vkmha_box box = part->rows;
        vkmha_range *range = &step.bindings[VKMHA_BIND_PROJECT_OUTPUT + i];
        if (i < projection->num_sections) {
            uint32_t base = 0;
            box.first_head = 0;
            if (output_box(planner, projection, i, part, &box)) {
                *range = vkmha_box_window(planner, &projection->outputs[i], &box, &base);
                range->is_written = true;
                any_output = range;
            }
            if ((tile->constants.APPEND >> i & 1u) != 0) {
                base += (uint32_t)(part->rows.first_row * projection->outputs[i].row_stride);
            }
            push->segments[i] = segment_of(planner, projection, i, &box, base);
        } else {
            push->segments[i] = push->segments[i - 1];
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        vkmha_range *range = &step.bindings[VKMHA_BIND_PROJECT_OUTPUT + i];
        if (range->resource == VKMHA_RESOURCE_NONE && any_output) {
            *range = *any_output; /* the kernel names the binding but does not reach it */
        }
    }
    return vkmha_planner_append(planner, &step);
}

static vkmha_status cut_part(vkmha_planner *planner, const vkmha_projection *projection,
                             const vkmha_piece *piece, const vkmha_project_part *part)
{
    vkmha_project_part first = *part;
    vkmha_project_part second = *part;
    switch (judge(planner, projection, part)) {
    case FITS:
        return emit_part(planner, projection, piece, part);
    case CUT_BATCHES:
        vkmha_box_halve(&part->rows, VKMHA_CUT_BATCHES, 1, &first.rows, &second.rows);
        break;
    case CUT_ROWS:
        vkmha_box_halve(&part->rows, VKMHA_CUT_ROWS, projection->tile.rows, &first.rows,
                        &second.rows);
        break;
    case CUT_COLUMNS:
        /* Below a tile only where several heads of it do not fit one window. */
        first.columns =
            vkmha_round_up(part->columns / 2,
                           part->columns > projection->tile.columns ? projection->tile.columns : 4);
        second.first_column += first.columns;
        second.columns -= first.columns;
        break;
    case TOO_LARGE:
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "a projection with %u features does not fit this device's bindings of "
                          "%" PRIu64 " bytes and groups of %u, %u",
                          projection->matrix->depth, planner->limits->max_storage_range_bytes,
                          planner->limits->max_groups[0], planner->limits->max_groups[1]);
    }
    vkmha_status status = cut_part(planner, projection, piece, &first);
    return status == VKMHA_OK ? cut_part(planner, projection, piece, &second) : status;
}

static uint32_t type_bits(const vkmha_planner *planner, const vkmha_projection *projection)
{
    uint32_t bits =
        VKMHA_TYPE_BITS(VKMHA_BIND_PROJECT_INPUT, (uint32_t)projection->input.type) |
        VKMHA_TYPE_BITS(VKMHA_BIND_PROJECT_WEIGHT, (uint32_t)planner->layer->weight_type);
    for (uint32_t i = 0; i < projection->num_sections; i++) {
        bits |= VKMHA_TYPE_BITS(VKMHA_BIND_PROJECT_OUTPUT + i, (uint32_t)projection->outputs[i].type);
    }
    return bits;
}

/* With a cache, keys and values go behind those that it holds. */
static uint32_t append_bits(const vkmha_planner *planner, const vkmha_projection *projection)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; planner->plan->cache_capacity > 0 && i < projection->num_sections; i++) {
        const uint32_t section = projection->first_section + i;
        const bool is_cached = section == VKMHA_SECTION_KEY || section == VKMHA_SECTION_VALUE;
        bits |= is_cached ? 1u << i : 0;
    }
    return bits;
}

static vkmha_status schedule_projection(vkmha_planner *planner, vkmha_projection *projection)
{
    vkmha_status status =
        vkmha_variant_pick(VKMHA_KERNEL_PROJECT, planner->plan->project_kernel, planner->limits,
                           planner->layer->head_dim, planner->layer->v_head_dim,
                           &projection->variant, &projection->tile, planner->error);
    if (status != VKMHA_OK) {
        return status;
    }
    const vkmha_packed_matrix *matrix = projection->matrix;
    const uint64_t trips =
        projection->tile.trips_base + projection->tile.trips_per_unit * (matrix->depth / 4);
    if (planner->limits->max_loop_trips != 0 && trips > planner->limits->max_loop_trips) {
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "a projection with %u input features needs %" PRIu64
                          " loop trips, this driver ends loops after %" PRIu64,
                          matrix->depth, trips, planner->limits->max_loop_trips);
    }
    vkmha_constants *constants = &projection->tile.constants;
    constants->VECTOR_A = vkmha_view_is_vector(&projection->input);
    constants->VECTOR_B = vkmha_view_is_vector(&projection->outputs[0]);
    constants->ROTATE =
        projection->rotation[0] != VKMHA_NOT_ROTATED || projection->rotation[1] != VKMHA_NOT_ROTATED
            ? planner->layer->rope.dim
            : 0;
    constants->APPEND = append_bits(planner, projection);
    constants->TYPES = type_bits(planner, projection);
    for (uint32_t i = 0; i < matrix->num_pieces && status == VKMHA_OK; i++) {
        const vkmha_piece *piece = &planner->packing->pieces[matrix->first_piece + i];
        const uint32_t piece_end = piece->first_column + piece->columns;
        const uint32_t begin = piece->first_column > projection->first_column
                                   ? piece->first_column
                                   : projection->first_column;
        const uint32_t end =
            piece_end < projection->end_column ? piece_end : projection->end_column;
        if (begin < end) {
            const vkmha_project_part part = {
                .rows = {.batches = projection->batches, .heads = 1, .rows = projection->positions},
                .first_column = begin,
                .columns = end - begin,
            };
            status = cut_part(planner, projection, piece, &part);
        }
    }
    if (projection->stage == VKMHA_STAGE_PROJECT) {
        vkmha_chains *chains = &planner->schedule->chains;
        const uint64_t chain = (uint64_t)matrix->depth + 1;
        chains->project = chain > chains->project ? chain : chains->project;
    }
    return status;
}

static bool same_view(const vkmha_view *a, const vkmha_view *b)
{
    return a->resource == b->resource && a->offset == b->offset &&
           a->batch_stride == b->batch_stride && a->row_stride == b->row_stride &&
           a->row_elements == b->row_elements;
}

vkmha_status vkmha_schedule_projections(vkmha_planner *planner)
{
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_packing *packing = planner->packing;
    const vkmha_resource key = plan->key_is_query ? VKMHA_RESOURCE_QUERY : VKMHA_RESOURCE_KEY;
    const vkmha_resource value = plan->value_is_key ? key : VKMHA_RESOURCE_VALUE;
    vkmha_tensors tensors;
    vkmha_tensors_describe(planner, &tensors);
    const vkmha_view inputs[3] = {
        vkmha_strided_view(VKMHA_RESOURCE_QUERY, plan->query_type, &plan->query_strides,
                           layer->embed_dim),
        vkmha_strided_view(key, plan->key_type, &plan->key_strides, layer->key_dim),
        vkmha_strided_view(value, plan->value_type, &plan->value_strides, layer->value_dim),
    };
    const vkmha_view *outputs[3] = {&tensors.query, &tensors.new_key, &tensors.new_value};
    const uint64_t rows[3] = {tensors.query_rows, tensors.new_rows, tensors.new_rows};
    const bool is_rotated = layer->rope.style != VKMHA_ROPE_NONE;
    const uint64_t rotation[3] = {is_rotated ? 0 : VKMHA_NOT_ROTATED,
                                  is_rotated ? planner->sizes.query_rows : VKMHA_NOT_ROTATED,
                                  VKMHA_NOT_ROTATED};

    vkmha_status status = VKMHA_OK;
    uint32_t next = 0;
    while (next < 3 && status == VKMHA_OK) {
        const uint32_t first = next;
        const vkmha_section *section = &packing->sections[first];
        vkmha_projection projection = {
            .stage = VKMHA_STAGE_PROJECT,
            .matrix = &packing->matrices[section->matrix],
            .first_section = first,
            .first_column = section->first_column,
            .batches = tensors.batches,
            .positions = rows[first],
            .input = inputs[first],
            .cache_rows = tensors.all_rows,
            .rotation = {VKMHA_NOT_ROTATED, VKMHA_NOT_ROTATED},
        };
        do {
            const vkmha_section *joined = &packing->sections[next];
            if (next - first < 2) {
                projection.rotation[next - first] = rotation[next];
            }
            projection.outputs[projection.num_sections++] = *outputs[next];
            projection.end_column = joined->first_column + joined->num_heads * joined->pitch;
            next++;
        } while (next < 3 && rows[next] == rows[first] &&
                 same_view(&inputs[next], &inputs[first]) &&
                 packing->sections[next].matrix == section->matrix);
        projection.valid_columns = projection.end_column - projection.first_column;
        if (projection.positions > 0) {
            status = schedule_projection(planner, &projection);
        }
    }
    return status;
}

vkmha_status vkmha_schedule_output(vkmha_planner *planner)
{
    const vkmha_section *section = &planner->packing->sections[VKMHA_SECTION_OUTPUT];
    const vkmha_packed_matrix *matrix = &planner->packing->matrices[section->matrix];
    vkmha_tensors tensors;
    vkmha_tensors_describe(planner, &tensors);
    vkmha_projection projection = {
        .stage = VKMHA_STAGE_OUTPUT,
        .matrix = matrix,
        .first_section = VKMHA_SECTION_OUTPUT,
        .num_sections = 1,
        .batches = tensors.batches,
        .positions = tensors.query_rows,
        .input = tensors.output,
        .outputs = {vkmha_output_view(planner)},
        .rotation = {VKMHA_NOT_ROTATED, VKMHA_NOT_ROTATED},
        .end_column = section->pitch,
        .valid_columns = section->dim,
    };
    projection.input.row_elements = matrix->depth; /* of all heads */
    planner->schedule->chains.output = (uint64_t)matrix->depth + 1;
    return schedule_projection(planner, &projection);
}
