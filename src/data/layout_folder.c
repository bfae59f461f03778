/* images/NAME.* with masks/NAME.* (or labels/): the plain way. */
#include <string.h>

#include "data/dataset_inside.h"

static const char *masks_folder(const char *path, struct wf_err *err)
{
    return wf_folder_exists(path, "masks", err) ? "masks" : "labels";
}

static bool probe(const char *path, struct wf_err *err)
{
    return wf_folder_exists(path, "images", err);
}

static struct wf_names list_masks(struct wf_dataset *ds, const struct wf_folder *f)
{
    struct wf_names masks = { .items =
                                  wf_arena_array(&ds->arena, f->n_files + 1, struct wf_named) };
    for (size_t i = 0; i < f->n_files; i++)
        if (wf_is_image_name(f->files[i]))
            masks.items[masks.count++] =
                (struct wf_named){ .stem = wf_stem(&ds->arena, f->files[i]), .name = f->files[i] };
    wf_names_sort(&masks);
    return masks;
}

/* a.png belongs to a.jpg; so does a_mask.png, where there is no a.png. */
static struct wf_named *find_mask(struct wf_dataset *ds, const struct wf_names *masks,
                                  const char *stem)
{
    static const char *const ends[] = { "", "_mask", "_masks", "_label", "_labels", "_seg" };
    struct wf_named *found = NULL;
    for (size_t i = 0; !found && i < sizeof ends / sizeof *ends; i++)
        found = wf_names_find(masks, wf_arena_printf(&ds->arena, "%s%s", stem, ends[i]));
    return found;
}

static void check_masks(struct wf_dataset *ds, const char *folder, const struct wf_names *masks)
{
    for (size_t i = 0; i < masks->count; i++) {
        const struct wf_named *const m = &masks->items[i];
        if (i && strcmp(m->stem, m[-1].stem) == 0)
            wf_dataset_problem(ds, NULL, "masks '%s/%s' and '%s/%s' have one name: remove one",
                               folder, m[-1].name, folder, m->name);
        else if (!m->used)
            wf_dataset_note(ds, "mask '%s/%s' has no image", folder, m->name);
    }
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    const char *const images = wf_path_join(&ds->arena, ds->info.path, "images");
    const char *const folder = masks_folder(ds->info.path, err);
    const bool has_masks = wf_folder_exists(ds->info.path, folder, err);
    const char *const where = wf_path_join(&ds->arena, ds->info.path, folder);
    struct wf_folder from, with = { 0 };
    if (!wf_folder_list(&ds->arena, images, &from, err) ||
        (has_masks && !wf_folder_list(&ds->arena, where, &with, err)))
        return false;
    ds->info.labels = has_masks ? WF_LABELS_PIXEL : WF_LABELS_NONE;
    struct wf_names masks = list_masks(ds, &with);
    const char *last = "";
    for (size_t i = 0; i < from.n_files; i++) {
        if (!wf_is_image_name(from.files[i])) {
            wf_dataset_note(ds, "'images/%s' is no image that is known", from.files[i]);
            continue;
        }
        const char *const stem = wf_stem(&ds->arena, from.files[i]);
        struct wf_named *const mask = find_mask(ds, &masks, stem);
        struct wf_entry *const e =
            wf_dataset_add(ds, stem, wf_path_join(&ds->arena, images, from.files[i]),
                           mask ? wf_path_join(&ds->arena, where, mask->name) : NULL);
        if (mask)
            mask->used = true;
        else if (has_masks)
            wf_dataset_problem(
                ds, e, "image '%s' has no mask: expected '%s/%s.*': add it, or take the image out",
                e->sample.image, where, stem);
        if (strcmp(stem, last) == 0)
            wf_dataset_problem(ds, e, "two images are called '%s' in '%s': remove one", stem,
                               images);
        last = stem;
    }
    check_masks(ds, folder, &masks);
    return true;
}

const struct wf_layout_kind wf_layout_folder = {
    .name = "folder",
    .looks = "images/ and masks/ with the same names",
    .probe = probe,
    .list = list,
};
