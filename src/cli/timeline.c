#include "cli/timeline.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "ops/op.h"
#include "report/timeline.h"

enum { TAG = 2 };
static const double LEAST = 5e-6; /* seconds of a gap that is more than reading the clock */

struct collector {
    struct wf_arena arena;
    struct wf_event *events;
    size_t count;
    int rank;
};

static struct wf_event *add(struct collector *c, enum wf_event_kind kind, double start, double end)
{
    struct wf_event *e = &c->events[c->count++];
    *e = (struct wf_event){ .start = start, .end = end, .rank = c->rank, .kind = kind };
    return e;
}

static void name_event(struct wf_event *e, const char *what, const char *name)
{
    (void)snprintf(e->name, sizeof e->name, "%s%s%s", what, *what ? " " : "", name);
}

static void add_kernel(struct collector *c, const struct wf_step *s, double start, double end)
{
    const struct wf_node *n = s->node;
    if (!n || s->kind != WF_STEP_KERNEL)
        name_event(add(c, WF_EVENT_COPY, start, end), s->kind == WF_STEP_ADD ? "add" : "copy",
                   n ? n->name : "state");
    else
        name_event(add(c, n->backward ? WF_EVENT_BACKWARD : WF_EVENT_FORWARD, start, end),
                   n->op->name, n->name);
}

/* Time in which the comm was given its turn: as between two steps of the plan. */
static void add_gap(struct collector *c, double start, double end)
{
    if (end - start > LEAST)
        name_event(add(c, WF_EVENT_ADVANCE, start, end), "", "progress");
}

/* Of several micro-batches or stages: an event for each turn that does something. */
static void collect_turns(struct collector *c, const struct wf_run *run)
{
    static const char *const kinds[] = { "forward", "backward", "weights" };
    const struct wf_plan *const plan = wf_run_plan(run);
    const struct wf_stages *const stages = &plan->global->stages;
    const double *const starts = wf_run_turn_starts(run), *const seconds = wf_run_turn_seconds(run);
    c->events = wf_arena_array(&c->arena, plan->turns.n + 1, struct wf_event);
    for (int i = 0; i < plan->turns.n; i++) {
        const struct wf_turn *const t = &plan->turns.at[i];
        const struct wf_segment *const of = &stages->segments[t->part / 2];
        if (plan->parts[t->part].first == plan->parts[t->part].end)
            continue;
        const bool works = t->part == wf_part_work(t->part / 2);
        const enum wf_event_kind kind = !works                           ? WF_EVENT_WAIT
                                        : of->kind == WF_SEGMENT_FORWARD ? WF_EVENT_FORWARD
                                                                         : WF_EVENT_BACKWARD;
        struct wf_event *const e = add(c, kind, starts[i], starts[i] + seconds[i]);
        (void)snprintf(e->name, sizeof e->name, "%s part %d, micro-batch %d",
                       works ? kinds[of->kind] : "transfers", of->chunk, t->micro);
    }
}

