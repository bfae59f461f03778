/*
 * Operators element by element: activations, sums and products; others are in rules_composed.c. Activations that
 * exporters write as several operators (SiLU, GELU, hard swish, mish) are found again here: the rule of their last product looks at the
 * layers that it multiplies, and those that are then read by nobody are left out at the end.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "onnx/inside.h"

/* --- one input: on any view --- */

static bool apply(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind,
                  const struct wf_layer_attrs *a, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    if (!v)
        return false;
    return wf_onnx_done_view(im, node, wf_onnx_add(im, node, kind, a, 1, &v->layer), &v->view);
}

static bool plain_act(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    static const char *const kinds[][2] = {
        { "Relu", "relu" },
        { "Sigmoid", "sigmoid" },
        { "Tanh", "tanh" },
        { "HardSwish", "hard_swish" },
        { "Mish", "mish" },
        { "Softplus", "softplus" },
        { "Erf", "erf" },
        { "Exp", "exp" },
        { "Abs", "abs" },
        { "Sqrt", "sqrt" },
        { "Softsign", "softsign" },
        { "Log", "log" },
        { "Reciprocal", "reciprocal" },
    };
    size_t i = 0;
    while (strcmp(kinds[i][0], node->op_type) != 0)
        i++;
    return apply(im, node, kinds[i][1], NULL, err);
}

static bool leaky_relu(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const double slope = wf_onnx_tidy(wf_onnx_attr_real(node, "alpha", 0.01));
    if (slope < 0)
        return wf_onnx_refuse(im, node, err, "a slope of %g: the rule is for 0 and above", slope);
    return apply(im, node, slope > 0 ? "leaky_relu" : "relu",
                 &(struct wf_layer_attrs){ .slope = slope }, err);
}

static bool elu(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const double alpha = wf_onnx_tidy(wf_onnx_attr_real(node, "alpha", 1));
    const bool scaled = strcmp(node->op_type, "Selu") == 0;
    const struct wf_layer_attrs a = { .slope = scaled || alpha == 1 ? 0 : alpha };
    return apply(im, node, scaled ? "selu" : "elu", &a, err);
}

/* max(0, min(1, alpha * x + beta)) */
static bool linear_clip(struct wf_onnx_import *im, const Onnx__NodeProto *node, double alpha,
                        double beta, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    if (!v)
        return false;
    const struct wf_layer_attrs scale = { .factor = wf_onnx_tidy(alpha) },
                                shift = { .offset = wf_onnx_tidy(beta) }, clip = { .hi = 1 };
    int y = wf_onnx_add(im, node, "scale", &scale, 1, &v->layer);
    y = wf_onnx_add(im, node, "shift", &shift, 1, &y);
    return wf_onnx_done_view(im, node, wf_onnx_add(im, node, "clip", &clip, 1, &y), &v->view);
}

static bool hard_sigmoid(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const double alpha = wf_onnx_attr_real(node, "alpha", 0.2),
                 beta = wf_onnx_attr_real(node, "beta", 0.5);
    if (fabs(alpha - 1.0 / 6) > 1e-6 || fabs(beta - 0.5) > 1e-6)
        return linear_clip(im, node, alpha, beta, err);
    return apply(im, node, "hard_sigmoid", NULL, err);
}

static bool gelu(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    char text[16];
    const char *const form = wf_onnx_attr_text(node, "approximate", "none", text, sizeof text);
    return apply(im, node, strcmp(form, "none") == 0 ? "gelu" : "gelu_tanh", NULL, err);
}

static bool clip(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_layer_attrs a = { 0 };
    if (!wf_onnx_number_in(im, node, 1, -wf_onnx_open, &a.lo) ||
        !wf_onnx_number_in(im, node, 2, wf_onnx_open, &a.hi))
        return wf_onnx_refuse(im, node, err, "the bounds should be constants");
    a.lo = wf_onnx_tidy(fmax(a.lo, -wf_onnx_open));
    a.hi = wf_onnx_tidy(fmin(a.hi, wf_onnx_open));
    if (a.lo == 0 && a.hi >= wf_onnx_open)
        return apply(im, node, "relu", NULL, err);
    if (a.lo == 0 && a.hi == 6)
        return apply(im, node, "relu6", NULL, err);
    return apply(im, node, "clip", &a, err);
}

