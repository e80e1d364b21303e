/*
 * What each invocation sees of its subgroup: the host finds out whether the operations can be
 * trusted.
 *
 * Group x: WORKGROUP invocations. Invocation n writes the VKMHA_SELFTEST_WORDS words that
 * interface.h lists, from word VKMHA_SELFTEST_WORDS * n. Shared memory: none. Barriers: none.
 * Trips: none.
 */
#version 450
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require

#include "common.glsl"

layout(std430, binding = 0) writeonly buffer Results
{
    uint results[];
};

void main()
{
    const uint lane = gl_SubgroupInvocationID;
    const uint width = gl_SubgroupSize;
    const uint self = gl_LocalInvocationID.x;
    const uint at = VKMHA_SELFTEST_WORDS * gl_GlobalInvocationID.x;

    results[at] = width;
    results[at + 1u] = lane;
    results[at + 2u] = gl_SubgroupID;
    results[at + 3u] = subgroupAdd(1u);
    results[at + 4u] = subgroupAdd(lane);
    results[at + 5u] = floatBitsToUint(subgroupAdd(float(self)));
    results[at + 6u] = floatBitsToUint(subgroupMax(-float(self)));
    results[at + 7u] = subgroupShuffle(self, 0u);
    results[at + 8u] = subgroupShuffle(self, width - 1u);
    results[at + 9u] = subgroupShuffle(self, lane ^ 1u);
    results[at + 10u] = subgroupShuffle(self, (lane + 1u) % width);
    results[at + 11u] = floatBitsToUint(subgroupShuffle(float(self), (lane + width / 2u) % width));
    results[at + 12u] = uint(subgroupAny(lane == width - 1u));
    results[at + 13u] = uint(subgroupAny(lane == width));
}
