#include "exec/window_grid.h"

#include "exec/stream.h"

enum { SMALLEST_TILE = 16 }; /* what a tile is halved down to */

int64_t wf_window_grid_count(const struct wf_window_grid *g)
{
    int64_t count = 1;
    for (int a = 0; a < WF_AXES; a++)
        count *= g->count[a];
    return count;
}

struct wf_region wf_window_grid_cell(const struct wf_window_grid *g, int64_t index)
{
    struct wf_region r = wf_shape_region(g->whole);
    for (int a = WF_AXES - 1; a >= 0; a--) {
        const int64_t at = index % g->count[a];
        index /= g->count[a];
        r.lo[a] = at * g->step[a];
        r.hi[a] = wf_min(r.lo[a] + g->step[a], g->whole.at[a]);
        if (g->edge[a] && at == g->count[a] - 1)
            r.lo[a] = g->edge[a];
        if (g->edge[a] && at == g->count[a] - 2)
            r.hi[a] = g->edge[a];
    }
    return r;
}

struct wf_region wf_window_grid_window(const struct wf_window_grid *g, struct wf_region cell)
{
    for (int a = 0; a < WF_AXES; a++)
        if (g->edge[a] && cell.hi[a] == g->edge[a])
            cell.lo[a] = cell.hi[a] - g->step[a];
    return cell;
}

struct wf_region wf_window_grid_middle(const struct wf_window_grid *g)
{
    int64_t index = 0;
    for (int a = 0; a < WF_AXES; a++)
        index = index * g->count[a] + (g->count[a] - 1) / 2;
    return wf_window_grid_cell(g, index);
}

int64_t wf_stream_tile(int64_t tile, int64_t extent)
{
    while (tile > SMALLEST_TILE && extent < 2 * tile)
        tile /= 2;
    return tile;
}

bool wf_window_grid_has_tiles(const struct wf_window_grid *g, int axis)
{
    return g->tile > 0 && (axis == WF_H || axis == WF_W);
}

static int64_t smallest_step(const struct wf_window_grid *g, int axis)
{
    return wf_window_grid_has_tiles(g, axis) ? wf_min(SMALLEST_TILE, g->whole.at[axis]) : 1;
}

void wf_window_grid_set_step(struct wf_window_grid *g, int axis, int64_t step)
{
    if (wf_window_grid_has_tiles(g, axis) && step < g->whole.at[axis]) {
        const int64_t tile = wf_stream_tile(g->tile, step);
        step = wf_max(step / tile, 1) * tile;
    }
    g->step[axis] = wf_min(step, g->whole.at[axis]);
    g->count[axis] = wf_ceil_div(g->whole.at[axis], g->step[axis]);
}

void wf_window_grid_set_count(struct wf_window_grid *g, int axis, int64_t count)
{
    const int64_t even = wf_ceil_div(g->whole.at[axis], count);
    const int64_t align = even >= 2 * WF_WINDOW_ALIGN ? WF_WINDOW_ALIGN : even >= 16 ? 8 : 1;
    wf_window_grid_set_step(g, axis, wf_ceil_div(even, align) * align);
}

bool wf_window_grid_refine(struct wf_window_grid *g)
{
    int axis = WF_N;
    for (int a = WF_D; a < WF_C; a++)
        if (g->step[a] >= g->step[axis] && g->step[a] > smallest_step(g, a))
            axis = a;
    const int64_t before = g->step[axis];
    if (before == smallest_step(g, axis))
        return false;
    for (int64_t count = g->count[axis]; g->step[axis] == before;) {
        count = wf_max(count + 1, count * 5 / 4);
        wf_window_grid_set_count(g, axis, count);
    }
    return true;
}
