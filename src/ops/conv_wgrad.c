/*
 * conv_wgrad: dw[c, k, i] = sum over n, o of dy[n, o, c] * x[n, o * stride + k * dilation - pad_lo, i]
 *
 * The work is a region of dy: each rank sums over its own part, the planner adds them up. The result
 * is replicated, in f32 at least.
 */
#include <inttypes.h>
#include <string.h>

#include "ops/spatial.h"

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_conv_attrs *a = node->attrs;
    const struct wf_value *x = node->in[0], *dy = node->in[1];
    struct wf_value *dw = node->out[0];
    if (a->groups < 1 || x->shape.at[WF_C] % a->groups != 0 || dy->shape.at[WF_C] % a->groups != 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%" PRId64 " and %" PRId64 " channels do not split into %" PRId64
                          " groups",
                          x->shape.at[WF_C], dy->shape.at[WF_C], a->groups);
    if (x->shape.at[WF_N] != dy->shape.at[WF_N] || x->dtype != dy->dtype)
        return wf_err_set(err, WF_ERR_USAGE,
                          "x has %" PRId64 " samples of %s, dy has %" PRId64 " of %s",
                          x->shape.at[WF_N], wf_dtype_name(x->dtype), dy->shape.at[WF_N],
                          wf_dtype_name(dy->dtype));
    dw->shape.at[WF_N] = dy->shape.at[WF_C];
    dw->shape.at[WF_C] = x->shape.at[WF_C] / a->groups;
    const struct wf_windows windows = wf_conv_windows(a, a->extent);
    for (int i = 0; i < WF_SPACE; i++) {
        const struct wf_window *const win = &windows.along[i];
        const int64_t extent = x->shape.at[WF_D + i], have = dy->shape.at[WF_D + i];
        if (!wf_window_check(win, extent, i, err))
            return false;
        if (wf_window_count(win, extent) != have)
            return wf_err_set(err, WF_ERR_USAGE,
                              "dy should have %" PRId64 " along axis %c, it has %" PRId64,
                              wf_window_count(win, extent), "DHW"[i], have);
        dw->shape.at[WF_D + i] = a->extent[i];
    }
    dw->dtype = wf_sum_dtype(x->dtype);
    dw->replicated = true;
    return true;
}

static struct wf_region reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_conv_attrs *a = node->attrs;
    if (input == 1)
        return work;
    struct wf_region r = wf_windows_over(wf_conv_windows(a, a->extent), work, wf_window_reads);
    r.lo[WF_C] = 0;
    r.hi[WF_C] = node->in[0]->shape.at[WF_C];
    return r;
}

/* Adds one row of dy times the row of x that lies under it at tap `at`. */
static double add_row(double sum, const struct wf_call *call, const int64_t at[WF_AXES],
                      const int64_t row[WF_AXES], int64_t channel)
{
    const struct wf_conv_attrs *a = call->node->attrs;
    const struct wf_shape *x = &call->node->in[0]->shape;
    const struct wf_view *xv = &call->in[0], *dyv = &call->in[1];
    int64_t from[WF_AXES] = { [WF_N] = row[WF_N], [WF_C] = channel };
    int64_t to[WF_AXES] = { row[WF_N], row[WF_D], row[WF_H], 0, at[WF_N] };
    for (int i = WF_D; i <= WF_H; i++)
        from[i] =
            row[i] * a->stride[i - WF_D] + at[i] * a->dilation[i - WF_D] - a->pad_lo[i - WF_D];
    /* Columns of dy whose partner lies inside the image. */
    const int64_t shift = at[WF_W] * a->dilation[2] - a->pad_lo[2], stride = a->stride[2];
    const int64_t lo = wf_max(call->work.lo[WF_W], wf_ceil_div(-shift, stride));
    const int64_t hi =
        wf_min(call->work.hi[WF_W], wf_floor_div(x->at[WF_W] - 1 - shift, stride) + 1);
    if (lo >= hi)
        return sum;
    to[WF_W] = lo;
    from[WF_W] = lo * stride + shift;
    struct wf_strided xs = { xv, 0, stride * xv->stride[WF_W] },
                      dys = { dyv, 0, dyv->stride[WF_W] };
    if (!wf_ref_locate(xv, x, from, &xs.offset) ||
        !wf_ref_locate(dyv, &call->node->in[1]->shape, to, &dys.offset))
        return sum;
    return wf_ref_dot(sum, xs, dys, hi - lo);
}

static void reference(const struct wf_call *call)
{
    const struct wf_conv_attrs *a = call->node->attrs;
    const struct wf_shape *dw = &call->node->out[0]->shape;
    const int64_t filters = dw->at[WF_N] / a->groups;
    struct wf_region rows = call->work; /* a step of the inner cursor is a row along W */
    rows.hi[WF_W] = wf_min(rows.hi[WF_W], rows.lo[WF_W] + 1);
    for (struct wf_cursor c = wf_cursor(wf_shape_region(*dw)); wf_cursor_next(&c);) {
        const int64_t channel = c.at[WF_N] / filters * dw->at[WF_C] + c.at[WF_C];
        /* The filter's own channel of dy; nothing where the work leaves it out. */
        rows.lo[WF_C] = wf_max(call->work.lo[WF_C], c.at[WF_N]);
        rows.hi[WF_C] = wf_min(call->work.hi[WF_C], c.at[WF_N] + 1);
        double sum = 0;
        for (struct wf_cursor r = wf_cursor(rows); wf_cursor_next(&r);)
            sum = add_row(sum, call, c.at, r.at, channel);
        wf_view_set(&call->out[0], c.at, sum);
    }
}

static double flops(const struct wf_node *node, struct wf_region work)
{
    const struct wf_shape *w = &node->out[0]->shape;
    return 2.0 * (double)wf_region_count(work) *
           (double)(w->at[WF_D] * w->at[WF_H] * w->at[WF_W] * w->at[WF_C]);
}

/* Linear in both: dw is to x and dy what the weight is to a convolution. */
static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const ddw[],
                 const bool wanted[], struct wf_value *dx[])
{
    struct wf_value *const x = node->in[0], *const dy = node->in[1];
    struct wf_value *const w = wf_cast(g, ddw[0], x->dtype);
    struct wf_conv_attrs a = *(const struct wf_conv_attrs *)node->attrs;
    if (wanted[1]) {
        memset(a.extent, 0, sizeof a.extent);
        dx[1] = wf_append(g, &wf_op_conv, node->name, "ddy", &a, 3,
                          (struct wf_value *[]){ x, w, NULL });
    }
    if (wanted[0]) {
        wf_set_extent(a.extent, x);
        dx[0] = wf_append(g, &wf_op_convt, node->name, "dx", &a, 3,
                          (struct wf_value *[]){ dy, w, NULL });
    }
}

const struct wf_op wf_op_conv_wgrad = {
    .name = "conv_wgrad",
    .n_in = 2,
    WF_ATTRS(wf_conv_attrs, wf_conv_fields),
    .infer = infer,
    .grad = grad,
    .reads = reads,
    .sums = WF_AXIS(WF_N) | WF_SPATIAL,
    .over = 1,
    .reference = reference,
    .flops = flops,
};
