/* What a job's inputs and weights are filled with: files, or random numbers by outside index. */
#include "train/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/units.h"
#include "ckpt/checkpoint.h"
#include "ckpt/safetensors.h"
#include "exec/run.h"
#include "image/npy.h"
#include "ops/op.h"
#include "tensor/border.h"

/* --- random --- */

static double random_target(const struct wf_job *job, struct wf_random r, uint64_t index)
{
    switch (job->target_kind) {
    case WF_TARGET_CLASSES:
        return wf_random_below(r, index, (uint32_t)job->config.classes);
    case WF_TARGET_BINARY:
        return wf_random_below(r, index, 2);
    case WF_TARGET_REAL:
        break;
    }
    return (double)wf_random_normal(r, index);
}

/* Of a micro-batch: where its samples begin among those of all. */
static int64_t samples_before(const struct wf_value *v, int micro)
{
    return micro * wf_shape_count(v->shape);
}

/* One row along W with its channels: elements are independent of each other, so rows are filled in parallel. */
static void fill_random_row(const struct wf_job *job, const struct wf_value *v, int64_t before,
                            const struct wf_view *view, struct wf_region row)
{
    const struct wf_random r = wf_random(job->settings.train.seed, wf_random_stream(v->name));
    const bool is_target = v == job->net.target;
    for (struct wf_cursor c = wf_cursor(row); wf_cursor_next(&c);) {
        const uint64_t index = (uint64_t)(before + wf_outside_index(&v->shape, c.at));
        wf_view_set(view, c.at,
                    is_target ? random_target(job, r, index) : (double)wf_random_normal(r, index));
    }
}

static void fill_random(const struct wf_job *job, const struct wf_value *v, int micro,
                        const struct wf_view *view)
{
    const int64_t depth = wf_region_extent(view->box, WF_D);
    const int64_t height = wf_region_extent(view->box, WF_H);
    const int64_t rows = wf_region_extent(view->box, WF_N) * depth * height;
    const int64_t before = samples_before(v, micro);
#pragma omp parallel for schedule(static) if (wf_region_count(view->box) > 1 << 14)
    for (int64_t i = 0; i < rows; i++) {
        struct wf_region row = view->box;
        row.lo[WF_N] += i / (depth * height);
        row.lo[WF_D] += i / height % depth;
        row.lo[WF_H] += i % height;
        for (int axis = WF_N; axis <= WF_H; axis++)
            row.hi[axis] = row.lo[axis] + 1;
        fill_random_row(job, v, before, view, row);
    }
}

/* --- points --- */

/* Labels of all points, in the order of the points. */
static int32_t *read_labels(const struct wf_job *job, int64_t n, struct wf_err *err)
{
    const char *const path = job->files.target;
    struct wf_npy a;
    if (!wf_npy_open(&a, path, err))
        return NULL;
    int32_t *const labels = wf_take((size_t)(n + 1) * sizeof *labels);
    const int64_t classes = job->config.classes;
    bool ok =
        a.count == n || wf_err_set(err, WF_ERR_INPUT,
                                   "'%s' has %" PRId64 " labels, and there are %" PRId64 " points",
                                   path, a.count, n);
    ok = ok && wf_npy_read(&a, 0, n, WF_I32, labels, err);
    for (int64_t i = 0; ok && i < n; i++)
        if (!(labels[i] >= 0 && labels[i] < classes) &&
            !(job->settings.train.has_ignore && labels[i] == job->settings.train.ignore))
            ok =
                wf_err_set(err, WF_ERR_INPUT,
                           "'%s': label %d of point %" PRId64 " is not below model.classes=%" PRId64
                           "; set train.ignore for a label that does not count",
                           path, labels[i], i, classes);
    wf_npy_close(&a);
    if (!ok)
        free(labels);
    return ok ? labels : NULL;
}

