/* vkmha prune: a checkpoint without some of a layer's heads. */
#include "prune.h"
#include "verify.h"

#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha prune CASE (--remove H,H.. | --keep N) -o FILE [--runs N] [--device D] [--json]\n"
    "       vkmha prune --weights F [--prefix P] --input X [options of run] (--remove | --keep) -o "
    "FILE\n"
    "\n"
    "Writes the safetensors file again without the removed heads of the layer: its names, types "
    "and "
    "layout,\n"
    "all other tensors as they are. Then reads what it wrote, runs it, and compares y with that of "
    "the layer\n"
    "whose removed heads have gate 0, within the sum of both error bounds; only then does FILE get "
    "its name.\n"
    "Exit status 1 where they differ. The times are the device's own, medians, before and after.\n"
    "vkmha run reads the result with --head-dim. Of grouped-query layers whole groups go, or as "
    "many "
    "heads\n"
    "of each. A pruned case keeps its inputs, and expects the y of the reference.\n"
    "\n" VKMHA_SUBJECT_USAGE "\n"
    "  --remove H,H..  these heads\n"
    "  --keep N        all but the N most important ones, as vkmha ablate orders them\n"
    "  -o FILE         a .safetensors file\n"
    "  --runs N        timed runs, 5 without it\n"
    "\n"
    "example: vkmha prune --weights model.safetensors --prefix encoder.layer.0.attention \\\n"
    "                     --num-heads 12 --input hidden.npy --keep 8 -o pruned.safetensors\n";

enum {
    REMOVE = VKMHA_RUN_OWN,
    KEEP,
    RUNS,
    MAX_RUNS = 1000,
};

typedef struct prune_options {
    vkmha_run_options shared;
    const char *remove; /* NULL: not given */
    uint64_t keep;      /* 0: not given */
    const char *output;
    uint64_t runs;
} prune_options;

/* One layer as it ran. */
typedef struct prune_side {
    vkmha_problem problem;
    float *output;
    double *expected;
    double *bound;
    double median_ns[VKMHA_NUM_STAGES];
} prune_side;

typedef struct prune_state {
    const prune_options *options;
    vkmha_subject subject;
    vkmha_selection selection;
    prune_side full;
    prune_side gated;
    prune_side pruned;
    bool has_times;
    vkmha_comparison comparison; /* of pruned and gated */
    double change;               /* of pruned, relative to full */
    double difference;           /* of pruned, relative to gated */
    vkmha_writer writer;
    vkmha_file *written_file;
    vkmha_case written_case;
    vkmha_error error;
} prune_state;

