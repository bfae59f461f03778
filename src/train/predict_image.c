#include "train/predict_image.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ops/op.h"
#include "tensor/border.h"
#include "train/gather.h"

enum { TAG = 11, SMALLEST_PART = 1 << 16 /* pixels */ };

/* --- pictures --- */

/* The same file, opened as often as threads read it at the same time. */
struct wf_predict_pictures {
    const struct wf_prediction *p;
    pthread_mutex_t lock;
    struct wf_picture **idle;
    size_t n_idle, room;
};

static struct wf_predict_pictures *pictures_new(const struct wf_prediction *p)
{
    struct wf_predict_pictures *const all = wf_take_zeroed(1, sizeof *all);
    all->p = p;
    (void)pthread_mutex_init(&all->lock, NULL);
    return all;
}

static void pictures_free(struct wf_predict_pictures *all)
{
    if (!all)
        return;
    for (size_t i = 0; i < all->n_idle; i++)
        wf_picture_close(all->idle[i]);
    (void)pthread_mutex_destroy(&all->lock);
    free(all->idle);
    free(all);
}

static struct wf_picture *take_picture(struct wf_predict_pictures *all, struct wf_err *err)
{
    (void)pthread_mutex_lock(&all->lock);
    struct wf_picture *const idle = all->n_idle ? all->idle[--all->n_idle] : NULL;
    (void)pthread_mutex_unlock(&all->lock);
    if (idle)
        return idle;
    const struct wf_shape *const shape = &all->p->image->shape;
    struct wf_picture *const opened = wf_picture_open(all->p->path, shape->at[WF_C], err);
    if (!opened || wf_shape_equal(wf_picture_shape(opened), *shape))
        return opened;
    (void)wf_err_set(err, WF_ERR_INPUT, "'%s' has changed while it was looked at", all->p->path);
    wf_picture_close(opened);
    return NULL;
}

static void give_picture(struct wf_predict_pictures *all, struct wf_picture *picture)
{
    (void)pthread_mutex_lock(&all->lock);
    WF_GROW(all->idle, all->room, all->n_idle);
    all->idle[all->n_idle++] = picture;
    (void)pthread_mutex_unlock(&all->lock);
}

static bool read_picture(struct wf_predict_pictures *all, const struct wf_region *box,
                         enum wf_dtype as, void *to, struct wf_err *err)
{
    struct wf_picture *const picture = take_picture(all, err);
    if (!picture)
        return false;
    const bool ok = as == WF_U8 ? wf_picture_read_bytes(picture, box, to, err)
                                : wf_picture_read(picture, box, to, err);
    give_picture(all, picture);
    return ok;
}

/* --- its life --- */

/* How many classes there are for so many channels of logits. */
static int count_labels(enum wf_predicts predicts, int64_t channels)
{
    return predicts == WF_PREDICTS_NUMBERS ? 0 : channels == 1 ? 2 : (int)channels;
}

static void describe_files(struct wf_predict_image *i)
{
    const struct wf_prediction *const p = &i->p;
    const bool numbers = p->predicts == WF_PREDICTS_NUMBERS;
    i->files = (struct wf_mosaic_options){
        .shape = p->logits->shape,
        .labels = count_labels(p->predicts, p->logits->shape.at[WF_C]),
        .has_void = i->has_void,
        .classes = numbers ? NULL : p->classes,
        .values = p->values,
        .overlay = numbers ? NULL : p->overlay,
        .mean = p->mean,
        .deviation = p->deviation,
    };
}

static bool look_at(struct wf_predict_image *i, struct wf_err *err)
{
    const struct wf_shape *const shape = &i->p.image->shape, *const made = &i->p.logits->shape;
    struct wf_picture *const picture = take_picture(i->under, err);
    if (!picture)
        return false;
    const struct wf_raster_info *const info = wf_picture_info(picture);
    i->in_order = info->in_order || info->tile.at[WF_H] >= info->height;
    i->unit = shape->at[WF_D] > 1 ? 1 : info->tile.at[WF_H];
    i->has_void = i->p.per_pixel && wf_picture_has_nodata(picture) &&
                  made->at[WF_D] == shape->at[WF_D] && made->at[WF_H] == shape->at[WF_H] &&
                  made->at[WF_W] == shape->at[WF_W];
    if (i->p.plan.device->transfer.widen && wf_picture_is_bytes(picture) &&
        shape->at[WF_C] <= WF_WIDEN_CHANNELS)
        i->dtype = WF_U8;
    give_picture(i->under, picture); /* for the tags; threads that read open their own */
    return true;
}

