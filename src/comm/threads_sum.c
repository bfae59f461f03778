/* Sums over threads: see T1, T3 and T4 in threads.h.
 *
 * Begin publishes the pointer; once all ranks have begun, every thread in an end (or making progress)
 * takes blocks, adds each over all ranks in rank order, and writes it back to all. So a rank that is late
 * to its end delays no other, and nothing is copied or allocated. */
#define _POSIX_C_SOURCE 200809L
#include "comm/threads.h"

#include <sched.h>
#include <stdlib.h>

#include "base/memory.h"
#include "comm/sum.h"

enum { BLOCK = 8192 }; /* elements: long against a lock, short against a cache */

static int state_of(const struct wf_threads_round *round)
{
    return atomic_load_explicit(&round->state, memory_order_acquire);
}

static void set_state(struct wf_threads_round *round, enum wf_threads_state state)
{
    atomic_store_explicit(&round->state, state, memory_order_release);
}

void wf_threads_round_free(struct wf_threads_round *round)
{
    free(round->data);
    free(round);
}

/* Under the group's lock, as the next three. */
static struct wf_threads_round *open_round(struct wf_threads_group *group, uint64_t number)
{
    struct wf_threads_round *round = group->spare_rounds;
    if (round) {
        group->spare_rounds = round->next;
    } else {
        round = wf_take_zeroed(1, sizeof *round);
        round->data = wf_take_zeroed((size_t)group->size, sizeof *round->data);
    }
    void **data = round->data;
    for (int r = 0; r < group->size; r++)
        data[r] = NULL;
    *round = (struct wf_threads_round){ .next = group->rounds, .number = number, .data = data };
    group->rounds = round;
    return round;
}

static struct wf_threads_round *find_round(struct wf_threads_group *group, uint64_t number)
{
    struct wf_threads_round *round = group->rounds;
    while (round && round->number != number)
        round = round->next;
    return round;
}

static void close_round(struct wf_threads_group *group, struct wf_threads_round *round)
{
    struct wf_threads_round **at = &group->rounds;
    while (*at != round)
        at = &(*at)->next;
    *at = round->next;
    round->next = group->spare_rounds;
    group->spare_rounds = round;
}

static void ring_all(const struct wf_threads_group *group, const struct wf_thread *but)
{
    for (int r = 0; r < group->size; r++)
        if (group->members[r] != but)
            wf_threads_ring(group->members[r]);
}

/* Add one block, if there is one to take. */
static bool help(struct wf_threads_comm *comm, struct wf_threads_round *round)
{
    struct wf_threads_group *group = comm->group;
    pthread_mutex_lock(&group->lock);
    const bool mine = state_of(round) == WF_ROUND_READY && round->claimed < round->blocks;
    const size_t first = round->claimed * BLOCK;
    if (mine) {
        round->claimed++;
        round->workers++;
    }
    pthread_mutex_unlock(&group->lock);
    if (!mine)
        return false;
    const size_t rest = round->count - first;
    wf_sum_block(round->dtype, round->data, group->size, first, rest < BLOCK ? rest : BLOCK);
    pthread_mutex_lock(&group->lock);
    round->workers--;
    round->done++;
    const bool last = round->done == round->blocks && state_of(round) == WF_ROUND_READY;
    if (last)
        set_state(round, WF_ROUND_DONE);
    pthread_mutex_unlock(&group->lock);
    if (last)
        ring_all(group, comm->me);
    return true;
}

/* Under the group's lock. True when this rank was the last that was missing. */
static bool arrive(struct wf_threads_comm *comm, struct wf_threads_round *round, void *data)
{
    round->holders++;
    if (state_of(round) == WF_ROUND_DEAD)
        return false;
    round->data[comm->base.rank] = data ? data : (void *)round;
    if (++round->arrived < comm->group->size)
        return false;
    set_state(round, round->blocks > 0 ? WF_ROUND_READY : WF_ROUND_DONE);
    return true;
}

