/* safetensors, alone and in shards: what is taken, what is refused, and that nothing leaks. */
#define _POSIX_C_SOURCE 200809L

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <sys/stat.h>

#include <vkmha/vkmha_files.h>

#include "scratch.h"

TestSuite(safetensors, .init = scratch_create, .fini = scratch_destroy);

static const char base_header[] =
    "{\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}";
static const float base_data[] = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f};

static void expect_base(const char *path)
{
    vkmha_file *file = scratch_open_good(path);
    cr_assert_eq(vkmha_file_num_tensors(file), 1);
    const vkmha_tensor *tensor = vkmha_file_find(file, "W");
    cr_assert_not_null(tensor);
    cr_expect_eq(tensor, vkmha_file_tensor(file, 0));
    cr_expect_null(vkmha_file_tensor(file, 1));
    cr_expect_null(vkmha_file_find(file, "V"));
    cr_expect_eq(tensor->type, VKMHA_FILE_F32);
    cr_expect_eq(tensor->num_dims, 2);
    cr_expect_eq(tensor->dims[0], 2);
    cr_expect_eq(tensor->dims[1], 3);
    cr_expect_eq(tensor->count, 6);
    cr_expect_eq(tensor->size_bytes, 24);
    float values[6] = {0};
    cr_expect_eq(vkmha_tensor_to_f32(tensor, values, NULL), VKMHA_OK);
    cr_expect_arr_eq(values, base_data, sizeof(values));
    vkmha_file_close(file);
}

Test(safetensors, f75_header_length)
{
    const size_t length = strlen(base_header);
    expect_base(scratch_safetensors("base.safetensors", base_header, base_data, 24));
    unsigned char bytes[128] = {0};
    scratch_refuse(scratch_write("empty.safetensors", bytes, 0), "the file is empty");
    scratch_refuse(scratch_write("seven.safetensors", bytes, 7), "7 bytes are too few");
    const struct {
        uint64_t claimed;
        const char *reason;
    } claims[] = {
        {0, "does not end"},
        {1, "does not end"},
        {10000, "exceeds the file"},
        {93, "exceeds the file"},
        {100000001, "exceeds 100000000"},
        {UINT64_C(1) << 63, "exceeds 100000000"},
        {UINT64_MAX, "exceeds 100000000"},
        {UINT64_MAX - 3, "exceeds 100000000"},
    };
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        memset(bytes, 0, sizeof(bytes));
        memcpy(bytes + 8, base_header, length);
        for (size_t k = 0; k < 8; k++) {
            bytes[k] = (unsigned char)(claims[i].claimed >> (8 * k));
        }
        scratch_refuse(scratch_write("claim.safetensors", bytes, 100), claims[i].reason);
    }
    scratch_refuse(scratch_safetensors("cut.safetensors", base_header, base_data, 20),
                   "\"W\": data_offsets [0, 24] are no range of the file's 20 bytes");
    unsigned char longer[26] = {0};
    scratch_refuse(scratch_safetensors("longer.safetensors", base_header, longer, 26),
                   "2 bytes follow the last tensor");
}

