#ifndef _WIN32
#define _POSIX_C_SOURCE 200809L
#endif

#include "file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#ifdef _WIN32
#include <io.h>
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include "convert.h"

/* ---- Messages -------------------------------------------------------------------------------- */

vkmha_status vkmha_file_fail(vkmha_error *error, vkmha_status status, const char *path,
                             const char *format, ...)
{
    if (!error) {
        return status;
    }
    char reason[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    const size_t length = strlen(path);
    const size_t room = sizeof(error->message) - sizeof("...: ") - strlen(reason);
    const char *tail = length > room ? path + length - room : path;
    while (tail > path && ((unsigned char)*tail & 0xc0) == 0x80) {
        tail++; /* not from the middle of a UTF-8 sequence */
    }
    vkmha_fail(error, status, "%s%s: %s", tail == path ? "" : "...", tail, reason);
    /* Names come from the file: they must not break the line or steer a terminal. */
    for (char *c = error->message; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    return status;
}

static vkmha_status cannot(const char *path, const char *action, vkmha_error *error)
{
    return vkmha_file_fail(error, VKMHA_ERROR_FILE, path, "cannot %s: %s", action,
                           strerror(errno ? errno : EIO));
}

/* ---- What the systems do differently --------------------------------------------------------- */

#ifdef _WIN32
static vkmha_status read_bytes(vkmha_file *file, vkmha_error *error)
{
    FILE *stream = fopen(file->path, "rb");
    if (!stream) {
        return cannot(file->path, "open", error);
    }
    vkmha_status status = VKMHA_OK;
    unsigned char *bytes = NULL;
    if (_fseeki64(stream, 0, SEEK_END) != 0) {
        status = cannot(file->path, "seek", error);
    } else {
        file->size = (uint64_t)_ftelli64(stream);
        rewind(stream);
        errno = 0;
        bytes = vkmha_host_allocate(&file->host, file->size, 1);
        if (!bytes) {
            status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
        } else if (fread(bytes, 1, (size_t)file->size, stream) != file->size) {
            status = cannot(file->path, "read", error);
        }
    }
    fclose(stream);
    file->bytes = bytes;
    return status;
}

static void release_bytes(vkmha_file *file)
{
    vkmha_host_release(&file->host, (void *)file->bytes);
}

/* Whether `path` names what must not be replaced by a file: a folder, a device, a pipe. */
static bool is_special(const char *path)
{
    const DWORD attributes = GetFileAttributesA(path);
    return attributes != INVALID_FILE_ATTRIBUTES &&
           (attributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE)) != 0;
}

static bool flush_to_disk(FILE *stream)
{
    return fflush(stream) == 0 && _commit(_fileno(stream)) == 0;
}

static bool replace_file(const char *from, const char *to)
{
    errno = EACCES;
    return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) != 0;
}
#else
/* Mapped, not read: a checkpoint may be larger than memory. */
static vkmha_status read_bytes(vkmha_file *file, vkmha_error *error)
{
    /* Not blocking: a pipe is refused below, not waited for. */
    const int descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return cannot(file->path, "open", error);
    }
    vkmha_status status = VKMHA_OK;
    struct stat info;
    if (fstat(descriptor, &info) != 0) {
        status = cannot(file->path, "stat", error);
    } else if (!S_ISREG(info.st_mode)) {
        status = vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path, "not a regular file");
    } else if ((uintmax_t)info.st_size > SIZE_MAX) {
        status =
            vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path, "larger than the address space");
    } else if (info.st_size > 0) {
        file->size = (uint64_t)info.st_size;
        void *mapping = mmap(NULL, (size_t)file->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (mapping == MAP_FAILED) {
            status = cannot(file->path, "map", error);
        } else {
            file->bytes = mapping;
            file->is_mapped = true;
        }
    }
    close(descriptor);
    return status;
}

static void release_bytes(vkmha_file *file)
{
    if (file->is_mapped) {
        munmap((void *)file->bytes, (size_t)file->size);
    }
}

