#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Errors -------------------------------------------------------------------------------- */

int vkmha_tool_misuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("vkmha: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return VKMHA_EXIT_MISUSE;
}

int vkmha_tool_report(const vkmha_error *error)
{
    vkmha_tool_misuse("%s", error->message[0] ? error->message : vkmha_status_name(error->status));
    switch (error->status) {
    case VKMHA_OK:
        return VKMHA_EXIT_RIGHT;
    case VKMHA_ERROR_NO_DEVICE:
    case VKMHA_ERROR_DEVICE_LOST:
    case VKMHA_ERROR_OUT_OF_MEMORY:
        return VKMHA_EXIT_NO_DEVICE;
    case VKMHA_ERROR_INVALID_ARGUMENT:
    case VKMHA_ERROR_UNSUPPORTED:
    case VKMHA_ERROR_FILE:
        break;
    }
    return VKMHA_EXIT_MISUSE;
}

vkmha_status vkmha_tool_fail(vkmha_error *error, vkmha_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error->status = status;
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}

/* ---- Arguments ----------------------------------------------------------------------------- */

int vkmha_next_option(int argc, char **argv, const char *shorts, const struct option *options)
{
    opterr = 0;
    const int at = optind > 0 ? optind : 1;
    const int found = getopt_long(argc, argv, shorts, options, NULL);
    if (found == ':') {
        vkmha_tool_misuse("%s needs a value; see vkmha %s --help", argv[optind - 1], argv[0]);
        return '?';
    }
    if (found == '?') {
        const char *text = at < argc ? argv[optind > at ? optind - 1 : at] : "";
        vkmha_tool_misuse("%s is no option of %s; see vkmha %s --help", text, argv[0], argv[0]);
    }
    return found;
}

bool vkmha_parse_number(const char *text, uint64_t max, uint64_t *value)
{
    const bool is_hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = is_hexadecimal ? text + 2 : text;
    /* strtoull takes signs and spaces too. */
    const char *allowed = is_hexadecimal ? "0123456789abcdefABCDEF" : "0123456789";
    if (digits[0] == '\0' || digits[strspn(digits, allowed)] != '\0') {
        return false;
    }
    errno = 0;
    const uint64_t parsed = strtoull(digits, NULL, is_hexadecimal ? 16 : 10);
    if (errno != 0 || parsed > max) {
        return false;
    }
    *value = parsed;
    return true;
}

bool vkmha_parse_option(const char *option, const char *text, uint64_t min, uint64_t max,
                        uint64_t *value)
{
    uint64_t parsed = 0;
    if (!vkmha_parse_number(text, max, &parsed) || parsed < min) {
        vkmha_tool_misuse("%s \"%s\" is not a number from %" PRIu64 " to %" PRIu64, option, text,
                          min, max);
        return false;
    }
    *value = parsed;
    return true;
}

/* ---- Time and progress --------------------------------------------------------------------- */