Test(safetensors, f76_refused)
{
#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
    const struct {
        const char *header;
        size_t data_bytes;
        const char *reason;
    } bad[] = {
        {"{\"W\":" ENTRY("F32", "[2,3]", "[24,0]") "}", 24, "data_offsets [24, 0] are no range"},
        {"{\"W\":" ENTRY("F32", "[2,3]", "[-24,0]") "}", 24, "not written as an integer"},
        {"{\"W\":" ENTRY("F32", "[2,4]", "[0,24]") "}", 24,
         "hold 24 bytes, shape and dtype need 32"},
        {"{\"a\":" ENTRY("F32", "[3]", "[0,12]") ",\"b\":" ENTRY("F32", "[3]", "[8,20]") "}", 20,
         "\"b\": its data overlap"},
        {"{\"a\":" ENTRY("F32", "[3]", "[0,12]") ",\"b\":" ENTRY("F32", "[3]", "[16,28]") "}", 28,
         "\"b\": a hole"},
        {"{\"W\":" ENTRY("F32", "[2,3]", "[0,24,24]") "}", 24, "not two integers"},
        {"{\"W\":" ENTRY("F32", "[2.0,3]", "[0,24]") "}", 24, "not written as an integer"},
        {"{\"W\":" ENTRY("F33", "[2,3]", "[0,24]") "}", 24, "dtype \"F33\" is unknown"},
        {"{\"\xff\":" ENTRY("F32", "[2,3]", "[0,24]") "}", 24, "not UTF-8"},
        /* Further ones. */
        {"{\"\xc0\x80\":" ENTRY("F32", "[2,3]", "[0,24]") "}", 24, "not UTF-8"},
        {"{\"\xed\xa0\x80\":" ENTRY("F32", "[2,3]", "[0,24]") "}", 24, "not UTF-8"},
        {"{\"a\\u0000b\":" ENTRY("F32", "[2,3]", "[0,24]") "}", 24, "a NUL"},
        {"{\"a\nb\":" ENTRY("F32", "[2,3]", "[0,24]") "}", 24, "a control character"},
        {"{\"W\":" ENTRY("F32", "[02,3]", "[0,24]") "}", 24, "not written as an integer"},
        {"{\"W\":" ENTRY("F32", "[2e0,3]", "[0,24]") "}", 24, "not written as an integer"},
        {"{\"W\":" ENTRY("F32", "[6]", "[-0,24]") "}", 24, "not written as an integer"},
        {"{\"W\":" ENTRY("F32", "[\"6\"]", "[0,24]") "}", 24, "shape holds what is no integer"},
        {"{\"W\":" ENTRY("F32", "[9007199254740992]", "[0,24]") "}", 24, "no integer below 2^53"},
        {"{\"W\":" ENTRY("F32", "[1,1,1,1,1,1,1,1,6]", "[0,24]") "}", 24, "more than 8 dimensions"},
        {"{\"W\":" ENTRY("F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "too large"},
        {"{\"W\":" ENTRY("F32", "[0,4294967296,4294967296]", "[0,0]") "}", 0, "too large"},
        {"{\"W\":{\"dtype\":\"F32\",\"shape\":[6]}}", 24, "not an object of one dtype"},
        {"{\"W\":{\"dtype\":\"F32\",\"shape\":[6],\"shape\":[6],\"data_offsets\":[0,24]}}", 24,
         "not an object of one dtype"},
        {"{\"W\":7}", 24, "not an object of one dtype"},
        {"{\"a\":" ENTRY("F32", "[3]", "[0,12]") ",\"a\":" ENTRY("F32", "[3]", "[12,24]") "}", 24,
         "two tensors are called \"a\""},
        {"{\"\\u0061\":" ENTRY("F32", "[3]", "[0,12]") ",\"a\":" ENTRY("F32", "[3]", "[12,24]") "}",
         24, "two tensors are called \"a\""},
        {"{\"__metadata__\":{\"k\":1},\"W\":" ENTRY("F32", "[6]", "[0,24]") "}", 24, "not a text"},
        {"{\"__metadata__\":[],\"W\":" ENTRY("F32", "[6]", "[0,24]") "}", 24, "not an object"},
        {"{\"__metadata__\":{},\"__metadata__\":{},\"W\":" ENTRY("F32", "[6]", "[0,24]") "}", 24,
         "__metadata__ is given twice"},
        {"{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"},\"W\":" ENTRY("F32", "[6]", "[0,24]") "}", 24,
         "\"k\" is given twice"},
        {"{\"W\\n\\u001b[2J\":" ENTRY("F33", "[6]", "[0,24]") "}", 24, "\"W??[2J\": dtype"},
        {"[]", 0, "not a JSON object"},
        {"{}{}", 0, "more text after"},
        {"{} x", 0, "more text after"},
        {"{\"W\":", 0, "does not end"},
        {"{\"W\":1,", 0, "does not end"},
        {"{\"W\":1,}", 0, "not JSON"},
        {"{\"W\" 1}", 0, "not JSON"},
        {"{\"W\":[}]", 0, "not JSON"},
        {"{\"W\":\"\\ud800\"}", 0, "not JSON"},
        {"\xef\xbb\xbf{}", 0, "not a JSON object"},
        {"", 0, "does not end"},
        {"   ", 0, "does not end"},
        {"{}", 4, "4 bytes follow"},
    };
    const unsigned char data[32] = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char name[32];
        snprintf(name, sizeof(name), "bad%zu.safetensors", i);
        scratch_refuse(scratch_safetensors(name, bad[i].header, data, bad[i].data_bytes),
                       bad[i].reason);
    }
    char deep[4101] = "{\"W\":";
    memset(deep + 5, '[', 2000);
    memset(deep + 2005, ']', 2000);
    strcpy(deep + 4005, "}");
    scratch_refuse(scratch_safetensors("deep.safetensors", deep, data, 0), "nested too deep");
}

