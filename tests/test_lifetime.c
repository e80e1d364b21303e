/*
 * What goes wrong, and what stays: each host allocation and each Vulkan call fails in turn, the device is lost, memory is not
 * coherent. An error, an untouched output, nothing leaked.
 */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device.h"

enum { WIDTH = 8, TOKENS = 5 };

static float weights[WIDTH * WIDTH];
static float input[2 * TOKENS * WIDTH];

static vkmha_layer_params layer_params(void)
{
    for (int i = 0; i < WIDTH * WIDTH; i++) {
        weights[i] = (float)(i * 7 % 13 - 6) / 8.0f;
    }
    for (int i = 0; i < 2 * TOKENS * WIDTH; i++) {
        input[i] = (float)(i * 5 % 11 - 5) / 4.0f;
    }
    vkmha_layer_params layer = {.num_heads = 2, .head_dim = 4, .embed_dim = WIDTH};
    layer.w_q = (vkmha_matrix){.data = weights, .rows = WIDTH, .columns = WIDTH};
    layer.w_k = layer.w_v = layer.w_o = layer.w_q;
    return layer;
}

static vkmha_plan_params plan_params(uint64_t batch)
{
    return (vkmha_plan_params){.batch_size = batch,
                               .query_len = TOKENS,
                               .key_len = TOKENS,
                               .key_is_query = true,
                               .value_is_key = true};
}

/* ---- The Vulkan calls that can be made to fail ------------------------------------------------------------ */

static struct {
    PFN_vkGetInstanceProcAddr instance_address;
    PFN_vkGetDeviceProcAddr device_address;
    const char *failing; /* the call's name */
    VkResult result;
    uint32_t countdown; /* calls of it that still work */
    bool has_failed;
    bool hides_coherence;
    uint64_t atom;
    uint32_t flushes;
    uint32_t invalidations;
    bool saw_broken_atom;
    vkmha_device_functions real;
    PFN_vkGetPhysicalDeviceMemoryProperties memory_properties;
} hook;

static bool fails(const char *name)
{
    if (!hook.failing || strcmp(hook.failing, name) != 0 || hook.has_failed) {
        return false;
    }
    if (hook.countdown > 0) {
        hook.countdown--;
        return false;
    }
    hook.has_failed = true;
    return true;
}

