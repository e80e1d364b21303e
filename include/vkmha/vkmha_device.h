/*
 * What a program needs before there is a layer: the version, statuses, host services, devices.
 * vkmha.h includes it, and says what holds for every function.
 */
#ifndef VKMHA_DEVICE_H
#define VKMHA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef VKMHA_API
#if defined(_WIN32) && defined(VKMHA_SHARED)
#ifdef VKMHA_BUILD
#define VKMHA_API __declspec(dllexport)
#else
#define VKMHA_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define VKMHA_API __attribute__((visibility("default")))
#else
#define VKMHA_API
#endif
#endif

/* ---- Version ------------------------------------------------------------------------------------ */

#define VKMHA_VERSION_MAJOR 0
#define VKMHA_VERSION_MINOR 1
#define VKMHA_VERSION_PATCH 0
#define VKMHA_VERSION_NUMBER(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define VKMHA_VERSION \
    VKMHA_VERSION_NUMBER(VKMHA_VERSION_MAJOR, VKMHA_VERSION_MINOR, VKMHA_VERSION_PATCH)

/* The version of the library in use, as VKMHA_VERSION_NUMBER makes it; compare it with VKMHA_VERSION.
 * Thread-safety: any thread. */
VKMHA_API uint32_t vkmha_version(void);

/* ---- Status ------------------------------------------------------------------------------------- */

typedef enum vkmha_status {
    VKMHA_OK = 0,
    VKMHA_ERROR_INVALID_ARGUMENT, /* the call is wrong: mend the named field */
    VKMHA_ERROR_UNSUPPORTED,      /* the call is right, this device or version cannot do it */
    VKMHA_ERROR_NO_DEVICE,        /* no loader, driver or fitting device: use the reference */
    VKMHA_ERROR_OUT_OF_MEMORY,    /* host or device memory: ask for less */
    VKMHA_ERROR_DEVICE_LOST,      /* the device is gone: destroy everything made from it */
    VKMHA_ERROR_FILE,             /* a file is missing, unreadable or malformed (vkmha_files.h) */
} vkmha_status;

/* One line of text: what went wrong, with the field, the value and the rule. */
typedef struct vkmha_error {
    vkmha_status status;
    char message[508];
} vkmha_error;

/* A short name, "invalid argument". Never NULL. Thread-safety: any thread. */
VKMHA_API const char *vkmha_status_name(vkmha_status status);

/* ---- Host services ------------------------------------------------------------------------------ */

typedef enum vkmha_log_level {
    VKMHA_LOG_NONE = 0,
    VKMHA_LOG_ERROR,
    VKMHA_LOG_INFO, /* the device and the kernels chosen, once each */
    VKMHA_LOG_DEBUG,
} vkmha_log_level;

/* Memory and messages. {0} is malloc and silence.
 * Thread-safety: the callbacks are called from whichever thread calls the library. */
typedef struct vkmha_host {
    void *user; /* handed to each callback */
    /* Both or neither. `allocate` returns memory aligned for any type, or NULL; it need not be zeroed. */
    void *(*allocate)(void *user, size_t bytes);
    void (*release)(void *user, void *memory);
    void (*log)(void *user, vkmha_log_level level, const char *message); /* NULL: silence */
    vkmha_log_level log_level; /* the most detailed level that is passed on */
} vkmha_host;

/* ---- Devices ------------------------------------------------------------------------------------ */

typedef enum vkmha_device_type {
    VKMHA_DEVICE_OTHER = 0,
    VKMHA_DEVICE_INTEGRATED,
    VKMHA_DEVICE_DISCRETE,
    VKMHA_DEVICE_VIRTUAL,
    VKMHA_DEVICE_SOFTWARE, /* a CPU driver such as lavapipe or SwiftShader */
} vkmha_device_type;

/* Capability bits: what faster kernels may use beyond Vulkan 1.1 core's minimum. */
enum {
    /* shuffle, vote and arithmetic operations in compute; set only after a self-test on the device */
    VKMHA_CAPABILITY_SUBGROUP = 1u << 0,
};

/* What the planner knows of a device. Filled once when a device is created. */
typedef struct vkmha_limits {
    vkmha_device_type device_type;
    uint32_t capabilities; /* VKMHA_CAPABILITY_ bits that are usable */
    uint32_t subgroup_size;
    uint32_t max_workgroup_invocations;
    uint32_t max_workgroup_size[3];
    uint32_t max_groups[3];
    uint32_t max_shared_bytes;
    uint32_t max_push_constant_bytes;
    uint32_t max_storage_buffers; /* in one shader */
    uint64_t max_storage_range_bytes;
    uint64_t max_uniform_range_bytes;
    uint64_t max_allocation_bytes;
    uint32_t storage_alignment_bytes; /* of a storage buffer's offset */
    uint32_t uniform_alignment_bytes;
    uint32_t non_coherent_atom_bytes;
    uint64_t max_loop_trips;        /* of one invocation, all loops together; 0: no limit */
    uint64_t max_work_per_dispatch; /* multiply-adds; the default by device type, or as given */
    double timestamp_period_ns;     /* 0: this queue has no timestamps */
} vkmha_limits;

