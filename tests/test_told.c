/*
 * Further proofs of what is told besides the output: F16 by its numbers, heads of gate 0, packed
 * sequences, heads' contributions and the gradients of their gates, memory.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "made.h"
#include "runtime/device.h"
#include "shaders/interface.h"

static void run(const vkmha_test_made *made, const vkmha_inputs *inputs,
                const vkmha_outputs *outputs)
{
    vkmha_error error;
    cr_assert(vkmha_run(made->plan, inputs, outputs, &error) == VKMHA_OK, "%s", error.message);
}

static void near(const vkmha_test_target *target, const char *what, uint64_t i, double got,
                 double expected, double tolerance)
{
    cr_assert(fabs(got - expected) <= tolerance, "%s, %s: %s[%llu] is %.9g, expected %.9g within %g",
              target->device_name, target->attention_kernel ? target->attention_kernel : "chosen",
              what, (unsigned long long)i, got, expected, tolerance);
}

/* ---- F16 ------------------------------------------------------------------------------------- */

static void masked_weights(const vkmha_test_target *target)
{
    static const uint8_t allowed[9] = {1, 1, 1, 0, 0, 0, 1, 0, 1};
    static const double expected[18] = {0.85313,  0.121949, 0.024921, 0.0,      0.0, 0.0,
                                        0.016882, 0.0,      0.983118, 0.959609, 0.019722, 0.020669,
                                        0.0,      0.0,      0.0,      0.022759, 0.0, 0.977241};
    static const double mean[9] = {0.906369, 0.070836, 0.022795, 0.0, 0.0,
                                   0.0,      0.019821, 0.0,      0.980179};
    float query[24];
    float key[24];
    float value[24];
    vkmha_test_generate(query, 24, 1, 4.0f);
    vkmha_test_generate(key, 24, 2, 1.0f);
    vkmha_test_generate(value, 24, 3, 1.0f);
    const vkmha_layer_params layer = {.num_heads = 2, .head_dim = 4, .attention_only = true};
    const vkmha_plan_params plain = {.batch_size = 1,
                                     .query_len = 3,
                                     .key_len = 3,
                                     .mask = VKMHA_MASK_ATTEND,
                                     .mask_dims = {1, 1, 3, 3}};
    vkmha_plan_params asked = plain;
    asked.has_weights = true;
    asked.has_mean_weights = true;
    const vkmha_inputs inputs = {.query = query, .key = key, .value = value, .mask = allowed};
    float outputs[2][24];
    float weights[18];
    float means[9];
    vkmha_test_made made = vkmha_test_make(target, &layer, &asked);
    run(&made, &inputs,
        &(vkmha_outputs){.output = outputs[0], .weights = weights, .mean_weights = means});
    vkmha_test_made bare = vkmha_test_plan_of(target, made.layer, &layer, &plain);
    vkmha_test_made_run(&bare, &inputs, outputs[1]);
    for (uint32_t i = 0; i < 18; i++) {
        near(target, "weights", i, (double)weights[i], expected[i], 1e-5);
    }
    for (uint32_t i = 0; i < 9; i++) {
        near(target, "mean_weights", i, (double)means[i], mean[i], 1e-5);
    }
    for (uint32_t row = 0; row < 6; row++) {
        const double sum = (double)weights[3 * row] + (double)weights[3 * row + 1] +
                           (double)weights[3 * row + 2];
        near(target, "sum of weights", row, sum, row % 3 == 1 ? 0.0 : 1.0, 1e-6);
    }
    cr_assert(memcmp(outputs[0], outputs[1], sizeof(outputs[0])) == 0);
    vkmha_plan_destroy(bare.plan);
    vkmha_test_unmake(&made);
}

Test(told, F16_weights_are_masked_as_the_output_is)
{
    vkmha_test_each_attention_row(masked_weights);
}

/* ---- Gates, packed sequences ----------------------------------------------------------------- */

enum { HEADS = 3, DIM = 8, ROW = HEADS * DIM, QUERIES = 13 };

