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
#ifndef WF_MODELS_MODEL_H
#define WF_MODELS_MODEL_H

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

struct wf_model {
    const char *name, *what; /* `what`: a line for `widefield model list` */
    struct wf_model_config defaults;
    int dims_min, dims_max;
    bool dense;          /* one prediction per pixel; otherwise one per image */
    bool counts_no_norm; /* its published number of parameters leaves batch norm's out */
    /* Adds the network on image x (N, D, H, W, in); returns the logits. */
    struct wf_value *(*build)(struct wf_graph *g, const struct wf_model_config *c,
                              struct wf_value *x);
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

extern const struct wf_model *const wf_model_table[]; /* ends with NULL; made by the build */
/* Trained parameters as counted by the network's authors, and those that they exclude. */
int64_t wf_model_parameters(const struct wf_model *m, const struct wf_graph *g, int64_t *beside);
/* NULL with an error that names the closest known name. */
const struct wf_model *wf_model_find(const char *name, struct wf_err *err);
/* Fills zeros from the defaults and checks ranges. */
[[nodiscard]] bool wf_model_resolve(const struct wf_model *m, struct wf_model_config *c,
                                    struct wf_err *err);

#endif
