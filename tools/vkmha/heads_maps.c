#include "heads.h"
#include "same.h"

#include <inttypes.h>

enum {
    MAX_WEIGHT_BYTES = 64 << 20,
};

/* What one run gives: weights [heads, queries, columns]. */
typedef struct strip {
    uint32_t first_map;
    uint32_t num_maps;
    uint64_t first_query;
    uint64_t num_queries;
    uint64_t columns;
    const float *weights;
} strip;

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* Keys up to the last that padding and lengths leave. */
static uint64_t count_keys(const vkmha_problem *alone)
{
    const vkmha_plan_params *plan = &alone->plan;
    uint64_t keys = plan->past_len + plan->key_len;
    if (plan->has_key_lengths && alone->inputs.key_lengths[0] < (int64_t)keys) {
        keys = (uint64_t)alone->inputs.key_lengths[0];
    }
    while (keys > 0 && plan->has_attend_keys && !alone->inputs.attend_keys[keys - 1]) {
        keys--;
    }
    return keys;
}

static vkmha_status make_maps(vkmha_subject *subject, uint64_t sequence, const vkmha_problem *alone,
                              const uint32_t *heads, uint32_t count, vkmha_map *maps,
                              vkmha_error *error)
{
    const uint64_t query_len = subject->problem.plan.query_len;
    const bool *is_real = subject->is_real + sequence * query_len;
    uint64_t queries = query_len;
    while (queries > 0 && !is_real[queries - 1]) {
        queries--;
    }
    const uint64_t keys = count_keys(alone);
    const uint64_t longest = queries > keys ? queries : keys;
    const uint64_t block = (longest + VKMHA_MAP_SIZE - 1) / VKMHA_MAP_SIZE;
    if (queries == 0 || keys == 0) {
        return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "--sequence %" PRIu64 " has no query or no key that is not padding",
                               sequence);
    }
    for (uint32_t i = 0; i < count; i++) {
        maps[i] = (vkmha_map){
            .head = heads[i],
            .width = (uint32_t)((keys + block - 1) / block),
            .height = (uint32_t)((queries + block - 1) / block),
            .block = block,
            .num_queries = queries,
            .num_keys = keys,
        };
        const uint64_t cells = (uint64_t)maps[i].width * maps[i].height;
        maps[i].max = vkmha_pool_allocate(&subject->pool, cells, sizeof(float));
        maps[i].mean = vkmha_pool_allocate(&subject->pool, cells, sizeof(float));
        if (!maps[i].max || !maps[i].mean) {
            return out_of_memory(error);
        }
    }
    return VKMHA_OK;
}

/* Adds a strip's weights to their cells; means are sums until divide_sums. */
static void take_strip(const strip *from, vkmha_map *maps)
{
    for (uint32_t m = 0; m < from->num_maps; m++) {
        vkmha_map *map = &maps[from->first_map + m];
        for (uint64_t i = 0; i < from->num_queries; i++) {
            const uint64_t query = from->first_query + i;
            const float *row = from->weights + (m * from->num_queries + i) * from->columns;
            for (uint64_t key = 0; key < map->num_keys; key++) {
                const uint64_t cell = query / map->block * map->width + key / map->block;
                map->mean[cell] += row[key];
                map->max[cell] = row[key] > map->max[cell] ? row[key] : map->max[cell];
                if (row[key] > map->weight) {
                    map->weight = row[key];
                    map->query = query;
                    map->key = key;
                }
            }
        }
    }
}

static void divide_sums(vkmha_map *map)
{
    for (uint32_t y = 0; y < map->height; y++) {
        const uint64_t rows_left = map->num_queries - y * map->block;
        const uint64_t rows = rows_left < map->block ? rows_left : map->block;
        for (uint32_t x = 0; x < map->width; x++) {
            const uint64_t keys_left = map->num_keys - x * map->block;
            const uint64_t keys = keys_left < map->block ? keys_left : map->block;
            map->mean[(uint64_t)y * map->width + x] /= (float)(rows * keys);
        }
    }
}

