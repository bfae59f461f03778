#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "image/raster_format.h"

#include "base/memory.h"

bool wf_raster_sink_lacks(const struct wf_raster_writer *w, const char *package, struct wf_err *err)
{
    return wf_err_set(
        err, WF_ERR_USAGE,
        "cannot write '%s': this build writes no %s: install '%s' and build again, or "
        "write .npy",
        w->path, w->sink->name, package);
}

static const struct wf_raster_sink *sink_for(const char *path)
{
    static const struct {
        const char *end;
        const struct wf_raster_sink *sink;
    } known[] = { { ".tif", &wf_raster_tiff_sink },  { ".tiff", &wf_raster_tiff_sink },
                  { ".png", &wf_raster_png_sink },   { ".npy", &wf_raster_npy_sink },
                  { ".nii", &wf_raster_nifti_sink }, { ".nii.gz", &wf_raster_nifti_sink } };
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t end = strlen(known[i].end);
        if (length > end && strcasecmp(path + length - end, known[i].end) == 0)
            return known[i].sink;
    }
    return NULL;
}

static struct wf_raster_writer *begin(const char *path, const char *joins,
                                      const struct wf_raster_info *info, struct wf_err *err)
{
    WF_BUG_ON(info->depth < 1 || info->height < 1 || info->width < 1 || info->channels < 1 ||
                  info->depth > INT32_MAX || info->height > INT32_MAX || info->width > INT32_MAX ||
                  info->channels > WF_RASTER_CHANNELS,
              "%" PRId64 " x %" PRId64 " x %" PRId64 " x %d", info->depth, info->height,
              info->width, info->channels);
    WF_BUG_ON(info->colors < 0 || info->colors > WF_RASTER_COLORS, "%d colours", info->colors);
    const struct wf_raster_sink *sink = sink_for(path);
    if (!sink) {
        (void)wf_err_set(err, WF_ERR_USAGE,
                         "cannot write '%s': its name says no format: end it in .tif, .png, .npy, "
                         ".nii or .nii.gz",
                         path);
        return NULL;
    }
    WF_BUG_ON(joins && !sink->pack, "'%s' has one writer", path);
    struct wf_raster_writer *w = wf_take_zeroed(1, sizeof *w);
    w->sink = sink;
    w->path = wf_take_text(path);
    w->joins = joins ? wf_take_text(joins) : NULL;
    w->info = *info;
    const bool ok = sink->lacks ? wf_raster_sink_lacks(w, sink->lacks, err) : sink->begin(w, err);
    w->info.place = NULL; /* was borrowed for the beginning */
    if (ok)
        return w;
    w->failed = true;
    (void)wf_raster_writer_close(w, false, err);
    return NULL;
}

struct wf_raster_writer *wf_raster_create(const char *path, const struct wf_raster_info *info,
                                          struct wf_err *err)
{
    return begin(path, NULL, info, err);
}

bool wf_raster_shares(const char *path)
{
    const struct wf_raster_sink *sink = sink_for(path);
    return sink && sink->pack;
}

struct wf_raster_writer *wf_raster_join(const char *path, const char *partial,
                                        const struct wf_raster_info *info, struct wf_err *err)
{
    return begin(path, partial, info, err);
}

const char *wf_raster_writer_partial(const struct wf_raster_writer *w)
{
    return w->sink->partial(w);
}

struct wf_shape wf_raster_writer_tile(const struct wf_raster_writer *w)
{
    return w->info.tile;
}

/* Whole rows, the next ones; several planes only as a whole. */
static void check_rows(struct wf_raster_writer *w, const struct wf_region *window)
{
    const struct wf_raster_info *info = &w->info;
    const int64_t planes = wf_region_extent(*window, WF_D), rows = wf_region_extent(*window, WF_H);
    WF_BUG_ON(window->lo[WF_W] != 0 || window->hi[WF_W] != info->width ||
                  (planes > 1 && rows != info->height) ||
                  window->lo[WF_D] * info->height + window->lo[WF_H] != w->next_row,
              "'%s': rows from %" PRId64 " of plane %" PRId64 ", next is %" PRId64, w->path,
              window->lo[WF_H], window->lo[WF_D], w->next_row);
    w->next_row += planes * rows;
}

