/* Memory types, buffers with memory, flushes in whole atoms, and bounded uploads. */
#ifndef VKMHA_RUNTIME_MEMORY_H
#define VKMHA_RUNTIME_MEMORY_H

#include "device.h"

typedef enum vkmha_memory_use {
    VKMHA_MEMORY_DEVICE = 0, /* what shaders read and write */
    VKMHA_MEMORY_STAGING,    /* written by the host, read once by the device */
    VKMHA_MEMORY_READBACK,   /* written by the device, read by the host */
} vkmha_memory_use;

/* The types to try for `bytes` in order of preference, into order[VK_MAX_MEMORY_TYPES]; returns how many. */
uint32_t vkmha_memory_types(const VkPhysicalDeviceMemoryProperties *memory, uint32_t type_bits,
                            vkmha_memory_use use, uint64_t bytes, uint32_t *order);

/* The smallest range of whole atoms (or up to the memory's end) that holds offset..offset+size. */
typedef struct vkmha_memory_range {
    uint64_t offset;
    uint64_t size;
} vkmha_memory_range;
vkmha_memory_range vkmha_atom_range(uint64_t offset, uint64_t size, uint64_t atom,
                                    uint64_t memory_size);

vkmha_status vkmha_block_create(vkmha_device *device, uint64_t bytes, VkBufferUsageFlags usage,
                                vkmha_memory_use use, vkmha_block *block,
                                vkmha_error *error) VKMHA_CHECKED;
/* A zeroed or half-built block is allowed. */
void vkmha_block_destroy(vkmha_device *device, vkmha_block *block);

/* Writes `bytes` bytes, starting at byte `first` of a tensor, to `destination`. Both are multiples of 4. */
typedef void vkmha_fill(const void *source, uint64_t first, uint64_t bytes, void *destination);

/* Bytes as they are, for vkmha_fill_bytes: what is asked for behind them is zero. */
typedef struct vkmha_byte_source {
    const void *data;
    uint64_t bytes;
} vkmha_byte_source;

vkmha_fill vkmha_fill_bytes;

/* Fills bytes of a tensor into a block: straight where it is mapped, else through a bounded staging buffer. */
vkmha_status vkmha_upload(vkmha_device *device, vkmha_block *block, uint64_t offset, uint64_t bytes,
                          vkmha_fill *fill, const void *source, vkmha_error *error) VKMHA_CHECKED;

/* Makes the device's finished writes to a mapped block readable. */
vkmha_status vkmha_block_invalidate(vkmha_device *device, const vkmha_block *block,
                                    vkmha_error *error) VKMHA_CHECKED;

/* A command buffer of one use: begin, record into .buffer, submit and wait. */
typedef struct vkmha_commands {
    VkCommandPool pool;
    VkCommandBuffer buffer;
    VkFence fence;
} vkmha_commands;

vkmha_status vkmha_commands_begin(vkmha_device *device, vkmha_commands *commands,
                                  vkmha_error *error) VKMHA_CHECKED;
/* Also makes what shaders and copies wrote visible to the host and to later submissions' shaders and copies. */
vkmha_status vkmha_commands_submit(vkmha_device *device, vkmha_commands *commands,
                                   vkmha_error *error) VKMHA_CHECKED;
/* A zeroed or half-built struct is allowed. */
void vkmha_commands_finish(vkmha_device *device, vkmha_commands *commands);

#endif