static bool dropout(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_layer_attrs a = { 0 };
    if (!wf_onnx_number_in(im, node, 1, 0.5, &a.p) || a.p < 0 || a.p >= 1)
        return wf_onnx_refuse(im, node, err, "the ratio should be a constant from 0 to below 1");
    a.p = wf_onnx_tidy(a.p);
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    if (!v)
        return false;
    if (a.p == 0)
        return wf_onnx_done_view(im, node, v->layer, &v->view);
    return apply(im, node, "dropout", &a, err);
}

static bool softmax(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    if (!v)
        return false;
    int64_t axis = wf_onnx_attr_int(node, "axis", -1);
    axis += axis < 0 ? v->view.rank : 0;
    const bool exists = axis >= 0 && axis < v->view.rank;
    int y;
    if (exists && wf_onnx_softmax_parts(im, node, v, (int)axis, &y))
        return wf_onnx_done_view(im, node, y, &v->view);
    if (exists && !wf_onnx_axis_is(im, &v->view.axis[axis], v->layer, WF_ONNX_C) &&
        wf_onnx_is_sample(im, v, (int)axis))
        return apply(im, node, "softmax_sample", NULL, err);
    if (!exists || !wf_onnx_axis_is(im, &v->view.axis[axis], v->layer, WF_ONNX_C))
        return wf_onnx_refuse(im, node, err,
                              "the rules are for the axis of the channels, for equal parts of a "
                              "vector, and for all elements of a sample");
    return apply(im, node, "softmax", NULL, err);
}

static bool prelu(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    struct wf_onnx_constant *c = v ? wf_onnx_constant(im, wf_onnx_in(im, node, 1), err) : NULL;
    if (!c)
        return v && err->code == WF_OK ? wf_onnx_refuse(im, node, err, "its slope is no constant")
                                       : false;
    const int x = wf_onnx_plain_in(im, node, 0, err);
    if (x == WF_LAYER_NONE)
        return false;
    if (c->count != 1 && !wf_onnx_extent_is(im, wf_onnx_shape(im, x)[WF_ONNX_C], c->count))
        return wf_onnx_refuse(im, node, err, "%" PRId64 " slopes: one, or one per channel",
                              c->count);
    c = wf_onnx_constant_like(im, NULL, c, 1, &c->count, err);
    if (!c)
        return false;
    const int y =
        wf_onnx_add(im, node, "prelu", &(struct wf_layer_attrs){ .shared = c->count == 1 }, 1, &x);
    wf_onnx_weight(im, y, "weight", c);
    return wf_onnx_done_view(im, node, y, &v->view);
}

/* --- with a number --- */

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static const struct wf_layer_attrs *attrs(const struct wf_onnx_import *im, int layer)
{
    return &im->layers[layer].a;
}

static int input(const struct wf_onnx_import *im, int layer)
{
    return im->layers[layer].in[0];
}

/* clip(x + 3, 0, 6): x, or WF_LAYER_NONE. */
static int shifted_relu6(const struct wf_onnx_import *im, int layer)
{
    if (!wf_onnx_is(im, layer, "relu6") || !wf_onnx_is(im, input(im, layer), "shift") ||
        !near(attrs(im, input(im, layer))->offset, 3))
        return WF_LAYER_NONE;
    return input(im, input(im, layer));
}

static int scaled(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x, double factor)
{
    const int relu6_of = near(factor, 1.0 / 6) ? shifted_relu6(im, x) : WF_LAYER_NONE;
    if (relu6_of != WF_LAYER_NONE)
        return wf_onnx_add(im, node, "hard_sigmoid", NULL, 1, &relu6_of);
    if (wf_onnx_is(im, x, "scale")) {
        factor *= attrs(im, x)->factor;
        x = input(im, x);
    }
    if (near(factor, 1))
        return x;
    return wf_onnx_add(im, node, "scale",
                       &(struct wf_layer_attrs){ .factor = wf_onnx_tidy(factor) }, 1, &x);
}

