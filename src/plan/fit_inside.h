/* State of the search for a plan that fits; for fit*.c only. */
#pragma once

#include "plan/fit.h"
#include "plan/planner.h"

struct wf_fit {
    struct wf_global_plan *full;   /* of all ranks */
    struct wf_global_plan *global; /* of `rank` alone */
    struct wf_plan *plan;          /* with lives only */
    int rank;
    size_t aim; /* target bytes of the search: at most the limit */
    struct wf_plan_cache cache;
    struct wf_arena arena; /* of the following data about the plan */
    size_t *live;          /* per step: bytes of the arena */
    size_t peak;
    int *first_step, *last_step; /* per item */
    double *seconds;             /* per node: one run of it */
    struct wf_requests asked;    /* on the heap */
};

/* Plans the rank with the current requests. */
[[nodiscard]] bool wf_fit_look(struct wf_fit *f, struct wf_err *err);
/* Bytes above the mark, over the steps. */
double wf_fit_excess(const struct wf_fit *f, size_t mark);

/* fit_strips.c: requests strips that reduce the bytes above the mark; *found: there were some. */
[[nodiscard]] bool wf_fit_strips(struct wf_fit *f, size_t mark, bool *found, struct wf_err *err);
