#include "image/raster.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "image/raster_format.h"

/* NIfTI-1 has its magic late in the header and HDF5 may start late: the sure ones come first. */
static const struct wf_raster_format *const formats[] = {
    &wf_raster_png, &wf_raster_jpeg,  &wf_raster_tiff,
    &wf_raster_npy, &wf_raster_nifti, &wf_raster_hdf5,
};

bool wf_raster_refuse(const struct wf_raster *r, struct wf_err *err, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return wf_err_set(err, WF_ERR_INPUT, "'%s': %s", r->file.name, what);
}

bool wf_raster_lacks(const struct wf_raster *r, const char *package, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s': a %s file, which this build cannot read: install '%s' and build again",
                      r->file.name, r->format->name, package);
}

bool wf_raster_no_memory(const struct wf_raster *r, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FIT,
                      "'%s': no memory to decode it: close other programs or use smaller tiles",
                      r->file.name);
}

void wf_raster_printable(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

bool wf_raster_from_array(struct wf_raster *r, int rank, const int64_t shape[], int axes[],
                          struct wf_err *err)
{
    if (rank < 2 || rank > 4)
        return wf_raster_refuse(
            r, err, "an array of rank %d is no image: save it as (H, W), (H, W, C) or (D, H, W, C)",
            rank);
    const bool channels = rank == 4 || (rank == 3 && shape[2] <= WF_RASTER_FEW);
    const int spatial = rank - channels;
    int64_t extent[WF_RASTER_AXES] = { 1, 1, 1, 1 };
    for (int i = 0; i < rank; i++) {
        axes[i] = i < spatial ? WF_RASTER_C - spatial + i : WF_RASTER_C;
        extent[axes[i]] = shape[i];
    }
    if (extent[WF_RASTER_C] > WF_RASTER_CHANNELS)
        return wf_raster_refuse(r, err, "%" PRId64 " channels, at most %d are read: cut the array",
                                extent[WF_RASTER_C], WF_RASTER_CHANNELS);
    r->info.depth = extent[WF_RASTER_D];
    r->info.height = extent[WF_RASTER_H];
    r->info.width = extent[WF_RASTER_W];
    r->info.channels = (int)extent[WF_RASTER_C];
    return true;
}

/* What every format must have made sure of, and what holds for all of them. */
static bool check_info(struct wf_raster *r, struct wf_err *err)
{
    struct wf_raster_info *info = &r->info;
    const int64_t most = INT32_MAX;
    if (info->depth < 1 || info->height < 1 || info->width < 1 || info->channels < 1)
        return wf_raster_refuse(r, err,
                                "an image of %" PRId64 " x %" PRId64 " x %" PRId64
                                " with %d channels has no pixels: write the file again",
                                info->depth, info->height, info->width, info->channels);
    int64_t count;
    if (info->depth > most || info->height > most || info->width > most ||
        __builtin_mul_overflow(info->depth, info->height, &count) ||
        __builtin_mul_overflow(count, info->width, &count) ||
        __builtin_mul_overflow(count, info->channels * (int64_t)sizeof(double), &count))
        return wf_raster_refuse(r, err,
                                "%" PRId64 " x %" PRId64 " x %" PRId64 " pixels with %d channels "
                                "are too many: the header is damaged, write the file again",
                                info->depth, info->height, info->width, info->channels);
    info->format = r->format->name;
    if (r->place.geo_count || r->place.space.rank || (r->place.x > 0 && r->place.y > 0))
        info->place = &r->place;
    return true;
}

/* How a stored picture is turned to be seen: first H and W change places, then the stored axes are
 * counted from their ends. */
struct turn {
    bool swap, flip_h, flip_w;
};

static struct turn turn_of(const struct wf_raster *r)
{
    static const struct turn turns[9] = {
        [2] = { .flip_w = true },
        [3] = { .flip_h = true, .flip_w = true },
        [4] = { .flip_h = true },
        [5] = { .swap = true },
        [6] = { .swap = true, .flip_h = true },
        [7] = { .swap = true, .flip_h = true, .flip_w = true },
        [8] = { .swap = true, .flip_w = true },
    };
    return turns[r->orientation];
}

static void show_turned(struct wf_raster *r)
{
    r->shown = r->info;
    if (!turn_of(r).swap)
        return;
    r->shown.height = r->info.width;
    r->shown.width = r->info.height;
    r->shown.tile.at[WF_H] = r->info.tile.at[WF_W];
    r->shown.tile.at[WF_W] = r->info.tile.at[WF_H];
    const double x = r->place.x;
    r->place.x = r->place.y;
    r->place.y = x;
}

/* r->file is open. Closes everything on failure. */
static struct wf_raster *open_known(struct wf_raster *r, struct wf_err *err)
{
    unsigned char head[WF_RASTER_HEAD];
    const size_t bytes = r->file.size < sizeof head ? (size_t)r->file.size : sizeof head;
    bool ok = wf_infile_read(&r->file, 0, head, bytes, err);
    if (ok && bytes == 0)
        ok = wf_raster_refuse(r, err, "the file is empty: copy it again");
    for (size_t i = 0; ok && !r->format && i < sizeof formats / sizeof *formats; i++)
        if (formats[i]->probe(head, bytes))
            r->format = formats[i];
    if (ok && !r->format)
        ok = wf_raster_refuse(r, err,
                              "not an image that is known here: convert it to PNG, JPEG, TIFF, "
                              "NIfTI, HDF5 or .npy");
    if (ok && r->part && r->format != &wf_raster_hdf5)
        ok = wf_raster_refuse(r, err,
                              "a %s file has no '%s' inside: leave out what follows the colon",
                              r->format->name, r->part);
    if (ok && r->format->lacks)
        ok = wf_raster_lacks(r, r->format->lacks, err);
    if (ok && r->format->open(r, err) && check_info(r, err)) {
        show_turned(r);
        return r;
    }
    wf_raster_close(r);
    return NULL;
}

static struct wf_raster *raster_new(void)
{
    struct wf_raster *r = wf_take_zeroed(1, sizeof *r);
    r->file.fd = -1;
    return r;
}

/* The colon of "file.h5:/part", NULL where there is none. */
static const char *find_part(const char *path)
{
    return strstr(path, ":/");
}

struct wf_raster *wf_raster_open(const char *path, struct wf_err *err)
{
    struct wf_raster *r = raster_new();
    const char *colon = find_part(path);
    enum wf_path_kind kind = WF_PATH_FILE;
    if (colon && !wf_path_look(path, &kind, err)) {
        wf_raster_close(r);
        return NULL;
    }
    char *name = wf_take_text(path);
    if (kind == WF_PATH_ABSENT) {
        name[colon - path] = '\0';
        r->part = wf_take_text(colon + 1);
    }
    const bool ok = wf_infile_open(&r->file, name, err);
    free(name);
    if (ok)
        return open_known(r, err);
    wf_raster_close(r);
    return NULL;
}

struct wf_raster *wf_raster_parse(const char *name, const void *bytes, size_t size,
                                  struct wf_err *err)
{
    struct wf_raster *r = raster_new();
    const char *colon = find_part(name);
    if (colon) {
        r->part = wf_take_text(colon + 1);
    }
    wf_infile_memory(&r->file, name, bytes, size);
    return open_known(r, err);
}

void wf_raster_close(struct wf_raster *r)
{
    if (!r)
        return;
    if (r->format && r->format->close)
        r->format->close(r);
    for (int i = 0; i < r->place.geo_count; i++)
        free(r->place.geo[i].data);
    wf_infile_close(&r->file);
    free(r->part);
    free(r);
}

const struct wf_raster_info *wf_raster_info(const struct wf_raster *r)
{
    return &r->shown;
}

int64_t wf_raster_tiles_read(const struct wf_raster *r)
{
    return r->tiles_read;
}

uint64_t wf_raster_bytes_read(const struct wf_raster *r)
{
    return wf_infile_moved(&r->file) + (r->format->moved ? r->format->moved(r) : 0);
}

/* --- reading --- */

/* Turns what was read of the stored window (dense) into the window that was asked for. */
static void put_turned(const struct wf_raster_job *stored, const struct turn *t, const void *from,
                       void *dst)
{
    int64_t extent[WF_RASTER_AXES];
    for (int i = 0; i < WF_RASTER_AXES; i++)
        extent[i] = stored->hi[i] - stored->lo[i];
    const int64_t height = extent[t->swap ? WF_RASTER_W : WF_RASTER_H];
    const int64_t width = extent[t->swap ? WF_RASTER_H : WF_RASTER_W];
    const size_t pixel = (size_t)extent[WF_RASTER_C] * wf_dtype_size(stored->as);
    char *to = dst;
    for (int64_t d = 0; d < extent[WF_RASTER_D]; d++)
        for (int64_t y = 0; y < height; y++)
            for (int64_t x = 0; x < width; x++, to += pixel) {
                int64_t h = t->swap ? x : y, w = t->swap ? y : x;
                h = t->flip_h ? extent[WF_RASTER_H] - 1 - h : h;
                w = t->flip_w ? extent[WF_RASTER_W] - 1 - w : w;
                const int64_t at = (d * extent[WF_RASTER_H] + h) * extent[WF_RASTER_W] + w;
                memcpy(to, (const char *)from + (size_t)at * pixel, pixel);
            }
}

static bool read_turned(const struct wf_raster_job *job, struct wf_err *err)
{
    struct wf_raster *const r = job->raster;
    const struct turn t = turn_of(r);
    const int64_t extent[] = { 0, r->info.height, r->info.width };
    struct wf_raster_job stored = *job;
    size_t bytes = wf_dtype_size(job->as);
    for (int i = WF_RASTER_H; i <= WF_RASTER_W; i++) {
        const int from = t.swap ? WF_RASTER_H + WF_RASTER_W - i : i;
        const bool flip = i == WF_RASTER_H ? t.flip_h : t.flip_w;
        stored.lo[i] = flip ? extent[i] - job->hi[from] : job->lo[from];
        stored.hi[i] = flip ? extent[i] - job->lo[from] : job->hi[from];
    }
    for (int i = 0; i < WF_RASTER_AXES; i++)
        bytes *= (size_t)(job->hi[i] - job->lo[i]);
    stored.dst = malloc(bytes);
    if (!stored.dst)
        return wf_raster_no_memory(r, err);
    const bool ok = r->format->read(&stored, err);
    if (ok)
        put_turned(&stored, &t, stored.dst, job->dst);
    free(stored.dst);
    return ok;
}

bool wf_raster_is_bytes(const struct wf_raster *r)
{
    return r->shown.sample == WF_SAMPLE_U8 && !r->scaled && !r->shown.has_nodata;
}

bool wf_raster_read_window(struct wf_raster *r, const struct wf_region *window, int first_channel,
                           int channels, enum wf_dtype as, void *dst, struct wf_err *err)
{
    WF_BUG_ON(as != WF_F32 && as != WF_I32 && !(as == WF_U8 && wf_raster_is_bytes(r)), "as %s",
              wf_dtype_name(as));
    struct wf_raster_job job = { .raster = r, .as = as, .dst = dst };
    static const enum wf_axis axes[] = { WF_D, WF_H, WF_W };
    const int64_t extent[] = { r->shown.depth, r->shown.height, r->shown.width };
    for (int i = 0; i < WF_RASTER_C; i++) {
        job.lo[i] = window->lo[axes[i]];
        job.hi[i] = window->hi[axes[i]];
        WF_BUG_ON(job.lo[i] < 0 || job.hi[i] > extent[i] || job.lo[i] > job.hi[i],
                  "'%s': window [%" PRId64 ", %" PRId64 ") of %" PRId64 " on axis %d", r->file.name,
                  job.lo[i], job.hi[i], extent[i], i);
        if (job.lo[i] == job.hi[i])
            return true;
    }
    job.lo[WF_RASTER_C] = first_channel;
    job.hi[WF_RASTER_C] = (int64_t)first_channel + channels;
    WF_BUG_ON(first_channel < 0 || channels < 0 || job.hi[WF_RASTER_C] > r->shown.channels,
              "'%s': %d channels from %d of %d", r->file.name, channels, first_channel,
              r->shown.channels);
    if (channels == 0)
        return true;
    return r->orientation > 1 ? read_turned(&job, err) : r->format->read(&job, err);
}

bool wf_raster_read_last(struct wf_raster *r, struct wf_err *err)
{
    const struct wf_raster_info *const info = &r->info;
    float sample;
    const struct wf_raster_job job = {
        .raster = r,
        .lo = { info->depth - 1, info->height - 1, info->width - 1, info->channels - 1 },
        .hi = { info->depth, info->height, info->width, info->channels },
        .as = WF_F32,
        .dst = &sample,
    };
    return r->format->read(&job, err);
}

bool wf_raster_check(struct wf_raster *r, struct wf_err *err)
{
    return !r->format->check || r->format->check(r, err);
}
