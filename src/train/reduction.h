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

/*
 * A micro-batch is weighted by the number of elements that its loss averages over, so that the gradient of a
 * step is that of all its micro-batches as one: its backward pass starts from its share of the step's total.
 */
struct wf_share {
    double weight; /* of the micro-batch: elements that count, on all ranks */
    double start;  /* of this rank: 1, or as rank_mean says; 0 where it has no element */
};

struct wf_shares_options {
    struct wf_comm *comm;
    int count;   /* of the run's micro-batches, from the first */
    bool weighs; /* there are others in the step: how labels are ignored makes a difference */
    bool rank_mean;
};
/* Collective where labels may be ignored, and for rank_mean. For the targets as they are now. */
[[nodiscard]] bool wf_reduction_shares(const struct wf_network *network, struct wf_run *run,
                                       const struct wf_shares_options *options,
                                       struct wf_share shares[], struct wf_err *err);
