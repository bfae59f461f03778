/*
 * Digits drawn from the system's fonts, for domain adaptation: the same ten classes look different
 * in each domain, and what is learned on one must be carried over to another.
 *
 *   source    white on black
 *   noise     the difference to smooth coloured noise, as MNIST-M does with photographs
 *   inverted  black on white, blurred
 *   textured  digit and ground in two different patterns
 *
 * Five sixths are for training, the rest for testing, in the layout `classes`; the two parts have no
 * family of fonts in common, so that a test asks for shapes that were not seen. Which families are
 * held out depends on the seed and the installed fonts, not on the domain: sets of one seed can be
 * used together. fonts.txt lists part, family, style and file. A picture follows from (seed, domain, number) and the fonts;
 * the classes take turns.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/fonts.h"
#include "data/synth.h"
#include "image/raster.h"

enum { CLASSES = 10, PARTS = 6 /* of equal length; the last is for testing */ };
enum { LEAST = 16, MOST = 4096 /* pixels of a side */ };
enum domain { SOURCE, NOISE, INVERTED, TEXTURED };
static const char *const domains[] = { "source", "noise", "inverted", "textured", NULL };
static const char *const part_names[] = { "train", "test" };

/* What the numbers of a picture are for. */
enum { FONT, SIZE, STRETCH, TURN, RIGHT, DOWN, INK, PAPER, BLUR, COLOR, PATTERN = 16 };

struct picture {
    uint64_t key;
    int64_t rows, columns;
    float side;     /* the shorter one */
    uint8_t *drawn; /* coverage by the digit, 0 to 255 */
    float *cover;   /* 0 to 1 */
    float *scratch; /* likewise, for blurring */
    uint8_t *rgb;
};

static float between(float low, float high, const struct picture *p, int64_t what)
{
    return low + (high - low) * wf_synth_unit(p->key, what, 0, 0);
}

/* --- domains: `cover` to `rgb` --- */

static void draw_source(const struct picture *p)
{
    for (int64_t i = 0; i < 3 * p->rows * p->columns; i++)
        p->rgb[i] = wf_synth_byte(255 * p->cover[i / 3]);
}

/* In front of a middle grey the difference would be as grey: each colour stays off the middle by
 * itself, and a channel differs from the others. */
static void draw_noise(const struct picture *p)
{
    const float light = between(-1, 1, p, INK);
    float base[3];
    for (int c = 0; c < 3; c++) {
        const float own = 0.75f * light + 0.6f * between(-1, 1, p, COLOR + c);
        base[c] = 0.5f + (own < 0 ? -0.16f : 0.16f) + 0.26f * own;
    }
    for (int64_t y = 0; y < p->rows; y++)
        for (int64_t x = 0; x < p->columns; x++) {
            const int64_t at = y * p->columns + x;
            const float u = (float)x / p->side, v = (float)y / p->side;
            const float grey = 0.13f * wf_synth_smooth(p->key + 1, u, v, 0.4f) +
                               0.08f * wf_synth_smooth(p->key + 2, u, v, 0.13f);
            for (int c = 0; c < 3; c++) {
                const uint64_t own = p->key + 3 + (uint64_t)c;
                const float ground = base[c] + grey + 0.12f * wf_synth_smooth(own, u, v, 0.3f) +
                                     0.02f * wf_synth_grain(own, x, y, 1);
                const float inside = ground < 0 ? 0 : ground > 1 ? 1 : ground;
                p->rgb[3 * at + c] = wf_synth_byte(255 * fabsf(inside - p->cover[at]));
            }
        }
}

/* Gaussian along one axis, `step` between neighbours; the border goes on. */
static void blur_line(const float *from, float *to, int64_t count, int64_t step, float sigma)
{
    const int64_t reach = (int64_t)ceilf(3 * sigma);
    for (int64_t i = 0; i < count; i++) {
        float sum = 0, weights = 0;
        for (int64_t d = -reach; d <= reach; d++) {
            const int64_t at = wf_max(0, wf_min(count - 1, i + d));
            const float weight = expf(-0.5f * (float)(d * d) / (sigma * sigma));
            sum += weight * from[at * step];
            weights += weight;
        }
        to[i * step] = sum / weights;
    }
}

