/*
 * Activations. The gradient reads y where y tells the slope (ReLU, leaky ReLU, sigmoid, tanh): x
 * then need not be kept; GELU and SiLU read x.
 */
#include "ops/activation.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

const char *const wf_act_names[] = { "none", "relu", "leaky_relu", "sigmoid",
                                     "tanh", "gelu", "silu",       NULL };
static_assert(sizeof wf_act_names / sizeof *wf_act_names == WF_SILU + 2, "a name per activation");

static const struct wf_field fields[] = {
    WF_NAMED(wf_act_attrs, act, wf_act_names),
    WF_REAL(wf_act_attrs, slope),
    { 0 },
};

static bool slope_shows_in_y(int64_t act)
{
    return act != WF_GELU && act != WF_SILU;
}

static bool check(const struct wf_act_attrs *a, struct wf_err *err)
{
    if (a->act < WF_ACT_NONE || a->act > WF_SILU)
        return wf_err_set(err, WF_ERR_USAGE,
                          "there is no activation %" PRId64 ": take one of 0..%d", a->act, WF_SILU);
    if (a->act == WF_LEAKY_RELU && !(a->slope >= 0))
        return wf_err_set(err, WF_ERR_USAGE, "leaky ReLU of slope %g: it must be at least 0",
                          a->slope);
    return true;
}

static double sigmoid(double x)
{
    return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double act(const struct wf_act_attrs *a, double x)
{
    switch ((enum wf_act)a->act) {
    case WF_RELU:
        return x > 0 ? x : 0.0;
    case WF_LEAKY_RELU:
        return x > 0 ? x : a->slope * x;
    case WF_SIGMOID:
        return sigmoid(x);
    case WF_TANH:
        return tanh(x);
    case WF_GELU:
        return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
    case WF_SILU:
        return x * sigmoid(x);
    case WF_ACT_NONE:
        break;
    }
    return x;
}

/* The slope; `r` is y or x, see slope_shows_in_y(). */
static double act_slope(const struct wf_act_attrs *a, double r)
{
    switch ((enum wf_act)a->act) {
    case WF_RELU:
        return r > 0 ? 1.0 : 0.0;
    case WF_LEAKY_RELU:
        return r > 0 ? 1.0 : a->slope;
    case WF_SIGMOID:
        return r * (1.0 - r);
    case WF_TANH:
        return 1.0 - r * r;
    case WF_GELU:
        return 0.5 * (1.0 + erf(r * 0.70710678118654752440)) +
               r * 0.39894228040143267794 * exp(-0.5 * r * r);
    case WF_SILU:
        return sigmoid(r) * (1.0 + r * (1.0 - sigmoid(r)));
    case WF_ACT_NONE:
        break;
    }
    return 1.0;
}

/* --- act_grad --- */

static bool grad_infer(const struct wf_node *node, struct wf_err *err)
{
    if (!wf_shape_equal(node->in[0]->shape, node->in[1]->shape))
        return wf_err_set(err, WF_ERR_USAGE, "dy must have the shape of the activation");
    return check(node->attrs, err);
}

static void grad_reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at,
                    wf_view_at(&call->in[1], c.at) *
                        act_slope(call->node->attrs, wf_view_at(&call->in[0], c.at)));
}

const struct wf_op wf_op_act_grad = {
    .name = "act_grad",
    .n_in = 2,
    WF_ATTRS(wf_act_attrs, fields),
    .flags = WF_OP_POINTWISE,
    .inplace = 1u << 1,
    .infer = grad_infer,
    .reference = grad_reference,
};

/* --- act --- */

static bool infer(const struct wf_node *node, struct wf_err *err)
{
    return check(node->attrs, err);
}

static void reference(const struct wf_call *call)
{
    for (struct wf_cursor c = wf_cursor(call->work); wf_cursor_next(&c);)
        wf_view_set(&call->out[0], c.at, act(call->node->attrs, wf_view_at(&call->in[0], c.at)));
}

static void grad(struct wf_graph *g, const struct wf_node *node, struct wf_value *const dy[],
                 const bool[], struct wf_value *dx[])
{
    const struct wf_act_attrs *a = node->attrs;
    struct wf_value *const in[] = { slope_shows_in_y(a->act) ? node->out[0] : node->in[0], dy[0] };
    dx[0] = wf_append(g, &wf_op_act_grad, node->name, NULL, a, 2, in);
}

static const struct wf_case cases[] = {
    { .attrs = "act=relu", .in = "x[2,1,5,7,3]" },
    { .attrs = "act=leaky_relu slope=0.2", .in = "x[1,3,4,5,2]" },
    { .attrs = "act=sigmoid", .in = "x[3,1,1,11,2]" },
    { .attrs = "act=tanh", .in = "x[2,1,3,5,1]" },
    { .attrs = "act=gelu", .in = "x[1,2,3,3,3]" },
    { .attrs = "act=silu", .in = "x[2,1,1,7,3]" },
    { .attrs = "act=none", .in = "x[1,1,3,3,1]" },
    { .attrs = "act=relu", .in = "x[3,1,1,1,5]" },
    { 0 },
};

static int decides(const struct wf_node *node)
{
    const struct wf_act_attrs *const a = node->attrs;
    return a->act == WF_RELU || a->act == WF_LEAKY_RELU ? 0 : -1;
}

const struct wf_op wf_op_act = {
    .name = "act",
    .n_in = 1,
    WF_ATTRS(wf_act_attrs, fields),
    .flags = WF_OP_POINTWISE | WF_OP_CHEAP,
    .inplace = 1u << 0,
    .infer = infer,
    .grad = grad,
    .decides = decides,
    .reference = reference,
    .cases = cases,
};

struct wf_value *wf_activation(struct wf_graph *g, struct wf_value *x, const char *name,
                               enum wf_act kind, double slope)
{
    if (!x || kind == WF_ACT_NONE)
        return x;
    const struct wf_act_attrs a = { .act = kind, .slope = slope };
    return wf_append(g, &wf_op_act, name, NULL, &a, 1, &x);
}
