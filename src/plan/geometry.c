#include "plan/geometry.h"

#include <stdlib.h>

#include "ops/op.h"

struct wf_region wf_geometry_reads(const struct wf_geometry *geo, int rank, int item, int input)
{
    const struct wf_item *it = &geo->program->items[item];
    const struct wf_region work = wf_geometry_work(geo, rank, item);
    if (wf_region_is_empty(work))
        return (struct wf_region){ 0 };
    const struct wf_region image = wf_shape_region(it->node->in[input]->shape);
    return wf_region_intersect(wf_op_reads(it->node, input, work), image); /* Q2 */
}

/* Whether the item is placed on the rank; where it is, it may still have nothing to do. */
static bool runs_on(const struct wf_geometry *geo, int rank, int item)
{
    const struct wf_node *const n = geo->program->items[item].node;
    return wf_layout_tiling(&geo->layout, &geo->layout.of_node[n->id], rank) != NULL;
}

bool wf_geometry_adds(const struct wf_geometry *geo, int rank, int item, int input)
{
    const struct wf_layout *const l = &geo->layout;
    const int in = geo->program->items[item].in[input];
    const int maker = geo->program->instances[in].maker;
    const struct wf_placement *const p = maker < 0
                                             ? &l->of_value[geo->program->instances[in].value->id]
                                             : &l->of_node[geo->program->items[maker].node->id];
    const struct wf_grouping *const mine = geo->grouping[item];
    const struct wf_grouping *const partial =
        maker >= 0 && geo->is_deferred[maker] ? geo->grouping[maker] : NULL;
    if (!wf_layout_tiling(l, p, rank))
        return false;
    if (!mine || partial == mine)
        return true;
    /* Of the ranks that have the same, the first one; of the groups that have the same, the first. */
    const int first = wf_mesh_rank(&l->mesh, p->tilings[0]->block.lo);
    return partial ? partial->group_of[rank] == partial->group_of[first] : rank == first;
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
        const struct wf_region read =
            wf_region_bound(geo->ranks[0].box[it->out[o]], wf_geometry_owned(geo, 0, n->out[o]));
        need =
            wf_region_bound(need, wf_geometry_beside(read, &n->out[o]->shape, &n->out[0]->shape));
    }
    for (int o = 0; o < n->n_out; o++) {
        struct wf_region *box = &geo->ranks[0].box[it->out[o]];
        *box = wf_geometry_beside(need, &n->out[0]->shape, &n->out[o]->shape);
        geo->ranks[0].have[it->out[o]] = *box;
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
    const bool runs = runs_on(geo, rank, item);
    for (int o = 0; o < n->n_out; o++) {
        struct wf_region *have = &geo->ranks[rank].have[it->out[o]];
        struct wf_region *box = &geo->ranks[rank].box[it->out[o]];
        const struct wf_region owned = wf_geometry_owned(geo, rank, n->out[o]);
        *have = runs ? owned : (struct wf_region){ 0 }; /* Q4 */
        *box = wf_region_bound(*box, owned);
        if (runs && makes_halo(n))
            *have = *box; /* Q1 */
    }
    if (!runs)
        return (struct wf_region){ 0 };
    return wf_op_sums_over(n)
               ? wf_layout_part(&geo->layout, wf_op_domain(n), &geo->layout.of_node[n->id], rank)
               : geo->ranks[rank].have[it->out[0]];
}

static void place_item(struct wf_geometry *geo, int rank, int item)
{
    const struct wf_item *it = &geo->program->items[item];
    geo->ranks[rank].work[item] =
        geo->is_windowed ? place_in_window(geo, item) : place_in_mesh(geo, rank, item);
    for (int k = 0; k < it->node->n_in; k++) {
        if (it->in[k] < 0 ||
            ((it->node->op->flags & WF_OP_COLLECTS) && !wf_geometry_adds(geo, rank, item, k)))
            continue;
        struct wf_region *box = &geo->ranks[rank].box[it->in[k]];
        *box = wf_region_bound(*box, wf_geometry_reads(geo, rank, item, k));
    }
}

