#include "train/points.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/norm.h"
#include "ops/sparse_ops.h"

/* --- where cuts may lie --- */

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    WF_BUG_ON(a < 1 || b < 1, "strides %" PRId64 " and %" PRId64, a, b);
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x > 0 ? a / x * b : 1;
}

struct wf_points_cut wf_points_uncut(int data)
{
    return (struct wf_points_cut){ data, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } };
}

struct wf_points_cut wf_points_cut(const struct wf_graph *g, int dims)
{
    struct wf_points_cut c = wf_points_uncut((int)wf_max(1, g->mesh[WF_N]));
    for (int axis = 0; axis < WF_HALO_AXES; axis++) {
        const int d = wf_halo_coordinate(axis, dims);
        c.space[axis] = (int)wf_max(1, g->mesh[WF_D + axis]);
        for (size_t i = 0; d >= 0 && i < g->n_nodes; i++) {
            const struct wf_node *const n = g->nodes[i];
            const struct wf_halo_attrs *const halo = n->attrs;
            if (n->op == &wf_op_coords_stride)
                c.unit[axis] = common_multiple(
                    c.unit[axis], ((const struct wf_coords_stride_attrs *)n->attrs)->stride[d]);
            if (n->op == &wf_op_halo_list)
                c.width[axis] = wf_max(c.width[axis], wf_max(halo->below[axis], halo->above[axis]));
        }
        c.unit[axis] = wf_max(1, c.unit[axis]);
        c.width[axis] = wf_ceil_div(c.width[axis], c.unit[axis]) * c.unit[axis];
    }
    return c;
}

/* --- cuts that balance --- */

enum { BINS = 1 << 20 };

/* Some of the points: those of a place along data. */
struct share {
    const struct wf_points_of_step *p;
    const int64_t *point;
    int64_t n;
};

static int32_t place_of(const struct share *s, int64_t i, int d)
{
    return s->p->coords[s->point[i] * (1 + s->p->dims) + 1 + d];
}

/* Along one axis: cut[0 .. parts - 2], ascending. */
static void find_cuts(const struct share *s, int d, int parts, int64_t unit, int64_t width,
                      int64_t cut[])
{
    int64_t low = INT32_MAX, high = INT32_MIN, step = unit, before = 0, bin = 0;
    for (int64_t i = 0; i < s->n; i++) {
        low = wf_min(low, place_of(s, i, d));
        high = wf_max(high, place_of(s, i, d));
    }
    low = s->n ? wf_floor_div(low, unit) * unit : 0;
    high = wf_max(low, high);
    while ((high - low) / step >= BINS)
        step *= 2;
    const int64_t bins = (high - low) / step + 1;
    int64_t *const count = wf_take_zeroed((size_t)bins, sizeof *count);
    for (int64_t i = 0; i < s->n; i++)
        count[(place_of(s, i, d) - low) / step]++;
    for (int k = 1; k < parts; k++) {
        const int64_t want = wf_split_point(s->n, parts, k);
        while (bin < bins && 2 * before + count[bin] <= 2 * want) /* the nearest */
            before += count[bin++];
        cut[k - 1] = low + bin * step;
        if (k > 1)
            cut[k - 1] = wf_max(cut[k - 1], cut[k - 2] + width);
    }
    free(count);
}

/* A cut beyond all places: what is behind it is empty. */
static int32_t place_within(int64_t cut)
{
    return (int32_t)wf_max(INT32_MIN, wf_min(cut, INT32_MAX));
}

static void find_boxes(const struct share *s, const struct wf_points_cut *c,
                       int32_t (*box)[WF_HALO_BOXES])
{
    const int *const space = c->space;
    for (int axis = 0; axis < WF_HALO_AXES; axis++) {
        int64_t *const cut = wf_take_zeroed((size_t)space[axis], sizeof *cut);
        const int d = wf_halo_coordinate(axis, s->p->dims);
        if (space[axis] > 1)
            find_cuts(s, d, space[axis], c->unit[axis], c->width[axis], cut);
        for (int part = 0; part < space[0] * space[1] * space[2]; part++) {
            const int below = part / (axis == 0 ? space[1] * space[2] : axis == 1 ? space[2] : 1);
            const int k = below % space[axis];
            box[part][2 * axis] = k ? place_within(cut[k - 1]) : INT32_MIN;
            box[part][2 * axis + 1] = k + 1 < space[axis] ? place_within(cut[k]) : INT32_MAX;
        }
        free(cut);
    }
}

/* Within so much of the box along the first axes, and in it along the others. */
struct margin {
    const struct wf_halo_attrs *halo; /* NULL: none */
    int axes;
};

