/*
 * How fast batches are made: decoding, crops, flips and turns, without a network behind it.
 *
 *     build/bench/input FOLDER [threads=8] [crop=1024] [batch=4] [seconds=10]
 *
 * One line for each epoch: crops and Mpx a second, and bytes of files that were read. From the second epoch on decoded
 * images come from memory, where they fit.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "data/loader.h"

static int64_t argument(int argc, char **argv, const char *name, int64_t otherwise)
{
    const size_t length = strlen(name);
    for (int i = 2; i < argc; i++)
        if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=')
            return strtoll(argv[i] + length + 1, NULL, 10);
    return otherwise;
}

static void run(struct wf_loader *l, const struct wf_dataset *ds, int64_t crop, int64_t batch,
                double limit)
{
    struct wf_err err = { 0 };
    const int channels = wf_dataset_info(ds)->channels;
    const struct wf_region image = wf_shape_region(WF_SHAPE(batch, 1, crop, crop, channels));
    const struct wf_region target = wf_shape_region(WF_SHAPE(batch, 1, crop, crop, 1));
    float *const pixels = malloc((size_t)wf_region_count(image) * sizeof *pixels);
    int32_t *const labels = malloc((size_t)wf_region_count(target) * sizeof *labels);
    const struct wf_view views[] = { wf_view_dense(pixels, WF_F32, image),
                                     wf_view_dense(labels, WF_I32, target) };
    const int64_t batches = wf_loader_batches(l) - (wf_loader_rest(l) > 0);
    const double begin = wf_now();
    bool ok = pixels && labels;
    for (int64_t epoch = 0; ok && wf_now() - begin < limit; epoch++) {
        const double start = wf_now();
        wf_loader_seek(l, epoch, 0);
        for (int64_t i = 0; ok && i < batches; i++)
            ok = wf_loader_next(l, &views[0], &views[1], &err);
        const double seconds = wf_now() - start, crops = (double)(batches * batch);
        (void)printf("epoch %" PRId64 ": %7.1f crops/s %8.1f Mpx/s, %.1f MB of files read\n",
                     epoch + 1, crops / seconds, crops * (double)(crop * crop) / seconds / 1e6,
                     (double)wf_dataset_bytes_read(ds) / 1e6);
    }
    if (!ok)
        (void)fprintf(stderr, "%s\n", err.text);
    free(pixels);
    free(labels);
}

int main(int argc, char **argv)
{
    struct wf_err err = { 0 };
    if (argc < 2) {
        (void)fprintf(stderr,
                      "usage: input FOLDER [threads=8] [crop=1024] [batch=4] [seconds=10]\n");
        return 2;
    }
    const int64_t crop = argument(argc, argv, "crop", 1024),
                  batch = argument(argc, argv, "batch", 4);
    struct wf_dataset *const ds =
        wf_dataset_open(argv[1], &(struct wf_dataset_options){ .cache = -1 }, &err);
    struct wf_loader_options options = { .batch = batch,
                                         .crop = { [WF_D] = 1, [WF_H] = crop, [WF_W] = crop },
                                         .repeat = argument(argc, argv, "repeat", 4),
                                         .augment = WF_AUGMENT_FLIP | WF_AUGMENT_ROT90,
                                         .seed = 1,
                                         .threads = (int)argument(argc, argv, "threads", 8) };
    struct wf_loader *const l = ds ? wf_loader_new(ds, &options, &err) : NULL;
    if (l)
        run(l, ds, crop, batch, (double)argument(argc, argv, "seconds", 10));
    else
        (void)fprintf(stderr, "%s\n", err.text);
    wf_loader_free(l);
    wf_dataset_free(ds);
    return l ? 0 : 1;
}
