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
 * Numbers: every product, score, probability and sum is fp32 on every device. The error bound of each
 * element is computed by the CPU reference (vkmha_reference.h) and is what the tests hold the kernels to.
 * One device, layer and kernel choice, the same input: the same bits, whatever the batch or the work limit.
 */
#ifndef VKMHA_H
#define VKMHA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef VKMHA_API
#if defined(_WIN32) && defined(VKMHA_SHARED)
#ifdef VKMHA_BUILD
#define VKMHA_API __declspec(dllexport)
#else
#define VKMHA_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define VKMHA_API __attribute__((visibility("default")))
#else
#define VKMHA_API
#endif
#endif

/* ---- Version ------------------------------------------------------------------------------------ */

#define VKMHA_VERSION_MAJOR 0
#define VKMHA_VERSION_MINOR 1
#define VKMHA_VERSION_PATCH 0
#define VKMHA_VERSION_NUMBER(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define VKMHA_VERSION \
    VKMHA_VERSION_NUMBER(VKMHA_VERSION_MAJOR, VKMHA_VERSION_MINOR, VKMHA_VERSION_PATCH)

/* The version of the library in use, as VKMHA_VERSION_NUMBER makes it; compare it with VKMHA_VERSION.
 * Thread-safety: any thread. */
VKMHA_API uint32_t vkmha_version(void);

/* ---- Status ------------------------------------------------------------------------------------- */

typedef enum vkmha_status {
    VKMHA_OK = 0,
    VKMHA_ERROR_INVALID_ARGUMENT, /* the call is wrong: mend the named field */
    VKMHA_ERROR_UNSUPPORTED,      /* the call is right, this device or version cannot do it */
    VKMHA_ERROR_NO_DEVICE,        /* no loader, driver or fitting device: use the reference */
    VKMHA_ERROR_OUT_OF_MEMORY,    /* host or device memory: ask for less */
    VKMHA_ERROR_DEVICE_LOST,      /* the device is gone: destroy everything made from it */
    VKMHA_ERROR_FILE,             /* a file is missing, unreadable or malformed (vkmha_files.h) */
} vkmha_status;

/* One line of text: what went wrong, with the field, the value and the rule. */
typedef struct vkmha_error {
    vkmha_status status;
    char message[508];
} vkmha_error;

/* A short name, "invalid argument". Never NULL. Thread-safety: any thread. */
VKMHA_API const char *vkmha_status_name(vkmha_status status);

/* ---- Host services ------------------------------------------------------------------------------ */

typedef enum vkmha_log_level {
    VKMHA_LOG_NONE = 0,
    VKMHA_LOG_ERROR,
    VKMHA_LOG_INFO, /* the device and the kernels chosen, once each */
    VKMHA_LOG_DEBUG,
} vkmha_log_level;

/* Memory and messages. {0} is malloc and silence.
 * Thread-safety: the callbacks are called from whichever thread calls the library. */
typedef struct vkmha_host {
    void *user; /* handed to each callback */
    /* Both or neither. `allocate` returns memory aligned for any type, or NULL; it need not be zeroed. */
    void *(*allocate)(void *user, size_t bytes);
    void (*release)(void *user, void *memory);
    void (*log)(void *user, vkmha_log_level level, const char *message); /* NULL: silence */
    vkmha_log_level log_level; /* the most detailed level that is passed on */
} vkmha_host;

/* ---- Devices ------------------------------------------------------------------------------------ */

typedef enum vkmha_device_type {
    VKMHA_DEVICE_OTHER = 0,
    VKMHA_DEVICE_INTEGRATED,
    VKMHA_DEVICE_DISCRETE,
    VKMHA_DEVICE_VIRTUAL,
    VKMHA_DEVICE_SOFTWARE, /* a CPU driver such as lavapipe or SwiftShader */
} vkmha_device_type;

/* Capability bits: what faster kernels may use beyond Vulkan 1.1 core's minimum. */
enum {
    /* shuffle, vote and arithmetic operations in compute; set only after a self-test on the device */
    VKMHA_CAPABILITY_SUBGROUP = 1u << 0,
};

/* What the planner knows of a device. Filled once when a device is created. */
typedef struct vkmha_limits {
    vkmha_device_type device_type;
    uint32_t capabilities; /* VKMHA_CAPABILITY_ bits that are usable */
    uint32_t subgroup_size;
    uint32_t max_workgroup_invocations;
    uint32_t max_workgroup_size[3];
    uint32_t max_groups[3];
    uint32_t max_shared_bytes;
    uint32_t max_push_constant_bytes;
    uint32_t max_storage_buffers; /* in one shader */
    uint64_t max_storage_range_bytes;
    uint64_t max_uniform_range_bytes;
    uint64_t max_allocation_bytes;
    uint32_t storage_alignment_bytes; /* of a storage buffer's offset */
    uint32_t uniform_alignment_bytes;
    uint32_t non_coherent_atom_bytes;
    uint64_t max_loop_trips;        /* of one invocation, all loops together; 0: no limit */
    uint64_t max_work_per_dispatch; /* multiply-adds; the default by device type, or as given */
    double timestamp_period_ns;     /* 0: this queue has no timestamps */
} vkmha_limits;

