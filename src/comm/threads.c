#define _POSIX_C_SOURCE 200809L
#include "comm/threads.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/arena.h"
#include "comm/blame.h"
#include "comm/sums.h"

enum {
    SPINS = 10000,           /* about what going to sleep and waking up costs */
    SPINS_OVERCOMMITTED = 0, /* whom we wait for needs our core */
};
static const size_t stack_least = (size_t)8 << 20;

/* --- bells --- */

void wf_threads_ring(struct wf_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    atomic_fetch_add_explicit(&thread->rings, 1, memory_order_release);
    pthread_cond_signal(&thread->rung);
    pthread_mutex_unlock(&thread->lock);
}

static void ring_world(struct wf_threads_world *world)
{
    for (int r = 0; r < world->size; r++)
        wf_threads_ring(&world->threads[r]);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void wf_threads_wait(struct wf_threads_comm *comm, bool (*ready)(void *), void *request)
{
    struct wf_thread *const me = comm->me;
    for (int i = 0; i < me->world->spins; i++) {
        if (ready(request))
            return;
        wf_sums_advance(&comm->base);
        relax();
    }
    for (;;) {
        /* Read before asking: a ring after this line ends the sleep below. */
        const unsigned seen = atomic_load_explicit(&me->rings, memory_order_acquire);
        wf_sums_advance(&comm->base);
        if (ready(request))
            return;
        pthread_mutex_lock(&me->lock);
        while (atomic_load_explicit(&me->rings, memory_order_acquire) == seen)
            pthread_cond_wait(&me->rung, &me->lock);
        pthread_mutex_unlock(&me->lock);
    }
}

/* --- groups and worlds --- */

static struct wf_threads_group *group_new(struct wf_threads_world *world, int size)
{
    struct wf_threads_group *group = wf_take_zeroed(1, sizeof *group);
    const size_t n = (size_t)size;
    group->world = world;
    group->size = size;
    group->members = wf_take_zeroed(n, sizeof(struct wf_thread *));
    group->mailboxes = wf_take_zeroed(n, sizeof *group->mailboxes);
    group->lanes = wf_take_zeroed(n * n, sizeof *group->lanes);
    atomic_init(&group->references, size);
    pthread_mutex_init(&group->lock, NULL);
    for (size_t r = 0; r < n; r++) {
        pthread_mutex_init(&group->mailboxes[r].lock, NULL);
        group->mailboxes[r].lanes = group->lanes + r * n;
    }
    return group;
}

static void free_rounds(struct wf_threads_round *round)
{
    for (struct wf_threads_round *next; round; round = next) {
        next = round->next;
        wf_threads_round_free(round);
    }
}

static void group_let_go(struct wf_threads_group *group)
{
    if (atomic_fetch_sub_explicit(&group->references, 1, memory_order_acq_rel) > 1)
        return;
    free_rounds(group->rounds);
    free_rounds(group->spare_rounds);
    for (int r = 0; r < group->size; r++)
        pthread_mutex_destroy(&group->mailboxes[r].lock);
    pthread_mutex_destroy(&group->lock);
    free(group->lanes);
    free(group->mailboxes);
    free(group->members);
    free(group);
}

struct wf_threads_world *wf_threads_world_new(int size)
{
    struct wf_threads_world *world = wf_take_zeroed(1, sizeof *world);
    world->size = size;
    world->spins = sysconf(_SC_NPROCESSORS_ONLN) >= size ? SPINS : SPINS_OVERCOMMITTED;
    world->threads = wf_take_zeroed((size_t)size, sizeof *world->threads);
    world->everyone = group_new(world, size);
    pthread_mutex_init(&world->lock, NULL);
    for (int r = 0; r < size; r++) {
        struct wf_thread *thread = &world->threads[r];
        thread->world = world;
        thread->rank = r;
        pthread_mutex_init(&thread->lock, NULL);
        pthread_cond_init(&thread->rung, NULL);
        world->everyone->members[r] = thread;
    }
    return world;
}

/* The comms of its ranks are gone, and with them the group of everyone. */
static void world_free(struct wf_threads_world *world)
{
    for (int r = 0; r < world->size; r++) {
        pthread_mutex_destroy(&world->threads[r].lock);
        pthread_cond_destroy(&world->threads[r].rung);
    }
    pthread_mutex_destroy(&world->lock);
    free(world->threads);
    free(world);
}

/* --- requests --- */

struct wf_request *wf_threads_request_take(struct wf_threads_comm *comm, int entries)
{
    struct wf_request **at = &comm->spare;
    while (*at && (*at)->room < (size_t)entries)
        at = &(*at)->next_spare;
    if (!*at)
        at = &comm->spare;
    struct wf_request *request = *at;
    if (request) {
        *at = request->next_spare;
    } else {
        request = wf_take_zeroed(1, sizeof *request);
        request->comm = comm;
        request->next_made = comm->made;
        comm->made = request;
    }
    if (entries > 0)
        WF_GROW(request->entries, request->room, (size_t)entries - 1);
    request->count = entries;
    request->round = NULL;
    request->previous = NULL;
    request->next = comm->me->in_flight;
    if (request->next)
        request->next->previous = request;
    comm->me->in_flight = request;
    return request;
}

static void out_of_flight(struct wf_request *request)
{
    *(request->previous ? &request->previous->next : &request->comm->me->in_flight) = request->next;
    if (request->next)
        request->next->previous = request->previous;
}

void wf_threads_request_give(struct wf_request *request)
{
    out_of_flight(request);
    request->next_spare = request->comm->spare;
    request->comm->spare = request;
}

static void withdraw(struct wf_request *request)
{
    if (request->round)
        wf_threads_sum_withdraw(request);
    else
        wf_threads_exchange_withdraw(request);
}

static void withdraw_all(struct wf_thread *me)
{
    for (struct wf_request *r = me->in_flight; r; r = r->next)
        withdraw(r);
}

bool wf_threads_give_up(struct wf_thread *me, struct wf_err *err)
{
    withdraw_all(me);
    return wf_err_set(err, me->world->why.code, "%s", me->world->why.text);
}

/* --- comms --- */

static const struct wf_comm_vtable threads_vtable = {
    .name = "threads",
    .exchange_begin = wf_threads_exchange_begin,
    .exchange_end = wf_threads_exchange_end,
    .exchange_test = wf_threads_exchange_test,
    .exchange_wait_any = wf_threads_exchange_wait_any,
    .sum_begin = wf_threads_sum_begin,
    .sum_end = wf_threads_sum_end,
    .broadcast = wf_threads_broadcast,
    .split = wf_threads_split,
    .abort = wf_threads_abort,
    .free = wf_threads_free,
    .progress = wf_threads_progress,
};

struct wf_threads_comm *wf_threads_comm_new(struct wf_threads_group *group, int rank)
{
    struct wf_threads_comm *comm = wf_take_zeroed(1, sizeof *comm);
    comm->group = group;
    comm->me = group->members[rank];
    comm->base = (struct wf_comm){ .vtable = &threads_vtable,
                                   .rank = rank,
                                   .size = group->size,
                                   .world_rank = comm->me->rank,
                                   .world_size = group->world->size,
                                   .place = { 0, comm->me->rank, group->world->size } };
    comm->cast = wf_take_zeroed((size_t)group->size, sizeof *comm->cast);
    return comm;
}

void wf_threads_free(struct wf_comm *base)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    for (struct wf_request *r = comm->me->in_flight, *next; r; r = next) {
        next = r->next;
        if (r->comm != comm)
            continue;
        withdraw(r);
        out_of_flight(r);
    }
    for (struct wf_request *r = comm->made, *next; r; r = next) {
        next = r->next_made;
        free(r->entries);
        free(r);
    }
    struct wf_threads_world *world = comm->owns_world ? comm->group->world : NULL;
    group_let_go(comm->group);
    if (world)
        world_free(world);
    free(comm->cast);
    free(comm);
}

