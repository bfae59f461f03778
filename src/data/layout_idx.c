/*
 * MNIST's IDX files: train-images-idx3-ubyte with train-labels-idx1-ubyte, and t10k-* for
 * validation; also with a dot (train-images.idx3-ubyte) and packed by gzip.
 *
 * A file is two zero bytes, the type of a number (8: u8), the number of extents, the extents as
 * big-endian u32, and the numbers. Plain files are read a window at a time. Packed ones are
 * unpacked into memory when the dataset is opened: a record in the middle of a deflate stream has
 * no address.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset_inside.h"
#include "image/gunzip.h"

enum { U8 = 8, HEAD = 4, EXTENTS = 3, RUN = 4096 /* bytes read at once */ };

static const char *const parts[] = { "train", "t10k" };
enum { N_PARTS = sizeof parts / sizeof *parts };
static const char *const inner = "MNIST/raw"; /* as torchvision unpacks */

struct idx {
    struct wf_infile file;
    const uint8_t *memory; /* the unpacked file, the dataset's; NULL: not packed */
    size_t head;           /* bytes before the numbers */
    uint64_t extent[EXTENTS];
};

/* --- names --- */

static const char *folder_of(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    return wf_folder_exists(path, inner, err) ? wf_path_join(arena, path, inner) : path;
}

/* The file of a part's "images" or "labels", or NULL. */
static const char *find_file(struct wf_arena *arena, const char *folder, const char *part,
                             const char *what, struct wf_err *err)
{
    const int extents = *what == 'i' ? 3 : 1;
    for (int i = 0; i < 4; i++) {
        const char *const name = wf_arena_printf(arena, "%s-%s%cidx%d-ubyte%s", part, what,
                                                 i & 1 ? '.' : '-', extents, i & 2 ? ".gz" : "");
        if (wf_file_exists(folder, name, err))
            return wf_path_join(arena, folder, name);
    }
    return NULL;
}

static bool probe(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const folder = folder_of(&arena, path, err);
    bool found = false;
    for (int i = 0; i < N_PARTS; i++)
        found = found || find_file(&arena, folder, parts[i], "images", err);
    wf_arena_release(&arena);
    return found;
}

/* --- headers --- */

static uint32_t big_endian(const uint8_t at[4])
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Fills `extent`, and `*bytes` that a file of them has. */
static bool parse_head(struct idx *x, const uint8_t *head, int extents, uint64_t *bytes,
                       struct wf_err *err)
{
    if (head[0] || head[1] || head[2] != U8 || head[3] != extents)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' begins with %02x%02x%02x%02x, expected %08x: an IDX file of bytes "
                          "with %d extent%s",
                          x->file.name, head[0], head[1], head[2], head[3],
                          (unsigned)(U8 << 8 | extents), extents, extents == 1 ? "" : "s");
    uint64_t numbers = 1;
    bool ok = true;
    for (int i = 0; i < extents; i++) {
        x->extent[i] = big_endian(head + HEAD + 4 * i);
        ok = ok && x->extent[i] > 0 && !__builtin_mul_overflow(numbers, x->extent[i], &numbers);
    }
    if (!ok || numbers > INT64_MAX / 2)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': its header has %" PRIu64 " x %" PRIu64 " x %" PRIu64
                          " numbers, which cannot be",
                          x->file.name, x->extent[0], x->extent[1], x->extent[2]);
    *bytes = x->head + numbers;
    return true;
}

static bool check_size(const struct idx *x, uint64_t size, uint64_t bytes, struct wf_err *err)
{
    return size == bytes ||
           wf_err_set(err, WF_ERR_INPUT,
                      "'%s' has %" PRIu64 " bytes, but by its header %" PRIu64 ": is it cut off?",
                      x->file.name, size, bytes);
}

#ifdef WF_HAVE_ZLIB
/* The sizes are compared before memory is taken: gzip ends with the unpacked size, of which it keeps
 * 32 bits, and deflate packs at most 1032 bytes into one. */
static bool unpack(struct wf_dataset *ds, struct idx *x, int extents, struct wf_err *err)
{
    uint8_t head[HEAD + 4 * EXTENTS] = { 0 }, end[4] = { 0 };
    uint64_t bytes = 0;
    struct wf_gunzip *const g = wf_gunzip_new(&x->file);
    bool ok = wf_gunzip_read(g, 0, head, x->head, err) &&
              parse_head(x, head, extents, &bytes, err) &&
              wf_infile_read(&x->file, x->file.size - sizeof end, end, sizeof end, err);
    const uint32_t size =
        (uint32_t)end[3] << 24 | (uint32_t)end[2] << 16 | (uint32_t)end[1] << 8 | (uint32_t)end[0];
    if (ok && ((uint32_t)bytes != size || bytes / 1032 > x->file.size))
        ok = wf_err_set(err, WF_ERR_INPUT,
                        "'%s' unpacks to %" PRIu32 " bytes, but by its header to %" PRIu64
                        ": is it cut off?",
                        x->file.name, size, bytes);
    if (ok) {
        uint8_t *const memory = wf_arena_take(&ds->arena, (size_t)bytes);
        wf_gunzip_expect(g, bytes);
        ok = wf_gunzip_read(g, 0, memory, (size_t)bytes, err);
        x->memory = memory;
    }
    wf_gunzip_free(g);
    if (!ok)
        return false;
    char *const name = wf_take_text(x->file.name);
    wf_infile_close(&x->file);
    wf_infile_memory(&x->file, name, x->memory, (size_t)bytes);
    free(name);
    return true;
}
#else
static bool unpack(struct wf_dataset *ds, struct idx *x, int extents, struct wf_err *err)
{
    (void)ds;
    (void)extents;
    return wf_err_set(err, WF_ERR_INPUT,
                      "'%s' is packed by gzip, which this build cannot read: unpack it, or install "
                      "'zlib1g-dev' and build again",
                      x->file.name);
}
#endif

