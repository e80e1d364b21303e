#include "tables.h"

#include <string.h>

#include "position.h"
#include "rope.h"
#include "shaders/interface.h"

/* Every table begins at a vec4. Checked sizes keep the sum inside 32 bits but for relative biases
 * of many heads, which no binding holds then. */
static uint32_t reserve(vkmha_tables *tables, bool is_used, uint32_t option, uint64_t floats)
{
    const uint64_t end = tables->count + (is_used ? (floats + 3) / 4 * 4 : 0);
    const uint32_t first = tables->count;
    tables->options |= is_used ? option : 0;
    tables->count = end < UINT32_MAX ? (uint32_t)end : UINT32_MAX;
    return first;
}

static uint32_t pitch_of(uint32_t dim)
{
    return (dim + 3) / 4 * 4;
}

void vkmha_tables_init(const vkmha_layer_params *layer, vkmha_tables *tables)
{
    const uint64_t heads = layer->num_heads;
    const uint64_t kv_heads = layer->num_kv_heads;
    *tables = (vkmha_tables){0};
    tables->slopes = reserve(tables, layer->has_alibi, VKMHA_OPTION_ALIBI, heads);
    tables->sinks = reserve(tables, layer->sinks != NULL, VKMHA_OPTION_SINKS, heads);
    tables->bias_k = reserve(tables, layer->bias_k != NULL, VKMHA_OPTION_BIAS_KV,
                             kv_heads * pitch_of(layer->head_dim));
    tables->bias_v = reserve(tables, layer->bias_v != NULL, VKMHA_OPTION_BIAS_KV,
                             kv_heads * pitch_of(layer->v_head_dim));
    tables->relative_reach = layer->relative_bias.table ? layer->relative_bias.max_distance : 0;
    tables->relative = reserve(tables, layer->relative_bias.table != NULL, VKMHA_OPTION_RELATIVE,
                               heads * (2 * (uint64_t)tables->relative_reach + 1));
    if (layer->rope.style != VKMHA_ROPE_NONE) {
        tables->rotation_count = (uint64_t)layer->rope.max_positions * layer->rope.dim;
    }
}

/* In the order that `paired` first columns have in the workspace. */
static void fill_rows(const float *rows, uint32_t num_rows, uint32_t dim, uint32_t paired,
                      float *target)
{
    for (uint32_t r = 0; r < num_rows; r++) {
        for (uint32_t c = 0; c < dim; c++) {
            target[(size_t)r * pitch_of(dim) + c] =
                rows[(size_t)r * dim + vkmha_paired_feature(paired, c)];
        }
    }
}

static void fill_relative(const vkmha_layer_params *layer, uint32_t reach, float *target)
{
    const vkmha_relative_bias *bias = &layer->relative_bias;
    for (int64_t distance = -(int64_t)reach; distance <= (int64_t)reach; distance++) {
        const uint32_t bucket = vkmha_relative_bucket(bias, distance);
        for (uint32_t h = 0; h < layer->num_heads; h++) {
            const size_t row = (size_t)h * (2 * (size_t)reach + 1);
            target[row + (size_t)(distance + (int64_t)reach)] =
                bias->table[(size_t)h * bias->num_buckets + bucket];
        }
    }
}

void vkmha_tables_fill(const vkmha_layer_params *layer, const vkmha_tables *tables, float *values)
{
    memset(values, 0, tables->count * sizeof(float));
    for (uint32_t h = 0; layer->has_alibi && h < layer->num_heads; h++) {
        values[tables->slopes + h] =
            layer->alibi_slopes ? layer->alibi_slopes[h] : vkmha_alibi_slope(layer->num_heads, h);
    }
    if (layer->sinks) {
        memcpy(values + tables->sinks, layer->sinks, layer->num_heads * sizeof(float));
    }
    if (layer->bias_k) {
        /* As the queries that it meets. */
        fill_rows(layer->bias_k, layer->num_kv_heads, layer->head_dim, vkmha_paired_features(layer),
                  values + tables->bias_k);
        fill_rows(layer->bias_v, layer->num_kv_heads, layer->v_head_dim, 0,
                  values + tables->bias_v);
    }
    if (layer->relative_bias.table) {
        fill_relative(layer, tables->relative_reach, values + tables->relative);
    }
}

void vkmha_rotation_fill(const vkmha_layer_params *layer, uint64_t first, uint64_t count,
                         float *values)
{
    const uint32_t pairs = layer->rope.dim / 2;
    for (uint64_t i = first; i < first + count; i++) {
        float cosine;
        float sine;
        vkmha_rope_entry(&layer->rope, layer->head_dim, i / 2 / pairs, (uint32_t)(i / 2 % pairs),
                         &cosine, &sine);
        values[i - first] = i % 2 == 0 ? cosine : sine;
    }
}
