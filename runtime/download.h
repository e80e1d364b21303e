/* The way back of a run's outputs: from device memory to the host's, row by row where layouts
 * differ. */
#ifndef VKMHA_RUNTIME_DOWNLOAD_H
#define VKMHA_RUNTIME_DOWNLOAD_H

#include "record.h"

/* Steps between elements of a tensor. */
typedef struct vkmha_steps {
    uint64_t batch;
    uint64_t row;
    uint64_t head;
} vkmha_steps;

typedef struct vkmha_download {
    void *target; /* of the first element; NULL: not wanted */
    const vkmha_block *source;
    vkmha_type type; /* of the source's elements */
    vkmha_type target_type;
    uint64_t offset; /* of the first element, in bytes */
    uint64_t bytes;
    uint64_t batches;
    uint64_t rows;
    uint64_t heads;
    uint32_t dim;
    uint32_t paired; /* features that are paired on the device: see packing.h */
    vkmha_steps from;
    vkmha_steps to;
    vkmha_block readback; /* where the host cannot read the source well */
} vkmha_download;

/* output; projected query, key and value, attention; present key and value, and what is told */
enum { VKMHA_NUM_DOWNLOADS = 15 };

/* blocks: by resource. */
void vkmha_downloads_list(const vkmha_plan *plan, const vkmha_outputs *outputs,
                          const vkmha_block blocks[VKMHA_NUM_SLOTS],
                          vkmha_download downloads[VKMHA_NUM_DOWNLOADS]);

/* Records copies for what the host cannot see, or reads slowly. */
vkmha_status vkmha_downloads_record(vkmha_device *device, VkCommandBuffer commands,
                                    vkmha_download downloads[VKMHA_NUM_DOWNLOADS],
                                    vkmha_error *error) VKMHA_CHECKED;

/* All that can fail comes before the first byte is written to the caller's memory. */
vkmha_status vkmha_downloads_finish(vkmha_device *device,
                                    const vkmha_download downloads[VKMHA_NUM_DOWNLOADS],
                                    vkmha_error *error) VKMHA_CHECKED;

void vkmha_downloads_destroy(vkmha_device *device, vkmha_download downloads[VKMHA_NUM_DOWNLOADS]);

#endif
