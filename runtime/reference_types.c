/* What storage makes of a problem: inputs in fp32, weights as the device rounds them, and an output as
 * its type holds it. */
#include "convert.h"
#include "host.h"
#include "reference.h"

/* *data in fp32, if it is not; *memory is to be released. */
static bool widen_tensor(const void **data, vkmha_type type, uint64_t count, const vkmha_host *host,
                         void **memory)
{
    if (type == VKMHA_TYPE_F32 || !*data) {
        return true;
    }
    float *values = vkmha_host_allocate(host, count, sizeof(float));
    for (uint64_t i = 0; values && i < count; i++) {
        values[i] = vkmha_load_element(*data, type, i);
    }
    *memory = values;
    *data = values;
    return values != NULL;
}

/* The matrix in the type, rounded where it is another. */
static bool round_matrix(vkmha_matrix *matrix, vkmha_type type, const vkmha_host *host,
                         void **memory)
{
    if (type == VKMHA_TYPE_F32 || type == matrix->type || !matrix->data) {
        return true;
    }
    void *values = vkmha_host_allocate(host, matrix->rows * matrix->columns, vkmha_type_bytes(type));
    for (uint64_t r = 0; values && r < matrix->rows; r++) {
        for (uint64_t c = 0; c < matrix->columns; c++) {
            const uint64_t at = r * matrix->row_stride + c * matrix->column_stride;
            vkmha_store_element(values, type, r * matrix->columns + c,
                                vkmha_load_element(matrix->data, matrix->type, at));
        }
    }
    *memory = values;
    matrix->data = values;
    matrix->type = type;
    matrix->row_stride = matrix->columns;
    matrix->column_stride = 1;
    return values != NULL;
}

bool vkmha_reference_widen(const vkmha_plan_params *plan, const vkmha_sizes *sizes,
                           const vkmha_host *host, vkmha_layer_params *layer, vkmha_inputs *inputs,
                           vkmha_widened *widened)
{
    const struct {
        const void **data;
        vkmha_type type;
        uint64_t count;
    } tensors[] = {
        {&inputs->query, plan->query_type, sizes->query},
        {&inputs->key, plan->key_type, sizes->key},
        {&inputs->value, plan->value_type, sizes->value},
        {&inputs->past_key, layer->cache_type, sizes->past_key},
        {&inputs->past_value, layer->cache_type, sizes->past_value},
    };
    vkmha_matrix *matrices[] = {&layer->w_q, &layer->w_k, &layer->w_v, &layer->w_o};
    *widened = (vkmha_widened){0};
    void **memory = widened->memory;
    bool has_memory = true;
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        has_memory = has_memory && widen_tensor(tensors[i].data, tensors[i].type, tensors[i].count,
                                                host, memory++);
    }
    for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
        has_memory = has_memory && round_matrix(matrices[i], layer->weight_type, host, memory++);
    }
    /* Tensors of one memory have one copy. */
    inputs->key = plan->key_is_query ? inputs->query : inputs->key;
    inputs->value = plan->value_is_key ? inputs->key : inputs->value;
    return has_memory;
}

void vkmha_widened_finish(vkmha_widened *widened, const vkmha_host *host)
{
    for (uint32_t i = 0; i < VKMHA_NUM_WIDENED; i++) {
        vkmha_host_release(host, widened->memory[i]);
    }
    *widened = (vkmha_widened){0};
}

void vkmha_reference_store(vkmha_type type, uint64_t count, double *values, double *bounds)
{
    for (uint64_t i = 0; type != VKMHA_TYPE_F32 && i < count; i++) {
        vkmha_round_interval(type, &values[i], &bounds[i]);
    }
}
