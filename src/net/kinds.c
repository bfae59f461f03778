/* Kinds of layers with weights, normalisations, activations. */
#include <string.h>

#include "net/net.h"
#include "ops/activation.h"
#include "ops/build.h"

/* A layer that shares weights has the builder's name from the other; its node keeps its own. */
static struct wf_value *named(struct wf_graph *g, const struct wf_layer *l, struct wf_value *y)
{
    return l->weights ? wf_rename(g, y, l->name) : y;
}

/* --- convolutions --- */

static struct wf_conv conv_of(const struct wf_net *net, const struct wf_layer *l)
{
    struct wf_conv c = { .name = wf_layer_weights(l),
                         .out = wf_layer_out(net, l),
                         .pad_mode = (enum wf_pad_mode)l->a.pad_mode,
                         .groups = l->a.groups,
                         .bias = l->a.bias,
                         .dims = net->dims };
    memcpy(c.kernel, l->a.kernel, sizeof c.kernel);
    memcpy(c.stride, l->a.stride, sizeof c.stride);
    memcpy(c.dilation, l->a.dilation, sizeof c.dilation);
    memcpy(c.pad_lo, l->a.pad_lo, sizeof c.pad_lo);
    memcpy(c.pad_hi, l->a.pad_hi, sizeof c.pad_hi);
    memcpy(c.output_pad, l->a.output_pad, sizeof c.output_pad);
    return c;
}

static struct wf_value *build_conv(struct wf_graph *g, const struct wf_net *net,
                                   const struct wf_layer *l, struct wf_value *const in[],
                                   const struct wf_value *)
{
    const struct wf_conv c = conv_of(net, l);
    return named(g, l, wf_conv(g, in[0], &c));
}

const struct wf_layer_kind wf_layer_kind_conv = {
    .name = "conv",
    .what = "convolution",
    .takes = "out kernel stride dilation pad pad_mode groups bias",
    .needs = "out kernel",
    .weights = "weight bias",
    .build = build_conv,
};

static struct wf_value *build_conv_transpose(struct wf_graph *g, const struct wf_net *net,
                                             const struct wf_layer *l, struct wf_value *const in[],
                                             const struct wf_value *like)
{
    struct wf_conv c = conv_of(net, l);
    return named(
        g, l, like ? wf_conv_transpose_like(g, in[0], &c, like) : wf_conv_transpose(g, in[0], &c));
}

const struct wf_layer_kind wf_layer_kind_conv_transpose = {
    .name = "conv_transpose",
    .what = "transposed convolution; with `like` as much is cut off at the end as that is smaller",
    .takes = "out kernel stride dilation pad output_pad groups bias",
    .needs = "out kernel",
    .takes_like = true,
    .weights = "weight bias",
    .build = build_conv_transpose,
};

static struct wf_value *build_linear(struct wf_graph *g, const struct wf_net *net,
                                     const struct wf_layer *l, struct wf_value *const in[],
                                     const struct wf_value *)
{
    return named(g, l, wf_linear(g, in[0], wf_layer_weights(l), wf_layer_out(net, l), l->a.bias));
}

const struct wf_layer_kind wf_layer_kind_linear = {
    .name = "linear",
    .what = "product of a vector and a matrix",
    .takes = "out bias",
    .needs = "out",
    .weights = "weight bias",
    .build = build_linear,
};

/* --- normalisations --- */

static struct wf_norm norm_of(const struct wf_layer *l)
{
    const int64_t tiles[] = { l->a.tiles[0] ? l->a.tiles[0] : 1, l->a.tiles[1] ? l->a.tiles[1] : 1,
                              l->a.tiles[2] ? l->a.tiles[2] : 1 };
    return (struct wf_norm){
        .name = wf_layer_weights(l),
        .groups = l->a.groups,
        .eps = l->a.eps,
        .momentum = l->a.momentum,
        .act = (enum wf_act)l->a.act,
        .slope = l->a.slope > 0              ? l->a.slope
                 : l->a.act == WF_LEAKY_RELU ? 0.01
                                             : 0.0,
        .plain = l->a.plain,
        .frozen = l->frozen,
        .tiles = l->a.over == WF_LAYER_OVER_TILE ? tiles[0] * tiles[1] * tiles[2] : 0,
        .per_rank = l->a.over == WF_LAYER_OVER_RANK,
    };
}

