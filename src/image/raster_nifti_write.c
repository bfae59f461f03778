/*
 * Writing NIfTI-1 in one file, plain or packed by gzip.
 *
 * Every voxel has its place from the start, so several writers share a plain file without telling each
 * other anything: packing a window writes it. What gzip packs must come in the file's order, and
 * windows do not (probabilities lie class after class): a .nii.gz is written plain under its partial
 * name, and packed from there by the one who made it when all is written. That takes the disk space of
 * the plain file for a while, and no memory.
 *
 * Numbers are in this machine's order, which the header shows to a reader by its first field.
 */
#include "image/raster_nifti.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef WF_HAVE_ZLIB
#include <zlib.h>

#include "base/memory.h"
#endif

/* The header is followed by four bytes that say there are no extensions. */
enum { DATA = WF_NIFTI_HEADER_1 + 4, CLASSES_AXIS = 4 };

struct out {
    struct wf_outfile file;
    int inner; /* channels that lie together */
};

static bool is_packed(const char *path)
{
    const size_t length = strlen(path);
    return length > 3 && strcasecmp(path + length - 3, ".gz") == 0;
}

/* --- the header --- */
static void put_small(unsigned char *at, int64_t value)
{
    const int16_t small = (int16_t)value;
    memcpy(at, &small, sizeof small);
}

static void put_floats(unsigned char *at, const double *values, int count)
{
    for (int i = 0; i < count; i++) {
        const float f = (float)values[i];
        memcpy(at + 4 * i, &f, sizeof f);
    }
}

/* What is known of an image that was no NIfTI file: the size of its pixels, in millimetres. */
static struct wf_raster_space make_space(const struct wf_raster_place *place)
{
    struct wf_raster_space space = { .pixdim = { 1, 1, 1, 1, 1, 1, 1, 1 } };
    if (place && place->space.rank)
        return place->space;
    if (!place || place->x <= 0 || place->y <= 0 || place->unit == WF_UNIT_NONE)
        return space;
    const double mm = place->unit == WF_UNIT_CM ? 10 : 25.4;
    space.pixdim[1] = mm / place->x;
    space.pixdim[2] = mm / place->y;
    space.units = 2;
    return space;
}

/* The axes that the source had, of those in space; more only where they are needed. */
static int count_axes(const struct wf_raster_info *info, int of_source, int64_t slow)
{
    if (slow > 1)
        return CLASSES_AXIS;
    const int needed = info->depth > 1 ? 3 : info->height > 1 ? 2 : 1;
    const int wished = of_source ? (int)wf_min(of_source, 3) : 2;
    return needed > wished ? needed : wished;
}

static bool write_header(struct wf_raster_writer *w, const struct wf_nifti_type *type,
                         struct wf_err *err)
{
    struct out *const n = w->state;
    const struct wf_raster_info *const info = &w->info;
    struct wf_raster_space space = make_space(info->place);
    const int64_t slow = info->channels / type->inner;
    const int64_t extents[] = { info->width, info->height, info->depth, slow, 1, 1, 1 };
    unsigned char head[DATA] = { 0 };
    const int32_t length = WF_NIFTI_HEADER_1;
    if (slow > 1)
        space.pixdim[CLASSES_AXIS] = 1; /* the source's was its time step */
    memcpy(head, &length, sizeof length);
    head[38] = 'r';
    put_small(head + 40, count_axes(info, space.rank, slow));
    for (int i = 1; i < WF_NIFTI_DIMS; i++)
        put_small(head + 40 + 2 * i, extents[i - 1]);
    put_small(head + 70, type->code);
    put_small(head + 72, 8 * type->inner * (int64_t)wf_sample_size(type->sample));
    put_floats(head + 76, space.pixdim, WF_NIFTI_DIMS);
    put_floats(head + 108, (double[]){ DATA, 1, 0 }, 3); /* vox_offset, scl_slope, scl_inter */
    head[123] = (unsigned char)space.units;
    put_small(head + 252, space.qform);
    put_small(head + 254, space.sform);
    put_floats(head + 256, space.quatern, 3);
    put_floats(head + 268, space.offset, 3);
    put_floats(head + 280, space.affine, 12);
    memcpy(head + 344, "n+1", 4);
    return wf_outfile_write_at(&n->file, 0, head, sizeof head, err);
}

