/*
 * Where a layer's weights lie on the device: a pure function of limits and layer.
 *
 * A section is one projection's columns: heads of `pitch` columns each, the feature count rounded
 * up to 4, so that every head starts at a vec4; padding columns have zero weights and bias, so
 * their outputs are zero (for finite inputs). Weights are stored in the layer's weight_type, biases in
 * fp32. Sections whose inputs have the same width lie one
 * after the other in one matrix, so that one dispatch can compute all that share an input. A matrix
 * is cut into pieces of columns that a binding can hold.
 *
 * Where halves of a head are rotated together, the columns of queries and keys are paired: feature
 * k and its partner stand side by side, so that a vec4 of results holds both. Scores do not change,
 * since both are paired alike; keys that leave the device are put back.
 *
 * The tables that attention and rotation read (tables.h) are two pieces more.
 */
#ifndef VKMHA_RUNTIME_PACKING_H
#define VKMHA_RUNTIME_PACKING_H

#include "host.h"
#include "tables.h"

typedef enum vkmha_section_id {
    VKMHA_SECTION_QUERY = 0,
    VKMHA_SECTION_KEY,
    VKMHA_SECTION_VALUE,
    VKMHA_SECTION_OUTPUT,
    VKMHA_NUM_SECTIONS,
} vkmha_section_id;

typedef struct vkmha_section {
    uint32_t matrix;
    uint32_t first_column; /* in its matrix */
    uint32_t num_heads;    /* 1 for the output projection */
    uint32_t dim;          /* features of a head */
    uint32_t pitch;        /* columns of a head */
    uint32_t paired;       /* so many first columns of a head are paired features; 0: none */
    /* The input's features: `input_heads` runs of input_dim, each padded to input_pitch. */
    uint32_t input_heads;
    uint32_t input_dim;
    uint32_t input_pitch;
} vkmha_section;

/* A run of columns of one matrix, or the biases of all its columns, in one of the layer's blocks.
 */
typedef struct vkmha_piece {
    uint32_t first_column;
    uint32_t columns;
    uint32_t block;
    uint64_t offset; /* in bytes */
    uint64_t bytes;
} vkmha_piece;

typedef struct vkmha_packed_matrix {
    uint32_t columns;
    uint32_t depth; /* elements of a column, of weight_type; a multiple of 4 */
    uint32_t piece_columns;
    uint32_t first_piece;
    uint32_t num_pieces;
    uint32_t bias_piece;
} vkmha_packed_matrix;

typedef struct vkmha_packing {
    vkmha_section sections[VKMHA_NUM_SECTIONS];
    vkmha_packed_matrix matrices[VKMHA_NUM_SECTIONS];
    uint32_t num_matrices; /* 0: attention_only */
    vkmha_tables tables;
    uint32_t tables_piece; /* without bytes: no tables, as the next */
    uint32_t rotation_piece;
    vkmha_piece *pieces;
    uint32_t num_pieces;
    uint64_t *block_bytes;
    uint32_t num_blocks;
} vkmha_packing;

/* `layer` is checked. Errors: UNSUPPORTED (a column or table too large for a binding),
 * OUT_OF_MEMORY. */
vkmha_status vkmha_packing_init(const vkmha_limits *limits, const vkmha_layer_params *layer,
                                const vkmha_host *host, vkmha_packing *packing,
                                vkmha_error *error) VKMHA_CHECKED;
void vkmha_packing_finish(vkmha_packing *packing, const vkmha_host *host);

static inline uint32_t vkmha_round_up(uint32_t value, uint32_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

#endif
