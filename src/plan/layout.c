#include "plan/layout.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/op.h"

/* --- scales and cut points --- */

/* Strides multiply up along the graph. A ratio of extents is rounded to a whole stride (or a whole
 * magnification): 189 -> 94 is a stride of 2, so that odd images keep the cuts of even ones. */
static double step_scale(int64_t in, int64_t out)
{
    if (in == out || in < 1 || out < 1)
        return 1.0;
    return in > out ? round((double)in / (double)out) : 1.0 / round((double)out / (double)in);
}

static const struct wf_value *first_image(const struct wf_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] && !n->in[i]->replicated)
            return n->in[i];
    return NULL;
}

static void find_scales(struct wf_layout *l, const struct wf_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        const struct wf_value *from = v->producer ? first_image(v->producer) : NULL;
        for (int a = 0; a < WF_AXES; a++) {
            double *scale = &l->scale[v->id][a];
            if (!from || from->shape.at[a] == 1)
                *scale = step_scale(l->image[a], v->shape.at[a]);
            else
                *scale = l->scale[from->id][a] * step_scale(from->shape.at[a], v->shape.at[a]);
        }
    }
}

/* The coarsest stride for which each part still has several rows; 1 where none has. */
static int64_t alignment(const struct wf_layout *l, const struct wf_graph *g, enum wf_axis axis,
                         int64_t parts)
{
    double best = 1.0;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *v = g->values[i];
        const double scale = l->scale[v->id][axis];
        if (!v->replicated && v->shape.at[axis] >= 4 * parts && scale > best &&
            scale == floor(scale))
            best = scale;
    }
    return (int64_t)best;
}

static const int64_t *cut_points(struct wf_arena *arena, const struct wf_layout *l,
                                 const struct wf_graph *g, enum wf_axis axis, int64_t parts)
{
    const int64_t align = alignment(l, g, axis, parts), extent = l->image[axis];
    int64_t *const points = wf_arena_array(arena, parts + 1, int64_t);
    for (int64_t i = 1; i < parts; i++) {
        /* Of samples the first ranks have one more: rounded up. */
        const int64_t even = axis == WF_N ? extent - wf_split_point(extent, parts, parts - i)
                                          : wf_split_point(extent, parts, i);
        points[i] = (even + align / 2) / align * align;
    }
    points[parts] = extent;
    return points;
}

/* --- placement --- */

static const struct wf_tiling *tiling_of(struct wf_arena *arena, struct wf_layout *l,
                                         const struct wf_graph *g, const struct wf_block *block)
{
    for (int i = 0; i < l->n_tilings; i++)
        if (wf_block_equal(&l->tilings[i]->block, block))
            return l->tilings[i];
    struct wf_tiling *const tiling = wf_arena_one(arena, struct wf_tiling);
    tiling->block = *block;
    tiling->has_all = wf_block_size(block) == wf_mesh_size(&l->mesh);
    for (int a = 0; a < WF_C; a++)
        tiling->cut[a] = cut_points(arena, l, g, (enum wf_axis)a,
                                    wf_block_extent(block, wf_mesh_axis_of((enum wf_axis)a)));
    l->tilings[l->n_tilings++] = tiling;
    return tiling;
}

/* `room` is one more than there can be of them. */
static void add_tiling(struct wf_arena *arena, struct wf_placement *p,
                       const struct wf_tiling *tiling, int room)
{
    if (!p->tilings)
        p->tilings = wf_arena_array(arena, room, const struct wf_tiling *);
    for (int i = 0; i < p->n; i++)
        if (p->tilings[i] == tiling)
            return;
    p->tilings[p->n++] = tiling;
}

static void add_placement(struct wf_arena *arena, struct wf_placement *p,
                          const struct wf_placement *other, int room)
{
    for (int i = 0; i < other->n; i++)
        add_tiling(arena, p, other->tilings[i], room);
}

/* What nodes are placed by. */
struct placer {
    struct wf_arena *arena;
    struct wf_layout *l;
    const struct wf_graph *g;
    const struct wf_block *domains; /* all ranks, then those of each domain */
    int n_domains;
    int room; /* one more than there can be tilings */
};

static struct wf_block block_of(const struct placer *p, const struct wf_node *n)
{
    struct wf_block block = p->domains[p->n_domains ? n->domain : 0];
    const struct wf_stages *const stages = p->l->stages;
    if (stages && stages->n_stages > 1) {
        block.lo[WF_MESH_PIPE] = wf_stages_chunk(stages, n) % stages->n_stages;
        block.hi[WF_MESH_PIPE] = block.lo[WF_MESH_PIPE] + 1;
    }
    return block;
}

