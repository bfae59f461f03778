#include "comm/sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "comm/sum.h"
#include "comm/sum_piece.h"

enum {
    TAG_FIRST = 32002, /* past the callers' and the broadcast's; MPI has at least 32767 */
    TAGS = 700,
};
/* Bytes that a rank adds per piece: small enough to be in the core's own cache on arrival, and
 * large compared with the cost of a message. */
static const size_t own_bytes = (size_t)512 << 10;
/* Pieces in flight. A network sends them while a rank computes: as many as it sends during a
 * kernel. Within a machine the ranks' cores copy, and more than their cache holds is of no use. */
static const size_t window_bytes = (size_t)64 << 20, window_bytes_here = (size_t)8 << 20;

struct wf_sum_work {
    struct wf_sum_work *next; /* in flight, or spare */
    struct wf_comm *comm;
    const struct wf_sums *sums; /* of that comm, which may be gone when this is freed */
    uint64_t number;            /* of its first piece */
    size_t n_pieces, begun;
    struct wf_sum_piece *first, *last; /* under way, in order */
    bool over;
    struct wf_err err;
    enum wf_sum_way way;
    char *work; /* the elements, in `dtype` */
    size_t count;
    enum wf_dtype dtype, sent_dtype;
    /* halves are added in f32, in `wide`, and come back to `data` at the end */
    void *data;
    enum wf_dtype half;
    float *wide;
    size_t wide_room;
};

static bool is_half(enum wf_dtype dtype)
{
    return dtype == WF_BF16 || dtype == WF_F16;
}

/* --- pieces --- */

/* W2: the oldest piece that has not ended, of all sums of a comm. */
static uint64_t oldest(const struct wf_comm *comm)
{
    const struct wf_sum_work *w = comm->sums->flight->first;
    while (w && (w->comm != comm || w->over))
        w = w->next;
    if (!w)
        return comm->sums->numbers;
    return w->first ? w->first->number : w->number + w->begun;
}

/* W4 */
static bool is_next(const struct wf_sum_work *w)
{
    for (const struct wf_sum_work *o = w->sums->flight->first; o != w; o = o->next)
        if (o->comm == w->comm && !o->over && o->begun < o->n_pieces)
            return false;
    return true;
}

static bool may_begin(const struct wf_sum_work *w)
{
    if (w->over || w->begun == w->n_pieces || w->number + w->begun >= oldest(w->comm) + TAGS)
        return false;
    return w->n_pieces == 1 || (w->sums->long_pieces < w->sums->window && is_next(w));
}

static void begin_piece(struct wf_sum_work *w)
{
    struct wf_sums *const sums = w->comm->sums;
    struct wf_sum_piece *p = sums->spare_pieces;
    if (p)
        sums->spare_pieces = p->next;
    else
        p = wf_take_zeroed(1, sizeof *p);
    const size_t i = w->begun++, each = w->count / w->n_pieces, rest = w->count % w->n_pieces;
    const size_t at = i * each + (i < rest ? i : rest);
    p->number = w->number + i;
    p->next = NULL;
    *(w->last ? &w->last->next : &w->first) = p;
    w->last = p;
    sums->long_pieces += w->n_pieces > 1;
    wf_sum_piece_begin(p, &(struct wf_sum_task){ .comm = w->comm,
                                                 .way = w->way,
                                                 .tag = TAG_FIRST + (int)(p->number % TAGS),
                                                 .work = w->work + at * wf_dtype_size(w->dtype),
                                                 .count = each + (i < rest ? 1 : 0),
                                                 .dtype = w->dtype,
                                                 .sent_dtype = w->sent_dtype });
}

/* Frees pieces that are complete; a failed one is kept, because its messages may still arrive. */
static void collect(struct wf_sum_work *w)
{
    struct wf_sums *const sums = w->comm->sums;
    struct wf_sum_piece *before = NULL;
    for (struct wf_sum_piece *p = w->first, *next; p && !w->over; p = next) {
        next = p->next;
        if (p->over && p->err.code != WF_OK) {
            w->err = p->err;
            w->over = true;
        }
        if (!p->over || w->over) {
            before = p;
            continue;
        }
        *(before ? &before->next : &w->first) = next;
        if (w->last == p)
            w->last = before;
        p->next = sums->spare_pieces;
        sums->spare_pieces = p;
        sums->long_pieces -= w->n_pieces > 1;
    }
    w->over = w->over || (!w->first && w->begun == w->n_pieces);
}

