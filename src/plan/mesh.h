/*
 * The mesh: how many ranks there are and along which axes the work is cut.
 *
 * A rank is a point of data x domain x pipe x space(d x h x w), the last fastest. `data` cuts N,
 * `space` cuts D, H, W. Channels and weights are never cut.
 *
 *     struct wf_mesh mesh;
 *     if (!wf_mesh_parse("data=2,space=2x2", &mesh, &err)) ...     8 ranks
 *
 * A block is a part of the mesh: a range of ranks along each axis.
 */
#pragma once

#include "graph/graph.h"

enum wf_mesh_axis {
    WF_MESH_DATA,
    WF_MESH_DOMAIN,
    WF_MESH_PIPE,
    WF_MESH_D,
    WF_MESH_H,
    WF_MESH_W,
    WF_MESH_AXES
};

struct wf_mesh {
    int at[WF_MESH_AXES]; /* ranks along each axis, at least one */
};

struct wf_block {
    int lo[WF_MESH_AXES], hi[WF_MESH_AXES];
};

struct wf_mesh wf_mesh_one(void);
/* "data=2,space=2x2"; "" is one rank. Axes that are not named are one. */
[[nodiscard]] bool wf_mesh_parse(const char *text, struct wf_mesh *mesh, struct wf_err *err);
/* The shortest text that reads back to the same mesh; "space=1" for one rank. */
char *wf_mesh_print(struct wf_arena *arena, const struct wf_mesh *mesh);
int wf_mesh_size(const struct wf_mesh *mesh);
void wf_mesh_coords(const struct wf_mesh *mesh, int rank, int at[WF_MESH_AXES]);
int wf_mesh_rank(const struct wf_mesh *mesh, const int at[WF_MESH_AXES]);
/* The mesh axis that cuts a tensor axis, or -1. */
int wf_mesh_axis_of(enum wf_axis axis);

/* All of the mesh. */
struct wf_block wf_mesh_block(const struct wf_mesh *mesh);
bool wf_block_has(const struct wf_block *block, const int at[WF_MESH_AXES]);
bool wf_block_equal(const struct wf_block *a, const struct wf_block *b);
int wf_block_size(const struct wf_block *block); /* ranks */
static inline int wf_block_extent(const struct wf_block *block, int axis)
{
    return block->hi[axis] - block->lo[axis];
}
