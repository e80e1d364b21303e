/*
 * The same bits: a sequence alone, in a batch, padded, packed, whole and cut; with NaN and Inf
 * wherever nobody looks; again and again; and by plans that take turns.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "made.h"

/* ---- Spellings of the same sequences --------------------------------------------------------- */

enum {
    SEQUENCES = 3,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 8,
    EMBED = HEADS * DIM,
    QUERIES = 21,
    KEYS = 1100
};

static const int32_t query_lens[SEQUENCES] = {5, QUERIES, 12};
static const int32_t key_lens[SEQUENCES] = {40, KEYS, 700};

/* Two plans of the params, whole and cut small, and the second again. */
static void run_all(const vkmha_test_target *target, const vkmha_test_problem *weights,
                    const vkmha_plan_params *plan, const vkmha_inputs *inputs, uint64_t num_output,
                    const char *name, const float *const expected[SEQUENCES],
                    const uint64_t firsts[SEQUENCES])
{
    vkmha_test_problem problem = *weights; /* a view */
    problem.plan = *plan;
    problem.inputs = *inputs;
    problem.num_output = num_output;
    strncpy(problem.name, name, sizeof(problem.name) - 1);
    const uint64_t limits[] = {0, 300000, 20000};
    for (uint32_t cut = 0; cut < 3; cut++) {
        problem.plan.max_work_per_dispatch = limits[cut];
        float *output = vkmha_test_run(target, &problem);
        for (uint32_t b = 0; b < SEQUENCES; b++) {
            if (expected[b]) {
                vkmha_test_same_bits(target, &problem, cut ? "cut" : "whole",
                                     output + firsts[b] * EMBED, expected[b],
                                     (uint64_t)query_lens[b] * EMBED);
            }
        }
        free(output);
    }
}

