/*
 * Ranks that are alike: their plans are the same except for the position in the image, so the bytes
 * and seconds of one are those of all. On a large mesh most ranks are alike: 32 x 32 equal tiles
 * have 9 kinds.
 *
 * Two ranks are alike when every item works on a region of the same extents at the same offset from
 * what it reads, covers, produces and exchanges, and at the same borders of the image. The sizes of
 * a plan depend on nothing else.
 *
 *     struct wf_arena arena = { 0 };
 *     int *ranks;
 *     const int n = wf_unlike_ranks(&arena, &global->geometry, &ranks);
 */
#pragma once

#include "plan/geometry.h"

/* The first rank of each kind, in order. The geometry's fetches are found. */
int wf_unlike_ranks(struct wf_arena *arena, const struct wf_geometry *geo, int **ranks);
