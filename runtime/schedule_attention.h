/* Shared by attention's files of the planner: what a dispatch is made from. */
#ifndef VKMHA_RUNTIME_SCHEDULE_ATTENTION_H
#define VKMHA_RUNTIME_SCHEDULE_ATTENTION_H

#include "schedule.h"

typedef struct vkmha_attention {
    const vkmha_variant *variant;
    vkmha_tile tile;
    const vkmha_variant *merge;
    vkmha_tile merge_tile;
    vkmha_tensors tensors;
    vkmha_view mask;
    vkmha_view attend_keys;
    vkmha_view gates;
    vkmha_view rows;   /* states that rows leave; no elements: none do */
    uint64_t max_keys; /* that one dispatch may see: whole chunks */
    /* What is told besides the output, another pass with `output` its target: schedule_tell.c. */
    bool is_told;
    uint32_t tell_flags;
    uint64_t told_keys; /* keys that are worked on for each query */
    uint64_t key_tiles; /* workgroups along x that a tile of rows takes; attention itself: 1 */
    uint64_t max_rows;  /* that one dispatch may take */
} vkmha_attention;

/* Attends to the box, or tells of it, in as many dispatches as limits ask for
 * (schedule_attention.c). */
vkmha_status vkmha_attention_cut(vkmha_planner *planner, const vkmha_attention *attention,
                                 const vkmha_box *box) VKMHA_CHECKED;

/* ---- schedule_attention_box.c: tensors, options, and parts of them ---- */

/* Fills in all but the variants, tiles and max_keys; the schedule's options; and the tile's
 * constants that tensors and options decide. */
void vkmha_attention_describe(vkmha_planner *planner, vkmha_attention *attention);

/* The rows of queries, of results (what is told is padded), and of key/value heads, that a box of
 * query heads reaches. */
vkmha_box vkmha_attention_result_box(const vkmha_planner *planner,
                                     const vkmha_attention *attention, const vkmha_box *box);
vkmha_box vkmha_attention_query_box(const vkmha_planner *planner, const vkmha_box *box);
vkmha_box vkmha_attention_keys_box(const vkmha_planner *planner, const vkmha_box *box);

/* Multiply-adds of the box with so many keys. */
uint64_t vkmha_attention_work(const vkmha_planner *planner, const vkmha_box *box, uint64_t keys);

uint64_t vkmha_chunk_round_up(uint64_t keys);

/* Keys that are seen by any query of the box, from the chunk on where they begin; and how many. */
vkmha_key_span vkmha_chunk_span(const vkmha_planner *planner, const vkmha_box *box);
uint64_t vkmha_needed_keys(const vkmha_planner *planner, const vkmha_box *box);

/* ---- schedule_attention_step.c: dispatches ---- */

/* Everything of a step that does not depend on the cut over keys. */
vkmha_step vkmha_attention_step(const vkmha_planner *planner, const vkmha_attention *attention,
                                const vkmha_box *box);

/* The step sees keys begin..end-1. */
void vkmha_attention_set_keys(const vkmha_planner *planner, const vkmha_attention *attention,
                              const vkmha_box *box, uint64_t begin, uint64_t end, uint32_t flags,
                              vkmha_step *step);

/* Bytes of a row's state. */
uint64_t vkmha_state_bytes(const vkmha_attention *attention);

/* A part of the workspace's last region, which grows to hold it. */
vkmha_range vkmha_state_range(vkmha_planner *planner, uint64_t offset, uint64_t bytes);

typedef struct vkmha_split {
    uint64_t chunks;
    uint64_t state_bytes;
    uint64_t output_bytes;
} vkmha_split;

/* Whether splitting the box's keys, one workgroup a chunk, is worth it and possible. */
bool vkmha_plan_split(const vkmha_planner *planner, const vkmha_attention *attention,
                      const vkmha_box *box, vkmha_split *split);

/* ---- schedule_tell.c: what is told besides the output ---- */

/* Whether rows leave their states for it. */
bool vkmha_leaves_rows(const vkmha_plan_params *plan);

/* One dispatch of an is_told pass. */
vkmha_status vkmha_emit_told(vkmha_planner *planner, const vkmha_attention *attention,
                             const vkmha_box *box) VKMHA_CHECKED;

/* All of it, after attention. */
vkmha_status vkmha_schedule_told(vkmha_planner *planner,
                                 const vkmha_attention *attention) VKMHA_CHECKED;

/* ---- schedule_attention_step.c, split keys ---- */

/* The split dispatch and its merge. */
vkmha_status vkmha_emit_split(vkmha_planner *planner, const vkmha_attention *attention,
                              const vkmha_box *box, const vkmha_split *split) VKMHA_CHECKED;

#endif
