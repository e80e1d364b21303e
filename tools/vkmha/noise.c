/* vkmha noise: what a head full of noise does to the layer, kept, weighed down and removed. */
#include "shape.h"
#include "subject.h"
#include "verify.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha noise CASE [--factors K,K..] [--head N] [--seed S] [--device D] [--json]\n"
    "       vkmha noise --weights F [--prefix P] --input X [options of run] [--factors K,K..] ...\n"
    "\n"
    "Adds noise of k times its rms to one head's attention result o_h, and tells how far y is from "
    "y\n"
    "without noise, |change| / |y|, where W_O\n"
    "  keeps the head as it is,\n"
    "  weighs it down: by the gate that leaves the least error, <c, c + k m> / |c + k m|^2 of the "
    "head's\n"
    "  part c = o_h W_O^h of y and the noise's part m, about 1 / (1 + k^2),\n"
    "  or leaves it out (gate 0).\n"
    "A noisy head need not hurt: weighed down it costs less than leaving it out. The device does "
    "all of\n"
    "it: noise reaches W_O by a second layer whose queries see one key each, so that o = v; y and "
    "the\n"
    "noise's part add up, since W_O is linear.\n"
    "\n" VKMHA_SUBJECT_USAGE "\n"
    "  --factors K,K..  k, up to 16 numbers over 0; 0.5,1,2,4,8 without it\n"
    "  --head N         only this head, with its gates\n"
    "  --seed S         of the noise; 1 without it\n"
    "\n"
    "example: vkmha noise tests/golden/demo_minilm_layer0.safetensors --head 2\n";

enum {
    FACTORS = VKMHA_RUN_OWN,
    HEAD,
    SEED,
    MAX_FACTORS = 16,
};

typedef struct noise_options {
    vkmha_run_options shared;
    double factors[MAX_FACTORS];
    uint32_t num_factors;
    bool has_head;
    uint64_t head;
    uint64_t seed;
} noise_options;

/* Errors of y for one head and factor. */
typedef struct noise_row {
    double gate;
    double kept;
    double weighed;
    double removed;
} noise_row;

/* What the heads share. Tensors of y hold the real rows alone. */
typedef struct noise_state {
    const noise_options *options;
    vkmha_subject *subject;
    vkmha_problem carrier;  /* noise -> its part of y */
    const float *attention; /* [rows, num_heads, v_head_dim] */
    float *noise;           /* [real rows, num_heads * v_head_dim] */
    noise_row *rows;        /* [head][factor] */
    vkmha_error *error;
} noise_state;

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* ---- Noise --------------------------------------------------------------------------------- */

/* Box and Muller 1958, "A note on the generation of random normal deviates". */
static double draw_normal(vkmha_random *random)
{
    const double pi = 3.14159265358979323846;
    const double radius = ((double)(vkmha_random_next(random) >> 11) + 1.0) * 0x1p-53;
    const double angle = (double)(vkmha_random_next(random) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(radius)) * cos(2.0 * pi * angle);
}

/* Noise for every head, of the rms of that head's own attention over the real rows. */
static void draw_noise(noise_state *state)
{
    const vkmha_subject *subject = state->subject;
    const uint64_t num_heads = subject->problem.layer.num_heads;
    const uint64_t v_head_dim = vkmha_problem_measure(&subject->problem).v_head_dim;
    vkmha_random random = {state->options->seed};
    for (uint64_t h = 0; h < num_heads; h++) {
        double own = 0.0;
        double drawn = 0.0;
        uint64_t real = 0;
        for (uint64_t row = 0; row < subject->rows; row++) {
            if (!subject->is_real[row]) {
                continue;
            }
            for (uint64_t d = 0; d < v_head_dim; d++) {
                const double value = state->attention[(row * num_heads + h) * v_head_dim + d];
                const double normal = draw_normal(&random);
                own += value * value;
                drawn += normal * normal;
                state->noise[(real * num_heads + h) * v_head_dim + d] = (float)normal;
            }
            real++;
        }
        const float scale = (float)(drawn > 0.0 ? sqrt(own / drawn) : 0.0);
        for (uint64_t i = 0; i < real * v_head_dim; i++) {
            state->noise[(i / v_head_dim * num_heads + h) * v_head_dim + i % v_head_dim] *= scale;
        }
    }
}

