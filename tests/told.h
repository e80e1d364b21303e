/*
 * Shapes for tests of what a plan tells, and the answers from the definitions in vkmha.h: plain
 * sums in double, with each query's whole row of weights at hand. For layers without projections of
 * queries, keys and values: heads are slices of the inputs.
 */
#ifndef VKMHA_TESTS_TOLD_H
#define VKMHA_TESTS_TOLD_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "made.h"

enum { MAX_COLUMNS = 400, NUM_TOLD = 8, STATISTICS = 8 };

/* In the order of the tables below. */
typedef enum vkmha_told {
    TOLD_LSE = 0,
    TOLD_WEIGHTS,
    TOLD_MEAN_WEIGHTS,
    TOLD_SCORES,
    TOLD_STATISTICS,
    TOLD_KEY_MASS,
    TOLD_CONTRIBUTIONS,
    TOLD_GATE_GRADIENTS,
} vkmha_told;

static const char *const told_names[NUM_TOLD] = {
    "lse",        "weights",  "mean_weights",  "scores",
    "statistics", "key_mass", "contributions", "gate_gradients",
};

/* A layer whose projections, where it has them, are identities: heads are slices of the inputs. */
typedef struct vkmha_setup {
    const char *name;
    vkmha_layer_params layer;
    vkmha_plan_params plan;
    vkmha_inputs inputs;
    float size; /* of queries and keys */
} vkmha_setup;

typedef struct vkmha_counts {
    uint64_t keys;
    uint64_t columns;
    uint64_t heads; /* chosen */
    uint64_t queries;
    uint64_t told[NUM_TOLD];
} vkmha_counts;

