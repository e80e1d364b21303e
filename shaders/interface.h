/*
 * What C and GLSL must agree on: bindings, specialization constants, push constants. The only home
 * of each. Push-constant structs and the uniform block hold 4-byte scalars only, so that C's layout is
 * std430's, and std140's.
 */
#ifndef VKMHA_INTERFACE_H
#define VKMHA_INTERFACE_H

#ifdef VULKAN
#define VKMHA_STRUCT(name) struct name
#define VKMHA_U32 uint
#define VKMHA_I32 int
#define VKMHA_F32 float
#else
#include <stdint.h>
#define VKMHA_STRUCT(name) typedef struct name name; struct name
#define VKMHA_U32 uint32_t
#define VKMHA_I32 int32_t
#define VKMHA_F32 float
#endif

/* ---- Bindings: one set layout serves every kernel; a kernel declares those it uses. ---- */

#define VKMHA_BIND_PROJECT_INPUT 0
#define VKMHA_BIND_PROJECT_WEIGHT 1
#define VKMHA_BIND_PROJECT_BIAS 2
#define VKMHA_BIND_PROJECT_OUTPUT 3 /* 3, 4, 5: the three segments of packed columns */

#define VKMHA_BIND_PLACE_SOURCE 0
#define VKMHA_BIND_PLACE_TARGET 3

#define VKMHA_BIND_CONTRIBUTE_INPUT 0
#define VKMHA_BIND_CONTRIBUTE_WEIGHT 1
#define VKMHA_BIND_CONTRIBUTE_GRADIENT 2
#define VKMHA_BIND_CONTRIBUTE_NORMS 3
#define VKMHA_BIND_CONTRIBUTE_PRODUCTS 4

#define VKMHA_BIND_ROTATION 6  /* projections, place: cosine and sine of [position, pair] */
#define VKMHA_BIND_POSITIONS 7 /* projections, place: the rotary position of each row */

#define VKMHA_BIND_QUERY 0
#define VKMHA_BIND_KEY 1 /* merge: the chunks' partial outputs */
#define VKMHA_BIND_VALUE 2 /* merge: the chunks' states */
#define VKMHA_BIND_OUTPUT 3
#define VKMHA_BIND_MASK 4        /* read as words */
#define VKMHA_BIND_ATTEND_KEYS 5 /* bytes, read as words */
#define VKMHA_BIND_STATE 6       /* of each row, between cuts or of each chunk, or at the end */
#define VKMHA_BIND_TABLES 7      /* what a layer knows of its heads: see vkmha_attention_options */

/* Uniform buffers. */
#define VKMHA_BIND_SEQUENCES 8 /* two ivec4 a sequence: vkmha_sequence */
#define VKMHA_BIND_GATES 9     /* floats, four a vector */
#define VKMHA_BIND_OPTIONS 10  /* vkmha_attention_options */

#define VKMHA_NUM_STORAGE_BINDINGS 8
#define VKMHA_NUM_BINDINGS 11

/* What one dispatch may see of either uniform array: 16 KiB. */
#define VKMHA_MAX_UNIFORM_SEQUENCES 512
#define VKMHA_MAX_UNIFORM_GATES 4096

/* ---- Specialization constants: (id, name, default). What is fixed per plan. ---- */

#define VKMHA_CONSTANTS(X)                                                                         \
    X(0, WORKGROUP, 64)     /* local_size_x */                                                     \
    X(1, ROWS, 8)           /* rows of an invocation or subgroup (see the kernel's head) */        \
    X(2, COLUMNS, 4)        /* project: columns of an invocation; attention: keys of a lane */     \
    X(3, VALUE_VECTORS, 2)  /* attention: vec4 accumulators a lane and row */                      \
    X(4, SUBGROUP_WIDTH, 1) /* lanes of a subgroup, self-tested */                                 \
    X(5, VECTOR_A, 1)       /* vec4 reads: project: input; attention: query and key */             \
    X(6, VECTOR_B, 1)       /* project: vec4 writes of output; attention: vec4 reads of value */   \
    X(7, VECTOR_C, 1)       /* attention: vec4 writes of output */                                 \
    X(8, CLASSES, 0)        /* attention: VKMHA_CLASS_ bits; one that is not set costs nothing */  \
    X(9, ROTATE, 0)         /* project, place: the rotated features of a head, 0 none */           \
    X(10, APPEND, 0)        /* project: bits of segments that lie behind a sequence's past keys */ \
    X(11, PLACE, 0)         /* place: VKMHA_PLACE_ bits */                                         \
    X(12, TYPES, 0)         /* a vkmha_type for each storage binding: see VKMHA_TYPE_BITS */       \
    X(13, MASS, 0)          /* inspect: 1: key masses, else what the flags say */

