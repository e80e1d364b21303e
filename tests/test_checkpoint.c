/* The names of checkpoints -> a layer's weights. */
#define _POSIX_C_SOURCE 200809L

#include <criterion/criterion.h>
#include <stdarg.h>

#include <vkmha/vkmha_files.h>

#include "scratch.h"

TestSuite(checkpoint, .init = scratch_create, .fini = scratch_destroy);

/* ---- Small checkpoints ----------------------------------------------------------------------- */

/* Element (r, c) of tensor `index` is index * 10000 + r * 100 + c: each view shows where it points.
 */
static float value_of(uint32_t index, uint64_t r, uint64_t c)
{
    return (float)((uint64_t)index * 10000 + r * 100 + c);
}

typedef struct vkmha_test_tensor {
    const char *name;
    uint64_t rows;
    uint64_t columns; /* 0: one dimension */
} vkmha_test_tensor;

/* Opens a checkpoint of fp32 tensors; the list ends with a NULL name. */
static vkmha_file *make(const char *metadata, const vkmha_test_tensor *tensors)
{
    char header[8192];
    float data[8192];
    size_t length = 0;
    size_t count = 0;
    length += (size_t)snprintf(header, sizeof(header), "{\"__metadata__\":{%s}", metadata);
    for (uint32_t t = 0; tensors[t].name; t++) {
        const uint64_t columns = tensors[t].columns;
        const size_t begin = 4 * count;
        for (uint64_t r = 0; r < tensors[t].rows; r++) {
            for (uint64_t c = 0; c < (columns ? columns : 1); c++) {
                cr_assert_lt(count, sizeof(data) / sizeof(data[0]));
                data[count++] = value_of(t, r, c);
            }
        }
        char more[32] = "";
        if (columns) {
            snprintf(more, sizeof(more), ",%" PRIu64, columns);
        }
        length += (size_t)snprintf(header + length, sizeof(header) - length,
                                   ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64
                                   "%s],\"data_offsets\":[%zu,%zu]}",
                                   tensors[t].name, tensors[t].rows, more, begin, 4 * count);
        cr_assert_lt(length, sizeof(header));
    }
    snprintf(header + length, sizeof(header) - length, "}");
    return scratch_open_good(scratch_safetensors("c.safetensors", header, data, 4 * count));
}

static vkmha_layer_params load(const vkmha_file *file, const vkmha_checkpoint_params *params)
{
    vkmha_layer_params layer;
    vkmha_error error;
    cr_assert_eq(vkmha_checkpoint_layer(file, params, &layer, &error), VKMHA_OK, "%s",
                 error.message);
    return layer;
}

/* Asks for this refusal, with every one of the texts (the list ends with NULL) in its line. */
static void refuse(const vkmha_file *file, const vkmha_checkpoint_params *params,
                   vkmha_status status, ...)
{
    vkmha_layer_params layer = {.num_heads = 77};
    vkmha_error error;
    cr_expect_eq(vkmha_checkpoint_layer(file, params, &layer, &error), status);
    cr_expect_eq(error.status, status);
    cr_expect_eq(layer.num_heads, 77, "written on failure");
    va_list texts;
    va_start(texts, status);
    const char *text;
    while ((text = va_arg(texts, const char *))) {
        cr_expect_not_null(strstr(error.message, text), "\"%s\" is not in: %s", text,
                           error.message);
    }
    va_end(texts);
}

static float element(const vkmha_matrix *matrix, uint64_t r, uint64_t c)
{
    cr_assert_eq(matrix->type, VKMHA_TYPE_F32);
    float value;
    memcpy(&value,
           (const char *)matrix->data + 4 * (r * matrix->row_stride + c * matrix->column_stride),
           sizeof(value));
    return value;
}

/* Each element of the matrix is that of tensor `index` from `first` on, or of its transpose. */
static void expect_matrix(const vkmha_matrix *matrix, uint64_t rows, uint64_t columns,
                          uint32_t index, uint64_t first, bool is_transposed)
{
    cr_assert_not_null(matrix->data);
    cr_assert_eq(matrix->rows, rows);
    cr_assert_eq(matrix->columns, columns);
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t c = 0; c < columns; c++) {
            cr_assert_eq(element(matrix, r, c), is_transposed ? value_of(index, c, first + r)
                                                              : value_of(index, first + r, c));
        }
    }
}

