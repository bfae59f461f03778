/*
 * sparse_conv: y[u] = sum over k of x[map[u, k]] w[k] + b, and the gradient of its weight.
 *
 * The gradient of x is a sparse_conv too: on the map of the opposite direction, which is the same map with
 * its offsets mirrored where a kernel of odd extents stays on its set.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/build.h"
#include "ops/sparse.h"
#include "ops/spatial.h"

enum { X, W, MAP, B, ORDER };

static const struct wf_field fields[] = {
    WF_INT(wf_sparse_conv_attrs, back),
    WF_INT(wf_sparse_conv_attrs, mirrored),
    WF_INT(wf_sparse_conv_attrs, reach),
    { 0 },
};

/* Along the axes of w: N is the offset, W is Cout, C is Cin. */
static enum wf_axis summed_axis(const struct wf_sparse_conv_attrs *a)
{
    return a->back ? WF_W : WF_C;
}

static enum wf_axis made_axis(const struct wf_sparse_conv_attrs *a)
{
    return a->back ? WF_C : WF_W;
}

static bool check_map(const struct wf_value *x, const struct wf_value *map, int64_t count,
                      struct wf_err *err)
{
    const int64_t columns = map ? map->shape.at[WF_C] : 1;
    if (!x->set || (map && (map->dtype != WF_I32 || !map->set)))
        return wf_err_set(err, WF_ERR_USAGE, "x and map must be rows of a sparse tensor");
    if (columns != count)
        return wf_err_set(err, WF_ERR_USAGE, "a weight of %" PRId64 " offsets on a map of %" PRId64,
                          count, columns);
    return true;
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_sparse_conv_attrs *a = node->attrs;
    const struct wf_value *const x = node->in[X], *const w = node->in[W],
                                 *const map = node->in[MAP];
    if (!check_map(x, map, w->shape.at[WF_N], err))
        return false;
    if (x->shape.at[WF_C] != w->shape.at[summed_axis(a)] || x->dtype != w->dtype)
        return wf_err_set(err, WF_ERR_USAGE,
                          "x has %" PRId64 " channels of %s, the weight wants %" PRId64 " of %s",
                          x->shape.at[WF_C], wf_dtype_name(x->dtype), w->shape.at[summed_axis(a)],
                          wf_dtype_name(w->dtype));
    node->out[0]->shape.at[WF_N] = map ? map->shape.at[WF_N] : x->shape.at[WF_N];
    node->out[0]->shape.at[WF_C] = w->shape.at[made_axis(a)];
    node->out[0]->set = map ? map->set : x->set;
    return true;
}

struct wf_value *wf_kernel_map_back(struct wf_graph *g, struct wf_value *map, bool *mirrored)
{
    *mirrored = false;
    if (!map)
        return NULL;
    const struct wf_node *const maker = map->producer;
    struct wf_kernel_map_attrs a = *(const struct wf_kernel_map_attrs *)maker->attrs;
    bool odd = maker->in[0] == maker->in[1];
    for (int64_t d = 0; d < a.dims; d++) {
        odd = odd && a.kernel[d] % 2 == 1;
        a.step[d] = -a.step[d];
        const int64_t stride = a.in_stride[d];
        a.in_stride[d] = a.out_stride[d];
        a.out_stride[d] = stride;
    }
    *mirrored = odd;
    return odd ? map : wf_kernel_map(g, maker->in[1], maker->in[0], &a);
}

/* The weight's gradient comes first: after it x is free, before dx needs memory. */
static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    struct wf_sparse_conv_attrs a = *(const struct wf_sparse_conv_attrs *)node->attrs;
    WF_BUG_ON(a.back, "'%s': a gradient of a gradient", node->name);
    if (wanted[W])
        dx[W] = wf_append(g, &wf_op_sparse_conv_wgrad, node->name, "dw", &a, 3,
                          (struct wf_value *[]){ node->in[X], dy[0], node->in[MAP] });
    if (wanted[B])
        dx[B] = wf_cast(g, wf_append(g, &wf_op_channel_sum, node->name, "db", NULL, 1, dy),
                        node->in[B]->dtype);
    if (wanted[X]) {
        bool mirrored;
        struct wf_value *const map = wf_kernel_map_back(g, node->in[MAP], &mirrored);
        a.back = 1;
        a.mirrored = mirrored != (a.mirrored != 0);
        dx[X] =
            wf_append(g, &wf_op_sparse_conv, node->name, "dx", &a, 5,
                      (struct wf_value *[]){ dy[0], node->in[W], map, NULL, wf_map_order(g, map) });
    }
}

