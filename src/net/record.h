/*
 * Networks written down from what builders made: a built-in network as a network file.
 *
 *     struct wf_net *net = wf_net_record(model, &config, err);
 */
#pragma once

#include "models/model.h"
#include "net/net.h"

/* The network of a graph's forward nodes, from an image to a result; the graph takes notes (wf_graph.takes_notes). A
 * layer with `classes` channels is one of WF_LAYER_CLASSES. Operators that no kind has are refused. */
struct wf_graph_net {
    const char *name;
    int dims;
    int64_t classes;
    const struct wf_value *image, *logits;
};
[[nodiscard]] struct wf_net *wf_net_of_graph(const struct wf_graph *g,
                                             const struct wf_graph_net *from, struct wf_err *err);
/* Builds the network for a trial, writes it down, and compares both on images of other sizes. */
[[nodiscard]] struct wf_net *wf_net_record(const struct wf_model *m,
                                           const struct wf_model_config *c, struct wf_err *err);
