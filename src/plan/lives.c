/*
 * From which step to which each buffer is needed, and where it lies in the arena.
 *
 * L1 A buffer lives from the first step that touches it to the last, messages and sums until they end.
 * L2 Inputs live from the first step on, and what is read behind a run to the end: outputs, fixed results.
 * L3 What several parts of the list touch, or what travels between them, has a slot for each micro-batch that is under
 *    way, and lives for the whole list: parts of other micro-batches run in between.
 */
#include "base/memory.h"
#include "plan/planner.h"

enum { SMALL_OUTPUT = 4096 }; /* bytes */

static void touch(struct wf_plan *plan, int buffer, int step)
{
    if (buffer < 0)
        return;
    struct wf_plan_buffer *b = &plan->buffers[buffer];
    if (b->first < 0 || step < b->first)
        b->first = step;
    if (step > b->last)
        b->last = step;
}

static void touch_messages(struct wf_plan *plan, const struct wf_exchange *x, int step)
{
    for (int i = 0; i < x->n_messages; i++) {
        touch(plan, x->messages[i].slot.buffer, step);
        touch(plan, x->messages[i].staging, step);
    }
}

static void touch_sum(struct wf_plan *plan, const struct wf_sum *sum, int step)
{
    touch(plan, sum->slot.buffer, step);
    for (int i = 0; i < sum->n_parts; i++)
        touch(plan, sum->parts[i], step);
}

static void find_lives(struct wf_plan *plan)
{
    for (int s = 0; s < plan->n_steps; s++) {
        const struct wf_step *step = &plan->steps[s];
        for (int k = 0; k < step->n_in; k++)
            touch(plan, step->in[k].buffer, s);
        for (int o = 0; o < step->n_out; o++)
            touch(plan, step->out[o].buffer, s);
        touch(plan, step->scratch, s);
        if (step->kind == WF_STEP_FETCH_BEGIN || step->kind == WF_STEP_FETCH_END)
            touch_messages(plan, &plan->exchanges[step->which], s);
        if (step->kind == WF_STEP_SUM_BEGIN || step->kind == WF_STEP_SUM_END)
            touch_sum(plan, &plan->sums[step->which], s);
    }
}

/* Where each part of the list lies. */
static void find_parts(struct wf_plan *plan)
{
    const int fixed = plan->global->program->n_fixed;
    for (int s = 0; s < plan->n_steps && s == plan->n_fixed; s++)
        plan->n_fixed += plan->steps[s].item >= 0 && plan->steps[s].item < fixed;
    plan->n_parts = 2 * plan->global->stages.n_segments;
    plan->parts = wf_arena_array(&plan->arena, plan->n_parts, struct wf_plan_part);
    for (int i = 0, s = 0; i < plan->n_parts; i++) {
        plan->parts[i].first = s;
        while (s < plan->n_steps && plan->steps[s].part == i)
            s++;
        plan->parts[i].end = s;
    }
    WF_BUG_ON(plan->parts[plan->n_parts - 1].end != plan->n_steps,
              "steps of rank %d are not in order", plan->rank);
    if (fixed > 0)
        plan->parts[wf_part_work(0)].first = plan->n_fixed;
}

/* --- slots --- */

/* Per buffer and part: whether it is touched there. */
struct touched {
    struct wf_plan *plan;
    bool *at;
};

static void note_touch(const struct touched *t, int buffer, int part)
{
    if (buffer >= 0)
        t->at[buffer * t->plan->n_parts + part] = true;
}

static void note_step(const struct touched *t, const struct wf_step *step)
{
    for (int k = 0; k < step->n_in; k++)
        note_touch(t, step->in[k].buffer, step->part);
    for (int o = 0; o < step->n_out; o++)
        note_touch(t, step->out[o].buffer, step->part);
    if (step->kind == WF_STEP_FETCH_BEGIN) {
        const struct wf_exchange *const x = &t->plan->exchanges[step->which];
        for (int i = 0; i < x->n_messages; i++) {
            note_touch(t, x->messages[i].slot.buffer, step->part);
            note_touch(t, x->messages[i].staging, step->part);
        }
    }
}

