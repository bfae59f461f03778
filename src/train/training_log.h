/*
 * What the log of a training run says (train/journal.h): of its beginning, its best epochs and its end. Rank 0 calls
 * these, and wf_training_begin() has opened the log.
 */
#pragma once

#include "train/foresight.h"
#include "train/training.h"

/* `use` of each rank as far as it is known; `foretold` of no seconds is left out. */
[[nodiscard]] bool wf_training_log_start(const struct wf_training *t, const struct wf_rank_use *use,
                                         const struct wf_foretold *foretold, struct wf_err *err);
/* Nothing where there are many classes. Epochs count from 1. */
[[nodiscard]] bool wf_training_log_confusion(const struct wf_training *t,
                                             const struct wf_metrics *m, long long epoch,
                                             struct wf_err *err);
[[nodiscard]] bool wf_training_log_end(const struct wf_training *t, struct wf_err *err);
