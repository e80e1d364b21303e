#include "packing.h"

#include <inttypes.h>

#include "convert.h"

enum {
    /* A piece's first column is a multiple of this, so that kernels' column tiles do not straddle
       pieces. */
    COLUMN_GRANULE = 256,
    PIECE_ALIGNMENT = 256, /* the largest minStorageBufferOffsetAlignment that Vulkan allows */
    MAX_PIECES = 4096,     /* allocations that every Vulkan device grants */
};

static void describe_sections(const vkmha_layer_params *layer, vkmha_section *sections)
{
    const uint32_t key_pitch = vkmha_round_up(layer->head_dim, 4);
    const uint32_t value_pitch = vkmha_round_up(layer->v_head_dim, 4);
    const uint32_t paired = vkmha_paired_features(layer);
    sections[VKMHA_SECTION_QUERY] = (vkmha_section){
        .num_heads = layer->num_heads,
        .dim = layer->head_dim,
        .pitch = key_pitch,
        .paired = paired,
        .input_heads = 1,
        .input_dim = layer->embed_dim,
    };
    sections[VKMHA_SECTION_KEY] = (vkmha_section){
        .num_heads = layer->num_kv_heads,
        .dim = layer->head_dim,
        .pitch = key_pitch,
        .paired = paired,
        .input_heads = 1,
        .input_dim = layer->key_dim,
    };
    sections[VKMHA_SECTION_VALUE] = (vkmha_section){
        .num_heads = layer->num_kv_heads,
        .dim = layer->v_head_dim,
        .pitch = value_pitch,
        .input_heads = 1,
        .input_dim = layer->value_dim,
    };
    sections[VKMHA_SECTION_OUTPUT] = (vkmha_section){
        .num_heads = 1,
        .dim = layer->output_dim,
        .pitch = vkmha_round_up(layer->output_dim, 4),
        .input_heads = layer->num_heads,
        .input_dim = layer->v_head_dim,
    };
    for (uint32_t i = 0; i < VKMHA_NUM_SECTIONS; i++) {
        sections[i].input_pitch = vkmha_round_up(sections[i].input_dim, 4);
    }
}

static void group_into_matrices(vkmha_packing *packing)
{
    for (uint32_t i = 0; i < VKMHA_NUM_SECTIONS; i++) {
        vkmha_section *section = &packing->sections[i];
        const uint32_t depth = section->input_heads * section->input_pitch;
        const bool joins = i > 0 && i != VKMHA_SECTION_OUTPUT &&
                           section->input_dim == packing->sections[i - 1].input_dim;
        if (!joins) {
            packing->matrices[packing->num_matrices++].depth = depth;
        }
        section->matrix = packing->num_matrices - 1;
        vkmha_packed_matrix *matrix = &packing->matrices[section->matrix];
        section->first_column = matrix->columns;
        matrix->columns += section->num_heads * section->pitch;
    }
}

/* The most that a binding to one allocation can hold. */
static uint64_t piece_limit(const vkmha_limits *limits)
{
    return limits->max_storage_range_bytes < limits->max_allocation_bytes
               ? limits->max_storage_range_bytes
               : limits->max_allocation_bytes;
}

static vkmha_status size_pieces(const vkmha_limits *limits, vkmha_type type, vkmha_packing *packing,
                                vkmha_error *error)
{
    const uint64_t limit = piece_limit(limits);
    for (uint32_t i = 0; i < packing->num_matrices; i++) {
        vkmha_packed_matrix *matrix = &packing->matrices[i];
        const uint64_t column_bytes = (uint64_t)matrix->depth * vkmha_type_bytes(type);
        /* A window may start up to one alignment before its first column. */
        uint64_t fitting = limit > PIECE_ALIGNMENT ? (limit - PIECE_ALIGNMENT) / column_bytes : 0;
        if (fitting < matrix->columns) {
            fitting = fitting / COLUMN_GRANULE * COLUMN_GRANULE;
        }
        if (fitting == 0) {
            return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                              "weights with %u input features are too large for this device: %d "
                              "columns of them exceed its binding of %" PRIu64 " bytes",
                              matrix->depth, COLUMN_GRANULE, limit);
        }
        matrix->piece_columns = fitting < matrix->columns ? (uint32_t)fitting : matrix->columns;
        matrix->num_pieces = (matrix->columns + matrix->piece_columns - 1) / matrix->piece_columns;
        packing->num_pieces += matrix->num_pieces + 1;
    }
    packing->tables_piece = packing->num_pieces++;
    packing->rotation_piece = packing->num_pieces++;
    if (packing->num_pieces > MAX_PIECES) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "the layer's weights need %u bindings, more than %d", packing->num_pieces,
                          MAX_PIECES);
    }
    return VKMHA_OK;
}