/* Whether `path` names what must not be replaced by a file: a folder, a device, a pipe. */
static bool is_special(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

static bool flush_to_disk(FILE *stream)
{
    return fflush(stream) == 0 && fsync(fileno(stream)) == 0;
}

static bool replace_file(const char *from, const char *to)
{
    return rename(from, to) == 0;
}
#endif

/* ---- Opening --------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text);
    const size_t end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static vkmha_status parse(vkmha_file *file, vkmha_error *error)
{
    if (file->size == 0) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path, "the file is empty");
    }
    if (ends_with(file->path, ".json")) {
        return vkmha_safetensors_parse_index(file, error);
    }
    if (ends_with(file->path, ".npy") ||
        (file->size >= 6 && memcmp(file->bytes, "\x93NUMPY", 6) == 0)) {
        return vkmha_npy_parse(file, error);
    }
    return vkmha_safetensors_parse(file, error);
}

vkmha_status vkmha_file_open(const char *path, const vkmha_host *host, vkmha_file **file,
                             vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!file) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "file is NULL");
    }
    *file = NULL;
    if (!path) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "path is NULL");
    }
    vkmha_host services;
    vkmha_status status = vkmha_host_init(&services, host, error);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_file *made = vkmha_host_allocate(&services, 1, sizeof(*made));
    if (!made) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    made->host = services;
    made->path = vkmha_host_allocate(&services, strlen(path) + 1, 1);
    if (!made->path) {
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    } else {
        strcpy(made->path, path);
        status = read_bytes(made, error);
    }
    if (status == VKMHA_OK) {
        status = parse(made, error);
    }
    if (status != VKMHA_OK) {
        vkmha_file_close(made);
        return status;
    }
    *file = made;
    return VKMHA_OK;
}

void vkmha_file_close(vkmha_file *file)
{
    if (!file) {
        return;
    }
    for (uint64_t i = 0; i < file->num_shards; i++) {
        vkmha_file_close(file->shards[i]);
    }
    const vkmha_host host = file->host;
    release_bytes(file);
    cJSON_Delete(file->header);
    vkmha_host_release(&host, file->shards);
    vkmha_host_release(&host, file->tensors);
    vkmha_host_release(&host, file->path);
    vkmha_host_release(&host, file);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

uint32_t vkmha_file_type_bytes(vkmha_file_type type)
{
    switch (type) {
    case VKMHA_FILE_F64:
    case VKMHA_FILE_I64:
        return 8;
    case VKMHA_FILE_F32:
    case VKMHA_FILE_I32:
        return 4;
    case VKMHA_FILE_F16:
    case VKMHA_FILE_BF16:
        return 2;
    case VKMHA_FILE_U8:
    case VKMHA_FILE_BOOL:
        return 1;
    case VKMHA_FILE_OTHER:
        break;
    }
    return 0;
}

bool vkmha_tensor_size(const uint64_t *dims, uint32_t num_dims, uint32_t element_bytes,
                       uint64_t *count, uint64_t *bytes)
{
    uint64_t product = 1;
    bool is_empty = false;
    for (uint32_t i = 0; i < num_dims; i++) {
        const uint64_t dim = dims[i] ? dims[i] : 1;
        is_empty = is_empty || dims[i] == 0;
        if (dim > (uint64_t)INT64_MAX / 8 / product) {
            return false;
        }
        product *= dim;
    }
    *count = is_empty ? 0 : product;
    *bytes = *count * element_bytes;
    return true;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(((const vkmha_tensor *)left)->name, ((const vkmha_tensor *)right)->name);
}

vkmha_status vkmha_file_sort(vkmha_file *file, vkmha_error *error)
{
    qsort(file->tensors, (size_t)file->num_tensors, sizeof(vkmha_tensor), compare_names);
    for (uint64_t i = 1; i < file->num_tensors; i++) {
        if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0) {
            return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                   "two tensors are called \"%.200s\"", file->tensors[i].name);
        }
    }
    return VKMHA_OK;
}

uint64_t vkmha_file_num_tensors(const vkmha_file *file)
{
    return file->num_tensors;
}

const vkmha_tensor *vkmha_file_tensor(const vkmha_file *file, uint64_t index)
{
    return index < file->num_tensors ? &file->tensors[index] : NULL;
}

const vkmha_tensor *vkmha_file_find(const vkmha_file *file, const char *name)
{
    const vkmha_tensor key = {.name = name};
    return file->num_tensors == 0 ? NULL
                                  : bsearch(&key, file->tensors, (size_t)file->num_tensors,
                                            sizeof(vkmha_tensor), compare_names);
}

const char *vkmha_file_metadata(const vkmha_file *file, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(file->metadata, key);
    return value ? value->valuestring : NULL;
}

vkmha_status vkmha_tensor_to_f32(const vkmha_tensor *tensor, float *values, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!tensor || (!values && tensor->count > 0)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL",
                          tensor ? "values" : "tensor");
    }
    vkmha_type type = VKMHA_TYPE_F32;
    switch (tensor->type) {
    case VKMHA_FILE_F32:
        break;
    case VKMHA_FILE_F16:
        type = VKMHA_TYPE_F16;
        break;
    case VKMHA_FILE_BF16:
        type = VKMHA_TYPE_BF16;
        break;
    case VKMHA_FILE_F64:
        for (uint64_t i = 0; i < tensor->count; i++) {
            double value;
            memcpy(&value, (const char *)tensor->data + i * sizeof(value), sizeof(value));
            values[i] = (float)value;
        }
        return VKMHA_OK;
    default:
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, "tensor",
                               "\"%.200s\" is not of a floating-point type (F32, F16, BF16, F64)",
                               tensor->name);
    }
    for (uint64_t i = 0; i < tensor->count; i++) {
        values[i] = vkmha_load_element(tensor->data, type, i);
    }
    return VKMHA_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void list_dims(const uint64_t *dims, uint32_t num_dims, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < num_dims; i++) {
        length +=
            (size_t)snprintf(text + length, size - length, "%s%" PRIu64, i ? ", " : "", dims[i]);
    }
}

/* The header of one fp32 tensor; the data follow. */
static size_t make_header(bool is_safetensors, const uint64_t *dims, uint32_t num_dims,
                          uint64_t bytes, char *header, size_t size)
{
    char shape[256];
    list_dims(dims, num_dims, shape, sizeof(shape));
    const size_t start = is_safetensors ? 8 : 10;
    int length = is_safetensors
                     ? snprintf(header + start, size - start,
                                "{\"output\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,"
                                "%" PRIu64 "]}}",
                                shape, bytes)
                     : snprintf(header + start, size - start,
                                "{'descr': '<f4', 'fortran_order': False, 'shape': (%s%s), }",
                                shape, num_dims == 1 ? "," : "");
    /* Both formats want the data aligned: numpy to 64 bytes with a line's end, safetensors to 8. */
    const size_t alignment = is_safetensors ? 8 : 64;
    size_t end = start + (size_t)length;
    while ((end + !is_safetensors) % alignment != 0) {
        header[end++] = ' ';
    }
    if (!is_safetensors) {
        header[end++] = '\n';
        memcpy(header, "\x93NUMPY\x01\x00", 8);
        header[8] = (char)((end - start) & 0xff);
        header[9] = (char)((end - start) >> 8);
    } else {
        for (uint32_t i = 0; i < 8; i++) {
            header[i] = (char)((uint64_t)(end - start) >> (8 * i));
        }
    }
    return end;
}

/* Creates `path`, which must not exist, with all of the bytes, or leaves nothing. */
static bool write_new(const char *path, const void *header, size_t header_bytes, const void *data,
                      size_t bytes)
{
    errno = 0;
    FILE *stream = fopen(path, "wbx");
    if (!stream) {
        return false;
    }
    bool is_written = fwrite(header, 1, header_bytes, stream) == header_bytes &&
                      (bytes == 0 || fwrite(data, 1, bytes, stream) == bytes) &&
                      flush_to_disk(stream);
    int reason = errno;
    if (fclose(stream) != 0 && is_written) {
        is_written = false;
        reason = errno;
    }
    if (!is_written) {
        remove(path);
    }
    errno = reason;
    return is_written;
}

vkmha_status vkmha_file_write(const char *path, const float *values, const uint64_t *dims,
                              uint32_t num_dims, vkmha_error *error)
{
    vkmha_error_clear(error);
    char temporary[4096];
    if (!path || (num_dims > 0 && !dims)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL",
                          path ? "dims" : "path");
    }
    if (path[0] == '\0' || strlen(path) > sizeof(temporary) - sizeof(".part99")) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "path has %zu bytes, not 1..%zu",
                          strlen(path), sizeof(temporary) - sizeof(".part99"));
    }
    if (num_dims > VKMHA_MAX_TENSOR_DIMS) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "num_dims %" PRIu32 " exceeds %d",
                          num_dims, VKMHA_MAX_TENSOR_DIMS);
    }
    uint64_t count = 0;
    uint64_t bytes = 0;
    if (!vkmha_tensor_size(dims, num_dims, sizeof(float), &count, &bytes) || bytes > SIZE_MAX) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "dims: their product is too large");
    }
    if (count > 0 && !values) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "values is NULL");
    }
    if (is_special(path)) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, path, "not a regular file");
    }
    char header[1024];
    const size_t header_bytes =
        make_header(ends_with(path, ".safetensors"), dims, num_dims, bytes, header, sizeof(header));
    /* The first free name beside the file: others may be another writer's, or left by a crash. */
    bool is_written = false;
    for (uint32_t i = 0; i < 100 && !is_written; i++) {
        snprintf(temporary, sizeof(temporary), "%s.part%" PRIu32, path, i);
        is_written = write_new(temporary, header, header_bytes, values, (size_t)bytes);
        if (!is_written && errno != EEXIST) {
            break;
        }
    }
    if (!is_written) {
        return cannot(path, "write the file beside it that is to replace it", error);
    }
    if (!replace_file(temporary, path)) {
        vkmha_status status = cannot(path, "replace", error);
        remove(temporary);
        return status;
    }
    return VKMHA_OK;
}
