/*
 * What networks on subdomains (DDU-Net) share: the image cut into subdomains, the network through which
 * they talk, and the options of both. Devices do not occur here: subdomains are samples of a batch,
 * and which rank holds which is the mesh's choice.
 */
#pragma once

#include "models/blocks.h"

/* What the statistics of batch norms are over. */
enum wf_statistics { WF_STATISTICS_GLOBAL, WF_STATISTICS_TILE, WF_STATISTICS_RANK };
/* Where subdomains talk: on the coarsest level, on every level, or each one to itself only. */
enum wf_talk { WF_TALK_COARSEST, WF_TALK_LEVELS, WF_TALK_ALONE };

/* The options of these networks. */
struct wf_subdomains {
    int64_t tiles[3];                 /* subdomains along D, H, W; 0: one */
    int64_t channels, layers, kernel; /* of the communication network; 0 channels: none */
    double dropout;
    enum wf_talk talk;
    enum wf_statistics statistics;
    bool frozen; /* a trunk with weights from elsewhere is not trained */
};
extern const struct wf_option wf_subdomain_options[];
[[nodiscard]] bool wf_subdomains_check(const struct wf_model *m, const struct wf_model_config *c,
                                       struct wf_err *err);
void wf_subdomains_tiles(const struct wf_model_config *c, int64_t tiles[3]);

static inline const struct wf_subdomains *wf_subdomains(const struct wf_model_config *c)
{
    return c->own;
}

/* The image as a batch of subdomains, and the result as an image again. */
struct wf_value *wf_subdomains_cut(struct wf_graph *g, const struct wf_model_config *c,
                                   struct wf_value *image);
struct wf_value *wf_subdomains_join(struct wf_graph *g, const struct wf_model_config *c,
                                    struct wf_value *x, const struct wf_value *image);

/* What batch norms on subdomains take their statistics over. */
struct wf_norm wf_talk_norm(const struct wf_model_config *c);

/* Joins the last `channels` of every subdomain's map into one map of the image, applies
 * convolutions across the borders, and puts them back: NAME0.conv, NAME0.bn, ... */
struct wf_value *wf_talk(struct wf_graph *g, const struct wf_model_config *c, struct wf_value *x,
                         const char *name);
/* The same on a finer level, if model.comm.where is `levels`; at most all of its channels. */
struct wf_value *wf_talk_level(struct wf_graph *g, const struct wf_model_config *c,
                               struct wf_value *x, int level);
