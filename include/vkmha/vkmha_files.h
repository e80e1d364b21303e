/*
 * Files in: safetensors (single, or sharded by an index.json), .npy, and checkpoints by the names that real
 * models use. A companion library, vkmha_files, so that vkmha itself needs no JSON parser.
 * Files are hostile until checked: no size or offset read from a file is used before it is checked against the file.
 */
#ifndef VKMHA_FILES_H
#define VKMHA_FILES_H

#include <vkmha/vkmha.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VKMHA_MAX_TENSOR_DIMS 8

typedef enum vkmha_file_type {
    VKMHA_FILE_F32 = 0,
    VKMHA_FILE_F16,
    VKMHA_FILE_BF16,
    VKMHA_FILE_F64,
    VKMHA_FILE_U8,
    VKMHA_FILE_BOOL,
    VKMHA_FILE_I32,
    VKMHA_FILE_I64,
    VKMHA_FILE_OTHER, /* known to the format, of no use here; the data can still be found */
} vkmha_file_type;

/* A tensor inside an open file; all pointers belong to the file and live as long as it is open. */
typedef struct vkmha_tensor {
    const char *name;
    vkmha_file_type type;
    uint32_t num_dims;
    uint64_t dims[VKMHA_MAX_TENSOR_DIMS];
    uint64_t count;   /* elements */
    const void *data; /* row-major, little-endian; not aligned */
    uint64_t size_bytes;
} vkmha_tensor;

/* An open .safetensors file, or an index.json with its shards, or a .npy file (one tensor named "").
 * Thread-safety: shared, immutable. */
typedef struct vkmha_file vkmha_file;

/*
 * Opens `path`; the format is told by its content (safetensors, npy) or by its name (.json: an index).
 * host: NULL means {0}; the JSON parser's memory is malloc's.
 * Errors: INVALID_ARGUMENT, FILE (which file and why), OUT_OF_MEMORY. On failure *file is NULL.
 * Ownership: the caller closes it, after the last use of its tensors.
 */
VKMHA_API vkmha_status vkmha_file_open(const char *path, const vkmha_host *host, vkmha_file **file,
                                       vkmha_error *error);

/* NULL is allowed. */
VKMHA_API void vkmha_file_close(vkmha_file *file);

VKMHA_API uint64_t vkmha_file_num_tensors(const vkmha_file *file);

/* index < vkmha_file_num_tensors(file), sorted by name. */
VKMHA_API const vkmha_tensor *vkmha_file_tensor(const vkmha_file *file, uint64_t index);

/* NULL where there is no such tensor. */
VKMHA_API const vkmha_tensor *vkmha_file_find(const vkmha_file *file, const char *name);

/* A value of safetensors' __metadata__, or NULL. */
VKMHA_API const char *vkmha_file_metadata(const vkmha_file *file, const char *key);

/* Converts to fp32: F32, F16, BF16 exactly, F64 rounded. `values` has room for tensor->count.
 * Errors: FILE (another type). */
VKMHA_API vkmha_status vkmha_tensor_to_f32(const vkmha_tensor *tensor, float *values, vkmha_error *error);

/*
 * Writes one fp32 tensor, through a temporary file that is renamed, so that `path` holds all of it or what it held before:
 * a .safetensors file (tensor "output") where the name ends so, else .npy.
 * Errors: INVALID_ARGUMENT, FILE.
 */
VKMHA_API vkmha_status vkmha_file_write(const char *path, const float *values, const uint64_t *dims,
                                        uint32_t num_dims, vkmha_error *error);

typedef struct vkmha_checkpoint_params {
    const char *prefix; /* of the layer's tensors, "encoder.layer.0.attention"; NULL or "": the only layer in the file */
    uint32_t num_heads; /* 0: told by the file (vkmha metadata "num_heads"), or where head_dim is given */
    uint32_t num_kv_heads; /* 0: from the shapes */
    uint32_t head_dim;     /* 0: from the shapes and num_heads */
    uint32_t reserved[8];
} vkmha_checkpoint_params;

/*
 * Finds the attention weights of one layer by the names of BERT and MiniLM (self.query, self.key, self.value,
 * output.dense), torch.nn.MultiheadAttention (in_proj_weight or q_proj_weight.., out_proj), Llama (q_proj, k_proj, v_proj,
 * o_proj) and GPT-2 (c_attn, c_proj: fused and transposed), with their biases, and fills *layer with views into the
 * file: no copy.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (a layer that vkmha_layer_params cannot say), FILE (no such prefix: the message lists those found; wrong shapes or types).
 * Ownership: *layer points into `file`, which must stay open until the layer is created.
 */
VKMHA_API vkmha_status vkmha_checkpoint_layer(const vkmha_file *file, const vkmha_checkpoint_params *params,
                                              vkmha_layer_params *layer, vkmha_error *error);

#ifdef __cplusplus
}
#endif

#endif
