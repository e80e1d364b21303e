/* Stored types -> fp32, exactly. */
#ifndef VKMHA_RUNTIME_CONVERT_H
#define VKMHA_RUNTIME_CONVERT_H

#include <vkmha/vkmha.h>

/* Element `index` of contiguous fp32, fp16 or bf16 data, which need not be aligned. */
float vkmha_load_element(const void *data, vkmha_type type, uint64_t index);

#endif
