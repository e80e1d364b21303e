/*
 * Numbers of 16 bits: every pattern of fp16 and bf16, on the host and through each way that kernels
 * have to read and to store one.
 */
#include "typed.h"

#include <math.h>

enum { PATTERNS = 65536 };

static const vkmha_type shorts[] = {VKMHA_TYPE_F16, VKMHA_TYPE_BF16};

/* What a pattern means, by the definition of the types. */
static double decode(vkmha_type type, uint32_t pattern)
{
    const int digits = type == VKMHA_TYPE_F16 ? 10 : 7;
    const int special = type == VKMHA_TYPE_F16 ? 31 : 255;
    const int bias = special / 2;
    const int exponent = (int)(pattern >> digits) & special;
    const double fraction = ldexp((double)(pattern & ((1u << digits) - 1)), -digits);
    double value = exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1.0 + fraction, exponent - bias);
    if (exponent == special) {
        value = fraction == 0.0 ? INFINITY : NAN;
    }
    return (pattern & 0x8000u) != 0 ? -value : value;
}

static uint32_t load_pattern(const void *data, uint64_t index)
{
    uint16_t pattern;
    memcpy(&pattern, (const char *)data + 2 * index, sizeof(pattern));
    return pattern;
}

/* NaN is one value, whatever its bits. */
static bool is_same(double a, double b)
{
    return isnan(a) ? (bool)isnan(b) : a == b && signbit(a) == signbit(b);
}

static void *all_patterns(void)
{
    uint16_t *patterns = vkmha_test_allocate(PATTERNS, sizeof(*patterns));
    for (uint32_t p = 0; p < PATTERNS; p++) {
        patterns[p] = (uint16_t)p;
    }
    return patterns;
}

/*
 * fp32 numbers that tell how a type rounds, four to each pattern: its own, the one halfway to the next
 * larger, and those just before and behind it.
 */
enum { PROBES = 4 };
static float *draw_probes(vkmha_type type)
{
    float *probes = vkmha_test_allocate(PROBES * PATTERNS, sizeof(float));
    for (uint32_t p = 0; p < PATTERNS; p++) {
        const double value = decode(type, p);
        double next = decode(type, p + 1 < PATTERNS ? p + 1 : p);
        if (isinf(next) && isfinite(value)) {
            /* What would come next if exponents went on. */
            next = 2.0 * value - decode(type, p - 1);
        }
        const float halfway = (float)(value / 2.0 + next / 2.0);
        probes[PROBES * p] = (float)value;
        probes[PROBES * p + 1] = isfinite(value) ? halfway : (float)value;
        probes[PROBES * p + 2] = isfinite(value) ? nextafterf(halfway, (float)value) : (float)value;
        probes[PROBES * p + 3] =
            isfinite(value) ? nextafterf(halfway, copysignf(INFINITY, halfway)) : (float)value;
    }
    return probes;
}

/* The pattern that probe number n of pattern p rounds to. */
static uint32_t rounded_probe(uint32_t p, uint32_t n)
{
    return n == 3 || (n == 1 && p % 2 == 1) ? p + 1 : p;
}

/* ---- On the host ----------------------------------------------------------------------------- */

Test(types, F12_every_pattern_on_the_host)
{
    void *patterns = all_patterns();
    for (uint32_t t = 0; t < 2; t++) {
        const vkmha_type type = shorts[t];
        float *probes = draw_probes(type);
        for (uint32_t p = 0; p < PATTERNS; p++) {
            const double value = decode(type, p);
            const float loaded = vkmha_load_element(patterns, type, p);
            cr_assert(is_same((double)loaded, value), "type %u, pattern %04x is %g, not %g", type, p,
                      (double)loaded, value);
            for (uint32_t n = 0; n < PROBES; n++) {
                const float probe = probes[PROBES * p + n];
                uint16_t stored;
                vkmha_store_element(&stored, type, 0, probe);
                const double expected =
                    isfinite(value) ? decode(type, rounded_probe(p, n)) : value;
                cr_assert(is_same(decode(type, stored), expected),
                          "type %u, %a is stored as %04x, not %a", type, (double)probe, stored,
                          expected);
                cr_assert(is_same(vkmha_round_value(type, (double)probe), expected),
                          "type %u, %a is rounded to %a, not %a", type, (double)probe,
                          vkmha_round_value(type, (double)probe), expected);
            }
        }
        free(probes);
    }
    free(patterns);
}

