/* What random problems tell besides the output. */
#include "shape.h"

void vkmha_shape_draw_lse(vkmha_filler *fill)
{
    fill->shape->problem.plan.has_lse = vkmha_filler_takes_young(fill, VKMHA_OPTION_LSE, 20);
}

void vkmha_shape_draw_weights(vkmha_filler *fill)
{
    fill->shape->problem.plan.has_weights =
        vkmha_filler_takes_young(fill, VKMHA_OPTION_WEIGHTS, 25);
}

void vkmha_shape_draw_mean_weights(vkmha_filler *fill)
{
    fill->shape->problem.plan.has_mean_weights =
        vkmha_filler_takes_young(fill, VKMHA_OPTION_MEAN_WEIGHTS, 15);
}

void vkmha_shape_draw_scores(vkmha_filler *fill)
{
    static const vkmha_scores stages[] = {VKMHA_SCORES_SCALED, VKMHA_SCORES_CAPPED,
                                          VKMHA_SCORES_MASKED};
    const uint64_t stage = vkmha_random_below(&fill->family, sizeof(stages) / sizeof(stages[0]));
    if (vkmha_filler_takes_young(fill, VKMHA_OPTION_SCORES, 25)) {
        fill->shape->problem.plan.scores = stages[stage];
    }
}

/* Some of `count`, ascending; NULL where there is none to choose. */
static uint32_t *choose(vkmha_filler *fill, uint64_t count, uint32_t *num_chosen)
{
    const uint32_t percent = 10 + (uint32_t)vkmha_random_below(&fill->random, 81);
    uint32_t *chosen = vkmha_filler_allocate(fill, count, sizeof(*chosen));
    *num_chosen = 0;
    for (uint64_t n = 0; chosen && n < count; n++) {
        const bool is_last_chance = *num_chosen == 0 && n + 1 == count;
        if (vkmha_random_chance(&fill->random, percent) || is_last_chance) {
            chosen[(*num_chosen)++] = (uint32_t)n;
        }
    }
    return *num_chosen > 0 ? chosen : NULL;
}

void vkmha_shape_draw_chosen(vkmha_filler *fill)
{
    const uint32_t num_heads = fill->shape->problem.layer.num_heads;
    vkmha_plan_params *plan = &fill->shape->problem.plan;
    const uint64_t kind = vkmha_random_below(&fill->random, 5);
    const bool is_used =
        plan->has_weights || plan->has_mean_weights || plan->scores != VKMHA_SCORES_NONE;
    if (!is_used || kind < 2 || !vkmha_filler_takes(fill, VKMHA_OPTION_CHOSEN)) {
        return;
    }
    if (kind != 2) {
        plan->chosen_heads = choose(fill, num_heads, &plan->num_chosen_heads);
    }
    if (kind != 3) {
        plan->chosen_queries = choose(fill, plan->query_len, &plan->num_chosen_queries);
    }
}

void vkmha_shape_draw_statistics(vkmha_filler *fill)
{
    fill->shape->problem.plan.has_statistics =
        vkmha_filler_takes_young(fill, VKMHA_OPTION_STATISTICS, 25);
}

void vkmha_shape_draw_key_mass(vkmha_filler *fill)
{
    fill->shape->problem.plan.has_key_mass =
        vkmha_filler_takes_young(fill, VKMHA_OPTION_KEY_MASS, 15);
}

void vkmha_shape_draw_contributions(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    problem->plan.has_contributions =
        !problem->layer.attention_only &&
        vkmha_filler_takes_young(fill, VKMHA_OPTION_CONTRIBUTIONS, 20);
}

void vkmha_shape_draw_gate_gradients(vkmha_filler *fill)
{
    vkmha_problem *problem = &fill->shape->problem;
    const bool has_gates = problem->plan.has_head_gates || problem->plan.has_gates_per_sequence;
    if (problem->layer.attention_only || has_gates ||
        !vkmha_filler_takes_young(fill, VKMHA_OPTION_GATE_GRADIENTS, 25)) {
        return;
    }
    problem->plan.has_gate_gradients = true;
    problem->inputs.output_gradient =
        vkmha_filler_tensor(fill, vkmha_problem_measure(problem).output);
}
