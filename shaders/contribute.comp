/*
 * What a head adds to the layer's output, c = o_h W_O^h: |c| and <dL/dy, c> of each query row, the latter
 * its share of the gradient of the head's gate.
 *
 * Group (x, y, z): ROWS query rows from x * ROWS on, head y, batch z. Invocations run over columns, each
 * with all rows; the columns' sums are then added in ascending order of invocations, to those of
 * earlier dispatches over other columns.
 * Shared memory: 8 * ROWS * WORKGROUP bytes.
 * Barriers: one, when the invocations' sums are whole.
 * Trips: ceil(columns / WORKGROUP) * (1 + input_vectors) + WORKGROUP.
 * Source: Michel et al. 2019, "Are Sixteen Heads Really Better than One?", sec. 4.1.
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

#include "common.glsl"

layout(push_constant) uniform Push
{
    vkmha_contribute_push push;
};

layout(std430, binding = VKMHA_BIND_CONTRIBUTE_INPUT) readonly buffer InputVectors
{
    vec4 input_vectors[];
};
VKMHA_DECLARE_TENSOR(VKMHA_BIND_CONTRIBUTE_WEIGHT, readonly, Weight, weight)
layout(std430, binding = VKMHA_BIND_CONTRIBUTE_GRADIENT) readonly buffer GradientFloats
{
    float gradient_floats[];
};
layout(std430, binding = VKMHA_BIND_CONTRIBUTE_NORMS) buffer Norms
{
    float norms[];
};
layout(std430, binding = VKMHA_BIND_CONTRIBUTE_PRODUCTS) buffer Products
{
    float products[];
};
VKMHA_DECLARE_SEQUENCES

VKMHA_DEFINE_LOAD_VECTOR(weight, VKMHA_BIND_CONTRIBUTE_WEIGHT)

shared vec2 shared_sums[ROWS * WORKGROUP];

bool has_flag(uint flag)
{
    return (push.flags & flag) != 0u;
}

/* Row `row` of the tensor's sequence and head, its feature 0. */
uint tensor_row(vkmha_tensor_push tensor, uint row)
{
    return tensor.base + gl_WorkGroupID.z * tensor.batch_stride +
           gl_WorkGroupID.y * tensor.head_stride + row * tensor.row_stride;
}

/* Adds the invocations' sums of row i, which lie from shared_sums[first] on, to the target's. */
void write_sums(uint i, uint first, bool is_there)
{
    const uint place = gl_WorkGroupID.z * push.target.batch_stride +
                       gl_WorkGroupID.y * push.target.head_stride + i * push.target.row_stride;
    vec2 sums = vec2(0.0);
    if (!has_flag(VKMHA_FLAG_FIRST)) {
        sums.x = has_flag(VKMHA_FLAG_NORMS) ? norms[push.target.base + place] : 0.0;
        sums.y = has_flag(VKMHA_FLAG_PRODUCTS) ? products[push.products_base + place] : 0.0;
    }
    for (uint l = 0u; l < WORKGROUP; l++) {
        sums += is_there ? shared_sums[first + l] : vec2(0.0);
    }
    if (has_flag(VKMHA_FLAG_NORMS)) {
        norms[push.target.base + place] = has_flag(VKMHA_FLAG_LAST) ? sqrt(sums.x) : sums.x;
    }
    if (has_flag(VKMHA_FLAG_PRODUCTS)) {
        products[push.products_base + place] = sums.y;
    }
}

void main()
{
    const uint lane = gl_LocalInvocationID.x;
    const uint first_row = gl_WorkGroupID.x * ROWS;

    /* Rows of the sequence, and where they begin. */
    uint row_count = push.query_count;
    uint row_offset = 0u;
    if (has_flag(VKMHA_FLAG_PACKED)) {
        const ivec4 rows = sequences[2u * (push.sequences_base + gl_WorkGroupID.z) + 1u];
        const uint first = min(uint(max(rows.x, 0)), push.total_queries);
        const int there = min(rows.y, int(push.total_queries - first)) - int(push.first_query);
        row_count = uint(clamp(there, 0, int(row_count)));
        row_offset = min(first + push.first_query, push.total_queries - 1u);
    }

    uint inputs[ROWS];
    uint gradients[ROWS];
    float norm_sums[ROWS];
    float product_sums[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        const uint row = row_offset + min(first_row + r, max(row_count, 1u) - 1u);
        inputs[r] = tensor_row(push.source, row) / 4u;
        gradients[r] = tensor_row(push.gradient, row);
        norm_sums[r] = 0.0;
        product_sums[r] = 0.0;
    }

    for (uint n = lane; n < push.columns; n += WORKGROUP) {
#ifdef VKMHA_MUTANT_LAST_HEAD
        const uint head = gl_NumWorkGroups.y - 1u;
#else
        const uint head = gl_WorkGroupID.y;
#endif
        const uint weight_row = push.weight_base / 4u + n * push.depth_vectors + push.head_offset +
                                head * push.input_vectors;
        float added[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            added[r] = 0.0;
        }
        for (uint k = 0u; k < push.input_vectors; k++) {
            const vec4 weights = load_weight_vector(weight_row + k);
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                added[r] = dot_add(input_vectors[inputs[r] + k], weights, added[r]);
            }
        }
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            norm_sums[r] = fma(added[r], added[r], norm_sums[r]);
            if (has_flag(VKMHA_FLAG_PRODUCTS)) {
                product_sums[r] = fma(added[r], gradient_floats[gradients[r] + n], product_sums[r]);
            }
        }
    }

    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        shared_sums[r * WORKGROUP + lane] = vec2(norm_sums[r], product_sums[r]);
    }
    barrier();
    if (lane < ROWS && first_row + lane < push.query_count) {
        write_sums(first_row + lane, lane * WORKGROUP, first_row + lane < row_count);
    }
}