#define HOOK(name, parameters, arguments)                                                          \
    static VKAPI_ATTR VkResult VKAPI_CALL hook_##name parameters                                   \
    {                                                                                              \
        return fails("vk" #name) ? hook.result : hook.real.name arguments;                         \
    }

HOOK(QueueSubmit, (VkQueue a, uint32_t b, const VkSubmitInfo *c, VkFence d), (a, b, c, d))
HOOK(AllocateMemory,
     (VkDevice a, const VkMemoryAllocateInfo *b, const VkAllocationCallbacks *c, VkDeviceMemory *d),
     (a, b, c, d))
HOOK(MapMemory,
     (VkDevice a, VkDeviceMemory b, VkDeviceSize c, VkDeviceSize d, VkMemoryMapFlags e, void **f),
     (a, b, c, d, e, f))
HOOK(CreateBuffer,
     (VkDevice a, const VkBufferCreateInfo *b, const VkAllocationCallbacks *c, VkBuffer *d),
     (a, b, c, d))
HOOK(BindBufferMemory, (VkDevice a, VkBuffer b, VkDeviceMemory c, VkDeviceSize d), (a, b, c, d))
HOOK(CreateFence, (VkDevice a, const VkFenceCreateInfo *b, const VkAllocationCallbacks *c, VkFence *d),
     (a, b, c, d))
HOOK(CreateCommandPool,
     (VkDevice a, const VkCommandPoolCreateInfo *b, const VkAllocationCallbacks *c, VkCommandPool *d),
     (a, b, c, d))
HOOK(AllocateCommandBuffers,
     (VkDevice a, const VkCommandBufferAllocateInfo *b, VkCommandBuffer *c), (a, b, c))
HOOK(BeginCommandBuffer, (VkCommandBuffer a, const VkCommandBufferBeginInfo *b), (a, b))
HOOK(EndCommandBuffer, (VkCommandBuffer a), (a))
HOOK(CreateShaderModule,
     (VkDevice a, const VkShaderModuleCreateInfo *b, const VkAllocationCallbacks *c, VkShaderModule *d),
     (a, b, c, d))
HOOK(CreateComputePipelines,
     (VkDevice a, VkPipelineCache b, uint32_t c, const VkComputePipelineCreateInfo *d,
      const VkAllocationCallbacks *e, VkPipeline *f),
     (a, b, c, d, e, f))
HOOK(CreateDescriptorPool,
     (VkDevice a, const VkDescriptorPoolCreateInfo *b, const VkAllocationCallbacks *c,
      VkDescriptorPool *d),
     (a, b, c, d))
HOOK(AllocateDescriptorSets,
     (VkDevice a, const VkDescriptorSetAllocateInfo *b, VkDescriptorSet *c), (a, b, c))

static VKAPI_ATTR VkResult VKAPI_CALL hook_WaitForFences(VkDevice device, uint32_t count,
                                                         const VkFence *fences, VkBool32 all,
                                                         uint64_t timeout)
{
    /* The work is let finish first: what fails is only the news of it. */
    const VkResult result = hook.real.WaitForFences(device, count, fences, all, timeout);
    return fails("vkWaitForFences") ? hook.result : result;
}

static void check_atoms(const VkMappedMemoryRange *range)
{
    hook.saw_broken_atom |= range->offset % hook.atom != 0;
}

static VKAPI_ATTR VkResult VKAPI_CALL hook_FlushMappedMemoryRanges(VkDevice device, uint32_t count,
                                                                   const VkMappedMemoryRange *ranges)
{
    hook.flushes += count;
    check_atoms(ranges);
    return fails("vkFlushMappedMemoryRanges")
               ? hook.result
               : hook.real.FlushMappedMemoryRanges(device, count, ranges);
}

static VKAPI_ATTR VkResult VKAPI_CALL
hook_InvalidateMappedMemoryRanges(VkDevice device, uint32_t count, const VkMappedMemoryRange *ranges)
{
    hook.invalidations += count;
    check_atoms(ranges);
    return fails("vkInvalidateMappedMemoryRanges")
               ? hook.result
               : hook.real.InvalidateMappedMemoryRanges(device, count, ranges);
}

static VKAPI_ATTR void VKAPI_CALL
hook_memory_properties(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties *properties)
{
    hook.memory_properties(device, properties);
    for (uint32_t i = 0; hook.hides_coherence && i < properties->memoryTypeCount; i++) {
        properties->memoryTypes[i].propertyFlags &= ~(uint32_t)VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    }
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_address(VkDevice device, const char *name)
{
    const PFN_vkVoidFunction real = hook.device_address(device, name);
#define REPLACE(function)                                                                          \
    if (strcmp(name, "vk" #function) == 0) {                                                       \
        hook.real.function = (PFN_vk##function)real;                                               \
        return (PFN_vkVoidFunction)hook_##function;                                                \
    }
    REPLACE(QueueSubmit)
    REPLACE(AllocateMemory)
    REPLACE(MapMemory)
    REPLACE(CreateBuffer)
    REPLACE(BindBufferMemory)
    REPLACE(CreateFence)
    REPLACE(CreateCommandPool)
    REPLACE(AllocateCommandBuffers)
    REPLACE(BeginCommandBuffer)
    REPLACE(EndCommandBuffer)
    REPLACE(CreateShaderModule)
    REPLACE(CreateComputePipelines)
    REPLACE(CreateDescriptorPool)
    REPLACE(AllocateDescriptorSets)
    REPLACE(WaitForFences)
    REPLACE(FlushMappedMemoryRanges)
    REPLACE(InvalidateMappedMemoryRanges)
    return real;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_address(VkInstance instance, const char *name)
{
    const PFN_vkVoidFunction real = hook.instance_address(instance, name);
    if (strcmp(name, "vkGetDeviceProcAddr") == 0) {
        hook.device_address = (PFN_vkGetDeviceProcAddr)real;
        return (PFN_vkVoidFunction)device_address;
    }
    if (strcmp(name, "vkGetPhysicalDeviceMemoryProperties") == 0) {
        hook.memory_properties = (PFN_vkGetPhysicalDeviceMemoryProperties)real;
        return (PFN_vkVoidFunction)hook_memory_properties;
    }
    return real;
}

static vkmha_status open_hooked(const vkmha_device_params *params, vkmha_device **device,
                                vkmha_error *error)
{
    hook.instance_address = vkmha_find_loader(NULL);
    cr_assert(hook.instance_address, "no Vulkan loader");
    return vkmha_device_create_with(params, instance_address, NULL, device, error);
}

/* ---- One whole use of the library -------------------------------------------------------------------------- */

/* A layer with tables of its own, and one run that appends to a cache: all of it, or nothing. */
static vkmha_status use_cache(vkmha_device *device, vkmha_error *error)
{
    static const float sinks[2] = {0.5f, -1.0f};
    float output[TOKENS * WIDTH];
    vkmha_layer *layer = NULL;
    vkmha_cache *cache = NULL;
    vkmha_plan *plan = NULL;
    vkmha_layer_params layer_given = layer_params();
    layer_given.sinks = sinks;
    layer_given.rope = (vkmha_rope){.style = VKMHA_ROPE_HALF, .max_positions = 2 * TOKENS};
    vkmha_plan_params plan_given = plan_params(1);
    plan_given.causal = VKMHA_CAUSAL_BOTTOM_RIGHT;
    plan_given.cache_capacity = 2 * TOKENS;
    vkmha_status status = vkmha_layer_create(device, &layer_given, &layer, error);
    if (status == VKMHA_OK) {
        status = vkmha_cache_create(layer, 1, 2 * TOKENS, &cache, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_plan_create(layer, &plan_given, &plan, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_run(plan, &(vkmha_inputs){.query = input, .cache = cache},
                           &(vkmha_outputs){.output = output}, error);
        cr_assert_eq(vkmha_cache_length(cache, 0), status == VKMHA_OK ? TOKENS : 0);
    }
    vkmha_layer_destroy(layer); /* before the cache, which keeps it alive */
    vkmha_plan_destroy(plan);
    vkmha_cache_destroy(cache);
    return status;
}

/* Every step until one fails; what was made is destroyed. */
static vkmha_status use_all(const vkmha_device_params *params, float *output, vkmha_error *error)
{
    vkmha_device *device = NULL;
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    const vkmha_layer_params layer_given = layer_params();
    const vkmha_plan_params plan_given = plan_params(1);
    vkmha_status status = open_hooked(params, &device, error);
    if (status == VKMHA_OK) {
        status = use_cache(device, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_layer_create(device, &layer_given, &layer, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_plan_create(layer, &plan_given, &plan, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_run(plan, &(vkmha_inputs){.query = input}, &(vkmha_outputs){.output = output},
                           error);
    }
    vkmha_device_destroy(device); /* before what was made of it: references keep it alive */
    vkmha_layer_destroy(layer);
    vkmha_plan_destroy(plan);
    return status;
}

static void fill(float *values, float value)
{
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        values[i] = value;
    }
}

static bool is_filled(const float *values, float value)
{
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        if (values[i] != value) {
            return false;
        }
    }
    return true;
}

typedef struct vkmha_counting_host {
    uint32_t countdown;
    int64_t live;
    bool has_failed;
} vkmha_counting_host;

static void *count_allocate(void *user, size_t bytes)
{
    vkmha_counting_host *counts = user;
    if (counts->countdown == 0) {
        counts->has_failed = true;
        return NULL;
    }
    counts->countdown--;
    counts->live++;
    return malloc(bytes);
}

static void count_release(void *user, void *memory)
{
    ((vkmha_counting_host *)user)->live--;
    free(memory);
}

Test(lifetime, every_host_allocation_fails_in_turn, .timeout = 300)
{
    float output[TOKENS * WIDTH];
    for (uint32_t n = 0;; n++) {
        vkmha_counting_host counts = {.countdown = n};
        const vkmha_host host = {.user = &counts, .allocate = count_allocate, .release = count_release};
        const vkmha_device_params params = {.allow_software = true, .host = &host};
        vkmha_error error;
        fill(output, 7.0f);
        const vkmha_status status = use_all(&params, output, &error);
        cr_assert_eq(counts.live, 0, "allocation %u: %lld blocks are leaked", n, (long long)counts.live);
        if (!counts.has_failed) {
            cr_assert_eq(status, VKMHA_OK, "%s", error.message);
            cr_assert(n > 5);
            break;
        }
        cr_assert_eq(status, VKMHA_ERROR_OUT_OF_MEMORY, "allocation %u", n);
        cr_assert(error.message[0]);
        cr_assert(is_filled(output, 7.0f), "allocation %u: the output was touched", n);
    }
}

/* F71: every call that can fail, at each of its uses, twice: once out of memory, once lost. */
Test(lifetime, F71_every_vulkan_call_fails_in_turn, .timeout = 900)
{
    static const char *const calls[] = {
        "vkQueueSubmit", "vkWaitForFences", "vkAllocateMemory", "vkMapMemory", "vkCreateBuffer",
        "vkBindBufferMemory", "vkCreateFence", "vkCreateCommandPool", "vkAllocateCommandBuffers",
        "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkCreateShaderModule",
        "vkCreateComputePipelines", "vkCreateDescriptorPool", "vkAllocateDescriptorSets",
        "vkFlushMappedMemoryRanges", "vkInvalidateMappedMemoryRanges"};
    float output[TOKENS * WIDTH];
    for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
        uint32_t uses = 0;
        for (uint32_t n = 0;; n++) {
            memset(&hook, 0, sizeof(hook));
            hook.failing = calls[c];
            hook.result = n % 2 ? VK_ERROR_DEVICE_LOST : VK_ERROR_OUT_OF_DEVICE_MEMORY;
            hook.countdown = n / 2;
            hook.hides_coherence = true;
            hook.atom = 64;
            vkmha_error error;
            fill(output, 7.0f);
            const vkmha_status status = use_all(&(vkmha_device_params){.allow_software = true}, output, &error);
            if (!hook.has_failed) {
                cr_assert_eq(status, VKMHA_OK, "%s: %s", calls[c], error.message);
                break;
            }
            uses++;
            /* Memory that one type has not may come from the next; lavapipe has one type. */
            cr_assert_eq(status, n % 2 ? VKMHA_ERROR_DEVICE_LOST : VKMHA_ERROR_OUT_OF_MEMORY,
                         "%s number %u: %s", calls[c], n / 2, error.message);
            cr_assert(error.message[0]);
            cr_assert(is_filled(output, 7.0f), "%s number %u: the output was touched", calls[c], n / 2);
        }
        cr_assert(uses > 0, "%s is never called", calls[c]);
    }
}

Test(lifetime, F71_a_lost_device_stays_lost)
{
    float output[TOKENS * WIDTH];
    vkmha_device *device = NULL;
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    vkmha_error error;
    const vkmha_layer_params layer_given = layer_params();
    const vkmha_plan_params plan_given = plan_params(1);
    memset(&hook, 0, sizeof(hook));
    cr_assert_eq(open_hooked(&(vkmha_device_params){.allow_software = true}, &device, &error), VKMHA_OK);
    cr_assert_eq(vkmha_layer_create(device, &layer_given, &layer, &error), VKMHA_OK);
    cr_assert_eq(vkmha_plan_create(layer, &plan_given, &plan, &error), VKMHA_OK);
    const vkmha_inputs inputs = {.query = input};
    const vkmha_outputs outputs = {.output = output};
    hook.failing = "vkQueueSubmit";
    hook.result = VK_ERROR_DEVICE_LOST;
    fill(output, 7.0f);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(vkmha_run(plan, &inputs, &outputs, &error), VKMHA_ERROR_DEVICE_LOST);
        cr_assert(strstr(error.message, "lost"), "%s", error.message);
        cr_assert(is_filled(output, 7.0f));
    }
    vkmha_plan_destroy(plan);
    vkmha_layer_destroy(layer);
    vkmha_device_destroy(device);
}

/* F59: memory that is not coherent is flushed and invalidated, in whole atoms; straight and through staging. */
Test(lifetime, F59_memory_that_is_not_coherent)
{
    float expected[TOKENS * WIDTH];
    float output[TOKENS * WIDTH];
    vkmha_error error;
    memset(&hook, 0, sizeof(hook));
    cr_assert_eq(use_all(&(vkmha_device_params){.allow_software = true}, expected, &error), VKMHA_OK);
    for (int staged = 0; staged < 2; staged++) {
        memset(&hook, 0, sizeof(hook));
        hook.hides_coherence = true;
        hook.atom = 64;
        const vkmha_device_params params = {.allow_software = true, .force_staging = staged};
        cr_assert_eq(use_all(&params, output, &error), VKMHA_OK, "%s", error.message);
        cr_assert(hook.flushes > 0 && hook.invalidations > 0);
        cr_assert(!hook.saw_broken_atom);
        cr_assert_arr_eq(output, expected, sizeof(expected));
    }
}

/* Kilobytes of memory that the process holds; 0 where the system does not tell. */
static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1) {
        pages = 0;
    }
    if (file) {
        fclose(file);
    }
    return pages * 4;
}

/* F57, F70: one layer, two shapes in turn, thousands of runs: the same bits, no growth, no pool runs out. */
Test(lifetime, F57_F70_many_runs, .timeout = 600)
{
    enum { RUNS = 1500, SETTLED = 200 };
    float first[2][2 * TOKENS * WIDTH];
    float output[2 * TOKENS * WIDTH];
    vkmha_device *device = NULL;
    vkmha_layer *layer = NULL;
    vkmha_plan *plans[2] = {NULL, NULL};
    vkmha_error error;
    const vkmha_layer_params layer_given = layer_params();
    cr_assert_eq(vkmha_device_create(&(vkmha_device_params){.allow_software = true}, &device, &error),
                 VKMHA_OK, "%s", error.message);
    cr_assert_eq(vkmha_layer_create(device, &layer_given, &layer, &error), VKMHA_OK);
    for (int shape = 0; shape < 2; shape++) {
        const vkmha_plan_params params = plan_params((uint64_t)shape + 1);
        cr_assert_eq(vkmha_plan_create(layer, &params, &plans[shape], &error), VKMHA_OK);
    }
    long settled = 0;
    for (int run = 0; run < RUNS; run++) {
        const int shape = run % 2;
        const size_t bytes = ((size_t)shape + 1) * TOKENS * WIDTH * sizeof(float);
        cr_assert_eq(vkmha_run(plans[shape], &(vkmha_inputs){.query = input},
                               &(vkmha_outputs){.output = output}, &error),
                     VKMHA_OK, "run %d: %s", run, error.message);
        if (run < 2) {
            memcpy(first[shape], output, bytes);
        }
        cr_assert(memcmp(first[shape], output, bytes) == 0, "run %d differs", run);
        settled = run == SETTLED ? resident_kib() : settled;
    }
    cr_assert(settled >= 0);
#ifndef __SANITIZE_ADDRESS__ /* it keeps freed memory back for a while, which looks like growth */
    cr_assert(resident_kib() - settled < 4096, "memory grew by %ld KiB", resident_kib() - settled);
#endif
    vkmha_plan_destroy(plans[0]);
    vkmha_plan_destroy(plans[1]);
    vkmha_layer_destroy(layer);
    vkmha_device_destroy(device);
}
