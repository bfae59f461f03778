#include "plan/geometry.h"

#include <stdlib.h>

#include "ops/op.h"

static struct wf_region *at_instance(struct wf_geometry *geo, struct wf_region *of, int rank, int i)
{
    return &of[wf_geometry_row(geo, rank) * (size_t)geo->program->n_instances + (size_t)i];
}

struct wf_region wf_geometry_reads(const struct wf_geometry *geo, int rank, int item, int input)
{
    const struct wf_item *it = &geo->program->items[item];
    const struct wf_region work = wf_geometry_work(geo, rank, item);
    if (wf_region_is_empty(work))
        return (struct wf_region){ 0 };
    const struct wf_region image = wf_shape_region(it->node->in[input]->shape);
    return wf_region_intersect(wf_op_reads(it->node, input, work), image); /* Q2 */
}

/* A pointwise item makes the whole box its users read, if that lets it stay off the network. */
static bool makes_halo(const struct wf_node *n)
{
    return (n->op->flags & WF_OP_POINTWISE) && (n->op->flags & WF_OP_CHEAP) && n->n_out == 1;
}

static bool is_output(const struct wf_graph *g, const struct wf_value *v)
{
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == v)
            return true;
    return false;
}

struct wf_region wf_geometry_owned(const struct wf_geometry *geo, int rank,
                                   const struct wf_value *v)
{
    const struct wf_region whole = wf_shape_region(v->shape);
    if (!geo->is_windowed)
        return wf_layout_owned(&geo->layout, v, rank);
    if (v->kind == WF_PARAM || v->kind == WF_STATE)
        return whole;
    if (!is_output(geo->graph, v))
        return (struct wf_region){ 0 };
    const bool sum = v->producer && wf_op_sums_over(v->producer);
    return sum ? whole : wf_region_intersect(geo->window, whole);
}

struct wf_region wf_geometry_beside(struct wf_region r, const struct wf_shape *of,
                                    const struct wf_shape *other)
{
    if (wf_region_is_empty(r))
        return r;
    struct wf_region part = wf_shape_region(*other);
    for (int a = 0; a < WF_C; a++)
        if (of->at[a] == other->at[a]) {
            part.lo[a] = r.lo[a];
            part.hi[a] = r.hi[a];
        }
    return part;
}

/* With a window: an item makes what is read of any of its outputs. A sum takes all that it is over,
 * unless its part is what the plan is for. */
static struct wf_region place_in_window(struct wf_geometry *geo, int item)
{
    const struct wf_item *it = &geo->program->items[item];
    const struct wf_node *n = it->node;
    struct wf_region need = { 0 };
    for (int o = 0; o < n->n_out; o++) {
        const struct wf_region read = wf_region_bound(*at_instance(geo, geo->box, 0, it->out[o]),
                                                      wf_geometry_owned(geo, 0, n->out[o]));
        need =
            wf_region_bound(need, wf_geometry_beside(read, &n->out[o]->shape, &n->out[0]->shape));
    }
    for (int o = 0; o < n->n_out; o++) {
        struct wf_region *box = at_instance(geo, geo->box, 0, it->out[o]);
        *box = wf_geometry_beside(need, &n->out[0]->shape, &n->out[o]->shape);
        *at_instance(geo, geo->have, 0, it->out[o]) = *box;
    }
    if (!wf_op_sums_over(n) || wf_region_is_empty(need))
        return need;
    const struct wf_region all = wf_shape_region(wf_op_domain(n)->shape);
    return is_output(geo->graph, n->out[0]) ? wf_region_intersect(geo->window, all) : all;
}

static struct wf_region place_in_mesh(struct wf_geometry *geo, int rank, int item)
{
    const struct wf_item *it = &geo->program->items[item];
    const struct wf_node *n = it->node;
    for (int o = 0; o < n->n_out; o++) {
        struct wf_region *have = at_instance(geo, geo->have, rank, it->out[o]);
        struct wf_region *box = at_instance(geo, geo->box, rank, it->out[o]);
        *have = wf_geometry_owned(geo, rank, n->out[o]);
        *box = wf_region_bound(*box, *have);
        if (makes_halo(n))
            *have = *box; /* Q1 */
    }
    return wf_op_sums_over(n) ? wf_geometry_owned(geo, rank, wf_op_domain(n))
                              : *at_instance(geo, geo->have, rank, it->out[0]);
}

static void place_item(struct wf_geometry *geo, int rank, int item)
{
    const struct wf_item *it = &geo->program->items[item];
    geo->work[wf_geometry_row(geo, rank) * (size_t)geo->program->n_items + (size_t)item] =
        geo->is_windowed ? place_in_window(geo, item) : place_in_mesh(geo, rank, item);
    for (int k = 0; k < it->node->n_in; k++) {
        if (it->in[k] < 0)
            continue;
        struct wf_region *box = at_instance(geo, geo->box, rank, it->in[k]);
        *box = wf_region_bound(*box, wf_geometry_reads(geo, rank, item, k));
    }
}

