/* eval: how good a checkpoint is on a dataset. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/text.h"
#include "config/options_settings.h"
#include "train/evaluate.h"
#include "train/journal.h"
#include "train/run_folder.h"

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

static cJSON *scores_json(const struct wf_evaluation *e)
{
    cJSON *const json = e->net.has_classes ? wf_scores_json(&e->scores) : cJSON_CreateObject();
    wf_json_add_real(json, "loss", e->loss);
    (void)cJSON_AddNumberToObject(json, "images", (double)e->feed.parts[e->part]);
    return json;
}

static void print_scores(struct wf_cli *cli, const struct wf_evaluation *e)
{
    (void)printf("%s (step %lld) on %lld images of %s\nloss %.6g\n",
                 wf_text_shown(&cli->arena, wf_checkpoint_path(e->checkpoint)),
                 (long long)wf_checkpoint_info(e->checkpoint)->at.step,
                 (long long)e->feed.parts[e->part], wf_text_shown(&cli->arena, e->feed.info->path),
                 e->loss);
    if (e->net.has_classes)
        wf_print_scores(&cli->arena, &e->scores, e->feed.class_names);
}

/* --- the datasets --- */

/* A checkpoint on one dataset, or on one of each domain. */
struct eval {
    struct wf_cli *cli;
    const struct wf_checkpoint *checkpoint;
    enum wf_part part;
    const char *const *paths;
    int n_paths;
    cJSON *json; /* what is printed with --json: the first one's, and `domains` */
    struct wf_domain_scores *domains;
    int n_domains; /* that have labels */
};

/* What there is to evaluate on: as given, or the datasets of all domains that the checkpoint was trained on. */
static bool find_paths(struct eval *v, const struct wf_settings *s, struct wf_err *err)
{
    const struct wf_cli *const cli = v->cli;
    const int domains = wf_model_domains(s->model, &s->config), given = cli->n_arguments - 1;
    v->paths = cli->arguments + 1;
    v->n_paths = given;
    if (given == 0 && domains > 1) {
        v->paths = s->data.domains;
        v->n_paths = s->data.n_domains;
    }
    if (v->n_paths == 1 || (domains > 1 && v->n_paths == domains))
        return true;
    return wf_err_set(
        err, WF_ERR_USAGE, "eval takes a checkpoint and a dataset%s: widefield eval CKPT DATA",
        domains > 1 ? ", or one for each domain, or none for those of data.domains" : "");
}

static bool read_settings(const struct eval *v, struct wf_settings *s, struct wf_err *err)
{
    return wf_options_read_text(v->cli->options, wf_checkpoint_path(v->checkpoint),
                                wf_checkpoint_info(v->checkpoint)->config, err) &&
           wf_options_settings(v->cli->options, s, err);
}

/* A target may well have none, or those of other classes. */
static bool has_labels(const struct eval *v, const struct wf_settings *s, const char *path)
{
    struct wf_err ignored = { 0 };
    const struct wf_dataset_options options = wf_feed_dataset_options(s);
    struct wf_dataset *const d = wf_dataset_open(path, &options, &ignored);
    const struct wf_dataset_info *const info = d ? wf_dataset_info(d) : NULL;
    const struct wf_checkpoint_info *const trained = wf_checkpoint_info(v->checkpoint);
    const bool none = d && info->labels == WF_LABELS_NONE;
    const int other = d && trained->classes
                          ? wf_feed_other_class(info, trained->class_names, trained->classes)
                          : -1;
    if (none && v->cli->launch.is_root)
        wf_log(&v->cli->log, WF_LOG_INFO, "'%s' has no labels: it is left out", path);
    else if (other >= 0 && v->cli->launch.is_root)
        wf_log(&v->cli->log, WF_LOG_WARN,
               "the labels of '%s' are not used for metrics: class %d is %s, that of '%s' %s", path,
               other, info->classes[other].name, wf_checkpoint_path(v->checkpoint),
               other < trained->classes ? trained->class_names[other] : "missing");
    wf_dataset_free(d);
    return !none && other < 0;
}