/* A layer whose attention is its value input: windows of 0 leave one key a query, whose weight is
 * 1, and w_v is the identity. w_o is the subject's, without its bias. */
static vkmha_status make_carrier(noise_state *state)
{
    const vkmha_subject *subject = state->subject;
    const vkmha_layer_params *layer = &subject->problem.layer;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(&subject->problem);
    const uint64_t num_heads = layer->num_heads;
    const uint64_t features = num_heads * sizes.v_head_dim;
    const uint64_t real_rows = subject->real_rows;
    vkmha_pool *pool = &state->subject->pool;
    float *identity = vkmha_pool_allocate(pool, features * features, sizeof(float));
    float *zeros =
        vkmha_pool_allocate(pool, real_rows > num_heads ? real_rows : num_heads, sizeof(float));
    state->noise = vkmha_pool_allocate(pool, real_rows * features, sizeof(float));
    if (!identity || !zeros || !state->noise) {
        return out_of_memory(state->error);
    }
    for (uint64_t i = 0; i < features; i++) {
        identity[i * features + i] = 1.0f;
    }
    const vkmha_matrix no_weight = {.data = zeros, .rows = num_heads, .columns = 1};
    state->carrier = (vkmha_problem){
        .layer = {.num_heads = layer->num_heads,
                  .head_dim = 1,
                  .v_head_dim = (uint32_t)sizes.v_head_dim,
                  .embed_dim = 1,
                  .value_dim = (uint32_t)features,
                  .output_dim = (uint32_t)sizes.output_dim,
                  .w_q = no_weight,
                  .w_k = no_weight,
                  .w_v = {.data = identity, .rows = features, .columns = features},
                  .w_o = layer->w_o,
                  .weight_type = layer->weight_type},
        .plan = {.batch_size = 1,
                 .query_len = real_rows,
                 .key_len = real_rows,
                 .key_is_query = true,
                 .has_window_left = true,
                 .has_window_right = true},
        .inputs = {.query = zeros, .value = state->noise},
    };
    draw_noise(state);
    return VKMHA_OK;
}

/* The attention of all heads, from the device. */
static vkmha_status run_attention(noise_state *state)
{
    vkmha_subject *subject = state->subject;
    vkmha_trial trial;
    vkmha_results results;
    vkmha_status status =
        vkmha_trial_create(subject->device, &subject->problem, NULL, NULL, &trial, state->error);
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, &subject->problem, true, &subject->pool, &results,
                                 state->error);
        state->attention = results.attention;
    }
    vkmha_trial_finish(&trial);
    return status;
}

/* ---- One head ------------------------------------------------------------------------------ */

/* y, or a part of it, of several variants: [variant][real rows, row_size]. */
typedef struct kept_rows {
    const vkmha_subject *subject;
    bool is_dense; /* all rows are real ones */
    float *values;
} kept_rows;

static void keep_rows(void *user, uint64_t variant, const float *output)
{
    const kept_rows *kept = user;
    const vkmha_subject *subject = kept->subject;
    const size_t row_bytes = (size_t)subject->row_size * sizeof(float);
    float *to = kept->values + variant * subject->real_rows * subject->row_size;
    const uint64_t rows = kept->is_dense ? subject->real_rows : subject->rows;
    for (uint64_t row = 0; row < rows; row++) {
        if (kept->is_dense || subject->is_real[row]) {
            memcpy(to, output + row * subject->row_size, row_bytes);
            to += subject->row_size;
        }
    }
}

/* Runs the layer, or the carrier, with `gates` of head h; the other heads have 1, and the carrier's
 * 0. */
