#include "problem.h"

vkmha_problem_sizes vkmha_problem_measure(const vkmha_problem *problem)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    vkmha_problem_sizes sizes = {
        .num_kv_heads = layer->num_kv_heads ? layer->num_kv_heads : layer->num_heads,
        .v_head_dim = layer->v_head_dim ? layer->v_head_dim : layer->head_dim,
        .query_rows = plan->batch_size * plan->query_len,
        .key_rows = plan->batch_size * plan->key_len,
    };
    sizes.heads_query = sizes.query_rows * layer->num_heads * layer->head_dim;
    sizes.heads_key = sizes.key_rows * sizes.num_kv_heads * layer->head_dim;
    sizes.heads_value = sizes.key_rows * sizes.num_kv_heads * sizes.v_head_dim;
    sizes.attention = sizes.query_rows * layer->num_heads * sizes.v_head_dim;
    if (layer->attention_only) {
        sizes.query_dim = (uint64_t)layer->num_heads * layer->head_dim;
        sizes.key_dim = sizes.num_kv_heads * layer->head_dim;
        sizes.value_dim = sizes.num_kv_heads * sizes.v_head_dim;
        sizes.output_dim = layer->num_heads * sizes.v_head_dim;
    } else {
        sizes.query_dim = layer->embed_dim;
        sizes.key_dim = layer->key_dim ? layer->key_dim : layer->embed_dim;
        sizes.value_dim = layer->value_dim ? layer->value_dim : layer->embed_dim;
        sizes.output_dim = layer->output_dim ? layer->output_dim : layer->embed_dim;
    }
    sizes.output = sizes.query_rows * sizes.output_dim;
    return sizes;
}

const float *vkmha_problem_key(const vkmha_problem *problem)
{
    return problem->plan.key_is_query ? problem->inputs.query : problem->inputs.key;
}

const float *vkmha_problem_value(const vkmha_problem *problem)
{
    return problem->plan.value_is_key ? vkmha_problem_key(problem) : problem->inputs.value;
}

const char *vkmha_skip_name(vkmha_skip skip)
{
    static const char *const names[VKMHA_NUM_SKIPS] = {
        [VKMHA_SKIP_WINDOW] = "window",
        [VKMHA_SKIP_CAUSAL_OFFSET] = "causal offset",
        [VKMHA_SKIP_PER_ITEM_POSITIONS] = "per-item positions",
        [VKMHA_SKIP_ROPE] = "rope",
        [VKMHA_SKIP_ALIBI] = "alibi",
        [VKMHA_SKIP_SOFTCAP] = "softcap",
        [VKMHA_SKIP_BIAS_KV] = "bias_kv",
        [VKMHA_SKIP_ZERO_ATTN] = "zero_attn",
        [VKMHA_SKIP_HEAD_MASK] = "head_mask",
        [VKMHA_SKIP_PAST] = "past",
        [VKMHA_SKIP_PRESENT] = "present",
        [VKMHA_SKIP_WEIGHTS] = "output weights",
        [VKMHA_SKIP_WEIGHTS_AVG] = "output weights_avg",
        [VKMHA_SKIP_SCORES] = "output scores",
    };
    return names[skip];
}
