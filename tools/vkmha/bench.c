/* vkmha bench: checks, then times each usable kernel row. */
#include "sample.h"
#include "shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha bench [--shape S1..S5|B,S,H,D[,causal]]... [--runs N] [--device D] [--kernel K] "
    "[--json]\n"
    "\n"
    "Times each usable kernel row on whole layers, by the device's own clock: median, spread\n"
    "((largest - smallest) / median), GFLOP/s, share of the multiply-add peak measured just "
    "before, and\n"
    "the ratio to row 0 of the same stage. What fails its check is not timed: each stage is "
    "compared with\n"
    "the CPU reference fed the device's own inputs of that stage, on 64 rows a projection and 16 "
    "queries a\n"
    "sequence (all heads, all keys), spread from first to last.\n"
    "\n"
    "  --shape S   S1: d_model 384, 12 heads, batch 8, 128 tokens; S2: 768, 12, 4, 512;\n"
    "              S3: 1024, 16, 1, 1024, causal; S4: 512, 8, 1, 4096; S5: 2048, 32 query and\n"
    "              8 key/value heads, batch 1, 1 query, 2048 keys; or batch,tokens,heads,d_model.\n"
    "              More than once: one after the other; without it, S1 to S5\n"
    "  --runs N    timed runs, 5 without it\n"
    "  --device D  an index or a part of a name, as vkmha info lists them\n"
    "  --kernel K  only this row of the kernel table; twice: one for each kind of stage\n"
    "  --json      the result as JSON\n"
    "\n"
    "example: vkmha bench --shape S2 --runs 10\n";

enum {
    MAX_SHAPES = 16,
    MAX_RUNS = 1000,
    DEFAULT_RUNS = 5,
    MAX_FORCED = 2,
};

typedef struct bench_shape {
    char name[64];
    uint64_t batch_size;
    uint64_t query_len;
    uint64_t key_len;
    uint32_t num_heads;
    uint32_t num_kv_heads;
    uint32_t embed_dim;
    vkmha_causal causal;
} bench_shape;

static const bench_shape known_shapes[] = {
    {"S1", 8, 128, 128, 12, 12, 384, VKMHA_CAUSAL_NONE},
    {"S2", 4, 512, 512, 12, 12, 768, VKMHA_CAUSAL_NONE},
    {"S3", 1, 1024, 1024, 16, 16, 1024, VKMHA_CAUSAL_TOP_LEFT},
    {"S4", 1, 4096, 4096, 8, 8, 512, VKMHA_CAUSAL_NONE},
    {"S5", 1, 1, 2048, 32, 8, 2048, VKMHA_CAUSAL_NONE},
};

enum {
    NUM_KNOWN = sizeof(known_shapes) / sizeof(known_shapes[0]),
};

typedef struct bench_options {
    vkmha_device *device;
    vkmha_kernel_choice kernels;
    bench_shape shapes[MAX_SHAPES];
    uint32_t num_shapes;
    uint64_t runs;
    bool is_json;
} bench_options;

/* Median times of row 0, which every pair's are compared with. */
typedef struct bench_base {
    double median_ns[VKMHA_NUM_STAGES];
} bench_base;

static const char *const stage_names[VKMHA_NUM_STAGES] = {"project", "attention", "output"};

/* ---- The problem --------------------------------------------------------------------------- */

static float *draw(vkmha_random *random, uint64_t count, float size, vkmha_pool *pool)
{
    float *values = vkmha_pool_allocate(pool, count, sizeof(float));
    for (uint64_t i = 0; values && i < count; i++) {
        values[i] = size * ((float)(vkmha_random_next(random) >> 40) * 0x1p-23f - 1.0f);
    }
    return values;
}

