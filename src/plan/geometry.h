/*
 * Geometry: for every rank, where each item works, what each instance must cover, and what has to
 * travel between ranks. Every rank works it out by the same rule for all of them, so that both ends of
 * a message know of it without talking.
 *
 * It is computed on demand: a rank's regions when that rank is placed, what travels when that is asked
 * for, which places all ranks. A search that only wants the memory of one rank pays for one.
 *
 *     if (!wf_geometry_init(&arena, &geo, g, program, &mesh, &options, err)) ...
 *     wf_geometry_place(&arena, &geo, rank);       wf_geometry_box(&geo, rank, instance) can be read
 *     wf_geometry_find_fetches(&arena, &geo);      and that of every rank, and geo.fetches
 *
 * For each rank and item there is the *work*: the region the item runs on (of out[0], or of
 * in[over] for sums). For each instance:
 *   have  what the rank makes itself (for inputs: what it is given)
 *   box   the smallest box around `have` and everything the rank's items read: the extent of its
 *         buffer. What is in the box but not in `have` and is read comes by a fetch.
 *
 * Q1. have contains the owned region. It is larger where a pointwise item computes the halo itself
 *     from a halo that was fetched further up.
 * Q2. All boxes lie inside the image: what is read outside is padding.
 * Q3. Transfers of an instance are ordered by (receiver, sender, place), the same on both sides.
 * Q4. An item has no work on a rank where its node is not placed, and that rank has nothing of its
 *     results but what it fetches: a value that is read on ranks where it is not placed travels there.
 *
 * With a window (plan.h) there is one rank, which owns that part of the outputs and nothing else of
 * what is made: have is then box, exactly what is read, and nothing is fetched.
 */
#pragma once

#include "plan/group.h"
#include "plan/program.h"

struct wf_transfer {
    int from, to; /* ranks */
    struct wf_region box;
};

/* All transfers of one instance, over all ranks. */
struct wf_fetch {
    int instance;
    int before;      /* the first item for which some rank needs the halo */
    int next_before; /* another fetch with the same `before`, or -1 */
    /* Between stages: what travels just before this segment (stages.h), which is the first of the receiver's
     * stage that reads it; -1: within a stage, behind the maker. */
    int into, next_into;
    struct wf_transfer *transfers;
    int n_transfers;
    /* Rank r takes part in transfers[of_rank[first_of[r] .. first_of[r + 1])], in that order. */
    int *first_of, *of_rank;
};

/* NULL until the rank is placed. */
struct wf_rank_regions {
    struct wf_region *work;       /* per item */
    struct wf_region *have, *box; /* per instance */
};

struct wf_geometry {
    const struct wf_graph *graph;
    const struct wf_program *program;
    struct wf_layout layout;
    int n_ranks;
    bool is_windowed;
    struct wf_region window;
    struct wf_rank_regions *ranks;
    bool *is_fetched;         /* per instance: some rank that was placed has not all of its box */
    struct wf_fetch *fetches; /* none until they are found */
    int n_fetches;
    int *fetch_of;     /* per instance: its fetch within the stage, or -1 */
    int *first_into;   /* per segment: the first fetch that travels before it, or -1 */
    bool *crosses;     /* per instance: another stage fetches it */
    int *first_before; /* per item, and at the end: the first fetch that ends before it, or -1 */
    struct wf_groups groups;
    /* Per item: the groups over which its results are summed; NULL: they are complete. */
    const struct wf_grouping **grouping;
    bool *is_deferred; /* per item: its results are partial, and an item that collects them sums */
};

struct wf_geometry_options {
    struct wf_layout_options layout;
    const struct wf_region *window; /* or NULL */
};
/* Everything lives in the arena; nothing is placed yet. */
[[nodiscard]] bool wf_geometry_init(struct wf_arena *arena, struct wf_geometry *geo,
                                    const struct wf_graph *g, const struct wf_program *program,
                                    const struct wf_mesh *mesh,
                                    const struct wf_geometry_options *options, struct wf_err *err);

/* Once or more often. */
void wf_geometry_place(struct wf_arena *arena, struct wf_geometry *geo, int rank);
/* Once. */
void wf_geometry_find_fetches(struct wf_arena *arena, struct wf_geometry *geo);
void wf_geometry_release(struct wf_geometry *geo); /* what does not live in the arena */

/* Whether the item's results are summed over ranks, and the number of the group with which the rank
 * does so, or -1. */
static inline bool wf_geometry_sums(const struct wf_geometry *geo, int item)
{
    return geo->grouping[item] && !geo->is_deferred[item];
}
static inline int wf_geometry_group(const struct wf_geometry *geo, int rank, int item)
{
    return wf_geometry_sums(geo, item) ? geo->grouping[item]->group_of[rank] : -1;
}
/* Whether the rank adds this input of an item that collects: each contribution counts once. */
bool wf_geometry_adds(const struct wf_geometry *geo, int rank, int item, int input);

/* What the rank owns of a value: its share of the mesh, or the window of an output. */
struct wf_region wf_geometry_owned(const struct wf_geometry *geo, int rank,
                                   const struct wf_value *v);

/* The region of an item's input that a rank reads, inside the image. */
struct wf_region wf_geometry_reads(const struct wf_geometry *geo, int rank, int item, int input);

/* An output's part that belongs to part `r` of another output of the same node: the same place along
 * axes that both have, all of the others. */
struct wf_region wf_geometry_beside(struct wf_region r, const struct wf_shape *of,
                                    const struct wf_shape *other);

static inline struct wf_region wf_geometry_work(const struct wf_geometry *geo, int rank, int item)
{
    return geo->ranks[rank].work[item];
}
static inline struct wf_region wf_geometry_have(const struct wf_geometry *geo, int rank,
                                                int instance)
{
    return geo->ranks[rank].have[instance];
}
static inline struct wf_region wf_geometry_box(const struct wf_geometry *geo, int rank,
                                               int instance)
{
    return geo->ranks[rank].box[instance];
}
