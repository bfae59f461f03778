#include "report/grid.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include "base/median.h"
#include "report/svg.h"

enum {
    PANEL = 340,   /* width of a panel */
    GAP = 36,      /* between panels, and around them */
    HEAD = 92,     /* above the panels */
    FOOT = 64,     /* below: the scale */
    LABELLED = 64, /* parts of a slice: up to here they carry text */
    SLICE_GAP = 8,
};

/* One for each kind of figure; the least is faint, the most is full. Where all are within a part ALIKE of the most, none
 * stands out. */
static const char *const colours[] = { "#08519c", "#006d2c", "#a63603" };
static const double FAINT = 0.12, ALIKE = 0.02, BETWEEN = 0.4;

struct scale {
    double least, median, most;
    const char *colour;
};

static bool is_flat(const struct scale *s)
{
    return !(s->most - s->least > ALIKE * s->most);
}

struct drawing {
    struct wf_svg svg;
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

static struct scale scale_of(struct wf_arena *arena, const struct wf_grid *g, int panel)
{
    const int n = places(g);
    double *const sorted = wf_arena_array(arena, n, double);
    for (int i = 0; i < n; i++)
        sorted[i] = value_at(g, &g->panels[panel], i);
    const double median = wf_median(sorted, n);
    return (struct scale){ sorted[0], median, sorted[n - 1],
                           colours[(size_t)panel % (sizeof colours / sizeof *colours)] };
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

static void put_part(struct drawing *d, const struct wf_grid_panel *panel,
                     const struct scale *scale, double x0, double y0, const int at[3])
{
    const struct wf_grid *const g = d->grid;
    struct wf_svg *const s = &d->svg;
    const int place = (at[0] * g->parts[1] + at[1]) * g->parts[2] + at[2];
    const double x = x0 + point(g, 2, at[2], d->slice_w), y = y0 + point(g, 1, at[1], d->slice_h);
    const double w = x0 + point(g, 2, at[2] + 1, d->slice_w) - x;
    const double h = y0 + point(g, 1, at[1] + 1, d->slice_h) - y;
    const double value = value_at(g, panel, place);
    const double on =
        is_flat(scale) ? BETWEEN : (value - scale->least) / (scale->most - scale->least);
    const char *const text = panel->text(&s->arena, value);
    const char *const title = wf_arena_printf(
        &s->arena,
        "rank %d (%d,%d,%d): %s, rows %" PRId64 " to %" PRId64 ", columns %" PRId64 " to %" PRId64,
        place, at[0], at[1], at[2], text, g->cut[1][at[1]], g->cut[1][at[1] + 1], g->cut[2][at[2]],
        g->cut[2][at[2] + 1]);
    wf_svg_rect(s, (struct wf_box){ x, y, w, h },
                wf_arena_printf(&s->arena, "class=\"part\" fill=\"%s\" fill-opacity=\"%.3f\"",
                                scale->colour, FAINT + (1 - FAINT) * on),
                title);
    if (g->parts[1] * g->parts[2] > LABELLED || w < 18 || h < 12)
        return;
    const bool both = w >= 52 && h >= 30;
    wf_svg_text(s, x + w / 2, y + h / 2 + (both ? -3 : 4),
                on > 0.55 ? "mid bold light" : "mid bold dark",
                wf_arena_printf(&s->arena, "%d", place));
    if (both)
        wf_svg_text(s, x + w / 2, y + h / 2 + 12, on > 0.55 ? "mid light" : "mid dark", text);
}

/* The colours from least to most, and what they stand for. */
static void put_scale(struct wf_svg *s, const struct wf_grid_panel *panel,
                      const struct scale *scale, double x, double y)
{
    const bool flat = is_flat(scale);
    wf_svg_printf(s,
                  "<linearGradient id=\"%s\"><stop stop-color=\"%s\" stop-opacity=\"%.2f\"/><stop "
                  "offset=\"1\" stop-color=\"%s\" stop-opacity=\"%.2f\"/></linearGradient>\n",
                  scale->colour + 1, scale->colour, flat ? 0.47 : FAINT, scale->colour,
                  flat ? 0.47 : 1);
    wf_svg_rect(s, (struct wf_box){ x, y, PANEL, 10 },
                wf_arena_printf(&s->arena, "fill=\"url(%s)\"", scale->colour), NULL);
    wf_svg_text(s, x, y + 25, "", panel->text(&s->arena, scale->least));
    wf_svg_text(s, x + PANEL / 2.0, y + 25, "mid dim",
                wf_arena_printf(&s->arena, "median %s", panel->text(&s->arena, scale->median)));
    wf_svg_text(s, x + PANEL, y + 25, "end", panel->text(&s->arena, scale->most));
}

static void put_panel(struct drawing *d, int which)
{
    const struct wf_grid *const g = d->grid;
    const struct wf_grid_panel *const panel = &g->panels[which];
    const struct scale scale = scale_of(&d->svg.arena, g, which);
    const double x = GAP + which * (PANEL + GAP), y = HEAD;
    wf_svg_text(&d->svg, x, y - 12, "bold", panel->title);
    for (int place = 0; place < places(g); place++) {
        const int slice = place / (g->parts[1] * g->parts[2]), row = slice / d->columns;
        put_part(d, panel, &scale, x + slice % d->columns * (d->slice_w + SLICE_GAP),
                 y + row * (d->slice_h + SLICE_GAP),
                 (const int[]){ slice, place / g->parts[2] % g->parts[1], place % g->parts[2] });
    }
    put_scale(&d->svg, panel, &scale, x, y + d->panel_h + 16);
}

char *wf_grid_svg(struct wf_arena *arena, const struct wf_grid *g)
{
    struct drawing d = { .grid = g };
    lay_out(&d);
    wf_svg_printf(&d.svg, "<style>.part{stroke:#fff;stroke-width:%.2f}</style>\n",
                  g->parts[1] * g->parts[2] > LABELLED ? 0.4 : 1.5);
    wf_svg_text(&d.svg, GAP, 32, "head", g->title);
    wf_svg_text(&d.svg, GAP, 54, "dim", g->subtitle);
    for (int i = 0; i < g->n_panels; i++)
        put_panel(&d, i);
    return wf_svg_finish(&d.svg, arena, GAP + g->n_panels * (PANEL + GAP), HEAD + d.panel_h + FOOT);
}
