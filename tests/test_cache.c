/* Caches of keys and values: decoding against the whole, taking tokens back, what is refused, and
 * split keys. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "made.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 8, EMBED = HEADS * DIM };

/* A layer of grouped heads with rotary positions; the problem owns its weights and inputs. */
static void init_problem(vkmha_test_problem *problem, uint64_t batch_size, uint64_t length,
                         const char *name)
{
    const vkmha_layer_params layer = {
        .num_heads = HEADS,
        .num_kv_heads = KV_HEADS,
        .head_dim = DIM,
        .embed_dim = EMBED,
        .rope = {.style = VKMHA_ROPE_HALF, .max_positions = 4096},
    };
    const vkmha_plan_params plan = {
        .batch_size = batch_size,
        .query_len = length,
        .key_len = length,
        .key_is_query = true,
        .value_is_key = true,
        .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
    };
    vkmha_test_problem_init(problem, &layer, &plan, "%s", name);
}

static vkmha_plan_params cached(const vkmha_test_problem *problem, uint64_t batch_size,
                                uint64_t length, uint64_t capacity)
{
    vkmha_plan_params plan = problem->plan;
    plan.batch_size = batch_size;
    plan.query_len = plan.key_len = length;
    plan.cache_capacity = capacity;
    return plan;
}

static vkmha_cache *make_cache(vkmha_layer *layer, uint64_t batch_size, uint64_t capacity)
{
    vkmha_error error;
    vkmha_cache *cache = NULL;
    const vkmha_status status = vkmha_cache_create(layer, batch_size, capacity, &cache, &error);
    cr_assert(status == VKMHA_OK, "%s", error.message);
    return cache;
}

static void step(const vkmha_test_made *made, vkmha_cache *cache, const float *query, float *output)
{
    const vkmha_inputs inputs = {.query = query, .cache = cache};
    vkmha_test_made_run(made, &inputs, output);
}

/* ---- Decoding -------------------------------------------------------------------------------- */

static void check_info(const vkmha_test_made *made, uint64_t batch_size, uint64_t length)
{
    const uint64_t pitches = DIM + DIM; /* of a key and of a value: whole vectors already */
    cr_assert(made->info.append_bytes == batch_size * length * KV_HEADS * pitches * sizeof(float),
              "%llu new keys of %llu sequences append %llu bytes", (unsigned long long)length,
              (unsigned long long)batch_size, (unsigned long long)made->info.append_bytes);
}

static void decode(const vkmha_test_target *target)
{
    enum { LENGTH = 1000, PREFILL = 64, CHUNK = 7, CHUNKS = 5, CAPACITY = 1024 };
    vkmha_test_problem problem;
    init_problem(&problem, 1, LENGTH, "1000 tokens one by one");
    const vkmha_plan_params prefill_params = cached(&problem, 1, PREFILL, CAPACITY);
    const vkmha_plan_params chunk_params = cached(&problem, 1, CHUNK, CAPACITY);
    const vkmha_plan_params token_params = cached(&problem, 1, 1, CAPACITY);
    vkmha_test_made prefill = vkmha_test_make(target, &problem.layer, &prefill_params);
    vkmha_test_made chunk =
        vkmha_test_plan_of(target, prefill.layer, &problem.layer, &chunk_params);
    vkmha_test_made token =
        vkmha_test_plan_of(target, prefill.layer, &problem.layer, &token_params);
    check_info(&prefill, 1, PREFILL);
    check_info(&chunk, 1, CHUNK);
    check_info(&token, 1, 1);
    vkmha_cache *cache = make_cache(prefill.layer, 1, CAPACITY);
    float *output = vkmha_test_allocate(problem.num_output, sizeof(float));
    uint64_t done = PREFILL;
    step(&prefill, cache, problem.query, output);
    for (uint32_t i = 0; i < CHUNKS; i++, done += CHUNK) {
        step(&chunk, cache, problem.query + done * EMBED, output + done * EMBED);
    }
    for (; done < LENGTH; done++) {
        cr_assert(vkmha_cache_length(cache, 0) == done);
        step(&token, cache, problem.query + done * EMBED, output + done * EMBED);
    }
    cr_assert(vkmha_cache_length(cache, 0) == LENGTH);
    vkmha_test_compare(target, &problem, NULL, output);
    float *whole = vkmha_test_run(target, &problem);
    vkmha_test_compare(target, &problem, NULL, whole);
    vkmha_cache_destroy(cache);
    vkmha_plan_destroy(chunk.plan);
    vkmha_plan_destroy(token.plan);
    vkmha_test_unmake(&prefill);
    free(output);
    free(whole);
    vkmha_test_problem_finish(&problem);
}

