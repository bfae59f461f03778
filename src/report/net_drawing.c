#include "report/net_drawing.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "net/net_model.h"
#include "net/record.h"
#include "report/net_groups.h"
#include "report/svg.h"

enum {
    BOX_W = 118,
    BOX_H = 62,
    STEP = 142, /* from box to box */
    ROW = 104,  /* from level to level */
    LEFT = 118, /* labels of the levels */
    HEAD = 64,  /* above the boxes: the title and the kinds */
    ARC = 26,   /* room above the first level */
    SHOWN = 14, /* characters of a name */
    TICKS = 24, /* layers of a box that are drawn one by one */
};

/* What a layer is coloured by. */
static const struct family {
    const char *kinds, *what, *colour;
} families[] = {
    { "conv linear matmul", "convolution, linear", "#2b6cb0" },
    { "conv_transpose upsample pixel_shuffle pixel_unshuffle", "transposed, upsample", "#2f855a" },
    { "max_pool avg_pool global_pool adaptive_avg_pool adaptive_max_pool global_max_pool",
      "pooling", "#c05621" },
    { "batch_norm instance_norm group_norm layer_norm", "normalisation", "#805ad5" },
    { "concat add multiply", "join", "#b83280" },
    { "", "other", "#718096" },
};
enum { FAMILIES = sizeof families / sizeof *families };

struct drawing {
    struct wf_svg svg;
    struct wf_net_boxes b;
    struct wf_shape image;
    double width;
};

static const struct family *family_of(const struct wf_layer *l)
{
    for (int i = 0; i < FAMILIES - 1; i++)
        if (wf_layer_word_in(families[i].kinds, l->kind->name))
            return &families[i];
    return &families[FAMILIES - 1];
}

static double box_x(int box)
{
    return LEFT + box * STEP;
}

static double box_y(const struct drawing *d, int box)
{
    return HEAD + ARC + d->b.boxes[box].level * ROW;
}

static const char *extents(struct wf_arena *arena, const struct drawing *d, struct wf_shape s)
{
    const char *text = "";
    for (int axis = WF_C - d->b.net->dims; axis < WF_C; axis++)
        text = wf_arena_printf(arena, "%s%s%" PRId64, text, *text ? " × " : "", s.at[axis]);
    return s.at[WF_D] * s.at[WF_H] * s.at[WF_W] == 1 ? "vector" : text;
}

/* --- edges --- */

/* Is a box of the level between the two? Then a straight line would cross it. */
static bool is_crossed(const struct drawing *d, int from, int to)
{
    for (int i = from + 1; i < to; i++)
        if (d->b.boxes[i].level == d->b.boxes[from].level)
            return true;
    return false;
}

static void draw_skip(struct drawing *d, int from, int to)
{
    const double x0 = box_x(from) + BOX_W, x1 = box_x(to);
    const double y0 = box_y(d, from) + BOX_H / 2.0, y1 = box_y(d, to) + BOX_H / 2.0;
    if (d->b.boxes[from].level == d->b.boxes[to].level && is_crossed(d, from, to)) {
        const double top = box_y(d, from), rise = fmin(ARC, 8 + 3.0 * (to - from));
        wf_svg_printf(&d->svg,
                      "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" class=\"skip\"/>\n",
                      x0 - 10, top, x0 + 10, top - rise, x1 - 10, top - rise, x1 + 10, top);
        return;
    }
    const double bend = fmin(60, (x1 - x0) / 2);
    wf_svg_printf(&d->svg,
                  "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" class=\"skip\"/>\n", x0,
                  y0, x0 + bend, y0, x1 - bend, y1, x1, y1);
}

static void draw_step(struct drawing *d, int from, int to)
{
    const double x0 = box_x(from) + BOX_W, x1 = box_x(to);
    const double y0 = box_y(d, from) + BOX_H / 2.0, y1 = box_y(d, to) + BOX_H / 2.0;
    const double middle = (x0 + x1) / 2;
    wf_svg_printf(&d->svg,
                  "<path d=\"M%.1f %.1f L%.1f %.1f L%.1f %.1f L%.1f %.1f\" class=\"edge\" "
                  "marker-end=\"url(#tip)\"/>\n",
                  x0, y0, middle, y0, middle, y1, x1 - 1, y1);
}

