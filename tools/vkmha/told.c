#include "told.h"

uint64_t vkmha_axes_count(const vkmha_axes *axes)
{
    uint64_t count = 1;
    for (size_t i = 0; axes->letters[i] != '\0'; i++) {
        count *= axes->dims[i];
    }
    return count;
}

const char *vkmha_told_name(vkmha_told told)
{
    static const char *const names[VKMHA_NUM_TOLD] = {
        [VKMHA_TOLD_LSE] = "lse",
        [VKMHA_TOLD_WEIGHTS] = "weights",
        [VKMHA_TOLD_MEAN_WEIGHTS] = "mean_weights",
        [VKMHA_TOLD_SCORES] = "scores",
        [VKMHA_TOLD_STATISTICS] = "statistics",
        [VKMHA_TOLD_KEY_MASS] = "key_mass",
        [VKMHA_TOLD_CONTRIBUTIONS] = "contributions",
        [VKMHA_TOLD_GATE_GRADIENTS] = "gate_gradients",
    };
    return names[told];
}

bool vkmha_told_is_asked(const vkmha_plan_params *plan, vkmha_told told)
{
    switch (told) {
    case VKMHA_TOLD_LSE:
        return plan->has_lse;
    case VKMHA_TOLD_WEIGHTS:
        return plan->has_weights;
    case VKMHA_TOLD_MEAN_WEIGHTS:
        return plan->has_mean_weights;
    case VKMHA_TOLD_SCORES:
        return plan->scores != VKMHA_SCORES_NONE;
    case VKMHA_TOLD_STATISTICS:
        return plan->has_statistics;
    case VKMHA_TOLD_KEY_MASS:
        return plan->has_key_mass;
    case VKMHA_TOLD_CONTRIBUTIONS:
        return plan->has_contributions;
    case VKMHA_TOLD_GATE_GRADIENTS:
        return plan->has_gate_gradients;
    case VKMHA_NUM_TOLD:
        break;
    }
    return false;
}

vkmha_axes vkmha_told_axes(const vkmha_problem *problem, vkmha_told told)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    const uint64_t all_keys = vkmha_problem_measure(problem).all_keys;
    const uint64_t columns = all_keys + (layer->bias_k ? 1 : 0) + (layer->add_zero_attn ? 1 : 0);
    const uint64_t heads = plan->chosen_heads ? plan->num_chosen_heads : layer->num_heads;
    const uint64_t queries = plan->chosen_queries ? plan->num_chosen_queries : plan->query_len;
    const uint64_t batch = plan->batch_size;
    switch (told) {
    case VKMHA_TOLD_WEIGHTS:
    case VKMHA_TOLD_SCORES:
        return (vkmha_axes){{batch, heads, queries, columns}, "bhij"};
    case VKMHA_TOLD_MEAN_WEIGHTS:
        return (vkmha_axes){{batch, queries, columns}, "bij"};
    case VKMHA_TOLD_KEY_MASS:
        return (vkmha_axes){{batch, layer->num_heads, all_keys}, "bhj"};
    case VKMHA_TOLD_STATISTICS:
        return (vkmha_axes){{batch, layer->num_heads, plan->query_len, VKMHA_NUM_STATISTICS},
                            "bhis"};
    case VKMHA_TOLD_LSE:
    case VKMHA_TOLD_CONTRIBUTIONS:
    case VKMHA_TOLD_GATE_GRADIENTS:
    case VKMHA_NUM_TOLD:
        break;
    }
    return (vkmha_axes){{batch, layer->num_heads, plan->query_len}, "bhi"};
}

void vkmha_told_outputs(float *const memory[VKMHA_NUM_TOLD], vkmha_outputs *outputs)
{
    outputs->lse = memory[VKMHA_TOLD_LSE];
    outputs->weights = memory[VKMHA_TOLD_WEIGHTS];
    outputs->mean_weights = memory[VKMHA_TOLD_MEAN_WEIGHTS];
    outputs->scores = memory[VKMHA_TOLD_SCORES];
    outputs->statistics = (vkmha_statistics *)(void *)memory[VKMHA_TOLD_STATISTICS];
    outputs->key_mass = memory[VKMHA_TOLD_KEY_MASS];
    outputs->contributions = memory[VKMHA_TOLD_CONTRIBUTIONS];
    outputs->gate_gradients = memory[VKMHA_TOLD_GATE_GRADIENTS];
}

