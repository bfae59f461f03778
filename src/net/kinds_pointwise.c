/* Kinds of layers that go element by element, or over the channels of a position: further activations, weights per
 * channel, arithmetic. */
#include <math.h>

#include "net/net.h"
#include "ops/build.h"

/* --- activations, each a kind of its own --- */

const struct wf_layer_kind wf_layer_kind_relu6 = {
    .name = "relu6",
    .what = "x, at least 0 and at most 6",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_elu = {
    .name = "elu",
    .what = "x, below 0 `slope` * (exp(x) - 1)",
    .takes = "slope",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_selu = {
    .name = "selu",
    .what = "self-normalising, with its own constants",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_hard_sigmoid = {
    .name = "hard_sigmoid",
    .what = "x / 6 + 1/2, at least 0 and at most 1",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_hard_swish = {
    .name = "hard_swish",
    .what = "x * hard_sigmoid(x)",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_mish = {
    .name = "mish",
    .what = "x * tanh(softplus(x))",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_softplus = {
    .name = "softplus",
    .what = "log(1 + exp(`slope` * x)) / `slope`",
    .takes = "slope",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_gelu_tanh = {
    .name = "gelu_tanh",
    .what = "gelu by PyTorch's approximation with tanh",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_softsign = {
    .name = "softsign",
    .what = "x / (1 + |x|)",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_log_sigmoid = {
    .name = "log_sigmoid",
    .what = "the logarithm of sigmoid(x)",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_abs = {
    .name = "abs",
    .what = "the absolute value",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_exp = {
    .name = "exp",
    .what = "the exponential",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_log = {
    .name = "log",
    .what = "the natural logarithm",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_sqrt = {
    .name = "sqrt",
    .what = "the square root",
    .build = wf_layer_build_act,
};

const struct wf_layer_kind wf_layer_kind_reciprocal = {
    .name = "reciprocal",
    .what = "1 / x",
    .build = wf_layer_build_act,
};

static struct wf_value *build_clip(struct wf_graph *g, const struct wf_net *,
                                   const struct wf_layer *l, struct wf_value *const in[],
                                   const struct wf_value *)
{
    return wf_clip(g, in[0], l->name, l->a.lo, l->a.hi);
}

const struct wf_layer_kind wf_layer_kind_clip = {
    .name = "clip",
    .what = "x, at least `lo` and at most `hi`",
    .takes = "lo hi",
    .needs = "lo hi",
    .build = build_clip,
};

/* --- weights per channel --- */

static struct wf_value *build_prelu(struct wf_graph *g, const struct wf_net *,
                                    const struct wf_layer *l, struct wf_value *const in[],
                                    const struct wf_value *)
{
    return wf_rename(g, wf_prelu(g, in[0], wf_layer_weights(l), !l->a.shared), l->name);
}

const struct wf_layer_kind wf_layer_kind_prelu = {
    .name = "prelu",
    .what = "x, below 0 times a weight: one for each channel, or with `shared` one for all",
    .takes = "shared",
    .weights = "weight",
    .build = build_prelu,
};

static struct wf_value *build_channel_scale(struct wf_graph *g, const struct wf_net *,
                                            const struct wf_layer *l, struct wf_value *const in[],
                                            const struct wf_value *)
{
    const double initial = l->a.factor != 0 ? l->a.factor : 1.0;
    struct wf_value *const y = l->a.shared
                                   ? wf_shared_scale(g, in[0], wf_layer_weights(l), initial)
                                   : wf_channel_scale(g, in[0], wf_layer_weights(l), initial);
    return wf_rename(g, y, l->name);
}

const struct wf_layer_kind wf_layer_kind_channel_scale = {
    .name = "channel_scale",
    .what =
        "times a weight for each channel, or with `shared` one for all, which begins with `factor`; default 1",
    .takes = "factor shared",
    .weights = "weight",
    .build = build_channel_scale,
};

static struct wf_value *build_channel_shift(struct wf_graph *g, const struct wf_net *,
                                            const struct wf_layer *l, struct wf_value *const in[],
                                            const struct wf_value *)
{
    struct wf_value *const y = l->a.shared ? wf_shared_shift(g, in[0], wf_layer_weights(l))
                                           : wf_channel_shift(g, in[0], wf_layer_weights(l));
    return wf_rename(g, y, l->name);
}

const struct wf_layer_kind wf_layer_kind_channel_shift = {
    .name = "channel_shift",
    .what = "plus a weight for each channel, or with `shared` one for all",
    .takes = "shared",
    .weights = "bias",
    .build = build_channel_shift,
};

/* --- arithmetic --- */

static struct wf_value *build_subtract(struct wf_graph *g, const struct wf_net *,
                                       const struct wf_layer *l, struct wf_value *const in[],
                                       const struct wf_value *)
{
    return wf_rename(g, wf_subtract(g, in[0], in[1]), l->name);
}

const struct wf_layer_kind wf_layer_kind_subtract = {
    .name = "subtract",
    .what = "the first less the second; broadcast as `add`",
    .n_in = 2,
    .build = build_subtract,
};

static struct wf_value *build_shift(struct wf_graph *g, const struct wf_net *,
                                    const struct wf_layer *l, struct wf_value *const in[],
                                    const struct wf_value *)
{
    return wf_rename(g, wf_shift(g, in[0], l->a.offset), l->name);
}

const struct wf_layer_kind wf_layer_kind_shift = {
    .name = "shift",
    .what = "plus a number",
    .takes = "offset",
    .needs = "offset",
    .build = build_shift,
};

static struct wf_value *build_mean(struct wf_graph *g, const struct wf_net *,
                                   const struct wf_layer *l, struct wf_value *const in[],
                                   const struct wf_value *)
{
    static const unsigned axes[] = { WF_OVER_CHANNELS, WF_OVER_DEPTH, WF_OVER_HEIGHT,
                                     WF_OVER_WIDTH };
    return wf_mean(g, in[0], l->name, axes[l->a.axis]);
}

const struct wf_layer_kind wf_layer_kind_mean = {
    .name = "mean",
    .what = "the mean along an axis, which becomes extent one",
    .takes = "axis",
    .build = build_mean,
};

static struct wf_value *build_dropout_channels(struct wf_graph *g, const struct wf_net *,
                                               const struct wf_layer *l,
                                               struct wf_value *const in[], const struct wf_value *)
{
    return wf_dropout_channels(g, in[0], l->name, l->a.p);
}

const struct wf_layer_kind wf_layer_kind_dropout_channels = {
    .name = "dropout_channels",
    .what = "zeroes whole channels of a sample at random, in training only",
    .takes = "p",
    .needs = "p",
    .build = build_dropout_channels,
};

static struct wf_value *build_dropout_samples(struct wf_graph *g, const struct wf_net *,
                                              const struct wf_layer *l, struct wf_value *const in[],
                                              const struct wf_value *)
{
    return wf_dropout_samples(g, in[0], l->name, l->a.p);
}

const struct wf_layer_kind wf_layer_kind_dropout_samples = {
    .name = "dropout_samples",
    .what = "zeroes whole samples at random, in training only: stochastic depth",
    .takes = "p",
    .needs = "p",
    .build = build_dropout_samples,
};

static struct wf_value *build_pad_channels(struct wf_graph *g, const struct wf_net *,
                                           const struct wf_layer *l, struct wf_value *const in[],
                                           const struct wf_value *)
{
    return wf_pad_channels(g, in[0], l->name, l->a.from, l->a.to);
}

const struct wf_layer_kind wf_layer_kind_pad_channels = {
    .name = "pad_channels",
    .what = "channels of zeros, `from` before and `to` behind",
    .takes = "from to",
    .build = build_pad_channels,
};