static int shifted(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x, double offset)
{
    if (offset == 0)
        return x;
    return wf_onnx_add(im, node, "shift",
                       &(struct wf_layer_attrs){ .offset = wf_onnx_tidy(offset) }, 1, &x);
}

/* --- with a number per channel --- */

/* Takes weights of one element per channel behind it: the name of the part that is still free, or NULL. */
static const char *free_part(const struct wf_onnx_import *im, int layer, bool adds)
{
    static const char *const norms[] = { "group_norm", "instance_norm", "layer_norm" };
    const struct wf_onnx_layer *const l = wf_onnx_layer(im, layer);
    if (!l)
        return NULL;
    bool has_weight = false, has_bias = false, is_norm = false;
    for (int i = 0; i < l->n_weights; i++) {
        has_weight |= strcmp(l->weights[i].part, "weight") == 0;
        has_bias |= strcmp(l->weights[i].part, "bias") == 0;
    }
    for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++)
        is_norm |= wf_onnx_is(im, layer, norms[i]);
    if (is_norm && !adds && !has_weight && !has_bias)
        return "weight";
    const bool product = wf_onnx_is(im, layer, "conv") || wf_onnx_is(im, layer, "linear") ||
                         wf_onnx_is(im, layer, "conv_transpose");
    return (is_norm || product) && adds && !has_bias ? "bias" : NULL;
}

/* Is it a tensor of the file with a path or a plain name ("block.gamma", "gamma")? Numbers of an expression have names
 * that exporters make up ("onnx::Mul_12", "val_3"). */
static bool is_parameter(const struct wf_onnx_constant *c)
{
    const bool initialiser = c->proto && c->proto->name && strcmp(c->proto->name, c->name) == 0;
    const bool plain = initialiser && c->name[0] && !strpbrk(c->name, "0123456789");
    return (strchr(c->name, '.') || plain) && !strpbrk(c->name, ":/");
}

/* x + c or x * c; c has an element for each channel, or one for all. */
static int with_vector(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x, bool adds,
                       struct wf_onnx_constant *c, struct wf_err *err)
{
    c = wf_onnx_constant_like(im, NULL, c, 1, &c->count, err);
    if (!c)
        return WF_LAYER_NONE;
    const bool shared = c->count == 1 && !wf_onnx_extent_is(im, wf_onnx_shape(im, x)[WF_ONNX_C], 1);
    const char *const part = shared ? NULL : free_part(im, x, adds);
    int y;
    if (part) {
        y = wf_onnx_copy(im, node, x);
        im->layers[y].a.bias |= adds;
        wf_onnx_weight(im, y, part, c);
        return y;
    }
    y = wf_onnx_add(im, node, adds ? "channel_shift" : "channel_scale",
                    &(struct wf_layer_attrs){ .shared = shared }, 1, &x);
    im->layers[y].name = "";
    wf_onnx_weight(im, y, adds ? "bias" : "weight", c);
    return y;
}

/* --- two inputs --- */

enum operation { ADD, SUBTRACT, MULTIPLY, DIVIDE };

static enum operation operation_of(const Onnx__NodeProto *node)
{
    return strcmp(node->op_type, "Add") == 0   ? ADD
           : strcmp(node->op_type, "Sub") == 0 ? SUBTRACT
           : strcmp(node->op_type, "Mul") == 0 ? MULTIPLY
                                               : DIVIDE;
}

/* Does the constant vary along the channels of the view only? */
static bool is_per_channel(const struct wf_onnx_import *im, const struct wf_onnx_value *v,
                           const struct wf_onnx_constant *c)
{
    bool found = false;
    for (int i = 0; i < c->rank; i++) {
        const int axis = i - c->rank + v->view.rank;
        if (c->shape[i] == 1)
            continue;
        if (axis < 0 || !wf_onnx_axis_is(im, &v->view.axis[axis], v->layer, WF_ONNX_C) ||
            !wf_onnx_extent_is(im, wf_onnx_shape(im, v->layer)[WF_ONNX_C], c->shape[i]))
            return false;
        found = true;
    }
    return found;
}

