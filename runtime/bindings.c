/* Descriptor sets of a plan for one set of buffers. */
#include "record.h"

#include <inttypes.h>
#include <stddef.h>

/* ---- What the plan asks of each buffer
 * -------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes, uint64_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

static uint64_t cache_bytes(const vkmha_plan *plan, uint32_t dim)
{
    const vkmha_plan_params *params = &plan->params;
    return params->batch_size * params->cache_capacity * plan->layer->params.num_kv_heads *
           vkmha_round_up(dim, 4) * vkmha_type_bytes(plan->layer->params.cache_type);
}

/* Whole words. */
static uint64_t tensor_bytes(uint64_t elements, vkmha_type type)
{
    return round_up(elements * vkmha_type_bytes(type), 4);
}

static vkmha_slot told_slot(const char *field, bool is_used, uint64_t elements)
{
    return (vkmha_slot){field, is_used, false, elements * 4};
}

vkmha_slot vkmha_plan_slot(const vkmha_plan *plan, vkmha_resource resource)
{
    const vkmha_layer_params *layer = &plan->layer->params;
    const vkmha_plan_params *params = &plan->params;
    const vkmha_sizes *sizes = &plan->sizes;
    const bool has_cache = params->cache_capacity > 0;
    const bool has_past = params->past_len > 0;
    switch (resource) {
    case VKMHA_RESOURCE_QUERY:
        return (vkmha_slot){"query", true, false,
                            tensor_bytes(sizes->query, params->query_type)};
    case VKMHA_RESOURCE_KEY:
        return (vkmha_slot){"key", !params->key_is_query, false,
                            tensor_bytes(sizes->key, params->key_type)};
    case VKMHA_RESOURCE_VALUE:
        return (vkmha_slot){"value", !params->value_is_key, false,
                            tensor_bytes(sizes->value, params->value_type)};
    case VKMHA_RESOURCE_MASK:
        return (vkmha_slot){"mask", params->mask != VKMHA_MASK_NONE, false,
                            round_up(sizes->mask_bytes, 4)};
    case VKMHA_RESOURCE_ATTEND_KEYS:
        return (vkmha_slot){"attend_keys", params->has_attend_keys, false,
                            round_up(sizes->attend_keys, 4)};
    case VKMHA_RESOURCE_SEQUENCES:
        return (vkmha_slot){"sequences", sizes->sequences > 0, true,
                            sizes->sequences * sizeof(vkmha_sequence)};
    case VKMHA_RESOURCE_POSITIONS:
        return (vkmha_slot){"positions", sizes->positions > 0, false, sizes->positions * 4};
    case VKMHA_RESOURCE_GATES:
        return (vkmha_slot){"head_gates", params->has_head_gates, true,
                            round_up(sizes->head_gates * 4, 16)};
    case VKMHA_RESOURCE_PAST_KEY:
        return (vkmha_slot){"past_key", has_past, false,
                            tensor_bytes(sizes->past_key, layer->cache_type)};
    case VKMHA_RESOURCE_PAST_VALUE:
        return (vkmha_slot){"past_value", has_past, false,
                            tensor_bytes(sizes->past_value, layer->cache_type)};
    case VKMHA_RESOURCE_CACHE_KEY:
        return (vkmha_slot){"cache_key", has_cache, false, cache_bytes(plan, layer->head_dim)};
    case VKMHA_RESOURCE_CACHE_VALUE:
        return (vkmha_slot){"cache_value", has_cache, false, cache_bytes(plan, layer->v_head_dim)};
    case VKMHA_RESOURCE_PRESENT_KEY:
        return (vkmha_slot){"present_key", params->has_present, false,
                            tensor_bytes(sizes->present_key, layer->cache_type)};
    case VKMHA_RESOURCE_PRESENT_VALUE:
        return (vkmha_slot){"present_value", params->has_present, false,
                            tensor_bytes(sizes->present_value, layer->cache_type)};
    case VKMHA_RESOURCE_OUTPUT_GRADIENT:
        return told_slot("output_gradient", params->has_gate_gradients, sizes->output_gradient);
    case VKMHA_RESOURCE_LSE:
        return told_slot("lse", params->has_lse, sizes->lse);
    case VKMHA_RESOURCE_TOLD_WEIGHTS:
        return told_slot("weights", params->has_weights, sizes->weights);
    case VKMHA_RESOURCE_MEAN_WEIGHTS:
        return told_slot("mean_weights", params->has_mean_weights, sizes->mean_weights);
    case VKMHA_RESOURCE_SCORES:
        return told_slot("scores", params->scores != VKMHA_SCORES_NONE, sizes->scores);
    case VKMHA_RESOURCE_STATISTICS:
        return told_slot("statistics", params->has_statistics, sizes->statistics);
    case VKMHA_RESOURCE_KEY_MASS:
        return told_slot("key_mass", params->has_key_mass, sizes->key_mass);
    case VKMHA_RESOURCE_CONTRIBUTIONS:
        return told_slot("contributions", params->has_contributions, sizes->contributions);
    case VKMHA_RESOURCE_GATE_GRADIENTS:
        return told_slot("gate_gradients", params->has_gate_gradients, sizes->gate_gradients);
    case VKMHA_RESOURCE_OUTPUT:
        return (vkmha_slot){"output", true, false,
                            tensor_bytes(sizes->output, params->output_type)};
    case VKMHA_RESOURCE_WORKSPACE:
        return (vkmha_slot){"workspace", true, false, plan->schedule.workspace_bytes};
    case VKMHA_RESOURCE_NONE:
    case VKMHA_RESOURCE_WEIGHTS:
    case VKMHA_RESOURCE_OPTIONS:
    case VKMHA_RESOURCE_NULL_UNIFORM:
        break; /* the library's own */
    }
    return (vkmha_slot){0};
}

