/*
 * The logger. Messages for users go to stderr; data is never printed here.
 *
 * There is no global state: a `struct wf_log` belongs to the run (ranks may be threads), and only
 * the rank that prints has a level above WF_LOG_QUIET.
 */
#pragma once

enum wf_log_level { WF_LOG_QUIET, WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG };

struct wf_log {
    enum wf_log_level level; /* messages above it are dropped */
};

/* "widefield: warning: <text>" on stderr, in one write so that ranks do not mix lines. */
void wf_log(const struct wf_log *log, enum wf_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
