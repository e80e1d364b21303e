/* Options of random problems, with the tensors that belong to them alone. */
#include "shape.h"

#include <math.h>

static vkmha_random stream_of(uint64_t seed, uint32_t stream)
{
    /* Another seed's stream may be met by chance; it does no harm. */
    vkmha_random random = {seed ^ (UINT64_C(0xd6e8feb86659fd93) * (stream + 1))};
    random.state = vkmha_random_next(&random);
    return random;
}

vkmha_filler vkmha_filler_start(vkmha_shape *shape, uint32_t stream)
{
    return (vkmha_filler){
        .random = stream_of(shape->seed, stream),
        .family = stream_of(shape->seed >> VKMHA_FAMILY_SHIFT, stream),
        .shape = shape,
        .has_memory = true,
    };
}

bool vkmha_filler_takes(vkmha_filler *fill, vkmha_option option)
{
    const uint64_t bit = UINT64_C(1) << option;
    if ((fill->shape->without & bit) != 0) {
        return false;
    }
    fill->shape->options |= bit;
    return true;
}

bool vkmha_filler_takes_young(vkmha_filler *fill, vkmha_option option, uint32_t percent)
{
    const bool is_drawn = vkmha_random_chance(&fill->family, percent);
    return is_drawn && !fill->shape->is_classic &&
           !vkmha_shape_has(fill->shape, VKMHA_FEATURE_UNIFORM) && vkmha_filler_takes(fill, option);
}

#define PICK(fill, values)                                                                         \
    (values)[vkmha_random_below(&(fill)->random, sizeof(values) / sizeof((values)[0]))]

/* ---- Probes, scale ------------------------------------------------------------------------- */

/* Probes whose right answers are known beforehand. */
static void draw_probe(vkmha_filler *fill)
{
    vkmha_shape *shape = fill->shape;
    vkmha_layer_params *layer = &shape->problem.layer;
    vkmha_plan_params *plan = &shape->problem.plan;
    const uint64_t kind = vkmha_random_below(&fill->random, 100);
    const bool is_uniform = kind >= 8 && kind < 14 && plan->key_len > 0;
    const bool has_values = kind >= 14 && kind < 24 && layer->attention_only && !plan->value_is_key;
    if ((kind >= 8 && !is_uniform && !has_values) ||
        !vkmha_filler_takes(fill, VKMHA_OPTION_PROBE)) {
        return;
    }
    if (has_values) {
        static const vkmha_feature probes[] = {VKMHA_FEATURE_ONE_HOT, VKMHA_FEATURE_INDEX_VALUES,
                                               VKMHA_FEATURE_CONSTANT_VALUES};
        vkmha_shape_mark(shape, PICK(fill, probes));
        return;
    }
    vkmha_shape_mark(shape, VKMHA_FEATURE_INTEGERS);
    if (is_uniform) {
        vkmha_shape_mark(shape, VKMHA_FEATURE_UNIFORM);
        layer->has_scale = true;
        layer->scale = 0.0f;
        uint64_t power = 1;
        while (power * 2 <= plan->key_len) {
            power *= 2;
        }
        plan->key_len = power;
        plan->query_len = plan->key_is_query ? power : plan->query_len;
    }
}

static void draw_scale(vkmha_filler *fill)
{
    vkmha_layer_params *layer = &fill->shape->problem.layer;
    const uint64_t kind = vkmha_random_below(&fill->random, 100);
    if (kind >= 35 || vkmha_shape_has(fill->shape, VKMHA_FEATURE_UNIFORM) ||
        !vkmha_filler_takes(fill, VKMHA_OPTION_SCALE)) {
        return;
    }
    layer->has_scale = true;
    if (kind < 4) {
        layer->scale = 0.0f;
    } else if (kind < 8) {
        layer->scale = -0.25f;
    } else if (kind < 12) {
        layer->scale = 3.0e4f;
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_LARGE_LOGITS);
    } else {
        layer->scale = 0.125f;
    }
}

/* ---- Keys ---------------------------------------------------------------------------------- */

