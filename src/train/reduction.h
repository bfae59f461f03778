/*
 * How the ranks' gradients are combined.
 *
 * global: the gradient of the mean over the whole batch, which is what the plan computes: each rank
 * is weighted by the size of its part. rank_mean: the mean of the gradients of the data ranks' own
 * means, as in programs that average over processes. If all ranks have equal parts it is the same;
 * otherwise a rank with less has more weight. A rank that starts its backward pass from
 *
 *     count of all / (data ranks that have some * count of its own)
 *
 * instead of one turns the first into the second. Ranks that share samples (mesh axis space) count
 * as one.
 */
#pragma once

#include "exec/run.h"
#include "train/network.h"

enum wf_reduction { WF_REDUCTION_GLOBAL, WF_REDUCTION_RANK_MEAN };
extern const char *const wf_reduction_names[]; /* ends with NULL */

/* Collective. The start value of this rank for rank_mean, for the current targets; ignored labels
 * are not counted. A rank without any starts from 0. */
[[nodiscard]] bool wf_reduction_share(const struct wf_network *network, const struct wf_run *run,
                                      struct wf_comm *comm, double *share, struct wf_err *err);
