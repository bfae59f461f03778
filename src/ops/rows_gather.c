/*
 * Rows to neighbours and from them (ops/halo.h): rows_gather takes rows of several sources by an index, rows_scatter
 * brings the gradient back to one of them.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/halo.h"

enum { INDEX, SOURCES };

/* --- places --- */

int64_t wf_halo_ranks(const int64_t mesh[WF_C])
{
    return mesh[WF_N] * mesh[WF_D] * mesh[WF_H] * mesh[WF_W];
}

static int64_t part_of(int64_t row, int64_t rows, int64_t parts)
{
    int64_t part = wf_min(row * parts / rows, parts - 1);
    while (part + 1 < parts && wf_split_point(rows, parts, part + 1) <= row)
        part++;
    return part;
}

struct wf_region wf_halo_place(const int64_t mesh[WF_C], int64_t rows, struct wf_region part)
{
    const int64_t parts = wf_halo_ranks(mesh), last = wf_max(part.hi[WF_N] - 1, part.lo[WF_N]);
    int64_t rank = part_of(part.lo[WF_N], rows, parts);
    struct wf_region r =
        wf_shape_region(WF_SHAPE(mesh[WF_N], mesh[WF_D], mesh[WF_H], mesh[WF_W], 1));
    if (rank != part_of(last, rows, parts))
        return r; /* one rank has them all */
    for (int a = WF_W; a >= WF_N; a--) {
        r.lo[a] = rank % mesh[a];
        r.hi[a] = r.lo[a] + 1;
        rank /= mesh[a];
    }
    return r;
}

struct wf_region wf_halo_rows(const struct wf_value *rows, const int64_t mesh[WF_C],
                              struct wf_region places)
{
    const int64_t parts = wf_halo_ranks(mesh), extent = rows->shape.at[WF_N];
    struct wf_region r = wf_shape_region(rows->shape);
    int64_t first = 0, last = 0;
    for (int a = WF_N; a <= WF_W; a++) {
        first = first * mesh[a] + places.lo[a];
        last = last * mesh[a] + places.hi[a] - 1;
    }
    r.lo[WF_N] = wf_split_point(extent, parts, first);
    r.hi[WF_N] = wf_split_point(extent, parts, last + 1);
    return r;
}

struct wf_region wf_halo_moved(const struct wf_value *v, struct wf_region places, int64_t direction,
                               int64_t times)
{
    places.lo[WF_C] = 0;
    places.hi[WF_C] = v->shape.at[WF_C];
    if (direction) {
        const int axis = WF_D + wf_halo_axis(direction);
        places.lo[axis] += times * wf_halo_step(direction);
        places.hi[axis] += times * wf_halo_step(direction);
    }
    return places;
}

bool wf_halo_neighbour(const int64_t mesh[WF_C], const int64_t at[WF_AXES], int64_t direction,
                       int64_t times, int64_t to[WF_AXES])
{
    memcpy(to, at, WF_AXES * sizeof *to);
    to[WF_C] = 0;
    if (!direction)
        return true;
    const int axis = WF_D + wf_halo_axis(direction);
    to[axis] += times * wf_halo_step(direction);
    return to[axis] >= 0 && to[axis] < mesh[axis];
}

static const struct wf_field fields[] = {
    WF_INTS(wf_gather_attrs, mesh, 4),
    WF_INT(wf_gather_attrs, to),
    WF_INT(wf_gather_attrs, has_rows),
    WF_INTS(wf_gather_attrs, from, 6),
    WF_INT(wf_gather_attrs, channels),
    WF_INT(wf_gather_attrs, source),
    WF_INT(wf_gather_attrs, rows),
    WF_INT(wf_gather_attrs, set),
    { 0 },
};

/* --- rows_gather --- */

/* The direction of the box that is an input. */
static int64_t box_of(const struct wf_gather_attrs *a, int input)
{
    return a->from[input - SOURCES - (a->has_rows != 0)];
}

