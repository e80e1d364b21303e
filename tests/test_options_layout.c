/*
 * The same tensors said in other ways, on every attention row of every device: strides, masks of
 * each type, and rotary tables. What is the same says so by its bits.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "made.h"

enum { HEADS = 3, DIM = 8, ROW = HEADS * DIM, BATCH = 2, LEN = 37, OUT = BATCH * LEN * ROW };

static const vkmha_layer_params heads = {
    .num_heads = HEADS, .head_dim = DIM, .attention_only = true};
static const vkmha_plan_params shape = {.batch_size = BATCH, .query_len = LEN, .key_len = LEN};

/* Random inputs of `heads` and `shape`; the caller releases them. */
static void make_inputs(float *tensors[3], vkmha_inputs *inputs)
{
    for (uint32_t i = 0; i < 3; i++) {
        tensors[i] = vkmha_test_values(OUT, i + 1);
    }
    *inputs = (vkmha_inputs){.query = tensors[0], .key = tensors[1], .value = tensors[2]};
}

static void release_inputs(float *tensors[3])
{
    for (uint32_t i = 0; i < 3; i++) {
        free(tensors[i]);
    }
}

/* ---- Strides --------------------------------------------------------------------------------- */

/* Packed QKV in the two usual orders, and with something before and between the rows. */
static void packed_qkv(const vkmha_test_target *target)
{
    float *tensors[3];
    vkmha_inputs inputs;
    make_inputs(tensors, &inputs);
    const vkmha_test_problem apart =
        vkmha_test_problem_of("separate", &heads, &shape, &inputs, OUT);
    float *expected = vkmha_test_run(target, &apart);
    vkmha_test_compare(target, &apart, NULL, expected);

    /* Where tensor t's head h of a row lies: [3, H, D], [H, 3, D], and the first behind 5, with a
     * gap of 7. */
    const struct {
        uint64_t tensor;
        uint64_t head;
        uint64_t row;
        uint64_t offset;
    } orders[] = {{ROW, DIM, 3 * ROW, 0}, {DIM, 3 * DIM, 3 * ROW, 0}, {ROW, DIM, 3 * ROW + 7, 5}};
    for (size_t n = 0; n < sizeof(orders) / sizeof(orders[0]); n++) {
        const uint64_t total = orders[n].offset + BATCH * LEN * orders[n].row;
        float *memory = vkmha_test_allocate(total, sizeof(float));
        vkmha_test_fill(memory, total, NAN);
        vkmha_plan_params plan = shape;
        plan.key_is_query = plan.value_is_key = true;
        vkmha_strides *strides[] = {&plan.query_strides, &plan.key_strides, &plan.value_strides};
        for (uint32_t t = 0; t < 3; t++) {
            *strides[t] = (vkmha_strides){.is_given = true,
                                          .offset = orders[n].offset + t * orders[n].tensor,
                                          .batch = LEN * orders[n].row,
                                          .row = orders[n].row,
                                          .head = orders[n].head};
            for (uint32_t i = 0; i < OUT; i++) {
                memory[strides[t]->offset + i / ROW * orders[n].row +
                       i / DIM % HEADS * orders[n].head + i % DIM] = tensors[t][i];
            }
        }
        const vkmha_inputs packed = {.query = memory};
        const vkmha_test_problem problem =
            vkmha_test_problem_of("packed QKV", &heads, &plan, &packed, OUT);
        float *output = vkmha_test_run(target, &problem);
        vkmha_test_same_bits(target, &problem,
                             n == 0   ? "[3, H, D]"
                             : n == 1 ? "[H, 3, D]"
                                      : "gaps",
                             output, expected, OUT);
        free(output);
        free(memory);
    }
    free(expected);
    release_inputs(tensors);
}

Test(options_layout, packed_query_key_value)
{
    vkmha_test_each_attention_row(packed_qkv);
}

