/* vkmha run: weights + input -> output, or heads -> attention. */
#include "run.h"
#include "verify.h"

#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha run [--weights F [--prefix P]] --input X -o Y [--key K] [--value V]\n"
    "                 [--layer J] [--set NAME=VALUE...] [--tensors T]\n"
    "                 [--num-heads N] [--num-kv-heads N] [--head-dim N]\n"
    "                 [--causal C] [--device D] [--json]\n"
    "\n"
    "Runs one attention layer of a checkpoint on inputs [seq, features] or [batch, seq, features]; "
    "without\n"
    "--weights, attention alone, on heads [batch, seq, heads, dim] or, with the layout bhsd,\n"
    "[batch, heads, seq, dim]. Files are .npy or .safetensors. The output is shaped as the query "
    "and\n"
    "appears whole or not at all.\n"
    "\n"
    "  --weights F       safetensors, or the index.json of a sharded checkpoint\n"
    "  --prefix P        of the layer's tensors; without it, the only layer in the file\n"
    "  --input X         the query: the only tensor, or the one called query. With several, those "
    "called\n"
    "                    key and value, and the options' tensors, are taken from it too\n"
    "  --key K           the key; without it the input's, or the query itself\n"
    "  --value V         the value; without it the input's, or the key itself\n"
    "  -o Y              a .safetensors file (tensor \"output\"), else .npy; with the setting "
    "present,\n"
    "                    a .safetensors file with present_key and present_value too\n"
    "  --layer J         a JSON object of settings; \"rope\": {\"dim\": 64} says rope.dim\n"
    "  --set NAME=VALUE  one setting, in place of the file's; a list is numbers between commas\n"
    "  --tensors T       a safetensors file of options' tensors\n"
    "  --num-heads N, --num-kv-heads N, --head-dim N, --causal C\n"
    "                    as --set num_heads=N and so on: heads where the file does not tell them\n"
    "  --device D        an index or a part of a name, as vkmha info lists them\n"
    "  --json            what was run, as JSON\n"
    "\n"
    "examples: vkmha run --weights model.safetensors --prefix encoder.layer.0.attention \\\n"
    "                    --num-heads 12 --input hidden.npy -o attended.npy\n"
    "          vkmha run --input heads.safetensors --set causal=bottom_right \\\n"
    "                    --set window_left=128 --set softcap=50 -o attended.safetensors\n";

typedef struct run_options {
    const char *weights;
    const char *prefix;
    const char *input;
    const char *key;
    const char *value;
    const char *tensors;
    const char *output;
    const char *device_choice;
    vkmha_settings settings;
    bool is_json;
} run_options;

static void print_help(void)
{
    fputs(usage, stdout);
    printf("\nsettings, named as in vkmha.h (inf and nan are none; sinks may be -inf):\n");
    vkmha_settings_print();
    printf("\noptions' tensors, shaped as in vkmha.h (mask: U8 or BOOL attends, F32 and F16 are "
           "added,\n"
           "I32 holds bits; its leading axes may be missing). With cu_query_lens and cu_key_lens, "
           "packed:\n");
    vkmha_run_print_tensors();
}

/* ---- The problem --------------------------------------------------------------------------- */

static vkmha_status open_files(const run_options *options, vkmha_run_state *run)
{
    const struct {
        const char *path;
        vkmha_run_file *file;
    } files[] = {
        {options->input, &run->input},
        {options->key, &run->key},
        {options->value, &run->value},
        {options->tensors, &run->tensors},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (!files[i].path) {
            continue;
        }
        files[i].file->path = files[i].path;
        const vkmha_status status =
            vkmha_file_open(files[i].path, NULL, &files[i].file->file, run->error);
        if (status != VKMHA_OK) {
            return status;
        }
    }
    return VKMHA_OK;
}

static bool is_safetensors(const char *path)
{
    static const char suffix[] = ".safetensors";
    const size_t length = strlen(path);
    const size_t suffix_length = sizeof(suffix) - 1;
    return length > suffix_length && strcmp(path + length - suffix_length, suffix) == 0;
}

