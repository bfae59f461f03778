#include "train/mosaic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/color.h"

enum kind { CLASSES, VALUES, OVERLAY, KINDS = WF_MOSAIC_FILES };

/* One file. By rows: [first, end), counted over all planes, lie in `rows` and are not written yet. */
struct sink {
    struct wf_raster_writer *writer; /* NULL: not wanted, or not written by this rank */
    bool shared;                     /* tiled or NIfTI: all ranks write */
    size_t pixel;                    /* bytes */
    int64_t granule;                 /* rows that must be written together */
    unsigned char *rows;
    int64_t first, end;
};

struct wf_mosaic {
    struct wf_mosaic_options options;
    struct wf_comm *comm;
    struct sink sinks[KINDS];
    int64_t room;         /* rows of a band */
    int64_t first, end;   /* rows of the band that is being put together */
    int64_t came;         /* pixels of it */
    uint8_t (*colors)[3]; /* per label, up to 256; then again from the first */
};

static const char *path_of(const struct wf_mosaic_options *o, int kind)
{
    return kind == CLASSES ? o->classes : kind == VALUES ? o->values : o->overlay;
}

static size_t pixel_bytes(const struct wf_mosaic_options *o, int kind)
{
    if (kind == VALUES)
        return (size_t)o->shape.at[WF_C] * sizeof(float);
    return kind == OVERLAY ? 3 : o->labels + o->has_void > WF_RASTER_COLORS ? 2 : 1;
}

static bool is_shared(const struct wf_mosaic_options *o, int kind)
{
    return path_of(o, kind) && wf_raster_shares(path_of(o, kind));
}

size_t wf_mosaic_label_bytes(const struct wf_mosaic_options *o)
{
    return pixel_bytes(o, CLASSES);
}

size_t wf_mosaic_band_bytes(const struct wf_mosaic_options *o)
{
    size_t bytes = 0;
    for (int k = 0; k < KINDS; k++)
        bytes += path_of(o, k) && !is_shared(o, k) ? pixel_bytes(o, k) : 0;
    return bytes;
}

/* All of them packed, which may not make them smaller, and an overlay before that. */
size_t wf_mosaic_pack_bytes(const struct wf_mosaic_options *o)
{
    size_t sum = 0;
    for (int k = 0; k < KINDS; k++)
        sum += (is_shared(o, k) ? pixel_bytes(o, k) : 0) * (k == OVERLAY ? 2 : 1);
    return sum;
}

bool wf_mosaic_wants_labels(const struct wf_mosaic *m)
{
    const struct wf_mosaic_options *const o = &m->options;
    return (o->classes && !is_shared(o, CLASSES)) || (o->overlay && !is_shared(o, OVERLAY));
}

bool wf_mosaic_wants_values(const struct wf_mosaic *m)
{
    return m->options.values && !is_shared(&m->options, VALUES);
}

/* --- opening --- */

static struct wf_raster_info describe(const struct wf_mosaic *m, int kind)
{
    const struct wf_mosaic_options *const o = &m->options;
    const struct wf_raster_info *const from = o->picture ? wf_picture_info(o->picture) : NULL;
    const bool same = from && from->depth == o->shape.at[WF_D] &&
                      from->height == o->shape.at[WF_H] && from->width == o->shape.at[WF_W];
    struct wf_raster_info info = { .depth = o->shape.at[WF_D],
                                   .height = o->shape.at[WF_H],
                                   .width = o->shape.at[WF_W],
                                   .channels = kind == CLASSES  ? 1
                                               : kind == VALUES ? (int)o->shape.at[WF_C]
                                                                : 3,
                                   .place = same ? from->place : NULL };
    info.tile.at[WF_H] = o->tile[WF_H];
    info.tile.at[WF_W] = o->tile[WF_W];
    const size_t pixel = pixel_bytes(o, kind);
    info.sample = kind == VALUES                  ? WF_SAMPLE_F32
                  : kind == CLASSES && pixel == 2 ? WF_SAMPLE_U16
                                                  : WF_SAMPLE_U8;
    info.has_nodata = o->has_void && kind != OVERLAY;
    info.nodata = kind == VALUES ? NAN : pixel == 2 ? UINT16_MAX : UINT8_MAX;
    if (kind == CLASSES && pixel == 1) {
        info.colors = WF_RASTER_COLORS;
        memcpy(info.palette, m->colors, sizeof info.palette);
    }
    return info;
}

