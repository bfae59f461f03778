/* What a batch holds, and the making of it: a function of options, (epoch, batch) and boxes (I1). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader_inside.h"

/* --- which items --- */

int64_t wf_loader_tiles(const struct wf_loader *l, int64_t sample, int axis)
{
    if (wf_loader_is_cloud(l))
        return 1;
    const int64_t extent = wf_dataset_sample(l->ds, sample)->extent[axis];
    return wf_ceil_div(extent, l->options.crop[axis]);
}

/* Tile `k` of a sample; the last along an axis moves back so that it lies inside, and counts only what
 * is new. */
static struct wf_loader_item tile_item(const struct wf_loader *l, int64_t sample, int64_t k)
{
    struct wf_loader_item item = { .draw = { .sample = sample, .change = { .gain = 1 } } };
    memcpy(item.draw.crop, l->options.crop, sizeof item.draw.crop);
    item.counts = (struct wf_region){ .hi = { [WF_N] = 1, [WF_C] = 1 } };
    for (int a = WF_W; a >= WF_D; a--) {
        const int64_t extent = wf_dataset_sample(l->ds, sample)->extent[a];
        const int64_t crop = l->options.crop[a], parts = wf_loader_tiles(l, sample, a);
        const int64_t wanted = k % parts * crop, origin = wf_min(wanted, extent - crop);
        item.draw.change.origin[a] = origin;
        item.counts.lo[a] = wanted - origin;
        item.counts.hi[a] = crop;
        k /= parts;
    }
    return item;
}

static struct wf_loader_item covering_item(const struct wf_loader *l, int64_t position)
{
    const int64_t item = position % l->items;
    int64_t lo = 0, hi = l->n_samples;
    while (hi - lo > 1) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (l->first_item[mid] <= item)
            lo = mid;
        else
            hi = mid;
    }
    struct wf_loader_item found = tile_item(l, l->samples[lo], item - l->first_item[lo]);
    if (position >= l->items)
        found.counts = (struct wf_region){ 0 };
    return found;
}

struct wf_loader_item wf_loader_item(const struct wf_loader *l, int64_t epoch, int64_t batch,
                                     int64_t row)
{
    const int64_t parts = l->options.parts > 0 ? l->options.parts : 1;
    const int64_t position = (batch * parts + l->options.part_at) * l->options.batch + row;
    WF_BUG_ON(batch < 0 || batch >= l->batches || row < 0 || row >= l->options.batch,
              "row %" PRId64 " of batch %" PRId64, row, batch);
    if (!wf_loader_trains(l))
        return covering_item(l, position);
    /* Rows past the end begin again at the front, with crops of their own. */
    const int64_t item = wf_sampler_order(l->options.seed, epoch, l->items, position % l->items);
    const int64_t sample = l->samples[item % l->n_samples];
    struct wf_draw_rule rule = { .seed = l->options.seed,
                                 .pad = l->options.pad,
                                 .augment = l->options.augment,
                                 .balance = l->balance };
    memcpy(rule.crop, l->options.crop, sizeof rule.crop);
    struct wf_loader_item found = {
        .draw = wf_sampler_draw(l->ds, &rule, sample, epoch, item + position / l->items * l->items),
        .epoch = epoch,
        .item = item + position / l->items * l->items,
    };
    found.counts = (struct wf_region){ .hi = { [WF_N] = 1, [WF_C] = 1 } };
    for (int a = WF_D; a <= WF_W; a++)
        found.counts.hi[a] = l->options.crop[a];
    return found;
}

/* --- filling --- */

static int64_t pixels_of(struct wf_region r)
{
    return wf_region_extent(r, WF_D) * wf_region_extent(r, WF_H) * wf_region_extent(r, WF_W);
}

