/*
 * A mosaic: windows of a prediction assembled into image files.
 *
 * Formats that support several writers (tiled TIFF, NIfTI) are written by all ranks, each its own
 * windows; no pixel is sent to another rank. Sequential formats (PNG, .npy) are written by rank 0,
 * which receives the other ranks' windows: these formats take whole rows and windows are smaller,
 * so a band of rows is kept until it is complete. Resolution, georeferencing and affine are those
 * of the picture.
 *
 *     struct wf_mosaic *m = wf_mosaic_new(&options, comm, err);                     Collective.
 *     for (...) {                                             in rounds, a window of each rank
 *         ok = wf_mosaic_pack(m, &window, labels, values, err);
 *         ok = wf_mosaic_settle(m, err);                                            Collective.
 *         rank 0:  ok = wf_mosaic_put(m, &window, labels, values, err);   for all windows of the round
 *     }
 *     ok = wf_mosaic_close(m, ok, err);                                             Collective.
 */
#pragma once

#include "comm/comm.h"
#include "data/picture.h"

/* Of labels. In the files it is the largest number of their samples, which they name as nodata. */
enum { WF_MOSAIC_VOID = UINT16_MAX };

struct wf_mosaic_options {
    struct wf_shape shape; /* D, H, W of the prediction, C of the values */
    int64_t band
        [WF_AXES]; /* extents of the largest window; on H and W a multiple of the tile, or all */
    int64_t tile[WF_AXES]; /* of tiled files, H and W */
    int labels;            /* that there are: [0, labels) */
    bool has_void;         /* also WF_MOSAIC_VOID, for nodata; values are NaN there */
    /* Files, each NULL if not requested; the extension determines the format. */
    const char *classes;        /* u8 with the colours as palette, or u16 */
    const char *values;         /* f32 */
    const char *overlay;        /* RGB: the picture with the classes over it, but for class 0 */
    struct wf_picture *picture; /* of the prediction's size where an overlay is wanted; rank 0: in
                                     * any case where it has tags to copy */
    const double *mean, *deviation; /* of the picture's channels, for showing what is not u8 */
};

struct wf_mosaic;

/* Collective. NULL on failure, on every rank. */
struct wf_mosaic *wf_mosaic_new(const struct wf_mosaic_options *options, struct wf_comm *comm,
                                struct wf_err *err);
/* Bytes that bands take on rank 0 for each pixel of a row. */
size_t wf_mosaic_band_bytes(const struct wf_mosaic_options *options);
/* Bytes that tiled files take for each pixel of a window while it is packed; 0: there are none. */
size_t wf_mosaic_pack_bytes(const struct wf_mosaic_options *options);
/* What rank 0 has to receive of the other ranks' windows; the same on every rank. */
bool wf_mosaic_wants_labels(const struct wf_mosaic *m);
bool wf_mosaic_wants_values(const struct wf_mosaic *m);

/* Dense over the window: a label for each pixel, and shape.C values; values may be NULL if no file
 * of them is requested, labels if neither classes nor overlay are. For the tiled files. */
[[nodiscard]] bool wf_mosaic_pack(struct wf_mosaic *m, const struct wf_region *window,
                                  const uint16_t *labels, const float *values, struct wf_err *err);
/* Collective. Writes what was packed since the last call to the files. A write error is local to
 * this rank: it is shared by the caller, or by closing. */
[[nodiscard]] bool wf_mosaic_settle(struct wf_mosaic *m, struct wf_err *err);
/* Rank 0, for the other files: windows of all ranks in reading order (W fastest, then H, then D),
 * each pixel once, all of one band with the same rows. */
[[nodiscard]] bool wf_mosaic_put(struct wf_mosaic *m, const struct wf_region *window,
                                 const uint16_t *labels, const float *values, struct wf_err *err);
/* Collective. Always frees. With `ok` on all ranks everything must have been written, and the files
 * get their names; without, or if one fails, none is left half-written and false is returned. */
[[nodiscard]] bool wf_mosaic_close(struct wf_mosaic *m, bool ok, struct wf_err *err);