Test(cache, decoding_is_the_causal_pass, .timeout = 300)
{
    vkmha_test_each_attention_row(decode);
}

/* What a step appends does not depend on the room, and what it works in only by split keys' sums.
 */
static void step_sizes(const vkmha_test_target *target)
{
    enum { BATCH = 3 };
    vkmha_test_problem problem;
    init_problem(&problem, BATCH, 1, "step sizes");
    vkmha_test_made first = {0};
    for (uint64_t capacity = 512; capacity <= 1 << 15; capacity *= 2) {
        const vkmha_plan_params params = cached(&problem, BATCH, 1, capacity);
        vkmha_test_made made =
            first.layer ? vkmha_test_plan_of(target, first.layer, &problem.layer, &params)
                        : vkmha_test_make(target, &problem.layer, &params);
        check_info(&made, BATCH, 1);
        if (!first.layer) {
            first = made;
            continue;
        }
        /* A chunk of 1024 keys of a row of a head: its maximum, its sum and its outputs; windows
         * are aligned. */
        const uint64_t chunks = (capacity + 1023) / 1024;
        const uint64_t split = BATCH * HEADS * chunks * (DIM + 4) * sizeof(float) + 1024;
        cr_assert(made.info.workspace_bytes <= first.info.workspace_bytes + split,
                  "%s: capacity %llu: %llu bytes, %llu with 512, split keys %llu",
                  target->attention_kernel, (unsigned long long)capacity,
                  (unsigned long long)made.info.workspace_bytes,
                  (unsigned long long)first.info.workspace_bytes, (unsigned long long)split);
        vkmha_plan_destroy(made.plan);
    }
    vkmha_test_unmake(&first);
    vkmha_test_problem_finish(&problem);
}

Test(cache, steps_do_not_grow, .timeout = 300)
{
    vkmha_test_each_attention_row(step_sizes);
}

/* ---- Taking back, and what is refused -------------------------------------------------------- */

static void trim(const vkmha_test_target *target)
{
    enum { PROMPT = 20, CAPACITY = 40, KEPT = 13 };
    vkmha_test_problem problem;
    init_problem(&problem, 1, PROMPT + 1, "trim");
    const vkmha_plan_params prompt_params = cached(&problem, 1, PROMPT, CAPACITY);
    const vkmha_plan_params token_params = cached(&problem, 1, 1, CAPACITY);
    vkmha_test_made prompt = vkmha_test_make(target, &problem.layer, &prompt_params);
    vkmha_test_made token = vkmha_test_plan_of(target, prompt.layer, &problem.layer, &token_params);
    vkmha_cache *cache = make_cache(prompt.layer, 1, CAPACITY);
    float first[PROMPT * EMBED];
    float row[EMBED];
    float poison[EMBED];
    const vkmha_test_problem names = {.name = "trim"};
    vkmha_test_fill(poison, EMBED, NAN);
    step(&prompt, cache, problem.query, first);
    /* What a step of NaN left behind the kept keys is written over, never seen. */
    step(&token, cache, poison, row);
    cr_assert(isnan(row[0]));
    cr_assert(vkmha_cache_trim(cache, 0, KEPT, NULL) == VKMHA_OK);
    step(&token, cache, poison, row);
    cr_assert(vkmha_cache_trim(cache, 0, KEPT, NULL) == VKMHA_OK);
    cr_assert(vkmha_cache_length(cache, 0) == KEPT);
    for (uint32_t i = KEPT; i < PROMPT; i++) {
        step(&token, cache, problem.query + i * EMBED, row);
        vkmha_test_same_bits(target, &names, "a token again", row, first + i * EMBED, EMBED);
    }
    float again[PROMPT * EMBED];
    cr_assert(vkmha_cache_trim(cache, 0, 0, NULL) == VKMHA_OK);
    step(&prompt, cache, problem.query, again);
    vkmha_test_same_bits(target, &names, "the prompt again", again, first, PROMPT * EMBED);
    vkmha_cache_destroy(cache);
    vkmha_plan_destroy(token.plan);
    vkmha_test_unmake(&prompt);
    vkmha_test_problem_finish(&problem);
}

