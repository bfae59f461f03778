/* Another extent: padding, subdomains, interpolation, broadcast. */
#include "device/cuda/rows.cuh"
#include "device/cuda/spatial.cuh"
#include "ops/upsample.h"

namespace wf
{

/* --- pad --- */

struct PadAxis {
    int64_t lo, hi, extent; /* of the padding; of the image */

    /* The image's element that shows at q, counted from the image's start; -1: zero. */
    __device__ int64_t shown_at(int mode, int64_t q) const
    {
        if (q >= 0 && q < extent)
            return q;
        switch (mode) {
        case WF_PAD_REFLECT:
            return q < 0 ? -q : 2 * (extent - 1) - q;
        case WF_PAD_CIRCULAR:
            return q < 0 ? q + extent : q - extent;
        case WF_PAD_EDGE:
            return q < 0 ? 0 : extent - 1;
        default:
            return -1;
        }
    }
};

struct Pad {
    Image x, y;
    PadAxis axis[WF_AXES];
    int mode;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        const int64_t n = axis[WF_N].shown_at(mode, at.n - axis[WF_N].lo);
        const int64_t c = axis[WF_C].shown_at(mode, at.c - axis[WF_C].lo);
        bool inside = n >= 0 && c >= 0;
        int64_t from[3];
#pragma unroll
        for (int i = 0; i < 3; i++) {
            from[i] = axis[WF_D + i].shown_at(mode, at.x[i] - axis[WF_D + i].lo);
            inside = inside && from[i] >= 0;
        }
        Vec<T, V> v = {};
        if (inside)
            v.load(element<T>(x, n, from, c));
        v.store(element<T>(y, at.n, at.x, at.c));
    }
};

/* The places where an element of the image shows, as ranges of dy: itself, before it, behind it. */
struct PadGrad {
    Image dy, dx;
    PadAxis axis[WF_AXES];
    int mode;

    __device__ void range(int i, int64_t p, int which, int64_t *first, int64_t *end) const
    {
        const PadAxis &a = axis[i];
        const int64_t last = a.extent - 1;
        int64_t lo = p, hi = p + 1; /* counted from the image's start */
        if (which == 1) {
            lo = mode == WF_PAD_REFLECT ? -p : mode == WF_PAD_CIRCULAR ? p - a.extent : -a.lo;
            hi = mode == WF_PAD_EDGE ? (p == 0 ? 0 : lo) : lo + 1;
            hi = smaller<int64_t>(hi, 0);
        } else if (which == 2) {
            lo = mode == WF_PAD_REFLECT    ? 2 * last - p
                 : mode == WF_PAD_CIRCULAR ? p + a.extent
                                           : a.extent;
            hi = mode == WF_PAD_EDGE ? (p == last ? a.extent + a.hi : lo) : lo + 1;
            lo = larger<int64_t>(lo, a.extent);
        }
        *first = larger(lo, -a.lo) + a.lo;
        *end = smaller(hi, a.extent + a.hi) + a.lo;
    }

    template <class T, int V> __device__ void run(const Place &at) const
    {
        Sum<T, V> sum;
        for (int which = 0; which < 27; which++) {
            int64_t lo[3], hi[3];
            range(WF_D, at.x[0], which / 9, &lo[0], &hi[0]);
            range(WF_H, at.x[1], which / 3 % 3, &lo[1], &hi[1]);
            range(WF_W, at.x[2], which % 3, &lo[2], &hi[2]);
            over_box(lo, hi, [&](const int64_t *p) { sum.add(element<T>(dy, at.n, p, at.c)); });
        }
        sum.store(element<T>(dx, at.n, at.x, at.c));
    }
};

/* --- tile, untile --- */

struct Tile {
    Image x, y;
    int64_t extent[3]; /* of a subdomain */
    int64_t image[3], tiles[3];

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t number = at.n, from[3];
        bool inside = true;
#pragma unroll
        for (int i = 2; i >= 0; i--) {
            from[i] = number % tiles[i] * extent[i] + at.x[i];
            number /= tiles[i];
            inside = inside && from[i] < image[i];
        }
        Vec<T, V> v = {};
        if (inside)
            v.load(element<T>(x, number, from, at.c));
        v.store(element<T>(y, at.n, at.x, at.c));
    }
};