/* As in training: one product and one sum in f32. */
static float scale_of(const struct wf_prediction *p, int64_t channel)
{
    return p->mean ? (float)(1.0 / p->deviation[channel]) : 1.0f;
}

static float offset_of(const struct wf_prediction *p, int64_t channel)
{
    return p->mean ? (float)(-p->mean[channel] / p->deviation[channel]) : 0.0f;
}

struct wf_predict_image *wf_predict_image_new(const struct wf_prediction *p, struct wf_err *err)
{
    struct wf_predict_image *const i = wf_take_zeroed(1, sizeof *i);
    i->p = *p;
    i->start = wf_now();
    i->unit = 1;
    i->dtype = WF_F32;
    if (!p->pixels) {
        i->pixels = pictures_new(&i->p);
        i->under = pictures_new(&i->p);
        if (!look_at(i, err)) {
            wf_predict_image_free(i);
            return NULL;
        }
    }
    for (int64_t c = 0; i->dtype == WF_U8 && c < p->image->shape.at[WF_C]; c++) {
        i->scale[c] = scale_of(p, c);
        i->offset[c] = offset_of(p, c);
    }
    describe_files(i);
    return i;
}

void wf_predict_image_free(struct wf_predict_image *i)
{
    if (!i)
        return;
    pictures_free(i->pixels);
    pictures_free(i->under);
    if (i->self)
        wf_comm_free(i->self);
    free(i->result.probabilities);
    free(i);
}

bool wf_predict_image_wants_labels(const struct wf_predict_image *i)
{
    return i->p.predicts != WF_PREDICTS_NUMBERS &&
           (i->p.classes || i->p.overlay || i->p.labels || !i->p.per_pixel);
}

bool wf_predict_image_wants_values(const struct wf_predict_image *i)
{
    return i->p.values || i->p.probabilities || !i->p.per_pixel;
}

bool wf_predict_image_wants_source(const struct wf_predict_image *i)
{
    return i->p.overlay || i->has_void;
}

enum wf_dtype wf_predict_image_labels(const struct wf_predict_image *i)
{
    return wf_mosaic_label_bytes(&i->files) == 1 ? WF_U8 : WF_I32;
}

/* The picture at hand gives tags and tells how it is shown; the files keep no pointer to its pixels. */
bool wf_predict_image_begin(struct wf_predict_image *i, const struct wf_stream *stream,
                            struct wf_comm *comm, struct wf_err *err)
{
    const struct wf_shape *const whole = &i->p.logits->shape;
    const struct wf_region largest = wf_stream_window(stream, 0);
    i->stream = stream;
    i->self = comm ? NULL : wf_comm_self();
    i->comm = comm = comm ? comm : i->self;
    if (!i->p.per_pixel || i->p.pixels)
        return true;
    for (int a = 0; a < WF_AXES; a++) {
        const int64_t extent = i->files.band[a] = wf_region_extent(largest, (enum wf_axis)a);
        i->files.tile[a] =
            extent == whole->at[a] ? WF_PREDICT_TILE : wf_stream_tile(WF_PREDICT_TILE, extent);
    }
    i->files.picture = take_picture(i->under, err);
    if (!wf_comm_agree(comm, i->files.picture != NULL, err))
        return false;
    i->mosaic = wf_mosaic_new(&i->files, comm, err);
    return i->mosaic != NULL;
}

bool wf_predict_image_close(struct wf_predict_image *i, bool ok, struct wf_err *err)
{
    if (i->mosaic)
        ok = wf_mosaic_close(i->mosaic, ok, err);
    i->mosaic = NULL;
    if (i->files.picture)
        give_picture(i->under, i->files.picture);
    i->files.picture = NULL;
    i->result.seconds = wf_now() - i->start;
    i->result.ready_seconds = i->first - i->start;
    return ok;
}

/* --- parts --- */

static int rows_axis(const struct wf_region *box)
{
    return wf_region_extent(*box, WF_D) > 1 ? WF_D : WF_H;
}

static int64_t pixels_of(const struct wf_region *box)
{
    return wf_region_extent(*box, WF_D) * wf_region_extent(*box, WF_H) *
           wf_region_extent(*box, WF_W);
}

