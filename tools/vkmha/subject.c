#include "same.h"
#include "subject.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* ---- Loading ------------------------------------------------------------------------------- */

static vkmha_status load_case(const vkmha_run_options *options, const char *path,
                              vkmha_subject *subject, vkmha_error *error)
{
    bool is_case = false;
    const vkmha_status status = vkmha_case_load(path, &subject->loaded, &is_case, error);
    if (status != VKMHA_OK) {
        return status;
    }
    if (!is_case) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE,
                               "%s: vkmha_case is missing: this is no case; a checkpoint is given "
                               "by --weights",
                               path);
    }
    const vkmha_case *loaded = &subject->loaded;
    snprintf(subject->name, sizeof(subject->name), "%s", loaded->name);
    subject->is_case = true;
    subject->sentences = loaded->sentences;
    subject->problem = loaded->problem;
    subject->weights_path = path;
    subject->weights_file = loaded->weights_file ? NULL : loaded->file;
    return vkmha_settings_apply(&options->settings, &subject->problem, error);
}

static vkmha_status load_run(const vkmha_run_options *options, vkmha_subject *subject,
                             vkmha_error *error)
{
    subject->run.error = error;
    vkmha_status status = vkmha_file_open(options->weights, NULL, &subject->file, error);
    if (status == VKMHA_OK) {
        status = vkmha_run_load(options, subject->file, &subject->run);
    }
    const char *slash = strrchr(options->weights, '/');
    snprintf(subject->name, sizeof(subject->name), "%s%s%s", slash ? slash + 1 : options->weights,
             options->prefix ? " " : "", options->prefix ? options->prefix : "");
    subject->problem = subject->run.problem;
    subject->weights_path = options->weights;
    subject->weights_file = subject->file;
    return status;
}

static vkmha_status check_subject(const vkmha_problem *problem, vkmha_error *error)
{
    const vkmha_plan_params *plan = &problem->plan;
    const struct {
        const char *name;
        vkmha_type type;
    } types[] = {
        {"query_type", plan->query_type},          {"key_type", plan->key_type},
        {"value_type", plan->value_type},          {"output_type", plan->output_type},
        {"cache_type", problem->layer.cache_type},
    };
    if (problem->layer.attention_only) {
        return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "the case has op sdpa: heads are told apart by W_O, so a layer with "
                               "projections is needed");
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].type != VKMHA_TYPE_F32) {
            return vkmha_tool_fail(error, VKMHA_ERROR_UNSUPPORTED,
                                   "%s is not f32, as the heads of a layer are looked at",
                                   types[i].name);
        }
    }
    return VKMHA_OK;
}

/* A row is padding where its own key is, or where a packed sequence has ended. */
static bool is_row_real(const vkmha_problem *given, uint64_t b, uint64_t i)
{
    const vkmha_plan_params *plan = &given->plan;
    const vkmha_problem_item item = vkmha_problem_sequence(given, b);
    if (i >= item.query_length) {
        return false;
    }
    if (!plan->key_is_query) {
        return true;
    }
    const uint64_t all_keys = plan->past_len + plan->key_len;
    const int64_t j = (int64_t)(plan->past_len + i);
    return j >= item.first_key && j < item.key_length &&
           (!plan->has_attend_keys || given->inputs.attend_keys[b * all_keys + (uint64_t)j] != 0);
}

static vkmha_status find_real_rows(const vkmha_problem *given, vkmha_subject *subject,
                                   vkmha_error *error)
{
    const vkmha_plan_params *plan = &subject->problem.plan;
    subject->rows = plan->batch_size * plan->query_len;
    subject->row_size = vkmha_problem_measure(&subject->problem).output_dim;
    subject->is_real = vkmha_pool_allocate(&subject->pool, subject->rows, sizeof(bool));
    if (!subject->is_real) {
        return out_of_memory(error);
    }
    for (uint64_t row = 0; row < subject->rows; row++) {
        subject->is_real[row] = is_row_real(given, row / plan->query_len, row % plan->query_len);
        subject->real_rows += subject->is_real[row];
    }
    return subject->real_rows > 0 ? VKMHA_OK
                                  : vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                                    "batch_size %" PRIu64 " and query_len %" PRIu64
                                                    " have no row that is not padding",
                                                    plan->batch_size, plan->query_len);
}

