/*
 * The steps of one rank, in program order.
 *
 * Around each item: the fetches that it waits for end before it, its sums and fetches begin behind
 * it. A fetch ends at the first item for which some rank reads the rim, a sum at its first reader,
 * sums of gradients at the end of the step. Kernels that want packed boxes get them: where a box is
 * not packed in its buffer, a copy into (or out of) a buffer that lives for that step only.
 */
#include <string.h>

#include "ops/op.h"
#include "plan/planner.h"

enum {
    MAX_TAG = 32'000,
    SMALL_WORK = 16'384, /* elements: below, a reference kernel costs nothing worth a warning */
};

static struct wf_step *add_step(struct wf_planner *p, enum wf_step_kind kind,
                                const struct wf_node *node)
{
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->steps, p->room_steps, (size_t)plan->n_steps);
    struct wf_step *s = &plan->steps[plan->n_steps++];
    *s = (struct wf_step){ .kind = kind, .node = node, .scratch = -1, .which = -1 };
    return s;
}

static void add_copy(struct wf_planner *p, const struct wf_node *node, struct wf_slot to,
                     struct wf_slot from)
{
    if (wf_region_is_empty(to.view.box))
        return;
    struct wf_step *s = add_step(p, WF_STEP_COPY, node);
    s->n_in = s->n_out = 1;
    s->in = wf_arena_one(&p->plan->arena, struct wf_slot);
    s->out = wf_arena_one(&p->plan->arena, struct wf_slot);
    s->in[0] = from;
    s->out[0] = to;
    s->seconds = 2.0 * (double)wf_view_bytes(&to.view) / p->device->bytes_per_second;
}

/* A packed buffer of its own for a box. */
static struct wf_slot add_packed(struct wf_planner *p, const struct wf_slot *like)
{
    struct wf_slot slot = { .view = wf_view_dense(NULL, like->view.dtype, like->view.box) };
    slot.buffer =
        wf_planner_add_buffer(p, WF_STORE_ARENA, wf_view_bytes(&slot.view), "packed copy");
    return slot;
}

/* --- communication --- */

static void add_message(struct wf_planner *p, struct wf_exchange *x, int fetch,
                        const struct wf_transfer *t)
{
    struct wf_plan_message *m = &x->messages[x->n_messages++];
    m->is_send = t->from == p->rank;
    m->peer = m->is_send ? t->to : t->from;
    m->tag = fetch % MAX_TAG;
    m->slot = wf_slot_part(&p->slot[p->geo->fetches[fetch].instance], t->box);
    m->bytes = wf_view_bytes(&m->slot.view);
    m->staging = wf_view_is_dense(&m->slot.view)
                     ? -1
                     : wf_planner_add_buffer(p, WF_STORE_ARENA, m->bytes, "message");
    if (!m->is_send)
        p->plan->fetch_bytes += m->bytes;
}

/* The rank's own messages of a fetch; -1 when it has none. */
static int add_exchange(struct wf_planner *p, int fetch)
{
    const struct wf_fetch *f = &p->geo->fetches[fetch];
    int count = 0;
    for (int i = 0; i < f->n_transfers; i++)
        count += f->transfers[i].from == p->rank || f->transfers[i].to == p->rank;
    if (count == 0)
        return -1;
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->exchanges, p->room_exchanges, (size_t)plan->n_exchanges);
    struct wf_exchange *x = &plan->exchanges[plan->n_exchanges];
    x->value = p->program->instances[f->instance].value;
    x->messages = wf_arena_array(&plan->arena, count, struct wf_plan_message);
    x->n_messages = 0;
    for (int i = 0; i < f->n_transfers; i++)
        if (f->transfers[i].from == p->rank || f->transfers[i].to == p->rank)
            add_message(p, x, fetch, &f->transfers[i]);
    return plan->n_exchanges++;
}

static int add_sum(struct wf_planner *p, int instance, unsigned axes)
{
    struct wf_plan *plan = p->plan;
    WF_GROW(plan->sums, p->room_sums, (size_t)plan->n_sums);
    /* What the group's ranks made together: a rim that a rank also holds comes by a fetch. */
    const struct wf_slot slot =
        wf_slot_part(&p->slot[instance], wf_geometry_have(p->geo, p->rank, instance));
    WF_BUG_ON(!wf_view_is_dense(&slot.view), "a sum that does not lie packed");
    plan->sums[plan->n_sums] = (struct wf_sum){ .value = p->program->instances[instance].value,
                                                .slot = slot,
                                                .count = (size_t)wf_region_count(slot.view.box),
                                                .axes = axes };
    plan->reduce_bytes += wf_view_bytes(&slot.view);
    return plan->n_sums++;
}

/* What has begun and not ended: per instance, the exchange or sum, or -1. */
struct pending {
    int *exchange, *sum;
};

