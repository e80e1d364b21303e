#include "plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "pipeline.h"

static const char *const stage_names[VKMHA_NUM_STAGES] = {"project", "attention", "output"};

void vkmha_plan_destroy(vkmha_plan *plan)
{
    if (!plan) {
        return;
    }
    vkmha_layer *layer = plan->layer;
    const vkmha_host host = layer->device->host;
    vkmha_block_destroy(layer->device, &plan->options);
    vkmha_schedule_finish(&plan->schedule, &host);
    vkmha_host_release(&host, plan->pipelines);
    vkmha_host_release(&host, plan);
    vkmha_layer_destroy(layer);
}

static vkmha_status get_pipelines(vkmha_plan *plan, vkmha_error *error)
{
    vkmha_device *device = plan->layer->device;
    const vkmha_schedule *schedule = &plan->schedule;
    plan->pipelines = vkmha_host_allocate(&device->host, schedule->num_steps, sizeof(VkPipeline));
    if (!plan->pipelines) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    for (uint32_t i = 0; i < schedule->num_steps; i++) {
        vkmha_status status =
            vkmha_pipeline_get(device, schedule->steps[i].variant, &schedule->steps[i].constants,
                               &plan->pipelines[i], error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

static vkmha_status upload_options(vkmha_plan *plan, vkmha_error *error)
{
    vkmha_device *device = plan->layer->device;
    const vkmha_byte_source source = {&plan->schedule.options, sizeof(plan->schedule.options)};
    if (plan->schedule.num_steps == 0) {
        return VKMHA_OK;
    }
    vkmha_status status = vkmha_block_create(
        device, VKMHA_OPTIONS_BYTES,
        VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT, VKMHA_MEMORY_DEVICE,
        &plan->options, error);
    return status != VKMHA_OK ? status
                              : vkmha_upload(device, &plan->options, 0, VKMHA_OPTIONS_BYTES,
                                             vkmha_fill_bytes, &source, error);
}

static void log_kernels(const vkmha_plan *plan)
{
    char text[1024];
    vkmha_plan_describe(plan, text, sizeof(text));
    vkmha_host_log(&plan->layer->device->host, VKMHA_LOG_INFO, "plan:\n%s", text);
}

vkmha_status vkmha_plan_create(vkmha_layer *layer, const vkmha_plan_params *params,
                               vkmha_plan **plan, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!plan) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "plan is NULL");
    }
    *plan = NULL;
    if (!layer) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "layer is NULL");
    }
    vkmha_device *device = layer->device;
    vkmha_plan *made = vkmha_host_allocate(&device->host, 1, sizeof(*made));
    if (!made) {
        return vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    made->layer = layer;
    vkmha_layer_retain(layer);
    vkmha_status status = vkmha_check_plan(&layer->params, params, &made->params, error);
    if (status == VKMHA_OK) {
        vkmha_plan_sizes(&layer->params, &made->params, &made->sizes);
        made->max_work = made->params.max_work_per_dispatch
                             ? made->params.max_work_per_dispatch
                             : device->info.limits.max_work_per_dispatch;
        status = vkmha_schedule_init(&device->info.limits, &layer->params, &layer->packing,
                                     &made->params, &device->host, &made->schedule, error);
    }
    if (status == VKMHA_OK) {
        status = get_pipelines(made, error);
    }
    if (status == VKMHA_OK) {
        status = upload_options(made, error);
    }
    if (status != VKMHA_OK) {
        vkmha_plan_destroy(made);
        return status;
    }
    made->params.project_kernel = NULL;
    made->params.attention_kernel = NULL;
    made->params.chosen_heads = NULL; /* the sizes are known by their numbers */
    made->params.chosen_queries = NULL;
    log_kernels(made);
    *plan = made;
    return VKMHA_OK;
}

static uint64_t append_bytes(const vkmha_plan *plan)
{
    const vkmha_layer_params *layer = &plan->layer->params;
    const uint64_t features =
        vkmha_round_up(layer->head_dim, 4) + (uint64_t)vkmha_round_up(layer->v_head_dim, 4);
    return plan->params.cache_capacity > 0
               ? plan->sizes.key_rows * layer->num_kv_heads * features *
                     vkmha_type_bytes(layer->cache_type)
               : 0;
}

void vkmha_plan_get_info(const vkmha_plan *plan, vkmha_plan_info *info)
{
    const vkmha_schedule *schedule = &plan->schedule;
    *info = (vkmha_plan_info){
        .workspace_bytes = schedule->workspace_bytes,
        .append_bytes = append_bytes(plan),
        .tiles = schedule->tiles,
        .all_tiles = schedule->all_tiles,
        .num_sequences = plan->sizes.sequences,
        .num_positions = plan->sizes.positions,
        .num_dispatches = schedule->num_steps,
        .chains = schedule->chains,
    };
    for (uint32_t i = 0; i < schedule->num_steps; i++) {
        const vkmha_step *step = &schedule->steps[i];
        vkmha_stage_info *stage = &info->stages[step->stage];
        /* A stage is named by the kernel that its table row was chosen for. */
        if (!stage->kernel || step->variant->kernel == VKMHA_KERNEL_PROJECT ||
            step->variant->kernel == VKMHA_KERNEL_ATTENTION) {
            stage->kernel = step->variant->name;
        }
        stage->dispatches++;
        stage->work += step->work;
        if (step->work > info->max_dispatch_work) {
            info->max_dispatch_work = step->work;
        }
    }
}

size_t vkmha_plan_describe(const vkmha_plan *plan, char *text, size_t size)
{
    vkmha_plan_info info;
    vkmha_plan_get_info(plan, &info);
    size_t length = 0;
    for (uint32_t i = 0; i < VKMHA_NUM_STAGES; i++) {
        const vkmha_stage_info *stage = &info.stages[i];
        if (!stage->kernel) {
            continue;
        }
        const size_t room = length < size ? size - length : 0;
        const int written = snprintf(room ? text + length : NULL, room,
                                     "%s: %s, %u dispatch%s, %" PRIu64 " multiply-adds\n",
                                     stage_names[i], stage->kernel, stage->dispatches,
                                     stage->dispatches == 1 ? "" : "es", stage->work);
        length += written > 0 ? (size_t)written : 0;
    }
    const size_t room = length < size ? size - length : 0;
    const int written = snprintf(room ? text + length : NULL, room,
                                 "workspace: %" PRIu64 " bytes\n", info.workspace_bytes);
    return length + (written > 0 ? (size_t)written : 0);
}