struct Untile {
    Image x, y;
    int64_t extent[3], tiles[3];

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t number = at.n, from[3];
#pragma unroll
        for (int i = 0; i < 3; i++) {
            number = number * tiles[i] + at.x[i] / extent[i];
            from[i] = at.x[i] % extent[i];
        }
        Vec<T, V> v;
        v.load(element<T>(x, number, from, at.c));
        v.store(element<T>(y, at.n, at.x, at.c));
    }
};

/* --- upsample --- */

struct UpAxis {
    struct wf_up_axis at;

    /* A range of results that has all that take p, and a few more at its ends. */
    __device__ void taken_by(int64_t p, int64_t *lo, int64_t *hi) const
    {
        const int64_t step = at.step, steps = at.steps;
        const int64_t reach = wf_up_is_cubic(at.mode) ? 2 : 1; /* elements on either side */
        const bool corners = at.mode == WF_LINEAR_CORNERS || at.mode == WF_CUBIC_CORNERS;
        if (step == 0) { /* one element, with corners */
            *lo = 0;
            *hi = at.out;
        } else if (at.mode == WF_NEAREST) {
            *lo = p * steps / step;
            *hi = ((p + 1) * steps + step - 1) / step;
        } else if (at.mode == WF_NEAREST_EXACT) {
            *lo = floor_div(2 * p * steps - step, 2 * step);
            *hi = floor_div(2 * (p + 1) * steps - step, 2 * step) + 2;
        } else if (!corners) {
            *lo = floor_div((2 * (p - reach) + 1) * steps - step, 2 * step);
            *hi = floor_div((2 * (p + reach) + 1) * steps - step, 2 * step) + 2;
        } else {
            *lo = floor_div((p - reach) * steps, step);
            *hi = floor_div((p + reach) * steps, step) + 2;
        }
        /* The first and the last element also stand for what would lie past them. */
        *lo = p == 0 ? 0 : larger<int64_t>(0, *lo);
        *hi = larger(*lo, p == at.in - 1 ? at.out : smaller(at.out, *hi)); /* or none takes it */
    }
};

struct Upsample {
    Image x, y;
    UpAxis axis[3];

    template <class T, int V> __device__ void run(const Place &at) const
    {
        struct wf_up_source s[3];
        Sum<T, V> sum;
#pragma unroll
        for (int i = 0; i < 3; i++)
            s[i] = wf_up_source(axis[i].at, at.x[i]);
        for (int k = 0; k < 8; k++) {
            const bool far[3] = { (k & 4) != 0, (k & 2) != 0, (k & 1) != 0 };
            int64_t p[3];
            strict<T> weight = 1;
            bool taken = true;
#pragma unroll
            for (int i = 0; i < 3; i++) {
                p[i] = far[i] ? s[i].second : s[i].first;
                weight *= (strict<T>)(far[i] ? s[i].t : 1 - s[i].t);
                taken = taken && !(far[i] && s[i].second == s[i].first);
            }
            if (taken)
                sum.add(element<T>(x, at.n, p, at.c), weight);
        }
        sum.store(element<T>(y, at.n, at.x, at.c));
    }
};

/* All elements from the first to the last that are taken. */
struct UpsampleCubic {
    Image x, y;
    UpAxis axis[3];

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t lo[3], hi[3], p[3];
        Sum<T, V> sum;
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const struct wf_up_source s = wf_up_source(axis[i].at, at.x[i]);
            lo[i] = s.first;
            hi[i] = s.second;
        }
        for (p[0] = lo[0]; p[0] <= hi[0]; p[0]++) {
            const strict<T> d = (strict<T>)wf_up_share(axis[0].at, at.x[0], p[0]);
            for (p[1] = lo[1]; p[1] <= hi[1]; p[1]++) {
                const strict<T> h = d * (strict<T>)wf_up_share(axis[1].at, at.x[1], p[1]);
                for (p[2] = lo[2]; p[2] <= hi[2]; p[2]++)
                    sum.add(element<T>(x, at.n, p, at.c),
                            h * (strict<T>)wf_up_share(axis[2].at, at.x[2], p[2]));
            }
        }
        sum.store(element<T>(y, at.n, at.x, at.c));
    }
};

