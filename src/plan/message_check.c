#include "plan/message_check.h"

#include <inttypes.h>
#include <stdlib.h>

void wf_message_check_release(struct wf_message_check *l)
{
    free(l->events);
    free(l->messages);
    free(l->sums);
    free(l->first_event);
    free(l->first_sum);
    *l = (struct wf_message_check){ 0 };
}

/* --- writing --- */

static uint64_t mix(uint64_t digest, uint64_t word)
{
    digest = (digest ^ word) * 0xff51afd7ed558ccdu;
    return digest ^ (digest >> 29);
}

static uint64_t digest_of(const struct wf_exchange *x, const struct wf_plan_message *m)
{
    const struct wf_view *const v = &m->slot.view;
    uint64_t digest = mix((uint64_t)x->value->id, (uint64_t)v->dtype);
    for (int a = 0; a < WF_AXES; a++)
        digest = mix(mix(digest, (uint64_t)v->box.lo[a]), (uint64_t)v->box.hi[a]);
    return digest;
}

static void add_event(struct wf_message_check *l, enum wf_step_kind kind, size_t first,
                      size_t count)
{
    WF_GROW(l->events, l->room_events, l->n_events);
    l->events[l->n_events++] =
        (struct wf_checked_event){ .kind = kind, .first = (int)first, .count = (int)count };
}

static void add_exchange(struct wf_message_check *l, const struct wf_plan *plan, int which)
{
    const struct wf_exchange *const x = &plan->exchanges[which];
    const size_t first = l->n_messages;
    for (int i = 0; i < x->n_messages; i++) {
        const struct wf_plan_message *const m = &x->messages[i];
        WF_GROW(l->messages, l->room_messages, l->n_messages);
        l->messages[l->n_messages++] =
            (struct wf_checked_message){ .from = m->is_send ? plan->rank : m->peer,
                                         .to = m->is_send ? m->peer : plan->rank,
                                         .tag = m->tag,
                                         .event = (int)l->n_events,
                                         .partner = -1,
                                         .is_send = m->is_send,
                                         .bytes = m->bytes,
                                         .what = digest_of(x, m) };
    }
    add_event(l, WF_STEP_FETCH_BEGIN, first, l->n_messages - first);
}

static void add_sum(struct wf_message_check *l, const struct wf_plan *plan, int which)
{
    const struct wf_sum *const s = &plan->sums[which];
    WF_GROW(l->sums, l->room_sums, l->n_sums);
    l->sums[l->n_sums] = (struct wf_checked_sum){
        .value = s->value, .count = s->count, .group = s->group, .meeting = -1
    };
    add_event(l, WF_STEP_SUM_BEGIN, l->n_sums++, 1);
}

/* `exchange`, `sum`: where each of the plan's was begun last. */
static void add_step(struct wf_message_check *l, const struct wf_plan *plan,
                     const struct wf_step *step, size_t exchange[], size_t sum[])
{
    if (step->kind == WF_STEP_FETCH_BEGIN) {
        exchange[step->which] = l->n_events;
        add_exchange(l, plan, step->which);
    } else if (step->kind == WF_STEP_SUM_BEGIN) {
        sum[step->which] = l->n_events;
        add_sum(l, plan, step->which);
    } else if (step->kind == WF_STEP_FETCH_END || step->kind == WF_STEP_SUM_END) {
        const bool fetch = step->kind == WF_STEP_FETCH_END;
        const struct wf_checked_event begun =
            l->events[fetch ? exchange[step->which] : sum[step->which]];
        add_event(l, step->kind, (size_t)begun.first, (size_t)begun.count);
    }
}

void wf_message_check_add(struct wf_message_check *l, const struct wf_plan *plan)
{
    WF_BUG_ON(plan->rank != l->n_ranks, "rank %d behind %d", plan->rank, l->n_ranks - 1);
    WF_GROW(l->first_event, l->room_first_event, (size_t)l->n_ranks + 1);
    WF_GROW(l->first_sum, l->room_first_sum, (size_t)l->n_ranks + 1);
    /* Where each exchange and sum of the plan was begun, for its end. */
    struct wf_arena arena = { 0 };
    size_t *const exchange = wf_arena_array(&arena, plan->n_exchanges + 1, size_t);
    size_t *const sum = wf_arena_array(&arena, plan->n_sums + 1, size_t);
    /* More micro-batches do nothing that these do not. */
    const int most = 3 * plan->global->stages.n_stages;
    for (int i = 0; i < plan->turns.n; i++) {
        const struct wf_plan_part *const part = &plan->parts[plan->turns.at[i].part];
        for (int s = part->first; plan->turns.at[i].micro < most && s < part->end; s++)
            add_step(l, plan, &plan->steps[s], exchange, sum);
    }
    wf_arena_release(&arena);
    l->n_ranks++;
    l->first_event[l->n_ranks] = (int)l->n_events;
    l->first_sum[l->n_ranks] = (int)l->n_sums;
}

