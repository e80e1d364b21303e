/* A safetensors file with fewer heads. */
#include "prune.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DIGITS = 24,
};

/* A tensor of the new file: one of the old, or new values; along `axis` only what is marked stays.
 */
typedef struct part {
    const vkmha_tensor *tensor;
    cJSON *item; /* in the header */
    uint32_t axis;
    const bool *keeps;   /* [dims[axis]]; NULL: all */
    const float *values; /* NULL: the tensor's */
    uint64_t count;
} part;

typedef struct pruning {
    const vkmha_subject *subject;
    const vkmha_selection *selection;
    vkmha_pool *pool;
    vkmha_error *error;
    cJSON *header;
    part *parts; /* in the order of the data */
    uint64_t num_parts;
} pruning;

static vkmha_status out_of_memory(const pruning *work)
{
    return vkmha_tool_fail(work->error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

static vkmha_status refuse(const pruning *work, vkmha_status status, const char *what)
{
    return vkmha_tool_fail(work->error, status, "%s: %s", work->subject->weights_path, what);
}

/* ---- The old header ------------------------------------------------------------------------ */

/* The text as it is in the file, whose format was checked as it was opened. */
static vkmha_status read_header(pruning *work)
{
    const char *path = work->subject->weights_path;
    unsigned char bytes[8] = {0};
    uint64_t length = 0;
    FILE *stream = fopen(path, "rb");
    if (!stream) {
        return refuse(work, VKMHA_ERROR_FILE, strerror(errno));
    }
    const bool has_length = fread(bytes, 1, sizeof(bytes), stream) == sizeof(bytes);
    for (uint32_t i = 0; i < sizeof(bytes); i++) {
        length |= (uint64_t)bytes[i] << (8 * i);
    }
    const uint64_t most = UINT64_C(100000000); /* of the format */
    char *text =
        has_length && length <= most ? vkmha_pool_allocate(work->pool, length + 1, 1) : NULL;
    const bool is_read = text && fread(text, 1, (size_t)length, stream) == length;
    fclose(stream);
    work->header = is_read ? cJSON_ParseWithLength(text, (size_t)length) : NULL;
    return cJSON_IsObject(work->header)
               ? VKMHA_OK
               : refuse(work, VKMHA_ERROR_FILE,
                        "its header cannot be read; a sharded checkpoint is pruned by the shard "
                        "that holds the layer");
}

static int compare_parts(const void *a, const void *b)
{
    const char *left = ((const part *)a)->tensor->data;
    const char *right = ((const part *)b)->tensor->data;
    return (left > right) - (left < right);
}

static vkmha_status list_parts(pruning *work)
{
    const vkmha_file *file = work->subject->weights_file;
    work->parts = vkmha_pool_allocate(work->pool, vkmha_file_num_tensors(file), sizeof(part));
    if (!work->parts) {
        return out_of_memory(work);
    }
    cJSON *item;
    cJSON_ArrayForEach(item, work->header)
    {
        if (strcmp(item->string, "__metadata__") == 0) {
            continue;
        }
        const vkmha_tensor *tensor = vkmha_file_find(file, item->string);
        if (!tensor || work->num_parts == vkmha_file_num_tensors(file)) {
            return refuse(work, VKMHA_ERROR_FILE, "has changed while it was read");
        }
        work->parts[work->num_parts++] = (part){.tensor = tensor, .item = item};
    }
    qsort(work->parts, (size_t)work->num_parts, sizeof(part), compare_parts);
    return VKMHA_OK;
}

/* ---- What stays ---------------------------------------------------------------------------- */

static uint64_t bytes_of(const vkmha_tensor *tensor)
{
    return tensor->count > 0 ? tensor->size_bytes / tensor->count : 1;
}

static part *find_part(const pruning *work, const vkmha_tensor *tensor)
{
    for (uint64_t i = 0; i < work->num_parts; i++) {
        if (work->parts[i].tensor == tensor) {
            return &work->parts[i];
        }
    }
    return NULL;
}

/* The heads of one projection are `size` entries each of the axis, from `first` on. */
static vkmha_status mark_heads(const pruning *work, part *marked, uint32_t axis, uint64_t first,
                               bool is_kv, uint64_t size)
{
    const vkmha_selection *selection = work->selection;
    const uint64_t heads = is_kv ? selection->num_kv_heads : selection->num_heads;
    const bool *keeps = is_kv ? selection->keeps_kv : selection->keeps;
    const uint64_t length = marked->tensor->dims[axis];
    bool *marks = vkmha_pool_allocate(work->pool, length, sizeof(bool));
    if (!marks) {
        return out_of_memory(work);
    }
    if (first > length || heads * size > length - first ||
        (marked->keeps && marked->axis != axis)) {
        return refuse(work, VKMHA_ERROR_UNSUPPORTED, "its heads do not lie along one axis");
    }
    for (uint64_t i = 0; i < length; i++) {
        marks[i] = !marked->keeps || marked->keeps[i];
    }
    for (uint64_t i = 0; i < heads * size; i++) {
        marks[first + i] = marks[first + i] && keeps[i / size];
    }
    marked->axis = axis;
    marked->keeps = marks;
    return VKMHA_OK;
}

/* The tensor that a view of the layer lies in, and where in it; NULL where none does. */
static part *find_view(const pruning *work, const void *data, uint64_t *offset)
{
    for (uint64_t i = 0; i < work->num_parts; i++) {
        const vkmha_tensor *tensor = work->parts[i].tensor;
        const char *begin = tensor->data;
        if ((const char *)data >= begin && (const char *)data < begin + tensor->size_bytes) {
            *offset = (uint64_t)((const char *)data - begin) / bytes_of(tensor);
            return &work->parts[i];
        }
    }
    return NULL;
}

/* is_input: the heads are the matrix's columns, as w_o's, and not its rows. */
static vkmha_status mark_view(const pruning *work, const vkmha_matrix *matrix,
                              const vkmha_vector *bias, bool is_input, bool is_kv, uint64_t size)
{
    uint64_t offset = 0;
    part *marked = find_view(work, matrix->data, &offset);
    if (!marked) {
        return refuse(work, VKMHA_ERROR_UNSUPPORTED, "does not hold the layer's weights itself");
    }
    const bool is_transposed = matrix->row_stride == 1 && matrix->column_stride > 1;
    const uint64_t pitch = matrix->row_stride ? matrix->row_stride : matrix->columns;
    const uint64_t first = is_input ? 0 : is_transposed ? offset : offset / pitch;
    const vkmha_status status =
        mark_heads(work, marked, is_transposed == is_input ? 0 : 1, first, is_kv, size);
    if (status != VKMHA_OK || is_input || !bias->data) {
        return status;
    }
    marked = find_view(work, bias->data, &offset);
    if (!marked) {
        return refuse(work, VKMHA_ERROR_UNSUPPORTED, "does not hold the layer's biases itself");
    }
    return mark_heads(work, marked, 0, offset, is_kv, size);
}

static vkmha_status mark_weights(const pruning *work)
{
    const vkmha_layer_params *layer = &work->subject->problem.layer;
    const uint64_t v_head_dim = layer->v_head_dim ? layer->v_head_dim : layer->head_dim;
    vkmha_status status = mark_view(work, &layer->w_q, &layer->b_q, false, false, layer->head_dim);
    if (status == VKMHA_OK) {
        status = mark_view(work, &layer->w_k, &layer->b_k, false, true, layer->head_dim);
    }
    if (status == VKMHA_OK) {
        status = mark_view(work, &layer->w_v, &layer->b_v, false, true, v_head_dim);
    }
    return status == VKMHA_OK ? mark_view(work, &layer->w_o, &layer->b_o, true, false, v_head_dim)
                              : status;
}

/* ---- Metadata ------------------------------------------------------------------------------ */

static bool set_text(cJSON *metadata, const char *name, const char *text)
{
    cJSON *value = cJSON_CreateString(text);
    if (cJSON_GetObjectItemCaseSensitive(metadata, name)) {
        return cJSON_ReplaceItemInObjectCaseSensitive(metadata, name, value);
    }
    return cJSON_AddItemToObject(metadata, name, value);
}

static bool set_count(cJSON *metadata, const char *name, uint64_t before, uint64_t after)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(metadata, name);
    char text[MAX_DIGITS];
    snprintf(text, sizeof(text), "%" PRIu64, before);
    if (!cJSON_IsString(value) || strcmp(value->valuestring, text) != 0) {
        return true;
    }
    snprintf(text, sizeof(text), "%" PRIu64, after);
    return set_text(metadata, name, text);
}

/* Counts in the metadata are every layer's: they change where this is the only one. */
static vkmha_status change_counts(const pruning *work)
{
    cJSON *metadata = cJSON_GetObjectItemCaseSensitive(work->header, "__metadata__");
    const vkmha_layer_params *layer = &work->subject->problem.layer;
    const vkmha_selection *selection = work->selection;
    const vkmha_checkpoint_params params = {.num_heads = layer->num_heads,
                                            .num_kv_heads = layer->num_kv_heads,
                                            .head_dim = layer->head_dim};
    vkmha_layer_params only;
    if (!metadata ||
        (!work->subject->is_case &&
         vkmha_checkpoint_layer(work->subject->weights_file, &params, &only, NULL) != VKMHA_OK)) {
        return VKMHA_OK;
    }
    const bool is_set =
        set_count(metadata, "num_heads", selection->num_heads, selection->num_kept) &&
        set_count(metadata, "num_attention_heads", selection->num_heads, selection->num_kept) &&
        set_count(metadata, "num_kv_heads", selection->num_kv_heads, selection->num_kv_kept) &&
        set_count(metadata, "num_key_value_heads", selection->num_kv_heads, selection->num_kv_kept);
    return is_set ? VKMHA_OK : out_of_memory(work);
}

/* ---- Cases --------------------------------------------------------------------------------- */

static void drop_part(pruning *work, const char *name)
{
    const vkmha_tensor *tensor = vkmha_file_find(work->subject->weights_file, name);
    part *dropped = tensor ? find_part(work, tensor) : NULL;
    if (dropped) {
        cJSON_DeleteItemFromObjectCaseSensitive(work->header, name);
        const size_t after = (size_t)(work->parts + work->num_parts - (dropped + 1));
        memmove(dropped, dropped + 1, after * sizeof(part));
        work->num_parts--;
    }
}

/* Expected outputs of all heads go, but y, whose values are new. */
static vkmha_status change_case(pruning *work, const vkmha_expectation *expected)
{
    static const char *const gone[] = {"weights", "weights_avg", "scores", "present_key",
                                       "present_value"};
    static const struct {
        const char *name;
        uint32_t axis;
        bool is_kv;
        bool is_optional; /* of dimension 1 where it is the same for all heads */
    } tensors[] = {
        {"head_mask", 0, false, false}, {"alibi_slopes", 0, false, false},
        {"bias_k", 0, true, false},     {"bias_v", 0, true, false},
        {"past_key", 1, true, false},   {"past_value", 1, true, false},
        {"mask", 1, false, true},
    };
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        drop_part(work, gone[i]);
    }
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        const vkmha_tensor *tensor = vkmha_file_find(work->subject->weights_file, tensors[i].name);
        part *marked = tensor ? find_part(work, tensor) : NULL;
        const uint64_t heads =
            tensors[i].is_kv ? work->selection->num_kv_heads : work->selection->num_heads;
        if (!marked || (tensors[i].is_optional && tensor->dims[tensors[i].axis] == 1)) {
            continue;
        }
        const vkmha_status status = mark_heads(work, marked, tensors[i].axis, 0, tensors[i].is_kv,
                                               tensor->dims[tensors[i].axis] / heads);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    const vkmha_tensor *output = vkmha_file_find(work->subject->weights_file, "output");
    part *changed = output ? find_part(work, output) : NULL;
    if (!changed || output->count != expected->count) {
        return refuse(work, VKMHA_ERROR_UNSUPPORTED, "a case without output cannot be pruned");
    }
    changed->values = expected->output;
    changed->count = expected->count;
    char tolerance[MAX_DIGITS];
    char source[1024];
    cJSON *metadata = cJSON_GetObjectItemCaseSensitive(work->header, "__metadata__");
    const char *old = vkmha_file_metadata(work->subject->weights_file, "source");
    snprintf(tolerance, sizeof(tolerance), "%.9g", expected->tolerance);
    snprintf(source, sizeof(source),
             "%.800s%sheads removed by vkmha prune, output of its reference", old ? old : "",
             old ? "; " : "");
    cJSON_DeleteItemFromObjectCaseSensitive(metadata, "tol_f16_output"); /* of all heads */
    const bool is_set =
        set_text(metadata, "outputs", "output") &&
        set_text(metadata, "tol_f32_output", tolerance) && set_text(metadata, "source", source) &&
        cJSON_ReplaceItemInObjectCaseSensitive(changed->item, "dtype", cJSON_CreateString("F32"));
    return is_set ? VKMHA_OK : out_of_memory(work);
}

