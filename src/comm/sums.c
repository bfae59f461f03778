#include "comm/sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "comm/sum.h"

enum {
    TAG_FIRST = 32002, /* past the callers' and the broadcast's; MPI has at least 32767 */
    TAGS = 700,
    SHORT_BYTES = 16384, /* below, a round costs more than sending everything in each */
    ALIGN = 64,
};

struct wf_sum_machine {
    struct wf_sum_machine *next; /* in flight, or spare */
    struct wf_comm *comm;
    const struct wf_sums *sums; /* of that comm, which may be gone when this is freed */
    uint64_t number;
    struct wf_schedule schedule;
    size_t at, end; /* moves of the round under way */
    struct wf_request *request;
    bool under_way, held, over;
    struct wf_err err;
    char *work; /* the elements, in `dtype` */
    enum wf_dtype dtype, wire;
    /* halves are added in f32, in `wide`, and come back to `data` at the end */
    void *data;
    size_t count;
    enum wf_dtype half;
    float *wide;
    size_t wide_room;
    struct wf_message *messages;
    char **places; /* per move of the round: where it lies while it travels; NULL: in `work` */
    char *staging;
    size_t messages_room, places_room, staging_room;
};

static bool is_half(enum wf_dtype dtype)
{
    return dtype == WF_BF16 || dtype == WF_F16;
}

static size_t bytes_of(const struct wf_sum_machine *m, const struct wf_move *move)
{
    return move->count * wf_dtype_size(m->wire);
}

static char *elements(const struct wf_sum_machine *m, const struct wf_move *move)
{
    return m->work + move->first * wf_dtype_size(m->dtype);
}

/* --- one round --- */

static bool is_staged(const struct wf_sum_machine *m, const struct wf_move *move)
{
    return m->wire != m->dtype || move->adds;
}

static void take_staging(struct wf_sum_machine *m)
{
    size_t bytes = 0;
    for (size_t i = m->at; i < m->end; i++)
        if (is_staged(m, &m->schedule.moves[i]))
            bytes += (bytes_of(m, &m->schedule.moves[i]) + ALIGN - 1) / ALIGN * ALIGN;
    if (bytes <= m->staging_room)
        return;
    free(m->staging);
    m->staging = aligned_alloc(ALIGN, bytes);
    WF_BUG_ON(!m->staging, "out of memory for %zu bytes of a sum", bytes);
    m->staging_room = bytes;
}

static void pack(const struct wf_sum_machine *m, const struct wf_move *move, char *place)
{
    float *const from = (float *)(void *)elements(m, move);
    wf_sum_narrow(m->wire, place, from, move->count);
    if (move->exact)
        wf_sum_widen(m->wire, from, place, move->count);
}

static bool begin_round(struct wf_sum_machine *m)
{
    const struct wf_schedule *const s = &m->schedule;
    for (m->end = m->at; m->end < s->count && s->moves[m->end].round == s->moves[m->at].round;)
        m->end++;
    take_staging(m);
    size_t used = 0;
    for (size_t i = m->at; i < m->end; i++) {
        const struct wf_move *const move = &s->moves[i];
        const size_t n = i - m->at, bytes = bytes_of(m, move);
        WF_GROW(m->messages, m->messages_room, n);
        WF_GROW(m->places, m->places_room, n); // NOLINT(bugprone-sizeof-expression): pointers
        m->places[n] = is_staged(m, move) ? m->staging + used : NULL;
        used += m->places[n] ? (bytes + ALIGN - 1) / ALIGN * ALIGN : 0;
        char *const place = m->places[n] ? m->places[n] : elements(m, move);
        m->messages[n] = (struct wf_message){ .peer = move->peer,
                                              .tag = TAG_FIRST + (int)(m->number % TAGS),
                                              .bytes = bytes };
        if (!move->sends)
            m->messages[n].recv = place;
        else
            m->messages[n].send = place;
        if (move->sends && m->places[n])
            pack(m, move, place);
    }
    m->request = NULL;
    m->under_way = m->comm->vtable->exchange_begin(m->comm, (int)(m->end - m->at), m->messages,
                                                   &m->request, &m->err);
    return m->under_way;
}