static void place_node(const struct placer *p, const struct wf_node *n)
{
    struct wf_layout *const l = p->l;
    struct wf_placement *const at = &l->of_node[n->id];
    for (int k = 0; (n->op->flags & WF_OP_COLLECTS) && k < n->n_in; k++)
        add_placement(p->arena, at, &l->of_value[n->in[k]->id], p->room);
    const struct wf_block block = block_of(p, n);
    if (at->n == 0)
        add_tiling(p->arena, at, tiling_of(p->arena, l, p->g, &block), p->room);
    for (int i = 0; i < n->n_out; i++)
        l->of_value[n->out[i]->id] = *at;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] && n->in[k]->kind != WF_TEMP)
            add_placement(p->arena, &l->of_value[n->in[k]->id], at, p->room);
}

static void place_all(const struct placer *p)
{
    const struct wf_graph *const g = p->g;
    struct wf_layout *const l = p->l;
    l->of_value = wf_arena_array(p->arena, g->n_values, struct wf_placement);
    l->of_node = wf_arena_array(p->arena, g->n_nodes, struct wf_placement);
    l->tilings = wf_arena_array(p->arena, p->room, const struct wf_tiling *);
    for (size_t i = 0; i < g->n_nodes; i++)
        place_node(p, g->nodes[i]);
    for (size_t i = 0; i < g->n_values; i++)
        if (l->of_value[i].n == 0) /* nothing reads it: it may be anywhere */
            add_tiling(p->arena, &l->of_value[i], tiling_of(p->arena, l, g, &p->domains[0]), 2);
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i]->grad_of)
            l->of_value[i] = l->of_value[g->values[i]->grad_of->id];
    for (size_t i = 0; i < g->n_updates; i++)
        l->of_value[g->updates[i].next->id] = l->of_value[g->updates[i].state->id];
}

static void order_weights(struct wf_arena *arena, struct wf_layout *l, const struct wf_graph *g)
{
    bool *const done = wf_arena_array(arena, g->n_values, bool);
    l->weights = wf_arena_array(arena, g->n_values, int);
    for (size_t first = 0; first < g->n_values; first++)
        for (size_t i = first; i < g->n_values; i++) {
            const bool weight = g->values[i]->kind == WF_PARAM || g->values[i]->kind == WF_STATE;
            if (i == first && (done[i] || !weight))
                break; /* it came with an earlier one, or has no place */
            if (!weight || done[i] || !wf_placement_equal(&l->of_value[i], &l->of_value[first]))
                continue;
            done[i] = true;
            l->weights[l->n_weights++] = (int)i;
        }
}

/* All ranks, and where each domain's nodes run; NULL on error. */
static struct wf_block *find_blocks(struct wf_arena *arena, const struct wf_graph *g,
                                    const struct wf_mesh *mesh, const struct wf_layout_options *o,
                                    struct wf_err *err)
{
    struct wf_block *const blocks = wf_arena_array(arena, o->n_domains + 1, struct wf_block);
    blocks[0] = wf_mesh_block(mesh);
    if (!o->n_domains && mesh->at[WF_MESH_DOMAIN] > 1) {
        (void)wf_err_set(err, WF_ERR_FIT,
                         "mesh: axis domain is not supported by this network: use data, pipe and "
                         "space");
        return NULL;
    }
    if (o->n_domains && !o->place(o->user, mesh, blocks + 1, err))
        return NULL;
    for (int d = 1; d <= o->n_domains; d++)
        for (int a = 0; a < WF_MESH_AXES; a++)
            WF_BUG_ON(blocks[d].lo[a] < 0 || blocks[d].lo[a] >= blocks[d].hi[a] ||
                          blocks[d].hi[a] > blocks[0].hi[a],
                      "domain %d is on ranks %d to %d of %d", d, blocks[d].lo[a], blocks[d].hi[a],
                      blocks[0].hi[a]);
    for (size_t i = 0; o->n_domains && i < g->n_nodes; i++)
        WF_BUG_ON(g->nodes[i]->domain > o->n_domains, "node '%s' of domain %d, and there are %d",
                  g->nodes[i]->name, g->nodes[i]->domain, o->n_domains);
    return blocks;
}

/* An input whose extents are those of the image. */
static bool is_image(const struct wf_value *v)
{
    return v->kind == WF_INPUT && !v->replicated && !v->set && !v->per_rank;
}

