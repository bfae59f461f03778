/* Pixels of a dataset: files that stay open for a while, raw values, labels. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_inside.h"

#include "base/memory.h"

struct slot {
    const char *path; /* the dataset's; NULL: free */
    struct wf_raster *raster;
    uint64_t used;
};

struct wf_reader {
    const struct wf_dataset *ds;
    struct slot slots[WF_DATA_OPEN];
    uint64_t clock;
    struct wf_infile file; /* of a layout that reads for itself */
    const char *file_path; /* NULL: not open */
    void *raw;             /* scratch for masks, palettes and single channels */
    size_t room;
    uint64_t moved; /* bytes of files that are closed again */
};

struct wf_reader *wf_reader_new(const struct wf_dataset *ds)
{
    struct wf_reader *const reader = wf_take_zeroed(1, sizeof *reader);
    reader->ds = ds;
    return reader;
}

void wf_reader_free(struct wf_reader *reader)
{
    if (!reader)
        return;
    (void)__atomic_fetch_add(reader->ds->moved, wf_reader_bytes(reader), __ATOMIC_RELAXED);
    for (int i = 0; i < WF_DATA_OPEN; i++)
        if (reader->slots[i].path)
            wf_raster_close(reader->slots[i].raster);
    if (reader->file_path)
        wf_infile_close(&reader->file);
    free(reader->raw);
    free(reader);
}

uint64_t wf_reader_bytes(const struct wf_reader *reader)
{
    uint64_t bytes = reader->moved;
    for (int i = 0; i < WF_DATA_OPEN; i++)
        if (reader->slots[i].path)
            bytes += wf_raster_bytes_read(reader->slots[i].raster);
    return bytes + (reader->file_path ? wf_infile_moved(&reader->file) : 0);
}

uint64_t wf_dataset_bytes_read(const struct wf_dataset *ds)
{
    return __atomic_load_n(ds->moved, __ATOMIC_RELAXED);
}

static struct wf_raster *open_raster(struct wf_reader *reader, const char *path, struct wf_err *err)
{
    struct slot *oldest = &reader->slots[0];
    for (int i = 0; i < WF_DATA_OPEN; i++) {
        struct slot *const s = &reader->slots[i];
        if (s->path && strcmp(s->path, path) == 0) {
            s->used = ++reader->clock;
            return s->raster;
        }
        if (s->used < oldest->used)
            oldest = s;
    }
    struct wf_raster *const raster = wf_raster_open(path, err);
    if (!raster)
        return NULL;
    if (oldest->path) {
        reader->moved += wf_raster_bytes_read(oldest->raster);
        wf_raster_close(oldest->raster);
    }
    *oldest = (struct slot){ .path = path, .raster = raster, .used = ++reader->clock };
    return raster;
}

/* Room for `count` elements of four bytes. */
static void *scratch(struct wf_reader *reader, int64_t count, struct wf_err *err)
{
    const size_t bytes = (size_t)count * sizeof(int32_t);
    if (bytes <= reader->room)
        return reader->raw;
    void *const grown = realloc(reader->raw, bytes);
    if (!grown) {
        (void)wf_err_set(err, WF_ERR_FIT, "no memory for a window of %zu bytes", bytes);
        return NULL;
    }
    reader->raw = grown;
    reader->room = bytes;
    return grown;
}

/* A file may have been replaced since the dataset was opened. */
static bool same_size(const struct wf_raster *r, const struct wf_entry *e, int channels,
                      const char *path, struct wf_err *err)
{
    const struct wf_raster_info *const info = wf_raster_info(r);
    const int64_t *const extent = e->sample.extent;
    if (info->depth == extent[WF_D] && info->height == extent[WF_H] &&
        info->width == extent[WF_W] && info->channels >= channels)
        return true;
    return wf_err_set(err, WF_ERR_INPUT, "'%s' has changed since the dataset was opened", path);
}

/* The same of a mask that is on another grid. */
static bool same_grid(const struct wf_raster *r, const struct wf_entry *e, struct wf_err *err)
{
    const struct wf_raster_info *const info = wf_raster_info(r);
    const int64_t *const extent = e->align->extent;
    if (info->width == extent[0] && info->height == extent[1] && info->depth == extent[2])
        return true;
    return wf_err_set(err, WF_ERR_INPUT, "'%s' has changed since the dataset was opened",
                      e->sample.mask);
}

/* --- images --- */

