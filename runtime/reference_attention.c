/* Scores, softmax and weighted values of each query, with the error that fp32 kernels may make. */
#include <string.h>

#include "convert.h"
#include "position.h"
#include "reference.h"
#include "reference_bound.h"

/* A tanh of the kernels' own, in units of its value. */
#define TANH_UNITS 40.0

/* ---- Masks ----------------------------------------------------------------------------------- */

static uint64_t mask_index(const vkmha_plan_params *plan, const vkmha_row *row, uint64_t j)
{
    const uint64_t *dims = plan->mask_dims;
    const uint64_t at[4] = {row->b, row->h, row->i, j};
    uint64_t index = 0;
    for (uint32_t axis = 0; axis < 4; axis++) {
        index = index * dims[axis] + (dims[axis] > 1 ? at[axis] : 0);
    }
    return index;
}

/* Each row of bits begins a new word. */
static bool is_bit_set(const vkmha_plan_params *plan, const uint32_t *words, const vkmha_row *row,
                       uint64_t j)
{
    const uint64_t *dims = plan->mask_dims;
    const uint64_t bit = dims[3] > 1 ? j : 0;
    const uint64_t row_index = (mask_index(plan, row, j) - bit) / dims[3];
    uint32_t word;
    memcpy(&word, words + row_index * ((dims[3] + 31) / 32) + bit / 32, sizeof(word));
    return (word >> (bit % 32) & 1) != 0;
}

/* Whether the masks allow key j, and what an additive one adds to its score. */
static bool masks_allow(const vkmha_reference *reference, const vkmha_row *row, uint64_t j,
                        double *added)
{
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_inputs *inputs = reference->inputs;
    *added = 0.0;
    if (plan->has_attend_keys && inputs->attend_keys[row->b * reference->sizes.all_keys + j] == 0) {
        return false;
    }
    switch (plan->mask) {
    case VKMHA_MASK_NONE:
        return true;
    case VKMHA_MASK_ATTEND:
        return ((const uint8_t *)inputs->mask)[mask_index(plan, row, j)] != 0;
    case VKMHA_MASK_ATTEND_BITS:
        return is_bit_set(plan, inputs->mask, row, j);
    case VKMHA_MASK_ADDITIVE:
    case VKMHA_MASK_ADDITIVE_F16:
        *added = (double)vkmha_load_element(
            inputs->mask, plan->mask == VKMHA_MASK_ADDITIVE ? VKMHA_TYPE_F32 : VKMHA_TYPE_F16,
            mask_index(plan, row, j));
        return *added != -INFINITY;
    }
    return false;
}

/* Whether lengths, causal order and windows show key j to the row. */
static bool is_visible(const vkmha_plan_params *plan, const vkmha_row *row, int64_t j)
{
    const int64_t p = row->position;
    return j >= row->item->first_key && j < row->item->key_length &&
           (plan->causal == VKMHA_CAUSAL_NONE || j <= p) &&
           (!plan->has_window_left || j >= p - (int64_t)plan->window_left) &&
           (!plan->has_window_right || j <= p + (int64_t)plan->window_right);
}

/* ---- Scores ---------------------------------------------------------------------------------- */

double vkmha_reference_product(const vkmha_reference *reference, uint64_t query_at, uint64_t key_at,
                               double *slack)
{
    const uint32_t head_dim = reference->layer->head_dim;
    const double *query = reference->query.value + query_at;
    const double *query_bound = reference->query.bound + query_at;
    const double *key = reference->key.value + key_at;
    const double *key_bound = reference->key.bound + key_at;
    double sum = 0.0;
    double magnitude = 0.0;
    double carried = 0.0;
    double size = 0.0;
    for (uint32_t d = 0; d < head_dim; d++) {
        const double query_size = fabs(query[d]) + query_bound[d];
        const double key_size = fabs(key[d]) + key_bound[d];
        sum += query[d] * key[d];
        magnitude += query_size * key_size;
        carried += fabs(query[d]) * key_bound[d] + query_bound[d] * key_size;
        size += query_size + key_size;
    }
    const double scale = fabs(reference->scale);
    const double sum_error = vkmha_rounding_error(vkmha_longest(reference->chains.score, head_dim));
    /* One unit for the scaling, of the query or of the sum; one for terms of second order. */
    *slack = scale * (carried + (sum_error + 2.0 * VKMHA_UNIT) * magnitude) +
             reference->scale_off * magnitude +
             (1.0 + scale) * VKMHA_FLUSH * ((double)head_dim + size);
    return reference->scale * sum;
}

/*
 * softcap * tanh(score / softcap): monotonic, so its values at the ends of the score's interval
 * bound it. The argument is a quotient within 2.5 ULP, or a product with a rounded reciprocal.
 */