/* Rank 0: makes the file, and room for a band of its rows. */
static bool begin_sink(struct wf_mosaic *m, int kind, struct wf_err *err)
{
    const struct wf_mosaic_options *const o = &m->options;
    struct sink *const s = &m->sinks[kind];
    const struct wf_raster_info info = describe(m, kind);
    s->writer = wf_raster_create(path_of(o, kind), &info, err);
    if (!s->writer || s->shared)
        return s->writer;
    s->granule = o->shape.at[WF_D] > 1 ? 1 : wf_raster_writer_tile(s->writer).at[WF_H];
    const int64_t rows = m->room + s->granule - 1;
    s->rows = malloc((size_t)(rows * o->shape.at[WF_W]) * s->pixel);
    return s->rows || wf_err_set(err, WF_ERR_FIT, "no memory for %lld rows of '%s'",
                                 (long long)rows, path_of(o, kind));
}

/* Collective. */
static bool open_sink(struct wf_mosaic *m, int kind, struct wf_err *err)
{
    enum { NAME = 4200 };
    struct sink *const s = &m->sinks[kind];
    const char *const path = path_of(&m->options, kind);
    const bool first = wf_comm_rank(m->comm) == 0;
    if (!path)
        return true;
    s->pixel = pixel_bytes(&m->options, kind);
    s->shared = is_shared(&m->options, kind);
    bool ok = !first || begin_sink(m, kind, err);
    char partial[NAME] = "";
    if (first && ok && s->shared) {
        const char *const name = wf_raster_writer_partial(s->writer);
        ok = strlen(name) < NAME ||
             wf_err_set(err, WF_ERR_USAGE, "'%s': the name is too long: give a shorter one", path);
        (void)snprintf(partial, NAME, "%s", ok ? name : "");
    }
    if (!wf_comm_agree(m->comm, ok, err))
        return false;
    if (!s->shared)
        return true;
    ok = wf_comm_broadcast(m->comm, 0, partial, NAME, err);
    if (ok && !first) {
        const struct wf_raster_info info = describe(m, kind);
        s->writer = wf_raster_join(path, partial, &info, err);
        ok = s->writer;
    }
    return wf_comm_agree(m->comm, ok, err);
}

static void discard(struct wf_mosaic *m)
{
    for (int k = 0; k < KINDS; k++) {
        struct wf_err ignored = { 0 };
        if (m->sinks[k].writer)
            (void)wf_raster_writer_close(m->sinks[k].writer, false, &ignored);
        free(m->sinks[k].rows);
    }
    free(m->colors);
    free(m);
}

struct wf_mosaic *wf_mosaic_new(const struct wf_mosaic_options *options, struct wf_comm *comm,
                                struct wf_err *err)
{
    struct wf_mosaic *const m = wf_take_zeroed(1, sizeof *m);
    m->options = *options;
    m->comm = comm;
    m->room = options->shape.at[WF_D] > 1 ? options->band[WF_D] * options->shape.at[WF_H]
                                          : options->band[WF_H];
    m->colors = wf_take_zeroed(WF_RASTER_COLORS, sizeof *m->colors);
    for (int i = 0; i < WF_RASTER_COLORS; i++)
        wf_class_color(i, m->colors[i]);
    bool ok = true;
    for (int k = 0; ok && k < KINDS; k++)
        ok = open_sink(m, k, err);
    if (ok)
        return m;
    discard(m);
    return NULL;
}

/* --- closing --- */

static bool close_sink(struct sink *s, bool ok, struct wf_err *err)
{
    if (s->writer)
        ok = wf_raster_writer_close(s->writer, ok, err);
    s->writer = NULL;
    return ok;
}

/* Collective. The tables of all ranks together are the file's. */
static bool join_tables(struct wf_mosaic *m, struct wf_err *err)
{
    for (int k = 0; k < KINDS; k++) {
        if (!m->sinks[k].shared)
            continue;
        size_t count;
        int64_t *const table = wf_raster_writer_table(m->sinks[k].writer, &count);
        if (!wf_comm_sum(m->comm, table, count, WF_I64, err))
            return false;
    }
    return true;
}

bool wf_mosaic_close(struct wf_mosaic *m, bool ok, struct wf_err *err)
{
    ok = wf_comm_agree(m->comm, ok, err) && join_tables(m, err);
    /* What the others wrote is on the disk before the file has its name. */
    if (ok && wf_comm_rank(m->comm) != 0)
        for (int k = 0; k < KINDS; k++)
            ok = close_sink(&m->sinks[k], ok, err) && ok;
    ok = wf_comm_agree(m->comm, ok, err);
    for (int k = 0; ok && k < KINDS; k++)
        ok = close_sink(&m->sinks[k], ok, err);
    ok = wf_comm_agree(m->comm, ok, err);
    discard(m);
    return ok;
}

/* --- bands --- */

static int64_t rows_of(const struct wf_mosaic *m)
{
    return m->options.shape.at[WF_D] * m->options.shape.at[WF_H];
}

