/* Datasets of HDF5 files: "file.h5:/path/to/data"; where a file holds one dataset only, it need not
 * be named. image/hdf5.h knows the format. Chunks are decoded where a window touches them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "image/hdf5.h"
#include "image/raster_format.h"

struct hdf5 {
    struct wf_h5_dataset set;
    int axes[WF_H5_RANK];          /* of the raster, for each of the array's */
    int64_t chunk[WF_RASTER_AXES]; /* extents on the raster's axes */
    unsigned char *values;         /* a chunk's, or a row's */
    size_t room;
    uint64_t unpacked; /* bytes, for the window that is being read */
};

static bool probe(const unsigned char *head, size_t bytes)
{
    static const size_t places[] = { 0, 512, 1024, 2048 };
    for (int i = 0; i < 4; i++)
        if (bytes >= places[i] + 8 && memcmp(head + places[i], "\x89HDF\r\n\x1a\n", 8) == 0)
            return true;
    return false;
}

static bool check_storage(struct wf_raster *r, struct hdf5 *f, struct wf_err *err)
{
    const size_t size = wf_sample_size(r->stored);
    uint64_t bytes = size;
    const bool chunked = f->set.layout == WF_H5_CHUNKED;
    for (int i = 0; i < f->set.rank; i++) {
        const int64_t extent = chunked ? f->set.chunk[i] : f->set.shape[i];
        f->chunk[f->axes[i]] = extent;
        if (__builtin_mul_overflow(bytes, (uint64_t)extent, &bytes))
            return wf_h5_damaged(&r->file, "a shape that overflows", err);
    }
    if (chunked && bytes > WF_RASTER_BLOCK_MAX)
        return wf_raster_refuse(r, err,
                                "chunks of %" PRIu64
                                " bytes are too large: write it again with smaller "
                                "ones ('h5repack -l CHUNK=256x256')",
                                bytes);
    if (!chunked && f->set.filter_count)
        return wf_h5_damaged(&r->file, "filters without chunks", err);
    if (!chunked && f->set.written &&
        (bytes > f->set.bytes || bytes > r->file.size - f->set.address))
        return wf_raster_refuse(r, err,
                                "the dataset takes %" PRIu64 " bytes, the file has %" PRIu64
                                " for it: it is cut short, copy it again",
                                bytes, r->file.size - f->set.address);
    r->info.tile = chunked ? WF_SHAPE(1, f->chunk[0], f->chunk[1], f->chunk[2], f->chunk[3])
                           : WF_SHAPE(1, 1, 1, r->info.width, r->info.channels);
    return true;
}

static bool open_hdf5(struct wf_raster *r, struct wf_err *err)
{
    struct hdf5 *f = calloc(1, sizeof *f);
    if (!f)
        return wf_raster_no_memory(r, err);
    r->state = f;
    for (int i = 0; i < WF_RASTER_AXES; i++)
        f->chunk[i] = 1;
    if (!wf_h5_find(&r->file, r->part, &f->set, err) ||
        !wf_raster_from_array(r, f->set.rank, f->set.shape, f->axes, err))
        return false;
    r->info.sample = r->stored = f->set.sample;
    return check_storage(r, f, err);
}

static bool make_room(struct wf_raster *r, size_t bytes, struct wf_err *err)
{
    struct hdf5 *f = r->state;
    if (f->room >= bytes)
        return true;
    free(f->values);
    f->values = malloc(bytes);
    f->room = f->values ? bytes : 0;
    return f->values || wf_raster_no_memory(r, err);
}

/* What was never written: one value for all samples between `lo` and `hi`. */
static bool put_fill(const struct wf_raster_job *job, const int64_t lo[], const int64_t hi[],
                     struct wf_err *err)
{
    const struct hdf5 *f = job->raster->state;
    unsigned char value[sizeof f->set.fill];
    memcpy(value, f->set.fill, sizeof value);
    if (f->set.swapped)
        wf_sample_swap(value, 1, wf_sample_size(job->raster->stored));
    const struct wf_raster_block block = {
        .data = value,
        .lo = { lo[0], lo[1], lo[2], lo[3] },
        .hi = { hi[0], hi[1], hi[2], hi[3] },
    };
    return wf_raster_put(job, &block, err);
}

/* --- contiguous: row by row --- */
static bool read_row(const struct wf_raster_job *job, int64_t d, int64_t h, struct wf_err *err)
{
    struct wf_raster *r = job->raster;
    const struct hdf5 *f = r->state;
    const struct wf_raster_info *info = &r->info;
    const size_t size = wf_sample_size(r->stored);
    const int64_t from = job->lo[WF_RASTER_W], count = job->hi[WF_RASTER_W] - from;
    const size_t samples = (size_t)(count * info->channels);
    const uint64_t first =
        (uint64_t)(((d * info->height + h) * info->width + from) * info->channels) * size;
    if (!make_room(r, samples * size, err) ||
        !wf_infile_read(&r->file, f->set.address + first, f->values, samples * size, err))
        return false;
    if (f->set.swapped)
        wf_sample_swap(f->values, samples, size);
    const struct wf_raster_block block = {
        .data = f->values,
        .lo = { d, h, from, 0 },
        .hi = { d + 1, h + 1, from + count, info->channels },
        .stride = { [WF_RASTER_W] = info->channels, [WF_RASTER_C] = 1 },
    };
    return wf_raster_put(job, &block, err);
}