Test(types, an_interval_is_what_its_ends_round_to)
{
    const struct {
        vkmha_type type;
        double value;
        double bound;
        double rounded;
        double rounded_bound;
    } intervals[] = {
        {VKMHA_TYPE_F32, 1.1, 1e-9, 1.1, 1e-9},
        {VKMHA_TYPE_F16, 1.0 + 0x1p-12, 0x1p-13, 1.0, 0.0},
        {VKMHA_TYPE_F16, 1.0 + 0x1p-11, 0x1p-20, 1.0, 0x1p-10},
        {VKMHA_TYPE_F16, 65519.0, 0.5, 65504.0, 0.0},
        {VKMHA_TYPE_F16, 65519.0, 1.0, 65504.0, INFINITY},
        {VKMHA_TYPE_F16, 65521.0, 2.0, INFINITY, INFINITY},
        {VKMHA_TYPE_F16, -70000.0, 100.0, -INFINITY, 0.0},
        {VKMHA_TYPE_F16, 0x1p-26, 0x1p-30, 0.0, 0.0},
        {VKMHA_TYPE_F16, 0x1p-25, 0x1p-30, 0.0, 0x1p-24},
        {VKMHA_TYPE_BF16, 256.5, 0.25, 256.0, 0.0},
        {VKMHA_TYPE_BF16, 257.0, 1.5, 256.0, 2.0},
        {VKMHA_TYPE_BF16, 3.4e38, 1e35, INFINITY, 0.0},
    };
    for (size_t i = 0; i < sizeof(intervals) / sizeof(intervals[0]); i++) {
        double value = intervals[i].value;
        double bound = intervals[i].bound;
        vkmha_round_interval(intervals[i].type, &value, &bound);
        cr_assert(value == intervals[i].rounded && bound == intervals[i].rounded_bound,
                  "interval %zu is %a +- %a", i, value, bound);
    }
}

/* ---- Copies ---------------------------------------------------------------------------------- */

enum { PAGE = 256 }; /* keys of PAGE features: a pattern each */

/* Keys [PAGE, PAGE] in one type as they are present in another. */
static void *keys_through(const vkmha_test_target *target, const void *keys, vkmha_type from,
                          vkmha_type to, bool is_past)
{
    const vkmha_layer_params layer = {.num_heads = 1,
                                      .head_dim = PAGE,
                                      .v_head_dim = 1,
                                      .attention_only = true,
                                      .cache_type = to};
    const vkmha_plan_params plan = {.batch_size = 1,
                                    .query_len = 1,
                                    .key_len = is_past ? 0 : PAGE,
                                    .past_len = is_past ? PAGE : 0,
                                    .has_present = true,
                                    .key_type = is_past ? VKMHA_TYPE_F32 : from};
    const float query[PAGE] = {0.0f};
    const float values[PAGE] = {0.0f};
    float output[1];
    uint32_t present_value[PAGE];
    void *present = vkmha_test_allocate(PATTERNS, vkmha_type_bytes(to));
    const vkmha_inputs inputs = {.query = query,
                                 .key = is_past ? NULL : keys,
                                 .value = is_past ? NULL : values,
                                 .past_key = is_past ? keys : NULL,
                                 .past_value = is_past ? values : NULL};
    const vkmha_outputs outputs = {
        .output = output, .present_key = present, .present_value = present_value};
    vkmha_test_made made = vkmha_test_make(target, &layer, &plan);
    vkmha_error error;
    cr_assert_eq(vkmha_run(made.plan, &inputs, &outputs, &error), VKMHA_OK, "%s", error.message);
    vkmha_test_unmake(&made);
    return present;
}

