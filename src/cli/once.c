#include "cli/once.h"

#include <time.h>

#include "train/step.h"

double wf_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct wf_optim_options wf_job_optim_options(const struct wf_options *o)
{
    struct wf_optim_options options = { .lr = wf_options_real(o, "train.lr"),
                                        .momentum = wf_options_real(o, "train.momentum") };
    const char *const name = wf_options_text(o, "train.optimizer");
    WF_BUG_ON(!wf_optim_parse(name, &options.rule), "the option table knows '%s'", name);
    return options;
}

size_t wf_job_param_bytes(const struct wf_job *job, const struct wf_plan *plan)
{
    const size_t count = plan->store_bytes[WF_STORE_PARAM] / sizeof(float);
    return wf_plan_param_bytes(plan) +
           wf_optim_bytes(wf_job_optim_options(job->cli->options).rule, count);
}

/* --- making --- */

static bool make_plan(struct wf_once *once, const struct wf_mesh *mesh, struct wf_err *err)
{
    const struct wf_plan_options options = wf_job_plan_options(once->job);
    if (mesh != &once->job->mesh)
        once->own = wf_scheme_new(once->job->graph, mesh, &options, err);
    once->scheme = mesh == &once->job->mesh ? once->job->scheme : once->own;
    if (once->scheme)
        once->plan = wf_plan_new(once->scheme, wf_comm_rank(once->comm), err);
    return once->plan != NULL;
}

static bool fill_weights(const struct wf_once *once, struct wf_err *err)
{
    const struct wf_graph *const g = once->job->graph;
    wf_run_init_weights(once->run, once->job->seed);
    if (!once->job->weights)
        return true;
    for (size_t i = 0; i < g->n_values; i++) {
        const struct wf_value *const v = g->values[i];
        if (v->kind != WF_PARAM && v->kind != WF_STATE)
            continue;
        const struct wf_view view = wf_run_view(once->run, v);
        if (view.data && !wf_job_fill(once->job, v, &view, err))
            return false;
    }
    return true;
}

static bool fill_input(const struct wf_once *once, const struct wf_value *v, struct wf_err *err)
{
    const struct wf_view place = wf_run_view(once->run, v);
    return !place.data || wf_job_fill(once->job, v, &place, err);
}

bool wf_once_init(struct wf_once *once, const struct wf_job *job, const struct wf_mesh *mesh,
                  struct wf_comm *comm, struct wf_err *err)
{
    *once = (struct wf_once){ .job = job, .comm = comm };
    if (!wf_comm_agree(comm, make_plan(once, mesh, err), err))
        return false;
    once->run = wf_run_new(once->plan, comm, job->seed, err);
    if (!once->run)
        return false;
    const struct wf_optim_options options = wf_job_optim_options(job->cli->options);
    once->optim = wf_optim_new(&options, wf_run_param_count(once->run), err);
    const bool ok = once->optim && fill_weights(once, err) && fill_input(once, job->input, err) &&
                    fill_input(once, job->target, err);
    return wf_comm_agree(comm, ok, err);
}

void wf_once_release(struct wf_once *once)
{
    wf_optim_free(once->optim);
    wf_run_free(once->run);
    wf_plan_free(once->plan);
    wf_scheme_free(once->own);
    *once = (struct wf_once){ 0 };
}

/* --- running --- */

bool wf_once_step(struct wf_once *once, struct wf_err *err)
{
    return wf_train_step(once->run, once->optim, err);
}

float wf_once_loss(const struct wf_once *once)
{
    const struct wf_view view = wf_run_view(once->run, once->job->loss);
    return (float)wf_dtype_get(view.dtype, view.data, 0);
}

size_t wf_once_bytes(const struct wf_once *once)
{
    return wf_run_bytes(once->run) +
           (size_t)once->optim->n_states * once->optim->count * sizeof(float);
}
