/*
 * The cost model: seconds that things are expected to take.
 *
 *   a kernel     as figures of the machine have it (figures.h); without them the longer of its arithmetic
 *                and its traffic to memory
 *   a copy       likewise: reading and writing its bytes
 *   an exchange  a latency, and the longer of what is sent and what is received over the link
 *   a sum        as a ring, as a tree, or within each node first, whichever is shortest
 *
 * A rank has one link, on which communication goes in the order it was begun, while the rank
 * computes. So the step's time is found by walking it with two clocks; communication that ends
 * before it is waited for costs nothing.
 */
#include <math.h>
#include <string.h>

#include "ops/op.h"
#include "plan/planner.h"

/* What is given counts, the rest is as it was. */
static void override_links(struct wf_links *links, const struct wf_links *with)
{
    if (with->bytes_per_second > 0)
        links->bytes_per_second = with->bytes_per_second;
    if (with->seconds > 0)
        links->seconds = with->seconds;
    if (with->node_ranks > 0) {
        links->node_ranks = with->node_ranks;
        links->node_bytes_per_second = with->node_bytes_per_second;
        links->node_seconds = with->node_seconds;
    }
}

struct wf_costs wf_costs_of(const struct wf_plan_options *o)
{
    const struct wf_device *const d = o->device;
    const int threads = o->threads > 0 ? o->threads : 1;
    const double share = d->threads > 0 ? (double)threads / d->threads : 1.0;
    struct wf_costs costs = d->cost;
    costs.flops_per_second *= share;
    costs.bytes_per_second *= share;
    costs.figures = o->figures;
    costs.threads = d->threads > 0 ? threads : 1; /* those of a GPU's rank are the host's */
    costs.tf32 = o->tf32;
    override_links(&costs.links, &o->links);
    return costs;
}

/* --- of a rank --- */

double wf_cost_load(const struct wf_costs *costs, const struct wf_load *load)
{
    if (costs->figures)
        return wf_figures_seconds(costs->figures, costs->threads, load, NULL);
    return fmax(load->flops / costs->flops_per_second, load->bytes / costs->bytes_per_second);
}

/* Operations a second, about: 16-bit numbers of f16 are taken apart by hand. */
static double reference_speed(const struct wf_load *load)
{
    return load->type && strcmp(load->type, wf_dtype_name(WF_F16)) == 0 ? 1e8 : 1e9;
}

double wf_cost_reference(const struct wf_costs *costs, const struct wf_load *load)
{
    bool measured = false;
    if (costs->figures) {
        const double seconds = wf_figures_seconds(costs->figures, costs->threads, load, &measured);
        if (measured)
            return seconds;
    }
    return load->flops / reference_speed(load);
}

static struct wf_load flat_load(const char *name, double count, double bytes)
{
    struct wf_load load = {
        .name = name, .type = wf_dtype_name(WF_F32), .flops = count, .bytes = bytes
    };
    wf_load_set(&load, (double[WF_LOAD_AXES]){ count, 1, 1, 1, 1, 1 });
    return load;
}

struct wf_load wf_cost_copy_load(double bytes)
{
    return flat_load(wf_load_copy, bytes, 2.0 * bytes);
}

struct wf_load wf_cost_update_load(double weights, double bytes)
{
    return flat_load(wf_load_update, weights, bytes);
}

double wf_cost_copy(const struct wf_global_plan *global, double bytes)
{
    if (bytes <= 0)
        return 0;
    const struct wf_load load = wf_cost_copy_load(bytes);
    return wf_cost_load(&global->costs, &load);
}

static double region_bytes(const struct wf_value *v, struct wf_region r)
{
    return (double)wf_region_count(r) * (double)wf_dtype_size(v->dtype);
}

static struct wf_region read_region(const struct wf_node *n, int input, struct wf_region work)
{
    if (wf_region_is_empty(work))
        return (struct wf_region){ 0 };
    return wf_region_intersect(wf_op_reads(n, input, work), wf_shape_region(n->in[input]->shape));
}

static double pixels_of(struct wf_region r)
{
    double pixels = 1;
    for (int a = WF_N; a < WF_C; a++)
        pixels *= (double)wf_region_extent(r, (enum wf_axis)a);
    return pixels;
}

/* Of sums the images are inputs. */
static const struct wf_value *other_image(const struct wf_node *n)
{
    if (!wf_op_sums_over(n))
        return n->out[0];
    return n->n_in > 1 && n->in[1] ? n->in[1] : n->in[0];
}

/* All but the bytes that it reads. */
static struct wf_load load_of(const struct wf_node *n, struct wf_region work, bool tf32)
{
    const struct wf_value *const in = n->n_in > 0 && n->in[0] ? n->in[0] : n->out[0];
    const double pixels = pixels_of(work);
    const double reads = n->n_in > 0 && n->in[0] ? pixels_of(read_region(n, 0, work)) : pixels;
    struct wf_load load = { .name = n->op->name,
                            .type = wf_load_type(in->dtype, tf32),
                            .flops = wf_op_flops(n, work) };
    for (int o = 0; o < n->n_out; o++)
        load.bytes +=
            region_bytes(n->out[o], wf_op_sums_over(n) ? wf_shape_region(n->out[o]->shape) : work);
    wf_load_set(&load, (double[WF_LOAD_AXES]){
                           [WF_LOAD_PIXELS] = pixels,
                           [WF_LOAD_WIDTH] = (double)wf_region_extent(work, WF_W),
                           [WF_LOAD_IN] = (double)in->shape.at[WF_C],
                           [WF_LOAD_OUT] = (double)other_image(n)->shape.at[WF_C],
                           [WF_LOAD_EACH] = load.flops / fmax(pixels, 1),
                           [WF_LOAD_RATIO] = reads / fmax(pixels, 1),
                       });
    return load;
}

