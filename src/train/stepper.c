#include "train/stepper.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "train/device.h"
#include "train/reduction.h"

/* --- making --- */

/* Collective over s->comm. */
static bool make_run(struct wf_stepper *s, const struct wf_stepper_options *o,
                     struct wf_comm *group, struct wf_err *err)
{
    const struct wf_job *const job = s->job;
    if (!wf_settings_open(&job->settings, job->device, s->comm, &s->context, err))
        return false;
    if (o->plan)
        s->own = wf_global_plan_new(job->net.graph, o->mesh, o->plan, err);
    s->global = o->plan ? s->own : job->global;
    s->plan = wf_rank_plan(s->global, wf_comm_rank(group), s->comm, s->context, err);
    if (!s->plan)
        return false;
    s->run = wf_run_new(s->plan, group, job->settings.train.seed, err);
    if (s->run && job->files.sync == WF_SYNC_SERVER)
        wf_run_keep_parts(s->run);
    return s->run != NULL;
}

static bool fill(const struct wf_stepper *s, const struct wf_value *v, int micro,
                 struct wf_err *err)
{
    struct wf_host host = { 0 };
    wf_run_map(s->run, v, &host);
    const bool ok = !host.view.data || wf_job_fill(s->job, v, micro, &host.view, err);
    wf_host_put(&host);
    wf_host_release(&host);
    return ok;
}

/* Coordinates, and how many rows this rank has. */
static bool fill_rows(const struct wf_stepper *s, int micro, struct wf_err *err)
{
    const struct wf_graph *const g = s->job->net.graph;
    const struct wf_value *const coords = wf_graph_find(g, "coords");
    const struct wf_view view = wf_run_view(s->run, coords);
    int32_t rows[WF_SETS + 1] = { 0 };
    for (int64_t row = view.box.lo[WF_N]; view.data && row < view.box.hi[WF_N]; row++)
        rows[coords->set] += wf_job_point(s->job, coords, micro, &view, row) >= 0;
    wf_run_put(s->run, g->rows, rows);
    const struct wf_value *const boxes = wf_graph_find(g, "boxes");
    return fill(s, coords, micro, err) && (!boxes || fill(s, boxes, micro, err));
}

static bool fill_inputs(const struct wf_stepper *s, struct wf_err *err)
{
    const struct wf_network *const net = &s->job->net;
    bool ok = true;
    for (int m = 0; ok && m < wf_job_micro_batches(s->job); m++) {
        wf_run_select(s->run, m);
        ok = fill(s, net->target, m, err) && (!net->graph->rows || fill_rows(s, m, err));
        for (int k = 0; ok && k < net->domains; k++)
            ok = fill(s, net->images[k], m, err);
        for (int i = 0; ok && net->domains > 1 && i < WF_ADAPTS; i++)
            ok = fill(s, net->weights[i], m, err);
    }
    wf_run_select(s->run, 0);
    return ok;
}

bool wf_stepper_init(struct wf_stepper *s, const struct wf_job *job, struct wf_comm *comm,
                     const struct wf_stepper_options *options, struct wf_err *err)
{
    const struct wf_stepper_options o = options ? *options : (struct wf_stepper_options){ 0 };
    struct wf_comm *const group = o.group ? o.group : comm;
    *s = (struct wf_stepper){ .job = job, .comm = comm };
    s->shares = wf_take_zeroed((size_t)wf_job_micro_batches(job), sizeof *s->shares);
    if (!make_run(s, &o, group, err))
        return false;
    s->optim = wf_optim_new(&job->settings.train.optim, s->run, err);
    struct wf_learner_options learner = wf_job_learner_options(job, group, s->optim);
    learner.worker = o.worker;
    bool ok = s->optim && wf_learner_init(&s->learner, &learner, s->run, err) &&
              wf_job_start_weights(job, s->run, err);
    if (ok && o.checkpoint)
        ok = wf_checkpoint_load(o.checkpoint, s->run, s->optim, err);
    if (ok && !o.is_fed)
        ok = fill_inputs(s, err);
    return wf_comm_agree(comm, ok, err);
}

void wf_stepper_release(struct wf_stepper *s)
{
    free(s->shares);
    wf_learner_release(&s->learner);
    wf_optim_free(s->optim);
    wf_run_free(s->run);
    wf_plan_free(s->plan);
    wf_global_plan_free(s->own);
    wf_device_close(s->context);
    *s = (struct wf_stepper){ 0 };
}

/* --- running --- */

bool wf_stepper_step(struct wf_stepper *s, struct wf_err *err)
{
    const struct wf_job *const job = s->job;
    const struct wf_shares_options options = {
        .comm = s->comm,
        .count = wf_job_micro_batches(job),
        .weighs = wf_job_micro_batches(job) > 1,
        .rank_mean = job->settings.train.reduction == WF_REDUCTION_RANK_MEAN,
    };
    if (!wf_reduction_shares(&job->net, s->run, &options, s->shares, err))
        return false;
    wf_learner_settle(&s->learner, s->run);
    s->scale = s->learner.scaler.scale;
    return wf_learner_step(&s->learner, s->run, s->shares, err);
}

bool wf_stepper_time(struct wf_stepper *s, double *seconds, double *waiting, struct wf_err *err)
{
    if (!wf_comm_barrier(s->comm, err))
        return false;
    const double start = wf_now();
    if (!wf_stepper_step(s, err) || !wf_run_wait(s->run, err) || !wf_comm_barrier(s->comm, err))
        return false;
    *seconds = wf_now() - start;
    *waiting = wf_run_times(s->run).comm;
    return true;
}

bool wf_stepper_loss(const struct wf_stepper *s, double *loss, struct wf_err *err)
{
    double total = 0;
    bool ok = true;
    *loss = 0;
    for (int m = 0; ok && m < wf_job_micro_batches(s->job); m++) {
        double one = 0;
        wf_run_select(s->run, m);
        ok = wf_run_get_number(s->run, s->job->net.loss, 0, &one, err);
        total += s->shares[m].weight;
        *loss += total > 0 ? s->shares[m].weight * (one - *loss) / total : 0;
    }
    wf_run_select(s->run, 0);
    return ok;
}

size_t wf_stepper_bytes(const struct wf_stepper *s)
{
    return wf_run_bytes(s->run) + wf_optim_bytes(&s->optim->options, s->optim->count);
}