static bool is_in(const int32_t box[WF_HALO_BOXES], const int32_t *row, int dims,
                  struct margin margin)
{
    for (int axis = 0; axis < WF_HALO_AXES; axis++) {
        const int d = wf_halo_coordinate(axis, dims);
        const bool wide = axis < margin.axes;
        if (d < 0)
            continue;
        if (box[2 * axis] == INT32_MAX) /* the one below has no end */
            return false;
        if (box[2 * axis] > INT32_MIN &&
            row[1 + d] < box[2 * axis] - (wide ? margin.halo->below[axis] : 0))
            return false;
        if (box[2 * axis + 1] < INT32_MAX &&
            row[1 + d] >= box[2 * axis + 1] + (wide ? margin.halo->above[axis] : 0))
            return false;
    }
    return true;
}

/* --- who has which --- */

/* Samples are distributed as the layout does: the first ranks have one more. */
static int part_of_sample(const struct wf_points_of_step *p, int parts, int64_t sample)
{
    int part = 0;
    while (part < parts - 1 &&
           sample >= p->samples - wf_split_point(p->samples, parts, parts - part - 1))
        part++;
    return part;
}

static bool check_points(const struct wf_points_of_step *p, const int64_t order[],
                         struct wf_err *err)
{
    const int width = 1 + p->dims;
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t sample = p->coords[order[i] * width];
        if (sample < 0 || sample >= p->samples)
            return wf_err_set(err, WF_ERR_INPUT,
                              "point %" PRId64 " has batch index %" PRId64 ": there are %" PRId64
                              " samples, from 0",
                              order[i], sample, p->samples);
        if (i > 0 && memcmp(p->coords + order[i - 1] * width, p->coords + order[i] * width,
                            (size_t)width * sizeof *p->coords) == 0)
            return wf_err_set(err, WF_ERR_INPUT,
                              "points %" PRId64 " and %" PRId64
                              " are in one place: a tensor has each place once",
                              wf_min(order[i - 1], order[i]), wf_max(order[i - 1], order[i]));
    }
    return true;
}

/* The points of a place along data, which are in order, into boxes: in order each. */
static void deal(const struct share *s, const struct wf_points_cut *c, int64_t *point,
                 int64_t first[], int32_t (*box)[WF_HALO_BOXES])
{
    const int boxes = wf_points_parts(c) / c->data;
    find_boxes(s, c, box);
    for (int b = 0; b < boxes; b++) {
        int64_t *to = point + first[b];
        for (int64_t i = 0; i < s->n; i++)
            if (is_in(box[b], s->p->coords + s->point[i] * (1 + s->p->dims), s->p->dims,
                      (struct margin){ 0 }))
                *to++ = s->point[i];
        first[b + 1] = to - point;
    }
}

bool wf_rows_make(struct wf_arena *arena, const struct wf_points_of_step *p,
                  const struct wf_points_cut *cut, struct wf_points_rows *rows, struct wf_err *err)
{
    const int parts = wf_points_parts(cut), boxes = parts / cut->data;
    int64_t *const order = wf_take((size_t)(p->n + 1) * sizeof *order);
    rows->parts = parts;
    rows->first = wf_arena_array(arena, parts + 1, int64_t);
    rows->point = wf_arena_array(arena, p->n + 1, int64_t);
    rows->box = wf_arena_take_array(arena, (size_t)parts, sizeof *rows->box);
    wf_coords_sort(p->coords, p->n, p->dims, order);
    const bool ok = check_points(p, order, err);
    int64_t i = 0;
    for (int k = 0; ok && k < cut->data;
         k++) { /* samples lead, and places along data have whole ones */
        struct share s = { .p = p, .point = order + i };
        while (i < p->n && part_of_sample(p, cut->data, p->coords[order[i] * (1 + p->dims)]) == k)
            i++;
        s.n = order + i - s.point;
        deal(&s, cut, rows->point, rows->first + k * boxes, rows->box + k * boxes);
    }
    free(order);
    return ok;
}

int wf_rows_part(const struct wf_points_rows *rows, const struct wf_value *value,
                 const struct wf_region *box)
{
    /* Parts of the capacity differ by one row at most. */
    const int64_t all = value->shape.at[WF_N];
    return (int)((box->lo[WF_N] * rows->parts + all / 2) / all);
}

/* --- the coordinate pass, on the host --- */

struct pass {
    const struct wf_graph *g;
    const struct wf_points_rows *rows;
    int dims, boxes; /* of a place along data */
    int32_t *(*made)[WF_SETS + 1];
    int64_t (*counts)[WF_SETS + 1];
};

static int32_t *take_rows(const struct pass *p, int64_t n)
{
    return wf_take((size_t)(n * (1 + p->dims) + 1) * sizeof(int32_t));
}

/* Sets are made of sets that were made before. */
static void make_set(const struct pass *p, const struct wf_node *node, int part)
{
    const int set = node->out[0]->set;
    const int32_t *from[2] = { NULL };
    int64_t n[2] = { 0 };
    for (int k = 0; k < node->n_in; k++) {
        from[k] = p->made[part][node->in[k]->set];
        n[k] = p->counts[part][node->in[k]->set];
    }
    p->made[part][set] = take_rows(p, wf_coords_room(node, n));
    p->counts[part][set] = wf_coords_make(node, from, n, p->made[part][set]);
}

