/* train: from a dataset and a config to a run folder with a trained network in it. */
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "config/options_settings.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "cli/timeline.h"
#include "device/device.h"
#include "report/net_drawing.h"
#include "report/report.h"
#include "train/foresight.h"
#include "train/machine.h"
#include "train/signals.h"
#include "train/training.h"

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
                                          "train.similarity",
                                          "train.weights.reconstruction",
                                          "train.weights.difference",
                                          "train.weights.similarity",
                                          "train.adapt_from",
                                          "train.adapt_over",
                                          "train.sync",
                                          "train.staleness" };

/* What 'train' keeps beside the run. */
struct train {
    struct wf_cli *cli;
    struct wf_run_folder folder;
    struct wf_training run;
    struct wf_progress progress;
    bool has_stepped;
};

static bool warn_of_changes(const struct train *t, struct wf_err *err)
{
    const struct wf_checkpoint *const c = t->folder.checkpoint;
    if (!c)
        return true;
    struct wf_options *const before = wf_options_new();
    const bool ok =
        wf_options_read_text(before, wf_checkpoint_path(c), wf_checkpoint_info(c)->config, err);
    for (size_t i = 0; ok && i < sizeof fixed_keys / sizeof fixed_keys[0]; i++) {
        const char *const was = wf_options_text(before, fixed_keys[i]);
        const char *const is = wf_options_text(t->cli->options, fixed_keys[i]);
        if (t->cli->launch.is_root && strcmp(was ? was : "", is ? is : "") != 0)
            wf_log(&t->cli->log, WF_LOG_WARN,
                   "%s was %s and is now %s: the run goes on, but not with the numbers of one that "
                   "never stopped",
                   fixed_keys[i], was ? was : "not set", is ? is : "not set");
    }
    wf_options_free(before);
    return ok && wf_options_same_network(t->cli->options, wf_checkpoint_path(c),
                                         wf_checkpoint_info(c)->config, err);
}

/* Without a config, the run's own is taken: that of its folder, with the mesh, or the checkpoint's. */
static bool take_config(const struct train *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    const struct wf_checkpoint *const c = t->folder.checkpoint;
    if (cli->config || !c)
        return true;
    const char *const file = wf_run_folder_file(&cli->arena, &t->folder, "config.yaml");
    if (t->folder.exists && wf_path_is_file(file, err))
        return wf_options_read_file(cli->options, file, err);
    if (err->code)
        return false;
    return wf_options_read_text(cli->options, wf_checkpoint_path(c), wf_checkpoint_info(c)->config,
                                err);
}

static bool prepare(struct train *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    if (!take_config(t, err) || !wf_options_settings(cli->options, &t->run.settings, err))
        return false;
    t->folder.model = t->run.settings.model->name;
    const struct wf_data_settings *const data = &t->run.settings.data;
    const char *const path =
        data->n_domains ? data->domains[0] : wf_options_text(cli->options, "data.path");
    if (!path)
        return wf_err_set(err, WF_ERR_USAGE,
                          "no data.path: give the folder of images and masks, such as "
                          "data.path=data/nuclei ('widefield data synth' makes one)");
    return wf_training_prepare(&t->run, path, err) &&
           wf_options_take_settled(cli->options, &t->run.settings, path, err) &&
           warn_of_changes(t, err);
}

/* --- watching it --- */

/* Of the epochs that are left; the last one is validated in any case. */
static int64_t validations_of(const struct train *t)
{
    const int64_t every = wf_max(t->run.settings.train.validate_every, 1);
    const int64_t end = t->run.settings.train.epochs;
    return end / every - t->run.start.epoch / every + (end % every != 0);
}

