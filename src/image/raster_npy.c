/* .npy as a raster, both ways; image/npy.h knows the format. */
#include <stdlib.h>
#include <string.h>

#include "image/npy.h"
#include "base/memory.h"
#include "image/raster_format.h"

struct npy {
    struct wf_npy array;
    float *row; /* of the window, all channels; not for windows that are read in place */
    size_t room;
};

static bool probe(const unsigned char *head, size_t bytes)
{
    return bytes >= 6 && memcmp(head, "\x93NUMPY", 6) == 0;
}

static bool open_npy(struct wf_raster *r, struct wf_err *err)
{
    struct npy *n = calloc(1, sizeof *n);
    if (!n)
        return wf_raster_no_memory(r, err);
    r->state = n;
    if (!(r->file.fd < 0
              ? wf_npy_parse(&n->array, r->file.name, r->file.memory, (size_t)r->file.size, err)
              : wf_npy_open(&n->array, r->file.name, err)))
        return false;
    int axes[WF_NPY_RANK];
    if (!wf_raster_from_array(r, n->array.rank, n->array.shape, axes, err))
        return false;
    r->info.sample = n->array.sample;
    /* wf_npy_read() converts: whole numbers come as i32, others as f32. */
    r->stored = wf_sample_is_whole(n->array.sample) ? WF_SAMPLE_I32 : WF_SAMPLE_F32;
    r->info.tile = WF_SHAPE(1, 1, 1, r->info.width, r->info.channels);
    return true;
}

/* Rows with all their channels, of the requested type: straight to where they are wanted. */
static bool read_in_place(const struct wf_raster_job *job, struct wf_err *err)
{
    const struct wf_raster *r = job->raster;
    const struct npy *n = r->state;
    const int64_t channels = r->info.channels, from = job->lo[WF_RASTER_W];
    const int64_t count = (job->hi[WF_RASTER_W] - from) * channels;
    char *to = job->dst;
    for (int64_t d = job->lo[WF_RASTER_D]; d < job->hi[WF_RASTER_D]; d++)
        for (int64_t h = job->lo[WF_RASTER_H]; h < job->hi[WF_RASTER_H]; h++) {
            const int64_t first = ((d * r->info.height + h) * r->info.width + from) * channels;
            if (!wf_npy_read(&n->array, first, count, job->as, to, err))
                return false;
            to += (size_t)count * wf_dtype_size(job->as);
        }
    return true;
}

/* Integers are read as the requested type; floats as f32, which is converted to i32 if requested. */
static bool read_npy(const struct wf_raster_job *job, struct wf_err *err)
{
    struct wf_raster *r = job->raster;
    struct npy *n = r->state;
    const int64_t channels = r->info.channels, width = r->info.width, height = r->info.height;
    const int64_t from = job->lo[WF_RASTER_W], count = job->hi[WF_RASTER_W] - from;
    const bool whole = wf_sample_is_whole(n->array.sample);
    const enum wf_dtype as = whole ? job->as : WF_F32;
    if (as == job->as && job->hi[WF_RASTER_C] - job->lo[WF_RASTER_C] == channels)
        return read_in_place(job, err);
    r->stored = as == WF_I32 ? WF_SAMPLE_I32 : WF_SAMPLE_F32;
    if (n->room < (size_t)(count * channels)) {
        free(n->row);
        n->room = (size_t)(count * channels);
        n->row = calloc(n->room, sizeof *n->row);
        if (!n->row) {
            n->room = 0;
            return wf_raster_no_memory(r, err);
        }
    }
    for (int64_t d = job->lo[WF_RASTER_D]; d < job->hi[WF_RASTER_D]; d++)
        for (int64_t h = job->lo[WF_RASTER_H]; h < job->hi[WF_RASTER_H]; h++) {
            const int64_t first = ((d * height + h) * width + from) * channels;
            if (!wf_npy_read(&n->array, first, count * channels, as, n->row, err))
                return false;
            const struct wf_raster_block row = {
                .data = n->row,
                .lo = { d, h, from, 0 },
                .hi = { d + 1, h + 1, from + count, channels },
                .stride = { [WF_RASTER_W] = channels, [WF_RASTER_C] = 1 },
            };
            if (!wf_raster_put(job, &row, err))
                return false;
        }
    return true;
}

static void close_npy(struct wf_raster *r)
{
    struct npy *n = r->state;
    if (!n)
        return;
    wf_npy_close(&n->array);
    free(n->row);
    free(n);
}

static uint64_t moved_npy(const struct wf_raster *r)
{
    return wf_infile_moved(&((const struct npy *)r->state)->array.file);
}

const struct wf_raster_format wf_raster_npy = { .name = ".npy",
                                                .probe = probe,
                                                .open = open_npy,
                                                .read = read_npy,
                                                .close = close_npy,
                                                .moved = moved_npy };

/* --- writing --- */
static bool begin_npy(struct wf_raster_writer *w, struct wf_err *err)
{
    static const enum wf_dtype types[WF_SAMPLES] = {
        [WF_SAMPLE_U8] = WF_U8,   [WF_SAMPLE_I32] = WF_I32, [WF_SAMPLE_I64] = WF_I64,
        [WF_SAMPLE_F16] = WF_F16, [WF_SAMPLE_F32] = WF_F32, [WF_SAMPLE_F64] = WF_F64,
    };
    const struct wf_raster_info *info = &w->info;
    const enum wf_dtype dtype = types[info->sample];
    if (dtype == WF_F32 && info->sample != WF_SAMPLE_F32)
        return wf_err_set(err, WF_ERR_USAGE,
                          "cannot write '%s': no %s in .npy here: write f32, or a .tif file",
                          w->path, wf_sample_name(info->sample));
    struct wf_npy_writer *n = wf_take_zeroed(1, sizeof *n);
    w->state = n;
    w->by_rows = true;
    w->info.tile = WF_SHAPE(1, 1, 1, info->width, info->channels);
    /* The rank from which a reader finds the same axes again. */
    const bool deep = info->depth > 1 || info->channels > WF_RASTER_FEW;
    const int64_t shape[] = { info->depth, info->height, info->width, info->channels };
    return wf_npy_begin(n, w->path, dtype,
                        deep                 ? 4
                        : info->channels > 1 ? 3
                                             : 2,
                        shape + !deep, err);
}

static bool write_npy(struct wf_raster_writer *w, const struct wf_region *window, const void *src,
                      struct wf_err *err)
{
    const int64_t pixels = wf_region_extent(*window, WF_D) * wf_region_extent(*window, WF_H) *
                           wf_region_extent(*window, WF_W);
    return wf_npy_put(w->state, src, pixels * w->info.channels, err);
}

static bool end_npy(struct wf_raster_writer *w, bool ok, struct wf_err *err)
{
    struct wf_npy_writer *n = w->state;
    if (!n)
        return false;
    ok = wf_npy_end(n, ok, err);
    free(n);
    return ok;
}

const struct wf_raster_sink wf_raster_npy_sink = {
    .name = ".npy", .begin = begin_npy, .write = write_npy, .end = end_npy
};
