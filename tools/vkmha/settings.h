/* Options of a layer and a plan by name: what a JSON file of run, or --set, may say. */
#ifndef VKMHA_TOOL_SETTINGS_H
#define VKMHA_TOOL_SETTINGS_H

#include "problem.h"

enum {
    VKMHA_MAX_SETTINGS = 64,
};

typedef struct vkmha_settings {
    vkmha_problem values; /* only the fields that are given */
    bool is_given[VKMHA_MAX_SETTINGS];
    uint64_t counts[VKMHA_MAX_SETTINGS]; /* of lists */
    vkmha_pool pool;
} vkmha_settings;

void vkmha_settings_finish(vkmha_settings *settings);

/* The fields of a JSON object; those of an object in it by "outer.inner". Errors: FILE. */
vkmha_status vkmha_settings_load(vkmha_settings *settings, const char *path, vkmha_error *error);

/* One field, which takes the place of an earlier value. option: for the error line.
 * Errors: INVALID_ARGUMENT. */
vkmha_status vkmha_settings_set(vkmha_settings *settings, const char *option, const char *name,
                                const char *value, vkmha_error *error);

/* As above, of "name=value". */
vkmha_status vkmha_settings_assign(vkmha_settings *settings, const char *assignment,
                                   vkmha_error *error);

/* Writes the given fields into a problem whose layer and lengths are known otherwise.
 * Errors: INVALID_ARGUMENT (a list of the wrong length). */
vkmha_status vkmha_settings_apply(const vkmha_settings *settings, vkmha_problem *problem,
                                  vkmha_error *error);

/* Prints the names with what they take, for --help. */
void vkmha_settings_print(void);

#endif
