/*
 * Choosing devices, and a fake loader that records what it is asked: no GPU needed. The fake has one device of Vulkan
 * 1.1, and what it lists is set by each test.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "runtime/limits.h"
#include "runtime/select.h"

/* ---- The choice -------------------------------------------------------------------------------------- */

static vkmha_device_entry entry(const char *name, vkmha_device_type type, uint32_t version)
{
    vkmha_device_entry made = {.type = type, .api_version = version};
    strcpy(made.name, name);
    return made;
}

static void expect_choice(const vkmha_device_entry *entries, uint32_t count, bool allow_software,
                          int expected)
{
    uint32_t index = 99;
    vkmha_error error;
    const vkmha_device_params params = {.allow_software = allow_software};
    const vkmha_status status = vkmha_select_device(entries, count, &params, &index, &error);
    if (expected < 0) {
        cr_assert_eq(status, VKMHA_ERROR_NO_DEVICE);
        cr_assert(error.message[0]);
    } else {
        cr_assert_eq(status, VKMHA_OK);
        cr_assert_eq(index, (uint32_t)expected);
    }
}

Test(device, F62_a_gpu_before_software)
{
    const vkmha_device_entry cpu = entry("llvmpipe", VKMHA_DEVICE_SOFTWARE, VK_API_VERSION_1_3);
    const vkmha_device_entry integrated = entry("Iris", VKMHA_DEVICE_INTEGRATED, VK_API_VERSION_1_1);
    const vkmha_device_entry discrete = entry("Radeon", VKMHA_DEVICE_DISCRETE, VK_API_VERSION_1_3);
    expect_choice((vkmha_device_entry[]){cpu, integrated}, 2, true, 1);
    expect_choice((vkmha_device_entry[]){integrated, discrete}, 2, false, 1);
    expect_choice((vkmha_device_entry[]){cpu}, 1, true, 0);
    expect_choice((vkmha_device_entry[]){cpu}, 1, false, -1);
    expect_choice(NULL, 0, true, -1);

    const vkmha_device_entry all[] = {cpu, integrated, discrete};
    uint32_t index;
    vkmha_error error;
    cr_assert_eq(vkmha_select_device(all, 3, &(vkmha_device_params){.name = "pipe"}, &index, &error), VKMHA_OK);
    cr_assert_eq(index, 0);
    cr_assert_eq(vkmha_select_device(all, 3, &(vkmha_device_params){.name = "none"}, &index, &error),
                 VKMHA_ERROR_NO_DEVICE);
    cr_assert(strstr(error.message, "none"));
    cr_assert_eq(vkmha_select_device(all, 3, &(vkmha_device_params){.has_index = true, .index = 3}, &index, &error),
                 VKMHA_ERROR_NO_DEVICE);
    cr_assert(strstr(error.message, "3"));
}

/* ---- The fake loader --------------------------------------------------------------------------------- */

static struct {
    bool lists_portability_enumeration;
    bool lists_portability_subset;
    bool lists_driver_properties;
    VkResult create_instance_result;
    /* What was asked. */
    bool saw_portability_flag;
    uint32_t instance_extensions;
    uint32_t instance_version;
    uint32_t device_extensions;
    bool saw_subset;
    bool saw_feature_chain;
    bool saw_unknown_struct;
    bool destroyed_instance;
    char newer[128]; /* a name that Vulkan 1.1 does not have */
} fake;

static VKAPI_ATTR VkResult VKAPI_CALL fake_version(uint32_t *version)
{
    *version = VK_API_VERSION_1_1;
    return VK_SUCCESS;
}

