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
    uint32_t valid_columns; /* columns from here on are padding that has no place in the output */
} vkmha_projection;

/* A part of a projection: rows of batches first_batch.., positions first_row.., and columns. */
typedef struct vkmha_project_part {
    vkmha_box rows; /* heads are 1 */
    uint32_t first_column;
    uint32_t columns;
} vkmha_project_part;

typedef enum vkmha_cut {
    FITS = 0,
    CUT_BATCHES,
    CUT_ROWS,
    CUT_COLUMNS,
    TOO_LARGE,
} vkmha_cut;

/* The heads of section `index` that the part's columns touch, as a box of its output; false: none. */
static bool output_box(const vkmha_planner *planner, const vkmha_projection *projection, uint32_t index,
                       const vkmha_project_part *part, vkmha_box *box)
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
    return true;
}

static uint64_t part_work(const vkmha_projection *projection, const vkmha_project_part *part)
{
    return part->rows.batches * part->rows.rows * part->columns * projection->matrix->depth;
}

/* What has to be cut first, or FITS. */
static vkmha_cut judge(const vkmha_planner *planner, const vkmha_projection *projection,
                       const vkmha_project_part *part)
{
    const vkmha_limits *limits = planner->limits;
    const vkmha_tile *tile = &projection->tile;
    const bool can_cut_batches = part->rows.batches > 1;
    const bool can_cut_rows = part->rows.rows > tile->rows;
    const bool can_cut_columns = part->columns > tile->columns;
    const vkmha_cut cut_rows = can_cut_batches ? CUT_BATCHES : can_cut_rows ? CUT_ROWS : TOO_LARGE;
    const vkmha_cut cut_columns = can_cut_columns ? CUT_COLUMNS : TOO_LARGE;

    if (vkmha_box_bytes(planner, &projection->input, &part->rows) > limits->max_storage_range_bytes) {
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
        .end = section->first_column + section->num_heads * section->pitch - projection->first_column,
        .pitch = section->pitch,
        /* The kernel counts heads from the section's first: modulo 2^32 the base makes up for it. */
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
        .positions = (uint32_t)part->rows.rows,
        .columns = part->columns,
        .first_column = part->first_column - projection->first_column,
        .valid_columns = projection->valid_columns,
        .depth = (uint32_t)projection->input.row_elements,
        .depth_vectors = matrix->depth / 4,
        .input_batch_stride = (uint32_t)projection->input.batch_stride,
        .input_row_stride = (uint32_t)projection->input.row_stride,
    };
    step.bindings[VKMHA_BIND_PROJECT_INPUT] =
        vkmha_box_window(planner, &projection->input, &part->rows, &push->input_base);

    uint64_t skip;
    const uint64_t column_bytes = (uint64_t)matrix->depth * 4;
    vkmha_range *weight = &step.bindings[VKMHA_BIND_PROJECT_WEIGHT];
    *weight = vkmha_aligned_window(
        planner->limits, VKMHA_RESOURCE_WEIGHTS,
        piece->offset + (part->first_column - piece->first_column) * column_bytes,
        part->columns * column_bytes, &skip);
    weight->block = piece->block;
    push->weight_base = (uint32_t)(skip / 4);
    vkmha_range *bias_range = &step.bindings[VKMHA_BIND_PROJECT_BIAS];
    *bias_range = vkmha_aligned_window(planner->limits, VKMHA_RESOURCE_WEIGHTS,
                                       bias->offset + (uint64_t)part->first_column * 4,
                                       (uint64_t)part->columns * 4, &skip);
    bias_range->block = bias->block;
    push->bias_base = (uint32_t)(skip / 4);

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
        first.rows.batches = part->rows.batches / 2;
        second.rows.first_batch += first.rows.batches;
        second.rows.batches -= first.rows.batches;
        break;
    case CUT_ROWS:
        first.rows.rows = (part->rows.rows / 2 + projection->tile.rows - 1) / projection->tile.rows *
                          projection->tile.rows;
        second.rows.first_row += first.rows.rows;
        second.rows.rows -= first.rows.rows;
        break;
    case CUT_COLUMNS:
        /* Below a tile only where several heads of it do not fit one window. */
        first.columns = vkmha_round_up(
            part->columns / 2, part->columns > projection->tile.columns ? projection->tile.columns : 4);
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

static vkmha_status schedule_projection(vkmha_planner *planner, vkmha_projection *projection)
{
    vkmha_status status = vkmha_variant_pick(
        VKMHA_KERNEL_PROJECT, planner->plan->project_kernel, planner->limits,
        planner->layer->head_dim, planner->layer->v_head_dim, &projection->variant,
        &projection->tile, planner->error);
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
    projection->tile.constants.VECTOR_A = projection->input.row_stride % 4 == 0;
    projection->tile.constants.VECTOR_B = projection->outputs[0].row_stride % 4 == 0;
    for (uint32_t i = 0; i < matrix->num_pieces && status == VKMHA_OK; i++) {
        const vkmha_piece *piece = &planner->packing->pieces[matrix->first_piece + i];
        const uint32_t piece_end = piece->first_column + piece->columns;
        const uint32_t begin = piece->first_column > projection->first_column
                                   ? piece->first_column
                                   : projection->first_column;
        const uint32_t end = piece_end < projection->end_column ? piece_end : projection->end_column;
        if (begin < end) {
            const vkmha_project_part part = {
                .rows = {.batches = projection->batches,
                         .heads = 1,
                         .rows = projection->positions},
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

vkmha_status vkmha_schedule_projections(vkmha_planner *planner)
{
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_schedule *schedule = planner->schedule;
    const vkmha_packing *packing = planner->packing;
    vkmha_resource resources[3] = {VKMHA_RESOURCE_QUERY, VKMHA_RESOURCE_KEY, VKMHA_RESOURCE_VALUE};
    if (plan->key_is_query) {
        resources[1] = resources[0];
    }
    if (plan->value_is_key) {
        resources[2] = resources[1];
    }
    const uint64_t lengths[3] = {plan->query_len, plan->key_len, plan->key_len};
    const vkmha_region *regions[3] = {&schedule->query, &schedule->key, &schedule->value};

    vkmha_status status = VKMHA_OK;
    uint32_t next = 0;
    while (next < 3 && status == VKMHA_OK) {
        const vkmha_section *section = &packing->sections[next];
        vkmha_projection projection = {
            .stage = VKMHA_STAGE_PROJECT,
            .matrix = &packing->matrices[section->matrix],
            .first_section = next,
            .first_column = section->first_column,
            .batches = plan->batch_size,
            .positions = lengths[next],
            .input =
                {
                    .resource = resources[next],
                    .element_bytes = 4,
                    .batch_stride = lengths[next] * section->input_dim,
                    .row_stride = section->input_dim,
                    .row_elements = section->input_dim,
                },
        };
        do {
            const vkmha_section *joined = &packing->sections[next];
            projection.outputs[projection.num_sections++] = (vkmha_view){
                .resource = VKMHA_RESOURCE_WORKSPACE,
                .offset = regions[next]->offset,
                .element_bytes = 4,
                .batch_stride = joined->num_heads * lengths[next] * joined->pitch,
                .head_stride = lengths[next] * joined->pitch,
                .row_stride = joined->pitch,
                .row_elements = joined->pitch,
            };
            projection.end_column = joined->first_column + joined->num_heads * joined->pitch;
            next++;
        } while (next < 3 && resources[next] == projection.input.resource &&
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
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_section *section = &planner->packing->sections[VKMHA_SECTION_OUTPUT];
    const vkmha_packed_matrix *matrix = &planner->packing->matrices[section->matrix];
    vkmha_projection projection = {
        .stage = VKMHA_STAGE_OUTPUT,
        .matrix = matrix,
        .first_section = VKMHA_SECTION_OUTPUT,
        .num_sections = 1,
        .batches = plan->batch_size,
        .positions = plan->query_len,
        .input =
            {
                .resource = VKMHA_RESOURCE_WORKSPACE,
                .offset = planner->schedule->attention.offset,
                .element_bytes = 4,
                .batch_stride = plan->query_len * matrix->depth,
                .row_stride = matrix->depth,
                .row_elements = matrix->depth,
            },
        .outputs = {{
            .resource = VKMHA_RESOURCE_OUTPUT,
            .element_bytes = 4,
            .batch_stride = plan->query_len * section->dim,
            .head_stride = 0,
            .row_stride = section->dim,
            .row_elements = section->dim,
        }},
        .end_column = section->pitch,
        .valid_columns = section->dim,
    };
    planner->schedule->chains.output = (uint64_t)matrix->depth + 1;
    return schedule_projection(planner, &projection);
}
