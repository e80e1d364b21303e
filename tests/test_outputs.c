/*
 * What a plan tells besides the output, against plain sums in double that are written here from the
 * definitions in vkmha.h; that asking changes no bit of the output; and its memory.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "made.h"

enum { MAX_KEYS_SEEN = 4096 };

/* One problem of attention alone in BSHD, with queries and keys of moderate size. */
typedef struct problem {
    vkmha_layer_params layer;
    vkmha_plan_params plan;
    vkmha_inputs inputs;
    float *query;
    float *key;
    float *value;
    float *output;
    vkmha_outputs outputs;
    uint64_t columns;
    uint64_t num_heads_chosen;
    uint64_t num_queries_chosen;
} problem;

static float *random_floats(uint64_t count, uint64_t *state, float size)
{
    float *values = vkmha_test_allocate(count + 1, sizeof(float));
    for (uint64_t i = 0; i < count; i++) {
        values[i] = size * vkmha_test_random_float(state);
    }
    return values;
}

static float *room(uint64_t count)
{
    float *values = vkmha_test_allocate(count + 1, sizeof(float));
    for (uint64_t i = 0; i <= count; i++) {
        values[i] = NAN;
    }
    return values;
}

static void init(problem *made, const vkmha_layer_params *layer, const vkmha_plan_params *plan)
{
    uint64_t state = vkmha_test_seed();
    *made = (problem){.layer = *layer, .plan = *plan};
    made->layer.attention_only = true;
    vkmha_plan_params *p = &made->plan;
    const uint64_t b = p->batch_size;
    const uint64_t h = layer->num_heads;
    const uint64_t kv = layer->num_kv_heads ? layer->num_kv_heads : h;
    const uint64_t d = layer->head_dim;
    made->query = random_floats(b * p->query_len * h * d, &state, 2.0f);
    made->key = random_floats(b * p->key_len * kv * d, &state, 2.0f);
    made->value = random_floats(b * p->key_len * kv * d, &state, 1.0f);
    made->inputs = (vkmha_inputs){.query = made->query, .key = made->key, .value = made->value};
    p->has_lse = true;
    p->has_weights = true;
    p->has_mean_weights = true;
    p->has_statistics = true;
    p->has_key_mass = true;
    p->scores = VKMHA_SCORES_MASKED;
    made->num_heads_chosen = p->chosen_heads ? p->num_chosen_heads : h;
    made->num_queries_chosen = p->chosen_queries ? p->num_chosen_queries : p->query_len;
    made->columns = p->key_len + (layer->bias_k ? 1 : 0) + (layer->add_zero_attn ? 1 : 0);
    const uint64_t rows = b * h * p->query_len;
    const uint64_t one_head = b * made->num_queries_chosen * made->columns;
    made->output = room(b * p->query_len * h * d);
    made->outputs = (vkmha_outputs){
        .output = made->output,
        .lse = room(rows),
        .weights = room(one_head * made->num_heads_chosen),
        .mean_weights = room(one_head),
        .scores = room(one_head * made->num_heads_chosen),
        .statistics = (vkmha_statistics *)room(rows * 8),
        .key_mass = room(b * h * p->key_len),
    };
}

static void finish(problem *made)
{
    free(made->query);
    free(made->key);
    free(made->value);
    free(made->output);
    free(made->outputs.lse);
    free(made->outputs.weights);
    free(made->outputs.mean_weights);
    free(made->outputs.scores);
    free(made->outputs.statistics);
    free(made->outputs.key_mass);
}

/* Scores of one query with every column, -INFINITY where it may not attend. */
static void score_row(const problem *made, uint64_t b, uint64_t h, uint64_t i, double *scores)
{
    const vkmha_layer_params *layer = &made->layer;
    const vkmha_plan_params *plan = &made->plan;
    const uint64_t heads = layer->num_heads;
    const uint64_t kv = layer->num_kv_heads ? layer->num_kv_heads : heads;
    const uint64_t d = layer->head_dim;
    const uint64_t key_head = h * kv / heads;
    const float *query = made->query + ((b * plan->query_len + i) * heads + h) * d;
    for (uint64_t j = 0; j < made->columns; j++) {
        const bool is_bias = layer->bias_k && j == plan->key_len;
        const bool is_zero = j >= plan->key_len && !is_bias;
        const float *key = is_bias ? layer->bias_k + key_head * d
                                   : made->key + ((b * plan->key_len + j) * kv + key_head) * d;
        double sum = 0.0;
        for (uint64_t k = 0; k < d && !is_zero; k++) {
            sum += (double)query[k] * (double)key[k];
        }
        const bool is_hidden = j < plan->key_len && plan->causal == VKMHA_CAUSAL_TOP_LEFT && j > i;
        const bool is_past = j < plan->key_len && made->inputs.key_lengths &&
                             j >= (uint64_t)made->inputs.key_lengths[b];
        scores[j] = is_hidden || is_past ? -INFINITY : sum / sqrt((double)d);
    }
}

