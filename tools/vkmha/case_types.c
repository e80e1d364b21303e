/* A case whose tensors are stored in other types than it holds them in. */
#include "stored.h"

#include <math.h>
#include <stdlib.h>

/* tol_f16_NAME of the case, or a negative number where half precision means nothing there. */
static double half_tolerance(const vkmha_case *loaded, const char *name)
{
    char field[64];
    snprintf(field, sizeof(field), "tol_f16_%s", name);
    const char *text = vkmha_file_metadata(loaded->file, field);
    const double tolerance = text ? strtod(text, NULL) : -1.0;
    return isfinite(tolerance) ? tolerance : -1.0;
}

/* What is expected was made with wider numbers: fp16 has its own tolerances, bf16 the bound alone. */
static void loosen(vkmha_case *loaded, bool is_half)
{
    const struct {
        const char *name;
        const float **expected;
        double *tolerance;
    } outputs[] = {
        {"output", &loaded->expected, &loaded->tolerance},
        {"present_key", &loaded->expected_present_key, &loaded->present_key_tolerance},
        {"present_value", &loaded->expected_present_value, &loaded->present_value_tolerance},
        {"weights", &loaded->expected_told[VKMHA_TOLD_WEIGHTS],
         &loaded->told_tolerance[VKMHA_TOLD_WEIGHTS]},
        {"weights_avg", &loaded->expected_told[VKMHA_TOLD_MEAN_WEIGHTS],
         &loaded->told_tolerance[VKMHA_TOLD_MEAN_WEIGHTS]},
        {"scores", &loaded->expected_told[VKMHA_TOLD_SCORES],
         &loaded->told_tolerance[VKMHA_TOLD_SCORES]},
    };
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
        const double tolerance = is_half ? half_tolerance(loaded, outputs[i].name) : -1.0;
        *outputs[i].tolerance = tolerance;
        if (tolerance < 0.0) {
            *outputs[i].expected = NULL;
        }
    }
}

vkmha_status vkmha_case_store(vkmha_case *loaded, vkmha_type precision, vkmha_type weight_type,
                              vkmha_error *error)
{
    vkmha_problem *problem = &loaded->problem;
    vkmha_plan_params *plan = &problem->plan;
    plan->query_type = precision;
    plan->key_type = precision;
    plan->value_type = precision;
    plan->output_type = precision;
    problem->layer.cache_type = precision;
    vkmha_problem_round(problem);
    const bool has_weights = !problem->layer.attention_only && weight_type != VKMHA_TYPE_F32;
    if (precision != VKMHA_TYPE_F32 || has_weights) {
        const bool is_brain =
            precision == VKMHA_TYPE_BF16 || (has_weights && weight_type == VKMHA_TYPE_BF16);
        loosen(loaded, !is_brain);
    }
    return vkmha_problem_round_weights(problem, weight_type, &loaded->pool, error);
}
