/* Plain loops in double, each element with the error that fp32 kernels may make in it. */
#include "reference.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "host.h"

/* Attention alone is the output: contiguous, in the plan's layout. */
static void copy_attention(const vkmha_reference *reference, const double *from, double *to)
{
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_values *attention = &reference->attention;
    const uint64_t rows = reference->sizes.query_rows;
    const uint64_t length = plan->is_packed ? rows : plan->query_len;
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t h = 0; h < attention->heads; h++) {
            const uint64_t heads_first =
                (row / length * attention->heads + h) * length + row % length;
            const uint64_t at = plan->layout == VKMHA_LAYOUT_BHSD
                                    ? heads_first * attention->features
                                    : vkmha_values_at(attention, row, h);
            memcpy(to + at, from + vkmha_values_at(attention, row, h),
                   attention->features * sizeof(double));
        }
    }
}

/* All of a sequence's keys or values, heads first; `to` may be NULL. */
static void copy_present(const vkmha_reference *reference, const vkmha_values *all,
                         const double *from, double *to)
{
    const uint64_t all_keys = reference->sizes.all_keys;
    for (uint64_t b = 0; to && b < reference->plan->batch_size; b++) {
        for (uint64_t h = 0; h < all->heads; h++) {
            for (uint64_t j = 0; j < all_keys; j++) {
                memcpy(to + ((b * all->heads + h) * all_keys + j) * all->features,
                       from + vkmha_values_at(all, b * all_keys + j, h),
                       all->features * sizeof(double));
            }
        }
    }
}

static uint64_t output_count(const vkmha_reference *reference)
{
    const vkmha_layer_params *layer = reference->layer;
    return layer->attention_only ? reference->sizes.heads_attention
                                 : reference->sizes.query_rows * layer->output_dim;
}

static void write_outputs(const vkmha_reference *reference, const vkmha_reference_outputs *outputs)
{
    const vkmha_layer_params *layer = reference->layer;
    const vkmha_values *attention = &reference->attention;
    if (layer->attention_only) {
        if (outputs->output) {
            copy_attention(reference, attention->value, outputs->output);
        }
        if (outputs->output_bound) {
            copy_attention(reference, attention->bound, outputs->output_bound);
        }
    } else {
        const vkmha_feature_rows features = {
            .value = attention->value,
            .bound = attention->bound,
            .rows_per_batch = reference->sizes.query_rows,
            .row_stride = attention->heads * attention->features,
        };
        vkmha_reference_project_rows(&features, reference->sizes.query_rows, &layer->w_o,
                                     &layer->b_o, reference->chains.output, outputs->output,
                                     outputs->output_bound);
    }
    if (outputs->output && outputs->output_bound) {
        vkmha_reference_store(reference->plan->output_type, output_count(reference),
                              outputs->output, outputs->output_bound);
    }
    const vkmha_values *key = &reference->key;
    const vkmha_values *value = &reference->value;
    copy_present(reference, key, key->value, outputs->present_key);
    copy_present(reference, key, key->bound, outputs->present_key_bound);
    copy_present(reference, value, value->value, outputs->present_value);
    copy_present(reference, value, value->bound, outputs->present_value_bound);
}

/* Results that a plan has no one shape for. */
static vkmha_status check_outputs(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                  const vkmha_reference_outputs *outputs, vkmha_error *error)
{
    if (plan->cache_capacity != 0) {
        return vkmha_fail(error, VKMHA_ERROR_UNSUPPORTED,
                          "cache_capacity %" PRIu64
                          ": the reference has no cache, give its keys and "
                          "values as past_key and past_value",
                          plan->cache_capacity);
    }
    const struct {
        const char *field;
        const double *data;
    } padded[] = {
        {"present_key", outputs->present_key},
        {"present_key_bound", outputs->present_key_bound},
        {"present_value", outputs->present_value},
        {"present_value_bound", outputs->present_value_bound},
    };
    for (size_t i = 0; i < sizeof(padded) / sizeof(padded[0]); i++) {
        if (plan->is_packed && padded[i].data) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                              "outputs.%s is given, but not with is_packed", padded[i].field);
        }
    }
    const struct {
        const char *field;
        bool is_given;
        bool is_refused;
        const char *rule;
    } rules[] = {
        {"scores", outputs->scores || outputs->scores_bound, plan->scores == VKMHA_SCORES_NONE,
         "the plan has no scores"},
        {"contributions", outputs->contributions || outputs->contributions_bound,
         layer->attention_only, "attention_only has no W_O"},
        {"gate_gradients", outputs->gate_gradients || outputs->gate_gradients_bound,
         !plan->has_gate_gradients, "the plan has no has_gate_gradients"},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (rules[i].is_given && rules[i].is_refused) {
            return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "outputs.%s is given, but %s",
                              rules[i].field, rules[i].rule);
        }
    }
    return VKMHA_OK;
}