/* This rank's events: two for each end of communication, what was in flight and the waiting. */
static void collect(struct collector *c, const struct wf_run *run)
{
    const struct wf_plan *plan = wf_run_plan(run);
    const double *starts = wf_run_step_starts(run), *seconds = wf_run_step_seconds(run);
    double *fetch = wf_arena_array(&c->arena, plan->n_exchanges + 1, double);
    double *sum = wf_arena_array(&c->arena, plan->n_sums + 1, double);
    c->events = wf_arena_array(&c->arena, 3 * plan->n_steps + 1, struct wf_event);
    for (int i = 0; i < plan->n_steps; i++) {
        const struct wf_step *s = &plan->steps[i];
        const double start = starts[i], end = starts[i] + seconds[i];
        if (i > 0)
            add_gap(c, starts[i - 1] + seconds[i - 1], start);
        switch (s->kind) {
        case WF_STEP_KERNEL:
        case WF_STEP_COPY:
        case WF_STEP_ADD:
            add_kernel(c, s, start, end);
            break;
        case WF_STEP_FETCH_BEGIN: /* packing is in it */
            name_event(add(c, WF_EVENT_COPY, start, end), "pack",
                       plan->exchanges[s->which].value->name);
            fetch[s->which] = start;
            break;
        case WF_STEP_SUM_BEGIN: /* and what else it lets advance */
            add_gap(c, start, end);
            sum[s->which] = start;
            break;
        case WF_STEP_FETCH_END:
            name_event(add(c, WF_EVENT_FETCH, fetch[s->which], end), "fetch",
                       plan->exchanges[s->which].value->name);
            name_event(add(c, WF_EVENT_WAIT, start, end), "fetch",
                       plan->exchanges[s->which].value->name);
            break;
        case WF_STEP_SUM_END:
            name_event(add(c, WF_EVENT_SUM, sum[s->which], end), "sum",
                       plan->sums[s->which].value->name);
            name_event(add(c, WF_EVENT_WAIT, start, end), "sum", plan->sums[s->which].value->name);
            break;
        }
    }
}

/* Collective. All ranks' events on rank 0, one rank after the other. */
static bool gather(struct collector *c, struct wf_comm *comm, struct wf_event **all, size_t *count,
                   struct wf_err *err)
{
    const int size = wf_comm_size(comm), rank = wf_comm_rank(comm);
    int64_t *counts = wf_arena_array(&c->arena, size, int64_t);
    counts[rank] = (int64_t)c->count;
    if (!wf_comm_sum(comm, counts, (size_t)size, WF_I64, err))
        return false;
    *count = 0;
    for (int r = 0; r < size; r++)
        *count += (size_t)counts[r];
    *all = rank == 0 ? wf_arena_array(&c->arena, *count + 1, struct wf_event) : NULL;
    struct wf_message *m = wf_arena_array(&c->arena, size, struct wf_message);
    size_t at = c->count;
    int n = 0;
    for (int r = 1; rank == 0 && r < size; r++) {
        m[n++] = (struct wf_message){
            .peer = r, .tag = TAG, .recv = *all + at, .bytes = (size_t)counts[r] * sizeof **all
        };
        at += (size_t)counts[r];
    }
    if (rank == 0)
        memcpy(*all, c->events, c->count * sizeof **all);
    else
        m[n++] = (struct wf_message){
            .peer = 0, .tag = TAG, .send = c->events, .bytes = c->count * sizeof **all
        };
    return wf_comm_exchange(comm, n, m, err);
}

static bool write_file(const struct wf_timeline *t, const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const size_t length = strlen(path);
    const bool picture = length > 4 && strcmp(path + length - 4, ".svg") == 0;
    const char *text = picture ? wf_timeline_svg(&arena, t) : wf_timeline_json(&arena, t);
    const bool ok = wf_write_text(path, text, err);
    wf_arena_release(&arena);
    return ok;
}

bool wf_timeline_write(const struct wf_run *run, struct wf_comm *comm, const char *title,
                       const char *path, struct wf_err *err)
{
    struct collector c = { .rank = wf_comm_rank(comm) };
    (wf_run_plan(run)->turns.n > 2 ? collect_turns : collect)(&c, run);
    struct wf_timeline t = { .title = title, .ranks = wf_comm_size(comm) };
    struct wf_event *all = NULL;
    bool ok = gather(&c, comm, &all, &t.count, err);
    t.events = all;
    ok = wf_comm_agree(comm, ok && (c.rank != 0 || write_file(&t, path, err)), err);
    wf_arena_release(&c.arena);
    return ok;
}

const char *wf_timeline_title(struct wf_arena *arena, const struct wf_job *job,
                              const struct wf_comm *comm)
{
    return wf_arena_printf(arena, "%s, mesh %s, %s", job->model->name,
                           wf_mesh_print(arena, &job->mesh), wf_comm_name(comm));
}
