/* Attention: boxes of batches, heads and queries, each seen in one dispatch or in cuts over its keys. */
#include "schedule.h"

#include <inttypes.h>

typedef struct vkmha_attention {
    const vkmha_variant *variant;
    vkmha_tile tile;
    vkmha_view query;
    vkmha_view key;
    vkmha_view value;
    vkmha_view output;
    vkmha_view mask;
    vkmha_view attend_keys;
    vkmha_view lengths;
    uint64_t max_keys; /* that one dispatch may see: whole chunks */
} vkmha_attention;

typedef enum vkmha_cut {
    FITS = 0,
    CUT_BATCHES,
    CUT_HEADS,
    CUT_QUERIES,
    TOO_LARGE,
} vkmha_cut;

static vkmha_view head_view(vkmha_resource resource, uint64_t offset, uint64_t heads,
                            uint64_t positions, uint64_t features, bool heads_first)
{
    return (vkmha_view){
        .resource = resource,
        .offset = offset,
        .element_bytes = 4,
        .batch_stride = heads * positions * features,
        .head_stride = heads_first ? positions * features : features,
        .row_stride = heads_first ? features : heads * features,
        .row_elements = features,
    };
}

static void describe_tensors(const vkmha_planner *planner, vkmha_attention *attention)
{
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_schedule *schedule = planner->schedule;
    vkmha_constants *constants = &attention->tile.constants;
    if (layer->attention_only) {
        const vkmha_resource key =
            plan->key_is_query ? VKMHA_RESOURCE_QUERY : VKMHA_RESOURCE_KEY;
        const vkmha_resource value = plan->value_is_key ? key : VKMHA_RESOURCE_VALUE;
        const bool heads_first = plan->layout == VKMHA_LAYOUT_BHSD;
        attention->query = head_view(VKMHA_RESOURCE_QUERY, 0, layer->num_heads, plan->query_len,
                                     layer->head_dim, heads_first);
        attention->key =
            head_view(key, 0, layer->num_kv_heads, plan->key_len, layer->head_dim, heads_first);
        attention->value =
            head_view(value, 0, layer->num_kv_heads, plan->key_len, layer->v_head_dim, heads_first);
        attention->output = head_view(VKMHA_RESOURCE_OUTPUT, 0, layer->num_heads, plan->query_len,
                                      layer->v_head_dim, heads_first);
    } else {
        const uint32_t key_pitch = vkmha_round_up(layer->head_dim, 4);
        const uint32_t value_pitch = vkmha_round_up(layer->v_head_dim, 4);
        attention->query = head_view(VKMHA_RESOURCE_WORKSPACE, schedule->query.offset,
                                     layer->num_heads, plan->query_len, key_pitch, true);
        attention->key = head_view(VKMHA_RESOURCE_WORKSPACE, schedule->key.offset,
                                   layer->num_kv_heads, plan->key_len, key_pitch, true);
        attention->value = head_view(VKMHA_RESOURCE_WORKSPACE, schedule->value.offset,
                                     layer->num_kv_heads, plan->key_len, value_pitch, true);
        /* Concatenation by layout: head h writes its columns of [batch, query, heads * pitch]. */
        attention->output = head_view(VKMHA_RESOURCE_WORKSPACE, schedule->attention.offset,
                                      layer->num_heads, plan->query_len, value_pitch, false);
    }
    constants->VECTOR_A =
        attention->query.row_elements % 4 == 0 && attention->key.row_elements % 4 == 0;
    constants->VECTOR_B = attention->value.row_elements % 4 == 0;
    constants->VECTOR_C = attention->output.row_elements % 4 == 0;
    constants->MASK = (uint32_t)plan->mask;
    constants->ATTEND_KEYS = plan->has_attend_keys;

    const uint64_t *dims = plan->mask_dims;
    attention->mask = (vkmha_view){
        .resource = VKMHA_RESOURCE_MASK,
        .element_bytes = plan->mask == VKMHA_MASK_ADDITIVE ? 4 : 1,
        .batch_stride = dims[0] > 1 ? dims[1] * dims[2] * dims[3] : 0,
        .head_stride = dims[1] > 1 ? dims[2] * dims[3] : 0,
        .row_stride = dims[2] > 1 ? dims[3] : 0,
        .row_elements = dims[3],
    };
    attention->attend_keys = (vkmha_view){
        .resource = VKMHA_RESOURCE_ATTEND_KEYS,
        .element_bytes = 1,
        .batch_stride = plan->key_len,
        .row_elements = plan->key_len,
    };
    attention->lengths = (vkmha_view){
        .resource = VKMHA_RESOURCE_KEY_LENGTHS,
        .element_bytes = 4,
        .batch_stride = 1,
        .row_elements = 1,
    };
}

