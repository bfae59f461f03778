/*
 * A last layer: a 1x1 convolution to at most HEAD_MOST channels, and its weight gradient. Memory is all
 * that counts here, so x is read once; where it is a normalisation's result that was not made, what is
 * read is what it is made from (wf_kernel.fuses).
 *
 *     y[k]     = b[k] + sum over c of w[k][c] * x[c]
 *     dw[k][c] = sum over positions of dy[k] * x[c]
 */
#include "device/cuda/norm_dy.cuh"
#include "device/cuda/sums.cuh"

namespace wf
{

/* x on its way: an identity, or the normalisation that makes it. */
template <class T, int V, bool Fused> struct Source {
    Norm norm;
    Affine<strict<T>, V> a;

    /* All threads of the block come here. */
    __device__ void begin(const Columns &g, int64_t row)
    {
        if constexpr (Fused) {
            __shared__ Staged<strict<T>, V> staged;
            staged.fill(g, norm, row);
            a.take(g, staged);
        }
    }
    __device__ void make(Vec<T, V> &x) const
    {
        if constexpr (Fused)
            a.apply_all(x, (strict<T>)norm.below);
    }
};

struct Head {
    Table w, b;    /* b: no data where there is none */
    int64_t first; /* channel of y */
    int32_t count;
    int64_t step; /* between channels of y */

    __device__ float bias(int k) const
    {
        return b.data ? (float)b.get(0, first + k) : 0.0f;
    }
};

/* `across` threads, with V channels each, have a position and add up what they found. */
template <class T, int V, int K, bool Fast, bool Fused>
__global__ void __launch_bounds__(THREADS, 2)
    head_conv(const Columns g, const Head head, const Source<T, V, Fused> given)
{
    enum { DEPTH = sizeof(T) > 2 ? 4 : 6 };
    const Lane lane(g);
    Source<T, V, Fused> source = given;
    source.begin(g, g.first_row + blockIdx.z);
    typedef strict<T> A;
    A w[K][V];
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int j = 0; j < V; j++)
            w[k][j] = k < head.count && lane.active ? (A)head.w.get(head.first + k, lane.c + j) : 0;
    A bias[K];
#pragma unroll
    for (int k = 0; k < K; k++)
        bias[k] = k < head.count ? (A)head.bias(k) : 0;
    /* Whole warps go through: they exchange what they added. */
    const int64_t first = lane.first - (threadIdx.x & 31) / g.across;
    for (int64_t warp = first; warp < g.positions.count; warp += lane.stride * DEPTH) {
        const int64_t p = warp + (threadIdx.x & 31) / g.across;
        Vec<T, V> x[DEPTH];
        Offset<Fast> offset[DEPTH][2];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            x[d] = {};
            OneByOne::at<Fast>(g, lane, p + d * lane.stride, offset[d]);
            if (p + d * lane.stride < g.positions.count && lane.active)
                x[d].load((const T *)g.data[0] + offset[d][0]);
        }
        loads_come_first();
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            A sum[K] = {};
            source.make(x[d]);
#pragma unroll
            for (int j = 0; j < V; j++)
#pragma unroll
                for (int k = 0; k < K; k++)
                    sum[k] = fma_of((A)x[d].get(j), w[k][j], sum[k]);
            for (int m = 1; m < g.across; m *= 2)
#pragma unroll
                for (int k = 0; k < K; k++)
                    sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], m);
            if (p + d * lane.stride < g.positions.count && lane.c == 0)
#pragma unroll
                for (int k = 0; k < K; k++)
                    if (k < head.count)
                        ((T *)g.data[1])[offset[d][1] + k * head.step] =
                            To<T>::from((arith<T>)(sum[k] + bias[k]));
        }
    }
}

