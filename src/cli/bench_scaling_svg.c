#include <math.h>

#include "base/buffer.h"
#include "cli/bench_scaling.h"

enum { WIDTH = 720, HEIGHT = 440, LEFT = 70, RIGHT = 150, TOP = 50, BOTTOM = 60, TICKS = 5 };

struct frame {
    double ranks, rate; /* at the far ends */
};

static double x_of(const struct frame *f, double ranks)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * ranks / f->ranks;
}

static double y_of(const struct frame *f, double rate)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * rate / f->rate;
}

/* 1, 2 or 5 times a power of ten, for about so many ticks. */
static double tick_of(double most, int ticks)
{
    const double raw = most / ticks, power = pow(10, floor(log10(raw)));
    return raw <= power       ? power
           : raw <= 2 * power ? 2 * power
           : raw <= 5 * power ? 5 * power
                              : 10 * power;
}

static void draw_axes(struct wf_buffer *b, const struct frame *f, const struct wf_scaling *s)
{
    const double step = tick_of(f->rate, TICKS);
    for (int k = 0; k * step <= f->rate * 1.001; k++) {
        const double at = k * step;
        wf_buffer_printf(b,
                         "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                         "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                         LEFT, WIDTH - RIGHT, y_of(f, at), y_of(f, at), LEFT - 8, y_of(f, at) + 4,
                         at);
    }
    for (int i = 0; i < s->count; i++) {
        const int ranks = s->points[WF_SCALING_WEAK][i].ranks;
        wf_buffer_printf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                         x_of(f, ranks), HEIGHT - BOTTOM + 20, ranks);
    }
    wf_buffer_printf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">ranks</text>\n",
                     (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16);
    wf_buffer_printf(
        b,
        "<text transform=\"translate(18,%d) rotate(-90)\" text-anchor=\"middle\">images "
        "per second</text>\n",
        (TOP + HEIGHT - BOTTOM) / 2);
}

static void draw_kind(struct wf_buffer *b, const struct frame *f, const struct wf_scaling *s,
                      int kind, const char *color)
{
    wf_buffer_printf(b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
                     color);
    for (int i = 0; i < s->count; i++)
        if (s->points[kind][i].batch > 0)
            wf_buffer_printf(b, "%.1f,%.1f ", x_of(f, s->points[kind][i].ranks),
                             y_of(f, s->points[kind][i].rate));
    wf_buffer_printf(b, "\"/>\n");
    for (int i = 0; i < s->count; i++) {
        const struct wf_scaling_point *const p = &s->points[kind][i];
        if (p->batch == 0)
            continue;
        const double x = x_of(f, p->ranks), y = y_of(f, p->rate);
        wf_buffer_printf(b,
                         "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/><text x=\"%.1f\" "
                         "y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\">%.0f%%</text>\n",
                         x, y, color, x, y + (kind == WF_SCALING_WEAK ? -10 : 20), color,
                         100 * p->efficiency);
    }
    const int y = TOP + 20 + 22 * kind;
    wf_buffer_printf(
        b,
        "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"/>"
        "<text x=\"%d\" y=\"%d\">%s</text>\n",
        WIDTH - RIGHT + 16, WIDTH - RIGHT + 44, y, y, color, WIDTH - RIGHT + 52, y + 4,
        wf_scaling_names[kind]);
}

static void draw_ideal(struct wf_buffer *b, const struct frame *f, const struct wf_scaling *s)
{
    const struct wf_scaling_point *const first = &s->points[WF_SCALING_WEAK][0];
    const double each = first->rate / first->ranks;
    const int y = TOP + 20 + 22 * WF_SCALING_KINDS;
    wf_buffer_printf(b,
                     "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#999\" "
                     "stroke-dasharray=\"6 4\"/>\n",
                     x_of(f, 0), y_of(f, 0),
                     x_of(f, f->rate / each < f->ranks ? f->rate / each : f->ranks),
                     y_of(f, fmin(f->rate, each * f->ranks)));
    wf_buffer_printf(b,
                     "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke=\"#999\" "
                     "stroke-dasharray=\"6 4\"/><text x=\"%d\" y=\"%d\">ideal</text>\n",
                     WIDTH - RIGHT + 16, WIDTH - RIGHT + 44, y, y, WIDTH - RIGHT + 52, y + 4);
}

const char *wf_scaling_svg(struct wf_arena *arena, const struct wf_scaling *s, const char *title)
{
    struct frame f = { 0 };
    for (int kind = 0; kind < WF_SCALING_KINDS; kind++)
        for (int i = 0; i < s->count; i++) {
            f.rate = fmax(f.rate, 1.1 * s->points[kind][i].rate);
            f.ranks = fmax(f.ranks, 1.05 * s->points[kind][i].ranks);
        }
    const struct wf_scaling_point *const first = &s->points[WF_SCALING_WEAK][0];
    f.rate = fmax(f.rate, first->rate / first->ranks * f.ranks);
    struct wf_buffer b = { 0 };
    wf_buffer_printf(&b,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                     "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n"
                     "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                     "<text x=\"%d\" y=\"28\" font-size=\"16\">%s</text>\n",
                     WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, title);
    draw_axes(&b, &f, s);
    draw_ideal(&b, &f, s);
    draw_kind(&b, &f, s, WF_SCALING_WEAK, "#1f77b4");
    draw_kind(&b, &f, s, WF_SCALING_STRONG, "#d62728");
    wf_buffer_printf(&b, "</svg>\n");
    const char *const text = wf_arena_printf(arena, "%s", b.data);
    wf_buffer_release(&b);
    return text;
}
