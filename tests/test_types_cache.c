/* Kept keys and values of 16 bits: caches, and past and present that do as a cache does; and outputs
 * in the caller's buffers, whose words are not all the output's. */
#include "typed.h"

#include "runtime/record.h"

/* ---- Caches ---------------------------------------------------------------------------------- */

enum {
    BATCH = 2,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 6,
    V_DIM = 5,
    EMBED = 24,
    CAPACITY = 40,
    MOST = 9, /* tokens of a step */
};

/* What one way of keeping keys holds between steps. */
typedef struct kept {
    void *key;
    void *value;
    uint64_t length;
} kept;

static vkmha_plan_params step_plan(uint64_t tokens)
{
    return (vkmha_plan_params){.batch_size = BATCH,
                               .query_len = tokens,
                               .key_len = tokens,
                               .key_is_query = true,
                               .value_is_key = true,
                               .causal = VKMHA_CAUSAL_BOTTOM_RIGHT,
                               .query_type = VKMHA_TYPE_BF16,
                               .key_type = VKMHA_TYPE_BF16,
                               .value_type = VKMHA_TYPE_BF16};
}

/* One step by past and present; its output, and in `past` what is kept then. */
static float *run_chained(const vkmha_test_target *target, vkmha_layer *layer,
                          const vkmha_layer_params *params, const void *input, uint64_t tokens,
                          kept *past)
{
    vkmha_plan_params plan = step_plan(tokens);
    plan.past_len = past->length;
    plan.has_present = true;
    const uint64_t rows = BATCH * KV_HEADS * (past->length + tokens);
    const uint32_t bytes = vkmha_type_bytes(params->cache_type);
    const kept present = {.key = vkmha_test_allocate(rows * DIM, bytes),
                          .value = vkmha_test_allocate(rows * V_DIM, bytes),
                          .length = past->length + tokens};
    float *output = vkmha_test_allocate(BATCH * tokens * EMBED, sizeof(float));
    const vkmha_inputs inputs = {
        .query = input, .past_key = past->key, .past_value = past->value};
    const vkmha_outputs outputs = {
        .output = output, .present_key = present.key, .present_value = present.value};
    vkmha_error error;
    vkmha_test_made made = vkmha_test_plan_of(target, layer, params, &plan);
    cr_assert_eq(vkmha_run(made.plan, &inputs, &outputs, &error), VKMHA_OK, "%s", error.message);
    vkmha_plan_destroy(made.plan);
    const vkmha_test_problem problem =
        vkmha_test_problem_of("chained", params, &plan, &inputs, BATCH * tokens * EMBED);
    vkmha_test_compare(target, &problem, &made.info.chains, output);
    free(past->key);
    free(past->value);
    *past = present;
    return output;
}

static float *run_cached(const vkmha_test_target *target, vkmha_layer *layer,
                         const vkmha_layer_params *params, const void *input, uint64_t tokens,
                         vkmha_cache *cache)
{
    vkmha_plan_params plan = step_plan(tokens);
    plan.cache_capacity = CAPACITY;
    float *output = vkmha_test_allocate(BATCH * tokens * EMBED, sizeof(float));
    const vkmha_inputs inputs = {.query = input, .cache = cache};
    vkmha_test_made made = vkmha_test_plan_of(target, layer, params, &plan);
    const uint64_t features = (DIM + 3) / 4 * 4 + (V_DIM + 3) / 4 * 4;
    cr_assert_eq(made.info.append_bytes, BATCH * tokens * KV_HEADS * features *
                                             vkmha_type_bytes(params->cache_type));
    vkmha_test_made_run(&made, &inputs, output);
    vkmha_plan_destroy(made.plan);
    return output;
}

