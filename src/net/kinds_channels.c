/* Kinds of layers that pool to given extents, or move channels. */
#include <inttypes.h>

#include "net/net.h"
#include "ops/build.h"

static struct wf_value *build_global_max_pool(struct wf_graph *g, const struct wf_net *,
                                              const struct wf_layer *l, struct wf_value *const in[],
                                              const struct wf_value *)
{
    return wf_global_max_pool(g, in[0], l->name);
}

const struct wf_layer_kind wf_layer_kind_global_max_pool = {
    .name = "global_max_pool",
    .what = "the largest over the whole image, a vector",
    .build = build_global_max_pool,
};

/* Of an axis that the network does not have: 1. */
static void extents(const struct wf_layer *l, int64_t size[3])
{
    for (int i = 0; i < 3; i++)
        size[i] = l->a.size[i] ? l->a.size[i] : 1;
}

static struct wf_value *build_adaptive_avg_pool(struct wf_graph *g, const struct wf_net *,
                                                const struct wf_layer *l,
                                                struct wf_value *const in[],
                                                const struct wf_value *)
{
    int64_t size[3];
    extents(l, size);
    return wf_adaptive_avg_pool(g, in[0], l->name, size);
}

const struct wf_layer_kind wf_layer_kind_adaptive_avg_pool = {
    .name = "adaptive_avg_pool",
    .what = "the means of windows that share out the image, to extents `size`",
    .takes = "size",
    .needs = "size",
    .build = build_adaptive_avg_pool,
};

static struct wf_value *build_adaptive_max_pool(struct wf_graph *g, const struct wf_net *,
                                                const struct wf_layer *l,
                                                struct wf_value *const in[],
                                                const struct wf_value *)
{
    int64_t size[3];
    extents(l, size);
    return wf_adaptive_max_pool(g, in[0], l->name, size);
}

const struct wf_layer_kind wf_layer_kind_adaptive_max_pool = {
    .name = "adaptive_max_pool",
    .what = "the largest of windows that share out the image, to extents `size`",
    .takes = "size",
    .needs = "size",
    .build = build_adaptive_max_pool,
};

static struct wf_value *build_max(struct wf_graph *g, const struct wf_net *,
                                  const struct wf_layer *l, struct wf_value *const in[],
                                  const struct wf_value *)
{
    struct wf_pool p = { .name = l->name };
    if (l->a.axis == WF_LAYER_CHANNELS)
        return wf_max_channels(g, in[0], l->name);
    const int axis = (int)l->a.axis - WF_LAYER_DEPTH;
    p.kernel[axis] = in[0]->shape.at[WF_D + axis];
    return wf_max_pool(g, in[0], &p);
}

const struct wf_layer_kind wf_layer_kind_max = {
    .name = "max",
    .what = "the largest along an axis, which becomes extent one",
    .takes = "axis",
    .build = build_max,
};

/* Along the axes of the network. */
static bool factors(struct wf_graph *g, const struct wf_net *net, const struct wf_layer *l,
                    int64_t by[3])
{
    const int64_t factor = (int64_t)l->a.factor;
    if (factor < 1 || (double)factor != l->a.factor || factor > 1 << 15)
        return wf_err_set(&g->err, WF_ERR_USAGE, "'factor' is %g: it must be a whole number from 1",
                          l->a.factor);
    for (int i = 0; i < 3; i++)
        by[i] = i < 3 - net->dims ? 1 : factor;
    return true;
}

static struct wf_value *build_pixel_shuffle(struct wf_graph *g, const struct wf_net *net,
                                            const struct wf_layer *l, struct wf_value *const in[],
                                            const struct wf_value *)
{
    int64_t by[3];
    return factors(g, net, l, by) ? wf_pixel_shuffle(g, in[0], l->name, by) : NULL;
}

const struct wf_layer_kind wf_layer_kind_pixel_shuffle = {
    .name = "pixel_shuffle",
    .what = "`factor` positions along each axis from as many channels",
    .takes = "factor",
    .needs = "factor",
    .build = build_pixel_shuffle,
};

static struct wf_value *build_pixel_unshuffle(struct wf_graph *g, const struct wf_net *net,
                                              const struct wf_layer *l, struct wf_value *const in[],
                                              const struct wf_value *)
{
    int64_t by[3];
    return factors(g, net, l, by) ? wf_pixel_unshuffle(g, in[0], l->name, by) : NULL;
}

const struct wf_layer_kind wf_layer_kind_pixel_unshuffle = {
    .name = "pixel_unshuffle",
    .what = "channels from `factor` positions along each axis",
    .takes = "factor",
    .needs = "factor",
    .build = build_pixel_unshuffle,
};

static struct wf_value *build_channel_shuffle(struct wf_graph *g, const struct wf_net *,
                                              const struct wf_layer *l, struct wf_value *const in[],
                                              const struct wf_value *)
{
    return wf_channel_shuffle(g, in[0], l->name, l->a.groups);
}

const struct wf_layer_kind wf_layer_kind_channel_shuffle = {
    .name = "channel_shuffle",
    .what = "channels of `groups` one after the other",
    .takes = "groups",
    .needs = "groups",
    .build = build_channel_shuffle,
};
