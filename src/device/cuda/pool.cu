/*
 * Pooling. A maximum's place is counted in its window with padding, so it means the same on every
 * tile. Gradients are gathered: each element of dx is made by one thread, in one order.
 *
 * Windows that neither overlap nor leave the image, [1,2,2] and [2,2,2], have kernels of their own
 * that read and write each element once.
 */
#include "device/cuda/spatial.cuh"

namespace wf
{

struct Window {
    int64_t kernel[3], stride[3], pad[3], image[3], count[3]; /* count: windows */
    int32_t adaptive; /* windows share out the image, see wf_pool_window() */

    __device__ int64_t first(int i, int64_t o) const
    {
        return adaptive ? o * image[i] / count[i] : o * stride[i] - pad[i];
    }

    /* The part of the window at o that lies in the image. */
    __device__ void inside(const int64_t o[3], int64_t lo[3], int64_t hi[3]) const
    {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const int64_t from = first(i, o[i]);
            lo[i] = larger<int64_t>(0, from);
            hi[i] = adaptive ? ceil_div((o[i] + 1) * image[i], count[i])
                             : smaller(image[i], from + kernel[i]);
        }
    }
    /* The windows that have p. */
    __device__ void touching(const int64_t p[3], int64_t lo[3], int64_t hi[3]) const
    {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const int64_t at = p[i] + pad[i]; /* not negative */
            const int64_t before = at - kernel[i] + stride[i];
            lo[i] = before > 0 ? before / stride[i] : 0;
            hi[i] = smaller(count[i], at / stride[i] + 1);
            if (adaptive) {
                lo[i] = p[i] * count[i] / image[i];
                hi[i] = ceil_div((p[i] + 1) * count[i], image[i]);
            }
        }
    }
    __device__ int place(const int64_t o[3], const int64_t p[3]) const
    {
        int64_t k = 0;
#pragma unroll
        for (int i = 0; i < 3; i++)
            k = k * kernel[i] + p[i] - first(i, o[i]);
        return (int)k;
    }
};

template <class I, class T, int V> struct MaxSoFar {
    Vec<T, V> best;
    Vec<I, V> where;

    __device__ void see(const Vec<T, V> &v, int place, bool first)
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const float x = v.get(j);
            if (first || x > best.get(j) || x != x) {
                best.put(j, v.at(j));
                where.put(j, (I)place);
            }
        }
    }
};

template <class I> struct MaxPool {
    Image x, y, index;
    Window window;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t lo[3], hi[3];
        MaxSoFar<I, T, V> top = {};
        bool first = true;
        window.inside(at.x, lo, hi);
        over_box(lo, hi, [&](const int64_t *p) {
            Vec<T, V> v;
            v.load(element<T>(x, at.n, p, at.c));
            top.see(v, window.place(at.x, p), first);
            first = false;
        });
        top.best.store(element<T>(y, at.n, at.x, at.c));
        top.where.store(element<I>(index, at.n, at.x, at.c));
    }
};

/* Deep x 2 x 2, stride likewise, all of it inside the image. */
template <int Deep> struct MaxPool2 {
    Image x, y, index;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        const int64_t corner[3] = { at.x[0] * Deep, at.x[1] * 2, at.x[2] * 2 };
        const T *from = element<T>(x, at.n, corner, at.c);
        Vec<T, V> v[4 * Deep];
        MaxSoFar<uint8_t, T, V> top;
#pragma unroll
        for (int k = 0; k < 4 * Deep; k++)
            v[k].load(from + k / 4 * x.stride[WF_D] + k / 2 % 2 * x.stride[WF_H] +
                      k % 2 * x.stride[WF_W]);
#pragma unroll
        for (int k = 0; k < 4 * Deep; k++)
            top.see(v[k], k, k == 0);
        top.best.store(element<T>(y, at.n, at.x, at.c));
        top.where.store(element<uint8_t>(index, at.n, at.x, at.c));
    }
};

