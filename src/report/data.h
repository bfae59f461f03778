/*
 * What the page of a report draws, as JSON: the run's curves, scores, samples, memory and times.
 *
 * C reads, bounds and sums up; report.js draws. Numbers are as the log has them (null: none), and so
 * are its objects (`facts`, `scores`, `confusion`, `ranks`, `staleness`, `samples`, `domains[].scores`, `codes`,
 * `reconstructions`), except that texts
 * are cut to a bound and control characters in them are made visible. Lists of `n_...` things may be
 * cut as well. Everything together keeps to WF_DATA_BYTES.
 *
 *     struct cJSON *json = wf_data_json(&data);
 *     char *text = wf_data_print(json);   for a script element: no '<', '>' or '&', whatever a name holds
 */
#pragma once

#include "report/runlog.h"

enum { WF_DATA_BYTES = 4'500'000 };

struct wf_report_data {
    struct wf_runlog log;
    struct wf_arena arena;
    const char *folder; /* of the run */
    const char *name;   /* of the run: the folder's last part */
    int64_t left;       /* bytes that may still be added */
};

/* The whole, from the heap: cJSON_Delete() and free(). */
struct cJSON *wf_data_json(struct wf_report_data *d);
char *wf_data_print(const struct cJSON *json);
