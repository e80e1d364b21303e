/* Arguments that tell a layer and its inputs, and what they load. */
#include "run.h"

/* ---- Arguments ----------------------------------------------------------------------------- */

/* Settings on the command line, whatever their order, take the place of the file's. */
static vkmha_status take_setting(vkmha_run_options *options, int option, const char *value,
                                 vkmha_error *error)
{
    static const struct {
        int option;
        const char *text;
        const char *name;
    } names[] = {
        {VKMHA_RUN_HEADS, "--num-heads", "num_heads"},
        {VKMHA_RUN_KV_HEADS, "--num-kv-heads", "num_kv_heads"},
        {VKMHA_RUN_HEAD_DIM, "--head-dim", "head_dim"},
        {VKMHA_RUN_CAUSAL, "--causal", "causal"},
    };
    if (option == VKMHA_RUN_SET) {
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

/* The place of an option that is a text; NULL for others. */
static const char **text_of(vkmha_run_options *options, int option)
{
    switch (option) {
    case VKMHA_RUN_WEIGHTS:
        return &options->weights;
    case VKMHA_RUN_PREFIX:
        return &options->prefix;
    case VKMHA_RUN_INPUT:
        return &options->input;
    case VKMHA_RUN_KEY:
        return &options->key;
    case VKMHA_RUN_VALUE:
        return &options->value;
    case VKMHA_RUN_TENSORS:
        return &options->tensors;
    case VKMHA_RUN_DEVICE:
        return &options->device_choice;
    default:
        return NULL;
    }
}

/* is_first: the layer's file alone is read, since the other settings replace its own. */
static int read_all(int argc, char **argv, const vkmha_run_reader *reader, bool is_first)
{
    vkmha_run_options *options = reader->options;
    vkmha_error error = {0};
    int option;
    optind = 1;
    while ((option = vkmha_next_option(argc, argv, reader->shorts, reader->known)) != -1) {
        const char **text = text_of(options, option);
        vkmha_status status = VKMHA_OK;
        if (option == '?') {
            return VKMHA_EXIT_MISUSE;
        }
        if (option == 'h') {
            return -1;
        }
        if (text) {
            *text = optarg;
        } else if (option == VKMHA_RUN_JSON) {
            options->is_json = true;
        } else if (option == VKMHA_RUN_LAYER) {
            status = is_first ? vkmha_settings_load(&options->settings, optarg, &error) : VKMHA_OK;
        } else if (!is_first && option < VKMHA_RUN_OWN && option > VKMHA_RUN_LAYER) {
            status = take_setting(options, option, optarg, &error);
        } else if (!is_first && !reader->take(reader->command, option, optarg)) {
            return VKMHA_EXIT_MISUSE;
        }
        if (status != VKMHA_OK) {
            return vkmha_tool_report(&error);
        }
    }
    return VKMHA_EXIT_RIGHT;
}

int vkmha_run_read(int argc, char **argv, const vkmha_run_reader *reader)
{
    const int code = read_all(argc, argv, reader, true);
    return code == VKMHA_EXIT_RIGHT ? read_all(argc, argv, reader, false) : code;
}

int vkmha_run_command(int argc, char **argv, const vkmha_run_reader *reader, const char *usage,
                      int (*perform)(const void *command, int num_arguments, char **arguments))
{
    int code = vkmha_run_read(argc, argv, reader);
    if (code < 0) {
        fputs(usage, stdout);
        code = VKMHA_EXIT_RIGHT;
    } else if (code == VKMHA_EXIT_RIGHT) {
        code = perform(reader->command, argc - optind, argv + optind);
    }
    vkmha_settings_finish(&reader->options->settings);
    return code;
}

/* ---- Loading ------------------------------------------------------------------------------- */

static vkmha_status open_files(const vkmha_run_options *options, vkmha_run_state *run)
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

vkmha_status vkmha_run_load(const vkmha_run_options *options, const vkmha_file *weights,
                            vkmha_run_state *run)
{
    const vkmha_problem *given = &options->settings.values;
    vkmha_problem *problem = &run->problem;
    vkmha_status status = open_files(options, run);
    if (status == VKMHA_OK && weights) {
        const vkmha_checkpoint_params checkpoint = {
            .prefix = options->prefix,
            .num_heads = given->layer.num_heads,
            .num_kv_heads = given->layer.num_kv_heads,
            .head_dim = given->layer.head_dim,
        };
        status = vkmha_checkpoint_layer(weights, &checkpoint, &problem->layer, run->error);
    }
    problem->layer.attention_only = !weights;
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
    return status == VKMHA_OK ? vkmha_run_load_tensors(run) : status;
}

void vkmha_run_close(vkmha_run_state *run)
{
    vkmha_file_close(run->input.file);
    vkmha_file_close(run->key.file);
    vkmha_file_close(run->value.file);
    vkmha_file_close(run->tensors.file);
}
