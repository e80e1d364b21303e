#include "device.h"

#include <stdio.h>
#include <string.h>

#include "limits.h"
#include "memory.h"
#include "pipeline.h"
#include "select.h"
#include "subgroup.h"

#define PORTABILITY_SUBSET "VK_KHR_portability_subset"

vkmha_status vkmha_device_failed(vkmha_device *device, VkResult result, const char *call,
                                 vkmha_error *error)
{
    vkmha_status status;
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory in %s", call);
        break;
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
    case VK_ERROR_FRAGMENTED_POOL:
    case VK_ERROR_MEMORY_MAP_FAILED:
    case VK_ERROR_TOO_MANY_OBJECTS:
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of device memory in %s", call);
        break;
    case VK_ERROR_DEVICE_LOST:
        status = vkmha_fail(error, VKMHA_ERROR_DEVICE_LOST, "the device was lost in %s", call);
        vkmha_lock_acquire(&device->lock);
        device->is_lost = true;
        vkmha_lock_release(&device->lock);
        break;
    default:
        status = vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED, "VkResult %d from %s", result, call);
        break;
    }
    vkmha_host_log(&device->host, VKMHA_LOG_ERROR, "VkResult %d from %s", result, call);
    return status;
}

vkmha_status vkmha_device_check(vkmha_device *device, vkmha_error *error)
{
    vkmha_lock_acquire(&device->lock);
    const bool is_lost = device->is_lost;
    vkmha_lock_release(&device->lock);
    return is_lost ? vkmha_fail(error, VKMHA_ERROR_DEVICE_LOST, "the device was lost earlier")
                   : VKMHA_OK;
}

void vkmha_device_retain(vkmha_device *device)
{
    vkmha_lock_acquire(&device->lock);
    device->references++;
    vkmha_lock_release(&device->lock);
}

static void release_all(vkmha_device *device)
{
    const vkmha_host host = device->host;
    if (device->is_loaded) {
        vkmha_pipelines_destroy(device);
        vkmha_block_destroy(device, &device->null_uniform);
    }
    if (device->owns_vulkan && device->vk.DestroyDevice) {
        device->vk.DestroyDevice(device->handle, device->callbacks);
    }
    if (device->owns_vulkan && device->instance_vk.DestroyInstance) {
        device->instance_vk.DestroyInstance(device->instance, device->callbacks);
    }
    vkmha_lock_finish(&device->queue_lock);
    vkmha_lock_finish(&device->pipeline_lock);
    vkmha_lock_finish(&device->lock);
    vkmha_host_release(&host, device);
}

void vkmha_device_destroy(vkmha_device *device)
{
    if (!device) {
        return;
    }
    vkmha_lock_acquire(&device->lock);
    const bool is_last = --device->references == 0;
    vkmha_lock_release(&device->lock);
    if (is_last) {
        release_all(device);
    }
}

/* ---- Creation ---------------------------------------------------------------------------------------- */

/* NULL on failure, and then *status says which. */
static vkmha_device *allocate_device(const vkmha_host *given, const VkAllocationCallbacks *callbacks,
                                     vkmha_status *status, vkmha_error *error)
{
    vkmha_host host;
    *status = vkmha_host_init(&host, given, error);
    if (*status != VKMHA_OK) {
        return NULL;
    }
    vkmha_device *made = vkmha_host_allocate(&host, 1, sizeof(*made));
    if (!made) {
        *status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
        return NULL;
    }
    made->host = host;
    made->references = 1;
    if (callbacks) {
        made->callbacks_storage = *callbacks;
        made->callbacks = &made->callbacks_storage;
    }
    vkmha_lock_init(&made->queue_lock);
    vkmha_lock_init(&made->pipeline_lock);
    vkmha_lock_init(&made->lock);
    return made;
}

static void zero_fill(const void *source, uint64_t first, uint64_t bytes, void *destination)
{
    (void)source;
    (void)first;
    memset(destination, 0, (size_t)bytes);
}