static vkmha_status out_of_memory(prune_state *state)
{
    return vkmha_tool_fail(&state->error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* ---- Which heads --------------------------------------------------------------------------- */

static vkmha_status remove_listed(prune_state *state, bool *keeps)
{
    const char *list = state->options->remove;
    const uint32_t num_heads = state->subject.problem.layer.num_heads;
    const char *at = list;
    while (true) {
        char text[16] = "";
        const size_t length = strcspn(at, ",");
        uint64_t head = 0;
        if (length < sizeof(text)) {
            memcpy(text, at, length);
        }
        if (!vkmha_parse_number(text, UINT32_MAX, &head)) {
            return vkmha_tool_fail(&state->error, VKMHA_ERROR_INVALID_ARGUMENT,
                                   "--remove \"%.100s\" is not numbers of heads between commas",
                                   list);
        }
        if (head >= num_heads || !keeps[head]) {
            return vkmha_tool_fail(&state->error, VKMHA_ERROR_INVALID_ARGUMENT,
                                   head < num_heads ? "--remove %.100s: head %" PRIu64
                                                      " is given twice (num_heads %" PRIu32 ")"
                                                    : "--remove %.100s: head %" PRIu64
                                                      " is not below num_heads %" PRIu32,
                                   list, head, num_heads);
        }
        keeps[head] = false;
        if (at[length] == '\0') {
            return VKMHA_OK;
        }
        at += length + 1;
    }
}

static vkmha_status select_heads(prune_state *state)
{
    vkmha_subject *subject = &state->subject;
    const uint32_t num_heads = subject->problem.layer.num_heads;
    bool *keeps = vkmha_pool_allocate(&subject->pool, num_heads, sizeof(bool));
    if (!keeps) {
        return out_of_memory(state);
    }
    memset(keeps, true, num_heads * sizeof(bool));
    vkmha_status status = VKMHA_OK;
    if (state->options->remove) {
        status = remove_listed(state, keeps);
    } else if (state->options->keep > num_heads) {
        status = vkmha_tool_fail(&state->error, VKMHA_ERROR_INVALID_ARGUMENT,
                                 "--keep %" PRIu64 " is more than num_heads %" PRIu32,
                                 state->options->keep, num_heads);
    } else {
        vkmha_importance importance;
        status = vkmha_subject_importance(subject, &importance, &state->error);
        for (uint32_t i = 0; status == VKMHA_OK && i < num_heads - state->options->keep; i++) {
            keeps[importance.order[i]] = false;
        }
    }
    return status == VKMHA_OK ? vkmha_selection_make(&subject->problem, keeps, &subject->pool,
                                                     &state->selection, &state->error)
                              : status;
}

/* ---- Running ------------------------------------------------------------------------------- */

/* The device's y, its times, and with `wants_bound` the reference's. */
static vkmha_status run_side(prune_state *state, prune_side *side, bool wants_times,
                             bool wants_bound)
{
    vkmha_subject *subject = &state->subject;
    const uint64_t runs = state->options->runs;
    vkmha_trial trial;
    vkmha_results results;
    vkmha_error *error = &state->error;
    vkmha_status status =
        vkmha_trial_create(subject->device, &side->problem, NULL, NULL, &trial, error);
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, &side->problem, false, &subject->pool, &results, error);
    }
    if (status != VKMHA_OK) {
        vkmha_trial_finish(&trial);
        return status;
    }
    side->output = results.output;
    state->has_times = trial.has_times;
    const uint64_t count = subject->rows * subject->row_size;
    uint64_t *times =
        vkmha_pool_allocate(&subject->pool, VKMHA_NUM_STAGES * runs, sizeof(uint64_t));
    float *output = vkmha_pool_allocate(&subject->pool, count, sizeof(float));
    side->expected = vkmha_pool_allocate(&subject->pool, count, sizeof(double));
    side->bound = vkmha_pool_allocate(&subject->pool, count, sizeof(double));
    if (!times || !output || !side->expected || !side->bound) {
        status = out_of_memory(state);
    }
    if (status == VKMHA_OK && wants_times && trial.has_times) {
        status = vkmha_trial_time(&trial, &side->problem, runs, output, times, error);
        for (uint32_t stage = 0; status == VKMHA_OK && stage < VKMHA_NUM_STAGES; stage++) {
            side->median_ns[stage] = vkmha_trial_median(times + stage * runs, runs);
        }
    }
    if (status == VKMHA_OK && wants_bound) {
        const vkmha_reference_outputs outputs = {.output = side->expected,
                                                 .output_bound = side->bound};
        status =
            vkmha_reference_run(&side->problem.layer, &side->problem.plan, &side->problem.inputs,
                                &trial.info.chains, NULL, &outputs, error);
    }
    vkmha_trial_finish(&trial);
    return status;
}

/* The whole layer, and the one whose removed heads have gate 0. */
static vkmha_status run_before(prune_state *state)
{
    vkmha_subject *subject = &state->subject;
    const uint32_t num_heads = state->selection.num_heads;
    float *gates = vkmha_pool_allocate(&subject->pool, num_heads, sizeof(float));
    for (uint32_t h = 0; gates && h < num_heads; h++) {
        gates[h] = state->selection.keeps[h] ? 1.0f : 0.0f;
    }
    state->full.problem = subject->problem;
    state->gated.problem = subject->problem;
    state->gated.problem.plan.has_head_gates = false;
    state->gated.problem.plan.has_gates_per_sequence = true;
    state->gated.problem.inputs.head_gates =
        gates ? vkmha_gates_join(&subject->problem, gates, 1, &subject->pool) : NULL;
    if (!state->gated.problem.inputs.head_gates) {
        return out_of_memory(state);
    }
    const vkmha_status status = run_side(state, &state->full, true, false);
    return status == VKMHA_OK ? run_side(state, &state->gated, false, true) : status;
}

/* Puts the weights of the written file into the pruned problem. */
static vkmha_status read_back(prune_state *state)
{
    const char *path = state->writer.temporary;
    vkmha_layer_params *layer = &state->pruned.problem.layer;
    vkmha_layer_params read = {0};
    vkmha_status status;
    if (state->subject.is_case) {
        bool is_case = false;
        status = vkmha_case_load(path, &state->written_case, &is_case, &state->error);
        read = state->written_case.problem.layer;
    } else {
        const vkmha_checkpoint_params params = {
            .prefix = state->options->shared.prefix,
            .num_heads = layer->num_heads,
            .num_kv_heads = layer->num_kv_heads,
            .head_dim = layer->head_dim,
        };
        status = vkmha_file_open(path, NULL, &state->written_file, &state->error);
        if (status == VKMHA_OK) {
            status = vkmha_checkpoint_layer(state->written_file, &params, &read, &state->error);
        }
    }
    layer->w_q = read.w_q;
    layer->w_k = read.w_k;
    layer->w_v = read.w_v;
    layer->w_o = read.w_o;
    layer->b_q = read.b_q;
    layer->b_k = read.b_k;
    layer->b_v = read.b_v;
    layer->b_o = read.b_o;
    return status;
}

