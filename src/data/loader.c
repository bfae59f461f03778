/*
 * I1. What a batch holds is a function of the options, (epoch, batch) and the boxes: threads only decide
 *     when it is made.
 * I2. Tickets number the batches from where the loader was sought to. A row of a slot of the ring is written by the one
 *     thread that took it, and read by the rank after `ready` is set under the lock, when no row is left.
 * I3. Rows are taken in order, and those of at most `n_slots` tickets lie between what is made and what is consumed.
 */
#include "data/loader.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "data/loader_inside.h"

/* --- threads --- */

/* Rows of a slot that one thread makes: some, where they are small. */
struct piece {
    struct wf_loader_slot *slot;
    int64_t row, end;
};

static struct piece take_piece(struct wf_loader *l)
{
    enum { NUMBERS = 1 << 17 };
    struct piece p = { .slot = &l->slots[l->taken % l->n_slots], .row = l->row };
    const int64_t rows = wf_loader_rows(l);
    if (l->row == 0) {
        p.slot->ticket = l->taken;
        p.slot->left = rows;
        p.slot->err = (struct wf_err){ 0 };
    }
    const int64_t numbers = wf_shape_count(wf_loader_shape(l)) / l->options.batch;
    p.end = wf_min(rows, p.row + wf_max(1, NUMBERS / numbers));
    l->row = p.end;
    if (l->row == rows) {
        l->row = 0;
        l->taken++;
    }
    return p;
}

/* Of several rows that fail the first is named. */
static void end_piece(struct wf_loader *l, const struct piece *p, const struct wf_err *err)
{
    struct wf_loader_slot *const slot = p->slot;
    if (err->code && (!slot->err.code || p->row < slot->failed)) {
        slot->err = *err;
        slot->failed = p->row;
    }
    slot->left -= p->end - p->row;
    if (slot->left > 0)
        return;
    slot->ready = true;
    (void)pthread_cond_broadcast(&l->changed);
}

static void *work(void *arg)
{
    struct wf_loader *const l = arg;
    struct wf_reader *const reader = wf_reader_new(l->ds);
    (void)pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && l->taken >= l->consumed + l->n_slots) /* I3 */
            (void)pthread_cond_wait(&l->changed, &l->lock);
        if (l->stop)
            break;
        const struct piece p = take_piece(l);
        (void)pthread_mutex_unlock(&l->lock);
        struct wf_err err = { 0 };
        const uint64_t before = wf_reader_bytes(reader);
        wf_loader_fill(l, reader, p.slot, p.row, p.end, &err); /* I2 */
        (void)pthread_mutex_lock(&l->lock);
        l->moved += wf_reader_bytes(reader) - before;
        end_piece(l, &p, &err);
    }
    (void)pthread_mutex_unlock(&l->lock);
    wf_reader_free(reader);
    return NULL;
}

static void halt(struct wf_loader *l)
{
    (void)pthread_mutex_lock(&l->lock);
    l->stop = true;
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++)
        (void)pthread_join(l->threads[i], NULL);
    l->n_threads = 0;
    l->stop = false;
    for (int i = 0; i < l->n_slots; i++) {
        free(l->slots[i].image);
        free(l->slots[i].labels);
        wf_cloud_batch_release(&l->slots[i].points);
    }
    free(l->slots);
    l->slots = NULL;
    l->n_slots = 0;
    l->has_boxes = false;
}

/* Room for either kind of batch. */
static size_t image_bytes(const struct wf_loader *l)
{
    return (size_t)wf_max(wf_region_count(l->boxes[0].image), wf_region_count(l->boxes[1].image)) *
           sizeof(float);
}

static size_t label_bytes(const struct wf_loader *l)
{
    return (size_t)wf_max(wf_region_count(l->boxes[0].target),
                          wf_region_count(l->boxes[1].target)) *
           sizeof(int32_t);
}

