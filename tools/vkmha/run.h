/* What vkmha run works on: run.c (the command), run_options.c (its arguments, which other commands
 * take too), run_inputs.c (query, key, value), run_tensors.c (the options' tensors), run_output.c.
 */
#ifndef VKMHA_TOOL_RUN_H
#define VKMHA_TOOL_RUN_H

#include "settings.h"

typedef struct vkmha_run_file {
    const char *path; /* NULL: not given */
    vkmha_file *file;
} vkmha_run_file;

typedef struct vkmha_run_state {
    vkmha_run_file input;
    vkmha_run_file key;
    vkmha_run_file value;
    vkmha_run_file tensors; /* of options; these may be in the input too */
    vkmha_problem problem;
    uint64_t output_dims[4];
    uint32_t num_output_dims;
    vkmha_pool pool;
    vkmha_error *error;
} vkmha_run_state;

/* ---- run_options.c ------------------------------------------------------------------------- */

/* What a layer and its inputs are told by, on the command line. */
typedef struct vkmha_run_options {
    const char *weights; /* NULL: not given, as the others */
    const char *prefix;
    const char *input;
    const char *key;
    const char *value;
    const char *tensors;
    const char *device_choice;
    vkmha_settings settings;
    bool is_json;
} vkmha_run_options;

enum {
    VKMHA_RUN_WEIGHTS = 256,
    VKMHA_RUN_PREFIX,
    VKMHA_RUN_INPUT,
    VKMHA_RUN_KEY,
    VKMHA_RUN_VALUE,
    VKMHA_RUN_TENSORS,
    VKMHA_RUN_LAYER,
    VKMHA_RUN_SET,
    VKMHA_RUN_HEADS,
    VKMHA_RUN_KV_HEADS,
    VKMHA_RUN_HEAD_DIM,
    VKMHA_RUN_CAUSAL,
    VKMHA_RUN_DEVICE,
    VKMHA_RUN_JSON,
    VKMHA_RUN_OWN, /* the first of a command's own options */
};

/* Their entries of a table for getopt, and -h. */
#define VKMHA_RUN_KNOWN                                                                            \
    {"weights", required_argument, NULL, VKMHA_RUN_WEIGHTS},                                       \
        {"prefix", required_argument, NULL, VKMHA_RUN_PREFIX},                                     \
        {"input", required_argument, NULL, VKMHA_RUN_INPUT},                                       \
        {"key", required_argument, NULL, VKMHA_RUN_KEY},                                           \
        {"value", required_argument, NULL, VKMHA_RUN_VALUE},                                       \
        {"tensors", required_argument, NULL, VKMHA_RUN_TENSORS},                                   \
        {"layer", required_argument, NULL, VKMHA_RUN_LAYER},                                       \
        {"set", required_argument, NULL, VKMHA_RUN_SET},                                           \
        {"num-heads", required_argument, NULL, VKMHA_RUN_HEADS},                                   \
        {"num-kv-heads", required_argument, NULL, VKMHA_RUN_KV_HEADS},                             \
        {"head-dim", required_argument, NULL, VKMHA_RUN_HEAD_DIM},                                 \
        {"causal", required_argument, NULL, VKMHA_RUN_CAUSAL},                                     \
        {"device", required_argument, NULL, VKMHA_RUN_DEVICE},                                     \
        {"json", no_argument, NULL, VKMHA_RUN_JSON},                                               \
    {                                                                                              \
        "help", no_argument, NULL, 'h'                                                             \
    }

/* How a command reads its arguments. */
typedef struct vkmha_run_reader {
    const char *shorts; /* as for vkmha_next_option */
    const struct option *known;
    vkmha_run_options *options;
    /* Takes an option of the command's own; false after an error line. */
    bool (*take)(void *command, int option, const char *value);
    void *command;
} vkmha_run_reader;

/* Returns VKMHA_EXIT_RIGHT, another code after an error line, or -1 where help was asked for.
 * optind is then the first argument that is no option. */
int vkmha_run_read(int argc, char **argv, const vkmha_run_reader *reader);

/* A whole command: reads, tells `usage` where help is asked for, else performs with the arguments
 * that are no options. Returns the command's exit code. */
int vkmha_run_command(int argc, char **argv, const vkmha_run_reader *reader, const char *usage,
                      int (*perform)(const void *command, int num_arguments, char **arguments));

/* Opens the files of inputs and loads layer, inputs and options' tensors; weights: NULL for
 * attention alone. What was opened is to be closed even after an error. */
vkmha_status vkmha_run_load(const vkmha_run_options *options, const vkmha_file *weights,
                            vkmha_run_state *run);
void vkmha_run_close(vkmha_run_state *run);

/* ---- run_inputs.c, run_tensors.c ------------------------------------------------------------- */

/* The query, key and value, and what their dimensions say: batch, lengths, packing, and of
 * attention alone the heads. Errors: FILE, INVALID_ARGUMENT, OUT_OF_MEMORY. */
vkmha_status vkmha_run_load_inputs(vkmha_run_state *run);

/* That settings did not change the heads which the inputs, or the weights, have. */
vkmha_status vkmha_run_check_heads(const vkmha_run_state *run, const vkmha_problem *before);

/* An option's tensor, from either file; NULL where there is none. */
const vkmha_tensor *vkmha_run_find(const vkmha_run_state *run, const char *name, const char **path);

/* I32, or I64 that fits. */
vkmha_status vkmha_run_integers(vkmha_run_state *run, const vkmha_tensor *tensor, const char *path,
                                const int32_t **values);

/* All tensors of options. Errors: as above; a name in `tensors` that none has. */
vkmha_status vkmha_run_load_tensors(vkmha_run_state *run);

/* Prints their names, for --help. */
void vkmha_run_print_tensors(void);

/* ---- run_output.c ---------------------------------------------------------------------------- */

typedef struct vkmha_named_tensor {
    const char *name;
    const float *values;
    vkmha_type type; /* that they are written in */
    uint64_t dims[4];
    uint32_t num_dims;
} vkmha_named_tensor;

/* A safetensors file of several tensors, whole or not at all. Errors: FILE. */
vkmha_status vkmha_run_write(const char *path, const vkmha_named_tensor *tensors, uint32_t count,
                             vkmha_error *error);

#endif
