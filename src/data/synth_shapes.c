/*
 * Ten shapes in 32 x 32 pictures, in the files of CIFAR-10: a set for classifiers that is quick to
 * learn and not too easy. The shape varies in position, size, angle, colour and shading; behind and
 * in front of it are strokes of other colours; the picture is uneven and noisy. Only the contour
 * determines the class.
 *
 * Five files for training and one for testing, of equal length, as in the original. A picture
 * follows from (seed, number) alone; the classes take turns.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "data/synth.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, RECORD = 1 + 3 * PLANE, CLASSES = 10, FILES = 6 };
enum { FINE = 4 /* samples along each side of a pixel */, STROKES = 3, BEHIND = 2 };

static const float pi = 3.14159265f;
static const float TILT = 0.4f; /* to either side, in radians */

/* --- contours, about the unit disc --- */

static bool disc(float u, float v)
{
    return u * u + v * v < 0.81f;
}

static bool ring(float u, float v)
{
    const float r = u * u + v * v;
    return r > 0.3f && r < 0.9f;
}

static bool square(float u, float v)
{
    return fmaxf(fabsf(u), fabsf(v)) < 0.78f;
}

static bool frame(float u, float v)
{
    const float far = fmaxf(fabsf(u), fabsf(v));
    return far > 0.48f && far < 0.84f;
}

static bool triangle(float u, float v)
{
    return v > -0.5f && v < 1 - 1.7320508f * fabsf(u);
}

/* Five points: a straight edge from a tip to the notch beside it, in a tenth of the turn. */
static bool star(float u, float v)
{
    const float notch = 0.42f, tenth = pi / 5;
    const float angle = fabsf(remainderf(atan2f(v, u), 2 * tenth)), r = hypotf(u, v);
    const float x = r * cosf(angle), y = r * sinf(angle);
    const float ex = notch * cosf(tenth) - 1, ey = notch * sinf(tenth);
    return ex * y - ey * (x - 1) > 0;
}

static bool cross(float u, float v)
{
    return fminf(fabsf(u), fabsf(v)) < 0.27f && fmaxf(fabsf(u), fabsf(v)) < 0.92f;
}

static bool crescent(float u, float v)
{
    return u * u + v * v < 0.9f && (u - 0.45f) * (u - 0.45f) + v * v > 0.5f;
}

static bool arrow(float u, float v)
{
    return (u > -0.95f && u < 0.1f && fabsf(v) < 0.2f) ||
           (u > 0.05f && fabsf(v) < 0.8f * (0.95f - u));
}

static bool bars(float u, float v)
{
    return fabsf(u) < 0.88f && fabsf(v) > 0.24f && fabsf(v) < 0.66f;
}

static const struct {
    const char *name;
    bool (*holds)(float u, float v);
} shapes[CLASSES] = {
    { "disc", disc }, { "ring", ring },   { "square", square },     { "frame", frame },
    { "star", star }, { "cross", cross }, { "crescent", crescent }, { "triangle", triangle },
    { "bars", bars }, { "arrow", arrow },
};

/* --- a picture --- */

struct stroke {
    float x, y, along_x, along_y; /* middle, direction */
    float length, width;          /* half of each */
    float color[3];
};

struct scene {
    uint64_t key;
    int label;
    float x, y, radius, cosine, sine; /* of the shape */
    float color[3], ground[2][3];
    float shade, noise;
    struct stroke strokes[STROKES];
};

/* Which number of a picture a choice takes. */
enum { PLACE = 1, SIZE, TURN, COLOR, GROUND, STROKE, SHADE, NOISE, GRAIN, CLOUD };

static float drawn(const struct scene *s, int what, int64_t which, float lo, float hi)
{
    return lo + (hi - lo) * wf_synth_unit(s->key, what, which, 0);
}

static float apart(const float a[3], const float b[3])
{
    float sum = 0;
    for (int c = 0; c < 3; c++)
        sum += (a[c] - b[c]) * (a[c] - b[c]);
    return sqrtf(sum);
}

