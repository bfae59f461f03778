/*
 * Operators element by element that become several layers: largest and smallest of two results, powers, the logarithm
 * of softmax, CELU, and softplus where it is written as a choice.
 */
#include <math.h>
#include <string.h>

#include "onnx/inside.h"

struct wf_onnx_value *wf_onnx_features_in(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                          size_t index, struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, index);
    if (v && v->kind == WF_ONNX_FEATURES)
        return v;
    (void)wf_onnx_refuse(im, node, err, "input %zu ('%s') should be a result of the network", index,
                         index < node->n_input ? node->input[index] : "");
    return NULL;
}

bool wf_onnx_number_in(struct wf_onnx_import *im, const Onnx__NodeProto *node, size_t index,
                       double fallback, double *value)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, index);
    *value = fallback;
    if (!v)
        return true;
    const struct wf_onnx_numbers *const n = wf_onnx_numbers(im, v);
    return n && n->count == 1 && wf_onnx_number_is_fixed(im, n, 0, value);
}

static int one(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind, int x)
{
    return wf_onnx_add(im, node, kind, NULL, 1, &x);
}

static int two(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind, int a,
               int b)
{
    return wf_onnx_add(im, node, kind, NULL, 2, (int[]){ a, b });
}

static int scaled(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x, double factor)
{
    return wf_onnx_add(im, node, "scale", &(struct wf_layer_attrs){ .factor = factor }, 1, &x);
}

/* The larger is b + relu(a - b), the smaller a - relu(a - b). */
static bool of_two(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const a = wf_onnx_features_in(im, node, 0, err),
                                      *const b = a ? wf_onnx_features_in(im, node, 1, err) : NULL;
    bool same = b && wf_onnx_view_equal(im, &a->view, &b->view);
    if (!b)
        return false;
    for (int i = 0; i < WF_ONNX_AXES; i++)
        same = same && wf_onnx_extent_equal(im, wf_onnx_shape(im, a->layer)[i],
                                            wf_onnx_shape(im, b->layer)[i]);
    if (!same)
        return wf_onnx_refuse(im, node, err, "the rule is for two results of the same extents");
    const int above = one(im, node, "relu", two(im, node, "subtract", a->layer, b->layer));
    const int y = node->op_type[1] == 'a' ? two(im, node, "add", b->layer, above)
                                          : two(im, node, "subtract", a->layer, above);
    return wf_onnx_done_view(im, node, y, &a->view);
}

/* The largest or smallest of inputs; with one number it is a clip. */
static bool extreme(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const bool max = strcmp(node->op_type, "Max") == 0;
    for (size_t i = 0; node->n_input == 2 && i < 2; i++) {
        const struct wf_onnx_value *const v = wf_onnx_in(im, node, i);
        double value;
        if (!v || v->kind != WF_ONNX_FEATURES || !wf_onnx_number_in(im, node, 1 - i, 0, &value))
            continue;
        const struct wf_layer_attrs a = { .lo = max ? value : -wf_onnx_open,
                                          .hi = max ? wf_onnx_open : value };
        const int y = wf_onnx_add(im, node, max && value == 0 ? "relu" : "clip",
                                  max && value == 0 ? NULL : &a, 1, &v->layer);
        return wf_onnx_done_view(im, node, y, &v->view);
    }
    if (node->n_input == 2)
        return of_two(im, node, err);
    return wf_onnx_refuse(im, node, err, "the rule is for two inputs");
}

static bool power(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    double exponent;
    if (!v)
        return false;
    const bool known = wf_onnx_number_in(im, node, 1, 0, &exponent);
    const double whole = known ? trunc(fabs(exponent)) : 0,
                 half = known ? fabs(exponent) - whole : 1;
    if (!known || (half != 0 && half != 0.5) || whole + half == 0 || whole > 8)
        return wf_onnx_refuse(im, node, err,
                              "the rule is for constant powers up to 8, whole or with a half");
    const int root = half != 0 ? one(im, node, "sqrt", v->layer) : WF_LAYER_NONE;
    int in[9] = { v->layer, v->layer, v->layer, v->layer, v->layer, v->layer, v->layer, v->layer };
    int n = (int)whole;
    if (half != 0)
        in[n++] = root;
    int y = n == 1 ? in[0] : wf_onnx_add(im, node, "multiply", NULL, n, in);
    if (exponent < 0)
        y = one(im, node, "reciprocal", y);
    return wf_onnx_done_view(im, node, y, &v->view);
}

/* d - log(sum(exp(d))) where d is x less its largest channel. */
static bool log_softmax(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    if (!v)
        return false;
    int64_t axis = wf_onnx_attr_int(node, "axis", -1);
    axis += axis < 0 ? v->view.rank : 0;
    if (axis < 0 || axis >= v->view.rank ||
        !wf_onnx_axis_is(im, &v->view.axis[axis], v->layer, WF_ONNX_C))
        return wf_onnx_refuse(im, node, err, "the rule is for the axis of the channels");
    const double channels = (double)wf_onnx_shape(im, v->layer)[WF_ONNX_C].at[0];
    const int largest = wf_onnx_along(im, node, "max", v->layer, WF_ONNX_C);
    const int d = two(im, node, "subtract", v->layer, largest);
    int sum = wf_onnx_along(im, node, "mean", one(im, node, "exp", d), WF_ONNX_C);
    sum = one(im, node, "log", scaled(im, node, sum, channels));
    return wf_onnx_done_view(im, node, two(im, node, "subtract", d, sum), &v->view);
}

/* alpha * elu(x / alpha) */
static bool celu(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    const double alpha = wf_onnx_tidy(wf_onnx_attr_real(node, "alpha", 1));
    if (!v)
        return false;
    if (!(alpha > 0))
        return wf_onnx_refuse(im, node, err, "an alpha of %g: the rule is for numbers above 0",
                              alpha);
    int y = alpha == 1 ? v->layer : scaled(im, node, v->layer, 1 / alpha);
    y = one(im, node, "elu", y);
    y = alpha == 1 ? y : scaled(im, node, y, alpha);
    return wf_onnx_done_view(im, node, y, &v->view);
}

/* x > number: no layer has it, but softplus is written with it. */
static bool greater(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_layer_attrs a = { 0 };
    if (!wf_onnx_number_in(im, node, 1, 0, &a.offset))
        return wf_onnx_refuse(im, node, err, "the rule is for a comparison with a number");
    const struct wf_onnx_value *const v = wf_onnx_features_in(im, node, 0, err);
    return v && wf_onnx_done_view(im, node, wf_onnx_add(im, node, "greater", &a, 1, &v->layer),
                                  &v->view);
}

/* x where it is large, else log(1 + exp(x)): the softplus that it is anyway. */
static bool where(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const condition = wf_onnx_features_in(im, node, 0, err),
                                      *const x = wf_onnx_features_in(im, node, 1, err),
                                      *const y = wf_onnx_features_in(im, node, 2, err);
    if (!condition || !x || !y)
        return false;
    if (wf_onnx_is(im, condition->layer, "greater") && wf_onnx_is(im, y->layer, "softplus") &&
        im->layers[y->layer].in[0] == x->layer && im->layers[condition->layer].in[0] == x->layer)
        return wf_onnx_done_view(im, node, y->layer, &y->view);
    return wf_onnx_refuse(im, node, err, "a choice by the values of an image has no rule");
}

const struct wf_onnx_rule_row wf_onnx_rules_composed[] = {
    { "Min", extreme }, { "Max", extreme },     { "Pow", power },   { "LogSoftmax", log_softmax },
    { "Celu", celu },   { "Greater", greater }, { "Where", where }, { .op = NULL },
};
