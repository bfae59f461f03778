#include "report/chart.h"

#include <math.h>
#include <stdio.h>

/* The drawing's own units; the page stretches them. */
static const double SIDE = 1000;
enum { STRETCHES = 360 }; /* of a long series, two points each */
enum { TICKS_MAX = 12 };

struct axis {
    double lo, hi; /* of what is shown; logarithms where `logarithmic` */
    bool logarithmic;
    double ticks[TICKS_MAX];
    int n_ticks;
};

/* --- axes --- */

static bool drawable(double y)
{
    return fabs(y) < 1e100; /* false for NaN; and differences stay finite */
}

static double on_axis(const struct axis *a, double value)
{
    return ((a->logarithmic ? log10(value) : value) - a->lo) / (a->hi - a->lo);
}

/* 1, 2 or 5 times a power of ten, so that about `count` of them fill `range`. */
static double nice_step(double range, int count)
{
    const double rough = range / count, power = pow(10, floor(log10(rough)));
    const double lead = rough / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static void linear_ticks(struct axis *a, int count, bool widen)
{
    /* Also where a tick would be lost in rounding. */
    if (!(a->hi - a->lo > 1e-9 * fabs(a->lo))) {
        const double pad = a->lo != 0 ? fabs(a->lo) * 0.1 : 1;
        a->hi += pad;
        a->lo -= pad;
    }
    const double step = nice_step(a->hi - a->lo, count);
    if (widen) {
        a->lo = floor(a->lo / step + 1e-9) * step;
        a->hi = ceil(a->hi / step - 1e-9) * step;
    }
    const double first = ceil(a->lo / step - 1e-9);
    while (a->n_ticks < TICKS_MAX && (first + a->n_ticks) * step <= a->hi + step * 1e-9) {
        a->ticks[a->n_ticks] = (first + a->n_ticks) * step;
        a->n_ticks++;
    }
}

static void log_ticks(struct axis *a)
{
    a->lo = log10(a->lo);
    a->hi = log10(a->hi);
    const double pad = (a->hi - a->lo) * 0.04;
    a->lo -= pad;
    a->hi += pad;
    const double span = a->hi - a->lo;
    const int every = (int)ceil(span / 6);
    static const double leads[] = { 1, 2, 5 };
    const int n_leads = span < 2.2 ? 3 : 1;
    for (int decade = (int)floor(a->lo); decade <= (int)ceil(a->hi); decade++)
        for (int i = 0; i < n_leads; i++) {
            const double value = leads[i] * pow(10, decade);
            const double at = log10(value);
            if (decade % every == 0 && at >= a->lo && at <= a->hi && a->n_ticks < TICKS_MAX)
                a->ticks[a->n_ticks++] = value;
        }
}

/* The ranges of all that can be drawn; false when that is nothing. */
static bool ranges(const struct wf_chart *c, struct axis *x, struct axis *y)
{
    bool any = false;
    for (int k = 0; k < c->n_series; k++)
        for (size_t i = 0; i < c->series[k].n; i++) {
            const double at = c->series[k].x[i], value = c->series[k].y[i];
            if (!drawable(at) || !drawable(value))
                continue;
            x->lo = any ? fmin(x->lo, at) : at;
            x->hi = any ? fmax(x->hi, at) : at;
            y->lo = any ? fmin(y->lo, value) : value;
            y->hi = any ? fmax(y->hi, value) : value;
            any = true;
        }
    return any;
}

static bool set_axes(const struct wf_chart *c, struct axis *x, struct axis *y)
{
    if (!ranges(c, x, y))
        return false;
    if (c->logarithmic && y->lo > 0 && y->hi > 30 * y->lo) {
        y->logarithmic = true;
        log_ticks(y);
    } else {
        if (c->from_zero) {
            y->lo = fmin(y->lo, 0);
            y->hi = fmax(y->hi, 0);
        }
        linear_ticks(y, 5, true);
    }
    linear_ticks(x, 6, false);
    return true;
}

/* --- drawing --- */

struct point {
    double x, y;
};

/* The points to draw, at most 2 * STRETCHES, in the arena. */
static struct point *decimate(struct wf_arena *arena, const struct wf_series *s, size_t *count)
{
    const size_t stretches = s->n > 2 * STRETCHES ? STRETCHES : s->n;
    struct point *const out = wf_arena_array(arena, 2 * stretches + 1, struct point);
    *count = 0;
    for (size_t k = 0; k < stretches; k++) {
        const size_t from = s->n * k / stretches, to = s->n * (k + 1) / stretches;
        size_t least = to, most = to;
        for (size_t i = from; i < to; i++) {
            if (!drawable(s->y[i]) || !drawable(s->x[i]))
                continue;
            least = least == to || s->y[i] < s->y[least] ? i : least;
            most = most == to || s->y[i] > s->y[most] ? i : most;
        }
        if (least == to) {
            out[(*count)++] = (struct point){ s->x[from], (double)NAN };
            continue;
        }
        const size_t first = least < most ? least : most, last = least < most ? most : least;
        out[(*count)++] = (struct point){ s->x[first], s->y[first] };
        if (last != first)
            out[(*count)++] = (struct point){ s->x[last], s->y[last] };
    }
    return out;
}

static void draw_line(struct wf_page *p, const struct axis *x, const struct axis *y,
                      const struct point *points, size_t n)
{
    bool pen = false;
    for (size_t i = 0; i < n; i++) {
        if (!drawable(points[i].y)) {
            pen = false;
            continue;
        }
        /* A point between two gaps still shows: a line of no length has round ends. */
        const bool alone = !pen && (i + 1 == n || !drawable(points[i + 1].y));
        wf_page_printf(p, "%c%.1f %.1f%s", pen ? 'L' : 'M', SIDE * on_axis(x, points[i].x),
                       SIDE * (1 - on_axis(y, points[i].y)), alone ? "h.1" : "");
        pen = true;
    }
}

static void draw_dots(struct wf_page *p, const struct axis *x, const struct axis *y,
                      const struct point *points, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (drawable(points[i].y))
            wf_page_printf(p, "M%.1f %.1fh.1", SIDE * on_axis(x, points[i].x),
                           SIDE * (1 - on_axis(y, points[i].y)));
}

static void write_numbers(struct wf_page *p, const char *name, const struct point *points, size_t n,
                          bool ys)
{
    wf_page_printf(p, " data-%s=\"", name);
    for (size_t i = 0; i < n; i++) {
        const double value = ys ? points[i].y : points[i].x;
        if (i > 0)
            wf_page_raw(p, ",");
        if (drawable(value))
            wf_page_printf(p, ys ? "%.4g" : "%.9g", value);
    }
    wf_page_raw(p, "\"");
}

static void write_series(struct wf_page *p, const struct axis *x, const struct axis *y,
                         const struct wf_series *s)
{
    size_t n;
    const struct point *const points = decimate(&p->arena, s, &n);
    wf_page_printf(p, "<path class=\"line c%d%s\" data-name=\"", s->colour,
                   s->faint ? " faint" : "");
    wf_page_text(p, s->name);
    wf_page_raw(p, "\"");
    write_numbers(p, "x", points, n, false);
    write_numbers(p, "y", points, n, true);
    wf_page_raw(p, " d=\"");
    draw_line(p, x, y, points, n);
    wf_page_raw(p, "\"/>");
    if (s->dots && n <= 30) {
        wf_page_printf(p, "<path class=\"dots c%d\" d=\"", s->colour);
        draw_dots(p, x, y, points, n);
        wf_page_raw(p, "\"/>");
    }
}

static const char *tick_text(struct wf_page *p, double value)
{
    if (fabs(value) >= 1e6)
        return wf_arena_printf(&p->arena, "%.4gM", value / 1e6);
    if (fabs(value) >= 1e4)
        return wf_arena_printf(&p->arena, "%.4gk", value / 1e3);
    return wf_arena_printf(&p->arena, "%.4g", fabs(value) < 1e-12 ? 0.0 : value);
}

static void write_ticks(struct wf_page *p, const struct axis *x, const struct axis *y)
{
    for (int i = 0; i < y->n_ticks; i++)
        wf_page_printf(p, "<span class=\"ty\" style=\"top:%.2f%%\">%s</span>",
                       100 * (1 - on_axis(y, y->ticks[i])), tick_text(p, y->ticks[i]));
    for (int i = 0; i < x->n_ticks; i++)
        if (x->ticks[i] == floor(x->ticks[i])) /* there is no half step */
            wf_page_printf(p, "<span class=\"tx\" style=\"left:%.2f%%\">%s</span>",
                           100 * on_axis(x, x->ticks[i]), tick_text(p, x->ticks[i]));
}

static void write_head(struct wf_page *p, const struct wf_chart *c, const struct axis *y)
{
    wf_page_printf(p, "<figure class=\"chart\"><figcaption><b>%s</b>", c->title);
    if (c->unit || y->logarithmic)
        wf_page_printf(p, " <small>%s%s%s</small>", c->unit ? c->unit : "",
                       c->unit && y->logarithmic ? ", " : "", y->logarithmic ? "log scale" : "");
    wf_page_raw(p, "<span class=\"legend\">");
    for (int k = 0; k < c->n_series; k++)
        if (!c->series[k].faint) {
            wf_page_printf(p, "<span><i class=\"key c%d\"></i>", c->series[k].colour);
            wf_page_text(p, c->series[k].name);
            wf_page_raw(p, "</span>");
        }
    wf_page_raw(p, "</span></figcaption>");
}

bool wf_chart_write(struct wf_page *p, const struct wf_chart *c)
{
    struct axis x = { 0 }, y = { 0 };
    if (!set_axes(c, &x, &y))
        return false;
    write_head(p, c, &y);
    wf_page_printf(p,
                   "<div class=\"plot\" data-lo=\"%.9g\" data-hi=\"%.9g\" data-ylo=\"%.9g\" "
                   "data-yhi=\"%.9g\"%s><svg viewBox=\"0 0 1000 1000\" "
                   "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s by step\">",
                   x.lo, x.hi, y.lo, y.hi, y.logarithmic ? " data-log" : "", c->title);
    wf_page_raw(p, "<path class=\"grid\" d=\"");
    for (int i = 0; i < y.n_ticks; i++)
        wf_page_printf(p, "M0 %.1fH1000", SIDE * (1 - on_axis(&y, y.ticks[i])));
    wf_page_raw(p, "\"/>");
    for (int k = 0; k < c->n_series; k++)
        write_series(p, &x, &y, &c->series[k]);
    wf_page_raw(p, "</svg>");
    write_ticks(p, &x, &y);
    wf_page_raw(p, "</div></figure>\n");
    return true;
}

double *wf_series_smooth(struct wf_arena *arena, const double *y, size_t n)
{
    double *const out = wf_arena_array(arena, n ? n : 1, double);
    const double keep = 1 - 1 / fmax(1, (double)n / 40);
    double sum = 0, weight = 0;
    for (size_t i = 0; i < n; i++) {
        if (!drawable(y[i])) {
            out[i] = (double)NAN;
            continue;
        }
        sum = keep * sum + y[i];
        weight = keep * weight + 1;
        out[i] = sum / weight;
    }
    return out;
}