/* What own and borrowed devices share once the Vulkan objects are there. */
static vkmha_status finish_creation(vkmha_device *device, uint32_t disabled_capabilities,
                                    uint64_t max_work_per_dispatch, vkmha_error *error)
{
    if (disabled_capabilities & ~(uint32_t)VKMHA_CAPABILITY_SUBGROUP) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "disabled_capabilities 0x%x has bits that are no VKMHA_CAPABILITY_",
                          disabled_capabilities);
    }
    const vkmha_instance_functions *vk = &device->instance_vk;
    bool has_driver_properties = false;
    vkmha_status status = vkmha_has_device_extension(vk, device->physical, &device->host,
                                                     VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME,
                                                     &has_driver_properties, error);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_query_info(vk, device->physical, has_driver_properties, &device->info);
    if (device->timestamp_mask == 0) {
        device->info.limits.timestamp_period_ns = 0.0;
    }
    vk->GetPhysicalDeviceMemoryProperties(device->physical, &device->memory);
    if (max_work_per_dispatch != 0) {
        device->info.limits.max_work_per_dispatch = max_work_per_dispatch;
    }
    status = vkmha_layouts_create(device, error);
    if (status == VKMHA_OK) {
        status = vkmha_block_create(
            device, 16, VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
            VKMHA_MEMORY_DEVICE, &device->null_uniform, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_upload(device, &device->null_uniform, 0, 16, zero_fill, NULL, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }

    char *reason = device->info.subgroup_status;
    const size_t reason_size = sizeof(device->info.subgroup_status);
    bool works = false;
    if (disabled_capabilities & VKMHA_CAPABILITY_SUBGROUP) {
        snprintf(reason, reason_size, "disabled by disabled_capabilities");
    } else if (!vkmha_query_subgroup(vk, device->physical)) {
        snprintf(reason, reason_size, "the device lacks shuffle, vote or arithmetic in compute");
    } else {
        status = vkmha_subgroup_test(device, &works, reason, reason_size, error);
        if (status == VKMHA_ERROR_UNSUPPORTED) { /* the test is optional, as what it tests */
            snprintf(reason, reason_size, "the self-test cannot run on this device");
            vkmha_error_clear(error);
            status = VKMHA_OK;
        }
    }
    if (works) {
        device->info.limits.capabilities |= VKMHA_CAPABILITY_SUBGROUP;
    }
    if (status == VKMHA_OK) {
        vkmha_host_log(&device->host, VKMHA_LOG_INFO, "device %s (%s), subgroup operations: %s",
                       device->info.name, device->info.driver, reason);
    }
    return status;
}

/* The queue family, chosen or given, and the bits of its timestamps. */
static vkmha_status check_queue_family(vkmha_device *device, bool choose, vkmha_error *error)
{
    const vkmha_instance_functions *vk = &device->instance_vk;
    uint32_t count = 0;
    vk->GetPhysicalDeviceQueueFamilyProperties(device->physical, &count, NULL);
    VkQueueFamilyProperties *families =
        vkmha_host_allocate(&device->host, count, sizeof(VkQueueFamilyProperties));
    if (!families) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    vk->GetPhysicalDeviceQueueFamilyProperties(device->physical, &count, families);
    vkmha_status status = VKMHA_OK;
    if (choose) {
        if (!vkmha_select_queue_family(families, count, &device->queue_family)) {
            status = vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "the device has no compute queue");
        }
    } else if (device->queue_family >= count) {
        status = vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                            "queue_family_index %u is not below the device's %u families",
                            device->queue_family, count);
    } else if (!(families[device->queue_family].queueFlags & VK_QUEUE_COMPUTE_BIT)) {
        status = vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "queue_family_index %u has no compute",
                            device->queue_family);
    }
    if (status == VKMHA_OK) {
        const uint32_t bits = families[device->queue_family].timestampValidBits;
        device->timestamp_mask = bits == 0 ? 0 : UINT64_MAX >> (64 - bits);
    }
    vkmha_host_release(&device->host, families);
    return status;
}

