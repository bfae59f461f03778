/* rsqrt: y = 1 / sqrt(max(x, 0) + eps), of a variance; rsqrt_grad: dx = -y^3 / 2 * dy where x is above 0. */
#include <math.h>

#include "ops/attrs.h"
#include "ops/op.h"
#include "ops/sparse_ops.h"

static const struct wf_field fields[] = {
    WF_REAL(wf_rsqrt_attrs, eps),
    { 0 },
};

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    dx[0] = wf_append(g, &wf_op_rsqrt_grad, node->name, "dx", node->attrs, 2,
                      (struct wf_value *[]){ node->in[0], dy[0] });
}

static void reference(const struct wf_call *call)
{
    const struct wf_rsqrt_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    1.0 / sqrt(fmax(wf_view_at(&call->in[0], c.at), 0.0) + a->eps));
}

static const struct wf_case cases[] = {
    { .attrs = "eps=1.5", .in = "x[2,1,5,7,3]" },
    { .attrs = "eps=2", .in = "x[1,3,4,5,2]" },
    { .attrs = "eps=0.25", .in = "x[3,1,1,11,1]" },
    { .attrs = "eps=3", .in = "x[2,1,3,3,2]" },
    { .attrs = "eps=0.1", .in = "x[5,1,1,1,9]" },
    { .attrs = "eps=4", .in = "p[7]" },
    { 0 },
};

const struct wf_op wf_op_rsqrt = {
    .name = "rsqrt",
    .n_in = 1,
    WF_ATTRS(wf_rsqrt_attrs, fields),
    .flags = WF_OP_POINTWISE,
    .inplace = 1u << 0,
    .grad = grad,
    .reference = reference,
    .flops_each = 3,
    .cases = cases,
};

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    if (!wf_shape_equal(node->in[0]->shape, node->in[1]->shape))
        return wf_err_set(err, WF_ERR_USAGE, "x and dy have different shapes");
    return true;
}

static void grad_reference(const struct wf_call *call)
{
    const struct wf_rsqrt_attrs *a = call->node->attrs;
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);) {
        const double x = wf_view_at(&call->in[0], c.at), y = 1.0 / sqrt(fmax(x, 0.0) + a->eps);
        wf_view_set(&call->out[0], c.at,
                    x > 0 ? -0.5 * y * y * y * wf_view_at(&call->in[1], c.at) : 0.0);
    }
}

const struct wf_op wf_op_rsqrt_grad = {
    .name = "rsqrt_grad",
    .n_in = 2,
    WF_ATTRS(wf_rsqrt_attrs, fields),
    .flags = WF_OP_POINTWISE,
    .inplace = 1u << 1,
    .infer = grad_infer,
    .reference = grad_reference,
    .flops_each = 4,
};
