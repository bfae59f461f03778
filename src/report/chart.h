/*
 * Line charts as inline SVG that a page can stretch.
 *
 * The drawing has no text in it: it is stretched to the width at hand, while ticks are HTML placed
 * by per cent, so that they stay readable on a phone. The points are there a second time as data
 * attributes, for the hover of report.js; without scripts the chart is complete but for that.
 *
 * A point whose y is not finite is a gap. Long series are thinned to the least and the greatest
 * value of each of a few hundred stretches, so that no peak is lost.
 */
#ifndef WF_REPORT_CHART_H
#define WF_REPORT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "report/page.h"

struct wf_series {
    const char *name;
    int colour; /* 1 to 4 */
    bool faint; /* drawn thin, and not part of the legend */
    bool dots;  /* each point is drawn: few and far between */
    const double *x, *y;
    size_t n;
};

struct wf_chart {
    const char *title, *unit; /* ours, not the log's; unit may be NULL */
    const struct wf_series *series;
    int n_series;
    bool from_zero;   /* the axis starts at zero */
    bool logarithmic; /* where the values are positive and span much */
};

/* Nothing at all when no series has a finite value: returns false then. */
bool wf_chart_write(struct wf_page *p, const struct wf_chart *chart);

/* An average over about n/40 values before each one, gaps passed over. Lives in the arena. */
double *wf_series_smooth(struct wf_arena *arena, const double *y, size_t n);

#endif
