/* train: from a dataset and a config to a run folder with a trained network in it. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/device.h"
#include "cli/once.h"
#include "cli/same.h"
#include "cli/scores.h"
#include "cli/text.h"
#include "cli/train_run.h"
#include "data/fingerprint.h"
#include "report/report.h"
#include "train/reduction.h"
#include "train/signals.h"

/* --- what goes on from a checkpoint --- */

/* Keys that, changed, give other numbers than the run that is gone on with. */
static const char *const fixed_keys[] = { "train.seed",
                                          "train.batch",
                                          "train.batch_is",
                                          "train.accumulate",
                                          "train.reduction",
                                          "train.clip",
                                          "data.crop",
                                          "data.augment",
                                          "data.pad",
                                          "data.balance",
                                          "data.repeat",
                                          "data.validation",
                                          "train.optimizer",
                                          "train.loss",
                                          "train.lr",
                                          "train.momentum",
                                          "train.beta1",
                                          "train.beta2",
                                          "train.eps",
                                          "train.weight_decay",
                                          "train.decay_vectors",
                                          "train.trust",
                                          "train.schedule",
                                          "train.schedule_by",
                                          "train.schedule_every",
                                          "train.gamma",
                                          "train.patience",
                                          "train.lr_min",
                                          "train.lr_scaling",
                                          "train.warmup",
                                          "train.precision",
                                          "train.sync",
                                          "train.staleness" };

static bool warn_of_changes(struct wf_train_run *t, struct wf_err *err)
{
    const struct wf_checkpoint *const c = t->folder->checkpoint;
    struct wf_options *const before = wf_options_new();
    const bool ok =
        wf_options_read_text(before, wf_checkpoint_path(c), wf_checkpoint_info(c)->config, err);
    for (size_t i = 0; ok && i < sizeof fixed_keys / sizeof fixed_keys[0]; i++) {
        const char *const was = wf_options_text(before, fixed_keys[i]);
        const char *const is = wf_options_text(t->cli->options, fixed_keys[i]);
        if (t->cli->is_root && strcmp(was ? was : "", is ? is : "") != 0)
            wf_log(&t->cli->log, WF_LOG_WARN,
                   "%s was %s and is now %s: the run goes on, but not with the numbers of one that "
                   "never stopped",
                   fixed_keys[i], was ? was : "not set", is ? is : "not set");
    }
    wf_options_free(before);
    return ok;
}

/* Without a config, the run's own is taken: that of its folder, with the mesh, or the checkpoint's. */
static bool take_config(struct wf_train_run *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    const struct wf_checkpoint *const c = t->folder->checkpoint;
    if (cli->config || !c)
        return true;
    const char *const file = wf_run_folder_file(&cli->arena, t->folder, "config.yaml");
    if (t->folder->exists && wf_path_is_file(file, err))
        return wf_options_read_file(cli->options, file, err);
    if (err->code)
        return false;
    return wf_options_read_text(cli->options, wf_checkpoint_path(c), wf_checkpoint_info(c)->config,
                                err);
}

/* A dataset that is another than the checkpoint's: other samples may be for validation now, and what was
 * trained on is scored as if it were new. */
static bool check_data(struct wf_train_run *t, struct wf_err *err)
{
    const struct wf_fingerprint *const f = &t->dataset;
    const struct wf_checkpoint_info *const info = wf_checkpoint_info(t->folder->checkpoint);
    struct wf_arena *const arena = &t->cli->arena;
    int64_t samples = 0, first = -1;
    if (!info->data || wf_fingerprint_matches(f, info->data, &samples, &first))
        return true;
    const char *what = "its classes or channels differ";
    if (first >= 0 && first < f->samples)
        what = wf_arena_printf(arena, "the first sample that differs is '%s'",
                               wf_dataset_sample(t->feed->dataset, first)->name);
    else if (first == WF_FINGERPRINT_UNKNOWN)
        what = "which sample differs is not known";
    else if (samples != f->samples)
        what = "samples at its end are gone";
    const char *const text = wf_arena_printf(
        arena, "'%s' is not the dataset that '%s' was trained on: %lld samples, %lld then; %s",
        t->feed->info->path, wf_checkpoint_path(t->folder->checkpoint), (long long)f->samples,
        (long long)samples, what);
    if (!wf_cli_flag(t->cli, "changed-data"))
        return wf_err_set(err, WF_ERR_USAGE,
                          "%s: give the old one back (data.path=...), or go on with --changed-data",
                          text);
    if (t->cli->is_root)
        wf_log(&t->cli->log, WF_LOG_WARN,
               "%s: the run goes on, and its scores before cannot be compared", text);
    return true;
}

