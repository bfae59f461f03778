/*
 * conv: y[n, o, c] = b[c] + sum over k, i of x[n, o * stride + k * dilation - pad_lo, i] * w[c, k, i]
 *
 * Weights are (out, kd, kh, kw, in / groups). A linear layer is a convolution of kernel one. The
 * builders for all layers that own such weights stand here; the gradients in conv_transpose.c and
 * conv_wgrad.c.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops/spatial.h"

const struct wf_field wf_conv_fields[] = {
    WF_INTS(wf_conv_attrs, stride, 3),
    WF_INTS(wf_conv_attrs, dilation, 3),
    WF_INTS(wf_conv_attrs, pad_lo, 3),
    WF_INTS(wf_conv_attrs, pad_hi, 3),
    WF_INT(wf_conv_attrs, groups),
    WF_INTS(wf_conv_attrs, extent, 3),
    { 0 },
};

struct wf_windows wf_conv_windows(const struct wf_conv_attrs *a, const int64_t kernel[3])
{
    struct wf_windows w;
    for (int i = 0; i < WF_SPACE; i++)
        w.along[i] = (struct wf_window){ .kernel = kernel[i],
                                         .stride = a->stride[i],
                                         .dilation = a->dilation[i],
                                         .pad_lo = a->pad_lo[i],
                                         .pad_hi = a->pad_hi[i] };
    return w;
}

bool wf_conv_check(const struct wf_conv_attrs *a, const struct wf_value *x,
                   const struct wf_value *w, const struct wf_value *b, int64_t out,
                   struct wf_err *err)
{
    if (a->groups < 1 || w->shape.at[WF_N] % a->groups != 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%" PRId64 " filters do not split into %" PRId64
                          " groups: make the channels a multiple of the groups",
                          w->shape.at[WF_N], a->groups);
    /* f64 images may meet f32 parameters: finite differences run whole networks in f64. */
    if (w->dtype != x->dtype && !(x->dtype == WF_F64 && w->dtype == WF_F32))
        return wf_err_set(err, WF_ERR_USAGE, "the weight is %s but the image %s: cast the weight",
                          wf_dtype_name(w->dtype), wf_dtype_name(x->dtype));
    if (b && !wf_shape_equal(b->shape, WF_SHAPE(1, 1, 1, 1, out)))
        return wf_err_set(err, WF_ERR_USAGE,
                          "the bias must be [1, 1, 1, 1, %" PRId64 "], its last extent is %" PRId64,
                          out, b->shape.at[WF_C]);
    return true;
}

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_conv_attrs *a = node->attrs;
    const struct wf_value *x = node->in[0], *w = node->in[1];
    struct wf_value *y = node->out[0];
    if (!wf_conv_check(a, x, w, node->in[2], w->shape.at[WF_N], err))
        return false;
    if (w->shape.at[WF_C] * a->groups != x->shape.at[WF_C])
        return wf_err_set(err, WF_ERR_USAGE,
                          "the image has %" PRId64 " channels, the weight wants %" PRId64
                          " (%" PRId64 " in each of %" PRId64 " groups)",
                          x->shape.at[WF_C], w->shape.at[WF_C] * a->groups, w->shape.at[WF_C],
                          a->groups);
    y->shape.at[WF_N] = x->shape.at[WF_N];
    y->shape.at[WF_C] = w->shape.at[WF_N];
    const struct wf_windows win = wf_conv_windows(a, &w->shape.at[WF_D]);
    for (int i = 0; i < WF_SPACE; i++) {
        if (!wf_window_check(&win.along[i], x->shape.at[WF_D + i], i, err))
            return false;
        y->shape.at[WF_D + i] = wf_window_count(&win.along[i], x->shape.at[WF_D + i]);
    }
    return true;
}

/* The weight's gradient comes first: after it x is free, before dx needs memory. For convt x and dy
 * exchange their roles. */
