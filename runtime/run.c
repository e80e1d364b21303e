/* Host tensors: upload, submit in parts below the work limit, wait, download. */
#include <string.h>

#include "record.h"

/* The outputs that a run can download. */
enum { OUTPUT, PROJECTED_QUERY, PROJECTED_KEY, PROJECTED_VALUE, ATTENTION, NUM_DOWNLOADS };

/* A tensor on its way back. On the device a head has `pitch` floats, of which `dim` are wanted; pitch 0: as it is. */
typedef struct vkmha_way_back {
    float *target; /* NULL: not wanted */
    const vkmha_block *source;
    uint64_t offset;
    uint64_t bytes;
    uint64_t batches;
    uint64_t heads;
    uint64_t positions;
    uint32_t dim;
    uint32_t pitch;
    bool heads_first; /* on the device; the host has [batch, position, head, feature] */
    vkmha_block readback; /* where the host cannot read the source well */
} vkmha_way_back;

typedef struct vkmha_run_state {
    vkmha_block query;
    vkmha_block key;
    vkmha_block value;
    vkmha_block mask;
    vkmha_block attend_keys;
    vkmha_block key_lengths;
    vkmha_block output;
    vkmha_block workspace;
    vkmha_bindings *bindings;
    VkQueryPool queries;
    vkmha_way_back downloads[NUM_DOWNLOADS];
} vkmha_run_state;

static void copy_bytes(const void *source, uint64_t first, uint64_t bytes, void *destination)
{
    memcpy(destination, (const char *)source + first, (size_t)bytes);
}

/* A tensor of bytes that is uploaded in words: what is missing of the last word is zero. */
typedef struct vkmha_byte_source {
    const void *data;
    uint64_t bytes;
} vkmha_byte_source;

static void copy_padded(const void *source, uint64_t first, uint64_t bytes, void *destination)
{
    const vkmha_byte_source *tensor = source;
    const uint64_t left = tensor->bytes - first;
    const uint64_t count = left < bytes ? left : bytes;
    memcpy(destination, (const char *)tensor->data + first, (size_t)count);
    memset((char *)destination + count, 0, (size_t)(bytes - count));
}

