/* vkmha ablate: what the layer's output is without heads. */
#include "shape.h"
#include "subject.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha ablate CASE [--orders N] [--seed S] [--device D] [--json]\n"
    "       vkmha ablate --weights F [--prefix P] --input X [options of run] [--orders N] ...\n"
    "\n"
    "The importance of a head is |y - y without it| / |y|, from one batched call that repeats the\n"
    "input with other gates (Michel et al. 2019, \"Are Sixteen Heads Really Better than One?\"). "
    "Then 1 to\n"
    "all heads are removed: least important first, in random orders (the median of them), most\n"
    "important first; each column is |y - y without them| / |y|.\n"
    "\n" VKMHA_SUBJECT_USAGE "\n"
    "  --orders N  random orders, 1 to 99; 5 without it\n"
    "  --seed S    of the first; each next order has the next seed. 1 without it\n"
    "\n"
    "example: vkmha ablate tests/golden/demo_minilm_layer0.safetensors\n";

enum {
    ORDERS = VKMHA_RUN_OWN,
    SEED,
    MAX_ORDERS = 99,
    BAR = 40, /* characters of the longest bar */
};

typedef struct ablate_options {
    vkmha_run_options shared;
    uint64_t num_orders;
    uint64_t seed;
} ablate_options;

/* Changes of y by order and number of removed heads: [2 + num_orders][num_heads]; least important
 * first, most important first, then at random. */
typedef struct removals {
    const vkmha_subject *subject;
    const float *base;
    double *changes;
} removals;

static void measure(void *user, uint64_t variant, const float *output)
{
    const removals *measured = user;
    measured->changes[variant] = vkmha_subject_change(measured->subject, output, measured->base);
}

/* Fisher and Yates. */
static void shuffle(uint64_t seed, uint32_t count, uint32_t *order)
{
    vkmha_random random = {seed};
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t other = (uint32_t)vkmha_random_below(&random, i);
        const uint32_t kept = order[i - 1];
        order[i - 1] = order[other];
        order[other] = kept;
    }
}

static vkmha_status remove_heads(const ablate_options *options, vkmha_subject *subject,
                                 const vkmha_importance *importance, removals *measured,
                                 vkmha_error *error)
{
    const uint32_t num_heads = subject->problem.layer.num_heads;
    const uint64_t num_orders = 2 + options->num_orders;
    vkmha_pool *pool = &subject->pool;
    const uint64_t count = num_orders * num_heads;
    uint32_t *order = vkmha_pool_allocate(pool, num_heads, sizeof(uint32_t));
    float *gates = vkmha_pool_allocate(pool, count * num_heads, sizeof(float));
    *measured = (removals){
        .subject = subject,
        .base = importance->base,
        .changes = vkmha_pool_allocate(pool, count, sizeof(double)),
    };
    if (!order || !gates || !measured->changes) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    for (uint64_t o = 0; o < num_orders; o++) {
        if (o >= 2) {
            shuffle(options->seed + (o - 2), num_heads, order);
        }
        for (uint32_t i = 0; o < 2 && i < num_heads; i++) {
            order[i] = importance->order[o == 0 ? i : num_heads - 1 - i];
        }
        for (uint32_t removed = 0; removed < num_heads; removed++) {
            float *variant = gates + (o * num_heads + removed) * num_heads;
            for (uint32_t i = 0; i < num_heads; i++) {
                variant[order[i]] = i <= removed ? 0.0f : 1.0f;
            }
        }
    }
    return vkmha_gated_run(subject->device, &subject->problem, gates, count, measure, measured,
                           error);
}

/* ---- Telling ------------------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Of the random orders, with `removed` + 1 heads gone. */
static double median_change(const removals *measured, uint32_t num_heads, uint64_t num_orders,
                            uint32_t removed)
{
    double values[MAX_ORDERS];
    for (uint64_t o = 0; o < num_orders; o++) {
        values[o] = measured->changes[(2 + o) * num_heads + removed];
    }
    qsort(values, (size_t)num_orders, sizeof(double), compare_numbers);
    return 0.5 * (values[(num_orders - 1) / 2] + values[num_orders / 2]);
}