/* The constant's elements become -c, or 1 / c. */
static struct wf_onnx_constant *inverse(struct wf_onnx_import *im, struct wf_onnx_constant *c,
                                        bool adds, struct wf_err *err)
{
    struct wf_onnx_constant *const y = wf_onnx_constant_like(im, NULL, c, c->rank, c->shape, err);
    for (int64_t i = 0; y && i < y->count; i++)
        y->data[i] = adds ? -y->data[i] : 1 / y->data[i];
    return y;
}

/* features (op) constant, or the other way round where `turned`. */
static bool with_constant(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          struct wf_onnx_value *v, struct wf_onnx_value *k, bool turned,
                          struct wf_err *err)
{
    enum operation op = operation_of(node);
    struct wf_onnx_constant *c = wf_onnx_constant(im, k, err);
    if (!c)
        return err->code != WF_OK ? false
                                  : wf_onnx_refuse(im, node, err,
                                                   "arithmetic between a result of the network and "
                                                   "an extent has no rule");
    int x = v->layer;
    if (op == SUBTRACT && turned) {
        x = scaled(im, node, x, -1);
        op = ADD;
    } else if (op == DIVIDE && turned) {
        x = wf_onnx_add(im, node, "reciprocal", NULL, 1, &x);
        op = MULTIPLY;
    }
    const bool adds = op == ADD || op == SUBTRACT;
    if (is_parameter(c) && c->count == 1) {
        if (op == SUBTRACT || op == DIVIDE)
            return wf_onnx_refuse(im, node, err,
                                  "parameter '%s' of one number: there are rules for its sum and "
                                  "its product with a result",
                                  c->name);
        x = with_vector(im, node, x, adds, c, err);
        if (x == WF_LAYER_NONE)
            return false;
    } else if (c->count == 1) {
        const double n = (double)c->data[0];
        x = adds ? shifted(im, node, x, op == ADD ? n : -n)
                 : scaled(im, node, x, op == MULTIPLY ? n : 1 / n);
    } else if (is_per_channel(im, v, c)) {
        if (op == SUBTRACT || op == DIVIDE)
            c = inverse(im, c, adds, err);
        x = c ? with_vector(im, node, x, adds, c, err) : WF_LAYER_NONE;
        if (x == WF_LAYER_NONE)
            return false;
    } else {
        return wf_onnx_refuse(im, node, err,
                              "constant '%s' of %" PRId64
                              " elements: the rules are for one number, "
                              "and for one per channel",
                              c->name, c->count);
    }
    return wf_onnx_done_view(im, node, x, &v->view);
}

/* x * b where b is a function of x that makes a known activation of it; *factor: what is left to multiply. */
static const char *product_kind(const struct wf_onnx_import *im, int x, int b, double *factor)
{
    *factor = 1;
    if (b < 0)
        return NULL;
    if (im->layers[b].n_in == 1 && input(im, b) == x) {
        if (wf_onnx_is(im, b, "sigmoid"))
            return "silu";
        if (wf_onnx_is(im, b, "hard_sigmoid"))
            return "hard_swish";
    }
    if (shifted_relu6(im, b) == x && wf_onnx_is(im, b, "relu6")) {
        *factor = 6;
        return "hard_swish";
    }
    if (wf_onnx_is(im, b, "tanh") && wf_onnx_is(im, input(im, b), "softplus") &&
        input(im, input(im, b)) == x)
        return "mish";
    /* x * (erf(x / sqrt(2)) + 1) */
    if (wf_onnx_is(im, b, "shift") && near(attrs(im, b)->offset, 1) &&
        wf_onnx_is(im, input(im, b), "erf")) {
        const int s = input(im, input(im, b));
        if (wf_onnx_is(im, s, "scale") && near(attrs(im, s)->factor, 0.70710678118) &&
            input(im, s) == x) {
            *factor = 2;
            return "gelu";
        }
    }
    return NULL;
}

