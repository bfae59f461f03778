/*
 * nnU-Net's raw layout: imagesTr/CASE_0000.nii.gz, CASE_0001.nii.gz, ... (a file for each channel),
 * labelsTr/CASE.nii.gz, and dataset.json with the names of channels and labels, in the form of version 1
 * ("0": "background") or 2 ("background": 0). One file CASE_0000.png may hold all channels, as nnU-Net has
 * RGB pictures. The Medical Segmentation Decathlon's is the same without _0000: channels are the fourth
 * axis of the volume.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_inside.h"

static bool probe(const char *path, struct wf_err *err)
{
    return wf_folder_exists(path, "imagesTr", err);
}

static const cJSON *member(const cJSON *json, const char *a, const char *b)
{
    const cJSON *const found = cJSON_GetObjectItemCaseSensitive(json, a);
    return found ? found : cJSON_GetObjectItemCaseSensitive(json, b);
}

/* One label of either version: its number and its name; false where it is neither. */
static bool read_label(const cJSON *item, int64_t *id, const char **name)
{
    if (cJSON_IsNumber(item)) {
        *id = item->valuedouble >= 0 && item->valuedouble < 1e9 ? (int64_t)item->valuedouble : -1;
        *name = item->string;
        return *id >= 0;
    }
    char *end;
    *id = strtoll(item->string, &end, 10);
    *name = cJSON_GetStringValue(item);
    return *name && *end == '\0' && end != item->string && *id >= 0;
}

static bool read_labels(struct wf_dataset *ds, const cJSON *json, const char *path,
                        struct wf_err *err)
{
    const cJSON *const labels = cJSON_GetObjectItemCaseSensitive(json, "labels");
    if (!cJSON_IsObject(labels) || !labels->child)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has no 'labels'", path);
    for (const cJSON *item = labels->child; item; item = item->next) {
        int64_t id;
        const char *name;
        if (cJSON_IsArray(item))
            return wf_err_set(err, WF_ERR_INPUT,
                              "'%s': label '%s' is a region of several classes, which is not "
                              "supported: give each class a number of its own",
                              path, item->string);
        if (!read_label(item, &id, &name))
            return wf_err_set(err, WF_ERR_INPUT, "'%s': label '%s' is no number with a name", path,
                              item->string);
        if (strcmp(name, "ignore") == 0) {
            wf_dataset_note(ds, "label %" PRId64 " is called 'ignore': set train.ignore=%" PRId64,
                            id, id);
            continue;
        }
        if (id >= WF_DATA_CLASSES)
            return wf_err_set(err, WF_ERR_INPUT, "'%s': label %" PRId64 " is past %d", path, id,
                              WF_DATA_CLASSES - 1);
        wf_dataset_name_class(ds, (int)id, name);
    }
    return true;
}

struct nnunet {
    const char *ending; /* of the files */
    int channels;       /* files of each case */
};

static bool read_json(struct wf_dataset *ds, struct nnunet *n, struct wf_err *err)
{
    const char *const path = wf_path_join(&ds->arena, ds->info.path, "dataset.json");
    if (!wf_file_exists(ds->info.path, "dataset.json", err))
        return !err->code &&
               wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has imagesTr/ but no dataset.json: write one with channel_names, "
                          "labels and file_ending, as nnU-Net wants it",
                          ds->info.path);
    char *const text = wf_read_text(path, err);
    if (!text)
        return false;
    cJSON *const json = cJSON_Parse(text);
    free(text);
    bool ok = cJSON_IsObject(json) || wf_err_set(err, WF_ERR_INPUT, "'%s' is not valid JSON", path);
    if (ok) {
        const cJSON *const channels = member(json, "channel_names", "modality");
        const char *const ending =
            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "file_ending"));
        n->channels = cJSON_GetArraySize(channels);
        n->ending = wf_arena_copy(&ds->arena, ending ? ending : ".nii.gz");
        ok = n->channels > 0 ||
             wf_err_set(err, WF_ERR_INPUT, "'%s' has no 'channel_names' (or 'modality')", path);
        if (n->channels > WF_DATA_CHANNELS)
            ok = wf_err_set(err, WF_ERR_INPUT, "'%s' has %d channels: at most %d are read", path,
                            n->channels, WF_DATA_CHANNELS);
        ok = ok && read_labels(ds, json, path, err);
    }
    cJSON_Delete(json);
    return ok;
}

/* "CASE_0000.nii.gz" is "CASE"; NULL for other channels and other files. */
static const char *case_of(struct wf_arena *arena, const char *name, const char *ending)
{
    static const char first[] = "_0000";
    const size_t n = strlen(name), e = strlen(ending), f = sizeof first - 1;
    if (n <= e + f || strcmp(name + n - e, ending) != 0 || strncmp(name + n - e - f, first, f) != 0)
        return NULL;
    return wf_arena_printf(arena, "%.*s", (int)(n - e - f), name);
}

