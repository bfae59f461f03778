/*
 * Random choices as pure functions of (seed, epoch, item), so that every mesh, every thread count
 * and a resumed run see the same samples, crops and augmentation.
 *
 * An epoch goes over `samples * repeat` items; item i is the crop number i / samples of one sample.
 * The order is a permutation that can be evaluated at any position:
 *
 *     int64_t item = wf_sampler_order(seed, epoch, items, position);
 *     int64_t sample = split.train[item % split.n_train];
 */
#pragma once

#include "data/augment.h"
#include "data/dataset.h"

/* The item at `position` of an epoch: for each (seed, epoch) a permutation of [0, count). */
int64_t wf_sampler_order(uint64_t seed, int64_t epoch, int64_t count, int64_t position);

/* Training and validation samples, both ascending. */
struct wf_split {
    int64_t *train, *valid;
    int64_t n_train, n_valid;
};
/* The dataset's own validation part; if it has none, a `fraction` in [0, 1) of the samples, chosen
 * by the seed: at least one when fraction > 0 and there are two, and never all. Samples with a
 * problem are in neither. */
void wf_split_init(struct wf_split *split, const struct wf_dataset *ds, double fraction,
                   uint64_t seed);
void wf_split_release(struct wf_split *split);

/* Positions of classes: some pixels of each class of each sample, so that a crop can be chosen
 * around a rare one. Built once from a spread of windows; immutable afterwards. */
struct wf_balance;
[[nodiscard]] struct wf_balance *wf_balance_new(const struct wf_dataset *ds,
                                                const int64_t samples[], int64_t count,
                                                struct wf_err *err);
void wf_balance_free(struct wf_balance *balance);

/* One crop of one sample, and its augmentation. */
struct wf_draw {
    int64_t sample;
    int64_t crop[WF_AXES];   /* extents D, H, W of the result; N and C are ignored */
    struct wf_change change; /* with the crop's origin in the image */
};
struct wf_draw_rule {
    uint64_t seed;
    int64_t crop[WF_AXES];            /* D, H, W */
    int64_t pad;                      /* pixels that a crop may extend beyond the image */
    unsigned augment;                 /* set of WF_AUGMENT_* */
    const struct wf_balance *balance; /* or NULL: crops anywhere */
};
/* The image with `pad` pixels around it, along the axes that have an extent. */
struct wf_region wf_sampler_field(const struct wf_dataset *ds, int64_t sample, int64_t pad);
/* The crop for `item` of `epoch` from `sample`, which must be at least as large. */
struct wf_draw wf_sampler_draw(const struct wf_dataset *ds, const struct wf_draw_rule *rule,
                               int64_t sample, int64_t epoch, int64_t item);
