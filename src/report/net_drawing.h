/*
 * A drawing of a network: boxes by resolution from the image downwards, so that a U-Net is a U; skips as arcs.
 *
 *     char *svg = wf_net_svg(&arena, net, WF_SHAPE(1, 1, 256, 256, 3), err);
 *
 * Layers next to each other whose names begin alike ("enc0.conv0", "enc0.bn0") and that have the same extents are one
 * box, so that hundreds of layers stay readable: as many parts of the names are told apart as there is room for.
 */
#pragma once

#include "models/model.h"
#include "net/net.h"

/* NULL where the network refuses an image of that shape. */
[[nodiscard]] char *wf_net_svg(struct wf_arena *arena, const struct wf_net *net,
                               struct wf_shape image, struct wf_err *err);
/* Of a job's network, built in or of a file, on images of that shape; NULL where it has no form as a network file. */
char *wf_model_svg(struct wf_arena *arena, const struct wf_model *m,
                   const struct wf_model_config *c, struct wf_shape image);
/* Into a run folder: the drawing as network.svg, and `text`, unless NULL, as network.yaml. */
[[nodiscard]] bool wf_network_write(const char *folder, const char *svg, const char *text,
                                    struct wf_err *err);
