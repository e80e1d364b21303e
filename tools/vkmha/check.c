/* vkmha check: device against reference and expected values, on cases and on random shapes. */
#include "report.h"
#include "shape.h"
#include "stored.h"

#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha check [FILE|FOLDER...] [--grid [--count N | --seconds S] [--seed S]]\n"
    "                   [--without O...] [--precision T] [--weights T] [--device D] [--kernel K]\n"
    "                   [--json]\n"
    "\n"
    "Runs cases (safetensors files that say what to compute and what is expected) and random "
    "shapes,\n"
    "with every usable kernel row: each stage against the CPU reference fed the device's own "
    "inputs of\n"
    "that stage, the whole against the reference, and the expected tensors of the case.\n"
    "\n"
    "  --grid          random shapes and options, 100 of them or as follows\n"
    "  --count N       so many shapes\n"
    "  --seconds S     as many shapes as fit in this time\n"
    "  --seed S        of the whole grid; without it, from the clock\n"
    "  --shape-seed X  just the shape that a failure named\n"
    "  --first-failure ends at the first shape that fails, without making it smaller\n"
    "  --without O     shapes without this option, as a failure names them; may be repeated\n"
    "  --precision T   cases stored in f32 (default), f16 or bf16: inputs, past, present, output;\n"
    "                  what they expect is compared by their tolerances for f16, if they have some\n"
    "  --weights T     cases' weights kept in f32 (default), f16 or bf16\n"
    "  --device D      an index or a part of a name, as vkmha info lists them\n"
    "  --kernel K      only this row of the kernel table; twice: one for each kind of stage\n"
    "  --json          the result as JSON\n"
    "\n"
    "Exit status: 0 right, 1 a check failed, 2 wrong use, 3 no usable "
    "device.\n"
    "\n"
    "example: vkmha check tests/golden --grid --count 1000\n";

enum {
    DEFAULT_COUNT = 100,
    MAX_FORCED = 2,
};

static void print_report(const vkmha_report *report)
{
    for (uint32_t i = 0; i < report->num_rows; i++) {
        const vkmha_row_count *row = &report->rows[i];
        printf("kernel %-28s %8" PRIu64 " runs", row->name, row->runs);
        if (row->unfit > 0) {
            printf(", %" PRIu64 " problems refused here", row->unfit);
        }
        putchar('\n');
    }
    printf("%" PRIu64 " passed, %" PRIu64 " failed, %" PRIu64 " skipped\n", report->passed,
           report->failed, report->skipped);
}

static void fill_document(cJSON *document, vkmha_report *report)
{
    cJSON *kernels = cJSON_AddObjectToObject(document, "kernels");
    for (uint32_t i = 0; i < report->num_rows; i++) {
        cJSON *row = cJSON_AddObjectToObject(kernels, report->rows[i].name);
        cJSON_AddNumberToObject(row, "runs", (double)report->rows[i].runs);
        cJSON_AddNumberToObject(row, "refused", (double)report->rows[i].unfit);
    }
    cJSON_AddItemToObject(document, "failures", report->failures);
    report->failures = NULL;
    cJSON_AddNumberToObject(document, "passed", (double)report->passed);
    cJSON_AddNumberToObject(document, "failed", (double)report->failed);
    cJSON_AddNumberToObject(document, "skipped", (double)report->skipped);
}

static int run_checks(const vkmha_check_options *options, char **paths, int num_paths)
{
    vkmha_device_info info;
    vkmha_device_get_info(options->device, &info);
    vkmha_report report = {.is_json = options->is_json};
    cJSON *document = NULL;
    if (options->is_json) {
        report.failures = cJSON_CreateArray();
        document = cJSON_CreateObject();
        vkmha_json_device(document, &info);
    } else {
        printf("device: %s (%s)\n", info.name, info.driver);
    }
    if (!vkmha_check_cases(options, paths, num_paths, &report)) {
        cJSON_Delete(report.failures);
        cJSON_Delete(document);
        return VKMHA_EXIT_MISUSE;
    }
    if (options->wants_grid && !report.is_lost) {
        vkmha_check_grid(options, &report, document);
    }
    const int code = report.failed > 0 ? VKMHA_EXIT_FAILED : VKMHA_EXIT_RIGHT;
    if (options->is_json) {
        fill_document(document, &report);
        return vkmha_print_json(document, code);
    }
    print_report(&report);
    return code;
}

