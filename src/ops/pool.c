/* What max and average pooling share: the window, the shapes, and what is read in both directions. */
#include <inttypes.h>

#include "ops/spatial.h"

const struct wf_field wf_pool_fields[] = {
    WF_INTS(wf_pool_attrs, kernel, 3),
    WF_INTS(wf_pool_attrs, stride, 3),
    WF_INTS(wf_pool_attrs, pad_lo, 3),
    WF_INTS(wf_pool_attrs, pad_hi, 3),
    WF_INT(wf_pool_attrs, exclude_pad),
    WF_INTS(wf_pool_attrs, past, 3),
    WF_INTS(wf_pool_attrs, extent, 3),
    WF_INTS(wf_pool_attrs, bins, 3),
    { 0 },
};

struct wf_range wf_pool_window(const struct wf_pool_attrs *a, int axis, int64_t image, int64_t at)
{
    const int64_t bins = a->bins[axis], first = at * a->stride[axis] - a->pad_lo[axis];
    if (bins)
        return (struct wf_range){ at * image / bins, wf_ceil_div((at + 1) * image, bins) };
    return (struct wf_range){ first, first + a->kernel[axis] };
}

struct wf_range wf_pool_touched(const struct wf_pool_attrs *a, int axis, int64_t image, int64_t lo,
                                int64_t hi)
{
    const int64_t bins = a->bins[axis];
    if (bins)
        return (struct wf_range){ wf_floor_div(lo * bins, image), wf_ceil_div(hi * bins, image) };
    const int64_t before = lo + a->pad_lo[axis] - a->kernel[axis] + 1;
    return (struct wf_range){ wf_ceil_div(before, a->stride[axis]),
                              wf_floor_div(hi - 1 + a->pad_lo[axis], a->stride[axis]) + 1 };
}

struct wf_pool_attrs wf_pool_resolve(const struct wf_pool *p)
{
    struct wf_pool_attrs a = { .exclude_pad = p->exclude_pad };
    for (int i = 0; i < WF_SPACE; i++) {
        a.kernel[i] = p->kernel[i] ? p->kernel[i] : 1;
        a.stride[i] = p->stride[i] ? p->stride[i] : a.kernel[i];
        a.pad_lo[i] = p->pad_lo[i];
        a.pad_hi[i] = p->pad_hi[i];
    }
    return a;
}

/* Adaptive: the largest window, in which places are counted. */
static int64_t largest_window(const struct wf_pool_attrs *a, int axis, int64_t extent)
{
    int64_t most = 0;
    for (int64_t i = 0; i < a->bins[axis]; i++) {
        const struct wf_range w = wf_pool_window(a, axis, extent, i);
        most = wf_max(most, w.hi - w.lo);
    }
    return most;
}

static bool bins(const struct wf_pool_attrs *a, int axis, int64_t extent, int64_t *count,
                 struct wf_err *err)
{
    if (a->bins[axis] < 0 || a->bins[axis] > INT64_C(1) << 20)
        return wf_err_set(err, WF_ERR_USAGE,
                          "the result's extent along %c is %" PRId64 ": it must be at least 1",
                          "DHW"[axis], a -> bins[axis]);
    if (a->kernel[axis] != largest_window(a, axis, extent))
        return wf_err_set(err, WF_ERR_USAGE,
                          "kernel along %c is %" PRId64 ", the largest window is %" PRId64,
                          "DHW"[axis], a -> kernel[axis], largest_window(a, axis, extent));
    *count = a->bins[axis];
    return true;
}

/* How many windows there are along an axis of `extent`, or an error. */
static bool windows(const struct wf_pool_attrs *a, int axis, int64_t extent, int64_t *count,
                    struct wf_err *err)
{
    if (a->bins[axis])
        return bins(a, axis, extent, count, err);
    const struct wf_window w = { .kernel = a->kernel[axis],
                                 .stride = a->stride[axis],
                                 .dilation = 1,
                                 .pad_lo = a->pad_lo[axis],
                                 .pad_hi = a->pad_hi[axis] };
    if (!wf_window_check(&w, extent, axis, err))
        return false;
    /* Then every window holds an element of the image: a maximum or a mean of nothing is no number. */
    if (w.pad_lo >= w.kernel || w.pad_hi >= w.kernel)
        return wf_err_set(err, WF_ERR_USAGE,
                          "padding %" PRId64 " and %" PRId64 " along axis %c must be below the "
                          "window of %" PRId64,
                          w.pad_lo, w.pad_hi, "DHW"[axis], w.kernel);
    *count = wf_window_count(&w, extent);
    return true;
}

