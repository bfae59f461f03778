#include "train/step.h"

#include <math.h>
#include <string.h>

#include "device/update_rule.h"

/* --- states --- */

static struct wf_view flat(float *data, size_t count)
{
    return wf_view_dense(data, WF_F32, wf_shape_region(WF_SHAPE(1, 1, 1, 1, (int64_t)count)));
}

static void copy_states(const struct wf_learner *l, struct wf_run *run, bool back)
{
    if (l->n_states == 0)
        return;
    const struct wf_view kept = flat(l->states, l->n_states);
    const struct wf_view own = flat(wf_run_states(run), l->n_states);
    l->options.optim->device->memory.copy(l->options.optim->context, back ? &own : &kept,
                                          back ? &kept : &own);
}

bool wf_learner_init(struct wf_learner *l, const struct wf_learner_options *options,
                     const struct wf_run *run, struct wf_err *err)
{
    *l = (struct wf_learner){ .options = *options, .scaler = options->scaler };
    if (l->scaler.scale == 0)
        l->scaler = wf_scaler_init(false);
    WF_BUG_ON(l->scaler.dynamic && !options->start, "loss scaling without a value to set");
    l->n_states = wf_run_state_count(run);
    if (l->n_states > 0)
        l->states = options->optim->device->memory.alloc(options->optim->context,
                                                         l->n_states * sizeof *l->states);
    return l->states || l->n_states == 0 ||
           wf_err_set(err, WF_ERR_FIT, "no memory to keep %zu running statistics", l->n_states);
}

void wf_learner_release(struct wf_learner *l)
{
    if (l->states)
        l->options.optim->device->memory.free(l->options.optim->context, l->states,
                                              l->n_states * sizeof *l->states);
    *l = (struct wf_learner){ 0 };
}

/* --- passes --- */

/* Where the backward pass of each micro-batch starts from. */
static void put_starts(const struct wf_learner *l, const struct wf_learner_pass *pass)
{
    if (!l->options.start)
        return;
    /* The run may be of a like graph for another batch: its value has the same place. */
    const struct wf_graph *const g = wf_run_plan(pass->run)->global->graph;
    const struct wf_value *const at = g->values[l->options.start->id];
    WF_BUG_ON(strcmp(at->name, l->options.start->name) != 0, "'%s' is '%s' there",
              l->options.start->name, at->name);
    if (!wf_run_view(pass->run, at).data) /* ranks without a loss of their own have none */
        return;
    for (int m = 0; m < pass->count; m++) {
        double start = l->scaler.scale;
        if (pass->shares)
            start *= pass->shares[m].start;
        if (pass->several && pass->shares) /* where nothing counts, gradients are zero */
            start *= pass->total > 0 ? pass->shares[m].weight / pass->total : 0;
        wf_run_select(pass->run, m);
        wf_run_put(pass->run, at, &(float){ (float)start });
    }
    wf_run_select(pass->run, 0);
}

bool wf_learner_pass(struct wf_learner *l, const struct wf_learner_pass *pass, struct wf_err *err)
{
    struct wf_run *const run = pass->run;
    float *const sum = l->options.optim->sum;
    WF_BUG_ON(pass->several && (!sum || !l->options.start || !pass->shares),
              "several micro-batches without a sum or a start");
    wf_learner_settle(l, run);
    if (!l->has_begun)
        copy_states(l, run, false);
    put_starts(l, pass);
    wf_run_set_count(run, pass->count);
    wf_run_set_carry(run, &(struct wf_run_carry){ .sum = pass->several ? sum : NULL,
                                                  .has_begun = l->has_begun,
                                                  .goes_on = pass->goes_on });
    if (!wf_run_step(run, err))
        return false;
    if (l->options.hook)
        l->options.hook(l->options.user, wf_run_grads(run), wf_run_trained_count(run));
    l->has_begun = true;
    return true;
}

/* --- the update --- */

/* Collective. Is every rank's gradient finite? The norm is rank 0's, so that all clip alike; or the sum of
 * all ranks' parts of it. */
static bool agree(const struct wf_learner *l, double *squares, struct wf_err *err)
{
    struct wf_comm *const comm = l->options.comm;
    double both[] = { isfinite(*squares) ? 0 : 1, 0 };
    if (both[0] == 0 && (wf_comm_rank(comm) == 0 || l->options.optim->counted))
        both[1] = *squares;
    if (wf_comm_size(comm) > 1 && !(wf_comm_sum(comm, both, 2, WF_F64, err)))
        return false;
    *squares = both[0] > 0 ? (double)NAN : both[1];
    return true;
}

/* By the server, which also says whether it was one. */
static bool update_elsewhere(struct wf_learner *l, struct wf_run *run, float *grads, double scale,
                             struct wf_err *err)
{
    struct wf_worker *const worker = l->options.worker;
    const struct wf_push push = {
        .grads = grads, .scale = scale, .lr = l->options.optim->lr, .last = l->last
    };
    if (!wf_worker_push(worker, run, &push, err))
        return false;
    l->skipped = worker->reply.skipped;
    l->norm = worker->reply.norm;
    l->has_begun = false;
    wf_scaler_update(&l->scaler, !l->skipped);
    if (l->skipped)
        copy_states(l, run, true);
    return true;
}

/* What the host keeps of an update. */
static void note(struct wf_learner *l, struct wf_run *run, double squares)
{
    l->skipped = !isfinite(squares);
    l->norm = sqrt(squares) / l->scaler.scale;
    l->waits = false;
    wf_scaler_update(&l->scaler, !l->skipped);
    if (l->skipped)
        copy_states(l, run, true);
}

void wf_learner_settle(struct wf_learner *l, struct wf_run *run)
{
    if (l->waits)
        note(l, run, wf_optim_read(l->options.optim));
}

bool wf_learner_update(struct wf_learner *l, struct wf_run *run, struct wf_err *err)
{
    struct wf_optim *const optim = l->options.optim;
    float *const grads = wf_run_grads(run), *const params = wf_run_params(run);
    WF_BUG_ON(!l->has_begun, "an update without a pass");
    const double scale = 1 / l->scaler.scale;
    if (l->options.worker)
        return update_elsewhere(l, run, grads, scale, err);
    l->has_begun = false;
    if (wf_comm_size(l->options.comm) == 1) {
        wf_optim_update_clipped(optim, params, grads, scale, l->options.clip);
        l->waits = true;
        return true;
    }
    double squares = wf_optim_squares(optim, grads);
    if (!agree(l, &squares, err))
        return false;
    if (isfinite(squares))
        wf_optim_update(optim, params, grads, wf_update_factor(squares, scale, l->options.clip));
    note(l, run, squares);
    return true;
}

bool wf_learner_step(struct wf_learner *l, struct wf_run *run, const struct wf_share shares[],
                     struct wf_err *err)
{
    struct wf_learner_pass pass = {
        .run = run,
        .count = wf_pipe_micro_batches(&wf_run_plan(run)->global->options.pipe),
        .shares = shares,
    };
    pass.several = pass.count > 1;
    for (int m = 0; shares && m < pass.count; m++)
        pass.total += shares[m].weight;
    return wf_learner_pass(l, &pass, err) && wf_learner_update(l, run, err);
}
