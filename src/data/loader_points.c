/* A batch of point clouds: voxels of the rank's rows, one row after the other (I1 of loader.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/clouds.h"
#include "data/loader_inside.h"

/* --- memory --- */

static void *again(void *old, size_t count, size_t size)
{
    void *const room = realloc(old, count * size);
    if (!room)
        wf_no_memory(count * size);
    return room;
}

/* Half as much again, so that batches that differ a little do not move each time. */
static bool grows(size_t *room, int64_t wanted)
{
    if ((size_t)wanted < *room)
        return false;
    *room = (size_t)wanted + (size_t)wanted / 2 + 16;
    return true;
}

static void reserve(struct wf_cloud_batch *b, int64_t n)
{
    if (!grows(&b->room_n, n))
        return;
    b->coords = again(b->coords, b->room_n, 4 * sizeof *b->coords);
    b->features = again(b->features, b->room_n, (size_t)b->channels * sizeof *b->features);
    b->labels = again(b->labels, b->room_n, sizeof *b->labels);
    b->order = again(b->order, b->room_n, sizeof *b->order);
}

static void reserve_rows(struct wf_cloud_batch *b, int64_t rows)
{
    if (!grows(&b->room_rows, rows + 1))
        return;
    b->row_labels = again(b->row_labels, b->room_rows, sizeof *b->row_labels);
    b->row_samples = again(b->row_samples, b->room_rows, sizeof *b->row_samples);
    b->row_points = again(b->row_points, b->room_rows, sizeof *b->row_points);
}

static void reserve_points(struct wf_cloud_batch *b, int64_t n)
{
    if (!grows(&b->room_points, n))
        return;
    b->point_labels = again(b->point_labels, b->room_points, sizeof *b->point_labels);
    b->point_voxels = again(b->point_voxels, b->room_points, sizeof *b->point_voxels);
    b->point_at = again(b->point_at, b->room_points, 3 * sizeof *b->point_at);
}

void wf_cloud_batch_release(struct wf_cloud_batch *b)
{
    void *const all[] = { b->coords,       b->features,    b->labels,     b->order,
                          b->row_labels,   b->row_samples, b->row_points, b->point_labels,
                          b->point_voxels, b->point_at };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    *b = (struct wf_cloud_batch){ 0 };
}

/* --- a row --- */

/* Labels are classes, or the one that does not count. */
static bool check_labels(const struct wf_loader *l, int64_t sample, int32_t labels[], int64_t n,
                         struct wf_err *err)
{
    const struct wf_data_sample *const s = wf_dataset_sample(l->ds, sample);
    const int64_t classes = l->options.classes == 1 ? 2 : l->options.classes;
    for (int64_t i = 0; classes && i < n; i++) {
        if (labels[i] == WF_LABEL_VOID && l->options.has_ignore)
            labels[i] = l->options.ignore;
        if ((labels[i] >= 0 && labels[i] < classes) ||
            (l->options.has_ignore && labels[i] == l->options.ignore))
            continue;
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': label %" PRId32 " of point %" PRId64 " is none of the %" PRId64
                          " classes: set model.classes=%" PRId32 ", or train.ignore=%" PRId32
                          " if it does not count",
                          s->mask ? s->mask : s->image, labels[i], i, classes, labels[i] + 1,
                          labels[i]);
    }
    return true;
}

static void keep_points(struct wf_cloud_batch *b, const struct wf_cloud_sample *s, int64_t voxels)
{
    const int64_t at = b->n_points;
    b->n_points += s->n;
    reserve_points(b, b->n_points);
    memcpy(b->point_at + 3 * at, s->at, (size_t)s->n * 3 * sizeof *s->at);
    for (int64_t i = 0; i < s->n; i++) {
        b->point_voxels[at + i] = (int32_t)(voxels + s->voxels.voxel[i]);
        b->point_labels[at + i] = s->labels ? s->labels[i] : 0;
    }
}

static void add_voxels(struct wf_cloud_batch *b, const struct wf_voxels *v, int64_t row,
                       int32_t label)
{
    const int64_t at = b->n;
    b->n += v->n;
    reserve(b, b->n);
    memcpy(b->features + at * b->channels, v->features,
           (size_t)(v->n * b->channels) * sizeof *v->features);
    for (int64_t i = 0; i < v->n; i++) {
        int32_t *const c = b->coords + 4 * (at + i);
        c[0] = (int32_t)row;
        memcpy(c + 1, v->coords + 3 * i, 3 * sizeof *c);
        b->labels[at + i] = v->labels ? v->labels[i] : label;
    }
}

static bool add_row(const struct wf_loader *l, struct wf_cloud_batch *b, int64_t row,
                    const struct wf_loader_item *item, struct wf_err *err)
{
    const int64_t sample = item->draw.sample, i = row - b->first;
    const bool is_pixel = wf_dataset_info(l->ds)->labels == WF_LABELS_PIXEL;
    const struct wf_cloud_rule rule = { .voxel = l->options.voxel,
                                        .augment = wf_loader_trains(l) ? l->options.augment : 0,
                                        .seed = l->options.seed,
                                        .epoch = item->epoch,
                                        .item = item->item,
                                        .scale = l->scale,
                                        .offset = l->offset,
                                        .ignore = l->options.ignore };
    b->row_points[i] = b->n_points;
    b->row_samples[i] = wf_region_is_empty(item->counts) ? -1 : sample;
    b->row_labels[i] = l->options.ignore;
    if (b->row_samples[i] < 0)
        return true;
    struct wf_cloud_sample s;
    if (!wf_cloud_sample_read(l->ds, sample, &rule, &s, err))
        return false;
    int32_t label = wf_dataset_sample(l->ds, sample)->label;
    const bool ok = is_pixel ? check_labels(l, sample, s.labels, s.n, err) &&
                                   check_labels(l, sample, s.voxels.labels, s.voxels.n, err)
                             : check_labels(l, sample, &label, 1, err);
    b->row_labels[i] = label;
    if (ok && l->options.keeps_points)
        keep_points(b, &s, b->n);
    if (ok)
        add_voxels(b, &s.voxels, row, label);
    wf_cloud_sample_release(&s);
    return ok;
}

void wf_loader_fill_points(const struct wf_loader *l, struct wf_loader_slot *slot,
                           struct wf_err *err)
{
    const int64_t at = l->batch + slot->ticket;
    const int64_t epoch = l->epoch + at / l->batches, batch = at % l->batches;
    struct wf_cloud_batch *const b = &slot->points;
    b->n = b->n_points = 0;
    b->channels = wf_dataset_info(l->ds)->channels;
    b->first = l->options.row_first;
    b->rows = l->options.row_end - b->first;
    reserve_rows(b, b->rows);
    reserve(b, 1);
    reserve_points(b, 1);
    memset(b->places, 0, sizeof b->places);
    bool ok = true;
    for (int64_t row = b->first; ok && row < l->options.row_end; row++) {
        const struct wf_loader_item item = wf_loader_item(l, epoch, batch, row);
        ok = add_row(l, b, row, &item, err);
    }
    b->row_points[b->rows] = b->n_points;
    if (ok && l->options.arrange)
        (void)!l->options.arrange(l->options.user, b, err);
}
