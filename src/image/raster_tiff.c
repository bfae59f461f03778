/*
 * TIFF and BigTIFF through libtiff: pages of equal layout are depth, reduced copies are passed
 * over.
 *
 * Invariants:
 *   T1  every page that is read has the layout of the first one, checked when it is entered;
 *   T2  a buffer is as large as libtiff says it fills, and as the layout says;
 *   T3  a tile is decoded only after its bytes were found to lie in the file and its decoded size to
 *       be in proportion to them;
 *   T4  libtiff reports through the handlers of its handle; the process's own handlers are not touched;
 *   T5  a page has a place for each of its tiles. One of offset and length zero was never written: it is
 *       sparse, as GDAL does it.
 */
#include "image/raster_tiff.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static bool probe(const unsigned char *head, size_t bytes)
{
    static const char magic[][5] = { "II\x2a\0", "MM\0\x2a", "II\x2b\0", "MM\0\x2b" };
    for (int i = 0; bytes >= 4 && i < 4; i++)
        if (memcmp(head, magic[i], 4) == 0)
            return true;
    return false;
}

#ifdef WF_HAVE_TIFF
/* --- libtiff's view of the file --- */
static tmsize_t on_read(thandle_t handle, void *dst, tmsize_t bytes)
{
    struct wf_tiff *t = handle;
    const uint64_t size = t->raster->file.size;
    const uint64_t left = t->at < size ? size - t->at : 0;
    const size_t now = (uint64_t)bytes < left ? (size_t)bytes : (size_t)left;
    struct wf_err err = { 0 };
    if (bytes < 0 || !wf_infile_read(&t->raster->file, t->at, dst, now, &err))
        return -1;
    t->at += now;
    return (tmsize_t)now;
}

static tmsize_t on_write(thandle_t, void *, tmsize_t)
{
    return -1;
}

static toff_t on_seek(thandle_t handle, toff_t offset, int whence)
{
    struct wf_tiff *t = handle;
    t->at = whence == SEEK_SET   ? offset
            : whence == SEEK_CUR ? t->at + offset
                                 : t->raster->file.size + offset;
    return t->at;
}

static int on_close(thandle_t)
{
    return 0;
}

static toff_t on_size(thandle_t handle)
{
    return ((struct wf_tiff *)handle)->raster->file.size;
}

__attribute__((format(printf, 4, 0))) static int on_error(TIFF *, void *data, const char *,
                                                          const char *format, va_list args)
{
    struct wf_tiff *t = data;
    if (!t->message[0]) {
        (void)vsnprintf(t->message, sizeof t->message, format, args);
        wf_raster_printable(t->message);
    }
    return 1;
}

/* JPEG in TIFF tells of damage only by a warning. */
__attribute__((format(printf, 4, 0))) static int on_warning(TIFF *tif, void *data,
                                                            const char *module, const char *format,
                                                            va_list args)
{
    struct wf_tiff *t = data;
    if (t->layout.compression == COMPRESSION_JPEG) {
        t->warned = true;
        return on_error(tif, data, module, format, args);
    }
    return 1;
}

static bool refuse_decoding(const struct wf_tiff *t, const char *what, int64_t index,
                            struct wf_err *err)
{
    return wf_raster_refuse(t->raster, err, "%s %" PRId64 " is damaged (%s): copy the file again",
                            what, index, t->message[0] ? t->message : "libtiff does not say how");
}