/* The window lies in the image, on the edges of tiles. Its pixels. */
static int64_t check_window(const struct wf_raster_writer *w, const struct wf_region *window)
{
    const int64_t extent[] = {
        [WF_D] = w->info.depth, [WF_H] = w->info.height, [WF_W] = w->info.width
    };
    int64_t pixels = 1;
    for (int axis = WF_D; axis <= WF_W; axis++) {
        const int64_t lo = window->lo[axis], hi = window->hi[axis], tile = w->info.tile.at[axis];
        WF_BUG_ON(lo < 0 || hi > extent[axis] || lo >= hi || lo % tile ||
                      (hi % tile && hi != extent[axis]),
                  "'%s': window [%" PRId64 ", %" PRId64 ") of %" PRId64
                  " on axis %d, tiles of %" PRId64,
                  w->path, lo, hi, extent[axis], axis, tile);
        pixels *= hi - lo;
    }
    return pixels;
}

bool wf_raster_pack_window(const struct wf_raster_writer *w, const struct wf_region *window,
                           const void *src, struct wf_raster_packed *packed, struct wf_err *err)
{
    packed->pixels += check_window(w, window);
    return w->sink->pack(w, window, src, packed, err);
}

bool wf_raster_place_packed(struct wf_raster_writer *w, int n,
                            struct wf_raster_packed *const packed[], uint64_t before, uint64_t all,
                            struct wf_err *err)
{
    for (int i = 0; i < n; i++) {
        struct wf_raster_packed *const p = packed[i];
        size_t count;
        WF_BUG_ON(before + p->bytes.size > all, "%zu bytes after %" PRIu64 " of %" PRIu64,
                  p->bytes.size, before, all);
        *w->sink->table(w, &count) += p->pixels;
        if (!w->failed)
            w->failed = !w->sink->place(w, p, before, err);
        before += p->bytes.size;
        p->bytes.size = p->n_parts = 0;
        p->pixels = 0;
    }
    if (w->sink->placed)
        w->sink->placed(w, all);
    return !w->failed;
}

void wf_raster_packed_release(struct wf_raster_packed *packed)
{
    wf_buffer_release(&packed->bytes);
    free(packed->parts);
    *packed = (struct wf_raster_packed){ 0 };
}

int64_t *wf_raster_writer_table(struct wf_raster_writer *w, size_t *count)
{
    return w->sink->table(w, count);
}

bool wf_raster_write_window(struct wf_raster_writer *w, const struct wf_region *window,
                            const void *src, struct wf_err *err)
{
    if (w->sink->pack) {
        struct wf_raster_packed packed = { 0 };
        w->failed = w->failed || !wf_raster_pack_window(w, window, src, &packed, err);
        const bool ok = wf_raster_place_packed(w, 1, (struct wf_raster_packed *[]){ &packed }, 0,
                                               packed.bytes.size, err);
        wf_raster_packed_release(&packed);
        return ok;
    }
    w->came += check_window(w, window);
    if (w->by_rows)
        check_rows(w, window);
    if (!w->failed)
        w->failed = !w->sink->write(w, window, src, err);
    return !w->failed;
}

bool wf_raster_writer_close(struct wf_raster_writer *w, bool ok, struct wf_err *err)
{
    if (!w)
        return false;
    ok = ok && !w->failed;
    const int64_t pixels = w->info.depth * w->info.height * w->info.width;
    int64_t came = w->came;
    if (ok && w->sink->table) {
        size_t count = 0;
        const int64_t *const table = w->sink->table(w, &count);
        came = table[0];
    }
    WF_BUG_ON(ok && !w->joins && came != pixels, "'%s': %" PRId64 " pixels came, it has %" PRId64,
              w->path, came, pixels);
    ok = !w->sink->lacks && w->sink->end(w, ok, err);
    free(w->joins);
    free(w->path);
    free(w);
    return ok;
}
