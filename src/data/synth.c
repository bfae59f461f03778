#include "data/synth.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "image/raster.h"

enum { BAND = 256, LARGE = 4 << 20 };

const struct wf_synth_kind *const wf_synth_table[] = {
    &wf_synth_nuclei, &wf_synth_roads,  &wf_synth_vessels3d, &wf_synth_discs,    &wf_synth_shapes,
    &wf_synth_digits, &wf_synth_tissue, &wf_synth_rooms,     &wf_synth_shapes3d, NULL,
};

const struct wf_synth_kind *wf_synth_find(const char *name, struct wf_err *err)
{
    struct wf_suggest near = { .typed = name };
    char all[200] = "";
    for (const struct wf_synth_kind *const *k = wf_synth_table; *k; k++) {
        if (strcmp((*k)->name, name) == 0)
            return *k;
        wf_suggest_offer(&near, (*k)->name);
        const size_t n = strlen(all);
        (void)snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", (*k)->name);
    }
    (void)wf_err_set(err, WF_ERR_USAGE, "unknown kind of data '%s'%s%s%s: there are %s", name,
                     near.best ? ", did you mean '" : "", near.best ? near.best : "",
                     near.best ? "'?" : "", all);
    return NULL;
}

/* --- smooth noise --- */

static float ease(float t)
{
    return t * t * t * (t * (t * 6 - 15) + 10);
}

/* The square of the lattice that a place lies in. */
struct square {
    int64_t x, y;
    float corner[2][2];
};

static struct square square_at(uint64_t key, int64_t x, int64_t y)
{
    struct square s = { .x = x, .y = y };
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 2; i++)
            s.corner[j][i] = wf_synth_unit(key, x + i, y + j, 0);
    return s;
}

static float inside(const struct square *s, float x, float y)
{
    const float tx = ease(x - (float)s->x), ty = ease(y - (float)s->y);
    const float top = s->corner[0][0] + (s->corner[0][1] - s->corner[0][0]) * tx;
    const float bottom = s->corner[1][0] + (s->corner[1][1] - s->corner[1][0]) * tx;
    return 2 * (top + (bottom - top) * ty) - 1;
}

float wf_synth_smooth(uint64_t key, float x, float y, float scale)
{
    const float u = x / scale, v = y / scale;
    const struct square s = square_at(key, (int64_t)floorf(u), (int64_t)floorf(v));
    return inside(&s, u, v);
}

void wf_synth_smooth_row(uint64_t key, int64_t x, int64_t y, float scale, int64_t count,
                         float out[])
{
    const float v = (float)y / scale;
    struct square s = square_at(key, (int64_t)floorf((float)x / scale), (int64_t)floorf(v));
    for (int64_t i = 0; i < count; i++) {
        const float u = (float)(x + i) / scale;
        if ((int64_t)floorf(u) != s.x)
            s = square_at(key, (int64_t)floorf(u), s.y);
        out[i] = inside(&s, u, v);
    }
}

/* --- folders and small files --- */

bool wf_synth_make_folder(const char *path, struct wf_err *err)
{
    char *const copy = wf_take_text(path);
    bool ok = true;
    for (char *at = copy + 1; ok && at[-1]; at++) {
        if (*at && *at != '/')
            continue;
        const char was = *at;
        *at = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            ok = wf_err_set(err, WF_ERR_FAILED, "cannot make folder '%s': %s", copy,
                            wf_file_reason(errno));
        *at = was;
    }
    free(copy);
    return ok;
}

static bool refuse_full(const char *path, struct wf_err *err)
{
    enum wf_path_kind kind;
    if (!wf_path_look(path, &kind, err))
        return false;
    if (kind == WF_PATH_ABSENT)
        return true;
    if (kind != WF_PATH_FOLDER)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' is a file: give another --out", path);
    DIR *const dir = opendir(path);
    if (!dir)
        return wf_err_set(err, WF_ERR_FAILED, "cannot read folder '%s': %s", path,
                          wf_file_reason(errno));
    bool empty = true;
    errno = 0;
    for (const struct dirent *at; (at = readdir(dir)); errno = 0)
        empty = empty && (strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0);
    const int failure = errno;
    (void)closedir(dir);
    if (failure)
        return wf_err_set(err, WF_ERR_FAILED, "cannot read folder '%s': %s", path,
                          wf_file_reason(failure));
    return empty || wf_err_set(err, WF_ERR_USAGE,
                               "folder '%s' exists and is not empty: give another --out, or "
                               "remove it",
                               path);
}

