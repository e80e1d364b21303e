/* One problem: a layer, a plan and inputs; with what a case file expects of it. */
#ifndef VKMHA_TOOL_PROBLEM_H
#define VKMHA_TOOL_PROBLEM_H

#include "tool.h"

#include <vkmha/vkmha_files.h>

/* What the library is asked, as it is asked; the memory belongs to someone's pool or file. */
typedef struct vkmha_problem {
    vkmha_layer_params layer;
    vkmha_plan_params plan;
    vkmha_inputs inputs;
} vkmha_problem;

/* Sizes with the defaults filled in. */
typedef struct vkmha_problem_sizes {
    uint64_t num_kv_heads;
    uint64_t v_head_dim;
    /* Features of one position; heads * head dim where attention_only. */
    uint64_t query_dim;
    uint64_t key_dim;
    uint64_t value_dim;
    uint64_t output_dim;
    uint64_t query_rows; /* of all sequences */
    uint64_t key_rows;   /* new keys */
    uint64_t all_keys;   /* of one sequence: of the past, then the new ones */
    uint64_t output;     /* elements without gaps, as the following */
    uint64_t heads_query;
    uint64_t heads_key;
    uint64_t heads_value;
    uint64_t attention;
    uint64_t present_key; /* 0 without has_present, as the next */
    uint64_t present_value;
    uint64_t head_gates;
} vkmha_problem_sizes;

vkmha_problem_sizes vkmha_problem_measure(const vkmha_problem *problem);

/* The inputs that the kernels read, whichever of them are shared. */
const float *vkmha_problem_key(const vkmha_problem *problem);
const float *vkmha_problem_value(const vkmha_problem *problem);

/* What a sequence is given. */
typedef struct vkmha_problem_item {
    uint64_t first_query_row; /* among all query rows: b * query_len, or where packed it begins */
    uint64_t query_length;
    uint64_t first_key_row; /* among all new keys' rows */
    uint64_t new_keys;
    int64_t first_key;
    int64_t key_length; /* of all keys */
    int64_t position_offset;
} vkmha_problem_item;

vkmha_problem_item vkmha_problem_sequence(const vkmha_problem *problem, uint64_t b);

/* Bytes of a mask's row of keys; those of bits begin a new word. 0 without a mask. */
static inline uint64_t vkmha_mask_row_bytes(const vkmha_plan_params *plan)
{
    const uint64_t keys = plan->mask_dims[3];
    switch (plan->mask) {
    case VKMHA_MASK_NONE:
        break;
    case VKMHA_MASK_ATTEND:
        return keys;
    case VKMHA_MASK_ADDITIVE:
        return keys * sizeof(float);
    case VKMHA_MASK_ADDITIVE_F16:
        return keys * sizeof(uint16_t);
    case VKMHA_MASK_ATTEND_BITS:
        return (keys + 31) / 32 * sizeof(uint32_t);
    }
    return 0;
}

/* The tensors of a problem that may be strided. */
typedef enum vkmha_role {
    VKMHA_ROLE_QUERY = 0,
    VKMHA_ROLE_KEY,
    VKMHA_ROLE_VALUE,
    VKMHA_ROLE_OUTPUT,
} vkmha_role;

/* Where a tensor's elements lie; packed: batch 1; with projections: one head. */
typedef struct vkmha_span {
    uint64_t batch;
    uint64_t rows;
    uint64_t heads;
    uint64_t features;
    vkmha_strides strides;
} vkmha_span;

/* As the problem's strides say. */
vkmha_span vkmha_problem_span(const vkmha_problem *problem, vkmha_role role);

/* The same tensor without gaps, in the problem's layout. */
vkmha_span vkmha_problem_contiguous(const vkmha_problem *problem, vkmha_role role);

/* Elements from the start of the memory to the last of the tensor. */
uint64_t vkmha_span_extent(const vkmha_span *span);

/* Copies a tensor to where `to`, which has the same dimensions, says. */
void vkmha_span_copy(const vkmha_span *from, const float *values, const vkmha_span *to,
                     float *copied);

/* What a plan tells besides the output: members of vkmha_outputs and vkmha_reference_outputs
 * (told.h). */
typedef enum vkmha_told {
    VKMHA_TOLD_LSE = 0,
    VKMHA_TOLD_WEIGHTS,
    VKMHA_TOLD_MEAN_WEIGHTS,
    VKMHA_TOLD_SCORES,
    VKMHA_TOLD_STATISTICS,
    VKMHA_TOLD_KEY_MASS,
    VKMHA_TOLD_CONTRIBUTIONS,
    VKMHA_TOLD_GATE_GRADIENTS,
    VKMHA_NUM_TOLD,
} vkmha_told;

/* A case file, as tests/golden/README.md describes them. */
typedef struct vkmha_case {
    const char *name;
    const char *sentences; /* separated by " | "; NULL: none */
    vkmha_problem problem;
    const float *expected; /* the output; NULL: not listed */
    double tolerance;
    const float *expected_present_key; /* NULL: not listed; so is the next */
    double present_key_tolerance;
    const float *expected_present_value;
    double present_value_tolerance;
    const float *expected_told[VKMHA_NUM_TOLD]; /* NULL: not listed */
    double told_tolerance[VKMHA_NUM_TOLD];
    vkmha_scores scores; /* where those listed are looked at */
    vkmha_pool pool;
    vkmha_file *file;
    vkmha_file *weights_file;
} vkmha_case;

/*
 * Loads a case. *is_case is false where the file is a sound file but no case; `loaded` is empty
 * then. Errors: FILE (names file and field), OUT_OF_MEMORY. On failure `loaded` is empty.
 */
vkmha_status vkmha_case_load(const char *path, vkmha_case *loaded, bool *is_case,
                             vkmha_error *error);
void vkmha_case_finish(vkmha_case *loaded);

#endif
