/*
 * vkmha: multi-head attention as Vulkan compute shaders, driven from C.
 *
 *     head_i = gate_i * softmax(softcap(scale * (Q W_Q^i)(K W_K^i)^T) + biases + mask) (V W_V^i)
 *     MHA(Q, K, V) = Concat(head_1, ..., head_h) W_O
 *
 * Sources: Vaswani et al. 2017, "Attention Is All You Need", sec. 3.2 (attention, heads); Milakov and
 * Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention" (tiling).
 *
 * The way of the data: device -> layer (weights on the device) -> plan (shapes, steps, pipelines) ->
 * vkmha_run (host memory) or vkmha_record (your command buffer, vkmha_vulkan.h).
 *
 * Conventions
 * - Sizes are in elements, strides too; a name ending in _bytes or _ns says otherwise.
 * - In every params struct zero means the default, so {0} plus the required fields is valid. Where zero has
 *   a meaning of its own, a has_ field says that the value is given. `reserved` must be zero.
 * - A function that can fail returns a vkmha_status and writes its outputs only on success; created
 *   objects are set to NULL on failure. Its last argument, `error`, may be NULL; else it receives the
 *   status and one line that names the field, its value and the rule.
 * - The library never aborts, exits or prints.
 *
 * Semantics (the same for every kernel and for the reference)
 * - Query head h reads key/value head floor(h * num_kv_heads / num_heads).
 * - Keys are numbered j = 0.. over all of a sequence's keys: those of the past (past_len, or the cache's) first,
 *   then the new ones. Query i of a sequence stands at position p = i + offset, which vkmha_causal and vkmha_positions
 *   choose; causal order, windows, ALiBi, relative bias and RoPE all go by p and j.
 * - The allowed keys of a query are the intersection of every mask given: causal, window, key lengths, first keys,
 *   attend_keys, and a mask tensor. A query with no allowed key gets a zero attention output (with bias_k: its
 *   value), so its row of the layer's output is W_O's bias. It is never NaN.
 * - A key that is not allowed changes no bit of the result, even if it holds NaN or Inf. Cells at or past a
 *   sequence's key length are never read by the attention kernel. An allowed NaN makes that query's row NaN.
 * - batch_size 0 or query_len 0 succeeds and writes no output. No key gives the zero rows above.
 * - Order: RoPE on query and key; scale * (q . k); softcap; minus ALiBi, plus relative bias, plus an additive mask;
 *   softmax over the allowed keys and those after all others: bias_k (scaled and softcapped, no more), the zero key
 *   (score 0) and the sink (as it is); times the head's gate; W_O.
 * - "All keys" of a plan are past_len + key_len, or with a cache its whole capacity.
 *
 * - What overflows fp32 (a product, a score) gives Inf or NaN in its rows, as fp32 does.
 *
 * Numbers: every product, score, probability and sum is fp32 on every device, and so is what one stage hands to the
 * next; fp16 and bf16 are types of storage, read and rounded alike on every device, which needs no 16-bit feature. The error bound of each
 * element is computed by the CPU reference (vkmha_reference.h) and is what the tests hold the kernels to.
 * One device, layer and kernel choice, the same input: the same bits, whatever the batch or the work limit.
 */
#ifndef VKMHA_H
#define VKMHA_H

#include <vkmha/vkmha_device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Layers ------------------------------------------------------------------------------------- */

typedef enum vkmha_type {
    VKMHA_TYPE_F32 = 0,
    VKMHA_TYPE_F16,
    VKMHA_TYPE_BF16,
} vkmha_type;

/* A read-only matrix in host memory: element (r, c) is data[r * row_stride + c * column_stride]. */
typedef struct vkmha_matrix {
    const void *data; /* NULL: absent. Need not be aligned. */
    vkmha_type type;  /* converted exactly to fp32 */
    uint64_t rows;    /* out features */
    uint64_t columns; /* in features */
    uint64_t row_stride;    /* 0: `columns`, as PyTorch stores [out, in] */
    uint64_t column_stride; /* 0: 1 */
} vkmha_matrix;