/* "about 53m for 20 epochs of 120 steps: a step 1.32 s, validation 11 s (figures of ...)" */
static void planned(void *user, const struct wf_foretold *f)
{
    const struct train *const t = user;
    const struct wf_job *const job = t->run.job;
    const int64_t epochs = t->run.settings.train.epochs - t->run.start.epoch;
    const char *const measured = wf_figures_machine(job->figures);
    struct wf_arena arena = { 0 };
    const double seconds =
        (double)(epochs * f->steps) * f->step + (double)validations_of(t) * f->validation;
    char whole[32];
    wf_duration_text(seconds, whole, sizeof whole);
    const char *const validation =
        f->validation > 0
            ? wf_arena_printf(&arena, ", validation %s", wf_text_seconds(&arena, f->validation))
            : "";
    const bool ours = strcmp(measured, wf_machine_about(&arena, job->device, job->cores_here)) == 0;
    const char *const hint =
        wf_arena_printf(&arena, "; measure this machine: 'widefield check --calibrate%s%s'",
                        wf_device_is_host(job->device) ? "" : " --device ",
                        wf_device_is_host(job->device) ? "" : job->device->name);
    if (f->references > 0 && job->device != &wf_device_reference)
        wf_log(&t->cli->log, WF_LOG_WARN,
               "%d kernels of rank 0 are slow references: device '%s' has none of its own in %s",
               f->references, job->device->name, wf_precision_names[job->settings.train.precision]);
    if (epochs > 0)
        wf_log(&t->cli->log, WF_LOG_INFO,
               "about %s for %lld %s of %lld %s: a step %s%s (figures of %s%s)",
               seconds < 10 ? wf_text_seconds(&arena, seconds) : whole, (long long)epochs,
               epochs == 1 ? "epoch" : "epochs", (long long)f->steps,
               f->steps == 1 ? "step" : "steps", wf_text_seconds(&arena, f->step), validation,
               ours ? "this machine" : measured, ours ? "" : hint);
    wf_arena_release(&arena);
}

static void stepped(void *user, const struct wf_step_report *report)
{
    struct train *const t = user;
    t->has_stepped = true;
    wf_progress_step(&t->progress, report);
}

/* printf() has "-nan" for some. */
static double unsigned_nan(double value)
{
    return isnan(value) ? (double)NAN : value;
}

static void tell_domains(const struct train *t, const struct wf_epoch_report *report)
{
    struct wf_arena arena = { 0 };
    int count = 0;
    const struct wf_domain_scores *const d =
        wf_validator_domains(&arena, report->validated, &count);
    for (int i = 1; i < count; i++)
        wf_log(&t->cli->log, WF_LOG_INFO, "  domain %d: validation %.4g, %s %.4f", d[i].domain,
               d[i].loss, d[i].scores.per_image ? "accuracy" : "mean IoU",
               d[i].scores.per_image ? d[i].scores.accuracy : d[i].scores.mean_iou);
    wf_arena_release(&arena);
}

static void epoch_ended(void *user, const struct wf_epoch_report *report)
{
    struct train *const t = user;
    const long long epoch = report->epoch + 1;
    wf_bar_clear(&t->progress.bar);
    const char *const best = report->is_best ? ", the best so far" : "";
    if (!report->validated)
        wf_log(&t->cli->log, WF_LOG_INFO, "epoch %lld: loss %.4g%s", epoch,
               unsigned_nan(report->train_loss), best);
    else if (!t->run.valid.has_classes)
        wf_log(&t->cli->log, WF_LOG_INFO, "epoch %lld: loss %.4g, validation %.4g%s", epoch,
               unsigned_nan(report->train_loss), unsigned_nan(wf_validator_loss(report->validated)),
               best);
    else
        wf_log(&t->cli->log, WF_LOG_INFO, "epoch %lld: loss %.4g, validation %.4g, %s %.4f%s",
               epoch, unsigned_nan(report->train_loss),
               unsigned_nan(wf_validator_loss(report->validated)),
               wf_model_is_dense(t->run.job->model, &t->run.job->config) ? "mean IoU" : "accuracy",
               report->metric, best);
    tell_domains(t, report);
}

static bool stops(void *)
{
    return wf_signals_seen() != 0;
}

/* Collective. What several ranks did in the last step, for the report. */
static bool draw_step(void *user, const struct wf_run *run, struct wf_comm *comm,
                      struct wf_err *err)
{
    const struct train *const t = user;
    if (wf_comm_size(comm) == 1)
        return true;
    struct wf_arena arena = { 0 };
    const bool ok = wf_timeline_write(run, comm, wf_timeline_title(&arena, t->run.job, comm),
                                      wf_run_folder_file(&arena, &t->folder, "timeline.svg"), err);
    wf_arena_release(&arena);
    return ok;
}

static const struct wf_training_hooks hooks = { .planned = planned,
                                                .stepped = stepped,
                                                .epoch_ended = epoch_ended,
                                                .stops = stops,
                                                .finished = draw_step };

/* The network's drawing, and a copy of its file. */
static bool write_network(const struct train *t, struct wf_err *err)
{
    const struct wf_job *const job = t->run.job;
    const struct wf_value *const image = job->net.image;
    const bool is_file = wf_options_has_network(t->cli->options);
    return wf_network_write(
        t->folder.path,
        image ? wf_model_svg(&t->cli->arena, job->model, &job->config, image->shape) : NULL,
        is_file ? wf_options_text(t->cli->options, "model.network") : NULL, err);
}

