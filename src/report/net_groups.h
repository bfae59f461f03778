/* Inside of the drawing of a network: layers grouped into boxes (net_groups.c), which net_drawing.c draws. */
#pragma once

#include "net/net.h"

enum { WF_NET_BOXES_MAX = 40 };

struct wf_net_box {
    const char *name;
    int first, last; /* layers; those between are in it, too, where they are drawn */
    int level;       /* halvings of the image's extent; vectors are below all images */
    struct wf_shape shape;
};

struct wf_net_boxes {
    const struct wf_net *net;
    const struct wf_shape
        *shapes; /* of each layer's result; all zeros: it leads to no head and is not drawn */
    struct wf_net_box *boxes;
    int count, levels;
    int *box_of; /* by layer; -1: not drawn */
};

/* In the arena. */
struct wf_net_boxes wf_net_group(struct wf_arena *arena, const struct wf_net *net,
                                 const struct wf_shape *shapes, struct wf_shape image);