/* A read-only contiguous vector in host memory. */
typedef struct vkmha_vector {
    const void *data; /* NULL: absent. Need not be aligned. */
    vkmha_type type;
    uint64_t size;
} vkmha_vector;

typedef enum vkmha_rope_style {
    VKMHA_ROPE_NONE = 0,
    VKMHA_ROPE_HALF,        /* feature k turns with k + dim / 2 (Llama, GPT-NeoX) */
    VKMHA_ROPE_INTERLEAVED, /* feature 2 k turns with 2 k + 1 (GPT-J, the paper) */
} vkmha_rope_style;

/*
 * Rotary positions (Su et al. 2021): pair k of the first `dim` features (a, b) of a query or new key at position p
 * becomes (a cos - b sin, b cos + a sin) of table entry [p, k]. Past and cached keys are turned already. Positions
 * outside the table are taken as its nearer end; vkmha_run refuses those past it.
 */
typedef struct vkmha_rope {
    vkmha_rope_style style;
    uint32_t dim;           /* 0: head_dim. Even, at most head_dim; the features behind stay as they are. */
    uint32_t max_positions; /* required, at most 2^24: rows of the table */
    float base;             /* 0: 10000. Angle p * base^(-2 k / dim), in double, its cos and sin rounded to fp32. */
    const float *cos;       /* [max_positions, dim / 2], with sin, in place of base; NULL: from base */
    const float *sin;
} vkmha_rope;

/* T5's bias by bucketed distance j - p (Raffel et al. 2020, sec. 2.1), added to each head's scores. */
typedef struct vkmha_relative_bias {
    const float *table;    /* [num_heads, num_buckets]; NULL: none */
    uint32_t num_buckets;  /* at least 4; even where is_bidirectional */
    uint32_t max_distance; /* from here on, the last bucket; more than the exact buckets, at most 65536 */
    bool is_bidirectional; /* half the buckets are for keys after the query; else those share the query's own */
} vkmha_relative_bias;

typedef struct vkmha_layer_params {
    uint32_t num_heads;    /* required, at most 65535 */
    uint32_t num_kv_heads; /* 0: num_heads. Divides num_heads (grouped-query, multi-query attention). */
    uint32_t head_dim;     /* required, 1..256: features of one query or key head */
    uint32_t v_head_dim;   /* 0: head_dim. 1..256: features of one value head */
    bool has_scale;
    float scale; /* without has_scale: 1 / sqrt(head_dim). 0 is a scale: uniform weights. */

    float softcap;   /* 0: none. > 0: softcap * tanh(score / softcap) (Gemma 2) */
    vkmha_rope rope; /* as the next, a copy is kept */
    bool has_alibi;  /* minus slope[h] * |p - j| (Press et al. 2022) */
    const float *alibi_slopes; /* [num_heads]; NULL: those of the paper for num_heads */
    vkmha_relative_bias relative_bias;
    const float *sinks; /* [num_heads]: a logit in the softmax's sum that has no value (gpt-oss); NULL: none */
    /* One more key and value after all others, seen by every query, neither rotated nor biased
     * (torch.nn.MultiheadAttention): [num_kv_heads, head_dim] and [num_kv_heads, v_head_dim]; both or neither. */
    const float *bias_k;
    const float *bias_v;
    bool add_zero_attn; /* one more key and value of zeros, as above */

    /* Attention alone, no projections: the fields below, but cache_type, must be zero. */
    bool attention_only;

    uint32_t embed_dim;  /* required with projections: features of the query input */
    uint32_t key_dim;    /* 0: embed_dim. Features of the key input. */
    uint32_t value_dim;  /* 0: embed_dim. Features of the value input. */
    uint32_t output_dim; /* 0: embed_dim. Features of the output. */
    vkmha_matrix w_q;    /* [num_heads * head_dim, embed_dim] */
    vkmha_matrix w_k;    /* [num_kv_heads * head_dim, key_dim] */
    vkmha_matrix w_v;    /* [num_kv_heads * v_head_dim, value_dim] */
    vkmha_matrix w_o;    /* [output_dim, num_heads * v_head_dim] */
    vkmha_vector b_q;    /* [num_heads * head_dim], or absent, as the others */
    vkmha_vector b_k;
    vkmha_vector b_v;
    vkmha_vector b_o;
    /* How the device stores w_q..w_o (biases stay fp32). What is wider is rounded to nearest even; sums are fp32. */
    vkmha_type weight_type;
    /* Of a vkmha_cache, of past_key and past_value, present_key and present_value. Where a plan has any of them,
     * attention sees every key and value, new ones too, as this type holds them: calls chained by past and present,
     * and a cache, tell the same. */
    vkmha_type cache_type;
    uint32_t reserved[14];
} vkmha_layer_params;

