/*
 * The steps of one rank, in program order.
 *
 * Around each item: what it waits for ends before it, its sums and fetches begin behind it (see
 * emit_comm.c); where waiting is long, items run in two parts (see split.c), where memory is short in
 * strips (see strips.h). Kernels that want packed boxes get them: where a box is not packed in its
 * buffer, a copy into (or out of) a buffer that lives for that step only.
 */
#include <string.h>

#include "ops/op.h"
#include "plan/strips.h"

struct wf_step *wf_planner_add_step(struct wf_planner *p, enum wf_step_kind kind,
                                    const struct wf_node *node)
{
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->steps, p->room_steps, (size_t)plan->n_steps);
    struct wf_step *s = &plan->steps[plan->n_steps++];
    *s = (struct wf_step){
        .kind = kind, .node = node, .item = p->item, .strip = p->strip, .scratch = -1, .which = -1
    };
    return s;
}

struct wf_region wf_planner_reads(const struct wf_planner *p, int item, int input,
                                  struct wf_region work)
{
    const struct wf_node *n = p->program->items[item].node;
    if (wf_region_is_empty(work))
        return (struct wf_region){ 0 };
    return wf_region_intersect(wf_op_reads(n, input, work), wf_shape_region(n->in[input]->shape));
}

static void add_move(struct wf_planner *p, enum wf_step_kind kind, const struct wf_node *node,
                     struct wf_slot to, struct wf_slot from)
{
    if (wf_region_is_empty(to.view.box))
        return;
    struct wf_step *s = wf_planner_add_step(p, kind, node);
    s->n_in = s->n_out = 1;
    s->in = wf_arena_one(&p->plan->arena, struct wf_slot);
    s->out = wf_arena_one(&p->plan->arena, struct wf_slot);
    s->in[0] = from;
    s->out[0] = to;
    s->seconds = wf_cost_copy(p->plan->global, (double)wf_view_bytes(&to.view));
    p->clock += s->seconds;
}

static void add_copy(struct wf_planner *p, const struct wf_node *node, struct wf_slot to,
                     struct wf_slot from)
{
    add_move(p, WF_STEP_COPY, node, to, from);
}

/* A packed buffer of its own for a box. */
static struct wf_slot add_packed(struct wf_planner *p, const struct wf_slot *like)
{
    struct wf_slot slot = { .view = wf_view_dense(NULL, like->view.dtype, like->view.box) };
    slot.buffer =
        wf_planner_add_buffer(p, WF_STORE_ARENA, wf_view_bytes(&slot.view), "packed copy");
    return slot;
}

/* --- kernels --- */

/* A node that only moves its inputs into their places needs copies for those not placed yet. */
static bool emit_as_copies(struct wf_planner *p, int item, struct wf_region work)
{
    const struct wf_item *it = &p->program->items[item];
    const struct wf_op *op = it->node->op;
    int64_t shift[WF_AXES], count = 0;
    if (op->part && op->part(it->node, shift)) {
        if (p->root[it->out[0]] != it->in[0]) {
            struct wf_slot part = wf_slot_part(&p->slot[it->in[0]], wf_region_shift(work, shift));
            part.view.box = work;
            add_copy(p, it->node, wf_slot_part(&p->slot[it->out[0]], part.view.box), part);
        }
        return true;
    }
    for (int k = 0; op->place && k < it->node->n_in; k++)
        count += op->place(it->node, k, shift) ? wf_shape_count(it->node->in[k]->shape) : 0;
    if (!op->place || count != wf_shape_count(it->node->out[0]->shape))
        return false;
    for (int k = 0; k < it->node->n_in; k++) {
        (void)op->place(it->node, k, shift);
        if (p->root[it->in[k]] == it->out[0] || p->slot[it->in[k]].buffer < 0)
            continue;
        struct wf_slot from = wf_slot_part(&p->slot[it->in[k]], wf_planner_reads(p, item, k, work));
        const struct wf_region to = wf_region_shift(from.view.box, shift);
        from.view.box = to;
        add_copy(p, it->node, wf_slot_part(&p->slot[it->out[0]], to), from);
    }
    return true;
}

/* The rank's contributions are added up as they are, partial ones too, where they lie packed: always,
 * but in a window. */
