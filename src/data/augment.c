/*
 * I1. Whatever a pixel of the changed crop becomes is computed from its own coordinates and the image
 *     alone, in the same order of operations for any window that holds it.
 * I2. The displacement along an axis is below REACH, so that a window of the image that is larger by
 *     REACH + 1 holds all that is interpolated.
 */
#include "data/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"
#include "base/random.h"

const char *const wf_augment_names[] = { "flip",     "rot90",  "elastic", "brightness",
                                         "contrast", "mirror", "rotate",  "scale",
                                         "jitter",   "drop",   NULL };

/* The elastic field is a uniform cubic B-spline over a grid of random numbers. Its weights are positive
 * and add up to one, so it is bounded by its coefficients; its slope is below REACH / GRID = 5/16, so
 * the picture is never fused. */
enum { GRID = 32, REACH = 10 };

/* --- turns and flips: place of the unturned crop = sign * place of the result + base --- */

struct map {
    int from[WF_AXES];
    int64_t sign[WF_AXES], base[WF_AXES];
};

void wf_change_source_extent(const struct wf_change *c, const int64_t crop[WF_AXES],
                             int64_t extent[WF_AXES])
{
    memcpy(extent, crop, WF_AXES * sizeof *extent);
    if (c->turns % 2) {
        extent[WF_H] = crop[WF_W];
        extent[WF_W] = crop[WF_H];
    }
}

/* As numpy's rot90 does: a quarter turn carries (h, w) of the result to (w, width - 1 - h). */
static struct map map_of(const struct wf_change *c, const int64_t crop[WF_AXES])
{
    struct map m = { .from = { [WF_D] = WF_D, [WF_H] = WF_H, [WF_W] = WF_W },
                     .sign = { [WF_D] = 1, [WF_H] = 1, [WF_W] = 1 } };
    int64_t extent[WF_AXES];
    wf_change_source_extent(c, crop, extent);
    if (c->turns % 2) {
        m.from[WF_H] = WF_W;
        m.from[WF_W] = WF_H;
    }
    const bool turned_h = c->turns == 2 || c->turns == 3, turned_w = c->turns == 1 || c->turns == 2;
    const bool back[WF_AXES] = { [WF_D] = c->flip[WF_D],
                                 [WF_H] = turned_h != c->flip[m.from[WF_H]],
                                 [WF_W] = turned_w != c->flip[m.from[WF_W]] };
    for (int a = WF_D; a <= WF_W; a++)
        if (back[a]) {
            m.sign[a] = -1;
            m.base[a] = extent[a] - 1;
        }
    return m;
}

/* The window of the unturned crop. */
static struct wf_region unturn(const struct map *m, const struct wf_region *window)
{
    struct wf_region r = *window;
    for (int a = WF_D; a <= WF_W; a++) {
        const int64_t lo = window->lo[m->from[a]], hi = window->hi[m->from[a]] - 1;
        r.lo[a] = (m->sign[a] > 0 ? lo : -hi) + m->base[a];
        r.hi[a] = (m->sign[a] > 0 ? hi : -lo) + m->base[a] + 1;
    }
    return r;
}

struct wf_region wf_change_reads(const struct wf_change *c, const int64_t crop[WF_AXES],
                                 struct wf_region image, struct wf_region window)
{
    const struct map m = map_of(c, crop);
    struct wf_region r = unturn(&m, &window);
    for (int a = WF_D; a <= WF_W; a++) {
        const int64_t more =
            c->elastic && wf_region_extent(image, (enum wf_axis)a) > 1 ? REACH + 1 : 0; /* I2 */
        r.lo[a] = wf_max(r.lo[a] + c->origin[a] - more, image.lo[a]);
        r.hi[a] = wf_min(r.hi[a] + c->origin[a] + more, image.hi[a]);
    }
    r.lo[WF_N] = r.lo[WF_C] = 0;
    r.hi[WF_N] = r.hi[WF_C] = 1;
    return r;
}

/* --- plain: every pixel comes from one pixel --- */

/* Strides in pixels of a dense region. */
static void strides_of(const struct wf_region *r, int64_t stride[WF_AXES])
{
    stride[WF_W] = 1;
    stride[WF_H] = wf_region_extent(*r, WF_W);
    stride[WF_D] = stride[WF_H] * wf_region_extent(*r, WF_H);
}

static float tone(const struct wf_change_job *j, float value, int channel)
{
    return (value * j->scale[channel] + j->offset[channel]) * j->change->gain + j->change->shift;
}