static bool is_rows(const struct wf_gather_attrs *a, int input)
{
    return input == SOURCES && a->has_rows;
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_gather_attrs *a = node->attrs;
    const struct wf_value *const index = node->in[INDEX];
    if (index->dtype != WF_I32 || (a->to ? !index->per_rank : !index->set) || node->n_in < 2 ||
        node->n_in > SOURCES + 1 + WF_HALO_BOXES || a->channels < 1)
        return wf_err_set(err, WF_ERR_USAGE, "wants an index of rows, and sources");
    for (int i = SOURCES; i < node->n_in; i++) {
        const struct wf_value *const x = node->in[i];
        if (x->dtype != node->in[SOURCES]->dtype ||
            (is_rows(a, i) ? !x->set || x->shape.at[WF_C] != a->channels
                           : !x->per_rank || x->shape.at[WF_C] % a->channels != 0 || !box_of(a, i)))
            return wf_err_set(err, WF_ERR_USAGE,
                              "source %d is not rows, or a box of them, of %" PRId64 " channels", i,
                              a->channels);
    }
    node->out[0]->dtype = node->in[SOURCES]->dtype;
    node->out[0]->shape.at[WF_C] = a->channels * (a->to ? index->shape.at[WF_C] : 1);
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    struct wf_gather_attrs a = *(const struct wf_gather_attrs *)node->attrs;
    for (int i = SOURCES; i < node->n_in; i++) {
        const struct wf_value *const x = node->in[i];
        a.source = i - SOURCES + !a.has_rows;
        a.set = x->set;
        a.rows = x->set ? x->shape.at[WF_N] : x->shape.at[WF_C] / a.channels;
        if (wanted[i])
            dx[i] = wf_append(g, &wf_op_rows_scatter, node->name, "dx", &a, 3,
                              (struct wf_value *[]){ dy[0], node->in[INDEX], NULL });
    }
}

static const int64_t *mesh_of(const struct wf_node *node)
{
    const struct wf_gather_attrs *a = node->attrs;
    return a->mesh;
}

static struct wf_region places_of(const struct wf_node *node, struct wf_region work)
{
    if (!node->out[0]->per_rank)
        return wf_halo_place(mesh_of(node), node->out[0]->shape.at[WF_N], work);
    work.lo[WF_C] = 0;
    work.hi[WF_C] = 1;
    return work;
}

/* All of the rank's rows, or its element. */
static struct wf_region reads_of(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_value *const v = node->in[input];
    const struct wf_region places = places_of(node, work);
    return v->set ? wf_halo_rows(v, mesh_of(node), places) : wf_halo_moved(v, places, 0, 0);
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_gather_attrs *a = node->attrs;
    if (input == INDEX || is_rows(a, input))
        return reads_of(node, input, work);
    return wf_halo_moved(node->in[input], places_of(node, work), box_of(a, input), -1);
}

/* Where an input has row `row`, its first channel, as a rank at this place sees it. */
static void find_row(const struct wf_call *call, int input, const int64_t place[WF_AXES],
                     int64_t row, int64_t at[WF_AXES])
{
    const struct wf_gather_attrs *a = call->node->attrs;
    memset(at, 0, WF_AXES * sizeof *at);
    if (is_rows(a, input)) {
        at[WF_N] = call->in[input].box.lo[WF_N] + row;
        return;
    }
    WF_BUG_ON(!wf_halo_neighbour(mesh_of(call->node), place, box_of(a, input), -1, at),
              "'%s': a row from beyond the mesh", call->node->name);
    at[WF_C] = row * a->channels;
}

/* Takes row `index` to `to`, its first channel. */
static void take(const struct wf_call *call, int64_t index, const int64_t place[WF_AXES],
                 const int64_t to[WF_AXES])
{
    const struct wf_gather_attrs *a = call->node->attrs;
    const int input = SOURCES + (int)(index / WF_HALO_SOURCE) - !a->has_rows;
    int64_t from[WF_AXES] = { 0 }, y[WF_AXES];
    memcpy(y, to, sizeof y);
    if (index >= 0)
        find_row(call, input, place, index % WF_HALO_SOURCE, from);
    for (int64_t c = 0; c < a->channels; c++, y[WF_C]++, from[WF_C]++)
        wf_view_set(&call->out[0], y,
                    index >= 0                     ? wf_view_at(&call->in[input], from)
                    : call->out[0].dtype == WF_I32 ? -1
                                                   : 0);
}

static void reference(const struct wf_call *call)
{
    const struct wf_gather_attrs *a = call->node->attrs;
    const struct wf_view *const index = &call->in[INDEX];
    const struct wf_region places = places_of(call->node, call->work);
    if (!a->to) {
        for (int64_t r = call->work.lo[WF_N]; r < call->work.hi[WF_N]; r++)
            take(call, (int64_t)wf_view_get(index, r, 0, 0, 0, 0), places.lo,
                 (int64_t[WF_AXES]){ r });
        return;
    }
    for (struct wf_cursor p = wf_cursor(places); wf_cursor_next(&p);)
        for (int64_t i = 0; i < call->node->in[INDEX]->shape.at[WF_C]; i++) {
            int64_t at[WF_AXES];
            memcpy(at, p.at, sizeof at);
            at[WF_C] = i;
            const int64_t from = (int64_t)wf_view_at(index, at);
            at[WF_C] = i * a->channels;
            take(call, from, p.at, at);
        }
}

