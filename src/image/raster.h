/*
 * Rasters: one way to read and write image files, a window at a time.
 *
 * A raster is (depth, height, width, channels), whatever the file calls them: a photograph has
 * depth 1, the pages of a TIFF stack and the slices of a NIfTI volume are depth, time points and
 * vector components of NIfTI are channels. If a TIFF names its axes (OME-XML, ImageJ, tifffile),
 * its pages are depth and channels accordingly; several time points are refused. The format is
 * detected by the file's first bytes, not by its name.
 *
 *     struct wf_raster *r = wf_raster_open("slide.tif", err);
 *     if (!r)
 *         return false;
 *     const struct wf_raster_info *info = wf_raster_info(r);
 *     struct wf_region part = { .lo = { [WF_H] = 512 }, .hi = { [WF_D] = 1, [WF_H] = 768, [WF_W] = 256 } };
 *     bool ok = wf_raster_read_window(r, &part, 0, info->channels, WF_F32, pixels, err);
 *     wf_raster_close(r);
 *
 * Values are returned as stored: 255 is 255, a palette's index is the index. Only NIfTI's scale and
 * offset are applied, because the numbers are meaningless without them. f32 accepts every value it
 * can hold (f64 is rounded, NaN and infinity pass); i32 accepts integers, also if the file stores
 * them as floats. A value that does not fit is refused, never changed. Samples of a TIFF whose zero
 * is white are inverted, so that larger is brighter; CMYK in JPEG becomes RGB. The orientation of
 * EXIF and of TIFF is applied. If a file declares a "no data" value (GDAL's tag), f32 has NaN in
 * its place; i32 has the value.
 *
 * Formats: PNG, JPEG, TIFF and BigTIFF, NIfTI-1 and -2 (.nii, .nii.gz), HDF5
 * ("file.h5:/path/to/data"), .npy. An array of .npy or HDF5 with rank 2 is (H, W); rank 3 is (H, W,
 * C) where the last extent is at most WF_RASTER_FEW, otherwise (D, H, W); rank 4 is (D, H, W, C).
 *
 * Files are untrusted: header values are checked against the file's size before anything is
 * allocated, and the amount decoded at once is limited. TIFF tiles are decoded only where a window
 * touches them; formats that can only be read from the top (PNG, JPEG) keep their last rows, so
 * that windows in reading order cost one pass.
 *
 * A raster belongs to one thread at a time. Several may be open on one file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "tensor/dtype.h"
#include "tensor/region.h"

enum { WF_RASTER_FEW = 16, WF_RASTER_COLORS = 256 };

/* How a sample is stored. */
enum wf_sample {
    WF_SAMPLE_U8,
    WF_SAMPLE_I8,
    WF_SAMPLE_U16,
    WF_SAMPLE_I16,
    WF_SAMPLE_U32,
    WF_SAMPLE_I32,
    WF_SAMPLE_U64,
    WF_SAMPLE_I64,
    WF_SAMPLE_F16,
    WF_SAMPLE_F32,
    WF_SAMPLE_F64,
    WF_SAMPLES
};
size_t wf_sample_size(enum wf_sample sample);
const char *wf_sample_name(enum wf_sample sample); /* "u8", "f32", ... */
bool wf_sample_is_whole(enum wf_sample sample);

/* Georeferencing of the image: resolution, a GeoTIFF's tags, a NIfTI header's affine. For writers
 * to copy. */
struct wf_raster_place;

struct wf_raster_info {
    const char *format; /* "PNG", "TIFF", ...; not needed for writing */
    int64_t depth, height, width;
    int channels;
    enum wf_sample sample; /* f64 if NIfTI scales */
    struct wf_shape tile;  /* what a read decodes at once: D, H, W, C; N is 1 */
    int colors;            /* of the palette, 0: none; the samples are then indices */
    uint8_t palette[WF_RASTER_COLORS][3];
    const struct wf_raster_place *place; /* NULL: unknown */
    bool gzipped;  /* the whole file, as .nii.gz is; ignored in writing, where the name decides */
    bool in_order; /* it can only be read from the top: another order starts again */
    bool alpha;    /* the last channel is opacity */
    bool has_nodata;
    double nodata;     /* the "no data" value; may be NaN */
    bool synced_later; /* in writing PNG and TIFF: by the caller, for all files (wf_disk_sync()) */
};

/* NULL on failure. "file.h5:/a/b" names a dataset in an HDF5 file. */
[[nodiscard]] struct wf_raster *wf_raster_open(const char *path, struct wf_err *err);
/* A file in memory, which is borrowed until the raster is closed; `name` is for messages
 * and, as above, for the dataset of an HDF5 file. */
[[nodiscard]] struct wf_raster *wf_raster_parse(const char *name, const void *bytes, size_t size,
                                                struct wf_err *err);
void wf_raster_close(struct wf_raster *r);

/* Lives as long as the raster, with all it points to. */
const struct wf_raster_info *wf_raster_info(const struct wf_raster *r);

/* Axes D, H and W of `window`, which must be inside the raster; N and C are ignored. Channels
 * [first_channel, first_channel + channels) as WF_F32 or WF_I32, or of bytes as WF_U8, to `dst`: dense,
 * channels last. */
