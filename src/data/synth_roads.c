/*
 * Roads seen from above: long narrow structures. Locally, a road looks like the bands beside it
 * (roofs, yards), which are no roads: only its length distinguishes it. Trees hide parts of it, and
 * the mask continues below them.
 *
 * The land is cut into squares. A road crosses a border between two squares at a place that both
 * know from the border's own random numbers, at a right angle; inside a square the crossings run in
 * curves to a junction. So roads go through the whole image, and a window needs to look at near
 * squares only.
 */
#include <math.h>

#include "data/synth.h"

enum { PIECES = 14, SIDE = 256, STRIPS = 72, TREES = 17 };
static const float half_width = 3.2f;

struct point {
    float x, y;
};

struct canvas {
    const struct wf_synth_image *image;
    int64_t square; /* side */
    const struct wf_synth_window *w;
    float road[SIDE * SIDE];  /* distance to the middle of the nearest road */
    float strip[SIDE * SIDE]; /* ... and of the nearest strip */
};

/* The least distance to the piece from a to b, over the pixels within `reach` of it. */
static void draw_piece(struct canvas *c, float field[], struct point a, struct point b, float reach)
{
    const struct wf_region *const r = &c->w->at;
    const int64_t wide = wf_region_extent(*r, WF_W);
    const int64_t x0 = wf_max((int64_t)floorf(fminf(a.x, b.x) - reach), r->lo[WF_W]);
    const int64_t x1 = wf_min((int64_t)ceilf(fmaxf(a.x, b.x) + reach) + 1, r->hi[WF_W]);
    const int64_t y0 = wf_max((int64_t)floorf(fminf(a.y, b.y) - reach), r->lo[WF_H]);
    const int64_t y1 = wf_min((int64_t)ceilf(fmaxf(a.y, b.y) + reach) + 1, r->hi[WF_H]);
    const float dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy + 1e-6f;
    for (int64_t y = y0; y < y1; y++)
        for (int64_t x = x0; x < x1; x++) {
            const float px = (float)x - a.x, py = (float)y - a.y;
            float t = (px * dx + py * dy) / length;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            const float far = hypotf(px - t * dx, py - t * dy);
            float *const at = &field[(y - r->lo[WF_H]) * wide + x - r->lo[WF_W]];
            *at = far < *at ? far : *at;
        }
}

/* Does a road cross the border, and where along it? `upright`: the left border of (i, j), otherwise
 * the upper one. */
static bool crossing(const struct canvas *c, int64_t i, int64_t j, bool upright, struct point *p)
{
    const uint64_t key = c->image->key;
    const float side = (float)c->square;
    if (wf_synth_unit(key, i, j, upright ? 40 : 41) > 0.72f)
        return false;
    const float along = 0.2f + 0.6f * wf_synth_unit(key, i, j, upright ? 42 : 43);
    p->x = ((float)i + (upright ? 0 : along)) * side;
    p->y = ((float)j + (upright ? along : 0)) * side;
    return true;
}

/* A curve that leaves the border at a right angle and ends in the junction. */
static void draw_curve(struct canvas *c, struct point from, struct point to, bool upright)
{
    const struct point bend = { upright ? (from.x + to.x) / 2 : from.x,
                                upright ? from.y : (from.y + to.y) / 2 };
    struct point last = from;
    for (int k = 1; k <= PIECES; k++) {
        const float t = (float)k / PIECES, s = 1 - t;
        const struct point next = { s * s * from.x + 2 * s * t * bend.x + t * t * to.x,
                                    s * s * from.y + 2 * s * t * bend.y + t * t * to.y };
        draw_piece(c, c->road, last, next, half_width + 3);
        last = next;
    }
}

static void draw_roads(struct canvas *c)
{
    const uint64_t key = c->image->key;
    const int64_t side = c->square;
    const struct wf_region *const r = &c->w->at;
    for (int64_t j = wf_floor_div(r->lo[WF_H] - 8, side); j <= wf_floor_div(r->hi[WF_H] + 8, side);
         j++)
        for (int64_t i = wf_floor_div(r->lo[WF_W] - 8, side);
             i <= wf_floor_div(r->hi[WF_W] + 8, side); i++) {
            const struct point junction = {
                ((float)i + 0.3f + 0.4f * wf_synth_unit(key, i, j, 44)) * (float)side,
                ((float)j + 0.3f + 0.4f * wf_synth_unit(key, i, j, 45)) * (float)side
            };
            struct point p;
            for (int far = 0; far < 2; far++) {
                if (crossing(c, i + far, j, true, &p))
                    draw_curve(c, p, junction, true);
                if (crossing(c, i, j + far, false, &p))
                    draw_curve(c, p, junction, false);
            }
        }
}

static void draw_strips(struct canvas *c)
{
    const uint64_t key = c->image->key + 50;
    const struct wf_region *const r = &c->w->at;
    for (int64_t j = wf_floor_div(r->lo[WF_H], STRIPS) - 1;
         j <= wf_floor_div(r->hi[WF_H], STRIPS) + 1; j++)
        for (int64_t i = wf_floor_div(r->lo[WF_W], STRIPS) - 1;
             i <= wf_floor_div(r->hi[WF_W], STRIPS) + 1; i++) {
            if (wf_synth_unit(key, i, j, 0) > 0.4f)
                continue;
            const struct point mid = { ((float)i + wf_synth_unit(key, i, j, 1)) * STRIPS,
                                       ((float)j + wf_synth_unit(key, i, j, 2)) * STRIPS };
            const float turn = 6.2831853f * wf_synth_unit(key, i, j, 3);
            const float half = 8 + 14 * wf_synth_unit(key, i, j, 4);
            const struct point a = { mid.x - half * cosf(turn), mid.y - half * sinf(turn) };
            const struct point b = { mid.x + half * cosf(turn), mid.y + half * sinf(turn) };
            draw_piece(c, c->strip, a, b, half_width + 3);
        }
}