static void finish_round(struct wf_sum_machine *m)
{
    for (size_t i = m->at; i < m->end; i++) {
        const struct wf_move *const move = &m->schedule.moves[i];
        const char *const place = m->places[i - m->at];
        if (move->sends || !place)
            continue;
        if (move->adds)
            wf_sum_add(m->wire, elements(m, move), place, move->count);
        else
            wf_sum_widen(m->wire, (float *)(void *)elements(m, move), place, move->count);
    }
    m->at = m->end;
    m->under_way = false;
}

/* Ends the round that is under way. Waits where the messages have not come. */
static bool end_round(struct wf_sum_machine *m)
{
    struct wf_request *const request = m->request;
    m->request = NULL;
    m->held = true; /* while we wait, others are advanced, not this one */
    const bool ok = !request || m->comm->vtable->exchange_end(m->comm, request, &m->err);
    m->held = false;
    if (ok)
        finish_round(m);
    return ok;
}

/* --- a sum --- */

static bool has_come(const struct wf_sum_machine *m)
{
    return !m->request || m->comm->vtable->exchange_test(m->comm, m->request);
}

/* As far as it goes without waiting, or to its end. */
static void advance(struct wf_sum_machine *m, bool wait)
{
    while (!m->over && !m->held) {
        if (!m->under_way && m->at == m->schedule.count)
            m->over = true;
        else if (!m->under_way)
            m->over = !begin_round(m);
        else if (wait || has_come(m))
            m->over = !end_round(m);
        else
            break;
    }
}

void wf_sums_advance(struct wf_comm *comm)
{
    if (!comm->sums)
        return;
    for (struct wf_sum_machine *m = comm->sums->flight->first; m; m = m->next)
        advance(m, false);
}

/* W2: a sum so old that it has our tag is ended first. */
static void make_way(const struct wf_comm *comm)
{
    for (struct wf_sum_machine *m = comm->sums->flight->first; m; m = m->next)
        if (m->comm == comm && m->number + TAGS <= comm->sums->begun)
            advance(m, true);
}

static void schedule(struct wf_sum_machine *m, enum wf_sum_way way, size_t count)
{
    const struct wf_comm *const comm = m->comm;
    const struct wf_sum_group all = { .rank = comm->rank, .size = comm->size };
    const bool is_short = count * wf_dtype_size(m->wire) <= SHORT_BYTES;
    m->schedule.count = 0;
    m->schedule.rounds = 0;
    if (way == WF_SUM_RING)
        wf_schedule_ring(&m->schedule, &all, 0, count);
    else if (way == WF_SUM_NODES)
        wf_schedule_nodes(&m->schedule, &comm->sums->nodes, 0, count, is_short);
    else
        wf_schedule_tree(&m->schedule, &all, 0, count, is_short);
}

static void widen(struct wf_sum_machine *m, void *data, size_t count, enum wf_dtype dtype)
{
    if (m->wide_room < count) {
        free(m->wide);
        m->wide = malloc(count * sizeof *m->wide);
        WF_BUG_ON(!m->wide, "out of memory for a sum of %zu elements", count);
        m->wide_room = count;
    }
    m->data = data;
    m->count = count;
    m->half = dtype;
    m->work = (char *)m->wide;
    m->dtype = WF_F32;
    m->wire = WF_F32;
    wf_sum_widen(dtype, m->wide, data, count);
}

