/* Small kernels with one storage buffer, for what the library asks a device about itself. */
#ifndef VKMHA_RUNTIME_UTILITY_H
#define VKMHA_RUNTIME_UTILITY_H

#include "memory.h"
#include "variants.h"

/* Dispatches `groups` groups of a kernel on a block (binding 0) and waits; *ns, where not NULL, receives the
 * time on the device. */
vkmha_status vkmha_utility_run(vkmha_device *device, vkmha_kernel kernel, const vkmha_block *block,
                               uint32_t groups, double *ns, vkmha_error *error) VKMHA_CHECKED;

#endif
