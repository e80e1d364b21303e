/* Descriptor sets of a plan for one set of buffers. */
#include "record.h"

#include <inttypes.h>

typedef struct vkmha_slot {
    const char *field;
    vkmha_resource resource;
    const vkmha_buffer *buffer;
    uint64_t bytes; /* needed */
    bool is_used;
    uint32_t alignment;
} vkmha_slot;

enum { NUM_SLOTS = 8 };

static uint64_t round_up(uint64_t bytes, uint64_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

static void list_slots(const vkmha_plan *plan, const vkmha_buffers *buffers,
                       vkmha_slot slots[NUM_SLOTS])
{
    const vkmha_sizes *sizes = &plan->sizes;
    const vkmha_limits *limits = &plan->layer->device->info.limits;
    const uint32_t storage = limits->storage_alignment_bytes > 4 ? limits->storage_alignment_bytes : 4;
    const uint32_t uniform = limits->uniform_alignment_bytes > 4 ? limits->uniform_alignment_bytes : 4;
    const vkmha_slot list[NUM_SLOTS] = {
        {"query", VKMHA_RESOURCE_QUERY, &buffers->query, sizes->query * 4, true, storage},
        {"key", VKMHA_RESOURCE_KEY, &buffers->key, sizes->key * 4, !plan->params.key_is_query, storage},
        {"value", VKMHA_RESOURCE_VALUE, &buffers->value, sizes->value * 4, !plan->params.value_is_key,
         storage},
        {"mask", VKMHA_RESOURCE_MASK, &buffers->mask, round_up(sizes->mask_bytes, 4),
         plan->params.mask != VKMHA_MASK_NONE, storage},
        {"attend_keys", VKMHA_RESOURCE_ATTEND_KEYS, &buffers->attend_keys,
         round_up(sizes->attend_keys, 4), plan->params.has_attend_keys, storage},
        {"key_lengths", VKMHA_RESOURCE_KEY_LENGTHS, &buffers->key_lengths,
         round_up(sizes->key_lengths * 4, 16), plan->params.has_key_lengths, uniform},
        {"output", VKMHA_RESOURCE_OUTPUT, &buffers->output, sizes->output * 4, true, storage},
        {"workspace", VKMHA_RESOURCE_WORKSPACE, &buffers->workspace, plan->schedule.workspace_bytes,
         true, storage},
    };
    for (uint32_t i = 0; i < NUM_SLOTS; i++) {
        slots[i] = list[i];
    }
}

static vkmha_status check_slot(const vkmha_slot *slot, vkmha_error *error)
{
    const vkmha_buffer *buffer = slot->buffer;
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
    if (buffer->offset % slot->alignment != 0) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "buffers.%s.offset %" PRIu64 " is not a multiple of the device's "
                          "alignment %u",
                          slot->field, (uint64_t)buffer->offset, slot->alignment);
    }
    return VKMHA_OK;
}

static VkDescriptorBufferInfo resolve(const vkmha_plan *plan, const vkmha_slot slots[NUM_SLOTS],
                                      const vkmha_range *range)
{
    if (range->resource == VKMHA_RESOURCE_WEIGHTS) {
        return (VkDescriptorBufferInfo){plan->layer->blocks[range->block].buffer, range->offset,
                                        range->bytes};
    }
    if (range->resource == VKMHA_RESOURCE_NULL_UNIFORM) {
        return (VkDescriptorBufferInfo){plan->layer->device->null_uniform.buffer, 0, range->bytes};
    }
    uint32_t i = 0;
    while (slots[i].resource != range->resource) {
        i++; /* every other resource has a slot */
    }
    return (VkDescriptorBufferInfo){slots[i].buffer->buffer,
                                    slots[i].buffer->offset + range->offset, range->bytes};
}

static void write_set(const vkmha_bindings *bindings, const vkmha_slot slots[NUM_SLOTS],
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
        infos[count] = resolve(bindings->plan, slots, &step->bindings[i]);
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
    vkmha_slot slots[NUM_SLOTS];
    list_slots(bindings->plan, buffers, slots);
    for (uint32_t i = 0; i < NUM_SLOTS; i++) {
        vkmha_status status = check_slot(&slots[i], error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    const vkmha_schedule *schedule = &bindings->plan->schedule;
    for (uint32_t i = 0; i < schedule->num_steps; i++) {
        if (i == 0 || schedule->steps[i].set != schedule->steps[i - 1].set) {
            write_set(bindings, slots, &schedule->steps[i]);
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
    vkmha_status status =
        plan->schedule.num_sets > 0 ? allocate_sets(made, error) : VKMHA_OK;
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
