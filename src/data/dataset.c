/* Opening a dataset: which layout, which files, and whether they fit each other. */
#include "data/dataset.h"
#include "base/memory.h"
#include "base/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/dataset_inside.h"

const char *const wf_dataset_layout_names[WF_LAYOUTS + 1] = {
    "auto",  "folder", "pairs",  "nnunet",        "cifar10", "classes", "deepglobe",
    "inria", "idx",    "clouds", "cloud_classes", "kitti",   NULL
};

const char *const wf_alpha_names[] = { "drop", "keep", NULL };

/* In the order in which they are tried: the more telling first. */
static const struct {
    enum wf_data_layout layout;
    const struct wf_dataset_layout_kind *kind;
} layouts[] = {
    { WF_LAYOUT_NNUNET, &wf_dataset_layout_nnunet },
    { WF_LAYOUT_CIFAR10, &wf_dataset_layout_cifar10 },
    { WF_LAYOUT_IDX, &wf_dataset_layout_idx },
    { WF_LAYOUT_INRIA, &wf_dataset_layout_inria },
    { WF_LAYOUT_DEEPGLOBE, &wf_dataset_layout_deepglobe },
    { WF_LAYOUT_FOLDER, &wf_dataset_layout_folder },
    { WF_LAYOUT_PAIRS, &wf_dataset_layout_pairs },
    { WF_LAYOUT_CLASSES, &wf_dataset_layout_classes },
    { WF_LAYOUT_KITTI, &wf_dataset_layout_kitti },
    { WF_LAYOUT_CLOUDS, &wf_dataset_layout_clouds },
    { WF_LAYOUT_CLOUD_CLASSES, &wf_dataset_layout_cloud_classes },
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* --- for layouts --- */

static void add_text(struct wf_texts *list, const char *text)
{
    WF_GROW(list->items, list->room, list->count + 1);
    list->items[list->count++] = text;
}

static const char *text_of(struct wf_arena *arena, const char *format, va_list args)
{
    char text[1024];
    (void)vsnprintf(text, sizeof text, format, args);
    return wf_arena_copy(arena, text);
}

void wf_dataset_note(struct wf_dataset *ds, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_text(&ds->notes, text_of(&ds->arena, format, args));
    va_end(args);
}

void wf_dataset_why(struct wf_dataset *ds, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ds->info.why = text_of(&ds->arena, format, args);
    va_end(args);
}

void wf_dataset_problem(struct wf_dataset *ds, struct wf_entry *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *const text = text_of(&ds->arena, format, args);
    va_end(args);
    if (e && e->sample.problem)
        return;
    if (e)
        e->sample.problem = text;
    add_text(&ds->problems, text);
}

struct wf_entry *wf_dataset_add(struct wf_dataset *ds, const char *name, const char *image,
                                const char *mask)
{
    WF_GROW(ds->entries, ds->room, (size_t)ds->info.samples);
    struct wf_entry *const e = &ds->entries[ds->info.samples++];
    *e = (struct wf_entry){
        .sample = { .name = wf_arena_copy(&ds->arena, name),
                    .mask = mask ? wf_arena_copy(&ds->arena, mask) : NULL },
        .mask_channels = 1,
    };
    wf_dataset_set_files(ds, e, &image, 1);
    return e;
}

void wf_dataset_set_files(struct wf_dataset *ds, struct wf_entry *e, const char *const files[],
                          int count)
{
    const char **const copy = wf_arena_array(&ds->arena, count, const char *);
    for (int i = 0; i < count; i++)
        copy[i] = wf_arena_copy(&ds->arena, files[i]);
    e->files = copy;
    e->n_files = count;
    e->sample.image = copy[0];
}

void wf_dataset_name_class(struct wf_dataset *ds, int id, const char *name)
{
    WF_BUG_ON(id < 0 || id >= WF_DATA_FOLDERS, "class %d", id);
    ds->classes[id].name = wf_arena_copy(&ds->arena, name);
    if (ds->named <= id)
        ds->named = id + 1;
}

/* --- headers --- */

int wf_image_channels(const struct wf_raster_info *info, enum wf_data_alpha alpha, int64_t wanted)
{
    if (info->colors > 0)
        return 3;
    const bool drops = info->alpha && alpha == WF_ALPHA_DROP && info->channels != wanted;
    return info->channels - drops;
}

static void note_alpha(struct wf_dataset *ds, const struct wf_raster_info *info, bool *noted)
{
    if (*noted || info->colors > 0 ||
        wf_image_channels(info, ds->alpha, ds->wanted) == info->channels)
        return;
    *noted = true;
    wf_dataset_note(ds,
                    "images have an alpha channel, which is left out: data.alpha=keep takes it");
}

/* What is cut short is found now, not in the middle of a run. */
static struct wf_raster *open_whole(const char *path, struct wf_err *err)
{
    struct wf_raster *const r = wf_raster_open(path, err);
    if (!r || wf_raster_check(r, err))
        return r;
    wf_raster_close(r);
    return NULL;
}

static void note_nodata(struct wf_dataset *ds, struct wf_entry *e,
                        const struct wf_raster_info *info)
{
    const struct wf_nodata n = wf_nodata_of(info);
    if (!n.there)
        return;
    e->nodata = n;
    e->nodata.in_all = n.in_all && e->n_files == 1;
    e->sample.has_nodata = true;
    if (!ds->noted_nodata)
        wf_dataset_note(ds,
                        "pixels of the value %g hold nothing ('%s'): they are left out of "
                        "statistics and of the loss",
                        info->nodata, e->sample.image);
    ds->noted_nodata = true;
}

/* The first file stays open, as `*first`. */
static bool look_at_image(struct wf_dataset *ds, struct wf_entry *e, bool *alpha,
                          struct wf_raster **first)
{
    int64_t *const extent = e->sample.extent;
    extent[WF_N] = 1;
    for (int i = 0; i < e->n_files; i++) {
        struct wf_err err = { 0 };
        struct wf_raster *const r = open_whole(e->files[i], &err);
        if (!r) {
            wf_dataset_problem(ds, e, "%s", err.text);
            return false;
        }
        const struct wf_raster_info *const info = wf_raster_info(r);
        note_alpha(ds, info, alpha);
        note_nodata(ds, e, info);
        const int64_t own[WF_AXES] = { 1, info->depth, info->height, info->width,
                                       wf_image_channels(info, ds->alpha, ds->wanted) };
        const bool same = i == 0 || memcmp(own, extent, sizeof own) == 0;
        const bool one = e->n_files == 1 || own[WF_C] == 1;
        memcpy(extent, own, sizeof own);
        if (i == 0)
            e->blocks[0] = wf_keep_blocks(info);
        if (i > 0) {
            wf_align_check_channel(ds, e, wf_raster_info(*first), info, e->files[i]);
            wf_raster_close(r);
        } else {
            *first = r;
        }
        if (!same || !one) {
            wf_dataset_problem(ds, e, "'%s': a file of one channel must have the size of '%s'",
                               e->files[i], e->files[0]);
            return false;
        }
    }
    extent[WF_C] *= e->n_files;
    if (extent[WF_C] > WF_DATA_CHANNELS)
        wf_dataset_problem(ds, e, "'%s' has %" PRId64 " channels: at most %d are read",
                           e->sample.image, extent[WF_C], WF_DATA_CHANNELS);
    return e->sample.problem == NULL;
}

static bool look_at_mask(struct wf_dataset *ds, struct wf_entry *e,
                         const struct wf_raster *image_file)
{
    struct wf_err err = { 0 };
    struct wf_arena arena = { 0 };
    struct wf_raster *const r = open_whole(e->sample.mask, &err);
    if (!r) {
        wf_dataset_problem(ds, e, "%s", err.text);
        return false;
    }
    const struct wf_raster_info *const info = wf_raster_info(r);
    const int64_t *const image = e->sample.extent;
    const int64_t own[WF_AXES] = { 1, info->depth, info->height, info->width, info->channels };
    e->mask_channels = info->channels >= 3 ? 3 : 1;
    if (info->has_nodata && !ds->noted_mask)
        wf_dataset_note(
            ds,
            "masks name %g as nodata ('%s'), which is a label here: set train.ignore=%g "
            "where it does not count",
            info->nodata, e->sample.mask, info->nodata);
    ds->noted_mask = ds->noted_mask || info->has_nodata;
    if (image_file && !wf_align_look(ds, e, wf_raster_info(image_file), info) && !e->sample.problem)
        wf_dataset_problem(ds, e,
                           "mask '%s' is %s, but image '%s' is %s: scale the mask to "
                           "the image's size without mixing labels, or take the pair out",
                           e->sample.mask, wf_extent_text(&arena, own), e->sample.image,
                           wf_extent_text(&arena, image));
    else if (info->channels > 4)
        wf_dataset_problem(ds, e, "mask '%s' has %d channels: a mask has one, or three of a colour",
                           e->sample.mask, info->channels);
    else if (info->channels >= 3 && info->sample != WF_SAMPLE_U8)
        wf_dataset_problem(ds, e, "mask '%s' has colours of %s: colours of a mask have 8 bits",
                           e->sample.mask, wf_sample_name(info->sample));
    e->blocks[1] = wf_keep_blocks(e->align ? wf_raster_info(image_file) : info);
    e->blocks[1].in_order = e->blocks[1].in_order && !e->align;
    wf_raster_close(r);
    wf_arena_release(&arena);
    return e->sample.problem == NULL;
}

/* Pixels that do not count need a label that says so, where the layout has none. */
static void settle_void(struct wf_dataset *ds)
{
    if (ds->info.labels != WF_LABELS_PIXEL)
        ds->info.has_void = false;
    if (ds->info.has_void && !ds->info.has_ignore) {
        ds->info.has_ignore = true;
        ds->info.ignore = WF_LABEL_VOID;
    }
    if (ds->resampled)
        wf_dataset_note(ds,
                        "%lld mask%s on another grid than the image: labels are those nearest to "
                        "its pixels",
                        (long long)ds->resampled, ds->resampled == 1 ? " is" : "s are");
}

static void look_at_files(struct wf_dataset *ds)
{
    bool alpha = false;
    const struct wf_entry *first = NULL;
    for (int64_t i = 0; i < ds->info.samples; i++) {
        struct wf_entry *const e = &ds->entries[i];
        if (e->sample.problem)
            continue;
        struct wf_raster *file = NULL;
        const bool ok = (ds->kind->read || look_at_image(ds, e, &alpha, &file)) &&
                        (ds->info.labels != WF_LABELS_PIXEL || look_at_mask(ds, e, file));
        wf_raster_close(file);
        if (!ok)
            continue;
        ds->info.has_void = ds->info.has_void || e->sample.has_nodata;
        if (!first)
            first = e;
        if (e->sample.extent[WF_C] != first->sample.extent[WF_C])
            wf_dataset_problem(ds, e,
                               "'%s' has %" PRId64 " channels, but '%s' has %" PRId64
                               ": all images of a dataset have the same",
                               e->sample.image, e->sample.extent[WF_C], first->sample.image,
                               first->sample.extent[WF_C]);
    }
    settle_void(ds);
    ds->info.channels = first ? (int)first->sample.extent[WF_C] : 0;
    ds->info.dims = 2;
    for (int64_t i = 0; i < ds->info.samples; i++)
        if (ds->entries[i].sample.extent[WF_D] > 1)
            ds->info.dims = 3;
}

/* --- opening --- */

static bool no_layout(struct wf_dataset *ds, struct wf_err *err)
{
    struct wf_folder f;
    if (!wf_folder_list(&ds->arena, ds->info.path, &f, err))
        return false;
    if (f.n_files + f.n_folders == 0)
        return wf_err_set(err, WF_ERR_INPUT,
                          "folder '%s' is empty: put images in '%s/images' and masks of the same "
                          "names in '%s/masks'",
                          ds->info.path, ds->info.path, ds->info.path);
    char looks[1100] = "";
    for (int i = 0; i < N_LAYOUTS; i++) {
        const size_t n = strlen(looks);
        (void)snprintf(looks + n, sizeof looks - n, "%s%s (%s)", i ? "; " : "",
                       layouts[i].kind->looks, layouts[i].kind->name);
    }
    return wf_err_set(err, WF_ERR_INPUT, "folder '%s' has no layout that is known; it may hold: %s",
                      ds->info.path, looks);
}

static bool find_layout(struct wf_dataset *ds, enum wf_data_layout wanted, struct wf_err *err)
{
    struct stat info;
    if (stat(ds->info.path, &info) != 0)
        return wf_err_set(err, WF_ERR_INPUT, "cannot read folder '%s': %s", ds->info.path,
                          wf_file_reason(errno));
    if (!S_ISDIR(info.st_mode))
        return wf_err_set(err, WF_ERR_INPUT, "'%s' is a file: a dataset is a folder",
                          ds->info.path);
    for (int i = 0; i < N_LAYOUTS; i++) {
        const bool is =
            wanted ? layouts[i].layout == wanted : layouts[i].kind->probe(ds->info.path, err);
        if (err->code)
            return false;
        if (!is)
            continue;
        ds->kind = layouts[i].kind;
        ds->info.layout = layouts[i].layout;
        ds->info.why = ds->kind->looks;
        return true;
    }
    return no_layout(ds, err);
}

static bool refuse_problems(const struct wf_dataset *ds, struct wf_err *err)
{
    if (ds->problems.count == 0)
        return true;
    if (ds->problems.count == 1)
        return wf_err_set(err, WF_ERR_INPUT, "%s", ds->problems.items[0]);
    return wf_err_set(err, WF_ERR_INPUT,
                      "%s (and %zu more: 'widefield data inspect %s' lists them)",
                      ds->problems.items[0], ds->problems.count - 1, ds->info.path);
}

static bool open_all(struct wf_dataset *ds, const struct wf_dataset_options *o, struct wf_err *err)
{
    if (!find_layout(ds, o->layout, err) || !ds->kind->list(ds, err) || err->code)
        return false;
    if (ds->info.samples == 0)
        return wf_err_set(err, WF_ERR_INPUT,
                          "folder '%s' has no images in the layout '%s': expected %s",
                          ds->info.path, ds->kind->name, ds->kind->looks);
    if (ds->kind->clouds)
        wf_clouds_look(ds);
    else
        look_at_files(ds);
    if (!o->tolerate && !refuse_problems(ds, err))
        return false;
    if (!wf_codes_read(ds, err) || err->code || !wf_codes_find(ds, err))
        return false;
    return o->tolerate || refuse_problems(ds, err);
}

static struct wf_dataset *dataset_new(const char *path)
{
    struct wf_dataset *const ds = wf_take_zeroed(1, sizeof *ds);
    ds->moved = wf_take_zeroed(1, sizeof *ds->moved);
    ds->info.path = wf_arena_copy(&ds->arena, path);
    ds->info.classes = ds->classes =
        wf_arena_array(&ds->arena, WF_DATA_FOLDERS, struct wf_data_class);
    for (int i = 0; i < WF_DATA_FOLDERS; i++)
        ds->classes[i] = (struct wf_data_class){ .first = i, .last = i, .color = -1 };
    return ds;
}

static void settle_texts(struct wf_dataset *ds)
{
    static const char *const none[] = { NULL };
    ds->info.notes = ds->notes.items ? ds->notes.items : none;
    ds->info.problem_texts = ds->problems.items ? ds->problems.items : none;
    ds->info.problems = (int64_t)ds->problems.count;
}

struct wf_dataset *wf_dataset_of_arrays(const struct wf_arrays *arrays, struct wf_err *err)
{
    struct wf_dataset *const ds = dataset_new("arrays");
    struct wf_arrays *const own = wf_arena_one(&ds->arena, struct wf_arrays);
    *own = *arrays;
    ds->arrays = own;
    const bool ok = wf_memory_list(ds, err);
    settle_texts(ds);
    if (ok)
        return ds;
    wf_dataset_free(ds);
    return NULL;
}

struct wf_dataset *wf_dataset_open(const char *path, const struct wf_dataset_options *options,
                                   struct wf_err *err)
{
    struct wf_dataset *const ds = dataset_new(path);
    ds->align = options->align;
    ds->alpha = options->alpha;
    ds->wanted = options->channels;
    ds->info.features = options->features;
    ds->points = options->points;
    ds->layout_given = options->layout != WF_LAYOUT_AUTO;
    const bool ok = open_all(ds, options, err);
    settle_texts(ds);
    if (ok && options->cache != 0 && !ds->info.is_cloud)
        ds->keep = wf_keep_new(ds->info.samples, options->cache);
    if (ok)
        return ds;
    wf_dataset_free(ds);
    return NULL;
}

void wf_dataset_free(struct wf_dataset *ds)
{
    if (!ds)
        return;
    free(ds->moved);
    wf_keep_free(ds->keep);
    free(ds->entries);
    free(ds->notes.items);
    free(ds->problems.items);
    wf_arena_release(&ds->arena);
    free(ds);
}

/* --- asking --- */

const struct wf_dataset_info *wf_dataset_info(const struct wf_dataset *ds)
{
    return &ds->info;
}

const struct wf_data_sample *wf_dataset_sample(const struct wf_dataset *ds, int64_t index)
{
    WF_BUG_ON(index < 0 || index >= ds->info.samples, "sample %" PRId64 " of %" PRId64, index,
              ds->info.samples);
    return &ds->entries[index].sample;
}

struct wf_region wf_dataset_extent(const struct wf_dataset *ds, int64_t index)
{
    struct wf_region r = { 0 };
    memcpy(r.hi, wf_dataset_sample(ds, index)->extent, sizeof r.hi);
    return r;
}

bool wf_dataset_fits(const struct wf_dataset *ds, int64_t channels, int64_t classes,
                     struct wf_err *err)
{
    const struct wf_dataset_info *const info = &ds->info;
    if (channels && info->channels != channels)
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s' has %d channel%s, but the network takes %" PRId64
                          ": set model.in=%d, or convert the images",
                          ds->entries[0].sample.image, info->channels,
                          info->channels == 1 ? "" : "s", channels, info->channels);
    /* One channel of prediction tells two classes apart. */
    const int64_t told = classes == 1 ? 2 : classes;
    if (classes && info->n_classes > told)
        return wf_err_set(
            err, WF_ERR_USAGE,
            "'%s' has labels up to %d, but the network tells %" PRId64
            " classes apart: set model.classes=%d, or merge classes in '%s/classes.txt'",
            info->path, info->n_classes - 1, told, info->n_classes, info->path);
    return true;
}
