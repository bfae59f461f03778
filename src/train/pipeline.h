/*
 * A pipeline of windows: threads read ahead and write behind, and its owner, who alone talks to the
 * device, computes between.
 *
 * Windows are numbered 0, 1, 2, ... in the order in which they are computed. Window n lives in slot
 * n % slots, which goes round:
 *
 *     FREE -> post() -> FILLING -> FILLED -> owner computes, pack() -> PACKING -> PACKED -> WRITING -> FREE
 *              owner     threads                                       threads               threads
 *
 * Filling and packing are cut into parts that run at the same time, so that a single large window
 * is decoded and compressed by all threads. Windows of one lane are filled one after the other (a
 * file that can only be read from the top) and windows of one image are written one after the
 * other. Threads prefer what is closest to the end, so that slots become free. With owner_writes
 * (ranks that write one file together) the owner takes PACKED windows and gives them back.
 *
 *     struct wf_pipeline *p = wf_pipeline_new(&options, err);
 *     wf_pipeline_post(p, n, &(struct wf_pipeline_window){ .fills = 8, .packs = 4, .image = 1 })
 *     wf_pipeline_wait(p, n, WF_WINDOW_FILLED) ... compute ... wf_pipeline_pack(p, n);
 *     ok = wf_pipeline_drain(p, err);                            all is written
 *     wf_pipeline_free(p);
 *
 * A job that fails ends its image and those behind it: none of their jobs begins after it, and
 * waiting for their windows returns false. Images before it go on. A failure of the owner
 * (wf_pipeline_fail) ends all. drain() returns the message of the first image that failed. All
 * functions are the owner's.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum wf_window_state {
    WF_WINDOW_FREE,
    WF_WINDOW_FILLING,
    WF_WINDOW_FILLED,
    WF_WINDOW_PACKING,
    WF_WINDOW_PACKED,
    WF_WINDOW_WRITING,
};

struct wf_pipeline_options {
    int slots, threads;
    bool owner_writes;
    void *user;
    bool (*fill)(void *user, int slot, int part, struct wf_err *err);
    bool (*pack)(void *user, int slot, int part, struct wf_err *err);
    bool (*write)(void *user, int slot, struct wf_err *err); /* NULL with owner_writes */
};

struct wf_pipeline_window {
    int fills, packs; /* parts; 0: nothing to do */
    int64_t image;    /* its number; written in order within it */
    bool in_order;    /* filled one after the other within the image */
};

struct wf_pipeline;

struct wf_pipeline *wf_pipeline_new(const struct wf_pipeline_options *options, struct wf_err *err);
/* Ends the threads when their jobs have ended; what was not begun is not done. */
void wf_pipeline_free(struct wf_pipeline *p);

/* The slot is free. */
void wf_pipeline_post(struct wf_pipeline *p, int64_t n, const struct wf_pipeline_window *window);
void wf_pipeline_pack(struct wf_pipeline *p, int64_t n);
/* With owner_writes: a packed window was written. */
void wf_pipeline_written(struct wf_pipeline *p, int64_t n);
bool wf_pipeline_is(struct wf_pipeline *p, int64_t n, enum wf_window_state state);
/* Neither its image nor one before it failed. */
bool wf_pipeline_goes_on(struct wf_pipeline *p, int64_t n);
/* False: it does not go on, and the state may not have come. */
[[nodiscard]] bool wf_pipeline_wait(struct wf_pipeline *p, int64_t n, enum wf_window_state state);
void wf_pipeline_fail(struct wf_pipeline *p, const struct wf_err *err);
/* Waits until all slots of images that go on are free, and no job runs. */
[[nodiscard]] bool wf_pipeline_drain(struct wf_pipeline *p, struct wf_err *err);