struct UpsampleGrad {
    Image dy, dx;
    UpAxis axis[3];

    template <class T, int V> __device__ void run(const Place &at) const
    {
        int64_t lo[3], hi[3], o[3];
        Sum<T, V> sum;
#pragma unroll
        for (int i = 0; i < 3; i++)
            axis[i].taken_by(at.x[i], &lo[i], &hi[i]);
        for (o[0] = lo[0]; o[0] < hi[0]; o[0]++) {
            const strict<T> d = (strict<T>)wf_up_share(axis[0].at, o[0], at.x[0]);
            for (o[1] = lo[1]; d != 0 && o[1] < hi[1]; o[1]++) {
                const strict<T> h = d * (strict<T>)wf_up_share(axis[1].at, o[1], at.x[1]);
                for (o[2] = lo[2]; h != 0 && o[2] < hi[2]; o[2]++) {
                    const strict<T> weight = h * (strict<T>)wf_up_share(axis[2].at, o[2], at.x[2]);
                    if (weight != 0)
                        sum.add(element<T>(dy, at.n, o, at.c), weight);
                }
            }
        }
        sum.store(element<T>(dx, at.n, at.x, at.c));
    }
    /* By all threads of a block. */
    template <class T, int V> __device__ void run_block(const Place &at) const
    {
        int64_t lo[3], hi[3], o[3];
        Sum<T, V> sum;
        double of_block[V];
#pragma unroll
        for (int i = 0; i < 3; i++)
            axis[i].taken_by(at.x[i], &lo[i], &hi[i]);
        const int64_t high = hi[1] - lo[1], wide = hi[2] - lo[2], all = (hi[0] - lo[0]) * high * wide;
        for (int64_t i = threadIdx.x; i < all; i += THREADS) {
            o[0] = lo[0] + i / (high * wide);
            o[1] = lo[1] + i / wide % high;
            o[2] = lo[2] + i % wide;
            strict<T> weight = 1;
#pragma unroll
            for (int k = 0; k < 3; k++)
                weight *= (strict<T>)wf_up_share(axis[k].at, o[k], at.x[k]);
            if (weight != 0)
                sum.add(element<T>(dy, at.n, o, at.c), weight);
        }
#pragma unroll
        for (int j = 0; j < V; j++)
            of_block[j] = (double)sum.at[j];
        block_sum(of_block);
#pragma unroll
        for (int j = 0; j < V; j++)
            sum.at[j] = (strict<T>)of_block[j];
        if (threadIdx.x == 0)
            sum.store(element<T>(dx, at.n, at.x, at.c));
    }
};

/* A block for V channels of a position. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS) upsample_grad_blocks(const Grid g, const UpsampleGrad f)
{
    f.template run_block<T, V>(place_of<V>(g, blockIdx.x));
}

/* --- broadcast --- */

struct Broadcast {
    Image x, y;
    double factor;

    template <class T, int V> __device__ void run(const Place &at) const
    {
        const int64_t origin[3] = { 0, 0, 0 };
        Vec<T, V> v;
        v.load(element<T>(x, at.n, origin, at.c));
#pragma unroll
        for (int j = 0; j < V; j++)
            v.set(j, (arith<T>)factor * v.get(j));
        v.store(element<T>(y, at.n, at.x, at.c));
    }
};

template <class P> static P pad_of(const struct wf_call *call, const struct wf_shape &image)
{
    const struct wf_pad_attrs *a = (const struct wf_pad_attrs *)call->node->attrs;
    P p = { image_of(call->in[0]), image_of(call->out[0]), {}, (int)a->mode };
    for (int i = 0; i < WF_AXES; i++)
        p.axis[i] = PadAxis{ a->lo[i], a->hi[i], image.at[i] };
    return p;
}

