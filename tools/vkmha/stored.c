#include "stored.h"

#include <string.h>

#include "runtime/convert.h"

static const char *const type_names[] = {
    [VKMHA_TYPE_F32] = "f32",
    [VKMHA_TYPE_F16] = "f16",
    [VKMHA_TYPE_BF16] = "bf16",
};

const char *vkmha_type_name(vkmha_type type)
{
    return type_names[type];
}

bool vkmha_parse_type(const char *option, const char *text, vkmha_type *type)
{
    for (uint32_t i = 0; i < sizeof(type_names) / sizeof(type_names[0]); i++) {
        if (strcmp(text, type_names[i]) == 0) {
            *type = (vkmha_type)i;
            return true;
        }
    }
    vkmha_tool_misuse("%s \"%s\" is not f32, f16 or bf16", option, text);
    return false;
}

vkmha_type vkmha_problem_kept_type(const vkmha_problem *problem)
{
    const vkmha_plan_params *plan = &problem->plan;
    const bool is_kept = plan->past_len > 0 || plan->has_present || plan->cache_capacity > 0;
    return is_kept ? problem->layer.cache_type : VKMHA_TYPE_F32;
}

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* ---- Inputs -------------------------------------------------------------------------------- */

/* A memory that holds input tensors. */
typedef struct stored_memory {
    const void **data;
    vkmha_type type;
    uint64_t count;
} stored_memory;

enum {
    NUM_MEMORIES = 5,
};

/* Of `inputs`, which is the problem's own or a copy; no elements: none. */
static void list_memories(const vkmha_problem *problem, vkmha_inputs *inputs,
                          stored_memory memories[NUM_MEMORIES])
{
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t past_rows = plan->batch_size * sizes.num_kv_heads * plan->past_len;
    const vkmha_type types[] = {plan->query_type, plan->key_type, plan->value_type};
    const void **data[] = {&inputs->query, &inputs->key, &inputs->value};
    for (uint32_t role = 0; role < 3; role++) {
        memories[role] = (stored_memory){.data = data[role], .type = types[role]};
    }
    for (uint32_t role = 0; role < 3; role++) {
        const vkmha_span span = vkmha_problem_span(problem, (vkmha_role)role);
        const uint64_t extent = vkmha_span_extent(&span);
        uint32_t home = role;
        home = home == VKMHA_ROLE_VALUE && plan->value_is_key ? VKMHA_ROLE_KEY : home;
        home = home == VKMHA_ROLE_KEY && plan->key_is_query ? VKMHA_ROLE_QUERY : home;
        memories[home].count = extent > memories[home].count ? extent : memories[home].count;
    }
    memories[3] = (stored_memory){&inputs->past_key, problem->layer.cache_type,
                                  past_rows * problem->layer.head_dim};
    memories[4] = (stored_memory){&inputs->past_value, problem->layer.cache_type,
                                  past_rows * sizes.v_head_dim};
}

void vkmha_problem_round(const vkmha_problem *problem)
{
    vkmha_inputs inputs = problem->inputs;
    stored_memory memories[NUM_MEMORIES];
    list_memories(problem, &inputs, memories);
    for (uint32_t i = 0; i < NUM_MEMORIES; i++) {
        const stored_memory *memory = &memories[i];
        float *values = (float *)*memory->data; /* const only to those that read them */
        for (uint64_t k = 0; memory->type != VKMHA_TYPE_F32 && k < memory->count; k++) {
            uint16_t stored;
            vkmha_store_element(&stored, memory->type, 0, values[k]);
            values[k] = vkmha_load_element(&stored, memory->type, 0);
        }
    }
}

static void *store_values(const float *values, uint64_t count, vkmha_type type, vkmha_pool *pool)
{
    void *stored = vkmha_pool_allocate(pool, count, vkmha_type_bytes(type));
    for (uint64_t i = 0; stored && i < count; i++) {
        vkmha_store_element(stored, type, i, values[i]);
    }
    return stored;
}

vkmha_status vkmha_stored_inputs(const vkmha_problem *problem, vkmha_pool *pool,
                                 vkmha_inputs *inputs, vkmha_error *error)
{
    *inputs = problem->inputs;
    stored_memory memories[NUM_MEMORIES];
    list_memories(problem, inputs, memories);
    for (uint32_t i = 0; i < NUM_MEMORIES; i++) {
        const stored_memory *memory = &memories[i];
        if (memory->type != VKMHA_TYPE_F32 && *memory->data) {
            *memory->data = store_values(*memory->data, memory->count, memory->type, pool);
            if (!*memory->data) {
                return out_of_memory(error);
            }
        }
    }
    return VKMHA_OK;
}

