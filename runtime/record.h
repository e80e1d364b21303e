/* Steps -> bind, push, dispatch, barrier, in the caller's command buffer; and the descriptor sets for it. */
#ifndef VKMHA_RUNTIME_RECORD_H
#define VKMHA_RUNTIME_RECORD_H

#include "plan.h"

struct vkmha_bindings {
    vkmha_plan *plan; /* outlives the bindings */
    VkDescriptorPool pool;
    VkDescriptorSet *sets; /* schedule.num_sets */
};

#endif