static void near(const vkmha_test_target *target, const char *what, uint64_t b, uint64_t h,
                 uint64_t i, uint64_t j, float got, double expected, double size)
{
    const bool is_same = isinf(expected) ? (double)got == expected
                                         : fabs((double)got - expected) <= 3e-6 * size;
    cr_assert(is_same, "%s %s: %s [%llu, %llu, %llu, %llu]: got %.9g, expected %.9g",
              target->device_name, target->attention_kernel, what, (unsigned long long)b,
              (unsigned long long)h, (unsigned long long)i, (unsigned long long)j, (double)got,
              expected);
}

static uint64_t number_of(const uint32_t *chosen, uint64_t count, uint64_t which)
{
    for (uint64_t n = 0; n < count; n++) {
        if ((chosen ? chosen[n] : n) == which) {
            return n;
        }
    }
    return count;
}

static void compare(const vkmha_test_target *target, const problem *made)
{
    static double scores[MAX_KEYS_SEEN];
    static double weights[MAX_KEYS_SEEN];
    const vkmha_plan_params *plan = &made->plan;
    const uint64_t heads = made->layer.num_heads;
    const uint64_t keys = plan->key_len;
    const uint64_t queries = plan->query_len;
    const uint64_t columns = made->columns;
    cr_assert(columns <= MAX_KEYS_SEEN);
    double *mass = vkmha_test_allocate(plan->batch_size * heads * keys + 1, sizeof(double));
    double *mean = vkmha_test_allocate(plan->batch_size * queries * columns + 1, sizeof(double));
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const uint64_t end =
            made->inputs.key_lengths ? (uint64_t)made->inputs.key_lengths[b] : keys;
        for (uint64_t h = 0; h < heads; h++) {
            for (uint64_t i = 0; i < queries; i++) {
                score_row(made, b, h, i, scores);
                double maximum = -INFINITY;
                for (uint64_t j = 0; j < columns; j++) {
                    maximum = fmax(maximum, scores[j]);
                }
                const double sink =
                    made->layer.sinks ? (double)made->layer.sinks[h] : -INFINITY;
                maximum = fmax(maximum, sink);
                double sum = isinf(sink) ? 0.0 : exp(sink - maximum);
                for (uint64_t j = 0; j < columns; j++) {
                    weights[j] = isinf(scores[j]) ? 0.0 : exp(scores[j] - maximum);
                    sum += weights[j];
                }
                const uint64_t row = (b * heads + h) * queries + i;
                near(target, "lse", b, h, i, 0, made->outputs.lse[row],
                     sum > 0.0 ? maximum + log(sum) : -INFINITY, 1.0 + fabs(maximum));
                double entropy = 0.0;
                double largest = 0.0;
                double distance = 0.0;
                const uint64_t head_number =
                    number_of(plan->chosen_heads, made->num_heads_chosen, h);
                const uint64_t query_number =
                    number_of(plan->chosen_queries, made->num_queries_chosen, i);
                for (uint64_t j = 0; j < columns; j++) {
                    weights[j] = sum > 0.0 ? weights[j] / sum : 0.0;
                    if (j < keys) {
                        entropy -= weights[j] > 0.0 ? weights[j] * log(weights[j]) : 0.0;
                        largest = fmax(largest, weights[j]);
                        distance += weights[j] * fabs((double)j - (double)i);
                        mass[(b * heads + h) * keys + j] += weights[j];
                    }
                    if (head_number < made->num_heads_chosen &&
                        query_number < made->num_queries_chosen) {
                        const uint64_t at =
                            ((b * made->num_heads_chosen + head_number) *
                                 made->num_queries_chosen +
                             query_number) *
                                columns +
                            j;
                        near(target, "weight", b, h, i, j, made->outputs.weights[at], weights[j],
                             1.0);
                        near(target, "score", b, h, i, j, made->outputs.scores[at], scores[j],
                             1.0 + fabs(scores[j]));
                        mean[(b * made->num_queries_chosen + query_number) * columns + j] +=
                            weights[j] / (double)made->num_heads_chosen;
                    }
                }
                const vkmha_statistics *told = &made->outputs.statistics[row];
                near(target, "entropy", b, h, i, 0, told->entropy, entropy, 10.0);
                near(target, "max_weight", b, h, i, 0, told->max_weight, largest, 1.0);
                near(target, "mean_distance", b, h, i, 0, told->mean_distance, distance,
                     1.0 + (double)keys / 2.0);
                near(target, "previous", b, h, i, 0, told->previous,
                     i > 0 && i - 1 < keys ? weights[i - 1] : 0.0, 1.0);
                near(target, "self", b, h, i, 0, told->self, i < keys ? weights[i] : 0.0, 1.0);
                near(target, "next", b, h, i, 0, told->next, i + 1 < keys ? weights[i + 1] : 0.0,
                     1.0);
                near(target, "first", b, h, i, 0, told->first, end > 0 ? weights[0] : 0.0, 1.0);
                near(target, "last", b, h, i, 0, told->last, end > 0 ? weights[end - 1] : 0.0,
                     1.0);
            }
        }
    }
    for (uint64_t n = 0; n < plan->batch_size * heads * keys; n++) {
        near(target, "key_mass", 0, 0, 0, n, made->outputs.key_mass[n], mass[n],
             (double)queries);
    }
    for (uint64_t n = 0; n < plan->batch_size * made->num_queries_chosen * columns; n++) {
        near(target, "mean_weights", 0, 0, 0, n, made->outputs.mean_weights[n], mean[n], 1.0);
    }
    free(mass);
    free(mean);
}

