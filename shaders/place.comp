/*
 * Copies rows of heads from one layout to another: keys and values of the past, new ones into a
 * cache, both into what is present; rotated by position and with features paired where PLACE says.
 *
 * Group (x, y, z): invocations over [row, vec4 of target features] along x, head y, batch z. An
 * invocation writes four features.
 * Shared memory: none. Barriers: none. Trips: 4.
 */
#version 450

#include "common.glsl"

layout(push_constant) uniform Push
{
    vkmha_place_push push;
};

layout(std430, binding = VKMHA_BIND_PLACE_SOURCE) readonly buffer Source
{
    float source[];
};
layout(std430, binding = VKMHA_BIND_PLACE_TARGET) writeonly buffer Target
{
    float target[];
};

VKMHA_DECLARE_SEQUENCES
VKMHA_DECLARE_ROTATION

bool has(uint bits)
{
    return (PLACE & bits) != 0u;
}

/* The source feature that target feature f is: vkmha_paired_feature and its inverse. */
uint source_feature(uint f)
{
    const uint half_count = ROTATE / 2u;
    if (f >= ROTATE) {
        return f;
    }
    if (has(VKMHA_PLACE_PAIR)) {
        return (f & 1u) * half_count + f / 2u;
    }
    if (has(VKMHA_PLACE_UNPAIR)) {
        return f < half_count ? 2u * f : 2u * (f - half_count) + 1u;
    }
    return f;
}

/* Feature f of the row, rotated together with its partner. */
float rotated_feature(uint element, uint row, uint f)
{
    const uint half_count = ROTATE / 2u;
    const bool is_half = has(VKMHA_PLACE_ROTATE_HALF);
    const uint pair = is_half ? f % half_count : f / 2u;
    const uint first = is_half ? pair : 2u * pair;
    const uint second = is_half ? pair + half_count : 2u * pair + 1u;
    const vec2 turned =
        rotate(vec2(source[element + first], source[element + second]), rotation_of(row, pair));
    return f == first ? turned.x : turned.y;
}

void main()
{
    const uint vectors = push.pitch / 4u + uint(push.pitch % 4u != 0u);
    const uint row = gl_GlobalInvocationID.x / vectors;
    const uint feature = gl_GlobalInvocationID.x % vectors * 4u;
    if (row >= push.rows) {
        return;
    }
    const uint batch = gl_WorkGroupID.z;
    const uint head = gl_WorkGroupID.y;
    uint target_row = row;
    if (has(VKMHA_PLACE_APPEND)) {
        const int room = int(push.target.head_stride / push.target.row_stride) - int(push.new_rows);
        target_row += uint(clamp(sequences[2u * (push.sequences_base + batch)].w, 0, room));
    }
    const uint from = push.source.base + batch * push.source.batch_stride +
                      head * push.source.head_stride + row * push.source.row_stride;
    const uint to = push.target.base + batch * push.target.batch_stride +
                    head * push.target.head_stride + target_row * push.target.row_stride;
    const bool is_rotated =
        has(VKMHA_PLACE_ROTATE_INTERLEAVED | VKMHA_PLACE_ROTATE_HALF);
    const uint position_row = push.positions_base + batch * push.positions_batch_stride + row;
    for (uint f = feature; f < min(feature + 4u, push.pitch); f++) {
        float value = 0.0;
        if (f < push.features) {
            value = is_rotated && f < ROTATE ? rotated_feature(from, position_row, f)
                                             : source[from + source_feature(f)];
        }
        target[to + f] = value;
    }
}
