/* The command's heads, ablate, noise and prune: their numbers against the reference's, their
 * pictures read back. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <sys/wait.h>

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <png.h>

#include <vkmha/vkmha_files.h>
#include <vkmha/vkmha_reference.h>

#include "scratch.h"

#define DEMO VKMHA_TEST_SOURCE "/tests/golden/demo_minilm_layer0.safetensors"

enum {
    BATCH = 8,
    LENGTH = 14,
    EMBED = 384,
    HEADS = 12,
    HEAD_DIM = 32,
    ROWS = BATCH * LENGTH,
    SIZE = ROWS * EMBED,
};

TestSuite(heads, .init = scratch_create, .fini = scratch_destroy, .timeout = 300);

/* ---- Running the command --------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *size)
{
    FILE *stream = fopen(path, "rb");
    cr_assert_not_null(stream, "%s", path);
    fseek(stream, 0, SEEK_END);
    *size = (size_t)ftell(stream);
    rewind(stream);
    char *bytes = calloc(1, *size + 1);
    cr_assert_not_null(bytes);
    cr_assert_eq(fread(bytes, 1, *size, stream), *size);
    fclose(stream);
    return bytes;
}

/* Runs the command with these arguments in the scratch folder; its output goes to files there. */
static int run_command(const char *format, ...)
{
    char arguments[1024];
    char line[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof(arguments), format, list);
    va_end(list);
    snprintf(line, sizeof(line), "cd '%s' && '%s' %s >out.txt 2>err.txt", scratch_folder,
             VKMHA_TEST_TOOL, arguments);
    const int status = system(line);
    cr_assert(WIFEXITED(status), "%s", arguments);
    return WEXITSTATUS(status);
}

static cJSON *read_json(void)
{
    size_t size = 0;
    char *text = read_file(scratch_path("out.txt"), &size);
    cJSON *document = cJSON_ParseWithOpts(text, NULL, true);
    cr_assert_not_null(document, "%s", text);
    free(text);
    return document;
}

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    cr_assert(cJSON_IsNumber(item), "%s", name);
    return item->valuedouble;
}

static const cJSON *item_of(const cJSON *object, const char *name, int index)
{
    const cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(object, name), index);
    cr_assert_not_null(item, "%s[%d]", name, index);
    return item;
}

/* Wrong use: this status, one line on stderr with this text in it, and no new file. */
static void expect_refusal(int status, const char *text, const char *arguments)
{
    const size_t files = scratch_count(0);
    cr_expect_eq(run_command("%s", arguments), status, "%s", arguments);
    size_t size = 0;
    char *line = read_file(scratch_path("err.txt"), &size);
    cr_expect_not_null(strstr(line, text), "\"%s\" is not in: %s", text, line);
    cr_expect(size > 0 && strchr(line, '\n') == line + size - 1, "not one line: %s", line);
    free(line);
    cr_expect_eq(scratch_count(0), files > 2 ? files : 2, "%s has left a file", arguments);
}

/* ---- The demo layer in the reference --------------------------------------------------------- */

typedef struct demo {
    vkmha_file *file;
    vkmha_layer_params layer;
    vkmha_plan_params plan;
    vkmha_inputs inputs;
    float query[SIZE];
    uint8_t attend[ROWS];
} demo;

static vkmha_matrix matrix_of(const vkmha_file *file, const char *name)
{
    const vkmha_tensor *tensor = vkmha_file_find(file, name);
    cr_assert_eq(tensor->type, VKMHA_FILE_F16);
    return (vkmha_matrix){.data = tensor->data,
                          .type = VKMHA_TYPE_F16,
                          .rows = tensor->dims[0],
                          .columns = tensor->dims[1]};
}

static vkmha_vector vector_of(const vkmha_file *file, const char *name)
{
    const vkmha_tensor *tensor = vkmha_file_find(file, name);
    return (vkmha_vector){.data = tensor->data, .type = VKMHA_TYPE_F16, .size = tensor->count};
}

