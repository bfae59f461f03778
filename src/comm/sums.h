/*
 * Sums by messages: a schedule (schedule.h) carried out on the point-to-point slots of any comm,
 * nonblocking, several at a time.
 *
 * W1. A sum in flight advances whenever its rank waits for anything or makes progress, in whatever
 *     comm: so an end waits for the begin of the others only, as with the slots' own sums.
 * W2. Every sum in flight has a tag of its own, so that messages of two sums cannot be mistaken.
 * W3. Between two rounds nothing is in flight; memory for what arrives is taken then, and kept.
 */
#ifndef WF_COMM_SUMS_H
#define WF_COMM_SUMS_H

#include "comm/comm.h"
#include "comm/schedule.h"

struct wf_sum_machine;
struct wf_sum_flight {
    struct wf_sum_machine *first; /* of one rank, in all its comms */
};

/* What a comm knows about its sums. */
struct wf_sums {
    struct wf_sum_options options;
    struct wf_sum_flight *flight;
    bool owns_flight;
    struct wf_sum_nodes nodes;
    int n_nodes;
    int *ranks; /* of `nodes` */
    uint64_t begun;
    struct wf_sum_machine *spare;
};

/* Collective over `comm`, which gets it. `flight` NULL: one of its own. */
[[nodiscard]] bool wf_sums_attach(struct wf_comm *comm, const struct wf_sum_options *options,
                                  struct wf_sum_flight *flight, struct wf_err *err);
/* `leave`: memory of sums in flight may still be written, and is left to the end of the process. */
void wf_sums_free(struct wf_sums *sums, bool leave);

/* By messages; `way` is one of ring, tree and nodes. */
[[nodiscard]] bool wf_sums_begin(struct wf_comm *comm, enum wf_sum_way way, void *data,
                                 size_t count, enum wf_dtype dtype, enum wf_dtype wire,
                                 struct wf_request **request, struct wf_err *err);
/* Is it one of these sums? */
bool wf_sums_has(const struct wf_comm *comm, const struct wf_request *request);
[[nodiscard]] bool wf_sums_end(struct wf_comm *comm, struct wf_request *request,
                               struct wf_err *err);
/* W1: to be called by whoever waits. Cheap where there is nothing in flight. */
void wf_sums_advance(struct wf_comm *comm);

#endif