/* Packed sequences are padded: a run may then repeat them. */
static vkmha_status unpack(const vkmha_problem *given, vkmha_subject *subject, vkmha_error *error)
{
    vkmha_problem contiguous;
    const vkmha_status status = vkmha_same_contiguous(given, &subject->pool, &contiguous, error);
    return status == VKMHA_OK
               ? vkmha_same_unpacked(&contiguous, &subject->pool, &subject->problem, error)
               : status;
}

vkmha_status vkmha_subject_open(const vkmha_run_options *options, int num_arguments,
                                char **arguments, vkmha_subject *subject, vkmha_error *error)
{
    *subject = (vkmha_subject){.name = ""};
    vkmha_status status = VKMHA_OK;
    const bool has_files = options->weights || options->input;
    if (num_arguments == 1 && !has_files) {
        status = load_case(options, arguments[0], subject, error);
    } else if (num_arguments == 0 && options->weights && options->input) {
        status = load_run(options, subject, error);
    } else {
        return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                               "one case file, or --weights and --input, are needed; see --help");
    }
    if (status == VKMHA_OK) {
        status = check_subject(&subject->problem, error);
    }
    if (status == VKMHA_OK) {
        const vkmha_problem given = subject->problem;
        if (given.plan.is_packed) {
            status = unpack(&given, subject, error);
        }
        subject->problem.plan.has_present = false;
        if (status == VKMHA_OK) {
            status = find_real_rows(&given, subject, error);
        }
    }
    return status == VKMHA_OK ? vkmha_open_device(options->device_choice, &subject->device, error)
                              : status;
}

void vkmha_subject_finish(vkmha_subject *subject)
{
    vkmha_device_destroy(subject->device);
    vkmha_pool_finish(&subject->pool);
    vkmha_pool_finish(&subject->run.pool);
    vkmha_run_close(&subject->run);
    vkmha_file_close(subject->file);
    vkmha_case_finish(&subject->loaded);
}

/* ---- Telling ------------------------------------------------------------------------------- */

void vkmha_subject_tell(const vkmha_subject *subject, cJSON *document)
{
    const vkmha_layer_params *layer = &subject->problem.layer;
    const vkmha_plan_params *plan = &subject->problem.plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(&subject->problem);
    vkmha_device_info info;
    vkmha_device_get_info(subject->device, &info);
    if (document) {
        vkmha_json_device(document, &info);
        cJSON_AddStringToObject(document, "layer", subject->name);
        cJSON_AddNumberToObject(document, "num_heads", layer->num_heads);
        cJSON_AddNumberToObject(document, "num_kv_heads", (double)sizes.num_kv_heads);
        cJSON_AddNumberToObject(document, "batch_size", (double)plan->batch_size);
        cJSON_AddNumberToObject(document, "query_len", (double)plan->query_len);
        cJSON_AddNumberToObject(document, "real_rows", (double)subject->real_rows);
        return;
    }
    printf("device: %s (%s)\n", info.name, info.driver);
    printf("layer: %s, %u heads of %u", subject->name, layer->num_heads, layer->head_dim);
    if (sizes.num_kv_heads != layer->num_heads) {
        printf(" on %" PRIu64 " key/value heads", sizes.num_kv_heads);
    }
    printf(", batch %" PRIu64 " of %" PRIu64 " queries, %" PRIu64 " rows that are not padding\n",
           plan->batch_size, plan->query_len, subject->real_rows);
}

double vkmha_subject_change(const vkmha_subject *subject, const float *output, const float *base)
{
    double change = 0.0;
    double size = 0.0;
    for (uint64_t i = 0; i < subject->rows * subject->row_size; i++) {
        if (subject->is_real[i / subject->row_size]) {
            const double difference = (double)output[i] - (double)base[i];
            change += difference * difference;
            size += (double)base[i] * (double)base[i];
        }
    }
    return size > 0.0 ? sqrt(change / size) : (double)NAN;
}

/* ---- Repeating ----------------------------------------------------------------------------- */