/* Where memory lies oddly: a position for each thread. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    head_conv_any(const Columns g, const Head head, const Norm norm, const int fused)
{
    typedef strict<T> A;
    const int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = g.first_row + blockIdx.z;
    int64_t offset[2];
    if (p >= g.positions.count)
        return;
    g.positions.at(p, offset);
    const T *const x = (const T *)g.data[0] + blockIdx.z * g.row[0] + offset[0];
    T *const y = (T *)g.data[1] + blockIdx.z * g.row[1] + offset[1];
    for (int k = 0; k < head.count; k++) {
        A sum = 0;
        for (int64_t c = 0; c < g.channels; c++) {
            A z = (A)to_arith(x[c * g.step[0]]);
            if (fused) {
                float mean, rstd, weight, bias;
                norm.load(row, c, &mean, &rstd, &weight, &bias);
                z = fma_of(z - (A)mean, (A)rstd * (A)weight, (A)bias);
                z = (A)to_arith(To<T>::from((arith<T>)(z > 0 ? z : z * (A)norm.below)));
            }
            sum = fma_of(z, (A)head.w.get(head.first + k, c), sum);
        }
        y[k * head.step] = To<T>::from((arith<T>)(sum + (A)head.bias(k)));
    }
}

/* The sums dy[k] * x[c] of each channel c. */
template <class T, int V, int K, bool Fused> struct HeadWeights : OneByOne {
    enum { SUMS = K, IN = 2, DEPTH = sizeof(T) > 2 ? 4 : 8 };
    enum { MOST_THREADS = sizeof(T) > 2 ? 1024 : 512 };
    struct Loaded {
        Vec<T, V> x;
        T d[K];
    };
    Source<T, V, Fused> source;
    int64_t step;
    int32_t channels;

    __device__ void begin(const Columns &g, const Lane &, int64_t row)
    {
        source.begin(g, row);
    }
    template <bool Fast>
    __device__ void load(const Columns &g, const Offset<Fast> (&offset)[2], int64_t,
                         Loaded &l) const
    {
        const T *const dy = (const T *)g.data[1] + offset[1];
        l.x.load((const T *)g.data[0] + offset[0]);
#pragma unroll
        for (int k = 0; k < K; k++)
            l.d[k] = k < channels ? dy[k * step] : T();
    }
    template <class A> __device__ void add(const Loaded &l, A (&sum)[K][V]) const
    {
        Vec<T, V> z = l.x;
        source.make(z);
#pragma unroll
        for (int j = 0; j < V; j++)
#pragma unroll
            for (int k = 0; k < K; k++)
                sum[k][j] = fma_of((A)z.get(j), (A)to_arith(l.d[k]), sum[k][j]);
    }
    __device__ void end(const Columns &, const Lane &, int64_t, double (&)[K][V]) const
    {
    }
};

/* Where x comes from: the call's first input, or the normalisation's that would make it. */
struct HeadInput {
    const struct wf_view *x;
    Norm norm;
    bool fused, by_sample;

    HeadInput(const struct wf_call *call) : x(&call->in[0]), norm{}, fused(false), by_sample(false)
    {
        const struct wf_fused_input *const from = call->fused ? &call->fused[0] : NULL;
        if (!from || !from->node)
            return;
        x = &from->in[X];
        norm = norm_of(from->node, from->in);
        fused = true;
        by_sample = norm_by_sample(from->node);
    }
};

/* The work's positions with all channels of x. */
static struct wf_region all_channels(const struct wf_region &work, const struct wf_view &x)
{
    struct wf_region r = work;
    r.lo[WF_C] = x.box.lo[WF_C];
    r.hi[WF_C] = x.box.hi[WF_C];
    return r;
}

template <class T, int V, int K, bool Fused>
static void head_run(const struct wf_call *call, const HeadInput &in, const Columns &g,
                     const Head &head)
{
    const Source<T, V, Fused> source = { in.norm, {} };
    const dim3 grid = columns_grid(g, THREADS, 4, 2 * MULTIPROCESSORS);
    if (OneByOne::fast(g))
        launch(head_conv<T, V, K, true, Fused>, grid, THREADS, wf_cuda_stream(call), g, head,
               source);
    else
        launch(head_conv<T, V, K, false, Fused>, grid, THREADS, wf_cuda_stream(call), g, head,
               source);
}