static void draw_edges(struct drawing *d, struct wf_arena *arena)
{
    const struct wf_net *const net = d->b.net;
    bool *const seen = wf_arena_array(arena, (d->b.count + 1) * (d->b.count + 1), bool);
    for (int i = 0; i < net->n_layers; i++)
        for (int k = 0; k < net->layers[i].n_in && d->b.box_of[i] >= 0; k++) {
            const int in = net->layers[i].in[k], to = d->b.box_of[i];
            const int from = in == WF_LAYER_IMAGE ? -1 : d->b.box_of[in];
            bool *const known = &seen[(from + 1) * (d->b.count + 1) + to];
            if (from < 0 || from == to || *known)
                continue;
            *known = true;
            if (to == from + 1)
                draw_step(d, from, to);
            else
                draw_skip(d, from, to);
        }
}

/* --- boxes --- */

/* A tooltip: the layers and what they make. */
static const char *layers_text(struct drawing *d, int box)
{
    struct wf_arena *const a = &d->svg.arena;
    const struct wf_net_box *const b = &d->b.boxes[box];
    const char *text = "";
    int shown = 0;
    for (int i = b->first; i <= b->last && shown < 6; i++) {
        if (d->b.box_of[i] != box)
            continue;
        const struct wf_layer *const l = &d->b.net->layers[i];
        text = wf_arena_printf(a, "%s%s%s: %s, %" PRId64 " channels", text, shown ? "; " : "",
                               l->name, l->kind->name, d->b.shapes[i].at[WF_C]);
        shown++;
    }
    return text;
}

static void draw_ticks(struct drawing *d, int box)
{
    const struct wf_net_box *const b = &d->b.boxes[box];
    int count = 0, at = 0;
    for (int i = b->first; i <= b->last; i++)
        count += d->b.box_of[i] == box;
    const double room = BOX_W - 12, step = fmin(9, room / count);
    for (int i = b->first; i <= b->last; i++) {
        if (d->b.box_of[i] != box)
            continue;
        const struct wf_box tick = { box_x(box) + 6 + at++ * step, box_y(d, box) + BOX_H - 14,
                                     fmax(step - (count > TICKS ? 0 : 1.5), 0.4), 8 };
        wf_svg_rect(
            &d->svg, tick,
            wf_arena_printf(&d->svg.arena, "fill=\"%s\"", family_of(&d->b.net->layers[i])->colour),
            NULL);
    }
}

/* As many of the last parts of a name as there is room for. */
static const char *shortened(struct wf_arena *arena, const char *text, size_t n)
{
    size_t length = strcspn(text, "\n");
    while (length > n) {
        const size_t part = strcspn(text, "./\n");
        if (part + 1 >= length)
            return wf_arena_printf(arena, "%.*s…", (int)n - 1, text);
        text += part + 1;
        length -= part + 1;
    }
    return wf_arena_printf(arena, "%.*s", (int)length, text);
}

static bool is_head(const struct wf_net_boxes *b, int box)
{
    for (int i = 0; i < b->net->n_heads; i++)
        if (b->box_of[b->net->heads[i].layer] == box)
            return true;
    return false;
}

static void draw_box(struct drawing *d, int box)
{
    struct wf_arena *const a = &d->svg.arena;
    const struct wf_net_box *const b = &d->b.boxes[box];
    const double x = box_x(box), y = box_y(d, box);
    wf_svg_rect(&d->svg, (struct wf_box){ x, y, BOX_W, BOX_H },
                is_head(&d->b, box)
                    ? "rx=\"5\" fill=\"#f7fafc\" stroke=\"#1a202c\" stroke-width=\"2\""
                    : "rx=\"5\" fill=\"#f7fafc\" stroke=\"#a0aec0\"",
                layers_text(d, box));
    const char *const other = strchr(b->name, '\n');
    const char *const name = other ? wf_arena_printf(a, "%s–%s", shortened(a, b->name, SHOWN / 2),
                                                     shortened(a, other + 1, SHOWN / 2))
                                   : shortened(a, b->name, SHOWN);
    wf_svg_text(&d->svg, x + BOX_W / 2.0, y + 16, "bold mid", name);
    wf_svg_text(&d->svg, x + BOX_W / 2.0, y + 32, "mid",
                wf_arena_printf(a, "%" PRId64 " channels", b->shape.at[WF_C]));
    draw_ticks(d, box);
}

