/* The planner on limits of many devices: every bound of every step, and that the steps do all the work once. */
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

static vkmha_layer_params layer_of(uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
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

static void plan_for(const vkmha_limits *limits, const vkmha_layer_params *layer,
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

static void finish(vkmha_planned *planned)
{
    vkmha_schedule_finish(&planned->schedule, &host);
    vkmha_packing_finish(&planned->packing, &host);
}

static uint64_t cache_elements(const vkmha_planned *planned, uint32_t dim)
{
    return planned->plan.batch_size * planned->layer.num_kv_heads * planned->plan.cache_capacity *
           ((dim + 3) / 4 * 4);
}

/* Whole words. */
static uint64_t stored_bytes(uint64_t elements, vkmha_type type)
{
    return (elements * vkmha_type_bytes(type) + 3) / 4 * 4;
}

static uint64_t resource_bytes(const vkmha_planned *planned, const vkmha_range *range)
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

static bool is_least(const vkmha_planned *planned, const vkmha_step *step)
{
    const uint64_t groups = (uint64_t)step->groups[0] * step->groups[1] * step->groups[2];
    return groups == 1 &&
           (step->stage != VKMHA_STAGE_ATTENTION ||
            step->push.attention.key_end - step->push.attention.key_begin <= VKMHA_KEY_CHUNK) &&
           planned->status == VKMHA_OK;
}

static void check_step(const char *table, const vkmha_limits *limits, const vkmha_planned *planned,
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

static bool ranges_conflict(const vkmha_range *a, const vkmha_range *b)
{
    return a->resource != VKMHA_RESOURCE_NONE && a->resource == b->resource && a->block == b->block &&
           (a->is_written || b->is_written) && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Every two steps that touch the same bytes, one of them writing, have a barrier between them. */
static void check_barriers(const char *table, const vkmha_schedule *schedule)
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

/* The steps' rows x columns, and queries x heads x keys, add up to the whole once. */
static void check_cover(const char *table, const vkmha_planned *planned)
{
    const vkmha_plan_params *plan = &planned->plan;
    const vkmha_layer_params *layer = &planned->layer;
    uint64_t projected = 0;
    uint64_t output = 0;
    uint64_t next_key = 0; /* of the box that is being cut over keys */
    uint64_t first_rows = 0;
    uint64_t last_rows = 0;
    for (uint32_t i = 0; i < planned->schedule.num_steps; i++) {
        const vkmha_step *step = &planned->schedule.steps[i];
        if (step->variant->kernel == VKMHA_KERNEL_PLACE) {
            continue;
        }
        if (step->stage == VKMHA_STAGE_ATTENTION) {
            const uint64_t rows =
                (uint64_t)step->push.attention.query_count * step->groups[1] * step->groups[2];
            const vkmha_attention_push *push = &step->push.attention;
            if (step->variant->kernel == VKMHA_KERNEL_MERGE) {
                /* It joins what the step before, which began these rows, left of all their keys. */
                const vkmha_attention_push *split = &planned->schedule.steps[i - 1].push.attention;
                cr_assert_eq(push->key_begin, split->key_begin, "%s", table);
                cr_assert_eq(push->key_end, split->key_end, "%s", table);
                last_rows += rows;
                continue;
            }
            const bool is_split = (step->constants.CLASSES & VKMHA_CLASS_SPLIT) != 0;
            next_key = push->flags & VKMHA_FLAG_FIRST ? 0 : next_key;
            cr_assert_eq(push->key_begin, next_key, "%s: keys %u.. where %llu.. were next", table,
                         push->key_begin, (unsigned long long)next_key);
            const bool is_end = is_split || (push->flags & VKMHA_FLAG_LAST) != 0;
            cr_assert(push->key_end % VKMHA_KEY_CHUNK == 0 || is_end);
            cr_assert(push->key_end == plan->key_len || !is_end ||
                      plan->causal != VKMHA_CAUSAL_NONE);
            next_key = push->key_end;
            first_rows += push->flags & VKMHA_FLAG_FIRST ? rows : 0;
            last_rows += push->flags & VKMHA_FLAG_LAST ? rows : 0;
        } else {
            const uint64_t cells = (uint64_t)step->push.project.rows * step->push.project.columns;
            *(step->stage == VKMHA_STAGE_PROJECT ? &projected : &output) += cells;
        }
    }
    const uint64_t rows = plan->batch_size * plan->query_len;
    cr_assert_eq(first_rows, rows * layer->num_heads, "%s", table);
    cr_assert_eq(last_rows, rows * layer->num_heads, "%s", table);
    if (!layer->attention_only) {
        const uint64_t key_pitch = vkmha_round_up(layer->head_dim, 4);
        const uint64_t value_pitch = vkmha_round_up(layer->v_head_dim, 4);
        cr_assert_eq(projected, rows * layer->num_heads * key_pitch +
                                    plan->batch_size * plan->key_len * layer->num_kv_heads *
                                        (key_pitch + value_pitch),
                     "%s", table);
        cr_assert_eq(output, rows * vkmha_round_up(layer->output_dim, 4), "%s", table);
    }
}

static void check_plan(const vkmha_named_limits *table, const vkmha_planned *planned)
{
    const uint64_t max_work = planned->plan.max_work_per_dispatch
                                  ? planned->plan.max_work_per_dispatch
                                  : table->limits.max_work_per_dispatch;
    for (uint32_t i = 0; i < planned->schedule.num_steps; i++) {
        check_step(table->name, &table->limits, planned, &planned->schedule.steps[i], max_work);
    }
    check_barriers(table->name, &planned->schedule);
    check_cover(table->name, planned);
    cr_assert(planned->schedule.workspace_bytes <= table->limits.max_allocation_bytes);
}

/* F46, F48, F49, F52: every limit of every device, all head sizes, types and lengths, both kinds of layer. */
Test(plan, F46_F48_F49_F52_every_limit_is_honoured, .timeout = 120)
{
    static const uint32_t dims[] = {1, 3, 4, 16, 32, 37, 64, 72, 80, 96, 128, 160, 255, 256};
    static const uint64_t lengths[] = {1, 2, 31, 32, 33, 127, 1000, 1024, 1025, 4096, 16384, 65537, 131072};
    for (size_t t = 0; t < NUM_LIMIT_TABLES; t++) {
        for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++) {
            for (size_t n = 0; n < sizeof(lengths) / sizeof(lengths[0]); n++) {
                for (int form = 0; form < 4; form++) {
                    vkmha_layer_params layer = layer_of(4, 2, dims[d], dims[d], form % 2 == 1);
                    const vkmha_type type = (vkmha_type)(d % 3);
                    layer.weight_type = form % 2 == 0 ? type : VKMHA_TYPE_F32;
                    vkmha_plan_params plan = {.batch_size = 1,
                                              .query_len = lengths[n],
                                              .key_len = lengths[n],
                                              .query_type = type,
                                              .key_type = type,
                                              .value_type = type,
                                              .output_type = type};
                    if (form >= 2) {
                        plan.causal = VKMHA_CAUSAL_BOTTOM_RIGHT;
                        plan.has_attend_keys = true;
                        plan.has_key_lengths = true;
                        plan.mask = VKMHA_MASK_ATTEND;
                        plan.mask_dims[0] = plan.mask_dims[1] = plan.mask_dims[2] = 1;
                        plan.mask_dims[3] = lengths[n];
                    } else if (form == 0) {
                        plan.key_is_query = true;
                        plan.value_is_key = true;
                    }
                    vkmha_planned planned;
                    plan_for(&limit_tables[t].limits, &layer, &plan, &planned);
                    if (planned.status == VKMHA_OK) {
                        check_plan(&limit_tables[t], &planned);
                    } else {
                        cr_assert_eq(planned.status, VKMHA_ERROR_UNSUPPORTED, "%s: %s",
                                     limit_tables[t].name, planned.error.message);
                        cr_assert(strpbrk(planned.error.message, "0123456789"));
                        cr_assert(lengths[n] > 16384, "%s: head_dim %u, length %llu: %s",
                                  limit_tables[t].name, dims[d], (unsigned long long)lengths[n],
                                  planned.error.message);
                    }
                    finish(&planned);
                }
            }
        }
    }
}

/* F49: subgroup rows at every width that exists. */
Test(plan, F49_any_subgroup_width)
{
    for (uint32_t width = 4; width <= 128; width *= 2) {
        vkmha_named_limits table = limit_tables[5];
        table.limits.subgroup_size = width;
        for (uint32_t dim = 1; dim <= 256; dim += 15) {
            const vkmha_layer_params layer = layer_of(4, 2, dim, dim, true);
            const vkmha_plan_params plan = {.batch_size = 2,
                                            .query_len = 33,
                                            .key_len = 1025,
                                            .attention_kernel = "attention_direct_subgroup"};
            vkmha_planned planned;
            plan_for(&table.limits, &layer, &plan, &planned);
            cr_assert_eq(planned.status, VKMHA_OK, "width %u: %s", width, planned.error.message);
            const vkmha_constants *constants = &planned.schedule.steps[0].constants;
            cr_assert_eq(constants->WORKGROUP % width, 0);
            cr_assert(constants->VALUE_VECTORS * 4 * width >= dim);
            cr_assert_eq(VKMHA_KEY_CHUNK % (constants->COLUMNS * width), 0);
            check_plan(&table, &planned);
            finish(&planned);
        }
    }
}

Test(plan, F42_sizes_do_not_wrap)
{
    vkmha_named_limits large = limit_tables[5];
    large.limits.max_allocation_bytes = VKMHA_MIB(8192);
    const vkmha_limits *limits = &large.limits;
    vkmha_planned planned;
    const vkmha_layer_params one_head = layer_of(1, 1, 64, 64, true);
    vkmha_plan_params plan = {.batch_size = 1, .query_len = 65537, .key_len = 65537};
    plan.mask = VKMHA_MASK_ATTEND;
    plan.mask_dims[0] = plan.mask_dims[1] = 1;
    plan.mask_dims[2] = plan.mask_dims[3] = 65537;
    plan_for(limits, &one_head, &plan, &planned);
    cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
    check_plan(&large, &planned);
    finish(&planned);
    /* A tensor that no allocation of the device holds is refused when planned, not when run. */
    plan_for(&limit_tables[6].limits, &one_head, &plan, &planned);
    cr_assert_eq(planned.status, VKMHA_ERROR_UNSUPPORTED);
    cr_assert(strstr(planned.error.message, "mask"), "%s", planned.error.message);
    finish(&planned);

    const vkmha_layer_params twelve = layer_of(12, 12, 64, 64, true);
    const vkmha_plan_params many = {.batch_size = 64, .query_len = 4096, .key_len = 4096};
    plan_for(limits, &twelve, &many, &planned);
    cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
    check_plan(&large, &planned);
    cr_assert(planned.schedule.workspace_bytes < (UINT64_C(1) << 32));
    finish(&planned);

    vkmha_layer_params wide = layer_of(4096, 4096, 256, 256, false);
    const vkmha_plan_params huge = {.batch_size = 1 << 20,
                                    .query_len = 1 << 20,
                                    .key_len = 1 << 20,
                                    .key_is_query = true,
                                    .value_is_key = true};
    plan_for(limits, &wide, &huge, &planned);
    cr_assert_eq(planned.status, VKMHA_ERROR_UNSUPPORTED, "%s", planned.error.message);
    finish(&planned);
}

Test(plan, F44_more_batches_than_groups)
{
    const vkmha_layer_params layer = layer_of(1, 1, 4, 4, true);
    const vkmha_plan_params plan = {.batch_size = 65537, .query_len = 1, .key_len = 1};
    for (size_t t = 0; t < NUM_LIMIT_TABLES; t++) {
        vkmha_planned planned;
        plan_for(&limit_tables[t].limits, &layer, &plan, &planned);
        cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
        check_plan(&limit_tables[t], &planned);
        finish(&planned);
    }
}

Test(plan, F51_weights_past_the_binding_range)
{
    vkmha_layer_params layer = layer_of(58, 58, 100, 100, false);
    const vkmha_plan_params plan = {.batch_size = 1,
                                    .query_len = 1,
                                    .key_len = 1,
                                    .key_is_query = true,
                                    .value_is_key = true};
    cr_assert_eq(layer.embed_dim, 5800);
    for (size_t t = 0; t < NUM_LIMIT_TABLES; t++) {
        vkmha_planned planned;
        plan_for(&limit_tables[t].limits, &layer, &plan, &planned);
        cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
        check_plan(&limit_tables[t], &planned);
        finish(&planned);
    }
}

Test(plan, F73_work_limit)
{
    static const uint64_t lengths[] = {4096, 16384};
    for (size_t t = 0; t < NUM_LIMIT_TABLES; t++) {
        for (size_t n = 0; n < 2; n++) {
            const uint64_t usual = limit_tables[t].limits.max_work_per_dispatch;
            for (uint64_t limit = usual / 8; limit <= usual; limit *= 8) {
                const vkmha_layer_params layer = layer_of(32, 32, 64, 64, true);
                const vkmha_plan_params plan = {.batch_size = 1,
                                                .query_len = lengths[n],
                                                .key_len = lengths[n],
                                                .max_work_per_dispatch = limit};
                vkmha_planned planned;
                plan_for(&limit_tables[t].limits, &layer, &plan, &planned);
                cr_assert_eq(planned.status, VKMHA_OK, "%s: %s", limit_tables[t].name,
                             planned.error.message);
                check_plan(&limit_tables[t], &planned);
                for (uint32_t i = 0; i < planned.schedule.num_steps; i++) {
                    cr_assert(planned.schedule.steps[i].work <= limit);
                }
                finish(&planned);
            }
        }
    }
}

/* Work that fits the limit exactly is not cut, though whole chunks of keys would exceed it. */
Test(plan, no_cut_over_keys_without_need)
{
    const vkmha_layer_params layer = layer_of(20, 20, 1, 1, true);
    const vkmha_plan_params plan = {.batch_size = 1,
                                    .query_len = 1 << 20,
                                    .key_len = 1500,
                                    .max_work_per_dispatch = (UINT64_C(20) << 20) * 1500 * 2};
    vkmha_planned planned;
    plan_for(&limit_tables[0].limits, &layer, &plan, &planned);
    cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
    check_plan(&limit_tables[0], &planned);
    cr_assert_eq(planned.schedule.workspace_bytes, 0);
    finish(&planned);
}

/* What is too large is cut where that helps: rows where rows are many, columns where heads lie apart. */
Test(plan, cuts_the_axis_that_helps)
{
    const vkmha_layer_params many = layer_of(64, 64, 1, 1, true);
    const vkmha_plan_params rows = {.batch_size = 8, .query_len = 1 << 20, .key_len = 1};
    vkmha_named_limits table = limit_tables[6];
    table.limits.max_work_per_dispatch = UINT64_C(1) << 50;
    table.limits.max_allocation_bytes = VKMHA_MIB(8192);
    vkmha_planned planned;
    plan_for(&table.limits, &many, &rows, &planned);
    cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
    check_plan(&table, &planned);
    cr_assert(planned.schedule.num_steps <= 64, "%u steps", planned.schedule.num_steps);
    finish(&planned);

    const vkmha_layer_params narrow = layer_of(64, 64, 4, 4, false);
    const vkmha_plan_params apart = {.batch_size = 1,
                                     .query_len = 140000,
                                     .key_len = 140000,
                                     .key_is_query = true,
                                     .value_is_key = true};
    plan_for(&table.limits, &narrow, &apart, &planned);
    cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
    check_plan(&table, &planned);
    finish(&planned);
}

Test(plan, no_queries_need_nothing)
{
    const vkmha_layer_params layer = layer_of(64, 64, 256, 256, false);
    const vkmha_plan_params plan = {.batch_size = 64, .query_len = 0, .key_len = 1 << 24};
    vkmha_planned planned;
    plan_for(&limit_tables[0].limits, &layer, &plan, &planned);
    cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
    cr_assert_eq(planned.schedule.workspace_bytes, 0);
    finish(&planned);
}

Test(plan, workspace_is_linear_in_the_length)
{
    const vkmha_layer_params layer = layer_of(12, 12, 64, 64, false);
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        const vkmha_plan_params plan = {.batch_size = 1,
                                        .query_len = i ? 16384 : 1024,
                                        .key_len = i ? 16384 : 1024,
                                        .key_is_query = true,
                                        .value_is_key = true};
        vkmha_planned planned;
        plan_for(&limit_tables[5].limits, &layer, &plan, &planned);
        cr_assert_eq(planned.status, VKMHA_OK);
        bytes[i] = planned.schedule.workspace_bytes;
        finish(&planned);
    }
    cr_assert(bytes[1] <= 16 * bytes[0] + 4096);
}

Test(plan, self_attention_projects_once)
{
    const vkmha_layer_params layer = layer_of(12, 12, 64, 64, false);
    const vkmha_plan_params plan = {.batch_size = 2,
                                    .query_len = 128,
                                    .key_len = 128,
                                    .key_is_query = true,
                                    .value_is_key = true};
    for (size_t t = 0; t < NUM_LIMIT_TABLES; t++) {
        vkmha_planned planned;
        plan_for(&limit_tables[t].limits, &layer, &plan, &planned);
        cr_assert_eq(planned.schedule.num_steps, 3, "%s", limit_tables[t].name);
        finish(&planned);
    }
}

/* The first row of each kind runs on the least that Vulkan 1.1 allows, at every head size. */
Test(plan, row_0_is_always_valid)
{
    for (uint32_t dim = 1; dim <= 256; dim++) {
        for (uint32_t i = 0; vkmha_variant_at(i); i++) {
            const vkmha_variant *variant = vkmha_variant_at(i);
            vkmha_tile tile;
            char reason[128];
            if (strstr(variant->name, "_staged")) {
                cr_assert(vkmha_variant_fits(variant, &limit_tables[0].limits, dim, dim, &tile, reason,
                                             sizeof(reason)),
                          "%s, head_dim %u: %s", variant->name, dim, reason);
            }
        }
    }
}

/* Packed rows are whole in their windows; a mask's are padded by sequence, and can be cut. */
Test(plan, packed_masks_are_cut)
{
    const vkmha_layer_params layer = layer_of(2, 2, 16, 16, true);
    const vkmha_plan_params plan = {.batch_size = 2,
                                    .query_len = 8192,
                                    .key_len = 8192,
                                    .is_packed = true,
                                    .total_queries = 10000,
                                    .total_keys = 10000,
                                    .mask = VKMHA_MASK_ADDITIVE,
                                    .mask_dims = {1, 1, 8192, 8192}};
    vkmha_planned planned;
    vkmha_limits limits = limit_tables[0].limits;
    limits.max_storage_range_bytes = 1u << 27;
    limits.max_allocation_bytes = 1u << 30;
    plan_for(&limits, &layer, &plan, &planned);
    cr_assert_eq(planned.status, VKMHA_OK, "%s", planned.error.message);
    for (uint32_t i = 0; i < planned.schedule.num_steps; i++) {
        check_step("packed", &limits, &planned, &planned.schedule.steps[i],
                   limits.max_work_per_dispatch);
    }
    finish(&planned);
}
