/*
 * softmax(scale Q K^T + mask) V by the online softmax: a workgroup owns ROWS query rows (a multiple of 4).
 *
 * Group (x, y, z): query rows x * ROWS .., head y, batch z. In a step of STEP keys, lanes run over keys for Q K^T, straight from
 * memory; the softmax reduces, and the weights reach all lanes, through shared memory; then lanes run over features
 * for the sum over V. No subgroup operations.
 * Shared memory: 4 * ROWS * WORKGROUP * (1 + COLUMNS) bytes.
 * Barriers: two a step, when the lanes' maxima are written (by then no lane still reads the weights before), and when the weights are
 * (by then no lane still reads the maxima); two a chunk, when the lanes' sums are written and when they are read; one before the state is
 * written, which all lanes have read.
 * Trips: for each chunk of VKMHA_KEY_CHUNK keys: 1 + LANES + chunk / STEP * (1 + ceil(head_dim / 4) + LANES + STEP).
 * Source: Milakov & Gimelshein 2018; Dao et al. 2022.
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"

const uint LANES = WORKGROUP;

#include "attention.glsl"
#include "softmax.glsl"

shared float shared_lanes[ROWS * LANES]; /* a lane's maximum or sum of a row */
shared vec4 shared_weights[STEP * ROWS / 4];

void main()
{
    const uint lane = gl_LocalInvocationID.x;
    const uint first_row = gl_WorkGroupID.x * ROWS;
    const uint length = sequence_length();
    const uint key_base = tensor_head(push.key, key_head());
    const uint value_base = tensor_head(push.value, key_head());
    const uint query_base = tensor_head(push.query, gl_WorkGroupID.y);
    const uint head_vectors = ceil_div(head_dim(), 4u);
    const uint last_value = 4u * (ceil_div(v_head_dim(), 4u) - 1u);

    uint query_rows[ROWS];
    uint mask_rows[ROWS];
    uint limits[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = clamped_row(first_row + r);
        query_rows[r] = query_base + i * push.query.row_stride;
        mask_rows[r] = mask_row(i);
        limits[r] = visible_keys(i, length);
    }
    softmax_begin(lane, first_row);

    const uint end = min(push.key_end, limits[ROWS - 1u]);
    for (uint chunk = push.key_begin; chunk < end; chunk += VKMHA_KEY_CHUNK) {
        const uint chunk_end = min(chunk + VKMHA_KEY_CHUNK, end);
        for (uint step_key = chunk; step_key < chunk_end; step_key += STEP) {
            /* Score: this lane's keys with every row. */
            float scores[ROWS * COLUMNS];
            uint key_rows[COLUMNS];
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                key_rows[c] = key_base + clamped_key(step_key + c * LANES + lane, length) * push.key.row_stride;
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    scores[r * COLUMNS + c] = 0.0;
                }
            }
            for (uint k = 0u; k < head_vectors; k++) {
                vec4 keys[COLUMNS];
                [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                    keys[c] = load_key(key_rows[c], 4u * k, head_dim());
                }
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    const vec4 query = load_query(query_rows[r], 4u * k, head_dim());
                    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                        scores[r * COLUMNS + c] = dot_add(query, keys[c], scores[r * COLUMNS + c]);
                    }
                }
            }

            /* Mask, and the rows' new maxima. */
            uint keys_at[COLUMNS];
            bool is_attended[COLUMNS];
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                keys_at[c] = clamped_key(step_key + c * LANES + lane, length);
                is_attended[c] = is_attended_key(keys_at[c]);
            }
            bool attended[ROWS * COLUMNS];
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                float maximum = -FLT_MAX;
                [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                    const uint at = r * COLUMNS + c;
                    attended[at] = mask_score(mask_rows[r], keys_at[c], scores[at]) && is_attended[c] &&
                                   step_key + c * LANES + lane < limits[r];
                    maximum = attended[at] ? max(maximum, scores[at]) : maximum;
                }
                shared_lanes[r * LANES + lane] = maximum;
            }
            barrier();
            float maxima[ROWS];
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                maxima[r] = row_max[r];
            }
            for (uint l = 0u; l < LANES; l++) {
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    maxima[r] = max(maxima[r], shared_lanes[r * LANES + l]);
                }
            }
            softmax_raise(maxima);

            /* Weights. */
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                [[unroll]] for (uint r = 0u; r < ROWS; r += 4u) {
                    vec4 weights;
                    [[unroll]] for (uint i = 0u; i < 4u; i++) {
                        const uint at = (r + i) * COLUMNS + c;
                        weights[i] = softmax_weight(r + i, scores[at], attended[at]);
                    }
                    shared_weights[((c * LANES + lane) * ROWS + r) / 4u] = weights;
                }
            }
            barrier();

            /* Sum over V: this lane's features of every row. */
            const bool masks = step_masks(step_key, limits[0]);
            for (uint key = 0u; key < STEP; key++) {
                const uint value_row = value_base + clamped_key(step_key + key, length) * push.value.row_stride;
                vec4 values[VALUE_VECTORS];
                [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                    values[v] = load_value(value_row, min(lane_feature(lane, v), last_value), v_head_dim());
                }
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    const float weight = shared_weights[(key * ROWS + r) / 4u][r % 4u];
                    [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                        const uint at = r * VALUE_VECTORS + v;
                        row_output[at] = softmax_add(weight, values[v], row_output[at], masks);
                    }
                }
            }
        }

        /* The lanes' sums join the rows'. */
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            shared_lanes[r * LANES + lane] = lane_sum[r];
            lane_sum[r] = 0.0;
        }
        barrier();
        for (uint l = 0u; l < LANES; l++) {
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                row_sum[r] += shared_lanes[r * LANES + l];
            }
        }
        barrier();
    }

    barrier();
    softmax_end(lane, first_row);
}
