/*
 * convt: the adjoint of conv in x, with the attributes of that convolution.
 *
 *     y[n, p, i] = b[i] + sum over c and all (o, k) with o * stride + k * dilation - pad_lo = p
 *                  of x[n, o, c] * w[c, k, i]
 *
 * It is the transposed layer (weight (in, kd, kh, kw, out / groups), as PyTorch has it) and the
 * gradient of conv. Several extents of y shrink to the same x, so attrs.extent names the one meant.
 */
#include <inttypes.h>

#include "ops/spatial.h"

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_conv_attrs *a = node->attrs;
    const struct wf_value *x = node->in[0], *w = node->in[1];
    struct wf_value *y = node->out[0];
    const int64_t out = w->shape.at[WF_C] * a->groups;
    if (!wf_conv_check(a, x, w, node->in[2], out, err))
        return false;
    if (w->shape.at[WF_N] != x->shape.at[WF_C])
        return wf_err_set(err, WF_ERR_USAGE,
                          "the image has %" PRId64 " channels, the weight wants %" PRId64,
                          x->shape.at[WF_C], w->shape.at[WF_N]);
    y->shape.at[WF_N] = x->shape.at[WF_N];
    y->shape.at[WF_C] = out;
    const struct wf_windows windows = wf_conv_windows(a, &w->shape.at[WF_D]);
    for (int i = 0; i < WF_SPACE; i++) {
        const struct wf_window *const win = &windows.along[i];
        const int64_t have = x->shape.at[WF_D + i], extent = a->extent[i];
        if (extent < 1)
            return wf_err_set(err, WF_ERR_USAGE,
                              "the result would have %" PRId64 " along axis %c: crop less "
                              "(padding %" PRId64 " and %" PRId64 ")",
                              extent, "DHW"[i], a -> pad_lo[i], a -> pad_hi[i]);
        if (!wf_window_check(win, extent, i, err))
            return false;
        if (wf_window_count(win, extent) != have)
            return wf_err_set(err, WF_ERR_USAGE,
                              "a result of %" PRId64
                              " along axis %c belongs to an input of %" PRId64 ", not %" PRId64,
                              extent, "DHW"[i], wf_window_count(win, extent), have);
        y->shape.at[WF_D + i] = extent;
    }
    return true;
}

/* The output position o of the convolution that sees p at tap k; false when none does. */
static bool seen_from(const struct wf_conv_attrs *a, int i, int64_t p, int64_t k, int64_t *o)
{
    const int64_t scaled = p + a->pad_lo[i] - k * a->dilation[i];
    *o = wf_floor_div(scaled, a->stride[i]);
    return *o * a->stride[i] == scaled;
}

static double at_output(const struct wf_call *call, const int64_t at[WF_AXES])
{
    const struct wf_conv_attrs *a = call->node->attrs;
    const struct wf_shape *w = &call->node->in[1]->shape, *x = &call->node->in[0]->shape;
    const struct wf_view *xv = &call->in[0], *wv = &call->in[1], *bv = &call->in[2];
    const int64_t filters = w->at[WF_N] / a->groups, first = at[WF_C] / w->at[WF_C] * filters;
    /* One tap at a time, summed over the filters of the group. */
    struct wf_region taps = wf_shape_region(*w);
    taps.lo[WF_N] = first;
    taps.hi[WF_N] = first + 1;
    taps.lo[WF_C] = at[WF_C] % w->at[WF_C];
    taps.hi[WF_C] = taps.lo[WF_C] + 1;
    double sum = bv->data ? wf_view_get(bv, 0, 0, 0, 0, at[WF_C]) : 0;
    for (struct wf_cursor t = wf_cursor(taps); wf_cursor_next(&t);) {
        int64_t from[WF_AXES] = { [WF_N] = at[WF_N], [WF_C] = first };
        bool seen = true;
        for (int i = WF_D; i <= WF_W && seen; i++)
            seen = seen_from(a, i - WF_D, at[i], t.at[i], &from[i]);
        struct wf_strided xs = { xv, 0, xv->stride[WF_C] }, ws = { wv, 0, wv->stride[WF_N] };
        if (seen && wf_ref_locate(xv, x, from, &xs.offset) &&
            wf_ref_locate(wv, w, t.at, &ws.offset))
            sum = wf_ref_dot(sum, xs, ws, filters);
    }
    return sum;
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, at_output(call, c.at));
}

/* As many as the convolution has; a part of y gets its share. */
static double flops(const struct wf_node *node, struct wf_region work)
{
    const struct wf_shape *w = &node->in[1]->shape;
    const double share =
        (double)wf_region_count(work) / (double)wf_shape_count(node->out[0]->shape);
    return 2.0 * share * (double)wf_shape_count(node->in[0]->shape) *
           (double)(w->at[WF_D] * w->at[WF_H] * w->at[WF_W] * w->at[WF_C]);
}

static const struct wf_case cases[] = {
    { .attrs =
          "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1 extent=[1,6,8]",
      .in = "x[1,1,3,4,3] p[3,1,2,2,2] p[2]" },
    { .attrs =
          "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,1,0] pad_hi=[0,1,1] groups=1 extent=[1,6,8]",
      .in = "x[2,1,3,4,2] p[2,1,3,3,3] -" },
    { .attrs =
          "stride=[1,3,1] dilation=[1,2,1] pad_lo=[0,1,1] pad_hi=[0,0,1] groups=2 extent=[1,9,5]",
      .in = "x[1,1,3,5,4] p[4,1,2,3,1] p[2]" },
    { .attrs =
          "stride=[1,1,3] dilation=[1,1,1] pad_lo=[0,0,1] pad_hi=[0,0,0] groups=1 extent=[1,1,14]",
      .in = "x[2,1,1,5,2] p[2,1,1,2,2] p[2]" },
    { .attrs =
          "stride=[2,1,2] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[1,1,1] groups=1 extent=[3,4,5]",
      .in = "x[1,2,4,3,2] p[2,2,3,3,2] -" },
    { .attrs =
          "stride=[1,2,2] dilation=[2,1,2] pad_lo=[1,0,1] pad_hi=[1,0,2] groups=3 extent=[2,5,6]",
      .in = "x[1,2,2,4,3] p[3,2,3,2,1] p[3]" },
    { 0 },
};

const struct wf_op wf_op_convt = {
    .name = "convt",
    .n_in = 3,
    .flags = WF_OP_SHIFTS,
    .n_optional = 1,
    WF_ATTRS(wf_conv_attrs, wf_conv_fields),
    .infer = infer,
    .grad = wf_conv_grad,
    .reads = wf_conv_reads,
    .reference = reference,
    .flops = flops,
    .cases = cases,
};