/* --- I4: every send has its receive --- */

static int by_channel(const void *a, const void *b, void *arg)
{
    const struct wf_checked_message *const all = arg;
    const int i = *(const int *)a, k = *(const int *)b;
    const struct wf_checked_message *const x = &all[i], *const y = &all[k];
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    if (x->tag != y->tag)
        return x->tag < y->tag ? -1 : 1;
    return i < k ? -1 : 1; /* as they were begun */
}

static bool is_match(const struct wf_checked_message *s, const struct wf_checked_message *r)
{
    return s->from == r->from && s->to == r->to && s->tag == r->tag && s->bytes == r->bytes &&
           s->what == r->what;
}

static bool no_match(const struct wf_checked_message *m, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FAILED,
                      "plans break I4: a %s of %zu bytes from rank %d to rank %d, tag %d, meets no "
                      "%s of the same: please report it",
                      m->is_send ? "send" : "receive", m->bytes, m->from, m->to, m->tag,
                      m->is_send ? "receive" : "send");
}

/* The n-th send of a channel (from, to, tag) meets the n-th receive of it. */
static bool match_messages(struct wf_message_check *l, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    int *const sends = wf_arena_array(&arena, l->n_messages + 1, int);
    int *const recvs = wf_arena_array(&arena, l->n_messages + 1, int);
    size_t n_sends = 0, n_recvs = 0;
    for (size_t i = 0; i < l->n_messages; i++) {
        if (l->messages[i].is_send)
            sends[n_sends++] = (int)i;
        else
            recvs[n_recvs++] = (int)i;
    }
    qsort_r(sends, n_sends, sizeof *sends, by_channel, l->messages);
    qsort_r(recvs, n_recvs, sizeof *recvs, by_channel, l->messages);
    bool ok = true;
    for (size_t i = 0; ok && (i < n_sends || i < n_recvs); i++) {
        struct wf_checked_message *const s = i < n_sends ? &l->messages[sends[i]] : NULL;
        struct wf_checked_message *const r = i < n_recvs ? &l->messages[recvs[i]] : NULL;
        if (!s || !r || !is_match(s, r)) {
            ok = no_match(s ? s : r, err);
            break;
        }
        s->partner = recvs[i];
        r->partner = sends[i];
    }
    wf_arena_release(&arena);
    return ok;
}

/* --- I5: groups meet --- */

/* The next sum of a rank from *at on with this group, or -1. */
static int next_sum(const struct wf_message_check *l, int rank, int group, int *at)
{
    for (; *at < l->first_sum[rank + 1]; (*at)++)
        if (l->sums[*at].group == group)
            return (*at)++;
    return -1;
}

/* A rank's sums with a group are those of its first rank, one by one. */
static bool match_group(struct wf_message_check *l, int rank, int leader, int group,
                        struct wf_err *err)
{
    int at = l->first_sum[rank], leaders = l->first_sum[leader], mine;
    do {
        mine = next_sum(l, rank, group, &at);
        const int other = next_sum(l, leader, group, &leaders);
        if ((mine < 0) != (other < 0) ||
            (mine >= 0 && (l->sums[mine].count != l->sums[other].count ||
                           l->sums[mine].value != l->sums[other].value)))
            return wf_err_set(err, WF_ERR_FAILED,
                              "plans break I5: ranks %d and %d do not meet at the sum of '%s': "
                              "please report it",
                              leader, rank, l->sums[mine >= 0 ? mine : other].value->name);
        if (mine >= 0)
            l->sums[mine].meeting = other;
    } while (mine >= 0);
    return true;
}

/* Every sum is with a group that has its rank. */
static bool check_members(const struct wf_message_check *l, const struct wf_groups *groups,
                          struct wf_err *err)
{
    for (int r = 0; r < l->n_ranks; r++)
        for (int i = l->first_sum[r]; i < l->first_sum[r + 1]; i++)
            if (l->sums[i].group < 0 || l->sums[i].group >= groups->n ||
                !wf_group_has(&groups->at[l->sums[i].group], r))
                return wf_err_set(err, WF_ERR_FAILED,
                                  "plans break I5: rank %d sums '%s' with others: please report it",
                                  r, l->sums[i].value->name);
    return true;
}

static bool match_sums(struct wf_message_check *l, const struct wf_groups *groups,
                       struct wf_err *err)
{
    if (!check_members(l, groups, err))
        return false;
    for (int g = 0; g < groups->n; g++)
        for (int i = 0; i < groups->at[g].n; i++)
            if (!match_group(l, groups->at[g].ranks[i], groups->at[g].ranks[0], g, err))
                return false;
    return true;
}

/* --- I6: everybody gets to the end --- */