static int count_parts(const struct wf_region *box, int64_t unit)
{
    const int64_t rows = wf_region_extent(*box, rows_axis(box));
    const int64_t most = wf_min(WF_PREDICT_PARTS, pixels_of(box) / SMALLEST_PART + 1);
    return wf_region_is_empty(*box) ? 0 : (int)wf_min(wf_ceil_div(rows, unit), most);
}

/* Part `at` of `count`: rows between multiples of the unit. It may be empty. */
static struct wf_region cut_part(struct wf_region box, int64_t unit, int count, int at)
{
    const int axis = rows_axis(&box);
    const int64_t lo = box.lo[axis], rows = wf_region_extent(box, axis);
    const int64_t from = (lo + rows * at / count) / unit * unit;
    const int64_t to = (lo + rows * (at + 1) / count) / unit * unit;
    box.lo[axis] = at == 0 ? lo : wf_max(lo, from);
    box.hi[axis] = at == count - 1 ? lo + rows : wf_max(box.lo[axis], to);
    return box;
}

/* Pixels of `box` before those of its part. */
static int64_t pixels_before(const struct wf_region *box, const struct wf_region *part)
{
    const int axis = rows_axis(box);
    return (part->lo[axis] - box->lo[axis]) * (pixels_of(box) / wf_region_extent(*box, axis));
}

/* Labels come as i32 and are written as u16. */
static bool is_wide(const struct wf_predict_image *i)
{
    return wf_predict_image_wants_labels(i) && wf_mosaic_label_bytes(&i->files) > 1;
}

/* Of the windows' results: rows of whole tiles. */
static int64_t pack_unit(const struct wf_predict_image *i, const struct wf_region *cell)
{
    return rows_axis(cell) == WF_D ? 1 : wf_max(1, i->files.tile[WF_H]);
}

void wf_predict_image_cut(const struct wf_predict_image *i, struct wf_predict_window *w)
{
    w->fills = i->in_order && !wf_region_is_empty(w->work.input.box)
                   ? 1
                   : count_parts(&w->work.input.box, i->unit);
    w->packs = is_wide(i) ? 1 : count_parts(&w->cell, pack_unit(i, &w->cell));
}

/* --- the image --- */

static void read_array(const struct wf_prediction *p, const struct wf_region *box, float *to)
{
    for (struct wf_cursor c = wf_cursor(*box); wf_cursor_next(&c);)
        *to++ = p->pixels[wf_outside_index(&p->image->shape, c.at)];
}

/* The mean where nothing was measured. The
 * numbers of some positions stand one after the other, so that the loop over them is one of vectors. */
static void normalise(const struct wf_prediction *p, float *x, int64_t count)
{
    const int64_t channels = p->image->shape.at[WF_C];
    const int64_t block = (511 / channels + 1) * channels;
    float *const scale = wf_take(3 * (size_t)block * sizeof *scale);
    float *const offset = scale + block, *const nothing = offset + block;
    for (int64_t k = 0; k < block; k++) {
        const int64_t c = k % channels;
        scale[k] = scale_of(p, c);
        offset[k] = offset_of(p, c);
        nothing[k] = p->mean ? (float)p->mean[c] : 0.0f;
    }
    for (int64_t at = 0; at < count; at += block)
        for (int64_t k = 0; k < wf_min(block, count - at); k++) {
            const float v = isnan(x[at + k]) ? nothing[k] : x[at + k];
            x[at + k] = p->mean ? v * scale[k] + offset[k] : v;
        }
    free(scale);
}

bool wf_predict_image_read(const struct wf_predict_image *i, const struct wf_region *box, float *to,
                           struct wf_err *err)
{
    if (i->p.pixels)
        read_array(&i->p, box, to);
    else if (!read_picture(i->pixels, box, WF_F32, to, err))
        return false;
    normalise(&i->p, to, wf_region_count(*box));
    return true;
}

bool wf_predict_image_fill(const struct wf_predict_window *w, int part, struct wf_err *err)
{
    const struct wf_region *const box = &w->work.input.box;
    const struct wf_region rows = cut_part(*box, w->image->unit, w->fills, part);
    if (wf_region_is_empty(rows))
        return true;
    const size_t before = (size_t)(pixels_before(box, &rows) * wf_region_extent(*box, WF_C)) *
                          wf_dtype_size(w->image->dtype);
    void *const to = (char *)w->work.input.data + before;
    return w->image->dtype == WF_U8 ? read_picture(w->image->pixels, &rows, WF_U8, to, err)
                                    : wf_predict_image_read(w->image, &rows, to, err);
}

