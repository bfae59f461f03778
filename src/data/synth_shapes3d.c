/* Solids to tell apart, as OFF meshes in a folder for each class; a fifth is for testing. Each is stretched, tilted a
 * little and turned, and its surface is uneven. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "data/synth.h"

enum { CLASSES = 8, COUNT = 800, SEGMENTS = 24, OUTLINE = 32 };

/* An outline in (distance from the axis, height), turned about the axis in so many steps. */
struct solid {
    const char *name;
    int steps; /* 0: smooth, as many as the size says */
    int (*outline)(double t, double p[OUTLINE][2], int segments);
};

static int ball(double t, double p[OUTLINE][2], int segments)
{
    const int n = segments / 2;
    const double r = 0.45 + 0.05 * t;
    for (int i = 0; i <= n; i++) {
        const double a = 3.14159265 * i / n;
        p[i][0] = r * sin(a);
        p[i][1] = -r * cos(a);
    }
    return n + 1;
}

/* Half a ball, open above. */
static int bowl(double t, double p[OUTLINE][2], int segments)
{
    return ball(t, p, segments) / 2 + 1;
}

static int straight(double bottom, double top, double height, double p[OUTLINE][2])
{
    const double h = height / 2;
    const double outline[4][2] = { { 0, -h }, { bottom, -h }, { top, h }, { 0, h } };
    memcpy(p, outline, sizeof outline);
    return 4;
}

static int box(double t, double p[OUTLINE][2], int)
{
    return straight(0.55 + 0.1 * t, 0.55 + 0.1 * t, 0.5, p);
}

static int cylinder(double t, double p[OUTLINE][2], int)
{
    return straight(0.2 + 0.08 * t, 0.2 + 0.08 * t, 1, p);
}

static int cone(double t, double p[OUTLINE][2], int)
{
    return straight(0.35 + 0.15 * t, 0, 1, p);
}

static int ring(double t, double p[OUTLINE][2], int segments)
{
    const int n = segments / 2;
    const double thick = 0.12 + 0.06 * t;
    for (int i = 0; i <= n; i++) {
        const double a = 6.2831853 * i / n;
        p[i][0] = 0.5 - thick + thick * cos(a);
        p[i][1] = thick * sin(a);
    }
    return n + 1;
}

static int capsule(double t, double p[OUTLINE][2], int segments)
{
    const int half = segments / 4;
    const double r = 0.18 + 0.05 * t;
    for (int i = 0; i <= 2 * half + 1; i++) {
        const double a = 1.57079633 * (i <= half ? i - half : i - half - 1) / half;
        p[i][0] = r * cos(a);
        p[i][1] = (i <= half ? -1 : 1) * (0.5 - r) + r * sin(a);
    }
    return 2 * half + 2;
}

static int hourglass(double t, double p[OUTLINE][2], int)
{
    const double w = 0.3 + 0.1 * t;
    const double outline[5][2] = { { 0, -0.5 }, { w, -0.5 }, { 0.06, 0 }, { w, 0.5 }, { 0, 0.5 } };
    memcpy(p, outline, sizeof outline);
    return 5;
}

static const struct solid solids[CLASSES] = {
    { "ball", 0, ball },           { "bowl", 0, bowl }, { "box", 4, box },
    { "capsule", 0, capsule },     { "cone", 0, cone }, { "cylinder", 0, cylinder },
    { "hourglass", 0, hourglass }, { "ring", 0, ring },
};

/* Stretched, turned about the axis, tilted. */
static void place(uint64_t key, const double in[3], double out[3])
{
    const double turn = 6.2831853 * (double)wf_synth_unit(key, 1, 0, 0);
    const double tilt = 0.5 * (double)wf_synth_unit(key, 2, 0, 0) - 0.25;
    double p[3];
    for (int k = 0; k < 3; k++)
        p[k] = in[k] * (0.8 + 0.4 * (double)wf_synth_unit(key, 3, k, 0));
    const double y = cos(tilt) * p[1] - sin(tilt) * p[2], z = sin(tilt) * p[1] + cos(tilt) * p[2];
    out[0] = cos(turn) * p[0] - sin(turn) * y;
    out[1] = sin(turn) * p[0] + cos(turn) * y;
    out[2] = z;
}

static bool write_solid(const char *path, const struct solid *s, uint64_t key, int segments,
                        struct wf_err *err)
{
    double p[OUTLINE][2];
    const int n = s->outline((double)wf_synth_unit(key, 0, 0, 0), p, segments);
    const int steps = s->steps ? s->steps : segments;
    struct wf_buffer text = { 0 };
    wf_buffer_printf(&text, "OFF\n%d %d 0\n", n * steps, (n - 1) * steps);
    for (int i = 0; i < steps; i++)
        for (int k = 0; k < n; k++) {
            const double a = 6.2831853 * i / steps;
            double at[3];
            place(key, (const double[]){ p[k][0] * cos(a), p[k][0] * sin(a), p[k][1] }, at);
            for (int d = 0; d < 3; d++)
                at[d] += 0.004 * (double)wf_synth_grain(key, i, k, 7 + d);
            wf_buffer_printf(&text, "%.5f %.5f %.5f\n", at[0], at[1], at[2]);
        }
    for (int i = 0; i < steps; i++)
        for (int k = 0; k + 1 < n; k++) {
            const int here = i * n + k, there = (i + 1) % steps * n + k;
            wf_buffer_printf(&text, "4 %d %d %d %d\n", here, there, there + 1, here + 1);
        }
    const bool ok = wf_file_write(path, text.data, text.size, err);
    wf_buffer_release(&text);
    return ok;
}

static bool run(const struct wf_synth_kind *kind, const struct wf_synth_options *o,
                struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const int64_t count = o->count ? o->count : kind->count, train = count - count / 5;
    const int segments = o->size[2] ? (int)o->size[2] : SEGMENTS;
    static const char *const parts[] = { "train", "test" };
    bool ok = true;
    for (int c = 0; ok && c < CLASSES; c++)
        for (int p = 0; ok && p < 2; p++)
            ok = wf_synth_make_folder(
                wf_arena_printf(&arena, "%s/%s/%s", o->out, parts[p], solids[c].name), err);
    for (int64_t i = 0; ok && i < count; i++) {
        const struct solid *const s = &solids[i % CLASSES];
        const char *const path = wf_arena_printf(&arena, "%s/%s/%s/%s_%05" PRId64 ".off", o->out,
                                                 parts[i >= train], s->name, s->name, i);
        ok = write_solid(path, s, wf_synth_hash(o->seed, i, 12, 0), segments, err);
        if (ok && o->progress)
            o->progress(o->user, (double)(i + 1) / (double)count);
    }
    wf_arena_release(&arena);
    return ok;
}

static bool fits(const struct wf_synth_image *image, struct wf_err *err)
{
    const int64_t n = image->extent[WF_W];
    return (n >= 8 && n <= 2 * OUTLINE - 4 && n % 4 == 0) ||
           wf_err_set(err, WF_ERR_USAGE,
                      "'shapes3d' are turned in --size steps: a multiple of 4 from 8 to %d",
                      2 * OUTLINE - 4);
}

const struct wf_synth_kind wf_synth_shapes3d = {
    .name = "shapes3d",
    .what = "meshes of eight solids to tell apart, a folder for each; a fifth for testing",
    .dims = 1,
    .clouds = true,
    .channels = 1,
    .size = { 1, 1, SEGMENTS },
    .count = COUNT,
    .classes = CLASSES,
    .fits = fits,
    .run = run,
};
