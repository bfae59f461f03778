/*
 * What steps of training read: batches, from the loaders into the inputs of the runs.
 *
 *     struct wf_input in;
 *     wf_input_init(&in, options);
 *     wf_input_load(&in, batch, count, err)     the batches of a step, each into its micro-batch
 *     ...                                       the step begins on the device
 *     wf_input_load_ahead(&in, batch);          meanwhile the batch behind the one that runs
 *     wf_input_release(&in);
 *
 * Batches count from the beginning of an epoch, and the loaders stand where they do.
 */
#pragma once

#include "exec/holders.h"
#include "train/trainer.h"

struct wf_input {
    const struct wf_trainer_options *o;
    int64_t batches;                /* of an epoch */
    struct wf_host *images, target; /* images: of each domain */
    struct wf_points_hosts points;
    const struct wf_cloud_batch *full; /* the batch of points that does not fit; NULL: all do */
    int64_t voxels;                    /* of this rank in the step that was loaded */
    bool is_filled;                    /* the next batch was filled while the step before ran: */
    bool filled_ok;
    struct wf_err filled_err;
};

/* Loaders stand where the run begins, and threads read ahead: called early, they do while the rest is prepared. What
 * fails is told when a batch is loaded. */
void wf_input_seek(const struct wf_trainer_options *o);

void wf_input_init(struct wf_input *in, const struct wf_trainer_options *o);
void wf_input_release(struct wf_input *in);
/* The run that a batch is for: that of full ones, or of the epoch's rest. */
const struct wf_trainer_part *wf_input_part(const struct wf_input *in, int64_t batch);
/* Ends at a batch of points that does not fit: `full`. */
[[nodiscard]] bool wf_input_load(struct wf_input *in, int64_t batch, int64_t count,
                                 struct wf_err *err);
/* The one behind `batch`, where the device can take it while it computes; what fails is told when it is loaded. */
void wf_input_load_ahead(struct wf_input *in, int64_t batch);