double vkmha_reference_cap(const vkmha_layer_params *layer, double score, double *slack)
{
    const double softcap = (double)layer->softcap;
    if (!(softcap > 0.0)) {
        return score;
    }
    const double off = *slack + 6.0 * VKMHA_UNIT * (fabs(score) + *slack) + VKMHA_FLUSH * softcap;
    const double capped = softcap * tanh(score / softcap);
    const double low = softcap * tanh((score - off) / softcap);
    const double high = softcap * tanh((score + off) / softcap);
    const double size = fmax(fabs(low), fabs(high));
    *slack = fmax(high - capped, capped - low) +
             (vkmha_rounding_error(TANH_UNITS + 1.0) + VKMHA_UNIT) * size +
             VKMHA_FLUSH * (1.0 + softcap);
    return capped;
}

/* Slopes and distances are fp32: a distance past 2^24 is rounded, as is the product. */
static double alibi_of(const vkmha_layer_params *layer, const vkmha_row *row, int64_t distance,
                       double *slack)
{
    const float slope = layer->alibi_slopes ? layer->alibi_slopes[row->h]
                                            : vkmha_alibi_slope(layer->num_heads, (uint32_t)row->h);
    const double bias = -(double)slope * fabs((double)distance);
    if (bias != 0.0) {
        *slack += vkmha_rounding_error(2.0) * fabs(bias) + 2.0 * VKMHA_FLUSH;
    }
    return bias;
}

/* The score of an allowed key j, `added` by its mask. */
static double score_key(const vkmha_reference *reference, const vkmha_row *row, uint64_t query_at,
                        uint64_t key_at, uint64_t j, double added, double *slack)
{
    const vkmha_layer_params *layer = reference->layer;
    double score = vkmha_reference_product(reference, query_at, key_at, slack);
    score = vkmha_reference_cap(layer, score, slack);
    const int64_t distance = (int64_t)j - row->position;
    double biases[3] = {0.0, 0.0, added};
    if (layer->has_alibi) {
        biases[0] = alibi_of(layer, row, distance, slack);
    }
    const vkmha_relative_bias *relative = &layer->relative_bias;
    if (relative->table) {
        biases[1] =
            (double)relative
                ->table[row->h * relative->num_buckets + vkmha_relative_bucket(relative, distance)];
    }
    for (uint32_t n = 0; n < 3; n++) {
        if (biases[n] != 0.0) {
            score = vkmha_mask_score(score, biases[n], slack);
        }
    }
    /* A score below the finite numbers becomes the least of them. */
    return score < -(double)FLT_MAX ? vkmha_mask_score(score, 0.0, slack) : score;
}

/* Finds the keys that the row may attend and their scores; returns how many. */
static uint64_t score_keys(const vkmha_reference *reference, const vkmha_row *row)
{
    const vkmha_scratch *scratch = &reference->scratch;
    const uint64_t group = reference->layer->num_heads / reference->layer->num_kv_heads;
    const uint64_t query_row = (uint64_t)row->item->first_query_row + row->i;
    const uint64_t query_at = vkmha_values_at(&reference->query, query_row, row->h);
    uint64_t count = 0;
    for (uint64_t j = 0; j < (uint64_t)row->item->key_length; j++) {
        double added;
        if (is_visible(reference->plan, row, (int64_t)j) &&
            masks_allow(reference, row, j, &added)) {
            const uint64_t key_row = row->first_key_row + j;
            const uint64_t key_at = vkmha_values_at(&reference->key, key_row, row->h / group);
            scratch->key[count] = j;
            scratch->row[count] = key_row;
            scratch->score[count] =
                score_key(reference, row, query_at, key_at, j, added, &scratch->slack[count]);
            count++;
        }
    }
    return count;
}

/* Appends what follows the keys: bias_k, which alone has a value, the slot of zeros, the sink.
 * Returns how many there are then. */
static uint64_t score_further_keys(const vkmha_reference *reference, const vkmha_row *row,
                                   uint64_t count)
{
    const vkmha_layer_params *layer = reference->layer;
    const vkmha_scratch *scratch = &reference->scratch;
    if (layer->bias_k) {
        const uint64_t group = layer->num_heads / layer->num_kv_heads;
        const uint64_t query_row = (uint64_t)row->item->first_query_row + row->i;
        double slack;
        double score = vkmha_reference_product(
            reference, vkmha_values_at(&reference->query, query_row, row->h),
            vkmha_values_at(&reference->key, reference->bias_row, row->h / group), &slack);
        score = vkmha_reference_cap(layer, score, &slack);
        if (score < -(double)FLT_MAX) {
            score = vkmha_mask_score(score, 0.0, &slack);
        }
        scratch->row[count] = reference->bias_row;
        scratch->score[count] = score;
        scratch->slack[count] = slack;
        count++;
    }
    const double logits[2] = {0.0, layer->sinks ? (double)layer->sinks[row->h] : -INFINITY};
    for (uint32_t n = layer->add_zero_attn ? 0 : 1; n < 2; n++) {
        if (logits[n] != -INFINITY) {
            scratch->row[count] = reference->zero_row;
            scratch->score[count] = logits[n];
            scratch->slack[count] = 0.0;
            count++;
        }
    }
    return count;
}

