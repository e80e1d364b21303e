/* Steps -> bind, push, dispatch, barrier, in the caller's command buffer; and the descriptor sets for it. */
#ifndef VKMHA_RUNTIME_RECORD_H
#define VKMHA_RUNTIME_RECORD_H

#include <vkmha/vkmha_vulkan.h>

#include "plan.h"

struct vkmha_bindings {
    vkmha_plan *plan; /* outlives the bindings */
    VkDescriptorPool pool;
    VkDescriptorSet *sets; /* schedule.num_sets */
};

/* The resources that a caller's buffers stand for: VKMHA_RESOURCE_QUERY and those after it. */
enum { VKMHA_NUM_SLOTS = VKMHA_RESOURCE_WORKSPACE - VKMHA_RESOURCE_QUERY + 1 };

/* What a plan asks of the buffer for a resource. */
typedef struct vkmha_slot {
    const char *field;
    bool is_used;
    bool is_uniform;
    uint64_t bytes; /* 0: no elements, no buffer needed */
} vkmha_slot;

vkmha_slot vkmha_plan_slot(const vkmha_plan *plan, vkmha_resource resource);

/* The resource's member of `buffers`. */
vkmha_buffer *vkmha_slot_buffer(vkmha_buffers *buffers, vkmha_resource resource);

#endif
