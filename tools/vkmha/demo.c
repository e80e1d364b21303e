/* vkmha demo: one case with projections, and what it shows. */
#include "verify.h"
#include "words.h"

#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha demo FILE [--device D] [--json]\n"
    "\n"
    "Runs one case with the device's own choice of kernels and shows them, the time of each stage, "
    "the\n"
    "largest error of each against its bound, and, for the longest sentence, the strongest "
    "attention of\n"
    "each head. The attention weights are the CPU reference's: the device never stores them.\n"
    "\n"
    "  --device D  an index or a part of a name, as vkmha info lists them\n"
    "  --json      the same as JSON\n"
    "\n"
    "example: vkmha demo tests/golden/demo_minilm_layer0.safetensors\n";

static const char *const stage_names[VKMHA_NUM_STAGES] = {"project", "attention", "output"};

/* ---- Words --------------------------------------------------------------------------------- */

static uint64_t tokens_of(const vkmha_problem *problem, uint64_t b)
{
    const vkmha_plan_params *plan = &problem->plan;
    const uint64_t all_keys = plan->past_len + plan->key_len;
    uint64_t count = plan->has_key_lengths ? (uint64_t)problem->inputs.key_lengths[b] : all_keys;
    while (plan->has_attend_keys && count > 0 &&
           !problem->inputs.attend_keys[b * all_keys + count - 1]) {
        count--;
    }
    return count;
}

/* The item with the most tokens; of several, the longest text. Returns its number. */
static uint64_t find_longest(const vkmha_case *loaded, vkmha_sentence *longest)
{
    uint64_t found = 0;
    *longest = (vkmha_sentence){0};
    for (uint64_t b = 0; b < loaded->problem.plan.batch_size; b++) {
        vkmha_sentence sentence;
        vkmha_sentence_read(loaded->sentences, b, tokens_of(&loaded->problem, b), &sentence);
        if (sentence.num_tokens > longest->num_tokens ||
            (sentence.num_tokens == longest->num_tokens &&
             strlen(sentence.text) > strlen(longest->text))) {
            *longest = sentence;
            found = b;
        }
    }
    return found;
}

/* ---- Showing ------------------------------------------------------------------------------- */

static void show_attention(const vkmha_case *loaded, const double *weights, cJSON *document)
{
    const vkmha_plan_params *plan = &loaded->problem.plan;
    const uint64_t num_heads = loaded->problem.layer.num_heads;
    const uint64_t all_keys = plan->past_len + plan->key_len;
    vkmha_sentence longest;
    const uint64_t b = find_longest(loaded, &longest);
    const uint64_t num_queries =
        longest.num_tokens < plan->query_len ? longest.num_tokens : plan->query_len;
    if (longest.num_tokens == 0 || longest.num_tokens > VKMHA_MAX_TOKENS || num_queries == 0) {
        return;
    }
    cJSON *heads = NULL;
    if (document) {
        cJSON_AddStringToObject(document, "sentence", longest.text);
        cJSON_AddStringToObject(document, "attention_from", "CPU reference");
        heads = cJSON_AddArrayToObject(document, "strongest_attention");
    } else {
        printf(
            "\nstrongest attention of each head (weights of the CPU reference), longest sentence:\n"
            "  \"%s\"\n",
            longest.text);
    }
    for (uint64_t h = 0; h < num_heads; h++) {
        const double *head = weights + (b * num_heads + h) * plan->query_len * all_keys;
        uint64_t query = 0;
        uint64_t key = 0;
        for (uint64_t i = 0; i < num_queries; i++) {
            for (uint64_t j = 0; j < longest.num_tokens; j++) {
                if (head[i * plan->key_len + j] > head[query * plan->key_len + key]) {
                    query = i;
                    key = j;
                }
            }
        }
        const double weight = head[query * plan->key_len + key];
        if (document) {
            cJSON *row = cJSON_CreateObject();
            cJSON_AddNumberToObject(row, "head", (double)h);
            cJSON_AddStringToObject(row, "query", longest.words[query]);
            cJSON_AddStringToObject(row, "key", longest.words[key]);
            cJSON_AddNumberToObject(row, "weight", weight);
            cJSON_AddItemToArray(heads, row);
        } else {
            printf("  head %2" PRIu64 "  %12s -> %-12s %5.1f %%\n", h, longest.words[query],
                   longest.words[key], 100.0 * weight);
        }
    }
}

static void show_stages(const vkmha_trial *trial, const vkmha_results *results, cJSON *document)
{
    for (uint32_t i = 0; i < VKMHA_NUM_STAGES; i++) {
        const vkmha_stage_info *stage = &trial->info.stages[i];
        if (!stage->kernel) {
            continue;
        }
        const double seconds = 1e-9 * (double)results->stage_ns[i];
        if (document) {
            cJSON *row = cJSON_AddObjectToObject(document, stage_names[i]);
            cJSON_AddStringToObject(row, "kernel", stage->kernel);
            if (trial->has_times) {
                cJSON_AddNumberToObject(row, "ns", (double)results->stage_ns[i]);
            }
        } else if (trial->has_times && seconds > 0.0) {
            printf("  %-10s %-28s %9.3f ms  %7.2f GFLOP/s\n", stage_names[i], stage->kernel,
                   1e3 * seconds, 2e-9 * (double)stage->work / seconds);
        } else {
            printf("  %-10s %s\n", stage_names[i], stage->kernel);
        }
    }
}

