/*
 * Translation: a plan for one window of an image does for another one where both lie alike.
 *
 * A window's plan is made of extents and of places relative to each other, and of which edges lie at
 * the image's border. Where those are the same, so is the plan: it is run as it is, on the other
 * window's input, and its result is the other window's. Nothing is packed, prepared or recorded anew.
 * Of the windows of a grid there are at most three kinds along an axis where a window is at least as
 * large as what it reads beyond its edges: at either border, and between.
 *
 *     if (wf_geometry_is_shifted(&global->geometry, &other)) ...    the plan of global does for other
 */
#pragma once

#include "plan/geometry.h"

/* Both are of the same program, with a window each. */
bool wf_geometry_is_shifted(const struct wf_geometry *from, const struct wf_geometry *to);