static inline vkmha_counts count_of(const vkmha_setup *setup)
{
    const vkmha_plan_params *plan = &setup->plan;
    const vkmha_layer_params *layer = &setup->layer;
    const uint64_t rows = plan->batch_size * layer->num_heads * plan->query_len;
    vkmha_counts counts = {
        .keys = plan->key_len,
        .columns = plan->key_len + (layer->bias_k ? 1 : 0) + (layer->add_zero_attn ? 1 : 0),
        .heads = plan->chosen_heads ? plan->num_chosen_heads : layer->num_heads,
        .queries = plan->chosen_queries ? plan->num_chosen_queries : plan->query_len,
    };
    const uint64_t one_head = plan->batch_size * counts.queries * counts.columns;
    const bool has_scores = plan->scores != VKMHA_SCORES_NONE;
    const uint64_t told[NUM_TOLD] = {
        rows,
        one_head * counts.heads,
        one_head,
        has_scores ? one_head * counts.heads : 0,
        rows * STATISTICS,
        plan->batch_size * layer->num_heads * counts.keys,
        layer->attention_only ? 0 : rows,
        plan->has_gate_gradients ? rows : 0,
    };
    memcpy(counts.told, told, sizeof(told));
    cr_assert(counts.columns <= MAX_COLUMNS);
    return counts;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct vkmha_seen_row {
    uint64_t b;
    uint64_t h;
    uint64_t i;
    bool is_there;
    uint64_t query_row; /* of all queries */
    uint64_t key_row;   /* of key 0 */
    int64_t position;
    int64_t first_key;
    int64_t key_length;
} vkmha_seen_row;

static inline vkmha_seen_row row_of(const vkmha_setup *setup, uint64_t b, uint64_t h, uint64_t i)
{
    const vkmha_plan_params *plan = &setup->plan;
    const vkmha_inputs *inputs = &setup->inputs;
    vkmha_seen_row row = {
        .b = b,
        .h = h,
        .i = i,
        .is_there = true,
        .query_row = b * plan->query_len + i,
        .key_row = b * plan->key_len,
        .first_key = plan->has_first_keys ? inputs->first_keys[b] : 0,
        .key_length = (int64_t)plan->key_len,
    };
    int64_t queries = (int64_t)plan->query_len;
    if (plan->is_packed) {
        queries = inputs->cu_query_lens[b + 1] - inputs->cu_query_lens[b];
        row.query_row = (uint64_t)inputs->cu_query_lens[b] + i;
        row.key_row = (uint64_t)inputs->cu_key_lens[b];
        row.key_length = inputs->cu_key_lens[b + 1] - inputs->cu_key_lens[b];
        row.is_there = (int64_t)i < queries;
    }
    if (plan->has_key_lengths) {
        row.key_length = inputs->key_lengths[b];
    }
    row.position = (int64_t)i;
    if (plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT) {
        row.position += row.key_length - queries;
    }
    return row;
}

/* Key j of a row, or bias_k for the first column behind the keys; the zero key: false. */
static inline bool key_of(const vkmha_setup *setup, const vkmha_seen_row *row, uint64_t j,
                          const float **key)
{
    const vkmha_layer_params *layer = &setup->layer;
    const uint64_t kv_heads = layer->num_kv_heads ? layer->num_kv_heads : layer->num_heads;
    const uint64_t head = row->h * kv_heads / layer->num_heads;
    const bool is_bias = layer->bias_k && j == setup->plan.key_len;
    *key = is_bias ? layer->bias_k + head * layer->head_dim
                   : (const float *)setup->inputs.key +
                         ((row->key_row + j) * kv_heads + head) * layer->head_dim;
    return is_bias || j < setup->plan.key_len;
}

static inline const float *query_of(const vkmha_setup *setup, const vkmha_seen_row *row)
{
    const vkmha_layer_params *layer = &setup->layer;
    return (const float *)setup->inputs.query +
           (row->query_row * layer->num_heads + row->h) * layer->head_dim;
}

static inline bool is_key_there(const vkmha_seen_row *row, uint64_t j)
{
    return row->is_there && (int64_t)j >= row->first_key && (int64_t)j < row->key_length;
}

/* The additive mask is [1, 1, query_len, key_len]. */
static inline float mask_of(const vkmha_setup *setup, const vkmha_seen_row *row, uint64_t j)
{
    return setup->plan.mask == VKMHA_MASK_NONE
               ? 0.0f
               : ((const float *)setup->inputs.mask)[row->i * setup->plan.key_len + j];
}

static inline bool is_allowed(const vkmha_setup *setup, const vkmha_seen_row *row, uint64_t j)
{
    return is_key_there(row, j) &&
           (setup->plan.causal == VKMHA_CAUSAL_NONE || (int64_t)j <= row->position) &&
           mask_of(setup, row, j) != -INFINITY;
}

/* Where column 0 of a chosen row lies; false: the row is not chosen. */
static inline bool find_chosen(const vkmha_setup *setup, const vkmha_seen_row *row, uint64_t *at,
                               uint64_t *mean_at)
{
    const vkmha_plan_params *plan = &setup->plan;
    const vkmha_counts counts = count_of(setup);
    uint64_t head = 0;
    uint64_t query = 0;
    while (head < counts.heads &&
           (plan->chosen_heads ? plan->chosen_heads[head] : head) != row->h) {
        head++;
    }
    while (query < counts.queries &&
           (plan->chosen_queries ? plan->chosen_queries[query] : query) != row->i) {
        query++;
    }
    *at = ((row->b * counts.heads + head) * counts.queries + query) * counts.columns;
    *mean_at = (row->b * counts.queries + query) * counts.columns;
    return head < counts.heads && query < counts.queries;
}

/* ---- In double, from whole rows -------------------------------------------------------------- */

static inline double *plain_memory(uint64_t count)
{
    return vkmha_test_allocate(count + 1, sizeof(double));
}

/* Scores of a row's columns at the three stages, [stage - 1][column]. */
static inline void plain_scores(const vkmha_setup *setup, const vkmha_seen_row *row,
                                double scores[3][MAX_COLUMNS])
{
    const vkmha_layer_params *layer = &setup->layer;
    const vkmha_counts counts = count_of(setup);
    const float *query = query_of(setup, row);
    const double scale =
        layer->has_scale ? (double)layer->scale : 1.0 / sqrt((double)layer->head_dim);
    for (uint64_t j = 0; j < counts.columns; j++) {
        const bool is_key = j < counts.keys;
        const bool is_there = is_key ? is_key_there(row, j) : row->is_there;
        const float *key;
        double sum = 0.0;
        if (is_there && key_of(setup, row, j, &key)) {
            for (uint64_t d = 0; d < layer->head_dim; d++) {
                sum += (double)query[d] * (double)key[d];
            }
        }
        const double softcap = (double)layer->softcap;
        const double scaled = scale * sum;
        const double capped = softcap > 0.0 ? softcap * tanh(scaled / softcap) : scaled;
        const bool is_seen = is_key ? is_allowed(setup, row, j) : row->is_there;
        scores[0][j] = scaled;
        scores[1][j] = capped;
        scores[2][j] = !is_seen ? -INFINITY
                       : is_key ? capped + (double)mask_of(setup, row, j)
                                : capped;
    }
}

static inline void plain_statistics(const vkmha_setup *setup, const vkmha_seen_row *row,
                                    const double *weights, double *told)
{
    const uint64_t keys = setup->plan.key_len;
    bool has_keys = false;
    for (uint64_t j = 0; j < keys; j++) {
        has_keys = has_keys || is_allowed(setup, row, j);
        told[0] -= weights[j] > 0.0 ? weights[j] * log(weights[j]) : 0.0;
        told[1] = fmax(told[1], weights[j]);
        told[2] += weights[j] * fabs((double)((int64_t)j - row->position));
    }
    const int64_t places[5] = {row->position - 1, row->position, row->position + 1, row->first_key,
                               row->key_length - 1};
    for (uint32_t n = 0; n < 5; n++) {
        told[3 + n] =
            places[n] >= 0 && places[n] < (int64_t)keys && has_keys ? weights[places[n]] : 0.0;
    }
}

/* What a head adds to the output of a projected layer, and its norm and product. */
static inline void plain_contribution(const vkmha_setup *setup, const vkmha_seen_row *row,
                                      const double *weights, double *norm, double *product)
{
    const vkmha_layer_params *layer = &setup->layer;
    const vkmha_counts counts = count_of(setup);
    const uint64_t dim = layer->head_dim;
    const uint64_t kv_heads = layer->num_kv_heads ? layer->num_kv_heads : layer->num_heads;
    const uint64_t head = row->h * kv_heads / layer->num_heads;
    const double gate = setup->plan.has_head_gates ? (double)setup->inputs.head_gates[row->h] : 1.0;
    double squares = 0.0;
    *product = 0.0;
    for (uint64_t n = 0; n < layer->output_dim && row->is_there; n++) {
        double added = 0.0;
        for (uint64_t d = 0; d < dim; d++) {
            double average = 0.0;
            for (uint64_t j = 0; j < counts.columns; j++) {
                const bool is_bias = layer->bias_k && j == counts.keys;
                const float *value = is_bias ? layer->bias_v + head * dim
                                             : (const float *)setup->inputs.value +
                                                   ((row->key_row + j) * kv_heads + head) * dim;
                average += weights[j] > 0.0 && (is_bias || j < counts.keys)
                               ? weights[j] * (double)value[d]
                               : 0.0;
            }
            const uint64_t at = n * layer->w_o.columns + row->h * dim + d;
            added += average * (double)((const float *)layer->w_o.data)[at];
        }
        squares += gate * added * gate * added;
        if (setup->plan.has_gate_gradients) {
            *product +=
                added *
                (double)setup->inputs.output_gradient[row->query_row * layer->output_dim + n];
        }
    }
    *norm = sqrt(squares);
}

static inline void plain_row(const vkmha_setup *setup, const vkmha_seen_row *row, double **told)
{
    static double scores[3][MAX_COLUMNS];
    static double weights[MAX_COLUMNS];
    const vkmha_plan_params *plan = &setup->plan;
    const vkmha_counts counts = count_of(setup);
    const uint64_t at = (row->b * setup->layer.num_heads + row->h) * plan->query_len + row->i;
    plain_scores(setup, row, scores);
    const double sink =
        setup->layer.sinks && row->is_there ? (double)setup->layer.sinks[row->h] : -INFINITY;
    double maximum = sink;
    for (uint64_t j = 0; j < counts.columns; j++) {
        maximum = fmax(maximum, scores[2][j]);
    }
    double sum = sink == -INFINITY ? 0.0 : exp(sink - maximum);
    for (uint64_t j = 0; j < counts.columns; j++) {
        weights[j] = scores[2][j] == -INFINITY ? 0.0 : exp(scores[2][j] - maximum);
        sum += weights[j];
    }
    for (uint64_t j = 0; j < counts.columns; j++) {
        weights[j] = sum > 0.0 ? weights[j] / sum : 0.0;
    }
    told[TOLD_LSE][at] = sum > 0.0 ? maximum + log(sum) : -INFINITY;
    plain_statistics(setup, row, weights, told[TOLD_STATISTICS] + at * STATISTICS);
    for (uint64_t j = 0; j < counts.keys; j++) {
        told[TOLD_KEY_MASS][(row->b * setup->layer.num_heads + row->h) * counts.keys + j] +=
            weights[j];
    }
    uint64_t chosen_at;
    uint64_t mean_at;
    if (find_chosen(setup, row, &chosen_at, &mean_at)) {
        for (uint64_t j = 0; j < counts.columns; j++) {
            told[TOLD_WEIGHTS][chosen_at + j] = weights[j];
            told[TOLD_MEAN_WEIGHTS][mean_at + j] += weights[j] / (double)counts.heads;
            if (plan->scores != VKMHA_SCORES_NONE) {
                told[TOLD_SCORES][chosen_at + j] = scores[plan->scores - 1][j];
            }
        }
    }
    if (!setup->layer.attention_only) {
        double product;
        plain_contribution(setup, row, weights, &told[TOLD_CONTRIBUTIONS][at], &product);
        if (plan->has_gate_gradients) {
            told[TOLD_GATE_GRADIENTS][at] = product;
        }
    }
}

/* ---- Comparison ------------------------------------------------------------------------------ */

typedef struct vkmha_answers {
    double *value[NUM_TOLD]; /* the reference's, as the next */
    double *bound[NUM_TOLD];
    double *plain[NUM_TOLD];
    float *got[NUM_TOLD];
} vkmha_answers;

static inline void tell_plainly(const vkmha_setup *setup, vkmha_answers *answers)
{
    const vkmha_plan_params *plan = &setup->plan;
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        for (uint64_t h = 0; h < setup->layer.num_heads; h++) {
            for (uint64_t i = 0; i < plan->query_len; i++) {
                const vkmha_seen_row row = row_of(setup, b, h, i);
                plain_row(setup, &row, answers->plain);
            }
        }
    }
}

