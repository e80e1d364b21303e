/* What the CPU reference tells besides the output: by hand; and what each head adds to the output.
 */
#include "told.h"

/* ---- By hand --------------------------------------------------------------------------------- */

/* Scores 0 and log 3 make weights 1/4 and 3/4. */
static const float one[] = {1.0f};
static const float two_keys[] = {0.0f, 1.0986122887f};
static const float two_values[] = {2.0f, 6.0f};
static const float columns[] = {3.0f, 4.0f};

static vkmha_layer_params tiny_layer(void)
{
    const vkmha_matrix identity = {.data = one, .rows = 1, .columns = 1};
    return (vkmha_layer_params){
        .num_heads = 1,
        .head_dim = 1,
        .has_scale = true,
        .scale = 1.0f,
        .embed_dim = 1,
        .output_dim = 2,
        .w_q = identity,
        .w_k = identity,
        .w_v = identity,
        .w_o = {.data = columns, .rows = 2, .columns = 1},
    };
}

static void expect(const char *name, double got, double expected)
{
    cr_assert(fabs(got - expected) < 1e-7, "%s is %.9g instead of %.9g", name, got, expected);
}

Test(reference_heads, by_hand)
{
    const vkmha_layer_params layer = tiny_layer();
    vkmha_plan_params plan = {.batch_size = 1, .query_len = 1, .key_len = 2};
    vkmha_inputs inputs = {.query = one, .key = two_keys, .value = two_values};
    double lse;
    double weights[2];
    double statistics[STATISTICS];
    double mass[2];
    double norm;
    double gradient;
    vkmha_reference_outputs outputs = {
        .lse = &lse,
        .weights = weights,
        .statistics = statistics,
        .key_mass = mass,
        .contributions = &norm,
    };
    vkmha_error error;
    cr_assert_eq(vkmha_reference_run(&layer, &plan, &inputs, NULL, NULL, &outputs, &error),
                 VKMHA_OK, "%s", error.message);
    expect("lse", lse, log(4.0));
    expect("weight 0", weights[0], 0.25);
    expect("weight 1", weights[1], 0.75);
    expect("mass 1", mass[1], 0.75);
    const double expected[STATISTICS] = {
        log(4.0) - 0.75 * log(3.0), 0.75, 0.75, 0, 0.25, 0.75, 0.25, 0.75};
    for (uint32_t n = 0; n < STATISTICS; n++) {
        expect("a statistic", statistics[n], expected[n]);
    }
    expect("contribution", norm, 25.0); /* |5 (3, 4)| */

    plan.has_gate_gradients = true;
    inputs.output_gradient = (const float[]){1.0f, -2.0f};
    outputs = (vkmha_reference_outputs){.gate_gradients = &gradient};
    cr_assert_eq(vkmha_reference_run(&layer, &plan, &inputs, NULL, NULL, &outputs, &error),
                 VKMHA_OK, "%s", error.message);
    expect("gradient", gradient, -25.0);

    /* A gate is of the contribution alone, and a gate of 0 hides nothing of the weights. */
    plan.has_gate_gradients = false;
    plan.has_head_gates = true;
    inputs.output_gradient = NULL;
    for (uint32_t n = 0; n < 2; n++) {
        const float gate = n == 0 ? -0.5f : 0.0f;
        inputs.head_gates = &gate;
        outputs =
            (vkmha_reference_outputs){.lse = &lse, .weights = weights, .contributions = &norm};
        cr_assert_eq(vkmha_reference_run(&layer, &plan, &inputs, NULL, NULL, &outputs, &error),
                     VKMHA_OK, "%s", error.message);
        expect("lse of a gated head", lse, log(4.0));
        expect("weight of a gated head", weights[1], 0.75);
        expect("contribution of a gated head", norm, n == 0 ? 12.5 : 0.0);
    }
}

Test(reference_heads, what_a_plan_does_not_tell_is_refused)
{
    const vkmha_layer_params alone = {.num_heads = 1, .head_dim = 1, .attention_only = true};
    const vkmha_plan_params plan = {.batch_size = 1, .query_len = 1, .key_len = 2};
    const vkmha_inputs inputs = {.query = one, .key = two_keys, .value = two_values};
    double value[2 * STATISTICS];
    const struct {
        const char *field;
        vkmha_reference_outputs outputs;
    } rules[] = {
        {"outputs.scores", {.scores = value}},
        {"outputs.scores", {.scores_bound = value}},
        {"outputs.contributions", {.contributions = value}},
        {"outputs.gate_gradients", {.gate_gradients_bound = value}},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        vkmha_error error;
        cr_assert_eq(
            vkmha_reference_run(&alone, &plan, &inputs, NULL, NULL, &rules[i].outputs, &error),
            VKMHA_ERROR_INVALID_ARGUMENT);
        cr_assert(strstr(error.message, rules[i].field), "%s", error.message);
    }
}

