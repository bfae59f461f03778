/* Normalisations, in the forms that exporters write them. */
#include <inttypes.h>
#include <string.h>

#include "onnx/inside.h"

static struct wf_layer_attrs norm_attrs(const Onnx__NodeProto *node)
{
    const double eps = wf_onnx_tidy(wf_onnx_attr_real(node, "epsilon", 1e-5));
    return (struct wf_layer_attrs){ .eps = eps == 1e-5 ? 0 : eps };
}

/* A weight that must have `count` elements, as a vector. */
static struct wf_onnx_constant *vector_in(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                          size_t index, int64_t count, struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, index);
    struct wf_onnx_constant *const c = v ? wf_onnx_constant(im, v, err) : NULL;
    if (c && c->count == count)
        return c->rank == 1 ? c : wf_onnx_constant_like(im, NULL, c, 1, &count, err);
    if (err->code == WF_OK)
        (void)wf_onnx_refuse(im, node, err,
                             "input '%s' should be a constant of %" PRId64 " elements",
                             index < node->n_input ? node->input[index] : "", count);
    return NULL;
}

static bool batch_norm(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    static const char *const parts[] = { "weight", "bias", "running_mean", "running_var" };
    struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    const int x = wf_onnx_plain_in(im, node, 0, err);
    if (x == WF_LAYER_NONE)
        return false;
    struct wf_layer_attrs a = norm_attrs(node);
    const double momentum =
        wf_onnx_tidy(1 - wf_onnx_tidy(wf_onnx_attr_real(node, "momentum", 0.9)));
    a.momentum = momentum == 0.1 ? 0 : momentum;
    const int y = wf_onnx_add(im, node, "batch_norm", &a, 1, &x);
    for (size_t i = 0; i < 4; i++) {
        struct wf_onnx_constant *const c =
            vector_in(im, node, 1 + i, wf_onnx_shape(im, x)[WF_ONNX_C].at[0], err);
        if (!c)
            return false;
        wf_onnx_weight(im, y, parts[i], c);
    }
    return wf_onnx_done(im, node, y, v->view.rank);
}

/* Adds weight and bias to a norm, unless they are ones and zeros that an exporter put in for none. */
static void affine(struct wf_onnx_import *im, int layer, struct wf_onnx_constant *weight,
                   struct wf_onnx_constant *bias)
{
    const size_t n = strlen(weight->name);
    const bool made_up = n < 7 || strcmp(weight->name + n - 7, ".weight") != 0;
    if (made_up && wf_onnx_constant_is(weight, 1) && (!bias || wf_onnx_constant_is(bias, 0)))
        return;
    wf_onnx_weight(im, layer, "weight", weight);
    if (bias)
        wf_onnx_weight(im, layer, "bias", bias);
}

/* Whether axis 1 is the outer digit of the channels, and the axes behind it are all the rest of the sample. The
 * groups, or 0. */
static int64_t groups_of(const struct wf_onnx_import *im, const struct wf_onnx_value *v)
{
    const struct wf_onnx_view *const view = &v->view;
    const struct wf_onnx_extent *const shape = wf_onnx_shape(im, v->layer);
    if (view->rank < 3 || !wf_onnx_axis_is(im, &view->axis[0], v->layer, WF_ONNX_N))
        return 0;
    const struct wf_onnx_extent groups = wf_onnx_axis_extent(im, &view->axis[1]);
    /* Flattened again, the view must be the plain order of elements. */
    struct wf_onnx_extent extents[WF_ONNX_RANK] = { shape[WF_ONNX_N], shape[WF_ONNX_C] };
    for (int i = 0; i < im->dims; i++)
        extents[2 + i] = shape[WF_ONNX_AXES - im->dims + i];
    struct wf_onnx_view flat;
    const struct wf_onnx_view plain = wf_onnx_view(im, v->layer, 2 + im->dims);
    if (!wf_onnx_view_reshape(im, view, 2 + im->dims, extents, &flat) ||
        !wf_onnx_view_equal(im, &flat, &plain) || groups.at[0] < 1 ||
        shape[WF_ONNX_C].at[0] % groups.at[0] != 0 || !wf_onnx_extent_is(im, groups, groups.at[0]))
        return 0;
    return groups.at[0];
}