/* --- results --- */

/* Where the image holds nothing there is nothing to predict. */
static void hide_void(const struct wf_predict_window *w, const float *source, int64_t first,
                      int64_t count)
{
    const struct wf_prediction *const p = &w->image->p;
    const int64_t channels = p->image->shape.at[WF_C], made = p->logits->shape.at[WF_C];
    const bool narrow = wf_mosaic_label_bytes(&w->image->files) == 1;
    for (int64_t k = 0; k < count; k++, source += channels) {
        bool empty = true;
        for (int64_t c = 0; empty && c < channels; c++)
            empty = isnan(source[c]);
        for (int64_t c = 0; empty && w->values && c < made; c++)
            ((float *)(uintptr_t)w->values)[(first + k) * made + c] = NAN;
        if (empty && w->labels && narrow)
            ((uint8_t *)w->labels)[first + k] = UINT8_MAX;
        else if (empty && w->labels)
            ((uint16_t *)w->labels)[first + k] = UINT16_MAX;
    }
}

/* The picture under the part, for an overlay and for holes. */
static bool read_source(struct wf_predict_window *w, const struct wf_region *part, int64_t first,
                        struct wf_err *err)
{
    const int64_t channels = w->image->p.image->shape.at[WF_C];
    return read_picture(w->image->under, part, WF_F32, w->source + first * channels, err);
}

static struct wf_mosaic_part part_of(const struct wf_predict_window *w,
                                     const struct wf_region *part, int64_t first)
{
    const struct wf_predict_image *const i = w->image;
    const size_t label = wf_mosaic_label_bytes(&i->files);
    const bool looks = w->source && wf_predict_image_wants_source(i);
    return (struct wf_mosaic_part){
        .box = *part,
        .labels = w->labels ? (char *)w->labels + (size_t)first * label : NULL,
        .values = w->values ? w->values + first * i->p.logits->shape.at[WF_C] : NULL,
        .source = looks ? w->source + first * i->p.image->shape.at[WF_C] : NULL,
    };
}

/* In place, from the first on. */
static void narrow_labels(void *labels, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        int32_t wide;
        memcpy(&wide, (const char *)labels + (size_t)k * sizeof wide, sizeof wide);
        const uint16_t label = (uint16_t)wide;
        memcpy((char *)labels + (size_t)k * sizeof label, &label, sizeof label);
    }
}

bool wf_predict_image_pack(struct wf_predict_window *w, int part, struct wf_err *err)
{
    const struct wf_predict_image *const i = w->image;
    if (is_wide(i))
        narrow_labels(w->labels, pixels_of(&w->cell));
    const struct wf_region rows = cut_part(w->cell, pack_unit(i, &w->cell), w->packs, part);
    if (wf_region_is_empty(rows))
        return true;
    const int64_t first = pixels_before(&w->cell, &rows);
    const int64_t channels = i->p.image->shape.at[WF_C];
    if (wf_predict_image_wants_source(i) && !read_source(w, &rows, first, err))
        return false;
    if (i->has_void)
        hide_void(w, w->source + first * channels, first, pixels_of(&rows));
    const struct wf_mosaic_part from = part_of(w, &rows, first);
    return !i->mosaic || wf_mosaic_pack(i->mosaic, &from, &w->packed[part], err);
}

static void put_array(const struct wf_predict_image *i, const struct wf_mosaic_part *part)
{
    const struct wf_prediction *const p = &i->p;
    struct wf_region box = part->box;
    const struct wf_view values = wf_view_dense((void *)(uintptr_t)part->values, WF_F32, box);
    if (p->probabilities)
        wf_export_view(p->logits, &values, p->probabilities);
    struct wf_shape map = p->logits->shape;
    map.at[WF_C] = box.hi[WF_C] = 1;
    const bool narrow = wf_mosaic_label_bytes(&i->files) == 1;
    struct wf_cursor c = wf_cursor(box);
    for (int64_t k = 0; p->labels && wf_cursor_next(&c); k++)
        p->labels[wf_outside_index(&map, c.at)] =
            narrow ? ((const uint8_t *)part->labels)[k] : ((const uint16_t *)part->labels)[k];
}

