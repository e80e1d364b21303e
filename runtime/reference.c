/* The CPU reference: plain loops in double, each element with the error that fp32 kernels may make in it. */
#include <vkmha/vkmha_reference.h>

#include <float.h>
#include <string.h>

#include "convert.h"
#include "host.h"
#include "params.h"
#include "reference_bound.h"

/* A tensor in double with what its elements may be off by; [batch, position, head, feature] by strides. */
typedef struct vkmha_values {
    double *value;
    double *bound; /* NULL: exact */
    uint64_t batch_stride;
    uint64_t head_stride;
    uint64_t row_stride;
} vkmha_values;

typedef struct vkmha_reference {
    const vkmha_layer_params *layer;
    const vkmha_plan_params *plan;
    const vkmha_inputs *inputs;
    vkmha_chains chains;
    vkmha_values query;
    vkmha_values key;
    vkmha_values value;
    vkmha_values attention;
    double *weights; /* the caller's, or NULL */
    /* Of one query, key_len of each. */
    double *score;
    double *slack; /* how far a score may be off, then how far a weight may be */
    double *weight;
    bool *is_allowed;
} vkmha_reference;

static uint64_t longest(uint64_t chain, uint64_t worst)
{
    return chain != 0 ? chain : worst;
}

/* ---- Projections -------------------------------------------------------------------------------------- */

/* Rows of features: exact fp32, or double with what each may be off by. */
typedef struct vkmha_feature_rows {
    const float *exact;
    const double *value;
    const double *bound;
} vkmha_feature_rows;

/* output[r, n] = sum_k input[r, k] * weight[n, k] + bias[n]; output and bound may be NULL. */
static void project(const vkmha_feature_rows *input, uint64_t rows, const vkmha_matrix *weight,
                    const vkmha_vector *bias, uint64_t chain, double *output, double *bound)
{
    const double sum_error = vkmha_sum_error(longest(chain, weight->columns + 1));
    for (uint64_t n = 0; n < weight->rows; n++) {
        const double added =
            bias && bias->data ? (double)vkmha_load_element(bias->data, bias->type, n) : 0.0;
        for (uint64_t r = 0; r < rows; r++) {
            double sum = added;
            double magnitude = fabs(added);
            double carried = 0.0;
            double flushed = 0.0;
            for (uint64_t k = 0; k < weight->columns; k++) {
                const double w = (double)vkmha_load_element(
                    weight->data, weight->type, n * weight->row_stride + k * weight->column_stride);
                const uint64_t at = r * weight->columns + k;
                const double x = input->exact ? (double)input->exact[at] : input->value[at];
                const double off = input->exact ? 0.0 : input->bound[at];
                sum += x * w;
                magnitude += (fabs(x) + off) * fabs(w);
                carried += off * fabs(w);
                flushed += VKMHA_FLUSH * (1.0 + fabs(x) + fabs(w));
            }
            if (output) {
                output[r * weight->rows + n] = sum;
            }
            if (bound) {
                bound[r * weight->rows + n] = carried + sum_error * magnitude + flushed;
            }
        }
    }
}

/* ---- Attention ---------------------------------------------------------------------------------------- */

static uint64_t key_length(const vkmha_reference *reference, uint64_t b)
{
    return reference->plan->has_key_lengths ? (uint64_t)reference->inputs->key_lengths[b]
                                            : reference->plan->key_len;
}

/* Keys from here on are hidden from query i by lengths and causality. */
static uint64_t visible_keys(const vkmha_reference *reference, uint64_t b, uint64_t i)
{
    const int64_t length = (int64_t)key_length(reference, b);
    int64_t end = length;
    if (reference->plan->causal == VKMHA_CAUSAL_TOP_LEFT) {
        end = (int64_t)i + 1;
    } else if (reference->plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT) {
        end = (int64_t)i + 1 + length - (int64_t)reference->plan->query_len;
    }
    return end < 0 ? 0 : end > length ? (uint64_t)length : (uint64_t)end;
}

static uint64_t mask_index(const vkmha_plan_params *plan, uint64_t b, uint64_t h, uint64_t i,
                           uint64_t j)
{
    const uint64_t *dims = plan->mask_dims;
    const uint64_t at[4] = {b, h, i, j};
    uint64_t index = 0;
    for (uint32_t axis = 0; axis < 4; axis++) {
        index = index * dims[axis] + (dims[axis] > 1 ? at[axis] : 0);
    }
    return index;
}

