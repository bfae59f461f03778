/*
 * A volume with branching vessels: tubes that wander, split and get thinner, in tissue of uneven
 * brightness with bright spots that are no vessels. The trees are grown once for an image as a list of
 * short round-ended pieces; a window draws those that reach into it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "data/synth.h"

enum { SIDE = 256, PIECES_MAX = 200000, OPEN_MAX = 256 };
static const float smallest = 0.9f, soft = 1.2f;

struct piece {
    float a[3], b[3], radius; /* D, H, W */
};

struct scene {
    int64_t count;
    struct piece pieces[];
};

/* The end of a branch that still grows. */
struct tip {
    float at[3], toward[3], radius;
};

struct garden {
    uint64_t key;
    const int64_t *extent; /* WF_AXES */
    struct piece *pieces;
    size_t count, room;
    struct tip open[OPEN_MAX];
    int n_open;
    int64_t drawn; /* random numbers so far: a tree grows in one order */
};

static float next_unit(struct garden *g)
{
    return wf_synth_unit(g->key, g->drawn++, 0, 80);
}

static void bend(struct garden *g, float toward[3], float how_much)
{
    float length = 0;
    for (int a = 0; a < 3; a++) {
        toward[a] += how_much * (2 * next_unit(g) - 1);
        length += toward[a] * toward[a];
    }
    length = sqrtf(length) + 1e-6f;
    for (int a = 0; a < 3; a++)
        toward[a] /= length;
}

static bool inside(const struct garden *g, const float at[3])
{
    for (int a = 0; a < 3; a++)
        if (at[a] < -8 || at[a] > (float)g->extent[WF_D + a] + 8)
            return false;
    return true;
}

static void grow(struct garden *g, struct tip tip)
{
    while (tip.radius >= smallest && inside(g, tip.at) && g->count < PIECES_MAX) {
        WF_GROW(g->pieces, g->room, g->count);
        struct piece *const p = &g->pieces[g->count++];
        const float step = 2 + 1.2f * tip.radius;
        p->radius = tip.radius;
        memcpy(p->a, tip.at, sizeof p->a);
        for (int a = 0; a < 3; a++)
            tip.at[a] += step * tip.toward[a];
        memcpy(p->b, tip.at, sizeof p->b);
        bend(g, tip.toward, 0.28f);
        tip.radius *= 0.992f;
        if (next_unit(g) < 0.15f && g->n_open < OPEN_MAX) {
            struct tip side = tip;
            side.radius *= 0.6f + 0.2f * next_unit(g);
            bend(g, side.toward, 1.4f);
            g->open[g->n_open++] = side;
            tip.radius *= 0.9f;
        }
    }
}

/* A trunk enters through a random place of a random face. */
static struct tip trunk(struct garden *g)
{
    struct tip t = { 0 };
    const int64_t *const e = g->extent + WF_D;
    const int64_t least = wf_min(e[0], wf_min(e[1], e[2]));
    const float thick = fminf(fmaxf((float)least / 14, 1.8f), 7);
    const int face = (int)(next_unit(g) * 6), axis = face / 2;
    for (int a = 0; a < 3; a++) {
        t.at[a] = next_unit(g) * (float)e[a];
        t.toward[a] = 0;
    }
    t.at[axis] = face % 2 ? (float)e[axis] : 0;
    t.toward[axis] = face % 2 ? -1 : 1;
    bend(g, t.toward, 0.5f);
    t.radius = thick * (0.7f + 0.5f * next_unit(g));
    return t;
}

static void *begin(const struct wf_synth_image *image)
{
    struct garden *const g = wf_take_zeroed(1, sizeof *g);
    g->key = image->key;
    g->extent = image->extent;
    const double voxels =
        (double)image->extent[WF_D] * (double)image->extent[WF_H] * (double)image->extent[WF_W];
    const int trunks = 3 + (int)fmin(voxels / (72.0 * 72 * 72), 400);
    for (int i = 0; i < trunks; i++) {
        g->open[g->n_open++] = trunk(g);
        while (g->n_open > 0)
            grow(g, g->open[--g->n_open]);
    }
    struct scene *const s = wf_take(sizeof *s + g->count * sizeof *s->pieces);
    s->count = (int64_t)g->count;
    if (g->count)
        memcpy(s->pieces, g->pieces, g->count * sizeof *s->pieces);
    free(g->pieces);
    free(g);
    return s;
}