static void show_errors(const vkmha_verdict *verdict, cJSON *document)
{
    cJSON *errors = document ? cJSON_AddArrayToObject(document, "errors") : NULL;
    for (uint32_t i = 0; i < verdict->count; i++) {
        const vkmha_judgement *judgement = &verdict->judgements[i];
        const vkmha_comparison *comparison = &judgement->comparison;
        if (document) {
            cJSON *row = cJSON_CreateObject();
            cJSON_AddStringToObject(row, "stage", judgement->stage);
            cJSON_AddNumberToObject(row, "max_abs", comparison->max_abs);
            cJSON_AddNumberToObject(row, "max_ratio", comparison->max_ratio);
            cJSON_AddBoolToObject(row, "passed", comparison->passed);
            cJSON_AddItemToArray(errors, row);
        } else {
            printf("  %-36s largest error %.2e, %5.1f %% of its %s%s\n", judgement->stage,
                   comparison->max_abs, 100.0 * comparison->max_ratio,
                   judgement->is_bound ? "bound" : "tolerance",
                   comparison->passed ? "" : "  FAILED");
        }
    }
}

/* ---- The command --------------------------------------------------------------------------- */

static vkmha_status load_demo(const char *path, vkmha_case *loaded, vkmha_error *error)
{
    bool is_case = false;
    const vkmha_status status = vkmha_case_load(path, loaded, &is_case, error);
    if (status == VKMHA_OK && !is_case) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE,
                               "%s: vkmha_case is missing: this is no case", path);
    }
    return status;
}

static double *reference_weights(const vkmha_problem *problem, vkmha_pool *pool,
                                 vkmha_status *status, vkmha_error *error)
{
    const vkmha_plan_params *plan = &problem->plan;
    double *weights = vkmha_pool_allocate(pool,
                                          plan->batch_size * problem->layer.num_heads *
                                              plan->query_len * (plan->past_len + plan->key_len),
                                          sizeof(double));
    const vkmha_reference_outputs outputs = {.weights = weights};
    *status = weights ? vkmha_reference_run(&problem->layer, plan, &problem->inputs, NULL, NULL,
                                            &outputs, error)
                      : vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    return weights;
}

static int show_demo(vkmha_device *device, const vkmha_case *loaded, bool is_json)
{
    const vkmha_problem *problem = &loaded->problem;
    vkmha_error error = {0};
    vkmha_trial trial = {0};
    vkmha_pool pool = {0};
    vkmha_results results = {0};
    vkmha_verdict verdict = {0};
    double *weights = NULL;
    int code = VKMHA_EXIT_RIGHT;
    vkmha_status status = vkmha_trial_create(device, problem, NULL, NULL, &trial, &error);
    /* A driver may compile at the first dispatch: the second run is the one that is timed. */
    for (int i = 0; status == VKMHA_OK && i < 2; i++) {
        status = vkmha_trial_run(&trial, problem, true, &pool, &results, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_verify(problem, &trial, &results, loaded, &pool, &verdict, &error);
    }
    if (status == VKMHA_OK) {
        weights = reference_weights(problem, &pool, &status, &error);
    }
    if (status != VKMHA_OK) {
        code = vkmha_tool_report(&error);
        goto done;
    }
    code = verdict.has_failed ? VKMHA_EXIT_FAILED : VKMHA_EXIT_RIGHT;
    vkmha_device_info info;
    vkmha_device_get_info(device, &info);
    cJSON *document = NULL;
    if (is_json) {
        document = cJSON_CreateObject();
        vkmha_json_device(document, &info);
        cJSON_AddStringToObject(document, "case", loaded->name);
    } else {
        printf("device: %s (%s)\n", info.name, info.driver);
        printf("layer: %s, %u heads of %u, batch %" PRIu64 ", %" PRIu64 " tokens\n\n", loaded->name,
               problem->layer.num_heads, problem->layer.head_dim, problem->plan.batch_size,
               problem->plan.query_len);
        printf("kernels and times on the device:\n");
    }
    show_stages(&trial, &results, document);
    if (!is_json) {
        printf("\nevery element against the CPU reference:\n");
    }
    show_errors(&verdict, document);
    show_attention(loaded, weights, document);
    if (verdict.has_failed) {
        char text[320];
        vkmha_verdict_describe(&verdict, text, sizeof(text));
        vkmha_tool_misuse("check failed: %s", text);
    }
    code = is_json ? vkmha_print_json(document, code) : code;

done:
    vkmha_trial_finish(&trial);
    vkmha_pool_finish(&pool);
    return code;
}

int vkmha_command_demo(int argc, char **argv)
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
    if (optind + 1 != argc) {
        return vkmha_tool_misuse("demo needs one case file; see vkmha demo --help");
    }
    vkmha_error error = {0};
    vkmha_case loaded = {0};
    vkmha_device *device = NULL;
    vkmha_status status = load_demo(argv[optind], &loaded, &error);
    if (status == VKMHA_OK) {
        status = vkmha_open_device(choice, &device, &error);
    }
    const int code =
        status == VKMHA_OK ? show_demo(device, &loaded, is_json) : vkmha_tool_report(&error);
    vkmha_case_finish(&loaded);
    vkmha_device_destroy(device);
    return code;
}
