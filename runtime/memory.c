#include "memory.h"

#include <inttypes.h>
#include <string.h>

/* Large enough to amortise a submission, small enough for any host-visible heap. */
#define STAGING_BYTES (UINT64_C(16) << 20)

/* ---- Pure choices ----------------------------------------------------------------------------------- */

/* Lower is better; UINT32_MAX: unfit. */
static uint32_t rank_type(VkMemoryPropertyFlags flags, vkmha_memory_use use)
{
    const bool is_local = flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    const bool is_visible = flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    const bool is_coherent = flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const bool is_cached = flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    /* Types that need a feature, or that no buffer can have. */
    if (flags & (VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
                 VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD)) {
        return UINT32_MAX;
    }
    switch (use) {
    case VKMHA_MEMORY_DEVICE:
        return is_local ? 0 : 1;
    case VKMHA_MEMORY_STAGING:
        /* Not the small host-visible window into device memory that discrete cards have. */
        return !is_visible ? UINT32_MAX : (is_local ? 2u : 0u) + (is_coherent ? 0u : 1u);
    case VKMHA_MEMORY_READBACK:
        return !is_visible ? UINT32_MAX : (is_cached ? 0u : 4u) + (is_local ? 2u : 0u) +
                                              (is_coherent ? 0u : 1u);
    }
    return UINT32_MAX;
}

uint32_t vkmha_memory_types(const VkPhysicalDeviceMemoryProperties *memory, uint32_t type_bits,
                            vkmha_memory_use use, uint64_t bytes, uint32_t *order)
{
    uint32_t ranks[VK_MAX_MEMORY_TYPES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
        const VkMemoryType *type = &memory->memoryTypes[i];
        const uint32_t rank = rank_type(type->propertyFlags, use);
        if (!(type_bits & 1u << i) || rank == UINT32_MAX ||
            memory->memoryHeaps[type->heapIndex].size < bytes) {
            continue;
        }
        /* Insertion that keeps the driver's order among equals, as the specification ranks them. */
        uint32_t at = count++;
        while (at > 0 && ranks[at - 1] > rank) {
            ranks[at] = ranks[at - 1];
            order[at] = order[at - 1];
            at--;
        }
        ranks[at] = rank;
        order[at] = i;
    }
    return count;
}

vkmha_memory_range vkmha_atom_range(uint64_t offset, uint64_t size, uint64_t atom,
                                    uint64_t memory_size)
{
    const uint64_t begin = offset / atom * atom;
    uint64_t end = (offset + size + atom - 1) / atom * atom;
    if (end > memory_size) {
        end = memory_size;
    }
    return (vkmha_memory_range){begin, end - begin};
}

/* ---- Blocks ----------------------------------------------------------------------------------------- */

vkmha_status vkmha_block_create(vkmha_device *device, uint64_t bytes, VkBufferUsageFlags usage,
                                vkmha_memory_use use, vkmha_block *block, vkmha_error *error)
{
    vkmha_status status = VKMHA_OK;
    const vkmha_limits *limits = &device->info.limits;
    *block = (vkmha_block){.size = bytes};
    if (bytes > limits->max_allocation_bytes) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "a buffer of %" PRIu64 " bytes is too large for this device: an allocation "
                          "holds at most %" PRIu64,
                          bytes, limits->max_allocation_bytes);
    }
    const VkBufferCreateInfo buffer_info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = bytes,
        .usage = usage,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
    };
    VKMHA_VK(CreateBuffer(device->handle, &buffer_info, device->callbacks, &block->buffer));
    VkMemoryRequirements needs;
    device->vk.GetBufferMemoryRequirements(device->handle, block->buffer, &needs);

    uint32_t order[VK_MAX_MEMORY_TYPES];
    const uint32_t count =
        vkmha_memory_types(&device->memory, needs.memoryTypeBits, use, needs.size, order);
    if (count == 0) {
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY,
                            "no memory heap of this device holds %" PRIu64 " bytes",
                            (uint64_t)needs.size);
        goto fail;
    }
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    VkMemoryPropertyFlags flags = 0;
    for (uint32_t i = 0; i < count && result != VK_SUCCESS; i++) {
        const VkMemoryAllocateInfo memory_info = {
            .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
            .allocationSize = needs.size,
            .memoryTypeIndex = order[i],
        };
        result = device->vk.AllocateMemory(device->handle, &memory_info, device->callbacks,
                                           &block->memory);
        flags = device->memory.memoryTypes[order[i]].propertyFlags;
        if (result == VK_ERROR_DEVICE_LOST) {
            break;
        }
    }
    if (result != VK_SUCCESS) {
        status = vkmha_device_failed(device, result, "vkAllocateMemory", error);
        goto fail;
    }
    block->memory_size = needs.size;
    block->is_coherent = flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    block->is_cached = flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    VKMHA_VK(BindBufferMemory(device->handle, block->buffer, block->memory, 0));
    const bool wants_map = use != VKMHA_MEMORY_DEVICE || !device->force_staging;
    if ((flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) && wants_map) {
        VKMHA_VK(MapMemory(device->handle, block->memory, 0, VK_WHOLE_SIZE, 0, &block->mapped));
    }
    return VKMHA_OK;

