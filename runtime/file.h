/* An open file of tensors; what the formats fill in. */
#ifndef VKMHA_RUNTIME_FILE_H
#define VKMHA_RUNTIME_FILE_H

#include <vkmha/vkmha_files.h>

#include "host.h"

struct cJSON;

struct vkmha_file {
    vkmha_host host;
    char *path;
    const unsigned char *bytes; /* the whole file, mapped or read */
    uint64_t size;
    bool is_mapped;
    struct cJSON *header; /* names and metadata point into it */
    const struct cJSON *metadata;
    vkmha_tensor *tensors; /* sorted by name */
    uint64_t num_tensors;
    vkmha_file **shards; /* of an index */
    uint64_t num_shards;
};

/* Each takes an opened file's bytes and fills the rest. Errors: FILE, OUT_OF_MEMORY. */
vkmha_status vkmha_safetensors_parse(vkmha_file *file, vkmha_error *error) VKMHA_CHECKED;
vkmha_status vkmha_safetensors_parse_index(vkmha_file *file, vkmha_error *error) VKMHA_CHECKED;
vkmha_status vkmha_npy_parse(vkmha_file *file, vkmha_error *error) VKMHA_CHECKED;

/* vkmha_fail with the path before the reason: cut at its start where it is long, control characters
 * replaced. */
vkmha_status vkmha_file_fail(vkmha_error *error, vkmha_status status, const char *path,
                             const char *format, ...) VKMHA_PRINTF(4, 5);

/* Sorts by name; refuses two of one name. */
vkmha_status vkmha_file_sort(vkmha_file *file, vkmha_error *error) VKMHA_CHECKED;

/* Bytes of an element; 0 for VKMHA_FILE_OTHER. */
uint32_t vkmha_file_type_bytes(vkmha_file_type type);

/* *count = the product of dims, *bytes = count * element_bytes; false where 8 bytes for each
 * element, zero dims taken as one, do not fit in 63 bits: so no product of some of the dims
 * overflows later. */
bool vkmha_tensor_size(const uint64_t *dims, uint32_t num_dims, uint32_t element_bytes,
                       uint64_t *count, uint64_t *bytes);

#endif
