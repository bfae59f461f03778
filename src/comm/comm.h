/*
 * Communication: one interface for all transports.
 *
 * A comm is one rank's end of a group of ranks. `self` is a group of one, `threads` runs ranks as
 * threads of one process, `mpi` is used under mpirun or srun. Calls marked Collective must be made
 * by all ranks of the (sub)group in the same order. Buffers belong to the comm between begin and
 * end: a send buffer may be read, a receive buffer neither read nor written. Nothing is allocated
 * between begin and end once a comm has seen its largest batch.
 *
 *     struct wf_message m[2] = { { .peer = 1, .tag = 7, .send = out, .bytes = n },
 *                                { .peer = 1, .tag = 7, .recv = in,  .bytes = n } };
 *     struct wf_request *r;
 *     if (!wf_comm_exchange_begin(comm, 2, m, &r, &err)) ...
 *     ... compute ...
 *     if (!wf_comm_exchange_end(comm, r, &err)) ...
 *
 * Failure. A rank that fails calls wf_comm_abort(); every other rank's pending and later calls then
 * return false with that rank's message. No call hangs on a dead peer. A rank that fails with
 * requests in flight aborts before it frees their buffers; after wf_comm_abort(), or after a call
 * that returned false because of one, it may. The process should then end: under MPI only small or
 * point-to-point operations can be cancelled reliably, a large sum cannot.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

struct wf_comm;
struct wf_request;

struct wf_message {
    int peer; /* rank in this comm */
    int tag;  /* messages of one (from, to, tag) arrive in the order they were begun; 0 .. 32000 */
    const void *send; /* exactly one of send and recv is set (a message of 0 bytes is allowed) */
    void *recv;
    size_t bytes; /* both sides agree; a difference is an error on the receiver */
};

int wf_comm_rank(const struct wf_comm *comm);
int wf_comm_size(const struct wf_comm *comm);
const char *wf_comm_name(
    const struct wf_comm *comm); /* "self", "threads", "mpi", "emulated link" */

/* All messages of a batch are sent at once. `*request` is NULL when there was nothing to do. */
[[nodiscard]] bool wf_comm_exchange_begin(struct wf_comm *comm, int count,
                                          const struct wf_message *messages,
                                          struct wf_request **request, struct wf_err *err);
[[nodiscard]] bool wf_comm_exchange_end(struct wf_comm *comm, struct wf_request *request,
                                        struct wf_err *err);

/* Both, where nothing else is to be done meanwhile. */
static inline bool wf_comm_exchange(struct wf_comm *comm, int count,
                                    const struct wf_message *messages, struct wf_err *err)
{
    struct wf_request *request = NULL;
    return wf_comm_exchange_begin(comm, count, messages, &request, err) &&
           wf_comm_exchange_end(comm, request, err);
}

/* Collective. In place sum of f32, f64, i32, i64, bf16 or f16 (f32 accumulation for the last two);
 * the same bits on every rank, and for `threads` the order of summation is the rank order. */
[[nodiscard]] bool wf_comm_sum_begin(struct wf_comm *comm, void *data, size_t count,
                                     enum wf_dtype dtype, struct wf_request **request,
                                     struct wf_err *err);
[[nodiscard]] bool wf_comm_sum_end(struct wf_comm *comm, struct wf_request *request,
                                   struct wf_err *err);
static inline bool wf_comm_sum(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype,
                               struct wf_err *err)
{
    struct wf_request *request = NULL;
    return wf_comm_sum_begin(comm, data, count, dtype, &request, err) &&
           wf_comm_sum_end(comm, request, err);
}
/* Collective. The same for f32 that may be sent rounded to wf_sum_options.sent_dtype, with f32
 * accumulation: for gradients. */
[[nodiscard]] bool wf_comm_sum_rounded_begin(struct wf_comm *comm, void *data, size_t count,
                                             struct wf_request **request, struct wf_err *err);

/* Algorithm of sums. The default of a comm is its library's: MPI's, or shared memory. */
enum wf_sum_way { WF_SUM_AUTO, WF_SUM_LIBRARY, WF_SUM_RING, WF_SUM_TREE, WF_SUM_NODES };
struct wf_sum_options {
    enum wf_sum_way way;
    enum wf_dtype sent_dtype; /* WF_BF16: of rounded sums; otherwise as they are */
    int node_ranks; /* neighbouring ranks that count as one machine; 0: those that are on one */
};
/* Collective, with nothing in flight. Comms that are split off later inherit it. */
[[nodiscard]] bool wf_comm_set_sums(struct wf_comm *comm, const struct wf_sum_options *options,
                                    struct wf_err *err);
/* The algorithm used for a sum of this size; never WF_SUM_AUTO. */
enum wf_sum_way wf_comm_sum_way(const struct wf_comm *comm, size_t bytes);
/* Number of machines of this comm's ranks; known after wf_comm_set_sums(), 1 before. */
int wf_comm_nodes(const struct wf_comm *comm);

/* Collective. */
[[nodiscard]] bool wf_comm_broadcast(struct wf_comm *comm, int root, void *data, size_t bytes,
                                     struct wf_err *err);