double wf_cost_node(const struct wf_costs *costs, const struct wf_node *n)
{
    const struct wf_region work = wf_shape_region(wf_op_domain(n)->shape);
    struct wf_load load = load_of(n, work, costs->tf32);
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k])
            load.bytes += region_bytes(n->in[k], wf_shape_region(n->in[k]->shape));
    return wf_cost_load(costs, &load);
}

/* A fused input is not read, but what it is computed from. */
static double input_bytes(const struct wf_planner *p, int item, int k, struct wf_region work,
                          struct wf_load *load)
{
    const struct wf_item *const it = &p->program->items[item];
    const struct wf_region box = wf_planner_reads(p, item, k, work);
    if (!p->program->instances[it->in[k]].is_fused)
        return region_bytes(it->node->in[k], box);
    const int maker = p->program->instances[it->in[k]].maker;
    const struct wf_node *const n = p->program->items[maker].node;
    double bytes = 0;
    load->fused = n->op->name;
    for (int j = 0; j < n->n_in; j++)
        if (n->in[j])
            bytes += region_bytes(n->in[j], wf_planner_reads(p, maker, j, box));
    return bytes;
}

/* Of an item whose fused input is most of its work, such as a convolution that is normalised at once: the load of that. */
static bool has_load_of_fused(const struct wf_planner *p, int item, struct wf_region work,
                              struct wf_load *load)
{
    enum { MOST = 16 };
    const struct wf_item *const it = &p->program->items[item];
    const double own = wf_op_flops(it->node, work);
    for (int k = 0; k < it->node->n_in; k++) {
        if (it->in[k] < 0 || !p->program->instances[it->in[k]].is_fused)
            continue;
        const int maker = p->program->instances[it->in[k]].maker;
        const struct wf_region box = wf_planner_reads(p, item, k, work);
        if (wf_op_flops(p->program->items[maker].node, box) > MOST * own) {
            *load = wf_cost_kernel_load(p, maker, box);
            return true;
        }
    }
    return false;
}

struct wf_load wf_cost_kernel_load(const struct wf_planner *p, int item, struct wf_region work)
{
    const struct wf_node *n = p->program->items[item].node;
    struct wf_load load;
    if (has_load_of_fused(p, item, work, &load))
        return load;
    load = load_of(n, work, p->plan->global->costs.tf32);
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k])
            load.bytes += input_bytes(p, item, k, work, &load);
    return load;
}

/* --- between ranks --- */

static bool is_near(const struct wf_links *links, int a, int b)
{
    return links->node_ranks > 0 && a / links->node_ranks == b / links->node_ranks;
}

/* Both directions of a link work at once, and so do those within a node and those between nodes. */
double wf_cost_exchange(const struct wf_global_plan *global, int rank, const struct wf_exchange *x)
{
    const struct wf_links *const links = &global->costs.links;
    double bytes[2][2] = { { 0, 0 }, { 0, 0 } }; /* [near][sends] */
    bool any_far = false, any_near = false;
    for (int i = 0; i < x->n_messages; i++) {
        const bool near = is_near(links, rank, x->messages[i].peer);
        bytes[near][x->messages[i].is_send] += (double)x->messages[i].bytes;
        any_near = any_near || near;
        any_far = any_far || !near;
    }
    const double far = links->seconds + fmax(bytes[0][0], bytes[0][1]) / links->bytes_per_second;
    if (!any_near)
        return far;
    const double within =
        links->node_seconds + fmax(bytes[1][0], bytes[1][1]) / links->node_bytes_per_second;
    return any_far ? fmax(far, within) : within;
}

static double ring_seconds(double n, double latency, double whole)
{
    return 2.0 * (n - 1) * (latency + whole / n);
}

static double tree_seconds(double n, double latency, double whole)
{
    return 2.0 * ceil(log2(n)) * (latency + whole);
}

/* Nodes that the group's ranks are on. They are in order. */
static int count_nodes(const struct wf_links *links, const struct wf_group *group)
{
    int nodes = 1;
    for (int i = 1; i < group->n; i++)
        nodes += !is_near(links, group->ranks[i - 1], group->ranks[i]);
    return nodes;
}

double wf_cost_sum(const struct wf_global_plan *global, const struct wf_sum *sum)
{
    const struct wf_links *const links = &global->costs.links;
    const struct wf_group *const group = &global->geometry.groups.at[sum->group];
    const double n = group->n, bytes = (double)wf_view_bytes(&sum->slot.view);
    const double whole = bytes / links->bytes_per_second;
    const double flat =
        fmin(ring_seconds(n, links->seconds, whole), tree_seconds(n, links->seconds, whole));
    const int nodes = links->node_ranks > 0 ? count_nodes(links, group) : group->n;
    if (nodes == group->n)
        return flat;
    const double near = bytes / links->node_bytes_per_second, each = n / nodes;
    const double within = fmin(ring_seconds(each, links->node_seconds, near),
                               tree_seconds(each, links->node_seconds, near));
    if (nodes == 1)
        return within;
    /* Each rank of a node has a part of the sum, which it sums over the nodes. */
    return within + fmin(ring_seconds(nodes, links->seconds, whole / each),
                         tree_seconds(nodes, links->seconds, whole / each));
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
        travel = wf_cost_exchange(plan->global, plan->rank, x);
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
