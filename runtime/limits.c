#include "limits.h"

#include "select.h"

#include <stdio.h>
#include <string.h>

uint64_t vkmha_default_work(vkmha_device_type type)
{
    switch (type) {
    case VKMHA_DEVICE_DISCRETE:
    case VKMHA_DEVICE_SOFTWARE:
        return UINT64_C(1) << 35;
    default:
        return UINT64_C(1) << 31;
    }
}

/*
 * lavapipe ends a shader's loops after 65,535 trips summed over all loops of an invocation, without an error: measured
 * on Mesa 22.3.6 (Debian 12), not on 26.1. Versions between are taken as affected: more dispatches, same bits.
 */
uint64_t vkmha_loop_trip_limit(VkDriverId driver_id, const char *device_name, const char *driver)
{
    const bool is_lavapipe = driver_id == VK_DRIVER_ID_MESA_LLVMPIPE || strstr(device_name, "llvmpipe");
    if (!is_lavapipe) {
        return 0;
    }
    const char *version = strstr(driver, "Mesa ");
    unsigned major = 0;
    if (version && sscanf(version, "Mesa %u", &major) == 1 && major >= 26) {
        return 0;
    }
    return 65535;
}

static void describe_driver(const VkPhysicalDeviceProperties *properties,
                            const VkPhysicalDeviceDriverProperties *driver, vkmha_device_info *info)
{
    if (driver) {
        snprintf(info->driver, sizeof(info->driver), "%s %s", driver->driverName, driver->driverInfo);
    } else {
        snprintf(info->driver, sizeof(info->driver), "version 0x%08x", properties->driverVersion);
    }
}

void vkmha_query_info(const vkmha_instance_functions *vk, VkPhysicalDevice device,
                      bool has_driver_properties, vkmha_device_info *info)
{
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES,
    };
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES,
        .pNext = has_driver_properties ? &driver : NULL,
    };
    VkPhysicalDeviceMaintenance3Properties maintenance = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
        .pNext = &subgroup,
    };
    VkPhysicalDeviceProperties2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
        .pNext = &maintenance,
    };
    vk->GetPhysicalDeviceProperties2(device, &all);
    const VkPhysicalDeviceProperties *properties = &all.properties;
    const VkPhysicalDeviceLimits *given = &properties->limits;

    *info = (vkmha_device_info){
        .api_version = properties->apiVersion,
        .vendor_id = properties->vendorID,
        .device_id = properties->deviceID,
    };
    snprintf(info->name, sizeof(info->name), "%s", properties->deviceName);
    describe_driver(properties, has_driver_properties ? &driver : NULL, info);
    const vkmha_device_type type = vkmha_device_type_of(properties->deviceType);
    info->limits = (vkmha_limits){
        .device_type = type,
        .subgroup_size = subgroup.subgroupSize,
        .max_workgroup_invocations = given->maxComputeWorkGroupInvocations,
        .max_shared_bytes = given->maxComputeSharedMemorySize,
        .max_push_constant_bytes = given->maxPushConstantsSize,
        .max_storage_buffers = given->maxPerStageDescriptorStorageBuffers,
        .max_storage_range_bytes = given->maxStorageBufferRange,
        .max_uniform_range_bytes = given->maxUniformBufferRange,
        .max_allocation_bytes = maintenance.maxMemoryAllocationSize,
        .storage_alignment_bytes = (uint32_t)given->minStorageBufferOffsetAlignment,
        .uniform_alignment_bytes = (uint32_t)given->minUniformBufferOffsetAlignment,
        .non_coherent_atom_bytes = (uint32_t)given->nonCoherentAtomSize,
        .max_loop_trips = vkmha_loop_trip_limit(has_driver_properties ? driver.driverID : (VkDriverId)0,
                                                info->name, info->driver),
        .max_work_per_dispatch = vkmha_default_work(type),
        .timestamp_period_ns = (double)given->timestampPeriod,
    };
    for (uint32_t axis = 0; axis < 3; axis++) {
        info->limits.max_workgroup_size[axis] = given->maxComputeWorkGroupSize[axis];
        info->limits.max_groups[axis] = given->maxComputeWorkGroupCount[axis];
    }
}

bool vkmha_query_subgroup(const vkmha_instance_functions *vk, VkPhysicalDevice device)
{
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES,
    };
    VkPhysicalDeviceProperties2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
        .pNext = &subgroup,
    };
    vk->GetPhysicalDeviceProperties2(device, &all);
    const VkSubgroupFeatureFlags needed = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_VOTE_BIT |
                                          VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                          VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    return (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
           (subgroup.supportedOperations & needed) == needed;
}
