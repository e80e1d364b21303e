/*
 * softmax(scale Q K^T + mask) V by the online softmax: a subgroup owns ROWS query rows.
 *
 * Group (x, y, z): query tile x, head y, batch z. Subgroup s of it owns the rows from (x *
 * WORKGROUP / SUBGROUP_WIDTH + s) * ROWS on. In a step of STEP keys, lanes run over keys for Q K^T,
 * straight from memory; the softmax reduces by subgroup operations; then lanes run over features
 * for the sum over V, and each weight comes by shuffle from the lane that made it.
 * Shared memory: none.
 * Barriers: none among the keys; one of the subgroup before the state is written, which all its
 * lanes have read.
 * Trips: a chunk of VKMHA_KEY_CHUNK keys takes 1 + chunk / STEP * (1 + ceil(head_dim / 4) + LANES).
 * Where features are stored one by one, 4 * ROWS * VALUE_VECTORS more a chunk.
 * Source: Milakov & Gimelshein 2018 (online softmax); Dao et al. 2022 (tiling).
 */
#version 450
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "common.glsl"

const uint LANES = SUBGROUP_WIDTH;
const uint TILE_ROWS = WORKGROUP / LANES * ROWS;

#include "attention.glsl"
#include "softmax.glsl"

void main()
{
    const uint lane = gl_SubgroupInvocationID;
    /* With one subgroup a workgroup the rows are uniform, which CPU drivers see. */
    uint block = row_tile();
    if (WORKGROUP != LANES) {
        block = block * (WORKGROUP / LANES) + gl_SubgroupID;
    }
    const uint first_row = block * ROWS;
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
                maxima[r] = max(row_max[r], subgroupMax(maxima[r]));
            }
            softmax_raise();
            float weights[ROWS * COLUMNS];
            [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
                const uint c = i % COLUMNS;
                weights[i] = softmax_weight(i / COLUMNS, c, step_key + c * LANES + lane);
            }

            /* Sum over V: this lane's features of every row. */
            const bool masks = step_masks(step_key);
            for (uint l = 0u; l < LANES; l++) {
                [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                    const uint key = clamped_key(step_key + c * LANES + l);
                    const uint value_row = value_base + key * push.value.row_stride;
                    vec4 values[VALUE_VECTORS];
                    [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                        const uint feature = min(lane_feature(lane, v), last_feature);
                        values[v] = load_value(value_row, feature, v_head_dim());
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

        /* The lanes' sums make the rows'. */
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            row_sum[r] = subgroupAdd(lane_sum[r]);
            if (HAS_STATISTICS) {
                row_logs[r] = subgroupAdd(lane_logs[r]);
                row_distances[r] = subgroupAdd(lane_distances[r]);
            }
        }

        softmax_join_memory(lane, first_row, goes_on);
        goes_on = true;
        chunk += VKMHA_KEY_CHUNK;
        if (chunk >= keys.y) {
            softmax_finish(lane);
        }
        softmax_keep(lane, first_row);
    } while (chunk < keys.y);

    subgroupBarrier();
    softmax_keep_state(lane, first_row);
}