/* Ends of sequences of at most `longest` rows. */
static int32_t *draw_ends(vkmha_filler *fill, uint64_t longest, uint64_t *total)
{
    const uint64_t batch = fill->shape->problem.plan.batch_size;
    int32_t *ends = vkmha_filler_allocate(fill, batch + 1, sizeof(int32_t));
    *total = 0;
    for (uint64_t b = 0; ends && b < batch; b++) {
        const uint64_t length = vkmha_random_chance(&fill->random, 25)
                                    ? longest
                                    : vkmha_random_below(&fill->random, longest + 1);
        if (length == 0) {
            vkmha_shape_mark(fill->shape, VKMHA_FEATURE_PACKED_EMPTY);
        }
        *total += length;
        ends[b + 1] = (int32_t)*total;
    }
    return ends;
}

static void draw_packed(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    vkmha_plan_params *plan = &problem->plan;
    if (!vkmha_filler_takes_young(fill, VKMHA_OPTION_PACKED, 18)) {
        return;
    }
    plan->is_packed = true;
    problem->inputs.cu_query_lens = draw_ends(fill, plan->query_len, &plan->total_queries);
    if (plan->key_is_query) {
        problem->inputs.cu_key_lens = problem->inputs.cu_query_lens;
        plan->total_keys = plan->total_queries;
    } else {
        problem->inputs.cu_key_lens = draw_ends(fill, plan->key_len, &plan->total_keys);
    }
}

static void draw_past(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    vkmha_plan_params *plan = &problem->plan;
    if (plan->is_packed || !vkmha_filler_takes_young(fill, VKMHA_OPTION_PAST, 18)) {
        return;
    }
    plan->past_len = 1 + vkmha_random_below(&fill->random, 70);
    while (plan->past_len > 1 && vkmha_shape_work(problem) > 3000000) {
        plan->past_len /= 2;
    }
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t rows = plan->batch_size * sizes.num_kv_heads * plan->past_len;
    problem->inputs.past_key = vkmha_filler_tensor(fill, rows * problem->layer.head_dim);
    problem->inputs.past_value = vkmha_filler_tensor(fill, rows * sizes.v_head_dim);
}

static void draw_present(vkmha_filler *fill)
{
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    plan->has_present =
        !plan->is_packed && vkmha_filler_takes_young(fill, VKMHA_OPTION_PRESENT, 15);
}

/* ---- Positions ----------------------------------------------------------------------------- */

static int64_t draw_offset(vkmha_filler *fill)
{
    const vkmha_plan_params *plan = &fill->shape->problem.plan;
    const int64_t keys = (int64_t)(plan->past_len + plan->key_len);
    const int64_t queries = (int64_t)plan->query_len;
    const uint64_t kind = vkmha_random_below(&fill->random, 10);
    const int64_t offset =
        kind == 0   ? 1000 + (int64_t)vkmha_random_below(&fill->random, 2000)
        : kind == 1 ? -1000
                    : (int64_t)vkmha_random_below(&fill->random, (uint64_t)(queries + keys) + 8) -
                          queries - 3;
    if (offset < 0) {
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_OFFSET_NEGATIVE);
    } else if (offset >= keys) {
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_OFFSET_BEYOND);
    }
    return offset;
}

/* One offset, or one a sequence. */
static void draw_offsets(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    problem->plan.has_position_offsets = vkmha_random_chance(&fill->random, 40);
    if (!problem->plan.has_position_offsets) {
        problem->plan.position_offset = draw_offset(fill);
        return;
    }
    const uint64_t batch = problem->plan.batch_size;
    int32_t *offsets = vkmha_filler_allocate(fill, batch, sizeof(int32_t));
    for (uint64_t b = 0; offsets && b < batch; b++) {
        offsets[b] = (int32_t)draw_offset(fill);
    }
    problem->inputs.position_offsets = offsets;
}

static void draw_causal(vkmha_filler *fill)
{
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    static const vkmha_causal causals[] = {VKMHA_CAUSAL_NONE,         VKMHA_CAUSAL_NONE,
                                           VKMHA_CAUSAL_NONE,         VKMHA_CAUSAL_TOP_LEFT,
                                           VKMHA_CAUSAL_BOTTOM_RIGHT, VKMHA_CAUSAL_OFFSET};
    const vkmha_causal causal =
        causals[vkmha_random_below(&fill->family, sizeof(causals) / sizeof(causals[0]))];
    const bool is_refused = causal == VKMHA_CAUSAL_OFFSET && fill->shape->is_classic;
    if (causal == VKMHA_CAUSAL_NONE || is_refused ||
        vkmha_shape_has(fill->shape, VKMHA_FEATURE_UNIFORM) ||
        !vkmha_filler_takes(fill, VKMHA_OPTION_CAUSAL)) {
        return;
    }
    plan->causal = causal;
    if (causal == VKMHA_CAUSAL_OFFSET) {
        draw_offsets(fill);
    }
}