static VkResult list_names(const char *const *names, uint32_t num_names, uint32_t *count,
                           VkExtensionProperties *properties)
{
    if (properties) {
        for (uint32_t i = 0; i < num_names; i++) {
            strcpy(properties[i].extensionName, names[i]);
        }
    }
    *count = num_names;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_instance_extensions(const char *layer, uint32_t *count,
                                                               VkExtensionProperties *properties)
{
    (void)layer;
    const char *names[] = {"VK_KHR_portability_enumeration"};
    return list_names(names, fake.lists_portability_enumeration, count, properties);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_device_extensions(VkPhysicalDevice device, const char *layer,
                                                             uint32_t *count,
                                                             VkExtensionProperties *properties)
{
    (void)device;
    (void)layer;
    const char *names[2];
    uint32_t num_names = 0;
    if (fake.lists_portability_subset) {
        names[num_names++] = "VK_KHR_portability_subset";
    }
    if (fake.lists_driver_properties) {
        names[num_names++] = "VK_KHR_driver_properties";
    }
    return list_names(names, num_names, count, properties);
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_create_instance(const VkInstanceCreateInfo *info,
                                                           const VkAllocationCallbacks *callbacks,
                                                           VkInstance *instance)
{
    (void)callbacks;
    fake.saw_portability_flag = info->flags & VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    fake.instance_extensions = info->enabledExtensionCount;
    fake.instance_version = info->pApplicationInfo->apiVersion;
    *instance = (VkInstance)&fake;
    return fake.create_instance_result;
}

static VKAPI_ATTR void VKAPI_CALL fake_destroy_instance(VkInstance instance,
                                                        const VkAllocationCallbacks *callbacks)
{
    (void)instance;
    (void)callbacks;
    fake.destroyed_instance = true;
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_devices(VkInstance instance, uint32_t *count,
                                                   VkPhysicalDevice *devices)
{
    (void)instance;
    *count = 1;
    if (devices) {
        devices[0] = (VkPhysicalDevice)&fake;
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL fake_properties(VkPhysicalDevice device,
                                                  VkPhysicalDeviceProperties *properties)
{
    (void)device;
    memset(properties, 0, sizeof(*properties));
    properties->apiVersion = VK_API_VERSION_1_1;
    properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    strcpy(properties->deviceName, "fake");
}

static VKAPI_ATTR void VKAPI_CALL fake_properties2(VkPhysicalDevice device,
                                                   VkPhysicalDeviceProperties2 *properties)
{
    fake_properties(device, &properties->properties);
    for (VkBaseOutStructure *next = properties->pNext; next; next = next->pNext) {
        const bool is_driver = next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
        const bool is_core = next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES ||
                             next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
        if (!is_core && !(is_driver && fake.lists_driver_properties)) {
            fake.saw_unknown_struct = true;
        }
    }
}

static VKAPI_ATTR void VKAPI_CALL fake_memory(VkPhysicalDevice device,
                                              VkPhysicalDeviceMemoryProperties *memory)
{
    (void)device;
    memset(memory, 0, sizeof(*memory));
}

static VKAPI_ATTR void VKAPI_CALL fake_families(VkPhysicalDevice device, uint32_t *count,
                                                VkQueueFamilyProperties *families)
{
    (void)device;
    *count = 1;
    if (families) {
        families[0] = (VkQueueFamilyProperties){.queueFlags = VK_QUEUE_COMPUTE_BIT, .queueCount = 1};
    }
}

/* The device is never made: what was asked for it is all that the tests want. */
static VKAPI_ATTR VkResult VKAPI_CALL fake_create_device(VkPhysicalDevice physical,
                                                         const VkDeviceCreateInfo *info,
                                                         const VkAllocationCallbacks *callbacks,
                                                         VkDevice *device)
{
    (void)physical;
    (void)callbacks;
    (void)device;
    fake.device_extensions = info->enabledExtensionCount;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        fake.saw_subset |= strcmp(info->ppEnabledExtensionNames[i], "VK_KHR_portability_subset") == 0;
    }
    fake.saw_feature_chain = info->pNext || info->pEnabledFeatures;
    return VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL fake_device_address(VkDevice device, const char *name)
{
    (void)device;
    (void)name;
    return NULL;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL fake_address(VkInstance instance, const char *name)
{
    (void)instance;
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } functions[] = {
        {"vkEnumerateInstanceVersion", (PFN_vkVoidFunction)fake_version},
        {"vkEnumerateInstanceExtensionProperties", (PFN_vkVoidFunction)fake_instance_extensions},
        {"vkCreateInstance", (PFN_vkVoidFunction)fake_create_instance},
        {"vkDestroyInstance", (PFN_vkVoidFunction)fake_destroy_instance},
        {"vkEnumeratePhysicalDevices", (PFN_vkVoidFunction)fake_devices},
        {"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)fake_properties},
        {"vkGetPhysicalDeviceProperties2", (PFN_vkVoidFunction)fake_properties2},
        {"vkGetPhysicalDeviceMemoryProperties", (PFN_vkVoidFunction)fake_memory},
        {"vkGetPhysicalDeviceQueueFamilyProperties", (PFN_vkVoidFunction)fake_families},
        {"vkEnumerateDeviceExtensionProperties", (PFN_vkVoidFunction)fake_device_extensions},
        {"vkCreateDevice", (PFN_vkVoidFunction)fake_create_device},
        {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)fake_device_address},
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(functions[i].name, name) == 0) {
            return functions[i].function;
        }
    }
    strncpy(fake.newer, name, sizeof(fake.newer) - 1);
    return NULL;
}

static vkmha_status open_fake(vkmha_error *error)
{
    vkmha_device *device = (vkmha_device *)&fake;
    const vkmha_status status = vkmha_device_create_with(NULL, fake_address, NULL, &device, error);
    cr_assert_neq(status, VKMHA_OK);
    cr_assert_null(device);
    cr_assert(error->message[0]);
    return status;
}

Test(device, F66_portability)
{
    for (int lists = 0; lists < 2; lists++) {
        memset(&fake, 0, sizeof(fake));
        fake.lists_portability_enumeration = lists;
        fake.lists_portability_subset = lists;
        vkmha_error error;
        open_fake(&error);
        cr_assert_eq(fake.saw_portability_flag, lists);
        cr_assert_eq(fake.instance_extensions, (uint32_t)lists);
        cr_assert_eq(fake.saw_subset, lists);
        cr_assert_eq(fake.device_extensions, (uint32_t)lists);
        cr_assert(fake.destroyed_instance);
    }
}

Test(device, F67_nothing_above_1_1)
{
    memset(&fake, 0, sizeof(fake));
    vkmha_error error;
    open_fake(&error);
    cr_assert_eq(fake.instance_version, VK_API_VERSION_1_1);
    cr_assert_str_eq(fake.newer, "", "asked for %s", fake.newer);
    cr_assert(!fake.saw_unknown_struct);
    cr_assert(!fake.saw_feature_chain);
    cr_assert_eq(fake.device_extensions, 0);
}

/* F67: properties are asked for in structs that the device knows. */
Test(device, F67_no_unknown_struct)
{
    for (int lists = 0; lists < 2; lists++) {
        memset(&fake, 0, sizeof(fake));
        fake.lists_driver_properties = lists;
        vkmha_instance_functions vk;
        vkmha_device_info info;
        vkmha_error error;
        cr_assert_eq(vkmha_load_instance_functions(fake_address, (VkInstance)&fake, &vk, &error), VKMHA_OK);
        vkmha_query_info(&vk, (VkPhysicalDevice)&fake, lists, &info);
        cr_assert(!fake.saw_unknown_struct);
        cr_assert_str_eq(info.name, "fake");
        cr_assert_eq(info.limits.device_type, VKMHA_DEVICE_INTEGRATED);
        /* The fake would tell a struct that it does not know. */
        fake.lists_driver_properties = false;
        vkmha_query_info(&vk, (VkPhysicalDevice)&fake, true, &info);
        cr_assert(fake.saw_unknown_struct);
    }
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL empty_loader(VkInstance instance, const char *name)
{
    (void)instance;
    (void)name;
    return NULL;
}

Test(device, F64_a_loader_without_functions_or_driver)
{
    vkmha_error error;
    vkmha_device *device = NULL;
    cr_assert_eq(vkmha_device_create_with(NULL, empty_loader, NULL, &device, &error),
                 VKMHA_ERROR_NO_DEVICE);
    memset(&fake, 0, sizeof(fake));
    fake.create_instance_result = VK_ERROR_INCOMPATIBLE_DRIVER;
    cr_assert_eq(open_fake(&error), VKMHA_ERROR_NO_DEVICE);
    cr_assert(strstr(error.message, "driver"), "%s", error.message);
}

Test(device, F64_destroying_nothing)
{
    vkmha_device_destroy(NULL);
    vkmha_layer_destroy(NULL);
    vkmha_plan_destroy(NULL);
    vkmha_bindings_destroy(NULL);
}

Test(device, bad_parameters_are_named)
{
    vkmha_error error;
    vkmha_device *device = NULL;
    vkmha_device_params params = {.reserved = {1}};
    cr_assert_eq(vkmha_device_create(&params, &device, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "reserved"));
    cr_assert_eq(vkmha_device_create(&params, NULL, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert_eq(vkmha_device_borrow(NULL, &device, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    const vkmha_borrow_params nothing = {0};
    cr_assert_eq(vkmha_device_borrow(&nothing, &device, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "instance"), "%s", error.message);
}
