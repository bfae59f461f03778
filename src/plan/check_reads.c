/*
 * I1: each read is of an earlier write, element by element.
 *
 * For every buffer there is a list of the boxes that were written so far, in the buffer's own
 * coordinates; a read must be covered by them. So a message that neither rank knows of is seen as
 * well as one that only one of them knows of: its halo was never written. A result that is a rank's
 * part of a sum is marked until it was summed over exactly the group for which it is partial.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"
#include "plan/check.h"

enum {
    COMPLETE = -1,
    DEFERRED = -2, /* a rank's part that only an item which collects such may read */
};

struct written {
    struct wf_region *boxes;
    size_t count, room;
    int partial; /* the group over which it is still to be summed, or one of the below */
};

struct reading {
    const struct wf_plan *p;
    struct written *buffers;
    int *partial; /* per node: what its results are, as above */
    struct wf_region *left;
    size_t room_left;
};

/* --- coverage --- */

/* Takes what was written from the boxes that are left; true when nothing is. */
static bool is_covered(struct reading *r, const struct written *w, struct wf_region box)
{
    size_t n = 0;
    WF_GROW(r->left, r->room_left, n);
    r->left[n++] = box;
    for (size_t i = w->count; i-- > 0 && n > 0;) /* the newest covers most */
        for (size_t k = 0, before = n; k < before; k++) {
            struct wf_region rest[WF_SUBTRACT_MAX];
            if (wf_region_is_empty(wf_region_intersect(r->left[k], w->boxes[i])))
                continue;
            const int count = wf_region_subtract(r->left[k], w->boxes[i], rest);
            WF_GROW(r->left, r->room_left, n + WF_SUBTRACT_MAX);
            r->left[k] = count > 0 ? rest[0] : (struct wf_region){ 0 };
            for (int c = 1; c < count; c++)
                r->left[n++] = rest[c];
        }
    for (size_t k = 0; k < n; k++)
        if (!wf_region_is_empty(r->left[k]))
            return false;
    return true;
}

static void add_box(struct written *w, struct wf_region box)
{
    if (w->count > 0 && wf_region_contains(w->boxes[w->count - 1], box))
        return;
    WF_GROW(w->boxes, w->room, w->count);
    w->boxes[w->count++] = box;
}

