/* A network with its loss as one graph, and the values that a loop fills and reads. */
#ifndef WF_TRAIN_NETWORK_H
#define WF_TRAIN_NETWORK_H

#include "graph/graph.h"

struct wf_network {
    struct wf_graph *graph;
    struct wf_value *image, *target, *logits, *loss;
    /* The backward pass starts from this f32 scalar, an input; NULL: from one. */
    struct wf_value *start;
    /* Sums of the loss, of which the second is the number of averaged elements; NULL: count samples. */
    struct wf_value *counts;
    bool has_classes; /* logits are of classes; otherwise they are numbers (mse) */
    bool has_ignore;  /* labels equal to `ignore` are left out of the loss */
    int32_t ignore;
};

#endif
