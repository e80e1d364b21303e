/* vkmha check on case files. */
#include "report.h"
#include "stored.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void repeat_command(const vkmha_check_options *options, const char *path,
                           const char *project, const char *attention, char *text, size_t size)
{
    char kernels[160];
    vkmha_kernel_arguments(project, attention, kernels, sizeof(kernels));
    const char *device = options->device_choice;
    char types[64] = "";
    if (options->precision != VKMHA_TYPE_F32 || options->weight_type != VKMHA_TYPE_F32) {
        snprintf(types, sizeof(types), " --precision %s --weights %s",
                 vkmha_type_name(options->precision), vkmha_type_name(options->weight_type));
    }
    snprintf(text, size, "vkmha check '%s'%s%s%s%s%s", path, types, device ? " --device '" : "",
             device ? device : "", device ? "'" : "", kernels);
}

typedef enum run_state {
    RUN_PASSED,
    RUN_FAILED,
    RUN_UNFIT, /* these kernels cannot run the problem here */
} run_state;

/* What the case lists, and what each attention kernel has a part in; all of it costs a driver
 * pipelines that are the same for every row. */
static vkmha_status ask(const vkmha_case *loaded, bool wants_everything, vkmha_pool *pool,
                        vkmha_problem *problem, vkmha_error *error)
{
    *problem = loaded->problem;
    problem->plan.scores = loaded->scores;
    if (wants_everything) {
        return vkmha_told_everything(problem, pool, error);
    }
    problem->plan.has_weights = loaded->expected_told[VKMHA_TOLD_WEIGHTS] != NULL;
    problem->plan.has_mean_weights = loaded->expected_told[VKMHA_TOLD_MEAN_WEIGHTS] != NULL;
    problem->plan.has_lse = true;
    problem->plan.has_statistics = true;
    return VKMHA_OK;
}

