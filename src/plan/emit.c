/*
 * The steps of one rank as a plain list, in program order: each item on all of its work (where memory
 * is short in strips, see strips.h), and behind it what its results need, sums first and then fetches
 * (see emit_comm.c). Communication ends where it begins, so the list could run as it is, but for
 * kernels that want packed boxes. Passes rewrite it from there (planner.h).
 */
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
    s->part = p->item < 0 ? p->part : wf_part_work(p->program->items[p->item].segment);
    return s;
}

void wf_planner_put(struct wf_planner *p, const struct wf_step *step)
{
    WF_GROW(p->plan->steps, p->room_steps, (size_t)p->plan->n_steps);
    p->plan->steps[p->plan->n_steps++] = *step;
}

struct wf_steps wf_planner_take_steps(struct wf_planner *p)
{
    const struct wf_steps steps = { p->plan->steps, p->plan->n_steps, p->room_steps };
    p->plan->steps = p->spare.at;
    p->plan->n_steps = 0;
    p->room_steps = p->spare.room;
    p->spare = (struct wf_steps){ 0 };
    return steps;
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
    s->load = wf_cost_copy_load((double)wf_view_bytes(&to.view));
    s->seconds = wf_cost_load(&p->plan->global->costs, &s->load);
}

void wf_planner_add_copy(struct wf_planner *p, const struct wf_node *node, struct wf_slot to,
                         struct wf_slot from)
{
    add_move(p, WF_STEP_COPY, node, to, from);
}

struct wf_slot wf_planner_add_packed(struct wf_planner *p, const struct wf_slot *like)
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
            wf_planner_add_copy(p, it->node, wf_slot_part(&p->slot[it->out[0]], part.view.box),
                                part);
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
        wf_planner_add_copy(p, it->node, wf_slot_part(&p->slot[it->out[0]], to), from);
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

/* The slot that a kernel reads which takes any: all that is there. So where a part is still on its way, or was not
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
        in[k] = packed && !n->in[k]->replicated
                    ? wf_slot_part(&p->slot[it->in[k]], wf_planner_reads(p, item, k, work))
                    : given_input(p, item, k, work);
    }
}

static void emit_kernel(struct wf_planner *p, int item, struct wf_region work)
{
    const struct wf_item *it = &p->program->items[item];
    const struct wf_node *n = it->node;
    struct wf_step *s = wf_planner_add_step(p, WF_STEP_KERNEL, n);
    s->n_in = n->n_in;
    s->n_out = n->n_out;
    s->in = wf_arena_array(&p->plan->arena, count_inputs(p, item) + 1, struct wf_slot);
    s->out = wf_arena_array(&p->plan->arena, n->n_out, struct wf_slot);
    s->work = work;
    find_inputs(p, item, work, s->in);
    add_fused(p, item, work, s);
    for (int o = 0; o < n->n_out; o++)
        s->out[o] = p->slot[it->out[o]];
    s->recompute = p->program->instances[it->out[0]].recompute;
    s->kernel = it->kernel;
    if (wf_region_is_empty(work)) /* a sum over nothing: any kernel may write the zeros */
        s->kernel = p->device->fallback;
    else if ((it->kernel->flags & WF_KERNEL_DENSE) && !wf_op_sums_over(n))
        s->out[0] = wf_slot_part(&s->out[0], work);
    s->load = wf_cost_kernel_load(p, item, work);
    s->seconds = (wf_kernel_is_reference(s->kernel) ? wf_cost_reference : wf_cost_load)(
        &p->plan->global->costs, &s->load);
}

