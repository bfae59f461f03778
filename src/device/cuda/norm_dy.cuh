/*
 * Where the gradient comes from that enters a normalisation: memory, or what would have made it, which
 * is then computed on the way (wf_kernel.folds):
 *
 *     PlainDy  dy as it lies
 *     PoolDy   maxpool_grad over windows of [1|2,2,2]: the window's dy where the maximum was, plus
 *              what is added to it
 *     HeadDy   convt of 1x1: a sum over the few channels of a last layer
 *
 * Values are rounded as they would be in memory. A kernel holds a structure Dy and calls begin() once
 * and load(), get() for each position; Columns' side 1 belongs to it.
 */
#ifndef WF_DEVICE_CUDA_NORM_DY_CUH
#define WF_DEVICE_CUDA_NORM_DY_CUH

#include "device/cuda/norm.cuh"
#include "device/cuda/spatial.cuh"

namespace wf
{

template <class T, int V> struct PlainDy {
    typedef Vec<T, V> Loaded;

    __device__ void begin(const Columns &, const Lane &)
    {
    }
    __device__ void load(const T *at, int64_t, Loaded &l) const
    {
        l.load(at);
    }
    __device__ float get(const Loaded &l, int j) const
    {
        return l.get(j);
    }
};

/* The position in the work, where it lies in the pooled image, and what is there. */
struct Pooled {
    Image dy, index;
    int64_t lo[4]; /* of the work: n, d, h, w */
    Divisor extent[3];
    int64_t count[3]; /* windows */
    int32_t deep, has_plus, by_sample;
};

__device__ inline void divide(const Divisor &d, int64_t n, int64_t *quotient, int64_t *rest)
{
    d.divide(n, quotient, rest);
}

/* Where it is small. */
__device__ inline void divide(const Divisor &d, uint32_t n, uint32_t *quotient, uint32_t *rest)
{
    *quotient = (__umulhi(n, d.magic) + n) >> d.shift;
    *rest = n - *quotient * (uint32_t)d.by;
}

/* I is uint32_t where all offsets are below 2^31 (differences may wrap around on the way there): in 64
 * bits finding the window takes longer than the memory does. */
template <class T, int V, class I> struct PoolDy {
    struct Loaded {
        Vec<T, V> plus, dy;
        Vec<uint8_t, V> index;
        int place; /* in the window; -1: in none */
    };
    Pooled pool;
    I first_dy, first_index; /* of the thread's channels */

    __device__ void begin(const Columns &g, const Lane &lane)
    {
        const I c = (I)(g.first_channel + lane.c);
        first_dy = (I)pool.dy.base + c * (I)pool.dy.stride[WF_C];
        first_index = (I)pool.index.base + c * (I)pool.index.stride[WF_C];
    }
    __device__ static I offset(const Image &m, I n, const I (&o)[3])
    {
        return n * (I)m.stride[WF_N] + o[0] * (I)m.stride[WF_D] + o[1] * (I)m.stride[WF_H] +
               o[2] * (I)m.stride[WF_W];
    }
    __device__ void load(const T *at, int64_t p, Loaded &l) const
    {
        I x[3], rest = (I)p;
#pragma unroll
        for (int i = 2; i >= 0; i--) {
            divide(pool.extent[i], rest, &rest, &x[i]);
            x[i] += (I)pool.lo[1 + i];
        }
        const I n = (I)pool.lo[0] + (pool.by_sample ? (I)blockIdx.z : rest);
        const I o[3] = { x[0] >> pool.deep, x[1] >> 1, x[2] >> 1 };
        l.place = (int)((x[0] & (I)pool.deep) * 4 + (x[1] & 1) * 2 + (x[2] & 1));
        if (pool.has_plus)
            l.plus.load(at);
        else
            l.plus = {};
        if (o[0] < (I)pool.count[0] && o[1] < (I)pool.count[1] && o[2] < (I)pool.count[2]) {
            l.dy.load((const T *)pool.dy.data + (I)(first_dy + offset(pool.dy, n, o)));
            l.index.load((const uint8_t *)pool.index.data +
                         (I)(first_index + offset(pool.index, n, o)));
        } else {
            l.dy = {};
            l.index = {};
            l.place = -1;
        }
    }
    __device__ float get(const Loaded &l, int j) const
    {
        const float plus = l.plus.get(j);
        return (int)l.index.at(j) == l.place ? rounded<T>(plus + l.dy.get(j)) : plus;
    }
};

enum { HEAD_MOST = 4 }; /* channels of a last layer */

template <class T, int V, int K> struct HeadDy {
    struct Loaded {
        float d[K];
    };
    const T *weights; /* [k][c] */
    int64_t row, column, step;
    int32_t count;
    float w[K][V];

    __device__ void begin(const Columns &g, const Lane &lane)
    {
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int j = 0; j < V; j++)
                w[k][j] = k < count && lane.active
                              ? to_arith(weights[k * row + (g.first_channel + lane.c + j) * column])
                              : 0.0f;
    }
    __device__ void load(const T *at, int64_t, Loaded &l) const
    {
#pragma unroll
        for (int k = 0; k < K; k++)
            l.d[k] = k < count ? to_arith(at[k * step]) : 0.0f;
    }
    __device__ float get(const Loaded &l, int j) const
    {
        float sum = l.d[0] * w[0][j];
#pragma unroll
        for (int k = 1; k < K; k++)
            sum = fused(l.d[k], w[k][j], sum);
        return rounded<T>(sum);
    }
};