/* The channels that a file has, 0 where it cannot be read. */
static int channels_in(const char *path)
{
    struct wf_err ignored = { 0 };
    struct wf_raster *const r = wf_raster_open(path, &ignored);
    const int channels = r ? wf_image_channels(wf_raster_info(r), WF_ALPHA_DROP, 0) : 0;
    wf_raster_close(r);
    return channels;
}

static void check_mask(struct wf_dataset *ds, struct wf_entry *e, const char *mask,
                       struct wf_err *err)
{
    if (!wf_file_exists(ds->info.path, mask, err))
        wf_dataset_problem(ds, e,
                           "image '%s' has no mask: expected '%s': add it, or take the image out",
                           e->sample.image, e->sample.mask);
}

/* Without _0000: one file with all channels. */
static void add_volume(struct wf_dataset *ds, const struct nnunet *n, const char *file,
                       struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    const char *const mask = wf_arena_printf(arena, "labelsTr/%s", file);
    const char *const image =
        wf_path_join(arena, ds->info.path, wf_arena_printf(arena, "imagesTr/%s", file));
    const size_t length = strlen(file) - strlen(n->ending);
    struct wf_entry *const e = wf_dataset_add(ds, wf_arena_printf(arena, "%.*s", (int)length, file),
                                              image, wf_path_join(arena, ds->info.path, mask));
    const int channels = channels_in(image);
    if (channels && channels != n->channels)
        wf_dataset_problem(ds, e,
                           "'%s' has %d channel%s, but dataset.json names %d: are its files called "
                           "CASE_0000%s, CASE_0001%s?",
                           image, channels, channels == 1 ? "" : "s", n->channels, n->ending,
                           n->ending);
    check_mask(ds, e, mask, err);
}

static void add_case(struct wf_dataset *ds, const struct nnunet *n, const char *name,
                     struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    const char **const files = wf_arena_array(arena, n->channels, const char *);
    int missing = -1, count = n->channels;
    for (int c = n->channels - 1; c >= 0; c--) {
        const char *const file = wf_arena_printf(arena, "imagesTr/%s_%04d%s", name, c, n->ending);
        files[c] = wf_path_join(arena, ds->info.path, file);
        if (!wf_file_exists(ds->info.path, file, err))
            missing = c;
    }
    const char *const mask = wf_arena_printf(arena, "labelsTr/%s%s", name, n->ending);
    const char *const path = wf_path_join(arena, ds->info.path, mask);
    /* A picture in colour is one file. */
    if (missing == 1 && channels_in(files[0]) == n->channels) {
        missing = -1;
        count = 1;
    }
    struct wf_entry *const e = wf_dataset_add(ds, name, files[0], path);
    wf_dataset_set_files(ds, e, files, count);
    if (missing >= 0)
        wf_dataset_problem(ds, e, "'%s' is missing: dataset.json names %d channels", files[missing],
                           n->channels);
    check_mask(ds, e, mask, err);
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), e = strlen(ending);
    return n > e && strcmp(name + n - e, ending) == 0;
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    struct nnunet n = { .ending = "" };
    struct wf_folder f;
    if (!read_json(ds, &n, err) ||
        !wf_folder_list(&ds->arena, wf_path_join(&ds->arena, ds->info.path, "imagesTr"), &f, err))
        return false;
    ds->info.labels = WF_LABELS_PIXEL;
    for (size_t i = 0; i < f.n_files; i++) {
        const char *const name = case_of(&ds->arena, f.files[i], n.ending);
        if (name)
            add_case(ds, &n, name, err);
    }
    const bool numbered = ds->info.samples > 0;
    for (size_t i = 0; !numbered && i < f.n_files; i++)
        if (ends_with(f.files[i], n.ending))
            add_volume(ds, &n, f.files[i], err);
    wf_dataset_why(ds, "imagesTr/, labelsTr/ and dataset.json, %s",
                   numbered ? "files CASE_0000, ... as nnU-Net names them"
                            : "files without _0000, as the Medical Segmentation Decathlon's");
    if (ds->info.samples == 0)
        return wf_err_set(
            err, WF_ERR_INPUT,
            "'%s/imagesTr' has no files that end with '%s', as dataset.json says they "
            "do: correct its 'file_ending'",
            ds->info.path, n.ending);
    return true;
}

const struct wf_dataset_layout_kind wf_dataset_layout_nnunet = {
    .name = "nnunet",
    .looks = "imagesTr/, labelsTr/ and dataset.json",
    .probe = probe,
    .list = list,
};
