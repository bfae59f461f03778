#include "report/grid.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "report/page.h"

enum {
    PANEL = 340,   /* width of a panel */
    GAP = 36,      /* between panels, and around them */
    HEAD = 92,     /* above the panels */
    FOOT = 64,     /* below: the scale */
    LABELLED = 64, /* parts of a slice: up to here they carry text */
    SLICE_GAP = 8,
};

/* From light to dark; one hue for each kind of figure. */
static const unsigned char hues[][2][3] = {
    { { 226, 238, 249 }, { 8, 81, 156 } },
    { { 229, 245, 224 }, { 0, 109, 44 } },
    { { 254, 236, 217 }, { 166, 54, 3 } },
};

struct scale {
    double least, median, most;
    int hue;
};

struct drawing {
    struct wf_page page;
    const struct wf_grid *grid;
    int columns, rows;       /* of slices in a panel */
    double slice_w, slice_h; /* of a slice */
    double panel_h;
};

static int places(const struct wf_grid *g)
{
    return g->parts[0] * g->parts[1] * g->parts[2];
}

/* The most of the ranks that have the place. */
static double value_at(const struct wf_grid *g, const struct wf_grid_panel *panel, int place)
{
    double value = panel->values[place];
    for (int c = 1; c < g->copies; c++)
        value = fmax(value, panel->values[c * places(g) + place]);
    return value;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct scale scale_of(struct wf_arena *arena, const struct wf_grid *g, int panel)
{
    const int n = places(g);
    double *const sorted = wf_arena_array(arena, n, double);
    for (int i = 0; i < n; i++)
        sorted[i] = value_at(g, &g->panels[panel], i);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return (struct scale){ sorted[0], sorted[n / 2], sorted[n - 1],
                           panel % (int)(sizeof hues / sizeof *hues) };
}

/* 0 for the least, 1 for the most; in between where all are alike. */
static double on_scale(const struct scale *s, double value)
{
    return s->most > s->least ? (value - s->least) / (s->most - s->least) : 0.4;
}

static void put_colour(struct wf_page *p, const struct scale *s, double at)
{
    int rgb[3];
    for (int i = 0; i < 3; i++)
        rgb[i] = (int)lround(hues[s->hue][0][i] + at * (hues[s->hue][1][i] - hues[s->hue][0][i]));
    wf_page_printf(p, "#%02x%02x%02x", (unsigned)rgb[0], (unsigned)rgb[1], (unsigned)rgb[2]);
}

/* --- layout --- */

static double extent(const struct wf_grid *g, int axis)
{
    return (double)(g->cut[axis][g->parts[axis]] - g->cut[axis][0]);
}

static void lay_out(struct drawing *d)
{
    const struct wf_grid *const g = d->grid;
    d->columns = (int)ceil(sqrt(g->parts[0]));
    d->rows = (g->parts[0] + d->columns - 1) / d->columns;
    d->slice_w = ((double)PANEL - SLICE_GAP * (d->columns - 1)) / d->columns;
    /* To scale, but neither a line nor a tower. */
    const double ratio = fmin(1.6, fmax(0.12, extent(g, 1) / fmax(1, extent(g, 2))));
    d->slice_h = d->slice_w * ratio;
    d->panel_h = d->rows * d->slice_h + SLICE_GAP * (d->rows - 1);
}

static double point(const struct wf_grid *g, int axis, int index, double length)
{
    return length * (double)(g->cut[axis][index] - g->cut[axis][0]) / fmax(1, extent(g, axis));
}

/* --- drawing --- */

static void put_text(struct wf_page *p, double x, double y, const char *class, const char *text)
{
    wf_page_printf(p, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    wf_page_text(p, text);
    wf_page_raw(p, "</text>");
}

static void put_part(struct drawing *d, const struct wf_grid_panel *panel, const struct scale *s,
                     double x0, double y0, const int at[3])
{
    const struct wf_grid *const g = d->grid;
    struct wf_page *const p = &d->page;
    const int place = (at[0] * g->parts[1] + at[1]) * g->parts[2] + at[2];
    const double x = x0 + point(g, 2, at[2], d->slice_w), y = y0 + point(g, 1, at[1], d->slice_h);
    const double w = x0 + point(g, 2, at[2] + 1, d->slice_w) - x;
    const double h = y0 + point(g, 1, at[1] + 1, d->slice_h) - y;
    const double value = value_at(g, panel, place), on = on_scale(s, value);
    const char *const text = panel->text(&p->arena, value);
    wf_page_printf(
        p, "<rect class=\"part\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"", x,
        y, w, h);
    put_colour(p, s, on);
    wf_page_printf(p,
                   "\"><title>rank %d (%d,%d,%d): %s, rows %" PRId64 " to %" PRId64
                   ", columns %" PRId64 " to %" PRId64 "</title></rect>\n",
                   place, at[0], at[1], at[2], text, g->cut[1][at[1]], g->cut[1][at[1] + 1],
                   g->cut[2][at[2]], g->cut[2][at[2] + 1]);
    if (g->parts[1] * g->parts[2] > LABELLED || w < 18 || h < 12)
        return;
    const char *const shade = on > 0.55 ? "light" : "dark";
    const bool both = w >= 52 && h >= 30;
    put_text(p, x + w / 2, y + h / 2 + (both ? -3 : 4),
             wf_arena_printf(&p->arena, "mid bold %s", shade),
             wf_arena_printf(&p->arena, "%d", place));
    if (both)
        put_text(p, x + w / 2, y + h / 2 + 12, wf_arena_printf(&p->arena, "mid %s", shade), text);
}

/* The colours from least to most, and what they stand for. */
static void put_scale(struct drawing *d, const struct wf_grid_panel *panel, const struct scale *s,
                      double x, double y)
{
    struct wf_page *const p = &d->page;
    enum { STEPS = 40 };
    for (int i = 0; i < STEPS; i++) {
        wf_page_printf(p,
                       "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"10\" "
                       "fill=\"",
                       x + (double)i * PANEL / STEPS, y, (double)PANEL / STEPS + 0.3);
        put_colour(p, s, s->most > s->least ? (double)i / (STEPS - 1) : 0.4);
        wf_page_raw(p, "\"/>");
    }
    put_text(p, x, y + 25, "start", panel->text(&p->arena, s->least));
    put_text(p, x + PANEL / 2.0, y + 25, "mid dim",
             wf_arena_printf(&p->arena, "median %s", panel->text(&p->arena, s->median)));
    put_text(p, x + PANEL, y + 25, "end", panel->text(&p->arena, s->most));
}

static void put_panel(struct drawing *d, int which)
{
    const struct wf_grid *const g = d->grid;
    const struct wf_grid_panel *const panel = &g->panels[which];
    const struct scale s = scale_of(&d->page.arena, g, which);
    const double x = GAP + which * (PANEL + GAP), y = HEAD;
    put_text(&d->page, x, y - 12, "start bold", panel->title);
    for (int slice = 0; slice < g->parts[0]; slice++) {
        const int row = slice / d->columns, column = slice % d->columns;
        const double x0 = x + column * (d->slice_w + SLICE_GAP);
        const double y0 = y + row * (d->slice_h + SLICE_GAP);
        for (int h = 0; h < g->parts[1]; h++)
            for (int w = 0; w < g->parts[2]; w++)
                put_part(d, panel, &s, x0, y0, (const int[]){ slice, h, w });
    }
    put_scale(d, panel, &s, x, y + d->panel_h + 16);
}

char *wf_grid_svg(struct wf_arena *arena, const struct wf_grid *g)
{
    struct drawing d = { .grid = g };
    struct wf_page *const p = &d.page;
    lay_out(&d);
    const double width = GAP + g->n_panels * (PANEL + GAP), height = HEAD + d.panel_h + FOOT;
    wf_page_printf(p,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                   "width=\"%.0f\" height=\"%.0f\">\n<style>"
                   "text{font:12px sans-serif;fill:#222}.part{stroke:#fff;stroke-width:%.2f}"
                   ".head{font-size:17px;font-weight:bold}.bold{font-weight:bold}.dim{fill:#666}"
                   ".mid{text-anchor:middle}.end{text-anchor:end}.light{fill:#fff}.dark{fill:#222}"
                   "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                   width, height, width, height, g->parts[1] * g->parts[2] > LABELLED ? 0.4 : 1.5);
    put_text(p, GAP, 32, "head", g->title);
    put_text(p, GAP, 54, "dim", g->subtitle);
    for (int i = 0; i < g->n_panels; i++)
        put_panel(&d, i);
    wf_page_raw(p, "</svg>\n");
    char *const text = wf_arena_copy(arena, p->out.data);
    wf_page_release(p);
    return text;
}