static bool open_idx(struct wf_dataset *ds, const char *path, int extents, struct idx *x,
                     struct wf_err *err)
{
    *x = (struct idx){ .head = HEAD + 4 * (size_t)extents, .extent = { 1, 1, 1 } };
    if (!wf_infile_open(&x->file, path, err))
        return false;
    const size_t n = strlen(path);
    const bool is_packed = n > 3 && strcmp(path + n - 3, ".gz") == 0;
    uint8_t head[HEAD + 4 * EXTENTS] = { 0 };
    uint64_t bytes = 0;
    bool ok = !is_packed || unpack(ds, x, extents, err);
    ok = ok && wf_infile_read(&x->file, 0, head, x->head, err) &&
         parse_head(x, head, extents, &bytes, err) && check_size(x, x->file.size, bytes, err);
    if (!ok)
        wf_infile_close(&x->file);
    return ok;
}

/* --- samples --- */

static void add_images(struct wf_dataset *ds, const struct idx *x, const char *path,
                       const char *part, const uint8_t labels[])
{
    for (uint64_t i = 0; i < x->extent[0]; i++) {
        struct wf_entry *const e =
            wf_dataset_add(ds, wf_arena_printf(&ds->arena, "%s/%" PRIu64, part, i), path, NULL);
        e->offset = x->head + i * x->extent[1] * x->extent[2];
        e->pixels = x->memory ? x->memory + e->offset : NULL;
        e->sample.label = labels[i];
        e->sample.held_out = part != parts[0];
        memcpy(e->sample.extent,
               (const int64_t[]){ 1, 1, (int64_t)x->extent[1], (int64_t)x->extent[2], 1 },
               sizeof e->sample.extent);
        while (ds->named <= labels[i])
            wf_dataset_name_class(ds, ds->named, wf_arena_printf(&ds->arena, "%d", ds->named));
    }
}

static bool list_part(struct wf_dataset *ds, const char *part, const char *images,
                      const char *label_file, struct wf_err *err)
{
    struct idx x, y;
    if (!open_idx(ds, images, 3, &x, err))
        return false;
    bool ok = open_idx(ds, label_file, 1, &y, err);
    if (ok) {
        const uint64_t count = y.extent[0];
        uint8_t *const labels = wf_take((size_t)count);
        ok = wf_infile_read(&y.file, y.head, labels, (size_t)count, err) &&
             (count == x.extent[0] ||
              wf_err_set(err, WF_ERR_INPUT,
                         "'%s' has %" PRIu64 " labels, but '%s' has %" PRIu64 " images", label_file,
                         count, images, x.extent[0]));
        if (ok)
            add_images(ds, &x, images, part, labels);
        free(labels);
        wf_infile_close(&y.file);
    }
    wf_infile_close(&x.file);
    return ok;
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    const char *const folder = folder_of(&ds->arena, ds->info.path, err);
    ds->info.labels = WF_LABELS_IMAGE;
    bool ok = true;
    for (int i = 0; ok && i < N_PARTS; i++) {
        const char *const images = find_file(&ds->arena, folder, parts[i], "images", err);
        const char *const labels = find_file(&ds->arena, folder, parts[i], "labels", err);
        if (err->code)
            return false;
        if (images && !labels)
            ok = wf_err_set(err, WF_ERR_INPUT,
                            "'%s' has no labels: expected '%s/%s-labels-idx1-ubyte'", images,
                            folder, parts[i]);
        else if (images)
            ok = list_part(ds, parts[i], images, labels, err);
    }
    return ok;
}

/* --- pixels --- */

static bool read_run(const struct wf_entry *e, const struct wf_infile *file, uint64_t from,
                     float *to, int64_t count, struct wf_err *err)
{
    for (int64_t at = 0; at < count; at += RUN) {
        const int64_t now = wf_min(RUN, count - at);
        const uint8_t *bytes = e->pixels ? (const uint8_t *)e->pixels + from + at : NULL;
        uint8_t read[RUN];
        if (!bytes &&
            !wf_infile_read(file, e->offset + from + (uint64_t)at, read, (size_t)now, err))
            return false;
        for (int64_t i = 0; i < now; i++)
            to[at + i] = (bytes ? bytes : read)[i];
    }
    return true;
}

static bool read(const struct wf_entry *e, const struct wf_infile *file,
                 const struct wf_region *window, float *image, struct wf_err *err)
{
    const int64_t width = e->sample.extent[WF_W], wide = wf_region_extent(*window, WF_W);
    const int64_t high = wf_region_extent(*window, WF_H);
    /* Whole rows follow each other. */
    const int64_t runs = wide == width ? 1 : high, run = wide * high / runs;
    bool ok = true;
    for (int64_t i = 0; ok && i < runs; i++)
        ok = read_run(e, file, (uint64_t)((window->lo[WF_H] + i) * width + window->lo[WF_W]),
                      image + i * run, run, err);
    return ok;
}

const struct wf_dataset_layout_kind wf_dataset_layout_idx = {
    .name = "idx",
    .looks = "train-images-idx3-ubyte, train-labels-idx1-ubyte and t10k-*",
    .probe = probe,
    .list = list,
    .read = read,
};
