/*
 * Bounded staleness: which worker may get weights, and whose gradient may be applied, so that no
 * applied gradient is more than `bound` updates behind.
 *
 * A gradient computed with the weights after p updates and applied as update v + 1 is v - p behind.
 * Workers that compute or wait with a gradient are outstanding. B1: sorted by their p, number k of
 * them can still be applied in time, v + k - p_k <= bound; every step here keeps that true. So the
 * oldest can always be applied when it arrives, and no worker waits forever. B2: no worker begins a
 * batch when it has begun more than `bound` batches more than the slowest.
 *
 *     struct wf_staleness s;
 *     wf_staleness_init(&s, workers, bound);
 *     wf_staleness_ask(&s, i);           wants weights
 *     if (wf_staleness_next(&s, &i))     hand them out to i
 *     wf_staleness_arrive(&s, i);        its gradient is there
 *     if (wf_staleness_due(&s, &i))      apply that of i, which was so much behind: s.histogram counts it
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { WF_STALENESS_MOST = 63 };

enum wf_worker_state { WF_WORKER_IDLE, WF_WORKER_ASKS, WF_WORKER_COMPUTES, WF_WORKER_WAITS };

struct wf_staleness {
    int workers, bound;
    int64_t version; /* updates so far */
    int64_t events;
    struct wf_staleness_worker {
        enum wf_worker_state state;
        int64_t version; /* of the weights that it has */
        int64_t clock;   /* batches handed out since the start, or wf_staleness_restart() */
        int64_t since;   /* when it entered this state */
        int behind;      /* its last gradient */
    } * worker;
    int64_t histogram[WF_STALENESS_MOST + 1]; /* applied gradients, by how far they were behind */
};

void wf_staleness_init(struct wf_staleness *s, int workers, int bound);
void wf_staleness_release(struct wf_staleness *s);

void wf_staleness_ask(struct wf_staleness *s, int worker);
/* The worker that has waited longest among those that may get weights now: it computes from here
 * on. */
bool wf_staleness_next(struct wf_staleness *s, int *worker);
void wf_staleness_arrive(struct wf_staleness *s, int worker);
/* The gradient that arrived first among those that may be applied now: it counts as applied, its
 * worker is idle. */
bool wf_staleness_due(struct wf_staleness *s, int *worker);
/* All are idle: clocks restart. */
void wf_staleness_restart(struct wf_staleness *s);
int64_t wf_staleness_most_clock(const struct wf_staleness *s);
