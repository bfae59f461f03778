#include "train/once.h"

#include "base/clock.h"
#include "train/device.h"
#include "train/reduction.h"

/* --- making --- */

/* Collective. The plan of the job's global plan; or of one of its own, where options are given. */
static bool make_plan(struct wf_once *once, const struct wf_mesh *mesh,
                      const struct wf_plan_options *given, struct wf_err *err)
{
    if (given)
        once->own = wf_global_plan_new(once->job->net.graph, mesh, given, err);
    once->global = given ? once->own : once->job->global;
    once->plan =
        wf_rank_plan(once->global, wf_comm_rank(once->comm), once->comm, once->context, err);
    return once->plan != NULL;
}

static bool fill(const struct wf_once *once, const struct wf_value *v, struct wf_err *err)
{
    struct wf_host host = { 0 };
    wf_run_map(once->run, v, &host);
    const bool ok = !host.view.data || wf_job_fill(once->job, v, &host.view, err);
    wf_host_put(&host);
    wf_host_release(&host);
    return ok;
}

/* `once` knows its job and comm. */
static bool init(struct wf_once *once, const struct wf_mesh *mesh,
                 const struct wf_plan_options *given, struct wf_err *err)
{
    const struct wf_job *const job = once->job;
    struct wf_comm *const comm = once->comm;
    if (!wf_settings_open(&job->settings, job->device, comm, &once->context, err) ||
        !make_plan(once, mesh, given, err))
        return false;
    once->run = wf_run_new(once->plan, comm, job->settings.train.seed, err);
    if (!once->run)
        return false;
    once->optim = wf_optim_new(&job->settings.train.optim, once->run, err);
    const struct wf_learner_options learner = wf_job_learner_options(job, comm, once->optim);
    const bool ok = once->optim && wf_learner_init(&once->learner, &learner, once->run, err) &&
                    wf_job_start_weights(job, once->run, err) && fill(once, job->net.image, err) &&
                    fill(once, job->net.target, err);
    return wf_comm_agree(comm, ok, err);
}

bool wf_once_init(struct wf_once *once, const struct wf_job *job, struct wf_comm *comm,
                  struct wf_err *err)
{
    return wf_once_init_with(once, job, &job->mesh, NULL, comm, err);
}

bool wf_once_init_with(struct wf_once *once, const struct wf_job *job, const struct wf_mesh *mesh,
                       const struct wf_plan_options *options, struct wf_comm *comm,
                       struct wf_err *err)
{
    *once = (struct wf_once){ .job = job, .comm = comm };
    return init(once, mesh, options, err);
}

void wf_once_release(struct wf_once *once)
{
    wf_learner_release(&once->learner);
    wf_optim_free(once->optim);
    wf_run_free(once->run);
    wf_plan_free(once->plan);
    wf_global_plan_free(once->own);
    wf_device_close(once->context);
    *once = (struct wf_once){ 0 };
}

/* --- running --- */

bool wf_once_step(struct wf_once *once, struct wf_err *err)
{
    const struct wf_job *const job = once->job;
    if (job->settings.train.reduction == WF_REDUCTION_RANK_MEAN &&
        !wf_reduction_share(&job->net, once->run, once->comm, &once->learner.share, err))
        return false;
    once->scale = once->learner.scaler.scale;
    return wf_learner_step(&once->learner, once->run, err);
}

bool wf_once_time(struct wf_once *once, double *seconds, double *waiting, struct wf_err *err)
{
    if (!wf_comm_barrier(once->comm, err))
        return false;
    const double start = wf_now();
    if (!wf_once_step(once, err) || !wf_run_wait(once->run, err) ||
        !wf_comm_barrier(once->comm, err))
        return false;
    *seconds = wf_now() - start;
    *waiting = wf_run_times(once->run).comm;
    return true;
}

bool wf_once_loss(const struct wf_once *once, double *loss, struct wf_err *err)
{
    return wf_run_get_number(once->run, once->job->net.loss, loss, err);
}

size_t wf_once_bytes(const struct wf_once *once)
{
    return wf_run_bytes(once->run) + wf_optim_bytes(&once->optim->options, once->optim->count);
}
