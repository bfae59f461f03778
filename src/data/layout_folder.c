/*
 * Images in one folder, masks of the same names in another: the plain way, under any of the names
 * that people give them, and in parts (train/, val/) above or below these folders.
 *
 *   images/a.png      masks/a.png            also img/ and mask/, Images/ and Labels/, ...
 *   images/x/a.png    masks/x/a.png          sub-folders are followed
 *   images/val/a.png  masks/val/a.png        beside images/train/: held out
 *   train/images/...  val/images/...         val/ is held out; test/ where there is no val/
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_inside.h"

enum { DEPTH = 16 /* of folders in folders */ };

static const char *const image_names[] = {
    "images", "image", "imgs", "img", "inputs", "input", NULL
};
static const char *const mask_names[] = {
    "masks",       "mask",          "labels",       "label",
    "annotations", "annotation",    "groundtruth",  "groundtruths",
    "gt",          "segmentations", "segmentation", "seg",
    "segs",        "targets",       "target",       NULL
};
static const char *const train_names[] = { "train", "training", NULL };
static const char *const valid_names[] = { "val", "valid", "validation", NULL };
static const char *const test_names[] = { "test", "testing", NULL };

/* Letters and digits are the same, in whatever case: "Ground_Truth" is "groundtruth". */
static bool is_called(const char *name, const char *plain)
{
    for (; *name; name++) {
        if (!isalnum((unsigned char)*name))
            continue;
        if (tolower((unsigned char)*name) != *plain)
            return false;
        plain++;
    }
    return *plain == '\0';
}

static bool is_one_of(const char *name, const char *const names[])
{
    for (; *names; names++)
        if (is_called(name, *names))
            return true;
    return false;
}

bool wf_is_mask_folder(const char *name)
{
    return is_one_of(name, mask_names);
}

bool wf_is_part_folder(const char *name)
{
    return is_one_of(name, train_names) || is_one_of(name, valid_names) ||
           is_one_of(name, test_names);
}

/* The folder that has one of the names, the first of them before the others; or NULL. */
static const char *find(const struct wf_folder *f, const char *const names[])
{
    for (; *names; names++)
        for (size_t i = 0; i < f->n_folders; i++)
            if (is_called(f->folders[i], *names))
                return f->folders[i];
    return NULL;
}

/* Images and masks of a folder, by their names. */
struct pair {
    const char *images, *masks; /* or NULL */
};

static bool find_pair(struct wf_arena *arena, const char *path, struct pair *p, struct wf_err *err)
{
    struct wf_folder f;
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    p->images = find(&f, image_names);
    p->masks = find(&f, mask_names);
    /* "input" may be anything where nothing beside it is named like masks. */
    if (p->images && !p->masks && !is_called(p->images, "images") && f.n_folders > 1)
        p->images = NULL;
    return p->images != NULL;
}

/* The folders to search: the folder itself, or the parts in it. */
struct parts {
    const char *train, *valid, *test; /* NULL: not there */
};

static struct parts find_parts(const struct wf_folder *f)
{
    return (struct parts){ .train = find(f, train_names),
                           .valid = find(f, valid_names),
                           .test = find(f, test_names) };
}

static bool probe(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct wf_folder f;
    struct pair pair;
    bool found = find_pair(&arena, path, &pair, err);
    if (!found && !err->code && wf_folder_list(&arena, path, &f, err)) {
        const char *const train = find(&f, train_names);
        found = train && find_pair(&arena, wf_path_join(&arena, path, train), &pair, err);
    }
    wf_arena_release(&arena);
    return found;
}

/* --- files, with those in folders below --- */

struct tree {
    struct wf_dataset *ds;
    const char *root;
    struct wf_texts names; /* of images, from the root on */
    const char *stranger;  /* a file that is no image */
    int64_t strangers;
};

static void add_name(struct tree *t, const char *name)
{
    WF_GROW(t->names.items, t->names.room, t->names.count + 1);
    t->names.items[t->names.count++] = name;
}