/* --- beginning --- */
static const struct wf_nifti_type *find_type(const struct wf_raster_info *info)
{
    const bool colors =
        info->sample == WF_SAMPLE_U8 && (info->channels == 3 || info->channels == 4);
    for (int i = 0; i < WF_NIFTI_TYPES; i++)
        if (wf_nifti_types[i].sample == info->sample &&
            wf_nifti_types[i].inner == (colors ? info->channels : 1))
            return &wf_nifti_types[i];
    return NULL;
}

static bool begin_nifti(struct wf_raster_writer *w, struct wf_err *err)
{
    struct wf_raster_info *const info = &w->info;
    const struct wf_nifti_type *const type = find_type(info);
#ifndef WF_HAVE_ZLIB
    if (is_packed(w->path))
        return wf_raster_sink_lacks(w, "zlib1g-dev", err);
#endif
    if (!type)
        return wf_err_set(err, WF_ERR_USAGE,
                          "cannot write '%s': no %s in NIfTI: write f32, or a .tif file", w->path,
                          wf_sample_name(info->sample));
    if (info->depth > INT16_MAX || info->height > INT16_MAX || info->width > INT16_MAX)
        return wf_err_set(err, WF_ERR_USAGE,
                          "cannot write '%s': NIfTI-1 holds at most %d voxels on an axis, not "
                          "%" PRId64 " x %" PRId64 " x %" PRId64 ": write a .tif file",
                          w->path, INT16_MAX, info->depth, info->height, info->width);
    struct out *const n = wf_take_zeroed(1, sizeof *n);
    w->state = n;
    n->file.fd = -1;
    n->inner = type->inner;
    info->tile = WF_SHAPE(1, 1, 1, 1, info->channels);
    if (w->joins)
        return wf_outfile_join(&n->file, w->path, w->joins, err);
    return wf_outfile_begin(&n->file, w->path, err) && write_header(w, type, err);
}

static const char *partial_of(const struct wf_raster_writer *w)
{
    return ((const struct out *)w->state)->file.partial;
}

/* --- windows --- */
/* Rows of one plane of the window and one of the slow channels, dense, to where they belong. */
static bool write_plane(const struct wf_raster_writer *w, const struct wf_region *window, int64_t d,
                        int64_t slow, const unsigned char *rows, struct wf_err *err)
{
    struct out *const n = w->state;
    const struct wf_raster_info *const info = &w->info;
    const size_t pixel = (size_t)n->inner * wf_sample_size(info->sample);
    const int64_t height = wf_region_extent(*window, WF_H), width = wf_region_extent(*window, WF_W);
    const int64_t together = width == info->width ? height : 1;
    const size_t bytes = (size_t)(together * width) * pixel;
    for (int64_t h = window->lo[WF_H]; h < window->hi[WF_H]; h += together, rows += bytes) {
        const int64_t row = (slow * info->depth + d) * info->height + h;
        const uint64_t first = (uint64_t)(row * info->width + window->lo[WF_W]);
        if (!wf_outfile_write_at(&n->file, DATA + first * pixel, rows, bytes, err))
            return false;
    }
    return true;
}

/* Channel `slow` of a plane whose channels lie together. */
static void take_channel(const struct wf_raster_info *info, const unsigned char *plane,
                         int64_t pixels, int64_t slow, unsigned char *channel)
{
    const size_t size = wf_sample_size(info->sample);
    for (int64_t i = 0; i < pixels; i++)
        memcpy(channel + (size_t)i * size, plane + (size_t)(i * info->channels + slow) * size,
               size);
}

/* Nothing waits for a place: every voxel has its own. */
static bool pack_nifti(const struct wf_raster_writer *w, const struct wf_region *window,
                       const void *src, struct wf_raster_packed *, struct wf_err *err)
{
    const struct out *const n = w->state;
    const int64_t pixels = wf_region_extent(*window, WF_H) * wf_region_extent(*window, WF_W);
    const int64_t channels = w->info.channels / n->inner;
    const size_t size = wf_sample_size(w->info.sample);
    const size_t plane = (size_t)(pixels * w->info.channels) * size;
    unsigned char *const channel = channels > 1 ? malloc((size_t)pixels * size) : NULL;
    const unsigned char *at = src;
    bool ok = channels == 1 || channel ||
              wf_err_set(err, WF_ERR_FIT, "cannot write '%s': no memory", w->path);
    for (int64_t d = window->lo[WF_D]; d < window->hi[WF_D]; d++, at += plane)
        for (int64_t c = 0; ok && c < channels; c++) {
            if (channel)
                take_channel(&w->info, at, pixels, c, channel);
            ok = write_plane(w, window, d, c, channel ? channel : at, err);
        }
    free(channel);
    return ok;
}

