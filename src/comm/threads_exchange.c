/* Messages between threads: see T1, T2 and T4 in threads.h. */
#define _POSIX_C_SOURCE 200809L
#include "comm/threads.h"

#include <sched.h>
#include <string.h>

/* The next tag past those of the callers. */
enum { TAG_BROADCAST = 32001 };

static struct wf_threads_mailbox *mailbox_of(struct wf_threads_comm *comm,
                                             const struct wf_message *m)
{
    return &comm->group->mailboxes[m->send ? m->peer : comm->base.rank];
}

static struct wf_threads_lane *lane_of(struct wf_threads_comm *comm, const struct wf_message *m)
{
    return &mailbox_of(comm, m)->lanes[m->send ? comm->base.rank : m->peer];
}

static void unlink_entry(struct wf_threads_lane *lane, struct wf_threads_entry *entry,
                         struct wf_threads_entry *before)
{
    *(before ? &before->next : &lane->first) = entry->next;
    if (lane->last == entry)
        lane->last = before;
    entry->queued = false;
}

/* Of one tag, a lane holds only sends or only receives: the oldest of the other kind matches. */
static struct wf_threads_entry *take_match(struct wf_threads_lane *lane, const struct wf_message *m)
{
    struct wf_threads_entry *before = NULL;
    for (struct wf_threads_entry *e = lane->first; e; before = e, e = e->next)
        if (e->message.tag == m->tag && !e->message.send != !m->send) {
            unlink_entry(lane, e, before);
            return e;
        }
    return NULL;
}

static void append(struct wf_threads_lane *lane, struct wf_threads_entry *entry)
{
    entry->next = NULL;
    entry->queued = true;
    *(lane->last ? &lane->last->next : &lane->first) = entry;
    lane->last = entry;
}

/* T2: after this, the entry belongs to its own thread again. */
static void complete(struct wf_threads_entry *entry, const struct wf_thread *by)
{
    struct wf_thread *owner = entry->request->comm->me;
    const bool last =
        atomic_fetch_sub_explicit(&entry->request->left, 1, memory_order_acq_rel) == 1;
    if (last && owner != by)
        wf_threads_ring(owner);
}

static void transfer(struct wf_threads_entry *mine, struct wf_threads_entry *theirs)
{
    const struct wf_thread *me = mine->request->comm->me;
    struct wf_threads_entry *from = mine->message.send ? mine : theirs;
    struct wf_threads_entry *to = mine->message.send ? theirs : mine;
    to->sent = from->message.bytes;
    if (to->sent == to->message.bytes && to->sent > 0 && to->message.recv != from->message.send)
        memcpy(to->message.recv, from->message.send, to->sent);
    complete(theirs, me);
    complete(mine, me);
}

bool wf_threads_exchange_begin(struct wf_comm *base, int count, const struct wf_message *messages,
                               struct wf_request **request, struct wf_err *err)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    if (wf_threads_aborted(comm->group->world))
        return wf_threads_give_up(comm->me, err);
    if (count == 0)
        return true;
    struct wf_request *r = wf_threads_request_take(comm, count);
    atomic_store_explicit(&r->left, count, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        struct wf_threads_entry *mine = &r->entries[i];
        *mine = (struct wf_threads_entry){ .request = r, .message = messages[i] };
        struct wf_threads_mailbox *mailbox = mailbox_of(comm, &messages[i]);
        struct wf_threads_lane *lane = lane_of(comm, &messages[i]);
        pthread_mutex_lock(&mailbox->lock);
        struct wf_threads_entry *theirs = take_match(lane, &messages[i]);
        if (!theirs)
            append(lane, mine);
        pthread_mutex_unlock(&mailbox->lock);
        if (theirs)
            transfer(mine, theirs);
    }
    *request = r;
    return true;
}

static bool complete_now(const struct wf_request *r)
{
    return atomic_load_explicit(&r->left, memory_order_acquire) == 0;
}

/* An entry that nobody will ever match: its peer has ended, or is ourselves, who are waiting. */
static const struct wf_threads_entry *find_stuck(struct wf_request *r)
{
    struct wf_threads_comm *comm = r->comm;
    for (int i = 0; i < r->count; i++) {
        const struct wf_threads_entry *e = &r->entries[i];
        struct wf_thread *peer = comm->group->members[e->message.peer];
        if (peer != comm->me && !atomic_load_explicit(&peer->ended, memory_order_acquire))
            continue;
        struct wf_threads_mailbox *mailbox = mailbox_of(comm, &e->message);
        pthread_mutex_lock(&mailbox->lock);
        const bool queued = e->queued;
        pthread_mutex_unlock(&mailbox->lock);
        if (queued)
            return e;
    }
    return NULL;
}

