/*
 * A network of three branches that run on blocks of ranks of their own: each has an image, a target, a
 * convolution of its own, and batch norm; branches 1 and 3 share a convolution, and all of them a last
 * layer. A trunk on all ranks reads the results of two of them. The loss is the sum of all.
 */
#ifndef WF_TESTS_SUPPORT_BRANCHES_H
#define WF_TESTS_SUPPORT_BRANCHES_H

#include "plan/plan.h"

enum { BRANCHES = 3 };

struct support_branches {
    struct wf_graph *g;
    struct wf_mesh mesh;
    struct wf_block blocks[BRANCHES];
    struct wf_value *loss;
    struct wf_plan_options options;
};

/* Where branches run: "1" on one rank; otherwise a mesh, and the ranges of its axis that each has. */
struct support_placement {
    const char *mesh;
    enum wf_mesh_axis axis;
    int lo[BRANCHES], hi[BRANCHES];
};
extern const struct support_placement support_placements[]; /* ends with mesh NULL */

/* The options point into it. */
void support_branches_build(struct support_branches *b, const struct support_placement *p);

#endif
