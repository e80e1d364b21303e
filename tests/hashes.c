/*
 * Prints a hash of the output of each attention row of every device, for fixed data: the script
 * `same_threads` compares what processes of different numbers of driver threads print. Exit status
 * 77: no device.
 */
#include <vkmha/vkmha.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, DIM = 64, EMBED = HEADS * DIM, BATCH = 2, LENGTH = 96, KEYS = 3000 };

static float *make(uint64_t count, uint64_t seed)
{
    float *values = malloc((size_t)count * sizeof(float));
    if (!values) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (uint64_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)(int32_t)(seed >> 32) / 2147483648.0f / 4.0f;
    }
    return values;
}

static void require(vkmha_status status, const vkmha_error *error)
{
    if (status != VKMHA_OK) {
        fprintf(stderr, "%s: %s\n", vkmha_status_name(status), error->message);
        exit(1);
    }
}

static void hash(const char *device_name, const char *kernel, const char *what, vkmha_layer *layer,
                 const vkmha_plan_params *params, const vkmha_inputs *inputs, uint64_t num_output)
{
    vkmha_error error;
    vkmha_plan *plan = NULL;
    float *output = make(num_output, 9);
    const vkmha_outputs outputs = {.output = output};
    require(vkmha_plan_create(layer, params, &plan, &error), &error);
    require(vkmha_run(plan, inputs, &outputs, &error), &error);
    uint64_t sum = 14695981039346656037u; /* FNV-1a, a word at a time */
    for (uint64_t i = 0; i < num_output; i++) {
        uint32_t bits;
        memcpy(&bits, &output[i], sizeof(bits));
        sum = (sum ^ bits) * 1099511628211u;
    }
    printf("%s %s %s %016" PRIx64 "\n", device_name, kernel, what, sum);
    vkmha_plan_destroy(plan);
    free(output);
}

static void hash_row(vkmha_device *device, const char *device_name, const char *kernel,
                     float *const weights[4], const float *input, const float *keys)
{
    vkmha_error error;
    vkmha_layer *layer = NULL;
    vkmha_layer_params layer_params = {.num_heads = HEADS, .head_dim = DIM, .embed_dim = EMBED};
    vkmha_matrix *matrices[] = {&layer_params.w_q, &layer_params.w_k, &layer_params.w_v,
                                &layer_params.w_o};
    for (int i = 0; i < 4; i++) {
        *matrices[i] = (vkmha_matrix){.data = weights[i], .rows = EMBED, .columns = EMBED};
    }
    require(vkmha_layer_create(device, &layer_params, &layer, &error), &error);
    vkmha_plan_params plan = {.batch_size = BATCH,
                              .query_len = LENGTH,
                              .key_len = LENGTH,
                              .key_is_query = true,
                              .value_is_key = true,
                              .attention_kernel = kernel};
    const vkmha_inputs inputs = {.query = input};
    hash(device_name, kernel, "plain", layer, &plan, &inputs, BATCH * LENGTH * EMBED);
    plan.causal = VKMHA_CAUSAL_TOP_LEFT;
    hash(device_name, kernel, "causal", layer, &plan, &inputs, BATCH * LENGTH * EMBED);
    vkmha_layer_destroy(layer);

    const vkmha_layer_params heads = {.num_heads = HEADS, .head_dim = DIM, .attention_only = true};
    const vkmha_plan_params split = {
        .batch_size = 1, .query_len = 2, .key_len = KEYS, .attention_kernel = kernel};
    const vkmha_inputs many = {.query = input, .key = keys, .value = keys};
    require(vkmha_layer_create(device, &heads, &layer, &error), &error);
    hash(device_name, kernel, "split", layer, &split, &many, 2 * EMBED);
    vkmha_layer_destroy(layer);
}

int main(void)
{
    vkmha_error error;
    uint32_t count = 0;
    const vkmha_status status = vkmha_device_list(NULL, &count, &error);
    if (status == VKMHA_ERROR_NO_DEVICE || count == 0) {
        return 77;
    }
    require(status, &error);
    float *weights[4];
    for (uint64_t i = 0; i < 4; i++) {
        weights[i] = make(EMBED * EMBED, i + 1);
    }
    float *input = make(BATCH * LENGTH * EMBED, 5);
    float *keys = make(KEYS * EMBED, 6);
    for (uint32_t i = 0; i < count; i++) {
        vkmha_device *device = NULL;
        require(vkmha_device_create(&(vkmha_device_params){.has_index = true, .index = i}, &device,
                                    &error),
                &error);
        vkmha_device_info info;
        vkmha_device_get_info(device, &info);
        vkmha_kernel_info kernel;
        for (uint32_t row = 0; vkmha_device_get_kernel(device, row, &kernel); row++) {
            if (kernel.usable && strncmp(kernel.name, "attention_", 10) == 0) {
                hash_row(device, info.name, kernel.name, weights, input, keys);
            }
        }
        vkmha_device_destroy(device);
    }
    for (int i = 0; i < 4; i++) {
        free(weights[i]);
    }
    free(input);
    free(keys);
    return 0;
}
