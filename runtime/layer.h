/* Weights: packed as packing.h lays them out, converted to fp32, uploaded once. */
#ifndef VKMHA_RUNTIME_LAYER_H
#define VKMHA_RUNTIME_LAYER_H

#include "memory.h"
#include "packing.h"

struct vkmha_layer {
    vkmha_device *device; /* holds a reference */
    uint32_t references;  /* guarded by device->lock */
    vkmha_layer_params params; /* checked; its pointers are NULL: packing tells which tables there are */
    vkmha_packing packing;
    vkmha_block *blocks; /* packing.num_blocks */
};

void vkmha_layer_retain(vkmha_layer *layer);

#endif
