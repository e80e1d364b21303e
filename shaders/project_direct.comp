/*
 * y = x W^T + b, packed columns: lanes over columns, registers over rows, both operands straight
 * from memory.
 *
 * Group (x, y): columns x * WORKGROUP * COLUMNS .., rows y * ROWS .. An invocation owns ROWS rows
 * times COLUMNS columns (a multiple of 4). The rows are the same for the whole workgroup, so their
 * loads are uniform. x runs over columns: a group's rows stay in cache from group to group.
 * Shared memory: none. Barriers: none. Trips: depth_vectors.
 * Each output is one chain of multiply-adds over ascending features.
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"
#include "project.glsl"

void main()
{
    const uint first_row = gl_WorkGroupID.y * ROWS;
    const uint first_column = (gl_WorkGroupID.x * WORKGROUP + gl_LocalInvocationID.x) * COLUMNS;

    uint input_rows[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        input_rows[r] = input_row(first_row + r);
    }
    uint weight_rows[COLUMNS];
    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
        weight_rows[c] = weight_row(first_column + c);
    }

    float sums[ROWS * COLUMNS];
    [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
        sums[i] = 0.0;
    }

    for (uint k = 0u; k < depth_vectors(); k++) {
        vec4 weights[COLUMNS];
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
            weights[c] = load_weight_vector(weight_rows[c] + k);
        }
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            const vec4 features = load_input(input_rows[r], 4u * k, push.depth);
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                sums[r * COLUMNS + c] = dot_add(features, weights[c], sums[r * COLUMNS + c]);
            }
        }
    }

    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        [[unroll]] for (uint c = 0u; c < COLUMNS; c += 4u) {
            const uint i = r * COLUMNS + c;
            write_columns(first_row + r, first_column + c,
                          vec4(sums[i], sums[i + 1u], sums[i + 2u], sums[i + 3u]));
        }
    }
}
