/* The optimiser's sweeps over flat storage: a block takes a piece, its threads 16 bytes at a time. */
#include "device/cuda/rows.cuh"
#include "device/update_rule.h"

namespace wf
{

/* What a launch is given. */
struct Sweep {
    struct wf_cuda_layout at;
    struct wf_update u;

    __device__ struct wf_rule rule(int tensor) const
    {
        struct wf_rule r = { u, 0, 0 };
        r.decay = at.tensors[tensor].decays ? r.u.decay : 0.0f;
        r.ratio = at.ratios[tensor];
        if (u.factor)
            r.u.scale = *u.factor;
        return r;
    }
    __device__ bool is_skipped() const
    {
        return u.factor && !isfinite(*u.factor);
    }
};

/* f(i, Int<4>()) where four elements from i on may be taken at once, f(i, Int<1>()) elsewhere. */
template <class F> __device__ void over_piece(const struct wf_update_piece &piece, F f)
{
    const bool aligned = piece.first % 4 == 0;
    const int64_t wide = aligned ? piece.count / 4 * 4 : 0;
    for (int64_t i = (int64_t)threadIdx.x * 4; i < wide; i += THREADS * 4)
        f(piece.first + i, Int<4>());
    for (int64_t i = wide + threadIdx.x; i < piece.count; i += THREADS)
        f(piece.first + i, Int<1>());
}

template <int N> __device__ void read(const float *from, int64_t i, float (&x)[N])
{
    Vec<float, N> v;
    v.load(from + i);
#pragma unroll
    for (int j = 0; j < N; j++)
        x[j] = v.at(j);
}
template <int N> __device__ void write(float *to, int64_t i, const float (&x)[N])
{
    Vec<float, N> v;
#pragma unroll
    for (int j = 0; j < N; j++)
        v.put(j, x[j]);
    v.store(to + i);
}

template <int Kind, bool First, bool Second>
__global__ void __launch_bounds__(THREADS) sweep(const Sweep s)
{
    if (s.is_skipped())
        return;
    const struct wf_update_piece piece = s.at.pieces[blockIdx.x];
    const struct wf_rule r = s.rule(piece.tensor);
    over_piece(piece, [&](int64_t i, auto n) {
        enum { N = decltype(n)::value };
        float p[N], g[N], s0[N] = {}, s1[N] = {};
        read(s.u.param, i, p);
        read(s.u.grad, i, g);
        if (First)
            read(s.u.state[0], i, s0);
        if (Second)
            read(s.u.state[1], i, s1);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const struct wf_element e = wf_update_element((enum wf_optim_rule)Kind, Second, &r,
                                                          g[j], wf_element{ p[j], s0[j], s1[j] });
            p[j] = e.p;
            s0[j] = e.s0;
            s1[j] = e.s1;
        }
        write(s.u.param, i, p);
        if (First && Kind != WF_LAMB)
            write(s.u.state[0], i, s0);
        if (Second && Kind != WF_LAMB)
            write(s.u.state[1], i, s1);
    });
}

/* Squares of each piece's parameters, and of its gradients (LARS) or updates (LAMB). */
template <bool Lamb> __global__ void __launch_bounds__(THREADS) norms(const Sweep s)
{
    if (s.is_skipped())
        return;
    const struct wf_update_piece piece = s.at.pieces[blockIdx.x];
    const struct wf_rule r = s.rule(piece.tensor);
    double sum[2] = {};
    over_piece(piece, [&](int64_t i, auto n) {
        enum { N = decltype(n)::value };
        float p[N], g[N], s0[N], s1[N];
        read(s.u.param, i, p);
        read(s.u.grad, i, g);
        if (Lamb) {
            read(s.u.state[0], i, s0);
            read(s.u.state[1], i, s1);
        }
#pragma unroll
        for (int j = 0; j < N; j++) {
            float other = g[j];
            if (Lamb) {
                const struct wf_element e =
                    wf_update_moments(&r, g[j], wf_element{ p[j], s0[j], s1[j] }, &other);
                s0[j] = e.s0;
                s1[j] = e.s1;
            }
            sum[0] += (double)p[j] * (double)p[j];
            sum[1] += (double)other * (double)other;
        }
        if (Lamb) {
            write(s.u.state[0], i, s0);
            write(s.u.state[1], i, s1);
        }
    });
    block_sum(sum);
    if (threadIdx.x == 0) {
        const double scale = Lamb ? 1.0 : (double)r.u.scale;
        s.at.sums[2 * blockIdx.x] = sum[0];
        s.at.sums[2 * blockIdx.x + 1] = sum[1] * scale * scale;
    }
}