/* Collective under a launcher: before anything is made of the data, all ranks have the same. */
static bool take_data(struct wf_train_run *t, struct wf_err *err)
{
    if (!wf_dataset_fingerprint(&t->cli->arena, t->feed->dataset, &t->dataset, err))
        return wf_err_wrap(err, "looking at the dataset");
    t->data = wf_fingerprint_print(&t->cli->arena, &t->dataset);
    return wf_cli_same_data(t->cli, t->feed->dataset, &t->dataset, err);
}

static bool take_checkpoint(struct wf_train_run *t, struct wf_err *err)
{
    const struct wf_checkpoint *const c = t->folder->checkpoint;
    t->start = wf_position_start();
    if (!c)
        return wf_feed_measure(t->feed, err);
    const struct wf_checkpoint_info *const info = wf_checkpoint_info(c);
    if (info->channels != t->feed->info->channels)
        return wf_err_set(
            err, WF_ERR_INPUT, "'%s' was trained on images of %d channels, '%s' has %d",
            wf_checkpoint_path(c), info->channels, t->feed->info->path, t->feed->info->channels);
    /* Before the run folder is written to: a wrong config must not replace that of the run. */
    const struct wf_optim_options optim = wf_job_optim_options(t->cli->options);
    if (!wf_checkpoint_fits(c, t->job->graph, wf_optim_states(&optim), err) || !check_data(t, err))
        return false;
    t->start = info->at;
    t->feed->normal.channels = info->channels;
    memcpy(t->feed->normal.mean, info->mean, (size_t)info->channels * sizeof *info->mean);
    memcpy(t->feed->normal.std, info->deviation, (size_t)info->channels * sizeof *info->deviation);
    return warn_of_changes(t, err);
}

/* --- getting ready --- */

static bool make_validation(struct wf_train_run *t, struct wf_err *err)
{
    if (t->feed->parts[WF_PART_VALID] == 0)
        return true;
    struct wf_shape shape;
    if (!wf_feed_valid_shape(t->feed, &t->job->mesh, &shape, err) ||
        !wf_job_inference(t->job, shape, &t->valid, err))
        return false;
    if (!wf_feed_check(t->feed, wf_feed_valid_loader(t->feed, &t->valid), err))
        return wf_err_wrap(err, "validation");
    struct wf_plan_options options = wf_job_plan_options(t->job);
    options.more = wf_cli_workspace(t->cli->options, t->job->device); /* nothing is learnt */
    t->valid_global = wf_global_plan_new(t->valid.graph, &t->job->mesh, &options, err);
    return t->valid_global != NULL;
}

/* The samples that are left at an epoch's end make a batch of their own. */
static bool make_rest(struct wf_train_run *t, struct wf_err *err)
{
    const int64_t items =
        t->feed->parts[WF_PART_TRAIN] * wf_options_int(t->cli->options, "data.repeat");
    struct wf_shape shape = t->train.image->shape;
    shape.at[WF_N] = items % shape.at[WF_N];
    if (shape.at[WF_N] == 0 || t->job->workers > 0)
        return true;
    if (!wf_job_training(t->job, shape, &t->rest, err))
        return wf_err_wrap(err, "the last batch of an epoch");
    struct wf_plan_options options = wf_job_plan_options(t->job);
    if (options.limit) /* it borrows the arena of the others */
        options.limit = t->job->global->bytes;
    t->rest_global = wf_global_plan_new(t->rest.graph, &t->job->mesh, &options, err);
    return t->rest_global || wf_err_wrap(err, "the last batch of an epoch");
}

/* Asynchronous workers share a batch out among them, and each takes steps with its own part. */
static bool take_sync(struct wf_train_run *t, struct wf_job_files *files, struct wf_err *err)
{
    files->sync = (enum wf_sync)wf_options_int(t->cli->options, "train.sync");
    if (files->sync != WF_SYNC_ASYNC)
        return true;
    int workers;
    if (!wf_job_find_workers(t->cli, &workers, err))
        return false;
    if (files->size[0] % workers != 0)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "a batch of %lld samples for %d asynchronous workers: give train.batch as "
            "a multiple of %d",
            (long long)files->size[0], workers, workers);
    if (wf_options_int(t->cli->options, "train.reduction") == WF_REDUCTION_RANK_MEAN)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.reduction is rank_mean, but asynchronous workers do not average: "
                          "leave one out");
    files->size[0] /= workers;
    return true;
}

