/* eval: how good a checkpoint is on a dataset. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "config/options_settings.h"
#include "train/device.h"
#include "train/feed.h"
#include "train/run_folder.h"
#include "cli/scores.h"
#include "cli/text.h"
#include "train/journal.h"

struct eval {
    struct wf_cli *cli;
    struct wf_settings settings;
    struct wf_job *job;
    struct wf_feed *feed;
    struct wf_checkpoint *checkpoint;
    struct wf_network net;
    struct wf_global_plan *global;
    /* rank 0's */
    struct wf_arena arena;
    struct wf_scores scores;
    double loss;
};

static bool eval_rank(struct wf_comm *comm, void *arg, struct wf_err *err)
{
    struct eval *const e = arg;
    const struct wf_loader_options options = wf_feed_valid_loader(e->feed, &e->net);
    struct wf_loader *const loader = wf_loader_new(e->feed->dataset, &options, err);
    struct wf_validator *v = NULL;
    struct wf_context *context = NULL;
    bool ok = wf_comm_agree(comm, loader != NULL, err) && loader &&
              wf_settings_open(&e->settings, e->job->device, comm, &context, err);
    if (ok)
        v = wf_validator_new(&(struct wf_validator_options){ .comm = comm,
                                                             .network = &e->net,
                                                             .global = e->global,
                                                             .context = context,
                                                             .loader = loader,
                                                             .samples = e->feed->info->samples,
                                                             .seed = e->job->settings.train.seed },
                             err);
    ok = v != NULL;
    if (ok)
        ok = wf_comm_agree(
            comm, wf_checkpoint_load(e->checkpoint, wf_validator_own_run(v), NULL, err), err);
    ok = ok && wf_validator_run(v, NULL, err);
    if (ok && wf_comm_rank(comm) == 0) {
        e->loss = wf_validator_loss(v);
        e->scores = wf_scores(&e->arena, wf_validator_metrics(v));
    }
    wf_validator_free(v);
    wf_device_close(context);
    wf_loader_free(loader);
    return ok;
}

static bool find_part(const struct wf_cli *cli, enum wf_part *part, struct wf_err *err)
{
    static const char *const names[] = { "train", "valid", "all" };
    const char *const given = wf_cli_flag(cli, "part");
    *part = WF_PART_ALL;
    for (int i = 0; given && i < 3; i++)
        if (strcmp(given, names[i]) == 0) {
            *part = (enum wf_part)i;
            return true;
        }
    return !given ||
           wf_err_set(err, WF_ERR_USAGE, "option '--part': '%s' is not train, valid or all", given);
}

/* Colours are numbered as they are found, so another set of them is another set of labels: refused.
 * Values keep their meaning, and a set may lack some: said. */
static bool compare_classes(const struct eval *e, struct wf_err *err)
{
    const struct wf_checkpoint_info *const info = wf_checkpoint_info(e->checkpoint);
    const struct wf_dataset_info *const data = e->feed->info;
    if (info->classes == 0)
        return true;
    for (int c = 0; data->codes == WF_CODES_COLORS && c < data->n_classes; c++) {
        const char *const there = c < info->classes ? info->class_names[c] : "missing";
        if (strcmp(data->classes[c].name, there) != 0)
            return wf_err_set(err, WF_ERR_INPUT,
                              "class %d of '%s' is %s, but %s where '%s' was trained: list the "
                              "colours in '%s/classes.txt' with the names and in the order of the "
                              "training data",
                              c, data->path, data->classes[c].name, there,
                              wf_checkpoint_path(e->checkpoint), data->path);
    }
    const int found = data->n_classes;
    char unnamed[32];
    (void)snprintf(unnamed, sizeof unnamed, "class %d", found);
    if (e->cli->launch.is_root && found < info->classes &&
        strcmp(info->class_names[found], unnamed) != 0)
        wf_log(&e->cli->log, WF_LOG_WARN,
               "'%s' has labels of %d classes, '%s' was trained on more, such as '%s'", data->path,
               found, wf_checkpoint_path(e->checkpoint), info->class_names[found]);
    return true;
}

