/*
 * Online softmax (Milakov & Gimelshein 2018): per row a running maximum and a running sum; both,
 * and the row's unnormalised output, are rescaled whenever the maximum grows.
 *
 *     m' = max(m, max_j s_j)             f = exp(m - m')
 *     l' = l f + sum_j exp(s_j - m')     o' = o f + sum_j exp(s_j - m') v_j
 *
 * Keys are seen in chunks of VKMHA_KEY_CHUNK. Each chunk starts afresh and is then joined to those
 * before it by the same formula, in ascending order: so where the keys are cut, or whether other
 * workgroups compute the chunks, changes no bit. Between chunks a row's output is in memory, not
 * normalised.
 *
 * Every lane of a row keeps the same maxima and sums; a lane's own keys of the present chunk are
 * summed apart and joined at the chunk's end. A maximum starts at -FLT_MAX, and a row has seen a
 * key if its sum is not 0: its largest score has weight 1. A masked key has weight MASKED.
 *
 * With CLASS_STATISTICS a row sums its logarithms and distances too, and these follow the maximum:
 *     t = sum_j w_j (s_j - m)    t' = f (t + (m - m') l)       d = sum_j w_j |p - j|    d' = f d
 */

/* Marks a masked key where weights are kept; weights themselves are NaN or not negative. */
#define MASKED (-1.0)

float row_max[ROWS]; /* of the chunk, as the next three */
float row_sum[ROWS]; /* at its end */
float lane_sum[ROWS];
vec4 row_output[ROWS * VALUE_VECTORS]; /* the lane's features */
float whole_max[ROWS]; /* of the chunks before, as the next */
float whole_sum[ROWS];

/* The same of logarithms and distances; with CLASS_STATISTICS. */
float lane_logs[ROWS];
float lane_distances[ROWS];
float row_logs[ROWS];
float row_distances[ROWS];
float whole_logs[ROWS]; /* when the row is finished: its entropy */
float whole_distances[ROWS]; /* then: its mean distance */
float largest_weight[ROWS]; /* then alone */

/* Logarithms that are `sum`'s at maximum `from`, at maximum `to`; factor: exp(from - to). */
float move_logs(float logs, float sum, float from, float to, float factor)
{
#ifdef VKMHA_MUTANT_STILL_LOGS
    from = to;
#endif
    precise const float moved = factor * fma(from - to, sum, logs);
    return factor == 0.0 ? 0.0 : moved;
}

/* Takes the rows to `maxima`. Nothing changes for a row that keeps its maximum: its factor is 1. */
void softmax_raise()
{
    bool is_raised = false;
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        is_raised = is_raised || maxima[r] != row_max[r];
    }
    if (!is_raised) {
        return;
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const float factor = softmax_exp(row_max[r], maxima[r]);
        if (HAS_STATISTICS) {
            lane_logs[r] = move_logs(lane_logs[r], lane_sum[r], row_max[r], maxima[r], factor);
            lane_distances[r] *= factor;
        }
        row_max[r] = maxima[r];
        lane_sum[r] *= factor;
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            row_output[r * VALUE_VECTORS + v] *= factor;
        }
    }
}

/* The weight of row r's key number c of the lane, key j, summed into the lane's part of the row. */
float softmax_weight(uint r, uint c, uint j)
{
    const uint at = r * COLUMNS + c;
    const float weight = softmax_exp(scores[at], row_max[r]);
    lane_sum[r] += attended[at] ? weight : 0.0;
    if (HAS_STATISTICS) {
        const float counted = attended[at] ? weight : 0.0;
        const float exponent = max(scores[at] - row_max[r], LOWEST_EXPONENT);
        const float distance = float(abs(int(j) - row_positions[r]));
        lane_logs[r] = attended[at] ? fma(counted, exponent, lane_logs[r]) : lane_logs[r];
        lane_distances[r] = fma(counted, distance, lane_distances[r]);
    }
    return attended[at] ? weight : MASKED;
}

/* The same of rows r..r+3. */
vec4 softmax_weights(uint r, uint c, uint j)
{
    return vec4(softmax_weight(r, c, j), softmax_weight(r + 1u, c, j),
                softmax_weight(r + 2u, c, j), softmax_weight(r + 3u, c, j));
}

/* sum + weight * value, where a masked key adds nothing even if its value is NaN. */
vec4 softmax_add(float weight, vec4 value, vec4 sum, bool masks)
{
    const vec4 added = multiply_add(weight, value, sum);
    return masks && weight < 0.0 ? sum : added;
}

/* Where row i keeps its state. */
uint state_index(uint i)
{
    return has_option(VKMHA_OPTION_ROWS) && !IS_SPLIT ? told_row(i)
                                                      : STATE_FLOATS * state_row(split_chunk(), i);
}