/* Runs the sequence and keeps the weights of the strip's heads and queries. */
static vkmha_status run_strip(vkmha_layer *layer, const vkmha_problem *alone, const uint32_t *heads,
                              const uint32_t *queries, float *output, float *weights, strip *of,
                              vkmha_error *error)
{
    vkmha_plan_params params = alone->plan;
    params.has_weights = true;
    params.chosen_heads = heads + of->first_map;
    params.num_chosen_heads = of->num_maps;
    params.chosen_queries = queries + of->first_query;
    params.num_chosen_queries = (uint32_t)of->num_queries;
    vkmha_plan *plan = NULL;
    vkmha_status status = vkmha_plan_create(layer, &params, &plan, error);
    if (status == VKMHA_OK) {
        status = vkmha_run(plan, &alone->inputs,
                           &(vkmha_outputs){.output = output, .weights = weights}, error);
    }
    vkmha_plan_destroy(plan);
    of->weights = weights;
    return status;
}

/* All strips of a layer: whole heads, as many as fit, or queries of one head. */
static vkmha_status run_strips(vkmha_layer *layer, const vkmha_subject *subject,
                               const vkmha_problem *alone, const uint32_t *heads, uint32_t count,
                               vkmha_map *maps, vkmha_error *error)
{
    vkmha_pool pool = {0};
    vkmha_progress progress;
    vkmha_progress_start(&progress);
    const vkmha_layer_params *params = &alone->layer;
    const uint64_t columns = alone->plan.past_len + alone->plan.key_len + (params->bias_k ? 1 : 0) +
                             (params->add_zero_attn ? 1 : 0);
    const uint64_t num_queries = maps[0].num_queries;
    const uint64_t rows_fit = MAX_WEIGHT_BYTES / (columns * sizeof(float));
    const uint64_t rows_at_once = rows_fit < 1             ? 1
                                  : rows_fit < num_queries ? rows_fit
                                                           : num_queries;
    const uint64_t heads_fit = rows_fit / num_queries;
    const uint32_t heads_at_once = heads_fit < 1       ? 1
                                   : heads_fit < count ? (uint32_t)heads_fit
                                                       : count;
    uint32_t *queries = vkmha_pool_allocate(&pool, num_queries, sizeof(uint32_t));
    float *output =
        vkmha_pool_allocate(&pool, alone->plan.query_len * subject->row_size, sizeof(float));
    float *weights =
        vkmha_pool_allocate(&pool, heads_at_once * rows_at_once * columns, sizeof(float));
    vkmha_status status = queries && output && weights ? VKMHA_OK : out_of_memory(error);
    for (uint64_t i = 0; status == VKMHA_OK && i < num_queries; i++) {
        queries[i] = (uint32_t)i;
    }
    for (uint32_t m = 0; status == VKMHA_OK && m < count; m += heads_at_once) {
        for (uint64_t i = 0; status == VKMHA_OK && i < num_queries; i += rows_at_once) {
            strip of = {
                .first_map = m,
                .num_maps = count - m < heads_at_once ? count - m : heads_at_once,
                .first_query = i,
                .num_queries = num_queries - i < rows_at_once ? num_queries - i : rows_at_once,
                .columns = columns,
            };
            vkmha_progress_show(&progress, "map", m, count);
            status = run_strip(layer, alone, heads, queries, output, weights, &of, error);
            if (status == VKMHA_OK) {
                take_strip(&of, maps);
            }
        }
    }
    vkmha_progress_clear(&progress);
    vkmha_pool_finish(&pool);
    return status;
}

vkmha_status vkmha_heads_map(vkmha_subject *subject, uint64_t sequence, const uint32_t *heads,
                             uint32_t count, vkmha_map *maps, vkmha_error *error)
{
    vkmha_problem alone;
    vkmha_layer *layer = NULL;
    vkmha_status status =
        vkmha_same_alone(&subject->problem, sequence, &subject->pool, &alone, error);
    if (status == VKMHA_OK) {
        status = make_maps(subject, sequence, &alone, heads, count, maps, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_layer_create(subject->device, &alone.layer, &layer, error);
    }
    if (status == VKMHA_OK) {
        status = run_strips(layer, subject, &alone, heads, count, maps, error);
    }
    for (uint32_t m = 0; status == VKMHA_OK && m < count; m++) {
        divide_sums(&maps[m]);
    }
    vkmha_layer_destroy(layer);
    return status;
}
