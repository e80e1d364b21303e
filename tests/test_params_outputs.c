/* What a plan is asked to tell: refused by name, measured, and given memory for just that. */
#include <criterion/criterion.h>

#include <stddef.h>
#include <string.h>

#include "runtime/params.h"

static float data[64];

static vkmha_layer_params usual(void)
{
    vkmha_layer_params layer = {.num_heads = 2, .head_dim = 4, .embed_dim = 8};
    layer.w_q = (vkmha_matrix){.data = data, .rows = 8, .columns = 8};
    layer.w_k = layer.w_v = layer.w_o = layer.w_q;
    return layer;
}

static void refuse_plan(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                        vkmha_status status, const char *field)
{
    vkmha_layer_params checked_layer;
    vkmha_plan_params checked;
    vkmha_error error = {VKMHA_OK, ""};
    cr_assert_eq(vkmha_check_layer(layer, &checked_layer, &error), VKMHA_OK, "%s", error.message);
    cr_assert_eq(vkmha_check_plan(&checked_layer, plan, &checked, &error), status, "%s: \"%s\"",
                 field, error.message);
    cr_assert(strstr(error.message, field), "\"%s\" does not name %s", error.message, field);
    cr_assert(!strchr(error.message, '\n'));
}

#define SHAPE  .batch_size = 2, .query_len = 3, .key_len = 5
#define PACKED SHAPE, .is_packed = true, .total_queries = 4, .total_keys = 6

static const uint32_t order[] = {0, 1, 1, 2, 0};

Test(params_outputs, plans)
{
    const vkmha_layer_params alone = {.num_heads = 2, .head_dim = 4, .attention_only = true};
    const vkmha_layer_params projected = usual();
#define HEADS(list, count)   .chosen_heads = (list), .num_chosen_heads = (count)
#define QUERIES(list, count) .chosen_queries = (list), .num_chosen_queries = (count)
    const struct {
        const char *field;
        const vkmha_layer_params *layer;
        vkmha_plan_params plan;
    } rules[] = {
        {"scores 4", &alone, {SHAPE, .scores = (vkmha_scores)4}},
        {"num_chosen_heads is 0", &alone, {SHAPE, .has_weights = true, HEADS(order, 0)}},
        {"num_chosen_heads is 1", &alone, {SHAPE, .has_weights = true, HEADS(NULL, 1)}},
        {"num_chosen_queries is 0", &alone, {SHAPE, .has_weights = true, QUERIES(order, 0)}},
        {"num_chosen_queries is 1", &alone, {SHAPE, .has_weights = true, QUERIES(NULL, 1)}},
        {"chosen_heads[1] 1", &alone, {SHAPE, .has_weights = true, HEADS(order + 1, 2)}},
        {"chosen_heads[0] 2", &alone, {SHAPE, .has_mean_weights = true, HEADS(order + 3, 1)}},
        {"chosen_queries[1] 0", &alone, {SHAPE, .has_weights = true, QUERIES(order + 3, 2)}},
        {"chosen_queries[0] 2",
         &alone,
         {.batch_size = 2,
          .query_len = 2,
          .key_len = 5,
          .scores = VKMHA_SCORES_MASKED,
          QUERIES(order + 3, 1)}},
        {"chosen_heads is given", &alone, {SHAPE, .has_lse = true, HEADS(order, 1)}},
        {"chosen_queries is given", &alone, {SHAPE, .has_key_mass = true, QUERIES(order, 1)}},
        {"has_contributions", &alone, {SHAPE, .has_contributions = true}},
        {"has_gate_gradients", &alone, {SHAPE, .has_gate_gradients = true}},
        {"has_gate_gradients",
         &projected,
         {SHAPE, .has_gate_gradients = true, .has_head_gates = true}},
        {"has_gate_gradients",
         &projected,
         {SHAPE, .has_gate_gradients = true, .has_gates_per_sequence = true}},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        refuse_plan(rules[i].layer, &rules[i].plan, VKMHA_ERROR_INVALID_ARGUMENT, rules[i].field);
    }
    /* The product of three lengths, each of which is in range. */
    const uint64_t length = (uint64_t)1 << 29;
    const struct {
        const char *field;
        vkmha_plan_params plan;
    } large[] = {
        {"weights tensor is too large", {.has_weights = true}},
        {"mean_weights tensor is too large", {.has_mean_weights = true}},
        {"scores tensor is too large", {.scores = VKMHA_SCORES_SCALED}},
    };
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        vkmha_plan_params plan = large[i].plan;
        plan.batch_size = 1 << 10;
        plan.query_len = length;
        plan.key_len = length;
        refuse_plan(&alone, &plan, VKMHA_ERROR_UNSUPPORTED, large[i].field);
    }
