/*
 * Applying a normalisation, and its gradient.
 *
 * With xhat = (x - mean) * rstd, z = xhat * w + b, y = act(z), g = dy * act'(z) and gw = g * w:
 *
 *     db = sum g      dw = sum g * xhat
 *     dx = rstd * (gw - mean(gw) - xhat * mean(gw * xhat))      means over what one mean is taken of
 *     dx = rstd * gw                                            when the statistics are fixed
 *
 * norm_grad_sums sums g and g * xhat per channel: from these come dw, db and, weighted by w and
 * joined over the channels of a group, both means. z is computed again from x, so y is not kept.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/build.h"
#include "ops/norm.h"

enum { X, S, W, B, DY, Q };

bool wf_norm_check_affine(const struct wf_value *v, const char *what, int64_t channels,
                          struct wf_err *err)
{
    if (!v || wf_shape_equal(v->shape, WF_SHAPE(1, 1, 1, 1, channels)))
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "the %s has %" PRId64 " elements, x has %" PRId64
                      " channels: it must be [1,1,1,1,%" PRId64 "]",
                      what, wf_shape_count(v->shape), channels, channels);
}

static bool check_table(const struct wf_value *v, const struct wf_norm_attrs *a, int64_t samples,
                        int64_t width, struct wf_err *err)
{
    const int64_t rows = a->per_sample ? samples : 1;
    if (wf_shape_equal(v->shape, WF_SHAPE(rows, 1, 1, 1, width)))
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "statistics [%" PRId64 ",1,1,1,%" PRId64 "] wanted, got [%" PRId64
                      ",..,%" PRId64 "]: make them with the same groups and per_sample",
                      rows, width, v->shape.at[WF_N], v->shape.at[WF_C]);
}

/* What norm and its gradients ask of x, s, w, b. */
static bool check_inputs(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_norm_attrs *a = node->attrs;
    const struct wf_shape x = node->in[X]->shape;
    if (a->act != WF_ACT_NONE && a->act != WF_RELU && a->act != WF_LEAKY_RELU)
        return wf_err_set(err, WF_ERR_USAGE,
                          "activation %" PRId64
                          " cannot be fused, only ReLU and leaky ReLU: add it as a layer",
                          a->act);
    return wf_norm_check_groups(a, x.at[WF_C], err) &&
           check_table(node->in[S], a, x.at[WF_N], 2 * a->groups, err) &&
           wf_norm_check_affine(node->in[W], "weight", x.at[WF_C], err) &&
           wf_norm_check_affine(node->in[B], "bias", x.at[WF_C], err);
}

static bool check_dy(const struct wf_node *node, struct wf_err *err)
{
    if (node->in[DY] && wf_shape_equal(node->in[DY]->shape, node->in[X]->shape))
        return true;
    return wf_err_set(err, WF_ERR_USAGE, "dy must be given and have the shape of x");
}

/* Statistics are read for the samples of the work; x and dy are read where the work lies. */
static struct wf_region norm_reads(const struct wf_node *node, int input, struct wf_region work)
{
    const struct wf_norm_attrs *a = node->attrs;
    if (input == X || input == DY)
        return work;
    struct wf_region r = wf_shape_region(node->in[input]->shape);
    if (a->per_sample && (input == S || input == Q)) {
        r.lo[WF_N] = work.lo[WF_N];
        r.hi[WF_N] = work.hi[WF_N];
    }
    return r;
}

/* One element on its way through the layer. */
struct element {
    double xhat, rstd, w, z;
};

static struct element look(const struct wf_call *call, const int64_t at[WF_AXES])
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t c = at[WF_C], row = wf_norm_row(a, at[WF_N]);
    const int64_t group = wf_norm_group(a, call->node->in[X]->shape.at[WF_C], c);
    const double mean = wf_view_get(&call->in[S], row, 0, 0, 0, group);
    struct element e = { .w = 1.0 };
    e.rstd = wf_view_get(&call->in[S], row, 0, 0, 0, a->groups + group);
    e.xhat = (wf_view_at(&call->in[X], at) - mean) * e.rstd;
    if (call->in[W].data)
        e.w = wf_view_get(&call->in[W], 0, 0, 0, 0, c);
    e.z = e.xhat * e.w + (call->in[B].data ? wf_view_get(&call->in[B], 0, 0, 0, 0, c) : 0.0);
    return e;
}

