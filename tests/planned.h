/* Plans for limits of devices that need not be here, and what must hold for every step of any. */
#ifndef VKMHA_TESTS_PLANNED_H
#define VKMHA_TESTS_PLANNED_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limit_tables.h"
#include "runtime/schedule.h"

typedef struct vkmha_planned {
    vkmha_layer_params layer;
    vkmha_plan_params plan;
    vkmha_packing packing;
    vkmha_schedule schedule;
    vkmha_status status;
    vkmha_error error;
} vkmha_planned;

static const vkmha_host host = {0};
static const float some_weight[1] = {0.0f};

static inline vkmha_layer_params layer_of(uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
                                   uint32_t v_head_dim, bool attention_only)
{
    vkmha_layer_params layer = {.num_heads = heads,
                                .num_kv_heads = kv_heads,
                                .head_dim = head_dim,
                                .v_head_dim = v_head_dim,
                                .attention_only = attention_only};
    if (!attention_only) {
        layer.embed_dim = heads * head_dim;
        layer.w_q = (vkmha_matrix){some_weight, 0, heads * head_dim, layer.embed_dim, 0, 0};
        layer.w_k = (vkmha_matrix){some_weight, 0, kv_heads * head_dim, layer.embed_dim, 0, 0};
        layer.w_v = (vkmha_matrix){some_weight, 0, kv_heads * v_head_dim, layer.embed_dim, 0, 0};
        layer.w_o = (vkmha_matrix){some_weight, 0, layer.embed_dim, heads * v_head_dim, 0, 0};
    }
    return layer;
}

static inline void plan_for(const vkmha_limits *limits, const vkmha_layer_params *layer,
                     const vkmha_plan_params *plan, vkmha_planned *planned)
{
    memset(planned, 0, sizeof(*planned));
    planned->status = vkmha_check_layer(layer, &planned->layer, &planned->error);
    if (planned->status == VKMHA_OK) {
        planned->status = vkmha_check_plan(&planned->layer, plan, &planned->plan, &planned->error);
    }
    if (planned->status == VKMHA_OK) {
        planned->status =
            vkmha_packing_init(limits, &planned->layer, &host, &planned->packing, &planned->error);
    }
    if (planned->status == VKMHA_OK) {
        planned->status = vkmha_schedule_init(limits, &planned->layer, &planned->packing, &planned->plan,
                                              &host, &planned->schedule, &planned->error);
    }
}

static inline void finish(vkmha_planned *planned)
{
    vkmha_schedule_finish(&planned->schedule, &host);
    vkmha_packing_finish(&planned->packing, &host);
}

static inline uint64_t cache_elements(const vkmha_planned *planned, uint32_t dim)
{
    return planned->plan.batch_size * planned->layer.num_kv_heads * planned->plan.cache_capacity *
           ((dim + 3) / 4 * 4);
}

/* Whole words. */
static uint64_t stored_bytes(uint64_t elements, vkmha_type type)
{
    return (elements * vkmha_type_bytes(type) + 3) / 4 * 4;
}

static inline uint64_t resource_bytes(const vkmha_planned *planned, const vkmha_range *range)
{
    const vkmha_plan_params *plan = &planned->plan;
    const vkmha_type kept = planned->layer.cache_type;
    vkmha_sizes sizes;
    vkmha_plan_sizes(&planned->layer, plan, &sizes);
    switch (range->resource) {
    case VKMHA_RESOURCE_QUERY:
        return stored_bytes(sizes.query, plan->query_type);
    case VKMHA_RESOURCE_KEY:
        return stored_bytes(sizes.key, plan->key_type);
    case VKMHA_RESOURCE_VALUE:
        return stored_bytes(sizes.value, plan->value_type);
    case VKMHA_RESOURCE_MASK:
        return (sizes.mask_bytes + 3) / 4 * 4;
    case VKMHA_RESOURCE_ATTEND_KEYS:
        return (sizes.attend_keys + 3) / 4 * 4;
    case VKMHA_RESOURCE_SEQUENCES:
        return sizes.sequences * 32;
    case VKMHA_RESOURCE_POSITIONS:
        return sizes.positions * 4;
    case VKMHA_RESOURCE_GATES:
        return (sizes.head_gates * 4 + 15) / 16 * 16;
    case VKMHA_RESOURCE_PAST_KEY:
        return stored_bytes(sizes.past_key, kept);
    case VKMHA_RESOURCE_PAST_VALUE:
        return stored_bytes(sizes.past_value, kept);
    case VKMHA_RESOURCE_CACHE_KEY:
        return stored_bytes(cache_elements(planned, planned->layer.head_dim), kept);
    case VKMHA_RESOURCE_CACHE_VALUE:
        return stored_bytes(cache_elements(planned, planned->layer.v_head_dim), kept);
    case VKMHA_RESOURCE_PRESENT_KEY:
        return stored_bytes(sizes.present_key, kept);
    case VKMHA_RESOURCE_PRESENT_VALUE:
        return stored_bytes(sizes.present_value, kept);
    case VKMHA_RESOURCE_OUTPUT_GRADIENT:
        return sizes.output_gradient * 4;
    case VKMHA_RESOURCE_LSE:
        return sizes.lse * 4;
    case VKMHA_RESOURCE_TOLD_WEIGHTS:
        return sizes.weights * 4;
    case VKMHA_RESOURCE_MEAN_WEIGHTS:
        return sizes.mean_weights * 4;
    case VKMHA_RESOURCE_SCORES:
        return sizes.scores * 4;
    case VKMHA_RESOURCE_STATISTICS:
        return sizes.statistics * 4;
    case VKMHA_RESOURCE_KEY_MASS:
        return sizes.key_mass * 4;
    case VKMHA_RESOURCE_CONTRIBUTIONS:
        return sizes.contributions * 4;
    case VKMHA_RESOURCE_GATE_GRADIENTS:
        return sizes.gate_gradients * 4;
    case VKMHA_RESOURCE_OPTIONS:
        return (sizeof(vkmha_attention_options) + 15) / 16 * 16;
    case VKMHA_RESOURCE_OUTPUT:
        return stored_bytes(sizes.output, plan->output_type);
    case VKMHA_RESOURCE_WORKSPACE:
        return planned->schedule.workspace_bytes;
    case VKMHA_RESOURCE_WEIGHTS:
        return planned->packing.block_bytes[range->block];
    case VKMHA_RESOURCE_NULL_UNIFORM:
        return 16;
    case VKMHA_RESOURCE_NONE:
        break;
    }
    return 0;
}