/* Writes what is complete: whole planes, or rows up to the last whole tile. */
static bool flush(struct wf_mosaic *m, struct sink *s, struct wf_err *err)
{
    const struct wf_shape *const shape = &m->options.shape;
    const size_t row = (size_t)shape->at[WF_W] * s->pixel;
    const int64_t end = s->end == rows_of(m) ? s->end : s->end / s->granule * s->granule;
    if (end == s->first)
        return true;
    struct wf_region r = { .hi = { 1, 1, end, shape->at[WF_W], 1 } };
    r.lo[WF_H] = s->first;
    if (shape->at[WF_D] > 1) {
        r.lo[WF_D] = s->first / shape->at[WF_H];
        r.hi[WF_D] = end / shape->at[WF_H];
        r.lo[WF_H] = 0;
        r.hi[WF_H] = shape->at[WF_H];
    }
    if (!wf_raster_write_window(s->writer, &r, s->rows, err))
        return false;
    memmove(s->rows, s->rows + (size_t)(end - s->first) * row, (size_t)(s->end - end) * row);
    s->first = end;
    return true;
}

static bool by_rows(const struct sink *s)
{
    return s->writer && !s->shared;
}

static void turn_to_band(struct wf_mosaic *m, const struct wf_region *window)
{
    const int64_t height = m->options.shape.at[WF_H];
    const bool planes = m->options.shape.at[WF_D] > 1;
    if (m->came)
        return;
    m->first = planes ? window->lo[WF_D] * height : window->lo[WF_H];
    m->end = planes ? window->hi[WF_D] * height : window->hi[WF_H];
    for (int k = 0; k < KINDS; k++) {
        struct sink *const s = &m->sinks[k];
        WF_BUG_ON(by_rows(s) && (s->end != m->first || m->end - m->first > m->room),
                  "a band from row %lld, expected %lld", (long long)m->first, (long long)s->end);
        s->end = m->end;
    }
}

/* The first pixel of the window's row (d, h) in the sink's buffer. */
static unsigned char *place(const struct wf_mosaic *m, const struct sink *s,
                            const struct wf_region *window, int64_t d, int64_t h)
{
    const int64_t row = d * m->options.shape.at[WF_H] + h - s->first;
    return s->rows + (size_t)(row * m->options.shape.at[WF_W] + window->lo[WF_W]) * s->pixel;
}

/* --- what is shown --- */

/* A channel of the picture as 0 ... 255: as it is where the file has bytes, otherwise two deviations
 * to either side of the mean. */
