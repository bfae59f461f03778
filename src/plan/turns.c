#include "plan/turns.h"

#include <math.h>
#include <stdlib.h>

/* A segment of a micro-batch. */
struct work {
    int segment, micro;
    double start, end;
};

struct maker {
    const struct wf_stages *s;
    int micro, backlog; /* micro-batches */
    struct work **of;   /* per stage, in its order */
    int *n;             /* per stage */
    double *end;        /* per segment and micro-batch; NaN: not run yet */
    const double *seconds, *travel;
};

static int forward_of(int chunk)
{
    return chunk;
}

static int backward_of(const struct wf_stages *s, int chunk)
{
    for (int i = s->n_chunks; i < s->n_segments; i++)
        if (s->segments[i].kind == WF_SEGMENT_BACKWARD && s->segments[i].chunk == chunk)
            return i;
    return -1;
}

static void add(struct maker *m, int stage, int segment, int micro)
{
    m->of[stage][m->n[stage]++] = (struct work){ .segment = segment, .micro = micro };
}

/* --- the schedules: a stage's order --- */

static void order_1f1b(struct maker *m, int stage)
{
    const int p = m->s->n_stages, ahead = (int)wf_min(m->micro, p - 1 - stage);
    const int back = backward_of(m->s, stage);
    for (int i = 0; i < m->micro + ahead; i++) {
        if (i < m->micro)
            add(m, stage, forward_of(stage), i);
        if (i >= ahead)
            add(m, stage, back, i - ahead);
    }
}

/* Micro-batches go in groups of as many as there are stages: chunk by chunk. */
static void add_interleaved(struct maker *m, int stage, int k, bool backward)
{
    const int p = m->s->n_stages, each = m->s->n_chunks / p;
    const int within = k % (p * each), round = within / p;
    const int chunk = (backward ? each - 1 - round : round) * p + stage;
    add(m, stage, backward ? backward_of(m->s, chunk) : forward_of(chunk),
        k / (p * each) * p + within % p);
}

static void order_interleaved(struct maker *m, int stage)
{
    const int p = m->s->n_stages, each = m->s->n_chunks / p, all = m->micro * each;
    const int ahead = (int)wf_min(all, (p - stage - 1) * 2 + (each - 1) * p);
    for (int i = 0; i < all + ahead; i++) {
        if (i < all)
            add_interleaved(m, stage, i, false);
        if (i >= ahead)
            add_interleaved(m, stage, i - ahead, true);
    }
}

/* What a stage of the zero-bubble schedule has done. */
struct progress {
    int begun[3], done[3]; /* forward, backward, weights: micro-batches */
    int now, left;         /* what it does, and for how many units of time more */
};

/* What it does next: the others wait for what goes forward, then for what goes back, and nobody for weight
 * gradients. -1: nothing. */
static int choose(const struct maker *m, const struct progress all[], int stage)
{
    const int p = m->s->n_stages, most = (int)wf_max(m->backlog, p - stage);
    const struct progress *const s = &all[stage];
    if (s->begun[0] < m->micro && (stage == 0 || s->begun[0] < all[stage - 1].done[0]) &&
        s->begun[0] - s->done[1] < p - stage && s->begun[0] - s->done[2] < most)
        return 0;
    if (s->begun[1] < s->done[0] && (stage == p - 1 || s->begun[1] < all[stage + 1].done[1]))
        return 1;
    return s->begun[2] < s->done[1] ? 2 : -1;
}

/* ZB-H1: weight gradients fill the time in which a stage would wait. No stage begins more than 1F1B's
 * would, and none has more without its weight gradients than the backlog. Each part takes one unit of
 * time; the first stage, whose backward pass is not taken apart, two for that and none for the rest. */
static void order_zero_bubble(struct maker *m)
{
    const int p = m->s->n_stages;
    struct wf_arena scratch = { 0 };
    struct progress *const all = wf_arena_array(&scratch, p, struct progress);
    for (bool open = true; open;) {
        open = false;
        for (int s = 0; s < p; s++) {
            const int kind = all[s].left == 0 ? choose(m, all, s) : -1;
            if (kind < 0)
                continue;
            add(m, s, kind == 0 ? forward_of(s) : backward_of(m->s, s) + (kind == 2),
                all[s].begun[kind]++);
            all[s].now = kind;
            all[s].left = s == 0 && kind == 1 ? 2 : 1;
        }
        for (int s = 0; s < p; s++) { /* all of them at once */
            struct progress *const at = &all[s];
            if (at->left > 0 && --at->left == 0)
                at->done[at->now]++;
            if (s == 0 && at->begun[2] < at->done[1]) { /* at once, and nothing */
                add(m, s, backward_of(m->s, s) + 1, at->begun[2]++);
                at->done[2]++;
            }
            open = open || at->done[2] < m->micro;
        }
    }
    wf_arena_release(&scratch);
}