static struct wf_value *build_batch_norm(struct wf_graph *g, const struct wf_net *,
                                         const struct wf_layer *l, struct wf_value *const in[],
                                         const struct wf_value *)
{
    const struct wf_norm n = norm_of(l);
    return named(g, l, wf_batch_norm(g, in[0], &n));
}

const struct wf_layer_kind wf_layer_kind_batch_norm = {
    .name = "batch_norm",
    .what = "to mean 0 and deviation 1 over batch and image; frozen: by its running statistics",
    .takes = "over tiles eps momentum plain act slope",
    .weights = "weight bias running_mean running_var",
    .build = build_batch_norm,
};

static struct wf_value *build_instance_norm(struct wf_graph *g, const struct wf_net *,
                                            const struct wf_layer *l, struct wf_value *const in[],
                                            const struct wf_value *)
{
    const struct wf_norm n = norm_of(l);
    return named(g, l, wf_instance_norm(g, in[0], &n));
}

const struct wf_layer_kind wf_layer_kind_instance_norm = {
    .name = "instance_norm",
    .what = "to mean 0 and deviation 1 over the image of each sample",
    .takes = "eps plain act slope",
    .weights = "weight bias",
    .build = build_instance_norm,
};

static struct wf_value *build_group_norm(struct wf_graph *g, const struct wf_net *,
                                         const struct wf_layer *l, struct wf_value *const in[],
                                         const struct wf_value *)
{
    const struct wf_norm n = norm_of(l);
    return named(g, l, wf_group_norm(g, in[0], &n));
}

const struct wf_layer_kind wf_layer_kind_group_norm = {
    .name = "group_norm",
    .what = "the same in groups of channels",
    .takes = "groups eps plain act slope",
    .needs = "groups",
    .weights = "weight bias",
    .build = build_group_norm,
};

static struct wf_value *build_layer_norm(struct wf_graph *g, const struct wf_net *,
                                         const struct wf_layer *l, struct wf_value *const in[],
                                         const struct wf_value *)
{
    const struct wf_norm n = norm_of(l);
    return named(g, l, wf_layer_norm(g, in[0], &n));
}

const struct wf_layer_kind wf_layer_kind_layer_norm = {
    .name = "layer_norm",
    .what = "to mean 0 and deviation 1 over the channels of each position",
    .takes = "eps plain act slope",
    .weights = "weight bias",
    .build = build_layer_norm,
};

/* --- activations, each a kind of its own --- */

struct wf_value *wf_layer_build_act(struct wf_graph *g, const struct wf_net *,
                                    const struct wf_layer *l, struct wf_value *const in[],
                                    const struct wf_value *)
{
    int act = 0;
    while (strcmp(wf_act_names[act], l->kind->name) != 0)
        act++;
    const double slope = act == WF_LEAKY_RELU && l->a.slope == 0 ? 0.01 : l->a.slope;
    return wf_activation(g, in[0], l->name, (enum wf_act)act, slope);
}

const struct wf_layer_kind wf_layer_kind_relu = {
    .name = "relu",
    .what = "the larger of x and 0",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_leaky_relu = {
    .name = "leaky_relu",
    .what = "x, below 0 times `slope`",
    .takes = "slope",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_sigmoid = {
    .name = "sigmoid",
    .what = "1 / (1 + exp(-x))",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_tanh = {
    .name = "tanh",
    .what = "the hyperbolic tangent",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_gelu = {
    .name = "gelu",
    .what = "x times the normal distribution's probability of less than x",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_silu = {
    .name = "silu",
    .what = "x * sigmoid(x)",
    .build = wf_layer_build_act,
};
