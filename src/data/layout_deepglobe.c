/*
 * DeepGlobe's land cover: ID_sat.jpg with ID_mask.png, all in one folder. Seven colours; the last,
 * unknown, does not count. Its masks are to be rounded: a channel of 128 and more is 255.
 */
#include <string.h>

#include "data/dataset_inside.h"

static const struct {
    const char *name;
    int32_t color;
} classes[] = {
    { "urban", 0x00ffff },   { "agriculture", 0xffff00 }, { "rangeland", 0xff00ff },
    { "forest", 0x00ff00 },  { "water", 0x0000ff },       { "barren", 0xffffff },
    { "unknown", 0x000000 },
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* The ID of "ID_sat.jpg" where `part` is "_sat"; NULL for other names. */
static const char *id_of(struct wf_arena *arena, const char *name, const char *part)
{
    const char *const stem = wf_stem(arena, name);
    const size_t length = strlen(stem), tail = strlen(part);
    if (!wf_is_image_name(name) || length <= tail || strcmp(stem + length - tail, part) != 0)
        return NULL;
    return wf_arena_printf(arena, "%.*s", (int)(length - tail), stem);
}

static bool probe(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_folder f;
    bool found = false;
    if (wf_folder_list(&arena, path, &f, err))
        for (size_t i = 0; i < f.n_files && !found; i++)
            found = id_of(&arena, f.files[i], "_sat") != NULL;
    wf_arena_release(&arena);
    return found;
}

static void set_classes(struct wf_dataset *ds)
{
    for (int i = 0; i < CLASSES; i++) {
        wf_dataset_name_class(ds, i, classes[i].name);
        ds->classes[i].first = ds->classes[i].last = ds->classes[i].color = classes[i].color;
    }
    ds->coded = true;
    ds->info.codes = WF_CODES_COLORS;
    ds->info.has_ignore = true;
    ds->info.ignore = CLASSES - 1;
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    struct wf_folder f;
    if (!wf_folder_list(arena, ds->info.path, &f, err))
        return false;
    struct wf_names masks = { .items = wf_arena_array(arena, f.n_files + 1, struct wf_named) };
    for (size_t i = 0; i < f.n_files; i++) {
        const char *const id = id_of(arena, f.files[i], "_mask");
        if (id)
            masks.items[masks.count++] = (struct wf_named){ .stem = id, .name = f.files[i] };
    }
    wf_names_sort(&masks);
    ds->info.labels = masks.count ? WF_LABELS_PIXEL : WF_LABELS_NONE;
    for (size_t i = 0; i < f.n_files; i++) {
        const char *const id = id_of(arena, f.files[i], "_sat");
        if (!id)
            continue;
        const struct wf_named *const mask = wf_names_find(&masks, id);
        struct wf_entry *const e =
            wf_dataset_add(ds, id, wf_path_join(arena, ds->info.path, f.files[i]),
                           mask ? wf_path_join(arena, ds->info.path, mask->name) : NULL);
        if (!mask && masks.count)
            wf_dataset_problem(
                ds, e,
                "image '%s' has no mask: expected '%s/%s_mask.png': add it, or take the image out",
                e->sample.image, ds->info.path, id);
    }
    if (masks.count)
        set_classes(ds);
    return true;
}

const struct wf_dataset_layout_kind wf_dataset_layout_deepglobe = {
    .name = "deepglobe",
    .looks = "ID_sat.jpg with ID_mask.png",
    .rounds_colors = true,
    .probe = probe,
    .list = list,
};