static void expect_vector(const vkmha_vector *vector, uint64_t size, uint32_t index, uint64_t first)
{
    cr_assert_not_null(vector->data);
    cr_assert_eq(vector->size, size);
    for (uint64_t i = 0; i < size; i++) {
        float value;
        memcpy(&value, (const char *)vector->data + 4 * i, sizeof(value));
        cr_assert_eq(value, value_of(index, first + i, 0));
    }
}

static void expect_sizes(const vkmha_layer_params *layer, uint32_t num_heads, uint32_t num_kv_heads,
                         uint32_t head_dim, uint32_t v_head_dim, uint32_t embed_dim)
{
    cr_expect_eq(layer->num_heads, num_heads);
    cr_expect_eq(layer->num_kv_heads, num_kv_heads);
    cr_expect_eq(layer->head_dim, head_dim);
    cr_expect_eq(layer->v_head_dim, v_head_dim);
    cr_expect_eq(layer->embed_dim, embed_dim);
    cr_expect(!layer->has_scale && !layer->attention_only);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static const vkmha_test_tensor bert[] = {
    {"bert.encoder.layer.1.attention.self.query.weight", 8, 6},
    {"bert.encoder.layer.1.attention.self.query.bias", 8, 0},
    {"bert.encoder.layer.1.attention.self.key.weight", 8, 6},
    {"bert.encoder.layer.1.attention.self.key.bias", 8, 0},
    {"bert.encoder.layer.1.attention.self.value.weight", 4, 6},
    {"bert.encoder.layer.1.attention.self.value.bias", 4, 0},
    {"bert.encoder.layer.1.attention.output.dense.weight", 6, 4},
    {"bert.encoder.layer.1.attention.output.dense.bias", 6, 0},
    {"bert.encoder.layer.1.attention.output.LayerNorm.weight", 6, 0},
    {"bert.encoder.layer.1.output.dense.weight", 6, 24},
    {NULL, 0, 0},
};

Test(checkpoint, bert)
{
    vkmha_file *file = make("", bert);
    const char *const prefixes[] = {
        NULL,
        "",
        "bert.encoder.layer.1.attention",
        "bert.encoder.layer.1.attention.",
        "encoder.layer.1.attention",
        "layer.1.attention.",
    };
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        const vkmha_checkpoint_params params = {.prefix = prefixes[i], .num_heads = 2};
        const vkmha_layer_params layer = load(file, &params);
        expect_sizes(&layer, 2, 2, 4, 2, 6);
        cr_expect_eq(layer.key_dim, 6);
        cr_expect_eq(layer.value_dim, 6);
        cr_expect_eq(layer.output_dim, 6);
        expect_matrix(&layer.w_q, 8, 6, 0, 0, false);
        expect_vector(&layer.b_q, 8, 1, 0);
        expect_matrix(&layer.w_k, 8, 6, 2, 0, false);
        expect_vector(&layer.b_k, 8, 3, 0);
        expect_matrix(&layer.w_v, 4, 6, 4, 0, false);
        expect_vector(&layer.b_v, 4, 5, 0);
        expect_matrix(&layer.w_o, 6, 4, 6, 0, false);
        expect_vector(&layer.b_o, 6, 7, 0);
    }
    const char *const others[] = {"encoder.layer.0.attention", "attentio", "ttention", "bert",
                                  "x.bert.encoder.layer.1.attention"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const vkmha_checkpoint_params params = {.prefix = others[i], .num_heads = 2};
        refuse(file, &params, VKMHA_ERROR_FILE, "c.safetensors", others[i], "names no layer",
               "found \"bert.encoder.layer.1.attention\"", (char *)NULL);
    }
    vkmha_file_close(file);
}