static void forget_job(struct wf_train_run *t)
{
    wf_global_plan_free(t->valid_global);
    wf_graph_free(t->valid.graph);
    wf_job_free(t->job);
    t->valid_global = NULL;
    t->valid.graph = NULL;
    t->job = NULL;
}

static bool make_job(struct wf_train_run *t, const struct wf_job_files *files, struct wf_err *err)
{
    t->job = wf_job_new(t->cli, files, err);
    if (!t->job)
        return false;
    t->train = wf_job_network(t->job);
    t->schedule = wf_job_schedule(t->job);
    return true;
}

/* Validation has memory of its own. Where memory.limit has no room for both, the step is planned again
 * with less: on another mesh perhaps, so validation too. */
static bool make_room(struct wf_train_run *t, struct wf_job_files *files, struct wf_err *err)
{
    const size_t limit = (size_t)wf_options_int(t->cli->options, "memory.limit");
    if (!limit || !t->valid_global || t->job->global->bytes + t->valid_global->bytes <= limit)
        return true;
    files->beside = t->valid_global->bytes;
    forget_job(t);
    if (!make_job(t, files, err) || !make_validation(t, err))
        return wf_err_wrap(err, "with %zu bytes for validation", files->beside);
    return !t->valid_global || t->valid_global->bytes <= files->beside ||
           wf_err_set(
               err, WF_ERR_FIT,
               "validation needs %zu bytes beside the step's, and memory.limit is %zu: raise "
               "it, give the mesh (--mesh), or use train.validate_on=crop",
               t->valid_global->bytes, limit);
}

/* Everything that can be wrong is found here, before a folder is made. */
static bool prepare(struct wf_train_run *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    if (!take_config(t, err))
        return false;
    const char *const path = wf_options_text(cli->options, "data.path");
    if (!path)
        return wf_err_set(err, WF_ERR_USAGE,
                          "no data.path: give the folder of images and masks, such as "
                          "data.path=data/nuclei ('widefield data synth' makes one)");
    struct wf_job_files files = { .begun = t->folder->checkpoint != NULL };
    if (!wf_feed_open(t->feed, cli, path, WF_PART_VALID, err) || !take_data(t, err))
        return false;
    wf_feed_size(t->feed, &files);
    if (!take_sync(t, &files, err))
        return false;
    if (!make_job(t, &files, err))
        return false;
    if (t->feed->info->labels == WF_LABELS_IMAGE ? t->job->model->dense : !t->job->model->dense)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "'%s' has a label for each %s, but network '%s' predicts one for each %s: "
            "choose another model.name ('widefield model list')",
            path, t->job->model->dense ? "image" : "pixel", t->job->model->name,
            t->job->model->dense ? "pixel" : "image");
    struct wf_loader_options loader = wf_feed_loader(t->feed, &t->train);
    loader.parts = t->job->workers;
    bool ok = wf_feed_check(t->feed, loader, err) && make_validation(t, err);
    ok = wf_cli_agree(cli, ok, err);
    return ok && make_room(t, &files, err) && make_rest(t, err) && take_checkpoint(t, err);
}

/* A run that goes on without a part of its log says so, here and in the log itself. */
static bool tell_damage(struct wf_train_run *t, const char *log,
                        const struct wf_journal_damage *damage, struct wf_err *err)
{
    const bool lost = damage->lines || damage->epochs || (damage->absent && t->start.step > 0);
    if (!t->folder->exists || !lost)
        return true;
    if (damage->absent)
        wf_log(&t->cli->log, WF_LOG_WARN, "'%s' is gone: the report begins with step %lld", log,
               (long long)t->start.step);
    else
        wf_log(
            &t->cli->log, WF_LOG_WARN,
            "'%s' is damaged (unreadable lines: %lld, missing epochs: %lld): the run goes on without "
            "them, and the file as it was is kept as '%s'",
            log, (long long)damage->lines, (long long)damage->epochs, damage->kept);
    cJSON *const event = wf_journal_event("damaged");
    (void)cJSON_AddNumberToObject(event, "step", (double)t->start.step);
    (void)cJSON_AddNumberToObject(event, "lines", (double)damage->lines);
    (void)cJSON_AddNumberToObject(event, "epochs", (double)damage->epochs);
    const char *const slash = strrchr(damage->kept, '/');
    (void)cJSON_AddStringToObject(event, "kept", slash ? slash + 1 : damage->kept);
    return wf_journal_write(t->journal, event, err);
}

