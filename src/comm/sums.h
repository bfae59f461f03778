/*
 * Sums by messages: a schedule (schedule.h) carried out on the point-to-point slots of any comm,
 * nonblocking, several at a time.
 *
 * A long sum is cut into pieces: received data of a piece is added while it is still in the cache,
 * and memory is bounded by a window of pieces, however long the sum.
 *
 * W1. A sum in flight advances whenever its rank waits for anything or makes progress, in any
 *     comm. So an end waits only for the begin on the other ranks, as with the vtable's own sums.
 * W2. Every piece in flight has its own tag, so that messages of two pieces cannot be confused:
 *     within a comm, a piece begins when the previous piece with its tag has ended.
 * W3. A begin does not wait: a piece that may not begin yet begins later (W1).
 * W4. Pieces of long sums begin in the order of the sums, which is the same on all ranks of a
 *     comm: so the oldest is in flight on all ranks, and the window cannot be full of others. A
 *     short sum needs no place in the window, because a rank may wait for it while gradients are in
 *     flight.
 */
#pragma once

#include "comm/comm.h"
#include "comm/schedule.h"

struct wf_sum_work;
struct wf_sum_piece;
struct wf_sum_flight {
    struct wf_sum_work *first; /* of one rank, in all its comms; oldest first */
    bool busy;
};

/* State of a comm's sums. */
struct wf_sums {
    struct wf_sum_options options;
    struct wf_sum_flight *flight;
    bool owns_flight;
    struct wf_sum_nodes nodes;
    int n_nodes;
    int *ranks;         /* of `nodes` */
    size_t piece_bytes; /* as sent; a longer sum is cut */
    size_t window;      /* pieces of long sums that may be in flight */
    size_t long_pieces; /* that are */
    uint64_t numbers;   /* of pieces, so far */
    struct wf_sum_work *spare;
    struct wf_sum_piece *spare_pieces;
};

/* Collective over `comm`, which owns the result. `flight` NULL: a new one. */
[[nodiscard]] bool wf_sums_attach(struct wf_comm *comm, const struct wf_sum_options *options,
                                  struct wf_sum_flight *flight, struct wf_err *err);
/* Host memory that a rank's sums take at most, with `longest` bytes in the longest; `here`: all ranks are on one machine,
 * and no link is emulated between them. */
size_t wf_sums_most_bytes(int ranks, bool here, size_t longest);
/* `leave`: memory of sums in flight may still be written, and is not freed. */
void wf_sums_free(struct wf_sums *sums, bool leave);

/* By messages; `way` is one of ring, tree and nodes. */
[[nodiscard]] bool wf_sums_begin(struct wf_comm *comm, enum wf_sum_way way, void *data,
                                 size_t count, enum wf_dtype dtype, enum wf_dtype sent_dtype,
                                 struct wf_request **request, struct wf_err *err);
/* Whether it is one of these sums. */
bool wf_sums_has(const struct wf_comm *comm, const struct wf_request *request);
[[nodiscard]] bool wf_sums_end(struct wf_comm *comm, struct wf_request *request,
                               struct wf_err *err);
/* W1: called by every wait. Cheap if nothing is in flight. */
void wf_sums_advance(struct wf_comm *comm);