Test(safetensors, f76_accepted)
{
    const char *const good[] = {
        base_header,
        "{\"W\":{\"data_offsets\":[0,24],\"shape\":[2,3],\"dtype\":\"F32\"}}",
        "  {\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
        "{\"W\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}   ",
        "{ \"W\" :\n{\"dtype\":\t\"F32\" , \"shape\": [ 2 , 3 ],\"data_offsets\":[0,24] } }\n",
        "{\"__metadata__\":{},\"W\":" ENTRY("F32", "[2,3]", "[0,24]") "}",
        "{\"W\":" ENTRY("F32", "[2,3]", "[0,24]") ",\"__metadata__\":{\"a\":\"1.5e3\"}}",
        "{\"\\u0057\":" ENTRY("F32", "[2,3]", "[0,24]") "}",
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        expect_base(scratch_safetensors("good.safetensors", good[i], base_data, 24));
    }
    expect_base(scratch_safetensors("without_an_end", base_header, base_data, 24));
    vkmha_file *file = scratch_open_good(scratch_safetensors("none.safetensors", "{}", NULL, 0));
    cr_expect_eq(vkmha_file_num_tensors(file), 0);
    cr_expect_null(vkmha_file_find(file, "W"));
    vkmha_file_close(file);
    vkmha_file_close(NULL);
}

Test(safetensors, order_and_metadata)
{
    /* Names against the order of the data, an empty tensor between, a scalar. */
    const char *header = "{\"__metadata__\":{\"num_heads\":\"12\",\"\":\"none\"},"
                         "\"z\":" ENTRY("F32", "[]", "[0,4]") ",\"\xc3\xa9\":" ENTRY(
                             "F32", "[4,0,3]", "[4,4]") ",\"a\":" ENTRY("F32", "[5]", "[4,24]") "}";
    vkmha_file *file =
        scratch_open_good(scratch_safetensors("o.safetensors", header, base_data, 24));
    cr_assert_eq(vkmha_file_num_tensors(file), 3);
    cr_expect_str_eq(vkmha_file_tensor(file, 0)->name, "a");
    cr_expect_str_eq(vkmha_file_tensor(file, 1)->name, "z");
    cr_expect_str_eq(vkmha_file_tensor(file, 2)->name, "\xc3\xa9");
    float value = -1.0f;
    const vkmha_tensor *scalar = vkmha_file_find(file, "z");
    cr_expect_eq(scalar->num_dims, 0);
    cr_expect_eq(scalar->count, 1);
    cr_expect_eq(vkmha_tensor_to_f32(scalar, &value, NULL), VKMHA_OK);
    cr_expect_eq(value, 0.0f);
    const vkmha_tensor *empty = vkmha_file_find(file, "\xc3\xa9");
    cr_expect_eq(empty->count, 0);
    cr_expect_eq(vkmha_tensor_to_f32(empty, NULL, NULL), VKMHA_OK);
    cr_expect_str_eq(vkmha_file_metadata(file, "num_heads"), "12");
    cr_expect_str_eq(vkmha_file_metadata(file, ""), "none");
    cr_expect_null(vkmha_file_metadata(file, "a"));
    vkmha_file_close(file);
}

