/* The plan object: a schedule with its pipelines. */
#ifndef VKMHA_RUNTIME_PLAN_H
#define VKMHA_RUNTIME_PLAN_H

#include "layer.h"
#include "schedule.h"

struct vkmha_plan {
    vkmha_layer *layer; /* holds a reference */
    vkmha_plan_params params; /* checked; kernel names are not kept */
    vkmha_sizes sizes;
    vkmha_schedule schedule;
    VkPipeline *pipelines; /* one a step, the device's */
    vkmha_block options;   /* schedule.options, where there is a step */
    uint64_t max_work;     /* of a dispatch, and of one submission of vkmha_run */
};

#endif
