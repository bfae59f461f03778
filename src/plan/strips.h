/*
 * Strips: consecutive items run on one part of the image after the other, so that intermediate
 * results are never stored whole.
 *
 * If recomputation (fit.h) is not enough, the planner runs items [first, last] in strips: all of
 * them on the first strip, then all of them on the second. An instance that only these items read
 * is *strip-local*: its buffer holds as much as one strip needs, including the halo of its readers,
 * which neighbouring strips both compute. Everything else is whole and filled strip by strip, each
 * line once. A sum is accumulated strip by strip.
 *
 * S1. No item that runs in strips reads a sum, or a value fetched from other ranks, that is
 *     produced among them: so all communication that they wait for ends before the first strip, and
 *     all that they start begins after the last, on every rank alike. A fused item runs with its
 *     readers, but what it waits for ends before it: that is not produced among them either.
 * S2. A strip-local instance is read among the strips' items only, and all results of its maker
 *     are strip-local.
 * S3. An item without an extent along the axis (weights in another precision) runs once, with
 *     the first strip, and reads nothing that is produced in strips. If it reads a sum that is
 *     produced among them (a bias' gradient, summed in f64, becomes f32) it runs after the last
 *     strip, and only items of the same kind read its result.
 * S4. A sum in strips is over the axis and over all of space, of an image: its result is small, and whole on every
 *     rank. One that leaves an image (over samples or one axis only) runs outside of strips, and so does one of what
 *     is replicated, of which ranks without a part would have an empty box.
 */
#pragma once

#include "plan/planner.h"

/* Those that the item runs in, or NULL. */
static inline const struct wf_strips *wf_strips_of(const struct wf_global_plan *global, int item)
{
    const int strips = item < 0 ? -1 : global->program->items[item].strips;
    return strips < 0 ? NULL : &global->strips[strips];
}

/* The role of an item. */
enum wf_strip_role { WF_STRIP_MAP, WF_STRIP_SUM, WF_STRIP_ONCE, WF_STRIP_AFTER };

enum wf_strip_role wf_strips_role(const struct wf_global_plan *global, const struct wf_strips *s,
                                  int item);

/* Whether items [first, last] may run in strips, and along which axis, in how many. */
bool wf_strips_find(const struct wf_global_plan *global, int first, int last, struct wf_strips *s);
/* Whether the instance would be strip-local. */
bool wf_strips_is_local(const struct wf_global_plan *global, const struct wf_strips *s,
                        int instance);

/* The parts of all strips of a rank: fills p->parts. */
void wf_planner_cut(struct wf_planner *p, struct wf_arena *work);
/* The region that an item runs on in strip number `at`; may be empty. */
struct wf_region wf_planner_part(const struct wf_planner *p, const struct wf_strips *s, int at,
                                 int item);
/* The box of a strip-local instance in strip number `at`. */
struct wf_region wf_planner_strip_box(const struct wf_planner *p, int instance, int at);