double vkmha_seconds(void)
{
    struct timespec now = {0};
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void vkmha_progress_start(vkmha_progress *progress)
{
    *progress = (vkmha_progress){
        .is_terminal = isatty(STDERR_FILENO) != 0,
        .started = vkmha_seconds(),
    };
}

void vkmha_progress_show(vkmha_progress *progress, const char *what, uint64_t done, uint64_t total)
{
    if (!progress->is_terminal) {
        return;
    }
    const double now = vkmha_seconds();
    if (now - progress->started < 1.0 || now - progress->drawn < 0.2) {
        return;
    }
    progress->drawn = now;
    progress->is_drawn = true;
    if (total > 0) {
        fprintf(stderr, "\r\033[K%s %" PRIu64 " of %" PRIu64, what, done, total);
    } else {
        fprintf(stderr, "\r\033[K%s %" PRIu64, what, done);
    }
    fflush(stderr);
}

void vkmha_progress_clear(vkmha_progress *progress)
{
    if (progress->is_drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress->is_drawn = false;
    }
}

/* ---- Memory -------------------------------------------------------------------------------- */

struct vkmha_block {
    struct vkmha_block *next;
    max_align_t data[];
};

void *vkmha_pool_allocate(vkmha_pool *pool, uint64_t count, uint64_t size)
{
    if (size != 0 && count > (SIZE_MAX / 2) / size) {
        return NULL;
    }
    struct vkmha_block *block = calloc(1, sizeof(struct vkmha_block) + (size_t)(count * size));
    if (!block) {
        return NULL;
    }
    block->next = pool->first;
    pool->first = block;
    return block->data;
}

void vkmha_pool_finish(vkmha_pool *pool)
{
    struct vkmha_block *block = pool->first;
    while (block) {
        struct vkmha_block *next = block->next;
        free(block);
        block = next;
    }
    pool->first = NULL;
}

/* ---- Devices ------------------------------------------------------------------------------- */

vkmha_status vkmha_open_device(const char *choice, vkmha_device **device, vkmha_error *error)
{
    vkmha_device_params params = {.allow_software = true};
    uint64_t index = 0;
    if (choice && vkmha_parse_number(choice, UINT32_MAX, &index)) {
        params.has_index = true;
        params.index = (uint32_t)index;
    } else {
        params.name = choice;
    }
    return vkmha_device_create(&params, device, error);
}

const char *vkmha_device_type_name(vkmha_device_type type)
{
    switch (type) {
    case VKMHA_DEVICE_INTEGRATED:
        return "integrated";
    case VKMHA_DEVICE_DISCRETE:
        return "discrete";
    case VKMHA_DEVICE_VIRTUAL:
        return "virtual";
    case VKMHA_DEVICE_SOFTWARE:
        return "software";
    case VKMHA_DEVICE_OTHER:
        break;
    }
    return "other";
}

/* The kind is the first word of the row's name; rows of other kinds are utilities. */
static vkmha_rows *rows_of(vkmha_kernel_choice *choice, const char *name)
{
    if (strncmp(name, "project", strlen("project")) == 0) {
        return &choice->project;
    }
    return strncmp(name, "attention", strlen("attention")) == 0 ? &choice->attention : NULL;
}

static vkmha_status force_kernel(const vkmha_device *device, const char *name,
                                 vkmha_kernel_choice *choice, vkmha_error *error)
{
    vkmha_kernel_info info;
    for (uint32_t i = 0; vkmha_device_get_kernel(device, i, &info); i++) {
        vkmha_rows *rows = rows_of(choice, info.name);
        if (!rows || strcmp(info.name, name) != 0) {
            continue;
        }
        if (!info.usable) {
            return vkmha_tool_fail(error, VKMHA_ERROR_UNSUPPORTED, "--kernel %s is not usable: %s",
                                   name, info.reason);
        }
        if (rows->count > 0) {
            return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                   "--kernel %s and %s are two rows for one stage", rows->names[0],
                                   name);
        }
        rows->names[rows->count++] = info.name;
        return VKMHA_OK;
    }
    return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                           "--kernel %s is no kernel row; vkmha info lists them", name);
}

vkmha_status vkmha_choose_kernels(const vkmha_device *device, const char *const *forced,
                                  uint32_t num_forced, vkmha_kernel_choice *choice,
                                  vkmha_error *error)
{
    *choice = (vkmha_kernel_choice){0};
    if (num_forced == 0) {
        vkmha_kernel_info info;
        for (uint32_t i = 0; vkmha_device_get_kernel(device, i, &info); i++) {
            vkmha_rows *rows = rows_of(choice, info.name);
            if (rows && info.usable && rows->count < VKMHA_MAX_ROWS) {
                rows->names[rows->count++] = info.name;
            }
        }
        return VKMHA_OK;
    }
    for (uint32_t i = 0; i < num_forced; i++) {
        const vkmha_status status = force_kernel(device, forced[i], choice, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    if (choice->project.count == 0) {
        choice->project = (vkmha_rows){{NULL}, 1};
    }
    if (choice->attention.count == 0) {
        choice->attention = (vkmha_rows){{NULL}, 1};
    }
    return VKMHA_OK;
}

void vkmha_kernel_arguments(const char *project, const char *attention, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s%s", project ? " --kernel " : "", project ? project : "",
             attention ? " --kernel " : "", attention ? attention : "");
}

/* ---- JSON ---------------------------------------------------------------------------------- */

int vkmha_print_json(cJSON *document, int code)
{
    char *text = document ? cJSON_Print(document) : NULL;
    cJSON_Delete(document);
    if (!text) {
        return vkmha_tool_misuse("out of memory");
    }
    puts(text);
    cJSON_free(text);
    return code;
}

void vkmha_json_device(cJSON *document, const vkmha_device_info *info)
{
    cJSON_AddStringToObject(document, "device", info->name);
    cJSON_AddStringToObject(document, "driver", info->driver);
    cJSON_AddStringToObject(document, "type", vkmha_device_type_name(info->limits.device_type));
}
