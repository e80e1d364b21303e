/* vkmha info: devices, limits, kernels. */
#include "tool.h"

#include <inttypes.h>

static const char usage[] = "usage: vkmha info [--device D] [--json]\n"
                            "\n"
                            "Lists the devices, what the planner knows of each, and the kernel "
                            "rows: which are usable, which are\n"
                            "chosen for usual shapes, and why the others are not usable.\n"
                            "\n"
                            "  --device D  only this one: an index or a part of a name\n"
                            "  --json      the same as JSON\n"
                            "\n"
                            "example: vkmha info --json\n";

/* A limit's name and value, for text and JSON. */
typedef struct limit_line {
    const char *name;
    uint64_t value;
} limit_line;

enum {
    NUM_LIMITS = 17,
};

static void list_limits(const vkmha_limits *limits, limit_line *lines)
{
    const limit_line all[NUM_LIMITS] = {
        {"subgroup_size", limits->subgroup_size},
        {"max_workgroup_invocations", limits->max_workgroup_invocations},
        {"max_workgroup_size_x", limits->max_workgroup_size[0]},
        {"max_workgroup_size_y", limits->max_workgroup_size[1]},
        {"max_workgroup_size_z", limits->max_workgroup_size[2]},
        {"max_groups_x", limits->max_groups[0]},
        {"max_groups_y", limits->max_groups[1]},
        {"max_groups_z", limits->max_groups[2]},
        {"max_shared_bytes", limits->max_shared_bytes},
        {"max_push_constant_bytes", limits->max_push_constant_bytes},
        {"max_storage_buffers", limits->max_storage_buffers},
        {"max_storage_range_bytes", limits->max_storage_range_bytes},
        {"max_allocation_bytes", limits->max_allocation_bytes},
        {"storage_alignment_bytes", limits->storage_alignment_bytes},
        {"non_coherent_atom_bytes", limits->non_coherent_atom_bytes},
        {"max_loop_trips", limits->max_loop_trips},
        {"max_work_per_dispatch", limits->max_work_per_dispatch},
    };
    for (uint32_t i = 0; i < NUM_LIMITS; i++) {
        lines[i] = all[i];
    }
}

static void print_device(const vkmha_device *device, const vkmha_device_info *info)
{
    limit_line lines[NUM_LIMITS];
    list_limits(&info->limits, lines);
    printf("  driver: %s; Vulkan %u.%u.%u; vendor 0x%04x, device 0x%04x\n", info->driver,
           info->api_version >> 22 & 0x7fu, info->api_version >> 12 & 0x3ffu,
           info->api_version & 0xfffu, info->vendor_id, info->device_id);
    printf("  subgroup operations: %s\n", info->subgroup_status);
    printf("  timestamp_period_ns %g\n", info->limits.timestamp_period_ns);
    for (uint32_t i = 0; i < NUM_LIMITS; i++) {
        printf("  %-26s %" PRIu64 "%s\n", lines[i].name, lines[i].value,
               lines[i].value == 0 ? " (none)" : "");
    }
    vkmha_kernel_info kernel;
    for (uint32_t i = 0; vkmha_device_get_kernel(device, i, &kernel); i++) {
        printf("  kernel %-28s %s%s\n", kernel.name,
               kernel.chosen   ? "chosen"
               : kernel.usable ? "usable"
                               : "not usable: ",
               kernel.usable ? "" : kernel.reason);
    }
}

static void fill_device(cJSON *document, const vkmha_device *device, const vkmha_device_info *info)
{
    limit_line lines[NUM_LIMITS];
    list_limits(&info->limits, lines);
    cJSON_AddStringToObject(document, "driver", info->driver);
    cJSON_AddNumberToObject(document, "api_version", info->api_version);
    cJSON_AddNumberToObject(document, "vendor_id", info->vendor_id);
    cJSON_AddNumberToObject(document, "device_id", info->device_id);
    cJSON_AddStringToObject(document, "subgroup_status", info->subgroup_status);
    cJSON *limits = cJSON_AddObjectToObject(document, "limits");
    cJSON_AddNumberToObject(limits, "timestamp_period_ns", info->limits.timestamp_period_ns);
    for (uint32_t i = 0; i < NUM_LIMITS; i++) {
        cJSON_AddNumberToObject(limits, lines[i].name, (double)lines[i].value);
    }
    cJSON *kernels = cJSON_AddArrayToObject(document, "kernels");
    vkmha_kernel_info kernel;
    for (uint32_t i = 0; vkmha_device_get_kernel(device, i, &kernel); i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", kernel.name);
        cJSON_AddBoolToObject(row, "usable", kernel.usable);
        cJSON_AddBoolToObject(row, "chosen", kernel.chosen);
        cJSON_AddStringToObject(row, "reason", kernel.reason);
        cJSON_AddItemToArray(kernels, row);
    }
}