/* ---- Heads ----------------------------------------------------------------------------------- */

enum { OUTPUT_DIM = 5, FEATURES = HEADS * DIM, KV_FEATURES = KV_HEADS * DIM };

/* A layer whose heads are slices of its inputs. */
typedef struct vkmha_sliced {
    float identity[FEATURES * FEATURES];
    float kv_identity[KV_FEATURES * KV_FEATURES];
    float *w_o;
    float *gradient;
} vkmha_sliced;

static void slice_heads(vkmha_setup *setup, vkmha_sliced *sliced)
{
    vkmha_layer_params *layer = &setup->layer;
    for (uint32_t n = 0; n < FEATURES; n++) {
        sliced->identity[n * FEATURES + n] = 1.0f;
    }
    for (uint32_t n = 0; n < KV_FEATURES; n++) {
        sliced->kv_identity[n * KV_FEATURES + n] = 1.0f;
    }
    sliced->w_o = vkmha_test_values(OUTPUT_DIM * FEATURES, 7);
    sliced->gradient =
        vkmha_test_values(setup->plan.batch_size * setup->plan.query_len * OUTPUT_DIM, 8);
    layer->attention_only = false;
    layer->embed_dim = FEATURES;
    layer->key_dim = layer->value_dim = KV_FEATURES;
    layer->output_dim = OUTPUT_DIM;
    layer->w_q = (vkmha_matrix){.data = sliced->identity, .rows = FEATURES, .columns = FEATURES};
    layer->w_k =
        (vkmha_matrix){.data = sliced->kv_identity, .rows = KV_FEATURES, .columns = KV_FEATURES};
    layer->w_v = layer->w_k;
    layer->w_o = (vkmha_matrix){.data = sliced->w_o, .rows = OUTPUT_DIM, .columns = FEATURES};
}

/* What heads add to the output, in fp32 from attention in fp32: the reference's, rounded. */
static void fp32_contributions(const vkmha_setup *setup, float *norms, float *products)
{
    const vkmha_plan_params *plan = &setup->plan;
    const uint64_t rows =
        plan->is_packed ? plan->total_queries : plan->batch_size * plan->query_len;
    vkmha_setup stage = *setup;
    stage.layer = (vkmha_layer_params){LAYER};
    stage.layer.bias_k = setup->layer.bias_k;
    stage.layer.bias_v = setup->layer.bias_v;
    stage.layer.add_zero_attn = setup->layer.add_zero_attn;
    stage.layer.sinks = setup->layer.sinks;
    stage.plan.has_gate_gradients = false;
    stage.inputs.output_gradient = NULL;
    double *attention = vkmha_test_allocate(rows * FEATURES, sizeof(double));
    const vkmha_reference_outputs outputs = {.output = attention};
    vkmha_error error;
    cr_assert_eq(
        vkmha_reference_run(&stage.layer, &stage.plan, &stage.inputs, NULL, NULL, &outputs, &error),
        VKMHA_OK, "%s", error.message);
    for (uint64_t at = 0; at < plan->batch_size * HEADS * plan->query_len; at++) {
        const uint64_t h = at / plan->query_len % HEADS;
        const vkmha_seen_row row =
            row_of(setup, at / plan->query_len / HEADS, h, at % plan->query_len);
        float squares = 0.0f;
        float product = 0.0f;
        for (uint32_t n = 0; row.is_there && n < OUTPUT_DIM; n++) {
            float added = 0.0f;
            for (uint32_t d = 0; d < DIM; d++) {
                added =
                    fmaf((float)attention[(row.query_row * HEADS + h) * DIM + d],
                         ((const float *)setup->layer.w_o.data)[n * FEATURES + h * DIM + d], added);
            }
            squares = fmaf(added, added, squares);
            product =
                setup->plan.has_gate_gradients
                    ? fmaf(added, setup->inputs.output_gradient[row.query_row * OUTPUT_DIM + n],
                           product)
                    : 0.0f;
        }
        norms[at] = sqrtf(squares);
        products[at] = product;
    }
    free(attention);
}

