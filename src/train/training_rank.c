/* What one rank does of a training run: it plans, trains, validates, and tells the log. */
#include "train/training.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/memory.h"
#include "train/foresight.h"
#include "train/input.h"
#include "train/pictures.h"
#include "train/reduction.h"
#include "train/stepper.h"
#include "train/training_log.h"

/* What one rank holds. */
struct rank {
    struct wf_training *t;
    struct wf_comm *world; /* with the server, where there is one */
    struct wf_comm *comm;  /* the mesh's ranks */
    struct wf_comm *group; /* that make a step together; NULL: all of comm */
    struct wf_worker worker;
    struct wf_stepper full;
    struct wf_plan *rest_plan; /* of the smaller batch at an epoch's end */
    struct wf_run *rest_run;
    struct wf_loader *loader, *valid_loader;
    struct wf_whole whole;                       /* of validation in windows */
    struct wf_points_rank points, valid_points;  /* of point clouds */
    struct wf_loader **targets, **valid_targets; /* of each target domain; or NULL */
    struct wf_validator *validator;              /* the first domain's, and behind it the others */
    struct wf_saver saver;                       /* rank 0's */
    struct wf_times *times;                      /* the run's, on rank 0; NULL on others */
    int64_t prepare;                             /* bytes that were read before there was a batch */
};

/* --- hooks --- */

static bool stepped(void *user, const struct wf_step_report *report, struct wf_err *err)
{
    struct wf_training *const t = user;
    if (t->hooks->stepped)
        t->hooks->stepped(t->user, report);
    return wf_journal_step(t->journal, report, err);
}

static bool epoch_ended(void *user, const struct wf_epoch_report *report, struct wf_err *err)
{
    struct wf_training *const t = user;
    if (t->hooks->epoch_ended)
        t->hooks->epoch_ended(t->user, report);
    return wf_journal_epoch(t->journal, report, err) &&
           (!report->is_best || !report->validated || !t->valid.has_classes ||
            wf_training_log_confusion(t, wf_validator_metrics(report->validated), report->epoch + 1,
                                      err));
}

static bool save(void *user, const struct wf_position *at, bool is_best, struct wf_err *err)
{
    const struct wf_training *const t = user;
    return wf_saver_save(t->saver, at, is_best, err);
}

static bool settle(void *user, struct wf_err *err)
{
    const struct wf_training *const t = user;
    return wf_saver_settle(t->saver, err);
}

static bool saving(void *user, bool *busy, struct wf_err *err)
{
    const struct wf_training *const t = user;
    return wf_saver_look(t->saver, busy, err);
}

static void hurry(void *user)
{
    const struct wf_training *const t = user;
    wf_saver_hurry(t->saver);
}

static bool stops(void *user)
{
    const struct wf_training *const t = user;
    return t->hooks->stops && t->hooks->stops(t->user);
}

static bool pause(void *user, const struct wf_pause *p)
{
    const struct wf_training *const t = user;
    if (!t->hooks->pause)
        return true;
    /* Who steers the run may set weights, and finds all files at its end; what fails is reported later. */
    struct wf_err err = { 0 };
    if (wf_comm_rank(p->o->comm) == 0)
        (void)!(p->ended ? wf_saver_finish(t->saver, &err) : wf_saver_settle(t->saver, &err));
    return t->hooks->pause(t->user, p);
}

static const struct wf_trainer_hooks hooks = { .stepped = stepped,
                                               .epoch_ended = epoch_ended,
                                               .save = save,
                                               .settle = settle,
                                               .saving = saving,
                                               .hurry = hurry,
                                               .stops = stops,
                                               .pause = pause };

/* --- making --- */

/* Which part of the mesh's axis `data` this rank is in. */
static int data_part(const struct wf_job *job, const struct wf_comm *comm)
{
    int at[WF_MESH_AXES];
    wf_mesh_coords(&job->mesh, wf_comm_rank(comm), at);
    return at[WF_MESH_DATA];
}

