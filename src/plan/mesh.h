/*
 * The mesh: how many ranks there are and along which axes the work is cut; and the layout: which
 * part of each value a rank owns.
 *
 * A rank is a point of data x domain x pipe x space(d x h x w), the last fastest. `data` cuts N,
 * `space` cuts D, H, W. Channels and weights are never cut.
 *
 *     struct wf_mesh mesh;
 *     if (!wf_mesh_parse("data=2,space=2x2", &mesh, &err)) ...     8 ranks
 *
 * Layout. Cut points are chosen once, on the image, at multiples of the coarsest level's stride
 * where the image is large enough; every other value takes the same points divided by its own scale.
 * So a coarse level's cut lies under the fine level's cut, and values of one level have one cut. An
 * axis of extent one is not cut: all ranks along it hold (and compute) the same. Correctness never
 * depends on where the points lie, only the amount that must be fetched does.
 *
 * A value with more samples than the image (its subdomains as a batch) is distributed by samples where
 * there are enough for all ranks: N is then cut by every axis of the mesh and space by none, so that a
 * subdomain lies whole on one rank. The order of ranks is that of subdomains: on a mesh of the same
 * grid each rank gets the one that lies in its part of the image.
 */
#ifndef WF_PLAN_MESH_H
#define WF_PLAN_MESH_H

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

struct wf_layout {
    struct wf_mesh mesh;
    int64_t root[WF_AXES];    /* extents of the image */
    int64_t *cut[WF_AXES];    /* parts + 1 points on the root extent, ascending */
    double (*scale)[WF_AXES]; /* per value id: root extent / extent, as strides multiply up */
};

/* Everything lives in the arena. */
[[nodiscard]] bool wf_layout_init(struct wf_arena *arena, struct wf_layout *layout,
                                  const struct wf_graph *g, const struct wf_mesh *mesh,
                                  struct wf_err *err);
/* The mesh axes that cut the value along a tensor axis, as a mask; 0: it is not cut. */
unsigned wf_layout_cutters(const struct wf_layout *layout, const struct wf_value *v,
                           enum wf_axis axis);
/* The number of parts, and which of them has these coordinates; or the coordinates of a part, where the
 * axes that do not cut are left as they are. */
int wf_layout_parts(const struct wf_layout *layout, const struct wf_value *v, enum wf_axis axis);
int wf_layout_part_at(const struct wf_layout *layout, const struct wf_value *v, enum wf_axis axis,
                      const int at[WF_MESH_AXES]);
void wf_layout_part_coords(const struct wf_layout *layout, const struct wf_value *v,
                           enum wf_axis axis, int part, int at[WF_MESH_AXES]);
/* Whether the value is cut along a tensor axis. */
bool wf_layout_is_cut(const struct wf_layout *layout, const struct wf_value *v, enum wf_axis axis);
/* Cut point `index` of the value's axis: part i is [point i, point i + 1). */
int64_t wf_layout_point(const struct wf_layout *layout, const struct wf_value *v, enum wf_axis axis,
                        int index);
/* What the rank owns; empty where it owns nothing. */
struct wf_region wf_layout_owned(const struct wf_layout *layout, const struct wf_value *v,
                                 int rank);

#endif
