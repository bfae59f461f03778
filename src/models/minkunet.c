/*
 * MinkUNet: a residual U-Net on points. A stem, then four times a convolution of stride 2 and residual
 * blocks; then four times a transposed convolution onto the coordinates of the same level, what the encoder
 * made there beside it, and residual blocks. Layers: stem, down0, enc0.0, ..., up0, dec0.0, ..., out.
 */
#include "models/sparse_blocks.h"

enum { LEVELS = 4 };

static const int64_t planes[2 * LEVELS] = { 32, 64, 128, 256, 256, 128, 96, 96 };

static struct wf_sparse add_blocks(struct wf_graph *g, struct wf_sparse x, const char *name,
                                   int64_t out, int count)
{
    for (int i = 0; i < count; i++)
        x = wf_sparse_residual(
            g, x,
            &(struct wf_sparse_layer){ wf_arena_printf(&g->arena, "%s.%d", name, i), out, 3, 1 });
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
    x = wf_sparse_layer(g, x, NULL, &(struct wf_sparse_layer){ "stem", width(c, 0), 5, 1 });
    for (int i = 0; i < LEVELS; i++) {
        skip[i] = x;
        const int64_t channels = width(c, i ? i - 1 : 0);
        x = wf_sparse_layer(
            g, x, NULL,
            &(struct wf_sparse_layer){ wf_arena_printf(&g->arena, "down%d", i), channels, 2, 2 });
        x = add_blocks(g, x, wf_arena_printf(&g->arena, "enc%d", i), width(c, i), blocks[i]);
    }
    for (int i = 0; i < LEVELS; i++) {
        const struct wf_sparse *const like = &skip[LEVELS - 1 - i];
        const int64_t channels = width(c, LEVELS + i);
        x = wf_sparse_layer(
            g, x, like,
            &(struct wf_sparse_layer){ wf_arena_printf(&g->arena, "up%d", i), channels, 2, 2 });
        x.features = wf_concat(g, wf_arena_printf(&g->arena, "cat%d", i), 2,
                               (struct wf_value *[]){ x.features, like->features });
        x = add_blocks(g, x, wf_arena_printf(&g->arena, "dec%d", i), channels, blocks[LEVELS + i]);
    }
    struct wf_sparse_conv out =
        wf_sparse_layer_conv(&x, &(struct wf_sparse_layer){ "out", c->classes, 1, 1 });
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
    .dims_max = 4,
    .dense = true,
    .sparse = true,
    .build = build_14,
};

const struct wf_model wf_model_minkunet18 = {
    .name = "minkunet18",
    .what = "residual U-Net on points: two blocks per level",
    .defaults = { .dims = 3, .in = 3, .classes = 2, .base = 32 },
    .dims_min = 1,
    .dims_max = 4,
    .dense = true,
    .sparse = true,
    .build = build_18,
};

const struct wf_model wf_model_minkunet34c = {
    .name = "minkunet34c",
    .what = "residual U-Net on points: 2, 3, 4, 6 and four times 2 blocks",
    .defaults = { .dims = 3, .in = 3, .classes = 2, .base = 32 },
    .dims_min = 1,
    .dims_max = 4,
    .dense = true,
    .sparse = true,
    .build = build_34c,
};