static bool start(struct wf_loader *l, struct wf_err *err)
{
    const int wanted = l->options.threads > 0 ? l->options.threads + 1 : 1;
    l->slots = wf_take_zeroed((size_t)wanted, sizeof *l->slots);
    l->n_slots = wanted;
    for (int i = 0; i < wanted; i++) {
        struct wf_loader_slot *const s = &l->slots[i];
        if (image_bytes(l) > 0)
            s->image = malloc(image_bytes(l));
        if (label_bytes(l) > 0)
            s->labels = malloc(label_bytes(l));
        if ((image_bytes(l) > 0 && !s->image) || (label_bytes(l) > 0 && !s->labels))
            return wf_err_set(err, WF_ERR_FIT,
                              "no memory for %d batches of input of %zu bytes: use fewer "
                              "data.threads",
                              wanted, image_bytes(l) + label_bytes(l));
    }
    l->taken = l->row = l->consumed = 0;
    for (; l->n_threads < l->options.threads; l->n_threads++)
        if (pthread_create(&l->threads[l->n_threads], NULL, work, l) != 0)
            break;
    if (l->options.threads > 0 && l->n_threads == 0)
        return wf_err_set(err, WF_ERR_FIT,
                          "cannot start a thread to read ahead: set data.threads=0, or raise the "
                          "limits ('ulimit -u unlimited', 'ulimit -v unlimited')");
    l->has_boxes = true;
    return true;
}

/* --- making one --- */

static bool no_samples(const struct wf_loader *l, struct wf_err *err)
{
    const struct wf_dataset_info *const info = wf_dataset_info(l->ds);
    return wf_err_set(err, WF_ERR_INPUT, "'%s' has no images for %s: it has %" PRId64 " in all%s",
                      info->path, wf_loader_trains(l) ? "training" : "validation", info->samples,
                      wf_loader_trains(l) ? ""
                                          : ", set data.validation above 0 and have at least two");
}

static bool check_sample(const struct wf_loader *l, int64_t sample, bool whole, struct wf_err *err)
{
    const struct wf_data_sample *const s = wf_dataset_sample(l->ds, sample);
    const struct wf_data_sample *const first = wf_dataset_sample(l->ds, l->samples[0]);
    static const char *const axes[WF_AXES] = { "", "depth", "height", "width", "" };
    bool ok = true;
    for (int a = WF_D; ok && a <= WF_W; a++) {
        if (whole && s->extent[a] != l->options.crop[a])
            ok = wf_err_set(err, WF_ERR_INPUT,
                            "'%s' has %s %" PRId64 ", but '%s' has %" PRId64
                            ": set data.crop to a size that all images have",
                            s->image, axes[a], s->extent[a], first->image, first->extent[a]);
        else if (s->extent[a] < l->options.crop[a])
            ok = wf_err_set(err, WF_ERR_INPUT,
                            "'%s' has %s %" PRId64 ", smaller than the crop's %" PRId64
                            ": set data.crop to a size that all images have",
                            s->image, axes[a], s->extent[a], l->options.crop[a]);
    }
    return ok;
}

/* Labels past the edge of a mask are those that do not count. */
static bool check_pad(const struct wf_loader *l, struct wf_err *err)
{
    WF_BUG_ON(l->options.pad < 0 || (l->options.pad > 0 && !wf_loader_trains(l)),
              "%" PRId64 " pixels around images", l->options.pad);
    if (l->options.pad == 0 || l->options.has_ignore ||
        wf_dataset_info(l->ds)->labels != WF_LABELS_PIXEL)
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "data.pad=%" PRId64 " lets crops reach past the masks of '%s': set "
                      "train.ignore to the label that pixels there shall have",
                      l->options.pad, wf_dataset_info(l->ds)->path);
}

