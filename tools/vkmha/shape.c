/* Sizes and options of random problems. */
#include "shape.h"
#include "stored.h"

#include <inttypes.h>
#include <string.h>

/* ---- Random numbers ------------------------------------------------------------------------ */

uint64_t vkmha_random_next(vkmha_random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = random->state;
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

uint64_t vkmha_random_below(vkmha_random *random, uint64_t count)
{
    return vkmha_random_next(random) % count;
}

bool vkmha_random_chance(vkmha_random *random, uint32_t percent)
{
    return vkmha_random_below(random, 100) < percent;
}

/* ---- Sizes --------------------------------------------------------------------------------- */

enum {
    MAX_WORK = 1200000, /* multiply-adds of a shape: a few ms in the reference */
    LONG_KEYS = 1023,
    SMALL_HEAD = 64,
};

static uint64_t draw_length(vkmha_random *random)
{
    static const uint64_t tiles[] = {8, 16, 32, 64, 128};
    const uint64_t kind = vkmha_random_below(random, 100);
    if (kind < 1) {
        return 0;
    }
    if (kind < 8) {
        return 1;
    }
    if (kind < 35) {
        return 1 + vkmha_random_below(random, 20);
    }
    return tiles[vkmha_random_below(random, sizeof(tiles) / sizeof(tiles[0]))] - 1 +
           vkmha_random_below(random, 3);
}

static bool is_tile_edge(uint64_t length)
{
    for (uint64_t tile = 8; tile <= 1024; tile *= 2) {
        if (length + 1 >= tile && length <= tile + 1) {
            return true;
        }
    }
    return false;
}

static uint32_t draw_head_dim(vkmha_random *random)
{
    static const uint32_t usual[] = {8, 16, 32, 32, 64, 64, 64, 80, 128};
    if (vkmha_random_chance(random, 75)) {
        return usual[vkmha_random_below(random, sizeof(usual) / sizeof(usual[0]))];
    }
    const uint32_t most = vkmha_random_chance(random, 30) ? 256 : SMALL_HEAD;
    return 1 + (uint32_t)vkmha_random_below(random, most);
}

static uint32_t draw_features(vkmha_random *random)
{
    if (vkmha_random_chance(random, 50)) {
        return 1 + (uint32_t)vkmha_random_below(random, 48);
    }
    static const uint32_t tiles[] = {16, 32, 64, 128};
    return tiles[vkmha_random_below(random, sizeof(tiles) / sizeof(tiles[0]))] - 1 +
           (uint32_t)vkmha_random_below(random, 3);
}

static void draw_layer(vkmha_random *random, vkmha_random *family, vkmha_layer_params *layer)
{
    static const uint32_t groups[] = {1, 1, 1, 2, 3, 4};
    layer->attention_only = vkmha_random_chance(random, 50);
    layer->num_kv_heads = 1 + (uint32_t)vkmha_random_below(random, 4);
    layer->num_heads = layer->num_kv_heads *
                       groups[vkmha_random_below(random, sizeof(groups) / sizeof(groups[0]))];
    layer->head_dim = draw_head_dim(family);
    layer->v_head_dim = vkmha_random_chance(family, 70) ? layer->head_dim : draw_head_dim(family);
    if (!layer->attention_only) {
        layer->embed_dim = draw_features(random);
        layer->key_dim = vkmha_random_chance(random, 60) ? layer->embed_dim : draw_features(random);
        layer->value_dim = vkmha_random_chance(random, 60) ? layer->key_dim : draw_features(random);
        layer->output_dim =
            vkmha_random_chance(random, 60) ? layer->embed_dim : draw_features(random);
    }
}

static void draw_lengths(vkmha_random *random, const vkmha_layer_params *layer,
                         vkmha_plan_params *plan)
{
    static const uint64_t batches[] = {1, 1, 1, 1, 1, 2, 2, 2, 3, 5};
    plan->batch_size =
        vkmha_random_chance(random, 1)
            ? 0
            : batches[vkmha_random_below(random, sizeof(batches) / sizeof(batches[0]))];
    plan->query_len = draw_length(random);
    plan->key_len = draw_length(random);
    const bool same_key = layer->attention_only ? layer->num_kv_heads == layer->num_heads
                                                : layer->key_dim == layer->embed_dim;
    const bool same_value = layer->attention_only ? layer->v_head_dim == layer->head_dim
                                                  : layer->value_dim == layer->key_dim;
    plan->key_is_query = same_key && vkmha_random_chance(random, layer->attention_only ? 10 : 60);
    plan->value_is_key = same_value && vkmha_random_chance(random, layer->attention_only ? 10 : 70);
    if (plan->key_is_query) {
        plan->key_len = plan->query_len;
    } else if (vkmha_random_chance(random, 2)) {
        plan->key_len = LONG_KEYS + vkmha_random_below(random, 3);
        plan->query_len = 1 + vkmha_random_below(random, 9);
    }
}

uint64_t vkmha_shape_work(const vkmha_problem *problem)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const vkmha_layer_params *layer = &problem->layer;
    const uint64_t attention =
        sizes.query_rows * sizes.all_keys * layer->num_heads * (layer->head_dim + sizes.v_head_dim);
    if (layer->attention_only) {
        return attention;
    }
    return attention + sizes.heads_query * layer->embed_dim + sizes.heads_key * sizes.key_dim +
           sizes.heads_value * sizes.value_dim + sizes.output * layer->num_heads * sizes.v_head_dim;
}

