/* What is told besides the output, and how far an fp32 kernel's may be off. */
#include <math.h>
#include <string.h>

#include "reference.h"
#include "reference_bound.h"

enum { NUM_STATISTICS = sizeof(vkmha_statistics) / sizeof(float) };

/* ---- Places ---------------------------------------------------------------------------------- */

/* The number of `which` among the chosen; false: it is not chosen. */
static bool number_of(const uint32_t *chosen, uint32_t count, uint64_t which, uint64_t *number)
{
    *number = which;
    for (uint32_t n = 0; chosen && n < count; n++) {
        if (chosen[n] == which) {
            *number = n;
            return true;
        }
    }
    return !chosen;
}

static void put(double *values, double *bounds, uint64_t at, double value, double bound)
{
    if (values) {
        values[at] = value;
    }
    if (bounds) {
        bounds[at] = bound;
    }
}

static void add(double *values, double *bounds, uint64_t at, double value, double bound)
{
    if (values) {
        values[at] += value;
    }
    if (bounds) {
        bounds[at] += bound;
    }
}

void vkmha_reference_tell_nothing(const vkmha_reference *reference)
{
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_sizes *sizes = &reference->sizes;
    const vkmha_reference_outputs *outputs = reference->outputs;
    const uint64_t means = plan->batch_size * sizes->chosen_queries * sizes->columns;
    const uint64_t masses = plan->batch_size * reference->layer->num_heads * sizes->all_keys;
    const struct {
        double *memory;
        uint64_t count;
    } sums[] = {
        {outputs->mean_weights, means},
        {outputs->mean_weights_bound, means},
        {outputs->key_mass, masses},
        {outputs->key_mass_bound, masses},
    };
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        if (sums[i].memory) {
            memset(sums[i].memory, 0, sums[i].count * sizeof(double));
        }
    }
}

/* ---- Weights --------------------------------------------------------------------------------- */

static double excess(const vkmha_scratch *scratch, uint64_t n)
{
    return scratch->most[n] - scratch->weight[n];
}

/* What a kernel's sum of weights is between, rounded. The weight of its own maximum is 1. */
static double least_sum(const vkmha_row_sums *sums)
{
    const double top = exp(sums->floor - sums->maximum) * (1.0 - 8.0 * VKMHA_UNIT);
    return fmax(sums->least, top) * (1.0 - fmin(sums->rounding, 1.0));
}

static double most_sum(const vkmha_reference *reference, const vkmha_row_sums *sums)
{
    double sum = 0.0;
    for (uint64_t n = 0; n < sums->total; n++) {
        sum += reference->scratch.most[n];
    }
    return sum * (1.0 + sums->rounding);
}

/*
 * exp(score - maximum) / sum of a score that is off by `slack` at most: kernels make it once more,
 * from a second score, with the maximum and the sum of the first. The second may be over the first,
 * and so over that maximum, by what both are off; but where that is much, scores are still made so
 * alike that it is by no more than 1.
 */
static double weight_bound(const vkmha_row_sums *sums, double most, double score, double slack)
{
    const double exponent = score - sums->maximum;
    const double distance = fmax(sums->ceiling - score, 0.0) + slack;
    const double off = slack + vkmha_exp_error(distance, 1.0);
    const double weight = exp(exponent) / sums->sum;
    /* A kernel's sum is at least the weight of its own maximum. */
    const double over =
        exp(fmin(2.0 * slack, 1.0) + vkmha_exp_error(1.0, 1.0)) / (1.0 - fmin(sums->rounding, 1.0));
    const double high =
        fmin(exp(fmin(exponent + off, 700.0)) / least_sum(sums), over) * (1.0 + 8.0 * VKMHA_UNIT);
    const double low = exp(exponent - off) / most * (1.0 - 6.0 * VKMHA_UNIT);
    const double bound = fmax(high - weight, weight - low) + 4.0 * VKMHA_FLUSH;
    return isfinite(weight) ? bound : INFINITY;
}

