/*
 * Checkpoints written beside the training, by a thread of their own.
 *
 * The training thread takes a snapshot and hands it over; the thread writes it into the folder (ckpt/checkpoint.h, C1 to
 * C5) and communicates with no rank. There is one snapshot, so one checkpoint is in work at a time:
 *
 *     ok = wf_background_claim(b, is_best, err) &&       the snapshot is the training thread's
 *          wf_snapshot_take(snapshot, err) && wf_snapshot_settle(snapshot, err);
 *     wf_background_hand(b, &info, is_best);             it is the writer's
 *     ...
 *     ok = wf_background_finish(b, err);                 all is on the disk
 *
 *   B1. Between claim and hand the thread does not touch the snapshot; otherwise only the thread does.
 *   B2. A best that was handed over reaches the disk, or is replaced by a better one.
 *   B3. A best may be held back for a moment (`settle`), for in short epochs the next one is better again and replaces
 *       it unwritten. The moment begins with the first of them, lasts twenty times as long as the last write did if that
 *       is longer and no other save is due, and ends `interval` after the last write at the latest. Others are written
 *       at once.
 *   B4. The first failure ends it: nothing more is written, and every call reports it.
 */
#pragma once

#include "ckpt/checkpoint.h"

struct wf_background;

struct wf_background_options {
    struct wf_checkpoint_folder *folder; /* the thread's from now on */
    struct wf_snapshot *snapshot;        /* likewise, by B1; borrowed */
    double interval, settle;             /* seconds */
    /* By the thread, before each write; NULL: nothing. */
    bool (*before)(void *user, struct wf_err *err);
    void *user;
};

/* Starts the thread; NULL on failure. */
struct wf_background *wf_background_new(const struct wf_background_options *options,
                                        struct wf_err *err);
/* Waits for what was handed over, then ends the thread. A failure that nobody asked for is lost. */
void wf_background_free(struct wf_background *b);

/* Waits while the snapshot is written. One that is held back is given up, unless it is a best and `is_best` is not set:
 * then it is written first. */
[[nodiscard]] bool wf_background_claim(struct wf_background *b, bool is_best, struct wf_err *err);
/* The texts and arrays of `info` are borrowed until it is written. */
void wf_background_hand(struct wf_background *b, const struct wf_checkpoint_info *info,
                        bool is_best);
/* What went wrong between claim and hand: a failure as any other (B4). */
void wf_background_fail(struct wf_background *b, const struct wf_err *err);
/* Whether one is held back or being written. */
[[nodiscard]] bool wf_background_look(struct wf_background *b, bool *busy, struct wf_err *err);
/* Another is due, and waits for what is held back: that is written when it has settled (B3). Returns at once. */
void wf_background_hurry(struct wf_background *b);
/* Waits until all is on the disk; nothing is held back any longer. */
[[nodiscard]] bool wf_background_finish(struct wf_background *b, struct wf_err *err);
