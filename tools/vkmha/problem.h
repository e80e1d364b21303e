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
    uint64_t
        key_dim; /* features of one position of each input; heads * head dim where attention_only */
    uint64_t value_dim;
    uint64_t query_dim;
    uint64_t output_dim;
    uint64_t query_rows; /* batch_size * query_len */
    uint64_t key_rows;   /* batch_size * key_len */
    uint64_t output;     /* elements, as the next four */
    uint64_t heads_query;
    uint64_t heads_key;
    uint64_t heads_value;
    uint64_t attention;
} vkmha_problem_sizes;

vkmha_problem_sizes vkmha_problem_measure(const vkmha_problem *problem);

/* The inputs that the kernels read, whichever of them are shared. */
const float *vkmha_problem_key(const vkmha_problem *problem);
const float *vkmha_problem_value(const vkmha_problem *problem);

/* Options that this version cannot run; the names under which cases are skipped. */
typedef enum vkmha_skip {
    VKMHA_SKIP_WINDOW = 0,
    VKMHA_SKIP_CAUSAL_OFFSET,
    VKMHA_SKIP_PER_ITEM_POSITIONS,
    VKMHA_SKIP_ROPE,
    VKMHA_SKIP_ALIBI,
    VKMHA_SKIP_SOFTCAP,
    VKMHA_SKIP_BIAS_KV,
    VKMHA_SKIP_ZERO_ATTN,
    VKMHA_SKIP_HEAD_MASK,
    VKMHA_SKIP_PAST,
    VKMHA_SKIP_PRESENT,
    VKMHA_SKIP_WEIGHTS,
    VKMHA_SKIP_WEIGHTS_AVG,
    VKMHA_SKIP_SCORES,
    VKMHA_NUM_SKIPS,
} vkmha_skip;

const char *vkmha_skip_name(vkmha_skip skip);

/* A case file, as tests/golden/README.md describes them. */
typedef struct vkmha_case {
    const char *name;
    const char *sentences; /* separated by " | "; NULL: none */
    vkmha_problem problem;
    uint32_t
        option_skips; /* bits of vkmha_skip: options; where not 0, `problem` is not filled in */
    uint32_t output_skips; /* bits of vkmha_skip: outputs */
    const float *expected; /* the output; NULL: not listed */
    double tolerance;
    const float *expected_weights; /* for the reference, which has them; NULL: not listed */
    double weights_tolerance;
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
