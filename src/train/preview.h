/*
 * Small pictures of image, label and prediction of one row of a batch.
 *
 * The picture has every k-th pixel (of the middle slice of a volume). Each rank fills in the pixels
 * that it owns, and the sum over ranks is the whole: no rank needs more memory than the picture.
 */
#pragma once

#include "exec/run.h"
#include "train/network.h"

enum { WF_PREVIEW_EDGE = 256, WF_PREVIEW_CLASSES = 256 };

struct wf_preview {
    int64_t height, width;
    float *image;         /* height x width x 3, as the network saw it: normalised */
    float *label, *guess; /* height x width; label -1: ignored */
    bool grey;            /* all three channels are the same */
};

/* Collective. On every rank; the caller releases it. */
[[nodiscard]] bool wf_preview_make(struct wf_preview *p, const struct wf_run *run,
                                   const struct wf_network *network, int64_t row,
                                   struct wf_comm *comm, struct wf_err *err);
/* Collective. Of an image that is scored in windows. */
struct wf_whole;
[[nodiscard]] bool wf_preview_whole(struct wf_preview *p, struct wf_whole *whole, int64_t sample,
                                    struct wf_err *err);
/* Collective. Of one value instead, as large as the image: no label and no prediction. */
[[nodiscard]] bool wf_preview_value(struct wf_preview *p, const struct wf_run *run,
                                    const struct wf_value *value, int64_t row, struct wf_comm *comm,
                                    struct wf_err *err);
/* Collective. A point cloud in place of an image, seen from above and aside (preview_points.c): row `row` of a batch, of
 * which one rank has the points, with the predictions of their voxels or of the cloud. */
struct wf_cloud_batch;
[[nodiscard]] bool wf_preview_points(struct wf_preview *p, const struct wf_cloud_batch *batch,
                                     int64_t row, const struct wf_network *network,
                                     const struct wf_view *logits, struct wf_comm *comm,
                                     struct wf_err *err);
void wf_preview_release(struct wf_preview *p);

/* Three PNG files: PREFIX-image.png, -label.png, -prediction.png; without classes the first only.
 * `colors` has 0xrrggbb per class or -1 for one of our own; may be NULL. */
[[nodiscard]] bool wf_preview_write(const struct wf_preview *p, const char *prefix, int classes,
                                    const int32_t colors[], struct wf_err *err);
/* The image alone, from its darkest to its brightest value. */
[[nodiscard]] bool wf_preview_write_image(const struct wf_preview *p, const char *path,
                                          struct wf_err *err);