/* One random size is made smaller; what is equal by an option stays equal. */
static void shrink(vkmha_random *random, vkmha_problem *problem)
{
    vkmha_layer_params *layer = &problem->layer;
    vkmha_plan_params *plan = &problem->plan;
    switch (vkmha_random_below(random, 6)) {
    case 0:
        plan->batch_size = plan->batch_size > 1 ? plan->batch_size - 1 : plan->batch_size;
        break;
    case 1:
        plan->query_len = (plan->query_len + 1) / 2;
        plan->key_len = plan->key_is_query ? plan->query_len : plan->key_len;
        break;
    case 2:
        if (plan->key_len < LONG_KEYS && !plan->key_is_query) {
            plan->key_len = (plan->key_len + 1) / 2;
        }
        break;
    case 3:
        layer->num_heads = layer->num_heads / layer->num_kv_heads;
        layer->num_kv_heads = 1;
        break;
    case 4:
        /* A family's, unless nothing else helps. */
        if (plan->key_len < LONG_KEYS) {
            break;
        }
        if (layer->head_dim == layer->v_head_dim) {
            layer->v_head_dim = (layer->head_dim + 1) / 2;
        }
        layer->head_dim = (layer->head_dim + 1) / 2;
        break;
    default:
        if (!layer->attention_only) {
            const bool same_key = layer->key_dim == layer->embed_dim;
            const bool same_value = layer->value_dim == layer->key_dim;
            layer->embed_dim = 1 + (layer->embed_dim + 1) / 2;
            layer->key_dim = same_key ? layer->embed_dim : (layer->key_dim + 1) / 2;
            layer->value_dim = same_value ? layer->key_dim : (layer->value_dim + 1) / 2;
            layer->output_dim = (layer->output_dim + 1) / 2;
        }
        break;
    }
}

/* ---- Shapes -------------------------------------------------------------------------------- */

static void mark_sizes(vkmha_shape *shape)
{
    const vkmha_layer_params *layer = &shape->problem.layer;
    const vkmha_plan_params *plan = &shape->problem.plan;
    const struct {
        vkmha_feature feature;
        bool is_there;
    } marks[] = {
        {VKMHA_FEATURE_PROJECTIONS, !layer->attention_only},
        {VKMHA_FEATURE_ATTENTION_ONLY, layer->attention_only},
        {VKMHA_FEATURE_HEADS_FIRST, plan->layout == VKMHA_LAYOUT_BHSD},
        {VKMHA_FEATURE_SELF, plan->key_is_query},
        {VKMHA_FEATURE_SHARED_VALUE, plan->value_is_key},
        {VKMHA_FEATURE_SEPARATE, !plan->key_is_query && !plan->value_is_key},
        {VKMHA_FEATURE_BATCH_0, plan->batch_size == 0},
        {VKMHA_FEATURE_BATCH_MANY, plan->batch_size > 1},
        {VKMHA_FEATURE_QUERY_0, plan->query_len == 0},
        {VKMHA_FEATURE_QUERY_1, plan->query_len == 1},
        {VKMHA_FEATURE_KEY_0, plan->key_len == 0},
        {VKMHA_FEATURE_KEY_LONG, plan->key_len >= LONG_KEYS},
        {VKMHA_FEATURE_TILE_EDGE, is_tile_edge(plan->query_len) || is_tile_edge(plan->key_len)},
        {VKMHA_FEATURE_GROUPED, layer->num_kv_heads > 1 && layer->num_heads > layer->num_kv_heads},
        {VKMHA_FEATURE_MULTI_QUERY, layer->num_kv_heads == 1 && layer->num_heads > 1},
        {VKMHA_FEATURE_OTHER_V_HEAD_DIM, layer->v_head_dim != layer->head_dim},
        {VKMHA_FEATURE_ODD_HEAD_DIM, layer->head_dim % 4 != 0 || layer->v_head_dim % 4 != 0},
        {VKMHA_FEATURE_WIDE_HEAD, layer->head_dim > 128},
        {VKMHA_FEATURE_OTHER_DIMS,
         !layer->attention_only &&
             (layer->key_dim != layer->embed_dim || layer->value_dim != layer->embed_dim ||
              layer->output_dim != layer->embed_dim)},
    };
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (marks[i].is_there) {
            vkmha_shape_mark(shape, marks[i].feature);
        }
    }
}