static bool may_stop_waiting(void *request)
{
    struct wf_request *const r = request;
    return complete_now(r) || wf_threads_aborted(r->comm->group->world) || find_stuck(r);
}

void wf_threads_exchange_withdraw(struct wf_request *r)
{
    for (int i = 0; i < r->count; i++) {
        struct wf_threads_entry *mine = &r->entries[i];
        struct wf_threads_mailbox *mailbox = mailbox_of(r->comm, &mine->message);
        struct wf_threads_lane *lane = lane_of(r->comm, &mine->message);
        pthread_mutex_lock(&mailbox->lock);
        const bool queued = mine->queued;
        struct wf_threads_entry *before = NULL;
        for (struct wf_threads_entry *e = lane->first; queued && e != mine; e = e->next)
            before = e;
        if (queued)
            unlink_entry(lane, mine, before);
        pthread_mutex_unlock(&mailbox->lock);
        if (queued) {
            mine->sent = mine->message.bytes;
            atomic_fetch_sub_explicit(&r->left, 1, memory_order_acq_rel);
        }
    }
    /* The rest is being copied at this moment, by threads that wait for nobody. */
    while (!complete_now(r))
        sched_yield();
}

static bool check_sizes(const struct wf_request *r, struct wf_err *err)
{
    for (int i = 0; i < r->count; i++) {
        const struct wf_threads_entry *e = &r->entries[i];
        if (e->message.recv && e->sent != e->message.bytes)
            return wf_err_set(err, WF_ERR_FAILED,
                              "message from rank %d with tag %d: expected %zu bytes, got %zu",
                              e->message.peer, e->message.tag, e->message.bytes, e->sent);
    }
    return true;
}

bool wf_threads_exchange_end(struct wf_comm *base, struct wf_request *r, struct wf_err *err)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    bool ok = true;
    wf_threads_wait(comm, may_stop_waiting, r);
    if (wf_threads_aborted(comm->group->world)) {
        ok = wf_threads_give_up(comm->me, err);
    } else if (!complete_now(r)) {
        const struct wf_threads_entry *stuck = find_stuck(r);
        const struct wf_message m = stuck ? stuck->message : (struct wf_message){ 0 };
        wf_threads_exchange_withdraw(r);
        if (stuck)
            ok = wf_err_set(err, WF_ERR_FAILED,
                            "message %s rank %d with tag %d: that rank %s without its side of it",
                            m.send ? "to" : "from", m.peer, m.tag,
                            m.peer == base->rank ? "waits" : "has ended");
    }
    ok = ok && check_sizes(r, err);
    wf_threads_request_give(r);
    return ok;
}

bool wf_threads_exchange_test(struct wf_comm *, struct wf_request *r)
{
    return may_stop_waiting(r);
}

struct any {
    int count;
    struct wf_request *const *requests;
};

/* The first that needs no more waiting, well or not: its end will say. */
static int find_any(const struct any *any)
{
    int i = 0;
    while (i < any->count && (!any->requests[i] || !may_stop_waiting(any->requests[i])))
        i++;
    return i;
}

static bool is_there(void *any)
{
    return find_any(any) < ((const struct any *)any)->count;
}

bool wf_threads_exchange_wait_any(struct wf_comm *base, int count,
                                  struct wf_request *const *requests, int *which,
                                  struct wf_err *err)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    struct any any = { count, requests };
    wf_threads_wait(comm, is_there, &any);
    if (wf_threads_aborted(comm->group->world))
        return wf_threads_give_up(comm->me, err);
    *which = find_any(&any);
    return true;
}

bool wf_threads_broadcast(struct wf_comm *base, int root, void *data, size_t bytes,
                          struct wf_err *err)
{
    struct wf_threads_comm *comm = (struct wf_threads_comm *)base;
    int count = 0;
    if (bytes == 0)
        data = comm; /* a side of a message is known by its pointer: it may not be NULL */
    for (int r = 0; r < base->size; r++)
        if (r != root && base->rank == root)
            comm->cast[count++] = (struct wf_message){
                .peer = r, .tag = TAG_BROADCAST, .send = data, .bytes = bytes
            };
    if (base->rank != root)
        comm->cast[count++] =
            (struct wf_message){ .peer = root, .tag = TAG_BROADCAST, .recv = data, .bytes = bytes };
    struct wf_request *request = NULL;
    if (!wf_threads_exchange_begin(base, count, comm->cast, &request, err))
        return false;
    return !request || wf_threads_exchange_end(base, request, err);
}
