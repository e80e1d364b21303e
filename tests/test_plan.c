/* The planner on limits of many devices: every bound of every step, and that the steps do all the work once. */
#include "planned.h"

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
