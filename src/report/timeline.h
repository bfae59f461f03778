/*
 * The timeline of one step: what each rank computed, what was in flight meanwhile, and when it waited.
 *
 *     struct wf_timeline t = { .title = "unet, mesh space=2x1", .ranks = 2, .events = e, .count = n };
 *     char *trace = wf_timeline_json(&arena, &t);      Chrome's format: ui.perfetto.dev opens it
 *     char *picture = wf_timeline_svg(&arena, &t);
 *
 * Seconds count from the beginning of the step on each rank. What is in flight lasts from its begin
 * to its end; the part of the end that had to be waited for is an event of its own.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum wf_event_kind {
    WF_EVENT_FORWARD,
    WF_EVENT_BACKWARD,
    WF_EVENT_COPY,    /* and packing */
    WF_EVENT_ADVANCE, /* between two kernels: moving and adding what is in flight */
    WF_EVENT_WAIT,
    WF_EVENT_FETCH, /* in flight */
    WF_EVENT_SUM,   /* in flight */
    WF_EVENT_KINDS
};

/* Plain bytes: ranks send it to each other. */
struct wf_event {
    double start, end; /* seconds */
    int32_t rank, kind;
    char name[48];
};

struct wf_timeline {
    const char *title;
    int ranks;
    const struct wf_event *events;
    size_t count;
};

/* Of one rank, in seconds; `flight` is when anything was in flight, `hidden` the part of that in which
 * the rank neither waited nor advanced it. */
struct wf_timeline_sums {
    double step, compute, advance, wait, flight, hidden;
};
struct wf_timeline_sums wf_timeline_sums(const struct wf_timeline *t, int rank);

/* Texts that live in the arena. */
char *wf_timeline_json(struct wf_arena *arena, const struct wf_timeline *t);
char *wf_timeline_svg(struct wf_arena *arena, const struct wf_timeline *t);
