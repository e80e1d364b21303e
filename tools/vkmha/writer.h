/* A file that appears whole or not at all. */
#ifndef VKMHA_TOOL_WRITER_H
#define VKMHA_TOOL_WRITER_H

#include "tool.h"

/* Writes go to `stream`, a file of another name beside the one that is wanted. {0} is closed. */
typedef struct vkmha_writer {
    const char *path;
    FILE *stream;
    char temporary[4096]; /* empty once it is renamed or removed */
} vkmha_writer;

/* Errors: FILE. On failure the writer is closed. */
vkmha_status vkmha_writer_open(const char *path, vkmha_writer *writer, vkmha_error *error);

/* Ends writing; `temporary` can be read. Errors: FILE, of any write before too; nothing is left. */
vkmha_status vkmha_writer_close(vkmha_writer *writer, vkmha_error *error);

/* Gives the file its name. Errors: as above. */
vkmha_status vkmha_writer_commit(vkmha_writer *writer, vkmha_error *error);

/* Removes what was written, unless it has its name already. */
void vkmha_writer_finish(vkmha_writer *writer);

#endif
