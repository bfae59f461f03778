#include "comm/sum_piece.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/memory.h"
#include "comm/sum.h"

enum {
    SHORT_BYTES = 16384, /* below, a round costs more than sending everything in each */
    EAGER_BYTES = 4000,  /* a message of so much needs no answer of its receiver (Open MPI) */
    ALIGN = 64,
};

static size_t bytes_of(const struct wf_sum_piece *p, const struct wf_move *move)
{
    return move->count * wf_dtype_size(p->task.sent_dtype);
}

static char *elements(const struct wf_sum_piece *p, const struct wf_move *move)
{
    return p->task.work + move->first * wf_dtype_size(p->task.dtype);
}

/* --- one round --- */

static bool is_staged(const struct wf_sum_piece *p, const struct wf_move *move)
{
    return p->task.sent_dtype != p->task.dtype || move->adds;
}

static void take_staging(struct wf_sum_piece *p)
{
    size_t bytes = 0;
    for (size_t i = p->at; i < p->end; i++)
        if (is_staged(p, &p->schedule.moves[i]))
            bytes += (bytes_of(p, &p->schedule.moves[i]) + ALIGN - 1) / ALIGN * ALIGN;
    if (bytes <= p->staging_room)
        return;
    free(p->staging);
    p->staging = aligned_alloc(ALIGN, bytes);
    if (!p->staging)
        wf_no_memory(bytes);
    p->staging_room = bytes;
}

static void pack(const struct wf_sum_piece *p, const struct wf_move *move, char *place)
{
    float *const from = (float *)(void *)elements(p, move);
    wf_sum_narrow(p->task.sent_dtype, place, from, move->count);
    if (move->exact)
        wf_sum_widen(p->task.sent_dtype, from, place, move->count);
}

static bool begin_round(struct wf_sum_piece *p)
{
    const struct wf_sum_schedule *const s = &p->schedule;
    for (p->end = p->at; p->end < s->count && s->moves[p->end].round == s->moves[p->at].round;)
        p->end++;
    take_staging(p);
    size_t used = 0;
    for (size_t i = p->at; i < p->end; i++) {
        const struct wf_move *const move = &s->moves[i];
        const size_t n = i - p->at, bytes = bytes_of(p, move);
        WF_GROW(p->messages, p->messages_room, n);
        WF_GROW(p->places, p->places_room, n); // NOLINT(bugprone-sizeof-expression): pointers
        p->places[n] = is_staged(p, move) ? p->staging + used : NULL;
        used += p->places[n] ? (bytes + ALIGN - 1) / ALIGN * ALIGN : 0;
        char *const place = p->places[n] ? p->places[n] : elements(p, move);
        p->messages[n] =
            (struct wf_message){ .peer = move->peer, .tag = p->task.tag, .bytes = bytes };
        if (!move->sends)
            p->messages[n].recv = place;
        else
            p->messages[n].send = place;
        if (move->sends && p->places[n])
            pack(p, move, place);
    }
    p->request = NULL;
    p->under_way = p->task.comm->vtable->exchange_begin(p->task.comm, (int)(p->end - p->at),
                                                        p->messages, &p->request, &p->err);
    return p->under_way;
}

static void finish_round(struct wf_sum_piece *p)
{
    for (size_t i = p->at; i < p->end; i++) {
        const struct wf_move *const move = &p->schedule.moves[i];
        const char *const place = p->places[i - p->at];
        if (move->sends || !place)
            continue;
        if (move->adds)
            wf_sum_add(p->task.sent_dtype, elements(p, move), place, move->count);
        else
            wf_sum_widen(p->task.sent_dtype, (float *)(void *)elements(p, move), place,
                         move->count);
    }
    p->at = p->end;
    p->under_way = false;
}

/* Ends the round that is under way. Waits where the messages have not come. */
static bool end_round(struct wf_sum_piece *p)
{
    struct wf_request *const request = p->request;
    p->request = NULL;
    p->held = true; /* while we wait, others are advanced, not this one */
    const bool ok = !request || p->task.comm->vtable->exchange_end(p->task.comm, request, &p->err);
    p->held = false;
    if (ok)
        finish_round(p);
    return ok;
}

/* --- all rounds --- */

static bool has_come(const struct wf_sum_piece *p)
{
    return !p->request || p->task.comm->vtable->exchange_test(p->task.comm, p->request);
}

void wf_sum_piece_advance(struct wf_sum_piece *p)
{
    while (!p->over && !p->held) {
        if (!p->under_way && p->at == p->schedule.count)
            p->over = true;
        else if (!p->under_way)
            p->over = !begin_round(p);
        else if (has_come(p))
            p->over = !end_round(p);
        else
            break;
    }
}

void wf_sum_piece_wait(struct wf_sum_piece *p)
{
    if (!p->over && p->under_way)
        p->over = !end_round(p);
}

/* Two ranks halve where that makes messages short enough to go without an answer. */
static bool is_short(const struct wf_sum_piece *p)
{
    const size_t bytes = p->task.count * wf_dtype_size(p->task.sent_dtype);
    const bool halves = p->task.comm->size == 2 && bytes > EAGER_BYTES;
    return bytes <= SHORT_BYTES && !(halves && bytes <= 2 * (size_t)EAGER_BYTES);
}

static void schedule(struct wf_sum_piece *p)
{
    const struct wf_comm *const comm = p->task.comm;
    const struct wf_sum_group all = { .rank = comm->rank, .size = comm->size };
    const size_t count = p->task.count;
    p->schedule.count = 0;
    p->schedule.rounds = 0;
    if (p->task.way == WF_SUM_RING)
        wf_sum_schedule_ring(&p->schedule, &all, 0, count);
    else if (p->task.way == WF_SUM_NODES)
        wf_sum_schedule_nodes(&p->schedule, &comm->sums->nodes, 0, count, is_short(p));
    else
        wf_sum_schedule_tree(&p->schedule, &all, 0, count, is_short(p));
}

void wf_sum_piece_begin(struct wf_sum_piece *p, const struct wf_sum_task *task)
{
    p->task = *task;
    p->at = p->end = 0;
    p->request = NULL;
    p->under_way = p->held = p->over = false;
    p->err = (struct wf_err){ 0 };
    schedule(p);
    wf_sum_piece_advance(p);
}

void wf_sum_piece_free(struct wf_sum_piece *p)
{
    wf_sum_schedule_release(&p->schedule);
    free(p->messages);
    free(p->places);
    free(p->staging);
    free(p);
}