static bool read_palette(struct wf_reader *reader, struct wf_raster *r,
                         const struct wf_region *window, float *image, struct wf_err *err)
{
    const struct wf_raster_info *const info = wf_raster_info(r);
    const int64_t count = wf_window_pixels(window);
    int32_t *const raw = scratch(reader, count, err);
    if (!raw || !wf_raster_read_window(r, window, 0, 1, WF_I32, raw, err))
        return false;
    for (int64_t i = 0; i < count; i++)
        for (int c = 0; c < 3; c++)
            image[i * 3 + c] =
                raw[i] >= 0 && raw[i] < info->colors ? (float)info->palette[raw[i]][c] : 0.0f;
    return true;
}

static bool read_channels(struct wf_reader *reader, const struct wf_entry *e,
                          const struct wf_region *window, float *image, struct wf_err *err)
{
    const int64_t count = wf_window_pixels(window);
    float *const one = scratch(reader, count, err);
    if (!one)
        return false;
    for (int f = 0; f < e->n_files; f++) {
        struct wf_raster *const r = open_raster(reader, e->files[f], err);
        if (!r || !same_size(r, e, 1, e->files[f], err) ||
            !wf_raster_read_window(r, window, 0, 1, WF_F32, one, err))
            return false;
        for (int64_t i = 0; i < count; i++)
            image[i * e->n_files + f] = one[i];
    }
    return true;
}

static bool read_own(struct wf_reader *reader, const struct wf_entry *e,
                     const struct wf_region *window, float *image, struct wf_err *err)
{
    if (!reader->file_path || strcmp(reader->file_path, e->files[0]) != 0) {
        if (reader->file_path) {
            reader->moved += wf_infile_moved(&reader->file);
            wf_infile_close(&reader->file);
        }
        reader->file_path = NULL;
        if (!wf_infile_open(&reader->file, e->files[0], err))
            return false;
        reader->file_path = e->files[0];
    }
    return reader->ds->kind->read(e, &reader->file, window, image, err);
}

int64_t wf_find_odd(const float *pixels, int64_t count)
{
    /* x - x is 0 but for NaN and infinity: one sum to look at, and no branches. */
    float odd = 0;
    for (int64_t i = 0; i < count; i++)
        odd += pixels[i] - pixels[i];
    if (odd == 0.0f)
        return -1;
    int64_t i = 0;
    while (isfinite(pixels[i]))
        i++;
    return i;
}

bool wf_refuse_odd(const char *path, const struct wf_region *window, int64_t channels,
                   const float *pixels, int64_t i, struct wf_err *err)
{
    const int64_t at = i / channels, wide = wf_region_extent(*window, WF_W);
    const int64_t high = wf_region_extent(*window, WF_H);
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s': %s at plane %" PRId64 ", row %" PRId64 ", column %" PRId64
                      ", channel %" PRId64 ": give such pixels a number",
                      path, isnan(pixels[i]) ? "NaN" : "infinity",
                      window->lo[WF_D] + at / wide / high, window->lo[WF_H] + at / wide % high,
                      window->lo[WF_W] + at % wide, i % channels);
}

struct wf_nodata wf_nodata_of(const struct wf_raster_info *info)
{
    if (!info->has_nodata || info->colors > 0)
        return (struct wf_nodata){ 0 };
    const enum wf_sample s = info->sample;
    return (struct wf_nodata){
        .there = true,
        .in_all = s == WF_SAMPLE_U8 || s == WF_SAMPLE_U16 || s == WF_SAMPLE_U32,
        .value = (float)info->nodata,
    };
}

void wf_nodata_settle(const struct wf_nodata *n, float *pixels, int64_t count, int channels)
{
    if (!n->there || !n->in_all || channels == 1)
        return;
    for (int64_t i = 0; i < count; i++, pixels += channels) {
        int holes = 0;
        for (int c = 0; c < channels; c++)
            holes += isnan(pixels[c]) != 0;
        for (int c = 0; holes < channels && c < channels; c++)
            pixels[c] = isnan(pixels[c]) ? n->value : pixels[c];
    }
}

int64_t wf_nodata_odd(const struct wf_nodata *n, const float *pixels, int64_t count)
{
    if (!n->there)
        return wf_find_odd(pixels, count);
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(pixels[i]) && !wf_raster_is_hole(pixels[i]))
            return i;
    return -1;
}

static bool check_finite(const struct wf_entry *e, const struct wf_region *window,
                         const float *image, struct wf_err *err)
{
    const int64_t channels = e->sample.extent[WF_C];
    const int64_t odd = wf_nodata_odd(&e->nodata, image, wf_window_pixels(window) * channels);
    return odd < 0 || wf_refuse_odd(e->n_files > 1 ? e->files[odd % channels] : e->sample.image,
                                    window, channels, image, odd, err);
}

