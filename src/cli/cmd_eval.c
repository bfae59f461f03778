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

static bool print(struct wf_cli *cli, const struct wf_evaluation *e, struct wf_err *err)
{
    const int64_t images = e->feed.parts[e->part];
    if (cli->json) {
        cJSON *const json = e->net.has_classes ? wf_scores_json(&e->scores) : cJSON_CreateObject();
        wf_json_add_real(json, "loss", e->loss);
        (void)cJSON_AddNumberToObject(json, "images", (double)images);
        cJSON_AddItemToObject(json, "classes",
                              cJSON_CreateStringArray(e->feed.class_names, e->feed.classes));
        (void)cJSON_AddStringToObject(json, "checkpoint", wf_checkpoint_path(e->checkpoint));
        (void)cJSON_AddNumberToObject(json, "step",
                                      (double)wf_checkpoint_info(e->checkpoint)->at.step);
        return wf_cli_print_json(cli, json, err);
    }
    (void)printf("%s (step %lld) on %lld images of %s\nloss %.6g\n",
                 wf_text_shown(&cli->arena, wf_checkpoint_path(e->checkpoint)),
                 (long long)wf_checkpoint_info(e->checkpoint)->at.step, (long long)images,
                 wf_text_shown(&cli->arena, e->feed.info->path), e->loss);
    if (e->net.has_classes)
        wf_print_scores(&cli->arena, &e->scores, e->feed.class_names);
    return true;
}

static bool run(struct wf_cli *cli, struct wf_err *err)
{
    if (cli->n_arguments != 2)
        return wf_err_set(err, WF_ERR_USAGE,
                          "eval takes a checkpoint and a dataset: widefield eval CKPT DATA");
    struct wf_checkpoint *const c = wf_checkpoint_of(cli->arguments[0], &cli->log, err);
    struct wf_evaluation e = { .launch = cli->launch, .checkpoint = c };
    bool ok = c && find_part(cli, &e.part, err) &&
              wf_options_read_text(cli->options, wf_checkpoint_path(c),
                                   wf_checkpoint_info(c)->config, err) &&
              wf_options_settings(cli->options, &e.settings, err);
    ok = wf_launch_agree(&cli->launch, ok, err) && wf_evaluate(&e, cli->arguments[1], err);
    if (ok && cli->launch.is_root)
        ok = print(cli, &e, err);
    wf_evaluation_release(&e);
    wf_checkpoint_free(c);
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
