#include "data/quantise.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* Voxels by open addressing; whole coordinates are compared. */
struct table {
    int32_t *slot; /* voxel, -1: free; a power of two of them */
    uint64_t mask;
};

static uint64_t hash_of(const int32_t at[], int dims)
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (int d = 0; d < dims; d++) {
        h = (h ^ (uint32_t)at[d]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

/* The voxel at a place; a new one where there is none yet. */
static int32_t voxel_at(const struct table *t, struct wf_voxels *v, const int32_t at[], int dims)
{
    const size_t bytes = (size_t)dims * sizeof *at;
    for (uint64_t h = hash_of(at, dims);; h++) {
        int32_t *const slot = &t->slot[h & t->mask];
        if (*slot < 0) {
            memcpy(v->coords + v->n * dims, at, bytes);
            *slot = (int32_t)v->n++;
        }
        if (memcmp(v->coords + (int64_t)*slot * dims, at, bytes) == 0)
            return *slot;
    }
}

static bool place_of(const struct wf_quantise *q, int64_t point, int32_t at[], struct wf_err *err)
{
    const double voxel = q->voxel > 0 ? q->voxel : 1.0;
    for (int d = 0; d < q->dims; d++) {
        const double position = q->points[point * q->dims + d], place = floor(position / voxel);
        if (!isfinite(position))
            return wf_err_set(err, WF_ERR_INPUT,
                              "point %" PRId64 ": coordinate %d is not a finite number", point, d);
        if (place < INT32_MIN || place > INT32_MAX)
            return wf_err_set(err, WF_ERR_INPUT,
                              "point %" PRId64 ": coordinate %d is %g, which is beyond 2^31 voxels "
                              "of %g: use larger voxels, or move the points towards 0",
                              point, d, position, voxel);
        at[d] = (int32_t)place;
    }
    return true;
}

static bool no_memory(const struct wf_quantise *q, struct wf_err *err)
{
    return wf_err_set(err, WF_ERR_FIT, "no memory for the voxels of %" PRId64 " points", q->n);
}

static bool find_voxels(const struct wf_quantise *q, struct wf_voxels *v, struct wf_err *err)
{
    struct table t = { .mask = 15 };
    while (t.mask < 2 * (uint64_t)q->n)
        t.mask = 2 * t.mask + 1;
    v->voxel = calloc((size_t)q->n + 1, sizeof *v->voxel);
    v->coords = malloc((size_t)((q->n + 1) * q->dims) * sizeof *v->coords);
    t.slot = malloc((size_t)(t.mask + 1) * sizeof *t.slot);
    if (!v->voxel || !v->coords || !t.slot) {
        free(t.slot);
        return no_memory(q, err);
    }
    bool ok = true;
    memset(t.slot, -1, (size_t)(t.mask + 1) * sizeof *t.slot);
    for (int64_t i = 0; ok && i < q->n; i++) {
        int32_t at[WF_QUANTISE_AXES] = { 0 };
        ok = place_of(q, i, at, err);
        if (ok)
            v->voxel[i] = voxel_at(&t, v, at, q->dims);
    }
    free(t.slot);
    return ok;
}

/* One more point, number `count` (from 1) of its voxel. */
static void add_point(const struct wf_quantise *q, int64_t point, double *to, int64_t count)
{
    const float *const from = q->features + point * q->channels;
    const struct wf_random r = wf_random(q->seed, wf_random_stream("quantise"));
    /* The last of `count` points is taken with probability 1 / count: all are equally likely. */
    const bool taken =
        q->mode == WF_QUANTISE_RANDOM && wf_random_below(r, (uint64_t)point, (uint32_t)count) == 0;
    for (int64_t c = 0; c < q->channels; c++) {
        const double value = (double)from[c];
        if (count == 1 || taken)
            to[c] = value;
        else if (q->mode == WF_QUANTISE_MAX)
            to[c] = fmax(to[c], value);
        else if (q->mode != WF_QUANTISE_RANDOM)
            to[c] += value;
    }
}

/* In double, point by point: the sum is rounded once. */
static bool reduce_features(const struct wf_quantise *q, struct wf_voxels *v, struct wf_err *err)
{
    const size_t numbers = (size_t)(v->n * q->channels) + 1;
    double *const sums = calloc(numbers, sizeof *sums);
    int64_t *const count = calloc((size_t)v->n + 1, sizeof *count);
    v->features = malloc(numbers * sizeof *v->features);
    const bool ok = sums && count && v->features;
    for (int64_t i = 0; ok && i < q->n; i++) {
        const int64_t at = v->voxel[i];
        add_point(q, i, sums + at * q->channels, ++count[at]);
    }
    for (int64_t i = 0; ok && i < v->n; i++) {
        const double points = q->mode == WF_QUANTISE_AVERAGE ? (double)count[i] : 1.0;
        for (int64_t c = 0; c < q->channels; c++)
            v->features[i * q->channels + c] = (float)(sums[i * q->channels + c] / points);
    }
    free(count);
    free(sums);
    return ok || no_memory(q, err);
}

static bool join_labels(const struct wf_quantise *q, struct wf_voxels *v, struct wf_err *err)
{
    v->labels = malloc((size_t)(v->n + 1) * sizeof *v->labels);
    if (!v->labels)
        return no_memory(q, err);
    for (int64_t i = q->n; i-- > 0;)
        v->labels[v->voxel[i]] = q->labels[i];
    for (int64_t i = 0; i < q->n; i++)
        if (v->labels[v->voxel[i]] != q->labels[i])
            v->labels[v->voxel[i]] = q->ignore;
    return true;
}

bool wf_quantise(const struct wf_quantise *q, struct wf_voxels *v, struct wf_err *err)
{
    WF_BUG_ON(q->dims < 1 || q->dims > WF_QUANTISE_AXES, "points of %d axes", q->dims);
    *v = (struct wf_voxels){ 0 };
    bool ok = q->n < INT32_MAX ||
              wf_err_set(err, WF_ERR_INPUT, "%" PRId64 " points: at most 2^31 - 2 at a time", q->n);
    ok = ok && find_voxels(q, v, err) && (!q->features || reduce_features(q, v, err)) &&
         (!q->labels || join_labels(q, v, err));
    if (!ok)
        wf_voxels_release(v);
    return ok;
}

void wf_voxels_release(struct wf_voxels *v)
{
    free(v->coords);
    free(v->features);
    free(v->labels);
    free(v->voxel);
    *v = (struct wf_voxels){ 0 };
}
