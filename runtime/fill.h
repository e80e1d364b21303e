/* What a run tells the device of each sequence. */
#ifndef VKMHA_RUNTIME_FILL_H
#define VKMHA_RUNTIME_FILL_H

#include <vkmha/vkmha_vulkan.h>

#include "cache.h"
#include "plan.h"

/* As vkmha_plan_fill, of checked inputs. */
void vkmha_fill_sequences(const vkmha_plan *plan, const vkmha_inputs *inputs,
                          vkmha_sequence *sequences, int32_t *positions);

#endif
