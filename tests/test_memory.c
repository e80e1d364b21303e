/* Memory types and atoms: pure functions, on tables of devices that are not here. */
#include <criterion/criterion.h>

#include "runtime/memory.h"

static void expect_range(uint64_t offset, uint64_t size, uint64_t atom, uint64_t memory, uint64_t begin,
                         uint64_t end)
{
    const vkmha_memory_range range = vkmha_atom_range(offset, size, atom, memory);
    cr_assert_eq(range.offset, begin);
    cr_assert_eq(range.offset + range.size, end);
}

Test(memory, F59_whole_atoms)
{
    expect_range(100, 20, 64, 200, 64, 128);
    expect_range(150, 45, 64, 200, 128, 200);
    expect_range(0, 1, 256, 4096, 0, 256);
    expect_range(255, 2, 256, 512, 0, 512);
}

enum {
    LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
    VISIBLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
    COHERENT = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
    CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
};

static const uint64_t mib = 1 << 20;

static uint32_t first_type(const VkPhysicalDeviceMemoryProperties *memory, vkmha_memory_use use,
                           uint64_t bytes)
{
    uint32_t order[VK_MAX_MEMORY_TYPES];
    const uint32_t count = vkmha_memory_types(memory, UINT32_MAX, use, bytes, order);
    return count > 0 ? order[0] : UINT32_MAX;
}

Test(memory, F60_one_type_for_all)
{
    const VkPhysicalDeviceMemoryProperties lavapipe = {
        .memoryTypeCount = 1,
        .memoryTypes = {{LOCAL | VISIBLE | COHERENT | CACHED, 0}},
        .memoryHeapCount = 1,
        .memoryHeaps = {{2048 * mib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
    };
    cr_assert_eq(first_type(&lavapipe, VKMHA_MEMORY_DEVICE, 512 * mib), 0);
    cr_assert_eq(first_type(&lavapipe, VKMHA_MEMORY_STAGING, 512 * mib), 0);
    cr_assert_eq(first_type(&lavapipe, VKMHA_MEMORY_READBACK, 64), 0);
    cr_assert_eq(first_type(&lavapipe, VKMHA_MEMORY_DEVICE, 4096 * mib), UINT32_MAX);
}

Test(memory, F60_no_device_local_type)
{
    const VkPhysicalDeviceMemoryProperties host_only = {
        .memoryTypeCount = 2,
        .memoryTypes = {{VISIBLE | COHERENT, 0}, {VISIBLE | COHERENT | CACHED, 0}},
        .memoryHeapCount = 1,
        .memoryHeaps = {{2048 * mib, 0}},
    };
    cr_assert_eq(first_type(&host_only, VKMHA_MEMORY_DEVICE, 512 * mib), 0);
    cr_assert_eq(first_type(&host_only, VKMHA_MEMORY_STAGING, 512 * mib), 0);
    cr_assert_eq(first_type(&host_only, VKMHA_MEMORY_READBACK, 64), 1);
}

/* A discrete card with a 256 MiB window: large tensors and staging keep out of the window, and there is a next type. */
Test(memory, F60_discrete_card)
{
    const VkPhysicalDeviceMemoryProperties card = {
        .memoryTypeCount = 4,
        .memoryTypes = {{LOCAL, 0}, {VISIBLE | COHERENT, 1}, {VISIBLE | COHERENT | CACHED, 1}, {LOCAL | VISIBLE | COHERENT, 2}},
        .memoryHeapCount = 3,
        .memoryHeaps = {{8192 * mib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                        {16384 * mib, 0},
                        {256 * mib, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
    };
    uint32_t order[VK_MAX_MEMORY_TYPES];
    cr_assert_eq(vkmha_memory_types(&card, UINT32_MAX, VKMHA_MEMORY_DEVICE, 512 * mib, order), 3);
    cr_assert_eq(order[0], 0);
    cr_assert_eq(first_type(&card, VKMHA_MEMORY_STAGING, 512 * mib), 1);
    cr_assert_eq(first_type(&card, VKMHA_MEMORY_READBACK, 64), 2);
}
