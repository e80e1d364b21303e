/* One device, layer and kernel choice, the same input: the same bits, whatever surrounds them. */
#ifndef VKMHA_TOOL_SAME_H
#define VKMHA_TOOL_SAME_H

#include "shape.h"
#include "verify.h"

/*
 * Runs a shape another way (again, cut differently, one sequence alone, padded, unpacked, its past
 * in a cache, without strides: `random` draws one of those that it can be run in) and compares bits
 * with `results`. Errors: those of the library. Different bits are noted in the verdict.
 */
vkmha_status vkmha_verify_same(vkmha_device *device, vkmha_random *random, vkmha_shape *shape,
                               const char *project_kernel, const char *attention_kernel,
                               const vkmha_results *results, vkmha_pool *pool,
                               vkmha_verdict *verdict, vkmha_error *error);

/* ---- same_problems.c: the other problems; the memory is the pool's ------------------------- */

/* Sequence b, by itself. */
vkmha_status vkmha_same_alone(const vkmha_problem *problem, uint64_t b, vkmha_pool *pool,
                              vkmha_problem *alone, vkmha_error *error);

/* The inputs without gaps, each in its own memory; the output too. */
vkmha_status vkmha_same_contiguous(const vkmha_problem *problem, vkmha_pool *pool,
                                   vkmha_problem *contiguous, vkmha_error *error);

/* `extra` more new keys of NaN, which key lengths say are not there. Of a contiguous problem that
 * is not packed and has neither key lengths nor masks over keys nor present outputs. */
vkmha_status vkmha_same_longer(const vkmha_problem *problem, uint64_t extra, vkmha_pool *pool,
                               vkmha_problem *longer, vkmha_error *error);

/* Of a contiguous packed problem: each sequence padded to the longest, of queries too. */
vkmha_status vkmha_same_unpacked(const vkmha_problem *problem, vkmha_pool *pool,
                                 vkmha_problem *unpacked, vkmha_error *error);

#endif