[[nodiscard]] bool wf_comm_barrier(struct wf_comm *comm, struct wf_err *err);
/* Collective. The largest of all ranks' values, on every rank; none is negative. */
[[nodiscard]] bool wf_comm_largest(struct wf_comm *comm, double *value, struct wf_err *err);
/* Collective. The least of all ranks' counts, on every rank. */
[[nodiscard]] bool wf_comm_least(struct wf_comm *comm, size_t *bytes, struct wf_err *err);
/* Collective. True only when `ok` is true on every rank; otherwise every rank gets the message of
 * the lowest failing rank in `err` ("rank 3: ..."; a group of one adds no name). `err` holds this
 * rank's own failure when `ok` is false. An error that all ranks of the world have agreed on is
 * marked so (wf_err.is_shared). */
[[nodiscard]] bool wf_comm_agree(struct wf_comm *comm, bool ok, struct wf_err *err);

/* Collective over `comm`: ranks with equal colour (>= 0) form a new comm, ordered by their rank.
 * The new one is freed by the caller before the old. */
[[nodiscard]] bool wf_comm_split(struct wf_comm *comm, int colour, struct wf_comm **sub,
                                 struct wf_err *err);
/* Waits until one of `count` exchanges is complete (NULLs are skipped; at least one is not NULL)
 * and returns its index; it must still be ended. */
[[nodiscard]] bool wf_comm_exchange_wait_any(struct wf_comm *comm, int count,
                                             struct wf_request *const *requests, int *which,
                                             struct wf_err *err);

/* Index and number of the world's ranks on this machine, to choose a device and cores. The same in
 * all comms of a rank. */
int wf_comm_local_rank(const struct wf_comm *comm);
int wf_comm_local_size(const struct wf_comm *comm);
/* Cores that the world's ranks on this machine may use, together: a launcher may bind each to some. Of MPI only. */
int wf_comm_local_cores(const struct wf_comm *comm);

/* Lets nonblocking operations advance; cheap. */
void wf_comm_progress(struct wf_comm *comm);
/* Makes all ranks of the world fail. Not collective. */
void wf_comm_abort(struct wf_comm *comm, const struct wf_err *err);
void wf_comm_free(struct wf_comm *comm);

/* --- constructors --- */
struct wf_comm *wf_comm_self(void);

/* Runs `body(comm, arg)` once per rank, on `size` threads of this process (the caller's thread is
 * rank 0), and returns when all have ended. False with the lowest failing rank's error. */
[[nodiscard]] bool wf_comm_threads_run(int size,
                                       bool (*body)(struct wf_comm *comm, void *arg,
                                                    struct wf_err *err),
                                       void *arg, struct wf_err *err);

/* True when a launcher started this process as one of several (or one) MPI ranks. */
bool wf_comm_mpi_launched(void);
/* Which of them, as the launcher says, for messages before MPI is there. */
int wf_comm_launched_rank(void);
/* Tasks of the Slurm job whose shell or script started this process; 0: none did. */
int wf_comm_slurm_tasks(void);
/* Collective. A private duplicate of MPI_COMM_WORLD; initialises MPI. NULL with an error where there is
 * no MPI (mpi.h). wf_comm_mpi_finish() ends MPI at the end of main. */
struct wf_comm *wf_comm_mpi(struct wf_err *err);
void wf_comm_mpi_finish(void);

/* --- for implementations: required slots first --- */
struct wf_comm_vtable {
    const char *name;
    bool (*exchange_begin)(struct wf_comm *, int, const struct wf_message *, struct wf_request **,
                           struct wf_err *);
    bool (*exchange_end)(struct wf_comm *, struct wf_request *, struct wf_err *);
    bool (*sum_begin)(struct wf_comm *, void *, size_t, enum wf_dtype, struct wf_request **,
                      struct wf_err *);
    bool (*sum_end)(struct wf_comm *, struct wf_request *, struct wf_err *);
    bool (*broadcast)(struct wf_comm *, int, void *, size_t, struct wf_err *);
    bool (*split)(struct wf_comm *, int, struct wf_comm **, struct wf_err *);
    void (*abort)(struct wf_comm *, const struct wf_err *);
    void (*free)(struct wf_comm *);
    /* Whether its end would return at once, with or without an error. Does not wait. */
    bool (*exchange_test)(struct wf_comm *, struct wf_request *);
    bool (*exchange_wait_any)(struct wf_comm *, int, struct wf_request *const *, int *,
                              struct wf_err *);
    bool sums_past; /* its own sums bypass the link model: they are for setting up only */
    void (*progress)(struct wf_comm *); /* optional */
    /* For wf_halt_tell(): ends all processes of the world with the status of WF_ERR_FIT. Optional. */
    void (*end_all)(const char *text);
};
struct wf_place {
    int node; /* lowest rank of the world on this machine */
    int rank, size, cores;
};
struct wf_comm {
    const struct wf_comm_vtable *vtable;
    int rank, size;
    int world_rank, world_size;
    struct wf_place place;
    bool leaves_memory;         /* buffers in flight may be written after free() */
    struct wf_sums *sums;       /* NULL: the vtable's only */
    struct wf_watch *watch;     /* records what this rank waits for; or NULL */
    const struct wf_stop *stop; /* looked at before each step; or NULL */
};
