/*
 * Metrics from a confusion matrix.
 *
 * The counts are integers, so ranks add them exactly and in any order. One element is counted per
 * pixel of a network with one prediction per pixel, or per image of a classifier.
 *
 *     struct wf_metrics m = { 0 };
 *     wf_metrics_init(&m, classes);
 *     wf_metrics_count(&m, &logits, &target, part, NULL);      the part this rank owns
 *     ok = wf_metrics_sum(&m, comm, err);                      Collective.
 *     struct wf_scores s = wf_scores(&arena, &m);
 *     wf_metrics_release(&m);
 *
 * The prediction is the channel with the largest logit (the first of equals); with one channel it
 * is class 1 where the logit is positive. The truth is an i32 label, or of a float target the
 * largest channel, or with one channel 1 where it is above one half.
 */
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "tensor/view.h"

struct wf_metrics {
    int classes;
    int64_t *confusion; /* [truth * classes + prediction] */
    bool per_image;     /* a classifier's: the five largest logits are counted too */
    int64_t near;       /* of those: the truth was among the five */
};

/* Number of classes of a network with this many channels of logits. */
int wf_metrics_classes(int64_t channels);
void wf_metrics_init(struct wf_metrics *m, int classes);
void wf_metrics_release(struct wf_metrics *m);
void wf_metrics_clear(struct wf_metrics *m);
/* By how much the largest wrong logit at an element is above the right one: negative where the
 * prediction is right. With one channel the wrong one is zero. */
double wf_metrics_margin(const struct wf_view *logits, const int64_t at[WF_AXES], int64_t truth);
/* The class that is predicted at an element. */
int32_t wf_metrics_said(const struct wf_view *logits, const int64_t at[WF_AXES]);
/* One element: a truth that is no class is not counted. */
void wf_metrics_add_one(struct wf_metrics *m, int32_t truth, int32_t said);
/* The label at an element of the target. */
int64_t wf_metrics_truth(const struct wf_view *target, const int64_t at[WF_AXES]);
void wf_metrics_add(struct wf_metrics *to, const struct wf_metrics *from);
int64_t wf_metrics_total(const struct wf_metrics *m);

/* N, D, H and W of `part`, which is inside both views. Labels equal to *ignore (NULL: none), and
 * labels that are no class, are not counted. */
void wf_metrics_count(struct wf_metrics *m, const struct wf_view *logits,
                      const struct wf_view *target, struct wf_region part, const int32_t *ignore);
/* Collective. */
[[nodiscard]] bool wf_metrics_sum(struct wf_metrics *m, struct wf_comm *comm, struct wf_err *err);

/* NaN where undefined: a class that is neither present nor predicted. */
struct wf_scores {
    int classes;
    int64_t counted;
    const double *iou;          /* hit / (truth + predicted - hit) */
    const double *dice;         /* 2 hit / (truth + predicted) */
    const double *recall;       /* hit / truth: the accuracy within the class */
    const double *precision;    /* hit / predicted */
    const double *fraction;     /* truth / all */
    double mean_iou, mean_dice; /* over the classes that have one */
    double accuracy;            /* hits / all */
    bool per_image;             /* of images, not of pixels */
    double top5; /* truth among the five largest; NaN unless there are more classes */
};
struct wf_scores wf_scores(struct wf_arena *arena, const struct wf_metrics *m);
