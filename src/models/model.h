/*
 * Networks. Each is one file in src/models/ with one `const struct wf_model wf_model_NAME`; the
 * build collects them. A network is written once, for the whole image, with the builder.
 */
#ifndef WF_MODELS_MODEL_H
#define WF_MODELS_MODEL_H

#include "graph/graph.h"

/* What the statistics of a network's batch norms are over, where it works on subdomains. */
enum wf_statistics { WF_STATISTICS_GLOBAL, WF_STATISTICS_TILE, WF_STATISTICS_RANK };
/* Where its subdomains talk: on the coarsest level, on every level, or each one to itself only. */
enum wf_talk { WF_TALK_COARSEST, WF_TALK_LEVELS, WF_TALK_ALONE };

/* For networks that work on subdomains of the image (wf_model.tiled). */
struct wf_model_tiles {
    int64_t tiles[3]; /* subdomains along D, H, W; zeros: one */
    /* The communication network; < 0: the network's own, 0 channels: the subdomains do not talk. */
    int64_t channels, layers, kernel;
    double dropout;
    enum wf_talk talk;
    enum wf_statistics statistics;
    bool trains_trunk; /* a trunk with weights from elsewhere is trained too */
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
    bool tiled;          /* it works on subdomains: `sub` is read */
    bool counts_no_norm; /* its published number of parameters leaves batch norm's out */
    /* Adds the network on image x (N, D, H, W, in); returns the logits. */
    struct wf_value *(*build)(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x);
};

extern const struct wf_model *const wf_model_table[]; /* ends with NULL; made by the build */
/* Trained parameters as the network's authors count them, and those that they leave out. */
int64_t wf_model_parameters(const struct wf_model *m, const struct wf_graph *g, int64_t *beside);
/* NULL with an error that names the closest known name. */
const struct wf_model *wf_model_find(const char *name, struct wf_err *err);
/* Fills zeros from the defaults and checks ranges. */
[[nodiscard]] bool wf_model_resolve(const struct wf_model *m, struct wf_model_config *c,
                                    struct wf_err *err);

#endif
