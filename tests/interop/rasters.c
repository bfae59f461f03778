/* Reads an image in windows and writes it again; rasters.py compares the two.
 *
 *     rasters IN OUT
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/raster.h"

/* Values as the type in which they were read, back to the type in which they are written. */
static void pack(enum wf_sample sample, const float *values, int64_t count, void *out)
{
    for (int64_t i = 0; i < count; i++)
        if (sample == WF_SAMPLE_U8)
            ((uint8_t *)out)[i] = (uint8_t)values[i];
        else if (sample == WF_SAMPLE_U16)
            ((uint16_t *)out)[i] = (uint16_t)values[i];
        else
            ((float *)out)[i] = values[i];
}

static bool copy(struct wf_raster *in, struct wf_raster_writer *out,
                 const struct wf_raster_info *info, struct wf_err *err)
{
    const int64_t rows = wf_raster_writer_tile(out).at[WF_H];
    const int64_t count = rows * info->width * info->channels;
    float *values = malloc((size_t)count * sizeof *values);
    void *packed = malloc((size_t)count * sizeof(float));
    bool ok = values && packed;
    for (int64_t d = 0; ok && d < info->depth; d++)
        for (int64_t h = 0; ok && h < info->height; h += rows) {
            struct wf_region band = { .lo = { [WF_D] = d, [WF_H] = h } };
            band.hi[WF_D] = d + 1;
            band.hi[WF_H] = wf_min(h + rows, info->height);
            band.hi[WF_W] = info->width;
            const int64_t here = wf_region_extent(band, WF_H) * info->width * info->channels;
            ok = wf_raster_read_window(in, &band, 0, info->channels, WF_F32, values, err);
            pack(info->sample, values, here, packed);
            ok = ok && wf_raster_write_window(out, &band, packed, err);
        }
    free(values);
    free(packed);
    return ok;
}

int main(int argc, char **argv)
{
    struct wf_err err = { 0 };
    if (argc != 3) {
        fprintf(stderr, "usage: rasters IN OUT\n");
        return 2;
    }
    struct wf_raster *in = wf_raster_open(argv[1], &err);
    bool ok = in;
    if (ok) {
        struct wf_raster_info info = *wf_raster_info(in);
        if (info.sample != WF_SAMPLE_U8 && info.sample != WF_SAMPLE_U16)
            info.sample = WF_SAMPLE_F32;
        if (info.sample == WF_SAMPLE_U16 && strstr(argv[2], ".npy"))
            info.sample = WF_SAMPLE_F32;
        struct wf_raster_writer *out = wf_raster_create(argv[2], &info, &err);
        ok = out && copy(in, out, &info, &err);
        ok = out && wf_raster_writer_close(out, ok, &err);
    }
    wf_raster_close(in);
    if (!ok)
        fprintf(stderr, "rasters: %s\n", err.text);
    return ok ? 0 : 1;
}
