#include "download.h"

#include <string.h>

/* A head region of the workspace to [batch, row, head, feature] in fp32. */
static vkmha_download from_region(const vkmha_plan *plan, const vkmha_block *workspace,
                                  float *target, vkmha_type type, const vkmha_region *region,
                                  uint64_t first_row, uint64_t all_rows, uint64_t rows,
                                  uint64_t heads, uint32_t dim, uint32_t paired)
{
    const uint64_t pitch = vkmha_round_up(dim, 4);
    const uint64_t batches = plan->params.is_packed ? 1 : plan->params.batch_size;
    const uint64_t skipped_bytes = first_row * pitch * vkmha_type_bytes(type);
    return (vkmha_download){
        .target = region->bytes && rows ? target : NULL,
        .source = workspace,
        .type = type,
        .target_type = VKMHA_TYPE_F32,
        .offset = region->offset + skipped_bytes,
        .bytes = region->bytes - skipped_bytes,
        .batches = batches,
        .rows = rows,
        .heads = heads,
        .dim = dim,
        .paired = paired,
        .from = {heads * all_rows * pitch, pitch, all_rows * pitch},
        .to = {rows * heads * dim, heads * dim, dim},
    };
}

static const vkmha_block *block_of(const vkmha_block *blocks, vkmha_resource resource)
{
    return &blocks[resource - VKMHA_RESOURCE_QUERY];
}

/* A tensor that lies in the device's memory as in the host's. */
static vkmha_download as_it_is(void *target, vkmha_type type, const vkmha_block *source,
                               uint64_t elements)
{
    return (vkmha_download){
        .target = elements ? target : NULL,
        .source = source,
        .type = type,
        .target_type = type,
        .bytes = elements * vkmha_type_bytes(type),
        .batches = 1,
        .rows = 1,
        .heads = 1,
    };
}

/* The output by its strides: what lies between its elements stays the caller's. */
static vkmha_download output_download(const vkmha_plan *plan, void *target,
                                      const vkmha_block *source)
{
    const vkmha_layer_params *layer = &plan->layer->params;
    const vkmha_strides *strides = &plan->params.output_strides;
    const vkmha_steps steps = {strides->batch, strides->row, strides->head};
    const vkmha_type type = plan->params.output_type;
    vkmha_download download = as_it_is(target, type, source, plan->sizes.output);
    const uint64_t features =
        layer->attention_only ? (uint64_t)layer->num_heads * layer->v_head_dim : layer->output_dim;
    if (plan->sizes.output == plan->sizes.query_rows * features) {
        return download; /* without gaps */
    }
    download.offset = strides->offset * vkmha_type_bytes(type);
    download.bytes -= download.offset;
    download.target = download.target ? (char *)download.target + download.offset : NULL;
    download.batches = plan->params.is_packed ? 1 : plan->params.batch_size;
    download.rows = plan->params.is_packed ? plan->params.total_queries : plan->params.query_len;
    download.heads = layer->attention_only ? layer->num_heads : 1;
    download.dim = layer->attention_only ? layer->v_head_dim : layer->output_dim;
    download.from = steps;
    download.to = steps;
    return download;
}

void vkmha_downloads_list(const vkmha_plan *plan, const vkmha_outputs *outputs,
                          const vkmha_block blocks[VKMHA_NUM_SLOTS],
                          vkmha_download downloads[VKMHA_NUM_DOWNLOADS])
{
    const vkmha_layer_params *layer = &plan->layer->params;
    const vkmha_plan_params *params = &plan->params;
    const vkmha_schedule *schedule = &plan->schedule;
    const vkmha_sizes *sizes = &plan->sizes;
    const uint64_t queries = params->is_packed ? params->total_queries : params->query_len;
    const uint64_t new_keys = params->is_packed ? params->total_keys : params->key_len;
    const uint64_t all_keys = params->is_packed ? params->total_keys : sizes->all_keys;
    const uint32_t paired = plan->layer->packing.sections[VKMHA_SECTION_KEY].paired;
    const vkmha_block *workspace = block_of(blocks, VKMHA_RESOURCE_WORKSPACE);
    const vkmha_type kept = vkmha_kept_type(layer, params);
    downloads[0] =
        output_download(plan, outputs->output, block_of(blocks, VKMHA_RESOURCE_OUTPUT));
    downloads[1] = from_region(plan, workspace, outputs->projected_query, VKMHA_TYPE_F32, &schedule->query, 0,
                               queries, queries, layer->num_heads, layer->head_dim, paired);
    downloads[2] =
        from_region(plan, workspace, outputs->projected_key, kept, &schedule->key, params->past_len,
                    all_keys, new_keys, layer->num_kv_heads, layer->head_dim, paired);
    downloads[3] =
        from_region(plan, workspace, outputs->projected_value, kept, &schedule->value, params->past_len,
                    all_keys, new_keys, layer->num_kv_heads, layer->v_head_dim, 0);
    downloads[4] = from_region(plan, workspace, outputs->attention, VKMHA_TYPE_F32, &schedule->attention, 0,
                               queries, queries, layer->num_heads, layer->v_head_dim, 0);
    /* Heads are side by side here: concatenated by layout. */
    const uint64_t pitch = vkmha_round_up(layer->v_head_dim, 4);
    downloads[4].from =
        (vkmha_steps){queries * layer->num_heads * pitch, layer->num_heads * pitch, pitch};
    const struct {
        void *target;
        uint64_t elements;
        vkmha_resource resource;
        vkmha_type type;
    } whole[] = {
        {outputs->present_key, sizes->present_key, VKMHA_RESOURCE_PRESENT_KEY, kept},
        {outputs->present_value, sizes->present_value, VKMHA_RESOURCE_PRESENT_VALUE, kept},
        {outputs->lse, sizes->lse, VKMHA_RESOURCE_LSE, VKMHA_TYPE_F32},
        {outputs->weights, sizes->weights, VKMHA_RESOURCE_TOLD_WEIGHTS, VKMHA_TYPE_F32},
        {outputs->mean_weights, sizes->mean_weights, VKMHA_RESOURCE_MEAN_WEIGHTS, VKMHA_TYPE_F32},
        {outputs->scores, sizes->scores, VKMHA_RESOURCE_SCORES, VKMHA_TYPE_F32},
        {outputs->statistics, sizes->statistics, VKMHA_RESOURCE_STATISTICS, VKMHA_TYPE_F32},
        {outputs->key_mass, sizes->key_mass, VKMHA_RESOURCE_KEY_MASS, VKMHA_TYPE_F32},
        {outputs->contributions, sizes->contributions, VKMHA_RESOURCE_CONTRIBUTIONS, VKMHA_TYPE_F32},
        {outputs->gate_gradients, sizes->gate_gradients, VKMHA_RESOURCE_GATE_GRADIENTS, VKMHA_TYPE_F32},
    };
    _Static_assert(sizeof(whole) / sizeof(whole[0]) + 5 == VKMHA_NUM_DOWNLOADS,
                   "every output has a download");
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        downloads[5 + i] =
            as_it_is(whole[i].target, whole[i].type, block_of(blocks, whole[i].resource),
                     whole[i].elements);
    }
}