/* Points are cut along space where the graph was built for the ranks there: it has the nodes that fetch others'. */
static bool check_points(const struct wf_graph *g, const struct wf_mesh *mesh, struct wf_err *err)
{
    static const char *const names[WF_C] = { "data", "space D", "space H", "space W" };
    const struct wf_value *made_for = NULL;
    if (mesh->at[WF_MESH_PIPE] > 1) /* how many rows a set has is known where it is made */
        return wf_err_set(err, WF_ERR_FIT,
                          "mesh: axis pipe is not supported by networks of points: use data and "
                          "space");
    for (size_t i = 0; !made_for && i < g->n_values; i++)
        made_for = g->values[i]->kind == WF_INPUT && g->values[i]->per_rank ? g->values[i] : NULL;
    for (int a = made_for ? WF_N : WF_D; wf_mesh_size(mesh) > 1 && a < WF_C; a++) {
        const int parts = mesh->at[wf_mesh_axis_of((enum wf_axis)a)];
        const int64_t wanted = made_for ? made_for->shape.at[a] : 1;
        if (parts != wanted)
            return wf_err_set(err, WF_ERR_FIT,
                              "mesh: %d ranks along %s, but this graph of points was built for "
                              "%" PRId64 ": use data, or build it for that mesh",
                              parts, names[a], wanted);
    }
    return true;
}

bool wf_layout_init(struct wf_arena *arena, struct wf_layout *l, const struct wf_graph *g,
                    const struct wf_mesh *mesh, const struct wf_layout_options *options,
                    struct wf_err *err)
{
    *l = (struct wf_layout){ .mesh = *mesh, .stages = options->stages };
    const struct wf_block *const blocks = find_blocks(arena, g, mesh, options, err);
    if (!blocks)
        return false;
    for (int a = 0; a < WF_AXES; a++)
        l->image[a] = 1;
    for (size_t i = 0; i < g->n_values; i++)
        for (int a = 0; a < WF_AXES; a++)
            if (is_image(g->values[i]))
                l->image[a] = wf_max(l->image[a], g->values[i]->shape.at[a]);
    if (g->rows && !check_points(g, mesh, err))
        return false;
    for (int a = WF_D; a < WF_C && !g->rows; a++) { /* points are cut by any axis */
        /* Fewer samples than ranks are no hindrance: the last batch of an epoch may be small. */
        const int64_t parts = mesh->at[wf_mesh_axis_of((enum wf_axis)a)];
        if (parts > 1 && parts > l->image[a])
            return wf_err_set(err, WF_ERR_FIT,
                              "mesh: %" PRId64 " ranks along space %c, but the image has %" PRId64
                              " there: use at most %" PRId64,
                              parts, "NDHW"[a], l -> image[a], l -> image[a]);
    }
    l->scale = wf_arena_take_array(arena, g->n_values, sizeof *l->scale);
    find_scales(l, g);
    place_all(&(struct placer){ .arena = arena,
                                .l = l,
                                .g = g,
                                .domains = blocks,
                                .n_domains = options->n_domains,
                                .room = (options->n_domains + 1) * mesh->at[WF_MESH_PIPE] + 2 });
    order_weights(arena, l, g);
    return true;
}

const struct wf_tiling *wf_layout_tiling(const struct wf_layout *l,
                                         const struct wf_placement *placement, int rank)
{
    int at[WF_MESH_AXES];
    if (placement->n == 1 && placement->tilings[0]->has_all) /* mostly: no need to look */
        return placement->tilings[0];
    wf_mesh_coords(&l->mesh, rank, at);
    for (int i = 0; i < placement->n; i++)
        if (wf_block_has(&placement->tilings[i]->block, at))
            return placement->tilings[i];
    return NULL;
}

/* --- parts --- */

/* More samples than the image has, and enough for every rank; rows of points always. */
static bool is_distributed_by_sample(const struct wf_layout *l, const struct wf_tiling *tiling,
                                     const struct wf_value *v)
{
    if (v->set || v->per_rank)
        return v->set != 0;
    return l->scale[v->id][WF_N] < 1 && v->shape.at[WF_N] >= wf_block_size(&tiling->block);
}

unsigned wf_layout_cutters(const struct wf_layout *l, const struct wf_tiling *tiling,
                           const struct wf_value *v, enum wf_axis axis)
{
    if (v->replicated || axis == WF_C || v->shape.at[axis] == 1)
        return 0;
    unsigned mask = 1u << wf_mesh_axis_of(axis), cutters = 0;
    if (is_distributed_by_sample(l, tiling, v))
        mask = axis == WF_N ? ~0u : 0;
    for (int a = 0; a < WF_MESH_AXES; a++)
        if ((mask & (1u << a)) && wf_block_extent(&tiling->block, a) > 1)
            cutters |= 1u << a;
    return cutters;
}

