/* Where the tensors of random problems lie. */
#include "shape.h"

/* Rows, heads and batch items further apart than they need be, from somewhere on. */
static void pad_strides(vkmha_filler *fill, vkmha_role role, vkmha_strides *strides)
{
    const vkmha_problem *problem = &fill->shape->problem;
    const vkmha_span span = vkmha_problem_contiguous(problem, role);
    /* Whether rows are aligned is a family's, too. */
    const uint64_t unit = vkmha_random_chance(&fill->family, 50) ? 4 : 1;
    const uint64_t pad = vkmha_random_below(&fill->random, 6) * unit;
    const bool is_heads_first = problem->plan.layout == VKMHA_LAYOUT_BHSD;
    const uint64_t inner = span.features + pad;
    const uint64_t other = inner * (is_heads_first ? span.rows : span.heads) +
                           vkmha_random_below(&fill->random, 4) * unit;
    *strides = (vkmha_strides){
        .is_given = true,
        .offset = vkmha_random_below(&fill->random, 9) * unit,
        .row = is_heads_first ? inner : other,
        .head = is_heads_first ? other : inner,
    };
    if (!problem->layer.attention_only) {
        strides->head = 0;
    }
    if (!problem->plan.is_packed) {
        const bool is_repeated =
            role != VKMHA_ROLE_OUTPUT && span.batch > 1 && vkmha_random_chance(&fill->random, 20);
        const uint64_t outer = is_heads_first ? span.heads : span.rows;
        strides->batch =
            is_repeated ? 0 : other * outer + vkmha_random_below(&fill->random, 7) * unit;
        if (is_repeated) {
            vkmha_shape_mark(fill->shape, VKMHA_FEATURE_STRIDE_0);
        }
    }
}

/* Tensors of one row length, side by side: [batch, row, query features | key | value]. */
static void fuse_strides(vkmha_filler *fill, vkmha_role first)
{
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    vkmha_strides *strides[] = {&plan->query_strides, &plan->key_strides, &plan->value_strides};
    uint64_t row = vkmha_random_below(&fill->random, 4);
    for (vkmha_role role = first; role <= VKMHA_ROLE_VALUE; role++) {
        const vkmha_span span = vkmha_problem_contiguous(&fill->shape->problem, role);
        *strides[role] = (vkmha_strides){
            .is_given = true,
            .offset = row,
            .head = fill->shape->problem.layer.attention_only ? span.features : 0,
        };
        row += span.heads * span.features;
    }
    for (vkmha_role role = first; role <= VKMHA_ROLE_VALUE; role++) {
        const vkmha_span span = vkmha_problem_contiguous(&fill->shape->problem, role);
        strides[role]->row = row;
        strides[role]->batch = plan->is_packed ? 0 : span.rows * row;
    }
}

/* Inputs with projections that share a memory must have the same features. */
static bool can_fuse(const vkmha_problem *problem, bool has_query)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const bool is_alike =
        layer->attention_only ||
        (sizes.value_dim == sizes.key_dim && (!has_query || sizes.key_dim == sizes.query_dim));
    return is_alike && (!has_query || (plan->query_len == plan->key_len &&
                                       (!plan->is_packed || plan->key_is_query)));
}

void vkmha_shape_draw_strides(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    vkmha_plan_params *plan = &problem->plan;
    if (!vkmha_filler_takes_young(fill, VKMHA_OPTION_STRIDES, 25)) {
        return;
    }
    const uint64_t kind = vkmha_random_below(&fill->random, 10);
    const bool has_probe = vkmha_shape_has(fill->shape, VKMHA_FEATURE_ONE_HOT) ||
                           vkmha_shape_has(fill->shape, VKMHA_FEATURE_INDEX_VALUES) ||
                           vkmha_shape_has(fill->shape, VKMHA_FEATURE_CONSTANT_VALUES);
    if (kind < (plan->key_is_query ? 8 : 4) && !has_probe && can_fuse(problem, true)) {
        plan->key_is_query = true;
        plan->value_is_key = true;
        fuse_strides(fill, VKMHA_ROLE_QUERY);
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_FUSED_QKV);
    } else if (kind < 6 && !has_probe && !plan->key_is_query && can_fuse(problem, false)) {
        plan->value_is_key = true;
        fuse_strides(fill, VKMHA_ROLE_KEY);
        vkmha_shape_mark(fill->shape, VKMHA_FEATURE_FUSED_KV);
    } else {
        pad_strides(fill, VKMHA_ROLE_QUERY, &plan->query_strides);
        if (!plan->key_is_query) {
            pad_strides(fill, VKMHA_ROLE_KEY, &plan->key_strides);
        }
        if (!plan->value_is_key) {
            pad_strides(fill, VKMHA_ROLE_VALUE, &plan->value_strides);
        }
    }
    if (vkmha_random_chance(&fill->random, 50)) {
        pad_strides(fill, VKMHA_ROLE_OUTPUT, &plan->output_strides);
    }
}