static void draw_positions(vkmha_filler *fill)
{
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    if (plan->causal != VKMHA_CAUSAL_NONE ||
        !vkmha_filler_takes_young(fill, VKMHA_OPTION_POSITIONS, 40)) {
        return;
    }
    plan->positions = vkmha_random_chance(&fill->random, 50) ? VKMHA_POSITIONS_BOTTOM_RIGHT
                                                             : VKMHA_POSITIONS_OFFSET;
    if (plan->positions == VKMHA_POSITIONS_OFFSET) {
        draw_offsets(fill);
    }
}

static uint32_t draw_window(vkmha_filler *fill)
{
    static const uint32_t usual[] = {0, 0, 1, 2, 7, 15, 16, 31, 64};
    const vkmha_plan_params *plan = &fill->shape->problem.plan;
    return vkmha_random_chance(&fill->random, 60)
               ? PICK(fill, usual)
               : (uint32_t)vkmha_random_below(&fill->random, plan->past_len + plan->key_len + 3);
}

static void draw_window_left(vkmha_filler *fill)
{
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    if (vkmha_filler_takes_young(fill, VKMHA_OPTION_WINDOW_LEFT, 18)) {
        plan->has_window_left = true;
        plan->window_left = draw_window(fill);
    }
}

static void draw_window_right(vkmha_filler *fill)
{
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    if (vkmha_filler_takes_young(fill, VKMHA_OPTION_WINDOW_RIGHT, 12)) {
        plan->has_window_right = true;
        plan->window_right = draw_window(fill);
    }
}

/* ---- Rotary positions ---------------------------------------------------------------------- */

/* Key lengths are not drawn yet: at most all keys. */
static uint64_t positions_needed(const vkmha_plan_params *plan, const vkmha_inputs *inputs)
{
    const uint64_t all_keys = plan->past_len + plan->key_len;
    int64_t offset = plan->position_offset;
    for (uint64_t b = 0; plan->has_position_offsets && b < plan->batch_size; b++) {
        offset = inputs->position_offsets[b] > offset ? inputs->position_offsets[b] : offset;
    }
    const uint64_t last = plan->query_len + (offset > 0 ? (uint64_t)offset : 0);
    return all_keys > last ? all_keys : last;
}