static bool walk(struct tree *t, const char *below, int depth, struct wf_err *err)
{
    struct wf_arena *const arena = &t->ds->arena;
    const char *const path = *below ? wf_path_join(arena, t->root, below) : t->root;
    struct wf_folder f;
    if (depth == DEPTH)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': more than %d folders in each other: is it a link?", path, DEPTH);
    if (!wf_folder_list(arena, path, &f, err))
        return false;
    for (size_t i = 0; i < f.n_files; i++) {
        const char *const name = *below ? wf_path_join(arena, below, f.files[i]) : f.files[i];
        if (wf_is_image_name(f.files[i]))
            add_name(t, name);
        else if (t->strangers++ == 0)
            t->stranger = name;
    }
    for (size_t i = 0; i < f.n_folders; i++)
        if (!walk(t, *below ? wf_path_join(arena, below, f.folders[i]) : f.folders[i], depth + 1,
                  err))
            return false;
    return true;
}

/* --- one pair of folders --- */

static struct wf_names list_masks(struct wf_dataset *ds, const struct tree *t)
{
    struct wf_names masks = { .items =
                                  wf_arena_array(&ds->arena, t->names.count + 1, struct wf_named) };
    for (size_t i = 0; i < t->names.count; i++)
        masks.items[masks.count++] =
            (struct wf_named){ .stem = wf_stem(&ds->arena, t->names.items[i]),
                               .name = t->names.items[i] };
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
    enum { NOTED = 8 };
    int64_t alone = 0;
    for (size_t i = 0; i < masks->count; i++) {
        const struct wf_named *const m = &masks->items[i];
        if (i && strcmp(m->stem, m[-1].stem) == 0)
            wf_dataset_problem(ds, NULL, "masks '%s/%s' and '%s/%s' have one name: remove one",
                               folder, m[-1].name, folder, m->name);
        else if (!m->used && alone++ < NOTED)
            wf_dataset_note(ds, "mask '%s/%s' has no image", folder, m->name);
    }
    if (alone > NOTED)
        wf_dataset_note(ds, "%lld more masks in '%s' have no image", (long long)(alone - NOTED),
                        folder);
}

/* The part that a file in images/ belongs to by the folder it lies in. */
static bool is_held_out(const char *name, const char *folder)
{
    const size_t n = folder ? strlen(folder) : 0;
    return n > 0 && strncmp(name, folder, n) == 0 && name[n] == '/';
}

struct listing {
    const char *part; /* the folder above, or NULL */
    struct pair pair;
    bool held_out;
    struct tree images, masks;
};

static void add_images(struct wf_dataset *ds, const struct listing *l, struct wf_names *masks)
{
    struct wf_arena *const arena = &ds->arena;
    struct wf_folder below;
    struct wf_err ignored = { 0 };
    struct parts inner = { 0 };
    if (wf_folder_list(arena, l->images.root, &below, &ignored))
        inner = find_parts(&below);
    const char *const out = !inner.train ? NULL : inner.valid ? inner.valid : inner.test;
    const char *const dropped = inner.train && inner.valid ? inner.test : NULL;
    const char *last = "";
    if (dropped)
        wf_dataset_note(ds, "'%s/%s' is for tests and left out: evaluate it by itself",
                        l->pair.images, dropped);
    for (size_t i = 0; i < l->images.names.count; i++) {
        const char *const name = l->images.names.items[i], *const stem = wf_stem(arena, name);
        if (is_held_out(name, dropped))
            continue;
        struct wf_named *const mask = find_mask(ds, masks, stem);
        struct wf_entry *const e =
            wf_dataset_add(ds, l->part ? wf_path_join(arena, l->part, stem) : stem,
                           wf_path_join(arena, l->images.root, name),
                           mask ? wf_path_join(arena, l->masks.root, mask->name) : NULL);
        e->sample.held_out = l->held_out || is_held_out(name, out);
        if (mask)
            mask->used = true;
        else if (l->pair.masks)
            wf_dataset_problem(
                ds, e, "image '%s' has no mask: expected '%s/%s.*': add it, or take the image out",
                e->sample.image, l->masks.root, stem);
        if (strcmp(stem, last) == 0)
            wf_dataset_problem(ds, e, "two images are called '%s' in '%s': remove one", stem,
                               l->images.root);
        last = stem;
    }
}