static vkmha_status upload_tensor(vkmha_device *device, const void *data, uint64_t bytes,
                                  VkBufferUsageFlags usage, vkmha_block *block, vkmha_error *error)
{
    if (bytes == 0) {
        return VKMHA_OK;
    }
    const uint64_t granule = usage & VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT ? 16 : 4;
    const uint64_t padded = (bytes + granule - 1) / granule * granule;
    vkmha_status status = vkmha_block_create(device, padded, usage | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                                             VKMHA_MEMORY_DEVICE, block, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const vkmha_byte_source source = {data, bytes};
    return padded == bytes
               ? vkmha_upload(device, block, 0, bytes, copy_bytes, data, error)
               : vkmha_upload(device, block, 0, padded, copy_padded, &source, error);
}

static vkmha_status upload_inputs(const vkmha_plan *plan, const vkmha_inputs *inputs,
                                  vkmha_run_state *state, vkmha_error *error)
{
    vkmha_device *device = plan->layer->device;
    const vkmha_sizes *sizes = &plan->sizes;
    const VkBufferUsageFlags storage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT;
    const struct {
        const void *data;
        uint64_t bytes;
        VkBufferUsageFlags usage;
        vkmha_block *block;
    } tensors[] = {
        {inputs->query, sizes->query * 4, storage, &state->query},
        {inputs->key, plan->params.key_is_query ? 0 : sizes->key * 4, storage, &state->key},
        {inputs->value, plan->params.value_is_key ? 0 : sizes->value * 4, storage, &state->value},
        {inputs->mask, sizes->mask_bytes, storage, &state->mask},
        {inputs->attend_keys, sizes->attend_keys, storage, &state->attend_keys},
        {inputs->key_lengths, sizes->key_lengths * 4, VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT,
         &state->key_lengths},
    };
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        vkmha_status status = upload_tensor(device, tensors[i].data, tensors[i].bytes,
                                            tensors[i].usage, tensors[i].block, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    const struct {
        uint64_t bytes;
        vkmha_block *block;
    } results[] = {
        {sizes->output * 4, &state->output},
        {plan->schedule.workspace_bytes, &state->workspace},
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        if (results[i].bytes == 0) {
            continue;
        }
        vkmha_status status = vkmha_block_create(device, results[i].bytes,
                                                 storage | VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
                                                 VKMHA_MEMORY_DEVICE, results[i].block, error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

static vkmha_buffer whole(const vkmha_block *block)
{
    return (vkmha_buffer){block->buffer, 0, block->size};
}

static vkmha_status bind(vkmha_plan *plan, vkmha_run_state *state, vkmha_error *error)
{
    const vkmha_buffers buffers = {
        .query = whole(&state->query),
        .key = whole(&state->key),
        .value = whole(&state->value),
        .mask = whole(&state->mask),
        .attend_keys = whole(&state->attend_keys),
        .key_lengths = whole(&state->key_lengths),
        .output = whole(&state->output),
        .workspace = whole(&state->workspace),
    };
    return vkmha_bindings_create(plan, &buffers, &state->bindings, error);
}

/* ---- The way back ------------------------------------------------------------------------------------ */

static vkmha_way_back from_region(const vkmha_plan *plan, const vkmha_run_state *state, float *target,
                                  const vkmha_region *region, uint64_t heads, uint64_t positions,
                                  uint32_t dim, bool heads_first)
{
    return (vkmha_way_back){
        .target = region->bytes ? target : NULL,
        .source = &state->workspace,
        .offset = region->offset,
        .bytes = region->bytes,
        .batches = plan->params.batch_size,
        .heads = heads,
        .positions = positions,
        .dim = dim,
        .pitch = vkmha_round_up(dim, 4),
        .heads_first = heads_first,
    };
}

static void list_downloads(const vkmha_plan *plan, const vkmha_outputs *outputs,
                           vkmha_run_state *state)
{
    const vkmha_layer_params *layer = &plan->layer->params;
    const vkmha_schedule *schedule = &plan->schedule;
    const uint64_t query_len = plan->params.query_len;
    const uint64_t key_len = plan->params.key_len;
    const uint64_t output_bytes = plan->sizes.output * 4;
    state->downloads[OUTPUT] = (vkmha_way_back){
        .target = output_bytes ? outputs->output : NULL,
        .source = &state->output,
        .bytes = output_bytes,
    };
    state->downloads[PROJECTED_QUERY] =
        from_region(plan, state, outputs->projected_query, &schedule->query, layer->num_heads,
                    query_len, layer->head_dim, true);
    state->downloads[PROJECTED_KEY] =
        from_region(plan, state, outputs->projected_key, &schedule->key, layer->num_kv_heads, key_len,
                    layer->head_dim, true);
    state->downloads[PROJECTED_VALUE] =
        from_region(plan, state, outputs->projected_value, &schedule->value, layer->num_kv_heads,
                    key_len, layer->v_head_dim, true);
    state->downloads[ATTENTION] =
        from_region(plan, state, outputs->attention, &schedule->attention, layer->num_heads,
                    query_len, layer->v_head_dim, false);
}

/* Where the host cannot see a tensor, or reads it slowly, a copy for it is recorded. */
static vkmha_status record_readbacks(vkmha_device *device, vkmha_run_state *state,
                                     VkCommandBuffer commands, vkmha_error *error)
{
    const VkMemoryBarrier to_copy = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT,
    };
    device->vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                  VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &to_copy, 0, NULL, 0, NULL);
    for (uint32_t i = 0; i < NUM_DOWNLOADS; i++) {
        vkmha_way_back *download = &state->downloads[i];
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

static void unpack(const vkmha_way_back *download, const float *source)
{
    float *target = download->target;
    if (download->pitch == 0) {
        memcpy(target, source, (size_t)download->bytes);
        return;
    }
    for (uint64_t b = 0; b < download->batches; b++) {
        for (uint64_t s = 0; s < download->positions; s++) {
            for (uint64_t h = 0; h < download->heads; h++) {
                const uint64_t row =
                    download->heads_first
                        ? (b * download->heads + h) * download->positions + s
                        : (b * download->positions + s) * download->heads + h;
                memcpy(target, source + row * download->pitch, download->dim * sizeof(float));
                target += download->dim;
            }
        }
    }
}

/* All that can fail comes before the first byte is written to the caller's memory. */
static vkmha_status download_all(vkmha_device *device, vkmha_run_state *state, vkmha_error *error)
{
    for (uint32_t i = 0; i < NUM_DOWNLOADS; i++) {
        const vkmha_way_back *download = &state->downloads[i];
        if (download->target) {
            vkmha_status status = vkmha_block_invalidate(
                device, download->readback.mapped ? &download->readback : download->source, error);
            if (status != VKMHA_OK) {
                return status;
            }
        }
    }
    for (uint32_t i = 0; i < NUM_DOWNLOADS; i++) {
        const vkmha_way_back *download = &state->downloads[i];
        if (download->target) {
            const char *source = download->readback.mapped
                                     ? (const char *)download->readback.mapped
                                     : (const char *)download->source->mapped + download->offset;
            unpack(download, (const float *)source);
        }
    }
    return VKMHA_OK;
}

/* ---- Submission -------------------------------------------------------------------------------------- */

static vkmha_status create_queries(vkmha_device *device, vkmha_run_state *state, vkmha_error *error)
{
    vkmha_status status = VKMHA_OK;
    if (device->info.limits.timestamp_period_ns <= 0.0) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "stage_ns is given, but the device's queue has no timestamps");
    }
    const VkQueryPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = VKMHA_NUM_STAGES + 1,
    };
    VKMHA_VK(CreateQueryPool(device->handle, &info, device->callbacks, &state->queries));

fail:
    return status;
}

/* Dispatches from `first` on whose work together stays below the limit; one at the least. */
static uint32_t count_dispatches(const vkmha_plan *plan, uint32_t first)
{
    const vkmha_schedule *schedule = &plan->schedule;
    uint64_t work = schedule->steps[first].work;
    uint32_t end = first + 1;
    while (end < schedule->num_steps && work + schedule->steps[end].work <= plan->max_work) {
        work += schedule->steps[end++].work;
    }
    return end - first;
}

static vkmha_status submit_part(vkmha_plan *plan, vkmha_run_state *state, uint32_t first,
                                uint32_t count, vkmha_error *error)
{
    vkmha_device *device = plan->layer->device;
    vkmha_commands commands = {0};
    vkmha_status status = vkmha_commands_begin(device, &commands, error);
    if (status == VKMHA_OK) {
        if (state->queries && first == 0) {
            device->vk.CmdResetQueryPool(commands.buffer, state->queries, 0, VKMHA_NUM_STAGES + 1);
        }
        const vkmha_record_params params = {
            .timestamp_pool = state->queries,
            .first_dispatch = first,
            .num_dispatches = count,
        };
        status = vkmha_record(plan, state->bindings, commands.buffer, &params, error);
    }
    if (status == VKMHA_OK && first + count == plan->schedule.num_steps) {
        status = record_readbacks(device, state, commands.buffer, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_commands_submit(device, &commands, error);
    }
    vkmha_commands_finish(device, &commands);
    return status;
}

static vkmha_status read_times(const vkmha_plan *plan, const vkmha_run_state *state,
                               uint64_t times[VKMHA_NUM_STAGES], vkmha_error *error)
{
    vkmha_device *device = plan->layer->device;
    vkmha_status status = VKMHA_OK;
    uint64_t stamps[VKMHA_NUM_STAGES + 1] = {0};
    VKMHA_VK(GetQueryPoolResults(device->handle, state->queries, 0, VKMHA_NUM_STAGES + 1,
                                 sizeof(stamps), stamps, sizeof(stamps[0]),
                                 VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    for (uint32_t i = 0; i < VKMHA_NUM_STAGES; i++) {
        const uint64_t ticks = (stamps[i + 1] - stamps[i]) & device->timestamp_mask;
        times[i] = (uint64_t)((double)ticks * device->info.limits.timestamp_period_ns);
    }

fail:
    return status;
}

static void finish_state(vkmha_device *device, vkmha_run_state *state)
{
    vkmha_bindings_destroy(state->bindings);
    device->vk.DestroyQueryPool(device->handle, state->queries, device->callbacks);
    vkmha_block *blocks[] = {&state->query,       &state->key,         &state->value,
                             &state->mask,        &state->attend_keys, &state->key_lengths,
                             &state->output,      &state->workspace};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        vkmha_block_destroy(device, blocks[i]);
    }
    for (uint32_t i = 0; i < NUM_DOWNLOADS; i++) {
        vkmha_block_destroy(device, &state->downloads[i].readback);
    }
}

static vkmha_status check_outputs(const vkmha_plan *plan, const vkmha_outputs *outputs,
                                  vkmha_error *error)
{
    if (!outputs) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "outputs is NULL");
    }
    if (plan->sizes.output > 0 && !outputs->output) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "outputs.output is NULL");
    }
    const char *stage = outputs->projected_query   ? "projected_query"
                        : outputs->projected_key   ? "projected_key"
                        : outputs->projected_value ? "projected_value"
                        : outputs->attention       ? "attention"
                                                   : NULL;
    if (stage && plan->layer->params.attention_only) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "outputs.%s is given, but attention_only has no such stage", stage);
    }
    return VKMHA_OK;
}