static void draw_inverted(const struct picture *p)
{
    const float sigma = p->side * between(0.025f, 0.045f, p, BLUR);
    for (int64_t y = 0; y < p->rows; y++)
        blur_line(p->cover + y * p->columns, p->scratch + y * p->columns, p->columns, 1, sigma);
    for (int64_t x = 0; x < p->columns; x++)
        blur_line(p->scratch + x, p->cover + x, p->rows, p->columns, sigma);
    const float paper = between(225, 255, p, PAPER), ink = between(0, 50, p, INK);
    for (int64_t i = 0; i < 3 * p->rows * p->columns; i++)
        p->rgb[i] = wf_synth_byte(paper + (ink - paper) * p->cover[i / 3]);
}

/* A pattern: between -1 and 1, and the colour it is added to. */
struct pattern {
    uint64_t key;
    int kind;
    float cos, sin, phase, period; /* of stripes and checks, in sides */
    float color[3], amount[3];
};

static struct pattern pattern_of(const struct picture *p, int which, float light)
{
    const uint64_t key = wf_synth_hash(p->key, which, 0, PATTERN);
    const float turn = 3.14159265f * wf_synth_unit(key, 1, 0, 0);
    struct pattern t = { .key = key,
                         .kind = (int)(wf_synth_hash(key, 0, 0, 0) % 4),
                         .cos = cosf(turn),
                         .sin = sinf(turn),
                         .phase = 6.2831853f * wf_synth_unit(key, 2, 0, 0),
                         .period = 0.11f + 0.12f * wf_synth_unit(key, 3, 0, 0) };
    for (int c = 0; c < 3; c++) {
        t.color[c] = light + 0.34f * (wf_synth_unit(key, 4, c, 0) - 0.5f);
        t.amount[c] = 0.08f + 0.1f * wf_synth_unit(key, 5, c, 0);
    }
    return t;
}

static float pattern_at(const struct pattern *t, float u, float v, int64_t x, int64_t y)
{
    const float around = 6.2831853f / t->period;
    const float along = sinf(around * (t->cos * u + t->sin * v) + t->phase);
    const float across = sinf(around * (t->cos * v - t->sin * u) + t->phase);
    switch (t->kind) {
    case 0:
        return along;
    case 1:
        return along * across > 0 ? 1 : -1;
    case 2:
        return wf_synth_smooth(t->key, u, v, t->period) > 0.15f ? 1 : -1;
    default:
        return 0.7f * wf_synth_grain(t->key, x, y, 1);
    }
}

static void draw_textured(const struct picture *p)
{
    /* One is light and the other dark, whichever: contrast enough to read, no fixed sign. */
    const bool is_light = wf_synth_unit(p->key, INK, 0, 0) < 0.5f;
    const float dark = between(0.12f, 0.32f, p, PAPER), bright = between(0.68f, 0.88f, p, COLOR);
    const struct pattern ground = pattern_of(p, 0, is_light ? dark : bright);
    const struct pattern digit = pattern_of(p, 1, is_light ? bright : dark);
    for (int64_t y = 0; y < p->rows; y++)
        for (int64_t x = 0; x < p->columns; x++) {
            const int64_t at = y * p->columns + x;
            const float u = (float)x / p->side, v = (float)y / p->side;
            const float below = pattern_at(&ground, u, v, x, y);
            const float above = pattern_at(&digit, u, v, x, y);
            for (int c = 0; c < 3; c++) {
                const float a = ground.color[c] + ground.amount[c] * below;
                const float b = digit.color[c] + digit.amount[c] * above;
                p->rgb[3 * at + c] = wf_synth_byte(255 * (a + (b - a) * p->cover[at]));
            }
        }
}