static double slope_at(const struct wf_norm_attrs *a, double z)
{
    if (a->act == WF_ACT_NONE || z > 0)
        return 1.0;
    return a->act == WF_RELU ? 0.0 : a->slope;
}

/* --- norm_grad_sums --- */

static bool grad_sums_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_norm_attrs *a = node->attrs;
    const struct wf_shape x = node->in[X]->shape;
    if (!check_inputs(node, err) || !check_dy(node, err))
        return false;
    node->out[0]->shape =
        WF_SHAPE(a->per_sample ? x.at[WF_N] : 1, 1, 1, 1, 2 * x.at[WF_C] + wf_norm_counts(a));
    node->out[0]->dtype = WF_F64;
    node->out[0]->replicated = !a->per_sample;
    return true;
}

static unsigned grad_sums_over(const struct wf_node *node)
{
    const struct wf_norm_attrs *a = node->attrs;
    return a->per_sample ? WF_SPATIAL : WF_SPATIAL | WF_AXIS(WF_N);
}

static void grad_sums_reference(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[X]->shape.at[WF_C];
    wf_norm_clear(call);
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const struct element e = look(call, c.at);
        const double g = wf_view_at(&call->in[DY], c.at) * slope_at(a, e.z);
        const int64_t row = wf_norm_row(a, c.at[WF_N]);
        wf_norm_count(&call->out[0], row, c.at[WF_C], g);
        wf_norm_count(&call->out[0], row, channels + c.at[WF_C], g * e.xhat);
    }
    if (wf_norm_counts(a))
        wf_norm_count(&call->out[0], 0, 2 * channels, (double)wf_region_extent(call->work, WF_N));
}

const struct wf_op wf_op_norm_grad_sums = {
    .name = "norm_grad_sums",
    .n_in = 5,
    .n_optional = 3, /* w and b; infer asks for dy */
    .flags = WF_OP_ROWS,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .infer = grad_sums_infer,
    .reads = norm_reads,
    .sums_over = grad_sums_over,
    .is_local = wf_norm_is_local,
    .reference = grad_sums_reference,
    .flops_each = 4,
};

/* --- norm_grad --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_norm_attrs *a = node->attrs;
    const struct wf_shape x = node->in[X]->shape;
    if (!check_inputs(node, err) || !check_dy(node, err))
        return false;
    if (!a->fixed && (!node->in[Q] || a->count < 1))
        return wf_err_set(err, WF_ERR_USAGE,
                          "statistics that depend on x need the sums q and a count, got count "
                          "%" PRId64,
                          a->count);
    return !node->in[Q] ||
           check_table(node->in[Q], a, x.at[WF_N], 2 * x.at[WF_C] + wf_norm_counts(a), err);
}

/* The means over e's group of g * w and of g * w * xhat. */
static void group_means(const struct wf_call *call, const int64_t at[WF_AXES], double means[2])
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[X]->shape.at[WF_C], width = channels / a->groups;
    const int64_t first = at[WF_C] / width * width, row = wf_norm_row(a, at[WF_N]);
    const double count = fmax(wf_norm_total(a, &call->in[Q], row, 2 * channels), 1.0);
    means[0] = means[1] = 0.0;
    for (int64_t c = first; c < first + width; c++) {
        const double w = call->in[W].data ? wf_view_get(&call->in[W], 0, 0, 0, 0, c) : 1.0;
        means[0] += w * wf_view_get(&call->in[Q], row, 0, 0, 0, c) / count;
        means[1] += w * wf_view_get(&call->in[Q], row, 0, 0, 0, channels + c) / count;
    }
}

