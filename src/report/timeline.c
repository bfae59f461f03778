#include "report/timeline.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "report/svg.h"

/* The drawing, in its own units. */
static const double WIDTH = 1200, LEFT = 70, RIGHT = 16, TOP = 64;
static const double COMPUTE = 24, LANE = 7, GAP = 18;
enum { FETCHES = 2, SUMS = 5, LANES = FETCHES + SUMS }; /* lanes of what is in flight */
enum { TICKS = 8, SAID = 6 };

static const struct {
    const char *name, *colour;
} kinds[WF_EVENT_KINDS] = {
    [WF_EVENT_FORWARD] = { "forward", "#4878a8" },
    [WF_EVENT_BACKWARD] = { "backward", "#7fb2d9" },
    [WF_EVENT_COPY] = { "copies", "#a9a9a9" },
    [WF_EVENT_ADVANCE] = { "advancing", "#e3cf57" },
    [WF_EVENT_WAIT] = { "waiting", "#c8322c" },
    [WF_EVENT_FETCH] = { "halos in flight", "#e79a2f" },
    [WF_EVENT_SUM] = { "sums in flight", "#3f9a57" },
};

static bool is_flight(const struct wf_event *e)
{
    return e->kind == WF_EVENT_FETCH || e->kind == WF_EVENT_SUM;
}

/* --- sums --- */

static int by_start(const void *a, const void *b)
{
    const struct wf_event *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* The rank's own events, in the order of their start. */
static struct wf_event *events_of(struct wf_arena *arena, const struct wf_timeline *t, int rank,
                                  size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < t->count; i++)
        *count += t->events[i].rank == rank;
    struct wf_event *own = wf_arena_array(arena, *count + 1, struct wf_event), *to = own;
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].rank == rank)
            *to++ = t->events[i];
    qsort(own, *count, sizeof *own, by_start);
    return own;
}

struct wf_timeline_sums wf_timeline_sums(const struct wf_timeline *t, int rank)
{
    struct wf_arena arena = { 0 };
    struct wf_timeline_sums s = { 0 };
    size_t n;
    const struct wf_event *own = events_of(&arena, t, rank, &n);
    double until = 0; /* of what is in flight so far */
    for (size_t i = 0; i < n; i++) {
        const struct wf_event *e = &own[i];
        s.step = fmax(s.step, e->end);
        if (e->kind == WF_EVENT_WAIT) {
            s.wait += e->end - e->start;
        } else if (e->kind == WF_EVENT_ADVANCE) {
            s.advance += e->end - e->start;
        } else if (is_flight(e)) {
            s.flight += fmax(e->end - fmax(e->start, until), 0);
            until = fmax(until, e->end);
        } else {
            s.compute += e->end - e->start;
        }
    }
    s.hidden = fmax(s.flight - s.wait - s.advance, 0);
    wf_arena_release(&arena);
    return s;
}

/* --- Chrome's trace format --- */

/* Layers' names are ours, but a file must read back whatever they are. */
static const char *json_text(struct wf_arena *arena, const char *text)
{
    char *const out = wf_arena_copy(arena, text);
    for (char *at = out; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == '"' || *at == '\\')
            *at = '_';
    return out;
}

static void add_trace_event(struct wf_buffer *out, struct wf_arena *arena, const struct wf_event *e,
                            size_t id)
{
    const char *const name = json_text(arena, e->name), *const kind = kinds[e->kind].name;
    const double start = e->start * 1e6, end = e->end * 1e6;
    if (!is_flight(e)) {
        wf_buffer_printf(out,
                         ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,"
                         "\"dur\":%.3f,\"name\":\"%s%s\"}",
                         kind, (int)e->rank, start, end - start,
                         e->kind == WF_EVENT_WAIT ? "waiting: " : "", name);
        return;
    }
    for (int half = 0; half < 2; half++) /* they may overlap: asynchronous, each with its number */
        wf_buffer_printf(out,
                         ",\n{\"ph\":\"%s\",\"cat\":\"%s\",\"id\":%zu,\"pid\":%d,\"tid\":0,"
                         "\"ts\":%.3f,\"name\":\"%s\"}",
                         half ? "e" : "b", kind, id, (int)e->rank, half ? end : start, name);
}

char *wf_timeline_json(struct wf_arena *arena, const struct wf_timeline *t)
{
    struct wf_buffer out = { 0 };
    wf_buffer_printf(
        &out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":\"%s\"},\"traceEvents\":[",
        json_text(arena, t->title));
    for (int r = 0; r < t->ranks; r++)
        wf_buffer_printf(&out,
                         "%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
                         "\"args\":{\"name\":\"rank %d\"}}",
                         r ? "," : "", r, r);
    for (size_t i = 0; i < t->count; i++)
        add_trace_event(&out, arena, &t->events[i], i);
    wf_buffer_text(&out, "\n]}\n");
    char *const text = wf_arena_copy(arena, out.data);
    wf_buffer_release(&out);
    return text;
}

/* --- a picture --- */