typedef struct vkmha_device_info {
    char name[256];
    char driver[512]; /* name and version as the driver tells them; else its version number */
    uint32_t api_version; /* VkPhysicalDeviceProperties::apiVersion */
    uint32_t vendor_id;
    uint32_t device_id;
    vkmha_limits limits;
    char subgroup_status[128]; /* why VKMHA_CAPABILITY_SUBGROUP is set or not */
} vkmha_device_info;

/* Thread-safety: shared. Any number of threads may use one device at once. */
typedef struct vkmha_device vkmha_device;

typedef struct vkmha_device_params {
    const char *name;    /* take the first device whose name contains this text, a software one too */
    bool has_index;      /* take the device at `index` of the driver's order, a software one too */
    uint32_t index;
    bool allow_software; /* let the default choice end at a software device when there is no other */
    uint32_t disabled_capabilities; /* VKMHA_CAPABILITY_ bits to leave unused */
    uint64_t max_work_per_dispatch; /* multiply-adds; 0: the default of the device's type */
    bool force_staging; /* go through staging buffers even where device memory is host-visible */
    const vkmha_host *host; /* copied; NULL: {0} */
    uint32_t reserved[8];
} vkmha_device_params;

/*
 * Opens a device of the library's own.
 *
 * Without name or index: the first discrete device, else integrated, else virtual or other, else, where
 * allow_software, a software one.
 *
 * params: NULL means {0}.
 * Default work limit (multiply-adds a dispatch): 2^35 discrete and software, 2^31 integrated, virtual and other. A
 * dispatch of that size stays below the two seconds after which drivers reset a GPU; lower it for slower
 * parts. Larger work is cut into dispatches, and by vkmha_run into submissions, with the same bits. The least
 * that a dispatch does is one workgroup's tile (in attention: of queries with 1024 keys).
 *
 * Errors: NO_DEVICE (no loader, driver, or no device that fits), INVALID_ARGUMENT, OUT_OF_MEMORY,
 * DEVICE_LOST. On failure *device is NULL.
 * Ownership: the caller destroys it. Layers and plans hold a reference, so the order of destruction is free.
 * Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_device_create(const vkmha_device_params *params, vkmha_device **device,
                                           vkmha_error *error);

/* Releases the caller's reference; NULL is allowed. The device lives until its last layer is gone. */
VKMHA_API void vkmha_device_destroy(vkmha_device *device);

/* Thread-safety: any thread. */
VKMHA_API void vkmha_device_get_info(const vkmha_device *device, vkmha_device_info *info);

typedef struct vkmha_device_entry {
    char name[256];
    vkmha_device_type type;
    uint32_t api_version;
} vkmha_device_entry;

/*
 * Lists the devices that the drivers show, in the order of vkmha_device_params.index.
 * entries: room for *count entries, or NULL to ask for the count alone. *count: in, the room; out, how many
 * there are (not more than `room` entries are written).
 * Errors: NO_DEVICE (no loader or driver), OUT_OF_MEMORY. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_device_list(vkmha_device_entry *entries, uint32_t *count, vkmha_error *error);

typedef struct vkmha_kernel_info {
    const char *name; /* static; "attention_direct_subgroup" */
    bool usable;      /* on this device */
    bool chosen;      /* for usual shapes on this device */
    char reason[128]; /* why it is not usable; else empty */
} vkmha_kernel_info;

/* Tells about row `index` of the kernel table; false past its end. Thread-safety: any thread. */
VKMHA_API bool vkmha_device_get_kernel(const vkmha_device *device, uint32_t index, vkmha_kernel_info *info);

/*
 * Measures the device's fp32 multiply-add rate: 64 invocations a group, 16 independent chains each, 1000
 * trips, as many groups as keep it busy for 25 to 50 ms (or 65535). *flops: operations per second, two a multiply-add.
 * Errors: UNSUPPORTED (no timestamps), OUT_OF_MEMORY, DEVICE_LOST. Thread-safety: any thread.
 */
VKMHA_API vkmha_status vkmha_device_measure_peak(vkmha_device *device, double *flops, vkmha_error *error);

#ifdef __cplusplus
}
#endif

#endif