/* Tables are not cut: a kernel may reach any part of them. */
static vkmha_status check_tables(const vkmha_limits *limits, const vkmha_layer_params *layer,
                                 const vkmha_tables *tables, vkmha_error *error)
{
    const uint64_t limit = piece_limit(limits);
    if (tables->rotation_count * 4 > limit) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "rope.max_positions %u is too large for this device: its table exceeds a "
                          "binding of %" PRIu64 " bytes",
                          layer->rope.max_positions, limit);
    }
    if ((uint64_t)tables->count * 4 > limit) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "the tables of %u heads are too large for this device: %" PRIu64
                          " bytes exceed a binding of %" PRIu64,
                          layer->num_heads, (uint64_t)tables->count * 4, limit);
    }
    return VKMHA_OK;
}

/* Pieces share blocks as long as an allocation holds them. */
static void place_piece(const vkmha_limits *limits, vkmha_packing *packing, vkmha_piece *piece)
{
    uint64_t *bytes = packing->num_blocks ? &packing->block_bytes[packing->num_blocks - 1] : NULL;
    const uint64_t size = (piece->bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
    if (!bytes || *bytes + size > limits->max_allocation_bytes) {
        bytes = &packing->block_bytes[packing->num_blocks++];
        *bytes = 0;
    }
    piece->block = packing->num_blocks - 1;
    piece->offset = *bytes;
    *bytes += size;
}

vkmha_status vkmha_packing_init(const vkmha_limits *limits, const vkmha_layer_params *layer,
                                const vkmha_host *host, vkmha_packing *packing, vkmha_error *error)
{
    *packing = (vkmha_packing){0};
    vkmha_tables_init(layer, &packing->tables);
    vkmha_status status = check_tables(limits, layer, &packing->tables, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (!layer->attention_only) {
        describe_sections(layer, packing->sections);
        group_into_matrices(packing);
    }
    status = size_pieces(limits, layer->weight_type, packing, error);
    if (status != VKMHA_OK) {
        return status;
    }
    packing->pieces = vkmha_host_allocate(host, packing->num_pieces, sizeof(vkmha_piece));
    packing->block_bytes = vkmha_host_allocate(host, packing->num_pieces, sizeof(uint64_t));
    if (!packing->pieces || !packing->block_bytes) {
        vkmha_packing_finish(packing, host);
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < packing->num_matrices; i++) {
        vkmha_packed_matrix *matrix = &packing->matrices[i];
        matrix->first_piece = next;
        for (uint32_t first = 0; first < matrix->columns; first += matrix->piece_columns) {
            const uint32_t left = matrix->columns - first;
            vkmha_piece *piece = &packing->pieces[next++];
            piece->first_column = first;
            piece->columns = left < matrix->piece_columns ? left : matrix->piece_columns;
            piece->bytes = (uint64_t)piece->columns * matrix->depth *
                           vkmha_type_bytes(layer->weight_type);
            place_piece(limits, packing, piece);
        }
        matrix->bias_piece = next++;
        vkmha_piece *bias = &packing->pieces[matrix->bias_piece];
        bias->columns = matrix->columns;
        bias->bytes = (uint64_t)matrix->columns * 4;
        place_piece(limits, packing, bias);
    }
    const uint64_t table_bytes[2] = {(uint64_t)packing->tables.count * 4,
                                     packing->tables.rotation_count * 4};
    for (uint32_t i = 0; i < 2; i++) {
        vkmha_piece *piece = &packing->pieces[packing->tables_piece + i];
        piece->bytes = table_bytes[i];
        if (piece->bytes > 0) {
            place_piece(limits, packing, piece);
        }
    }
    return VKMHA_OK;
}

void vkmha_packing_finish(vkmha_packing *packing, const vkmha_host *host)
{
    vkmha_host_release(host, packing->pieces);
    vkmha_host_release(host, packing->block_bytes);
    *packing = (vkmha_packing){0};
}