static bool labels_are_right(const struct wf_loader *l, const struct wf_data_sample *s,
                             const struct wf_region *w, const int32_t *labels, int64_t count,
                             struct wf_err *err)
{
    const int64_t classes = l->options.classes == 1 ? 2 : l->options.classes;
    for (int64_t i = 0; classes && i < count; i++) {
        if ((labels[i] >= 0 && labels[i] < classes) ||
            (l->options.has_ignore && labels[i] == l->options.ignore))
            continue;
        const int64_t wide = wf_region_extent(*w, WF_W), high = wf_region_extent(*w, WF_H);
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': label %" PRId32 " at plane %" PRId64 ", row %" PRId64
                          ", column %" PRId64 " is none of the %" PRId64
                          " classes: set model.classes=%" PRId32 ", or train.ignore=%" PRId32
                          " if it does not count",
                          s->mask ? s->mask : s->image, labels[i], w->lo[WF_D] + i / wide / high,
                          w->lo[WF_H] + i / wide % high, w->lo[WF_W] + i % wide, classes,
                          labels[i] + 1, labels[i]);
    }
    return true;
}

/* What a row's window is read into: raw pixels or labels over `source`, dense. */
struct raw {
    int64_t sample;
    struct wf_region source;
    int channels;
    float *pixels;   /* or NULL */
    int32_t *labels; /* or NULL */
};

/* Where nothing was measured the network gets the mean, and labels do not count. */
static bool settle_void(const struct wf_loader *l, const struct raw *r, struct wf_err *err)
{
    const struct wf_data_sample *const s = wf_dataset_sample(l->ds, r->sample);
    const int64_t count = pixels_of(r->source);
    for (int64_t i = 0; r->pixels && s->has_nodata && i < count * r->channels; i++)
        if (isnan(r->pixels[i]))
            r->pixels[i] = l->fill[i % r->channels];
    for (int64_t i = 0; r->labels && i < count; i++) {
        if (r->labels[i] != WF_LABEL_VOID)
            continue;
        if (!l->options.has_ignore)
            return wf_err_set(
                err, WF_ERR_USAGE,
                "'%s' has pixels that do not count: set train.ignore to the label that "
                "they shall have",
                s->mask);
        r->labels[i] = l->options.ignore;
    }
    return true;
}

static bool read_inside(const struct wf_loader *l, struct wf_reader *reader, const struct raw *r,
                        struct wf_err *err)
{
    return wf_reader_read(reader, r->sample, &r->source, r->pixels, r->labels, err) &&
           settle_void(l, r, err) &&
           (!r->labels || labels_are_right(l, wf_dataset_sample(l->ds, r->sample), &r->source,
                                           r->labels, pixels_of(r->source), err));
}

/* A source that reaches past the image: zeros and labels that do not count, and the image in it. */
static bool read_padded(const struct wf_loader *l, struct wf_reader *reader, const struct raw *r,
                        struct wf_err *err)
{
    struct wf_region whole = wf_dataset_extent(l->ds, r->sample), box = r->source;
    whole.hi[WF_C] = box.hi[WF_C] = r->pixels ? r->channels : 1;
    const struct wf_region inner = wf_region_intersect(whole, box);
    const int64_t count = wf_region_count(box), kept = wf_region_count(inner);
    for (int64_t i = 0; r->pixels && i < count; i++)
        r->pixels[i] = 0;
    for (int64_t i = 0; r->labels && i < count; i++)
        r->labels[i] = l->options.ignore;
    if (kept == 0)
        return true;
    void *const part = malloc((size_t)kept * sizeof(float));
    if (!part)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a window of %" PRId64 " numbers", kept);
    struct raw in = *r;
    in.source = inner;
    in.pixels = r->pixels ? part : NULL;
    in.labels = r->labels ? part : NULL;
    const bool ok = read_inside(l, reader, &in, err);
    if (ok) {
        const enum wf_dtype dtype = r->pixels ? WF_F32 : WF_I32;
        void *const to = r->pixels ? (void *)r->pixels : (void *)r->labels;
        const struct wf_view from = wf_view_dense(part, dtype, inner);
        const struct wf_view place = wf_view_part(wf_view_dense(to, dtype, box), inner);
        wf_view_copy(&place, &from);
    }
    free(part);
    return ok;
}

