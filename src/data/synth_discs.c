/*
 * The task that a network cannot solve without looking far: two discs of radius 4 in different
 * subdomains (of 32 x 32, in one row, unless the size says more), to be found (2) and joined by a line
 * of width 3 (1) that the image does not show.
 */
#include <inttypes.h>
#include <math.h>

#include "data/synth.h"

#include "base/memory.h"

enum { RADIUS = 4 };

struct scene {
    float x[2], y[2];
};

static bool fits(const struct wf_synth_image *image, struct wf_err *err)
{
    const int64_t *const extent = image->extent, tile = image->tile;
    if (tile < 4 * RADIUS)
        return wf_err_set(err, WF_ERR_USAGE,
                          "a disc of radius %d needs room in its subdomain: give a --tile of at "
                          "least %d",
                          RADIUS, 4 * RADIUS);
    if (extent[WF_H] % tile == 0 && extent[WF_W] % tile == 0 &&
        extent[WF_H] * extent[WF_W] >= 2 * tile * tile)
        return true;
    return wf_err_set(err, WF_ERR_USAGE,
                      "discs lie in subdomains of %" PRId64 " x %" PRId64
                      ", at least two: give a --size of multiples of %" PRId64 ", such as %" PRId64
                      "x%" PRId64,
                      tile, tile, tile, tile, 4 * tile);
}

static void *begin(const struct wf_synth_image *image)
{
    struct scene *const s = wf_take(sizeof *s);
    const int64_t side = image->tile, across = image->extent[WF_W] / side;
    const int64_t tiles = across * (image->extent[WF_H] / side);
    const int64_t first = (int64_t)(wf_synth_hash(image->key, 0, 0, 3) % (uint64_t)tiles);
    const int64_t step = 1 + (int64_t)(wf_synth_hash(image->key, 1, 0, 3) % (uint64_t)(tiles - 1));
    const int64_t tile[2] = { first, (first + step) % tiles };
    for (int i = 0; i < 2; i++) {
        /* Whole inside its subdomain, centred on a pixel. */
        const int64_t room = side - 2 * RADIUS;
        const int64_t left = tile[i] % across * side, top = tile[i] / across * side;
        const uint64_t along = wf_synth_hash(image->key, i, 1, 3) % (uint64_t)room;
        const uint64_t down = wf_synth_hash(image->key, i, 2, 3) % (uint64_t)room;
        s->x[i] = (float)(left + RADIUS + (int64_t)along);
        s->y[i] = (float)(top + RADIUS + (int64_t)down);
    }
    return s;
}

static float to_line(const struct scene *s, float x, float y)
{
    const float dx = s->x[1] - s->x[0], dy = s->y[1] - s->y[0];
    float t = ((x - s->x[0]) * dx + (y - s->y[0]) * dy) / (dx * dx + dy * dy);
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return hypotf(x - s->x[0] - t * dx, y - s->y[0] - t * dy);
}

static void draw(const struct wf_synth_image *image, const struct wf_synth_window *w)
{
    const struct scene *const s = image->scene;
    for (int64_t h = w->at.lo[WF_H]; h < w->at.hi[WF_H]; h++)
        for (int64_t x = w->at.lo[WF_W]; x < w->at.hi[WF_W]; x++) {
            const int64_t at = (h - w->at.lo[WF_H]) * w->pitch + x - w->at.lo[WF_W];
            const float px = (float)x, py = (float)h;
            bool disc = false;
            for (int i = 0; i < 2; i++)
                disc = disc || hypotf(px - s->x[i], py - s->y[i]) <= RADIUS;
            w->image[at] = disc ? 224 : 32;
            w->mask[at] = disc ? 2 : to_line(s, px, py) <= 1.5f;
        }
}

const struct wf_synth_kind wf_synth_discs = {
    .name = "discs",
    .what = "two discs, and the line between them that only the mask has",
    .dims = 2,
    .channels = 1,
    .size = { 1, 32, 64 },
    .tile = 32,
    .count = 1000,
    .classes = 3,
    .class_names = { "background", "line", "disc" },
    .colors = { { 0, 0, 0 }, { 230, 160, 40 }, { 70, 150, 230 } },
    .fits = fits,
    .begin = begin,
    .draw = draw,
};