static vkmha_status write_and_run(prune_state *state)
{
    vkmha_subject *subject = &state->subject;
    const uint64_t count = subject->rows * subject->row_size;
    float *rounded = vkmha_pool_allocate(&subject->pool, count, sizeof(float));
    if (!rounded) {
        return out_of_memory(state);
    }
    vkmha_expectation expected = {.output = rounded, .count = count};
    for (uint64_t i = 0; i < count; i++) {
        rounded[i] = (float)state->gated.expected[i];
        const double size =
            state->gated.expected[i] < 0.0 ? -state->gated.expected[i] : state->gated.expected[i];
        const double error = state->gated.bound[i] + 0x1p-23 * size;
        expected.tolerance = error > expected.tolerance ? error : expected.tolerance;
    }
    vkmha_status status = vkmha_writer_open(state->options->output, &state->writer, &state->error);
    if (status == VKMHA_OK) {
        status = vkmha_prune_write(subject, &state->selection, &expected, &subject->pool,
                                   &state->writer, &state->error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_writer_close(&state->writer, &state->error);
    }
    if (status == VKMHA_OK) {
        status = read_back(state);
    }
    return status == VKMHA_OK ? run_side(state, &state->pruned, true, true) : status;
}

/* Two runs of what is the same y but for rounding, so each within its own bound of it. */
static vkmha_status compare(prune_state *state)
{
    const vkmha_subject *subject = &state->subject;
    const uint64_t row_size = subject->row_size;
    const uint64_t count = subject->real_rows * row_size;
    vkmha_pool *pool = &state->subject.pool;
    float *got = vkmha_pool_allocate(pool, count, sizeof(float));
    double *expected = vkmha_pool_allocate(pool, count, sizeof(double));
    double *bound = vkmha_pool_allocate(pool, count, sizeof(double));
    if (!got || !expected || !bound) {
        return out_of_memory(state);
    }
    uint64_t kept = 0;
    for (uint64_t i = 0; i < subject->rows * row_size; i++) {
        if (subject->is_real[i / row_size]) {
            got[kept] = state->pruned.output[i];
            expected[kept] = state->gated.output[i];
            bound[kept] = state->pruned.bound[i] + state->gated.bound[i];
            kept++;
        }
    }
    vkmha_compare(got, expected, bound, count, &state->comparison);
    state->change = vkmha_subject_change(subject, state->pruned.output, state->full.output);
    state->difference = vkmha_subject_change(subject, state->pruned.output, state->gated.output);
    return VKMHA_OK;
}

/* ---- Telling ------------------------------------------------------------------------------- */

static void tell_heads(const prune_state *state, cJSON *document)
{
    const vkmha_selection *selection = &state->selection;
    cJSON *removed = document ? cJSON_AddArrayToObject(document, "removed") : NULL;
    if (!document) {
        printf("\nremoved heads:");
    }
    for (uint32_t h = 0; h < selection->num_heads; h++) {
        if (selection->keeps[h]) {
            continue;
        }
        if (document) {
            cJSON_AddItemToArray(removed, cJSON_CreateNumber(h));
        } else {
            printf(" %" PRIu32, h);
        }
    }
    if (document) {
        cJSON_AddNumberToObject(document, "heads_left", selection->num_kept);
        cJSON_AddNumberToObject(document, "kv_heads_left", selection->num_kv_kept);
    } else {
        printf("; %" PRIu32 " of %" PRIu32 " are left, on %" PRIu32 " key/value heads\n",
               selection->num_kept, selection->num_heads, selection->num_kv_kept);
    }
}

static void tell_times(const prune_state *state, cJSON *document)
{
    static const char *const stages[] = {"project", "attention", "output", "all"};
    double before = 0.0;
    double after = 0.0;
    cJSON *times = document ? cJSON_AddObjectToObject(document, "times") : NULL;
    if (!state->has_times) {
        if (!document) {
            printf("times: the device has no timestamps\n");
        }
        return;
    }
    if (!document) {
        printf("\n  %-10s %12s %12s %8s   (median of %" PRIu64 " runs)\n", "stage", "before",
               "after", "ratio", state->options->runs);
    }
    for (uint32_t i = 0; i <= VKMHA_NUM_STAGES; i++) {
        const bool is_all = i == VKMHA_NUM_STAGES;
        const double stage_before = is_all ? before : state->full.median_ns[i];
        const double stage_after = is_all ? after : state->pruned.median_ns[i];
        before += stage_before;
        after += stage_after;
        if (document) {
            cJSON *row = cJSON_AddObjectToObject(times, stages[i]);
            cJSON_AddNumberToObject(row, "before_ns", stage_before);
            cJSON_AddNumberToObject(row, "after_ns", stage_after);
        } else {
            printf("  %-10s %9.3f ms %9.3f ms %8.2f\n", stages[i], 1e-6 * stage_before,
                   1e-6 * stage_after, stage_before > 0.0 ? stage_after / stage_before : 0.0);
        }
    }
}

static int tell(const prune_state *state)
{
    const vkmha_comparison *comparison = &state->comparison;
    cJSON *document = state->options->shared.is_json ? cJSON_CreateObject() : NULL;
    vkmha_subject_tell(&state->subject, document);
    tell_heads(state, document);
    if (document) {
        cJSON_AddNumberToObject(document, "change_from_all_heads", state->change);
        cJSON_AddNumberToObject(document, "change_from_gates_of_0", state->difference);
        cJSON_AddNumberToObject(document, "max_abs", comparison->max_abs);
        cJSON_AddNumberToObject(document, "max_ratio", comparison->max_ratio);
        cJSON_AddBoolToObject(document, "passed", comparison->passed);
    } else {
        printf("|change of y| / |y|: %.5f from all heads, %.2e from gates of 0 (largest difference "
               "%.2e,\n"
               "%.1f %% of the sum of both bounds%s)\n",
               state->change, state->difference, comparison->max_abs, 100.0 * comparison->max_ratio,
               comparison->passed ? "" : ": FAILED");
    }
    tell_times(state, document);
    if (document) {
        cJSON_AddStringToObject(document, "output", state->options->output);
    } else if (comparison->passed) {
        printf("\nwrote %s; its heads are of %" PRIu32 " features (--head-dim %" PRIu32 ")\n",
               state->options->output, state->pruned.problem.layer.head_dim,
               state->pruned.problem.layer.head_dim);
    }
    const int code = comparison->passed ? VKMHA_EXIT_RIGHT : VKMHA_EXIT_FAILED;
    return document ? vkmha_print_json(document, code) : code;
}

/* ---- The command --------------------------------------------------------------------------- */

static int prune(prune_state *state, int num_arguments, char **arguments)
{
    vkmha_subject *subject = &state->subject;
    vkmha_error *error = &state->error;
    vkmha_status status =
        vkmha_subject_open(&state->options->shared, num_arguments, arguments, subject, error);
    if (status == VKMHA_OK) {
        status = select_heads(state);
    }
    if (status == VKMHA_OK) {
        status = vkmha_selection_apply(&state->selection, &subject->problem, &subject->pool,
                                       &state->pruned.problem, error);
    }
    if (status == VKMHA_OK) {
        status = run_before(state);
    }
    if (status == VKMHA_OK) {
        status = write_and_run(state);
    }
    if (status == VKMHA_OK) {
        status = compare(state);
    }
    if (status == VKMHA_OK && state->comparison.passed) {
        status = vkmha_writer_commit(&state->writer, error);
    }
    const int code = status == VKMHA_OK ? tell(state) : vkmha_tool_report(error);
    vkmha_writer_finish(&state->writer);
    vkmha_file_close(state->written_file);
    vkmha_case_finish(&state->written_case);
    vkmha_subject_finish(subject);
    return code;
}

static int prune_as_told(const void *command, int num_arguments, char **arguments)
{
    const prune_options *options = command;
    if (!options->remove == !options->keep || !options->output) {
        return vkmha_tool_misuse("prune needs -o, and --remove or --keep; see vkmha prune --help");
    }
    prune_state state = {.options = options};
    return prune(&state, num_arguments, arguments);
}

static bool take_option(void *command, int option, const char *value)
{
    prune_options *options = command;
    switch (option) {
    case REMOVE:
        options->remove = value;
        return true;
    case KEEP:
        return vkmha_parse_option("--keep", value, 1, UINT32_MAX, &options->keep);
    case RUNS:
        return vkmha_parse_option("--runs", value, 1, MAX_RUNS, &options->runs);
    default:
        options->output = value;
        return true;
    }
}

int vkmha_command_prune(int argc, char **argv)
{
    static const struct option known[] = {
        VKMHA_RUN_KNOWN,
        {"remove", required_argument, NULL, REMOVE},
        {"keep", required_argument, NULL, KEEP},
        {"runs", required_argument, NULL, RUNS},
        {"output", required_argument, NULL, 'o'},
        {NULL, 0, NULL, 0},
    };
    prune_options options = {.runs = 5};
    const vkmha_run_reader reader = {":o:h", known, &options.shared, take_option, &options};
    return vkmha_run_command(argc, argv, &reader, usage, prune_as_told);
}
