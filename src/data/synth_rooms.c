/* Rooms as point clouds: a floor, walls, and boxes and balls that stand in them, as a scanner would see the surfaces. A
 * label for each point; a fifth of the rooms is for validation. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/memory.h"
#include "cloud/cloud.h"
#include "data/synth.h"

enum { FLOOR, WALL, BOX, BALL, CLASSES };
enum { THINGS = 16, SURFACES = 5 + 5 * THINGS, POINTS = 20000, COUNT = 50 };
static const double NOISE = 0.004; /* metres, of every coordinate */

/* A parallelogram from `at` along u and v, or a ball. */
struct surface {
    int label;
    double at[3], u[3], v[3], radius;
    float color[3];
};

struct room {
    uint64_t key;
    int64_t next; /* of the random numbers */
    struct surface surfaces[SURFACES];
    double areas[SURFACES]; /* of all up to and with this one */
    int n;
};

static double draw(struct room *r, double least, double most)
{
    return least + (most - least) * (double)wf_synth_unit(r->key, r->next++, 0, 0);
}

static void add(struct room *r, struct surface s)
{
    const double *const u = s.u, *const v = s.v;
    const double c[3] = { u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2],
                          u[0] * v[1] - u[1] * v[0] };
    const double area = s.radius > 0 ? 12.566370614 * s.radius * s.radius
                                     : sqrt(c[0] * c[0] + c[1] * c[1] + c[2] * c[2]);
    r->areas[r->n] = (r->n ? r->areas[r->n - 1] : 0) + area;
    r->surfaces[r->n++] = s;
}

/* Colours tell little: things have any, walls and floors pale ones. */
static void tint(struct room *r, struct surface *s, double least)
{
    for (int k = 0; k < 3; k++)
        s->color[k] = (float)draw(r, least, 235);
}

static void add_box(struct room *r, const double size[3])
{
    const double w = draw(r, 0.25, 0.9), d = draw(r, 0.25, 0.9), h = draw(r, 0.25, 0.9);
    const double x = draw(r, 0.1, size[0] - w - 0.1), y = draw(r, 0.1, size[1] - d - 0.1);
    struct surface s = { .label = BOX };
    tint(r, &s, 30);
    const double faces[5][3][3] = {
        { { x, y, 0 }, { w, 0, 0 }, { 0, 0, h } },
        { { x, y, 0 }, { 0, d, 0 }, { 0, 0, h } },
        { { x, y + d, 0 }, { w, 0, 0 }, { 0, 0, h } },
        { { x + w, y, 0 }, { 0, d, 0 }, { 0, 0, h } },
        { { x, y, h }, { w, 0, 0 }, { 0, d, 0 } },
    };
    for (int f = 0; f < 5; f++) {
        memcpy(s.at, faces[f][0], sizeof s.at);
        memcpy(s.u, faces[f][1], sizeof s.u);
        memcpy(s.v, faces[f][2], sizeof s.v);
        add(r, s);
    }
}

static void furnish(struct room *r)
{
    const double size[3] = { draw(r, 3, 6), draw(r, 3, 5), draw(r, 2.2, 2.8) };
    const double x = size[0], y = size[1], z = size[2];
    struct surface s = { .label = FLOOR, .u = { x }, .v = { 0, y } };
    tint(r, &s, 120);
    add(r, s);
    const double walls[4][2][3] = {
        { { 0 }, { x } }, { { 0 }, { 0, y } }, { { 0, y }, { x } }, { { x }, { 0, y } }
    };
    struct surface wall = { .label = WALL, .v = { 0, 0, z } };
    tint(r, &wall, 120);
    for (int w = 0; w < 4; w++) {
        memcpy(wall.at, walls[w][0], sizeof wall.at);
        memcpy(wall.u, walls[w][1], sizeof wall.u);
        add(r, wall);
    }
    const int things = 5 + (int)draw(r, 0, THINGS - 5);
    for (int i = 0; i < things; i++) {
        if (draw(r, 0, 1) < 0.5) {
            add_box(r, size);
            continue;
        }
        struct surface ball = { .label = BALL, .radius = draw(r, 0.2, 0.45) };
        tint(r, &ball, 30);
        const double e = ball.radius;
        ball.at[0] = draw(r, e, x - e);
        ball.at[1] = draw(r, e, y - e);
        ball.at[2] = e;
        add(r, ball);
    }
}

