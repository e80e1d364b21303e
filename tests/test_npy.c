/* .npy files, and both formats written and read again. */
#define _POSIX_C_SOURCE 200809L

#include <criterion/criterion.h>
#include <stdint.h>
#include <sys/stat.h>

#include <vkmha/vkmha_files.h>

#include "scratch.h"

TestSuite(npy, .init = scratch_create, .fini = scratch_destroy);

static const float base_data[] = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f};

/* ---- Reading --------------------------------------------------------------------------------- */

/* A .npy file of this version and header text; the header is not padded. */
static const char *write_npy(const char *name, unsigned char major, const char *header,
                             const void *data, size_t data_bytes)
{
    const size_t length = strlen(header);
    const size_t start = major == 1 ? 10 : 12;
    unsigned char bytes[512] = "\x93NUMPY";
    cr_assert_leq(start + length + data_bytes, sizeof(bytes));
    bytes[6] = major;
    bytes[8] = (unsigned char)length;
    bytes[9] = (unsigned char)(length >> 8);
    memcpy(bytes + start, header, length);
    memcpy(bytes + start + length, data, data_bytes);
    return scratch_write(name, bytes, start + length + data_bytes);
}

Test(npy, taken)
{
    const struct {
        unsigned char major;
        const char *header;
        vkmha_file_type type;
        uint32_t num_dims;
        uint64_t count;
        size_t data_bytes;
    } good[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", VKMHA_FILE_F32, 2,
         6, 24},
        {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }\n", VKMHA_FILE_F32, 1, 6,
         24},
        {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", VKMHA_FILE_F32, 0, 1, 4},
        {1, "{'shape': (0, 3), 'fortran_order': False, 'descr': '<f8'}", VKMHA_FILE_F64, 2, 0, 0},
        {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (3,)}", VKMHA_FILE_F16, 1, 3, 6},
        {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", VKMHA_FILE_F64, 1, 3, 24},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", VKMHA_FILE_U8, 1, 3, 3},
        {1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", VKMHA_FILE_BOOL, 1, 3, 3},
        {1, "{'descr': '<i4', 'fortran_order': False, 'shape': (3,)}", VKMHA_FILE_I32, 1, 3, 12},
        {1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", VKMHA_FILE_I64, 1, 3, 24},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 2, 3)}",
         VKMHA_FILE_F32, 8, 6, 24},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        vkmha_file *file = scratch_open_good(
            write_npy("x.npy", good[i].major, good[i].header, base_data, good[i].data_bytes));
        cr_assert_eq(vkmha_file_num_tensors(file), 1);
        const vkmha_tensor *tensor = vkmha_file_find(file, "");
        cr_assert_not_null(tensor);
        cr_expect_eq(tensor->type, good[i].type, "%zu", i);
        cr_expect_eq(tensor->num_dims, good[i].num_dims, "%zu", i);
        cr_expect_eq(tensor->count, good[i].count, "%zu", i);
        cr_expect_eq(tensor->size_bytes, good[i].data_bytes, "%zu", i);
        cr_expect_null(vkmha_file_metadata(file, "num_heads"));
        vkmha_file_close(file);
    }
}