/* Rows of the input: what is known of their points. */
static bool fill_points(const struct wf_job *job, const struct wf_value *v, int micro,
                        const struct wf_view *view, struct wf_err *err)
{
    const struct wf_points_of_step *const p = &job->points[micro];
    const struct wf_random r = wf_random(job->settings.train.seed, wf_random_stream(v->name));
    const bool is_target = v == job->net.target, is_features = v == job->net.image;
    const int64_t width = v->shape.at[WF_C];
    int32_t *const labels = is_target && job->files.target ? read_labels(job, p->n, err) : NULL;
    if (is_target && job->files.target && !labels)
        return false;
    for (int64_t row = view->box.lo[WF_N]; row < view->box.hi[WF_N]; row++) {
        const int64_t i = wf_job_point(job, v, micro, view, row);
        for (int64_t c = 0; i >= 0 && c < width; c++)
            wf_view_put(view, row, 0, 0, 0, c,
                        labels ? labels[i]
                        : is_target
                            ? random_target(job, r, (uint64_t)((micro * p->n + i) * width + c))
                        : is_features ? (double)p->features[i * p->channels + c]
                                      : p->coords[i * (1 + p->dims) + c]);
    }
    free(labels);
    return true;
}

/* --- .npy --- */

bool wf_job_npy_size(const char *path, int *count, int64_t size[WF_AXES], struct wf_err *err)
{
    struct wf_npy a;
    if (!wf_npy_open(&a, path, err))
        return false;
    bool ok = a.rank >= 3 && a.rank <= WF_AXES;
    if (!ok)
        (void)wf_err_set(err, WF_ERR_INPUT,
                         "'%s': an image is [N, C, *spatial], this array has %d axes", path,
                         a.rank);
    *count = a.rank;
    for (int i = 0; ok && i < a.rank; i++) {
        size[i] = a.shape[i];
        if (size[i] < 1)
            ok = wf_err_set(err, WF_ERR_INPUT, "'%s': axis %d is empty", path, i);
    }
    wf_npy_close(&a);
    return ok;
}

/* The array's shape is the value's outside shape; a single channel may be left out. */
static bool check_npy(const struct wf_npy *a, const struct wf_value *v, int micro_batches,
                      const char *path, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    int64_t want[WF_AXES], map[WF_AXES];
    const int rank = wf_border_shape(v->shape, v->border_dims, want);
    want[0] *= micro_batches;
    map[0] = want[0];
    for (int i = 2; i < rank; i++)
        map[i - 1] = want[i];
    const bool whole =
        a->rank == rank && memcmp(a->shape, want, (size_t)rank * sizeof want[0]) == 0;
    const bool as_map = want[1] == 1 && a->rank == rank - 1 &&
                        memcmp(a->shape, map, (size_t)(rank - 1) * sizeof map[0]) == 0;
    bool ok = whole || as_map;
    if (!ok)
        (void)wf_err_set(err, WF_ERR_INPUT, "'%s' is %s, but '%s' is %s", path,
                         wf_text_extents(&arena, a->rank, a->shape), v->name,
                         want[1] == 1 ? wf_text_extents(&arena, rank - 1, map)
                                      : wf_text_extents(&arena, rank, want));
    wf_arena_release(&arena);
    return ok;
}

static bool check_row(const struct wf_job *job, const struct wf_value *v, const int64_t at[WF_AXES],
                      int64_t count, const void *row, struct wf_err *err)
{
    if (v != job->net.target || job->target_kind == WF_TARGET_REAL)
        return true;
    const struct wf_train_settings *const t = &job->settings.train;
    const bool map = job->target_kind == WF_TARGET_CLASSES;
    const int64_t classes = map ? job->config.classes : 2;
    for (int64_t i = 0; i < count; i++) {
        const double label = map ? ((const int32_t *)row)[i] : (double)((const float *)row)[i];
        const bool ignored = t->has_ignore && label == (double)t->ignore;
        if (!ignored &&
            (map ? !(label >= 0 && label < (double)classes) : !(label >= 0 && label <= 1)))
            return wf_err_set(err, WF_ERR_INPUT,
                              "'%s': label %g at n=%" PRId64 " d=%" PRId64 " h=%" PRId64
                              " w=%" PRId64 " is not %s%" PRId64
                              "; set train.ignore for a label that does not count",
                              job->files.target, label, at[WF_N], at[WF_D], at[WF_H], at[WF_W] + i,
                              map ? "below model.classes=" : "from 0 to ", map ? classes : 1);
    }
    return true;
}

