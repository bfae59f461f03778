/*
 * Kernels that look at neighbours: one thread makes V channels of one position of the work and knows
 * where it stands in the image. What it does is a structure F with
 *
 *     template <class T, int V> void run(const Place &at) const;
 */
#pragma once

#include "device/cuda/device.cuh"

namespace wf
{

struct Place {
    int64_t n, x[3], c; /* x: d, h, w */
};

struct Grid {
    int64_t count; /* threads */
    int64_t lo[WF_AXES];
    Divisor extent[WF_AXES]; /* of C in vectors; the first one is not divided by */
};

template <int V> __device__ inline Place place_of(const Grid &g, int64_t rest)
{
    Place at;
    int64_t place;
    g.extent[WF_C].divide(rest, &rest, &place);
    at.c = g.lo[WF_C] + place * V;
#pragma unroll
    for (int i = 2; i >= 0; i--) {
        g.extent[WF_D + i].divide(rest, &rest, &place);
        at.x[i] = g.lo[WF_D + i] + place;
    }
    at.n = g.lo[WF_N] + rest;
    return at;
}

template <class T, int V, class F>
__global__ void __launch_bounds__(THREADS) spatial(const Grid g, const F f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < g.count)
        f.template run<T, V>(place_of<V>(g, i));
}

/* Element (n, x, c) of an image. */
template <class T> __device__ T *element(const Image &m, int64_t n, const int64_t x[3], int64_t c)
{
    return (T *)m.data + m.at(n, x[0], x[1], x[2]) + c * m.stride[WF_C];
}

/* f(p) for the positions p of a box, in order. */
template <class F> __device__ void over_box(const int64_t lo[3], const int64_t hi[3], F f)
{
    int64_t p[3];
    for (p[0] = lo[0]; p[0] < hi[0]; p[0]++)
        for (p[1] = lo[1]; p[1] < hi[1]; p[1]++)
            for (p[2] = lo[2]; p[2] < hi[2]; p[2]++)
                f(p);
}

/* Sums of V channels over neighbours. */
template <class T, int V> struct Sum {
    strict<T> at[V] = {};

    __device__ void add(const T *from, strict<T> weight = 1)
    {
        Vec<T, V> v;
        v.load(from);
#pragma unroll
        for (int j = 0; j < V; j++)
            at[j] += weight * (strict<T>)v.get(j);
    }
    __device__ void store(T *to, strict<T> factor = 1) const
    {
        Vec<T, V> v;
#pragma unroll
        for (int j = 0; j < V; j++)
            v.set(j, (arith<T>)(at[j] * factor));
        v.store(to);
    }
};

inline Grid grid_over(const struct wf_region &work, int v)
{
    Grid g = {};
    g.count = 1;
    for (int a = 0; a < WF_AXES; a++)
        g.count *= (work.hi[a] - work.lo[a]) / (a == WF_C ? v : 1);
    for (int a = 0; a < WF_AXES; a++) {
        g.lo[a] = work.lo[a];
        g.extent[a] = divisor((work.hi[a] - work.lo[a]) / (a == WF_C ? v : 1), g.count);
    }
    return g;
}

/* True when v channels from work.lo[C] on may be taken at once from each of the views. */
inline bool spatial_takes(const struct wf_region &work, const struct wf_view *const views[], int n,
                          int v)
{
    for (int i = 0; i < n; i++) {
        int64_t lo[WF_AXES];
        struct wf_shape extent = extents(views[i]->box);
        memcpy(lo, views[i]->box.lo, sizeof lo);
        lo[WF_C] = work.lo[WF_C];
        extent.at[WF_C] = work.hi[WF_C] - work.lo[WF_C];
        if (!takes_vectors(side_at(*views[i], lo), extent.at, v))
            return false;
    }
    return true;
}

template <class T, int V, class F>
void spatial_run(const struct wf_region &work, const F &f, struct CUstream_st *stream)
{
    const Grid g = grid_over(work, V);
    launch(spatial<T, V, F>, blocks_for(g.count, THREADS), THREADS, stream, g, f);
}

/* With float elements of in[0]'s type; `views` are those that are read or written by vectors. */
template <class F>
void spatial_call(const struct wf_call *call, const struct wf_view *const views[], int n,
                  const F &f)
{
    struct CUstream_st *const stream = wf_cuda_stream(call);
    if (is_empty(call->work))
        return;
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        if (spatial_takes(call->work, views, n, Wide<T>::V))
            spatial_run<T, Wide<T>::V>(call->work, f, stream);
        else
            spatial_run<T, 1>(call->work, f, stream);
    });
}

/* With elements that are only moved: words of their size. */
template <class F> void spatial_move(const struct wf_call *call, bool channels_stay, const F &f)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    struct CUstream_st *const stream = wf_cuda_stream(call);
    if (is_empty(call->work))
        return;
    switch (size_of(call->in[0].dtype)) {
    case 1:
        spatial_run<uint8_t, 1>(call->work, f, stream);
        break;
    case 2:
        if (channels_stay && spatial_takes(call->work, views, 2, 8))
            spatial_run<uint16_t, 8>(call->work, f, stream);
        else
            spatial_run<uint16_t, 1>(call->work, f, stream);
        break;
    case 4:
        if (channels_stay && spatial_takes(call->work, views, 2, 4))
            spatial_run<uint32_t, 4>(call->work, f, stream);
        else
            spatial_run<uint32_t, 1>(call->work, f, stream);
        break;
    default:
        spatial_run<uint64_t, 1>(call->work, f, stream);
    }
}

} // namespace wf