static void output_gaps(const vkmha_test_target *target)
{
    float *tensors[3];
    vkmha_inputs inputs;
    make_inputs(tensors, &inputs);
    const vkmha_test_problem apart =
        vkmha_test_problem_of("contiguous", &heads, &shape, &inputs, OUT);
    float *expected = vkmha_test_run(target, &apart);
    const vkmha_strides all[] = {
        {.is_given = true, .offset = 3, .batch = LEN * 41 + 11, .row = 41, .head = 13},
        {.is_given = true, .offset = 4, .batch = LEN * 44 + 8, .row = 44, .head = 12},
        {.is_given = true, .offset = 1, .batch = DIM, .row = HEADS * 20, .head = 20},
    };
    for (size_t n = 0; n < sizeof(all) / sizeof(all[0]); n++) {
        vkmha_plan_params plan = shape;
        plan.output_strides = all[n];
        enum { ROOM = 6000 };
        float *memory = vkmha_test_allocate(ROOM, sizeof(float));
        bool *is_element = vkmha_test_allocate(ROOM, sizeof(bool));
        vkmha_test_fill(memory, ROOM, -77.0f);
        vkmha_test_made made = vkmha_test_make(target, &heads, &plan);
        vkmha_test_made_run(&made, &inputs, memory);
        vkmha_test_unmake(&made);
        for (uint32_t i = 0; i < OUT; i++) {
            const uint64_t at = all[n].offset + i / (LEN * ROW) * all[n].batch +
                                i / ROW % LEN * all[n].row + i / DIM % HEADS * all[n].head +
                                i % DIM;
            cr_assert(at < ROOM);
            is_element[at] = true;
            vkmha_test_same_bits(target, &apart, "strides of the output", &memory[at], &expected[i],
                                 1);
        }
        for (uint32_t i = 0; i < ROOM; i++) {
            cr_assert(is_element[i] || memory[i] == -77.0f, "%s: strides %zu: gap %u is %g",
                      target->attention_kernel, n, i, (double)memory[i]);
        }
        free(is_element);
        free(memory);
    }
    free(expected);
    release_inputs(tensors);
}

Test(options_layout, gaps_of_the_output_stay)
{
    vkmha_test_each_attention_row(output_gaps);
}

/* The same of a whole layer: rows of inputs and outputs lie apart. */
static void layer_gaps(const vkmha_test_target *target)
{
    enum { PITCH = ROW + 5, ROOM = 2 + BATCH * LEN * PITCH };
    const vkmha_layer_params layer = {.num_heads = HEADS, .head_dim = DIM, .embed_dim = ROW};
    vkmha_plan_params plan = shape;
    plan.key_is_query = plan.value_is_key = true;
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "a layer with gaps");
    float *expected = vkmha_test_run(target, &problem);
    const vkmha_strides strides = {
        .is_given = true, .offset = 2, .batch = LEN * PITCH, .row = PITCH};
    float *input = vkmha_test_allocate(ROOM, sizeof(float));
    float *output = vkmha_test_allocate(ROOM, sizeof(float));
    vkmha_test_fill(input, ROOM, NAN);
    vkmha_test_fill(output, ROOM, -77.0f);
    for (uint32_t i = 0; i < OUT; i++) {
        input[2 + i / ROW * PITCH + i % ROW] = problem.query[i];
    }
    plan.query_strides = plan.key_strides = plan.value_strides = plan.output_strides = strides;
    vkmha_test_made made = vkmha_test_make(target, &problem.layer, &plan);
    const vkmha_inputs inputs = {.query = input};
    vkmha_test_made_run(&made, &inputs, output);
    vkmha_test_unmake(&made);
    for (uint32_t i = 0; i < ROOM; i++) {
        const bool is_gap = i < 2 || (i - 2) % PITCH >= ROW;
        const float want = is_gap ? -77.0f : expected[(i - 2) / PITCH * ROW + (i - 2) % PITCH];
        vkmha_test_same_bits(target, &problem, is_gap ? "a gap" : "an element", &output[i], &want,
                             1);
    }
    free(input);
    free(output);
    free(expected);
    vkmha_test_problem_finish(&problem);
}

Test(options_layout, layers_with_gaps)
{
    vkmha_test_each_row(layer_gaps);
}

/* ---- Masks ----------------------------------------------------------------------------------- */

enum { KEYS = 75 };

