#include "writer.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
    MAX_TRIES = 100,
};

vkmha_status vkmha_writer_open(const char *path, vkmha_writer *writer, vkmha_error *error)
{
    *writer = (vkmha_writer){.path = path};
    if (strlen(path) > sizeof(writer->temporary) - sizeof(".part99")) {
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%.100s...: the path is too long", path);
    }
    /* The first free name beside the file: others may be another writer's. */
    for (uint32_t i = 0; i < MAX_TRIES && !writer->stream; i++) {
        snprintf(writer->temporary, sizeof(writer->temporary), "%s.part%" PRIu32, path, i);
        writer->stream = fopen(writer->temporary, "wbx");
        if (!writer->stream && errno != EEXIST) {
            break;
        }
    }
    if (!writer->stream) {
        writer->temporary[0] = '\0';
        return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%s: %s", path, strerror(errno));
    }
    return VKMHA_OK;
}

static vkmha_status fail(vkmha_writer *writer, int reason, vkmha_error *error)
{
    vkmha_writer_finish(writer);
    return vkmha_tool_fail(error, VKMHA_ERROR_FILE, "%s: %s", writer->path,
                           reason ? strerror(reason) : "cannot be written");
}

vkmha_status vkmha_writer_close(vkmha_writer *writer, vkmha_error *error)
{
    FILE *stream = writer->stream;
    errno = 0;
    const bool is_written = fflush(stream) == 0 && !ferror(stream);
    const int reason = errno;
    writer->stream = NULL;
    if (fclose(stream) != 0 && is_written) {
        return fail(writer, errno, error);
    }
    return is_written ? VKMHA_OK : fail(writer, reason, error);
}

vkmha_status vkmha_writer_commit(vkmha_writer *writer, vkmha_error *error)
{
    const vkmha_status status = writer->stream ? vkmha_writer_close(writer, error) : VKMHA_OK;
    if (status != VKMHA_OK) {
        return status;
    }
    if (rename(writer->temporary, writer->path) != 0) {
        return fail(writer, errno, error);
    }
    writer->temporary[0] = '\0';
    return VKMHA_OK;
}

void vkmha_writer_finish(vkmha_writer *writer)
{
    if (writer->stream) {
        fclose(writer->stream);
        writer->stream = NULL;
    }
    if (writer->temporary[0] != '\0') {
        remove(writer->temporary);
        writer->temporary[0] = '\0';
    }
}