/* Whether the masks allow key j, and what an additive one adds to its score. */
static bool masks_allow(const vkmha_reference *reference, uint64_t b, uint64_t h, uint64_t i,
                        uint64_t j, double *added)
{
    const vkmha_plan_params *plan = reference->plan;
    const vkmha_inputs *inputs = reference->inputs;
    *added = 0.0;
    if (plan->has_attend_keys && inputs->attend_keys[b * plan->key_len + j] == 0) {
        return false;
    }
    if (plan->mask == VKMHA_MASK_ATTEND) {
        return ((const uint8_t *)inputs->mask)[mask_index(plan, b, h, i, j)] != 0;
    }
    if (plan->mask == VKMHA_MASK_ADDITIVE) {
        *added = (double)vkmha_load_element(inputs->mask, VKMHA_TYPE_F32,
                                            mask_index(plan, b, h, i, j));
        return *added != -INFINITY;
    }
    return true;
}

static uint64_t row_of(const vkmha_values *values, uint64_t b, uint64_t h, uint64_t position)
{
    return b * values->batch_stride + h * values->head_stride + position * values->row_stride;
}

/*
 * The fp32 sum of a score and a mask: rounding is monotonic, so the ends of the score's interval bound it, which keeps a
 * mask of -FLT_MAX sharp: it absorbs the scores. What lies below -FLT_MAX counts as that.
 */
static double add_mask(double score, double added, double *slack)
{
    const double sums[3] = {score + added, score - *slack + added, score + *slack + added};
    double rounded[3];
    for (uint32_t i = 0; i < 3; i++) {
        const double clamped =
            sums[i] < -FLT_MAX ? -FLT_MAX : sums[i] > FLT_MAX ? FLT_MAX : sums[i];
        rounded[i] = i == 0 ? clamped : (double)(float)clamped;
    }
    *slack = fmax(rounded[2] - rounded[0], rounded[0] - rounded[1]);
    return rounded[0];
}

/* The score of query i and key j, and how far an fp32 kernel's may be off. */
static double score_key(const vkmha_reference *reference, uint64_t query_row, uint64_t key_row,
                        double added, double *slack)
{
    const uint32_t head_dim = reference->layer->head_dim;
    const double scale = (double)reference->layer->scale;
    const double *query = reference->query.value + query_row;
    const double *key = reference->key.value + key_row;
    double sum = 0.0;
    double magnitude = 0.0;
    double carried = 0.0;
    double flushed = 0.0;
    for (uint32_t d = 0; d < head_dim; d++) {
        const double query_off = reference->query.bound ? reference->query.bound[query_row + d] : 0.0;
        const double key_off = reference->key.bound ? reference->key.bound[key_row + d] : 0.0;
        sum += query[d] * key[d];
        magnitude += (fabs(query[d]) + query_off) * (fabs(key[d]) + key_off);
        carried += fabs(query[d]) * key_off + query_off * (fabs(key[d]) + key_off);
        flushed += VKMHA_FLUSH * (1.0 + fabs(query[d]) + fabs(key[d]));
    }
    /* The scale is applied to the query or to the sum, one rounding more either way. */
    const double sum_error =
        vkmha_sum_error(longest(reference->chains.score, head_dim)) + 2.0 * VKMHA_UNIT;
    const double score = scale * sum;
    *slack = fabs(scale) * (carried + sum_error * magnitude + flushed) + VKMHA_FLUSH * (1.0 + magnitude);
    return added == 0.0 ? score : add_mask(score, added, slack);
}

/* Softmax of one query's allowed keys: weights, and how far each may be off (a weight's change is never over 1). */
static bool softmax(const vkmha_reference *reference, uint64_t count)
{
    double maximum = -INFINITY;
    bool has_any = false;
    for (uint64_t j = 0; j < count; j++) {
        if (reference->is_allowed[j]) {
            has_any = true;
            if (!(reference->score[j] <= maximum)) {
                maximum = reference->score[j];
            }
        }
    }
    if (!has_any) {
        return false;
    }
    double sum = 0.0;
    for (uint64_t j = 0; j < count; j++) {
        reference->weight[j] =
            reference->is_allowed[j] ? exp(reference->score[j] - maximum) : 0.0;
        sum += reference->weight[j];
    }
    /* The exponent of weight j may be off by slack[j] in all; what all share cancels. */
    const double rescale_error = 8.0 * vkmha_sum_error(longest(reference->chains.rescale, count));
    double raised = 0.0;
    double lowered = 0.0;
    for (uint64_t j = 0; j < count; j++) {
        reference->weight[j] /= sum;
        const double distance = reference->is_allowed[j] ? reference->score[j] - maximum : 0.0;
        reference->slack[j] += vkmha_exp_error(distance) + rescale_error;
        raised += reference->weight[j] * exp(reference->slack[j]);
        lowered += reference->weight[j] * exp(-reference->slack[j]);
    }
    for (uint64_t j = 0; j < count; j++) {
        const double w = reference->weight[j];
        double up = w * (exp(reference->slack[j]) / lowered - 1.0);
        const double down = w * (1.0 - exp(-reference->slack[j]) / raised);
        up = up > down ? up : down;
        if (!reference->is_allowed[j]) {
            reference->slack[j] = 0.0;
        } else {
            /* Not a number where an exponential overflowed: anything is possible then, but not more than 1. */
            reference->slack[j] = (up <= 1.0 ? up : 1.0) + VKMHA_FLUSH;
        }
    }
    return true;
}

