/* Masks of random problems, and what they and the positions allow. */
#include "shape.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- Masks --------------------------------------------------------------------------------- */

enum {
    HALF_NONE = 0xfc00,   /* -Inf */
    HALF_LOWEST = 0xfbff, /* -65504 */
};

/* Multiples of 1/64 within 4, and the two ends, which fp16 holds exactly. */
static uint16_t half_of(float value)
{
    uint32_t bits = 0;
    if (value == -INFINITY || value == -FLT_MAX) {
        return value == -INFINITY ? HALF_NONE : HALF_LOWEST;
    }
    memcpy(&bits, &value, sizeof(value));
    if ((bits & 0x7fffffffu) == 0) {
        return 0;
    }
    const uint32_t exponent = (bits >> 23 & 0xffu) - 127u + 15u;
    return (uint16_t)((bits >> 16 & 0x8000u) | exponent << 10 | (bits & 0x7fffffu) >> 13);
}

/* `value` is what is added; -Inf: not allowed. */
static void set_cell(vkmha_filler *fill, char *row, uint64_t j, float value)
{
    const bool is_kept = value != -INFINITY;
    const uint16_t half = half_of(value);
    uint8_t byte = 0;
    uint32_t word = 0;
    switch (fill->shape->problem.plan.mask) {
    case VKMHA_MASK_NONE:
        break;
    case VKMHA_MASK_ATTEND:
        byte = is_kept ? (uint8_t)(1 + vkmha_random_below(&fill->random, 255)) : 0;
        row[j] = (char)byte;
        break;
    case VKMHA_MASK_ADDITIVE:
        memcpy(row + j * sizeof(value), &value, sizeof(value));
        break;
    case VKMHA_MASK_ADDITIVE_F16:
        memcpy(row + j * sizeof(half), &half, sizeof(half));
        break;
    case VKMHA_MASK_ATTEND_BITS:
        memcpy(&word, row + j / 32 * sizeof(word), sizeof(word));
        word &= ~(UINT32_C(1) << j % 32);
        word |= (uint32_t)is_kept << j % 32;
        memcpy(row + j / 32 * sizeof(word), &word, sizeof(word));
        break;
    }
}

/* One row of the mask gets one value. */
static void draw_mask_row(vkmha_filler *fill, char *mask, float value)
{
    const vkmha_plan_params *plan = &fill->shape->problem.plan;
    const uint64_t *dims = plan->mask_dims;
    const uint64_t rows = dims[0] * dims[1] * dims[2];
    if (rows == 0 || dims[3] == 0) {
        return;
    }
    const uint64_t row = vkmha_random_below(&fill->random, rows);
    for (uint64_t j = 0; j < dims[3]; j++) {
        set_cell(fill, mask + row * vkmha_mask_row_bytes(plan), j, value);
    }
    vkmha_shape_mark(fill->shape,
                     value == -FLT_MAX ? VKMHA_FEATURE_LOWEST_ROW : VKMHA_FEATURE_MASKED_ROW);
}

static void draw_mask(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    const uint64_t *dims = plan->mask_dims;
    const uint64_t rows = dims[0] * dims[1] * dims[2];
    const bool is_additive =
        plan->mask == VKMHA_MASK_ADDITIVE || plan->mask == VKMHA_MASK_ADDITIVE_F16;
    char *mask = vkmha_filler_allocate(fill, rows, vkmha_mask_row_bytes(plan) + 1);
    if (!mask) {
        return;
    }
    /* Bits behind the last key mean nothing. */
    if (plan->mask == VKMHA_MASK_ATTEND_BITS) {
        memset(mask, 0xff, (size_t)(rows * vkmha_mask_row_bytes(plan)));
    }
    const float lowest =
        is_additive && vkmha_random_chance(&fill->random, 30) ? -FLT_MAX : -INFINITY;
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t j = 0; j < dims[3]; j++) {
            const bool is_kept = vkmha_random_chance(&fill->random, 75);
            set_cell(fill, mask + row * vkmha_mask_row_bytes(plan), j,
                     is_kept ? vkmha_filler_value(fill) : lowest);
        }
    }
    if (vkmha_random_chance(&fill->random, 40)) {
        draw_mask_row(fill, mask, -INFINITY);
    }
    if (is_additive && vkmha_random_chance(&fill->random, 40)) {
        draw_mask_row(fill, mask, -FLT_MAX);
    }
    problem->inputs.mask = mask;
}

/* ---- Keys ---------------------------------------------------------------------------------- */