static vkmha_status make_problem(const bench_shape *shape, vkmha_pool *pool, vkmha_problem *problem,
                                 vkmha_error *error)
{
    vkmha_random random = {1};
    const uint64_t embed_dim = shape->embed_dim;
    const uint32_t head_dim = shape->embed_dim / shape->num_heads;
    const uint64_t key_features = (uint64_t)shape->num_kv_heads * head_dim;
    const bool is_self = shape->query_len == shape->key_len;
    *problem = (vkmha_problem){
        .layer = {.num_heads = shape->num_heads,
                  .num_kv_heads = shape->num_kv_heads,
                  .head_dim = head_dim,
                  .embed_dim = shape->embed_dim},
        .plan = {.batch_size = shape->batch_size,
                 .query_len = shape->query_len,
                 .key_len = shape->key_len,
                 .key_is_query = is_self,
                 .value_is_key = true,
                 .causal = shape->causal},
    };
    vkmha_layer_params *layer = &problem->layer;
    const struct {
        vkmha_matrix *matrix;
        vkmha_vector *bias;
        uint64_t rows;
    } weights[] = {
        {&layer->w_q, &layer->b_q, embed_dim},
        {&layer->w_k, &layer->b_k, key_features},
        {&layer->w_v, &layer->b_v, key_features},
        {&layer->w_o, &layer->b_o, embed_dim},
    };
    /* Uniform in +-sqrt(3 / d): projected features keep the size of the input's. */
    const float size = sqrtf(3.0f / (float)embed_dim);
    bool has_memory = true;
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        const float *matrix = draw(&random, weights[i].rows * embed_dim, size, pool);
        const float *bias = draw(&random, weights[i].rows, 1.0f, pool);
        has_memory = has_memory && matrix && bias;
        *weights[i].matrix =
            (vkmha_matrix){.data = matrix, .rows = weights[i].rows, .columns = embed_dim};
        *weights[i].bias = (vkmha_vector){.data = bias, .size = weights[i].rows};
    }
    problem->inputs.query =
        draw(&random, shape->batch_size * shape->query_len * embed_dim, 1.0f, pool);
    if (!is_self) {
        problem->inputs.key =
            draw(&random, shape->batch_size * shape->key_len * embed_dim, 1.0f, pool);
    }
    if (!has_memory || !problem->inputs.query || (!is_self && !problem->inputs.key)) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    return VKMHA_OK;
}

/* ---- Timing -------------------------------------------------------------------------------- */

static void tell_stage(uint32_t stage, const vkmha_stage_info *info, const uint64_t *times,
                       uint64_t runs, double peak, bench_base *base, cJSON *rows)
{
    const double median = vkmha_trial_median(times, runs);
    const double spread =
        median > 0.0 ? ((double)times[runs - 1] - (double)times[0]) / median : 0.0;
    const double flops = median > 0.0 ? 2e9 * (double)info->work / median : 0.0;
    if (base->median_ns[stage] <= 0.0) {
        base->median_ns[stage] = median;
    }
    const double ratio = median > 0.0 ? base->median_ns[stage] / median : 0.0;
    if (!rows) {
        printf("  %-10s %-28s %10.3f ms %5.0f %% %8.2f GFLOP/s %6.1f %% %6.2fx\n",
               stage_names[stage], info->kernel, 1e-6 * median, 100.0 * spread, 1e-9 * flops,
               100.0 * flops / peak, ratio);
        fflush(stdout);
        return;
    }
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "stage", stage_names[stage]);
    cJSON_AddStringToObject(row, "kernel", info->kernel);
    cJSON_AddNumberToObject(row, "median_ns", median);
    cJSON_AddNumberToObject(row, "spread", spread);
    cJSON_AddNumberToObject(row, "flops", flops);
    cJSON_AddNumberToObject(row, "share_of_peak", flops / peak);
    cJSON_AddNumberToObject(row, "ratio_to_row_0", ratio);
    cJSON_AddItemToArray(rows, row);
}

/* ---- One pair of rows ---------------------------------------------------------------------- */

static void tell_failure(const char *shape, const vkmha_plan_info *info, const char *what,
                         cJSON *rows)
{
    const char *project = info->stages[VKMHA_STAGE_PROJECT].kernel;
    const char *attention = info->stages[VKMHA_STAGE_ATTENTION].kernel;
    if (rows) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "kernel", project ? project : "");
        cJSON_AddStringToObject(row, "attention_kernel", attention ? attention : "");
        cJSON_AddStringToObject(row, "failed", what);
        cJSON_AddItemToArray(rows, row);
        return;
    }
    printf("  FAILED, so not timed: %s with %s + %s: %s\n", shape, project ? project : "?",
           attention ? attention : "?", what);
}