static void grad_reference(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const struct element e = look(call, c.at);
        double dx = wf_view_at(&call->in[DY], c.at) * slope_at(a, e.z) * e.w;
        if (!a->fixed) {
            double means[2];
            group_means(call, c.at, means);
            dx -= means[0] + e.xhat * means[1];
        }
        wf_view_set(&call->out[0], c.at, e.rstd * dx);
    }
}

const struct wf_op wf_op_norm_grad = {
    .name = "norm_grad",
    .n_in = 6,
    .n_optional = 4, /* w and b, q when fixed; infer asks for dy */
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .flags = WF_OP_POINTWISE,
    .inplace = 1u << DY,
    .infer = grad_infer,
    .reads = norm_reads,
    .reference = grad_reference,
    .flops_each = 4,
};

/* --- norm_wgrad --- */

static bool wgrad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_norm_attrs *a = node->attrs;
    const struct wf_shape q = node->in[0]->shape;
    if ((q.at[WF_C] - wf_norm_counts(a)) % 2 != 0 || (!a->per_sample && q.at[WF_N] != 1))
        return wf_err_set(err, WF_ERR_USAGE,
                          "q is [%" PRId64 ",1,1,1,%" PRId64
                          "]: it must hold two sums per channel, one row unless per_sample",
                          q.at[WF_N], q.at[WF_C]);
    for (int o = 0; o < 2; o++) {
        node->out[o]->shape = WF_SHAPE(1, 1, 1, 1, q.at[WF_C] / 2); /* a count is left out */
        node->out[o]->dtype = a->wide ? WF_F64 : WF_F32;
        node->out[o]->replicated = true;
    }
    return true;
}

static unsigned wgrad_sums_over(const struct wf_node *node)
{
    const struct wf_norm_attrs *a = node->attrs;
    return a->per_sample ? WF_AXIS(WF_N) : 0;
}

/* Without samples of their own the work lies in dw and there is one row to read. */
static void wgrad_reference(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const bool nothing = a->per_sample && wf_region_is_empty(call->work);
    const int64_t channels = call->node->in[0]->shape.at[WF_C] / 2;
    const int64_t first = a->per_sample ? call->work.lo[WF_N] : 0;
    const int64_t end = nothing ? first : a->per_sample ? call->work.hi[WF_N] : 1;
    for (int64_t c = 0; c < channels; c++) {
        double dw = 0.0, db = 0.0;
        for (int64_t n = first; n < end; n++) {
            db += wf_view_get(&call->in[0], n, 0, 0, 0, c);
            dw += wf_view_get(&call->in[0], n, 0, 0, 0, channels + c);
        }
        wf_view_put(&call->out[0], 0, 0, 0, 0, c, dw);
        wf_view_put(&call->out[1], 0, 0, 0, 0, c, db);
    }
}

const struct wf_op wf_op_norm_wgrad = {
    .name = "norm_wgrad",
    .n_in = 1,
    .n_out = 2,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .infer = wgrad_infer,
    .sums_over = wgrad_sums_over,
    .reference = wgrad_reference,
};

/* --- norm --- */

static void norm_reference(const struct wf_call *call)
{
    const struct wf_norm_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const double z = look(call, c.at).z;
        wf_view_set(&call->out[0], c.at, z * slope_at(a, z));
    }
}

static struct wf_value *grad_sums(struct wf_graph *g, const struct wf_node *node,
                                  const struct wf_norm_attrs *a, struct wf_value *const in[])
{
    return wf_append(g, &wf_op_norm_grad_sums, node->name, NULL, a, 5, in);
}

