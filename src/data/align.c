/* Masks that lie elsewhere than their images: found, and read where the image's pixels are. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_inside.h"

/* Of a pixel: what rounding in headers makes, and no more. */
static const double near_enough = 0.1;

const char *const wf_align_names[] = { "refuse", "resample", "ignore", NULL };

/* (W, H, D), as grids count. */
static void extent_of(const struct wf_raster_info *info, int64_t extent[3])
{
    extent[0] = info->width;
    extent[1] = info->height;
    extent[2] = info->depth;
}

static void refuse_place(struct wf_dataset *ds, struct wf_entry *e,
                         const struct wf_raster_grid *image, const struct wf_raster_grid *mask,
                         bool same_system)
{
    char of_image[200], of_mask[200], system[32], fix[240];
    wf_raster_grid_text(image, of_image, sizeof of_image);
    wf_raster_grid_text(mask, of_mask, sizeof of_mask);
    wf_raster_grid_system(image, system, sizeof system);
    if (same_system)
        (void)snprintf(fix, sizeof fix,
                       "set data.align=resample, or save the mask on the image's grid, or set "
                       "data.align=ignore where the headers are wrong");
    else
        (void)snprintf(fix, sizeof fix, "carry the mask over, such as 'gdalwarp -r near -t_srs %s'",
                       *system ? system : "SYSTEM");
    wf_dataset_problem(ds, e,
                       "mask '%s' lies elsewhere than its image '%s': the mask is %s; the image is "
                       "%s: %s",
                       e->sample.mask, e->sample.image, of_mask, of_image, fix);
}

/* Does the map carry a corner of the image out of the mask? */
static bool leaves(const struct wf_align *a, const int64_t image[3])
{
    for (int corner = 0; corner < 8; corner++) {
        double from[3], to[3];
        for (int i = 0; i < 3; i++)
            from[i] = corner >> i & 1 ? (double)(image[i] - 1) : 0;
        wf_raster_grid_move(a->map, from, to);
        for (int i = 0; i < 3; i++)
            if (floor(to[i] + 0.5) < 0 || floor(to[i] + 0.5) >= (double)a->extent[i])
                return true;
    }
    return false;
}

/* A system without a number in EPSG's list may be the other one, written out: where all else agrees, it is
 * taken for it. */
static bool may_be_same(struct wf_dataset *ds, const struct wf_raster_grid *a,
                        const struct wf_raster_grid *b, const char *path)
{
    char x[32], y[32];
    wf_raster_grid_system(a, x, sizeof x);
    wf_raster_grid_system(b, y, sizeof y);
    if (*x && *y)
        return false;
    if (!ds->noted_system)
        wf_dataset_note(ds,
                        "'%s' and its image name different coordinate systems, one of them without "
                        "a number, but the same place: used as they are",
                        path);
    ds->noted_system = true;
    return true;
}

bool wf_align_look(struct wf_dataset *ds, struct wf_entry *e, const struct wf_raster_info *image,
                   const struct wf_raster_info *mask)
{
    struct wf_raster_grid of_image, of_mask;
    struct wf_align a;
    int64_t extent[3];
    wf_raster_grid_of(image, &of_image);
    wf_raster_grid_of(mask, &of_mask);
    extent_of(image, extent);
    extent_of(mask, a.extent);
    const bool same_size = memcmp(extent, a.extent, sizeof extent) == 0;
    if (ds->align == WF_ALIGN_IGNORE)
        return same_size;
    if (!wf_raster_grid_compares(&of_image, &of_mask)) {
        if (same_size && !ds->noted_place && of_image.kind != of_mask.kind) {
            ds->noted_place = true;
            wf_dataset_note(ds, "'%s' says where it lies, '%s' does not: used as they are",
                            of_image.kind ? e->sample.image : e->sample.mask,
                            of_image.kind ? e->sample.mask : e->sample.image);
        }
        return same_size;
    }
    wf_raster_grid_map(&of_image, &of_mask, a.map);
    const bool same_place = same_size && wf_raster_grid_shift(a.map, extent) <= near_enough;
    if (!wf_raster_grid_same_system(&of_image, &of_mask)) {
        if (same_place && may_be_same(ds, &of_image, &of_mask, e->sample.mask))
            return true;
        refuse_place(ds, e, &of_image, &of_mask, false);
        return false;
    }
    if (same_place)
        return true;
    if (ds->align == WF_ALIGN_REFUSE) {
        refuse_place(ds, e, &of_image, &of_mask, true);
        return false;
    }
    struct wf_align *const keep = wf_arena_array(&ds->arena, 1, struct wf_align);
    *keep = a;
    e->align = keep;
    ds->resampled++;
    ds->info.has_void = ds->info.has_void || leaves(&a, extent);
    return true;
}

void wf_align_check_channel(struct wf_dataset *ds, struct wf_entry *e,
                            const struct wf_raster_info *first, const struct wf_raster_info *other,
                            const char *path)
{
    struct wf_raster_grid a, b;
    double map[3][4];
    int64_t extent[3];
    wf_raster_grid_of(first, &a);
    wf_raster_grid_of(other, &b);
    if (ds->align == WF_ALIGN_IGNORE || !wf_raster_grid_compares(&a, &b))
        return;
    extent_of(first, extent);
    wf_raster_grid_map(&a, &b, map);
    if (wf_raster_grid_shift(map, extent) <= near_enough &&
        (wf_raster_grid_same_system(&a, &b) || may_be_same(ds, &a, &b, path)))
        return;
    char text[2][200];
    wf_raster_grid_text(&a, text[0], sizeof text[0]);
    wf_raster_grid_text(&b, text[1], sizeof text[1]);
    wf_dataset_problem(
        ds, e,
        "'%s' lies elsewhere than '%s', of which it is a channel: it is %s, not %s: "
        "save both on one grid, or set data.align=ignore where the headers are wrong",
        path, e->files[0], text[1], text[0]);
}

