#include "sample.h"

#include <string.h>

/* Row `i` of `count` rows spread over `rows`. */
static uint64_t spread(uint64_t i, uint64_t count, uint64_t rows)
{
    return count < 2 ? 0 : i * (rows - 1) / (count - 1);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* `count` rows spread over each of `blocks` blocks of `rows` rows. */
static float *gather(const float *values, uint64_t blocks, uint64_t rows, uint64_t features,
                     uint64_t count, vkmha_pool *pool)
{
    float *gathered = vkmha_pool_allocate(pool, blocks * count * features, sizeof(float));
    for (uint64_t block = 0; gathered && block < blocks; block++) {
        for (uint64_t i = 0; i < count; i++) {
            const float *row = values + (block * rows + spread(i, count, rows)) * features;
            memcpy(gathered + (block * count + i) * features, row,
                   (size_t)features * sizeof(float));
        }
    }
    return gathered;
}

static vkmha_status sample_projection(const vkmha_projection *whole, uint64_t chain,
                                      vkmha_pool *pool, vkmha_verdict *verdict, vkmha_error *error)
{
    const uint64_t rows = smaller(whole->rows, VKMHA_SAMPLE_ROWS);
    int32_t *positions = NULL;
    if (whole->rope) {
        positions = vkmha_pool_allocate(pool, rows, sizeof(int32_t));
        for (uint64_t i = 0; positions && i < rows; i++) {
            positions[i] = whole->positions[spread(i, rows, whole->rows)];
        }
    }
    const vkmha_projection part = {
        .stage = whole->stage,
        .input = gather(whole->input, 1, whole->rows, whole->weight->columns, rows, pool),
        .rows = rows,
        .weight = whole->weight,
        .bias = whole->bias,
        .rope = whole->rope,
        .positions = positions,
        .head_dim = whole->head_dim,
        .axes = {{rows, whole->weight->rows}, "rn"},
        .got = gather(whole->got, 1, whole->rows, whole->weight->rows, rows, pool),
    };
    if (!part.input || !part.got || (part.rope && !part.positions)) {
        return out_of_memory(error);
    }
    return vkmha_verify_projection(&part, chain, false, pool, verdict, error);
}

/* What the causal order allows the sampled queries, as a mask: they no longer stand where they
 * stood. */
static const void *causal_mask(const vkmha_plan_params *plan, uint64_t queries, vkmha_pool *pool)
{
    uint8_t *mask = vkmha_pool_allocate(pool, queries * plan->key_len, 1);
    const int64_t offset = plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT
                               ? (int64_t)plan->key_len - (int64_t)plan->query_len
                               : 0;
    for (uint64_t i = 0; mask && i < queries; i++) {
        const int64_t last = (int64_t)spread(i, queries, plan->query_len) + offset;
        for (uint64_t j = 0; j < plan->key_len; j++) {
            mask[i * plan->key_len + j] = plan->causal == VKMHA_CAUSAL_NONE || (int64_t)j <= last;
        }
    }
    return mask;
}

static vkmha_status sample_attention(const vkmha_problem *problem, const vkmha_chains *chains,
                                     const vkmha_results *results, vkmha_pool *pool,
                                     vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_plan_params *plan = &problem->plan;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(problem);
    const uint64_t queries = smaller(plan->query_len, VKMHA_SAMPLE_QUERIES);
    vkmha_problem stage = vkmha_attention_problem(problem, results);
    vkmha_told_nothing(&stage);
    const uint64_t query_features = (uint64_t)problem->layer.num_heads * problem->layer.head_dim;
    const uint64_t features = problem->layer.num_heads * sizes.v_head_dim;
    const float *got =
        gather(results->attention, plan->batch_size, plan->query_len, features, queries, pool);
    stage.inputs.query = gather(results->projected_query, plan->batch_size, plan->query_len,
                                query_features, queries, pool);
    stage.inputs.mask = causal_mask(plan, queries, pool);
    if (!got || !stage.inputs.query || !stage.inputs.mask) {
        return out_of_memory(error);
    }
    stage.plan.query_len = queries;
    stage.plan.causal = VKMHA_CAUSAL_NONE;
    stage.plan.mask = VKMHA_MASK_ATTEND;
    stage.plan.mask_dims[0] = 1;
    stage.plan.mask_dims[1] = 1;
    stage.plan.mask_dims[2] = queries;
    stage.plan.mask_dims[3] = plan->key_len;
    return vkmha_verify_attention(&stage, chains, "attention", got, NULL, pool, verdict, error);
}

vkmha_status vkmha_verify_sample(const vkmha_problem *problem, const vkmha_trial *trial,
                                 const vkmha_results *results, vkmha_pool *pool,
                                 vkmha_verdict *verdict, vkmha_error *error)
{
    const vkmha_chains *chains = &trial->info.chains;
    *verdict = (vkmha_verdict){0};
    if (results->is_overrun) {
        vkmha_judge_fail(verdict, "output", "memory past the end of an output was written");
    }
    vkmha_projection projections[VKMHA_NUM_PROJECTIONS];
    vkmha_status status = vkmha_projections_of(problem, results, pool, projections, error);
    for (uint32_t i = 0; status == VKMHA_OK && i < VKMHA_NUM_PROJECTIONS; i++) {
        const bool is_output = i + 1 == VKMHA_NUM_PROJECTIONS;
        status = sample_projection(&projections[i], is_output ? chains->output : chains->project,
                                   pool, verdict, error);
    }
    if (status == VKMHA_OK) {
        status = sample_attention(problem, chains, results, pool, verdict, error);
    }
    return status;
}
