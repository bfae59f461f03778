/* Convolutions, linear layers and poolings. */
#include <inttypes.h>
#include <string.h>

#include "onnx/inside.h"

/* Attributes of a window: one number per spatial axis, `fallback` where it is not given. */
static bool per_axis(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *name,
                     int64_t fallback, int64_t *values, struct wf_err *err)
{
    const Onnx__AttributeProto *const a = wf_onnx_attr(node, name);
    for (int i = 0; i < 3; i++)
        values[i] = i < 3 - im->dims ? (fallback ? 1 : 0) : fallback;
    if (!a || a->n_ints == 0)
        return true;
    if (a->n_ints != (size_t)im->dims)
        return wf_onnx_refuse(im, node, err, "%s has %zu numbers, the image has %d axes", name,
                              a->n_ints, im->dims);
    for (int i = 0; i < im->dims; i++) {
        if (a->ints[i] < (fallback ? 1 : 0) || a->ints[i] > 1 << 20)
            return wf_onnx_refuse(im, node, err, "%s is %" PRId64, name, a->ints[i]);
        values[3 - im->dims + i] = a->ints[i];
    }
    return true;
}

/* Padding that an exporter left to the runtime: it must be the same for all images. */
static bool auto_pad(struct wf_onnx_import *im, const Onnx__NodeProto *node, const char *mode,
                     int layer, struct wf_layer_attrs *a, struct wf_err *err)
{
    const bool upper = strcmp(mode, "SAME_UPPER") == 0;
    if (!upper && strcmp(mode, "SAME_LOWER") != 0)
        return true; /* VALID */
    const struct wf_onnx_extent *const shape = wf_onnx_shape(im, layer);
    for (int i = 3 - im->dims; i < 3; i++) {
        int64_t pad = -1;
        for (int p = 0; p < im->probes; p++) {
            const int64_t extent = shape[WF_ONNX_D + i].at[p];
            const int64_t out = (extent + a->stride[i] - 1) / a->stride[i];
            int64_t need =
                (out - 1) * a->stride[i] + a->dilation[i] * (a->kernel[i] - 1) + 1 - extent;
            need = need > 0 ? need : 0;
            if (pad >= 0 && pad != need)
                return wf_onnx_refuse(im, node, err,
                                      "auto_pad %s: how much is padded depends on the image: "
                                      "export with fixed pads",
                                      mode);
            pad = need;
        }
        a->pad_lo[i] = upper ? pad / 2 : pad - pad / 2;
        a->pad_hi[i] = pad - a->pad_lo[i];
    }
    return true;
}

static bool window(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer,
                   struct wf_layer_attrs *a, struct wf_err *err)
{
    if (!per_axis(im, node, "strides", 1, a->stride, err) ||
        !per_axis(im, node, "dilations", 1, a->dilation, err))
        return false;
    char text[32];
    const char *const mode = wf_onnx_attr_text(node, "auto_pad", "NOTSET", text, sizeof text);
    if (strcmp(mode, "NOTSET") != 0)
        return auto_pad(im, node, mode, layer, a, err);
    const Onnx__AttributeProto *const pads = wf_onnx_attr(node, "pads");
    if (!pads || pads->n_ints == 0)
        return true;
    if (pads->n_ints != 2 * (size_t)im->dims)
        return wf_onnx_refuse(im, node, err, "pads has %zu numbers for %d axes", pads->n_ints,
                              im->dims);
    for (int i = 0; i < im->dims; i++) {
        const int64_t lo = pads->ints[i], hi = pads->ints[im->dims + i];
        if (lo < 0 || hi < 0 || lo > 1 << 20 || hi > 1 << 20)
            return wf_onnx_refuse(im, node, err, "pads are %" PRId64 " and %" PRId64, lo, hi);
        a->pad_lo[3 - im->dims + i] = lo;
        a->pad_hi[3 - im->dims + i] = hi;
    }
    return true;
}

