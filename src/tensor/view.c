#include "tensor/view.h"

#include "base/err.h"

struct wf_view wf_view_dense(void *data, enum wf_dtype dtype, struct wf_region box)
{
    struct wf_view v = { .data = data, .dtype = dtype, .box = box };
    int64_t stride = 1;
    for (int a = WF_AXES - 1; a >= 0; a--) {
        v.stride[a] = stride;
        stride *= wf_max(1, wf_region_extent(box, (enum wf_axis)a));
    }
    return v;
}

struct wf_view wf_view_part(struct wf_view view, struct wf_region box)
{
    WF_BUG_ON(!wf_region_contains(view.box, box), "part reaches past the view");
    if (!wf_region_is_empty(box)) {
        int64_t offset = 0;
        for (int a = 0; a < WF_AXES; a++)
            offset += (box.lo[a] - view.box.lo[a]) * view.stride[a];
        view.data = (char *)view.data + offset * (int64_t)wf_dtype_size(view.dtype);
    }
    view.box = box;
    return view;
}

bool wf_view_is_dense(const struct wf_view *view)
{
    int64_t stride = 1;
    for (int a = WF_AXES - 1; a >= 0; a--) {
        const int64_t extent = wf_region_extent(view->box, (enum wf_axis)a);
        if (extent > 1 && view->stride[a] != stride)
            return false;
        stride *= wf_max(1, extent);
    }
    return true;
}

/* The innermost run that is contiguous in both views, in elements, and the first axis inside it. */
static int64_t common_run(const struct wf_view *a, const struct wf_view *b, int *first)
{
    int64_t run = 1;
    int axis = WF_AXES;
    while (axis > 0) {
        const int64_t extent = wf_region_extent(a->box, (enum wf_axis)(axis - 1));
        if (extent > 1 && (a->stride[axis - 1] != run || b->stride[axis - 1] != run))
            break;
        run *= extent;
        axis--;
    }
    *first = axis;
    return run;
}

void wf_view_copy(const struct wf_view *dst, const struct wf_view *src)
{
    WF_BUG_ON(dst->dtype != src->dtype, "%s from %s", wf_dtype_name(dst->dtype),
              wf_dtype_name(src->dtype));
    WF_BUG_ON(!wf_shape_equal(wf_region_shape(dst->box), wf_region_shape(src->box)),
              "copy between different shapes");
    if (wf_region_is_empty(dst->box))
        return;
    int first;
    const int64_t size = (int64_t)wf_dtype_size(dst->dtype);
    const int64_t run = common_run(dst, src, &first) * size;
    int64_t at[WF_AXES] = { 0 };
    for (;;) {
        int64_t to = 0, from = 0;
        for (int a = 0; a < first; a++) {
            to += at[a] * dst->stride[a];
            from += at[a] * src->stride[a];
        }
        memcpy((char *)dst->data + to * size, (const char *)src->data + from * size, (size_t)run);
        int a = first - 1;
        while (a >= 0 && ++at[a] == wf_region_extent(dst->box, (enum wf_axis)a))
            at[a--] = 0;
        if (a < 0)
            return;
    }
}

void wf_view_fill(const struct wf_view *dst, double value)
{
    const struct wf_region b = dst->box;
    for (int64_t n = b.lo[WF_N]; n < b.hi[WF_N]; n++)
        for (int64_t d = b.lo[WF_D]; d < b.hi[WF_D]; d++)
            for (int64_t h = b.lo[WF_H]; h < b.hi[WF_H]; h++)
                for (int64_t w = b.lo[WF_W]; w < b.hi[WF_W]; w++)
                    for (int64_t c = b.lo[WF_C]; c < b.hi[WF_C]; c++)
                        wf_view_put(dst, n, d, h, w, c, value);
}

size_t wf_view_bytes(const struct wf_view *view)
{
    return (size_t)wf_region_count(view->box) * wf_dtype_size(view->dtype);
}