/* Colours of JPEG are wanted as RGB; a directory forgets this when another is entered. */
static void want_rgb(const struct wf_tiff *t, const struct wf_tiff_layout *l)
{
    if (l->compression == COMPRESSION_JPEG && l->photometric == PHOTOMETRIC_YCBCR)
        (void)TIFFSetField(t->tif, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
}

/* Is the page that libtiff stands on another plane of the stack? A page of the same size that is
 * stored in another way would be one too, and is refused. */
static bool continues(const struct wf_tiff *t, int64_t page, bool *does, struct wf_err *err)
{
    struct wf_tiff_layout l;
    struct wf_err ignored = { 0 };
    const struct wf_tiff_layout *const first = &t->layout;
    *does = wf_tiff_layout(t, &l, &ignored) && wf_tiff_same_layout(&l, first);
    if (*does || ignored.code || l.width != first->width || l.height != first->height ||
        l.samples != first->samples || l.bits != first->bits)
        return true;
    return wf_raster_refuse(t->raster, err,
                            "page %" PRId64 " has the size of the first, but is stored in another "
                            "way: write all pages alike, for instance 'tiffcp -c zip'",
                            page);
}

static bool add_page(struct wf_tiff *t, int64_t number, int64_t *count, struct wf_err *err)
{
    if (*count == WF_RASTER_PAGES)
        return wf_raster_refuse(t->raster, err, "more than %d pages: cut the stack",
                                WF_RASTER_PAGES);
    WF_GROW(t->pages, t->room, (size_t)*count);
    WF_GROW(t->numbers, t->rooms, (size_t)*count);
    t->numbers[*count] = (uint32_t)number;
    t->pages[(*count)++] = TIFFCurrentDirOffset(t->tif);
    return wf_tiff_check_table(t, err);
}

/* Pages like the first one, up to the first that is not; reduced copies and masks between do not
 * count. A slide's overview pictures so end the stack at one page. */
static bool count_pages(struct wf_tiff *t, int64_t *count, struct wf_err *err)
{
    *count = 0;
    for (int64_t number = 0;; number++) {
        uint32_t kind = 0;
        (void)TIFFGetField(t->tif, TIFFTAG_SUBFILETYPE, &kind);
        bool counts = *count == 0 || !(kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK));
        if (counts && *count) {
            if (!continues(t, number, &counts, err))
                return false;
            if (!counts)
                return true;
        }
        if (counts && !add_page(t, number, count, err))
            return false;
        if (TIFFLastDirectory(t->tif))
            return true;
        t->message[0] = '\0';
        if (!TIFFReadDirectory(t->tif))
            return wf_raster_refuse(t->raster, err,
                                    "page %" PRId64 " is damaged (%s): copy the file again", *count,
                                    t->message);
    }
}

/* T1 */
static bool enter_page(struct wf_tiff *t, int64_t page, struct wf_err *err)
{
    if (t->page == page)
        return true;
    struct wf_tiff_layout l;
    t->page = t->next = -1;
    t->message[0] = '\0';
    if (!TIFFSetSubDirectory(t->tif, t->pages[page]))
        return refuse_decoding(t, "page", page, err);
    if (!wf_tiff_layout(t, &l, err))
        return false;
    if (!wf_tiff_same_layout(&l, &t->layout))
        return wf_raster_refuse(t->raster, err,
                                "page %" PRId64 " changed while it was read: do not "
                                "write to the file meanwhile",
                                page);
    want_rgb(t, &l);
    t->page = page;
    return wf_tiff_check_sizes(t, err);
}

/* --- pixels --- */
static uint32_t planes(const struct wf_tiff_layout *l)
{
    return l->planar == PLANARCONFIG_SEPARATE ? l->samples : 1;
}

/* One byte for each sample of 1, 2 or 4 bits, the first in the high bits. */
static void unpack(const unsigned char *packed, size_t count, int bits, unsigned char *dst)
{
    const int each = 8 / bits, mask = (1 << bits) - 1;
    for (size_t i = 0; i < count; i++)
        dst[i] =
            (unsigned char)(packed[i / (size_t)each] >> (8 - bits * (1 + (int)(i % (size_t)each))) &
                            mask);
}

/* T3. A tile that was never written (offset and length zero) is sparse: it reads as zeros. */
static bool check_tile(const struct wf_tiff *t, uint32_t index, uint64_t decoded, bool *sparse,
                       struct wf_err *err)
{
    const uint64_t size = t->raster->file.size;
    int bad_offset = 0, bad_count = 0;
    const uint64_t offset = TIFFGetStrileOffsetWithErr(t->tif, index, &bad_offset);
    const uint64_t count = TIFFGetStrileByteCountWithErr(t->tif, index, &bad_count);
    if (bad_offset || bad_count)
        return refuse_decoding(t, "the place of tile", index, err);
    *sparse = offset == 0 && count == 0;
    if (offset > size || count > size - offset)
        return wf_raster_refuse(t->raster, err,
                                "tile %" PRIu32 " lies at bytes %" PRIu64 " to %" PRIu64
                                ", the file has %" PRIu64 ": it is cut short, copy it again",
                                index, offset, offset + count, size);
    if (!*sparse && decoded > WF_RASTER_WHOLE && decoded / WF_RASTER_RATIO > count)
        return wf_raster_refuse(t->raster, err,
                                "tile %" PRIu32 " would unpack %" PRIu64 " bytes to %" PRIu64
                                ", which is too much at once: write it with tiles of 256 x 256",
                                index, count, decoded);
    return true;
}

