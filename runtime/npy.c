/* The .npy format, versions 1 to 3: a Python literal of three known keys, then the data. */
#include "file.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    vkmha_file_type type;
} descriptions[] = {
    {"<f4", VKMHA_FILE_F32}, {"<f2", VKMHA_FILE_F16},  {"<f8", VKMHA_FILE_F64},
    {"|u1", VKMHA_FILE_U8},  {"|b1", VKMHA_FILE_BOOL}, {"<i4", VKMHA_FILE_I32},
    {"<i8", VKMHA_FILE_I64},
};

static const char not_numpy[] = "its header is not the dictionary that numpy writes";

/* A cursor over the header; `fault` is set at the first error. */
typedef struct vkmha_npy_text {
    const char *at;
    const char *end;
    const char *fault;
} vkmha_npy_text;

static void skip_spaces(vkmha_npy_text *text)
{
    while (text->at < text->end && strchr(" \t\n", *text->at) && *text->at != '\0') {
        text->at++;
    }
}

static bool accept(vkmha_npy_text *text, const char *token)
{
    skip_spaces(text);
    const size_t length = strlen(token);
    if ((size_t)(text->end - text->at) < length || memcmp(text->at, token, length) != 0) {
        return false;
    }
    text->at += length;
    return true;
}

static void expect(vkmha_npy_text *text, const char *token)
{
    if (!text->fault && !accept(text, token)) {
        text->fault = not_numpy;
    }
}

static void read_description(vkmha_npy_text *text, vkmha_file_type *type)
{
    for (size_t i = 0; i < sizeof(descriptions) / sizeof(descriptions[0]); i++) {
        char quoted[8] = {'\'', 0};
        strcat(quoted, descriptions[i].name);
        strcat(quoted, "'");
        if (accept(text, quoted)) {
            *type = descriptions[i].type;
            return;
        }
    }
    text->fault = "its descr is not one of <f4 <f2 <f8 |u1 |b1 <i4 <i8";
}

static void read_order(vkmha_npy_text *text)
{
    if (accept(text, "True")) {
        text->fault = "fortran_order True is not supported: save it in C order";
    } else {
        expect(text, "False");
    }
}

static void read_shape(vkmha_npy_text *text, vkmha_tensor *tensor)
{
    expect(text, "(");
    while (!text->fault && !accept(text, ")")) {
        uint64_t size = 0;
        skip_spaces(text);
        const char *first = text->at;
        while (text->at < text->end && *text->at >= '0' && *text->at <= '9' &&
               text->at - first < 18) {
            size = size * 10 + (uint64_t)(*text->at++ - '0');
        }
        if (text->at == first || tensor->num_dims == VKMHA_MAX_TENSOR_DIMS) {
            text->fault = "its shape is not a tuple of at most 8 sizes";
            return;
        }
        tensor->dims[tensor->num_dims++] = size;
        if (!accept(text, ",")) {
            /* One size needs its comma: (3) is no tuple. */
            expect(text, tensor->num_dims == 1 ? "," : ")");
            return;
        }
    }
}

static const char *read_header(const char *header, uint64_t size, vkmha_tensor *tensor)
{
    vkmha_npy_text text = {header, header + size, NULL};
    bool has_description = false;
    bool has_order = false;
    bool has_shape = false;
    expect(&text, "{");
    while (!text.fault && !accept(&text, "}")) {
        if (!has_description && accept(&text, "'descr':")) {
            has_description = true;
            read_description(&text, &tensor->type);
        } else if (!has_order && accept(&text, "'fortran_order':")) {
            has_order = true;
            read_order(&text);
        } else if (!has_shape && accept(&text, "'shape':")) {
            has_shape = true;
            read_shape(&text, tensor);
        } else {
            text.fault = not_numpy;
        }
        if (!text.fault && !accept(&text, ",")) {
            expect(&text, "}");
            break;
        }
    }
    skip_spaces(&text);
    if (!text.fault && (text.at != text.end || !has_description || !has_order || !has_shape)) {
        text.fault = not_numpy;
    }
    return text.fault;
}

vkmha_status vkmha_npy_parse(vkmha_file *file, vkmha_error *error)
{
    const unsigned char *bytes = file->bytes;
    if (file->size < 8 || memcmp(bytes, "\x93NUMPY", 6) != 0) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "not a .npy file: it does not begin as one");
    }
    const uint32_t major = bytes[6];
    const uint64_t start = major == 1 ? 10 : 12;
    if (major < 1 || major > 3 || bytes[7] != 0 || file->size < start) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "%" PRIu64 " bytes of .npy version %" PRIu32
                               ".%d: not a whole file of version 1.0, 2.0 or 3.0",
                               file->size, major, bytes[7]);
    }
    uint64_t header_bytes = bytes[8] | (uint64_t)bytes[9] << 8;
    if (major > 1) {
        header_bytes |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
    }
    if (header_bytes > file->size - start) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "its header length %" PRIu64 " exceeds the file", header_bytes);
    }
    file->tensors = vkmha_host_allocate(&file->host, 1, sizeof(vkmha_tensor));
    if (!file->tensors) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    vkmha_tensor *tensor = file->tensors;
    tensor->name = "";
    const char *fault = read_header((const char *)bytes + start, header_bytes, tensor);
    if (fault) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path, "%s", fault);
    }
    const uint64_t data_bytes = file->size - start - header_bytes;
    if (!vkmha_tensor_size(tensor->dims, tensor->num_dims, vkmha_file_type_bytes(tensor->type),
                           &tensor->count, &tensor->size_bytes)) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "the product of its shape is too large");
    }
    if (tensor->size_bytes != data_bytes) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "it has %" PRIu64 " bytes of data, its shape needs %" PRIu64,
                               data_bytes, tensor->size_bytes);
    }
    tensor->data = bytes + start + header_bytes;
    file->num_tensors = 1;
    return VKMHA_OK;
}
