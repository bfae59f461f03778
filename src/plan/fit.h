/*
 * Making a step fit into memory.
 *
 * A step that needs more than options.limit is planned again and again, each time with one more result
 * that is not kept but made anew for the node that reads it next. What is tried first frees most, at
 * the moments when too much is live, for the seconds it costs by the estimates. When every rank fits,
 * what turned out not to be needed is taken back, the most expensive first. Where all that is not enough,
 * items run in strips (strips.h); where it is enough but expensive, a search for less memory ends with
 * strips too, and the faster of both plans is taken.
 *
 * What is recomputed does not change the numbers: the same kernels run on the same boxes, only more
 * often. Sums over strips round otherwise.
 *
 * F1. What is requested depends on graph, mesh, device and options alone, so every rank requests the
 *     same.
 */
#ifndef WF_PLAN_FIT_H
#define WF_PLAN_FIT_H

#include "plan/plan.h"

/* Takes a global plan of options with a limit, and gives it back, or a better one in its place. What fits
 * nowhere near comes back as small as it gets. NULL, with the global plan freed, where planning fails. */
struct wf_global_plan *wf_global_plan_fit(struct wf_global_plan *global, struct wf_err *err);

/* Bytes that a rank takes by this plan, with those that no plan knows of. */
size_t wf_plan_total_bytes(const struct wf_plan *plan);

#endif