Test(npy, refused)
{
#define NPY(descr, order, shape)                                                                   \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"
    const struct {
        unsigned char major;
        const char *header;
        const char *reason;
    } bad[] = {
        {1, NPY("'<f4'", "True", "(2, 3)"), "fortran_order True is not supported"},
        {1, NPY("'>f4'", "False", "(2, 3)"), "descr is not one of"},
        {1, NPY("'|O'", "False", "(2, 3)"), "descr is not one of"},
        {1, NPY("[('a', '<f4')]", "False", "(6,)"), "descr is not one of"},
        {1, NPY("'<f4'", "False", "(2, 4)"), "24 bytes of data, its shape needs 32"},
        {1, NPY("'<f4'", "False", "(5,)"), "24 bytes of data, its shape needs 20"},
        {1, NPY("'<f4'", "False", "(-6,)"), "shape is not a tuple"},
        {1, NPY("'<f4'", "False", "(6)"), "not the dictionary"},
        {1, NPY("'<f4'", "False", "[6]"), "not the dictionary"},
        {1, NPY("'<f4'", "False", "(6,,)"), "shape is not a tuple"},
        {1, NPY("'<f4'", "False", "(1,1,1,1,1,1,1,1,6)"), "shape is not a tuple of at most 8"},
        {1, NPY("'<f4'", "False", "(99999999999999999999,)"), "not the dictionary"},
        {1, NPY("'<f4'", "False", "(4294967296, 4294967296)"), "too large"},
        {1, NPY("'<f4'", "False", "(0, 4294967296, 4294967296)"), "too large"},
        {1, NPY("'<f4'", "Maybe", "(6,)"), "not the dictionary"},
        {1, "{'descr': '<f4', 'fortran_order': False}\n", "not the dictionary"},
        {1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}",
         "not the dictionary"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}",
         "not the dictionary"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x", "not the dictionary"},
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,", "not a tuple"},
        {1, "", "not the dictionary"},
        {0, NPY("'<f4'", "False", "(6,)"), "version 0.0"},
        {4, NPY("'<f4'", "False", "(6,)"), "version 4.0"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        scratch_refuse(write_npy("bad.npy", bad[i].major, bad[i].header, base_data, 24),
                       bad[i].reason);
    }
    scratch_refuse(scratch_write("empty.npy", "", 0), "the file is empty");
    scratch_refuse(scratch_write("text.npy", "0.5 0.5 0.5\n", 12), "does not begin as one");
    scratch_refuse(scratch_write("x.npy", "\x93NUMPY\x01\x00", 8), "8 bytes of .npy version 1.0");
    scratch_refuse(scratch_write("x.npy", "\x93NUMPY\x02\x00\x01\x00\x00", 11), "11 bytes of .npy");
    scratch_refuse(scratch_write("x.npy", "\x93NUMPY\x01\x01\x00\x00", 10), "version 1.1");
    scratch_refuse(scratch_write("x.npy", "\x93NUMPY\x01\x00\x01\x00", 10),
                   "header length 1 exceeds");
    scratch_refuse(scratch_write("x.npy", "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12),
                   "header length 4294967295 exceeds");
}

/* ---- Writing --------------------------------------------------------------------------------- */

static void expect_round_trip(const char *name, const char *tensor_name, const uint64_t *dims,
                              uint32_t num_dims, const float *values)
{
    const char *path = scratch_path(name);
    vkmha_error error;
    cr_assert_eq(vkmha_file_write(path, values, dims, num_dims, &error), VKMHA_OK, "%s",
                 error.message);
    vkmha_file *file = scratch_open_good(path);
    const vkmha_tensor *tensor = vkmha_file_find(file, tensor_name);
    cr_assert_not_null(tensor);
    cr_expect_eq(tensor->type, VKMHA_FILE_F32);
    cr_assert_eq(tensor->num_dims, num_dims);
    for (uint32_t i = 0; i < num_dims; i++) {
        cr_expect_eq(tensor->dims[i], dims[i]);
    }
    if (tensor->count > 0) {
        cr_expect_arr_eq(tensor->data, values, tensor->size_bytes);
    }
    vkmha_file_close(file);
}

Test(npy, write_round_trip)
{
    const struct {
        uint64_t dims[VKMHA_MAX_TENSOR_DIMS];
        uint32_t num_dims;
    } shapes[] = {
        {{0}, 0}, {{6}, 1}, {{2, 3}, 2}, {{0}, 1}, {{3, 0, 2}, 3}, {{1, 1, 1, 2, 1, 3, 1, 1}, 8},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        expect_round_trip("w.npy", "", shapes[i].dims, shapes[i].num_dims, base_data);
        expect_round_trip("w.safetensors", "output", shapes[i].dims, shapes[i].num_dims, base_data);
    }
    /* As numpy reads it: the data begin at a multiple of 64. */
    struct stat info;
    const uint64_t dims[] = {2, 3};
    cr_assert_eq(vkmha_file_write(scratch_path("w.npy"), base_data, dims, 2, NULL), VKMHA_OK);
    cr_assert_eq(stat(scratch_path("w.npy"), &info), 0);
    cr_expect_eq(info.st_size % 64, 24);
    cr_expect_eq(scratch_count(0), 2, "temporary files are left");
}

Test(npy, write_refused)
{
    const uint64_t dims[] = {2, 3};
    const uint64_t huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
    const vkmha_status wrong = VKMHA_ERROR_INVALID_ARGUMENT;
    char path[512];
    strcpy(path, scratch_path("w.npy"));
    vkmha_error error;
    cr_expect_eq(vkmha_file_write(NULL, base_data, dims, 2, &error), wrong);
    cr_expect_eq(vkmha_file_write("", base_data, dims, 2, &error), wrong);
    cr_expect_eq(vkmha_file_write(path, NULL, dims, 2, &error), wrong);
    cr_expect_eq(vkmha_file_write(path, base_data, NULL, 2, &error), wrong);
    cr_expect_eq(vkmha_file_write(path, base_data, dims, 9, &error), wrong);
    cr_expect_eq(vkmha_file_write(path, base_data, huge, 2, &error), wrong);
    char longest[5000];
    memset(longest, 'p', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    cr_expect_eq(vkmha_file_write(longest, base_data, dims, 2, &error), wrong);
    cr_expect_eq(vkmha_file_write(scratch_path("no/such.npy"), base_data, dims, 2, &error),
                 VKMHA_ERROR_FILE);
    cr_expect_not_null(strstr(error.message, "such.npy: cannot"), "%s", error.message);
    /* Devices and folders are never replaced by a file. */
    cr_expect_eq(vkmha_file_write("/dev/null", base_data, dims, 2, &error), VKMHA_ERROR_FILE);
    cr_expect_eq(vkmha_file_write(scratch_folder, base_data, dims, 2, &error), VKMHA_ERROR_FILE);
    cr_expect_eq(scratch_count(0), 0, "partial files are left");
}

Test(npy, write_failing_keeps_what_was_there)
{
    const uint64_t dims[] = {2, 3};
    char path[512];
    strcpy(path, scratch_path("w.npy"));
    /* Other writers' temporary files stay. */
    scratch_write("w.npy.part0", "other", 5);
    cr_assert_eq(vkmha_file_write(path, base_data, dims, 2, NULL), VKMHA_OK);
    cr_expect_eq(scratch_count(0), 2);
    /* No name is free: nothing can be begun. */
    for (int i = 1; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof(name), "w.npy.part%d", i);
        scratch_write(name, "", 0);
    }
    vkmha_error error;
    cr_expect_eq(vkmha_file_write(path, base_data, dims, 1, &error), VKMHA_ERROR_FILE);
    vkmha_file *file = scratch_open_good(path);
    cr_expect_eq(vkmha_file_tensor(file, 0)->num_dims, 2);
    vkmha_file_close(file);
}
