/*
 * The loader: prepares batches for a rank, ahead of time, in threads.
 *
 * A rank passes its boxes of image and target (global coordinates of the batch tensors, halo
 * included); the loader reads only the windows that these boxes need, normalises and augments them,
 * and keeps a few batches ready. Samples, crops and augmentation of a batch depend on (seed, epoch,
 * batch) alone: not on the mesh, the threads or earlier calls.
 *
 *     struct wf_loader *loader = wf_loader_new(ds, &options, err);
 *     wf_loader_seek(loader, epoch, batch);                  from the start, or where a run stopped
 *     for (...)
 *         if (!wf_loader_next(loader, &image, &target, err)) ...
 *
 * Training: each epoch takes each item once, in another order; if the batch does not divide them
 * the last batch is smaller, wf_loader_rest() rows, and the views for it are those of a smaller
 * tensor; if all rows are requested, the missing ones come from the front of the epoch's order.
 * Validation: crops that cover each image, without augmentation, in order; rows beyond the end
 * repeat an item and do not count (wf_loader_item()).
 *
 * Point clouds: a batch is the voxels of the rank's samples (wf_loader_next_points()); how many there are is
 * known when it is made.
 *
 * A loader belongs to one rank; the dataset is shared. Nothing here is collective: a rank that
 * fails notifies the others by wf_comm_agree().
 */
#pragma once

#include "data/sampler.h"
#include "tensor/view.h"

enum { WF_CLOUD_SETS = 64 };
/* The voxels of a rank's samples of a batch. Arrays are the loader's, and grow as needed. */
struct wf_cloud_batch {
    int64_t n, channels;
    int32_t *coords;      /* [n][4]: the row of the batch, then the voxel */
    float *features;      /* [n][channels], normalised */
    int32_t *labels;      /* [n]; where clouds have one label, that of the voxel's cloud */
    int64_t first, rows;  /* rows of the batch that are here, and how many */
    int32_t *row_labels;  /* [rows]: where clouds have one label */
    int64_t *row_samples; /* [rows]: of the dataset; -1: it fills the batch, and has no points */
    /* Where wf_loader_options.keeps_points: all points of these rows, and which voxel each is in. */
    int64_t n_points, *row_points; /* [rows + 1]: where a row's begin */
    int32_t *point_labels, *point_voxels;
    double *point_at; /* [n_points][3] */
    /* Set by wf_loader_options.arrange: voxels that the rank has, in its order, and how many; the box that they are in,
     * where ranks cut the samples; and how many places each of so many coordinate sets takes. */
    int64_t *order, here;
    int32_t box[6];
    int64_t places[WF_CLOUD_SETS];
    size_t room_n, room_rows, room_points;
};

enum wf_part { WF_PART_TRAIN, WF_PART_VALID, WF_PART_ALL };

struct wf_loader_options {
    enum wf_part part;
    double validation;     /* fraction of the samples; the same for both parts */
    int64_t batch;         /* global: rows of the image tensor */
    int64_t crop[WF_AXES]; /* D, H, W; 0: the whole image, which all samples must agree on */
    int64_t repeat;        /* training: crops of each sample in an epoch; 0: one */
    int64_t pad;      /* training: pixels that a crop may extend beyond the image; zeros there */
    unsigned augment; /* training: set of WF_AUGMENT_* */
    bool balance;     /* training: choose the class first, then a crop that contains it */
    const struct wf_normal *normal; /* borrowed for the call; NULL: raw values */
    int64_t classes;                /* labels from 0 to classes - 1 are valid; 0: any */
    bool has_ignore;                /* labels equal to `ignore` are valid too */
    int32_t ignore;
    /* Training in `parts` that take batches in turns: this is part `part_at`, and an epoch ends for all
     * when there is no full batch left for each. 0: all batches. */
    int64_t parts, part_at;
    /* Of point clouds. */
    double voxel;               /* edge of a voxel */
    int64_t row_first, row_end; /* rows of a batch that this rank has */
    bool keeps_points;
    /* Called for each batch, by the thread that made it: fills order and places. */
    bool (*arrange)(void *user, struct wf_cloud_batch *batch, struct wf_err *err);
    void *user;
    uint64_t seed;
    int threads; /* that read ahead; 0: none, batches are prepared on request */
};