/* Walks the items backwards, so that all users of an instance are known before its maker. */
static void place_rank(struct wf_geometry *geo, int rank)
{
    const struct wf_program *p = geo->program;
    for (int item = p->n_items - 1; item >= 0; item--)
        place_item(geo, rank, item);
    for (int i = 0; i < p->n_instances; i++) {
        if (p->instances[i].maker >= 0)
            continue;
        struct wf_region *have = at_instance(geo, geo->have, rank, i);
        struct wf_region *box = at_instance(geo, geo->box, rank, i);
        *box = wf_region_bound(*box, wf_geometry_owned(geo, rank, p->instances[i].value));
        *have = *box; /* inputs are given with their halo */
    }
}

/* How many of the value's cut points 1 .. parts - 1 lie at or below `at`. */
static int points_up_to(const struct wf_layout *l, const struct wf_value *v, enum wf_axis axis,
                        int64_t at)
{
    int low = 0, high = wf_layout_parts(l, v, axis) - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (wf_layout_point(l, v, axis, middle) <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The parts of the value's axis that meet [lo, hi): first and last + 1. */
static void parts_that_meet(const struct wf_layout *l, const struct wf_value *v, enum wf_axis axis,
                            const struct wf_region *box, int *first, int *end)
{
    *first = points_up_to(l, v, axis, box->lo[axis]);
    *end = points_up_to(l, v, axis, box->hi[axis] - 1) + 1;
}

struct collector {
    struct wf_transfer *items;
    size_t count, room;
};

/* Cuts a missing box along the owners' borders: one transfer per owner. */
static void collect(struct collector *c, const struct wf_layout *l, const struct wf_value *v,
                    int to, struct wf_region missing)
{
    int at[WF_MESH_AXES], first[WF_C], end[WF_C], owner[WF_MESH_AXES];
    wf_mesh_coords(&l->mesh, to, at);
    for (int a = 0; a < WF_C; a++) {
        first[a] = 0;
        end[a] = 1;
        if (wf_layout_is_cut(l, v, (enum wf_axis)a))
            parts_that_meet(l, v, (enum wf_axis)a, &missing, &first[a], &end[a]);
    }
    for (int a = 0; a < WF_MESH_AXES; a++)
        owner[a] = at[a];
    for (int n = first[WF_N]; n < end[WF_N]; n++)
        for (int d = first[WF_D]; d < end[WF_D]; d++)
            for (int h = first[WF_H]; h < end[WF_H]; h++)
                for (int w = first[WF_W]; w < end[WF_W]; w++) {
                    const int part[WF_C] = { n, d, h, w };
                    for (int a = 0; a < WF_C; a++)
                        wf_layout_part_coords(l, v, (enum wf_axis)a, part[a], owner);
                    const int from = wf_mesh_rank(&l->mesh, owner);
                    const struct wf_region box =
                        wf_region_intersect(missing, wf_layout_owned(l, v, from));
                    if (from == to || wf_region_is_empty(box))
                        continue;
                    WF_GROW(c->items, c->room, c->count);
                    c->items[c->count++] = (struct wf_transfer){ from, to, box };
                }
}

static int by_sender(const void *a, const void *b)
{
    const struct wf_transfer *x = a, *y = b;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    for (int i = 0; i < WF_AXES; i++)
        if (x->box.lo[i] != y->box.lo[i])
            return x->box.lo[i] < y->box.lo[i] ? -1 : 1;
    return 0;
}

static bool reads_halo(const struct wf_geometry *geo, int item, int input, int instance)
{
    for (int r = 0; r < geo->n_ranks; r++)
        if (!wf_region_contains(wf_geometry_have(geo, r, instance),
                                wf_geometry_reads(geo, r, item, input)))
            return true;
    return false;
}

static int first_halo_reader(const struct wf_geometry *geo, int instance)
{
    const struct wf_program *p = geo->program;
    for (int item = p->instances[instance].maker + 1; item < p->n_items; item++)
        for (int k = 0; k < p->items[item].node->n_in; k++)
            if (p->items[item].in[k] == instance && reads_halo(geo, item, k, instance))
                return item;
    wf_bug(__FILE__, __LINE__, "fetch", "nobody reads the halo of '%s'",
           p->instances[instance].value->name);
}

/* Finds each rank's transfers, so that making its plan looks at no others. */
static void index_transfers(struct wf_arena *arena, struct wf_fetch *f, int n_ranks)
{
    f->first_of = wf_arena_array(arena, n_ranks + 2, int);
    f->of_rank = wf_arena_array(arena, 2 * f->n_transfers, int);
    int *const next = f->first_of + 1; /* counts, then where the next one goes, then the ends */
    for (int i = 0; i < f->n_transfers; i++) {
        next[f->transfers[i].from + 1]++;
        next[f->transfers[i].to + 1]++;
    }
    for (int r = 0; r < n_ranks; r++)
        next[r + 1] += next[r];
    for (int i = 0; i < f->n_transfers; i++) {
        f->of_rank[next[f->transfers[i].from]++] = i;
        f->of_rank[next[f->transfers[i].to]++] = i;
    }
}

static void find_fetches(struct wf_arena *arena, struct wf_geometry *geo)
{
    const struct wf_program *p = geo->program;
    struct collector c = { 0 };
    geo->fetches = wf_arena_array(arena, p->n_instances, struct wf_fetch);
    for (int i = 0; i < p->n_instances; i++) {
        const struct wf_value *v = p->instances[i].value;
        c.count = 0;
        for (int r = 0; r < geo->n_ranks && !v->replicated; r++) {
            struct wf_region missing[WF_SUBTRACT_MAX];
            const int n = wf_region_subtract(wf_geometry_box(geo, r, i),
                                             wf_geometry_have(geo, r, i), missing);
            for (int k = 0; k < n; k++)
                collect(&c, &geo->layout, v, r, missing[k]);
        }
        if (c.count == 0)
            continue;
        qsort(c.items, c.count, sizeof *c.items, by_sender); /* Q3 */
        struct wf_fetch *f = &geo->fetches[geo->n_fetches];
        f->instance = i;
        f->n_transfers = (int)c.count;
        f->transfers = wf_arena_array(arena, c.count, struct wf_transfer);
        memcpy(f->transfers, c.items, c.count * sizeof *c.items);
        f->before = first_halo_reader(geo, i);
        index_transfers(arena, f, geo->n_ranks);
        geo->fetch_of[i] = geo->n_fetches++;
    }
    for (int f = geo->n_fetches - 1; f >= 0; f--) {
        int *const first = &geo->first_before[geo->fetches[f].before];
        geo->fetches[f].next_before = *first;
        *first = f;
    }
    free(c.items);
}

/* A sum is partial along every mesh axis that cuts one of its axes. */
static unsigned reduce_axes(const struct wf_layout *l, const struct wf_node *n)
{
    unsigned mask = 0;
    const unsigned over = wf_op_stays(n) ? 0 : wf_op_sums_over(n);
    for (int a = 0; a < WF_C; a++)
        if (over & WF_AXIS(a))
            mask |= wf_layout_cutters(l, wf_op_domain(n), (enum wf_axis)a);
    return mask;
}

static void take_memory(struct wf_arena *arena, struct wf_geometry *geo)
{
    const struct wf_program *const p = geo->program;
    const size_t ranks = geo->only < 0 ? (size_t)geo->n_ranks : 1;
    geo->work = wf_arena_array(arena, ranks * (size_t)p->n_items, struct wf_region);
    geo->have = wf_arena_array(arena, ranks * (size_t)p->n_instances, struct wf_region);
    geo->box = wf_arena_array(arena, ranks * (size_t)p->n_instances, struct wf_region);
    geo->fetch_of = wf_arena_array(arena, p->n_instances, int);
    geo->first_before = wf_arena_array(arena, p->n_items, int);
    geo->reduce = wf_arena_array(arena, p->n_items, unsigned);
    for (int i = 0; i < p->n_instances; i++)
        geo->fetch_of[i] = -1;
    for (int i = 0; i < p->n_items; i++)
        geo->first_before[i] = -1;
}

bool wf_geometry_init(struct wf_arena *arena, struct wf_geometry *geo, const struct wf_graph *g,
                      const struct wf_program *program, const struct wf_mesh *mesh,
                      const struct wf_geometry_options *options, struct wf_err *err)
{
    *geo = (struct wf_geometry){
        .graph = g, .program = program, .n_ranks = wf_mesh_size(mesh), .only = options->only
    };
    if (options->window) {
        WF_BUG_ON(geo->n_ranks != 1 || g->n_updates, "a window of %d ranks, %zu updates",
                  geo->n_ranks, g->n_updates);
        geo->is_windowed = true;
        geo->window = *options->window;
    }
    if (!wf_layout_init(arena, &geo->layout, g, mesh, err))
        return false;
    take_memory(arena, geo);
    for (int i = 0; i < program->n_items; i++)
        geo->reduce[i] = reduce_axes(&geo->layout, program->items[i].node);
    if (geo->only >= 0) {
        place_rank(geo, geo->only);
        return true;
    }
    for (int r = 0; r < geo->n_ranks; r++)
        place_rank(geo, r);
    find_fetches(arena, geo);
    return true;
}
