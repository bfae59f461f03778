/*
 * Between points and images: rows_to_grid puts rows where they are, grid_to_rows looks an image up at points, and
 * each is the other's gradient; grid_coords makes a set of the places where an image is not 0.
 *
 * The image is whole on every rank, because a rank's points may lie anywhere in it; `distribute` cuts it as
 * images are. Axis i of the coordinates is the image's axis 3 - dims + i of D, H, W; position p of it is the
 * place lo + p * stride. Points outside the image are left out.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/build.h"
#include "ops/halo.h"
#include "ops/sparse_ops.h"
#include "ops/spatial.h"

static const struct wf_field fields[] = {
    WF_INT(wf_grid_attrs, dims),       WF_INT(wf_grid_attrs, samples),
    WF_INTS(wf_grid_attrs, lo, 3),     WF_INTS(wf_grid_attrs, extent, 3),
    WF_INTS(wf_grid_attrs, stride, 3), WF_INT(wf_grid_attrs, rows),
    WF_INT(wf_grid_attrs, set),        { 0 },
};

static bool check(const struct wf_node *node, const struct wf_value *coords, struct wf_err *err)
{
    const struct wf_grid_attrs *a = node->attrs;
    if (a->dims < 1 || a->dims > 3 || a->samples < 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "an image has 1 to 3 dimensions, and at least one sample");
    for (int64_t d = 0; d < a->dims; d++)
        if (a->extent[d] < 1 || a->stride[d] < 1)
            return wf_err_set(err, WF_ERR_USAGE, "extents and strides are at least 1");
    if (coords &&
        (!coords->set || coords->dtype != WF_I32 || coords->shape.at[WF_C] != 1 + a->dims))
        return wf_err_set(err, WF_ERR_USAGE, "wants coordinates of %" PRId64 " dimensions",
                          a->dims);
    return true;
}

static struct wf_shape grid_shape(const struct wf_grid_attrs *a, int64_t channels)
{
    struct wf_shape s = WF_SHAPE(a->samples, 1, 1, 1, channels);
    for (int64_t d = 0; d < a->dims; d++)
        s.at[WF_C - a->dims + d] = a->extent[d];
    return s;
}

/* Where a row lies in the image; false: outside. */
static bool find_place(const struct wf_call *call, int coords, int64_t row, int64_t at[WF_AXES])
{
    const struct wf_grid_attrs *a = call->node->attrs;
    const struct wf_view *const v = &call->in[coords];
    memset(at, 0, WF_AXES * sizeof *at);
    at[WF_N] = (int64_t)wf_view_get(v, row, 0, 0, 0, 0);
    for (int64_t d = 0; d < a->dims; d++) {
        const int64_t from = (int64_t)wf_view_get(v, row, 0, 0, 0, 1 + d) - a->lo[d];
        if (from < 0 || from % a->stride[d] != 0 || from / a->stride[d] >= a->extent[d])
            return false;
        at[WF_C - a->dims + d] = from / a->stride[d];
    }
    return at[WF_N] >= 0 && at[WF_N] < a->samples;
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region work)
{
    struct wf_region r = wf_shape_region(node->in[input]->shape);
    if (node->in[input]->set) {
        r.lo[WF_N] = work.lo[WF_N];
        r.hi[WF_N] = work.hi[WF_N];
    }
    return r;
}

/* --- rows_to_grid: x, coords --- */

static bool to_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *const x = node->in[0];
    if (!check(node, node->in[1], err))
        return false;
    if (x->set != node->in[1]->set)
        return wf_err_set(err, WF_ERR_USAGE, "x and the coordinates are of different sets");
    node->out[0]->shape = grid_shape(node->attrs, x->shape.at[WF_C]);
    node->out[0]->dtype = wf_sum_dtype(x->dtype);
    node->out[0]->replicated = true;
    return true;
}

static void to_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                    const bool[], struct wf_value *dx[])
{
    dx[0] = wf_append(g, &wf_op_grid_to_rows, node->name, "dx", node->attrs, 2,
                      (struct wf_value *[]){ wf_cast(g, dy[0], node->in[0]->dtype), node->in[1] });
}

static void to_reference(const struct wf_call *call)
{
    wf_view_fill(&call->out[0], 0.0);
    for (int64_t u = call->work.lo[WF_N]; u < call->work.hi[WF_N]; u++) {
        int64_t at[WF_AXES];
        const bool inside = find_place(call, 1, u, at);
        for (at[WF_C] = 0; inside && at[WF_C] < call->out[0].box.hi[WF_C]; at[WF_C]++)
            wf_view_set(&call->out[0], at, wf_view_get(&call->in[0], u, 0, 0, 0, at[WF_C]));
    }
}

const struct wf_op wf_op_rows_to_grid = {
    .name = "rows_to_grid",
    .n_in = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_grid_attrs, fields),
    .infer = to_infer,
    .grad = to_grad,
    .reads = reads,
    .sums = WF_AXIS(WF_N),
    .over = 0,
    .reference = to_reference,
};