#undef HEADS
#undef QUERIES
}

#define EVERYTHING                                                                                 \
    .has_lse = true, .has_weights = true, .has_mean_weights = true, .scores = VKMHA_SCORES_MASKED, \
    .has_statistics = true, .has_key_mass = true, .has_contributions = true,                       \
    .has_gate_gradients = true

Test(params_outputs, sizes)
{
    vkmha_layer_params layer = usual();
    layer.bias_k = data;
    layer.bias_v = data;
    layer.add_zero_attn = true;
    const vkmha_plan_params all = {PACKED, EVERYTHING};
    vkmha_plan_params chosen = all;
    chosen.chosen_heads = order + 1;
    chosen.num_chosen_heads = 1;
    chosen.chosen_queries = (uint32_t[]){0, 2};
    chosen.num_chosen_queries = 2;
    vkmha_layer_params checked_layer;
    vkmha_plan_params checked;
    vkmha_sizes sizes;
    vkmha_error error;
    cr_assert_eq(vkmha_check_layer(&layer, &checked_layer, NULL), VKMHA_OK);
    cr_assert_eq(vkmha_check_plan(&checked_layer, &all, &checked, &error), VKMHA_OK, "%s",
                 error.message);
    vkmha_plan_sizes(&checked_layer, &checked, &sizes);
    cr_assert(sizes.columns == 7 && sizes.chosen_heads == 2 && sizes.chosen_queries == 3);
    cr_assert(sizes.lse == 12 && sizes.contributions == 12 && sizes.gate_gradients == 12);
    cr_assert(sizes.weights == 84 && sizes.scores == 84 && sizes.mean_weights == 42);
    cr_assert(sizes.statistics == 96 && sizes.key_mass == 20);
    cr_assert_eq(sizes.output_gradient, 4 * 8); /* of the rows that there are */
    cr_assert_eq(vkmha_check_plan(&checked_layer, &chosen, &checked, &error), VKMHA_OK, "%s",
                 error.message);
    vkmha_plan_sizes(&checked_layer, &checked, &sizes);
    cr_assert(sizes.weights == 28 && sizes.scores == 28 && sizes.mean_weights == 28);
    cr_assert(sizes.lse == 12 && sizes.key_mass == 20);
    const vkmha_plan_params nothing = {PACKED};
    cr_assert_eq(vkmha_check_plan(&checked_layer, &nothing, &checked, &error), VKMHA_OK);
    vkmha_plan_sizes(&checked_layer, &checked, &sizes);
    cr_assert(sizes.lse == 0 && sizes.weights == 0 && sizes.mean_weights == 0);
    cr_assert(sizes.scores == 0 && sizes.statistics == 0 && sizes.key_mass == 0);
    cr_assert(sizes.contributions == 0 && sizes.gate_gradients == 0 && sizes.output_gradient == 0);
}