static void end_sum(struct wf_planner *p, struct pending *pending, int instance)
{
    if (instance < 0 || pending->sum[instance] < 0)
        return;
    add_step(p, WF_STEP_SUM_END, NULL)->which = pending->sum[instance];
    pending->sum[instance] = -1;
}

static void end_exchange(struct wf_planner *p, struct pending *pending, int instance)
{
    if (pending->exchange[instance] < 0)
        return;
    add_step(p, WF_STEP_FETCH_END, NULL)->which = pending->exchange[instance];
    pending->exchange[instance] = -1;
}

static void begin_after(struct wf_planner *p, struct pending *pending, int item)
{
    const struct wf_item *it = &p->program->items[item];
    for (int o = 0; o < it->node->n_out; o++) {
        const int out = it->out[o];
        const int fetch = p->geo->fetch_of[out];
        if (p->geo->reduce[item] && p->slot[out].buffer >= 0) {
            pending->sum[out] = add_sum(p, out, p->geo->reduce[item]);
            add_step(p, WF_STEP_SUM_BEGIN, it->node)->which = pending->sum[out];
            if (fetch >= 0 || !p->overlap)
                end_sum(p, pending, out);
        }
        const int exchange = fetch < 0 ? -1 : add_exchange(p, fetch);
        if (exchange < 0)
            continue;
        add_step(p, WF_STEP_FETCH_BEGIN, it->node)->which = exchange;
        pending->exchange[out] = exchange;
        if (!p->overlap)
            end_exchange(p, pending, out);
    }
}

static void end_before(struct wf_planner *p, struct pending *pending, int item)
{
    const struct wf_item *it = &p->program->items[item];
    for (int f = 0; f < p->geo->n_fetches; f++)
        if (p->geo->fetches[f].before == item)
            end_exchange(p, pending, p->geo->fetches[f].instance);
    for (int k = 0; k < it->node->n_in; k++)
        end_sum(p, pending, it->in[k]);
}

/* --- kernels --- */

