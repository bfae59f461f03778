#include "data/clouds.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment.h"
#include "data/dataset_inside.h"
#include "data/sampler.h"

enum { SCAN_POINTS = 16 << 20, SCAN_CLOUDS = 256, NORMAL_CLOUDS = 64, MESH_SEED = 1 };

const char *const wf_feature_names[] = { "color", "intensity", "normal", "height", "ones", NULL };

static const struct feature {
    int width;
    bool normal; /* is normalised */
    const char *columns[3];
} kinds[] = {
    { 3, true, { "red", "green", "blue" } },
    { 1, true, { "intensity" } },
    { 3, false, { "nx", "ny", "nz" } },
    { 1, true, { NULL } },
    { 1, false, { NULL } },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

int wf_features_count(unsigned features)
{
    int n = 0;
    for (int k = 0; k < KINDS; k++)
        n += features & (1U << k) ? kinds[k].width : 0;
    return n;
}

bool wf_features_normal(unsigned features, int c)
{
    for (int k = 0; k < KINDS; k++) {
        if (!(features & (1U << k)))
            continue;
        if (c < kinds[k].width)
            return kinds[k].normal;
        c -= kinds[k].width;
    }
    return false;
}

/* --- opening --- */

static bool has_feature(const struct wf_cloud *c, int k)
{
    for (int i = 0; i < 3 && kinds[k].columns[i]; i++)
        if (!wf_cloud_has(c, kinds[k].columns[i]))
            return false;
    return true;
}

/* Where nothing was asked for: colour and intensity, or that there is something. */
unsigned wf_cloud_features(const struct wf_cloud *c)
{
    unsigned f = 0;
    for (int k = 0; k < 2; k++)
        f |= has_feature(c, k) ? 1U << k : 0;
    return f ? f : WF_FEATURE_ONES;
}

static struct wf_cloud_options options_of(const struct wf_dataset *ds, bool header_only)
{
    return (struct wf_cloud_options){ .header_only = header_only,
                                      .points = ds->points,
                                      .seed = MESH_SEED };
}

static void look_at_cloud(struct wf_dataset *ds, struct wf_entry *e)
{
    struct wf_err err = { 0 };
    struct wf_cloud c;
    const struct wf_cloud_options o = options_of(ds, true);
    if (!wf_cloud_read(e->files[0], &o, &c, &err)) {
        wf_dataset_problem(ds, e, "%s", err.text);
        return;
    }
    if (!ds->info.features)
        ds->info.features = wf_cloud_features(&c);
    for (int k = 0; k < KINDS; k++)
        if ((ds->info.features & (1U << k)) && !has_feature(&c, k))
            wf_dataset_problem(ds, e, "'%s' has no %s, which data.features asks for", e->files[0],
                               wf_feature_names[k]);
    if (ds->info.labels == WF_LABELS_PIXEL && !c.has_labels && !e->sample.mask)
        wf_dataset_problem(ds, e,
                           "'%s' has no labels: give a property 'label', or a file beside it "
                           "(NAME.label, NAME_labels.npy)",
                           e->files[0]);
    const int64_t extent[WF_AXES] = { 1, 1, 1, c.n, wf_features_count(ds->info.features) };
    memcpy(e->sample.extent, extent, sizeof extent);
    wf_cloud_release(&c);
}

void wf_clouds_look(struct wf_dataset *ds)
{
    int64_t first = -1;
    for (int64_t i = 0; i < ds->info.samples; i++) {
        if (ds->entries[i].sample.problem)
            continue;
        look_at_cloud(ds, &ds->entries[i]);
        if (first < 0 && !ds->entries[i].sample.problem)
            first = i;
    }
    ds->info.dims = 3;
    ds->info.is_cloud = true;
    ds->info.channels = first >= 0 ? wf_features_count(ds->info.features) : 0;
    if (ds->info.labels == WF_LABELS_PIXEL) { /* points of a voxel may disagree */
        ds->info.has_void = ds->info.has_ignore = true;
        ds->info.ignore = WF_LABEL_VOID;
    }
}

/* --- labels --- */

/* Labels of the file, inside it or beside it. */
static bool raw_labels(const struct wf_dataset *ds, const struct wf_entry *e, struct wf_cloud *c,
                       struct wf_err *err)
{
    if (ds->info.labels != WF_LABELS_PIXEL || !e->sample.mask)
        return true;
    free(c->labels);
    c->labels = wf_cloud_read_labels(e->sample.mask, e->files[0], c->n, err);
    c->has_labels = c->labels != NULL;
    return c->has_labels;
}

static bool read_raw(const struct wf_dataset *ds, int64_t index, struct wf_cloud *c,
                     struct wf_err *err)
{
    const struct wf_entry *const e = &ds->entries[index];
    const struct wf_cloud_options o = options_of(ds, false);
    if (!wf_cloud_read(e->files[0], &o, c, err))
        return false;
    (void)__atomic_fetch_add(ds->moved, (uint64_t)c->n * 12, __ATOMIC_RELAXED);
    if (raw_labels(ds, e, c, err))
        return true;
    wf_cloud_release(c);
    return false;
}

/* Which labels there are, from all clouds or a spread of them. */
void wf_clouds_scan(struct wf_dataset *ds)
{
    enum { MOST = WF_DATA_CLASSES };
    int64_t found[MOST] = { 0 }, points = 0;
    const int64_t all = ds->info.samples, used = wf_min(all, SCAN_CLOUDS);
    int highest = -1;
    ds->info.n_classes = ds->coded ? ds->named : 0;
    ds->info.scanned_all = used == all;
    for (int64_t i = 0; i < used; i++) {
        const int64_t index = used < all ? wf_sampler_order(1, -2, all, i) : i;
        struct wf_entry *const e = &ds->entries[index];
        struct wf_err err = { 0 };
        struct wf_cloud c;
        if (e->sample.problem)
            continue;
        if (points > SCAN_POINTS) {
            ds->info.scanned_all = false;
            break;
        }
        if (!read_raw(ds, index, &c, &err)) {
            wf_dataset_problem(ds, e, "%s", err.text);
            continue;
        }
        points += c.n;
        for (int64_t k = 0; c.labels && k < c.n; k++) {
            int64_t bad;
            int32_t label = c.labels[k];
            if (ds->coded)
                wf_codes_map(ds, 1, 1, &c.labels[k], &label, &bad);
            if (label < 0 || label >= MOST) {
                ds->info.other++;
                continue;
            }
            found[label]++;
            highest = label > highest ? label : highest;
        }
        wf_cloud_release(&c);
    }
    if (!ds->coded) {
        ds->info.codes = WF_CODES_DIRECT;
        ds->info.n_classes = (int)wf_max(highest + 1, ds->named);
    }
    ds->info.scanned = points;
    for (int i = 0; i < ds->info.n_classes; i++)
        ds->classes[i].found = found[i];
}

static bool to_classes(const struct wf_dataset *ds, const struct wf_entry *e, struct wf_cloud *c,
                       struct wf_err *err)
{
    int64_t bad = -1;
    if (!c->labels || ds->info.labels != WF_LABELS_PIXEL || ds->info.codes == WF_CODES_DIRECT)
        return true;
    int32_t *const labels = wf_take((size_t)c->n * sizeof *labels);
    wf_codes_map(ds, 1, c->n, c->labels, labels, &bad);
    if (bad >= 0)
        (void)wf_err_set(err, WF_ERR_INPUT,
                         "'%s': label %" PRId32 " of point %" PRId64
                         " is no class of '%s/classes.txt': add it there",
                         e->sample.mask ? e->sample.mask : e->files[0], c->labels[bad], bad,
                         ds->info.path);
    free(c->labels);
    c->labels = labels;
    return bad < 0;
}

bool wf_cloud_load(const struct wf_dataset *ds, int64_t index, struct wf_cloud *c,
                   struct wf_err *err)
{
    if (!read_raw(ds, index, c, err))
        return false;
    if (to_classes(ds, &ds->entries[index], c, err))
        return true;
    wf_cloud_release(c);
    return false;
}

/* --- features --- */

static double lowest(const struct wf_cloud *c)
{
    double z = c->at[2];
    for (int64_t i = 1; i < c->n; i++)
        z = fmin(z, c->at[3 * i + 2]);
    return z;
}

/* [n][channels], on the heap; NULL: one is missing or not finite. */
static float *features_of(const struct wf_cloud *c, const char *path, unsigned features,
                          struct wf_err *err)
{
    const int channels = wf_features_count(features);
    const double floor_at = lowest(c);
    float *const all = wf_take((size_t)(c->n * channels + 1) * sizeof *all);
    int at = 0;
    for (int k = 0; k < KINDS; k++) {
        for (int j = 0; (features & (1U << k)) && j < kinds[k].width; j++, at++) {
            const char *const name = kinds[k].columns[j];
            const float *const column = name ? wf_cloud_column(c, name) : NULL;
            if (name && !column) {
                (void)wf_err_set(err, WF_ERR_INPUT, "'%s' has no %s, which data.features asks for",
                                 path, wf_feature_names[k]);
                free(all);
                return NULL;
            }
            for (int64_t i = 0; i < c->n; i++)
                all[i * channels + at] = column ? column[i]
                                         : 1U << k == WF_FEATURE_HEIGHT
                                             ? (float)(c->at[3 * i + 2] - floor_at)
                                             : 1;
        }
    }
    for (int64_t i = 0; i < c->n * channels; i++)
        if (!isfinite(all[i])) {
            (void)wf_err_set(err, WF_ERR_INPUT,
                             "'%s': a feature of point %" PRId64
                             " is not a finite number: remove such points, or leave it out of "
                             "data.features",
                             path, i / channels);
            free(all);
            return NULL;
        }
    return all;
}

bool wf_clouds_measure(const struct wf_dataset *ds, const int64_t samples[], int64_t count,
                       uint64_t seed, struct wf_normal *normal, struct wf_err *err)
{
    const int channels = ds->info.channels;
    const int64_t used = wf_min(count, NORMAL_CLOUDS);
    double *const sums = wf_take_zeroed(2 * (size_t)channels + 1, sizeof *sums);
    double points = 0;
    bool ok = true;
    *normal = (struct wf_normal){ .channels = channels };
    for (int64_t i = 0; ok && i < used; i++) {
        const int64_t index = samples[used < count ? wf_sampler_order(seed, -1, count, i) : i];
        struct wf_cloud c;
        ok = wf_cloud_load(ds, index, &c, err);
        float *const f =
            ok ? features_of(&c, ds->entries[index].files[0], ds->info.features, err) : NULL;
        for (int64_t k = 0; f && k < c.n * channels; k++) {
            sums[k % channels] += (double)f[k];
            sums[channels + k % channels] += (double)f[k] * (double)f[k];
        }
        ok = f != NULL;
        if (ok)
            points += (double)c.n;
        free(f);
        wf_cloud_release(&c);
    }
    for (int k = 0; k < channels; k++) {
        const double mean = points > 0 ? sums[k] / points : 0;
        const double square = points > 0 ? sums[channels + k] / points - mean * mean : 0;
        const double std = sqrt(fmax(square, 0));
        const bool counts = wf_features_normal(ds->info.features, k);
        normal->mean[k] = counts ? mean : 0;
        normal->std[k] = counts && std > 1e-6 * (1 + fabs(mean)) ? std : 1;
    }
    free(sums);
    return ok;
}

/* --- one sample --- */

/* Positions far from 0 (UTM) are moved there, by whole steps of every stride that networks have. On the heap. */
static double *near_zero(const struct wf_cloud *c, double voxel)
{
    enum { STEPS = 1024 };
    double *const at = wf_take((size_t)(3 * c->n + 1) * sizeof *at), shift[3];
    for (int k = 0; k < 3; k++) {
        double least = c->at[k];
        for (int64_t i = 1; i < c->n; i++)
            least = fmin(least, c->at[3 * i + k]);
        shift[k] = floor(least / (voxel * STEPS)) * voxel * STEPS;
    }
    for (int64_t i = 0; i < 3 * c->n; i++)
        at[i] = c->at[i] - shift[i % 3];
    return at;
}

bool wf_cloud_sample_make(struct wf_cloud *c, const char *path, unsigned features,
                          const struct wf_cloud_rule *rule, struct wf_cloud_sample *s,
                          struct wf_err *err)
{
    const int channels = wf_features_count(features);
    *s = (struct wf_cloud_sample){ 0 };
    if (rule->augment)
        wf_cloud_augment(c, rule);
    float *const f = features_of(c, path, features, err);
    for (int64_t i = 0; f && rule->scale && i < c->n * channels; i++)
        f[i] = f[i] * rule->scale[i % channels] + rule->offset[i % channels];
    double *const at = near_zero(c, rule->voxel);
    const struct wf_quantise q = { .dims = 3,
                                   .n = c->n,
                                   .channels = channels,
                                   .points = at,
                                   .features = f,
                                   .labels = c->labels,
                                   .voxel = rule->voxel,
                                   .ignore = rule->ignore };
    const bool ok = f && (wf_quantise(&q, &s->voxels, err) || wf_err_wrap(err, "'%s'", path));
    free(f);
    free(at);
    if (ok) {
        s->n = c->n;
        s->at = c->at;
        s->labels = c->labels;
        c->at = NULL;
        c->labels = NULL;
    }
    wf_cloud_release(c);
    return ok;
}

bool wf_cloud_sample_read(const struct wf_dataset *ds, int64_t index,
                          const struct wf_cloud_rule *rule, struct wf_cloud_sample *s,
                          struct wf_err *err)
{
    struct wf_cloud c;
    return wf_cloud_load(ds, index, &c, err) &&
           wf_cloud_sample_make(&c, ds->entries[index].files[0], ds->info.features, rule, s, err);
}

void wf_cloud_sample_release(struct wf_cloud_sample *s)
{
    free(s->at);
    free(s->labels);
    wf_voxels_release(&s->voxels);
    *s = (struct wf_cloud_sample){ 0 };
}