static bool open_files(struct wf_train_run *t, struct wf_err *err)
{
    struct wf_journal_damage damage;
    struct wf_cli *const cli = t->cli;
    struct wf_arena *const arena = &cli->arena;
    t->config = wf_options_yaml(arena, cli->options, false);
    if (!cli->is_root)
        return true;
    const char *const log = wf_run_folder_file(arena, t->folder, "log.jsonl");
    /* The mesh that was chosen, so that the folder alone says how to go on. */
    if (!wf_options_set(cli->options, "mesh", wf_mesh_print(arena, &t->job->mesh), err) ||
        !wf_write_text(wf_run_folder_file(arena, t->folder, "config.yaml"),
                       wf_options_yaml(arena, cli->options, true), err) ||
        !wf_journal_rewind(log, &t->start, &damage, err))
        return false;
    t->journal = wf_journal_open(log, err);
    /* With the name of a new log on the disk before a checkpoint is. */
    if (!t->journal || !wf_folder_sync(t->folder->path, err) || !tell_damage(t, log, &damage, err))
        return false;
    const bool quiet = cli->quiet;
    wf_progress_init(&t->progress, quiet ? NULL : stderr, isatty(STDERR_FILENO),
                     wf_options_int(cli->options, "train.epochs"));
    if (t->folder->checkpoint && t->start.epoch >= wf_options_int(cli->options, "train.epochs"))
        wf_log(&cli->log, WF_LOG_INFO,
               "'%s' has done its %lld epochs: give train.epochs more to go on",
               t->folder->checkpoint_path, (long long)t->start.epoch);
    else if (t->folder->checkpoint)
        wf_log(&cli->log, WF_LOG_INFO, "going on from '%s': epoch %lld, step %lld",
               t->folder->checkpoint_path, (long long)t->start.epoch + 1, (long long)t->start.step);
    return true;
}

/* --- the end --- */

static bool print_json(const struct wf_train_run *t, struct wf_err *err)
{
    const struct wf_trainer_result *const r = &t->result;
    cJSON *const json = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(json, "epochs", (double)r->at.epoch);
    (void)cJSON_AddNumberToObject(json, "steps", (double)r->at.step);
    (void)cJSON_AddNumberToObject(json, "skipped", (double)r->at.skipped);
    wf_json_add_real(json, "loss", r->loss);
    cJSON_AddItemToObject(json, "metric",
                          t->has_scores ? wf_scores_json(&t->scores) : cJSON_CreateObject());
    if (t->has_scores) /* the last epoch's; the best may be another */
        (void)cJSON_AddNumberToObject(json, "metric_epoch", (double)r->at.epoch);
    wf_best_json(json, t);
    wf_json_add_real(json, "mpx_per_s", r->pixels / r->seconds / 1e6);
    (void)cJSON_AddStringToObject(json, "run", t->folder->path);
    cJSON_AddItemToObject(json, "per_rank", wf_rank_use_json(t->use, wf_mesh_size(&t->job->mesh)));
    return wf_cli_print_json(t->cli, json, err);
}

/* Of the ranks that took most. */
static void print_use(const struct wf_train_run *t)
{
    struct wf_arena *const arena = &t->cli->arena;
    struct wf_rank_use most = { 0 };
    for (int i = 0; i < wf_mesh_size(&t->job->mesh); i++) {
        most.held = wf_max(most.held, t->use[i].held);
        most.process = wf_max(most.process, t->use[i].process);
        most.read = wf_max(most.read, t->use[i].read);
    }
    (void)printf("at most, a rank held %s and read %s of image files; a process had %s\n",
                 wf_text_bytes(arena, (double)most.held), wf_text_bytes(arena, (double)most.read),
                 wf_text_bytes(arena, (double)most.process));
}

/* The scores are those of the last epoch, which need not be the best. */
static void print_scores(const struct wf_train_run *t)
{
    const struct wf_position *const at = &t->result.at;
    const long long epoch = (long long)at->epoch, best = (long long)at->best_epoch + 1;
    const char *const of = !t->has_scores ? "loss" : t->job->model->dense ? "mean IoU" : "accuracy";
    if (t->has_scores) {
        (void)printf("on the validation images after epoch %lld, the last%s\n", epoch,
                     best == epoch ? " and the best" : "");
        wf_print_scores(&t->cli->arena, &t->scores, t->feed->class_names);
    }
    if (best > 0 && best != epoch)
        (void)printf("the best epoch was %lld, %s %.4f: checkpoints/best.safetensors\n", best, of,
                     t->has_scores ? at->best : -at->best);
}

