/*
 * Writing TIFF: tiles, deflate, one page for each plane, channels together.
 *
 * Without libtiff, because several writers may share a file and libtiff supports only one: each
 * packs the tiles of its windows in memory, receives the number of bytes that the others packed,
 * and writes at its own offset. A table has the offsets of tiles; the sum of all writers' tables
 * becomes the directories, which the writer that created the file writes at its end. A single
 * writer does the same.
 *
 * Invariants:
 *   O1  `end` is the same for all writers between two rounds of placing;
 *   O2  bytes below `end` are written once, by one writer, and a tile is packed once;
 *   O3  the header names a directory only when the file is complete.
 */
#include "image/raster_tiff_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

enum { TILE = 256 };
/* Past this a classic TIFF might not hold its tiles and their table. */
static const int64_t CLASSIC = (int64_t)3 << 30;

int wf_tiff_compression(void)
{
#ifdef WF_HAVE_ZLIB
    return 8;
#else
    return 1;
#endif
}

/* Neighbouring floats share their high bytes; class maps are better left alone. */
bool wf_tiff_predicts(const struct wf_raster_info *info)
{
    return info->sample == WF_SAMPLE_F32 && wf_tiff_compression() != 1;
}

static size_t pixel_bytes(const struct wf_raster_info *info)
{
    return (size_t)info->channels * wf_sample_size(info->sample);
}

static size_t tile_bytes(const struct wf_raster_info *info)
{
    return (size_t)(info->tile.at[WF_H] * info->tile.at[WF_W]) * pixel_bytes(info);
}

/* --- beginning --- */
static void copy_place(struct wf_tiff_out *t, const struct wf_raster_place *place)
{
    if (!place)
        return;
    t->place = *place;
    for (int i = 0; i < place->geo_count; i++) {
        const struct wf_raster_geo *geo = &place->geo[i];
        const size_t bytes = geo->count * (geo->type == WF_GEO_DOUBLE  ? 8u
                                           : geo->type == WF_GEO_SHORT ? 2u
                                                                       : 1u);
        char *const data = wf_take(bytes + 1);
        memcpy(data, geo->data, bytes);
        data[bytes] = '\0';
        t->place.geo[i].data = data;
        if (geo->type == WF_GEO_TEXT) /* its end counts */
            t->place.geo[i].count = (uint32_t)strlen(data) + 1;
    }
}

static void choose_tile(struct wf_raster_info *info)
{
    const int64_t th = info->tile.at[WF_H], tw = info->tile.at[WF_W];
    const bool fits = th > 0 && tw > 0 && th % 16 == 0 && tw % 16 == 0 && th <= 4096 && tw <= 4096;
    info->tile = WF_SHAPE(1, 1, fits ? th : TILE, fits ? tw : TILE, info->channels);
}

static bool begin_tiff(struct wf_raster_writer *w, struct wf_err *err)
{
    struct wf_raster_info *info = &w->info;
    struct wf_tiff_out *t = wf_take_zeroed(1, sizeof *t);
    w->state = t;
    t->writer = w;
    t->file.fd = -1;
    t->end = WF_TIFF_HEADER;
    copy_place(t, info->place);
    choose_tile(info);
    if (info->colors && (info->sample != WF_SAMPLE_U8 || info->channels != 1))
        return wf_err_set(err, WF_ERR_USAGE,
                          "cannot write '%s': a palette needs one channel of u8, not %d of %s",
                          w->path, info->channels, wf_sample_name(info->sample));
    t->across = wf_ceil_div(info->width, info->tile.at[WF_W]);
    t->down = wf_ceil_div(info->height, info->tile.at[WF_H]);
    const double bytes =
        (double)wf_tiff_tiles(t) * ((double)tile_bytes(info) + 2 * sizeof *t->table);
    t->big = bytes > (double)CLASSIC;
    t->table = calloc((size_t)(2 * wf_tiff_tiles(t) + 1), sizeof *t->table);
    if (!t->table)
        return wf_err_set(err, WF_ERR_FIT, "cannot write '%s': no memory", w->path);
    if (w->joins)
        return wf_outfile_join(&t->file, w->path, w->joins, err);
    /* O3: as long as nothing is named the file is no image. */
    const char head[WF_TIFF_HEADER] = { 'I', 'I', t->big ? 43 : 42, 0, t->big ? 8 : 0 };
    if (!wf_outfile_begin(&t->file, w->path, err))
        return false;
    t->file.synced_later = info->synced_later;
    return wf_outfile_write_at(&t->file, 0, head, sizeof head, err);
}