template <class U>
static U upsample_of(const struct wf_call *call, const struct wf_shape &in,
                     const struct wf_shape &out)
{
    const struct wf_upsample_attrs *a = (const struct wf_upsample_attrs *)call->node->attrs;
    U u = { image_of(call->in[0]), image_of(call->out[0]), {} };
    for (int i = 0; i < 3; i++)
        u.axis[i] = UpAxis{ wf_up_axis(a, i, in.at[WF_D + i], out.at[WF_D + i]) };
    return u;
}

template <class F> static void in_and_out(const struct wf_call *call, const F &f)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    spatial_call(call, views, 2, f);
}

} // namespace wf

using namespace wf;

void wf_cuda_pad(const struct wf_call *call)
{
    const struct wf_pad_attrs *a = (const struct wf_pad_attrs *)call->node->attrs;
    spatial_move(call, a->lo[WF_C] == 0 && a->hi[WF_C] == 0,
                 pad_of<Pad>(call, call->node->in[0]->shape));
}

void wf_cuda_pad_grad(const struct wf_call *call)
{
    in_and_out(call, pad_of<PadGrad>(call, call->node->out[0]->shape));
}

void wf_cuda_tile(const struct wf_call *call)
{
    const struct wf_tile_attrs *a = (const struct wf_tile_attrs *)call->node->attrs;
    Tile t = { image_of(call->in[0]), image_of(call->out[0]), {}, {}, {} };
    for (int i = 0; i < 3; i++) {
        t.extent[i] = a->extent[i];
        t.image[i] = call->node->in[0]->shape.at[WF_D + i];
        t.tiles[i] = a->tiles[i];
    }
    spatial_move(call, true, t);
}

void wf_cuda_untile(const struct wf_call *call)
{
    const struct wf_tile_attrs *a = (const struct wf_tile_attrs *)call->node->attrs;
    Untile t = { image_of(call->in[0]), image_of(call->out[0]), {}, {} };
    for (int i = 0; i < 3; i++) {
        t.extent[i] = call->node->in[0]->shape.at[WF_D + i];
        t.tiles[i] = a->tiles[i];
    }
    spatial_move(call, true, t);
}

void wf_cuda_upsample(const struct wf_call *call)
{
    const struct wf_node *node = call->node;
    const struct wf_upsample_attrs *a = (const struct wf_upsample_attrs *)node->attrs;
    const struct wf_shape &in = node->in[0]->shape, &out = node->out[0]->shape;
    if (wf_up_is_cubic(a->mode))
        in_and_out(call, upsample_of<UpsampleCubic>(call, in, out));
    else
        in_and_out(call, upsample_of<Upsample>(call, in, out));
}

/* Few elements take so many results each that a thread for each would leave the GPU empty. By the whole shapes, so that
 * sums are the same however the image is cut. */
static bool is_coarse(const struct wf_shape &image, const struct wf_shape &result)
{
    enum { MANY = 64, FEW = 1 << 17 };
    int64_t taken = 1;
    for (int a = WF_D; a <= WF_W; a++)
        taken *= result.at[a] / image.at[a];
    return taken >= MANY && wf_shape_count(image) < FEW;
}

void wf_cuda_upsample_grad(const struct wf_call *call)
{
    const struct wf_shape &image = call->node->out[0]->shape, &result = call->node->in[0]->shape;
    const UpsampleGrad f = upsample_of<UpsampleGrad>(call, image, result);
    if (!is_coarse(image, result)) {
        in_and_out(call, f);
        return;
    }
    if (is_empty(call->work))
        return;
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        enum { V = Wide<T>::V };
        struct CUstream_st *const stream = wf_cuda_stream(call);
        const bool wide = spatial_takes(call->work, views, 2, V);
        const Grid g = grid_over(call->work, wide ? V : 1);
        if (wide)
            launch(upsample_grad_blocks<T, V>, (unsigned)g.count, THREADS, stream, g, f);
        else
            launch(upsample_grad_blocks<T, 1>, (unsigned)g.count, THREADS, stream, g, f);
    });
}

void wf_cuda_broadcast(const struct wf_call *call)
{
    const struct wf_spread_attrs *a = (const struct wf_spread_attrs *)call->node->attrs;
    in_and_out(call, Broadcast{ image_of(call->in[0]), image_of(call->out[0]), a->factor });
}