static bool emit_collected(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    enum wf_step_kind kind = WF_STEP_COPY;
    if (!(it->node->op->flags & WF_OP_COLLECTS) || p->geo->is_windowed)
        return false;
    for (int k = 0; k < it->node->n_in; k++)
        if (wf_geometry_adds(p->geo, p->rank, item, k)) {
            add_move(p, kind, it->node, p->slot[it->out[0]], p->slot[it->in[k]]);
            kind = WF_STEP_ADD;
        }
    return kind == WF_STEP_ADD;
}

/* The slot a packed kernel reads: exactly what the work reads, without gaps. */
static struct wf_slot packed_input(struct wf_planner *p, int item, int k, struct wf_region work)
{
    const struct wf_item *it = &p->program->items[item];
    struct wf_slot slot = wf_slot_part(&p->slot[it->in[k]], wf_planner_reads(p, item, k, work));
    if (wf_view_is_dense(&slot.view))
        return slot;
    const struct wf_slot copy = add_packed(p, &slot);
    add_copy(p, it->node, copy, slot);
    return copy;
}

/* The slot any other kernel reads: all that is there. So where a part is still on its way, or was not
 * made yet, it is what the work reads; and where that is nothing (between the windows of a transposed
 * convolution), nothing. */
static struct wf_slot given_input(const struct wf_planner *p, int item, int k,
                                  struct wf_region work)
{
    const int in = p->program->items[item].in[k];
    const struct wf_region reads = wf_planner_reads(p, item, k, work);
    const bool all_there =
        p->exchange[in] < 0 && wf_region_equal(work, wf_geometry_work(p->geo, p->rank, item));
    return all_there && !wf_region_is_empty(reads) ? p->slot[in]
                                                   : wf_slot_part(&p->slot[in], reads);
}

/* Behind the step's inputs: what its fused ones are computed from. */
static void add_fused(struct wf_planner *p, int item, struct wf_region work, struct wf_step *s)
{
    const struct wf_item *it = &p->program->items[item];
    s->fuses = wf_arena_array(&p->plan->arena, it->node->n_in + 1, struct wf_step_fused);
    for (int k = 0; k < it->node->n_in; k++) {
        if (it->in[k] < 0 || !p->program->instances[it->in[k]].is_fused)
            continue;
        const int maker = p->program->instances[it->in[k]].maker;
        const struct wf_item *made = &p->program->items[maker];
        const struct wf_region box = wf_planner_reads(p, item, k, work);
        s->fuses[s->n_fused++] = (struct wf_step_fused){ made->node, k, s->n_in };
        for (int j = 0; j < made->node->n_in; j++, s->n_in++) {
            s->in[s->n_in].buffer = -1;
            if (made->in[j] >= 0 && !wf_region_is_empty(box))
                s->in[s->n_in] = given_input(p, maker, j, box);
        }
    }
}

static int count_inputs(const struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    int count = it->node->n_in;
    for (int k = 0; k < it->node->n_in; k++)
        if (it->in[k] >= 0 && p->program->instances[it->in[k]].is_fused)
            count += p->program->items[p->program->instances[it->in[k]].maker].node->n_in;
    return count;
}

/* The node's inputs; those that are fused are absent. */
static void find_inputs(struct wf_planner *p, int item, struct wf_region work, struct wf_slot in[])
{
    const struct wf_item *it = &p->program->items[item];
    const struct wf_node *n = it->node;
    const bool packed = (p->program->items[item].kernel->flags & WF_KERNEL_DENSE) != 0;
    for (int k = 0; k < n->n_in; k++) {
        in[k].buffer = -1;
        if (it->in[k] < 0 || p->program->instances[it->in[k]].is_fused || wf_region_is_empty(work))
            continue; /* a sum over nothing reads nothing */
        in[k] = packed && !n->in[k]->replicated ? packed_input(p, item, k, work)
                                                : given_input(p, item, k, work);
    }
}

