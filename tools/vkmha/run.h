/* What vkmha run works on: run.c (the command), run_inputs.c (query, key, value), run_tensors.c
 * (the options' tensors), run_output.c. */
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

typedef struct vkmha_named_tensor {
    const char *name;
    const float *values;
    uint64_t dims[4];
    uint32_t num_dims;
} vkmha_named_tensor;

/* A safetensors file of several tensors, whole or not at all. Errors: FILE. */
vkmha_status vkmha_run_write(const char *path, const vkmha_named_tensor *tensors, uint32_t count,
                             vkmha_error *error);

#endif
