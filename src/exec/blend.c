#include "exec/blend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"

struct wf_blender {
    struct wf_shape window, whole;
    int64_t channels, step[WF_AXES], count[WF_AXES];
    enum wf_axis axis;       /* along which rows follow each other */
    float *weights[WF_AXES]; /* [count][extent of a window]; over all windows they add up to one */
    float *sums;             /* [positions from the band on][the rest of the image][channels] */
    int64_t height;          /* of a band */
    int64_t band;            /* at hand */
};

static int64_t place_of(const struct wf_blender *b, int axis, int64_t index)
{
    return wf_min(index * b->step[axis], b->whole.at[axis] - b->window.at[axis]);
}

/* Not below a thousandth: where a window is alone its weight is one however small. */
static double bell(int64_t at, int64_t extent)
{
    const double x = ((double)at + 0.5 - 0.5 * (double)extent) / (0.125 * (double)extent);
    return fmax(exp(-0.5 * x * x), 1e-3);
}

static void find_weights(struct wf_blender *b, int axis)
{
    const int64_t extent = b->window.at[axis], count = b->count[axis];
    double *const total = wf_take_zeroed((size_t)b->whole.at[axis], sizeof *total);
    b->weights[axis] = wf_take((size_t)(count * extent) * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < extent; k++)
            total[place_of(b, axis, i) + k] += bell(k, extent);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < extent; k++)
            b->weights[axis][i * extent + k] =
                (float)(bell(k, extent) / total[place_of(b, axis, i) + k]);
    free(total);
}

struct wf_blender *wf_blender_new(struct wf_shape window, struct wf_shape whole, int64_t channels,
                                  const int64_t step[WF_AXES], int64_t height)
{
    struct wf_blender *const b = wf_take_zeroed(1, sizeof *b);
    b->window = window;
    b->whole = whole;
    b->channels = channels;
    b->height = height;
    b->axis = whole.at[WF_D] > 1 ? WF_D : WF_H;
    for (int a = WF_D; a < WF_C; a++) {
        WF_BUG_ON(window.at[a] > whole.at[a] || step[a] < 1 || step[a] > window.at[a],
                  "windows of %lld, %lld apart, of %lld", (long long)window.at[a],
                  (long long)step[a], (long long)whole.at[a]);
        b->step[a] = step[a];
        b->count[a] = 1 + wf_ceil_div(whole.at[a] - window.at[a], step[a]);
        find_weights(b, a);
    }
    return b;
}

void wf_blender_free(struct wf_blender *b)
{
    if (!b)
        return;
    for (int a = 0; a < WF_AXES; a++)
        free(b->weights[a]);
    free(b->sums);
    free(b);
}

int64_t wf_blender_bands(const struct wf_blender *b)
{
    return wf_ceil_div(b->whole.at[b->axis], b->height);
}

int64_t wf_blender_windows(const struct wf_blender *b)
{
    return b->count[WF_W] * (b->axis == WF_D ? b->count[WF_H] : 1);
}

int64_t wf_blender_count(const struct wf_blender *b)
{
    return b->count[b->axis] * wf_blender_windows(b);
}

/* Its number along each axis, the last fastest. */
static void locate(const struct wf_blender *b, int64_t row, int64_t window, int64_t at[WF_AXES])
{
    memset(at, 0, WF_AXES * sizeof *at);
    at[WF_W] = window % b->count[WF_W];
    at[WF_H] = window / b->count[WF_W];
    at[b->axis] = row;
}

struct wf_region wf_blender_window(const struct wf_blender *b, int64_t row, int64_t window)
{
    struct wf_region r = { .hi = { [WF_N] = 1, [WF_C] = 1 } };
    int64_t at[WF_AXES];
    locate(b, row, window, at);
    for (int a = WF_D; a < WF_C; a++) {
        r.lo[a] = place_of(b, a, at[a]);
        r.hi[a] = r.lo[a] + b->window.at[a];
    }
    return r;
}

struct wf_region wf_blender_band(const struct wf_blender *b, int64_t band)
{
    struct wf_region r = wf_shape_region(b->whole);
    r.hi[WF_N] = 1;
    r.hi[WF_C] = b->channels;
    r.lo[b->axis] = band * b->height;
    r.hi[b->axis] = wf_min(r.hi[b->axis], r.lo[b->axis] + b->height);
    return r;
}

int64_t wf_blender_first(const struct wf_blender *b, int64_t band)
{
    const int64_t lo = wf_blender_band(b, band).lo[b->axis], window = b->window.at[b->axis];
    const int64_t row = lo < window ? 0 : (lo - window) / b->step[b->axis] + 1;
    return wf_min(row, b->count[b->axis] - 1);
}

int64_t wf_blender_last(const struct wf_blender *b, int64_t band)
{
    const int64_t hi = wf_blender_band(b, band).hi[b->axis], row = b->count[b->axis] - 1;
    return place_of(b, b->axis, row) < hi ? row : wf_ceil_div(hi, b->step[b->axis]) - 1;
}

/* Pixels of the image at one position of the axis of rows. */
static int64_t slice(const struct wf_blender *b)
{
    return b->whole.at[WF_W] * (b->axis == WF_D ? b->whole.at[WF_H] : 1);
}

/* Bytes of the sums at one position of that axis. */
static size_t line(const struct wf_blender *b)
{
    return (size_t)(slice(b) * b->channels) * sizeof(float);
}

/* A row that reaches into the band ends less than this far from where the band begins. */
size_t wf_blender_bytes(const struct wf_blender *b)
{
    return (size_t)(b->window.at[b->axis] + b->height) * line(b);
}

bool wf_blender_begin(struct wf_blender *b, int64_t band)
{
    const size_t bytes = wf_blender_bytes(b);
    if (!b->sums) {
        b->sums = malloc(bytes);
        b->band = -1;
    }
    if (!b->sums)
        return false;
    const size_t gone = b->band >= 0 && band == b->band + 1 ? (size_t)b->height * line(b) : bytes;
    memmove(b->sums, (char *)b->sums + gone, bytes - gone);
    memset((char *)b->sums + (bytes - gone), 0, gone);
    b->band = band;
    return true;
}

/* From the row's pixels on that are of the band or behind it. */
void wf_blender_add(struct wf_blender *b, int64_t row, int64_t window, const float *result)
{
    int64_t at[WF_AXES];
    locate(b, row, window, at);
    const struct wf_region box = wf_blender_window(b, row, window);
    const int64_t from = wf_blender_band(b, b->band).lo[b->axis];
    const float *weights[WF_AXES] = { 0 };
    for (int a = WF_D; a < WF_C; a++)
        weights[a] = b->weights[a] + at[a] * b->window.at[a];
    const int64_t width = b->window.at[WF_W], c = b->channels;
    for (int64_t d = 0; d < b->window.at[WF_D]; d++)
        for (int64_t h = 0; h < b->window.at[WF_H]; h++, result += width * c) {
            const int64_t place = (b->axis == WF_D ? box.lo[WF_D] + d : box.lo[WF_H] + h) - from;
            const int64_t lines =
                b->axis == WF_D ? place * b->whole.at[WF_H] + box.lo[WF_H] + h : place;
            float *const to = b->sums + (lines * b->whole.at[WF_W] + box.lo[WF_W]) * c;
            const float outer = weights[WF_D][d] * weights[WF_H][h];
            for (int64_t i = 0; place >= 0 && i < width * c; i++)
                to[i] += outer * weights[WF_W][i / c] * result[i];
        }
}

const float *wf_blender_sums(const struct wf_blender *b)
{
    return b->sums;
}
