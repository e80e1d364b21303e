/*
 * What the kernels share: specialization constants, the multiply-add that every sum uses, guarded
 * loads. Asks for no extension; a kernel declares its own.
 */
#include "interface.h"

layout(local_size_x_id = 0) in;

VKMHA_CONSTANTS(VKMHA_DECLARE_CONSTANT)

#define FLT_MAX 3.402823466e+38

uint ceil_div(uint a, uint b)
{
    return (a + b - 1u) / b;
}

/*
 * fma() by name, not by contraction: a row's bits must not depend on which code path its neighbours
 * take.
 */
float multiply_add(float a, float b, float sum)
{
#ifdef VKMHA_MUTANT_HALF_SUM
    return unpackHalf2x16(packHalf2x16(vec2(fma(a, b, sum), 0.0))).x;
#else
    return fma(a, b, sum);
#endif
}

vec4 multiply_add(float a, vec4 b, vec4 sum)
{
    return vec4(multiply_add(a, b.x, sum.x), multiply_add(a, b.y, sum.y),
                multiply_add(a, b.z, sum.z), multiply_add(a, b.w, sum.w));
}

float dot_add(vec4 a, vec4 b, float sum)
{
    sum = multiply_add(a.x, b.x, sum);
    sum = multiply_add(a.y, b.y, sum);
    sum = multiply_add(a.z, b.z, sum);
    return multiply_add(a.w, b.w, sum);
}

/*
 * Defines name(row, feature, count): features feature..feature+3 of the `count` that start at
 * element `row` of a buffer seen both as floats and as vec4. With is_vector, row and feature are
 * multiples of 4 and the padding up to a multiple of 4 is zero in memory; else features at or past
 * count read as 0 and are never touched.
 */
#define VKMHA_DEFINE_LOAD(name, floats, vectors, is_vector)                                        \
    vec4 name(uint row, uint feature, uint count)                                                  \
    {                                                                                              \
        if (is_vector != 0u) {                                                                     \
            return vectors[(row + feature) >> 2];                                                  \
        }                                                                                          \
        const uvec4 features = feature + uvec4(0u, 1u, 2u, 3u);                                    \
        const uvec4 clamped = row + min(features, uvec4(count - 1u));                              \
        const vec4 loaded = vec4(floats[clamped.x], floats[clamped.y], floats[clamped.z],          \
                                 floats[clamped.w]);                                               \
        return mix(vec4(0.0), loaded, lessThan(features, uvec4(count)));                           \
    }

/* What stands of a sequence number in the uniform array; the includer declares `sequences`. */
#define VKMHA_DECLARE_SEQUENCES                                                                    \
    layout(binding = VKMHA_BIND_SEQUENCES) uniform Sequences                                       \
    {                                                                                              \
        ivec4 sequences[2 * VKMHA_MAX_UNIFORM_SEQUENCES];                                          \
    };

/* Position and rotation of rows; the includer asks only where ROTATE is not 0. */
#define VKMHA_DECLARE_ROTATION                                                                     \
    layout(std430, binding = VKMHA_BIND_ROTATION) readonly buffer Rotation                         \
    {                                                                                              \
        vec2 rotation[];                                                                           \
    };                                                                                             \
    layout(std430, binding = VKMHA_BIND_POSITIONS) readonly buffer Positions                       \
    {                                                                                              \
        int positions[];                                                                           \
    };                                                                                             \
    /* Cosine and sine of pair `pair` at the position of row `row`, cut at the table's ends. */    \
    vec2 rotation_of(uint row, uint pair)                                                          \
    {                                                                                              \
        const uint pairs = ROTATE / 2u;                                                            \
        const int last = rotation.length() / int(pairs) - 1;                                       \
        return rotation[uint(clamp(positions[row], 0, last)) * pairs + pair];                      \
    }

/* (a cos - b sin, b cos + a sin), alike wherever it stands. */
vec2 rotate(vec2 pair, vec2 turn)
{
#ifdef VKMHA_MUTANT_ROTATE_BACK
    turn.y = -turn.y;
#endif
    precise const float first = fma(pair.x, turn.x, -(pair.y * turn.y));
    precise const float second = fma(pair.y, turn.x, pair.x * turn.y);
    return vec2(first, second);
}
