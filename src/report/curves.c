#include "report/curves.h"

#include <math.h>

#include "report/svg.h"

/* The plot's box within the picture. */
static const double WIDTH = 900, HEIGHT = 540, LEFT = 90, RIGHT = 700, TOP = 76, BOTTOM = 476;
enum { TICKS = 10 };

static const char *const colours[] = { "#1b6ca8", "#d1495b", "#2e8b57", "#8d5fd3",
                                       "#d98c00", "#00868b", "#7a4a2b" };

/* From `from` to `to` in the picture stand the powers of two from lo to hi, of which every step-th is a tick. */
struct axis {
    double lo, hi, step, from, to;
};

static bool drawable(const struct wf_curve *k, size_t i)
{
    return k->x[i] > 0 && k->y[i] > 0 && isfinite(k->x[i]) && isfinite(k->y[i]);
}

static bool has_any(const struct wf_curve *k)
{
    size_t i = 0;
    while (i < k->n && !drawable(k, i))
        i++;
    return i < k->n;
}

static struct axis find_axis(const struct wf_curves *c, bool is_y)
{
    struct axis a = { .lo = INFINITY, .hi = -INFINITY };
    for (int k = 0; k < c->n_curves; k++)
        for (size_t i = 0; i < c->curves[k].n; i++)
            if (drawable(&c->curves[k], i)) {
                const double value = log2(is_y ? c->curves[k].y[i] : c->curves[k].x[i]);
                a.lo = fmin(a.lo, value);
                a.hi = fmax(a.hi, value);
            }
    a.lo = a.lo <= a.hi ? floor(a.lo) : 0; /* there may be nothing to draw */
    a.hi = fmax(ceil(a.hi), a.lo + 1);
    a.step = ceil((a.hi - a.lo) / (TICKS - 1));
    a.from = is_y ? BOTTOM : LEFT;
    a.to = is_y ? TOP : RIGHT;
    return a;
}

static double place(const struct axis *a, double value)
{
    return a->from + (a->to - a->from) * (log2(value) - a->lo) / (a->hi - a->lo);
}

static void put_axes(struct wf_svg *s, const struct wf_curves *c, const struct axis *x,
                     const struct axis *y)
{
    const int rows = (int)((y->hi - y->lo) / y->step), columns = (int)((x->hi - x->lo) / x->step);
    for (int i = 0; i <= rows; i++) {
        const double t = y->lo + i * y->step;
        const double at = place(y, exp2(t));
        wf_svg_printf(s, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, at, RIGHT);
        wf_svg_text(s, LEFT - 8, at + 4, "end dim", c->y_text(&s->arena, exp2(t)));
    }
    for (int i = 0; i <= columns; i++) {
        const double t = x->lo + i * x->step;
        const double at = place(x, exp2(t));
        wf_svg_printf(s, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", at, TOP, BOTTOM);
        wf_svg_text(s, at, BOTTOM + 18, "mid dim", c->x_text(&s->arena, exp2(t)));
    }
    wf_svg_text(s, (LEFT + RIGHT) / 2, BOTTOM + 42, "mid", c->x_name);
    wf_svg_text(s, LEFT, TOP - 10, "", c->y_name);
}

static void put_mark(struct wf_svg *s, const struct wf_curve *k, const char *colour, double x,
                     double y)
{
    wf_svg_printf(s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" stroke=\"%s\" fill=\"%s\">", x, y,
                  k->marks_only ? 6 : 3, colour, k->marks_only ? "none" : colour);
}

/* Above the point, or below; beside a line that falls, which would cross it. */
static void put_label(struct wf_svg *s, const struct wf_curve *k, size_t i, double x, double y)
{
    const size_t left = i > 0 ? i - 1 : i, right = i + 1 < k->n ? i + 1 : i;
    if (!k->marks_only && k->y[right] < k->y[left])
        wf_svg_text(s, x + 8, y + 3, "", k->labels[i]);
    else
        wf_svg_text(s, x, y, "mid", k->labels[i]);
}

/* Of labelled points above each other the highest has its label above, the others below. */
static bool is_highest(const struct wf_curves *c, const struct wf_curve *k, size_t i)
{
    for (const struct wf_curve *other = c->curves; other < c->curves + c->n_curves; other++)
        for (size_t j = 0; other != k && other->labels && j < other->n; j++)
            if (other->x[j] == k->x[i] && drawable(other, j) &&
                (other->y[j] > k->y[i] || (other->y[j] == k->y[i] && other < k)))
                return false;
    return true;
}

static void put_curve(struct wf_svg *s, const struct wf_curves *c, const struct wf_curve *k,
                      const char *colour, const struct axis axes[2])
{
    bool pen = false;
    for (size_t i = 0; i < k->n && !k->marks_only; i++) {
        if (drawable(k, i))
            wf_svg_printf(s, "%c%.1f %.1f", pen ? 'L' : 'M', place(&axes[0], k->x[i]),
                          place(&axes[1], k->y[i]));
        pen = drawable(k, i);
    }
    wf_svg_printf(s, "\"/>\n");
    for (size_t i = 0; i < k->n && !k->guide; i++) {
        if (!drawable(k, i))
            continue;
        const double x = place(&axes[0], k->x[i]), y = place(&axes[1], k->y[i]);
        put_mark(s, k, colour, x, y);
        wf_svg_printf(s, "<title>%s: %s, %s</title></circle>\n", k->name,
                      c->x_text(&s->arena, k->x[i]), c->y_text(&s->arena, k->y[i]));
        if (k->labels)
            put_label(s, k, i, x, is_highest(c, k, i) ? y - 9 : y + 18);
    }
}

static void put_key(struct wf_svg *s, const struct wf_curve *k, const char *colour, double y)
{
    wf_svg_printf(s, "M%.1f %.1fh%d\"/>", RIGHT + 22, y, k->marks_only ? 0 : 24);
    if (!k->guide) {
        put_mark(s, k, colour, RIGHT + 34, y);
        wf_svg_printf(s, "</circle>");
    }
    wf_svg_text(s, RIGHT + 54, y + 4, "", k->name);
}

char *wf_curves_svg(struct wf_arena *arena, const struct wf_curves *c)
{
    struct wf_svg svg = { 0 }, *const s = &svg;
    const struct axis axes[] = { find_axis(c, false), find_axis(c, true) };
    wf_svg_text(s, 24, 28, "head", c->title);
    wf_svg_text(s, 24, 48, "dim", c->subtitle);
    put_axes(s, c, &axes[0], &axes[1]);
    int which = -1, keys = 0;
    for (int i = 0; i < c->n_curves; i++) {
        const struct wf_curve *const k = &c->curves[i];
        which += !k->marks_only || which < 0;
        if (!has_any(k))
            continue;
        const char *const colour =
            k->guide ? "#999" : colours[(size_t)which % (sizeof colours / sizeof *colours)];
        const char *const line = wf_arena_printf(
            &s->arena, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s d=\"", colour,
            k->guide ? " stroke-dasharray=\"6 4\"" : "");
        wf_svg_printf(s, "%s", line);
        put_curve(s, c, k, colour, axes);
        wf_svg_printf(s, "%s", line);
        put_key(s, k, colour, TOP + 10 + 22 * keys++);
    }
    return wf_svg_finish(s, arena, WIDTH, HEIGHT);
}