/* The least signed distance to a wall: negative inside a vessel. */
static void draw_piece(const struct piece *p, const struct wf_region *r, float field[])
{
    const float reach = p->radius + 2 * soft, z = (float)r->lo[WF_D];
    if (z < fminf(p->a[0], p->b[0]) - reach || z > fmaxf(p->a[0], p->b[0]) + reach)
        return;
    const int64_t y0 = wf_max((int64_t)floorf(fminf(p->a[1], p->b[1]) - reach), r->lo[WF_H]);
    const int64_t y1 = wf_min((int64_t)ceilf(fmaxf(p->a[1], p->b[1]) + reach) + 1, r->hi[WF_H]);
    const int64_t x0 = wf_max((int64_t)floorf(fminf(p->a[2], p->b[2]) - reach), r->lo[WF_W]);
    const int64_t x1 = wf_min((int64_t)ceilf(fmaxf(p->a[2], p->b[2]) + reach) + 1, r->hi[WF_W]);
    const float d[3] = { p->b[0] - p->a[0], p->b[1] - p->a[1], p->b[2] - p->a[2] };
    const float length = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 1e-6f;
    for (int64_t y = y0; y < y1; y++)
        for (int64_t x = x0; x < x1; x++) {
            const float q[3] = { z - p->a[0], (float)y - p->a[1], (float)x - p->a[2] };
            float t = (q[0] * d[0] + q[1] * d[1] + q[2] * d[2]) / length, far = 0;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            for (int a = 0; a < 3; a++)
                far += (q[a] - t * d[a]) * (q[a] - t * d[a]);
            far = sqrtf(far) - p->radius;
            float *const at =
                &field[(y - r->lo[WF_H]) * wf_region_extent(*r, WF_W) + x - r->lo[WF_W]];
            *at = far < *at ? far : *at;
        }
}

/* Smooth numbers in space: planes of smooth noise, blended from one to the next. */
static float smooth3(uint64_t key, float z, float y, float x, float scale)
{
    const float plane = floorf(z / scale), t = z / scale - plane;
    const float low = wf_synth_smooth(wf_synth_hash(key, (int64_t)plane, 0, 81), x, y, scale);
    const float high = wf_synth_smooth(wf_synth_hash(key, (int64_t)plane + 1, 0, 81), x, y, scale);
    return low + (high - low) * t;
}

static uint8_t gray_at(uint64_t key, int64_t z, int64_t y, int64_t x, float wall)
{
    const float pz = (float)z, py = (float)y, px = (float)x;
    const float cover = 0.5f - wall / (2 * soft);
    const float vessel = cover < 0 ? 0 : cover > 1 ? 1 : cover;
    const float tissue =
        78 + 26 * smooth3(key + 1, pz, py, px, 34) + 10 * smooth3(key + 2, pz, py, px, 7);
    const float spot = smooth3(key + 3, pz, py, px, 8);
    const float bright = spot > 0.72f ? 140 * (spot - 0.72f) / 0.28f : 0;
    const float blood = 168 + 18 * smooth3(key + 4, pz, py, px, 25);
    const float value = tissue + bright + (blood - tissue - bright) * vessel;
    return wf_synth_byte(value + 11 * wf_synth_grain(key + 5, x, y, z));
}

static void draw(const struct wf_synth_image *image, const struct wf_synth_window *w)
{
    float wall[SIDE * SIDE] = { 0 };
    const struct scene *const s = image->scene;
    const int64_t wide = wf_region_extent(w->at, WF_W), high = wf_region_extent(w->at, WF_H);
    WF_BUG_ON(wide > SIDE || high > SIDE, "a window of %d x %d", (int)high, (int)wide);
    for (int64_t i = 0; i < wide * high; i++)
        wall[i] = 1e9f;
    for (int64_t i = 0; i < s->count; i++)
        draw_piece(&s->pieces[i], &w->at, wall);
    for (int64_t row = 0; row < high; row++)
        for (int64_t col = 0; col < wide; col++) {
            const float far = wall[row * wide + col];
            w->mask[row * w->pitch + col] = far <= 0;
            w->image[row * w->pitch + col] = gray_at(
                image->key, w->at.lo[WF_D], w->at.lo[WF_H] + row, w->at.lo[WF_W] + col, far);
        }
}

const struct wf_synth_kind wf_synth_vessels3d = {
    .name = "vessels3d",
    .what = "a volume with branching vessels",
    .dims = 3,
    .channels = 1,
    .size = { 64, 128, 128 },
    .count = 8,
    .classes = 2,
    .class_names = { "background", "vessel" },
    .colors = { { 0, 0, 0 }, { 220, 70, 70 } },
    .begin = begin,
    .draw = draw,
};
