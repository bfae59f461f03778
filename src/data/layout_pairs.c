/* NAME.tif beside NAME_masks.tif, all in one folder. */
#include <string.h>

#include "data/dataset_inside.h"

static bool list_images(struct wf_arena *arena, const char *path, struct wf_folder *f,
                        struct wf_err *err)
{
    if (!wf_folder_list(arena, path, f, err))
        return false;
    size_t count = 0;
    for (size_t i = 0; i < f->n_files; i++)
        if (wf_is_image_name(f->files[i]))
            f->files[count++] = f->files[i];
    f->n_files = count;
    return true;
}

static bool probe(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_folder f;
    const bool found = list_images(&arena, path, &f, err) && f.n_files > 0;
    wf_arena_release(&arena);
    return found;
}

/* The masks, by the stem of the image that each belongs to. */
static struct wf_names list_masks(struct wf_arena *arena, const struct wf_folder *f)
{
    struct wf_names masks = { .items = wf_arena_array(arena, f->n_files + 1, struct wf_named) };
    for (size_t i = 0; i < f->n_files; i++) {
        const char *const of = wf_mask_stem(arena, wf_stem(arena, f->files[i]));
        if (of)
            masks.items[masks.count++] = (struct wf_named){ .stem = of, .name = f->files[i] };
    }
    wf_names_sort(&masks);
    return masks;
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    struct wf_folder f;
    if (!list_images(arena, ds->info.path, &f, err))
        return false;
    const struct wf_names masks = list_masks(arena, &f);
    if (f.n_folders > 0)
        wf_dataset_note(ds, "%zu folder%s beside the images, such as '%s', not looked into",
                        f.n_folders, f.n_folders == 1 ? " is" : "s are", f.folders[0]);
    ds->info.labels = masks.count ? WF_LABELS_PIXEL : WF_LABELS_NONE;
    const char *last = "";
    for (size_t i = 0; i < f.n_files; i++) {
        const char *const stem = wf_stem(arena, f.files[i]);
        if (wf_mask_stem(arena, stem))
            continue;
        struct wf_named *const mask = wf_names_find(&masks, stem);
        struct wf_entry *const e =
            wf_dataset_add(ds, stem, wf_path_join(arena, ds->info.path, f.files[i]),
                           mask ? wf_path_join(arena, ds->info.path, mask->name) : NULL);
        if (mask)
            mask->used = true;
        else if (masks.count)
            wf_dataset_problem(
                ds, e,
                "image '%s' has no mask: expected '%s/%s_masks.*': add it, or take the image out",
                e->sample.image, ds->info.path, stem);
        if (strcmp(stem, last) == 0)
            wf_dataset_problem(ds, e, "two images are called '%s' in '%s': remove one", stem,
                               ds->info.path);
        last = stem;
    }
    for (size_t i = 0; i < masks.count; i++)
        if (!masks.items[i].used)
            wf_dataset_note(ds, "mask '%s' has no image", masks.items[i].name);
    return true;
}

const struct wf_dataset_layout_kind wf_dataset_layout_pairs = {
    .name = "pairs",
    .looks = "NAME.tif with NAME_masks.tif",
    .probe = probe,
    .list = list,
};
