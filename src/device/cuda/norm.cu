/*
 * Applying a normalisation with its activation, and the way back:
 *
 *     y  = act((x - mean) * scale + bias)                          scale = rstd * w
 *     dx = g * scale - k0 - (x - mean) * k1                        g = dy * act'(.)
 *     k0 = rstd * mean(g * w), k1 = rstd^2 * mean(g * w * xhat)    0 when the statistics are fixed
 */
#include "device/cuda/norm_dy.cuh"

namespace wf
{

enum { TOGETHER = 3 /* blocks on a multiprocessor */ };

template <int Depth, bool Fast, class T, int V>
__device__ inline void apply_at(const Columns &g, const Lane &lane, const Affine<strict<T>, V> &a,
                                strict<T> below, int64_t p)
{
    Vec<T, V> x[Depth];
    Offset<Fast> offset[Depth][2];
#pragma unroll
    for (int d = 0; d < Depth; d++) {
        OneByOne::at<Fast>(g, lane, p + d * lane.stride, offset[d]);
        x[d].load((const T *)g.data[0] + offset[d][0]);
    }
#pragma unroll
    for (int d = 0; d < Depth; d++) {
        a.apply_all(x[d], below);
        x[d].store((T *)g.data[1] + offset[d][1]);
    }
}

template <class T, int V, bool Fast>
__global__ void __launch_bounds__(THREADS, V > 1 && Fast ? TOGETHER : 2)
    norm_apply(const Columns g, const Norm norm)
{
    enum { DEPTH = 4 };
    typedef strict<T> A;
    __shared__ Staged<A, V> staged;
    const Lane lane(g);
    staged.fill(g, norm, g.first_row + blockIdx.z);
    if (!lane.active)
        return;
    Affine<A, V> a;
    a.take(g, staged);
    int64_t p = lane.first;
    for (; p + (DEPTH - 1) * lane.stride < g.count(); p += lane.stride * DEPTH)
        apply_at<DEPTH, Fast, T>(g, lane, a, (A)norm.below, p);
    for (; p < g.count(); p += lane.stride)
        apply_at<1, Fast, T>(g, lane, a, (A)norm.below, p);
}

/* Where k0 and k1 come from: q, or sums over groups that were made before (`means` [row][2][G]). */
struct Back {
    Norm norm;
    Table q;
    const double *means;
    double count;
    int64_t channels;
    int32_t fixed;
    int32_t counted; /* the count is in q, behind the sums */

    __device__ double total(int64_t r) const
    {
        const double there = counted ? q.get(r, 2 * channels) : count;
        return there > 1 ? there : 1;
    }