static bool print(const struct wf_train_run *t, struct wf_err *err)
{
    const struct wf_trainer_result *const r = &t->result;
    if (t->cli->json)
        return print_json(t, err);
    (void)printf("%lld epochs, %lld steps%s\n", (long long)r->at.epoch, (long long)r->at.step,
                 r->end == WF_END_EARLY ? ", stopped early: validation got no better" : "");
    if (r->at.skipped > 0)
        (void)printf("%lld of the steps skipped: a gradient was not finite\n",
                     (long long)r->at.skipped);
    print_scores(t);
    print_use(t);
    (void)printf("run %s\n", wf_text_shown(&t->cli->arena, t->folder->path));
    return true;
}

/* A report that cannot be written does not undo the training. */
static void report(const struct wf_train_run *t)
{
    struct wf_err err = { 0 };
    if (!wf_report_write(t->folder->path, &err))
        wf_log(&t->cli->log, WF_LOG_WARN, "no report: %s", err.text);
}

static bool stopped(const struct wf_train_run *t, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_STOPPED,
                      "stopped by %s at step %lld; a checkpoint is written, go on with --resume %s",
                      wf_signals_name(wf_signals_seen()), (long long)t->result.at.step,
                      t->folder->path);
}

/* Collective under a launcher: how it ended is rank 0's to say. */
static bool conclude(struct wf_train_run *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    int ended = (int)t->result.end;
    if (cli->world && !wf_comm_broadcast(cli->world, 0, &ended, sizeof ended, err))
        return false;
    if (cli->is_root)
        report(t);
    if (cli->is_root && t->result.at.skipped > 0 && isnan(t->result.loss))
        wf_log(&cli->log, WF_LOG_WARN,
               "every step of the last epoch was skipped because a gradient was not finite (%lld "
               "of %lld steps in all)",
               (long long)t->result.at.skipped, (long long)t->result.at.step);
    if (ended == WF_END_SIGNAL)
        return stopped(t, err);
    return !cli->is_root || cli->mute || print(t, err);
}

static bool run_in_folder(struct wf_train_run *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    bool ok = prepare(t, err);
    ok = wf_cli_agree(cli, ok, err);
    ok = ok && wf_run_folder_make(t->folder, cli, err);
    if (!ok)
        return false;
    ok = open_files(t, err);
    ok = wf_cli_agree(cli, ok, err);
    ok = ok && wf_job_run(t->job, wf_train_run_rank, t, err);
    if (!ok && t->use && cli->is_root)
        report(t); /* it came to its end, and learned nothing */
    return ok && conclude(t, err);
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    struct wf_feed feed = { 0 };
    struct wf_run_folder folder;
    struct wf_train_run t = { .cli = cli, .feed = &feed, .folder = &folder };
    wf_signals_catch();
    const bool ok = wf_run_folder_find(&folder, cli, wf_cli_flag(cli, "out"),
                                       wf_cli_flag(cli, "resume"), err) &&
                    run_in_folder(&t, err);
    wf_signals_release();
    wf_journal_free(t.journal);
    wf_global_plan_free(t.rest_global);
    wf_graph_free(t.rest.graph);
    forget_job(&t);
    wf_feed_release(&feed);
    wf_run_folder_release(&folder);
    wf_arena_release(&t.arena);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "out", "DIR", "run folder; must be new (default: runs/MODEL-TIME)" },
    { "resume", "auto|PATH",
      "resume from the newest checkpoint of --out (auto), of a run folder, or from a file" },
    { "changed-data", NULL, "resume although the dataset differs from that of the checkpoint" },
    { .name = NULL },
};

const struct wf_command wf_command_train = {
    .name = "train",
    .summary = "train a network on a folder of images",
    .usage = "train CONFIG [key=value ...] [--out DIR] [--resume auto|PATH [--changed-data]]",
    .notes =
        "The run folder contains config.yaml, log.jsonl, checkpoints/ and report.html. On SIGTERM, SIGINT,\n"
        "SIGUSR1 and SIGUSR2 the run writes a checkpoint after the current step and ends with status 75.\n"
        "--resume auto starts a new run if there is no checkpoint yet, so a job script can always pass it.\n"
        "On the same mesh a resumed run gives the same numbers, bit for bit, as one that never stopped.",
    .flags = flags,
    .config_at = 1,
    .run = run,
};