static bool find_samples(struct wf_loader *l, struct wf_err *err)
{
    const int64_t samples = wf_dataset_info(l->ds)->samples;
    wf_split_init(&l->split, l->ds, l->options.validation, l->options.seed);
    l->samples = wf_loader_trains(l) ? l->split.train : l->split.valid;
    l->n_samples = wf_loader_trains(l) ? l->split.n_train : l->split.n_valid;
    if (l->options.part == WF_PART_ALL) {
        l->all = wf_take_zeroed((size_t)samples + 1, sizeof *l->all);
        l->n_samples = 0;
        for (int64_t i = 0; i < samples; i++)
            if (!wf_dataset_sample(l->ds, i)->problem)
                l->all[l->n_samples++] = i;
        l->samples = l->all;
    }
    if (l->n_samples == 0)
        return no_samples(l, err);
    const bool whole = l->options.crop[WF_H] == 0 && l->options.crop[WF_W] == 0;
    if (wf_loader_is_cloud(l)) { /* whole, of any size */
        for (int a = WF_D; a <= WF_W; a++)
            l->options.crop[a] = 1;
        return true;
    }
    for (int a = WF_D; a <= WF_W; a++)
        if (l->options.crop[a] == 0)
            l->options.crop[a] = whole ? wf_dataset_sample(l->ds, l->samples[0])->extent[a] : 1;
    for (int64_t i = 0; i < l->n_samples; i++)
        if (!check_sample(l, l->samples[i], whole, err))
            return false;
    return true;
}

static void count_items(struct wf_loader *l)
{
    l->first_item = wf_take_zeroed((size_t)l->n_samples + 1, sizeof *l->first_item);
    for (int64_t i = 0; i < l->n_samples; i++) {
        const int64_t own = wf_loader_trains(l) ? l->options.repeat
                                                : wf_loader_tiles(l, l->samples[i], WF_D) *
                                                      wf_loader_tiles(l, l->samples[i], WF_H) *
                                                      wf_loader_tiles(l, l->samples[i], WF_W);
        l->first_item[i + 1] = l->first_item[i] + own;
    }
    l->items = l->first_item[l->n_samples];
    l->batches = l->options.parts > 0 ? l->items / l->options.batch / l->options.parts
                                      : wf_ceil_div(l->items, l->options.batch);
}

static bool prepare(struct wf_loader *l, const struct wf_normal *normal, struct wf_err *err)
{
    const int channels = wf_dataset_info(l->ds)->channels;
    if (normal && normal->channels != channels)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s' has %d channels, but the network was trained with %d",
                          wf_dataset_info(l->ds)->path, channels, normal->channels);
    for (int c = 0; c < channels; c++) {
        l->scale[c] = normal ? (float)(1 / normal->std[c]) : 1;
        l->offset[c] = normal ? (float)(-normal->mean[c] / normal->std[c]) : 0;
        l->fill[c] = normal ? (float)normal->mean[c] : 0;
    }
    l->options.normal = NULL; /* was borrowed */
    if (!check_pad(l, err) || !find_samples(l, err))
        return false;
    count_items(l);
    if (l->batches == 0)
        return wf_err_set(err, WF_ERR_INPUT,
                          "'%s': an epoch of %" PRId64 " samples has no batch of %" PRId64
                          " for each of %" PRId64 " workers: use a smaller train.batch",
                          wf_dataset_info(l->ds)->path, l->items, l->options.batch,
                          l->options.parts);
    if (wf_loader_trains(l) && l->options.balance)
        l->balance = wf_balance_new(l->ds, l->samples, l->n_samples, err);
    return !wf_loader_trains(l) || !l->options.balance || l->balance;
}

struct wf_loader *wf_loader_new(const struct wf_dataset *ds,
                                const struct wf_loader_options *options, struct wf_err *err)
{
    WF_BUG_ON(options->batch < 1 || options->threads < 0, "batch %" PRId64 ", %d threads",
              options->batch, options->threads);
    struct wf_loader *const l = wf_take_zeroed(1, sizeof *l);
    l->ds = ds;
    l->options = *options;
    l->options.repeat = wf_max(options->repeat, 1);
    l->threads = wf_take_zeroed((size_t)options->threads + 1, sizeof *l->threads);
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)pthread_cond_init(&l->changed, NULL);
    l->reader = wf_reader_new(ds);
    if (prepare(l, options->normal, err))
        return l;
    wf_loader_free(l);
    return NULL;
}

