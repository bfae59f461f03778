#include "models/talk.h"

#include <inttypes.h>

#include "ops/build.h"

static const char *const talks[] = { "coarsest", "levels", "alone", NULL }; /* enum wf_talk */
static const char *const statistics[] = { "global", "tile", "rank", NULL }; /* enum wf_statistics */

const struct wf_option wf_subdomain_options[] = {
    { "model.tiles", "subdomains along each spatial axis, for networks that work on them",
      WF_OPTION_IN(INTS, 1, 65536), .count_min = 1, .count_max = 3, .unset = "one",
      .offset = offsetof(struct wf_subdomains, tiles) },
    { "model.comm.channels", "channels that the subdomains exchange; 0: no communication network",
      WF_OPTION_IN(INT, 0, 65536), .unset = "the network's default",
      .offset = offsetof(struct wf_subdomains, channels) },
    { "model.comm.layers", "convolutions of the communication network", WF_OPTION_IN(INT, 1, 64),
      .unset = "the network's default", .offset = offsetof(struct wf_subdomains, layers) },
    { "model.comm.kernel", "kernel size of these convolutions; odd", WF_OPTION_IN(INT, 1, 99),
      .unset = "the network's default", .offset = offsetof(struct wf_subdomains, kernel) },
    { "model.comm.dropout", "dropout rate of the communication network in training",
      WF_OPTION_IN(REAL, 0, 0.99), .fallback = "0.1",
      .offset = offsetof(struct wf_subdomains, dropout) },
    { "model.comm.where",
      "the communication network runs over the coarsest level, over every level, or over "
      "each subdomain alone",
      WF_OPTION_OF(NAME, talks), .fallback = "coarsest",
      .offset = offsetof(struct wf_subdomains, talk) },
    { "model.statistics",
      "extent of batch norm's statistics in networks with subdomains: all of the batch, each "
      "subdomain, or each rank's part (the result then depends on the mesh)",
      WF_OPTION_OF(NAME, statistics), .fallback = "global",
      .offset = offsetof(struct wf_subdomains, statistics) },
    { "model.freeze", "do not train a trunk whose weights were loaded", .type = WF_OPTION_BOOL,
      .fallback = "true", .offset = offsetof(struct wf_subdomains, frozen) },
    { .key = NULL },
};

bool wf_subdomains_check(const struct wf_model *m, const struct wf_model_config *c,
                         struct wf_err *err)
{
    const struct wf_subdomains *const s = wf_subdomains(c);
    for (int i = 0; i < 3 - c->dims; i++)
        if (s->tiles[i] > 1)
            return wf_err_set(err, WF_ERR_USAGE,
                              "network '%s' has fewer dimensions than that: leave model.tiles out",
                              m->name);
    if (s->channels > 0 && s->kernel % 2 == 0)
        return wf_err_set(err, WF_ERR_USAGE,
                          "network '%s': model.comm.kernel is %" PRId64 ", it must be odd", m->name,
                          s->kernel);
    return true;
}

void wf_subdomains_tiles(const struct wf_model_config *c, int64_t tiles[3])
{
    for (int i = 0; i < 3; i++)
        tiles[i] = wf_max(wf_subdomains(c)->tiles[i], 1);
}

struct wf_value *wf_subdomains_cut(struct wf_graph *g, const struct wf_model_config *c,
                                   struct wf_value *image)
{
    int64_t tiles[3];
    wf_subdomains_tiles(c, tiles);
    return wf_tile(g, image, "tile", tiles);
}

struct wf_value *wf_subdomains_join(struct wf_graph *g, const struct wf_model_config *c,
                                    struct wf_value *x, const struct wf_value *image)
{
    int64_t tiles[3];
    wf_subdomains_tiles(c, tiles);
    return wf_untile_like(g, x, "untile", tiles, image);
}

struct wf_norm wf_talk_norm(const struct wf_model_config *c)
{
    const struct wf_subdomains *const s = wf_subdomains(c);
    int64_t t[3];
    wf_subdomains_tiles(c, t);
    return (struct wf_norm){
        .tiles = s->statistics == WF_STATISTICS_TILE ? t[0] * t[1] * t[2] : 0,
        .per_rank = s->statistics == WF_STATISTICS_RANK,
    };
}

/* Convolution with bias, batch norm, ReLU, dropout; as many channels out as in. */
static struct wf_value *convolutions(struct wf_graph *g, const struct wf_model_config *c,
                                     struct wf_value *x, const char *name)
{
    struct wf_arena *const a = &g->arena;
    const struct wf_subdomains *const s = wf_subdomains(c);
    struct wf_norm norm = { .act = WF_RELU };
    if (s->statistics == WF_STATISTICS_RANK || s->talk == WF_TALK_ALONE)
        norm = wf_talk_norm(c);
    norm.act = WF_RELU;
    for (int64_t i = 0; i < s->layers; i++) {
        struct wf_conv conv = { .name = wf_arena_printf(a, "%s%d.conv", name, (int)i),
                                .out = s->channels,
                                .same = true,
                                .bias = true };
        wf_block_extents(c->dims, s->kernel, conv.kernel);
        norm.name = wf_arena_printf(a, "%s%d.bn", name, (int)i);
        x = wf_batch_norm(g, wf_conv(g, x, &conv), &norm);
        if (s->dropout > 0)
            x = wf_dropout(g, x, wf_arena_printf(a, "%s%d.drop", name, (int)i), s->dropout);
    }
    return x;
}

static struct wf_value *part_of(struct wf_graph *g, struct wf_value *x, struct wf_region part,
                                const char *name)
{
    struct wf_value *const y = wf_slice(g, x, part);
    return y == x ? x : wf_rename(g, y, name);
}

struct wf_value *wf_talk(struct wf_graph *g, const struct wf_model_config *c, struct wf_value *x,
                         const char *name)
{
    const struct wf_subdomains *const s = wf_subdomains(c);
    const int64_t channels = s->channels;
    int64_t tiles[3];
    wf_subdomains_tiles(c, tiles);
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
    struct wf_value *y = part_of(g, x, shared, wf_arena_printf(&g->arena, "%s.shared", name));
    if (s->talk != WF_TALK_ALONE)
        y = wf_untile(g, y, wf_arena_printf(&g->arena, "%s.untile", name), tiles, NULL);
    y = convolutions(g, c, y, name);
    if (s->talk != WF_TALK_ALONE)
        y = wf_tile(g, y, wf_arena_printf(&g->arena, "%s.tile", name), tiles);
    if (own.hi[WF_C] == 0)
        return y;
    return wf_concat(
        g, wf_arena_printf(&g->arena, "%s.concat", name), 2,
        (struct wf_value *[]){ part_of(g, x, own, wf_arena_printf(&g->arena, "%s.own", name)), y });
}

struct wf_value *wf_talk_level(struct wf_graph *g, const struct wf_model_config *c,
                               struct wf_value *x, int level)
{
    if (!x || wf_subdomains(c)->talk != WF_TALK_LEVELS)
        return x;
    struct wf_subdomains own = *wf_subdomains(c);
    struct wf_model_config level_config = *c;
    own.channels = wf_min(own.channels, x->shape.at[WF_C]);
    level_config.own = &own;
    return wf_talk(g, &level_config, x, wf_arena_printf(&g->arena, "level%d.comm", level));
}
