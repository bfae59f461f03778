/*
 * Point clouds, in three layouts:
 *
 *   clouds         NAME.ply ..., also in train/ and val/ (test/ where there is no val/): a label for each point, in
 *                  the file or beside it (NAME.label, NAME_labels.npy, NAME.txt, or NAME.* in labels/)
 *   cloud_classes  CLASS/NAME.off ..., train/CLASS/ and test/CLASS/, or CLASS/train/ and CLASS/test/ as ModelNet
 *                  has them: a label for each cloud
 *   kitti          sequences/NN/velodyne/NAME.bin and sequences/NN/labels/NAME.label; sequence 08 is for
 *                  validation
 */
#include <string.h>
#include <strings.h>

#include "cloud/cloud.h"
#include "data/clouds.h"
#include "data/dataset_inside.h"

static const char *const held_out[] = { "val", "valid", "validation", "test", "testing", NULL };

/* Arrays are images as well, and .bin is anything: such clouds are named by data.format. */
static bool is_plain(const char *name)
{
    const char *const dot = strrchr(name, '.');
    return wf_cloud_is_name(name) && dot && strcasecmp(dot, ".npy") != 0 &&
           strcasecmp(dot, ".bin") != 0;
}

static bool has_clouds(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    struct wf_folder f;
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    for (size_t i = 0; i < f.n_files; i++)
        if (is_plain(f.files[i]))
            return true;
    return false;
}

/* --- a label for each point --- */

static bool probe_clouds(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const bool found = has_clouds(&arena, path, err) ||
                       (wf_folder_exists(path, "train", err) &&
                        has_clouds(&arena, wf_path_join(&arena, path, "train"), err));
    wf_arena_release(&arena);
    return found;
}

/* The labels beside a cloud, or NULL. */
static const char *find_labels(struct wf_arena *arena, const char *folder, const char *stem,
                               struct wf_err *err)
{
    static const char *const forms[] = { "%s.label",        "%s_labels.npy",
                                         "%s.labels.npy",   "%s.txt",
                                         "labels/%s.label", "labels/%s.npy",
                                         "labels/%s.txt",   NULL };
    for (int i = 0; forms[i]; i++) {
        const char *const mark = strstr(forms[i], "%s");
        const char *const name =
            wf_arena_printf(arena, "%.*s%s%s", (int)(mark - forms[i]), forms[i], stem, mark + 2);
        if (wf_file_exists(folder, name, err))
            return wf_path_join(arena, folder, name);
    }
    return NULL;
}

static bool is_label_file(const char *name)
{
    const size_t n = strlen(name);
    return n > 11 && (strcasecmp(name + n - 11, "_labels.npy") == 0 ||
                      strcasecmp(name + n - 11, ".labels.npy") == 0);
}

static bool list_part(struct wf_dataset *ds, const char *part, bool is_held_out, struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    const char *const path = *part ? wf_path_join(arena, ds->info.path, part) : ds->info.path;
    struct wf_folder f;
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    for (size_t i = 0; i < f.n_files; i++) {
        if (!wf_cloud_is_name(f.files[i]) || is_label_file(f.files[i]))
            continue;
        const char *const dot = strrchr(f.files[i], '.');
        const char *const stem =
            wf_arena_printf(arena, "%.*s", (int)(dot - f.files[i]), f.files[i]);
        struct wf_entry *const e = wf_dataset_add(
            ds, *part ? wf_path_join(arena, part, f.files[i]) : f.files[i],
            wf_path_join(arena, path, f.files[i]), find_labels(arena, path, stem, err));
        e->sample.held_out = is_held_out;
    }
    return !err->code;
}

/* The first of val/, test/ ... that is there is held out. */
static const char *find_held_out(const char *path, struct wf_err *err)
{
    for (int i = 0; held_out[i]; i++)
        if (wf_folder_exists(path, held_out[i], err))
            return held_out[i];
    return NULL;
}

