#include "train/training.h"

#include "plan/plan_cache.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/file.h"
#include "base/free_memory.h"
#include "train/device.h"
#include "train/whole.h"

/* --- the dataset --- */

struct known_data {
    const char *key; /* of the setting that has the path */
    const struct wf_dataset *dataset;
    const struct wf_fingerprint *fingerprint;
    const char *before; /* the checkpoint's */
};

/* A dataset that is another than the checkpoint's: other samples may be for validation now, and what was
 * trained on is scored as if it were new. */
static bool check_one(struct wf_training *t, const struct known_data *d, struct wf_err *err)
{
    const struct wf_fingerprint *const f = d->fingerprint;
    int64_t samples = 0, first = -1;
    if (!d->before || wf_fingerprint_matches(f, d->before, &samples, &first))
        return true;
    const char *what = "its classes or channels differ";
    if (first >= 0 && first < f->samples)
        what = wf_arena_printf(&t->arena, "the first sample that differs is '%s'",
                               wf_dataset_sample(d->dataset, first)->name);
    else if (first == WF_FINGERPRINT_UNKNOWN)
        what = "which sample differs is not known";
    else if (samples != f->samples)
        what = "samples at its end are gone";
    const char *const text = wf_arena_printf(
        &t->arena, "'%s' is not the dataset that '%s' was trained on: %lld samples, %lld then; %s",
        wf_dataset_info(d->dataset)->path, wf_checkpoint_path(t->folder->checkpoint),
        (long long)f->samples, (long long)samples, what);
    if (!t->changed_data)
        return wf_err_set(err, WF_ERR_USAGE,
                          "%s: give the old one back (%s=...), or go on with --changed-data", text,
                          d->key);
    if (t->launch.is_root)
        wf_log(t->launch.log, WF_LOG_WARN,
               "%s: the run goes on, and its scores before cannot be compared", text);
    return true;
}

/* The datasets that are open here. */
static bool check_data(struct wf_training *t, struct wf_err *err)
{
    const struct wf_checkpoint_info *const info = wf_checkpoint_info(t->folder->checkpoint);
    bool ok = check_one(t,
                        &(struct known_data){ t->targets.n ? "data.domains" : "data.path",
                                              t->feed.dataset, &t->dataset, info->data },
                        err);
    for (int k = 0; ok && k < t->targets.n && k < info->n_targets; k++) {
        const struct wf_target *const target = &t->targets.at[k];
        if (target->dataset)
            ok = check_one(t,
                           &(struct known_data){ "data.domains", target->dataset,
                                                 &target->fingerprint, info->targets[k] },
                           err);
    }
    return ok;
}

/* Collective under a launcher: before anything is made of the data, all ranks have the same. */
static bool take_data(struct wf_training *t, struct wf_err *err)
{
    if (!wf_dataset_fingerprint(&t->arena, t->feed.dataset, &t->dataset, err))
        return wf_err_wrap(err, "looking at the dataset");
    t->data = wf_fingerprint_print(&t->arena, &t->dataset);
    return wf_launch_same_data(&t->launch, t->feed.dataset, &t->dataset, err);
}

/* Collective under a launcher. */
static bool take_targets(struct wf_training *t, struct wf_err *err)
{
    if (!wf_targets_open(&t->targets, &t->feed, t->job, err))
        return false;
    const bool ok = wf_targets_plan(&t->targets, &t->feed, t->job, err);
    if (!wf_launch_agree(&t->launch, ok, err))
        return false;
    t->targets_data = wf_arena_array(&t->arena, t->targets.n, const char *);
    for (int k = 0; k < t->targets.n; k++)
        t->targets_data[k] = t->targets.at[k].data;
    return true;
}

