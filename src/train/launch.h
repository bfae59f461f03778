/*
 * How this process was started: as one of a launcher's ranks, or alone, with ranks as its threads.
 *
 * Under a launcher every rank reads its own files, which must be the same on all ranks: ranks that plan
 * different networks would wait for messages that never come.
 */
#pragma once

#include "base/log.h"
#include "comm/comm.h"
#include "comm/watch.h"
#include "data/fingerprint.h"

struct wf_launch {
    struct wf_comm *world;        /* NULL: ranks are threads */
    bool is_root;                 /* rank 0, or no launcher: prints what is printed once */
    const struct wf_log *log;     /* where messages go */
    struct wf_watchdog *watchdog; /* of the world's waits */
};

/* Collective under a launcher, which it asks for: starts MPI and fills in the world. Of the struct only
 * `log` is set before. The thread that begins is the only one that communicates, and ends it. */
[[nodiscard]] bool wf_launch_begin(struct wf_launch *l, const struct wf_watchdog_options *watch,
                                   struct wf_err *err);
/* Collective under a launcher. Ends MPI, also after wf_launch_begin() failed. */
void wf_launch_end(struct wf_launch *l);

/* Cores that this process may use, under a launcher that all its ranks on this machine may: it may bind each to some. */
int wf_launch_cores(const struct wf_launch *l);

/* Collective over the world, if there is one. True only if `ok` is true on every rank. A rank that failed
 * aborts the others at once, wherever they are: they may have passed this call, or wait before it. */
[[nodiscard]] bool wf_launch_agree(const struct wf_launch *l, bool ok, struct wf_err *err);
/* Collective over the world, if there is one. Does every rank see the same file at `path`, by its digest? */
[[nodiscard]] bool wf_launch_same_file(const struct wf_launch *l, const char *path,
                                       const char *digest, struct wf_err *err);
/* Collective over the world, if there is one. Does every rank see the same dataset? */
[[nodiscard]] bool wf_launch_same_data(const struct wf_launch *l, const struct wf_dataset *data,
                                       const struct wf_fingerprint *mine, struct wf_err *err);
/* Collective over the world. Rank 0's bytes on every rank, with a zero behind them; NULL on failure. */
const char *wf_launch_share(struct wf_arena *arena, const struct wf_launch *l, const void *mine,
                            size_t bytes, struct wf_err *err);
