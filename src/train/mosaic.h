/*
 * A mosaic: windows of a prediction put together into image files, from the top.
 *
 * Files take whole rows (or rows of tiles), windows are smaller: a band of rows is kept until it is
 * complete. Windows come in reading order (W fastest, then H, then D), each pixel once, all of one
 * band with the same rows. Resolution and georeferencing are those of the picture.
 *
 *     struct wf_mosaic *m = wf_mosaic_new(&options, err);
 *     bool ok = m != NULL;
 *     for (...)
 *         ok = ok && wf_mosaic_put(m, &window, labels, values, err);
 *     ok = m && wf_mosaic_close(m, ok, err);
 */
#ifndef WF_TRAIN_MOSAIC_H
#define WF_TRAIN_MOSAIC_H

#include "data/picture.h"

struct wf_mosaic_options {
    struct wf_shape shape; /* D, H, W of the prediction, C of the values */
    int64_t band[WF_AXES]; /* extents of the largest window */
    int labels;            /* that there are: [0, labels) */
    /* Files, each NULL where it is not wanted; the name's ending says the format. */
    const char *classes;            /* u8 with the colours as palette, or u16 */
    const char *values;             /* f32 */
    const char *overlay;            /* RGB: the picture with the classes over it, but for class 0 */
    struct wf_picture *picture;     /* of the prediction's size where an overlay is wanted */
    const double *mean, *deviation; /* of the picture's channels, for showing what is not u8 */
};

struct wf_mosaic;

/* NULL on failure. */
struct wf_mosaic *wf_mosaic_new(const struct wf_mosaic_options *options, struct wf_err *err);
/* Bytes that bands take for each pixel of a row. */
size_t wf_mosaic_pixel_bytes(const struct wf_mosaic_options *options);
/* Dense over the window: a label for each pixel, and shape.C values; values may be NULL where no file
 * of them is wanted, labels where neither classes nor overlay are. */
[[nodiscard]] bool wf_mosaic_put(struct wf_mosaic *m, const struct wf_region *window,
                                 const uint16_t *labels, const float *values, struct wf_err *err);
/* Always frees. With `ok` everything must have come, and the files get their names; without, or where
 * one fails, none is left half-written and false comes back. */
[[nodiscard]] bool wf_mosaic_close(struct wf_mosaic *m, bool ok, struct wf_err *err);

#endif
