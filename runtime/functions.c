/* volk's globals live in this file alone, hidden, and serve only to find the loader. */
#define VOLK_IMPLEMENTATION
#include <volk.h>

#include "functions.h"
#include "lock.h"

static vkmha_lock volk_lock = VKMHA_LOCK_INIT;

PFN_vkGetInstanceProcAddr vkmha_find_loader(PFN_vkGetInstanceProcAddr given)
{
    if (given) {
        return given;
    }
    vkmha_lock_acquire(&volk_lock);
    if (!vkGetInstanceProcAddr) {
        (void)volkInitialize(); /* on failure the pointer stays NULL, which is the answer */
    }
    PFN_vkGetInstanceProcAddr found = vkGetInstanceProcAddr;
    vkmha_lock_release(&volk_lock);
    return found;
}

vkmha_status vkmha_load_instance_functions(PFN_vkGetInstanceProcAddr get, VkInstance instance,
                                           vkmha_instance_functions *functions, vkmha_error *error)
{
    functions->GetInstanceProcAddr = get;
#define LOAD(name)                                                                                 \
    functions->name = (PFN_vk##name)get(instance, "vk" #name);                                     \
    if (!functions->name) {                                                                        \
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "the Vulkan instance lacks vk" #name       \
                                                        ", which Vulkan 1.1 has");                 \
    }
    VKMHA_INSTANCE_FUNCTIONS(LOAD)
#undef LOAD
    return VKMHA_OK;
}

vkmha_status vkmha_load_device_functions(PFN_vkGetDeviceProcAddr get, VkDevice device,
                                         vkmha_device_functions *functions, vkmha_error *error)
{
#define LOAD(name)                                                                                 \
    functions->name = (PFN_vk##name)get(device, "vk" #name);                                       \
    if (!functions->name) {                                                                        \
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "the Vulkan device lacks vk" #name         \
                                                        ", which Vulkan 1.0 has");                 \
    }
    VKMHA_DEVICE_FUNCTIONS(LOAD)
#undef LOAD
    return VKMHA_OK;
}