/* `times` copies of a batch's array, one after the other; NULL stays NULL. */
static bool repeat(const void *values, uint64_t bytes, uint64_t times, vkmha_pool *pool,
                   const void **repeated)
{
    *repeated = values;
    if (!values) {
        return true;
    }
    char *copy = vkmha_pool_allocate(pool, times, bytes > 0 ? bytes : 1);
    for (uint64_t r = 0; copy && r < times; r++) {
        memcpy(copy + r * bytes, values, (size_t)bytes);
    }
    *repeated = copy;
    return copy != NULL;
}

static uint64_t mask_bytes(const vkmha_plan_params *plan)
{
    const uint64_t keys = plan->mask_dims[3];
    const uint64_t rows = plan->mask_dims[0] * plan->mask_dims[1] * plan->mask_dims[2];
    switch (plan->mask) {
    case VKMHA_MASK_NONE:
        return 0;
    case VKMHA_MASK_ATTEND:
        return rows * keys;
    case VKMHA_MASK_ADDITIVE:
        return rows * keys * sizeof(float);
    case VKMHA_MASK_ADDITIVE_F16:
        return rows * keys * sizeof(uint16_t);
    case VKMHA_MASK_ATTEND_BITS:
        return rows * ((keys + 31) / 32) * sizeof(uint32_t);
    }
    return 0;
}

vkmha_status vkmha_subject_repeat(const vkmha_problem *problem, uint64_t times, vkmha_pool *pool,
                                  vkmha_problem *repeated, vkmha_error *error)
{
    const vkmha_layer_params *layer = &problem->layer;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_inputs *inputs = &problem->inputs;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t batch = plan->batch_size;
    *repeated = *problem;
    repeated->plan.batch_size = batch * times;
    const void *copies[11];
    const uint64_t past_rows = batch * sizes.num_kv_heads * plan->past_len;
    const struct {
        const void *values;
        uint64_t bytes;
        bool is_shared; /* read again instead of copied */
    } arrays[11] = {
        {inputs->query, sizes.query_rows * sizes.query_dim * sizeof(float), batch == 1},
        {inputs->key, sizes.key_rows * sizes.key_dim * sizeof(float), batch == 1},
        {inputs->value, sizes.key_rows * sizes.value_dim * sizeof(float), batch == 1},
        {inputs->mask, mask_bytes(plan), plan->mask_dims[0] == 1},
        {inputs->attend_keys, batch * sizes.all_keys, false},
        {inputs->key_lengths, batch * sizeof(int32_t), false},
        {inputs->first_keys, batch * sizeof(int32_t), false},
        {inputs->position_offsets, batch * sizeof(int32_t), false},
        {inputs->query_positions, sizes.query_rows * sizeof(int32_t), false},
        {inputs->key_positions, sizes.key_rows * sizeof(int32_t), false},
        {inputs->past_key, past_rows * layer->head_dim * sizeof(float), false},
    };
    const void *past_value = NULL;
    bool has_memory = repeat(inputs->past_value, past_rows * sizes.v_head_dim * sizeof(float),
                             times, pool, &past_value);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        copies[i] = arrays[i].values;
        has_memory = (arrays[i].is_shared ||
                      repeat(arrays[i].values, arrays[i].bytes, times, pool, &copies[i])) &&
                     has_memory;
    }
    if (!has_memory) {
        return out_of_memory(error);
    }
    if (batch == 1) {
        repeated->plan.query_strides = (vkmha_strides){.is_given = true, .row = sizes.query_dim};
        repeated->plan.key_strides = (vkmha_strides){.is_given = true, .row = sizes.key_dim};
        repeated->plan.value_strides = (vkmha_strides){.is_given = true, .row = sizes.value_dim};
    } else if (plan->mask_dims[0] > 1) {
        repeated->plan.mask_dims[0] = batch * times;
    }
    vkmha_inputs *made = &repeated->inputs;
    made->query = copies[0];
    made->key = copies[1];
    made->value = copies[2];
    made->mask = copies[3];
    made->attend_keys = copies[4];
    made->key_lengths = copies[5];
    made->first_keys = copies[6];
    made->position_offsets = copies[7];
    made->query_positions = copies[8];
    made->key_positions = copies[9];
    made->past_key = copies[10];
    made->past_value = past_value;
    return VKMHA_OK;
}
