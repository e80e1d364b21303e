/* What a plan tells besides the output, as a list: names, shapes, memory. */
#ifndef VKMHA_TOOL_TOLD_H
#define VKMHA_TOOL_TOLD_H

#include "problem.h"

#include <vkmha/vkmha_reference.h>

enum {
    VKMHA_NUM_STATISTICS = sizeof(vkmha_statistics) / sizeof(float),
};

/* Names of a tensor's dimensions: "bihd" is [batch, query, head, feature]. */
typedef struct vkmha_axes {
    uint64_t dims[4];
    char letters[5];
} vkmha_axes;

uint64_t vkmha_axes_count(const vkmha_axes *axes);

const char *vkmha_told_name(vkmha_told told);
bool vkmha_told_is_asked(const vkmha_plan_params *plan, vkmha_told told);

/* Statistics have a dimension more, "s". */
vkmha_axes vkmha_told_axes(const vkmha_problem *problem, vkmha_told told);

/* The memory, NULL for what is not told, as the library takes it. */
void vkmha_told_outputs(float *const memory[VKMHA_NUM_TOLD], vkmha_outputs *outputs);
void vkmha_told_reference(double *const values[VKMHA_NUM_TOLD],
                          double *const bounds[VKMHA_NUM_TOLD], vkmha_reference_outputs *outputs);

/* The problem with nothing told. */
void vkmha_told_nothing(vkmha_problem *problem);

/* The problem with all told that it can tell: of all heads and queries, scores as masked where they
 * are not asked for otherwise. The gradient is the pool's. Errors: OUT_OF_MEMORY. */
vkmha_status vkmha_told_everything(vkmha_problem *problem, vkmha_pool *pool, vkmha_error *error);

#endif
