/* Random problems for the grid: each is a function of its seed alone. */
#ifndef VKMHA_TOOL_SHAPE_H
#define VKMHA_TOOL_SHAPE_H

#include "problem.h"

/* ---- Random numbers ------------------------------------------------------------------------ */

typedef struct vkmha_random {
    uint64_t state;
} vkmha_random;

/* Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators": splitmix64. */
uint64_t vkmha_random_next(vkmha_random *random);

/* 0..count-1; count > 0. */
uint64_t vkmha_random_below(vkmha_random *random, uint64_t count);

/* True in `percent` of a hundred draws. */
bool vkmha_random_chance(vkmha_random *random, uint32_t percent);

/* ---- Shapes -------------------------------------------------------------------------------- */

/* What a shape has; counted over a grid. (name, text) */
#define VKMHA_FEATURES(X)                                                                          \
    X(PROJECTIONS, "with projections")                                                             \
    X(ATTENTION_ONLY, "attention only")                                                            \
    X(HEADS_FIRST, "layout BHSD")                                                                  \
    X(SELF, "self-attention")                                                                      \
    X(SHARED_VALUE, "value is key")                                                                \
    X(SEPARATE, "three inputs")                                                                    \
    X(BATCH_0, "batch 0")                                                                          \
    X(BATCH_MANY, "batch over 1")                                                                  \
    X(QUERY_0, "query length 0")                                                                   \
    X(QUERY_1, "query length 1")                                                                   \
    X(KEY_0, "key length 0")                                                                       \
    X(KEY_LONG, "keys about 1024")                                                                 \
    X(TILE_EDGE, "length at a tile's edge")                                                        \
    X(GROUPED, "grouped heads")                                                                    \
    X(MULTI_QUERY, "one key/value head")                                                           \
    X(OTHER_V_HEAD_DIM, "v_head_dim differs")                                                      \
    X(ODD_HEAD_DIM, "head dims not of 4")                                                          \
    X(WIDE_HEAD, "head_dim over 128")                                                              \
    X(OTHER_DIMS, "key, value, output dims differ")                                                \
    X(BIAS, "biases")                                                                              \
    X(NO_BIAS, "a bias left out")                                                                  \
    X(WEIGHTS_F16, "weights fp16")                                                                 \
    X(WEIGHTS_BF16, "weights bf16")                                                                \
    X(WEIGHTS_STRIDED, "weights transposed")                                                       \
    X(SCALE, "scale given")                                                                        \
    X(SCALE_0, "scale 0")                                                                          \
    X(SCALE_NEGATIVE, "scale negative")                                                            \
    X(TOP_LEFT, "causal top_left")                                                                 \
    X(BOTTOM_RIGHT, "causal bottom_right")                                                         \
    X(MASK_ATTEND, "mask attend")                                                                  \
    X(MASK_ADDITIVE, "mask additive")                                                              \
    X(MASK_FULL, "mask without broadcast")                                                         \
    X(MASK_NO_BATCH, "mask broadcast over batch")                                                  \
    X(MASK_NO_HEAD, "mask broadcast over heads")                                                   \
    X(MASK_NO_QUERY, "mask broadcast over queries")                                                \
    X(MASK_NO_KEY, "mask broadcast over keys")                                                     \
    X(MASKED_ROW, "row fully masked")                                                              \
    X(LOWEST_ROW, "row of -FLT_MAX")                                                               \
    X(ATTEND_KEYS, "attend_keys")                                                                  \
    X(KEY_LENGTHS, "key_lengths")                                                                  \
    X(POISON, "NaN, Inf or junk in masked keys")                                                   \
    X(NAN_QUERY, "a NaN query row")                                                                \
    X(WORK_LIMIT, "small work limit")                                                              \
    X(INTEGERS, "probe: integers, exact")                                                          \
    X(UNIFORM, "probe: uniform weights")                                                           \
    X(ONE_HOT, "probe: one-hot values")                                                            \
    X(INDEX_VALUES, "probe: value = key index")                                                    \
    X(CONSTANT_VALUES, "probe: constant values")                                                   \
    X(LARGE_LOGITS, "probe: logits of 1e5")                                                        \
    X(SAME_REPEATED, "same bits: again")                                                           \
    X(SAME_CUT, "same bits: other work limit")                                                     \
    X(SAME_ALONE, "same bits: alone")                                                              \
    X(SAME_PADDED, "same bits: padded")

typedef enum vkmha_feature {
#define VKMHA_FEATURE_VALUE(name, text) VKMHA_FEATURE_##name,
    VKMHA_FEATURES(VKMHA_FEATURE_VALUE)
#undef VKMHA_FEATURE_VALUE
        VKMHA_NUM_FEATURES,
} vkmha_feature;

_Static_assert(VKMHA_NUM_FEATURES <= 64, "the features of a shape are one word");

const char *vkmha_feature_text(vkmha_feature feature);

typedef struct vkmha_shape {
    vkmha_problem problem;
    uint64_t features; /* bits of vkmha_feature */
    vkmha_pool pool;
} vkmha_shape;

static inline bool vkmha_shape_has(const vkmha_shape *shape, vkmha_feature feature)
{
    return (shape->features >> feature & 1u) != 0;
}

static inline void vkmha_shape_mark(vkmha_shape *shape, vkmha_feature feature)
{
    shape->features |= UINT64_C(1) << feature;
}

/* Draws the problem of `seed`. Errors: OUT_OF_MEMORY; *shape is empty then. */
vkmha_status vkmha_shape_create(uint64_t seed, vkmha_shape *shape, vkmha_error *error);
void vkmha_shape_finish(vkmha_shape *shape);

/* One line: sizes and options. */
void vkmha_shape_describe(const vkmha_shape *shape, char *text, size_t size);

/* Draws the tensors of a shape whose sizes and options are drawn; false where memory is out. */
bool vkmha_shape_fill(vkmha_random *random, vkmha_shape *shape);

#endif
