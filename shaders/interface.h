/*
 * What C and GLSL must agree on: bindings, specialization constants, push constants. The only home
 * of each. Push-constant structs hold 4-byte scalars only, so that C's layout is std430's.
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

#define VKMHA_BIND_QUERY 0
#define VKMHA_BIND_KEY 1
#define VKMHA_BIND_VALUE 2
#define VKMHA_BIND_OUTPUT 3
#define VKMHA_BIND_MASK 4        /* read as words: bytes (attend) or fp32 (additive) */
#define VKMHA_BIND_ATTEND_KEYS 5 /* bytes, read as words */
#define VKMHA_BIND_STATE 6       /* each row's running maximum and sum between cuts */
#define VKMHA_BIND_LENGTHS 7     /* uniform buffer: int lengths, four a vector */

#define VKMHA_NUM_STORAGE_BINDINGS 7
#define VKMHA_NUM_BINDINGS 8

/* Lengths that one dispatch may see: 16 KiB of uniform buffer. */
#define VKMHA_MAX_UNIFORM_LENGTHS 4096

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
    X(8, MASK, 0)           /* attention: VKMHA_MASK_*: 0 none, 1 attend, 2 additive */            \
    X(9, ATTEND_KEYS, 0)    /* attention: 1 with a mask over keys */

#ifdef VULKAN
#define VKMHA_DECLARE_CONSTANT(id, name, value) layout(constant_id = id) const uint name = value;
#else
#define VKMHA_DECLARE_CONSTANT(id, name, value) uint32_t name;
typedef struct vkmha_constants {
    VKMHA_CONSTANTS(VKMHA_DECLARE_CONSTANT)
} vkmha_constants;
#endif

/*
 * Keys are summed in chunks of this many: a row's running sum is reduced across lanes at each
 * chunk's end, so a cut at a chunk's border changes no bit. A multiple of every kernel's keys a
 * step.
 */
#define VKMHA_KEY_CHUNK 1024

/* ---- Push constants ---- */

/*
 * One projection dispatch: rows x columns of y = x W^T + b.
 * Group (x, y): column tile x, row tile y, each counted from the dispatch's first.
 * Row m is position m % positions of batch m / positions. Packed column c = first_column + n (n <
 * columns) lies in the first segment g with c < end; with l = c - (end of segment g-1), it is
 * feature l % pitch of head l / pitch, and goes to base + batch * batch_stride + head * head_stride
 * + position * row_stride + feature. Arithmetic is modulo 2^32, so a base may stand for a negative
 * offset.
 * Weights: column first_column + n is 4 * depth_vectors floats, zero-padded, from weight_base + n *
 * 4 * depth_vectors (a multiple of 4); its bias is at bias_base + n. columns and every pitch are
 * multiples of 4. Columns c >= valid_columns are not written.
 */
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
    VKMHA_U32 depth;         /* features of the input */
    VKMHA_U32 depth_vectors; /* ceil(depth / 4) */
    VKMHA_U32 weight_base;
    VKMHA_U32 bias_base;
    VKMHA_U32 input_base;
    VKMHA_U32 input_batch_stride;
    VKMHA_U32 input_row_stride;
    vkmha_project_segment segments[3];
};

/* attention flags */
#define VKMHA_FLAG_FIRST 1u        /* starts the rows; else state and output hold them */
#define VKMHA_FLAG_LAST 2u         /* ends the rows; else the next dispatch goes on */
#define VKMHA_FLAG_LENGTHS 4u      /* the uniform buffer holds lengths */
#define VKMHA_FLAG_CAUSAL 8u       /* key j is allowed if j <= i + causal_offset */
#define VKMHA_FLAG_CAUSAL_ENDS 16u /* causal_offset counts from the sequence's length */
#define VKMHA_FLAG_MASK_KEYS 32u   /* the mask varies over keys (key stride 1, else 0) */

/*
 * One attention dispatch. Group (x, y, z): query tile x, head y, batch z, each counted from the
 * dispatch's first.
 * A tensor's element: base + batch * batch_stride + head * head_stride + position * row_stride +
 * feature, modulo 2^32. Head y reads key/value head (head_phase + y) / group_size. Keys
 * key_begin..key_end-1 are seen by this dispatch (key_begin a multiple of VKMHA_KEY_CHUNK; key_end
 * one too, or key_len).
 * State of a row: two floats (maximum, sum) at 2 * ((z * groups_y + y) * query_count + i).
 */
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
    vkmha_tensor_push mask; /* elements: bytes or floats; row_stride: between queries */
    VKMHA_U32 attend_base;  /* bytes */
    VKMHA_U32 attend_batch_stride;
    VKMHA_U32 lengths_base; /* index of the first batch's length */
    VKMHA_U32 query_count;
    VKMHA_U32 key_len;
    VKMHA_U32 key_begin;
    VKMHA_U32 key_end;
    VKMHA_I32 causal_offset; /* counted for the dispatch's first query */
    VKMHA_U32 flags;
    VKMHA_U32 dims;  /* head_dim | v_head_dim << 16 */
    VKMHA_U32 group; /* group_size | head_phase << 16 */
    VKMHA_F32 scale;
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
#endif

#endif
