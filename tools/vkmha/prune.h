/* What vkmha prune works on: prune.c (the command), prune_problem.c (which heads stay, and the
 * problem with those), prune_write.c (the file). */
#ifndef VKMHA_TOOL_PRUNE_H
#define VKMHA_TOOL_PRUNE_H

#include "subject.h"
#include "writer.h"

/* The heads that stay, ascending. */
typedef struct vkmha_selection {
    uint32_t num_heads; /* before */
    uint32_t num_kv_heads;
    uint32_t *heads;
    uint32_t *kv_heads;
    uint32_t num_kept;
    uint32_t num_kv_kept;
    bool *keeps; /* [num_heads] */
    bool *keeps_kv;
} vkmha_selection;

/* ---- prune_problem.c ----------------------------------------------------------------------- */

/* keeps: [num_heads]. Errors: INVALID_ARGUMENT where no layer says what is left. */
vkmha_status vkmha_selection_make(const vkmha_problem *problem, const bool *keeps, vkmha_pool *pool,
                                  vkmha_selection *selection, vkmha_error *error);

/* What a problem has for each head, of the kept ones; its weights stay those of all. */
vkmha_status vkmha_selection_apply(const vkmha_selection *selection, const vkmha_problem *problem,
                                   vkmha_pool *pool, vkmha_problem *pruned, vkmha_error *error);

/* ---- prune_write.c ------------------------------------------------------------------------- */

/* What a case file is to expect of the pruned layer: y and the largest error of it. */
typedef struct vkmha_expectation {
    const float *output;
    uint64_t count;
    double tolerance;
} vkmha_expectation;

/*
 * Writes the subject's file without the heads that go: same names, types and layout, other tensors
 * as they are. A case loses its expected outputs but y, which is that of `expected`. Errors: FILE,
 * UNSUPPORTED.
 */
vkmha_status vkmha_prune_write(const vkmha_subject *subject, const vkmha_selection *selection,
                               const vkmha_expectation *expected, vkmha_pool *pool,
                               vkmha_writer *writer, vkmha_error *error);

#endif
