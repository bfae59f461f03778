/*
 * The cost model: seconds that things are expected to take, from four figures of the machine (struct
 * wf_costs). Good enough to choose between two plans.
 *
 *   a kernel     the longer of its arithmetic and its traffic to memory
 *   a copy       reading and writing its bytes
 *   an exchange  a latency, and the longer of what is sent and what is received over the link
 *   a sum        as a ring or as a tree, whichever is shorter
 *
 * A rank has one link, on which communication goes in the order it was begun, while the rank
 * computes. So the step's time is found by walking it with two clocks; communication that ends
 * before it is waited for costs nothing.
 */
#include <math.h>

#include "ops/op.h"
#include "plan/planner.h"

struct wf_costs wf_costs_of(const struct wf_plan_options *o)
{
    const struct wf_device *const d = o->device;
    const int threads = o->threads > 0 ? o->threads : 1;
    const double share = d->threads > 0 ? (double)threads / d->threads : 1.0;
    struct wf_costs costs = d->cost;
    costs.flops_per_second *= share;
    costs.bytes_per_second *= share;
    if (o->link_bytes_per_second > 0)
        costs.link_bytes_per_second = o->link_bytes_per_second;
    if (o->link_seconds > 0)
        costs.link_seconds = o->link_seconds;
    return costs;
}

double wf_cost_copy(const struct wf_global_plan *global, double bytes)
{
    return 2.0 * bytes / global->costs.bytes_per_second;
}

static double region_bytes(const struct wf_value *v, struct wf_region r)
{
    return (double)wf_region_count(r) * (double)wf_dtype_size(v->dtype);
}

/* A fused input is not read, but what it is computed from. */
static double input_bytes(const struct wf_planner *p, int item, int k, struct wf_region work)
{
    const struct wf_item *const it = &p->program->items[item];
    const struct wf_region box = wf_planner_reads(p, item, k, work);
    if (!p->program->instances[it->in[k]].is_fused)
        return region_bytes(it->node->in[k], box);
    const int maker = p->program->instances[it->in[k]].maker;
    const struct wf_node *const n = p->program->items[maker].node;
    double bytes = 0;
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j])
            bytes += region_bytes(n->in[j], wf_planner_reads(p, maker, j, box));
    return bytes;
}

double wf_cost_kernel(const struct wf_planner *p, int item, struct wf_region work)
{
    const struct wf_costs *const costs = &p->plan->global->costs;
    const struct wf_node *n = p->program->items[item].node;
    double bytes = 0;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k])
            bytes += input_bytes(p, item, k, work);
    for (int o = 0; o < n->n_out; o++)
        bytes +=
            region_bytes(n->out[o], wf_op_sums_over(n) ? wf_shape_region(n->out[o]->shape) : work);
    const double compute = wf_op_flops(n, work) / costs->flops_per_second;
    const double memory = bytes / costs->bytes_per_second;
    return compute > memory ? compute : memory;
}

/* --- between ranks --- */

/* Both directions of a link work at once. */
static double exchange_bytes(const struct wf_exchange *x)
{
    double bytes[2] = { 0, 0 };
    for (int i = 0; i < x->n_messages; i++)
        bytes[x->messages[i].is_send] += (double)x->messages[i].bytes;
    return bytes[0] > bytes[1] ? bytes[0] : bytes[1];
}

double wf_cost_exchange(const struct wf_global_plan *global, const struct wf_exchange *x)
{
    const struct wf_costs *const costs = &global->costs;
    return costs->link_seconds + exchange_bytes(x) / costs->link_bytes_per_second;
}

double wf_cost_sum(const struct wf_global_plan *global, const struct wf_sum *sum)
{
    const struct wf_costs *const costs = &global->costs;
    const double n = global->geometry.groups.at[sum->group].n;
    const double whole = (double)wf_view_bytes(&sum->slot.view) / costs->link_bytes_per_second;
    const double ring = 2.0 * (n - 1) * (costs->link_seconds + whole / n);
    const double tree = 2.0 * ceil(log2(n)) * (costs->link_seconds + whole);
    return fmin(ring, tree);
}

/* Messages that do not lie packed are copied by the rank itself: what is sent when the exchange
 * begins, what was received when it ends. */
static double staging_seconds(const struct wf_plan *plan, const struct wf_exchange *x, bool sends)
{
    double bytes = 0;
    for (int i = 0; i < x->n_messages; i++)
        if (x->messages[i].is_send == sends && x->messages[i].staging >= 0)
            bytes += (double)x->messages[i].bytes;
    return wf_cost_copy(plan->global, bytes);
}

struct clocks {
    double now, link; /* the rank's; and when its link is free again */
    double *fetched, *summed;
};

static void walk_step(struct wf_plan *plan, const struct wf_step *step, struct clocks *c)
{
    const struct wf_exchange *x = NULL;
    double busy = step->seconds, travel = 0;
    if (step->kind == WF_STEP_FETCH_BEGIN || step->kind == WF_STEP_FETCH_END)
        x = &plan->exchanges[step->which];
    if (step->kind == WF_STEP_FETCH_END)
        c->now = fmax(c->now, c->fetched[step->which]);
    if (step->kind == WF_STEP_SUM_END)
        c->now = fmax(c->now, c->summed[step->which]);
    if (x)
        busy += staging_seconds(plan, x, step->kind == WF_STEP_FETCH_BEGIN);
    c->now += busy;
    if (x && step->kind == WF_STEP_FETCH_BEGIN)
        travel = wf_cost_exchange(plan->global, x);
    else if (step->kind == WF_STEP_SUM_BEGIN)
        travel = wf_cost_sum(plan->global, &plan->sums[step->which]);
    if (travel > 0)
        c->link = fmax(c->now, c->link) + travel;
    if (step->kind == WF_STEP_FETCH_BEGIN)
        c->fetched[step->which] = c->link;
    else if (step->kind == WF_STEP_SUM_BEGIN)
        c->summed[step->which] = c->link;
    plan->compute_seconds += busy;
    plan->link_seconds += travel;
}

void wf_cost_plan(struct wf_plan *plan)
{
    struct wf_arena scratch = { 0 };
    struct clocks c = { .fetched = wf_arena_array(&scratch, plan->n_exchanges + 1, double),
                        .summed = wf_arena_array(&scratch, plan->n_sums + 1, double) };
    for (int i = 0; i < plan->n_parts; i++) {
        const double before = c.now;
        for (int s = plan->parts[i].first; s < plan->parts[i].end; s++)
            walk_step(plan, &plan->steps[s], &c);
        plan->parts[i].seconds = c.now - before;
    }
    plan->seconds = c.now;
    wf_arena_release(&scratch);
}