static void spellings(const vkmha_test_target *target)
{
    const float sinks[HEADS] = {0.5f, -1.0f, 2.0f, -INFINITY};
    const vkmha_layer_params layer = {
        .num_heads = HEADS,
        .num_kv_heads = KV_HEADS,
        .head_dim = DIM,
        .embed_dim = EMBED,
        .softcap = 5.0f,
        .sinks = sinks,
        .rope = {.style = VKMHA_ROPE_INTERLEAVED, .max_positions = 2048},
    };
    const vkmha_plan_params shape = {
        .batch_size = 1,
        .query_len = 1,
        .key_len = 1,
        .value_is_key = true,
        .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
        .has_window_left = true,
        .window_left = 900,
    };
    vkmha_test_problem weights;
    vkmha_test_problem_init(&weights, &layer, &shape, "spellings");
    float *queries[SEQUENCES];
    float *keys[SEQUENCES];
    float *alone[SEQUENCES];
    for (uint32_t b = 0; b < SEQUENCES; b++) {
        queries[b] = vkmha_test_values((uint64_t)query_lens[b] * EMBED, 10 + b);
        keys[b] = vkmha_test_values((uint64_t)key_lens[b] * EMBED, 20 + b);
    }

    /* Alone, and as the second of a batch of its own shape. */
    for (uint32_t b = 0; b < SEQUENCES; b++) {
        const uint64_t num_query = (uint64_t)query_lens[b] * EMBED;
        const uint64_t num_key = (uint64_t)key_lens[b] * EMBED;
        vkmha_test_problem one = weights; /* a view */
        one.plan.query_len = (uint64_t)query_lens[b];
        one.plan.key_len = (uint64_t)key_lens[b];
        one.inputs = (vkmha_inputs){.query = queries[b], .key = keys[b]};
        one.num_output = num_query;
        alone[b] = vkmha_test_run(target, &one);
        vkmha_test_compare(target, &one, NULL, alone[b]);
        const float *expected[SEQUENCES] = {alone[b]};
        const uint64_t firsts[SEQUENCES] = {0};
        if (b == 0) {
            run_all(target, &weights, &one.plan, &one.inputs, num_query, "alone", expected, firsts);
        }
        float *two_queries = vkmha_test_values(2 * num_query, 30);
        float *two_keys = vkmha_test_values(2 * num_key, 31);
        memcpy(two_queries + num_query, queries[b], num_query * sizeof(float));
        memcpy(two_keys + num_key, keys[b], num_key * sizeof(float));
        one.plan.batch_size = 2;
        one.inputs = (vkmha_inputs){.query = two_queries, .key = two_keys};
        one.num_output = 2 * num_query;
        float *batch = vkmha_test_run(target, &one);
        vkmha_test_same_bits(target, &one, "in a batch", batch + num_query, alone[b], num_query);
        free(batch);
        free(two_queries);
        free(two_keys);
    }

    /* Padded with NaN, positions told for each; and packed. */
    int32_t offsets[SEQUENCES];
    int32_t query_ends[SEQUENCES + 1] = {0};
    int32_t key_ends[SEQUENCES + 1] = {0};
    uint64_t padded_rows[SEQUENCES];
    uint64_t packed_rows[SEQUENCES];
    for (uint32_t b = 0; b < SEQUENCES; b++) {
        offsets[b] = key_lens[b] - query_lens[b];
        query_ends[b + 1] = query_ends[b] + query_lens[b];
        key_ends[b + 1] = key_ends[b] + key_lens[b];
        padded_rows[b] = (uint64_t)b * QUERIES;
        packed_rows[b] = (uint64_t)query_ends[b];
    }
    const uint64_t num_rows = (uint64_t)query_ends[SEQUENCES];
    float *padded_query = vkmha_test_allocate(SEQUENCES * QUERIES * EMBED, sizeof(float));
    float *padded_key = vkmha_test_allocate(SEQUENCES * KEYS * EMBED, sizeof(float));
    float *packed_query = vkmha_test_allocate(num_rows * EMBED, sizeof(float));
    float *packed_key = vkmha_test_allocate((uint64_t)key_ends[SEQUENCES] * EMBED, sizeof(float));
    vkmha_test_fill(padded_query, SEQUENCES * QUERIES * EMBED, NAN);
    vkmha_test_fill(padded_key, SEQUENCES * KEYS * EMBED, NAN);
    for (uint32_t b = 0; b < SEQUENCES; b++) {
        const uint64_t query_bytes = (uint64_t)query_lens[b] * EMBED * sizeof(float);
        const uint64_t key_bytes = (uint64_t)key_lens[b] * EMBED * sizeof(float);
        memcpy(padded_query + b * QUERIES * EMBED, queries[b], query_bytes);
        memcpy(padded_key + b * KEYS * EMBED, keys[b], key_bytes);
        memcpy(packed_query + query_ends[b] * EMBED, queries[b], query_bytes);
        memcpy(packed_key + key_ends[b] * EMBED, keys[b], key_bytes);
    }
    const float *expected[SEQUENCES] = {alone[0], alone[1], alone[2]};
    vkmha_plan_params padded = shape;
    padded.batch_size = SEQUENCES;
    padded.query_len = QUERIES;
    padded.key_len = KEYS;
    padded.has_key_lengths = true;
    padded.causal = VKMHA_CAUSAL_OFFSET;
    padded.has_position_offsets = true;
    const vkmha_inputs padded_inputs = {.query = padded_query,
                                        .key = padded_key,
                                        .key_lengths = key_lens,
                                        .position_offsets = offsets};
    run_all(target, &weights, &padded, &padded_inputs, SEQUENCES * QUERIES * EMBED, "padded",
            expected, padded_rows);
    vkmha_plan_params packed = shape;
    packed.batch_size = SEQUENCES;
    packed.query_len = QUERIES;
    packed.key_len = KEYS;
    packed.is_packed = true;
    packed.total_queries = num_rows;
    packed.total_keys = (uint64_t)key_ends[SEQUENCES];
    const vkmha_inputs packed_inputs = {.query = packed_query,
                                        .key = packed_key,
                                        .cu_query_lens = query_ends,
                                        .cu_key_lens = key_ends};
    run_all(target, &weights, &packed, &packed_inputs, num_rows * EMBED, "packed", expected,
            packed_rows);
    for (uint32_t b = 0; b < SEQUENCES; b++) {
        free(queries[b]);
        free(keys[b]);
        free(alone[b]);
    }
    free(padded_query);
    free(padded_key);
    free(packed_query);
    free(packed_key);
    vkmha_test_problem_finish(&weights);
}

Test(same, alone_batched_padded_packed_and_cut, .timeout = 300)
{
    vkmha_test_each_row(spellings);
}

/* ---- NaN and Inf where nobody looks ---------------------------------------------------------- */