/* ---- The new file -------------------------------------------------------------------------- */

static uint64_t kept_of(const part *written, uint32_t axis)
{
    const uint64_t length = written->tensor->dims[axis];
    uint64_t kept = 0;
    for (uint64_t i = 0; written->keeps && written->axis == axis && i < length; i++) {
        kept += written->keeps[i];
    }
    return written->keeps && written->axis == axis ? kept : length;
}

static bool set_numbers(cJSON *item, const char *name, const double *numbers, int count)
{
    return cJSON_ReplaceItemInObjectCaseSensitive(item, name,
                                                  cJSON_CreateDoubleArray(numbers, count));
}

/* Shapes and offsets. */
static vkmha_status change_header(const pruning *work)
{
    double begin = 0.0;
    for (uint64_t i = 0; i < work->num_parts; i++) {
        const part *written = &work->parts[i];
        const vkmha_tensor *tensor = written->tensor;
        double shape[VKMHA_MAX_TENSOR_DIMS];
        double bytes = written->values ? sizeof(float) : (double)bytes_of(tensor);
        for (uint32_t axis = 0; axis < tensor->num_dims; axis++) {
            shape[axis] = (double)kept_of(written, axis);
            bytes *= shape[axis];
        }
        const double offsets[] = {begin, begin + bytes};
        begin += bytes;
        if (!set_numbers(written->item, "shape", shape, (int)tensor->num_dims) ||
            !set_numbers(written->item, "data_offsets", offsets, 2)) {
            return out_of_memory(work);
        }
    }
    return VKMHA_OK;
}