/* Rows are counted over pages, planes and image rows, in this order. Most codecs can only go on to
 * the next row of a strip or begin it again: the rows between are decoded and forgotten. */
static bool decode_row(struct wf_tiff *t, int64_t row, void *dst)
{
    const struct wf_tiff_layout *l = &t->layout;
    const int64_t y = row % l->height, plane = row / l->height % planes(l);
    const int64_t begin = row - y % l->tile_h;
    int64_t at = row;
    if (l->compression != COMPRESSION_NONE && t->next != row)
        at = t->next > begin && t->next < row ? t->next : begin;
    t->message[0] = '\0';
    t->warned = false;
    t->next = -1;
    for (; at <= row; at++)
        if (TIFFReadScanline(t->tif, dst, (uint32_t)(at % l->height), (uint16_t)plane) != 1 ||
            t->warned)
            return false;
    t->next = row + 1;
    return true;
}

/* Selects the row's page and checks its strip; returns the strip's number over all pages and
 * planes. */
static bool enter_row(struct wf_tiff *t, int64_t row, int64_t *strip, bool *sparse,
                      struct wf_err *err)
{
    const struct wf_tiff_layout *l = &t->layout;
    const int64_t y = row % l->height, plane = row / l->height % planes(l);
    const int64_t page = row / l->height / planes(l);
    const int64_t per_plane = wf_ceil_div(l->height, l->tile_h);
    const int64_t in_page = plane * per_plane + y / l->tile_h;
    *strip = page * planes(l) * per_plane + in_page;
    return enter_page(t, page, err) && check_tile(t, (uint32_t)in_page, 0, sparse, err);
}

/* Rows of planes that lie one after the other behind a single page. */
static bool next_raw_row(void *source, int64_t row, void *dst, struct wf_err *err)
{
    struct wf_tiff *t = source;
    const uint64_t rows = (uint64_t)t->layout.height * planes(&t->layout);
    const uint64_t at = t->planes.raw_at + (uint64_t)row / rows * t->planes.raw_bytes +
                        (uint64_t)row % rows * t->rows.bytes;
    const size_t size = wf_sample_size(t->raster->stored);
    if (!wf_infile_read(&t->raster->file, at, dst, t->rows.bytes, err))
        return false;
    if (TIFFIsByteSwapped(t->tif))
        wf_sample_swap(dst, t->rows.bytes / size, size);
    return true;
}

static bool next_row(void *source, int64_t row, void *dst, struct wf_err *err)
{
    struct wf_tiff *t = source;
    const struct wf_tiff_layout *l = &t->layout;
    const int64_t y = row % l->height;
    int64_t strip;
    bool sparse;
    if (!enter_row(t, row, &strip, &sparse, err))
        return false;
    WF_BUG_ON(sparse, "row %" PRId64 " has nothing to decode", row);
    t->raster->tiles_read += strip != t->last_strip;
    t->last_strip = strip;
    if (!decode_row(t, row, t->bits ? t->bits : dst)) {
        t->page = -1; /* start over at the next call */
        return refuse_decoding(t, "row", y, err);
    }
    if (t->bits)
        unpack(t->bits, t->rows.bytes, l->bits, dst);
    return true;
}

/* The page that holds channel `c` of plane `d`. */
static int64_t page_of(const struct wf_tiff *t, int64_t d, int64_t c)
{
    const struct wf_tiff_planes *const p = &t->planes;
    const int64_t plane = d * p->layers + c / t->layout.samples;
    return p->pages ? p->pages[plane] : plane;
}

static bool read_row(const struct wf_raster_job *job, int64_t d, int64_t h, int64_t c,
                     struct wf_err *err)
{
    struct wf_tiff *t = job->raster->state;
    const struct wf_tiff_layout *l = &t->layout;
    const int64_t each = wf_tiff_together(l);
    const int64_t plane = page_of(t, d, c) * planes(l) + c % l->samples / each;
    const int64_t row = plane * l->height + h;
    int64_t strip;
    bool sparse = false;
    if (!t->planes.raw && !enter_row(t, row, &strip, &sparse, err))
        return false;
    const struct wf_raster_block block = {
        .data = sparse ? t->empty : wf_raster_rows_get(&t->rows, row, err),
        .lo = { d, h, 0, c },
        .hi = { d + 1, h + 1, l->width, c + each },
        .stride = { [WF_RASTER_W] = sparse ? 0 : each, [WF_RASTER_C] = sparse ? 0 : 1 },
    };
    return block.data && wf_raster_put(job, &block, err);
}