enum { P_BATCH = 2, P_HEADS = 2, P_QUERIES = 37, P_KEYS = 75, P_ROW = P_HEADS * DIM };
enum { P_CELLS = P_BATCH * P_HEADS * P_QUERIES * P_KEYS };

static const vkmha_plan_params poison_plans[] = {
    {.causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
     .has_window_left = true,
     .window_left = 40,
     .mask = VKMHA_MASK_ATTEND,
     .mask_dims = {P_BATCH, P_HEADS, P_QUERIES, P_KEYS},
     .has_attend_keys = true,
     .has_key_lengths = true,
     .has_first_keys = true},
    {.causal = VKMHA_CAUSAL_TOP_LEFT,
     .mask = VKMHA_MASK_ADDITIVE,
     .mask_dims = {1, P_HEADS, 1, P_KEYS},
     .has_key_lengths = true},
    {.positions = VKMHA_POSITIONS_OFFSET,
     .position_offset = 17,
     .has_window_left = true,
     .window_left = 9,
     .has_window_right = true,
     .window_right = 5,
     .has_first_keys = true},
    {.mask = VKMHA_MASK_ADDITIVE,
     .mask_dims = {P_BATCH, 1, P_QUERIES, P_KEYS},
     .has_attend_keys = true},
};

typedef struct vkmha_masks {
    uint8_t attend[P_CELLS];
    float additive[P_CELLS];
    uint8_t keys[P_BATCH * P_KEYS];
    bool is_visible[P_CELLS]; /* [batch, heads, queries, keys] */
} vkmha_masks;

static const int32_t poison_lengths[P_BATCH] = {61, P_KEYS};
static const int32_t poison_firsts[P_BATCH] = {0, 26};

/* Makes the plan's masks and tells of every pair whether all of them allow it. */
static void make_masks(const vkmha_plan_params *plan, vkmha_masks *masks, vkmha_inputs *inputs)
{
    uint64_t state = vkmha_test_seed();
    for (uint32_t i = 0; i < P_CELLS; i++) {
        masks->attend[i] = vkmha_test_random(&state) % 3 != 0;
        masks->additive[i] = masks->attend[i] ? vkmha_test_random_float(&state) : -INFINITY;
    }
    for (uint32_t i = 0; i < P_BATCH * P_KEYS; i++) {
        masks->keys[i] = vkmha_test_random(&state) % 4 != 0;
    }
    const uint64_t *dims = plan->mask_dims;
    for (uint32_t cell = 0; cell < P_CELLS; cell++) {
        const uint32_t j = cell % P_KEYS;
        const uint32_t i = cell / P_KEYS % P_QUERIES;
        const uint32_t h = cell / (P_KEYS * P_QUERIES) % P_HEADS;
        const uint32_t b = cell / (P_KEYS * P_QUERIES * P_HEADS);
        const int32_t length = plan->has_key_lengths ? poison_lengths[b] : P_KEYS;
        int64_t p = (int64_t)i + plan->position_offset;
        if (plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT) {
            p = (int64_t)i + length - P_QUERIES;
        }
        bool is_visible = (int32_t)j < length;
        is_visible &= plan->causal == VKMHA_CAUSAL_NONE || (int64_t)j <= p;
        is_visible &= !plan->has_window_left || (int64_t)j >= p - plan->window_left;
        is_visible &= !plan->has_window_right || (int64_t)j <= p + plan->window_right;
        is_visible &= !plan->has_first_keys || (int32_t)j >= poison_firsts[b];
        is_visible &= !plan->has_attend_keys || masks->keys[b * P_KEYS + j];
        if (plan->mask != VKMHA_MASK_NONE) {
            const uint64_t at =
                ((b % dims[0] * dims[1] + h % dims[1]) * dims[2] + i % dims[2]) * dims[3] + j;
            is_visible &= masks->attend[at] != 0;
        }
        masks->is_visible[cell] = is_visible;
    }
    inputs->mask = plan->mask == VKMHA_MASK_ATTEND     ? (const void *)masks->attend
                   : plan->mask == VKMHA_MASK_ADDITIVE ? (const void *)masks->additive
                                                       : NULL;
    inputs->attend_keys = plan->has_attend_keys ? masks->keys : NULL;
    inputs->key_lengths = plan->has_key_lengths ? poison_lengths : NULL;
    inputs->first_keys = plan->has_first_keys ? poison_firsts : NULL;
}

