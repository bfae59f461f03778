/* Inside image/: shared by the two files that write TIFF. */
#pragma once

#include "image/raster_format.h"

struct wf_tiff_out {
    struct wf_raster_writer *writer;
    struct wf_outfile file;
    bool big;                     /* BigTIFF */
    struct wf_raster_place place; /* copied */
    int64_t across, down;         /* tiles of a page */
    uint64_t end;                 /* of what all writers have placed so far */
    /* The number of pixels written; then for each tile its offset and bytes, 0: from another writer. */
    int64_t *table;
};

static inline int64_t wf_tiff_tiles(const struct wf_tiff_out *t)
{
    return t->across * t->down * t->writer->info.depth;
}

/* Bytes before the first tile: the header, with the offset of the first directory. */
enum { WF_TIFF_HEADER = 16 };
/* The table is complete: writes a directory for each page behind the tiles, and the header. */
[[nodiscard]] bool wf_tiff_write_directories(struct wf_tiff_out *t, struct wf_err *err);
/* Deflate if this build has it, otherwise none. */
int wf_tiff_compression(void);
bool wf_tiff_predicts(const struct wf_raster_info *info);