void wf_loader_free(struct wf_loader *l)
{
    if (!l)
        return;
    halt(l);
    wf_cloud_batch_release(&l->current);
    wf_reader_free(l->reader);
    wf_balance_free(l->balance);
    wf_split_release(&l->split);
    (void)pthread_mutex_destroy(&l->lock);
    (void)pthread_cond_destroy(&l->changed);
    free(l->threads);
    free(l->first_item);
    free(l->all);
    free(l);
}

/* --- asking --- */

int64_t wf_loader_batches(const struct wf_loader *l)
{
    return l->batches;
}

int64_t wf_loader_rest(const struct wf_loader *l)
{
    return wf_loader_trains(l) && l->options.parts == 0 ? l->items % l->options.batch : 0;
}

struct wf_shape wf_loader_shape(const struct wf_loader *l)
{
    return WF_SHAPE(l->options.batch, l->options.crop[WF_D], l->options.crop[WF_H],
                    l->options.crop[WF_W], wf_dataset_info(l->ds)->channels);
}

size_t wf_loader_memory_used(const struct wf_loader *l)
{
    return (size_t)l->n_slots * (image_bytes(l) + label_bytes(l));
}

uint64_t wf_loader_bytes_read(struct wf_loader *l)
{
    (void)pthread_mutex_lock(&l->lock);
    const uint64_t moved = l->moved + wf_reader_bytes(l->reader);
    (void)pthread_mutex_unlock(&l->lock);
    return moved;
}

/* Nobody makes batches until there are boxes again. */
static void halt_at(struct wf_loader *l, int64_t epoch, int64_t batch)
{
    halt(l);
    l->epoch = epoch;
    l->batch = batch;
    l->taken = l->row = l->consumed = 0;
}

void wf_loader_seek(struct wf_loader *l, int64_t epoch, int64_t batch)
{
    WF_BUG_ON(epoch < 0 || batch < 0, "epoch %" PRId64 ", batch %" PRId64, epoch, batch);
    int64_t next_epoch, next_batch;
    epoch += batch / l->batches;
    batch %= l->batches;
    wf_loader_where(l, &next_epoch, &next_batch);
    /* Validation has the same batches in all epochs. */
    const bool there =
        next_batch == batch && (next_epoch == epoch || !wf_loader_trains(l)) && l->has_boxes;
    if (!there)
        halt_at(l, epoch, batch);
}

void wf_loader_where(const struct wf_loader *l, int64_t *epoch, int64_t *batch)
{
    const int64_t at = l->batch + l->consumed;
    *epoch = l->epoch + at / l->batches;
    *batch = at % l->batches;
}

/* --- the next one --- */

/* The box of a view that has data; otherwise nothing. */
static struct wf_region wanted(const struct wf_view *view)
{
    return view && view->data ? view->box : (struct wf_region){ 0 };
}

static void check_box(const struct wf_loader *l, struct wf_region box, int64_t channels,
                      bool per_image)
{
    if (wf_region_is_empty(box))
        return;
    struct wf_region whole = wf_shape_region(wf_loader_shape(l));
    whole.hi[WF_C] = channels;
    for (int a = WF_D; per_image && a <= WF_W; a++)
        whole.hi[a] = 1;
    WF_BUG_ON(!wf_region_contains(whole, box) || wf_region_extent(box, WF_C) != channels,
              "a box past the batch: rows to %" PRId64 ", %" PRId64 " x %" PRId64 " x %" PRId64
              " x %" PRId64,
              box.hi[WF_N], box.hi[WF_D], box.hi[WF_H], box.hi[WF_W], box.hi[WF_C]);
}

/* Labels are kept as one channel, whatever becomes of them. */
static void one_channel(struct wf_region *target)
{
    target->hi[WF_C] = wf_region_is_empty(*target) ? 0 : 1;
    target->lo[WF_C] = 0;
}