static bool take_checkpoint(struct wf_training *t, struct wf_err *err)
{
    const struct wf_checkpoint *const c = t->folder->checkpoint;
    t->start = wf_position_start();
    if (!c)
        return wf_feed_measure(&t->feed, err);
    const struct wf_checkpoint_info *const info = wf_checkpoint_info(c);
    /* Before the run folder is written to: a wrong config must not replace that of the run. */
    if (!wf_feed_take_normal(&t->feed, c, err) ||
        !wf_checkpoint_fits(c, t->job->net.graph, wf_optim_states(&t->settings.train.optim), err) ||
        !check_data(t, err))
        return false;
    t->start = info->at;
    return true;
}

/* --- getting ready --- */

struct wf_loader_options wf_training_valid_loader(const struct wf_training *t)
{
    return (t->windows.used ? wf_whole_loader : wf_feed_valid_loader)(&t->feed, &t->valid);
}

static bool make_validation(struct wf_training *t, struct wf_err *err)
{
    if (t->feed.parts[WF_PART_VALID] == 0)
        return true;
    struct wf_shape shape;
    if (t->job->model->sparse) {
        if (!wf_feed_measure_rows(&t->rows[1], t->job->net.graph, t->valid_rows, err) ||
            !wf_job_network_rows(t->job, t->valid_rows, false, &t->valid, err))
            return false;
    } else if (!wf_feed_valid_shape(&t->feed, &t->job->mesh, t->feed.whole, t->feed.info->path,
                                    &shape, err)) {
        return false;
    } else {
        if (t->windows.used)
            shape.at[WF_N] = 1;
        if (!wf_job_network_for(t->job, shape, 0, &t->valid, err))
            return false;
    }
    if (!wf_feed_check(t->feed.dataset, wf_training_valid_loader(t), err))
        return wf_err_wrap(err, "validation");
    if (t->windows.used)
        return true;
    struct wf_plan_options options = wf_job_plan_options(t->job);
    options.more = wf_settings_workspace(&t->settings, t->job->device); /* nothing is learnt */
    options.pipe = wf_job_pipe_like(t->job);
    t->valid_global = wf_global_plan_new(t->valid.graph, &t->job->mesh, &options, err);
    return t->valid_global != NULL;
}

/* The samples that are left at an epoch's end make a batch of their own. */
static bool make_rest(struct wf_training *t, struct wf_err *err)
{
    const int64_t items = t->feed.parts[WF_PART_TRAIN] * t->settings.data.repeat;
    struct wf_shape shape = t->job->net.image->shape;
    shape.at[WF_N] = items % shape.at[WF_N];
    /* Points of fewer samples fit into the same plan; the loader fills the batch up. */
    if (shape.at[WF_N] == 0 || t->job->workers > 0 || t->job->net.domains > 1 ||
        t->job->model->sparse)
        return true;
    if (!wf_job_network(t->job, shape, true, &t->rest, err))
        return wf_err_wrap(err, "the last batch of an epoch");
    struct wf_plan_options options = wf_job_plan_options(t->job);
    if (options.limit) /* it borrows the arena of the others */
        options.limit = t->job->global->bytes;
    options.pipe = wf_job_pipe_like(t->job);
    t->rest_global = wf_global_plan_new(t->rest.graph, &t->job->mesh, &options, err);
    return t->rest_global || wf_err_wrap(err, "the last batch of an epoch");
}

/* Asynchronous workers share a batch out among them, and each takes steps with its own part. */
static bool take_sync(struct wf_training *t, struct wf_job_files *files, struct wf_err *err)
{
    files->sync = t->settings.train.sync;
    if (files->sync != WF_SYNC_ALLREDUCE && t->settings.model->sparse)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.sync=%s is for images: use train.sync=allreduce with '%s'",
                          wf_sync_names[files->sync], t->settings.model->name);
    if (files->sync != WF_SYNC_ASYNC)
        return true;
    int workers;
    if (!wf_job_find_workers(&t->launch, &t->settings, &workers, err))
        return false;
    if (files->size[0] % workers != 0)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "a batch of %lld samples for %d asynchronous workers: give train.batch as "
            "a multiple of %d",
            (long long)files->size[0], workers, workers);
    if (t->settings.train.reduction == WF_REDUCTION_RANK_MEAN)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.reduction is rank_mean, but asynchronous workers do not average: "
                          "leave one out");
    files->size[0] /= workers;
    return true;
}

