/*
 * y = x W^T + b, packed columns: tiles of both operands go through workgroup-shared memory.
 *
 * Group (x, y): columns x * TILE_COLUMNS .., rows y * TILE_ROWS .. The workgroup is LANES
 * invocations along columns times WORKGROUP / LANES along rows; each owns ROWS rows times COLUMNS
 * columns (a multiple of 4).
 * Shared memory: 16 * (SLICE + 1) * (TILE_ROWS + TILE_COLUMNS) bytes.
 * Barriers: two a slice; the first so that no lane still reads the slice before, the second so that
 * the new one is whole.
 * Trips: ceil(depth_vectors / SLICE) * (1 + SLICE * (1 + (TILE_ROWS + TILE_COLUMNS) / WORKGROUP)).
 * Each output is one chain of multiply-adds over ascending features; the padding of the last slice
 * adds zeros.
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"
#include "project.glsl"

const uint LANES = 8u;
const uint SLICE = 8u; /* vec4 of features staged at a time */
const uint PITCH = SLICE + 1u; /* odd, against bank conflicts */
const uint TILE_ROWS = WORKGROUP / LANES * ROWS;
const uint TILE_COLUMNS = LANES * COLUMNS;

shared vec4 shared_input[TILE_ROWS * PITCH];
shared vec4 shared_weight[TILE_COLUMNS * PITCH];

void main()
{
    const uint lane = gl_LocalInvocationID.x;
    const uint column_lane = lane % LANES;
    const uint row_lane = lane / LANES;
    const uint tile_row = gl_WorkGroupID.y * TILE_ROWS;
    const uint tile_column = gl_WorkGroupID.x * TILE_COLUMNS;

    float sums[ROWS * COLUMNS];
    [[unroll]] for (uint i = 0u; i < ROWS * COLUMNS; i++) {
        sums[i] = 0.0;
    }

    for (uint slice = 0u; slice < depth_vectors(); slice += SLICE) {
        barrier();
        for (uint i = lane; i < TILE_ROWS * SLICE; i += WORKGROUP) {
            const uint k = slice + i % SLICE;
            const vec4 features = load_input(input_row(tile_row + i / SLICE),
                                             4u * min(k, depth_vectors() - 1u), push.depth);
            shared_input[i / SLICE * PITCH + i % SLICE] =
                k < depth_vectors() ? features : vec4(0.0);
        }
        for (uint i = lane; i < TILE_COLUMNS * SLICE; i += WORKGROUP) {
            const uint k = slice + i % SLICE;
            const vec4 weights = load_weight_vector(weight_row(tile_column + i / SLICE) +
                                                    min(k, depth_vectors() - 1u));
            shared_weight[i / SLICE * PITCH + i % SLICE] =
                k < depth_vectors() ? weights : vec4(0.0);
        }
        barrier();
        for (uint k = 0u; k < SLICE; k++) {
            vec4 weights[COLUMNS];
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                weights[c] = shared_weight[(column_lane * COLUMNS + c) * PITCH + k];
            }
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                const vec4 features = shared_input[(row_lane * ROWS + r) * PITCH + k];
                [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
                    sums[r * COLUMNS + c] = dot_add(features, weights[c], sums[r * COLUMNS + c]);
                }
            }
        }
    }

    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        [[unroll]] for (uint c = 0u; c < COLUMNS; c += 4u) {
            const uint i = r * COLUMNS + c;
            write_columns(tile_row + row_lane * ROWS + r, tile_column + column_lane * COLUMNS + c,
                          vec4(sums[i], sums[i + 1u], sums[i + 2u], sums[i + 3u]));
        }
    }
}
