/*
 * The device's rate of fp32 multiply-adds, for comparison: 16 independent chains an invocation,
 * 1000 trips, nothing else. Group x: 64 invocations. Each writes one float to
 * results[gl_GlobalInvocationID.x], so that no chain is dead; the factor depends on the invocation,
 * so that none is known when compiling.
 * Multiply-adds: 16,000 an invocation. Shared memory: none. Barriers: none. Trips: 1000.
 */
#version 450
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = 64) in;

layout(std430, binding = 0) writeonly buffer Results
{
    float results[];
};

void main()
{
    const float factor = 0.5 + float(gl_LocalInvocationID.x) / 256.0;
    float chains[16];
    [[unroll]] for (uint i = 0u; i < 16u; i++) {
        chains[i] = float(gl_WorkGroupID.x + i);
    }
    for (uint trip = 0u; trip < 1000u; trip++) {
        [[unroll]] for (uint i = 0u; i < 16u; i++) {
            chains[i] = fma(chains[i], factor, 1.0);
        }
    }
    float sum = 0.0;
    [[unroll]] for (uint i = 0u; i < 16u; i++) {
        sum += chains[i];
    }
    results[gl_GlobalInvocationID.x] = sum;
}
