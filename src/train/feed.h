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
#include "train/points_feed.h"

struct wf_feed {
    struct wf_arena arena;
    const struct wf_launch *launch;
    struct wf_settings *settings;
    struct wf_dataset *dataset;
    const struct wf_dataset_info *info;
    struct wf_normal normal;
    int64_t crop[WF_AXES];  /* D, H, W that training sees */
    int64_t whole[WF_AXES]; /* D, H, W that all images of `part` have; 0: they differ */
    enum wf_part part;      /* what is validated on */
    int64_t parts[3];       /* samples of each enum wf_part */
    int64_t batch;          /* samples of a training batch */
    const char **class_names;
    int32_t *colors; /* 0xrrggbb of each class, or -1 */
    int classes;
};

/* Opens data at `path`. Unset settings are filled in from the data: channels, dimensions and classes of
 * the network, the ignored label, the crop. Launch and settings are borrowed. */
[[nodiscard]] bool wf_feed_open(struct wf_feed *feed, const struct wf_launch *launch,
                                struct wf_settings *settings, const char *path, enum wf_part part,
                                struct wf_err *err);
/* How the settings open a dataset. */
struct wf_dataset_options wf_feed_dataset_options(const struct wf_settings *settings);
/* D, H, W that all of these samples have (NULL: the first `count`); zeros where they differ. */
void wf_feed_whole(const struct wf_dataset *dataset, const int64_t samples[], int64_t count,
                   int64_t whole[WF_AXES]);
void wf_feed_release(struct wf_feed *feed);
/* Colours, and the classes of images, are numbered as they are found: another set of them is another set of labels.
 * The first class of `data` that is another than that of `names`; -1: none is, or values keep their meaning. */
int wf_feed_other_class(const struct wf_dataset_info *data, const char *const names[], int n);
/* The normalisation: measured on the training part, or that of a checkpoint. */
[[nodiscard]] bool wf_feed_measure(struct wf_feed *feed, struct wf_err *err);
[[nodiscard]] bool wf_feed_take_normal(struct wf_feed *feed, const struct wf_checkpoint *c,
                                       struct wf_err *err);

/* wf_job_files.measure, of a struct wf_feed_rows: what training needs, or the part that is validated. */
struct wf_feed_rows {
    const struct wf_feed *feed;
    enum wf_part part;
    int64_t least[WF_SETS + 1]; /* that a step has needed */
    int known_parts;            /* what was found for so many ranks; 0: nothing yet */
    int64_t known[WF_SETS + 1];
};
[[nodiscard]] bool wf_feed_measure_rows(void *user, const struct wf_graph *g,
                                        int64_t capacities[WF_SETS + 1], struct wf_err *err);

/* The training batch as N, C, spatial. */
void wf_feed_size(const struct wf_feed *feed, struct wf_job_files *files);
/* The shape that validation runs on, by train.validate_on and the mesh, on images that are `whole` or differ
 * (those of `path`). */
[[nodiscard]] bool wf_feed_valid_shape(const struct wf_feed *feed, const struct wf_mesh *mesh,
                                       const int64_t whole[WF_AXES], const char *path,
                                       struct wf_shape *shape, struct wf_err *err);

struct wf_loader_options wf_feed_loader(const struct wf_feed *feed, const struct wf_network *net);
/* Whether a loader with these options can be made: asked before anything is written. */
[[nodiscard]] bool wf_feed_check(const struct wf_dataset *dataset, struct wf_loader_options options,
                                 struct wf_err *err);
struct wf_loader_options wf_feed_valid_loader(const struct wf_feed *feed,
                                              const struct wf_network *net);
