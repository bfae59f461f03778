/* Inside image/: shared by the files that read TIFF. */
#pragma once

#include "image/raster_format.h"

#ifdef WF_HAVE_TIFF
#include <tiffio.h>

/* What must be the same on all pages. */
struct wf_tiff_layout {
    uint32_t width, height;
    uint32_t tile_w, tile_h; /* the strip's rows where it is not tiled */
    uint16_t bits, samples, format, compression, photometric, planar, orientation;
    bool tiled;
};

/* The position of an image's planes: plane z of channel layer c, of `samples` channels, is on page
 * pages[z * layers + c]; or all follow one another behind a single page, `raw`. */
struct wf_tiff_planes {
    int64_t depth, layers;
    uint32_t *pages; /* NULL: in their order, one layer */
    bool raw;
    uint64_t raw_at, raw_bytes; /* of plane 0; of each */
};

struct wf_tiff {
    TIFF *tif;
    struct wf_raster *raster;
    uint64_t at; /* in the file, as libtiff seeks */
    char message[200];
    bool warned;
    struct wf_tiff_layout layout;
    uint64_t *pages;    /* offsets of their directories */
    uint32_t *numbers;  /* of the pages in the file, including skipped ones */
    size_t room, rooms; /* of the two */
    struct wf_tiff_planes planes;
    unsigned char empty[8];     /* a sample of a tile that was never written */
    int64_t page;               /* libtiff's current one */
    int64_t last_strip;         /* counted over pages and planes */
    int64_t next;               /* row that libtiff returns next without seeking; -1: none */
    struct wf_raster_rows rows; /* not tiled */
    unsigned char *tile;        /* decoded */
    unsigned char *bits; /* packed samples of a row or tile, where they have fewer than 8 bits */
};

/* The layout of libtiff's current directory. */
[[nodiscard]] bool wf_tiff_layout(const struct wf_tiff *t, struct wf_tiff_layout *l,
                                  struct wf_err *err);
bool wf_tiff_same_layout(const struct wf_tiff_layout *a, const struct wf_tiff_layout *b);
/* Checks that compression, colours and samples are supported; sets the raster's sample type. */
[[nodiscard]] bool wf_tiff_check_coding(const struct wf_tiff *t, struct wf_err *err);
/* T2: libtiff's sizes of rows and tiles are those of the layout, and within the limits. */
[[nodiscard]] bool wf_tiff_check_sizes(const struct wf_tiff *t, struct wf_err *err);
/* T5: libtiff's current directory has as many tiles or strips as the image needs. */
[[nodiscard]] bool wf_tiff_check_table(const struct wf_tiff *t, struct wf_err *err);
/* All of its tiles are inside the file. */
[[nodiscard]] bool wf_tiff_check_places(const struct wf_tiff *t, struct wf_err *err);
/* Maps pages to planes by the description of the first page, which is libtiff's current one. */
[[nodiscard]] bool wf_tiff_find_planes(struct wf_tiff *t, int64_t pages, struct wf_err *err);
/* OME-XML; raster_tiff_ome.c. */
[[nodiscard]] bool wf_tiff_ome_planes(struct wf_tiff *t, const char *text, int64_t pages,
                                      struct wf_err *err);
/* Allocates t->planes.pages for these planes; NULL on failure. */
[[nodiscard]] uint32_t *wf_tiff_new_planes(struct wf_tiff *t, int64_t depth, int64_t layers,
                                           struct wf_err *err);
/* Alpha, white-is-zero, orientation, nodata. */
[[nodiscard]] bool wf_tiff_meaning(struct wf_tiff *t, struct wf_err *err);
void wf_tiff_palette(const struct wf_tiff *t);
[[nodiscard]] bool wf_tiff_place(const struct wf_tiff *t, struct wf_err *err);

/* Interleaved samples of a pixel. */
static inline int64_t wf_tiff_together(const struct wf_tiff_layout *l)
{
    return l->planar == PLANARCONFIG_SEPARATE ? 1 : l->samples;
}

/* Bytes of one row of a tile or strip as libtiff returns it. */
static inline uint64_t wf_tiff_row_bytes(const struct wf_tiff_layout *l)
{
    return ((uint64_t)l->tile_w * (uint64_t)wf_tiff_together(l) * l->bits + 7) / 8;
}
#endif
