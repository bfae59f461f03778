/*
 * Curves as a picture that stands alone: lines with marks over two logarithmic axes, a legend beside them.
 *
 *     char *picture = wf_curves_svg(&arena, &curves);
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

struct wf_curve {
    const char *name;
    const double *x,
        *y; /* a point that is not positive and finite is left out, and so is a curve of none */
    size_t n;
    const char *const *labels; /* text at the points; NULL: none */
    bool marks_only; /* measured points: rings, no line; in the colour of the curve before */
    bool guide;      /* what might be: a dashed line, no marks */
};

struct wf_curves {
    const char *title, *subtitle, *x_name, *y_name;
    const struct wf_curve *curves;
    int n_curves;
    const char *(*x_text)(struct wf_arena *arena, double value); /* of ticks and tooltips */
    const char *(*y_text)(struct wf_arena *arena, double value);
};

char *wf_curves_svg(struct wf_arena *arena, const struct wf_curves *c);