/*
 * What a storage binding holds, in TYPES. Elements of 16 bits are numbered as those of 32 are: two of
 * them share a word, the one of even number its lower half.
 */
#define VKMHA_TYPE_BITS(binding, type) ((type) << 2 * (binding))
#define VKMHA_TYPE_MASK 3

#ifdef VULKAN
#define VKMHA_DECLARE_CONSTANT(id, name, value) layout(constant_id = id) const uint name = value;
#else
#define VKMHA_DECLARE_CONSTANT(id, name, value) uint32_t name;
typedef struct vkmha_constants {
    VKMHA_CONSTANTS(VKMHA_DECLARE_CONSTANT)
} vkmha_constants;
#endif

/*
 * Attention's options, in vkmha_attention_options. What they ask of each score is grouped into
 * classes: a class without options is compiled away, and inside one, options are uniform branches,
 * so that there are few pipelines to compile. What is asked once a row needs no class.
 */
#define VKMHA_OPTION_ATTEND_KEYS 1u
#define VKMHA_OPTION_SEQUENCES 2u
#define VKMHA_OPTION_PACKED 4u
#define VKMHA_OPTION_CAUSAL 8u
#define VKMHA_OPTION_WINDOW_LEFT 16u
#define VKMHA_OPTION_WINDOW_RIGHT 32u
#define VKMHA_OPTION_SOFTCAP 64u
#define VKMHA_OPTION_ALIBI 128u
#define VKMHA_OPTION_RELATIVE 256u
#define VKMHA_OPTION_SINKS 512u
#define VKMHA_OPTION_BIAS_KV 1024u
#define VKMHA_OPTION_ZERO_ATTN 2048u
#define VKMHA_OPTION_GATES 4096u
#define VKMHA_OPTION_TOLD 16384u /* heads of gate 0 are computed: something is told of them */
#define VKMHA_OPTION_ROWS 8192u /* rows leave their state, for what is told besides the output */

#define VKMHA_CLASS_MASKS 1u  /* a mask tensor, a mask over keys */
#define VKMHA_CLASS_FIRSTS 2u /* rows that begin behind key 0: left windows, first keys */
#define VKMHA_CLASS_SCORES 4u /* softcap, ALiBi, relative bias */
#define VKMHA_CLASS_EXTRAS 8u /* keys after all others: bias_k, zero attention, sinks */
#define VKMHA_CLASS_SPLIT 16u /* a workgroup sees one chunk of keys; attention_merge joins them */
#define VKMHA_CLASS_STATISTICS 32u /* entropy, distance and largest weight of each row */
/* All that a score may be asked for: inspect and summarize have one pipeline for any. */
#define VKMHA_CLASSES_TOLD                                                                         \
    (VKMHA_CLASS_MASKS | VKMHA_CLASS_FIRSTS | VKMHA_CLASS_SCORES | VKMHA_CLASS_EXTRAS)

/* place: interleaved pairs in natural features, halves in natural features */
#define VKMHA_PLACE_ROTATE_INTERLEAVED 1u
#define VKMHA_PLACE_ROTATE_HALF 2u
#define VKMHA_PLACE_PAIR 4u   /* natural features become paired ones: see vkmha_paired_feature */
#define VKMHA_PLACE_UNPAIR 8u /* and back */
#define VKMHA_PLACE_APPEND 16u

/* What is told besides the output, in the flags from bit VKMHA_TELL_SHIFT on, so that one pipeline
 * does: inspect, for each query and key */
#define VKMHA_TELL_SHIFT 8
#define VKMHA_TELL_WEIGHTS 0u
#define VKMHA_TELL_MEAN_WEIGHTS 1u /* one head's, added to those before it */
#define VKMHA_TELL_SCORES_SCALED 2u
#define VKMHA_TELL_SCORES_CAPPED 3u
#define VKMHA_TELL_SCORES_MASKED 4u
/* summarize, for each query */
#define VKMHA_TELL_LSE 0u
#define VKMHA_TELL_STATISTICS 1u /* as vkmha_statistics orders them */

/*
 * Keys are summed in chunks of this many, each from a fresh maximum and sum, and the chunks are
 * joined in ascending order: whoever computes a chunk, and wherever the keys are cut, the bits are
 * the same. A multiple of every kernel's keys a step.
 */
#define VKMHA_KEY_CHUNK 1024

/* ---- Push constants ---- */

