/*
 * Which process of which machine wrote a file, and whether it still runs.
 *
 * What a killed process leaves behind (a lock, a half-written file) names its owner in this way. A
 * process is known by the kernel that runs it, its number and when it started: numbers are given
 * again.
 *
 *     const struct wf_process me = wf_process_self();
 *     if (wf_process_look(&other) == WF_PROCESS_GONE) ...
 */
#ifndef WF_BASE_PROCESS_H
#define WF_BASE_PROCESS_H

#include <stdint.h>

struct wf_process {
    uint32_t kernel;   /* one boot of one machine */
    uint32_t numbers;  /* within it, processes that see the same numbers (a container's) */
    long pid;          /* of `numbers` */
    uint64_t started;  /* clock ticks after boot; 0: not known */
    char host[64 + 1]; /* for people */
};

struct wf_process wf_process_self(void);

enum wf_process_state { WF_PROCESS_RUNS, WF_PROCESS_GONE, WF_PROCESS_UNKNOWN /* elsewhere */ };
enum wf_process_state wf_process_look(const struct wf_process *p);

#endif
