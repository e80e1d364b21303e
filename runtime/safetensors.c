/* The safetensors format: 8 bytes of header length, a JSON header, data. Everything is checked
 * before it is used. */
#include "file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

/* The limit of the format's own implementation. */
#define MAX_HEADER_BYTES UINT64_C(100000000)

/* A header nests three deep, an index as deep as its metadata please. */
#define MAX_DEPTH 8

static const struct {
    const char *name;
    vkmha_file_type type;
    uint32_t bytes;
} dtypes[] = {
    {"F32", VKMHA_FILE_F32, 4},
    {"F16", VKMHA_FILE_F16, 2},
    {"BF16", VKMHA_FILE_BF16, 2},
    {"F64", VKMHA_FILE_F64, 8},
    {"U8", VKMHA_FILE_U8, 1},
    {"BOOL", VKMHA_FILE_BOOL, 1},
    {"I32", VKMHA_FILE_I32, 4},
    {"I64", VKMHA_FILE_I64, 8},
    {"I8", VKMHA_FILE_OTHER, 1},
    {"I16", VKMHA_FILE_OTHER, 2},
    {"U16", VKMHA_FILE_OTHER, 2},
    {"U32", VKMHA_FILE_OTHER, 4},
    {"U64", VKMHA_FILE_OTHER, 8},
    {"C64", VKMHA_FILE_OTHER, 8},
    {"F8_E4M3", VKMHA_FILE_OTHER, 1},
    {"F8_E5M2", VKMHA_FILE_OTHER, 1},
    {"F8_E8M0", VKMHA_FILE_OTHER, 1},
    {"F8_E4M3FNUZ", VKMHA_FILE_OTHER, 1},
    {"F8_E5M2FNUZ", VKMHA_FILE_OTHER, 1},
};

static uint64_t read_length(const unsigned char *bytes)
{
    uint64_t length = 0;
    for (uint32_t i = 0; i < 8; i++) {
        length |= (uint64_t)bytes[i] << (8 * i);
    }
    return length;
}

/* ---- The text, before the JSON parser sees it ------------------------------------------------ */

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

static bool is_space(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Bytes of the whole number at `text`, at most 16 digits and not led by 0; 0 where there is none.
 */
static uint64_t integer_bytes(const unsigned char *text, uint64_t left)
{
    uint64_t count = 0;
    while (count < left && text[count] >= '0' && text[count] <= '9') {
        count++;
    }
    const bool is_ended = count < left && (is_space(text[count]) || text[count] == ',' ||
                                           text[count] == ']' || text[count] == '}');
    return is_ended && count <= 16 && (count < 2 || text[0] != '0') ? count : 0;
}

/*
 * What the JSON parser would let pass, or would alter: bad UTF-8, a NUL or line's end in a
 * name, 2.0 and 02 for 2, text around the object, endless nesting. Returns the rule that is broken,
 * and where; NULL where there is none.
 */
static const char *find_fault(const unsigned char *text, uint64_t size, bool integers_only,
                              uint64_t *at)
{
    bool in_string = false;
    bool is_closed = false;
    uint32_t depth = 0;
    for (*at = 0; *at < size;) {
        const unsigned char c = text[*at];
        const uint64_t left = size - *at;
        uint64_t count = utf8_bytes(text + *at, left);
        if (count == 0) {
            return "not UTF-8";
        }
        if (c < 0x20 && (in_string || !is_space(c))) {
            return "a control character";
        }
        if (in_string) {
            if (c == '\\' && left >= 6 && memcmp(text + *at, "\\u0000", 6) == 0) {
                return "a NUL in a text";
            }
            count += c == '\\'; /* what is escaped is ASCII, or the parser refuses it */
            in_string = c != '"';
        } else if (depth == 0 && !is_space(c) && (c != '{' || is_closed)) {
            return is_closed ? "more text after the JSON object" : "not a JSON object";
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (depth == MAX_DEPTH) {
                return "nested too deep";
            }
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
            is_closed = depth == 0;
        } else if (integers_only && (strchr("+-.", c) || (c >= '0' && c <= '9'))) {
            count = integer_bytes(text + *at, left);
            if (count == 0) {
                return "a number that is not written as an integer from 0 to 2^53";
            }
        }
        *at += count;
    }
    return is_closed ? NULL : "the JSON object does not end";
}

static vkmha_status parse_json(vkmha_file *file, uint64_t start, uint64_t size, bool integers_only,
                               vkmha_error *error)
{
    const unsigned char *text = file->bytes + start;
    uint64_t at = 0;
    const char *fault = find_fault(text, size, integers_only, &at);
    if (fault) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path, "header, byte %" PRIu64 ": %s",
                               start + at, fault);
    }
    const char *end = NULL;
    file->header = cJSON_ParseWithLengthOpts((const char *)text, (size_t)size, &end, 0);
    if (!file->header) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "header, byte %" PRIu64 ": not JSON",
                               start + (uint64_t)(end - (const char *)text));
    }
    return VKMHA_OK;
}