static void draw_attend_keys(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    const uint64_t count =
        problem->plan.batch_size * (problem->plan.past_len + problem->plan.key_len);
    uint8_t *attend = vkmha_filler_allocate(fill, count, 1);
    const bool is_empty = vkmha_random_chance(&fill->random, 5);
    for (uint64_t i = 0; attend && i < count; i++) {
        attend[i] = !is_empty && vkmha_random_chance(&fill->random, 70);
    }
    problem->inputs.attend_keys = attend;
}

/* percent: how often it is `usual`; else 0..all keys. */
static int32_t *draw_counts(vkmha_filler *fill, uint32_t percent, uint64_t usual)
{
    const vkmha_plan_params *plan = &fill->shape->problem.plan;
    int32_t *counts = vkmha_filler_allocate(fill, plan->batch_size, sizeof(int32_t));
    for (uint64_t b = 0; counts && b < plan->batch_size; b++) {
        counts[b] =
            vkmha_random_chance(&fill->random, percent)
                ? (int32_t)usual
                : (int32_t)vkmha_random_below(&fill->random, plan->past_len + plan->key_len + 1);
    }
    return counts;
}

bool vkmha_shape_fill_masks(vkmha_shape *shape)
{
    const vkmha_plan_params *plan = &shape->problem.plan;
    vkmha_filler mask = vkmha_filler_start(shape, VKMHA_OPTION_MASK);
    vkmha_filler attend = vkmha_filler_start(shape, VKMHA_OPTION_ATTEND_KEYS);
    vkmha_filler lengths = vkmha_filler_start(shape, VKMHA_OPTION_KEY_LENGTHS);
    vkmha_filler first = vkmha_filler_start(shape, VKMHA_OPTION_FIRST_KEYS);
    if (plan->mask != VKMHA_MASK_NONE) {
        draw_mask(&mask);
    }
    if (plan->has_attend_keys) {
        draw_attend_keys(&attend);
    }
    if (plan->has_key_lengths) {
        shape->problem.inputs.key_lengths =
            draw_counts(&lengths, 20, plan->past_len + plan->key_len);
    }
    if (plan->has_first_keys) {
        shape->problem.inputs.first_keys = draw_counts(&first, 40, 0);
    }
    return mask.has_memory && attend.has_memory && lengths.has_memory && first.has_memory;
}

/* ---- What is allowed ----------------------------------------------------------------------- */

static bool mask_allows(const vkmha_problem *problem, uint64_t b, uint64_t h, uint64_t i,
                        uint64_t j)
{
    const vkmha_plan_params *plan = &problem->plan;
    const uint64_t *dims = plan->mask_dims;
    const uint64_t row =
        ((dims[0] > 1 ? b : 0) * dims[1] + (dims[1] > 1 ? h : 0)) * dims[2] + (dims[2] > 1 ? i : 0);
    const uint64_t at = dims[3] > 1 ? j : 0;
    const char *cells = (const char *)problem->inputs.mask + row * vkmha_mask_row_bytes(plan);
    float value = 0.0f;
    uint16_t half = 0;
    uint32_t word = 0;
    switch (plan->mask) {
    case VKMHA_MASK_NONE:
        break;
    case VKMHA_MASK_ATTEND:
        return cells[at] != 0;
    case VKMHA_MASK_ADDITIVE:
        memcpy(&value, cells + at * sizeof(value), sizeof(value));
        return value != -INFINITY;
    case VKMHA_MASK_ADDITIVE_F16:
        memcpy(&half, cells + at * sizeof(half), sizeof(half));
        return half != HALF_NONE;
    case VKMHA_MASK_ATTEND_BITS:
        memcpy(&word, cells + at / 32 * sizeof(word), sizeof(word));
        return (word >> at % 32 & 1u) != 0;
    }
    return true;
}

bool vkmha_shape_allows(const vkmha_problem *problem, const vkmha_problem_item *item, uint64_t b,
                        uint64_t h, uint64_t i, uint64_t j)
{
    const vkmha_plan_params *plan = &problem->plan;
    const int64_t key = (int64_t)j;
    const int64_t position = (int64_t)i + item->position_offset;
    if (key < item->first_key || key >= item->key_length ||
        (plan->causal != VKMHA_CAUSAL_NONE && key > position) ||
        (plan->has_window_left && key < position - (int64_t)plan->window_left) ||
        (plan->has_window_right && key > position + (int64_t)plan->window_right)) {
        return false;
    }
    return (!plan->has_attend_keys ||
            problem->inputs.attend_keys[b * (plan->past_len + plan->key_len) + j] != 0) &&
           mask_allows(problem, b, h, i, j);
}