static vkmha_status create_vulkan_device(vkmha_device *device, vkmha_error *error)
{
    bool has_subset = false;
    vkmha_status status =
        vkmha_has_device_extension(&device->instance_vk, device->physical, &device->host,
                                   PORTABILITY_SUBSET, &has_subset, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queue_info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = device->queue_family,
        .queueCount = 1,
        .pQueuePriorities = &priority,
    };
    /* The specification demands that a listed portability subset is enabled. */
    const char *extensions[] = {PORTABILITY_SUBSET};
    const VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue_info,
        .enabledExtensionCount = has_subset ? 1 : 0,
        .ppEnabledExtensionNames = extensions,
    };
    const VkResult result = device->instance_vk.CreateDevice(device->physical, &info,
                                                             device->callbacks, &device->handle);
    return result == VK_SUCCESS ? VKMHA_OK
                                : vkmha_device_failed(device, result, "vkCreateDevice", error);
}

static vkmha_status choose_physical_device(vkmha_device *device, const vkmha_device_params *params,
                                           vkmha_error *error)
{
    VkPhysicalDevice *handles = NULL;
    vkmha_device_entry *entries = NULL;
    uint32_t count = 0;
    vkmha_status status = vkmha_enumerate_devices(&device->instance_vk, device->instance,
                                                  &device->host, &handles, &entries, &count, error);
    if (status != VKMHA_OK) {
        return status;
    }
    uint32_t chosen = 0;
    status = vkmha_select_device(entries, count, params, &chosen, error);
    if (status == VKMHA_OK) {
        device->physical = handles[chosen];
    }
    vkmha_host_release(&device->host, handles);
    vkmha_host_release(&device->host, entries);
    return status;
}

static vkmha_status open_own(vkmha_device *device, PFN_vkGetInstanceProcAddr get,
                             const vkmha_device_params *params, vkmha_error *error)
{
    get = vkmha_find_loader(get);
    if (!get) {
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "no Vulkan loader is installed");
    }
    device->owns_vulkan = true;
    vkmha_status status =
        vkmha_create_instance(get, device->callbacks, &device->host, &device->instance, error);
    if (status == VKMHA_OK) {
        status = vkmha_load_instance_functions(get, device->instance, &device->instance_vk, error);
    }
    if (status == VKMHA_OK) {
        status = choose_physical_device(device, params, error);
    }
    if (status == VKMHA_OK) {
        status = check_queue_family(device, true, error);
    }
    if (status == VKMHA_OK) {
        status = create_vulkan_device(device, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_load_device_functions(device->instance_vk.GetDeviceProcAddr, device->handle,
                                             &device->vk, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    device->is_loaded = true;
    device->vk.GetDeviceQueue(device->handle, device->queue_family, 0, &device->queue);
    return finish_creation(device, params->disabled_capabilities, params->max_work_per_dispatch, error);
}

vkmha_status vkmha_device_create_with(const vkmha_device_params *params,
                                      PFN_vkGetInstanceProcAddr get_instance_proc_addr,
                                      const VkAllocationCallbacks *allocation_callbacks,
                                      vkmha_device **device, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!device) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "device is NULL");
    }
    *device = NULL;
    const vkmha_device_params defaults = {0};
    if (!params) {
        params = &defaults;
    }
    if (!vkmha_is_zero(params->reserved, sizeof(params->reserved))) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "device params.reserved is not zero");
    }
    vkmha_status status;
    vkmha_device *made = allocate_device(params->host, allocation_callbacks, &status, error);
    if (!made) {
        return status;
    }
    made->force_staging = params->force_staging;
    status = open_own(made, get_instance_proc_addr, params, error);
    if (status != VKMHA_OK) {
        vkmha_device_destroy(made);
        return status;
    }
    *device = made;
    return VKMHA_OK;
}

vkmha_status vkmha_device_create(const vkmha_device_params *params, vkmha_device **device,
                                 vkmha_error *error)
{
    return vkmha_device_create_with(params, NULL, NULL, device, error);
}

static vkmha_status check_borrow(const vkmha_borrow_params *params, vkmha_error *error)
{
    if (!params) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "borrow params is NULL");
    }
    const char *missing = !params->instance          ? "instance"
                          : !params->physical_device ? "physical_device"
                          : !params->device          ? "device"
                          : !params->queue           ? "queue"
                                                     : NULL;
    if (missing) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "borrow params.%s is NULL", missing);
    }
    if (!params->lock_queue != !params->unlock_queue) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "lock_queue and unlock_queue must be given both or neither");
    }
    if (!vkmha_is_zero(params->reserved, sizeof(params->reserved))) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "borrow params.reserved is not zero");
    }
    return VKMHA_OK;
}

