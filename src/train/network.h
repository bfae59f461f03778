/*
 * A network with its loss as one graph, and the values that a loop fills and reads.
 *
 *     struct wf_network net;
 *     const struct wf_network_config c = { .model = unet, .config = config, .losses = WF_LOSS_CE };
 *     ok = wf_network_build(&net, &c, WF_SHAPE(4, 1, 256, 256, 3), true, err);
 *     ...
 *     wf_graph_free(net.graph);
 */
#pragma once

#include "graph/graph.h"
#include "models/model.h"

enum {
    WF_LOSS_CE = 1 << 0,
    WF_LOSS_BCE = 1 << 1,
    WF_LOSS_DICE = 1 << 2,
    WF_LOSS_MSE = 1 << 3,
};
extern const char *const wf_loss_names[]; /* by bit; ends with NULL */

enum wf_target_kind {
    WF_TARGET_CLASSES, /* i32 labels, one per prediction: ce, dice */
    WF_TARGET_BINARY,  /* f32 0 or 1, of the logits' shape: bce */
    WF_TARGET_REAL,    /* f32 of the logits' shape: mse */
};

/* Losses of a network of several domains, beside that of the task. */
enum wf_adapt { WF_ADAPT_RECONSTRUCTION, WF_ADAPT_DIFFERENCE, WF_ADAPT_SIMILARITY, WF_ADAPTS };
extern const char *const wf_adapt_names[]; /* ends with NULL */
enum wf_similarity { WF_SIMILARITY_DANN, WF_SIMILARITY_MMD };
extern const char *const wf_similarity_names[]; /* ends with NULL */

struct wf_network_config {
    const struct wf_model *model;
    struct wf_model_config config; /* resolved */
    unsigned losses;               /* set of WF_LOSS_*; the loss is their sum */
    bool loss_per_tile;            /* the mean of the losses of the network's subdomains */
    bool has_ignore;               /* labels equal to `ignore` do not count in the loss */
    int32_t ignore;
    enum wf_dtype compute;
    bool starts_from_input;        /* the backward pass, from network.start */
    enum wf_similarity similarity; /* of networks of several domains */
    /* Of sparse ones: rows of each set, of all ranks together; NULL, 0: as many as there can be. Borrowed. */
    const int64_t *capacities;
    int n_capacities;
    int64_t samples;    /* of the batch */
    int64_t mesh[WF_C]; /* of a sparse network: ranks along data and space */
    bool joins_halos;   /* likewise, see struct wf_graph */
};

struct wf_network {
    struct wf_graph *graph;
    struct wf_value *image, *target, *logits, *loss;
    /* In training: the image of every domain, of which the first is `image`; otherwise there is one. */
    struct wf_value **images;
    int domains;
    /* Of several: the weight of each loss, an input that may change from step to step; and the losses,
     * summed over the domains. */
    struct wf_value *weights[WF_ADAPTS], *task, *adapts[WF_ADAPTS];
    /* In training, of a network with several: all, the first of `logits`; 0: there is that one. */
    struct wf_model_head *heads;
    int n_heads;
    /* The backward pass starts from this f32 scalar, an input; NULL: from one. */
    struct wf_value *start;
    bool has_classes; /* logits are of classes; otherwise they are numbers (mse) */
    bool has_ignore;  /* labels equal to `ignore` are left out of the loss */
    int32_t ignore;
};

/* The kind of target that the losses need. Fails if they need different ones, or do not fit the number of
 * classes. */
[[nodiscard]] bool wf_network_target(const struct wf_network_config *c, enum wf_target_kind *kind,
                                     struct wf_err *err);
/* On images of that shape; with gradients where it is for training. Without, class maps have a label
 * that does not count also where the config gives none, for validation. The caller frees net->graph, also
 * after a failure. */
[[nodiscard]] bool wf_network_build(struct wf_network *net, const struct wf_network_config *c,
                                    struct wf_shape image, bool training, struct wf_err *err);
/* The inputs `image`, `image1`, ... of so many domains. */
void wf_network_build_images(struct wf_network *net, const struct wf_network_config *c,
                             struct wf_shape image, int domains);
/* Whether the value is the image of one of the domains. */
bool wf_network_is_image(const struct wf_network *net, const struct wf_value *v);
/* The losses of several domains (network_domains.c): what becomes of their images, `net->logits`, and the
 * total with the task's loss, which `task` builds. */
struct wf_value *wf_network_build_domains(
    struct wf_network *net, const struct wf_network_config *c,
    struct wf_value *(*task)(const struct wf_network_config *c, struct wf_network *net));
/* To look at what a network of several domains makes of their images: each rebuilt from the shared code, from the
 * private one and from both, and the two codes as a vector for each image. */
struct wf_domain_views {
    struct wf_value *rebuilt[3], *codes[2];
};
extern const char *const wf_domain_view_names[]; /* "shared", "private", "both" */
/* Without gradients, with the weights of the network that trains, where they are; the views of each domain live
 * in the graph's arena. */
[[nodiscard]] bool wf_network_build_views(struct wf_network *net, const struct wf_network_config *c,
                                          struct wf_shape image, struct wf_domain_views **views,
                                          struct wf_err *err);
/* FLOPs of all nodes on the whole batch, without recomputation. */
double wf_graph_flops(const struct wf_graph *g);
