/*
 * SVG files that stand alone: what the pictures of this folder have in common.
 *
 *     struct wf_svg s = { 0 };
 *     wf_svg_text(&s, 24, 28, "head", title);
 *     wf_svg_rect(&s, (struct wf_box){ x, y, width, height }, "fill=\"red\"", "rank 3: 12 MiB");
 *     char *picture = wf_svg_finish(&s, &arena, 900, 540);
 *
 * Text has these classes: head, bold, dim; mid, end (where it is anchored); light, dark (on a colour).
 */
#pragma once

#include "base/arena.h"
#include "base/buffer.h"

struct wf_svg {
    struct wf_arena arena; /* of texts until the picture is finished */
    struct wf_buffer out;
};

struct wf_box {
    double x, y, width, height;
};

/* Text from outside for HTML or SVG, inside an element or a quoted attribute alike: markup is escaped, what
 * shows nothing is made visible, and length is bounded. */
void wf_markup_text(struct wf_buffer *out, const char *text);

/* Markup of our own. */
void wf_svg_printf(struct wf_svg *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void wf_svg_text(struct wf_svg *s, double x, double y, const char *classes, const char *text);
/* `paint` is attributes, `title` a tooltip; NULL: none. */
void wf_svg_rect(struct wf_svg *s, struct wf_box box, const char *paint, const char *title);
/* The picture, in the arena; `s` is empty then. */
char *wf_svg_finish(struct wf_svg *s, struct wf_arena *arena, double width, double height);
