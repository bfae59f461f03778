/*
 * A training step: passes over the plan, and the update from their gradients.
 *
 *     struct wf_learner learner;
 *     ok = wf_learner_init(&learner, &(struct wf_learner_options){ .comm = comm, .optim = optim }, run, err);
 *     ok = wf_learner_step(&learner, run, NULL, err);                  all micro-batches of the run, one update
 *
 *     ok = wf_learner_pass(&learner, &pass, err);                      or several runs' micro-batches,
 *     ok = wf_learner_update(&learner, run, err);                      and one update
 *     wf_learner_settle(&learner, run);                                learner.skipped and .norm are known
 *     wf_learner_release(&learner);
 *
 * A gradient that is not finite on any rank skips the update on all of them: weights, optimiser and
 * states (running statistics) are as before the step, and learner.skipped is set. On one rank a device that can
 * decides this itself, so that nobody waits in a step. Every rank
 * computes the same update, because every rank has the same gradients.
 */
#pragma once

#include "exec/run.h"
#include "optim/optim.h"
#include "optim/scaler.h"
#include "train/reduction.h"
#include "train/server.h"

/* Between the backward pass and the update, on every rank: for tests, which spoil gradients
 * here. */
typedef void wf_learner_hook(void *user, float *grads, size_t count);

struct wf_learner_options {
    struct wf_comm *comm;
    struct wf_optim *optim;
    double clip; /* largest 2-norm of the whole gradient; 0: any */
    /* The backward pass starts from this input, an f32 scalar on every rank; NULL: from one, and then
     * there is no loss scaling. */
    const struct wf_value *start;
    struct wf_scaler scaler;  /* zeros: a scale of one */
    struct wf_worker *worker; /* a server computes the update; NULL: every rank does */
    wf_learner_hook *hook;    /* or NULL */
    void *user;
};

/* A run's micro-batches in a step. */
struct wf_learner_pass {
    struct wf_run *run;
    int count;                     /* micro-batches, from the first */
    const struct wf_share *shares; /* of each; NULL: the step is this micro-batch */
    double total;                  /* weight of all micro-batches of the step */
    bool goes_on;                  /* others belong to the step */
    bool several;                  /* there is more than one micro-batch in the step */
};

struct wf_learner {
    struct wf_learner_options options;
    struct wf_scaler scaler;
    bool has_begun; /* a step: passes were made since the last update */
    float *states;  /* as they were before the first of them */
    size_t n_states;
    bool last;  /* with a server: a synchronisation follows the next update */
    bool waits; /* the last update is not settled */
    /* the last update, when settled */
    bool skipped;
    double norm; /* of the gradient, before clipping */
};

[[nodiscard]] bool wf_learner_init(struct wf_learner *l, const struct wf_learner_options *options,
                                   const struct wf_run *run, struct wf_err *err);
void wf_learner_release(struct wf_learner *l);

/* Collective. */
[[nodiscard]] bool wf_learner_pass(struct wf_learner *l, const struct wf_learner_pass *pass,
                                   struct wf_err *err);
/* Collective. From the gradients of the passes since the last one. */
[[nodiscard]] bool wf_learner_update(struct wf_learner *l, struct wf_run *run, struct wf_err *err);
/* Waits for the norm of the last update's gradient. The next pass does it too. */
void wf_learner_settle(struct wf_learner *l, struct wf_run *run);
/* Collective. All micro-batches of the run; shares may be NULL where there is one. */
[[nodiscard]] bool wf_learner_step(struct wf_learner *l, struct wf_run *run,
                                   const struct wf_share shares[], struct wf_err *err);
