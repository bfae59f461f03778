/*
 * A watchdog: reports when a rank has waited long for another, and where.
 *
 * A waiting rank records the wait in the wf_watch of its comm. A separate thread checks all ranks
 * of the process periodically and writes a line to the log (a rank that hangs cannot). With
 * options.end it also ends the process; the launcher then ends the other ranks.
 *
 *     struct wf_watchdog *dog = wf_watchdog_new(n, first, &(struct wf_watchdog_options){ .tell = 60 });
 *     comm->watch = wf_watchdog_rank(dog, i);        may be NULL: not watched
 *     ...
 *     wf_watchdog_free(dog);
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/log.h"

struct wf_watch {
    int rank;
    _Atomic(const char *) what; /* NULL: it does not wait */
    _Atomic(const char *) name; /* of the layer, or NULL */
    _Atomic int peer;           /* that it waits for, as far as known; -1: all */
    _Atomic int64_t step;       /* of the training; -1: before it */
    _Atomic int64_t since;      /* nanoseconds */
    _Atomic int64_t told;       /* seconds of waiting that were reported last */
};

/* Both take NULL. The texts must live as long as the watch. */
void wf_watch_begin(struct wf_watch *watch, const char *what);
void wf_watch_end(struct wf_watch *watch);
/* Context of the next waits; name NULL: none. */
void wf_watch_at(struct wf_watch *watch, int64_t step, const char *name, int peer);

struct wf_watchdog;
struct wf_watchdog_options {
    double tell, end;         /* seconds; 0: never */
    const struct wf_log *log; /* NULL: stderr */
};
/* For ranks first .. first + count - 1; NULL if there is nothing to do or no thread can be
 * created. */
struct wf_watchdog *wf_watchdog_new(int count, int first,
                                    const struct wf_watchdog_options *options);
void wf_watchdog_free(struct wf_watchdog *dog);
struct wf_watch *wf_watchdog_rank(struct wf_watchdog *dog, int i); /* NULL of NULL */
