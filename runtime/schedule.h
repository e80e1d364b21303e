/*
 * The planner: (limits and features, layer, shape) -> an ordered list of steps. Pure: no Vulkan
 * call, no device. Everything that a limit restricts is decided here and in variants.c.
 */
#ifndef VKMHA_RUNTIME_SCHEDULE_H
#define VKMHA_RUNTIME_SCHEDULE_H

#include "convert.h"
#include "packing.h"
#include "params.h"
#include "variants.h"

/* What a binding of a step points into. */
typedef enum vkmha_resource {
    VKMHA_RESOURCE_NONE =
        0, /* a binding that the step's kernel does not declare: nothing is bound */
    VKMHA_RESOURCE_QUERY,
    VKMHA_RESOURCE_KEY,
    VKMHA_RESOURCE_VALUE,
    VKMHA_RESOURCE_MASK,
    VKMHA_RESOURCE_ATTEND_KEYS,
    VKMHA_RESOURCE_SEQUENCES,
    VKMHA_RESOURCE_POSITIONS,
    VKMHA_RESOURCE_GATES,
    VKMHA_RESOURCE_PAST_KEY,
    VKMHA_RESOURCE_PAST_VALUE,
    VKMHA_RESOURCE_CACHE_KEY,
    VKMHA_RESOURCE_CACHE_VALUE,
    VKMHA_RESOURCE_PRESENT_KEY,
    VKMHA_RESOURCE_PRESENT_VALUE,
    VKMHA_RESOURCE_OUTPUT_GRADIENT,
    VKMHA_RESOURCE_LSE,
    VKMHA_RESOURCE_TOLD_WEIGHTS,
    VKMHA_RESOURCE_MEAN_WEIGHTS,
    VKMHA_RESOURCE_SCORES,
    VKMHA_RESOURCE_STATISTICS,
    VKMHA_RESOURCE_KEY_MASS,
    VKMHA_RESOURCE_CONTRIBUTIONS,
    VKMHA_RESOURCE_GATE_GRADIENTS,
    VKMHA_RESOURCE_OUTPUT,
    VKMHA_RESOURCE_WORKSPACE,
    VKMHA_RESOURCE_WEIGHTS,      /* `block` of the layer */
    VKMHA_RESOURCE_OPTIONS,      /* the plan's */
    VKMHA_RESOURCE_NULL_UNIFORM, /* the device's, where a plan has no such array */
} vkmha_resource;

/* A window on a resource: exact bytes from an aligned offset. */
typedef struct vkmha_range {
    vkmha_resource resource;
    uint32_t block;
    uint64_t offset;
    uint64_t bytes;
    bool is_written;
} vkmha_range;

typedef struct vkmha_step {
    vkmha_stage stage;
    const vkmha_variant *variant;
    vkmha_constants constants;
    vkmha_range bindings[VKMHA_NUM_BINDINGS];
    uint32_t set;       /* steps with the same bindings share a descriptor set */
    bool needs_barrier; /* its ranges conflict with those of steps since the last barrier */
    uint32_t groups[3];
    uint64_t work; /* multiply-adds */
    uint64_t loop_trips;
    uint32_t shared_bytes;
    uint32_t push_bytes;
    union {
        vkmha_project_push project;
        vkmha_attention_push attention;
        vkmha_place_push place;
        vkmha_contribute_push contribute;
    } push;
} vkmha_step;

/* A tensor in head layout inside the workspace. */
typedef struct vkmha_region {
    uint64_t offset; /* in bytes */
    uint64_t bytes;
} vkmha_region;

/* What the kernels read of an options block in memory: whole vectors. */
enum { VKMHA_OPTIONS_BYTES = (sizeof(vkmha_attention_options) + 15) / 16 * 16 };

typedef struct vkmha_schedule {
    vkmha_step *steps;
    uint32_t num_steps;
    uint32_t capacity;
    uint32_t num_sets;
    uint64_t workspace_bytes;
    /* [batch, heads, positions, pitch] each; attention: [batch, query, heads * pitch]. 0 bytes: not
     * there. Keys and values hold the past ones too, in vkmha_kept_type; they may be a cache's
     * instead. */
    vkmha_region query;
    vkmha_region key;
    vkmha_region value;
    vkmha_region attention;
    vkmha_region rows; /* what attention leaves of each row, where something is told of it */
    vkmha_region
        state; /* one dispatch's running maxima and sums, and with split keys their outputs */
    vkmha_attention_options options;
    uint64_t tiles;
    uint64_t all_tiles;
    vkmha_chains chains;
} vkmha_schedule;