int wf_layout_parts(const struct wf_layout *l, const struct wf_tiling *tiling,
                    const struct wf_value *v, enum wf_axis axis)
{
    const unsigned cutters = wf_layout_cutters(l, tiling, v, axis);
    int parts = 1;
    for (int a = 0; a < WF_MESH_AXES; a++)
        parts *= cutters & (1u << a) ? wf_block_extent(&tiling->block, a) : 1;
    return parts;
}

static int part_at(const struct wf_tiling *tiling, unsigned cutters, const int at[WF_MESH_AXES])
{
    int part = 0;
    for (int a = 0; a < WF_MESH_AXES; a++)
        if (cutters & (1u << a))
            part = part * wf_block_extent(&tiling->block, a) + at[a] - tiling->block.lo[a];
    return part;
}

void wf_layout_part_coords(const struct wf_layout *l, const struct wf_tiling *tiling,
                           const struct wf_value *v, enum wf_axis axis, int part,
                           int at[WF_MESH_AXES])
{
    const unsigned cutters = wf_layout_cutters(l, tiling, v, axis);
    for (int a = WF_MESH_AXES - 1; a >= 0; a--)
        if (cutters & (1u << a)) {
            at[a] = tiling->block.lo[a] + part % wf_block_extent(&tiling->block, a);
            part /= wf_block_extent(&tiling->block, a);
        }
}

int64_t wf_layout_point(const struct wf_layout *l, const struct wf_tiling *tiling,
                        const struct wf_value *v, enum wf_axis axis, int index)
{
    const int64_t extent = v->shape.at[axis];
    const int parts = wf_layout_parts(l, tiling, v, axis);
    if (index == 0)
        return 0;
    if (index == parts)
        return extent;
    if (v->per_rank || is_distributed_by_sample(l, tiling, v))
        return wf_split_point(extent, parts, index);
    const int64_t point = llround((double)tiling->cut[axis][index] / l->scale[v->id][axis]);
    return wf_min(extent, point);
}

struct wf_region wf_layout_owned(const struct wf_layout *l, const struct wf_value *v, int rank)
{
    return wf_layout_part(l, v, &l->of_value[v->id], rank);
}

struct wf_region wf_layout_part(const struct wf_layout *l, const struct wf_value *v,
                                const struct wf_placement *placement, int rank)
{
    const struct wf_tiling *const tiling = wf_layout_tiling(l, placement, rank);
    struct wf_region r = wf_shape_region(v->shape);
    int at[WF_MESH_AXES];
    if (!tiling)
        return (struct wf_region){ 0 };
    wf_mesh_coords(&l->mesh, rank, at);
    for (int a = 0; a < WF_C; a++) {
        const unsigned cutters = wf_layout_cutters(l, tiling, v, (enum wf_axis)a);
        if (!cutters)
            continue;
        const int part = part_at(tiling, cutters, at);
        r.lo[a] = wf_layout_point(l, tiling, v, (enum wf_axis)a, part);
        r.hi[a] = wf_layout_point(l, tiling, v, (enum wf_axis)a, part + 1);
    }
    return r;
}

bool wf_layout_is_first(const struct wf_layout *l, const struct wf_value *v, int rank)
{
    const struct wf_tiling *const tiling = l->of_value[v->id].tilings[0];
    int at[WF_MESH_AXES];
    unsigned cutters = 0;
    wf_mesh_coords(&l->mesh, rank, at);
    for (int a = 0; a < WF_C; a++)
        cutters |= wf_layout_cutters(l, tiling, v, (enum wf_axis)a);
    for (int a = 0; a < WF_MESH_AXES; a++)
        if (!(cutters & (1u << a)) && at[a] != tiling->block.lo[a])
            return false;
    return wf_block_has(&tiling->block, at);
}

int wf_layout_first_rank(const struct wf_layout *l, const struct wf_value *v)
{
    return wf_mesh_rank(&l->mesh, l->of_value[v->id].tilings[0]->block.lo);
}

bool wf_layout_is_on_all(const struct wf_layout *l, const struct wf_value *v)
{
    const struct wf_placement *const p = &l->of_value[v->id];
    const int ranks = wf_mesh_size(&l->mesh);
    if (p->n == 1)
        return wf_block_size(&p->tilings[0]->block) == ranks;
    for (int r = 0; r < ranks; r++)
        if (!wf_layout_tiling(l, p, r))
            return false;
    return true;
}
