/*
 * An image that is being predicted: its pixels, and the files of its prediction. Not for anybody
 * else than train/predict.c, whose pipeline (train/pipeline.h) calls fill, pack and write from its
 * threads.
 *
 *     struct wf_predict_image *i = wf_predict_image_new(&prediction, err);      looks at the file
 *     ok = wf_predict_image_begin(i, stream, comm, err);                       Collective: makes files
 *     wf_predict_image_fill(i, w, part, err)       parts of a window's pixels; several threads
 *     wf_predict_image_pack(i, w, part, err)       parts of a window's results, likewise
 *     wf_predict_image_write(i, w, err)            Collective. A round of windows into the files
 *     wf_predict_image_close(i, ok, err)           Collective.
 */
#pragma once

#include "train/mosaic.h"
#include "train/predict.h"

enum { WF_PREDICT_PARTS = 16, WF_PREDICT_TILE = 256 };

/* A window on its way through the pipeline. */
struct wf_predict_window {
    struct wf_predict_image *image;
    int64_t index;              /* of the image's windows; -1: none, in the last round */
    struct wf_region cell;      /* of the result */
    struct wf_stream_work work; /* input and outputs, in host memory */
    size_t input_bytes, bytes[WF_STREAM_OUTPUTS]; /* taken for them */
    const float *values;                          /* outputs, by what they are; NULL: not wanted */
    void *labels;                                 /* u8 or i32; u8 or u16 once they are packed */
    float *
        source; /* the picture under it, where the image takes one; it may be of an earlier image */
    size_t source_bytes;
    int fills, packs;
    struct wf_mosaic_packed packed[WF_PREDICT_PARTS];
};

struct wf_predict_image {
    struct wf_prediction p;
    int64_t serial;
    double start, first; /* seconds: when it was opened, when its first window was asked for */
    bool in_order;       /* it can only be read from the top */
    enum wf_dtype
        dtype; /* of its windows: u8 as in the file, which the device normalises, or f32 */
    float scale[WF_WIDEN_CHANNELS], offset[WF_WIDEN_CHANNELS]; /* of bytes */
    bool has_void; /* the image may hold nothing, and pixels of the prediction are its own */
    struct wf_mosaic_options files;
    const struct wf_stream *stream; /* for its grid of windows */
    struct wf_comm *comm, *self;    /* the second: one of its own, for threads that write it */
    struct wf_mosaic *mosaic;       /* NULL: a classifier's, or results are arrays */
    struct wf_predict_pictures *pixels, *under; /* for windows; for tags, holes and the overlay */
    int64_t unit;                               /* rows that are decoded together */
    int64_t written;                            /* windows */
    _Atomic bool closed;
    struct wf_predicted result;
};

struct wf_predict_image *wf_predict_image_new(const struct wf_prediction *p, struct wf_err *err);
void wf_predict_image_free(struct wf_predict_image *i);

bool wf_predict_image_wants_labels(const struct wf_predict_image *i);
bool wf_predict_image_wants_values(const struct wf_predict_image *i);
/* The picture under a window, for an overlay and for pixels that hold nothing. */
bool wf_predict_image_wants_source(const struct wf_predict_image *i);
/* What the device makes of them: u8, or i32 if they need more. */
enum wf_dtype wf_predict_image_labels(const struct wf_predict_image *i);

/* Collective. Without a comm this rank is alone, and any one thread at a time may write and close. */
[[nodiscard]] bool wf_predict_image_begin(struct wf_predict_image *i,
                                          const struct wf_stream *stream, struct wf_comm *comm,
                                          struct wf_err *err);
/* Sets how many parts a window has, from its boxes. */
void wf_predict_image_cut(const struct wf_predict_image *i, struct wf_predict_window *w);
/* The image over a box, as the network takes it. */
[[nodiscard]] bool wf_predict_image_read(const struct wf_predict_image *i,
                                         const struct wf_region *box, float *to,
                                         struct wf_err *err);
[[nodiscard]] bool wf_predict_image_fill(const struct wf_predict_window *w, int part,
                                         struct wf_err *err);
[[nodiscard]] bool wf_predict_image_pack(struct wf_predict_window *w, int part, struct wf_err *err);
/* Collective. The windows of a round, one of each rank from the first on, into the files. */
[[nodiscard]] bool wf_predict_image_write(struct wf_predict_image *i, struct wf_predict_window *w,
                                          int64_t first, struct wf_err *err);
/* Collective. Files get their names, or are removed. */
[[nodiscard]] bool wf_predict_image_close(struct wf_predict_image *i, bool ok, struct wf_err *err);
