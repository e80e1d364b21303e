/* The checks behind params.h that are split over several files. */
#ifndef VKMHA_RUNTIME_PARAMS_CHECK_H
#define VKMHA_RUNTIME_PARAMS_CHECK_H

#include "params.h"

/* Of a position: kernels add and compare positions, windows and lengths in 32 bits. */
enum { VKMHA_MAX_OFFSET = 1 << 30 };

/* Positions, lengths and batches are dispatched in 32-bit arithmetic: a length and an offset add up in it. */
#define VKMHA_MAX_LENGTH ((uint64_t)VKMHA_MAX_OFFSET - 1)

enum { VKMHA_MAX_HEAD_DIM = 256 };

/* Keys of a sequence: past and new ones, or a cache's capacity. */
static inline uint64_t vkmha_all_keys(const vkmha_plan_params *plan)
{
    return plan->cache_capacity ? plan->cache_capacity : plan->past_len + plan->key_len;
}

vkmha_status vkmha_check_range(const char *field, uint64_t value, uint64_t low, uint64_t high,
                               vkmha_error *error) VKMHA_CHECKED;

vkmha_status vkmha_check_type(const char *field, vkmha_type type, vkmha_error *error) VKMHA_CHECKED;

/* What a layer does beyond plain attention; `layer` is a copy of `given` with heads and dims
 * checked. */
vkmha_status vkmha_check_options(const vkmha_layer_params *given, vkmha_layer_params *layer,
                                 vkmha_error *error) VKMHA_CHECKED;

/* Rotary positions of heads of `head_dim` features; writes a copy without defaults. */
vkmha_status vkmha_check_rope(const vkmha_rope *given, uint32_t head_dim, vkmha_rope *rope,
                              vkmha_error *error) VKMHA_CHECKED;

/* Fills in the strides of `plan`, whose lengths are checked. */
vkmha_status vkmha_check_strides(const vkmha_layer_params *layer, vkmha_plan_params *plan,
                                 vkmha_error *error) VKMHA_CHECKED;

/* What is asked for besides the output. */
vkmha_status vkmha_check_asked(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                               vkmha_error *error) VKMHA_CHECKED;

/* The sizes of that; all_keys and query_rows are there. */
void vkmha_told_sizes(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                      vkmha_sizes *sizes);

/* Whether the rotary positions that follow from p and j lie in the table, for sequence b. For a
 * cache, whose lengths vkmha_check_inputs does not know, its owner calls this. */
vkmha_status vkmha_check_item_positions(const vkmha_layer_params *layer,
                                        const vkmha_plan_params *plan, const vkmha_item *item,
                                        uint64_t b, vkmha_error *error) VKMHA_CHECKED;

#endif