/* ---- Types ----------------------------------------------------------------------------------- */

Test(safetensors, types)
{
    const struct {
        const char *dtype;
        vkmha_file_type type;
        uint32_t bytes;
    } types[] = {
        {"F64", VKMHA_FILE_F64, 8},           {"F32", VKMHA_FILE_F32, 4},
        {"F16", VKMHA_FILE_F16, 2},           {"BF16", VKMHA_FILE_BF16, 2},
        {"I64", VKMHA_FILE_I64, 8},           {"I32", VKMHA_FILE_I32, 4},
        {"I16", VKMHA_FILE_OTHER, 2},         {"I8", VKMHA_FILE_OTHER, 1},
        {"U64", VKMHA_FILE_OTHER, 8},         {"U32", VKMHA_FILE_OTHER, 4},
        {"U16", VKMHA_FILE_OTHER, 2},         {"U8", VKMHA_FILE_U8, 1},
        {"BOOL", VKMHA_FILE_BOOL, 1},         {"C64", VKMHA_FILE_OTHER, 8},
        {"F8_E4M3", VKMHA_FILE_OTHER, 1},     {"F8_E5M2", VKMHA_FILE_OTHER, 1},
        {"F8_E8M0", VKMHA_FILE_OTHER, 1},     {"F8_E4M3FNUZ", VKMHA_FILE_OTHER, 1},
        {"F8_E5M2FNUZ", VKMHA_FILE_OTHER, 1},
    };
    const unsigned char data[24] = {0};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const uint32_t bytes = 3 * types[i].bytes;
        char header[128];
        snprintf(header, sizeof(header), "{\"x\":" ENTRY("%s", "[3]", "[0,%" PRIu32 "]") "}",
                 types[i].dtype, bytes);
        vkmha_file *file =
            scratch_open_good(scratch_safetensors("t.safetensors", header, data, bytes));
        const vkmha_tensor *tensor = vkmha_file_find(file, "x");
        cr_expect_eq(tensor->type, types[i].type, "%s", types[i].dtype);
        cr_expect_eq(tensor->size_bytes, bytes, "%s", types[i].dtype);
        const bool is_float =
            types[i].dtype[0] == 'B' ? types[i].bytes == 2 : types[i].type <= VKMHA_FILE_F64;
        float values[3];
        vkmha_error error;
        cr_expect_eq(vkmha_tensor_to_f32(tensor, values, &error),
                     is_float ? VKMHA_OK : VKMHA_ERROR_FILE, "%s", types[i].dtype);
        vkmha_file_close(file);
    }
}

Test(safetensors, values)
{
    /* F16: 1, -2, the smallest subnormal, the largest, infinity, NaN, -0. */
    const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x7e00, 0x8000};
    const float expected[] = {1.0f, -2.0f, 0x1p-24f, 65504.0f, INFINITY, NAN, -0.0f};
    const uint16_t brains[] = {0x3f80, 0xc000, 0x0001, 0x7f7f, 0x7f80, 0x7fc0, 0x8000};
    const float brain_expected[] = {1.0f, -2.0f, 0x1p-133f, 0x1.fep+127f, INFINITY, NAN, -0.0f};
    const double doubles[] = {0.1, 1e300, -0.0};
    unsigned char data[52];
    memcpy(data, halves, 14);
    memcpy(data + 14, brains, 14);
    memcpy(data + 28, doubles, 24);
    const char *header = "{\"h\":" ENTRY("F16", "[7]", "[0,14]") ",\"b\":" ENTRY(
        "BF16", "[7]", "[14,28]") ",\"d\":" ENTRY("F64", "[3]", "[28,52]") "}";
    vkmha_file *file = scratch_open_good(scratch_safetensors("v.safetensors", header, data, 52));
    float values[7];
    cr_expect_eq(vkmha_tensor_to_f32(vkmha_file_find(file, "h"), values, NULL), VKMHA_OK);
    for (size_t i = 0; i < 7; i++) {
        cr_expect(isnan(expected[i])
                      ? isnan(values[i])
                      : values[i] == expected[i] && !signbit(values[i]) == !signbit(expected[i]),
                  "F16 %zu: %g", i, (double)values[i]);
    }
    cr_expect_eq(vkmha_tensor_to_f32(vkmha_file_find(file, "b"), values, NULL), VKMHA_OK);
    for (size_t i = 0; i < 7; i++) {
        cr_expect(isnan(brain_expected[i]) ? isnan(values[i])
                                           : values[i] == brain_expected[i] &&
                                                 !signbit(values[i]) == !signbit(brain_expected[i]),
                  "BF16 %zu: %g", i, (double)values[i]);
    }
    cr_expect_eq(vkmha_tensor_to_f32(vkmha_file_find(file, "d"), values, NULL), VKMHA_OK);
    cr_expect(values[0] == 0.1f && isinf(values[1]) && values[2] == 0.0f);
    cr_expect_eq(vkmha_tensor_to_f32(NULL, values, NULL), VKMHA_ERROR_INVALID_ARGUMENT);
    cr_expect_eq(vkmha_tensor_to_f32(vkmha_file_find(file, "d"), NULL, NULL),
                 VKMHA_ERROR_INVALID_ARGUMENT);
    vkmha_file_close(file);
}