static bool list_clouds(struct wf_dataset *ds, struct wf_err *err)
{
    ds->info.labels = WF_LABELS_PIXEL;
    if (!wf_folder_exists(ds->info.path, "train", err))
        return !err->code && list_part(ds, "", false, err);
    const char *const other = find_held_out(ds->info.path, err);
    return list_part(ds, "train", false, err) && (!other || list_part(ds, other, true, err));
}

/* --- a label for each cloud --- */

static bool list_class(struct wf_dataset *ds, const char *inner, int label, bool is_held_out,
                       struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    const char *const path = wf_path_join(arena, ds->info.path, inner);
    struct wf_folder f;
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    for (size_t i = 0; i < f.n_files; i++) {
        if (!wf_cloud_is_name(f.files[i]))
            continue;
        struct wf_entry *const e = wf_dataset_add(ds, wf_path_join(arena, inner, f.files[i]),
                                                  wf_path_join(arena, path, f.files[i]), NULL);
        e->sample.label = label;
        e->sample.held_out = is_held_out;
        if (label < 0)
            wf_dataset_problem(ds, e, "'%s': no such class among the training clouds", path);
    }
    return true;
}

static int class_of(const struct wf_dataset *ds, const char *name)
{
    for (int i = 0; i < ds->named; i++)
        if (strcmp(ds->classes[i].name, name) == 0)
            return i;
    return -1;
}

/* Folders of classes in `part`, with names where they are the training ones. */
static bool list_folders(struct wf_dataset *ds, const char *part, bool is_held_out,
                         struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    struct wf_folder f;
    if (!wf_folder_list(arena, *part ? wf_path_join(arena, ds->info.path, part) : ds->info.path, &f,
                        err))
        return false;
    if (f.n_folders > WF_DATA_FOLDERS)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has more than %d classes", ds->info.path,
                          WF_DATA_FOLDERS);
    for (size_t i = 0; !is_held_out && i < f.n_folders; i++)
        wf_dataset_name_class(ds, (int)i, f.folders[i]);
    for (size_t i = 0; i < f.n_folders; i++) {
        const char *const inner = *part ? wf_path_join(arena, part, f.folders[i]) : f.folders[i];
        const char *const whole = wf_path_join(arena, ds->info.path, inner);
        const int label = class_of(ds, f.folders[i]);
        const bool parts = wf_folder_exists(whole, "train", err);
        const char *const other = parts ? find_held_out(whole, err) : NULL;
        if (!list_class(ds, parts ? wf_path_join(arena, inner, "train") : inner, label, is_held_out,
                        err) ||
            (other && !list_class(ds, wf_path_join(arena, inner, other), label, true, err)))
            return false;
    }
    return !err->code;
}

static bool list_classes(struct wf_dataset *ds, struct wf_err *err)
{
    ds->info.labels = WF_LABELS_IMAGE;
    const char *const other = find_held_out(ds->info.path, err);
    if (!wf_folder_exists(ds->info.path, "train", err))
        return !err->code && list_folders(ds, "", false, err);
    return list_folders(ds, "train", false, err) && (!other || list_folders(ds, other, true, err));
}

static bool has_class_folders(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    struct wf_folder f;
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    for (size_t i = 0; i < f.n_folders; i++) {
        const char *const inner = wf_path_join(arena, path, f.folders[i]);
        if (wf_is_part_folder(f.folders[i]))
            continue;
        if (has_clouds(arena, inner, err) ||
            (wf_folder_exists(inner, "train", err) &&
             has_clouds(arena, wf_path_join(arena, inner, "train"), err)))
            return true;
    }
    return false;
}

static bool probe_classes(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const bool found = has_class_folders(&arena, path, err) ||
                       (wf_folder_exists(path, "train", err) &&
                        has_class_folders(&arena, wf_path_join(&arena, path, "train"), err));
    wf_arena_release(&arena);
    return found;
}

/* --- KITTI --- */

