/*
 * Making a step fit into memory.
 *
 * A step that needs more than options.limit is planned repeatedly, each time with one more result
 * that is not kept but recomputed for the node that reads it next. Results that free most at the
 * steps where too much is live, for their estimated seconds, are tried first. When every rank fits,
 * unnecessary recomputations are removed, the most expensive first. If that is not enough, items
 * run in strips (strips.h); if it is enough but expensive, a search with strips runs too, and the
 * faster plan is taken.
 *
 * What is recomputed does not change the numbers: the same kernels run on the same boxes, only more
 * often. Sums over strips round otherwise.
 *
 * F1. What is requested depends on graph, mesh, device and options alone, so every rank
 *     requests the same.
 */
#pragma once

#include "plan/plan.h"

/* Takes a global plan with a limit in its options, and returns it or a better one in its place. If
 * none fits, the smallest found is returned. NULL, with the global plan freed, if planning
 * fails. */
struct wf_global_plan *wf_global_plan_fit(struct wf_global_plan *global, struct wf_err *err);

/* Bytes of a rank by this plan, including options.more. */
size_t wf_plan_total_bytes(const struct wf_plan *plan);
