/* One device, layer and kernel choice, the same input: the same bits, whatever surrounds them. */
#ifndef VKMHA_TOOL_SAME_H
#define VKMHA_TOOL_SAME_H

#include "shape.h"
#include "verify.h"

/*
 * Runs a shape another way (again, cut differently, one batch item alone, or padded: `random`
 * draws) and compares bits with `results`. Not every shape can be run in every way; it is run again
 * then. Errors: those of the library. Different bits are noted in the verdict.
 */
vkmha_status vkmha_verify_same(vkmha_device *device, vkmha_random *random, vkmha_shape *shape,
                               const char *project_kernel, const char *attention_kernel,
                               const vkmha_results *results, vkmha_pool *pool,
                               vkmha_verdict *verdict, vkmha_error *error);

#endif
