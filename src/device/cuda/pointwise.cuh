/*
 * One kernel for all operators that go element by element. An operator is a structure F with
 *
 *     enum { IN = inputs, INDEXED = 1 where it wants the element's index in the whole tensor };
 *     template <class A, int V> void apply(const A (&x)[IN][V], int64_t index, A (&y)[V]) const;
 *
 * Sides are the inputs, then the output, then the index (a side without memory).
 */
#pragma once

#include "device/cuda/flat.cuh"

namespace wf
{

template <class TI, class TO, int V, bool OneRow, class F>
__global__ void __launch_bounds__(THREADS) pointwise(const Flat s, const F f)
{
    enum { IN = F::IN, N = IN + 1 + F::INDEXED, AT_ONCE = 4 };
    typedef strict<TI> A;
    const int64_t total = s.rows.count * s.vectors;
    const int64_t first = (int64_t)blockIdx.x * (THREADS * AT_ONCE) + threadIdx.x;
    Vec<TI, V> in[AT_ONCE][IN];
    int64_t offset[AT_ONCE][N];
    int have[AT_ONCE];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
        const int64_t i = first + u * THREADS;
        have[u] = i < total ? s.at<OneRow>(i, V, offset[u]) : 0;
#pragma unroll
        for (int k = 0; k < IN; k++)
            if (have[u] == V)
                in[u][k].load((const TI *)s.data[k] + offset[u][k]);
    }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
        const int64_t index = F::INDEXED ? offset[u][N - 1] : 0;
        if (have[u] == V) {
            A x[IN][V], y[V];
            Vec<TO, V> out;
#pragma unroll
            for (int k = 0; k < IN; k++)
#pragma unroll
                for (int j = 0; j < V; j++)
                    x[k][j] = in[u][k].get(j);
            f.template apply<A, V>(x, index, y);
#pragma unroll
            for (int j = 0; j < V; j++)
                out.set(j, (arith<TO>)y[j]);
            out.store((TO *)s.data[IN] + offset[u][IN]);
        } else {
            for (int j = 0; j < have[u]; j++) {
                A x[IN][1], y[1];
                for (int k = 0; k < IN; k++)
                    x[k][0] = to_arith(((const TI *)s.data[k])[offset[u][k] + j]);
                f.template apply<A, 1>(x, index + j, y);
                ((TO *)s.data[IN])[offset[u][IN] + j] = To<TO>::from((arith<TO>)y[0]);
            }
        }
    }
}

/* Different dtypes, in f64. */
template <class F> __global__ void __launch_bounds__(THREADS) pointwise_any(const Flat s, const F f)
{
    enum { IN = F::IN, N = IN + 1 + F::INDEXED };
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= s.rows.count * s.inner)
        return;
    int64_t offset[N];
    s.at(i, 1, offset);
    double x[IN][1], y[1];
    for (int k = 0; k < IN; k++)
        x[k][0] = any_get(s.dtype[k], s.data[k], offset[k]);
    f.template apply<double, 1>(x, F::INDEXED ? offset[N - 1] : 0, y);
    any_put(s.dtype[IN], s.data[IN], offset[IN], y[0]);
}

template <class TI, class TO, int V, class F>
void pointwise_wide(Flat s, const F &f, struct CUstream_st *stream)
{
    flat_cut(&s, V);
    const dim3 grid = blocks_for(s.rows.count * s.vectors, THREADS * 4);
    if (s.rows.n_axes == 0)
        launch(pointwise<TI, TO, V, true, F>, grid, THREADS, stream, s, f);
    else
        launch(pointwise<TI, TO, V, false, F>, grid, THREADS, stream, s, f);
}

/* The sides as above. */
template <class F>
void pointwise_run(const struct wf_shape &extent, const Side sides[], const F &f,
                   struct CUstream_st *stream)
{
    enum { IN = F::IN, N = IN + 1 + F::INDEXED };
    const Flat s = flat_over(extent, sides, N);
    const int to = s.dtype[IN];
    bool alike = to == WF_F32 || to == WF_BF16 || to == WF_F16;
    for (int k = 0; k < IN; k++)
        alike = alike && s.dtype[k] == to;
    /* In the same arithmetic wherever the elements lie: another cut must not change a bit. */
    if (alike)
        with_type(to, [&](auto t) {
            typedef decltype(t) T;
            if (flat_takes(s, N, Wide<T>::V))
                pointwise_wide<T, T, Wide<T>::V>(s, f, stream);
            else
                pointwise_wide<T, T, 1>(s, f, stream);
        });
    else
        launch(pointwise_any<F>, blocks_for(s.rows.count * s.inner, THREADS), THREADS, stream, s,
               f);
}

/* in[0 .. IN) and out[0] over the work. */
template <class F> void pointwise_call(const struct wf_call *call, const F &f)
{
    if (is_empty(call->work))
        return;
    Side sides[SIDES];
    for (int k = 0; k < F::IN; k++)
        sides[k] = side_at(call->in[k], call->work.lo);
    sides[F::IN] = side_at(call->out[0], call->work.lo);
    if (F::INDEXED) {
        const struct wf_shape &whole = call->node->out[0]->shape;
        Side *index = &sides[F::IN + 1];
        *index = Side{ NULL, WF_U8, {} };
        for (int64_t a = WF_AXES - 1, stride = 1; a >= 0; a--) {
            index->stride[a] = stride;
            stride *= whole.at[a];
        }
    }
    pointwise_run(extents(call->work), sides, f, wf_cuda_stream(call));
}

} // namespace wf