/* Runs with everything asked, compares, and runs with nothing asked: the output has the same bits. */
static void check(const vkmha_test_target *target, const vkmha_layer_params *layer,
                  const vkmha_plan_params *plan, const int32_t *key_lengths)
{
    problem made;
    init(&made, layer, plan);
    made.inputs.key_lengths = key_lengths;
    made.plan.has_key_lengths = key_lengths != NULL;
    vkmha_test_made asked = vkmha_test_make(target, &made.layer, &made.plan);
    vkmha_error error;
    cr_assert(vkmha_run(asked.plan, &made.inputs, &made.outputs, &error) == VKMHA_OK, "%s",
              error.message);
    compare(target, &made);
    vkmha_plan_params bare = *plan;
    bare.has_key_lengths = made.plan.has_key_lengths;
    bare.chosen_heads = NULL;
    bare.num_chosen_heads = 0;
    bare.chosen_queries = NULL;
    bare.num_chosen_queries = 0;
    vkmha_test_made alone = vkmha_test_plan_of(target, asked.layer, &made.layer, &bare);
    const uint64_t count = plan->batch_size * plan->query_len * layer->num_heads * layer->head_dim;
    float *output = room(count);
    vkmha_test_made_run(&alone, &made.inputs, output);
    cr_assert(memcmp(output, made.output, count * sizeof(float)) == 0,
              "%s %s: asking changes the output", target->device_name, target->attention_kernel);
    free(output);
    vkmha_plan_destroy(alone.plan);
    vkmha_test_unmake(&asked);
    finish(&made);
}

static void shapes(const vkmha_test_target *target)
{
    static const float sinks[4] = {0.5f, -1.0f, 2.0f, -INFINITY};
    static const uint32_t heads[2] = {1, 3};
    static const uint32_t queries[5] = {0, 3, 4, 5, 40};
    static const int32_t lengths[2] = {0, 37};
    static const float bias[2 * 20] = {0.3f, -0.7f, 1.5f};
    const vkmha_layer_params plain = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 20};
    vkmha_layer_params sunk = plain;
    sunk.sinks = sinks;
    vkmha_layer_params further = plain;
    further.bias_k = bias;
    further.bias_v = bias;
    further.add_zero_attn = true;
    const vkmha_plan_params square = {.batch_size = 2, .query_len = 41, .key_len = 41};
    vkmha_plan_params causal = square;
    causal.causal = VKMHA_CAUSAL_TOP_LEFT;
    vkmha_plan_params chosen = causal;
    chosen.chosen_heads = heads;
    chosen.num_chosen_heads = 2;
    chosen.chosen_queries = queries;
    chosen.num_chosen_queries = 5;
    vkmha_plan_params narrow = {.batch_size = 1, .query_len = 2, .key_len = 2100};
    vkmha_plan_params cut = {.batch_size = 1, .query_len = 40, .key_len = 1100};
    cut.max_work_per_dispatch = 1;
    check(target, &plain, &square, NULL);
    check(target, &plain, &causal, NULL);
    check(target, &sunk, &square, lengths);
    check(target, &further, &causal, NULL);
    check(target, &further, &square, lengths);
    check(target, &plain, &chosen, NULL);
    check(target, &sunk, &narrow, NULL);
    check(target, &plain, &cut, NULL);
}

Test(outputs, are_what_the_header_says)
{
    vkmha_test_each_attention_row(shapes);
}
