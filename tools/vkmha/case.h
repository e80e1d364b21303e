/* Loading a case file: case.c (metadata: what is asked), case_options.c (attention's options) and
 * case_tensors.c (weights, inputs, masks). */
#ifndef VKMHA_TOOL_CASE_H
#define VKMHA_TOOL_CASE_H

#include "problem.h"

/* What loading works on. */
typedef struct vkmha_loader {
    const char *path;
    vkmha_case *loaded;
    vkmha_error *error;
    uint64_t batch_size;
    uint64_t query_len;
    uint64_t key_len;
    uint64_t past_len;
    uint64_t num_heads;
    uint64_t num_kv_heads;
    uint64_t head_dim;
    uint64_t v_head_dim;
    uint64_t embed_dim;
    uint64_t key_dim;
    uint64_t value_dim;
    uint64_t output_dim;
    bool has_projections;
    bool has_head_first_layout;
} vkmha_loader;

#define VKMHA_TRY(call)                                                                            \
    do {                                                                                           \
        const vkmha_status try_status = (call);                                                    \
        if (try_status != VKMHA_OK) {                                                              \
            return try_status;                                                                     \
        }                                                                                          \
    } while (0)

/* ---- case.c -------------------------------------------------------------------------------- */

/* A FILE error: "path: field "value" rule". */
vkmha_status vkmha_loader_refuse(const vkmha_loader *load, const char *field, const char *value,
                                 const char *rule);

/* The metadata's value, or `fallback`. */
const char *vkmha_loader_text(const vkmha_loader *load, const char *field, const char *fallback);
bool vkmha_loader_says(const vkmha_loader *load, const char *field, const char *fallback,
                       const char *value);
vkmha_status vkmha_loader_double(const vkmha_loader *load, const char *field, const char *fallback,
                                 double *number);
vkmha_status vkmha_loader_flag(const vkmha_loader *load, const char *field, bool *flag);
vkmha_status vkmha_loader_size(const vkmha_loader *load, const char *field, const char *fallback,
                               uint64_t *size);

/* ---- case_options.c ------------------------------------------------------------------------ */

/* Positions, causal order and windows. */
vkmha_status vkmha_loader_positions(vkmha_loader *load);

/* Softcap, RoPE, ALiBi, further keys, gates, past. */
vkmha_status vkmha_loader_options(vkmha_loader *load);

/* ---- case_tensors.c ------------------------------------------------------------------------ */

/* A tensor of exactly these dimensions. */
vkmha_status vkmha_loader_floats(const vkmha_loader *load, const char *name, const uint64_t *dims,
                                 uint32_t num_dims, const float **values);

/* [batch, seq, features] with projections, else heads as the layout says. */
vkmha_status vkmha_loader_sequence(const vkmha_loader *load, const char *name, uint64_t length,
                                   uint64_t features, uint64_t heads, uint64_t head_dim,
                                   const float **values);

vkmha_status vkmha_loader_layer(vkmha_loader *load);
vkmha_status vkmha_loader_inputs(const vkmha_loader *load);
vkmha_status vkmha_loader_masks(const vkmha_loader *load);

#endif