/* Rows [batch, queries, heads] that see a poisoned key. */
static uint32_t find_rows(const vkmha_masks *masks, const bool *is_poisoned, bool *sees)
{
    uint32_t count = 0;
    for (uint32_t row = 0; row < P_BATCH * P_QUERIES * P_HEADS; row++) {
        const uint32_t h = row % P_HEADS;
        const uint32_t i = row / P_HEADS % P_QUERIES;
        const uint32_t b = row / (P_HEADS * P_QUERIES);
        sees[row] = false;
        for (uint32_t j = 0; j < P_KEYS; j++) {
            const uint32_t cell = ((b * P_HEADS + h) * P_QUERIES + i) * P_KEYS + j;
            sees[row] |= masks->is_visible[cell] && is_poisoned[(b * P_KEYS + j) * P_HEADS + h];
        }
        count += sees[row];
    }
    return count;
}

static void poison(const vkmha_test_target *target)
{
    enum {
        OUT = P_BATCH * P_QUERIES * P_ROW,
        ROWS = OUT / DIM,
        NUM_KEYS = P_BATCH * P_KEYS * P_HEADS
    };
    const float poisons[] = {NAN, INFINITY, -INFINITY};
    const vkmha_layer_params layer = {
        .num_heads = P_HEADS, .head_dim = DIM, .attention_only = true};
    vkmha_masks *masks = vkmha_test_allocate(1, sizeof(*masks));
    for (size_t n = 0; n < sizeof(poison_plans) / sizeof(poison_plans[0]); n++) {
        vkmha_plan_params plan = poison_plans[n];
        plan.batch_size = P_BATCH;
        plan.query_len = P_QUERIES;
        plan.key_len = P_KEYS;
        float *query = vkmha_test_values(OUT, 1);
        float *key = vkmha_test_values(NUM_KEYS * DIM, 2);
        float *value = vkmha_test_values(NUM_KEYS * DIM, 3);
        vkmha_inputs inputs = {.query = query, .key = key, .value = value};
        make_masks(&plan, masks, &inputs);
        const vkmha_test_problem problem =
            vkmha_test_problem_of("F14", &layer, &plan, &inputs, OUT);
        float *clean = vkmha_test_run(target, &problem);
        vkmha_test_compare(target, &problem, NULL, clean);

        /* Every head of a key that no query sees, and head 1 of two keys that some see. */
        bool is_poisoned[NUM_KEYS];
        bool sees[ROWS];
        uint32_t unseen = 0;
        for (uint32_t i = 0; i < NUM_KEYS; i++) {
            const uint32_t h = i % P_HEADS;
            const uint32_t j = i / P_HEADS % P_KEYS;
            const uint32_t b = i / (P_HEADS * P_KEYS);
            bool is_seen = false;
            for (uint32_t q = 0; q < P_QUERIES; q++) {
                is_seen |= masks->is_visible[((b * P_HEADS + h) * P_QUERIES + q) * P_KEYS + j];
            }
            unseen += !is_seen;
            is_poisoned[i] = !is_seen;
        }
        cr_assert(find_rows(masks, is_poisoned, sees) == 0);
        cr_assert(unseen > 0, "plan %zu: every key is seen", n);
        for (uint32_t b = 0; b < P_BATCH; b++) {
            uint32_t more = 2;
            for (uint32_t j = 30; j < P_KEYS && more > 0; j++) {
                const uint32_t at = (b * P_KEYS + j) * P_HEADS + 1;
                more -= !is_poisoned[at];
                is_poisoned[at] = true;
            }
        }
        const uint32_t num_seeing = find_rows(masks, is_poisoned, sees);
        cr_assert(num_seeing > 0 && num_seeing < ROWS - 20, "plan %zu: %u rows see poison", n,
                  num_seeing);
        for (size_t k = 0; k < sizeof(poisons) / sizeof(poisons[0]); k++) {
            for (uint32_t i = 0; i < NUM_KEYS; i++) {
                if (is_poisoned[i]) {
                    vkmha_test_fill(key + i * DIM, DIM, poisons[k]);
                    vkmha_test_fill(value + i * DIM, DIM, poisons[k]);
                }
            }
            float *output = vkmha_test_run(target, &problem);
            for (uint32_t row = 0; row < ROWS; row++) {
                if (!sees[row]) {
                    vkmha_test_same_bits(target, &problem, "a row that sees no poison",
                                         output + row * DIM, clean + row * DIM, DIM);
                }
                cr_assert(!sees[row] || k > 0 || isnan(output[row * DIM]),
                          "%s: plan %zu: row %u sees NaN and is %g", target->attention_kernel, n,
                          row, (double)output[row * DIM]);
            }
            free(output);
        }
        free(clean);
        free(query);
        free(key);
        free(value);
    }
    free(masks);
}

