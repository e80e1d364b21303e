/* vkmha run: weights + input -> output, or heads -> attention. */
#include "run.h"
#include "stored.h"
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
    "                    a .safetensors file with present_key and present_value too; each in its "
    "type,\n"
    "                    as output_type and cache_type say\n"
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
    vkmha_run_options shared;
    const char *output;
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
    const vkmha_status status = vkmha_run_load(&options->shared, weights, run);
    if (status != VKMHA_OK) {
        return status;
    }
    vkmha_plan_params *plan = &run->problem.plan;
    const bool is_narrow = plan->output_type != VKMHA_TYPE_F32;
    if ((plan->has_present || is_narrow) && !is_safetensors(options->output)) {
        return vkmha_tool_fail(run->error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "-o %s: the setting %s needs a .safetensors file", options->output,
                               plan->has_present ? "present" : "output_type");
    }
    /* What is one tensor has one type, which need not be said twice. */
    if (plan->key_is_query && plan->key_type == VKMHA_TYPE_F32) {
        plan->key_type = plan->query_type;
    }
    if (plan->value_is_key && plan->value_type == VKMHA_TYPE_F32) {
        plan->value_type = plan->key_type;
    }
    vkmha_problem_round(&run->problem);
    return VKMHA_OK;
}

/* ---- The result ---------------------------------------------------------------------------- */

static int tell(const run_options *options, const vkmha_device *device, const vkmha_trial *trial,
                const vkmha_results *results)
{
    static const char *const stages[VKMHA_NUM_STAGES] = {"project", "attention", "output"};
    vkmha_device_info info;
    vkmha_device_get_info(device, &info);
    cJSON *document = NULL;
    if (options->shared.is_json) {
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
        if (options->shared.is_json) {
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
    if (options->shared.is_json) {
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
    if (!problem->plan.has_present && problem->plan.output_type == VKMHA_TYPE_F32) {
        return vkmha_file_write(options->output, results->output, run->output_dims,
                                run->num_output_dims, run->error);
    }
    const uint64_t batch = problem->plan.batch_size;
    vkmha_named_tensor tensors[] = {
        {.name = "output",
         .values = results->output,
         .type = problem->plan.output_type,
         .num_dims = run->num_output_dims},
        {.name = "present_key",
         .values = results->present_key,
         .type = problem->layer.cache_type,
         .dims = {batch, sizes.num_kv_heads, sizes.all_keys, problem->layer.head_dim},
         .num_dims = 4},
        {.name = "present_value",
         .values = results->present_value,
         .type = problem->layer.cache_type,
         .dims = {batch, sizes.num_kv_heads, sizes.all_keys, sizes.v_head_dim},
         .num_dims = 4},
    };
    memcpy(tensors[0].dims, run->output_dims, sizeof(run->output_dims));
    const uint32_t count = problem->plan.has_present ? 3 : 1;
    return vkmha_run_write(options->output, tensors, count, run->error);
}

static int run_layer(const run_options *options)
{
    vkmha_error error = {0};
    vkmha_file *weights = NULL;
    vkmha_device *device = NULL;
    vkmha_run_state run = {.error = &error};
    vkmha_trial trial = {0};
    vkmha_results results = {0};
    const char *path = options->shared.weights;
    vkmha_status status = path ? vkmha_file_open(path, NULL, &weights, &error) : VKMHA_OK;
    if (status == VKMHA_OK) {
        status = load_problem(options, weights, &run);
    }
    if (status == VKMHA_OK) {
        status = vkmha_open_device(options->shared.device_choice, &device, &error);
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
    vkmha_run_close(&run);
    vkmha_file_close(weights);
    return code;
}

/* ---- The command --------------------------------------------------------------------------- */

static const struct option known[] = {
    VKMHA_RUN_KNOWN,
    {"output", required_argument, NULL, 'o'},
    {NULL, 0, NULL, 0},
};

/* -o is the only option of its own. */
static bool take_output(void *command, int option, const char *value)
{
    run_options *options = command;
    options->output = option == 'o' ? value : options->output;
    return true;
}

int vkmha_command_run(int argc, char **argv)
{
    run_options options = {0};
    const vkmha_run_reader reader = {":o:h", known, &options.shared, take_output, &options};
    int code = vkmha_run_read(argc, argv, &reader);
    if (code < 0) {
        print_help();
    } else if (code == VKMHA_EXIT_RIGHT) {
        if (optind < argc) {
            code = vkmha_tool_misuse("run takes no argument \"%s\"", argv[optind]);
        } else if (!options.shared.input || !options.output) {
            code = vkmha_tool_misuse("run needs --input and -o; see vkmha run --help");
        } else if (options.shared.prefix && !options.shared.weights) {
            code = vkmha_tool_misuse("--prefix needs --weights");
        } else {
            code = run_layer(&options);
        }
    }
    vkmha_settings_finish(&options.shared.settings);
    return code < 0 ? VKMHA_EXIT_RIGHT : code;
}
