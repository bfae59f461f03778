#include "ops/spatial.h"

#include <inttypes.h>

/* Attributes come from configurations: past this, products of them could leave int64_t. */
static const int64_t LIMIT = INT64_C(1) << 30;

static const char axis_letter[WF_SPACE] = { 'D', 'H', 'W' };

int64_t wf_window_count(const struct wf_window *w, int64_t extent)
{
    const int64_t room = extent + w->pad_lo + w->pad_hi - w->dilation * (w->kernel - 1) - 1;
    return wf_floor_div(room, w->stride) + 1;
}

struct wf_range wf_window_reads(const struct wf_window *w, int64_t lo, int64_t hi)
{
    return (struct wf_range){
        lo * w->stride - w->pad_lo,
        (hi - 1) * w->stride - w->pad_lo + (w->kernel - 1) * w->dilation + 1,
    };
}

struct wf_range wf_window_touches(const struct wf_window *w, int64_t lo, int64_t hi)
{
    struct wf_range all = { 0, 0 };
    bool any = false;
    /* Tap by tap, because with a stride next to a dilation the hull of all taps says too much. */
    for (int64_t k = 0; k < w->kernel; k++) {
        const int64_t shift = w->pad_lo - k * w->dilation;
        const struct wf_range r = { wf_ceil_div(lo + shift, w->stride),
                                    wf_floor_div(hi - 1 + shift, w->stride) + 1 };
        if (r.hi <= r.lo)
            continue;
        all.lo = any ? wf_min(all.lo, r.lo) : r.lo;
        all.hi = any ? wf_max(all.hi, r.hi) : r.hi;
        any = true;
    }
    return all;
}

struct wf_region wf_windows_over(struct wf_windows w, struct wf_region work,
                                 struct wf_range (*along)(const struct wf_window *w, int64_t lo,
                                                          int64_t hi))
{
    for (int i = 0; i < WF_SPACE; i++) {
        const struct wf_range r = along(&w.along[i], work.lo[WF_D + i], work.hi[WF_D + i]);
        work.lo[WF_D + i] = r.lo;
        work.hi[WF_D + i] = r.hi;
    }
    return work;
}

bool wf_window_check(const struct wf_window *w, int64_t extent, int axis, struct wf_err *err)
{
    const char letter = axis_letter[axis];
    const int64_t parts[] = { w->kernel, w->stride, w->dilation };
    static const char *const names[] = { "kernel", "stride", "dilation" };
    for (int i = 0; i < 3; i++)
        if (parts[i] < 1 || parts[i] > LIMIT)
            return wf_err_set(err, WF_ERR_USAGE,
                              "%s along %c is %" PRId64 ": it must be at least 1", names[i], letter,
                              parts[i]);
    if (w->pad_lo < 0 || w->pad_hi < 0 || w->pad_lo > LIMIT || w->pad_hi > LIMIT)
        return wf_err_set(err, WF_ERR_USAGE,
                          "padding along %c is %" PRId64 " and %" PRId64
                          ": it must not be negative (to crop, use pad with negative amounts)",
                          letter, w->pad_lo, w->pad_hi);
    const int64_t span = w->dilation * (w->kernel - 1) + 1, room = extent + w->pad_lo + w->pad_hi;
    if (span > room)
        return wf_err_set(err, WF_ERR_USAGE,
                          "the window spans %" PRId64 " along %c, but the image has %" PRId64
                          " and %" PRId64 " with padding: use a larger image or more padding",
                          span, letter, extent, room);
    return true;
}

enum wf_dtype wf_sum_dtype(enum wf_dtype dtype)
{
    return dtype == WF_BF16 || dtype == WF_F16 ? WF_F32 : dtype;
}

double wf_ref_dot(double acc, struct wf_strided a, struct wf_strided b, int64_t count)
{
    if (a.view->dtype == WF_F32 && b.view->dtype == WF_F32) {
        const float *p = (const float *)a.view->data + a.offset;
        const float *q = (const float *)b.view->data + b.offset;
        for (int64_t i = 0; i < count; i++)
            acc += (double)p[i * a.step] * (double)q[i * b.step];
        return acc;
    }
    if (a.view->dtype == WF_F64 && b.view->dtype == WF_F64) {
        const double *p = (const double *)a.view->data + a.offset;
        const double *q = (const double *)b.view->data + b.offset;
        for (int64_t i = 0; i < count; i++)
            acc += p[i * a.step] * q[i * b.step];
        return acc;
    }
    for (int64_t i = 0; i < count; i++)
        acc += wf_dtype_get(a.view->dtype, a.view->data, a.offset + i * a.step) *
               wf_dtype_get(b.view->dtype, b.view->data, b.offset + i * b.step);
    return acc;
}