/* The rows of the box, each a run of elements outside. */
static bool fill_rows(const struct wf_job *job, const struct wf_value *v, int64_t before,
                      const struct wf_npy *a, const struct wf_view *view, struct wf_err *err)
{
    const enum wf_dtype as = v->dtype == WF_I32 ? WF_I32 : WF_F32;
    const int64_t width = wf_region_extent(view->box, WF_W);
    void *const row = malloc((size_t)width * 4); /* both types have four bytes */
    if (!row)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a row of '%s'", v->name);
    struct wf_region starts = view->box;
    starts.hi[WF_W] = starts.lo[WF_W] + 1;
    bool ok = true;
    for (struct wf_cursor c = wf_cursor(starts); ok && wf_cursor_next(&c);) {
        ok = wf_npy_read(a, before + wf_outside_index(&v->shape, c.at), width, as, row, err) &&
             check_row(job, v, c.at, width, row, err);
        int64_t at[WF_AXES];
        memcpy(at, c.at, sizeof at);
        for (int64_t i = 0; ok && i < width; i++, at[WF_W]++)
            wf_view_set(view, at, wf_dtype_get(as, row, i));
    }
    free(row);
    return ok;
}

static bool fill_npy(const struct wf_job *job, const struct wf_value *v, int micro,
                     const char *path, const struct wf_view *view, struct wf_err *err)
{
    struct wf_npy a;
    if (!wf_npy_open(&a, path, err))
        return false;
    const bool ok = check_npy(&a, v, wf_job_micro_batches(job), path, err) &&
                    (wf_region_is_empty(view->box) ||
                     fill_rows(job, v, samples_before(v, micro), &a, view, err));
    wf_npy_close(&a);
    return ok;
}

/* --- weights --- */

static bool is_weight(const struct wf_value *v)
{
    return v->kind == WF_PARAM || v->kind == WF_STATE;
}

