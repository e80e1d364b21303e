/* What the planner needs to know of a device, from what the driver tells. */
#ifndef VKMHA_RUNTIME_LIMITS_H
#define VKMHA_RUNTIME_LIMITS_H

#include "functions.h"

/* The default work limit by device type, in multiply-adds. */
uint64_t vkmha_default_work(vkmha_device_type type);

/* Loop trips of one invocation that the driver honours; 0: no limit. `driver` is its name and version. */
uint64_t vkmha_loop_trip_limit(VkDriverId driver_id, const char *device_name, const char *driver);

/* Fills *info from the physical device. has_driver_properties: VK_KHR_driver_properties is listed. The subgroup
 * capability is left out: a self-test decides (subgroup.c). */
void vkmha_query_info(const vkmha_instance_functions *vk, VkPhysicalDevice device,
                      bool has_driver_properties, vkmha_device_info *info);

/* Whether compute shaders have the subgroup operations that the subgroup kernels use. */
bool vkmha_query_subgroup(const vkmha_instance_functions *vk, VkPhysicalDevice device);

#endif