/* --- when they run --- */

static double *end_of(const struct maker *m, int segment, int micro)
{
    return &m->end[segment * m->micro + micro];
}

/* The latest end of what the segment waits for; NaN: not known yet. */
static double ready_at(const struct maker *m, const struct work *w)
{
    const struct wf_segment *const of = &m->s->segments[w->segment];
    double ready = 0;
    if (of->kind == WF_SEGMENT_FORWARD && of->chunk > 0)
        ready = *end_of(m, forward_of(of->chunk - 1), w->micro);
    if (of->kind == WF_SEGMENT_BACKWARD)
        ready = of->chunk < m->s->n_chunks - 1
                    ? *end_of(m, backward_of(m->s, of->chunk + 1), w->micro)
                    : *end_of(m, forward_of(of->chunk), w->micro);
    if (of->kind == WF_SEGMENT_WEIGHTS)
        ready = *end_of(m, w->segment - 1, w->micro);
    return of->kind == WF_SEGMENT_WEIGHTS ? ready : ready + m->travel[w->segment];
}

/* Every stage runs its list as soon as it can. */
static double find_times(struct maker *m)
{
    const int p = m->s->n_stages;
    struct wf_arena scratch = { 0 };
    int *const at = wf_arena_array(&scratch, p, int);
    double *const free_at = wf_arena_array(&scratch, p, double);
    double last = 0;
    for (int i = 0; i < m->s->n_segments * m->micro; i++)
        m->end[i] = NAN;
    for (bool moves = true; moves;) {
        moves = false;
        for (int s = 0; s < p; s++)
            while (at[s] < m->n[s]) {
                struct work *const w = &m->of[s][at[s]];
                const double ready = ready_at(m, w);
                if (isnan(ready))
                    break;
                w->start = fmax(ready, free_at[s]);
                w->end = w->start + m->seconds[w->segment];
                *end_of(m, w->segment, w->micro) = free_at[s] = w->end;
                last = fmax(last, w->end);
                at[s]++;
                moves = true;
            }
    }
    for (int s = 0; s < p; s++)
        WF_BUG_ON(at[s] < m->n[s], "stage %d waits for ever in turn %d of %d", s, at[s], m->n[s]);
    wf_arena_release(&scratch);
    return last;
}

static struct maker make(struct wf_arena *arena, const struct wf_stages *s,
                         const struct wf_pipe_options *o)
{
    const int micro = wf_pipe_micro_batches(o), p = s->n_stages;
    struct maker m = { .s = s, .micro = micro, .backlog = o->backlog > 0 ? o->backlog : p };
    if (s->n_segments > 1 && o->schedule == WF_PIPE_INTERLEAVED)
        m.micro = (micro + p - 1) / p * p;
    m.of = wf_arena_array(arena, s->n_stages, struct work *);
    m.n = wf_arena_array(arena, s->n_stages, int);
    m.end = wf_arena_array(arena, s->n_segments * m.micro, double);
    for (int i = 0; i < s->n_stages; i++)
        m.of[i] = wf_arena_array(arena, s->n_segments * m.micro, struct work);
    if (s->n_segments == 1)
        for (int i = 0; i < micro; i++)
            add(&m, 0, 0, i);
    else if (o->schedule == WF_PIPE_ZERO_BUBBLE)
        order_zero_bubble(&m);
    else
        for (int i = 0; i < s->n_stages; i++)
            (o->schedule == WF_PIPE_INTERLEAVED ? order_interleaved : order_1f1b)(&m, i);
    for (int i = 0; i < s->n_stages; i++) { /* what fills up a group of interleaved ones */
        int n = 0;
        for (int k = 0; k < m.n[i]; k++)
            if (m.of[i][k].micro < micro)
                m.of[i][n++] = m.of[i][k];
        m.n[i] = n;
    }
    m.micro = micro;
    return m;
}

