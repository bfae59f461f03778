#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "exec/holders.h"
#include "train/input.h"
#include "train/reduction.h"

struct trainer {
    const struct wf_trainer_options *o;
    struct wf_position at;
    struct wf_trainer_result *result;
    int64_t batches, steps;  /* of an epoch */
    struct wf_share *shares; /* of the micro-batches of a step */
    struct {
        double loss, samples, weight, pixels, seconds, comm, input;
    } sum;       /* of the passes of this step */
    bool writes; /* rank 0 */
    bool saved;  /* nothing happened since the last save */
    bool saving; /* rank 0: the last save is still being written */
    bool ended;  /* an epoch has, since the last save */
    /* Of the last save, and of the last one that is on the disk. */
    int64_t saved_step, written_step;
    double saved_time, written_time;
    struct wf_input input;
    double waited; /* seconds: the next step, for its data */
    int64_t until; /* see struct wf_pause */
    bool hooks_ok; /* of rank 0's reports; the others hear of it at the next meeting */
    struct wf_err hooks_err;
};

/* All since the last lap was that. */
static void lap(const struct trainer *t, enum wf_time_part part)
{
    (void)wf_times_lap(t->o->times, part);
}

static void keep_hook(struct trainer *t, bool ok, const struct wf_err *err)
{
    if (ok || !t->hooks_ok)
        return;
    t->hooks_ok = false;
    t->hooks_err = *err;
}

/* --- meeting --- */

enum { FAILED, STOP, SAVE, FULL, VOXELS, QUESTIONS };

/* Batches of a step: so many, or what is left of the epoch. */
static int64_t step_batches(const struct trainer *t)
{
    const int64_t each = t->o->accumulate > 0 ? t->o->accumulate : 1;
    return wf_min(each - t->at.batch % each, t->batches - t->at.batch);
}

/* Decided by rank 0's clock and the step count, and shared with the others. */
static bool wants_save(const struct trainer *t)
{
    if (!t->writes || t->saved)
        return false;
    if (t->ended && wf_now() - t->written_time >= t->o->checkpoint_seconds)
        return true;
    if (t->o->checkpoint_steps > 0 && t->at.step - t->written_step >= t->o->checkpoint_steps)
        return true;
    return t->o->checkpoint_minutes > 0 &&
           wf_now() - t->written_time >= 60 * t->o->checkpoint_minutes;
}

static bool is_due(const struct trainer *t)
{
    return wants_save(t) && !t->saving;
}

static bool wants_to_stop(const struct trainer *t)
{
    return t->o->hooks->stops && t->o->hooks->stops(t->o->user);
}

static bool is_async(const struct trainer *t)
{
    return t->o->workers > 0;
}

/* Collective. What every worker has of its own becomes the mean of all. */
static bool average(struct trainer *t, struct wf_err *err)
{
    struct wf_comm *const comm = t->o->comm;
    struct wf_run *const run = t->o->full.run;
    const size_t count = wf_run_state_count(run);
    float *const states = wf_run_states(run);
    double loss[] = { t->at.loss_sum, t->at.loss_samples };
    if (!wf_comm_sum(comm, states, count, WF_F32, err) || !wf_comm_sum(comm, loss, 2, WF_F64, err))
        return false;
    const int ranks = wf_comm_size(comm);
    for (size_t i = 0; i < count; i++)
        states[i] /= (float)ranks;
    t->at.loss_sum = loss[0] / ranks;
    t->at.loss_samples = loss[1] / ranks;
    return true;
}

/* Workers with batches of their own meet only where the server calls them, or an epoch ends: then
 * `*met`, and all have the same weights and statistics. */
static bool come_together(struct trainer *t, bool ok, bool *met, struct wf_err *err)
{
    struct wf_worker *const worker = t->o->learner->options.worker;
    *met = t->at.batch >= t->batches || worker->reply.meets;
    if (!ok) {
        wf_comm_abort(t->o->comm, err); /* the others do not call agree */
        return false;
    }
    return !*met || (wf_worker_meet(worker, t->o->full.run, err) && average(t, err));
}

/* A save that has failed since the last step is a failure of this one. Bests that are held back replace each other, and
 * none is on the disk: the next save is due as if they had not been. */