/*
 * Plans checked params. `packing` is vkmha_packing_init's for the same limits and layer.
 * Errors: UNSUPPORTED (which tensor or number, and the limit), INVALID_ARGUMENT (kernel names),
 * OUT_OF_MEMORY.
 */
vkmha_status vkmha_schedule_init(const vkmha_limits *limits, const vkmha_layer_params *layer,
                                 const vkmha_packing *packing, const vkmha_plan_params *plan,
                                 const vkmha_host *host, vkmha_schedule *schedule,
                                 vkmha_error *error) VKMHA_CHECKED;
void vkmha_schedule_finish(vkmha_schedule *schedule, const vkmha_host *host);

/* ---- Shared by the planner's files
 * -------------------------------------------------------------------- */

/* What the planner's files work on. */
typedef struct vkmha_planner {
    const vkmha_limits *limits;
    const vkmha_layer_params *layer;
    const vkmha_packing *packing;
    const vkmha_plan_params *plan;
    const vkmha_host *host;
    vkmha_error *error;
    vkmha_schedule *schedule;
    vkmha_sizes sizes;
    uint64_t max_work;
    /* Ranges touched since the last barrier, for the conflict check. */
    vkmha_range pending[64];
    uint32_t num_pending;
} vkmha_planner;

/* A tensor as a kernel addresses it; strides in elements. */
typedef struct vkmha_view {
    vkmha_resource resource;
    uint64_t offset; /* of element 0, in bytes */
    uint32_t element_bytes;
    vkmha_type type; /* of floating-point elements */
    uint64_t batch_stride;
    uint64_t head_stride;
    uint64_t row_stride;
    uint64_t row_elements; /* elements that a row reaches */
} vkmha_view;

/* A part of a tensor: batches, heads and rows, counted from a first one. */
typedef struct vkmha_box {
    uint64_t first_batch;
    uint64_t batches;
    uint64_t first_head;
    uint64_t heads;
    uint64_t first_row;
    uint64_t rows;
} vkmha_box;

/* How a box that is too much for a dispatch is cut. */
typedef enum vkmha_cut {
    VKMHA_CUT_NONE = 0, /* it fits */
    VKMHA_CUT_BATCHES,
    VKMHA_CUT_HEADS,
    VKMHA_CUT_ROWS,
    VKMHA_CUT_IMPOSSIBLE,
} vkmha_cut;

/* The first axis that can be cut; rows only where there are more than tile_rows. */
vkmha_cut vkmha_box_next_cut(const vkmha_box *box, uint64_t tile_rows);

/* Halves the box along an axis, rows at a multiple of tile_rows. */
void vkmha_box_halve(const vkmha_box *box, vkmha_cut cut, uint64_t tile_rows, vkmha_box *first,
                     vkmha_box *second);

/* A tensor of the caller's by its checked strides; `features` of each row are reached. */
vkmha_view vkmha_strided_view(vkmha_resource resource, vkmha_type type, const vkmha_strides *strides,
                              uint64_t features);

/* Contiguous heads: [batch, heads, rows, pitch]. */
vkmha_view vkmha_heads_view(vkmha_resource resource, vkmha_type type, uint64_t offset,
                            uint64_t heads, uint64_t rows, uint32_t pitch);

/* Whether every row starts and ends at a vector of four elements. */
bool vkmha_view_is_vector(const vkmha_view *view);

/* The view as kernels are told of it, element 0 at `base` of its window. */
vkmha_tensor_push vkmha_view_push(const vkmha_view *view, uint32_t base);

/* Bytes from the first to the last element of the box, plus what alignment may add. */
uint64_t vkmha_box_bytes(const vkmha_planner *planner, const vkmha_view *view,
                         const vkmha_box *box);

/* The window on the box, and the element index in it of the box's first element. */
vkmha_range vkmha_box_window(const vkmha_planner *planner, const vkmha_view *view,
                             const vkmha_box *box, uint32_t *base);

/* The window on bytes offset..offset+bytes, aligned for its kind of buffer; *skip: bytes before
 * `offset` in it. */
vkmha_range vkmha_aligned_window(const vkmha_limits *limits, vkmha_resource resource,
                                 uint64_t offset, uint64_t bytes, uint64_t *skip);