/* `count` pixels, whose sources are `step` apart. Inlined for each number of channels that is usual. */
static inline __attribute__((always_inline)) void copy_run(const struct wf_change_job *j,
                                                           int64_t from, int64_t step, int64_t to,
                                                           int64_t count, int channels)
{
    const float *restrict const in = j->pixels + from * channels;
    const float *restrict const scale = j->scale, *restrict const offset = j->offset;
    float *restrict const out = j->out + to * channels;
    const float gain = j->change->gain, shift = j->change->shift;
    for (int64_t i = 0; i < count; i++)
        for (int c = 0; c < channels; c++)
            out[i * channels + c] =
                (in[i * step * channels + c] * scale[c] + offset[c]) * gain + shift;
}

static void copy_pixels(const struct wf_change_job *j, int64_t from, int64_t step, int64_t to,
                        int64_t count)
{
    if (j->out)
        switch (j->channels) {
        case 1:
            copy_run(j, from, step, to, count, 1);
            break;
        case 3:
            copy_run(j, from, step, to, count, 3);
            break;
        default:
            copy_run(j, from, step, to, count, j->channels);
        }
    for (int64_t i = 0; j->out_labels && i < count; i++)
        j->out_labels[to + i] = j->labels[from + i * step];
}

/* In squares: of a turned picture neighbours along W are rows apart in memory. */
static void apply_plain(const struct wf_change_job *j, const struct map *m)
{
    enum { SQUARE = 32 };
    int64_t stride[WF_AXES], step[WF_AXES] = { 0 }, start = 0;
    strides_of(&j->source, stride);
    /* A step along an axis of the result is a step along one axis of the source. */
    for (int a = WF_D; a <= WF_W; a++) {
        step[m->from[a]] = m->sign[a] * stride[a];
        start += (m->base[a] + j->change->origin[a] - j->source.lo[a]) * stride[a];
    }
    const struct wf_region *const w = &j->window;
    const int64_t high = wf_region_extent(*w, WF_H), wide = wf_region_extent(*w, WF_W);
    const int64_t run = step[WF_W] == 1 || step[WF_W] == -1 ? wide : SQUARE;
    for (int64_t d = w->lo[WF_D]; d < w->hi[WF_D]; d++)
        for (int64_t h0 = 0; h0 < high; h0 += SQUARE)
            for (int64_t w0 = 0; w0 < wide; w0 += run)
                for (int64_t h = h0; h < wf_min(high, h0 + SQUARE); h++)
                    copy_pixels(j,
                                start + d * step[WF_D] + (w->lo[WF_H] + h) * step[WF_H] +
                                    (w->lo[WF_W] + w0) * step[WF_W],
                                step[WF_W], ((d - w->lo[WF_D]) * high + h) * wide + w0,
                                wf_min(run, wide - w0));
}

/* --- elastic --- */

/* A node of the grid: displacement along D, H, W. */
struct node {
    float u[3];
};

struct field {
    int64_t first[WF_AXES], nodes[WF_AXES]; /* of the grid, as far as the window needs it */
    struct node *at;
    bool deep; /* the image has more than one plane */
};

static float coefficient(const struct wf_change *c, int64_t d, int64_t h, int64_t w, int axis)
{
    /* Nodes begin at -1; 2^20 of them along an axis reach further than any crop. */
    const uint64_t node = ((uint64_t)(d + 1) << 40) | ((uint64_t)(h + 1) << 20) | (uint64_t)(w + 1);
    const float u = wf_random_uniform(wf_random(c->seed, c->field), node * 4 + (uint64_t)axis);
    return (2 * u - 1) * (float)REACH;
}

static void field_init(struct field *f, const struct wf_change_job *j, const struct wf_region *part)
{
    int64_t count = 1;
    f->deep = wf_region_extent(j->image, WF_D) > 1;
    for (int a = WF_D; a <= WF_W; a++) {
        f->first[a] = wf_floor_div(part->lo[a], GRID) - 1;
        f->nodes[a] = wf_floor_div(part->hi[a] - 1, GRID) + 3 - f->first[a];
        count *= f->nodes[a];
    }
    f->at = wf_take_zeroed((size_t)count, sizeof *f->at);
    int64_t i = 0;
    for (int64_t d = 0; d < f->nodes[WF_D]; d++)
        for (int64_t h = 0; h < f->nodes[WF_H]; h++)
            for (int64_t w = 0; w < f->nodes[WF_W]; w++, i++)
                for (int a = 0; a < 3; a++)
                    f->at[i].u[a] = a == 0 && !f->deep
                                        ? 0
                                        : coefficient(j->change, d + f->first[WF_D],
                                                      h + f->first[WF_H], w + f->first[WF_W], a);
}

static void spline(int64_t place, float weight[4])
{
    const float t = (float)(place - wf_floor_div(place, GRID) * GRID) / GRID, s = 1 - t;
    weight[0] = s * s * s / 6;
    weight[1] = (3 * t * t * t - 6 * t * t + 4) / 6;
    weight[2] = (3 * s * s * s - 6 * s * s + 4) / 6;
    weight[3] = t * t * t / 6;
}

