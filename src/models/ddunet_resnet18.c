/*
 * DDU-Net with the trunk of ResNet-18: its stem and first three stages, named as in torchvision so
 * that its weights fit (model.weights), on every subdomain. A double convolution on the coarsest
 * map, the communication network, and a decoder with skips from the stages at 1/8, 1/4, 1/2, 1.
 *
 * model.base is the channels of the stem (64, as torchvision's weights have). A frozen trunk
 * normalises by the running statistics that came with its weights.
 */
#include "models/talk.h"

enum { STAGES = 3, BLOCKS = 2 };

struct net {
    struct wf_graph *g;
    const struct wf_model_config *c;
    struct wf_norm norm;
};

static const char *name2(const struct net *n, const char *of, const char *part)
{
    return wf_arena_printf(&n->g->arena, "%s.%s", of, part);
}

/* Convolution without bias and batch norm. */
struct step {
    const char *conv, *bn;
    int64_t out, kernel, stride;
    enum wf_act act;
};

static struct wf_value *conv_norm(const struct net *n, struct wf_value *x, const struct step *s)
{
    struct wf_conv conv = { .name = s->conv, .out = s->out };
    wf_block_extents(n->c->dims, s->kernel, conv.kernel);
    wf_block_extents(n->c->dims, s->stride, conv.stride);
    for (int i = 0; i < 3; i++)
        conv.pad_lo[i] = conv.pad_hi[i] = conv.kernel[i] / 2;
    struct wf_norm norm = n->norm;
    norm.name = s->bn;
    norm.act = s->act;
    norm.frozen = wf_subdomains(n->c)->frozen;
    return wf_batch_norm(n->g, wf_conv(n->g, x, &conv), &norm);
}

static struct wf_value *residual(const struct net *n, struct wf_value *x, const char *name,
                                 int64_t out, int64_t stride)
{
    struct wf_value *skip = x;
    if (!x)
        return NULL;
    if (stride != 1 || x->shape.at[WF_C] != out)
        skip = conv_norm(n, x,
                         &(struct step){ name2(n, name, "downsample.0"),
                                         name2(n, name, "downsample.1"), out, 1, stride,
                                         WF_ACT_NONE });
    x = conv_norm(
        n, x,
        &(struct step){ name2(n, name, "conv1"), name2(n, name, "bn1"), out, 3, stride, WF_RELU });
    x = conv_norm(
        n, x,
        &(struct step){ name2(n, name, "conv2"), name2(n, name, "bn2"), out, 3, 1, WF_ACT_NONE });
    return wf_activation(n->g, wf_add(n->g, x, skip), name2(n, name, "relu"), WF_RELU, 0);
}

/* stage[0]: the stem at 1/2; stage[i]: layer i at 1/4, 1/8, 1/16. */
static void trunk(const struct net *n, struct wf_value *x, struct wf_value *stage[STAGES + 1])
{
    stage[0] = conv_norm(n, x, &(struct step){ "conv1", "bn1", n->c->base, 7, 2, WF_RELU });
    struct wf_pool pool = { .name = "maxpool" };
    wf_block_extents(n->c->dims, 3, pool.kernel);
    wf_block_extents(n->c->dims, 2, pool.stride);
    for (int i = 3 - n->c->dims; i < 3; i++)
        pool.pad_lo[i] = pool.pad_hi[i] = 1;
    x = wf_max_pool(n->g, stage[0], &pool);
    for (int i = 1; i <= STAGES; i++) {
        for (int b = 0; b < BLOCKS; b++)
            x = residual(n, x, wf_arena_printf(&n->g->arena, "layer%d.%d", i, b),
                         n->c->base << (i - 1), i > 1 && b == 0 ? 2 : 1);
        stage[i] = x;
    }
    if (!wf_subdomains(n->c)->frozen)
        return;
    static const char *const parts[] = { "conv1.", "bn1.", "layer1.", "layer2.", "layer3." };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        wf_graph_freeze(n->g, parts[i]);
}

static struct wf_value *twice(const struct net *n, struct wf_value *x, const char *name,
                              int64_t out)
{
    return wf_block_double(
        n->g, x,
        &(struct wf_block_double){
            .name = name, .dims = n->c->dims, .out = { out, out }, .norm = n->norm });
}

static struct wf_value *decode(const struct net *n, struct wf_value *x,
                               struct wf_value *const stage[STAGES + 1], struct wf_value *image)
{
    const int64_t base = n->c->base, up[] = { (base + 1) / 2, base, 2 * base };
    const int64_t out[] = { base, base, 2 * base };
    struct wf_arena *const a = &n->g->arena;
    for (int i = STAGES - 1; i >= 0; i--) {
        const struct wf_block_up u = { .name = wf_arena_printf(a, "up%d", i + 1),
                                       .dims = n->c->dims,
                                       .out = up[i],
                                       .bias = true };
        x = twice(n, wf_block_up(n->g, x, stage[i], &u), wf_arena_printf(a, "dec%d", i + 1),
                  out[i]);
    }
    x = wf_block_grow(
        n->g, x, image,
        &(struct wf_block_up){ .name = "up0", .dims = n->c->dims, .out = up[0], .bias = true });
    return wf_block_logits(n->g, twice(n, x, "dec0", up[0]), "out", n->c->classes);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    const struct net n = { g, c, wf_talk_norm(c) };
    struct wf_value *const image = wf_block_image(g, c, x);
    struct wf_value *stage[STAGES + 1];
    if (!image)
        return NULL;
    struct wf_value *const tiles = wf_subdomains_cut(g, c, image);
    trunk(&n, tiles, stage);
    x = wf_talk(g, c, twice(&n, stage[STAGES], "bottom", c->base << (STAGES - 1)), "comm");
    for (int i = 0; i < STAGES; i++)
        stage[i] = wf_talk_level(g, c, stage[i], i);
    return wf_subdomains_join(g, c, decode(&n, x, stage, tiles), image);
}

const struct wf_model wf_model_ddunet_resnet18 = {
    .name = "ddunet_resnet18",
    .what = "DDU-Net with the trunk of ResNet-18, frozen unless model.freeze says no",
    .defaults = { .dims = 2,
                  .in = 3,
                  .classes = 7,
                  .base = 64,
                  .own = &(const struct wf_subdomains){ .channels = 64,
                                                        .layers = 3,
                                                        .kernel = 5,
                                                        .dropout = 0.1,
                                                        .frozen = true } },
    .dims_min = 1,
    .dims_max = 3,
    .dense = true,
    .build = build,
    .options = wf_subdomain_options,
    .own_bytes = sizeof(struct wf_subdomains),
    .check = wf_subdomains_check,
    .tiles = wf_subdomains_tiles,
};