/* Appends a step: finds its set and whether it needs a barrier. */
vkmha_status vkmha_planner_append(vkmha_planner *planner, const vkmha_step *step) VKMHA_CHECKED;

/*
 * The tensors that attention reads and writes (schedule_tensors.c): inputs where they are, or in
 * the workspace or cache where projections, rotation or past keys come first. Packed: one batch of
 * all rows.
 */
typedef struct vkmha_tensors {
    uint64_t batches;    /* in the tensors of rows: 1 where packed */
    uint64_t query_rows; /* of a batch of theirs, as the next */
    uint64_t new_rows;
    uint64_t all_rows;
    vkmha_view input_query; /* attention_only: the given ones */
    vkmha_view input_key;
    vkmha_view input_value;
    vkmha_view query; /* what attention sees */
    vkmha_view key;
    vkmha_view value;
    vkmha_view
        new_key; /* of `key`: where new keys are written; with a cache, behind what it holds */
    vkmha_view new_value;
    vkmha_view output;   /* of attention, fp32: the given one, or in the workspace */
    bool is_output_moved; /* attention_only: the output is of 16 bits, and placed afterwards */
    bool is_query_moved; /* attention_only: query is not the input, as the next */
    bool is_key_moved;
} vkmha_tensors;

void vkmha_tensors_describe(const vkmha_planner *planner, vkmha_tensors *tensors);

/* The output as the caller gives it. */
vkmha_view vkmha_output_view(const vkmha_planner *planner);

/* Elements of the workspace's regions, 0 where the tensors are elsewhere. */
typedef struct vkmha_workspace {
    uint64_t query;
    uint64_t key;
    uint64_t value;
    uint64_t attention;
    uint64_t rows;
} vkmha_workspace;

vkmha_workspace vkmha_workspace_measure(const vkmha_layer_params *layer,
                                        const vkmha_plan_params *plan, const vkmha_sizes *sizes);

/* The window on the sequences of batches first_batch.., for a uniform binding; *base: the first
 * one's number in it. */
vkmha_range vkmha_sequences_window(const vkmha_planner *planner, uint64_t first_batch,
                                   uint64_t batches, uint32_t *base);

/* Whether a window on so many batches fits the uniform binding. */
bool vkmha_sequences_fit(const vkmha_planner *planner, uint64_t first_batch, uint64_t batches);

/* What stands for a uniform array that a kernel names and does not reach. */
vkmha_range vkmha_no_array(void);

/* The tables of the layer, whole. */
vkmha_range vkmha_tables_window(const vkmha_planner *planner, uint32_t piece);

/* The rotary positions, whole. */
vkmha_range vkmha_positions_window(const vkmha_planner *planner);

/* schedule_place.c: what has to be copied before attention, and present keys and values. */
vkmha_status vkmha_schedule_places(vkmha_planner *planner) VKMHA_CHECKED;
vkmha_status vkmha_schedule_presents(vkmha_planner *planner) VKMHA_CHECKED;

/* schedule_place.c: attention's result into an output that it does not write itself. */
vkmha_status vkmha_schedule_result(vkmha_planner *planner) VKMHA_CHECKED;

/* schedule_project.c: the projections before attention, and W_O. */
vkmha_status vkmha_schedule_projections(vkmha_planner *planner) VKMHA_CHECKED;
vkmha_status vkmha_schedule_output(vkmha_planner *planner) VKMHA_CHECKED;

/* schedule_contribute.c: contributions and gate gradients, after attention. */
vkmha_status vkmha_schedule_contributions(vkmha_planner *planner) VKMHA_CHECKED;

/* Keys begin..end-1: nothing else is seen by queries first_row..first_row+rows-1 of any sequence
 * (schedule_keys.c). */
typedef struct vkmha_key_span {
    uint64_t begin;
    uint64_t end; /* at least begin */
} vkmha_key_span;

vkmha_key_span vkmha_visible_keys(const vkmha_planner *planner, uint64_t first_row, uint64_t rows);

/* Tiles of tile_rows queries x tile_keys keys that one head of one sequence needs at most. */
uint64_t vkmha_count_tiles(const vkmha_planner *planner, uint32_t tile_rows, uint32_t tile_keys);

/* Added to a query's number gives its position, where the plan alone knows it. */
int64_t vkmha_position_offset(const vkmha_planner *planner);

/* schedule_attention.c; schedule->state.bytes grows to what its largest dispatch needs. */
vkmha_status vkmha_schedule_attention(vkmha_planner *planner) VKMHA_CHECKED;

#endif