/* --- on the host: a source makes the Dy of a kernel --- */

template <class T> struct PlainSource {
    typedef T type;
    template <int V> using Dy = PlainDy<T, V>;
    Side side;
    unsigned loose;

    bool takes(int) const
    {
        return true;
    }
    template <int V> Dy<V> dy() const
    {
        return {};
    }
};

template <class T, class I> struct PoolSource {
    typedef T type;
    template <int V> using Dy = PoolDy<T, V, I>;
    Side side;
    unsigned loose;
    Pooled pool;
    const struct wf_region *work;
    const struct wf_view *views[2];

    bool takes(int v) const
    {
        return spatial_takes(*work, views, 2, v);
    }
    template <int V> Dy<V> dy() const
    {
        return { pool, 0, 0 };
    }
};

template <class T, int K> struct HeadSource {
    typedef T type;
    template <int V> using Dy = HeadDy<T, V, K>;
    Side side;
    unsigned loose;
    const struct wf_view *w;
    int64_t step;

    bool takes(int) const
    {
        return true;
    }
    template <int V> Dy<V> dy() const
    {
        const Table t = table_of(*w);
        return { (const T *)t.data, t.row, t.column, step, (int32_t)(w->box.hi[WF_N]), {} };
    }
};

/* Whether every offset in the view is below 2^31. */
inline bool is_small(const struct wf_view &view)
{
    int64_t most = 0;
    for (int a = 0; a < WF_AXES; a++) {
        if (view.stride[a] < 0 || view.box.hi[a] > INT32_MAX)
            return false;
        most += (view.box.hi[a] - view.box.lo[a]) * view.stride[a];
    }
    return most <= INT32_MAX;
}

template <class T, class I>
PoolSource<T, I> pool_source(const struct wf_call *call, const struct wf_folded &from)
{
    const struct wf_pool_attrs *a = (const struct wf_pool_attrs *)from.node->attrs;
    const struct wf_region &work = call->work;
    const struct wf_view &plus = from.in[2];
    PoolSource<T, I> s = { side_at(plus.data ? plus : call->in[X], work.lo),
                        0,
                        { image_of(from.in[0]), image_of(from.in[1]), {}, {}, {}, 0, 0, 0 },
                        &call->work,
                        { &from.in[0], &from.in[1] } };
    const int64_t positions = wf_shape_count(extents(work)) / (work.hi[WF_C] - work.lo[WF_C]);
    for (int i = 0; i < 4; i++)
        s.pool.lo[i] = work.lo[WF_N + i];
    for (int i = 0; i < 3; i++) {
        s.pool.extent[i] = divisor(work.hi[WF_D + i] - work.lo[WF_D + i], positions);
        s.pool.count[i] = from.node->in[0]->shape.at[WF_D + i];
    }
    s.pool.deep = a->kernel[0] == 2;
    s.pool.has_plus = plus.data != NULL;
    s.pool.by_sample = norm_by_sample(call->node);
    return s;
}

template <class T, int K>
HeadSource<T, K> head_source(const struct wf_call *call, const struct wf_folded &from)
{
    int64_t lo[WF_AXES];
    memcpy(lo, call->work.lo, sizeof lo);
    lo[WF_C] = 0;
    return { side_at(from.in[0], lo), 1u << 1, &from.in[1], from.in[0].stride[WF_C] };
}

template <class T, class F>
void with_head(const struct wf_call *call, const struct wf_folded &from, F f)
{
    if (from.in[1].box.hi[WF_N] <= 2)
        f(head_source<T, 2>(call, from));
    else
        f(head_source<T, HEAD_MOST>(call, from));
}

inline bool is_pool_small(const struct wf_call *call, const struct wf_folded &from)
{
    return wf_shape_count(extents(call->work)) <= INT32_MAX && is_small(from.in[0]) &&
           is_small(from.in[1]);
}

/* f(source) for the call's dy. */
template <class F> void with_dy(const struct wf_call *call, F f)
{
    with_type(call->in[X].dtype, [&](auto t) {
        typedef decltype(t) T;
        const struct wf_folded *const from = call->folded ? &call->folded[DY] : NULL;
        if (!from || !from->node)
            f(PlainSource<T>{ side_at(call->in[DY], call->work.lo), 0 });
        else if (from->in[1].dtype != WF_U8) /* weights, not the places of maxima */
            with_head<T>(call, *from, f);
        else if (is_pool_small(call, *from))
            f(pool_source<T, uint32_t>(call, *from));
        else
            f(pool_source<T, int64_t>(call, *from));
    });
}

} // namespace wf

#endif