/* A backward pass takes as long as two forward passes. The order must be the same on all ranks, so it is
 * not by estimates. */
static const double *usual_seconds(struct wf_arena *arena, const struct wf_stages *s)
{
    double *const seconds = wf_arena_array(arena, s->n_segments, double);
    const bool apart = s->n_segments > 2 * s->n_chunks;
    for (int i = 0; i < s->n_segments; i++) {
        const struct wf_segment *const of = &s->segments[i];
        const bool whole = !apart || of->chunk == 0;
        seconds[i] = of->kind == WF_SEGMENT_FORWARD    ? 1
                     : of->kind == WF_SEGMENT_BACKWARD ? 1 + whole
                                                       : !whole;
    }
    return seconds;
}

/* --- the turns --- */

struct placed {
    struct wf_turn turn;
    double start;
};

/* One order of all: by time; what travels does so as soon as all of it is there, in front of what reads it. */
static int by_start(const void *a, const void *b)
{
    const struct placed *const x = a, *const y = b;
    const int work[] = { x->turn.part % 2, y->turn.part % 2 };
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (work[0] != work[1])
        return work[0] - work[1];
    return x->turn.micro != y->turn.micro ? x->turn.micro - y->turn.micro
                                          : x->turn.part - y->turn.part;
}

struct wf_turns wf_turns_of(struct wf_arena *arena, const struct wf_stages *s,
                            const struct wf_pipe_options *o, int stage, int count)
{
    struct wf_arena scratch = { 0 };
    struct maker m = make(&scratch, s, o);
    WF_BUG_ON(count > m.micro, "%d micro-batches of %d", count, m.micro);
    m.seconds = usual_seconds(&scratch, s);
    m.travel = wf_arena_array(&scratch, s->n_segments, double);
    (void)find_times(&m);
    struct placed *const all = wf_arena_array(&scratch, 2 * s->n_segments * m.micro, struct placed);
    int n = 0;
    for (int i = 0; i < s->n_stages; i++)
        for (int k = 0; k < m.n[i]; k++) {
            const struct work *const w = &m.of[i][k];
            if (w->micro >= count)
                continue;
            all[n++] =
                (struct placed){ { wf_part_transfers(w->segment), w->micro }, ready_at(&m, w) };
            if (i == stage)
                all[n++] = (struct placed){ { wf_part_work(w->segment), w->micro }, w->start };
        }
    qsort(all, (size_t)n, sizeof *all, by_start);
    struct wf_turns turns = { .at = wf_arena_array(arena, n + 1, struct wf_turn), .n = n };
    for (int i = 0; i < n; i++)
        turns.at[i] = all[i].turn;
    wf_arena_release(&scratch);
    return turns;
}

struct wf_turns_time wf_turns_estimate(struct wf_arena *arena, const struct wf_stages *s,
                                       const struct wf_pipe_options *o, const double seconds[],
                                       const double travel[])
{
    struct wf_arena scratch = { 0 };
    struct maker m = make(&scratch, s, o);
    m.seconds = seconds;
    m.travel = travel;
    struct wf_turns_time t = { .seconds = find_times(&m),
                               .idle = wf_arena_array(arena, s->n_stages, double) };
    for (int i = 0; i < s->n_stages; i++) {
        double busy = 0;
        for (int k = 0; k < m.n[i]; k++)
            busy += seconds[m.of[i][k].segment];
        t.idle[i] = t.seconds > 0 ? 1 - busy / t.seconds : 0;
    }
    wf_arena_release(&scratch);
    return t;
}

int wf_turns_slots(const struct wf_turns *turns, const bool used[], int count)
{
    struct wf_arena scratch = { 0 };
    int *const first = wf_arena_array(&scratch, count, int);
    int *const last = wf_arena_array(&scratch, count, int);
    for (int i = 0; i < count; i++)
        first[i] = -1;
    for (int i = 0; i < turns->n; i++) {
        const int m = turns->at[i].micro;
        if (m >= count || !used[turns->at[i].part])
            continue;
        first[m] = first[m] < 0 ? i : first[m];
        last[m] = i;
    }
    int slots = 1;
    for (int m = 0; m < count; m++)
        while (m + slots < count && first[m + slots] >= 0 && first[m + slots] <= last[m])
            slots++;
    wf_arena_release(&scratch);
    return slots;
}