/* The box of key/value heads that a box of query heads reads; all keys. */
static vkmha_box key_box(const vkmha_planner *planner, const vkmha_box *box)
{
    const uint32_t group = planner->layer->num_heads / planner->layer->num_kv_heads;
    vkmha_box keys = *box;
    keys.first_head = box->first_head / group;
    keys.heads = (box->first_head + box->heads - 1) / group - keys.first_head + 1;
    keys.first_row = 0;
    keys.rows = planner->plan->key_len;
    return keys;
}

static uint64_t box_work(const vkmha_planner *planner, const vkmha_box *box, uint64_t keys)
{
    const vkmha_layer_params *layer = planner->layer;
    return box->batches * box->heads * box->rows * keys * (layer->head_dim + layer->v_head_dim);
}

static uint64_t chunk_round_up(uint64_t keys)
{
    return (keys + VKMHA_KEY_CHUNK - 1) / VKMHA_KEY_CHUNK * VKMHA_KEY_CHUNK;
}

/* The axis whose cut shortens the span of a box most; TOO_LARGE where none can be cut. */
static vkmha_cut longest_axis(const vkmha_view *view, const vkmha_box *box, uint32_t tile_rows)
{
    const uint64_t spans[] = {(box->batches - 1) * view->batch_stride,
                              (box->heads - 1) * view->head_stride,
                              box->rows > tile_rows ? (box->rows - 1) * view->row_stride : 0};
    static const vkmha_cut cuts[] = {CUT_BATCHES, CUT_HEADS, CUT_QUERIES};
    uint64_t longest = 0;
    vkmha_cut cut = TOO_LARGE;
    for (uint32_t axis = 0; axis < 3; axis++) {
        if (spans[axis] > longest) {
            longest = spans[axis];
            cut = cuts[axis];
        }
    }
    return cut;
}

/* The cut that the first window too large needs; FITS where all fit. */
static vkmha_cut judge_windows(const vkmha_planner *planner, const vkmha_attention *attention,
                               const vkmha_box *box)
{
    const vkmha_plan_params *plan = planner->plan;
    const bool has_keys = plan->key_len > 0;
    const uint64_t storage = planner->limits->max_storage_range_bytes;
    const uint64_t lengths = UINT64_C(4) * VKMHA_MAX_UNIFORM_LENGTHS;
    const uint64_t uniform = planner->limits->max_uniform_range_bytes < lengths
                                 ? planner->limits->max_uniform_range_bytes
                                 : lengths;
    const vkmha_box keys = key_box(planner, box);
    const vkmha_box batches = {box->first_batch, box->batches, 0, 1, 0, 1};
    const struct {
        const vkmha_view *view;
        const vkmha_box *box;
        uint64_t limit;
        bool is_used;
    } windows[] = {
        {&attention->query, box, storage, true},
        {&attention->output, box, storage, true},
        {&attention->key, &keys, storage, has_keys},
        {&attention->value, &keys, storage, has_keys},
        {&attention->mask, box, storage, has_keys && plan->mask != VKMHA_MASK_NONE},
        {&attention->attend_keys, &batches, storage, has_keys && plan->has_attend_keys},
        {&attention->lengths, &batches, uniform, plan->has_key_lengths},
    };
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        if (windows[i].is_used &&
            vkmha_box_bytes(planner, windows[i].view, windows[i].box) > windows[i].limit) {
            /* All keys are seen: only batches and heads of theirs can be cut, so no row of theirs counts. */
            const bool is_keys = windows[i].box == &keys;
            const vkmha_cut cut = longest_axis(windows[i].view, windows[i].box,
                                               is_keys ? UINT32_MAX : attention->tile.rows);
            return is_keys && cut == CUT_HEADS && box->heads == 1 ? TOO_LARGE : cut;
        }
    }
    return FITS;
}

