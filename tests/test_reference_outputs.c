/*
 * What the CPU reference tells besides the output: against plain sums in double, and its bounds
 * against plain fp32 kernels, which stay within them and come near.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "told.h"

/* ---- In fp32, as kernels do ------------------------------------------------------------------ */

/* The state of one row of an online softmax, with statistics. */
typedef struct vkmha_online {
    float maximum;
    float sum;
    float logs;
    float distances;
} vkmha_online;

static void raise_to(vkmha_online *state, float maximum)
{
    const float factor = expf(state->maximum - maximum);
    state->logs =
        factor == 0.0f ? 0.0f : factor * fmaf(state->maximum - maximum, state->sum, state->logs);
    state->distances *= factor;
    state->sum *= factor;
    state->maximum = maximum;
}

static float fp32_score(const vkmha_setup *setup, const vkmha_seen_row *row, uint64_t j,
                        bool is_backward)
{
    const vkmha_layer_params *layer = &setup->layer;
    const float *query = query_of(setup, row);
    const float scale = layer->has_scale ? layer->scale : 1.0f / sqrtf((float)layer->head_dim);
    const float *key;
    float sum = 0.0f;
    if (!key_of(setup, row, j, &key)) {
        return 0.0f;
    }
    for (uint64_t n = 0; n < layer->head_dim; n++) {
        const uint64_t d = is_backward ? layer->head_dim - 1 - n : n;
        sum = is_backward ? sum + query[d] * scale * key[d] : fmaf(query[d], key[d], sum);
    }
    const float scaled = is_backward ? sum : sum * scale;
    const float capped =
        layer->softcap > 0.0f ? layer->softcap * tanhf(scaled / layer->softcap) : scaled;
    return j < setup->plan.key_len ? capped + mask_of(setup, row, j) : capped;
}

/* Tiles of `tile` keys, from the last on where is_backward; its scores are summed the other way
 * then. */
static vkmha_online fp32_pass(const vkmha_setup *setup, const vkmha_seen_row *row, uint64_t tile,
                              bool is_backward)
{
    const uint64_t keys = setup->plan.key_len;
    vkmha_online state = {.maximum = -FLT_MAX};
    for (uint64_t start = 0; start < keys; start += tile) {
        const uint64_t count = keys - start < tile ? keys - start : tile;
        float scores[64] = {0};
        float maximum = state.maximum;
        for (uint64_t c = 0; c < count; c++) {
            const uint64_t j = is_backward ? keys - 1 - start - c : start + c;
            if (is_allowed(setup, row, j)) {
                scores[c] = fp32_score(setup, row, j, is_backward);
                maximum = fmaxf(maximum, scores[c]);
            }
        }
        raise_to(&state, maximum);
        for (uint64_t c = 0; c < count; c++) {
            const uint64_t j = is_backward ? keys - 1 - start - c : start + c;
            if (is_allowed(setup, row, j)) {
                const float exponent = scores[c] - maximum;
                const float weight = expf(exponent);
                const float distance = fabsf((float)((int64_t)j - row->position));
                state.sum += weight;
                state.logs = fmaf(weight, fmaxf(exponent, -88.0f), state.logs);
                state.distances = fmaf(weight, distance, state.distances);
            }
        }
    }
    return state;
}

static void add_further(const vkmha_setup *setup, const vkmha_seen_row *row, bool is_backward,
                        vkmha_online *state)
{
    const vkmha_layer_params *layer = &setup->layer;
    const vkmha_counts counts = count_of(setup);
    const float sink = layer->sinks ? layer->sinks[row->h] : -INFINITY;
    for (uint64_t j = counts.keys; row->is_there && j <= counts.columns; j++) {
        const float score = j < counts.columns ? fp32_score(setup, row, j, is_backward) : sink;
        if (score != -INFINITY) {
            raise_to(state, fmaxf(state->maximum, score));
            state->sum += expf(score - state->maximum);
        }
    }
}

static void fp32_row(const vkmha_setup *setup, const vkmha_seen_row *row, uint64_t tile,
                     bool is_backward, float **told)
{
    static float weights[MAX_COLUMNS];
    const vkmha_plan_params *plan = &setup->plan;
    const vkmha_counts counts = count_of(setup);
    const uint64_t at = (row->b * setup->layer.num_heads + row->h) * plan->query_len + row->i;
    const vkmha_online keys = fp32_pass(setup, row, tile, is_backward);
    vkmha_online whole = keys;
    add_further(setup, row, is_backward, &whole);
    told[TOLD_LSE][at] = whole.sum > 0.0f ? whole.maximum + logf(whole.sum) : -INFINITY;
    /* The second pass sums its scores the usual way, unless they are so large that this would show.
     */
    const bool is_backward_again = is_backward && setup->size > 10.0f;
    for (uint64_t j = 0; j < counts.columns; j++) {
        const bool is_seen = j < counts.keys ? is_allowed(setup, row, j) : row->is_there;
        const float score = is_seen ? fp32_score(setup, row, j, is_backward_again) : -INFINITY;
        weights[j] = is_seen ? expf(score - whole.maximum) / whole.sum : 0.0f;
    }
    float *statistics = told[TOLD_STATISTICS] + at * STATISTICS;
    if (keys.sum > 0.0f) {
        vkmha_online moved = keys;
        raise_to(&moved, whole.maximum);
        statistics[0] = moved.sum / whole.sum * logf(whole.sum) - moved.logs / whole.sum;
        statistics[1] = expf(keys.maximum - whole.maximum) / whole.sum;
        statistics[2] = moved.distances / whole.sum;
        const int64_t places[5] = {row->position - 1, row->position, row->position + 1,
                                   row->first_key, row->key_length - 1};
        for (uint32_t n = 0; n < 5; n++) {
            statistics[3 + n] =
                places[n] >= 0 && places[n] < (int64_t)counts.keys ? weights[places[n]] : 0.0f;
        }
    }
    for (uint64_t j = 0; j < counts.keys; j++) {
        told[TOLD_KEY_MASS][(row->b * setup->layer.num_heads + row->h) * counts.keys + j] +=
            weights[j];
    }
    uint64_t chosen_at;
    uint64_t mean_at;
    if (find_chosen(setup, row, &chosen_at, &mean_at)) {
        for (uint64_t j = 0; j < counts.columns; j++) {
            told[TOLD_WEIGHTS][chosen_at + j] = weights[j];
            told[TOLD_MEAN_WEIGHTS][mean_at + j] += weights[j];
        }
    }
}