/* PyTorch keeps a count beside the running statistics that has no meaning with a fixed momentum. */
static bool is_passed_over(const char *name)
{
    static const char end[] = ".num_batches_tracked";
    const size_t n = strlen(name), m = sizeof end - 1;
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool check_names(const struct wf_job *job, const struct wf_safetensors *s,
                        struct wf_err *err)
{
    for (int64_t i = 0; i < wf_safetensors_count(s); i++) {
        const char *const name = wf_safetensors_at(s, i)->name;
        const struct wf_value *const v = wf_graph_find(job->net.graph, name);
        if ((!v || !is_weight(v)) && !is_passed_over(name))
            return wf_err_set(
                err, WF_ERR_INPUT,
                "'%s' has '%s', which network '%s' has not: 'widefield model show %s' "
                "lists its tensors",
                job->files.weights, name, job->model->name, job->model->name);
    }
    for (size_t i = 0; i < job->net.graph->n_values; i++) {
        const struct wf_value *const v = job->net.graph->values[i];
        if (!is_weight(v) || (v->kind == WF_STATE && !wf_safetensors_find(s, v->name)))
            continue;
        int64_t shape[WF_AXES];
        const int rank = wf_border_shape(v->shape, v->border_dims, shape);
        if (!wf_safetensors_want(s, v->name, rank, shape, err))
            return false;
    }
    return true;
}

bool wf_job_open_weights(struct wf_job *job, struct wf_err *err)
{
    job->weights = wf_safetensors_open(job->files.weights, err);
    return job->weights && wf_checkpoint_vouch(job->weights, job->files.weights, err) &&
           check_names(job, job->weights, err);
}

/* The tensor of a value: by its own name, or by that in a checkpoint of 'train'. NULL: the file has none. */
static const struct wf_safetensor *find_weight(const struct wf_safetensors *s,
                                               const struct wf_value *v)
{
    const struct wf_safetensor *const t = wf_safetensors_find(s, v->name);
    if (t)
        return t;
    char name[512];
    (void)snprintf(name, sizeof name, "%s.%s", v->kind == WF_STATE ? "state" : "param", v->name);
    return wf_safetensors_find(s, name);
}

bool wf_job_open_start(struct wf_job *job, struct wf_err *err)
{
    const char *const path = job->settings.weights;
    job->weights = wf_safetensors_open(path, err);
    if (!job->weights || !wf_checkpoint_vouch(job->weights, path, err))
        return false;
    int64_t taken = 0;
    for (size_t i = 0; i < job->net.graph->n_values; i++) {
        const struct wf_value *const v = job->net.graph->values[i];
        const struct wf_safetensor *const t = is_weight(v) ? find_weight(job->weights, v) : NULL;
        if (!t)
            continue;
        int64_t shape[WF_AXES];
        const int rank = wf_border_shape(v->shape, v->border_dims, shape);
        if (!wf_safetensors_want(job->weights, t->name, rank, shape, err))
            return false;
        taken++;
    }
    if (taken == 0)
        return wf_err_set(
            err, WF_ERR_INPUT,
            "'%s' has no tensor of network '%s': 'widefield model show %s' lists their "
            "names",
            path, job->model->name, job->model->name);
    return true;
}

/* Only what the network takes: files of others have more in them, of types that we do not read. */
static bool hash_weights(const struct wf_job *job, XXH64_hash_t *hash, struct wf_err *err)
{
    bool ok = true;
    for (size_t i = 0; ok && i < job->net.graph->n_values; i++) {
        const struct wf_value *const v = job->net.graph->values[i];
        const struct wf_safetensor *const t = is_weight(v) ? find_weight(job->weights, v) : NULL;
        if (!t)
            continue;
        float *const data = malloc((size_t)t->count * sizeof *data);
        ok = data ? wf_safetensors_read(job->weights, t, WF_F32, data, err)
                  : wf_err_set(err, WF_ERR_FIT, "no memory for the weights '%s'", t->name);
        if (ok)
            *hash = XXH64(data, (size_t)t->count * sizeof *data,
                          XXH64(t->name, strlen(t->name), *hash));
        free(data);
    }
    return ok;
}

bool wf_job_same_weights(const struct wf_job *job, struct wf_err *err)
{
    XXH64_hash_t hash = 0;
    char digest[17];
    if (!job->launch.world)
        return true;
    const bool ok = hash_weights(job, &hash, err);
    (void)snprintf(digest, sizeof digest, "%016" PRIx64, (uint64_t)hash);
    const char *const path = job->files.weights ? job->files.weights : job->settings.weights;
    return wf_launch_agree(&job->launch, ok, err) &&
           wf_launch_same_file(&job->launch, path, digest, err);
}

static bool fill_tensor(const struct wf_value *v, const struct wf_safetensors *s,
                        const struct wf_safetensor *t, const struct wf_view *view,
                        struct wf_err *err)
{
    float *const data = malloc((size_t)t->count * sizeof *data);
    if (!data)
        return wf_err_set(err, WF_ERR_FIT, "no memory for '%s'", v->name);
    const bool ok = wf_safetensors_read(s, t, WF_F32, data, err);
    if (ok)
        for (struct wf_cursor c = wf_cursor(view->box); wf_cursor_next(&c);)
            wf_view_set(view, c.at, (double)data[wf_outside_index(&v->shape, c.at)]);
    free(data);
    return ok;
}

bool wf_job_start_weights(const struct wf_job *job, struct wf_run *run, struct wf_err *err)
{
    wf_run_init_weights(run, job->settings.train.seed);
    bool ok = true;
    for (size_t i = 0; ok && job->weights && i < job->net.graph->n_values; i++) {
        const struct wf_value *const v = job->net.graph->values[i];
        const struct wf_safetensor *const t = is_weight(v) ? find_weight(job->weights, v) : NULL;
        if (!t)
            continue;
        struct wf_host host = { 0 };
        wf_run_map(run, v, &host);
        ok = !host.view.data || fill_tensor(v, job->weights, t, &host.view, err);
        wf_host_put(&host);
        wf_host_release(&host);
    }
    return ok;
}

bool wf_job_fill(const struct wf_job *job, const struct wf_value *v, int micro,
                 const struct wf_view *view, struct wf_err *err)
{
    for (int i = 0; i < WF_ADAPTS; i++)
        if (v == job->net.weights[i]) {
            wf_view_fill(view, job->settings.train.adapt.weight[i]);
            return true;
        }
    if (v->set)
        return fill_points(job, v, micro, view, err);
    if (v->per_rank) {
        wf_job_boxes(job, v, micro, view);
        return true;
    }
    if (v == job->net.image && job->files.input)
        return fill_npy(job, v, micro, job->files.input, view, err);
    if (v == job->net.target && job->files.target)
        return fill_npy(job, v, micro, job->files.target, view, err);
    fill_random(job, v, micro, view);
    return true;
}