/* Collective over the world: the server is its last rank. */
static bool take_role(struct rank *r, bool *serves, struct wf_err *err)
{
    const struct wf_job *const job = r->t->job;
    *serves = wf_job_servers(job) && wf_comm_rank(r->world) == wf_comm_size(r->world) - 1;
    if (!wf_job_servers(job)) {
        r->comm = r->world;
        return true;
    }
    if (!wf_comm_split(r->world, *serves, &r->comm, err))
        return false;
    if (!*serves && job->workers > 0 &&
        !wf_comm_split(r->comm, data_part(job, r->comm), &r->group, err))
        return false;
    r->worker = (struct wf_worker){ .options = { r->world, r->group, job->files.sync } };
    return true;
}

static bool make_run(struct rank *r, struct wf_err *err)
{
    const struct wf_job *const job = r->t->job;
    return wf_stepper_init(
        &r->full, job, r->comm,
        &(struct wf_stepper_options){ .group = r->group,
                                      .worker = wf_job_servers(job) ? &r->worker : NULL,
                                      .checkpoint = r->t->folder->checkpoint,
                                      .is_fed = true },
        err);
}

/* The smaller batch at an epoch's end. */
static bool make_rest(struct rank *r, struct wf_err *err)
{
    if (!r->t->rest_global)
        return true;
    r->rest_plan = wf_plan_new_on(r->t->rest_global, wf_comm_rank(r->comm), r->full.context, err);
    if (!wf_comm_agree(r->comm, r->rest_plan != NULL, err))
        return false;
    r->rest_run =
        wf_run_new_beside(r->full.run, r->rest_plan, r->t->settings.train.accumulate > 1, err);
    if (r->rest_run && r->t->job->files.sync == WF_SYNC_SERVER)
        wf_run_keep_parts(r->rest_run);
    return r->rest_run != NULL;
}

static bool has_images(const struct rank *r, int domain)
{
    return wf_run_view(r->full.run, r->t->job->net.images[domain]).data != NULL;
}

static bool make_loaders(struct rank *r, struct wf_err *err)
{
    struct wf_training *const t = r->t;
    struct wf_loader_options options = wf_feed_loader(&t->feed, &t->job->net);
    options.parts = t->job->workers;
    if (options.parts > 0)
        options.part_at = data_part(t->job, r->comm);
    const int me = wf_comm_rank(r->comm);
    const bool sparse = t->job->model->sparse;
    if (sparse) {
        r->points = wf_points_rank(&t->job->net, &t->job->mesh, me);
        wf_points_ask(&r->points, &options);
    }
    r->loader = wf_loader_new(t->feed.dataset, &options, err);
    bool ok = r->loader != NULL;
    r->targets = wf_take_zeroed((size_t)t->targets.n + 1, sizeof *r->targets);
    r->valid_targets = wf_take_zeroed((size_t)t->targets.n + 1, sizeof *r->valid_targets);
    for (int k = 0; ok && k < t->targets.n; k++) {
        const struct wf_target *const target = &t->targets.at[k];
        if (!has_images(r, k + 1))
            continue;
        options = wf_target_loader(&t->feed, &t->job->net, k + 1);
        r->targets[k] = wf_loader_new(target->dataset, &options, err);
        ok = r->targets[k] != NULL;
        if (!ok || !target->net.graph)
            continue;
        options = wf_feed_valid_loader(&t->feed, &target->net);
        r->valid_targets[k] = wf_loader_new(target->dataset, &options, err);
        ok = r->valid_targets[k] != NULL;
    }
    if (ok && t->valid.graph) {
        options = wf_training_valid_loader(t);
        if (sparse) {
            r->valid_points = wf_points_rank(&t->valid, &t->job->mesh, me);
            wf_points_ask(&r->valid_points, &options);
        }
        r->valid_loader = wf_loader_new(t->feed.dataset, &options, err);
        ok = r->valid_loader != NULL;
    }
    r->prepare = (int64_t)wf_dataset_bytes_read(t->feed.dataset);
    return wf_comm_agree(r->comm, ok, err);
}