bool wf_threads_sum_begin(struct wf_comm *base, void *data, size_t count, enum wf_dtype dtype,
                          struct wf_request **request, struct wf_err *err)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    struct wf_threads_group *group = comm->group;
    if (wf_threads_aborted(group->world))
        return wf_threads_give_up(comm->me, err);
    if (group->size == 1)
        return true;
    pthread_mutex_lock(&group->lock);
    struct wf_threads_round *round = find_round(group, comm->sums);
    if (!round) {
        round = open_round(group, comm->sums);
        round->count = count;
        round->dtype = dtype;
        round->first_rank = base->rank;
        round->blocks = (count + BLOCK - 1) / BLOCK;
    }
    const struct wf_threads_round seen = { .count = round->count,
                                           .dtype = round->dtype,
                                           .first_rank = round->first_rank };
    const bool same = seen.count == count && seen.dtype == dtype;
    const bool last = same && arrive(comm, round, data);
    pthread_mutex_unlock(&group->lock);
    if (!same)
        return wf_err_set(err, WF_ERR_FAILED, "sum of %zu %s here, but of %zu %s on rank %d", count,
                          wf_dtype_name(dtype), seen.count, wf_dtype_name(seen.dtype),
                          seen.first_rank);
    comm->sums++;
    struct wf_request *r = wf_threads_request_take(comm, 0);
    r->round = round;
    *request = r;
    /* A short sum is done at once: the others then wake only once. */
    if (last && round->blocks == 1)
        (void)help(comm, round);
    else if (last)
        ring_all(group, comm->me);
    return true;
}

/* The rank that has ended without coming to this sum, or -1. */
static int find_missing(struct wf_request *r)
{
    struct wf_threads_group *group = r->comm->group;
    int missing = -1;
    if (atomic_load_explicit(&group->world->ended, memory_order_acquire) == 0)
        return missing;
    pthread_mutex_lock(&group->lock);
    for (int i = 0; i < group->size && missing < 0; i++)
        if (!r->round->data[i] &&
            atomic_load_explicit(&group->members[i]->ended, memory_order_acquire))
            missing = i;
    pthread_mutex_unlock(&group->lock);
    return missing;
}

static bool may_work(void *request)
{
    struct wf_request *const r = request;
    return state_of(r->round) != WF_ROUND_OPEN || wf_threads_aborted(r->comm->group->world) ||
           find_missing(r) >= 0;
}

static bool may_leave(void *request)
{
    const struct wf_request *const r = request;
    return state_of(r->round) != WF_ROUND_READY || wf_threads_aborted(r->comm->group->world);
}

void wf_threads_sum_withdraw(struct wf_request *r)
{
    struct wf_threads_group *group = r->comm->group;
    for (bool busy = true; busy;) {
        pthread_mutex_lock(&group->lock);
        if (state_of(r->round) != WF_ROUND_DONE)
            set_state(r->round, WF_ROUND_DEAD);
        busy = r->round->workers > 0; /* T3: they end with their block */
        pthread_mutex_unlock(&group->lock);
        if (busy)
            sched_yield();
    }
}

static void leave(struct wf_threads_group *group, struct wf_threads_round *round)
{
    pthread_mutex_lock(&group->lock);
    /* A dead round keeps its number until the group goes: a late rank must find it dead. */
    if (--round->holders == 0 && state_of(round) == WF_ROUND_DONE)
        close_round(group, round);
    pthread_mutex_unlock(&group->lock);
}

bool wf_threads_sum_end(struct wf_comm *base, struct wf_request *r, struct wf_err *err)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    wf_threads_wait(comm, may_work, r);
    while (help(comm, r->round))
        ;
    wf_threads_wait(comm, may_leave, r);
    bool ok = true;
    if (state_of(r->round) != WF_ROUND_DONE && wf_threads_aborted(comm->group->world)) {
        /* The round may have been done before it was declared dead: then it counts. */
        struct wf_err why = { 0 };
        (void)wf_threads_give_up(comm->me, &why);
        if (state_of(r->round) != WF_ROUND_DONE)
            ok = wf_err_set(err, why.code, "%s", why.text);
    } else if (state_of(r->round) != WF_ROUND_DONE) {
        const int missing = find_missing(r);
        wf_threads_sum_withdraw(r);
        if (missing >= 0)
            ok = wf_err_set(err, WF_ERR_FAILED, "sum of %zu %s: rank %d has ended without it",
                            r->round->count, wf_dtype_name(r->round->dtype), missing);
        else
            ok = wf_err_set(err, WF_ERR_FAILED, "sum of %zu %s: a rank has left it",
                            r->round->count, wf_dtype_name(r->round->dtype));
    }
    leave(comm->group, r->round);
    wf_threads_request_give(r);
    return ok;
}

void wf_threads_progress(struct wf_comm *base)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    for (struct wf_request *r = comm->me->in_flight; r; r = r->next)
        if (r->round && state_of(r->round) == WF_ROUND_READY)
            (void)help(r->comm, r->round);
}
