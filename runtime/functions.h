/*
 * Every Vulkan function that the runtime calls: one list, all of Vulkan 1.1 core, loaded for each instance and
 * device on its own, so that two devices of two instances may live at once and a test may replace any.
 */
#ifndef VKMHA_RUNTIME_FUNCTIONS_H
#define VKMHA_RUNTIME_FUNCTIONS_H

#ifndef VK_NO_PROTOTYPES
#define VK_NO_PROTOTYPES
#endif
#include <vkmha/vkmha_vulkan.h>

#include "status.h"

#define VKMHA_INSTANCE_FUNCTIONS(X)                                                                \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(GetPhysicalDeviceProperties)                                                                 \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceMemoryProperties)                                                           \
    X(GetPhysicalDeviceQueueFamilyProperties)                                                      \
    X(EnumerateDeviceExtensionProperties)                                                          \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)

#define VKMHA_DEVICE_FUNCTIONS(X)                                                                  \
    X(DestroyDevice)                                                                               \
    X(GetDeviceQueue)                                                                              \
    X(QueueSubmit)                                                                                 \
    X(QueueWaitIdle)                                                                               \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(MapMemory)                                                                                   \
    X(FlushMappedMemoryRanges)                                                                     \
    X(InvalidateMappedMemoryRanges)                                                                \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements)                                                                 \
    X(BindBufferMemory)                                                                            \
    X(CreateFence)                                                                                 \
    X(DestroyFence)                                                                                \
    X(WaitForFences)                                                                               \
    X(CreateQueryPool)                                                                             \
    X(DestroyQueryPool)                                                                            \
    X(GetQueryPoolResults)                                                                         \
    X(CreateShaderModule)                                                                          \
    X(DestroyShaderModule)                                                                         \
    X(CreateDescriptorSetLayout)                                                                   \
    X(DestroyDescriptorSetLayout)                                                                  \
    X(CreatePipelineLayout)                                                                        \
    X(DestroyPipelineLayout)                                                                       \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)                                                                             \
    X(CreateDescriptorPool)                                                                        \
    X(DestroyDescriptorPool)                                                                       \
    X(AllocateDescriptorSets)                                                                      \
    X(UpdateDescriptorSets)                                                                        \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(AllocateCommandBuffers)                                                                      \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(CmdBindPipeline)                                                                             \
    X(CmdBindDescriptorSets)                                                                       \
    X(CmdPushConstants)                                                                            \
    X(CmdDispatch)                                                                                 \
    X(CmdPipelineBarrier)                                                                          \
    X(CmdCopyBuffer)                                                                               \
    X(CmdResetQueryPool)                                                                           \
    X(CmdWriteTimestamp)

#define VKMHA_DECLARE_FUNCTION(name) PFN_vk##name name;

typedef struct vkmha_instance_functions {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
    VKMHA_INSTANCE_FUNCTIONS(VKMHA_DECLARE_FUNCTION)
} vkmha_instance_functions;

typedef struct vkmha_device_functions {
    VKMHA_DEVICE_FUNCTIONS(VKMHA_DECLARE_FUNCTION)
} vkmha_device_functions;

/* `given`, or else the loader's as volk finds it; NULL where there is no loader. */
PFN_vkGetInstanceProcAddr vkmha_find_loader(PFN_vkGetInstanceProcAddr given);

/* NO_DEVICE, naming the function that is missing. */
vkmha_status vkmha_load_instance_functions(PFN_vkGetInstanceProcAddr get, VkInstance instance,
                                           vkmha_instance_functions *functions,
                                           vkmha_error *error) VKMHA_CHECKED;
vkmha_status vkmha_load_device_functions(PFN_vkGetDeviceProcAddr get, VkDevice device,
                                         vkmha_device_functions *functions,
                                         vkmha_error *error) VKMHA_CHECKED;

#endif