fail:
    vkmha_block_destroy(device, block);
    return status;
}

void vkmha_block_destroy(vkmha_device *device, vkmha_block *block)
{
    device->vk.DestroyBuffer(device->handle, block->buffer, device->callbacks);
    device->vk.FreeMemory(device->handle, block->memory, device->callbacks); /* unmaps too */
    *block = (vkmha_block){0};
}

static VkMappedMemoryRange mapped_range(const vkmha_device *device, const vkmha_block *block,
                                        uint64_t offset, uint64_t bytes)
{
    const vkmha_memory_range range = vkmha_atom_range(
        offset, bytes, device->info.limits.non_coherent_atom_bytes, block->memory_size);
    return (VkMappedMemoryRange){
        .sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
        .memory = block->memory,
        .offset = range.offset,
        .size = range.size,
    };
}

static vkmha_status flush(vkmha_device *device, const vkmha_block *block, uint64_t offset,
                          uint64_t bytes, vkmha_error *error)
{
    vkmha_status status = VKMHA_OK;
    if (!block->is_coherent) {
        const VkMappedMemoryRange range = mapped_range(device, block, offset, bytes);
        VKMHA_VK(FlushMappedMemoryRanges(device->handle, 1, &range));
    }
fail:
    return status;
}

vkmha_status vkmha_block_invalidate(vkmha_device *device, const vkmha_block *block,
                                    vkmha_error *error)
{
    vkmha_status status = VKMHA_OK;
    if (!block->is_coherent) {
        const VkMappedMemoryRange range = mapped_range(device, block, 0, block->size);
        VKMHA_VK(InvalidateMappedMemoryRanges(device->handle, 1, &range));
    }
fail:
    return status;
}

/* ---- Transfers -------------------------------------------------------------------------------------- */

static vkmha_status copy(vkmha_device *device, VkBuffer source, uint64_t source_offset,
                         VkBuffer destination, uint64_t destination_offset, uint64_t bytes,
                         vkmha_error *error)
{
    vkmha_commands commands = {0};
    vkmha_status status = vkmha_commands_begin(device, &commands, error);
    if (status == VKMHA_OK) {
        const VkBufferCopy region = {source_offset, destination_offset, bytes};
        device->vk.CmdCopyBuffer(commands.buffer, source, destination, 1, &region);
        status = vkmha_commands_submit(device, &commands, error);
    }
    vkmha_commands_finish(device, &commands);
    return status;
}

void vkmha_fill_bytes(const void *source, uint64_t first, uint64_t bytes, void *destination)
{
    const vkmha_byte_source *given = source;
    const uint64_t left = given->bytes > first ? given->bytes - first : 0;
    const uint64_t count = left < bytes ? left : bytes;
    if (count > 0) {
        memcpy(destination, (const char *)given->data + first, (size_t)count);
    }
    memset((char *)destination + count, 0, (size_t)(bytes - count));
}

