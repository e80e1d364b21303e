/*
 * What the tests on devices share: the devices and kernel rows present, problems with their data,
 * and the comparison with the reference. A failure names device, kernels, case, element and seed.
 */
#ifndef VKMHA_TESTS_HARNESS_H
#define VKMHA_TESTS_HARNESS_H

#include <vkmha/vkmha_reference.h>

/* A device and the kernel rows to run on it. */
typedef struct vkmha_test_target {
    vkmha_device *device;
    const char *device_name;
    const char *project_kernel;   /* NULL: chosen */
    const char *attention_kernel; /* NULL: chosen */
} vkmha_test_target;

typedef void vkmha_test_body(const vkmha_test_target *target);

/* Each calls `body` on every device present, software too, and names the rows that it skips. */
void vkmha_test_each_device(vkmha_test_body *body);        /* with the chosen kernels */
void vkmha_test_each_project_row(vkmha_test_body *body);   /* with the chosen attention */
void vkmha_test_each_attention_row(vkmha_test_body *body); /* with the chosen projection */
void vkmha_test_each_row(vkmha_test_body *body);  /* every row of both, as few runs as do */
void vkmha_test_each_pair(vkmha_test_body *body); /* every projection with every attention */

/* VKMHA_TEST_SEED, else the clock; one value a process. */
uint64_t vkmha_test_seed(void);

/* The next of a sequence of random numbers, and one as a float in -1..1. */
uint64_t vkmha_test_random(uint64_t *state);
float vkmha_test_random_float(uint64_t *state);

void *vkmha_test_allocate(uint64_t count, size_t element_size); /* zeroed; the test fails without */

/* A layer, a plan and data for both. The pointers own the data that layer and inputs point at. */
typedef struct vkmha_test_problem {
    char name[96];
    vkmha_layer_params layer;
    vkmha_plan_params plan;
    vkmha_inputs inputs;
    float *query;
    float *key;   /* NULL where the query input is read */
    float *value; /* NULL where the key input is read */
    float *additive_mask;
    uint8_t *attend_mask;
    uint8_t *attend_keys;
    int32_t *key_lengths;
    void *weights[4]; /* query, key, value, output */
    void *biases[4];
    uint64_t num_query;
    uint64_t num_key;
    uint64_t num_value;
    uint64_t num_mask;
    uint64_t num_output;
} vkmha_test_problem;

/*
 * Makes random data for the shapes given: inputs in -1..1, weights as their `type` in the layer
 * says, biases, masks that leave most keys, lengths from 0 to key_len.
 */
void vkmha_test_problem_init(vkmha_test_problem *problem, const vkmha_layer_params *layer,
                             const vkmha_plan_params *plan, const char *format, ...);
void vkmha_test_problem_finish(vkmha_test_problem *problem);

/* Sets `count` values to one value, and to integers in -limit..limit. */
void vkmha_test_fill(float *values, uint64_t count, float value);
void vkmha_test_fill_integers(float *values, uint64_t count, int32_t limit);

/* Runs the problem into canaries and returns the output, which the caller frees. */
float *vkmha_test_run(const vkmha_test_target *target, const vkmha_test_problem *problem);

/* Compares an output with the reference, whose bound uses `chains` (NULL: the worst). */
void vkmha_test_compare(const vkmha_test_target *target, const vkmha_test_problem *problem,
                        const vkmha_chains *chains, const float *output);

/* Run and compare. */
void vkmha_test_check(const vkmha_test_target *target, const vkmha_test_problem *problem);

/* Fails unless |got - expected| <= tolerance for every element; 0 asks for the very value. */
void vkmha_test_near(const vkmha_test_target *target, const vkmha_test_problem *problem,
                     const float *got, const float *expected, uint64_t count, double tolerance);

/* Fails unless both hold the same bits. */
void vkmha_test_same_bits(const vkmha_test_target *target, const vkmha_test_problem *problem,
                          const char *what, const float *got, const float *expected,
                          uint64_t count);

#endif