static void mark_options(vkmha_shape *shape)
{
    const vkmha_layer_params *layer = &shape->problem.layer;
    const vkmha_plan_params *plan = &shape->problem.plan;
    const vkmha_rope *rope = &layer->rope;
    const bool has_bias = layer->relative_bias.table != NULL;
    const struct {
        vkmha_feature feature;
        bool is_there;
    } marks[] = {
        {VKMHA_FEATURE_SCALE, layer->has_scale},
        {VKMHA_FEATURE_SCALE_0, layer->has_scale && layer->scale == 0.0f},
        {VKMHA_FEATURE_SCALE_NEGATIVE, layer->scale < 0.0f},
        {VKMHA_FEATURE_TOP_LEFT, plan->causal == VKMHA_CAUSAL_TOP_LEFT},
        {VKMHA_FEATURE_BOTTOM_RIGHT, plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT},
        {VKMHA_FEATURE_OFFSET, plan->causal == VKMHA_CAUSAL_OFFSET},
        {VKMHA_FEATURE_POSITIONS_BOTTOM_RIGHT, plan->positions == VKMHA_POSITIONS_BOTTOM_RIGHT},
        {VKMHA_FEATURE_POSITIONS_OFFSET, plan->positions == VKMHA_POSITIONS_OFFSET},
        {VKMHA_FEATURE_OFFSETS, plan->has_position_offsets},
        {VKMHA_FEATURE_WINDOW_LEFT, plan->has_window_left},
        {VKMHA_FEATURE_WINDOW_RIGHT, plan->has_window_right},
        {VKMHA_FEATURE_WINDOW_0, (plan->has_window_left && plan->window_left == 0) ||
                                     (plan->has_window_right && plan->window_right == 0)},
        {VKMHA_FEATURE_MASK_ATTEND, plan->mask == VKMHA_MASK_ATTEND},
        {VKMHA_FEATURE_MASK_ADDITIVE, plan->mask == VKMHA_MASK_ADDITIVE},
        {VKMHA_FEATURE_MASK_F16, plan->mask == VKMHA_MASK_ADDITIVE_F16},
        {VKMHA_FEATURE_MASK_BITS, plan->mask == VKMHA_MASK_ATTEND_BITS},
        {VKMHA_FEATURE_ATTEND_KEYS, plan->has_attend_keys},
        {VKMHA_FEATURE_KEY_LENGTHS, plan->has_key_lengths},
        {VKMHA_FEATURE_FIRST_KEYS, plan->has_first_keys},
        {VKMHA_FEATURE_ROPE_HALF, rope->style == VKMHA_ROPE_HALF},
        {VKMHA_FEATURE_ROPE_INTERLEAVED, rope->style == VKMHA_ROPE_INTERLEAVED},
        {VKMHA_FEATURE_ROPE_PARTIAL, rope->dim != 0 && rope->dim < layer->head_dim},
        {VKMHA_FEATURE_ROPE_TABLE, rope->cos != NULL},
        {VKMHA_FEATURE_GIVEN_POSITIONS, plan->has_positions},
        {VKMHA_FEATURE_SOFTCAP, layer->softcap > 0.0f},
        {VKMHA_FEATURE_ALIBI, layer->has_alibi},
        {VKMHA_FEATURE_ALIBI_SLOPES, layer->alibi_slopes != NULL},
        {VKMHA_FEATURE_RELATIVE_ONE_WAY, has_bias && !layer->relative_bias.is_bidirectional},
        {VKMHA_FEATURE_RELATIVE_BOTH_WAYS, has_bias && layer->relative_bias.is_bidirectional},
        {VKMHA_FEATURE_SINKS, layer->sinks != NULL},
        {VKMHA_FEATURE_BIAS_KV, layer->bias_k != NULL},
        {VKMHA_FEATURE_ZERO_ATTN, layer->add_zero_attn},
        {VKMHA_FEATURE_GATES, plan->has_head_gates && !plan->has_gates_per_sequence},
        {VKMHA_FEATURE_GATES_PER_SEQUENCE, plan->has_gates_per_sequence},
        {VKMHA_FEATURE_PAST, plan->past_len > 0},
        {VKMHA_FEATURE_PRESENT, plan->has_present},
        {VKMHA_FEATURE_PACKED, plan->is_packed},
        {VKMHA_FEATURE_TELLS_LSE, plan->has_lse},
        {VKMHA_FEATURE_TELLS_WEIGHTS, plan->has_weights},
        {VKMHA_FEATURE_TELLS_MEAN_WEIGHTS, plan->has_mean_weights},
        {VKMHA_FEATURE_TELLS_SCORES_SCALED, plan->scores == VKMHA_SCORES_SCALED},
        {VKMHA_FEATURE_TELLS_SCORES_CAPPED, plan->scores == VKMHA_SCORES_CAPPED},
        {VKMHA_FEATURE_TELLS_SCORES_MASKED, plan->scores == VKMHA_SCORES_MASKED},
        {VKMHA_FEATURE_CHOSEN_HEADS, plan->chosen_heads != NULL},
        {VKMHA_FEATURE_CHOSEN_QUERIES, plan->chosen_queries != NULL},
        {VKMHA_FEATURE_TELLS_STATISTICS, plan->has_statistics},
        {VKMHA_FEATURE_TELLS_KEY_MASS, plan->has_key_mass},
        {VKMHA_FEATURE_TELLS_CONTRIBUTIONS, plan->has_contributions},
        {VKMHA_FEATURE_TELLS_GATE_GRADIENTS, plan->has_gate_gradients},
        {VKMHA_FEATURE_STRIDES, plan->query_strides.is_given || plan->key_strides.is_given},
        {VKMHA_FEATURE_STRIDES_OUTPUT, plan->output_strides.is_given},
        {VKMHA_FEATURE_WORK_LIMIT, plan->max_work_per_dispatch > 0},
    };
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (marks[i].is_there) {
            vkmha_shape_mark(shape, marks[i].feature);
        }
    }
}

