#include "models/talk.h"

#include <inttypes.h>

struct wf_norm wf_talk_norm(const struct wf_model_config *c)
{
    const int64_t *t = c->sub.tiles;
    return (struct wf_norm){
        .tiles = c->sub.statistics == WF_STATISTICS_TILE ? t[0] * t[1] * t[2] : 0,
        .per_rank = c->sub.statistics == WF_STATISTICS_RANK,
    };
}

/* Convolution with bias, batch norm, ReLU, dropout; as many channels out as in. */
static struct wf_value *convolutions(struct wf_graph *g, const struct wf_model_config *c,
                                     struct wf_value *x, const char *name)
{
    struct wf_arena *const a = &g->arena;
    struct wf_norm norm = { .act = WF_RELU };
    if (c->sub.statistics == WF_STATISTICS_RANK || c->sub.talk == WF_TALK_ALONE)
        norm = wf_talk_norm(c);
    norm.act = WF_RELU;
    for (int64_t i = 0; i < c->sub.layers; i++) {
        struct wf_conv conv = { .name = wf_arena_printf(a, "%s%d.conv", name, (int)i),
                                .out = c->sub.channels,
                                .same = true,
                                .bias = true };
        wf_block_extents(c->dims, c->sub.kernel, conv.kernel);
        norm.name = wf_arena_printf(a, "%s%d.bn", name, (int)i);
        x = wf_batch_norm(g, wf_conv(g, x, &conv), &norm);
        if (c->sub.dropout > 0)
            x = wf_dropout(g, x, wf_arena_printf(a, "%s%d.drop", name, (int)i), c->sub.dropout);
    }
    return x;
}

struct wf_value *wf_talk(struct wf_graph *g, const struct wf_model_config *c, struct wf_value *x,
                         const char *name)
{
    const int64_t channels = c->sub.channels, *tiles = c->sub.tiles;
    if (!x || channels == 0)
        return x;
    struct wf_region own = wf_shape_region(x->shape), shared = own;
    shared.lo[WF_C] = own.hi[WF_C] -= channels;
    if (own.hi[WF_C] < 0) {
        wf_err_set(&g->err, WF_ERR_USAGE,
                   "layer '%s': %" PRId64 " channels of '%s' are to be shared, and it has %" PRId64
                   ": lower model.comm.channels",
                   name, channels, x->name, x->shape.at[WF_C]);
        return NULL;
    }
    struct wf_value *y = wf_slice(g, x, shared);
    if (c->sub.talk != WF_TALK_ALONE)
        y = wf_untile(g, y, wf_arena_printf(&g->arena, "%s.untile", name), tiles, NULL);
    y = convolutions(g, c, y, name);
    if (c->sub.talk != WF_TALK_ALONE)
        y = wf_tile(g, y, wf_arena_printf(&g->arena, "%s.tile", name), tiles);
    if (own.hi[WF_C] == 0)
        return y;
    return wf_concat(g, wf_arena_printf(&g->arena, "%s.concat", name), 2,
                     (struct wf_value *[]){ wf_slice(g, x, own), y });
}

struct wf_value *wf_talk_level(struct wf_graph *g, const struct wf_model_config *c,
                               struct wf_value *x, int level)
{
    if (!x || c->sub.talk != WF_TALK_LEVELS)
        return x;
    struct wf_model_config own = *c;
    own.sub.channels = wf_min(c->sub.channels, x->shape.at[WF_C]);
    return wf_talk(g, &own, x, wf_arena_printf(&g->arena, "level%d.comm", level));
}
