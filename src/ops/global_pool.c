/*
 * global_pool: y[n, c] = factor * sum over d, h, w of x; broadcast: y[n, d, h, w, c] = factor * x[n, c].
 * Each is the other's gradient.
 *
 * The sum is f64, because ranks add their parts and another cut must not show; what people build
 * with is cast back to the dtype of x while it is still small.
 */
#include <inttypes.h>

#include "ops/spatial.h"

static const struct wf_field fields[] = {
    WF_INTS(wf_spread_attrs, extent, 3),
    WF_REAL(wf_spread_attrs, factor),
    { 0 },
};

static bool infer(const struct wf_node *node, struct wf_err *)
{
    const struct wf_shape *x = &node->in[0]->shape;
    node->out[0]->shape = WF_SHAPE(x->at[WF_N], 1, 1, 1, x->at[WF_C]);
    node->out[0]->dtype = WF_F64;
    return true;
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    struct wf_spread_attrs a = *(const struct wf_spread_attrs *)node->attrs;
    wf_set_extent(a.extent, node->in[0]);
    struct wf_value *d = wf_cast(g, dy[0], node->in[0]->dtype);
    dx[0] = wf_append(g, &wf_op_broadcast, node->name, "dx", &a, 1, &d);
}

static void reference(const struct wf_call *call)
{
    const struct wf_spread_attrs *a = call->node->attrs;
    /* Over what the output holds, so that samples outside the work become zero. */
    for (struct wf_cursor c = wf_cursor(call->out[0].box); wf_cursor_next(&c);) {
        struct wf_region mine = call->work;
        mine.lo[WF_N] = wf_max(mine.lo[WF_N], c.at[WF_N]);
        mine.hi[WF_N] = wf_min(mine.hi[WF_N], c.at[WF_N] + 1);
        mine.lo[WF_C] = wf_max(mine.lo[WF_C], c.at[WF_C]);
        mine.hi[WF_C] = wf_min(mine.hi[WF_C], c.at[WF_C] + 1);
        double sum = 0;
        for (struct wf_cursor p = wf_cursor(mine); wf_cursor_next(&p);)
            sum += wf_view_at(&call->in[0], p.at);
        wf_view_set(&call->out[0], c.at, a->factor * sum);
    }
}

static const struct wf_case cases[] = {
    { .attrs = "factor=0.025", .in = "x[1,1,5,8,3]" },
    { .attrs = "factor=1", .in = "x[2,1,1,7,2]" },
    { .attrs = "factor=0.5", .in = "x[2,3,2,5,1]" },
    { .attrs = "factor=-2", .in = "x[3,1,1,1,4]" },
    { .attrs = "factor=0.1", .in = "x[1,4,3,1,2]" },
    { .attrs = "factor=3", .in = "x[2,1,9,1,2]" },
    { 0 },
};

const struct wf_op wf_op_global_pool = {
    .name = "global_pool",
    .n_in = 1,
    .flags = WF_OP_SHIFTS,
    WF_ATTRS(wf_spread_attrs, fields),
    .infer = infer,
    .grad = grad,
    .sums = WF_SPATIAL,
    .over = 0,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_global_pool(struct wf_graph *g, struct wf_value *x, const char *name)
{
    if (!x)
        return NULL;
    const int64_t count = x->shape.at[WF_D] * x->shape.at[WF_H] * x->shape.at[WF_W];
    /* Divided once, behind the sum over ranks: f64 adds f32 numbers of like size exactly, in any
     * order, but parts that were divided each on its own would be rounded before they are added. */
    const struct wf_spread_attrs a = { .factor = 1.0 };
    struct wf_value *const sum = wf_append(g, &wf_op_global_pool, name, NULL, &a, 1, &x);
    return wf_cast(g, wf_scale(g, sum, 1.0 / (double)count), x->dtype);
}

struct wf_value *wf_global_sum(struct wf_graph *g, struct wf_value *x, const char *name)
{
    const struct wf_spread_attrs a = { .factor = 1.0 };
    return x ? wf_cast(g, wf_append(g, &wf_op_global_pool, name, NULL, &a, 1, &x), x->dtype) : NULL;
}

/* --- broadcast --- */

static bool infer_broadcast(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_spread_attrs *a = node->attrs;
    const struct wf_shape *x = &node->in[0]->shape;
    if (x->at[WF_D] != 1 || x->at[WF_H] != 1 || x->at[WF_W] != 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "takes a vector, not an image of %" PRId64 " x %" PRId64 " x %" PRId64
                          ": pool it first",
                          x->at[WF_D], x->at[WF_H], x->at[WF_W]);
    node->out[0]->shape =
        WF_SHAPE(x->at[WF_N], a->extent[0], a->extent[1], a->extent[2], x->at[WF_C]);
    return true;
}

static void grad_broadcast(struct wf_graph *g, const struct wf_node *node,
                           struct wf_value *const dy[], const bool[], struct wf_value *dx[])
{
    const struct wf_spread_attrs *a = node->attrs;
    const struct wf_spread_attrs sum = { .factor = a->factor };
    dx[0] = wf_cast(g, wf_append(g, &wf_op_global_pool, node->name, "dx", &sum, 1, dy),
                    node->in[0]->dtype);
}

static void reference_broadcast(const struct wf_call *call)
{
    const struct wf_spread_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    a->factor * wf_view_get(&call->in[0], c.at[WF_N], 0, 0, 0, c.at[WF_C]));
}

static const struct wf_case cases_broadcast[] = {
    { .attrs = "extent=[1,4,5] factor=1", .in = "x[2,1,1,1,3]" },
    { .attrs = "extent=[1,1,7] factor=0.5", .in = "x[2]" },
    { .attrs = "extent=[2,3,4] factor=-1", .in = "x[2,1,1,1,2]" },
    { .attrs = "extent=[1,1,1] factor=3", .in = "x[3,1,1,1,2]" },
    { .attrs = "extent=[3,1,2] factor=0.1", .in = "x[5]" },
    { .attrs = "extent=[1,9,1] factor=2", .in = "x[2,1,1,1,1]" },
    { 0 },
};

const struct wf_op wf_op_broadcast = {
    .name = "broadcast",
    .n_in = 1,
    WF_ATTRS(wf_spread_attrs, fields),
    .flags = WF_OP_CHEAP,
    .infer = infer_broadcast,
    .grad = grad_broadcast,
    .reference = reference_broadcast,
    .cases = cases_broadcast,
};
