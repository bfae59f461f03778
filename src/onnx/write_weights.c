/* Layers with weights as nodes of ONNX. */
#include <string.h>

#include "onnx/write.h"
#include "ops/activation.h"
#include "ops/build.h"

/* The last dims numbers of a triple. */
static void put_axes(struct wf_onnx_writer *w, const char *name, const int64_t values[3],
                     int64_t least)
{
    const int dims = w->e->net->dims;
    int64_t some[3];
    for (int i = 0; i < dims; i++)
        some[i] = values[3 - dims + i] > least ? values[3 - dims + i] : least;
    wf_onnx_put_ints(w, name, dims, some);
}

static void put_pads(struct wf_onnx_writer *w, const struct wf_layer_attrs *a)
{
    const int dims = w->e->net->dims;
    int64_t pads[6];
    for (int i = 0; i < dims; i++) {
        pads[i] = a->pad_lo[3 - dims + i];
        pads[dims + i] = a->pad_hi[3 - dims + i];
    }
    wf_onnx_put_ints(w, "pads", 2 * dims, pads);
}

/* --- convolutions --- */

static const char *pad_before(struct wf_onnx_writer *w, const char *x)
{
    static const char *const modes[] = { "constant", "reflect", "wrap", "edge" };
    const struct wf_layer_attrs *const a = &w->layer->a;
    const int dims = w->e->net->dims;
    int64_t pads[10] = { 0 };
    for (int i = 0; i < dims; i++) {
        pads[2 + i] = a->pad_lo[3 - dims + i];
        pads[4 + dims + i] = a->pad_hi[3 - dims + i];
    }
    const char *const y = wf_onnx_emit(
        w, "Pad", NULL, 2, (const char *[]){ x, wf_onnx_int_list(w, 2 * (2 + dims), pads) });
    wf_onnx_put_text(w, "mode", modes[a->pad_mode]);
    return y;
}

static const char *conv(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const struct wf_layer_attrs *const a = &w->layer->a;
    const char *x = wf_onnx_input(w, 0);
    const bool pads_before = a->pad_mode != WF_PAD_ZERO;
    if (pads_before)
        x = pad_before(w, x);
    const char *in[] = { x, wf_onnx_put_weight(w, "weight"),
                         a->bias ? wf_onnx_put_weight(w, "bias") : NULL };
    const char *const y = wf_onnx_emit(w, "Conv", out, a->bias ? 3 : 2, in);
    put_axes(w, "kernel_shape", a->kernel, 1);
    put_axes(w, "strides", a->stride, 1);
    put_axes(w, "dilations", a->dilation, 1);
    static const struct wf_layer_attrs no_pads;
    put_pads(w, pads_before ? &no_pads : a);
    wf_onnx_put_int(w, "group", a->groups ? a->groups : 1);
    return y;
}

/* With `like` all that a stride could add is made, and what is too much is cut off at the end. */
static const char *conv_transpose(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const struct wf_layer_attrs *const a = &w->layer->a;
    const bool like = w->layer->like != WF_LAYER_NONE;
    const char *in[] = { wf_onnx_input(w, 0), wf_onnx_put_weight(w, "weight"),
                         a->bias ? wf_onnx_put_weight(w, "bias") : NULL };
    const char *const y = wf_onnx_emit(w, "ConvTranspose", like ? NULL : out, a->bias ? 3 : 2, in);
    put_axes(w, "kernel_shape", a->kernel, 1);
    put_axes(w, "strides", a->stride, 1);
    put_axes(w, "dilations", a->dilation, 1);
    put_pads(w, a);
    int64_t more[3];
    for (int i = 0; i < 3; i++)
        more[i] = like && a->stride[i] > 1 ? a->stride[i] - 1 : a->output_pad[i];
    put_axes(w, "output_padding", more, 0);
    wf_onnx_put_int(w, "group", a->groups ? a->groups : 1);
    if (!like)
        return y;
    const int dims = w->e->net->dims;
    const char *const to = wf_onnx_extents_of(w, wf_onnx_image_of(w, w->layer->like));
    const char *cut[] = { y, wf_onnx_int_list(w, dims, (int64_t[]){ 0, 0, 0 }), to,
                          wf_onnx_int_list(w, dims, (int64_t[]){ 2, 3, 4 }) };
    return wf_onnx_emit(w, "Slice", out, 4, cut);
}

static const char *linear(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const bool flat = w->vector[1 + w->layer->in[0]];
    const char *x = w->names[1 + w->layer->in[0]];
    if (!flat)
        x = wf_onnx_emit(w, "Flatten", NULL, 1, &x);
    const bool bias = w->layer->a.bias;
    const char *in[] = { x, wf_onnx_put_weight(w, "weight"),
                         bias ? wf_onnx_put_weight(w, "bias") : NULL };
    const char *const y = wf_onnx_emit(w, "Gemm", out, bias ? 3 : 2, in);
    wf_onnx_put_int(w, "transB", 1);
    *vector = true;
    return y;
}

/* --- normalisations --- */

/* The activation of a norm behind it. */
static const char *with_act(struct wf_onnx_writer *w, const char *y, const char *out)
{
    const int64_t act = w->layer->a.act;
    return act == WF_ACT_NONE ? y : wf_onnx_write_act(w, wf_act_names[act], y, out);
}

static const char *norm_out(const struct wf_onnx_writer *w, const char *out)
{
    return w->layer->a.act == WF_ACT_NONE ? out : NULL;
}

static double eps_of(const struct wf_onnx_writer *w)
{
    return w->layer->a.eps > 0 ? w->layer->a.eps : 1e-5;
}

