#include "subgroup.h"

#include <stdio.h>
#include <string.h>

#include "utility.h"

enum { GROUPS = 4, MAX_WIDTH = 128 };

static float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/*
 * What one invocation must have seen, if lanes are consecutive invocations and subgroups are full. The list of words is
 * interface.h's.
 */
static bool saw_truth(const uint32_t *words, uint32_t invocation, uint32_t width)
{
    const uint32_t lane = invocation % width;
    const uint32_t first = invocation - lane;
    const uint32_t lanes_sum = width * (width - 1) / 2;
    const float sum = (float)(width * first + lanes_sum);
    return words[0] == width && words[1] == lane && words[2] == invocation / width &&
           words[3] == width && words[4] == lanes_sum &&
           bits_to_float(words[5]) == sum && bits_to_float(words[6]) == -(float)first &&
           words[7] == first && words[8] == first + width - 1 && words[9] == first + (lane ^ 1u) &&
           words[10] == first + (lane + 1) % width &&
           bits_to_float(words[11]) == (float)(first + (lane + width / 2) % width) &&
           words[12] == 1 && words[13] == 0;
}

vkmha_status vkmha_subgroup_test(vkmha_device *device, bool *works, char *reason, size_t reason_size,
                                 vkmha_error *error)
{
    *works = false;
    const uint32_t width = device->info.limits.subgroup_size;
    const vkmha_variant *variant = NULL;
    vkmha_tile tile;
    vkmha_status status = vkmha_variant_pick(VKMHA_KERNEL_SELFTEST, NULL, &device->info.limits, 1, 1,
                                             &variant, &tile, error);
    if (status != VKMHA_OK) {
        return status;
    }
    const uint32_t workgroup = tile.constants.WORKGROUP;
    if (width < 2 || width > MAX_WIDTH || workgroup % width != 0 || (width & (width - 1)) != 0) {
        snprintf(reason, reason_size, "subgroup size %u is not a power of two in 2..%u", width,
                 workgroup);
        return VKMHA_OK;
    }
    const uint32_t invocations = workgroup * GROUPS;
    vkmha_block block;
    status = vkmha_block_create(device, (uint64_t)invocations * VKMHA_SELFTEST_WORDS * 4,
                                VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKMHA_MEMORY_READBACK, &block,
                                error);
    if (status != VKMHA_OK) {
        return status;
    }
    status = vkmha_utility_run(device, VKMHA_KERNEL_SELFTEST, &block, GROUPS, NULL, error);
    if (status == VKMHA_OK) {
        status = vkmha_block_invalidate(device, &block, error);
    }
    if (status == VKMHA_OK) {
        const uint32_t *words = block.mapped;
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < invocations; i++) {
            wrong += !saw_truth(words + (size_t)i * VKMHA_SELFTEST_WORDS, i % workgroup, width);
        }
        *works = wrong == 0;
        if (wrong == 0) {
            snprintf(reason, reason_size, "self-test passed, width %u", width);
        } else {
            snprintf(reason, reason_size, "self-test failed in %u of %u invocations, width %u", wrong,
                     invocations, width);
        }
    }
    vkmha_block_destroy(device, &block);
    return status;
}