/* First of the features that vec4 number v of a lane holds. */
uint lane_feature(uint lane, uint v)
{
    return 4u * (v * LANES + lane);
}

/* Starts rows first_row.., or takes them up where an earlier dispatch left them. */
void softmax_begin(uint first_row)
{
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = first_row + r;
        const bool goes_on = !has_flag(VKMHA_FLAG_FIRST) && i < row_count;
        whole_max[r] = goes_on ? state[state_index(i)] : -FLT_MAX;
        whole_sum[r] = goes_on ? state[state_index(i) + 1u] : 0.0;
        if (HAS_STATISTICS) {
            whole_logs[r] = goes_on ? state[state_index(i) + 2u] : 0.0;
            whole_distances[r] = goes_on ? state[state_index(i) + 3u] : 0.0;
        }
    }
}

/* Starts a chunk. */
void softmax_clear()
{
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        row_max[r] = -FLT_MAX;
        row_sum[r] = 0.0;
        lane_sum[r] = 0.0;
        if (HAS_STATISTICS) {
            lane_logs[r] = 0.0;
            lane_distances[r] = 0.0;
            row_logs[r] = 0.0;
            row_distances[r] = 0.0;
        }
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            row_output[r * VALUE_VECTORS + v] = vec4(0.0);
        }
    }
}

/* Padding is written as 0, also in a row that is NaN. */
void store_result(uint row, uint feature, vec4 features)
{
    if (VECTOR_C != 0u) {
        const uvec4 numbers = feature + uvec4(0u, 1u, 2u, 3u);
        result_vectors[(row + feature) >> 2] =
            mix(vec4(0.0), features, lessThan(numbers, uvec4(v_head_dim())));
        return;
    }
    for (uint i = 0u; i < 4u; i++) {
        if (feature + i < v_head_dim()) {
            result_floats[row + feature + i] = features[i];
        }
    }
}

/* Joins row r's chunk to those before it, whose factor is x; the chunk's own is y. */
vec2 softmax_join(uint r)
{
    const float maximum = max(whole_max[r], row_max[r]);
    const vec2 factors =
        vec2(softmax_exp(whole_max[r], maximum), softmax_exp(row_max[r], maximum));
    precise const float sum = fma(whole_sum[r], factors.x, row_sum[r] * factors.y);
    if (HAS_STATISTICS) {
        whole_logs[r] = move_logs(whole_logs[r], whole_sum[r], whole_max[r], maximum, factors.x) +
                        move_logs(row_logs[r], row_sum[r], row_max[r], maximum, factors.y);
        precise const float distances =
            fma(whole_distances[r], factors.x, row_distances[r] * factors.y);
        whole_distances[r] = distances;
    }
    whole_max[r] = maximum;
    whole_sum[r] = sum;
    return factors;
}

/* Joins the chunk at hand to what stands in memory; `goes_on`: there is something. */
void softmax_join_memory(uint lane, uint first_row, bool goes_on)
{
    vec2 factors[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        factors[r] = softmax_join(r);
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            row_output[r * VALUE_VECTORS + v] *= factors[r].y;
        }
    }
    if (!goes_on) {
        return;
    }
    const uint last_feature = 4u * (ceil_div(v_head_dim(), 4u) - 1u);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint row = result_row(clamped_row(first_row + r));
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            const vec4 before =
                load_result(row, min(lane_feature(lane, v), last_feature), v_head_dim());
            const uint at = r * VALUE_VECTORS + v;
            row_output[at] = multiply_add(factors[r].x, before, row_output[at]);
        }
    }
}

/* Writes the lane's features of rows first_row.. as they are. */
void softmax_keep(uint lane, uint first_row)
{
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = first_row + r;
        if (i < row_count) {
            [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                const uint feature = lane_feature(lane, v);
                if (feature < v_head_dim()) {
                    store_result(result_row(i), feature, row_output[r * VALUE_VECTORS + v]);
                }
            }
        }
    }
}

/* Joins one more key, that every row sees, with the lane's features of its value. */
void softmax_add_key(uint r, float score, vec4 values[VALUE_VECTORS])
{
    const float maximum = max(whole_max[r], score);
    const float factor = softmax_exp(whole_max[r], maximum);
    const float weight = softmax_exp(score, maximum);
    whole_max[r] = maximum;
    whole_sum[r] = fma(whole_sum[r], factor, weight);
    [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
        const uint at = r * VALUE_VECTORS + v;
        row_output[at] = multiply_add(weight, values[v], row_output[at] * factor);
    }
}

