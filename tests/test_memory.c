/* Memory types and atoms: pure functions, on tables of devices that are not here. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "runtime/convert.h"
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

/* ---- An allocation that fails goes on to the next type: on a fake device ----------------------------- */

static uint32_t allocated_types[4];
static uint32_t num_allocations;

static VKAPI_ATTR VkResult VKAPI_CALL fake_create_buffer(VkDevice device, const VkBufferCreateInfo *info,
                                                         const VkAllocationCallbacks *callbacks,
                                                         VkBuffer *buffer)
{
    (void)device;
    (void)info;
    (void)callbacks;
    *buffer = (VkBuffer)(uintptr_t)&num_allocations;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL fake_requirements(VkDevice device, VkBuffer buffer,
                                                    VkMemoryRequirements *needs)
{
    (void)device;
    (void)buffer;
    *needs = (VkMemoryRequirements){.size = 1024, .alignment = 16, .memoryTypeBits = 3};
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                                    const VkAllocationCallbacks *callbacks,
                                                    VkDeviceMemory *memory)
{
    (void)device;
    (void)callbacks;
    allocated_types[num_allocations++] = info->memoryTypeIndex;
    *memory = (VkDeviceMemory)(uintptr_t)&num_allocations;
    return info->memoryTypeIndex == 0 ? VK_ERROR_OUT_OF_DEVICE_MEMORY : VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL fake_bind(VkDevice device, VkBuffer buffer, VkDeviceMemory memory,
                                                VkDeviceSize offset)
{
    (void)device;
    (void)buffer;
    (void)memory;
    (void)offset;
    return VK_SUCCESS;
}

Test(memory, F60_the_next_type_is_tried)
{
    vkmha_device device = {
        .info.limits.max_allocation_bytes = 1 << 20,
        .vk = {.CreateBuffer = fake_create_buffer,
               .GetBufferMemoryRequirements = fake_requirements,
               .AllocateMemory = fake_allocate,
               .BindBufferMemory = fake_bind},
        .memory = {.memoryTypeCount = 2,
                   .memoryTypes = {{LOCAL, 0}, {0, 1}},
                   .memoryHeapCount = 2,
                   .memoryHeaps = {{4096, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {4096, 0}}},
    };
    vkmha_block block;
    vkmha_error error;
    cr_assert_eq(vkmha_block_create(&device, 1000, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT, VKMHA_MEMORY_DEVICE,
                                    &block, &error),
                 VKMHA_OK, "%s", error.message);
    cr_assert_eq(num_allocations, 2);
    cr_assert_eq(allocated_types[0], 0);
    cr_assert_eq(allocated_types[1], 1);
}

/* ---- Stored types ------------------------------------------------------------------------------------- */

Test(memory, half_precision_is_converted_exactly)
{
    static const uint16_t halves[] = {0x3c00, 0x8000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0xfc00, 0x7e00, 0x3c01};
    const float expected[] = {1.0f,     -0.0f,     0x1p-24f,  0x1.ff8p-15f, 0x1p-14f,
                              65504.0f, -INFINITY, NAN,       0x1.004p0f};
    unsigned char unaligned[2 * 9 + 1];
    memcpy(unaligned + 1, halves, sizeof(halves));
    for (uint64_t i = 0; i < 9; i++) {
        const float got = vkmha_load_element(unaligned + 1, VKMHA_TYPE_F16, i);
        cr_assert(isnan(expected[i]) ? isnan(got) : got == expected[i] && signbit(got) == signbit(expected[i]),
                  "half %llu: %g", (unsigned long long)i, (double)got);
    }
    const uint16_t brains[] = {0x3f80, 0xc000, 0x7f80, 0x0001};
    cr_assert_eq(vkmha_load_element(brains, VKMHA_TYPE_BF16, 0), 1.0f);
    cr_assert_eq(vkmha_load_element(brains, VKMHA_TYPE_BF16, 1), -2.0f);
    cr_assert(isinf(vkmha_load_element(brains, VKMHA_TYPE_BF16, 2)));
    cr_assert_eq(vkmha_load_element(brains, VKMHA_TYPE_BF16, 3), 0x1p-133f);
}
