/* Problems with types of storage of their own: data, runs into canaries, and the reference. */
#ifndef VKMHA_TESTS_TYPED_H
#define VKMHA_TESTS_TYPED_H

#include "made.h"
#include "runtime/convert.h"
#include "runtime/params.h"

/* What gaps between elements hold, in each half of a word; no kernel writes such a NaN. */
enum { VKMHA_TEST_CANARY = 0x7fbe };

static inline void *vkmha_test_canaries(uint64_t count, vkmha_type type)
{
    unsigned char *memory = vkmha_test_allocate(count, vkmha_type_bytes(type));
    const uint16_t canary = VKMHA_TEST_CANARY;
    for (uint64_t i = 0; i < count * vkmha_type_bytes(type) / 2; i++) {
        memcpy(memory + 2 * i, &canary, sizeof(canary));
    }
    return memory;
}

static inline bool vkmha_test_is_canary(const void *memory, vkmha_type type, uint64_t index)
{
    const uint16_t canary = VKMHA_TEST_CANARY;
    const uint32_t bytes = vkmha_type_bytes(type);
    return memcmp((const unsigned char *)memory + index * bytes, &canary, 2) == 0;
}

/* Values as a type holds them. */
static inline void *vkmha_test_stored(const float *values, uint64_t count, vkmha_type type)
{
    void *stored = vkmha_test_allocate(count, vkmha_type_bytes(type));
    for (uint64_t i = 0; i < count; i++) {
        vkmha_store_element(stored, type, i, values[i]);
    }
    return stored;
}

static inline float *vkmha_test_loaded(const void *stored, uint64_t count, vkmha_type type)
{
    float *values = vkmha_test_allocate(count, sizeof(float));
    for (uint64_t i = 0; i < count; i++) {
        values[i] = vkmha_load_element(stored, type, i);
    }
    return values;
}

/* `count` random numbers in -1..1, stored. */
static inline void *vkmha_test_drawn(uint64_t count, vkmha_type type, uint64_t stream)
{
    float *values = vkmha_test_values(count, stream);
    void *stored = vkmha_test_stored(values, count, type);
    free(values);
    return stored;
}

#endif
