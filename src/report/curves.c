#include "report/curves.h"

#include <math.h>

#include "report/page.h"

/* The plot's box within the picture. */
static const double WIDTH = 900, HEIGHT = 540, LEFT = 90, RIGHT = 700, TOP = 76, BOTTOM = 476;
enum { TICKS = 16 };

static const char *const colours[] = { "#1b6ca8", "#d1495b", "#2e8b57", "#8d5fd3",
                                       "#d98c00", "#00868b", "#7a4a2b" };

struct axis {
    double lo, hi; /* logarithms where is_log */
    bool is_log;
    double ticks[TICKS];
    int n_ticks;
};

static double place(const struct axis *a, double value)
{
    return ((a->is_log ? log2(value) : value) - a->lo) / (a->hi - a->lo);
}

/* Powers of two (every n-th, so that there are not too many), or round numbers. */
static void find_ticks(struct axis *a)
{
    if (a->is_log) {
        a->lo = floor(a->lo);
        a->hi = fmax(ceil(a->hi), a->lo + 1);
        const double step = ceil((a->hi - a->lo) / 9);
        for (double t = a->lo; t <= a->hi + 1e-9 && a->n_ticks < TICKS; t += step)
            a->ticks[a->n_ticks++] = exp2(t);
        return;
    }
    a->lo = 0;
    const double rough = a->hi / 6, power = pow(10, floor(log10(rough))), lead = rough / power;
    const double step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    a->hi = ceil(a->hi / step) * step;
    for (double t = 0; t <= a->hi + step * 1e-6 && a->n_ticks < TICKS; t += step)
        a->ticks[a->n_ticks++] = t;
}

static bool drawable(const struct wf_curves *c, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!c->log_x || x > 0) && (!c->log_y || y > 0);
}

static void find_axes(const struct wf_curves *c, struct axis *x, struct axis *y)
{
    *x = (struct axis){ .lo = INFINITY, .hi = -INFINITY, .is_log = c->log_x };
    *y = (struct axis){ .lo = INFINITY, .hi = -INFINITY, .is_log = c->log_y };
    for (int k = 0; k < c->n_curves; k++)
        for (size_t i = 0; i < c->curves[k].n; i++) {
            const double at = c->curves[k].x[i], value = c->curves[k].y[i];
            if (!drawable(c, at, value))
                continue;
            x->lo = fmin(x->lo, c->log_x ? log2(at) : at);
            x->hi = fmax(x->hi, c->log_x ? log2(at) : at);
            y->lo = fmin(y->lo, c->log_y ? log2(value) : value);
            y->hi = fmax(y->hi, c->log_y ? log2(value) : value);
        }
    if (!(x->lo <= x->hi)) /* nothing to draw */
        x->lo = y->lo = 0, x->hi = y->hi = 1;
    find_ticks(x);
    find_ticks(y);
}

static double at_x(const struct axis *a, double value)
{
    return LEFT + (RIGHT - LEFT) * place(a, value);
}

static double at_y(const struct axis *a, double value)
{
    return BOTTOM - (BOTTOM - TOP) * place(a, value);
}