static void demo_open(demo *of)
{
    of->file = scratch_open_good(DEMO);
    of->layer = (vkmha_layer_params){
        .num_heads = HEADS,
        .head_dim = HEAD_DIM,
        .embed_dim = EMBED,
        .w_q = matrix_of(of->file, "w_q"),
        .w_k = matrix_of(of->file, "w_k"),
        .w_v = matrix_of(of->file, "w_v"),
        .w_o = matrix_of(of->file, "w_o"),
        .b_q = vector_of(of->file, "b_q"),
        .b_k = vector_of(of->file, "b_k"),
        .b_v = vector_of(of->file, "b_v"),
        .b_o = vector_of(of->file, "b_o"),
    };
    of->plan = (vkmha_plan_params){.batch_size = BATCH,
                                   .query_len = LENGTH,
                                   .key_len = LENGTH,
                                   .key_is_query = true,
                                   .value_is_key = true,
                                   .has_attend_keys = true,
                                   .has_head_gates = true};
    const vkmha_tensor *padding = vkmha_file_find(of->file, "key_padding_mask");
    cr_assert_eq(vkmha_tensor_to_f32(vkmha_file_find(of->file, "query"), of->query, NULL),
                 VKMHA_OK);
    memcpy(of->attend, padding->data, ROWS);
    of->inputs = (vkmha_inputs){.query = of->query, .attend_keys = of->attend};
}

static void demo_run(demo *of, const float *gates, double *output)
{
    vkmha_error error;
    of->inputs.head_gates = gates;
    const vkmha_reference_outputs outputs = {.output = output};
    cr_assert_eq(
        vkmha_reference_run(&of->layer, &of->plan, &of->inputs, NULL, NULL, &outputs, &error),
        VKMHA_OK, "%s", error.message);
}

/* |y - base| / |base| over the rows that are not padding. */
static double change_of(const demo *of, const double *output, const double *base)
{
    double change = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < SIZE; i++) {
        if (of->attend[i / EMBED]) {
            change += (output[i] - base[i]) * (output[i] - base[i]);
            size += base[i] * base[i];
        }
    }
    return sqrt(change / size);
}

/* ---- ablate ---------------------------------------------------------------------------------- */

Test(heads, ablate_agrees_with_the_reference)
{
    static demo layer;
    static double base[SIZE];
    static double output[SIZE];
    float gates[HEADS];
    demo_open(&layer);
    cr_assert_eq(run_command("ablate %s --json --orders 3 --seed 7", DEMO), 0);
    cJSON *document = read_json();
    for (int h = 0; h < HEADS; h++) {
        gates[h] = 1.0f;
    }
    demo_run(&layer, gates, base);
    for (int h = 0; h < HEADS; h++) {
        gates[h] = 0.0f;
        demo_run(&layer, gates, output);
        gates[h] = 1.0f;
        cr_expect_float_eq(item_of(document, "importance", h)->valuedouble,
                           change_of(&layer, output, base), 1e-6, "head %d", h);
    }
    /* Heads go one by one: in the least important first order, then the most important first. */
    for (int first = 0; first < 2; first++) {
        for (int h = 0; h < HEADS; h++) {
            gates[h] = 1.0f;
        }
        for (int i = 0; i < HEADS; i++) {
            const int place = first == 0 ? i : HEADS - 1 - i;
            gates[(int)item_of(document, "least_first_order", place)->valuedouble] = 0.0f;
            demo_run(&layer, gates, output);
            const cJSON *row = item_of(document, "removed", i);
            cr_expect_float_eq(number_of(row, first == 0 ? "least_first" : "most_first"),
                               change_of(&layer, output, base), 1e-6, "%d removed", i + 1);
            cr_expect_geq(number_of(row, "random_median"), 0.1);
        }
    }
    const cJSON *all = item_of(document, "removed", HEADS - 1);
    cr_expect_float_eq(number_of(all, "random_median"), number_of(all, "least_first"), 1e-9);
    cr_expect_float_eq(number_of(document, "real_rows"), 97.0, 0.0);
    cr_expect_float_eq(number_of(document, "seed"), 7.0, 0.0);
    cJSON_Delete(document);
    vkmha_file_close(layer.file);
}

/* ---- noise ----------------------------------------------------------------------------------- */

