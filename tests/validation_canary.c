/*
 * A program that is wrong on purpose: two copies to the same bytes without a barrier. Under synchronization validation it
 * must be stopped; if it ends well, the layer was not there.
 */
#include "runtime/memory.h"

int main(void)
{
    const vkmha_device_params params = {.allow_software = true};
    vkmha_device *device = NULL;
    if (vkmha_device_create(&params, &device, NULL) != VKMHA_OK) {
        return 0; /* no device: not stopped, which the caller takes as a failure */
    }
    const VkBufferUsageFlags usage =
        VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    vkmha_block source = {0};
    vkmha_block target = {0};
    vkmha_commands commands = {0};
    if (vkmha_block_create(device, 64, usage, VKMHA_MEMORY_DEVICE, &source, NULL) == VKMHA_OK &&
        vkmha_block_create(device, 64, usage, VKMHA_MEMORY_DEVICE, &target, NULL) == VKMHA_OK &&
        vkmha_commands_begin(device, &commands, NULL) == VKMHA_OK) {
        const VkBufferCopy whole = {0, 0, 64};
        device->vk.CmdCopyBuffer(commands.buffer, source.buffer, target.buffer, 1, &whole);
        device->vk.CmdCopyBuffer(commands.buffer, source.buffer, target.buffer, 1, &whole);
        (void)!vkmha_commands_submit(device, &commands, NULL);
    }
    vkmha_commands_finish(device, &commands);
    vkmha_block_destroy(device, &source);
    vkmha_block_destroy(device, &target);
    vkmha_device_destroy(device);
    return 0;
}
