/*
 * The grid of a mesh as a picture: how an image is cut, and for each part some figures as colours.
 *
 * Parts are drawn to scale. Few ranks carry their number and figure in the part; many are colours
 * with a scale beside them, and every part has its figures as a tooltip. Volumes are drawn slice by
 * slice along D; where the batch is cut too, a part shows the most of the ranks that have it.
 *
 *     char *picture = wf_grid_svg(&arena, &grid);
 */
#pragma once

#include <stdint.h>

#include "base/arena.h"

struct wf_grid_panel {
    const char *title;
    const double *values; /* per rank */
    const char *(*text)(struct wf_arena *arena, double value);
};

struct wf_grid {
    const char *title, *subtitle;
    int copies;            /* ranks with the same place; rank = copy * places + place */
    int parts[3];          /* along D, H, W; place = (d * parts[1] + h) * parts[2] + w */
    const int64_t *cut[3]; /* parts + 1 ascending points of each axis */
    const struct wf_grid_panel *panels;
    int n_panels;
};

char *wf_grid_svg(struct wf_arena *arena, const struct wf_grid *grid);