static double shown(const struct wf_mosaic *m, float value, int64_t channel)
{
    double v = (double)value;
    if (wf_picture_info(m->options.picture)->sample != WF_SAMPLE_U8 && m->options.mean)
        v = 127.5 + 63.75 * (v - m->options.mean[channel]) / m->options.deviation[channel];
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

static uint16_t label_at(const struct wf_mosaic *m, const void *labels, int64_t i)
{
    return wf_mosaic_label_bytes(&m->options) == 1 ? ((const uint8_t *)labels)[i]
                                                   : ((const uint16_t *)labels)[i];
}

static void blend(const struct wf_mosaic *m, const float *source, const void *labels, int64_t first,
                  int64_t count, unsigned char *dst)
{
    const int64_t channels = wf_picture_shape(m->options.picture).at[WF_C];
    const uint16_t nothing = wf_mosaic_label_bytes(&m->options) == 1 ? UINT8_MAX : UINT16_MAX;
    const double cover = 0.45;
    for (int64_t i = first; i < first + count; i++)
        for (int c = 0; c < 3; c++) {
            const int64_t from = channels >= 3 ? c : 0;
            const float value = source[i * channels + from];
            const uint16_t label = label_at(m, labels, i);
            const double under = isnan(value) ? 0 : shown(m, value, from);
            const double over = m->colors[label % WF_RASTER_COLORS][c];
            const bool covers = label != 0 && !(m->options.has_void && label == nothing);
            const double v = covers ? (1 - cover) * under + cover * over : under;
            *dst++ = (unsigned char)(v + 0.5);
        }
}

/* --- putting --- */

/* The file's pixels over the part, if they are as in memory; an overlay's are not. */
static const void *pixels_of(const struct wf_mosaic_part *part, int kind)
{
    return kind == CLASSES ? part->labels : kind == VALUES ? (const void *)part->values : NULL;
}

static void check_part(const struct wf_mosaic *m, bool shared, const struct wf_mosaic_part *part)
{
    for (int k = 0; k < KINDS; k++)
        WF_BUG_ON(m->sinks[k].writer && m->sinks[k].shared == shared &&
                      (k == OVERLAY ? !part->labels || !part->source : !pixels_of(part, k)),
                  "a window without what its files hold");
}

static int64_t count_pixels(const struct wf_region *box)
{
    return wf_region_extent(*box, WF_D) * wf_region_extent(*box, WF_H) *
           wf_region_extent(*box, WF_W);
}

void wf_mosaic_packed_release(struct wf_mosaic_packed *packed)
{
    for (int k = 0; k < KINDS; k++)
        wf_raster_packed_release(&packed->files[k]);
}

bool wf_mosaic_pack(const struct wf_mosaic *m, const struct wf_mosaic_part *part,
                    struct wf_mosaic_packed *packed, struct wf_err *err)
{
    const int64_t pixels = count_pixels(&part->box);
    bool ok = true;
    check_part(m, true, part);
    for (int k = 0; ok && k < KINDS; k++) {
        const struct sink *const s = &m->sinks[k];
        if (!s->shared)
            continue;
        unsigned char *const over = k == OVERLAY ? malloc((size_t)pixels * s->pixel) : NULL;
        if (k == OVERLAY && !over)
            return wf_err_set(err, WF_ERR_FIT, "no memory for an overlay");
        if (over)
            blend(m, part->source, part->labels, 0, pixels, over);
        ok = wf_raster_pack_window(s->writer, &part->box, over ? over : pixels_of(part, k),
                                   &packed->files[k], err);
        free(over);
    }
    return ok;
}

/* Collective. The round's bytes of a file, over all ranks and over those before this one. */
static bool sum_packed(const struct wf_mosaic *m, int n, const struct wf_mosaic_packed packed[],
                       uint64_t before[KINDS], uint64_t all[KINDS], struct wf_err *err)
{
    const int rank = wf_comm_rank(m->comm), size = wf_comm_size(m->comm);
    const size_t count = (size_t)size * KINDS;
    int64_t *const bytes = wf_take_zeroed(count, sizeof *bytes); /* per file and rank */
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < n; i++)
            bytes[k * size + rank] += (int64_t)packed[i].files[k].bytes.size;
    const bool ok = wf_comm_sum(m->comm, bytes, count, WF_I64, err);
    for (int k = 0; k < KINDS; k++)
        for (int r = 0; r < size; r++) {
            before[k] += r < rank ? (uint64_t)bytes[k * size + r] : 0;
            all[k] += (uint64_t)bytes[k * size + r];
        }
    free(bytes);
    return ok;
}

bool wf_mosaic_settle(struct wf_mosaic *m, int n, struct wf_mosaic_packed packed[],
                      struct wf_err *err)
{
    uint64_t before[KINDS] = { 0 }, all[KINDS] = { 0 };
    bool ok = sum_packed(m, n, packed, before, all, err);
    struct wf_raster_packed **const parts = wf_take_zeroed((size_t)n + 1, sizeof *parts);
    for (int k = 0; ok && k < KINDS; k++) {
        for (int i = 0; i < n; i++)
            parts[i] = &packed[i].files[k];
        if (m->sinks[k].shared)
            ok = wf_raster_place_packed(m->sinks[k].writer, n, parts, before[k], all[k], err);
    }
    free(parts);
    return ok;
}

static void put_rows(const struct wf_mosaic *m, int kind, const struct wf_mosaic_part *part)
{
    const struct sink *const s = &m->sinks[kind];
    const struct wf_region *const box = &part->box;
    const char *const from = pixels_of(part, kind);
    const int64_t width = wf_region_extent(*box, WF_W);
    int64_t at = 0;
    for (int64_t d = box->lo[WF_D]; d < box->hi[WF_D]; d++)
        for (int64_t h = box->lo[WF_H]; h < box->hi[WF_H]; h++, at += width) {
            unsigned char *const to = place(m, s, box, d, h);
            if (kind == OVERLAY)
                blend(m, part->source, part->labels, at, width, to);
            else
                memcpy(to, from + (size_t)at * s->pixel, (size_t)width * s->pixel);
        }
}

bool wf_mosaic_put(struct wf_mosaic *m, const struct wf_mosaic_part *part, struct wf_err *err)
{
    turn_to_band(m, &part->box);
    check_part(m, false, part);
    for (int k = 0; k < KINDS; k++)
        if (by_rows(&m->sinks[k]))
            put_rows(m, k, part);
    m->came += count_pixels(&part->box);
    if (m->came < (m->end - m->first) * m->options.shape.at[WF_W])
        return true;
    m->came = 0;
    for (int k = 0; k < KINDS; k++)
        if (by_rows(&m->sinks[k]) && !flush(m, &m->sinks[k], err))
            return false;
    return true;
}