/* --- chunked --- */
/* Chunks may share packed bytes and extend far beyond the window, so a limit on the ratio of one
 * chunk is not enough: all bytes that a window unpacks are compared with the file's size and the
 * window's. */
static bool may_unpack(const struct wf_raster_job *job, const struct wf_h5_chunk *chunk,
                       size_t bytes, struct wf_err *err)
{
    struct wf_raster *r = job->raster;
    struct hdf5 *f = r->state;
    uint64_t wanted = wf_sample_size(r->stored);
    for (int i = 0; i < WF_RASTER_AXES; i++)
        wanted *= (uint64_t)(job->hi[i] - job->lo[i]);
    f->unpacked += bytes;
    if ((bytes <= WF_RASTER_WHOLE || bytes / WF_RASTER_RATIO <= chunk->bytes) &&
        (f->unpacked <= WF_RASTER_WHOLE || f->unpacked / WF_RASTER_RATIO <= r->file.size + wanted))
        return true;
    return wf_raster_refuse(r, err,
                            "a chunk would unpack %" PRIu64
                            " bytes to %zu, which is too much at once: "
                            "write it again with smaller ones ('h5repack -l CHUNK=256x256')",
                            chunk->bytes, bytes);
}

static bool load_chunk(struct wf_raster *r, const struct wf_h5_chunk *chunk, size_t bytes,
                       struct wf_err *err)
{
    struct hdf5 *f = r->state;
    if (!make_room(r, bytes, err))
        return false;
    r->tiles_read++;
    if (!f->set.filter_count) {
        if (chunk->bytes != bytes)
            return wf_h5_damaged(&r->file, "a chunk of another size", err);
        return wf_infile_read(&r->file, chunk->address, f->values, bytes, err);
    }
    unsigned char *packed = malloc(chunk->bytes ? (size_t)chunk->bytes : 1);
    if (!packed)
        return wf_raster_no_memory(r, err);
    const bool ok = wf_infile_read(&r->file, chunk->address, packed, (size_t)chunk->bytes, err) &&
                    wf_h5_unpack(&f->set, chunk, packed, f->values, bytes, err);
    free(packed);
    return ok;
}

/* The chunk that starts at `at` on the raster's axes. */
static bool read_chunk(const struct wf_raster_job *job, const int64_t at[], struct wf_err *err)
{
    struct wf_raster *r = job->raster;
    const struct hdf5 *f = r->state;
    const size_t size = wf_sample_size(r->stored);
    int64_t which[WF_H5_RANK];
    for (int i = 0; i < f->set.rank; i++)
        which[i] = at[f->axes[i]] / f->chunk[f->axes[i]];
    struct wf_h5_chunk chunk;
    const int64_t *c = f->chunk;
    const size_t samples = (size_t)(c[0] * c[1] * c[2] * c[3]);
    if (!wf_h5_chunk_at(&f->set, which, &chunk, err))
        return false;
    if (!chunk.written)
        return put_fill(job, at,
                        (int64_t[]){ at[0] + c[0], at[1] + c[1], at[2] + c[2], at[3] + c[3] }, err);
    if (!may_unpack(job, &chunk, samples * size, err) ||
        !load_chunk(r, &chunk, samples * size, err))
        return false;
    if (f->set.swapped)
        wf_sample_swap(f->values, samples, size);
    const struct wf_raster_block block = {
        .data = f->values,
        .lo = { at[0], at[1], at[2], at[3] },
        .hi = { at[0] + c[0], at[1] + c[1], at[2] + c[2], at[3] + c[3] },
        .stride = { c[1] * c[2] * c[3], c[2] * c[3], c[3], 1 },
    };
    return wf_raster_put(job, &block, err);
}

static bool read_chunks(const struct wf_raster_job *job, struct wf_err *err)
{
    const struct hdf5 *f = job->raster->state;
    int64_t from[WF_RASTER_AXES], at[WF_RASTER_AXES];
    for (int i = 0; i < WF_RASTER_AXES; i++)
        from[i] = job->lo[i] / f->chunk[i] * f->chunk[i];
    for (at[0] = from[0]; at[0] < job->hi[0]; at[0] += f->chunk[0])
        for (at[1] = from[1]; at[1] < job->hi[1]; at[1] += f->chunk[1])
            for (at[2] = from[2]; at[2] < job->hi[2]; at[2] += f->chunk[2])
                for (at[3] = from[3]; at[3] < job->hi[3]; at[3] += f->chunk[3])
                    if (!read_chunk(job, at, err))
                        return false;
    return true;
}

static bool read_hdf5(const struct wf_raster_job *job, struct wf_err *err)
{
    struct hdf5 *f = job->raster->state;
    f->unpacked = 0;
    if (f->set.layout == WF_H5_CHUNKED)
        return read_chunks(job, err);
    if (!f->set.written)
        return put_fill(job, job->lo, job->hi, err);
    for (int64_t d = job->lo[WF_RASTER_D]; d < job->hi[WF_RASTER_D]; d++)
        for (int64_t h = job->lo[WF_RASTER_H]; h < job->hi[WF_RASTER_H]; h++)
            if (!read_row(job, d, h, err))
                return false;
    return true;
}

static void close_hdf5(struct wf_raster *r)
{
    struct hdf5 *f = r->state;
    if (!f)
        return;
    free(f->values);
    free(f);
}

const struct wf_raster_format wf_raster_hdf5 = {
    .name = "HDF5",
    .probe = probe,
    .open = open_hdf5,
    .read = read_hdf5,
    .close = close_hdf5,
    .check = wf_raster_read_last,
};