Test(heads, noise_can_be_weighed_down)
{
    static const double factors[] = {0.5, 4.0};
    cr_assert_eq(run_command("ablate %s --json", DEMO), 0);
    cJSON *ablated = read_json();
    cr_assert_eq(run_command("noise %s --json --factors 0.5,4", DEMO), 0);
    cJSON *document = read_json();
    for (int h = 0; h < HEADS; h++) {
        const cJSON *head = item_of(document, "heads", h);
        const double half = number_of(item_of(head, "noise", 0), "kept");
        for (int k = 0; k < 2; k++) {
            const cJSON *row = item_of(head, "noise", k);
            const double weighed = number_of(row, "weighed_down");
            cr_expect_float_eq(number_of(row, "removed"),
                               item_of(ablated, "importance", h)->valuedouble, 1e-6);
            cr_expect_float_eq(number_of(row, "kept"), half * factors[k] / 0.5, 1e-5);
            cr_expect_lt(weighed, number_of(row, "kept"));
            cr_expect_lt(weighed, number_of(row, "removed"));
            cr_expect_float_eq(number_of(row, "gate"), number_of(row, "ideal_gate"), 0.2);
        }
    }
    cJSON_Delete(document);
    cr_assert_eq(run_command("noise %s --json --factors 1 --head 2 --seed 1", DEMO), 0);
    document = read_json();
    cr_expect_float_eq(number_of(item_of(document, "heads", 0), "head"), 2.0, 0.0);
    cJSON_Delete(document);
    cJSON_Delete(ablated);
}

/* ---- heads ----------------------------------------------------------------------------------- */

Test(heads, table_agrees_with_the_reference)
{
    static demo layer;
    static double weights[BATCH * HEADS * LENGTH * LENGTH];
    float gates[HEADS];
    demo_open(&layer);
    for (int h = 0; h < HEADS; h++) {
        gates[h] = 1.0f;
    }
    layer.inputs.head_gates = gates;
    const vkmha_reference_outputs outputs = {.weights = weights};
    cr_assert_eq(
        vkmha_reference_run(&layer.layer, &layer.plan, &layer.inputs, NULL, NULL, &outputs, NULL),
        VKMHA_OK);
    cr_assert_eq(run_command("heads %s --json", DEMO), 0);
    cJSON *document = read_json();
    double shares = 0.0;
    for (int h = 0; h < HEADS; h++) {
        double entropy = 0.0;
        double previous = 0.0;
        double first = 0.0;
        double last = 0.0;
        double rows = 0.0;
        for (int b = 0; b < BATCH; b++) {
            int length = LENGTH;
            while (!layer.attend[b * LENGTH + length - 1]) {
                length--;
            }
            for (int i = 0; i < length; i++) {
                const double *row = weights + (size_t)((b * HEADS + h) * LENGTH + i) * LENGTH;
                for (int j = 0; j < length; j++) {
                    entropy -= row[j] > 0.0 ? row[j] * log(row[j]) : 0.0;
                }
                previous += i > 0 ? row[i - 1] : 0.0;
                first += row[0];
                last += row[length - 1];
                rows += 1.0;
            }
        }
        const cJSON *head = item_of(document, "heads", h);
        cr_expect_float_eq(number_of(head, "entropy"), entropy / rows, 1e-5, "head %d", h);
        cr_expect_float_eq(number_of(head, "previous"), previous / rows, 1e-5, "head %d", h);
        cr_expect_float_eq(number_of(head, "first"), first / rows, 1e-5, "head %d", h);
        cr_expect_float_eq(number_of(head, "last"), last / rows, 1e-5, "head %d", h);
        shares += number_of(head, "contribution");
    }
    cr_expect_float_eq(shares, 1.0, 1e-6);
    cr_expect_str_eq(
        cJSON_GetObjectItemCaseSensitive(item_of(document, "heads", 2), "kind")->valuestring,
        "previous");
    cJSON_Delete(document);
    vkmha_file_close(layer.file);
}

/* ---- Pictures -------------------------------------------------------------------------------- */