static vkmha_status run(vkmha_reference *reference, const vkmha_host *host,
                        const vkmha_reference_outputs *outputs, vkmha_error *error)
{
    const vkmha_layer_params *layer = reference->layer;
    const vkmha_sizes *sizes = &reference->sizes;
    const uint64_t kv_heads = layer->num_kv_heads;
    const uint64_t key_rows = reference->zero_row + 1;
    const uint64_t scores = sizes->all_keys + VKMHA_FURTHER_KEYS;
    const uint64_t added = vkmha_reference_contributes(outputs)
                               ? VKMHA_CONTRIBUTE_ROWS * (uint64_t)layer->output_dim
                               : 0;
    /* What is rounded for storage is a value and its bound, whichever of them is asked for. */
    const bool is_rounded = reference->plan->output_type != VKMHA_TYPE_F32;
    vkmha_reference_outputs both = {0};
    const uint64_t rounded = is_rounded ? output_count(reference) : 0;
    vkmha_values new_key = {.heads = kv_heads, .features = layer->head_dim};
    vkmha_values new_value = {.heads = kv_heads, .features = layer->v_head_dim};
    vkmha_scratch *scratch = &reference->scratch;
    const struct {
        double **memory;
        uint64_t count;
    } blocks[] = {
        {&reference->query.value, sizes->heads_query},
        {&reference->query.bound, sizes->heads_query},
        {&new_key.value, sizes->heads_key},
        {&new_key.bound, sizes->heads_key},
        {&new_value.value, sizes->heads_value},
        {&new_value.bound, sizes->heads_value},
        {&reference->key.value, key_rows * kv_heads * layer->head_dim},
        {&reference->key.bound, key_rows * kv_heads * layer->head_dim},
        {&reference->value.value, key_rows * kv_heads * layer->v_head_dim},
        {&reference->value.bound, key_rows * kv_heads * layer->v_head_dim},
        {&reference->attention.value, sizes->heads_attention},
        {&reference->attention.bound, sizes->heads_attention},
        {&both.output, rounded},
        {&both.output_bound, rounded},
        {&scratch->score, scores},
        {&scratch->slack, scores},
        {&scratch->weight, scores},
        {&scratch->most, scores},
        {&scratch->column, scores},
        {&scratch->column_bound, scores},
        {&scratch->added, added},
        {&scratch->added_bound, added},
    };
    const size_t num_blocks = sizeof(blocks) / sizeof(blocks[0]);
    double *memory[sizeof(blocks) / sizeof(blocks[0])] = {0};
    scratch->key = vkmha_host_allocate(host, scores, sizeof(*scratch->key));
    scratch->row = vkmha_host_allocate(host, scores, sizeof(*scratch->row));
    scratch->spread = vkmha_host_allocate(host, layer->v_head_dim, sizeof(*scratch->spread));
    bool has_memory = scratch->key && scratch->row && scratch->spread;
    for (size_t i = 0; i < num_blocks && has_memory; i++) {
        memory[i] = vkmha_host_allocate(host, blocks[i].count, sizeof(double));
        *blocks[i].memory = memory[i];
        has_memory = memory[i] != NULL;
    }
    vkmha_status status = VKMHA_OK;
    if (has_memory) {
        vkmha_reference_heads(reference, &new_key, &new_value);
        if (sizes->query_rows > 0) { /* nothing is told of no queries */
            vkmha_reference_attend(reference);
            vkmha_reference_contribute(reference);
        }
        vkmha_reference_outputs written = *outputs;
        if (is_rounded && (outputs->output || outputs->output_bound)) {
            written.output = outputs->output ? outputs->output : both.output;
            written.output_bound = outputs->output_bound ? outputs->output_bound : both.output_bound;
        }
        write_outputs(reference, &written);
    } else {
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    for (size_t i = 0; i < num_blocks; i++) {
        vkmha_host_release(host, memory[i]);
    }
    vkmha_host_release(host, scratch->spread);
    vkmha_host_release(host, scratch->row);
    vkmha_host_release(host, scratch->key);
    return status;
}

vkmha_status vkmha_reference_run(const vkmha_layer_params *layer, const vkmha_plan_params *plan,
                                 const vkmha_inputs *inputs, const vkmha_chains *chains,
                                 const vkmha_host *host, const vkmha_reference_outputs *outputs,
                                 vkmha_error *error)
{
    vkmha_error_clear(error);
    vkmha_layer_params checked_layer;
    vkmha_plan_params checked_plan;
    vkmha_inputs checked_inputs;
    vkmha_host services;
    vkmha_status status = outputs
                              ? vkmha_host_init(&services, host, error)
                              : vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "outputs is NULL");
    if (status == VKMHA_OK) {
        status = vkmha_check_layer(layer, &checked_layer, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_plan(&checked_layer, plan, &checked_plan, error);
    }
    if (status == VKMHA_OK) {
        status = check_outputs(&checked_layer, &checked_plan, outputs, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_inputs(&checked_layer, &checked_plan, inputs, &checked_inputs, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    const uint64_t num_heads = checked_layer.num_heads;
    const uint64_t kv_heads = checked_layer.num_kv_heads;
    const uint64_t head_dim = checked_layer.head_dim;
    const uint64_t v_head_dim = checked_layer.v_head_dim;
    const double fp32_scale = (double)checked_layer.scale;
    const double scale = layer->has_scale ? fp32_scale : 1.0 / sqrt((double)head_dim);
    vkmha_reference reference = {
        .layer = &checked_layer,
        .plan = &checked_plan,
        .inputs = &checked_inputs,
        .chains = chains ? *chains : (vkmha_chains){0},
        .scale = scale,
        .scale_off = fabs(scale - fp32_scale),
        .query = {.heads = num_heads, .features = head_dim},
        .key = {.heads = kv_heads, .features = head_dim},
        .value = {.heads = kv_heads, .features = v_head_dim},
        .attention = {.heads = num_heads, .features = v_head_dim},
        .outputs = outputs,
    };
    vkmha_plan_sizes(&checked_layer, &checked_plan, &reference.sizes);
    reference.bias_row = checked_plan.is_packed
                             ? checked_plan.total_keys
                             : checked_plan.batch_size * reference.sizes.all_keys;
    reference.zero_row = reference.bias_row + 1;
    vkmha_widened widened;
    status = vkmha_reference_widen(&checked_plan, &reference.sizes, &services, &checked_layer,
                                   &checked_inputs, &widened)
                 ? run(&reference, &services, outputs, error)
                 : vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    vkmha_widened_finish(&widened, &services);
    return status;
}
