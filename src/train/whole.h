/*
 * Scores of whole images of any size, window by window, with the numbers of the whole image (exec/stream.h).
 *
 *     struct wf_loader_options o = wf_whole_loader(&feed, &net);
 *     struct wf_whole w = { .job = job, .feed = &feed, .comm = comm, .context = context, .loader = loader,
 *                           .memory = memory, .weights = load, .user = checkpoint };
 *     ok = wf_whole_score(&w, sample, &metrics, &score, err);      Collective.
 *     wf_whole_release(&w);
 *
 * Windows are distributed over ranks, and each rank has all weights. What was planned for an image serves the next
 * one of its size, unless sums over it are computed first.
 */
#pragma once

#include "exec/stream.h"
#include "train/feed.h"
#include "train/metrics.h"
#include "train/window_memory.h"

struct wf_whole {
    /* Borrowed. */
    const struct wf_job *job;
    const struct wf_feed *feed;
    struct wf_comm *comm;
    struct wf_context *context;
    struct wf_loader *loader;
    struct wf_window_memory memory; /* with a lender: of its arena, without weights */
    struct wf_run *lender;          /* see wf_stream_options; NULL: weights come from `weights` */
    bool (*weights)(void *user, struct wf_run *run, struct wf_err *err);
    void *user;
    /* Of the image at hand. */
    int64_t sample;
    struct wf_network net;
    struct wf_stream *stream;
    size_t held; /* most bytes, of the images before */
};

struct wf_whole_score {
    double loss;
    int64_t weight; /* pixels that count */
};

/* Whether windows may stand in for this network of validation: it takes whole images, and each rank has all weights. */
bool wf_whole_may_stand_in(const struct wf_job *job, const struct wf_feed *feed,
                           const struct wf_network *valid);
/* What it reads images with. */
struct wf_loader_options wf_whole_loader(const struct wf_feed *feed, const struct wf_network *net);
struct wf_stream_options wf_whole_stream(const struct wf_job *job);

/* Most bytes so far: of windows, as far as they are not the lender's, and kept between passes. */
size_t wf_whole_bytes(const struct wf_whole *w);
struct wf_shape wf_whole_shape(const struct wf_whole *w, int64_t sample);

/* Collective. `one` are the image's counts, of all ranks. */
[[nodiscard]] bool wf_whole_score(struct wf_whole *w, int64_t sample, struct wf_metrics *one,
                                  struct wf_whole_score *score, struct wf_err *err);
/* Each window of it: the parts of image, labels and logits there, valid during the call. */
typedef void wf_whole_window(void *user, const struct wf_view *image, const struct wf_view *target,
                             const struct wf_view *logits);
/* Collective. The image once more, to be looked at; each rank sees its own windows. */
[[nodiscard]] bool wf_whole_show(struct wf_whole *w, int64_t sample, wf_whole_window *see,
                                 void *user, struct wf_err *err);
void wf_whole_release(struct wf_whole *w);
