#include "settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table ----------------------------------------------------------------------------- */

typedef enum setting_kind {
    KIND_FLAG,    /* bool */
    KIND_COUNT,   /* uint32_t */
    KIND_WORK,    /* uint64_t */
    KIND_INTEGER, /* int64_t */
    KIND_NUMBER,  /* float */
    KIND_CHOICE,  /* an enum: the choice's place in the list */
    KIND_TEXT,    /* const char * */
    KIND_LIST,    /* const float *, one for each head */
} setting_kind;

typedef struct setting {
    const char *name;
    setting_kind kind;
    size_t offset; /* in vkmha_problem */
    size_t has;    /* of the has_ field; 0: none */
    const char *choices[5];
    bool is_per_sequence; /* a list may hold batch_size times as many */
} setting;

#define LAYER(field) offsetof(vkmha_problem, layer.field)
#define PLAN(field)  offsetof(vkmha_problem, plan.field)
#define INPUT(field) offsetof(vkmha_problem, inputs.field)

/* In the order of vkmha_type. */
#define TYPES                                                                                      \
    {                                                                                              \
        "f32", "f16", "bf16"                                                                       \
    }

static const setting table[] = {
    {"num_heads", KIND_COUNT, LAYER(num_heads), 0, {0}, false},
    {"num_kv_heads", KIND_COUNT, LAYER(num_kv_heads), 0, {0}, false},
    {"head_dim", KIND_COUNT, LAYER(head_dim), 0, {0}, false},
    {"scale", KIND_NUMBER, LAYER(scale), LAYER(has_scale), {0}, false},
    {"softcap", KIND_NUMBER, LAYER(softcap), 0, {0}, false},
    {"rope.style", KIND_CHOICE, LAYER(rope.style), 0, {"none", "half", "interleaved"}, false},
    {"rope.dim", KIND_COUNT, LAYER(rope.dim), 0, {0}, false},
    {"rope.max_positions", KIND_COUNT, LAYER(rope.max_positions), 0, {0}, false},
    {"rope.base", KIND_NUMBER, LAYER(rope.base), 0, {0}, false},
    {"alibi", KIND_FLAG, LAYER(has_alibi), 0, {0}, false},
    {"alibi_slopes", KIND_LIST, LAYER(alibi_slopes), 0, {0}, false},
    {"relative_bias.num_buckets", KIND_COUNT, LAYER(relative_bias.num_buckets), 0, {0}, false},
    {"relative_bias.max_distance", KIND_COUNT, LAYER(relative_bias.max_distance), 0, {0}, false},
    {"relative_bias.is_bidirectional",
     KIND_FLAG,
     LAYER(relative_bias.is_bidirectional),
     0,
     {0},
     false},
    {"sinks", KIND_LIST, LAYER(sinks), 0, {0}, false},
    {"add_zero_attn", KIND_FLAG, LAYER(add_zero_attn), 0, {0}, false},
    {"layout", KIND_CHOICE, PLAN(layout), 0, {"bshd", "bhsd"}, false},
    {"causal", KIND_CHOICE, PLAN(causal), 0, {"none", "top_left", "bottom_right", "offset"}, false},
    {"positions", KIND_CHOICE, PLAN(positions), 0, {"top_left", "bottom_right", "offset"}, false},
    {"position_offset", KIND_INTEGER, PLAN(position_offset), 0, {0}, false},
    {"window_left", KIND_COUNT, PLAN(window_left), PLAN(has_window_left), {0}, false},
    {"window_right", KIND_COUNT, PLAN(window_right), PLAN(has_window_right), {0}, false},
    {"gates", KIND_LIST, INPUT(head_gates), PLAN(has_head_gates), {0}, true},
    {"present", KIND_FLAG, PLAN(has_present), 0, {0}, false},
    {"max_work_per_dispatch", KIND_WORK, PLAN(max_work_per_dispatch), 0, {0}, false},
    {"query_type", KIND_CHOICE, PLAN(query_type), 0, TYPES, false},
    {"key_type", KIND_CHOICE, PLAN(key_type), 0, TYPES, false},
    {"value_type", KIND_CHOICE, PLAN(value_type), 0, TYPES, false},
    {"output_type", KIND_CHOICE, PLAN(output_type), 0, TYPES, false},
    {"cache_type", KIND_CHOICE, LAYER(cache_type), 0, TYPES, false},
    {"weight_type", KIND_CHOICE, LAYER(weight_type), 0, TYPES, false},
    {"project_kernel", KIND_TEXT, PLAN(project_kernel), 0, {0}, false},
    {"attention_kernel", KIND_TEXT, PLAN(attention_kernel), 0, {0}, false},
};