static void forget_job(struct wf_training *t)
{
    wf_global_plan_free(t->rest_global);
    wf_graph_free(t->rest.graph);
    t->rest_global = NULL;
    t->rest.graph = NULL;
    wf_global_plan_free(t->valid_global);
    wf_graph_free(t->valid.graph);
    wf_job_free(t->job);
    t->valid_global = NULL;
    t->valid.graph = NULL;
    t->job = NULL;
}

static bool make_job(struct wf_training *t, const struct wf_job_files *files, struct wf_err *err)
{
    t->job = wf_job_new(&t->launch, &t->settings, files, err);
    if (!t->job)
        return false;
    t->schedule = wf_job_schedule(t->job);
    return true;
}

/* Bytes that the smaller last batch takes beside the others of its step; 0: it borrows their memory. */
static size_t rest_bytes(const struct wf_training *t)
{
    size_t most = 0;
    struct wf_plan_cache cache = { 0 };
    const int ranks = t->rest_global && t->settings.train.accumulate > 1 ? t->job->ranks : 0;
    for (int r = 0; r < ranks; r++) {
        struct wf_err err = { 0 };
        struct wf_plan *const plan = wf_plan_estimate(t->rest_global, r, &cache, &err);
        most = plan && plan->arena_bytes > most ? plan->arena_bytes : most;
        wf_plan_free(plan);
    }
    wf_plan_cache_release(&cache);
    return most;
}

static size_t bytes_beside(const struct wf_training *t)
{
    return (t->valid_global ? t->valid_global->bytes : 0) + rest_bytes(t);
}

/* The least that a rank has for a step. */
static bool find_arena(const struct wf_training *t, size_t *least, struct wf_err *err)
{
    struct wf_plan_cache cache = { 0 };
    bool ok = true;
    for (int r = 0; ok && r < t->job->global->geometry.n_ranks; r++) {
        struct wf_plan *const plan = wf_plan_estimate(t->job->global, r, &cache, err);
        ok = plan != NULL;
        if (ok && (r == 0 || plan->arena_bytes < *least))
            *least = plan->arena_bytes;
        wf_plan_free(plan);
    }
    wf_plan_cache_release(&cache);
    return ok;
}

static bool may_use_windows(const struct wf_training *t)
{
    return t->valid.graph && wf_whole_may_stand_in(t->job, &t->feed, &t->valid);
}

static bool find_windows(struct wf_training *t, struct wf_err *err)
{
    struct wf_windows *const w = &t->windows;
    struct wf_stream_options options = wf_whole_stream(t->job);
    const bool host = wf_device_is_host(t->job->device);
    const size_t held = t->job->global->bytes + rest_bytes(t);
    if (!find_arena(t, &w->limit, err))
        return false;
    w->keep = host ? t->settings.limit - held : wf_free_memory().free / 2 / (size_t)t->job->ranks;
    options.number = t->valid.loss;
    options.limit = w->limit;
    options.keep = w->keep;
    return wf_stream_estimate(&w->of_image, t->valid.graph, t->valid.logits, &options, err) ||
           wf_err_wrap(err, "validation in windows");
}

/* The step is planned as if there were no validation, which goes on in its memory. */
static bool turn_to_windows(struct wf_training *t, struct wf_job_files *files, size_t rest,
                            struct wf_err *err)
{
    *err = (struct wf_err){ 0 };
    files->beside = rest;
    t->windows.used = true;
    forget_job(t);
    if (!make_job(t, files, err) || !make_validation(t, err) || !make_rest(t, err))
        return wf_err_wrap(err, "with validation in windows");
    if (!may_use_windows(t) || rest_bytes(t) > rest)
        return wf_err_set(
            err, WF_ERR_FIT,
            "a whole image of validation does not fit beside the step in memory.limit, "
            "and the mesh has no windows for it: give a mesh without pipe (--mesh), or "
            "use train.validate_on=crop");
    if (!find_windows(t, err))
        return false;
    if (t->launch.is_root)
        wf_log(
            t->launch.log, WF_LOG_INFO,
            "validation: whole images in %lld window%s, in the memory of the step (memory.limit)",
            (long long)t->windows.of_image.windows, t->windows.of_image.windows == 1 ? "" : "s");
    return true;
}

