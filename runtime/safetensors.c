/* The safetensors format: 8 bytes of header length, a JSON header, data. Everything is checked before it is used. */
#include "file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

/* The limit of the format's own implementation. */
#define MAX_HEADER_BYTES UINT64_C(100000000)

static const struct {
    const char *name;
    vkmha_file_type type;
    uint32_t bytes;
} dtypes[] = {
    {"F32", VKMHA_FILE_F32, 4},      {"F16", VKMHA_FILE_F16, 2},     {"BF16", VKMHA_FILE_BF16, 2},
    {"F64", VKMHA_FILE_F64, 8},      {"U8", VKMHA_FILE_U8, 1},       {"BOOL", VKMHA_FILE_BOOL, 1},
    {"I32", VKMHA_FILE_I32, 4},      {"I64", VKMHA_FILE_I64, 8},     {"I8", VKMHA_FILE_OTHER, 1},
    {"I16", VKMHA_FILE_OTHER, 2},    {"U16", VKMHA_FILE_OTHER, 2},   {"U32", VKMHA_FILE_OTHER, 4},
    {"U64", VKMHA_FILE_OTHER, 8},    {"F8_E4M3", VKMHA_FILE_OTHER, 1}, {"F8_E5M2", VKMHA_FILE_OTHER, 1},
};

static uint64_t read_length(const unsigned char *bytes)
{
    uint64_t length = 0;
    for (uint32_t i = 0; i < 8; i++) {
        length |= (uint64_t)bytes[i] << (8 * i);
    }
    return length;
}

/* ---- The text, before the JSON parser sees it ----------------------------------------------------------- */

/* Bytes of the UTF-8 sequence at `text`, or 0 where it is malformed, overlong or a surrogate. */
static uint32_t utf8_bytes(const unsigned char *text, uint64_t left)
{
    const unsigned char lead = text[0];
    if (lead < 0x80) {
        return 1;
    }
    const uint32_t count = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || count > left) {
        return 0;
    }
    for (uint32_t i = 1; i < count; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    const bool is_bad = (lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f) ||
                        (lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f);
    return is_bad ? 0 : count;
}

/* What the JSON parser would let pass: bad UTF-8, a NUL in a name, numbers that are not written as integers. */
static const char *find_fault(const unsigned char *text, uint64_t size)
{
    bool in_string = false;
    for (uint64_t i = 0; i < size;) {
        const uint32_t count = utf8_bytes(text + i, size - i);
        if (count == 0) {
            return "the header is not UTF-8";
        }
        const unsigned char c = text[i];
        if (c == 0) {
            return "the header holds a NUL";
        }
        if (in_string && c == '\\') {
            if (size - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) {
                return "the header holds a NUL";
            }
            i += 2; /* the escaped character is ASCII, or the parser refuses it */
            continue;
        }
        if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == '.' || c == 'e' || c == 'E') && i > 0 && text[i - 1] >= '0' &&
                   text[i - 1] <= '9') {
            return "the header holds a number that is no integer";
        }
        i += count;
    }
    return NULL;
}

static vkmha_status parse_json(vkmha_file *file, const unsigned char *text, uint64_t size,
                               vkmha_error *error)
{
    const char *fault = find_fault(text, size);
    if (fault) {
        return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: %s", file->path, fault);
    }
    const char *end = NULL;
    file->header = cJSON_ParseWithLengthOpts((const char *)text, (size_t)size, &end, 0);
    if (!file->header || !cJSON_IsObject(file->header)) {
        return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: the header is not a JSON object",
                          file->path);
    }
    for (const char *rest = end; rest < (const char *)text + size; rest++) {
        if (!strchr(" \t\r\n", *rest)) {
            return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: the header goes on after its JSON object",
                              file->path);
        }
    }
    return VKMHA_OK;
}

/* ---- Entries ------------------------------------------------------------------------------------------- */

/* A whole number of at most 2^53, which a double holds exactly. */
static bool read_integer(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0) || item->valuedouble > 0x1p53) {
        return false;
    }
    *value = (uint64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

static vkmha_status check_metadata(vkmha_file *file, const cJSON *metadata, vkmha_error *error)
{
    if (!cJSON_IsObject(metadata)) {
        return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: __metadata__ is not an object", file->path);
    }
    const cJSON *value;
    cJSON_ArrayForEach(value, metadata)
    {
        if (!cJSON_IsString(value)) {
            return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: __metadata__ \"%.100s\" is not a text",
                              file->path, value->string);
        }
    }
    file->metadata = metadata;
    return VKMHA_OK;
}

