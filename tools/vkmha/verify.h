/* Runs one problem on the device, and judges each stage against the reference fed that stage's own
 * inputs. */
#ifndef VKMHA_TOOL_VERIFY_H
#define VKMHA_TOOL_VERIFY_H

#include "told.h"

/* ---- Running ------------------------------------------------------------------------------- */

/* A problem made ready on a device. */
typedef struct vkmha_trial {
    vkmha_layer *layer;
    vkmha_plan *plan;
    vkmha_plan_info info;
    bool has_times;
} vkmha_trial;

/* project_kernel, attention_kernel: rows by name, NULL: chosen. The plan's work limit is the
 * problem's. Errors: those of the library. On failure *trial is empty. */
vkmha_status vkmha_trial_create(vkmha_device *device, const vkmha_problem *problem,
                                const char *project_kernel, const char *attention_kernel,
                                vkmha_trial *trial, vkmha_error *error);
void vkmha_trial_finish(vkmha_trial *trial);

/* What a run gave; the memory is the pool's. Projected tensors and attention: NULL where
 * attention_only or not asked; present ones: without has_present. */
typedef struct vkmha_results {
    float *output; /* without the gaps of its strides */
    float *present_key;
    float *present_value;
    float *projected_query;
    float *projected_key;
    float *projected_value;
    float *attention;
    float *told[VKMHA_NUM_TOLD];         /* NULL: not asked */
    uint64_t stage_ns[VKMHA_NUM_STAGES]; /* 0 without timestamps */
    bool is_overrun; /* something was written past an output's end, or between its elements */
} vkmha_results;

/* Outputs are filled with NaN before, so that what is not written is seen. */
vkmha_status vkmha_trial_run(const vkmha_trial *trial, const vkmha_problem *problem,
                             bool wants_stages, vkmha_pool *pool, vkmha_results *results,
                             vkmha_error *error);

/* Runs it `runs` times more, on a device with timestamps. times: [stage][run], ascending. */
vkmha_status vkmha_trial_time(const vkmha_trial *trial, const vkmha_problem *problem, uint64_t runs,
                              float *output, uint64_t *times, vkmha_error *error);

/* Of one stage's times. */
double vkmha_trial_median(const uint64_t *times, uint64_t runs);

/* ---- Judging ------------------------------------------------------------------------------- */

typedef struct vkmha_judgement {
    const char *stage;
    vkmha_comparison comparison;
    bool is_bound; /* judged by the reference's bound rather than by a given tolerance */
} vkmha_judgement;

enum {
    VKMHA_MAX_JUDGEMENTS = 64,
};

/* {0} is "nothing judged yet". */
typedef struct vkmha_verdict {
    vkmha_judgement judgements[VKMHA_MAX_JUDGEMENTS];
    uint32_t count;
    /* The first failure. */
    bool has_failed;
    const char *stage;
    char where[128]; /* the worst element, or what is wrong without one */
    double got;
    double expected;
    double bound;
} vkmha_verdict;

/*
 * Judges one tensor: every element within its bound; not finite where, and only where, the expected
 * one is not, and with a bound of 0 the very infinity; and, with is_bound, the root mean square of
 * error / bound small, since a wrong kernel does not hide in the mean. The arrays are changed where
 * both sides are not finite.
 */
void vkmha_judge(vkmha_verdict *verdict, const char *stage, vkmha_axes axes, float *got,
                 double *expected, double *bound, bool is_bound);

/* Records a failure that has no element. */
void vkmha_judge_fail(vkmha_verdict *verdict, const char *stage, const char *what);

/*
 * Judges a run's results: each stage against the reference fed the device's own inputs of that
 * stage, then the whole against the reference's end-to-end bound, then, where `expected` is not
 * NULL, against its tensors. Errors: those of the reference, OUT_OF_MEMORY; a wrong result is no
 * error but in the verdict.
 */
vkmha_status vkmha_verify(const vkmha_problem *problem, const vkmha_trial *trial,
                          const vkmha_results *results, const vkmha_case *expected,
                          vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error);

/* One projection and what the device made of it. */
typedef struct vkmha_projection {
    const char *stage;
    const float *input; /* [rows, weight->columns] */
    uint64_t rows;
    const vkmha_matrix *weight;
    const vkmha_vector *bias;
    /* Of queries and keys that are turned; else NULL. */
    const vkmha_rope *rope;
    const int32_t *positions; /* [rows] */
    uint32_t head_dim;
    vkmha_type type;  /* that the results are stored in */
    vkmha_axes axes;  /* of `got` */
    const float *got; /* [rows, weight->rows] */
} vkmha_projection;

