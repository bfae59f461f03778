/*
 * The plan of all ranks: the figures of all ranks' plans.
 *
 * Each rank's plan is made, checked, and freed; its figures and the order of its messages and sums
 * are kept, and the latter are compared over all ranks at the end (I4 to I6). So thousands of ranks
 * take the memory of one plan and a short list each.
 *
 *     struct wf_all_ranks *s = wf_all_ranks_new(global, NULL, &err);
 *     printf("rank 7: %zu bytes\n", s->ranks[7].arena_bytes);
 *     wf_all_ranks_free(s);
 */
#pragma once

#include "comm/comm.h"
#include "plan/plan.h"

struct wf_rank_figures {
    size_t arena_bytes, live_bytes;
    size_t weight_bytes;  /* parameters, gradients, states */
    size_t trained_count; /* elements of weights that are trained */
    size_t fetch_bytes, send_bytes, reduce_bytes;
    int steps, messages, references;
    int meetings; /* waits for what others send, or for a sum */
    double flops, seconds, compute_seconds, link_seconds;
    double recompute_seconds; /* of compute_seconds: for recomputations due to the limit */
};

struct wf_all_ranks {
    struct wf_arena arena;
    const struct wf_global_plan *global;
    struct wf_context *context; /* that they were planned with; or NULL */
    struct wf_rank_figures *ranks;
    int n_ranks; /* that were planned */
    /* A step with all its micro-batches, where stages take turns and wait for each other: its seconds, and of
     * each stage the part of them in which it does nothing (its bubble). */
    double seconds, *bubbles;
    double *work, *travel; /* per segment: of the rank that takes longest */
};
/* The mean over the stages. */
double wf_all_ranks_bubble(const struct wf_all_ranks *all);

/* Plans all ranks of the global plan; NULL if one cannot be planned or the message check fails. With a context of
 * a GPU the scratch of kernels is that of what was chosen for them, where it was; without one (NULL) it is estimated. */
struct wf_all_ranks *wf_all_ranks_new(const struct wf_global_plan *global,
                                      struct wf_context *context, struct wf_err *err);
/* The same for some typical ranks alone, in no order: of each stage and worker along domain its first, its last and the
 * one in the middle. Messages are not checked. */
struct wf_all_ranks *wf_all_ranks_typical(const struct wf_global_plan *global, struct wf_err *err);
/* Collective: the figures of plans that are made, which each rank hands over its own of. The same on every rank. */
struct wf_all_ranks *wf_all_ranks_gather(const struct wf_plan *plan, struct wf_comm *comm,
                                         struct wf_err *err);
void wf_all_ranks_free(struct wf_all_ranks *all);
