#include "layer.h"

#include <string.h>

#include "convert.h"
#include "params.h"

/* One piece to be packed, as the source of a fill. */
typedef struct vkmha_pack_source {
    const vkmha_layer_params *layer;
    const vkmha_packing *packing;
    uint32_t matrix;
    const vkmha_piece *piece;
} vkmha_pack_source;

static const vkmha_matrix *weight_of(const vkmha_layer_params *layer, uint32_t section)
{
    const vkmha_matrix *weights[VKMHA_NUM_SECTIONS] = {&layer->w_q, &layer->w_k, &layer->w_v,
                                                       &layer->w_o};
    return weights[section];
}

static const vkmha_vector *bias_of(const vkmha_layer_params *layer, uint32_t section)
{
    const vkmha_vector *biases[VKMHA_NUM_SECTIONS] = {&layer->b_q, &layer->b_k, &layer->b_v,
                                                      &layer->b_o};
    return biases[section];
}

/* The section that holds `column` of a matrix, and the row of its weight there; false: a padding
 * column. */
static bool find_row(const vkmha_packing *packing, uint32_t matrix, uint32_t column,
                     uint32_t *section, uint64_t *row)
{
    for (uint32_t i = 0; i < VKMHA_NUM_SECTIONS; i++) {
        const vkmha_section *candidate = &packing->sections[i];
        const uint32_t columns = candidate->num_heads * candidate->pitch;
        if (candidate->matrix != matrix || column < candidate->first_column ||
            column >= candidate->first_column + columns) {
            continue;
        }
        const uint32_t local = column - candidate->first_column;
        *section = i;
        *row = (uint64_t)(local / candidate->pitch) * candidate->dim +
               vkmha_paired_feature(candidate->paired, local % candidate->pitch);
        return local % candidate->pitch < candidate->dim;
    }
    return false;
}

/* Elements first..first+count of one column: `input_heads` runs of input_dim features, each
 * zero-padded. */
static void pack_column(const vkmha_matrix *weight, const vkmha_section *section, uint64_t row,
                        uint32_t first, uint32_t count, vkmha_type type, void *destination)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t run = (first + i) / section->input_pitch;
        const uint32_t feature = (first + i) % section->input_pitch;
        float value = 0.0f;
        if (feature < section->input_dim) {
            const uint64_t column = (uint64_t)run * section->input_dim + feature;
            const uint64_t at = row * weight->row_stride + column * weight->column_stride;
            value = vkmha_load_element(weight->data, weight->type, at);
        }
        vkmha_store_element(destination, type, i, value);
    }
}

static void fill_weights(const void *source, uint64_t first, uint64_t bytes, void *destination)
{
    const vkmha_pack_source *pack = source;
    const uint32_t depth = pack->packing->matrices[pack->matrix].depth;
    const vkmha_type type = pack->layer->weight_type;
    const uint32_t element_bytes = vkmha_type_bytes(type);
    unsigned char *target = destination;
    uint64_t index = first / element_bytes;
    const uint64_t end = index + bytes / element_bytes;
    while (index < end) {
        const uint32_t column = pack->piece->first_column + (uint32_t)(index / depth);
        const uint32_t begin = (uint32_t)(index % depth);
        const uint64_t left = end - index;
        const uint32_t count = left < depth - begin ? (uint32_t)left : depth - begin;
        uint32_t section;
        uint64_t row;
        if (find_row(pack->packing, pack->matrix, column, &section, &row)) {
            pack_column(weight_of(pack->layer, section), &pack->packing->sections[section], row,
                        begin, count, type, target);
        } else {
            memset(target, 0, (size_t)count * element_bytes);
        }
        target += (uint64_t)count * element_bytes;
        index += count;
    }
}

static void fill_bias(const void *source, uint64_t first, uint64_t bytes, void *destination)
{
    const vkmha_pack_source *pack = source;
    float *target = destination;
    for (uint64_t i = 0; i < bytes / 4; i++) {
        uint32_t section;
        uint64_t row;
        target[i] = 0.0f;
        if (find_row(pack->packing, pack->matrix, (uint32_t)(first / 4 + i), &section, &row)) {
            const vkmha_vector *bias = bias_of(pack->layer, section);
            if (bias->data) {
                target[i] = vkmha_load_element(bias->data, bias->type, row);
            }
        }
    }
}

static vkmha_status upload_pieces(vkmha_layer *layer, const vkmha_layer_params *params,
                                  vkmha_error *error)
{
    const vkmha_packing *packing = &layer->packing;
    vkmha_status status = VKMHA_OK;
    for (uint32_t m = 0; m < packing->num_matrices; m++) {
        const vkmha_packed_matrix *matrix = &packing->matrices[m];
        for (uint32_t i = matrix->first_piece; i <= matrix->bias_piece; i++) {
            const vkmha_piece *piece = &packing->pieces[i];
            const vkmha_pack_source source = {params, packing, m, piece};
            status = vkmha_upload(layer->device, &layer->blocks[piece->block], piece->offset,
                                  piece->bytes, i == matrix->bias_piece ? fill_bias : fill_weights,
                                  &source, error);
            if (status != VKMHA_OK) {
                return status;
            }
        }
    }
    return status;
}

