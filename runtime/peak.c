/* The device's fp32 multiply-add rate, measured only when asked. */
#include "utility.h"

enum { INVOCATIONS = 64, CHAINS = 16, TRIPS = 1000, MAX_GROUPS = 65535 };

vkmha_status vkmha_device_measure_peak(vkmha_device *device, double *flops, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!device || !flops) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL",
                          device ? "flops" : "device");
    }
    if (device->info.limits.timestamp_period_ns <= 0.0) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "the peak cannot be measured: the device's queue has no timestamps");
    }
    vkmha_block block;
    vkmha_status status = vkmha_block_create(device, (uint64_t)MAX_GROUPS * INVOCATIONS * 4,
                                             VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKMHA_MEMORY_DEVICE,
                                             &block, error);
    if (status != VKMHA_OK) {
        return status;
    }
    /* The first run compiles; then the number of groups grows to about 50 ms, and the best of three counts. */
    const double wanted_ns = 50e6;
    uint32_t groups = 16;
    double ns = 0.0;
    double best = 0.0;
    status = vkmha_utility_run(device, VKMHA_KERNEL_PEAK, &block, groups, &ns, error);
    for (uint32_t step = 0; status == VKMHA_OK && step < 24; step++) {
        status = vkmha_utility_run(device, VKMHA_KERNEL_PEAK, &block, groups, &ns, error);
        if (ns >= wanted_ns / 2.0 || groups == MAX_GROUPS) {
            break;
        }
        groups = groups > MAX_GROUPS / 2 ? MAX_GROUPS : groups * 2;
    }
    for (uint32_t repeat = 0; status == VKMHA_OK && repeat < 3; repeat++) {
        status = vkmha_utility_run(device, VKMHA_KERNEL_PEAK, &block, groups, &ns, error);
        const double operations = 2.0 * groups * INVOCATIONS * CHAINS * TRIPS;
        if (status == VKMHA_OK && ns > 0.0 && operations / (ns * 1e-9) > best) {
            best = operations / (ns * 1e-9);
        }
    }
    vkmha_block_destroy(device, &block);
    if (status == VKMHA_OK && best <= 0.0) {
        status = vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                            "the peak cannot be measured: the device's timestamps do not advance");
    }
    if (status == VKMHA_OK) {
        *flops = best;
    }
    return status;
}
