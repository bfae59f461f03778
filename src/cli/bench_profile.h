/*
 * Where a step's time went: the seconds of each kernel of rank 0's plan, the median of several passes, beside
 * what the cost model foretold; added up by operator, or one by one.
 */
#pragma once

#include <cjson/cJSON.h>

#include "exec/run.h"

struct wf_bench_row {
    const char *name; /* an operator, "copy", "fetch" or "sum" */
    int count;
    double seconds, foretold;
};

struct wf_bench_profile {
    struct wf_arena arena;
    double **passes; /* seconds of the plan's steps, for each pass */
    size_t n_passes, room;
    /* the result */
    struct wf_bench_row *rows; /* slowest first */
    int n_rows;
    cJSON *kernels;
};

/* After each pass. */
void wf_bench_profile_add(struct wf_bench_profile *p, const struct wf_run *run);
/* Behind the last of them. */
void wf_bench_profile_close(struct wf_bench_profile *p, const struct wf_plan *plan);
void wf_bench_profile_print(const struct wf_bench_profile *p, struct wf_arena *arena);
/* by_operator, foretold_by_operator (ms); kernels: their loads as in a table of figures. */
void wf_bench_profile_json(struct wf_bench_profile *p, cJSON *json);
void wf_bench_profile_release(struct wf_bench_profile *p);