static vkmha_status load_problem(const run_options *options, const vkmha_file *weights,
                                 vkmha_run_state *run)
{
    const vkmha_problem *given = &options->settings.values;
    vkmha_problem *problem = &run->problem;
    vkmha_status status = VKMHA_OK;
    if (weights) {
        const vkmha_checkpoint_params checkpoint = {
            .prefix = options->prefix,
            .num_heads = given->layer.num_heads,
            .num_kv_heads = given->layer.num_kv_heads,
            .head_dim = given->layer.head_dim,
        };
        status = vkmha_checkpoint_layer(weights, &checkpoint, &problem->layer, run->error);
    } else {
        problem->layer.attention_only = true;
    }
    /* The inputs' dimensions are read by it. */
    problem->plan.layout = given->plan.layout;
    if (status == VKMHA_OK) {
        status = vkmha_run_load_inputs(run);
    }
    const vkmha_problem before = *problem;
    if (status == VKMHA_OK) {
        status = vkmha_settings_apply(&options->settings, problem, run->error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_run_check_heads(run, &before);
    }
    if (status == VKMHA_OK) {
        status = vkmha_run_load_tensors(run);
    }
    if (status == VKMHA_OK && problem->plan.has_present && !is_safetensors(options->output)) {
        status = vkmha_tool_fail(run->error, VKMHA_ERROR_INVALID_ARGUMENT,
                                 "-o %s: the setting present needs a .safetensors file",
                                 options->output);
    }
    return status;
}

/* ---- The result ---------------------------------------------------------------------------- */

static int tell(const run_options *options, const vkmha_device *device, const vkmha_trial *trial,
                const vkmha_results *results)
{
    static const char *const stages[VKMHA_NUM_STAGES] = {"project", "attention", "output"};
    vkmha_device_info info;
    vkmha_device_get_info(device, &info);
    cJSON *document = NULL;
    if (options->is_json) {
        document = cJSON_CreateObject();
        vkmha_json_device(document, &info);
        cJSON_AddStringToObject(document, "output", options->output);
    } else {
        printf("device: %s\n", info.name);
    }
    for (uint32_t i = 0; i < VKMHA_NUM_STAGES; i++) {
        const char *kernel = trial->info.stages[i].kernel;
        if (!kernel) {
            continue;
        }
        if (options->is_json) {
            cJSON *stage = cJSON_AddObjectToObject(document, stages[i]);
            cJSON_AddStringToObject(stage, "kernel", kernel);
            if (trial->has_times) {
                cJSON_AddNumberToObject(stage, "ns", (double)results->stage_ns[i]);
            }
        } else if (trial->has_times) {
            printf("%-10s %-28s %10.3f ms\n", stages[i], kernel,
                   1e-6 * (double)results->stage_ns[i]);
        } else {
            printf("%-10s %s\n", stages[i], kernel);
        }
    }
    if (options->is_json) {
        return vkmha_print_json(document, VKMHA_EXIT_RIGHT);
    }
    printf("wrote %s\n", options->output);
    return VKMHA_EXIT_RIGHT;
}

static vkmha_status write_results(const run_options *options, vkmha_run_state *run,
                                  const vkmha_results *results)
{
    const vkmha_problem *problem = &run->problem;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    /* The query's dimensions, but for the features. */
    run->output_dims[run->num_output_dims - 1] =
        problem->layer.attention_only ? sizes.v_head_dim : sizes.output_dim;
    if (!problem->plan.has_present) {
        return vkmha_file_write(options->output, results->output, run->output_dims,
                                run->num_output_dims, run->error);
    }
    const uint64_t batch = problem->plan.batch_size;
    vkmha_named_tensor tensors[] = {
        {.name = "output", .values = results->output, .num_dims = run->num_output_dims},
        {.name = "present_key",
         .values = results->present_key,
         .dims = {batch, sizes.num_kv_heads, sizes.all_keys, problem->layer.head_dim},
         .num_dims = 4},
        {.name = "present_value",
         .values = results->present_value,
         .dims = {batch, sizes.num_kv_heads, sizes.all_keys, sizes.v_head_dim},
         .num_dims = 4},
    };
    memcpy(tensors[0].dims, run->output_dims, sizeof(run->output_dims));
    return vkmha_run_write(options->output, tensors, sizeof(tensors) / sizeof(tensors[0]),
                           run->error);
}

static void close_files(vkmha_run_state *run)
{
    vkmha_file_close(run->input.file);
    vkmha_file_close(run->key.file);
    vkmha_file_close(run->value.file);
    vkmha_file_close(run->tensors.file);
}

static int run_layer(const run_options *options)
{
    vkmha_error error = {0};
    vkmha_file *weights = NULL;
    vkmha_device *device = NULL;
    vkmha_run_state run = {.error = &error};
    vkmha_trial trial = {0};
    vkmha_results results = {0};
    vkmha_status status =
        options->weights ? vkmha_file_open(options->weights, NULL, &weights, &error) : VKMHA_OK;
    if (status == VKMHA_OK) {
        status = open_files(options, &run);
    }
    if (status == VKMHA_OK) {
        status = load_problem(options, weights, &run);
    }
    if (status == VKMHA_OK) {
        status = vkmha_open_device(options->device_choice, &device, &error);
    }
    if (status == VKMHA_OK) {
        const vkmha_plan_params *plan = &run.problem.plan;
        status = vkmha_trial_create(device, &run.problem, plan->project_kernel,
                                    plan->attention_kernel, &trial, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, &run.problem, false, &run.pool, &results, &error);
    }
    if (status == VKMHA_OK) {
        status = write_results(options, &run, &results);
    }
    const int code =
        status == VKMHA_OK ? tell(options, device, &trial, &results) : vkmha_tool_report(&error);
    vkmha_trial_finish(&trial);
    vkmha_pool_finish(&run.pool);
    vkmha_device_destroy(device);
    close_files(&run);
    vkmha_file_close(weights);
    return code;
}

/* ---- The command --------------------------------------------------------------------------- */

enum {
    WEIGHTS = 256,
    PREFIX,
    INPUT,
    KEY,
    VALUE,
    TENSORS,
    LAYER,
    SET,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    CAUSAL,
    DEVICE,
    JSON,
};

/* Settings on the command line, whatever their order, take the place of the file's. */
static vkmha_status take_setting(run_options *options, int option, const char *value,
                                 vkmha_error *error)
{
    static const struct {
        int option;
        const char *text;
        const char *name;
    } names[] = {
        {HEADS, "--num-heads", "num_heads"},
        {KV_HEADS, "--num-kv-heads", "num_kv_heads"},
        {HEAD_DIM, "--head-dim", "head_dim"},
        {CAUSAL, "--causal", "causal"},
    };
    if (option == SET) {
        return vkmha_settings_assign(&options->settings, value, error);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].option == option) {
            return vkmha_settings_set(&options->settings, names[i].text, names[i].name, value,
                                      error);
        }
    }
    return VKMHA_OK;
}