static bool read_rows(const struct wf_raster_job *job, struct wf_err *err)
{
    const struct wf_tiff *t = job->raster->state;
    const int64_t each = wf_tiff_together(&t->layout);
    for (int64_t d = job->lo[WF_RASTER_D]; d < job->hi[WF_RASTER_D]; d++)
        for (int64_t c = job->lo[WF_RASTER_C] / each * each; c < job->hi[WF_RASTER_C]; c += each)
            for (int64_t h = job->lo[WF_RASTER_H]; h < job->hi[WF_RASTER_H]; h++)
                if (!read_row(job, d, h, c, err))
                    return false;
    return true;
}

/* Decodes the tile at (y, x) of plane `plane` to t->tile, unless there is nothing in it. */
static bool decode_tile(struct wf_tiff *t, int64_t y, int64_t x, int64_t plane, bool *sparse,
                        struct wf_err *err)
{
    const struct wf_tiff_layout *l = &t->layout;
    const uint64_t packed = wf_tiff_row_bytes(l) * l->tile_h;
    const uint64_t samples = (uint64_t)l->tile_w * l->tile_h * (uint64_t)wf_tiff_together(l);
    const uint64_t bytes = samples * wf_sample_size(t->raster->stored);
    const uint32_t index = TIFFComputeTile(t->tif, (uint32_t)x, (uint32_t)y, 0, (uint16_t)plane);
    if (!check_tile(t, index, bytes, sparse, err))
        return false;
    if (*sparse)
        return true;
    if (!t->tile)
        t->tile = malloc(bytes);
    if (!t->bits && l->bits < 8)
        t->bits = malloc(packed);
    if (!t->tile || (!t->bits && l->bits < 8))
        return wf_raster_no_memory(t->raster, err);
    t->raster->tiles_read++;
    t->message[0] = '\0';
    t->warned = false;
    if (TIFFReadEncodedTile(t->tif, index, t->bits ? t->bits : t->tile, (tmsize_t)packed) !=
            (tmsize_t)packed ||
        t->warned)
        return refuse_decoding(t, "tile", index, err);
    /* Rows of a tile begin at a byte. */
    const size_t row = samples / l->tile_h;
    for (uint32_t i = 0; t->bits && i < l->tile_h; i++)
        unpack(t->bits + i * wf_tiff_row_bytes(l), row, l->bits, t->tile + i * row);
    return true;
}

static bool read_tiles(const struct wf_raster_job *job, int64_t d, int64_t c, struct wf_err *err)
{
    struct wf_tiff *t = job->raster->state;
    const struct wf_tiff_layout *l = &t->layout;
    const int64_t each = wf_tiff_together(l), th = l->tile_h, tw = l->tile_w;
    for (int64_t y = job->lo[WF_RASTER_H] / th * th; y < job->hi[WF_RASTER_H]; y += th)
        for (int64_t x = job->lo[WF_RASTER_W] / tw * tw; x < job->hi[WF_RASTER_W]; x += tw) {
            bool sparse = false;
            if (!decode_tile(t, y, x, c % l->samples / each, &sparse, err))
                return false;
            /* With strides of zero one sample stands for a sparse tile of any size. */
            struct wf_raster_block block = { .data = t->empty,
                                             .lo = { d, y, x, c },
                                             .hi = { d + 1, y + th, x + tw, c + each } };
            if (!sparse) {
                block.data = t->tile;
                block.stride[WF_RASTER_H] = tw * each;
                block.stride[WF_RASTER_W] = each;
                block.stride[WF_RASTER_C] = 1;
            }
            if (!wf_raster_put(job, &block, err))
                return false;
        }
    return true;
}

static bool read_tiff(const struct wf_raster_job *job, struct wf_err *err)
{
    struct wf_tiff *t = job->raster->state;
    if (!t->layout.tiled)
        return read_rows(job, err);
    const int64_t each = wf_tiff_together(&t->layout);
    for (int64_t d = job->lo[WF_RASTER_D]; d < job->hi[WF_RASTER_D]; d++)
        for (int64_t c = job->lo[WF_RASTER_C] / each * each; c < job->hi[WF_RASTER_C]; c += each)
            if (!enter_page(t, page_of(t, d, c), err) || !read_tiles(job, d, c, err))
                return false;
    return true;
}