/*
 * One projection dispatch: rows x columns of y = x W^T + b.
 * Group (x, y): column tile x, row tile y, each counted from the dispatch's first.
 * Row m is position m % positions of batch m / positions; where segments append, positions are the
 * plan's new ones, so that a part of one batch's rows knows how many come with it. Packed column c = first_column + n (n <
 * columns) lies in the first segment g with c < end; with l = c - (end of segment g-1), it is
 * feature l % pitch of head l / pitch, and goes to base + batch * batch_stride + head * head_stride
 * + position * row_stride + feature. Arithmetic is modulo 2^32, so a base may stand for a negative
 * offset.
 * Weights: column first_column + n is 4 * depth_vectors floats, zero-padded, from weight_base + n *
 * 4 * depth_vectors (a multiple of 4); its bias is at bias_base + n. columns and every pitch are
 * multiples of 4. Columns c >= valid_columns are not written.
 * Pairs (2 k, 2 k + 1) of the first ROTATE features of a head of segment g are rotated by the
 * position at rotation[g] + m; VKMHA_NOT_ROTATED: they are not. The positions of segments in APPEND count
 * from the sequence's past length, sequence number sequences_base + batch.
 */
#define VKMHA_NOT_ROTATED 0xffffffffu

VKMHA_STRUCT(vkmha_project_segment) {
    VKMHA_U32 end;
    VKMHA_U32 pitch;
    VKMHA_U32 base;
    VKMHA_U32 batch_stride;
    VKMHA_U32 head_stride;
    VKMHA_U32 row_stride;
};

VKMHA_STRUCT(vkmha_project_push) {
    VKMHA_U32 rows;
    VKMHA_U32 positions;
    VKMHA_U32 columns;
    VKMHA_U32 first_column;
    VKMHA_U32 valid_columns;
    VKMHA_U32 depth; /* features of the input; a column has ceil(depth / 4) vectors of them */
    VKMHA_U32 sequences_base;
    VKMHA_U32 weight_base;
    VKMHA_U32 bias_base;
    VKMHA_U32 input_base;
    VKMHA_U32 input_batch_stride;
    VKMHA_U32 input_row_stride;
    VKMHA_U32 rotation[2];
    vkmha_project_segment segments[3];
};

/* attention flags */
#define VKMHA_FLAG_FIRST 1u     /* starts the rows; else state and output hold them */
#define VKMHA_FLAG_LAST 2u      /* ends the rows; else the next dispatch goes on */
#define VKMHA_FLAG_MASK_KEYS 4u /* the mask varies over keys (key stride 1, else 0) */

/*
 * One attention dispatch. Group (x, y, z): query tile x, head y, batch z, each counted from the
 * dispatch's first; with CLASS_SPLIT x is tile + tiles * chunk.
 * A tensor's element: base + batch * batch_stride + head * head_stride + position * row_stride +
 * feature, modulo 2^32; packed: the sequence's first row is added to the position. Head y reads
 * key/value head (head_phase + y) / group_size. Keys key_begin..key_end-1 are seen by this
 * dispatch (key_begin a multiple of VKMHA_KEY_CHUNK; key_end one too, or key_len).
 * State of a row: VKMHA_STATE_FLOATS at that many times ((z * groups_y + y) * query_count + i); of its
 * chunk c with CLASS_SPLIT: z counts on, c * groups_z + z. With OPTION_ROWS, and without CLASS_SPLIT:
 * VKMHA_TOLD_FLOATS at that many times ((z * num_heads + y) * query_len + i) from state_base, and rows
 * that the sequence does not have are rows without keys. A state: maximum, sum, sums of logarithms and
 * distances (softmax.glsl); at the end, in place of these, entropy, mean distance, largest weight.
 */
#define VKMHA_STATE_FLOATS(classes) (((classes)&VKMHA_CLASS_STATISTICS) != 0u ? 4u : 2u)
#define VKMHA_TOLD_FLOATS 5u

VKMHA_STRUCT(vkmha_tensor_push) {
    VKMHA_U32 base;
    VKMHA_U32 batch_stride;
    VKMHA_U32 head_stride;
    VKMHA_U32 row_stride;
};

VKMHA_STRUCT(vkmha_attention_push) {
    vkmha_tensor_push query;
    vkmha_tensor_push key;
    vkmha_tensor_push value;
    vkmha_tensor_push result; /* "output" is reserved in GLSL */
    vkmha_tensor_push mask; /* elements of its type; row_stride: between queries */
    VKMHA_U32 attend_base;  /* bytes */
    VKMHA_U32 sequences_base;
    VKMHA_U32 gates_base;
    VKMHA_U32 gates_batch_stride;
    VKMHA_U32 first_query; /* of the dispatch, in its sequence */
    VKMHA_U32 query_count;
    VKMHA_U32 first_head;
    VKMHA_U32 key_begin;
    VKMHA_U32 key_end;
    VKMHA_I32 position_offset; /* without sequences: p = query + this */
    VKMHA_U32 flags;
    VKMHA_U32 state_base;
};