/*
 * The ranks are walked as if they ran. Either communication goes on beside them, as between threads and by
 * MPI: an end waits until the others have begun. Or it is part of their work, one after the other, as on one
 * stream of a GPU: a beginning waits until the others stand at theirs. A rank that waits stands in the list
 * of the one thing it waits for: another rank, or a meeting.
 */
struct walk {
    const struct wf_message_check *l;
    bool in_order;
    int *arrived;    /* per rank: one more than the last event that it has arrived at */
    int *at;         /* per rank: the event it stands at */
    int *next;       /* per rank: the next that waits for the same, or -1 */
    int *waits_rank; /* per rank: the first that waits for it to go on, or -1 */
    int *waits_sum;  /* per meeting: likewise */
    int *missing;    /* per meeting: how many have not begun */
    int *ready;      /* ranks that may go on */
    int n_ready;
};

static void wake(struct walk *w, int *list)
{
    WF_BUG_ON(!list, "nothing to wake");
    for (int r = *list; r >= 0; r = w->next[r])
        w->ready[w->n_ready++] = r;
    *list = -1;
}

static void wait_in(struct walk *w, int rank, int *list)
{
    w->next[rank] = *list;
    *list = rank;
}

/* Where a rank that stands in front of this end has to wait, or NULL. */
static int *blocked_by(struct walk *w, const struct wf_checked_event *e)
{
    const struct wf_message_check *const l = w->l;
    if (e->kind == (w->in_order ? WF_STEP_SUM_BEGIN : WF_STEP_SUM_END)) {
        const int meeting = l->sums[e->first].meeting;
        return w->missing[meeting] > 0 ? &w->waits_sum[meeting] : NULL;
    }
    if (e->kind != (w->in_order ? WF_STEP_FETCH_BEGIN : WF_STEP_FETCH_END))
        return NULL;
    for (int i = e->first; i < e->first + e->count; i++) {
        const struct wf_checked_message *const m = &l->messages[i];
        const int peer = m->is_send ? m->to : m->from;
        if (l->messages[m->partner].event >= w->at[peer] + w->in_order)
            return &w->waits_rank[peer];
    }
    return NULL;
}

static void go_on(struct walk *w, int rank)
{
    const struct wf_message_check *const l = w->l;
    const int before = w->at[rank];
    int *list = NULL;
    while (w->at[rank] < l->first_event[rank + 1]) {
        const struct wf_checked_event *const e = &l->events[w->at[rank]];
        if (w->arrived[rank] <= w->at[rank] && e->kind == WF_STEP_SUM_BEGIN &&
            --w->missing[l->sums[e->first].meeting] == 0)
            wake(w, &w->waits_sum[l->sums[e->first].meeting]);
        w->arrived[rank] = w->at[rank] + 1;
        list = blocked_by(w, e);
        if (list)
            break;
        w->at[rank]++;
    }
    if (w->at[rank] > before)
        wake(w, &w->waits_rank[rank]);
    if (list)
        wait_in(w, rank, list);
}

static bool walk_all(const struct wf_message_check *l, bool in_order, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const int n = l->n_ranks;
    struct walk w = { .l = l,
                      .in_order = in_order,
                      .arrived = wf_arena_array(&arena, n, int),
                      .at = wf_arena_array(&arena, n, int),
                      .next = wf_arena_array(&arena, n, int),
                      .waits_rank = wf_arena_array(&arena, n, int),
                      .waits_sum = wf_arena_array(&arena, l->n_sums + 1, int),
                      .missing = wf_arena_array(&arena, l->n_sums + 1, int),
                      .ready = wf_arena_array(&arena, n, int) };
    for (size_t i = 0; i < l->n_sums; i++) {
        w.waits_sum[i] = -1;
        w.missing[l->sums[i].meeting]++;
    }
    for (int r = n - 1; r >= 0; r--) {
        w.at[r] = l->first_event[r];
        w.waits_rank[r] = -1;
        w.ready[w.n_ready++] = r;
    }
    while (w.n_ready > 0)
        go_on(&w, w.ready[--w.n_ready]);
    bool ok = true;
    for (int r = 0; ok && r < n; r++)
        if (w.at[r] < l->first_event[r + 1])
            ok =
                wf_err_set(err, WF_ERR_FAILED,
                           "plans break I6: rank %d waits for ever at communication #%d%s: "
                           "please report it",
                           r, w.at[r] - l->first_event[r], in_order ? ", one after the other" : "");
    wf_arena_release(&arena);
    return ok;
}

bool wf_message_check_run(struct wf_message_check *l, const struct wf_groups *groups,
                          struct wf_err *err)
{
    WF_BUG_ON(l->n_ranks != wf_mesh_size(&groups->mesh), "%d plans of %d ranks", l->n_ranks,
              wf_mesh_size(&groups->mesh));
    return match_messages(l, err) && match_sums(l, groups, err) && walk_all(l, false, err) &&
           walk_all(l, true, err);
}
