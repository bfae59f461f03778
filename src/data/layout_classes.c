/* A folder for each class, or train/ and test/ (val/) with such folders: a label for each image. */
#include <string.h>

#include "data/dataset_inside.h"

static bool has_images(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    struct wf_folder f;
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    for (size_t i = 0; i < f.n_files; i++)
        if (wf_is_image_name(f.files[i]))
            return true;
    return false;
}

static bool has_classes(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    struct wf_folder f;
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    for (size_t i = 0; i < f.n_folders; i++)
        if (has_images(arena, wf_path_join(arena, path, f.folders[i]), err))
            return true;
    return false;
}

static bool probe(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const bool found = has_classes(&arena, path, err) ||
                       (wf_folder_exists(path, "train", err) &&
                        has_classes(&arena, wf_path_join(&arena, path, "train"), err));
    wf_arena_release(&arena);
    return found;
}

/* The class of a folder's name; -1: not one of them. */
static int class_of(const struct wf_dataset *ds, const char *name)
{
    for (int i = 0; i < ds->named; i++)
        if (strcmp(ds->classes[i].name, name) == 0)
            return i;
    return -1;
}

static bool list_class(struct wf_dataset *ds, const char *part, const char *folder, bool held_out,
                       struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    const char *const inner = part ? wf_path_join(arena, part, folder) : folder;
    const char *const path = wf_path_join(arena, ds->info.path, inner);
    struct wf_folder f;
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    const int label = class_of(ds, folder);
    for (size_t i = 0; i < f.n_files; i++) {
        if (!wf_is_image_name(f.files[i]))
            continue;
        struct wf_entry *const e = wf_dataset_add(ds, wf_path_join(arena, inner, f.files[i]),
                                                  wf_path_join(arena, path, f.files[i]), NULL);
        e->sample.label = label;
        e->sample.held_out = held_out;
        if (label < 0)
            wf_dataset_problem(ds, e, "'%s': no class '%s' among the training images", path,
                               folder);
    }
    return true;
}

static struct wf_names stems_of(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    struct wf_folder f;
    struct wf_names names = { 0 };
    if (!wf_folder_list(arena, path, &f, err))
        return names;
    names.items = wf_arena_array(arena, f.n_files, struct wf_named);
    for (size_t i = 0; i < f.n_files; i++)
        if (wf_is_image_name(f.files[i]))
            names.items[names.count++] =
                (struct wf_named){ .stem = wf_stem(arena, f.files[i]), .name = f.files[i] };
    wf_names_sort(&names);
    return names;
}

/* Does each file of `masks` have an image of its name in `images`? */
static bool pair_up(struct wf_arena *arena, const char *masks, const char *images,
                    struct wf_err *err)
{
    const struct wf_names m = stems_of(arena, masks, err), n = stems_of(arena, images, err);
    for (size_t i = 0; i < m.count; i++) {
        const char *const of = wf_mask_stem(arena, m.items[i].stem);
        if (!wf_names_find(&n, m.items[i].stem) && !(of && wf_names_find(&n, of)))
            return false;
    }
    return m.count > 0;
}

/* The folder whose images the masks of folder `name` belong to, or NULL: many classes are called like
 * masks (with_mask, target), so files must pair up too. */
static const char *images_of(struct wf_arena *arena, const char *path, const struct wf_folder *f,
                             const char *name, struct wf_err *err)
{
    const char *const bare = wf_mask_stem(arena, name);
    if (!bare && !wf_is_mask_folder(name))
        return NULL;
    for (size_t i = 0; i < f->n_folders; i++) {
        const char *const other = f->folders[i];
        const bool may_be = bare ? strcmp(other, bare) == 0
                                 : !wf_is_mask_folder(other) && !wf_mask_stem(arena, other);
        if (may_be &&
            pair_up(arena, wf_path_join(arena, path, name), wf_path_join(arena, path, other), err))
            return other;
    }
    return NULL;
}

/* Folders that are not classes, unless the user says so: parts of a set that have no folder for each
 * class, and masks. */
static bool check_names(const char *path, const struct wf_folder *f, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    bool ok = true;
    for (size_t i = 0; ok && i < f->n_folders; i++) {
        const char *const name = f->folders[i];
        if (wf_is_part_folder(name)) {
            ok = wf_err_set(err, WF_ERR_INPUT,
                            "'%s/%s' is a part of a dataset, but has neither images/ and masks/ "
                            "nor a folder for each class in it: if it is a class, set "
                            "data.format=classes",
                            path, name);
            continue;
        }
        const char *const images = images_of(&arena, path, f, name, err);
        if (images)
            ok = wf_err_set(err, WF_ERR_INPUT,
                            "'%s/%s' looks like the masks of '%s': call these folders 'masks' and "
                            "'images', or set data.format=classes if they are classes",
                            path, name, images);
    }
    wf_arena_release(&arena);
    return ok && !err->code;
}

static bool list_part(struct wf_dataset *ds, const char *part, bool held_out, struct wf_err *err)
{
    const char *const path = part ? wf_path_join(&ds->arena, ds->info.path, part) : ds->info.path;
    struct wf_folder f;
    if (!wf_folder_list(&ds->arena, path, &f, err))
        return false;
    if (!held_out && !ds->layout_given && !check_names(path, &f, err))
        return false;
    if (!held_out) {
        if (f.n_folders > WF_DATA_FOLDERS)
            return wf_err_set(err, WF_ERR_INPUT, "'%s' has %zu folders: at most %d classes", path,
                              f.n_folders, WF_DATA_FOLDERS);
        for (size_t i = 0; i < f.n_folders; i++)
            wf_dataset_name_class(ds, (int)i, f.folders[i]);
    }
    bool ok = true;
    for (size_t i = 0; ok && i < f.n_folders; i++)
        ok = list_class(ds, part, f.folders[i], held_out, err);
    return ok;
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    static const char *const held_out[] = { "test", "val", "valid", "validation" };
    ds->info.labels = WF_LABELS_IMAGE;
    if (!wf_folder_exists(ds->info.path, "train", err) ||
        !has_classes(&ds->arena, wf_path_join(&ds->arena, ds->info.path, "train"), err))
        return list_part(ds, NULL, false, err);
    bool ok = list_part(ds, "train", false, err);
    for (size_t i = 0; ok && i < sizeof held_out / sizeof *held_out; i++)
        if (wf_folder_exists(ds->info.path, held_out[i], err))
            ok = list_part(ds, held_out[i], true, err);
    return ok;
}

const struct wf_dataset_layout_kind wf_dataset_layout_classes = {
    .name = "classes",
    .looks = "a folder of images for each class, or such folders in train/ and test/",
    .probe = probe,
    .list = list,
};
