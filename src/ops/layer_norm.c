/* Layer norm over the channels of each position; its statistics never leave the position. */
#include <math.h>

#include "ops/build.h"
#include "ops/norm.h"
#include "ops/rows.h"

struct moments {
    double mean, rstd;
};

static struct moments of_row(const struct wf_call *call, const int64_t at[WF_AXES])
{
    const struct wf_norm_attrs *a = call->node->attrs;
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    double sum = 0.0, square = 0.0;
    for (int64_t c = 0; c < channels; c++)
        sum += wf_row_get(&call->in[0], at, c);
    const double mean = sum / (double)channels;
    for (int64_t c = 0; c < channels; c++) {
        const double away = wf_row_get(&call->in[0], at, c) - mean;
        square += away * away;
    }
    return (struct moments){ mean, 1.0 / sqrt(square / (double)channels + a->eps) };
}

static double weight_at(const struct wf_call *call, int input, int64_t c)
{
    return call->in[input].data ? wf_view_get(&call->in[input], 0, 0, 0, 0, c) : 1.0;
}

static bool check_dy(const struct wf_value *x, const struct wf_value *dy, struct wf_err *err)
{
    if (dy && wf_shape_equal(x->shape, dy->shape))
        return true;
    return wf_err_set(err, WF_ERR_USAGE, "dy must be given and have the shape of x");
}

/* --- layernorm_grad: x, [w], dy --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    return wf_norm_check_affine(node->in[1], "weight", node->in[0]->shape.at[WF_C], err) &&
           check_dy(node->in[0], node->in[2], err);
}

static void grad_reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (struct wf_cursor p = wf_cursor(wf_rows(call->work)); wf_cursor_next(&p);) {
        const struct moments m = of_row(call, p.at);
        double mean_g = 0.0, mean_gx = 0.0;
        for (int64_t c = 0; c < channels; c++) {
            const double g = wf_row_get(&call->in[2], p.at, c) * weight_at(call, 1, c);
            mean_g += g / (double)channels;
            mean_gx += g * (wf_row_get(&call->in[0], p.at, c) - m.mean) * m.rstd / (double)channels;
        }
        for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c++) {
            const double g = wf_row_get(&call->in[2], p.at, c) * weight_at(call, 1, c);
            const double xhat = (wf_row_get(&call->in[0], p.at, c) - m.mean) * m.rstd;
            wf_row_put(&call->out[0], p.at, c, m.rstd * (g - mean_g - xhat * mean_gx));
        }
    }
}

const struct wf_op wf_op_layernorm_grad = {
    .name = "layernorm_grad",
    .n_in = 3,
    .n_optional = 2, /* w; infer asks for dy */
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .flags = WF_OP_POINTWISE,
    .infer = grad_infer,
    .reads = wf_row_reads,
    .reference = grad_reference,
    .flops_each = 8,
};

/* --- layernorm_wgrad: x, dy --- */

static bool wgrad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_norm_attrs *a = node->attrs;
    for (int o = 0; o < 2; o++) {
        node->out[o]->shape = WF_SHAPE(1, 1, 1, 1, node->in[0]->shape.at[WF_C]);
        node->out[o]->dtype = a->wide ? WF_F64 : WF_F32;
        node->out[o]->replicated = true;
    }
    return check_dy(node->in[0], node->in[1], err);
}

/* A channel at a time, so that the sums stay in doubles. */
static void wgrad_reference(const struct wf_call *call)
{
    const int64_t channels = call->node->in[0]->shape.at[WF_C];
    for (int64_t c = 0; c < channels; c++) {
        double dw = 0.0, db = 0.0;
        for (struct wf_cursor p = wf_cursor(wf_rows(call->work)); wf_cursor_next(&p);) {
            const struct moments m = of_row(call, p.at);
            const double dy = wf_row_get(&call->in[1], p.at, c);
            db += dy;
            dw += dy * (wf_row_get(&call->in[0], p.at, c) - m.mean) * m.rstd;
        }
        wf_view_put(&call->out[0], 0, 0, 0, 0, c, dw);
        wf_view_put(&call->out[1], 0, 0, 0, 0, c, db);
    }
}

