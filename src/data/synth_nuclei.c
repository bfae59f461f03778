/*
 * Nuclei in stained tissue, as a brightfield microscope shows them: crowded blobs that touch, stain
 * that differs from cell to cell, uneven light, grain. A nucleus lives in a cell of a jittered
 * grid; whether it is there depends on a slowly changing density, so that there are clusters and
 * clearings.
 *
 * `tissue` are the same nuclei in several stains, for domain adaptation: what a nucleus is does not
 * change, but colour, contrast and the texture around it do.
 */
#include <math.h>
#include <string.h>

#include "data/synth.h"

enum { GRID = 24, REACH = 20, SIDE = 256 };

/* How tissue looks: light[c] * exp(-dye) under a microscope; where it glows, black plus the dye. */
struct stain {
    float light[3];
    float nuclear[3], ground[3]; /* of each dye, on red, green and blue */
    float strength;
    float texture; /* of the ground, coarser than its own */
    float grain;
    bool is_glowing;
};

enum { N_STAINS = 4 };
static const char *const stain_names[N_STAINS + 1] = { "source", "brown", "blue", "inverted",
                                                       NULL };
static const struct stain stains[N_STAINS] = {
    /* haematoxylin and eosin: purple in pink */
    { { 243, 243, 243 }, { 0.65f, 0.72f, 0.30f }, { 0.09f, 0.62f, 0.22f }, 1.25f, 0, 3.5f, false },
    /* a brown marker of nuclei, everything else pale blue */
    { { 238, 240, 236 }, { 0.30f, 0.62f, 0.95f }, { 0.50f, 0.36f, 0.16f }, 1.2f, 0.1f, 3, false },
    /* one blue dye for all: little contrast, no difference in hue, structure in the ground */
    { { 232, 238, 246 }, { 0.75f, 0.50f, 0.16f }, { 0.72f, 0.44f, 0.12f }, 0.85f, 0.3f, 5, false },
    /* fluorescence: nuclei glow on black, the ground a little */
    { { 8, 10, 14 }, { 0.10f, 0.42f, 0.85f }, { 0.06f, 0.24f, 0.10f }, 200, 0.15f, 6, true },
};

struct nucleus {
    float x, y, rx, ry, cos, sin; /* half axes and direction */
    float wave2, wave3, phase2, phase3;
    float stain;
};

/* Above 0 where there is no tissue: from two scales, so that gaps have no lattice to be seen. */
static float open_at(float wide, float fine)
{
    return 0.68f * wide + 0.42f * fine - 0.36f;
}

static void openness(uint64_t key, const int64_t at[2], int64_t count, float out[])
{
    float fine[SIDE];
    wf_synth_smooth_row(key + 3, at[0], at[1], 140, count, out);
    wf_synth_smooth_row(key + 8, at[0], at[1], 47, count, fine);
    for (int64_t i = 0; i < count; i++)
        out[i] = open_at(out[i], fine[i]);
}

static bool nucleus_at(uint64_t key, int64_t i, int64_t j, struct nucleus *n)
{
    const float cx = ((float)i + 0.5f) * GRID, cy = ((float)j + 0.5f) * GRID;
    const float crowd = 0.5f + 0.5f * wf_synth_smooth(key + 1, cx, cy, 210);
    const float open =
        open_at(wf_synth_smooth(key + 3, cx, cy, 140), wf_synth_smooth(key + 8, cx, cy, 47));
    const float chance = open > 0 ? 0.05f : 0.1f + 1.05f * crowd * crowd;
    if (wf_synth_unit(key, i, j, 10) > chance)
        return false;
    n->x = cx + (wf_synth_unit(key, i, j, 11) - 0.5f) * 0.9f * GRID;
    n->y = cy + (wf_synth_unit(key, i, j, 12) - 0.5f) * 0.9f * GRID;
    const float size = 8 + 6 * wf_synth_unit(key, i, j, 13);
    const float slim = 0.65f + 0.35f * wf_synth_unit(key, i, j, 14);
    n->rx = size;
    n->ry = size * slim;
    const float turn = 3.14159265f * wf_synth_unit(key, i, j, 15);
    n->cos = cosf(turn);
    n->sin = sinf(turn);
    n->wave2 = 0.08f * wf_synth_unit(key, i, j, 16);
    n->wave3 = 0.10f * wf_synth_unit(key, i, j, 17);
    n->phase2 = 2 * wf_synth_unit(key, i, j, 18) - 1;
    n->phase3 = 2 * wf_synth_unit(key, i, j, 19) - 1;
    n->stain = 0.55f + 0.5f * wf_synth_unit(key, i, j, 20);
    return true;
}

