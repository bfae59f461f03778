/*
 * Activations. The gradient reads y where y tells the slope (ReLU, sigmoid, tanh, exp, ...): x then need not be
 * kept; GELU, SiLU and the like read x.
 */
#include "ops/activation.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "ops/attrs.h"
#include "ops/build.h"
#include "ops/op.h"

const char *const wf_act_names[] = { "none",        "relu",       "leaky_relu",   "sigmoid",
                                     "tanh",        "gelu",       "silu",         "relu6",
                                     "elu",         "selu",       "hard_sigmoid", "hard_swish",
                                     "mish",        "softplus",   "gelu_tanh",    "softsign",
                                     "log_sigmoid", "abs",        "exp",          "log",
                                     "sqrt",        "reciprocal", "clip",         NULL };
static_assert(sizeof wf_act_names / sizeof *wf_act_names == WF_CLIP + 2, "a name per activation");

static const struct wf_field fields[] = {
    WF_NAMED(wf_act_attrs, act, wf_act_names),
    WF_REAL(wf_act_attrs, slope),
    WF_REAL(wf_act_attrs, lo),
    WF_REAL(wf_act_attrs, hi),
    { 0 },
};

static bool slope_shows_in_y(int64_t act)
{
    switch ((enum wf_act)act) {
    case WF_GELU:
    case WF_SILU:
    case WF_HARD_SWISH:
    case WF_MISH:
    case WF_GELU_TANH:
    case WF_ABS:
    case WF_LOG:
        return false;
    default:
        return true;
    }
}

static bool check(const struct wf_act_attrs *a, struct wf_err *err)
{
    if (a->act < WF_ACT_NONE || a->act > WF_CLIP)
        return wf_err_set(err, WF_ERR_USAGE,
                          "there is no activation %" PRId64 ": take one of 0..%d", a->act, WF_CLIP);
    if (a->act == WF_LEAKY_RELU && !(a->slope >= 0))
        return wf_err_set(err, WF_ERR_USAGE, "leaky ReLU of slope %g: it must be at least 0",
                          a->slope);
    if ((a->act == WF_ELU || a->act == WF_SOFTPLUS) && !(a->slope > 0))
        return wf_err_set(err, WF_ERR_USAGE, "%s of slope %g: it must be above 0",
                          wf_act_names[a->act], a->slope);
    if (a->act == WF_CLIP && !(a->lo < a->hi))
        return wf_err_set(err, WF_ERR_USAGE,
                          "clip from %g to %g: the first must be below the second", a->lo, a->hi);
    return true;
}

static double sigmoid(double x)
{
    return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double clip(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static double softplus(double x)
{
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

/* The argument of GELU's tanh. */
static double gelu_inner(double x)
{
    return 0.79788456080286535588 * (x + 0.044715 * x * x * x);
}

static double rare_act(const struct wf_act_attrs *a, double x)
{
    switch ((enum wf_act)a->act) {
    case WF_SOFTPLUS:
        return softplus(a->slope * x) / a->slope;
    case WF_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(gelu_inner(x)));
    case WF_SOFTSIGN:
        return x / (1.0 + fabs(x));
    case WF_LOG_SIGMOID:
        return -softplus(-x);
    case WF_ABS:
        return fabs(x);
    case WF_EXP:
        return exp(x);
    case WF_LOG:
        return log(x);
    case WF_SQRT:
        return sqrt(x);
    case WF_RECIPROCAL:
        return 1.0 / x;
    default:
        return x;
    }
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
    case WF_RELU6:
        return clip(x, 0.0, 6.0);
    case WF_CLIP:
        return clip(x, a->lo, a->hi);
    case WF_ELU:
        return x > 0 ? x : a->slope * expm1(x);
    case WF_SELU:
        return WF_SELU_SCALE * (x > 0 ? x : WF_SELU_ALPHA * expm1(x));
    case WF_HARD_SIGMOID:
        return clip(x / 6.0 + 0.5, 0.0, 1.0);
    case WF_HARD_SWISH:
        return x * clip(x / 6.0 + 0.5, 0.0, 1.0);
    case WF_MISH:
        return x * tanh(softplus(x));
    default:
        return rare_act(a, x);
    }
}

static double rare_slope(const struct wf_act_attrs *a, double r)
{
    switch ((enum wf_act)a->act) {
    case WF_SOFTPLUS:
        return -expm1(-a->slope * r);
    case WF_GELU_TANH: {
        const double t = tanh(gelu_inner(r));
        return 0.5 * (1.0 + t) +
               0.5 * r * (1.0 - t * t) * 0.79788456080286535588 * (1.0 + 3 * 0.044715 * r * r);
    }
    case WF_SOFTSIGN:
        return (1.0 - fabs(r)) * (1.0 - fabs(r));
    case WF_LOG_SIGMOID:
        return -expm1(r);
    case WF_ABS:
        return r > 0 ? 1.0 : r < 0 ? -1.0 : 0.0;
    case WF_EXP:
        return r;
    case WF_LOG:
        return 1.0 / r;
    case WF_SQRT:
        return 0.5 / r;
    case WF_RECIPROCAL:
        return -r * r;
    default:
        return 1.0;
    }
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
    case WF_RELU6:
        return r > 0 && r < 6 ? 1.0 : 0.0;
    case WF_CLIP:
        return r > a->lo && r < a->hi ? 1.0 : 0.0;
    case WF_ELU:
        return r > 0 ? 1.0 : r + a->slope;
    case WF_SELU:
        return r > 0 ? WF_SELU_SCALE : r + WF_SELU_SCALE * WF_SELU_ALPHA;
    case WF_HARD_SIGMOID:
        return r > 0 && r < 1 ? 1.0 / 6.0 : 0.0;
    case WF_HARD_SWISH: /* as PyTorch has it at -3 and 3 */
        return r <= -3 ? 0.0 : r < 3 ? r / 3.0 + 0.5 : 1.0;
    case WF_MISH: {
        const double t = tanh(softplus(r));
        return t + r * (1.0 - t * t) * sigmoid(r);
    }
    default:
        return rare_slope(a, r);
    }
}