/* Extents behind a window; `up`: rounded up, as long as the last window begins inside. */
static bool window_shape(struct wf_onnx_import *im, const Onnx__NodeProto *node, int layer, bool up,
                         struct wf_err *err)
{
    struct wf_onnx_layer *const l = wf_onnx_layer(im, layer);
    const struct wf_layer_attrs *const a = &l->a;
    for (int i = 3 - im->dims; i < 3; i++)
        for (int p = 0; p < im->probes; p++) {
            int64_t *const extent = &l->shape[WF_ONNX_D + i].at[p];
            const int64_t begin = *extent + a->pad_lo[i];
            const int64_t room = begin + a->pad_hi[i] - a->dilation[i] * (a->kernel[i] - 1) - 1;
            if (room < 0)
                return wf_onnx_refuse(im, node, err,
                                      "a window of %" PRId64 " on an extent of %" PRId64,
                                      a->kernel[i], *extent);
            *extent = (room + (up ? a->stride[i] - 1 : 0)) / a->stride[i] + 1;
            if (up && (*extent - 1) * a->stride[i] >= begin)
                --*extent;
        }
    return true;
}

/* --- convolutions --- */

static struct wf_onnx_constant *weight_in(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                          size_t index, struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, index);
    struct wf_onnx_constant *const c = v ? wf_onnx_constant(im, v, err) : NULL;
    if (!c && err->code == WF_OK)
        (void)wf_onnx_refuse(im, node, err,
                             "its weight '%s' is computed while the network runs: there is no rule "
                             "for that",
                             index < node->n_input ? node->input[index] : "");
    return c;
}

/* The bias of `count` elements, where there is one. */
static bool bias_in(struct wf_onnx_import *im, const Onnx__NodeProto *node, int64_t count,
                    struct wf_onnx_constant **bias, struct wf_err *err)
{
    *bias = NULL;
    if (node->n_input < 3 || !node->input[2][0])
        return true;
    *bias = weight_in(im, node, 2, err);
    if (!*bias)
        return false;
    /* Zeros that an exporter put in where the layer has none. */
    const size_t n = strlen((*bias)->name);
    if ((n < 5 || strcmp((*bias)->name + n - 5, ".bias") != 0) && wf_onnx_constant_is(*bias, 0)) {
        *bias = NULL;
        return true;
    }
    if ((*bias)->count != count)
        return wf_onnx_refuse(im, node, err,
                              "bias '%s' has %" PRId64 " elements, the result %" PRId64 " channels",
                              (*bias)->name, (*bias)->count, count);
    return true;
}

static bool is_vector(const struct wf_onnx_import *im, int layer)
{
    bool yes = true;
    for (int axis = WF_ONNX_D; axis < WF_ONNX_AXES; axis++)
        yes = yes && wf_onnx_extent_is(im, wf_onnx_shape(im, layer)[axis], 1);
    return yes;
}