const struct wf_op wf_op_layernorm_wgrad = {
    .name = "layernorm_wgrad",
    .n_in = 2,
    .n_out = 2,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .infer = wgrad_infer,
    .reads = wf_row_reads,
    .sums = WF_AXIS(WF_N) | WF_SPATIAL,
    .reference = wgrad_reference,
    .flops_each = 8,
};

/* --- layernorm: x, [w], [b] --- */

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    const int64_t channels = node->in[0]->shape.at[WF_C];
    return wf_norm_check_affine(node->in[1], "weight", channels, err) &&
           wf_norm_check_affine(node->in[2], "bias", channels, err);
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor p = wf_cursor(wf_rows(call->work)); wf_cursor_next(&p);) {
        const struct moments m = of_row(call, p.at);
        for (int64_t c = call->work.lo[WF_C]; c < call->work.hi[WF_C]; c++) {
            const double xhat = (wf_row_get(&call->in[0], p.at, c) - m.mean) * m.rstd;
            const double b = call->in[2].data ? wf_view_get(&call->in[2], 0, 0, 0, 0, c) : 0.0;
            wf_row_put(&call->out[0], p.at, c, xhat * weight_at(call, 1, c) + b);
        }
    }
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool wanted[], struct wf_value *dx[])
{
    const struct wf_norm_attrs *a = node->attrs;
    if (wanted[0]) {
        struct wf_value *const in[] = { node->in[0], node->in[1], dy[0] };
        dx[0] = wf_append(g, &wf_op_layernorm_grad, node->name, NULL, a, 3, in);
    }
    if (wanted[1] || wanted[2]) {
        struct wf_value *const in[] = { node->in[0], dy[0] };
        struct wf_norm_attrs wgrad = *a;
        wgrad.wide = node->in[wanted[1] ? 1 : 2]->dtype == WF_F64;
        const struct wf_node *n = wf_node_add(g, &wf_op_layernorm_wgrad, node->name, &wgrad, 2, in);
        dx[1] = n ? n->out[0] : NULL;
        dx[2] = n ? n->out[1] : NULL;
    }
}

static const struct wf_case cases[] = {
    { .attrs = "eps=1e-5", .in = "x[2,1,3,5,4] p[4] p[4]" },
    { .attrs = "eps=1e-5", .in = "x[1,2,3,3,5] p[5] p[5]" },
    { .attrs = "eps=1e-3", .in = "x[3,1,1,7,3] p[3] p[3]" },
    { .attrs = "eps=1e-4", .in = "x[1,1,7,1,2] p[2] p[2]" },
    { .attrs = "eps=1e-5", .in = "x[2,1,5,3,3] - -" },
    { .attrs = "eps=1e-5", .in = "x[3,1,1,1,7] p[7] -" },
    { .attrs = "eps=1e-2", .in = "x[2,1,4,3,3] - p[3]" },
    { 0 },
};

const struct wf_op wf_op_layernorm = {
    .name = "layernorm",
    .n_in = 3,
    .n_optional = 2,
    WF_ATTRS(wf_norm_attrs, wf_norm_fields),
    .flags = WF_OP_POINTWISE,
    .infer = infer,
    .grad = grad,
    .reads = wf_row_reads,
    .reference = reference,
    .flops_each = 8,
    .cases = cases,
};

struct wf_value *wf_layer_norm(struct wf_graph *g, struct wf_value *x, const struct wf_norm *n)
{
    if (!x)
        return NULL;
    const struct wf_norm_layer l = wf_norm_layer(g, x, n);
    const struct wf_norm_attrs a = {
        .groups = 1, .per_sample = 1, .count = x->shape.at[WF_C], .eps = l.attrs.eps
    };
    struct wf_value *const in[] = { x, l.w, l.b };
    struct wf_value *y = wf_append(g, &wf_op_layernorm, l.name, NULL, &a, 3, in);
    return wf_activation(g, y, wf_arena_printf(&g->arena, "%s.act", l.name), n->act, n->slope);
}