static void mark_types(vkmha_shape *shape)
{
    const vkmha_layer_params *layer = &shape->problem.layer;
    const vkmha_plan_params *plan = &shape->problem.plan;
    const vkmha_type kept = vkmha_problem_kept_type(&shape->problem);
    const vkmha_type inputs[] = {plan->query_type, plan->key_type, plan->value_type};
    for (uint32_t i = 0; i < 3; i++) {
        if (inputs[i] != VKMHA_TYPE_F32) {
            vkmha_shape_mark(shape, inputs[i] == VKMHA_TYPE_F16 ? VKMHA_FEATURE_INPUT_F16
                                                                : VKMHA_FEATURE_INPUT_BF16);
        }
        if (inputs[i] != inputs[0]) {
            vkmha_shape_mark(shape, VKMHA_FEATURE_INPUT_TYPES);
        }
    }
    const struct {
        vkmha_type type;
        vkmha_feature half;
        vkmha_feature brain;
    } stored[] = {
        {plan->output_type, VKMHA_FEATURE_OUTPUT_F16, VKMHA_FEATURE_OUTPUT_BF16},
        {kept, VKMHA_FEATURE_KEPT_F16, VKMHA_FEATURE_KEPT_BF16},
        {layer->weight_type, VKMHA_FEATURE_DEVICE_F16, VKMHA_FEATURE_DEVICE_BF16},
    };
    for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++) {
        if (stored[i].type != VKMHA_TYPE_F32) {
            vkmha_shape_mark(shape,
                             stored[i].type == VKMHA_TYPE_F16 ? stored[i].half : stored[i].brain);
        }
    }
}

