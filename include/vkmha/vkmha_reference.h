/*
 * The CPU reference: what vkmha computes, in plain double-precision loops, with a bound on the rounding
 * error that an fp32 kernel may make in each element. Needs no Vulkan header, loader or device.
 *
 * The bound. A sum of n products, each factor with unit roundoff u = 2^-24, differs from the exact sum by at
 * most gamma_n * sum |a_i b_i|, gamma_n = n u / (1 - n u), in any order, fused or not; with probability
 * 1 - 2 exp(-lambda^2 / 2) already by lambda sqrt(n) u * sum |a_i b_i| (Higham, "Accuracy and Stability of
 * Numerical Algorithms", ch. 3; Higham and Mary 2019). Projections take the smaller of gamma_n and max(10 sqrt(n), n / 3) u,
 * since equal terms drift to one side; attention's sums take gamma_n, since small weights vanish to one side. Vulkan's own
 * allowances are added: exp within 3 + 2|x| ULP, division 2.5 ULP, flushed denormals; rounding is to nearest.
 */
#ifndef VKMHA_REFERENCE_H
#define VKMHA_REFERENCE_H

#include <vkmha/vkmha.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All optional (NULL: not wanted), all contiguous, shapes as in vkmha_outputs. */
typedef struct vkmha_reference_outputs {
    double *output;
    /* Largest |result - output| of an honest kernel, all stages together. What is stored in 16 bits (output, present
     * key and value) is given rounded, and the bound is what rounding makes of the interval: often 0; infinite where a
     * part of it rounds to Inf, 0 where all of it does. */
    double *output_bound;
    /* What vkmha_outputs tells besides the output, each with its bound, whether or not the plan asks for it (but
     * chosen_heads, chosen_queries and scores are the plan's). */
    double *lse; /* -INFINITY where no key is allowed; its bound is 0 there */
    double *lse_bound;
    double *weights;
    double *weights_bound;
    double *mean_weights;
    double *mean_weights_bound;
    double *scores; /* not where the plan's is NONE */
    double *scores_bound;
    double *statistics; /* [batch_size, num_heads, query_len, 8], in the order of vkmha_statistics */
    double *statistics_bound;
    double *key_mass;
    double *key_mass_bound;
    double *contributions; /* not with attention_only */
    double *contributions_bound;
    double *gate_gradients; /* needs the plan's has_gate_gradients */
    double *gate_gradients_bound;
    double *present_key;  /* as vkmha_outputs; with or without has_present. Not with is_packed or a cache. */
    double *present_key_bound;
    double *present_value;
    double *present_value_bound;
} vkmha_reference_outputs;

/*
 * Runs the layer on the CPU. `layer` and `plan` are the structs that a device would be given; what concerns
 * only devices (kernel names, work limits) is ignored here. A plan with a cache is
 * UNSUPPORTED: give its keys as past_key and past_value.
 * chains: the kernels' chains of additions (vkmha_plan_get_info), which sharpen the bound; NULL: the worst.
 * host: NULL means {0}.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY; the same checks as a device makes.
 * Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_reference_run(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                           const vkmha_inputs *inputs, const vkmha_chains *chains,
                                           const vkmha_host *host, const vkmha_reference_outputs *outputs,
                                           vkmha_error *error);

/*
 * Rotary positions, in place: values and bounds [rows, heads, head_dim] turn by positions[r] of row r. `rope` is a
 * layer's; head_dim its own. bound may be NULL. Errors: INVALID_ARGUMENT. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_reference_rotate(const vkmha_rope *rope, uint32_t head_dim, uint64_t rows,
                                              uint64_t heads, const int32_t *positions, double *values,
                                              double *bound, vkmha_error *error);

/*
 * One projection: output[r, n] = sum_k input[r, k] * weight[n, k] + bias[n], with its bound.
 * input: [rows, weight->columns]. output and bound: [rows, weight->rows], each may be NULL.
 * chain: the longest chain of additions; 0: weight->columns. bias: NULL or absent data: none.
 * Errors: INVALID_ARGUMENT. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_reference_project(const float *input, uint64_t rows, const vkmha_matrix *weight,
                                               const vkmha_vector *bias, uint64_t chain, double *output,
                                               double *bound, vkmha_error *error);

typedef struct vkmha_comparison {
    /* Every element finite, or the very infinity that a bound of 0 asks for; every bound finite; every error <= bound. */
    bool passed;
    double max_abs;   /* largest |got - expected| */
    double max_rel;   /* largest |got - expected| / |expected| where expected is not 0 */
    double max_ratio; /* largest error / bound */
    double rms_ratio; /* root mean square of error / bound */
    uint64_t worst_index; /* of max_ratio, or the first element that is not finite */
    uint64_t num_failed;
} vkmha_comparison;

/*
 * Compares `count` elements. An element fails unless error <= bound, so NaN fails; a bound that is not
 * finite fails. 0 elements pass. Thread-safety: any thread.
 */
VKMHA_API void vkmha_compare(const float *got, const double *expected, const double *bound, uint64_t count,
                             vkmha_comparison *comparison);

#ifdef __cplusplus
}
#endif

#endif