/* Collective. Of the first domain, with weights of its own, and of the targets, in the memory of training. */
static bool make_validators(struct rank *r, struct wf_err *err)
{
    struct wf_training *const t = r->t;
    if (!t->valid.graph)
        return true;
    struct wf_validator_options options = { .comm = r->comm,
                                            .network = &t->valid,
                                            .global = t->valid_global,
                                            .context = r->full.context,
                                            .loader = r->valid_loader,
                                            .points =
                                                t->job->model->sparse ? &r->valid_points : NULL,
                                            .samples = t->feed.info->samples,
                                            .seed = t->job->settings.train.seed,
                                            .stops = stops,
                                            .user = t };
    if (t->windows.used) {
        r->whole = (struct wf_whole){ .job = t->job,
                                      .feed = &t->feed,
                                      .comm = r->comm,
                                      .context = r->full.context,
                                      .loader = r->valid_loader,
                                      .memory = { t->windows.limit, t->windows.keep, false },
                                      .lender = r->full.run };
        options.whole = &r->whole;
        options.loader = NULL;
        options.lender = r->full.run;
    }
    r->validator = wf_validator_new(&options, err);
    bool ok = r->validator != NULL;
    for (int k = 0; ok && k < t->targets.n; k++) {
        const struct wf_target *const target = &t->targets.at[k];
        if (!target->net.graph)
            continue;
        options.network = &target->net;
        options.global = target->global;
        options.loader = r->valid_targets[k];
        options.samples = target->samples;
        options.domain = k + 1;
        options.lender = r->full.run;
        struct wf_validator *const v = wf_validator_new(&options, err);
        ok = v != NULL;
        if (ok)
            wf_validator_append(r->validator, v);
    }
    return ok;
}

/* Collective. */
static bool make_saver(struct rank *r, struct wf_err *err)
{
    bool ok = true;
    if (wf_comm_rank(r->comm) == 0) {
        ok = wf_saver_init(&r->saver, r->t, r->full.run, r->full.optim, err);
        r->t->saver = &r->saver;
    }
    return wf_comm_agree(r->comm, ok, err);
}

static void release(struct rank *r)
{
    wf_saver_release(&r->saver);
    wf_validator_free(r->validator);
    wf_whole_release(&r->whole);
    wf_loader_free(r->valid_loader);
    for (int k = 0; r->targets && k < r->t->targets.n; k++) {
        wf_loader_free(r->targets[k]);
        wf_loader_free(r->valid_targets[k]);
    }
    free(r->targets);
    free(r->valid_targets);
    wf_loader_free(r->loader);
    wf_run_free(r->rest_run);
    wf_plan_free(r->rest_plan);
    wf_stepper_release(&r->full);
}

/* --- what the log begins with --- */

static_assert(sizeof(struct wf_rank_use) == 6 * sizeof(int64_t), "a list of numbers to be summed");

/* Bytes that a plan needs for itself, where it does not fit into the arena of the step's. */
static size_t own_arena(const struct rank *r, const struct wf_plan *plan)
{
    const bool apart = plan == r->rest_plan && r->t->settings.train.accumulate > 1;
    return plan && (apart || plan->arena_bytes > r->full.plan->arena_bytes) ? plan->arena_bytes : 0;
}

static int64_t bytes_read(const struct rank *r)
{
    uint64_t bytes = wf_loader_bytes_read(r->loader);
    bytes += r->valid_loader ? wf_loader_bytes_read(r->valid_loader) : 0;
    for (int k = 0; k < r->t->targets.n; k++) {
        bytes += r->targets[k] ? wf_loader_bytes_read(r->targets[k]) : 0;
        bytes += r->valid_targets[k] ? wf_loader_bytes_read(r->valid_targets[k]) : 0;
    }
    return (int64_t)bytes;
}

/* What validation takes beside the step: planned, and in fact. */
static void add_validators(const struct rank *r, struct wf_rank_use *use)
{
    if (r->t->windows.used) {
        use->planned += (int64_t)r->t->windows.of_image.kept;
        use->held += (int64_t)wf_whole_bytes(&r->whole);
        return;
    }
    for (const struct wf_validator *v = r->validator; v; v = wf_validator_next(v)) {
        const struct wf_run *const run = wf_validator_own_run(v);
        const struct wf_plan *const plan = wf_run_plan(run);
        use->planned += (int64_t)(v == r->validator ? plan->arena_bytes + wf_plan_param_bytes(plan)
                                                    : own_arena(r, plan));
        use->held += (int64_t)wf_run_bytes(run);
    }
}

