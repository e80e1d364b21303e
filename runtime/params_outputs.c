/* Outputs: which are asked for, what of heads and queries is chosen, how large they are; and the
 * memory for them. */
#include <inttypes.h>

#include "params_check.h"

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Chosen heads or queries: ascending, below `end`. */
static vkmha_status check_chosen(const char *field, const uint32_t *chosen, uint32_t count,
                                 uint64_t end, const char *end_name, bool is_used,
                                 vkmha_error *error)
{
    if (!chosen != (count == 0)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "chosen_%s is %s, but num_chosen_%s is %u", field,
                          chosen ? "given" : "NULL", field, count);
    }
    if (chosen && !is_used) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "chosen_%s is given, but none of has_weights, has_mean_weights and "
                          "scores is",
                          field);
    }
    for (uint32_t n = 0; n < count; n++) {
        if (chosen[n] >= end) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "chosen_%s[%u] %u is not below %s %" PRIu64, field, n, chosen[n],
                              end_name, end);
        }
        if (n > 0 && chosen[n] <= chosen[n - 1]) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "chosen_%s[%u] %u is not more than the one before, %u", field, n,
                              chosen[n], chosen[n - 1]);
        }
    }
    return VKMHA_OK;
}

/* Bytes of what is asked for fit in 63 bits. */
static vkmha_status check_sizes(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                                vkmha_error *error)
{
    const uint64_t batch = given->batch_size;
    const uint64_t heads = layer->num_heads;
    const uint64_t queries = given->query_len;
    const uint64_t keys = vkmha_all_keys(given);
    const uint64_t chosen_heads = given->chosen_heads ? given->num_chosen_heads : heads;
    const uint64_t chosen_queries = given->chosen_queries ? given->num_chosen_queries : queries;
    const bool has_scores = given->scores != VKMHA_SCORES_NONE;
    const struct {
        const char *name;
        bool is_asked;
        uint64_t factors[5];
    } tensors[] = {
        {"weights", given->has_weights, {batch, chosen_heads, chosen_queries, keys + 2, 4}},
        {"mean_weights", given->has_mean_weights, {batch, chosen_queries, keys + 2, 4, 1}},
        {"scores", has_scores, {batch, chosen_heads, chosen_queries, keys + 2, 4}},
        {"statistics", given->has_statistics, {batch, heads, queries, sizeof(vkmha_statistics), 1}},
        {"key_mass", given->has_key_mass, {batch, heads, keys, 4, 1}},
    };
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        uint64_t bytes = 0;
        if (tensors[i].is_asked && !vkmha_multiply_all(tensors[i].factors, 5, &bytes)) {
            return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                              "%s tensor is too large: its size in bytes does not fit in 63 bits",
                              tensors[i].name);
        }
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_asked(const vkmha_layer_params *layer, const vkmha_plan_params *given,
                               vkmha_error *error)
{
    if ((uint32_t)given->scores > VKMHA_SCORES_MASKED) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "scores %u is no vkmha_scores",
                          (uint32_t)given->scores);
    }
    if (layer->attention_only && (given->has_contributions || given->has_gate_gradients)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "%s is given, but attention_only has no W_O",
                          given->has_contributions ? "has_contributions" : "has_gate_gradients");
    }
    if (given->has_gate_gradients && (given->has_head_gates || given->has_gates_per_sequence)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "has_gate_gradients is given, but not with gates: a head of gate 0 would "
                          "leave nothing of itself");
    }
    const bool is_used =
        given->has_weights || given->has_mean_weights || given->scores != VKMHA_SCORES_NONE;
    vkmha_status status = check_chosen("heads", given->chosen_heads, given->num_chosen_heads,
                                       layer->num_heads, "num_heads", is_used, error);
    if (status == VKMHA_OK) {
        status = check_chosen("queries", given->chosen_queries, given->num_chosen_queries,
                              given->query_len, "query_len", is_used, error);
    }
    return status == VKMHA_OK ? check_sizes(layer, given, error) : status;
}

