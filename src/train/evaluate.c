#include "train/evaluate.h"

#include <stdio.h>
#include <string.h>

#include "train/device.h"
#include "train/validate.h"
#include "train/whole.h"

static bool eval_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct wf_evaluation *const e = arg;
    struct wf_loader_options options = wf_feed_valid_loader(&e->feed, &e->net);
    struct wf_points_rank points;
    if (e->job->model->sparse) {
        points = wf_points_rank(&e->net, &e->job->mesh, wf_comm_rank(comm));
        wf_points_ask(&points, &options);
    }
    struct wf_loader *const loader = wf_loader_new(e->feed.dataset, &options, err);
    struct wf_validator *v = NULL;
    struct wf_context *context = NULL;
    bool ok = wf_comm_agree(comm, loader != NULL, err) && loader &&
              wf_settings_open(&e->settings, e->job->device, comm, &context, err);
    if (ok)
        v = wf_validator_new(
            &(struct wf_validator_options){ .comm = comm,
                                            .network = &e->net,
                                            .global = e->global,
                                            .context = context,
                                            .loader = loader,
                                            .points = e->job->model->sparse ? &points : NULL,
                                            .samples = e->feed.info->samples,
                                            .seed = e->job->settings.train.seed },
            err);
    ok = v != NULL;
    if (ok)
        ok = wf_comm_agree(
            comm, wf_checkpoint_load(e->checkpoint, wf_validator_own_run(v), NULL, err), err);
    ok = ok && wf_validator_run(v, NULL, err);
    int64_t needs[WF_SETS + 1];
    const bool full = !ok && v && wf_validator_is_full(v, needs);
    if (full && (wf_comm_rank(comm) == 0 || e->launch.world)) {
        memcpy(e->rows.least, needs, sizeof needs);
        e->is_full = true;
    }
    if (full)
        *err = (struct wf_err){ 0 };
    if (ok && wf_comm_rank(comm) == 0) {
        e->loss = wf_validator_loss(v);
        e->scores = wf_scores(&e->arena, wf_validator_metrics(v));
    }
    wf_validator_free(v);
    wf_device_close(context);
    wf_loader_free(loader);
    return ok || full;
}

/* Other labels are refused. Values keep their meaning, and a set may lack some: said. */
static bool compare_classes(const struct wf_evaluation *e, struct wf_err *err)
{
    const struct wf_checkpoint_info *const info = wf_checkpoint_info(e->checkpoint);
    const struct wf_dataset_info *const data = e->feed.info;
    if (info->classes == 0)
        return true;
    const int c = wf_feed_other_class(data, info->class_names, info->classes);
    if (c >= 0)
        return wf_err_set(
            err, WF_ERR_INPUT, "class %d of '%s' is %s, but %s where '%s' was trained: %s%s%s", c,
            data->path, data->classes[c].name, c < info->classes ? info->class_names[c] : "missing",
            wf_checkpoint_path(e->checkpoint),
            data->labels == WF_LABELS_IMAGE
                ? "make a folder for each class of the training data, if need be an empty one, in '"
                : "list the colours with the names and in the order of the training data in '",
            data->path, data->labels == WF_LABELS_IMAGE ? "'" : "/classes.txt'");
    const int found = data->n_classes;
    char unnamed[32];
    (void)snprintf(unnamed, sizeof unnamed, "class %d", found);
    if (e->launch.is_root && found < info->classes &&
        strcmp(info->class_names[found], unnamed) != 0)
        wf_log(e->launch.log, WF_LOG_WARN,
               "'%s' has labels of %d classes, '%s' was trained on more, such as '%s'", data->path,
               found, wf_checkpoint_path(e->checkpoint), info->class_names[found]);
    return true;
}

static void forget_job(struct wf_evaluation *e)
{
    wf_global_plan_free(e->global);
    wf_graph_free(e->net.graph);
    wf_job_free(e->job);
    e->global = NULL;
    e->net.graph = NULL;
    e->job = NULL;
}

static bool make_job(struct wf_evaluation *e, const char *path, struct wf_err *err)
{
    struct wf_job_files files = { .begun = true };
    wf_feed_size(&e->feed, &files);
    e->rows.feed = &e->feed;
    e->rows.part = e->part;
    if (e->feed.info->is_cloud) {
        files.measure = wf_feed_measure_rows;
        files.user = &e->rows;
    }
    const size_t limit = e->settings.limit;
    if (e->whole) /* it is for windows, not for the step that the job is planned for */
        e->settings.limit = 0;
    e->job = wf_job_new(&e->launch, &e->settings, &files, err);
    e->settings.limit = limit;
    struct wf_shape shape;
    if (!e->job)
        return false;
    if (e->whole && !wf_model_is_dense(e->job->model, &e->job->config))
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s' has one prediction for an image, or for points: leave out --whole",
                          e->job->model->name);
    if (e->job->model->sparse) {
        if (!wf_job_network_rows(e->job, e->job->capacities, false, &e->net, err))
            return false;
    } else if (!wf_feed_valid_shape(&e->feed, &e->job->mesh, e->feed.whole, path, &shape, err) ||
               !wf_job_network(e->job, shape, false, &e->net, err)) {
        return false;
    }
    if (e->whole)
        return true;
    struct wf_plan_options options = wf_job_plan_options(e->job);
    options.more = wf_settings_workspace(&e->settings, e->job->device); /* nothing is learnt */
    options.pipe.micro_batches = 1;
    options.pipe.keeps_outputs = true;
    e->global = wf_global_plan_new(e->net.graph, &e->job->mesh, &options, err);
    if (limit && e->global && e->global->bytes > limit &&
        wf_whole_may_stand_in(e->job, &e->feed, &e->net)) {
        wf_global_plan_free(e->global);
        e->global = NULL;
        e->whole = true;
        return true;
    }
    return e->global != NULL;
}

static bool prepare(struct wf_evaluation *e, const char *path, struct wf_err *err)
{
    if (!wf_launch_same_file(&e->launch, wf_checkpoint_path(e->checkpoint),
                             wf_checkpoint_digest(e->checkpoint), err) ||
        !wf_feed_open(&e->feed, &e->launch, &e->settings, path, e->part, err))
        return false;
    struct wf_fingerprint data;
    if (e->launch.world && (!wf_dataset_fingerprint(&e->arena, e->feed.dataset, &data, err) ||
                            !wf_launch_same_data(&e->launch, e->feed.dataset, &data, err)))
        return false;
    if (e->feed.parts[e->part] == 0)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has no images in this part: use --part all",
                          path);
    if (!wf_feed_take_normal(&e->feed, e->checkpoint, err) || !compare_classes(e, err))
        return false;
    return make_job(e, path, err);
}

bool wf_evaluate(struct wf_evaluation *e, const char *path, struct wf_err *err)
{
    bool ok = prepare(e, path, err);
    ok = wf_launch_agree(&e->launch, ok, err) &&
         wf_job_run(e->job, e->whole ? wf_evaluate_whole : eval_rank, e, err);
    while (ok && e->is_full) { /* a batch has more points than those that were counted */
        forget_job(e);
        e->is_full = false;
        ok = make_job(e, path, err);
        ok = wf_launch_agree(&e->launch, ok, err) && wf_job_run(e->job, eval_rank, e, err);
    }
    return ok;
}

void wf_evaluation_release(struct wf_evaluation *e)
{
    forget_job(e);
    wf_feed_release(&e->feed);
    wf_arena_release(&e->arena);
}