static vkmha_status bad_entry(const vkmha_file *file, const char *name, const char *rule,
                              vkmha_error *error)
{
    return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: tensor \"%.200s\": %s", file->path, name, rule);
}

static vkmha_status parse_entry(const vkmha_file *file, const cJSON *entry, uint64_t data_start,
                                vkmha_tensor *tensor, vkmha_error *error)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    const char *name = entry->string;
    *tensor = (vkmha_tensor){.name = name};
    if (!cJSON_IsString(dtype) || !cJSON_IsArray(shape) || !cJSON_IsArray(offsets)) {
        return bad_entry(file, name, "dtype, shape or data_offsets is missing", error);
    }
    uint32_t element_bytes = 0;
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(dtypes[i].name, dtype->valuestring) == 0) {
            tensor->type = dtypes[i].type;
            element_bytes = dtypes[i].bytes;
        }
    }
    if (element_bytes == 0) {
        return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: tensor \"%.200s\": dtype \"%.20s\" is unknown",
                          file->path, name, dtype->valuestring);
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, shape)
    {
        if (tensor->num_dims == VKMHA_MAX_TENSOR_DIMS) {
            return bad_entry(file, name, "shape has more than 8 dimensions", error);
        }
        if (!read_integer(item, &tensor->dims[tensor->num_dims++])) {
            return bad_entry(file, name, "shape holds what is no integer in 0..2^53", error);
        }
    }
    uint64_t begin = 0;
    uint64_t end = 0;
    if (cJSON_GetArraySize(offsets) != 2 || !read_integer(cJSON_GetArrayItem(offsets, 0), &begin) ||
        !read_integer(cJSON_GetArrayItem(offsets, 1), &end)) {
        return bad_entry(file, name, "data_offsets is not two integers in 0..2^53", error);
    }
    if (begin > end || end > file->size - data_start) {
        return bad_entry(file, name, "data_offsets lie outside the file's data", error);
    }
    if (!vkmha_tensor_size(tensor->dims, tensor->num_dims, element_bytes, &tensor->count,
                           &tensor->size_bytes) ||
        tensor->size_bytes != end - begin) {
        return bad_entry(file, name, "data_offsets do not hold what shape and dtype need", error);
    }
    tensor->data = file->bytes + data_start + begin;
    return VKMHA_OK;
}

static int compare_data(const void *left, const void *right)
{
    const vkmha_tensor *a = left;
    const vkmha_tensor *b = right;
    const char *a_data = a->data;
    const char *b_data = b->data;
    if (a_data != b_data) {
        return a_data < b_data ? -1 : 1;
    }
    return a->size_bytes < b->size_bytes ? -1 : a->size_bytes > b->size_bytes;
}

/* The tensors must cover the data from start to end: no overlap, no hole, nothing after. */
static vkmha_status check_cover(vkmha_file *file, uint64_t data_start, vkmha_error *error)
{
    qsort(file->tensors, (size_t)file->num_tensors, sizeof(vkmha_tensor), compare_data);
    const unsigned char *expected = file->bytes + data_start;
    for (uint64_t i = 0; i < file->num_tensors; i++) {
        const unsigned char *data = file->tensors[i].data;
        if (data != expected) {
            return bad_entry(file, file->tensors[i].name,
                             data < expected ? "its data overlap another's" : "a hole lies before its data",
                             error);
        }
        expected = data + file->tensors[i].size_bytes;
    }
    if (expected != file->bytes + file->size) {
        return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: %" PRIu64 " bytes follow the last tensor",
                          file->path, (uint64_t)(file->bytes + file->size - expected));
    }
    return VKMHA_OK;
}