typedef struct picture {
    const unsigned char *bytes;
    size_t size;
    size_t at;
    uint32_t width;
    uint32_t height;
    unsigned char *pixels; /* red, green, blue */
} picture;

static void read_bytes(png_structp png, png_bytep bytes, png_size_t size)
{
    picture *from = png_get_io_ptr(png);
    if (size > from->size - from->at) {
        png_error(png, "too short");
    }
    memcpy(bytes, from->bytes + from->at, size);
    from->at += size;
}

static void read_picture(picture *of)
{
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    if (setjmp(png_jmpbuf(png))) {
        cr_assert_fail("not a PNG");
    }
    png_set_read_fn(png, of, read_bytes);
    png_read_info(png, info);
    of->width = png_get_image_width(png, info);
    of->height = png_get_image_height(png, info);
    png_set_palette_to_rgb(png);
    png_read_update_info(png, info);
    cr_assert_eq(png_get_rowbytes(png, info), (size_t)3 * of->width);
    of->pixels = malloc((size_t)3 * of->width * of->height);
    cr_assert_not_null(of->pixels);
    for (uint32_t y = 0; y < of->height; y++) {
        png_read_row(png, of->pixels + (size_t)3 * y * of->width, NULL);
    }
    png_read_end(png, NULL);
    png_destroy_read_struct(&png, &info, NULL);
}

static int lightness(const picture *of, uint32_t x, uint32_t y)
{
    const unsigned char *pixel = of->pixels + 3 * ((size_t)y * of->width + x);
    return pixel[0] + pixel[1] + pixel[2];
}

/* Head 2 looks at the key before: a map of `cell` pixels from (x, y) on, dark just there. */
static void expect_previous(const picture *of, uint32_t x, uint32_t y, uint32_t cell)
{
    for (uint32_t i = 1; i < LENGTH; i++) {
        for (uint32_t j = 0; j < LENGTH; j++) {
            const int light = lightness(of, x + j * cell + cell / 2, y + i * cell + cell / 2);
            cr_expect(j + 1 == i ? light < 150 : light > 700, "query %u, key %u: %d", i, j, light);
        }
    }
}

Test(heads, sheet_is_a_png)
{
    cr_assert_eq(run_command("heads %s --png sheet.png --heads 2,5", DEMO), 0);
    picture sheet = {0};
    char *bytes = read_file(scratch_path("sheet.png"), &sheet.size);
    sheet.bytes = (unsigned char *)bytes;
    read_picture(&sheet);
    cr_expect_gt(sheet.width, 2 * LENGTH * 20);
    expect_previous(&sheet, 16, 40, 20);
    free(sheet.pixels);
    free(bytes);
}

static size_t decode(const char *text, size_t length, unsigned char *bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t size = 0;
    unsigned word = 0;
    for (size_t i = 0; i < length && text[i] != '='; i++) {
        const char *digit = strchr(digits, text[i]);
        cr_assert_not_null(digit);
        word = word << 6 | (unsigned)(digit - digits);
        if (i % 4 > 0) {
            bytes[size++] = (unsigned char)(word >> (6 - 2 * (i % 4)));
        }
    }
    return size;
}

