/*
 * The training loop: epochs of steps, validation, early stopping, checkpoints.
 *
 * Every rank runs the same loop. What a step trains on is a function of (seed, epoch, batch), and
 * the rest is in the weights, the optimiser and a struct wf_position; so a run that is resumed from
 * a saved position gives the same numbers as one that never stopped.
 *
 *     struct wf_trainer_result result;
 *     ok = wf_trainer_run(&(struct wf_trainer_options){ .comm = comm, .run = run, ... }, &result, err);
 *
 * Before each step the ranks agree on whether all have their data, whether a signal arrived, and
 * whether to save. So all save at the same step, and a rank that cannot read its part stops the
 * others with its message.
 *
 * A step is `accumulate` micro-batches (train.batch each), or what is left of the epoch, and one update. Each
 * is weighted by the number of elements that its loss averages over, so the step's gradient is that of all
 * of them as one. The last batch of an epoch may be smaller and has its own plan.
 */
#pragma once

#include "ckpt/position.h"
#include "train/settings.h"
#include "train/step.h"
#include "train/times.h"
#include "train/points_feed.h"
#include "train/validate.h"

struct wf_step_report {
    const struct wf_position *at; /* after the step */
    int64_t batches;
    double loss, lr;                      /* of all its passes */
    bool skipped;                         /* no update: a gradient was not finite */
    double norm;                          /* of the gradient, before clipping */
    double loss_scale;                    /* that it was computed with */
    double seconds, compute, comm, input; /* of this step, this rank */
    double pixels;                        /* of the global batch */
    double elapsed; /* wall time since the first step of this command; 0: not measured */
};

struct wf_epoch_report {
    const struct wf_reply *server; /* NULL: there is none */
    int64_t epoch, step;           /* the epoch that ended, from 0; updates done */
    double train_loss;
    const struct wf_validator *validated; /* NULL: not this time */
    double metric;
    bool is_best;
};

/* Between two steps: where a program that steers the run has its turn. */
struct wf_pause {
    const struct wf_trainer_options *o;
    const struct wf_position *at;
    bool epoch_ends; /* its steps are done: validation follows */
    bool ended;      /* no step follows */
    int64_t *until;  /* the hook's own, of this rank; zero at first */
};

/* All but `stops` and `pause` are called on rank 0 only; all may be NULL. */
struct wf_trainer_hooks {
    bool (*stepped)(void *user, const struct wf_step_report *report, struct wf_err *err);
    bool (*epoch_ended)(void *user, const struct wf_epoch_report *report, struct wf_err *err);
    /* Returns when the next pass may begin; `settle` is called before the weights change. */
    bool (*save)(void *user, const struct wf_position *at, bool is_best, struct wf_err *err);
    bool (*settle)(void *user, struct wf_err *err);
    /* Whether a save is still being written: one that is due waits then. False: it has failed. */
    bool (*saving)(void *user, bool *busy, struct wf_err *err);
    void (*hurry)(void *user); /* one is due and waits: what is held back is written soon */
    bool (*stops)(void *user); /* on every rank, before each step */
    /* Collective, before each step and at the end. False: the run ends here. */
    bool (*pause)(void *user, const struct wf_pause *pause);
};

/* A network for batches of one size, and its run. */
struct wf_trainer_part {
    const struct wf_network *network;
    struct wf_run *run;
    const struct wf_points_rank *points; /* of point clouds; NULL: of images */
};

struct wf_trainer_options {
    struct wf_comm *comm;
    struct wf_trainer_part full; /* weights and optimiser as `start` says */
    struct wf_trainer_part rest; /* for wf_loader_rest() rows, beside the other; NULL: filled up */
    struct wf_learner *learner;
    int workers; /* that each train on their own batches (WF_SYNC_ASYNC); 0: all ranks on one */
    const struct wf_schedule *schedule; /* NULL: always the optimiser's rate */
    struct wf_loader *loader;
    /* Of several domains: the loaders of the others, which wrap where the first one's epoch is longer
     * (NULL: the rank has no images of it); and the weights of their losses, which count from a step on. */
    struct wf_loader *const *targets;
    int n_targets;
    const struct wf_adapt_settings *adapt;
    struct wf_validator *validator; /* NULL: the training loss determines the best epoch */
    struct wf_position start;
    int64_t epochs;
    int64_t accumulate;        /* micro-batches of a step; 0: one */
    bool rank_mean;            /* the gradient is the mean over the data ranks' own means */
    int64_t skip_limit;        /* skipped steps in a row that end the run; 0: no limit */
    int64_t validate_every;    /* epochs; the last is always validated */
    int64_t early_stop;        /* validations without a better one; 0: never */
    int64_t checkpoint_steps;  /* 0: not by steps */
    double checkpoint_minutes; /* 0: not by time */
    /* At least, between the saves of ended epochs; best and last always save. */
    double checkpoint_seconds;
    const struct wf_trainer_hooks *hooks;
    void *user;
    struct wf_times *times; /* rank 0's; NULL: not measured */
};

/* WF_END_FULL: the next batch, or one of validation, has more points than was planned for. */
enum wf_trainer_end { WF_END_DONE, WF_END_EARLY, WF_END_SIGNAL, WF_END_FULL };

struct wf_trainer_result {
    enum wf_trainer_end end;
    struct wf_position at;
    /* Mean of the last epoch; so far, where it did not end; NaN: all its steps were skipped. */
    double loss;
    double metric; /* of the last validation; NaN: none here */
    double pixels; /* trained on in this call */
    int64_t needs[2][WF_SETS +
                     1]; /* with WF_END_FULL: rows of training and of validation; 0: as planned */
};

/* Collective. */
[[nodiscard]] bool wf_trainer_run(const struct wf_trainer_options *options,
                                  struct wf_trainer_result *result, struct wf_err *err);
/* Collective. Fails if the run learned nothing or its loss is not finite at the end, so that the
 * exit status shows it; called after everything is logged. */
[[nodiscard]] bool wf_trainer_check(const struct wf_trainer_options *options,
                                    const struct wf_trainer_result *result, struct wf_err *err);