    template <class A>
    __device__ void factors(int64_t row, int64_t c, A rstd_of, A *k0, A *k1) const
    {
        *k0 = *k1 = 0;
        if (fixed)
            return;
        const int64_t r = norm.by_sample ? row : 0;
        const double rstd = (double)rstd_of;
        double g, gx;
        if (means) {
            const double *m = means + blockIdx.z * 2 * norm.groups;
            g = m[c / norm.width];
            gx = m[norm.groups + c / norm.width];
        } else {
            const double w = (double)norm.weight(c);
            g = w * q.get(r, c) / total(r);
            gx = w * q.get(r, channels + c) / total(r);
        }
        *k0 = (A)(rstd * g);
        *k1 = (A)(rstd * rstd * gx);
    }
};

/* ... and on the way back: k0 and k1. */
template <class A, int V> struct StagedBack {
    Staged<A, V> affine;
    A k[2][ACROSS_MOST * V];

    __device__ void fill(const Columns &g, const Back &back, int64_t row)
    {
        const int64_t first = (int64_t)blockIdx.y * g.across * V;
        affine.fill(g, back.norm, row);
        for (int i = (int)threadIdx.x; i < g.across * V && first + i < g.channels; i += THREADS)
            back.factors(row, g.first_channel + first + i, affine.at[RSTD][i], &k[0][i], &k[1][i]);
        __syncthreads();
    }
};

template <class A, int V> struct AffineBack {
    Affine<A, V> a;
    A k0[V], k1[V];

    __device__ AffineBack(const Columns &g, const StagedBack<A, V> &staged)
    {
        a.take(g, staged.affine);
        const int from = staged_from<V>(g);
#pragma unroll
        for (int j = 0; j < V; j++) {
            k0[j] = staged.k[0][from + j];
            k1[j] = staged.k[1][from + j];
        }
    }
};

template <int Depth, bool Fast, class T, int V, class Dy>
__device__ inline void back_at(const Columns &g, const Lane &lane,
                               const AffineBack<strict<T>, V> &b, const Dy &dy, strict<T> below,
                               int64_t p)
{
    typedef strict<T> A;
    enum { TO = 1 + Dy::OWN };
    Vec<T, V> x[Depth][Dy::GROUP];
    typename Dy::Loaded up[Depth];
    Offset<Fast> offset[Depth][TO + 1];
#pragma unroll
    for (int d = 0; d < Depth; d++) {
        dy.template at<Fast>(g, lane, p + d * lane.stride, offset[d]);
        dy.template load<Fast>(g, offset[d], p + d * lane.stride, up[d]);
#pragma unroll
        for (int k = 0; k < Dy::GROUP; k++)
            if (dy.has(up[d], k))
                x[d][k].load((const T *)g.data[0] + (offset[d][0] + dy.template from<Fast>(k)));
    }
#pragma unroll
    for (int d = 0; d < Depth; d++)
#pragma unroll
        for (int k = 0; k < Dy::GROUP; k++) {
            arith<T> u[V];
            if (!dy.has(up[d], k))
                continue;
            dy.get(up[d], k, u);
#pragma unroll
            for (int j = 0; j < V; j++) {
                const A t = (A)x[d][k].get(j) - b.a.mean[j], v = (A)u[j];
                const A gradient = fma_of(t, b.a.scale[j], b.a.bias[j]) > 0 ? v : v * below;
                u[j] = (arith<T>)(fma_of(gradient, b.a.scale[j], -b.k0[j]) - t * b.k1[j]);
            }
            x[d][k].set_all(u);
            x[d][k].store((T *)g.data[TO] + (offset[d][TO] + dy.template to<Fast>(k)));
        }
}

template <class T, int V, bool Fast, class Dy>
__global__ void __launch_bounds__(THREADS, V > 1 && Fast ? Dy::TOGETHER : 2)
    norm_back(const Columns g, const Back back, const Dy given)
{
    enum { DEPTH = Dy::DEPTH };
    typedef strict<T> A;
    __shared__ StagedBack<A, V> staged;
    const Lane lane(g);
    staged.fill(g, back, g.first_row + blockIdx.z);
    if (!lane.active)
        return;
    const AffineBack<A, V> b(g, staged);
    Dy dy = given;
    dy.begin(g, lane);
    const int64_t count = dy.count(g);
    int64_t p = lane.first;
    for (; p + (DEPTH - 1) * lane.stride < count; p += lane.stride * DEPTH)
        back_at<DEPTH, Fast, T>(g, lane, b, dy, (A)back.norm.below, p);
    for (; DEPTH > 1 && p < count; p += lane.stride)
        back_at<1, Fast, T>(g, lane, b, dy, (A)back.norm.below, p);
}

/* The means over a group of channels of g * w and g * w * xhat: one warp each. */
__global__ void __launch_bounds__(THREADS)
    group_means(const Back back, const int64_t first_row, const int64_t rows, double *means)
{
    const int64_t i = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const int64_t groups = back.norm.groups, width = back.norm.width;
    const bool mine = i < rows * 2 * groups;
    const int64_t row = i / (2 * groups), kind = i / groups % 2, group = i % groups;
    double sum = 0;
    for (int64_t k = threadIdx.x & 31; mine && k < width; k += 32) {
        const int64_t c = group * width + k, r = back.norm.by_sample ? first_row + row : 0;
        sum += (double)back.norm.weight(c) * back.q.get(r, kind * back.channels + c);
    }
    for (int m = 16; m > 0; m /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, m);
    if (mine && (threadIdx.x & 31) == 0)
        means[i] = sum / back.total(back.norm.by_sample ? first_row + row : 0);
}

/* `source` says where dy comes from (norm_dy.cuh). */
template <class Source>
static void back_run(const struct wf_call *call, const Back &back, const Source &source)
{
    typedef typename Source::type T;
    enum { V = Wide<T>::V };
    typedef typename Source::template Dy<V> Many;
    typedef typename Source::template Dy<1> One;
    Side sides[SIDES];
    const int n = dy_sides(call, source, &call->out[0], sides);
    Columns g = columns_over(source.units, norm_by_sample(call->node), sides, n,
                             dy_wide(call, source, &call->out[0], V), source.loose);
    g.there = rows_there(call);
    const dim3 grid = columns_grid(g, THREADS, 2, Many::TOGETHER * MULTIPROCESSORS);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    if (g.v > 1 && source.template dy<V>().fast(g))
        launch(norm_back<T, V, true, Many>, grid, THREADS, stream, g, back,
               source.template dy<V>());
    else if (g.v > 1)
        launch(norm_back<T, V, false, Many>, grid, THREADS, stream, g, back,
               source.template dy<V>());
    else
        launch(norm_back<T, 1, false, One>, grid, THREADS, stream, g, back,
               source.template dy<1>());
}

} // namespace wf