/* A node that only moves its inputs into their places needs copies for those not placed yet. */
static bool emit_as_copies(struct wf_planner *p, int item)
{
    const struct wf_item *it = &p->program->items[item];
    const struct wf_op *op = it->node->op;
    int64_t shift[WF_AXES], count = 0;
    if (op->part && op->part(it->node, shift)) {
        if (p->root[it->out[0]] != it->in[0]) {
            const struct wf_region from =
                wf_region_shift(wf_geometry_work(p->geo, p->rank, item), shift);
            struct wf_slot part = wf_slot_part(&p->slot[it->in[0]], from);
            part.view.box = wf_geometry_work(p->geo, p->rank, item);
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
        struct wf_slot from =
            wf_slot_part(&p->slot[it->in[k]], wf_geometry_reads(p->geo, p->rank, item, k));
        const struct wf_region to = wf_region_shift(from.view.box, shift);
        from.view.box = to;
        add_copy(p, it->node, wf_slot_part(&p->slot[it->out[0]], to), from);
    }
    return true;
}

/* The slot a packed kernel reads: exactly what the work reads, without gaps. */
static struct wf_slot packed_input(struct wf_planner *p, int item, int k)
{
    const struct wf_item *it = &p->program->items[item];
    struct wf_slot slot =
        wf_slot_part(&p->slot[it->in[k]], wf_geometry_reads(p->geo, p->rank, item, k));
    if (wf_view_is_dense(&slot.view))
        return slot;
    const struct wf_slot copy = add_packed(p, &slot);
    add_copy(p, it->node, copy, slot);
    return copy;
}

/* The slot any other kernel reads: all that is there. Work that reads nothing of an input (between the
 * windows of a transposed convolution) does not wait for its rim, so it does not get it. */
static struct wf_slot given_input(const struct wf_planner *p, int item, int k)
{
    const struct wf_slot *slot = &p->slot[p->program->items[item].in[k]];
    const struct wf_region reads = wf_geometry_reads(p->geo, p->rank, item, k);
    return wf_region_is_empty(reads) ? wf_slot_part(slot, reads) : *slot;
}

static double estimate(const struct wf_planner *p, const struct wf_step *s)
{
    double bytes = 0;
    for (int k = 0; k < s->n_in; k++)
        bytes += s->in[k].buffer < 0 ? 0 : (double)wf_view_bytes(&s->in[k].view);
    for (int o = 0; o < s->n_out; o++)
        bytes += (double)wf_view_bytes(&s->out[o].view);
    const double compute = wf_op_flops(s->node, s->work) / p->device->flops_per_second;
    const double memory = bytes / p->device->bytes_per_second;
    return compute > memory ? compute : memory;
}

static bool prepare(struct wf_planner *p, struct wf_step *s, struct wf_err *err)
{
    struct wf_plan *plan = p->plan;
    const bool reference = wf_kernel_is_reference(s->kernel);
    plan->references += reference && wf_region_count(s->work) > SMALL_WORK;
    s->implementation = reference ? "reference" : "own";
    if (!s->kernel->prepare)
        return true;
    struct wf_view *views = wf_arena_array(&plan->arena, s->n_in + s->n_out, struct wf_view);
    for (int k = 0; k < s->n_in; k++)
        views[k] = s->in[k].view;
    for (int o = 0; o < s->n_out; o++)
        views[s->n_in + o] = s->out[o].view;
    struct wf_prepare prep = {
        .node = s->node, .work = s->work, .in = views, .out = views + s->n_in, .threads = p->threads
    };
    if (!s->kernel->prepare(&prep, err))
        return wf_err_wrap(err, "layer '%s' (%s)", s->node->name, s->node->op->name);
    s->prepared = prep.prepared;
    if (prep.implementation[0])
        s->implementation = wf_arena_copy(&plan->arena, prep.implementation);
    if (prep.scratch_bytes)
        s->scratch = wf_planner_add_buffer(p, WF_STORE_ARENA, prep.scratch_bytes, "scratch");
    return true;
}

static bool emit_kernel(struct wf_planner *p, int item, struct wf_err *err)
{
    const struct wf_item *it = &p->program->items[item];
    const struct wf_node *n = it->node;
    const struct wf_region work = wf_geometry_work(p->geo, p->rank, item);
    const bool packed = (p->kernel[item]->flags & WF_KERNEL_DENSE) && !wf_region_is_empty(work);
    struct wf_slot *in = wf_arena_array(&p->plan->arena, n->n_in + 1, struct wf_slot);
    struct wf_slot *out = wf_arena_array(&p->plan->arena, n->n_out, struct wf_slot);
    for (int k = 0; k < n->n_in; k++) {
        in[k].buffer = -1;
        if (it->in[k] >= 0 && !wf_region_is_empty(work)) /* a sum over nothing reads nothing */
            in[k] = packed && !n->in[k]->everywhere ? packed_input(p, item, k)
                                                    : given_input(p, item, k);
    }
    for (int o = 0; o < n->n_out; o++)
        out[o] = p->slot[it->out[o]];
    const bool sums = wf_op_sums_over(n) != 0;
    struct wf_slot target = out[0];
    if (packed && !sums) {
        target = wf_slot_part(&out[0], work);
        out[0] = wf_view_is_dense(&target.view) ? target : add_packed(p, &target);
    }
    struct wf_step *s = add_step(p, WF_STEP_KERNEL, n);
    s->n_in = n->n_in;
    s->n_out = n->n_out;
    s->in = in;
    s->out = out;
    s->work = work;
    s->again = p->program->instances[it->out[0]].again;
    s->kernel = p->kernel[item];
    if (wf_region_is_empty(work)) /* a sum over nothing: any kernel may write the zeros */
        s->kernel = p->device->fallback;
    s->seconds = estimate(p, s);
    p->plan->flops += wf_op_flops(n, work);
    if (!prepare(p, s, err))
        return false;
    if (packed && out[0].buffer != target.buffer)
        add_copy(p, n, target, out[0]);
    return true;
}

static bool emit_item(struct wf_planner *p, int item, struct wf_err *err)
{
    const struct wf_item *it = &p->program->items[item];
    const bool sums = wf_op_sums_over(it->node) != 0;
    if (wf_region_is_empty(wf_geometry_work(p->geo, p->rank, item)) && !sums)
        return true;
    if (p->slot[it->out[0]].buffer < 0) /* a sum into nothing this rank has a part of */
        return true;
    return emit_as_copies(p, item) || emit_kernel(p, item, err);
}

bool wf_planner_emit(struct wf_planner *p, struct wf_err *err)
{
    const struct wf_program *program = p->program;
    struct pending pending;
    pending.exchange = wf_arena_array(&p->plan->arena, program->n_instances, int);
    pending.sum = wf_arena_array(&p->plan->arena, program->n_instances, int);
    for (int i = 0; i < program->n_instances; i++)
        pending.exchange[i] = pending.sum[i] = -1;
    for (int item = 0; item < program->n_items; item++) {
        end_before(p, &pending, item);
        if (!emit_item(p, item, err))
            return false;
        begin_after(p, &pending, item);
    }
    for (int i = 0; i < program->n_instances; i++)
        end_sum(p, &pending, i);
    const struct wf_graph *g = p->geo->graph;
    for (size_t i = 0; i < g->n_updates; i++)
        add_copy(p, NULL, p->slot[program->of_value[g->updates[i].state->id]],
                 p->slot[program->of_value[g->updates[i].next->id]]);
    return true;
}