static void draw_rope(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    vkmha_rope *rope = &problem->layer.rope;
    const uint32_t even = problem->layer.head_dim / 2 * 2;
    /* A rotation leaves no integers, which the projections' probe needs. */
    if (even == 0 || vkmha_shape_has(fill->shape, VKMHA_FEATURE_INTEGERS) || !fill->has_memory ||
        !vkmha_filler_takes_young(fill, VKMHA_OPTION_ROPE, 22)) {
        return;
    }
    const uint32_t dims[] = {even, even, even / 4 * 2, 2};
    static const float bases[] = {0.0f, 10000.0f, 500000.0f, 100.0f};
    rope->style = vkmha_random_chance(&fill->random, 50) ? VKMHA_ROPE_HALF : VKMHA_ROPE_INTERLEAVED;
    const uint32_t dim = PICK(fill, dims);
    rope->dim = dim == 0 ? even : dim;
    if (rope->dim == problem->layer.head_dim && vkmha_random_chance(&fill->random, 50)) {
        rope->dim = 0;
    }
    rope->max_positions = 1 + (uint32_t)positions_needed(&problem->plan, &problem->inputs) +
                          (uint32_t)vkmha_random_below(&fill->random, 5);
    if (vkmha_random_chance(&fill->random, 70)) {
        rope->base = PICK(fill, bases);
        return;
    }
    const uint64_t count =
        (uint64_t)rope->max_positions * ((rope->dim ? rope->dim : problem->layer.head_dim) / 2);
    float *cosines = vkmha_filler_allocate(fill, count, sizeof(float));
    float *sines = vkmha_filler_allocate(fill, count, sizeof(float));
    for (uint64_t i = 0; fill->has_memory && i < count; i++) {
        const double angle = (double)vkmha_filler_value(fill) * 3.0;
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    rope->cos = cosines;
    rope->sin = sines;
}

static int32_t *draw_given(vkmha_filler *fill, uint64_t count)
{
    int32_t *positions = vkmha_filler_allocate(fill, count, sizeof(int32_t));
    for (uint64_t i = 0; positions && i < count; i++) {
        positions[i] = (int32_t)vkmha_random_below(&fill->random,
                                                   fill->shape->problem.layer.rope.max_positions);
    }
    return positions;
}

static void draw_given_positions(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    if (problem->layer.rope.style == VKMHA_ROPE_NONE ||
        !vkmha_filler_takes_young(fill, VKMHA_OPTION_GIVEN_POSITIONS, 30)) {
        return;
    }
    problem->plan.has_positions = true;
    problem->inputs.query_positions = draw_given(fill, sizes.query_rows);
    problem->inputs.key_positions = draw_given(fill, sizes.key_rows);
}

/* ---- Scores -------------------------------------------------------------------------------- */

static void draw_softcap(vkmha_filler *fill)
{
    static const float caps[] = {0.5f, 5.0f, 50.0f};
    if (vkmha_filler_takes_young(fill, VKMHA_OPTION_SOFTCAP, 15)) {
        fill->shape->problem.layer.softcap = PICK(fill, caps);
    }
}

static void draw_alibi(vkmha_filler *fill)
{
    vkmha_layer_params *layer = &fill->shape->problem.layer;
    if (!vkmha_filler_takes_young(fill, VKMHA_OPTION_ALIBI, 15)) {
        return;
    }
    layer->has_alibi = true;
    if (vkmha_random_chance(&fill->random, 50)) {
        float *slopes = vkmha_filler_allocate(fill, layer->num_heads, sizeof(float));
        for (uint32_t h = 0; slopes && h < layer->num_heads; h++) {
            slopes[h] = (float)vkmha_random_below(&fill->random, 65) / 64.0f;
        }
        layer->alibi_slopes = slopes;
    }
}

static void draw_relative_bias(vkmha_filler *fill)
{
    static const uint32_t buckets[] = {4, 8, 32};
    static const uint32_t distances[] = {17, 64, 128};
    vkmha_layer_params *layer = &fill->shape->problem.layer;
    vkmha_relative_bias *bias = &layer->relative_bias;
    if (!vkmha_filler_takes_young(fill, VKMHA_OPTION_RELATIVE_BIAS, 15)) {
        return;
    }
    bias->num_buckets = PICK(fill, buckets);
    bias->max_distance = PICK(fill, distances);
    bias->is_bidirectional = vkmha_random_chance(&fill->random, 50);
    bias->table = vkmha_filler_tensor(fill, (uint64_t)layer->num_heads * bias->num_buckets);
}

static void draw_sinks(vkmha_filler *fill)
{
    vkmha_layer_params *layer = &fill->shape->problem.layer;
    if (!vkmha_filler_takes_young(fill, VKMHA_OPTION_SINKS, 15)) {
        return;
    }
    float *sinks = vkmha_filler_tensor(fill, layer->num_heads);
    for (uint32_t h = 0; sinks && h < layer->num_heads; h++) {
        const uint64_t kind = vkmha_random_below(&fill->random, 10);
        if (kind < 2) {
            sinks[h] = kind == 0 ? -INFINITY : 80.0f;
            vkmha_shape_mark(fill->shape,
                             kind == 0 ? VKMHA_FEATURE_SINK_ABSENT : VKMHA_FEATURE_SINK_LARGE);
        }
    }
    layer->sinks = sinks;
}

static void draw_bias_kv(vkmha_filler *fill)
{
    vkmha_layer_params *layer = &fill->shape->problem.layer;
    if (vkmha_filler_takes_young(fill, VKMHA_OPTION_BIAS_KV, 12)) {
        layer->bias_k = vkmha_filler_tensor(fill, (uint64_t)layer->num_kv_heads * layer->head_dim);
        layer->bias_v =
            vkmha_filler_tensor(fill, (uint64_t)layer->num_kv_heads * layer->v_head_dim);
    }
}

static void draw_zero_attn(vkmha_filler *fill)
{
    fill->shape->problem.layer.add_zero_attn =
        vkmha_filler_takes_young(fill, VKMHA_OPTION_ZERO_ATTN, 12);
}

static void draw_gates(vkmha_filler *fill)
{
    static const float values[] = {0.0f, 1.0f, 0.5f, -2.0f};
    vkmha_problem *problem = &fill->shape->problem;
    if (!vkmha_filler_takes_young(fill, VKMHA_OPTION_GATES, 15)) {
        return;
    }
    problem->plan.has_gates_per_sequence = vkmha_random_chance(&fill->random, 50);
    problem->plan.has_head_gates = !problem->plan.has_gates_per_sequence;
    const uint64_t count = vkmha_problem_measure(problem).head_gates;
    float *gates = vkmha_filler_allocate(fill, count, sizeof(float));
    for (uint64_t i = 0; gates && i < count; i++) {
        gates[i] = PICK(fill, values);
        if (gates[i] == 0.0f) {
            vkmha_shape_mark(fill->shape, VKMHA_FEATURE_GATE_0);
        }
    }
    problem->inputs.head_gates = gates;
}

/* Of each tensor, and of none that is not there. */
static void draw_types(vkmha_filler *fill)
{
    static const vkmha_type types[] = {VKMHA_TYPE_F32, VKMHA_TYPE_F16, VKMHA_TYPE_F16,
                                       VKMHA_TYPE_BF16};
    vkmha_type drawn[6];
    for (uint32_t i = 0; i < 6; i++) {
        drawn[i] = types[vkmha_random_below(&fill->family, sizeof(types) / sizeof(types[0]))];
    }
    const bool is_alike = vkmha_random_chance(&fill->family, 40);
    if (!vkmha_filler_takes_young(fill, VKMHA_OPTION_TYPES, 45)) {
        return;
    }
    vkmha_layer_params *layer = &fill->shape->problem.layer;
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    plan->query_type = drawn[0];
    plan->key_type = plan->key_is_query || is_alike ? drawn[0] : drawn[1];
    plan->value_type = plan->value_is_key || is_alike ? plan->key_type : drawn[2];
    plan->output_type = is_alike ? drawn[0] : drawn[3];
    layer->cache_type = is_alike ? drawn[0] : drawn[4];
    layer->weight_type = layer->attention_only ? VKMHA_TYPE_F32 : drawn[5];
}

static void draw_work_limit(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    if (vkmha_random_chance(&fill->random, 25) &&
        vkmha_filler_takes(fill, VKMHA_OPTION_WORK_LIMIT)) {
        problem->plan.max_work_per_dispatch =
            1 + vkmha_shape_work(problem) / (1 + vkmha_random_below(&fill->random, 30));
    }
}

/* ---- All of them --------------------------------------------------------------------------- */

static void draw_key_lengths(vkmha_filler *fill)
{
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    plan->has_key_lengths = !plan->is_packed && vkmha_random_chance(&fill->family, 30) &&
                            !vkmha_shape_has(fill->shape, VKMHA_FEATURE_UNIFORM) &&
                            vkmha_filler_takes(fill, VKMHA_OPTION_KEY_LENGTHS);
}

static void draw_first_keys(vkmha_filler *fill)
{
    fill->shape->problem.plan.has_first_keys =
        vkmha_filler_takes_young(fill, VKMHA_OPTION_FIRST_KEYS, 18);
}

static void draw_attend_keys(vkmha_filler *fill)
{
    fill->shape->problem.plan.has_attend_keys =
        vkmha_random_chance(&fill->family, 25) &&
        !vkmha_shape_has(fill->shape, VKMHA_FEATURE_UNIFORM) &&
        vkmha_filler_takes(fill, VKMHA_OPTION_ATTEND_KEYS);
}

static void draw_mask_dims(vkmha_filler *fill)
{
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    const uint64_t full[4] = {plan->batch_size, fill->shape->problem.layer.num_heads,
                              plan->query_len, plan->past_len + plan->key_len};
    static const vkmha_feature broadcasts[4] = {
        VKMHA_FEATURE_MASK_NO_BATCH, VKMHA_FEATURE_MASK_NO_HEAD, VKMHA_FEATURE_MASK_NO_QUERY,
        VKMHA_FEATURE_MASK_NO_KEY};
    static const uint32_t percent[4] = {50, 50, 25, 10};
    bool is_full = true;
    for (uint32_t axis = 0; axis < 4; axis++) {
        const bool is_broadcast = vkmha_random_chance(&fill->random, percent[axis]);
        plan->mask_dims[axis] = is_broadcast ? 1 : full[axis];
        if (is_broadcast && full[axis] > 1) {
            vkmha_shape_mark(fill->shape, broadcasts[axis]);
            is_full = false;
        }
    }
    if (is_full) {
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_MASK_FULL);
    }
}

