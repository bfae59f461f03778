/*
 * Any bytes as MNIST's files: the folder is refused with words, or every picture of it can be read and has a label
 * that is a class. The first byte says which of the two files are packed (.gz), the next two how long the images
 * are; the labels follow them.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "data/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 3, PICTURES = 50, PIXELS = 1 << 20 };

static void put(const char *path, const uint8_t *data, size_t size)
{
    struct wf_err err = { 0 };
    WF_BUG_ON(!wf_file_write(path, data, size, &err), "%s", err.text);
}

static void read_all(struct wf_dataset *ds)
{
    const struct wf_dataset_info *const info = wf_dataset_info(ds);
    for (int64_t i = 0; i < info->samples && i < PICTURES; i++) {
        const int64_t *const e = wf_dataset_sample(ds, i)->extent;
        struct wf_region all = { .hi = { 1, e[WF_D], e[WF_H], e[WF_W], e[WF_C] } };
        if (wf_region_count(all) > PIXELS)
            return;
        /* Exactly the room that the caller would give it. */
        float *const image = malloc((size_t)wf_region_count(all) * sizeof *image);
        int32_t label = -1;
        struct wf_err err = { 0 };
        const bool ok = wf_dataset_read(ds, i, &all, image, &label, &err);
        WF_BUG_ON(ok != (err.code == WF_OK) || (!ok && !err.text[0]), "read without words");
        WF_BUG_ON(ok && (label < 0 || label >= info->n_classes), "label %d", (int)label);
        free(image);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD)
        return 0;
    char folder[] = "/tmp/widefield-fuzz-XXXXXX", paths[2][128];
    WF_BUG_ON(!mkdtemp(folder), "no folder");
    const size_t given = (size_t)data[1] << 8 | data[2], rest = size - HEAD;
    const size_t images = given < rest ? given : rest;
    (void)snprintf(paths[0], sizeof paths[0], "%s/train-images-idx3-ubyte%s", folder,
                   data[0] & 1 ? ".gz" : "");
    (void)snprintf(paths[1], sizeof paths[1], "%s/train-labels-idx1-ubyte%s", folder,
                   data[0] & 2 ? ".gz" : "");
    put(paths[0], data + HEAD, images);
    put(paths[1], data + HEAD + images, rest - images);
    struct wf_err err = { 0 };
    const struct wf_dataset_options options = { .layout = WF_LAYOUT_IDX };
    struct wf_dataset *const ds = wf_dataset_open(folder, &options, &err);
    WF_BUG_ON(!ds != (err.code != WF_OK) || (!ds && !err.text[0]), "error without words");
    if (ds)
        read_all(ds);
    wf_dataset_free(ds);
    for (int i = 0; i < 2; i++)
        (void)unlink(paths[i]);
    (void)rmdir(folder);
    return 0;
}