/* Walks the items backwards, so that all users of an instance are known before its maker. */
void wf_geometry_place(struct wf_arena *arena, struct wf_geometry *geo, int rank)
{
    const struct wf_program *p = geo->program;
    struct wf_rank_regions *const at = &geo->ranks[rank];
    if (at->work)
        return;
    at->work = wf_arena_array(arena, p->n_items + 2 * p->n_instances + 1, struct wf_region);
    at->have = at->work + p->n_items;
    at->box = at->have + p->n_instances;
    for (int item = p->n_items - 1; item >= 0; item--)
        place_item(geo, rank, item);
    for (int i = 0; i < p->n_instances; i++) {
        if (p->instances[i].maker >= 0)
            continue;
        struct wf_region *have = &geo->ranks[rank].have[i];
        struct wf_region *box = &geo->ranks[rank].box[i];
        *box = wf_region_bound(*box, wf_geometry_owned(geo, rank, p->instances[i].value));
        *have = *box; /* inputs are given with their halo */
    }
    for (int i = 0; i < p->n_instances; i++)
        geo->is_fetched[i] = geo->is_fetched[i] || !wf_region_equal(at->box[i], at->have[i]);
}

/* How many of the value's cut points 1 .. parts - 1 lie at or below `at`. */
static int points_up_to(const struct wf_layout *l, const struct wf_tiling *tiling,
                        const struct wf_value *v, enum wf_axis axis, int64_t at)
{
    int low = 0, high = wf_layout_parts(l, tiling, v, axis) - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (wf_layout_point(l, tiling, v, axis, middle) <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct collector {
    struct wf_transfer *items;
    size_t count, room;
    int *into; /* per item: see struct wf_fetch */
};

/* Where a rank looks for what it lacks: the block that made it, at its own coordinates where the block
 * has them. */
static const struct wf_tiling *find_source(const struct wf_geometry *geo, int instance, int to,
                                           int at[WF_MESH_AXES])
{
    const struct wf_instance *const in = &geo->program->instances[instance];
    const struct wf_layout *const l = &geo->layout;
    const struct wf_placement *const p = in->maker < 0
                                             ? &l->of_value[in->value->id]
                                             : &l->of_node[geo->program->items[in->maker].node->id];
    const struct wf_tiling *const own = wf_layout_tiling(l, p, to);
    const struct wf_tiling *const source = own ? own : p->tilings[0];
    wf_mesh_coords(&l->mesh, to, at);
    for (int a = 0; a < WF_MESH_AXES && !own; a++)
        at[a] = source->block.lo[a] + at[a] % wf_block_extent(&source->block, a);
    return source;
}

/* Cuts a missing box along the owners' borders: one transfer per owner. */
static void collect(struct collector *c, const struct wf_geometry *geo, int instance, int to,
                    struct wf_region missing)
{
    const struct wf_layout *const l = &geo->layout;
    const struct wf_value *const v = geo->program->instances[instance].value;
    int first[WF_C], end[WF_C], owner[WF_MESH_AXES];
    const struct wf_tiling *const tiling = find_source(geo, instance, to, owner);
    for (int a = 0; a < WF_C; a++) { /* the parts that meet what is missing */
        const enum wf_axis axis = (enum wf_axis)a;
        first[a] = points_up_to(l, tiling, v, axis, missing.lo[a]);
        end[a] = points_up_to(l, tiling, v, axis, missing.hi[a] - 1) + 1;
    }
    for (int n = first[WF_N]; n < end[WF_N]; n++)
        for (int d = first[WF_D]; d < end[WF_D]; d++)
            for (int h = first[WF_H]; h < end[WF_H]; h++)
                for (int w = first[WF_W]; w < end[WF_W]; w++) {
                    const int part[WF_C] = { n, d, h, w };
                    for (int a = 0; a < WF_C; a++)
                        wf_layout_part_coords(l, tiling, v, (enum wf_axis)a, part[a], owner);
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
    return p->n_items; /* it is only held: the end of the step is early enough */
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

static int stage_of(const struct wf_geometry *geo, int rank)
{
    int at[WF_MESH_AXES];
    wf_mesh_coords(&geo->layout.mesh, rank, at);
    return at[WF_MESH_PIPE];
}

/* The segment before which what has to cross to another stage travels: its first that reads it. */
static int find_into(const struct wf_geometry *geo, int instance, const struct wf_transfer *t)
{
    const struct wf_stages *const s = geo->layout.stages;
    const struct wf_program *const p = geo->program;
    if (!s || s->n_stages == 1 || stage_of(geo, t->from) == stage_of(geo, t->to))
        return -1;
    for (int item = p->instances[instance].maker + 1; item < p->n_items; item++)
        for (int k = 0; k < p->items[item].node->n_in; k++)
            if (p->items[item].in[k] == instance &&
                wf_stages_of_segment(s, p->items[item].segment) == stage_of(geo, t->to))
                return p->items[item].segment;
    return s->n_segments - 1; /* it is only held */
}

/* Of those collected, all that travel into one segment, or within a stage. */
static void add_fetch(struct wf_arena *arena, struct wf_geometry *geo, int instance,
                      const struct collector *c, int into)
{
    struct wf_fetch *const f = &geo->fetches[geo->n_fetches];
    *f = (struct wf_fetch){ .instance = instance, .into = into, .before = -1, .next_before = -1 };
    f->transfers = wf_arena_array(arena, c->count, struct wf_transfer);
    for (size_t i = 0; i < c->count; i++)
        if (c->into[i] == into)
            f->transfers[f->n_transfers++] = c->items[i];
    if (f->n_transfers == 0)
        return;
    index_transfers(arena, f, geo->n_ranks);
    if (into < 0) {
        f->before = first_halo_reader(geo, instance);
        geo->fetch_of[instance] = geo->n_fetches;
    } else {
        geo->crosses[instance] = true;
    }
    geo->n_fetches++;
}

static void find_fetches_of(struct wf_arena *arena, struct wf_geometry *geo, int instance,
                            struct collector *c)
{
    const struct wf_stages *const s = geo->layout.stages;
    c->count = 0;
    for (int r = 0; r < geo->n_ranks; r++) {
        struct wf_region missing[WF_SUBTRACT_MAX];
        const int n = wf_region_subtract(wf_geometry_box(geo, r, instance),
                                         wf_geometry_have(geo, r, instance), missing);
        for (int k = 0; k < n; k++)
            collect(c, geo, instance, r, missing[k]);
    }
    geo->is_fetched[instance] = c->count > 0; /* what nobody owns is not */
    if (c->count == 0)
        return;
    qsort(c->items, c->count, sizeof *c->items, by_sender); /* Q3 */
    c->into = wf_arena_array(arena, c->count, int);
    for (size_t i = 0; i < c->count; i++)
        c->into[i] = find_into(geo, instance, &c->items[i]);
    add_fetch(arena, geo, instance, c, -1);
    for (int segment = 0; s && s->n_stages > 1 && segment < s->n_segments; segment++)
        add_fetch(arena, geo, instance, c, segment);
}

void wf_geometry_find_fetches(struct wf_arena *arena, struct wf_geometry *geo)
{
    const struct wf_program *p = geo->program;
    const int stages = geo->layout.mesh.at[WF_MESH_PIPE];
    struct collector c = { 0 };
    for (int r = 0; r < geo->n_ranks; r++)
        wf_geometry_place(arena, geo, r);
    geo->fetches = wf_arena_array(arena, p->n_instances * stages + 1, struct wf_fetch);
    for (int i = 0; i < p->n_instances; i++)
        find_fetches_of(arena, geo, i, &c);
    for (int f = geo->n_fetches - 1; f >= 0; f--) {
        struct wf_fetch *const fetch = &geo->fetches[f];
        int *const first =
            fetch->into < 0 ? &geo->first_before[fetch->before] : &geo->first_into[fetch->into];
        *(fetch->into < 0 ? &fetch->next_before : &fetch->next_into) = *first;
        *first = f;
    }
    free(c.items);
}

/* A sum is partial along every mesh axis that cuts one of its axes. */
static const struct wf_grouping *find_grouping(struct wf_arena *arena, struct wf_geometry *geo,
                                               const struct wf_node *n)
{
    const struct wf_placement *const p = &geo->layout.of_node[n->id];
    const unsigned over = wf_op_is_local(n) ? 0 : wf_op_sums_over(n);
    unsigned axes = 0;
    for (int a = 0; a < WF_C; a++)
        if (over & WF_AXIS(a))
            axes |=
                wf_layout_cutters(&geo->layout, p->tilings[0], wf_op_domain(n), (enum wf_axis)a);
    return axes ? wf_groups_form(arena, &geo->groups, p, axes) : NULL;
}

/* Whether all results of an item are for items that collect, and for nobody else. */
static bool is_for_collectors(const struct wf_program *p, int item)
{
    for (int o = 0; o < p->items[item].node->n_out; o++) {
        const struct wf_instance *const in = &p->instances[p->items[item].out[o]];
        if (in->keep || in->n_uses > 1 ||
            (in->n_uses == 1 && !(p->items[in->last_use].node->op->flags & WF_OP_COLLECTS)))
            return false;
    }
    return true;
}

/* What it adds up may be partial over one grouping, and then so is its result; or over several, or
 * complete on some ranks: then it is partial over all ranks that have a contribution. */
static void collect_contributions(struct wf_arena *arena, struct wf_geometry *geo, int item)
{
    const struct wf_program *const p = geo->program;
    const struct wf_item *const it = &p->items[item];
    const struct wf_placement *const placement = &geo->layout.of_node[it->node->id];
    const struct wf_grouping *one = NULL;
    bool is_one = placement->n == 1;
    for (int k = 0; k < it->node->n_in; k++) {
        const struct wf_instance *const in = &p->instances[it->in[k]];
        const bool is_mine = in->maker >= 0 && is_for_collectors(p, in->maker);
        const struct wf_grouping *const r = is_mine ? geo->grouping[in->maker] : NULL;
        is_one = is_one && (k == 0 || r == one);
        one = r;
        if (is_mine)
            geo->is_deferred[in->maker] = r != NULL;
    }
    geo->grouping[item] = is_one ? one : wf_groups_form(arena, &geo->groups, placement, ~0u);
}

static void find_groupings(struct wf_arena *arena, struct wf_geometry *geo)
{
    const struct wf_program *const p = geo->program;
    geo->groups.mesh = geo->layout.mesh;
    for (int i = 0; i < p->n_items; i++) {
        if (p->items[i].node->op->flags & WF_OP_COLLECTS)
            collect_contributions(arena, geo, i);
        else
            geo->grouping[i] = find_grouping(arena, geo, p->items[i].node);
    }
}

static void take_memory(struct wf_arena *arena, struct wf_geometry *geo)
{
    const struct wf_program *const p = geo->program;
    geo->ranks = wf_arena_array(arena, geo->n_ranks, struct wf_rank_regions);
    geo->is_fetched = wf_arena_array(arena, p->n_instances, bool);
    geo->fetch_of = wf_arena_array(arena, p->n_instances, int);
    geo->first_before = wf_arena_array(arena, p->n_items + 1, int);
    geo->grouping = wf_arena_array(arena, p->n_items, const struct wf_grouping *);
    geo->is_deferred = wf_arena_array(arena, p->n_items, bool);
    const int segments = geo->layout.stages ? geo->layout.stages->n_segments : 1;
    geo->first_into = wf_arena_array(arena, segments, int);
    geo->crosses = wf_arena_array(arena, p->n_instances, bool);
    for (int i = 0; i < segments; i++)
        geo->first_into[i] = -1;
    for (int i = 0; i < p->n_instances; i++)
        geo->fetch_of[i] = -1;
    for (int i = 0; i <= p->n_items; i++)
        geo->first_before[i] = -1;
}

bool wf_geometry_init(struct wf_arena *arena, struct wf_geometry *geo, const struct wf_graph *g,
                      const struct wf_program *program, const struct wf_mesh *mesh,
                      const struct wf_geometry_options *options, struct wf_err *err)
{
    *geo = (struct wf_geometry){ .graph = g, .program = program, .n_ranks = wf_mesh_size(mesh) };
    if (options->window) {
        WF_BUG_ON(geo->n_ranks != 1 || g->n_updates, "a window of %d ranks, %zu updates",
                  geo->n_ranks, g->n_updates);
        geo->is_windowed = true;
        geo->window = *options->window;
    }
    if (!wf_layout_init(arena, &geo->layout, g, mesh, &options->layout, err))
        return false;
    take_memory(arena, geo);
    find_groupings(arena, geo);
    return true;
}

void wf_geometry_release(struct wf_geometry *geo)
{
    wf_groups_release(&geo->groups);
}
