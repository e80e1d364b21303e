/*
 * What the kernels share: specialization constants, the multiply-add that every sum uses, types of
 * storage, guarded loads and stores. Asks for no extension; a kernel declares its own.
 */
#include "interface.h"

layout(local_size_x_id = 0) in;

VKMHA_CONSTANTS(VKMHA_DECLARE_CONSTANT)

#define FLT_MAX 3.402823466e+38

/* -Inf is told, and written, by its bits: Vulkan need not preserve it. */
const uint MINUS_INFINITY = 0xff800000u;

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

/* ---- Types of storage ---- */

/* vkmha_type in C. */
const uint TYPE_F32 = 0u;
const uint TYPE_F16 = 1u;
const uint TYPE_BF16 = 2u;

#define VKMHA_TYPE_OF(binding) (TYPES >> 2 * (binding) & uint(VKMHA_TYPE_MASK))

/*
 * The bits of the fp32 number that 16 bits mean, exactly. By integers: unpackHalf2x16 may flush what
 * is denormal.
 */
uint half_to_bits(uint bits)
{
    const uint magnitude = bits & 0x7fffu;
    const uint exponent = magnitude >> 10;
    const uint tiny = floatBitsToUint(float(magnitude) * 5.9604644775390625e-8); /* 2^-24 */
    const uint normal = (magnitude << 13) + (exponent == 31u ? 224u << 23 : 112u << 23);
    return (bits & 0x8000u) << 16 | (exponent == 0u ? tiny : normal);
}

uint short_to_bits(uint bits, uint type)
{
    return type == TYPE_BF16 ? bits << 16 : half_to_bits(bits);
}

float half_to_float(uint bits)
{
    return uintBitsToFloat(half_to_bits(bits));
}

/* The four elements of two words. */
vec4 shorts_to_floats(uvec2 pair, uint type)
{
    return uintBitsToFloat(uvec4(short_to_bits(pair.x & 0xffffu, type), short_to_bits(pair.x >> 16, type),
                                 short_to_bits(pair.y & 0xffffu, type), short_to_bits(pair.y >> 16, type)));
}

/* value / 2^shift, 0 < shift < 32, to the nearest integer, to the even one of two. */
uint shift_to_nearest(uint value, uint shift)
{
#ifdef VKMHA_MUTANT_TRUNCATE
    return value >> shift;
#else
    return (value + (1u << (shift - 1u)) - 1u + (value >> shift & 1u)) >> shift;
#endif
}

/*
 * The 16 bits of the type that lie nearest to an fp32 number's, to the even ones of two; by integers,
 * as packHalf2x16 may round as it likes. A carry out of the mantissa is the next exponent, and after
 * the last one Inf. NaN stays NaN.
 */
uint bits_to_short(uint bits, uint type)
{
    const uint sign = bits >> 16 & 0x8000u;
    const uint magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return sign | (type == TYPE_BF16 ? magnitude >> 16 | 0x40u : 0x7e00u);
    }
    if (type == TYPE_BF16) {
        return sign | shift_to_nearest(magnitude, 16u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: in units of 2^-24 */
        const uint significand = (magnitude & 0x7fffffu) | 0x800000u;
        return sign | shift_to_nearest(significand, min(126u - (magnitude >> 23), 31u));
    }
    const uint largest = 0x47800000u; /* 2^16, Inf already */
    return sign | shift_to_nearest(min(magnitude, largest) - (112u << 23), 13u);
}

uvec2 floats_to_shorts(vec4 values, uint type)
{
    const uvec4 bits = floatBitsToUint(values);
    return uvec2(bits_to_short(bits.x, type) | bits_to_short(bits.y, type) << 16,
                 bits_to_short(bits.z, type) | bits_to_short(bits.w, type) << 16);
}

/*
 * Declares a tensor's buffer, seen as name_floats and name_vectors where its elements are fp32, as
 * name_words and name_pairs where they are of 16 bits.
 */
#define VKMHA_DECLARE_TENSOR(at, access, block, name)                                              \
    layout(std430, binding = at) access buffer block##Floats                                       \
    {                                                                                              \
        float name##_floats[];                                                                     \
    };                                                                                             \
    layout(std430, binding = at) access buffer block##Vectors                                      \
    {                                                                                              \
        vec4 name##_vectors[];                                                                     \
    };                                                                                             \
    layout(std430, binding = at) access buffer block##Words                                        \
    {                                                                                              \
        uint name##_words[];                                                                       \
    };                                                                                             \
    layout(std430, binding = at) access buffer block##Pairs                                        \
    {                                                                                              \
        uvec2 name##_pairs[];                                                                      \
    };