/* --- grid_to_rows: image, coords --- */

static bool from_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *const image = node->in[0], *const coords = node->in[1];
    if (!check(node, coords, err))
        return false;
    if (!image->replicated ||
        !wf_shape_equal(image->shape, grid_shape(node->attrs, image->shape.at[WF_C])))
        return wf_err_set(err, WF_ERR_USAGE, "wants an image of that size, whole on every rank");
    node->out[0]->shape = WF_SHAPE(coords->shape.at[WF_N], 1, 1, 1, image->shape.at[WF_C]);
    node->out[0]->set = coords->set;
    node->out[0]->replicated = false;
    return true;
}

static void from_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                      const bool[], struct wf_value *dx[])
{
    dx[0] = wf_cast(g,
                    wf_append(g, &wf_op_rows_to_grid, node->name, "dx", node->attrs, 2,
                              (struct wf_value *[]){ dy[0], node->in[1] }),
                    node->in[0]->dtype);
}

static void from_reference(const struct wf_call *call)
{
    for (int64_t u = call->work.lo[WF_N]; u < call->work.hi[WF_N]; u++) {
        int64_t at[WF_AXES];
        const bool inside = find_place(call, 1, u, at);
        for (at[WF_C] = 0; at[WF_C] < call->out[0].box.hi[WF_C]; at[WF_C]++)
            wf_view_put(&call->out[0], u, 0, 0, 0, at[WF_C],
                        inside ? wf_view_at(&call->in[0], at) : 0.0);
    }
}

const struct wf_op wf_op_grid_to_rows = {
    .name = "grid_to_rows",
    .n_in = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_grid_attrs, fields),
    .infer = from_infer,
    .grad = from_grad,
    .reads = reads,
    .reference = from_reference,
};

/* --- grid_coords: image --- */

static bool coords_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_grid_attrs *a = node->attrs;
    const struct wf_value *const image = node->in[0];
    if (!check(node, NULL, err))
        return false;
    if (!image->replicated || !wf_shape_equal(image->shape, grid_shape(a, image->shape.at[WF_C])))
        return wf_err_set(err, WF_ERR_USAGE, "wants an image of that size, whole on every rank");
    for (int64_t d = 0; d < a->dims; d++)
        if (a->lo[d] % a->stride[d] != 0 || a->lo[d] < INT32_MIN ||
            a->lo[d] + a->extent[d] * a->stride[d] > INT32_MAX)
            return wf_err_set(err, WF_ERR_USAGE,
                              "the lowest place must be a multiple of the stride, and all places "
                              "within int32");
    node->out[0]->shape = WF_SHAPE(a->rows, 1, 1, 1, 1 + a->dims);
    node->out[0]->dtype = WF_I32;
    node->out[0]->set = (int)a->set;
    node->out[0]->replicated = false;
    return true;
}

static int by_order(const void *a, const void *b, void *attrs)
{
    const struct wf_grid_attrs *const s = attrs;
    return wf_coords_compare(a, b, (int)s->dims, s->stride);
}

int64_t wf_grid_rows(const struct wf_grid_attrs *a, const struct wf_view *image, int64_t first,
                     int64_t end, int32_t *to)
{
    struct wf_grid_attrs order = *a;
    struct wf_region box = wf_shape_region(grid_shape(a, 1));
    int64_t made = 0;
    box.lo[WF_N] = first;
    box.hi[WF_N] = end;
    for (struct wf_cursor c = wf_cursor(box); wf_cursor_next(&c);) {
        int64_t at[WF_AXES];
        bool is_there = !image;
        memcpy(at, c.at, sizeof at);
        for (; image && !is_there && at[WF_C] < image->box.hi[WF_C]; at[WF_C]++)
            is_there = wf_view_at(image, at) != 0;
        int32_t *const row = to + made * (1 + a->dims);
        if (!is_there)
            continue;
        row[0] = (int32_t)at[WF_N];
        for (int64_t d = 0; d < a->dims; d++)
            row[1 + d] = (int32_t)(a->lo[d] + at[WF_C - a->dims + d] * a->stride[d]);
        made++;
    }
    qsort_r(to, (size_t)made, (size_t)(1 + a->dims) * sizeof *to, by_order, &order);
    return made;
}

/* Samples are distributed as points are (train/points.h): the first ranks have one more. */
static int64_t first_sample(const struct wf_grid_attrs *a, int64_t parts, int64_t part)
{
    return a->samples - wf_split_point(a->samples, parts, parts - part);
}

