/*
 * Joins the chunks of keys key_begin..key_end-1 that attention with CLASS_SPLIT left apart: states in
 * the buffer of values, outputs not normalised in that of keys, which push.key describes as rows of
 * state_row.
 *
 * Group (x, y, z): query rows x * ROWS .., head y, batch z, as in the dispatch before. Lanes run over
 * features. The chunks are joined in ascending order by the formula that a workgroup uses which
 * sees them all, so the bits are the same.
 * Shared memory: none. Barriers: none. Trips: chunks + ceil(head_dim / 4).
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"

const uint LANES = WORKGROUP;
const uint TILE_ROWS = ROWS;

#include "attention.glsl"
#include "softmax.glsl"

void main()
{
    const uint lane = gl_LocalInvocationID.x;
    const uint first_row = row_tile() * TILE_ROWS;
    vec4 joined[ROWS * VALUE_VECTORS];
    begin_sequence();
    begin_block(first_row);
    softmax_begin(first_row);
    softmax_clear();
    [[unroll]] for (uint i = 0u; i < ROWS * VALUE_VECTORS; i++) {
        joined[i] = vec4(0.0);
    }
    const uint num_chunks = ceil_div(push.key_end - push.key_begin, VKMHA_KEY_CHUNK);
    for (uint chunk = 0u; chunk < num_chunks; chunk++) {
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const uint row = state_row(chunk, min(first_row + r, push.query_count - 1u));
            row_max[r] = value_floats[STATE_FLOATS * row];
            row_sum[r] = value_floats[STATE_FLOATS * row + 1u];
            if (HAS_STATISTICS) {
                row_logs[r] = value_floats[STATE_FLOATS * row + 2u];
                row_distances[r] = value_floats[STATE_FLOATS * row + 3u];
            }
            const vec2 factors = softmax_join(r);
            [[unroll]] for (uint v = 0u; v < VALUE_VECTORS; v++) {
                const uint feature = min(lane_feature(lane, v), 4u * (ceil_div(v_head_dim(), 4u) - 1u));
                const vec4 part = key_vectors[(push.key.base + row * push.key.row_stride + feature) / 4u];
                const uint at = r * VALUE_VECTORS + v;
                joined[at] = multiply_add(factors.x, joined[at], part * factors.y);
            }
        }
    }
    [[unroll]] for (uint i = 0u; i < ROWS * VALUE_VECTORS; i++) {
        row_output[i] = joined[i];
    }
    softmax_finish(lane);
    softmax_keep(lane, first_row);
    softmax_keep_state(lane, first_row);
}