static bool check_tiff(struct wf_raster *r, struct wf_err *err)
{
    struct wf_tiff *t = r->state;
    const struct wf_tiff_planes *const p = &t->planes;
    if (p->raw)
        return true; /* its size was compared with the description */
    for (int64_t i = 0; i < p->depth * p->layers; i++)
        if (!enter_page(t, p->pages ? p->pages[i] : i, err) || !wf_tiff_check_places(t, err))
            return false;
    return true;
}

/* --- opening --- */
static bool start(struct wf_tiff *t, struct wf_err *err)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options)
        return wf_raster_no_memory(t->raster, err);
    /* What libtiff reads for itself, encoded tiles and tables of tags, comes from the file. */
    const uint64_t most = WF_RASTER_WHOLE + 8 * t->raster->file.size;
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)most);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, t);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, t);
    /* O: places of tiles are read when they are needed; m: no map; c: strips as they are. */
    t->tif = TIFFClientOpenExt(t->raster->file.name, "rOmc", t, on_read, on_write, on_seek,
                               on_close, on_size, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return t->tif ||
           wf_raster_refuse(t->raster, err, "a damaged TIFF header (%s): copy the file again",
                            t->message);
}

static bool fill_rows(struct wf_tiff *t, int64_t pages, struct wf_err *err)
{
    const struct wf_raster *r = t->raster;
    const struct wf_tiff_layout *l = &t->layout;
    if (l->tiled)
        return true;
    const int64_t count = t->planes.raw ? t->planes.depth * t->planes.layers : pages;
    t->rows = (struct wf_raster_rows){ .count = count * planes(l) * l->height, .seeks = true };
    t->rows.bytes = (size_t)l->width * (size_t)wf_tiff_together(l) * wf_sample_size(r->stored);
    t->rows.next = t->planes.raw ? next_raw_row : next_row;
    t->rows.source = t;
    if (l->bits < 8)
        t->bits = malloc(wf_tiff_row_bytes(l));
    return t->bits || l->bits >= 8 || wf_raster_no_memory(r, err);
}

static bool fill_info(struct wf_tiff *t, int64_t pages, struct wf_err *err)
{
    struct wf_raster *r = t->raster;
    const struct wf_tiff_layout *l = &t->layout;
    if (!wf_tiff_find_planes(t, pages, err))
        return false;
    r->info.depth = t->planes.depth;
    r->info.height = l->height;
    r->info.width = l->width;
    r->info.channels = (int)t->planes.layers * l->samples;
    r->info.sample = r->stored;
    r->info.tile = WF_SHAPE(1, 1, l->tile_h, l->tile_w, wf_tiff_together(l));
    wf_tiff_palette(t);
    if (!wf_tiff_place(t, err) || !wf_tiff_meaning(t, err))
        return false;
    const uint32_t tiles = l->tiled ? TIFFNumberOfTiles(t->tif) : TIFFNumberOfStrips(t->tif);
    bool sparse;
    if (!tiles)
        return wf_raster_refuse(r, err,
                                "too many tiles: the header is damaged, write the file again");
    return check_tile(t, tiles - 1, 0, &sparse, err) && fill_rows(t, pages, err);
}

static bool open_tiff(struct wf_raster *r, struct wf_err *err)
{
    struct wf_tiff *t = calloc(1, sizeof *t);
    if (!t)
        return wf_raster_no_memory(r, err);
    r->state = t;
    t->raster = r;
    t->page = t->last_strip = t->next = -1;
    int64_t pages = 0;
    if (!start(t, err) || !wf_tiff_layout(t, &t->layout, err) || !wf_tiff_check_coding(t, err))
        return false;
    return count_pages(t, &pages, err) && enter_page(t, 0, err) && fill_info(t, pages, err);
}

static void close_tiff(struct wf_raster *r)
{
    struct wf_tiff *t = r->state;
    if (!t)
        return;
    if (t->tif)
        TIFFClose(t->tif);
    wf_raster_rows_release(&t->rows);
    free(t->pages);
    free(t->numbers);
    free(t->planes.pages);
    free(t->tile);
    free(t->bits);
    free(t);
}

#endif

const struct wf_raster_format wf_raster_tiff = {
    .name = "TIFF",
    .probe = probe,
#ifdef WF_HAVE_TIFF
    .open = open_tiff,
    .read = read_tiff,
    .close = close_tiff,
    .check = check_tiff,
#else
    .lacks = "libtiff-dev",
#endif
};
