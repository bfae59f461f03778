/*
 * A training run in small: pictures with bright squares, a network of two convolutions, the loop on
 * threads.
 *
 *     struct support_training j = { .mesh = "data=2", .epochs = 2, .to = "a.safetensors" };
 *     support_train(&j);
 *     assert_int_equal(j.result.at.step, 10);
 *
 * 5 pictures are for training, 2 crops of each: 10 items an epoch.
 */
#ifndef WF_TESTS_SUPPORT_TRAINING_H
#define WF_TESTS_SUPPORT_TRAINING_H

#include "train/trainer.h"

struct support_training {
    const char *mesh;
    const char *from, *to; /* checkpoints: where to go on, where to save; or NULL */
    int64_t epochs, early_stop, checkpoint_steps;
    double checkpoint_seconds;
    bool holds_bests; /* until another save is due */
    int64_t stop_at;  /* step at which a signal seems to come; 0: none */
    bool no_validation, stop_in_validation;
    double lr;
    int64_t batch, rest; /* 0: BATCH; samples of the last batch where that is smaller */
    int64_t accumulate, skip_limit;
    bool rank_mean, plain;   /* plain: without norm and dropout, which see batches */
    bool ignores;            /* some labels do not count */
    enum wf_optim_rule rule; /* SGD stands for Adam */
    double clip;
    enum wf_dtype compute;
    double loss_scale; /* f16 */
    const struct wf_schedule *schedule;
    wf_learner_hook *hook; /* with the comm */
    const char *expects;   /* the run must fail and say so; NULL: it must not */
    /* by rank 0 */
    struct wf_dataset *data;
    struct wf_run *run;
    struct wf_optim *optim;
    int64_t steps_seen, saves, epochs_seen, best_saves;
    bool unsettled;              /* a save may still be copying */
    bool held;                   /* a best that was not written yet */
    int64_t hurries, hurried_at; /* times that one was asked for; the step of the last */
    double first_loss, last_loss, metric;
    struct wf_trainer_result result;
};

/* Writes the pictures into a folder of support_scratch_enter(); a group's set-up. */
int support_training_data(void **state);
void support_train(struct support_training *j);
/* The largest norm(a - b) / norm(b) of all tensors of two checkpoints. */
double support_apart(const char *a, const char *b);

#endif
