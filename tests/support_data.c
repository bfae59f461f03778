#include "support_data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/random.h"

void support_write(const char *path, const struct support_picture *p)
{
    struct wf_err err = { 0 };
    struct wf_raster_info info = { .depth = p->depth,
                                   .height = p->height,
                                   .width = p->width,
                                   .channels = p->channels,
                                   .sample = p->sample,
                                   .colors = p->colors };
    if (p->palette)
        memcpy(info.palette, p->palette, (size_t)p->colors * 3);
    struct wf_raster_writer *const w = wf_raster_create(path, &info, &err);
    WF_BUG_ON(!w, "%s", err.text);
    const struct wf_region all = { .hi = { 1, p->depth, p->height, p->width, p->channels } };
    const bool ok = wf_raster_write_window(w, &all, p->data, &err);
    WF_BUG_ON(!wf_raster_writer_close(w, ok, &err), "%s", err.text);
}

void support_bytes(const char *path, int64_t height, int64_t width, int channels,
                   const uint8_t *data)
{
    support_write(
        path,
        &(struct support_picture){
            .depth = 1, .height = height, .width = width, .channels = channels, .data = data });
}

void support_folder(const char *path)
{
    char part[512];
    for (size_t i = 1; i <= strlen(path); i++)
        if (path[i] == '/' || path[i] == '\0') {
            (void)snprintf(part, sizeof part, "%.*s", (int)i, path);
            (void)mkdir(part, 0777);
        }
}

void support_text(const char *path, const char *text)
{
    FILE *const file = fopen(path, "w");
    WF_BUG_ON(!file || fputs(text, file) < 0 || fclose(file) != 0, "cannot write '%s'", path);
}

static uint32_t number(const char *name, int64_t d, int64_t h, int64_t w, int c)
{
    const uint64_t at = (((uint64_t)d * 4096 + (uint64_t)h) * 4096 + (uint64_t)w) * 8 + (uint64_t)c;
    return wf_random_bits(wf_random(5, wf_random_stream(name)), at);
}

float support_value(const char *name, int64_t d, int64_t h, int64_t w, int c)
{
    return (float)(number(name, d, h, w, c) % 1000);
}

int32_t support_label(const char *name, int64_t d, int64_t h, int64_t w, int classes)
{
    return (int32_t)(number(name, d, h, w, 7) % (uint32_t)classes);
}

void support_pair(const char *set, const char *name, const int64_t extent[], int channels,
                  int classes)
{
    const int64_t count = extent[WF_D] * extent[WF_H] * extent[WF_W];
    float *const pixels = malloc((size_t)(count * channels) * sizeof *pixels);
    uint8_t *const labels = malloc((size_t)count);
    WF_BUG_ON(!pixels || !labels, "out of memory");
    int64_t i = 0;
    for (int64_t d = 0; d < extent[WF_D]; d++)
        for (int64_t h = 0; h < extent[WF_H]; h++)
            for (int64_t w = 0; w < extent[WF_W]; w++, i++) {
                for (int c = 0; c < channels; c++)
                    pixels[i * channels + c] = support_value(name, d, h, w, c);
                labels[i] = (uint8_t)support_label(name, d, h, w, classes);
            }
    char path[512];
    (void)snprintf(path, sizeof path, "%s/images", set);
    support_folder(path);
    (void)snprintf(path, sizeof path, "%s/masks", set);
    support_folder(path);
    struct support_picture p = { .depth = extent[WF_D],
                                 .height = extent[WF_H],
                                 .width = extent[WF_W],
                                 .channels = channels,
                                 .sample = WF_SAMPLE_F32,
                                 .data = pixels };
    (void)snprintf(path, sizeof path, "%s/images/%s.npy", set, name);
    support_write(path, &p);
    p.channels = 1;
    p.sample = WF_SAMPLE_U8;
    p.data = labels;
    (void)snprintf(path, sizeof path, "%s/masks/%s.npy", set, name);
    support_write(path, &p);
    free(pixels);
    free(labels);
}

struct wf_dataset *support_open(const char *path)
{
    struct wf_err err = { 0 };
    struct wf_dataset *const ds = wf_dataset_open(path, &(struct wf_dataset_options){ 0 }, &err);
    if (!ds)
        fail_msg("%s", err.text);
    return ds;
}

void support_refused(const char *path, const char *const texts[])
{
    struct wf_err err = { 0 };
    struct wf_dataset *ds = wf_dataset_open(path, &(struct wf_dataset_options){ 0 }, &err);
    assert_null(ds);
    for (; *texts; texts++)
        if (!strstr(err.text, *texts)) {
            print_error("'%s' does not say '%s'\n", err.text, *texts);
            fail();
        }
}

void support_labels_are(const struct wf_dataset *ds, int64_t sample, const int32_t *want,
                        int64_t count)
{
    int32_t got[64];
    struct wf_err err = { 0 };
    const struct wf_region all = wf_dataset_extent(ds, sample);
    assert_true(wf_dataset_read(ds, sample, &all, NULL, got, &err));
    assert_memory_equal(got, want, (size_t)count * sizeof *want);
}

struct wf_region support_box(int64_t d0, int64_t h0, int64_t w0, int64_t d1, int64_t h1, int64_t w1)
{
    return (struct wf_region){ .lo = { 0, d0, h0, w0, 0 }, .hi = { 1, d1, h1, w1, 1 } };
}
