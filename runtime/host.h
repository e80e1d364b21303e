/* Host memory and messages through the caller's hooks. */
#ifndef VKMHA_RUNTIME_HOST_H
#define VKMHA_RUNTIME_HOST_H

#include "status.h"

/* A copy of *host, or {0}; refuses half a pair of allocator hooks. */
vkmha_status vkmha_host_init(vkmha_host *copy, const vkmha_host *host, vkmha_error *error) VKMHA_CHECKED;

/* count * size zeroed bytes, or NULL where memory is out or the product overflows. Never NULL for 0 bytes otherwise. */
void *vkmha_host_allocate(const vkmha_host *host, uint64_t count, uint64_t size);

/* NULL is allowed. */
void vkmha_host_release(const vkmha_host *host, void *memory);

void vkmha_host_log(const vkmha_host *host, vkmha_log_level level, const char *format, ...) VKMHA_PRINTF(3, 4);

#endif
