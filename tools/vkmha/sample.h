/* Judging a sample of a run that is too large for the reference. */
#ifndef VKMHA_TOOL_SAMPLE_H
#define VKMHA_TOOL_SAMPLE_H

#include "verify.h"

enum {
    VKMHA_SAMPLE_ROWS = 64,    /* of each projection, spread from first to last */
    VKMHA_SAMPLE_QUERIES = 16, /* of each sequence, spread likewise, in all heads */
};

/*
 * As vkmha_verify's stages, on the rows above: a sampled query sees all of its keys, so each judged
 * element is judged in full. The problem has projections and no mask but causal.
 */
vkmha_status vkmha_verify_sample(const vkmha_problem *problem, const vkmha_trial *trial,
                                 const vkmha_results *results, vkmha_pool *pool,
                                 vkmha_verdict *verdict, vkmha_error *error);

#endif