/* Fields that equal their default may be left 0. */
static void leave_defaults(vkmha_random *random, vkmha_layer_params *layer)
{
    if (!vkmha_random_chance(random, 50)) {
        return;
    }
    layer->num_kv_heads = layer->num_kv_heads == layer->num_heads ? 0 : layer->num_kv_heads;
    layer->v_head_dim = layer->v_head_dim == layer->head_dim ? 0 : layer->v_head_dim;
    layer->key_dim = layer->key_dim == layer->embed_dim ? 0 : layer->key_dim;
    layer->value_dim = layer->value_dim == layer->embed_dim ? 0 : layer->value_dim;
    layer->output_dim = layer->output_dim == layer->embed_dim ? 0 : layer->output_dim;
}

vkmha_status vkmha_shape_create(uint64_t seed, uint64_t without, vkmha_shape *shape,
                                vkmha_error *error)
{
    *shape = (vkmha_shape){.seed = seed, .without = without};
    vkmha_random random = {seed};
    vkmha_problem *problem = &shape->problem;
    vkmha_filler family = vkmha_filler_start(shape, VKMHA_STREAM_FAMILY);
    shape->is_classic = vkmha_random_chance(&family.family, 25);
    draw_layer(&random, &family.family, &problem->layer);
    draw_lengths(&random, &problem->layer, &problem->plan);
    while (vkmha_shape_work(problem) > MAX_WORK) {
        shrink(&random, problem);
    }
    if (problem->layer.attention_only && vkmha_random_chance(&random, 50)) {
        problem->plan.layout = VKMHA_LAYOUT_BHSD;
    }
    const bool has_memory =
        vkmha_shape_draw_options(shape) && vkmha_shape_fill_masks(shape) && vkmha_shape_fill(shape);
    mark_sizes(shape);
    mark_options(shape);
    mark_types(shape);
    leave_defaults(&random, &problem->layer);
    if (!has_memory) {
        vkmha_shape_finish(shape);
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    vkmha_problem_round(problem);
    return VKMHA_OK;
}

void vkmha_shape_finish(vkmha_shape *shape)
{
    vkmha_pool_finish(&shape->pool);
    *shape = (vkmha_shape){0};
}

const char *vkmha_feature_text(vkmha_feature feature)
{
    static const char *const texts[VKMHA_NUM_FEATURES] = {
#define VKMHA_FEATURE_TEXT(name, text) text,
        VKMHA_FEATURES(VKMHA_FEATURE_TEXT)
#undef VKMHA_FEATURE_TEXT
    };
    return texts[feature];
}

const char *vkmha_option_text(vkmha_option option)
{
    static const char *const texts[VKMHA_NUM_OPTIONS] = {
#define VKMHA_OPTION_TEXT(name, text) text,
        VKMHA_OPTIONS(VKMHA_OPTION_TEXT)
#undef VKMHA_OPTION_TEXT
    };
    return texts[option];
}

bool vkmha_option_find(const char *text, vkmha_option *option)
{
    for (uint32_t i = 0; i < VKMHA_NUM_OPTIONS; i++) {
        if (strcmp(text, vkmha_option_text((vkmha_option)i)) == 0) {
            *option = (vkmha_option)i;
            return true;
        }
    }
    return false;
}

void vkmha_shape_describe(const vkmha_shape *shape, char *text, size_t size)
{
    const vkmha_layer_params *layer = &shape->problem.layer;
    const vkmha_plan_params *plan = &shape->problem.plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(&shape->problem);
    size_t length =
        (size_t)snprintf(text, size,
                         "batch %" PRIu64 ", lengths %" PRIu64 " x %" PRIu64 " + %" PRIu64
                         ", heads %u / %" PRIu64 ", head dims %u, %" PRIu64 "%s",
                         plan->batch_size, plan->query_len, plan->past_len, plan->key_len,
                         layer->num_heads, sizes.num_kv_heads, layer->head_dim, sizes.v_head_dim,
                         layer->attention_only ? "" : ", projections");
    for (uint32_t i = 0; i < VKMHA_NUM_OPTIONS && length < size; i++) {
        if ((shape->options >> i & 1u) != 0) {
            length += (size_t)snprintf(text + length, size - length, ", %s",
                                       vkmha_option_text((vkmha_option)i));
        }
    }
}