static bool write_classes(const struct wf_synth_kind *kind, const char *out, struct wf_arena *arena,
                          struct wf_err *err)
{
    const char *text = "";
    for (int c = 0; c < kind->classes; c++)
        text = wf_arena_printf(arena, "%s%s %d\n", text, kind->class_names[c], c);
    return wf_file_write(wf_arena_printf(arena, "%s/classes.txt", out), text, strlen(text), err);
}

/* --- one image --- */

static void settle_size(const struct wf_synth_kind *kind, const struct wf_synth_options *o,
                        int64_t extent[WF_AXES])
{
    const bool own = o->size[1] == 0 && o->size[2] == 0;
    extent[WF_N] = 1;
    for (int i = 0; i < 3; i++)
        extent[WF_D + i] = own ? kind->size[i] : wf_max(o->size[i], 1);
    extent[WF_C] = kind->channels;
}

void wf_synth_image_init(struct wf_synth_image *image, const struct wf_synth_kind *kind,
                         const struct wf_synth_options *options, int64_t index)
{
    *image = (struct wf_synth_image){
        .key = wf_synth_hash(options->seed, index, 1 + options->domain, 2),
    };
    settle_size(kind, options, image->extent);
    image->domain = options->domain;
    image->tile = options->tile ? options->tile : kind->tile;
    image->scene = kind->begin ? kind->begin(image) : NULL;
}

void wf_synth_image_release(struct wf_synth_image *image)
{
    free(image->scene);
    image->scene = NULL;
}

struct pen {
    const struct wf_synth_kind *kind;
    const struct wf_synth_options *options;
    struct wf_synth_image image;
    struct wf_raster_writer *image_writer, *mask_writer;
    uint8_t *pixels, *labels; /* a band */
    int64_t done, total;      /* bands */
};

/* A band of rows, cut into windows for the threads. */
static bool draw_band(struct pen *p, int64_t plane, int64_t row, struct wf_err *err)
{
    const int64_t width = p->image.extent[WF_W];
    const int64_t end = wf_min(row + BAND, p->image.extent[WF_H]);
    const struct wf_region band = { .lo = { [WF_D] = plane, [WF_H] = row },
                                    .hi = { 1, plane + 1, end, width, 1 } };
    const int64_t parts = wf_ceil_div(width, BAND);
#ifdef WF_HAVE_OPENMP
#pragma omp parallel for schedule(dynamic) if (parts > 1)
#endif
    for (int64_t i = 0; i < parts; i++) {
        struct wf_synth_window w = { .at = band, .pitch = width };
        w.at.lo[WF_W] = i * BAND;
        w.at.hi[WF_W] = wf_min(width, (i + 1) * BAND);
        w.image = p->pixels + w.at.lo[WF_W] * p->kind->channels;
        w.mask = p->labels + w.at.lo[WF_W];
        p->kind->draw(&p->image, &w);
    }
    return wf_raster_write_window(p->image_writer, &band, p->pixels, err) &&
           wf_raster_write_window(p->mask_writer, &band, p->labels, err);
}

static bool draw_bands(struct pen *p, struct wf_err *err)
{
    for (int64_t d = 0; d < p->image.extent[WF_D]; d++)
        for (int64_t h = 0; h < p->image.extent[WF_H]; h += BAND) {
            if (!draw_band(p, d, h, err))
                return false;
            p->done++;
            if (p->options->progress)
                p->options->progress(p->options->user, (double)p->done / (double)p->total);
        }
    return true;
}

