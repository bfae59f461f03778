/*
 * A training run in a run folder: from a dataset and settings to checkpoints, a log and samples.
 *
 *     struct wf_run_folder folder = { .launch = launch, .model = settings.model->name };
 *     struct wf_training t = { .launch = launch, .settings = settings, .folder = &folder, ... };
 *     ok = wf_run_folder_find(&folder, out, resume, err) &&
 *          wf_training_prepare(&t, "data/nuclei", err) &&      nothing is written so far
 *          wf_run_folder_make(&folder, err) && wf_training_begin(&t, err) && wf_training_run(&t, err);
 *     wf_training_release(&t);
 *     wf_run_folder_release(&folder);
 *
 * All of these are collective under a launcher. Ranks that are threads share this struct; only rank 0
 * writes to it, and to the files.
 */
#pragma once

#include "data/fingerprint.h"
#include "exec/stream.h"
#include "train/carry.h"
#include "train/feed.h"
#include "train/journal.h"
#include "train/run_folder.h"
#include "train/targets.h"
#include "train/saver.h"

/* What a rank took of the machine; bytes. */
struct wf_rank_use {
    int64_t planned, held; /* values, weights and the optimiser's states, those of validation
                            * too: before, and in fact */
    int64_t host; /* of host memory, for snapshots: part of the two where the CPU is the device */
    int64_t process; /* the most that its process had in memory; ranks may share it */
    int64_t read;    /* of files, for its batches */
    int64_t prepare; /* of files, by its process, to find out what the dataset is */
};

struct wf_foretold;

/* For who watches or steers a run. All but `stops`, `pause` and `finished` are called on rank 0; each may be
 * NULL. */
struct wf_training_hooks {
    /* Before the first step, where there are figures of a machine: what it will take (train/foresight.h). */
    void (*planned)(void *user, const struct wf_foretold *foretold);
    void (*stepped)(void *user, const struct wf_step_report *report);
    void (*epoch_ended)(void *user, const struct wf_epoch_report *report);
    bool (*stops)(void *user);                               /* asked before each step */
    bool (*pause)(void *user, const struct wf_pause *pause); /* see struct wf_trainer_hooks */
    /* Collective, with the run of the last step; the log's end follows. */
    bool (*finished)(void *user, const struct wf_run *run, struct wf_comm *comm,
                     struct wf_err *err);
};

struct wf_training {
    struct wf_launch launch;
    struct wf_settings settings;  /* unset values are filled in from the data */
    struct wf_run_folder *folder; /* that is not made: nothing is written */
    const char *config;           /* all settings as text, which checkpoints keep */
    bool is_planned_only; /* it is never run: what would be measured of the data is left out */
    bool changed_data;    /* go on though the dataset is not the checkpoint's */
    const struct wf_training_hooks *hooks;
    void *user;
    /* results */
    struct wf_arena arena;
    struct wf_feed feed;
    struct wf_targets targets;
    struct wf_job *job;
    struct wf_network valid;             /* graph NULL: no validation part */
    struct wf_global_plan *valid_global; /* NULL: there is none, or whole images go in windows */
    /* Validation of whole images in windows, where one does not fit beside the step: in the memory of the step. */
    struct wf_windows {
        bool used;
        size_t limit,
            keep; /* bytes of a window; between passes over an image, where memory.limit has room */
        struct wf_stream_estimate of_image;
    } windows;
    struct wf_network
        rest; /* for the epoch's last batch, where that is smaller; graph NULL: never */
    struct wf_global_plan *rest_global;
    struct wf_schedule schedule;
    struct wf_fingerprint dataset; /* as this rank sees it, and all others */
    const char *data;              /* its text, for checkpoints */
    const char **targets_data;     /* those of the target domains */
    /* Of point clouds: rows that training and validation take; and while a run is planned anew, for a batch that has
     * more, what the ranks of this process have learned. */
    struct wf_feed_rows rows[2];
    int64_t valid_rows[WF_SETS + 1];
    struct wf_carry **carries; /* of each rank; or NULL */
    bool is_full;
    double pixels;         /* trained on before */
    size_t snapshot_bytes; /* of rank 0, to save beside the training; 0: it waits */
    struct wf_position start;
    struct wf_times times; /* begun by the caller */
    /* rank 0's */
    struct wf_journal *journal;
    struct wf_saver *saver;
    struct wf_trainer_result result;
    struct wf_scores scores;
    struct wf_domain_scores *domains; /* of every domain that was validated, the first included */
    int n_domains;
    struct wf_rank_use *use; /* of each rank, once the run has ended */
    bool has_scores;
};

/* Finds everything that can be wrong, before a folder is made. The folder's checkpoint is open where the
 * run goes on. */
[[nodiscard]] bool wf_training_prepare(struct wf_training *t, const char *path, struct wf_err *err);
/* Opens the log of the folder, which is there. */
[[nodiscard]] bool wf_training_begin(struct wf_training *t, struct wf_err *err);
/* Trains to the end, or until it is stopped: t->result says which. */
[[nodiscard]] bool wf_training_run(struct wf_training *t, struct wf_err *err);
void wf_training_release(struct wf_training *t);
/* What a checkpoint of it says. */
struct wf_checkpoint_info wf_training_info(const struct wf_training *t,
                                           const struct wf_position *at);

/* Of the validation part. */
struct wf_loader_options wf_training_valid_loader(const struct wf_training *t);

/* What all took, for the log and for --json. */
struct cJSON *wf_rank_use_json(const struct wf_rank_use *use, int ranks);
/* `best`: the epoch that best.safetensors has and its metric, for the log and for --json. */
void wf_best_json(struct cJSON *to, const struct wf_training *t);

/* Collective: what one rank does of it, with a struct wf_training as `arg` (training_rank.c). */
bool wf_training_rank(struct wf_comm *comm, void *arg, struct wf_err *err);
