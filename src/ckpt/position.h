/* The position of a training run: together with weights, states and the optimiser's state,
 * everything that it needs to resume as if it had never stopped. */
#pragma once

#include "optim/scaler.h"
#include "optim/schedule.h"

struct wf_position {
    int64_t step;         /* steps done: updates, and those that were skipped */
    int64_t epoch, batch; /* of the next step; batch = the epoch's count: validation is next */
    int64_t skipped;      /* steps, because a gradient was not finite */
    int64_t in_a_row;     /* of them, up to now */
    double loss_sum; /* this epoch's losses, each times its samples; skipped steps do not count */
    double loss_samples;  /* of that sum */
    double loss;          /* mean over the samples of the epoch before */
    double best;          /* metric of the best epoch; more is better */
    int64_t best_epoch;   /* from 0; -1: none */
    int64_t stale;        /* validated epochs since then */
    double seconds;       /* of wall time, until this was saved */
    double loss_scale;    /* of f16; 1 otherwise */
    int64_t scale_streak; /* finite steps with it */
    struct wf_schedule_state schedule;
};

static inline struct wf_position wf_position_start(void)
{
    return (struct wf_position){ .best_epoch = -1, .schedule = wf_schedule_start() };
}