Test(checkpoint, torch)
{
    const vkmha_test_tensor fused[] = {
        {"in_proj_weight", 12, 4},
        {"in_proj_bias", 12, 0},
        {"out_proj.weight", 4, 4},
        {"out_proj.bias", 4, 0},
        {NULL, 0, 0},
    };
    const vkmha_checkpoint_params params = {.num_heads = 2};
    vkmha_file *file = make("", fused);
    vkmha_layer_params layer = load(file, &params);
    expect_sizes(&layer, 2, 2, 2, 2, 4);
    expect_matrix(&layer.w_q, 4, 4, 0, 0, false);
    expect_matrix(&layer.w_k, 4, 4, 0, 4, false);
    expect_matrix(&layer.w_v, 4, 4, 0, 8, false);
    expect_matrix(&layer.w_o, 4, 4, 2, 0, false);
    expect_vector(&layer.b_q, 4, 1, 0);
    expect_vector(&layer.b_k, 4, 1, 4);
    expect_vector(&layer.b_v, 4, 1, 8);
    expect_vector(&layer.b_o, 4, 3, 0);
    vkmha_file_close(file);

    const vkmha_test_tensor separate[] = {
        {"m.q_proj_weight", 4, 4}, {"m.k_proj_weight", 4, 3},   {"m.v_proj_weight", 4, 5},
        {"m.in_proj_bias", 12, 0}, {"m.out_proj.weight", 4, 4}, {NULL, 0, 0},
    };
    file = make("", separate);
    layer = load(file, &params);
    expect_sizes(&layer, 2, 2, 2, 2, 4);
    cr_expect_eq(layer.key_dim, 3);
    cr_expect_eq(layer.value_dim, 5);
    expect_matrix(&layer.w_q, 4, 4, 0, 0, false);
    expect_matrix(&layer.w_k, 4, 3, 1, 0, false);
    expect_matrix(&layer.w_v, 4, 5, 2, 0, false);
    expect_vector(&layer.b_v, 4, 3, 8);
    cr_expect_null(layer.b_o.data);
    vkmha_file_close(file);
}

Test(checkpoint, llama)
{
    /* Four query heads, two of keys and values; biases as Qwen2 has them. */
    const vkmha_test_tensor tensors[] = {
        {"model.layers.0.self_attn.q_proj.weight", 8, 6},
        {"model.layers.0.self_attn.k_proj.weight", 4, 6},
        {"model.layers.0.self_attn.v_proj.weight", 4, 6},
        {"model.layers.0.self_attn.o_proj.weight", 6, 8},
        {"model.layers.0.self_attn.q_proj.bias", 8, 0},
        {"model.layers.0.self_attn.k_proj.bias", 4, 0},
        {"model.layers.0.self_attn.v_proj.bias", 4, 0},
        {NULL, 0, 0},
    };
    vkmha_file *file = make("", tensors);
    const vkmha_checkpoint_params by_heads = {.prefix = "layers.0.self_attn", .num_heads = 4};
    const vkmha_checkpoint_params by_size = {.head_dim = 2};
    const vkmha_checkpoint_params all = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 2};
    const vkmha_checkpoint_params *const good[] = {&by_heads, &by_size, &all};
    for (size_t i = 0; i < 3; i++) {
        const vkmha_layer_params layer = load(file, good[i]);
        expect_sizes(&layer, 4, 2, 2, 2, 6);
        expect_matrix(&layer.w_q, 8, 6, 0, 0, false);
        expect_matrix(&layer.w_k, 4, 6, 1, 0, false);
        expect_matrix(&layer.w_v, 4, 6, 2, 0, false);
        expect_matrix(&layer.w_o, 6, 8, 3, 0, false);
        expect_vector(&layer.b_k, 4, 5, 0);
        cr_expect_null(layer.b_o.data);
    }
    const vkmha_status wrong = VKMHA_ERROR_INVALID_ARGUMENT;
    const vkmha_checkpoint_params three = {.num_heads = 3};
    refuse(file, &three, wrong, "q_proj.weight\"", "8 output features are not num_heads 3",
           (char *)NULL);
    const vkmha_checkpoint_params too_many = {.num_heads = 9};
    refuse(file, &too_many, wrong, "num_heads 9 x head_dim 0", (char *)NULL);
    const vkmha_checkpoint_params size = {.head_dim = 3};
    refuse(file, &size, wrong, "num_heads 2 x head_dim 3", (char *)NULL);
    const vkmha_checkpoint_params large = {.head_dim = UINT32_MAX};
    refuse(file, &large, wrong, "num_heads 0 x head_dim 4294967295", (char *)NULL);
    const vkmha_checkpoint_params keys = {.num_heads = 4, .num_kv_heads = 4};
    refuse(file, &keys, wrong, "k_proj.weight\"", "4 output features are not num_kv_heads 4",
           (char *)NULL);
    const vkmha_checkpoint_params one_key = {.num_heads = 1};
    refuse(file, &one_key, wrong, "num_kv_heads 0 x head_dim 8", (char *)NULL);
    vkmha_file_close(file);
}

