/* Types of storage: fp32 from and to fp16 and bf16. */
#ifndef VKMHA_RUNTIME_CONVERT_H
#define VKMHA_RUNTIME_CONVERT_H

#include <vkmha/vkmha.h>

/* Bytes of an element. */
static inline uint32_t vkmha_type_bytes(vkmha_type type)
{
    return type == VKMHA_TYPE_F32 ? 4 : 2;
}

/* Element `index` of contiguous fp32, fp16 or bf16 data, which need not be aligned: exactly. */
float vkmha_load_element(const void *data, vkmha_type type, uint64_t index);

/* Stores it, rounded to nearest even where the type is narrower, to Inf past its largest; NaN stays
 * NaN. */
void vkmha_store_element(void *data, vkmha_type type, uint64_t index, float value);

/* What storing a double in a type makes of it, in one rounding. */
double vkmha_round_value(vkmha_type type, double value);

/*
 * What storing makes of a value that may be off by `bound`: both become what the type can hold of it.
 * Rounding is monotonic, so that the interval's ends tell. Where all of it rounds to Inf, Inf is the
 * value; where only a part does, the bound is infinite. Nothing changes for fp32.
 */
void vkmha_round_interval(vkmha_type type, double *value, double *bound);

#endif