/* The plan's mask and another of another type that says the same: both right, by the same bits. */
static void compare_masks(const vkmha_test_target *target, const vkmha_plan_params *plan,
                          const vkmha_inputs *inputs, const char *name, vkmha_mask_type other_type,
                          const void *other_mask, const char *other_name)
{
    vkmha_plan_params other_plan = *plan;
    vkmha_inputs other_inputs = *inputs;
    other_plan.mask = other_type;
    other_inputs.mask = other_mask;
    const vkmha_test_problem problem = vkmha_test_problem_of(name, &heads, plan, inputs, OUT);
    const vkmha_test_problem other =
        vkmha_test_problem_of(other_name, &heads, &other_plan, &other_inputs, OUT);
    float *expected = vkmha_test_run(target, &problem);
    vkmha_test_compare(target, &problem, NULL, expected);
    float *output = vkmha_test_run(target, &other);
    vkmha_test_compare(target, &other, NULL, output);
    vkmha_test_same_bits(target, &other, name, output, expected, OUT);
    free(output);
    free(expected);
}

static void mask_bits(const vkmha_test_target *target)
{
    enum { WORDS = (KEYS + 31) / 32 };
    const uint64_t all_dims[][4] = {
        {BATCH, HEADS, LEN, KEYS}, {1, HEADS, 1, KEYS}, {BATCH, 1, LEN, 1}, {1, 1, LEN, KEYS}};
    float *key = vkmha_test_values(BATCH * KEYS * ROW, 4);
    float *value = vkmha_test_values(BATCH * KEYS * ROW, 5);
    float *query = vkmha_test_values(OUT, 6);
    for (size_t n = 0; n < sizeof(all_dims) / sizeof(all_dims[0]); n++) {
        vkmha_plan_params plan = shape;
        plan.key_len = KEYS;
        plan.mask = VKMHA_MASK_ATTEND;
        memcpy(plan.mask_dims, all_dims[n], sizeof(plan.mask_dims));
        const uint64_t columns = all_dims[n][3];
        const uint64_t rows = all_dims[n][0] * all_dims[n][1] * all_dims[n][2];
        const uint64_t words = (columns + 31) / 32;
        uint8_t *bytes = vkmha_test_allocate(rows * columns, 1);
        uint32_t *bits = vkmha_test_allocate(rows * WORDS, sizeof(uint32_t));
        uint64_t state = vkmha_test_seed();
        for (uint64_t i = 0; i < rows * columns; i++) {
            bytes[i] = vkmha_test_random(&state) % 3 == 0 ? 0 : (uint8_t)(1 + i % 255);
        }
        for (uint64_t row = 0; row < rows; row++) {
            for (uint64_t j = 0; j < words * 32; j++) {
                /* Bits behind the last key are set: nobody reads them. */
                const bool attends = j >= columns || bytes[row * columns + j] != 0;
                bits[row * words + j / 32] |= attends ? 1u << j % 32 : 0;
            }
        }
        const vkmha_inputs inputs = {.query = query, .key = key, .value = value, .mask = bytes};
        compare_masks(target, &plan, &inputs, "mask of bytes", VKMHA_MASK_ATTEND_BITS, bits,
                      "mask of bits");
        free(bytes);
        free(bits);
    }
    free(query);
    free(key);
    free(value);
}

Test(options_layout, mask_of_bits_is_mask_of_bytes)
{
    vkmha_test_each_attention_row(mask_bits);
}

/* The fp32 value of an fp16 that is not Inf or NaN, by its definition. */
static float half_value(uint16_t half)
{
    const int32_t exponent = half >> 10 & 31;
    const float mantissa = (float)(half & 1023);
    const float magnitude =
        exponent == 0 ? ldexpf(mantissa, -24) : ldexpf(1024.0f + mantissa, exponent - 25);
    return half >> 15 ? -magnitude : magnitude;
}