void vkmha_told_sizes(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                      vkmha_sizes *sizes)
{
    const uint64_t batch = plan->batch_size;
    const uint64_t rows = batch * layer->num_heads * plan->query_len;
    sizes->columns =
        sizes->all_keys + (layer->bias_k ? 1 : 0) + (layer->add_zero_attn ? 1 : 0);
    sizes->chosen_heads = plan->num_chosen_heads ? plan->num_chosen_heads : layer->num_heads;
    sizes->chosen_queries =
        plan->num_chosen_queries ? plan->num_chosen_queries : plan->query_len;
    const uint64_t one_head = batch * sizes->chosen_queries * sizes->columns;
    const uint64_t chosen = one_head * sizes->chosen_heads;
    if (sizes->query_rows == 0) {
        return; /* nothing is told of no queries */
    }
    sizes->lse = plan->has_lse ? rows : 0;
    sizes->weights = plan->has_weights ? chosen : 0;
    sizes->mean_weights = plan->has_mean_weights ? one_head : 0;
    sizes->scores = plan->scores != VKMHA_SCORES_NONE ? chosen : 0;
    sizes->statistics =
        plan->has_statistics ? rows * (sizeof(vkmha_statistics) / sizeof(float)) : 0;
    sizes->key_mass = plan->has_key_mass ? batch * layer->num_heads * sizes->all_keys : 0;
    sizes->contributions = plan->has_contributions ? rows : 0;
    sizes->gate_gradients = plan->has_gate_gradients ? rows : 0;
    sizes->output_gradient = plan->has_gate_gradients ? sizes->query_rows * layer->output_dim : 0;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* The stages' results, for proofs. */
static vkmha_status check_stages(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                 const vkmha_outputs *outputs, vkmha_error *error)
{
    const char *stage = outputs->projected_query   ? "projected_query"
                        : outputs->projected_key   ? "projected_key"
                        : outputs->projected_value ? "projected_value"
                        : outputs->attention       ? "attention"
                                                   : NULL;
    if (stage && layer->attention_only) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "outputs.%s is given, but attention_only has no such stage", stage);
    }
    if ((outputs->projected_key || outputs->projected_value) && plan->cache_capacity > 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "outputs.%s is given, but new keys and values go straight to the cache",
                          outputs->projected_key ? "projected_key" : "projected_value");
    }
    return VKMHA_OK;
}

vkmha_status vkmha_check_outputs(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                 const vkmha_sizes *sizes, const vkmha_outputs *outputs,
                                 vkmha_error *error)
{
    if (!outputs) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "outputs is NULL");
    }
    if (sizes->output > 0 && !outputs->output) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "outputs.output is NULL");
    }
    const struct {
        const char *field;
        const void *given;
        uint64_t elements;
        bool is_asked;
        const char *asked;
    } members[] = {
        {"present_key", outputs->present_key, sizes->present_key, plan->has_present, "has_present"},
        {"present_value", outputs->present_value, sizes->present_value, plan->has_present,
         "has_present"},
        {"lse", outputs->lse, sizes->lse, plan->has_lse, "has_lse"},
        {"weights", outputs->weights, sizes->weights, plan->has_weights, "has_weights"},
        {"mean_weights", outputs->mean_weights, sizes->mean_weights, plan->has_mean_weights,
         "has_mean_weights"},
        {"scores", outputs->scores, sizes->scores, plan->scores != VKMHA_SCORES_NONE, "scores"},
        {"statistics", outputs->statistics, sizes->statistics, plan->has_statistics,
         "has_statistics"},
        {"key_mass", outputs->key_mass, sizes->key_mass, plan->has_key_mass, "has_key_mass"},
        {"contributions", outputs->contributions, sizes->contributions, plan->has_contributions,
         "has_contributions"},
        {"gate_gradients", outputs->gate_gradients, sizes->gate_gradients,
         plan->has_gate_gradients, "has_gate_gradients"},
    };
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (members[i].given && !members[i].is_asked) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "outputs.%s is given, but the plan has no %s", members[i].field,
                              members[i].asked);
        }
        if (!members[i].given && members[i].elements > 0) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "outputs.%s is NULL, but the plan has %s", members[i].field,
                              members[i].asked);
        }
    }
    return check_stages(layer, plan, outputs, error);
}
