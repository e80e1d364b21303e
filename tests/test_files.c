/* Files are hostile until checked: each malformed one is refused with its name and the reason. */
#define _POSIX_C_SOURCE 200809L

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vkmha/vkmha_files.h>

static char folder[] = "/tmp/vkmha-files-XXXXXX";
static char path[256];

static void setup(void)
{
    cr_assert(mkdtemp(folder));
}

static void cleanup(void)
{
    char command[512];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(files, .init = setup, .fini = cleanup);

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(in_folder(name), "wb");
    cr_assert(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

/* A safetensors file of a header, its length as given, and zeroed data. */
static void write_safetensors(const char *header, uint64_t length, size_t data_bytes)
{
    const size_t header_bytes = strlen(header);
    const size_t size = 8 + header_bytes + data_bytes;
    unsigned char *bytes = calloc(1, size);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(length >> (8 * i));
    }
    memcpy(bytes + 8, header, header_bytes);
    write_bytes("t.safetensors", bytes, size);
    free(bytes);
}

static void refused(const char *what)
{
    vkmha_file *file = (vkmha_file *)path;
    vkmha_error error = {VKMHA_OK, ""};
    cr_assert_eq(vkmha_file_open(path, NULL, &file, &error), VKMHA_ERROR_FILE, "accepted: %s",
                 what);
    cr_assert_null(file);
    cr_assert(strstr(error.message, path), "\"%s\" does not name the file", error.message);
    cr_assert(!strchr(error.message, '\n'));
}

static void refused_header(const char *header, size_t data_bytes)
{
    write_safetensors(header, strlen(header), data_bytes);
    refused(header);
}

static vkmha_file *accepted(const char *what)
{
    vkmha_file *file = NULL;
    vkmha_error error;
    cr_assert_eq(vkmha_file_open(path, NULL, &file, &error), VKMHA_OK, "%s: %s", what,
                 error.message);
    return file;
}

static void accepted_header(const char *header, size_t data_bytes)
{
    write_safetensors(header, strlen(header), data_bytes);
    vkmha_file_close(accepted(header));
}

#define BASE "{\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}"

Test(files, F75_header_length)
{
    write_safetensors(BASE, strlen(BASE), 24);
    vkmha_file *file = accepted("base");
    const vkmha_tensor *tensor = vkmha_file_find(file, "W");
    cr_assert(tensor && tensor->num_dims == 2 && tensor->dims[0] == 2 && tensor->dims[1] == 3);
    cr_assert_eq(tensor->count, 6);
    cr_assert_null(vkmha_file_find(file, "V"));
    vkmha_file_close(file);

    write_bytes("t.safetensors", "", 0);
    refused("0 bytes");
    write_bytes("t.safetensors", "1234567", 7);
    refused("7 bytes");
    static const uint64_t lengths[] = {10000, 100000001, UINT64_C(1) << 63, UINT64_MAX,
                                       UINT64_MAX - 3};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        write_safetensors(BASE, lengths[i], 24);
        refused("a wrong header length");
    }
    refused_header(BASE, 20);
    refused_header(BASE, 26);
    snprintf(path, sizeof(path), "%s/missing.safetensors", folder);
    refused("a missing file");
    snprintf(path, sizeof(path), "%s", folder);
    refused("a folder");
}