vkmha_buffer *vkmha_slot_buffer(vkmha_buffers *buffers, vkmha_resource resource)
{
    vkmha_buffer *const members[VKMHA_NUM_SLOTS] = {
        &buffers->query,       &buffers->key,           &buffers->value,     &buffers->mask,
        &buffers->attend_keys, &buffers->sequences,     &buffers->positions, &buffers->head_gates,
        &buffers->past_key,    &buffers->past_value,    &buffers->cache_key, &buffers->cache_value,
        &buffers->present_key, &buffers->present_value,
        &buffers->output_gradient, &buffers->lse, &buffers->weights, &buffers->mean_weights,
        &buffers->scores, &buffers->statistics, &buffers->key_mass, &buffers->contributions,
        &buffers->gate_gradients, &buffers->output,    &buffers->workspace,
    };
    return members[resource - VKMHA_RESOURCE_QUERY];
}

static vkmha_status check_slot(const vkmha_plan *plan, const vkmha_slot *slot,
                               const vkmha_buffer *buffer, vkmha_error *error)
{
    const vkmha_limits *limits = &plan->layer->device->info.limits;
    const uint32_t given =
        slot->is_uniform ? limits->uniform_alignment_bytes : limits->storage_alignment_bytes;
    const uint32_t alignment = given > 4 ? given : 4;
    if (!slot->is_used || slot->bytes == 0) {
        if (buffer->buffer && !slot->is_used) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "buffers.%s is given, but the plan does not use it", slot->field);
        }
        return VKMHA_OK;
    }
    if (!buffer->buffer) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "buffers.%s is VK_NULL_HANDLE, the plan needs %" PRIu64 " bytes",
                          slot->field, slot->bytes);
    }
    if (buffer->size < slot->bytes) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "buffers.%s.size %" PRIu64 " is less than the %" PRIu64
                          " bytes that the plan needs",
                          slot->field, (uint64_t)buffer->size, slot->bytes);
    }
    if (buffer->offset % alignment != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "buffers.%s.offset %" PRIu64 " is not a multiple of the device's "
                          "alignment %u",
                          slot->field, (uint64_t)buffer->offset, alignment);
    }
    return VKMHA_OK;
}

/* ---- Descriptor sets
 * -------------------------------------------------------------------------------- */

static VkDescriptorBufferInfo resolve(const vkmha_plan *plan, vkmha_buffers *buffers,
                                      const vkmha_range *range)
{
    const vkmha_device *device = plan->layer->device;
    switch (range->resource) {
    case VKMHA_RESOURCE_WEIGHTS:
        return (VkDescriptorBufferInfo){plan->layer->blocks[range->block].buffer, range->offset,
                                        range->bytes};
    case VKMHA_RESOURCE_OPTIONS:
        return (VkDescriptorBufferInfo){plan->options.buffer, 0, range->bytes};
    case VKMHA_RESOURCE_NULL_UNIFORM:
        return (VkDescriptorBufferInfo){device->null_uniform.buffer, 0, range->bytes};
    default: {
        const vkmha_buffer *buffer = vkmha_slot_buffer(buffers, range->resource);
        return (VkDescriptorBufferInfo){buffer->buffer, buffer->offset + range->offset,
                                        range->bytes};
    }
    }
}