Test(heads, page_is_complete_in_itself)
{
    static const char marker[] = "href=\"data:image/png;base64,";
    cr_assert_eq(run_command("heads %s --html page.html --heads 0,2 --sequence 0", DEMO), 0);
    size_t size = 0;
    char *page = read_file(scratch_path("page.html"), &size);
    cr_expect_null(strstr(page, "<script"));
    cr_expect_null(strstr(page, "http"));
    cr_expect_not_null(strstr(page, "<html lang=\"en\">"));
    cr_expect_not_null(strstr(page, "Head 2: previous."));
    cr_expect_not_null(strstr(page, ">weekdays</text>"));
    cr_expect_not_null(strstr(page, "aria-label=\"Attention map of head 2, kind previous"));
    int pictures = 0;
    for (const char *at = strstr(page, marker); at; at = strstr(at, marker)) {
        at += sizeof(marker) - 1;
        const size_t length = strcspn(at, "\"");
        picture of = {0};
        unsigned char *bytes = malloc(length);
        cr_assert_not_null(bytes);
        of.size = decode(at, length, bytes);
        of.bytes = bytes;
        read_picture(&of);
        /* Of each head the map, then its scale. */
        if (pictures % 2 == 0) {
            cr_expect_eq(of.width, of.height);
            cr_expect_eq(of.width % LENGTH, 0);
        }
        if (pictures == 2) {
            expect_previous(&of, 0, 0, of.width / LENGTH);
        }
        free(of.pixels);
        free(bytes);
        pictures++;
    }
    cr_expect_eq(pictures, 4);
    free(page);
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

/* The demo's weights by BERT's names, with a tensor of something else, and its input beside it. */
static void write_checkpoint(void)
{
    static const char *const names[][2] = {
        {"w_q", "l.0.self.query.weight"},   {"b_q", "l.0.self.query.bias"},
        {"w_k", "l.0.self.key.weight"},     {"b_k", "l.0.self.key.bias"},
        {"w_v", "l.0.self.value.weight"},   {"b_v", "l.0.self.value.bias"},
        {"w_o", "l.0.output.dense.weight"}, {"b_o", "l.0.output.dense.bias"},
    };
    vkmha_file *file = scratch_open_good(DEMO);
    char header[4096];
    char *data = malloc(4 * EMBED * (EMBED + 1) * 2 + 6);
    cr_assert_not_null(data);
    size_t end = 0;
    int length = snprintf(header, sizeof(header), "{\"__metadata__\":{\"num_heads\":\"12\"}");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const vkmha_tensor *tensor = vkmha_file_find(file, names[i][0]);
        memcpy(data + end, tensor->data, tensor->size_bytes);
        length += snprintf(
            header + length, sizeof(header) - (size_t)length,
            ",\"%s\":{\"dtype\":\"F16\",\"shape\":[384%s],\"data_offsets\":[%zu,%zu]}", names[i][1],
            tensor->num_dims == 2 ? ",384" : "", end, end + tensor->size_bytes);
        end += tensor->size_bytes;
    }
    memcpy(data + end, "\1\2\3\4\5\6", 6);
    snprintf(header + length, sizeof(header) - (size_t)length,
             ",\"norm\":{\"dtype\":\"I16\",\"shape\":[3],\"data_offsets\":[%zu,%zu]}}", end,
             end + 6);
    scratch_safetensors("bert.safetensors", header, data, end + 6);
    const vkmha_tensor *query = vkmha_file_find(file, "query");
    scratch_safetensors("x.safetensors",
                        "{\"query\":{\"dtype\":\"F32\",\"shape\":[8,14,384],\"data_offsets\":"
                        "[0,172032]}}",
                        query->data, query->size_bytes);
    free(data);
    vkmha_file_close(file);
}

static void read_output(const char *name, float *values)
{
    vkmha_file *file = scratch_open_good(scratch_path(name));
    const vkmha_tensor *output = vkmha_file_find(file, "output");
    cr_assert_eq(output->count, SIZE);
    cr_assert_eq(vkmha_tensor_to_f32(output, values, NULL), VKMHA_OK);
    vkmha_file_close(file);
}

