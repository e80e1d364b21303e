#include "status.h"

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
