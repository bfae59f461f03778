/* Writing PNG row by row: 8 or 16 bits, grey, grey and alpha, RGB, RGBA, or indices with a palette. */
#include <inttypes.h>
#include <stdlib.h>

#include "image/raster_format.h"

#ifdef WF_HAVE_PNG
#include <png.h>

#include "base/memory.h"

struct png {
    struct wf_guard guard;
    struct wf_raster_writer *writer;
    struct wf_outfile file;
    struct wf_err why; /* the write that failed inside libpng */
    png_structp png;
    png_infop info;
    const unsigned char *src;
    int64_t rows;
};

static void on_error(png_structp png, png_const_charp message)
{
    wf_guard_leave(png_get_error_ptr(png), message);
}

static void on_warning(png_structp, png_const_charp)
{
}

static void on_write(png_structp png, png_bytep data, size_t bytes)
{
    struct png *p = png_get_io_ptr(png);
    if (!wf_outfile_write(&p->file, data, bytes, &p->why))
        png_error(png, "cannot write");
}

static void on_flush(png_structp)
{
}

static bool failed(const struct png *p, struct wf_err *err)
{
    return p->why.code ? wf_err_set(err, p->why.code, "%s", p->why.text)
                       : wf_err_set(err, WF_ERR_FAILED, "cannot write '%s': %s", p->writer->path,
                                    p->guard.message);
}

static void write_place(const struct png *p)
{
    const struct wf_raster_place *place = p->writer->info.place;
    if (!place || place->x <= 0 || place->y <= 0)
        return;
    const double per_metre = place->unit == WF_UNIT_CM     ? 100
                             : place->unit == WF_UNIT_INCH ? 100 / 2.54
                                                           : 1;
    const double x = place->x * per_metre + 0.5, y = place->y * per_metre + 0.5;
    if (x < INT32_MAX && y < INT32_MAX)
        png_set_pHYs(p->png, p->info, (png_uint_32)x, (png_uint_32)y,
                     place->unit == WF_UNIT_NONE ? PNG_RESOLUTION_UNKNOWN : PNG_RESOLUTION_METER);
}

static void start(void *arg)
{
    const struct png *p = arg;
    const struct wf_raster_info *info = &p->writer->info;
    static const int kinds[] = { 0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                 PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA };
    png_set_write_fn(p->png, arg, on_write, on_flush);
    png_set_user_limits(p->png, INT32_MAX, INT32_MAX);
    png_set_IHDR(p->png, p->info, (png_uint_32)info->width, (png_uint_32)info->height,
                 8 * (int)wf_sample_size(info->sample),
                 info->colors ? PNG_COLOR_TYPE_PALETTE : kinds[info->channels], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_color colors[WF_RASTER_COLORS];
    for (int i = 0; i < info->colors; i++)
        colors[i] = (png_color){ info->palette[i][0], info->palette[i][1], info->palette[i][2] };
    if (info->colors)
        png_set_PLTE(p->png, p->info, colors, info->colors);
    write_place(p);
    png_write_info(p->png, p->info);
    if (info->sample == WF_SAMPLE_U16)
        png_set_swap(p->png);
}

static bool begin_png(struct wf_raster_writer *w, struct wf_err *err)
{
    const struct wf_raster_info *info = &w->info;
    if (info->depth != 1 || info->channels > 4 ||
        (info->sample != WF_SAMPLE_U8 && info->sample != WF_SAMPLE_U16) ||
        (info->colors && (info->sample != WF_SAMPLE_U8 || info->channels != 1)))
        return wf_err_set(
            err, WF_ERR_USAGE,
            "cannot write '%s': PNG holds one plane of 1 to 4 channels of u8 or u16, not "
            "%" PRId64 " of %d channels of %s%s: write a .tif file",
            w->path, info->depth, info->channels, wf_sample_name(info->sample),
            info->colors ? " with a palette" : "");
    struct png *p = wf_take_zeroed(1, sizeof *p);
    w->state = p;
    w->by_rows = true;
    w->info.tile = WF_SHAPE(1, 1, 1, info->width, info->channels);
    p->writer = w;
    p->file.fd = -1;
    if (!wf_outfile_begin(&p->file, w->path, err))
        return false;
    p->file.synced_later = info->synced_later;
    p->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &p->guard, on_error, on_warning);
    p->info = p->png ? png_create_info_struct(p->png) : NULL;
    if (!p->info)
        return wf_err_set(err, WF_ERR_FIT, "cannot write '%s': no memory", w->path);
    return wf_guarded(&p->guard, start, p) || failed(p, err);
}

static void write_rows(void *arg)
{
    struct png *p = arg;
    const struct wf_raster_info *info = &p->writer->info;
    const size_t bytes =
        (size_t)info->width * (size_t)info->channels * wf_sample_size(info->sample);
    for (; p->rows; p->rows--, p->src += bytes)
        png_write_row(p->png, p->src);
}

static bool write_png(struct wf_raster_writer *w, const struct wf_region *window, const void *src,
                      struct wf_err *err)
{
    struct png *p = w->state;
    p->src = src;
    p->rows = wf_region_extent(*window, WF_H);
    for (int64_t i = 0; w->info.colors && i < p->rows * w->info.width; i++)
        if (p->src[i] >= w->info.colors)
            return wf_err_set(
                err, WF_ERR_FAILED,
                "cannot write '%s': index %d, the palette has %d colours: give it more", w->path,
                p->src[i], w->info.colors);
    return wf_guarded(&p->guard, write_rows, p) || failed(p, err);
}

static void finish(void *arg)
{
    const struct png *p = arg;
    png_write_end(p->png, NULL);
}

static bool end_png(struct wf_raster_writer *w, bool ok, struct wf_err *err)
{
    struct png *p = w->state;
    if (!p)
        return false;
    ok = ok && (wf_guarded(&p->guard, finish, p) || failed(p, err)) &&
         wf_outfile_commit(&p->file, err);
    if (p->png)
        png_destroy_write_struct(&p->png, &p->info);
    wf_outfile_drop(&p->file);
    free(p);
    return ok;
}

#endif

const struct wf_raster_sink wf_raster_png_sink = {
    .name = "PNG",
#ifdef WF_HAVE_PNG
    .begin = begin_png,
    .write = write_png,
    .end = end_png,
#else
    .lacks = "libpng-dev",
#endif
};
