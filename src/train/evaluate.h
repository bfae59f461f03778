/*
 * How good a checkpoint is on a dataset.
 *
 *     struct wf_evaluation e = { .launch = launch, .settings = settings, .checkpoint = c, .part = WF_PART_ALL };
 *     ok = wf_evaluate(&e, "data/nuclei", err);                  Collective under a launcher.
 *     ... e.loss, e.scores on rank 0 ...
 *     wf_evaluation_release(&e);
 *
 * With `whole` images of any size are scored as predict sees them, in windows with the numbers of the whole image
 * (exec/stream.h); otherwise as validation during training does, whole or in crops, and in windows too where a whole
 * image does not fit into memory.limit.
 *
 * The settings are those of the checkpoint's config. The data may be other than it was trained on; its
 * normalisation stays that of the training.
 */
#pragma once

#include "train/feed.h"
#include "train/metrics.h"

struct wf_evaluation {
    struct wf_launch launch;
    struct wf_settings settings; /* unset values are filled in from the data */
    const struct wf_checkpoint *checkpoint;
    enum wf_part part;
    bool whole; /* set where the images do not fit */
    /* results */
    struct wf_feed feed;
    struct wf_job *job;
    struct wf_network net;
    struct wf_global_plan *global;
    struct wf_feed_rows rows; /* of point clouds */
    bool is_full;
    /* rank 0's */
    struct wf_arena arena;
    struct wf_scores scores;
    double loss;
};

[[nodiscard]] bool wf_evaluate(struct wf_evaluation *e, const char *path, struct wf_err *err);
/* wf_rank_body of `whole`, of a struct wf_evaluation (evaluate_whole.c). */
[[nodiscard]] bool wf_evaluate_whole(struct wf_comm *comm, void *arg, struct wf_err *err);
void wf_evaluation_release(struct wf_evaluation *e);