/*
 * Sets {0} but num_heads, embed_dim and head_dim = embed_dim / num_heads, the usual layer.
 * Errors: INVALID_ARGUMENT where num_heads is 0 or does not divide embed_dim. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_layer_params_init(vkmha_layer_params *params, uint32_t embed_dim,
                                               uint32_t num_heads, vkmha_error *error);

/* Thread-safety: shared, immutable. */
typedef struct vkmha_layer vkmha_layer;

/*
 * Packs the weights and uploads them to the device; the host memory is not read afterwards.
 * Projections that read the same input (see vkmha_plan_params) lie in one packed matrix.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY, DEVICE_LOST. On failure *layer is NULL.
 * Ownership: the caller destroys it, after or before its plans. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_layer_create(vkmha_device *device, const vkmha_layer_params *params,
                                          vkmha_layer **layer, vkmha_error *error);

/* Releases the caller's reference; NULL is allowed. The layer lives until its last plan is gone. */
VKMHA_API void vkmha_layer_destroy(vkmha_layer *layer);

/* ---- Plans -------------------------------------------------------------------------------------- */

typedef enum vkmha_causal {
    VKMHA_CAUSAL_NONE = 0,
    VKMHA_CAUSAL_TOP_LEFT,     /* query i sees keys 0..i */
    VKMHA_CAUSAL_BOTTOM_RIGHT, /* the last query sees the last key: query i sees keys up to i + n - m, n the
                                  sequence's key length (left padding counts), m its queries */
    VKMHA_CAUSAL_OFFSET,       /* query i sees keys 0..i + offset */
} vkmha_causal;

/* The offset of p = i + offset. Causal order brings its own; this is for windows, biases and RoPE without it. Behind
 * past keys or a cache's, BOTTOM_RIGHT is where new queries stand. */
typedef enum vkmha_positions {
    VKMHA_POSITIONS_TOP_LEFT = 0, /* 0 */
    VKMHA_POSITIONS_BOTTOM_RIGHT, /* n - m, as above */
    VKMHA_POSITIONS_OFFSET,       /* position_offset, or position_offsets[b] */
} vkmha_positions;

typedef enum vkmha_mask_type {
    VKMHA_MASK_NONE = 0,
    VKMHA_MASK_ATTEND,   /* bytes: not zero = attend */
    VKMHA_MASK_ADDITIVE, /* fp32, added to the scaled score; -Inf = do not attend. +Inf and NaN are not
                               looked for: they make the query's row NaN. */
    VKMHA_MASK_ADDITIVE_F16, /* the same in fp16 */
    VKMHA_MASK_ATTEND_BITS,  /* key j is bit j % 32 of 32-bit word j / 32 of its row, 1 = attend; each row of keys
                                begins a new word */
} vkmha_mask_type;

/* The order of the tensors of attention_only layers, all of them. */
typedef enum vkmha_layout {
    VKMHA_LAYOUT_BSHD = 0, /* [batch_size, sequence, heads, features] */
    VKMHA_LAYOUT_BHSD,     /* [batch_size, heads, sequence, features] */
} vkmha_layout;

