#include "train/preview.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/memory.h"
#include "image/raster.h"
#include "train/color.h"
#include "train/validate.h"
#include "train/whole.h"

/* --- making --- */

struct grid {
    int64_t every, row, slice;
};

static void paint_image(struct wf_preview *p, const struct wf_view *v, const struct grid *g)
{
    const int64_t channels = wf_region_extent(v->box, WF_C);
    for (int64_t y = 0; y < p->height; y++)
        for (int64_t x = 0; x < p->width; x++) {
            const int64_t h = y * g->every, w = x * g->every;
            if (h < v->box.lo[WF_H] || h >= v->box.hi[WF_H] || w < v->box.lo[WF_W] ||
                w >= v->box.hi[WF_W])
                continue;
            for (int c = 0; c < 3; c++)
                p->image[(y * p->width + x) * 3 + c] =
                    (float)wf_view_get(v, g->row, g->slice, h, w, channels < 3 ? 0 : c);
        }
}

static int64_t class_at(const struct wf_view *v, int64_t n, int64_t d, int64_t h, int64_t w,
                        double level)
{
    const int64_t channels = wf_region_extent(v->box, WF_C);
    if (v->dtype == WF_I32)
        return (int64_t)wf_view_get(v, n, d, h, w, 0);
    if (channels == 1)
        return wf_view_get(v, n, d, h, w, 0) > level;
    int64_t best = 0;
    for (int64_t c = 1; c < channels; c++)
        if (wf_view_get(v, n, d, h, w, c) > wf_view_get(v, n, d, h, w, best))
            best = c;
    return best;
}

/* Maps of classes; a prediction per image paints the whole picture. */
static void paint_classes(float *to, const struct wf_preview *p, const struct wf_view *v,
                          const struct wf_shape *shape, const struct grid *g, double level)
{
    const bool single = shape->at[WF_H] * shape->at[WF_W] == 1 && p->height * p->width > 1;
    for (int64_t y = 0; y < p->height; y++)
        for (int64_t x = 0; x < p->width; x++) {
            const int64_t h = single ? 0 : y * g->every, w = single ? 0 : x * g->every;
            if (h < v->box.lo[WF_H] || h >= v->box.hi[WF_H] || w < v->box.lo[WF_W] ||
                w >= v->box.hi[WF_W])
                continue;
            const int64_t d = shape->at[WF_D] == 1 ? 0 : g->slice;
            const int64_t label = class_at(v, g->row, d, h, w, level);
            to[y * p->width + x] = label >= 0 && label < WF_PREVIEW_CLASSES ? (float)label : -1.0f;
        }
}

/* Of this rank's own part of a value: it is the one to count it, and it has the row and slice. */
static bool has_part(const struct wf_run *run, const struct wf_value *value, const struct grid *g,
                     const struct wf_view *view)
{
    const int64_t slice = value->shape.at[WF_D] == 1 ? 0 : g->slice;
    return view->data && wf_run_counts(run, value) && g->row >= view->box.lo[WF_N] &&
           g->row < view->box.hi[WF_N] && slice >= view->box.lo[WF_D] && slice < view->box.hi[WF_D];
}

static bool paint(struct wf_preview *p, const struct wf_run *run, const struct wf_network *network,
                  const struct grid *g, struct wf_err *err)
{
    struct wf_host host = { 0 };
    bool ok = wf_run_get_owned(run, network->image, &host, err);
    if (ok && has_part(run, network->image, g, &host.view))
        paint_image(p, &host.view, g);
    ok = ok && wf_run_get_owned(run, network->target, &host, err);
    if (ok && has_part(run, network->target, g, &host.view))
        paint_classes(p->label, p, &host.view, &network->target->shape, g, 0.5);
    ok = ok && wf_run_get_owned(run, network->logits, &host, err);
    if (ok && has_part(run, network->logits, g, &host.view))
        paint_classes(p->guess, p, &host.view, &network->logits->shape, g, 0);
    wf_host_release(&host);
    return ok;
}

/* Room for a picture of images of that shape. */
static struct grid begin(struct wf_preview *p, const struct wf_shape *s, int64_t row)
{
    const int64_t edge = wf_max(s->at[WF_H], s->at[WF_W]);
    const struct grid g = { .every = wf_max(1, wf_ceil_div(edge, WF_PREVIEW_EDGE)),
                            .row = row,
                            .slice = s->at[WF_D] / 2 };
    *p = (struct wf_preview){ .height = wf_ceil_div(s->at[WF_H], g.every),
                              .width = wf_ceil_div(s->at[WF_W], g.every),
                              .grey = s->at[WF_C] < 3 };
    const size_t pixels = (size_t)(p->height * p->width);
    p->image = wf_take_zeroed(5 * pixels, sizeof *p->image);
    p->label = p->image + 3 * pixels;
    p->guess = p->label + pixels;
    return g;
}

/* Collective. The whole, of what each rank painted. */
static bool add_up(struct wf_preview *p, bool ok, struct wf_comm *comm, struct wf_err *err)
{
    return wf_comm_agree(comm, ok, err) &&
           wf_comm_sum(comm, p->image, 5 * (size_t)(p->height * p->width), WF_F32, err);
}

bool wf_preview_make(struct wf_preview *p, const struct wf_run *run,
                     const struct wf_network *network, int64_t row, struct wf_comm *comm,
                     struct wf_err *err)
{
    const struct grid g = begin(p, &network->image->shape, row);
    return add_up(p, paint(p, run, network, &g, err), comm, err);
}

