/*
 * softmax(scale Q K^T + mask) V by the online softmax: query, key and value tiles go through workgroup-shared memory.
 *
 * Group (x, y, z): query rows x * TILE_ROWS .., head y, batch z. The workgroup is LANES invocations along keys (then features)
 * times WORKGROUP / LANES along rows; each owns ROWS rows (a multiple of 4) times COLUMNS keys of a step, then VALUE_VECTORS vec4 of
 * features. Tiles are staged in slices of SLICE vec4 of features; the softmax reduces, and the weights reach the lanes of
 * their rows, through shared memory. No subgroup operations.
 * Shared memory: 16 * (SLICE + 1) * (TILE_ROWS + STEP) + 4 * TILE_ROWS * (LANES + STEP) bytes.
 * Barriers: two a slice, before it is overwritten and when it is whole; two a step, when the lanes' maxima and when the weights are
 * whole; one a chunk, when the lanes' sums are whole; one before the state is written, which all lanes have read.
 * Trips: for each chunk of VKMHA_KEY_CHUNK keys: see FORMULAS.
 * Source: Milakov & Gimelshein 2018; Dao et al. 2022.
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"

const uint LANES = 32u / COLUMNS; /* a step of 32 keys */

#include "attention.glsl"
#include "softmax.glsl"

const uint TILE_ROWS = WORKGROUP / LANES * ROWS;
const uint SLICE = LANES; /* vec4 of features staged at a time: one a lane */
const uint PITCH = SLICE + 1u; /* odd, against bank conflicts */

shared vec4 shared_query[TILE_ROWS * PITCH];
shared vec4 shared_tile[STEP * PITCH]; /* of keys, then of values */
shared float shared_lanes[TILE_ROWS * LANES]; /* a lane's maximum or sum of a row */
shared vec4 shared_weights[STEP * TILE_ROWS / 4];

void main()
{
    const uint invocation = gl_LocalInvocationID.x;
    const uint lane = invocation % LANES;
    const uint row_lane = invocation / LANES;
    const uint tile_row = row_lane * ROWS; /* this lane's first row in the tile */
    const uint tile_first = gl_WorkGroupID.x * TILE_ROWS;
    const uint first_row = tile_first + tile_row;
    const uint length = sequence_length();
    const uint key_base = tensor_head(push.key, key_head());
    const uint value_base = tensor_head(push.value, key_head());
    const uint query_base = tensor_head(push.query, gl_WorkGroupID.y);
    const uint head_vectors = ceil_div(head_dim(), 4u);
    const uint value_vectors = ceil_div(v_head_dim(), 4u);

    uint mask_rows[ROWS];
    uint limits[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint i = clamped_row(first_row + r);
        mask_rows[r] = mask_row(i);
        limits[r] = visible_keys(i, length);
    }
    softmax_begin(lane, first_row);

    const uint end = min(push.key_end, visible_keys(clamped_row(tile_first + TILE_ROWS - 1u), length));
    for (uint chunk = push.key_begin; chunk < end; chunk += VKMHA_KEY_CHUNK) {
        const uint chunk_end = min(chunk + VKMHA_KEY_CHUNK, end);
        for (uint step_key = chunk; step_key < chunk_end; step_key += STEP) {
            /* Score: this lane's keys with its rows. */
            float scores[ROWS * COLUMNS];
            [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
                scores[i] = 0.0;
            }
            for (uint slice = 0u; slice < head_vectors; slice += SLICE) {
                const uint staged = slice + lane;
                const bool is_feature = staged < head_vectors;
                const uint feature = 4u * min(staged, head_vectors - 1u);
                barrier();
                for (uint row = row_lane; row < TILE_ROWS; row += WORKGROUP / LANES) {
                    const vec4 query = load_query(query_base + clamped_row(tile_first + row) * push.query.row_stride, feature, head_dim());
                    shared_query[row * PITCH + lane] = is_feature ? query : vec4(0.0);
                }
                for (uint key = row_lane; key < STEP; key += WORKGROUP / LANES) {
                    const vec4 loaded = load_key(key_base + clamped_key(step_key + key, length) * push.key.row_stride, feature, head_dim());
                    shared_tile[key * PITCH + lane] = is_feature ? loaded : vec4(0.0);
                }
                barrier();
                const uint slice_vectors = min(SLICE, head_vectors - slice);
                for (uint k = 0u; k < slice_vectors; k++) {
                    vec4 keys[COLUMNS];
                    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                        keys[c] = shared_tile[(c * LANES + lane) * PITCH + k];
                    }
                    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                        const vec4 query = shared_query[(tile_row + r) * PITCH + k];
                        [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                            scores[r * COLUMNS + c] = dot_add(query, keys[c], scores[r * COLUMNS + c]);
                        }
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
                shared_lanes[(tile_row + r) * LANES + lane] = maximum;
            }
            barrier();
            float maxima[ROWS];
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                maxima[r] = row_max[r];
            }
            for (uint l = 0u; l < LANES; l++) {
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    maxima[r] = max(maxima[r], shared_lanes[(tile_row + r) * LANES + l]);
                }
            }
            softmax_raise(maxima);

            /* Weights; the barrier that makes them whole is that of the first slice of values. */
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                [[unroll]] for (uint r = 0u; r < ROWS; r += 4u) {
                    vec4 weights;
                    [[unroll]] for (uint i = 0u; i < 4u; i++) {
                        const uint at = (r + i) * COLUMNS + c;
                        weights[i] = softmax_weight(r + i, scores[at], attended[at]);
                    }
                    shared_weights[((c * LANES + lane) * TILE_ROWS + tile_row + r) / 4u] = weights;
                }
            }

            /* Sum over V: this lane's features of its rows. */
            const bool masks = step_masks(step_key, limits[0]);
            [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                const uint feature = 4u * min(v * LANES + lane, value_vectors - 1u);
                barrier();
                for (uint key = row_lane; key < STEP; key += WORKGROUP / LANES) {
                    shared_tile[key * PITCH + lane] = load_value(value_base + clamped_key(step_key + key, length) * push.value.row_stride, feature, v_head_dim());
                }
                barrier();
                for (uint key = 0u; key < STEP; key++) {
                    const vec4 value = shared_tile[key * PITCH + lane];
                    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                        const float weight = shared_weights[(key * TILE_ROWS + tile_row + r) / 4u][r % 4u];
                        const uint at = r * VALUE_VECTORS + v;
                        row_output[at] = softmax_add(weight, value, row_output[at], masks);
                    }
                }
            }
        }

        /* The lanes' sums join the rows'. */
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            shared_lanes[(tile_row + r) * LANES + lane] = lane_sum[r];
            lane_sum[r] = 0.0;
        }
        barrier();
        for (uint l = 0u; l < LANES; l++) {
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                row_sum[r] += shared_lanes[(tile_row + r) * LANES + l];
            }
        }
    }

    barrier();
    softmax_end(lane, first_row);
}