Test(reference_heads, contributions_and_gradients)
{
    for (size_t k = 0; k < sizeof(setups) / sizeof(setups[0]); k++) {
        vkmha_setup setup = setups[k];
        vkmha_sliced sliced = {0};
        float *data[5] = {NULL};
        fill(&setup, data);
        slice_heads(&setup, &sliced);
        const float gates[HEADS] = {1.0f, 0.0f, -2.0f, 0.5f};
        for (uint32_t n = 0; n < 2; n++) {
            setup.plan.has_gate_gradients = n == 0;
            setup.plan.has_head_gates = n == 1;
            setup.inputs.output_gradient = n == 0 ? sliced.gradient : NULL;
            setup.inputs.head_gates = n == 1 ? gates : NULL;
            vkmha_answers answers;
            allocate(&setup, &answers);
            ask_reference(&setup, NULL, &answers);
            tell_plainly(&setup, &answers);
            compare_plain(&setup, &answers);
            if (n == 0 && setup.layer.softcap == 0.0f) {
                const vkmha_counts counts = count_of(&setup);
                fp32_contributions(&setup, answers.got[TOLD_CONTRIBUTIONS],
                                   answers.got[TOLD_GATE_GRADIENTS]);
                for (uint32_t t = TOLD_CONTRIBUTIONS; t < NUM_TOLD; t++) {
                    vkmha_comparison comparison;
                    vkmha_compare(answers.got[t], answers.value[t], answers.bound[t],
                                  counts.told[t], &comparison);
                    cr_assert(comparison.passed &&
                                  (setup.size > 1.0f || comparison.max_ratio > 1e-6),
                              "%s: %s: %g", setup.name, told_names[t], comparison.max_ratio);
                }
            }
            release(&answers);
        }
        free(sliced.w_o);
        free(sliced.gradient);
        release_data(data);
    }
}

/* The output is linear in the gates: the gradient of <c, y> by one is what leaving the head out
 * takes. */
Test(reference_heads, gradients_are_what_leaving_a_head_out_takes)
{
    enum { ROWS = BATCH * QUERIES };
    vkmha_setup setup = {"leave one out", {LAYER, FURTHER}, {PLAN}, {0}, 1.0f};
    vkmha_sliced sliced = {0};
    float *data[5] = {NULL};
    fill(&setup, data);
    slice_heads(&setup, &sliced);
    double gradients[BATCH * HEADS * QUERIES];
    setup.plan.has_gate_gradients = true;
    setup.inputs.output_gradient = sliced.gradient;
    vkmha_reference_outputs outputs = {.gate_gradients = gradients};
    vkmha_error error;
    cr_assert_eq(
        vkmha_reference_run(&setup.layer, &setup.plan, &setup.inputs, NULL, NULL, &outputs, &error),
        VKMHA_OK, "%s", error.message);
    setup.plan.has_gate_gradients = false;
    setup.plan.has_head_gates = true;
    setup.inputs.output_gradient = NULL;
    double losses[HEADS + 1] = {0};
    for (uint32_t left_out = 0; left_out <= HEADS; left_out++) {
        float gates[HEADS] = {1.0f, 1.0f, 1.0f, 1.0f};
        double output[ROWS * OUTPUT_DIM];
        if (left_out < HEADS) {
            gates[left_out] = 0.0f;
        }
        setup.inputs.head_gates = gates;
        outputs = (vkmha_reference_outputs){.output = output};
        cr_assert_eq(vkmha_reference_run(&setup.layer, &setup.plan, &setup.inputs, NULL, NULL,
                                         &outputs, &error),
                     VKMHA_OK, "%s", error.message);
        for (uint32_t n = 0; n < ROWS * OUTPUT_DIM; n++) {
            losses[left_out] += output[n] * (double)sliced.gradient[n];
        }
    }
    for (uint32_t h = 0; h < HEADS; h++) {
        double gradient = 0.0;
        for (uint32_t row = 0; row < ROWS; row++) {
            gradient += gradients[(row / QUERIES * HEADS + h) * QUERIES + row % QUERIES];
        }
        expect("a gate's gradient", gradient, losses[HEADS] - losses[h]);
    }
    free(sliced.w_o);
    free(sliced.gradient);
    release_data(data);
}