/* Collective. Of all ranks, in rank order. */
static struct wf_rank_use *share_use(struct rank *r, struct wf_arena *arena, struct wf_err *err)
{
    const size_t ranks = (size_t)wf_comm_size(r->comm);
    struct wf_rank_use *const all = wf_arena_array(arena, ranks, struct wf_rank_use);
    struct rusage usage;
    const bool known = getrusage(RUSAGE_SELF, &usage) == 0;
    const size_t snapshot = wf_saver_bytes(&r->saver);
    const size_t on_device = wf_device_is_host(r->t->job->device) ? snapshot : 0;
    struct wf_rank_use *const mine = &all[wf_comm_rank(r->comm)];
    *mine = (struct wf_rank_use){
        .planned = (int64_t)(r->full.plan->arena_bytes + own_arena(r, r->rest_plan) +
                             wf_job_param_bytes(r->t->job, r->full.plan) + on_device),
        .held =
            (int64_t)(wf_run_bytes(r->full.run) + (r->rest_run ? wf_run_bytes(r->rest_run) : 0) +
                      wf_optim_bytes(&r->full.optim->options, r->full.optim->count) + on_device),
        .host = (int64_t)snapshot,
        .process = known ? (int64_t)usage.ru_maxrss * 1024 : 0,
        .read = bytes_read(r),
        .prepare = r->prepare,
    };
    add_validators(r, mine);
    const size_t numbers = ranks * sizeof *all / sizeof(int64_t);
    return wf_comm_sum(r->comm, all, numbers, WF_I64, err) ? all : NULL;
}

/* Collective. All zero where nothing is known of the machine, and of workers with a server. */
static bool foretell(const struct rank *r, struct wf_foretold *f, struct wf_err *err)
{
    const struct wf_training *const t = r->t;
    *f = (struct wf_foretold){ 0 };
    if (!t->job->figures || wf_job_servers(t->job))
        return true;
    struct wf_all_ranks *const all = wf_all_ranks_gather(r->full.plan, r->comm, err);
    if (!all)
        return false;
    f->step = wf_foresight_step(t->job, all);
    f->references = all->ranks[0].references;
    wf_all_ranks_free(all);
    f->steps = wf_ceil_div(wf_loader_batches(r->loader), wf_job_micro_batches(t->job));
    if (t->windows.used)
        wf_foretold_windows(f, t);
    for (const struct wf_validator *v = t->windows.used ? NULL : r->validator; v;
         v = wf_validator_next(v)) {
        double seconds = wf_run_plan(wf_validator_own_run(v))->seconds;
        if (!wf_comm_largest(r->comm, &seconds, err))
            return false;
        f->valid_steps += wf_validator_batches(v);
        f->validation += (double)wf_validator_batches(v) * seconds;
    }
    wf_foretold_epoch(f, t->job);
    return true;
}

/* Collective. */
static bool begin_log(struct rank *r, struct wf_err *err)
{
    struct wf_training *const t = r->t;
    struct wf_arena arena = { 0 };
    struct wf_foretold foretold;
    const struct wf_rank_use *const use = share_use(r, &arena, err);
    bool ok = use && foretell(r, &foretold, err);
    if (ok && wf_comm_rank(r->comm) == 0) {
        if (foretold.step > 0 && t->hooks->planned)
            t->hooks->planned(t->user, &foretold);
        ok = wf_training_log_start(t, use, &foretold, err);
    }
    wf_arena_release(&arena);
    return wf_comm_agree(r->comm, ok, err);
}

/* --- what it ends with --- */

