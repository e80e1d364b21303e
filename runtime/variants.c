#include "variants.h"

#include <stdio.h>
#include <string.h>

/* ---- SPIR-V, made by the build --------------------------------------------------------------------------- */

#define VKMHA_CODE(name) static const uint32_t name##_code[] =
VKMHA_CODE(project_staged)
#include "project_staged.inc"
;
VKMHA_CODE(project_direct)
#include "project_direct.inc"
;
VKMHA_CODE(attention_staged)
#include "attention_staged.inc"
;
VKMHA_CODE(attention_direct)
#include "attention_direct.inc"
;
#ifndef VKMHA_WITHOUT_ATTENTION_DIRECT_SUBGROUP
VKMHA_CODE(attention_direct_subgroup)
#include "attention_direct_subgroup.inc"
;
#endif
VKMHA_CODE(attention_merge)
#include "attention_merge.inc"
;
VKMHA_CODE(place)
#include "place.inc"
;
VKMHA_CODE(inspect)
#include "inspect.inc"
;
VKMHA_CODE(summarize)
#include "summarize.inc"
;
VKMHA_CODE(contribute)
#include "contribute.inc"
;
VKMHA_CODE(peak)
#include "peak.inc"
;
#ifndef VKMHA_WITHOUT_SELFTEST_SUBGROUP
VKMHA_CODE(selftest_subgroup)
#include "selftest_subgroup.inc"
;
#endif

/* ---- Tiles -------------------------------------------------------------------------------------------------- */

static uint32_t ceil_div(uint32_t value, uint32_t divisor)
{
    return (value + divisor - 1) / divisor;
}

static uint32_t power_of_two_from(uint32_t value)
{
    uint32_t power = 1;
    while (power < value) {
        power *= 2;
    }
    return power;
}

static uint32_t power_of_two_to(uint32_t value)
{
    uint32_t power = 1;
    while (power * 2 <= value) {
        power *= 2;
    }
    return power;
}