vkmha_status vkmha_problem_round_weights(vkmha_problem *problem, vkmha_type weight_type,
                                         vkmha_pool *pool, vkmha_error *error)
{
    vkmha_layer_params *layer = &problem->layer;
    vkmha_matrix *matrices[] = {&layer->w_q, &layer->w_k, &layer->w_v, &layer->w_o};
    if (layer->attention_only || weight_type == VKMHA_TYPE_F32) {
        return VKMHA_OK;
    }
    layer->weight_type = weight_type;
    for (size_t i = 0; i < sizeof(matrices) / sizeof(matrices[0]); i++) {
        vkmha_matrix *matrix = matrices[i];
        const uint64_t row_stride = matrix->row_stride ? matrix->row_stride : matrix->columns;
        const uint64_t column_stride = matrix->column_stride ? matrix->column_stride : 1;
        void *rounded = vkmha_pool_allocate(pool, matrix->rows * matrix->columns,
                                            vkmha_type_bytes(weight_type));
        if (!rounded) {
            return out_of_memory(error);
        }
        for (uint64_t e = 0; e < matrix->rows * matrix->columns; e++) {
            const uint64_t at =
                e / matrix->columns * row_stride + e % matrix->columns * column_stride;
            vkmha_store_element(rounded, weight_type, e,
                                vkmha_load_element(matrix->data, matrix->type, at));
        }
        *matrix = (vkmha_matrix){.data = rounded,
                                 .type = weight_type,
                                 .rows = matrix->rows,
                                 .columns = matrix->columns};
    }
    return VKMHA_OK;
}

/* ---- Calls --------------------------------------------------------------------------------- */

vkmha_status vkmha_stored_run(vkmha_plan *plan, const vkmha_problem *problem,
                              const vkmha_outputs *outputs, uint64_t guard, vkmha_pool *pool,
                              vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const vkmha_span span = vkmha_problem_span(problem, VKMHA_ROLE_OUTPUT);
    vkmha_outputs stored = *outputs;
    const struct {
        void **memory;
        float *values;
        vkmha_type type;
        uint64_t count;
    } tensors[] = {
        {&stored.output, outputs->output, problem->plan.output_type,
         vkmha_span_extent(&span) + guard},
        {&stored.present_key, outputs->present_key, problem->layer.cache_type,
         sizes.present_key + guard},
        {&stored.present_value, outputs->present_value, problem->layer.cache_type,
         sizes.present_value + guard},
    };
    const size_t num_tensors = sizeof(tensors) / sizeof(tensors[0]);
    vkmha_inputs inputs;
    vkmha_status status = vkmha_stored_inputs(problem, pool, &inputs, error);
    for (size_t i = 0; i < num_tensors && status == VKMHA_OK; i++) {
        if (tensors[i].values && tensors[i].type != VKMHA_TYPE_F32) {
            *tensors[i].memory =
                store_values(tensors[i].values, tensors[i].count, tensors[i].type, pool);
            status = *tensors[i].memory ? VKMHA_OK : out_of_memory(error);
        }
    }
    if (status == VKMHA_OK) {
        status = vkmha_run(plan, &inputs, &stored, error);
    }
    for (size_t i = 0; i < num_tensors && status == VKMHA_OK; i++) {
        const bool is_loaded = tensors[i].values && tensors[i].type != VKMHA_TYPE_F32;
        for (uint64_t k = 0; is_loaded && k < tensors[i].count; k++) {
            tensors[i].values[k] =
                vkmha_load_element(*tensors[i].memory, tensors[i].type, k);
        }
    }
    return status;
}

vkmha_status vkmha_stored_reference(const vkmha_problem *problem, const vkmha_chains *chains,
                                    const vkmha_reference_outputs *outputs, vkmha_pool *pool,
                                    vkmha_error *error)
{
    vkmha_inputs inputs;
    const vkmha_status status = vkmha_stored_inputs(problem, pool, &inputs, error);
    return status != VKMHA_OK ? status
                              : vkmha_reference_run(&problem->layer, &problem->plan, &inputs,
                                                    chains, NULL, outputs, error);
}

void vkmha_stored_round(vkmha_type type, uint64_t count, double *values, double *bounds)
{
    for (uint64_t i = 0; type != VKMHA_TYPE_F32 && i < count; i++) {
        vkmha_round_interval(type, &values[i], &bounds[i]);
    }
}