void wf_conv_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                  const bool wanted[], struct wf_value *dx[])
{
    const bool back = node->op == &wf_op_convt;
    struct wf_value *x = node->in[0], *w = node->in[1];
    struct wf_conv_attrs a = *(const struct wf_conv_attrs *)node->attrs;
    if (wanted[1]) {
        wf_set_extent(a.extent, w);
        dx[1] = wf_append(g, &wf_op_conv_wgrad, node->name, "dw", &a, 2,
                          (struct wf_value *[]){ back ? dy[0] : x, back ? x : dy[0] });
    }
    if (wanted[2])
        dx[2] = wf_cast(g, wf_append(g, &wf_op_channel_sum, node->name, "db", NULL, 1, dy),
                        node->in[2]->dtype);
    if (wanted[0]) {
        wf_set_extent(a.extent, x);
        if (back)
            memset(a.extent, 0, sizeof a.extent);
        dx[0] = wf_append(g, back ? &wf_op_conv : &wf_op_convt, node->name, "dx", &a, 3,
                          (struct wf_value *[]){ dy[0], w, NULL });
    }
}

struct wf_region wf_conv_reads(const struct wf_node *node, int input, struct wf_region work)
{
    const bool back = node->op == &wf_op_convt;
    const struct wf_conv_attrs *a = node->attrs;
    const struct wf_shape *w = &node->in[1]->shape;
    if (input != 0)
        return wf_shape_region(node->in[input]->shape);
    struct wf_region r = wf_windows_over(wf_conv_windows(a, &w->at[WF_D]), work,
                                         back ? wf_window_touches : wf_window_reads);
    /* Of a group, so many channels are read for so many that are made. */
    const int64_t filters = w->at[WF_N] / a->groups;
    const int64_t read = back ? filters : w->at[WF_C], made = back ? w->at[WF_C] : filters;
    r.lo[WF_C] = work.lo[WF_C] / made * read;
    r.hi[WF_C] = ((work.hi[WF_C] - 1) / made + 1) * read;
    return r;
}

static double at_output(const struct wf_call *call, const int64_t at[WF_AXES])
{
    const struct wf_conv_attrs *a = call->node->attrs;
    const struct wf_shape *w = &call->node->in[1]->shape, *x = &call->node->in[0]->shape;
    const struct wf_view *xv = &call->in[0], *wv = &call->in[1], *bv = &call->in[2];
    const int64_t group = at[WF_C] / (w->at[WF_N] / a->groups);
    /* One tap at a time: its channels are a run in both tensors. */
    struct wf_region taps = wf_shape_region(*w);
    taps.lo[WF_N] = at[WF_C];
    taps.hi[WF_N] = at[WF_C] + 1;
    taps.hi[WF_C] = 1;
    double sum = bv->data ? wf_view_get(bv, 0, 0, 0, 0, at[WF_C]) : 0;
    for (struct wf_cursor t = wf_cursor(taps); wf_cursor_next(&t);) {
        int64_t from[WF_AXES] = { [WF_N] = at[WF_N], [WF_C] = group * w->at[WF_C] };
        for (int i = WF_D; i <= WF_W; i++)
            from[i] =
                at[i] * a->stride[i - WF_D] + t.at[i] * a->dilation[i - WF_D] - a->pad_lo[i - WF_D];
        struct wf_strided xs = { xv, 0, xv->stride[WF_C] }, ws = { wv, 0, wv->stride[WF_C] };
        if (wf_ref_locate(xv, x, from, &xs.offset) && wf_ref_locate(wv, w, t.at, &ws.offset))
            sum = wf_ref_dot(sum, xs, ws, w->at[WF_C]);
    }
    return sum;
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, at_output(call, c.at));
}

static double flops(const struct wf_node *node, struct wf_region work)
{
    const struct wf_shape *w = &node->in[1]->shape;
    return 2.0 * (double)wf_region_count(work) *
           (double)(w->at[WF_D] * w->at[WF_H] * w->at[WF_W] * w->at[WF_C]);
}

