/* Inside image/: what the two files that read TIFF share. */
#ifndef WF_IMAGE_RASTER_TIFF_H
#define WF_IMAGE_RASTER_TIFF_H

#include "image/raster_format.h"

#ifdef WF_HAVE_TIFF
#include <tiffio.h>

/* What must be the same on all pages. */
struct wf_tiff_layout {
    uint32_t width, height;
    uint32_t tile_w, tile_h; /* the strip's rows where it is not tiled */
    uint16_t bits, samples, format, compression, photometric, planar;
    bool tiled;
};

struct wf_tiff {
    TIFF *tif;
    struct wf_raster *raster;
    uint64_t at; /* in the file, as libtiff seeks */
    char message[200];
    bool warned;
    struct wf_tiff_layout layout;
    uint64_t *pages; /* offsets of their directories */
    size_t room;
    int64_t page;        /* that libtiff stands on */
    int64_t last_strip;  /* counted over pages and planes */
    int64_t next;        /* row that libtiff gives next without seeking; -1: none */
    struct wf_rows rows; /* not tiled */
    unsigned char *tile; /* decoded */
    unsigned char *bits; /* packed samples of a row or tile, where they have fewer than 8 bits */
};

/* The layout of the directory on which libtiff stands. */
[[nodiscard]] bool wf_tiff_layout(const struct wf_tiff *t, struct wf_tiff_layout *l,
                                  struct wf_err *err);
bool wf_tiff_same_layout(const struct wf_tiff_layout *a, const struct wf_tiff_layout *b);
/* Compression, colours and samples that are read here; sets the raster's sample type. */
[[nodiscard]] bool wf_tiff_check_coding(const struct wf_tiff *t, struct wf_err *err);
/* T2: libtiff's sizes of rows and tiles are those of the layout, and within the limits. */
[[nodiscard]] bool wf_tiff_check_sizes(const struct wf_tiff *t, struct wf_err *err);
void wf_tiff_palette(const struct wf_tiff *t);
[[nodiscard]] bool wf_tiff_place(const struct wf_tiff *t, struct wf_err *err);

/* Samples of a pixel that lie together. */
static inline int64_t wf_tiff_together(const struct wf_tiff_layout *l)
{
    return l->planar == PLANARCONFIG_SEPARATE ? 1 : l->samples;
}

/* Bytes of one row of a tile or strip as libtiff gives it. */
static inline uint64_t wf_tiff_row_bytes(const struct wf_tiff_layout *l)
{
    return ((uint64_t)l->tile_w * (uint64_t)wf_tiff_together(l) * l->bits + 7) / 8;
}
#endif

#endif
