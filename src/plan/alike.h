/*
 * Ranks that are alike: their plans are the same but for the place in the image, so one of them tells
 * the bytes and seconds of all. On a large mesh most ranks are: 32 x 32 equal tiles have 9 kinds.
 *
 * Two ranks are alike when every item works on a region of the same extents at the same distance from
 * what it reads, covers, makes and exchanges, and at the same borders of the image. That is all that a
 * plan's sizes depend on.
 *
 *     struct wf_arena arena = { 0 };
 *     int *ranks;
 *     const int n = wf_unlike_ranks(&arena, &global plan->geometry, &ranks);
 */
#ifndef WF_PLAN_ALIKE_H
#define WF_PLAN_ALIKE_H

#include "plan/geometry.h"

/* The first rank of each kind, in order. The geometry is one of all ranks. */
int wf_unlike_ranks(struct wf_arena *arena, const struct wf_geometry *geo, int **ranks);

#endif
