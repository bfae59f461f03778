/*
 * How the ranks' gradients become one.
 *
 * global: the gradient of the mean over the whole batch, which is what the plan computes: each rank's
 * part of the batch weighs as much as what it has of it.
 * rank_mean: the mean over the data ranks of the gradients of their own means, as programs compute it
 * that average over processes. Where all have equally much, that is the same; otherwise a rank with
 * less weighs more. A rank that starts its backward pass from
 *
 *     count of all / (data ranks that have some * count of its own)
 *
 * in place of one makes that of the other. Ranks that share samples (mesh axis space) are one here.
 */
#ifndef WF_TRAIN_REDUCTION_H
#define WF_TRAIN_REDUCTION_H

#include "exec/run.h"
#include "train/network.h"

enum wf_reduction { WF_REDUCTION_GLOBAL, WF_REDUCTION_RANK_MEAN };
extern const char *const wf_reduction_names[]; /* ends with NULL */

/* Collective. What this rank starts from for rank_mean, with the targets that are filled in; labels
 * that do not count are not counted. A rank without any starts from 0. */
[[nodiscard]] bool wf_reduction_share(const struct wf_network *network, const struct wf_run *run,
                                      struct wf_comm *comm, double *share, struct wf_err *err);

#endif