using namespace wf;

void wf_cuda_norm(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    const Side sides[2] = { side_at(call->in[X], call->work.lo),
                            side_at(call->out[0], call->work.lo) };
    const Norm norm = norm_of(call->node, call->in);
    with_type(sides[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        Columns g = columns_over(call->work, norm_by_sample(call->node), sides, 2, Wide<T>::V);
        g.there = rows_there(call);
        const dim3 grid = columns_grid(g, THREADS, 4, TOGETHER * MULTIPROCESSORS);
        if (g.v > 1 && OneByOne::fast(g))
            launch(norm_apply<T, Wide<T>::V, true>, grid, THREADS, wf_cuda_stream(call), g, norm);
        else if (g.v > 1)
            launch(norm_apply<T, Wide<T>::V, false>, grid, THREADS, wf_cuda_stream(call), g, norm);
        else
            launch(norm_apply<T, 1, false>, grid, THREADS, wf_cuda_stream(call), g, norm);
    });
}

bool wf_cuda_norm_grad_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)p->node->attrs;
    const int64_t rows = a->per_sample ? p->work.hi[WF_N] - p->work.lo[WF_N] : 1;
    if (!a->fixed && a->groups < p->node->in[X]->shape.at[WF_C] && rows > 0)
        p->scratch_bytes = (size_t)(rows * 2 * a->groups) * sizeof(double);
    return true;
}

void wf_cuda_norm_grad(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    const struct wf_norm_attrs *a = (const struct wf_norm_attrs *)call->node->attrs;
    struct CUstream_st *const stream = wf_cuda_stream(call);
    Back back = { norm_of(call->node, call->in),     table_of(call->in[Q]), NULL, (double)a->count,
                  call->node->in[X]->shape.at[WF_C], (int32_t)a->fixed,  wf_norm_counts(a) };
    if (!a->fixed && back.norm.width > 1) {
        const int64_t rows = a->per_sample ? call->work.hi[WF_N] - call->work.lo[WF_N] : 1;
        const int64_t first = a->per_sample ? call->work.lo[WF_N] : 0;
        launch(group_means, blocks_for(rows * 2 * a->groups, THREADS / 32), THREADS, stream, back,
               first, rows, (double *)call->scratch);
        back.means = (const double *)call->scratch;
    }
    with_dy(call, [&](const auto &dy) { back_run(call, back, dy); });
}