static void mask_halves(const vkmha_test_target *target)
{
    const uint64_t all_dims[][4] = {
        {BATCH, HEADS, LEN, KEYS}, {1, HEADS, 1, KEYS}, {BATCH, 1, LEN, 1}};
    float *key = vkmha_test_values(BATCH * KEYS * ROW, 4);
    float *value = vkmha_test_values(BATCH * KEYS * ROW, 5);
    float *query = vkmha_test_values(OUT, 6);
    for (size_t n = 0; n < sizeof(all_dims) / sizeof(all_dims[0]); n++) {
        vkmha_plan_params plan = shape;
        plan.key_len = KEYS;
        plan.mask = VKMHA_MASK_ADDITIVE;
        memcpy(plan.mask_dims, all_dims[n], sizeof(plan.mask_dims));
        const uint64_t count = all_dims[n][0] * all_dims[n][1] * all_dims[n][2] * all_dims[n][3];
        float *floats = vkmha_test_allocate(count, sizeof(float));
        uint16_t *halves = vkmha_test_allocate(count, sizeof(uint16_t));
        uint64_t state = vkmha_test_seed();
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t random = vkmha_test_random(&state);
            /* Of magnitudes below 8, normal ones, those at the ends of the type, and -Inf. */
            halves[i] = (uint16_t)((random >> 20 & 0x8000) | (random % 0x4800));
            halves[i] = halves[i] < 0x8400 && halves[i] >= 0x8000 ? 0x8400 : halves[i];
            halves[i] = halves[i] < 0x0400 ? 0 : halves[i];
            halves[i] = i % 5 == 3 ? 0xfc00 : i % 91 == 7 ? 0xfbff : halves[i];
            floats[i] = halves[i] == 0xfc00 ? -INFINITY : half_value(halves[i]);
        }
        const vkmha_inputs inputs = {.query = query, .key = key, .value = value, .mask = floats};
        compare_masks(target, &plan, &inputs, "mask of fp32", VKMHA_MASK_ADDITIVE_F16, halves,
                      "mask of fp16");
        free(floats);
        free(halves);
    }
    free(query);
    free(key);
    free(value);
}

Test(options_layout, mask_of_fp16_is_mask_of_fp32)
{
    vkmha_test_each_attention_row(mask_halves);
}

/* ---- Rotary tables --------------------------------------------------------------------------- */

static void tables(const vkmha_test_target *target)
{
    enum { POSITIONS = 50, TURNED = 6, PAIRS = TURNED / 2 };
    float cosines[POSITIONS * PAIRS];
    float sines[POSITIONS * PAIRS];
    for (uint32_t p = 0; p < POSITIONS; p++) {
        for (uint32_t k = 0; k < PAIRS; k++) {
            const double angle = p * pow(5000.0, -2.0 * k / TURNED);
            cosines[p * PAIRS + k] = (float)cos(angle);
            sines[p * PAIRS + k] = (float)sin(angle);
        }
    }
    for (int32_t style = VKMHA_ROPE_HALF; style <= VKMHA_ROPE_INTERLEAVED; style++) {
        const vkmha_layer_params layer = {
            .num_heads = HEADS,
            .head_dim = DIM,
            .embed_dim = ROW,
            .rope = {.style = (vkmha_rope_style)style,
                     .dim = TURNED,
                     .max_positions = POSITIONS,
                     .base = 5000.0f},
        };
        vkmha_plan_params plan = shape;
        plan.key_is_query = plan.value_is_key = true;
        vkmha_test_problem problem;
        vkmha_test_problem_init(&problem, &layer, &plan, "rotary table, style %d", (int)style);
        float *by_base = vkmha_test_run(target, &problem);
        vkmha_test_compare(target, &problem, NULL, by_base);
        problem.layer.rope.base = 0.0f;
        problem.layer.rope.cos = cosines;
        problem.layer.rope.sin = sines;
        float *by_table = vkmha_test_run(target, &problem);
        vkmha_test_same_bits(target, &problem, "a table given", by_table, by_base, OUT);
        free(by_table);

        /* A table of other angles is another layer. */
        problem.layer.rope.base = 5001.0f;
        problem.layer.rope.cos = problem.layer.rope.sin = NULL;
        float *other = vkmha_test_run(target, &problem);
        cr_assert(memcmp(other, by_base, OUT * sizeof(float)) != 0);
        free(other);
        free(by_base);
        vkmha_test_problem_finish(&problem);
    }
}

Test(options_layout, rotary_table_is_its_base)
{
    vkmha_test_each_row(tables);
}
