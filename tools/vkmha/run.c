/* vkmha run: weights + input -> output. */
#include "verify.h"

#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha run --weights F --input X -o Y [--prefix P] [--key K [--value V]]\n"
    "                 [--num-heads N] [--num-kv-heads N] [--head-dim N]\n"
    "                 [--causal top_left|bottom_right] [--device D] [--json]\n"
    "\n"
    "Runs one attention layer of a checkpoint. Inputs are .npy or .safetensors, [seq, features] "
    "or\n"
    "[batch, seq, features]; the output is shaped alike and appears whole or not at all.\n"
    "\n"
    "  --weights F       safetensors, or the index.json of a sharded checkpoint\n"
    "  --prefix P        of the layer's tensors; without it, the only layer in the file\n"
    "  --input X         the query; the key and value too where no --key is given\n"
    "  --key K           the key; the value too where no --value is given\n"
    "  -o Y              a .safetensors file (tensor \"output\"), else .npy\n"
    "  --num-heads N, --num-kv-heads N, --head-dim N\n"
    "                    where the file does not tell them\n"
    "  --device D        an index or a part of a name, as vkmha info lists them\n"
    "  --json            what was run, as JSON\n"
    "\n"
    "In a safetensors input, the tensor is the only one, or the one called query, key or value.\n"
    "\n"
    "example: vkmha run --weights model.safetensors --prefix encoder.layer.0.attention \\\n"
    "                   --num-heads 12 --input hidden.npy -o attended.npy\n";

typedef struct run_options {
    const char *weights;
    const char *input;
    const char *key;
    const char *value;
    const char *output;
    const char *device_choice;
    vkmha_checkpoint_params checkpoint;
    vkmha_causal causal;
    bool is_json;
} run_options;

typedef struct sequence {
    const float *values;
    uint32_t num_dims;
    uint64_t batch_size;
    uint64_t length;
    uint64_t features;
} sequence;

static vkmha_status find_input(const vkmha_file *file, const char *path, const char *role,
                               const vkmha_tensor **tensor, vkmha_error *error)
{
    *tensor = vkmha_file_num_tensors(file) == 1 ? vkmha_file_tensor(file, 0)
                                                : vkmha_file_find(file, role);
    if (!*tensor) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE,
                               "%s: %" PRIu64 " tensors, and none of them is called %s", path,
                               vkmha_file_num_tensors(file), role);
    }
    if ((*tensor)->num_dims != 2 && (*tensor)->num_dims != 3) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE,
                               "%s: the tensor has %u dimensions; [seq, features] or "
                               "[batch, seq, features] is needed",
                               path, (*tensor)->num_dims);
    }
    return VKMHA_OK;
}

static vkmha_status load_sequence(const char *path, const char *role, vkmha_pool *pool,
                                  sequence *loaded, vkmha_error *error)
{
    vkmha_file *file = NULL;
    const vkmha_tensor *tensor = NULL;
    vkmha_status status = vkmha_file_open(path, NULL, &file, error);
    if (status == VKMHA_OK) {
        status = find_input(file, path, role, &tensor, error);
    }
    if (status == VKMHA_OK) {
        float *values = vkmha_pool_allocate(pool, tensor->count, sizeof(float));
        status = values
                     ? vkmha_tensor_to_f32(tensor, values, error)
                     : vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "%s: out of memory", path);
        const uint64_t *dims = tensor->dims + (tensor->num_dims - 2);
        *loaded = (sequence){
            .values = values,
            .num_dims = tensor->num_dims,
            .batch_size = tensor->num_dims == 3 ? tensor->dims[0] : 1,
            .length = dims[0],
            .features = dims[1],
        };
    }
    vkmha_file_close(file);
    return status;
}

static vkmha_status require_equal(const char *path, const char *what, uint64_t got, uint64_t needed,
                                  const char *rule, vkmha_error *error)
{
    if (got == needed) {
        return VKMHA_OK;
    }
    return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                           "%s: %s %" PRIu64 " differs from %s %" PRIu64, path, what, got, rule,
                           needed);
}

