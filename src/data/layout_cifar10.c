/* CIFAR-10's binary files: records of a label and 32 x 32 pixels, a plane for each colour. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_inside.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, RECORD = 1 + 3 * PLANE, CLASSES = 10 };

static const char *const files[] = { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                     "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin" };
enum { N_FILES = sizeof files / sizeof *files };
static const char *const inner = "cifar-10-batches-bin"; /* as the archive unpacks */

static const char *folder_of(struct wf_arena *arena, const char *path, struct wf_err *err)
{
    return wf_folder_exists(path, inner, err) ? wf_path_join(arena, path, inner) : path;
}

static bool probe(const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const folder = folder_of(&arena, path, err);
    bool found = false;
    for (int i = 0; i < N_FILES; i++)
        found = found || wf_file_exists(folder, files[i], err);
    wf_arena_release(&arena);
    return found;
}

static bool list_file(struct wf_dataset *ds, const char *path, const char *name, bool held_out,
                      struct wf_err *err)
{
    struct wf_infile file;
    if (!wf_infile_open(&file, path, err))
        return false;
    const uint64_t count = file.size / RECORD;
    bool ok = file.size % RECORD == 0 && count > 0;
    if (!ok)
        (void)wf_err_set(err, WF_ERR_INPUT,
                         "'%s' has %" PRIu64 " bytes, not a multiple of %d: is it cut off?", path,
                         file.size, RECORD);
    const char *const stem = wf_stem(&ds->arena, name);
    for (uint64_t i = 0; ok && i < count; i++) {
        uint8_t label;
        ok = wf_infile_read(&file, i * RECORD, &label, 1, err);
        if (!ok)
            break;
        struct wf_entry *const e =
            wf_dataset_add(ds, wf_arena_printf(&ds->arena, "%s/%" PRIu64, stem, i), path, NULL);
        e->offset = i * RECORD;
        e->sample.label = label;
        e->sample.held_out = held_out;
        memcpy(e->sample.extent, (const int64_t[]){ 1, 1, SIDE, SIDE, 3 }, sizeof e->sample.extent);
        if (label >= CLASSES)
            wf_dataset_problem(ds, e, "'%s': record %" PRIu64 " has label %d: CIFAR-10 has 0 to 9",
                               path, i, label);
    }
    wf_infile_close(&file);
    return ok;
}

static bool read_names(struct wf_dataset *ds, const char *folder, struct wf_err *err)
{
    static const char *const names[CLASSES] = {
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"
    };
    for (int i = 0; i < CLASSES; i++)
        wf_dataset_name_class(ds, i, names[i]);
    if (!wf_file_exists(folder, "batches.meta.txt", err))
        return true;
    char *const text = wf_read_text(wf_path_join(&ds->arena, folder, "batches.meta.txt"), err);
    if (!text)
        return false;
    char *rest = text;
    int id = 0;
    for (char *line; id < CLASSES && (line = strsep(&rest, "\r\n"));)
        if (*line)
            wf_dataset_name_class(ds, id++, line);
    free(text);
    return true;
}

static bool list(struct wf_dataset *ds, struct wf_err *err)
{
    const char *const folder = folder_of(&ds->arena, ds->info.path, err);
    ds->info.labels = WF_LABELS_IMAGE;
    bool ok = read_names(ds, folder, err);
    for (int i = 0; ok && i < N_FILES; i++)
        if (wf_file_exists(folder, files[i], err))
            ok = list_file(ds, wf_path_join(&ds->arena, folder, files[i]), files[i],
                           i == N_FILES - 1, err);
    return ok;
}

static bool read(const struct wf_entry *e, const struct wf_infile *file,
                 const struct wf_region *window, float *image, struct wf_err *err)
{
    uint8_t planes[3 * PLANE];
    if (!wf_infile_read(file, e->offset + 1, planes, sizeof planes, err))
        return false;
    for (int64_t h = window->lo[WF_H]; h < window->hi[WF_H]; h++)
        for (int64_t w = window->lo[WF_W]; w < window->hi[WF_W]; w++)
            for (int c = 0; c < 3; c++)
                *image++ = planes[c * PLANE + h * SIDE + w];
    return true;
}

const struct wf_dataset_layout_kind wf_dataset_layout_cifar10 = {
    .name = "cifar10",
    .looks = "data_batch_1.bin ... and test_batch.bin",
    .probe = probe,
    .list = list,
    .read = read,
};
