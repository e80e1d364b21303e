/* Table row + constants -> VkPipeline, kept by the device; the one layout of all kernels. */
#ifndef VKMHA_RUNTIME_PIPELINE_H
#define VKMHA_RUNTIME_PIPELINE_H

#include "device.h"
#include "variants.h"

/* The set layout and pipeline layout of the device. */
vkmha_status vkmha_layouts_create(vkmha_device *device, vkmha_error *error) VKMHA_CHECKED;

/* The pipeline, compiled at the first request. It lives as long as the device. Thread-safety: any thread. */
vkmha_status vkmha_pipeline_get(vkmha_device *device, const vkmha_variant *variant,
                                const vkmha_constants *constants, VkPipeline *pipeline,
                                vkmha_error *error) VKMHA_CHECKED;

/* Layouts and pipelines; half-built ones are allowed. */
void vkmha_pipelines_destroy(vkmha_device *device);

#endif