static bool read_files(struct wf_reader *reader, const struct wf_entry *e,
                       const struct wf_region *window, float *image, struct wf_err *err)
{
    bool ok = true;
    if (reader->ds->arrays) {
        wf_memory_read(reader->ds, e, window, image);
    } else if (reader->ds->kind->read) {
        ok = read_own(reader, e, window, image, err);
    } else if (e->n_files > 1) {
        ok = read_channels(reader, e, window, image, err);
    } else {
        struct wf_raster *const r = open_raster(reader, e->files[0], err);
        ok = r && same_size(r, e, 1, e->files[0], err);
        const int channels = (int)e->sample.extent[WF_C];
        if (ok && wf_raster_info(r)->colors > 0 && channels == 3)
            ok = read_palette(reader, r, window, image, err);
        else
            ok = ok && same_size(r, e, channels, e->files[0], err) &&
                 wf_raster_read_window(r, window, 0, channels, WF_F32, image, err);
    }
    if (ok)
        wf_nodata_settle(&e->nodata, image, wf_window_pixels(window), (int)e->sample.extent[WF_C]);
    return ok && check_finite(e, window, image, err);
}

/* A window of a sample, as what is kept reads it. */
struct request {
    struct wf_reader *reader;
    int64_t sample;
};

static bool read_block(void *user, const struct wf_region *window, void *dst, struct wf_err *err)
{
    const struct request *const r = user;
    return read_files(r->reader, &r->reader->ds->entries[r->sample], window, dst, err);
}

static bool read_image(struct wf_reader *reader, int64_t sample, const struct wf_region *window,
                       float *image, struct wf_err *err)
{
    const struct wf_entry *const e = &reader->ds->entries[sample];
    if (!reader->ds->keep || e->blocks[0].at[0] == 0)
        return read_files(reader, e, window, image, err);
    const struct wf_keep_source source = { .table = 2 * sample,
                                           .extent = e->sample.extent,
                                           .blocks = e->blocks[0],
                                           .each = e->sample.extent[WF_C],
                                           .read = read_block,
                                           .user = &(struct request){ reader, sample } };
    return wf_keep_read(reader->ds->keep, &source, window, image, err);
}

/* --- masks --- */

const struct wf_raster_info *wf_reader_mask_info(struct wf_reader *reader, int64_t sample,
                                                 struct wf_err *err)
{
    const struct wf_raster *const r =
        open_raster(reader, reader->ds->entries[sample].sample.mask, err);
    return r ? wf_raster_info(r) : NULL;
}

/* From the last pixel to the first, because it grows in its place. What has no colour gets -1. */
static void paint(const struct wf_raster_info *info, int64_t count, int32_t *raw)
{
    for (int64_t i = count - 1; i >= 0; i--) {
        const int32_t v = raw[i];
        for (int c = 0; c < 3; c++)
            raw[i * 3 + c] = v == WF_LABEL_VOID ? v
                             : info->colors > 0
                                 ? v >= 0 && v < info->colors ? info->palette[v][c] : -1
                             : v >= 0 && v < 256 ? v
                                                 : -1;
    }
}

const int32_t *wf_reader_mask(struct wf_reader *reader, int64_t sample,
                              const struct wf_region *window, bool by_color, int *channels,
                              struct wf_err *err)
{
    const struct wf_entry *const e = &reader->ds->entries[sample];
    struct wf_raster *const r = open_raster(reader, e->sample.mask, err);
    if (!r || (!e->align && !same_size(r, e, 1, e->sample.mask, err)) ||
        (e->align && !same_grid(r, e, err)))
        return NULL;
    const int stored = wf_raster_info(r)->channels >= 3 ? 3 : 1;
    *channels = by_color ? 3 : stored;
    const int64_t count = wf_window_pixels(window);
    int32_t *const raw = scratch(reader, count * *channels, err);
    if (!raw || !(e->align ? wf_align_read(e->align, r, window, stored, raw, err)
                           : wf_raster_read_window(r, window, 0, stored, WF_I32, raw, err)))
        return NULL;
    if (stored != *channels)
        paint(wf_raster_info(r), count, raw);
    if (reader->ds->kind->rounds_colors)
        for (int64_t i = 0; i < count * *channels; i++)
            raw[i] = raw[i] == WF_LABEL_VOID ? raw[i] : raw[i] >= 128 ? 255 : 0;
    return raw;
}