#define NUM_SETTINGS (sizeof(table) / sizeof(table[0]))

_Static_assert(NUM_SETTINGS <= VKMHA_MAX_SETTINGS, "each setting has a place");

static size_t size_of(setting_kind kind)
{
    switch (kind) {
    case KIND_FLAG:
        return sizeof(bool);
    case KIND_COUNT:
        return sizeof(uint32_t);
    case KIND_WORK:
        return sizeof(uint64_t);
    case KIND_INTEGER:
        return sizeof(int64_t);
    case KIND_NUMBER:
        return sizeof(float);
    case KIND_CHOICE:
        return sizeof(vkmha_causal);
    case KIND_TEXT:
        return sizeof(const char *);
    case KIND_LIST:
        return sizeof(const float *);
    }
    return 0;
}

_Static_assert(sizeof(vkmha_causal) == sizeof(vkmha_layout) &&
                   sizeof(vkmha_causal) == sizeof(vkmha_positions) &&
                   sizeof(vkmha_causal) == sizeof(vkmha_rope_style) &&
                   sizeof(vkmha_causal) == sizeof(vkmha_type) &&
                   sizeof(vkmha_causal) == sizeof(int),
               "choices are written as one type");

static void describe_kind(const setting *entry, char *text, size_t size)
{
    static const char *const kinds[] = {
        [KIND_FLAG] = "true or false",     [KIND_COUNT] = "an integer from 0 to 4294967295",
        [KIND_WORK] = "an integer from 0", [KIND_INTEGER] = "an integer",
        [KIND_NUMBER] = "a number",        [KIND_CHOICE] = "",
        [KIND_TEXT] = "the name of a row", [KIND_LIST] = "a list of numbers",
    };
    size_t length = (size_t)snprintf(text, size, "%s", kinds[entry->kind]);
    for (size_t i = 0; i < 5 && entry->choices[i] && length < size; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s%s", i > 0 ? " | " : "",
                                   entry->choices[i]);
    }
}

void vkmha_settings_print(void)
{
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        char text[96];
        describe_kind(&table[i], text, sizeof(text));
        printf("  %-32s %s\n", table[i].name, text);
    }
}

/* ---- Values -------------------------------------------------------------------------------- */

/* Where a value comes from. */
typedef struct source {
    const char *place; /* a path or an option */
    vkmha_status status;
    vkmha_error *error;
} source;

static vkmha_status refuse(const source *from, const setting *entry, const cJSON *item)
{
    char kind[96];
    char *text = cJSON_PrintUnformatted(item);
    describe_kind(entry, kind, sizeof(kind));
    const vkmha_status status = vkmha_tool_fail(from->error, from->status, "%s: %s %.80s is not %s",
                                                from->place, entry->name, text ? text : "?", kind);
    cJSON_free(text);
    return status;
}

/* An integer that the JSON number holds exactly. */
static bool read_integer(const cJSON *item, double low, double high, double *number)
{
    *number = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    return *number >= low && *number <= high && floor(*number) == *number;
}

static bool read_float(const cJSON *item, float *number)
{
    if (cJSON_IsString(item) && strcmp(item->valuestring, "-inf") == 0) {
        *number = -INFINITY; /* JSON has no number for it, and sinks may be so */
        return true;
    }
    *number = cJSON_IsNumber(item) ? (float)item->valuedouble : NAN;
    return isfinite(*number);
}

