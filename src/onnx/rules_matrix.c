/* Products of two results (attention), and what is done along parts of the channels (split attention). */
#include <inttypes.h>
#include <string.h>

#include "onnx/inside.h"
#include "ops/build.h"

/* --- matrices --- */

/* How the two last axes of a view are a matrix of its layer: positions by channels, or channels by positions. */
enum arrangement { NEITHER, PLAIN, TURNED };

/* All spatial axes of the layer, in order. */
static struct wf_onnx_axis positions_of(const struct wf_onnx_import *im, int layer)
{
    struct wf_onnx_axis all = { .n = 0 };
    const struct wf_onnx_view v = wf_onnx_view(im, layer, 2 + im->dims);
    for (int i = 2; i < v.rank; i++)
        if (v.axis[i].n)
            all.at[all.n++] = v.axis[i].at[0];
    return all;
}

static enum arrangement arrangement_of(const struct wf_onnx_import *im,
                                       const struct wf_onnx_value *v)
{
    const int rank = v->view.rank;
    if (rank < 3 || !wf_onnx_axis_is(im, &v->view.axis[0], v->layer, WF_ONNX_N))
        return NEITHER;
    for (int i = 1; i < rank - 2; i++)
        if (v->view.axis[i].n)
            return NEITHER;
    const struct wf_onnx_axis all = positions_of(im, v->layer);
    for (int turned = 0; turned < 2; turned++)
        if (wf_onnx_axis_equal(im, &v->view.axis[rank - 2 + turned], &all) &&
            wf_onnx_axis_is(im, &v->view.axis[rank - 1 - turned], v->layer, WF_ONNX_C))
            return turned ? TURNED : PLAIN;
    return NEITHER;
}

/* The shape of layer y: positions and channels. */
static void set_shape(struct wf_onnx_import *im, int y, const struct wf_onnx_extent extents[3],
                      struct wf_onnx_extent channels)
{
    for (int i = 0; i < 3; i++)
        im->layers[y].shape[WF_ONNX_D + i] = extents[i];
    im->layers[y].shape[WF_ONNX_C] = channels;
}

static struct wf_onnx_extent positions(const struct wf_onnx_import *im, int layer)
{
    const struct wf_onnx_axis all = positions_of(im, layer);
    return wf_onnx_axis_extent(im, &all);
}

static bool is_row(const struct wf_onnx_import *im, int layer)
{
    const struct wf_onnx_extent *const s = wf_onnx_shape(im, layer);
    return wf_onnx_extent_is(im, s[WF_ONNX_D], 1) && wf_onnx_extent_is(im, s[WF_ONNX_H], 1);
}

