/*
 * How a training run saves: rank 0 takes a snapshot between two steps, and a thread writes it (ckpt/background.h).
 *
 *     ok = wf_saver_init(&s, training, run, optim, err);           once rank 0 has them
 *     ok = wf_saver_save(&s, &position, is_best, err);             the next pass may begin
 *     ok = wf_saver_settle(&s, err);                               the weights may change again
 *     ok = wf_saver_look(&s, &busy, err);                          before a step
 *     ok = wf_saver_finish(&s, err);                               all is on the disk
 *     wf_saver_release(&s);
 *
 * Where memory.limit has no room for a snapshot, a save returns when the file is on the disk.
 */
#pragma once

#include "ckpt/background.h"

struct wf_training;

struct wf_saver {
    const struct wf_training *t;
    const struct wf_run *run;
    const struct wf_optim *optim;
    struct wf_snapshot *snapshot; /* NULL: none, and no thread */
    struct wf_background *background;
    struct wf_checkpoint_info info; /* of a snapshot that is being taken */
    bool is_taking, is_best;
};

/* By rank 0. A run without a log saves nothing. */
[[nodiscard]] bool wf_saver_init(struct wf_saver *s, const struct wf_training *t,
                                 const struct wf_run *run, const struct wf_optim *optim,
                                 struct wf_err *err);
/* Waits for what is being written. */
void wf_saver_release(struct wf_saver *s);
/* A best waits while another is written. Where the run is not whole (exec/holders.h) the other ranks serve meanwhile. */
[[nodiscard]] bool wf_saver_save(struct wf_saver *s, const struct wf_position *at, bool is_best,
                                 struct wf_err *err);
/* Before the weights change: the snapshot is complete, and the thread's. */
[[nodiscard]] bool wf_saver_settle(struct wf_saver *s, struct wf_err *err);
/* Whether one is being written; false with its message if that has failed. */
[[nodiscard]] bool wf_saver_look(const struct wf_saver *s, bool *busy, struct wf_err *err);
/* A save is due that waits for a best that is held back. */
void wf_saver_hurry(struct wf_saver *s);
[[nodiscard]] bool wf_saver_finish(struct wf_saver *s, struct wf_err *err);
/* Bytes of host memory. */
size_t wf_saver_bytes(const struct wf_saver *s);