struct drawing {
    struct wf_svg svg;
    const struct wf_timeline *t;
    double seconds; /* of the longest rank */
};

static double x_of(const struct drawing *d, double seconds)
{
    return LEFT + seconds / d->seconds * (WIDTH - LEFT - RIGHT);
}

static const char *paint_of(struct drawing *d, int kind)
{
    return wf_arena_printf(&d->svg.arena, "fill=\"%s\"", kinds[kind].colour);
}

static void draw_bar(struct drawing *d, const struct wf_event *e, double y, double height)
{
    const double x = x_of(d, e->start), width = fmax(x_of(d, e->end) - x, 0.25);
    wf_svg_rect(&d->svg, (struct wf_box){ x, y, width, height }, paint_of(d, e->kind),
                wf_arena_printf(&d->svg.arena, "%s: %s, %.3f ms at %.3f ms", e->name,
                                kinds[e->kind].name, (e->end - e->start) * 1e3, e->start * 1e3));
}

/* Neighbours of one kind that are narrower than a hair are one bar. */
static bool joins(const struct drawing *d, const struct wf_event *a, const struct wf_event *b)
{
    return a->kind == b->kind && x_of(d, b->start) - x_of(d, a->end) < 0.1 &&
           x_of(d, b->end) - x_of(d, a->start) < 0.6;
}

/* The first lane of its kind that is free; the last takes what has no room. */
static int lane_for(double until[LANES], const struct wf_event *e)
{
    int lane = e->kind == WF_EVENT_FETCH ? 0 : FETCHES;
    const int last = e->kind == WF_EVENT_FETCH ? FETCHES - 1 : LANES - 1;
    while (lane < last && until[lane] > e->start)
        lane++;
    until[lane] = fmax(until[lane], e->end);
    return lane;
}

/* The rank's bars from `y` down; returns the height. */
static double draw_rank(struct drawing *d, int rank, double y)
{
    size_t n;
    struct wf_event *own = events_of(&d->svg.arena, d->t, rank, &n);
    double until[LANES] = { 0 };
    int lanes = 0;
    for (size_t i = 0; i < n; i++) {
        struct wf_event *e = &own[i];
        if (is_flight(e)) {
            const int lane = lane_for(until, e);
            draw_bar(d, e, y + COMPUTE + 3 + LANE * lane, LANE - 1.5);
            lanes = lane + 1 > lanes ? lane + 1 : lanes;
            continue;
        }
        size_t next = i + 1;
        while (next < n && is_flight(&own[next]))
            next++;
        if (next < n && joins(d, e, &own[next]))
            own[next].start = e->start;
        else
            draw_bar(d, e, y, COMPUTE);
    }
    wf_svg_text(&d->svg, LEFT - 8, y + 16, "end", wf_arena_printf(&d->svg.arena, "rank %d", rank));
    return COMPUTE + 3 + LANE * lanes + GAP;
}

static void draw_axis(struct drawing *d, double bottom)
{
    const double rough = d->seconds * 1e3 / TICKS, power = pow(10, floor(log10(rough)));
    const double lead = rough / power;
    const double step = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    for (int i = 0; i * step <= d->seconds * 1e3; i++) {
        const double x = x_of(d, i * step / 1e3);
        wf_svg_printf(&d->svg, "<path d=\"M%.2f %.1fV%.1f\" stroke=\"#8888\" stroke-width=\".6\"/>",
                      x, TOP - 6, bottom);
        wf_svg_text(&d->svg, x, bottom + 14, "mid",
                    wf_arena_printf(&d->svg.arena, "%g%s", i * step, i ? "" : " ms"));
    }
}

static void draw_legend(struct drawing *d)
{
    double x = LEFT;
    for (int k = 0; k < WF_EVENT_KINDS; k++) {
        wf_svg_rect(&d->svg, (struct wf_box){ x, 34, 12, 12 }, paint_of(d, k), NULL);
        wf_svg_text(&d->svg, x + 17, 44, "", kinds[k].name);
        x += 34 + 6.6 * (double)strlen(kinds[k].name);
    }
    const char *title = d->t->title;
    for (int r = 0; r < d->t->ranks && r < SAID; r++) {
        const struct wf_timeline_sums sums = wf_timeline_sums(d->t, r);
        if (sums.flight > 0)
            title = wf_arena_printf(&d->svg.arena, "%s%s rank %d: %.0f%% hidden", title,
                                    r ? "," : " —", r, 100 * sums.hidden / sums.flight);
    }
    wf_svg_text(&d->svg, LEFT, 18, "bold", title);
}

char *wf_timeline_svg(struct wf_arena *arena, const struct wf_timeline *t)
{
    struct drawing d = { .t = t, .seconds = 1e-6 };
    for (size_t i = 0; i < t->count; i++)
        d.seconds = fmax(d.seconds, t->events[i].end);
    double y = TOP;
    draw_legend(&d);
    for (int r = 0; r < t->ranks; r++)
        y += draw_rank(&d, r, y);
    draw_axis(&d, y - GAP / 2);
    return wf_svg_finish(&d.svg, arena, WIDTH, y + 16);
}
