/*
 * Types of storage. A problem's tensors are held in fp32, whatever types its layer and plan name, and
 * hold only what those types can; here they are stored so, and loaded, where the library is called.
 */
#ifndef VKMHA_TOOL_STORED_H
#define VKMHA_TOOL_STORED_H

#include "problem.h"

#include <vkmha/vkmha_reference.h>

/* "f32", "f16" or "bf16"; else false after an error line that names the option. */
bool vkmha_parse_type(const char *option, const char *text, vkmha_type *type);

const char *vkmha_type_name(vkmha_type type);

/* The type of keys and values that attention sees, as vkmha_layer_params.cache_type says. */
vkmha_type vkmha_problem_kept_type(const vkmha_problem *problem);

/* Rounds the problem's inputs, which are the caller's to write, to their types. */
void vkmha_problem_round(const vkmha_problem *problem);

/* Makes weight_type the layer's, with copies of the weights so rounded. Errors: OUT_OF_MEMORY. */
vkmha_status vkmha_problem_round_weights(vkmha_problem *problem, vkmha_type weight_type,
                                         vkmha_pool *pool, vkmha_error *error);

/* The problem's inputs in their types. Errors: OUT_OF_MEMORY. */
vkmha_status vkmha_stored_inputs(const vkmha_problem *problem, vkmha_pool *pool,
                                 vkmha_inputs *inputs, vkmha_error *error);

/* vkmha_run with outputs in fp32, of which `guard` elements past the end are stored and loaded too. */
vkmha_status vkmha_stored_run(vkmha_plan *plan, const vkmha_problem *problem,
                              const vkmha_outputs *outputs, uint64_t guard, vkmha_pool *pool,
                              vkmha_error *error);

/* vkmha_reference_run of the problem. */
vkmha_status vkmha_stored_reference(const vkmha_problem *problem, const vkmha_chains *chains,
                                    const vkmha_reference_outputs *outputs, vkmha_pool *pool,
                                    vkmha_error *error);

/* What storing makes of values and their bounds. */
void vkmha_stored_round(vkmha_type type, uint64_t count, double *values, double *bounds);

#endif