/* ---- Shards ---------------------------------------------------------------------------------- */

static void write_shards(void)
{
    scratch_safetensors("one.safetensors",
                        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":" ENTRY(
                            "F32", "[2]", "[0,8]") ",\"c\":" ENTRY("F32", "[1]", "[8,12]") "}",
                        base_data, 12);
    scratch_safetensors("two.safetensors", "{\"b\":" ENTRY("F32", "[3]", "[0,12]") "}",
                        base_data + 3, 12);
}

static const char good_index[] =
    "{\"metadata\":{\"total_size\":2.4e1,\"more\":[{}]},\"weight_map\":{\"c\":\"one.safetensors\","
    "\"b\":\"two.safetensors\",\"a\":\"one.safetensors\"}}";

Test(safetensors, shards)
{
    write_shards();
    vkmha_file *file =
        scratch_open_good(scratch_write("i.index.json", good_index, strlen(good_index)));
    cr_assert_eq(vkmha_file_num_tensors(file), 3);
    const char *const names[] = {"a", "b", "c"};
    const float firsts[] = {0.0f, 3.0f, 2.0f};
    for (uint64_t i = 0; i < 3; i++) {
        const vkmha_tensor *tensor = vkmha_file_tensor(file, i);
        cr_expect_str_eq(tensor->name, names[i]);
        float values[3];
        cr_expect_eq(vkmha_tensor_to_f32(tensor, values, NULL), VKMHA_OK);
        cr_expect_eq(values[0], firsts[i]);
    }
    vkmha_file_close(file);
}

Test(safetensors, shards_refused)
{
    write_shards();
    const struct {
        const char *map;
        const char *reason;
    } bad[] = {
        {"{\"a\":\"../one.safetensors\"}", "not a plain file name"},
        {"{\"a\":\"sub/one.safetensors\"}", "not a plain file name"},
        {"{\"a\":\"sub\\\\one.safetensors\"}", "not a plain file name"},
        {"{\"a\":\"/etc/passwd\"}", "not a plain file name"},
        {"{\"a\":\"..\"}", "not a plain file name"},
        {"{\"a\":\"\"}", "not a plain file name"},
        {"{\"a\":\"bad.json\"}", "is an index itself"},
        {"{\"a\":1}", "not a text"},
        {"{\"b\":\"one.safetensors\"}", "tensor \"b\" is not in shard \"one.safetensors\""},
        {"{\"a\":\"one.safetensors\",\"a\":\"one.safetensors\"}", "two tensors are called \"a\""},
        {"[]", "weight_map is not there"},
        {"{},\"weight_map\":{}", "\"weight_map\" is given twice"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "{\"weight_map\":%s}", bad[i].map);
        scratch_refuse(scratch_write("bad.json", text, strlen(text)), bad[i].reason);
    }
    scratch_refuse(scratch_write("bad.json", "{}", 2), "weight_map is not there");
    scratch_refuse(scratch_write("bad.json", "", 0), "the file is empty");
    const char absent[] = "{\"weight_map\":{\"a\":\"three.safetensors\"}}";
    vkmha_error error;
    vkmha_file *file = NULL;
    cr_expect_eq(
        vkmha_file_open(scratch_write("bad.json", absent, strlen(absent)), NULL, &file, &error),
        VKMHA_ERROR_FILE);
    cr_expect_not_null(strstr(error.message, "three.safetensors: cannot open"), "%s",
                       error.message);
}