static void fill_rotation(const void *source, uint64_t first, uint64_t bytes, void *destination)
{
    vkmha_rotation_fill(source, first / 4, bytes / 4, destination);
}

static vkmha_status upload_tables(vkmha_layer *layer, const vkmha_layer_params *params,
                                  vkmha_error *error)
{
    const vkmha_packing *packing = &layer->packing;
    const vkmha_host *host = &layer->device->host;
    const vkmha_piece *piece = &packing->pieces[packing->tables_piece];
    vkmha_status status = VKMHA_OK;
    if (piece->bytes > 0) {
        float *values = vkmha_host_allocate(host, packing->tables.count, sizeof(float));
        if (!values) {
            return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
        }
        vkmha_tables_fill(params, &packing->tables, values);
        const vkmha_byte_source source = {values, piece->bytes};
        status = vkmha_upload(layer->device, &layer->blocks[piece->block], piece->offset,
                              piece->bytes, vkmha_fill_bytes, &source, error);
        vkmha_host_release(host, values);
    }
    piece = &packing->pieces[packing->rotation_piece];
    if (status == VKMHA_OK && piece->bytes > 0) {
        status = vkmha_upload(layer->device, &layer->blocks[piece->block], piece->offset,
                              piece->bytes, fill_rotation, params, error);
    }
    return status;
}

static void free_layer(vkmha_layer *layer)
{
    vkmha_device *device = layer->device;
    const vkmha_host host = device->host;
    for (uint32_t i = 0; layer->blocks && i < layer->packing.num_blocks; i++) {
        vkmha_block_destroy(device, &layer->blocks[i]);
    }
    vkmha_host_release(&host, layer->blocks);
    vkmha_packing_finish(&layer->packing, &host);
    vkmha_host_release(&host, layer);
    vkmha_device_destroy(device);
}

void vkmha_layer_retain(vkmha_layer *layer)
{
    vkmha_lock_acquire(&layer->device->lock);
    layer->references++;
    vkmha_lock_release(&layer->device->lock);
}

void vkmha_layer_destroy(vkmha_layer *layer)
{
    if (!layer) {
        return;
    }
    vkmha_lock_acquire(&layer->device->lock);
    const bool is_last = --layer->references == 0;
    vkmha_lock_release(&layer->device->lock);
    if (is_last) {
        free_layer(layer);
    }
}

static void forget_host_data(vkmha_layer_params *params)
{
    vkmha_matrix *matrices[] = {&params->w_q, &params->w_k, &params->w_v, &params->w_o};
    vkmha_vector *vectors[] = {&params->b_q, &params->b_k, &params->b_v, &params->b_o};
    for (uint32_t i = 0; i < VKMHA_NUM_SECTIONS; i++) {
        matrices[i]->data = NULL;
        vectors[i]->data = NULL;
    }
    params->rope.cos = NULL;
    params->rope.sin = NULL;
    params->alibi_slopes = NULL;
    params->relative_bias.table = NULL;
    params->sinks = NULL;
    /* That there is a further key stays known: it has a column in weights. */
    static const float forgotten = 0.0f;
    params->bias_k = params->bias_k ? &forgotten : NULL;
    params->bias_v = params->bias_v ? &forgotten : NULL;
}

vkmha_status vkmha_layer_create(vkmha_device *device, const vkmha_layer_params *params,
                                vkmha_layer **layer, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!layer) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "layer is NULL");
    }
    *layer = NULL;
    if (!device) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "device is NULL");
    }
    vkmha_layer_params checked;
    vkmha_status status = vkmha_check_layer(params, &checked, error);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_layer *made = vkmha_host_allocate(&device->host, 1, sizeof(*made));
    if (!made) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    made->device = device;
    made->references = 1;
    made->params = checked;
    forget_host_data(&made->params);
    vkmha_device_retain(device);
    status =
        vkmha_packing_init(&device->info.limits, &checked, &device->host, &made->packing, error);
    if (status == VKMHA_OK) {
        made->blocks =
            vkmha_host_allocate(&device->host, made->packing.num_blocks, sizeof(vkmha_block));
        if (!made->blocks) {
            status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
        }
    }
    for (uint32_t i = 0; status == VKMHA_OK && i < made->packing.num_blocks; i++) {
        status = vkmha_block_create(device, made->packing.block_bytes[i],
                                    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                                    VKMHA_MEMORY_DEVICE, &made->blocks[i], error);
    }
    if (status == VKMHA_OK) {
        status = upload_pieces(made, &checked, error);
    }
    if (status == VKMHA_OK) {
        status = upload_tables(made, &checked, error);
    }
    if (status != VKMHA_OK) {
        vkmha_layer_destroy(made);
        return status;
    }
    *layer = made;
    return VKMHA_OK;
}
