/*
 * Where the gradient comes from that enters a normalisation: memory, or what would have made it, which
 * is then fused into its consumer (wf_kernel.fuses):
 *
 *     PlainDy  dy as it lies
 *     PoolDy   maxpool_grad over windows of [1|2,2,2]: the window's dy where the maximum was, plus
 *              what is added to it
 *     HeadDy   convt of 1x1: a sum over the few channels of a last layer
 *
 * Values are rounded as they would be in memory. A Dy is also the kernel's walk (OneByOne): a unit has
 * GROUP positions, the k-th from(k) elements behind the unit in x, to(k) in what is written, and there
 * where has() it. Columns' side 0 is x, from 1 on come the Dy's own, behind them what is written:
 *
 *     begin(g, lane)             once
 *     load<Fast>(g, offset, unit, l)
 *     get(l, k, u)               all channels of position k
 */
#pragma once

#include "device/cuda/norm.cuh"

namespace wf
{

/* What is the same for all that go position by position. */
struct SingleDy : OneByOne {
    enum { OWN = 1 /* sides */ };
    enum {
        DEPTH = 2,
        TOGETHER = 3
    }; /* in norm_grad: units in flight, blocks on a multiprocessor */

    template <bool Fast> __device__ static Offset<Fast> from(int)
    {
        return 0;
    }
    template <bool Fast> __device__ static Offset<Fast> to(int)
    {
        return 0;
    }
};

template <class T, int V> struct PlainDy : SingleDy {
    typedef Vec<T, V> Loaded;

    __device__ void begin(const Columns &, const Lane &)
    {
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> *offset, int64_t, Loaded &l) const
    {
        l.load((const T *)g.data[1] + offset[1]);
    }
    __device__ static bool has(const Loaded &, int)
    {
        return true;
    }
    __device__ void get(const Loaded &l, int, arith<T> (&u)[V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++)
            u[j] = l.get(j);
    }
};

struct Pooled {
    Corner x, plus, out;
    int32_t deep;                   /* windows have two layers */
    int32_t has_plus;               /* something is added */
    int32_t whole;                  /* the work begins and ends with windows */
    int64_t lo[3], hi[3], first[3]; /* of the work; its first window */
    Divisor extent[3];              /* windows that the work touches */
    int64_t count[3];               /* windows of the image */
};

/* A unit is a layer of a window: its dy and the places of its maxima are read once for 4 positions. */
template <class T, int V> struct PoolDy {
    enum { GROUP = 4, OWN = 3, DEPTH = 1, TOGETHER = 2 };
    enum { PLUS = 1, POOLED, INDEX, OUT };
    struct Loaded {
        Vec<T, V> plus[GROUP], dy;
        Vec<uint8_t, V> index;
        int place;     /* of the unit's first position; below -3: in no window */
        unsigned mask; /* which positions are the work's */
    };
    Pooled pool;

    __device__ void begin(const Columns &, const Lane &)
    {
    }
    bool fast(const Columns &g) const
    {
        return g.small && pool.whole;
    }
    __device__ int64_t count(const Columns &g) const
    {
        return g.positions.count << pool.deep;
    }
    template <bool Fast> __device__ Offset<Fast> from(int k) const
    {
        return (Offset<Fast>)pool.x.at(k);
    }
    template <bool Fast> __device__ Offset<Fast> to(int k) const
    {
        return (Offset<Fast>)pool.out.at(k);
    }
    template <bool Fast, int N>
    __device__ void at(const Columns &g, const Lane &lane, int64_t unit,
                       Offset<Fast> (&offset)[N]) const
    {
        if constexpr (Fast)
            g.positions.at<false>((uint32_t)unit >> pool.deep, offset);
        else
            g.positions.at(unit >> pool.deep, offset);
        OneByOne::to_lane<Fast>(g, lane, offset);
        if (unit & pool.deep) {
            offset[0] += (Offset<Fast>)pool.x.d;
            offset[PLUS] += (Offset<Fast>)pool.plus.d;
            if constexpr (N > OUT)
                offset[OUT] += (Offset<Fast>)pool.out.d;
        }
    }
    /* Of a work that cuts windows; false where the unit's lies behind the last one. */
    __device__ bool find(int64_t unit, unsigned *mask) const
    {
        int64_t rest = unit >> pool.deep, at[3];
        bool there = true;
#pragma unroll
        for (int i = 2; i >= 0; i--) {
            pool.extent[i].divide(rest, &rest, &at[i]);
            at[i] += pool.first[i];
            there = there && at[i] < pool.count[i];
        }
        const int64_t d = pool.deep ? 2 * at[0] + (unit & 1) : at[0];
        *mask = 0;
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            const int64_t h = 2 * at[1] + k / 2, w = 2 * at[2] + k % 2;
            if (d >= pool.lo[0] && d < pool.hi[0] && h >= pool.lo[1] && h < pool.hi[1] &&
                w >= pool.lo[2] && w < pool.hi[2])
                *mask |= 1u << k;
        }
        return there;
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> *offset, int64_t unit,
                         Loaded &l) const
    {
        l.mask = (1u << GROUP) - 1;
        l.place = (unit & pool.deep) ? (int)GROUP : 0;
        l.dy = {};
        l.index = {};
        bool there = true;
        if constexpr (!Fast)
            there = pool.whole || find(unit, &l.mask);
        if (there) {
            l.dy.load((const T *)g.data[POOLED] + offset[POOLED]);
            l.index.load((const uint8_t *)g.data[INDEX] + offset[INDEX]);
        } else
            l.place = -(int)GROUP;
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            l.plus[k] = {};
            if (pool.has_plus && has(l, k))
                l.plus[k].load((const T *)g.data[PLUS] +
                               (offset[PLUS] + (Offset<Fast>)pool.plus.at(k)));
        }
    }
    __device__ static bool has(const Loaded &l, int k)
    {
        return l.mask >> k & 1;
    }
    __device__ void get(const Loaded &l, int k, arith<T> (&u)[V]) const
    {
        Vec<T, V> sum;
#pragma unroll
        for (int j = 0; j < V; j++)
            u[j] = l.plus[k].get(j) + l.dy.get(j);
        sum.set_all(u);
#pragma unroll
        for (int j = 0; j < V; j++)
            u[j] = (int)l.index.at(j) == l.place + k ? sum.get(j) : l.plus[k].get(j);
    }
};

