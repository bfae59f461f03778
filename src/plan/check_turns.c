/* I7 and I8 of plan/plan.h: what several micro-batches need beside each other, and in which order. */
#include "plan/check.h"

static bool is_work(int part)
{
    return part == wf_part_work(part / 2);
}

static bool is_empty(const struct wf_plan *p, int part)
{
    return p->parts[part].first == p->parts[part].end;
}

/* Per part and micro-batch: where it has its turn; -1: never; -2: more than once. */
struct lookup {
    const struct wf_plan *p;
    int micro;
    int *at;
};

static int turn_of(const struct lookup *l, int part, int micro)
{
    return l->at[(size_t)part * (size_t)l->micro + (size_t)micro];
}

/* --- I7 --- */

static bool step_touches(const struct wf_plan *p, const struct wf_step *step, int buffer)
{
    bool found = false;
    for (int k = 0; k < step->n_in; k++)
        found = found || step->in[k].buffer == buffer;
    for (int o = 0; o < step->n_out; o++)
        found = found || step->out[o].buffer == buffer;
    const bool travels = step->kind == WF_STEP_FETCH_BEGIN || step->kind == WF_STEP_FETCH_END;
    for (int i = 0; travels && i < p->exchanges[step->which].n_messages; i++)
        found = found || p->exchanges[step->which].messages[i].slot.buffer == buffer ||
                p->exchanges[step->which].messages[i].staging == buffer;
    return found;
}

/* The turns in which a micro-batch needs the buffer; first > last: none. */
struct span {
    int first, last, parts;
};

static struct span span_of(const struct lookup *l, const bool used[], int micro)
{
    struct span s = { .first = l->p->turns.n, .last = -1 };
    for (int part = 0; part < l->p->n_parts; part++) {
        const int at = used[part] && !is_empty(l->p, part) ? turn_of(l, part, micro) : -1;
        if (at < 0)
            continue;
        s.first = at < s.first ? at : s.first;
        s.last = at > s.last ? at : s.last;
        s.parts++;
    }
    return s;
}

/* Two micro-batches with the same slot do not need it at the same time. */
static bool slots_suffice(const struct lookup *l, int buffer, const bool used[])
{
    const struct wf_plan *const p = l->p;
    const struct wf_plan_buffer *const b = &p->buffers[buffer];
    const int micro = wf_pipe_micro_batches(&p->global->options.pipe);
    const int slots = b->slots > 0 ? b->slots : 1;
    for (int m = 0; m < micro; m++) { /* they begin one after the other */
        const struct span one = span_of(l, used, m);
        if (b->slots == 0 && one.parts > 1)
            return false; /* it lies where other parts have what they need */
        if (one.last >= 0 && ((m + 1 < micro && span_of(l, used, m + 1).first < one.first) ||
                              (m + slots < micro && span_of(l, used, m + slots).first <= one.last)))
            return false;
    }
    return b->slots == 0 || b->bytes >= (size_t)b->slots * b->slot_bytes;
}

static bool check_slots(const struct lookup *l, struct wf_err *err)
{
    const struct wf_plan *const p = l->p;
    struct wf_arena arena = { 0 };
    bool *const used = wf_arena_array(&arena, p->n_parts, bool);
    bool ok = true;
    for (int b = 0; ok && b < p->n_buffers; b++) {
        if (p->buffers[b].store != WF_STORE_ARENA)
            continue;
        for (int i = 0; i < p->n_parts; i++) {
            used[i] = false;
            for (int s = p->parts[i].first; s < p->parts[i].end; s++)
                used[i] = used[i] || step_touches(p, &p->steps[s], b);
        }
        if (!slots_suffice(l, b, used))
            ok = wf_check_broken(err, 7, "micro-batches would share memory", p->buffers[b].name, 0);
    }
    wf_arena_release(&arena);
    return ok;
}

/* --- I8 --- */

/* What the part sends was made before. */
static bool sends_what_is_made(const struct lookup *l, int part, int micro)
{
    const struct wf_plan *const p = l->p;
    const struct wf_program *const program = p->global->program;
    for (int s = p->parts[part].first; s < p->parts[part].end; s++) {
        const struct wf_step *const step = &p->steps[s];
        if (step->kind != WF_STEP_FETCH_BEGIN)
            continue;
        const struct wf_exchange *const x = &p->exchanges[step->which];
        const int maker = program->instances[x->instance].maker;
        const int made = maker < 0 ? -1 : wf_part_work(program->items[maker].segment);
        for (int i = 0; made >= 0 && i < x->n_messages; i++)
            if (x->messages[i].is_send && turn_of(l, made, micro) > turn_of(l, part, micro))
                return false;
    }
    return true;
}

static bool check_order(const struct lookup *l, int micro, struct wf_err *err)
{
    const struct wf_plan *const p = l->p;
    int before = -1;
    for (int part = 0; part < p->n_parts; part++) {
        if (is_empty(p, part))
            continue;
        const int at = turn_of(l, part, micro);
        if (at < 0)
            return wf_check_broken(err, 8, "a part has not one turn", NULL, p->parts[part].first);
        if (is_work(part) && at < before)
            return wf_check_broken(err, 8, "a part has its turn too early", NULL,
                                   p->parts[part].first);
        if (is_work(part))
            before = at;
        const int work = wf_part_work(part / 2);
        if (!is_work(part) && ((!is_empty(p, work) && turn_of(l, work, micro) < at) ||
                               !sends_what_is_made(l, part, micro)))
            return wf_check_broken(err, 8, "what travels has its turn too early or too late", NULL,
                                   p->parts[part].first);
    }
    return true;
}

bool wf_check_turns(const struct wf_plan *p, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const int micro = wf_pipe_micro_batches(&p->global->options.pipe);
    struct lookup l = { .p = p, .micro = micro };
    bool ok = true;
    if (p->n_parts == 2)
        return true;
    l.at = wf_arena_array(&arena, (size_t)p->n_parts * (size_t)micro, int);
    for (size_t i = 0; i < (size_t)p->n_parts * (size_t)micro; i++)
        l.at[i] = -1;
    for (int i = 0; i < p->turns.n; i++) {
        const struct wf_turn *const t = &p->turns.at[i];
        if (t->micro >= micro)
            continue;
        int *const at = &l.at[(size_t)t->part * (size_t)micro + (size_t)t->micro];
        *at = *at == -1 ? i : -2;
    }
    for (int m = 0; ok && m < micro; m++)
        ok = check_order(&l, m, err);
    ok = ok && check_slots(&l, err);
    wf_arena_release(&arena);
    return ok;
}
