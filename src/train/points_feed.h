/*
 * Point clouds of a dataset on their way into a step: how many places they take, and who has which rows.
 *
 * A plan is made for capacities. They come from the data itself (wf_points_scan()): voxels of clouds as training
 * draws them, level by level, the largest that a batch may have, and a margin. Where a batch has more all the
 * same, nothing of it is put in: the caller plans anew with wf_points_needs().
 *
 *     struct wf_points_rank me = wf_points_rank(&net, global, rank);       lives as long as the loader
 *     struct wf_loader_options o = ...;
 *     wf_points_ask(&me, &o);
 *     ...
 *     wf_loader_next_points(loader, &batch, err) && wf_points_fit(&me, batch)
 *     wf_points_put(&me, run, &net, batch, &hosts);
 */
#pragma once

#include "data/loader.h"
#include "exec/run.h"
#include "train/network.h"
#include "train/points.h"

struct wf_feed;

/* What a rank has of a network's batches. */
struct wf_points_rank {
    const struct wf_graph *graph;
    int parts, part;               /* of the batch: ranks along data */
    struct wf_points_cut cut;      /* of its rows into boxes, */
    int box;                       /* of which it has this one; negative: the most of all counts */
    int64_t capacity[WF_SETS + 1]; /* of this rank */
};
struct wf_points_rank wf_points_rank(const struct wf_network *net, const struct wf_mesh *mesh,
                                     int rank);
/* The rows of the batch that a loader of this rank makes, in the order of the rank's rows. */
void wf_points_ask(struct wf_points_rank *r, struct wf_loader_options *o);
/* Of a struct wf_points_rank, wf_loader_options.arrange: the order of rows, and how many there are in each set. */
[[nodiscard]] bool wf_points_arrange(void *rank, struct wf_cloud_batch *b, struct wf_err *err);
bool wf_points_fit(const struct wf_points_rank *r, const struct wf_cloud_batch *b);

/* Of the inputs of a step, on any device. */
struct wf_points_hosts {
    struct wf_host coords, features, target, boxes;
};
void wf_points_put(const struct wf_points_rank *r, struct wf_run *run, const struct wf_network *net,
                   const struct wf_cloud_batch *b, struct wf_points_hosts *h);
void wf_points_hosts_release(struct wf_points_hosts *h);

/* Capacities of all ranks together for batches of the part: rows of each set of the graph, on the mesh that it was
 * built for. */
[[nodiscard]] bool wf_points_scan(const struct wf_feed *feed, enum wf_part part,
                                  const struct wf_graph *g, int64_t capacities[WF_SETS + 1],
                                  struct wf_err *err);
/* Collective. Where a rank's batch does not fit: per set what all ranks together need, with a margin; larger than what
 * is in `needs`. */
[[nodiscard]] bool wf_points_needs(const struct wf_points_rank *r, struct wf_comm *comm,
                                   const struct wf_cloud_batch *b, int64_t needs[WF_SETS + 1],
                                   struct wf_err *err);