/*
 * Where a tensor's elements lie in its memory: element [b, s, h, d] at offset + b * batch + s * row + h * head + d, in
 * elements. {0}: contiguous, as `layout` says. Projected inputs and outputs have no head stride (0). With key_is_query
 * or value_is_key the tensors lie in one memory, each by its own strides: that is how packed QKV is given. Inputs
 * may repeat (stride 0) or overlap; elements of the output must not.
 */
typedef struct vkmha_strides {
    bool is_given;
    uint64_t offset;
    uint64_t batch;
    uint64_t row;
    uint64_t head;
} vkmha_strides;

/* Where a score is looked at (ONNX's qk_matmul_output_mode). */
typedef enum vkmha_scores {
    VKMHA_SCORES_NONE = 0,
    VKMHA_SCORES_SCALED, /* scale * (q . k), masked or not */
    VKMHA_SCORES_CAPPED, /* after softcap */
    VKMHA_SCORES_MASKED, /* what the softmax sees: with biases and masks; -Inf where a key is not allowed */
} vkmha_scores;

typedef struct vkmha_plan_params {
    uint64_t batch_size; /* as the lengths and totals, below 2^30 */
    uint64_t query_len;
    uint64_t key_len; /* new keys; those of past_len or the cache come before them */
    bool key_is_query; /* self-attention: the key input is the query input, and no other is given */
    bool value_is_key; /* the value input is the key input, and no other is given */
    vkmha_layout layout; /* attention_only layers; else it must be 0 */
    vkmha_strides query_strides;
    vkmha_strides key_strides;
    vkmha_strides value_strides;
    vkmha_strides output_strides;

    vkmha_causal causal;
    vkmha_positions positions; /* with causal: 0 or the same */
    int64_t position_offset;   /* VKMHA_*_OFFSET; within 2^30, as those below */
    bool has_position_offsets; /* VKMHA_*_OFFSET: one a sequence, [batch_size], in place of position_offset */
    bool has_window_left;      /* key j is allowed if j >= p - window_left */
    bool has_window_right;     /* key j is allowed if j <= p + window_right */
    uint32_t window_left; /* at most 2^31 - 1, as the next */
    uint32_t window_right;
    vkmha_mask_type mask;
    /* [batch_size, num_heads, query_len, all keys], each the full size or 1 (broadcast); contiguous */
    uint64_t mask_dims[4];
    bool has_attend_keys; /* a mask over keys, [batch_size, all keys] */
    bool has_key_lengths; /* keys of each sequence, past ones counted, [batch_size]; not with a cache or packed */
    bool has_first_keys;  /* left padding: the first key of each sequence that is there, [batch_size] */
    bool has_positions;   /* rotary positions of every query and new key are given, instead of p and j */
    bool has_head_gates;  /* a factor for each head, [num_heads]; 0 leaves the head out and saves its attention */
    bool has_gates_per_sequence; /* the same, [batch_size, num_heads], in place of has_head_gates */

    uint64_t past_len;       /* keys and values of earlier calls, given as tensors */
    bool has_present;        /* all keys and values are outputs */
    uint64_t cache_capacity; /* > 0: the new keys are appended to a vkmha_cache of this capacity, and all its keys seen */
    /* Sequences of different lengths, one after the other in tensors without a batch axis: rows cu_query_lens[b]..
     * cu_query_lens[b + 1] - 1 of total_queries belong to sequence b; query_len and key_len are the longest. Masks keep
     * their padded shapes. Not with past_len, has_present or a cache. */
    bool is_packed;
    uint64_t total_queries;
    uint64_t total_keys;
    /* How the caller's tensors are stored; with key_is_query or value_is_key, as the tensor whose memory they share.
     * What is read is exact; what is stored is rounded to nearest even, to Inf past the type's largest. */
    vkmha_type query_type;
    vkmha_type key_type;
    vkmha_type value_type;
    vkmha_type output_type;

    /* What is told besides the output, each at the memory of what is asked; none changes a bit of the output. See
     * vkmha_outputs for shapes. Where any is asked for, heads of gate 0 are computed, and left out of the output. */
    bool has_lse;
    bool has_weights;
    bool has_mean_weights; /* of the chosen heads */
    vkmha_scores scores;
    const uint32_t *chosen_heads;   /* of weights, mean weights and scores; ascending. NULL: all. Not kept. */
    uint32_t num_chosen_heads;
    const uint32_t *chosen_queries; /* the same, of each sequence's query_len */
    uint32_t num_chosen_queries;
    bool has_statistics;
    bool has_key_mass;
    bool has_contributions;  /* not with attention_only, as the next */
    bool has_gate_gradients; /* not with gates */

    uint64_t max_work_per_dispatch; /* multiply-adds; 0: the device's */
    /* Rows of the kernel table by name; NULL: chosen. project_kernel is refused where attention_only projects nothing. */
    const char *project_kernel;
    const char *attention_kernel;
    uint32_t reserved[16];
} vkmha_plan_params;