/* --- the fonts of each part --- */

struct set {
    const struct wf_synth_options *options;
    struct wf_arena arena;
    struct wf_fonts fonts;
    const struct wf_font **of[2]; /* training, testing */
    size_t count[2];
};

/* An order of families that follows from the seed and their names. */
static bool is_before(uint64_t seed, const char *a, const char *b)
{
    uint64_t x = seed, y = seed;
    for (const char *at = a; *at; at++)
        x = wf_synth_hash(x, *at, 0, FONT);
    for (const char *at = b; *at; at++)
        y = wf_synth_hash(y, *at, 0, FONT);
    return x != y ? x < y : strcmp(a, b) < 0;
}

/* Families that begin in the first quarter of the fonts, in that order, are held out, but never the
 * last one. */
static bool is_held_out(const struct set *s, const char *family)
{
    size_t before = 0, own = 0;
    for (size_t i = 0; i < s->fonts.count; i++) {
        const bool is_same = strcmp(s->fonts.at[i].family, family) == 0;
        own += is_same;
        before += !is_same && is_before(s->options->seed, s->fonts.at[i].family, family);
    }
    return before * 4 < s->fonts.count && before + own < s->fonts.count;
}

static bool choose_fonts(struct set *s, struct wf_err *err)
{
    const size_t n = s->fonts.count;
    for (int part = 0; part < 2; part++)
        s->of[part] = wf_arena_array(&s->arena, n, const struct wf_font *);
    for (size_t i = 0; i < n; i++) {
        const int part = is_held_out(s, s->fonts.at[i].family);
        s->of[part][s->count[part]++] = &s->fonts.at[i];
    }
    return s->count[1] > 0 ||
           wf_err_set(err, WF_ERR_INPUT,
                      "the %zu font%s found belong to one family, '%s', and the test part needs "
                      "another: install 'fonts-liberation', or give --fonts DIR",
                      n, n == 1 ? "" : "s", s->fonts.at[0].family);
}

static bool write_fonts(struct set *s, struct wf_err *err)
{
    const char *text = "";
    for (int part = 0; part < 2; part++)
        for (size_t i = 0; i < s->count[part]; i++) {
            const struct wf_font *const f = s->of[part][i];
            const char *const file = strrchr(f->path, '/');
            text = wf_arena_printf(&s->arena, "%s%s\t%s\t%s\t%s\n", text, part_names[part],
                                   f->family, f->style, file ? file + 1 : f->path);
        }
    return wf_file_write(wf_arena_printf(&s->arena, "%s/fonts.txt", s->options->out), text,
                         strlen(text), err);
}

/* --- pictures --- */

static bool draw_picture(const struct set *s, struct picture *p, int part, int64_t digit,
                         struct wf_err *err)
{
    static void (*const draw[])(const struct picture *) = { draw_source, draw_noise, draw_inverted,
                                                            draw_textured };
    const size_t font = wf_synth_hash(p->key, FONT, 0, 0) % s->count[part];
    const float size = p->side * between(0.55f, 0.8f, p, SIZE), free = 0.5f * (0.94f - 0.8f);
    const struct wf_glyph glyph = {
        .letter = (char)('0' + digit),
        .x = 0.5f * (float)p->columns + p->side * between(-free, free, p, RIGHT),
        .y = 0.5f * (float)p->rows + p->side * between(-free, free, p, DOWN),
        .height = size,
        .width = size,
        .stretch = between(0.85f, 1.2f, p, STRETCH),
        .turn = between(-0.2f, 0.2f, p, TURN),
    };
    if (!wf_fonts_draw(s->of[part][font], &glyph, p->rows, p->columns, p->drawn, err))
        return false;
    for (int64_t i = 0; i < p->rows * p->columns; i++)
        p->cover[i] = (float)p->drawn[i] / 255;
    draw[s->options->domain](p);
    return true;
}