static void tell_importance(const vkmha_subject *subject, const vkmha_importance *importance,
                            cJSON *document)
{
    const uint32_t num_heads = subject->problem.layer.num_heads;
    cJSON *heads = document ? cJSON_AddArrayToObject(document, "importance") : NULL;
    if (!document) {
        printf("\nimportance |y - y without the head| / |y|, from one call with gates for each of "
               "%" PRIu64 " sequences:\n",
               (num_heads + 1) * subject->problem.plan.batch_size);
    }
    const double most = importance->changes[importance->order[num_heads - 1]];
    for (uint32_t h = 0; h < num_heads; h++) {
        const double change = importance->changes[h];
        if (document) {
            cJSON_AddItemToArray(heads, cJSON_CreateNumber(change));
            continue;
        }
        char bar[BAR + 1] = "";
        memset(bar, '#', (size_t)(most > 0.0 ? BAR * change / most + 0.5 : 0.0));
        printf("  head %3" PRIu32 "  %8.5f  %s\n", h, change, bar);
    }
}

static void tell_removals(const ablate_options *options, const vkmha_subject *subject,
                          const vkmha_importance *importance, const removals *measured,
                          cJSON *document)
{
    const uint32_t num_heads = subject->problem.layer.num_heads;
    cJSON *rows = NULL;
    if (document) {
        cJSON *order = cJSON_AddArrayToObject(document, "least_first_order");
        for (uint32_t i = 0; i < num_heads; i++) {
            cJSON_AddItemToArray(order, cJSON_CreateNumber(importance->order[i]));
        }
        cJSON_AddNumberToObject(document, "seed", (double)options->seed);
        cJSON_AddNumberToObject(document, "random_orders", (double)options->num_orders);
        rows = cJSON_AddArrayToObject(document, "removed");
    } else {
        printf("\n|y - y without the removed heads| / |y|; at random: median of %" PRIu64
               " orders, seeds %" PRIu64 "..%" PRIu64 "\n",
               options->num_orders, options->seed, options->seed + options->num_orders - 1);
        printf("  removed   least important first      at random   most important first\n");
    }
    for (uint32_t i = 0; i < num_heads; i++) {
        const double least = measured->changes[i];
        const double most = measured->changes[num_heads + i];
        const double random = median_change(measured, num_heads, options->num_orders, i);
        const uint32_t least_head = importance->order[i];
        const uint32_t most_head = importance->order[num_heads - 1 - i];
        if (document) {
            cJSON *row = cJSON_CreateObject();
            cJSON_AddNumberToObject(row, "count", i + 1);
            cJSON_AddNumberToObject(row, "least_first", least);
            cJSON_AddNumberToObject(row, "random_median", random);
            cJSON_AddNumberToObject(row, "most_first", most);
            cJSON_AddItemToArray(rows, row);
        } else {
            printf("  %7" PRIu32 "   %8.5f (head %3" PRIu32 ")        %8.5f   %8.5f (head %3" PRIu32
                   ")\n",
                   i + 1, least, least_head, random, most, most_head);
        }
    }
}

/* ---- The command --------------------------------------------------------------------------- */

static int ablate(const void *command, int num_arguments, char **arguments)
{
    const ablate_options *options = command;
    vkmha_error error = {0};
    vkmha_subject subject;
    vkmha_importance importance;
    removals measured;
    vkmha_status status =
        vkmha_subject_open(&options->shared, num_arguments, arguments, &subject, &error);
    if (status == VKMHA_OK) {
        status = vkmha_subject_importance(&subject, &importance, &error);
    }
    if (status == VKMHA_OK) {
        status = remove_heads(options, &subject, &importance, &measured, &error);
    }
    int code = VKMHA_EXIT_RIGHT;
    if (status == VKMHA_OK) {
        cJSON *document = options->shared.is_json ? cJSON_CreateObject() : NULL;
        vkmha_subject_tell(&subject, document);
        tell_importance(&subject, &importance, document);
        tell_removals(options, &subject, &importance, &measured, document);
        code = document ? vkmha_print_json(document, code) : code;
    } else {
        code = vkmha_tool_report(&error);
    }
    vkmha_subject_finish(&subject);
    return code;
}

static bool take_option(void *command, int option, const char *value)
{
    ablate_options *options = command;
    return option == ORDERS
               ? vkmha_parse_option("--orders", value, 1, MAX_ORDERS, &options->num_orders)
               : vkmha_parse_option("--seed", value, 0, UINT32_MAX, &options->seed);
}

int vkmha_command_ablate(int argc, char **argv)
{
    static const struct option known[] = {
        VKMHA_RUN_KNOWN,
        {"orders", required_argument, NULL, ORDERS},
        {"seed", required_argument, NULL, SEED},
        {NULL, 0, NULL, 0},
    };
    ablate_options options = {.num_orders = 5, .seed = 1};
    const vkmha_run_reader reader = {":h", known, &options.shared, take_option, &options};
    return vkmha_run_command(argc, argv, &reader, usage, ablate);
}
