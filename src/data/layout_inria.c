/* Inria's aerial images: images/CITY<number>.tif with gt/CITY<number>.tif, 0 and 255. The first five of
 * each city are kept for validation, as the dataset's authors do. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_inside.h"

enum { HELD_OUT = 5 };

/* Where the number at the end of a stem begins. */
static const char *digits_of(const char *stem)
{
    const char *end = stem + strlen(stem);
    while (end > stem && isdigit((unsigned char)end[-1]))
        end--;
    return end;
}

/* The number at the end of a stem; 0: none. */
static long number_of(const char *stem)
{
    return strtol(digits_of(stem), NULL, 10);
}

static bool is_city(const char *stem)
{
    static const char *const cities[] = { "austin",    "bellingham", "bloomington", "chicago",
                                          "innsbruck", "kitsap",     "sfo",         "tyrol-e",
                                          "tyrol-w",   "vienna" };
    const size_t n = (size_t)(digits_of(stem) - stem);
    for (size_t i = 0; i < sizeof cities / sizeof *cities; i++)
        if (strlen(cities[i]) == n && strncmp(stem, cities[i], n) == 0 && stem[n])
            return true;
    return false;
}

/* images/ and gt/ may be anybody's: only the names of the cities tell. */
static bool probe(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_folder f;
    bool found = wf_folder_exists(path, "images", err) && wf_folder_exists(path, "gt", err) &&
                 wf_folder_list(&arena, wf_path_join(&arena, path, "images"), &f, err) &&
                 f.n_files > 0;
    for (size_t i = 0; found && i < f.n_files; i++)
        found = !wf_is_image_name(f.files[i]) || is_city(wf_stem(&arena, f.files[i]));
    wf_arena_release(&arena);
    return found;
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    const char *const images = wf_path_join(arena, ds->info.path, "images");
    const char *const truth = wf_path_join(arena, ds->info.path, "gt");
    struct wf_folder from, with;
    if (!wf_folder_list(arena, images, &from, err) || !wf_folder_list(arena, truth, &with, err))
        return false;
    ds->info.labels = WF_LABELS_PIXEL;
    struct wf_names masks = { .items = wf_arena_array(arena, with.n_files + 1, struct wf_named) };
    for (size_t i = 0; i < with.n_files; i++)
        if (wf_is_image_name(with.files[i]))
            masks.items[masks.count++] =
                (struct wf_named){ .stem = wf_stem(arena, with.files[i]), .name = with.files[i] };
    wf_names_sort(&masks);
    for (size_t i = 0; i < from.n_files; i++) {
        if (!wf_is_image_name(from.files[i]))
            continue;
        const char *const stem = wf_stem(arena, from.files[i]);
        const struct wf_named *const mask = wf_names_find(&masks, stem);
        const long number = number_of(stem);
        struct wf_entry *const e =
            wf_dataset_add(ds, stem, wf_path_join(arena, images, from.files[i]),
                           mask ? wf_path_join(arena, truth, mask->name) : NULL);
        e->sample.held_out = number >= 1 && number <= HELD_OUT;
        if (!mask)
            wf_dataset_problem(
                ds, e,
                "image '%s' has no mask: expected '%s/%s.tif': add it, or take the image out",
                e->sample.image, truth, stem);
    }
    return true;
}

const struct wf_dataset_layout_kind wf_dataset_layout_inria = {
    .name = "inria",
    .looks = "images/austin1.tif and gt/austin1.tif",
    .probe = probe,
    .list = list,
};
