/* vkmha heads: what each head of a layer does. */
#include "heads.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char usage[] =
    "usage: vkmha heads CASE [--html FILE] [--png FILE] [--heads H,H..] [--sequence B]\n"
    "                   [--device D] [--json]\n"
    "       vkmha heads --weights F [--prefix P] --input X [options of run] [--html FILE] ...\n"
    "\n"
    "One line a head; means are over the queries that are not padding:\n"
    "  entropy       of the weights, in nats, and as a share of that of equal weights on the keys "
    "that\n"
    "                the query may see\n"
    "  largest       weight of a query\n"
    "  distance      sum over keys of weight times |query - key|\n"
    "  previous.. last  weight of the key before the query, its own, the next; of the first and "
    "last "
    "key\n"
    "  contribution  |o_h W_O^h|, as a share of the sum over heads\n"
    "  left out      |y - y without the head| / |y|\n"
    "Kinds, by those means; the first that holds:\n" VKMHA_HEAD_KINDS "\n"
    "Maps show the weights of one sequence, row by query. From 513 tokens on a cell is a block of "
    "weights,\n"
    "shown by the largest and by the mean; only the weights of the chosen heads are ever held.\n"
    "\n" VKMHA_SUBJECT_USAGE "\n"
    "  --html FILE    a page with the table and the maps, complete in itself\n"
    "  --png FILE     the maps as one picture\n"
    "  --heads H,H..  the maps' heads; without it, all\n"
    "  --sequence B   the maps' sequence of the batch; without it, the longest\n"
    "\n"
    "example: vkmha heads tests/golden/demo_minilm_layer0.safetensors --html heads.html --heads "
    "0,5\n";

enum {
    HTML = VKMHA_RUN_OWN,
    PNG_FILE,
    HEADS,
    SEQUENCE,
};

typedef struct heads_options {
    vkmha_run_options shared;
    const char *html;
    const char *png;
    const char *heads;
    bool has_sequence;
    uint64_t sequence;
} heads_options;

/* ---- Telling ------------------------------------------------------------------------------- */

static void tell_json(const vkmha_head *heads, uint32_t num_heads, cJSON *document)
{
    cJSON *list = cJSON_AddArrayToObject(document, "heads");
    for (uint32_t h = 0; h < num_heads; h++) {
        const vkmha_head *head = &heads[h];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "head", h);
        cJSON_AddStringToObject(row, "kind", head->kind);
        cJSON_AddNumberToObject(row, "entropy", head->entropy);
        cJSON_AddNumberToObject(row, "entropy_share", head->entropy_share);
        cJSON_AddNumberToObject(row, "max_weight", head->max_weight);
        cJSON_AddNumberToObject(row, "largest_weight", head->largest_weight);
        cJSON_AddNumberToObject(row, "distance", head->distance);
        cJSON_AddNumberToObject(row, "previous", head->previous);
        cJSON_AddNumberToObject(row, "self", head->self);
        cJSON_AddNumberToObject(row, "next", head->next);
        cJSON_AddNumberToObject(row, "first", head->first);
        cJSON_AddNumberToObject(row, "last", head->last);
        cJSON_AddNumberToObject(row, "contribution", head->contribution);
        cJSON_AddNumberToObject(row, "leave_one_out", head->leave_one_out);
        cJSON_AddItemToArray(list, row);
    }
}

static void tell_table(const vkmha_head *heads, uint32_t num_heads)
{
    printf(
        "\n  head  kind       entropy  of equal  largest  distance  previous   self   next  first "
        "  last  contribution  left out\n");
    for (uint32_t h = 0; h < num_heads; h++) {
        const vkmha_head *head = &heads[h];
        char share[16] = "-";
        if (isfinite(head->entropy_share)) {
            snprintf(share, sizeof(share), "%.0f %%", 100.0 * head->entropy_share);
        }
        printf("  %4" PRIu32
               "  %-8s   %7.3f  %8s  %7.3f  %8.2f  %8.3f  %5.3f  %5.3f  %5.3f  %5.3f  "
               "%10.1f %%  %8.5f\n",
               h, head->kind, head->entropy, share, head->max_weight, head->distance,
               head->previous, head->self, head->next, head->first, head->last,
               100.0 * head->contribution, head->leave_one_out);
    }
}

/* ---- Maps ---------------------------------------------------------------------------------- */

static vkmha_status choose_heads(const heads_options *options, vkmha_subject *subject,
                                 uint32_t **chosen, uint32_t *count, vkmha_error *error)
{
    const uint32_t num_heads = subject->problem.layer.num_heads;
    const char *at = options->heads;
    *count = 0;
    *chosen = vkmha_pool_allocate(&subject->pool, num_heads, sizeof(uint32_t));
    if (!*chosen) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    for (uint32_t h = 0; !at && h < num_heads; h++) {
        (*chosen)[(*count)++] = h;
    }
    while (at) {
        char text[16] = "";
        const size_t length = strcspn(at, ",");
        uint64_t head = 0;
        if (length < sizeof(text)) {
            memcpy(text, at, length);
        }
        const bool is_number = vkmha_parse_number(text, UINT32_MAX, &head);
        if (!is_number || head >= num_heads || (*count > 0 && head <= (*chosen)[*count - 1])) {
            return vkmha_tool_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                                   "--heads \"%.100s\" is not ascending numbers below num_heads "
                                   "%" PRIu32,
                                   options->heads, num_heads);
        }
        (*chosen)[(*count)++] = (uint32_t)head;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return VKMHA_OK;
}

