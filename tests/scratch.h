/* A folder of files for one test, gone after it; files opened and refused. */
#ifndef VKMHA_TESTS_SCRATCH_H
#define VKMHA_TESTS_SCRATCH_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <vkmha/vkmha_files.h>

static char scratch_folder[64];

static inline void scratch_create(void)
{
    snprintf(scratch_folder, sizeof(scratch_folder), "/tmp/vkmha_test_XXXXXX");
    cr_assert_not_null(mkdtemp(scratch_folder));
}

/* The path of a file of the folder; valid until the fourth call from here. */
static inline const char *scratch_path(const char *name)
{
    static char paths[4][512];
    static size_t next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", scratch_folder, name);
    return path;
}

/* How many files the folder holds; removes them if told to. */
static inline size_t scratch_count(int removes)
{
    DIR *folder = opendir(scratch_folder);
    cr_assert_not_null(folder);
    size_t count = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
            if (removes) {
                remove(scratch_path(entry->d_name));
            }
        }
    }
    closedir(folder);
    return count;
}

static inline void scratch_destroy(void)
{
    scratch_count(1);
    rmdir(scratch_folder);
}

static inline const char *scratch_write(const char *name, const void *bytes, size_t size)
{
    const char *path = scratch_path(name);
    FILE *stream = fopen(path, "wb");
    cr_assert_not_null(stream);
    cr_assert_eq(fwrite(bytes, 1, size, stream), size);
    cr_assert_eq(fclose(stream), 0);
    return path;
}

/* A safetensors file: the length of `header`, the header, data_bytes of `data`. */
static inline const char *scratch_safetensors(const char *name, const char *header,
                                              const void *data, size_t data_bytes)
{
    const size_t length = strlen(header);
    unsigned char *bytes = malloc(8 + length + data_bytes);
    cr_assert_not_null(bytes);
    for (size_t i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(length >> (8 * i));
    }
    memcpy(bytes + 8, header, length);
    if (data_bytes > 0) {
        memcpy(bytes + 8 + length, data, data_bytes);
    }
    const char *path = scratch_write(name, bytes, 8 + length + data_bytes);
    free(bytes);
    return path;
}

/* An allocator that counts, and fails when told to. */
typedef struct scratch_allocator {
    uint64_t calls;
    uint64_t failing_call; /* 0: none */
    uint64_t live;
    uint64_t total_bytes;
} scratch_allocator;

static inline void *scratch_allocate(void *user, size_t bytes)
{
    scratch_allocator *allocator = user;
    allocator->calls++;
    if (allocator->calls == allocator->failing_call) {
        return NULL;
    }
    void *memory = malloc(bytes);
    cr_assert_not_null(memory);
    memset(memory, 0xa5, bytes);
    allocator->live++;
    allocator->total_bytes += bytes;
    return memory;
}

static inline void scratch_release(void *user, void *memory)
{
    scratch_allocator *allocator = user;
    allocator->live--;
    free(memory);
}

static inline vkmha_host scratch_host_of(scratch_allocator *allocator)
{
    return (vkmha_host){
        .user = allocator, .allocate = scratch_allocate, .release = scratch_release};
}

static inline vkmha_file *scratch_open_good(const char *path)
{
    vkmha_file *file = NULL;
    vkmha_error error;
    const vkmha_status status = vkmha_file_open(path, NULL, &file, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    cr_assert_not_null(file);
    return file;
}

/* Asks for a refusal whose one line holds the file's name and `reason`, before anything large is
 * allocated. */
static inline void scratch_refuse(const char *path, const char *reason)
{
    scratch_allocator allocator = {0};
    const vkmha_host host = scratch_host_of(&allocator);
    vkmha_file *file = (vkmha_file *)&allocator;
    vkmha_error error;
    cr_expect_eq(vkmha_file_open(path, &host, &file, &error), VKMHA_ERROR_FILE, "%s", path);
    cr_expect_eq(error.status, VKMHA_ERROR_FILE);
    cr_expect_null(file);
    cr_expect_not_null(strstr(error.message, strrchr(path, '/') + 1), "%s", error.message);
    cr_expect_not_null(strstr(error.message, reason), "\"%s\" is not in: %s", reason,
                       error.message);
    cr_expect_null(strpbrk(error.message, "\n\r\x1b"), "%s", error.message);
    cr_expect_eq(allocator.live, 0, "%s leaks", path);
    cr_expect_lt(allocator.total_bytes, 4096, "%s: %" PRIu64 " bytes", path, allocator.total_bytes);
    cr_expect_eq(vkmha_file_open(path, NULL, &file, NULL), VKMHA_ERROR_FILE);
}

#endif
