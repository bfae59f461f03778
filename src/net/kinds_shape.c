/* Kinds of layers that pool, resample, move or join. */
#include <inttypes.h>
#include <string.h>

#include "net/net.h"
#include "ops/build.h"

/* --- pooling --- */

static struct wf_pool pool_of(const struct wf_layer *l)
{
    struct wf_pool p = { .name = l->name, .exclude_pad = !l->a.count_pad };
    memcpy(p.kernel, l->a.kernel, sizeof p.kernel);
    memcpy(p.stride, l->a.stride, sizeof p.stride);
    memcpy(p.pad_lo, l->a.pad_lo, sizeof p.pad_lo);
    memcpy(p.pad_hi, l->a.pad_hi, sizeof p.pad_hi);
    return p;
}

static struct wf_value *build_max_pool(struct wf_graph *g, const struct wf_net *,
                                       const struct wf_layer *l, struct wf_value *const in[],
                                       const struct wf_value *)
{
    struct wf_pool p = pool_of(l);
    p.exclude_pad = false;
    return l->a.ceil ? wf_max_pool_ceil(g, in[0], &p) : wf_max_pool(g, in[0], &p);
}

const struct wf_layer_kind wf_layer_kind_max_pool = {
    .name = "max_pool",
    .what = "the largest of each window",
    .takes = "kernel stride pad ceil",
    .needs = "kernel",
    .build = build_max_pool,
};

static struct wf_value *build_avg_pool(struct wf_graph *g, const struct wf_net *,
                                       const struct wf_layer *l, struct wf_value *const in[],
                                       const struct wf_value *)
{
    struct wf_pool p = pool_of(l);
    bool pads = false;
    for (int i = 0; i < 3; i++)
        pads |= p.pad_lo[i] || p.pad_hi[i];
    p.exclude_pad = p.exclude_pad && (pads || l->a.ceil);
    return l->a.ceil ? wf_avg_pool_ceil(g, in[0], &p) : wf_avg_pool(g, in[0], &p);
}

const struct wf_layer_kind wf_layer_kind_avg_pool = {
    .name = "avg_pool",
    .what = "the mean of each window",
    .takes = "kernel stride pad ceil count_pad",
    .needs = "kernel",
    .build = build_avg_pool,
};

static struct wf_value *build_global_pool(struct wf_graph *g, const struct wf_net *,
                                          const struct wf_layer *l, struct wf_value *const in[],
                                          const struct wf_value *)
{
    return wf_global_pool(g, in[0], l->name);
}

const struct wf_layer_kind wf_layer_kind_global_pool = {
    .name = "global_pool",
    .what = "the mean over the whole image, a vector",
    .build = build_global_pool,
};

static struct wf_value *build_global_sum(struct wf_graph *g, const struct wf_net *,
                                         const struct wf_layer *l, struct wf_value *const in[],
                                         const struct wf_value *)
{
    return wf_global_sum(g, in[0], l->name);
}

const struct wf_layer_kind wf_layer_kind_global_sum = {
    .name = "global_sum",
    .what = "the sum over the whole image, a vector",
    .build = build_global_sum,
};

/* --- extents --- */

static struct wf_value *build_upsample(struct wf_graph *g, const struct wf_net *net,
                                       const struct wf_layer *l, struct wf_value *const in[],
                                       const struct wf_value *like)
{
    if (like)
        return wf_upsample_like(g, in[0], l->name, like, (enum wf_upsample_mode)l->a.mode);
    int64_t out[3];
    double scale[3];
    bool sizes = false, scales = false;
    for (int i = 0; i < 3; i++) {
        const bool has = i >= 3 - net->dims;
        scale[i] = has && l->a.scale[i] > 0 ? l->a.scale[i] : 1.0;
        out[i] = has && l->a.size[i] > 0 ? l->a.size[i] : in[0]->shape.at[WF_D + i];
        sizes |= has && l->a.size[i] > 0;
        scales |= has && l->a.scale[i] > 0;
    }
    if (scales && !sizes)
        return wf_upsample_by(g, in[0], l->name, scale, (enum wf_upsample_mode)l->a.mode);
    if (!sizes) {
        wf_err_set(&g->err, WF_ERR_USAGE, "to which extents? give 'like', 'scale' or 'size'");
        return NULL;
    }
    return wf_upsample(g, in[0], l->name, out, (enum wf_upsample_mode)l->a.mode);
}

