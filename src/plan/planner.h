/* The planner's own state while it makes one rank's plan; not for anybody else. */
#ifndef WF_PLAN_PLANNER_H
#define WF_PLAN_PLANNER_H

#include "plan/plan.h"

struct wf_planner {
    struct wf_plan *plan;
    const struct wf_geometry *geo;
    const struct wf_program *program;
    const struct wf_device *device;
    int rank, threads;
    bool overlap;
    const struct wf_kernel **kernel; /* per item */
    int *root;                       /* per instance: the instance whose buffer it shares */
    int64_t (*shift)[WF_AXES];       /* per instance: own coordinate + shift = the root's */
    struct wf_slot *slot;            /* per instance: all of its box; buffer -1: not on this rank */
    size_t room_steps, room_buffers, room_exchanges, room_sums;
};

/* place.c: which instances share memory, and a buffer for each of the rest. */
void wf_planner_place(struct wf_planner *p);
/* emit.c: the steps. */
[[nodiscard]] bool wf_planner_emit(struct wf_planner *p, struct wf_err *err);

int wf_planner_add_buffer(struct wf_planner *p, enum wf_store store, size_t bytes,
                          const char *name);
/* The part of an instance's slot inside `box`, in the instance's coordinates. */
struct wf_slot wf_slot_part(const struct wf_slot *slot, struct wf_region box);

#endif
