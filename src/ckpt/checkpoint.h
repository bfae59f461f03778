/*
 * Checkpoints: everything that a training run needs to resume as if it had never stopped, in one
 * safetensors file that other programs can read as well.
 *
 * Tensors, f32, in PyTorch's layout: `param.<name>`, `state.<name>` (running statistics), and
 * `optim.<k>.<name>` (the optimiser's state k of that parameter). Texts (`__metadata__`): those of
 * struct wf_checkpoint_info, and `xxh64` over all of it. Weights are whole on every rank, so one
 * rank writes, and the file loads on any mesh.
 *
 *     struct wf_checkpoint *c = wf_checkpoint_open_latest(folder, &log, err);
 *     bool ok = c && wf_checkpoint_load(c, run, optim, err);
 *     int64_t step = wf_checkpoint_info(c)->step;
 *     wf_checkpoint_free(c);
 *
 * In a folder of checkpoints:
 *   C1. last.safetensors is the newest, previous.safetensors the one before, best.safetensors the
 *       one with the best metric.
 *   C2. A name always stands for a complete file (base/file.h). Once there is a last, there is always
 *       a last or a previous, whenever the process or the machine dies.
 *   C3. best is written before the last that refers to it: a run that was killed between the two
 *       writes the same best again.
 *   C4. The new file is complete and on the disk before any file is renamed, and only a last that is
 *       known to be good becomes previous: a damaged file never replaces a good one.
 *   C5. No file holds a number that is not finite.
 */
#pragma once

#include "base/log.h"
#include "exec/run.h"
#include "optim/optim.h"
#include "ckpt/position.h"
#include "ckpt/snapshot.h"

/* The metadata. Texts and arrays are borrowed for saving; those of an open checkpoint live as long
 * as it. */
struct wf_checkpoint_info {
    const char *config; /* the resolved options, YAML */
    struct wf_position at;
    uint64_t seed;
    int channels;                   /* 0: normalisation is not known */
    const double *mean, *deviation; /* x becomes (x - mean) / deviation, per channel */
    int classes;                    /* 0: no names */
    const char *const *class_names;
    const char *data; /* the fingerprint of the dataset (data/fingerprint.h); NULL: not known */
    int n_targets;    /* those of the target domains, if any */
    const char *const *targets;
};

struct wf_checkpoint;
struct wf_safetensors;

/* By rank 0, one tensor after the other, each from the first rank that holds it: where that is not rank 0
 * itself the others serve (exec/holders.h). So the file does not depend on the placement, and loads on
 * any other. optim NULL: weights only. Weights that are not finite are refused (C5). */
[[nodiscard]] bool wf_checkpoint_save(const char *path, const struct wf_checkpoint_info *info,
                                      const struct wf_run *run, const struct wf_optim *optim,
                                      struct wf_err *err);

struct wf_checkpoint_folder {
    const char *path;
    bool last_is_good; /* was opened with its checksum, or written, by this process (C4) */
};
/* Where the tensors come from: a snapshot, or the run and its optimiser themselves. */
struct wf_checkpoint_source {
    const struct wf_run *run;
    const struct wf_optim *optim;
    struct wf_snapshot *snapshot; /* not NULL: the other two are not read */
};
/* As the newest of the folder, and with `is_best` also as its best. */
[[nodiscard]] bool wf_checkpoint_save_last(struct wf_checkpoint_folder *folder, bool is_best,
                                           const struct wf_checkpoint_info *info,
                                           const struct wf_checkpoint_source *from,
                                           struct wf_err *err);

/* Opens the file and reads all of it once, to verify its checksum. NULL on failure. */
struct wf_checkpoint *wf_checkpoint_open(const char *path, struct wf_err *err);
/* The newest of `folder`; if it is damaged, the newer of previous and best, with a warning. NULL on
 * failure, and with WF_OK in `err` if there is none. A file that cannot be read at the moment (no
 * memory, a failing disk) is not damaged: that is a failure. */
struct wf_checkpoint *wf_checkpoint_open_latest(const char *folder, const struct wf_log *log,
                                                struct wf_err *err);
void wf_checkpoint_free(struct wf_checkpoint *c);
/* Checks a file of weights from any program: if it claims to be a checkpoint, its checksum must
 * match. Reads all of it. */
[[nodiscard]] bool wf_checkpoint_vouch(const struct wf_safetensors *file, const char *path,
                                       struct wf_err *err);

const struct wf_checkpoint_info *wf_checkpoint_info(const struct wf_checkpoint *c);
const char *wf_checkpoint_path(const struct wf_checkpoint *c);
/* Its checksum, as a text: the same for the same content. */
const char *wf_checkpoint_digest(const struct wf_checkpoint *c);
/* Whether it is `folder`'s last. */
bool wf_checkpoint_is_last(const struct wf_checkpoint *c, const char *folder);
/* If the folder has no last (a save ended after its best), this one, on the same disk, becomes it.
 * True if it did. */
bool wf_checkpoint_become_last(const struct wf_checkpoint *c, const char *folder);
/* Whether names and shapes match a network and an optimiser with `optim_states` arrays. */
[[nodiscard]] bool wf_checkpoint_fits(const struct wf_checkpoint *c, const struct wf_graph *g,
                                      int optim_states, struct wf_err *err);
/* Fills the weights and states that a run holds and, unless NULL, an optimiser: every rank for itself.
 * Ranks that are threads may share the checkpoint. Names and shapes must be those of the run. */
[[nodiscard]] bool wf_checkpoint_load(const struct wf_checkpoint *c, struct wf_run *run,
                                      struct wf_optim *optim, struct wf_err *err);