struct wf_loader;

/* NULL on failure: an image smaller than the crop, sizes that differ without a crop, no samples. */
[[nodiscard]] struct wf_loader *wf_loader_new(const struct wf_dataset *ds,
                                              const struct wf_loader_options *options,
                                              struct wf_err *err);
void wf_loader_free(struct wf_loader *loader);

int64_t wf_loader_batches(const struct wf_loader *loader); /* of an epoch */
/* Training: rows of an epoch's last batch where it is smaller than the others; otherwise 0. */
int64_t wf_loader_rest(const struct wf_loader *loader);
/* The crop's extents: D, H, W, and the image's channels as C; N is the batch. */
struct wf_shape wf_loader_shape(const struct wf_loader *loader);
/* Bytes that the queue takes once the boxes are known. */
size_t wf_loader_memory_used(const struct wf_loader *loader);
/* Bytes of files that were read so far, ahead or not. */
uint64_t wf_loader_bytes_read(struct wf_loader *loader);

/* The next batch is (epoch, batch); the start is (0, 0). What was read ahead for it stays; in validation also for another
 * epoch, which wf_loader_where() goes on to name. */
void wf_loader_seek(struct wf_loader *loader, int64_t epoch, int64_t batch);
/* The (epoch, batch) that comes next. */
void wf_loader_where(const struct wf_loader *loader, int64_t *epoch, int64_t *batch);

/* The boxes of the smaller batch, so that it is prepared ahead like the others. */
void wf_loader_announce_rest(struct wf_loader *loader, const struct wf_view *image,
                             const struct wf_view *target);

/* Lets threads read ahead for these boxes, before the first batch is asked for; the same that wf_loader_next() begins with. */
[[nodiscard]] bool wf_loader_begin(struct wf_loader *loader, const struct wf_view *image,
                                   const struct wf_view *target, struct wf_err *err);

/* Fills this rank's boxes and advances; after an epoch's last batch comes the next epoch. `image`
 * is f32, bf16 or f16 with the dataset's channels. `target` may be NULL. As i32 with one channel it
 * takes labels (over the crop, or one for each image where its spatial extent is one); as a float
 * with one channel 0 or 1; as a float with more channels a 1 in the label's channel. Views without
 * data are skipped. */
[[nodiscard]] bool wf_loader_next(struct wf_loader *loader, const struct wf_view *image,
                                  const struct wf_view *target, struct wf_err *err);

/* Samples of the part, by their number in the dataset. */
int64_t wf_loader_samples(const struct wf_loader *loader);
int64_t wf_loader_sample(const struct wf_loader *loader, int64_t index);
/* Any part of an image, normalised, and of its labels, as in wf_loader_next(); boxes are of the whole image, and either view
 * may be NULL. Beside the batches, by the calling thread. */
[[nodiscard]] bool wf_loader_read(struct wf_loader *loader, int64_t sample,
                                  const struct wf_view *image, const struct wf_view *target,
                                  struct wf_err *err);

/* The same of point clouds: the next batch, valid until the next call. */
[[nodiscard]] bool wf_loader_next_points(struct wf_loader *loader,
                                         const struct wf_cloud_batch **batch, struct wf_err *err);

/* What row `row` of a batch is. */
struct wf_loader_item {
    struct wf_draw draw;
    int64_t epoch, item; /* that augmentation depends on */
    /* The part of the crop whose pixels count in metrics: all in training; in validation, what no
     * earlier crop of the image has covered; empty for a row that only fills the batch. */
    struct wf_region counts;
};
struct wf_loader_item wf_loader_item(const struct wf_loader *loader, int64_t epoch, int64_t batch,
                                     int64_t row);
