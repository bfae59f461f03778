/*
 * A trained network that predicts image files of any size (train/predict.h), on all ranks.
 *
 *     struct wf_file_predictor p = { .launch = launch, .settings = settings, .checkpoint = c };
 *     ok = wf_file_predictor_init(&p, err);
 *     struct wf_prediction one = { .progress = show, .user = me };
 *     ok = ok && wf_file_predictor_open(&p, "slide.tif", &one, err);     the network of this size
 *     one.classes = "slide_classes.tif";
 *     ok = ok && wf_file_predictor_run(&p, &one, &arena, &result, err);         Collective under a launcher.
 *     wf_graph_free(one.graph);
 *
 * Many files go through wf_file_predictor_all(), which keeps the device open, plans images of one size
 * once, and reads the next while the last is written.
 *
 * The settings are those of the checkpoint's config.
 */
#pragma once

#include "ckpt/checkpoint.h"
#include "train/launch.h"
#include "train/predict.h"
#include "train/settings.h"

struct wf_file_predictor {
    struct wf_launch launch;
    struct wf_settings settings;
    const struct wf_checkpoint *checkpoint; /* NULL: these have what would be in it: */
    const struct wf_checkpoint_info *info;
    bool (*weights)(void *user, struct wf_run *run, struct wf_err *err);
    void *user; /* of `weights` */
    /* set by wf_file_predictor_init() */
    struct wf_model_config config;
    enum wf_predicts predicts;
    const struct wf_device *device;
    enum wf_dtype compute;
    int ranks, threads; /* threads of each rank */
};

[[nodiscard]] bool wf_file_predictor_init(struct wf_file_predictor *p, struct wf_err *err);
/* Fills in all that the image and the network settle. The caller adds the files to write and frees
 * one->graph, also after a failure. */
[[nodiscard]] bool wf_file_predictor_open(const struct wf_file_predictor *p, const char *path,
                                          struct wf_prediction *one, struct wf_err *err);
/* The same for an array of that shape: one->pixels and the arrays of the results are the caller's to add. */
[[nodiscard]] bool wf_file_predictor_shape(const struct wf_file_predictor *p, struct wf_shape shape,
                                           struct wf_prediction *one, struct wf_err *err);
/* Collective under a launcher. The result lives in the arena. */
[[nodiscard]] bool wf_file_predictor_run(const struct wf_file_predictor *p,
                                         const struct wf_prediction *one, struct wf_arena *arena,
                                         struct wf_predicted *result, struct wf_err *err);

/* Into a run of its network. Weights that do not fit, or cannot be read again, are WF_ERR_FAILED: the fault of no image. */
[[nodiscard]] bool wf_file_predictor_weights(const struct wf_file_predictor *p, struct wf_run *run,
                                             struct wf_err *err);

/* Several files, one after the other; done() was called for those before one that fails, and for none behind it. */
struct wf_file_predictions {
    const char *const *paths;
    size_t count;
    void *user;
    struct wf_prediction each; /* its window is asked for */
    /* Names the files to write for paths[at]. On every rank; one call of this or of done() at a time. */
    bool (*open)(void *user, size_t at, struct wf_prediction *one, struct wf_err *err);
    /* On rank 0: about the image that is computed; in order, when its files have their names. */
    void (*progress)(void *user, size_t at, const struct wf_prediction *one, double part);
    bool (*done)(void *user, size_t at, const struct wf_prediction *one,
                 const struct wf_predicted *result, struct wf_err *err);
};
/* Collective under a launcher. */
[[nodiscard]] bool wf_file_predictor_all(const struct wf_file_predictor *p,
                                         const struct wf_file_predictions *files,
                                         struct wf_err *err);
