/* Internals of a run, for exec/ only: run.c creates it, walk.c executes its steps. */
#pragma once

#include "exec/run.h"
#include "exec/transport.h"

/* A part of the list: what is made ready once for all its turns. */
struct wf_run_part {
    /* Gradients that its steps make, in the order of their store; and whether the part sums them, over which
     * group is the plan's business. */
    struct wf_gradients {
        size_t first, count; /* elements */
        bool is_summed;
    } * gradients;
    int n_gradients;
    int *loads,
        n_loads; /* values that are filled from the queue before its turn; or copied there behind it */
    int *saves, n_saves;
    bool *touches;     /* per buffer */
    int period;        /* turns after which the slots that it touches are the same ones again */
    void **recordings; /* three per slot of the period (run_part()); NULL: none */
    bool may_record;   /* there is nothing in it that cannot be recorded */
    bool is_plain;     /* it was tried, and cannot */
    int64_t passes;
};

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
    struct wf_run *owner;          /* of the arena: this one, or who lends it */
    const struct wf_run
        *fixed_of;   /* of an owner: whose fixed steps its arena holds the results of; or NULL */
    char **borrowed; /* per buffer: where another run's weight is; NULL: all are this run's */
    struct wf_call *calls;        /* per step: kernels and copies, with their pointers resolved */
    struct wf_view **views;       /* per step: what its call reads and writes */
    struct wf_message **messages; /* per exchange */
    struct wf_view **packed;      /* per exchange and message: the packed side */
    struct wf_view **spread;      /* per exchange and message: the side in the value's buffer */
    struct wf_request **exchange_requests, **sum_requests;
    struct wf_transport
        *transport;            /* for buffers that are not in host memory; sums follow exchanges */
    struct wf_run_part *parts; /* of the plan's list */
    bool profiled;             /* the device marks each step */
    const struct wf_waits
        *waits;   /* while steps are recorded that may run beside each other; or NULL */
    int micro;    /* the micro-batch whose slots the pointers are of */
    int selected; /* the one whose inputs and outputs are looked at from outside */
    int count;    /* micro-batches of the next step */
    struct wf_run_carry carry;
    bool *is_held;      /* per sum: it was not begun, for the gradients are kept */
    int *pending_micro; /* per exchange: of which micro-batch that is */
    bool *is_pending;   /* per exchange: what is sent to another stage, and is not waited for yet */
    int in_flight;      /* exchanges and sums that have begun and not ended */
    bool holds_back;    /* gradients are carried in this turn and not summed: others follow */
    double started;     /* the step, by the clock */
    struct wf_run_times times;
    double *step_seconds, *step_starts;
    uint64_t seed, step;
    bool keeps_parts;
    struct range {
        size_t first, bytes;
    } * counted; /* of the gradients: this rank's part, where keeps_parts */
    int n_counted;
    double *turn_starts, *turn_seconds; /* per turn of the plan */
};

/* The box of a buffer, with its address. */
struct wf_view wf_run_resolve(const struct wf_run *run, const struct wf_slot *slot);
/* Invalidates the recordings. */
void wf_run_forget(struct wf_run *run);
/* walk.c: the steps [first, end). */
[[nodiscard]] bool wf_run_walk(struct wf_run *run, int first, int end, struct wf_err *err);
/* Waits for what was sent to another stage. */
[[nodiscard]] bool wf_run_end_pending(struct wf_run *run, int exchange, struct wf_err *err);
/* Pointers of the steps [first, end) for micro-batch run->micro. */
void wf_run_bind(struct wf_run *run, int first, int end);
/* turns.c: what the run knows of the parts. */
void wf_run_make_parts(struct wf_run *run);
/* Adds to these gradients what is carried, where this is the last micro-batch of several. */
void wf_run_add_carry(struct wf_run *run, void *gradients, size_t count);
