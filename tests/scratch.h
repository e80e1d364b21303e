/* A folder of files for one test, gone after it. */
#ifndef VKMHA_TESTS_SCRATCH_H
#define VKMHA_TESTS_SCRATCH_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <unistd.h>

#include <criterion/criterion.h>

static char scratch_folder[64];

static inline void scratch_create(void)
{
    strcpy(scratch_folder, "/tmp/vkmha_test_XXXXXX");
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

#endif