static void look_at_save(struct trainer *t)
{
    struct wf_err err = { 0 };
    t->saving = false;
    if (t->writes && t->o->hooks->saving)
        keep_hook(t, t->o->hooks->saving(t->o->user, &t->saving, &err), &err);
    if (!t->saving) {
        t->written_step = t->saved_step;
        t->written_time = t->saved_time;
    } else if (wants_save(t) && t->o->hooks->hurry) {
        t->o->hooks->hurry(t->o->user);
    }
}

/* Collective. A request of any rank becomes a request of all. */
static bool meet(struct trainer *t, bool ok, int64_t requested[QUESTIONS], struct wf_err *err)
{
    look_at_save(t);
    if (!t->hooks_ok && ok) {
        *err = t->hooks_err;
        ok = false;
    }
    bool met = true;
    memset(requested, 0, QUESTIONS * sizeof *requested);
    if (is_async(t) && !come_together(t, ok, &met, err))
        return false;
    if (!met)
        return true;
    requested[FAILED] = !ok;
    requested[STOP] = wants_to_stop(t);
    requested[SAVE] = is_due(t);
    requested[FULL] = t->input.full != NULL;
    requested[VOXELS] = t->input.voxels;
    if (!wf_comm_sum(t->o->comm, requested, QUESTIONS, WF_I64, err))
        return false;
    return requested[FAILED] == 0 || wf_comm_agree(t->o->comm, ok, err);
}

/* Collective. */
static bool save(struct trainer *t, bool is_best, struct wf_err *err)
{
    lap(t, WF_TIME_REST);
    t->at.seconds = t->o->start.seconds + wf_times_total(t->o->times);
    bool ok = t->hooks_ok; /* a run that goes on from here does not report again what was not */
    if (!ok)
        *err = t->hooks_err;
    struct wf_learner_options *const l = &t->o->learner->options;
    if (ok && t->writes && l->worker)
        ok = wf_worker_fetch(l->worker, l->optim, err);
    if (ok && t->writes && t->o->hooks->save)
        ok = t->o->hooks->save(t->o->user, &t->at, is_best, err);
    if (!wf_run_is_whole(t->o->full.run) && t->o->hooks->save)
        ok =
            (t->writes ? wf_run_ask_end(t->o->full.run, err)
                       : wf_run_serve(t->o->full.run, l->optim->states, l->optim->n_states, err)) &&
            ok;
    t->saved = true;
    t->ended = false;
    t->saved_step = t->at.step;
    t->saved_time = wf_now();
    ok = wf_comm_agree(t->o->comm, ok, err);
    lap(t, WF_TIME_CHECKPOINTS);
    return ok;
}

/* --- a pass --- */

/* Collective. How much each micro-batch counts. */
static bool find_shares(struct trainer *t, int64_t full, int64_t all, struct wf_err *err)
{
    struct wf_shares_options o = { .comm = t->o->comm,
                                   .count = (int)full,
                                   .weighs = t->o->accumulate > 1,
                                   .rank_mean = t->o->rank_mean };
    if (full > 0 && !wf_reduction_shares(t->o->full.network, t->o->full.run, &o, t->shares, err))
        return false;
    o.count = 1;
    return all == full ||
           wf_reduction_shares(t->o->rest.network, t->o->rest.run, &o, t->shares + full, err);
}

/* The losses of several domains count from some step on, or more and more; plan and recordings know nothing of
 * it. */
static void weigh_domains(struct trainer *t, const struct wf_learner_pass *pass,
                          const struct wf_network *net)
{
    const struct wf_adapt_settings *const a = t->o->adapt;
    for (int i = 0; t->o->n_targets > 0 && i < WF_ADAPTS; i++) {
        const double past = (double)(t->at.step - a->from + 1);
        const double share = past <= 0 ? 0 : a->over > 0 ? fmin(1, past / (double)a->over) : 1;
        const float weight = (float)(share * a->weight[i]);
        for (int m = 0; wf_run_view(pass->run, net->weights[i]).data && m < pass->count; m++) {
            wf_run_select(pass->run, m);
            wf_run_put(pass->run, net->weights[i], &weight);
        }
    }
    wf_run_select(pass->run, 0);
}