static void norm_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                      const bool wanted[], struct wf_value *dx[])
{
    const struct wf_norm_attrs *a = node->attrs;
    struct wf_value *in[] = { node->in[X], node->in[S], node->in[W], node->in[B], dy[0], NULL };
    const bool affine = wanted[W] || wanted[B];
    struct wf_norm_attrs whole = *a; /* weights are everybody's, whatever the statistics are over */
    whole.local = 0;
    if (affine || (!a->fixed && !a->local))
        in[Q] = grad_sums(g, node, &whole, in);
    if (affine) {
        struct wf_norm_attrs wgrad = *a;
        wgrad.wide = node->in[wanted[W] ? W : B]->dtype == WF_F64;
        const struct wf_node *n = wf_node_add(g, &wf_op_norm_wgrad, node->name, &wgrad, 1, &in[Q]);
        dx[W] = n ? n->out[0] : NULL;
        dx[B] = n ? n->out[1] : NULL;
    }
    if (wanted[X]) {
        struct wf_value *q = a->local && !a->fixed ? grad_sums(g, node, a, in) : in[Q];
        in[Q] = a->fixed ? NULL : wf_norm_gather(g, a, node->name, in[X], q);
        dx[X] = wf_append(g, &wf_op_norm_grad, node->name, NULL, a, 6, in);
    }
}

/* Of a case: statistics, norm and their gradients. */
static struct wf_value *layer(struct wf_graph *g, struct wf_value *const in[], const void *attrs)
{
    struct wf_norm_layer l = { .name = "layer", .attrs = *(const struct wf_norm_attrs *)attrs };
    if (!(l.attrs.eps > 0))
        l.attrs.eps = 1e-5;
    if (!l.attrs.groups)
        l.attrs.groups = in[0]->shape.at[WF_C];
    l.x = in[0];
    l.w = in[1];
    l.b = in[2];
    return wf_norm_add(g, &l);
}

static const struct wf_case norm_cases[] = {
    { .attrs = "groups=3 fixed=1", .in = "x[2,1,5,3,3] P[6] p[3] p[3]" },
    { .attrs = "groups=2 fixed=1 act=relu", .in = "x[1,3,2,5,2] P[4] p[2] p[2]" },
    { .attrs = "groups=1 fixed=1 act=leaky_relu slope=0.3", .in = "x[3,1,1,7,1] P[2] - -" },
    { .attrs = "groups=2 fixed=1 per_sample=1", .in = "x[3,1,3,3,4] X[3,1,1,1,4] p[4] p[4]" },
    { .in = "x[2,1,5,3,3] p[3] p[3]", .build = layer },
    { .attrs = "act=relu", .in = "x[3,1,1,7,2] p[2] p[2]", .build = layer },
    { .attrs = "act=relu", .in = "x[1,3,4,3,2] p[2] p[2]", .build = layer },
    { .attrs = "act=leaky_relu slope=0.2", .in = "x[2,1,3,5,2] - -", .build = layer },
    { .attrs = "per_sample=1 act=relu", .in = "x[2,1,5,3,3] p[3] p[3]", .build = layer },
    { .attrs = "per_sample=1", .in = "x[3,2,1,5,1] - -", .build = layer },
    { .attrs = "per_sample=1 period=2 act=relu", .in = "x[4,1,3,2,3] p[3] p[3]", .build = layer },
    { .attrs = "per_sample=1 period=2 act=relu", .in = "x[6,1,1,5,1] p[1] p[1]", .build = layer },
    { .attrs = "per_sample=1 groups=2", .in = "x[2,1,3,3,4] p[4] p[4]", .build = layer },
    { .attrs = "per_sample=1 groups=1 act=leaky_relu slope=0.1",
      .in = "x[3,1,1,5,3] p[3] p[3]",
      .build = layer },
    { 0 },
};

static int norm_decides(const struct wf_node *node)
{
    return ((const struct wf_norm_attrs *)node->attrs)->act == WF_ACT_NONE ? -1 : 0;
}

const struct wf_op wf_op_norm = {
    .name = "norm",
    .n_in = 4,
    .n_optional = 2,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP | WF_OP_SHIFTS,
    .inplace = 1u << X,
    .infer = check_inputs,
    .grad = norm_grad,
    .reads = norm_reads,
    .decides = norm_decides,
    .reference = norm_reference,
    .flops_each = 4,
    .cases = norm_cases,
};