static void coords_reference(const struct wf_call *call)
{
    const struct wf_grid_attrs *a = call->node->attrs;
    const struct wf_region box = call->out[0].box;
    const int64_t room = wf_region_extent(box, WF_N);
    /* Parts of the capacity differ by one row at most. */
    const int64_t parts = (a->rows + room / 2) / room;
    const int64_t part = (box.lo[WF_N] * parts + a->rows / 2) / a->rows;
    const int64_t first = first_sample(a, parts, part), end = first_sample(a, parts, part + 1);
    const int64_t most = (end - first) * wf_shape_count(grid_shape(a, 1)) / a->samples;
    int32_t *const made = wf_take((size_t)((most + 1) * (1 + a->dims)) * sizeof *made);
    const int64_t count = wf_grid_rows(a, &call->in[0], first, end, made);
    WF_BUG_ON(count > room, "'%s': %" PRId64 " rows, and room for %" PRId64, call->node->name,
              count, room);
    memcpy(wf_sparse_coords(&call->out[0]), made, (size_t)(count * (1 + a->dims)) * sizeof *made);
    call->rows[a->set] = (int32_t)count;
    free(made);
}

const struct wf_op wf_op_grid_coords = {
    .name = "grid_coords",
    .n_in = 1,
    .flags = WF_OP_SETS | WF_OP_COUNTS,
    WF_ATTRS(wf_grid_attrs, fields),
    .infer = coords_infer,
    .reads = reads,
    .reference = coords_reference,
    .flops_each = 4,
};

/* --- distribute: x --- */

static bool distribute_infer(const struct wf_node *node, struct wf_err *)
{
    node->out[0]->replicated = false;
    return true;
}

static void distribute_grad(struct wf_graph *g, const struct wf_node *, struct wf_value *const dy[],
                            const bool[], struct wf_value *dx[])
{
    dx[0] = wf_replicate(g, dy[0]);
}

static void distribute_reference(const struct wf_call *call)
{
    const struct wf_view src = wf_view_part(call->in[0], call->work);
    const struct wf_view dst = wf_view_part(call->out[0], call->work);
    wf_view_copy(&dst, &src);
}

static const struct wf_case distribute_cases[] = {
    { .in = "p[2,1,5,7,3]" },
    { .in = "p[1,3,4,5,2]" },
    { .in = "p[3,1,1,11,1]" },
    { .in = "p[5,1,1,1,3]" },
    { .in = "p[1,1,2,2,1]" },
    { .in = "p[4,1,3,3,2]" },
    { 0 },
};

const struct wf_op wf_op_distribute = {
    .name = "distribute",
    .n_in = 1,
    .infer = distribute_infer,
    .grad = distribute_grad,
    .reference = distribute_reference,
    .cases = distribute_cases,
};

/* --- the builder --- */

static struct wf_grid_attrs attrs_of(const struct wf_graph *g, const struct wf_sparse_grid *grid)
{
    struct wf_grid_attrs a = { .dims = grid->dims, .samples = wf_max(1, g->samples) };
    for (int d = 0; d < 3 && d < grid->dims; d++) {
        a.lo[d] = grid->lo[d];
        a.extent[d] = grid->extent[d];
        a.stride[d] = wf_max(1, grid->stride[d]);
    }
    return a;
}

struct wf_value *wf_sparse_to_dense(struct wf_graph *g, struct wf_sparse x,
                                    const struct wf_sparse_grid *grid, const char *name)
{
    const struct wf_grid_attrs a = attrs_of(g, grid);
    if (!x.features)
        return NULL;
    struct wf_value *const whole = wf_append(g, &wf_op_rows_to_grid, name, "whole", &a, 2,
                                             (struct wf_value *[]){ x.features, x.coords });
    return wf_cast(g, wf_append(g, &wf_op_distribute, name, NULL, NULL, 1, &whole),
                   x.features->dtype);
}

struct wf_sparse wf_sparse_at(struct wf_graph *g, struct wf_value *image, struct wf_sparse like,
                              const struct wf_sparse_grid *grid, const char *name)
{
    const struct wf_grid_attrs a = attrs_of(g, grid);
    struct wf_sparse y = like;
    y.features = wf_append(g, &wf_op_grid_to_rows, name, NULL, &a, 2,
                           (struct wf_value *[]){ wf_replicate(g, image), like.coords });
    return y;
}

struct wf_sparse wf_sparse_of_dense(struct wf_graph *g, struct wf_value *image,
                                    const struct wf_sparse_grid *grid, const char *name)
{
    struct wf_grid_attrs a = attrs_of(g, grid);
    struct wf_sparse y = { .dims = grid->dims };
    struct wf_value *const whole = wf_replicate(g, image);
    if (!whole || wf_halo_refuse(g, name, "points of an image"))
        return y;
    for (int d = 0; d < grid->dims && d < 3; d++)
        y.stride[d] = a.stride[d];
    a.set = wf_set_new(g);
    /* Ranks with one sample more than others have room for them. */
    const int64_t places = 2 * wf_shape_count(whole->shape) / whole->shape.at[WF_C];
    a.rows = a.set < g->n_capacities && g->capacities[a.set] > 0 ? g->capacities[a.set] : places;
    y.coords =
        wf_append(g, &wf_op_grid_coords, name, "coords", &a, 1, (struct wf_value *[]){ whole });
    return y.coords ? wf_sparse_at(g, whole, y, grid, name) : y;
}