/* The sequence with the most rows that are not padding. */
static uint64_t find_longest(const vkmha_subject *subject)
{
    const uint64_t query_len = subject->problem.plan.query_len;
    uint64_t longest = 0;
    uint64_t most = 0;
    for (uint64_t b = 0; b < subject->problem.plan.batch_size; b++) {
        uint64_t real = 0;
        for (uint64_t i = 0; i < query_len; i++) {
            real += subject->is_real[b * query_len + i];
        }
        longest = real > most ? b : longest;
        most = real > most ? real : most;
    }
    return longest;
}

static vkmha_status show_maps(const heads_options *options, vkmha_gallery *gallery,
                              vkmha_subject *subject, const uint32_t *chosen, vkmha_error *error)
{
    const uint32_t count = gallery->num_maps;
    vkmha_map *maps = vkmha_pool_allocate(&subject->pool, count, sizeof(vkmha_map));
    gallery->maps = maps;
    vkmha_status status =
        maps ? vkmha_heads_map(subject, gallery->sequence, chosen, count, maps, error)
             : vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    if (status == VKMHA_OK) {
        vkmha_sentence_read(subject->sentences, gallery->sequence, maps[0].num_keys,
                            &gallery->sentence);
    }
    if (status == VKMHA_OK && options->html) {
        status = vkmha_heads_write_page(gallery, options->html, error);
    }
    if (status == VKMHA_OK && options->png) {
        status = vkmha_heads_write_sheet(gallery, options->png, error);
    }
    return status;
}

/* ---- The command --------------------------------------------------------------------------- */

static int tell(const heads_options *options, const vkmha_subject *subject, const vkmha_head *heads)
{
    const uint32_t num_heads = subject->problem.layer.num_heads;
    cJSON *document = options->shared.is_json ? cJSON_CreateObject() : NULL;
    const char *const files[] = {options->html, options->png};
    vkmha_subject_tell(subject, document);
    if (document) {
        tell_json(heads, num_heads, document);
        cJSON_AddStringToObject(document, "html", options->html ? options->html : "");
        cJSON_AddStringToObject(document, "png", options->png ? options->png : "");
        return vkmha_print_json(document, VKMHA_EXIT_RIGHT);
    }
    tell_table(heads, num_heads);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (files[i]) {
            printf("wrote %s\n", files[i]);
        }
    }
    return VKMHA_EXIT_RIGHT;
}

static int look_at_heads(const void *command, int num_arguments, char **arguments)
{
    const heads_options *options = command;
    vkmha_error error = {0};
    vkmha_subject subject;
    uint32_t *chosen = NULL;
    vkmha_gallery gallery = {.subject = &subject};
    vkmha_status status =
        vkmha_subject_open(&options->shared, num_arguments, arguments, &subject, &error);
    const uint64_t batch_size = subject.problem.plan.batch_size;
    vkmha_head *heads =
        vkmha_pool_allocate(&subject.pool, subject.problem.layer.num_heads, sizeof(vkmha_head));
    gallery.heads = heads;
    if (status == VKMHA_OK) {
        status = choose_heads(options, &subject, &chosen, &gallery.num_maps, &error);
    }
    if (status == VKMHA_OK) {
        gallery.sequence = options->has_sequence ? options->sequence : find_longest(&subject);
    }
    if (status == VKMHA_OK && gallery.sequence >= batch_size) {
        status = vkmha_tool_fail(&error, VKMHA_ERROR_INVALID_ARGUMENT,
                                 "--sequence %" PRIu64 " is not below batch_size %" PRIu64,
                                 gallery.sequence, batch_size);
    }
    if (status == VKMHA_OK) {
        status = heads ? vkmha_heads_measure(&subject, heads, &error)
                       : vkmha_tool_fail(&error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    if (status == VKMHA_OK && (options->html || options->png)) {
        status = show_maps(options, &gallery, &subject, chosen, &error);
    }
    const int code =
        status == VKMHA_OK ? tell(options, &subject, heads) : vkmha_tool_report(&error);
    vkmha_subject_finish(&subject);
    return code;
}

static bool take_option(void *command, int option, const char *value)
{
    heads_options *options = command;
    switch (option) {
    case HTML:
        options->html = value;
        return true;
    case PNG_FILE:
        options->png = value;
        return true;
    case HEADS:
        options->heads = value;
        return true;
    default:
        options->has_sequence = true;
        return vkmha_parse_option("--sequence", value, 0, UINT32_MAX, &options->sequence);
    }
}

int vkmha_command_heads(int argc, char **argv)
{
    static const struct option known[] = {
        VKMHA_RUN_KNOWN,
        {"html", required_argument, NULL, HTML},
        {"png", required_argument, NULL, PNG_FILE},
        {"heads", required_argument, NULL, HEADS},
        {"sequence", required_argument, NULL, SEQUENCE},
        {NULL, 0, NULL, 0},
    };
    heads_options options = {.html = NULL};
    const vkmha_run_reader reader = {":h", known, &options.shared, take_option, &options};
    return vkmha_run_command(argc, argv, &reader, usage, look_at_heads);
}