/* Weights are those before gates, whatever the gate; a head of gate 0 adds nothing to the output. */
static void gated(const vkmha_test_target *target)
{
    static const float gates[HEADS] = {0.5f, 0.0f, 1.0f};
    const vkmha_layer_params layer = {.num_heads = HEADS, .head_dim = DIM, .attention_only = true};
    vkmha_plan_params plan = {.batch_size = 1,
                              .query_len = QUERIES,
                              .key_len = QUERIES,
                              .has_weights = true,
                              .has_lse = true};
    float *query = vkmha_test_values(QUERIES * ROW, 1);
    float *key = vkmha_test_values(QUERIES * ROW, 2);
    float *value = vkmha_test_values(QUERIES * ROW, 3);
    float output[QUERIES * ROW];
    float weights[2][HEADS * QUERIES * QUERIES];
    float lse[2][HEADS * QUERIES];
    vkmha_inputs inputs = {.query = query, .key = key, .value = value};
    vkmha_test_made open = vkmha_test_make(target, &layer, &plan);
    run(&open, &inputs,
        &(vkmha_outputs){.output = output, .weights = weights[0], .lse = lse[0]});
    plan.has_head_gates = true;
    inputs.head_gates = gates;
    vkmha_test_made closed = vkmha_test_plan_of(target, open.layer, &layer, &plan);
    run(&closed, &inputs,
        &(vkmha_outputs){.output = output, .weights = weights[1], .lse = lse[1]});
    cr_assert(memcmp(weights[0], weights[1], sizeof(weights[0])) == 0);
    cr_assert(memcmp(lse[0], lse[1], sizeof(lse[0])) == 0);
    for (uint32_t i = 0; i < QUERIES * DIM; i++) {
        const float zero = output[i / DIM * ROW + DIM + i % DIM];
        cr_assert(zero == 0.0f, "%s: a head of gate 0 gives %.9g", target->device_name,
                  (double)zero);
    }
    /* Scores alone, which need nothing of what rows leave. */
    plan.has_weights = false;
    plan.has_lse = false;
    plan.scores = VKMHA_SCORES_MASKED;
    for (uint32_t n = 0; n < 2; n++) {
        plan.has_head_gates = n == 1;
        inputs.head_gates = n == 1 ? gates : NULL;
        vkmha_test_made scored = vkmha_test_plan_of(target, open.layer, &layer, &plan);
        run(&scored, &inputs, &(vkmha_outputs){.output = output, .scores = weights[n]});
        vkmha_plan_destroy(scored.plan);
    }
    cr_assert(memcmp(weights[0], weights[1], sizeof(weights[0])) == 0);
    vkmha_plan_destroy(closed.plan);
    vkmha_test_unmake(&open);
    free(query);
    free(key);
    free(value);
}

Test(told, gates_change_no_weight)
{
    vkmha_test_each_attention_row(gated);
}

/* What is told of packed sequences has the bits of the same sequences padded; rows that a sequence
 * does not have are those of queries without keys. */