static vkmha_status load_problem(const run_options *options, const vkmha_file *weights,
                                 vkmha_pool *pool, vkmha_problem *problem, uint32_t *num_dims,
                                 vkmha_error *error)
{
    *problem = (vkmha_problem){0};
    sequence query = {0};
    vkmha_status status =
        vkmha_checkpoint_layer(weights, &options->checkpoint, &problem->layer, error);
    if (status == VKMHA_OK) {
        status = load_sequence(options->input, "query", pool, &query, error);
    }
    sequence key = query;
    if (status == VKMHA_OK && options->key) {
        status = load_sequence(options->key, "key", pool, &key, error);
    }
    sequence value = key;
    if (status == VKMHA_OK && options->value) {
        status = load_sequence(options->value, "value", pool, &value, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    problem->plan = (vkmha_plan_params){
        .batch_size = query.batch_size,
        .query_len = query.length,
        .key_len = key.length,
        .key_is_query = !options->key,
        .value_is_key = !options->value,
        .causal = options->causal,
    };
    problem->inputs = (vkmha_inputs){
        .query = query.values,
        .key = options->key ? key.values : NULL,
        .value = options->value ? value.values : NULL,
    };
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const char *key_path = options->key ? options->key : options->input;
    const char *value_path = options->value ? options->value : key_path;
    const struct {
        const char *path;
        const char *what;
        uint64_t got;
        uint64_t needed;
        const char *rule;
    } rules[] = {
        {options->input, "features", query.features, sizes.query_dim, "the layer's embed_dim"},
        {key_path, "features", key.features, sizes.key_dim, "the layer's key_dim"},
        {value_path, "features", value.features, sizes.value_dim, "the layer's value_dim"},
        {key_path, "batch", key.batch_size, query.batch_size, "the query's"},
        {value_path, "batch", value.batch_size, query.batch_size, "the query's"},
        {value_path, "length", value.length, key.length, "the key's"},
    };
    for (size_t i = 0; status == VKMHA_OK && i < sizeof(rules) / sizeof(rules[0]); i++) {
        status = require_equal(rules[i].path, rules[i].what, rules[i].got, rules[i].needed,
                               rules[i].rule, error);
    }
    *num_dims = query.num_dims;
    return status;
}

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

static int run_layer(const run_options *options)
{
    vkmha_error error = {0};
    vkmha_file *weights = NULL;
    vkmha_device *device = NULL;
    vkmha_pool pool = {0};
    vkmha_problem problem;
    vkmha_trial trial = {0};
    vkmha_results results = {0};
    uint32_t num_dims = 0;
    vkmha_status status = vkmha_file_open(options->weights, NULL, &weights, &error);
    if (status == VKMHA_OK) {
        status = load_problem(options, weights, &pool, &problem, &num_dims, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_open_device(options->device_choice, &device, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_create(device, &problem, NULL, NULL, &trial, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, &problem, false, &pool, &results, &error);
    }
    if (status == VKMHA_OK) {
        const uint64_t dims[3] = {problem.plan.batch_size, problem.plan.query_len,
                                  vkmha_problem_measure(&problem).output_dim};
        status = vkmha_file_write(options->output, results.output, dims + (3 - num_dims), num_dims,
                                  &error);
    }
    const int code =
        status == VKMHA_OK ? tell(options, device, &trial, &results) : vkmha_tool_report(&error);
    vkmha_trial_finish(&trial);
    vkmha_pool_finish(&pool);
    vkmha_device_destroy(device);
    vkmha_file_close(weights);
    return code;
}

static bool parse_causal(const char *text, vkmha_causal *causal)
{
    if (strcmp(text, "top_left") == 0) {
        *causal = VKMHA_CAUSAL_TOP_LEFT;
        return true;
    }
    if (strcmp(text, "bottom_right") == 0) {
        *causal = VKMHA_CAUSAL_BOTTOM_RIGHT;
        return true;
    }
    vkmha_tool_misuse("--causal \"%s\" is neither top_left nor bottom_right", text);
    return false;
}

static bool parse_count(const char *option, uint32_t *count)
{
    uint64_t number = 0;
    const bool is_right = vkmha_parse_option(option, optarg, 1, UINT32_MAX, &number);
    *count = (uint32_t)number;
    return is_right;
}

int vkmha_command_run(int argc, char **argv)
{
    enum {
        WEIGHTS = 256,
        PREFIX,
        INPUT,
        KEY,
        VALUE,
        HEADS,
        KV_HEADS,
        HEAD_DIM,
        CAUSAL,
        DEVICE,
        JSON
    };
    static const struct option known[] = {
        {"weights", required_argument, NULL, WEIGHTS},
        {"prefix", required_argument, NULL, PREFIX},
        {"input", required_argument, NULL, INPUT},
        {"key", required_argument, NULL, KEY},
        {"value", required_argument, NULL, VALUE},
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
    run_options options = {0};
    int option;
    while ((option = vkmha_next_option(argc, argv, ":o:h", known)) != -1) {
        bool is_right = true;
        switch (option) {
        case WEIGHTS:
            options.weights = optarg;
            break;
        case PREFIX:
            options.checkpoint.prefix = optarg;
            break;
        case INPUT:
            options.input = optarg;
            break;
        case KEY:
            options.key = optarg;
            break;
        case VALUE:
            options.value = optarg;
            break;
        case 'o':
            options.output = optarg;
            break;
        case HEADS:
            is_right = parse_count("--num-heads", &options.checkpoint.num_heads);
            break;
        case KV_HEADS:
            is_right = parse_count("--num-kv-heads", &options.checkpoint.num_kv_heads);
            break;
        case HEAD_DIM:
            is_right = parse_count("--head-dim", &options.checkpoint.head_dim);
            break;
        case CAUSAL:
            is_right = parse_causal(optarg, &options.causal);
            break;
        case DEVICE:
            options.device_choice = optarg;
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
    if (optind < argc) {
        return vkmha_tool_misuse("run takes no argument \"%s\"", argv[optind]);
    }
    if (!options.weights || !options.input || !options.output) {
        return vkmha_tool_misuse("run needs --weights, --input and -o; see vkmha run --help");
    }
    if (options.value && !options.key) {
        return vkmha_tool_misuse("--value needs --key");
    }
    return run_layer(&options);
}
