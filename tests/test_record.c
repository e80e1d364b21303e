/*
 * Recording into the caller's command buffer on the caller's device: the caller's own copies write the inputs before and
 * read the output after, in one submission, with the barriers that the header asks for.
 */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include <vkmha/vkmha_reference.h>

#include "runtime/device.h"
#include "runtime/memory.h"
#include "runtime/select.h"

enum { HEADS = 4, DIM = 16, WIDTH = HEADS * DIM, BATCH = 2, TOKENS = 37 };

static float weights[4][WIDTH * WIDTH];
static float input[BATCH * TOKENS * WIDTH];

/* The application's Vulkan: an instance, a device and a queue that vkmha did not make. */
typedef struct vkmha_application {
    PFN_vkGetInstanceProcAddr address;
    vkmha_instance_functions instance_vk;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t family;
    uint32_t locks;
    uint32_t unlocks;
} vkmha_application;

static void count_lock(void *user)
{
    ((vkmha_application *)user)->locks++;
}

static void count_unlock(void *user)
{
    ((vkmha_application *)user)->unlocks++;
}

static void open_application(vkmha_application *application)
{
    const vkmha_host host = {0};
    vkmha_error error;
    VkPhysicalDevice *devices = NULL;
    vkmha_device_entry *entries = NULL;
    uint32_t count = 0;
    *application = (vkmha_application){.address = vkmha_find_loader(NULL)};
    cr_assert(application->address);
    cr_assert_eq(vkmha_create_instance(application->address, NULL, &host, &application->instance, &error),
                 VKMHA_OK, "%s", error.message);
    cr_assert_eq(vkmha_load_instance_functions(application->address, application->instance,
                                               &application->instance_vk, &error),
                 VKMHA_OK);
    cr_assert_eq(vkmha_enumerate_devices(&application->instance_vk, application->instance, &host, &devices,
                                         &entries, &count, &error),
                 VKMHA_OK);
    cr_assert(count > 0);
    application->physical = devices[0];
    free(devices);
    free(entries);
    VkQueueFamilyProperties families[8];
    uint32_t num_families = 8;
    application->instance_vk.GetPhysicalDeviceQueueFamilyProperties(application->physical, &num_families,
                                                                    families);
    cr_assert(vkmha_select_queue_family(families, num_families, &application->family));
    const float priority = 1.0f;
    const VkDeviceQueueCreateInfo queue_info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = application->family,
        .queueCount = 1,
        .pQueuePriorities = &priority,
    };
    const VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue_info,
    };
    cr_assert_eq(application->instance_vk.CreateDevice(application->physical, &info, NULL,
                                                       &application->device),
                 VK_SUCCESS);
    const PFN_vkGetDeviceQueue get_queue = (PFN_vkGetDeviceQueue)application->instance_vk.GetDeviceProcAddr(
        application->device, "vkGetDeviceQueue");
    get_queue(application->device, application->family, 0, &application->queue);
}

static void close_application(vkmha_application *application)
{
    const PFN_vkDestroyDevice destroy = (PFN_vkDestroyDevice)application->instance_vk.GetDeviceProcAddr(
        application->device, "vkDestroyDevice");
    destroy(application->device, NULL);
    application->instance_vk.DestroyInstance(application->instance, NULL);
}

static vkmha_device *borrow(vkmha_application *application)
{
    const vkmha_borrow_params params = {
        .instance = application->instance,
        .physical_device = application->physical,
        .device = application->device,
        .queue = application->queue,
        .queue_family_index = application->family,
        .get_instance_proc_addr = application->address,
        .lock_queue = count_lock,
        .unlock_queue = count_unlock,
        .lock_user = application,
    };
    vkmha_device *device = NULL;
    vkmha_error error;
    cr_assert_eq(vkmha_device_borrow(&params, &device, &error), VKMHA_OK, "%s", error.message);
    return device;
}

