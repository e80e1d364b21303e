#include <vkmha/vkmha.h>
#include <vkmha/vkmha_reference.h>
#include <vkmha/vkmha_vulkan.h>

int main()
{
    vkmha_device_params params = {};
    params.allow_software = true;
    vkmha_device *device = nullptr;
    vkmha_error error = {};
    if (vkmha_device_create(&params, &device, &error) != VKMHA_OK) {
        return 1;
    }
    vkmha_device_destroy(device);
    return vkmha_version() == VKMHA_VERSION ? 0 : 1;
}