static vkmha_cut judge(const vkmha_planner *planner, const vkmha_attention *attention,
                       const vkmha_box *box)
{
    const vkmha_limits *limits = planner->limits;
    const uint32_t tile_rows = attention->tile.rows;
    const bool can_cut_queries = box->rows > tile_rows;
    const vkmha_cut next = box->batches > 1 ? CUT_BATCHES
                           : box->heads > 1 ? CUT_HEADS
                           : can_cut_queries ? CUT_QUERIES
                                             : TOO_LARGE;
    if (box->batches > limits->max_groups[2]) {
        return CUT_BATCHES;
    }
    if (box->heads > limits->max_groups[1]) {
        return CUT_HEADS;
    }
    if ((box->rows + tile_rows - 1) / tile_rows > limits->max_groups[0]) {
        return CUT_QUERIES;
    }
    const vkmha_cut cut = judge_windows(planner, attention, box);
    if (cut != FITS) {
        return cut;
    }
    /* Cutting over keys carries state, so it comes last: only where a tile's rows alone are too much. */
    const uint64_t keys = planner->plan->key_len < attention->max_keys ? planner->plan->key_len
                                                                        : attention->max_keys;
    if (box_work(planner, box, keys) > planner->max_work) {
        return next != TOO_LARGE ? next : FITS;
    }
    /* The state of a dispatch is one window too. */
    if (planner->plan->key_len > attention->max_keys &&
        box->batches * box->heads * box->rows * 8 > limits->max_storage_range_bytes) {
        return next;
    }
    return FITS;
}

/* Keys that one dispatch over the box sees, a multiple of the chunk or all of them. */
static uint64_t keys_per_dispatch(const vkmha_planner *planner, const vkmha_attention *attention,
                                  const vkmha_box *box)
{
    /* Whole chunks may exceed a limit that the keys there are do not: no cut, and no state, then. */
    if (box_work(planner, box, planner->plan->key_len) <= planner->max_work) {
        return attention->max_keys;
    }
    const uint64_t chunk_work = box_work(planner, box, VKMHA_KEY_CHUNK);
    uint64_t keys = planner->max_work / chunk_work * VKMHA_KEY_CHUNK;
    if (keys < VKMHA_KEY_CHUNK) {
        keys = VKMHA_KEY_CHUNK; /* the least that a dispatch can do */
    }
    if (keys > attention->max_keys) {
        keys = attention->max_keys;
    }
    return keys;
}

/* Keys from here on are seen by no query of the box. */
static uint64_t last_key(const vkmha_planner *planner, const vkmha_box *box)
{
    const vkmha_plan_params *plan = planner->plan;
    const int64_t key_len = (int64_t)plan->key_len;
    int64_t offset = key_len;
    if (plan->causal == VKMHA_CAUSAL_TOP_LEFT) {
        offset = 0;
    } else if (plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT) {
        /* Shorter sequences, where lengths are given, see less. */
        offset = key_len - (int64_t)plan->query_len;
    }
    const int64_t end = (int64_t)(box->first_row + box->rows) + offset;
    return end < 0 ? 0 : end > key_len ? (uint64_t)key_len : (uint64_t)end;
}

static vkmha_tensor_push tensor_push(const vkmha_view *view, uint32_t base)
{
    return (vkmha_tensor_push){
        .base = base,
        .batch_stride = (uint32_t)view->batch_stride,
        .head_stride = (uint32_t)view->head_stride,
        .row_stride = (uint32_t)view->row_stride,
    };
}