static bool write_picture(const char *path, const struct picture *p, struct wf_err *err)
{
    const struct wf_raster_info info = {
        .depth = 1,
        .height = p->rows,
        .width = p->columns,
        .channels = 3,
        .sample = WF_SAMPLE_U8,
        .synced_later = true /* by wf_synth_run() */
    };
    struct wf_raster_writer *const w = wf_raster_create(path, &info, err);
    if (!w)
        return false;
    const struct wf_region all = { .hi = { 1, 1, p->rows, p->columns, 3 } };
    const bool ok = wf_raster_write_window(w, &all, p->rgb, err);
    return wf_raster_writer_close(w, ok, err);
}

static bool make_folders(struct set *s, struct wf_err *err)
{
    bool ok = true;
    for (int i = 0; ok && i < 2 * CLASSES; i++)
        ok = wf_synth_make_folder(wf_arena_printf(&s->arena, "%s/%s/%d", s->options->out,
                                                  part_names[i / CLASSES], i % CLASSES),
                                  err);
    return ok;
}

static bool draw_all(struct set *s, struct picture *p, int64_t count, struct wf_err *err)
{
    const struct wf_synth_options *const o = s->options;
    const int64_t first_test = wf_split_point(count, PARTS, PARTS - 1);
    bool ok = true;
    for (int64_t i = 0; ok && i < count; i++) {
        struct wf_arena arena = { 0 };
        const int part = i >= first_test;
        p->key = wf_synth_hash(o->seed, i, o->domain, CLASSES);
        ok = draw_picture(s, p, part, i % CLASSES, err) &&
             write_picture(wf_arena_printf(&arena, "%s/%s/%" PRId64 "/%06" PRId64 ".png", o->out,
                                           part_names[part], i % CLASSES, i),
                           p, err);
        wf_arena_release(&arena);
        if (ok && o->progress)
            o->progress(o->user, (double)(i + 1) / (double)count);
    }
    return ok;
}

static bool run(const struct wf_synth_kind *kind, const struct wf_synth_options *options,
                struct wf_err *err)
{
    struct set s = { .options = options };
    struct wf_synth_image image;
    wf_synth_image_init(&image, kind, options, 0);
    const int64_t count = options->count ? options->count : kind->count;
    struct picture p = { .rows = image.extent[WF_H], .columns = image.extent[WF_W] };
    p.side = (float)wf_min(p.rows, p.columns);
    if (count < PARTS * CLASSES)
        return wf_err_set(err, WF_ERR_USAGE,
                          "'digits' have ten classes in six parts: give a --count of at least %d",
                          PARTS * CLASSES);
    const size_t pixels = (size_t)(p.rows * p.columns);
    p.drawn = wf_take(pixels * 4);
    p.rgb = p.drawn + pixels;
    p.cover = wf_take(pixels * 2 * sizeof *p.cover);
    p.scratch = p.cover + pixels;
    const bool ok = wf_fonts_find(&s.fonts, options->fonts, err) && choose_fonts(&s, err) &&
                    make_folders(&s, err) && write_fonts(&s, err) && draw_all(&s, &p, count, err);
    free(p.drawn);
    free(p.cover);
    wf_fonts_release(&s.fonts);
    wf_arena_release(&s.arena);
    return ok;
}

static bool fits(const struct wf_synth_image *image, struct wf_err *err)
{
    const int64_t *const e = image->extent;
    return (wf_min(e[WF_H], e[WF_W]) >= LEAST && wf_max(e[WF_H], e[WF_W]) <= MOST) ||
           wf_err_set(err, WF_ERR_USAGE,
                      "'digits' have sides of %d to %d pixels: give such a --size", LEAST, MOST);
}

const struct wf_synth_kind wf_synth_digits = {
    .name = "digits",
    .what = "digits 0 to 9 from the system's fonts, in several domains; a sixth for testing",
    .dims = 2,
    .channels = 3,
    .size = { 1, 32, 32 },
    .count = 6000,
    .classes = CLASSES,
    .domains = domains,
    .has_fonts = true,
    .fits = fits,
    .run = run,
};
