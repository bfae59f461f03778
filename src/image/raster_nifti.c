/*
 * NIfTI-1 and NIfTI-2 in one file, plain or packed by gzip. Read by hand: the header is 348 or 540
 * bytes of fixed places, while the library prints, reads whole volumes and checks little.
 *
 * x is W, y is H, z is D; time points and vector components, the slower axes, are channels.
 */
#include "image/raster_nifti.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "image/gunzip.h"

enum { HEADER_1 = WF_NIFTI_HEADER_1, HEADER_2 = WF_NIFTI_HEADER_2, DIMS = WF_NIFTI_DIMS };

struct nifti {
    struct wf_gunzip *packed; /* NULL: plain */
    bool swapped;
    int inner; /* samples of a pixel that lie together: 3 for RGB, otherwise 1 */
    uint64_t data;
    unsigned char *row;
};

/* The header's numbers, as both versions have them. */
struct header {
    int64_t dim[DIMS];
    int datatype;
    double offset, slope, inter;
    struct wf_raster_space space; /* all but its rank */
};

static int32_t i32_at(const unsigned char *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static bool probe(const unsigned char *head, size_t bytes)
{
    if (bytes >= 2 && head[0] == 0x1f && head[1] == 0x8b)
        return true;
    if (bytes >= 12 && (memcmp(head + 4, "n+2", 4) == 0 || memcmp(head + 4, "ni2", 4) == 0))
        return true;
    return bytes >= HEADER_1 &&
           (memcmp(head + 344, "n+1", 4) == 0 || memcmp(head + 344, "ni1", 4) == 0);
}

static bool read_bytes(struct wf_raster *r, uint64_t offset, void *dst, size_t bytes,
                       struct wf_err *err)
{
#ifdef WF_HAVE_ZLIB
    const struct nifti *n = r->state;
    if (n->packed)
        return wf_gunzip_read(n->packed, offset, dst, bytes, err);
#endif
    return wf_infile_read(&r->file, offset, dst, bytes, err);
}

/* A field of `size` bytes in this machine's order. */
static void take(const struct nifti *n, const unsigned char *at, void *dst, size_t size)
{
    memcpy(dst, at, size);
    if (n->swapped)
        wf_sample_swap(dst, 1, size);
}

static void take_floats(const struct nifti *n, const unsigned char *at, double *dst, int count)
{
    for (int i = 0; i < count; i++) {
        float f;
        take(n, at + 4 * i, &f, 4);
        dst[i] = (double)f;
    }
}

static void take_doubles(const struct nifti *n, const unsigned char *at, double *dst, int count)
{
    for (int i = 0; i < count; i++)
        take(n, at + 8 * i, &dst[i], 8);
}

static void take_header_1(const struct nifti *n, const unsigned char *at, struct header *h)
{
    struct wf_raster_space *const space = &h->space;
    int16_t small;
    for (int i = 0; i < DIMS; i++) {
        take(n, at + 40 + 2 * i, &small, 2);
        h->dim[i] = small;
    }
    take(n, at + 70, &small, 2);
    h->datatype = small;
    take_floats(n, at + 76, space->pixdim, DIMS);
    take_floats(n, at + 108, &h->offset, 1);
    take_floats(n, at + 112, &h->slope, 1);
    take_floats(n, at + 116, &h->inter, 1);
    space->units = at[123];
    take(n, at + 252, &small, 2);
    space->qform = small;
    take(n, at + 254, &small, 2);
    space->sform = small;
    take_floats(n, at + 256, space->quatern, 3);
    take_floats(n, at + 268, space->offset, 3);
    take_floats(n, at + 280, space->affine, 12);
}

static void take_header_2(const struct nifti *n, const unsigned char *at, struct header *h)
{
    struct wf_raster_space *const space = &h->space;
    int16_t small;
    int64_t offset;
    int32_t units, code;
    take(n, at + 12, &small, 2);
    h->datatype = small;
    for (int i = 0; i < DIMS; i++)
        take(n, at + 16 + 8 * i, &h->dim[i], 8);
    take_doubles(n, at + 104, space->pixdim, DIMS);
    take(n, at + 168, &offset, 8);
    h->offset = (double)offset;
    take_doubles(n, at + 176, &h->slope, 1);
    take_doubles(n, at + 184, &h->inter, 1);
    take(n, at + 344, &code, 4);
    space->qform = (int16_t)code;
    take(n, at + 348, &code, 4);
    space->sform = (int16_t)code;
    take_doubles(n, at + 352, space->quatern, 3);
    take_doubles(n, at + 376, space->offset, 3);
    take_doubles(n, at + 400, space->affine, 12);
    take(n, at + 500, &units, 4);
    space->units = units & 0xff;
}

static bool read_header(struct wf_raster *r, struct header *h, struct wf_err *err)
{
    struct nifti *n = r->state;
    unsigned char head[HEADER_2] = { 0 };
    if (!read_bytes(r, 0, head, HEADER_1, err))
        return false;
    const int32_t first = i32_at(head), turned = (int32_t)__builtin_bswap32((uint32_t)first);
    n->swapped = turned == HEADER_1 || turned == HEADER_2;
    const int32_t length = n->swapped ? turned : first;
    const bool two = length == HEADER_2;
    const char *magic = (const char *)head + (two ? 4 : 344);
    if (length == HEADER_1 || two) {
        if (memcmp(magic, two ? "ni2" : "ni1", 4) == 0)
            return wf_raster_refuse(r, err,
                                    "the header of a pair of files (.hdr and .img): "
                                    "convert it to one .nii file");
        if (memcmp(magic, two ? "n+2" : "n+1", 4) == 0) {
            if (two && !read_bytes(r, HEADER_1, head + HEADER_1, HEADER_2 - HEADER_1, err))
                return false;
            (two ? take_header_2 : take_header_1)(n, head, h);
            if (h->offset >= length + 4)
                return true;
            return wf_raster_refuse(r, err,
                                    "the pixels start at byte %.0f, inside the header: write "
                                    "the file again",
                                    h->offset);
        }
    }
    return wf_raster_refuse(r, err, "%s: convert it to .nii, TIFF or .npy",
                            n->packed ? "a packed file that holds no NIfTI volume"
                                      : "a damaged NIfTI header");
}

const struct wf_nifti_type wf_nifti_types[WF_NIFTI_TYPES] = {
    { 2, 1, WF_SAMPLE_U8 },     { 4, 1, WF_SAMPLE_I16 },   { 8, 1, WF_SAMPLE_I32 },
    { 16, 1, WF_SAMPLE_F32 },   { 64, 1, WF_SAMPLE_F64 },  { 256, 1, WF_SAMPLE_I8 },
    { 512, 1, WF_SAMPLE_U16 },  { 768, 1, WF_SAMPLE_U32 }, { 1024, 1, WF_SAMPLE_I64 },
    { 1280, 1, WF_SAMPLE_U64 }, { 128, 3, WF_SAMPLE_U8 },  { 2304, 4, WF_SAMPLE_U8 },
};

static bool take_type(struct wf_raster *r, int datatype, struct wf_err *err)
{
    for (int i = 0; i < WF_NIFTI_TYPES; i++)
        if (wf_nifti_types[i].code == datatype) {
            ((struct nifti *)r->state)->inner = wf_nifti_types[i].inner;
            r->info.sample = r->stored = wf_nifti_types[i].sample;
            return true;
        }
    return wf_raster_refuse(r, err,
                            "NIfTI data type %d is not read: save it as int16, float32 or "
                            "another plain number",
                            datatype);
}

static bool take_extents(struct wf_raster *r, const struct header *h, struct wf_err *err)
{
    const struct nifti *n = r->state;
    int64_t extent[DIMS] = { 0, 1, 1, 1, 1, 1, 1, 1 };
    if (h->dim[0] < 1 || h->dim[0] > 7)
        return wf_raster_refuse(r, err, "%" PRId64 " axes, NIfTI has 1 to 7: write the file again",
                                h->dim[0]);
    for (int i = 1; i <= h->dim[0]; i++) {
        if (h->dim[i] < 1 || h->dim[i] > INT32_MAX)
            return wf_raster_refuse(r, err, "axis %d has extent %" PRId64 ": write the file again",
                                    i, h->dim[i]);
        extent[i] = h->dim[i];
    }
    int64_t channels = n->inner;
    for (int i = 4; i < DIMS; i++)
        if (__builtin_mul_overflow(channels, extent[i], &channels) || channels > WF_RASTER_CHANNELS)
            return wf_raster_refuse(r, err,
                                    "more than %d time points and components: cut the volume",
                                    WF_RASTER_CHANNELS);
    if (n->inner > 1 && channels > n->inner)
        return wf_raster_refuse(r, err,
                                "colours and time points together: save one volume per time");
    r->info.width = extent[1];
    r->info.height = extent[2];
    r->info.depth = extent[3];
    r->info.channels = (int)channels;
    r->info.tile = WF_SHAPE(1, 1, 1, extent[1], n->inner);
    return true;
}

/* All pixels must be there, or at least could be where they are packed. */
static bool check_size(struct wf_raster *r, double offset, struct wf_err *err)
{
    struct nifti *n = r->state;
    const struct wf_raster_info *info = &r->info;
    const size_t size = wf_sample_size(r->stored);
    int64_t row, bytes;
    if (__builtin_mul_overflow(info->width, n->inner * (int64_t)size, &row) ||
        row > WF_RASTER_ROW_MAX)
        return wf_raster_refuse(r, err,
                                "rows of %" PRId64 " samples are too long: write it as a tiled "
                                "TIFF",
                                info->width);
    const double room = (double)r->file.size * (n->packed ? (double)WF_DEFLATE_RATIO : 1.0);
    if (__builtin_mul_overflow(row, info->height, &bytes) ||
        __builtin_mul_overflow(bytes, info->depth, &bytes) ||
        __builtin_mul_overflow(bytes, info->channels / n->inner, &bytes) ||
        !(offset + (double)bytes <= room))
        return wf_raster_refuse(
            r, err,
            "%" PRId64 " x %" PRId64 " x %" PRId64 " voxels with %d channels do not "
            "fit a file of %" PRIu64 " bytes: it is cut short, copy it again",
            info->width, info->height, info->depth, info->channels, r->file.size);
    n->data = (uint64_t)offset;
#ifdef WF_HAVE_ZLIB
    if (n->packed)
        wf_gunzip_expect(n->packed, n->data + (uint64_t)bytes);
#endif
    n->row = calloc(1, (size_t)row);
    return n->row || wf_raster_no_memory(r, err);
}

static bool take_scale(struct wf_raster *r, const struct header *h, struct wf_err *err)
{
    const struct nifti *n = r->state;
    if (n->inner > 1 || h->slope == 0 || !isfinite(h->slope) || (h->slope == 1 && h->inter == 0))
        return true;
    if (!isfinite(h->inter))
        return wf_raster_refuse(r, err,
                                "the header's scl_inter is not a number: write the file again");
    r->scaled = true;
    r->slope = h->slope;
    r->inter = h->inter;
    r->info.sample = WF_SAMPLE_F64;
    return true;
}

static void take_place(struct wf_raster *r, const struct header *h)
{
    struct wf_raster_place *const place = &r->place;
    place->space = h->space;
    place->space.rank = (int)h->dim[0];
    /* Voxel sizes in metres, millimetres or micrometres. */
    const double *const size = h->space.pixdim;
    const int unit = h->space.units & 7;
    const double per_cm = unit == 1 ? 1e-2 : unit == 2 ? 10 : unit == 3 ? 1e4 : 0;
    if (per_cm > 0 && size[1] > 0 && size[2] > 0 && isfinite(size[1]) && isfinite(size[2])) {
        place->x = per_cm / size[1];
        place->y = per_cm / size[2];
        place->unit = WF_UNIT_CM;
    }
}

static bool open_nifti(struct wf_raster *r, struct wf_err *err)
{
    struct nifti *n = calloc(1, sizeof *n);
    if (!n)
        return wf_raster_no_memory(r, err);
    r->state = n;
    unsigned char first[2];
    if (!wf_infile_read(&r->file, 0, first, 2, err))
        return false;
    if (first[0] == 0x1f && first[1] == 0x8b) {
#ifdef WF_HAVE_ZLIB
        n->packed = wf_gunzip_new(&r->file);
        r->info.gzipped = r->info.in_order = true;
#else
        return wf_raster_lacks(r, "zlib1g-dev", err);
#endif
    }
    struct header h = { 0 };
    if (!read_header(r, &h, err) || !take_type(r, h.datatype, err) || !take_extents(r, &h, err) ||
        !check_size(r, h.offset, err) || !take_scale(r, &h, err))
        return false;
    take_place(r, &h);
    return true;
}

/* Part [w0, w1) of one row of one channel, or of one row of pixels where colours lie together. */
static bool read_row(const struct wf_raster_job *job, int64_t c, int64_t d, int64_t h,
                     struct wf_err *err)
{
    struct wf_raster *r = job->raster;
    const struct nifti *n = r->state;
    const struct wf_raster_info *info = &r->info;
    const size_t size = wf_sample_size(r->stored);
    const int64_t from = job->lo[WF_RASTER_W], count = job->hi[WF_RASTER_W] - from;
    const uint64_t row = (uint64_t)((c / n->inner * info->depth + d) * info->height + h);
    const uint64_t pixel = row * (uint64_t)info->width + (uint64_t)from;
    const size_t samples = (size_t)count * (size_t)n->inner;
    if (!read_bytes(r, n->data + pixel * (uint64_t)n->inner * size, n->row, samples * size, err))
        return false;
    if (n->swapped)
        wf_sample_swap(n->row, samples, size);
    const struct wf_raster_block block = {
        .data = n->row,
        .lo = { d, h, from, c },
        .hi = { d + 1, h + 1, from + count, c + n->inner },
        .stride = { [WF_RASTER_W] = n->inner, [WF_RASTER_C] = 1 },
    };
    return wf_raster_put(job, &block, err);
}

static bool read_nifti(const struct wf_raster_job *job, struct wf_err *err)
{
    const struct nifti *n = job->raster->state;
    const int64_t first = job->lo[WF_RASTER_C] / n->inner * n->inner;
    for (int64_t c = first; c < job->hi[WF_RASTER_C]; c += n->inner)
        for (int64_t d = job->lo[WF_RASTER_D]; d < job->hi[WF_RASTER_D]; d++)
            for (int64_t h = job->lo[WF_RASTER_H]; h < job->hi[WF_RASTER_H]; h++)
                if (!read_row(job, c, d, h, err))
                    return false;
    return true;
}

/* A packed file ends with the number of bytes that were packed, if it is a single one and whole.
 * What does not, is unpacked. */
static bool check_nifti(struct wf_raster *r, struct wf_err *err)
{
    const struct nifti *n = r->state;
    if (!n->packed)
        return true; /* its size was compared with the header */
    const struct wf_raster_info *info = &r->info;
    const uint64_t bytes = n->data + (uint64_t)(info->width * info->height * info->depth) *
                                         (uint64_t)info->channels * wf_sample_size(r->stored);
    unsigned char last[4];
    if (r->file.size < sizeof last ||
        !wf_infile_read(&r->file, r->file.size - sizeof last, last, sizeof last, err))
        return false;
    uint32_t packed;
    memcpy(&packed, last, sizeof packed);
    return packed == (uint32_t)bytes || wf_raster_read_last(r, err);
}

static void close_nifti(struct wf_raster *r)
{
    struct nifti *n = r->state;
    if (!n)
        return;
#ifdef WF_HAVE_ZLIB
    wf_gunzip_free(n->packed);
#endif
    free(n->row);
    free(n);
}

const struct wf_raster_format wf_raster_nifti = {
    .name = "NIfTI",
    .probe = probe,
    .open = open_nifti,
    .read = read_nifti,
    .close = close_nifti,
    .check = check_nifti,
};
