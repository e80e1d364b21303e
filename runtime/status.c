#include "status.h"

#include <stdarg.h>
#include <stdio.h>

uint32_t vkmha_version(void)
{
    return VKMHA_VERSION;
}

const char *vkmha_status_name(vkmha_status status)
{
    switch (status) {
    case VKMHA_OK:
        return "ok";
    case VKMHA_ERROR_INVALID_ARGUMENT:
        return "invalid argument";
    case VKMHA_ERROR_UNSUPPORTED:
        return "unsupported";
    case VKMHA_ERROR_NO_DEVICE:
        return "no device";
    case VKMHA_ERROR_OUT_OF_MEMORY:
        return "out of memory";
    case VKMHA_ERROR_DEVICE_LOST:
        return "device lost";
    case VKMHA_ERROR_FILE:
        return "bad file";
    }
    return "unknown status";
}

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