Test(same, F05_F14_nobody_sees_what_is_masked, .timeout = 300)
{
    vkmha_test_each_attention_row(poison);
}

/* ---- Again ----------------------------------------------------------------------------------- */

static void repeated(const vkmha_test_target *target)
{
    enum { RUNS = 200 };
    const vkmha_layer_params layer = {.num_heads = 4, .head_dim = 64, .embed_dim = 256};
    const vkmha_plan_params plan = {.batch_size = 2,
                                    .query_len = 96,
                                    .key_len = 96,
                                    .key_is_query = true,
                                    .value_is_key = true};
    vkmha_test_problem problem;
    vkmha_test_problem_init(&problem, &layer, &plan, "F56 200 runs");
    float *first = vkmha_test_run(target, &problem);
    vkmha_test_compare(target, &problem, NULL, first);
    float *again = vkmha_test_allocate(problem.num_output, sizeof(float));
    vkmha_test_made made = vkmha_test_make(target, &problem.layer, &plan);
    for (uint32_t i = 0; i < RUNS; i++) {
        vkmha_test_fill(again, problem.num_output, NAN);
        vkmha_test_made_run(&made, &problem.inputs, again);
        vkmha_test_same_bits(target, &problem, "a run again", again, first, problem.num_output);
    }
    vkmha_test_unmake(&made);
    free(again);
    free(first);
    vkmha_test_problem_finish(&problem);
}

Test(same, F56_two_hundred_runs, .timeout = 600)
{
    vkmha_test_each_row(repeated);
}

/* Plans of two lengths, of two layers each, take turns; a call that fails comes between. */
static void turns(const vkmha_test_target *target)
{
    enum { NUM = 4, ROUNDS = 6 };
    vkmha_test_problem problems[NUM];
    vkmha_test_made made[NUM];
    float *first[NUM];
    for (uint32_t n = 0; n < NUM; n++) {
        const uint64_t length = n % 2 ? 65 : 7;
        const vkmha_layer_params layer = {
            .num_heads = 2, .head_dim = 8, .embed_dim = 16, .softcap = n < 2 ? 0.0f : 3.0f};
        const vkmha_plan_params plan = {.batch_size = 1,
                                        .query_len = length,
                                        .key_len = length,
                                        .key_is_query = true,
                                        .value_is_key = true,
                                        .causal = VKMHA_CAUSAL_TOP_LEFT,
                                        .has_key_lengths = true};
        vkmha_test_problem_init(&problems[n], &layer, &plan, "F57 plan %u", n);
        problems[n].key_lengths[0] = (int32_t)length - 2;
        float *weight = problems[n].weights[3];
        weight[0] += (float)n; /* another layer, whose bits tell whose weights were used */
        first[n] = vkmha_test_run(target, &problems[n]);
        vkmha_test_compare(target, &problems[n], NULL, first[n]);
        made[n] = vkmha_test_make(target, &problems[n].layer, &problems[n].plan);
    }
    cr_assert(memcmp(first[0], first[2], problems[0].num_output * sizeof(float)) != 0);
    float output[65 * 16];
    for (uint32_t i = 0; i < ROUNDS * NUM; i++) {
        const uint32_t n = i * 7 % 5 % NUM;
        const vkmha_inputs missing = {.query = problems[n].query};
        const vkmha_outputs outputs = {.output = output};
        vkmha_test_made_run(&made[n], &problems[n].inputs, output);
        vkmha_test_same_bits(target, &problems[n], "after others", output, first[n],
                             problems[n].num_output);
        cr_assert(i % 3 != 0 || vkmha_run(made[(n + 1) % NUM].plan, &missing, &outputs, NULL) ==
                                    VKMHA_ERROR_INVALID_ARGUMENT);
    }
    for (uint32_t n = 0; n < NUM; n++) {
        vkmha_test_unmake(&made[n]);
        free(first[n]);
        vkmha_test_problem_finish(&problems[n]);
    }
}

Test(same, F57_plans_take_turns, .timeout = 300)
{
    vkmha_test_each_row(turns);
}
