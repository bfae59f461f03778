/*
 * The logger. Messages for users go to stderr, or to a function of the program; data is never printed here.
 *
 * There is no global state: a `struct wf_log` belongs to the run (ranks may be threads), and only
 * the rank that prints has a level above WF_LOG_QUIET.
 */
#pragma once

#include "widefield_types.h"

struct wf_log {
    enum wf_log_level level; /* messages above it are dropped */
    wf_log_fn *take;         /* of a program that shows them itself; NULL: stderr */
    void *user;
};

/* "widefield: warning: <text>", in one write so that ranks do not mix lines. */
void wf_log(const struct wf_log *log, enum wf_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