/* pair: its number; a row is told at its first pair only. *failed: set where a check fails. */
static vkmha_status bench_pair(const bench_options *options, const bench_shape *shape,
                               const vkmha_problem *problem, uint32_t pair, double peak,
                               bench_base *base, cJSON *rows, bool *failed, vkmha_error *error)
{
    const vkmha_rows *projects = &options->kernels.project;
    const vkmha_rows *attentions = &options->kernels.attention;
    const char *attention = attentions->names[pair % attentions->count];
    vkmha_trial trial = {0};
    vkmha_pool pool = {0};
    vkmha_results results = {0};
    vkmha_verdict verdict = {0};
    uint64_t *times =
        vkmha_pool_allocate(&pool, VKMHA_NUM_STAGES * options->runs, sizeof(uint64_t));
    vkmha_status status =
        times
            ? vkmha_trial_create(options->device, problem, projects->names[pair % projects->count],
                                 attention, &trial, error)
            : vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    if (status == VKMHA_ERROR_UNSUPPORTED && attention) {
        tell_failure(shape->name, &trial.info, error->message, rows);
        status = VKMHA_OK;
        goto done;
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, problem, true, &pool, &results, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_verify_sample(problem, &trial, &results, &pool, &verdict, error);
    }
    if (status == VKMHA_OK && verdict.has_failed) {
        char what[320];
        vkmha_verdict_describe(&verdict, what, sizeof(what));
        tell_failure(shape->name, &trial.info, what, rows);
        *failed = true;
        goto done;
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_time(&trial, problem, options->runs, results.output, times, error);
    }
    for (uint32_t stage = 0; status == VKMHA_OK && stage < VKMHA_NUM_STAGES; stage++) {
        const uint32_t count = stage == VKMHA_STAGE_ATTENTION ? attentions->count : projects->count;
        if (pair < count && trial.info.stages[stage].kernel) {
            tell_stage(stage, &trial.info.stages[stage], times + stage * options->runs,
                       options->runs, peak, base, rows);
        }
    }

done:
    vkmha_trial_finish(&trial);
    vkmha_pool_finish(&pool);
    return status;
}

static vkmha_status bench_one(const bench_options *options, const bench_shape *shape, cJSON *shapes,
                              bool *failed, vkmha_error *error)
{
    vkmha_pool pool = {0};
    vkmha_problem problem;
    double peak = 0.0;
    bench_base base = {{0.0}};
    cJSON *rows = NULL;
    vkmha_status status = make_problem(shape, &pool, &problem, error);
    if (status == VKMHA_OK) {
        status = vkmha_device_measure_peak(options->device, &peak, error);
    }
    if (status == VKMHA_OK && shapes) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "shape", shape->name);
        cJSON_AddNumberToObject(document, "peak_flops", peak);
        rows = cJSON_AddArrayToObject(document, "stages");
        cJSON_AddItemToArray(shapes, document);
    } else if (status == VKMHA_OK) {
        printf("%s: batch %" PRIu64 ", %" PRIu64 " queries x %" PRIu64
               " keys, heads %u / %u, d_model %u%s; "
               "peak %.1f GFLOP/s\n",
               shape->name, shape->batch_size, shape->query_len, shape->key_len, shape->num_heads,
               shape->num_kv_heads, shape->embed_dim,
               shape->causal == VKMHA_CAUSAL_NONE ? "" : ", causal", 1e-9 * peak);
    }
    const uint32_t projects = options->kernels.project.count;
    const uint32_t attentions = options->kernels.attention.count;
    const uint32_t num_pairs = projects > attentions ? projects : attentions;
    for (uint32_t pair = 0; status == VKMHA_OK && pair < num_pairs; pair++) {
        status = bench_pair(options, shape, &problem, pair, peak, &base, rows, failed, error);
    }
    vkmha_pool_finish(&pool);
    return status;
}

/* ---- The command --------------------------------------------------------------------------- */

static int run_bench(const bench_options *options)
{
    vkmha_device_info info;
    vkmha_device_get_info(options->device, &info);
    cJSON *document = NULL;
    cJSON *shapes = NULL;
    if (options->is_json) {
        document = cJSON_CreateObject();
        vkmha_json_device(document, &info);
        cJSON_AddNumberToObject(document, "runs", (double)options->runs);
        shapes = cJSON_AddArrayToObject(document, "shapes");
    } else {
        printf("device: %s (%s); %" PRIu64 " runs\n", info.name, info.driver, options->runs);
        printf("  %-10s %-28s %13s %7s %16s %8s %7s\n", "stage", "kernel", "median", "spread",
               "rate", "of peak", "row 0");
    }
    vkmha_error error = {0};
    vkmha_status status = VKMHA_OK;
    bool has_failed = false;
    for (uint32_t i = 0; status == VKMHA_OK && i < options->num_shapes; i++) {
        status = bench_one(options, &options->shapes[i], shapes, &has_failed, &error);
    }
    if (status != VKMHA_OK) {
        cJSON_Delete(document);
        return vkmha_tool_report(&error);
    }
    const int code = has_failed ? VKMHA_EXIT_FAILED : VKMHA_EXIT_RIGHT;
    return options->is_json ? vkmha_print_json(document, code) : code;
}

