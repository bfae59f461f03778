/*
 * The points of a job with a sparse network: from a file, or random on distinct places; who has which; and the
 * capacities that follow for the sets of coordinates.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "image/npz.h"
#include "ops/op.h"
#include "train/job.h"

/* --- random points --- */

/* Places of a box that were drawn, by open addressing. */
struct drawn {
    int64_t *at; /* place + 1; 0: free */
    uint64_t mask;
};

static bool draw(struct drawn *d, int64_t place)
{
    uint64_t h = (uint64_t)place * 0x9e3779b97f4a7c15u;
    for (h ^= h >> 32;; h++) {
        int64_t *const slot = &d->at[h & d->mask];
        if (*slot == place + 1)
            return false;
        if (*slot == 0) {
            *slot = place + 1;
            return true;
        }
    }
}

/* The places of one sample, which is the same wherever it stands in the batch. */
static void draw_sample(const struct wf_job *job, const struct wf_extents *size, int64_t sample,
                        int32_t *coords)
{
    const int dims = size->count - 2;
    const int64_t points = job->settings.data.points;
    const struct wf_random r = wf_random(job->settings.train.seed, wf_random_stream("coords"));
    struct drawn d = { .mask = 15 };
    while ((int64_t)d.mask < 2 * points)
        d.mask = 2 * d.mask + 1;
    d.at = wf_take_zeroed(d.mask + 1, sizeof *d.at);
    uint64_t index = (uint64_t)sample << 40;
    for (int64_t i = 0; i < points;) {
        int32_t at[WF_SPARSE_AXES];
        int64_t place = 0;
        for (int k = 0; k < dims; k++) {
            at[k] = (int32_t)wf_random_below(r, index++, (uint32_t)size->at[2 + k]);
            place = place * size->at[2 + k] + at[k];
        }
        if (draw(&d, place))
            memcpy(coords + i++ * (1 + dims) + 1, at, (size_t)dims * sizeof *at);
    }
    free(d.at);
}

static bool draw_points(struct wf_job *job, const struct wf_extents *size, int micro,
                        struct wf_points_of_step *p, struct wf_err *err)
{
    const int64_t points = job->settings.data.points, width = size->count - 1;
    double places = 1;
    for (int k = 2; k < size->count; k++)
        places *= (double)size->at[k];
    if (points < 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "'%s' is a network of points: give data.points, the points of each "
                          "sample in the box of data.size",
                          job->model->name);
    if ((double)points > places / 2 && (double)points > places - 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "data.points is %" PRId64 ", and the box of data.size has %.0f places",
                          points, places);
    p->n = points * p->samples;
    int32_t *const coords = wf_arena_array(&job->arena, p->n * width, int32_t);
    float *const features = wf_arena_array(&job->arena, p->n * p->channels, float);
    const struct wf_random r = wf_random(job->settings.train.seed, wf_random_stream("image"));
    for (int64_t s = 0; s < p->samples; s++) {
        draw_sample(job, size, micro * p->samples + s, coords + s * points * width);
        for (int64_t i = 0; i < points; i++)
            coords[(s * points + i) * width] = (int32_t)s;
    }
    for (int64_t i = 0; i < p->n * p->channels; i++)
        features[i] = wf_random_normal(r, (uint64_t)(micro * p->n * p->channels + i));
    p->coords = coords;
    p->features = features;
    return true;
}

/* --- a file --- */

static bool read_array(const struct wf_npz *z, const char *path, const char *name, enum wf_dtype as,
                       struct wf_arena *arena, struct wf_npz_array *a, void **data,
                       struct wf_err *err)
{
    if (!wf_npz_find(z, name))
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has no array '%s': the input of a sparse network is 'coords' "
                          "[P, 1 + D] i32 and 'features' [P, C] f32",
                          path, name);
    if (!wf_npz_load(z, name, a, err))
        return false;
    if (a->npy.rank != 2)
        return wf_err_set(err, WF_ERR_INPUT, "'%s': '%s' has %d axes, wanted 2: one row a point",
                          path, name, a->npy.rank);
    *data = wf_arena_take(arena, (size_t)a->npy.count * 4 + 4);
    return wf_npy_read(&a->npy, 0, a->npy.count, as, *data, err);
}