static void copies(const vkmha_test_target *target)
{
    void *patterns = all_patterns();
    for (uint32_t t = 0; t < 2; t++) {
        const vkmha_type type = shorts[t];
        const vkmha_type other = shorts[1 - t];
        float *wide = keys_through(target, patterns, type, VKMHA_TYPE_F32, false);
        void *same = keys_through(target, patterns, type, type, true);
        void *crossed = keys_through(target, patterns, type, other, false);
        for (uint32_t p = 0; p < PATTERNS; p++) {
            const double value = decode(type, p);
            uint16_t narrowed;
            vkmha_store_element(&narrowed, other, 0, (float)value);
            cr_assert(is_same((double)wide[p], value), "%s: pattern %04x is %a", target->device_name,
                      p, (double)wide[p]);
            cr_assert(isnan(value) || load_pattern(same, p) == p, "%s: pattern %04x is kept as %04x",
                      target->device_name, p, load_pattern(same, p));
            cr_assert(is_same(decode(other, load_pattern(crossed, p)), decode(other, narrowed)),
                      "%s: pattern %04x is stored as %04x", target->device_name, p,
                      load_pattern(crossed, p));
        }
        free(wide);
        free(same);
        free(crossed);
        float *probes = draw_probes(type);
        for (uint32_t part = 0; part < PROBES; part++) {
            const float *given = probes + part * PATTERNS;
            void *stored = keys_through(target, given, VKMHA_TYPE_F32, type, false);
            for (uint32_t i = 0; i < PATTERNS; i++) {
                uint16_t expected;
                vkmha_store_element(&expected, type, 0, given[i]);
                cr_assert(is_same(decode(type, load_pattern(stored, i)), decode(type, expected)),
                          "%s: %a is stored as %04x, not %04x", target->device_name,
                          (double)given[i], load_pattern(stored, i), expected);
            }
            free(stored);
        }
        free(probes);
    }
    free(patterns);
}

Test(types, F12_every_pattern_through_copies, .timeout = 120)
{
    vkmha_test_each_device(copies);
}

/* ---- Attention reads ------------------------------------------------------------------------- */

/* One key a sequence: its value is the result, however many features a row has. */
static void attention_reads(const vkmha_test_target *target)
{
    static const uint32_t dims[] = {256, 255};
    for (uint32_t n = 0; n < 4; n++) {
        const vkmha_type type = shorts[n % 2];
        const uint32_t dim = dims[n / 2];
        const uint32_t batch = PATTERNS / dim;
        const vkmha_layer_params layer = {
            .num_heads = 1, .head_dim = 1, .v_head_dim = dim, .attention_only = true};
        const vkmha_plan_params plan = {
            .batch_size = batch, .query_len = 1, .key_len = 1, .value_type = type};
        void *patterns = all_patterns();
        float *ones = vkmha_test_allocate(batch, sizeof(float));
        vkmha_test_fill(ones, batch, 1.0f);
        float *output = vkmha_test_allocate(PATTERNS, sizeof(float));
        const vkmha_inputs inputs = {.query = ones, .key = ones, .value = patterns};
        vkmha_test_made made = vkmha_test_make(target, &layer, &plan);
        vkmha_test_made_run(&made, &inputs, output);
        for (uint32_t p = 0; p < batch * dim; p++) {
            const double value = decode(type, p);
            const bool may_vanish = fabs(value) < 0x1p-126;
            const double got = (double)output[p];
            cr_assert(got == value || (isnan(got) && isnan(value)) || (may_vanish && got == 0.0),
                      "%s, %s: dim %u, type %u: pattern %04x is read as %a, not %a",
                      target->device_name, target->attention_kernel, dim, type, p, got, value);
        }
        vkmha_test_unmake(&made);
        free(patterns);
        free(ones);
        free(output);
    }
}

Test(types, F12_every_pattern_read_by_attention, .timeout = 300)
{
    vkmha_test_each_attention_row(attention_reads);
}

/* ---- Projections read and store -------------------------------------------------------------- */

enum { WIDTH = 32, ROWS = PROBES * PATTERNS / WIDTH };

