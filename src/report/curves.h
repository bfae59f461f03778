/*
 * Curves as a picture that stands alone: lines with marks over two axes, a legend beside them.
 *
 *     char *picture = wf_curves_svg(&arena, &curves);
 */
#ifndef WF_REPORT_CURVES_H
#define WF_REPORT_CURVES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

struct wf_curve {
    const char *name;
    const double *x, *y; /* y that is not finite is left out */
    size_t n;
    bool marks_only; /* measured points: rings, no line; in the colour of the curve before */
};

struct wf_curves {
    const char *title, *subtitle, *x_name, *y_name;
    const struct wf_curve *curves;
    int n_curves;
    bool log_x, log_y;
    const char *(*x_text)(struct wf_arena *arena, double value); /* of ticks; NULL: the number */
    const char *(*y_text)(struct wf_arena *arena, double value);
    double limit; /* a line across at this y; 0: none */
    const char *limit_name;
};

char *wf_curves_svg(struct wf_arena *arena, const struct wf_curves *c);

#endif
