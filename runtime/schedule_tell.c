/*
 * What is told besides the output: passes over queries and keys after attention, whose rows have
 * left their maxima and sums. Chosen heads and queries are taken in runs of consecutive ones, each a
 * box whose target is shifted to where the run stands among the chosen.
 */
#include "schedule_attention.h"

bool vkmha_leaves_rows(const vkmha_plan_params *plan)
{
    return plan->has_lse || plan->has_weights || plan->has_mean_weights || plan->has_statistics ||
           plan->has_key_mass;
}

enum { SUMMARIZED_KEYS = 5 }; /* whose weights are among a row's statistics */

/* ---- One dispatch ---- */

vkmha_status vkmha_emit_told(vkmha_planner *planner, const vkmha_attention *attention,
                             const vkmha_box *box)
{
    vkmha_step step = vkmha_attention_step(planner, attention, box);
    const bool is_first = box->first_row == 0; /* of what is added up over queries */
    const bool is_sum = attention->tile.constants.MASS != 0; /* in one workgroup for all rows */
    step.groups[0] = (is_sum ? 1 : step.groups[0]) * (uint32_t)attention->key_tiles;
    vkmha_attention_set_keys(planner, attention, box, 0, planner->sizes.all_keys,
                             attention->tell_flags | (is_sum && is_first ? VKMHA_FLAG_FIRST : 0),
                             &step);
    step.work = vkmha_attention_work(planner, box, attention->told_keys);
    const vkmha_tile *tile = &attention->tile;
    const uint64_t blocks = is_sum ? (box->rows + tile->constants.ROWS - 1) / tile->constants.ROWS : 1;
    step.loop_trips = tile->trips_base + tile->trips_per_unit * blocks;
    return vkmha_planner_append(planner, &step);
}

/* ---- Passes ---- */

/* Another pass over attention's tensors, that writes `target`. */
static vkmha_status prepare_told(const vkmha_planner *planner, const vkmha_attention *attention,
                                 vkmha_kernel kernel, vkmha_attention *told)
{
    const vkmha_layer_params *layer = planner->layer;
    *told = *attention;
    vkmha_status status =
        vkmha_variant_pick(kernel, NULL, planner->limits, layer->head_dim, layer->v_head_dim,
                           &told->variant, &told->tile, planner->error);
    if (status != VKMHA_OK) {
        return status;
    }
    const vkmha_constants *constants = &attention->tile.constants;
    told->tile.constants.CLASSES =
        VKMHA_CLASSES_TOLD | (kernel == VKMHA_KERNEL_INSPECT ? VKMHA_CLASS_SPLIT : 0);
    told->tile.constants.VECTOR_A = constants->VECTOR_A;
    told->tile.constants.TYPES =
        constants->TYPES & (VKMHA_TYPE_BITS(VKMHA_BIND_QUERY, VKMHA_TYPE_MASK) |
                            VKMHA_TYPE_BITS(VKMHA_BIND_KEY, VKMHA_TYPE_MASK));
    told->is_told = true;
    told->max_keys = UINT64_MAX;
    return VKMHA_OK;
}

static uint64_t tiles_of(uint64_t columns, const vkmha_tile *tile)
{
    return (columns + tile->columns - 1) / tile->columns;
}

/* Numbers first..first+count-1 of the chosen are `begin` and those after it. */
typedef struct vkmha_run_of {
    uint64_t first;
    uint64_t count;
    uint64_t begin;
} vkmha_run_of;

/* The run of consecutive ones from number `first` on; `chosen` NULL: all. */
static vkmha_run_of run_from(const uint32_t *chosen, uint64_t num_chosen, uint64_t first)
{
    if (!chosen) {
        return (vkmha_run_of){first, num_chosen - first, first};
    }
    vkmha_run_of run = {first, 1, chosen[first]};
    while (first + run.count < num_chosen && chosen[first + run.count] == run.begin + run.count) {
        run.count++;
    }
    return run;
}

/* Tells of the chosen queries of heads begin..begin+count-1, which are numbers first.. of the target's. */
static vkmha_status tell_heads(vkmha_planner *planner, const vkmha_attention *told,
                               const vkmha_run_of *heads)
{
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_view *target = &told->tensors.output;
    const uint64_t num_queries = planner->sizes.chosen_queries;
    vkmha_status status = VKMHA_OK;
    for (uint64_t next = 0; next < num_queries && status == VKMHA_OK;) {
        const vkmha_run_of queries = run_from(plan->chosen_queries, num_queries, next);
        const vkmha_box box = {0,           plan->batch_size, heads->begin, heads->count,
                               queries.begin, queries.count};
        vkmha_attention shifted = *told;
        /* Modulo 2^64: the box's first head and row make up for it. */
        shifted.tensors.output.offset -= ((heads->begin - heads->first) * target->head_stride +
                                          (queries.begin - queries.first) * target->row_stride) *
                                         target->element_bytes;
        status = vkmha_attention_cut(planner, &shifted, &box);
        next += queries.count;
    }
    return status;
}