/* "S2", or "batch,tokens,heads,d_model", or that with ",causal". */
static bool parse_shape(const char *text, bench_shape *shape)
{
    for (size_t i = 0; i < NUM_KNOWN; i++) {
        if (strcmp(text, known_shapes[i].name) == 0) {
            *shape = known_shapes[i];
            return true;
        }
    }
    uint64_t numbers[4] = {0};
    const char *at = text;
    bool is_right = strlen(text) < sizeof(shape->name);
    for (uint32_t i = 0; is_right && i < 4; i++) {
        char number[24] = "";
        const size_t length = strcspn(at, ",");
        is_right = length < sizeof(number) && (i == 3 || at[length] == ',');
        if (is_right) {
            memcpy(number, at, length);
            is_right = vkmha_parse_number(number, 1u << 20, &numbers[i]) && numbers[i] > 0;
            at += at[length] == ',' && i < 3 ? length + 1 : length;
        }
    }
    const bool is_causal = is_right && strcmp(at, ",causal") == 0;
    if (!is_right || (*at != '\0' && !is_causal)) {
        vkmha_tool_misuse(
            "--shape \"%s\" is neither S1 to S5 nor batch,tokens,heads,d_model[,causal]", text);
        return false;
    }
    if (numbers[3] % numbers[2] != 0) {
        vkmha_tool_misuse("--shape \"%s\": d_model %" PRIu64 " is not a multiple of %" PRIu64
                          " heads",
                          text, numbers[3], numbers[2]);
        return false;
    }
    *shape = (bench_shape){
        .batch_size = numbers[0],
        .query_len = numbers[1],
        .key_len = numbers[1],
        .num_heads = (uint32_t)numbers[2],
        .num_kv_heads = (uint32_t)numbers[2],
        .embed_dim = (uint32_t)numbers[3],
        .causal = is_causal ? VKMHA_CAUSAL_TOP_LEFT : VKMHA_CAUSAL_NONE,
    };
    snprintf(shape->name, sizeof(shape->name), "%s", text);
    return true;
}

int vkmha_command_bench(int argc, char **argv)
{
    enum { SHAPE = 256, RUNS, DEVICE, KERNEL, JSON };
    static const struct option known[] = {
        {"shape", required_argument, NULL, SHAPE},
        {"runs", required_argument, NULL, RUNS},
        {"device", required_argument, NULL, DEVICE},
        {"kernel", required_argument, NULL, KERNEL},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bench_options options = {.runs = DEFAULT_RUNS};
    const char *choice = NULL;
    const char *forced[MAX_FORCED] = {NULL};
    uint32_t num_forced = 0;
    int option;
    while ((option = vkmha_next_option(argc, argv, ":h", known)) != -1) {
        bool is_right = true;
        switch (option) {
        case SHAPE:
            if (options.num_shapes == MAX_SHAPES) {
                return vkmha_tool_misuse("--shape is given more than %d times", MAX_SHAPES);
            }
            is_right = parse_shape(optarg, &options.shapes[options.num_shapes++]);
            break;
        case RUNS:
            is_right = vkmha_parse_option("--runs", optarg, 1, MAX_RUNS, &options.runs);
            break;
        case DEVICE:
            choice = optarg;
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
    if (optind < argc) {
        return vkmha_tool_misuse("bench takes no argument \"%s\"", argv[optind]);
    }
    if (options.num_shapes == 0) {
        memcpy(options.shapes, known_shapes, sizeof(known_shapes));
        options.num_shapes = NUM_KNOWN;
    }
    vkmha_error error = {0};
    vkmha_status status = vkmha_open_device(choice, &options.device, &error);
    if (status == VKMHA_OK) {
        status = vkmha_choose_kernels(options.device, forced, num_forced, &options.kernels, &error);
    }
    const int code = status == VKMHA_OK ? run_bench(&options) : vkmha_tool_report(&error);
    vkmha_device_destroy(options.device);
    return code;
}
