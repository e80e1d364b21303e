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
    X(OFFSET, "causal offset")                                                                     \
    X(POSITIONS_BOTTOM_RIGHT, "positions bottom_right")                                            \
    X(POSITIONS_OFFSET, "positions offset")                                                        \
    X(OFFSETS, "an offset for each sequence")                                                      \
    X(OFFSET_NEGATIVE, "offset negative")                                                          \
    X(OFFSET_BEYOND, "offset beyond the keys")                                                     \
    X(WINDOW_LEFT, "window_left")                                                                  \
    X(WINDOW_RIGHT, "window_right")                                                                \
    X(WINDOW_0, "window of 0")                                                                     \
    X(MASK_F16, "mask additive fp16")                                                              \
    X(MASK_BITS, "mask of bits")                                                                   \
    X(FIRST_KEYS, "first_keys")                                                                    \
    X(ROPE_HALF, "rope half")                                                                      \
    X(ROPE_INTERLEAVED, "rope interleaved")                                                        \
    X(ROPE_PARTIAL, "rope of some features")                                                       \
    X(ROPE_TABLE, "rope tables given")                                                             \
    X(GIVEN_POSITIONS, "rope positions given")                                                     \
    X(SOFTCAP, "softcap")                                                                          \
    X(ALIBI, "alibi")                                                                              \
    X(ALIBI_SLOPES, "alibi slopes given")                                                          \
    X(RELATIVE_ONE_WAY, "relative bias, one way")                                                  \
    X(RELATIVE_BOTH_WAYS, "relative bias, both ways")                                              \
    X(SINKS, "sinks")                                                                              \
    X(SINK_ABSENT, "sink of -Inf")                                                                 \
    X(SINK_LARGE, "sink above all scores")                                                         \
    X(BIAS_KV, "bias_k and bias_v")                                                                \
    X(ZERO_ATTN, "add_zero_attn")                                                                  \
    X(GATES, "head gates")                                                                         \
    X(GATES_PER_SEQUENCE, "head gates of each sequence")                                           \
    X(GATE_0, "head gate of 0")                                                                    \
    X(PAST, "past keys")                                                                           \
    X(PRESENT, "present outputs")                                                                  \
    X(PACKED, "packed sequences")                                                                  \
    X(PACKED_EMPTY, "packed: an empty sequence")                                                   \
    X(TELLS_LSE, "tells lse")                                                                      \
    X(TELLS_WEIGHTS, "tells weights")                                                              \
    X(TELLS_MEAN_WEIGHTS, "tells mean weights")                                                    \
    X(TELLS_SCORES_SCALED, "tells scores, scaled")                                                 \
    X(TELLS_SCORES_CAPPED, "tells scores, capped")                                                 \
    X(TELLS_SCORES_MASKED, "tells scores, masked")                                                 \
    X(CHOSEN_HEADS, "chosen heads")                                                                \
    X(CHOSEN_QUERIES, "chosen queries")                                                            \
    X(TELLS_STATISTICS, "tells statistics")                                                        \
    X(TELLS_KEY_MASS, "tells key masses")                                                          \
    X(TELLS_CONTRIBUTIONS, "tells contributions")                                                  \
    X(TELLS_GATE_GRADIENTS, "tells gate gradients")                                                \
    X(STRIDES, "strides given")                                                                    \
    X(STRIDES_OUTPUT, "strides of the output")                                                     \
    X(STRIDE_0, "batch stride 0")                                                                  \
    X(FUSED_QKV, "query, key, value in one memory")                                                \
    X(FUSED_KV, "key, value in one memory")                                                        \
    X(INPUT_F16, "an input in fp16")                                                               \
    X(INPUT_BF16, "an input in bf16")                                                              \
    X(INPUT_TYPES, "inputs of several types")                                                      \
    X(OUTPUT_F16, "output in fp16")                                                                \
    X(OUTPUT_BF16, "output in bf16")                                                               \
    X(KEPT_F16, "past, present in fp16")                                                           \
    X(KEPT_BF16, "past, present in bf16")                                                          \
    X(DEVICE_F16, "weights kept in fp16")                                                          \
    X(DEVICE_BF16, "weights kept in bf16")                                                         \
    X(SAME_REPEATED, "same bits: again")                                                           \
    X(SAME_CUT, "same bits: other work limit")                                                     \
    X(SAME_ALONE, "same bits: alone")                                                              \
    X(SAME_PADDED, "same bits: padded")                                                            \
    X(SAME_UNPACKED, "same bits: packed or padded")                                                \
    X(SAME_CACHE, "same bits: past in a cache")                                                    \
    X(SAME_CONTIGUOUS, "same bits: strides or none")                                               \
    X(SAME_TOLD, "same bits: told or not")

