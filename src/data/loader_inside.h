/* Inside data/: the loader's state, and the preparation of one batch (loader_fill.c). */
#pragma once

#include <pthread.h>

#include "data/loader.h"

struct wf_loader_slot {
    int64_t ticket, left; /* rows that are not made yet */
    bool ready;
    struct wf_err err; /* of the rows from `failed` on */
    int64_t failed;
    float *image;    /* over the rank's box, dense */
    int32_t *labels; /* over the target's box, one channel */
    struct wf_cloud_batch points;
};

/* A rank's part of a batch; empty: not requested. */
struct wf_loader_boxes {
    struct wf_region image, target;
};

struct wf_loader {
    const struct wf_dataset *ds;
    struct wf_loader_options options;
    struct wf_split split;
    const int64_t *samples; /* of this part */
    int64_t *all, n_samples, items, batches;
    int64_t *first_item; /* validation: where a sample's crops begin; n_samples + 1 */
    float scale[WF_DATA_CHANNELS], offset[WF_DATA_CHANNELS];
    float fill[WF_DATA_CHANNELS]; /* the mean, for nodata */
    struct wf_balance *balance;

    int64_t epoch, batch; /* of ticket 0 */
    bool has_boxes;
    struct wf_loader_boxes boxes[2]; /* of whole batches; of the smaller last one */
    struct wf_loader_slot *slots;
    int n_slots, n_threads;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t *threads;
    bool stop;
    int64_t taken, consumed;  /* tickets */
    int64_t row;              /* of the ticket that is taken next */
    uint64_t moved;           /* bytes of files, of threads that have ended or completed a batch */
    struct wf_reader *reader; /* without threads */
    struct wf_cloud_batch current; /* of point clouds: the last batch that was handed out */
};

static inline bool wf_loader_trains(const struct wf_loader *l)
{
    return l->options.part == WF_PART_TRAIN;
}

/* Whether it is the last batch of an epoch, and smaller. */
static inline bool wf_loader_is_rest(const struct wf_loader *l, int64_t batch)
{
    return batch == l->batches - 1 && wf_loader_rest(l) > 0;
}

/* Of point clouds (loader_points.c): what wf_loader_fill() does, and the memory of a batch. */
void wf_loader_fill_points(const struct wf_loader *l, struct wf_loader_slot *slot,
                           struct wf_err *err);
void wf_cloud_batch_release(struct wf_cloud_batch *b);
static inline bool wf_loader_is_cloud(const struct wf_loader *l)
{
    return wf_dataset_info(l->ds)->is_cloud;
}

/* Crops that cover a sample along an axis. */
int64_t wf_loader_tiles(const struct wf_loader *l, int64_t sample, int axis);
/* Part of an image, or of its labels, as it is but for normalisation; by the loader's own reader. */
[[nodiscard]] bool wf_loader_fill_part(const struct wf_loader *l, int64_t sample,
                                       const struct wf_region *box, float *image, int32_t *labels,
                                       struct wf_err *err);
/* That can be made side by side; voxels of a cloud come one behind the other. */
static inline int64_t wf_loader_rows(const struct wf_loader *l)
{
    return wf_loader_is_cloud(l) ? 1 : l->options.batch;
}
/* Prepares rows of the batch of the slot's ticket. Changes only these, `reader` and `err`. */
void wf_loader_fill(const struct wf_loader *l, struct wf_reader *reader,
                    struct wf_loader_slot *slot, int64_t row, int64_t end, struct wf_err *err);