static const struct wf_case cases[] = {
    { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,1,1] pad_hi=[0,1,1] groups=1",
      .in = "x[1,1,5,7,2] p[3,1,3,3,2] p[3]" },
    { .attrs = "stride=[1,2,2] dilation=[1,1,1] pad_lo=[0,1,0] pad_hi=[0,0,2] groups=1",
      .in = "x[2,1,8,9,3] p[2,1,3,2,3] -" },
    { .attrs = "stride=[1,3,1] dilation=[1,1,2] pad_lo=[0,0,2] pad_hi=[0,1,3] groups=2",
      .in = "x[1,1,10,6,4] p[6,1,2,3,2] p[6]" },
    { .attrs = "stride=[1,1,2] dilation=[1,1,3] pad_lo=[0,0,3] pad_hi=[0,0,2] groups=1",
      .in = "x[2,1,1,17,2] p[2,1,1,3,2] p[2]" },
    { .attrs = "stride=[1,2,1] dilation=[1,1,1] pad_lo=[1,1,1] pad_hi=[1,1,0] groups=1",
      .in = "x[1,4,5,5,2] p[2,3,3,2,2] -" },
    { .attrs = "stride=[2,1,3] dilation=[1,2,1] pad_lo=[0,2,1] pad_hi=[1,1,1] groups=3",
      .in = "x[1,5,6,7,3] p[3,2,2,3,1] p[3]" },
    { .attrs = "stride=[1,1,1] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1",
      .in = "x[3,1,1,1,5] p[4,1,1,1,5] p[4]" },
    { .attrs = "stride=[1,3,3] dilation=[1,1,1] pad_lo=[0,0,0] pad_hi=[0,0,0] groups=1",
      .in = "x[1,1,8,7,1] p[2,1,2,1,1] -" },
    { 0 },
};

