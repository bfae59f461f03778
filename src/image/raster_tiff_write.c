/*
 * Writing TIFF: tiles, deflate, one page for each plane, channels together.
 *
 * libtiff writes through the outfile's descriptor, so that the file appears whole or not at all, and
 * speaks through the handlers of its handle only.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/raster_format.h"

#ifdef WF_HAVE_TIFF
#include <tiffio.h>

enum { TILE = 256 };
/* Past this a classic TIFF might not hold its tiles and their table. */
static const int64_t CLASSIC = (int64_t)3 << 30;

struct tiff {
    TIFF *tif;
    struct wf_raster_writer *writer;
    struct wf_outfile file;
    uint64_t at;
    int reason; /* errno of the write that failed */
    char message[200];
    char tag_name[8];             /* libtiff keeps the pointer */
    struct wf_raster_place place; /* copied, for each page */
    int64_t page;                 /* that is being written */
    unsigned char *tile;
};

static tmsize_t on_read(thandle_t handle, void *dst, tmsize_t bytes)
{
    struct tiff *t = handle;
    const ssize_t got = pread(t->file.fd, dst, (size_t)bytes, (off_t)t->at);
    if (got > 0)
        t->at += (uint64_t)got;
    return got;
}

static tmsize_t on_write(thandle_t handle, void *src, tmsize_t bytes)
{
    struct tiff *t = handle;
    tmsize_t done = 0;
    while (done < bytes) {
        const ssize_t put =
            pwrite(t->file.fd, (const char *)src + done, (size_t)(bytes - done), (off_t)t->at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            t->reason = put < 0 ? errno : ENOSPC;
            return -1;
        }
        done += put;
        t->at += (uint64_t)put;
    }
    return done;
}

static toff_t on_size(thandle_t handle)
{
    struct stat info;
    return fstat(((struct tiff *)handle)->file.fd, &info) == 0 ? (toff_t)info.st_size : 0;
}

static toff_t on_seek(thandle_t handle, toff_t offset, int whence)
{
    struct tiff *t = handle;
    t->at = whence == SEEK_SET   ? offset
            : whence == SEEK_CUR ? t->at + offset
                                 : on_size(handle) + offset;
    return t->at;
}

static int on_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

__attribute__((format(printf, 4, 0))) static int on_error(TIFF *tif, void *data, const char *module,
                                                          const char *format, va_list args)
{
    (void)tif;
    (void)module;
    struct tiff *t = data;
    if (!t->message[0])
        (void)vsnprintf(t->message, sizeof t->message, format, args);
    return 1;
}

__attribute__((format(printf, 4, 0))) static int on_warning(TIFF *tif, void *data,
                                                            const char *module, const char *format,
                                                            va_list args)
{
    (void)tif, (void)data, (void)module, (void)format, (void)args;
    return 1;
}

static bool failed(const struct tiff *t, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': %s", t->writer->path,
                      t->reason       ? strerror(t->reason)
                      : t->message[0] ? t->message
                                      : "libtiff does not say why");
}

/* --- the directory of a page --- */
/* libtiff has no names for GeoTIFF's tags: they are told to this handle alone, and
 * again for each page. */
static bool name_tags(struct tiff *t)
{
    static const TIFFDataType types[] = {
        [WF_GEO_SHORT] = TIFF_SHORT, [WF_GEO_DOUBLE] = TIFF_DOUBLE, [WF_GEO_TEXT] = TIFF_ASCII
    };
    TIFFFieldInfo fields[WF_RASTER_GEO_TAGS];
    for (int i = 0; i < t->place.geo_count; i++) {
        const bool text = t->place.geo[i].type == WF_GEO_TEXT;
        fields[i] = (TIFFFieldInfo){
            .field_tag = t->place.geo[i].tag,
            .field_readcount = text ? TIFF_VARIABLE : TIFF_VARIABLE2,
            .field_writecount = text ? TIFF_VARIABLE : TIFF_VARIABLE2,
            .field_type = types[t->place.geo[i].type],
            .field_bit = FIELD_CUSTOM,
            .field_oktochange = 1,
            .field_passcount = !text,
            .field_name = t->tag_name,
        };
    }
    return !t->place.geo_count ||
           TIFFMergeFieldInfo(t->tif, fields, (uint32_t)t->place.geo_count) == 0;
}

static bool set_place(struct tiff *t)
{
    const struct wf_raster_place *place = &t->place;
    bool ok = name_tags(t);
    if (ok && place->x > 0 && place->y > 0)
        ok = TIFFSetField(t->tif, TIFFTAG_XRESOLUTION, place->x) &&
             TIFFSetField(t->tif, TIFFTAG_YRESOLUTION, place->y) &&
             TIFFSetField(t->tif, TIFFTAG_RESOLUTIONUNIT, (int)place->unit);
    for (int i = 0; ok && i < place->geo_count; i++) {
        const struct wf_raster_geo *geo = &place->geo[i];
        ok = geo->type == WF_GEO_TEXT ? TIFFSetField(t->tif, geo->tag, (const char *)geo->data)
                                      : TIFFSetField(t->tif, geo->tag, geo->count, geo->data);
    }
    return ok;
}