const struct wf_layer_kind wf_layer_kind_upsample = {
    .name = "upsample",
    .what = "other extents, also smaller ones: `like` another layer, by `scale`, or `size`",
    .takes = "mode size scale",
    .takes_like = true,
    .build = build_upsample,
};

static struct wf_value *build_fit(struct wf_graph *g, const struct wf_net *,
                                  const struct wf_layer *l, struct wf_value *const in[],
                                  const struct wf_value *like)
{
    if (!like) {
        wf_err_set(&g->err, WF_ERR_USAGE, "'like' is missing: name the layer of these extents");
        return NULL;
    }
    return wf_fit(g, in[0], l->name, like, (enum wf_fit_align)l->a.align);
}

const struct wf_layer_kind wf_layer_kind_fit = {
    .name = "fit",
    .what = "zeros added or positions cut off, to the extents of `like`",
    .takes = "align",
    .takes_like = true,
    .build = build_fit,
};

static struct wf_value *build_pad(struct wf_graph *g, const struct wf_net *,
                                  const struct wf_layer *l, struct wf_value *const in[],
                                  const struct wf_value *)
{
    return wf_pad(g, in[0], l->name, l->a.pad_lo, l->a.pad_hi, (enum wf_pad_mode)l->a.pad_mode);
}

const struct wf_layer_kind wf_layer_kind_pad = {
    .name = "pad",
    .what = "positions added around the image; negative amounts cut off",
    .takes = "pad pad_mode",
    .needs = "pad",
    .build = build_pad,
};

/* Where along an axis of that extent? From the end where negative. */
static int64_t position(int64_t at, int64_t extent)
{
    return at < 0 ? extent + at : at;
}

static struct wf_value *build_slice(struct wf_graph *g, const struct wf_net *net,
                                    const struct wf_layer *l, struct wf_value *const in[],
                                    const struct wf_value *)
{
    const int axis = l->a.axis == WF_LAYER_CHANNELS ? WF_C : WF_D + (int)l->a.axis - 1;
    if (axis < WF_C - net->dims) {
        wf_err_set(&g->err, WF_ERR_USAGE, "a network of %d dimensions has no such axis", net->dims);
        return NULL;
    }
    const int64_t extent = in[0]->shape.at[axis];
    struct wf_region part = wf_shape_region(in[0]->shape);
    part.lo[axis] = position(l->a.from, extent);
    part.hi[axis] = l->a.to ? position(l->a.to, extent) : extent;
    struct wf_value *const y = wf_slice(g, in[0], part);
    return y == in[0] ? y : wf_rename(g, y, l->name);
}

const struct wf_layer_kind wf_layer_kind_slice = {
    .name = "slice",
    .what = "the part from `from` to before `to` along an axis",
    .takes = "axis from to",
    .build = build_slice,
};

static struct wf_value *build_flatten(struct wf_graph *g, const struct wf_net *,
                                      const struct wf_layer *l, struct wf_value *const in[],
                                      const struct wf_value *)
{
    return wf_flatten(g, in[0], l->name);
}

const struct wf_layer_kind wf_layer_kind_flatten = {
    .name = "flatten",
    .what = "image to vector, in PyTorch's order of elements",
    .build = build_flatten,
};

static struct wf_value *build_reshape(struct wf_graph *g, const struct wf_net *net,
                                      const struct wf_layer *l, struct wf_value *const in[],
                                      const struct wf_value *like)
{
    struct wf_shape shape = in[0]->shape;
    int64_t extents[3], positions = 1;
    if (!wf_layer_extents(g, l, like, extents))
        return NULL;
    for (int i = 0; i < 3; i++) {
        shape.at[WF_D + i] = extents[i];
        positions *= extents[i];
    }
    shape.at[WF_C] = l->a.out ? wf_layer_out(net, l)
                              : wf_shape_count(in[0]->shape) / in[0]->shape.at[WF_N] / positions;
    return wf_reshape(g, in[0], l->name, shape);
}

const struct wf_layer_kind wf_layer_kind_reshape = {
    .name = "reshape",
    .what =
        "to extents `size`, or `like` another layer, and `out` channels, or as many as follow, in PyTorch's order "
        "of elements",
    .takes = "out size",
    .takes_like = true,
    .build = build_reshape,
};

/* --- subdomains --- */

static struct wf_value *build_tile(struct wf_graph *g, const struct wf_net *,
                                   const struct wf_layer *l, struct wf_value *const in[],
                                   const struct wf_value *)
{
    return wf_tile(g, in[0], l->name, l->a.tiles);
}