static void packed(const vkmha_test_target *target)
{
    enum { BATCH = 3, LONGEST = 9, TOTAL = 14 };
    static const int32_t ends[BATCH + 1] = {0, 9, 9, TOTAL};
    const vkmha_layer_params layer = {.num_heads = HEADS, .head_dim = DIM, .attention_only = true};
    float *query = vkmha_test_values(TOTAL * ROW, 1);
    float *key = vkmha_test_values(TOTAL * ROW, 2);
    float *value = vkmha_test_values(TOTAL * ROW, 3);
    float padded_tensors[3][BATCH * LONGEST * ROW] = {{0.0f}};
    const float *tensors[3] = {query, key, value};
    int32_t lengths[BATCH];
    for (uint32_t b = 0; b < BATCH; b++) {
        lengths[b] = ends[b + 1] - ends[b];
        for (uint32_t t = 0; t < 3; t++) {
            memcpy(padded_tensors[t] + b * LONGEST * ROW, tensors[t] + ends[b] * ROW,
                   (size_t)lengths[b] * ROW * sizeof(float));
        }
    }
    vkmha_plan_params plan = {.batch_size = BATCH,
                              .query_len = LONGEST,
                              .key_len = LONGEST,
                              .has_key_lengths = true,
                              .has_lse = true,
                              .has_weights = true,
                              .has_statistics = true,
                              .has_key_mass = true};
    float output[BATCH * LONGEST * ROW];
    static float lse[2][BATCH * HEADS * LONGEST];
    static float weights[2][BATCH * HEADS * LONGEST * LONGEST];
    static vkmha_statistics statistics[2][BATCH * HEADS * LONGEST];
    static float mass[2][BATCH * HEADS * LONGEST];
    vkmha_test_made made = vkmha_test_make(target, &layer, &plan);
    for (uint32_t n = 0; n < 2; n++) {
        vkmha_inputs inputs = {.query = padded_tensors[0],
                               .key = padded_tensors[1],
                               .value = padded_tensors[2],
                               .key_lengths = lengths};
        if (n == 1) {
            plan.has_key_lengths = false;
            plan.is_packed = true;
            plan.total_queries = TOTAL;
            plan.total_keys = TOTAL;
            inputs = (vkmha_inputs){.query = query,
                                    .key = key,
                                    .value = value,
                                    .cu_query_lens = ends,
                                    .cu_key_lens = ends};
        }
        vkmha_test_made each = vkmha_test_plan_of(target, made.layer, &layer, &plan);
        run(&each, &inputs,
            &(vkmha_outputs){.output = output,
                             .lse = lse[n],
                             .weights = weights[n],
                             .statistics = statistics[n],
                             .key_mass = mass[n]});
        vkmha_plan_destroy(each.plan);
    }
    for (uint32_t row = 0; row < BATCH * HEADS * LONGEST; row++) {
        const uint32_t i = row % LONGEST;
        const bool is_there = i < (uint32_t)lengths[row / LONGEST / HEADS];
        const vkmha_statistics none = {0};
        const float *told = weights[1] + row * LONGEST;
        static const float no_weights[LONGEST];
        const vkmha_statistics *expected = is_there ? &statistics[0][row] : &none;
        cr_assert(is_there ? lse[1][row] == lse[0][row] : isinf(lse[1][row]) && lse[1][row] < 0.0f,
                  "%s: lse of row %u", target->device_name, row);
        cr_assert(memcmp(told, is_there ? weights[0] + row * LONGEST : no_weights,
                         sizeof(no_weights)) == 0,
                  "%s: weights of row %u", target->device_name, row);
        cr_assert(memcmp(&statistics[1][row], expected, sizeof(none)) == 0,
                  "%s: statistics of row %u", target->device_name, row);
    }
    vkmha_test_unmake(&made);
    free(query);
    free(key);
    free(value);
}

Test(told, packed_sequences_are_told_of_as_padded_ones)
{
    vkmha_test_each_attention_row(packed);
}

/* ---- Contributions --------------------------------------------------------------------------- */

/*
 * Norms of o_h W_O^h, and gradients of the gates, against sums of the device's own attention; and
 * for L = <c, y> the gradient is the difference of L with and without the head.
 */
