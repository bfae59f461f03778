/* A network with its loss as one graph, and the values that a loop fills and reads. */
#ifndef WF_TRAIN_NETWORK_H
#define WF_TRAIN_NETWORK_H

#include "graph/graph.h"

struct wf_network {
    struct wf_graph *graph;
    struct wf_value *image, *target, *logits, *loss;
    bool has_classes; /* logits tell classes apart; otherwise they are numbers (mse) */
    bool has_ignore;  /* labels equal to `ignore` do not count in the loss */
    int32_t ignore;
};

#endif