typedef struct vkmha_device_info {
    char name[256];
    char driver[512]; /* name and version as the driver tells them; else its version number */
    uint32_t api_version; /* VkPhysicalDeviceProperties::apiVersion */
    uint32_t vendor_id;
    uint32_t device_id;
    vkmha_limits limits;
    char subgroup_status[128]; /* why VKMHA_CAPABILITY_SUBGROUP is set or not */
} vkmha_device_info;

/* Thread-safety: shared. Any number of threads may use one device at once. */
typedef struct vkmha_device vkmha_device;

typedef struct vkmha_device_params {
    const char *name;    /* take the first device whose name contains this text, a software one too */
    bool has_index;      /* take the device at `index` of the driver's order, a software one too */
    uint32_t index;
    bool allow_software; /* let the default choice end at a software device when there is no other */
    uint32_t disabled_capabilities; /* VKMHA_CAPABILITY_ bits to leave unused */
    uint64_t max_work_per_dispatch; /* multiply-adds; 0: the default of the device's type */
    bool force_staging; /* go through staging buffers even where device memory is host-visible */
    const vkmha_host *host; /* copied; NULL: {0} */
    uint32_t reserved[8];
} vkmha_device_params;

/*
 * Opens a device of the library's own.
 *
 * Without name or index: the first discrete device, else integrated, else virtual or other, else, where
 * allow_software, a software one.
 *
 * params: NULL means {0}.
 * Default work limit (multiply-adds a dispatch): 2^35 discrete and software, 2^31 integrated, virtual and other. A
 * dispatch of that size stays below the two seconds after which drivers reset a GPU; lower it for slower
 * parts. Larger work is cut into dispatches, and by vkmha_run into submissions, with the same bits. The least
 * that a dispatch does is one workgroup's tile (in attention: of queries with 1024 keys).
 *
 * Errors: NO_DEVICE (no loader, driver, or no device that fits), INVALID_ARGUMENT, OUT_OF_MEMORY,
 * DEVICE_LOST. On failure *device is NULL.
 * Ownership: the caller destroys it. Layers and plans hold a reference, so the order of destruction is free.
 * Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_device_create(const vkmha_device_params *params, vkmha_device **device,
                                           vkmha_error *error);

/* Releases the caller's reference; NULL is allowed. The device lives until its last layer is gone. */
VKMHA_API void vkmha_device_destroy(vkmha_device *device);

/* Thread-safety: any thread. */
VKMHA_API void vkmha_device_get_info(const vkmha_device *device, vkmha_device_info *info);

typedef struct vkmha_device_entry {
    char name[256];
    vkmha_device_type type;
    uint32_t api_version;
} vkmha_device_entry;

/*
 * Lists the devices that the drivers show, in the order of vkmha_device_params.index.
 * entries: room for *count entries, or NULL to ask for the count alone. *count: in, the room; out, how many
 * there are (not more than `room` entries are written).
 * Errors: NO_DEVICE (no loader or driver), OUT_OF_MEMORY. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_device_list(vkmha_device_entry *entries, uint32_t *count, vkmha_error *error);

typedef struct vkmha_kernel_info {
    const char *name; /* static; "attention_direct_subgroup" */
    bool usable;      /* on this device */
    bool chosen;      /* for usual shapes on this device */
    char reason[128]; /* why it is not usable; else empty */
} vkmha_kernel_info;

/* Tells about row `index` of the kernel table; false past its end. Thread-safety: any thread. */
VKMHA_API bool vkmha_device_get_kernel(const vkmha_device *device, uint32_t index, vkmha_kernel_info *info);

/*
 * Measures the device's fp32 multiply-add rate: 64 invocations a group, 16 independent chains each, 1000
 * trips, as many groups as keep it busy for 25 to 50 ms (or 65535). *flops: operations per second, two a multiply-add.
 * Errors: UNSUPPORTED (no timestamps), OUT_OF_MEMORY, DEVICE_LOST. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_device_measure_peak(vkmha_device *device, double *flops, vkmha_error *error);

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

    /* Attention alone, no projections: the fields below must be zero. */
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
    uint32_t reserved[16];
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
    uint64_t max_work_per_dispatch; /* multiply-adds; 0: the device's */
    /* Rows of the kernel table by name; NULL: chosen. project_kernel is refused where attention_only projects nothing. */
    const char *project_kernel;
    const char *attention_kernel;
    uint32_t reserved[16];
} vkmha_plan_params;

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
    const float *query;
    const float *key;   /* NULL where the plan says key_is_query */
    const float *value; /* NULL where the plan says value_is_key */
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
    const float *past_key;   /* [batch_size, num_kv_heads, past_len, head_dim], already rotated; NULL without past_len */
    const float *past_value; /* [batch_size, num_kv_heads, past_len, v_head_dim] */
    struct vkmha_cache *cache; /* of the plan's layer, batch size and capacity; NULL without cache_capacity */
} vkmha_inputs;

typedef struct vkmha_outputs {
    float *output; /* [batch_size, query_len, output_dim]; attention_only: [.., num_heads, v_head_dim] in the layout */
    float *present_key;   /* [batch_size, num_kv_heads, all keys, head_dim], rotated; NULL without has_present */
    float *present_value; /* [batch_size, num_kv_heads, all keys, v_head_dim] */
    /* Optional results of the stages, for proofs; NULL: not wanted. Only with projections. Packed: [1, total, ..]. */
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
