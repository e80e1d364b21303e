/*
 * Copies rows of heads from one layout and type to another: keys and values of the past, new ones into
 * a cache, both into what is present, results of attention into an output of 16 bits; rotated by
 * position and with features paired where PLACE says. What is only copied keeps its bits, but for
 * the payload of a NaN of 16 bits.
 *
 * Group (x, y, z): invocations over [row, vec4 of target features] along x, head y, batch z. An
 * invocation writes four features.
 * Shared memory: none. Barriers: none. Trips: 8.
 */
#version 450

#include "common.glsl"

layout(push_constant) uniform Push
{
    vkmha_place_push push;
};

VKMHA_DECLARE_TENSOR(VKMHA_BIND_PLACE_SOURCE, readonly, Source, source)
VKMHA_DECLARE_TENSOR(VKMHA_BIND_PLACE_TARGET, , Target, target)

VKMHA_DECLARE_SEQUENCES
VKMHA_DECLARE_ROTATION

VKMHA_DEFINE_LOAD_BITS(source, VKMHA_BIND_PLACE_SOURCE)
VKMHA_DEFINE_STORE_BITS(target, VKMHA_BIND_PLACE_TARGET)

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
    const vec2 loaded = uintBitsToFloat(
        uvec2(load_source_bits(element + first), load_source_bits(element + second)));
    const vec2 turned = rotate(loaded, rotation_of(row, pair));
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
    const uint count = min(push.pitch - feature, 4u);
    uvec4 bits = uvec4(0u);
    for (uint i = 0u; i < count; i++) {
        const uint f = feature + i;
        if (f < push.features) {
            bits[i] = is_rotated && f < ROTATE
                          ? floatBitsToUint(rotated_feature(from, position_row, f))
                          : load_source_bits(from + source_feature(f));
        }
    }
    store_target_bits(to + feature, bits, count);
}
