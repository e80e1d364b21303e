/* What check counts and prints: over cases and over the grid's shapes. */
#ifndef VKMHA_TOOL_REPORT_H
#define VKMHA_TOOL_REPORT_H

#include "verify.h"

/* How check was asked to work. */
typedef struct vkmha_check_options {
    vkmha_device *device;
    const char *device_choice; /* as given, for repeat commands; NULL */
    vkmha_kernel_choice kernels;
    vkmha_type precision;   /* that cases are stored in, but for their weights */
    vkmha_type weight_type; /* that cases' weights are kept in */
    bool is_json;
    bool wants_grid;
    bool has_count;
    bool has_shape_seed;
    uint64_t count;   /* shapes */
    uint64_t seconds; /* 0: no limit */
    uint64_t seed;
    bool stops_at_failure; /* at the first failed shape, which is not made smaller */
    uint64_t shape_seed;   /* run just this shape */
    uint64_t without;      /* bits of vkmha_option that no shape gets */
} vkmha_check_options;

typedef struct vkmha_row_count {
    const char *name;
    uint64_t runs;
    uint64_t unfit; /* problems that the row cannot run on this device */
} vkmha_row_count;

typedef struct vkmha_report {
    bool is_json;
    bool is_lost; /* the device is gone: no use in going on */
    cJSON *failures;
    uint64_t passed;
    uint64_t failed;
    uint64_t skipped;
    vkmha_row_count rows[2 * VKMHA_MAX_ROWS];
    uint32_t num_rows;
} vkmha_report;

/* Counts a run, or a refusal, of a row; a NULL name is none. */
void vkmha_report_row(vkmha_report *report, const char *name, bool is_unfit);

/* Prints and keeps one failure. subject: "case x"; repeat: the command. */
void vkmha_report_failure(vkmha_report *report, const char *subject, const char *kernels,
                          const char *what, const char *repeat);

/* Runs the case files and folders of `paths`. Returns false after an error line of wrong use. */
bool vkmha_check_cases(const vkmha_check_options *options, char **paths, int num_paths,
                       vkmha_report *report);

/* Runs random shapes; prints, or adds to `document`, which options occurred. */
void vkmha_check_grid(const vkmha_check_options *options, vkmha_report *report, cJSON *document);

#endif