static inline void ask_reference(const vkmha_setup *setup, const vkmha_chains *chains,
                                 vkmha_answers *answers)
{
    double **value = answers->value;
    double **bound = answers->bound;
    const bool has_scores = setup->plan.scores != VKMHA_SCORES_NONE;
    const bool has_projections = !setup->layer.attention_only;
    const bool has_gradients = setup->plan.has_gate_gradients;
    const vkmha_reference_outputs outputs = {
        .lse = value[TOLD_LSE],
        .lse_bound = bound[TOLD_LSE],
        .weights = value[TOLD_WEIGHTS],
        .weights_bound = bound[TOLD_WEIGHTS],
        .mean_weights = value[TOLD_MEAN_WEIGHTS],
        .mean_weights_bound = bound[TOLD_MEAN_WEIGHTS],
        .scores = has_scores ? value[TOLD_SCORES] : NULL,
        .scores_bound = has_scores ? bound[TOLD_SCORES] : NULL,
        .statistics = value[TOLD_STATISTICS],
        .statistics_bound = bound[TOLD_STATISTICS],
        .key_mass = value[TOLD_KEY_MASS],
        .key_mass_bound = bound[TOLD_KEY_MASS],
        .contributions = has_projections ? value[TOLD_CONTRIBUTIONS] : NULL,
        .contributions_bound = has_projections ? bound[TOLD_CONTRIBUTIONS] : NULL,
        .gate_gradients = has_gradients ? value[TOLD_GATE_GRADIENTS] : NULL,
        .gate_gradients_bound = has_gradients ? bound[TOLD_GATE_GRADIENTS] : NULL,
    };
    vkmha_error error;
    cr_assert_eq(vkmha_reference_run(&setup->layer, &setup->plan, &setup->inputs, chains, NULL,
                                     &outputs, &error),
                 VKMHA_OK, "%s: %s", setup->name, error.message);
}

