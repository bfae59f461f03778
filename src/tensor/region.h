/*
 * Shapes and regions: the algebra of boxes, used for halos.
 *
 * Every dense tensor has five axes, channels last. A 2D image has D = 1, a signal D = H = 1, a
 * vector D = H = W = 1, so there is one convolution and one halo for 1D, 2D and 3D. Weights use the
 * same five: (out, kd, kh, kw, in).
 *
 * A region is half open, in global coordinates. It is empty when any axis has hi <= lo; all empty
 * regions mean the same thing. A region may extend beyond its image: that part is padding.
 */
#pragma once

#include "widefield_types.h"

/* Sets of axes are bit masks. */
#define WF_AXIS(axis) (1u << (axis))
#define WF_SPATIAL (WF_AXIS(WF_D) | WF_AXIS(WF_H) | WF_AXIS(WF_W))

/* --- shapes --- */
#define WF_SHAPE(n, d, h, w, c) ((struct wf_shape){ { (n), (d), (h), (w), (c) } })
int64_t wf_shape_count(struct wf_shape shape); /* elements */
bool wf_shape_equal(struct wf_shape a, struct wf_shape b);
struct wf_region wf_shape_region(struct wf_shape shape); /* the whole tensor */
/* False when an extent is below one or there are more than 2^53 elements: up to there a count is
 * exact as a double, and bytes of some hundred tensors still add up in 64 bits. */
bool wf_shape_is_valid(struct wf_shape shape);

/* --- regions --- */
static inline int64_t wf_region_extent(struct wf_region r, enum wf_axis axis)
{
    return r.hi[axis] - r.lo[axis];
}
bool wf_region_is_empty(struct wf_region r);
int64_t wf_region_count(struct wf_region r); /* elements; 0 when empty */
struct wf_shape wf_region_shape(struct wf_region r);
bool wf_region_equal(struct wf_region a, struct wf_region b); /* all empty regions are equal */
bool wf_region_contains(struct wf_region outer, struct wf_region inner);
struct wf_region wf_region_intersect(struct wf_region a, struct wf_region b);
struct wf_region wf_region_bound(struct wf_region a, struct wf_region b); /* bounding box of both */
struct wf_region wf_region_shift(struct wf_region r, const int64_t by[WF_AXES]);

/* a minus b as at most 2 * WF_AXES disjoint boxes that cover it exactly; returns how many. */
enum { WF_SUBTRACT_MAX = 2 * WF_AXES };
int wf_region_subtract(struct wf_region a, struct wf_region b,
                       struct wf_region out[WF_SUBTRACT_MAX]);

/* Part `index` of `parts` nearly equal parts of [0, extent): cut i is at i * extent / parts. */
int64_t wf_split_point(int64_t extent, int64_t parts, int64_t index);

/* Floor and ceiling division for any sign of `a`, b > 0. */
static inline int64_t wf_floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}
static inline int64_t wf_ceil_div(int64_t a, int64_t b)
{
    return a >= 0 ? (a + b - 1) / b : -(-a / b);
}
static inline int64_t wf_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t wf_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The region of one element. */
static inline struct wf_region wf_region_at(const int64_t at[WF_AXES])
{
    return (struct wf_region){ { at[0], at[1], at[2], at[3], at[4] },
                               { at[0] + 1, at[1] + 1, at[2] + 1, at[3] + 1, at[4] + 1 } };
}
