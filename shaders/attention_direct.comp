/*
 * softmax(scale Q K^T + mask) V by the online softmax: a workgroup owns ROWS query rows (a multiple
 * of 4).
 *
 * Group (x, y, z): query rows x * ROWS .., head y, batch z. In a step of STEP keys, lanes run over
 * keys for Q K^T, straight from memory; the softmax reduces, and the weights reach all lanes,
 * through shared memory; then lanes run over features for the sum over V. No subgroup operations.
 * Shared memory: 4 * ROWS * WORKGROUP * (1 + COLUMNS) bytes.
 * Barriers: two a step: the lanes' maxima are whole, and nobody reads the last step's weights any
 * more; the weights are whole, and nobody reads the maxima any more. Two a chunk, when the lanes'
 * sums are whole and when they are read. One before the state is written, which all lanes have
 * read.
 * Trips: a chunk of VKMHA_KEY_CHUNK keys takes 1 + LANES + chunk / STEP * (1 + ceil(head_dim / 4) +
 * LANES + STEP).
 * Source: Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022 (tiling).
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
    const uint value_base = tensor_head(push.value, key_head());
    const uint last_feature = 4u * (ceil_div(v_head_dim(), 4u) - 1u);
    begin_block(first_row, length);
    softmax_begin(lane, first_row);

    const uint end = min(push.key_end, limits[ROWS - 1u]);
    for (uint chunk = push.key_begin; chunk < end; chunk += VKMHA_KEY_CHUNK) {
        const uint chunk_end = min(chunk + VKMHA_KEY_CHUNK, end);
        for (uint step_key = chunk; step_key < chunk_end; step_key += STEP) {
            /* Score and mask: this lane's keys with every row. */
            score_from_memory(lane, step_key, length);
            mask_scores(lane, step_key, length);

            /* Rescale to the new maxima, and weigh. */
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                shared_lanes[r * LANES + lane] = maxima[r];
                maxima[r] = row_max[r];
            }
            barrier();
            for (uint l = 0u; l < LANES; l++) {
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    maxima[r] = max(maxima[r], shared_lanes[r * LANES + l]);
                }
            }
            softmax_raise();
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                [[unroll]] for (uint r = 0u; r < ROWS; r += 4u) {
                    shared_weights[((c * LANES + lane) * ROWS + r) / 4u] = softmax_weights(r, c);
                }
            }
            barrier();

            /* Sum over V: this lane's features of every row. */
            const bool masks = step_masks(step_key);
            for (uint key = 0u; key < STEP; key++) {
                const uint value_row =
                    value_base + clamped_key(step_key + key, length) * push.value.row_stride;
                vec4 values[VALUE_VECTORS];
                [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                    const uint feature = min(lane_feature(lane, v), last_feature);
                    values[v] = load_value(value_row, feature, v_head_dim());
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
