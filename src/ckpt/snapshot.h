/*
 * A copy of everything that a checkpoint holds, in host memory: taken between two steps in the time of a copy, and written
 * to a file by another thread while the training goes on (ckpt/background.h).
 *
 *     struct wf_snapshot *s = wf_snapshot_new(run, optim, err);     once: all memory is taken here
 *     ok = wf_snapshot_take(s, err);                                the next pass may begin
 *     ok = wf_snapshot_settle(s, err);                              the weights may change again
 *     ok = wf_snapshot_write(s, path, &info, err);                  by any thread, one at a time
 *
 * Rank 0 has one. It takes the bytes of the file's tensors (weights, running statistics, the optimiser's arrays), and one
 * tensor more while it is written; on a GPU it is pinned. Tensors that other ranks hold are fetched by wf_snapshot_take(),
 * while those ranks serve (exec/holders.h): writing communicates with nobody.
 */
#pragma once

#include "exec/run.h"
#include "optim/optim.h"

struct wf_checkpoint_info;
struct wf_snapshot;

/* What it will take, for a network and an optimiser with so many arrays. */
size_t wf_snapshot_bytes(const struct wf_graph *g, int optim_states);

/* Run and optimiser are borrowed. NULL when there is no memory. */
struct wf_snapshot *wf_snapshot_new(const struct wf_run *run, const struct wf_optim *optim,
                                    struct wf_err *err);
void wf_snapshot_free(struct wf_snapshot *s);
/* By the thread that steps. Replaces what it had. A GPU goes on beside the copy: until wf_snapshot_settle() parameters and the
 * optimiser's arrays stay as they are, so it is called before the next update; running statistics may change at once. */
[[nodiscard]] bool wf_snapshot_take(struct wf_snapshot *s, struct wf_err *err);
[[nodiscard]] bool wf_snapshot_settle(struct wf_snapshot *s, struct wf_err *err);
/* The same file, byte for byte, as wf_checkpoint_save() would have written at that step. */
[[nodiscard]] bool wf_snapshot_write(struct wf_snapshot *s, const char *path,
                                     const struct wf_checkpoint_info *info, struct wf_err *err);
