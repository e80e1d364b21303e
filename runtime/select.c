#include "select.h"

#include <stdio.h>
#include <string.h>

#ifndef VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME
#error "the Vulkan headers are older than 1.3.207, which has VK_KHR_portability_enumeration"
#endif

static vkmha_status instance_failed(VkResult result, const char *call, vkmha_error *error)
{
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "%s: out of memory", call);
    }
    return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "%s failed with VkResult %d: %s", call, result,
                      result == VK_ERROR_INCOMPATIBLE_DRIVER ? "no Vulkan driver is installed"
                                                             : "the Vulkan driver does not start");
}

vkmha_device_type vkmha_device_type_of(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return VKMHA_DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return VKMHA_DEVICE_DISCRETE;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return VKMHA_DEVICE_VIRTUAL;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return VKMHA_DEVICE_SOFTWARE;
    default:
        return VKMHA_DEVICE_OTHER;
    }
}

vkmha_status vkmha_select_device(const vkmha_device_entry *entries, uint32_t count,
                                 const vkmha_device_params *params, uint32_t *index,
                                 vkmha_error *error)
{
    if (count == 0) {
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "no Vulkan device is present");
    }
    if (params->name && params->has_index) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "device name \"%s\" and index %u are both given: give one", params->name,
                          params->index);
    }
    if (params->name && params->name[0] == '\0') {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "device name \"\" is empty: give a part of a name, or NULL");
    }
    if (params->has_index) {
        if (params->index >= count) {
            return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE,
                              "device index %u is not in 0..%u", params->index, count - 1);
        }
        *index = params->index;
        return VKMHA_OK;
    }
    if (params->name) {
        for (uint32_t i = 0; i < count; i++) {
            if (strstr(entries[i].name, params->name)) {
                *index = i;
                return VKMHA_OK;
            }
        }
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE,
                          "no device's name contains \"%s\"; the first is \"%s\"", params->name,
                          entries[0].name);
    }
    static const vkmha_device_type order[] = {VKMHA_DEVICE_DISCRETE, VKMHA_DEVICE_INTEGRATED,
                                              VKMHA_DEVICE_VIRTUAL, VKMHA_DEVICE_OTHER,
                                              VKMHA_DEVICE_SOFTWARE};
    for (size_t rank = 0; rank < sizeof(order) / sizeof(order[0]); rank++) {
        for (uint32_t i = 0; i < count; i++) {
            const bool allowed = order[rank] != VKMHA_DEVICE_SOFTWARE || params->allow_software;
            if (entries[i].type == order[rank] && allowed) {
                *index = i;
                return VKMHA_OK;
            }
        }
    }
    return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE,
                      "no GPU: the only device is \"%s\", a software one, and allow_software is not "
                      "set",
                      entries[0].name);
}

bool vkmha_select_queue_family(const VkQueueFamilyProperties *families, uint32_t count,
                               uint32_t *index)
{
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
        const VkQueueFlags flags = families[i].queueFlags;
        if (!(flags & VK_QUEUE_COMPUTE_BIT) || families[i].queueCount == 0) {
            continue;
        }
        if (!(flags & VK_QUEUE_GRAPHICS_BIT)) {
            *index = i;
            return true;
        }
        if (!found) {
            *index = i;
            found = true;
        }
    }
    return found;
}

static bool contains_extension(const VkExtensionProperties *extensions, uint32_t count,
                               const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(extensions[i].extensionName, name) == 0) {
            return true;
        }
    }
    return false;
}