/* Rows of a set, of all parts of a place along data, that are within a margin of a box; to `to`, where it is not NULL. */
static int64_t take_near(const struct pass *p, int part, int set, struct margin margin, int32_t *to)
{
    const int first = part / p->boxes * p->boxes, width = 1 + p->dims;
    const bool others = margin.axes == WF_HALO_AXES; /* only theirs */
    int64_t n = 0;
    for (int q = first; q < first + p->boxes; q++)
        for (int64_t i = 0; (q != part || !others) && i < p->counts[q][set]; i++) {
            const int32_t *const row = p->made[q][set] + i * width;
            const struct wf_halo_attrs *const a = margin.halo;
            if (!is_in(p->rows->box[part], row, p->dims, margin))
                continue;
            const int axis = wf_halo_axis(a->to);
            if (a->to &&
                !wf_halo_sends(a, p->rows->box[part][2 * axis], p->rows->box[part][2 * axis + 1],
                               row[1 + wf_halo_coordinate(axis, p->dims)]))
                continue;
            if (to)
                memcpy(to + n * width, row, (size_t)width * sizeof *to);
            n++;
        }
    return n;
}

static int by_order(const void *a, const void *b, void *attrs)
{
    const struct wf_halo_attrs *const halo = attrs;
    return wf_coords_compare(a, b, (int)halo->dims, halo->stride);
}

static void make_halo(const struct pass *p, const struct wf_node *node, int part)
{
    struct wf_halo_attrs a = *(const struct wf_halo_attrs *)node->attrs;
    if (node->op == &wf_op_halo_list) {
        const struct margin margin = { &a, wf_halo_axis(a.to) };
        p->counts[part][a.set] =
            wf_max(p->counts[part][a.set], take_near(p, part, node->in[1]->set, margin, NULL));
        return;
    }
    const struct margin margin = { &a, WF_HALO_AXES };
    const int of = node->in[0]->producer->in[1]->set;
    const int64_t n = take_near(p, part, of, margin, NULL);
    p->made[part][a.set] = take_rows(p, n);
    p->counts[part][a.set] = take_near(p, part, of, margin, p->made[part][a.set]);
    qsort_r(p->made[part][a.set], (size_t)n, (size_t)(1 + p->dims) * sizeof(int32_t), by_order, &a);
}

static void make_input(const struct pass *p, const struct wf_points_of_step *points, int part)
{
    const int set = wf_graph_find(p->g, "coords")->set, width = 1 + p->dims;
    const int64_t n = p->counts[part][set] = wf_rows_count(p->rows, part);
    p->made[part][set] = take_rows(p, n);
    for (int64_t i = 0; i < n; i++)
        memcpy(p->made[part][set] + i * width,
               points->coords + p->rows->point[p->rows->first[part] + i] * width,
               (size_t)width * sizeof(int32_t));
}

void wf_rows_sets(const struct wf_graph *g, const struct wf_points_of_step *points,
                  const struct wf_points_cut *cut, const struct wf_points_rows *rows,
                  int64_t (*counts)[WF_SETS + 1])
{
    struct pass p = { .g = g,
                      .rows = rows,
                      .dims = points->dims,
                      .boxes = rows->parts / cut->data,
                      .counts = counts };
    p.made = wf_take_zeroed((size_t)rows->parts, sizeof *p.made);
    memset(counts, 0, (size_t)rows->parts * sizeof *counts);
    for (int part = 0; part < rows->parts; part++)
        make_input(&p, points, part);
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int part = 0; part < rows->parts; part++) {
            const struct wf_node *const node = g->nodes[i];
            if (node->op == &wf_op_halo_list || node->op == &wf_op_halo_merge)
                make_halo(&p, node, part);
            else if (wf_coords_is_made(node))
                make_set(&p, node, part);
        }
    for (int part = 0; part < rows->parts; part++)
        for (int s = 0; s <= WF_SETS; s++)
            free(p.made[part][s]);
    free(p.made);
}

bool wf_rows_check(const struct wf_graph *g, const int64_t totals[WF_SETS + 1], struct wf_err *err)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const struct wf_node *const n = g->nodes[i];
        const int set = n->op == &wf_op_moments ? n->in[0]->set : 0;
        if (set && totals[set] < 2) {
            const char *const dot = strrchr(n->name, '.');
            return wf_err_set(
                err, WF_ERR_INPUT,
                "layer '%.*s': batch norm over %" PRId64
                " point%s of the whole batch normalises everything to zero: take more "
                "points, a larger batch or fewer levels",
                (int)(dot ? dot - n->name : (int64_t)strlen(n->name)), n->name, totals[set],
                totals[set] == 1 ? "" : "s");
        }
    }
    return true;
}
