/*
 * softmax(scale Q K^T + mask) V by the online softmax: a subgroup owns ROWS query rows.
 *
 * Group (x, y, z): query tile x, head y, batch z. Subgroup s of it owns rows (x * WORKGROUP / SUBGROUP_WIDTH + s) * ROWS ..
 * In a step of STEP keys, lanes run over keys for Q K^T, straight from memory; the softmax reduces by subgroup operations;
 * then lanes run over features for the sum over V, and each weight comes by shuffle from the lane that made it.
 * Shared memory: none. Barriers: none among the keys; one of the subgroup before the state is written, which all lanes have read.
 * Trips: for each chunk of VKMHA_KEY_CHUNK keys: 1 + chunk / STEP * (1 + ceil(head_dim / 4) + LANES).
 * Source: Milakov & Gimelshein 2018; Dao et al. 2022.
 */
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "common.glsl"

const uint LANES = SUBGROUP_WIDTH;

#include "attention.glsl"
#include "softmax.glsl"

void main()
{
    const uint lane = gl_SubgroupInvocationID;
    uint block = gl_WorkGroupID.x;
    if (WORKGROUP != LANES) {
        block = block * (WORKGROUP / LANES) + gl_SubgroupID;
    }
    const uint first_row = block * ROWS;
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
            float maxima[ROWS];
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                float maximum = -FLT_MAX;
                [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                    const uint at = r * COLUMNS + c;
                    attended[at] = mask_score(mask_rows[r], keys_at[c], scores[at]) && is_attended[c] &&
                                   step_key + c * LANES + lane < limits[r];
                    maximum = attended[at] ? max(maximum, scores[at]) : maximum;
                }
                maxima[r] = max(row_max[r], subgroupMax(maximum));
            }
            softmax_raise(maxima);

            float weights[ROWS * COLUMNS];
            [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
                weights[i] = softmax_weight(i / COLUMNS, scores[i], attended[i]);
            }

            /* Sum over V: this lane's features of every row. */
            const bool masks = step_masks(step_key, limits[0]);
            for (uint l = 0u; l < LANES; l++) {
                [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                    const uint j = clamped_key(step_key + c * LANES + l, length);
                    const uint value_row = value_base + j * push.value.row_stride;
                    vec4 values[VALUE_VECTORS];
                    [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                        values[v] = load_value(value_row, min(lane_feature(lane, v), last_value), v_head_dim());
                    }
                    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                        const float weight = subgroupShuffle(weights[r * COLUMNS + c], l);
                        [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                            const uint at = r * VALUE_VECTORS + v;
                            row_output[at] = softmax_add(weight, values[v], row_output[at], masks);
                        }
                    }
                }
            }
        }
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            row_sum[r] += subgroupAdd(lane_sum[r]);
            lane_sum[r] = 0.0;
        }
    }

    subgroupBarrier();
    softmax_end(lane, first_row);
}
