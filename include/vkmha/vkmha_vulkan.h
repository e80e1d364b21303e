/*
 * What needs Vulkan's types: borrowing the application's device, and recording into its command buffers.
 */
#ifndef VKMHA_VULKAN_H
#define VKMHA_VULKAN_H

#include <vkmha/vkmha.h>
#include <vulkan/vulkan_core.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vkmha_borrow_params {
    VkInstance instance; /* required, as the next three. Instance and device made for Vulkan 1.1 or later. */
    VkPhysicalDevice physical_device;
    VkDevice device;
    VkQueue queue; /* with compute; used by vkmha_layer_create, vkmha_run and the self-test, never by vkmha_record */
    uint32_t queue_family_index;
    /* NULL: the loader that volk finds. Give your own where your application brings one. */
    PFN_vkGetInstanceProcAddr get_instance_proc_addr;
    const VkAllocationCallbacks *allocation_callbacks; /* copied; passed to every vkCreate and vkDestroy */
    /* Called around every use of `queue`; both or neither. NULL: nobody else uses it meanwhile. */
    void (*lock_queue)(void *lock_user);
    void (*unlock_queue)(void *lock_user);
    void *lock_user;
    uint32_t disabled_capabilities; /* as in vkmha_device_params, as the rest */
    uint64_t max_work_per_dispatch;
    bool force_staging;
    const vkmha_host *host;
    uint32_t reserved[8];
} vkmha_borrow_params;

/*
 * Makes a vkmha_device of the application's Vulkan device. Needs no extension and no feature.
 * The application's objects are left as they are; they must outlive the vkmha_device and all made from it.
 * stage_ns and vkmha_device_measure_peak need a queue family with timestampValidBits.
 * Errors: INVALID_ARGUMENT, NO_DEVICE (older than Vulkan 1.1, a queue without compute), OUT_OF_MEMORY, DEVICE_LOST.
 * Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_device_borrow(const vkmha_borrow_params *params, vkmha_device **device,
                                           vkmha_error *error);

/*
 * A device of the library's own, as vkmha_device_create makes it, but through the application's loader and
 * with its allocation callbacks. Both may be NULL.
 */
VKMHA_API vkmha_status vkmha_device_create_with(const vkmha_device_params *params,
                                                PFN_vkGetInstanceProcAddr get_instance_proc_addr,
                                                const VkAllocationCallbacks *allocation_callbacks,
                                                vkmha_device **device, vkmha_error *error);

/* The Vulkan objects behind a device, for an application that records on a device of the library's own. */
typedef struct vkmha_vulkan_handles {
    VkInstance instance;
    VkPhysicalDevice physical_device;
    VkDevice device;
    VkQueue queue; /* use it only while no other thread is inside this library with the same device */
    uint32_t queue_family_index;
} vkmha_vulkan_handles;

/* Ownership: the handles stay the device's. Thread-safety: any thread. */
VKMHA_API void vkmha_device_get_vulkan(const vkmha_device *device, vkmha_vulkan_handles *handles);

/* A part of a buffer that holds one tensor. */
typedef struct vkmha_buffer {
    VkBuffer buffer;
    VkDeviceSize offset; /* in bytes; a multiple of the device's minStorageBufferOffsetAlignment */
    VkDeviceSize size;   /* in bytes; at least what the tensor needs, rounded up to 4 */
} vkmha_buffer;

/*
 * Tensors as in vkmha_inputs and vkmha_outputs, on the device. A tensor that the plan does not use, or that has
 * no elements, has buffer VK_NULL_HANDLE. Usage: STORAGE_BUFFER, but key_lengths: UNIFORM_BUFFER, its offset
 * a multiple of minUniformBufferOffsetAlignment and its size rounded up to 16. workspace: at least
 * vkmha_plan_info.workspace_bytes, STORAGE_BUFFER. Lengths outside 0..key_len are taken as the nearer end.
 * No two may overlap, except inputs among themselves.
 */
typedef struct vkmha_buffers {
    vkmha_buffer query;
    vkmha_buffer key;
    vkmha_buffer value;
    vkmha_buffer mask;
    vkmha_buffer attend_keys;
    vkmha_buffer key_lengths;
    vkmha_buffer output;
    vkmha_buffer workspace;
} vkmha_buffers;

/* Descriptor sets of one plan for one set of buffers.
 * Thread-safety: one writer; not to be updated or destroyed while the GPU may still use it. */
typedef struct vkmha_bindings vkmha_bindings;

/*
 * Errors: INVALID_ARGUMENT (a buffer that is missing, superfluous, too small or misaligned: named),
 * OUT_OF_MEMORY. On failure *bindings is NULL. Ownership: the caller destroys it before the plan.
 */
VKMHA_API vkmha_status vkmha_bindings_create(vkmha_plan *plan, const vkmha_buffers *buffers,
                                             vkmha_bindings **bindings, vkmha_error *error);

/* Points the same descriptor sets at other buffers. Errors: INVALID_ARGUMENT; the old ones stay then. */
VKMHA_API vkmha_status vkmha_bindings_update(vkmha_bindings *bindings, const vkmha_buffers *buffers,
                                             vkmha_error *error);

/* NULL is allowed. */
VKMHA_API void vkmha_bindings_destroy(vkmha_bindings *bindings);

typedef struct vkmha_record_params {
    /* Optional timestamps: VKMHA_NUM_STAGES + 1 queries from `first_query`, the first written before the plan's first
     * dispatch, the others when each stage is done (a stage without dispatches takes no time). The caller has
     * reset them. The queue family must have timestampValidBits. */
    VkQueryPool timestamp_pool; /* VK_NULL_HANDLE: none */
    uint32_t first_query;
    /* A part of the plan, to spread long work over several submissions to one queue, in order. */
    uint32_t first_dispatch;
    uint32_t num_dispatches; /* 0: all from first_dispatch on (vkmha_plan_info.num_dispatches) */
    uint32_t reserved[4];
} vkmha_record_params;

/*
 * Appends the plan's dispatches to a command buffer in the recording state, outside a render pass, of the device's
 * queue family. Never submits, waits, allocates or compiles.
 *
 * Before: inputs must be visible to VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT with VK_ACCESS_SHADER_READ_BIT
 * (key_lengths: VK_ACCESS_UNIFORM_READ_BIT). Earlier compute work on the same queue that used the workspace or
 * the output is ordered by a barrier recorded first.
 * After: the output was written by VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT with VK_ACCESS_SHADER_WRITE_BIT; the
 * reader's barrier is the caller's. Bound compute pipeline, descriptor set 0 and push constants are changed.
 *
 * params: NULL means {0}. Errors: INVALID_ARGUMENT (bindings of another plan, dispatches past the plan's end).
 * Thread-safety: the command buffer has one writer; plan and bindings are only read.
 */
VKMHA_API vkmha_status vkmha_record(vkmha_plan *plan, const vkmha_bindings *bindings, VkCommandBuffer commands,
                                    const vkmha_record_params *params, vkmha_error *error);

#ifdef __cplusplus
}
#endif

#endif