/* Defines load_NAME_bits(element): one element as the bits of an fp32 number. */
#define VKMHA_DEFINE_LOAD_BITS(name, at)                                                           \
    uint load_##name##_bits(uint element)                                                          \
    {                                                                                              \
        if (VKMHA_TYPE_OF(at) == TYPE_F32) {                                                       \
            return name##_words[element];                                                          \
        }                                                                                          \
        const uint bits = name##_words[element >> 1] >> 16u * (element & 1u) & 0xffffu;            \
        return short_to_bits(bits, VKMHA_TYPE_OF(at));                                             \
    }

/*
 * Defines load_NAME(row, feature, count): features feature..feature+3 of the `count` that start at
 * element `row`. With is_vector, row and feature are multiples of 4 and the padding up to a multiple
 * of 4 is zero in memory; else features at or past count read as 0 and are never touched.
 */
#define VKMHA_DEFINE_LOAD(name, at, is_vector)                                                     \
    VKMHA_DEFINE_LOAD_BITS(name, at)                                                               \
    vec4 load_##name(uint row, uint feature, uint count)                                           \
    {                                                                                              \
        if (is_vector != 0u && VKMHA_TYPE_OF(at) == TYPE_F32) {                                    \
            return name##_vectors[(row + feature) >> 2];                                           \
        }                                                                                          \
        if (is_vector != 0u) {                                                                     \
            return shorts_to_floats(name##_pairs[(row + feature) >> 2], VKMHA_TYPE_OF(at));        \
        }                                                                                          \
        const uvec4 features = feature + uvec4(0u, 1u, 2u, 3u);                                    \
        const uvec4 clamped = row + min(features, uvec4(count - 1u));                              \
        vec4 loaded;                                                                               \
        if (VKMHA_TYPE_OF(at) == TYPE_F32) {                                                       \
            loaded = vec4(name##_floats[clamped.x], name##_floats[clamped.y],                      \
                          name##_floats[clamped.z], name##_floats[clamped.w]);                     \
        } else {                                                                                   \
            loaded = uintBitsToFloat(uvec4(load_##name##_bits(clamped.x),                          \
                                           load_##name##_bits(clamped.y),                          \
                                           load_##name##_bits(clamped.z),                          \
                                           load_##name##_bits(clamped.w)));                        \
        }                                                                                          \
        return mix(vec4(0.0), loaded, lessThan(features, uvec4(count)));                           \
    }

/* Defines load_NAME_vector(vector): the four elements from 4 * vector on. */
#define VKMHA_DEFINE_LOAD_VECTOR(name, at)                                                         \
    vec4 load_##name##_vector(uint vector)                                                         \
    {                                                                                              \
        if (VKMHA_TYPE_OF(at) == TYPE_F32) {                                                       \
            return name##_vectors[vector];                                                         \
        }                                                                                          \
        return shorts_to_floats(name##_pairs[vector], VKMHA_TYPE_OF(at));                          \
    }

/*
 * Defines store_NAME_bits(element, bits, count): the first `count` of four fp32 numbers, given as
 * bits, from an element on. A word of which only one half is theirs may get its other half from
 * another invocation at the same time: the half is cleared, then set, by atomics that leave the
 * other as it is.
 */
#define VKMHA_DEFINE_STORE_BITS(name, at)                                                          \
    void store_##name##_bits(uint element, uvec4 bits, uint count)                                 \
    {                                                                                              \
        if (VKMHA_TYPE_OF(at) == TYPE_F32) {                                                       \
            for (uint i = 0u; i < count; i++) {                                                    \
                name##_words[element + i] = bits[i];                                               \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (uint i = 0u; i < count; i++) {                                                        \
            const uint word = (element + i) >> 1;                                                  \
            const uint shift = 16u * ((element + i) & 1u);                                         \
            const uint stored = bits_to_short(bits[i], VKMHA_TYPE_OF(at));                         \
            if (shift == 0u && i + 1u < count) {                                                   \
                i++;                                                                               \
                name##_words[word] = stored | bits_to_short(bits[i], VKMHA_TYPE_OF(at)) << 16;     \
            } else {                                                                               \
                atomicAnd(name##_words[word], ~(0xffffu << shift));                                \
                atomicOr(name##_words[word], stored << shift);                                     \
            }                                                                                      \
        }                                                                                          \
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
