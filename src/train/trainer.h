/*
 * The loop: epochs of steps, validation, early stopping, and when to save.
 *
 * Every rank runs the same loop. What a step trains on is a function of (seed, epoch, batch), and the
 * rest is in the weights, the optimiser and a struct wf_position; so a run that goes on from a saved
 * position makes the same numbers as one that never stopped.
 *
 *     struct wf_trainer_result result;
 *     ok = wf_trainer_run(&(struct wf_trainer_options){ .comm = comm, .run = run, ... }, &result, err);
 *
 * Once before each step the ranks meet: did everybody get its data, did a signal come, is it time to
 * save? So all save at the same step, and a rank that cannot read its part stops the others with its
 * message.
 */
#ifndef WF_TRAIN_TRAINER_H
#define WF_TRAIN_TRAINER_H

#include "train/step.h"
#include "train/validate.h"

/* Where a run stands. Start with best_epoch -1 and zeros. */
struct wf_position {
    int64_t step;         /* updates done */
    int64_t epoch, batch; /* of the next step; batch = the epoch's count: validation is next */
    double loss_sum;      /* over this epoch's steps */
    double loss;          /* mean over the steps of the epoch before */
    double best;          /* metric of the best epoch; more is better */
    int64_t best_epoch;   /* from 0; -1: none */
    int64_t stale;        /* validated epochs since then */
    double seconds;       /* in steps, so far */
};

struct wf_step_report {
    const struct wf_position *at; /* after the step */
    int64_t batches;
    double loss, lr;
    double seconds, compute, comm, input; /* of this step, this rank */
    double pixels;                        /* of the global batch */
};

struct wf_epoch_report {
    int64_t epoch, step; /* the epoch that ended, from 0; updates done */
    double train_loss;
    const struct wf_validator *validated; /* NULL: not this time */
    double metric;
    bool is_best;
};

/* All but `stops` are called on rank 0 only and may be NULL. */
struct wf_trainer_hooks {
    bool (*stepped)(void *user, const struct wf_step_report *report, struct wf_err *err);
    bool (*epoch_ended)(void *user, const struct wf_epoch_report *report, struct wf_err *err);
    bool (*save)(void *user, const struct wf_position *at, bool is_best, struct wf_err *err);
    bool (*stops)(void *user); /* on every rank, before each step */
};

struct wf_trainer_options {
    struct wf_comm *comm;
    const struct wf_network *network;
    struct wf_run *run; /* weights and optimiser as `start` says */
    struct wf_learner *learner;
    struct wf_loader *loader;
    struct wf_validator *validator; /* NULL: the training loss says which epoch is best */
    struct wf_position start;
    int64_t epochs;
    int64_t validate_every;    /* epochs; the last is always validated */
    int64_t early_stop;        /* validations without a better one; 0: never */
    int64_t checkpoint_steps;  /* 0: not by steps */
    double checkpoint_minutes; /* 0: not by time; every epoch's end saves anyway */
    const struct wf_trainer_hooks *hooks;
    void *user;
};

enum wf_trainer_end { WF_END_DONE, WF_END_EARLY, WF_END_SIGNAL };

struct wf_trainer_result {
    enum wf_trainer_end end;
    struct wf_position at;
    double loss;            /* mean of the last epoch; so far, where it did not end */
    double metric;          /* of the last validation; NaN: none here */
    double pixels, seconds; /* trained on in this call, and how long */
};

/* Collective. */
[[nodiscard]] bool wf_trainer_run(const struct wf_trainer_options *options,
                                  struct wf_trainer_result *result, struct wf_err *err);

#endif