static vkmha_layer_params layer_params(void)
{
    vkmha_layer_params layer = {.num_heads = HEADS, .head_dim = DIM, .embed_dim = WIDTH};
    vkmha_matrix *matrices[4] = {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o};
    for (int m = 0; m < 4; m++) {
        for (int i = 0; i < WIDTH * WIDTH; i++) {
            weights[m][i] = (float)((i * (29 + m) + 53) % 61 - 30) / 128.0f;
        }
        *matrices[m] = (vkmha_matrix){.data = weights[m], .rows = WIDTH, .columns = WIDTH};
    }
    for (int i = 0; i < BATCH * TOKENS * WIDTH; i++) {
        input[i] = (float)((i * 37) % 59 - 29) / 16.0f;
    }
    return layer;
}

static const vkmha_plan_params shape = {
    .batch_size = BATCH,
    .query_len = TOKENS,
    .key_len = TOKENS,
    .key_is_query = true,
    .value_is_key = true,
    .causal = VKMHA_CAUSAL_TOP_LEFT,
};

static const uint64_t tensor_bytes = sizeof(input);

enum { OFFSET = 512 };

typedef struct vkmha_scene {
    vkmha_layer *layer;
    vkmha_plan *plan;
    vkmha_block source; /* the input, host-visible */
    vkmha_block query;
    vkmha_block output;
    vkmha_block workspace;
    vkmha_block target; /* the output, host-visible */
    vkmha_buffers buffers;
} vkmha_scene;

static void make_block(vkmha_device *device, uint64_t bytes, vkmha_memory_use use, vkmha_block *block)
{
    vkmha_error error;
    cr_assert_eq(vkmha_block_create(device, bytes,
                                    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_DST_BIT,
                                    use, block, &error),
                 VKMHA_OK, "%s", error.message);
}

static void make_scene(vkmha_device *device, const vkmha_plan_params *params, vkmha_scene *scene)
{
    vkmha_error error;
    vkmha_plan_info info;
    const vkmha_layer_params layer = layer_params();
    *scene = (vkmha_scene){0};
    cr_assert_eq(vkmha_layer_create(device, &layer, &scene->layer, &error), VKMHA_OK, "%s", error.message);
    cr_assert_eq(vkmha_plan_create(scene->layer, params, &scene->plan, &error), VKMHA_OK, "%s",
                 error.message);
    vkmha_plan_get_info(scene->plan, &info);
    make_block(device, tensor_bytes, VKMHA_MEMORY_STAGING, &scene->source);
    make_block(device, OFFSET + tensor_bytes, VKMHA_MEMORY_DEVICE, &scene->query);
    make_block(device, 2 * OFFSET + tensor_bytes, VKMHA_MEMORY_DEVICE, &scene->output);
    make_block(device, OFFSET + info.workspace_bytes, VKMHA_MEMORY_DEVICE, &scene->workspace);
    make_block(device, 2 * OFFSET + tensor_bytes, VKMHA_MEMORY_READBACK, &scene->target);
    memcpy(scene->source.mapped, input, sizeof(input));
    scene->buffers = (vkmha_buffers){
        .query = {scene->query.buffer, OFFSET, tensor_bytes},
        .output = {scene->output.buffer, OFFSET, tensor_bytes},
        .workspace = {scene->workspace.buffer, OFFSET, info.workspace_bytes},
    };
}

static void finish_scene(vkmha_device *device, vkmha_scene *scene)
{
    vkmha_plan_destroy(scene->plan);
    vkmha_layer_destroy(scene->layer);
    vkmha_block *blocks[] = {&scene->source, &scene->query, &scene->output, &scene->workspace,
                             &scene->target};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        vkmha_block_destroy(device, blocks[i]);
    }
}

static void barrier(vkmha_device *device, VkCommandBuffer commands, VkPipelineStageFlags from,
                    VkAccessFlags written, VkPipelineStageFlags to, VkAccessFlags read)
{
    const VkMemoryBarrier memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = written,
        .dstAccessMask = read,
    };
    device->vk.CmdPipelineBarrier(commands, from, to, 0, 1, &memory, 0, NULL, 0, NULL);
}

