/* The device: its own or the application's; function table, limits and memory types asked once. */
#ifndef VKMHA_RUNTIME_DEVICE_H
#define VKMHA_RUNTIME_DEVICE_H

#include "functions.h"
#include "host.h"
#include "lock.h"

struct vkmha_pipeline;

/* A buffer with memory of its own, mapped for its whole life where the host can see it. */
typedef struct vkmha_block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    uint64_t size;
    uint64_t memory_size;
    void *mapped; /* NULL: the host cannot see it */
    bool is_coherent;
    bool is_cached; /* fast for the host to read */
} vkmha_block;

struct vkmha_device {
    vkmha_host host;
    bool owns_vulkan;
    bool is_loaded; /* `vk` is complete */
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    VkQueue queue;
    uint32_t queue_family;
    uint64_t timestamp_mask; /* the bits that the family's timestamps have; 0: none */
    vkmha_instance_functions instance_vk;
    vkmha_device_functions vk;
    VkAllocationCallbacks callbacks_storage;
    const VkAllocationCallbacks *callbacks; /* NULL or &callbacks_storage */
    void (*lock_queue)(void *lock_user);
    void (*unlock_queue)(void *lock_user);
    void *lock_user;
    bool force_staging;
    vkmha_device_info info;
    VkPhysicalDeviceMemoryProperties memory;

    VkDescriptorSetLayout set_layout; /* one for every kernel (shaders/interface.h) */
    VkPipelineLayout pipeline_layout;
    vkmha_block null_uniform; /* bound where a plan has no key lengths */

    vkmha_lock queue_lock;
    vkmha_lock pipeline_lock;
    struct vkmha_pipeline *pipelines; /* a list that only grows (pipeline.c) */
    vkmha_lock lock;                  /* guards the next two */
    uint32_t references;
    bool is_lost;
};

void vkmha_device_retain(vkmha_device *device);

/* Maps a VkResult, remembers a lost device, logs; `call` is the call's text. */
vkmha_status vkmha_device_failed(vkmha_device *device, VkResult result, const char *call,
                                 vkmha_error *error);

/* DEVICE_LOST once the device is known to be lost. */
vkmha_status vkmha_device_check(vkmha_device *device, vkmha_error *error) VKMHA_CHECKED;

/*
 * Every Vulkan call that can fail goes through this: on failure it sets the local `status` and jumps to `fail`.
 * Needs the locals device, error, status and the label.
 */
#define VKMHA_VK(call)                                                                             \
    do {                                                                                           \
        const VkResult vk_result = device->vk.call;                                                \
        if (vk_result != VK_SUCCESS) {                                                             \
            status = vkmha_device_failed(device, vk_result, #call, error);                         \
            goto fail;                                                                             \
        }                                                                                          \
    } while (0)

#endif
