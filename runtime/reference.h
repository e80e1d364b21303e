/* What the files of the CPU reference share. */
#ifndef VKMHA_RUNTIME_REFERENCE_H
#define VKMHA_RUNTIME_REFERENCE_H

#include <vkmha/vkmha_reference.h>

#include "params.h"

/* Heads [row, head, feature] in double, and what each may be off by. */
typedef struct vkmha_values {
    double *value;
    double *bound;
    uint64_t heads;
    uint64_t features;
} vkmha_values;

/* What is summed over a row's keys to bound their weighted average. */
typedef struct vkmha_spread {
    double moved;     /* how far the weighted sum may move, by weights and values that are off */
    double farthest;  /* a value's largest distance from the average */
    double magnitude; /* sum of |weighted values| */
    double largest;   /* |value| */
} vkmha_spread;

/* Of one query: its keys, all keys and the further ones at most; and the features of its result. */
typedef struct vkmha_scratch {
    uint64_t *key; /* those allowed, in ascending order */
    uint64_t *row; /* where key and value lie, those of the further keys too */
    double *score;
    double *slack;        /* how far a kernel's score may be off */
    double *weight;       /* exp(score - maximum), not normalised */
    double *most;         /* what a kernel's weight is at most */
    vkmha_spread *spread; /* of each feature */
    double *column;       /* the row's normalised weights, by column */
    double *column_bound;
    double *added; /* to the output by rows of one head: [VKMHA_CONTRIBUTE_ROWS, output_dim] */
    double *added_bound;
} vkmha_scratch;

/* bias_k and bias_v; the zero-attention slot; the sink, whose value is the slot's. */
enum { VKMHA_FURTHER_KEYS = 3 };

typedef struct vkmha_reference {
    const vkmha_layer_params *layer;
    const vkmha_plan_params *plan;
    const vkmha_inputs *inputs;
    vkmha_sizes sizes;
    vkmha_chains chains;
    double scale;
    double scale_off;   /* of its fp32 form */
    uint64_t bias_row;  /* of key and value: bias_k and bias_v */
    uint64_t zero_row;  /* and the row of zeros behind it, the last */
    vkmha_values query; /* [query rows, num_heads, head_dim] */
    /* A sequence's past and new keys in one piece, then the two rows above. */
    vkmha_values key;
    vkmha_values value;
    vkmha_values attention; /* [query rows, num_heads, v_head_dim] */
    const vkmha_reference_outputs *outputs;
    vkmha_scratch scratch;
} vkmha_reference;

/* One query of one head. */
typedef struct vkmha_row {
    const vkmha_item *item;
    uint64_t b;
    uint64_t h;
    uint64_t i;
    int64_t position;
    uint64_t first_key_row;
} vkmha_row;

static inline double vkmha_longest(uint64_t chain, uint64_t worst)
{
    return chain != 0 ? (double)chain : (double)worst;
}

static inline uint64_t vkmha_values_at(const vkmha_values *values, uint64_t row, uint64_t h)
{
    return (row * values->heads + h) * values->features;
}

/* Where a sequence's key 0 lies in reference.key and reference.value. */
uint64_t vkmha_reference_first_key_row(const vkmha_reference *reference, const vkmha_item *item,
                                       uint64_t b);

/* Rows of features: exact fp32, or, where `value` is given, double with what each may be off by. */
typedef struct vkmha_feature_rows {
    const float *exact;
    const double *value;
    const double *bound;
    uint64_t rows_per_batch;
    uint64_t batch_stride;
    uint64_t row_stride;
} vkmha_feature_rows;

/* output[r, n] = sum_k input[r, k] * weight[n, k] + bias[n]; output and bound may be NULL. */
void vkmha_reference_project_rows(const vkmha_feature_rows *input, uint64_t rows,
                                  const vkmha_matrix *weight, const vkmha_vector *bias,
                                  uint64_t chain, double *output, double *bound);

/* Turns one row of heads to `position`; bound may be NULL. */
void vkmha_reference_turn(const vkmha_rope *rope, uint32_t head_dim, uint64_t heads,
                          int64_t position, double *values, double *bound);

/* Fills reference.query, key and value: projected, turned, after the past. `new_key` and
 * `new_value` have room for the new keys' rows alone. */
void vkmha_reference_heads(vkmha_reference *reference, const vkmha_values *new_key,
                           const vkmha_values *new_value);

/* Copies of tensors and weights in other types. */
enum { VKMHA_NUM_WIDENED = 9 };
typedef struct vkmha_widened {
    void *memory[VKMHA_NUM_WIDENED];
} vkmha_widened;

/*
 * Points checked inputs at fp32 copies of what is stored in 16 bits, and weights at copies rounded to
 * weight_type (reference_types.c). False where memory is out; `widened` is to be finished either way.
 */
bool vkmha_reference_widen(const vkmha_plan_params *plan, const vkmha_sizes *sizes,
                           const vkmha_host *host, vkmha_layer_params *layer, vkmha_inputs *inputs,
                           vkmha_widened *widened);
void vkmha_widened_finish(vkmha_widened *widened, const vkmha_host *host);

/* What storing in `type` makes of values and their bounds. */
void vkmha_reference_store(vkmha_type type, uint64_t count, double *values, double *bounds);

/* Fills reference.attention and what is told of queries and keys. */
void vkmha_reference_attend(const vkmha_reference *reference);

/* scale * (q . k), and how far an fp32 kernel's may be off. */
double vkmha_reference_product(const vkmha_reference *reference, uint64_t query_at, uint64_t key_at,
                               double *slack);

/* The layer's softcap on a score, where it has one. */
double vkmha_reference_cap(const vkmha_layer_params *layer, double score, double *slack);

/* What a row's softmax makes of its keys, in the scratch: first those that it attends, then the
 * further ones, of which the first have columns. Kernels' weights and sums are meant relative to
 * the true maximum. */
typedef struct vkmha_row_sums {
    uint64_t count; /* keys that the row attends */
    uint64_t total; /* with the further ones */
    double maximum; /* of the scores, as the next two of what they may be */
    double floor;
    double ceiling;
    double exponentials; /* chained in a weight */
    double sum;          /* of the weights */
    double least;        /* what a kernel's is at least, rounding of the sum aside */
    double rounding;     /* how far that rounds it, as a part of it */
} vkmha_row_sums;

/* Terms that a kernel may add up one after the other, and times that it may rescale them. */
double vkmha_reference_terms(const vkmha_reference *reference, uint64_t total);
double vkmha_reference_rescales(const vkmha_reference *reference, uint64_t total);

/* What a kernel's average may be off by. */
double vkmha_reference_average_bound(const vkmha_reference *reference, const vkmha_row_sums *sums,
                                     const vkmha_spread *spread, double average);

/* ---- reference_outputs.c: what is told besides the output ------------------------------------ */

/* Before the first row. */
void vkmha_reference_tell_nothing(const vkmha_reference *reference);

/* Tells of one row; one that the sequence does not have has no keys. */
void vkmha_reference_tell_row(const vkmha_reference *reference, const vkmha_row *row,
                              const vkmha_row_sums *sums);

/* ---- reference_contribute.c ------------------------------------------------------------------ */

/* Rows at a time, for which the scratch has room. */
enum { VKMHA_CONTRIBUTE_ROWS = 16 };

bool vkmha_reference_contributes(const vkmha_reference_outputs *outputs);

/* Contributions and gate gradients, from reference.attention. */
void vkmha_reference_contribute(const vkmha_reference *reference);

#endif
