/*
 * Prediction of point cloud files: a class for every point of the file, that of its voxel; or one for the cloud.
 *
 *     struct wf_cloud_predictions all = { .paths = paths, .count = n, .user = me, .open = name, .done = tell };
 *     ok = wf_predict_clouds(&predictor, &all, err);               Collective under a launcher.
 *
 * Ranks take files in turn, a whole cloud each. Clouds that fit into the last one's plan share it.
 */
#pragma once

#include "train/predictor.h"

struct wf_cloud_prediction {
    const char *path;
    const char *classes; /* PLY to write, with a colour for each class; or NULL */
    const char *values;  /* npz to write: points, labels, probabilities; or NULL */
    /* results, on rank 0 */
    int64_t points, voxels;
    size_t bytes; /* that the rank took */
    double seconds;
    int label;                  /* a classifier's */
    const float *probabilities; /* likewise, of each class; until done() returns */
};

struct wf_cloud_predictions {
    const char *const *paths;
    size_t count;
    void *user;
    /* Names the files to write for paths[at], on every rank, by one of its threads at a time. */
    bool (*open)(void *user, size_t at, struct wf_cloud_prediction *one, struct wf_err *err);
    /* On rank 0, in order: for those before one that fails, and for none behind it. */
    bool (*done)(void *user, size_t at, const struct wf_cloud_prediction *one, struct wf_err *err);
};

[[nodiscard]] bool wf_predict_clouds(const struct wf_file_predictor *p,
                                     const struct wf_cloud_predictions *all, struct wf_err *err);