static bool same_boxes(const struct wf_loader_boxes *a, const struct wf_loader_boxes *b)
{
    return wf_region_equal(a->image, b->image) && wf_region_equal(a->target, b->target);
}

void wf_loader_announce_rest(struct wf_loader *l, const struct wf_view *image,
                             const struct wf_view *target)
{
    struct wf_loader_boxes boxes = { wanted(image), wanted(target) };
    one_channel(&boxes.target);
    if (same_boxes(&boxes, &l->boxes[1]))
        return;
    int64_t epoch, batch;
    wf_loader_where(l, &epoch, &batch);
    halt_at(l, epoch, batch);
    l->boxes[1] = boxes;
}

bool wf_loader_begin(struct wf_loader *l, const struct wf_view *image, const struct wf_view *target,
                     struct wf_err *err)
{
    struct wf_loader_boxes boxes = { wanted(image), wanted(target) };
    const enum wf_labels labels = wf_dataset_info(l->ds)->labels;
    if (!wf_region_is_empty(boxes.target) && labels == WF_LABELS_NONE)
        return wf_err_set(err, WF_ERR_INPUT, "'%s' has images only: training needs masks",
                          wf_dataset_info(l->ds)->path);
    check_box(l, boxes.image, wf_dataset_info(l->ds)->channels, false);
    check_box(l, boxes.target, wf_region_extent(boxes.target, WF_C), labels == WF_LABELS_IMAGE);
    one_channel(&boxes.target);
    int64_t epoch, batch;
    wf_loader_where(l, &epoch, &batch);
    struct wf_loader_boxes *const known = &l->boxes[wf_loader_is_rest(l, batch)];
    if (l->has_boxes && same_boxes(&boxes, known))
        return true;
    halt_at(l, epoch, batch);
    *known = boxes;
    return start(l, err);
}

/* By several threads where there is much: one takes longer for a large batch than a GPU for a step. */
static void put_dense(const struct wf_view *view, const void *from)
{
    enum { PIECE = 1 << 20 };
    const int64_t bytes = (int64_t)wf_view_bytes(view);
#pragma omp parallel for schedule(static) if (bytes > 8 * PIECE)
    for (int64_t at = 0; at < bytes; at += PIECE)
        memcpy((char *)view->data + at, (const char *)from + at, (size_t)wf_min(PIECE, bytes - at));
}

/* Elements of the view's own type, dense over its box. */
static void put_same(const struct wf_view *view, void *from)
{
    const struct wf_view dense = wf_view_dense(from, view->dtype, view->box);
    if (wf_view_is_dense(view))
        put_dense(view, from);
    else
        wf_view_copy(view, &dense);
}

static void put_image(const struct wf_view *view, float *from)
{
    if (view->dtype == WF_F32) {
        put_same(view, from);
        return;
    }
    const struct wf_region b = view->box;
    for (int64_t n = b.lo[WF_N]; n < b.hi[WF_N]; n++)
        for (int64_t d = b.lo[WF_D]; d < b.hi[WF_D]; d++)
            for (int64_t h = b.lo[WF_H]; h < b.hi[WF_H]; h++)
                for (int64_t w = b.lo[WF_W]; w < b.hi[WF_W]; w++)
                    for (int64_t c = b.lo[WF_C]; c < b.hi[WF_C]; c++)
                        wf_view_put(view, n, d, h, w, c, (double)*from++);
}

/* A pixel that does not count has the label that says so in all channels, unless that is a 0 or 1 like
 * those of the others. */
