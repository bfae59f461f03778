/* Internals of a run, for exec/ only: run.c creates it, walk.c executes its steps. */
#pragma once

#include "exec/run.h"
#include "exec/transport.h"

struct wf_run {
    const struct wf_plan *plan;
    const struct wf_device *device;
    struct wf_context *context;
    struct wf_comm *comm;
    struct wf_comm **groups; /* per group of the geometry; NULL: this rank is not in it */
    int n_groups;
    struct wf_arena arena, plan_arena; /* the second: what belongs to the plan that is run now */
    char *store[WF_STORES];
    size_t store_bytes[WF_STORES]; /* that were taken; 0: another run's */
    char **borrowed;       /* per buffer: where another run's weight is; NULL: all are this run's */
    struct wf_call *calls; /* per step: kernels and copies, with their pointers resolved */
    struct wf_message **messages; /* per exchange */
    struct wf_view **packed;      /* per exchange and message: the packed side */
    struct wf_view **spread;      /* per exchange and message: the side in the value's buffer */
    struct wf_request **exchange_requests, **sum_requests;
    struct wf_transport
        *transport;  /* for buffers that are not in host memory; sums follow exchanges */
    void *recording; /* of a whole pass; NULL: none */
    bool plain;      /* passes are not recorded */
    bool profiled;   /* the device marks each step */
    int in_flight;   /* exchanges and sums that have begun and not ended */
    struct wf_run_times times;
    double *step_seconds, *step_starts;
    uint64_t seed, step;
    bool keeps_parts;
    struct range {
        size_t first, bytes;
    } * counted; /* of the gradients: this rank's part, where keeps_parts */
    int n_counted;
    int64_t passes; /* over this plan */
};

/* The box of a buffer, with its address. */
struct wf_view wf_run_resolve(const struct wf_run *run, const struct wf_slot *slot);
/* Invalidates the recording of a pass. */
void wf_run_forget(struct wf_run *run);