/* ---- Softmax --------------------------------------------------------------------------------- */

/* A term is rounded once for each other term. */
double vkmha_reference_terms(const vkmha_reference *reference, uint64_t total)
{
    return fmin(vkmha_longest(reference->chains.value, total) + VKMHA_FURTHER_KEYS, (double)total);
}

/* Each further key may rescale the sums once more. */
double vkmha_reference_rescales(const vkmha_reference *reference, uint64_t total)
{
    return vkmha_longest(reference->chains.rescale, total) + VKMHA_FURTHER_KEYS;
}

/*
 * Weights of the keys, not normalised, in truth and in a kernel, whose exponents are off by its
 * scores and its exponentials. count and total are there.
 */
static void weigh_keys(const vkmha_reference *reference, vkmha_row_sums *sums)
{
    const vkmha_scratch *scratch = &reference->scratch;
    const double rescales = vkmha_reference_rescales(reference, sums->total);
    sums->maximum = sums->floor = sums->ceiling = -INFINITY;
    for (uint64_t n = 0; n < sums->total; n++) {
        sums->maximum = fmax(sums->maximum, scratch->score[n]);
        sums->floor = fmax(sums->floor, scratch->score[n] - scratch->slack[n]);
        sums->ceiling = fmax(sums->ceiling, scratch->score[n] + scratch->slack[n]);
    }
    sums->exponentials = 1.0 + rescales;
    sums->rounding = vkmha_rounding_error(vkmha_reference_terms(reference, sums->total) + rescales);
    sums->sum = 0.0;
    sums->least = 0.0;
    for (uint64_t n = 0; n < sums->total; n++) {
        const double exponent = scratch->score[n] - sums->maximum;
        const double distance = sums->ceiling - scratch->score[n] + scratch->slack[n];
        const double off = scratch->slack[n] + vkmha_exp_error(distance, sums->exponentials);
        scratch->weight[n] = exp(exponent);
        /* Kept finite: what a weight can do is limited by the values' range anyway. */
        scratch->most[n] = exp(fmin(exponent + off, 700.0)) + VKMHA_FLUSH;
        sums->sum += scratch->weight[n];
        sums->least += fmax(exp(exponent - off) - VKMHA_FLUSH, 0.0);
    }
}

/*
 * The average o = sum_j w_j v_j / sum_j w_j, with its bound. A kernel's weights w' and values v',
 * the same weights in both sums, move it by
 *
 *     sum_j w'_j (v'_j - o) / sum_j w'_j
 *     = sum_j ((w'_j - w_j) (v_j - o) + w'_j (v'_j - v_j)) / sum_j w'_j,
 *
 * never by more than max_j |v'_j - o|. Then both sums are rounded, and divided.
 */
double vkmha_reference_average_bound(const vkmha_reference *reference, const vkmha_row_sums *sums,
                                     const vkmha_spread *spread, double average)
{
    /* Weights are of one sign, and small ones may vanish in the sum one like the other: nothing is
     * random here. A term is rounded once for each other term, and again by each rescale. */
    const double rescales = vkmha_reference_rescales(reference, sums->total);
    const double value_error =
        vkmha_rounding_error(vkmha_reference_terms(reference, sums->total) + rescales + 1.0);
    const double weight_error = sums->rounding;
    const double size = vkmha_limited_ratio(spread->magnitude, sums->least, spread->largest);
    const double moved = vkmha_limited_ratio(spread->moved, sums->least, spread->farthest);
    const double rounded = (value_error * size + weight_error * fmin(size, fabs(average) + moved)) /
                           (1.0 - weight_error);
    const double flushed = VKMHA_FLUSH * ((double)sums->total + rescales + 2.0);
    /* A division within 2.5 ULP, or a reciprocal so exact and a product. */
    const double divided = 6.0 * VKMHA_UNIT * (fabs(average) + moved + rounded);
    return isfinite(average) ? moved + rounded + divided + flushed : INFINITY;
}