template <class I> struct MaxPoolGrad {
    Image dy, index, dx, plus;
    Window window;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t lo[3], hi[3];
        Sum<T, V> sum;
        if (plus.data)
            sum.add(element<T>(plus, at.n, at.x, at.c));
        window.touching(at.x, lo, hi);
        over_box(lo, hi, [&](const int64_t *o) {
            const int place = window.place(o, at.x);
            Vec<T, V> v;
            Vec<I, V> where;
            v.load(element<T>(dy, at.n, o, at.c));
            where.load(element<I>(index, at.n, o, at.c));
#pragma unroll
            for (int j = 0; j < V; j++)
                sum.at[j] += (int)where.at(j) == place ? (strict<T>)v.get(j) : (strict<T>)0;
        });
        sum.store(element<T>(dx, at.n, at.x, at.c));
    }
};

/* Runs over windows, those included that the image's end cuts: they have no dy. */
template <int Deep> struct MaxPoolGrad2 {
    Image dy, index, dx, plus;
    int64_t lo[3], hi[3], count[3]; /* the work in dx; windows */

    template <class T, int V> __device__ void run(const Place &at) const
    {
        Vec<T, V> v = {};
        Vec<uint8_t, V> where = {};
        const bool whole = at.x[0] < count[0] && at.x[1] < count[1] && at.x[2] < count[2];
        if (whole) {
            v.load(element<T>(dy, at.n, at.x, at.c));
            where.load(element<uint8_t>(index, at.n, at.x, at.c));
        }
#pragma unroll
        for (int k = 0; k < 4 * Deep; k++) {
            const int64_t p[3] = { at.x[0] * Deep + k / 4, at.x[1] * 2 + k / 2 % 2,
                                   at.x[2] * 2 + k % 2 };
            Vec<T, V> out = {};
            if (p[0] < lo[0] || p[0] >= hi[0] || p[1] < lo[1] || p[1] >= hi[1] || p[2] < lo[2] ||
                p[2] >= hi[2])
                continue;
            if (plus.data)
                out.load(element<T>(plus, at.n, p, at.c));
#pragma unroll
            for (int j = 0; j < V; j++)
                if (whole && (int)where.at(j) == k)
                    out.set(j, out.get(j) + v.get(j));
            out.store(element<T>(dx, at.n, p, at.c));
        }
    }
};

struct AvgPool {
    Image x, y;
    Window window;
    int exclude;
    int64_t end[3]; /* without `exclude`: of what counts */

    /* As wf_pool_count() has it. */
    __device__ double share(const int64_t o[3]) const
    {
        int64_t lo[3], hi[3], count = 1;
        if (exclude)
            window.inside(o, lo, hi);
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const int64_t first = window.first(i, o[i]);
            count *= exclude ? hi[i] - lo[i] : smaller(first + window.kernel[i], end[i]) - first;
        }
        return 1.0 / (double)count;
    }
    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t lo[3], hi[3];
        Sum<T, V> sum;
        window.inside(at.x, lo, hi);
        over_box(lo, hi, [&](const int64_t *p) { sum.add(element<T>(x, at.n, p, at.c)); });
        sum.store(element<T>(y, at.n, at.x, at.c), (strict<T>)share(at.x));
    }
};

struct AvgPoolGrad {
    AvgPool pool; /* x is dy, y is dx */

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t lo[3], hi[3];
        Sum<T, V> sum;
        pool.window.touching(at.x, lo, hi);
        over_box(lo, hi, [&](const int64_t *o) {
            sum.add(element<T>(pool.x, at.n, o, at.c), (strict<T>)pool.share(o));
        });
        sum.store(element<T>(pool.y, at.n, at.x, at.c));
    }
};

static Window window_of(const struct wf_call *call, const struct wf_shape &image,
                        const struct wf_shape &windows)
{
    const struct wf_pool_attrs *a = (const struct wf_pool_attrs *)call->node->attrs;
    Window w;
    w.adaptive = a->bins[0] > 0;
    for (int i = 0; i < 3; i++) {
        w.kernel[i] = a->kernel[i];
        w.stride[i] = a->stride[i];
        w.pad[i] = a->pad_lo[i];
        w.image[i] = image.at[WF_D + i];
        w.count[i] = windows.at[WF_D + i];
    }
    return w;
}

/* 1 or 2: Deep of the kernels for plain windows; 0: neither. */
static int plain(const Window &w)
{
    if (w.adaptive)
        return 0;
    for (int i = 0; i < 3; i++)
        if (w.stride[i] != w.kernel[i] || w.pad[i] != 0 || w.count[i] * w.stride[i] > w.image[i])
            return 0;
    return w.kernel[1] == 2 && w.kernel[2] == 2 && w.kernel[0] <= 2 ? (int)w.kernel[0] : 0;
}

