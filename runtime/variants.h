/*
 * THE table of kernels: what each needs, how it is laid out for a device and a layer, its SPIR-V; and the picker.
 */
#ifndef VKMHA_RUNTIME_VARIANTS_H
#define VKMHA_RUNTIME_VARIANTS_H

#include "shaders/interface.h"
#include "status.h"

typedef enum vkmha_kernel {
    VKMHA_KERNEL_PROJECT = 0,
    VKMHA_KERNEL_ATTENTION,
    VKMHA_KERNEL_MERGE,    /* joins attention's chunks of split keys */
    VKMHA_KERNEL_PLACE,    /* copies rows of heads */
    VKMHA_KERNEL_INSPECT,  /* weights, scores and masses of keys */
    VKMHA_KERNEL_CONTRIBUTE, /* what a head adds to the output */
    VKMHA_KERNEL_SUMMARIZE, /* log-sum-exp and statistics of rows */
    VKMHA_KERNEL_PEAK,     /* vkmha_device_measure_peak */
    VKMHA_KERNEL_SELFTEST, /* subgroup operations */
} vkmha_kernel;

/* How a kernel is laid out for a device and a layer. */
typedef struct vkmha_tile {
    vkmha_constants constants;
    uint32_t rows;         /* projection rows or queries of a workgroup */
    uint32_t columns;      /* projection: packed columns of a workgroup; attention: keys of a step */
    uint32_t shared_bytes;
    /* Loop trips of one invocation: trips_base + trips_per_unit for each unit of depth: a vec4 of features in
     * a projection, a chunk of VKMHA_KEY_CHUNK keys in attention. */
    uint64_t trips_base;
    uint64_t trips_per_unit;
} vkmha_tile;

typedef struct vkmha_variant {
    const char *name; /* its shader, its log line, its test, its bench row */
    vkmha_kernel kernel;
    uint32_t needs;           /* VKMHA_CAPABILITY_ bits */
    uint32_t preferred_types; /* bits of vkmha_device_type on which it overrides the rows before it */
    const uint32_t *code;
    size_t code_bytes;
    /* Lays the kernel out; head dims matter to attention only. It need not check limits: the picker does. */
    void (*lay_out)(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                    vkmha_tile *tile);
} vkmha_variant;

/* Row `index`, or NULL past the end. */
const vkmha_variant *vkmha_variant_at(uint32_t index);

/* Whether the device can run the row for these head dims, its tile, and if not, why. */
bool vkmha_variant_fits(const vkmha_variant *variant, const vkmha_limits *limits, uint32_t head_dim,
                        uint32_t v_head_dim, vkmha_tile *tile, char *reason, size_t reason_size);

/*
 * The row called `name`, or, where that is NULL, the last row of `kernel` that fits and is preferred on the
 * device's type (row 0 of each kernel is preferred everywhere).
 * UNSUPPORTED names the row and the reason.
 */
vkmha_status vkmha_variant_pick(vkmha_kernel kernel, const char *name, const vkmha_limits *limits,
                                uint32_t head_dim, uint32_t v_head_dim,
                                const vkmha_variant **variant, vkmha_tile *tile,
                                vkmha_error *error) VKMHA_CHECKED;

#endif
