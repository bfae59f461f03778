/*
 * Interpolation at points between places: corner_map finds the 2^D places around a point and their weights,
 * sparse_mix sums the rows there. A corner that has no row counts 0; the others are not scaled up for it.
 *
 * Corner k is the upper one along axis d where bit d of k is set. The gradient of a row sums over the points
 * around it, in their order.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/sparse_ops.h"

/* --- corner_map: coords, points --- */

static const struct wf_field corner_fields[] = {
    WF_INT(wf_corner_attrs, dims),
    WF_INTS(wf_corner_attrs, stride, WF_SPARSE_AXES),
    { 0 },
};

static bool corner_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_corner_attrs *a = node->attrs;
    const struct wf_value *const coords = node->in[0], *const points = node->in[1];
    if (a->dims < 1 || a->dims > WF_SPARSE_AXES || !coords->set || coords->dtype != WF_I32 ||
        !points->set || coords->shape.at[WF_C] != 1 + a->dims ||
        points->shape.at[WF_C] != 1 + a->dims || points->dtype == WF_I32)
        return wf_err_set(err, WF_ERR_USAGE,
                          "coordinates and points are rows of 1 + dims numbers of a set, points "
                          "are not integers");
    for (int o = 0; o < 2; o++) {
        node->out[o]->shape = WF_SHAPE(points->shape.at[WF_N], 1, 1, 1, INT64_C(1) << a->dims);
        node->out[o]->set = points->set;
        node->out[o]->dtype = o == 0 ? WF_I32 : points->dtype;
    }
    return true;
}

/* The place of a corner, and its weight; false: beyond int32. */
static bool corner_of(const struct wf_corner_attrs *a, const struct wf_view *points, int64_t u,
                      int64_t k, int32_t at[], double *weight)
{
    bool inside = true;
    *weight = 1.0;
    at[0] = (int32_t)wf_view_get(points, u, 0, 0, 0, 0);
    for (int64_t d = 0; d < a->dims; d++) {
        const double place = wf_view_get(points, u, 0, 0, 0, 1 + d) / (double)a->stride[d];
        const double low = floor(place), above = place - low;
        const double corner = (low + (double)(k >> d & 1)) * (double)a->stride[d];
        inside = inside && corner >= INT32_MIN && corner <= INT32_MAX; /* NaN is not */
        at[1 + d] = inside ? (int32_t)corner : 0;
        *weight *= k >> d & 1 ? above : 1.0 - above;
    }
    return inside;
}

static void corner_reference(const struct wf_call *call)
{
    const struct wf_corner_attrs *a = call->node->attrs;
    const int64_t n = wf_sparse_rows(call, call->node->in[0]);
    for (int64_t u = call->work.lo[WF_N]; u < call->work.hi[WF_N]; u++)
        for (int64_t k = 0; k < INT64_C(1) << a->dims; k++) {
            int32_t at[1 + WF_SPARSE_AXES];
            double weight;
            const int64_t row =
                corner_of(a, &call->in[1], u, k, at, &weight)
                    ? wf_coords_find(wf_sparse_coords(&call->in[0]), n, at, (int)a->dims, a->stride)
                    : -1;
            wf_view_put(&call->out[0], u, 0, 0, 0, k, (double)row);
            wf_view_put(&call->out[1], u, 0, 0, 0, k, row < 0 ? 0.0 : weight);
        }
}

const struct wf_op wf_op_corner_map = {
    .name = "corner_map",
    .n_in = 2,
    .n_out = 2,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_corner_attrs, corner_fields),
    .infer = corner_infer,
    .reads = wf_sparse_reads,
    .reference = corner_reference,
    .flops_each = 8,
};

/* --- sparse_mix: x, map, w --- */

static const struct wf_field mix_fields[] = {
    WF_INT(wf_mix_attrs, rows),
    WF_INT(wf_mix_attrs, set),
    { 0 },
};

static bool mix_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *const x = node->in[0], *const map = node->in[1], *const w = node->in[2];
    if (!x->set || !map->set || map->dtype != WF_I32 || w->set != map->set ||
        !wf_shape_equal(map->shape, w->shape))
        return wf_err_set(err, WF_ERR_USAGE,
                          "x, map and weights must be rows, a weight for each row of the map");
    node->out[0]->shape.at[WF_N] = map->shape.at[WF_N];
    node->out[0]->set = map->set;
    return true;
}

static void mix_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                     const bool wanted[], struct wf_value *dx[])
{
    if (wanted[0])
        dx[0] = wf_append(g, &wf_op_sparse_mix_grad, node->name, "dx", node->attrs, 3,
                          (struct wf_value *[]){ dy[0], node->in[1], node->in[2] });
}

static void mix_reference(const struct wf_call *call)
{
    const int64_t columns = call->node->in[1]->shape.at[WF_C], first = call->in[0].box.lo[WF_N];
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        double sum = 0;
        for (int64_t k = 0; k < columns; k++) {
            const int64_t row = (int64_t)wf_view_get(&call->in[1], c.at[WF_N], 0, 0, 0, k);
            if (row >= 0)
                sum += wf_view_get(&call->in[2], c.at[WF_N], 0, 0, 0, k) *
                       wf_view_get(&call->in[0], first + row, 0, 0, 0, c.at[WF_C]);
        }
        wf_view_set(&call->out[0], c.at, sum);
    }
}

const struct wf_op wf_op_sparse_mix = {
    .name = "sparse_mix",
    .n_in = 3,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_mix_attrs, mix_fields),
    .infer = mix_infer,
    .grad = mix_grad,
    .reads = wf_sparse_reads,
    .reference = mix_reference,
    .flops_each = 16,
};

/* --- sparse_mix_grad: dy, map, w --- */

static bool mix_grad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_mix_attrs *a = node->attrs;
    if (!node->in[0]->set || node->in[1]->set != node->in[0]->set ||
        node->in[2]->set != node->in[0]->set)
        return wf_err_set(err, WF_ERR_USAGE, "dy, map and weights must be rows of one set");
    node->out[0]->shape.at[WF_N] = a->rows;
    node->out[0]->set = (int)a->set;
    return true;
}

static void mix_grad_reference(const struct wf_call *call)
{
    const int64_t columns = call->node->in[1]->shape.at[WF_C], first = call->in[0].box.lo[WF_N];
    const int64_t n = wf_sparse_rows(call, call->node->in[0]);
    const struct wf_view *const dx = &call->out[0];
    for (int64_t c = 0; c < dx->box.hi[WF_C]; c++)
        for (int64_t v = call->work.lo[WF_N]; v < call->work.hi[WF_N]; v++) {
            double sum = 0;
            for (int64_t i = 0; i < n * columns; i++) {
                const int64_t u = first + i / columns, k = i % columns;
                if ((int64_t)wf_view_get(&call->in[1], u, 0, 0, 0, k) == v - dx->box.lo[WF_N])
                    sum += wf_view_get(&call->in[2], u, 0, 0, 0, k) *
                           wf_view_get(&call->in[0], u, 0, 0, 0, c);
            }
            wf_view_put(dx, v, 0, 0, 0, c, sum);
        }
}

const struct wf_op wf_op_sparse_mix_grad = {
    .name = "sparse_mix_grad",
    .n_in = 3,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_mix_attrs, mix_fields),
    .infer = mix_grad_infer,
    .reads = wf_sparse_reads,
    .reference = mix_grad_reference,
    .flops_each = 16,
};