static const char *sequences_of(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    return wf_folder_exists(path, "sequences", err)
               ? wf_path_join(arena, path, "sequences")
               : (wf_folder_exists(wf_path_join(arena, path, "dataset"), "sequences", err)
                      ? wf_path_join(arena, path, "dataset/sequences")
                      : NULL);
}

static bool probe_kitti(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const bool found = sequences_of(&arena, path, err) != NULL;
    wf_arena_release(&arena);
    return found;
}

static bool list_sequence(struct wf_dataset *ds, const char *all, const char *number,
                          struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    const char *const path = wf_path_join(arena, all, number);
    const char *const scans = wf_path_join(arena, path, "velodyne");
    struct wf_folder f;
    const bool labelled = wf_folder_exists(path, "labels", err);
    if (err->code || !wf_folder_exists(path, "velodyne", err) || !labelled)
        return !err->code; /* the sequences for testing have no labels */
    if (!wf_folder_list(arena, scans, &f, err))
        return false;
    for (size_t i = 0; i < f.n_files; i++) {
        const char *const dot = strrchr(f.files[i], '.');
        if (!dot || strcmp(dot, ".bin") != 0)
            continue;
        const char *const mask = wf_arena_printf(arena, "%s/labels/%.*s.label", path,
                                                 (int)(dot - f.files[i]), f.files[i]);
        struct wf_entry *const e =
            wf_dataset_add(ds, wf_arena_printf(arena, "%s/%s", number, f.files[i]),
                           wf_path_join(arena, scans, f.files[i]), mask);
        e->sample.held_out = strcmp(number, "08") == 0;
    }
    return true;
}

static bool list_kitti(struct wf_dataset *ds, struct wf_err *err)
{
    const char *const all = sequences_of(&ds->arena, ds->info.path, err);
    struct wf_folder f;
    ds->info.labels = WF_LABELS_PIXEL;
    if (!all)
        return err->code
                   ? false
                   : wf_err_set(err, WF_ERR_INPUT, "'%s' has no folder 'sequences'", ds->info.path);
    if (!wf_folder_list(&ds->arena, all, &f, err))
        return false;
    for (size_t i = 0; i < f.n_folders; i++)
        if (!list_sequence(ds, all, f.folders[i], err))
            return false;
    return true;
}

/* --- files to predict --- */

bool wf_clouds_find(struct wf_arena *arena, const char *path, const char *const **paths,
                    size_t *count, struct wf_err *err)
{
    const bool is_folder = wf_path_is_folder(path, err);
    struct wf_folder f = { 0 };
    if (err->code || (is_folder && !wf_folder_list(arena, path, &f, err)))
        return false;
    const char **const found = wf_arena_array(arena, f.n_files + 1, const char *);
    *paths = found;
    *count = 0;
    if (!is_folder)
        found[(*count)++] = path;
    for (size_t i = 0; i < f.n_files; i++)
        if (wf_cloud_is_name(f.files[i]) && !is_label_file(f.files[i]))
            found[(*count)++] = wf_path_join(arena, path, f.files[i]);
    return *count > 0 ||
           wf_err_set(err, WF_ERR_INPUT,
                      "folder '%s' has no point clouds: give files, or the folder that "
                      "they lie in",
                      path);
}

const struct wf_dataset_layout_kind wf_dataset_layout_clouds = {
    .name = "clouds",
    .looks = "point clouds, NAME.ply, also in train/ and val/",
    .clouds = true,
    .probe = probe_clouds,
    .list = list_clouds,
};
const struct wf_dataset_layout_kind wf_dataset_layout_cloud_classes = {
    .name = "cloud_classes",
    .looks = "a folder for each class with clouds or meshes, CLASS/NAME.off",
    .clouds = true,
    .probe = probe_classes,
    .list = list_classes,
};
const struct wf_dataset_layout_kind wf_dataset_layout_kitti = {
    .name = "kitti",
    .looks = "sequences/00/velodyne/*.bin and sequences/00/labels/*.label",
    .clouds = true,
    .probe = probe_kitti,
    .list = list_kitti,
};