/* L3. */
static void give_slots(struct wf_plan *plan)
{
    const struct wf_global_plan *const global = plan->global;
    const int micro = wf_pipe_micro_batches(&global->options.pipe);
    struct wf_arena scratch = { 0 };
    int at[WF_MESH_AXES];
    wf_mesh_coords(&global->mesh, plan->rank, at);
    plan->turns =
        wf_turns_of(&plan->arena, &global->stages, &global->options.pipe, at[WF_MESH_PIPE], micro);
    if (global->stages.n_segments == 1)
        return;
    const struct touched t = { plan, wf_arena_array(&scratch, plan->n_buffers * plan->n_parts + 1,
                                                    bool) };
    for (int s = 0; s < plan->n_steps; s++)
        note_step(&t, &plan->steps[s]);
    for (int b = 0; b < plan->n_buffers; b++) {
        struct wf_plan_buffer *const buffer = &plan->buffers[b];
        const bool *const used = t.at + (size_t)b * (size_t)plan->n_parts;
        int parts = 0;
        bool travels = false;
        for (int i = 0; i < plan->n_parts; i++) {
            parts += used[i];
            travels = travels || (used[i] && i == wf_part_transfers(i / 2));
        }
        if (buffer->store != WF_STORE_ARENA || buffer->first < 0 || (parts < 2 && !travels))
            continue;
        buffer->slots = wf_turns_slots(&plan->turns, used, micro);
        buffer->slot_bytes = wf_memory_round_up(buffer->bytes);
        buffer->bytes = (size_t)buffer->slots * buffer->slot_bytes;
        touch(plan, b, 0);
        touch(plan, b, plan->n_steps);
    }
    wf_arena_release(&scratch);
}

/* L2. */
static void keep_values(const struct wf_planner *p)
{
    for (size_t v = 0; v < p->geo->graph->n_values; v++) {
        if (p->geo->graph->values[v]->kind != WF_TEMP)
            touch(p->plan, p->plan->values[v].buffer, 0);
        touch(p->plan, p->plan->values[v].buffer, p->plan->n_steps);
    }
    for (int item = 0; item < p->program->n_fixed; item++)
        for (int o = 0; o < p->program->items[item].node->n_out; o++)
            touch(p->plan, p->slot[p->program->items[item].out[o]].buffer, p->plan->n_steps);
}

/* An input may come while the step before it still reads its own: it lies beside it until then. */
static void reserve_ahead(struct wf_planner *p)
{
    struct wf_plan *const plan = p->plan;
    const bool wanted = p->options->ahead && !wf_device_is_host(p->device) &&
                        wf_pipe_micro_batches(&p->options->pipe) == 1 &&
                        p->plan->global->stages.n_segments == 1;
    for (size_t v = 0; v < p->geo->graph->n_values; v++) {
        plan->ahead[v] = plan->values[v];
        plan->ahead[v].buffer = -1;
        if (!wanted || p->geo->graph->values[v]->kind != WF_INPUT || plan->values[v].buffer < 0)
            continue;
        struct wf_slot *const slot = &plan->ahead[v];
        slot->offset = 0;
        slot->view = wf_view_dense(NULL, slot->view.dtype, slot->view.box);
        slot->buffer = wf_planner_add_buffer(p, WF_STORE_ARENA, wf_view_bytes(&slot->view),
                                             p->geo->graph->values[v]->name);
        touch(plan, slot->buffer, 0);
        touch(plan, slot->buffer, plan->n_steps);
    }
}