/* The config that checkpoints keep, and the folder's, with the mesh that was chosen: so that the folder
 * alone says how to go on. */
static bool write_config(struct train *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    struct wf_arena *const arena = &cli->arena;
    t->run.config = wf_options_yaml(arena, cli->options, false);
    return !cli->launch.is_root ||
           (wf_options_set(cli->options, "mesh", wf_mesh_print(arena, &t->run.job->mesh), err) &&
            write_network(t, err) &&
            wf_write_text(wf_run_folder_file(arena, &t->folder, "config.yaml"),
                          wf_options_yaml(arena, cli->options, true), err));
}

/* --- the end --- */

static bool print_json(const struct wf_cli *cli, const struct wf_training *t, struct wf_err *err)
{
    const struct wf_trainer_result *const r = &t->result;
    cJSON *const json = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(json, "epochs", (double)r->at.epoch);
    (void)cJSON_AddNumberToObject(json, "steps", (double)r->at.step);
    (void)cJSON_AddNumberToObject(json, "skipped", (double)r->at.skipped);
    wf_json_add_real(json, "loss", r->loss);
    cJSON_AddItemToObject(json, "metric",
                          t->has_scores ? wf_scores_json(&t->scores) : cJSON_CreateObject());
    wf_domains_json(json, t->domains, t->n_domains);
    if (t->has_scores) /* the last epoch's; the best may be another */
        (void)cJSON_AddNumberToObject(json, "metric_epoch", (double)r->at.epoch);
    wf_best_json(json, t);
    wf_json_add_real(json, "mpx_per_s", r->pixels / wf_times_total(&t->times) / 1e6);
    wf_times_json(json, &t->times);
    (void)cJSON_AddStringToObject(json, "run", t->folder->path);
    cJSON_AddItemToObject(json, "per_rank", wf_rank_use_json(t->use, wf_mesh_size(&t->job->mesh)));
    return wf_cli_print_json(cli, json, err);
}