template <class T, int V, int K, bool Fused>
static void head_weights_run(const struct wf_call *call, const HeadInput &in, const Columns &g,
                             const Parts &out)
{
    const HeadWeights<T, V, K, Fused> f = { {},
                                            { in.norm, {} },
                                            call->in[1].stride[WF_C],
                                            (int32_t)(call->work.hi[WF_C] - call->work.lo[WF_C]) };
    sums_run<T, V>(g, f, out, wf_cuda_stream(call));
}

template <class T, int V, int K, bool Fused>
static void head_weights(const struct wf_call *call, const HeadInput &in)
{
    const struct wf_view &dy = call->in[1], &dw = call->out[0];
    const Side sides[2] = { side_at(*in.x, all_channels(call->work, *in.x).lo),
                            side_at(dy, call->work.lo) };
    const Columns g = columns_over(all_channels(call->work, *in.x), false, sides, 2, V, 1u << 1);
    Parts out = {};
    out.part = (double *)call->scratch;
    out.tickets = sums_tickets(call, g);
    out.factor = 1;
    const int32_t count = (int32_t)(call->work.hi[WF_C] - call->work.lo[WF_C]);
    for (int k = 0; k < count; k++) {
        out.out[k] = table_of(dw);
        out.out[k].data = (char *)out.out[k].data +
                          (call->work.lo[WF_C] + k) * out.out[k].row * (int64_t)size_of(dw.dtype);
    }
    if (g.v > 1)
        head_weights_run<T, V, K, Fused>(call, in, g, out);
    else
        head_weights_run<T, 1, K, Fused>(call, in, g, out);
}

/* f(whether x is fused), as a type. */
template <class F> static void with_fused(const HeadInput &in, F f)
{
    if (in.fused)
        f(std::true_type());
    else
        f(std::false_type());
}

} // namespace wf

using namespace wf;

void wf_cuda_head(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    const HeadInput in(call);
    const struct wf_region all = all_channels(call->work, *in.x);
    const Side sides[2] = { side_at(*in.x, all.lo), side_at(call->out[0], call->work.lo) };
    const Head head = { table_of(call->in[1]), table_of(call->in[2]), call->work.lo[WF_C],
                        (int32_t)(call->work.hi[WF_C] - call->work.lo[WF_C]),
                        call->out[0].stride[WF_C] };
    with_type(sides[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        enum { V = Wide<T>::V };
        const Columns g = columns_over(all, in.by_sample, sides, 2, V, 1u << 1);
        if (g.v == 1)
            launch(head_conv_any<T>,
                   dim3((unsigned)ceil_div(g.positions.count, THREADS), 1, (unsigned)g.rows),
                   THREADS, wf_cuda_stream(call), g, head, in.norm, (int)in.fused);
        else
            with_fused(in, [&](auto fused) {
                if (head.count <= 2)
                    head_run<T, V, 2, decltype(fused)::value>(call, in, g, head);
                else
                    head_run<T, V, HEAD_MOST, decltype(fused)::value>(call, in, g, head);
            });
    });
}

bool wf_cuda_head_wgrad_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes = sums_scratch(1, p->node->out[0]->shape.at[WF_C], HEAD_MOST);
    return true;
}

void wf_cuda_head_wgrad(const struct wf_call *call)
{
    const HeadInput in(call);
    const int64_t count = call->work.hi[WF_C] - call->work.lo[WF_C];
    if (is_empty(call->work) || count < call->node->in[1]->shape.at[WF_C])
        wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
    if (is_empty(call->work))
        return;
    with_type(in.x->dtype, [&](auto t) {
        typedef decltype(t) T;
        with_fused(in, [&](auto fused) {
            if (count <= 2)
                head_weights<T, SUM_V, 2, decltype(fused)::value>(call, in);
            else
                head_weights<T, SUM_V / 2, HEAD_MOST, decltype(fused)::value>(call, in);
        });
    });
}