static void decode(const vkmha_test_target *target, vkmha_type cache_type, vkmha_rope_style style)
{
    static const uint64_t steps[] = {MOST, 1, 1, 4, 1};
    vkmha_layer_params params = {.num_heads = HEADS,
                                 .num_kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .v_head_dim = V_DIM,
                                 .embed_dim = EMBED,
                                 .rope = {.style = style,
                                          .max_positions = style ? CAPACITY : 0},
                                 .cache_type = cache_type};
    const vkmha_plan_params shape = {.batch_size = 1, .query_len = 1, .key_len = 1};
    vkmha_test_problem weights;
    vkmha_test_problem_init(&weights, &params, &shape, "weights");
    vkmha_layer *layer = NULL;
    vkmha_cache *cache = NULL;
    vkmha_error error;
    cr_assert_eq(vkmha_layer_create(target->device, &weights.layer, &layer, &error), VKMHA_OK, "%s",
                 error.message);
    cr_assert_eq(vkmha_cache_create(layer, BATCH, CAPACITY, &cache, &error), VKMHA_OK, "%s",
                 error.message);
    kept past = {0};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const uint64_t count = BATCH * steps[i] * EMBED;
        void *input = vkmha_test_drawn(count, VKMHA_TYPE_BF16, 40 + i);
        float *chained = run_chained(target, layer, &weights.layer, input, steps[i], &past);
        float *cached = run_cached(target, layer, &weights.layer, input, steps[i], cache);
        vkmha_test_same_bits(target, &weights, "a cache and a chain", cached, chained, count);
        free(input);
        free(chained);
        free(cached);
    }
    cr_assert_eq(vkmha_cache_length(cache, 1), past.length);
    free(past.key);
    free(past.value);
    vkmha_cache_destroy(cache);
    vkmha_layer_destroy(layer);
    vkmha_test_problem_finish(&weights);
}

static void decodes(const vkmha_test_target *target)
{
    decode(target, VKMHA_TYPE_F16, VKMHA_ROPE_HALF);
    decode(target, VKMHA_TYPE_BF16, VKMHA_ROPE_INTERLEAVED);
    decode(target, VKMHA_TYPE_BF16, VKMHA_ROPE_NONE);
}

Test(types_cache, a_chain_of_presents_is_a_cache, .timeout = 300)
{
    vkmha_test_each_row(decodes);
}

/* ---- Words that are shared ------------------------------------------------------------------- */

static void *fill_block(vkmha_device *device, vkmha_block *block, const void *data, uint64_t bytes,
                        uint64_t padded)
{
    vkmha_error error;
    cr_assert_eq(vkmha_block_create(device, padded, VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
                                    VKMHA_MEMORY_READBACK, block, &error),
                 VKMHA_OK, "%s", error.message);
    cr_assert(block->mapped, "memory that the host reads is mapped");
    const vkmha_byte_source source = {data, bytes};
    if (data) {
        cr_assert_eq(vkmha_upload(device, block, 0, padded, vkmha_fill_bytes, &source, &error),
                     VKMHA_OK, "%s", error.message);
    }
    return block->mapped;
}

/* Records a plan into buffers full of canaries; the words behind and between its output survive, and
 * the output is vkmha_run's. */
