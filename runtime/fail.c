#include "status.h"

#include <stdarg.h>
#include <stdio.h>

vkmha_status vkmha_fail(vkmha_error *error, vkmha_status status, const char *format, ...)
{
    if (error) {
        error->status = status;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
    }
    return status;
}

void vkmha_error_clear(vkmha_error *error)
{
    if (error) {
        error->status = VKMHA_OK;
        error->message[0] = '\0';
    }
}

bool vkmha_is_zero(const void *memory, size_t bytes)
{
    const unsigned char *byte = memory;
    for (size_t i = 0; i < bytes; i++) {
        if (byte[i] != 0) {
            return false;
        }
    }
    return true;
}