/* Advances as far as possible without waiting. */
static void advance(struct wf_sum_work *w)
{
    if (w->over)
        return;
    for (struct wf_sum_piece *p = w->first; p; p = p->next)
        wf_sum_piece_advance(p);
    collect(w);
    while (may_begin(w)) {
        begin_piece(w);
        collect(w);
    }
}

void wf_sums_advance(struct wf_comm *comm)
{
    struct wf_sum_flight *const flight = comm->sums ? comm->sums->flight : NULL;
    if (!flight || flight->busy) /* what has come is ended without waiting, and asks us again */
        return;
    flight->busy = true;
    for (struct wf_sum_work *w = flight->first; w; w = w->next)
        advance(w);
    flight->busy = false;
}

/* Waits until the oldest piece has advanced: its own, or one before it. */
static void wait_for(const struct wf_sum_work *w)
{
    const struct wf_sum_work *o = w;
    if (!w->first) {
        o = w->sums->flight->first;
        while (o->comm != w->comm || o->over || !o->first)
            o = o->next;
    }
    wf_sum_piece_wait(o->first);
}

/* --- a sum --- */

static void widen(struct wf_sum_work *w, void *data, enum wf_dtype dtype)
{
    if (w->wide_room < w->count) {
        free(w->wide);
        w->wide = wf_take(w->count * sizeof *w->wide);
        w->wide_room = w->count;
    }
    w->data = data;
    w->half = dtype;
    w->work = (char *)w->wide;
    w->dtype = WF_F32;
    w->sent_dtype = WF_F32;
    wf_sum_widen(dtype, w->wide, data, w->count);
}

static struct wf_sum_work *take_work(struct wf_comm *comm, size_t count)
{
    struct wf_sums *const sums = comm->sums;
    struct wf_sum_work *w = sums->spare;
    if (w)
        sums->spare = w->next;
    else
        w = wf_take_zeroed(1, sizeof *w);
    *w = (struct wf_sum_work){
        .comm = comm, .sums = sums, .count = count, .wide = w->wide, .wide_room = w->wide_room
    };
    struct wf_sum_work **at = &sums->flight->first;
    while (*at)
        at = &(*at)->next;
    *at = w;
    return w;
}

bool wf_sums_begin(struct wf_comm *comm, enum wf_sum_way way, void *data, size_t count,
                   enum wf_dtype dtype, enum wf_dtype sent_dtype, struct wf_request **request,
                   struct wf_err *err)
{
    struct wf_sums *const sums = comm->sums;
    struct wf_sum_work *const w = take_work(comm, count);
    w->way = way;
    w->work = data;
    w->dtype = dtype;
    w->sent_dtype = dtype == WF_F32 && is_half(sent_dtype) ? sent_dtype : dtype;
    if (is_half(dtype))
        widen(w, data, dtype);
    const size_t bytes = count * wf_dtype_size(w->sent_dtype);
    w->n_pieces = (bytes + sums->piece_bytes - 1) / sums->piece_bytes;
    w->number = sums->numbers;
    sums->numbers += w->n_pieces;
    *request = (struct wf_request *)(void *)w;
    wf_sums_advance(comm);
    return w->err.code == WF_OK || wf_sums_end(comm, *request, err);
}

bool wf_sums_has(const struct wf_comm *comm, const struct wf_request *request)
{
    if (!comm->sums)
        return false;
    const struct wf_sum_work *w = comm->sums->flight->first;
    while (w && (const void *)w != (const void *)request)
        w = w->next;
    return w != NULL;
}

static void out_of_flight(struct wf_sum_work *w, struct wf_sum_flight *flight)
{
    struct wf_sum_work **at = &flight->first;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
}

bool wf_sums_end(struct wf_comm *comm, struct wf_request *request, struct wf_err *err)
{
    struct wf_sum_work *const w = (struct wf_sum_work *)(void *)request;
    for (wf_sums_advance(comm); !w->over; wf_sums_advance(comm))
        wait_for(w);
    if (w->err.code != WF_OK) /* it stays in flight, with what it still holds */
        return wf_err_set(err, w->err.code, "%s", w->err.text);
    if (w->data)
        wf_sum_narrow(w->half, w->data, w->wide, w->count);
    out_of_flight(w, comm->sums->flight);
    w->next = comm->sums->spare;
    comm->sums->spare = w;
    return true;
}