/* What was there is gone. */
static void take_box(struct written *w, struct wf_region box)
{
    const size_t n = w->count;
    for (size_t i = 0; i < n; i++) {
        struct wf_region rest[WF_SUBTRACT_MAX];
        const int count = wf_region_subtract(w->boxes[i], box, rest);
        w->boxes[i] = count > 0 ? rest[0] : (struct wf_region){ 0 };
        for (int c = 1; c < count; c++) {
            WF_GROW(w->boxes, w->room, w->count);
            w->boxes[w->count++] = rest[c];
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++)
        if (!wf_region_is_empty(w->boxes[i]))
            w->boxes[kept++] = w->boxes[i];
    w->count = kept;
}

/* The part of a slot inside `box`, in the buffer's coordinates. */
static struct wf_region part_in_buffer(const struct wf_slot *slot, struct wf_region box)
{
    const struct wf_region all = wf_check_box(slot);
    const struct wf_region inside = wf_region_intersect(slot->view.box, box);
    struct wf_region part = all;
    for (int a = 0; a < WF_AXES; a++) {
        part.lo[a] = all.lo[a] + inside.lo[a] - slot->view.box.lo[a];
        part.hi[a] = all.lo[a] + inside.hi[a] - slot->view.box.lo[a];
    }
    return part;
}

/* A slot's bytes lie inside its buffer. */
static bool slot_fits(const struct wf_plan *p, const struct wf_slot *slot)
{
    if (slot->buffer < 0 || wf_region_is_empty(slot->view.box))
        return true;
    int64_t last = 0;
    for (int a = 0; a < WF_AXES; a++)
        last += (wf_region_extent(slot->view.box, (enum wf_axis)a) - 1) * slot->view.stride[a];
    const size_t end = slot->offset + ((size_t)last + 1) * wf_dtype_size(slot->view.dtype);
    return end <= p->buffers[slot->buffer].bytes;
}

/* --- steps --- */

/* Parts of a rank's part are added up before ranks sum them: so the whole is as partial as they are. */
static bool check_add(struct reading *r, int s, struct wf_err *err)
{
    const struct wf_step *const step = &r->p->steps[s];
    struct written *const to = &r->buffers[step->out[0].buffer];
    struct written *const from = &r->buffers[step->in[0].buffer];
    const bool collects = step->node && (step->node->op->flags & WF_OP_COLLECTS);
    if ((collects ? from->partial >= 0 : to->partial != from->partial) ||
        !wf_view_is_dense(&step->in[0].view) || !wf_view_is_dense(&step->out[0].view) ||
        !is_covered(r, from, wf_check_box(&step->in[0])) ||
        !is_covered(r, to, wf_check_box(&step->out[0])))
        return wf_check_broken(err, 1, "added to what is not written or not packed",
                               wf_check_name(r->p, step->out[0].buffer), s);
    from->partial = COMPLETE;
    return true;
}

static bool check_read(struct reading *r, const struct wf_slot *slot, struct wf_region box, int s,
                       struct wf_err *err)
{
    const int b = slot->buffer;
    if (!slot_fits(r->p, slot))
        return wf_check_broken(err, 2, "a read reaches past its buffer", wf_check_name(r->p, b), s);
    if (b < 0 || wf_region_is_empty(wf_region_intersect(slot->view.box, box)))
        return true;
    const struct wf_node *const n = r->p->steps[s].node;
    const bool collects = n && (n->op->flags & WF_OP_COLLECTS) && wf_step_computes(&r->p->steps[s]);
    if (r->buffers[b].partial != COMPLETE && !(collects && r->buffers[b].partial == DEFERRED))
        return wf_check_broken(err, 1, "read before it is summed", wf_check_name(r->p, b), s);
    return is_covered(r, &r->buffers[b], part_in_buffer(slot, box)) ||
           wf_check_broken(err, 1, "read before written", wf_check_name(r->p, b), s);
}

/* What a kernel reads of its slot k, an input of its own or of a fused one. */
static struct wf_region read_by(const struct wf_step *step, int k)
{
    if (k < step->node->n_in)
        return wf_op_reads(step->node, k, step->work);
    const struct wf_step_fused *f = step->fuses;
    while (k >= f->first + f->node->n_in)
        f++;
    return wf_op_reads(f->node, k - f->first, wf_op_reads(step->node, f->input, step->work));
}

static bool check_inputs(struct reading *r, int s, struct wf_err *err)
{
    const struct wf_step *const step = &r->p->steps[s];
    for (int k = 0; k < step->n_in; k++) {
        struct wf_region box = step->in[k].view.box;
        if (step->kind == WF_STEP_KERNEL && step->in[k].buffer >= 0 &&
            !wf_region_is_empty(step->work))
            box = read_by(step, k);
        if (!check_read(r, &step->in[k], box, s, err))
            return false;
    }
    return true;
}

/* Zeros for a sum over ranks. */
static bool collects_nothing(const struct wf_step *step)
{
    return (step->node->op->flags & WF_OP_COLLECTS) && wf_region_is_empty(step->work);
}

/* What a kernel writes of a result: the work along axes that both have, all of the others. */
static struct wf_region written_by(const struct wf_step *step, int o)
{
    struct wf_region box = step->out[o].view.box;
    if (step->kind != WF_STEP_KERNEL || wf_op_sums_over(step->node) || collects_nothing(step))
        return box;
    for (int a = 0; a < WF_AXES; a++)
        if (step->node->out[o]->shape.at[a] == step->node->out[0]->shape.at[a]) {
            box.lo[a] = wf_max(box.lo[a], step->work.lo[a]);
            box.hi[a] = wf_min(box.hi[a], step->work.hi[a]);
        }
    return box;
}

/* A result in the place of an input. */
static bool takes_place(const struct wf_step *step, int o)
{
    for (int k = 0; k < step->n_in; k++)
        if (step->kind == WF_STEP_KERNEL && step->in[k].buffer == step->out[o].buffer &&
            step->in[k].offset == step->out[o].offset)
            return true;
    return false;
}

static bool note_outputs(struct reading *r, int s, struct wf_err *err)
{
    const struct wf_step *const step = &r->p->steps[s];
    for (int o = 0; o < step->n_out; o++) {
        const struct wf_slot *const slot = &step->out[o];
        if (!slot_fits(r->p, slot))
            return wf_check_broken(err, 2, "a write reaches past its buffer",
                                   wf_check_name(r->p, slot->buffer), s);
        if (slot->buffer < 0)
            continue;
        struct written *const w = &r->buffers[slot->buffer];
        const struct wf_region box = written_by(step, o);
        if (!wf_region_is_empty(box)) {
            const struct wf_region part = part_in_buffer(slot, box);
            if (takes_place(step, o))
                take_box(w, part);
            add_box(w, part);
        }
        if (step->kind == WF_STEP_KERNEL ||
            (step->node && (step->node->op->flags & WF_OP_COLLECTS)))
            w->partial = r->partial[step->node->id];
    }
    return true;
}

/* What is sent was written, what was received is; and both lie where they may. */
static bool check_messages(struct reading *r, int s, struct wf_err *err)
{
    const struct wf_plan *const p = r->p;
    const struct wf_exchange *const x = &p->exchanges[p->steps[s].which];
    for (int i = 0; i < x->n_messages; i++) {
        const struct wf_plan_message *const m = &x->messages[i];
        const char *const name = wf_check_name(p, m->slot.buffer);
        if (m->slot.buffer < 0 || !slot_fits(p, &m->slot) ||
            m->bytes != wf_view_bytes(&m->slot.view) ||
            (m->staging >= 0 && p->buffers[m->staging].bytes < m->bytes) ||
            (m->staging < 0 && !wf_view_is_dense(&m->slot.view)))
            return wf_check_broken(err, 2, "a message does not fit its buffer", name, s);
        if (m->is_send && !check_read(r, &m->slot, m->slot.view.box, s, err))
            return false;
        if (!m->is_send && p->steps[s].kind == WF_STEP_FETCH_END)
            add_box(&r->buffers[m->slot.buffer], wf_check_box(&m->slot));
    }
    return true;
}

/* --- sums --- */

/* Of a bucket: all that it covers. */
static bool is_sum_written(struct reading *r, const struct wf_sum *sum)
{
    const struct wf_plan *const p = r->p;
    const struct wf_plan_buffer *const all = &p->buffers[sum->slot.buffer];
    bool ok =
        sum->n_parts > 0 || is_covered(r, &r->buffers[sum->slot.buffer], wf_check_box(&sum->slot));
    for (int i = 0; i < sum->n_parts; i++) {
        const struct wf_plan_buffer *const b = &p->buffers[sum->parts[i]];
        ok = ok && r->buffers[sum->parts[i]].count > 0 && b->store == all->store &&
             b->offset >= all->offset && b->offset + b->bytes <= all->offset + all->bytes;
    }
    return ok;
}

static bool check_sum(struct reading *r, int s, struct wf_err *err)
{
    const struct wf_sum *const sum = &r->p->sums[r->p->steps[s].which];
    const char *const name = wf_check_name(r->p, sum->slot.buffer);
    if (r->p->steps[s].kind == WF_STEP_SUM_BEGIN) {
        if (!slot_fits(r->p, &sum->slot) || !wf_view_is_dense(&sum->slot.view) ||
            sum->count != (size_t)wf_region_count(sum->slot.view.box) || !is_sum_written(r, sum))
            return wf_check_broken(err, 1, "a sum of what is not written or not packed", name, s);
        return true;
    }
    for (int i = sum->n_parts ? 0 : -1; i < sum->n_parts; i++) {
        struct written *const w = &r->buffers[i < 0 ? sum->slot.buffer : sum->parts[i]];
        if (w->partial != sum->group)
            return wf_check_broken(err, 1, "summed with other ranks than have a part", name, s);
        w->partial = COMPLETE;
    }
    return true;
}

static bool check_step(struct reading *r, int s, struct wf_err *err)
{
    const enum wf_step_kind kind = r->p->steps[s].kind;
    if (kind == WF_STEP_ADD)
        return check_add(r, s, err);
    if (!check_inputs(r, s, err) || !note_outputs(r, s, err))
        return false;
    if (kind == WF_STEP_FETCH_BEGIN || kind == WF_STEP_FETCH_END)
        return check_messages(r, s, err);
    return (kind != WF_STEP_SUM_BEGIN && kind != WF_STEP_SUM_END) || check_sum(r, s, err);
}

/* Another strip: it reads nothing of what was made for the one before only. */
static void forget_strip(struct reading *r, int s)
{
    if (s == 0 || r->p->steps[s].strip == r->p->steps[s - 1].strip)
        return;
    for (int b = 0; b < r->p->n_buffers; b++)
        if (r->p->buffers[b].strip_local)
            r->buffers[b].count = 0;
}

bool wf_check_reads(const struct wf_plan *p, struct wf_err *err)
{
    const struct wf_graph *const g = p->global->graph;
    const struct wf_program *const program = p->global->program;
    struct wf_arena arena = { 0 };
    struct reading r = { .p = p,
                         .buffers = wf_arena_array(&arena, p->n_buffers + 1, struct written),
                         .partial = wf_arena_array(&arena, g->n_nodes + 1, int) };
    for (int i = 0; i < program->n_items; i++)
        r.partial[program->items[i].node->id] =
            p->global->geometry.is_deferred[i]
                ? DEFERRED
                : wf_geometry_group(&p->global->geometry, p->rank, i);
    for (int b = 0; b < p->n_buffers; b++)
        r.buffers[b].partial = COMPLETE;
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v]->kind != WF_TEMP && p->values[v].buffer >= 0)
            add_box(&r.buffers[p->values[v].buffer], wf_check_box(&p->values[v]));
    bool ok = true;
    for (int s = 0; ok && s < p->n_steps; s++) {
        forget_strip(&r, s);
        ok = check_step(&r, s, err);
    }
    for (size_t i = 0; ok && i < g->n_outputs; i++) {
        const int b = p->values[g->outputs[i]->id].buffer;
        if (b >= 0 && r.buffers[b].partial != COMPLETE)
            ok = wf_check_broken(err, 1, "never summed", wf_check_name(p, b), p->n_steps);
    }
    for (int b = 0; b < p->n_buffers; b++) {
        if (ok && r.buffers[b].partial >= 0)
            ok = wf_check_broken(err, 1, "never summed", wf_check_name(p, b), p->n_steps);
        free(r.buffers[b].boxes);
    }
    free(r.left);
    wf_arena_release(&arena);
    return ok;
}
