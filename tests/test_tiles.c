/*
 * What the planner lets attention run, counted: tiles against a count of every pair, and memory and
 * tiles against the length. Pure: no device.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "limit_tables.h"
#include "runtime/schedule.h"

typedef struct vkmha_counted {
    uint64_t tiles;
    uint64_t all_tiles;
    uint64_t workspace_bytes;
    uint64_t state_bytes; /* of them, what dispatches cut over keys hand on */
} vkmha_counted;

static vkmha_counted count(const vkmha_limits *limits, const vkmha_layer_params *layer_params,
                           const vkmha_plan_params *plan_params)
{
    static const vkmha_host host = {0};
    vkmha_layer_params layer;
    vkmha_plan_params plan;
    vkmha_packing packing = {0};
    vkmha_schedule schedule = {0};
    vkmha_error error;
    vkmha_status status = vkmha_check_layer(layer_params, &layer, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    status = vkmha_check_plan(&layer, plan_params, &plan, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    status = vkmha_packing_init(limits, &layer, &host, &packing, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    status = vkmha_schedule_init(limits, &layer, &packing, &plan, &host, &schedule, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    const vkmha_counted counted = {
        .tiles = schedule.tiles,
        .all_tiles = schedule.all_tiles,
        .workspace_bytes = schedule.workspace_bytes,
        .state_bytes = schedule.state.bytes,
    };
    vkmha_schedule_finish(&schedule, &host);
    vkmha_packing_finish(&packing, &host);
    return counted;
}

/* ---- Against every pair ---------------------------------------------------------------------- */

static bool is_visible(const vkmha_plan_params *plan, int64_t offset, int64_t i, int64_t j)
{
    const int64_t p = i + offset;
    return (plan->causal == VKMHA_CAUSAL_NONE || j <= p) &&
           (!plan->has_window_left || j >= p - plan->window_left) &&
           (!plan->has_window_right || j <= p + plan->window_right);
}

/* Tiles of rows x keys that hold a visible pair. */
static uint64_t brute_force(const vkmha_plan_params *plan, uint64_t rows, uint64_t keys)
{
    int64_t offset = 0;
    if (plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT ||
        plan->positions == VKMHA_POSITIONS_BOTTOM_RIGHT) {
        offset = (int64_t)plan->key_len - (int64_t)plan->query_len;
    } else if (plan->causal == VKMHA_CAUSAL_OFFSET || plan->positions == VKMHA_POSITIONS_OFFSET) {
        offset = plan->position_offset;
    }
    uint64_t tiles = 0;
    for (uint64_t row = 0; row < plan->query_len; row += rows) {
        for (uint64_t key = 0; key < plan->key_len; key += keys) {
            bool is_needed = false;
            for (uint64_t i = row; i < row + rows && i < plan->query_len && !is_needed; i++) {
                for (uint64_t j = key; j < key + keys && j < plan->key_len && !is_needed; j++) {
                    is_needed = is_visible(plan, offset, (int64_t)i, (int64_t)j);
                }
            }
            tiles += is_needed;
        }
    }
    return tiles;
}

static const vkmha_plan_params forms[] = {
    {.causal = VKMHA_CAUSAL_NONE},
    {.causal = VKMHA_CAUSAL_TOP_LEFT},
    {.causal = VKMHA_CAUSAL_BOTTOM_RIGHT},
    {.causal = VKMHA_CAUSAL_OFFSET, .position_offset = 40},
    {.causal = VKMHA_CAUSAL_OFFSET, .position_offset = -70},
    {.has_window_left = true, .window_left = 50},
    {.has_window_right = true, .window_right = 20},
    {.has_window_left = true, .window_left = 33, .has_window_right = true, .window_right = 31},
    {.has_window_left = true, .has_window_right = true},
    {.causal = VKMHA_CAUSAL_TOP_LEFT, .has_window_left = true, .window_left = 63},
    {.causal = VKMHA_CAUSAL_BOTTOM_RIGHT, .has_window_left = true, .window_left = 100},
    {.causal = VKMHA_CAUSAL_OFFSET,
     .position_offset = 17,
     .has_window_left = true,
     .window_left = 64},
    {.positions = VKMHA_POSITIONS_BOTTOM_RIGHT,
     .has_window_left = true,
     .window_left = 9,
     .has_window_right = true,
     .window_right = 9},
    {.positions = VKMHA_POSITIONS_OFFSET,
     .position_offset = -33,
     .has_window_left = true,
     .window_left = 40,
     .has_window_right = true,
     .window_right = 40},
};

static const char *const rows[] = {"attention_staged", "attention_direct",
                                   "attention_direct_subgroup"};

static vkmha_tile tile_of(const char *row, uint32_t head_dim)
{
    const vkmha_variant *variant = NULL;
    vkmha_tile tile = {0};
    vkmha_error error;
    const vkmha_status status =
        vkmha_variant_pick(VKMHA_KERNEL_ATTENTION, row, &limit_tables[5].limits, head_dim, head_dim,
                           &variant, &tile, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    return tile;
}

Test(tiles, equal_a_count_of_every_pair, .timeout = 120)
{
    static const uint64_t lengths[][2] = {{1, 300},   {300, 1},   {256, 256},
                                          {301, 257}, {130, 400}, {400, 130}};
    const vkmha_layer_params layer = {.num_heads = 2, .head_dim = 16, .attention_only = true};
    uint32_t skipped = 0;
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
        for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
            for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
                vkmha_plan_params plan = forms[f];
                plan.batch_size = 3;
                plan.query_len = lengths[n][0];
                plan.key_len = lengths[n][1];
                plan.attention_kernel = rows[r];
                const vkmha_counted counted = count(&limit_tables[5].limits, &layer, &plan);
                const uint64_t heads = plan.batch_size * layer.num_heads;
                const vkmha_tile tile = tile_of(rows[r], layer.head_dim);
                const uint64_t tile_rows = tile.rows;
                const uint64_t tile_keys = tile.columns;
                const uint64_t all = (plan.query_len + tile_rows - 1) / tile_rows *
                                     ((plan.key_len + tile_keys - 1) / tile_keys);
                const uint64_t needed = brute_force(&plan, tile_rows, tile_keys);
                cr_assert(counted.all_tiles == heads * all, "%s, form %zu: %llu of %llu tiles",
                          rows[r], f, (unsigned long long)counted.all_tiles,
                          (unsigned long long)(heads * all));
                cr_assert(counted.tiles == heads * needed,
                          "%s, form %zu, %llu queries, %llu keys, tiles of %llu x %llu: %llu "
                          "planned, %llu needed",
                          rows[r], f, (unsigned long long)plan.query_len,
                          (unsigned long long)plan.key_len, (unsigned long long)tile_rows,
                          (unsigned long long)tile_keys, (unsigned long long)counted.tiles,
                          (unsigned long long)(heads * needed));
                skipped += needed < all;
            }
        }
    }
    cr_assert(skipped > 50, "only %u of the cases leave tiles out", skipped);
}

/* ---- Against the length ---------------------------------------------------------------------- */

static vkmha_counted count_length(const char *row, vkmha_plan_params plan, uint64_t length)
{
    const vkmha_layer_params layer = {.num_heads = 12, .head_dim = 64, .attention_only = true};
    plan.batch_size = 1;
    plan.query_len = plan.key_len = length;
    plan.attention_kernel = row;
    return count(&limit_tables[5].limits, &layer, &plan);
}

/* Causal order needs half of all tiles, and those that the diagonal crosses. */
Test(tiles, causal_order_halves_them)
{
    enum { LENGTH = 4096, HEADS = 12 };
    const vkmha_plan_params causal = {.causal = VKMHA_CAUSAL_TOP_LEFT};
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        const vkmha_tile tile = tile_of(rows[r], 64);
        const vkmha_counted counted = count_length(rows[r], causal, LENGTH);
        /* A run of query tiles is crossed in at most this many key steps each, and one more. */
        const uint64_t diagonal = HEADS * ((LENGTH + tile.rows - 1) / tile.rows) *
                                  ((tile.rows + tile.columns - 1) / tile.columns + 1);
        cr_assert(counted.tiles >= counted.all_tiles / 2, "%s: %llu of %llu", rows[r],
                  (unsigned long long)counted.tiles, (unsigned long long)counted.all_tiles);
        cr_assert(counted.tiles <= counted.all_tiles / 2 + diagonal,
                  "%s: %llu of %llu, diagonal %llu", rows[r], (unsigned long long)counted.tiles,
                  (unsigned long long)counted.all_tiles, (unsigned long long)diagonal);
        cr_assert(count_length(rows[r], (vkmha_plan_params){0}, LENGTH).tiles == counted.all_tiles);
    }
}

Test(tiles, windows_are_linear)
{
    enum { LENGTH = 16384, HEADS = 12, WINDOW = 256 };
    const vkmha_plan_params window = {
        .causal = VKMHA_CAUSAL_TOP_LEFT, .has_window_left = true, .window_left = WINDOW - 1};
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        const vkmha_tile tile = tile_of(rows[r], 64);
        const vkmha_counted counted = count_length(rows[r], window, LENGTH);
        const vkmha_counted half = count_length(rows[r], window, LENGTH / 2);
        const uint64_t most = HEADS * ((LENGTH + tile.rows - 1) / tile.rows) *
                              ((WINDOW + tile.rows - 2) / tile.columns + 2);
        cr_assert(counted.tiles <= most, "%s: %llu tiles, not at most %llu of %llu", rows[r],
                  (unsigned long long)counted.tiles, (unsigned long long)most,
                  (unsigned long long)counted.all_tiles);
        /* The first tiles see less than a whole window, so that half the length needs a little
         * less. */
        cr_assert(counted.tiles >= 2 * half.tiles && counted.tiles <= 2 * half.tiles + most / 16,
                  "%s: %llu tiles, %llu of half the length", rows[r],
                  (unsigned long long)counted.tiles, (unsigned long long)half.tiles);
        cr_assert(counted.tiles < counted.all_tiles / 16);
    }
}

