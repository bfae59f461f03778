/*
 * Validation: the network in inference mode over a loader's items, with the weights of another run.
 *
 * The graph is built without training (running statistics, no dropout) and may have another size
 * than the one that trains: whole images, or crops that cover them. Pixels that a loader covers
 * twice, and rows that only fill a batch, count once or not at all: their labels become the
 * network's `ignore` before the loss. (Targets that are no labels have no such value; there the
 * repeated rows of a padded batch add some weight to the loss.)
 *
 *     struct wf_validator *v = wf_validator_new(&options, err);         Collective.
 *     ok = wf_validator_run(v, run, err);                               Collective.
 *     double loss = wf_validator_loss(v);
 *     struct wf_scores s = wf_scores(&arena, wf_validator_metrics(v));
 *     wf_validator_free(v);
 *
 * Images that do not fit as one go through in windows (train/whole.h), each a batch of its own.
 *
 * A network of several domains has a validator for each that has labels: the first one's, and those of the
 * targets behind it (wf_validator_append), which run and are freed with it. What picks the best epoch is the
 * first one's metric.
 */
#pragma once

#include "data/loader.h"
#include "exec/run.h"
#include "train/metrics.h"
#include "train/network.h"
#include "train/points_feed.h"
#include "train/whole.h"

struct wf_validator_options {
    struct wf_comm *comm;
    const struct wf_network *network; /* in inference mode */
    const struct wf_global_plan
        *global; /* of its graph; shared by ranks that are threads; NULL: in windows */
    struct wf_context *context; /* of the device */
    struct wf_loader *loader; /* this rank's, or NULL where it has no images and no labels; all are
                               * borrowed until the validator is freed */
    const struct wf_points_rank *points; /* of point clouds; NULL: of images */
    struct wf_whole *whole; /* in windows, in place of the loader; borrowed. NULL: at once */
    int64_t samples;        /* of the dataset: scores are kept for each */
    int domain;             /* whose images it sees */
    struct wf_run *lender;  /* whose weights and memory it uses; NULL: it has its own */
    uint64_t seed;
    /* Called between batches, on every rank; if any returns true, all stop. NULL: never. */
    bool (*stops)(void *user);
    void *user;
};

struct wf_validator;

/* Collective. NULL on failure, on every rank. */
struct wf_validator *wf_validator_new(const struct wf_validator_options *options,
                                      struct wf_err *err);
void wf_validator_free(struct wf_validator *v);
/* NULL: of one that goes in windows. */
struct wf_run *wf_validator_own_run(const struct wf_validator *v);
struct wf_whole *wf_validator_whole(const struct wf_validator *v);
/* That it goes through. */
int64_t wf_validator_batches(const struct wf_validator *v);

/* Behind the last of `v`; and what is behind one of them, or NULL. */
void wf_validator_append(struct wf_validator *v, struct wf_validator *last);
const struct wf_validator *wf_validator_next(const struct wf_validator *v);

/* Collective. Copies the weights and states of `source` (NULL: keeps its own) and goes over all
 * items; then so do those behind it. False with WF_ERR_STOPPED if `stops` returned true. */
[[nodiscard]] bool wf_validator_run(struct wf_validator *v, const struct wf_run *source,
                                    struct wf_err *err);

/* Whether the last run was stopped, with WF_ERR_STOPPED, by a batch with more points than was planned for; then `needs`
 * are the rows of each set that would do. */
bool wf_validator_is_full(const struct wf_validator *v, int64_t needs[WF_SETS + 1]);

/* Of the last run, the same on every rank. */
double wf_validator_loss(const struct wf_validator *v);
/* The loss is not finite although there are labels: the network's output is not finite. */
bool wf_validator_failed(const struct wf_validator *v);
const struct wf_metrics *wf_validator_metrics(const struct wf_validator *v);
/* The metric: the mean IoU; for a classifier the accuracy; without classes the negative loss. */
double wf_validator_metric(const struct wf_validator *v);

/* Of it and those behind it, in order. */
struct wf_domain_scores {
    int domain;
    double loss;
    struct wf_scores scores;
};
struct wf_domain_scores *wf_validator_domains(struct wf_arena *arena, const struct wf_validator *v,
                                              int *count);

/* A sample's own mean IoU, worst first. A classifier has 1 or 0, and of its wrong ones that comes
 * first whose largest wrong logit is farthest above the right one. */
struct wf_sample_score {
    int64_t sample;
    double mean_iou, margin;
};
const struct wf_sample_score *wf_validator_worst(struct wf_arena *arena,
                                                 const struct wf_validator *v, int64_t *count);

/* Collective. Runs the batch that holds the first crop of `sample`; `*row` is its row in the views
 * of the validator's run afterwards. */
[[nodiscard]] bool wf_validator_show(struct wf_validator *v, int64_t sample, int64_t *row,
                                     struct wf_err *err);

/* Of point clouds: what wf_validator_show() has run on this rank. */
struct wf_shown_points {
    const struct wf_cloud_batch *batch;
    const struct wf_view *logits;
};
struct wf_shown_points wf_validator_points(const struct wf_validator *v);

/* Each element of `value` is counted by one rank: false on ranks that only hold copies of the part
 * that another rank owns too (axes that are not cut). */
bool wf_run_counts(const struct wf_run *run, const struct wf_value *value);