Test(cache, the_same_bits_after_trim, .timeout = 300)
{
    vkmha_test_each_attention_row(trim);
}

static void expect_refusal(const vkmha_test_made *made, vkmha_cache *cache, const float *query,
                           const char *word)
{
    float output[8 * EMBED];
    float before[8 * EMBED];
    vkmha_test_fill(output, 8 * EMBED, 5.0f);
    memcpy(before, output, sizeof(before));
    const uint64_t lengths[] = {cache ? vkmha_cache_length(cache, 0) : 0,
                                cache ? vkmha_cache_length(cache, 1) : 0};
    const vkmha_inputs inputs = {.query = query, .cache = cache};
    const vkmha_outputs outputs = {.output = output};
    vkmha_error error;
    cr_assert(vkmha_run(made->plan, &inputs, &outputs, &error) == VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(error.status == VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, word), "no \"%s\" in: %s", word, error.message);
    cr_assert(memcmp(output, before, sizeof(before)) == 0, "outputs changed: %s", error.message);
    cr_assert(!cache || (vkmha_cache_length(cache, 0) == lengths[0] &&
                         vkmha_cache_length(cache, 1) == lengths[1]),
              "lengths changed: %s", error.message);
}

static void refusals(const vkmha_test_target *target)
{
    enum { CAPACITY = 9 };
    vkmha_test_problem problem;
    init_problem(&problem, 2, 4, "refusals");
    const vkmha_plan_params params = cached(&problem, 2, 4, CAPACITY);
    vkmha_test_made made = vkmha_test_make(target, &problem.layer, &params);
    vkmha_test_made other = vkmha_test_make(target, &problem.layer, &params);
    vkmha_cache *cache = make_cache(made.layer, 2, CAPACITY);
    vkmha_cache *others = make_cache(other.layer, 2, CAPACITY);
    vkmha_cache *larger = make_cache(made.layer, 2, CAPACITY + 1);
    vkmha_cache *fewer = make_cache(made.layer, 1, CAPACITY);
    float output[8 * EMBED];
    step(&made, cache, problem.query, output);
    expect_refusal(&made, cache, NULL, "query is NULL");
    expect_refusal(&made, NULL, problem.query, "cache is NULL");
    expect_refusal(&made, others, problem.query, "cache is of another layer");
    expect_refusal(&made, larger, problem.query, "capacity 10");
    expect_refusal(&made, fewer, problem.query, "1 sequences");
    step(&made, cache, problem.query, output);
    cr_assert(vkmha_cache_length(cache, 0) == 8 && vkmha_cache_length(cache, 1) == 8);
    expect_refusal(&made, cache, problem.query,
                   "key_len 4 does not fit behind the 8 keys of sequence 0");
    cr_assert(vkmha_cache_trim(cache, 0, 2, NULL) == VKMHA_OK);
    expect_refusal(&made, cache, problem.query, "sequence 1");

    vkmha_error error;
    cr_assert(vkmha_cache_trim(cache, 0, 3, &error) == VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "length 3"), "%s", error.message);
    cr_assert(vkmha_cache_trim(cache, 2, 0, &error) == VKMHA_ERROR_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "b 2"), "%s", error.message);
    cr_assert(vkmha_cache_length(cache, 0) == 2 && vkmha_cache_length(cache, 1) == 8);
    cr_assert(vkmha_cache_length(cache, 2) == 0);

    /* Rotary positions end at 4096, whatever the capacity: a table's end is no place for a key. */
    vkmha_layer_params short_table = problem.layer;
    short_table.rope.max_positions = 6;
    vkmha_test_made brief = vkmha_test_make(target, &short_table, &params);
    vkmha_cache *room = make_cache(brief.layer, 2, CAPACITY);
    step(&brief, room, problem.query, output);
    expect_refusal(&brief, room, problem.query, "rope.max_positions 6");
    vkmha_cache_destroy(room);
    vkmha_test_unmake(&brief);

    vkmha_cache_destroy(cache);
    vkmha_cache_destroy(others);
    vkmha_cache_destroy(larger);
    vkmha_cache_destroy(fewer);
    vkmha_test_unmake(&other);
    vkmha_test_unmake(&made);
    vkmha_test_problem_finish(&problem);
}

