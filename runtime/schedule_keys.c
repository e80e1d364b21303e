/* Which keys a run of queries may see, by order, windows and lengths: what attention's loop bounds
 * are made of. */
#include "schedule.h"

int64_t vkmha_position_offset(const vkmha_planner *planner)
{
    const vkmha_plan_params *plan = planner->plan;
    switch (plan->positions) {
    case VKMHA_POSITIONS_TOP_LEFT:
        return 0;
    case VKMHA_POSITIONS_BOTTOM_RIGHT:
        return (int64_t)planner->sizes.all_keys - (int64_t)plan->query_len;
    case VKMHA_POSITIONS_OFFSET:
        return plan->position_offset;
    }
    return 0;
}

/* Lowest and highest offset of any sequence. */
static void offset_range(const vkmha_planner *planner, int64_t *lowest, int64_t *highest)
{
    const vkmha_plan_params *plan = planner->plan;
    *lowest = vkmha_position_offset(planner);
    *highest = *lowest;
    if (plan->has_position_offsets) {
        *lowest = INT32_MIN;
        *highest = INT32_MAX;
    } else if (plan->positions == VKMHA_POSITIONS_BOTTOM_RIGHT && planner->sizes.sequences > 0) {
        /* Sequences may have fewer keys; packed, fewer queries too. */
        *lowest = -(int64_t)plan->query_len;
        *highest = (int64_t)planner->sizes.all_keys;
    }
}

static uint64_t clamp_key(int64_t key, uint64_t key_len)
{
    return key < 0 ? 0 : (uint64_t)key > key_len ? key_len : (uint64_t)key;
}

static vkmha_key_span visible_keys(const vkmha_planner *planner, uint64_t first_row, uint64_t rows,
                                   int64_t lowest, int64_t highest)
{
    const vkmha_plan_params *plan = planner->plan;
    const uint64_t key_len = planner->sizes.all_keys;
    vkmha_key_span span = {0, key_len};
    const int64_t last = (int64_t)(first_row + rows) - 1 + highest;
    if (plan->causal != VKMHA_CAUSAL_NONE) {
        span.end = clamp_key(last + 1, key_len);
    }
    if (plan->has_window_right) {
        const uint64_t end = clamp_key(last + plan->window_right + 1, key_len);
        span.end = end < span.end ? end : span.end;
    }
    if (plan->has_window_left) {
        span.begin = clamp_key((int64_t)first_row + lowest - plan->window_left, key_len);
    }
    span.end = span.end < span.begin ? span.begin : span.end;
    return span;
}

vkmha_key_span vkmha_visible_keys(const vkmha_planner *planner, uint64_t first_row, uint64_t rows)
{
    int64_t lowest;
    int64_t highest;
    offset_range(planner, &lowest, &highest);
    return visible_keys(planner, first_row, rows, lowest, highest);
}

uint64_t vkmha_count_tiles(const vkmha_planner *planner, uint32_t tile_rows, uint32_t tile_keys)
{
    const uint64_t query_len = planner->plan->query_len;
    int64_t lowest;
    int64_t highest;
    offset_range(planner, &lowest, &highest);
    uint64_t tiles = 0;
    for (uint64_t row = 0; row < query_len; row += tile_rows) {
        const uint64_t left = query_len - row;
        const vkmha_key_span span =
            visible_keys(planner, row, left < tile_rows ? left : tile_rows, lowest, highest);
        const uint64_t begin = span.begin / tile_keys;
        const uint64_t end = (span.end + tile_keys - 1) / tile_keys;
        tiles += span.end > span.begin ? end - begin : 0;
    }
    return tiles;
}