static vkmha_status run_gates(const noise_state *state, bool is_carrier, uint64_t h,
                              const double *gates, uint32_t count, vkmha_pool *pool, float **values)
{
    const vkmha_subject *subject = state->subject;
    const uint64_t num_heads = subject->problem.layer.num_heads;
    float *all = vkmha_pool_allocate(pool, count * num_heads, sizeof(float));
    *values =
        vkmha_pool_allocate(pool, count * subject->real_rows * subject->row_size, sizeof(float));
    if (!all || !*values) {
        return out_of_memory(state->error);
    }
    for (uint64_t i = 0; i < count * num_heads; i++) {
        all[i] = i % num_heads == h ? (float)gates[i / num_heads] : is_carrier ? 0.0f : 1.0f;
    }
    kept_rows kept = {subject, is_carrier, *values};
    return vkmha_gated_run(subject->device, is_carrier ? &state->carrier : &subject->problem, all,
                           count, keep_rows, &kept, state->error);
}

/* |first + second - base| / |base|; second may be NULL. */
static double error_of(const float *first, const float *second, const float *base, uint64_t count)
{
    double change = 0.0;
    double size = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        const double value = (double)first[i] + (second ? (double)second[i] : 0.0) - base[i];
        change += value * value;
        size += (double)base[i] * (double)base[i];
    }
    return size > 0.0 ? sqrt(change / size) : (double)NAN;
}

/* The gate g for which |(g - 1) c + g k m| is least, c = y - y without the head. */
static double best_gate(const float *base, const float *without, const float *part, uint64_t count,
                        double factor)
{
    double product = 0.0;
    double size = 0.0;
    for (uint64_t i = 0; i < count; i++) {
        const double own = (double)base[i] - (double)without[i];
        const double noisy = own + factor * (double)part[i];
        product += own * noisy;
        size += noisy * noisy;
    }
    return size > 0.0 ? product / size : 0.0;
}

static vkmha_status measure_head(const noise_state *state, uint64_t h, noise_row *rows)
{
    const noise_options *options = state->options;
    const uint32_t num_factors = options->num_factors;
    const uint64_t count = state->subject->real_rows * state->subject->row_size;
    vkmha_pool pool = {0};
    float *layer[2] = {NULL};
    float *carrier[2] = {NULL};
    double gates[2 * MAX_FACTORS] = {1.0, 0.0};
    vkmha_status status = run_gates(state, false, h, gates, 2, &pool, &layer[0]);
    if (status == VKMHA_OK) {
        status = run_gates(state, true, h, gates, 1, &pool, &carrier[0]);
    }
    const float *base = layer[0];
    const float *without = layer[0] ? layer[0] + count : NULL;
    for (uint32_t k = 0; status == VKMHA_OK && k < num_factors; k++) {
        gates[k] = best_gate(base, without, carrier[0], count, options->factors[k]);
        rows[k].gate = gates[k];
    }
    if (status == VKMHA_OK) {
        status = run_gates(state, false, h, gates, num_factors, &pool, &layer[1]);
    }
    for (uint32_t k = 0; k < num_factors; k++) {
        gates[k] = options->factors[k];
        gates[num_factors + k] = options->factors[k] * rows[k].gate;
    }
    if (status == VKMHA_OK) {
        status = run_gates(state, true, h, gates, 2 * num_factors, &pool, &carrier[1]);
    }
    for (uint32_t k = 0; status == VKMHA_OK && k < num_factors; k++) {
        const float *noisy = carrier[1] + k * count;
        const float *quiet = carrier[1] + (num_factors + k) * count;
        rows[k].kept = error_of(base, noisy, base, count);
        rows[k].weighed = error_of(layer[1] + k * count, quiet, base, count);
        rows[k].removed = error_of(without, NULL, base, count);
    }
    vkmha_pool_finish(&pool);
    return status;
}

/* ---- Telling ------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Over the heads, of the field at `offset` of each row with factor k. */
static double median_of(const noise_row *rows, uint32_t num_heads, uint32_t num_factors, uint32_t k,
                        size_t offset, double *scratch)
{
    for (uint32_t i = 0; i < num_heads; i++) {
        memcpy(&scratch[i], (const char *)&rows[(size_t)i * num_factors + k] + offset,
               sizeof(double));
    }
    qsort(scratch, num_heads, sizeof(double), compare_numbers);
    return 0.5 * (scratch[(num_heads - 1) / 2] + scratch[num_heads / 2]);
}