static inline void allocate(const vkmha_setup *setup, vkmha_answers *answers)
{
    const vkmha_counts counts = count_of(setup);
    for (uint32_t t = 0; t < NUM_TOLD; t++) {
        answers->value[t] = plain_memory(counts.told[t]);
        answers->bound[t] = plain_memory(counts.told[t]);
        answers->plain[t] = plain_memory(counts.told[t]);
        answers->got[t] = vkmha_test_allocate(counts.told[t] + 1, sizeof(float));
        /* What is not written is seen. */
        for (uint64_t n = 0; n < counts.told[t]; n++) {
            answers->value[t][n] = answers->bound[t][n] = NAN;
        }
    }
}

static inline void release(vkmha_answers *answers)
{
    for (uint32_t t = 0; t < NUM_TOLD; t++) {
        free(answers->value[t]);
        free(answers->bound[t]);
        free(answers->plain[t]);
        free(answers->got[t]);
    }
}

/* The reference against the definitions. */
static inline void compare_plain(const vkmha_setup *setup, const vkmha_answers *answers)
{
    const vkmha_counts counts = count_of(setup);
    for (uint32_t t = 0; t < NUM_TOLD; t++) {
        for (uint64_t n = 0; n < counts.told[t]; n++) {
            const double value = answers->value[t][n];
            const double plain = answers->plain[t][n];
            const double bound = answers->bound[t][n];
            /* The scale is fp32's in one and exact in the other. */
            cr_assert(isinf(plain) ? value == plain
                                   : fabs(value - plain) <= 1e-12 * (1.0 + fabs(plain)),
                      "%s: %s %llu is %.17g instead of %.17g", setup->name, told_names[t],
                      (unsigned long long)n, value, plain);
            cr_assert(isfinite(bound) && bound >= 0.0, "%s: bound of %s %llu is %g", setup->name,
                      told_names[t], (unsigned long long)n, bound);
            cr_assert(!isinf(plain) || bound == 0.0);
        }
    }
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

enum { BATCH = 2, QUERIES = 7, KEYS = 9, HEADS = 4, KV_HEADS = 2, DIM = 6 };

static const float sinks[HEADS] = {0.5f, -1.0f, -INFINITY, 2.0f};
static const float further[KV_HEADS * DIM] = {0.3f, -0.7f, 1.5f,  0.25f, -0.5f, 1.0f,
                                              0.5f, 0.5f,  -1.0f, 0.75f, 2.0f,  -0.1f};
static const uint32_t some_heads[] = {1, 3};
static const uint32_t some_queries[] = {0, 2, 6};
static const int32_t lengths[BATCH] = {0, 7};
static const int32_t firsts[BATCH] = {2, 8};
static const int32_t query_ends[BATCH + 1] = {0, 7, 10};
static const int32_t key_ends[BATCH + 1] = {0, 4, 13};

#define LAYER                                                                                      \
    .num_heads = HEADS, .num_kv_heads = KV_HEADS, .head_dim = DIM, .v_head_dim = DIM,              \
    .attention_only = true
#define FURTHER .bias_k = further, .bias_v = further, .add_zero_attn = true
#define PLAN    .batch_size = BATCH, .query_len = QUERIES, .key_len = KEYS
#define CAUSAL  .causal = VKMHA_CAUSAL_BOTTOM_RIGHT
#define CHOSEN                                                                                     \
    .has_weights = true, .chosen_heads = some_heads, .num_chosen_heads = 2,                        \
    .chosen_queries = some_queries, .num_chosen_queries = 3

static const vkmha_setup setups[] = {
    {"plain", {LAYER}, {PLAN}, {0}, 1.0f},
    {"causal", {LAYER}, {PLAN, .causal = VKMHA_CAUSAL_TOP_LEFT}, {0}, 1.0f},
    {"rows without keys",
     {LAYER},
     {.batch_size = 1, .query_len = 7, .key_len = 3, CAUSAL},
     {0},
     1.0f},
    {"sinks, rows without keys",
     {LAYER, .sinks = sinks},
     {PLAN, CAUSAL, .has_key_lengths = true},
     {.key_lengths = lengths},
     1.0f},
    {"zero key",
     {LAYER, .add_zero_attn = true},
     {PLAN, CAUSAL, .has_key_lengths = true},
     {.key_lengths = lengths},
     1.0f},
    {"all further keys, first keys",
     {LAYER, FURTHER, .sinks = sinks},
     {PLAN, .has_first_keys = true},
     {.first_keys = firsts},
     1.0f},
    {"softcap and mask",
     {LAYER, FURTHER, .softcap = 2.0f},
     {PLAN, .mask = VKMHA_MASK_ADDITIVE, .mask_dims = {1, 1, QUERIES, KEYS}},
     {0},
     1.0f},
    {"packed",
     {LAYER, FURTHER, .sinks = sinks},
     {PLAN, CAUSAL, .is_packed = true, .total_queries = 10, .total_keys = 13},
     {.cu_query_lens = query_ends, .cu_key_lens = key_ends},
     1.0f},
    {"chosen heads and queries", {LAYER, FURTHER}, {PLAN, CHOSEN}, {0}, 1.0f},
    {"packed, chosen",
     {LAYER},
     {PLAN, CHOSEN, .is_packed = true, .total_queries = 10, .total_keys = 13},
     {.cu_query_lens = query_ends, .cu_key_lens = key_ends},
     1.0f},
    {"many keys",
     {LAYER, .sinks = sinks},
     {.batch_size = 1, .query_len = 3, .key_len = 320},
     {0},
     1.0f},
    {"large scores", {LAYER, FURTHER}, {PLAN}, {0}, 6.0f},
    {"scores of 1e6", {LAYER}, {PLAN, CAUSAL}, {0}, 1000.0f},
    {"scores of 1e12", {LAYER, FURTHER, .sinks = sinks}, {PLAN, CAUSAL}, {0}, 1e6f},
};

/* Random tensors, and a mask in which half of the second query's keys and all of the third's are
 * forbidden. */
static inline void fill(vkmha_setup *setup, float *data[5])
{
    const vkmha_plan_params *plan = &setup->plan;
    const uint64_t queries = plan->batch_size * plan->query_len;
    const uint64_t keys = plan->batch_size * plan->key_len;
    data[0] = vkmha_test_values(queries * HEADS * DIM, 1);
    data[1] = vkmha_test_values(keys * KV_HEADS * DIM, 2);
    data[2] = vkmha_test_values(keys * KV_HEADS * DIM, 3);
    data[3] = vkmha_test_values(plan->query_len * plan->key_len, 4);
    for (uint64_t n = 0; n < queries * HEADS * DIM; n++) {
        data[0][n] *= 2.0f * setup->size;
    }
    for (uint64_t n = 0; n < keys * KV_HEADS * DIM; n++) {
        data[1][n] *= 2.0f * setup->size;
    }
    for (uint64_t j = 0; j < 2 * plan->key_len; j++) {
        data[3][plan->key_len + j] =
            j >= plan->key_len || j % 2 == 0 ? -INFINITY : data[3][plan->key_len + j];
    }
    setup->inputs.query = data[0];
    setup->inputs.key = data[1];
    setup->inputs.value = data[2];
    if (plan->mask != VKMHA_MASK_NONE) {
        setup->inputs.mask = data[3];
    }
}

static inline void release_data(float *data[5])
{
    for (uint32_t n = 0; n < 5; n++) {
        free(data[n]);
    }
}

#endif
