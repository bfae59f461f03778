/*
 * One training run on all ranks: what cmd_train.c has found out, and what came of it.
 *
 * Ranks that are threads share this; only rank 0 writes to it, and to the files.
 */
#ifndef WF_CLI_TRAIN_RUN_H
#define WF_CLI_TRAIN_RUN_H

#include "cli/feed.h"
#include "cli/run_folder.h"
#include "data/fingerprint.h"
#include "optim/schedule.h"
#include "train/journal.h"
#include "train/progress.h"

/* What a rank took of the machine; bytes. */
struct wf_rank_use {
    int64_t planned, held; /* values, weights and the optimiser's states, those of validation
                            * too: before, and in fact */
    int64_t process;       /* the most that its process had in memory; ranks may share it */
    int64_t read;          /* of files, for its batches */
    int64_t prepare;       /* of files, by its process, to find out what the dataset is */
};

struct wf_train_run {
    struct wf_cli *cli;
    struct wf_job *job;
    struct wf_feed *feed;
    struct wf_run_folder *folder;
    struct wf_network train, valid; /* valid.graph NULL: no validation part */
    struct wf_global_plan *valid_global;
    struct wf_network
        rest; /* for the epoch's last batch, where that is smaller; graph NULL: never */
    struct wf_global_plan *rest_global;
    struct wf_schedule schedule;
    const char *config;            /* for checkpoints */
    struct wf_fingerprint dataset; /* as this rank sees it, and all others */
    const char *data;              /* its text, for checkpoints */
    struct wf_position start;
    /* rank 0's */
    struct wf_journal *journal;
    struct wf_progress progress;
    const struct wf_run *run;
    const struct wf_optim *optim;
    struct wf_trainer_result result;
    struct wf_arena arena; /* of the scores */
    struct wf_scores scores;
    struct wf_rank_use *use; /* of each rank, once the run has ended */
    bool has_scores;
    double valid_loss;
};

/* What all took, for the log and for --json. */
struct cJSON *wf_rank_use_json(const struct wf_rank_use *use, int ranks);

/* `best`: the epoch that best.safetensors has and its metric, for the log and for --json. */
void wf_best_json(struct cJSON *to, const struct wf_train_run *t);

/* Collective: the body of wf_job_run(), with a struct wf_train_run as `arg`. */
bool wf_train_run_rank(struct wf_comm *comm, void *arg, struct wf_err *err);

#endif