/* Every weight is the identity and every sequence one row: the output is the input. */
static void *project_through(const vkmha_test_target *target, const void *input, uint32_t rows,
                             const vkmha_plan_params *types, vkmha_type weight_type,
                             uint64_t row_stride)
{
    static float identity[WIDTH * WIDTH];
    static const float zeros[WIDTH] = {0.0f};
    for (uint32_t i = 0; i < WIDTH; i++) {
        identity[i * WIDTH + i] = 1.0f;
    }
    const vkmha_matrix square = {.data = identity, .rows = WIDTH, .columns = WIDTH};
    const vkmha_matrix row = {.data = zeros, .rows = 1, .columns = WIDTH};
    const vkmha_layer_params layer = {.num_heads = 1,
                                      .head_dim = 1,
                                      .v_head_dim = WIDTH,
                                      .embed_dim = WIDTH,
                                      .w_q = row,
                                      .w_k = row,
                                      .w_v = square,
                                      .w_o = square,
                                      .weight_type = weight_type};
    vkmha_plan_params plan = *types;
    plan.batch_size = rows;
    plan.query_len = 1;
    plan.key_len = 1;
    plan.key_is_query = true;
    plan.value_is_key = true;
    plan.output_strides =
        (vkmha_strides){.is_given = true, .offset = 1, .batch = row_stride, .row = row_stride};
    const uint32_t bytes = vkmha_type_bytes(plan.output_type);
    char *memory = vkmha_test_allocate(1 + rows * row_stride, bytes);
    char *output = vkmha_test_allocate((uint64_t)rows * WIDTH, bytes);
    const vkmha_inputs inputs = {.query = input};
    const vkmha_outputs outputs = {.output = memory};
    vkmha_test_made made = vkmha_test_make(target, &layer, &plan);
    vkmha_error error;
    cr_assert_eq(vkmha_run(made.plan, &inputs, &outputs, &error), VKMHA_OK, "%s", error.message);
    vkmha_test_unmake(&made);
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(output + (uint64_t)r * WIDTH * bytes, memory + (1 + r * row_stride) * bytes,
               WIDTH * bytes);
    }
    free(memory);
    return output;
}

static void projections(const vkmha_test_target *target)
{
    for (uint32_t n = 0; n < 4; n++) {
        const vkmha_type type = shorts[n % 2];
        const uint64_t row_stride = n / 2 ? WIDTH + 3 : WIDTH + 4;
        float *probes = draw_probes(type);
        for (uint32_t i = 0; i < PROBES * PATTERNS; i++) {
            probes[i] = isfinite(probes[i]) ? probes[i] : 0.0f; /* Inf times 0 is NaN */
        }
        const vkmha_plan_params stored = {.output_type = type};
        void *output = project_through(target, probes, ROWS, &stored, VKMHA_TYPE_F32, row_stride);
        for (uint32_t i = 0; i < PROBES * PATTERNS; i++) {
            uint16_t pattern;
            vkmha_store_element(&pattern, type, 0, probes[i]);
            const double expected = decode(type, pattern);
            const double got = decode(type, load_pattern(output, i));
            const bool may_vanish = fabsf(probes[i]) < 0x1p-126f;
            cr_assert(got == expected || (may_vanish && got == 0.0),
                      "%s, %s: type %u: %a is stored as %a, not %a", target->device_name,
                      target->project_kernel, type, (double)probes[i], got, expected);
        }
        free(output);
        free(probes);

        uint16_t *patterns = all_patterns();
        for (uint32_t p = 0; p < PATTERNS; p++) {
            patterns[p] = isfinite(decode(type, p)) ? patterns[p] : 0;
        }
        const vkmha_plan_params read = {
            .query_type = type, .key_type = type, .value_type = type};
        float *loaded =
            project_through(target, patterns, PATTERNS / WIDTH, &read, shorts[n / 2], row_stride);
        for (uint32_t p = 0; p < PATTERNS; p++) {
            const double expected = decode(type, patterns[p]);
            const bool may_vanish = fabs(expected) < 0x1p-126;
            cr_assert((double)loaded[p] == expected || (may_vanish && loaded[p] == 0.0f),
                      "%s, %s: type %u: pattern %04x is read as %a, not %a", target->device_name,
                      target->project_kernel, type, p, (double)loaded[p], expected);
        }
        free(loaded);
        free(patterns);
    }
}

Test(types, F12_every_pattern_read_and_stored_by_projections, .timeout = 300)
{
    vkmha_test_each_project_row(projections);
}