/* Columns of the row's keys, number n of which is `column`; those of the sink have none. */
static uint64_t num_columns_seen(const vkmha_reference *reference, const vkmha_row_sums *sums)
{
    const uint64_t further = reference->sizes.columns - reference->sizes.all_keys;
    return sums->total < sums->count + further ? sums->total : sums->count + further;
}

static uint64_t column_of(const vkmha_reference *reference, const vkmha_row_sums *sums, uint64_t n)
{
    return n < sums->count ? reference->scratch.key[n]
                           : reference->sizes.all_keys + n - sums->count;
}

/* The row's weights, 0 for keys that are not allowed. */
static void fill_columns(const vkmha_reference *reference, const vkmha_row_sums *sums, double most)
{
    const vkmha_scratch *scratch = &reference->scratch;
    const uint64_t columns = reference->sizes.columns;
    memset(scratch->column, 0, columns * sizeof(double));
    memset(scratch->column_bound, 0, columns * sizeof(double));
    const uint64_t seen = num_columns_seen(reference, sums);
    for (uint64_t n = 0; n < seen; n++) {
        const uint64_t column = column_of(reference, sums, n);
        scratch->column[column] = scratch->weight[n] / sums->sum;
        scratch->column_bound[column] =
            weight_bound(sums, most, scratch->score[n], scratch->slack[n]);
    }
}

/* Elements of a chosen row's first column: in a tensor of the chosen heads, and of their mean. */
typedef struct vkmha_chosen {
    uint64_t at;
    uint64_t mean_at;
} vkmha_chosen;

/* False: the row is not chosen. */
static bool find_chosen(const vkmha_reference *reference, const vkmha_row *row,
                        vkmha_chosen *chosen)
{
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_sizes *sizes = &reference->sizes;
    uint64_t head;
    uint64_t query;
    if (!number_of(plan->chosen_heads, plan->num_chosen_heads, row->h, &head) ||
        !number_of(plan->chosen_queries, plan->num_chosen_queries, row->i, &query)) {
        return false;
    }
    const uint64_t rows_before = (row->b * sizes->chosen_heads + head) * sizes->chosen_queries;
    *chosen = (vkmha_chosen){
        .at = (rows_before + query) * sizes->columns,
        .mean_at = (row->b * sizes->chosen_queries + query) * sizes->columns,
    };
    return true;
}

static void tell_weights(const vkmha_reference *reference, const vkmha_row *row)
{
    const vkmha_sizes *sizes = &reference->sizes;
    const vkmha_reference_outputs *outputs = reference->outputs;
    const vkmha_scratch *scratch = &reference->scratch;
    vkmha_chosen chosen;
    if (!find_chosen(reference, row, &chosen)) {
        return;
    }
    const double heads = (double)sizes->chosen_heads;
    /* Their sum, and a division within 2.5 ULP, or a product with a reciprocal. */
    const double mean_error = vkmha_rounding_error(heads + 6.0);
    for (uint64_t c = 0; c < sizes->columns; c++) {
        const double weight = scratch->column[c];
        const double bound = scratch->column_bound[c];
        const double flushed = bound > 0.0 ? 2.0 * VKMHA_FLUSH : 0.0;
        put(outputs->weights, outputs->weights_bound, chosen.at + c, weight, bound);
        add(outputs->mean_weights, outputs->mean_weights_bound, chosen.mean_at + c, weight / heads,
            (bound + mean_error * (weight + bound)) / heads + flushed);
    }
}