static bool emit_kernel(struct wf_planner *p, int item, struct wf_region work, struct wf_err *err)
{
    const struct wf_item *it = &p->program->items[item];
    const struct wf_node *n = it->node;
    const bool packed =
        (p->program->items[item].kernel->flags & WF_KERNEL_DENSE) && !wf_region_is_empty(work);
    struct wf_slot *in = wf_arena_array(&p->plan->arena, count_inputs(p, item) + 1, struct wf_slot);
    struct wf_slot *out = wf_arena_array(&p->plan->arena, n->n_out, struct wf_slot);
    find_inputs(p, item, work, in);
    for (int o = 0; o < n->n_out; o++)
        out[o] = p->slot[it->out[o]];
    const bool sums = wf_op_sums_over(n) != 0;
    struct wf_slot target = out[0];
    if (packed && !sums) {
        target = wf_slot_part(&out[0], work);
        out[0] = wf_view_is_dense(&target.view) ? target : add_packed(p, &target);
    }
    struct wf_step *s = wf_planner_add_step(p, WF_STEP_KERNEL, n);
    s->n_in = n->n_in;
    s->n_out = n->n_out;
    s->in = in;
    s->out = out;
    s->work = work;
    add_fused(p, item, work, s);
    s->recompute = p->program->instances[it->out[0]].recompute;
    s->kernel = p->program->items[item].kernel;
    if (wf_region_is_empty(work)) /* a sum over nothing: any kernel may write the zeros */
        s->kernel = p->device->fallback;
    s->seconds = wf_cost_kernel(p, item, work);
    p->clock += s->seconds;
    p->plan->flops += wf_op_flops(n, work);
    if (!wf_planner_prepare(p, s, err))
        return false;
    if (packed && out[0].buffer != target.buffer)
        add_copy(p, n, target, out[0]);
    return true;
}

/* The item on `work`, all of its work or a part. */
static bool emit_item(struct wf_planner *p, int item, struct wf_region work, struct wf_err *err)
{
    const struct wf_item *it = &p->program->items[item];
    const bool sums = wf_op_sums_over(it->node) != 0;
    if (wf_region_is_empty(work) && !sums)
        return true;
    if (p->program->instances[it->out[0]].is_fused)
        return true;
    if (p->slot[it->out[0]].buffer < 0) /* a sum into nothing this rank has a part of */
        return true;
    if (emit_as_copies(p, item, work) || emit_collected(p, item))
        return true;
    /* One that collects, and has no contribution: zeros. */
    const bool none = (it->node->op->flags & WF_OP_COLLECTS) && !p->geo->is_windowed;
    const struct wf_region nothing = { 0 };
    return emit_kernel(p, item, none ? nothing : work, err);
}

/* Inner parts, then what they did not wait for, then the halos. */
static bool emit_chain(struct wf_planner *p, const struct wf_chain *chain, struct wf_err *err)
{
    for (int i = 0; i < chain->count; i++) {
        p->item = chain->first + i;
        wf_planner_end_sums_before(p, chain->first + i);
        if (!emit_item(p, chain->first + i, chain->inner[i], err))
            return false;
    }
    for (int i = 0; i < chain->count; i++) {
        const int item = p->item = chain->first + i;
        struct wf_region halos[WF_SUBTRACT_MAX];
        const int n =
            wf_region_subtract(wf_geometry_work(p->geo, p->rank, item), chain->inner[i], halos);
        wf_planner_end_before(p, item);
        for (int k = 0; k < n; k++)
            if (!emit_item(p, item, halos[k], err))
                return false;
        wf_planner_begin_after(p, item);
    }
    return true;
}

/* An item that only finishes what is still being summed, for nobody else to read: it can wait for
 * the end of the step. (A bias' gradient, summed in f64, becomes f32.) */
static bool is_for_the_end(const struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    bool sums_pending = false;
    for (int k = 0; k < it->node->n_in; k++) {
        const int in = it->in[k];
        if (in < 0 || p->program->instances[in].maker < 0)
            continue;
        sums_pending = sums_pending || p->sum[in] >= 0;
        if (p->program->instances[in].n_uses != 1 || p->root[in] != in)
            return false;
    }
    for (int o = 0; o < it->node->n_out; o++) {
        const int out = it->out[o];
        if (p->program->instances[out].n_uses > 0 || p->geo->fetch_of[out] >= 0 ||
            p->root[out] != out)
            return false;
    }
    return sums_pending && !p->geo->grouping[item];
}

