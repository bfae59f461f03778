/* A dataset of arrays in the program's memory, which it borrows (wf_arrays in widefield.h). */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset_inside.h"
#include "tensor/dtype.h"

static bool check(const struct wf_arrays *a, struct wf_err *err)
{
    const bool pixels = a->images || a->image_block;
    const int kinds = (a->labels != NULL) + (a->label_block != NULL) + (a->image_labels != NULL);
    if (a->samples < 1 || !pixels || !a->extents)
        return wf_err_set(err, WF_ERR_USAGE, "arrays: no samples, images or extents");
    if (a->dims < 2 || a->dims > 3 || a->channels < 1 || a->channels > WF_DATA_CHANNELS)
        return wf_err_set(err, WF_ERR_USAGE,
                          "arrays: %d dimensions and %" PRId64 " channels: use 2 or 3 dimensions "
                          "and 1 to %d channels",
                          a->dims, a->channels, WF_DATA_CHANNELS);
    if ((a->image_dtype != WF_F32 && a->image_dtype != WF_U8) ||
        (a->label_dtype != WF_I32 && a->label_dtype != WF_U8 && (a->labels || a->label_block)))
        return wf_err_set(err, WF_ERR_USAGE,
                          "arrays: images are WF_F32 or WF_U8, labels are WF_I32 or WF_U8");
    if (kinds > 1 || (a->sizes_differ && (!a->images || a->label_block)))
        return wf_err_set(err, WF_ERR_USAGE,
                          "arrays: give one kind of labels, and no blocks where sizes differ");
    return true;
}

/* Places the i-th sample of a block, or takes the pointer to it. */
static const void *array_of(const void *const *each, const void *block, int64_t i, size_t bytes)
{
    return each ? each[i] : block ? (const char *)block + (size_t)i * bytes : NULL;
}

static bool add(struct wf_dataset *ds, int64_t i, struct wf_err *err)
{
    const struct wf_arrays *const a = ds->arrays;
    const int64_t *const given = a->extents + (a->sizes_differ ? i * a->dims : 0);
    const char *const name = wf_arena_printf(&ds->arena, "sample %" PRId64, i);
    struct wf_entry *const e = wf_dataset_add(ds, name, name, NULL);
    int64_t *const extent = e->sample.extent;
    memcpy(extent, (const int64_t[]){ 1, 1, 1, 1, a->channels }, sizeof e->sample.extent);
    memcpy(extent + WF_C - a->dims, given, (size_t)a->dims * sizeof *given);
    struct wf_shape shape;
    memcpy(shape.at, extent, sizeof shape.at);
    if (!wf_shape_is_valid(shape))
        return wf_err_set(err, WF_ERR_USAGE, "%s: every extent must be at least 1", name);
    const size_t count = (size_t)wf_shape_count(shape);
    e->pixels = array_of(a->images, a->image_block, i, count * wf_dtype_size(a->image_dtype));
    e->labels = array_of(a->labels, a->label_block, i,
                         count / (size_t)a->channels * wf_dtype_size(a->label_dtype));
    e->sample.held_out = a->validation && a->validation[i];
    e->sample.label = a->image_labels ? a->image_labels[i] : 0;
    return (e->pixels && (e->labels || !a->labels)) ||
           wf_err_set(err, WF_ERR_USAGE, "%s: its array is NULL", name);
}

static int32_t label_at(const struct wf_dataset *ds, const struct wf_entry *e, int64_t i)
{
    const int32_t label = ds->arrays->label_dtype == WF_U8 ? ((const uint8_t *)e->labels)[i]
                                                           : ((const int32_t *)e->labels)[i];
    return label < 0 ? WF_LABEL_VOID : label;
}