enum { HEAD_MOST = 4 }; /* channels of a last layer */

template <class T, int V, int K> struct HeadDy : SingleDy {
    enum { TOGETHER = 2 };
    struct Loaded {
        T d[K];
    };
    const T *weights; /* [k][c] */
    int64_t row, column, step;
    int32_t channels;
    float w[K][V];

    __device__ void begin(const Columns &g, const Lane &lane)
    {
#pragma unroll
        for (int k = 0; k < K; k++)
#pragma unroll
            for (int j = 0; j < V; j++)
                w[k][j] = k < channels && lane.active
                              ? to_arith(weights[k * row + (g.first_channel + lane.c + j) * column])
                              : 0.0f;
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> *offset, int64_t, Loaded &l) const
    {
        const T *const at = (const T *)g.data[1] + offset[1];
#pragma unroll
        for (int k = 0; k < K; k++)
            l.d[k] = k < channels ? at[k * step] : T();
    }
    __device__ static bool has(const Loaded &, int)
    {
        return true;
    }
    __device__ void get(const Loaded &l, int, arith<T> (&u)[V]) const
    {
        Vec<T, V> sum;
#pragma unroll
        for (int j = 0; j < V; j++) {
            strict<T> all = to_strict(l.d[0]) * (strict<T>)w[0][j];
#pragma unroll
            for (int k = 1; k < K; k++)
                all = fma_of(to_strict(l.d[k]), (strict<T>)w[k][j], all);
            u[j] = (arith<T>)all;
        }
        sum.set_all(u);
#pragma unroll
        for (int j = 0; j < V; j++)
            u[j] = sum.get(j);
    }
};

/* --- on the host: a source makes the Dy of a kernel --- */

/* `units` is the region of the walk, image() a side that has the work's positions, and takes() whether
 * a unit's positions leave it aligned for v channels at once. */
template <class T> struct SingleSource {
    typedef T type;
    struct wf_region units;
    unsigned loose;
    Side own[1];

    Side image(const struct wf_view &view) const
    {
        return side_at(view, units.lo);
    }
    bool takes(const struct wf_view &, int) const
    {
        return true;
    }
};

template <class T> struct PlainSource : SingleSource<T> {
    template <int V> using Dy = PlainDy<T, V>;

    template <int V> Dy<V> dy() const
    {
        return {};
    }
};

template <class T, int K> struct HeadSource : SingleSource<T> {
    template <int V> using Dy = HeadDy<T, V, K>;
    const struct wf_view *w;
    int64_t step;

    template <int V> Dy<V> dy() const
    {
        const Table t = table_of(*w);
        Dy<V> d = {};
        d.weights = (const T *)t.data;
        d.row = t.row;
        d.column = t.column;
        d.step = step;
        d.channels = (int32_t)w->box.hi[WF_N];
        return d;
    }
};