/* Validation has memory of its own, and so has the last batch of several. Where memory.limit has no room for
 * them, the step is planned again with less: on another mesh perhaps, so they are too. */
static bool make_room(struct wf_training *t, struct wf_job_files *files, struct wf_err *err)
{
    const size_t limit = t->settings.limit, beside = limit ? bytes_beside(t) : 0;
    if (beside == 0 || t->job->global->bytes + beside <= limit)
        return true;
    const bool windows = may_use_windows(t);
    const size_t rest = rest_bytes(t);
    files->beside = beside;
    files->any_size = windows; /* what would have room is not looked for then */
    forget_job(t);
    const bool ok = make_job(t, files, err) && make_validation(t, err) && make_rest(t, err);
    files->any_size = false;
    if (ok && bytes_beside(t) <= beside && t->job->global->bytes <= limit)
        return true;
    if (windows && (ok || err->code == WF_ERR_FIT))
        return turn_to_windows(t, files, rest, err);
    if (!ok)
        return wf_err_wrap(err, "with %zu bytes for validation and the last batch", beside);
    return wf_err_set(
        err, WF_ERR_FIT,
        "validation and the last batch need %zu bytes beside the step's, and memory.limit is "
        "%zu: raise it, give the mesh (--mesh), or use train.validate_on=crop",
        bytes_beside(t), limit);
}

/* A snapshot for saves beside the training is no reason to recompute: without room for it, saves wait. */
static void plan_snapshot(struct wf_training *t)
{
    const size_t limit = wf_device_is_host(t->job->device) ? t->settings.limit : 0;
    const size_t held = t->job->global->bytes + t->windows.of_image.kept +
                        (t->valid_global ? t->valid_global->bytes : 0);
    const size_t bytes =
        wf_snapshot_bytes(t->job->net.graph, wf_optim_states(&t->settings.train.optim));
    t->snapshot_bytes = limit && held + bytes > limit ? 0 : bytes;
}

static bool check_labels(const struct wf_training *t, const char *path, struct wf_err *err)
{
    const struct wf_model *const model = t->job->model;
    const bool is_dense = wf_model_is_dense(model, &t->job->config);
    if ((t->feed.info->labels == WF_LABELS_IMAGE) != is_dense)
        return true;
    const char *const dot = model->sparse ? "point" : "pixel";
    return wf_err_set(err, WF_ERR_USAGE,
                      "'%s' has a label for each %s, but network '%s' predicts one for each %s: "
                      "choose another model.name ('widefield model list')",
                      path, is_dense ? (model->sparse ? "cloud" : "image") : dot, model->name,
                      is_dense ? dot : (model->sparse ? "cloud" : "image"));
}

/* Rows of point clouds are counted in the dataset. */
static void measure_by(struct wf_training *t, struct wf_job_files *files)
{
    t->rows[0].feed = t->rows[1].feed = &t->feed;
    t->rows[0].part = WF_PART_TRAIN;
    t->rows[1].part = WF_PART_VALID;
    if (t->feed.info->is_cloud) {
        files->measure = wf_feed_measure_rows;
        files->user = &t->rows[0];
    }
}