/* Point i: a surface by its area, a place on it, and what a scanner adds. */
static void scan(const struct room *r, int64_t i, double at[3], uint8_t color[3], int32_t *label)
{
    const double wanted = (double)wf_synth_unit(r->key, i, 1, 0) * r->areas[r->n - 1];
    int k = 0;
    while (k < r->n - 1 && r->areas[k] <= wanted)
        k++;
    const struct surface *const s = &r->surfaces[k];
    const double a = (double)wf_synth_unit(r->key, i, 2, 0),
                 b = (double)wf_synth_unit(r->key, i, 3, 0);
    const double up = 2 * b - 1, flat = sqrt(fmax(1 - up * up, 0)), turn = 6.283185307 * a;
    const double ball[3] = { flat * cos(turn), flat * sin(turn), up };
    for (int d = 0; d < 3; d++) {
        at[d] = s->at[d] + (s->radius > 0 ? s->radius * ball[d] : a * s->u[d] + b * s->v[d]) +
                NOISE * (double)wf_synth_grain(r->key, i, 4, d);
        color[d] = wf_synth_byte(s->color[d] + 8 * wf_synth_grain(r->key, i, 5, d));
    }
    *label = s->label;
}

static bool write_room(const char *path, uint64_t key, int64_t points, struct wf_err *err)
{
    struct room *const r = wf_take_zeroed(1, sizeof *r);
    r->key = key;
    furnish(r);
    double *const at = wf_take((size_t)points * 3 * sizeof *at);
    uint8_t *const colors = wf_take((size_t)points * 3);
    int32_t *const labels = wf_take((size_t)points * sizeof *labels);
    for (int64_t i = 0; i < points; i++)
        scan(r, i, at + 3 * i, colors + 3 * i, &labels[i]);
    const struct wf_cloud_ply ply = { .n = points, .at = at, .colors = colors, .labels = labels };
    const bool ok = wf_cloud_write_ply(path, &ply, err);
    free(at);
    free(colors);
    free(labels);
    free(r);
    return ok;
}

static bool run(const struct wf_synth_kind *kind, const struct wf_synth_options *o,
                struct wf_err *err)
{
    static const char classes[] = "floor 0\nwall 1\nbox 2\nball 3\n";
    struct wf_arena arena = { 0 };
    const int64_t count = o->count ? o->count : kind->count;
    const int64_t points = o->size[2] ? o->size[2] : POINTS, train = count - count / 5;
    bool ok =
        wf_synth_make_folder(wf_arena_printf(&arena, "%s/train", o->out), err) &&
        (train == count || wf_synth_make_folder(wf_arena_printf(&arena, "%s/val", o->out), err)) &&
        wf_file_write(wf_arena_printf(&arena, "%s/classes.txt", o->out), classes,
                      sizeof classes - 1, err);
    for (int64_t i = 0; ok && i < count; i++) {
        const char *const path = wf_arena_printf(&arena, "%s/%s/room_%05" PRId64 ".ply", o->out,
                                                 i < train ? "train" : "val", i);
        ok = write_room(path, wf_synth_hash(o->seed, i, 11, 0), points, err);
        if (ok && o->progress)
            o->progress(o->user, (double)(i + 1) / (double)count);
    }
    wf_arena_release(&arena);
    return ok;
}

const struct wf_synth_kind wf_synth_rooms = {
    .name = "rooms",
    .what = "point clouds of rooms: floor, wall, box, ball; a fifth for validation",
    .dims = 1,
    .clouds = true,
    .channels = 3,
    .size = { 1, 1, POINTS },
    .count = COUNT,
    .classes = CLASSES,
    .run = run,
};
