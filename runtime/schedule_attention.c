/*
 * Attention: boxes of batches, heads and queries, each seen in one dispatch, in cuts over its keys,
 * or, where few workgroups would see many keys, in one workgroup a chunk of keys and a merge.
 */
#include "schedule_attention.h"

#include <inttypes.h>

/* The axis whose cut shortens the span of a box most; VKMHA_CUT_IMPOSSIBLE where none can be cut. */
static vkmha_cut longest_axis(const vkmha_view *view, const vkmha_box *box, uint32_t tile_rows)
{
    const uint64_t spans[] = {(box->batches - 1) * view->batch_stride,
                              (box->heads - 1) * view->head_stride,
                              box->rows > tile_rows ? (box->rows - 1) * view->row_stride : 0};
    static const vkmha_cut cuts[] = {VKMHA_CUT_BATCHES, VKMHA_CUT_HEADS, VKMHA_CUT_ROWS};
    uint64_t longest = 0;
    vkmha_cut cut = VKMHA_CUT_IMPOSSIBLE;
    for (uint32_t axis = 0; axis < 3; axis++) {
        if (spans[axis] > longest) {
            longest = spans[axis];
            cut = cuts[axis];
        }
    }
    return cut;
}

/* The cut that the first window too large needs; VKMHA_CUT_NONE where all fit. */
static vkmha_cut judge_windows(const vkmha_planner *planner, const vkmha_attention *attention,
                               const vkmha_box *box)
{
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_tensors *tensors = &attention->tensors;
    const bool has_keys = tensors->all_rows > 0;
    const uint64_t storage = planner->limits->max_storage_range_bytes;
    const uint64_t gates = UINT64_C(4) * VKMHA_MAX_UNIFORM_GATES;
    const uint64_t uniform = planner->limits->max_uniform_range_bytes < gates
                                 ? planner->limits->max_uniform_range_bytes
                                 : gates;
    const vkmha_box queries = vkmha_attention_query_box(planner, box);
    const vkmha_box results = vkmha_attention_result_box(planner, attention, box);
    const vkmha_box keys = vkmha_attention_keys_box(planner, box);
    const vkmha_box batches = {box->first_batch, box->batches, 0, 1, 0, 1};
    const vkmha_box heads = {box->first_batch, box->batches, box->first_head, box->heads, 0, 1};
    const struct {
        const vkmha_view *view;
        const vkmha_box *box;
        uint64_t limit;
        bool is_used;
    } windows[] = {
        {&tensors->query, &queries, storage, true},
        {&tensors->output, &results, storage, true},
        {&attention->rows, box, storage, attention->rows.row_elements > 0},
        {&tensors->key, &keys, storage, has_keys},
        {&tensors->value, &keys, storage, has_keys},
        {&attention->mask, box, storage, has_keys && plan->mask != VKMHA_MASK_NONE},
        {&attention->attend_keys, &batches, storage, has_keys && plan->has_attend_keys},
        {&attention->gates, &heads, uniform, plan->has_head_gates},
    };
    if (planner->sizes.sequences > 0 &&
        !vkmha_sequences_fit(planner, box->first_batch, box->batches)) {
        return VKMHA_CUT_BATCHES;
    }
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        if (windows[i].is_used &&
            vkmha_box_bytes(planner, windows[i].view, windows[i].box) > windows[i].limit) {
            /* All keys are seen: only batches and heads of theirs can be cut, so no row of theirs
             * counts. */
            const bool has_all_rows =
                windows[i].box == &keys || (plan->is_packed && windows[i].box == &queries);
            const vkmha_cut cut = longest_axis(windows[i].view, windows[i].box,
                                               has_all_rows ? UINT32_MAX : attention->tile.rows);
            return has_all_rows && cut == VKMHA_CUT_HEADS && box->heads == 1 ? VKMHA_CUT_IMPOSSIBLE : cut;
        }
    }
    return VKMHA_CUT_NONE;
}