struct wf_pool_attrs wf_pool_adaptive(const struct wf_value *x, const int64_t out[3])
{
    struct wf_pool_attrs a = { .exclude_pad = 1 };
    for (int i = 0; i < WF_SPACE; i++) {
        a.bins[i] = out[i];
        a.stride[i] = 1;
        a.kernel[i] = out[i] > 0 ? largest_window(&a, i, x->shape.at[WF_D + i]) : 1;
    }
    return a;
}

bool wf_pool_infer(const struct wf_node *node, struct wf_err *err)
{
    struct wf_shape *y = &node->out[0]->shape;
    for (int i = 0; i < WF_SPACE; i++)
        if (!windows(node->attrs, i, y->at[WF_D + i], &y->at[WF_D + i], err))
            return false;
    return true;
}

bool wf_pool_grad_infer(const struct wf_node *node, struct wf_err *err)
{
    const struct wf_pool_attrs *a = node->attrs;
    const struct wf_shape *dy = &node->in[0]->shape;
    struct wf_shape *dx = &node->out[0]->shape;
    for (int i = 0; i < WF_SPACE; i++) {
        int64_t count = 0;
        if (!windows(a, i, a->extent[i], &count, err))
            return false;
        if (count != dy->at[WF_D + i])
            return wf_err_set(err, WF_ERR_USAGE,
                              "dy should have %" PRId64 " along axis %c, it has %" PRId64, count,
                              "DHW"[i], dy -> at[WF_D + i]);
        dx->at[WF_D + i] = a->extent[i];
    }
    return true;
}

struct wf_region wf_pool_reads(const struct wf_node *node, int, struct wf_region work)
{
    for (int i = 0; i < WF_SPACE; i++) {
        const int axis = WF_D + i;
        const int64_t image = node->in[0]->shape.at[axis];
        work.lo[axis] = wf_pool_window(node->attrs, i, image, work.lo[axis]).lo;
        work.hi[axis] = wf_pool_window(node->attrs, i, image, work.hi[axis] - 1).hi;
    }
    return work;
}

/* Of dy and the index, which lie alike. */
struct wf_region wf_pool_grad_reads(const struct wf_node *node, int, struct wf_region work)
{
    for (int i = 0; i < WF_SPACE; i++) {
        const int axis = WF_D + i;
        const struct wf_range r = wf_pool_touched(node->attrs, i, node->out[0]->shape.at[axis],
                                                  work.lo[axis], work.hi[axis]);
        work.lo[axis] = r.lo;
        work.hi[axis] = r.hi;
    }
    return work;
}

struct wf_region wf_pool_inside(const struct wf_pool_attrs *a, const struct wf_shape *image,
                                const int64_t at[WF_AXES])
{
    struct wf_region window = wf_region_at(at);
    for (int i = 0; i < WF_SPACE; i++) {
        const struct wf_range w = wf_pool_window(a, i, image->at[WF_D + i], at[WF_D + i]);
        window.lo[WF_D + i] = wf_max(0, w.lo);
        window.hi[WF_D + i] = wf_min(image->at[WF_D + i], w.hi);
    }
    return window;
}

struct wf_region wf_pool_touching(const struct wf_node *node, const int64_t at[WF_AXES])
{
    return wf_region_intersect(wf_pool_grad_reads(node, 0, wf_region_at(at)),
                               wf_shape_region(node->in[0]->shape));
}

int64_t wf_pool_count(const struct wf_pool_attrs *a, const struct wf_shape *image,
                      const int64_t at[3])
{
    int64_t count = 1;
    for (int i = 0; i < WF_SPACE; i++) {
        const int64_t extent = image->at[WF_D + i];
        const struct wf_range w = wf_pool_window(a, i, extent, at[i]);
        count *= a->exclude_pad ? wf_min(w.hi, extent) - wf_max(w.lo, 0)
                                : wf_min(w.hi, extent + a->pad_hi[i] - a->past[i]) - w.lo;
    }
    return count;
}

bool wf_pool_is_fixed(const struct wf_node *node)
{
    const struct wf_pool_attrs *a = node->attrs;
    return a->bins[0] || a->bins[1] || a->bins[2];
}