/* a * b as an activation: its layer, or WF_LAYER_NONE. */
static int as_activation(struct wf_onnx_import *im, const Onnx__NodeProto *node, int a, int b)
{
    double factor, before = 1;
    int x = a;
    const char *kind = product_kind(im, x, b, &factor);
    if (!kind && wf_onnx_is(im, a, "scale")) {
        before = attrs(im, a)->factor;
        x = input(im, a);
        kind = product_kind(im, x, b, &factor);
    }
    if (!kind)
        return WF_LAYER_NONE;
    return scaled(im, node, wf_onnx_add(im, node, kind, NULL, 1, &x), factor * before);
}

/* The channels' mean of a layer's input: that input, or WF_LAYER_NONE. */
static int channel_mean_of(const struct wf_onnx_import *im, int layer)
{
    return wf_onnx_is(im, layer, "mean") && attrs(im, layer)->axis == WF_LAYER_CHANNELS
               ? input(im, layer)
               : WF_LAYER_NONE;
}

/* (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps), as layer norm was written before it was an operator. */
static int as_layer_norm(struct wf_onnx_import *im, const Onnx__NodeProto *node, int centred,
                         int deviation)
{
    if (!wf_onnx_is(im, centred, "subtract") || !wf_onnx_is(im, deviation, "sqrt") ||
        !wf_onnx_is(im, input(im, deviation), "shift"))
        return WF_LAYER_NONE;
    const int x = im->layers[centred].in[0], shift = input(im, deviation);
    const int square = channel_mean_of(im, input(im, shift));
    if (channel_mean_of(im, im->layers[centred].in[1]) != x ||
        !wf_onnx_is(im, square, "multiply") || im->layers[square].in[0] != centred ||
        im->layers[square].in[1] != centred)
        return WF_LAYER_NONE;
    const double eps = attrs(im, shift)->offset;
    const struct wf_layer_attrs a = { .eps = near(eps, 1e-5) ? 0 : eps };
    return wf_onnx_add(im, node, "layer_norm", &a, 1, &x);
}

/* The view of a result, where axes of extent one are broadcast. */
static bool joined_view(const struct wf_onnx_import *im, const struct wf_onnx_view *a,
                        const struct wf_onnx_view *b, struct wf_onnx_view *y)
{
    y->rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < y->rank; i++) {
        static const struct wf_onnx_axis one = { .n = 0 };
        const int ia = i - (y->rank - a->rank), ib = i - (y->rank - b->rank);
        const struct wf_onnx_axis *const xa = ia < 0 ? &one : &a->axis[ia];
        const struct wf_onnx_axis *const xb = ib < 0 ? &one : &b->axis[ib];
        if (xa->n && xb->n && !wf_onnx_axis_equal(im, xa, xb))
            return false;
        y->axis[i] = xa->n ? *xa : *xb;
    }
    return true;
}

static void broadcast_shape(struct wf_onnx_import *im, int layer, int other)
{
    for (int i = 0; i < WF_ONNX_AXES; i++)
        if (wf_onnx_extent_is(im, im->layers[layer].shape[i], 1))
            im->layers[layer].shape[i] = wf_onnx_shape(im, other)[i];
}

