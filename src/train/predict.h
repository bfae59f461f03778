/*
 * Prediction of an image file of any size: its classes, probabilities and overlay as files, in the
 * memory of a window, with the numbers of the whole image (exec/stream.h).
 *
 * Windows are distributed to the ranks in turn. Each rank reads the pixels of its own windows, and
 * writes them where the file is a TIFF or NIfTI; PNG and .npy are written by rank 0
 * (train/mosaic.h). There is one file in either case, and it appears only when it is complete.
 *
 * Files are read ahead and written behind by threads of their own (train/pipeline.h), and the device
 * makes classes and probabilities of the logits, so that it waits for no file. Images that share a graph share
 * its plans, and one rank begins the next while it ends the last.
 *
 * A classifier has one prediction for the image and writes no file; rank 0 has it in the result.
 * Where image and results are arrays, rank 0 fills those.
 */
#pragma once

#include "train/window_memory.h"

/* The meaning of the logits. */
enum wf_predicts {
    WF_PREDICTS_CLASSES, /* softmax; the class is the largest logit */
    WF_PREDICTS_BINARY, /* sigmoid of each channel; the class is the largest logit, with one channel
                          * 1 where it is positive */
    WF_PREDICTS_NUMBERS, /* values as they are; no classes */
};

struct wf_prediction {
    const char *path;       /* the image */
    const float *pixels;    /* or it is this array, [C, *spatial], and results are arrays too: */
    int32_t *labels;        /* [*spatial], or NULL */
    float *probabilities;   /* [C, *spatial], or NULL */
    const char *format;     /* how it is stored, "PNG", "NIfTI"; for who names the files */
    bool gzipped;           /* the whole file, as .nii.gz is */
    struct wf_graph *graph; /* for the image's size, not for training */
    struct wf_value *image, *logits; /* f32; the image's name in the graph is `image->name` */
    enum wf_predicts predicts;
    bool per_pixel;                 /* otherwise one prediction for the image */
    const double *mean, *deviation; /* per channel: x becomes (x - mean) / deviation; or NULL */
    const char *classes, *values, *overlay; /* files to write, or NULL */
    struct wf_plan_options plan;
    struct wf_context *context;     /* of the device */
    struct wf_window_memory memory; /* of this rank */
    int64_t window[WF_AXES];        /* extents of a window; all 0: as the limit allows */
    /* Overlapping windows that are blended (exec/blend.h), in place of the numbers of the whole image: `image` and
     * `logits` only say what the extents are, and these are the network of a window, or of N of them. */
    bool is_blended;
    double overlap; /* part of a window that it shares with the next, 0 to 0.9 */
    struct wf_value *window_image, *window_logits; /* of the graph; set as it is built */
    int64_t step[WF_AXES];                         /* from one window to the next; likewise */
    void *user;
    bool (*weights)(void *user, struct wf_run *run, struct wf_err *err);
    /* Called on rank 0; or NULL. */
    void (*progress)(void *user, const struct wf_prediction *one, double part);
};

struct wf_predicted {
    int64_t windows;
    int64_t window[WF_AXES]; /* extents of the first */
    int passes;              /* over the image for sums, before the last one */
    size_t bytes;            /* used by a window of this rank, weights included */
    size_t host_bytes;       /* taken in host memory for windows on their way, by this rank */
    size_t kept_bytes;       /* likewise for results between passes over the image */
    double halo;             /* part of the work that was done for more than one window, 0 to 1 */
    double seconds;          /* until the files had their names */
    double ready_seconds;    /* of these: until the first window was read, for plans and kernels */
    int label;               /* a classifier's */
    float *probabilities;    /* a classifier's */
};

/* Images one after the other. */
struct wf_predictions {
    void *user;
    /* The next image; *more is false behind the last one. Called on every rank. What the image points to is
     * borrowed until it is done, and its graph until the second call after that for another graph. */
    bool (*next)(void *user, struct wf_prediction *one, bool *more, struct wf_err *err);
    /* On rank 0, in order, when the image's files have their names. */
    bool (*done)(void *user, const struct wf_prediction *one, const struct wf_predicted *result,
                 struct wf_err *err);
};

/* Collective. */
[[nodiscard]] bool wf_predict_all(const struct wf_predictions *all, struct wf_comm *comm,
                                  struct wf_err *err);
/* Collective. One image; rank 0 has the result, whose arrays are in the arena. */
[[nodiscard]] bool wf_predict(struct wf_arena *arena, const struct wf_prediction *p,
                              struct wf_comm *comm, struct wf_predicted *result,
                              struct wf_err *err);