Test(files, F76_offsets_and_shapes)
{
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,0]}}", 24);
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[-24,0]}}", 24);
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,24]}}", 24);
    refused_header("{\"A\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                   "\"B\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[8,20]}}",
                   20);
    refused_header("{\"A\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
                   "\"B\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[16,28]}}",
                   28);
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24,24]}}", 24);
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[2.0,3],\"data_offsets\":[0,24]}}", 24);
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[2e0,3],\"data_offsets\":[0,24]}}", 24);
    refused_header("{\"W\":{\"dtype\":\"F33\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24);
    refused_header("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24);
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],"
                   "\"data_offsets\":[0,24]}}",
                   24);
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[2,3]}}", 24);
    refused_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                   "\"W\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[24,24]}}",
                   24);
    refused_header("[1]", 0);
    refused_header("{} x", 0);
    refused_header("{\"__metadata__\":{\"a\":1}}", 0);
    refused_header("{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0);
    char *nested = calloc(1, 4100);
    memset(nested, '[', 2000);
    memset(nested + 2000, ']', 2000);
    refused_header(nested, 0);
    free(nested);

    accepted_header("{\"B\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]},"
                    "\"A\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
                    24);
    accepted_header("  " BASE "   ", 24);
    accepted_header("{\"__metadata__\":{},\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                    "\"data_offsets\":[0,24]}}",
                    24);
    accepted_header("{\"W\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
    accepted_header("{\"\xc3\xa9\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[0,0]}}",
                    0);
}

Test(files, what_is_written_is_read)
{
    static const char *const names[] = {"y.npy", "y.safetensors"};
    const float values[6] = {1.0f, -2.5f, 3.0e38f, 1.0e-40f, -0.0f, 7.0f};
    const uint64_t shapes[3][2] = {{6, 0}, {2, 3}, {0, 0}};
    for (size_t n = 0; n < 2; n++) {
        for (uint32_t dims = 0; dims < 3; dims++) {
            vkmha_error error;
            const uint64_t *shape = shapes[dims == 1 ? 0 : dims == 2 ? 1 : 2];
            cr_assert_eq(vkmha_file_write(in_folder(names[n]), values, shape, dims, &error),
                         VKMHA_OK, "%s", error.message);
            vkmha_file *file = accepted(names[n]);
            const vkmha_tensor *tensor = vkmha_file_tensor(file, 0);
            float back[6];
            cr_assert_eq(tensor->num_dims, dims);
            cr_assert_eq(vkmha_tensor_to_f32(tensor, back, &error), VKMHA_OK);
            cr_assert_arr_eq(back, values, tensor->count * sizeof(float));
            vkmha_file_close(file);
        }
    }
    vkmha_error error;
    snprintf(path, sizeof(path), "%s/no/such/folder.npy", folder);
    cr_assert_eq(vkmha_file_write(path, values, shapes[0], 1, &error), VKMHA_ERROR_FILE);
    cr_assert(strstr(error.message, "folder.npy"), "%s", error.message);
}

static void refused_npy(const char *dictionary, size_t data_bytes)
{
    unsigned char bytes[512] = "\x93NUMPY\x01";
    const size_t length = strlen(dictionary);
    bytes[8] = (unsigned char)length;
    memcpy(bytes + 10, dictionary, length);
    write_bytes("t.npy", bytes, 10 + length + data_bytes);
    refused(dictionary);
}

Test(files, npy)
{
    refused_npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24);
    refused_npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", 24);
    refused_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 20);
    refused_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3), }", 24);
    refused_npy("{'descr': '<f4', 'fortran_order': False}", 4);
    refused_npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4);
    refused_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4);
    refused_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", 4);
    refused_npy("", 0);
    write_bytes("t.npy", "\x93NUMPY\x01\x00\xff\xff", 10);
    refused("a header longer than the file");
    write_bytes("t.npy", "\x93NUMPY\x09\x00\x00\x00\x00\x00", 12);
    refused("version 9");
}

/* ---- Checkpoints
 * --------------------------------------------------------------------------------------- */

typedef struct vkmha_named_shape {
    const char *name;
    uint64_t rows;
    uint64_t columns; /* 0: a vector */
} vkmha_named_shape;

/* Tensors one after the other, element i of each (i mod 7) + its number. */
static void write_checkpoint(const char *name, const vkmha_named_shape *tensors, size_t count)
{
    char header[4096] = "{";
    size_t length = 1;
    uint64_t offset = 0;
    for (size_t t = 0; t < count; t++) {
        const uint64_t elements = tensors[t].rows * (tensors[t].columns ? tensors[t].columns : 1);
        char shape[64];
        snprintf(shape, sizeof(shape), tensors[t].columns ? "%llu,%llu" : "%llu",
                 (unsigned long long)tensors[t].rows, (unsigned long long)tensors[t].columns);
        length += (size_t)snprintf(
            header + length, sizeof(header) - length,
            "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
            t ? "," : "", tensors[t].name, shape, (unsigned long long)offset,
            (unsigned long long)(offset + 4 * elements));
        offset += 4 * elements;
    }
    length += (size_t)snprintf(header + length, sizeof(header) - length, "}");
    unsigned char *bytes = calloc(1, 8 + length + offset);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(length >> (8 * i));
    }
    memcpy(bytes + 8, header, length);
    unsigned char *at = bytes + 8 + length;
    for (size_t t = 0; t < count; t++) {
        const uint64_t elements = tensors[t].rows * (tensors[t].columns ? tensors[t].columns : 1);
        for (uint64_t i = 0; i < elements; i++, at += 4) {
            const float value = (float)(i % 7) + (float)t * 10.0f;
            memcpy(at, &value, 4);
        }
    }
    write_bytes(name, bytes, 8 + length + offset);
    free(bytes);
}