static vkmha_status read_list(vkmha_settings *settings, size_t index, const cJSON *item,
                              const source *from, const float **list)
{
    const int count = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : 0;
    float *values = vkmha_pool_allocate(&settings->pool, (uint64_t)count, sizeof(float));
    if (!values) {
        return vkmha_tool_fail(from->error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    uint64_t read = 0;
    const cJSON *element;
    cJSON_ArrayForEach(element, item)
    {
        if (!read_float(element, &values[read++])) {
            return refuse(from, &table[index], item);
        }
    }
    if (count == 0) {
        return refuse(from, &table[index], item);
    }
    settings->counts[index] = (uint64_t)count;
    *list = values;
    return VKMHA_OK;
}

static vkmha_status read_text(vkmha_settings *settings, const cJSON *item, const source *from,
                              const char **text)
{
    const size_t size = strlen(item->valuestring) + 1;
    char *copy = vkmha_pool_allocate(&settings->pool, size, 1);
    if (!copy) {
        return vkmha_tool_fail(from->error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    memcpy(copy, item->valuestring, size);
    *text = copy;
    return VKMHA_OK;
}

static bool read_choice(const setting *entry, const cJSON *item, int *choice)
{
    for (int i = 0; cJSON_IsString(item) && i < 5 && entry->choices[i]; i++) {
        if (strcmp(item->valuestring, entry->choices[i]) == 0) {
            *choice = i;
            return true;
        }
    }
    return false;
}

static vkmha_status take_value(vkmha_settings *settings, size_t index, const cJSON *item,
                               const source *from)
{
    const setting *entry = &table[index];
    char *field = (char *)&settings->values + entry->offset;
    const double most = 9007199254740992.0; /* 2^53: to here a double holds each integer */
    double number = 0.0;
    bool is_right = false;
    bool flag = cJSON_IsTrue(item) != 0;
    float real = 0.0f;
    int choice = 0;
    const float *list = NULL;
    const char *text = NULL;
    vkmha_status status = VKMHA_OK;
    switch (entry->kind) {
    case KIND_FLAG:
        is_right = cJSON_IsBool(item);
        memcpy(field, &flag, sizeof(flag));
        break;
    case KIND_COUNT:
        is_right = read_integer(item, 0.0, (double)UINT32_MAX, &number);
        memcpy(field, &(uint32_t){is_right ? (uint32_t)number : 0}, sizeof(uint32_t));
        break;
    case KIND_WORK:
        is_right = read_integer(item, 0.0, most, &number);
        memcpy(field, &(uint64_t){is_right ? (uint64_t)number : 0}, sizeof(uint64_t));
        break;
    case KIND_INTEGER:
        is_right = read_integer(item, -most, most, &number);
        memcpy(field, &(int64_t){is_right ? (int64_t)number : 0}, sizeof(int64_t));
        break;
    case KIND_NUMBER:
        is_right = read_float(item, &real) && isfinite(real);
        memcpy(field, &real, sizeof(real));
        break;
    case KIND_CHOICE:
        is_right = read_choice(entry, item, &choice);
        memcpy(field, &choice, sizeof(choice));
        break;
    case KIND_TEXT:
        is_right = cJSON_IsString(item);
        status = is_right ? read_text(settings, item, from, &text) : VKMHA_OK;
        memcpy(field, &text, sizeof(text));
        break;
    case KIND_LIST:
        is_right = true;
        status = read_list(settings, index, item, from, &list);
        memcpy(field, &list, sizeof(list));
        break;
    }
    settings->is_given[index] = is_right && status == VKMHA_OK;
    return is_right ? status : refuse(from, entry, item);
}

static bool find_setting(const char *name, size_t *index)
{
    for (*index = 0; *index < NUM_SETTINGS; (*index)++) {
        if (strcmp(table[*index].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static vkmha_status take_object(vkmha_settings *settings, const cJSON *object, const char *outer,
                                bool *is_seen, const source *from)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        char name[128];
        size_t index = 0;
        snprintf(name, sizeof(name), "%s%s%s", outer, outer[0] ? "." : "", item->string);
        vkmha_status status = VKMHA_OK;
        if (cJSON_IsObject(item) && !outer[0]) {
            status = take_object(settings, item, item->string, is_seen, from);
        } else if (!find_setting(name, &index)) {
            status = vkmha_tool_fail(from->error, from->status,
                                     "%s: \"%.100s\" is no setting; see vkmha run --help",
                                     from->place, name);
        } else if (is_seen[index]) {
            status = vkmha_tool_fail(from->error, from->status, "%s: %s is given twice",
                                     from->place, name);
        } else {
            is_seen[index] = true;
            status = take_value(settings, index, item, from);
        }
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

enum {
    MAX_JSON_BYTES = 1 << 20,
};

static vkmha_status read_text_file(vkmha_settings *settings, const char *path, char **text,
                                   vkmha_error *error)
{
    FILE *stream = fopen(path, "rb");
    if (!stream) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%s: %s", path, strerror(errno));
    }
    *text = vkmha_pool_allocate(&settings->pool, MAX_JSON_BYTES + 1, 1);
    const size_t size = *text ? fread(*text, 1, MAX_JSON_BYTES + 1, stream) : 0;
    const bool is_read = !ferror(stream);
    fclose(stream);
    if (!*text) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    if (!is_read) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%s: cannot be read", path);
    }
    if (size > MAX_JSON_BYTES || strlen(*text) != size) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%s: %s", path,
                               size > MAX_JSON_BYTES ? "larger than 1 MiB" : "holds a NUL");
    }
    return VKMHA_OK;
}

vkmha_status vkmha_settings_load(vkmha_settings *settings, const char *path, vkmha_error *error)
{
    char *text = NULL;
    vkmha_status status = read_text_file(settings, path, &text, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const char *end = text;
    cJSON *document = cJSON_ParseWithOpts(text, &end, true);
    const source from = {path, VKMHA_ERROR_FILE, error};
    bool is_seen[NUM_SETTINGS] = {false};
    if (cJSON_IsObject(document)) {
        status = take_object(settings, document, "", is_seen, &from);
    } else {
        status = vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%s: not a JSON object, at byte %td",
                                 path, document ? (ptrdiff_t)0 : end - text);
    }
    cJSON_Delete(document);
    return status;
}

/* ---- The command line ---------------------------------------------------------------------- */

/* Numbers between commas; -inf is one of them. */
static cJSON *parse_list(const char *text)
{
    cJSON *list = cJSON_CreateArray();
    while (list) {
        char *end = NULL;
        const double number = strtod(text, &end);
        const bool is_number = end != text && (*end == ',' || *end == '\0');
        cJSON_AddItemToArray(list, is_number && isfinite(number) ? cJSON_CreateNumber(number)
                                   : is_number && number < 0.0   ? cJSON_CreateString("-inf")
                                                                 : cJSON_CreateString(text));
        if (!is_number || *end == '\0') {
            break;
        }
        text = end + 1;
    }
    return list;
}

vkmha_status vkmha_settings_set(vkmha_settings *settings, const char *option, const char *name,
                                const char *value, vkmha_error *error)
{
    size_t index = 0;
    if (!find_setting(name, &index)) {
        return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "%s: \"%.100s\" is no setting; see vkmha run --help", option, name);
    }
    cJSON *item = NULL;
    switch (table[index].kind) {
    case KIND_LIST:
        item = parse_list(value);
        break;
    case KIND_CHOICE:
    case KIND_TEXT:
        item = cJSON_CreateString(value);
        break;
    default:
        item = cJSON_ParseWithOpts(value, NULL, true);
        item = item ? item : cJSON_CreateString(value);
        break;
    }
    const source from = {option, VKMHA_ERROR_INVALID_ARGUMENT, error};
    const vkmha_status status =
        item ? take_value(settings, index, item, &from)
             : vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    cJSON_Delete(item);
    return status;
}

vkmha_status vkmha_settings_assign(vkmha_settings *settings, const char *assignment,
                                   vkmha_error *error)
{
    char name[128];
    const char *equals = strchr(assignment, '=');
    if (!equals || (size_t)(equals - assignment) >= sizeof(name)) {
        return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "--set: \"%.100s\" is not name=value", assignment);
    }
    const size_t length = (size_t)(equals - assignment);
    memcpy(name, assignment, length);
    name[length] = '\0';
    return vkmha_settings_set(settings, "--set", name, equals + 1, error);
}

/* ---- Applying ------------------------------------------------------------------------------ */

static vkmha_status check_count(const setting *entry, uint64_t count, vkmha_problem *problem,
                                vkmha_error *error)
{
    const uint64_t heads = problem->layer.num_heads;
    const bool is_all = entry->is_per_sequence && problem->plan.batch_size > 1 &&
                        count == heads * problem->plan.batch_size;
    if (is_all) {
        problem->plan.has_gates_per_sequence = true;
        return VKMHA_OK;
    }
    if (count != heads) {
        return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "%s has %" PRIu64 " numbers; num_heads %" PRIu64 "%s are needed",
                               entry->name, count, heads,
                               entry->is_per_sequence ? ", or batch_size times as many," : "");
    }
    return VKMHA_OK;
}

vkmha_status vkmha_settings_apply(const vkmha_settings *settings, vkmha_problem *problem,
                                  vkmha_error *error)
{
    for (size_t i = 0; i < NUM_SETTINGS; i++) {
        if (!settings->is_given[i]) {
            continue;
        }
        const setting *entry = &table[i];
        memcpy((char *)problem + entry->offset, (const char *)&settings->values + entry->offset,
               size_of(entry->kind));
        if (entry->has) {
            const bool has = true;
            memcpy((char *)problem + entry->has, &has, sizeof(has));
        }
        if (entry->kind == KIND_LIST) {
            const vkmha_status status = check_count(entry, settings->counts[i], problem, error);
            if (status != VKMHA_OK) {
                return status;
            }
        }
    }
    return VKMHA_OK;
}

void vkmha_settings_finish(vkmha_settings *settings)
{
    vkmha_pool_finish(&settings->pool);
}