static const char *partial_of(const struct wf_raster_writer *w)
{
    return ((const struct wf_tiff_out *)w->state)->file.partial;
}

/* --- packing --- */
/* The samples of the tile at (y, x) of a window's plane; past the image's edge they are zero. */
static void fill_tile(const struct wf_raster_info *info, const struct wf_region *window,
                      const unsigned char *plane, int64_t y, int64_t x, unsigned char *tile)
{
    const int64_t th = info->tile.at[WF_H], tw = info->tile.at[WF_W];
    const size_t pixel = pixel_bytes(info);
    const size_t row = (size_t)wf_region_extent(*window, WF_W) * pixel;
    const int64_t rows = wf_min(th, window->hi[WF_H] - y),
                  columns = wf_min(tw, window->hi[WF_W] - x);
    if (rows < th || columns < tw)
        memset(tile, 0, tile_bytes(info));
    for (int64_t i = 0; i < rows; i++)
        memcpy(tile + (size_t)(i * tw) * pixel,
               plane + (size_t)(y - window->lo[WF_H] + i) * row +
                   (size_t)(x - window->lo[WF_W]) * pixel,
               (size_t)columns * pixel);
}

/* TIFF's predictor 3: the floats of a row by bytes, the highest first, and then differences between
 * neighbours of a channel. */
static void turn(const unsigned char *src, unsigned char *dst, size_t samples, size_t channels)
{
    enum { BYTES = 4 };
    for (size_t i = 0; i < samples; i++)
        for (size_t b = 0; b < BYTES; b++)
            dst[(BYTES - 1 - b) * samples + i] = src[i * BYTES + b];
    for (size_t i = samples * BYTES - 1; i >= channels; i--)
        dst[i] = (unsigned char)(dst[i] - dst[i - channels]);
}

/* The compressed bytes behind those in `to`, without a copy: room for the worst is made first. */
static bool deflate_to(struct wf_buffer *to, const unsigned char *data, size_t bytes)
{
#ifdef WF_HAVE_ZLIB
    uLongf room = compressBound((uLong)bytes);
    wf_buffer_reserve(to, room);
    if (compress2((unsigned char *)to->data + to->size, &room, data, (uLong)bytes, 6) != Z_OK)
        return false;
    to->size += room;
#else
    wf_buffer_add(to, data, bytes);
#endif
    return true;
}

/* A tile's samples, and room for their predicted bytes behind them. */
static bool pack_tile(const struct wf_raster_writer *w, int64_t number, unsigned char *tile,
                      struct wf_raster_packed *packed, struct wf_err *err)
{
    const struct wf_raster_info *info = &w->info;
    const size_t bytes = tile_bytes(info), before = packed->bytes.size;
    const size_t row = (size_t)info->tile.at[WF_W] * pixel_bytes(info);
    const bool predicts = wf_tiff_predicts(info);
    unsigned char *const turned = tile + bytes;
    for (size_t at = 0; predicts && at < bytes; at += row)
        turn(tile + at, turned + at, row / sizeof(float), (size_t)info->channels);
    if (!deflate_to(&packed->bytes, predicts ? turned : tile, bytes))
        return wf_err_set(err, WF_ERR_FIT, "cannot write '%s': no memory to pack a tile", w->path);
    WF_GROW(packed->parts, packed->room, packed->n_parts);
    packed->parts[packed->n_parts++] =
        (struct wf_raster_part){ number, before, packed->bytes.size - before };
    if (packed->bytes.size % 2) /* TIFF's parts begin at even places */
        wf_buffer_add(&packed->bytes, "", 1);
    return true;
}

