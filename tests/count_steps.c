/*
 * Steps of keys that workgroups run, counted on the device: these kernels write the number as their
 * output. It must be what the planner says, and what a count of every pair needs.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "made.h"
#include "runtime/variants.h"

enum { HEADS = 3, DIM = 8, ROW = HEADS * DIM, BATCH = 2 };

static const vkmha_plan_params forms[] = {
    {.query_len = 300, .key_len = 300, .causal = VKMHA_CAUSAL_TOP_LEFT},
    {.query_len = 130, .key_len = 900, .causal = VKMHA_CAUSAL_BOTTOM_RIGHT},
    {.query_len = 300, .key_len = 130, .causal = VKMHA_CAUSAL_BOTTOM_RIGHT},
    {.query_len = 150, .key_len = 300, .causal = VKMHA_CAUSAL_OFFSET, .position_offset = 70},
    {.query_len = 600,
     .key_len = 600,
     .has_window_left = true,
     .window_left = 40,
     .has_window_right = true},
    {.query_len = 1500,
     .key_len = 1500,
     .causal = VKMHA_CAUSAL_TOP_LEFT,
     .has_window_left = true,
     .window_left = 255},
    {.query_len = 77, .key_len = 201},
    /* Queries behind all keys: their windows begin past the last, in the same step or later. */
    {.query_len = 300, .key_len = 130, .has_window_left = true, .window_left = 9},
    /* Known to the run alone: lengths, first keys. */
    {.query_len = 200, .key_len = 400, .has_key_lengths = true, .has_first_keys = true},
    {.query_len = 200,
     .key_len = 400,
     .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
     .has_key_lengths = true,
     .has_first_keys = true},
};

static const int32_t lengths[BATCH] = {130, 390};
static const int32_t first_keys[BATCH] = {0, 200};

/* Keys x..y-1 that query i of sequence b sees. */
static void visible(const vkmha_plan_params *plan, uint32_t b, int64_t i, int64_t *first,
                    int64_t *end)
{
    const int64_t length = plan->has_key_lengths ? lengths[b] : (int64_t)plan->key_len;
    int64_t p = i + plan->position_offset;
    if (plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT) {
        p = i + length - (int64_t)plan->query_len;
    }
    const int64_t right = plan->causal != VKMHA_CAUSAL_NONE ? 0
                          : plan->has_window_right          ? (int64_t)plan->window_right
                                                            : INT32_MAX;
    *end = p + right + 1 < length ? p + right + 1 : length;
    *first = plan->has_first_keys ? first_keys[b] : 0;
    if (plan->has_window_left && p - plan->window_left > *first) {
        *first = p - plan->window_left;
    }
}

/* Steps of `keys` keys that rows first_row..first_row+rows-1 need: those that hold a visible pair.
 */
static uint64_t needed_steps(const vkmha_plan_params *plan, uint32_t b, uint64_t first_row,
                             uint64_t rows, uint64_t keys)
{
    uint64_t steps = 0;
    for (uint64_t key = 0; key < plan->key_len; key += keys) {
        bool is_needed = false;
        for (uint64_t i = first_row; i < first_row + rows && i < plan->query_len; i++) {
            int64_t first;
            int64_t end;
            visible(plan, b, (int64_t)i, &first, &end);
            is_needed |= first < end && first < (int64_t)(key + keys) && end > (int64_t)key;
        }
        steps += is_needed;
    }
    return steps;
}

static vkmha_tile tile_of(const vkmha_test_target *target)
{
    vkmha_device_info info;
    vkmha_device_get_info(target->device, &info);
    vkmha_tile tile = {0};
    const vkmha_variant *variant = NULL;
    vkmha_error error;
    const vkmha_status status = vkmha_variant_pick(VKMHA_KERNEL_ATTENTION, target->attention_kernel,
                                                   &info.limits, DIM, DIM, &variant, &tile, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    return tile;
}

static void count(const vkmha_test_target *target)
{
    const vkmha_layer_params layer = {.num_heads = HEADS, .head_dim = DIM, .attention_only = true};
    const vkmha_tile tile = tile_of(target);
    /* Subgroups of one workgroup step on their own. */
    const bool is_alone = strcmp(target->attention_kernel, "attention_direct_subgroup") == 0;
    const uint64_t rows = is_alone ? tile.constants.ROWS : tile.rows;
    for (size_t n = 0; n < sizeof(forms) / sizeof(forms[0]); n++) {
        vkmha_plan_params plan = forms[n];
        plan.batch_size = BATCH;
        float *query = vkmha_test_values(BATCH * plan.query_len * ROW, 1);
        float *key = vkmha_test_values(BATCH * plan.key_len * ROW, 2);
        float *output = vkmha_test_allocate(BATCH * plan.query_len * ROW, sizeof(float));
        const vkmha_inputs inputs = {.query = query,
                                     .key = key,
                                     .value = key,
                                     .key_lengths = plan.has_key_lengths ? lengths : NULL,
                                     .first_keys = plan.has_first_keys ? first_keys : NULL};
        vkmha_test_made made = vkmha_test_make(target, &layer, &plan);
        /* Split or cut keys would be counted by another kernel, or in part. */
        cr_assert(made.info.num_dispatches == 1, "form %zu: %u dispatches", n,
                  made.info.num_dispatches);
        vkmha_test_made_run(&made, &inputs, output);
        uint64_t total = 0;
        for (uint64_t row = 0; row < BATCH * plan.query_len; row++) {
            const uint32_t b = (uint32_t)(row / plan.query_len);
            const uint64_t i = row % plan.query_len;
            const uint64_t first_row = i / rows * rows;
            const uint64_t needed = needed_steps(&plan, b, first_row, rows, tile.columns);
            for (uint32_t h = 0; h < HEADS; h++) {
                const float counted = output[row * ROW + h * DIM];
                cr_assert(
                    counted == (float)needed,
                    "%s, %s, form %zu: sequence %u, query %llu, head %u: %g steps, %llu needed",
                    target->device_name, target->attention_kernel, n, b, (unsigned long long)i, h,
                    (double)counted, (unsigned long long)needed);
                total += i == first_row ? (uint64_t)counted : 0;
            }
        }
        const bool is_known = !plan.has_key_lengths && !plan.has_first_keys;
        cr_assert(rows != tile.rows ||
                      (is_known ? total == made.info.tiles : total < made.info.tiles),
                  "%s, form %zu: %llu steps, %llu tiles planned", target->attention_kernel, n,
                  (unsigned long long)total, (unsigned long long)made.info.tiles);
        vkmha_test_unmake(&made);
        free(output);
        free(key);
        free(query);
    }
}

Test(count_steps, what_runs_is_what_was_planned, .timeout = 300)
{
    vkmha_test_each_attention_row(count);
}