/* A colour that can be told from the ground: the first of many that can. */
static void pick_color(struct scene *s)
{
    enum { TRIES = 32 };
    for (int64_t k = 0; k < TRIES; k++) {
        for (int c = 0; c < 3; c++)
            s->color[c] = drawn(s, COLOR, k * 3 + c, 0, 1);
        if (apart(s->color, s->ground[0]) > 0.55f && apart(s->color, s->ground[1]) > 0.55f)
            return;
    }
}

static void lay_strokes(struct scene *s)
{
    for (int64_t i = 0; i < STROKES; i++) {
        struct stroke *const t = &s->strokes[i];
        const float angle = drawn(s, STROKE, i * 16, 0, pi);
        t->x = drawn(s, STROKE, i * 16 + 1, 0, SIDE);
        t->y = drawn(s, STROKE, i * 16 + 2, 0, SIDE);
        t->along_x = cosf(angle);
        t->along_y = sinf(angle);
        t->length = drawn(s, STROKE, i * 16 + 3, 3, 7);
        t->width = i < BEHIND ? drawn(s, STROKE, i * 16 + 4, 0.5f, 1.2f) : 0.5f;
        for (int c = 0; c < 3; c++)
            t->color[c] = drawn(s, STROKE, i * 16 + 5 + c, 0, 1);
    }
}

static struct scene scene_of(uint64_t seed, int64_t index)
{
    struct scene s = { .key = wf_synth_hash(seed, index, 3, 2), .label = (int)(index % CLASSES) };
    const float turn = drawn(&s, TURN, 0, -TILT, TILT);
    s.radius = drawn(&s, SIZE, 0, 8.5f, 13.5f);
    const float reach = 0.9f * (SIDE / 2.0f - 0.8f * s.radius);
    s.x = SIDE / 2.0f + drawn(&s, PLACE, 0, -reach, reach);
    s.y = SIDE / 2.0f + drawn(&s, PLACE, 1, -reach, reach);
    s.cosine = cosf(turn);
    s.sine = sinf(turn);
    for (int64_t c = 0; c < 3; c++) {
        s.ground[0][c] = drawn(&s, GROUND, c, 0, 1);
        s.ground[1][c] = s.ground[0][c] + drawn(&s, GROUND, 3 + c, -0.25f, 0.25f);
    }
    pick_color(&s);
    lay_strokes(&s);
    s.shade = drawn(&s, SHADE, 0, -0.25f, 0.25f);
    s.noise = drawn(&s, NOISE, 0, 0.02f, 0.1f);
    return s;
}

static bool in_stroke(const struct stroke *t, float x, float y)
{
    const float dx = x - t->x, dy = y - t->y;
    return fabsf(dx * t->along_x + dy * t->along_y) < t->length &&
           fabsf(dy * t->along_x - dx * t->along_y) < t->width;
}

/* What lies at a place of this ground, without noise. */
static void color_at(const struct scene *s, float x, float y, const float ground[3], float color[3])
{
    memcpy(color, ground, 3 * sizeof *ground);
    for (int i = 0; i < BEHIND; i++)
        if (in_stroke(&s->strokes[i], x, y))
            memcpy(color, s->strokes[i].color, sizeof s->strokes[i].color);
    const float dx = (x - s->x) / s->radius, dy = (y - s->y) / s->radius;
    if (shapes[s->label].holds(dx * s->cosine + dy * s->sine, dy * s->cosine - dx * s->sine))
        for (int c = 0; c < 3; c++)
            color[c] = s->color[c] + s->shade * dy;
    for (int i = BEHIND; i < STROKES; i++)
        if (in_stroke(&s->strokes[i], x, y))
            memcpy(color, s->strokes[i].color, sizeof s->strokes[i].color);
}

static uint8_t byte_of(float v)
{
    return (uint8_t)(v < 0 ? 0 : v > 1 ? 255 : lroundf(255 * v));
}

