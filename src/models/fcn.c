/*
 * Fully convolutional networks: the body of VGG-16 with its fully connected layers as convolutions
 * (fc6, fc7), scores of coarse maps, and learned up-convolutions back to the image. fcn32s goes up
 * in one step of 32, fcn16s and fcn8s add the scores of finer poolings in between. Layers are named
 * as in the public PyTorch version.
 *
 * Convolutions keep the extent, poolings round up. So a coarse map always covers the finer one,
 * both begin at the same pixel, and the excess of an up-convolution is cropped at the end: the
 * input may have any size, and the output has one score per pixel.
 */
#include "models/blocks.h"
#include "ops/build.h"

enum { BLOCKS = 5 };

struct fcn {
    struct wf_graph *g;
    const struct wf_model_config *c;
};

static const char *numbered(const struct fcn *f, const char *name, int64_t a, int64_t b)
{
    return wf_arena_printf(&f->g->arena, "%s%d_%d", name, (int)a, (int)b);
}

/* Convolution with bias that keeps the extent, and ReLU. */
static struct wf_value *conv_relu(const struct fcn *f, struct wf_value *x, const char *name,
                                  int64_t kernel, int64_t out)
{
    struct wf_conv conv = { .name = name, .out = out, .same = true, .bias = true };
    wf_block_extents(f->c->dims, kernel, conv.kernel);
    return wf_activation(f->g, wf_conv(f->g, x, &conv),
                         wf_arena_printf(&f->g->arena, "%s.relu", name), WF_RELU, 0.0);
}

/* Max pooling by 2; an odd extent keeps its last pixel as a window of its own. */
static struct wf_value *pool(const struct fcn *f, struct wf_value *x, int64_t block)
{
    struct wf_pool p = { .name = wf_arena_printf(&f->g->arena, "pool%d", (int)block) };
    wf_block_extents(f->c->dims, 2, p.kernel);
    return wf_max_pool_ceil(f->g, x, &p);
}

/* Up by `factor` to the extents of `like`. */
static struct wf_value *up(const struct fcn *f, struct wf_value *x, const struct wf_value *like,
                           const char *name, int64_t factor)
{
    struct wf_conv conv = { .name = name, .out = f->c->classes };
    wf_block_extents(f->c->dims, 2 * factor, conv.kernel);
    wf_block_extents(f->c->dims, factor, conv.stride);
    for (int i = 3 - f->c->dims; i < 3; i++)
        conv.pad_lo[i] = conv.pad_hi[i] = factor / 2;
    return wf_conv_transpose_like(f->g, x, &conv, like);
}

/* The body; pooled[i] is what pooling i + 1 gives. */
static struct wf_value *body(const struct fcn *f, struct wf_value *x,
                             struct wf_value *pooled[BLOCKS])
{
    static const int64_t convs[BLOCKS] = { 2, 2, 3, 3, 3 }, width[BLOCKS] = { 1, 2, 4, 8, 8 };
    for (int64_t b = 0; b < BLOCKS; b++) {
        for (int64_t i = 0; i < convs[b]; i++)
            x = conv_relu(f, x, numbered(f, "conv", b + 1, i + 1), 3, width[b] * f->c->base);
        x = pooled[b] = pool(f, x, b + 1);
    }
    x = wf_dropout(f->g, conv_relu(f, x, "fc6", 7, 64 * f->c->base), "drop6", 0.5);
    return wf_dropout(f->g, conv_relu(f, x, "fc7", 1, 64 * f->c->base), "drop7", 0.5);
}

static struct wf_value *add_score(const struct fcn *f, struct wf_value *x, struct wf_value *from,
                                  const char *name)
{
    return wf_add(f->g, x, wf_block_logits(f->g, from, name, f->c->classes));
}

static struct wf_value *build_32s(struct wf_graph *g, const struct wf_model_config *c,
                                  struct wf_value *x)
{
    const struct fcn f = { g, c };
    struct wf_value *pooled[BLOCKS], *const image = wf_block_image(g, c, x);
    x = wf_block_logits(g, body(&f, image, pooled), "score_fr", c->classes);
    return up(&f, x, image, "upscore", 32);
}

static struct wf_value *build_16s(struct wf_graph *g, const struct wf_model_config *c,
                                  struct wf_value *x)
{
    const struct fcn f = { g, c };
    struct wf_value *pooled[BLOCKS], *const image = wf_block_image(g, c, x);
    x = wf_block_logits(g, body(&f, image, pooled), "score_fr", c->classes);
    x = add_score(&f, up(&f, x, pooled[3], "upscore2", 2), pooled[3], "score_pool4");
    return up(&f, x, image, "upscore16", 16);
}

static struct wf_value *build_8s(struct wf_graph *g, const struct wf_model_config *c,
                                 struct wf_value *x)
{
    const struct fcn f = { g, c };
    struct wf_value *pooled[BLOCKS], *const image = wf_block_image(g, c, x);
    x = wf_block_logits(g, body(&f, image, pooled), "score_fr", c->classes);
    x = add_score(&f, up(&f, x, pooled[3], "upscore2", 2), pooled[3], "score_pool4");
    x = add_score(&f, up(&f, x, pooled[2], "upscore_pool4", 2), pooled[2], "score_pool3");
    return up(&f, x, image, "upscore8", 8);
}

const struct wf_model wf_model_fcn32s = {
    .name = "fcn32s",
    .what = "fully convolutional VGG-16, up by 32 in one step",
    .defaults = { .dims = 2, .in = 3, .classes = 21, .base = 64 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .build = build_32s,
};

const struct wf_model wf_model_fcn16s = {
    .name = "fcn16s",
    .what = "fully convolutional VGG-16 with the scores of pooling 4",
    .defaults = { .dims = 2, .in = 3, .classes = 21, .base = 64 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .build = build_16s,
};

const struct wf_model wf_model_fcn8s = {
    .name = "fcn8s",
    .what = "fully convolutional VGG-16 with the scores of poolings 3 and 4",
    .defaults = { .dims = 2, .in = 3, .classes = 21, .base = 64 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .build = build_8s,
};