Test(checkpoint, gpt2)
{
    const vkmha_test_tensor tensors[] = {
        {"h.0.attn.c_attn.weight", 4, 12},
        {"h.0.attn.c_attn.bias", 12, 0},
        {"h.0.attn.c_proj.weight", 4, 4},
        {"h.0.attn.c_proj.bias", 4, 0},
        {"h.0.mlp.c_proj.weight", 16, 4},
        {"h.0.attn.bias", 4, 4},
        {NULL, 0, 0},
    };
    const vkmha_checkpoint_params params = {.prefix = "h.0.attn", .num_heads = 2};
    vkmha_file *file = make("", tensors);
    const vkmha_layer_params layer = load(file, &params);
    expect_sizes(&layer, 2, 2, 2, 2, 4);
    expect_matrix(&layer.w_q, 4, 4, 0, 0, true);
    expect_matrix(&layer.w_k, 4, 4, 0, 4, true);
    expect_matrix(&layer.w_v, 4, 4, 0, 8, true);
    expect_matrix(&layer.w_o, 4, 4, 2, 0, true);
    expect_vector(&layer.b_q, 4, 1, 0);
    expect_vector(&layer.b_v, 4, 1, 8);
    expect_vector(&layer.b_o, 4, 3, 0);
    vkmha_file_close(file);
}

/* ---- Which layer ----------------------------------------------------------------------------- */

Test(checkpoint, several_layers)
{
    char names[30][64];
    vkmha_test_tensor tensors[31] = {{0}};
    for (size_t i = 0; i < 30; i++) {
        snprintf(names[i], sizeof(names[i]), "model.decoder.layers.%zu.self_attn.o_proj.weight", i);
        tensors[i] = (vkmha_test_tensor){names[i], 1, 1};
    }
    vkmha_file *file = make("", tensors);
    const vkmha_checkpoint_params none = {.num_heads = 1};
    refuse(file, &none, VKMHA_ERROR_FILE, "names several layers",
           "\"model.decoder.layers.0.self_attn\", \"model.decoder.layers.1.self_attn\", ", " more",
           (char *)NULL);
    const vkmha_checkpoint_params end = {.prefix = "self_attn", .num_heads = 1};
    refuse(file, &end, VKMHA_ERROR_FILE, "\"self_attn\" names several layers", (char *)NULL);
    const vkmha_checkpoint_params absent = {.prefix = "layers.30.self_attn", .num_heads = 1};
    refuse(file, &absent, VKMHA_ERROR_FILE, "names no layer", " more", (char *)NULL);
    /* "1" is no end of "21". */
    const vkmha_checkpoint_params second = {.prefix = "1.self_attn", .num_heads = 1};
    refuse(file, &second, VKMHA_ERROR_FILE, "\"model.decoder.layers.1.self_attn.q_proj.weight\"",
           "is missing", (char *)NULL);
    vkmha_file_close(file);

    /* The prefix itself goes before longer ones that end so. */
    const vkmha_test_tensor nested[] = {
        {"a.attn.in_proj_weight", 6, 2},
        {"a.attn.out_proj.weight", 2, 2},
        {"attn.in_proj_weight", 6, 2},
        {"attn.out_proj.weight", 2, 2},
        {NULL, 0, 0},
    };
    file = make("", nested);
    const vkmha_checkpoint_params exact = {.prefix = "attn", .num_heads = 1};
    const vkmha_layer_params layer = load(file, &exact);
    expect_matrix(&layer.w_q, 2, 2, 2, 0, false);
    vkmha_file_close(file);

    const vkmha_test_tensor other[] = {{"conv.weight", 2, 2}, {NULL, 0, 0}};
    file = make("", other);
    refuse(file, &none, VKMHA_ERROR_FILE, "no attention layer by known names", (char *)NULL);
    vkmha_file_close(file);
}