static void write_set(const vkmha_bindings *bindings, vkmha_buffers *buffers,
                      const vkmha_step *step)
{
    const vkmha_device *device = bindings->plan->layer->device;
    VkDescriptorBufferInfo infos[VKMHA_NUM_BINDINGS];
    VkWriteDescriptorSet writes[VKMHA_NUM_BINDINGS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < VKMHA_NUM_BINDINGS; i++) {
        if (step->bindings[i].resource == VKMHA_RESOURCE_NONE) {
            continue;
        }
        infos[count] = resolve(bindings->plan, buffers, &step->bindings[i]);
        writes[count] = (VkWriteDescriptorSet){
            .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
            .dstSet = bindings->sets[step->set],
            .dstBinding = i,
            .descriptorCount = 1,
            .descriptorType = i < VKMHA_NUM_STORAGE_BINDINGS ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
                                                             : VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER,
            .pBufferInfo = &infos[count],
        };
        count++;
    }
    device->vk.UpdateDescriptorSets(device->handle, count, writes, 0, NULL);
}

vkmha_status vkmha_bindings_update(vkmha_bindings *bindings, const vkmha_buffers *buffers,
                                   vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!bindings || !buffers) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL",
                          bindings ? "buffers" : "bindings");
    }
    vkmha_buffers members = *buffers;
    for (uint32_t i = 0; i < VKMHA_NUM_SLOTS; i++) {
        const vkmha_resource resource = (vkmha_resource)(VKMHA_RESOURCE_QUERY + i);
        const vkmha_slot slot = vkmha_plan_slot(bindings->plan, resource);
        vkmha_status status =
            check_slot(bindings->plan, &slot, vkmha_slot_buffer(&members, resource), error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    const vkmha_schedule *schedule = &bindings->plan->schedule;
    for (uint32_t i = 0; i < schedule->num_steps; i++) {
        if (i == 0 || schedule->steps[i].set != schedule->steps[i - 1].set) {
            write_set(bindings, &members, &schedule->steps[i]);
        }
    }
    return VKMHA_OK;
}

static vkmha_status allocate_sets(vkmha_bindings *bindings, vkmha_error *error)
{
    vkmha_device *device = bindings->plan->layer->device;
    const uint32_t num_sets = bindings->plan->schedule.num_sets;
    vkmha_status status = VKMHA_OK;
    VkDescriptorSetLayout *layouts =
        vkmha_host_allocate(&device->host, num_sets, sizeof(VkDescriptorSetLayout));
    bindings->sets = vkmha_host_allocate(&device->host, num_sets, sizeof(VkDescriptorSet));
    if (!layouts || !bindings->sets) {
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
        goto fail;
    }
    for (uint32_t i = 0; i < num_sets; i++) {
        layouts[i] = device->set_layout;
    }
    const VkDescriptorPoolSize sizes[] = {
        {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, num_sets * VKMHA_NUM_STORAGE_BINDINGS},
        {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER,
         num_sets * (VKMHA_NUM_BINDINGS - VKMHA_NUM_STORAGE_BINDINGS)},
    };
    const VkDescriptorPoolCreateInfo pool_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .maxSets = num_sets,
        .poolSizeCount = sizeof(sizes) / sizeof(sizes[0]),
        .pPoolSizes = sizes,
    };
    VKMHA_VK(CreateDescriptorPool(device->handle, &pool_info, device->callbacks, &bindings->pool));
    const VkDescriptorSetAllocateInfo set_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = bindings->pool,
        .descriptorSetCount = num_sets,
        .pSetLayouts = layouts,
    };
    VKMHA_VK(AllocateDescriptorSets(device->handle, &set_info, bindings->sets));

fail:
    vkmha_host_release(&device->host, layouts);
    return status;
}

vkmha_status vkmha_bindings_create(vkmha_plan *plan, const vkmha_buffers *buffers,
                                   vkmha_bindings **bindings, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!bindings) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "bindings is NULL");
    }
    *bindings = NULL;
    if (!plan) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "plan is NULL");
    }
    const vkmha_host *host = &plan->layer->device->host;
    vkmha_bindings *made = vkmha_host_allocate(host, 1, sizeof(*made));
    if (!made) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    made->plan = plan;
    vkmha_status status = plan->schedule.num_sets > 0 ? allocate_sets(made, error) : VKMHA_OK;
    if (status == VKMHA_OK) {
        status = vkmha_bindings_update(made, buffers, error);
    }
    if (status != VKMHA_OK) {
        vkmha_bindings_destroy(made);
        return status;
    }
    *bindings = made;
    return VKMHA_OK;
}

void vkmha_bindings_destroy(vkmha_bindings *bindings)
{
    if (!bindings) {
        return;
    }
    const vkmha_device *device = bindings->plan->layer->device;
    device->vk.DestroyDescriptorPool(device->handle, bindings->pool, device->callbacks);
    vkmha_host_release(&device->host, bindings->sets);
    vkmha_host_release(&device->host, bindings);
}