/*
 * What is the same in every attention dispatch of a plan: a uniform block. Bases are elements of the
 * layer's tables: slopes and sinks [num_heads], relative biases [num_heads, 2 * relative_reach +
 * 1] by distance j - p, cut at -reach and reach, bias_k and bias_v [num_kv_heads, features
 * rounded up to 4].
 */
VKMHA_STRUCT(vkmha_attention_options) {
    VKMHA_U32 bits; /* VKMHA_OPTION_ */
    VKMHA_U32 mask; /* a vkmha_mask_type */
    VKMHA_U32 key_len; /* all keys */
    VKMHA_U32 head_dim;
    VKMHA_U32 v_head_dim;
    VKMHA_U32 group_size;
    VKMHA_F32 scale;
    VKMHA_F32 softcap;
    VKMHA_I32 window_left;
    VKMHA_I32 window_right;
    VKMHA_U32 attend_batch_stride; /* bytes */
    VKMHA_U32 slopes;
    VKMHA_U32 sinks;
    VKMHA_U32 relative;
    VKMHA_I32 relative_reach;
    VKMHA_U32 bias_k;
    VKMHA_U32 bias_v;
    VKMHA_U32 total_queries; /* packed: rows that there are */
    VKMHA_U32 total_keys;
    VKMHA_U32 num_heads;
    VKMHA_U32 query_len;
    VKMHA_U32 mean_heads; /* over which mean weights are averaged */
};

/*
 * One copy of rows, group (x, y, z): invocations over [row, vec4 of features] along x, head y, batch z.
 * Elements as in attention. Target features at or past `features` and below `pitch` are zeroed.
 */
VKMHA_STRUCT(vkmha_place_push) {
    vkmha_tensor_push source;
    vkmha_tensor_push target;
    VKMHA_U32 rows;
    VKMHA_U32 new_rows; /* append: of the whole plan */
    VKMHA_U32 features;
    VKMHA_U32 pitch;
    VKMHA_U32 sequences_base;
    VKMHA_U32 positions_base;
    VKMHA_U32 positions_batch_stride;
};

/* contribute flags, beside VKMHA_FLAG_FIRST and VKMHA_FLAG_LAST, which are of the columns */
#define VKMHA_FLAG_NORMS 8u
#define VKMHA_FLAG_PRODUCTS 16u
#define VKMHA_FLAG_PACKED 32u

/*
 * One dispatch of heads' contributions to columns of the layer's output: c = o_h W_O^h. Group (x, y, z):
 * query rows x * ROWS .., head y, batch z, each counted from the dispatch's first. Elements as in attention; input
 * rows are of one head (packed: first_query_row is added), gradients have no heads, norms and products are [batch,
 * heads, query_len] and take sums from column to column. Weights as in a projection; head y reads the input_vectors
 * vectors of each column from head_offset + y * input_vectors on.
 */
VKMHA_STRUCT(vkmha_contribute_push) {
    vkmha_tensor_push source;
    vkmha_tensor_push gradient; /* feature: the column */
    vkmha_tensor_push target;   /* of norms and products */
    VKMHA_U32 products_base;    /* in place of target.base */
    VKMHA_U32 first_query;
    VKMHA_U32 query_count;
    VKMHA_U32 total_queries; /* packed: rows that there are */
    VKMHA_U32 sequences_base;
    VKMHA_U32 columns;
    VKMHA_U32 weight_base;
    VKMHA_U32 depth_vectors; /* of a column */
    VKMHA_U32 input_vectors; /* of a head */
    VKMHA_U32 head_offset;   /* vectors before the dispatch's first head */
    VKMHA_U32 flags;
};

/*
 * Self-test: the words that each invocation writes, with n its number in the workgroup: subgroup
 * size; lane; subgroup number; sum of 1; sum of lanes; float sum of n; float maximum of -n; n of
 * lane 0; n of the last lane; n of lane ^ 1; n of the next lane, around; float n of the lane half a
 * subgroup on, around; any(lane is the last): 1; any(lane is past the last): 0.
 */
#define VKMHA_SELFTEST_WORDS 14

#ifndef VULKAN
_Static_assert(sizeof(vkmha_project_push) <= 128, "push constants exceed Vulkan's minimum");
_Static_assert(sizeof(vkmha_attention_push) <= 128, "push constants exceed Vulkan's minimum");
_Static_assert(sizeof(vkmha_contribute_push) <= 128, "push constants exceed Vulkan's minimum");
_Static_assert(sizeof(vkmha_place_push) <= 128, "push constants exceed Vulkan's minimum");
#endif

#endif
