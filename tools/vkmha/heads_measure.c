#include "heads.h"

#include <math.h>
#include <string.h>

static vkmha_status out_of_memory(vkmha_error *error)
{
    return vkmha_tool_fail(error, VKMHA_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* The device's outputs: [batch, head, query]. */
typedef struct told {
    vkmha_statistics *statistics;
    float *contributions;
    vkmha_statistics *uniform; /* of equal weights; all 0 where no key is seen */
} told;

static vkmha_status run_plan(vkmha_subject *subject, const vkmha_problem *problem,
                             const vkmha_outputs *outputs, vkmha_error *error)
{
    vkmha_layer *layer = NULL;
    vkmha_plan *plan = NULL;
    vkmha_status status = vkmha_layer_create(subject->device, &problem->layer, &layer, error);
    if (status == VKMHA_OK) {
        status = vkmha_plan_create(layer, &problem->plan, &plan, error);
    }
    if (status == VKMHA_OK) {
        status = vkmha_run(plan, &problem->inputs, outputs, error);
    }
    vkmha_plan_destroy(plan);
    vkmha_layer_destroy(layer);
    return status;
}

/* Equal weights on the keys that each query may see: a layer with the same masks whose scores are
 * all 0. Keys of the past are keys like others there. */
static vkmha_status measure_uniform(vkmha_subject *subject, vkmha_statistics *uniform,
                                    vkmha_error *error)
{
    vkmha_problem problem = subject->problem;
    const vkmha_problem_sizes sizes = vkmha_problem_measure(&problem);
    const float zero = 0.0f;
    float *output = vkmha_pool_allocate(&subject->pool, sizes.query_rows * problem.layer.num_heads,
                                        sizeof(float));
    if (!output) {
        return out_of_memory(error);
    }
    const vkmha_strides same = {.is_given = true};
    vkmha_plan_params *plan = &problem.plan;
    problem.layer = (vkmha_layer_params){.num_heads = subject->problem.layer.num_heads,
                                         .num_kv_heads = 1,
                                         .head_dim = 1,
                                         .has_scale = true,
                                         .attention_only = true};
    plan->key_len += plan->past_len;
    plan->past_len = 0;
    plan->key_is_query = false;
    plan->value_is_key = false;
    plan->query_strides = plan->key_strides = plan->value_strides = same;
    plan->has_positions = false;
    plan->has_head_gates = false;
    plan->has_gates_per_sequence = false;
    plan->has_statistics = true;
    vkmha_inputs *inputs = &problem.inputs;
    inputs->query = inputs->key = inputs->value = &zero;
    inputs->query_positions = inputs->key_positions = NULL;
    inputs->head_gates = NULL;
    inputs->past_key = inputs->past_value = NULL;
    return run_plan(subject, &problem, &(vkmha_outputs){.output = output, .statistics = uniform},
                    error);
}

/*
 * Padding told by a mask over keys, as first keys and key lengths: the statistics' first and last
 * key are then those that are there. Left as it is where that would move positions, or cannot say
 * it.
 */
static vkmha_status bound_keys(vkmha_subject *subject, vkmha_problem *problem, vkmha_error *error)
{
    vkmha_plan_params *plan = &problem->plan;
    const uint64_t all_keys = plan->past_len + plan->key_len;
    int32_t *firsts = vkmha_pool_allocate(&subject->pool, plan->batch_size, sizeof(int32_t));
    int32_t *ends = vkmha_pool_allocate(&subject->pool, plan->batch_size, sizeof(int32_t));
    if (!firsts || !ends) {
        return out_of_memory(error);
    }
    if (!plan->has_attend_keys || plan->has_key_lengths || plan->has_first_keys ||
        plan->causal == VKMHA_CAUSAL_BOTTOM_RIGHT ||
        plan->positions == VKMHA_POSITIONS_BOTTOM_RIGHT) {
        return VKMHA_OK;
    }
    for (uint64_t b = 0; b < plan->batch_size; b++) {
        const uint8_t *attend = problem->inputs.attend_keys + b * all_keys;
        uint64_t first = 0;
        uint64_t end = all_keys;
        while (end > 0 && !attend[end - 1]) {
            end--;
        }
        while (first < end && !attend[first]) {
            first++;
        }
        for (uint64_t j = first; j < end; j++) {
            if (!attend[j]) {
                return VKMHA_OK;
            }
        }
        firsts[b] = (int32_t)first;
        ends[b] = (int32_t)end;
    }
    plan->has_first_keys = true;
    plan->has_key_lengths = true;
    problem->inputs.first_keys = firsts;
    problem->inputs.key_lengths = ends;
    return VKMHA_OK;
}

static vkmha_status measure_layer(vkmha_subject *subject, const told *to, vkmha_error *error)
{
    vkmha_problem problem = subject->problem;
    float *output =
        vkmha_pool_allocate(&subject->pool, subject->rows * subject->row_size, sizeof(float));
    if (!output) {
        return out_of_memory(error);
    }
    const vkmha_status status = bound_keys(subject, &problem, error);
    if (status != VKMHA_OK) {
        return status;
    }
    problem.plan.has_statistics = true;
    problem.plan.has_contributions = true;
    return run_plan(subject, &problem,
                    &(vkmha_outputs){.output = output,
                                     .statistics = to->statistics,
                                     .contributions = to->contributions},
                    error);
}

static const char *kind_of(const vkmha_head *head)
{
    const struct {
        const char *name;
        double mass;
    } places[] = {
        {"self", head->self},   {"previous", head->previous}, {"next", head->next},
        {"first", head->first}, {"last", head->last},
    };
    size_t most = 0;
    for (size_t i = 1; i < sizeof(places) / sizeof(places[0]); i++) {
        most = places[i].mass > places[most].mass ? i : most;
    }
    if (places[most].mass >= 0.4) {
        return places[most].name;
    }
    if (head->entropy_share >= 0.9) {
        return "uniform";
    }
    if (head->previous + head->self + head->next >= 0.4 || head->distance_share <= 0.25) {
        return "local";
    }
    return head->entropy_share >= 0.7 ? "diffuse" : "mixed";
}

static void average_head(const vkmha_subject *subject, const told *from, uint64_t h,
                         vkmha_head *head)
{
    const uint64_t num_heads = subject->problem.layer.num_heads;
    const uint64_t query_len = subject->problem.plan.query_len;
    uint64_t queries = 0;
    uint64_t choosing = 0; /* that see more than one key */
    double share = 0.0;
    double equal_distance = 0.0;
    for (uint64_t row = 0; row < subject->rows; row++) {
        const uint64_t at = (row / query_len * num_heads + h) * query_len + row % query_len;
        const vkmha_statistics *one = &from->statistics[at];
        const vkmha_statistics *equal = &from->uniform[at];
        if (!subject->is_real[row]) {
            continue;
        }
        head->contribution += from->contributions[at];
        if (!(equal->max_weight > 0.0f)) {
            continue;
        }
        queries++;
        head->entropy += one->entropy;
        head->max_weight += one->max_weight;
        head->distance += one->mean_distance;
        head->previous += one->previous;
        head->self += one->self;
        head->next += one->next;
        head->first += one->first;
        head->last += one->last;
        if (one->max_weight > head->largest_weight) {
            head->largest_weight = one->max_weight;
        }
        equal_distance += equal->mean_distance;
        if (equal->max_weight < 1.0f) {
            choosing++;
            share += one->entropy / equal->entropy;
        }
    }
    head->distance_share = equal_distance > 0.0 ? head->distance / equal_distance : (double)NAN;
    double *const sums[] = {&head->entropy, &head->max_weight, &head->distance, &head->previous,
                            &head->self,    &head->next,       &head->first,    &head->last};
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        *sums[i] /= queries > 0 ? (double)queries : 1.0;
    }
    head->entropy_share = choosing > 0 ? share / (double)choosing : (double)NAN;
    head->kind = kind_of(head);
}

vkmha_status vkmha_heads_measure(vkmha_subject *subject, vkmha_head *heads, vkmha_error *error)
{
    const uint64_t num_heads = subject->problem.layer.num_heads;
    const uint64_t count = subject->rows * num_heads;
    const told device = {
        .statistics = vkmha_pool_allocate(&subject->pool, count, sizeof(vkmha_statistics)),
        .contributions = vkmha_pool_allocate(&subject->pool, count, sizeof(float)),
        .uniform = vkmha_pool_allocate(&subject->pool, count, sizeof(vkmha_statistics)),
    };
    if (!device.statistics || !device.contributions || !device.uniform) {
        return out_of_memory(error);
    }
    vkmha_importance importance;
    vkmha_status status = vkmha_subject_importance(subject, &importance, error);
    if (status == VKMHA_OK) {
        status = measure_layer(subject, &device, error);
    }
    if (status == VKMHA_OK) {
        status = measure_uniform(subject, device.uniform, error);
    }
    if (status != VKMHA_OK) {
        return status;
    }
    double contributions = 0.0;
    for (uint64_t h = 0; h < num_heads; h++) {
        heads[h] = (vkmha_head){.leave_one_out = importance.changes[h]};
        average_head(subject, &device, h, &heads[h]);
        contributions += heads[h].contribution;
    }
    for (uint64_t h = 0; h < num_heads; h++) {
        heads[h].contribution /= contributions > 0.0 ? contributions : 1.0;
    }
    return VKMHA_OK;
}