[[nodiscard]] bool wf_raster_read_window(struct wf_raster *r, const struct wf_region *window,
                                         int first_channel, int channels, enum wf_dtype as,
                                         void *dst, struct wf_err *err);

/* Samples are u8 and mean what they are. */
bool wf_raster_is_bytes(const struct wf_raster *r);

/* Whether the file is complete. Checks offsets and sizes of its parts, not pixels; only if these
 * are inconclusive (JPEG and gzip with data behind the end) it is decoded. */
[[nodiscard]] bool wf_raster_check(struct wf_raster *r, struct wf_err *err);

/* TIFF tiles, or strips that a read began to decode, since the raster was opened. */
int64_t wf_raster_tiles_read(const struct wf_raster *r);
/* Bytes of the file read since then. */
uint64_t wf_raster_bytes_read(const struct wf_raster *r);

/* --- writing ---
 * The name determines the format: .tif/.tiff (tiled, deflate; BigTIFF if it may exceed 4 GB), .png
 * (u8 and u16; 1 to 4 channels), .npy (shaped so that it reads back as it was), .nii and .nii.gz
 * (NIfTI-1; three or four channels of u8 are colours, others the fourth axis). The file gets its name
 * only when it is complete (base/file.h).
 *
 *     struct wf_raster_writer *w = wf_raster_create("classes.tif", &info, err);
 *     bool ok = w != NULL;
 *     for (...)
 *         ok = ok && wf_raster_write_window(w, &band, pixels, err);
 *     ok = w && wf_raster_writer_close(w, ok, err);
 *
 * Windows are dense, channels last, with all channels, in the sample type of `info`. TIFF takes
 * them in any order, each once; edges are at multiples of the tile or at the image's edge. NIfTI
 * takes any windows in any order; a .nii.gz is written uncompressed under another name first and
 * compressed when it is closed. PNG and .npy take whole rows from top to bottom.
 */
struct wf_raster_writer;

/* From `info`: extents, channels, sample, colors and palette, place, and tile (0: 256 x 256).
 * Copies what it needs. NULL on failure, with nothing left to close. */
[[nodiscard]] struct wf_raster_writer *wf_raster_create(const char *path,
                                                        const struct wf_raster_info *info,
                                                        struct wf_err *err);
/* The tile that windows are aligned to: H and W; 1 and the width where rows are taken. */
struct wf_shape wf_raster_writer_tile(const struct wf_raster_writer *w);
[[nodiscard]] bool wf_raster_write_window(struct wf_raster_writer *w,
                                          const struct wf_region *window, const void *src,
                                          struct wf_err *err);
/* Always frees the writer. With `ok` every sample must have been written, and the file gets its
 * name; without, or if writing failed, the file is removed and false is returned. */
[[nodiscard]] bool wf_raster_writer_close(struct wf_raster_writer *w, bool ok, struct wf_err *err);

/* --- several writers of one file ---
 * A TIFF or NIfTI file may be written by several ranks, each its own windows; no pixel is sent
 * between them. One creates the file and sends its partial name to the others, which join it with the
 * same `info`. Then all write in rounds: in each, a writer packs any number of windows, all exchange
 * the packed sizes, and each places its bytes behind those of the writers before it:
 *
 *     wf_raster_pack_window(w, &window, pixels, &packed, err)       in any thread
 *     wf_raster_place_packed(w, 1, (struct wf_raster_packed *[]){ &packed }, before, all, err)
 *                            packed.bytes.size, summed over lower ranks and over all of them
 *
 * Any number of threads may pack at the same time, each to a place of its own.
 * At the end the tables of all writers are added up, element by element, into that of the one who made
 * the file; the others are closed before it.
 */
/* Whether files of this name take several writers. */
bool wf_raster_shares(const char *path);
const char *wf_raster_writer_partial(const struct wf_raster_writer *w);
[[nodiscard]] struct wf_raster_writer *wf_raster_join(const char *path, const char *partial,
                                                      const struct wf_raster_info *info,
                                                      struct wf_err *err);
/* Windows that are packed and have no place in the file yet; zeroed: none. */
struct wf_raster_packed {
    struct wf_buffer bytes;
    struct wf_raster_part {
        int64_t tile;
        size_t at, bytes;
    } * parts; /* tiles in `bytes` */
    size_t n_parts, room;
    int64_t pixels;
};
[[nodiscard]] bool wf_raster_pack_window(const struct wf_raster_writer *w,
                                         const struct wf_region *window, const void *src,
                                         struct wf_raster_packed *packed, struct wf_err *err);
/* Empties `packed`, of which there are n, one behind the other. */
[[nodiscard]] bool wf_raster_place_packed(struct wf_raster_writer *w, int n,
                                          struct wf_raster_packed *const packed[], uint64_t before,
                                          uint64_t all, struct wf_err *err);
void wf_raster_packed_release(struct wf_raster_packed *packed);
int64_t *wf_raster_writer_table(struct wf_raster_writer *w, size_t *count);

/* The "no data" value in windows of f32: a special NaN, because another NaN in a file with a
 * different nodata value is an error. */
float wf_raster_hole(void);
bool wf_raster_is_hole(float value);