/* Inputs of all micro-batches are there before the first of them runs, and outputs after the last. */
static void reserve_queue(struct wf_planner *p)
{
    struct wf_plan *const plan = p->plan;
    const int micro = wf_pipe_micro_batches(&p->options->pipe);
    const bool wanted = micro > 1 || plan->global->stages.n_segments > 1;
    for (size_t v = 0; v < p->geo->graph->n_values; v++) {
        struct wf_slot *const slot = &plan->queue[v];
        *slot = plan->values[v];
        slot->buffer = -1;
        const int buffer = plan->values[v].buffer;
        if (!wanted || buffer < 0 || plan->buffers[buffer].store != WF_STORE_ARENA ||
            (p->geo->graph->values[v]->kind == WF_TEMP && !p->options->pipe.keeps_outputs &&
             wf_view_bytes(&slot->view) > SMALL_OUTPUT))
            continue;
        slot->offset = 0;
        slot->view = wf_view_dense(NULL, slot->view.dtype, slot->view.box);
        const size_t bytes = wf_memory_round_up(wf_view_bytes(&slot->view));
        slot->buffer = wf_planner_add_buffer(p, WF_STORE_ARENA, (size_t)micro * bytes,
                                             p->geo->graph->values[v]->name);
        plan->buffers[slot->buffer].slots = micro;
        plan->buffers[slot->buffer].slot_bytes = bytes;
        touch(plan, slot->buffer, 0);
        touch(plan, slot->buffer, plan->n_steps);
    }
}

void wf_planner_live(struct wf_planner *p)
{
    find_parts(p->plan);
    find_lives(p->plan);
    keep_values(p);
    reserve_ahead(p);
    give_slots(p->plan);
    reserve_queue(p);
}

/* --- the arena --- */

/* Buffers of the arena that some step touches: their bytes and lives. */
struct lives {
    int n;
    int *which, *first, *last;
    size_t *bytes;
};

static struct lives gather_lives(struct wf_arena *arena, const struct wf_plan *plan)
{
    struct lives l = { .which = wf_arena_array(arena, plan->n_buffers + 1, int),
                       .first = wf_arena_array(arena, plan->n_buffers + 1, int),
                       .last = wf_arena_array(arena, plan->n_buffers + 1, int),
                       .bytes = wf_arena_array(arena, plan->n_buffers + 1, size_t) };
    for (int i = 0; i < plan->n_buffers; i++) {
        const struct wf_plan_buffer *b = &plan->buffers[i];
        if (b->store != WF_STORE_ARENA || b->first < 0)
            continue;
        l.bytes[l.n] = b->bytes;
        l.first[l.n] = b->first;
        l.last[l.n] = b->last;
        l.which[l.n++] = i;
    }
    return l;
}

/* Offsets, and behind them the arena's bytes; from the plan cache where a rank had the same lives. */
static const size_t *pack_lives(struct wf_arena *arena, struct wf_plan_cache *cache,
                                const struct lives *l, bool branches)
{
    const size_t n = (size_t)l->n;
    if (cache) {
        wf_plan_cache_begin(cache);
        wf_plan_cache_add(cache, l->bytes, n * sizeof *l->bytes);
        wf_plan_cache_add(cache, l->first, n * sizeof *l->first);
        wf_plan_cache_add(cache, l->last, n * sizeof *l->last);
        const size_t *const known = wf_plan_cache_find(cache);
        if (known)
            return known;
    }
    size_t *const offset = cache ? wf_plan_cache_put(cache, (n + 1) * sizeof *offset)
                                 : wf_arena_array(arena, n + 1, size_t);
    offset[n] = wf_memory_pack(l->n, l->bytes, l->first, l->last, offset);
    if (branches)
        wf_memory_spread(l->n, l->bytes, l->first, l->last, offset[n], offset);
    return offset;
}

void wf_plan_pack(struct wf_plan *plan, struct wf_plan_cache *cache)
{
    struct wf_arena scratch = { 0 };
    const struct lives l = gather_lives(&scratch, plan);
    const size_t *const offset = pack_lives(&scratch, cache, &l, wf_plan_branches(plan));
    plan->arena_bytes = offset[l.n];
    plan->live_bytes = wf_memory_live(l.n, l.bytes, l.first, l.last, plan->n_steps, NULL);
    plan->store_bytes[WF_STORE_ARENA] = plan->arena_bytes;
    for (int i = 0; i < l.n; i++)
        plan->buffers[l.which[i]].offset = offset[i];
    wf_arena_release(&scratch);
}