vkmha_status vkmha_downloads_record(vkmha_device *device, VkCommandBuffer commands,
                                    vkmha_download downloads[VKMHA_NUM_DOWNLOADS],
                                    vkmha_error *error)
{
    const VkMemoryBarrier to_copy = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
    };
    device->vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                  VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &to_copy, 0, NULL, 0, NULL);
    for (uint32_t i = 0; i < VKMHA_NUM_DOWNLOADS; i++) {
        vkmha_download *download = &downloads[i];
        if (!download->target || (download->source->mapped && download->source->is_cached)) {
            continue;
        }
        vkmha_status status =
            vkmha_block_create(device, download->bytes, VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                               VKMHA_MEMORY_READBACK, &download->readback, error);
        if (status != VKMHA_OK) {
            return status;
        }
        const VkBufferCopy region = {download->offset, 0, download->bytes};
        device->vk.CmdCopyBuffer(commands, download->source->buffer, download->readback.buffer, 1,
                                 &region);
    }
    return VKMHA_OK;
}

/* The features of one row, put in order. */
static void unpack_row(const vkmha_download *download, const void *source, uint64_t from,
                       uint64_t to)
{
    const vkmha_type type = download->type;
    const uint32_t bytes = vkmha_type_bytes(type);
    for (uint32_t c = 0; c < download->dim; c++) {
        const uint64_t at = to + vkmha_paired_feature(download->paired, c);
        if (download->target_type == type) {
            memcpy((char *)download->target + at * bytes, (const char *)source + (from + c) * bytes,
                   bytes);
        } else {
            vkmha_store_element(download->target, download->target_type, at,
                                vkmha_load_element(source, type, from + c));
        }
    }
}

static void unpack(const vkmha_download *download, const void *source)
{
    if (download->dim == 0) {
        memcpy(download->target, source, (size_t)download->bytes);
        return;
    }
    for (uint64_t b = 0; b < download->batches; b++) {
        for (uint64_t s = 0; s < download->rows; s++) {
            for (uint64_t h = 0; h < download->heads; h++) {
                unpack_row(download, source,
                           b * download->from.batch + s * download->from.row +
                               h * download->from.head,
                           b * download->to.batch + s * download->to.row + h * download->to.head);
            }
        }
    }
}

vkmha_status vkmha_downloads_finish(vkmha_device *device,
                                    const vkmha_download downloads[VKMHA_NUM_DOWNLOADS],
                                    vkmha_error *error)
{
    for (uint32_t i = 0; i < VKMHA_NUM_DOWNLOADS; i++) {
        const vkmha_download *download = &downloads[i];
        if (download->target) {
            vkmha_status status = vkmha_block_invalidate(
                device, download->readback.mapped ? &download->readback : download->source, error);
            if (status != VKMHA_OK) {
                return status;
            }
        }
    }
    for (uint32_t i = 0; i < VKMHA_NUM_DOWNLOADS; i++) {
        const vkmha_download *download = &downloads[i];
        if (download->target) {
            const char *source = download->readback.mapped
                                     ? (const char *)download->readback.mapped
                                     : (const char *)download->source->mapped + download->offset;
            unpack(download, source);
        }
    }
    return VKMHA_OK;
}

void vkmha_downloads_destroy(vkmha_device *device, vkmha_download downloads[VKMHA_NUM_DOWNLOADS])
{
    for (uint32_t i = 0; i < VKMHA_NUM_DOWNLOADS; i++) {
        vkmha_block_destroy(device, &downloads[i].readback);
    }
}
