/* What a trainer gives to a predictor. */
#pragma once

#include "ckpt/checkpoint.h"
#include "train/training.h"
#include "widefield.h"

/* All of it lives as long as the trainer. */
struct wf_trainer_loan {
    struct wf_session *session;
    const struct wf_own *own;
    struct wf_checkpoint_info info; /* what a checkpoint would say now */
    const struct wf_graph *graph;   /* whose values have the weights */
};

/* False with its error where the trainer has failed. */
[[nodiscard]] bool wf_trainer_lend(const struct wf_trainer *t, struct wf_trainer_loan *loan,
                                   struct wf_err *err);
