/* F58: four threads, each with a layer of its own on one device, give what one thread gives. */
#include <vkmha/vkmha.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, RUNS = 50, WIDTH = 16, MAX_TOKENS = 40 };

typedef struct vkmha_job {
    vkmha_device *device;
    uint32_t number;
    float output[MAX_TOKENS * WIDTH];
    int failures;
} vkmha_job;

static int run_job(vkmha_job *job, int runs, float *output)
{
    float weights[WIDTH * WIDTH];
    float input[MAX_TOKENS * WIDTH];
    const uint64_t tokens = 7 + 11 * job->number;
    for (uint32_t i = 0; i < WIDTH * WIDTH; i++) {
        weights[i] = (float)(int)((i * (7 + job->number)) % 13) / 16.0f - 0.4f;
    }
    for (uint32_t i = 0; i < tokens * WIDTH; i++) {
        input[i] = (float)(int)((i * (5 + job->number)) % 11) / 4.0f - 1.2f;
    }
    vkmha_layer_params layer_params = {.num_heads = 4, .head_dim = 4, .embed_dim = WIDTH};
    layer_params.w_q = (vkmha_matrix){.data = weights, .rows = WIDTH, .columns = WIDTH};
    layer_params.w_k = layer_params.w_v = layer_params.w_o = layer_params.w_q;
    const vkmha_plan_params plan_params = {.batch_size = 1,
                                           .query_len = tokens,
                                           .key_len = tokens,
                                           .key_is_query = true,
                                           .value_is_key = true,
                                           .causal = VKMHA_CAUSAL_TOP_LEFT};
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    int failures = 0;
    for (int run = 0; run < runs; run++) {
        float got[MAX_TOKENS * WIDTH] = {0};
        if (run % 10 == 0) {
            vkmha_plan_destroy(plan);
            vkmha_layer_destroy(layer);
            plan = NULL;
            layer = NULL;
            if (vkmha_layer_create(job->device, &layer_params, &layer, NULL) != VKMHA_OK ||
                vkmha_plan_create(layer, &plan_params, &plan, NULL) != VKMHA_OK) {
                failures++;
                break;
            }
        }
        if (vkmha_run(plan, &(vkmha_inputs){.query = input}, &(vkmha_outputs){.output = got}, NULL) !=
            VKMHA_OK) {
            failures++;
        }
        if (runs == 1) {
            memcpy(output, got, sizeof(got));
        } else if (memcmp(output, got, sizeof(got)) != 0) {
            failures++;
        }
    }
    vkmha_plan_destroy(plan);
    vkmha_layer_destroy(layer);
    return failures;
}

static void *thread_main(void *user)
{
    vkmha_job *job = user;
    job->failures += run_job(job, RUNS, job->output);
    return NULL;
}

int main(void)
{
    vkmha_error error;
    vkmha_device *device = NULL;
    if (vkmha_device_create(&(vkmha_device_params){.allow_software = true}, &device, &error) !=
        VKMHA_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    static vkmha_job jobs[THREADS];
    pthread_t threads[THREADS];
    int failures = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        jobs[i].device = device;
        jobs[i].number = i % 3;
        jobs[i].failures = run_job(&jobs[i], 1, jobs[i].output);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, thread_main, &jobs[i]) != 0) {
            return 1;
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        failures += jobs[i].failures;
    }
    vkmha_device_destroy(device);
    printf("%d threads, %d runs each: %d failures\n", THREADS, RUNS, failures);
    return failures == 0 ? 0 : 1;
}
