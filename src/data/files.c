/* Folders and names, as datasets meet them. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "data/dataset_inside.h"
#include "base/file.h"

const char *wf_path_join(struct wf_arena *arena, const char *path, const char *name)
{
    const size_t n = strlen(path);
    return wf_arena_printf(arena, "%s%s%s", path, n > 0 && path[n - 1] == '/' ? "" : "/", name);
}

static bool is_kind(const char *path, const char *name, enum wf_path_kind wanted,
                    struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    enum wf_path_kind kind;
    const bool is = wf_path_look(wf_path_join(&arena, path, name), &kind, err) && kind == wanted;
    wf_arena_release(&arena);
    return is;
}

bool wf_folder_exists(const char *path, const char *name, struct wf_err *err)
{
    return is_kind(path, name, WF_PATH_FOLDER, err);
}

bool wf_file_exists(const char *path, const char *name, struct wf_err *err)
{
    return is_kind(path, name, WF_PATH_FILE, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A name that is listed and stands for nothing is a link to what is gone: an image must not be missing
 * without a word. */
static bool look(struct wf_arena *arena, const char *path, const char *name,
                 enum wf_path_kind *kind, struct wf_err *err)
{
    struct stat info;
    const char *const file = wf_path_join(arena, path, name);
    if (!wf_path_look(file, kind, err))
        return false;
    return *kind != WF_PATH_ABSENT || !wf_is_image_name(name) || lstat(file, &info) != 0 ||
           wf_err_set(
               err, WF_ERR_INPUT,
               "'%s' is a link to a file that does not exist: bring the file back, or remove "
               "the link",
               file);
}

bool wf_folder_list(struct wf_arena *arena, const char *path, struct wf_folder *f,
                    struct wf_err *err)
{
    *f = (struct wf_folder){ 0 };
    DIR *const dir = opendir(path);
    if (!dir)
        return wf_err_set(err, WF_ERR_INPUT, "cannot read folder '%s': %s", path,
                          wf_file_reason(errno));
    struct wf_texts files = { 0 }, folders = { 0 };
    bool ok = true;
    errno = 0;
    for (const struct dirent *at; ok && (at = readdir(dir)); errno = 0) {
        enum wf_path_kind kind = WF_PATH_OTHER;
        if (at->d_name[0] != '.')
            ok = look(arena, path, at->d_name, &kind, err);
        struct wf_texts *const list = kind == WF_PATH_FOLDER ? &folders
                                      : kind == WF_PATH_FILE ? &files
                                                             : NULL;
        if (!list)
            continue;
        WF_GROW(list->items, list->room, list->count + 1);
        list->items[list->count++] = wf_arena_copy(arena, at->d_name);
    }
    const int failure = errno;
    (void)closedir(dir);
    f->n_files = files.count;
    f->n_folders = folders.count;
    f->files = wf_arena_array(arena, files.count + 1, const char *);
    f->folders = wf_arena_array(arena, folders.count + 1, const char *);
    if (files.count)
        memcpy(f->files, files.items, files.count * sizeof *files.items);
    if (folders.count)
        memcpy(f->folders, folders.items, folders.count * sizeof *folders.items);
    free(files.items);
    free(folders.items);
    qsort(f->files, f->n_files, sizeof *f->files, by_name);
    qsort(f->folders, f->n_folders, sizeof *f->folders, by_name);
    if (ok && failure)
        return wf_err_set(err, WF_ERR_FAILED, "cannot read folder '%s': %s", path,
                          wf_file_reason(failure));
    return ok;
}

/* Where the ending begins, or NULL where it is not one of ours. */
static const char *ending(const char *name)
{
    /* The last line: TIFF under other names. */
    static const char *const known[] = {
        ".nii.gz", ".png",  ".jpg",    ".jpeg", ".ome.tif", ".ome.tiff", ".ome.btf",
        ".tif",    ".tiff", ".nii",    ".npy",  ".h5",      ".hdf5",     ".svs",
        ".ndpi",   ".scn",  ".qptiff", ".btf",  ".tf8",     ".lsm",      ".stk",
    };
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t m = strlen(known[i]);
        if (n > m && strcasecmp(name + n - m, known[i]) == 0)
            return name + n - m;
    }
    return NULL;
}

bool wf_is_image_name(const char *name)
{
    return ending(name) != NULL;
}

const char *wf_stem(struct wf_arena *arena, const char *name)
{
    const char *end = ending(name);
    if (!end)
        end = strrchr(name, '.');
    return end ? wf_arena_printf(arena, "%.*s", (int)(end - name), name)
               : wf_arena_copy(arena, name);
}

