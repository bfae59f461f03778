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
static const double NOISE = 0.004, APART = 0.15; /* metres: of every coordinate; between things */

/* A parallelogram from `at` along u and v, or a ball. */
struct surface {
    int label;
    double at[3], u[3], v[3], radius;
    double normal[3]; /* of a parallelogram, u x v */
    float color[3];
};

struct room {
    uint64_t key;
    int64_t next;                     /* of the random numbers */
    double size[2], taken[THINGS][4]; /* taken: from x, y to x, y */
    int things;
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
    const double flat = sqrt(c[0] * c[0] + c[1] * c[1] + c[2] * c[2]);
    const double area = s.radius > 0 ? 12.566370614 * s.radius * s.radius : flat;
    for (int k = 0; flat > 0 && k < 3; k++)
        s.normal[k] = c[k] / flat;
    r->areas[r->n] = (r->n ? r->areas[r->n - 1] : 0) + area;
    r->surfaces[r->n++] = s;
}

/* Colours tell little: things have any, walls and floors pale ones. */
static void tint(struct room *r, struct surface *s, double least)
{
    for (int k = 0; k < 3; k++)
        s->color[k] = (float)draw(r, least, 235);
}

/* A free place on the floor for something so wide and deep, apart from the walls and from what is there. */
static bool find_place(struct room *r, double w, double d, double at[2])
{
    enum { TRIES = 30 };
    for (int t = 0; t < TRIES; t++) {
        const double x = draw(r, APART, r->size[0] - w - APART);
        const double y = draw(r, APART, r->size[1] - d - APART);
        bool free_there = true;
        for (int i = 0; i < r->things; i++) {
            const double *const o = r->taken[i];
            free_there = free_there && (x > o[2] + APART || x + w < o[0] - APART ||
                                        y > o[3] + APART || y + d < o[1] - APART);
        }
        if (!free_there)
            continue;
        const double taken[4] = { x, y, x + w, y + d };
        memcpy(r->taken[r->things++], taken, sizeof taken);
        at[0] = x;
        at[1] = y;
        return true;
    }
    return false;
}

static void add_box(struct room *r)
{
    const double w = draw(r, 0.3, 0.9), d = draw(r, 0.3, 0.9), h = draw(r, 0.3, 0.9);
    double at[2];
    if (!find_place(r, w, d, at))
        return;
    const double x = at[0], y = at[1];
    struct surface s = { .label = BOX };
    tint(r, &s, 30);
    const double faces[5][3][3] = {
        { { x, y, 0 }, { w, 0, 0 }, { 0, 0, h } },
        { { x, y, 0 }, { 0, 0, h }, { 0, d, 0 } },
        { { x, y + d, 0 }, { 0, 0, h }, { w, 0, 0 } },
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

static void add_ball(struct room *r)
{
    struct surface s = { .label = BALL, .radius = draw(r, 0.2, 0.5) };
    tint(r, &s, 30);
    if (!find_place(r, 2 * s.radius, 2 * s.radius, s.at))
        return;
    s.at[0] += s.radius;
    s.at[1] += s.radius;
    s.at[2] = s.radius;
    add(r, s);
}

static void furnish(struct room *r)
{
    r->size[0] = draw(r, 3, 5);
    r->size[1] = draw(r, 3, 5);
    const double x = r->size[0], y = r->size[1], z = draw(r, 2.2, 2.6);
    struct surface floor_of = { .label = FLOOR, .u = { x }, .v = { 0, y } };
    tint(r, &floor_of, 120);
    add(r, floor_of);
    const double walls[4][3][3] = { { { 0 }, { 0, 0, z }, { x } },
                                    { { 0 }, { 0, y }, { 0, 0, z } },
                                    { { 0, y }, { x }, { 0, 0, z } },
                                    { { x }, { 0, 0, z }, { 0, y } } };
    struct surface wall = { .label = WALL };
    tint(r, &wall, 120);
    for (int w = 0; w < 4; w++) {
        memcpy(wall.at, walls[w][0], sizeof wall.at);
        memcpy(wall.u, walls[w][1], sizeof wall.u);
        memcpy(wall.v, walls[w][2], sizeof wall.v);
        add(r, wall);
    }
    const int things = 6 + (int)draw(r, 0, THINGS - 6);
    for (int i = 0; i < things; i++)
        (draw(r, 0, 1) < 0.5 ? add_box : add_ball)(r);
}

/* What a scanner measures: positions, colours and normals with noise, and the truth. */
struct points {
    double *at;
    uint8_t *colors;
    float *normals;
    int32_t *labels;
};

/* Point i: a surface by its area, and a place on it. */
static void scan(const struct room *r, int64_t i, const struct points *p)
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
    const double *const normal = s->radius > 0 ? ball : s->normal;
    double n[3], length = 0;
    for (int d = 0; d < 3; d++) {
        n[d] = normal[d] + 0.1 * (double)wf_synth_grain(r->key, i, 6, d);
        length += n[d] * n[d];
    }
    for (int d = 0; d < 3; d++) {
        p->at[3 * i + d] = s->at[d] +
                           (s->radius > 0 ? s->radius * ball[d] : a * s->u[d] + b * s->v[d]) +
                           NOISE * (double)wf_synth_grain(r->key, i, 4, d);
        p->normals[3 * i + d] = (float)(n[d] / sqrt(length));
        p->colors[3 * i + d] = wf_synth_byte(s->color[d] + 8 * wf_synth_grain(r->key, i, 5, d));
    }
    p->labels[i] = s->label;
}

static bool write_room(const char *path, uint64_t key, int64_t n, struct wf_err *err)
{
    struct room *const r = wf_take_zeroed(1, sizeof *r);
    r->key = key;
    furnish(r);
    const struct points p = { .at = wf_take((size_t)n * 3 * sizeof *p.at),
                              .colors = wf_take((size_t)n * 3),
                              .normals = wf_take((size_t)n * 3 * sizeof *p.normals),
                              .labels = wf_take((size_t)n * sizeof *p.labels) };
    for (int64_t i = 0; i < n; i++)
        scan(r, i, &p);
    const struct wf_cloud_ply ply = {
        .n = n, .at = p.at, .colors = p.colors, .normals = p.normals, .labels = p.labels
    };
    const bool ok = wf_cloud_write_ply(path, &ply, err);
    free(p.at);
    free(p.colors);
    free(p.normals);
    free(p.labels);
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