/* ---- Entries --------------------------------------------------------------------------------- */

/* A whole number below 2^53, which a double holds exactly. */
static bool read_integer(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0.0) || item->valuedouble >= 0x1p53) {
        return false;
    }
    *value = (uint64_t)item->valuedouble;
    return (double)*value == item->valuedouble;
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Refuses two members of one name: the parser keeps both, readers differ in which they take. */
static vkmha_status check_unique(const vkmha_file *file, const cJSON *object, vkmha_error *error)
{
    const uint64_t count = (uint64_t)cJSON_GetArraySize(object);
    const char **names = vkmha_host_allocate(&file->host, count, sizeof(*names));
    if (!names) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    uint64_t filled = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, object)
    {
        names[filled++] = member->string;
    }
    qsort(names, (size_t)count, sizeof(*names), compare_texts);
    vkmha_status status = VKMHA_OK;
    for (uint64_t i = 1; i < count && status == VKMHA_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                     "\"%.200s\" is given twice", names[i]);
        }
    }
    vkmha_host_release(&file->host, names);
    return status;
}

static vkmha_status check_metadata(vkmha_file *file, const cJSON *metadata, vkmha_error *error)
{
    if (!cJSON_IsObject(metadata)) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "__metadata__ is not an object");
    }
    const cJSON *value;
    cJSON_ArrayForEach(value, metadata)
    {
        if (!cJSON_IsString(value)) {
            return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                   "__metadata__ \"%.100s\" is not a text", value->string);
        }
    }
    file->metadata = metadata;
    return check_unique(file, metadata, error);
}

static vkmha_status bad_entry(const vkmha_file *file, const char *name, const char *rule,
                              vkmha_error *error)
{
    return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path, "tensor \"%.200s\": %s", name,
                           rule);
}

static vkmha_status read_dtype(const vkmha_file *file, const cJSON *dtype, vkmha_tensor *tensor,
                               uint32_t *element_bytes, vkmha_error *error)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(dtypes[i].name, dtype->valuestring) == 0) {
            tensor->type = dtypes[i].type;
            *element_bytes = dtypes[i].bytes;
            return VKMHA_OK;
        }
    }
    return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                           "tensor \"%.200s\": dtype \"%.20s\" is unknown", tensor->name,
                           dtype->valuestring);
}

static vkmha_status read_shape(const vkmha_file *file, const cJSON *shape, vkmha_tensor *tensor,
                               vkmha_error *error)
{
    const cJSON *size;
    cJSON_ArrayForEach(size, shape)
    {
        if (tensor->num_dims == VKMHA_MAX_TENSOR_DIMS) {
            return bad_entry(file, tensor->name, "shape has more than 8 dimensions", error);
        }
        if (!read_integer(size, &tensor->dims[tensor->num_dims++])) {
            return bad_entry(file, tensor->name, "shape holds what is no integer below 2^53",
                             error);
        }
    }
    return VKMHA_OK;
}