static void abort_world(struct wf_threads_world *world, int rank, const struct wf_err *err)
{
    struct wf_err why = err ? *err : (struct wf_err){ 0 };
    wf_comm_blame(world->size > 1 ? rank : WF_NOBODY, &why);
    pthread_mutex_lock(&world->lock);
    if (!wf_threads_aborted(world)) {
        world->why = why;
        world->culprit = rank;
        atomic_store_explicit(&world->aborted, true, memory_order_release);
    }
    pthread_mutex_unlock(&world->lock);
    ring_world(world);
}

void wf_threads_abort(struct wf_comm *base, const struct wf_err *err)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    abort_world(comm->group->world, comm->me->rank, err);
    withdraw_all(comm->me); /* T4 */
}

static bool sum_now(struct wf_comm *comm, int64_t *data, struct wf_err *err)
{
    struct wf_request *request = NULL;
    if (!wf_threads_sum_begin(comm, data, (size_t)comm->size, WF_I64, &request, err))
        return false;
    return !request || wf_threads_sum_end(comm, request, err);
}

/* The group of all members of `colours` with our colour, made by the lowest of them. */
static struct wf_threads_group *make_part(const struct wf_threads_comm *comm,
                                          const int64_t *colours)
{
    int size = 0;
    for (int r = 0; r < comm->base.size; r++)
        size += colours[r] == colours[comm->base.rank];
    struct wf_threads_group *part = group_new(comm->group->world, size);
    int at = 0;
    for (int r = 0; r < comm->base.size; r++)
        if (colours[r] == colours[comm->base.rank])
            part->members[at++] = comm->group->members[r];
    return part;
}

/* Two sums in which each rank has a place of its own: the colours, then the addresses of the groups
 * that the first rank of each colour has made. */