enum {
    VKMHA_NUM_PROJECTIONS = 4, /* query, key, value, output */
};

/* The projections of a run that kept its stages, and their inputs: for the last, the device's own
 * attention. Errors: OUT_OF_MEMORY. */
vkmha_status vkmha_projections_of(const vkmha_problem *problem, const vkmha_results *results,
                                  vkmha_pool *pool, vkmha_projection *projections,
                                  vkmha_error *error);

/* is_exact: the sums are exact in fp32, so no error is allowed. */
vkmha_status vkmha_verify_projection(const vkmha_projection *projection, uint64_t chain,
                                     bool is_exact, vkmha_pool *pool, vkmha_verdict *verdict,
                                     vkmha_error *error);

/* The attention stage: `got`, without gaps, of the attention_only problem `stage`, and what that
 * tells, which may be nothing. */
vkmha_status vkmha_verify_attention(const vkmha_problem *stage, const vkmha_chains *chains,
                                    const char *name, const float *got,
                                    float *const told[VKMHA_NUM_TOLD], vkmha_pool *pool,
                                    vkmha_verdict *verdict, vkmha_error *error);

/* The attention_only problem that a run's projected tensors make, for the reference; it tells what
 * can be told without W_O. */
vkmha_problem vkmha_attention_problem(const vkmha_problem *problem, const vkmha_results *results);

/* [batch, query, feature] with projections, else heads as the layout says; packed: batch 1. */
vkmha_axes vkmha_output_axes(const vkmha_problem *problem);

/* Copies for judging, which may change them. Errors: OUT_OF_MEMORY. */
typedef struct vkmha_answer {
    float *got;
    double *expected;
    double *bound;
} vkmha_answer;

vkmha_status vkmha_answer_prepare(const float *got, uint64_t count, vkmha_pool *pool,
                                  vkmha_answer *answer, vkmha_error *error);

/* ---- verify_told.c: what is told besides the output ---------------------------------------- */

typedef struct vkmha_told_answers {
    vkmha_answer of[VKMHA_NUM_TOLD]; /* {0}: not asked */
} vkmha_told_answers;

/* Copies of what the problem asks for, and room for the reference's. Errors: OUT_OF_MEMORY. */
vkmha_status vkmha_told_prepare(const vkmha_problem *problem, float *const told[VKMHA_NUM_TOLD],
                                vkmha_pool *pool, vkmha_told_answers *answers, vkmha_error *error);

/* The room, for the reference to fill. */
void vkmha_told_fill(const vkmha_told_answers *answers, vkmha_reference_outputs *outputs);

/* is_whole: fed the problem's own inputs, through projections. */
void vkmha_judge_told(const vkmha_problem *problem, vkmha_told_answers *answers, bool is_whole,
                      vkmha_verdict *verdict);

/* Statistics against those of the run's own weights, where all are told, summed in double; both may
 * be off by the reference's bounds. Before the answers are judged. Errors: OUT_OF_MEMORY. */
vkmha_status vkmha_verify_statistics(const vkmha_problem *problem,
                                     const vkmha_told_answers *answers, vkmha_pool *pool,
                                     vkmha_verdict *verdict, vkmha_error *error);

/* Contributions and gate gradients against the device's own attention through W_O. */
vkmha_status vkmha_verify_contributions(const vkmha_problem *problem, const vkmha_results *results,
                                        vkmha_pool *pool, vkmha_verdict *verdict,
                                        vkmha_error *error);

/*
 * The output is linear in the gates: with c the output's gradient, the sum of a head's gate
 * gradients is <c, output> less that of a second run without the head. Nothing is done where the
 * problem does not tell gate gradients.
 */
vkmha_status vkmha_verify_gates(vkmha_device *device, const vkmha_problem *problem,
                                uint64_t left_out, const char *project_kernel,
                                const char *attention_kernel, const vkmha_results *results,
                                vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error);

/* ---- The stages ---------------------------------------------------------------------------- */

/* Judges each stage of a run that kept them. */
vkmha_status vkmha_verify_stages(const vkmha_problem *problem, const vkmha_chains *chains,
                                 const vkmha_results *results, vkmha_pool *pool,
                                 vkmha_verdict *verdict, vkmha_error *error);

/* One line: "stage S, element [..]: got .., expected .., bound ..". */
void vkmha_verdict_describe(const vkmha_verdict *verdict, char *text, size_t size);

#endif
