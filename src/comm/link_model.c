/* An emulated link: see L1 to L3 in link_model.h. */
#define _POSIX_C_SOURCE 200809L
#include "comm/link_model.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/arena.h"
#include "base/memory.h"
#include "comm/sums.h"

enum {
    TAG_BROADCAST = 32001, /* past the callers' */
    PACKET_BYTES = 9000,   /* a large frame of Ethernet */
    LOOKS_AWAKE = 1000,
};
static const long nap_nanoseconds = 20'000;

/* One rank's, in all its comms. */
struct line {
    struct wf_link_model link;
    double free; /* when the last message will have left */
};

struct wf_request {                      /* arch-ok: every comm has its own, opaque to all others */
    struct wf_request *next_made, *next; /* spare */
    struct wf_request *under;
    struct wf_message *messages; /* two for each */
    double *arrivals;            /* one for each */
    size_t messages_room, arrivals_room;
    int count;
    double left; /* when all that is sent has left */
};

struct link_comm {
    struct wf_comm base;
    struct wf_comm *under;
    bool owns_under;
    struct line *line;
    bool owns_line;
    struct wf_request *made, *spare;
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- exchange --- */

static struct wf_request *take(struct link_comm *c, int count)
{
    struct wf_request *r = c->spare;
    if (r) {
        c->spare = r->next;
    } else {
        r = wf_take_zeroed(1, sizeof *r);
        r->next_made = c->made;
        c->made = r;
    }
    WF_GROW(r->messages, r->messages_room, 2 * (size_t)count - 1);
    WF_GROW(r->arrivals, r->arrivals_room, (size_t)count - 1);
    r->count = count;
    r->under = NULL;
    r->left = 0;
    return r;
}

/* After a failure messages may still come, and the request is not used again. */
static void give(struct link_comm *c, struct wf_request *r, bool ok)
{
    if (!ok)
        return;
    r->next = c->spare;
    c->spare = r;
}

/* L1 */
static double send(struct link_comm *c, struct wf_request *r, const struct wf_message *m)
{
    struct line *const line = c->line;
    if (m->peer == c->base.rank)
        return 0;
    const double start = now(), takes = (double)m->bytes / line->link.bytes_per_second;
    line->free = fmax(line->free, start) + takes;
    const double left = m->bytes <= PACKET_BYTES ? start + takes : line->free;
    r->left = fmax(r->left, left);
    return left + line->link.seconds;
}

static bool exchange_begin(struct wf_comm *base, int count, const struct wf_message *messages,
                           struct wf_request **request, struct wf_err *err)
{
    struct link_comm *const c = (struct link_comm *)base;
    if (count == 0)
        return c->under->vtable->exchange_begin(c->under, 0, NULL, request, err);
    struct wf_request *const r = take(c, count);
    for (int i = 0; i < count; i++) {
        const struct wf_message *const m = &messages[i];
        struct wf_message *const head = &r->messages[(ptrdiff_t)2 * i]; /* L2 */
        head[1] = *m;
        head[0] = (struct wf_message){ .peer = m->peer, .tag = m->tag, .bytes = sizeof(double) };
        r->arrivals[i] = m->send ? send(c, r, m) : 0;
        if (m->send)
            head->send = &r->arrivals[i];
        else
            head->recv = &r->arrivals[i];
    }
    if (!c->under->vtable->exchange_begin(c->under, 2 * count, r->messages, &r->under, err)) {
        give(c, r, false);
        return false;
    }
    *request = r;
    return true;
}

/* When all of it is complete; the arrivals have come. */
static double due(const struct wf_request *r)
{
    double last = r->left;
    for (int i = 0; i < r->count; i++)
        if (r->messages[2 * i].recv)
            last = fmax(last, r->arrivals[i]);
    return last;
}

static bool exchange_test(struct wf_comm *base, struct wf_request *r)
{
    struct wf_comm *const under = ((struct link_comm *)base)->under;
    return (!r->under || under->vtable->exchange_test(under, r->under)) && now() >= due(r);
}

static void progress(struct wf_comm *base)
{
    wf_comm_progress(((struct link_comm *)base)->under);
}

/* One iteration of a wait. No event signals that a message is due, so the waiting rank polls the
 * clock: another rank may wait for a sum that this one has to advance (sums.h: W1). */
static void look_anew(struct wf_comm *base, unsigned looks)
{
    progress(base);
    wf_sums_advance(base);
    if (looks < LOOKS_AWAKE)
        sched_yield();
    else
        (void)nanosleep(&(struct timespec){ .tv_nsec = nap_nanoseconds }, NULL);
}

static bool exchange_end(struct wf_comm *base, struct wf_request *r, struct wf_err *err)
{
    struct link_comm *const c = (struct link_comm *)base;
    for (unsigned looks = 0; !exchange_test(base, r); looks++)
        look_anew(base, looks);
    const bool ok = !r->under || c->under->vtable->exchange_end(c->under, r->under, err);
    give(c, r, ok);
    return ok;
}

/* Of an abort its end will tell. */
static bool wait_any(struct wf_comm *base, int count, struct wf_request *const *requests,
                     int *which, struct wf_err *)
{
    for (unsigned looks = 0;; look_anew(base, looks++))
        for (*which = 0; *which < count; ++*which)
            if (requests[*which] && exchange_test(base, requests[*which]))
                return true;
}

static bool broadcast(struct wf_comm *base, int root, void *data, size_t bytes, struct wf_err *err)
{
    struct wf_request *request = NULL;
    char nothing = 0; /* a side of a message is known by its pointer */
    struct wf_message m = { .tag = TAG_BROADCAST, .bytes = bytes };
    bool ok = true;
    for (int r = 0; r < base->size && ok; r++) {
        if (r == root || (base->rank != root && base->rank != r))
            continue;
        m.peer = base->rank == root ? r : root;
        m.send = base->rank == root ? (bytes > 0 ? data : &nothing) : NULL;
        m.recv = base->rank == root ? NULL : (bytes > 0 ? data : &nothing);
        ok = exchange_begin(base, 1, &m, &request, err) &&
             (!request || exchange_end(base, request, err));
    }
    return ok;
}

/* --- what bypasses the link model: L3 --- */

static bool sum_begin(struct wf_comm *base, void *data, size_t count, enum wf_dtype dtype,
                      struct wf_request **request, struct wf_err *err)
{
    struct wf_comm *const under = ((struct link_comm *)base)->under;
    return under->vtable->sum_begin(under, data, count, dtype, request, err);
}

static bool sum_end(struct wf_comm *base, struct wf_request *request, struct wf_err *err)
{
    struct wf_comm *const under = ((struct link_comm *)base)->under;
    return under->vtable->sum_end(under, request, err);
}

static void abort_world(struct wf_comm *base, const struct wf_err *err)
{
    wf_comm_abort(((struct link_comm *)base)->under, err);
}

static bool split(struct wf_comm *base, int colour, struct wf_comm **sub, struct wf_err *err);

static void free_comm(struct wf_comm *base)
{
    struct link_comm *const c = (struct link_comm *)base;
    if (c->owns_under)
        wf_comm_free(c->under);
    if (c->owns_line)
        free(c->line);
    for (struct wf_request *r = c->base.leaves_memory ? c->spare : c->made, *next; r; r = next) {
        next = c->base.leaves_memory ? r->next : r->next_made;
        free(r->messages);
        free(r->arrivals);
        free(r);
    }
    free(c);
}

static const struct wf_comm_vtable link_vtable = {
    .name = "emulated link",
    .exchange_begin = exchange_begin,
    .exchange_end = exchange_end,
    .exchange_test = exchange_test,
    .exchange_wait_any = wait_any,
    .sums_past = true,
    .sum_begin = sum_begin,
    .sum_end = sum_end,
    .broadcast = broadcast,
    .split = split,
    .abort = abort_world,
    .free = free_comm,
    .progress = progress,
};

static struct link_comm *link_new(struct wf_comm *under, struct line *line)
{
    struct link_comm *const c = wf_take_zeroed(1, sizeof *c);
    c->base = (struct wf_comm){ .vtable = &link_vtable,
                                .rank = under->rank,
                                .size = under->size,
                                .world_rank = under->world_rank,
                                .world_size = under->world_size,
                                .watch = under->watch,
                                .place = under->place,
                                .leaves_memory = under->leaves_memory };
    c->under = under;
    c->line = line;
    return c;
}

static bool split(struct wf_comm *base, int colour, struct wf_comm **sub, struct wf_err *err)
{
    struct link_comm *const c = (struct link_comm *)base;
    struct wf_comm *under = NULL;
    if (!wf_comm_split(c->under, colour, &under, err))
        return false;
    struct link_comm *const new = link_new(under, c->line);
    new->owns_under = true;
    *sub = &new->base;
    return true;
}

struct wf_comm *wf_comm_link_model(struct wf_comm *under, const struct wf_link_model *link)
{
    struct line *const line = wf_take_zeroed(1, sizeof *line);
    WF_BUG_ON(under->sums, "sums of the comm under a link");
    WF_BUG_ON(link->seconds < 0 || !(link->bytes_per_second > 0), "a link of %g s and %g bytes/s",
              link->seconds, link->bytes_per_second);
    struct link_comm *const c = link_new(under, line);
    c->owns_line = true;
    c->line->link = *link;
    return &c->base;
}
