/*
 * What kernels read of a layer besides weights, as floats: slopes, sinks, relative biases by
 * distance, the extra key and value; and apart from it the rotation, cosine and sine of every
 * position and pair. Pure.
 */
#ifndef VKMHA_RUNTIME_TABLES_H
#define VKMHA_RUNTIME_TABLES_H

#include "status.h"

/* Where each table begins, in floats, as vkmha_attention_options tells the kernels
 * (shaders/interface.h). */
typedef struct vkmha_tables {
    uint32_t slopes;
    uint32_t sinks;
    uint32_t relative;
    uint32_t relative_reach;
    uint32_t bias_k;
    uint32_t bias_v;
    uint32_t options;        /* VKMHA_OPTION_ bits of the tables that there are */
    uint32_t count;          /* 0: no table */
    uint64_t rotation_count; /* floats of the rotation, 0: none */
} vkmha_tables;

/* First columns of a projected query or key that are paired (packing.h); 0: none. */
static inline uint32_t vkmha_paired_features(const vkmha_layer_params *layer)
{
    return !layer->attention_only && layer->rope.style == VKMHA_ROPE_HALF ? layer->rope.dim : 0;
}

/* The feature of a head that stands in column `column`, where the first `paired` columns are
 * paired. */
static inline uint32_t vkmha_paired_feature(uint32_t paired, uint32_t column)
{
    return column < paired ? column % 2 * (paired / 2) + column / 2 : column;
}

/* `layer` is checked. */
void vkmha_tables_init(const vkmha_layer_params *layer, vkmha_tables *tables);

/* Writes all `count` floats. */
void vkmha_tables_fill(const vkmha_layer_params *layer, const vkmha_tables *tables, float *values);

/* Writes floats first..first+count of the rotation. */
void vkmha_rotation_fill(const vkmha_layer_params *layer, uint64_t first, uint64_t count,
                         float *values);

#endif