static inline bool is_least(const vkmha_planned *planned, const vkmha_step *step)
{
    const uint64_t groups = (uint64_t)step->groups[0] * step->groups[1] * step->groups[2];
    return groups == 1 &&
           (step->stage != VKMHA_STAGE_ATTENTION ||
            step->push.attention.key_end - step->push.attention.key_begin <= VKMHA_KEY_CHUNK) &&
           planned->status == VKMHA_OK;
}

static inline void check_step(const char *table, const vkmha_limits *limits, const vkmha_planned *planned,
                       const vkmha_step *step, uint64_t max_work)
{
    for (int axis = 0; axis < 3; axis++) {
        cr_assert(step->groups[axis] >= 1 && step->groups[axis] <= limits->max_groups[axis],
                  "%s: groups[%d] %u", table, axis, step->groups[axis]);
    }
    cr_assert(step->shared_bytes <= limits->max_shared_bytes, "%s: shared %u", table,
              step->shared_bytes);
    cr_assert(step->constants.WORKGROUP >= 1 &&
                  step->constants.WORKGROUP <= limits->max_workgroup_invocations &&
                  step->constants.WORKGROUP <= limits->max_workgroup_size[0],
              "%s: workgroup %u", table, step->constants.WORKGROUP);
    cr_assert(step->push_bytes <= 128 && step->push_bytes <= limits->max_push_constant_bytes);
    cr_assert(limits->max_loop_trips == 0 || step->loop_trips <= limits->max_loop_trips,
              "%s: %llu loop trips", table, (unsigned long long)step->loop_trips);
    cr_assert(step->work <= max_work || is_least(planned, step), "%s: work %llu over %llu", table,
              (unsigned long long)step->work, (unsigned long long)max_work);
    for (uint32_t i = 0; i < VKMHA_NUM_BINDINGS; i++) {
        const vkmha_range *range = &step->bindings[i];
        if (range->resource == VKMHA_RESOURCE_NONE) {
            continue;
        }
        const bool is_uniform = i >= VKMHA_NUM_STORAGE_BINDINGS;
        cr_assert(range->bytes > 0 && range->bytes % 4 == 0);
        cr_assert(range->bytes <= (is_uniform ? limits->max_uniform_range_bytes
                                              : limits->max_storage_range_bytes),
                  "%s: binding %u of %llu bytes", table, i, (unsigned long long)range->bytes);
        cr_assert(range->offset % (is_uniform ? limits->uniform_alignment_bytes
                                              : limits->storage_alignment_bytes) ==
                      0,
                  "%s: binding %u at %llu", table, i, (unsigned long long)range->offset);
        cr_assert(range->offset + range->bytes <= resource_bytes(planned, range),
                  "%s: binding %u reaches %llu of %llu bytes", table, i,
                  (unsigned long long)(range->offset + range->bytes),
                  (unsigned long long)resource_bytes(planned, range));
    }
}

static inline bool ranges_conflict(const vkmha_range *a, const vkmha_range *b)
{
    return a->resource != VKMHA_RESOURCE_NONE && a->resource == b->resource && a->block == b->block &&
           (a->is_written || b->is_written) && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Every two steps that touch the same bytes, one of them writing, have a barrier between them. */
static inline void check_barriers(const char *table, const vkmha_schedule *schedule)
{
    for (uint32_t later = 1; later < schedule->num_steps; later++) {
        uint32_t earlier = later;
        while (earlier > 0 && !schedule->steps[earlier].needs_barrier) {
            earlier--;
            for (uint32_t a = 0; a < VKMHA_NUM_BINDINGS; a++) {
                for (uint32_t b = 0; b < VKMHA_NUM_BINDINGS; b++) {
                    cr_assert(!ranges_conflict(&schedule->steps[earlier].bindings[a],
                                               &schedule->steps[later].bindings[b]),
                              "%s: steps %u and %u conflict without a barrier", table, earlier, later);
                }
            }
        }
    }
}

#endif