static void keep(struct eval *v, const struct wf_evaluation *e, int domain, const char *path)
{
    struct wf_cli *const cli = v->cli;
    v->domains[v->n_domains++] = (struct wf_domain_scores){ domain,
                                                            e->loss,
                                                            { .mean_iou = e->scores.mean_iou,
                                                              .accuracy = e->scores.accuracy,
                                                              .per_image = e->scores.per_image } };
    if (!cli->json) {
        print_scores(cli, e);
        return;
    }
    cJSON *const json = scores_json(e);
    if (v->json) {
        cJSON *const list = cJSON_GetObjectItemCaseSensitive(v->json, "domains");
        (void)cJSON_AddNumberToObject(json, "domain", domain);
        (void)cJSON_AddStringToObject(json, "data", path);
        (void)cJSON_AddItemToArray(list ? list : cJSON_AddArrayToObject(v->json, "domains"), json);
        return;
    }
    cJSON_AddItemToObject(json, "classes",
                          cJSON_CreateStringArray(e->feed.class_names, e->feed.classes));
    (void)cJSON_AddStringToObject(json, "checkpoint", wf_checkpoint_path(e->checkpoint));
    (void)cJSON_AddNumberToObject(json, "step", (double)wf_checkpoint_info(e->checkpoint)->at.step);
    v->json = json;
}

/* Collective under a launcher. */
static bool evaluate(struct eval *v, int at, struct wf_err *err)
{
    struct wf_cli *const cli = v->cli;
    struct wf_evaluation e = { .launch = cli->launch,
                               .checkpoint = v->checkpoint,
                               .part = v->part,
                               .whole = wf_cli_flag(cli, "whole") != NULL };
    bool ok = v->n_paths == 1 || wf_options_set(cli->options, "model.domain",
                                                wf_arena_printf(&cli->arena, "%d", at), err);
    ok = ok && wf_options_settings(cli->options, &e.settings, err);
    if (ok && at > 0 && !has_labels(v, &e.settings, v->paths[at]))
        return true;
    ok = wf_launch_agree(&cli->launch, ok, err) && wf_evaluate(&e, v->paths[at], err);
    if (ok && cli->launch.is_root)
        keep(v, &e, at, v->paths[at]);
    wf_evaluation_release(&e);
    return ok;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments < 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "eval takes a checkpoint and a dataset: widefield eval CKPT DATA");
    struct wf_checkpoint *const c = wf_checkpoint_of(cli->arguments[0], &cli->log, err);
    struct eval v = { .cli = cli, .checkpoint = c };
    struct wf_settings settings;
    bool ok = c && find_part(cli, &v.part, err) && read_settings(&v, &settings, err) &&
              find_paths(&v, &settings, err);
    ok = wf_launch_agree(&cli->launch, ok, err);
    if (ok)
        v.domains = wf_arena_array(&cli->arena, v.n_paths, struct wf_domain_scores);
    for (int i = 0; ok && i < v.n_paths; i++)
        ok = evaluate(&v, i, err);
    if (ok && cli->launch.is_root && cli->json)
        ok = wf_cli_print_json(cli, v.json, err);
    else
        cJSON_Delete(v.json);
    if (ok && cli->launch.is_root && !cli->json)
        wf_print_domains(&cli->arena, v.domains, v.n_domains, v.paths);
    wf_checkpoint_free(c);
    return ok;
}

static const struct wf_command_flag flags[] = {
    { "part", "NAME", "train, valid or all: which part of the data, split as in training (all)" },
    { "whole", NULL,
      "whole images of any size as predict sees them, in windows; default: as training validates" },
    { .name = NULL },
};

const struct wf_command wf_command_eval = {
    .name = "eval",
    .summary = "evaluate a checkpoint on a dataset: loss and per-class IoU, Dice, accuracy",
    .usage = "eval CKPT DATA... [key=value ...] [--part NAME]",
    .notes =
        "CKPT is a file or a run folder (its best checkpoint). A key=value argument replaces a key of\n"
        "the checkpoint's config. train.validate_on chooses whole images or crops.\n"
        "A network of several domains takes one dataset for each of them, or none: those of data.domains.",
    .flags = flags,
    .opens_device = true,
    .run = run,
};