/* copy in, record (in `parts`), copy out: one submission. The canaries around the output are 0x55. */
static void run_scene(vkmha_device *device, vkmha_scene *scene, const vkmha_bindings *bindings,
                      uint32_t parts, float *output)
{
    vkmha_error error;
    vkmha_plan_info info;
    vkmha_commands commands = {0};
    vkmha_plan_get_info(scene->plan, &info);
    memset(scene->target.mapped, 0, (size_t)scene->target.size);
    cr_assert_eq(vkmha_commands_begin(device, &commands, &error), VKMHA_OK, "%s", error.message);
    const VkBufferCopy in = {0, OFFSET, tensor_bytes};
    device->vk.CmdCopyBuffer(commands.buffer, scene->source.buffer, scene->query.buffer, 1, &in);
    barrier(device, commands.buffer, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
            VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT);
    for (uint32_t part = 0; part < parts; part++) {
        const uint32_t first = info.num_dispatches * part / parts;
        const uint32_t end = info.num_dispatches * (part + 1) / parts;
        if (end == first) {
            continue;
        }
        const vkmha_record_params params = {.first_dispatch = first, .num_dispatches = end - first};
        cr_assert_eq(vkmha_record(scene->plan, bindings, commands.buffer, &params, &error), VKMHA_OK, "%s",
                     error.message);
    }
    barrier(device, commands.buffer, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
            VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_READ_BIT);
    const VkBufferCopy out = {OFFSET, 0, tensor_bytes};
    device->vk.CmdCopyBuffer(commands.buffer, scene->output.buffer, scene->target.buffer, 1, &out);
    cr_assert_eq(vkmha_commands_submit(device, &commands, &error), VKMHA_OK, "%s", error.message);
    vkmha_commands_finish(device, &commands);
    cr_assert_eq(vkmha_block_invalidate(device, &scene->target, &error), VKMHA_OK);
    memcpy(output, scene->target.mapped, (size_t)tensor_bytes);
}

static void compare_with_reference(const float *output)
{
    static double expected[BATCH * TOKENS * WIDTH];
    static double bound[BATCH * TOKENS * WIDTH];
    const vkmha_layer_params layer = layer_params();
    vkmha_error error;
    vkmha_comparison comparison;
    cr_assert_eq(vkmha_reference_run(&layer, &shape, &(vkmha_inputs){.query = input}, NULL, NULL,
                                     &(vkmha_reference_outputs){.output = expected, .output_bound = bound},
                                     &error),
                 VKMHA_OK);
    vkmha_compare(output, expected, bound, BATCH * TOKENS * WIDTH, &comparison);
    cr_assert(comparison.passed, "element %llu: %g, expected %g within %g",
              (unsigned long long)comparison.worst_index, (double)output[comparison.worst_index],
              expected[comparison.worst_index], bound[comparison.worst_index]);
}

Test(record, between_the_callers_own_commands)
{
    static float output[BATCH * TOKENS * WIDTH];
    static float again[BATCH * TOKENS * WIDTH];
    vkmha_application application;
    open_application(&application);
    vkmha_device *device = borrow(&application);
    vkmha_scene scene;
    vkmha_bindings *bindings = NULL;
    vkmha_error error;
    make_scene(device, &shape, &scene);
    cr_assert_eq(vkmha_bindings_create(scene.plan, &scene.buffers, &bindings, &error), VKMHA_OK, "%s",
                 error.message);
    run_scene(device, &scene, bindings, 1, output);
    compare_with_reference(output);

    /* In two parts, and rebound to another workspace: the same bits. */
    run_scene(device, &scene, bindings, 2, again);
    cr_assert_arr_eq(again, output, sizeof(output));
    vkmha_block other;
    make_block(device, scene.buffers.workspace.size, VKMHA_MEMORY_DEVICE, &other);
    scene.buffers.workspace = (vkmha_buffer){other.buffer, 0, other.size};
    cr_assert_eq(vkmha_bindings_update(bindings, &scene.buffers, &error), VKMHA_OK, "%s", error.message);
    run_scene(device, &scene, bindings, 1, again);
    cr_assert_arr_eq(again, output, sizeof(output));

    vkmha_bindings_destroy(bindings);
    vkmha_block_destroy(device, &other);
    finish_scene(device, &scene);
    cr_assert(application.locks > 0);
    cr_assert_eq(application.locks, application.unlocks);
    vkmha_device_destroy(device);
    close_application(&application); /* the application's objects are as they were */
}