/* How deep inside, in pixels; negative outside. Waves on the contour without computing an angle:
 * cosines of twice and three times it are polynomials of the direction. */
static float depth_in(const struct nucleus *n, float x, float y)
{
    const float dx = x - n->x, dy = y - n->y;
    const float u = (dx * n->cos + dy * n->sin) / n->rx, v = (dy * n->cos - dx * n->sin) / n->ry;
    const float rho = sqrtf(u * u + v * v);
    if (rho < 1e-3f)
        return n->ry;
    const float c = u / rho, s = v / rho;
    const float two = (2 * c * c - 1) * n->phase2 + 2 * s * c * (1 - fabsf(n->phase2));
    const float three =
        (4 * c * c * c - 3 * c) * n->phase3 + (3 * s - 4 * s * s * s) * (1 - fabsf(n->phase3));
    return (1 + n->wave2 * two + n->wave3 * three - rho) * 0.5f * (n->rx + n->ry);
}

/* Stain of the nuclei over the window, and the mask. */
static void draw_nuclei(uint64_t key, const struct wf_synth_window *w, float stain[])
{
    const struct wf_region *const r = &w->at;
    const int64_t wide = wf_region_extent(*r, WF_W);
    for (int64_t j = wf_floor_div(r->lo[WF_H] - REACH, GRID) - 1;
         j <= wf_floor_div(r->hi[WF_H] + REACH, GRID); j++)
        for (int64_t i = wf_floor_div(r->lo[WF_W] - REACH, GRID) - 1;
             i <= wf_floor_div(r->hi[WF_W] + REACH, GRID); i++) {
            struct nucleus n;
            if (!nucleus_at(key, i, j, &n))
                continue;
            const int64_t x0 = wf_max((int64_t)floorf(n.x) - REACH, r->lo[WF_W]);
            const int64_t x1 = wf_min((int64_t)floorf(n.x) + REACH, r->hi[WF_W]);
            const int64_t y0 = wf_max((int64_t)floorf(n.y) - REACH, r->lo[WF_H]);
            const int64_t y1 = wf_min((int64_t)floorf(n.y) + REACH, r->hi[WF_H]);
            for (int64_t y = y0; y < y1; y++)
                for (int64_t x = x0; x < x1; x++) {
                    const float deep = depth_in(&n, (float)x, (float)y);
                    const int64_t row = y - r->lo[WF_H], col = x - r->lo[WF_W];
                    /* The lens blurs the halo over three pixels; the halo itself is a little darker. */
                    const float cover = 0.5f + deep / 3;
                    if (cover <= 0)
                        continue;
                    const float halo = deep < 3 ? 1.12f : 1.0f;
                    const float own = (cover < 1 ? cover : 1) * n.stain * halo;
                    float *const at = &stain[row * wide + col];
                    *at = own > *at ? own : *at;
                    if (deep >= 0)
                        w->mask[row * w->pitch + col] = 1;
                }
        }
}

/* What a row of pixels lies in: all of it changes smoothly. */
struct row {
    float light[SIDE], tissue[SIDE], chromatin[SIDE];
};

static void add_smooth(float out[], float amount, uint64_t key, const int64_t at[2], float scale,
                       int64_t count)
{
    float part[SIDE];
    wf_synth_smooth_row(key, at[0], at[1], scale, count, part);
    for (int64_t i = 0; i < count; i++)
        out[i] += amount * part[i];
}