/* What one query's softmax looks like, weights as they are before gates. bias_k, the zero key and the sink count in the
 * softmax, but not here. All 0 where no key is allowed. */
typedef struct vkmha_statistics {
    float entropy;       /* -sum_j w_j log w_j, in nats */
    float max_weight;
    float mean_distance; /* sum_j w_j |p - j| */
    float previous;      /* the weight of key p - 1; 0 where it is not there or not allowed, as the next four */
    float self;          /* of key p */
    float next;          /* of key p + 1 */
    float first;         /* of the sequence's first key (first_keys[b], else 0) */
    float last;          /* of its last */
} vkmha_statistics;

typedef enum vkmha_stage {
    VKMHA_STAGE_PROJECT = 0, /* query, key and value projections */
    VKMHA_STAGE_ATTENTION,   /* softmax(scale q k^T) v of all heads, concatenated by layout */
    VKMHA_STAGE_OUTPUT,      /* W_O */
    VKMHA_NUM_STAGES,
} vkmha_stage;

typedef struct vkmha_stage_info {
    const char *kernel; /* static; NULL where the plan has no such stage */
    uint32_t dispatches;
    uint64_t work; /* multiply-adds that the stage does at most; masked keys may save some */
} vkmha_stage_info;

/* The longest chains of fp32 additions in one element, for the error bound. 0: unknown, take the worst. */
typedef struct vkmha_chains {
    uint64_t project; /* products summed into a projected element (the longest of query, key, value) */
    uint64_t score;   /* products summed into a score */
    uint64_t value;   /* weighted values (and weights) summed into an attention element */
    uint64_t rescale; /* times that a partial sum may be rescaled */
    uint64_t output;  /* products summed into an output element */
} vkmha_chains;

typedef struct vkmha_plan_info {
    uint64_t workspace_bytes; /* linear in the lengths */
    uint64_t append_bytes;    /* of keys and values that a run writes to the cache: the new ones, whatever its length */
    /* Tiles of queries x keys that attention runs, and all there are: the others are skipped by loop bounds. Where
     * lengths or offsets are known only to the run, what the longest may need. */
    uint64_t tiles;
    uint64_t all_tiles;
    uint64_t num_sequences; /* for vkmha_record: elements of buffers.sequences, as the next; 0: not used */
    uint64_t num_positions; /* of buffers.positions */
    uint64_t max_dispatch_work; /* multiply-adds of the largest dispatch */
    uint32_t num_dispatches;
    vkmha_stage_info stages[VKMHA_NUM_STAGES];
    vkmha_chains chains;
} vkmha_plan_info;

/* Thread-safety: shared, immutable. */
typedef struct vkmha_plan vkmha_plan;