typedef enum vkmha_feature {
#define VKMHA_FEATURE_VALUE(name, text) VKMHA_FEATURE_##name,
    VKMHA_FEATURES(VKMHA_FEATURE_VALUE)
#undef VKMHA_FEATURE_VALUE
        VKMHA_NUM_FEATURES,
} vkmha_feature;

enum {
    VKMHA_FEATURE_WORDS = (VKMHA_NUM_FEATURES + 63) / 64,
};

const char *vkmha_feature_text(vkmha_feature feature);

/*
 * What can be left out of a shape by --without, all else staying as it is. In the order in which
 * they are drawn: what excludes another comes first.
 */
#define VKMHA_OPTIONS(X)                                                                           \
    X(PROBE, "probe")                                                                              \
    X(PACKED, "packed")                                                                            \
    X(PAST, "past")                                                                                \
    X(PRESENT, "present")                                                                          \
    X(SCALE, "scale")                                                                              \
    X(CAUSAL, "causal")                                                                            \
    X(POSITIONS, "positions")                                                                      \
    X(WINDOW_LEFT, "window_left")                                                                  \
    X(WINDOW_RIGHT, "window_right")                                                                \
    X(MASK, "mask")                                                                                \
    X(ATTEND_KEYS, "attend_keys")                                                                  \
    X(KEY_LENGTHS, "key_lengths")                                                                  \
    X(FIRST_KEYS, "first_keys")                                                                    \
    X(ROPE, "rope")                                                                                \
    X(GIVEN_POSITIONS, "given_positions")                                                          \
    X(SOFTCAP, "softcap")                                                                          \
    X(ALIBI, "alibi")                                                                              \
    X(RELATIVE_BIAS, "relative_bias")                                                              \
    X(SINKS, "sinks")                                                                              \
    X(BIAS_KV, "bias_kv")                                                                          \
    X(ZERO_ATTN, "zero_attn")                                                                      \
    X(GATES, "gates")                                                                              \
    X(LSE, "lse")                                                                                  \
    X(WEIGHTS, "weights")                                                                          \
    X(MEAN_WEIGHTS, "mean_weights")                                                                \
    X(SCORES, "scores")                                                                            \
    X(CHOSEN, "chosen")                                                                            \
    X(STATISTICS, "statistics")                                                                    \
    X(KEY_MASS, "key_mass")                                                                        \
    X(CONTRIBUTIONS, "contributions")                                                              \
    X(GATE_GRADIENTS, "gate_gradients")                                                            \
    X(STRIDES, "strides")                                                                          \
    X(TYPES, "types")                                                                              \
    X(WORK_LIMIT, "work_limit")                                                                    \
    X(WEIGHT_TYPES, "weight_types")                                                                \
    X(BIASES, "biases")                                                                            \
    X(POISON, "poison")                                                                            \
    X(NAN_QUERY, "nan_query")

typedef enum vkmha_option {
#define VKMHA_OPTION_VALUE(name, text) VKMHA_OPTION_##name,
    VKMHA_OPTIONS(VKMHA_OPTION_VALUE)
#undef VKMHA_OPTION_VALUE
        VKMHA_NUM_OPTIONS,
} vkmha_option;

_Static_assert(VKMHA_NUM_OPTIONS <= 64, "the options of a shape are one word");

const char *vkmha_option_text(vkmha_option option);

/* False where `text` names none. */
bool vkmha_option_find(const char *text, vkmha_option *option);

typedef struct vkmha_shape {
    vkmha_problem problem;
    uint64_t features[VKMHA_FEATURE_WORDS]; /* bits of vkmha_feature */
    uint64_t options;                       /* bits of vkmha_option: those that it has */
    uint64_t without;                       /* bits of vkmha_option: those left out */
    uint64_t seed;
    bool is_classic; /* no option that is younger than the first version's */
    vkmha_pool pool;
} vkmha_shape;