Test(cache, refusals_leave_lengths_as_they_were, .timeout = 300)
{
    vkmha_test_each_device(refusals);
}

/* ---- Padded prompts -------------------------------------------------------------------------- */

static void padded(const vkmha_test_target *target)
{
    enum { BATCH = 3, PROMPT = 20, TOKENS = 5, CAPACITY = 32 };
    const uint64_t lengths[BATCH] = {9, PROMPT, 1};
    vkmha_test_problem problem;
    init_problem(&problem, BATCH, PROMPT + TOKENS, "padded prompts");
    const vkmha_plan_params prompt_params = cached(&problem, BATCH, PROMPT, CAPACITY);
    const vkmha_plan_params token_params = cached(&problem, BATCH, 1, CAPACITY);
    vkmha_test_made prompt = vkmha_test_make(target, &problem.layer, &prompt_params);
    vkmha_test_made token = vkmha_test_plan_of(target, prompt.layer, &problem.layer, &token_params);
    const float *inputs[BATCH];
    float *prompts = vkmha_test_allocate(BATCH * PROMPT * EMBED, sizeof(float));
    vkmha_test_fill(prompts, BATCH * PROMPT * EMBED, NAN);
    for (uint32_t b = 0; b < BATCH; b++) {
        inputs[b] = problem.query + b * (PROMPT + TOKENS) * EMBED;
        memcpy(prompts + b * PROMPT * EMBED, inputs[b], lengths[b] * EMBED * sizeof(float));
    }
    float *together = vkmha_test_allocate(BATCH * PROMPT * EMBED, sizeof(float));
    float decoded[TOKENS][BATCH * EMBED];
    vkmha_cache *cache = make_cache(prompt.layer, BATCH, CAPACITY);
    step(&prompt, cache, prompts, together);
    for (uint32_t b = 0; b < BATCH; b++) {
        cr_assert(vkmha_cache_trim(cache, b, lengths[b], NULL) == VKMHA_OK);
    }
    for (uint32_t t = 0; t < TOKENS; t++) {
        float tokens[BATCH * EMBED];
        for (uint32_t b = 0; b < BATCH; b++) {
            memcpy(tokens + b * EMBED, inputs[b] + (lengths[b] + t) * EMBED, EMBED * sizeof(float));
        }
        step(&token, cache, tokens, decoded[t]);
    }
    vkmha_cache_destroy(cache);

    const vkmha_test_problem names = {.name = "a padded prompt"};
    for (uint32_t b = 0; b < BATCH; b++) {
        const vkmha_plan_params one_params = cached(&problem, 1, 1, CAPACITY);
        const vkmha_plan_params alone_params = cached(&problem, 1, lengths[b], CAPACITY);
        vkmha_test_made one = vkmha_test_plan_of(target, prompt.layer, &problem.layer, &one_params);
        vkmha_test_made alone =
            vkmha_test_plan_of(target, prompt.layer, &problem.layer, &alone_params);
        float rows[PROMPT * EMBED];
        cache = make_cache(prompt.layer, 1, CAPACITY);
        step(&alone, cache, inputs[b], rows);
        vkmha_test_same_bits(target, &names, "a prompt", together + b * PROMPT * EMBED, rows,
                             lengths[b] * EMBED);
        for (uint32_t t = 0; t < TOKENS; t++) {
            step(&one, cache, inputs[b] + (lengths[b] + t) * EMBED, rows);
            vkmha_test_same_bits(target, &names, "a token", decoded[t] + b * EMBED, rows, EMBED);
        }
        vkmha_cache_destroy(cache);
        vkmha_plan_destroy(one.plan);
        vkmha_plan_destroy(alone.plan);
    }
    free(together);
    free(prompts);
    vkmha_plan_destroy(token.plan);
    vkmha_test_unmake(&prompt);
    vkmha_test_problem_finish(&problem);
}

Test(cache, padded_prompts_decode_as_if_alone, .timeout = 300)
{
    vkmha_test_each_attention_row(padded);
}

/* ---- Split keys ------------------------------------------------------------------------------ */

