/*
 * U-Net: a double convolution per level, halved on the way down and doubled on the way up. Levels
 * are counted from the finest: enc0 .. enc{depth}, up{depth-1} and dec{depth-1} .. up0 and dec0.
 */
#include "models/unet.h"

static struct wf_value *level(struct wf_graph *g, const struct wf_unet *u, struct wf_value *x,
                              const char *part, int64_t i)
{
    const int64_t channels = u->config->base << i;
    const struct wf_block_double block = { .name = wf_arena_printf(&g->arena, "%s%d", part, (int)i),
                                           .dims = u->config->dims,
                                           .out = { channels, channels },
                                           .norm = u->norm };
    return wf_block_double(g, x, &block);
}

struct wf_value *wf_unet_down(struct wf_graph *g, struct wf_unet *u, struct wf_value *x)
{
    const int64_t depth = u->config->depth;
    WF_BUG_ON(depth > WF_UNET_DEEPEST, "depth %d", (int)depth);
    for (int64_t i = 0; i < depth; i++) {
        u->skip[i] = level(g, u, x, "enc", i);
        x = wf_block_pool(g, u->skip[i], wf_arena_printf(&g->arena, "pool%d", (int)i),
                          u->config->dims);
    }
    return level(g, u, x, "enc", depth);
}

struct wf_value *wf_unet_up(struct wf_graph *g, struct wf_unet *u, struct wf_value *x)
{
    for (int64_t i = u->config->depth; i-- > 0;) {
        const struct wf_block_up up = { .name = wf_arena_printf(&g->arena, "up%d", (int)i),
                                        .dims = u->config->dims,
                                        .out = u->config->base << i,
                                        .bias = true };
        x = level(g, u, wf_block_up(g, x, u->skip[i], &up), "dec", i);
    }
    return wf_block_logits(g, x, "out", u->config->classes);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    struct wf_unet u = { .config = c };
    return wf_unet_up(g, &u, wf_unet_down(g, &u, wf_block_image(g, c, x)));
}

const struct wf_model wf_model_unet = {
    .name = "unet",
    .what = "U-Net: double convolution with batch norm per level, concatenated skips",
    .defaults = { .dims = 2, .in = 3, .classes = 2, .base = 64, .depth = 4 },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .build = build,
};
