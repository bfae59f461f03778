/*
 * DenseNet-121: in a block each layer reads all earlier results of the block and adds `growth`
 * channels. Layers are named as in torchvision, so that its weights fit.
 *
 * model.base is the channels of the stem (64); the growth is half of it. A layer concatenates all
 * earlier results instead of extending the last concatenation: each can then be discarded and
 * recomputed separately in the backward pass, and the kept memory grows with the layers, not their
 * square.
 */
#include "models/blocks.h"
#include "ops/build.h"

enum { BLOCKS = 4, MOST_LAYERS = 24 };
static const int layers_of[BLOCKS] = { 6, 12, 24, 16 };

struct densenet {
    struct wf_graph *g;
    const struct wf_model_config *c;
    int64_t growth;
};

static struct wf_value *norm_relu(const struct densenet *d, struct wf_value *x, const char *name)
{
    return wf_batch_norm(d->g, x, &(struct wf_norm){ .name = name, .act = WF_RELU });
}

/* Convolution without bias that keeps the extent. */
static struct wf_value *conv(const struct densenet *d, struct wf_value *x, const char *name,
                             int64_t kernel, int64_t out)
{
    struct wf_conv conv = { .name = name, .out = out, .same = true };
    wf_block_extents(d->c->dims, kernel, conv.kernel);
    return wf_conv(d->g, x, &conv);
}

/* 7 wide at stride 2, then the largest of 3 at stride 2. */
static struct wf_value *stem(const struct densenet *d, struct wf_value *x)
{
    struct wf_conv first = { .name = "features.conv0", .out = d->c->base };
    struct wf_pool pool = { .name = "features.pool0" };
    wf_block_extents(d->c->dims, 7, first.kernel);
    wf_block_extents(d->c->dims, 2, first.stride);
    wf_block_extents(d->c->dims, 3, pool.kernel);
    wf_block_extents(d->c->dims, 2, pool.stride);
    for (int i = 3 - d->c->dims; i < 3; i++) {
        first.pad_lo[i] = first.pad_hi[i] = 3;
        pool.pad_lo[i] = pool.pad_hi[i] = 1;
    }
    return wf_max_pool(d->g, norm_relu(d, wf_conv(d->g, x, &first), "features.norm0"), &pool);
}

/* Norm, 1 wide to four times the growth, norm, 3 wide to the growth. */
static struct wf_value *layer(const struct densenet *d, struct wf_value *x, const char *name)
{
    struct wf_arena *const a = &d->g->arena;
    x = norm_relu(d, x, wf_arena_printf(a, "%s.norm1", name));
    x = conv(d, x, wf_arena_printf(a, "%s.conv1", name), 1, 4 * d->growth);
    x = norm_relu(d, x, wf_arena_printf(a, "%s.norm2", name));
    return conv(d, x, wf_arena_printf(a, "%s.conv2", name), 3, d->growth);
}

static struct wf_value *block(const struct densenet *d, struct wf_value *x, int index)
{
    struct wf_value *made[MOST_LAYERS + 1] = { x };
    for (int i = 0; i < layers_of[index]; i++) {
        const char *const name =
            wf_arena_printf(&d->g->arena, "features.denseblock%d.denselayer%d", index + 1, i + 1);
        made[i + 1] = layer(d, x, name);
        x = wf_concat(d->g, wf_arena_printf(&d->g->arena, "%s.concat", name), i + 2, made);
    }
    return x;
}

/* Half the channels and half the extent. */
static struct wf_value *transition(const struct densenet *d, struct wf_value *x, int index)
{
    struct wf_arena *const a = &d->g->arena;
    const char *const name = wf_arena_printf(a, "features.transition%d", index + 1);
    struct wf_pool pool = { .name = wf_arena_printf(a, "%s.pool", name) };
    if (!x)
        return NULL;
    const int64_t out = x->shape.at[WF_C] / 2;
    wf_block_extents(d->c->dims, 2, pool.kernel);
    x = norm_relu(d, x, wf_arena_printf(a, "%s.norm", name));
    return wf_avg_pool(d->g, conv(d, x, wf_arena_printf(a, "%s.conv", name), 1, out), &pool);
}

static struct wf_value *features(struct wf_graph *g, const struct wf_model_config *c,
                                 struct wf_value *x)
{
    const struct densenet d = { g, c, (c->base + 1) / 2 };
    x = stem(&d, x);
    for (int i = 0; i < BLOCKS; i++) {
        x = block(&d, x, i);
        if (i < BLOCKS - 1)
            x = transition(&d, x, i);
    }
    return norm_relu(&d, x, "features.norm5");
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    x = features(g, c, wf_block_image(g, c, x));
    return wf_linear(g, wf_global_pool(g, x, "mean"), "classifier", c->classes, true);
}

/* Scores of the coarsest map, drawn out to the image. */
static struct wf_value *build_seg(struct wf_graph *g, const struct wf_model_config *c,
                                  struct wf_value *x)
{
    struct wf_value *const image = wf_block_image(g, c, x);
    x = wf_block_logits(g, features(g, c, image), "score", c->classes);
    return wf_upsample_like(g, x, "up", image, WF_LINEAR);
}

const struct wf_model wf_model_densenet121 = {
    .name = "densenet121",
    .what = "DenseNet-121, a classifier: blocks of 6, 12, 24, 16 layers that read all before them",
    .defaults = { .dims = 2, .in = 3, .classes = 1000, .base = 64 },
    .dims_min = 1,
    .dims_max = 3,
    .build = build,
};

const struct wf_model wf_model_densenet121_seg = {
    .name = "densenet121_seg",
    .what = "DenseNet-121 with a score per pixel: its coarsest map, drawn out linearly",
    .defaults = { .dims = 2, .in = 3, .classes = 2, .base = 64 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .build = build_seg,
};