/* One case with one pair of kernels; `what` tells about a failure. */
static run_state run_pair(const vkmha_check_options *options, const vkmha_case *loaded,
                          const char *project, const char *attention, bool wants_everything,
                          vkmha_report *report, char *what, size_t size)
{
    vkmha_problem told;
    const vkmha_problem *problem = &told;
    vkmha_trial trial = {0};
    vkmha_error error = {0};
    vkmha_pool pool = {0};
    vkmha_results results = {0};
    vkmha_verdict verdict = {0};
    run_state state = RUN_FAILED;
    vkmha_status status = ask(loaded, wants_everything, &pool, &told, &error);
    if (status == VKMHA_OK) {
        status = vkmha_trial_create(options->device, problem, project, attention, &trial, &error);
    }
    if (status == VKMHA_ERROR_UNSUPPORTED && (project || attention)) {
        state = RUN_UNFIT;
        snprintf(what, size, "%s", error.message);
        goto done;
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, problem, true, &pool, &results, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_verify(problem, &trial, &results, loaded, &pool, &verdict, &error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_verify_gates(options->device, problem, problem->layer.num_heads / 2, project,
                                    attention, &results, &pool, &verdict, &error);
    }
    if (status != VKMHA_OK) {
        report->is_lost = status == VKMHA_ERROR_DEVICE_LOST;
        snprintf(what, size, "%s", error.message);
        goto done;
    }
    if (verdict.has_failed) {
        vkmha_verdict_describe(&verdict, what, size);
        goto done;
    }
    state = RUN_PASSED;

done:
    vkmha_trial_finish(&trial);
    vkmha_pool_finish(&pool);
    return state;
}

/* Each usable row of either kind at least once. */
static bool run_case(const vkmha_check_options *options, const char *path, const vkmha_case *loaded,
                     vkmha_report *report)
{
    const vkmha_rows *projects = &options->kernels.project;
    const vkmha_rows *attentions = &options->kernels.attention;
    const bool has_projections = !loaded->problem.layer.attention_only;
    const uint32_t num_pairs = has_projections && projects->count > attentions->count
                                   ? projects->count
                                   : attentions->count;
    bool has_passed = true;
    bool has_run = false;
    char subject[256];
    char what[640] = "no kernel row is usable";
    char repeat[1024];
    snprintf(subject, sizeof(subject), "case %s", loaded->name);
    for (uint32_t i = 0; i < num_pairs && !report->is_lost; i++) {
        const char *project = has_projections ? projects->names[i % projects->count] : NULL;
        const char *attention = attentions->names[i % attentions->count];
        const run_state state =
            run_pair(options, loaded, project, attention, !has_run, report, what, sizeof(what));
        has_run = has_run || state != RUN_UNFIT;
        vkmha_report_row(report, project, state == RUN_UNFIT);
        vkmha_report_row(report, attention, state == RUN_UNFIT);
        if (state == RUN_FAILED) {
            char kernels[128];
            snprintf(kernels, sizeof(kernels), "%s%s%s", project ? project : "",
                     project && attention ? " + " : "", attention ? attention : "");
            repeat_command(options, path, project, attention, repeat, sizeof(repeat));
            vkmha_report_failure(report, subject, kernels, what, repeat);
            has_passed = false;
        }
    }
    if (!has_run) {
        repeat_command(options, path, NULL, NULL, repeat, sizeof(repeat));
        vkmha_report_failure(report, subject, "", what, repeat);
    }
    return has_passed && has_run;
}

static void check_file(const vkmha_check_options *options, const char *path, bool is_named,
                       vkmha_report *report)
{
    vkmha_case loaded;
    vkmha_error error = {0};
    bool is_case = false;
    vkmha_status status = vkmha_case_load(path, &loaded, &is_case, &error);
    if (status == VKMHA_OK && !is_case && !is_named) {
        return;
    }
    if (status == VKMHA_OK && is_case) {
        status = vkmha_case_store(&loaded, options->precision, options->weight_type, &error);
        if (status != VKMHA_OK) {
            vkmha_case_finish(&loaded);
        }
    }
    if (status != VKMHA_OK || !is_case) {
        char repeat[1024];
        repeat_command(options, path, NULL, NULL, repeat, sizeof(repeat));
        vkmha_report_failure(
            report, path, "",
            status != VKMHA_OK ? error.message : "vkmha_case is missing: this is no case", repeat);
        report->failed++;
        return;
    }
    if (run_case(options, path, &loaded, report)) {
        report->passed++;
    } else {
        report->failed++;
    }
    vkmha_case_finish(&loaded);
}

/* ---- Folders ------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t length = strlen(name);
    const size_t suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
}

static char *join_path(vkmha_pool *pool, const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = vkmha_pool_allocate(pool, size, 1);
    if (path) {
        snprintf(path, size, "%s%s%s", folder, has_suffix(folder, "/") ? "" : "/", name);
    }
    return path;
}

/* The folder's safetensors files, sorted; false after an error line. */
static bool list_folder(const char *folder, vkmha_pool *pool, char ***paths, size_t *count)
{
    DIR *directory = opendir(folder);
    if (!directory) {
        vkmha_tool_misuse("%s: %s", folder, strerror(errno));
        return false;
    }
    size_t capacity = 0;
    *paths = NULL;
    *count = 0;
    bool has_memory = true;
    const struct dirent *entry;
    while (has_memory && (entry = readdir(directory)) != NULL) {
        if (!has_suffix(entry->d_name, ".safetensors")) {
            continue;
        }
        if (*count == capacity) {
            capacity = capacity ? capacity * 2 : 64;
            char **grown = vkmha_pool_allocate(pool, capacity, sizeof(char *));
            if (grown && *count > 0) {
                memcpy(grown, *paths, *count * sizeof(char *));
            }
            *paths = grown;
            has_memory = grown != NULL;
        }
        if (has_memory) {
            char *path = join_path(pool, folder, entry->d_name);
            has_memory = path != NULL;
            (*paths)[(*count)++] = path;
        }
    }
    closedir(directory);
    if (!has_memory) {
        vkmha_tool_misuse("%s: out of memory", folder);
        return false;
    }
    if (*count > 0) {
        qsort(*paths, *count, sizeof(char *), compare_names);
    }
    return true;
}

bool vkmha_check_cases(const vkmha_check_options *options, char **paths, int num_paths,
                       vkmha_report *report)
{
    vkmha_progress progress;
    vkmha_progress_start(&progress);
    for (int i = 0; i < num_paths; i++) {
        struct stat info;
        if (stat(paths[i], &info) != 0) {
            vkmha_tool_misuse("%s: %s", paths[i], strerror(errno));
            return false;
        }
        if (!S_ISDIR(info.st_mode)) {
            check_file(options, paths[i], true, report);
            continue;
        }
        vkmha_pool pool = {0};
        char **files = NULL;
        size_t num_files = 0;
        if (!list_folder(paths[i], &pool, &files, &num_files)) {
            vkmha_pool_finish(&pool);
            return false;
        }
        const uint64_t before = report->passed + report->failed + report->skipped;
        for (size_t k = 0; k < num_files && !report->is_lost; k++) {
            vkmha_progress_show(&progress, "case", k + 1, num_files);
            check_file(options, files[k], false, report);
        }
        vkmha_pool_finish(&pool);
        if (report->passed + report->failed + report->skipped == before) {
            vkmha_progress_clear(&progress);
            vkmha_tool_misuse("%s: no case is in this folder", paths[i]);
            return false;
        }
    }
    vkmha_progress_clear(&progress);
    return true;
}