/* A convolution along the channels of a vector, seen as [N, 1, C]: one in a row of as many positions. */
static bool conv_along_channels(struct wf_onnx_import *im, const Onnx__NodeProto *node,
                                const struct wf_onnx_value *v, struct wf_err *err)
{
    struct wf_onnx_constant *w = weight_in(im, node, 1, err), *b;
    const Onnx__AttributeProto *const pads = wf_onnx_attr(node, "pads");
    struct wf_layer_attrs a = { .out = 1, .groups = 1 };
    if (!w || !bias_in(im, node, 1, &b, err))
        return false;
    for (int i = 0; i < 3; i++)
        a.kernel[i] = a.stride[i] = a.dilation[i] = 1;
    a.kernel[2] = w->rank == 3 ? w->shape[2] : 0;
    bool plain =
        strcmp(wf_onnx_attr_text(node, "auto_pad", "NOTSET", (char[16]){ 0 }, 16), "NOTSET") == 0;
    static const char *const steps[] = { "strides", "dilations" };
    for (int i = 0; i < 2; i++) {
        const Onnx__AttributeProto *const s = wf_onnx_attr(node, steps[i]);
        plain = plain && (!s || s->n_ints == 0 || (s->n_ints == 1 && s->ints[0] == 1));
    }
    for (int i = 0; pads && pads->n_ints == 2 && i < 2; i++)
        *(i ? &a.pad_hi[2] : &a.pad_lo[2]) = pads->ints[i];
    if (!plain || !a.kernel[2] || w->count != a.kernel[2] ||
        a.pad_lo[2] + a.pad_hi[2] != a.kernel[2] - 1 || a.pad_lo[2] < 0 || a.pad_hi[2] < 0)
        return wf_onnx_refuse(
            im, node, err,
            "the rule along the channels is for one filter that keeps their number, without steps");
    int64_t shape[] = { 1, 1, 1, 1, 1 };
    shape[1 + im->dims] = a.kernel[2];
    w = wf_onnx_constant_like(im, NULL, w, 2 + im->dims, shape, err);
    if (!w)
        return false;
    const int row = wf_onnx_turn_row(im, node, v->layer);
    const int y = wf_onnx_add(im, node, "conv", &a, 1, &row);
    wf_onnx_weight(im, y, "weight", w);
    if (b) {
        im->layers[y].a.bias = 1;
        wf_onnx_weight(im, y, "bias", b);
    }
    return wf_onnx_done_view(im, node, wf_onnx_turn_row(im, node, y), &v->view);
}

static bool conv(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const bool up = strcmp(node->op_type, "ConvTranspose") == 0;
    const struct wf_onnx_value *const v = wf_onnx_in(im, node, 0);
    if (!up && im->dims > 1 && v && v->kind == WF_ONNX_FEATURES && v->view.rank == 3 &&
        v->view.axis[1].n == 0 && is_vector(im, v->layer) &&
        wf_onnx_axis_is(im, &v->view.axis[2], v->layer, WF_ONNX_C))
        return conv_along_channels(im, node, v, err);
    const int x = wf_onnx_plain_in(im, node, 0, err);
    struct wf_onnx_constant *const w = x == WF_LAYER_NONE ? NULL : weight_in(im, node, 1, err), *b;
    if (!w)
        return false;
    struct wf_layer_attrs a = { .groups = wf_onnx_attr_int(node, "group", 1) };
    const int64_t channels = wf_onnx_shape(im, x)[WF_ONNX_C].at[0];
    if (w->rank != 2 + im->dims || a.groups < 1 || w->count == 0 ||
        w->shape[up ? 0 : 1] * (up ? 1 : a.groups) != channels)
        return wf_onnx_refuse(im, node, err,
                              "weight '%s' of %d axes and %" PRId64 " groups does not fit an image "
                              "of %d axes and %" PRId64 " channels",
                              w->name, w->rank, a.groups, im->dims, channels);
    a.out = up ? w->shape[1] * a.groups : w->shape[0];
    for (int i = 0; i < 3; i++)
        a.kernel[i] = i < 3 - im->dims ? 1 : w->shape[i - 1 + im->dims];
    if (!window(im, node, x, &a, err) || !bias_in(im, node, a.out, &b, err))
        return false;
    a.bias = b != NULL;
    if (up &&
        (wf_onnx_attr(node, "output_shape") ||
         strcmp(wf_onnx_attr_text(node, "auto_pad", "NOTSET", (char[16]){ 0 }, 16), "NOTSET") != 0))
        return wf_onnx_refuse(im, node, err, "output_shape and auto_pad have no rule: give pads");
    if (up && !per_axis(im, node, "output_padding", 0, a.output_pad, err))
        return false;
    const int y = wf_onnx_add(im, node, up ? "conv_transpose" : "conv", &a, 1, &x);
    struct wf_onnx_extent *const shape = im->layers[y].shape;
    shape[WF_ONNX_C] = wf_onnx_extent(a.out);
    wf_onnx_weight(im, y, "weight", w);
    if (b)
        wf_onnx_weight(im, y, "bias", b);
    if (!up)
        return window_shape(im, node, y, false, err) && wf_onnx_done(im, node, y, 0);
    for (int i = 3 - im->dims; i < 3; i++)
        for (int p = 0; p < im->probes; p++)
            shape[WF_ONNX_D + i].at[p] = (shape[WF_ONNX_D + i].at[p] - 1) * a.stride[i] -
                                         a.pad_lo[i] - a.pad_hi[i] + a.output_pad[i] + 1 +
                                         a.dilation[i] * (a.kernel[i] - 1);
    return wf_onnx_done(im, node, y, 0);
}

