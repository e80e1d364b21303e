#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
    MAX_HEADER = 4096,
    MAX_TRIES = 100,
};

static uint64_t count_of(const vkmha_named_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->num_dims; i++) {
        count *= tensor->dims[i];
    }
    return count;
}

/* The length as 8 bytes, then JSON, padded so that the data is aligned. */
static size_t make_header(const vkmha_named_tensor *tensors, uint32_t count, char *header)
{
    size_t length = 8;
    uint64_t begin = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t end = begin + count_of(&tensors[i]) * sizeof(float);
        length += (size_t)snprintf(header + length, MAX_HEADER - length,
                                   "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i ? "," : "{",
                                   tensors[i].name);
        for (uint32_t axis = 0; axis < tensors[i].num_dims; axis++) {
            length += (size_t)snprintf(header + length, MAX_HEADER - length, "%s%" PRIu64,
                                       axis ? "," : "", tensors[i].dims[axis]);
        }
        length += (size_t)snprintf(header + length, MAX_HEADER - length,
                                   "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
        begin = end;
    }
    header[length++] = '}';
    while (length % 8 != 0) {
        header[length++] = ' ';
    }
    for (uint32_t i = 0; i < 8; i++) {
        header[i] = (char)((uint64_t)(length - 8) >> (8 * i));
    }
    return length;
}

/* errno tells why it is false. */
static bool write_all(FILE *stream, const vkmha_named_tensor *tensors, uint32_t count)
{
    char header[MAX_HEADER];
    const size_t length = make_header(tensors, count, header);
    bool is_written = fwrite(header, 1, length, stream) == length;
    for (uint32_t i = 0; is_written && i < count; i++) {
        const size_t size = (size_t)count_of(&tensors[i]);
        is_written = size == 0 || fwrite(tensors[i].values, sizeof(float), size, stream) == size;
    }
    return is_written && fflush(stream) == 0;
}

vkmha_status vkmha_run_write(const char *path, const vkmha_named_tensor *tensors, uint32_t count,
                             vkmha_error *error)
{
    char temporary[4096];
    FILE *stream = NULL;
    if (strlen(path) > sizeof(temporary) - sizeof(".part99")) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%.100s...: the path is too long", path);
    }
    /* The first free name beside the file: others may be another writer's. */
    for (uint32_t i = 0; i < MAX_TRIES && !stream; i++) {
        snprintf(temporary, sizeof(temporary), "%s.part%" PRIu32, path, i);
        stream = fopen(temporary, "wbx");
        if (!stream && errno != EEXIST) {
            break;
        }
    }
    if (!stream) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%s: %s", path, strerror(errno));
    }
    bool is_written = write_all(stream, tensors, count);
    int reason = errno;
    if (fclose(stream) != 0 && is_written) {
        is_written = false;
        reason = errno;
    }
    if (is_written && rename(temporary, path) != 0) {
        is_written = false;
        reason = errno;
    }
    if (!is_written) {
        remove(temporary);
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%s: %s", path, strerror(reason));
    }
    return VKMHA_OK;
}