const struct wf_op wf_op_rows_gather = {
    .name = "rows_gather",
    .n_in = -1,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_gather_attrs, fields),
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .reference = reference,
};

/* --- rows_scatter: dy, index, [add] --- */

enum { DY, BY, ADD };

static bool scatter_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_gather_attrs *a = node->attrs;
    struct wf_value *const dx = node->out[0];
    const struct wf_value *const index = node->in[BY], *const dy = node->in[DY];
    if (index->dtype != WF_I32 || (a->to ? !index->per_rank : !index->set) ||
        (a->to ? !dy->per_rank : dy->set != index->set) || (!index->per_rank && a->set))
        return wf_err_set(err, WF_ERR_USAGE,
                          "wants the gradient of gathered rows, and their index");
    dx->per_rank = !a->set;
    dx->set = (int)a->set;
    dx->shape = a->set ? WF_SHAPE(a->rows, 1, 1, 1, a->channels)
                       : WF_SHAPE(a->mesh[WF_N], a->mesh[WF_D], a->mesh[WF_H], a->mesh[WF_W],
                                  a->rows * a->channels);
    return true;
}

static struct wf_region scatter_reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_gather_attrs *a = node->attrs;
    if (input == ADD)
        return work;
    if (input == DY && a->to)
        return wf_halo_moved(node->in[DY], places_of(node, work), a->to, 1);
    return reads_of(node, input, work);
}

/* Adds what the rank's gathered row has to the row that it came from. */
static void give(const struct wf_call *call, const int64_t place[WF_AXES],
                 const int64_t from[WF_AXES], int64_t index)
{
    const struct wf_gather_attrs *a = call->node->attrs;
    int64_t to[WF_AXES] = { 0 }, dy[WF_AXES];
    if (index < 0 || index / WF_HALO_SOURCE != a->source)
        return;
    memcpy(dy, from, sizeof dy);
    if (a->set)
        to[WF_N] = call->out[0].box.lo[WF_N] + index % WF_HALO_SOURCE;
    else {
        memcpy(to, place, sizeof to);
        to[WF_C] = index % WF_HALO_SOURCE * a->channels;
    }
    for (int64_t c = 0; c < a->channels; c++, to[WF_C]++, dy[WF_C]++)
        wf_view_set(&call->out[0], to,
                    wf_view_at(&call->out[0], to) + wf_view_at(&call->in[DY], dy));
}

static void scatter_reference(const struct wf_call *call)
{
    const struct wf_gather_attrs *a = call->node->attrs;
    const struct wf_view *const index = &call->in[BY];
    const struct wf_region places = places_of(call->node, call->work);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, call->in[ADD].data ? wf_view_at(&call->in[ADD], c.at) : 0);
    if (!a->to) {
        const int64_t first = index->box.lo[WF_N];
        for (int64_t r = 0; r < wf_sparse_rows(call, call->node->in[BY]); r++)
            give(call, places.lo, (int64_t[WF_AXES]){ first + r },
                 (int64_t)wf_view_get(index, first + r, 0, 0, 0, 0));
        return;
    }
    for (struct wf_cursor p = wf_cursor(places); wf_cursor_next(&p);) {
        int64_t dy[WF_AXES], at[WF_AXES];
        if (!wf_halo_neighbour(mesh_of(call->node), p.at, a->to, 1, dy))
            continue;
        memcpy(at, p.at, sizeof at);
        for (at[WF_C] = 0; at[WF_C] < call->node->in[BY]->shape.at[WF_C]; at[WF_C]++) {
            dy[WF_C] = at[WF_C] * a->channels;
            give(call, p.at, dy, (int64_t)wf_view_at(index, at));
        }
    }
}

const struct wf_op wf_op_rows_scatter = {
    .name = "rows_scatter",
    .n_in = 3,
    .n_optional = 1,
    .flags = WF_OP_SETS,
    .inplace = 1u << ADD,
    .adds = 1u << ADD,
    WF_ATTRS(wf_gather_attrs, fields),
    .infer = scatter_infer,
    .reads = scatter_reads,
    .reference = scatter_reference,
};