/* --- linear --- */

/* [in, out] as [out, in]. */
static struct wf_onnx_constant *turned(struct wf_onnx_import *im, struct wf_onnx_constant *w,
                                       struct wf_err *err)
{
    const int64_t shape[] = { w->shape[1], w->shape[0] };
    struct wf_onnx_constant *const t = wf_onnx_constant_new(im, w->name, 2, shape, err);
    for (int64_t i = 0; t && i < shape[0]; i++)
        for (int64_t k = 0; k < shape[1]; k++)
            t->data[i * shape[1] + k] = w->data[k * shape[0] + i];
    return t;
}

/* A layer on the channels of x: a vector's, or each position's. w is [out, in]. */
static int add_linear(struct wf_onnx_import *im, const Onnx__NodeProto *node, int x,
                      struct wf_onnx_constant *w, struct wf_err *err)
{
    struct wf_layer_attrs a = { .out = w->shape[0] };
    const bool vector = is_vector(im, x);
    if (!vector) {
        const int64_t shape[] = { w->shape[0], w->shape[1], 1, 1, 1 };
        for (int i = 0; i < 3; i++)
            a.kernel[i] = a.stride[i] = a.dilation[i] = 1;
        a.groups = 1;
        w = wf_onnx_constant_like(im, NULL, w, 2 + im->dims, shape, err);
        if (!w)
            return WF_LAYER_NONE;
    }
    const int y = wf_onnx_add(im, node, vector ? "linear" : "conv", &a, 1, &x);
    im->layers[y].shape[WF_ONNX_C] = wf_onnx_extent(a.out);
    wf_onnx_weight(im, y, "weight", w);
    return y;
}

static bool gemm(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const int x = wf_onnx_plain_in(im, node, 0, err);
    struct wf_onnx_constant *w = x == WF_LAYER_NONE ? NULL : weight_in(im, node, 1, err), *b;
    if (!w)
        return false;
    if (wf_onnx_attr_int(node, "transA", 0) || wf_onnx_attr_real(node, "alpha", 1) != 1 ||
        wf_onnx_attr_real(node, "beta", 1) != 1 || !is_vector(im, x) || w->rank != 2)
        return wf_onnx_refuse(im, node, err,
                              "the rule is for x * weight + bias on vectors, without transA, alpha "
                              "and beta");
    if (!wf_onnx_attr_int(node, "transB", 0))
        w = turned(im, w, err);
    if (!w || !bias_in(im, node, w->shape[0], &b, err))
        return false;
    if (!wf_onnx_extent_is(im, wf_onnx_shape(im, x)[WF_ONNX_C], w->shape[1]))
        return wf_onnx_refuse(im, node, err,
                              "weight '%s' takes vectors of %" PRId64 ", but gets %" PRId64
                              ": export with the extents that the network was made for",
                              w->name, w->shape[1], wf_onnx_shape(im, x)[WF_ONNX_C].at[0]);
    const int y = add_linear(im, node, x, w, err);
    if (y == WF_LAYER_NONE)
        return false;
    if (b) {
        im->layers[y].a.bias = 1;
        wf_onnx_weight(im, y, "bias", b);
    }
    return wf_onnx_done(im, node, y, 2);
}

