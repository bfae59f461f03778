/*
 * One rank's training steps: device, plan, memory, weights and optimiser of a job, ready to go.
 *
 *     struct wf_stepper s;
 *     bool ok = wf_stepper_init(&s, job, comm, NULL, err) && wf_stepper_step(&s, err);
 *     wf_stepper_release(&s);
 *
 * Input and target are filled as the job says, and stay as they are from step to step; a loop with a
 * loader fills them itself (train/trainer.h).
 */
#pragma once

#include "ckpt/checkpoint.h"
#include "exec/run.h"
#include "train/job.h"

struct wf_stepper {
    const struct wf_job *job;
    struct wf_comm *comm;
    struct wf_context *context; /* of the device */
    const struct wf_global_plan *global;
    struct wf_global_plan *own; /* where mesh or options are not the job's */
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_optim *optim;
    struct wf_learner learner;
    struct wf_share *shares; /* of the micro-batches of the last step */
    double scale;            /* that its gradients have */
};

/* What is not as the job has it; zeros: all is. */
struct wf_stepper_options {
    const struct wf_mesh *mesh; /* with `plan`: another mesh of the comm's ranks, or another plan */
    const struct wf_plan_options *plan;
    struct wf_comm *group;    /* the ranks that make a step together, a part of comm */
    struct wf_worker *worker; /* updates are a server's */
    const struct wf_checkpoint *checkpoint; /* weights and optimiser go on from it */
    bool is_fed;                            /* input and target are left to a loader */
};

/* Collective. `options` may be NULL. After a failure only wf_stepper_release() may follow. */
[[nodiscard]] bool wf_stepper_init(struct wf_stepper *s, const struct wf_job *job,
                                   struct wf_comm *comm, const struct wf_stepper_options *options,
                                   struct wf_err *err);
/* Collective. Runs the plan and updates the weights; the data stays in its place. */
[[nodiscard]] bool wf_stepper_step(struct wf_stepper *s, struct wf_err *err);
/* Collective. A step that all begin and end together; `waiting` is what this rank waited for others. */
[[nodiscard]] bool wf_stepper_time(struct wf_stepper *s, double *seconds, double *waiting,
                                   struct wf_err *err);
void wf_stepper_release(struct wf_stepper *s);

[[nodiscard]] bool wf_stepper_loss(const struct wf_stepper *s, double *loss, struct wf_err *err);
/* Collective. After a step: writes loss, pred, grad.<name>, param.<name> and state.<name> to a safetensors
 * file, the last two as they are after the update (stepper_dump.c). */
[[nodiscard]] bool wf_stepper_dump(const struct wf_stepper *s, const char *path,
                                   struct wf_err *err);
/* What this rank uses: arena, weights, gradients, states, optimiser. */
size_t wf_stepper_bytes(const struct wf_stepper *s);
