/* What ablate, noise, prune and heads look at: a layer with projections and its inputs, from a case
 * file or told as run is: subject.c; and the layer with other gates: gated.c. */
#ifndef VKMHA_TOOL_SUBJECT_H
#define VKMHA_TOOL_SUBJECT_H

#include "run.h"

typedef struct vkmha_subject {
    char name[256];
    const char *sentences; /* as in vkmha_case */
    /* fp32 inputs, sequences padded and without gaps, no present outputs. */
    vkmha_problem problem;
    uint64_t rows; /* of y: batch_size * query_len */
    uint64_t row_size;
    bool *is_real; /* [rows]: false for padding, which is left out of every measure */
    uint64_t real_rows;
    /* Where the weights are: for prune. */
    const char *weights_path;
    const vkmha_file *weights_file;
    bool is_case;
    /* Owned. */
    vkmha_pool pool;
    vkmha_case loaded;
    vkmha_run_state run;
    vkmha_file *file;
    vkmha_device *device;
} vkmha_subject;

/* The part of their usage that says how a layer is told. */
#define VKMHA_SUBJECT_USAGE                                                                        \
    "The layer and its inputs are those of CASE (vkmha demo takes the same files), or told by\n"   \
    "--weights, --prefix, --input and all other options that vkmha run has (vkmha run --help).\n"  \
    "Rows of padding count nowhere. --device D, --json: as for run.\n"

/*
 * Loads the layer and opens the device. `arguments` are what is left of the command line: a case,
 * or nothing. Errors: FILE, INVALID_ARGUMENT, UNSUPPORTED, those of the device. To be finished even
 * after an error.
 */
vkmha_status vkmha_subject_open(const vkmha_run_options *options, int num_arguments,
                                char **arguments, vkmha_subject *subject, vkmha_error *error);
void vkmha_subject_finish(vkmha_subject *subject);

/* Prints, or adds to `document`, the device and the layer. */
void vkmha_subject_tell(const vkmha_subject *subject, cJSON *document);

/* The same problem with every sequence `times` times, the first of each first: sequence
 * r * batch_size + b is b. A batch of one is not copied but read again. */
vkmha_status vkmha_subject_repeat(const vkmha_problem *problem, uint64_t times, vkmha_pool *pool,
                                  vkmha_problem *repeated, vkmha_error *error);

/* |output - base| / |base| over the real rows; NAN where there are none or the base is 0. */
double vkmha_subject_change(const vkmha_subject *subject, const float *output, const float *base);

/* ---- gated.c ------------------------------------------------------------------------------- */

/* Receives y of one variant. */
typedef void vkmha_gated_visit(void *user, uint64_t variant, const float *output);

/*
 * Runs the layer with `count` sets of gates [count, num_heads], each times the layer's own, as one
 * batch (or several, of at most 64 MiB a tensor), and shows each variant's y in order.
 */
vkmha_status vkmha_gated_run(vkmha_device *device, const vkmha_problem *problem, const float *gates,
                             uint64_t count, vkmha_gated_visit *visit, void *user,
                             vkmha_error *error);

/* Gates [count, batch_size, num_heads] of every sequence of every variant: the variant's [count,
 * num_heads] times the problem's own. NULL where memory is out. */
float *vkmha_gates_join(const vkmha_problem *problem, const float *gates, uint64_t count,
                        vkmha_pool *pool);

/* y with all heads, and how much of it changes without each: [num_heads]. */
typedef struct vkmha_importance {
    float *base;
    double *changes;
    uint32_t *order; /* heads, least important first */
} vkmha_importance;

/* The memory is the subject's. Errors: those of the library; INVALID_ARGUMENT where nothing can be
 * measured: no real row, or y is 0 or not finite. */
vkmha_status vkmha_subject_importance(vkmha_subject *subject, vkmha_importance *importance,
                                      vkmha_error *error);

#endif
