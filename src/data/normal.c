/* Mean and deviation of each channel, from a spread of windows over the training part. NaN is where nothing
 * was measured. */
#include <math.h>
#include <stdlib.h>

#include "data/dataset_inside.h"
#include "base/memory.h"
#include "data/sampler.h"

enum { SAMPLES = 256, PIXELS = 16 << 20 };

struct moments {
    double count, mean, m2; /* m2: sum of squares around the mean */
};

/* Means first, then squares around them: large offsets (16-bit images) cost no digits. */
static void add_window(struct moments *m, const float *pixels, int64_t all_pixels, int channels)
{
    double sum = 0, squares = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < all_pixels; i++)
        if (!isnan(pixels[i * channels])) {
            sum += (double)pixels[i * channels];
            count++;
        }
    if (count == 0)
        return;
    const double mean = sum / (double)count;
    for (int64_t i = 0; i < all_pixels; i++)
        if (!isnan(pixels[i * channels])) {
            const double d = (double)pixels[i * channels] - mean;
            squares += d * d;
        }
    const double all = m->count + (double)count, apart = mean - m->mean;
    m->m2 += squares + apart * apart * m->count * (double)count / all;
    m->mean += apart * (double)count / all;
    m->count = all;
}

static bool add_sample(struct wf_reader *reader, const struct wf_dataset *ds, int64_t sample,
                       int64_t budget, struct moments *m, float *pixels, struct wf_err *err)
{
    const int channels = wf_dataset_info(ds)->channels;
    const struct wf_spread spread =
        wf_spread(wf_dataset_extent(ds, sample), budget, WF_DATA_PIECE / channels);
    for (int64_t k = 0; k < spread.count; k++) {
        const struct wf_region w = wf_spread_at(&spread, k);
        const int64_t count =
            wf_region_extent(w, WF_D) * wf_region_extent(w, WF_H) * wf_region_extent(w, WF_W);
        if (!wf_reader_read(reader, sample, &w, pixels, NULL, err))
            return false;
        for (int c = 0; c < channels; c++)
            add_window(&m[c], pixels + c, count, channels);
    }
    return true;
}

bool wf_normal_measure(const struct wf_dataset *ds, const int64_t samples[], int64_t count,
                       uint64_t seed, struct wf_normal *normal, struct wf_err *err)
{
    const int channels = wf_dataset_info(ds)->channels;
    const int64_t used = wf_min(count, SAMPLES);
    WF_BUG_ON(count < 1 || channels < 1, "nothing to measure");
    *normal = (struct wf_normal){ .channels = channels };
    if (wf_dataset_info(ds)->is_raw) {
        for (int c = 0; c < channels; c++)
            normal->std[c] = 1;
        return true;
    }
    if (wf_dataset_info(ds)->is_cloud)
        return wf_clouds_measure(ds, samples, count, seed, normal, err);
    struct moments *const m = wf_take_zeroed(WF_DATA_CHANNELS, sizeof *m);
    float *const pixels = wf_take((size_t)WF_DATA_PIECE * sizeof *pixels);
    struct wf_reader *const reader = wf_reader_new(ds);
    bool ok = true;
    const int64_t budget =
        wf_max(PIXELS / used / channels, (int64_t)WF_DATA_WINDOW * WF_DATA_WINDOW);
    for (int64_t i = 0; ok && i < used; i++) {
        const int64_t at = used < count ? wf_sampler_order(seed, -1, count, i) : i;
        ok = add_sample(reader, ds, samples[at], budget, m, pixels, err);
    }
    for (int c = 0; ok && c < channels; c++) {
        const double std = m[c].count > 0 ? sqrt(m[c].m2 / m[c].count) : 0;
        normal->mean[c] = m[c].mean;
        normal->std[c] = std > 1e-12 * (1 + fabs(m[c].mean)) ? std : 1;
    }
    wf_reader_free(reader);
    free(pixels);
    free(m);
    return ok;
}