/* --- reading --- */

/* The box of the mask that a window of the image needs; empty: nothing of it. */
static struct wf_region reads(const struct wf_align *a, const struct wf_region *window)
{
    static const int axes[3] = { WF_W, WF_H, WF_D };
    double low[3] = { INFINITY, INFINITY, INFINITY }, high[3] = { -INFINITY, -INFINITY, -INFINITY };
    for (int corner = 0; corner < 8; corner++) {
        double from[3], to[3];
        for (int i = 0; i < 3; i++)
            from[i] = (double)(corner >> i & 1 ? window->hi[axes[i]] - 1 : window->lo[axes[i]]);
        wf_raster_grid_move(a->map, from, to);
        for (int i = 0; i < 3; i++) {
            low[i] = fmin(low[i], to[i]);
            high[i] = fmax(high[i], to[i]);
        }
    }
    struct wf_region box = { .hi = { [WF_N] = 1, [WF_C] = 1 } };
    for (int i = 0; i < 3; i++) {
        const double last = (double)a->extent[i];
        /* A pixel more on each side: rounding inside may fall to either. */
        box.lo[axes[i]] = (int64_t)fmin(fmax(floor(low[i] - 0.5), 0), last);
        box.hi[axes[i]] = (int64_t)fmin(fmax(floor(high[i] + 1.5) + 1, 0), last);
    }
    return box;
}

struct job {
    const struct wf_align *align;
    struct wf_raster *mask;
    struct wf_region window; /* all of it: where pixels of `dst` lie */
    int channels;
    int32_t *dst;
};

static void pick(const struct job *j, const struct wf_region *part, const struct wf_region *box,
                 const int32_t *from)
{
    const int64_t wide = wf_region_extent(j->window, WF_W),
                  high = wf_region_extent(j->window, WF_H);
    for (int64_t d = part->lo[WF_D]; d < part->hi[WF_D]; d++)
        for (int64_t h = part->lo[WF_H]; h < part->hi[WF_H]; h++)
            for (int64_t w = part->lo[WF_W]; w < part->hi[WF_W]; w++) {
                const double at[3] = { (double)w, (double)h, (double)d };
                double to[3];
                wf_raster_grid_move(j->align->map, at, to);
                const int64_t x = (int64_t)floor(to[0] + 0.5), y = (int64_t)floor(to[1] + 0.5),
                              z = (int64_t)floor(to[2] + 0.5);
                const bool inside = x >= box->lo[WF_W] && x < box->hi[WF_W] && y >= box->lo[WF_H] &&
                                    y < box->hi[WF_H] && z >= box->lo[WF_D] && z < box->hi[WF_D];
                const int64_t source =
                    ((z - box->lo[WF_D]) * wf_region_extent(*box, WF_H) + y - box->lo[WF_H]) *
                        wf_region_extent(*box, WF_W) +
                    x - box->lo[WF_W];
                int32_t *const dst =
                    j->dst + (((d - j->window.lo[WF_D]) * high + h - j->window.lo[WF_H]) * wide +
                              w - j->window.lo[WF_W]) *
                                 j->channels;
                for (int c = 0; c < j->channels; c++)
                    dst[c] = inside ? from[source * j->channels + c] : WF_LABEL_VOID;
            }
}

/* A window whose box is large, because the mask is finer or turned, is read in halves. */
static bool read_part(const struct job *j, struct wf_region part, struct wf_err *err)
{
    const struct wf_region box = reads(j->align, &part);
    const int64_t count = wf_window_pixels(&box);
    if (count > WF_DATA_PIECE && wf_window_pixels(&part) > 1) {
        int axis = WF_D;
        for (int a = WF_H; a <= WF_W; a++)
            if (wf_region_extent(part, (enum wf_axis)a) >
                wf_region_extent(part, (enum wf_axis)axis))
                axis = a;
        struct wf_region half = part;
        half.hi[axis] = part.lo[axis] =
            part.lo[axis] + wf_region_extent(part, (enum wf_axis)axis) / 2;
        return read_part(j, half, err) && read_part(j, part, err);
    }
    int32_t *const from = malloc((size_t)(count * j->channels + 1) * sizeof *from);
    if (!from)
        return wf_err_set(err, WF_ERR_FIT, "no memory for a window of %" PRId64 " pixels", count);
    const bool ok =
        count == 0 || wf_raster_read_window(j->mask, &box, 0, j->channels, WF_I32, from, err);
    if (ok)
        pick(j, &part, &box, from);
    free(from);
    return ok;
}

bool wf_align_read(const struct wf_align *a, struct wf_raster *mask, const struct wf_region *window,
                   int channels, int32_t *dst, struct wf_err *err)
{
    const struct job j = {
        .align = a, .mask = mask, .window = *window, .channels = channels, .dst = dst
    };
    return read_part(&j, *window, err);
}