static bool place_nifti(struct wf_raster_writer *w, const struct wf_raster_packed *packed, uint64_t,
                        struct wf_err *)
{
    WF_BUG_ON(packed->bytes.size, "'%s': %zu bytes wait, NIfTI has none", w->path,
              packed->bytes.size);
    return true;
}

static int64_t *table_of(struct wf_raster_writer *w, size_t *count)
{
    *count = 1;
    return &w->came;
}

/* --- ending --- */
#ifdef WF_HAVE_ZLIB
enum { PIECE = 1 << 16 };

struct packing {
    struct wf_infile plain;
    struct wf_outfile file;
    z_stream z;
    unsigned char in[PIECE], out[PIECE];
};

/* Packs what lies at z.next_in and writes what came of it. */
static bool pack_piece(struct packing *p, int flush, struct wf_err *err)
{
    do {
        p->z.next_out = p->out;
        p->z.avail_out = PIECE;
        const int got = deflate(&p->z, flush);
        WF_BUG_ON(got == Z_STREAM_ERROR, "zlib says %d", got);
        if (!wf_outfile_write(&p->file, p->out, PIECE - p->z.avail_out, err))
            return false;
    } while (p->z.avail_out == 0);
    return true;
}

static bool pack_all(struct packing *p, struct wf_err *err)
{
    uint64_t at = 0;
    while (at < p->plain.size) {
        const uint64_t left = p->plain.size - at;
        const size_t now = left < PIECE ? (size_t)left : PIECE;
        if (!wf_infile_read(&p->plain, at, p->in, now, err))
            return false;
        at += now;
        p->z.next_in = p->in;
        p->z.avail_in = (uInt)now;
        if (!pack_piece(p, at == p->plain.size ? Z_FINISH : Z_NO_FLUSH, err))
            return false;
    }
    return true;
}

/* The plain file is complete under its partial name; the packed one takes the final name. */
static bool commit_packed(struct wf_raster_writer *w, struct wf_err *err)
{
    enum { GZIP = 15 + 16, MEMORY = 8 };
    /* Trying harder makes floats hardly smaller, and takes several times as long. */
    const int level = wf_sample_is_whole(w->info.sample) ? 6 : 1;
    const struct out *const n = w->state;
    struct packing *const p = wf_take_zeroed(1, sizeof *p);
    p->file.fd = -1;
    if (!wf_infile_open(&p->plain, n->file.partial, err)) {
        free(p);
        return false;
    }
    bool ok = wf_outfile_begin(&p->file, w->path, err);
    if (ok && deflateInit2(&p->z, level, Z_DEFLATED, GZIP, MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
        ok = wf_err_set(err, WF_ERR_FIT, "cannot write '%s': no memory to pack it", w->path);
    ok = ok && pack_all(p, err) && wf_outfile_commit(&p->file, err);
    (void)deflateEnd(&p->z); /* says only that it was not begun, or not finished */
    wf_outfile_drop(&p->file);
    wf_infile_close(&p->plain);
    free(p);
    return ok;
}
#else
static bool commit_packed(struct wf_raster_writer *w, struct wf_err *err)
{
    return wf_raster_sink_lacks(w, "zlib1g-dev", err);
}
#endif

static bool end_nifti(struct wf_raster_writer *w, bool ok, struct wf_err *err)
{
    struct out *const n = w->state;
    if (!n)
        return false;
    if (w->joins)
        ok = ok && wf_outfile_sync(&n->file, err);
    else if (is_packed(w->path))
        ok = ok && commit_packed(w, err);
    else
        ok = ok && wf_outfile_commit(&n->file, err);
    wf_outfile_drop(&n->file);
    free(n);
    return ok;
}

const struct wf_raster_sink wf_raster_nifti_sink = { .name = "NIfTI",
                                                     .begin = begin_nifti,
                                                     .end = end_nifti,
                                                     .partial = partial_of,
                                                     .pack = pack_nifti,
                                                     .place = place_nifti,
                                                     .table = table_of };
