/* An application with a volk of its own, whose globals must stay its own. */
#define VOLK_IMPLEMENTATION
#include <volk.h>

#include <vkmha/vkmha.h>

int main(void)
{
    if (volkInitialize() != VK_SUCCESS) {
        return 1;
    }
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    VkInstance instance;
    if (vkCreateInstance(&info, NULL, &instance) != VK_SUCCESS) {
        return 1;
    }
    volkLoadInstance(instance);
    const PFN_vkEnumeratePhysicalDevices loaded = vkEnumeratePhysicalDevices;

    vkmha_device *device = NULL;
    const vkmha_device_params params = {.allow_software = true};
    const vkmha_status status = vkmha_device_create(&params, &device, NULL);
    uint32_t count = 0;
    const int works = loaded == vkEnumeratePhysicalDevices && loaded &&
                      loaded(instance, &count, NULL) == VK_SUCCESS && count > 0;
    vkmha_device_destroy(device);
    vkDestroyInstance(instance, NULL);
    return works && status == VKMHA_OK ? 0 : 1;
}
