/*
 * What networks on subdomains (DDU-Net) share: the image cut into subdomains, and the network through
 * which they talk. Nothing here is the root of devices: subdomains are samples of a batch, and which rank
 * holds which is the mesh's choice.
 */
#ifndef WF_MODELS_TALK_H
#define WF_MODELS_TALK_H

#include "models/blocks.h"

/* What batch norms on subdomains take their statistics over. */
struct wf_norm wf_talk_norm(const struct wf_model_config *c);

/* The last `channels` of every subdomain's map side by side as one map of the image, through
 * convolutions that see across the borders, and back in their places: NAME0.conv, NAME0.bn, ... */
struct wf_value *wf_talk(struct wf_graph *g, const struct wf_model_config *c, struct wf_value *x,
                         const char *name);
/* The same on a finer level, where model.comm.where says so; at most all of its channels. */
struct wf_value *wf_talk_level(struct wf_graph *g, const struct wf_model_config *c,
                               struct wf_value *x, int level);

#endif