/* --- around them --- */

static void draw_levels(struct drawing *d)
{
    for (int level = 0; level < d->b.levels; level++)
        for (int i = 0; i < d->b.count; i++) {
            if (d->b.boxes[i].level != level)
                continue;
            const double y = HEAD + ARC + level * ROW;
            wf_svg_printf(
                &d->svg, "<line x1=\"%d\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n",
                8, d->width - 8, y + BOX_H + (ROW - BOX_H) / 2.0, y + BOX_H + (ROW - BOX_H) / 2.0);
            wf_svg_text(&d->svg, 12, y + BOX_H / 2.0 + 4, "dim",
                        extents(&d->svg.arena, d, d->b.boxes[i].shape));
            break;
        }
}

static void draw_head(struct drawing *d)
{
    struct wf_arena *const a = &d->svg.arena;
    const struct wf_net *const net = d->b.net;
    wf_svg_text(&d->svg, 12, 24, "head",
                wf_arena_printf(a, "%s: %d layers, image %s, %" PRId64 " channels", net->name,
                                net->n_layers, extents(a, d, d->image), d->image.at[WF_C]));
    double x = 12;
    for (int i = 0; i < FAMILIES; i++) {
        wf_svg_rect(&d->svg, (struct wf_box){ x, 38, 9, 9 },
                    wf_arena_printf(a, "fill=\"%s\"", families[i].colour), NULL);
        wf_svg_text(&d->svg, x + 14, 47, "dim", families[i].what);
        x += 28 + 6.8 * (double)strlen(families[i].what);
    }
    wf_svg_printf(&d->svg,
                  "<style>.edge{fill:none;stroke:#4a5568;stroke-width:1.4}"
                  ".skip{fill:none;stroke:#2b6cb0;stroke-width:1.4;opacity:.65}</style>\n"
                  "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                  "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" "
                  "fill=\"#4a5568\"/></marker></defs>\n");
}

char *wf_net_svg(struct wf_arena *arena, const struct wf_net *net, struct wf_shape image,
                 struct wf_err *err)
{
    struct drawing d = { .image = image };
    struct wf_shape *const shapes = wf_arena_array(&d.svg.arena, net->n_layers, struct wf_shape);
    if (!wf_net_shapes(net, image, shapes, err)) {
        wf_arena_release(&d.svg.arena);
        return NULL;
    }
    d.b = wf_net_group(&d.svg.arena, net, shapes, image);
    d.width = fmax(LEFT + d.b.count * STEP, 760);
    draw_head(&d);
    draw_levels(&d);
    draw_edges(&d, &d.svg.arena);
    for (int i = 0; i < d.b.count; i++)
        draw_box(&d, i);
    return wf_svg_finish(&d.svg, arena, d.width, HEAD + ARC + d.b.levels * ROW);
}

char *wf_model_svg(struct wf_arena *arena, const struct wf_model *m,
                   const struct wf_model_config *c, struct wf_shape image)
{
    struct wf_err ignored = { 0 };
    const struct wf_net *const of_file = wf_net_of_model(m, c);
    struct wf_net *const written = of_file ? NULL : wf_net_record(m, c, &ignored);
    char *svg = NULL;
    if (of_file || written) {
        struct wf_net net = of_file ? *of_file : *written;
        net.classes = c->classes;
        image.at[WF_N] = 1;
        svg = wf_net_svg(arena, &net, image, &ignored);
    }
    wf_net_free(written);
    return svg;
}

bool wf_network_write(const char *folder, const char *svg, const char *text, struct wf_err *err)
{
    struct wf_arena arena = { 0 };
    const bool ok =
        (!svg || wf_write_text(wf_arena_printf(&arena, "%s/network.svg", folder), svg, err)) &&
        (!text || wf_write_text(wf_arena_printf(&arena, "%s/network.yaml", folder), text, err));
    wf_arena_release(&arena);
    return ok;
}
