/* An application that is linked to libvulkan and calls it, before and after vkmha does. */
#include <vulkan/vulkan.h>

#include <vkmha/vkmha.h>

static int instance_works(void)
{
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    VkInstance instance;
    uint32_t count = 0;
    if (vkCreateInstance(&info, NULL, &instance) != VK_SUCCESS) {
        return 0;
    }
    const VkResult result = vkEnumeratePhysicalDevices(instance, &count, NULL);
    vkDestroyInstance(instance, NULL);
    return result == VK_SUCCESS && count > 0;
}

int main(void)
{
    vkmha_device *device = NULL;
    const vkmha_device_params params = {.allow_software = true};
    const int before = instance_works();
    const vkmha_status status = vkmha_device_create(&params, &device, NULL);
    const int after = instance_works();
    vkmha_device_destroy(device);
    return before && after && status == VKMHA_OK ? 0 : 1;
}