static vkmha_cut judge(const vkmha_planner *planner, const vkmha_attention *attention,
                       const vkmha_box *box)
{
    const vkmha_limits *limits = planner->limits;
    const uint32_t tile_rows = attention->tile.rows;
    const bool can_cut_queries = box->rows > tile_rows;
    const vkmha_cut next = vkmha_box_next_cut(box, tile_rows);
    if (box->batches > limits->max_groups[2]) {
        return VKMHA_CUT_BATCHES;
    }
    if (box->heads > limits->max_groups[1]) {
        return VKMHA_CUT_HEADS;
    }
    const uint64_t row_tiles = (box->rows + tile_rows - 1) / tile_rows;
    if (attention->key_tiles > limits->max_groups[0]) {
        return VKMHA_CUT_IMPOSSIBLE;
    }
    if (row_tiles * attention->key_tiles > limits->max_groups[0] ||
        (box->rows > attention->max_rows && can_cut_queries)) {
        return VKMHA_CUT_ROWS;
    }
    const vkmha_cut cut = judge_windows(planner, attention, box);
    if (cut != VKMHA_CUT_NONE) {
        return cut;
    }
    /* Cutting over keys carries state, so it comes last: only where a tile's rows alone are too
     * much. */
    const uint64_t needed =
        attention->is_told ? attention->told_keys : vkmha_needed_keys(planner, box);
    const uint64_t keys = needed < attention->max_keys ? needed : attention->max_keys;
    if (vkmha_attention_work(planner, box, keys) > planner->max_work) {
        return next != VKMHA_CUT_IMPOSSIBLE ? next : VKMHA_CUT_NONE;
    }
    /* The state of a dispatch is one window too. */
    if (needed > attention->max_keys &&
        box->batches * box->heads * box->rows * vkmha_state_bytes(attention) >
            limits->max_storage_range_bytes) {
        return next;
    }
    return VKMHA_CUT_NONE;
}

/* Keys that one dispatch over the box sees, a multiple of the chunk or all of them. */
static uint64_t keys_per_dispatch(const vkmha_planner *planner, const vkmha_attention *attention,
                                  const vkmha_box *box)
{
    /* Whole chunks may exceed a limit that the keys there are do not: no cut, and no state, then.
     */
    if (vkmha_attention_work(planner, box, vkmha_needed_keys(planner, box)) <= planner->max_work) {
        return attention->max_keys;
    }
    const uint64_t chunk_work = vkmha_attention_work(planner, box, VKMHA_KEY_CHUNK);
    uint64_t keys = planner->max_work / chunk_work * VKMHA_KEY_CHUNK;
    if (keys < VKMHA_KEY_CHUNK) {
        keys = VKMHA_KEY_CHUNK; /* the least that a dispatch can do */
    }
    if (keys > attention->max_keys) {
        keys = attention->max_keys;
    }
    return keys;
}

/* ---- Boxes ---- */

static vkmha_status emit_box(vkmha_planner *planner, const vkmha_attention *attention,
                             const vkmha_box *box)
{
    if (attention->is_told) {
        return vkmha_emit_told(planner, attention, box);
    }
    const uint64_t per_dispatch = keys_per_dispatch(planner, attention, box);
    const vkmha_key_span span = vkmha_chunk_span(planner, box);
    const bool is_cut = span.end - span.begin > per_dispatch;
    vkmha_split split;
    if (!is_cut && vkmha_plan_split(planner, attention, box, &split)) {
        return vkmha_emit_split(planner, attention, box, &split);
    }
    vkmha_step step = vkmha_attention_step(planner, attention, box);
    if (is_cut && attention->rows.row_elements == 0) {
        const uint64_t rows = box->batches * box->heads * box->rows;
        step.bindings[VKMHA_BIND_STATE] =
            vkmha_state_range(planner, 0, rows * vkmha_state_bytes(attention));
    }
    uint64_t begin = span.begin;
    do {
        const uint64_t left = span.end - begin;
        const uint64_t end = begin + (left < per_dispatch ? left : per_dispatch);
        vkmha_attention_set_keys(planner, attention, box, begin, end,
                                 (begin == span.begin ? VKMHA_FLAG_FIRST : 0) |
                                     (end == span.end ? VKMHA_FLAG_LAST : 0),
                                 &step);
        vkmha_status status = vkmha_planner_append(planner, &step);
        if (status != VKMHA_OK) {
            return status;
        }
        begin = end;
    } while (begin < span.end);
    return VKMHA_OK;
}