/*
 * Decides everything about running `layer` with these shapes: kernels, dispatches, workspace; compiles
 * the pipelines that the device does not have yet.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (too large for the device; a kernel that it cannot run),
 * OUT_OF_MEMORY, DEVICE_LOST. On failure *plan is NULL.
 * Ownership: the caller destroys it; bindings made from it must be destroyed first.
 * Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_plan_create(vkmha_layer *layer, const vkmha_plan_params *params,
                                         vkmha_plan **plan, vkmha_error *error);

/* NULL is allowed. The GPU must be done with all that was recorded from it. */
VKMHA_API void vkmha_plan_destroy(vkmha_plan *plan);

/* Thread-safety: any thread. */
VKMHA_API void vkmha_plan_get_info(const vkmha_plan *plan, vkmha_plan_info *info);

/*
 * Writes a text of one line a stage and ends it with a NUL; cuts it where `size` is too small.
 * Returns the length of the whole text without the NUL, as snprintf does. Thread-safety: any thread.
 */
VKMHA_API size_t vkmha_plan_describe(const vkmha_plan *plan, char *text, size_t size);

/* ---- Caches ------------------------------------------------------------------------------------- */

/* Keys and values of earlier tokens on the device, for decoding. Thread-safety: one writer; a vkmha_run that uses it
 * is a writer. */
typedef struct vkmha_cache vkmha_cache;

/*
 * Room for `capacity` keys and values of each of batch_size sequences, all empty. What is appended is written in place;
 * nothing is ever moved or copied.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (too large for an allocation or binding), OUT_OF_MEMORY. On failure *cache is NULL.
 * Ownership: the caller destroys it, after or before the layer. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_cache_create(vkmha_layer *layer, uint64_t batch_size, uint64_t capacity,
                                          vkmha_cache **cache, vkmha_error *error);

/* NULL is allowed. The GPU must be done with it. */
VKMHA_API void vkmha_cache_destroy(vkmha_cache *cache);

/* Keys of sequence b; 0 for one that is not there. Thread-safety: as the cache. */
VKMHA_API uint64_t vkmha_cache_length(const vkmha_cache *cache, uint64_t b);

/*
 * Forgets the keys of sequence b from `length` on: to take back tokens, to start anew (0), or after a prefill of
 * padded prompts.
 * Errors: INVALID_ARGUMENT (no such sequence, a length over its own). Thread-safety: as the cache.
 */
VKMHA_API vkmha_status vkmha_cache_trim(vkmha_cache *cache, uint64_t b, uint64_t length, vkmha_error *error);

/* ---- Running from host memory ------------------------------------------------------------------- */

/*
 * Host tensors, contiguous. With projections: query [batch_size, query_len, embed_dim], key
 * [batch_size, key_len, key_dim], value [batch_size, key_len, value_dim]. attention_only: query
 * [batch_size, query_len, num_heads, head_dim], key [.., key_len, num_kv_heads, head_dim], value [.., key_len,
 * num_kv_heads, v_head_dim] in BSHD, the middle two swapped in BHSD. Packed: [total_queries, ..] and [total_keys, ..]
 * in place of [batch_size, length, ..]. Given strides replace these. A tensor without elements may be NULL.
 */
typedef struct vkmha_inputs {
    const void *query; /* of the plan's query_type, as the next two of theirs */
    const void *key;   /* NULL where the plan says key_is_query */
    const void *value; /* NULL where the plan says value_is_key */
    const void *mask;   /* as plan_params.mask and mask_dims say; NULL without a mask */
    const uint8_t *attend_keys; /* [batch_size, all keys], not zero = attend; NULL unless has_attend_keys */
    const int32_t *key_lengths; /* [batch_size], 0..all keys; NULL unless has_key_lengths */
    const int32_t *first_keys;  /* [batch_size], 0..all keys; NULL unless has_first_keys */
    const int32_t *position_offsets; /* [batch_size]; NULL unless has_position_offsets */
    const int32_t *query_positions;  /* [batch_size, query_len] or [total_queries]; NULL unless has_positions */
    const int32_t *key_positions;    /* [batch_size, key_len] or [total_keys]; NULL unless has_positions */
    const int32_t *cu_query_lens;    /* [batch_size + 1], from 0 to total_queries, not falling; NULL unless is_packed */
    const int32_t *cu_key_lens;      /* the same of keys */
    const float *head_gates;         /* [num_heads] or [batch_size, num_heads]; NULL without gates */
    const void *past_key;   /* [batch_size, num_kv_heads, past_len, head_dim] of cache_type, already rotated; NULL without
                               past_len */
    const void *past_value; /* [batch_size, num_kv_heads, past_len, v_head_dim] */
    struct vkmha_cache *cache; /* of the plan's layer, batch size and capacity; NULL without cache_capacity */
    const float *output_gradient; /* dL/d output, as the output without gaps; NULL without has_gate_gradients */
} vkmha_inputs;