static bool leave_out(const char *name, uint64_t *without)
{
    vkmha_option option;
    if (!vkmha_option_find(name, &option)) {
        vkmha_tool_misuse("--without \"%s\" is no option of a shape", name);
        return false;
    }
    *without |= UINT64_C(1) << option;
    return true;
}

int vkmha_command_check(int argc, char **argv)
{
    enum {
        GRID = 256,
        COUNT,
        SECONDS,
        SEED,
        SHAPE_SEED,
        FIRST_FAILURE,
        WITHOUT,
        PRECISION,
        WEIGHTS,
        DEVICE,
        KERNEL,
        JSON
    };
    static const struct option known[] = {
        {"grid", no_argument, NULL, GRID},
        {"count", required_argument, NULL, COUNT},
        {"seconds", required_argument, NULL, SECONDS},
        {"seed", required_argument, NULL, SEED},
        {"shape-seed", required_argument, NULL, SHAPE_SEED},
        {"first-failure", no_argument, NULL, FIRST_FAILURE},
        {"without", required_argument, NULL, WITHOUT},
        {"precision", required_argument, NULL, PRECISION},
        {"weights", required_argument, NULL, WEIGHTS},
        {"device", required_argument, NULL, DEVICE},
        {"kernel", required_argument, NULL, KERNEL},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    /* The clock's nanoseconds, so that two runs in one second differ. */
    vkmha_check_options options = {.seed = (uint64_t)(vkmha_seconds() * 1e9)};
    const char *forced[MAX_FORCED] = {NULL};
    uint32_t num_forced = 0;
    bool has_grid_option = false;
    int option;
    while ((option = vkmha_next_option(argc, argv, ":h", known)) != -1) {
        bool is_right = true;
        switch (option) {
        case GRID:
            options.wants_grid = true;
            break;
        case COUNT:
            is_right = vkmha_parse_option("--count", optarg, 1, INT64_MAX, &options.count);
            options.has_count = true;
            break;
        case SECONDS:
            is_right = vkmha_parse_option("--seconds", optarg, 1, INT32_MAX, &options.seconds);
            has_grid_option = true;
            break;
        case SEED:
            is_right = vkmha_parse_option("--seed", optarg, 0, UINT64_MAX, &options.seed);
            has_grid_option = true;
            break;
        case SHAPE_SEED:
            is_right =
                vkmha_parse_option("--shape-seed", optarg, 0, UINT64_MAX, &options.shape_seed);
            options.has_shape_seed = true;
            break;
        case WITHOUT:
            is_right = leave_out(optarg, &options.without);
            has_grid_option = true;
            break;
        case FIRST_FAILURE:
            options.stops_at_failure = true;
            has_grid_option = true;
            break;
        case PRECISION:
            is_right = vkmha_parse_type("--precision", optarg, &options.precision);
            break;
        case WEIGHTS:
            is_right = vkmha_parse_type("--weights", optarg, &options.weight_type);
            break;
        case DEVICE:
            options.device_choice = optarg;
            break;
        case KERNEL:
            if (num_forced == MAX_FORCED) {
                return vkmha_tool_misuse("--kernel is given more than %d times", MAX_FORCED);
            }
            forced[num_forced++] = optarg;
            break;
        case JSON:
            options.is_json = true;
            break;
        case 'h':
            fputs(usage, stdout);
            return VKMHA_EXIT_RIGHT;
        default:
            is_right = false;
            break;
        }
        if (!is_right) {
            return VKMHA_EXIT_MISUSE;
        }
    }
    has_grid_option = has_grid_option || options.has_count || options.has_shape_seed;
    if (has_grid_option && !options.wants_grid) {
        return vkmha_tool_misuse("--count, --seconds, --seed, --shape-seed and --without need "
                                 "--grid");
    }
    if (optind == argc && !options.wants_grid) {
        return vkmha_tool_misuse("check needs files, folders or --grid; see vkmha check --help");
    }
    if (!options.has_count && options.seconds == 0) {
        options.has_count = true;
        options.count = DEFAULT_COUNT;
    }
    vkmha_error error = {0};
    vkmha_status status = vkmha_open_device(options.device_choice, &options.device, &error);
    if (status == VKMHA_OK) {
        status = vkmha_choose_kernels(options.device, forced, num_forced, &options.kernels, &error);
    }
    const int code = status == VKMHA_OK ? run_checks(&options, argv + optind, argc - optind)
                                        : vkmha_tool_report(&error);
    vkmha_device_destroy(options.device);
    return code;
}
