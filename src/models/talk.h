/*
 * Shared by networks with subdomains (DDU-Net): the image cut into subdomains, and the
 * communication network between them. Nothing here depends on devices: subdomains are samples of a
 * batch, and the mesh decides which rank holds which.
 */
#ifndef WF_MODELS_TALK_H
#define WF_MODELS_TALK_H

#include "models/blocks.h"

/* The extent of statistics of batch norms on subdomains. */
struct wf_norm wf_talk_norm(const struct wf_model_config *c);

/* Joins the last `channels` of every subdomain's map into one map of the image, applies
 * convolutions across the borders, and puts them back: NAME0.conv, NAME0.bn, ... */
struct wf_value *wf_talk(struct wf_graph *g, const struct wf_model_config *c, struct wf_value *x,
                         const char *name);
/* The same on a finer level, if model.comm.where is `levels`; at most all of its channels. */
struct wf_value *wf_talk_level(struct wf_graph *g, const struct wf_model_config *c,
                               struct wf_value *x, int level);

#endif