typedef struct vkmha_outputs {
    void *output; /* of output_type: [batch_size, query_len, output_dim]; attention_only: [.., num_heads, v_head_dim] in
                     the layout */
    void *present_key;   /* [batch_size, num_kv_heads, all keys, head_dim] of cache_type, rotated; NULL without has_present */
    void *present_value; /* [batch_size, num_kv_heads, all keys, v_head_dim] */
    /* What the plan was asked to tell, contiguous; NULL where it was not. Packed: [batch_size, ..] with query_len rows too;
     * those that a sequence does not have are queries without keys. Without any query nothing is written. Columns are all
     * keys, then those of bias_k and the zero key where the layer has them; weights are 0 where a key is not allowed or not there. */
    float *lse;          /* [batch_size, num_heads, query_len]: log(sum_j exp(score_j)); -Inf where no key is allowed */
    float *weights;      /* [batch_size, chosen heads, chosen queries, columns], before gates */
    float *mean_weights; /* [batch_size, chosen queries, columns] */
    float *scores;       /* [batch_size, chosen heads, chosen queries, columns]; keys that are not there: 0, MASKED: -Inf */
    vkmha_statistics *statistics; /* [batch_size, num_heads, query_len] */
    float *key_mass;              /* [batch_size, num_heads, all keys]: sum_i w_ij */
    float *contributions;  /* [batch_size, num_heads, query_len]: |gate_h o_ih W_O^h|, o_ih a head's row of attention */
    float *gate_gradients; /* [batch_size, num_heads, query_len]: <dL/dy_i, o_ih W_O^h>. Their sum over queries is
                              dL/dgate[b, h] (Michel et al. 2019, sec. 4.1); over sequences too, dL/dgate[h]. */
    /* Optional results of the stages, for proofs; NULL: not wanted. Only with projections. Packed: [1, total, ..]. Keys and
     * values are as attention reads them: where the plan has past or present ones, rounded to cache_type. */
    float *projected_query; /* [batch_size, query_len, num_heads, head_dim] */
    float *projected_key;   /* [batch_size, key_len, num_kv_heads, head_dim] */
    float *projected_value; /* [batch_size, key_len, num_kv_heads, v_head_dim] */
    float *attention;       /* [batch_size, query_len, num_heads, v_head_dim] */
    /* Optional times on the device, VKMHA_NUM_STAGES of them; NULL: not wanted. A stage that the work limit spreads over
     * several submissions includes the gaps between them. */
    uint64_t *stage_ns;
} vkmha_outputs;

/*
 * Uploads the inputs, runs the plan, waits, downloads the outputs.
 * Errors: INVALID_ARGUMENT (a missing or superfluous tensor, a key length out of range), UNSUPPORTED (stage_ns
 * without timestamps), OUT_OF_MEMORY, DEVICE_LOST. After an error the outputs, and the cache's lengths, are as they were
 * before.
 * Ownership: all memory stays the caller's; nothing is kept. Outputs must not overlap inputs.
 * Thread-safety: any thread; calls with one plan may run at once.
 */
VKMHA_API vkmha_status vkmha_run(vkmha_plan *plan, const vkmha_inputs *inputs, const vkmha_outputs *outputs,
                                 vkmha_error *error);

#ifdef __cplusplus
}
#endif

#endif
