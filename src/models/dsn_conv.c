/*
 * A domain separation network for whole images of any size: codes are maps. The shared encoder's levels also
 * serve the segmentation head, as a U-Net's do; the decoder sees the sum of the two codes alone, so that what it
 * rebuilds has to be in them.
 */
#include <inttypes.h>

#include "models/separation.h"

enum { LEVELS = 16 };

/* One use of a part of the network: `domain` keeps running statistics of its own. */
struct part {
    const struct wf_model_config *config;
    const char *name;
    int domain;
};

static const char *named(struct wf_graph *g, const struct part *p, const char *what, int64_t level)
{
    return wf_arena_printf(&g->arena, "%s.%s%" PRId64, p->name, what, level);
}

static struct wf_value *block(struct wf_graph *g, const struct part *p, struct wf_value *x,
                              const char *what, int64_t level, int64_t out)
{
    const struct wf_model_config *const c = p->config;
    const char *const name = named(g, p, what, level);
    const enum wf_separation_norm kind = wf_separation(c)->norm;
    if (kind == WF_SEPARATION_NONE)
        return wf_separation_conv(g, x, name, out, 3, c->dims);
    struct wf_conv conv = { .name = name, .out = out, .same = true, .dims = c->dims };
    wf_block_extents(c->dims, 3, conv.kernel);
    const struct wf_norm norm = { .name = wf_arena_printf(&g->arena, "%s.norm", name),
                                  .act = WF_RELU,
                                  .domain = p->domain };
    x = wf_conv(g, x, &conv);
    return kind == WF_SEPARATION_BATCH ? wf_batch_norm(g, x, &norm) : wf_instance_norm(g, x, &norm);
}

static struct wf_value *encode(struct wf_graph *g, const struct part *p, struct wf_value *image,
                               struct wf_value *levels[LEVELS])
{
    const struct wf_model_config *const c = p->config;
    const int64_t code = wf_separation(c)->code;
    struct wf_value *x = wf_block_image(g, c, image);
    for (int64_t i = 0; i <= c->depth; i++) {
        if (i > 0)
            x = wf_block_pool(g, x, named(g, p, "pool", i), c->dims);
        const int64_t out = i == c->depth && code ? code : c->base << i;
        levels[i] = x = block(g, p, x, "level", i, out);
    }
    return x;
}

/* Back to full size: at each level up to the extents of the shared encoder's, with it or without. */
static struct wf_value *grow(struct wf_graph *g, const struct part *p, struct wf_value *x,
                             struct wf_value *const levels[LEVELS], bool with_skips)
{
    const struct wf_model_config *const c = p->config;
    for (int64_t i = c->depth - 1; i >= 0 && x && levels[i]; i--) {
        int64_t size[3];
        for (int a = 0; a < 3; a++)
            size[a] = levels[i]->shape.at[WF_D + a];
        x = wf_upsample(g, x, named(g, p, "resize", i), size, WF_NEAREST);
        if (with_skips)
            x = wf_concat(g, named(g, p, "concat", i), 2, (struct wf_value *[]){ levels[i], x });
        x = block(g, p, x, "up", i, c->base << i);
    }
    return x;
}

static struct wf_value *predict(struct wf_graph *g, const struct wf_model_config *c, int domain,
                                struct wf_value *code, struct wf_value *const levels[LEVELS])
{
    if (wf_separation(c)->head == WF_HEAD_SEGMENTS) {
        const struct part p = { c, "segments", domain };
        return wf_block_logits(g, grow(g, &p, code, levels, true), "segments.out", c->classes);
    }
    struct wf_value *const x = wf_global_pool(g, code, "classifier.pool");
    return wf_linear(g, wf_separation_linear(g, x, "classifier.fc1", 100), "classifier.fc2",
                     c->classes, true);
}

/* The image from a code, at the extents of the shared encoder's levels. */
static struct wf_value *decode(struct wf_graph *g, const struct wf_model_config *c, int domain,
                               struct wf_value *code, struct wf_value *const levels[LEVELS])
{
    const struct part decoder = { c, "decoder", domain + 1 };
    struct wf_value *const x = grow(g, &decoder, code, levels, false);
    struct wf_conv last = {
        .name = "decoder.out", .out = c->in, .same = true, .bias = true, .dims = c->dims
    };
    wf_block_extents(c->dims, 3, last.kernel);
    return wf_conv(g, x, &last);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    struct wf_value *levels[LEVELS + 1];
    const int domain = (int)wf_separation(c)->domain;
    const struct part shared = { c, "shared", domain + 1 };
    g->domain = wf_domain_label(domain, WF_ROLE_SHARED);
    x = encode(g, &shared, x, levels);
    g->domain = wf_domain_label(0, WF_ROLE_LOSSES);
    return wf_separation_hand_over(g, c, predict(g, c, 1, x, levels));
}

static void build_domain(struct wf_graph *g, const struct wf_model_config *c, int domain,
                         struct wf_value *image, struct wf_domain_parts *parts,
                         struct wf_value **logits)
{
    struct wf_value *levels[LEVELS + 1], *unused[LEVELS + 1];
    const struct part shared = { c, "shared", domain + 1 };
    const struct part own = { c, wf_arena_printf(&g->arena, "private%d", domain), 0 };
    g->domain = wf_domain_label(domain, WF_ROLE_SHARED);
    parts->shared = encode(g, &shared, image, levels);
    g->domain = wf_domain_label(domain, WF_ROLE_PRIVATE);
    parts->own = encode(g, &own, image, unused);
    g->domain = wf_domain_label(domain, WF_ROLE_LOSSES);
    parts->rebuilt = decode(g, c, domain, wf_add(g, parts->shared, parts->own), levels);
    if (parts->apart) {
        parts->from_shared = decode(g, c, domain, parts->shared, levels);
        parts->from_own = decode(g, c, domain, parts->own, levels);
    }
    parts->head = wf_separation_head(g, c, wf_global_pool(g, parts->shared, "head.pool"));
    if (domain == 0)
        *logits = predict(g, c, 1, parts->shared, levels);
    g->domain = 0;
}

static bool is_dense(const struct wf_model_config *c)
{
    return wf_separation(c)->head == WF_HEAD_SEGMENTS;
}

static bool check(const struct wf_model *m, const struct wf_model_config *c, struct wf_err *err)
{
    return (wf_separation_check(m, c, err) && c->depth <= LEVELS) ||
           wf_err_set(err, WF_ERR_USAGE, "network '%s': model.depth is at most %d", m->name,
                      LEVELS);
}

const struct wf_model wf_model_dsn_conv = {
    .name = "dsn_conv",
    .what = "domain separation network for whole images: convolutional codes, classes or segments",
    .defaults = { .dims = 2,
                  .in = 3,
                  .classes = 2,
                  .base = 16,
                  .depth = 3,
                  .own = &(const struct wf_separation){ .targets = 1 } },
    .dims_min = 1,
    .dims_max = 3,
    .is_dense = is_dense,
    .build = build,
    .domains = wf_separation_domains,
    .build_domain = build_domain,
    .set_domain = wf_separation_set_domain,
    .options = wf_separation_options,
    .own_bytes = sizeof(struct wf_separation),
    .check = check,
};
