/* What the subcommands share: exit codes, errors, arguments, progress, owned memory, the device. */
#ifndef VKMHA_TOOL_H
#define VKMHA_TOOL_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include <vkmha/vkmha.h>

enum {
    VKMHA_EXIT_RIGHT = 0,
    VKMHA_EXIT_FAILED = 1,    /* a check failed */
    VKMHA_EXIT_MISUSE = 2,    /* wrong arguments or files */
    VKMHA_EXIT_NO_DEVICE = 3, /* no usable device */
};

/* Subcommands: argv[0] is their name; they return the exit code. */
int vkmha_command_info(int argc, char **argv);
int vkmha_command_run(int argc, char **argv);
int vkmha_command_check(int argc, char **argv);
int vkmha_command_bench(int argc, char **argv);
int vkmha_command_demo(int argc, char **argv);
int vkmha_command_heads(int argc, char **argv);
int vkmha_command_ablate(int argc, char **argv);
int vkmha_command_noise(int argc, char **argv);
int vkmha_command_prune(int argc, char **argv);

/* ---- Errors -------------------------------------------------------------------------------- */

#if defined(__GNUC__)
#define VKMHA_FORMAT(text, first) __attribute__((format(printf, text, first)))
#else
#define VKMHA_FORMAT(text, first)
#endif

/* One line on stderr; returns VKMHA_EXIT_MISUSE. */
int vkmha_tool_misuse(const char *format, ...) VKMHA_FORMAT(1, 2);

/* One line on stderr; returns the exit code of the error's status. */
int vkmha_tool_report(const vkmha_error *error);

/* Fills *error and returns `status`. */
vkmha_status vkmha_tool_fail(vkmha_error *error, vkmha_status status, const char *format, ...)
    VKMHA_FORMAT(3, 4);

/* ---- Arguments ----------------------------------------------------------------------------- */

/* As getopt_long, but -1 at the end and '?' after an error line of its own. `shorts` begins with
 * ':'. */
int vkmha_next_option(int argc, char **argv, const char *shorts, const struct option *options);

/* The whole text as a number of at most `max`; decimal, or hexadecimal after 0x. */
bool vkmha_parse_number(const char *text, uint64_t max, uint64_t *value);

/* As above for `option`; an error line where the text is no such number. */
bool vkmha_parse_option(const char *option, const char *text, uint64_t min, uint64_t max,
                        uint64_t *value);

/* ---- Time and progress --------------------------------------------------------------------- */

double vkmha_seconds(void);

/* A line on stderr that is redrawn; only on a terminal, and only after a second. */
typedef struct vkmha_progress {
    bool is_terminal;
    bool is_drawn;
    double started;
    double drawn;
} vkmha_progress;

void vkmha_progress_start(vkmha_progress *progress);
void vkmha_progress_show(vkmha_progress *progress, const char *what, uint64_t done, uint64_t total);
void vkmha_progress_clear(vkmha_progress *progress);

/* ---- Memory -------------------------------------------------------------------------------- */

/* Blocks that are released together. {0} is empty. */
typedef struct vkmha_pool {
    struct vkmha_block *first;
} vkmha_pool;

/* count * size zeroed bytes, aligned for any type; NULL where memory is out. */
void *vkmha_pool_allocate(vkmha_pool *pool, uint64_t count, uint64_t size);
void vkmha_pool_finish(vkmha_pool *pool);

/* ---- Devices ------------------------------------------------------------------------------- */

/* choice: an index, a part of a name, or NULL for the library's choice; a software device is
 * allowed. */
vkmha_status vkmha_open_device(const char *choice, vkmha_device **device, vkmha_error *error);

const char *vkmha_device_type_name(vkmha_device_type type);

enum {
    VKMHA_MAX_ROWS = 16,
};

/* Names of kernel rows of one kind to run; NULL stands for the device's own choice. */
typedef struct vkmha_rows {
    const char *names[VKMHA_MAX_ROWS];
    uint32_t count;
} vkmha_rows;

/* Rows to try: the usable ones of both kinds, or those named by --kernel. */
typedef struct vkmha_kernel_choice {
    vkmha_rows project;
    vkmha_rows attention;
} vkmha_kernel_choice;

/*
 * forced: rows named by --kernel, num_forced of them; at most one of a kind. With one forced, the
 * other kind is the device's choice; with none, every usable row is listed. Errors:
 * INVALID_ARGUMENT (no such row), UNSUPPORTED (not usable here, and why).
 */
vkmha_status vkmha_choose_kernels(const vkmha_device *device, const char *const *forced,
                                  uint32_t num_forced, vkmha_kernel_choice *choice,
                                  vkmha_error *error);

/* The text of " --kernel A --kernel B" for a repeat command. */
void vkmha_kernel_arguments(const char *project, const char *attention, char *text, size_t size);

/* ---- JSON ---------------------------------------------------------------------------------- */

/* Prints the document and frees it; returns `code`, or VKMHA_EXIT_MISUSE where memory was out. */
int vkmha_print_json(cJSON *document, int code);

/* Adds device and driver names. */
void vkmha_json_device(cJSON *document, const vkmha_device_info *info);

#endif