const struct wf_op wf_op_conv = {
    .name = "conv",
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

/* --- the layers --- */

/* A layer's own numbers, zeros filled in. */
struct layer {
    struct wf_conv_attrs attrs;
    int64_t kernel[3];
    int dims;
};

static bool layer_resolve(struct wf_graph *g, const struct wf_value *x, const struct wf_conv *c,
                          struct layer *l)
{
    *l = (struct layer){ .attrs.groups = c->groups ? c->groups : 1, .dims = c->dims };
    for (int i = 0; i < WF_SPACE; i++) {
        l->kernel[i] = c->kernel[i] ? c->kernel[i] : 1;
        l->attrs.stride[i] = c->stride[i] ? c->stride[i] : 1;
        l->attrs.dilation[i] = c->dilation[i] ? c->dilation[i] : 1;
        const int64_t grow = l->attrs.dilation[i] * (l->kernel[i] - 1);
        l->attrs.pad_lo[i] = c->same ? grow / 2 : c->pad_lo[i];
        l->attrs.pad_hi[i] = c->same ? grow - grow / 2 : c->pad_hi[i];
    }
    if (l->dims == 0)
        l->dims = x->shape.at[WF_D] > 1 || l->kernel[0] > 1   ? 3
                  : x->shape.at[WF_H] > 1 || l->kernel[1] > 1 ? 2
                                                              : 1;
    const int64_t groups = l->attrs.groups, in = x->shape.at[WF_C];
    if (groups < 1 || c->out < 1 || in % groups != 0 || c->out % groups != 0)
        return wf_err_set(&g->err, WF_ERR_USAGE,
                          "layer '%s': %" PRId64 " channels in and %" PRId64
                          " out do not split into %" PRId64 " groups: use a divisor of both",
                          c->name, in, c->out, groups);
    for (int i = 0; i < WF_SPACE; i++)
        if (l->kernel[i] < 1)
            return wf_err_set(&g->err, WF_ERR_USAGE,
                              "layer '%s': a kernel extent is %" PRId64 ": use at least 1", c->name,
                              l->kernel[i]);
    return true;
}

static struct wf_value *parameter(struct wf_graph *g, const char *layer, const char *what,
                                  struct wf_param_spec spec)
{
    spec.name = wf_arena_printf(&g->arena, "%s.%s", layer, what);
    spec.init = WF_INIT_UNIFORM;
    return wf_param(g, &spec);
}

/* The node of a layer with weight `shape`, initialised as PyTorch does: uniform within
 * 1 / sqrt(fan in), bias likewise. */
static struct wf_value *layer_add(struct wf_graph *g, const struct wf_op *op, struct wf_value *x,
                                  const struct wf_conv *c, const struct layer *l,
                                  struct wf_shape shape)
{
    const double fan = (double)(shape.at[WF_D] * shape.at[WF_H] * shape.at[WF_W] * shape.at[WF_C]);
    const double bound = 1.0 / sqrt(fan);
    struct wf_value *w = parameter(
        g, c->name, "weight",
        (struct wf_param_spec){ .shape = shape, .border_dims = l->dims, .init_bound = bound });
    struct wf_value *b = NULL;
    if (c->bias) {
        b = parameter(g, c->name, "bias",
                      (struct wf_param_spec){ .shape = WF_SHAPE(1, 1, 1, 1, c->out),
                                              .border_dims = -1,
                                              .init_bound = bound });
        if (!b)
            return NULL;
    }
    /* Parameters are f32; the bias stays so, because it is added to a wide sum. */
    if (w && (x->dtype == WF_BF16 || x->dtype == WF_F16))
        w = wf_cast(g, w, x->dtype);
    return wf_append(g, op, c->name, NULL, &l->attrs, 3, (struct wf_value *[]){ x, w, b });
}

struct wf_value *wf_conv(struct wf_graph *g, struct wf_value *x, const struct wf_conv *c)
{
    struct layer l;
    if (!x || !layer_resolve(g, x, c, &l))
        return NULL;
    if (c->pad_mode != WF_PAD_ZERO) {
        x = wf_pad(g, x, wf_arena_printf(&g->arena, "%s.pad", c->name), l.attrs.pad_lo,
                   l.attrs.pad_hi, c->pad_mode);
        if (!x)
            return NULL;
        for (int i = 0; i < WF_SPACE; i++)
            l.attrs.pad_lo[i] = l.attrs.pad_hi[i] = 0;
    }
    return layer_add(g, &wf_op_conv, x, c, &l,
                     WF_SHAPE(c->out, l.kernel[0], l.kernel[1], l.kernel[2],
                              x->shape.at[WF_C] / l.attrs.groups));
}

struct wf_value *wf_conv_transpose(struct wf_graph *g, struct wf_value *x, const struct wf_conv *c)
{
    struct layer l;
    if (!x || !layer_resolve(g, x, c, &l))
        return NULL;
    if (c->pad_mode != WF_PAD_ZERO) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': a transposed convolution crops, it has no padding mode", c->name);
        return NULL;
    }
    for (int i = 0; i < WF_SPACE; i++) {
        struct wf_conv_attrs *a = &l.attrs;
        /* More would be rows that no window of the convolution covers: it would not be its adjoint. */
        if (c->output_pad[i] < 0 || c->output_pad[i] >= a->stride[i]) {
            wf_err_set(&g->err, WF_ERR_USAGE,
                       "layer '%s': output padding %" PRId64 " must be below the stride %" PRId64,
                       c->name, c->output_pad[i], a->stride[i]);
            return NULL;
        }
        a->extent[i] = (x->shape.at[WF_D + i] - 1) * a->stride[i] - a->pad_lo[i] - a->pad_hi[i] +
                       a->dilation[i] * (l.kernel[i] - 1) + c->output_pad[i] + 1;
    }
    return layer_add(g, &wf_op_convt, x, c, &l,
                     WF_SHAPE(x->shape.at[WF_C], l.kernel[0], l.kernel[1], l.kernel[2],
                              c->out / l.attrs.groups));
}

struct wf_value *wf_linear(struct wf_graph *g, struct wf_value *x, const char *name, int64_t out,
                           bool bias)
{
    const struct wf_conv c = { .name = name, .out = out, .bias = bias };
    struct layer l;
    if (!x || !layer_resolve(g, x, &c, &l))
        return NULL;
    if (x->shape.at[WF_D] * x->shape.at[WF_H] * x->shape.at[WF_W] != 1) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': a linear layer takes a vector, not an image of %" PRId64
                   " x %" PRId64 " x %" PRId64 ": flatten or pool it first",
                   name, x->shape.at[WF_D], x->shape.at[WF_H], x->shape.at[WF_W]);
        return NULL;
    }
    l.dims = 0;
    return layer_add(g, &wf_op_conv, x, &c, &l, WF_SHAPE(out, 1, 1, 1, x->shape.at[WF_C]));
}
