/* Host tensors: upload, submit in parts below the work limit, wait, download. */
#include <string.h>

#include "download.h"
#include "fill.h"
#include "record.h"

typedef struct vkmha_run_state {
    vkmha_block blocks[VKMHA_NUM_SLOTS]; /* by resource; the cache's are its own */
    vkmha_sequence *sequences;
    int32_t *positions;
    vkmha_bindings *bindings;
    VkQueryPool queries;
    vkmha_download downloads[VKMHA_NUM_DOWNLOADS];
} vkmha_run_state;

static vkmha_block *block_of(vkmha_run_state *state, vkmha_resource resource)
{
    return &state->blocks[resource - VKMHA_RESOURCE_QUERY];
}

/* Whole words, or a uniform block's whole vectors: what is missing of the last is zero. */
static vkmha_status upload_tensor(vkmha_device *device, const void *data, uint64_t bytes,
                                  VkBufferUsageFlags usage, vkmha_block *block, vkmha_error *error)
{
    if (bytes == 0) {
        return VKMHA_OK;
    }
    const uint64_t granule = usage & VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT ? 16 : 4;
    const uint64_t padded = (bytes + granule - 1) / granule * granule;
    vkmha_status status =
        vkmha_block_create(device, padded, usage | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                           VKMHA_MEMORY_DEVICE, block, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const vkmha_byte_source source = {data, bytes};
    return vkmha_upload(device, block, 0, padded, vkmha_fill_bytes, &source, error);
}

/* Sequences and positions, made for this run. */
static vkmha_status make_arrays(const vkmha_plan *plan, const vkmha_inputs *inputs,
                                vkmha_run_state *state, vkmha_error *error)
{
    const vkmha_host *host = &plan->layer->device->host;
    const vkmha_sizes *sizes = &plan->sizes;
    if (sizes->sequences > 0) {
        state->sequences = vkmha_host_allocate(host, sizes->sequences, sizeof(vkmha_sequence));
    }
    if (sizes->positions > 0) {
        state->positions = vkmha_host_allocate(host, sizes->positions, sizeof(int32_t));
    }
    if ((sizes->sequences > 0 && !state->sequences) ||
        (sizes->positions > 0 && !state->positions)) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    vkmha_fill_sequences(plan, inputs, state->sequences, state->positions);
    return VKMHA_OK;
}

static vkmha_status upload_inputs(const vkmha_plan *plan, const vkmha_inputs *inputs,
                                  vkmha_run_state *state, vkmha_error *error)
{
    vkmha_device *device = plan->layer->device;
    const vkmha_sizes *sizes = &plan->sizes;
    const uint32_t past_bytes = vkmha_type_bytes(plan->layer->params.cache_type);
    const struct {
        vkmha_resource resource;
        const void *data;
        uint64_t bytes;
    } tensors[] = {
        {VKMHA_RESOURCE_QUERY, inputs->query, sizes->query * vkmha_type_bytes(plan->params.query_type)},
        {VKMHA_RESOURCE_KEY, inputs->key, sizes->key * vkmha_type_bytes(plan->params.key_type)},
        {VKMHA_RESOURCE_VALUE, inputs->value, sizes->value * vkmha_type_bytes(plan->params.value_type)},
        {VKMHA_RESOURCE_MASK, inputs->mask, sizes->mask_bytes},
        {VKMHA_RESOURCE_ATTEND_KEYS, inputs->attend_keys, sizes->attend_keys},
        {VKMHA_RESOURCE_SEQUENCES, state->sequences, sizes->sequences * sizeof(vkmha_sequence)},
        {VKMHA_RESOURCE_POSITIONS, state->positions, sizes->positions * 4},
        {VKMHA_RESOURCE_GATES, inputs->head_gates, sizes->head_gates * 4},
        {VKMHA_RESOURCE_PAST_KEY, inputs->past_key, sizes->past_key * past_bytes},
        {VKMHA_RESOURCE_PAST_VALUE, inputs->past_value, sizes->past_value * past_bytes},
        {VKMHA_RESOURCE_OUTPUT_GRADIENT, inputs->output_gradient, sizes->output_gradient * 4},
    };
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        const bool is_uniform = vkmha_plan_slot(plan, tensors[i].resource).is_uniform;
        vkmha_status status = upload_tensor(device, tensors[i].data, tensors[i].bytes,
                                            is_uniform ? VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT
                                                       : VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
                                            block_of(state, tensors[i].resource), error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    static const vkmha_resource results[] = {
        VKMHA_RESOURCE_PRESENT_KEY,  VKMHA_RESOURCE_PRESENT_VALUE, VKMHA_RESOURCE_LSE,
        VKMHA_RESOURCE_TOLD_WEIGHTS, VKMHA_RESOURCE_MEAN_WEIGHTS,  VKMHA_RESOURCE_SCORES,
        VKMHA_RESOURCE_STATISTICS,   VKMHA_RESOURCE_KEY_MASS,      VKMHA_RESOURCE_CONTRIBUTIONS,
        VKMHA_RESOURCE_GATE_GRADIENTS, VKMHA_RESOURCE_OUTPUT,      VKMHA_RESOURCE_WORKSPACE};
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        const vkmha_slot slot = vkmha_plan_slot(plan, results[i]);
        if (!slot.is_used || slot.bytes == 0) {
            continue;
        }
        vkmha_status status = vkmha_block_create(
            device, slot.bytes,
            VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
            VKMHA_MEMORY_DEVICE, block_of(state, results[i]), error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

static vkmha_status bind(vkmha_plan *plan, const vkmha_inputs *inputs, vkmha_run_state *state,
                         vkmha_error *error)
{
    vkmha_buffers buffers = {0};
    for (uint32_t i = 0; i < VKMHA_NUM_SLOTS; i++) {
        const vkmha_block *block = &state->blocks[i];
        *vkmha_slot_buffer(&buffers, (vkmha_resource)(VKMHA_RESOURCE_QUERY + i)) =
            (vkmha_buffer){block->buffer, 0, block->size};
    }
    if (inputs->cache) {
        vkmha_cache_get_buffers(inputs->cache, &buffers.cache_key, &buffers.cache_value);
    }
    return vkmha_bindings_create(plan, &buffers, &state->bindings, error);
}

/* ---- Submission
 * -------------------------------------------------------------------------------------- */

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
        status = vkmha_downloads_record(device, commands.buffer, state->downloads, error);
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
    for (uint32_t i = 0; i < VKMHA_NUM_SLOTS; i++) {
        vkmha_block_destroy(device, &state->blocks[i]);
    }
    vkmha_downloads_destroy(device, state->downloads);
    vkmha_host_release(&device->host, state->sequences);
    vkmha_host_release(&device->host, state->positions);
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
        status = vkmha_check_outputs(&plan->layer->params, &plan->params, &plan->sizes, outputs,
                                     error);
    }
    if (status == VKMHA_OK && plan->params.cache_capacity > 0) {
        status = vkmha_cache_check(checked.cache, plan->layer, &plan->params, &checked, error);
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
        status = make_arrays(plan, &checked, &state, error);
    }
    if (status == VKMHA_OK && num_steps > 0) {
        status = upload_inputs(plan, &checked, &state, error);
    }
    if (status == VKMHA_OK && num_steps > 0) {
        status = bind(plan, &checked, &state, error);
    }
    if (status == VKMHA_OK && outputs->stage_ns && num_steps > 0) {
        status = create_queries(device, &state, error);
    }
    vkmha_downloads_list(plan, outputs, state.blocks, state.downloads);
    for (uint32_t first = 0; status == VKMHA_OK && first < num_steps;) {
        const uint32_t count = count_dispatches(plan, first);
        status = submit_part(plan, &state, first, count, error);
        first += count;
    }
    if (status == VKMHA_OK && state.queries) {
        status = read_times(plan, &state, times, error);
    }
    if (status == VKMHA_OK && num_steps > 0) {
        status = vkmha_downloads_finish(device, state.downloads, error);
    }
    if (status == VKMHA_OK && checked.cache) {
        vkmha_cache_advance(checked.cache, plan->params.key_len);
    }
    if (status == VKMHA_OK && outputs->stage_ns) {
        memcpy(outputs->stage_ns, times, sizeof(times));
    }
    finish_state(device, &state);
    return status;
}