/* features * [in, out] over the last axis, which must be all channels. */
static bool matmul(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    struct wf_onnx_value *const v = wf_onnx_in(im, node, 0), *const m = wf_onnx_in(im, node, 1);
    if (v && m && v->kind == WF_ONNX_FEATURES && m->kind == WF_ONNX_FEATURES)
        return wf_onnx_product(im, node, err);
    if (!v || !m || v->kind != WF_ONNX_FEATURES)
        return wf_onnx_refuse(im, node, err,
                              "the rule is for a result of the network times a constant");
    if (v->view.rank == 2 && wf_onnx_plain(im, node, v, err) == WF_LAYER_NONE)
        return false;
    struct wf_onnx_constant *w = weight_in(im, node, 1, err);
    if (!w)
        return false;
    const struct wf_onnx_axis *const last = &v->view.axis[v->view.rank - 1];
    if (w->rank != 2 || v->view.rank < 2 || !wf_onnx_axis_is(im, last, v->layer, WF_ONNX_C) ||
        !wf_onnx_extent_is(im, wf_onnx_shape(im, v->layer)[WF_ONNX_C], w->shape[0]))
        return wf_onnx_refuse(im, node, err,
                              "the rule is for a matrix on the channels, as the last axis");
    w = turned(im, w, err);
    const int y = w ? add_linear(im, node, v->layer, w, err) : WF_LAYER_NONE;
    if (y == WF_LAYER_NONE)
        return false;
    struct wf_onnx_view view = v->view;
    view.axis[view.rank - 1] = wf_onnx_view(im, y, 2).axis[1];
    return wf_onnx_done_view(im, node, y, &view);
}

/* --- pooling --- */

static bool pool(struct wf_onnx_import *im, const Onnx__NodeProto *node, struct wf_err *err)
{
    const bool max = strcmp(node->op_type, "MaxPool") == 0;
    const int x = wf_onnx_plain_in(im, node, 0, err);
    struct wf_layer_attrs a = { .ceil = wf_onnx_attr_int(node, "ceil_mode", 0) != 0,
                                .count_pad =
                                    !max && wf_onnx_attr_int(node, "count_include_pad", 0) };
    if (x == WF_LAYER_NONE || !per_axis(im, node, "kernel_shape", 1, a.kernel, err) ||
        !window(im, node, x, &a, err))
        return false;
    bool pads = false;
    for (int i = 0; i < 3; i++) {
        pads |= a.pad_lo[i] || a.pad_hi[i];
        if (a.dilation[i] != 1)
            return wf_onnx_refuse(im, node, err, "poolings with dilation have no rule");
    }
    a.count_pad = a.count_pad && pads;
    if (node->n_output > 1 && node->output[1][0])
        return wf_onnx_refuse(im, node, err, "the indices of a pooling have no rule");
    const bool low = max && wf_onnx_is(im, x, "pad_low");
    for (int i = 0; low && i < 3; i++) {
        a.pad_lo[i] += im->layers[x].a.pad_lo[i];
        a.pad_hi[i] += im->layers[x].a.pad_hi[i];
    }
    const int from = low ? im->layers[x].in[0] : x;
    const int y = wf_onnx_add(im, node, max ? "max_pool" : "avg_pool", &a, 1, &from);
    if (!window_shape(im, node, y, a.ceil, err))
        return false;
    memset(im->layers[y].a.dilation, 0, sizeof a.dilation);
    return wf_onnx_done(im, node, y, 0);
}

const struct wf_onnx_rule_row wf_onnx_rules_conv[] = {
    { "Conv", conv },    { "ConvTranspose", conv }, { "Gemm", gemm }, { "MatMul", matmul },
    { "MaxPool", pool }, { "AveragePool", pool },   { .op = NULL },
};