/* --- life --- */

static void free_pieces(struct wf_sum_piece *p, bool leave)
{
    for (struct wf_sum_piece *next; p; p = next) {
        next = p->next;
        if (!leave || (!p->request && p->err.code == WF_OK))
            wf_sum_piece_free(p);
    }
}

static void free_work(struct wf_sum_work *w, bool leave)
{
    free_pieces(w->first, leave);
    if (!leave || !w->first)
        free(w->wide);
    free(w);
}

void wf_sums_free(struct wf_sums *sums, bool leave)
{
    if (!sums)
        return;
    for (struct wf_sum_work **at = &sums->flight->first, *w = *at; w; w = *at) {
        if (w->sums != sums) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free_work(w, leave);
    }
    for (struct wf_sum_work *w = sums->spare, *next; w; w = next) {
        next = w->next;
        free_work(w, false);
    }
    free_pieces(sums->spare_pieces, false);
    if (sums->owns_flight)
        free(sums->flight);
    free(sums->ranks);
    free(sums);
}

/* The machine of each rank: a number that ranks on one machine have in common. */
static bool gather_nodes(struct wf_comm *comm, int32_t mine, int32_t *nodes, struct wf_err *err)
{
    struct wf_request *request = NULL;
    memset(nodes, 0, (size_t)comm->size * sizeof *nodes);
    nodes[comm->rank] = mine;
    return comm->vtable->sum_begin(comm, nodes, (size_t)comm->size, WF_I32, &request, err) &&
           (!request || comm->vtable->sum_end(comm, request, err));
}

/* Of rank r: its number on its machine, and how many are there. */
static void place(const int32_t *nodes, int size, int r, int *number, int *count)
{
    *number = *count = 0;
    for (int i = 0; i < size; i++) {
        *count += nodes[i] == nodes[r];
        *number += i < r && nodes[i] == nodes[r];
    }
}

static void lay_out(struct wf_sums *sums, const struct wf_comm *comm, const int32_t *nodes)
{
    const int size = comm->size, me = comm->rank;
    int number, count, mine, here;
    place(nodes, size, me, &mine, &here);
    sums->ranks = wf_take_zeroed(2 * (size_t)size, sizeof *sums->ranks);
    int *const local = sums->ranks, *const across = sums->ranks + size;
    struct wf_sum_nodes *const n = &sums->nodes;
    *n = (struct wf_sum_nodes){ .owners = here };
    sums->n_nodes = 0;
    for (int r = 0; r < size; r++) {
        place(nodes, size, r, &number, &count);
        sums->n_nodes += number == 0;
        if (count != here)
            n->owners = 1;
        if (nodes[r] == nodes[me])
            local[n->here.size++] = r;
        if (number != mine)
            continue;
        n->across.rank += r < me;
        across[n->across.size++] = r;
    }
    n->here.rank = mine;
    n->here.ranks = local;
    n->across.ranks = across;
}

static size_t piece_of(int ranks)
{
    return own_bytes * (size_t)ranks;
}

/* In pieces. */
static size_t window_of(int ranks, bool here)
{
    return (here ? window_bytes_here : window_bytes) / piece_of(ranks) + 2;
}

size_t wf_sums_most_bytes(int ranks, bool here, size_t longest)
{
    const size_t most = window_of(ranks, here) * piece_of(ranks);
    return longest < most ? longest : most;
}

bool wf_sums_attach(struct wf_comm *comm, const struct wf_sum_options *options,
                    struct wf_sum_flight *flight, struct wf_err *err)
{
    int32_t *const nodes = wf_take_zeroed((size_t)comm->size, sizeof *nodes);
    const int32_t mine =
        options->node_ranks > 0 ? comm->world_rank / options->node_ranks : comm->place.node;
    const bool ok = gather_nodes(comm, mine, nodes, err);
    if (ok) {
        struct wf_sums *const sums = wf_take_zeroed(1, sizeof *sums);
        sums->options = *options;
        sums->flight = flight ? flight : wf_take_zeroed(1, sizeof *flight);
        sums->owns_flight = !flight;
        lay_out(sums, comm, nodes);
        const bool is_here = sums->n_nodes == 1 && !comm->vtable->sums_past;
        sums->piece_bytes = piece_of(comm->size);
        sums->window = window_of(comm->size, is_here);
        comm->sums = sums;
    }
    free(nodes);
    return ok;
}
