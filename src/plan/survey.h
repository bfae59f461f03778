/*
 * A survey: what the plans of all ranks come to.
 *
 * Each rank's plan is made, checked, and let go again; what stays are its figures and the order of
 * its messages and sums, which are held against each other at the end (I4 to I6). So thousands of
 * ranks take the memory of one plan and a short list each.
 *
 *     struct wf_survey *s = wf_survey_new(scheme, &err);
 *     printf("rank 7: %zu bytes\n", s->ranks[7].arena_bytes);
 *     wf_survey_free(s);
 */
#ifndef WF_PLAN_SURVEY_H
#define WF_PLAN_SURVEY_H

#include "plan/plan.h"

struct wf_survey_rank {
    size_t arena_bytes, live_bytes;
    size_t weight_bytes; /* parameters, gradients, states */
    size_t param_count;  /* elements of the parameters' store */
    size_t fetch_bytes, send_bytes, reduce_bytes;
    int steps, messages, references;
    double flops, seconds, compute_seconds, link_seconds;
    double again_seconds; /* of compute_seconds: for what the limit made the planner make again */
};

struct wf_survey {
    struct wf_arena arena;
    const struct wf_scheme *scheme;
    struct wf_survey_rank *ranks;
    int n_ranks;
};

/* Plans all ranks of the scheme; NULL when one cannot be planned or they do not meet. */
struct wf_survey *wf_survey_new(const struct wf_scheme *scheme, struct wf_err *err);
void wf_survey_free(struct wf_survey *survey);

struct wf_survey_rank wf_survey_rank_of(const struct wf_plan *plan);

#endif
