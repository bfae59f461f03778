/* What max and average pooling share: the window, the shapes, and what is read in both directions. */
#include <inttypes.h>

#include "ops/spatial.h"

const struct wf_field wf_pool_fields[] = {
    WF_INTS(wf_pool_attrs, kernel, 3),
    WF_INTS(wf_pool_attrs, stride, 3),
    WF_INTS(wf_pool_attrs, pad_lo, 3),
    WF_INTS(wf_pool_attrs, pad_hi, 3),
    WF_INT(wf_pool_attrs, exclude_pad),
    WF_INTS(wf_pool_attrs, extent, 3),
    { 0 },
};

struct wf_windows wf_pool_windows(const struct wf_pool_attrs *a)
{
    struct wf_windows w;
    for (int i = 0; i < WF_SPACE; i++)
        w.along[i] = (struct wf_window){ .kernel = a->kernel[i],
                                         .stride = a->stride[i],
                                         .dilation = 1,
                                         .pad_lo = a->pad_lo[i],
                                         .pad_hi = a->pad_hi[i] };
    return w;
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

/* How many windows there are along an axis of `extent`, or an error. */
static bool windows(const struct wf_pool_attrs *a, int axis, int64_t extent, int64_t *count,
                    struct wf_err *err)
{
    const struct wf_window w = wf_pool_windows(a).along[axis];
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
    return wf_windows_over(wf_pool_windows(node->attrs), work, wf_window_reads);
}

/* Of dy and the index, which lie alike. */
struct wf_region wf_pool_grad_reads(const struct wf_node *node, int, struct wf_region work)
{
    return wf_windows_over(wf_pool_windows(node->attrs), work, wf_window_touches);
}

struct wf_region wf_pool_inside(const struct wf_pool_attrs *a, const struct wf_shape *image,
                                const int64_t at[WF_AXES])
{
    struct wf_region window;
    for (int i = 0; i < WF_AXES; i++) {
        const bool space = i >= WF_D && i <= WF_W;
        const int64_t lo = space ? at[i] * a->stride[i - WF_D] - a->pad_lo[i - WF_D] : at[i];
        const int64_t extent = space ? a->kernel[i - WF_D] : 1;
        window.lo[i] = wf_max(0, lo);
        window.hi[i] = wf_min(image->at[i], lo + extent);
    }
    return window;
}

struct wf_region wf_pool_touching(const struct wf_node *node, const int64_t at[WF_AXES])
{
    return wf_region_intersect(wf_pool_grad_reads(node, 0, wf_region_at(at)),
                               wf_shape_region(node->in[0]->shape));
}
