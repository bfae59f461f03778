/*
 * The folder of a run: config.yaml, log.jsonl, checkpoints/, samples/, report.html.
 *
 * Finding it out writes nothing but the lock of a run that goes on in its folder; making it does, once
 * all else about the run is known to be right. From then on to the end the folder is this run's alone.
 *
 *     struct wf_run_folder f = { .launch = launch, .model = "unet" };
 *     ok = wf_run_folder_find(&f, out, resume, err);          Collective under a launcher.
 *     ... f.checkpoint is open where the run goes on ...
 *     ok = wf_run_folder_make(&f, err);                       Collective under a launcher.
 */
#pragma once

#include "base/lock.h"
#include "ckpt/checkpoint.h"
#include "train/launch.h"

enum { WF_PATH_ROOM = 4096 };

struct wf_run_folder {
    struct wf_launch launch;
    const char *model; /* name of the network; those of folders begin with it */
    struct wf_arena arena;
    char path[WF_PATH_ROOM];            /* empty: named by model and time when it is made */
    char checkpoint_path[WF_PATH_ROOM]; /* empty: a new run */
    bool exists;                        /* and may be written to, because the run goes on in it */
    struct wf_checkpoint *checkpoint;   /* open, or NULL */
    struct wf_checkpoint_folder kept;   /* where the run's are saved; once the folder is made */
    struct wf_lock *lock;               /* of the rank that writes */
};

/* `out`: the folder (--out), NULL: runs/MODEL-TIME; `resume`: a run folder or checkpoint to go on from,
 * "auto": the newest, or NULL (--resume). Rank 0 looks and tells the others. */
[[nodiscard]] bool wf_run_folder_find(struct wf_run_folder *f, const char *out, const char *resume,
                                      struct wf_err *err);
/* Names and makes the folder and its folders. */
[[nodiscard]] bool wf_run_folder_make(struct wf_run_folder *f, struct wf_err *err);
/* A run that was refused before its first step leaves no new folder behind, so that the name is free for the next try.
 * Only files that a beginning run writes are removed: with any other, such as a checkpoint, the folder stays. */
void wf_run_folder_undo(struct wf_run_folder *f);
void wf_run_folder_release(struct wf_run_folder *f);

/* "PATH/name" */
const char *wf_run_folder_file(struct wf_arena *arena, const struct wf_run_folder *f,
                               const char *name);
/* A checkpoint by what people give for one: a file, or a run folder (its best, else its last). */
struct wf_checkpoint *wf_checkpoint_of(const char *path, const struct wf_log *log,
                                       struct wf_err *err);
