/*
 * softmax(scale Q K^T + mask) V by the online softmax: a workgroup owns ROWS query rows (a multiple
 * of 4).
 *
 * Group (x, y, z): query rows x * ROWS .., head y, batch z. In a step of STEP keys, lanes run over
 * keys for Q K^T, straight from memory; the softmax reduces, and the weights reach all lanes,
 * through shared memory; then lanes run over features for the sum over V. No subgroup operations.
 * Shared memory: 4 * ROWS * WORKGROUP * (1 + COLUMNS) bytes.
 * Barriers: two a step: the lanes' maxima are whole, and nobody reads the last step's weights any
 * more; the weights are whole, and nobody reads the maxima any more. Two a chunk (with statistics
 * six), when the lanes' sums are whole and when they are read. One before the state is written,
 * which all lanes have read.
 * Trips: a chunk of VKMHA_KEY_CHUNK keys takes 1 + 3 * LANES + chunk / STEP * (1 + ceil(head_dim / 4) +
 * LANES + STEP).
 * Where features are stored one by one, 4 * ROWS * VALUE_VECTORS more a chunk.
 * Source: Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022 (tiling).
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"

const uint LANES = WORKGROUP;
const uint TILE_ROWS = ROWS;

#include "attention.glsl"
#include "softmax.glsl"

shared float shared_lanes[ROWS * LANES]; /* a lane's maximum or sum of a row */
shared vec4 shared_weights[STEP * ROWS / 4];

/* Adds the lanes' parts of each row, which lie from shared_lanes[first] on. */
void sum_lanes(uint lane, uint first, float parts[ROWS], inout float sums[ROWS])
{
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        shared_lanes[first + r * LANES + lane] = parts[r];
    }
    barrier();
    for (uint l = 0u; l < LANES; l++) {
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            sums[r] += shared_lanes[first + r * LANES + l];
        }
    }
    barrier();
}

void main()
{
    const uint lane = gl_LocalInvocationID.x;
    const uint first_row = row_tile() * TILE_ROWS;
    const uint last_feature = 4u * (ceil_div(v_head_dim(), 4u) - 1u);
    begin_sequence();
    begin_block(first_row);
    softmax_begin(first_row);

    const uvec2 keys = workgroup_keys(uvec2(firsts[0], limits[ROWS - 1u]));
    uint chunk = chunk_of(keys.x);
    bool goes_on = !has_flag(VKMHA_FLAG_FIRST);
    do {
        softmax_clear();
        const uint chunk_end = min(chunk + VKMHA_KEY_CHUNK, keys.y);
        for (uint step_key = max(chunk, keys.x); step_key < chunk_end; step_key += STEP) {
            /* Score and mask: this lane's keys with every row. */
            score_from_memory(lane, step_key);
            mask_scores(lane, step_key);

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
                    shared_weights[((c * LANES + lane) * ROWS + r) / 4u] = softmax_weights(r, c, step_key + c * LANES + lane);
                }
            }
            barrier();

            /* Sum over V: this lane's features of every row. */
            const bool masks = step_masks(step_key);
            for (uint key = 0u; key < STEP; key++) {
                const uint value_row =
                    value_base + clamped_key(step_key + key) * push.value.row_stride;
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

        /* The lanes' sums make the rows'. */
        sum_lanes(lane, 0u, lane_sum, row_sum);
        if (HAS_STATISTICS) {
            sum_lanes(lane, 0u, lane_logs, row_logs);
            sum_lanes(lane, 0u, lane_distances, row_distances);
        }

        softmax_join_memory(lane, first_row, goes_on);
        goes_on = true;
        chunk += VKMHA_KEY_CHUNK;
        if (chunk >= keys.y) {
            softmax_finish(lane);
        }
        softmax_keep(lane, first_row);
    } while (chunk < keys.y);

    barrier();
    softmax_keep_state(lane, first_row);
}
