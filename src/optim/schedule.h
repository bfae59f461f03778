/*
 * Learning-rate schedules: a function of the step, and for plateau also of the losses.
 *
 *     struct wf_schedule s = { .kind = WF_SCHEDULE_COSINE, .lr = 0.1, .length = 90, .warmup = 5 };
 *     optim->lr = wf_schedule_lr(&s, &state, step, steps_per_epoch);
 *
 * The clock counts epochs that have begun (from 0), or steps where `by_step`; `every` is in its
 * unit, and `length`, the epochs of the run, is converted to it. As in PyTorch, where each unit is
 * a call of scheduler.step():
 *
 *   constant      lr
 *   step          lr * gamma ^ floor(clock / every)
 *   exponential   lr * gamma ^ clock
 *   cosine        least + (lr - least) * (1 + cos(pi * clock / length)) / 2
 *   plateau       max(lr * factor, least); factor is multiplied by gamma when for more than `patience`
 *                 epochs the loss was not below (1 - 1e-4) of the best
 *
 * Warm-up multiplies this in the first `warmup` epochs, at each step s from 0, by
 *
 *   from + (1 - from) * (s + 1) / (warmup * steps_per_epoch)
 *
 * Linear scaling multiplies lr by the data ranks (or by their root) and warms up from the rate of
 * one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum wf_schedule_kind {
    WF_SCHEDULE_CONSTANT,
    WF_SCHEDULE_STEP,
    WF_SCHEDULE_EXPONENTIAL,
    WF_SCHEDULE_COSINE,
    WF_SCHEDULE_PLATEAU,
    WF_SCHEDULES
};
extern const char *const wf_schedule_names[]; /* by kind; ends with NULL */

enum wf_lr_scaling { WF_SCALING_NONE, WF_SCALING_LINEAR, WF_SCALING_ROOT };
extern const char *const wf_lr_scaling_names[];

struct wf_schedule {
    enum wf_schedule_kind kind;
    double lr;
    double gamma;        /* step, exponential, plateau */
    double least;        /* cosine, plateau */
    int64_t every;       /* step */
    int64_t length;      /* cosine: epochs, at least 1 */
    int64_t patience;    /* plateau */
    bool by_step;        /* the clock counts steps */
    double warmup, from; /* epochs; share of the rate at its start */
};

/* The state of a plateau; part of a checkpoint. */
struct wf_schedule_state {
    double factor;
    double best; /* the lowest loss; not read while `seen` is 0 */
    int64_t seen, bad;
};

struct wf_schedule_state wf_schedule_start(void);
/* The factor of `scaling` on `data_ranks` ranks along data. */
double wf_lr_scale(enum wf_lr_scaling scaling, int data_ranks);
/* The rate of step number `step`, from 0; `steps` per epoch. */
double wf_schedule_lr(const struct wf_schedule *s, const struct wf_schedule_state *state,
                      int64_t step, int64_t steps);
/* An epoch has ended with this loss. */
void wf_schedule_watch(const struct wf_schedule *s, struct wf_schedule_state *state, double loss);
