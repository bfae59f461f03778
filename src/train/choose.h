/*
 * Choosing a mesh for a number of ranks: data and space, by the cost model.
 *
 * Every factorisation into data x d x h x w that the batch and the image allow is a candidate. The
 * most promising by a heuristic (the largest part, then the smallest halo) are planned for the
 * ranks with most work, and of those that fit into memory the one with the shortest predicted step
 * is taken; of two equal ones, the one with fewer bytes. A pure function, so every rank chooses the
 * same. Of a network of several domains each mesh is planned with every placement of the domains that is asked
 * for.
 *
 *     struct wf_choice choice;
 *     if (!wf_mesh_choose(g, &options, &(struct wf_choose){ .ranks = 6 }, &choice, err)) ...
 */
#pragma once

#include "plan/plan.h"
#include "train/domains.h"

struct wf_choose {
    int ranks;
    size_t limit;                     /* bytes that a rank may use; 0: no limit */
    size_t more;                      /* bytes of each rank outside the plan: the optimiser's */
    const struct wf_domains *domains; /* of the network; NULL: one */
};

struct wf_choice {
    struct wf_mesh mesh;
    enum wf_domain_placement placement;
    int tried;      /* meshes considered; with one, and no limit, the rest is 0: not planned */
    double seconds; /* of a step, estimated */
    size_t bytes;   /* of the rank that needs most */
};

/* Fails with WF_ERR_FIT if no mesh of this many ranks is possible or fits, and names one that
 * does. */
[[nodiscard]] bool wf_mesh_choose(const struct wf_graph *g, const struct wf_plan_options *options,
                                  const struct wf_choose *ask, struct wf_choice *choice,
                                  struct wf_err *err);

/* All meshes of data, space and up to so many stages (pipe) that cut the graph's images over so many ranks, the
 * most promising first, by a rule of thumb. `at` is to be freed. */
struct wf_mesh_candidate {
    struct wf_mesh mesh;
    double thumb; /* the less the better */
};
struct wf_mesh_candidates {
    struct wf_mesh_candidate *at;
    size_t count, room;
};
struct wf_mesh_candidates wf_mesh_candidates(const struct wf_graph *g, int ranks, int pipe_most,
                                             int micro_batches);

/* The placement of domains on a mesh that is given; `tried` is the number of them that were compared. */
[[nodiscard]] bool wf_mesh_place(const struct wf_graph *g, const struct wf_plan_options *options,
                                 const struct wf_choose *ask, const struct wf_mesh *mesh,
                                 struct wf_choice *choice, struct wf_err *err);

/* Advice for a plan that does not fit: "use 12 ranks (space=4x3)", or what else would help. */
const char *wf_mesh_advice(struct wf_arena *arena, const struct wf_graph *g,
                           const struct wf_plan_options *options, const struct wf_choose *ask);