vkmha_status vkmha_safetensors_parse(vkmha_file *file, vkmha_error *error)
{
    if (file->size < 8) {
        return vkmha_fail(error, VKMHA_ERROR_FILE,
                          "%s: %" PRIu64 " bytes are too few for a safetensors file", file->path,
                          file->size);
    }
    const uint64_t header_bytes = read_length(file->bytes);
    if (header_bytes > MAX_HEADER_BYTES || header_bytes > file->size - 8) {
        return vkmha_fail(error, VKMHA_ERROR_FILE,
                          "%s: no safetensors file: its header length %" PRIu64
                          " exceeds the file or 100000000",
                          file->path, header_bytes);
    }
    vkmha_status status = parse_json(file, file->bytes + 8, header_bytes, error);
    if (status != VKMHA_OK) {
        return status;
    }
    file->tensors = vkmha_host_allocate(&file->host, (uint64_t)cJSON_GetArraySize(file->header),
                                        sizeof(vkmha_tensor));
    if (!file->tensors) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    const cJSON *entry;
    cJSON_ArrayForEach(entry, file->header)
    {
        if (strcmp(entry->string, "__metadata__") == 0) {
            status = file->metadata
                         ? bad_entry(file, "__metadata__", "given twice", error)
                         : check_metadata(file, entry, error);
        } else {
            status = parse_entry(file, entry, 8 + header_bytes, &file->tensors[file->num_tensors++],
                                 error);
        }
        if (status != VKMHA_OK) {
            return status;
        }
    }
    status = check_cover(file, 8 + header_bytes, error);
    return status == VKMHA_OK ? vkmha_file_sort(file, error) : status;
}

/* ---- Sharded checkpoints ------------------------------------------------------------------------------- */

/* Shards lie beside their index: a plain file name, nothing that leads elsewhere. */
static bool is_plain_name(const char *name)
{
    return name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           !strpbrk(name, "/\\:");
}

static vkmha_status open_shard(vkmha_file *index, const char *name, vkmha_file **shard,
                               vkmha_error *error)
{
    if (!is_plain_name(name)) {
        return vkmha_fail(error, VKMHA_ERROR_FILE,
                          "%s: shard \"%.200s\" is not a plain file name", index->path, name);
    }
    const char *slash = strrchr(index->path, '/');
    const size_t folder = slash ? (size_t)(slash - index->path) + 1 : 0;
    for (uint64_t i = 0; i < index->num_shards; i++) {
        if (strcmp(index->shards[i]->path + folder, name) == 0) {
            *shard = index->shards[i];
            return VKMHA_OK;
        }
    }
    if (strlen(name) >= 5 && strcmp(name + strlen(name) - 5, ".json") == 0) {
        return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: shard \"%.200s\" is an index itself",
                          index->path, name);
    }
    char *path = vkmha_host_allocate(&index->host, folder + strlen(name) + 1, 1);
    if (!path) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    memcpy(path, index->path, folder);
    strcpy(path + folder, name);
    vkmha_status status = vkmha_file_open(path, &index->host, shard, error);
    vkmha_host_release(&index->host, path);
    if (status == VKMHA_OK) {
        index->shards[index->num_shards++] = *shard;
    }
    return status;
}

vkmha_status vkmha_safetensors_parse_index(vkmha_file *file, vkmha_error *error)
{
    vkmha_status status = parse_json(file, file->bytes, file->size, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(file->header, "weight_map");
    if (!cJSON_IsObject(map)) {
        return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: weight_map is missing", file->path);
    }
    const uint64_t count = (uint64_t)cJSON_GetArraySize(map);
    file->tensors = vkmha_host_allocate(&file->host, count, sizeof(vkmha_tensor));
    file->shards = vkmha_host_allocate(&file->host, count, sizeof(vkmha_file *));
    if (!file->tensors || !file->shards) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    const cJSON *entry;
    cJSON_ArrayForEach(entry, map)
    {
        if (!cJSON_IsString(entry)) {
            return bad_entry(file, entry->string, "its shard is not a text", error);
        }
        vkmha_file *shard = NULL;
        status = open_shard(file, entry->valuestring, &shard, error);
        if (status != VKMHA_OK) {
            return status;
        }
        const vkmha_tensor *tensor = vkmha_file_find(shard, entry->string);
        if (!tensor) {
            return vkmha_fail(error, VKMHA_ERROR_FILE, "%s: tensor \"%.100s\" is not in shard \"%.100s\"",
                              file->path, entry->string, entry->valuestring);
        }
        file->tensors[file->num_tensors++] = *tensor;
    }
    return vkmha_file_sort(file, error);
}
