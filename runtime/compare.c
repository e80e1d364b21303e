#include <vkmha/vkmha_reference.h>

#include <math.h>

void vkmha_compare(const float *got, const double *expected, const double *bound, uint64_t count,
                   vkmha_comparison *comparison)
{
    *comparison = (vkmha_comparison){.passed = true};
    double squares = 0.0;
    bool has_broken = false; /* something that is not finite: it stays the worst element */
    for (uint64_t i = 0; i < count; i++) {
        /* A bound of 0 asks for the very value, which may be infinite. */
        const bool is_same = bound[i] == 0.0 && (double)got[i] == expected[i];
        const double error = is_same ? 0.0 : fabs((double)got[i] - expected[i]);
        const bool is_finite = isfinite(error) && isfinite(bound[i]);
        if (!is_finite || !(error <= bound[i])) {
            comparison->passed = false;
            comparison->num_failed++;
        }
        if (!is_finite) {
            if (!has_broken) {
                has_broken = true;
                comparison->worst_index = i;
            }
            continue;
        }
        const double ratio = bound[i] > 0.0 ? error / bound[i] : error > 0.0 ? INFINITY : 0.0;
        squares += ratio * ratio;
        comparison->max_abs = fmax(comparison->max_abs, error);
        if (expected[i] != 0.0 && isfinite(expected[i])) {
            comparison->max_rel = fmax(comparison->max_rel, error / fabs(expected[i]));
        }
        if (ratio > comparison->max_ratio) {
            comparison->max_ratio = ratio;
            if (!has_broken) {
                comparison->worst_index = i;
            }
        }
    }
    if (has_broken) {
        comparison->max_abs = INFINITY;
        comparison->max_ratio = INFINITY;
        squares = INFINITY;
    }
    comparison->rms_ratio = count > 0 ? sqrt(squares / (double)count) : 0.0;
}
