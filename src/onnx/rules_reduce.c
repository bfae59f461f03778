/* Sums, means, norms and largest elements over whole axes. */
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

int wf_onnx_along(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *kind, int x,
                  int axis)
{
    const int64_t which = axis == WF_ONNX_C ? WF_LAYER_CHANNELS : axis - WF_ONNX_D + WF_LAYER_DEPTH;
    const int y = wf_onnx_add(im, node, kind, &(struct wf_layer_attrs){ .axis = which }, 1, &x);
    im->layers[y].shape[axis] = wf_onnx_extent(1);
    return y;
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

static bool refuse_list(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    return wf_onnx_refuse(im, node, err,
                          "of values that were stacked there are sums and means over the axis "
                          "that they were stacked along");
}

/* Reductions of values side by side, where `v` is a list or the axis says which of equal parts of the channels. */
static bool reduce_parts(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                         const struct wf_onnx_value *v, bool *found, struct wf_err *err)
{
    struct wf_onnx_value parts;
    int n = 0;
    int64_t axis = -1;
    const bool one = wf_onnx_ints(im, node, 1, "axes", 1, &n, &axis) && n == 1;
    const bool adds = strcmp(node->op_type, "ReduceSum") == 0,
               means = strcmp(node->op_type, "ReduceMean") == 0;
    const bool list = v->kind == WF_ONNX_LIST;
    axis += axis < 0 ? (list && v->n_parts ? &v->parts[0] : v)->view.rank : 0;
    *found = true;
    if (list)
        return one && (adds || means) && v->n_parts > 0 && axis == v->list_axis
                   ? list_sum(im, node, v)
                   : refuse_list(im, node, err);
    *found = one && adds && axis >= 0 && axis < v->view.rank &&
             !wf_onnx_axis_is(im, &v->view.axis[axis], v->layer, WF_ONNX_C) &&
             wf_onnx_unstack(im, node, v, (int)axis, &parts);
    return !*found || list_sum(im, node, &parts);
}

/* The layer reduced along the axes of the bits; `spatial`: those along which it has extents. WF_LAYER_NONE: no rule. */
static int reduced(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x, int bits,
                   int spatial)
{
    const char *const op = node->op_type;
    const bool max = strcmp(op, "ReduceMax") == 0, mean = strcmp(op, "ReduceMean") == 0;
    if (strcmp(op, "ReduceL2") == 0)
        x = wf_onnx_add(im, node, "multiply", NULL, 2, (int[]){ x, x });
    if (spatial && (bits & spatial) == spatial) {
        x = pooled(im, node, max ? "global_max_pool" : mean ? "global_pool" : "global_sum", x);
        bits &= ~spatial;
    }
    for (int axis = WF_ONNX_C; axis < WF_ONNX_AXES; axis++) {
        const struct wf_onnx_extent extent = wf_onnx_shape(im, x)[axis];
        if (!(bits & 1 << axis))
            continue;
        if (!max && !mean && !wf_onnx_extent_is(im, extent, extent.at[0]))
            return WF_LAYER_NONE;
        x = wf_onnx_along(im, node, max ? "max" : "mean", x, axis);
        const struct wf_layer_attrs count = { .factor = (double)extent.at[0] };
        if (!max && !mean)
            x = wf_onnx_add(im, node, "scale", &count, 1, &x);
    }
    return strcmp(op, "ReduceL2") == 0 ? wf_onnx_add(im, node, "sqrt", NULL, 1, &x) : x;
}

static bool reduce(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    int n = 0;
    int64_t axes[WF_ONNX_RANK];
    bool found = false, over[WF_ONNX_RANK] = { 0 };
    if (!v || (v->kind != WF_ONNX_FEATURES && v->kind != WF_ONNX_LIST))
        return wf_onnx_refuse(im, node, err, "it should reduce a result of the network");
    if (!reduce_parts(im, node, v, &found, err) || found)
        return err->code == WF_OK;
    const bool given = wf_onnx_ints(im, node, 1, "axes", WF_ONNX_RANK, &n, axes) && n > 0;
    if (!given && wf_onnx_in(im, node, 1))
        return wf_onnx_refuse(im, node, err, "its axes are not known");
    for (int i = 0; i < v->view.rank; i++) {
        over[i] = !given;
        for (int k = 0; k < n; k++)
            over[i] |= (axes[k] < 0 ? axes[k] + v->view.rank : axes[k]) == i;
    }
    int spatial = 0;
    for (int axis = WF_ONNX_D; axis < WF_ONNX_AXES; axis++)
        if (!wf_onnx_extent_is(im, wf_onnx_shape(im, v->layer)[axis], 1))
            spatial |= 1 << axis;
    const int bits = reduced_axes(im, v, over);
    const int y = bits < 0 || bits & 1 << WF_ONNX_N ? WF_LAYER_NONE
                                                    : reduced(im, node, v->layer, bits, spatial);
    if (y == WF_LAYER_NONE)
        return wf_onnx_refuse(im, node, err,
                              "the rules are for whole axes of channels and positions, and for "
                              "sums over all positions or over axes of fixed extents");
    struct wf_onnx_view view = { .rank = 0 };
    const bool keep = wf_onnx_attr_int(node, "keepdims", 1);
    for (int i = 0; i < v->view.rank; i++) {
        if (!over[i])
            view.axis[view.rank++] = v->view.axis[i];
        else if (keep)
            view.axis[view.rank++].n = 0;
    }
    return wf_onnx_done_view(im, node, y, &view);
}

const struct wf_onnx_rule_row wf_onnx_rules_reduce[] = {
    { "ReduceSum", reduce },
    { "ReduceMean", reduce },
    { "ReduceMax", reduce },
    { "ReduceL2", reduce },
    { "GlobalAveragePool", global_pool },
    { "GlobalMaxPool", global_pool },
    { .op = NULL },
};