static bool put(struct wf_predict_image *i, const struct wf_mosaic_part *part, struct wf_err *err)
{
    if (i->mosaic)
        return wf_mosaic_put(i->mosaic, part, err);
    put_array(i, part);
    return true;
}

/* What rank 0 writes of the others' windows. */
static bool takes_labels(const struct wf_predict_image *i)
{
    return i->mosaic ? wf_mosaic_wants_labels(i->mosaic) : i->p.labels != NULL;
}

static bool takes_values(const struct wf_predict_image *i)
{
    return i->mosaic ? wf_mosaic_wants_values(i->mosaic) : i->p.probabilities != NULL;
}

/* Labels and values of a window, from the rank that made them to rank 0. */
static bool bring(const struct wf_predict_image *i, int rank, const struct wf_mosaic_part *part,
                  struct wf_err *err)
{
    const size_t pixels = (size_t)pixels_of(&part->box);
    const struct {
        bool wanted;
        void *data;
        size_t bytes;
    } parts[2] = {
        { takes_labels(i), (void *)(uintptr_t)part->labels,
          pixels * wf_mosaic_label_bytes(&i->files) },
        { takes_values(i), (void *)(uintptr_t)part->values,
          pixels * (size_t)i->p.logits->shape.at[WF_C] * sizeof(float) },
    };
    const bool receives = wf_comm_rank(i->comm) == 0;
    struct wf_message m[2];
    int count = 0;
    for (int k = 0; k < 2; k++)
        if (parts[k].wanted)
            m[count++] = (struct wf_message){ .peer = receives ? rank : 0,
                                              .tag = TAG + k,
                                              .bytes = parts[k].bytes,
                                              .recv = receives ? parts[k].data : NULL,
                                              .send = receives ? NULL : parts[k].data };
    return wf_comm_exchange(i->comm, count, m, err);
}

/* Rank 0: the window of another rank. It takes what is sent also when it cannot write. */
static bool receive(struct wf_predict_image *i, int rank, struct wf_region cell, bool ok,
                    struct wf_err *err)
{
    const size_t pixels = (size_t)pixels_of(&cell);
    const size_t source = (size_t)i->p.image->shape.at[WF_C] * sizeof(float);
    struct wf_mosaic_part part = { .box = cell };
    void *const labels = takes_labels(i) ? wf_take(pixels * sizeof(uint16_t)) : NULL;
    float *const values = takes_values(i) ? wf_take((size_t)wf_region_count(cell) * 4) : NULL;
    float *const under = i->p.overlay && i->mosaic ? wf_take(pixels * source) : NULL;
    part.labels = labels;
    part.values = values;
    part.source = under;
    const bool came = bring(i, rank, &part, err);
    ok = ok && came && (!under || read_picture(i->under, &cell, WF_F32, under, err)) &&
         put(i, &part, err);
    free(labels);
    free(values);
    free(under);
    return ok;
}

/* Windows `first` and the following, one of each rank, into the files that rank 0 writes. */
static bool collect(struct wf_predict_image *i, const struct wf_predict_window *w, int64_t first,
                    struct wf_err *err)
{
    const int rank = wf_comm_rank(i->comm), size = wf_comm_size(i->comm);
    if (!takes_labels(i) && !takes_values(i))
        return true;
    const struct wf_mosaic_part mine = part_of(w, &w->cell, 0);
    bool ok = rank != 0 || put(i, &mine, err);
    for (int other = 1; other < size && first + other < wf_stream_windows(i->stream); other++)
        if (rank == 0)
            ok = receive(i, other, wf_stream_window(i->stream, first + other), ok, err);
        else if (rank == other)
            ok = bring(i, rank, &mine, err) && ok;
    return ok;
}

bool wf_predict_image_write(struct wf_predict_image *i, struct wf_predict_window *w, int64_t first,
                            struct wf_err *err)
{
    struct wf_err own = { 0 };
    bool ok =
        !i->mosaic || wf_mosaic_settle(i->mosaic, w->index < 0 ? 0 : w->packs, w->packed, err);
    ok = collect(i, w, first, ok ? err : &own) && ok;
    i->written += wf_comm_size(i->comm);
    return ok;
}
