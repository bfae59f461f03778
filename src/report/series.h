/*
 * A column of a run's log as a curve that a page can take, however long the run was.
 *
 * A point whose y cannot be drawn (NaN, infinite, or beyond 1e100) is a gap. A long series is thinned
 * to the least and the greatest value of each of a few hundred stretches, so that no peak is lost.
 */
#ifndef WF_REPORT_SERIES_H
#define WF_REPORT_SERIES_H

#include "report/runlog.h"

struct wf_series {
    double *x, *y; /* steps, and what the log says there */
    size_t n;
};

/* Lives in the arena. */
struct wf_series wf_series_of(struct wf_arena *arena, const struct wf_log_table *table, int column);
/* Each value becomes the average of about n/40 values up to it, gaps passed over. */
void wf_series_smooth(struct wf_series *s);
void wf_series_decimate(struct wf_series *s);

#endif