static noise_row median_row(const noise_row *rows, uint32_t num_heads, uint32_t num_factors,
                            uint32_t k, double *scratch)
{
    return (noise_row){
        median_of(rows, num_heads, num_factors, k, offsetof(noise_row, gate), scratch),
        median_of(rows, num_heads, num_factors, k, offsetof(noise_row, kept), scratch),
        median_of(rows, num_heads, num_factors, k, offsetof(noise_row, weighed), scratch),
        median_of(rows, num_heads, num_factors, k, offsetof(noise_row, removed), scratch),
    };
}

static void tell_row(double factor, const noise_row *row, cJSON *list)
{
    const double ideal = 1.0 / (1.0 + factor * factor);
    if (!list) {
        printf("  %6g  %8.5f  %9.5f  %8.5f  %12.5f  %8.5f\n", factor, row->gate, ideal, row->kept,
               row->weighed, row->removed);
        return;
    }
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "factor", factor);
    cJSON_AddNumberToObject(object, "gate", row->gate);
    cJSON_AddNumberToObject(object, "ideal_gate", ideal);
    cJSON_AddNumberToObject(object, "kept", row->kept);
    cJSON_AddNumberToObject(object, "weighed_down", row->weighed);
    cJSON_AddNumberToObject(object, "removed", row->removed);
    cJSON_AddItemToArray(list, object);
}

static void tell_heads(const noise_options *options, const noise_row *rows, uint32_t num_heads)
{
    printf("\neach head: kept / weighed down\n  head  removed");
    for (uint32_t k = 0; k < options->num_factors; k++) {
        char title[24];
        snprintf(title, sizeof(title), "k = %g", options->factors[k]);
        printf("   %15s", title);
    }
    for (uint32_t i = 0; i < num_heads; i++) {
        printf("\n  %4" PRIu32 "  %7.4f", i, rows[(size_t)i * options->num_factors].removed);
        for (uint32_t k = 0; k < options->num_factors; k++) {
            const noise_row *row = &rows[(size_t)i * options->num_factors + k];
            printf("   %6.3f / %6.4f", row->kept, row->weighed);
        }
    }
    printf("\n");
}

static int tell(const noise_state *state, uint32_t first, uint32_t num_heads, double *scratch)
{
    const noise_options *options = state->options;
    const noise_row *rows = state->rows;
    cJSON *document = options->shared.is_json ? cJSON_CreateObject() : NULL;
    cJSON *list = NULL;
    vkmha_subject_tell(state->subject, document);
    if (document) {
        cJSON_AddNumberToObject(document, "seed", (double)options->seed);
        cJSON *heads = cJSON_AddArrayToObject(document, "heads");
        for (uint32_t i = 0; i < num_heads; i++) {
            cJSON *head = cJSON_CreateObject();
            cJSON_AddNumberToObject(head, "head", first + i);
            list = cJSON_AddArrayToObject(head, "noise");
            for (uint32_t k = 0; k < options->num_factors; k++) {
                tell_row(options->factors[k], &rows[(size_t)i * options->num_factors + k], list);
            }
            cJSON_AddItemToArray(heads, head);
        }
        list = cJSON_AddArrayToObject(document, "medians");
    } else {
        printf("\n|y with a noisy head - y| / |y|, noise of k times the head's rms, seed %" PRIu64
               "; ",
               options->seed);
        if (num_heads == 1) {
            printf("head %" PRIu32 "\n", first);
        } else {
            printf("median of %" PRIu32 " heads\n", num_heads);
        }
        printf("       k      gate  1/(1+k^2)      kept  weighed down   removed\n");
    }
    for (uint32_t k = 0; k < options->num_factors; k++) {
        const noise_row row = median_row(rows, num_heads, options->num_factors, k, scratch);
        tell_row(options->factors[k], &row, list);
    }
    if (document) {
        return vkmha_print_json(document, VKMHA_EXIT_RIGHT);
    }
    if (num_heads > 1) {
        tell_heads(options, rows, num_heads);
    }
    return VKMHA_EXIT_RIGHT;
}

/* ---- The command --------------------------------------------------------------------------- */

