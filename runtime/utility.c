#include "utility.h"

#include "pipeline.h"

vkmha_status vkmha_utility_run(vkmha_device *device, vkmha_kernel kernel, const vkmha_block *block,
                               uint32_t groups, double *ns, vkmha_error *error)
{
    VkDescriptorPool pool = VK_NULL_HANDLE;
    VkQueryPool queries = VK_NULL_HANDLE;
    VkPipeline pipeline = VK_NULL_HANDLE;
    vkmha_commands commands = {0};
    const vkmha_variant *variant = NULL;
    vkmha_tile tile;
    vkmha_status status = vkmha_variant_pick(kernel, NULL, &device->info.limits, 1, 1, &variant, &tile,
                                             error);
    if (status == VKMHA_OK) {
        status = vkmha_pipeline_get(device, variant, &tile.constants, &pipeline, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    const VkDescriptorPoolSize sizes[] = {
        {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, VKMHA_NUM_STORAGE_BINDINGS},
        {VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, VKMHA_NUM_BINDINGS - VKMHA_NUM_STORAGE_BINDINGS},
    };
    const VkDescriptorPoolCreateInfo pool_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .maxSets = 1,
        .poolSizeCount = sizeof(sizes) / sizeof(sizes[0]),
        .pPoolSizes = sizes,
    };
    VKMHA_VK(CreateDescriptorPool(device->handle, &pool_info, device->callbacks, &pool));
    const VkDescriptorSetAllocateInfo set_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = pool,
        .descriptorSetCount = 1,
        .pSetLayouts = &device->set_layout,
    };
    VkDescriptorSet set = VK_NULL_HANDLE;
    VKMHA_VK(AllocateDescriptorSets(device->handle, &set_info, &set));
    const VkDescriptorBufferInfo buffer = {block->buffer, 0, block->size};
    const VkWriteDescriptorSet write = {
        .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
        .dstSet = set,
        .descriptorCount = 1,
        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
        .pBufferInfo = &buffer,
    };
    device->vk.UpdateDescriptorSets(device->handle, 1, &write, 0, NULL);
    if (ns) {
        const VkQueryPoolCreateInfo query_info = {
            .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
            .queryType = VK_QUERY_TYPE_TIMESTAMP,
            .queryCount = 2,
        };
        VKMHA_VK(CreateQueryPool(device->handle, &query_info, device->callbacks, &queries));
    }

    status = vkmha_commands_begin(device, &commands, error);
    if (status != VKMHA_OK) {
        goto fail;
    }
    if (ns) {
        device->vk.CmdResetQueryPool(commands.buffer, queries, 0, 2);
        device->vk.CmdWriteTimestamp(commands.buffer, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, queries, 0);
    }
    device->vk.CmdBindPipeline(commands.buffer, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    device->vk.CmdBindDescriptorSets(commands.buffer, VK_PIPELINE_BIND_POINT_COMPUTE,
                                     device->pipeline_layout, 0, 1, &set, 0, NULL);
    device->vk.CmdDispatch(commands.buffer, groups, 1, 1);
    if (ns) {
        device->vk.CmdWriteTimestamp(commands.buffer, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, queries, 1);
    }
    status = vkmha_commands_submit(device, &commands, error);
    if (status != VKMHA_OK) {
        goto fail;
    }
    if (ns) {
        uint64_t stamps[2] = {0};
        VKMHA_VK(GetQueryPoolResults(device->handle, queries, 0, 2, sizeof(stamps), stamps,
                                     sizeof(stamps[0]),
                                     VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
        *ns = (double)((stamps[1] - stamps[0]) & device->timestamp_mask) *
              device->info.limits.timestamp_period_ns;
    }

fail:
    vkmha_commands_finish(device, &commands);
    device->vk.DestroyQueryPool(device->handle, queries, device->callbacks);
    device->vk.DestroyDescriptorPool(device->handle, pool, device->callbacks);
    return status;
}
