#include "same.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* NaNs are alike whatever their bits. */
static bool same_bits(const float *a, const float *b, uint64_t count, uint64_t *index)
{
    for (uint64_t i = 0; i < count; i++) {
        uint32_t a_bits;
        uint32_t b_bits;
        memcpy(&a_bits, &a[i], sizeof(a_bits));
        memcpy(&b_bits, &b[i], sizeof(b_bits));
        if (a_bits != b_bits && !(isnan(a[i]) && isnan(b[i]))) {
            *index = i;
            return false;
        }
    }
    return true;
}

/* The problem of batch item b: every tensor is a slice. */
static vkmha_problem batch_item(const vkmha_problem *problem, uint64_t b)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const vkmha_plan_params *plan = &problem->plan;
    vkmha_problem item = *problem;
    item.plan.batch_size = 1;
    item.inputs.query += b * plan->query_len * sizes.query_dim;
    if (item.inputs.key) {
        item.inputs.key += b * plan->key_len * sizes.key_dim;
    }
    if (item.inputs.value) {
        item.inputs.value += b * plan->key_len * sizes.value_dim;
    }
    if (plan->mask != VKMHA_MASK_NONE && plan->mask_dims[0] > 1) {
        const uint64_t size = plan->mask == VKMHA_MASK_ADDITIVE ? sizeof(float) : 1;
        const uint64_t *dims = plan->mask_dims;
        item.plan.mask_dims[0] = 1;
        item.inputs.mask =
            (const char *)problem->inputs.mask + b * dims[1] * dims[2] * dims[3] * size;
    }
    if (plan->has_attend_keys) {
        item.inputs.attend_keys += b * plan->key_len;
    }
    if (plan->has_key_lengths) {
        item.inputs.key_lengths += b;
    }
    return item;
}

/* `blocks` runs of `length` floats, each followed by `extra` NaN. */
static const float *pad_blocks(const float *values, uint64_t blocks, uint64_t length,
                               uint64_t extra, vkmha_pool *pool)
{
    float *padded = vkmha_pool_allocate(pool, blocks * (length + extra), sizeof(float));
    for (uint64_t i = 0; padded && i < blocks; i++) {
        float *block = padded + i * (length + extra);
        if (length > 0) {
            memcpy(block, values + i * length, (size_t)length * sizeof(float));
        }
        for (uint64_t k = 0; k < extra; k++) {
            block[length + k] = NAN;
        }
    }
    return padded;
}

static bool can_pad(const vkmha_plan_params *plan)
{
    return !plan->key_is_query && !plan->value_is_key && plan->mask == VKMHA_MASK_NONE &&
           !plan->has_attend_keys && !plan->has_key_lengths;
}

/* The problem with more keys, which key lengths say are not there. */
static vkmha_status pad_keys(const vkmha_problem *problem, uint64_t extra, vkmha_pool *pool,
                             vkmha_problem *padded, vkmha_error *error)
{
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t batch = problem->plan.batch_size;
    const uint64_t key_len = problem->plan.key_len;
    const uint64_t heads = problem->plan.layout == VKMHA_LAYOUT_BHSD ? sizes.num_kv_heads : 1;
    const uint64_t key_row = sizes.key_dim / heads;
    const uint64_t value_row = sizes.value_dim / heads;
    int32_t *lengths = vkmha_pool_allocate(pool, batch, sizeof(int32_t));
    for (uint64_t b = 0; lengths && b < batch; b++) {
        lengths[b] = (int32_t)key_len;
    }
    *padded = *problem;
    padded->plan.key_len = key_len + extra;
    padded->plan.has_key_lengths = true;
    padded->inputs.key_lengths = lengths;
    padded->inputs.key =
        pad_blocks(problem->inputs.key, batch * heads, key_len * key_row, extra * key_row, pool);
    padded->inputs.value = pad_blocks(problem->inputs.value, batch * heads, key_len * value_row,
                                      extra * value_row, pool);
    if (!lengths || !padded->inputs.key || !padded->inputs.value) {
        return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    return VKMHA_OK;
}

vkmha_status vkmha_verify_same(vkmha_device *device, vkmha_random *random, vkmha_shape *shape,
                               const char *project_kernel, const char *attention_kernel,
                               const vkmha_results *results, vkmha_pool *pool,
                               vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_problem *problem = &shape->problem;
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    vkmha_problem other = *problem;
    const float *expected = results->output;
    const char *how = "run again";
    vkmha_feature feature = VKMHA_FEATURE_SAME_REPEATED;
    vkmha_status status = VKMHA_OK;
    switch (vkmha_random_below(random, 4)) {
    case 0:
        break;
    case 1:
        /* Far apart: one dispatch a stage, or tens. */
        other.plan.max_work_per_dispatch =
            plan->max_work_per_dispatch ? 0 : 1 + vkmha_random_below(random, 100000);
        how = "with another work limit";
        feature = VKMHA_FEATURE_SAME_CUT;
        break;
    case 2:
        if (plan->batch_size > 1) {
            const uint64_t b = vkmha_random_below(random, plan->batch_size);
            other = batch_item(problem, b);
            expected += b * (sizes.output / plan->batch_size);
            how = "as a batch of its own";
            feature = VKMHA_FEATURE_SAME_ALONE;
        }
        break;
    default:
        if (can_pad(plan)) {
            status = pad_keys(problem, 1 + vkmha_random_below(random, 70), pool, &other, error);
            how = "padded with keys that are not there";
            feature = VKMHA_FEATURE_SAME_PADDED;
        }
        break;
    }
    vkmha_trial trial = {0};
    vkmha_results repeated = {0};
    if (status == VKMHA_OK) {
        status =
            vkmha_trial_create(device, &other, project_kernel, attention_kernel, &trial, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_trial_run(&trial, &other, false, pool, &repeated, error);
    }
    if (status == VKMHA_OK) {
        const uint64_t count = vkmha_problem_measure(&other).output;
        uint64_t index = 0;
        vkmha_shape_mark(shape, feature);
        if (!same_bits(expected, repeated.output, count, &index)) {
            char what[128];
            snprintf(what, sizeof(what), "other bits %s: %.9g, then %.9g at %" PRIu64, how,
                     (double)expected[index], (double)repeated.output[index], index);
            vkmha_judge_fail(verdict, "output", what);
        }
    }
    vkmha_trial_finish(&trial);
    return status;
}
