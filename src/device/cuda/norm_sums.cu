/* The sums of the gradients of normalisations. */
#include "device/cuda/norm.cuh"
#include "device/cuda/sums.cuh"

namespace wf
{

/* g and g * xhat with g = dy * act'(z). Summed is g * (x - mean); 1 / sqrt(var) comes at the end. */
template <class T, int V> struct NormSums {
    enum { SUMS = 2, IN = 2, DEPTH = sizeof(T) > 2 ? 2 : 3 };
    struct Loaded {
        Vec<T, V> x, dy;
    };
    Norm norm;
    float mean[V], scale[V], bias[V];

    __device__ void begin(const Columns &g, const Lane &, int64_t row)
    {
        __shared__ Staged<V> staged;
        const int from = staged_from<V>(g);
        staged.fill(g, norm, row);
#pragma unroll
        for (int j = 0; j < V; j++) {
            mean[j] = staged.at[MEAN][from + j];
            scale[j] = staged.at[SCALE][from + j];
            bias[j] = staged.at[BIAS][from + j];
        }
    }
    __device__ void load(const Columns &g, const int64_t (&offset)[2], int64_t, Loaded &l) const
    {
        l.x.load((const T *)g.data[0] + offset[0]);
        l.dy.load((const T *)g.data[1] + offset[1]);
    }
    template <class A> __device__ void add(const Loaded &l, A (&sum)[2][V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++) {
            const float t = l.x.get(j) - mean[j], dy = l.dy.get(j);
            const float d = fused(t, scale[j], bias[j]) > 0 ? dy : dy * norm.below;
            sum[0][j] += (A)d;
            sum[1][j] = fused((A)d, (A)t, sum[1][j]);
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

template <class T, int V> static void norm_sums_run(const struct wf_call *call, const Columns &g)
{
    const NormSums<T, V> f = { norm_of(call), {}, {}, {} };
    Parts out = {};
    out.part = (double *)call->scratch;
    out.tickets = sums_tickets(call, g);
    out.out[0] = out.out[1] = table_of(call->out[0]);
    out.first[1] = call->node->in[X]->shape.at[WF_C];
    out.factor = 1;
    sums_run<T, V>(g, f, out, wf_cuda_stream(call));
}

} // namespace wf

using namespace wf;

void wf_cuda_norm_grad_sums(const struct wf_call *call)
{
    const bool partial =
        call->work.hi[WF_C] - call->work.lo[WF_C] < call->node->in[X]->shape.at[WF_C];
    if (is_empty(call->work) || (partial && !norm_by_sample(call)))
        wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
    if (is_empty(call->work))
        return;
    const Side sides[2] = { side_at(call->in[X], call->work.lo),
                            side_at(call->in[DY], call->work.lo) };
    with_type(sides[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        const Columns g = columns_over(call->work, norm_by_sample(call), sides, 2, SUM_V);
        if (g.v > 1)
            norm_sums_run<T, SUM_V>(call, g);
        else
            norm_sums_run<T, 1>(call, g);
    });
}