/* Causal offset for the box's first query, and the flags that say what it is relative to. */
static int32_t causal_offset(const vkmha_planner *planner, const vkmha_box *box, uint32_t *flags)
{
    const vkmha_plan_params *plan = planner->plan;
    int64_t offset = (int64_t)box->first_row;
    switch (plan->causal) {
    case VKMHA_CAUSAL_NONE:
        return 0;
    case VKMHA_CAUSAL_TOP_LEFT:
        break;
    case VKMHA_CAUSAL_BOTTOM_RIGHT:
        offset -= (int64_t)plan->query_len;
        *flags |= VKMHA_FLAG_CAUSAL_ENDS;
        break;
    }
    *flags |= VKMHA_FLAG_CAUSAL;
    return (int32_t)offset;
}

/* Everything of a step that does not depend on the cut over keys. */
static vkmha_step box_step(const vkmha_planner *planner, const vkmha_attention *attention,
                           const vkmha_box *box)
{
    const vkmha_layer_params *layer = planner->layer;
    const vkmha_plan_params *plan = planner->plan;
    const uint32_t group = layer->num_heads / layer->num_kv_heads;
    const uint32_t tile_rows = attention->tile.rows;
    const vkmha_box keys = key_box(planner, box);
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
    bindings[VKMHA_BIND_QUERY] = vkmha_box_window(planner, &attention->query, box, &base);
    push->query = tensor_push(&attention->query, base);
    bindings[VKMHA_BIND_OUTPUT] = vkmha_box_window(planner, &attention->output, box, &base);
    bindings[VKMHA_BIND_OUTPUT].is_written = true;
    push->result = tensor_push(&attention->output, base);

    /* The kernel names every binding: those without a tensor get the query's window, which it only reads. */
    const vkmha_range unused = bindings[VKMHA_BIND_QUERY];
    bindings[VKMHA_BIND_KEY] = unused;
    bindings[VKMHA_BIND_VALUE] = unused;
    bindings[VKMHA_BIND_MASK] = unused;
    bindings[VKMHA_BIND_ATTEND_KEYS] = unused;
    bindings[VKMHA_BIND_STATE] = unused;
    bindings[VKMHA_BIND_LENGTHS] = (vkmha_range){.resource = VKMHA_RESOURCE_NULL_UNIFORM, .bytes = 16};
    if (plan->key_len > 0) {
        bindings[VKMHA_BIND_KEY] = vkmha_box_window(planner, &attention->key, &keys, &base);
        push->key = tensor_push(&attention->key, base);
        bindings[VKMHA_BIND_VALUE] = vkmha_box_window(planner, &attention->value, &keys, &base);
        push->value = tensor_push(&attention->value, base);
        if (plan->mask != VKMHA_MASK_NONE) {
            bindings[VKMHA_BIND_MASK] = vkmha_box_window(planner, &attention->mask, box, &base);
            push->mask = tensor_push(&attention->mask, base);
            push->flags |= plan->mask_dims[3] > 1 ? VKMHA_FLAG_MASK_KEYS : 0;
        }
        if (plan->has_attend_keys) {
            const vkmha_box batches = {box->first_batch, box->batches, 0, 1, 0, 1};
            bindings[VKMHA_BIND_ATTEND_KEYS] =
                vkmha_box_window(planner, &attention->attend_keys, &batches, &push->attend_base);
            push->attend_batch_stride = (uint32_t)attention->attend_keys.batch_stride;
        }
    }
    if (plan->has_key_lengths) {
        const vkmha_box batches = {box->first_batch, box->batches, 0, 1, 0, 1};
        bindings[VKMHA_BIND_LENGTHS] =
            vkmha_box_window(planner, &attention->lengths, &batches, &push->lengths_base);
        push->flags |= VKMHA_FLAG_LENGTHS;
    }
    push->query_count = (uint32_t)box->rows;
    push->key_len = (uint32_t)plan->key_len;
    push->causal_offset = causal_offset(planner, box, &push->flags);
    push->dims = layer->head_dim | layer->v_head_dim << 16;
    push->group = group | (uint32_t)(box->first_head % group) << 16;
    push->scale = layer->scale;
    return step;
}