const struct wf_layer_kind wf_layer_kind_tile = {
    .name = "tile",
    .what = "the image as a batch of subdomains",
    .takes = "tiles",
    .needs = "tiles",
    .build = build_tile,
};

static struct wf_value *build_untile(struct wf_graph *g, const struct wf_net *,
                                     const struct wf_layer *l, struct wf_value *const in[],
                                     const struct wf_value *like)
{
    return like ? wf_untile_like(g, in[0], l->name, l->a.tiles, like)
                : wf_untile(g, in[0], l->name, l->a.tiles, NULL);
}

const struct wf_layer_kind wf_layer_kind_untile = {
    .name = "untile",
    .what = "subdomains back to an image, of the extents of `like` or of all of them",
    .takes = "tiles",
    .needs = "tiles",
    .takes_like = true,
    .build = build_untile,
};

/* --- joining, and element by element --- */

static struct wf_value *build_concat(struct wf_graph *g, const struct wf_net *,
                                     const struct wf_layer *l, struct wf_value *const in[],
                                     const struct wf_value *)
{
    return wf_concat(g, l->name, l->n_in, in);
}

const struct wf_layer_kind wf_layer_kind_concat = {
    .name = "concat",
    .what = "side by side along the channels",
    .n_in = -1,
    .build = build_concat,
};

static struct wf_value *build_add(struct wf_graph *g, const struct wf_net *,
                                  const struct wf_layer *l, struct wf_value *const in[],
                                  const struct wf_value *)
{
    struct wf_value *sum = in[0];
    for (int i = 1; i < l->n_in; i++)
        sum = wf_add(g, sum, in[i]);
    return wf_rename(g, sum, l->name);
}

const struct wf_layer_kind wf_layer_kind_add = {
    .name = "add",
    .what = "the sum",
    .n_in = -2,
    .build = build_add,
};

static struct wf_value *build_multiply(struct wf_graph *g, const struct wf_net *,
                                       const struct wf_layer *l, struct wf_value *const in[],
                                       const struct wf_value *)
{
    struct wf_value *product = in[0];
    for (int i = 1; i < l->n_in; i++)
        product = wf_multiply(g, product, in[i]);
    return wf_rename(g, product, l->name);
}

const struct wf_layer_kind wf_layer_kind_multiply = {
    .name = "multiply",
    .what = "the product, element by element",
    .n_in = -2,
    .build = build_multiply,
};

static struct wf_value *build_scale(struct wf_graph *g, const struct wf_net *,
                                    const struct wf_layer *l, struct wf_value *const in[],
                                    const struct wf_value *)
{
    return wf_rename(g, wf_scale(g, in[0], l->a.factor), l->name);
}

const struct wf_layer_kind wf_layer_kind_scale = {
    .name = "scale",
    .what = "times a number",
    .takes = "factor",
    .needs = "factor",
    .build = build_scale,
};

static struct wf_value *build_reverse_gradient(struct wf_graph *g, const struct wf_net *,
                                               const struct wf_layer *l,
                                               struct wf_value *const in[], const struct wf_value *)
{
    return wf_rename(g, wf_reverse_gradient(g, in[0], l->a.factor), l->name);
}

const struct wf_layer_kind wf_layer_kind_reverse_gradient = {
    .name = "reverse_gradient",
    .what = "forward the identity, backward times -`factor`",
    .takes = "factor",
    .needs = "factor",
    .build = build_reverse_gradient,
};

static struct wf_value *build_softmax(struct wf_graph *g, const struct wf_net *,
                                      const struct wf_layer *l, struct wf_value *const in[],
                                      const struct wf_value *)
{
    return wf_softmax(g, in[0], l->name);
}

const struct wf_layer_kind wf_layer_kind_softmax = {
    .name = "softmax",
    .what = "exponentials that sum to 1 over the channels",
    .build = build_softmax,
};

static struct wf_value *build_dropout(struct wf_graph *g, const struct wf_net *,
                                      const struct wf_layer *l, struct wf_value *const in[],
                                      const struct wf_value *)
{
    return wf_dropout(g, in[0], l->name, l->a.p);
}

const struct wf_layer_kind wf_layer_kind_dropout = {
    .name = "dropout",
    .what = "zeroes elements at random, in training only",
    .takes = "p",
    .needs = "p",
    .build = build_dropout,
};