static void put_target(const struct wf_view *view, int32_t *from, const int32_t *ignore)
{
    const struct wf_region b = view->box;
    const bool direct = wf_region_extent(b, WF_C) == 1 && b.lo[WF_C] == 0;
    const bool tells = ignore && *ignore != 0 && *ignore != 1;
    if (direct && view->dtype == WF_I32) {
        put_same(view, from);
        return;
    }
    for (int64_t n = b.lo[WF_N]; n < b.hi[WF_N]; n++)
        for (int64_t d = b.lo[WF_D]; d < b.hi[WF_D]; d++)
            for (int64_t h = b.lo[WF_H]; h < b.hi[WF_H]; h++)
                for (int64_t w = b.lo[WF_W]; w < b.hi[WF_W]; w++, from++)
                    for (int64_t c = b.lo[WF_C]; c < b.hi[WF_C]; c++)
                        wf_view_put(view, n, d, h, w, c,
                                    direct || (tells && *from == *ignore) ? *from : *from == c);
}

static struct wf_loader_slot *await(struct wf_loader *l)
{
    struct wf_loader_slot *const slot = &l->slots[l->consumed % l->n_slots];
    if (l->n_threads == 0) {
        slot->ticket = l->consumed;
        slot->err = (struct wf_err){ 0 };
        wf_loader_fill(l, l->reader, slot, 0, wf_loader_rows(l), &slot->err);
        return slot;
    }
    (void)pthread_mutex_lock(&l->lock);
    while (!slot->ready || slot->ticket != l->consumed)
        (void)pthread_cond_wait(&l->changed, &l->lock);
    (void)pthread_mutex_unlock(&l->lock);
    return slot;
}

bool wf_loader_next(struct wf_loader *l, const struct wf_view *image, const struct wf_view *target,
                    struct wf_err *err)
{
    if (!wf_loader_begin(l, image, target, err))
        return false;
    struct wf_loader_slot *const slot = await(l);
    if (slot->err.code) /* the batch stays where it is: asking again fails again */
        return wf_err_set(err, slot->err.code, "%s", slot->err.text);
    if (slot->image && image && image->data)
        put_image(image, slot->image);
    if (slot->labels && target && target->data)
        put_target(target, slot->labels, l->options.has_ignore ? &l->options.ignore : NULL);
    (void)pthread_mutex_lock(&l->lock);
    slot->ready = false;
    l->consumed++;
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->lock);
    return true;
}

int64_t wf_loader_samples(const struct wf_loader *l)
{
    return l->n_samples;
}

int64_t wf_loader_sample(const struct wf_loader *l, int64_t index)
{
    return l->samples[index];
}

bool wf_loader_read(struct wf_loader *l, int64_t sample, const struct wf_view *image,
                    const struct wf_view *target, struct wf_err *err)
{
    struct wf_region box = wanted(image), labels = wanted(target);
    one_channel(&labels);
    float *const pixels = malloc((size_t)(wf_region_count(box) + 1) * sizeof *pixels);
    int32_t *const marks = malloc((size_t)(wf_region_count(labels) + 1) * sizeof *marks);
    bool ok = pixels && marks ? true : wf_err_set(err, WF_ERR_FIT, "no memory for a window");
    if (ok && !wf_region_is_empty(box)) {
        ok = wf_loader_fill_part(l, sample, &box, pixels, NULL, err);
        if (ok)
            put_image(image, pixels);
    }
    if (ok && !wf_region_is_empty(labels)) {
        ok = wf_loader_fill_part(l, sample, &labels, NULL, marks, err);
        if (ok)
            put_target(target, marks, l->options.has_ignore ? &l->options.ignore : NULL);
    }
    free(pixels);
    free(marks);
    return ok;
}

bool wf_loader_next_points(struct wf_loader *l, const struct wf_cloud_batch **batch,
                           struct wf_err *err)
{
    if (!l->has_boxes && !start(l, err))
        return false;
    struct wf_loader_slot *const slot = await(l);
    if (slot->err.code)
        return wf_err_set(err, slot->err.code, "%s", slot->err.text);
    const struct wf_cloud_batch before = l->current; /* its memory goes back to the ring */
    l->current = slot->points;
    slot->points = before;
    (void)pthread_mutex_lock(&l->lock);
    slot->ready = false;
    l->consumed++;
    (void)pthread_cond_broadcast(&l->changed);
    (void)pthread_mutex_unlock(&l->lock);
    *batch = &l->current;
    return true;
}
