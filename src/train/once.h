/*
 * One rank's training step: plan, memory, weights, data and optimiser of a job, ready to go.
 *
 *     struct wf_once once = { 0 };
 *     bool ok = wf_once_init(&once, job, &job->mesh, comm, err) && wf_once_step(&once, err);
 *     wf_once_release(&once);
 *
 * verify, step and bench all run it; the mesh may be another than the job's, so that verify can run
 * the same job whole.
 */
#ifndef WF_TRAIN_ONCE_H
#define WF_TRAIN_ONCE_H

#include "exec/run.h"
#include "train/job.h"

struct wf_once {
    const struct wf_job *job;
    struct wf_comm *comm;
    struct wf_context *context; /* of the device */
    const struct wf_global_plan *global;
    struct wf_global_plan *own; /* where mesh or options are not the job's */
    struct wf_plan *plan;
    struct wf_run *run;
    struct wf_optim *optim;
    struct wf_learner learner;
    double scale; /* that the gradients of the last step have */
};

/* Collective. On the job's mesh. After a failure only wf_once_release() may follow. */
[[nodiscard]] bool wf_once_init(struct wf_once *once, const struct wf_job *job,
                                struct wf_comm *comm, struct wf_err *err);
/* The same on any mesh of the comm's ranks, or planned in another way. */
[[nodiscard]] bool wf_once_init_with(struct wf_once *once, const struct wf_job *job,
                                     const struct wf_mesh *mesh,
                                     const struct wf_plan_options *options, struct wf_comm *comm,
                                     struct wf_err *err);
/* Collective. Runs the plan and updates the weights; the data stays in its place. */
[[nodiscard]] bool wf_once_step(struct wf_once *once, struct wf_err *err);
/* Collective. A step that all begin and end together; `waiting` is what this rank waited for others. */
[[nodiscard]] bool wf_once_time(struct wf_once *once, double *seconds, double *waiting,
                                struct wf_err *err);
void wf_once_release(struct wf_once *once);

[[nodiscard]] bool wf_once_loss(const struct wf_once *once, double *loss, struct wf_err *err);
/* Collective. After a step: writes loss, pred, grad.<name>, param.<name> and state.<name> to a safetensors
 * file, the last two as they are after the update. */
[[nodiscard]] bool wf_once_dump(const struct wf_once *once, const char *path, struct wf_err *err);
/* What this rank uses: arena, weights, gradients, states, optimiser. */
size_t wf_once_bytes(const struct wf_once *once);

#endif