static void average_values(const vkmha_reference *reference, uint64_t b, uint64_t h, uint64_t count,
                           uint64_t result_row)
{
    const uint32_t v_head_dim = reference->layer->v_head_dim;
    const uint64_t group = reference->layer->num_heads / reference->layer->num_kv_heads;
    const vkmha_values *values = &reference->value;
    const double sum_error = 2.0 * vkmha_sum_error(longest(reference->chains.value, count + 1)) +
                             8.0 * VKMHA_UNIT;
    for (uint32_t d = 0; d < v_head_dim; d++) {
        double sum = 0.0;
        for (uint64_t j = 0; j < count; j++) {
            if (reference->is_allowed[j]) {
                sum += reference->weight[j] * values->value[row_of(values, b, h / group, j) + d];
            }
        }
        double off = VKMHA_FLUSH;
        for (uint64_t j = 0; j < count; j++) {
            if (!reference->is_allowed[j]) {
                continue;
            }
            const uint64_t at = row_of(values, b, h / group, j) + d;
            const double v = values->value[at];
            const double v_off = values->bound ? values->bound[at] : 0.0;
            const double w = reference->weight[j] + reference->slack[j];
            /* Weights sum to 1 however they change, so only the distance from the mean counts. */
            off += reference->slack[j] * fabs(v - sum) + w * v_off +
                   sum_error * w * (fabs(v) + v_off) + VKMHA_FLUSH * (2.0 + fabs(v));
        }
        reference->attention.value[result_row + d] = sum;
        reference->attention.bound[result_row + d] = off;
    }
}

static void attend(const vkmha_reference *reference)
{
    const vkmha_layer_params *layer = reference->layer;
    const vkmha_plan_params *plan = reference->plan;
    const uint64_t group = layer->num_heads / layer->num_kv_heads;
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        for (uint64_t h = 0; h < layer->num_heads; h++) {
            for (uint64_t i = 0; i < plan->query_len; i++) {
                const uint64_t count = visible_keys(reference, b, i);
                for (uint64_t j = 0; j < count; j++) {
                    double added;
                    reference->slack[j] = 0.0;
                    reference->score[j] = 0.0;
                    reference->is_allowed[j] = masks_allow(reference, b, h, i, j, &added);
                    if (reference->is_allowed[j]) {
                        reference->score[j] =
                            score_key(reference, row_of(&reference->query, b, h, i),
                                      row_of(&reference->key, b, h / group, j), added,
                                      &reference->slack[j]);
                    }
                }
                const bool has_any = softmax(reference, count);
                const uint64_t result_row = row_of(&reference->attention, b, h, i);
                average_values(reference, b, h, has_any ? count : 0, result_row);
                if (reference->weights) {
                    double *row = reference->weights +
                                  ((b * layer->num_heads + h) * plan->query_len + i) * plan->key_len;
                    memset(row, 0, plan->key_len * sizeof(double));
                    if (has_any) {
                        memcpy(row, reference->weight, count * sizeof(double));
                    }
                }
            }
        }
    }
}

/* ---- The whole ---------------------------------------------------------------------------------------- */

static vkmha_values lay_out(vkmha_layout layout, uint64_t heads, uint64_t positions, uint64_t features)
{
    const bool heads_first = layout == VKMHA_LAYOUT_BHSD;
    return (vkmha_values){
        .batch_stride = heads * positions * features,
        .head_stride = heads_first ? positions * features : features,
        .row_stride = heads_first ? features : heads * features,
    };
}

