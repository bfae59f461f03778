/*
 * Strips: items that follow one another run on one part of the image after the other, so that what is
 * made and used up among them never exists whole.
 *
 * Where making results again (fit.h) is not enough, the planner lets items [first, last] run in
 * strips: all of them on the first strip, then all of them on the second. What is only read among them
 * is *strip-local*: its buffer holds as much as one strip needs, with the halo that its readers reach for,
 * which neighbouring strips both make. Everything else is whole, and made line by line further, each
 * line once. A sum is taken strip by strip and added up.
 *
 * S1. No item that runs in strips reads a sum that is made among them, nor what is fetched from other
 *     ranks and made among them: so all that they wait for ends before the first strip, all that begins
 *     behind them begins behind the last, on every rank alike.
 *     A fused item runs with its readers, but what it waits for ends in front of it: that is not
 *     made among them either.
 * S2. A strip-local instance is read among the strips' items only, and all results of its maker are strip-local.
 * S3. An item without an extent along the axis (weights in another precision) runs once, with the
 *     first strip, and reads nothing that is made in strips. Where it reads a sum that is made among
 *     them (a bias' gradient, summed in f64, becomes f32) it runs behind the last strip, and only its
 *     like read what it makes.
 */
#ifndef WF_PLAN_STRIPS_H
#define WF_PLAN_STRIPS_H

#include "plan/planner.h"

/* How an item takes part. */
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
/* What an item runs on in strip number `at`; empty: nothing. */
struct wf_region wf_planner_part(const struct wf_planner *p, const struct wf_strips *s, int at,
                                 int item);
/* All of a strip-local instance that is there in strip number `at`. */
struct wf_region wf_planner_strip_box(const struct wf_planner *p, int instance, int at);

#endif
