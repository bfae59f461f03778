/*
 * The two halves of the U-Net, for networks with other layers between them.
 *
 *     struct wf_unet u = { .config = c };
 *     x = wf_unet_down(g, &u, x);      the coarsest map; skips are kept in u.skip
 *     logits = wf_unet_up(g, &u, x);
 */
#pragma once

#include "models/blocks.h"

enum { WF_UNET_DEEPEST = 16 };

struct wf_unet {
    const struct wf_model_config *config; /* dims, base, depth, classes */
    struct wf_norm norm;                  /* extent of the statistics */
    struct wf_value *skip[WF_UNET_DEEPEST + 1];
};

struct wf_value *wf_unet_down(struct wf_graph *g, struct wf_unet *u, struct wf_value *x);
struct wf_value *wf_unet_up(struct wf_graph *g, struct wf_unet *u, struct wf_value *x);