/* Of the ranks that took most. */
static void print_use(struct wf_arena *arena, const struct wf_training *t)
{
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

/* Wall time: "took 12.3 s, 0.53 Mpx/s: start-up 1.2 s, steps 9.1 s, ..." */
static void print_times(struct wf_arena *arena, const struct wf_training *t)
{
    static const char *const names[WF_TIME_PARTS] = { "start-up",          "steps",
                                                      "waiting for input", "validation",
                                                      "checkpoints",       "rest" };
    const double total = wf_times_total(&t->times);
    (void)printf("took %s, %.3g Mpx/s", wf_text_seconds(arena, total),
                 t->result.pixels / total / 1e6);
    for (int i = 0; i < WF_TIME_PARTS; i++)
        (void)printf("%s %s %s", i ? "," : ":", names[i], wf_text_seconds(arena, t->times.at[i]));
    const double log = t->times.at[WF_TIME_REST] - t->times.pictures - t->times.report;
    (void)printf(" (pictures %s, report %s, log %s)\n", wf_text_seconds(arena, t->times.pictures),
                 wf_text_seconds(arena, t->times.report), wf_text_seconds(arena, log));
}

/* The scores are those of the last epoch, which need not be the best. */
static void print_scores(struct wf_arena *arena, const struct wf_training *t)
{
    const struct wf_position *const at = &t->result.at;
    const long long epoch = (long long)at->epoch, best = (long long)at->best_epoch + 1;
    const char *const of = !t->has_scores                                      ? "loss"
                           : wf_model_is_dense(t->job->model, &t->job->config) ? "mean IoU"
                                                                               : "accuracy";
    if (t->has_scores) {
        if (at->batch > 0) /* a run that was stopped there, and has no epochs left */
            (void)printf("on the validation images after step %lld, within epoch %lld\n",
                         (long long)at->step, epoch + 1);
        else
            (void)printf("on the validation images after epoch %lld, the last%s\n", epoch,
                         best == epoch ? " and the best" : "");
        wf_print_scores(arena, &t->scores, t->feed.class_names);
    }
    wf_print_domains(arena, t->domains, t->n_domains, t->settings.data.domains);
    if (best > 0 && best != epoch)
        (void)printf("the best epoch was %lld, %s %.4f: checkpoints/best.safetensors\n", best, of,
                     t->has_scores ? at->best : -at->best);
}

static bool print(struct wf_cli *cli, const struct wf_training *t, struct wf_err *err)
{
    const struct wf_trainer_result *const r = &t->result;
    if (cli->json)
        return print_json(cli, t, err);
    (void)printf("%lld %s, %lld %s%s\n", (long long)r->at.epoch,
                 r->at.epoch == 1 ? "epoch" : "epochs", (long long)r->at.step,
                 r->at.step == 1 ? "step" : "steps",
                 r->end == WF_END_EARLY ? ", stopped early: validation got no better" : "");
    if (r->at.skipped > 0)
        (void)printf("%lld of the steps skipped: a gradient was not finite\n",
                     (long long)r->at.skipped);
    print_scores(&cli->arena, t);
    print_use(&cli->arena, t);
    print_times(&cli->arena, t);
    (void)printf("run %s\n", wf_text_shown(&cli->arena, t->folder->path));
    return true;
}

/* A report that cannot be written does not undo the training. */
static void report(const struct train *t)
{
    struct wf_err err = { 0 };
    if (!wf_report_write(t->folder.path, &err))
        wf_log(&t->cli->log, WF_LOG_WARN, "no report: %s", err.text);
}

/* Collective under a launcher: how it ended is rank 0's to say. */
static bool conclude(struct train *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    const struct wf_trainer_result *const r = &t->run.result;
    int ended = (int)r->end;
    if (cli->launch.world && !wf_comm_broadcast(cli->launch.world, 0, &ended, sizeof ended, err))
        return false;
    (void)wf_times_lap(&t->run.times, WF_TIME_REST);
    if (cli->launch.is_root)
        report(t);
    t->run.times.report = wf_times_lap(&t->run.times, WF_TIME_REST);
    if (cli->launch.is_root && r->at.skipped > 0 && isnan(r->loss))
        wf_log(&cli->log, WF_LOG_WARN,
               "every step of the last epoch was skipped because a gradient was not finite (%lld "
               "of %lld steps in all)",
               (long long)r->at.skipped, (long long)r->at.step);
    if (ended == WF_END_SIGNAL)
        return wf_err_set(
            err, WF_ERR_STOPPED,
            "stopped by %s at step %lld; a checkpoint is written, go on with --resume %s",
            wf_signals_name(wf_signals_seen()), (long long)r->at.step, t->folder.path);
    return !cli->launch.is_root || cli->mute || print(cli, &t->run, err);
}

static bool run_in_folder(struct train *t, struct wf_err *err)
{
    struct wf_cli *const cli = t->cli;
    bool ok = prepare(t, err);
    ok = wf_launch_agree(&cli->launch, ok, err);
    if (!ok || !wf_run_folder_make(&t->folder, err))
        return false;
    ok =
        wf_launch_agree(&cli->launch, write_config(t, err), err) && wf_training_begin(&t->run, err);
    if (!ok)
        return false;
    if (cli->launch.is_root)
        wf_progress_init(&t->progress, cli->quiet ? NULL : stderr, isatty(STDERR_FILENO),
                         t->run.settings.train.epochs);
    ok = wf_training_run(&t->run, err);
    if (cli->launch.is_root)
        wf_bar_clear(&t->progress.bar);
    if (!ok && t->run.use && cli->launch.is_root)
        report(t); /* it came to its end, and learned nothing */
    return ok && conclude(t, err);
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    struct train t = { .cli = cli };
    struct wf_settings named;
    const bool has_network = wf_options_has_network(cli->options);
    if (has_network && !wf_options_settings(cli->options, &named, err))
        return false;
    t.folder = (struct wf_run_folder){ .launch = cli->launch,
                                       .model = has_network
                                                    ? named.model->name
                                                    : wf_options_text(cli->options, "model.name") };
    t.run = (struct wf_training){ .launch = cli->launch,
                                  .folder = &t.folder,
                                  .changed_data = wf_cli_flag(cli, "changed-data") != NULL,
                                  .hooks = &hooks,
                                  .user = &t };
    wf_times_begin(&t.run.times, cli->began);
    wf_signals_catch();
    const bool ok =
        wf_run_folder_find(&t.folder, wf_cli_flag(cli, "out"), wf_cli_flag(cli, "resume"), err) &&
        run_in_folder(&t, err);
    wf_signals_release();
    wf_training_release(&t.run);
    if (!ok && !t.has_stepped && (err->code == WF_ERR_FIT || err->code == WF_ERR_USAGE))
        wf_run_folder_undo(&t.folder);
    wf_run_folder_release(&t.folder);
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
    .opens_device = true,
    .run = run,
};