/* Labels where the image holds nothing. */
static bool hide_labels(struct wf_reader *reader, int64_t sample, const struct wf_region *window,
                        int32_t *labels, struct wf_err *err)
{
    const struct wf_entry *const e = &reader->ds->entries[sample];
    const int64_t channels = e->sample.extent[WF_C], count = wf_window_pixels(window);
    float *const pixels = calloc((size_t)(count * channels), sizeof *pixels);
    if (!pixels)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a window of %" PRId64 " pixels", count);
    const bool ok = read_image(reader, sample, window, pixels, err);
    for (int64_t i = 0; ok && i < count; i++) {
        bool empty = true;
        for (int64_t c = 0; empty && c < channels; c++)
            empty = isnan(pixels[i * channels + c]);
        labels[i] = empty ? WF_LABEL_VOID : labels[i];
    }
    free(pixels);
    return ok;
}

static bool refuse_value(const struct wf_dataset *ds, const struct wf_entry *e,
                         const struct wf_region *window, int channels, const int32_t *raw,
                         int64_t at, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const int64_t wide = wf_region_extent(*window, WF_W), high = wf_region_extent(*window, WF_H);
    const char *const why = ds->info.codes == WF_CODES_BINARY
                                ? "the other masks hold 0 and 255 only"
                                : "no class has it";
    (void)wf_err_set(err, WF_ERR_INPUT,
                     "mask '%s': value %s at plane %" PRId64 ", row %" PRId64 ", column %" PRId64
                     ": %s; list the classes in '%s/classes.txt', such as 'cell 1-255'",
                     e->sample.mask, wf_codes_text(&arena, channels, raw + at * channels),
                     window->lo[WF_D] + at / wide / high, window->lo[WF_H] + at / wide % high,
                     window->lo[WF_W] + at % wide, why, ds->info.path);
    wf_arena_release(&arena);
    return false;
}

static bool read_mask(struct wf_reader *reader, int64_t sample, const struct wf_region *window,
                      int32_t *labels, struct wf_err *err)
{
    const struct wf_dataset *const ds = reader->ds;
    const struct wf_entry *const e = &ds->entries[sample];
    int channels;
    const int32_t *const raw =
        wf_reader_mask(reader, sample, window, ds->info.codes == WF_CODES_COLORS, &channels, err);
    if (!raw)
        return false;
    int64_t bad;
    wf_codes_map(ds, channels, wf_window_pixels(window), raw, labels, &bad);
    return (bad < 0 || refuse_value(ds, e, window, channels, raw, bad, err)) &&
           (!e->sample.has_nodata || hide_labels(reader, sample, window, labels, err));
}

static bool read_mask_block(void *user, const struct wf_region *window, void *dst,
                            struct wf_err *err)
{
    const struct request *const r = user;
    return read_mask(r->reader, r->sample, window, dst, err);
}

static bool read_labels(struct wf_reader *reader, int64_t sample, const struct wf_region *window,
                        int32_t *labels, struct wf_err *err)
{
    const struct wf_dataset *const ds = reader->ds;
    const struct wf_entry *const e = &ds->entries[sample];
    if (ds->info.labels == WF_LABELS_IMAGE) {
        *labels = e->sample.label;
        return true;
    }
    if (e->labels) {
        wf_memory_labels(ds, e, window, labels);
        return true;
    }
    if (!e->sample.mask)
        return wf_err_set(err, WF_ERR_INPUT, "image '%s' has no mask", e->sample.image);
    if (!ds->keep || e->blocks[1].at[0] == 0)
        return read_mask(reader, sample, window, labels, err);
    const struct wf_keep_source source = { .table = 2 * sample + 1,
                                           .is_labels = true,
                                           .extent = e->sample.extent,
                                           .blocks = e->blocks[1],
                                           .each = 1,
                                           .read = read_mask_block,
                                           .user = &(struct request){ reader, sample } };
    return wf_keep_read(ds->keep, &source, window, labels, err);
}

bool wf_reader_read(struct wf_reader *reader, int64_t sample, const struct wf_region *window,
                    float *image, int32_t *labels, struct wf_err *err)
{
    struct wf_region all = wf_dataset_extent(reader->ds, sample), requested = *window;
    requested.lo[WF_N] = requested.lo[WF_C] = 0;
    requested.hi[WF_N] = requested.hi[WF_C] = 1;
    WF_BUG_ON(wf_region_is_empty(requested) || !wf_region_contains(all, requested),
              "window outside of sample %" PRId64, sample);
    return (!image || read_image(reader, sample, window, image, err)) &&
           (!labels || read_labels(reader, sample, window, labels, err));
}

bool wf_dataset_read(const struct wf_dataset *ds, int64_t sample, const struct wf_region *window,
                     float *image, int32_t *labels, struct wf_err *err)
{
    struct wf_reader *const reader = wf_reader_new(ds);
    const bool ok = wf_reader_read(reader, sample, window, image, labels, err);
    wf_reader_free(reader);
    return ok;
}