static vkmha_status read_offsets(const vkmha_file *file, const cJSON *offsets, uint64_t data_start,
                                 uint32_t element_bytes, vkmha_tensor *tensor, vkmha_error *error)
{
    uint64_t begin = 0;
    uint64_t end = 0;
    if (cJSON_GetArraySize(offsets) != 2 || !read_integer(cJSON_GetArrayItem(offsets, 0), &begin) ||
        !read_integer(cJSON_GetArrayItem(offsets, 1), &end)) {
        return bad_entry(file, tensor->name, "data_offsets are not two integers below 2^53", error);
    }
    if (begin > end || end > file->size - data_start) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "tensor \"%.200s\": data_offsets [%" PRIu64 ", %" PRIu64
                               "] are no range of the file's %" PRIu64 " bytes of data",
                               tensor->name, begin, end, file->size - data_start);
    }
    if (!vkmha_tensor_size(tensor->dims, tensor->num_dims, element_bytes, &tensor->count,
                           &tensor->size_bytes)) {
        return bad_entry(file, tensor->name, "the product of its shape is too large", error);
    }
    if (tensor->size_bytes != end - begin) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "tensor \"%.200s\": data_offsets hold %" PRIu64
                               " bytes, shape and dtype need %" PRIu64,
                               tensor->name, end - begin, tensor->size_bytes);
    }
    tensor->data = file->bytes + data_start + begin;
    return VKMHA_OK;
}

static vkmha_status parse_entry(const vkmha_file *file, const cJSON *entry, uint64_t data_start,
                                vkmha_tensor *tensor, vkmha_error *error)
{
    *tensor = (vkmha_tensor){.name = entry->string};
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    /* Three members, and these three: so none is given twice. */
    if (cJSON_GetArraySize(entry) != 3 || !cJSON_IsString(dtype) || !cJSON_IsArray(shape) ||
        !cJSON_IsArray(offsets)) {
        return bad_entry(file, tensor->name,
                         "not an object of one dtype, one shape and one data_offsets", error);
    }
    uint32_t element_bytes = 0;
    vkmha_status status = read_dtype(file, dtype, tensor, &element_bytes, error);
    if (status == VKMHA_OK) {
        status = read_shape(file, shape, tensor, error);
    }
    if (status == VKMHA_OK) {
        status = read_offsets(file, offsets, data_start, element_bytes, tensor, error);
    }
    return status;
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
                             data < expected ? "its data overlap another's"
                                             : "a hole lies before its data",
                             error);
        }
        expected = data + file->tensors[i].size_bytes;
    }
    if (expected != file->bytes + file->size) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "%" PRIu64 " bytes follow the last tensor",
                               (uint64_t)(file->bytes + file->size - expected));
    }
    return VKMHA_OK;
}

vkmha_status vkmha_safetensors_parse(vkmha_file *file, vkmha_error *error)
{
    if (file->size < 8) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "%" PRIu64 " bytes are too few for a safetensors file", file->size);
    }
    const uint64_t header_bytes = read_length(file->bytes);
    if (header_bytes > MAX_HEADER_BYTES || header_bytes > file->size - 8) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "not a safetensors file: its header length %" PRIu64 " exceeds %s",
                               header_bytes,
                               header_bytes > MAX_HEADER_BYTES ? "100000000" : "the file");
    }
    vkmha_status status = parse_json(file, 8, header_bytes, true, error);
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
            status = file->metadata ? vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                                      "__metadata__ is given twice")
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

/* ---- Sharded checkpoints --------------------------------------------------------------------- */

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
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, index->path,
                               "shard \"%.200s\" is not a plain file name", name);
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
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, index->path,
                               "shard \"%.200s\" is an index itself", name);
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
    if (file->size > MAX_HEADER_BYTES) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "%" PRIu64 " bytes are too many for an index", file->size);
    }
    vkmha_status status = parse_json(file, 0, file->size, false, error);
    if (status == VKMHA_OK) {
        status = check_unique(file, file->header, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(file->header, "weight_map");
    if (!cJSON_IsObject(map)) {
        return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                               "weight_map is not there, or not an object");
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
            return vkmha_file_fail(error, VKMHA_ERROR_FILE, file->path,
                                   "tensor \"%.150s\" is not in shard \"%.150s\"", entry->string,
                                   entry->valuestring);
        }
        file->tensors[file->num_tensors++] = *tensor;
    }
    return vkmha_file_sort(file, error);
}