/* The network is the checkpoint's, the data another: its normalisation stays that of the training. */
static bool prepare(struct eval *e, const char *path, struct wf_err *err)
{
    struct wf_cli *const cli = e->cli;
    const struct wf_checkpoint_info *const info = wf_checkpoint_info(e->checkpoint);
    enum wf_part part;
    if (!wf_launch_same_file(&cli->launch, wf_checkpoint_path(e->checkpoint),
                             wf_checkpoint_digest(e->checkpoint), err) ||
        !find_part(cli, &part, err) ||
        !wf_options_read_text(cli->options, wf_checkpoint_path(e->checkpoint), info->config, err) ||
        !wf_options_settings(cli->options, &e->settings, err) ||
        !wf_feed_open(e->feed, &cli->launch, &e->settings, path, part, err))
        return false;
    struct wf_fingerprint data;
    if (cli->launch.world && (!wf_dataset_fingerprint(&cli->arena, e->feed->dataset, &data, err) ||
                              !wf_launch_same_data(&cli->launch, e->feed->dataset, &data, err)))
        return false;
    if (e->feed->parts[part] == 0)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has no images in this part: use --part all",
                          path);
    if (!wf_feed_take_normal(e->feed, e->checkpoint, err) || !compare_classes(e, err))
        return false;
    struct wf_job_files files = { .begun = true };
    wf_feed_size(e->feed, &files);
    e->job = wf_job_new(&cli->launch, &e->settings, &files, err);
    struct wf_shape shape;
    if (!e->job || !wf_feed_valid_shape(e->feed, &e->job->mesh, &shape, err) ||
        !wf_job_network(e->job, shape, false, &e->net, err))
        return false;
    const struct wf_plan_options options = wf_job_plan_options(e->job);
    e->global = wf_global_plan_new(e->net.graph, &e->job->mesh, &options, err);
    return e->global != NULL;
}

static bool print(const struct eval *e, struct wf_err *err)
{
    const int64_t images = e->feed->parts[e->feed->part];
    if (e->cli->json) {
        cJSON *const json = e->net.has_classes ? wf_scores_json(&e->scores) : cJSON_CreateObject();
        wf_json_add_real(json, "loss", e->loss);
        (void)cJSON_AddNumberToObject(json, "images", (double)images);
        cJSON_AddItemToObject(json, "classes",
                              cJSON_CreateStringArray(e->feed->class_names, e->feed->classes));
        (void)cJSON_AddStringToObject(json, "checkpoint", wf_checkpoint_path(e->checkpoint));
        (void)cJSON_AddNumberToObject(json, "step",
                                      (double)wf_checkpoint_info(e->checkpoint)->at.step);
        return wf_cli_print_json(e->cli, json, err);
    }
    (void)printf("%s (step %lld) on %lld images of %s\nloss %.6g\n",
                 wf_text_shown(&e->cli->arena, wf_checkpoint_path(e->checkpoint)),
                 (long long)wf_checkpoint_info(e->checkpoint)->at.step, (long long)images,
                 wf_text_shown(&e->cli->arena, e->feed->info->path), e->loss);
    if (e->net.has_classes)
        wf_print_scores(&e->cli->arena, &e->scores, e->feed->class_names);
    return true;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments != 2)
        return wf_err_set(err, WF_ERR_USAGE,
                          "eval takes a checkpoint and a dataset: widefield eval CKPT DATA");
    struct wf_feed feed = { 0 };
    struct eval e = { .cli = cli, .feed = &feed };
    e.checkpoint = wf_checkpoint_of(cli->arguments[0], &cli->log, err);
    bool ok = e.checkpoint && prepare(&e, cli->arguments[1], err);
    ok = wf_launch_agree(&cli->launch, ok, err);
    ok = ok && wf_job_run(e.job, eval_rank, &e, err);
    if (ok && cli->launch.is_root)
        ok = print(&e, err);
    wf_global_plan_free(e.global);
    wf_graph_free(e.net.graph);
    wf_job_free(e.job);
    wf_feed_release(&feed);
    wf_checkpoint_free(e.checkpoint);
    wf_arena_release(&e.arena);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "part", "NAME", "train, valid or all: which part of the data, split as in training (all)" },
    { .name = NULL },
};

const struct wf_command wf_command_eval = {
    .name = "eval",
    .summary = "evaluate a checkpoint on a dataset: loss and per-class IoU, Dice, accuracy",
    .usage = "eval CKPT DATA [key=value ...] [--part NAME]",
    .notes =
        "CKPT is a file or a run folder (its best checkpoint). A key=value argument replaces a key of\n"
        "the checkpoint's config. train.validate_on chooses whole images or crops.",
    .flags = flags,
    .run = run,
};
