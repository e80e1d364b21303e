/* Everything told, planned for limits of many devices: bounds, barriers, and that all of it is told. */
#include "planned.h"

/* Elements of a target that the steps of one kernel write. */
static uint64_t written_by(const vkmha_schedule *schedule, vkmha_resource resource, uint64_t columns)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < schedule->num_steps; i++) {
        const vkmha_step *step = &schedule->steps[i];
        if (step->bindings[VKMHA_BIND_OUTPUT].resource == resource) {
            elements += (uint64_t)step->push.attention.query_count * step->groups[1] *
                        step->groups[2] * columns;
        }
    }
    return elements;
}

static void check_told(const vkmha_named_limits *table, const vkmha_layer_params *layer,
                       const vkmha_plan_params *plan, uint64_t max_work)
{
    vkmha_planned planned;
    vkmha_plan_params asked = *plan;
    asked.has_lse = true;
    asked.has_weights = true;
    asked.scores = VKMHA_SCORES_CAPPED;
    asked.has_statistics = true;
    asked.has_key_mass = true;
    asked.has_contributions = !layer->attention_only;
    asked.has_gate_gradients = !layer->attention_only;
    asked.max_work_per_dispatch = max_work;
    plan_for(&table->limits, layer, &asked, &planned);
    cr_assert(planned.status == VKMHA_OK, "%s: %s", table->name, planned.error.message);
    const vkmha_schedule *schedule = &planned.schedule;
    for (uint32_t i = 0; i < schedule->num_steps; i++) {
        const vkmha_step *step = &schedule->steps[i];
        check_step(table->name, &table->limits, &planned, step, UINT64_MAX);
        cr_assert(step->variant->kernel != VKMHA_KERNEL_INSPECT || step->work <= max_work ||
                      step->push.attention.query_count <= step->constants.ROWS,
                  "%s: work %llu", table->name, (unsigned long long)step->work);
    }
    check_barriers(table->name, schedule);
    vkmha_sizes sizes;
    vkmha_plan_sizes(&planned.layer, &planned.plan, &sizes);
    cr_assert_eq(written_by(schedule, VKMHA_RESOURCE_LSE, 1), sizes.lse, "%s", table->name);
    cr_assert_eq(written_by(schedule, VKMHA_RESOURCE_STATISTICS, 8), sizes.statistics, "%s",
                 table->name);
    cr_assert_eq(written_by(schedule, VKMHA_RESOURCE_TOLD_WEIGHTS, sizes.columns), sizes.weights,
                 "%s", table->name);
    cr_assert_eq(written_by(schedule, VKMHA_RESOURCE_SCORES, sizes.columns), sizes.scores, "%s",
                 table->name);
    /* Every query once for each head, whatever the cuts over queries. */
    cr_assert_eq(written_by(schedule, VKMHA_RESOURCE_KEY_MASS, 1),
                 plan->batch_size * layer->num_heads * plan->query_len, "%s", table->name);
    finish(&planned);
}

Test(plan_told, fits_every_device)
{
    static const uint32_t heads[3] = {0, 1, 3};
    static const uint32_t queries[4] = {0, 5, 6, 900};
    for (uint32_t t = 0; t < NUM_LIMIT_TABLES; t++) {
        const vkmha_layer_params small = layer_of(6, 2, 20, 36, true);
        const vkmha_layer_params wide = layer_of(4, 4, 256, 256, false);
        const vkmha_plan_params odd = {.batch_size = 3, .query_len = 1001, .key_len = 1300};
        vkmha_plan_params chosen = odd;
        chosen.chosen_heads = heads;
        chosen.num_chosen_heads = 3;
        chosen.chosen_queries = queries;
        chosen.num_chosen_queries = 4;
        /* Weights of 1 GiB would not fit an allocation everywhere: two heads of long rows do. */
        vkmha_plan_params long_rows = {.batch_size = 1, .query_len = 20000, .key_len = 20000};
        long_rows.chosen_heads = heads;
        long_rows.num_chosen_heads = 2;
        long_rows.chosen_queries = queries;
        long_rows.num_chosen_queries = 4;
        check_told(&limit_tables[t], &small, &odd, UINT64_C(1) << 31);
        check_told(&limit_tables[t], &small, &odd, UINT64_C(1) << 22);
        check_told(&limit_tables[t], &small, &chosen, UINT64_C(1) << 31);
        check_told(&limit_tables[t], &wide, &odd, UINT64_C(1) << 31);
        check_told(&limit_tables[t], &wide, &long_rows, UINT64_C(1) << 31);
    }
}