const char *wf_mask_stem(struct wf_arena *arena, const char *stem)
{
    static const char *const known[] = { "_masks", "_mask", "_labels", "_label", "_seg" };
    const size_t n = strlen(stem);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t m = strlen(known[i]);
        if (n > m && strcasecmp(stem + n - m, known[i]) == 0)
            return wf_arena_printf(arena, "%.*s", (int)(n - m), stem);
    }
    return NULL;
}

char *wf_read_text(const char *path, struct wf_err *err)
{
    size_t size;
    return wf_file_read(path, 4 << 20, &size, err);
}

const char *wf_extent_text(struct wf_arena *arena, const int64_t extent[WF_AXES])
{
    if (extent[WF_D] == 1)
        return wf_arena_printf(arena, "%" PRId64 " x %" PRId64, extent[WF_H], extent[WF_W]);
    return wf_arena_printf(arena, "%" PRId64 " x %" PRId64 " x %" PRId64, extent[WF_D],
                           extent[WF_H], extent[WF_W]);
}

/* --- names --- */

static int by_stem(const void *a, const void *b)
{
    const struct wf_named *const x = a, *const y = b;
    const int order = strcmp(x->stem, y->stem);
    return order ? order : strcmp(x->name, y->name);
}

void wf_names_sort(struct wf_names *names)
{
    if (names->count)
        qsort(names->items, names->count, sizeof *names->items, by_stem);
}

struct wf_named *wf_names_find(const struct wf_names *names, const char *stem)
{
    size_t lo = 0, hi = names->count;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (strcmp(names->items[mid].stem, stem) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < names->count && strcmp(names->items[lo].stem, stem) == 0 ? &names->items[lo] : NULL;
}

/* --- a spread of windows --- */

static int64_t pixels_of(const int64_t size[WF_AXES])
{
    return size[WF_D] * size[WF_H] * size[WF_W];
}

/* All of it, in pieces of nearly equal size. */
static void cover(struct wf_spread *s, int64_t most)
{
    while (pixels_of(s->size) > most) {
        /* Planes first, then rows: pieces in reading order. */
        const int a = s->size[WF_D] > 1 ? WF_D : s->size[WF_H] > WF_DATA_WINDOW ? WF_H : WF_W;
        s->parts[a] *= 2;
        s->size[a] = wf_ceil_div(wf_region_extent(s->extent, (enum wf_axis)a), s->parts[a]);
    }
}

/* One more part where parts are longest, as long as the budget lasts. */
static void scatter(struct wf_spread *s, int64_t windows)
{
    for (;;) {
        int best = -1;
        for (int a = WF_D; a <= WF_W; a++) {
            const int64_t all = wf_region_extent(s->extent, (enum wf_axis)a);
            const int64_t count = pixels_of(s->parts) / s->parts[a] * (s->parts[a] + 1);
            if (all / s->size[a] <= s->parts[a] || count > windows)
                continue;
            if (best < 0 || all * s->parts[best] >
                                wf_region_extent(s->extent, (enum wf_axis)best) * s->parts[a])
                best = a;
        }
        if (best < 0)
            return;
        s->parts[best]++;
    }
}

struct wf_spread wf_spread(struct wf_region extent, int64_t budget, int64_t most)
{
    struct wf_spread s = { .extent = extent };
    for (int a = WF_D; a <= WF_W; a++) {
        s.parts[a] = 1;
        s.size[a] = wf_region_extent(extent, (enum wf_axis)a);
    }
    s.covers = pixels_of(s.size) <= budget;
    if (s.covers) {
        cover(&s, most);
    } else {
        s.size[WF_W] = wf_min(s.size[WF_W], WF_DATA_WINDOW);
        s.size[WF_H] = wf_max(1, wf_min(wf_min(s.size[WF_H], WF_DATA_WINDOW), most / s.size[WF_W]));
        s.size[WF_D] = 1;
        scatter(&s, budget / pixels_of(s.size));
    }
    s.count = pixels_of(s.parts);
    return s;
}

struct wf_region wf_spread_at(const struct wf_spread *s, int64_t index)
{
    struct wf_region window = s->extent;
    for (int a = WF_W; a >= WF_D; a--) {
        const int64_t all = wf_region_extent(s->extent, (enum wf_axis)a), i = index % s->parts[a];
        const int64_t from = wf_split_point(all, s->parts[a], i);
        const int64_t to = wf_split_point(all, s->parts[a], i + 1);
        const int64_t size = s->covers ? to - from : s->size[a];
        window.lo[a] = s->extent.lo[a] + from + (to - from - size) / 2;
        window.hi[a] = window.lo[a] + size;
        index /= s->parts[a];
    }
    return window;
}