static void check_recorded(const vkmha_test_target *target, const vkmha_layer_params *layer,
                           const vkmha_plan_params *plan)
{
    vkmha_device *device = target->device;
    vkmha_error error;
    vkmha_test_made made = vkmha_test_make(target, layer, plan);
    const vkmha_sizes *sizes = &made.plan->sizes;
    const vkmha_type type = plan->output_type;
    void *query = vkmha_test_drawn(sizes->query, plan->query_type, 1);
    void *key = vkmha_test_drawn(sizes->key, plan->key_type, 2);
    void *value = vkmha_test_drawn(sizes->value, plan->value_type, 3);
    void *expected = vkmha_test_canaries(sizes->output + 4, type);
    const vkmha_inputs inputs = {.query = query,
                                 .key = plan->key_is_query ? NULL : key,
                                 .value = plan->value_is_key ? NULL : value};
    const vkmha_outputs outputs = {.output = expected};
    cr_assert_eq(vkmha_run(made.plan, &inputs, &outputs, &error), VKMHA_OK, "%s", error.message);

    vkmha_block blocks[5] = {{0}};
    vkmha_buffers buffers = {0};
    const struct {
        vkmha_buffer *buffer;
        vkmha_resource resource;
        const void *data;
        uint64_t bytes;
    } tensors[] = {
        {&buffers.query, VKMHA_RESOURCE_QUERY, query, sizes->query * vkmha_type_bytes(plan->query_type)},
        {&buffers.key, VKMHA_RESOURCE_KEY, key, sizes->key * vkmha_type_bytes(plan->key_type)},
        {&buffers.value, VKMHA_RESOURCE_VALUE, value,
         sizes->value * vkmha_type_bytes(plan->value_type)},
        {&buffers.output, VKMHA_RESOURCE_OUTPUT, NULL, 0},
        {&buffers.workspace, VKMHA_RESOURCE_WORKSPACE, NULL, 0},
    };
    void *canaries = vkmha_test_canaries(sizes->output + 4, type);
    for (uint32_t i = 0; i < 5; i++) {
        const vkmha_slot slot = vkmha_plan_slot(made.plan, tensors[i].resource);
        const bool is_output = tensors[i].resource == VKMHA_RESOURCE_OUTPUT;
        if (slot.is_used && slot.bytes > 0) {
            const uint64_t padded = slot.bytes + (is_output ? 4 : 0);
            fill_block(device, &blocks[i], is_output ? canaries : tensors[i].data,
                       is_output ? padded : tensors[i].bytes, padded);
            *tensors[i].buffer = (vkmha_buffer){blocks[i].buffer, 0, padded};
        }
    }
    vkmha_bindings *bindings = NULL;
    vkmha_commands commands = {0};
    cr_assert_eq(vkmha_bindings_create(made.plan, &buffers, &bindings, &error), VKMHA_OK, "%s",
                 error.message);
    cr_assert_eq(vkmha_commands_begin(device, &commands, &error), VKMHA_OK);
    cr_assert_eq(vkmha_record(made.plan, bindings, commands.buffer, NULL, &error), VKMHA_OK);
    cr_assert_eq(vkmha_commands_submit(device, &commands, &error), VKMHA_OK);
    cr_assert_eq(vkmha_block_invalidate(device, &blocks[3], &error), VKMHA_OK);
    for (uint64_t i = 0; i < sizes->output + 1; i++) {
        const uint32_t bytes = vkmha_type_bytes(type);
        cr_assert(memcmp((const char *)blocks[3].mapped + i * bytes,
                         (const char *)expected + i * bytes, bytes) == 0,
                  "%s, %s, %s: element %llu of the output's memory differs", target->device_name,
                  target->project_kernel, target->attention_kernel, (unsigned long long)i);
    }
    vkmha_commands_finish(device, &commands);
    vkmha_bindings_destroy(bindings);
    for (uint32_t i = 0; i < 5; i++) {
        vkmha_block_destroy(device, &blocks[i]);
    }
    vkmha_test_unmake(&made);
    free(query);
    free(key);
    free(value);
    free(expected);
    free(canaries);
}

static void shared_words(const vkmha_test_target *target)
{
    for (uint32_t n = 0; n < 4; n++) {
        const vkmha_type type = n % 2 ? VKMHA_TYPE_F16 : VKMHA_TYPE_BF16;
        const vkmha_layer_params alone = {
            .num_heads = 3, .head_dim = 5, .v_head_dim = 7, .attention_only = true};
        /* Rows of 21 elements with none, then one, between them. */
        const vkmha_plan_params attention = {
            .batch_size = 2,
            .query_len = 33,
            .key_len = 19,
            .output_strides = {true, n, 33 * (21 + n / 2) + 1, 21 + n / 2, 7},
            .key_type = type,
            .output_type = type};
        check_recorded(target, &alone, &attention);
        const vkmha_layer_params projected = {.num_heads = 2, .head_dim = 4, .embed_dim = 15};
        vkmha_plan_params plan = {.batch_size = 2,
                                  .query_len = 37,
                                  .key_len = 37,
                                  .key_is_query = true,
                                  .value_is_key = true,
                                  .output_strides = {true, n, 37 * (15 + n / 2), 15 + n / 2, 0},
                                  .output_type = type};
        vkmha_test_problem weights;
        vkmha_test_problem_init(&weights, &projected, &plan, "weights");
        check_recorded(target, &weights.layer, &plan);
        vkmha_test_problem_finish(&weights);
    }
}

Test(types_cache, what_shares_a_word_survives, .timeout = 300)
{
    vkmha_test_each_row(shared_words);
}