bool wf_sums_begin(struct wf_comm *comm, enum wf_sum_way way, void *data, size_t count,
                   enum wf_dtype dtype, enum wf_dtype wire, struct wf_request **request,
                   struct wf_err *err)
{
    struct wf_sums *const sums = comm->sums;
    make_way(comm);
    struct wf_sum_machine *m = sums->spare;
    if (m)
        sums->spare = m->next;
    else
        m = calloc(1, sizeof *m);
    WF_BUG_ON(!m, "out of memory for a sum of %zu elements", count);
    m->comm = comm;
    m->sums = sums;
    m->number = sums->begun++;
    m->at = m->end = 0;
    m->under_way = m->held = m->over = false;
    m->err = (struct wf_err){ 0 };
    m->data = NULL;
    m->work = data;
    m->dtype = dtype;
    m->wire = dtype == WF_F32 && is_half(wire) ? wire : dtype;
    if (is_half(dtype))
        widen(m, data, count, dtype);
    schedule(m, way, count);
    m->next = sums->flight->first;
    sums->flight->first = m;
    *request = (struct wf_request *)(void *)m;
    advance(m, false);
    return m->err.code == WF_OK || wf_sums_end(comm, *request, err);
}

bool wf_sums_has(const struct wf_comm *comm, const struct wf_request *request)
{
    if (!comm->sums)
        return false;
    const struct wf_sum_machine *m = comm->sums->flight->first;
    while (m && (const void *)m != (const void *)request)
        m = m->next;
    return m != NULL;
}

static void out_of_flight(struct wf_sum_machine *m, struct wf_sum_flight *flight)
{
    struct wf_sum_machine **at = &flight->first;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
}

bool wf_sums_end(struct wf_comm *comm, struct wf_request *request, struct wf_err *err)
{
    struct wf_sum_machine *const m = (struct wf_sum_machine *)(void *)request;
    advance(m, true);
    const bool ok = m->err.code == WF_OK;
    if (ok && m->data)
        wf_sum_narrow(m->half, m->data, m->wide, m->count);
    out_of_flight(m, comm->sums->flight);
    m->next = comm->sums->spare;
    comm->sums->spare = m;
    return ok || wf_err_set(err, m->err.code, "%s", m->err.text);
}

/* --- life --- */

static void machine_free(struct wf_sum_machine *m)
{
    wf_schedule_release(&m->schedule);
    free(m->wide);
    free(m->messages);
    free(m->places);
    free(m->staging);
    free(m);
}

void wf_sums_free(struct wf_sums *sums, bool leave)
{
    if (!sums)
        return;
    for (struct wf_sum_machine **at = &sums->flight->first, *m = *at; m; m = *at) {
        if (m->sums != sums) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        if (!leave || !m->request)
            machine_free(m);
    }
    for (struct wf_sum_machine *m = sums->spare, *next; m; m = next) {
        next = m->next;
        machine_free(m);
    }
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
    sums->ranks = calloc(2 * (size_t)size, sizeof *sums->ranks);
    WF_BUG_ON(!sums->ranks, "out of memory for %d ranks", size);
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

bool wf_sums_attach(struct wf_comm *comm, const struct wf_sum_options *options,
                    struct wf_sum_flight *flight, struct wf_err *err)
{
    int32_t *const nodes = calloc((size_t)comm->size, sizeof *nodes);
    WF_BUG_ON(!nodes, "out of memory for %d ranks", comm->size);
    const int32_t mine =
        options->node_ranks > 0 ? comm->world_rank / options->node_ranks : comm->place.node;
    const bool ok = gather_nodes(comm, mine, nodes, err);
    if (ok) {
        struct wf_sums *const sums = calloc(1, sizeof *sums);
        WF_BUG_ON(!sums, "out of memory for sums over %d ranks", comm->size);
        sums->options = *options;
        sums->flight = flight ? flight : calloc(1, sizeof *flight);
        WF_BUG_ON(!sums->flight, "out of memory for sums over %d ranks", comm->size);
        sums->owns_flight = !flight;
        lay_out(sums, comm, nodes);
        comm->sums = sums;
    }
    free(nodes);
    return ok;
}