static void contributions(const vkmha_test_target *target)
{
    enum { BATCH = 2, EMBED = 24, OUT = 37 };
    const vkmha_layer_params shape = {.num_heads = HEADS,
                                      .head_dim = DIM,
                                      .v_head_dim = 7,
                                      .embed_dim = EMBED,
                                      .output_dim = OUT};
    const uint32_t features = 7;
    vkmha_plan_params plan = {.batch_size = BATCH,
                              .query_len = QUERIES,
                              .key_len = QUERIES,
                              .key_is_query = true,
                              .value_is_key = true};
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &shape, &plan, "contributions");
    float *gradient = vkmha_test_values(BATCH * QUERIES * OUT, 4);
    float output[BATCH * QUERIES * OUT];
    float attention[BATCH * QUERIES * HEADS * 7];
    float norms[BATCH * HEADS * QUERIES];
    float products[BATCH * HEADS * QUERIES];
    plan.has_contributions = true;
    plan.has_gate_gradients = true;
    vkmha_test_made made = vkmha_test_make(target, &problem.layer, &plan);
    vkmha_inputs inputs = problem.inputs;
    inputs.output_gradient = gradient;
    run(&made, &inputs,
        &(vkmha_outputs){.output = output,
                         .attention = attention,
                         .contributions = norms,
                         .gate_gradients = products});
    double gate_gradients[HEADS] = {0.0};
    double sizes[HEADS] = {0.0};
    for (uint32_t at = 0; at < BATCH * HEADS * QUERIES; at++) {
        const uint32_t h = at / QUERIES % HEADS;
        const uint32_t row = at / (QUERIES * HEADS) * QUERIES + at % QUERIES;
        double squares = 0.0;
        double product = 0.0;
        double size = 0.0;
        for (uint32_t n = 0; n < OUT; n++) {
            double added = 0.0;
            for (uint32_t d = 0; d < features; d++) {
                const float *weights = problem.layer.w_o.data;
                added += (double)attention[(row * HEADS + h) * features + d] *
                         (double)weights[n * HEADS * features + h * features + d];
            }
            squares += added * added;
            product += added * (double)gradient[row * OUT + n];
            size += fabs(added * (double)gradient[row * OUT + n]);
        }
        near(target, "contributions", at, (double)norms[at], sqrt(squares), 4e-6 * sqrt(squares));
        near(target, "gate_gradients", at, (double)products[at], product, 4e-6 * size);
        gate_gradients[h] += (double)products[at];
        sizes[h] += size;
    }

    /* Without one head at a time. */
    for (uint32_t h = 0; h < HEADS; h++) {
        float gates[HEADS] = {1.0f, 1.0f, 1.0f};
        float without[BATCH * QUERIES * OUT];
        vkmha_plan_params removed = problem.plan;
        removed.has_head_gates = true;
        gates[h] = 0.0f;
        vkmha_inputs gated_inputs = problem.inputs;
        gated_inputs.head_gates = gates;
        vkmha_test_made less = vkmha_test_plan_of(target, made.layer, &problem.layer, &removed);
        vkmha_test_made_run(&less, &gated_inputs, without);
        double difference = 0.0;
        double size = 0.0;
        for (uint32_t i = 0; i < BATCH * QUERIES * OUT; i++) {
            difference += (double)gradient[i] * ((double)output[i] - (double)without[i]);
            size += fabs((double)gradient[i]) * (fabs((double)output[i]) + fabs((double)without[i]));
        }
        near(target, "leave-one-out", h, gate_gradients[h], difference, 1e-6 * (size + sizes[h]));
        vkmha_plan_destroy(less.plan);
    }
    vkmha_test_unmake(&made);
    free(gradient);
    vkmha_test_problem_finish(&problem);
}