Test(params_outputs, memory)
{
    static float memory[8];
    const vkmha_layer_params layer = usual();
    const vkmha_outputs given = {
        .output = memory,
        .present_key = memory,
        .present_value = memory,
        .lse = memory,
        .weights = memory,
        .mean_weights = memory,
        .scores = memory,
        .statistics = (vkmha_statistics *)(void *)memory,
        .key_mass = memory,
        .contributions = memory,
        .gate_gradients = memory,
    };
    const struct {
        const char *field;
        size_t place;
    } members[] = {
        {"outputs.present_key ", offsetof(vkmha_outputs, present_key)},
        {"outputs.present_value ", offsetof(vkmha_outputs, present_value)},
        {"outputs.lse ", offsetof(vkmha_outputs, lse)},
        {"outputs.weights ", offsetof(vkmha_outputs, weights)},
        {"outputs.mean_weights ", offsetof(vkmha_outputs, mean_weights)},
        {"outputs.scores ", offsetof(vkmha_outputs, scores)},
        {"outputs.statistics ", offsetof(vkmha_outputs, statistics)},
        {"outputs.key_mass ", offsetof(vkmha_outputs, key_mass)},
        {"outputs.contributions ", offsetof(vkmha_outputs, contributions)},
        {"outputs.gate_gradients ", offsetof(vkmha_outputs, gate_gradients)},
    };
    const vkmha_plan_params plans[] = {{SHAPE}, {SHAPE, .has_present = true, EVERYTHING}};
    vkmha_layer_params checked_layer;
    vkmha_error error;
    cr_assert_eq(vkmha_check_layer(&layer, &checked_layer, NULL), VKMHA_OK);
    for (uint32_t n = 0; n < 2; n++) {
        const bool is_asked = n == 1;
        vkmha_plan_params plan;
        vkmha_sizes sizes;
        cr_assert_eq(vkmha_check_plan(&checked_layer, &plans[n], &plan, &error), VKMHA_OK);
        vkmha_plan_sizes(&checked_layer, &plan, &sizes);
        const vkmha_outputs right = is_asked ? given : (vkmha_outputs){.output = memory};
        cr_assert_eq(vkmha_check_outputs(&checked_layer, &plan, &sizes, &right, &error), VKMHA_OK,
                     "%s", error.message);
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            /* What is asked for is missing, or what is not is given. */
            vkmha_outputs wrong = right;
            memcpy((char *)&wrong + members[i].place,
                   is_asked ? &(void *){NULL} : &(void *){memory}, sizeof(void *));
            cr_assert_eq(vkmha_check_outputs(&checked_layer, &plan, &sizes, &wrong, &error),
                         VKMHA_ERROR_INVALID_ARGUMENT, "%swas accepted", members[i].field);
            cr_assert(strstr(error.message, members[i].field), "\"%s\" does not name %s",
                      error.message, members[i].field);
        }
        cr_assert_eq(vkmha_check_outputs(&checked_layer, &plan, &sizes, NULL, &error),
                     VKMHA_ERROR_INVALID_ARGUMENT);
        const vkmha_outputs none = {.output = NULL};
        cr_assert_eq(vkmha_check_outputs(&checked_layer, &plan, &sizes, &none, &error),
                     VKMHA_ERROR_INVALID_ARGUMENT);
        cr_assert(strstr(error.message, "outputs.output"), "%s", error.message);
    }
    /* No query, no element: NULL is right. */
    const vkmha_plan_params empty = {.batch_size = 2, .key_len = 5, EVERYTHING};
    vkmha_plan_params plan;
    vkmha_sizes sizes;
    cr_assert_eq(vkmha_check_plan(&checked_layer, &empty, &plan, &error), VKMHA_OK);
    vkmha_plan_sizes(&checked_layer, &plan, &sizes);
    const vkmha_outputs mass = {.key_mass = memory};
    cr_assert_eq(vkmha_check_outputs(&checked_layer, &plan, &sizes, &mass, &error), VKMHA_OK, "%s",
                 error.message);
    /* The gradient of the output is an input of the same kind. */
    const vkmha_inputs inputs = {.query = data, .key = data, .value = data};
    vkmha_inputs resolved;
    cr_assert_eq(vkmha_check_plan(&checked_layer, &plans[1], &plan, &error), VKMHA_OK);
    cr_assert_neq(vkmha_check_inputs(&checked_layer, &plan, &inputs, &resolved, &error), VKMHA_OK);
    cr_assert(strstr(error.message, "output_gradient is NULL"), "%s", error.message);
    vkmha_inputs superfluous = inputs;
    superfluous.output_gradient = data;
    cr_assert_eq(vkmha_check_plan(&checked_layer, &plans[0], &plan, &error), VKMHA_OK);
    cr_assert_neq(vkmha_check_inputs(&checked_layer, &plan, &superfluous, &resolved, &error),
                  VKMHA_OK);
    cr_assert(strstr(error.message, "output_gradient is given"), "%s", error.message);
}