/* Fields with borders that wander, each in its own colour. */
static void ground(uint64_t key, float x, float y, float rgb[3])
{
    static const float tints[4][3] = {
        { 112, 128, 78 }, { 140, 134, 92 }, { 92, 116, 70 }, { 150, 140, 112 }
    };
    const float wx = x + 40 * wf_synth_smooth(key + 60, x, y, 230);
    const float wy = y + 40 * wf_synth_smooth(key + 61, x, y, 230);
    const int64_t i = (int64_t)floorf(wx / 170), j = (int64_t)floorf(wy / 130);
    const float *const tint = tints[wf_synth_hash(key + 62, i, j, 0) & 3];
    const float rows = 5 * sinf((wx + wy * (wf_synth_unit(key + 62, i, j, 1) - 0.5f) * 4) * 0.8f);
    const float rough =
        9 * wf_synth_smooth(key + 63, x, y, 21) + 7 * wf_synth_smooth(key + 64, x, y, 5);
    for (int c = 0; c < 3; c++)
        rgb[c] = tint[c] + rows + rough;
}

/* How much of the pixel a tree's crown covers, 0 to 1. */
static float tree_at(uint64_t key, int64_t x, int64_t y)
{
    float cover = 0;
    const int64_t gi = wf_floor_div(x, TREES), gj = wf_floor_div(y, TREES);
    for (int64_t j = gj - 1; j <= gj + 1; j++)
        for (int64_t i = gi - 1; i <= gi + 1; i++) {
            const float wood = wf_synth_smooth(key + 70, (float)i * TREES, (float)j * TREES, 190);
            if (wf_synth_unit(key + 71, i, j, 0) > 0.10f + (wood > 0.25f ? 0.55f : 0.0f))
                continue;
            const float cx = ((float)i + wf_synth_unit(key + 71, i, j, 1)) * TREES;
            const float cy = ((float)j + wf_synth_unit(key + 71, i, j, 2)) * TREES;
            const float size = 4.5f + 5 * wf_synth_unit(key + 71, i, j, 3);
            const float own = 0.5f + (size - hypotf((float)x - cx, (float)y - cy)) / 2;
            cover = own > cover ? own : cover;
        }
    return cover > 1 ? 1 : cover;
}

static float edge(float distance)
{
    const float cover = 0.5f + (half_width - distance) / 1.6f;
    return cover < 0 ? 0 : cover > 1 ? 1 : cover;
}

static void color_pixel(const struct canvas *c, int64_t x, int64_t y, float road, float strip,
                        uint8_t rgb[3])
{
    static const float paved[3] = { 158, 154, 148 }, crown[3] = { 52, 78, 44 };
    const uint64_t key = c->image->key;
    const float px = (float)x, py = (float)y;
    float color[3];
    ground(key, px, py, color);
    const float hard = fmaxf(edge(road), edge(strip)), tree = tree_at(key, x, y);
    const float worn = 8 * wf_synth_smooth(key + 65, px, py, 11);
    const float leaves = 14 * wf_synth_smooth(key + 66, px, py, 3);
    const float sun = 1 + 0.12f * wf_synth_smooth(key + 67, px, py, 500);
    for (int k = 0; k < 3; k++) {
        float v = color[k] + (paved[k] + worn - color[k]) * hard;
        v += (crown[k] + leaves - v) * tree;
        rgb[k] = wf_synth_byte(v * sun + 5 * wf_synth_grain(key + 68, x, y, k));
    }
}

static void draw(const struct wf_synth_image *image, const struct wf_synth_window *w)
{
    struct canvas c = { .image = image, .w = w };
    /* Small pictures get small squares, so that there is a road in them. */
    const int64_t least = wf_min(image->extent[WF_H], image->extent[WF_W]);
    c.square = wf_max(64, wf_min(288, least / 3));
    const int64_t wide = wf_region_extent(w->at, WF_W), high = wf_region_extent(w->at, WF_H);
    WF_BUG_ON(wide > SIDE || high > SIDE, "a window of %d x %d", (int)high, (int)wide);
    for (int64_t i = 0; i < wide * high; i++)
        c.road[i] = c.strip[i] = 1e9f;
    draw_roads(&c);
    draw_strips(&c);
    for (int64_t row = 0; row < high; row++)
        for (int64_t col = 0; col < wide; col++) {
            const int64_t at = row * w->pitch + col;
            const float road = c.road[row * wide + col];
            w->mask[at] = road <= half_width;
            color_pixel(&c, w->at.lo[WF_W] + col, w->at.lo[WF_H] + row, road,
                        c.strip[row * wide + col], w->image + at * 3);
        }
}

const struct wf_synth_kind wf_synth_roads = {
    .name = "roads",
    .what = "aerial: long roads among short strips that look the same, partly under trees",
    .dims = 2,
    .channels = 3,
    .size = { 1, 1024, 1024 },
    .count = 16,
    .classes = 2,
    .class_names = { "background", "road" },
    .colors = { { 0, 0, 0 }, { 235, 225, 120 } },
    .draw = draw,
};