static void put_text(struct wf_page *p, double x, double y, const char *class, const char *text)
{
    wf_page_printf(p, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    wf_page_text(p, text);
    wf_page_raw(p, "</text>\n");
}

static const char *plain(struct wf_arena *arena, double value)
{
    return wf_arena_printf(arena, "%.6g", value);
}

static void put_axes(struct wf_page *p, const struct wf_curves *c, const struct axis *x,
                     const struct axis *y)
{
    for (int i = 0; i < y->n_ticks; i++) {
        const double at = at_y(y, y->ticks[i]);
        wf_page_printf(p, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, at, RIGHT);
        put_text(p, LEFT - 8, at + 4, "end dim",
                 (c->y_text ? c->y_text : plain)(&p->arena, y->ticks[i]));
    }
    for (int i = 0; i < x->n_ticks; i++) {
        const double at = at_x(x, x->ticks[i]);
        wf_page_printf(p, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>", at, TOP, BOTTOM);
        put_text(p, at, BOTTOM + 18, "mid dim",
                 (c->x_text ? c->x_text : plain)(&p->arena, x->ticks[i]));
    }
    put_text(p, (LEFT + RIGHT) / 2, BOTTOM + 42, "mid", c->x_name);
    put_text(p, LEFT, TOP - 10, "start", c->y_name);
    if (c->limit > 0 && place(y, c->limit) > 0 && place(y, c->limit) < 1) {
        wf_page_printf(p, "<path class=\"limit\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, at_y(y, c->limit),
                       RIGHT);
        put_text(p, LEFT + 6, at_y(y, c->limit) - 5, "start limit-name", c->limit_name);
    }
}

static void put_curve(struct wf_page *p, const struct wf_curves *c, int which, const char *colour,
                      const struct axis *x, const struct axis *y)
{
    const struct wf_curve *const k = &c->curves[which];
    bool pen = false;
    wf_page_printf(p, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" d=\"", colour);
    for (size_t i = 0; i < k->n && !k->marks_only; i++) {
        if (drawable(c, k->x[i], k->y[i]))
            wf_page_printf(p, "%c%.1f %.1f", pen ? 'L' : 'M', at_x(x, k->x[i]), at_y(y, k->y[i]));
        pen = drawable(c, k->x[i], k->y[i]);
    }
    wf_page_raw(p, "\"/>\n");
    for (size_t i = 0; i < k->n; i++) {
        if (!drawable(c, k->x[i], k->y[i]))
            continue;
        wf_page_printf(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" stroke=\"%s\" fill=\"%s\">",
                       at_x(x, k->x[i]), at_y(y, k->y[i]), k->marks_only ? "6" : "3", colour,
                       k->marks_only ? "none" : colour);
        wf_page_printf(p, "<title>%s: %s, %s</title></circle>", k->name,
                       (c->x_text ? c->x_text : plain)(&p->arena, k->x[i]),
                       (c->y_text ? c->y_text : plain)(&p->arena, k->y[i]));
    }
}

static void put_key(struct wf_page *p, const struct wf_curve *k, const char *colour, double y)
{
    wf_page_printf(p, "<path stroke=\"%s\" stroke-width=\"2\" d=\"M%.1f %.1fh%d\"/>", colour,
                   RIGHT + 22, y, k->marks_only ? 0 : 24);
    wf_page_printf(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" stroke=\"%s\" fill=\"%s\"/>",
                   RIGHT + 34, y, k->marks_only ? "6" : "3", colour,
                   k->marks_only ? "none" : colour);
    put_text(p, RIGHT + 54, y + 4, "start", k->name);
}

char *wf_curves_svg(struct wf_arena *arena, const struct wf_curves *c)
{
    struct wf_page page = { 0 }, *const p = &page;
    struct axis x, y;
    find_axes(c, &x, &y);
    wf_page_printf(p,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                   "width=\"%.0f\" height=\"%.0f\">\n<style>text{font:12px sans-serif;fill:#222}"
                   ".head{font-size:17px;font-weight:bold}.dim{fill:#666}.mid{text-anchor:middle}"
                   ".end{text-anchor:end}.grid{stroke:#e3e3e3}.limit{stroke:#c00;stroke-dasharray:"
                   "6 4}.limit-name{fill:#c00}</style>\n"
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                   WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_text(p, 24, 28, "head", c->title);
    put_text(p, 24, 48, "dim", c->subtitle);
    put_axes(p, c, &x, &y);
    int colour = -1;
    for (int i = 0; i < c->n_curves; i++) {
        if (!c->curves[i].marks_only || colour < 0)
            colour++;
        const char *const name = colours[(size_t)colour % (sizeof colours / sizeof *colours)];
        put_curve(p, c, i, name, &x, &y);
        put_key(p, &c->curves[i], name, TOP + 10 + 22 * i);
    }
    wf_page_raw(p, "</svg>\n");
    char *const text = wf_arena_copy(arena, p->out.data);
    wf_page_release(p);
    return text;
}