static bool open_writers(struct pen *p, const char *name, struct wf_arena *arena,
                         struct wf_err *err)
{
    const int64_t *const e = p->image.extent;
    const bool tiff = e[WF_D] > 1 || e[WF_H] * e[WF_W] > LARGE;
    struct wf_raster_info info = { .depth = e[WF_D],
                                   .height = e[WF_H],
                                   .width = e[WF_W],
                                   .channels = p->kind->channels,
                                   .sample = WF_SAMPLE_U8,
                                   .synced_later = true };
    info.tile.at[WF_H] = info.tile.at[WF_W] = tiff ? BAND : 0;
    const char *const end = tiff ? "tif" : "png";
    p->image_writer = wf_raster_create(
        wf_arena_printf(arena, "%s/images/%s.%s", p->options->out, name, end), &info, err);
    info.channels = 1;
    info.colors = p->kind->classes;
    memcpy(info.palette, p->kind->colors, sizeof p->kind->colors);
    if (p->image_writer)
        p->mask_writer = wf_raster_create(
            wf_arena_printf(arena, "%s/masks/%s.%s", p->options->out, name, end), &info, err);
    return p->mask_writer != NULL;
}

static bool draw_image(struct pen *p, int64_t index, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const char *const name = wf_arena_printf(&arena, "%s_%05" PRId64, p->kind->name, index);
    wf_synth_image_init(&p->image, p->kind, p->options, index);
    p->image_writer = p->mask_writer = NULL;
    bool ok = open_writers(p, name, &arena, err) && draw_bands(p, err);
    if (p->image_writer)
        ok = wf_raster_writer_close(p->image_writer, ok, err) && ok;
    if (p->mask_writer)
        ok = wf_raster_writer_close(p->mask_writer, ok, err) && ok;
    wf_synth_image_release(&p->image);
    wf_arena_release(&arena);
    return ok;
}

/* --- the set --- */

static bool prepare(const struct wf_synth_kind *kind, const struct wf_synth_options *o,
                    struct wf_arena *arena, struct wf_err *err)
{
    struct wf_synth_image like = { .tile = o->tile ? o->tile : kind->tile };
    settle_size(kind, o, like.extent);
    if (o->tile && !kind->tile)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' have no subdomains: leave --tile out",
                          kind->name);
    if (kind->dims == 2 && like.extent[WF_D] > 1)
        return wf_err_set(err, WF_ERR_USAGE, "'%s' are flat images: give --size as HxW",
                          kind->name);
    if (kind->fits && !kind->fits(&like, err))
        return false;
    if (!refuse_full(o->out, err))
        return false;
    if (kind->run)
        return true;
    return wf_synth_make_folder(wf_arena_printf(arena, "%s/images", o->out), err) &&
           wf_synth_make_folder(wf_arena_printf(arena, "%s/masks", o->out), err) &&
           write_classes(kind, o->out, arena, err);
}

bool wf_synth_run(const struct wf_synth_kind *kind, const struct wf_synth_options *options,
                  struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    struct pen p = { .kind = kind, .options = options };
    int64_t extent[WF_AXES];
    const int64_t count = options->count ? options->count : kind->count;
    settle_size(kind, options, extent);
    p.total = count * extent[WF_D] * wf_ceil_div(extent[WF_H], BAND);
    bool ok = prepare(kind, options, &arena, err);
    if (ok && kind->run) {
        wf_arena_release(&arena);
        return kind->run(kind, options, err) && wf_disk_sync(options->out, err);
    }
    if (ok) {
        const size_t band = (size_t)wf_min(BAND, extent[WF_H]) * (size_t)extent[WF_W];
        p.pixels = malloc(band * (size_t)kind->channels);
        p.labels = malloc(band);
        ok = (p.pixels && p.labels) ||
             wf_err_set(err, WF_ERR_FIT, "no memory for a band of %zu pixels", band);
    }
    for (int64_t i = 0; ok && i < count; i++)
        ok = draw_image(&p, i, err);
    /* Once for all, for thousands of small files would take a minute one by one. */
    ok = ok && wf_disk_sync(options->out, err);
    free(p.pixels);
    free(p.labels);
    wf_arena_release(&arena);
    return ok;
}