/* A chain over the sequence's queries. */
static void tell_mass(const vkmha_reference *reference, const vkmha_row *row)
{
    const vkmha_scratch *scratch = &reference->scratch;
    const uint64_t all_keys = reference->sizes.all_keys;
    const uint64_t at = (row->b * reference->layer->num_heads + row->h) * all_keys;
    const double error = vkmha_rounding_error((double)row->item->query_length);
    for (uint64_t j = 0; j < all_keys; j++) {
        const double weight = scratch->column[j];
        const double bound = scratch->column_bound[j];
        add(reference->outputs->key_mass, reference->outputs->key_mass_bound, at + j, weight,
            bound + error * (weight + bound));
    }
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* A key's score before masks; the slack that it comes with. */
static double early_score(const vkmha_reference *reference, const vkmha_row *row, uint64_t key_row,
                          double *slack)
{
    const vkmha_layer_params *layer = reference->layer;
    const uint64_t group = layer->num_heads / layer->num_kv_heads;
    const uint64_t query_row = (uint64_t)row->item->first_query_row + row->i;
    const double score =
        vkmha_reference_product(reference, vkmha_values_at(&reference->query, query_row, row->h),
                                vkmha_values_at(&reference->key, key_row, row->h / group), slack);
    return reference->plan->scores == VKMHA_SCORES_CAPPED ? vkmha_reference_cap(layer, score, slack)
                                                          : score;
}

static void tell_scores(const vkmha_reference *reference, const vkmha_row *row,
                        const vkmha_row_sums *sums)
{
    const vkmha_sizes *sizes = &reference->sizes;
    const vkmha_reference_outputs *outputs = reference->outputs;
    const vkmha_scratch *scratch = &reference->scratch;
    vkmha_chosen chosen;
    if (!find_chosen(reference, row, &chosen)) {
        return;
    }
    const bool is_masked = reference->plan->scores == VKMHA_SCORES_MASKED;
    const bool is_there = row->i < (uint64_t)row->item->query_length;
    const uint64_t bias_column = reference->layer->bias_k ? sizes->all_keys : sizes->columns;
    for (uint64_t c = 0; c < sizes->columns; c++) {
        const bool is_key =
            (int64_t)c >= row->item->first_key && (int64_t)c < row->item->key_length;
        double score = is_masked ? -INFINITY : 0.0;
        double slack = 0.0;
        if (!is_masked && is_there && (is_key || c == bias_column)) {
            score = early_score(reference, row,
                                is_key ? row->first_key_row + c : reference->bias_row, &slack);
        }
        put(outputs->scores, outputs->scores_bound, chosen.at + c, score, slack);
    }
    const uint64_t seen = num_columns_seen(reference, sums);
    for (uint64_t n = 0; is_masked && n < seen; n++) {
        put(outputs->scores, outputs->scores_bound, chosen.at + column_of(reference, sums, n),
            scratch->score[n], scratch->slack[n]);
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* How far the logarithm of the weights' sum may move, rounding of the sum aside: with the sum, and
 * by no more than the exponents do. */
static double log_moved(const vkmha_reference *reference, const vkmha_row_sums *sums, double most)
{
    const vkmha_scratch *scratch = &reference->scratch;
    double off = 0.0;
    for (uint64_t n = 0; n < sums->total; n++) {
        const double distance = sums->ceiling - scratch->score[n] + scratch->slack[n];
        off = fmax(off, scratch->slack[n] + vkmha_exp_error(distance, sums->exponentials));
    }
    const double moved = fmax(log(most / sums->sum), log(sums->sum / least_sum(sums)));
    return fmin(moved, off + VKMHA_FLUSH * (double)sums->total);
}

/* What a logarithm of the size given may be off by: 3 ULP, or 2^-21 near 1; and its argument, the
 * rounded sum. */
static double log_error(const vkmha_row_sums *sums, double size)
{
    return fmax(6.0 * VKMHA_UNIT * size, 0x1p-21) - log1p(-fmin(sums->rounding, 1.0));
}

/* maximum + log(sum) */
static void tell_lse(const vkmha_reference *reference, uint64_t at, const vkmha_row_sums *sums,
                     double most)
{
    const vkmha_reference_outputs *outputs = reference->outputs;
    if (sums->total == 0) {
        put(outputs->lse, outputs->lse_bound, at, -INFINITY, 0.0);
        return;
    }
    const double logarithm = log(sums->sum);
    const double lse = sums->maximum + logarithm;
    const double moved = log_moved(reference, sums, most);
    const double size = logarithm + moved + sums->ceiling - sums->floor;
    const double off = moved + log_error(sums, size);
    put(outputs->lse, outputs->lse_bound, at, lse,
        isfinite(lse) ? off + VKMHA_UNIT * (fabs(lse) + off) + 2.0 * VKMHA_FLUSH : INFINITY);
}

/*
 * Entropy is the average of a_j = log S - (s_j - m), and of 0 for further keys. Kernels' weights
 * w'_j = w_j exp(e_j), whose exponents are off by scores x_j and exponentials, move it by
 *
 *     sum_j (w'_j - w_j) (a_j - entropy) / S' + sum_j w'_j (log(S' / S) - x_j) / S'
 *
 * over keys. Were x_j = e_j and there no further keys, the second sum would be of second order: the
 * logarithm lies between the averages of e_j by both weights. Then, both of one sign, the terms of
 * (L / S) log S - T / S are rounded, T = sum_j w_j (s_j - m) and L = sum_j w_j over keys, where
 * each rescale adds a multiple of L to T.
 */
static void entropy_of(const vkmha_reference *reference, const vkmha_row_sums *sums, double most,
                       double *entropy, double *bound)
{
    /* Weights below e^-90 may all be 0, whatever their exponents. */
    const double least_exponent = -90.0;
    const vkmha_scratch *scratch = &reference->scratch;
    const double logarithm = log(sums->sum);
    double keys = 0.0;
    double depth = 0.0;
    double excesses = 0.0;
    for (uint64_t n = 0; n < sums->total; n++) {
        const double weight = scratch->weight[n];
        excesses += excess(scratch, n);
        if (n < sums->count) {
            keys += weight;
            depth += weight * fmin(sums->maximum - scratch->score[n], 800.0);
        }
    }
    keys /= sums->sum;
    depth /= sums->sum;
    *entropy = keys * logarithm + depth;
    const double log_off = log_moved(reference, sums, most);
    double moved = 0.0;
    uint64_t vanished = 0;
    for (uint64_t n = 0; n < sums->total; n++) {
        const double exponent = scratch->score[n] - sums->maximum;
        const double distance = sums->ceiling - scratch->score[n] + scratch->slack[n];
        const double exp_off = vkmha_exp_error(distance, sums->exponentials);
        const double off = scratch->slack[n] + exp_off;
        if (exponent + off < least_exponent) {
            vanished++;
            continue;
        }
        const double part = scratch->weight[n] / sums->sum;
        moved += off * (excess(scratch, n) + part * excesses);
        if (n < sums->count) {
            moved += excess(scratch, n) * fabs(logarithm - exponent - *entropy) +
                     scratch->most[n] * exp_off;
        } else {
            moved += excess(scratch, n) * *entropy + scratch->most[n] * (log_off + off);
        }
    }
    /* Neither entropy is over log n + 1. */
    moved = fmin(moved / least_sum(sums), log((double)sums->total) + 1.0);
    const double terms = vkmha_reference_terms(reference, sums->total);
    const double rescales = vkmha_reference_rescales(reference, sums->total);
    const double size = *entropy + moved;
    const double depth_error = vkmha_rounding_error(3.0 * terms + 5.0 * rescales + 12.0);
    const double log_size = logarithm + log_off + sums->ceiling - sums->floor;
    const double flushed =
        128.0 * VKMHA_FLUSH * ((double)(sums->total + vanished) + rescales + 4.0);
    *bound =
        moved + depth_error * (depth + moved) +
        vkmha_rounding_error(2.0 * terms + 2.0 * rescales + 12.0) * (keys * logarithm + moved) +
        (keys + sums->rounding) * log_error(sums, log_size) + VKMHA_UNIT * size + flushed;
}

static void mean_distance_of(const vkmha_reference *reference, const vkmha_row *row,
                             const vkmha_row_sums *sums, double *mean, double *bound)
{
    const vkmha_scratch *scratch = &reference->scratch;
    vkmha_spread spread = {0};
    *mean = 0.0;
    for (uint64_t n = 0; n < sums->count; n++) {
        const double distance = fabs((double)((int64_t)scratch->key[n] - row->position));
        *mean += scratch->weight[n] * distance;
    }
    *mean /= sums->sum;
    for (uint64_t n = 0; n < sums->total; n++) {
        const bool is_key = n < sums->count;
        const double distance =
            is_key ? fabs((double)((int64_t)scratch->key[n] - row->position)) : 0.0;
        const double off = distance > 0x1p24 ? VKMHA_UNIT * distance : 0.0;
        spread.moved += excess(scratch, n) * fabs(distance - *mean) + scratch->most[n] * off;
        spread.magnitude += scratch->most[n] * (distance + off);
        spread.farthest = fmax(spread.farthest, fabs(distance - *mean) + off);
        spread.largest = fmax(spread.largest, distance + off);
    }
    *bound = vkmha_reference_average_bound(reference, sums, &spread, *mean);
}

/* The largest weight of a key: exp(their maximum - maximum) / sum. */
static void max_weight_of(const vkmha_reference *reference, const vkmha_row_sums *sums, double most,
                          double *weight, double *bound)
{
    const vkmha_scratch *scratch = &reference->scratch;
    double top = -INFINITY;
    double ceiling = -INFINITY;
    double floor = -INFINITY;
    for (uint64_t n = 0; n < sums->count; n++) {
        top = fmax(top, scratch->score[n]);
        ceiling = fmax(ceiling, scratch->score[n] + scratch->slack[n]);
        floor = fmax(floor, scratch->score[n] - scratch->slack[n]);
    }
    *weight = exp(top - sums->maximum) / sums->sum;
    *bound = weight_bound(sums, most, top, fmax(ceiling - top, top - floor));
}

static void tell_statistics(const vkmha_reference *reference, const vkmha_row *row, uint64_t at,
                            const vkmha_row_sums *sums, double most)
{
    const vkmha_reference_outputs *outputs = reference->outputs;
    const vkmha_scratch *scratch = &reference->scratch;
    double values[NUM_STATISTICS] = {0};
    double bounds[NUM_STATISTICS] = {0};
    if (sums->count > 0) {
        entropy_of(reference, sums, most, &values[0], &bounds[0]);
        max_weight_of(reference, sums, most, &values[1], &bounds[1]);
        mean_distance_of(reference, row, sums, &values[2], &bounds[2]);
        const int64_t columns[5] = {row->position - 1, row->position, row->position + 1,
                                    row->item->first_key, row->item->key_length - 1};
        for (uint32_t n = 0; n < 5; n++) {
            if (columns[n] >= 0 && columns[n] < (int64_t)reference->sizes.all_keys) {
                values[3 + n] = scratch->column[columns[n]];
                bounds[3 + n] = scratch->column_bound[columns[n]];
            }
        }
    }
    for (uint32_t n = 0; n < NUM_STATISTICS; n++) {
        put(outputs->statistics, outputs->statistics_bound, at * NUM_STATISTICS + n, values[n],
            isfinite(values[n]) ? bounds[n] : INFINITY);
    }
}

void vkmha_reference_tell_row(const vkmha_reference *reference, const vkmha_row *row,
                              const vkmha_row_sums *sums)
{
    const vkmha_reference_outputs *outputs = reference->outputs;
    const bool has_lse = outputs->lse || outputs->lse_bound;
    const bool has_statistics = outputs->statistics || outputs->statistics_bound;
    const bool has_mass = outputs->key_mass || outputs->key_mass_bound;
    const bool has_weights = outputs->weights || outputs->weights_bound || outputs->mean_weights ||
                             outputs->mean_weights_bound;
    if (outputs->scores || outputs->scores_bound) {
        tell_scores(reference, row, sums);
    }
    if (!has_lse && !has_statistics && !has_mass && !has_weights) {
        return;
    }
    const double most = most_sum(reference, sums);
    const uint64_t at =
        (row->b * reference->layer->num_heads + row->h) * reference->plan->query_len + row->i;
    fill_columns(reference, sums, most);
    tell_lse(reference, at, sums, most);
    if (has_statistics) {
        tell_statistics(reference, row, at, sums, most);
    }
    if (has_mass) {
        tell_mass(reference, row);
    }
    if (has_weights) {
        tell_weights(reference, row);
    }
}
