/*
 * What is told of each row: its log-sum-exp, or its statistics, of which attention left all but the
 * weights of five keys.
 *
 * Group (x, y, z): query rows x * WORKGROUP .., one an invocation; head y, batch z.
 * Shared memory: none. Barriers: none. Trips: 5 * ceil(head_dim / 4).
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"

const uint LANES = 1u;
const uint TILE_ROWS = WORKGROUP;

#include "attention.glsl"

/* The weight of a key that may not be there, or not be attended. */
float key_weight(uint at, int key)
{
    if (key < 0 || uint(key) >= length) {
        return 0.0;
    }
    score_from_memory(0u, uint(key));
    mask_scores(0u, uint(key));
    return attended[0] ? softmax_exp(scores[0], state[at]) / state[at + 1u] : 0.0;
}

void main()
{
    const uint i = row_tile() * TILE_ROWS + gl_LocalInvocationID.x;
    if (i >= push.query_count) {
        return;
    }
    begin_sequence();
    begin_block(i);
    const uint at = told_row(i);
    const float sum = state[at + 1u];
    const uint result =
        tensor_head(push.result, gl_WorkGroupID.y) + i * push.result.row_stride;
    if (tell() == VKMHA_TELL_LSE) {
        /* -Inf is written by its bits. */
        result_words[result] =
            sum != 0.0 ? floatBitsToUint(state[at] + log(sum)) : MINUS_INFINITY;
        return;
    }
    const int p = row_positions[0];
    const bool has_row = i < row_count;
    result_floats[result] = state[at + 2u];
    result_floats[result + 1u] = state[at + 4u];
    result_floats[result + 2u] = state[at + 3u];
    result_floats[result + 3u] = has_row ? key_weight(at, p - 1) : 0.0;
    result_floats[result + 4u] = has_row ? key_weight(at, p) : 0.0;
    result_floats[result + 5u] = has_row ? key_weight(at, p + 1) : 0.0;
    result_floats[result + 6u] = has_row ? key_weight(at, int(first_key)) : 0.0;
    result_floats[result + 7u] = has_row ? key_weight(at, int(length) - 1) : 0.0;
}
