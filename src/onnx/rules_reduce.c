/* Means and largest elements over whole axes. */
#include <string.h>

#include "onnx/inside.h"

/* Adds the layer and takes the extents of all spatial axes as 1. */
static int pooled(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind, int x)
{
    const int y = wf_onnx_add(im, node, kind, NULL, 1, &x);
    for (int axis = WF_ONNX_D; axis < WF_ONNX_AXES; axis++)
        im->layers[y].shape[axis] = wf_onnx_extent(1);
    return y;
}

/* The same of one axis. */
static int along(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind, int x,
                 int axis)
{
    const int64_t which = axis == WF_ONNX_C ? WF_LAYER_CHANNELS : axis - WF_ONNX_D + WF_LAYER_DEPTH;
    const int y = wf_onnx_add(im, node, kind, &(struct wf_layer_attrs){ .axis = which }, 1, &x);
    im->layers[y].shape[axis] = wf_onnx_extent(1);
    return y;
}

/* The only axis of the bits, or -1. */
static int one_axis(int bits)
{
    for (int axis = 0; axis < WF_ONNX_AXES; axis++)
        if (bits == 1 << axis)
            return axis;
    return -1;
}

static bool global_pool(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const bool max = strcmp(node->op_type, "GlobalMaxPool") == 0;
    const int x = wf_onnx_plain_in(im, node, 0, err);
    return x != WF_LAYER_NONE &&
           wf_onnx_done(im, node, pooled(im, node, max ? "global_max_pool" : "global_pool", x), 0);
}

/* Which axes of the layer the reduced axes of the view are: a bit for each that is whole; -1: others. */
static int reduced_axes(const struct wf_onnx_import *im, const struct wf_onnx_value *v,
                        const bool reduced[])
{
    int bits = 0;
    for (int i = 0; i < v->view.rank; i++)
        for (int k = 0; reduced[i] && k < v->view.axis[i].n; k++) {
            const struct wf_onnx_atom *const atom = &v->view.axis[i].at[k];
            if (!wf_onnx_extent_equal(im, atom->size, wf_onnx_shape(im, v->layer)[atom->axis]))
                return -1;
            bits |= 1 << atom->axis;
        }
    return bits;
}

/* The sum or mean over the axis that values were stacked along is that of the values. */
static bool list_sum(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                     const struct wf_onnx_value *list)
{
    int in[WF_ONNX_IN] = { 0 };
    for (int i = 0; i < list->n_parts; i++)
        in[i] = list->parts[i].layer;
    struct wf_onnx_view view = list->parts[0].view;
    if (!wf_onnx_attr_int(node, "keepdims", 1)) {
        for (int i = list->list_axis; i + 1 < view.rank; i++)
            view.axis[i] = view.axis[i + 1];
        view.rank--;
    }
    int y = list->n_parts == 1 ? in[0] : wf_onnx_add(im, node, "add", NULL, list->n_parts, in);
    if (strcmp(node->op_type, "ReduceMean") == 0)
        y = wf_onnx_add(im, node, "scale",
                        &(struct wf_layer_attrs){ .factor = 1.0 / list->n_parts }, 1, &y);
    return wf_onnx_done_view(im, node, y, &view);
}

static bool reduce_sum(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *v = wf_onnx_in(im, node, 0);
    struct wf_onnx_value parts;
    int n = 0;
    int64_t axis = -1;
    const bool known = v && wf_onnx_ints(im, node, 1, "axes", 1, &n, &axis) && n == 1;
    if (known && v->kind == WF_ONNX_FEATURES) {
        axis += axis < 0 ? v->view.rank : 0;
        if (axis >= 0 && axis < v->view.rank && wf_onnx_unstack(im, node, v, (int)axis, &parts))
            return list_sum(im, node, &parts);
    }
    if (!known || v->kind != WF_ONNX_LIST || v->n_parts < 1 ||
        (axis < 0 ? axis + v->parts[0].view.rank : axis) != v->list_axis)
        return wf_onnx_refuse(im, node, err,
                              "the rules are for a sum of values that were stacked, and for one "
                              "over equal parts of the channels");
    return list_sum(im, node, v);
}

static bool reduce(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    int n = 0;
    int64_t axes[WF_ONNX_RANK];
    if (v && v->kind == WF_ONNX_LIST && strcmp(node->op_type, "ReduceMean") == 0)
        return reduce_sum(im, node, err);
    if (!v || v->kind != WF_ONNX_FEATURES)
        return wf_onnx_refuse(im, node, err, "it should reduce a result of the network");
    const bool given = wf_onnx_ints(im, node, 1, "axes", WF_ONNX_RANK, &n, axes) && n > 0;
    if (!given && wf_onnx_in(im, node, 1))
        return wf_onnx_refuse(im, node, err, "its axes are not known");
    bool reduced[WF_ONNX_RANK] = { 0 };
    for (int i = 0; i < v->view.rank; i++) {
        reduced[i] = !given;
        for (int k = 0; k < n; k++)
            reduced[i] |= (axes[k] < 0 ? axes[k] + v->view.rank : axes[k]) == i;
    }
    int spatial = 0;
    for (int axis = WF_ONNX_D; axis < WF_ONNX_AXES; axis++)
        if (!wf_onnx_extent_is(im, wf_onnx_shape(im, v->layer)[axis], 1))
            spatial |= 1 << axis;
    const int bits = reduced_axes(im, v, reduced);
    const bool max = strcmp(node->op_type, "ReduceMax") == 0;
    int y = v->layer;
    if (bits == spatial && bits)
        y = pooled(im, node, max ? "global_max_pool" : "global_pool", v->layer);
    else if (one_axis(bits) >= WF_ONNX_C)
        y = along(im, node, max ? "max" : "mean", v->layer, one_axis(bits));
    else if (bits != 0)
        return wf_onnx_refuse(im, node, err,
                              "the rules are for all spatial axes, and for one axis");
    struct wf_onnx_view view = { .rank = 0 };
    const bool keep = wf_onnx_attr_int(node, "keepdims", 1);
    for (int i = 0; i < v->view.rank; i++) {
        if (!reduced[i])
            view.axis[view.rank++] = v->view.axis[i];
        else if (keep)
            view.axis[view.rank++].n = 0;
    }
    return wf_onnx_done_view(im, node, y, &view);
}

const struct wf_onnx_rule_row wf_onnx_rules_reduce[] = {
    { "ReduceSum", reduce_sum },      { "GlobalAveragePool", global_pool },
    { "GlobalMaxPool", global_pool }, { "ReduceMean", reduce },
    { "ReduceMax", reduce },          { .op = NULL },
};