static bool set_palette(const struct tiff *t)
{
    const struct wf_raster_info *info = &t->writer->info;
    uint16_t map[3][WF_RASTER_COLORS] = { 0 };
    for (int i = 0; i < info->colors; i++)
        for (int c = 0; c < 3; c++)
            map[c][i] = (uint16_t)(info->palette[i][c] * 257);
    return TIFFSetField(t->tif, TIFFTAG_COLORMAP, map[0], map[1], map[2]);
}

static bool set_page(struct tiff *t)
{
    const struct wf_raster_info *info = &t->writer->info;
    TIFF *tif = t->tif;
    const bool rgb = (info->channels == 3 || info->channels == 4) && info->sample <= WF_SAMPLE_U16;
    const int extra = info->channels - (rgb ? 3 : 1);
    const bool real = !wf_sample_is_whole(info->sample);
    const bool minus = info->sample == WF_SAMPLE_I8 || info->sample == WF_SAMPLE_I16 ||
                       info->sample == WF_SAMPLE_I32 || info->sample == WF_SAMPLE_I64;
    const int photometric = info->colors ? PHOTOMETRIC_PALETTE
                            : rgb        ? PHOTOMETRIC_RGB
                                         : PHOTOMETRIC_MINISBLACK;
    uint16_t kinds[WF_RASTER_CHANNELS] = { 0 }; /* EXTRASAMPLE_UNSPECIFIED */
    bool ok = TIFFSetField(tif, TIFFTAG_IMAGEWIDTH, (uint32_t)info->width) &&
              TIFFSetField(tif, TIFFTAG_IMAGELENGTH, (uint32_t)info->height) &&
              TIFFSetField(tif, TIFFTAG_BITSPERSAMPLE, (int)(8 * wf_sample_size(info->sample))) &&
              TIFFSetField(tif, TIFFTAG_SAMPLESPERPIXEL, info->channels) &&
              TIFFSetField(tif, TIFFTAG_SAMPLEFORMAT,
                           real    ? SAMPLEFORMAT_IEEEFP
                           : minus ? SAMPLEFORMAT_INT
                                   : SAMPLEFORMAT_UINT) &&
              TIFFSetField(tif, TIFFTAG_PHOTOMETRIC, photometric) &&
              TIFFSetField(tif, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) &&
              TIFFSetField(tif, TIFFTAG_TILEWIDTH, (uint32_t)info->tile.at[WF_W]) &&
              TIFFSetField(tif, TIFFTAG_TILELENGTH, (uint32_t)info->tile.at[WF_H]) &&
              TIFFSetField(tif, TIFFTAG_COMPRESSION, COMPRESSION_ADOBE_DEFLATE) &&
              TIFFSetField(tif, TIFFTAG_SOFTWARE, "Widefield");
    if (ok && extra > 0)
        ok = TIFFSetField(tif, TIFFTAG_EXTRASAMPLES, extra, kinds);
    /* Neighbouring floats share their high bytes; class maps are better left alone. */
    if (ok && info->sample == WF_SAMPLE_F32)
        ok = TIFFSetField(tif, TIFFTAG_PREDICTOR, PREDICTOR_FLOATINGPOINT);
    return ok && (!info->colors || set_palette(t)) && set_place(t);
}

static void copy_place(struct tiff *t, const struct wf_raster_place *place)
{
    if (!place)
        return;
    t->place = *place;
    for (int i = 0; i < place->geo_count; i++) {
        const struct wf_raster_geo *geo = &place->geo[i];
        const size_t bytes = geo->count * (geo->type == WF_GEO_DOUBLE  ? 8u
                                           : geo->type == WF_GEO_SHORT ? 2u
                                                                       : 1u);
        t->place.geo[i].data = malloc(bytes + 1);
        WF_BUG_ON(!t->place.geo[i].data, "out of memory for georeferencing");
        memcpy(t->place.geo[i].data, geo->data, bytes);
        ((char *)t->place.geo[i].data)[bytes] = '\0'; /* ends a text */
    }
}

static bool start(struct tiff *t, bool big, struct wf_err *err)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options)
        return wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': no memory", t->writer->path);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, t);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, t);
    t->tif = TIFFClientOpenExt(t->writer->path, big ? "w8m" : "wm", t, on_read, on_write, on_seek,
                               on_close, on_size, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return (t->tif && set_page(t)) || failed(t, err);
}

