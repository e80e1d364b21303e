/*
 * What the projection kernels share: bindings, where a row is read, where four packed columns of it
 * are written.
 */
layout(push_constant) uniform Push
{
    vkmha_project_push push;
};

VKMHA_DECLARE_TENSOR(VKMHA_BIND_PROJECT_INPUT, readonly, Input, input)
VKMHA_DECLARE_TENSOR(VKMHA_BIND_PROJECT_WEIGHT, readonly, Weight, weight)
layout(std430, binding = VKMHA_BIND_PROJECT_BIAS) readonly buffer BiasFloats
{
    float bias_floats[];
};

VKMHA_DECLARE_TENSOR(VKMHA_BIND_PROJECT_OUTPUT, , Output0, output0)
VKMHA_DECLARE_TENSOR(VKMHA_BIND_PROJECT_OUTPUT + 1, , Output1, output1)
VKMHA_DECLARE_TENSOR(VKMHA_BIND_PROJECT_OUTPUT + 2, , Output2, output2)

VKMHA_DECLARE_SEQUENCES
VKMHA_DECLARE_ROTATION

VKMHA_DEFINE_LOAD(input, VKMHA_BIND_PROJECT_INPUT, VECTOR_A)
VKMHA_DEFINE_LOAD_VECTOR(weight, VKMHA_BIND_PROJECT_WEIGHT)
VKMHA_DEFINE_STORE_BITS(output0, VKMHA_BIND_PROJECT_OUTPUT)
VKMHA_DEFINE_STORE_BITS(output1, VKMHA_BIND_PROJECT_OUTPUT + 1)
VKMHA_DEFINE_STORE_BITS(output2, VKMHA_BIND_PROJECT_OUTPUT + 2)

uint depth_vectors()
{
    return ceil_div(push.depth, 4u);
}

/* Element of feature 0 of row m; a row past the end reads the last one and is not written. */
uint input_row(uint m)
{
    const uint row = min(m, push.rows - 1u);
    const uint batch = row / push.positions;
    return push.input_base + batch * push.input_batch_stride +
           (row - batch * push.positions) * push.input_row_stride;
}

/*
 * vec4 of features 0..3 of column n of this dispatch; a column past the end reads the last one and
 * is not written.
 */
uint weight_row(uint n)
{
    return (push.weight_base >> 2) + min(n, push.columns - 1u) * depth_vectors();
}

#define VKMHA_STORE_SEGMENT(segment)                                                               \
    if (VECTOR_B == 0u) {                                                                          \
        const uint count = min(push.valid_columns - c, 4u);                                        \
        store_output##segment##_bits(element, floatBitsToUint(sums), count);                       \
    } else if (VKMHA_TYPE_OF(VKMHA_BIND_PROJECT_OUTPUT + segment) == TYPE_F32) {                   \
        output##segment##_vectors[element >> 2] = sums;                                            \
    } else {                                                                                       \
        output##segment##_pairs[element >> 2] =                                                    \
            floats_to_shorts(sums, VKMHA_TYPE_OF(VKMHA_BIND_PROJECT_OUTPUT + segment));            \
    }

/* Rows that a sequence has already in segment `which`: they are kept, and the new ones come after. */
uint past_rows(uint which, uint batch, vkmha_project_segment segment)
{
    if ((APPEND >> which & 1u) == 0u) {
        return 0u;
    }
    const int room = int(segment.head_stride / segment.row_stride) - int(push.positions);
    return uint(clamp(sequences[2u * (push.sequences_base + batch)].w, 0, room));
}

/* Features feature..feature+3 of row m, rotated where the segment's are. */
vec4 rotate_features(uint which, uint m, uint feature, vec4 features)
{
    if (ROTATE == 0u || which > 1u || feature >= ROTATE) {
        return features;
    }
    const uint base = push.rotation[which];
    if (base == VKMHA_NOT_ROTATED) {
        return features;
    }
    const vec2 first = rotate(features.xy, rotation_of(base + m, feature / 2u));
    vec2 second = features.zw;
    if (feature + 2u < ROTATE) {
        second = rotate(second, rotation_of(base + m, feature / 2u + 1u));
    }
    return vec4(first, second);
}

/*
 * Adds the bias to columns n..n+3 of row m and writes those that exist: n is a multiple of 4, so
 * one head has them all. Columns are paired features: see vkmha_paired_feature in tables.h.
 */
void write_columns(uint m, uint n, vec4 sums)
{
    const uint c = push.first_column + n;
    if (m >= push.rows || n >= push.columns || c >= push.valid_columns) {
        return;
    }
#ifndef VKMHA_MUTANT_NO_BIAS
    const uint bias = push.bias_base + n;
    sums += vec4(bias_floats[bias], bias_floats[bias + 1u], bias_floats[bias + 2u],
                 bias_floats[bias + 3u]);
#endif
    uint which = 0u;
    uint first = 0u;
    vkmha_project_segment segment = push.segments[0];
    if (c >= push.segments[0].end) {
        which = 1u;
        first = push.segments[0].end;
        segment = push.segments[1];
        if (c >= push.segments[1].end) {
            which = 2u;
            first = push.segments[1].end;
            segment = push.segments[2];
        }
    }
    const uint column = c - first;
    uint head = column / segment.pitch;
    const uint feature = column - head * segment.pitch;
#ifdef VKMHA_MUTANT_SWAP_HEADS
    head = (segment.end - first) / segment.pitch - 1u - head;
#endif
    sums = rotate_features(which, m, feature, sums);
    const uint batch = m / push.positions;
    const uint row = m - batch * push.positions + past_rows(which, batch, segment);
    const uint element = segment.base + batch * segment.batch_stride + head * segment.head_stride +
                         row * segment.row_stride + feature;
    if (which == 0u) {
        VKMHA_STORE_SEGMENT(0)
    } else if (which == 1u) {
        VKMHA_STORE_SEGMENT(1)
    } else {
        VKMHA_STORE_SEGMENT(2)
    }
}