static bool instance_norm(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    if (!v || v->kind != WF_ONNX_FEATURES)
        return wf_onnx_plain_in(im, node, 0, err) != WF_LAYER_NONE;
    const int64_t channels = wf_onnx_shape(im, v->layer)[WF_ONNX_C].at[0];
    struct wf_layer_attrs a = norm_attrs(node);
    const int64_t groups = groups_of(im, v);
    if (!groups)
        return wf_onnx_refuse(im, node, err,
                              "the rule is for [N, C, *spatial] and for [N, groups, rest]");
    struct wf_onnx_constant *const weight = vector_in(im, node, 1, groups, err);
    struct wf_onnx_constant *const bias = weight ? vector_in(im, node, 2, groups, err) : NULL;
    if (!bias)
        return false;
    const bool grouped = groups != channels;
    if (grouped && (!wf_onnx_constant_is(weight, 1) || !wf_onnx_constant_is(bias, 0)))
        return wf_onnx_refuse(im, node, err, "weights per group of channels have no rule");
    a.groups = grouped ? groups : 0;
    const int y = wf_onnx_add(im, node, grouped ? "group_norm" : "instance_norm", &a, 1, &v->layer);
    if (!grouped)
        affine(im, y, weight, bias);
    return wf_onnx_done_view(im, node, y, &v->view);
}

static bool group_norm(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const int x = wf_onnx_plain_in(im, node, 0, err);
    if (x == WF_LAYER_NONE)
        return false;
    const int64_t channels = wf_onnx_shape(im, x)[WF_ONNX_C].at[0];
    struct wf_layer_attrs a = norm_attrs(node);
    a.groups = wf_onnx_attr_int(node, "num_groups", 0);
    if (a.groups < 1 || channels % a.groups != 0)
        return wf_onnx_refuse(im, node, err, "%" PRId64 " groups of %" PRId64 " channels", a.groups,
                              channels);
    /* Before operator set 21 weights are per group. */
    const int64_t count = im->model->opset >= 21 ? channels : a.groups;
    struct wf_onnx_constant *w[2];
    for (size_t i = 0; i < 2; i++) {
        w[i] = vector_in(im, node, 1 + i, count, err);
        if (!w[i])
            return false;
        if (count == channels)
            continue;
        struct wf_onnx_constant *const wide =
            wf_onnx_constant_new(im, w[i]->name, 1, &channels, err);
        for (int64_t c = 0; wide && c < channels; c++)
            wide->data[c] = w[i]->data[c / (channels / count)];
        w[i] = wide;
        if (!wide)
            return false;
    }
    const int y = wf_onnx_add(im, node, "group_norm", &a, 1, &x);
    affine(im, y, w[0], w[1]);
    return wf_onnx_done(im, node, y, 0);
}

static bool layer_norm(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    if (!v || v->kind != WF_ONNX_FEATURES)
        return wf_onnx_plain_in(im, node, 0, err) != WF_LAYER_NONE;
    const int64_t axis = wf_onnx_attr_int(node, "axis", -1);
    const int rank = v->view.rank, from = (int)(axis < 0 ? axis + rank : axis);
    bool channels_only = false, other = from < 0;
    for (int i = from; !other && i < rank; i++) { /* further axes are of extent one */
        const bool is_channels = wf_onnx_axis_is(im, &v->view.axis[i], v->layer, WF_ONNX_C);
        channels_only |= is_channels;
        other = !is_channels && v->view.axis[i].n > 0;
    }
    if (other || !channels_only)
        return wf_onnx_refuse(im, node, err,
                              "the rule is for a normalisation over the channels of a position: "
                              "over channels and positions it is group norm with one group");
    const int64_t channels = wf_onnx_shape(im, v->layer)[WF_ONNX_C].at[0];
    const struct wf_layer_attrs a = norm_attrs(node);
    struct wf_onnx_constant *const weight = vector_in(im, node, 1, channels, err), *bias = NULL;
    if (weight && node->n_input > 2 && node->input[2][0])
        bias = vector_in(im, node, 2, channels, err);
    if (!weight || err->code != WF_OK)
        return false;
    const int y = wf_onnx_add(im, node, "layer_norm", &a, 1, &v->layer);
    affine(im, y, weight, bias);
    return wf_onnx_done_view(im, node, y, &v->view);
}

const struct wf_onnx_rule_row wf_onnx_rules_norm[] = {
    { "BatchNormalization", batch_norm },
    { "InstanceNormalization", instance_norm },
    { "GroupNormalization", group_norm },
    { "LayerNormalization", layer_norm },
    { .op = NULL },
};