/* Values that were stacked, times what has as many equal parts of channels along that axis (selective kernels). */
static bool list_product(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                         const struct wf_onnx_value *list, const struct wf_onnx_value *v,
                         struct wf_err *err)
{
    struct wf_onnx_value parts;
    if (operation_of(node) != MULTIPLY || v->kind != WF_ONNX_FEATURES ||
        list->list_axis >= v->view.rank || list->parts[0].view.rank != v->view.rank ||
        !wf_onnx_unstack(im, node, v, list->list_axis, &parts) || parts.n_parts != list->n_parts)
        return wf_onnx_refuse(im, node, err,
                              "the rule for values that were stacked is for a product with as many "
                              "parts of channels");
    struct wf_onnx_value *const out = wf_onnx_out(im, node, 0);
    for (int i = 0; i < parts.n_parts; i++) {
        const struct wf_onnx_value *const a = &list->parts[i], *const b = &parts.parts[i];
        struct wf_onnx_view view;
        if (!joined_view(im, &a->view, &b->view, &view))
            return wf_onnx_refuse(im, node, err, "its inputs do not have the same extents");
        const int y = wf_onnx_add(im, node, "multiply", NULL, 2, (int[]){ a->layer, b->layer });
        broadcast_shape(im, y, b->layer);
        parts.parts[i].layer = y;
        parts.parts[i].view = view;
    }
    if (out) {
        out->kind = WF_ONNX_LIST;
        out->parts = parts.parts;
        out->n_parts = parts.n_parts;
        out->list_axis = parts.list_axis;
    }
    return true;
}

static bool binary(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_onnx_value *const a = wf_onnx_in(im, node, 0), *const b = wf_onnx_in(im, node, 1);
    if (!a || !b || node->n_input != 2)
        return wf_onnx_refuse(im, node, err, "it should have two inputs");
    if (a->kind == WF_ONNX_LIST || b->kind == WF_ONNX_LIST)
        return list_product(im, node, a->kind == WF_ONNX_LIST ? a : b,
                            a->kind == WF_ONNX_LIST ? b : a, err);
    if (a->kind != WF_ONNX_FEATURES)
        return with_constant(im, node, b, a, true, err);
    if (b->kind != WF_ONNX_FEATURES)
        return with_constant(im, node, a, b, false, err);
    struct wf_onnx_view view;
    if (!joined_view(im, &a->view, &b->view, &view) &&
        (wf_onnx_plain(im, node, a, err) == WF_LAYER_NONE ||
         wf_onnx_plain(im, node, b, err) == WF_LAYER_NONE ||
         !joined_view(im, &a->view, &b->view, &view)))
        return wf_onnx_refuse(im, node, err, "its inputs do not have the same extents");
    const enum operation op = operation_of(node);
    int y = WF_LAYER_NONE;
    if (op == MULTIPLY) {
        y = as_activation(im, node, a->layer, b->layer);
        if (y == WF_LAYER_NONE)
            y = as_activation(im, node, b->layer, a->layer);
    }
    int in[] = { a->layer, b->layer };
    if (op == DIVIDE)
        y = as_layer_norm(im, node, a->layer, b->layer);
    if (y != WF_LAYER_NONE)
        return wf_onnx_done_view(im, node, y, &view);
    if (op == DIVIDE)
        in[1] = wf_onnx_add(im, node, "reciprocal", NULL, 1, &b->layer);
    y = wf_onnx_add(im, node,
                    op == ADD        ? "add"
                    : op == SUBTRACT ? "subtract"
                                     : "multiply",
                    NULL, 2, in);
    broadcast_shape(im, y, b->layer);
    return wf_onnx_done_view(im, node, y, &view);
}

static bool negative(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    return v && wf_onnx_done_view(im, node, scaled(im, node, v->layer, -1), &v->view);
}

const struct wf_onnx_rule_row wf_onnx_rules_pointwise[] = {
    { "Relu", plain_act },
    { "Sigmoid", plain_act },
    { "Tanh", plain_act },
    { "HardSwish", plain_act },
    { "Mish", plain_act },
    { "Softplus", plain_act },
    { "Erf", plain_act },
    { "Exp", plain_act },
    { "Abs", plain_act },
    { "Sqrt", plain_act },
    { "Softsign", plain_act },
    { "Log", plain_act },
    { "Reciprocal", plain_act },
    { "LeakyRelu", leaky_relu },
    { "Elu", elu },
    { "Selu", elu },
    { "HardSigmoid", hard_sigmoid },
    { "Gelu", gelu },
    { "Clip", clip },
    { "Dropout", dropout },
    { "Softmax", softmax },
    { "PRelu", prelu },
    { "Add", binary },
    { "Sub", binary },
    { "Mul", binary },
    { "Div", binary },
    { "Neg", negative },
    { .op = NULL },
};