enum { PLUS = 2 }; /* maxpool_grad's input that is added */

/* What a gradient reads and writes by vectors. */
struct GradViews {
    const struct wf_view *at[4];
    int count;

    GradViews(const struct wf_call *call)
        : at{ &call->in[0], &call->in[1], &call->out[0], &call->in[PLUS] },
          count(call->in[PLUS].data ? 4 : 3)
    {
    }
};

/* The windows that meet the work of a gradient. */
template <int Deep> static void max_grad_plain(const struct wf_call *call, const Window &w)
{
    MaxPoolGrad2<Deep> f = { image_of(call->in[0]),
                             image_of(call->in[1]),
                             image_of(call->out[0]),
                             image_of(call->in[PLUS]),
                             {},
                             {},
                             {} };
    const GradViews views(call);
    struct wf_call by_window = *call;
    for (int i = 0; i < 3; i++) {
        f.lo[i] = call->work.lo[WF_D + i];
        f.hi[i] = call->work.hi[WF_D + i];
        f.count[i] = w.count[i];
        by_window.work.lo[WF_D + i] = f.lo[i] / w.stride[i];
        by_window.work.hi[WF_D + i] = (f.hi[i] - 1) / w.stride[i] + 1;
    }
    spatial_call(&by_window, views.at, views.count, f);
}

template <class I> static void max_grad_any(const struct wf_call *call, const Window &w)
{
    const GradViews views(call);
    spatial_call(call, views.at, views.count,
                 MaxPoolGrad<I>{ image_of(call->in[0]), image_of(call->in[1]),
                                 image_of(call->out[0]), image_of(call->in[PLUS]), w });
}

} // namespace wf

using namespace wf;

void wf_cuda_maxpool(const struct wf_call *call)
{
    if (call->fused) {
        wf_cuda_norm_maxpool(call);
        return;
    }
    const struct wf_view *const views[] = { &call->in[0], &call->out[0], &call->out[1] };
    const Window w = window_of(call, call->node->in[0]->shape, call->node->out[0]->shape);
    const Image x = image_of(call->in[0]), y = image_of(call->out[0]);
    const Image index = image_of(call->out[1]);
    switch (plain(w)) {
    case 1:
        spatial_call(call, views, 3, MaxPool2<1>{ x, y, index });
        break;
    case 2:
        spatial_call(call, views, 3, MaxPool2<2>{ x, y, index });
        break;
    default:
        if (index.dtype == WF_U8)
            spatial_call(call, views, 3, MaxPool<uint8_t>{ x, y, index, w });
        else
            spatial_call(call, views, 3, MaxPool<int32_t>{ x, y, index, w });
    }
}

void wf_cuda_maxpool_grad(const struct wf_call *call)
{
    const Window w = window_of(call, call->node->out[0]->shape, call->node->in[0]->shape);
    if (is_empty(call->work))
        return;
    switch (plain(w)) {
    case 1:
        max_grad_plain<1>(call, w);
        break;
    case 2:
        max_grad_plain<2>(call, w);
        break;
    default:
        if (call->in[1].dtype == WF_U8)
            max_grad_any<uint8_t>(call, w);
        else
            max_grad_any<int32_t>(call, w);
    }
}

static AvgPool avg_of(const struct wf_call *call, const Window &w)
{
    const struct wf_pool_attrs *a = (const struct wf_pool_attrs *)call->node->attrs;
    AvgPool p = { image_of(call->in[0]), image_of(call->out[0]), w, (int)a->exclude_pad, {} };
    for (int i = 0; i < 3; i++)
        p.end[i] = w.image[i] + a->pad_hi[i] - a->past[i];
    return p;
}

void wf_cuda_avgpool(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    spatial_call(
        call, views, 2,
        avg_of(call, window_of(call, call->node->in[0]->shape, call->node->out[0]->shape)));
}

void wf_cuda_avgpool_grad(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    spatial_call(call, views, 2,
                 AvgPoolGrad{ avg_of(
                     call, window_of(call, call->node->out[0]->shape, call->node->in[0]->shape)) });
}