Test(tiles, workspace_doubles_with_the_length)
{
    enum { HEADS = 12, DIM = 64, ALIGNMENT = 4096 };
    vkmha_layer_params layer = {.num_heads = HEADS, .head_dim = DIM, .embed_dim = HEADS * DIM};
    static const float weight[1];
    const vkmha_matrix matrix = {.data = weight, .rows = HEADS * DIM, .columns = HEADS * DIM};
    layer.w_q = layer.w_k = layer.w_v = layer.w_o = matrix;
    for (size_t t = 0; t < NUM_LIMIT_TABLES; t++) {
        for (uint32_t form = 0; form < 2; form++) {
            uint64_t before = 0;
            for (uint64_t length = 1024; length <= 16384; length *= 2) {
                const vkmha_plan_params plan = {.batch_size = 1,
                                                .query_len = length,
                                                .key_len = length,
                                                .key_is_query = true,
                                                .value_is_key = true,
                                                .causal = form ? VKMHA_CAUSAL_TOP_LEFT
                                                               : VKMHA_CAUSAL_NONE};
                const vkmha_counted counted = count(&limit_tables[t].limits, &layer, &plan);
                /* Where the work limit cuts keys: a maximum, a sum and the outputs so far of each
                 * row. */
                const uint64_t rows_state = length * HEADS * (DIM + 2) * sizeof(float) + ALIGNMENT;
                cr_assert(counted.state_bytes <= rows_state, "%s: %llu keys: %llu bytes of state",
                          limit_tables[t].name, (unsigned long long)length,
                          (unsigned long long)counted.state_bytes);
                const uint64_t bytes = counted.workspace_bytes - counted.state_bytes;
                /* Query, key, value and attention must be somewhere; scores of 12 heads would be
                 * more. */
                cr_assert(bytes >= 4 * length * HEADS * DIM * sizeof(float));
                cr_assert(before == 0 || bytes <= 2 * before + ALIGNMENT,
                          "%s: %llu keys: %llu bytes after %llu", limit_tables[t].name,
                          (unsigned long long)length, (unsigned long long)bytes,
                          (unsigned long long)before);
                before = bytes;
            }
            cr_assert(before < (uint64_t)16384 * 16384 * sizeof(float));
        }
    }
}