static vkmha_status open_borrowed(vkmha_device *device, const vkmha_borrow_params *params,
                                  vkmha_error *error)
{
    PFN_vkGetInstanceProcAddr get = vkmha_find_loader(params->get_instance_proc_addr);
    if (!get) {
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "no Vulkan loader is installed");
    }
    device->instance = params->instance;
    device->physical = params->physical_device;
    device->queue = params->queue;
    device->queue_family = params->queue_family_index;
    device->lock_queue = params->lock_queue;
    device->unlock_queue = params->unlock_queue;
    device->lock_user = params->lock_user;
    device->force_staging = params->force_staging;
    vkmha_status status =
        vkmha_load_instance_functions(get, device->instance, &device->instance_vk, error);
    if (status != VKMHA_OK) {
        return status;
    }
    VkPhysicalDeviceProperties properties;
    device->instance_vk.GetPhysicalDeviceProperties(device->physical, &properties);
    if (properties.apiVersion < VK_API_VERSION_1_1) {
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE,
                          "the device's apiVersion %u.%u is older than Vulkan 1.1",
                          VK_API_VERSION_MAJOR(properties.apiVersion),
                          VK_API_VERSION_MINOR(properties.apiVersion));
    }
    status = check_queue_family(device, false, error);
    if (status != VKMHA_OK) {
        return status;
    }
    device->handle = params->device;
    status = vkmha_load_device_functions(device->instance_vk.GetDeviceProcAddr, device->handle,
                                         &device->vk, error);
    if (status != VKMHA_OK) {
        return status;
    }
    device->is_loaded = true;
    return finish_creation(device, params->disabled_capabilities, params->max_work_per_dispatch, error);
}

vkmha_status vkmha_device_borrow(const vkmha_borrow_params *params, vkmha_device **device,
                                 vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!device) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "device is NULL");
    }
    *device = NULL;
    vkmha_status status = check_borrow(params, error);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_device *made =
        allocate_device(params->host, params->allocation_callbacks, &status, error);
    if (!made) {
        return status;
    }
    status = open_borrowed(made, params, error);
    if (status != VKMHA_OK) {
        vkmha_device_destroy(made);
        return status;
    }
    *device = made;
    return VKMHA_OK;
}

/* ---- Queries ----------------------------------------------------------------------------------------- */

void vkmha_device_get_info(const vkmha_device *device, vkmha_device_info *info)
{
    *info = device->info;
}

void vkmha_device_get_vulkan(const vkmha_device *device, vkmha_vulkan_handles *handles)
{
    *handles = (vkmha_vulkan_handles){
        .instance = device->instance,
        .physical_device = device->physical,
        .device = device->handle,
        .queue = device->queue,
        .queue_family_index = device->queue_family,
    };
}

vkmha_status vkmha_device_list(vkmha_device_entry *entries, uint32_t *count, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!count) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "count is NULL");
    }
    PFN_vkGetInstanceProcAddr get = vkmha_find_loader(NULL);
    if (!get) {
        return vkmha_fail(error, VKMHA_ERROR_NO_DEVICE, "no Vulkan loader is installed");
    }
    const vkmha_host host = {0};
    VkInstance instance = VK_NULL_HANDLE;
    vkmha_status status = vkmha_create_instance(get, NULL, &host, &instance, error);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_instance_functions vk = {0};
    VkPhysicalDevice *handles = NULL;
    vkmha_device_entry *found = NULL;
    uint32_t num_found = 0;
    status = vkmha_load_instance_functions(get, instance, &vk, error);
    if (status == VKMHA_OK) {
        status = vkmha_enumerate_devices(&vk, instance, &host, &handles, &found, &num_found, error);
    }
    if (status == VKMHA_OK) {
        if (entries) {
            const uint32_t room = *count < num_found ? *count : num_found;
            memcpy(entries, found, room * sizeof(*entries));
        }
        *count = num_found;
    }
    vkmha_host_release(&host, handles);
    vkmha_host_release(&host, found);
    if (vk.DestroyInstance) {
        vk.DestroyInstance(instance, NULL);
    }
    return status;
}
