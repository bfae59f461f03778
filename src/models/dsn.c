/*
 * The domain separation network for digits: a shared and, for each domain, a private encoder to codes of
 * 100, a decoder that rebuilds the image from their sum, a classifier and a head that tells domains apart, both
 * on the shared code. Images are as large as those it was trained on.
 */
#include "models/separation.h"

static struct wf_value *encode(struct wf_graph *g, const struct wf_model_config *c,
                               struct wf_value *x, const char *name, int64_t second)
{
    const int64_t first = c->base;
    x = wf_separation_conv(g, x, wf_arena_printf(&g->arena, "%s.conv1", name), first, 5, c->dims);
    x = wf_block_pool(g, x, wf_arena_printf(&g->arena, "%s.pool1", name), c->dims);
    x = wf_separation_conv(g, x, wf_arena_printf(&g->arena, "%s.conv2", name), second, 5, c->dims);
    x = wf_block_pool(g, x, wf_arena_printf(&g->arena, "%s.pool2", name), c->dims);
    x = wf_flatten(g, x, wf_arena_printf(&g->arena, "%s.flatten", name));
    return wf_separation_linear(g, x, wf_arena_printf(&g->arena, "%s.fc", name),
                                wf_separation(c)->code);
}

static struct wf_value *share(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    return encode(g, c, wf_block_image(g, c, x), "shared", c->base * 3 / 2);
}

static struct wf_value *classify(struct wf_graph *g, const struct wf_model_config *c,
                                 struct wf_value *code)
{
    code = wf_separation_linear(g, code, "classifier.fc1", wf_separation(c)->code);
    return wf_linear(g, code, "classifier.fc2", c->classes, true);
}

/* From vectors of 300 to maps of 10 x 10 x 3, and on to the image. */
static struct wf_value *decode(struct wf_graph *g, const struct wf_model_config *c,
                               struct wf_value *code, const struct wf_value *image)
{
    if (!image)
        return NULL;
    int64_t extent[3], size[3];
    wf_block_extents(c->dims, 10, extent);
    for (int i = 0; i < 3; i++)
        size[i] = image->shape.at[WF_D + i];
    const int64_t positions = extent[0] * extent[1] * extent[2];
    struct wf_value *x = wf_separation_linear(g, code, "decoder.fc", 3 * positions);
    x = wf_reshape(g, x, "decoder.map",
                   WF_SHAPE(image->shape.at[WF_N], extent[0], extent[1], extent[2], 3));
    x = wf_separation_conv(g, x, "decoder.conv1", 16, 3, c->dims);
    x = wf_separation_conv(g, x, "decoder.conv2", 16, 3, c->dims);
    x = wf_upsample(g, x, "decoder.resize", size, WF_NEAREST);
    x = wf_separation_conv(g, x, "decoder.conv3", 16, 3, c->dims);
    struct wf_conv last = {
        .name = "decoder.conv4", .out = c->in, .same = true, .bias = true, .dims = c->dims
    };
    wf_block_extents(c->dims, 3, last.kernel);
    return wf_conv(g, x, &last);
}

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    g->domain = wf_domain_label((int)wf_separation(c)->domain, WF_ROLE_SHARED);
    x = share(g, c, x);
    g->domain = wf_domain_label(0, WF_ROLE_LOSSES);
    return wf_separation_hand_over(g, c, classify(g, c, x));
}

static void build_domain(struct wf_graph *g, const struct wf_model_config *c, int domain,
                         struct wf_value *image, struct wf_domain_parts *parts,
                         struct wf_value **logits)
{
    g->domain = wf_domain_label(domain, WF_ROLE_SHARED);
    parts->shared = share(g, c, image);
    g->domain = wf_domain_label(domain, WF_ROLE_PRIVATE);
    parts->own = encode(g, c, wf_block_image(g, c, image),
                        wf_arena_printf(&g->arena, "private%d", domain), c->base * 2);
    g->domain = wf_domain_label(domain, WF_ROLE_LOSSES);
    parts->rebuilt = decode(g, c, wf_add(g, parts->shared, parts->own), image);
    if (parts->apart) {
        parts->from_shared = decode(g, c, parts->shared, image);
        parts->from_own = decode(g, c, parts->own, image);
    }
    parts->head = wf_separation_head(g, c, parts->shared);
    if (domain == 0)
        *logits = classify(g, c, parts->shared);
    g->domain = 0;
}

const struct wf_model wf_model_dsn = {
    .name = "dsn",
    .what =
        "domain separation network for digits: shared and private encoders, one source, N targets",
    .defaults = { .dims = 2,
                  .in = 3,
                  .classes = 10,
                  .base = 32,
                  .depth = 2,
                  .own = &(const struct wf_separation){ .targets = 1, .code = 100 } },
    .dims_min = 1,
    .dims_max = 3,
    .build = build,
    .domains = wf_separation_domains,
    .build_domain = build_domain,
    .set_domain = wf_separation_set_domain,
    .options = wf_separation_options,
    .own_bytes = sizeof(struct wf_separation),
    .check = wf_separation_check,
};