/* F73: the same bits for any cut into dispatches. */
Test(record, F73_cuts_change_no_bit)
{
    static float output[BATCH * TOKENS * WIDTH];
    static float cut[BATCH * TOKENS * WIDTH];
    vkmha_application application;
    open_application(&application);
    vkmha_device *device = borrow(&application);
    for (int i = 0; i < 2; i++) {
        vkmha_scene scene;
        vkmha_bindings *bindings = NULL;
        vkmha_error error;
        vkmha_plan_info info;
        vkmha_plan_params params = shape;
        params.max_work_per_dispatch = i ? 20000 : 0;
        make_scene(device, &params, &scene);
        vkmha_plan_get_info(scene.plan, &info);
        cr_assert(i ? info.num_dispatches > 20 : info.num_dispatches == 3);
        cr_assert_eq(vkmha_bindings_create(scene.plan, &scene.buffers, &bindings, &error), VKMHA_OK, "%s",
                     error.message);
        run_scene(device, &scene, bindings, 1, i ? cut : output);
        vkmha_bindings_destroy(bindings);
        finish_scene(device, &scene);
    }
    cr_assert_arr_eq(cut, output, sizeof(output));
    vkmha_device_destroy(device);
    close_application(&application);
}

static void refuse(const vkmha_scene *scene, const vkmha_buffers *buffers, const char *field)
{
    vkmha_error error = {VKMHA_OK, ""};
    vkmha_bindings *bindings = (vkmha_bindings *)&error;
    cr_assert_eq(vkmha_bindings_create(scene->plan, buffers, &bindings, &error),
                 VKMHA_ERROR_INVALID_ARGUMENT, "%s was accepted", field);
    cr_assert_null(bindings);
    cr_assert(strstr(error.message, field), "\"%s\" does not name %s", error.message, field);
}

/* F52: an offset that does not fit is refused, as are buffers that are missing, superfluous or too small. */
Test(record, F52_unfit_buffers_are_refused)
{
    vkmha_application application;
    open_application(&application);
    vkmha_device *device = borrow(&application);
    vkmha_scene scene;
    make_scene(device, &shape, &scene);
    vkmha_buffers buffers = scene.buffers;
    buffers.query.offset = 84;
    refuse(&scene, &buffers, "query.offset 84");
    buffers = scene.buffers;
    buffers.output.size -= 4;
    refuse(&scene, &buffers, "output.size");
    buffers = scene.buffers;
    buffers.key = buffers.query;
    refuse(&scene, &buffers, "key");
    buffers = scene.buffers;
    buffers.workspace.buffer = VK_NULL_HANDLE;
    refuse(&scene, &buffers, "workspace");

    vkmha_bindings *bindings = NULL;
    vkmha_error error;
    cr_assert_eq(vkmha_bindings_create(scene.plan, &scene.buffers, &bindings, &error), VKMHA_OK);
    const vkmha_record_params past = {.first_dispatch = 2, .num_dispatches = 5};
    cr_assert_eq(vkmha_record(scene.plan, bindings, (VkCommandBuffer)&error, &past, &error),
                 VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "first_dispatch"), "%s", error.message);
    vkmha_bindings_destroy(bindings);
    finish_scene(device, &scene);
    vkmha_device_destroy(device);
    close_application(&application);
}
