#include "report.h"

#include <string.h>

void vkmha_report_row(vkmha_report *report, const char *name, bool is_unfit)
{
    if (!name) {
        return;
    }
    uint32_t i = 0;
    while (i < report->num_rows && strcmp(report->rows[i].name, name) != 0) {
        i++;
    }
    if (i == report->num_rows) {
        if (i == sizeof(report->rows) / sizeof(report->rows[0])) {
            return;
        }
        report->rows[report->num_rows++].name = name;
    }
    if (is_unfit) {
        report->rows[i].unfit++;
    } else {
        report->rows[i].runs++;
    }
}

void vkmha_report_failure(vkmha_report *report, const char *subject, const char *kernels,
                          const char *what, const char *repeat)
{
    if (report->is_json) {
        cJSON *failure = cJSON_CreateObject();
        cJSON_AddStringToObject(failure, "subject", subject);
        cJSON_AddStringToObject(failure, "kernels", kernels);
        cJSON_AddStringToObject(failure, "what", what);
        cJSON_AddStringToObject(failure, "repeat", repeat);
        cJSON_AddItemToArray(report->failures, failure);
    } else {
        printf("FAILED %s%s%s: %s; repeat: %s\n", subject, kernels[0] ? ", kernels " : "", kernels,
               what, repeat);
        fflush(stdout);
    }
}
