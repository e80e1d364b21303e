/* What the table of kernels is for one device, for people. */
#include <stdio.h>

#include "device.h"
#include "variants.h"

enum { USUAL_HEAD_DIM = 64 };

bool vkmha_device_get_kernel(const vkmha_device *device, uint32_t index, vkmha_kernel_info *info)
{
    const vkmha_variant *variant = vkmha_variant_at(index);
    if (!variant || (variant->kernel != VKMHA_KERNEL_PROJECT &&
                     variant->kernel != VKMHA_KERNEL_ATTENTION)) {
        return false; /* the rows that are no kernels of a layer come last */
    }
    const vkmha_limits *limits = &device->info.limits;
    vkmha_tile tile;
    *info = (vkmha_kernel_info){.name = variant->name};
    info->usable = vkmha_variant_fits(variant, limits, USUAL_HEAD_DIM, USUAL_HEAD_DIM, &tile,
                                      info->reason, sizeof(info->reason));
    const vkmha_variant *picked = NULL;
    if (vkmha_variant_pick(variant->kernel, NULL, limits, USUAL_HEAD_DIM, USUAL_HEAD_DIM, &picked,
                           &tile, NULL) == VKMHA_OK) {
        info->chosen = picked == variant;
    }
    return true;
}
