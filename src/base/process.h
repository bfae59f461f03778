/*
 * Which process of which machine wrote a file, and whether it still runs.
 *
 * Locks and half-written files name their owner in this way. A process is identified by its kernel,
 * its number and its start time, because numbers are reused.
 *
 *     const struct wf_process me = wf_process_self();
 *     if (wf_process_look(&other) == WF_PROCESS_GONE) ...
 */
#pragma once

#include <stdint.h>

struct wf_process {
    uint32_t kernel;   /* one boot of one machine */
    uint32_t numbers;  /* within it, the PID namespace (a container's) */
    long pid;          /* of `numbers` */
    uint64_t started;  /* clock ticks after boot; 0: not known */
    char host[64 + 1]; /* for messages */
};

struct wf_process wf_process_self(void);

enum wf_process_state { WF_PROCESS_RUNS, WF_PROCESS_GONE, WF_PROCESS_UNKNOWN /* elsewhere */ };
enum wf_process_state wf_process_look(const struct wf_process *p);
