/* Which device, which queue family, which instance and device extensions: pure choices and the enumeration. */
#ifndef VKMHA_RUNTIME_SELECT_H
#define VKMHA_RUNTIME_SELECT_H

#include "functions.h"
#include "host.h"

/* The index into `entries` that `params` asks for; NO_DEVICE where none fits. */
vkmha_status vkmha_select_device(const vkmha_device_entry *entries, uint32_t count,
                                 const vkmha_device_params *params, uint32_t *index,
                                 vkmha_error *error) VKMHA_CHECKED;

/* The first family with compute, one without graphics before others; false where there is none. */
bool vkmha_select_queue_family(const VkQueueFamilyProperties *families, uint32_t count, uint32_t *index);

vkmha_device_type vkmha_device_type_of(VkPhysicalDeviceType type);

/* An instance of Vulkan 1.1 that also shows portability drivers, where the loader can. */
vkmha_status vkmha_create_instance(PFN_vkGetInstanceProcAddr get, const VkAllocationCallbacks *callbacks,
                                   const vkmha_host *host, VkInstance *instance,
                                   vkmha_error *error) VKMHA_CHECKED;

/* The physical devices and what vkmha_select_device needs of them; both arrays are `host` memory. */
vkmha_status vkmha_enumerate_devices(const vkmha_instance_functions *vk, VkInstance instance,
                                     const vkmha_host *host, VkPhysicalDevice **devices,
                                     vkmha_device_entry **entries, uint32_t *count,
                                     vkmha_error *error) VKMHA_CHECKED;

/* Whether the device lists an extension. */
vkmha_status vkmha_has_device_extension(const vkmha_instance_functions *vk, VkPhysicalDevice device,
                                        const vkmha_host *host, const char *name, bool *has,
                                        vkmha_error *error) VKMHA_CHECKED;

#endif