static bool list_pair(struct wf_dataset *ds, const char *part, bool held_out, struct wf_err *err)
{
    struct wf_arena *const arena = &ds->arena;
    const char *const path = part ? wf_path_join(arena, ds->info.path, part) : ds->info.path;
    struct listing l = { .part = part, .held_out = held_out };
    if (!find_pair(arena, path, &l.pair, err))
        return !err->code && wf_err_set(err, WF_ERR_INPUT,
                                        "'%s' has no folder of images: call it 'images'", path);
    const bool wants = !part || !held_out || ds->info.labels != WF_LABELS_PIXEL;
    if (!wants && !l.pair.masks) {
        wf_dataset_note(ds, "'%s' has no masks and is left out", path);
        return true;
    }
    l.images = (struct tree){ .ds = ds, .root = wf_path_join(arena, path, l.pair.images) };
    l.masks = (struct tree){ .ds = ds };
    if (l.pair.masks)
        l.masks.root = wf_path_join(arena, path, l.pair.masks);
    const bool ok = walk(&l.images, "", 0, err) && (!l.pair.masks || walk(&l.masks, "", 0, err));
    if (ok) {
        if (!held_out) {
            ds->info.labels = l.pair.masks ? WF_LABELS_PIXEL : WF_LABELS_NONE;
            wf_dataset_why(ds, "images in '%s%s%s/'%s%s%s", part ? part : "", part ? "/" : "",
                           l.pair.images, l.pair.masks ? ", masks of the same names in '" : "",
                           l.pair.masks ? l.pair.masks : ", no masks", l.pair.masks ? "/'" : "");
        }
        struct wf_names masks = list_masks(ds, &l.masks);
        add_images(ds, &l, &masks);
        if (l.pair.masks)
            check_masks(ds, part ? wf_path_join(arena, part, l.pair.masks) : l.pair.masks, &masks);
        if (l.images.strangers)
            wf_dataset_note(ds, "%lld file%s in '%s', such as '%s', no image that is known",
                            (long long)l.images.strangers,
                            l.images.strangers == 1 ? " is" : "s are", l.pair.images,
                            l.images.stranger);
    }
    free(l.images.names.items);
    free(l.masks.names.items);
    return ok;
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    struct pair pair;
    struct wf_folder f;
    if (find_pair(&ds->arena, ds->info.path, &pair, err))
        return list_pair(ds, NULL, false, err);
    if (err->code || !wf_folder_list(&ds->arena, ds->info.path, &f, err))
        return false;
    const struct parts parts = find_parts(&f);
    if (!parts.train)
        return wf_err_set(err, WF_ERR_INPUT,
                          "folder '%s' has no folder of images: call it '%s/images'", ds->info.path,
                          ds->info.path);
    const char *const out = parts.valid ? parts.valid : parts.test;
    if (parts.valid && parts.test)
        wf_dataset_note(ds, "'%s/' is for tests and left out: evaluate it by itself", parts.test);
    if (!list_pair(ds, parts.train, false, err) || (out && !list_pair(ds, out, true, err)))
        return false;
    if (out)
        wf_dataset_why(ds, "%s; '%s/' is held out", ds->info.why, out);
    return true;
}

const struct wf_dataset_layout_kind wf_dataset_layout_folder = {
    .name = "folder",
    .looks = "images/ and masks/ with the same names",
    .probe = probe,
    .list = list,
};
