/*
 * MinkUNet: a residual U-Net on points. A stem, then four times a convolution of stride 2 and residual
 * blocks; then four times a transposed convolution onto the coordinates of the same level, what the encoder
 * made there beside it, and residual blocks. Layers: stem, down0, enc0.0, ..., up0, dec0.0, ..., out.
 */
#include "models/blocks.h"
#include "ops/sparse.h"

enum { LEVELS = 4 };

static const int64_t planes[2 * LEVELS] = { 32, 64, 128, 256, 256, 128, 96, 96 };

struct layer {
    const char *name;
    int64_t out, kernel, stride;
};

static struct wf_sparse_conv conv_of(const struct wf_sparse *x, const struct layer *l,
                                     const char *name)
{
    struct wf_sparse_conv c = { .name = name, .out = l->out };
    for (int d = 0; d < x->dims; d++) {
        c.kernel[d] = l->kernel;
        c.stride[d] = l->stride;
    }
    return c;
}

static struct wf_value *norm(struct wf_graph *g, struct wf_value *x, const char *name,
                             enum wf_act act)
{
    return wf_batch_norm(g, x, &(struct wf_norm){ .name = name, .act = act });
}

/* NAME.conv and NAME.norm; with `like` transposed onto its coordinates. */
static struct wf_sparse add_layer(struct wf_graph *g, struct wf_sparse x,
                                  const struct wf_sparse *like, const struct layer *l)
{
    const char *const name = wf_arena_printf(&g->arena, "%s.conv", l->name);
    const struct wf_sparse_conv c = conv_of(&x, l, name);
    struct wf_sparse y =
        like ? wf_sparse_conv_transpose(g, x, *like, &c) : wf_sparse_conv(g, x, &c);
    y.features = norm(g, y.features, wf_arena_printf(&g->arena, "%s.norm", l->name), WF_RELU);
    return y;
}

static struct wf_sparse add_block(struct wf_graph *g, struct wf_sparse x, const char *name,
                                  int64_t out)
{
    const struct layer wide = { .out = out, .kernel = 3, .stride = 1 };
    const struct layer thin = { .out = out, .kernel = 1, .stride = 1 };
    struct wf_sparse y = x, skip = x;
    if (!x.features)
        return x;
    for (int i = 1; i <= 2; i++) {
        const struct wf_sparse_conv c =
            conv_of(&x, &wide, wf_arena_printf(&g->arena, "%s.conv%d", name, i));
        y = wf_sparse_conv(g, y, &c);
        y.features = norm(g, y.features, wf_arena_printf(&g->arena, "%s.norm%d", name, i),
                          i == 1 ? WF_RELU : WF_ACT_NONE);
    }
    if (x.features->shape.at[WF_C] != out) {
        const struct wf_sparse_conv c =
            conv_of(&x, &thin, wf_arena_printf(&g->arena, "%s.skip.conv", name));
        skip = wf_sparse_conv(g, x, &c);
        skip.features =
            norm(g, skip.features, wf_arena_printf(&g->arena, "%s.skip.norm", name), WF_ACT_NONE);
    }
    if (y.features && skip.features)
        y.features = wf_activation(g, wf_add(g, y.features, skip.features),
                                   wf_arena_printf(&g->arena, "%s.relu", name), WF_RELU, 0);
    return y;
}

static struct wf_sparse add_blocks(struct wf_graph *g, struct wf_sparse x, const char *name,
                                   int64_t out, int count)
{
    for (int i = 0; i < count; i++)
        x = add_block(g, x, wf_arena_printf(&g->arena, "%s.%d", name, i), out);
    return x;
}

/* Of the width that model.base gives the first level. */
static int64_t width(const struct wf_model_config *c, int level)
{
    return wf_max(1, planes[level] * c->base / planes[0]);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *features, const int blocks[2 * LEVELS])
{
    struct wf_sparse skip[LEVELS], x = wf_sparse_of(g, features, c->dims);
    x = add_layer(g, x, NULL, &(struct layer){ "stem", width(c, 0), 5, 1 });
    for (int i = 0; i < LEVELS; i++) {
        skip[i] = x;
        const int64_t channels = width(c, i ? i - 1 : 0);
        x = add_layer(g, x, NULL,
                      &(struct layer){ wf_arena_printf(&g->arena, "down%d", i), channels, 2, 2 });
        x = add_blocks(g, x, wf_arena_printf(&g->arena, "enc%d", i), width(c, i), blocks[i]);
    }
    for (int i = 0; i < LEVELS; i++) {
        const struct wf_sparse *const like = &skip[LEVELS - 1 - i];
        const int64_t channels = width(c, LEVELS + i);
        x = add_layer(g, x, like,
                      &(struct layer){ wf_arena_printf(&g->arena, "up%d", i), channels, 2, 2 });
        x.features = wf_concat(g, wf_arena_printf(&g->arena, "cat%d", i), 2,
                               (struct wf_value *[]){ x.features, like->features });
        x = add_blocks(g, x, wf_arena_printf(&g->arena, "dec%d", i), channels, blocks[LEVELS + i]);
    }
    struct wf_sparse_conv out = conv_of(&x, &(struct layer){ "", c->classes, 1, 1 }, "out");
    out.bias = true;
    return wf_sparse_conv(g, x, &out).features;
}

static struct wf_value *build_14(struct wf_graph *g, const struct wf_model_config *c,
                                 struct wf_value *x)
{
    return build(g, c, x, (const int[]){ 1, 1, 1, 1, 1, 1, 1, 1 });
}

static struct wf_value *build_18(struct wf_graph *g, const struct wf_model_config *c,
                                 struct wf_value *x)
{
    return build(g, c, x, (const int[]){ 2, 2, 2, 2, 2, 2, 2, 2 });
}

static struct wf_value *build_34c(struct wf_graph *g, const struct wf_model_config *c,
                                  struct wf_value *x)
{
    return build(g, c, x, (const int[]){ 2, 3, 4, 6, 2, 2, 2, 2 });
}

const struct wf_model wf_model_minkunet14 = {
    .name = "minkunet14",
    .what = "residual U-Net on points: one block per level",
    .defaults = { .dims = 3, .in = 3, .classes = 2, .base = 32 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .sparse = true,
    .build = build_14,
};

const struct wf_model wf_model_minkunet18 = {
    .name = "minkunet18",
    .what = "residual U-Net on points: two blocks per level",
    .defaults = { .dims = 3, .in = 3, .classes = 2, .base = 32 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .sparse = true,
    .build = build_18,
};

const struct wf_model wf_model_minkunet34c = {
    .name = "minkunet34c",
    .what = "residual U-Net on points: 2, 3, 4, 6 and four times 2 blocks",
    .defaults = { .dims = 3, .in = 3, .classes = 2, .base = 32 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .sparse = true,
    .build = build_34c,
};