/* Collective. What the micro-batches of the pass were. */
static bool read_losses(struct trainer *t, const struct wf_learner_pass *pass,
                        const struct wf_network *net, struct wf_err *err)
{
    const int64_t *const e = net->image->shape.at;
    const double samples = (double)(t->o->full.points ? net->graph->samples : e[WF_N]);
    bool ok = true;
    for (int m = 0; ok && m < pass->count; m++) {
        double loss = 0;
        wf_run_select(pass->run, m);
        ok = wf_run_get_number(pass->run, net->loss, 0, &loss, err);
        t->sum.loss += pass->shares[m].weight * loss;
        t->sum.weight += pass->shares[m].weight;
        t->sum.samples += samples;
        /* Where every worker has a batch of its own, the others have made as many meanwhile. */
        if (!t->o->full.points)
            t->sum.pixels += samples * (double)e[WF_D] * (double)e[WF_H] * (double)e[WF_W] *
                             (is_async(t) ? t->o->workers : 1);
    }
    wf_run_select(pass->run, 0);
    if (!ok)
        wf_comm_abort(t->o->comm, err); /* the others go on */
    return ok;
}

/* Collective. The batches of the step that a part has. */
static bool pass(struct trainer *t, const struct wf_trainer_part *part,
                 struct wf_learner_pass *pass, struct wf_err *err)
{
    const double start = wf_now();
    struct wf_worker *const worker = t->o->learner->options.worker;
    pass->run = part->run;
    /* Dropout's numbers are those of the batch, whichever plan it runs on. */
    wf_run_set_step(pass->run, (uint64_t)(t->at.epoch * t->batches + t->at.batch));
    if (worker && !wf_worker_pull(worker, pass->run, err))
        return false;
    t->sum.comm += worker ? wf_now() - start : 0;
    weigh_domains(t, pass, part->network);
    if (!wf_learner_pass(t->o->learner, pass, err))
        return false;
    wf_input_load_ahead(&t->input, t->at.batch);
    if (!read_losses(t, pass, part->network, err))
        return false;
    t->sum.seconds += wf_now() - start;
    t->sum.comm += wf_run_times(pass->run).comm;
    t->at.batch += pass->count;
    return true;
}

/* Collective. All passes of a step: those of full batches, and perhaps the epoch's rest. */
static bool passes(struct trainer *t, struct wf_err *err)
{
    const int64_t all = step_batches(t);
    const int64_t full = all - (wf_input_part(&t->input, t->at.batch + all - 1) == &t->o->rest);
    t->sum.seconds += t->waited;
    t->sum.input += t->waited;
    if (!find_shares(t, full, all, err))
        return false;
    struct wf_learner_pass p = { .count = (int)full,
                                 .shares = t->shares,
                                 .goes_on = all > full,
                                 .several = t->o->accumulate > 1 };
    for (int64_t i = 0; i < all; i++)
        p.total += t->shares[i].weight;
    if (full > 0 && !pass(t, &t->o->full, &p, err))
        return false;
    p.count = 1;
    p.shares = t->shares + full;
    p.goes_on = false;
    return all == full || pass(t, &t->o->rest, &p, err);
}

/* --- a step --- */

static void report_step(struct trainer *t, double loss, double loss_scale)
{
    t->result->pixels += t->sum.pixels;
    lap(t, WF_TIME_STEPS);
    wf_times_add_comm(t->o->times, t->sum.comm);
    if (!t->writes || !t->o->hooks->stepped)
        return;
    const struct wf_step_report report = {
        .at = &t->at,
        .batches = t->batches,
        .loss = loss,
        .lr = t->o->learner->options.optim->lr,
        .skipped = t->o->learner->skipped,
        .norm = t->o->learner->norm,
        .loss_scale = loss_scale,
        .seconds = t->sum.seconds,
        .compute = t->sum.seconds - t->sum.input - t->sum.comm,
        .comm = t->sum.comm,
        .input = t->sum.input,
        .pixels = t->sum.pixels,
        .elapsed = wf_times_trained(t->o->times),
    };
    struct wf_err err = { 0 };
    keep_hook(t, t->o->hooks->stepped(t->o->user, &report, &err), &err);
}

static bool too_many_skipped(const struct trainer *t, double loss, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FAILED,
                      "%" PRId64 " steps in a row had a gradient that is not finite, up to step "
                      "%" PRId64 " (loss %g): lower train.lr, or look at the data ('widefield data "
                      "inspect'); the weights are those before",
                      t->at.in_a_row, t->at.step, loss);
}

/* What the last save is still copying is not to change. A failure ends the run before the next step. */
static void settle(struct trainer *t)
{
    struct wf_err err = { 0 };
    if (t->writes && t->o->hooks->settle)
        keep_hook(t, t->o->hooks->settle(t->o->user, &err), &err);
}

