/*
 * AlexNet as torchvision has it, and the small one that is usual for CIFAR-10: the same five
 * convolutions with narrower steps and one linear layer. Layers are numbered as in the public
 * PyTorch versions, so that their weights fit.
 *
 * model.base is the channels of the first convolution (64); the others follow from it.
 */
#include "models/blocks.h"

enum { CONVS = 5, POOLED = 6 /* extent of the map in front of alexnet's linear layers */ };

struct layer {
    int number; /* in `features` */
    int64_t width, kernel, stride, pad;
    bool pooled; /* max pooling behind it */
};

/* Max pooling of `kernel` at stride 2. */
static struct wf_value *pool(struct wf_graph *g, const struct wf_model_config *c,
                             struct wf_value *x, int number, int64_t kernel)
{
    struct wf_pool p = { .name = wf_arena_printf(&g->arena, "features.%d", number) };
    wf_block_extents(c->dims, kernel, p.kernel);
    wf_block_extents(c->dims, 2, p.stride);
    return wf_max_pool(g, x, &p);
}

static struct wf_value *features(struct wf_graph *g, const struct wf_model_config *c,
                                 struct wf_value *x, const struct layer layers[CONVS],
                                 int64_t pool_kernel)
{
    for (const struct layer *l = layers; l < layers + CONVS; l++) {
        struct wf_conv conv = { .name = wf_arena_printf(&g->arena, "features.%d", l->number),
                                .out = l->width * c->base,
                                .bias = true };
        wf_block_extents(c->dims, l->kernel, conv.kernel);
        wf_block_extents(c->dims, l->stride, conv.stride);
        for (int i = 3 - c->dims; i < 3; i++)
            conv.pad_lo[i] = conv.pad_hi[i] = l->pad;
        x = wf_activation(g, wf_conv(g, x, &conv),
                          wf_arena_printf(&g->arena, "features.%d", l->number + 1), WF_RELU, 0.0);
        if (l->pooled)
            x = pool(g, c, x, l->number + 2, pool_kernel);
    }
    return x;
}

/* Dropout in front, ReLU behind. */
static struct wf_value *hidden(struct wf_graph *g, const struct wf_model_config *c,
                               struct wf_value *x, int number)
{
    struct wf_arena *const a = &g->arena;
    x = wf_dropout(g, x, wf_arena_printf(a, "classifier.%d", number - 1), 0.5);
    x = wf_linear(g, x, wf_arena_printf(a, "classifier.%d", number), 64 * c->base, true);
    return wf_activation(g, x, wf_arena_printf(a, "classifier.%d", number + 1), WF_RELU, 0.0);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    static const struct layer layers[CONVS] = {
        { 0, 1, 11, 4, 2, true }, { 3, 3, 5, 1, 2, true },  { 6, 6, 3, 1, 1, false },
        { 8, 4, 3, 1, 1, false }, { 10, 4, 3, 1, 1, true },
    };
    x = features(g, c, wf_block_image(g, c, x), layers, 3);
    x = wf_adaptive_avg_pool(g, x, "avgpool", (const int64_t[]){ 1, POOLED, POOLED });
    x = wf_flatten(g, x, "flatten");
    x = hidden(g, c, hidden(g, c, x, 1), 4);
    return wf_linear(g, x, "classifier.6", c->classes, true);
}

/* At 32 x 32 the last map has one place, which the mean leaves as it is; it lets larger images in. */
static struct wf_value *build_cifar(struct wf_graph *g, const struct wf_model_config *c,
                                    struct wf_value *x)
{
    static const struct layer layers[CONVS] = {
        { 0, 1, 11, 4, 5, true }, { 3, 3, 5, 1, 2, true },  { 6, 6, 3, 1, 1, false },
        { 8, 4, 3, 1, 1, false }, { 10, 4, 3, 1, 1, true },
    };
    x = features(g, c, wf_block_image(g, c, x), layers, 2);
    return wf_linear(g, wf_global_pool(g, x, "mean"), "classifier", c->classes, true);
}

const struct wf_model wf_model_alexnet = {
    .name = "alexnet",
    .what = "AlexNet, a classifier: five convolutions, three linear layers with dropout",
    .defaults = { .dims = 2, .in = 3, .classes = 1000, .base = 64 },
    .dims_min = 2,
    .dims_max = 2,
    .build = build,
};

const struct wf_model wf_model_alexnet_cifar = {
    .name = "alexnet_cifar",
    .what = "AlexNet for images of 32 x 32: five convolutions, one linear layer",
    .defaults = { .dims = 2, .in = 3, .classes = 10, .base = 64 },
    .dims_min = 2,
    .dims_max = 2,
    .build = build_cifar,
};