static const char *batch_norm(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const bool plain = w->layer->a.plain;
    const int64_t c = wf_onnx_channels(w);
    *vector = w->vector[1 + w->layer->in[0]];
    const char *in[] = { w->names[1 + w->layer->in[0]],
                         plain ? wf_onnx_fill(w, c, 1) : wf_onnx_put_weight(w, "weight"),
                         plain ? wf_onnx_fill(w, c, 0) : wf_onnx_put_weight(w, "bias"),
                         wf_onnx_put_weight(w, "running_mean"),
                         wf_onnx_put_weight(w, "running_var") };
    const char *const y = wf_onnx_emit(w, "BatchNormalization", norm_out(w, out), 5, in);
    wf_onnx_put_real(w, "epsilon", eps_of(w));
    wf_onnx_put_real(w, "momentum", 1 - (w->layer->a.momentum > 0 ? w->layer->a.momentum : 0.1));
    return with_act(w, y, out);
}

static const char *instance_norm(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const bool plain = w->layer->a.plain;
    const int64_t c = wf_onnx_channels(w);
    const char *in[] = { wf_onnx_input(w, 0),
                         plain ? wf_onnx_fill(w, c, 1) : wf_onnx_put_weight(w, "weight"),
                         plain ? wf_onnx_fill(w, c, 0) : wf_onnx_put_weight(w, "bias") };
    const char *const y = wf_onnx_emit(w, "InstanceNormalization", norm_out(w, out), 3, in);
    wf_onnx_put_real(w, "epsilon", eps_of(w));
    return with_act(w, y, out);
}

/* GroupNormalization of operator set 18 has weights per group, ours are per channel: an instance norm of groups. */
static const char *group_norm(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    (void)vector;
    const int64_t groups = w->layer->a.groups;
    const char *const x = wf_onnx_input(w, 0);
    const char *const grouped =
        wf_onnx_emit(w, "Reshape", NULL, 2,
                     (const char *[]){ x, wf_onnx_int_list(w, 3, (int64_t[]){ 0, groups, -1 }) });
    const char *const normal = wf_onnx_emit(
        w, "InstanceNormalization", NULL, 3,
        (const char *[]){ grouped, wf_onnx_fill(w, groups, 1), wf_onnx_fill(w, groups, 0) });
    wf_onnx_put_real(w, "epsilon", eps_of(w));
    const bool plain = w->layer->a.plain;
    const char *const shape = wf_onnx_emit(w, "Shape", NULL, 1, &x);
    const char *y = wf_onnx_emit(w, "Reshape", plain ? norm_out(w, out) : NULL, 2,
                                 (const char *[]){ normal, shape });
    if (!plain) {
        y = wf_onnx_emit(w, "Mul", NULL, 2,
                         (const char *[]){ y, wf_onnx_put_channels(w, "weight") });
        y = wf_onnx_emit(w, "Add", norm_out(w, out), 2,
                         (const char *[]){ y, wf_onnx_put_channels(w, "bias") });
    }
    return with_act(w, y, out);
}

/* Over the last axis, so the channels go there and back. */
static const char *layer_norm(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    const int rank = 2 + w->e->net->dims;
    *vector = w->vector[1 + w->layer->in[0]];
    int64_t there[5] = { 0 }, back[5] = { 0, rank - 1 };
    for (int i = 1; i < rank; i++) {
        there[i] = i + 1 < rank ? i + 1 : 1;
        if (i > 1)
            back[i] = i - 1;
    }
    const char *x = w->names[1 + w->layer->in[0]];
    if (!*vector) {
        x = wf_onnx_emit(w, "Transpose", NULL, 1, &x);
        wf_onnx_put_ints(w, "perm", rank, there);
    }
    const bool plain = w->layer->a.plain;
    const int64_t c = wf_onnx_channels(w);
    const char *in[] = { x, plain ? wf_onnx_fill(w, c, 1) : wf_onnx_put_weight(w, "weight"),
                         plain ? wf_onnx_fill(w, c, 0) : wf_onnx_put_weight(w, "bias") };
    const char *y = wf_onnx_emit(w, "LayerNormalization", *vector ? norm_out(w, out) : NULL, 3, in);
    wf_onnx_put_int(w, "axis", -1);
    wf_onnx_put_real(w, "epsilon", eps_of(w));
    if (!*vector) {
        y = wf_onnx_emit(w, "Transpose", norm_out(w, out), 1, &y);
        wf_onnx_put_ints(w, "perm", rank, back);
    }
    return with_act(w, y, out);
}

/* --- weights per channel --- */

static const char *prelu(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    *vector = w->vector[1 + w->layer->in[0]];
    return wf_onnx_emit(
        w, "PRelu", out, 2,
        (const char *[]){ w->names[1 + w->layer->in[0]], wf_onnx_put_channels(w, "weight") });
}

static const char *channel_scale(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    *vector = w->vector[1 + w->layer->in[0]];
    return wf_onnx_emit(
        w, "Mul", out, 2,
        (const char *[]){ w->names[1 + w->layer->in[0]], wf_onnx_put_channels(w, "weight") });
}

static const char *channel_shift(struct wf_onnx_writer *w, const char *out, bool *vector)
{
    *vector = w->vector[1 + w->layer->in[0]];
    return wf_onnx_emit(
        w, "Add", out, 2,
        (const char *[]){ w->names[1 + w->layer->in[0]], wf_onnx_put_channels(w, "bias") });
}

const struct wf_onnx_write_row wf_onnx_writes_weights[] = {
    { "conv", conv },
    { "conv_transpose", conv_transpose },
    { "linear", linear },
    { "batch_norm", batch_norm },
    { "instance_norm", instance_norm },
    { "group_norm", group_norm },
    { "layer_norm", layer_norm },
    { "prelu", prelu },
    { "channel_scale", channel_scale },
    { "channel_shift", channel_shift },
    { .kind = NULL },
};