static inline bool vkmha_shape_has(const vkmha_shape *shape, vkmha_feature feature)
{
    return (shape->features[feature / 64] >> (feature % 64) & 1u) != 0;
}

static inline void vkmha_shape_mark(vkmha_shape *shape, vkmha_feature feature)
{
    shape->features[feature / 64] |= UINT64_C(1) << (feature % 64);
}

/*
 * Draws the problem of `seed`. Its upper bits, the family, decide what a pipeline is compiled for:
 * which options there are, and the features of a head. A driver may need a second for one, so a
 * grid has fewer families than shapes. Errors: OUT_OF_MEMORY; *shape is empty then.
 */
vkmha_status vkmha_shape_create(uint64_t seed, uint64_t without, vkmha_shape *shape,
                                vkmha_error *error);
void vkmha_shape_finish(vkmha_shape *shape);

enum {
    VKMHA_FAMILY_SHIFT = 48, /* of a seed: the bits from here on are the family */
};

/* One line: sizes and options. */
void vkmha_shape_describe(const vkmha_shape *shape, char *text, size_t size);

/* Multiply-adds of a problem. */
uint64_t vkmha_shape_work(const vkmha_problem *problem);

/* ---- Filling ------------------------------------------------------------------------------- */

/* What drawing works on. */
typedef struct vkmha_filler {
    vkmha_random random;
    vkmha_random family;
    vkmha_shape *shape;
    bool has_memory;
} vkmha_filler;

/* Each part of a shape has numbers of its own, so that leaving one out changes no other. */
enum {
    VKMHA_STREAM_WEIGHTS = VKMHA_NUM_OPTIONS,
    VKMHA_STREAM_INPUTS,
    VKMHA_STREAM_FAMILY,
};

vkmha_filler vkmha_filler_start(vkmha_shape *shape, uint32_t stream);

/* False where the option is left out; else notes that the shape has it. */
bool vkmha_filler_takes(vkmha_filler *fill, vkmha_option option);

/* Draws whether the shape has an option that classic shapes lack; never with a probe that needs
 * plain settings. */
bool vkmha_filler_takes_young(vkmha_filler *fill, vkmha_option option, uint32_t percent);

void *vkmha_filler_allocate(vkmha_filler *fill, uint64_t count, uint64_t size);

/* Multiples of 1/64 within 2, or integers within 3: exact in every type. */
float vkmha_filler_value(vkmha_filler *fill);
float *vkmha_filler_tensor(vkmha_filler *fill, uint64_t count);

/* shape_options.c: options whose sizes are drawn; the tensors of positions, layers and gates
 * with them. False where memory is out. */
bool vkmha_shape_draw_options(vkmha_shape *shape);

/* shape_told.c: what is told, of chosen heads and queries, and the output's gradient. */
void vkmha_shape_draw_lse(vkmha_filler *fill);
void vkmha_shape_draw_weights(vkmha_filler *fill);
void vkmha_shape_draw_mean_weights(vkmha_filler *fill);
void vkmha_shape_draw_scores(vkmha_filler *fill);
void vkmha_shape_draw_chosen(vkmha_filler *fill);
void vkmha_shape_draw_statistics(vkmha_filler *fill);
void vkmha_shape_draw_key_mass(vkmha_filler *fill);
void vkmha_shape_draw_contributions(vkmha_filler *fill);
void vkmha_shape_draw_gate_gradients(vkmha_filler *fill);

/* shape_strides.c */
void vkmha_shape_draw_strides(vkmha_filler *fill);

/* fill_masks.c: masks, lengths and first keys. */
bool vkmha_shape_fill_masks(vkmha_shape *shape);

/* Whether query i of head h may see key j; all tensors of masks are filled. */
bool vkmha_shape_allows(const vkmha_problem *problem, const vkmha_problem_item *item, uint64_t b,
                        uint64_t h, uint64_t i, uint64_t j);

/* fill.c: weights and inputs. */
bool vkmha_shape_fill(vkmha_shape *shape);

#endif
