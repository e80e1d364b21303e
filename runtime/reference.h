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

/* Of one query: its keys, all keys and the further ones at most; and the features of its result. */
typedef struct vkmha_scratch {
    uint64_t *key; /* those allowed, in ascending order */
    uint64_t *row; /* where key and value lie, those of the further keys too */
    double *score;
    double *slack;     /* how far a kernel's score may be off */
    double *weight;    /* exp(score - maximum), not normalised */
    double *most;      /* what a kernel's weight is at most */
    double *moved;     /* how far the weighted sum may move, by weights and values that are off */
    double *farthest;  /* a value's largest distance from the average */
    double *magnitude; /* sum of |weighted values| */
    double *largest;   /* |value| */
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
    double *weights;        /* the caller's, or NULL */
    vkmha_scratch scratch;
} vkmha_reference;

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

/* Rows of features: exact fp32 by strides, or, where `value` is given, contiguous double with what
 * each may be off by. */
typedef struct vkmha_feature_rows {
    const float *exact;
    uint64_t rows_per_batch;
    uint64_t batch_stride;
    uint64_t row_stride;
    const double *value;
    const double *bound;
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

/* Fills reference.attention and weights. */
void vkmha_reference_attend(const vkmha_reference *reference);

#endif