static const struct option known[] = {
    {"weights", required_argument, NULL, WEIGHTS},
    {"prefix", required_argument, NULL, PREFIX},
    {"input", required_argument, NULL, INPUT},
    {"key", required_argument, NULL, KEY},
    {"value", required_argument, NULL, VALUE},
    {"tensors", required_argument, NULL, TENSORS},
    {"layer", required_argument, NULL, LAYER},
    {"set", required_argument, NULL, SET},
    {"output", required_argument, NULL, 'o'},
    {"num-heads", required_argument, NULL, HEADS},
    {"num-kv-heads", required_argument, NULL, KV_HEADS},
    {"head-dim", required_argument, NULL, HEAD_DIM},
    {"causal", required_argument, NULL, CAUSAL},
    {"device", required_argument, NULL, DEVICE},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* is_first: the layer's file alone is read, since the other settings replace its own. */
static int read_options(int argc, char **argv, bool is_first, run_options *options)
{
    vkmha_error error = {0};
    int option;
    optind = 1;
    while ((option = vkmha_next_option(argc, argv, ":o:h", known)) != -1) {
        vkmha_status status = VKMHA_OK;
        switch (option) {
        case WEIGHTS:
            options->weights = optarg;
            break;
        case PREFIX:
            options->prefix = optarg;
            break;
        case INPUT:
            options->input = optarg;
            break;
        case KEY:
            options->key = optarg;
            break;
        case VALUE:
            options->value = optarg;
            break;
        case TENSORS:
            options->tensors = optarg;
            break;
        case 'o':
            options->output = optarg;
            break;
        case DEVICE:
            options->device_choice = optarg;
            break;
        case JSON:
            options->is_json = true;
            break;
        case 'h':
            print_help();
            return -1;
        case LAYER:
            status = is_first ? vkmha_settings_load(&options->settings, optarg, &error) : VKMHA_OK;
            break;
        case '?':
            return VKMHA_EXIT_MISUSE;
        default:
            status = is_first ? VKMHA_OK : take_setting(options, option, optarg, &error);
            break;
        }
        if (status != VKMHA_OK) {
            return vkmha_tool_report(&error);
        }
    }
    if (optind < argc) {
        return vkmha_tool_misuse("run takes no argument \"%s\"", argv[optind]);
    }
    return VKMHA_EXIT_RIGHT;
}

int vkmha_command_run(int argc, char **argv)
{
    run_options options = {0};
    int code = read_options(argc, argv, true, &options);
    if (code == VKMHA_EXIT_RIGHT) {
        code = read_options(argc, argv, false, &options);
    }
    if (code == VKMHA_EXIT_RIGHT) {
        if (!options.input || !options.output) {
            code = vkmha_tool_misuse("run needs --input and -o; see vkmha run --help");
        } else if (options.prefix && !options.weights) {
            code = vkmha_tool_misuse("--prefix needs --weights");
        } else {
            code = run_layer(&options);
        }
    }
    vkmha_settings_finish(&options.settings);
    return code < 0 ? VKMHA_EXIT_RIGHT : code;
}
