/*
 * A picture: one image file as a network sees it, by the same rules as the images of a dataset. A
 * palette becomes its colours, alpha is dropped unless the network takes it, and the files
 * CASE_0000.EXT, CASE_0001.EXT, ... of nnU-Net are the channels of one picture, named by the first.
 *
 *     struct wf_picture *p = wf_picture_open("slide.tif", 3, err);      the network takes 3 channels
 *     bool ok = p && wf_picture_read(p, &window, pixels, err);
 *     wf_picture_close(p);
 *
 * A picture belongs to one thread at a time.
 */
#pragma once

#include "base/arena.h"
#include "image/raster.h"

struct wf_picture;

/* NULL on failure, also if the picture has another number of channels. */
[[nodiscard]] struct wf_picture *wf_picture_open(const char *path, int64_t channels,
                                                 struct wf_err *err);
void wf_picture_close(struct wf_picture *p);

/* For a file the file itself, for a folder the images in it, without masks, sorted by name. */
[[nodiscard]] bool wf_pictures_find(struct wf_arena *arena, const char *path,
                                    const char *const **paths, size_t *count, struct wf_err *err);
/* The name without folder and extension, for output files. */
const char *wf_picture_stem(struct wf_arena *arena, const char *path);

/* (1, D, H, W, C). */
struct wf_shape wf_picture_shape(const struct wf_picture *p);
/* Of its (first) file. */
const struct wf_raster_info *wf_picture_info(const struct wf_picture *p);
/* Whether a file has a nodata value. */
bool wf_picture_has_nodata(const struct wf_picture *p);
/* Axes D, H and W of `window`, which is inside; N and C are ignored. All channels to `dst`, dense,
 * channels last, as stored; NaN for nodata. Other NaN, and infinity, are refused. */
[[nodiscard]] bool wf_picture_read(struct wf_picture *p, const struct wf_region *window, float *dst,
                                   struct wf_err *err);
/* Whether its samples are bytes: then wf_picture_read_bytes() reads them as they are. */
bool wf_picture_is_bytes(const struct wf_picture *p);
[[nodiscard]] bool wf_picture_read_bytes(struct wf_picture *p, const struct wf_region *window,
                                         uint8_t *dst, struct wf_err *err);