/* Collective. */
static bool finish(struct rank *r, const struct wf_trainer_result *result, struct wf_err *err)
{
    struct wf_training *const t = r->t;
    const bool writes = wf_comm_rank(r->comm) == 0;
    /* Before what may take long: whoever ends the run there has the trained network. */
    bool ok = wf_comm_agree(r->comm, !writes || wf_saver_finish(&r->saver, err), err);
    (void)wf_times_lap(r->times, WF_TIME_CHECKPOINTS);
    if (!ok)
        return false;
    if (r->validator && result->end != WF_END_SIGNAL) {
        /* Nothing was validated where a finished run was asked to go on. */
        if (isnan(result->metric) && !wf_validator_run(r->validator, r->full.run, err))
            return false;
        (void)wf_times_lap(r->times, WF_TIME_VALIDATION);
        if (writes) {
            t->has_scores = t->valid.has_classes;
            t->scores = wf_scores(&t->arena, wf_validator_metrics(r->validator));
            t->domains = wf_validator_domains(&t->arena, r->validator, &t->n_domains);
        }
        if (t->valid.has_classes) {
            /* That of the best epoch is in the log. */
            if (writes && result->at.best_epoch + 1 != result->at.epoch)
                ok = wf_training_log_confusion(t, wf_validator_metrics(r->validator),
                                               result->at.epoch, err);
            (void)wf_times_lap(r->times, WF_TIME_REST);
            ok = wf_comm_agree(r->comm, ok, err) &&
                 wf_pictures_samples(t, r->validator, r->comm, err);
        }
    }
    if (result->end != WF_END_SIGNAL)
        ok = ok && wf_pictures_domains(t, r->full.run, r->full.context, r->comm, err);
    const double drawing = wf_times_lap(r->times, WF_TIME_REST);
    if (r->times)
        r->times->pictures += drawing;
    if (ok && t->hooks->finished)
        ok = t->hooks->finished(t->user, r->full.run, r->comm, err);
    (void)wf_times_lap(r->times, WF_TIME_REST);
    ok = wf_comm_agree(r->comm, ok, err);
    struct wf_arena arena = { 0 };
    struct wf_rank_use *const use = ok ? share_use(r, writes ? &t->arena : &arena, err) : NULL;
    ok = use != NULL;
    if (ok && writes) {
        t->use = use;
        (void)wf_times_lap(r->times, WF_TIME_REST);
        ok = wf_training_log_end(t, err);
    }
    wf_arena_release(&arena);
    return wf_comm_agree(r->comm, ok, err);
}

/* --- the run --- */

/* Collective. Keeps what was learned, and what the next plan needs. One rank of a process writes it down. */
static bool leave_full(struct rank *r, const struct wf_trainer_result *result, struct wf_err *err)
{
    struct wf_training *const t = r->t;
    const int me = wf_comm_rank(r->comm);
    wf_carry_free(t->carries[me]);
    t->carries[me] = wf_carry_take(r->full.run, r->full.optim, err);
    bool ok = t->carries[me] != NULL;
    if (ok && me == 0)
        ok = wf_saver_finish(&r->saver, err);
    if (!wf_comm_agree(r->comm, ok, err))
        return false;
    if (me == 0 || t->launch.world) {
        const double seconds = t->start.seconds;
        t->is_full = true;
        t->start = result->at;
        t->start.seconds = seconds;
        t->pixels += result->pixels;
        for (int i = 0; i < 2; i++)
            for (int s = 0; s <= WF_SETS; s++)
                t->rows[i].least[s] = wf_max(t->rows[i].least[s], result->needs[i][s]);
    }
    return true;
}

static struct wf_trainer_options trainer_options(struct rank *r)
{
    struct wf_training *const t = r->t;
    const struct wf_train_settings *const s = &t->settings.train;
    return (struct wf_trainer_options){
        .comm = r->comm,
        .full = { &t->job->net, r->full.run, t->job->model->sparse ? &r->points : NULL },
        .rest = { &t->rest, r->rest_run, NULL },
        .learner = &r->full.learner,
        .workers = t->job->workers,
        .schedule = &t->schedule,
        .loader = r->loader,
        .targets = r->targets,
        .n_targets = t->targets.n,
        .adapt = &t->settings.train.adapt,
        .validator = r->validator,
        .start = t->start,
        .epochs = s->epochs,
        .accumulate = s->accumulate,
        .rank_mean = s->reduction == WF_REDUCTION_RANK_MEAN,
        .skip_limit = s->skip_limit,
        .validate_every = s->validate_every,
        .early_stop = s->early_stop,
        .checkpoint_steps = s->checkpoint_steps,
        .checkpoint_minutes = s->checkpoint_minutes,
        .checkpoint_seconds = s->checkpoint_seconds,
        .hooks = &hooks,
        .user = t,
        .times = r->times,
    };
}