static vkmha_status measure_heads(noise_state *state, uint32_t first, uint32_t num_heads)
{
    const uint32_t num_factors = state->options->num_factors;
    vkmha_progress progress;
    vkmha_progress_start(&progress);
    vkmha_status status = run_attention(state);
    if (status == VKMHA_OK) {
        status = make_carrier(state);
    }
    for (uint32_t i = 0; status == VKMHA_OK && i < num_heads; i++) {
        vkmha_progress_show(&progress, "head", i, num_heads);
        status = measure_head(state, first + i, &state->rows[(size_t)i * num_factors]);
        if (status == VKMHA_OK && !isfinite(state->rows[(size_t)i * num_factors].removed)) {
            status = vkmha_tool_fail(state->error, VKMHA_ERROR_INVALID_ARGUMENT,
                                     "the layer's output is 0 or not finite: no change can be "
                                     "measured (head %" PRIu32 ")",
                                     first + i);
        }
    }
    vkmha_progress_clear(&progress);
    return status;
}

static int add_noise(const void *command, int num_arguments, char **arguments)
{
    const noise_options *options = command;
    vkmha_error error = {0};
    vkmha_subject subject;
    vkmha_status status =
        vkmha_subject_open(&options->shared, num_arguments, arguments, &subject, &error);
    const uint32_t all_heads = subject.problem.layer.num_heads;
    const uint32_t first = options->has_head ? (uint32_t)options->head : 0;
    const uint32_t num_heads = options->has_head ? 1 : all_heads;
    if (status == VKMHA_OK && first >= all_heads) {
        status =
            vkmha_tool_fail(&error, VKMHA_ERROR_INVALID_ARGUMENT,
                            "--head %" PRIu32 " is not below num_heads %" PRIu32, first, all_heads);
    }
    noise_state state = {.options = options, .subject = &subject, .error = &error};
    double *scratch = vkmha_pool_allocate(&subject.pool, num_heads, sizeof(double));
    state.rows = vkmha_pool_allocate(&subject.pool, (uint64_t)num_heads * options->num_factors,
                                     sizeof(noise_row));
    if (status == VKMHA_OK && (!scratch || !state.rows)) {
        status = out_of_memory(&error);
    }
    if (status == VKMHA_OK) {
        status = measure_heads(&state, first, num_heads);
    }
    const int code =
        status == VKMHA_OK ? tell(&state, first, num_heads, scratch) : vkmha_tool_report(&error);
    vkmha_subject_finish(&subject);
    return code;
}

static bool parse_factors(const char *text, noise_options *options)
{
    const char *at = text;
    options->num_factors = 0;
    while (true) {
        char *end = NULL;
        const double factor = strtod(at, &end);
        const bool is_right = end != at && (*end == ',' || *end == '\0') && isfinite(factor) &&
                              factor > 0.0 && options->num_factors < MAX_FACTORS;
        if (!is_right) {
            vkmha_tool_misuse("--factors \"%s\" is not up to %d numbers over 0 between commas",
                              text, MAX_FACTORS);
            return false;
        }
        options->factors[options->num_factors++] = factor;
        if (*end == '\0') {
            return true;
        }
        at = end + 1;
    }
}

static bool take_option(void *command, int option, const char *value)
{
    noise_options *options = command;
    if (option == FACTORS) {
        return parse_factors(value, options);
    }
    if (option == SEED) {
        return vkmha_parse_option("--seed", value, 0, UINT32_MAX, &options->seed);
    }
    options->has_head = true;
    return vkmha_parse_option("--head", value, 0, UINT32_MAX, &options->head);
}

int vkmha_command_noise(int argc, char **argv)
{
    static const struct option known[] = {
        VKMHA_RUN_KNOWN,
        {"factors", required_argument, NULL, FACTORS},
        {"head", required_argument, NULL, HEAD},
        {"seed", required_argument, NULL, SEED},
        {NULL, 0, NULL, 0},
    };
    noise_options options = {.factors = {0.5, 1.0, 2.0, 4.0, 8.0}, .num_factors = 5, .seed = 1};
    const vkmha_run_reader reader = {":h", known, &options.shared, take_option, &options};
    return vkmha_run_command(argc, argv, &reader, usage, add_noise);
}