static bool pack_tiff(const struct wf_raster_writer *w, const struct wf_region *window,
                      const void *src, struct wf_raster_packed *packed, struct wf_err *err)
{
    const struct wf_tiff_out *t = w->state;
    const int64_t th = w->info.tile.at[WF_H], tw = w->info.tile.at[WF_W];
    const size_t plane =
        (size_t)(wf_region_extent(*window, WF_H) * wf_region_extent(*window, WF_W)) *
        pixel_bytes(&w->info);
    const unsigned char *at = src;
    unsigned char *const tile = wf_take(2 * tile_bytes(&w->info));
    bool ok = true;
    for (int64_t d = window->lo[WF_D]; d < window->hi[WF_D]; d++, at += plane)
        for (int64_t y = window->lo[WF_H]; y < window->hi[WF_H]; y += th)
            for (int64_t x = window->lo[WF_W]; ok && x < window->hi[WF_W]; x += tw) {
                fill_tile(&w->info, window, at, y, x, tile);
                ok = pack_tile(w, (d * t->down + y / th) * t->across + x / tw, tile, packed, err);
            }
    free(tile);
    return ok;
}

static bool place_tiff(struct wf_raster_writer *w, const struct wf_raster_packed *packed,
                       uint64_t before, struct wf_err *err)
{
    struct wf_tiff_out *t = w->state;
    const uint64_t mine = t->end + before;
    for (size_t i = 0; i < packed->n_parts; i++) {
        const struct wf_raster_part *const part = &packed->parts[i];
        int64_t *const entry = t->table + 1 + 2 * part->tile;
        WF_BUG_ON(entry[0] != 0, "'%s': tile %" PRId64 " came twice", w->path, part->tile); /* O2 */
        entry[0] = (int64_t)(mine + part->at);
        entry[1] = (int64_t)part->bytes;
    }
    return wf_outfile_write_at(&t->file, mine, packed->bytes.data, packed->bytes.size, err);
}

/* O1 */
static void placed_tiff(struct wf_raster_writer *w, uint64_t all)
{
    struct wf_tiff_out *t = w->state;
    t->end += all;
}

static int64_t *table_of(struct wf_raster_writer *w, size_t *count)
{
    struct wf_tiff_out *t = w->state;
    *count = (size_t)(2 * wf_tiff_tiles(t) + 1);
    return t->table;
}

/* --- ending --- */
static bool end_tiff(struct wf_raster_writer *w, bool ok, struct wf_err *err)
{
    struct wf_tiff_out *t = w->state;
    if (!t)
        return false;
    for (int64_t i = 0; ok && !w->joins && i < wf_tiff_tiles(t); i++)
        WF_BUG_ON(t->table[1 + 2 * i] == 0, "'%s': tile %" PRId64 " did not come", w->path, i);
    if (!w->joins)
        ok = ok && wf_tiff_write_directories(t, err) && wf_outfile_commit(&t->file, err);
    else
        ok = ok && wf_outfile_sync(&t->file, err);
    wf_outfile_drop(&t->file);
    for (int i = 0; i < t->place.geo_count; i++)
        free(t->place.geo[i].data);
    free(t->table);
    free(t);
    return ok;
}

const struct wf_raster_sink wf_raster_tiff_sink = { .name = "TIFF",
                                                    .begin = begin_tiff,
                                                    .end = end_tiff,
                                                    .partial = partial_of,
                                                    .pack = pack_tiff,
                                                    .place = place_tiff,
                                                    .placed = placed_tiff,
                                                    .table = table_of };
