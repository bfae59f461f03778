/* Small datasets on disk, for the tests of data/: written into the working folder. */
#ifndef WF_TESTS_SUPPORT_DATA_H
#define WF_TESTS_SUPPORT_DATA_H

#include <stdint.h>

#include "data/dataset.h"
#include "image/raster.h"

/* The bytes of a picture of extents D x H x W x C; NULL palette: none. Stops the test on failure. */
struct support_picture {
    int64_t depth, height, width;
    int channels;
    enum wf_sample sample;
    int colors;
    const uint8_t (*palette)[3];
    const void *data;
};
void support_write(const char *path, const struct support_picture *picture);
/* One plane of u8. */
void support_bytes(const char *path, int64_t height, int64_t width, int channels,
                   const uint8_t *data);
void support_folder(const char *path); /* with the ones above it */
void support_text(const char *path, const char *text);

/* "set/images/a.npy" and "set/masks/a.npy": f32 values and labels that differ from pixel to pixel, below
 * `classes`. */
void support_pair(const char *set, const char *name, const int64_t extent[], int channels,
                  int classes);
/* The value and the label that support_pair() gives to a pixel of `name`. */
float support_value(const char *name, int64_t d, int64_t h, int64_t w, int c);
int32_t support_label(const char *name, int64_t d, int64_t h, int64_t w, int classes);

struct wf_dataset *support_open(const char *path);
/* Is not opened, for reasons that hold each of the texts. */
#define SUPPORT_REFUSED(path, ...) support_refused(path, (const char *const[]){ __VA_ARGS__, NULL })
void support_refused(const char *path, const char *const texts[]);
/* The labels of a whole small mask. */
void support_labels_are(const struct wf_dataset *ds, int64_t sample, const int32_t *want,
                        int64_t count);
/* Of one sample and one channel. */
struct wf_region support_box(int64_t d0, int64_t h0, int64_t w0, int64_t d1, int64_t h1,
                             int64_t w1);

#endif
