/* Times a number; and gradient reversal, which is a scale on the way back only. */
#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

static const struct wf_field fields[] = {
    WF_REAL(wf_scale_attrs, factor),
    { 0 },
};

static void multiply_by(const struct wf_call *call, double factor)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, factor * wf_view_at(&call->in[0], c.at));
}

static void scale_reference(const struct wf_call *call)
{
    const struct wf_scale_attrs *a = call->node->attrs;
    multiply_by(call, a->factor);
}

static void reverse_reference(const struct wf_call *call)
{
    multiply_by(call, 1.0);
}

static void scale_grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                       const bool[], struct wf_value *dx[])
{
    const struct wf_scale_attrs *a = node->attrs;
    dx[0] = wf_scale(g, dy[0], a->factor);
}

static void reverse_grad(struct wf_graph *g, const struct wf_node *node,
                         struct wf_value *const dy[], const bool[], struct wf_value *dx[])
{
    const struct wf_scale_attrs *a = node->attrs;
    dx[0] = wf_scale(g, dy[0], -a->factor);
}

static const struct wf_case scale_cases[] = {
    { .attrs = "factor=2", .in = "x[2,1,5,7,3]" },
    { .attrs = "factor=-0.3", .in = "x[1,3,4,5,2]" },
    { .attrs = "factor=1", .in = "x[3,1,1,11,1]" },
    { .attrs = "factor=0", .in = "x[2,1,3,3,1]" },
    { .attrs = "factor=1e-3", .in = "p[4,1,3,3,2]" },
    { .attrs = "factor=7.5", .in = "x[5,1,1,1,3]" },
    { 0 },
};

/* Not differentiated: the gradient is meant to be another one than the derivative. */
static const struct wf_case reverse_cases[] = {
    { .attrs = "factor=2", .in = "X[2,1,5,7,3]" },
    { .attrs = "factor=0.1", .in = "X[1,3,4,5,2]" },
    { .attrs = "factor=1", .in = "X[3,1,1,11,1]" },
    { .attrs = "factor=1", .in = "X[2,1,3,3,1]" },
    { .attrs = "factor=0", .in = "X[5,1,1,1,3]" },
    { .attrs = "factor=1", .in = "P[4,1,3,3,2]" },
    { 0 },
};

const struct wf_op wf_op_scale = {
    .name = "scale",
    .n_in = 1,
    WF_ATTRS(wf_scale_attrs, fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .inplace = 1u << 0,
    .grad = scale_grad,
    .reference = scale_reference,
    .cases = scale_cases,
};

const struct wf_op wf_op_reverse = {
    .name = "reverse",
    .n_in = 1,
    WF_ATTRS(wf_scale_attrs, fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .inplace = 1u << 0,
    .grad = reverse_grad,
    .reference = reverse_reference,
    .cases = reverse_cases,
};

static struct wf_value *build(struct wf_graph *g, const struct wf_op *op, struct wf_value *x,
                              double factor)
{
    if (!x)
        return NULL;
    const struct wf_scale_attrs a = { .factor = factor };
    const char *name = wf_arena_printf(&g->arena, "%s.%s", x->name, op->name);
    return wf_append(g, op, name, NULL, &a, 1, &x);
}

struct wf_value *wf_scale(struct wf_graph *g, struct wf_value *x, double factor)
{
    return build(g, &wf_op_scale, x, factor);
}

struct wf_value *wf_reverse_gradient(struct wf_graph *g, struct wf_value *x, double factor)
{
    return build(g, &wf_op_reverse, x, factor);
}