bool wf_onnx_product(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const struct wf_onnx_value *const a = wf_onnx_in(im, node, 0), *const b =
                                                                       wf_onnx_in(im, node, 1);
    const enum arrangement of_a = arrangement_of(im, a), of_b = arrangement_of(im, b);
    if (of_a == NEITHER || of_b == NEITHER || a->view.rank != b->view.rank)
        return wf_onnx_refuse(im, node, err,
                              "the rule is for matrices of all positions and all channels of two "
                              "results; heads of attention have none");
    /* Transposed, the product of the two in the other order: where both are turned, where the result is one column,
     * which is a vector then, and where only the second's positions are an image's, not a row of channels. */
    const bool column = of_a == TURNED && of_b == PLAIN &&
                        wf_onnx_extent_is(im, wf_onnx_shape(im, b->layer)[WF_ONNX_C], 1);
    const bool image =
        of_a == PLAIN && of_b == TURNED && is_row(im, a->layer) && !is_row(im, b->layer);
    const bool turned = (of_a == TURNED && of_b == TURNED) || column || image;
    const int in[] = { turned ? b->layer : a->layer, turned ? a->layer : b->layer };
    struct wf_layer_attrs attrs = { .form = of_a == of_b     ? WF_MATMUL_NN
                                            : of_a == TURNED ? WF_MATMUL_TN
                                                             : WF_MATMUL_NT };
    const struct wf_onnx_extent *const left = wf_onnx_shape(im, in[0]);
    struct wf_onnx_extent extents[3] = { left[WF_ONNX_D], left[WF_ONNX_H], left[WF_ONNX_W] };
    const struct wf_onnx_extent channels =
        attrs.form == WF_MATMUL_NT ? positions(im, in[1]) : wf_onnx_shape(im, in[1])[WF_ONNX_C];
    if (attrs.form == WF_MATMUL_TN) {
        extents[0] = extents[1] = wf_onnx_extent(1);
        extents[2] = left[WF_ONNX_C];
        for (int i = 0; i < 3; i++)
            attrs.size[i] = extents[i].at[0];
        for (int p = 1; p < im->probes; p++)
            if (extents[2].at[p] != extents[2].at[0])
                return wf_onnx_refuse(im, node, err,
                                      "its first matrix has a row for each position");
    }
    const struct wf_onnx_extent terms[2] = {
        attrs.form == WF_MATMUL_TN ? positions(im, in[0]) : left[WF_ONNX_C],
        attrs.form == WF_MATMUL_NT ? wf_onnx_shape(im, in[1])[WF_ONNX_C] : positions(im, in[1])
    };
    if (!wf_onnx_extent_equal(im, terms[0], terms[1]))
        return wf_onnx_refuse(im, node, err, "its matrices do not meet for some images");
    const int y = wf_onnx_add(im, node, "matmul", &attrs, 2, in);
    set_shape(im, y, extents, channels);
    struct wf_onnx_view view = a->view;
    view.axis[view.rank - 2 + turned] = positions_of(im, y);
    view.axis[view.rank - 1 - turned] = wf_onnx_view(im, y, 2).axis[1];
    return wf_onnx_done_view(im, node, y, &view);
}

/* --- reshapes that move elements --- */

/* The value with channels outermost: where positions are outermost, by a layer that transposes. */
static int channels_first(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                          const struct wf_onnx_value *v)
{
    const enum arrangement how = arrangement_of(im, v);
    if (how != PLAIN)
        return how == TURNED || wf_onnx_is_plain(im, v) ? v->layer : WF_LAYER_NONE;
    const struct wf_onnx_extent *const x = wf_onnx_shape(im, v->layer);
    const struct wf_onnx_extent extents[3] = { wf_onnx_extent(1), wf_onnx_extent(1), x[WF_ONNX_C] },
                                channels = positions(im, v->layer);
    const int layer = v->layer, y = wf_onnx_add(im, node, "transpose", NULL, 1, &layer);
    set_shape(im, y, extents, channels);
    return y;
}

int wf_onnx_reshaped(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                     const struct wf_onnx_value *v, int rank, const struct wf_onnx_extent to[])
{
    if (rank != 2 + im->dims || !wf_onnx_axis_is(im, &v->view.axis[0], v->layer, WF_ONNX_N) ||
        !wf_onnx_extent_equal(im, to[0], wf_onnx_axis_extent(im, &v->view.axis[0])))
        return WF_LAYER_NONE;
    struct wf_onnx_extent extents[3] = { wf_onnx_extent(1), wf_onnx_extent(1), wf_onnx_extent(1) };
    bool fixed = true;
    struct wf_layer_attrs a = { .out = to[1].at[0] };
    for (int i = 2; i < rank; i++)
        extents[3 - im->dims + i - 2] = to[i];
    for (int i = 0; i < 3; i++) {
        a.size[i] = extents[i].at[0];
        fixed = fixed && wf_onnx_extent_is(im, extents[i], a.size[i]);
    }
    const int like = fixed ? WF_LAYER_NONE : wf_onnx_layer_like(im, extents);
    if (!wf_onnx_extent_is(im, to[1], a.out) || (!fixed && like == WF_LAYER_NONE))
        return WF_LAYER_NONE;
    const int x = channels_first(im, node, v);
    if (x == WF_LAYER_NONE)
        return WF_LAYER_NONE;
    if (!fixed)
        a = (struct wf_layer_attrs){ .out = 0 };
    const int y = fixed ? wf_onnx_add(im, node, "reshape", &a, 1, &x)
                        : wf_onnx_add_like(im, node, "reshape", &a, x, like);
    set_shape(im, y, extents, to[1]);
    return y;
}