Test(told, contributions_and_gate_gradients)
{
    vkmha_test_each_device(contributions);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static struct {
    PFN_vkAllocateMemory allocate;
    PFN_vkFreeMemory release;
    uint64_t sizes[64];
    VkDeviceMemory memory[64];
    uint64_t now;
    uint64_t peak;
} counted;

static VKAPI_ATTR VkResult VKAPI_CALL count_allocate(VkDevice device,
                                                     const VkMemoryAllocateInfo *info,
                                                     const VkAllocationCallbacks *callbacks,
                                                     VkDeviceMemory *memory)
{
    const VkResult result = counted.allocate(device, info, callbacks, memory);
    for (uint32_t i = 0; result == VK_SUCCESS && i < 64; i++) {
        if (counted.sizes[i] == 0) {
            counted.sizes[i] = info->allocationSize;
            counted.memory[i] = *memory;
            counted.now += info->allocationSize;
            counted.peak = counted.now > counted.peak ? counted.now : counted.peak;
            break;
        }
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL count_release(VkDevice device, VkDeviceMemory memory,
                                                const VkAllocationCallbacks *callbacks)
{
    for (uint32_t i = 0; memory != VK_NULL_HANDLE && i < 64; i++) {
        if (counted.sizes[i] != 0 && counted.memory[i] == memory) {
            counted.now -= counted.sizes[i];
            counted.sizes[i] = 0;
            break;
        }
    }
    counted.release(device, memory, callbacks);
}

/* Device memory at its most while two heads of twelve are asked for, over that of a run which asks
 * for none: two heads' weights, and what rows leave. */
static void two_heads(const vkmha_test_target *target)
{
    enum { LENGTH = 4096, TWELVE = 12, NARROW = 4 };
    static const uint32_t chosen[2] = {3, 7};
    const vkmha_layer_params layer = {
        .num_heads = TWELVE, .head_dim = NARROW, .attention_only = true};
    vkmha_plan_params plan = {.batch_size = 1,
                              .query_len = LENGTH,
                              .key_len = LENGTH,
                              .key_is_query = true,
                              .value_is_key = true};
    const uint64_t two = (uint64_t)2 * LENGTH * LENGTH;
    float *query = vkmha_test_values((uint64_t)LENGTH * TWELVE * NARROW, 1);
    float *output = vkmha_test_allocate((uint64_t)LENGTH * TWELVE * NARROW, sizeof(float));
    float *weights = vkmha_test_allocate(two, sizeof(float));
    const vkmha_inputs inputs = {.query = query};
    uint64_t peaks[2];
    vkmha_device *device = target->device;
    counted.allocate = device->vk.AllocateMemory;
    counted.release = device->vk.FreeMemory;
    device->vk.AllocateMemory = count_allocate;
    device->vk.FreeMemory = count_release;
    vkmha_test_made made = vkmha_test_make(target, &layer, &plan);
    for (uint32_t n = 0; n < 2; n++) {
        plan.has_weights = n == 1;
        plan.chosen_heads = n == 1 ? chosen : NULL;
        plan.num_chosen_heads = n == 1 ? 2 : 0;
        vkmha_test_made each = vkmha_test_plan_of(target, made.layer, &layer, &plan);
        counted.peak = counted.now;
        run(&each, &inputs,
            &(vkmha_outputs){.output = output, .weights = n == 1 ? weights : NULL});
        peaks[n] = counted.peak;
        vkmha_plan_destroy(each.plan);
    }
    vkmha_test_unmake(&made);
    device->vk.AllocateMemory = counted.allocate;
    device->vk.FreeMemory = counted.release;
    const uint64_t rows = (uint64_t)LENGTH * TWELVE * VKMHA_TOLD_FLOATS * 4;
    const bool is_once = peaks[1] - peaks[0] <= two * 4 + rows + 65536;
    /* Where the host reads device memory badly, what comes back is there twice for a moment. */
    const bool is_twice = peaks[1] - peaks[0] <= 2 * two * 4 + rows + 65536;
    cr_assert(device->info.limits.device_type == VKMHA_DEVICE_SOFTWARE ? is_once : is_twice,
              "%s: %llu bytes more than without weights, two heads' are %llu", target->device_name,
              (unsigned long long)(peaks[1] - peaks[0]), (unsigned long long)(two * 4));
    for (uint32_t row = 0; row < 2 * LENGTH; row += 1021) {
        double sum = 0.0;
        for (uint32_t j = 0; j < LENGTH; j++) {
            sum += (double)weights[(uint64_t)row * LENGTH + j];
        }
        near(target, "sum of weights", row, sum, 1.0, 1e-5);
    }
    free(query);
    free(output);
    free(weights);
}

Test(told, two_heads_take_the_memory_of_two_heads)
{
    vkmha_test_each_device(two_heads);
}
