/*
 * Networks. Each is one file in src/models/ with one `const struct wf_model wf_model_NAME`; the
 * build collects them. A network is written once, for the whole image, with the builder.
 */
#ifndef WF_MODELS_MODEL_H
#define WF_MODELS_MODEL_H

#include "graph/graph.h"

/* The extent of batch norm's statistics in networks with subdomains. */
enum wf_statistics { WF_STATISTICS_GLOBAL, WF_STATISTICS_TILE, WF_STATISTICS_RANK };
/* Where the communication network runs: on the coarsest level, on every level, or on each subdomain
 * separately. */
enum wf_talk { WF_TALK_COARSEST, WF_TALK_LEVELS, WF_TALK_ALONE };

/* For networks with subdomains (wf_model.tiled). */
struct wf_model_tiles {
    int64_t tiles[3]; /* subdomains along D, H, W; zeros: one */
    /* The communication network; < 0: the network's default, 0 channels: none. */
    int64_t channels, layers, kernel;
    double dropout;
    enum wf_talk talk;
    enum wf_statistics statistics;
    bool trains_trunk; /* a trunk with loaded weights is trained too */
};

struct wf_model_config {
    int dims;        /* spatial dimensions: 1, 2 or 3; 0: the network's own */
    int64_t in;      /* input channels; 0 means 3 */
    int64_t classes; /* 0 means 2 */
    int64_t base;    /* channels of the first level; 0: the network's own */
    int64_t depth;   /* levels below the first; 0: the network's own */
    struct wf_model_tiles sub;
};

struct wf_model {
    const char *name, *what; /* `what`: a line for `widefield model list` */
    struct wf_model_config defaults;
    int dims_min, dims_max;
    bool dense;          /* one prediction per pixel; otherwise one per image */
    bool tiled;          /* it has subdomains: `sub` is used */
    bool counts_no_norm; /* its published number of parameters excludes batch norm's */
    /* Adds the network on image x (N, D, H, W, in); returns the logits. */
    struct wf_value *(*build)(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x);
};

extern const struct wf_model *const wf_model_table[]; /* ends with NULL; made by the build */
/* Trained parameters as counted by the network's authors, and those that they exclude. */
int64_t wf_model_parameters(const struct wf_model *m, const struct wf_graph *g, int64_t *beside);
/* NULL with an error that names the closest known name. */
const struct wf_model *wf_model_find(const char *name, struct wf_err *err);
/* Fills zeros from the defaults and checks ranges. */
[[nodiscard]] bool wf_model_resolve(const struct wf_model *m, struct wf_model_config *c,
                                    struct wf_err *err);

#endif