static void tell_in_fp32(const vkmha_setup *setup, uint64_t tile, bool is_backward,
                         vkmha_answers *answers)
{
    const vkmha_counts counts = count_of(setup);
    const vkmha_plan_params *plan = &setup->plan;
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        for (uint64_t h = 0; h < setup->layer.num_heads; h++) {
            for (uint64_t i = 0; i < plan->query_len; i++) {
                const vkmha_seen_row row = row_of(setup, b, h, i);
                fp32_row(setup, &row, tile, is_backward, answers->got);
            }
        }
    }
    for (uint64_t n = 0; n < counts.told[TOLD_MEAN_WEIGHTS]; n++) {
        answers->got[TOLD_MEAN_WEIGHTS][n] /= (float)counts.heads;
    }
}

/* Honest fp32 kernels against the bound: within it, and not far within; and it is small. */
static void compare_fp32(const vkmha_setup *setup, uint64_t tile, bool is_backward)
{
    const vkmha_counts counts = count_of(setup);
    const vkmha_chains chains = {
        .score = setup->layer.head_dim,
        .value = counts.keys,
        .rescale = counts.keys / tile + 1,
    };
    vkmha_answers answers;
    allocate(setup, &answers);
    ask_reference(setup, &chains, &answers);
    tell_in_fp32(setup, tile, is_backward, &answers);
    /* Sums over many keys one after the other, each of which may rescale them. */
    const double small = counts.keys < 64 ? 1e-4 : 1e-3;
    for (uint32_t t = 0; t <= TOLD_KEY_MASS; t++) {
        if (t == TOLD_SCORES) {
            continue;
        }
        vkmha_comparison comparison;
        vkmha_compare(answers.got[t], answers.value[t], answers.bound[t], counts.told[t],
                      &comparison);
        cr_assert(comparison.passed, "%s, tiles of %llu: %s %llu is %.9g instead of %.9g +- %.3g",
                  setup->name, (unsigned long long)tile, told_names[t],
                  (unsigned long long)comparison.worst_index,
                  (double)answers.got[t][comparison.worst_index],
                  answers.value[t][comparison.worst_index],
                  answers.bound[t][comparison.worst_index]);
        cr_log_info("%s, tiles of %llu: %s at %.3g of its bound", setup->name,
                    (unsigned long long)tile, told_names[t], comparison.max_ratio);
        cr_assert(setup->size > 1.0f || comparison.max_ratio > 0.001,
                  "%s: the bound of %s is far off: %g", setup->name, told_names[t],
                  comparison.max_ratio);
        for (uint64_t n = 0; setup->size <= 1.0f && n < counts.told[t]; n++) {
            const double size = isinf(answers.value[t][n]) ? 0.0 : fabs(answers.value[t][n]);
            cr_assert(answers.bound[t][n] <= small * (1.0 + size), "%s: bound of %s %llu is %g",
                      setup->name, told_names[t], (unsigned long long)n, answers.bound[t][n]);
        }
    }
    release(&answers);
}

Test(reference_outputs, are_what_the_header_says)
{
    for (size_t k = 0; k < sizeof(setups) / sizeof(setups[0]); k++) {
        for (uint32_t stage = 0; stage <= VKMHA_SCORES_MASKED; stage++) {
            vkmha_setup setup = setups[k];
            setup.plan.scores = (vkmha_scores)stage;
            float *data[5] = {NULL};
            fill(&setup, data);
            vkmha_answers answers;
            allocate(&setup, &answers);
            ask_reference(&setup, NULL, &answers);
            tell_plainly(&setup, &answers);
            compare_plain(&setup, &answers);
            release(&answers);
            release_data(data);
        }
    }
}

Test(reference_outputs, bounds_hold_honest_kernels_and_little_more)
{
    for (size_t k = 0; k < sizeof(setups) / sizeof(setups[0]); k++) {
        vkmha_setup setup = setups[k];
        float *data[5] = {NULL};
        fill(&setup, data);
        compare_fp32(&setup, 1, false);
        compare_fp32(&setup, 4, true);
        compare_fp32(&setup, 64, false);
        release_data(data);
    }
}
