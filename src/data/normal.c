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
static struct moments moments_of(const float *pixels, int64_t all_pixels, int channels)
{
    struct moments m = { 0 };
    double sum = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < all_pixels; i++)
        if (!isnan(pixels[i * channels])) {
            sum += (double)pixels[i * channels];
            count++;
        }
    if (count == 0)
        return m;
    m.count = (double)count;
    m.mean = sum / m.count;
    for (int64_t i = 0; i < all_pixels; i++)
        if (!isnan(pixels[i * channels])) {
            const double d = (double)pixels[i * channels] - m.mean;
            m.m2 += d * d;
        }
    return m;
}

static void join(struct moments *m, const struct moments *more)
{
    if (more->count == 0)
        return;
    const double all = m->count + more->count, apart = more->mean - m->mean;
    m->m2 += more->m2 + apart * apart * m->count * more->count / all;
    m->mean += apart * more->count / all;
    m->count = all;
}

/* Samples, and of each the moments of its windows, channel by channel: joined in their order, whichever thread was done
 * first. */
struct measure {
    const struct wf_dataset *ds;
    const int64_t *samples;
    int64_t count, used, budget;
    uint64_t seed;
    float **pixels; /* per thread */
    struct windows {
        struct moments *m;
        int64_t count;
        struct wf_err err;
    } * of;
};

static void measure_sample(void *user, int thread, struct wf_reader *reader, int64_t i)
{
    const struct measure *const all = user;
    const int channels = wf_dataset_info(all->ds)->channels;
    const int64_t at = all->used < all->count ? wf_sampler_order(all->seed, -1, all->count, i) : i;
    const struct wf_spread spread = wf_spread(wf_dataset_extent(all->ds, all->samples[at]),
                                              all->budget, WF_DATA_PIECE / channels);
    struct windows *const w = &all->of[i];
    float **const pixels = &all->pixels[thread];
    if (!*pixels)
        *pixels = wf_take((size_t)WF_DATA_PIECE * sizeof **pixels);
    w->m = wf_take_zeroed((size_t)(spread.count * channels), sizeof *w->m);
    for (int64_t k = 0; k < spread.count; k++) {
        const struct wf_region r = wf_spread_at(&spread, k);
        if (!wf_reader_read(reader, all->samples[at], &r, *pixels, NULL, &w->err))
            return;
        for (int c = 0; c < channels; c++)
            w->m[w->count++] = moments_of(*pixels + c, wf_window_pixels(&r), channels);
    }
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
    struct measure all = {
        .ds = ds, .samples = samples, .count = count, .used = used, .seed = seed
    };
    all.budget = wf_max(PIXELS / used / channels, (int64_t)WF_DATA_WINDOW * WF_DATA_WINDOW);
    const int threads = wf_each_threads(used);
    all.pixels = wf_take_zeroed((size_t)threads, sizeof *all.pixels);
    all.of = wf_take_zeroed((size_t)used, sizeof *all.of);
    wf_each(ds, used, threads, measure_sample, &all);
    struct moments m[WF_DATA_CHANNELS] = { 0 };
    bool ok = true;
    for (int64_t i = 0; i < used; i++) {
        const struct windows *const w = &all.of[i];
        for (int64_t k = 0; k < w->count; k++)
            join(&m[k % channels], &w->m[k]);
        if (ok && w->err.code)
            ok = wf_err_set(err, w->err.code, "%s", w->err.text);
        free(w->m);
    }
    for (int c = 0; ok && c < channels; c++) {
        const double std = m[c].count > 0 ? sqrt(m[c].m2 / m[c].count) : 0;
        normal->mean[c] = m[c].mean;
        normal->std[c] = std > 1e-12 * (1 + fabs(m[c].mean)) ? std : 1;
    }
    for (int t = 0; t < threads; t++)
        free(all.pixels[t]);
    free(all.pixels);
    free(all.of);
    return ok;
}