extern const struct wf_op wf_op_act;

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

/* Of cases: inputs are between -1 and 1. */
static struct wf_value *five_times(struct wf_graph *g, struct wf_value *const in[],
                                   const void *attrs)
{
    struct wf_value *const x = wf_scale(g, in[0], 5.0);
    return x ? wf_append(g, &wf_op_act, "act", NULL, attrs, 1, &x) : NULL;
}

static struct wf_value *above_zero(struct wf_graph *g, struct wf_value *const in[],
                                   const void *attrs)
{
    struct wf_value *const x = wf_shift(g, in[0], 1.5);
    return x ? wf_append(g, &wf_op_act, "act", NULL, attrs, 1, &x) : NULL;
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
    { .attrs = "act=relu6", .in = "x[2,1,4,5,3]", .build = five_times },
    { .attrs = "act=elu slope=0.7", .in = "x[2,1,3,5,2]" },
    { .attrs = "act=selu", .in = "x[1,2,3,4,2]" },
    { .attrs = "act=hard_sigmoid", .in = "x[2,1,3,5,3]", .build = five_times },
    { .attrs = "act=hard_swish", .in = "x[1,1,4,5,3]", .build = five_times },
    { .attrs = "act=mish", .in = "x[2,1,3,4,3]" },
    { .attrs = "act=softplus slope=1.5", .in = "x[2,1,1,7,3]" },
    { .attrs = "act=gelu_tanh", .in = "x[1,1,3,5,3]" },
    { .attrs = "act=softsign", .in = "x[1,2,3,2,3]" },
    { .attrs = "act=log_sigmoid", .in = "x[2,1,3,3,2]" },
    { .attrs = "act=abs", .in = "x[2,1,3,4,2]" },
    { .attrs = "act=exp", .in = "x[1,1,5,3,2]" },
    { .attrs = "act=log", .in = "x[2,1,3,2,2]", .build = above_zero },
    { .attrs = "act=sqrt", .in = "x[1,1,3,5,2]", .build = above_zero },
    { .attrs = "act=reciprocal", .in = "x[1,2,3,3,1]", .build = above_zero },
    { .attrs = "act=clip lo=-0.4 hi=0.6", .in = "x[2,1,4,5,2]" },
    { 0 },
};

static int decides(const struct wf_node *node)
{
    const struct wf_act_attrs *const a = node->attrs;
    return a->act == WF_RELU || a->act == WF_LEAKY_RELU || a->act == WF_RELU6 ? 0 : -1;
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
    const bool has_one = (kind == WF_ELU || kind == WF_SOFTPLUS) && slope == 0;
    const struct wf_act_attrs a = { .act = kind, .slope = has_one ? 1.0 : slope };
    return wf_append(g, &wf_op_act, name, NULL, &a, 1, &x);
}

struct wf_value *wf_clip(struct wf_graph *g, struct wf_value *x, const char *name, double lo,
                         double hi)
{
    const struct wf_act_attrs a = { .act = WF_CLIP, .lo = lo, .hi = hi };
    return x ? wf_append(g, &wf_op_act, name, NULL, &a, 1, &x) : NULL;
}
