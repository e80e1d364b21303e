#include "record.h"

static void barrier(const vkmha_device *device, VkCommandBuffer commands)
{
    const VkMemoryBarrier memory = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT,
    };
    device->vk.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                  VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &memory, 0, NULL, 0,
                                  NULL);
}

/* Queries first..end-1 of the plan's VKMHA_NUM_STAGES + 1. */
static void write_timestamps(const vkmha_device *device, VkCommandBuffer commands,
                             const vkmha_record_params *params, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; params->timestamp_pool && i < end; i++) {
        device->vk.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                                     params->timestamp_pool, params->first_query + i);
    }
}

vkmha_status vkmha_record(vkmha_plan *plan, const vkmha_bindings *bindings, VkCommandBuffer commands,
                          const vkmha_record_params *params, vkmha_error *error)
{
    vkmha_error_clear(error);
    const vkmha_record_params defaults = {0};
    if (!params) {
        params = &defaults;
    }
    if (!plan || !bindings || !commands) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL",
                          !plan ? "plan" : !bindings ? "bindings" : "commands");
    }
    if (bindings->plan != plan) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "bindings are of another plan");
    }
    if (!vkmha_is_zero(params->reserved, sizeof(params->reserved))) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "record params.reserved is not zero");
    }
    const vkmha_schedule *schedule = &plan->schedule;
    const uint32_t first = params->first_dispatch;
    if (first > schedule->num_steps || params->num_dispatches > schedule->num_steps - first) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "first_dispatch %u and num_dispatches %u reach past the plan's %u", first,
                          params->num_dispatches, schedule->num_steps);
    }
    const uint32_t end = params->num_dispatches ? first + params->num_dispatches : schedule->num_steps;
    const vkmha_device *device = plan->layer->device;
    if (first == end) {
        if (schedule->num_steps == 0) {
            write_timestamps(device, commands, params, 0, VKMHA_NUM_STAGES + 1);
        }
        return VKMHA_OK;
    }

    barrier(device, commands);
    if (first == 0) {
        write_timestamps(device, commands, params, 0, 1u + (uint32_t)schedule->steps[0].stage);
    }
    VkPipeline bound_pipeline = VK_NULL_HANDLE;
    VkDescriptorSet bound_set = VK_NULL_HANDLE;
    for (uint32_t i = first; i < end; i++) {
        const vkmha_step *step = &schedule->steps[i];
        if (step->needs_barrier && i != first) {
            barrier(device, commands);
        }
        if (plan->pipelines[i] != bound_pipeline) {
            bound_pipeline = plan->pipelines[i];
            device->vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, bound_pipeline);
        }
        if (bindings->sets[step->set] != bound_set) {
            bound_set = bindings->sets[step->set];
            device->vk.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                                             device->pipeline_layout, 0, 1, &bound_set, 0, NULL);
        }
        device->vk.CmdPushConstants(commands, device->pipeline_layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                    step->push_bytes, &step->push);
        device->vk.CmdDispatch(commands, step->groups[0], step->groups[1], step->groups[2]);
        const uint32_t next_stage = i + 1 < schedule->num_steps
                                        ? (uint32_t)schedule->steps[i + 1].stage
                                        : VKMHA_NUM_STAGES;
        write_timestamps(device, commands, params, 1u + (uint32_t)step->stage, 1u + next_stage);
    }
    return VKMHA_OK;
}
