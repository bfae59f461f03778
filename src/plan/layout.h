/*
 * The layout: on which ranks a value or a node is placed, and which part of it each of them owns.
 *
 * Placement. A node runs on one block of the mesh: on all of it, or, where it belongs to a domain, on
 * the block that the plan's options name for that domain, and there on the ranks of its stage. What a node makes is placed where it runs.
 * Inputs, parameters and states are placed on the blocks of the nodes that read them: no rank holds a
 * weight that it does not use. A gradient is placed where its parameter is, the next of a state where
 * that is. So a placement is a list of
 * blocks, and for most values a list of one.
 *
 * Parts. Within a block, `data` cuts N and `space` cuts D, H, W; "not cut" (weights, a vector after
 * global pooling: all ranks of the block own the same) and "placed on all ranks" are two facts. Cut
 * points are chosen once for each number of parts, on the image, at multiples of the coarsest level's
 * stride where the image is large enough; every other value takes the same points divided by its own
 * scale. So a coarse level's cut lies under the fine level's cut, and values of one level have one cut.
 * Correctness never depends on where the points lie, only the amount that must be fetched does.
 *
 * A value with more samples than the image (its subdomains as a batch) is distributed by sample where
 * there are enough for all ranks of the block: N is then cut by every axis of the mesh and space by
 * none, so that a subdomain lies whole on one rank. The order of ranks is that of subdomains: on a mesh
 * of the same grid each rank gets the one that lies in its part of the image. So are the rows of sparse
 * tensors: every rank has an equal part of the capacity, and knows itself how much of it is there.
 */
#pragma once

#include "plan/stages.h"

/* A block with its cut points. */
struct wf_tiling {
    struct wf_block block;
    bool has_all;             /* ranks of the mesh */
    const int64_t *cut[WF_C]; /* per axis: parts + 1 points on the image's extent, ascending */
};

struct wf_placement {
    const struct wf_tiling **tilings;
    int n;
};

static inline bool wf_placement_equal(const struct wf_placement *a, const struct wf_placement *b)
{
    bool equal = a->n == b->n;
    for (int i = 0; equal && i < a->n; i++)
        equal = a->tilings[i] == b->tilings[i];
    return equal;
}

struct wf_layout {
    struct wf_mesh mesh;
    int64_t image[WF_AXES];        /* extents */
    double (*scale)[WF_AXES];      /* per value id: image extent / extent, as strides multiply up */
    struct wf_placement *of_value; /* per value id */
    struct wf_placement *of_node;  /* per node id */
    const struct wf_tiling **tilings; /* all that there are, each once */
    int n_tilings;
    /* Ids of parameters and states, those of one placement together, otherwise in the graph's order: so a
     * run of weights of one placement is a run on each of its ranks. */
    int *weights, n_weights;
    const struct wf_stages *stages; /* or NULL */
};

struct wf_layout_options {
    int n_domains; /* of the graph's nodes; 0: all nodes run on all ranks */
    /* Where the nodes of each domain run on a mesh. */
    bool (*place)(const void *user, const struct wf_mesh *mesh, struct wf_block domains[],
                  struct wf_err *err);
    const void *user;
    const struct wf_stages *stages; /* the planner's own; NULL: one stage */
};

/* Everything lives in the arena. */
[[nodiscard]] bool wf_layout_init(struct wf_arena *arena, struct wf_layout *layout,
                                  const struct wf_graph *g, const struct wf_mesh *mesh,
                                  const struct wf_layout_options *options, struct wf_err *err);

/* The first tiling of a placement that has the rank; NULL: it is not placed there. */
const struct wf_tiling *wf_layout_tiling(const struct wf_layout *layout,
                                         const struct wf_placement *placement, int rank);
static inline const struct wf_tiling *wf_layout_value_tiling(const struct wf_layout *layout,
                                                             const struct wf_value *v, int rank)
{
    return wf_layout_tiling(layout, &layout->of_value[v->id], rank);
}

/* The mesh axes that cut the value along a tensor axis, as a mask; 0: it is not cut. */
unsigned wf_layout_cutters(const struct wf_layout *layout, const struct wf_tiling *tiling,
                           const struct wf_value *v, enum wf_axis axis);
/* The number of parts, and which of them has these coordinates; or the coordinates of a part, where the
 * axes that do not cut are left as they are. */
int wf_layout_parts(const struct wf_layout *layout, const struct wf_tiling *tiling,
                    const struct wf_value *v, enum wf_axis axis);
void wf_layout_part_coords(const struct wf_layout *layout, const struct wf_tiling *tiling,
                           const struct wf_value *v, enum wf_axis axis, int part,
                           int at[WF_MESH_AXES]);
/* Cut point `index` of the value's axis: part i is [point i, point i + 1). */
int64_t wf_layout_point(const struct wf_layout *layout, const struct wf_tiling *tiling,
                        const struct wf_value *v, enum wf_axis axis, int index);
/* What the rank owns; empty where it owns nothing. */
struct wf_region wf_layout_owned(const struct wf_layout *layout, const struct wf_value *v,
                                 int rank);
/* The rank's part of the value, if it were placed so. */
struct wf_region wf_layout_part(const struct wf_layout *layout, const struct wf_value *v,
                                const struct wf_placement *placement, int rank);
/* Whether the rank is the first of those that own the same part: over such ranks each element of the
 * value is there once. */
bool wf_layout_is_first(const struct wf_layout *layout, const struct wf_value *v, int rank);
/* The first rank that owns all of a value that is not cut. */
int wf_layout_first_rank(const struct wf_layout *layout, const struct wf_value *v);
/* Whether all ranks hold it. */
bool wf_layout_is_on_all(const struct wf_layout *layout, const struct wf_value *v);