/* Collective. The update that the passes make. */
static bool update(struct trainer *t, struct wf_err *err)
{
    struct wf_learner *const l = t->o->learner;
    const double start = wf_now(), scale = l->scaler.scale;
    if (t->o->schedule)
        l->options.optim->lr =
            wf_schedule_lr(t->o->schedule, &t->at.schedule, t->at.step, t->steps);
    if (l->options.worker)
        l->options.worker->asks = wants_to_stop(t) || is_due(t);
    l->last = t->at.batch >= t->batches;
    settle(t);
    if (!wf_learner_update(l, t->o->full.run, err))
        return false;
    wf_learner_settle(l, t->o->full.run);
    t->sum.seconds += wf_now() - start;
    t->sum.comm += l->options.worker ? wf_now() - start : 0;
    const double loss = t->sum.weight > 0 ? t->sum.loss / t->sum.weight : 0;
    t->at.step++;
    t->at.skipped += l->skipped;
    t->at.in_a_row = l->skipped ? t->at.in_a_row + 1 : 0;
    if (!l->skipped) {
        t->at.loss_sum += loss * t->sum.samples;
        t->at.loss_samples += t->sum.samples;
    }
    t->at.loss_scale = l->scaler.scale;
    t->at.scale_streak = l->scaler.streak;
    t->saved = false;
    report_step(t, loss, scale);
    memset(&t->sum, 0, sizeof t->sum);
    if (t->o->skip_limit > 0 && t->at.in_a_row >= t->o->skip_limit)
        return too_many_skipped(t, loss, err);
    return true;
}

/* --- the end of an epoch --- */