vkmha_status vkmha_attention_cut(vkmha_planner *planner, const vkmha_attention *attention,
                                 const vkmha_box *box)
{
    const vkmha_cut cut = judge(planner, attention, box);
    if (cut == VKMHA_CUT_NONE) {
        return emit_box(planner, attention, box);
    }
    if (cut == VKMHA_CUT_IMPOSSIBLE) {
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "key_len %" PRIu64 " is too large for this device: the keys, values or "
                          "mask of one head do not fit its bindings of %" PRIu64 " bytes",
                          planner->sizes.all_keys, planner->limits->max_storage_range_bytes);
    }
    vkmha_box first;
    vkmha_box second;
    vkmha_box_halve(box, cut, attention->tile.rows, &first, &second);
    vkmha_status status = vkmha_attention_cut(planner, attention, &first);
    return status == VKMHA_OK ? vkmha_attention_cut(planner, attention, &second) : status;
}

static vkmha_status prepare(vkmha_planner *planner, vkmha_attention *attention)
{
    const vkmha_layer_params *layer = planner->layer;
    vkmha_status status = vkmha_variant_pick(
        VKMHA_KERNEL_ATTENTION, planner->plan->attention_kernel, planner->limits, layer->head_dim,
        layer->v_head_dim, &attention->variant, &attention->tile, planner->error);
    if (status != VKMHA_OK) {
        return status;
    }
    status = vkmha_variant_pick(VKMHA_KERNEL_MERGE, NULL, planner->limits, layer->head_dim,
                                layer->v_head_dim, &attention->merge, &attention->merge_tile,
                                planner->error);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_attention_describe(planner, attention);
    attention->max_keys = vkmha_chunk_round_up(planner->sizes.all_keys);
    attention->max_rows = UINT64_MAX;
    attention->key_tiles = 1;
    const uint64_t limit = planner->limits->max_loop_trips;
    if (limit != 0) {
        const vkmha_tile *tile = &attention->tile;
        const uint64_t chunks =
            limit > tile->trips_base ? (limit - tile->trips_base) / tile->trips_per_unit : 0;
        if (chunks == 0) {
            return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                              "%s needs %" PRIu64 " loop trips for %d keys, this driver ends loops "
                              "after %" PRIu64,
                              attention->variant->name, tile->trips_base + tile->trips_per_unit,
                              VKMHA_KEY_CHUNK, limit);
        }
        if (chunks * VKMHA_KEY_CHUNK < attention->max_keys) {
            attention->max_keys = chunks * VKMHA_KEY_CHUNK;
        }
    }
    return VKMHA_OK;
}

vkmha_status vkmha_schedule_attention(vkmha_planner *planner)
{
    vkmha_attention attention = {0};
    vkmha_status status = prepare(planner, &attention);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_schedule *schedule = planner->schedule;
    vkmha_chains *chains = &schedule->chains;
    const vkmha_plan_params *plan = planner->plan;
    const uint64_t all_keys = planner->sizes.all_keys;
    const vkmha_tile *tile = &attention.tile;
    chains->score = planner->layer->head_dim + 1;
    chains->value = all_keys + 1;
    chains->rescale =
        all_keys / tile->columns + 1 + vkmha_chunk_round_up(all_keys) / VKMHA_KEY_CHUNK;
    const uint64_t heads = plan->batch_size * planner->layer->num_heads;
    schedule->tiles = heads * vkmha_count_tiles(planner, tile->rows, tile->columns);
    schedule->all_tiles = heads * ((plan->query_len + tile->rows - 1) / tile->rows) *
                          ((all_keys + tile->columns - 1) / tile->columns);
    const vkmha_box all = {0, plan->batch_size, 0, planner->layer->num_heads, 0, plan->query_len};
    status = vkmha_attention_cut(planner, &attention, &all);
    return status == VKMHA_OK ? vkmha_schedule_told(planner, &attention) : status;
}