static void average_values(const vkmha_reference *reference, uint64_t h, const vkmha_row_sums *sums,
                           double *average, double *bound)
{
    const vkmha_scratch *scratch = &reference->scratch;
    const vkmha_values *values = &reference->value;
    const uint32_t v_head_dim = reference->layer->v_head_dim;
    const uint64_t group = reference->layer->num_heads / reference->layer->num_kv_heads;
    memset(average, 0, v_head_dim * sizeof(double));
    for (uint64_t n = 0; n < sums->total; n++) {
        const double *value = values->value + vkmha_values_at(values, scratch->row[n], h / group);
        const double weight = scratch->weight[n];
        for (uint32_t d = 0; d < v_head_dim; d++) {
            average[d] += weight * value[d];
        }
    }
    for (uint32_t d = 0; d < v_head_dim; d++) {
        average[d] /= sums->sum;
        scratch->spread[d] = (vkmha_spread){0};
    }
    for (uint64_t n = 0; n < sums->total; n++) {
        const uint64_t row = vkmha_values_at(values, scratch->row[n], h / group);
        const double most = scratch->most[n];
        const double excess = most - scratch->weight[n];
        for (uint32_t d = 0; d < v_head_dim; d++) {
            vkmha_spread *spread = &scratch->spread[d];
            const double off = values->bound[row + d];
            const double distance = fabs(values->value[row + d] - average[d]);
            const double size = fabs(values->value[row + d]) + off;
            spread->moved += excess * distance + most * off;
            spread->magnitude += most * size;
            if (spread->farthest < distance + off) {
                spread->farthest = distance + off;
            }
            if (spread->largest < size) {
                spread->largest = size;
            }
        }
    }
    for (uint32_t d = 0; d < v_head_dim; d++) {
        bound[d] = vkmha_reference_average_bound(reference, sums, &scratch->spread[d], average[d]);
    }
}

static double gate_of(const vkmha_reference *reference, uint64_t b, uint64_t h)
{
    const vkmha_plan_params *plan = reference->plan;
    if (!plan->has_head_gates) {
        return 1.0;
    }
    const uint64_t first = plan->has_gates_per_sequence ? b * reference->layer->num_heads : 0;
    return (double)reference->inputs->head_gates[first + h];
}

/* A gate of 0 leaves the head out, whatever its result. */
static void apply_gate(double gate, uint32_t features, double *values, double *bound)
{
    for (uint32_t d = 0; d < features; d++) {
        const double size = fabs(gate) * (fabs(values[d]) + bound[d]);
        values[d] = gate == 0.0 ? 0.0 : gate * values[d];
        bound[d] = gate == 0.0 ? 0.0
                               : fabs(gate) * bound[d] + VKMHA_UNIT * size +
                                     VKMHA_FLUSH * (2.0 + fabs(gate));
    }
}

/* The result of a row of `sums`. */
static void finish_row(const vkmha_reference *reference, const vkmha_row *row,
                       const vkmha_row_sums *sums)
{
    const vkmha_layer_params *layer = reference->layer;
    const uint64_t at = vkmha_values_at(&reference->attention,
                                        (uint64_t)row->item->first_query_row + row->i, row->h);
    double *values = reference->attention.value + at;
    double *bound = reference->attention.bound + at;
    /* Without a key the result is exactly zero: neither the slot of zeros nor a sink has a value.
     */
    if (sums->count == 0 && !layer->bias_k) {
        memset(values, 0, layer->v_head_dim * sizeof(double));
        memset(bound, 0, layer->v_head_dim * sizeof(double));
        return;
    }
    average_values(reference, row->h, sums, values, bound);
    if (reference->plan->has_head_gates) {
        apply_gate(gate_of(reference, row->b, row->h), layer->v_head_dim, values, bound);
    }
}

static void attend_row(const vkmha_reference *reference, const vkmha_row *row)
{
    vkmha_row_sums sums = {0};
    const bool is_there = row->i < (uint64_t)row->item->query_length;
    if (is_there) {
        sums.count = score_keys(reference, row);
        sums.total = score_further_keys(reference, row, sums.count);
        weigh_keys(reference, &sums);
        finish_row(reference, row, &sums);
    }
    vkmha_reference_tell_row(reference, row, &sums);
}

void vkmha_reference_attend(const vkmha_reference *reference)
{
    vkmha_reference_tell_nothing(reference);
    for (uint64_t b = 0; b < reference->plan->batch_size; b++) {
        const vkmha_item item = vkmha_plan_item(reference->plan, reference->inputs, 0, b);
        for (uint64_t h = 0; h < reference->layer->num_heads; h++) {
            for (uint64_t i = 0; i < reference->plan->query_len; i++) {
                const vkmha_row row = {
                    .item = &item,
                    .b = b,
                    .h = h,
                    .i = i,
                    .position = (int64_t)i + item.position_offset,
                    .first_key_row = vkmha_reference_first_key_row(reference, &item, b),
                };
                attend_row(reference, &row);
            }
        }
    }
}