static bool begin_tiff(struct wf_raster_writer *w, struct wf_err *err)
{
    struct wf_raster_info *info = &w->info;
    struct tiff *t = calloc(1, sizeof *t);
    WF_BUG_ON(!t, "out of memory for a writer");
    w->state = t;
    t->writer = w;
    t->file.fd = -1;
    memcpy(t->tag_name, "GeoTIFF", sizeof "GeoTIFF");
    copy_place(t, info->place);
    const int64_t th = info->tile.at[WF_H], tw = info->tile.at[WF_W];
    const bool fits = th > 0 && tw > 0 && th % 16 == 0 && tw % 16 == 0 && th <= 4096 && tw <= 4096;
    info->tile = WF_SHAPE(1, 1, fits ? th : TILE, fits ? tw : TILE, info->channels);
    if (info->colors && (info->sample != WF_SAMPLE_U8 || info->channels != 1))
        return wf_err_set(err, WF_ERR_USAGE,
                          "cannot write '%s': a palette needs one channel of u8, not %d of %s",
                          w->path, info->channels, wf_sample_name(info->sample));
    const size_t pixel = (size_t)info->channels * wf_sample_size(info->sample);
    t->tile = malloc((size_t)(info->tile.at[WF_H] * info->tile.at[WF_W]) * pixel);
    if (!t->tile)
        return wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': no memory", w->path);
    const double bytes =
        (double)info->depth * (double)info->height * (double)info->width * (double)pixel;
    return wf_outfile_begin(&t->file, w->path, err) && start(t, bytes > (double)CLASSIC, err);
}

/* The tile at (y, x) of a window's plane; past the image's edge it is zero. */
static bool write_tile(struct tiff *t, const struct wf_region *window, const unsigned char *plane,
                       int64_t y, int64_t x, struct wf_err *err)
{
    const struct wf_raster_info *info = &t->writer->info;
    const int64_t th = info->tile.at[WF_H], tw = info->tile.at[WF_W];
    const size_t pixel = (size_t)info->channels * wf_sample_size(info->sample);
    const size_t row = (size_t)wf_region_extent(*window, WF_W) * pixel;
    const int64_t rows = wf_min(th, window->hi[WF_H] - y),
                  columns = wf_min(tw, window->hi[WF_W] - x);
    if (rows < th || columns < tw)
        memset(t->tile, 0, (size_t)(th * tw) * pixel);
    for (int64_t i = 0; i < rows; i++)
        memcpy(t->tile + (size_t)(i * tw) * pixel,
               plane + (size_t)(y - window->lo[WF_H] + i) * row +
                   (size_t)(x - window->lo[WF_W]) * pixel,
               (size_t)columns * pixel);
    const uint32_t index = TIFFComputeTile(t->tif, (uint32_t)x, (uint32_t)y, 0, 0);
    const tmsize_t bytes = (tmsize_t)((size_t)(th * tw) * pixel);
    return TIFFWriteEncodedTile(t->tif, index, t->tile, bytes) == bytes || failed(t, err);
}

static bool write_tiff(struct wf_raster_writer *w, const struct wf_region *window, const void *src,
                       struct wf_err *err)
{
    struct tiff *t = w->state;
    const size_t plane =
        (size_t)(wf_region_extent(*window, WF_H) * wf_region_extent(*window, WF_W)) *
        (size_t)w->info.channels * wf_sample_size(w->info.sample);
    const unsigned char *at = src;
    for (int64_t d = window->lo[WF_D]; d < window->hi[WF_D]; d++, at += plane) {
        WF_BUG_ON(d < t->page || d > t->page + 1, "'%s': page %" PRId64 " after %" PRId64, w->path,
                  d, t->page);
        if (d > t->page && !(TIFFWriteDirectory(t->tif) && set_page(t)))
            return failed(t, err);
        t->page = d;
        for (int64_t y = window->lo[WF_H]; y < window->hi[WF_H]; y += w->info.tile.at[WF_H])
            for (int64_t x = window->lo[WF_W]; x < window->hi[WF_W]; x += w->info.tile.at[WF_W])
                if (!write_tile(t, window, at, y, x, err))
                    return false;
    }
    return true;
}

static bool end_tiff(struct wf_raster_writer *w, bool ok, struct wf_err *err)
{
    struct tiff *t = w->state;
    if (!t)
        return false;
    ok = ok && (TIFFWriteDirectory(t->tif) || failed(t, err));
    if (t->tif)
        TIFFClose(t->tif); /* everything is written: it has nothing left that could fail */
    ok = ok && (!t->reason || failed(t, err)) && wf_outfile_commit(&t->file, err);
    wf_outfile_drop(&t->file);
    for (int i = 0; i < t->place.geo_count; i++)
        free(t->place.geo[i].data);
    free(t->tile);
    free(t);
    return ok;
}

#else
static bool begin_tiff(struct wf_raster_writer *w, struct wf_err *err)
{
    return wf_raster_sink_lacks(w, "libtiff-dev", err);
}
static bool write_tiff(struct wf_raster_writer *w, const struct wf_region *window, const void *src,
                       struct wf_err *err)
{
    (void)window;
    (void)src;
    return wf_raster_sink_lacks(w, "libtiff-dev", err);
}
static bool end_tiff(struct wf_raster_writer *w, bool ok, struct wf_err *err)
{
    (void)w;
    (void)ok;
    (void)err;
    return false;
}
#endif

const struct wf_raster_sink wf_raster_tiff_sink = {
    .name = "TIFF", .begin = begin_tiff, .write = write_tiff, .end = end_tiff
};