/* --- an axis that is the outer digit of the channels --- */

/* Does this axis of the view say which of n equal parts of the channels? Their number, or 0. */
static int64_t parts_along(const struct wf_onnx_import *im, const struct wf_onnx_value *v, int axis)
{
    const struct wf_onnx_axis *const a = &v->view.axis[axis];
    const struct wf_onnx_extent all = wf_onnx_shape(im, v->layer)[WF_ONNX_C];
    if (a->n != 1 || a->at[0].axis != WF_ONNX_C)
        return 0;
    const int64_t n = a->at[0].size.at[0], each = a->at[0].stride.at[0];
    const bool whole = wf_onnx_extent_is(im, a->at[0].size, n) &&
                       wf_onnx_extent_is(im, a->at[0].stride, each) &&
                       wf_onnx_extent_is(im, all, n * each);
    return whole && n > 1 ? n : 0;
}

bool wf_onnx_unstack(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                     const struct wf_onnx_value *v, int axis, struct wf_onnx_value *list)
{
    const int64_t n = parts_along(im, v, axis);
    if (!n || n > WF_ONNX_IN)
        return false;
    const int64_t each = v->view.axis[axis].at[0].stride.at[0];
    *list = (struct wf_onnx_value){ .kind = WF_ONNX_LIST, .n_parts = (int)n, .list_axis = axis };
    list->parts = wf_arena_array(&im->arena, (size_t)n, struct wf_onnx_value);
    for (int64_t i = 0; i < n; i++) {
        const struct wf_layer_attrs a = { .axis = WF_LAYER_CHANNELS,
                                          .from = i * each,
                                          .to = i + 1 == n ? 0 : (i + 1) * each };
        struct wf_onnx_value *const part = &list->parts[i];
        *part = *v;
        part->layer = wf_onnx_add(im, node, "slice", &a, 1, &v->layer);
        im->layers[part->layer].shape[WF_ONNX_C] = wf_onnx_extent(each);
        part->view.axis[axis].n = 0; /* the other digits keep their strides */
    }
    return true;
}

bool wf_onnx_softmax_parts(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                           const struct wf_onnx_value *v, int axis, int *y)
{
    const int64_t n = parts_along(im, v, axis);
    if (!n || !wf_onnx_extent_is(im, positions(im, v->layer), 1))
        return false;
    const int64_t each = v->view.axis[axis].at[0].stride.at[0];
    struct wf_layer_attrs a = { .out = n, .size = { 1, 1, each } };
    const struct wf_onnx_extent extents[3] = { wf_onnx_extent(1), wf_onnx_extent(1),
                                               wf_onnx_extent(each) },
                                one[3] = { wf_onnx_extent(1), wf_onnx_extent(1),
                                           wf_onnx_extent(1) };
    int x = wf_onnx_add(im, node, "reshape", &a, 1, &v->layer);
    set_shape(im, x, extents, wf_onnx_extent(n));
    x = wf_onnx_add(im, node, "softmax", NULL, 1, &x);
    *y = wf_onnx_add(im, node, "flatten", NULL, 1, &x);
    set_shape(im, *y, one, wf_onnx_extent(n * each));
    return true;
}

bool wf_onnx_is_sample(const struct wf_onnx_import *im, const struct wf_onnx_value *v, int axis)
{
    struct wf_onnx_extent all = wf_onnx_extent(1);
    for (int i = 0; i < v->view.rank; i++)
        if (i != axis && i > 0 && v->view.axis[i].n)
            return false;
    if (axis < 1 || !wf_onnx_axis_is(im, &v->view.axis[0], v->layer, WF_ONNX_N))
        return false;
    for (int i = WF_ONNX_C; i < WF_ONNX_AXES; i++)
        for (int p = 0; p < WF_ONNX_PROBES; p++)
            if (__builtin_mul_overflow(all.at[p], wf_onnx_shape(im, v->layer)[i].at[p], &all.at[p]))
                return false;
    return wf_onnx_extent_equal(im, wf_onnx_axis_extent(im, &v->view.axis[axis]), all);
}
