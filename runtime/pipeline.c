#include "pipeline.h"

#include <string.h>

struct vkmha_pipeline {
    struct vkmha_pipeline *next;
    const vkmha_variant *variant;
    vkmha_constants constants;
    VkPipeline handle;
};

vkmha_status vkmha_layouts_create(vkmha_device *device, vkmha_error *error)
{
    vkmha_status status = VKMHA_OK;
    VkDescriptorSetLayoutBinding bindings[VKMHA_NUM_BINDINGS];
    for (uint32_t i = 0; i < VKMHA_NUM_BINDINGS; i++) {
        bindings[i] = (VkDescriptorSetLayoutBinding){
            .binding = i,
            .descriptorType = i < VKMHA_NUM_STORAGE_BINDINGS ? VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
                                                             : VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER,
            .descriptorCount = 1,
            .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
        };
    }
    const VkDescriptorSetLayoutCreateInfo set_info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = VKMHA_NUM_BINDINGS,
        .pBindings = bindings,
    };
    VKMHA_VK(CreateDescriptorSetLayout(device->handle, &set_info, device->callbacks,
                                       &device->set_layout));
    const VkPushConstantRange push = {
        .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT,
        .size = sizeof(vkmha_attention_push),
    };
    _Static_assert(sizeof(vkmha_attention_push) >= sizeof(vkmha_project_push),
                   "the push range is the largest struct's");
    const VkPipelineLayoutCreateInfo layout_info = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .setLayoutCount = 1,
        .pSetLayouts = &device->set_layout,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &push,
    };
    VKMHA_VK(CreatePipelineLayout(device->handle, &layout_info, device->callbacks,
                                  &device->pipeline_layout));

fail:
    return status;
}

static vkmha_status compile(vkmha_device *device, const vkmha_variant *variant,
                            const vkmha_constants *constants, VkPipeline *pipeline,
                            vkmha_error *error)
{
    vkmha_status status = VKMHA_OK;
    VkShaderModule module = VK_NULL_HANDLE;
    const VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
        .codeSize = variant->code_bytes,
        .pCode = variant->code,
    };
    VKMHA_VK(CreateShaderModule(device->handle, &module_info, device->callbacks, &module));
#define MAP_ENTRY(id, name, value) {id, offsetof(vkmha_constants, name), sizeof(uint32_t)},
    static const VkSpecializationMapEntry entries[] = {VKMHA_CONSTANTS(MAP_ENTRY)};
#undef MAP_ENTRY
    const VkSpecializationInfo specialization = {
        .mapEntryCount = sizeof(entries) / sizeof(entries[0]),
        .pMapEntries = entries,
        .dataSize = sizeof(*constants),
        .pData = constants,
    };
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage =
            {
                .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = "main",
                .pSpecializationInfo = &specialization,
            },
        .layout = device->pipeline_layout,
    };
    VKMHA_VK(CreateComputePipelines(device->handle, VK_NULL_HANDLE, 1, &info, device->callbacks,
                                    pipeline));

fail:
    device->vk.DestroyShaderModule(device->handle, module, device->callbacks);
    return status;
}

vkmha_status vkmha_pipeline_get(vkmha_device *device, const vkmha_variant *variant,
                                const vkmha_constants *constants, VkPipeline *pipeline,
                                vkmha_error *error)
{
    vkmha_status status = VKMHA_OK;
    /* Compiling under the lock keeps two threads from compiling the same pipeline. */
    vkmha_lock_acquire(&device->pipeline_lock);
    struct vkmha_pipeline *entry = device->pipelines;
    while (entry && (entry->variant != variant ||
                     memcmp(&entry->constants, constants, sizeof(*constants)) != 0)) {
        entry = entry->next;
    }
    if (!entry) {
        entry = vkmha_host_allocate(&device->host, 1, sizeof(*entry));
        if (!entry) {
            status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
        } else {
            status = compile(device, variant, constants, &entry->handle, error);
        }
        if (status != VKMHA_OK) {
            vkmha_host_release(&device->host, entry);
            entry = NULL;
        } else {
            entry->variant = variant;
            entry->constants = *constants;
            entry->next = device->pipelines;
            device->pipelines = entry;
        }
    }
    vkmha_lock_release(&device->pipeline_lock);
    if (entry) {
        *pipeline = entry->handle;
    }
    return status;
}

void vkmha_pipelines_destroy(vkmha_device *device)
{
    while (device->pipelines) {
        struct vkmha_pipeline *entry = device->pipelines;
        device->pipelines = entry->next;
        device->vk.DestroyPipeline(device->handle, entry->handle, device->callbacks);
        vkmha_host_release(&device->host, entry);
    }
    device->vk.DestroyPipelineLayout(device->handle, device->pipeline_layout, device->callbacks);
    device->vk.DestroyDescriptorSetLayout(device->handle, device->set_layout, device->callbacks);
}