static uint32_t clamp(uint32_t value, uint32_t low, uint32_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The width of a CPU driver's SIMD unit, which is the subgroup's there; a power of two. */
static uint32_t simd_width(const vkmha_limits *limits, uint32_t low, uint32_t high)
{
    return clamp(power_of_two_from(limits->subgroup_size), low, high);
}

static void lay_out_project_staged(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                                   vkmha_tile *tile)
{
    (void)limits;
    (void)head_dim;
    (void)v_head_dim;
    enum { WORKGROUP = 64, ROWS = 4, COLUMNS = 4, LANES = 8, SLICE = 8 };
    tile->constants.WORKGROUP = WORKGROUP;
    tile->constants.ROWS = ROWS;
    tile->constants.COLUMNS = COLUMNS;
    tile->rows = WORKGROUP / LANES * ROWS;
    tile->columns = LANES * COLUMNS;
    tile->shared_bytes = 16 * (SLICE + 1) * (tile->rows + tile->columns);
    tile->trips_base = 64 + 4 * ROWS * COLUMNS + 32;
    /* 17 trips a slice of 8 vectors: at most 3 a vector, and one slice more than whole ones in the base. */
    tile->trips_per_unit = 3;
}

static void lay_out_project_direct(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                                   vkmha_tile *tile)
{
    (void)head_dim;
    (void)v_head_dim;
    enum { ROWS = 8, COLUMNS = 4 };
    tile->constants.WORKGROUP = simd_width(limits, 8, 64);
    tile->constants.ROWS = ROWS;
    tile->constants.COLUMNS = COLUMNS;
    tile->rows = ROWS;
    tile->columns = tile->constants.WORKGROUP * COLUMNS;
    tile->trips_base = 64 + 4 * ROWS;
    tile->trips_per_unit = 1;
}

/* Trips of attention that do not depend on the keys: storing features one by one, and the extra key. */
static uint64_t row_trips(uint32_t rows, uint32_t vectors, uint32_t head_dim)
{
    return 64 + 4 * rows * vectors + ceil_div(head_dim, 4);
}

/* Accumulators of a lane for one row, in vec4. */
static uint32_t value_vectors(uint32_t v_head_dim, uint32_t lanes)
{
    return ceil_div(v_head_dim, 4 * lanes);
}

static void lay_out_attention_staged(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                                     vkmha_tile *tile)
{
    (void)limits;
    enum { WORKGROUP = 64, ROWS = 4, STEP = 32 };
    /* More lanes along the features of large values, so that accumulators stay in registers. */
    const uint32_t columns = v_head_dim > 128 ? 2 : 4;
    const uint32_t lanes = STEP / columns;
    const uint32_t vectors = value_vectors(v_head_dim, lanes);
    tile->constants.WORKGROUP = WORKGROUP;
    tile->constants.ROWS = ROWS;
    tile->constants.COLUMNS = columns;
    tile->constants.VALUE_VECTORS = vectors;
    tile->rows = WORKGROUP / lanes * ROWS;
    tile->columns = STEP;
    const uint32_t slice = lanes; /* vec4 of features that are staged at a time */
    tile->shared_bytes =
        16 * (slice + 1) * (tile->rows + STEP) + 4 * tile->rows * (lanes + STEP);
    const uint32_t slices = ceil_div(ceil_div(head_dim, 4), slice);
    const uint32_t staging = ceil_div(STEP * slice, WORKGROUP);
    tile->trips_base = row_trips(ROWS, vectors, head_dim);
    tile->trips_per_unit = 1 + 3 * lanes + 4 * ROWS * vectors +
                           VKMHA_KEY_CHUNK / STEP *
                               (1 + slices * (1 + slice + ROWS + staging) + lanes +
                                vectors * (staging + STEP));
}

static void lay_out_attention_direct(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                                     vkmha_tile *tile)
{
    const uint32_t lanes = simd_width(limits, 8, 32);
    const uint32_t vectors = value_vectors(v_head_dim, lanes);
    /* Eight rows of large values take over two seconds to compile on lavapipe. */
    const uint32_t rows = vectors <= 2 ? 8 : 4;
    const uint32_t columns = 32 / lanes;
    const uint32_t step = lanes * columns;
    tile->constants.WORKGROUP = lanes;
    tile->constants.ROWS = rows;
    tile->constants.COLUMNS = columns;
    tile->constants.VALUE_VECTORS = vectors;
    tile->rows = rows;
    tile->columns = step;
    tile->shared_bytes = 4 * rows * lanes * (1 + columns);
    tile->trips_base = row_trips(rows, vectors, head_dim);
    tile->trips_per_unit =
        1 + 3 * lanes + 4 * rows * vectors + VKMHA_KEY_CHUNK / step * (1 + ceil_div(head_dim, 4) + lanes + step);
}

#ifndef VKMHA_WITHOUT_ATTENTION_DIRECT_SUBGROUP
static void lay_out_attention_direct_subgroup(const vkmha_limits *limits, uint32_t head_dim,
                                              uint32_t v_head_dim, vkmha_tile *tile)
{
    /* The self-test has shown that the width is what the device tells. */
    const uint32_t width = limits->subgroup_size;
    const uint32_t vectors = value_vectors(v_head_dim, width);
    /* A lane's accumulators and scores must stay in registers. */
    const uint32_t rows = vectors <= 2 ? 8 : vectors <= 8 ? 4 : 2;
    const uint32_t columns = clamp(power_of_two_to(clamp(16 / vectors, 1, 4)), 1,
                                   clamp(32 / width, 1, 4));
    const uint32_t step = width * columns;
    tile->constants.WORKGROUP = limits->device_type == VKMHA_DEVICE_SOFTWARE || width > 64 ? width : 64;
    tile->constants.ROWS = rows;
    tile->constants.COLUMNS = columns;
    tile->constants.VALUE_VECTORS = vectors;
    tile->constants.SUBGROUP_WIDTH = width;
    tile->rows = tile->constants.WORKGROUP / width * rows;
    tile->columns = step;
    tile->trips_base = row_trips(rows, vectors, head_dim);
    tile->trips_per_unit = 1 + 4 * rows * vectors + VKMHA_KEY_CHUNK / step * (1 + ceil_div(head_dim, 4) + width);
}
#endif

static void lay_out_merge(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                          vkmha_tile *tile)
{
    const uint32_t lanes = simd_width(limits, 8, 32);
    const uint32_t vectors = value_vectors(v_head_dim, lanes);
    tile->constants.WORKGROUP = lanes;
    tile->constants.ROWS = 1;
    tile->constants.COLUMNS = 1;
    tile->constants.VALUE_VECTORS = vectors;
    tile->rows = 1;
    tile->columns = lanes;
    tile->trips_base = row_trips(1, vectors, head_dim);
    tile->trips_per_unit = 1;
}

static void lay_out_place(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                          vkmha_tile *tile)
{
    (void)limits;
    (void)head_dim;
    (void)v_head_dim;
    tile->constants.WORKGROUP = 64;
    tile->rows = 1;
    tile->columns = 1;
    tile->trips_base = 8;
}

static void lay_out_inspect(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                            vkmha_tile *tile)
{
    (void)v_head_dim;
    enum { ROWS = 8 };
    tile->constants.WORKGROUP = simd_width(limits, 8, 64);
    tile->constants.ROWS = ROWS;
    tile->constants.COLUMNS = 1;
    tile->rows = ROWS;
    tile->columns = tile->constants.WORKGROUP;
    tile->trips_base = 64 + 1 + ROWS * (1 + ceil_div(head_dim, 4)); /* columns behind the keys */
    tile->trips_per_unit = 2 + ROWS + (1 + ROWS) * ceil_div(head_dim, 4); /* a unit: ROWS rows */
}

static void lay_out_summarize(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                              vkmha_tile *tile)
{
    (void)v_head_dim;
    tile->constants.WORKGROUP = simd_width(limits, 8, 64);
    tile->constants.ROWS = 1;
    tile->constants.COLUMNS = 1;
    tile->rows = tile->constants.WORKGROUP;
    tile->columns = 1;
    tile->trips_base = 64;
    tile->trips_per_unit = (uint64_t)5 * ceil_div(head_dim, 4);
}

static void lay_out_contribute(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                               vkmha_tile *tile)
{
    (void)head_dim;
    enum { ROWS = 8 }; /* at most the workgroup */
    tile->constants.WORKGROUP = simd_width(limits, 8, 64);
    tile->constants.ROWS = ROWS;
    tile->rows = ROWS;
    tile->columns = tile->constants.WORKGROUP;
    tile->shared_bytes = 8 * ROWS * tile->constants.WORKGROUP;
    tile->trips_base = 64 + tile->constants.WORKGROUP;
    tile->trips_per_unit = 1 + ceil_div(v_head_dim, 4); /* a unit: a workgroup's columns */
}

static void lay_out_utility(const vkmha_limits *limits, uint32_t head_dim, uint32_t v_head_dim,
                            vkmha_tile *tile)
{
    (void)head_dim;
    (void)v_head_dim;
    tile->constants.WORKGROUP = limits->max_workgroup_invocations < 128 ? 64 : 128;
    tile->rows = 1;
    tile->columns = 1;
}

/* ---- The table ---------------------------------------------------------------------------------------------- */

#define VKMHA_TYPE_BIT(type) (1u << (type))
#define VKMHA_ANY_TYPE UINT32_MAX

#define VKMHA_ROW(kernel_name, kernel_kind, needed, types, function)                               \
    {                                                                                              \
        .name = #kernel_name, .kernel = (kernel_kind), .needs = (needed),                          \
        .preferred_types = (types), .code = kernel_name##_code,                                    \
        .code_bytes = sizeof(kernel_name##_code), .lay_out = (function),                           \
    }

/* Later rows of a kernel override earlier ones on the device types named; the first is valid everywhere. */
static const vkmha_variant variants[] = {
    VKMHA_ROW(project_staged, VKMHA_KERNEL_PROJECT, 0, VKMHA_ANY_TYPE, lay_out_project_staged),
    VKMHA_ROW(project_direct, VKMHA_KERNEL_PROJECT, 0, VKMHA_TYPE_BIT(VKMHA_DEVICE_SOFTWARE),
              lay_out_project_direct),
    VKMHA_ROW(attention_staged, VKMHA_KERNEL_ATTENTION, 0, VKMHA_ANY_TYPE, lay_out_attention_staged),
    VKMHA_ROW(attention_direct, VKMHA_KERNEL_ATTENTION, 0, VKMHA_TYPE_BIT(VKMHA_DEVICE_SOFTWARE),
              lay_out_attention_direct),
#ifndef VKMHA_WITHOUT_ATTENTION_DIRECT_SUBGROUP
    VKMHA_ROW(attention_direct_subgroup, VKMHA_KERNEL_ATTENTION, VKMHA_CAPABILITY_SUBGROUP,
              VKMHA_TYPE_BIT(VKMHA_DEVICE_SOFTWARE), lay_out_attention_direct_subgroup),
#endif
    VKMHA_ROW(attention_merge, VKMHA_KERNEL_MERGE, 0, VKMHA_ANY_TYPE, lay_out_merge),
    VKMHA_ROW(place, VKMHA_KERNEL_PLACE, 0, VKMHA_ANY_TYPE, lay_out_place),
    VKMHA_ROW(inspect, VKMHA_KERNEL_INSPECT, 0, VKMHA_ANY_TYPE, lay_out_inspect),
    VKMHA_ROW(summarize, VKMHA_KERNEL_SUMMARIZE, 0, VKMHA_ANY_TYPE, lay_out_summarize),
    VKMHA_ROW(contribute, VKMHA_KERNEL_CONTRIBUTE, 0, VKMHA_ANY_TYPE, lay_out_contribute),
    VKMHA_ROW(peak, VKMHA_KERNEL_PEAK, 0, VKMHA_ANY_TYPE, lay_out_utility),
#ifndef VKMHA_WITHOUT_SELFTEST_SUBGROUP
    VKMHA_ROW(selftest_subgroup, VKMHA_KERNEL_SELFTEST, 0, VKMHA_ANY_TYPE, lay_out_utility),
#endif
};

const vkmha_variant *vkmha_variant_at(uint32_t index)
{
    return index < sizeof(variants) / sizeof(variants[0]) ? &variants[index] : NULL;
}

/* ---- The picker --------------------------------------------------------------------------------------------- */

bool vkmha_variant_fits(const vkmha_variant *variant, const vkmha_limits *limits, uint32_t head_dim,
                        uint32_t v_head_dim, vkmha_tile *tile, char *reason, size_t reason_size)
{
    reason[0] = '\0';
    *tile = (vkmha_tile){0};
    if ((variant->needs & limits->capabilities) != variant->needs) {
        snprintf(reason, reason_size, "it needs subgroup operations, which are not usable here");
        return false;
    }
    variant->lay_out(limits, head_dim, v_head_dim, tile);
    const uint32_t workgroup = tile->constants.WORKGROUP;
    if (workgroup > limits->max_workgroup_invocations || workgroup > limits->max_workgroup_size[0]) {
        snprintf(reason, reason_size, "its workgroup of %u exceeds the device's %u", workgroup,
                 limits->max_workgroup_invocations < limits->max_workgroup_size[0]
                     ? limits->max_workgroup_invocations
                     : limits->max_workgroup_size[0]);
        return false;
    }
    if (tile->shared_bytes > limits->max_shared_bytes) {
        snprintf(reason, reason_size, "its %u bytes of shared memory exceed the device's %u",
                 tile->shared_bytes, limits->max_shared_bytes);
        return false;
    }
    if (limits->max_storage_buffers < VKMHA_NUM_STORAGE_BINDINGS) {
        snprintf(reason, reason_size, "its %d storage buffers exceed the device's %u",
                 VKMHA_NUM_STORAGE_BINDINGS, limits->max_storage_buffers);
        return false;
    }
    if (limits->max_push_constant_bytes < sizeof(vkmha_attention_push)) {
        snprintf(reason, reason_size, "its %zu bytes of push constants exceed the device's %u",
                 sizeof(vkmha_attention_push), limits->max_push_constant_bytes);
        return false;
    }
    return true;
}

static const vkmha_variant *find_by_name(vkmha_kernel kernel, const char *name)
{
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        if (variants[i].kernel == kernel && strcmp(variants[i].name, name) == 0) {
            return &variants[i];
        }
    }
    return NULL;
}

vkmha_status vkmha_variant_pick(vkmha_kernel kernel, const char *name, const vkmha_limits *limits,
                                uint32_t head_dim, uint32_t v_head_dim,
                                const vkmha_variant **variant, vkmha_tile *tile,
                                vkmha_error *error)
{
    char reason[128] = "no such row in the table";
    if (name) {
        const vkmha_variant *named = find_by_name(kernel, name);
        if (!named) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s \"%s\" is not in the table",
                              kernel == VKMHA_KERNEL_PROJECT ? "project_kernel" : "attention_kernel",
                              name);
        }
        if (!vkmha_variant_fits(named, limits, head_dim, v_head_dim, tile, reason, sizeof(reason))) {
            return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED, "%s cannot run on this device: %s", name,
                              reason);
        }
        *variant = named;
        return VKMHA_OK;
    }
    const vkmha_variant *picked = NULL;
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        vkmha_tile candidate;
        if (variants[i].kernel == kernel &&
            (variants[i].preferred_types & VKMHA_TYPE_BIT(limits->device_type)) &&
            vkmha_variant_fits(&variants[i], limits, head_dim, v_head_dim, &candidate, reason,
                               sizeof(reason))) {
            picked = &variants[i];
            *tile = candidate;
        }
    }
    if (!picked) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "no kernel for head_dim %u and v_head_dim %u runs on this device: %s",
                          head_dim, v_head_dim, reason);
    }
    *variant = picked;
    return VKMHA_OK;
}