static void write_part(const part *written, FILE *stream)
{
    const vkmha_tensor *tensor = written->tensor;
    const char *data = tensor->data;
    if (written->values) {
        fwrite(written->values, sizeof(float), (size_t)written->count, stream);
        return;
    }
    if (!written->keeps) {
        if (tensor->size_bytes > 0) {
            fwrite(data, 1, (size_t)tensor->size_bytes, stream);
        }
        return;
    }
    const uint64_t length = tensor->dims[written->axis];
    uint64_t inner = bytes_of(tensor);
    for (uint32_t axis = written->axis + 1; axis < tensor->num_dims; axis++) {
        inner *= tensor->dims[axis];
    }
    for (uint64_t at = 0; at < tensor->size_bytes; at += length * inner) {
        uint64_t i = 0;
        while (i < length) {
            uint64_t end = i;
            while (end < length && written->keeps[end]) {
                end++;
            }
            if (end > i) {
                fwrite(data + at + i * inner, 1, (size_t)((end - i) * inner), stream);
            }
            i = end + 1;
        }
    }
}

static vkmha_status write_all(const pruning *work, FILE *stream)
{
    char *text = cJSON_PrintUnformatted(work->header);
    if (!text) {
        return out_of_memory(work);
    }
    /* Padded, so that the data is aligned. */
    const uint64_t length = strlen(text);
    const uint64_t padded = (length + 7) / 8 * 8;
    for (uint32_t i = 0; i < 8; i++) {
        fputc((int)(padded >> (8 * i) & 255), stream);
    }
    fwrite(text, 1, (size_t)length, stream);
    for (uint64_t i = length; i < padded; i++) {
        fputc(' ', stream);
    }
    cJSON_free(text);
    for (uint64_t i = 0; i < work->num_parts; i++) {
        write_part(&work->parts[i], stream);
    }
    return VKMHA_OK;
}

vkmha_status vkmha_prune_write(const vkmha_subject *subject, const vkmha_selection *selection,
                               const vkmha_expectation *expected, vkmha_pool *pool,
                               vkmha_writer *writer, vkmha_error *error)
{
    pruning work = {.subject = subject, .selection = selection, .pool = pool, .error = error};
    vkmha_status status = subject->weights_file
                              ? read_header(&work)
                              : refuse(&work, VKMHA_ERROR_UNSUPPORTED,
                                       "its weights are in another file, which --weights takes");
    if (status == VKMHA_OK) {
        status = list_parts(&work);
    }
    if (status == VKMHA_OK) {
        status = mark_weights(&work);
    }
    if (status == VKMHA_OK) {
        status = change_counts(&work);
    }
    if (status == VKMHA_OK && subject->is_case) {
        status = change_case(&work, expected);
    }
    if (status == VKMHA_OK) {
        status = change_header(&work);
    }
    if (status == VKMHA_OK) {
        status = write_all(&work, writer->stream);
    }
    cJSON_Delete(work.header);
    return status;
}