/* ---- How many heads -------------------------------------------------------------------------- */

Test(checkpoint, heads_from_metadata)
{
    const vkmha_test_tensor tensors[] = {
        {"in_proj_weight", 12, 4}, {"out_proj.weight", 4, 4}, {NULL, 0, 0}};
    const char *const told[] = {
        "\"num_heads\":\"4\"",
        "\"num_attention_heads\":\"4\"",
        "\"num_heads\":\"4\",\"num_attention_heads\":\"2\"",
    };
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        vkmha_file *file = make(told[i], tensors);
        vkmha_layer_params layer = load(file, NULL);
        expect_sizes(&layer, 4, 4, 1, 1, 4);
        const vkmha_checkpoint_params asked = {.num_heads = 1};
        layer = load(file, &asked);
        expect_sizes(&layer, 1, 1, 4, 4, 4);
        vkmha_file_close(file);
    }
    const char *const bad[] = {"", "0", "-1", "4x", "4.0", " 4", "99999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char metadata[64];
        snprintf(metadata, sizeof(metadata), "\"num_heads\":\"%s\"", bad[i]);
        vkmha_file *file = make(metadata, tensors);
        refuse(file, NULL, VKMHA_ERROR_FILE, "metadata num_heads", bad[i], (char *)NULL);
        vkmha_file_close(file);
    }
    vkmha_file *file = make("\"num_heads\":\"3\"", tensors);
    refuse(file, NULL, VKMHA_ERROR_FILE, "4 output features are not num_heads 3", (char *)NULL);
    vkmha_file_close(file);
    file = make("", tensors);
    refuse(file, NULL, VKMHA_ERROR_INVALID_ARGUMENT, "num_heads is 0", (char *)NULL);
    vkmha_checkpoint_params params = {.num_heads = 4};
    params.reserved[7] = 1;
    refuse(file, &params, VKMHA_ERROR_INVALID_ARGUMENT, "reserved", (char *)NULL);
    cr_expect_eq(vkmha_checkpoint_layer(file, NULL, NULL, NULL), VKMHA_ERROR_INVALID_ARGUMENT);
    vkmha_layer_params layer;
    cr_expect_eq(vkmha_checkpoint_layer(NULL, NULL, &layer, NULL), VKMHA_ERROR_INVALID_ARGUMENT);
    vkmha_file_close(file);
}

/* ---- Wrong files ----------------------------------------------------------------------------- */

