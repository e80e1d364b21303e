/* vkmha_status <-> text, and the one way to report a failure. */
#ifndef VKMHA_RUNTIME_STATUS_H
#define VKMHA_RUNTIME_STATUS_H

#include <vkmha/vkmha.h>

#if defined(__GNUC__)
#define VKMHA_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define VKMHA_CHECKED __attribute__((warn_unused_result))
#else
#define VKMHA_PRINTF(text, first)
#define VKMHA_CHECKED
#endif

/* Fills *error (which may be NULL) and returns `status`, so that `return vkmha_fail(...)` is one line. */
vkmha_status vkmha_fail(vkmha_error *error, vkmha_status status, const char *format, ...) VKMHA_PRINTF(3, 4);

/* Whether memory is all zero bytes, as reserved fields must be. */
bool vkmha_is_zero(const void *memory, size_t bytes);

/* {VKMHA_OK, ""} */
void vkmha_error_clear(vkmha_error *error);

#endif
