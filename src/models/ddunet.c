/*
 * DDU-Net: a U-Net on the subdomains of an image, each for itself but for one thing: on the coarsest
 * level some channels of all subdomains are laid side by side and pass through a small convolutional
 * network, so that a subdomain learns what it needs to know of the others. Skips stay with their
 * subdomain (model.comm.where=levels lets them talk too). The logits are those of the whole image.
 */
#include "models/talk.h"
#include "models/unet.h"

static struct wf_value *build(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x)
{
    struct wf_value *const image = wf_block_image(g, c, x);
    if (!image)
        return NULL;
    struct wf_unet u = { .config = c, .norm = wf_talk_norm(c) };
    x = wf_unet_down(g, &u, wf_subdomains_cut(g, c, image));
    x = wf_talk(g, c, x, "comm");
    for (int64_t i = 0; i < c->depth; i++)
        u.skip[i] = wf_talk_level(g, c, u.skip[i], (int)i);
    x = wf_unet_up(g, &u, x);
    return wf_subdomains_join(g, c, x, image);
}

const struct wf_model wf_model_ddunet = {
    .name = "ddunet",
    .what = "DDU-Net: a U-Net on subdomains that talk through a network on their coarsest maps",
    .defaults = { .dims = 2,
                  .in = 3,
                  .classes = 2,
                  .base = 64,
                  .depth = 4,
                  .own = &(const struct wf_subdomains){ .channels = 8,
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
