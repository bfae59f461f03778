/*
 * What the settings and a dataset make together: sizes, classes, normalisation, and loaders.
 *
 *     struct wf_feed feed = { 0 };
 *     bool ok = wf_feed_open(&feed, &launch, &settings, path, WF_PART_VALID, err);
 *     struct wf_loader_options o = wf_feed_loader(&feed, &network);
 *     wf_feed_release(&feed);
 *
 * Every process opens the dataset for itself; what comes of it is the same in all of them.
 */
#pragma once

#include "ckpt/checkpoint.h"
#include "data/loader.h"
#include "train/job.h"

struct wf_feed {
    struct wf_arena arena;
    const struct wf_launch *launch;
    struct wf_settings *settings;
    struct wf_dataset *dataset;
    struct wf_dataset **targets; /* of the domains without labels; in the arena */
    int n_targets;
    const struct wf_dataset_info *info;
    struct wf_normal normal;
    int64_t crop[WF_AXES];  /* D, H, W that training sees */
    int64_t whole[WF_AXES]; /* D, H, W that all images of `part` have; 0: they differ */
    enum wf_part part;      /* what is validated on */
    int64_t parts[3];       /* samples of each enum wf_part */
    const char **class_names;
    int32_t *colors; /* 0xrrggbb of each class, or -1 */
    int classes;
};

/* Opens data at `path`. Unset settings are filled in from the data: channels, dimensions and classes of
 * the network, the ignored label, the crop. Launch and settings are borrowed. */
[[nodiscard]] bool wf_feed_open(struct wf_feed *feed, const struct wf_launch *launch,
                                struct wf_settings *settings, const char *path, enum wf_part part,
                                struct wf_err *err);
/* For training: the datasets of the other domains (data.domains), images as the first one's, labels or not. */
[[nodiscard]] bool wf_feed_open_targets(struct wf_feed *feed, struct wf_err *err);
void wf_feed_release(struct wf_feed *feed);
/* The normalisation: measured on the training part, or that of a checkpoint. */
[[nodiscard]] bool wf_feed_measure(struct wf_feed *feed, struct wf_err *err);
[[nodiscard]] bool wf_feed_take_normal(struct wf_feed *feed, const struct wf_checkpoint *c,
                                       struct wf_err *err);

/* The training batch as N, C, spatial. */
void wf_feed_size(const struct wf_feed *feed, struct wf_job_files *files);
/* The shape that validation runs on, by train.validate_on and the mesh. */
[[nodiscard]] bool wf_feed_valid_shape(const struct wf_feed *feed, const struct wf_mesh *mesh,
                                       struct wf_shape *shape, struct wf_err *err);

struct wf_loader_options wf_feed_loader(const struct wf_feed *feed, const struct wf_network *net);
/* Whether a loader with these options can be made: asked before anything is written. */
[[nodiscard]] bool wf_feed_check(const struct wf_feed *feed, struct wf_loader_options options,
                                 struct wf_err *err);
/* Of targets[domain - 1], normalised as the first domain. */
struct wf_loader_options wf_feed_target_loader(const struct wf_feed *feed,
                                               const struct wf_network *net, int domain);
/* Whether loaders of all of them can be made. */
[[nodiscard]] bool wf_feed_check_targets(const struct wf_feed *feed, const struct wf_network *net,
                                         struct wf_err *err);
struct wf_loader_options wf_feed_valid_loader(const struct wf_feed *feed,
                                              const struct wf_network *net);