static vkmha_status emit_box(vkmha_planner *planner, const vkmha_attention *attention,
                             const vkmha_box *box)
{
    vkmha_step step = box_step(planner, attention, box);
    const uint32_t flags = step.push.attention.flags;
    const uint64_t end = last_key(planner, box);
    const uint64_t per_dispatch = keys_per_dispatch(planner, attention, box);
    const bool is_cut = end > per_dispatch;
    if (is_cut) {
        vkmha_range *state = &step.bindings[VKMHA_BIND_STATE];
        vkmha_region *region = &planner->schedule->state;
        *state = (vkmha_range){
            .resource = VKMHA_RESOURCE_WORKSPACE,
            .offset = region->offset,
            .bytes = box->batches * box->heads * box->rows * 8,
            .is_written = true,
        };
        region->bytes = state->bytes > region->bytes ? state->bytes : region->bytes;
    }
    uint64_t begin = 0;
    do {
        const uint64_t left = end - begin;
        const uint64_t keys = left < per_dispatch ? left : per_dispatch;
        vkmha_attention_push *push = &step.push.attention;
        push->key_begin = (uint32_t)begin;
        push->key_end = (uint32_t)(begin + keys);
        push->flags = flags | (begin == 0 ? VKMHA_FLAG_FIRST : 0) |
                      (begin + keys == end ? VKMHA_FLAG_LAST : 0);
        step.work = box_work(planner, box, keys);
        step.loop_trips = attention->tile.trips_base +
                          attention->tile.trips_per_unit * (chunk_round_up(keys) / VKMHA_KEY_CHUNK);
        vkmha_status status = vkmha_planner_append(planner, &step);
        if (status != VKMHA_OK) {
            return status;
        }
        begin += keys;
    } while (begin < end);
    return VKMHA_OK;
}

static vkmha_status cut_box(vkmha_planner *planner, const vkmha_attention *attention,
                            const vkmha_box *box)
{
    vkmha_box first = *box;
    vkmha_box second = *box;
    const uint64_t tile_rows = attention->tile.rows;
    switch (judge(planner, attention, box)) {
    case FITS:
        return emit_box(planner, attention, box);
    case CUT_BATCHES:
        first.batches = box->batches / 2;
        second.first_batch += first.batches;
        second.batches -= first.batches;
        break;
    case CUT_HEADS:
        first.heads = box->heads / 2;
        second.first_head += first.heads;
        second.heads -= first.heads;
        break;
    case CUT_QUERIES:
        first.rows = (box->rows / 2 + tile_rows - 1) / tile_rows * tile_rows;
        second.first_row += first.rows;
        second.rows -= first.rows;
        break;
    case TOO_LARGE:
        return vkmha_fail(planner->error, VKMHA_ERROR_UNSUPPORTED,
                          "key_len %" PRIu64 " is too large for this device: the keys, values or "
                          "mask of one head do not fit its bindings of %" PRIu64 " bytes",
                          planner->plan->key_len, planner->limits->max_storage_range_bytes);
    }
    vkmha_status status = cut_box(planner, attention, &first);
    return status == VKMHA_OK ? cut_box(planner, attention, &second) : status;
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
    describe_tensors(planner, attention);
    attention->max_keys = chunk_round_up(planner->plan->key_len);
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
    vkmha_chains *chains = &planner->schedule->chains;
    chains->score = planner->layer->head_dim + 1;
    chains->value = planner->plan->key_len + 1;
    chains->rescale = planner->plan->key_len / attention.tile.columns + 1;
    const vkmha_box all = {0, planner->plan->batch_size, 0, planner->layer->num_heads,
                           0, planner->plan->query_len};
    return cut_box(planner, &attention, &all);
}
