/*
 * Networks. Each is one file in src/models/ with one `const struct wf_model wf_model_NAME`; the
 * build collects them. A network is written once, for the whole image, with the builder.
 *
 * What all networks have stands in struct wf_model_config. A network with more to choose has a struct of
 * its own and a table that declares its members (wf_model.options), as operators declare their
 * attributes; `config.own` points to such a struct:
 *
 *     struct wf_model_config c = { .dims = 2, .own = &(struct wf_subdomains){ .tiles = { 1, 2, 2 } } };
 *     ok = wf_model_resolve(model, &c, err);
 *     logits = model->build(graph, &c, image);
 */
#pragma once

#include "base/option.h"
#include "graph/graph.h"

struct wf_model_config {
    int dims;        /* spatial dimensions: 1, 2 or 3; 0: the network's own */
    int64_t in;      /* input channels; 0 means 3 */
    int64_t classes; /* 0 means 2 */
    int64_t base;    /* channels of the first level; 0: the network's own */
    int64_t depth;   /* levels below the first; 0: the network's own */
    const void *own; /* the network's own options, borrowed; NULL: its defaults */
};

/*
 * Networks of several domains. The first domain has labels; what is made of domain k's image is a node of
 * domain k, whatever weights it shares. Nodes are labelled by domain and role, so that a plan can place the
 * roles of a domain on different ranks.
 */
enum wf_domain_role {
    WF_ROLE_SHARED,  /* the shared encoder */
    WF_ROLE_PRIVATE, /* the private encoder */
    WF_ROLE_LOSSES,  /* decoder, heads and losses */
    WF_DOMAIN_ROLES
};
/* For wf_graph.domain. */
static inline int wf_domain_label(int domain, enum wf_domain_role role)
{
    return 1 + domain * WF_DOMAIN_ROLES + (int)role;
}
/* What such a network makes of one domain's image. */
struct wf_domain_parts {
    bool apart;                    /* set before: the image is also rebuilt from each code alone */
    struct wf_value *shared, *own; /* codes: of the shared and of the domain's private encoder */
    struct wf_value *rebuilt;      /* the image, from both */
    struct wf_value *from_shared, *from_own;
    struct wf_value *head; /* logits: which domain is it; behind gradient reversal */
};

/* A result that has a loss of its own in training. */
struct wf_model_head {
    const char *name;
    struct wf_value *logits;
    double weight;
};

struct wf_model {
    const char *name, *what; /* `what`: a line for `widefield model list` */
    struct wf_model_config defaults;
    int dims_min, dims_max;
    bool dense;  /* one prediction per pixel; otherwise one per image */
    bool sparse; /* of points: build() is given rows of features, and finds their coordinates */
    bool (*is_dense)(const struct wf_model_config *c); /* where the options decide; or NULL */
    bool counts_no_norm; /* its published number of parameters leaves batch norm's out */
    /* Adds the network on image x (N, D, H, W, in); returns the logits. */
    struct wf_value *(*build)(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x);
    /* Of a network with several heads, in training: the same, and all heads, the prediction first, in the graph's
     * arena; their number, 0 on failure. NULL: there is one. */
    int (*build_heads)(struct wf_graph *g, const struct wf_model_config *c, struct wf_value *x,
                       struct wf_model_head **heads);
    /* Of a network of several domains: how many, and all that it makes of an image of domain k, with
     * the first one's logits in `logits`; build() is then the part that predicts for the domain that its
     * options name (set_domain): its weights are where they are in training, and images and logits are
     * where the domain's images and losses are. NULL: of one. */
    int (*domains)(const struct wf_model_config *c);
    void (*build_domain)(struct wf_graph *g, const struct wf_model_config *c, int domain,
                         struct wf_value *image, struct wf_domain_parts *parts,
                         struct wf_value **logits);
    void (*set_domain)(void *own, int domain);
    /* Of a network with options of its own: their table, which ends with a NULL key, and the bytes of
     * its struct. An INT is an int64_t there, a REAL a double, a BOOL a bool, a NAME an int, INTS are
     * int64_t[count_max], of which the last are taken where fewer are given. */
    const struct wf_option *options;
    size_t own_bytes;
    /* Are the options right, after what all networks have? NULL: all are. */
    bool (*check)(const struct wf_model *m, const struct wf_model_config *c, struct wf_err *err);
    /* Subdomains along D, H, W that it works on; NULL: it does not. */
    void (*tiles)(const struct wf_model_config *c, int64_t tiles[3]);
};

/* One prediction per pixel, or one per image? */
static inline bool wf_model_is_dense(const struct wf_model *m, const struct wf_model_config *c)
{
    return m->is_dense ? m->is_dense(c) : m->dense;
}
/* Images that a step takes, one of each domain. */
static inline int wf_model_domains(const struct wf_model *m, const struct wf_model_config *c)
{
    return m->domains ? m->domains(c) : 1;
}

/* The input that build() takes: an image of that shape; of a sparse network [capacity, 1, 1, 1, channels]. */
struct wf_value *wf_model_input(struct wf_graph *g, const struct wf_model *m,
                                const struct wf_model_config *c, const char *name,
                                struct wf_shape shape);

extern const struct wf_model *const wf_model_table[]; /* ends with NULL; made by the build */
/* Trained parameters as counted by the network's authors, and those that they exclude. */
int64_t wf_model_parameters(const struct wf_model *m, const struct wf_graph *g, int64_t *beside);
/* NULL with an error that names the closest known name. */
const struct wf_model *wf_model_find(const char *name, struct wf_err *err);
/* Fills zeros from the defaults and checks ranges. */
[[nodiscard]] bool wf_model_resolve(const struct wf_model *m, struct wf_model_config *c,
                                    struct wf_err *err);