/* Few queries of many keys: workgroups share a row's keys, and nobody can tell. */
static void split(const vkmha_test_target *target)
{
    enum { BATCH = 4, QUERIES = 600, KEYS = 5000, TWO = 2, ROW = TWO * DIM };
    const vkmha_layer_params layer = {.num_heads = TWO, .head_dim = DIM, .attention_only = true};
    float *query = vkmha_test_values(QUERIES * ROW, 1);
    float *key = vkmha_test_values(KEYS * ROW, 2);
    float *value = vkmha_test_values(KEYS * ROW, 3);
    const vkmha_inputs inputs = {.query = query, .key = key, .value = value};
    vkmha_plan_params plan = {.batch_size = 1, .query_len = 1, .key_len = KEYS};
    const vkmha_test_problem one = vkmha_test_problem_of("split keys", &layer, &plan, &inputs, ROW);
    vkmha_test_made made = vkmha_test_make(target, &layer, &plan);
    cr_assert(made.info.num_dispatches == 2, "%u dispatches: keys are not split",
              made.info.num_dispatches);
    vkmha_test_unmake(&made);
    float *split_row = vkmha_test_run(target, &one);
    vkmha_test_compare(target, &one, NULL, split_row);

    /* Four sequences of the same memory, so that there is work for every workgroup without
     * splitting. */
    plan.batch_size = BATCH;
    plan.query_len = QUERIES;
    const vkmha_strides again = {.is_given = true, .row = ROW, .head = DIM};
    plan.query_strides = plan.key_strides = plan.value_strides = again;
    const vkmha_test_problem many =
        vkmha_test_problem_of("split keys", &layer, &plan, &inputs, BATCH * QUERIES * ROW);
    made = vkmha_test_make(target, &layer, &plan);
    cr_assert(made.info.num_dispatches == 1, "%u dispatches: keys are split",
              made.info.num_dispatches);
    vkmha_test_unmake(&made);
    float *rows = vkmha_test_run(target, &many);
    for (uint32_t b = 0; b < BATCH; b++) {
        vkmha_test_same_bits(target, &one, "row 0 of 600", rows + b * QUERIES * ROW, split_row,
                             ROW);
    }

    vkmha_test_problem cut = one;
    cut.plan.max_work_per_dispatch = 20000;
    made = vkmha_test_make(target, &cut.layer, &cut.plan);
    cr_assert(made.info.num_dispatches > 2, "%u dispatches are not cut", made.info.num_dispatches);
    vkmha_test_unmake(&made);
    float *cut_row = vkmha_test_run(target, &cut);
    vkmha_test_same_bits(target, &one, "a work limit", cut_row, split_row, ROW);

    /* The same query as the second sequence of two, whose keys lie behind 7 others. */
    const int32_t query_ends[] = {0, 3, 4};
    const int32_t key_ends[] = {0, 7, 7 + KEYS};
    float *packed_query = vkmha_test_values(4 * ROW, 4);
    float *packed_key = vkmha_test_values((7 + KEYS) * ROW, 5);
    float *packed_value = vkmha_test_values((7 + KEYS) * ROW, 6);
    memcpy(packed_query + 3 * ROW, query, ROW * sizeof(float));
    memcpy(packed_key + 7 * ROW, key, KEYS * ROW * sizeof(float));
    memcpy(packed_value + 7 * ROW, value, KEYS * ROW * sizeof(float));
    const vkmha_plan_params packed_plan = {.batch_size = 2,
                                           .query_len = 3,
                                           .key_len = KEYS,
                                           .is_packed = true,
                                           .total_queries = 4,
                                           .total_keys = 7 + KEYS};
    const vkmha_inputs packed_inputs = {.query = packed_query,
                                        .key = packed_key,
                                        .value = packed_value,
                                        .cu_query_lens = query_ends,
                                        .cu_key_lens = key_ends};
    const vkmha_test_problem packed =
        vkmha_test_problem_of("split keys", &layer, &packed_plan, &packed_inputs, 4 * ROW);
    float *packed_rows = vkmha_test_run(target, &packed);
    vkmha_test_same_bits(target, &packed, "packed", packed_rows + 3 * ROW, split_row, ROW);
    free(packed_query);
    free(packed_key);
    free(packed_value);
    free(packed_rows);
    free(cut_row);
    free(rows);
    free(split_row);
    free(query);
    free(key);
    free(value);
}

Test(cache, split_keys_keep_the_bits, .timeout = 300)
{
    vkmha_test_each_attention_row(split);
}