vkmha_status vkmha_upload(vkmha_device *device, vkmha_block *block, uint64_t offset, uint64_t bytes,
                          vkmha_fill *fill, const void *source, vkmha_error *error)
{
    if (bytes == 0) {
        return VKMHA_OK;
    }
    if (block->mapped) {
        fill(source, 0, bytes, (char *)block->mapped + offset);
        return flush(device, block, offset, bytes, error);
    }
    vkmha_block staging;
    const uint64_t piece = bytes < STAGING_BYTES ? bytes : STAGING_BYTES;
    vkmha_status status = vkmha_block_create(device, piece, VK_BUFFER_USAGE_TRANSFER_SRC_BIT,
                                             VKMHA_MEMORY_STAGING, &staging, error);
    for (uint64_t first = 0; status == VKMHA_OK && first < bytes; first += piece) {
        const uint64_t count = bytes - first < piece ? bytes - first : piece;
        fill(source, first, count, staging.mapped);
        status = flush(device, &staging, 0, count, error);
        if (status == VKMHA_OK) {
            status = copy(device, staging.buffer, 0, block->buffer, offset + first, count, error);
        }
    }
    vkmha_block_destroy(device, &staging);
    return status;
}

/* ---- Commands --------------------------------------------------------------------------------------- */

vkmha_status vkmha_commands_begin(vkmha_device *device, vkmha_commands *commands, vkmha_error *error)
{
    vkmha_status status = vkmha_device_check(device, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const VkCommandPoolCreateInfo pool_info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
        .queueFamilyIndex = device->queue_family,
    };
    VKMHA_VK(CreateCommandPool(device->handle, &pool_info, device->callbacks, &commands->pool));
    const VkCommandBufferAllocateInfo buffer_info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = commands->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1,
    };
    VKMHA_VK(AllocateCommandBuffers(device->handle, &buffer_info, &commands->buffer));
    const VkFenceCreateInfo fence_info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VKMHA_VK(CreateFence(device->handle, &fence_info, device->callbacks, &commands->fence));
    const VkCommandBufferBeginInfo begin_info = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
    };
    VKMHA_VK(BeginCommandBuffer(commands->buffer, &begin_info));

fail:
    return status;
}

static void lock_queue(vkmha_device *device)
{
    vkmha_lock_acquire(&device->queue_lock);
    if (device->lock_queue) {
        device->lock_queue(device->lock_user);
    }
}

static void unlock_queue(vkmha_device *device)
{
    if (device->unlock_queue) {
        device->unlock_queue(device->lock_user);
    }
    vkmha_lock_release(&device->queue_lock);
}

vkmha_status vkmha_commands_submit(vkmha_device *device, vkmha_commands *commands, vkmha_error *error)
{
    vkmha_status status = VKMHA_OK;
    const VkMemoryBarrier to_all = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_SHADER_READ_BIT |
                         VK_ACCESS_UNIFORM_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT,
    };
    const VkPipelineStageFlags device_stages =
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    device->vk.CmdPipelineBarrier(commands->buffer, device_stages,
                                  device_stages | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_all, 0, NULL,
                                  0, NULL);
    VKMHA_VK(EndCommandBuffer(commands->buffer));
    const VkSubmitInfo submit = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1,
        .pCommandBuffers = &commands->buffer,
    };
    lock_queue(device);
    VkResult result = device->vk.QueueSubmit(device->queue, 1, &submit, commands->fence);
    unlock_queue(device);
    if (result != VK_SUCCESS) {
        status = vkmha_device_failed(device, result, "vkQueueSubmit", error);
        goto fail;
    }
    result = device->vk.WaitForFences(device->handle, 1, &commands->fence, VK_TRUE, UINT64_MAX);
    if (result != VK_SUCCESS) {
        status = vkmha_device_failed(device, result, "vkWaitForFences", error);
        /* The work may still run; what it uses must outlive it. */
        lock_queue(device);
        (void)device->vk.QueueWaitIdle(device->queue);
        unlock_queue(device);
    }

fail:
    return status;
}

void vkmha_commands_finish(vkmha_device *device, vkmha_commands *commands)
{
    device->vk.DestroyFence(device->handle, commands->fence, device->callbacks);
    device->vk.DestroyCommandPool(device->handle, commands->pool, device->callbacks);
    *commands = (vkmha_commands){0};
}
