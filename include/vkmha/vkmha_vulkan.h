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
 * What is told of each sequence, vkmha_plan_info.num_sequences of them in an array. vkmha_plan_fill writes it from
 * vkmha_inputs; an application may as well write it itself, on the device too. What is out of range is taken as the
 * nearer end.
 */
typedef struct vkmha_sequence {
    int32_t first_key;       /* keys before it are not there; read where the plan has has_first_keys */
    int32_t key_length;      /* keys from here on are not there; with a cache, the new ones are counted */
    int32_t position_offset; /* of p = i + position_offset, as the plan's causal or positions say it */
    int32_t past_length;     /* cache: keys that are there already; the new ones are written from here on */
    int32_t first_query_row; /* packed: where its rows begin, and how many queries it has; else 0 and query_len */
    int32_t query_length;
    int32_t first_key_row;
    int32_t reserved; /* 0 */
} vkmha_sequence;

/*
 * Writes what a run with these inputs needs of buffers.sequences and buffers.positions (int32: every query's rotary
 * position, then every new key's): num_sequences and num_positions elements. Only the arrays of lengths, offsets and
 * positions, and the cache, are read of `inputs`. Either pointer may be NULL where its number is 0.
 * Errors: INVALID_ARGUMENT, as vkmha_run. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_plan_fill(const vkmha_plan *plan, const vkmha_inputs *inputs, vkmha_sequence *sequences,
                                       int32_t *positions, vkmha_error *error);

/* The cache's two buffers, whole; they stay the cache's. Lengths are not kept for what vkmha_record appends: the
 * application's own arrays tell them. */
VKMHA_API void vkmha_cache_get_buffers(const vkmha_cache *cache, vkmha_buffer *key, vkmha_buffer *value);

/*
 * Tensors as in vkmha_inputs and vkmha_outputs, on the device. A tensor that the plan does not use, or that has
 * no elements, has buffer VK_NULL_HANDLE. Usage: STORAGE_BUFFER, but sequences and head_gates: UNIFORM_BUFFER, their
 * offsets a multiple of minUniformBufferOffsetAlignment and their sizes rounded up to 16. workspace: at least
 * vkmha_plan_info.workspace_bytes, STORAGE_BUFFER. No two may overlap, except inputs among themselves.
 */
typedef struct vkmha_buffers {
    vkmha_buffer query;
    vkmha_buffer key;
    vkmha_buffer value;
    vkmha_buffer mask;
    vkmha_buffer attend_keys;
    vkmha_buffer sequences;
    vkmha_buffer positions;
    vkmha_buffer head_gates;
    vkmha_buffer past_key;
    vkmha_buffer past_value;
    vkmha_buffer cache_key;
    vkmha_buffer cache_value;
    vkmha_buffer present_key;
    vkmha_buffer present_value;
    vkmha_buffer output_gradient;
    vkmha_buffer lse; /* as the next seven, an output where the plan was asked to tell it */
    vkmha_buffer weights;
    vkmha_buffer mean_weights;
    vkmha_buffer scores;
    vkmha_buffer statistics;
    vkmha_buffer key_mass;
    vkmha_buffer contributions;
    vkmha_buffer gate_gradients;
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
 * (sequences, head_gates: VK_ACCESS_UNIFORM_READ_BIT). Earlier compute work on the same queue that used the workspace or
 * the output is ordered by a barrier recorded first.
 * A 16-bit output or present tensor whose rows begin or end inside a word keeps the word's other half by atomics: what
 * was there must be visible with VK_ACCESS_SHADER_READ_BIT and VK_ACCESS_SHADER_WRITE_BIT.
 * After: outputs and cache were written by VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT with VK_ACCESS_SHADER_WRITE_BIT; the
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