static bool count_label(struct wf_dataset *ds, const struct wf_entry *e, int32_t label,
                        struct wf_err *err)
{
    const int most = ds->info.labels == WF_LABELS_PIXEL ? WF_DATA_CLASSES : WF_DATA_FOLDERS;
    if (label >= most || (label < 0 && ds->info.labels == WF_LABELS_IMAGE))
        return wf_err_set(err, WF_ERR_INPUT, "%s has label %" PRId32 ": use 0 to %d",
                          e->sample.name, label, most - 1);
    ds->info.has_void = ds->info.has_void || label < 0;
    if (label >= ds->info.n_classes)
        ds->info.n_classes = label + 1;
    if (label >= 0)
        ds->classes[label].found++;
    return true;
}

static bool count_labels(struct wf_dataset *ds, struct wf_err *err)
{
    for (int64_t s = 0; s < ds->info.samples; s++) {
        const struct wf_entry *const e = &ds->entries[s];
        const int64_t count = e->labels
                                  ? wf_region_count(wf_dataset_extent(ds, s)) / ds->info.channels
                                  : ds->info.labels == WF_LABELS_IMAGE;
        for (int64_t i = 0; i < count; i++)
            if (!count_label(ds, e, e->labels ? label_at(ds, e, i) : e->sample.label, err))
                return false;
        ds->info.scanned += e->labels ? count : 0;
    }
    for (int i = 0; i < ds->info.n_classes; i++)
        wf_dataset_name_class(ds, i, wf_arena_printf(&ds->arena, "class %d", i));
    ds->info.scanned_all = true;
    if (ds->info.has_void) {
        ds->info.has_ignore = true;
        ds->info.ignore = WF_LABEL_VOID;
    }
    return true;
}

bool wf_memory_list(struct wf_dataset *ds, struct wf_err *err)
{
    const struct wf_arrays *const a = ds->arrays;
    if (!check(a, err))
        return false;
    ds->info.why = "given by the program";
    ds->info.labels = a->image_labels               ? WF_LABELS_IMAGE
                      : a->labels || a->label_block ? WF_LABELS_PIXEL
                                                    : WF_LABELS_NONE;
    ds->info.dims = a->dims;
    ds->info.channels = (int)a->channels;
    ds->info.is_raw = a->raw;
    for (int64_t i = 0; i < a->samples; i++)
        if (!add(ds, i, err))
            return false;
    return count_labels(ds, err);
}

/* --- reading --- */

/* Elements from the first of a row of the window to the start of the image's plane. */
static int64_t row_of(const struct wf_entry *e, const struct wf_region *w, int64_t d, int64_t h)
{
    return (d * e->sample.extent[WF_H] + h) * e->sample.extent[WF_W] + w->lo[WF_W];
}

void wf_memory_read(const struct wf_dataset *ds, const struct wf_entry *e,
                    const struct wf_region *window, float *image)
{
    const int64_t *const x = e->sample.extent;
    const int64_t channels = x[WF_C], plane = x[WF_D] * x[WF_H] * x[WF_W];
    const int64_t wide = wf_region_extent(*window, WF_W);
    const bool bytes = ds->arrays->image_dtype == WF_U8;
    for (int64_t d = window->lo[WF_D]; d < window->hi[WF_D]; d++)
        for (int64_t h = window->lo[WF_H]; h < window->hi[WF_H]; h++, image += wide * channels)
            for (int64_t c = 0; c < channels; c++) {
                const int64_t from = c * plane + row_of(e, window, d, h);
                for (int64_t w = 0; w < wide; w++)
                    image[w * channels + c] = bytes ? ((const uint8_t *)e->pixels)[from + w]
                                                    : ((const float *)e->pixels)[from + w];
            }
}

void wf_memory_labels(const struct wf_dataset *ds, const struct wf_entry *e,
                      const struct wf_region *window, int32_t *labels)
{
    for (int64_t d = window->lo[WF_D]; d < window->hi[WF_D]; d++)
        for (int64_t h = window->lo[WF_H]; h < window->hi[WF_H]; h++)
            for (int64_t w = 0; w < wf_region_extent(*window, WF_W); w++)
                *labels++ = label_at(ds, e, row_of(e, window, d, h) + w);
}