bool wf_threads_split(struct wf_comm *base, int colour, struct wf_comm **sub, struct wf_err *err)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    const size_t n = (size_t)base->size;
    int64_t *colours = wf_take_zeroed(2 * n, sizeof *colours), *made = colours + n;
    colours[base->rank] = colour;
    bool ok = sum_now(base, colours, err);
    int leader = 0, rank = 0;
    while (ok && colours[leader] != colour)
        leader++;
    for (int r = 0; ok && r < base->rank; r++)
        rank += colours[r] == colour;
    struct wf_threads_group *part = NULL;
    if (ok && leader == base->rank) {
        part = make_part(comm, colours);
        made[base->rank] = (int64_t)(intptr_t)part;
    }
    const bool both = ok && sum_now(base, made, err);
    if (both) {
        part = (struct wf_threads_group *)(intptr_t)
            made[leader]; // NOLINT(performance-no-int-to-ptr): our own
        struct wf_threads_comm *new = wf_threads_comm_new(part, rank);
        new->base.vtable = base->vtable;
        *sub = &new->base;
    } else if (part) {
        /* T3: a sum that fails here has failed on all ranks, so no rank refers to it. */
        atomic_store_explicit(&part->references, 1, memory_order_relaxed);
        group_let_go(part);
    }
    free(colours);
    return both;
}

/* --- running --- */

struct seat {
    struct crew *crew;
    struct wf_threads_comm *comm;
    pthread_t thread;
    bool ok;
    struct wf_err err;
};

struct crew {
    bool (*body)(struct wf_comm *, void *, struct wf_err *);
    void *arg;
    struct wf_threads_world *world;
    struct seat *seats;
};

static void *sit(void *at)
{
    struct seat *seat = at;
    struct wf_threads_world *world = seat->crew->world;
    struct wf_thread *me = seat->comm->me;
    seat->ok = seat->crew->body(&seat->comm->base, seat->crew->arg, &seat->err);
    if (!seat->ok)
        wf_threads_abort(&seat->comm->base, &seat->err);
    wf_comm_free(&seat->comm->base);
    /* Only now: who sees that we have ended must not find anything of ours in its mailbox. */
    atomic_store_explicit(&me->ended, true, memory_order_release);
    atomic_fetch_add_explicit(&world->ended, 1, memory_order_release);
    ring_world(world);
    return NULL;
}

/* Starts the threads of the ranks past 0 and returns how many ranks have one (rank 0 has ours). */
static int start(struct crew *crew, struct wf_err *err)
{
    pthread_attr_t attributes;
    size_t stack = 0;
    pthread_attr_init(&attributes);
    if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack < stack_least)
        (void)pthread_attr_setstacksize(&attributes, stack_least);
    int seated = 1;
    for (; seated < crew->world->size; seated++) {
        struct seat *seat = &crew->seats[seated];
        const int failure = pthread_create(&seat->thread, &attributes, sit, seat);
        if (failure) {
            (void)wf_err_set(err, WF_ERR_FIT,
                             "cannot start a thread for rank %d of %d: %s: use fewer ranks, or "
                             "raise the limits ('ulimit -u unlimited', 'ulimit -v unlimited')",
                             seated, crew->world->size, strerror(failure));
            break;
        }
    }
    pthread_attr_destroy(&attributes);
    return seated;
}

/* The error of the lowest rank that failed by itself, not because it was told to. */
static bool verdict(const struct crew *crew, struct wf_err *err)
{
    const struct wf_threads_world *world = crew->world;
    if (!wf_threads_aborted(world))
        return true;
    const struct wf_err *found = &world->why;
    int culprit = world->culprit;
    for (int r = 0; r < culprit; r++)
        if (!crew->seats[r].ok && !strstr(crew->seats[r].err.text, world->why.text)) {
            found = &crew->seats[r].err;
            culprit = r;
        }
    struct wf_err worst = *found;
    wf_comm_blame(world->size > 1 ? culprit : WF_NOBODY, &worst);
    return wf_err_set(err, worst.code, "%s", worst.text);
}

bool wf_comm_threads_run(int size,
                         bool (*body)(struct wf_comm *comm, void *arg, struct wf_err *err),
                         void *arg, struct wf_err *err)
{
    WF_BUG_ON(size < 1, "%d ranks", size);
    struct wf_threads_world *world = wf_threads_world_new(size);
    struct crew crew = { body, arg, world, wf_take_zeroed((size_t)size, sizeof *crew.seats) };
    atomic_fetch_add(&world->everyone->references, 1);
    struct wf_threads_group *everyone = world->everyone;
    for (int r = 0; r < size; r++)
        crew.seats[r] =
            (struct seat){ .crew = &crew, .comm = wf_threads_comm_new(everyone, r), .ok = true };
    struct wf_err stop = { 0 };
    const int seated = start(&crew, &stop);
    if (seated == size) {
        (void)sit(&crew.seats[0]);
    } else {
        abort_world(world, WF_NOBODY, &stop);
        wf_threads_free(&crew.seats[0].comm->base);
    }
    for (int r = 1; r < seated; r++)
        WF_BUG_ON(pthread_join(crew.seats[r].thread, NULL) != 0, "rank %d", r);
    for (int r = seated; r < size; r++)
        wf_threads_free(&crew.seats[r].comm->base);
    const bool ok = verdict(&crew, err);
    free(crew.seats);
    group_let_go(everyone);
    world_free(world);
    return ok;
}
