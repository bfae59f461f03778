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
 *         ok = wf_mosaic_pack(m, &part, &packed, err);            in any thread, also parts of the window
 *         ok = wf_mosaic_settle(m, 1, &packed, err);                                Collective.
 *         rank 0:  ok = wf_mosaic_put(m, &part, err);             for all windows of the round
 *     }
 *     ok = wf_mosaic_close(m, ok, err);                                             Collective.
 */
#pragma once

#include "comm/comm.h"
#include "data/picture.h"

struct wf_mosaic_options {
    struct wf_shape shape; /* D, H, W of the prediction, C of the values */
    int64_t band
        [WF_AXES]; /* extents of the largest window; on H and W a multiple of the tile, or all */
    int64_t tile[WF_AXES]; /* of tiled files, H and W */
    int labels;            /* that there are: [0, labels) */
    bool has_void; /* also the largest that their bytes hold, for nodata; values are NaN there */
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
/* Bytes of a label, in memory as in the file: 1 or 2. */
size_t wf_mosaic_label_bytes(const struct wf_mosaic_options *options);
/* Bytes that bands take on rank 0 for each pixel of a row. */
size_t wf_mosaic_band_bytes(const struct wf_mosaic_options *options);
/* Bytes that tiled files take for each pixel of a window while it is packed; 0: there are none. */
size_t wf_mosaic_pack_bytes(const struct wf_mosaic_options *options);
/* What rank 0 has to receive of the other ranks' windows; the same on every rank. */
bool wf_mosaic_wants_labels(const struct wf_mosaic *m);
bool wf_mosaic_wants_values(const struct wf_mosaic *m);

/* A window, or some of its rows, dense; what no file holds may be NULL. */
struct wf_mosaic_part {
    struct wf_region box;
    const void *labels;  /* one for each pixel, of wf_mosaic_label_bytes() */
    const float *values; /* shape.C for each pixel */
    const float *source; /* the picture's channels for each pixel, for an overlay */
};

/* What waits for its place in the tiled files; zeroed: nothing. */
enum { WF_MOSAIC_FILES = 3 };
struct wf_mosaic_packed {
    struct wf_raster_packed files[WF_MOSAIC_FILES];
};
void wf_mosaic_packed_release(struct wf_mosaic_packed *packed);

/* For the tiled files. Several threads may pack at the same time, each to a place of its own. */
[[nodiscard]] bool wf_mosaic_pack(const struct wf_mosaic *m, const struct wf_mosaic_part *part,
                                  struct wf_mosaic_packed *packed, struct wf_err *err);
/* Collective. Writes the round's n packed parts of this rank, which may be none, and empties them. A
 * write error is local to this rank: it is shared by the caller, or by closing. */
[[nodiscard]] bool wf_mosaic_settle(struct wf_mosaic *m, int n, struct wf_mosaic_packed packed[],
                                    struct wf_err *err);
/* Rank 0, for the other files: windows of all ranks in reading order (W fastest, then H, then D),
 * each pixel once, all of one band with the same rows. */
[[nodiscard]] bool wf_mosaic_put(struct wf_mosaic *m, const struct wf_mosaic_part *part,
                                 struct wf_err *err);
/* Collective. Always frees. With `ok` on all ranks everything must have been written, and the files
 * get their names; without, or if one fails, none is left half-written and false is returned. */
[[nodiscard]] bool wf_mosaic_close(struct wf_mosaic *m, bool ok, struct wf_err *err);