void wf_planner_emit_item(struct wf_planner *p, int item, struct wf_region work)
{
    const struct wf_item *it = &p->program->items[item];
    const struct wf_layout *const l = &p->geo->layout;
    const bool sums = wf_op_sums_over(it->node) != 0;
    if (wf_region_is_empty(work) && !sums)
        return;
    if (!wf_layout_tiling(l, &l->of_node[it->node->id], p->rank)) /* it comes from elsewhere */
        return;
    if (p->program->instances[it->out[0]].is_fused)
        return;
    if (p->slot[it->out[0]].buffer < 0) /* a sum into nothing this rank has a part of */
        return;
    if (emit_as_copies(p, item, work) || emit_collected(p, item))
        return;
    /* One that collects, and has no contribution: zeros. */
    const bool none = (it->node->op->flags & WF_OP_COLLECTS) && !p->geo->is_windowed;
    const struct wf_region nothing = { 0 };
    emit_kernel(p, item, none ? nothing : work);
}

static void emit_one(struct wf_planner *p, int item)
{
    p->item = item;
    wf_planner_emit_item(p, item, wf_geometry_work(p->geo, p->rank, item));
    wf_planner_emit_comm(p, item);
}

/* One strip of a sum, added to those before it. */
static void emit_more_of_sum(struct wf_planner *p, int item, struct wf_region work)
{
    const struct wf_item *it = &p->program->items[item];
    struct wf_slot *const total = wf_arena_array(&p->plan->arena, it->node->n_out, struct wf_slot);
    for (int o = 0; o < it->node->n_out; o++) {
        total[o] = p->slot[it->out[o]];
        if (total[o].buffer >= 0)
            p->slot[it->out[o]] = wf_planner_add_packed(p, &total[o]);
    }
    wf_planner_emit_item(p, item, work);
    for (int o = 0; o < it->node->n_out; o++) {
        if (total[o].buffer >= 0)
            add_move(p, WF_STEP_ADD, it->node, total[o], p->slot[it->out[o]]);
        p->slot[it->out[o]] = total[o];
    }
}

/* Strip by strip, and what waits for them. */
static void emit_strips(struct wf_planner *p, const struct wf_strips *s)
{
    for (p->strip = 0; p->strip < s->count; p->strip++) {
        wf_planner_place_strip(p, s, p->strip);
        for (p->item = s->first; p->item <= s->last; p->item++) {
            const struct wf_region part = wf_planner_part(p, s, p->strip, p->item);
            const bool sums = wf_strips_role(p->plan->global, s, p->item) == WF_STRIP_SUM;
            const bool adds = sums && p->strip > 0;
            if (wf_region_is_empty(part) && (adds || !sums))
                continue;
            (adds ? emit_more_of_sum : wf_planner_emit_item)(p, p->item, part);
        }
    }
    p->strip = -1;
    for (int item = s->first; item <= s->last; item++) {
        p->item = item;
        if (wf_strips_role(p->plan->global, s, item) != WF_STRIP_AFTER)
            wf_planner_emit_comm(p, item);
        else
            emit_one(p, item);
    }
}

/* States whose next value the segment made, but not in their place. */
static void end_segment(struct wf_planner *p, int segment)
{
    const struct wf_graph *const g = p->geo->graph;
    p->item = -1;
    p->part = wf_part_work(segment);
    for (size_t i = 0; i < g->n_updates; i++) {
        const int state = p->program->of_value[g->updates[i].state->id];
        const int next = p->program->of_value[g->updates[i].next->id];
        const int maker = p->program->instances[next].maker;
        if (p->root[next] != state && segment == (maker < 0 ? 0 : p->program->items[maker].segment))
            wf_planner_add_copy(p, NULL, p->slot[state], p->slot[next]);
    }
}

void wf_planner_emit(struct wf_planner *p)
{
    const struct wf_program *const program = p->program;
    const int segments = p->plan->global->stages.n_segments;
    for (int segment = 0, item = 0; segment < segments; segment++) {
        p->part = wf_part_transfers(segment);
        wf_planner_emit_transfers(p, segment);
        for (; item < program->n_items && program->items[item].segment == segment; item++) {
            const struct wf_strips *const strips = wf_strips_of(p->plan->global, item);
            if (strips)
                emit_strips(p, strips);
            else
                emit_one(p, item);
            item = strips ? strips->last : item;
        }
        end_segment(p, segment);
    }
}