static void draw_mask(vkmha_filler *fill)
{
    static const vkmha_mask_type masks[] = {
        VKMHA_MASK_NONE,     VKMHA_MASK_NONE,         VKMHA_MASK_NONE,       VKMHA_MASK_ATTEND,
        VKMHA_MASK_ADDITIVE, VKMHA_MASK_ADDITIVE_F16, VKMHA_MASK_ATTEND_BITS};
    vkmha_mask_type mask =
        masks[vkmha_random_below(&fill->family, sizeof(masks) / sizeof(masks[0]))];
    if (fill->shape->is_classic && mask > VKMHA_MASK_ADDITIVE) {
        mask = mask == VKMHA_MASK_ADDITIVE_F16 ? VKMHA_MASK_ADDITIVE : VKMHA_MASK_ATTEND;
    }
    if (mask != VKMHA_MASK_NONE && !vkmha_shape_has(fill->shape, VKMHA_FEATURE_UNIFORM) &&
        vkmha_filler_takes(fill, VKMHA_OPTION_MASK)) {
        fill->shape->problem.plan.mask = mask;
        draw_mask_dims(fill);
    }
}

bool vkmha_shape_draw_options(vkmha_shape *shape)
{
    static void (*const draws[VKMHA_NUM_OPTIONS])(vkmha_filler * fill) = {
        [VKMHA_OPTION_PROBE] = draw_probe,
        [VKMHA_OPTION_PACKED] = draw_packed,
        [VKMHA_OPTION_PAST] = draw_past,
        [VKMHA_OPTION_PRESENT] = draw_present,
        [VKMHA_OPTION_SCALE] = draw_scale,
        [VKMHA_OPTION_CAUSAL] = draw_causal,
        [VKMHA_OPTION_POSITIONS] = draw_positions,
        [VKMHA_OPTION_WINDOW_LEFT] = draw_window_left,
        [VKMHA_OPTION_WINDOW_RIGHT] = draw_window_right,
        [VKMHA_OPTION_MASK] = draw_mask,
        [VKMHA_OPTION_ATTEND_KEYS] = draw_attend_keys,
        [VKMHA_OPTION_KEY_LENGTHS] = draw_key_lengths,
        [VKMHA_OPTION_FIRST_KEYS] = draw_first_keys,
        [VKMHA_OPTION_ROPE] = draw_rope,
        [VKMHA_OPTION_GIVEN_POSITIONS] = draw_given_positions,
        [VKMHA_OPTION_SOFTCAP] = draw_softcap,
        [VKMHA_OPTION_ALIBI] = draw_alibi,
        [VKMHA_OPTION_RELATIVE_BIAS] = draw_relative_bias,
        [VKMHA_OPTION_SINKS] = draw_sinks,
        [VKMHA_OPTION_BIAS_KV] = draw_bias_kv,
        [VKMHA_OPTION_ZERO_ATTN] = draw_zero_attn,
        [VKMHA_OPTION_GATES] = draw_gates,
        [VKMHA_OPTION_LSE] = vkmha_shape_draw_lse,
        [VKMHA_OPTION_WEIGHTS] = vkmha_shape_draw_weights,
        [VKMHA_OPTION_MEAN_WEIGHTS] = vkmha_shape_draw_mean_weights,
        [VKMHA_OPTION_SCORES] = vkmha_shape_draw_scores,
        [VKMHA_OPTION_CHOSEN] = vkmha_shape_draw_chosen,
        [VKMHA_OPTION_STATISTICS] = vkmha_shape_draw_statistics,
        [VKMHA_OPTION_KEY_MASS] = vkmha_shape_draw_key_mass,
        [VKMHA_OPTION_CONTRIBUTIONS] = vkmha_shape_draw_contributions,
        [VKMHA_OPTION_GATE_GRADIENTS] = vkmha_shape_draw_gate_gradients,
        [VKMHA_OPTION_STRIDES] = vkmha_shape_draw_strides,
        [VKMHA_OPTION_TYPES] = draw_types,
        [VKMHA_OPTION_WORK_LIMIT] = draw_work_limit,
    };
    bool has_memory = true;
    for (uint32_t i = 0; has_memory && i < VKMHA_NUM_OPTIONS; i++) {
        vkmha_filler fill = vkmha_filler_start(shape, i);
        if (draws[i]) {
            draws[i](&fill);
        }
        has_memory = fill.has_memory;
    }
    return has_memory;
}