struct painter {
    struct wf_preview *p;
    struct wf_shape whole; /* of the image */
    struct grid grid;
};

static void paint_window(void *user, const struct wf_view *image, const struct wf_view *target,
                         const struct wf_view *logits)
{
    const struct painter *const at = user;
    const int64_t slice = at->grid.slice;
    if (slice < image->box.lo[WF_D] || slice >= image->box.hi[WF_D])
        return;
    paint_image(at->p, image, &at->grid);
    paint_classes(at->p->label, at->p, target, &at->whole, &at->grid, 0.5);
    paint_classes(at->p->guess, at->p, logits, &at->whole, &at->grid, 0);
}

bool wf_preview_whole(struct wf_preview *p, struct wf_whole *whole, int64_t sample,
                      struct wf_err *err)
{
    struct painter at = { .p = p, .whole = wf_whole_shape(whole, sample) };
    at.grid = begin(p, &at.whole, 0);
    return add_up(p, wf_whole_show(whole, sample, paint_window, &at, err), whole->comm, err);
}

bool wf_preview_value(struct wf_preview *p, const struct wf_run *run, const struct wf_value *value,
                      int64_t row, struct wf_comm *comm, struct wf_err *err)
{
    struct wf_host host = { 0 };
    const struct grid g = begin(p, &value->shape, row);
    const bool ok = wf_run_get_owned(run, value, &host, err);
    if (ok && has_part(run, value, &g, &host.view))
        paint_image(p, &host.view, &g);
    wf_host_release(&host);
    return add_up(p, ok, comm, err);
}

void wf_preview_release(struct wf_preview *p)
{
    free(p->image);
    *p = (struct wf_preview){ 0 };
}

/* --- writing --- */

static bool write_png(const char *path, const struct wf_raster_info *info, const uint8_t *pixels,
                      struct wf_err *err)
{
    struct wf_raster_writer *const w = wf_raster_create(path, info, err);
    if (!w)
        return false;
    const struct wf_region all = { .hi = { 1, 1, info->height, info->width, info->channels } };
    const bool ok = wf_raster_write_window(w, &all, pixels, err);
    return wf_raster_writer_close(w, ok, err);
}

bool wf_preview_write_image(const struct wf_preview *p, const char *path, struct wf_err *err)
{
    const int channels = p->grey ? 1 : 3;
    const size_t pixels = (size_t)p->height * (size_t)p->width;
    float lo = p->image[0], hi = p->image[0];
    for (size_t i = 0; i < 3 * pixels; i++) {
        lo = fminf(lo, p->image[i]);
        hi = fmaxf(hi, p->image[i]);
    }
    const float scale = hi > lo ? 255.0f / (hi - lo) : 0.0f;
    uint8_t *const bytes = wf_take(3 * pixels + 1);
    for (size_t i = 0; i < pixels; i++)
        for (int c = 0; c < channels; c++)
            bytes[i * (size_t)channels + (size_t)c] =
                (uint8_t)lrintf((p->image[3 * i + (size_t)c] - lo) * scale);
    const struct wf_raster_info info = { .depth = 1,
                                         .height = p->height,
                                         .width = p->width,
                                         .channels = channels,
                                         .sample = WF_SAMPLE_U8 };
    const bool ok = write_png(path, &info, bytes, err);
    free(bytes);
    return ok;
}

static bool write_map(const struct wf_preview *p, const float *map, const char *path, int classes,
                      const int32_t colors[], struct wf_err *err)
{
    const int64_t pixels = p->height * p->width;
    struct wf_raster_info info = { .depth = 1,
                                   .height = p->height,
                                   .width = p->width,
                                   .channels = 1,
                                   .sample = WF_SAMPLE_U8,
                                   .colors = WF_RASTER_COLORS };
    for (int c = 0; c < WF_RASTER_COLORS; c++) {
        const int32_t given = colors && c < classes ? colors[c] : -1;
        wf_class_color(c, info.palette[c]);
        for (int k = 0; given >= 0 && k < 3; k++)
            info.palette[c][k] = (uint8_t)(given >> (16 - 8 * k) & 0xff);
    }
    const int last = WF_RASTER_COLORS - 1; /* grey: does not count */
    if (classes <= last)
        info.palette[last][0] = info.palette[last][1] = info.palette[last][2] = 128;
    uint8_t *const bytes = wf_take((size_t)pixels);
    for (int64_t i = 0; i < pixels; i++)
        bytes[i] = map[i] < 0 ? (uint8_t)last : (uint8_t)lrintf(map[i]);
    const bool ok = write_png(path, &info, bytes, err);
    free(bytes);
    return ok;
}

bool wf_preview_write(const struct wf_preview *p, const char *prefix, int classes,
                      const int32_t colors[], struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    bool ok = wf_preview_write_image(p, wf_arena_printf(&arena, "%s-image.png", prefix), err);
    if (ok && classes > 0)
        ok = write_map(p, p->label, wf_arena_printf(&arena, "%s-label.png", prefix), classes,
                       colors, err) &&
             write_map(p, p->guess, wf_arena_printf(&arena, "%s-prediction.png", prefix), classes,
                       colors, err);
    wf_arena_release(&arena);
    return ok;
}