void vkmha_told_reference(double *const values[VKMHA_NUM_TOLD],
                          double *const bounds[VKMHA_NUM_TOLD], vkmha_reference_outputs *outputs)
{
    outputs->lse = values[VKMHA_TOLD_LSE];
    outputs->lse_bound = bounds[VKMHA_TOLD_LSE];
    outputs->weights = values[VKMHA_TOLD_WEIGHTS];
    outputs->weights_bound = bounds[VKMHA_TOLD_WEIGHTS];
    outputs->mean_weights = values[VKMHA_TOLD_MEAN_WEIGHTS];
    outputs->mean_weights_bound = bounds[VKMHA_TOLD_MEAN_WEIGHTS];
    outputs->scores = values[VKMHA_TOLD_SCORES];
    outputs->scores_bound = bounds[VKMHA_TOLD_SCORES];
    outputs->statistics = values[VKMHA_TOLD_STATISTICS];
    outputs->statistics_bound = bounds[VKMHA_TOLD_STATISTICS];
    outputs->key_mass = values[VKMHA_TOLD_KEY_MASS];
    outputs->key_mass_bound = bounds[VKMHA_TOLD_KEY_MASS];
    outputs->contributions = values[VKMHA_TOLD_CONTRIBUTIONS];
    outputs->contributions_bound = bounds[VKMHA_TOLD_CONTRIBUTIONS];
    outputs->gate_gradients = values[VKMHA_TOLD_GATE_GRADIENTS];
    outputs->gate_gradients_bound = bounds[VKMHA_TOLD_GATE_GRADIENTS];
}

static void choose_all(vkmha_plan_params *plan)
{
    plan->chosen_heads = NULL;
    plan->num_chosen_heads = 0;
    plan->chosen_queries = NULL;
    plan->num_chosen_queries = 0;
}

void vkmha_told_nothing(vkmha_problem *problem)
{
    vkmha_plan_params *plan = &problem->plan;
    choose_all(plan);
    plan->has_lse = false;
    plan->has_weights = false;
    plan->has_mean_weights = false;
    plan->scores = VKMHA_SCORES_NONE;
    plan->has_statistics = false;
    plan->has_key_mass = false;
    plan->has_contributions = false;
    plan->has_gate_gradients = false;
    problem->inputs.output_gradient = NULL;
}

vkmha_status vkmha_told_everything(vkmha_problem *problem, vkmha_pool *pool, vkmha_error *error)
{
    vkmha_plan_params *plan = &problem->plan;
    const bool has_gates = plan->has_head_gates || plan->has_gates_per_sequence;
    choose_all(plan);
    plan->has_lse = true;
    plan->has_weights = true;
    plan->has_mean_weights = true;
    plan->scores = plan->scores ? plan->scores : VKMHA_SCORES_MASKED;
    plan->has_statistics = true;
    plan->has_key_mass = true;
    plan->has_contributions = !problem->layer.attention_only;
    plan->has_gate_gradients = !problem->layer.attention_only && !has_gates;
    if (!plan->has_gate_gradients || problem->inputs.output_gradient) {
        return VKMHA_OK;
    }
    /* Multiples of 1/32 within 1, of no pattern that a layer has. */
    const uint64_t count = vkmha_problem_measure(problem).output;
    float *gradient = vkmha_pool_allocate(pool, count, sizeof(float));
    if (!gradient) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    for (uint64_t i = 0; i < count; i++) {
        gradient[i] = ((float)((29 * i + 53) % 61) - 30.0f) / 32.0f;
    }
    problem->inputs.output_gradient = gradient;
    return VKMHA_OK;
}
