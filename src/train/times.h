/*
 * Where the wall time of a run went. Every moment counts in one part, so the parts add up to the whole.
 *
 *     wf_times_begin(&times, wf_now());
 *     ... read the dataset ...
 *     times.data += wf_times_lap(&times, WF_TIME_STARTUP);      all since the last lap was start-up
 *     ... a step ...
 *     (void)wf_times_lap(&times, WF_TIME_STEPS);
 *
 * They are rank 0's; NULL in place of one is fine and measures nothing.
 */
#pragma once

struct cJSON;

enum wf_time_part {
    WF_TIME_STARTUP, /* until the first step: dataset, plan, kernels */
    WF_TIME_STEPS,   /* compute and communication */
    WF_TIME_INPUT,   /* steps that waited for their batch */
    WF_TIME_VALIDATION,
    WF_TIME_CHECKPOINTS, /* that the training waited for them */
    WF_TIME_REST,        /* log, pictures of samples, report */
    WF_TIME_PARTS
};
extern const char *const wf_time_names[WF_TIME_PARTS];

/* Seconds. */
struct wf_times {
    double began, last; /* when: of the clock (base/clock.h) */
    double at[WF_TIME_PARTS];
    double data, plan, kernels; /* of the start-up */
    double comm;                /* of the steps: waiting for other ranks */
    double pictures, report;    /* of the rest, behind the last step; what is left is the log */
};

void wf_times_begin(struct wf_times *t, double now);
/* Counts the time since the last lap in `part`, and returns it. */
double wf_times_lap(struct wf_times *t, enum wf_time_part part);
/* So much of the steps was communication. */
void wf_times_add_comm(struct wf_times *t, double seconds);
/* All of it, up to the last lap. */
double wf_times_total(const struct wf_times *t);
/* Since the start-up. */
double wf_times_trained(const struct wf_times *t);
/* Adds `seconds`, `seconds_by` with the parts, and what start-up and steps were made of. */
void wf_times_json(struct cJSON *to, const struct wf_times *t);
