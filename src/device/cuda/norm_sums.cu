/* The sums of the gradients of normalisations. */
#include "device/cuda/norm_dy.cuh"
#include "device/cuda/sums.cuh"

namespace wf
{

/* g and g * xhat with g = dy * act'(z). Summed is g * (x - mean); 1 / sqrt(var) comes at the end. */
template <class T, int V, class Dy> struct NormSums {
    enum { SUMS = 2, IN = 1 + Dy::OWN, MOST_THREADS = sizeof(T) > 2 ? 1024 : 512 };
    enum { GROUP = Dy::GROUP };
    enum { DEPTH = Dy::GROUP > 1 ? 1 : sizeof(T) > 2 ? 2 : 6 };
    struct Loaded {
        Vec<T, V> x[Dy::GROUP];
        typename Dy::Loaded up;
    };
    typedef strict<T> A;
    Norm norm;
    Dy dy;
    Affine<A, V> a;
    A below;

    __device__ void begin(const Columns &g, const Lane &lane, int64_t row)
    {
        __shared__ Staged<A, V> staged;
        staged.fill(g, norm, row);
        a.take(g, staged);
        below = (A)norm.below;
        dy.begin(g, lane);
    }
    bool fast(const Columns &g) const
    {
        return dy.fast(g);
    }
    __device__ int64_t count(const Columns &g) const
    {
        return dy.count(g);
    }
    template <bool Fast, int N>
    __device__ void at(const Columns &g, const Lane &lane, int64_t unit,
                       Offset<Fast> (&offset)[N]) const
    {
        dy.template at<Fast>(g, lane, unit, offset);
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> (&offset)[IN], int64_t unit,
                         Loaded &l) const
    {
        dy.template load<Fast>(g, offset, unit, l.up);
#pragma unroll
        for (int k = 0; k < Dy::GROUP; k++)
            if (dy.has(l.up, k))
                l.x[k].load((const T *)g.data[0] + (offset[0] + dy.template from<Fast>(k)));
    }
    __device__ void add(const Loaded &l, A (&sum)[2][V]) const
    {
#pragma unroll
        for (int k = 0; k < Dy::GROUP; k++) {
            arith<T> up[V];
            if (!dy.has(l.up, k))
                continue;
            dy.get(l.up, k, up);
#pragma unroll
            for (int j = 0; j < V; j++) {
                const A t = (A)l.x[k].get(j) - a.mean[j], u = (A)up[j];
                const A d = fma_of(t, a.scale[j], a.bias[j]) > 0 ? u : u * below;
                sum[0][j] += d;
                sum[1][j] = fma_of(d, t, sum[1][j]);
            }
        }
    }
    __device__ void end(const Columns &g, const Lane &lane, int64_t row, double (&sum)[2][V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            float unused, rstd;
            norm.load(row, g.first_channel + lane.c + j, &unused, &rstd, &unused, &unused);
            sum[1][j] *= (double)rstd;
        }
    }
};

template <class T, int V, class Dy>
static void norm_sums_run(const struct wf_call *call, const Columns &g, const Dy &dy)
{
    const NormSums<T, V, Dy> f = { norm_of(call->node, call->in), dy, {}, 0 };
    Parts out = {};
    out.part = (double *)call->scratch;
    out.tickets = sums_tickets(call, g);
    out.out[0] = out.out[1] = table_of(call->out[0]);
    out.first[1] = call->node->in[X]->shape.at[WF_C];
    out.factor = 1;
    if (wf_norm_counts((const struct wf_norm_attrs *)call->node->attrs))
        out.count_at = 2 * out.first[1];
    sums_run<T, V>(g, f, out, wf_cuda_stream(call));
}

} // namespace wf

using namespace wf;

void wf_cuda_norm_grad_sums(const struct wf_call *call)
{
    const bool partial =
        call->work.hi[WF_C] - call->work.lo[WF_C] < call->node->in[X]->shape.at[WF_C];
    if (is_empty(call->work) || (partial && !norm_by_sample(call->node)))
        wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
    if (is_empty(call->work))
        return;
    with_dy(call, [&](const auto &source) {
        typedef typename std::decay<decltype(source)>::type::type T;
        Side sides[SIDES];
        const int n = dy_sides(call, source, NULL, sides);
        Columns g = columns_over(source.units, norm_by_sample(call->node), sides, n,
                                       dy_wide(call, source, NULL, SUM_V), source.loose);
        g.there = rows_there(call);
        if (g.v > 1)
            norm_sums_run<T, SUM_V>(call, g, source.template dy<SUM_V>());
        else
            norm_sums_run<T, 1>(call, g, source.template dy<1>());
    });
}
