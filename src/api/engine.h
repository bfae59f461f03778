/*
 * The engine: the thread that ranks run from, so that the program's own thread never is one.
 *
 * It runs one function after the other, as the program's thread asks for them and waits. Under a
 * launcher it is also the thread that starts, uses and ends MPI. A function may stay: one that runs ranks
 * which keep something (weights, memory) ends only when it is told to. Its ranks meet in
 * wf_engine_park() again and again, where they take orders:
 *
 *     program's thread                              ranks
 *     wf_stay_begin(&stay, e, body, arg, err)       body() ... wf_engine_park(e, rank, comm, &until)
 *     wf_stay_order(&stay, collective, arg, err)        collective(rank, comm, arg, err) on each of them
 *     wf_stay_go(&stay, until, err)                     returns true: they work on, and park again
 *     wf_stay_end(&stay)                                returns false: they end, and so does body()
 *
 * E1. One function stays at a time. While its ranks are parked, others (wf_engine_call) run on the
 *     engine's thread from within the park: it is rank 0 of ranks that are threads, or MPI's only thread.
 * E2. A call of the program ends when the ranks are parked again, or their function has returned.
 */
#pragma once

#include "base/stop.h"
#include "train/launch.h"

struct wf_engine;

typedef bool wf_engine_fn(void *arg, struct wf_err *err);
/* Collective over the ranks that stay; its failure is theirs all, and they stay. */
typedef bool wf_engine_collective(void *rank, struct wf_comm *comm, void *arg, struct wf_err *err);

/* Starts the thread, and MPI where a launcher asks for it. Launch is filled in and borrowed. `stop` is of the
 * call that runs: one that begins clears it. NULL on failure. */
struct wf_engine *wf_engine_new(struct wf_launch *launch, const struct wf_watchdog_options *watch,
                                struct wf_stop *stop, struct wf_err *err);
/* What stays has been ended before. */
void wf_engine_free(struct wf_engine *e);

[[nodiscard]] bool wf_engine_call(struct wf_engine *e, wf_engine_fn *fn, void *arg,
                                  struct wf_err *err);

/* A function that stays, as the program sees it. */
struct wf_stay {
    struct wf_engine *engine;
    bool is_over;         /* it has returned */
    struct wf_err failed; /* why */
};

/* Runs it, and returns when its ranks are parked; false where it has failed before, or another stays. */
[[nodiscard]] bool wf_stay_begin(struct wf_stay *stay, struct wf_engine *e, wf_engine_fn *fn,
                                 void *arg, struct wf_err *err);
/* Once it has failed, all these fail with its error. */
[[nodiscard]] bool wf_stay_order(struct wf_stay *stay, wf_engine_collective *fn, void *arg,
                                 struct wf_err *err);
[[nodiscard]] bool wf_stay_go(struct wf_stay *stay, int64_t until, struct wf_err *err);
void wf_stay_end(struct wf_stay *stay);

/* Collective over the ranks that stay; `rank` is what orders get. True: go on, `*until` is that of
 * wf_stay_go(); false: end. */
bool wf_engine_park(struct wf_engine *e, void *rank, struct wf_comm *comm, int64_t *until);
