/* Small classifiers: five convolutions, two poolings, the mean over the image, one linear layer. */
#include "models/blocks.h"

static struct wf_value *conv_relu(struct wf_graph *g, const struct wf_model_config *c,
                                  struct wf_value *x, int index, int64_t out)
{
    struct wf_conv conv = {
        .name = wf_arena_printf(&g->arena, "conv%d", index), .out = out, .same = true, .bias = true
    };
    wf_block_extents(c->dims, 3, conv.kernel);
    return wf_activation(g, wf_conv(g, x, &conv), wf_arena_printf(&g->arena, "relu%d", index),
                         WF_RELU, 0.0);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    x = wf_block_image(g, c, x);
    x = conv_relu(g, c, x, 0, c->base);
    x = conv_relu(g, c, x, 1, c->base);
    x = wf_block_pool(g, x, "pool0", c->dims);
    x = conv_relu(g, c, x, 2, 2 * c->base);
    x = conv_relu(g, c, x, 3, 2 * c->base);
    x = wf_block_pool(g, x, "pool1", c->dims);
    x = conv_relu(g, c, x, 4, 4 * c->base);
    return wf_linear(g, wf_global_pool(g, x, "mean"), "fc", c->classes, true);
}

const struct wf_model wf_model_cnn1d = {
    .name = "cnn1d",
    .what = "small classifier of signals: five convolutions, mean, linear",
    .defaults = { .dims = 1, .in = 3, .classes = 2, .base = 16 },
    .dims_min = 1,
    .dims_max = 1,
    .build = build,
};

const struct wf_model wf_model_cnn2d = {
    .name = "cnn2d",
    .what = "small classifier of images: five convolutions, mean, linear",
    .defaults = { .dims = 2, .in = 3, .classes = 2, .base = 16 },
    .dims_min = 2,
    .dims_max = 2,
    .build = build,
};

const struct wf_model wf_model_cnn3d = {
    .name = "cnn3d",
    .what = "small classifier of volumes: five convolutions, mean, linear",
    .defaults = { .dims = 3, .in = 3, .classes = 2, .base = 16 },
    .dims_min = 3,
    .dims_max = 3,
    .build = build,
};