static vkmha_status load(const char *prefix, uint32_t num_heads, vkmha_layer_params *layer,
                         vkmha_file **file, vkmha_error *error)
{
    *file = accepted(path);
    const vkmha_checkpoint_params params = {.prefix = prefix, .num_heads = num_heads};
    return vkmha_checkpoint_layer(*file, &params, layer, error);
}

static float at(const vkmha_matrix *matrix, uint64_t r, uint64_t c)
{
    float value;
    memcpy(&value,
           (const char *)matrix->data + 4 * (r * matrix->row_stride + c * matrix->column_stride),
           4);
    return value;
}

Test(files, checkpoint_names)
{
    vkmha_layer_params layer;
    vkmha_file *file;
    vkmha_error error;
    const vkmha_named_shape bert[] = {{"bert.layer.0.self.query.weight", 8, 8},
                                      {"bert.layer.0.self.query.bias", 8, 0},
                                      {"bert.layer.0.self.key.weight", 8, 8},
                                      {"bert.layer.0.self.value.weight", 8, 8},
                                      {"bert.layer.0.output.dense.weight", 8, 8}};
    write_checkpoint("c.safetensors", bert, 5);
    static const char *const prefixes[] = {NULL, "", "bert.layer.0", "bert.layer.0.", "layer.0"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        cr_assert_eq(load(prefixes[i], 2, &layer, &file, &error), VKMHA_OK, "%s", error.message);
        cr_assert_eq(layer.head_dim, 4);
        cr_assert_eq(layer.b_q.size, 8);
        cr_assert_null(layer.b_k.data);
        vkmha_file_close(file);
    }
    cr_assert_eq(load("encoder.3", 2, &layer, &file, &error), VKMHA_ERROR_FILE);
    cr_assert(strstr(error.message, "bert.layer.0"), "%s", error.message);
    vkmha_file_close(file);
    cr_assert_eq(load("", 0, &layer, &file, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "num_heads"), "%s", error.message);
    vkmha_file_close(file);
    cr_assert_eq(load("", 3, &layer, &file, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    vkmha_file_close(file);

    const vkmha_named_shape torch[] = {{"in_proj_weight", 24, 8},
                                       {"in_proj_bias", 24, 0},
                                       {"out_proj.weight", 8, 8},
                                       {"out_proj.bias", 8, 0}};
    write_checkpoint("c.safetensors", torch, 4);
    cr_assert_eq(load("", 2, &layer, &file, &error), VKMHA_OK, "%s", error.message);
    cr_assert_eq(at(&layer.w_k, 0, 0), (float)(64 % 7));
    cr_assert_eq(at(&layer.w_v, 1, 2), (float)((128 + 8 + 2) % 7));
    cr_assert_eq(layer.b_v.size, 8);
    vkmha_file_close(file);

    const vkmha_named_shape llama[] = {{"m.self_attn.q_proj.weight", 8, 6},
                                       {"m.self_attn.k_proj.weight", 4, 6},
                                       {"m.self_attn.v_proj.weight", 4, 6},
                                       {"m.self_attn.o_proj.weight", 6, 8}};
    write_checkpoint("c.safetensors", llama, 4);
    cr_assert_eq(load("m.self_attn", 4, &layer, &file, &error), VKMHA_OK, "%s", error.message);
    cr_assert_eq(layer.num_kv_heads, 2);
    cr_assert_eq(layer.head_dim, 2);
    vkmha_file_close(file);

    /* GPT-2 stores [in, out]: 6 inputs, 18 fused outputs. */
    const vkmha_named_shape gpt[] = {{"h.0.attn.c_attn.weight", 6, 18},
                                     {"h.0.attn.c_attn.bias", 18, 0},
                                     {"h.0.attn.c_proj.weight", 6, 6}};
    write_checkpoint("c.safetensors", gpt, 3);
    cr_assert_eq(load("h.0.attn", 2, &layer, &file, &error), VKMHA_OK, "%s", error.message);
    cr_assert_eq(at(&layer.w_k, 1, 2), (float)((2 * 18 + 6 + 1) % 7));
    cr_assert_eq(at(&layer.w_o, 1, 2), 20.0f + (float)((2 * 6 + 1) % 7));
    vkmha_file_close(file);

    /* What vkmha_layer_params cannot say is refused by name. */
    const vkmha_named_shape extra[] = {
        {"in_proj_weight", 24, 8}, {"out_proj.weight", 8, 8}, {"bias_k", 8, 0}};
    write_checkpoint("c.safetensors", extra, 3);
    cr_assert_neq(load("", 2, &layer, &file, &error), VKMHA_OK);
    cr_assert(strstr(error.message, "bias_k"), "%s", error.message);
    vkmha_file_close(file);
}

Test(files, shards)
{
    const vkmha_named_shape first[] = {{"a.q_proj.weight", 8, 8}, {"a.k_proj.weight", 8, 8}};
    const vkmha_named_shape second[] = {{"a.v_proj.weight", 8, 8}, {"a.o_proj.weight", 8, 8}};
    write_checkpoint("m-1.safetensors", first, 2);
    write_checkpoint("m-2.safetensors", second, 2);
    static const char index[] =
        "{\"metadata\":{},\"weight_map\":{\"a.q_proj.weight\":\"m-1.safetensors\","
        "\"a.k_proj.weight\":\"m-1.safetensors\",\"a.v_proj.weight\":\"m-2.safetensors\","
        "\"a.o_proj.weight\":\"m-2.safetensors\"}}";
    write_bytes("m.index.json", index, strlen(index));
    vkmha_layer_params layer;
    vkmha_file *file;
    vkmha_error error;
    cr_assert_eq(load("a", 2, &layer, &file, &error), VKMHA_OK, "%s", error.message);
    vkmha_file_close(file);
    static const char *const wrong[] = {
        "{\"weight_map\":{\"a.q_proj.weight\":\"../m-1.safetensors\"}}",
        "{\"weight_map\":{\"a.q_proj.weight\":\"m-2.safetensors\"}}",
        "{\"weight_map\":{\"a.q_proj.weight\":\"m-3.safetensors\"}}",
        "{\"weight_map\":{\"a.q_proj.weight\":\"m.index.json\"}}",
        "{\"weight_map\":[]}",
        "{",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        write_bytes("w.index.json", wrong[i], strlen(wrong[i]));
        cr_assert_eq(vkmha_file_open(path, NULL, &file, &error), VKMHA_ERROR_FILE, "%s", wrong[i]);
    }
}

typedef struct vkmha_counting_host {
    uint32_t countdown;
    int live;
} vkmha_counting_host;

static void *count_allocate(void *user, size_t bytes)
{
    vkmha_counting_host *counts = user;
    if (counts->countdown == 0) {
        return NULL;
    }
    counts->countdown--;
    counts->live++;
    return malloc(bytes);
}

static void count_release(void *user, void *memory)
{
    ((vkmha_counting_host *)user)->live--;
    free(memory);
}

Test(files, every_allocation_fails_in_turn)
{
    write_safetensors(BASE, strlen(BASE), 24);
    for (uint32_t n = 0;; n++) {
        vkmha_counting_host counts = {.countdown = n};
        const vkmha_host host = {
            .user = &counts, .allocate = count_allocate, .release = count_release};
        vkmha_file *file = NULL;
        const vkmha_status status = vkmha_file_open(path, &host, &file, NULL);
        vkmha_file_close(file);
        cr_assert_eq(counts.live, 0);
        if (status == VKMHA_OK) {
            cr_assert(n > 1);
            break;
        }
        cr_assert_eq(status, VKMHA_ERROR_OUT_OF_MEMORY);
    }
}