/* The trust ratio of each tensor, from its pieces in order. */
__global__ void __launch_bounds__(THREADS) ratios(const Sweep s)
{
    const int t = (int)blockIdx.x * THREADS + (int)threadIdx.x;
    if (t >= s.at.n_tensors)
        return;
    const struct wf_update_tensor tensor = s.at.tensors[t];
    double p = 0, other = 0;
    for (int i = tensor.first_piece; i < tensor.first_piece + tensor.n_pieces; i++) {
        p += s.at.sums[2 * i];
        other += s.at.sums[2 * i + 1];
    }
    s.at.ratios[t] = wf_update_ratio(&s.u, tensor.decays, sqrt(p), sqrt(other));
}

__global__ void __launch_bounds__(THREADS)
    squares(const struct wf_cuda_layout at, const float *grad)
{
    const struct wf_update_piece piece = at.pieces[blockIdx.x];
    double sum[1] = {};
    over_piece(piece, [&](int64_t i, auto n) {
        enum { N = decltype(n)::value };
        float g[N];
        read(grad, i, g);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[0] += (double)g[j] * (double)g[j];
    });
    block_sum(sum);
    if (threadIdx.x == 0)
        at.sums[blockIdx.x] = sum[0];
}

__global__ void __launch_bounds__(THREADS)
    add_squares(const struct wf_cuda_layout at, double *result)
{
    double sum[1] = {};
    for (int i = (int)threadIdx.x; i < at.n_pieces; i += THREADS)
        sum[0] += at.sums[i];
    block_sum(sum);
    if (threadIdx.x == 0)
        *result = sum[0];
}

__global__ void find_factor(const double *sum, double scale, double clip, float *factor)
{
    *factor = isfinite(*sum) ? (float)wf_update_factor(*sum, scale, clip) : NAN;
}

template <int Kind, bool First, bool Second>
static void sweep_run(const Sweep &s, struct CUstream_st *stream)
{
    launch(sweep<Kind, First, Second>, dim3((unsigned)s.at.n_pieces), THREADS, stream, s);
}

static void ratios_run(const Sweep &s, struct CUstream_st *stream)
{
    const dim3 grid((unsigned)s.at.n_pieces);
    if (s.u.rule == WF_LAMB)
        launch(norms<true>, grid, THREADS, stream, s);
    else
        launch(norms<false>, grid, THREADS, stream, s);
    launch(ratios, blocks_for(s.at.n_tensors, THREADS), THREADS, stream, s);
}

} // namespace wf

using namespace wf;

void wf_cuda_squares(const struct wf_cuda_layout *at, const float *grad, double *sum,
                     struct CUstream_st *stream)
{
    if (at->n_pieces > 0)
        launch(squares, dim3((unsigned)at->n_pieces), THREADS, stream, *at, grad);
    launch(add_squares, dim3(1), THREADS, stream, *at, sum);
}

void wf_cuda_factor(const double *sum, double scale, double clip, float *factor,
                    struct CUstream_st *stream)
{
    launch(find_factor, dim3(1), 1, stream, sum, scale, clip, factor);
}

#define SWEEP(rule, states)                                                                        \
    case rule:                                                                                     \
        sweep_run<rule, (states) >= 1, (states) == 2>(s, stream);                                  \
        break;

void wf_cuda_update(const struct wf_cuda_layout *at, const struct wf_update *u,
                    struct CUstream_st *stream)
{
    const Sweep s = { *at, *u };
    if (at->n_pieces == 0)
        return;
    if (u->rule == WF_LAMB || u->rule == WF_LARS)
        ratios_run(s, stream);
    if (u->rule == WF_RMSPROP && u->state[1]) {
        sweep_run<WF_RMSPROP, true, true>(s, stream);
        return;
    }
    switch (u->rule) {
        WF_UPDATE_RULES(SWEEP)
    default:
        WF_BUG_ON(true, "no update rule %d", (int)u->rule);
    }
}