static bool train(struct rank *r, struct wf_err *err)
{
    struct wf_training *const t = r->t;
    struct wf_trainer_result result;
    const struct wf_trainer_options options = trainer_options(r);
    const bool ok = wf_trainer_run(&options, &result, err);
    if (ok && result.end == WF_END_FULL)
        return leave_full(r, &result, err);
    result.pixels += t->pixels;
    if (wf_comm_rank(r->comm) == 0)
        t->result = result;
    return ok && finish(r, &result, err) && wf_trainer_check(&options, &result, err);
}

static bool serve(struct rank *r, struct wf_err *err)
{
    const struct wf_training *const t = r->t;
    const struct wf_job *const job = t->job;
    r->full.plan = wf_plan_new_on(job->global, 0, NULL, err);
    r->full.run = r->full.plan ? wf_run_new_store(r->full.plan, err) : NULL;
    r->full.optim = r->full.run ? wf_optim_new(&job->settings.train.optim, r->full.run, err) : NULL;
    if (!r->full.optim || !wf_job_start_weights(job, r->full.run, err) ||
        (t->folder->checkpoint &&
         !wf_checkpoint_load(t->folder->checkpoint, r->full.run, r->full.optim, err)))
        return false;
    const bool async = job->files.sync == WF_SYNC_ASYNC;
    const int workers = async ? job->workers : job->ranks;
    return wf_server_run(
        &(struct wf_server_options){ .comm = r->world,
                                     .sync = job->files.sync,
                                     .workers = workers,
                                     .stride = job->ranks / workers,
                                     .staleness = job->settings.train.staleness,
                                     .run = r->full.run,
                                     .optim = r->full.optim,
                                     .clip =
                                         wf_job_learner_options(job, r->comm, r->full.optim).clip },
        err);
}

/* Collective. All that a step needs. */
static bool prepare(struct rank *r, struct wf_err *err)
{
    r->times = wf_comm_rank(r->comm) == 0 ? &r->t->times : NULL;
    (void)wf_times_lap(r->times, WF_TIME_STARTUP);
    bool ok = make_run(r, err) && make_rest(r, err) && make_loaders(r, err);
    if (ok) {
        const struct wf_trainer_options options = trainer_options(r);
        wf_input_seek(&options);
        ok = make_validators(r, err);
    }
    const double seconds = wf_times_lap(r->times, WF_TIME_STARTUP);
    if (r->times)
        r->times->kernels += seconds;
    const struct wf_carry *const carry = ok ? r->t->carries[wf_comm_rank(r->comm)] : NULL;
    if (carry)
        wf_carry_give(carry, r->full.run, r->full.optim);
    const bool ready = ok && make_saver(r, err) && (carry || begin_log(r, err));
    (void)wf_times_lap(r->times, WF_TIME_STARTUP);
    return ready;
}

static bool work(struct rank *r, struct wf_err *err)
{
    return prepare(r, err) && train(r, err) &&
           (!wf_job_servers(r->t->job) || wf_worker_leave(&r->worker, err));
}

bool wf_training_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct rank r = { .t = arg, .world = comm };
    bool serves;
    const bool ok = take_role(&r, &serves, err) && (serves ? serve(&r, err) : work(&r, err));
    /* Workers agree on what went wrong among themselves, which the server does not hear. */
    if (!ok && wf_job_servers(r.t->job))
        wf_comm_abort(comm, err);
    release(&r);
    wf_comm_free(r.group);
    if (r.comm != comm)
        wf_comm_free(r.comm);
    return ok;
}