/* True where the device could be opened. */
static bool show_device(const char *title, const vkmha_device_params *params, cJSON *devices)
{
    vkmha_device *device = NULL;
    vkmha_error error = {0};
    const vkmha_status status = vkmha_device_create(params, &device, &error);
    vkmha_device_info info = {0};
    if (status == VKMHA_OK) {
        vkmha_device_get_info(device, &info);
    }
    if (devices) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "name", status == VKMHA_OK ? info.name : title);
        if (status == VKMHA_OK) {
            cJSON_AddStringToObject(document, "type",
                                    vkmha_device_type_name(info.limits.device_type));
            fill_device(document, device, &info);
        } else {
            cJSON_AddStringToObject(document, "error", error.message);
        }
        cJSON_AddItemToArray(devices, document);
    } else if (status == VKMHA_OK) {
        printf("%s%s (%s)\n", title, info.name, vkmha_device_type_name(info.limits.device_type));
        print_device(device, &info);
    } else {
        printf("%snot usable: %s\n", title, error.message);
    }
    vkmha_device_destroy(device);
    return status == VKMHA_OK;
}

static int show_all(bool is_json)
{
    vkmha_error error = {0};
    uint32_t count = 0;
    if (vkmha_device_list(NULL, &count, &error) != VKMHA_OK) {
        return vkmha_tool_report(&error);
    }
    if (count == 0) {
        vkmha_tool_misuse("the drivers show no device");
        return VKMHA_EXIT_NO_DEVICE;
    }
    cJSON *document = is_json ? cJSON_CreateObject() : NULL;
    cJSON *devices = is_json ? cJSON_AddArrayToObject(document, "devices") : NULL;
    bool has_usable = false;
    for (uint32_t i = 0; i < count; i++) {
        char title[32];
        snprintf(title, sizeof(title), "device %u: ", i);
        const vkmha_device_params params = {.has_index = true, .index = i};
        has_usable = show_device(title, &params, devices) || has_usable;
    }
    vkmha_device *device = NULL;
    vkmha_device_info info = {0};
    if (vkmha_open_device(NULL, &device, &error) == VKMHA_OK) {
        vkmha_device_get_info(device, &info);
        if (is_json) {
            cJSON_AddStringToObject(document, "default", info.name);
        } else {
            printf("default: %s\n", info.name);
        }
    }
    vkmha_device_destroy(device);
    const int code = has_usable ? VKMHA_EXIT_RIGHT : VKMHA_EXIT_NO_DEVICE;
    return is_json ? vkmha_print_json(document, code) : code;
}

static int show_one(const char *choice, bool is_json)
{
    vkmha_device *device = NULL;
    vkmha_error error = {0};
    if (vkmha_open_device(choice, &device, &error) != VKMHA_OK) {
        return vkmha_tool_report(&error);
    }
    vkmha_device_info info;
    vkmha_device_get_info(device, &info);
    int code = VKMHA_EXIT_RIGHT;
    if (is_json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "name", info.name);
        cJSON_AddStringToObject(document, "type", vkmha_device_type_name(info.limits.device_type));
        fill_device(document, device, &info);
        code = vkmha_print_json(document, code);
    } else {
        printf("device: %s (%s)\n", info.name, vkmha_device_type_name(info.limits.device_type));
        print_device(device, &info);
    }
    vkmha_device_destroy(device);
    return code;
}

int vkmha_command_info(int argc, char **argv)
{
    enum { DEVICE = 256, JSON };
    static const struct option known[] = {
        {"device", required_argument, NULL, DEVICE},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *choice = NULL;
    bool is_json = false;
    int option;
    while ((option = vkmha_next_option(argc, argv, ":h", known)) != -1) {
        switch (option) {
        case DEVICE:
            choice = optarg;
            break;
        case JSON:
            is_json = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return VKMHA_EXIT_RIGHT;
        default:
            return VKMHA_EXIT_MISUSE;
        }
    }
    if (optind < argc) {
        return vkmha_tool_misuse("info takes no argument \"%s\"", argv[optind]);
    }
    return choice ? show_one(choice, is_json) : show_all(is_json);
}