/* The mean colour of a pixel, without noise. */
static void color_of_pixel(const struct scene *s, int row, int column, float mean[3])
{
    const float x = (float)column, y = (float)row;
    const float cloud = 0.5f + 0.5f * wf_synth_smooth(s->key + CLOUD, x, y, 9);
    float ground[3], sum[3] = { 0 };
    for (int c = 0; c < 3; c++)
        ground[c] = s->ground[0][c] + (s->ground[1][c] - s->ground[0][c]) * cloud;
    for (int j = 0; j < FINE; j++)
        for (int i = 0; i < FINE; i++) {
            float color[3];
            color_at(s, x + ((float)i + 0.5f) / FINE, y + ((float)j + 0.5f) / FINE, ground, color);
            for (int c = 0; c < 3; c++)
                sum[c] += color[c];
        }
    for (int c = 0; c < 3; c++)
        mean[c] = sum[c] / (FINE * FINE);
}

/* A label, then a plane for each colour. */
static void draw_record(uint64_t seed, int64_t index, uint8_t record[RECORD])
{
    const struct scene s = scene_of(seed, index);
    record[0] = (uint8_t)s.label;
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++) {
            const int at = row * SIDE + column;
            float mean[3];
            color_of_pixel(&s, row, column, mean);
            for (int c = 0; c < 3; c++)
                record[1 + c * PLANE + at] =
                    byte_of(mean[c] + s.noise * wf_synth_grain(s.key + GRAIN, at, c, 0));
        }
}

/* --- the files --- */

struct set {
    const struct wf_synth_options *options;
    struct wf_arena arena;
    int64_t count;
};

static bool write_file(struct set *set, int which, struct wf_err *err)
{
    const char *const name = which < FILES - 1
                                 ? wf_arena_printf(&set->arena, "data_batch_%d.bin", which + 1)
                                 : "test_batch.bin";
    const int64_t first = wf_split_point(set->count, FILES, which);
    const int64_t n = wf_split_point(set->count, FILES, which + 1) - first;
    uint8_t *const records = malloc((size_t)n * RECORD + 1);
    if (!records)
        return wf_err_set(err, WF_ERR_FIT, "no memory for %" PRId64 " pictures", n);
#ifdef WF_HAVE_OPENMP
#pragma omp parallel for schedule(static)
#endif
    for (int64_t i = 0; i < n; i++)
        draw_record(set->options->seed, first + i, records + i * RECORD);
    const bool ok = wf_file_write(wf_arena_printf(&set->arena, "%s/%s", set->options->out, name),
                                  records, (size_t)n * RECORD, err);
    free(records);
    return ok;
}

static bool write_names(struct set *set, struct wf_err *err)
{
    const char *text = "";
    for (int i = 0; i < CLASSES; i++)
        text = wf_arena_printf(&set->arena, "%s%s\n", text, shapes[i].name);
    return wf_file_write(wf_arena_printf(&set->arena, "%s/batches.meta.txt", set->options->out),
                         text, strlen(text), err);
}

static bool run(const struct wf_synth_kind *kind, const struct wf_synth_options *options,
                struct wf_err *err)
{
    struct set set = { .options = options, .count = options->count ? options->count : kind->count };
    if (set.count < FILES)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' are %d files: give a --count of at least %d",
                          kind->name, FILES, FILES);
    bool ok = wf_synth_make_folder(options->out, err) && write_names(&set, err);
    for (int f = 0; ok && f < FILES; f++) {
        ok = write_file(&set, f, err);
        if (ok && options->progress)
            options->progress(options->user, (double)(f + 1) / FILES);
    }
    wf_arena_release(&set.arena);
    return ok;
}

static bool fits(const struct wf_synth_image *image, struct wf_err *err)
{
    return (image->extent[WF_H] == SIDE && image->extent[WF_W] == SIDE) ||
           wf_err_set(err, WF_ERR_USAGE, "'shapes' are of 32 x 32 pixels: leave --size out");
}

const struct wf_synth_kind wf_synth_shapes = {
    .name = "shapes",
    .what = "ten shapes to tell apart, in the files of CIFAR-10; a sixth for testing",
    .dims = 2,
    .channels = 3,
    .size = { 1, SIDE, SIDE },
    .count = 24000,
    .classes = CLASSES,
    .fits = fits,
    .run = run,
};
