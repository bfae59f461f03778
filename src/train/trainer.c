#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <time.h>

struct trainer {
    const struct wf_trainer_options *o;
    struct wf_position at;
    struct wf_trainer_result *result;
    int64_t batches;
    bool writes; /* rank 0 */
    bool saved;  /* nothing happened since the last save */
    int64_t saved_step;
    double saved_time;
    struct wf_host image, target;
    double input;  /* seconds that the next step has waited for its data */
    bool hooks_ok; /* of rank 0's reports; the others hear of it at the next meeting */
    struct wf_err hooks_err;
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep_hook(struct trainer *t, bool ok, const struct wf_err *err)
{
    if (ok || !t->hooks_ok)
        return;
    t->hooks_ok = false;
    t->hooks_err = *err;
}

/* --- meeting --- */

enum { FAILED, STOP, SAVE, QUESTIONS };

static bool load(struct trainer *t, struct wf_err *err)
{
    const double start = now();
    wf_run_map(t->o->run, t->o->network->image, &t->image);
    wf_run_map(t->o->run, t->o->network->target, &t->target);
    const bool ok = wf_loader_next(t->o->loader, &t->image.view, &t->target.view, err);
    wf_host_put(&t->image);
    wf_host_put(&t->target);
    t->input = now() - start;
    return ok;
}

/* Rank 0's clock and the step count say when; the others are told. */
static bool is_due(const struct trainer *t)
{
    if (!t->writes || t->saved)
        return false;
    if (t->o->checkpoint_steps > 0 && t->at.step - t->saved_step >= t->o->checkpoint_steps)
        return true;
    return t->o->checkpoint_minutes > 0 && now() - t->saved_time >= 60 * t->o->checkpoint_minutes;
}

/* Collective. What anybody asked for is asked of all. */
static bool meet(struct trainer *t, bool ok, int64_t asked[QUESTIONS], struct wf_err *err)
{
    if (!t->hooks_ok && ok) {
        *err = t->hooks_err;
        ok = false;
    }
    asked[FAILED] = !ok;
    asked[STOP] = t->o->hooks->stops && t->o->hooks->stops(t->o->user);
    asked[SAVE] = is_due(t);
    struct wf_request *request = NULL;
    if (!wf_comm_sum_begin(t->o->comm, asked, QUESTIONS, WF_I64, &request, err) ||
        !wf_comm_sum_end(t->o->comm, request, err))
        return false;
    return asked[FAILED] == 0 || wf_comm_agree(t->o->comm, ok, err);
}

/* Collective. */
static bool save(struct trainer *t, bool is_best, struct wf_err *err)
{
    bool ok = true;
    if (t->writes && t->o->hooks->save)
        ok = t->o->hooks->save(t->o->user, &t->at, is_best, err);
    t->saved = true;
    t->saved_step = t->at.step;
    t->saved_time = now();
    return wf_comm_agree(t->o->comm, ok, err);
}

/* --- a step --- */

static void report_step(struct trainer *t, double loss, double seconds)
{
    if (!t->writes || !t->o->hooks->stepped)
        return;
    const int64_t *const e = t->o->network->image->shape.at;
    const struct wf_run_times times = wf_run_times(t->o->run);
    const struct wf_step_report report = {
        .at = &t->at,
        .batches = t->batches,
        .loss = loss,
        .lr = t->o->learner->options.optim->lr,
        .seconds = seconds,
        .compute = seconds - t->input - times.comm,
        .comm = times.comm,
        .input = t->input,
        .pixels = (double)e[WF_N] * (double)e[WF_D] * (double)e[WF_H] * (double)e[WF_W],
    };
    t->result->pixels += report.pixels;
    struct wf_err err = { 0 };
    keep_hook(t, t->o->hooks->stepped(t->o->user, &report, &err), &err);
}

static bool step(struct trainer *t, struct wf_err *err)
{
    const double start = now();
    double loss = 0;
    if (!wf_learner_step(t->o->learner, t->o->run, err))
        return false;
    if (!wf_run_get_number(t->o->run, t->o->network->loss, &loss, err)) {
        wf_comm_abort(t->o->comm, err); /* the others go on to the next step */
        return false;
    }
    const double seconds = now() - start + t->input;
    t->at.step++;
    t->at.batch++;
    t->at.loss_sum += loss;
    t->at.seconds += seconds;
    t->result->seconds += seconds;
    t->saved = false;
    if (!isfinite(loss)) /* the same on every rank: it is a sum over all of them */
        return wf_err_set(err, WF_ERR_FAILED,
                          "the loss is %g at step %" PRId64
                          ": lower train.lr, or look at the data ('widefield data inspect'); the "
                          "last checkpoint is from before",
                          loss, t->at.step);
    report_step(t, loss, seconds);
    return true;
}

/* --- the end of an epoch --- */

static bool is_last(const struct trainer *t)
{
    return t->at.epoch + 1 >= t->o->epochs;
}

/* False in `*seen`: a signal came meanwhile, and the epoch has not ended. */
static bool validate(struct trainer *t, struct wf_epoch_report *report, bool *seen,
                     struct wf_err *err)
{
    *seen = true;
    report->metric = -report->train_loss;
    if (!t->o->validator)
        return true;
    const int64_t every = t->o->validate_every > 0 ? t->o->validate_every : 1;
    if ((t->at.epoch + 1) % every != 0 && !is_last(t))
        return true;
    if (!wf_validator_run(t->o->validator, t->o->run, err)) {
        if (err->code != WF_ERR_STOPPED)
            return false;
        *err = (struct wf_err){ 0 };
        *seen = false;
        return true;
    }
    report->validated = t->o->validator;
    report->metric = wf_validator_metric(t->o->validator);
    t->result->metric = report->metric;
    return true;
}

/* Collective. */
static bool end_epoch(struct trainer *t, bool *over, struct wf_err *err)
{
    struct wf_epoch_report report = { .epoch = t->at.epoch,
                                      .step = t->at.step,
                                      .train_loss = t->at.loss_sum / (double)t->at.batch };
    bool seen;
    if (!validate(t, &report, &seen, err))
        return false;
    if (!seen) {
        t->result->end = WF_END_SIGNAL;
        *over = true;
        return save(t, false, err);
    }
    if (report.validated || !t->o->validator) {
        report.is_best = t->at.best_epoch < 0 || report.metric > t->at.best;
        t->at.stale = report.is_best ? 0 : t->at.stale + 1;
    }
    if (report.is_best) {
        t->at.best = report.metric;
        t->at.best_epoch = t->at.epoch;
    }
    /* The report first: where a run is killed between the two, the epoch ends, and is reported, again. */
    if (t->writes && t->o->hooks->epoch_ended) {
        struct wf_err own = { 0 };
        keep_hook(t, t->o->hooks->epoch_ended(t->o->user, &report, &own), &own);
    }
    t->at.epoch++;
    t->at.batch = 0;
    t->at.loss_sum = 0;
    t->at.loss = report.train_loss;
    if (!save(t, report.is_best, err))
        return false;
    if (t->o->early_stop > 0 && t->at.stale >= t->o->early_stop) {
        t->result->end = WF_END_EARLY;
        *over = true;
    }
    return true;
}

/* --- the loop --- */

/* One round: a step, or the end of an epoch. */
static bool advance(struct trainer *t, bool *over, struct wf_err *err)
{
    const bool ends = t->at.batch >= t->batches;
    int64_t asked[QUESTIONS];
    const bool ok = ends || load(t, err);
    if (!meet(t, ok, asked, err))
        return false;
    if ((asked[SAVE] || asked[STOP]) && !t->saved && !save(t, false, err))
        return false;
    if (asked[STOP]) {
        t->result->end = WF_END_SIGNAL;
        *over = true;
        return true;
    }
    return ends ? end_epoch(t, over, err) : step(t, err);
}

bool wf_trainer_run(const struct wf_trainer_options *options, struct wf_trainer_result *result,
                    struct wf_err *err)
{
    *result = (struct wf_trainer_result){ .metric = (double)NAN };
    struct trainer t = { .o = options,
                         .at = options->start,
                         .result = result,
                         .batches = wf_loader_batches(options->loader),
                         .writes = wf_comm_rank(options->comm) == 0,
                         .saved = options->start.step > 0,
                         .saved_step = options->start.step,
                         .saved_time = now(),
                         .hooks_ok = true };
    const bool ended = t.at.batch >= t.batches;
    wf_loader_seek(options->loader, t.at.epoch + ended, ended ? 0 : t.at.batch);
    bool over = false, ok = true;
    while (ok && !over && t.at.epoch < options->epochs)
        ok = advance(&t, &over, err);
    if (ok && !t.hooks_ok)
        *err = t.hooks_err;
    ok = wf_comm_agree(options->comm, ok && t.hooks_ok, err);
    result->loss = t.at.batch > 0  ? t.at.loss_sum / (double)t.at.batch
                   : t.at.step > 0 ? t.at.loss
                                   : (double)NAN;
    result->at = t.at;
    wf_host_release(&t.image);
    wf_host_release(&t.target);
    return ok;
}
