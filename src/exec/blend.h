/*
 * Blending: the result of overlapping windows, each computed as an image of its own, as crops are in
 * training. Not the numbers of the whole image (exec/stream.h has those): for networks whose answers
 * depend on the size of what they see.
 *
 * Windows stand in a grid, `step` apart, the last of an axis shifted inward. A window counts most in its
 * middle: by a normal distribution along each axis of an eighth of the window, as is usual, and the
 * weights of all windows at a position add up to one.
 *
 * The result is made in bands of a height of the caller's, but for the last. A row is all windows of one position
 * along the first axis that has more than one pixel; a band is complete when all rows that reach into it were
 * added.
 *
 *     struct wf_blender *b = wf_blender_new(window, whole, channels, step, height);
 *     wf_blender_begin(b, band)
 *     for each row from wf_blender_first(b, band) to wf_blender_last(b, band), for each of its windows w:
 *         wf_blender_window(b, row, w)                       where it lies
 *         wf_blender_add(b, row, w, result)                  f32 [its pixels][channels]
 *     wf_blender_sums(b)                                     of wf_blender_band(b, band)
 *     wf_blender_free(b);
 *
 * Behind the band before it only rows are left to add that did not reach into that one.
 */
#pragma once

#include "tensor/region.h"

struct wf_blender;

/* Extents along D, H, W; a window is at most the image, a step at most the window; the height of a band. */
struct wf_blender *wf_blender_new(struct wf_shape window, struct wf_shape whole, int64_t channels,
                                  const int64_t step[WF_AXES], int64_t height);
void wf_blender_free(struct wf_blender *b);

int64_t wf_blender_bands(const struct wf_blender *b);
struct wf_region wf_blender_band(const struct wf_blender *b, int64_t band);
/* The first and the last row that reach into the band. */
int64_t wf_blender_first(const struct wf_blender *b, int64_t band);
int64_t wf_blender_last(const struct wf_blender *b, int64_t band);
/* All windows; those of a row. */
int64_t wf_blender_count(const struct wf_blender *b);
int64_t wf_blender_windows(const struct wf_blender *b);
/* Pixels; of channel 0. */
struct wf_region wf_blender_window(const struct wf_blender *b, int64_t row, int64_t window);
/* Of the sums, which are all that grows with the image. */
size_t wf_blender_bytes(const struct wf_blender *b);

/* False: no memory. */
[[nodiscard]] bool wf_blender_begin(struct wf_blender *b, int64_t band);
void wf_blender_add(struct wf_blender *b, int64_t row, int64_t window, const float *result);
/* [pixels of the band][channels], until the next one begins. */
const float *wf_blender_sums(const struct wf_blender *b);
