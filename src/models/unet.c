/*
 * U-Net: a double convolution per level, halved on the way down and doubled on the way up. Levels
 * are counted from the finest: enc0 .. enc{depth}, up{depth-1} and dec{depth-1} .. up0 and dec0.
 */
#include "models/blocks.h"

enum { DEEPEST = 16 };

static struct wf_value *level(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x, const char *part, int64_t i)
{
    const int64_t channels = c->base << i;
    const struct wf_block_double block = { .name = wf_arena_printf(&g->arena, "%s%d", part, (int)i),
                                           .dims = c->dims,
                                           .out = { channels, channels } };
    return wf_block_double(g, x, &block);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    struct wf_value *skip[DEEPEST + 1] = { NULL };
    WF_BUG_ON(c->depth > DEEPEST, "depth %d", (int)c->depth);
    x = wf_block_image(g, c, x);
    for (int64_t i = 0; i < c->depth; i++) {
        skip[i] = level(g, c, x, "enc", i);
        x = wf_block_pool(g, skip[i], wf_arena_printf(&g->arena, "pool%d", (int)i), c->dims);
    }
    x = level(g, c, x, "enc", c->depth);
    for (int64_t i = c->depth; i-- > 0;) {
        const struct wf_block_up up = { .name = wf_arena_printf(&g->arena, "up%d", (int)i),
                                        .dims = c->dims,
                                        .out = c->base << i,
                                        .bias = true };
        x = level(g, c, wf_block_up(g, x, skip[i], &up), "dec", i);
    }
    return wf_block_logits(g, x, "out", c->classes);
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