Test(heads, pruned_checkpoint_runs_as_the_gated_layer)
{
    static float pruned[SIZE];
    static float gated[SIZE];
    write_checkpoint();
    cr_assert_eq(run_command("prune --weights bert.safetensors --input x.safetensors --remove 3,7 "
                             "--runs 1 -o p.safetensors --json"),
                 0);
    cJSON *document = read_json();
    cr_expect(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(document, "passed")));
    cr_expect_leq(number_of(document, "max_ratio"), 1.0);
    cr_expect_float_eq(number_of(document, "heads_left"), 10.0, 0.0);
    const double change = number_of(document, "change_from_all_heads");
    cJSON_Delete(document);
    cr_assert_eq(run_command("run --weights p.safetensors --input x.safetensors --head-dim 32 "
                             "-o a.safetensors"),
                 0);
    cr_assert_eq(run_command("run --weights bert.safetensors --input x.safetensors "
                             "--set gates=1,1,1,0,1,1,1,0,1,1,1,1 -o b.safetensors"),
                 0);
    read_output("a.safetensors", pruned);
    read_output("b.safetensors", gated);
    for (size_t i = 0; i < SIZE; i++) {
        cr_assert_float_eq((double)pruned[i], (double)gated[i], 2e-5);
    }
    cr_expect_gt(change, 0.1);
    vkmha_file *file = scratch_open_good(scratch_path("p.safetensors"));
    const vkmha_tensor *query = vkmha_file_find(file, "l.0.self.query.weight");
    const vkmha_tensor *output = vkmha_file_find(file, "l.0.output.dense.weight");
    const vkmha_tensor *norm = vkmha_file_find(file, "norm");
    cr_expect(query->type == VKMHA_FILE_F16 && query->dims[0] == 320 && query->dims[1] == 384);
    cr_expect(output->type == VKMHA_FILE_F16 && output->dims[0] == 384 && output->dims[1] == 320);
    cr_expect(norm && norm->size_bytes == 6 && memcmp(norm->data, "\1\2\3\4\5\6", 6) == 0);
    cr_expect_str_eq(vkmha_file_metadata(file, "num_heads"), "10");
    vkmha_file_close(file);
    /* All that there is: the two inputs, the outputs, and what the commands printed. */
    cr_expect_eq(scratch_count(0), 7);
}

Test(heads, pruned_case_passes_its_check)
{
    cr_assert_eq(run_command("prune %s --keep 5 --runs 1 -o p.safetensors", DEMO), 0);
    cr_expect_eq(run_command("check p.safetensors"), 0);
    cr_expect_eq(run_command("ablate p.safetensors --orders 1"), 0);
    cr_expect_eq(scratch_count(0), 3);
}

Test(heads, wrong_use_is_told_and_leaves_nothing)
{
    static const struct {
        const char *text;
        const char *arguments;
    } wrong[] = {
        {"one case file", "heads"},
        {"one case file", "ablate a b"},
        {"--nothing is no option of ablate", "ablate " DEMO " --nothing"},
        {"--orders \"0\" is not a number from 1 to 99", "ablate " DEMO " --orders 0"},
        {"--factors \"1,-2\" is not", "noise " DEMO " --factors 1,-2"},
        {"--head 12 is not below num_heads 12", "noise " DEMO " --head 12"},
        {"--heads \"3,2\" is not", "heads " DEMO " --heads 3,2 --html p.html"},
        {"--sequence 8 is not below batch_size 8", "heads " DEMO " --sequence 8 --html p.html"},
        {"/nonexistent/p.html: No such file", "heads " DEMO " --html /nonexistent/p.html"},
        {"/nonexistent/p.png: No such file", "heads " DEMO " --png /nonexistent/p.png --heads 1"},
        {"prune needs -o", "prune " DEMO " --remove 1"},
        {"prune needs -o", "prune " DEMO " --remove 1 --keep 3 -o p.safetensors"},
        {"head 12 is not below num_heads 12", "prune " DEMO " --remove 1,12 -o p.safetensors"},
        {"head 1 is given twice", "prune " DEMO " --remove 1,1 -o p.safetensors"},
        {"--remove \"x\" is not", "prune " DEMO " --remove x -o p.safetensors"},
        {"--keep 13 is more than num_heads 12", "prune " DEMO " --keep 13 -o p.safetensors"},
        {"all num_heads 12 heads are removed",
         "prune " DEMO " --remove 0,1,2,3,4,5,6,7,8,9,10,11 -o p.safetensors"},
        {"/nonexistent/p.safetensors: No such file",
         "prune " DEMO " --remove 1 -o /nonexistent/p.safetensors"},
        {"key/value head", "prune " VKMHA_TEST_SOURCE
                           "/tests/golden/mha_llama_a.safetensors --remove 0 -o p.safetensors"},
        {"op sdpa", "ablate " VKMHA_TEST_SOURCE "/tests/golden/sdpa_scale_a.safetensors"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        expect_refusal(2, wrong[i].text, wrong[i].arguments);
    }
    expect_refusal(3, "no_such_device", "ablate " DEMO " --device no_such_device");
}
