/*
 * vkmha: multi-head attention as Vulkan compute shaders, driven from C.
 *
 *     head_i = softmax(scale * (Q W_Q^i)(K W_K^i)^T + mask) (V W_V^i)
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
 * - The allowed keys of a query are the intersection of every mask given: causal, key lengths,
 *   attend_keys, and a mask tensor. A query with no allowed key gets a zero attention output, so its row of
 *   the layer's output is W_O's bias. It is never NaN.
 * - A key that is not allowed changes no bit of the result, even if it holds NaN or Inf. Cells at or past a
 *   sequence's key length are never read by the attention kernel. An allowed NaN makes that query's row NaN.
 * - batch_size 0 or query_len 0 succeeds and writes nothing. key_len 0 gives the zero rows above.
 * - Scores are scale * (q . k), then an additive mask is added, then the softmax is taken.
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

typedef struct vkmha_layer_params {
    uint32_t num_heads;    /* required */
    uint32_t num_kv_heads; /* 0: num_heads. Divides num_heads (grouped-query, multi-query attention). */
    uint32_t head_dim;     /* required, 1..256: features of one query or key head */
    uint32_t v_head_dim;   /* 0: head_dim. 1..256: features of one value head */
    bool has_scale;
    float scale; /* without has_scale: 1 / sqrt(head_dim). 0 is a scale: uniform weights. */

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
    VKMHA_CAUSAL_BOTTOM_RIGHT, /* the last query sees the last key: query i sees keys up to
                                  i + n - query_len, n the sequence's key length where given, else key_len */
} vkmha_causal;

typedef enum vkmha_mask_type {
    VKMHA_MASK_NONE = 0,
    VKMHA_MASK_ATTEND,   /* bytes: not zero = attend */
    VKMHA_MASK_ADDITIVE, /* fp32, added to the scaled score; -Inf = do not attend. +Inf and NaN are not
                               looked for: they make the query's row NaN. */
} vkmha_mask_type;

/* The order of the tensors of attention_only layers, all of them. */
typedef enum vkmha_layout {
    VKMHA_LAYOUT_BSHD = 0, /* [batch_size, sequence, heads, features] */
    VKMHA_LAYOUT_BHSD,     /* [batch_size, heads, sequence, features] */
} vkmha_layout;

typedef struct vkmha_plan_params {
    uint64_t batch_size;
    uint64_t query_len;
    uint64_t key_len;
    bool key_is_query; /* self-attention: the key input is the query input, and no other is given */
    bool value_is_key; /* the value input is the key input, and no other is given */
    vkmha_layout layout; /* attention_only layers; else it must be 0 */
    vkmha_causal causal;
    vkmha_mask_type mask;
    /* [batch_size, num_heads, query_len, key_len], each the full size or 1 (broadcast); contiguous */
    uint64_t mask_dims[4];
    bool has_attend_keys; /* a mask over keys, [batch_size, key_len] */
    bool has_key_lengths; /* lengths, [batch_size] */
    uint64_t max_work_per_dispatch; /* multiply-adds; 0: the device's */
    /* Rows of the kernel table by name; NULL: chosen. An attention_only plan has no projections to choose for. */
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

/* ---- Running from host memory ------------------------------------------------------------------- */

/*
 * Host tensors, contiguous. With projections: query [batch_size, query_len, embed_dim], key
 * [batch_size, key_len, key_dim], value [batch_size, key_len, value_dim]. attention_only: query
 * [batch_size, query_len, num_heads, head_dim], key [.., key_len, num_kv_heads, head_dim], value [.., key_len,
 * num_kv_heads, v_head_dim] in BSHD, the middle two swapped in BHSD. A tensor without elements may be NULL.
 */
typedef struct vkmha_inputs {
    const float *query;
    const float *key;   /* NULL where the plan says key_is_query */
    const float *value; /* NULL where the plan says value_is_key */
    const void *mask;   /* as plan_params.mask and mask_dims say; NULL without a mask */
    const uint8_t *attend_keys; /* [batch_size, key_len], not zero = attend; NULL unless has_attend_keys */
    const int32_t *key_lengths; /* [batch_size], 0..key_len; NULL unless has_key_lengths */
} vkmha_inputs;

typedef struct vkmha_outputs {
    float *output; /* [batch_size, query_len, output_dim]; attention_only: [.., num_heads, v_head_dim] in the layout */
    /* Optional results of the stages, for proofs; NULL: not wanted. Only with projections. */
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
 * without timestamps), OUT_OF_MEMORY, DEVICE_LOST. After an error the outputs are as they were before.
 * Ownership: all memory stays the caller's; nothing is kept. Outputs must not overlap inputs.
 * Thread-safety: any thread; calls with one plan may run at once.
 */
VKMHA_API vkmha_status vkmha_run(vkmha_plan *plan, const vkmha_inputs *inputs, const vkmha_outputs *outputs,
                                 vkmha_error *error);

#ifdef __cplusplus
}
#endif

#endif
