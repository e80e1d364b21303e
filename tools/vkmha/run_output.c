#include "run.h"
#include "writer.h"

#include <inttypes.h>

#include "runtime/convert.h"

enum {
    MAX_HEADER = 4096,
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
    static const char *const dtypes[] = {"F32", "F16", "BF16"}; /* in the order of vkmha_type */
    size_t length = 8;
    uint64_t begin = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t end = begin + count_of(&tensors[i]) * vkmha_type_bytes(tensors[i].type);
        length += (size_t)snprintf(header + length, MAX_HEADER - length,
                                   "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "{",
                                   tensors[i].name, dtypes[tensors[i].type]);
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

static void write_elements(const vkmha_named_tensor *tensor, vkmha_writer *writer)
{
    const uint64_t count = count_of(tensor);
    for (uint64_t i = 0; i < count; i++) {
        char element[sizeof(float)];
        vkmha_store_element(element, tensor->type, 0, tensor->values[i]);
        fwrite(element, vkmha_type_bytes(tensor->type), 1, writer->stream);
    }
}

vkmha_status vkmha_run_write(const char *path, const vkmha_named_tensor *tensors, uint32_t count,
                             vkmha_error *error)
{
    vkmha_writer writer;
    vkmha_status status = vkmha_writer_open(path, &writer, error);
    if (status == VKMHA_OK) {
        char header[MAX_HEADER];
        fwrite(header, 1, make_header(tensors, count, header), writer.stream);
        for (uint32_t i = 0; i < count; i++) {
            write_elements(&tensors[i], &writer);
        }
        status = vkmha_writer_commit(&writer, error);
    }
    return status;
}