Test(checkpoint, unsupported_tensors)
{
    const struct {
        const char *anchor;
        const char *extra;
    } cases[] = {
        {"in_proj_weight", "bias_k"},
        {"in_proj_weight", "bias_v"},
        {"o_proj.weight", "q_norm.weight"},
        {"o_proj.weight", "k_norm.weight"},
        {"o_proj.weight", "sinks"},
        {"c_attn.weight", "q_attn.weight"},
        {"self.query.weight", "self.distance_embedding.weight"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char names[2][64];
        snprintf(names[0], sizeof(names[0]), "l.attn.%s", cases[i].anchor);
        snprintf(names[1], sizeof(names[1]), "l.attn.%s", cases[i].extra);
        const vkmha_test_tensor tensors[] = {{names[0], 6, 2}, {names[1], 2, 0}, {NULL, 0, 0}};
        vkmha_file *file = make("", tensors);
        const vkmha_checkpoint_params params = {.num_heads = 1};
        refuse(file, &params, VKMHA_ERROR_UNSUPPORTED, names[1], "not supported", (char *)NULL);
        vkmha_file_close(file);
    }
}

Test(checkpoint, wrong_shapes)
{
    const struct {
        vkmha_test_tensor tensors[8];
        const char *name;
        const char *reason;
    } cases[] = {
        {{{"in_proj_weight", 13, 4}, {"out_proj.weight", 4, 4}},
         "\"in_proj_weight\"",
         "13 is not a multiple of 3"},
        {{{"in_proj_weight", 12, 4}, {"in_proj_bias", 11, 0}, {"out_proj.weight", 4, 4}},
         "\"in_proj_bias\"",
         "11 is not a multiple of 3"},
        {{{"in_proj_weight", 12, 4}, {"in_proj_bias", 9, 0}, {"out_proj.weight", 4, 4}},
         "\"in_proj_bias\"",
         "3 elements are no bias of 4 output features"},
        {{{"in_proj_weight", 12, 4}, {"in_proj_bias", 12, 1}, {"out_proj.weight", 4, 4}},
         "\"in_proj_bias\"",
         "has 2 dimensions, not 1"},
        {{{"in_proj_weight", 12, 0}, {"out_proj.weight", 4, 4}},
         "\"in_proj_weight\"",
         "has 1 dimensions, not 2"},
        {{{"in_proj_weight", 12, 4}, {"out_proj.weight", 4, 5}},
         "\"out_proj.weight\"",
         "5 input features are not num_heads 2 x v_head_dim 2"},
        {{{"in_proj_weight", 12, 4}}, "\"out_proj.weight\"", "is missing"},
        {{{"in_proj_weight", 0, 4}, {"out_proj.weight", 4, 4}},
         "\"in_proj_weight\"",
         "dimension 0 is 0"},
        {{{"c_attn.weight", 4, 8}, {"c_proj.weight", 4, 4}},
         "\"c_attn.weight\"",
         "8 is not a multiple of 3"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        vkmha_file *file = make("\"num_heads\":\"2\"", cases[i].tensors);
        refuse(file, NULL, VKMHA_ERROR_FILE, cases[i].name, cases[i].reason, (char *)NULL);
        vkmha_file_close(file);
    }
    /* Six query heads cannot share four of keys. */
    const vkmha_test_tensor heads[] = {
        {"q_proj.weight", 6, 2},
        {"k_proj.weight", 4, 2},
        {"v_proj.weight", 4, 2},
        {"o_proj.weight", 2, 6},
        {NULL, 0, 0},
    };
    vkmha_file *file = make("\"num_heads\":\"6\"", heads);
    refuse(file, NULL, VKMHA_ERROR_FILE, "num_kv_heads 4 does not divide num_heads 6",
           (char *)NULL);
    vkmha_file_close(file);
}

Test(checkpoint, types)
{
    /* F16 and BF16 weights are views too; F64 and integers are refused by the tensor's name. */
    const struct {
        const char *dtype;
        size_t bytes;
        bool is_good;
        vkmha_type type;
    } cases[] = {
        {"F32", 4, true, VKMHA_TYPE_F32},   {"F16", 2, true, VKMHA_TYPE_F16},
        {"BF16", 2, true, VKMHA_TYPE_BF16}, {"F64", 8, false, VKMHA_TYPE_F32},
        {"I64", 8, false, VKMHA_TYPE_F32},  {"F8_E4M3", 1, false, VKMHA_TYPE_F32},
    };
    const unsigned char data[16 * 8] = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t bytes = cases[i].bytes;
        char header[256];
        snprintf(header, sizeof(header),
                 "{\"in_proj_weight\":{\"dtype\":\"%s\",\"shape\":[6,2],\"data_offsets\":[0,%zu"
                 "]},\"out_proj.weight\":{\"dtype\":\"%s\",\"shape\":[2,2],\"data_offsets\":[%zu"
                 ",%zu]}}",
                 cases[i].dtype, 12 * bytes, cases[i].dtype, 12 * bytes, 16 * bytes);
        vkmha_file *file =
            scratch_open_good(scratch_safetensors("t.safetensors", header, data, 16 * bytes));
        const vkmha_checkpoint_params params = {.num_heads = 1};
        if (cases[i].is_good) {
            const vkmha_layer_params layer = load(file, &params);
            cr_expect_eq(layer.w_v.type, cases[i].type);
            cr_expect_eq((const char *)layer.w_v.data - (const char *)layer.w_q.data,
                         (ptrdiff_t)(8 * bytes));
        } else {
            refuse(file, &params, VKMHA_ERROR_FILE, "\"in_proj_weight\" is not F32, F16 or BF16",
                   (char *)NULL);
        }
        vkmha_file_close(file);
    }
}