bool wf_job_read_points(struct wf_job *job, struct wf_extents *size, struct wf_err *err)
{
    const char *const path = job->files.input;
    struct wf_npz z;
    if (!wf_npz_open(&z, path, err))
        return false;
    struct wf_npz_array coords = { 0 }, features = { 0 };
    void *rows = NULL, *values = NULL;
    bool ok = read_array(&z, path, "coords", WF_I32, &job->arena, &coords, &rows, err) &&
              read_array(&z, path, "features", WF_F32, &job->arena, &features, &values, err);
    const int64_t n = coords.npy.shape[0], width = coords.npy.shape[1];
    if (ok && (n < 1 || n != features.npy.shape[0] || width < 2 || width > 5))
        ok = wf_err_set(err, WF_ERR_INPUT,
                        "'%s': coords of %" PRId64 " rows of %" PRId64 ", features of %" PRId64
                        ": wanted as many, at least one, and rows of 2 to 5 coordinates",
                        path, n, width, features.npy.shape[0]);
    if (ok && rows) {
        int64_t samples = 1;
        for (int64_t i = 0; i < n; i++)
            samples = wf_max(samples, (int64_t)((int32_t *)rows)[i * width] + 1);
        *size = (struct wf_extents){ .count = (int)width + 1,
                                     .at = { samples, features.npy.shape[1], 1, 1, 1 } };
        job->points = wf_arena_one(&job->arena, struct wf_points_of_step);
        *job->points = (struct wf_points_of_step){ .dims = (int)width - 1,
                                                   .n = n,
                                                   .channels = features.npy.shape[1],
                                                   .samples = samples,
                                                   .coords = rows,
                                                   .features = values };
    }
    wf_npz_array_release(&coords);
    wf_npz_array_release(&features);
    wf_npz_close(&z);
    return ok;
}

/* --- who has what --- */

bool wf_job_make_points(struct wf_job *job, const struct wf_extents *size, struct wf_err *err)
{
    const int micro = wf_job_micro_batches(job);
    const bool read = job->points != NULL;
    if (read && micro > 1)
        return wf_err_set(err, WF_ERR_USAGE,
                          "train.accumulate is %d: --input has the points of one micro-batch",
                          micro);
    if (!read)
        job->points = wf_arena_array(&job->arena, micro, struct wf_points_of_step);
    for (int m = 0; m < micro && !read; m++) {
        struct wf_points_of_step *const p = &job->points[m];
        *p = (struct wf_points_of_step){ .dims = size->count - 2,
                                         .samples = size->at[0],
                                         .channels = size->at[1] };
        if (!draw_points(job, size, m, p, err))
            return false;
    }
    return true;
}

bool wf_job_deal_points(struct wf_job *job, struct wf_err *err)
{
    const int micro = wf_job_micro_batches(job), dims = job->points->dims;
    const struct wf_graph *const g = job->net.graph;
    const struct wf_points_cut cut = wf_points_cut(g, dims), whole = wf_points_uncut(1);
    const int parts = wf_points_parts(&cut);
    int64_t(*const counts)[WF_SETS + 1] =
        wf_arena_take_array(&job->arena, (size_t)parts, sizeof *counts);
    job->rows = wf_arena_array(&job->arena, micro, struct wf_points_rows);
    job->whole_rows = wf_arena_array(&job->arena, micro, struct wf_points_rows);
    for (int m = 0; m < micro; m++) {
        const struct wf_points_of_step *const p = &job->points[m];
        if (!wf_rows_make(&job->arena, p, &cut, &job->rows[m], err) ||
            !wf_rows_make(&job->arena, p, &whole, &job->whole_rows[m], err))
            return job->files.input ? wf_err_wrap(err, "'%s'", job->files.input) : false;
        int64_t totals[WF_SETS + 1] = { 0 };
        wf_rows_sets(g, p, &cut, &job->rows[m], counts);
        for (int k = 0; k < parts; k++)
            for (int s = 0; s <= WF_SETS; s++) {
                totals[s] += counts[k][s];
                job->capacities[s] = wf_max(job->capacities[s], counts[k][s] * parts);
            }
        if (!wf_rows_check(g, totals, err))
            return job->files.input ? wf_err_wrap(err, "'%s'", job->files.input) : false;
    }
    for (int s = 1; s <= job->net.graph->n_sets; s++)
        job->capacities[s] = wf_max(job->capacities[s], parts);
    return true;
}

/* --- rows and points --- */

int64_t wf_job_point(const struct wf_job *job, const struct wf_value *v, int micro,
                     const struct wf_view *view, int64_t row)
{
    const bool whole = wf_region_extent(view->box, WF_N) == v->shape.at[WF_N];
    const struct wf_points_rows *const rows = whole ? &job->whole_rows[micro] : &job->rows[micro];
    const int part = wf_rows_part(rows, v, &view->box);
    const int64_t i = row - view->box.lo[WF_N];
    return i < wf_rows_count(rows, part) ? rows->point[rows->first[part] + i] : -1;
}

void wf_job_boxes(const struct wf_job *job, const struct wf_value *v, int micro,
                  const struct wf_view *view)
{
    const struct wf_points_rows *const rows = wf_region_equal(view->box, wf_shape_region(v->shape))
                                                  ? &job->whole_rows[micro]
                                                  : &job->rows[micro];
    for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);) {
        int64_t part = 0;
        for (int a = WF_N; a < WF_C && rows->parts > 1; a++)
            part = part * v->shape.at[a] + c.at[a];
        wf_view_set(view, c.at, rows->box[part][c.at[WF_C]]);
    }
}