/* Image or labels of one row: reads the window of the file that the box needs, and changes it. */
static bool fill_part(const struct wf_loader *l, struct wf_reader *reader,
                      const struct wf_draw *draw, const struct wf_region *box, float *image,
                      int32_t *labels, struct wf_err *err)
{
    const struct wf_data_sample *const s = wf_dataset_sample(l->ds, draw->sample);
    struct wf_change_job job = { .change = &draw->change,
                                 .crop = draw->crop,
                                 .image = wf_sampler_field(l->ds, draw->sample, l->options.pad),
                                 .window = *box,
                                 .channels = (int)s->extent[WF_C],
                                 .scale = l->scale,
                                 .offset = l->offset,
                                 .out = image,
                                 .out_labels = labels };
    job.source = wf_change_reads(job.change, job.crop, job.image, job.window);
    const int64_t count = pixels_of(job.source);
    const int64_t each = image ? job.channels : 1;
    void *const room = malloc((size_t)(count * each) * sizeof(float));
    if (!room)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a window of %" PRId64 " pixels", count);
    const struct raw raw = { .sample = draw->sample,
                             .source = job.source,
                             .channels = job.channels,
                             .pixels = image ? room : NULL,
                             .labels = labels ? room : NULL };
    const bool ok =
        l->options.pad > 0 ? read_padded(l, reader, &raw, err) : read_inside(l, reader, &raw, err);
    if (ok) {
        job.pixels = raw.pixels;
        job.labels = raw.labels;
        wf_change_apply(&job);
    }
    free(room);
    return ok;
}

bool wf_loader_fill_part(const struct wf_loader *l, int64_t sample, const struct wf_region *box,
                         float *image, int32_t *labels, struct wf_err *err)
{
    struct wf_draw all = { .sample = sample, .change = { .gain = 1 } };
    memcpy(all.crop, wf_dataset_sample(l->ds, sample)->extent, sizeof all.crop);
    return fill_part(l, l->reader, &all, box, image, labels, err);
}

static bool fill_label(const struct wf_loader *l, const struct wf_draw *draw, int32_t *labels,
                       int64_t count, struct wf_err *err)
{
    const struct wf_data_sample *const s = wf_dataset_sample(l->ds, draw->sample);
    const struct wf_region one = { .hi = { 1, 1, 1, 1, 1 } };
    if (!labels_are_right(l, s, &one, &s->label, 1, err))
        return false;
    for (int64_t i = 0; i < count; i++)
        labels[i] = s->label;
    return true;
}

static bool fill_row(const struct wf_loader *l, struct wf_reader *reader,
                     const struct wf_loader_slot *slot, const struct wf_draw *draw, int64_t row,
                     const struct wf_loader_boxes *boxes, struct wf_err *err)
{
    const struct wf_region *const image = &boxes->image, *const target = &boxes->target;
    const int64_t channels = wf_dataset_info(l->ds)->channels;
    bool ok = true;
    if (slot->image && row >= image->lo[WF_N] && row < image->hi[WF_N])
        ok = fill_part(l, reader, draw, image,
                       slot->image + (row - image->lo[WF_N]) * pixels_of(*image) * channels, NULL,
                       err);
    if (!ok || !slot->labels || row < target->lo[WF_N] || row >= target->hi[WF_N])
        return ok;
    const int64_t count = pixels_of(*target);
    int32_t *const labels = slot->labels + (row - target->lo[WF_N]) * count;
    if (wf_dataset_info(l->ds)->labels == WF_LABELS_IMAGE)
        return fill_label(l, draw, labels, count, err);
    return fill_part(l, reader, draw, target, NULL, labels, err);
}

void wf_loader_fill(const struct wf_loader *l, struct wf_reader *reader,
                    struct wf_loader_slot *slot, int64_t row, int64_t end, struct wf_err *err)
{
    if (wf_loader_is_cloud(l)) {
        wf_loader_fill_points(l, slot, err);
        return;
    }
    const int64_t at = l->batch + slot->ticket;
    const int64_t epoch = l->epoch + at / l->batches, batch = at % l->batches;
    const struct wf_loader_boxes *const boxes = &l->boxes[wf_loader_is_rest(l, batch)];
    bool ok = true;
    for (; ok && row < end; row++) {
        const bool in_image = row >= boxes->image.lo[WF_N] && row < boxes->image.hi[WF_N];
        const bool in_target = row >= boxes->target.lo[WF_N] && row < boxes->target.hi[WF_N];
        if (!in_image && !in_target)
            continue;
        const struct wf_loader_item item = wf_loader_item(l, epoch, batch, row);
        ok = fill_row(l, reader, slot, &item.draw, row, boxes, err);
    }
}
