/*
 * Online softmax (Milakov & Gimelshein 2018): per row a running maximum and a running sum; both,
 * and the row's unnormalised output, are rescaled whenever the maximum grows.
 *
 *     m' = max(m, max_j s_j)             f = exp(m - m')
 *     l' = l f + sum_j exp(s_j - m')     o' = o f + sum_j exp(s_j - m') v_j
 *
 * Every lane of a row keeps the same maximum and sum; a lane's own keys of the present chunk are
 * summed apart and joined at the chunk's end, so that a cut of the keys at a chunk's border changes
 * no bit. The maximum starts at -FLT_MAX, and a row has seen a key if its sum is not 0: its largest
 * score has weight 1. A masked key has weight MASKED.
 */

/* Marks a masked key where weights are kept; weights themselves are NaN or not negative. */
#define MASKED (-1.0)

float row_max[ROWS];
float row_sum[ROWS];
float lane_sum[ROWS];
vec4 row_output[ROWS * VALUE_VECTORS]; /* the lane's features */

/* exp(score - maximum), never asked of -Inf; exactly 1 at the maximum. */
float softmax_exp(float score, float maximum)
{
    precise const float x = score - maximum;
    const float lowest = -88.0; /* e^-88 is below the normal numbers */
    const float weight = exp(x < lowest ? lowest : x);
    return x < lowest ? 0.0 : x == 0.0 ? 1.0 : weight;
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
        row_max[r] = maxima[r];
        row_sum[r] *= factor;
        lane_sum[r] *= factor;
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            row_output[r * VALUE_VECTORS + v] *= factor;
        }
    }
}

/* The weight of row r's key number c of the lane, summed into the lane's part of the row. */
float softmax_weight(uint r, uint c)
{
    const uint at = r * COLUMNS + c;
    const float weight = softmax_exp(scores[at], row_max[r]);
    lane_sum[r] += attended[at] ? weight : 0.0;
    return attended[at] ? weight : MASKED;
}

/* The same of rows r..r+3. */
vec4 softmax_weights(uint r, uint c)
{
    return vec4(softmax_weight(r, c), softmax_weight(r + 1u, c), softmax_weight(r + 2u, c),
                softmax_weight(r + 3u, c));
}

/* sum + weight * value, where a masked key adds nothing even if its value is NaN. */
vec4 softmax_add(float weight, vec4 value, vec4 sum, bool masks)
{
    const vec4 added = multiply_add(weight, value, sum);
    return masks && weight < 0.0 ? sum : added;
}

/* Where row i keeps its state between dispatches. */
uint state_index(uint i)
{
    return 2u * ((gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * push.query_count + i);
}

/* First of the features that vec4 number v of a lane holds. */
uint lane_feature(uint lane, uint v)
{
    return 4u * (v * LANES + lane);
}

/* Starts rows first_row.., or takes them up where an earlier dispatch left them. */
void softmax_begin(uint lane, uint first_row)
{
    const uint result = result_head();
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = first_row + r;
        row_max[r] = -FLT_MAX;
        row_sum[r] = 0.0;
        lane_sum[r] = 0.0;
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            row_output[r * VALUE_VECTORS + v] = vec4(0.0);
        }
        if (has_flag(VKMHA_FLAG_FIRST) == 0u && i < push.query_count) {
            row_max[r] = state[state_index(i)];
            row_sum[r] = state[state_index(i) + 1u];
            [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                const uint feature = lane_feature(lane, v);
                if (feature < v_head_dim()) {
                    row_output[r * VALUE_VECTORS + v] =
                        load_result(result + i * push.result.row_stride, feature, v_head_dim());
                }
            }
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

/*
 * Writes rows first_row..: normalised, a row without keys as zero, or as they are for the next
 * dispatch. All lanes have read the state before any lane calls this.
 */
void softmax_end(uint lane, uint first_row)
{
    const uint result = result_head();
    const bool is_last = has_flag(VKMHA_FLAG_LAST) != 0u;
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = first_row + r;
        if (i >= push.query_count) {
            continue;
        }
        if (!is_last && lane == 0u) {
            state[state_index(i)] = row_max[r];
            state[state_index(i) + 1u] = row_sum[r];
        }
        const float divisor = is_last && row_sum[r] != 0.0 ? row_sum[r] : 1.0;
        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
            const uint feature = lane_feature(lane, v);
            if (feature < v_head_dim()) {
                store_result(result + i * push.result.row_stride, feature,
                             row_output[r * VALUE_VECTORS + v] / divisor);
            }
        }
    }
}