template <class T> struct PoolSource {
    typedef T type;
    template <int V> using Dy = PoolDy<T, V>;
    struct wf_region units;
    unsigned loose;
    Side own[3];
    Pooled pool;

    /* From corner to corner; the first may lie in front of the work. */
    Side image(const struct wf_view &view) const
    {
        int64_t corner[WF_AXES];
        for (int a = 0; a < WF_AXES; a++)
            corner[a] = units.lo[a] * factor(a);
        Side s = side_at(view, corner);
        for (int a = WF_D; a <= WF_W; a++)
            s.stride[a] *= factor(a);
        return s;
    }
    int factor(int axis) const
    {
        return axis == WF_H || axis == WF_W || (axis == WF_D && pool.deep) ? 2 : 1;
    }
    bool takes(const struct wf_view &view, int v) const
    {
        return corner_of(view).takes(v) && pool.plus.takes(v);
    }
    template <int V> Dy<V> dy() const
    {
        return { pool };
    }
};

template <class T>
PoolSource<T> pool_source(const struct wf_call *call, const struct wf_fused_input &from)
{
    const struct wf_pool_attrs *a = (const struct wf_pool_attrs *)from.node->attrs;
    const struct wf_view &plus = from.in[2].data ? from.in[2] : call->in[X];
    PoolSource<T> s = { call->work, 0, {}, {} };
    s.pool.x = corner_of(call->in[X]);
    s.pool.plus = corner_of(plus);
    s.pool.out = corner_of(call->out[0]);
    s.pool.deep = a->kernel[0] == 2;
    s.pool.has_plus = from.in[2].data != NULL;
    s.pool.whole = 1;
    for (int i = 0; i < 3; i++) {
        const int axis = WF_D + i, by = s.factor(axis);
        s.pool.lo[i] = call->work.lo[axis];
        s.pool.hi[i] = call->work.hi[axis];
        s.pool.count[i] = from.node->in[0]->shape.at[axis];
        s.pool.first[i] = s.units.lo[axis] = s.pool.lo[i] / by;
        s.units.hi[axis] = ceil_div(s.pool.hi[i], by);
        if (s.pool.lo[i] % by || s.pool.hi[i] % by || s.units.hi[axis] > s.pool.count[i])
            s.pool.whole = 0;
    }
    const struct wf_shape extent = extents(s.units);
    for (int i = 0; i < 3; i++)
        s.pool.extent[i] = divisor(extent.at[WF_D + i], wf_shape_count(extent) / extent.at[WF_C]);
    s.own[0] = s.image(plus);
    s.own[1] = side_at(from.in[0], s.units.lo);
    s.own[2] = side_at(from.in[1], s.units.lo);
    return s;
}

template <class T, int K>
HeadSource<T, K> head_source(const struct wf_call *call, const struct wf_fused_input &from)
{
    int64_t lo[WF_AXES];
    memcpy(lo, call->work.lo, sizeof lo);
    lo[WF_C] = 0;
    HeadSource<T, K> s = {};
    s.units = call->work;
    s.loose = 1u << 1;
    s.own[0] = side_at(from.in[0], lo);
    s.w = &from.in[1];
    s.step = from.in[0].stride[WF_C];
    return s;
}

/* f(source) for the call's dy. */
template <class F> void with_dy(const struct wf_call *call, F f)
{
    with_type(call->in[X].dtype, [&](auto t) {
        typedef decltype(t) T;
        const struct wf_fused_input *const from = call->fused ? &call->fused[DY] : NULL;
        if (!from || !from->node) {
            PlainSource<T> plain = {};
            plain.units = call->work;
            plain.own[0] = side_at(call->in[DY], call->work.lo);
            f(plain);
        } else if (from->in[1].dtype == WF_U8) /* the places of maxima, not weights */
            f(pool_source<T>(call, *from));
        else if (from->in[1].box.hi[WF_N] <= 2)
            f(head_source<T, 2>(call, *from));
        else
            f(head_source<T, HEAD_MOST>(call, *from));
    });
}

/* x, the source's own sides, and what is written, if anything is; returns how many. */
template <class Source>
int dy_sides(const struct wf_call *call, const Source &source, const struct wf_view *out,
             Side sides[])
{
    int n = 0;
    sides[n++] = source.image(call->in[X]);
    for (const Side &own : source.own)
        sides[n++] = own;
    if (out)
        sides[n++] = source.image(*out);
    return n;
}

/* Channels at a time: `wide` where all that has the work's positions lets them be taken so. */
template <class Source>
int dy_wide(const struct wf_call *call, const Source &source, const struct wf_view *out, int wide)
{
    return source.takes(call->in[X], wide) && (!out || source.takes(*out, wide)) ? wide : 1;
}

} // namespace wf