/* NaN where every step was skipped. */
static double mean_loss(const struct trainer *t)
{
    return t->at.loss_samples > 0 ? t->at.loss_sum / t->at.loss_samples : (double)NAN;
}

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
    if (!wf_validator_run(t->o->validator, t->o->full.run, err)) {
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

/* Collective. The schedule sees the loss that rank 0 has, so that all go on with one rate. */
static bool watch(struct trainer *t, const struct wf_epoch_report *report, struct wf_err *err)
{
    if (!t->o->schedule || (t->o->validator && !report->validated))
        return true;
    double loss = report->validated ? wf_validator_loss(report->validated) : report->train_loss;
    if (!wf_comm_broadcast(t->o->comm, 0, &loss, sizeof loss, err))
        return false;
    wf_schedule_watch(t->o->schedule, &t->at.schedule, loss);
    return true;
}

/* Collective. */
static bool end_epoch(struct trainer *t, bool *over, struct wf_err *err)
{
    struct wf_epoch_report report = { .epoch = t->at.epoch,
                                      .step = t->at.step,
                                      .train_loss = mean_loss(t) };
    if (t->o->learner->options.worker)
        report.server = &t->o->learner->options.worker->reply;
    bool seen;
    const bool ok = validate(t, &report, &seen, err);
    lap(t, WF_TIME_VALIDATION);
    if (!ok)
        return false;
    if (!seen) {
        const bool full =
            t->o->validator && wf_validator_is_full(t->o->validator, t->result->needs[1]);
        t->result->end = full ? WF_END_FULL : WF_END_SIGNAL;
        *over = true;
        if (full)
            return true;
        return save(t, false, err);
    }
    if (report.validated || !t->o->validator) {
        const bool counts =
            isfinite(report.metric) && !(report.validated && wf_validator_failed(report.validated));
        report.is_best = counts && (t->at.best_epoch < 0 || report.metric > t->at.best);
        t->at.stale = report.is_best ? 0 : t->at.stale + 1;
    }
    if (report.is_best) {
        t->at.best = report.metric;
        t->at.best_epoch = t->at.epoch;
    }
    if (!watch(t, &report, err))
        return false;
    /* The report first: where a run is killed between the two, the epoch ends, and is reported, again. */
    if (t->writes && t->o->hooks->epoch_ended) {
        struct wf_err own = { 0 };
        keep_hook(t, t->o->hooks->epoch_ended(t->o->user, &report, &own), &own);
    }
    t->at.epoch++;
    t->at.batch = 0;
    t->at.loss_sum = t->at.loss_samples = 0;
    t->at.loss = report.train_loss;
    t->saved = false;
    t->ended = true; /* an epoch that is neither best nor last is saved when it is due */
    if (t->o->early_stop > 0 && t->at.stale >= t->o->early_stop) {
        t->result->end = WF_END_EARLY;
        *over = true;
    }
    const bool is_over = *over || t->at.epoch >= t->o->epochs;
    return (!report.is_best && !is_over) || save(t, report.is_best, err);
}

/* --- the loop --- */

/* One round: a step, or the end of an epoch. */
static bool advance(struct trainer *t, bool *over, struct wf_err *err)
{
    const bool ends = t->at.batch >= t->batches;
    int64_t requested[QUESTIONS];
    lap(t, WF_TIME_REST);
    const double start = wf_now();
    const bool ok = ends || wf_input_load(&t->input, t->at.batch, step_batches(t), err);
    t->waited = ends ? 0 : wf_now() - start;
    lap(t, WF_TIME_INPUT);
    if (!meet(t, ok, requested, err))
        return false;
    wf_times_add_comm(t->o->times, wf_times_lap(t->o->times, WF_TIME_STEPS));
    if ((requested[SAVE] || requested[STOP]) && !t->saved && !save(t, false, err))
        return false;
    if (requested[STOP] || requested[FULL]) {
        t->result->end = requested[STOP] ? WF_END_SIGNAL : WF_END_FULL;
        *over = true;
        return requested[STOP] || wf_points_needs(t->o->full.points, t->o->comm, t->input.full,
                                                  t->result->needs[0], err);
    }
    if (ends)
        return end_epoch(t, over, err);
    t->sum.pixels += (double)requested[VOXELS];
    return passes(t, err) && update(t, err);
}

/* Collective. False: the run ends. One that is stopped saves. */
static bool goes_on(struct trainer *t, bool ended, bool *ok, struct wf_err *err)
{
    const struct wf_pause pause = { .o = t->o,
                                    .at = &t->at,
                                    .epoch_ends = t->at.batch >= t->batches,
                                    .ended = ended,
                                    .until = &t->until };
    if (!t->o->hooks->pause || t->o->hooks->pause(t->o->user, &pause))
        return !ended;
    if (!ended) {
        t->result->end = WF_END_SIGNAL;
        *ok = t->saved || save(t, false, err);
    }
    return false;
}

static void begin(struct trainer *t)
{
    const struct wf_trainer_options *const o = t->o;
    const int64_t each = o->accumulate > 0 ? o->accumulate : 1;
    t->batches = wf_loader_batches(o->loader);
    t->steps = wf_ceil_div(t->batches, each);
    WF_BUG_ON(o->rest.run && wf_loader_rest(o->loader) != o->rest.network->image->shape.at[WF_N],
              "a last batch of %" PRId64 " rows", wf_loader_rest(o->loader));
    if (t->at.step > 0 && o->learner->scaler.dynamic) {
        o->learner->scaler.scale = t->at.loss_scale;
        o->learner->scaler.streak = t->at.scale_streak;
    }
    wf_input_seek(o);
}

bool wf_trainer_run(const struct wf_trainer_options *options, struct wf_trainer_result *result,
                    struct wf_err *err)
{
    *result = (struct wf_trainer_result){ .metric = (double)NAN };
    struct trainer t = { .o = options,
                         .at = options->start,
                         .result = result,
                         .writes = wf_comm_rank(options->comm) == 0,
                         .saved = options->start.step > 0,
                         .saved_step = options->start.step,
                         .saved_time = wf_now(),
                         .hooks_ok = true };
    wf_input_init(&t.input, options);
    t.shares = wf_take_zeroed((size_t)options->accumulate + 1, sizeof *t.shares);
    begin(&t);
    bool over = false, ok = true;
    while (ok && goes_on(&t, over || t.at.epoch >= options->epochs, &ok, err))
        ok = advance(&t, &over, err);
    if (!ok && is_async(&t))
        wf_comm_abort(options->comm, err); /* the others do not call agree */
    if (ok && !t.hooks_ok)
        *err = t.hooks_err;
    result->loss = t.at.batch > 0 ? mean_loss(&t) : t.at.step > 0 ? t.at.loss : (double)NAN;
    result->at = t.at;
    ok = wf_comm_agree(options->comm, ok && t.hooks_ok, err);
    free(t.shares);
    wf_input_release(&t.input);
    return ok;
}
