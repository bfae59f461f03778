/*
 * The original 3D U-Net: channels double inside a level before the pooling (32, 64, then 64, 128,
 * ...), the up-convolution keeps its channels and has no bias. Convolutions keep the extent here,
 * so that any size goes in.
 */
#include "models/blocks.h"

enum { DEEPEST = 16 };

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    struct wf_value *skip[DEEPEST + 1] = { NULL };
    WF_BUG_ON(c->depth > DEEPEST, "depth %d", (int)c->depth);
    x = wf_block_image(g, c, x);
    for (int64_t i = 0; i <= c->depth; i++) {
        const struct wf_block_double block = {
            .name = wf_arena_printf(&g->arena, "enc%d", (int)i),
            .dims = c->dims,
            .out = { c->base << i, c->base << (i + 1) },
            .bias = true,
        };
        x = wf_block_double(g, x, &block);
        if (i == c->depth)
            break;
        skip[i] = x;
        x = wf_block_pool(g, x, wf_arena_printf(&g->arena, "pool%d", (int)i), c->dims);
    }
    for (int64_t i = c->depth; i-- > 0;) {
        const struct wf_block_up up = { .name = wf_arena_printf(&g->arena, "up%d", (int)i),
                                        .dims = c->dims,
                                        .out = c->base << (i + 2) };
        const struct wf_block_double block = {
            .name = wf_arena_printf(&g->arena, "dec%d", (int)i),
            .dims = c->dims,
            .out = { c->base << (i + 1), c->base << (i + 1) },
            .bias = true,
        };
        x = wf_block_double(g, wf_block_up(g, x, skip[i], &up), &block);
    }
    return wf_block_logits(g, x, "out", c->classes);
}

const struct wf_model wf_model_unet3d = {
    .name = "unet3d",
    .what = "the original 3D U-Net; 19,069,955 parameters beside those of batch norm (3 -> 3)",
    .defaults = { .dims = 3, .in = 3, .classes = 3, .base = 32, .depth = 3 },
    .dims_min = 3,
    .dims_max = 3,
    .dense = true,
    .counts_no_norm = true,
    .build = build,
};