static void look_up(const struct wf_synth_image *image, int64_t x, int64_t y, int64_t count,
                    struct row *r)
{
    const uint64_t key = image->key;
    const int64_t at[2] = { x, y };
    float open[SIDE] = { 0 };
    const float v = 2 * (float)y / (float)image->extent[WF_H] - 1;
    for (int64_t i = 0; i < count; i++) {
        const float u = 2 * (float)(x + i) / (float)image->extent[WF_W] - 1;
        r->light[i] = 0.97f - 0.14f * (u * u + v * v);
        r->tissue[i] = 0.34f;
        r->chromatin[i] = 1;
    }
    add_smooth(r->light, 0.12f, key + 2, at, 420, count);
    add_smooth(r->tissue, 0.12f, key + 4, at, 37, count);
    add_smooth(r->tissue, 0.08f, key + 5, at, 9, count);
    add_smooth(r->chromatin, 0.22f, key + 6, at, 3.5f, count);
    if (stains[image->domain].texture > 0)
        add_smooth(r->tissue, stains[image->domain].texture, key + 9, at, 15, count);
    openness(key, at, count, open);
    for (int64_t i = 0; i < count; i++)
        if (open[i] > 0)
            r->tissue[i] *= open[i] > 0.12f ? 0.1f : 1 - open[i] * 7.5f;
}

static void color_row(const struct wf_synth_image *image, int64_t x, int64_t y, int64_t count,
                      const float stain[], uint8_t *rgb)
{
    const struct stain *const s = &stains[image->domain];
    struct row r;
    look_up(image, x, y, count, &r);
    for (int64_t i = 0; i < count; i++, rgb += 3) {
        const float grey = s->grain * wf_synth_grain(image->key + 7, x + i, y, 0);
        for (int c = 0; c < 3; c++) {
            const float dye = s->nuclear[c] * stain[i] * r.chromatin[i] +
                              s->ground[c] * (r.tissue[i] + 0.25f * stain[i]);
            const float grain = grey + s->grain * wf_synth_grain(image->key + 7, x + i, y, 1 + c);
            const float shown = s->is_glowing ? s->light[c] + s->strength * r.light[i] * dye
                                              : s->light[c] * r.light[i] * expf(-s->strength * dye);
            rgb[c] = wf_synth_byte(shown + grain);
        }
    }
}

static void draw(const struct wf_synth_image *image, const struct wf_synth_window *w)
{
    float stain[SIDE * SIDE] = { 0 };
    const int64_t wide = wf_region_extent(w->at, WF_W), high = wf_region_extent(w->at, WF_H);
    WF_BUG_ON(wide > SIDE || high > SIDE, "a window of %d x %d", (int)high, (int)wide);
    for (int64_t row = 0; row < high; row++)
        memset(w->mask + row * w->pitch, 0, (size_t)wide);
    draw_nuclei(image->key, w, stain);
    for (int64_t row = 0; row < high; row++)
        color_row(image, w->at.lo[WF_W], w->at.lo[WF_H] + row, wide, stain + row * wide,
                  w->image + row * w->pitch * 3);
}

const struct wf_synth_kind wf_synth_nuclei = {
    .name = "nuclei",
    .what = "microscopy: crowded nuclei in stained tissue under uneven light",
    .dims = 2,
    .channels = 3,
    .size = { 1, 1024, 1024 },
    .count = 16,
    .classes = 2,
    .class_names = { "background", "nucleus" },
    .colors = { { 0, 0, 0 }, { 90, 200, 120 } },
    .draw = draw,
};

const struct wf_synth_kind wf_synth_tissue = {
    .name = "tissue",
    .what = "microscopy: the same kind of nuclei in several stains",
    .dims = 2,
    .channels = 3,
    .size = { 1, 256, 256 },
    .count = 64,
    .classes = 2,
    .class_names = { "background", "nucleus" },
    .colors = { { 0, 0, 0 }, { 90, 200, 120 } },
    .domains = stain_names,
    .draw = draw,
};