bool wf_training_prepare(struct wf_training *t, const char *path, struct wf_err *err)
{
    struct wf_job_files files = { .begun = t->folder->checkpoint != NULL,
                                  .on_paper = t->is_planned_only };
    struct wf_times *const times = &t->times;
    (void)wf_times_lap(times, WF_TIME_STARTUP);
    if (!wf_feed_open(&t->feed, &t->launch, &t->settings, path, WF_PART_VALID, err) ||
        !wf_targets_check(&t->settings, err) || (!t->is_planned_only && !take_data(t, err)))
        return false;
    wf_feed_size(&t->feed, &files);
    measure_by(t, &files);
    times->data += wf_times_lap(times, WF_TIME_STARTUP);
    if (!take_sync(t, &files, err) || !make_job(t, &files, err) || !check_labels(t, path, err))
        return false;
    struct wf_loader_options loader = wf_feed_loader(&t->feed, &t->job->net);
    loader.parts = t->job->workers;
    bool ok = wf_feed_check(t->feed.dataset, loader, err) && make_validation(t, err);
    ok = wf_launch_agree(&t->launch, ok, err);
    /* On the last mesh, which says where the images of a domain are. */
    if (!ok || !make_rest(t, err) || !make_room(t, &files, err) || !take_targets(t, err))
        return false;
    plan_snapshot(t);
    times->plan += wf_times_lap(times, WF_TIME_STARTUP);
    ok = t->is_planned_only || take_checkpoint(t, err);
    times->data += wf_times_lap(times, WF_TIME_STARTUP);
    return ok;
}

/* --- what is said of it --- */

struct wf_checkpoint_info wf_training_info(const struct wf_training *t,
                                           const struct wf_position *at)
{
    return (struct wf_checkpoint_info){
        .config = t->config,
        .at = *at,
        .seed = t->job->settings.train.seed,
        .channels = t->feed.normal.channels,
        .mean = t->feed.normal.mean,
        .deviation = t->feed.normal.std,
        .classes = t->feed.classes,
        .class_names = t->feed.class_names,
        .data = t->data,
        .n_targets = t->targets.n,
        .targets = t->targets_data,
    };
}

/* --- running --- */

/* Collective under a launcher. A batch has more points than the plan has room for: the same job with more. */
static bool plan_anew(struct wf_training *t, struct wf_err *err)
{
    struct wf_job_files files = { .begun = true };
    const int64_t before = t->job->net.image->shape.at[WF_N];
    wf_feed_size(&t->feed, &files);
    measure_by(t, &files);
    forget_job(t);
    t->is_full = false;
    const bool ok =
        make_job(t, &files, err) && make_validation(t, err) && make_room(t, &files, err);
    if (!wf_launch_agree(&t->launch, ok, err))
        return wf_err_wrap(err, "a batch has more points than was planned for");
    plan_snapshot(t);
    if (!t->launch.is_root)
        return true;
    const int64_t now = t->job->net.image->shape.at[WF_N];
    wf_log(
        t->launch.log, WF_LOG_INFO,
        "step %lld: a batch has more points than was planned for: planned anew for %lld, was %lld",
        (long long)t->start.step, (long long)now, (long long)before);
    cJSON *const event = wf_journal_event("planned_anew");
    (void)cJSON_AddNumberToObject(event, "step", (double)t->start.step);
    (void)cJSON_AddNumberToObject(event, "rows", (double)now);
    return wf_journal_write(t->journal, event, err);
}

bool wf_training_run(struct wf_training *t, struct wf_err *err)
{
    t->carries =
        wf_arena_array(&t->arena, t->job->ranks + wf_job_servers(t->job), struct wf_carry *);
    bool ok = wf_job_run(t->job, wf_training_rank, t, err);
    while (ok && t->is_full)
        ok = wf_launch_agree(&t->launch, plan_anew(t, err), err) &&
             wf_job_run(t->job, wf_training_rank, t, err);
    return ok;
}

void wf_training_release(struct wf_training *t)
{
    wf_journal_free(t->journal);
    for (int i = 0; t->carries && t->job && i < t->job->ranks; i++)
        wf_carry_free(t->carries[i]);
    forget_job(t);
    wf_targets_release(&t->targets);
    wf_feed_release(&t->feed);
    wf_arena_release(&t->arena);
}
