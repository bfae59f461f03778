/*
 * The windows of a stream: a grid of cells over the result, each of which is one window's to give. Not
 * for anybody else than exec/stream.c.
 */
#pragma once

#include "tensor/region.h"

/* Edges of windows lie at multiples of this where there is a choice: a coarse level's pixel is then
 * seldom in two windows, and rows are whole vectors. */
enum { WF_WINDOW_ALIGN = 32 };

struct wf_window_grid {
    struct wf_shape whole;
    int64_t step[WF_AXES], count[WF_AXES];
    /* Where the last cell begins, if not at a multiple of the step; 0: there. */
    int64_t edge[WF_AXES];
    int64_t tile; /* wf_stream_options */
};

int64_t wf_window_grid_count(const struct wf_window_grid *g);
struct wf_region wf_window_grid_cell(const struct wf_window_grid *g, int64_t index);
/* What is computed for a cell: more than it, where it was cut short, so that it is like others. */
struct wf_region wf_window_grid_window(const struct wf_window_grid *g, struct wf_region cell);
/* A window that has neighbours on all sides where any has: it reads the most. */
struct wf_region wf_window_grid_middle(const struct wf_window_grid *g);
/* Whether windows have whole tiles along the axis. */
bool wf_window_grid_has_tiles(const struct wf_window_grid *g, int axis);
void wf_window_grid_set_step(struct wf_window_grid *g, int axis, int64_t step);
/* About so many windows of equal extent. */
void wf_window_grid_set_count(struct wf_window_grid *g, int axis, int64_t count);
/* The longest axis into more windows; false when all are as short as can be. */
bool wf_window_grid_refine(struct wf_window_grid *g);
