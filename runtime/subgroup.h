/* The self-test that decides whether a device's subgroup operations can be trusted. */
#ifndef VKMHA_RUNTIME_SUBGROUP_H
#define VKMHA_RUNTIME_SUBGROUP_H

#include "device.h"

/*
 * Runs the self-test shader and sets *works; `reason` says why or why not. A device whose operations give wrong results is
 * no error. Errors: OUT_OF_MEMORY, DEVICE_LOST.
 */
vkmha_status vkmha_subgroup_test(vkmha_device *device, bool *works, char *reason, size_t reason_size,
                                 vkmha_error *error) VKMHA_CHECKED;

#endif
