/*
 * The turns of a step: each runs a part of the plan's list for one micro-batch, on that one's slots.
 *
 * Inputs of a micro-batch come from the queue just before the first part that reads them, and outputs go
 * there behind the last one that touches them. What one stage sends another is not waited for until the
 * part that made it runs again. A part is recorded (on a device that can) once for each set of slots.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/stop.h"
#include "comm/watch.h"
#include "exec/waits.h"

/* --- making --- */

static bool is_work(int part)
{
    return part == wf_part_work(part / 2);
}

static int by_first(const void *a, const void *b)
{
    const struct wf_gradients *const x = a, *const y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Of a buffer of the gradients' store: its elements, wherever another run has them. */
static struct wf_gradients gradients_in(const struct wf_run *run, int buffer)
{
    const struct wf_plan_buffer *const b = &run->plan->buffers[buffer];
    const struct wf_slot slot = { .buffer = buffer };
    const char *const at = wf_run_resolve(run, &slot).data;
    return (struct wf_gradients){ .first = (size_t)(at - run->store[WF_STORE_GRAD]) / sizeof(float),
                                  .count = b->bytes / sizeof(float) };
}

/* Neighbours, but for what rounds a weight up to its boundary, become one. */
static void join(struct wf_run_part *p)
{
    int n = 0;
    qsort(p->gradients, (size_t)p->n_gradients, sizeof *p->gradients, by_first);
    for (int i = 0; i < p->n_gradients; i++) {
        struct wf_gradients *const last = n > 0 ? &p->gradients[n - 1] : NULL;
        const struct wf_gradients *const g = &p->gradients[i];
        const size_t end = last ? last->first + last->count : 0;
        if (last && last->is_summed == g->is_summed && g->first <= (end + 15) / 16 * 16)
            last->count = (end > g->first + g->count ? end : g->first + g->count) - last->first;
        else
            p->gradients[n++] = *g;
    }
    p->n_gradients = n;
}

static void find_gradients(struct wf_run *run, int part, const bool summed[])
{
    const struct wf_plan *const plan = run->plan;
    struct wf_run_part *const p = &run->parts[part];
    bool *const seen = wf_arena_array(&run->plan_arena, plan->n_buffers + 1, bool);
    p->gradients = wf_arena_array(&run->plan_arena, plan->n_buffers + 1, struct wf_gradients);
    for (int s = plan->parts[part].first; s < plan->parts[part].end; s++)
        for (int o = 0; o < plan->steps[s].n_out; o++) {
            const int b = plan->steps[s].out[o].buffer;
            if (b < 0 || seen[b] || plan->buffers[b].store != WF_STORE_GRAD)
                continue;
            seen[b] = true;
            p->gradients[p->n_gradients] = gradients_in(run, b);
            p->gradients[p->n_gradients++].is_summed = summed[b];
        }
    join(p);
}

/* Buffers whose gradients are summed in a bucket. */
static bool *find_summed(struct wf_run *run)
{
    const struct wf_plan *const plan = run->plan;
    bool *const summed = wf_arena_array(&run->plan_arena, plan->n_buffers + 1, bool);
    for (int i = 0; i < plan->n_sums; i++) {
        const struct wf_sum *const sum = &plan->sums[i];
        const bool in_bucket = plan->global->program->instances[sum->instance].bucket >= 0;
        summed[sum->slot.buffer] = in_bucket;
        for (int k = 0; k < sum->n_parts; k++)
            summed[sum->parts[k]] = in_bucket;
    }
    return summed;
}

/* Per buffer: whether the part's steps read or write it. */
static void find_touched(struct wf_run *run, int part)
{
    const struct wf_plan *const plan = run->plan;
    bool *const touches = run->parts[part].touches =
        wf_arena_array(&run->plan_arena, plan->n_buffers + 1, bool);
    for (int s = plan->parts[part].first; s < plan->parts[part].end; s++) {
        const struct wf_step *const step = &plan->steps[s];
        for (int k = 0; k < step->n_in; k++)
            if (step->in[k].buffer >= 0)
                touches[step->in[k].buffer] = true;
        for (int o = 0; o < step->n_out; o++)
            if (step->out[o].buffer >= 0)
                touches[step->out[o].buffer] = true;
        if (run->calls[s].rows) /* all that work on rows look at how many there are */
            touches[plan->values[plan->global->graph->rows->id].buffer] = true;
        const bool travels = step->kind == WF_STEP_FETCH_BEGIN;
        for (int i = 0; travels && i < plan->exchanges[step->which].n_messages; i++)
            touches[plan->exchanges[step->which].messages[i].slot.buffer] = true;
    }
}

/* The first or last part, in the order of a micro-batch's turns, whose work touches a buffer; -1: none. */
static int find_toucher(const struct wf_run *run, int buffer, bool last)
{
    const struct wf_plan *const plan = run->plan;
    int found = -1;
    for (int i = 0; i < plan->turns.n && (last || found < 0); i++) {
        const struct wf_turn *const t = &plan->turns.at[i];
        if (t->micro == 0 && is_work(t->part) && run->parts[t->part].touches[buffer])
            found = t->part;
    }
    return found;
}

static void find_queued(struct wf_run *run)
{
    const struct wf_plan *const plan = run->plan;
    const struct wf_graph *const g = plan->global->graph;
    for (int i = 0; i < plan->n_parts; i++) {
        run->parts[i].loads = wf_arena_array(&run->plan_arena, g->n_values, int);
        run->parts[i].saves = wf_arena_array(&run->plan_arena, g->n_values, int);
    }
    for (size_t v = 0; v < g->n_values; v++) {
        if (plan->queue[v].buffer < 0)
            continue;
        const bool is_input = g->values[v]->kind == WF_INPUT;
        const int part = find_toucher(run, plan->values[v].buffer, !is_input);
        struct wf_run_part *const p = part < 0 ? NULL : &run->parts[part];
        if (p && is_input)
            p->loads[p->n_loads++] = (int)v;
        else if (p)
            p->saves[p->n_saves++] = (int)v;
    }
}

static int least_multiple(int a, int b)
{
    int x = a, y = b;
    while (y != 0) {
        const int rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static int slots_of(const struct wf_plan *plan, int buffer)
{
    return buffer >= 0 && plan->buffers[buffer].slots > 1 ? plan->buffers[buffer].slots : 1;
}

static void find_recordable(struct wf_run *run, int part)
{
    const struct wf_plan *const plan = run->plan;
    struct wf_run_part *const p = &run->parts[part];
    const bool travels = !run->transport || !wf_transport_records(run->transport);
    p->period = 1;
    p->may_record = run->device->stream.record && is_work(part);
    for (int s = plan->parts[part].first; s < plan->parts[part].end; s++) {
        const struct wf_step *const step = &plan->steps[s];
        p->may_record = p->may_record && (wf_step_computes(step) || !travels);
        for (int k = 0; k < step->n_in; k++)
            p->period = least_multiple(p->period, slots_of(plan, step->in[k].buffer));
        for (int o = 0; o < step->n_out; o++)
            p->period = least_multiple(p->period, slots_of(plan, step->out[o].buffer));
    }
    p->recordings = wf_arena_array(&run->plan_arena, 3 * p->period, void *);
}

void wf_run_make_parts(struct wf_run *run)
{
    const struct wf_plan *const plan = run->plan;
    const bool *const summed = find_summed(run);
    run->parts = wf_arena_array(&run->plan_arena, plan->n_parts, struct wf_run_part);
    for (int i = 0; i < plan->n_parts; i++) {
        find_touched(run, i);
        find_gradients(run, i, summed);
        find_recordable(run, i);
    }
    find_queued(run);
}

void wf_run_forget(struct wf_run *run)
{
    for (int i = 0; run->parts && i < run->plan->n_parts; i++) {
        struct wf_run_part *const p = &run->parts[i];
        for (int k = 0; k < 3 * p->period; k++) {
            if (p->recordings[k])
                run->device->stream.forget(run->context, p->recordings[k]);
            p->recordings[k] = NULL;
        }
        p->passes = 0;
    }
}

/* --- gradients of several micro-batches --- */

static struct wf_view flat(float *data, size_t count)
{
    return wf_view_dense(data, WF_F32, wf_shape_region(WF_SHAPE(1, 1, 1, 1, (int64_t)count)));
}

void wf_run_add_carry(struct wf_run *run, void *gradients, size_t count)
{
    if (!run->carry.sum || run->micro == 0)
        return;
    float *const grads = (float *)(void *)run->store[WF_STORE_GRAD];
    const struct wf_view to = flat(gradients, count);
    const struct wf_view from = flat(run->carry.sum + ((float *)gradients - grads), count);
    run->device->memory.add(run->context, &to, &from);
}

/* Behind a part: its gradients join those before them, or the other way round where it is the last. */
static void carry(struct wf_run *run, const struct wf_run_part *p)
{
    float *const grads = (float *)(void *)run->store[WF_STORE_GRAD];
    for (int i = 0; run->carry.sum && i < p->n_gradients; i++) {
        const struct wf_gradients *const g = &p->gradients[i];
        const struct wf_view made = flat(grads + g->first, g->count);
        const struct wf_view sum = flat(run->carry.sum + g->first, g->count);
        if (!run->holds_back) {
            if (!g->is_summed || run->keeps_parts) /* otherwise it was done in front of the sum */
                wf_run_add_carry(run, made.data, g->count);
        } else {
            (run->micro > 0 ? run->device->memory.add : run->device->memory.copy)(run->context,
                                                                                  &sum, &made);
        }
    }
}

/* At the end of a run's part of a step: its total, and that of another run. */
static void pass_on(struct wf_run *run)
{
    float *const grads = (float *)(void *)run->store[WF_STORE_GRAD];
    for (int i = 0; run->carry.sum && i < run->plan->n_parts; i++)
        for (int k = 0; k < run->parts[i].n_gradients; k++) {
            const struct wf_gradients *const g = &run->parts[i].gradients[k];
            const struct wf_view total = flat(grads + g->first, g->count);
            const struct wf_view sum = flat(run->carry.sum + g->first, g->count);
            if (run->carry.has_begun)
                run->device->memory.add(run->context, &total, &sum);
            if (run->carry.goes_on)
                run->device->memory.copy(run->context, &sum, &total);
        }
}

/* Where parts of gradients are kept: what another rank counts, too. */
static void clear_copies(struct wf_run *run)
{
    size_t at = 0;
    char *const grads = run->store[WF_STORE_GRAD];
    for (int i = 0; i < run->n_counted; i++) {
        if (run->counted[i].first > at)
            memset(grads + at, 0, run->counted[i].first - at);
        at = run->counted[i].first + run->counted[i].bytes;
    }
    if (at < run->plan->store_bytes[WF_STORE_GRAD])
        memset(grads + at, 0, run->plan->store_bytes[WF_STORE_GRAD] - at);
}

/* --- a turn --- */

/* The steps of the part, by a recording where there is one. The first pass loads what kernels need, so a
 * recording is made in the second one. */
static bool run_part(struct wf_run *run, int part, struct wf_err *err)
{
    struct wf_run_part *const p = &run->parts[part];
    const struct wf_plan_part *const steps = &run->plan->parts[part];
    if (run->device->stream.start)
        run->device->stream.start(run->context, run->step);
    /* Without sums of gradients; with them, alone; and with those that are carried to them. */
    const int kind = run->holds_back ? 0 : run->micro == 0 ? 1 : 2;
    void **const recording = &p->recordings[kind + 3 * (run->micro % p->period)];
    const bool records = p->may_record && !p->is_plain && !run->profiled && p->passes > 0;
    if (records && !*recording && run->device->stream.record(run->context)) {
        struct wf_err own = { 0 };
        struct wf_arena arena = { 0 };
        if (wf_plan_branches(run->plan))
            run->waits = wf_waits_find(run, part, &arena);
        const bool ok = wf_run_walk(run, steps->first, steps->end, &own);
        if (run->waits && ok) /* a walk that was stopped is not kept */
            run->device->stream.branch(run->context, steps->end - steps->first, run->waits->ends,
                                       run->waits->n_ends);
        run->waits = NULL;
        wf_arena_release(&arena);
        *recording = run->device->stream.recorded(run->context);
        if (!ok) {
            *err = own;
            wf_run_forget(run);
            return false;
        }
        p->is_plain = !*recording; /* not again: its steps go one by one */
    }
    p->passes++;
    if (records && *recording) {
        run->device->stream.replay(run->context, *recording);
        return true;
    }
    return wf_run_walk(run, steps->first, steps->end, err);
}

static void move_queued(struct wf_run *run, const int values[], int n, bool load)
{
    run->selected = run->micro;
    for (int i = 0; i < n; i++) {
        const struct wf_value *const v = run->plan->global->graph->values[values[i]];
        const struct wf_view queued = wf_run_view(run, v);
        const struct wf_view own = wf_run_resolve(run, &run->plan->values[v->id]);
        run->device->memory.copy(run->context, load ? &own : &queued, load ? &queued : &own);
    }
}

/* Whether the part touches memory that what is pending is sent from. */
static bool touches_pending(const struct wf_run *run, int part, int exchange)
{
    const struct wf_exchange *const x = &run->plan->exchanges[exchange];
    const int later = run->micro - run->pending_micro[exchange];
    for (int i = 0; later != 0 && i < x->n_messages; i++) {
        const int buffer = x->messages[i].slot.buffer;
        if (run->parts[part].touches[buffer] && later % slots_of(run->plan, buffer) == 0)
            return true;
    }
    return false;
}

/* Before the part's turn: what it sent the last time has been taken, so that its messages may be bound to
 * other slots, and whatever was sent from memory that it touches now. */
static bool end_pending_of(struct wf_run *run, int part, struct wf_err *err)
{
    const struct wf_plan *const plan = run->plan;
    const struct wf_plan_part *const steps = &plan->parts[part];
    bool ok = true;
    for (int s = steps->first; ok && s < steps->end; s++)
        ok = plan->steps[s].kind != WF_STEP_FETCH_BEGIN ||
             wf_run_end_pending(run, plan->steps[s].which, err);
    for (int x = 0; ok && x < plan->n_exchanges; x++)
        if (run->is_pending[x] && touches_pending(run, part, x))
            ok = wf_run_end_pending(run, x, err);
    return ok;
}

static bool take_turn(struct wf_run *run, const struct wf_turn *turn, struct wf_err *err)
{
    const struct wf_plan_part *const steps = &run->plan->parts[turn->part];
    struct wf_run_part *const p = &run->parts[turn->part];
    const int selected = run->selected;
    const bool is_last = turn->micro == run->count - 1;
    if (steps->first == steps->end)
        return true;
    run->micro = turn->micro;
    run->holds_back = run->carry.sum && !is_last;
    if (run->plan->n_parts > 2) {
        if (!end_pending_of(run, turn->part, err))
            return false;
        wf_run_bind(run, steps->first, steps->end);
    }
    move_queued(run, p->loads, p->n_loads, true);
    if (!run_part(run, turn->part, err))
        return false;
    move_queued(run, p->saves, p->n_saves, false);
    run->selected = selected;
    carry(run, p);
    return true;
}

/* What depends on weights alone: where the arena does not hold it yet, or any more. */
static bool run_fixed(struct wf_run *run, struct wf_err *err)
{
    const bool holds = run->owner->fixed_of == run && !run->profiled;
    run->owner->fixed_of = NULL;
    if (!holds && !wf_run_walk(run, 0, run->plan->n_fixed, err))
        return false;
    run->owner->fixed_of = run->plan->n_fixed > 0 ? run : NULL;
    return true;
}

/* The device's own times of the steps. */
static bool read_marks(struct wf_run *run, struct wf_err *err)
{
    const int n = run->plan->n_steps;
    run->device->stream.mark(run->context, n);
    if (!run->device->stream.marks(run->context, n + 1, run->step_seconds, err))
        return false;
    double at = 0;
    run->times = (struct wf_run_times){ 0 };
    for (int s = 0; s < n; s++) {
        const bool computes = wf_step_computes(&run->plan->steps[s]);
        run->step_starts[s] = at;
        at += run->step_seconds[s];
        *(computes ? &run->times.compute : &run->times.comm) += run->step_seconds[s];
    }
    return true;
}

bool wf_run_step(struct wf_run *run, struct wf_err *err)
{
    const uint64_t first = run->step;
    const struct wf_turns *const turns = &run->plan->turns;
    bool ok = true;
    if (wf_stop_asked(run->comm->stop, err)) {
        wf_comm_abort(run->comm, err); /* others have seen it later, or will not */
        return false;
    }
    WF_BUG_ON(run->count > 1 && (!run->carry.sum || run->carry.has_begun),
              "%d micro-batches without room for their sum", run->count);
    run->started = wf_now();
    run->times = (struct wf_run_times){ 0 };
    ok = run_fixed(run, err);
    for (int i = 0; ok && i < turns->n; i++) {
        const int micro = turns->at[i].micro;
        run->turn_starts[i] = wf_now() - run->started;
        run->turn_seconds[i] = 0;
        if (micro >= run->count)
            continue;
        run->step = first + (uint64_t)micro;
        ok = take_turn(run, &turns->at[i], err);
        run->turn_seconds[i] = wf_now() - run->started - run->turn_starts[i];
    }
    for (int x = 0; ok && x < run->plan->n_exchanges; x++)
        ok = wf_run_end_pending(run, x, err);
    if (!ok)
        return false;
    run->times.comm = wf_now() - run->started - run->times.compute;
    run->step = first + (uint64_t)run->count;
    wf_watch_at(run->comm->watch, (int64_t)run->step, NULL, -1); /* later waits are of no layer */
    if (run->keeps_parts)
        clear_copies(run);
    pass_on(run);
    return !run->profiled || read_marks(run, err);
}