/* Values and bounds of one head tensor: projected from the input, or the input itself. */
static void make_heads(const vkmha_reference *reference, const float *input, uint64_t rows,
                       uint64_t count, const vkmha_matrix *weight, const vkmha_vector *bias,
                       vkmha_values *values)
{
    if (!reference->layer->attention_only) {
        const vkmha_feature_rows features = {.exact = input};
        project(&features, rows, weight, bias, reference->chains.project, values->value,
                values->bound);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        values->value[i] = (double)input[i];
    }
    values->bound = NULL;
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
    vkmha_status status = vkmha_host_init(&services, host, error);
    if (status == VKMHA_OK) {
        status = vkmha_check_layer(layer, &checked_layer, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_plan(&checked_layer, plan, &checked_plan, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_check_inputs(&checked_layer, &checked_plan, inputs, &checked_inputs, error);
    }
    if (status == VKMHA_OK && !outputs) {
        status = vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "outputs is NULL");
    }
    if (status != VKMHA_OK) {
        return status;
    }

    vkmha_sizes sizes;
    vkmha_plan_sizes(&checked_layer, &checked_plan, &sizes);
    vkmha_reference reference = {
        .layer = &checked_layer,
        .plan = &checked_plan,
        .inputs = &checked_inputs,
        .weights = outputs->weights,
        .query = lay_out(checked_plan.layout, checked_layer.num_heads, checked_plan.query_len,
                         checked_layer.head_dim),
        .key = lay_out(checked_plan.layout, checked_layer.num_kv_heads, checked_plan.key_len,
                       checked_layer.head_dim),
        .value = lay_out(checked_plan.layout, checked_layer.num_kv_heads, checked_plan.key_len,
                         checked_layer.v_head_dim),
        .attention = lay_out(checked_plan.layout, checked_layer.num_heads, checked_plan.query_len,
                             checked_layer.v_head_dim),
    };
    if (chains) {
        reference.chains = *chains;
    }
    const struct {
        double **memory;
        uint64_t count;
    } blocks[] = {
        {&reference.query.value, sizes.heads_query},
        {&reference.query.bound, sizes.heads_query},
        {&reference.key.value, sizes.heads_key},
        {&reference.key.bound, sizes.heads_key},
        {&reference.value.value, sizes.heads_value},
        {&reference.value.bound, sizes.heads_value},
        {&reference.attention.value, sizes.heads_attention},
        {&reference.attention.bound, sizes.heads_attention},
        {&reference.score, checked_plan.key_len},
        {&reference.slack, checked_plan.key_len},
        {&reference.weight, checked_plan.key_len},
    };
    const size_t num_blocks = sizeof(blocks) / sizeof(blocks[0]);
    double *memory[sizeof(blocks) / sizeof(blocks[0])] = {0};
    reference.is_allowed = vkmha_host_allocate(&services, checked_plan.key_len, sizeof(bool));
    bool has_memory = reference.is_allowed != NULL;
    for (size_t i = 0; i < num_blocks && has_memory; i++) {
        memory[i] = vkmha_host_allocate(&services, blocks[i].count, sizeof(double));
        *blocks[i].memory = memory[i];
        has_memory = memory[i] != NULL;
    }
    if (has_memory) {
        const uint64_t queries = checked_plan.batch_size * checked_plan.query_len;
        const uint64_t keys = checked_plan.batch_size * checked_plan.key_len;
        make_heads(&reference, checked_inputs.query, queries, sizes.heads_query, &checked_layer.w_q,
                   &checked_layer.b_q, &reference.query);
        make_heads(&reference, checked_inputs.key, keys, sizes.heads_key, &checked_layer.w_k,
                   &checked_layer.b_k, &reference.key);
        make_heads(&reference, checked_inputs.value, keys, sizes.heads_value, &checked_layer.w_v,
                   &checked_layer.b_v, &reference.value);
        attend(&reference);
        if (!checked_layer.attention_only) {
            const vkmha_feature_rows features = {.value = reference.attention.value,
                                                 .bound = reference.attention.bound};
            project(&features, queries, &checked_layer.w_o, &checked_layer.b_o,
                    reference.chains.output, outputs->output, outputs->output_bound);
        } else {
            if (outputs->output) {
                memcpy(outputs->output, reference.attention.value, sizes.output * sizeof(double));
            }
            if (outputs->output_bound) {
                memcpy(outputs->output_bound, reference.attention.bound,
                       sizes.output * sizeof(double));
            }
        }
    } else {
        status = vkmha_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of host memory");
    }
    for (size_t i = 0; i < num_blocks; i++) {
        vkmha_host_release(&services, memory[i]);
    }
    vkmha_host_release(&services, reference.is_allowed);
    return status;
}

vkmha_status vkmha_reference_project(const float *input, uint64_t rows, const vkmha_matrix *weight,
                                     const vkmha_vector *bias, uint64_t chain, double *output,
                                     double *bound, vkmha_error *error)
{
    vkmha_error_clear(error);
    if (!weight || !weight->data || (!input && rows > 0)) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "%s is NULL",
                          !weight || !weight->data ? "weight" : "input");
    }
    vkmha_matrix resolved = *weight;
    resolved.row_stride = weight->row_stride ? weight->row_stride : weight->columns;
    resolved.column_stride = weight->column_stride ? weight->column_stride : 1;
    const vkmha_feature_rows features = {.exact = input};
    project(&features, rows, &resolved, bias, chain, output, bound);
    return VKMHA_OK;
}