static vkmha_status tell_chosen(vkmha_planner *planner, const vkmha_attention *attention,
                                vkmha_resource resource, uint32_t tell)
{
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_sizes *sizes = &planner->sizes;
    const uint64_t num_heads = sizes->chosen_heads;
    const bool is_mean = tell == VKMHA_TELL_MEAN_WEIGHTS;
    vkmha_attention told;
    vkmha_status status = prepare_told(planner, attention, VKMHA_KERNEL_INSPECT, &told);
    if (status != VKMHA_OK) {
        return status;
    }
    told.told_keys = sizes->columns;
    told.key_tiles = tiles_of(sizes->columns, &told.tile);
    told.tell_flags = tell << VKMHA_TELL_SHIFT;
    told.tensors.output = (vkmha_view){
        .resource = resource,
        .element_bytes = 4,
        .batch_stride = (is_mean ? 1 : num_heads) * sizes->chosen_queries * sizes->columns,
        .head_stride = is_mean ? 0 : sizes->chosen_queries * sizes->columns,
        .row_stride = sizes->columns,
        .row_elements = sizes->columns,
    };
    for (uint64_t next = 0; next < num_heads && status == VKMHA_OK;) {
        vkmha_run_of heads = run_from(plan->chosen_heads, num_heads, next);
        if (is_mean) {
            heads.count = 1; /* one after the other, each added to those before */
            told.tell_flags = tell << VKMHA_TELL_SHIFT | (next == 0 ? VKMHA_FLAG_FIRST : 0) |
                              (next == num_heads - 1 ? VKMHA_FLAG_LAST : 0);
        }
        status = tell_heads(planner, &told, &heads);
        next += heads.count;
    }
    return status;
}

/* Tells of all queries of all heads, `features` floats for each. */
static vkmha_status tell_rows(vkmha_planner *planner, const vkmha_attention *attention,
                              vkmha_resource resource, uint32_t tell, uint32_t features)
{
    const vkmha_plan_params *plan = planner->plan;
    const uint64_t num_heads = planner->layer->num_heads;
    const vkmha_box all = {0, plan->batch_size, 0, num_heads, 0, plan->query_len};
    vkmha_attention told;
    vkmha_status status = prepare_told(planner, attention, VKMHA_KERNEL_SUMMARIZE, &told);
    if (status != VKMHA_OK) {
        return status;
    }
    told.tell_flags = tell << VKMHA_TELL_SHIFT;
    told.told_keys = SUMMARIZED_KEYS;
    told.tensors.output = vkmha_heads_view(resource, VKMHA_TYPE_F32, 0, num_heads,
                                            plan->query_len, features);
    return vkmha_attention_cut(planner, &told, &all);
}

/* One workgroup takes all rows of a dispatch. */
static vkmha_status tell_masses(vkmha_planner *planner, const vkmha_attention *attention)
{
    const vkmha_plan_params *plan = planner->plan;
    const uint64_t num_heads = planner->layer->num_heads;
    const uint64_t all_keys = planner->sizes.all_keys;
    const uint64_t limit = planner->limits->max_loop_trips;
    const vkmha_box all = {0, plan->batch_size, 0, num_heads, 0, plan->query_len};
    vkmha_attention told;
    vkmha_status status = prepare_told(planner, attention, VKMHA_KERNEL_INSPECT, &told);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_tile *tile = &told.tile;
    tile->constants.MASS = 1;
    told.told_keys = all_keys;
    told.key_tiles = tiles_of(all_keys, tile);
    told.max_rows = limit == 0
                        ? UINT64_MAX
                        : (limit - tile->trips_base) / tile->trips_per_unit * tile->constants.ROWS;
    told.tensors.output = (vkmha_view){
        .resource = VKMHA_RESOURCE_KEY_MASS,
        .element_bytes = 4,
        .batch_stride = num_heads * all_keys,
        .head_stride = all_keys,
        .row_elements = all_keys,
    };
    return vkmha_attention_cut(planner, &told, &all);
}

vkmha_status vkmha_schedule_told(vkmha_planner *planner, const vkmha_attention *attention)
{
    const vkmha_plan_params *plan = planner->plan;
    const vkmha_sizes *sizes = &planner->sizes;
    const struct {
        uint64_t elements;
        vkmha_resource resource;
        uint32_t tell;
    } chosen[] = {
        {sizes->weights, VKMHA_RESOURCE_TOLD_WEIGHTS, VKMHA_TELL_WEIGHTS},
        {sizes->mean_weights, VKMHA_RESOURCE_MEAN_WEIGHTS, VKMHA_TELL_MEAN_WEIGHTS},
        {sizes->scores, VKMHA_RESOURCE_SCORES,
         VKMHA_TELL_SCORES_SCALED + (uint32_t)plan->scores - VKMHA_SCORES_SCALED},
    };
    vkmha_status status = VKMHA_OK;
    if (sizes->lse > 0) {
        status = tell_rows(planner, attention, VKMHA_RESOURCE_LSE, VKMHA_TELL_LSE, 1);
    }
    if (sizes->statistics > 0 && status == VKMHA_OK) {
        status = tell_rows(planner, attention, VKMHA_RESOURCE_STATISTICS, VKMHA_TELL_STATISTICS,
                           sizeof(vkmha_statistics) / sizeof(float));
    }
    if (sizes->key_mass > 0 && status == VKMHA_OK) {
        status = tell_masses(planner, attention);
    }
    for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]) && status == VKMHA_OK; i++) {
        if (chosen[i].elements > 0) {
            status = tell_chosen(planner, attention, chosen[i].resource, chosen[i].tell);
        }
    }
    return status;
}
