#include "host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

vkmha_status vkmha_host_init(vkmha_host *copy, const vkmha_host *host, vkmha_error *error)
{
    *copy = host ? *host : (vkmha_host){0};
    if (!copy->allocate != !copy->release) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT,
                          "host.allocate and host.release must be given both or neither");
    }
    if ((uint32_t)copy->log_level > VKMHA_LOG_DEBUG) {
        return vkmha_fail(error, VKMHA_ERROR_INVALID_ARGUMENT, "host.log_level %u is no vkmha_log_level",
                          (uint32_t)copy->log_level);
    }
    return VKMHA_OK;
}

void *vkmha_host_allocate(const vkmha_host *host, uint64_t count, uint64_t size)
{
    if (size != 0 && count > SIZE_MAX / size) {
        return NULL;
    }
    size_t bytes = (size_t)(count * size);
    if (bytes == 0) {
        bytes = 1;
    }
    if (!host->allocate) {
        return calloc(1, bytes);
    }
    void *memory = host->allocate(host->user, bytes);
    if (memory) {
        memset(memory, 0, bytes);
    }
    return memory;
}

void vkmha_host_release(const vkmha_host *host, void *memory)
{
    if (!memory) {
        return;
    }
    if (host->release) {
        host->release(host->user, memory);
    } else {
        free(memory);
    }
}

void vkmha_host_log(const vkmha_host *host, vkmha_log_level level, const char *format, ...)
{
    if (!host->log || level > host->log_level) {
        return;
    }
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    host->log(host->user, level, message);
}
