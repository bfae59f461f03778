/*
 * Ranks as threads of one process: what threads.c, threads_exchange.c and threads_sum.c share.
 *
 * A world is what one wf_comm_threads_run() starts: one wf_thread per rank. A group is a set of
 * threads that communicate: all of them, or a part made by split. A comm is one thread's end of a
 * group.
 *
 * T1. A request is begun, ended and freed by its own thread only. Others access it through its
 *     entries (exchange) or its round (sum), and release it before its owner may return from end.
 * T2. An entry is in a lane only under the lock of the lane's mailbox. A thread that finds the
 *     counterpart of its own entry removes it, copies, and then decrements `left` of both requests:
 *     so a copy needs no third thread, and an end waits only for the begin of the other side, never
 *     for its end.
 * T3. The memory of a round is touched only by those counted in `workers`, and only while it is not
 *     dead. A round is done or dead, never both.
 * T4. A call that fails because of an abort has first withdrawn everything that its thread had in
 *     flight, in all groups: the caller may free its buffers.
 * T5. Locks are never nested.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"

/* One rank's thread, in all its groups. Other threads signal it when something that it may wait for
 * has happened. */
struct wf_thread {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    atomic_uint rings;
    atomic_bool ended; /* its body has returned */
    struct wf_request *in_flight;
    struct wf_threads_world *world;
    int rank; /* in the world */
};

struct wf_threads_world {
    int size, spins;
    struct wf_thread *threads;
    struct wf_threads_group *everyone;
    atomic_int ended;
    atomic_bool aborted; /* set last, after `why` and `culprit` */
    pthread_mutex_t lock;
    struct wf_err why;
    int culprit;
};

/* One side of a message. */
struct wf_threads_entry {
    struct wf_threads_entry *next;
    struct wf_request *request;
    struct wf_message message;
    size_t sent; /* on the receiver, once complete: bytes of the sender */
    bool queued; /* guarded by the mailbox */
};

/* Entries begun on one side only, between one sender and one receiver, oldest first. */
struct wf_threads_lane {
    struct wf_threads_entry *first, *last;
};

struct wf_threads_mailbox {
    pthread_mutex_t lock;
    struct wf_threads_lane *lanes; /* by sender */
};

enum wf_threads_state { WF_ROUND_OPEN, WF_ROUND_READY, WF_ROUND_DONE, WF_ROUND_DEAD };

/* One sum. Guarded by the group's lock, but for `state`, which may be read without. */
struct wf_threads_round {
    struct wf_threads_round *next;
    uint64_t number;
    size_t count;
    enum wf_dtype dtype;
    int first_rank; /* who opened it */
    int arrived, holders, workers;
    size_t blocks, claimed, done;
    atomic_int state;
    void **data; /* by rank; NULL: not yet here */
};

struct wf_threads_group {
    struct wf_threads_world *world;
    int size;
    atomic_int references;
    struct wf_thread **members;
    struct wf_threads_mailbox *mailboxes; /* by receiver */
    struct wf_threads_lane *lanes;
    pthread_mutex_t lock;
    struct wf_threads_round *rounds, *spare_rounds;
};

struct wf_request { /* arch-ok: every comm has its own, opaque to all others */
    struct wf_threads_comm *comm;
    struct wf_request *next_made, *next_spare;
    struct wf_request *next, *previous; /* in flight */
    struct wf_threads_round *round;     /* NULL: an exchange */
    int count;
    atomic_int left; /* entries that are not complete */
    struct wf_threads_entry *entries;
    size_t room;
};

struct wf_threads_comm {
    struct wf_comm base;
    struct wf_threads_group *group;
    struct wf_thread *me;
    struct wf_request *made, *spare;
    struct wf_message *cast; /* of a broadcast */
    uint64_t sums;           /* begun so far: the number of the next round */
    bool owns_world;
};

/* --- threads.c --- */
struct wf_threads_world *wf_threads_world_new(int size);
struct wf_threads_comm *wf_threads_comm_new(struct wf_threads_group *group, int rank);
void wf_threads_ring(struct wf_thread *thread);
/* Returns once `ready` is true; it is evaluated after each signal. */
void wf_threads_wait(struct wf_threads_comm *comm, bool (*ready)(void *), void *request);
static inline bool wf_threads_aborted(const struct wf_threads_world *world)
{
    return atomic_load_explicit(&world->aborted, memory_order_acquire);
}
/* T4: withdraws everything, then fills `err` with the reason of the abort. Returns false. */
bool wf_threads_give_up(struct wf_thread *me, struct wf_err *err);
struct wf_request *wf_threads_request_take(struct wf_threads_comm *comm, int entries);
void wf_threads_request_give(struct wf_request *request);

/* --- threads_exchange.c, threads_sum.c --- */
/* No other thread touches the request's buffers after these. */
void wf_threads_exchange_withdraw(struct wf_request *request);
void wf_threads_sum_withdraw(struct wf_request *request);
void wf_threads_round_free(struct wf_threads_round *round);

/* --- slots --- */
bool wf_threads_exchange_begin(struct wf_comm *comm, int count, const struct wf_message *messages,
                               struct wf_request **request, struct wf_err *err);
bool wf_threads_exchange_end(struct wf_comm *comm, struct wf_request *request, struct wf_err *err);
bool wf_threads_exchange_test(struct wf_comm *comm, struct wf_request *request);
bool wf_threads_exchange_wait_any(struct wf_comm *comm, int count,
                                  struct wf_request *const *requests, int *which,
                                  struct wf_err *err);
bool wf_threads_sum_begin(struct wf_comm *comm, void *data, size_t count, enum wf_dtype dtype,
                          struct wf_request **request, struct wf_err *err);
bool wf_threads_sum_end(struct wf_comm *comm, struct wf_request *request, struct wf_err *err);
bool wf_threads_broadcast(struct wf_comm *comm, int root, void *data, size_t bytes,
                          struct wf_err *err);
bool wf_threads_split(struct wf_comm *comm, int colour, struct wf_comm **sub, struct wf_err *err);
void wf_threads_abort(struct wf_comm *comm, const struct wf_err *err);
void wf_threads_free(struct wf_comm *comm);
void wf_threads_progress(struct wf_comm *comm);