/* The row of x, from the rank's first one; -1: none. */
static int64_t row_at(const struct wf_call *call, int input, int64_t u, int64_t k)
{
    const struct wf_view *const map = &call->in[input];
    return map->data ? (int64_t)wf_view_get(map, u, 0, 0, 0, k) : u - call->in[0].box.lo[WF_N];
}

static double at_output(const struct wf_call *call, int64_t u, int64_t c)
{
    const struct wf_sparse_conv_attrs *a = call->node->attrs;
    const struct wf_shape *const w = &call->node->in[W]->shape;
    const int64_t first = call->in[X].box.lo[WF_N];
    double sum = call->in[B].data ? wf_view_get(&call->in[B], 0, 0, 0, 0, c) : 0.0;
    for (int64_t k = 0; k < w->at[WF_N]; k++) {
        const int64_t row = row_at(call, MAP, u, k);
        const int64_t of = wf_sparse_conv_weight(a, k, w->at[WF_N]);
        for (int64_t i = 0; row >= 0 && i < w->at[summed_axis(a)]; i++)
            sum += wf_view_get(&call->in[X], first + row, 0, 0, 0, i) *
                   wf_view_get(&call->in[W], of, 0, 0, a->back ? i : c, a->back ? c : i);
    }
    return sum;
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, at_output(call, c.at[WF_N], c.at[WF_C]));
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region work)
{
    return input == X || input == MAP || input == ORDER ? wf_sparse_reads(node, input, work)
                                                        : wf_shape_region(node->in[input]->shape);
}

/* Of points on surfaces about a third of the offsets meet another. */
static double flops_of(int64_t count, int64_t rows, int64_t in, int64_t out)
{
    return (count > 1 ? 0.37 : 1.0) * 2.0 * (double)count * (double)rows * (double)in * (double)out;
}

static double flops(const struct wf_node *node, struct wf_region work)
{
    const struct wf_shape *const w = &node->in[W]->shape;
    return flops_of(w->at[WF_N], wf_region_extent(work, WF_N), w->at[WF_C], w->at[WF_W]);
}

const struct wf_op wf_op_sparse_conv = {
    .name = "sparse_conv",
    .n_in = 5,
    .n_optional = 3,
    .flags = WF_OP_SETS,
    WF_ATTRS(wf_sparse_conv_attrs, fields),
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .reference = reference,
    .flops = flops,
};

/* --- sparse_conv_wgrad: x, dy, [map] --- */

static bool wgrad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_value *const x = node->in[0], *const dy = node->in[1], *const map = node->in[2];
    struct wf_value *const dw = node->out[0];
    const int64_t count = map ? map->shape.at[WF_C] : 1;
    if (!check_map(x, map, count, err))
        return false;
    if (dy->set != (map ? map->set : x->set) || x->dtype != dy->dtype)
        return wf_err_set(err, WF_ERR_USAGE, "dy must be rows of the map's set, of x's dtype");
    dw->shape = WF_SHAPE(count, 1, 1, dy->shape.at[WF_C], x->shape.at[WF_C]);
    dw->dtype = wf_sum_dtype(x->dtype);
    dw->replicated = true;
    return true;
}

static void wgrad_reference(const struct wf_call *call)
{
    const struct wf_sparse_conv_attrs *a = call->node->attrs;
    const int64_t count = call->node->out[0]->shape.at[WF_N], first = call->in[0].box.lo[WF_N];
    for (struct wf_cursor c = wf_cursor(wf_shape_region(call->node->out[0]->shape));
         wf_cursor_next(&c);) {
        double sum = 0;
        for (int64_t u = call->work.lo[WF_N]; u < call->work.hi[WF_N]; u++) {
            const int64_t row = row_at(call, 2, u, wf_sparse_conv_weight(a, c.at[WF_N], count));
            if (row >= 0)
                sum += wf_view_get(&call->in[0], first + row, 0, 0, 0, c.at[WF_C]) *
                       wf_view_get(&call->in[1], u, 0, 0, 0, c.at[WF_W]);
        }
        wf_view_set(&call->out[0], c.at, sum);
    }
}

static double wgrad_flops(const struct wf_node *node, struct wf_region work)
{
    const struct wf_shape *const w = &node->out[0]->shape;
    return flops_of(w->at[WF_N], wf_region_extent(work, WF_N), w->at[WF_C], w->at[WF_W]);
}

const struct wf_op wf_op_sparse_conv_wgrad = {
    .name = "sparse_conv_wgrad",
    .n_in = 3,
    .n_optional = 1,
    .flags = WF_OP_SETS | WF_OP_WHOLE,
    WF_ATTRS(wf_sparse_conv_attrs, fields),
    .infer = wgrad_infer,
    .reads = wf_sparse_reads,
    .sums = WF_AXIS(WF_N),
    .over = 1,
    .reference = wgrad_reference,
    .flops = wgrad_flops,
};