static bool emit_one(struct wf_planner *p, int item, struct wf_err *err)
{
    p->item = item;
    wf_planner_end_before(p, item);
    if (!emit_item(p, item, wf_geometry_work(p->geo, p->rank, item), err))
        return false;
    wf_planner_begin_after(p, item);
    return true;
}

static bool emit_now_or_late(struct wf_planner *p, int item, struct wf_err *err)
{
    if (!is_for_the_end(p, item))
        return emit_one(p, item, err);
    p->late[p->n_late++] = item;
    return true;
}

/* One strip of a sum, added to those before it. */
static bool emit_more_of_sum(struct wf_planner *p, int item, struct wf_region work,
                             struct wf_err *err)
{
    const struct wf_item *it = &p->program->items[item];
    struct wf_slot *const total = wf_arena_array(&p->plan->arena, it->node->n_out, struct wf_slot);
    for (int o = 0; o < it->node->n_out; o++) {
        total[o] = p->slot[it->out[o]];
        if (total[o].buffer >= 0)
            p->slot[it->out[o]] = add_packed(p, &total[o]);
    }
    const bool ok = emit_item(p, item, work, err);
    for (int o = 0; o < it->node->n_out; o++) {
        if (ok && total[o].buffer >= 0)
            add_move(p, WF_STEP_ADD, it->node, total[o], p->slot[it->out[o]]);
        p->slot[it->out[o]] = total[o];
    }
    return ok;
}

/* What they wait for, strip by strip, and what waits for them. */
static bool emit_strips(struct wf_planner *p, const struct wf_strips *s, struct wf_err *err)
{
    for (p->item = s->first; p->item <= s->last; p->item++)
        if (wf_strips_role(p->plan->global, s, p->item) != WF_STRIP_AFTER)
            wf_planner_end_before(p, p->item);
    for (p->strip = 0; p->strip < s->count; p->strip++) {
        wf_planner_place_strip(p, s, p->strip);
        for (p->item = s->first; p->item <= s->last; p->item++) {
            const struct wf_region part = wf_planner_part(p, s, p->strip, p->item);
            const bool sums = wf_strips_role(p->plan->global, s, p->item) == WF_STRIP_SUM;
            const bool adds = sums && p->strip > 0;
            if (wf_region_is_empty(part) && (adds || !sums))
                continue;
            if (!(adds ? emit_more_of_sum : emit_item)(p, p->item, part, err))
                return false;
        }
    }
    p->strip = -1;
    for (int item = s->first; item <= s->last; item++) {
        p->item = item;
        if (wf_strips_role(p->plan->global, s, item) != WF_STRIP_AFTER)
            wf_planner_begin_after(p, item);
        else if (!emit_now_or_late(p, item, err))
            return false;
    }
    return true;
}

static bool emit_items(struct wf_planner *p, struct wf_arena *scratch, struct wf_err *err)
{
    const int n = p->program->n_items;
    struct wf_chain chain;
    p->late = wf_arena_array(scratch, n, int);
    for (int item = 0; item < n; item++) {
        bool ok = true;
        const int strips = p->plan->global->program->items[item].strips;
        if (strips >= 0) {
            ok = emit_strips(p, &p->plan->global->strips[strips], err);
            item = p->plan->global->strips[strips].last;
        } else if (wf_planner_find_chain(p, item, &chain)) {
            ok = emit_chain(p, &chain, err);
            item += chain.count - 1;
        } else {
            ok = emit_now_or_late(p, item, err);
        }
        if (!ok)
            return false;
    }
    p->item = -1;
    wf_planner_end_all(p);
    for (int i = 0; i < p->n_late; i++)
        if (!emit_one(p, p->late[i], err))
            return false;
    p->item = -1;
    return true;
}

bool wf_planner_emit(struct wf_planner *p, struct wf_err *err)
{
    struct wf_arena scratch = { 0 };
    const bool ok = emit_items(p, &scratch, err);
    wf_arena_release(&scratch);
    const struct wf_graph *g = p->geo->graph;
    for (size_t i = 0; ok && i < g->n_updates; i++) {
        const int state = p->program->of_value[g->updates[i].state->id];
        const int next = p->program->of_value[g->updates[i].next->id];
        if (p->root[next] != state) /* it was not made there */
            add_copy(p, NULL, p->slot[state], p->slot[next]);
    }
    return ok;
}
