/*
 * A view: a box of a tensor in memory, with global coordinates.
 *
 * `box` is the part of the whole tensor that the memory holds, `stride` the distance of neighbours
 * (in elements). `data` points at the element box.lo. A kernel addresses by global coordinate and
 * does not know whether it sees a tile or the whole; it must not access anything outside the box.
 * The view borrows its memory.
 */
#pragma once

#include "tensor/dtype.h"
#include "tensor/region.h"

struct wf_view {
    void *data;
    enum wf_dtype dtype;
    struct wf_region box;
    int64_t stride[WF_AXES];
};

/* A packed view of `box` at `data`. */
struct wf_view wf_view_dense(void *data, enum wf_dtype dtype, struct wf_region box);
/* The part of `view` inside `box`, which must be within it. */
struct wf_view wf_view_part(struct wf_view view, struct wf_region box);
/* Elements are without gaps, in axis order (axes of extent one do not matter). */
bool wf_view_is_dense(const struct wf_view *view);

static inline int64_t wf_view_offset(const struct wf_view *v, int64_t n, int64_t d, int64_t h,
                                     int64_t w, int64_t c)
{
    return (n - v->box.lo[WF_N]) * v->stride[WF_N] + (d - v->box.lo[WF_D]) * v->stride[WF_D] +
           (h - v->box.lo[WF_H]) * v->stride[WF_H] + (w - v->box.lo[WF_W]) * v->stride[WF_W] +
           (c - v->box.lo[WF_C]) * v->stride[WF_C];
}
static inline double wf_view_get(const struct wf_view *v, int64_t n, int64_t d, int64_t h,
                                 int64_t w, int64_t c)
{
    return wf_dtype_get(v->dtype, v->data, wf_view_offset(v, n, d, h, w, c));
}
static inline void wf_view_put(const struct wf_view *v, int64_t n, int64_t d, int64_t h, int64_t w,
                               int64_t c, double value)
{
    wf_dtype_put(v->dtype, v->data, wf_view_offset(v, n, d, h, w, c), value);
}

/* Copy equal shapes with equal dtypes; global positions may differ (shift is dst - src). */
void wf_view_copy(const struct wf_view *dst, const struct wf_view *src);
void wf_view_fill(const struct wf_view *dst, double value);
/* Bytes of a packed copy. */
size_t wf_view_bytes(const struct wf_view *view);