static void displacement(const struct field *f, const int64_t place[WF_AXES], float u[3])
{
    float weight[WF_AXES][4];
    int64_t node[WF_AXES];
    for (int a = WF_D; a <= WF_W; a++) {
        spline(place[a], weight[a]);
        node[a] = wf_floor_div(place[a], GRID) - 1 - f->first[a];
    }
    u[0] = u[1] = u[2] = 0;
    if (!f->deep) { /* a flat image has one plane of nodes */
        node[WF_D] = 0;
        weight[WF_D][0] = 1;
    }
    for (int d = 0; d < (f->deep ? 4 : 1); d++)
        for (int h = 0; h < 4; h++) {
            const struct node *const row =
                f->at + ((node[WF_D] + d) * f->nodes[WF_H] + node[WF_H] + h) * f->nodes[WF_W] +
                node[WF_W];
            const float dh = weight[WF_D][d] * weight[WF_H][h];
            for (int w = 0; w < 4; w++)
                for (int a = 0; a < 3; a++)
                    u[a] += dh * weight[WF_W][w] * row[w].u[a];
        }
}

/* Where a pixel comes from: the two neighbours along each axis and the share of the second. */
struct source_place {
    int64_t low[WF_AXES], high[WF_AXES], nearest[WF_AXES];
    float share[WF_AXES];
};

static struct source_place find_place(const struct wf_change_job *j, const int64_t place[WF_AXES],
                                      const float u[3])
{
    struct source_place p;
    for (int a = WF_D; a <= WF_W; a++) {
        const double first = (double)j->image.lo[a], last = (double)(j->image.hi[a] - 1);
        double q = (double)(place[a] + j->change->origin[a]) + (double)u[a - WF_D];
        q = q < first ? first : q > last ? last : q;
        const double low = floor(q);
        p.low[a] = (int64_t)low - j->source.lo[a];
        p.high[a] = wf_min((int64_t)low + 1, j->image.hi[a] - 1) - j->source.lo[a];
        p.share[a] = (float)(q - low);
        p.nearest[a] = (int64_t)floor(q + 0.5) - j->source.lo[a];
    }
    return p;
}

static float blend(float a, float b, float share)
{
    return a + (b - a) * share;
}

static float interpolate(const struct wf_change_job *j, const struct source_place *p,
                         const int64_t stride[WF_AXES], int channel)
{
    float plane[2] = { 0 };
    for (int d = 0; d < (p->high[WF_D] > p->low[WF_D] ? 2 : 1); d++) {
        float row[2];
        for (int h = 0; h < 2; h++) {
            const int64_t at = (d ? p->high[WF_D] : p->low[WF_D]) * stride[WF_D] +
                               (h ? p->high[WF_H] : p->low[WF_H]) * stride[WF_H];
            row[h] = blend(j->pixels[(at + p->low[WF_W]) * j->channels + channel],
                           j->pixels[(at + p->high[WF_W]) * j->channels + channel], p->share[WF_W]);
        }
        plane[d] = blend(row[0], row[1], p->share[WF_H]);
    }
    return p->share[WF_D] > 0 ? blend(plane[0], plane[1], p->share[WF_D]) : plane[0];
}

static void apply_elastic(const struct wf_change_job *j, const struct map *m)
{
    const struct wf_region part = unturn(m, &j->window);
    struct field field;
    int64_t stride[WF_AXES], to = 0;
    field_init(&field, j, &part);
    strides_of(&j->source, stride);
    int64_t at[WF_AXES];
    for (at[WF_D] = j->window.lo[WF_D]; at[WF_D] < j->window.hi[WF_D]; at[WF_D]++)
        for (at[WF_H] = j->window.lo[WF_H]; at[WF_H] < j->window.hi[WF_H]; at[WF_H]++)
            for (at[WF_W] = j->window.lo[WF_W]; at[WF_W] < j->window.hi[WF_W]; at[WF_W]++, to++) {
                int64_t place[WF_AXES];
                float u[3];
                for (int a = WF_D; a <= WF_W; a++)
                    place[a] = m->sign[a] * at[m->from[a]] + m->base[a];
                displacement(&field, place, u);
                const struct source_place p = find_place(j, place, u);
                for (int c = 0; j->out && c < j->channels; c++)
                    j->out[to * j->channels + c] = tone(j, interpolate(j, &p, stride, c), c);
                if (j->out_labels)
                    j->out_labels[to] = j->labels[p.nearest[WF_D] * stride[WF_D] +
                                                  p.nearest[WF_H] * stride[WF_H] + p.nearest[WF_W]];
            }
    free(field.at);
}

void wf_change_apply(const struct wf_change_job *job)
{
    const struct map m = map_of(job->change, job->crop);
    if (job->change->elastic)
        apply_elastic(job, &m);
    else
        apply_plain(job, &m);
}