vkmha_status vkmha_run(vkmha_plan *plan, const vkmha_inputs *inputs, const vkmha_outputs *outputs,
                       vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!plan) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "plan is NULL");
    }
    vkmha_device *device = plan->layer->device;
    vkmha_inputs checked;
    vkmha_status status =
        vkmha_check_inputs(&plan->layer->params, &plan->params, inputs, &checked, error);
    if (status == VKMHA_OK) {
        status = check_outputs(plan, outputs, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_device_check(device, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }

    vkmha_run_state state = {0};
    uint64_t times[VKMHA_NUM_STAGES] = {0};
    const uint32_t num_steps = plan->schedule.num_steps;
    if (num_steps > 0) {
        status = upload_inputs(plan, &checked, &state, error);
    }
    if (status == VKMHA_OK && num_steps > 0) {
        status = bind(plan, &state, error);
    }
    if (status == VKMHA_OK && outputs->stage_ns && num_steps > 0) {
        status = create_queries(device, &state, error);
    }
    list_downloads(plan, outputs, &state);
    for (uint32_t first = 0; status == VKMHA_OK && first < num_steps;) {
        const uint32_t count = count_dispatches(plan, first);
        status = submit_part(plan, &state, first, count, error);
        first += count;
    }
    if (status == VKMHA_OK && state.queries) {
        status = read_times(plan, &state, times, error);
    }
    if (status == VKMHA_OK && num_steps > 0) {
        status = download_all(device, &state, error);
    }
    if (status == VKMHA_OK && outputs->stage_ns) {
        memcpy(outputs->stage_ns, times, sizeof(times));
    }
    finish_state(device, &state);
    return status;
}