vkmha_status vkmha_create_instance(PFN_vkGetInstanceProcAddr get,
                                   const VkAllocationCallbacks *callbacks, const vkmha_host *host,
                                   VkInstance *instance, vkmha_error *error)
{
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    PFN_vkEnumerateInstanceVersion version =
        (PFN_vkEnumerateInstanceVersion)get(NULL, "vkEnumerateInstanceVersion");
    PFN_vkEnumerateInstanceExtensionProperties enumerate =
        (PFN_vkEnumerateInstanceExtensionProperties)get(NULL,
                                                        "vkEnumerateInstanceExtensionProperties");
    uint32_t loader_version = VK_API_VERSION_1_0;
    if (!create || !enumerate || !version || version(&loader_version) != VK_SUCCESS ||
        loader_version < VK_API_VERSION_1_1) {
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE,
                          "the Vulkan loader is older than Vulkan 1.1");
    }

    uint32_t count = 0;
    VkResult result = enumerate(NULL, &count, NULL);
    if (result != VK_SUCCESS) {
        return instance_failed(result, "vkEnumerateInstanceExtensionProperties", error);
    }
    VkExtensionProperties *extensions =
        vkmha_host_allocate(host, count, sizeof(VkExtensionProperties));
    if (!extensions) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    result = enumerate(NULL, &count, extensions);
    const bool has_portability =
        (result == VK_SUCCESS || result == VK_INCOMPLETE) &&
        contains_extension(extensions, count, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
    vkmha_host_release(host, extensions);

    const char *names[] = {VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME};
    const VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pEngineName = "vkmha",
        .engineVersion = VKMHA_VERSION,
        .apiVersion = VK_API_VERSION_1_1,
    };
    const VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .flags = has_portability ? VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR : 0,
        .pApplicationInfo = &application,
        .enabledExtensionCount = has_portability ? 1 : 0,
        .ppEnabledExtensionNames = names,
    };
    result = create(&info, callbacks, instance);
    return result == VK_SUCCESS ? VKMHA_OK : instance_failed(result, "vkCreateInstance", error);
}

vkmha_status vkmha_enumerate_devices(const vkmha_instance_functions *vk, VkInstance instance,
                                     const vkmha_host *host, VkPhysicalDevice **devices,
                                     vkmha_device_entry **entries, uint32_t *count,
                                     vkmha_error *error)
{
    uint32_t found = 0;
    VkResult result = vk->EnumeratePhysicalDevices(instance, &found, NULL);
    if (result != VK_SUCCESS) {
        return instance_failed(result, "vkEnumeratePhysicalDevices", error);
    }
    VkPhysicalDevice *handles = vkmha_host_allocate(host, found, sizeof(VkPhysicalDevice));
    vkmha_device_entry *list = vkmha_host_allocate(host, found, sizeof(vkmha_device_entry));
    vkmha_status status = VKMHA_OK;
    if (!handles || !list) {
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
        goto fail;
    }
    result = vk->EnumeratePhysicalDevices(instance, &found, handles);
    if (result != VK_SUCCESS && result != VK_INCOMPLETE) {
        status = instance_failed(result, "vkEnumeratePhysicalDevices", error);
        goto fail;
    }
    /* Devices older than Vulkan 1.1 are not shown: nothing here runs on them. */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < found; i++) {
        VkPhysicalDeviceProperties properties;
        vk->GetPhysicalDeviceProperties(handles[i], &properties);
        if (properties.apiVersion < VK_API_VERSION_1_1) {
            continue;
        }
        handles[kept] = handles[i];
        snprintf(list[kept].name, sizeof(list[kept].name), "%s", properties.deviceName);
        list[kept].type = vkmha_device_type_of(properties.deviceType);
        list[kept].api_version = properties.apiVersion;
        kept++;
    }
    *devices = handles;
    *entries = list;
    *count = kept;
    return VKMHA_OK;

fail:
    vkmha_host_release(host, handles);
    vkmha_host_release(host, list);
    return status;
}

vkmha_status vkmha_has_device_extension(const vkmha_instance_functions *vk, VkPhysicalDevice device,
                                        const vkmha_host *host, const char *name, bool *has,
                                        vkmha_error *error)
{
    uint32_t count = 0;
    VkResult result = vk->EnumerateDeviceExtensionProperties(device, NULL, &count, NULL);
    if (result != VK_SUCCESS) {
        return instance_failed(result, "vkEnumerateDeviceExtensionProperties", error);
    }
    VkExtensionProperties *extensions =
        vkmha_host_allocate(host, count, sizeof(VkExtensionProperties));
    if (!extensions) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    result = vk->EnumerateDeviceExtensionProperties(device, NULL, &count, extensions);
    vkmha_status status = VKMHA_OK;
    if (result == VK_SUCCESS || result == VK_INCOMPLETE) {
        *has = contains_extension(extensions, count, name);
    } else {
        status = instance_failed(result, "vkEnumerateDeviceExtensionProperties", error);
    }
    vkmha_host_release(host, extensions);
    return status;
}