/* The keys that stand after all others: bias_k, the zero key, the sink. Query rows are begin_block's. */
void softmax_add_extra_keys(uint lane)
{
    vec4 values[VALUE_VECTORS];
    [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
        values[v] = vec4(0.0);
    }
    if (has_option(VKMHA_OPTION_ZERO_ATTN)) {
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            softmax_add_key(r, 0.0, values);
        }
    }
    if (has_option(VKMHA_OPTION_SINKS)) {
        const float sink = table_floats[options.sinks + layer_head()];
        if (floatBitsToUint(sink) != MINUS_INFINITY) {
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                softmax_add_key(r, sink, values);
            }
        }
    }
    if (has_option(VKMHA_OPTION_BIAS_KV)) {
        const uint head = layer_head() / options.group_size;
        const uint head_vectors = ceil_div(head_dim(), 4u);
        const uint value_vectors = ceil_div(v_head_dim(), 4u);
        /* One loop for all rows: compilers unroll one a row into code that takes minutes. */
        float products[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            products[r] = 0.0;
        }
        for (uint k = 0u; k < head_vectors; k++) {
            const vec4 key = table_vectors[options.bias_k / 4u + head * head_vectors + k];
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                products[r] = dot_add(load_query(query_rows[r], 4u * k, head_dim()), key, products[r]);
            }
        }
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            const uint vector = min(lane_feature(lane, v) / 4u, value_vectors - 1u);
            values[v] = table_vectors[options.bias_v / 4u + head * value_vectors + vector];
        }
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const float score = scaled_score(products[r]);
            softmax_add_key(r, score < -FLT_MAX ? -FLT_MAX : score, values);
        }
    }
}

/* Turns the row's sums into its statistics; key_max, key_sum: before the extra keys. */
void finish_statistics(uint r, float key_max, float key_sum)
{
    const bool has_keys = key_sum != 0.0;
    const float factor = softmax_exp(key_max, whole_max[r]);
    const float logs = move_logs(whole_logs[r], key_sum, key_max, whole_max[r], factor);
    const float sum = has_keys ? whole_sum[r] : 1.0;
    precise const float entropy = key_sum * factor / sum * log(sum) - logs / sum;
    whole_logs[r] = has_keys ? entropy : 0.0;
    whole_distances[r] = has_keys ? whole_distances[r] * factor / sum : 0.0;
    largest_weight[r] = has_keys ? factor / sum : 0.0;
}

/*
 * Ends the rows: a row without keys is zero. 0.0 is added so that no zero keeps a sign, which would
 * tell where the keys were cut.
 */
void softmax_finish(uint lane)
{
    if (!has_flag(VKMHA_FLAG_LAST) || IS_SPLIT) {
        return;
    }
    float key_max[ROWS];
    float key_sum[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        key_max[r] = whole_max[r];
        key_sum[r] = whole_sum[r];
    }
#ifndef VKMHA_MUTANT_NO_EXTRAS
    if (HAS_EXTRAS) {
        softmax_add_extra_keys(lane);
    }
#endif
    if (HAS_STATISTICS) {
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            finish_statistics(r, key_max[r], key_sum[r]);
        }
    }
    const float gate = head_gate();
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const float divisor = whole_sum[r] != 0.0 ? whole_sum[r] : 1.0;
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            const uint at = r * VALUE_VECTORS + v;
            precise const vec4 gated = fma(row_output[at] / divisor, vec4(gate), vec4(0.0));
            row_output[at] = gate == 0.0 ? vec4(0.0) : gated;
#ifdef VKMHA_COUNT_STEPS
            row_output[at] = vec4(counted_steps);
#endif
        }
    }
}

/*
 * Keeps what the next dispatch needs to go on, or what is told of the rows. All lanes have read the
 * state before any calls this.
 */
void softmax_keep_state(uint lane, uint first_row)
{
    const bool is_whole = has_flag(VKMHA_FLAG_LAST) && !IS_SPLIT;
    if (lane != 0u || (is_whole && !has_option(VKMHA_OPTION_ROWS))) {
        return;
    }
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = first_row + r;
        const bool is_there = i < row_count;
        if (is_there || (is_whole && i < push.query_count)) {
            const uint at = state_index(i);
            state[at] = is_there ? whole_max[r] : -FLT_MAX;
            state[at + 1u] = is_there ? whole_sum[r] : 0.0;
            if (HAS_STATISTICS) {
                state[at + 2u] = is_there ? whole_logs[r] : 0.0;
                state[at + 3u] = is_there ? whole_distances[r] : 0.0;
            }
            if (HAS_STATISTICS && is_whole) {
                state[at + 4u] = is_there ? largest_weight[r] : 0.0;
            }
        }
    }
}