/* ---- Paths ----------------------------------------------------------------------------------- */

Test(safetensors, paths)
{
    scratch_refuse(scratch_path("absent.safetensors"), "cannot open");
    scratch_refuse(scratch_folder, "not a regular file");
    const char *pipe = scratch_path("pipe");
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    scratch_refuse(pipe, "not a regular file");
    vkmha_error error;
    vkmha_file *file = NULL;
    cr_expect_eq(vkmha_file_open(NULL, NULL, &file, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    cr_expect_eq(vkmha_file_open("x", NULL, NULL, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    const vkmha_host half = {.allocate = scratch_allocate};
    cr_expect_eq(vkmha_file_open("x", &half, &file, &error), VKMHA_ERROR_INVALID_ARGUMENT);
    /* A long path loses its start, not the reason. */
    char path[2001];
    memset(path, 'p', 1990);
    strcpy(path + 1990, "/tail.npy");
    cr_expect_eq(vkmha_file_open(path, NULL, &file, &error), VKMHA_ERROR_FILE);
    cr_expect_not_null(strstr(error.message, "/tail.npy: cannot open"), "%s", error.message);
    cr_expect_eq(strncmp(error.message, "...p", 4), 0);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void fail_each_allocation(const char *path)
{
    for (uint64_t n = 1;; n++) {
        scratch_allocator allocator = {.failing_call = n};
        const vkmha_host host = scratch_host_of(&allocator);
        vkmha_file *file = NULL;
        vkmha_error error;
        const vkmha_status status = vkmha_file_open(path, &host, &file, &error);
        if (allocator.calls < n) {
            cr_assert_eq(status, VKMHA_OK, "%s", error.message);
            vkmha_file_close(file);
            cr_expect_eq(allocator.live, 0, "%s leaks", path);
            cr_expect_geq(n, 4); /* the file, its path, its tensors */
            return;
        }
        cr_expect_eq(status, VKMHA_ERROR_OUT_OF_MEMORY, "%s, allocation %" PRIu64, path, n);
        cr_expect_null(file);
        cr_expect_eq(allocator.live, 0, "%s leaks after allocation %" PRIu64 " failed", path, n);
    }
}

Test(safetensors, memory)
{
    fail_each_allocation(scratch_safetensors(
        "m.safetensors", "{\"__metadata__\":{\"a\":\"b\"},\"W\":" ENTRY("F32", "[6]", "[0,24]") "}",
        base_data, 24));
    write_shards();
    fail_each_allocation(scratch_write("i.index.json", good_index, strlen(good_index)));
    const uint64_t dims[] = {2, 3};
    cr_assert_eq(vkmha_file_write(scratch_path("m.npy"), base_data, dims, 2, NULL), VKMHA_OK);
    fail_each_allocation(scratch_path("m.npy"));
}

/* ---- Real files ------------------------------------------------------------------------------ */

Test(safetensors, real_layer)
{
    vkmha_file *file =
        scratch_open_good(VKMHA_TEST_SOURCE "/tests/golden/demo_minilm_layer0.safetensors");
    const vkmha_tensor *weight = vkmha_file_find(file, "w_q");
    cr_assert_not_null(weight);
    cr_expect_eq(weight->type, VKMHA_FILE_F16);
    cr_expect_eq(weight->count, UINT64_C(384) * 384);
    cr_expect_str_eq(vkmha_file_metadata(file, "num_heads"), "12");
    vkmha_file_close(file);
}
