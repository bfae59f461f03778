/* Writes what a dataset holds as .npy: N_image.npy, f32 (D, H, W, C), and N_labels.npy, i32 (D, H, W, 1), for
 * each sample N in order; prints "N NAME held_out" for each. For tests/campaign/foreign_files.
 *
 *     dump_dataset FOLDER OUT refuse|resample
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "image/raster.h"

static bool write_array(const char *path, const int64_t extent[WF_AXES], int channels,
                        enum wf_sample sample, const void *data, struct wf_err *err)
{
    const struct wf_raster_info info = { .depth = extent[WF_D],
                                         .height = extent[WF_H],
                                         .width = extent[WF_W],
                                         .channels = channels,
                                         .sample = sample };
    struct wf_raster_writer *const w = wf_raster_create(path, &info, err);
    struct wf_region all = { .hi = { 1, extent[WF_D], extent[WF_H], extent[WF_W], channels } };
    const bool ok = w && wf_raster_write_window(w, &all, data, err);
    return w && wf_raster_writer_close(w, ok, err);
}

/* In two windows, so that a window is not all there is. */
static bool read_sample(const struct wf_dataset *ds, int64_t i, float *image, int32_t *labels,
                        struct wf_err *err)
{
    struct wf_region part = wf_dataset_extent(ds, i);
    const int axis = part.hi[WF_D] > 1 ? WF_D : WF_H;
    const int64_t all = part.hi[axis], half = all / 2;
    const int64_t pixels = part.hi[WF_D] * part.hi[WF_H] * part.hi[WF_W];
    const int64_t behind = pixels / all * half, channels = part.hi[WF_C];
    part.hi[WF_C] = 1;
    if (half > 0) {
        part.hi[axis] = half;
        if (!wf_dataset_read(ds, i, &part, image, labels, err))
            return false;
    }
    part.lo[axis] = half;
    part.hi[axis] = all;
    return wf_dataset_read(ds, i, &part, image + behind * channels, labels ? labels + behind : NULL,
                           err);
}

static bool dump(const struct wf_dataset *ds, int64_t i, const char *out, struct wf_err *err)
{
    const struct wf_data_sample *const s = wf_dataset_sample(ds, i);
    const int64_t *const e = s->extent;
    const int64_t pixels = e[WF_D] * e[WF_H] * e[WF_W];
    const bool masks = wf_dataset_info(ds)->labels == WF_LABELS_PIXEL;
    float *const image = malloc((size_t)(pixels * e[WF_C]) * sizeof *image);
    int32_t *const labels = malloc((size_t)pixels * sizeof *labels);
    char path[2][4200];
    (void)snprintf(path[0], sizeof path[0], "%s/%lld_image.npy", out, (long long)i);
    (void)snprintf(path[1], sizeof path[1], "%s/%lld_labels.npy", out, (long long)i);
    const bool ok = image && labels && read_sample(ds, i, image, masks ? labels : NULL, err) &&
                    write_array(path[0], e, (int)e[WF_C], WF_SAMPLE_F32, image, err) &&
                    (!masks || write_array(path[1], e, 1, WF_SAMPLE_I32, labels, err));
    if (ok)
        printf("%lld %s %d\n", (long long)i, s->name, s->held_out);
    free(image);
    free(labels);
    return ok;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: dump_dataset FOLDER OUT refuse|resample\n");
        return 2;
    }
    struct wf_err err = { 0 };
    const struct wf_dataset_options options = { .align = strcmp(argv[3], "resample") == 0
                                                             ? WF_ALIGN_RESAMPLE
                                                             : WF_ALIGN_REFUSE };
    struct wf_dataset *const ds = wf_dataset_open(argv[1], &options, &err);
    bool ok = ds;
    for (int64_t i = 0; ok && i < wf_dataset_info(ds)->samples; i++)
        ok = dump(ds, i, argv[2], &err);
    wf_dataset_free(ds);
    if (!ok)
        fprintf(stderr, "dump_dataset: %s\n", err.text);
    return ok ? 0 : 1;
}
