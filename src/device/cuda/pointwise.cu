/* Operators that go element by element. */
#include "device/cuda/pointwise.cuh"

namespace wf
{

template <class A> __device__ A sigmoid(A x)
{
    const A e = exp(x >= 0 ? -x : x);
    return (x >= 0 ? A(1) : e) / (A(1) + e);
}

/* --- one or two inputs, one number at a time --- */

template <class G, int Inputs> struct Each {
    enum { IN = Inputs, INDEXED = 0 };
    G g;
    template <class A, int V> __device__ void apply(const A (&x)[IN][V], int64_t, A (&y)[V]) const
    {
#pragma unroll
        for (int j = 0; j < V; j++)
            y[j] = g(x[0][j], x[IN - 1][j]);
    }
};

template <class A> __device__ A clip(A x, A lo, A hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

template <class A> __device__ A softplus(A x)
{
    return (x > 0 ? x : A(0)) + log1p(exp(x > 0 ? -x : x));
}

template <class A> __device__ A gelu_inner(A x)
{
    return A(0.79788456080286535588) * (x + A(0.044715) * x * x * x);
}

template <int Which> struct Act {
    double slope, lo, hi;
    template <class A> __device__ A operator()(A x, A) const
    {
        switch (Which) {
        case WF_RELU:
            return x > 0 ? x : A(0);
        case WF_LEAKY_RELU:
            return x > 0 ? x : A(slope) * x;
        case WF_SIGMOID:
            return sigmoid(x);
        case WF_TANH:
            return tanh(x);
        case WF_GELU:
            return A(0.5) * x * (A(1) + erf(x * A(0.70710678118654752440)));
        case WF_SILU:
            return x * sigmoid(x);
        case WF_RELU6:
            return clip(x, A(0), A(6));
        case WF_CLIP:
            return clip(x, A(lo), A(hi));
        case WF_ELU:
            return x > 0 ? x : A(slope) * expm1(x);
        case WF_SELU:
            return A(WF_SELU_SCALE) * (x > 0 ? x : A(WF_SELU_ALPHA) * expm1(x));
        case WF_HARD_SIGMOID:
            return clip(x / A(6) + A(0.5), A(0), A(1));
        case WF_HARD_SWISH:
            return x * clip(x / A(6) + A(0.5), A(0), A(1));
        case WF_MISH:
            return x * tanh(softplus(x));
        case WF_SOFTPLUS:
            return softplus(A(slope) * x) / A(slope);
        case WF_GELU_TANH:
            return A(0.5) * x * (A(1) + tanh(gelu_inner(x)));
        case WF_SOFTSIGN:
            return x / (A(1) + (x < 0 ? -x : x));
        case WF_LOG_SIGMOID:
            return -softplus(-x);
        case WF_ABS:
            return x < 0 ? -x : x;
        case WF_EXP:
            return exp(x);
        case WF_LOG:
            return log(x);
        case WF_SQRT:
            return sqrt(x);
        case WF_RECIPROCAL:
            return A(1) / x;
        default:
            return x;
        }
    }
};

/* The slope at r (y or x, as the operator has it). */
template <int Which> struct ActGrad {
    double slope, lo, hi;
    template <class A> __device__ A operator()(A r, A dy) const
    {
        return Which == WF_ACT_NONE ? dy : dy * at(r);
    }
    template <class A> __device__ A rare(A r) const
    {
        switch (Which) {
        case WF_MISH: {
            const A t = tanh(softplus(r));
            return t + r * (A(1) - t * t) * sigmoid(r);
        }
        case WF_GELU_TANH: {
            const A t = tanh(gelu_inner(r));
            return A(0.5) * (A(1) + t) + A(0.5) * r * (A(1) - t * t) * A(0.79788456080286535588) *
                                             (A(1) + A(0.134145) * r * r);
        }
        case WF_SOFTPLUS:
            return -expm1(-A(slope) * r);
        case WF_SOFTSIGN:
            return (A(1) - (r < 0 ? -r : r)) * (A(1) - (r < 0 ? -r : r));
        case WF_LOG_SIGMOID:
            return -expm1(r);
        case WF_ABS:
            return r > 0 ? A(1) : r < 0 ? A(-1) : A(0);
        case WF_EXP:
            return r;
        case WF_LOG:
            return A(1) / r;
        case WF_SQRT:
            return A(0.5) / r;
        case WF_RECIPROCAL:
            return -r * r;
        default:
            return A(1);
        }
    }
    template <class A> __device__ A at(A r) const
    {
        switch (Which) {
        case WF_RELU:
            return r > 0 ? A(1) : A(0);
        case WF_LEAKY_RELU:
            return r > 0 ? A(1) : A(slope);
        case WF_SIGMOID:
            return r * (A(1) - r);
        case WF_TANH:
            return A(1) - r * r;
        case WF_GELU:
            return A(0.5) * (A(1) + erf(r * A(0.70710678118654752440))) +
                   r * A(0.39894228040143267794) * exp(A(-0.5) * r * r);
        case WF_SILU: {
            const A s = sigmoid(r);
            return s * (A(1) + r * (A(1) - s));
        }
        case WF_RELU6:
            return r > 0 && r < A(6) ? A(1) : A(0);
        case WF_CLIP:
            return r > A(lo) && r < A(hi) ? A(1) : A(0);
        case WF_ELU:
            return r > 0 ? A(1) : r + A(slope);
        case WF_SELU:
            return r > 0 ? A(WF_SELU_SCALE) : r + A(WF_SELU_SCALE * WF_SELU_ALPHA);
        case WF_HARD_SIGMOID:
            return r > 0 && r < A(1) ? A(1.0 / 6.0) : A(0);
        case WF_HARD_SWISH:
            return r <= A(-3) ? A(0) : r < A(3) ? r / A(3) + A(0.5) : A(1);
        default:
            return rare(r);
        }
    }
};

/* y[j] = G<act>(x[0][j], x[IN - 1][j]): which one is asked once for V elements, not for each. */
template <template <int> class G, int Inputs> struct AnyAct {
    enum { IN = Inputs, INDEXED = 0 };
    int act;
    double slope, lo, hi;

    template <class A, int V, int Which = WF_ACT_NONE>
    __device__ void apply(const A (&x)[IN][V], int64_t index, A (&y)[V]) const
    {
        if (act == Which) {
            const G<Which> g = { slope, lo, hi };
#pragma unroll
            for (int j = 0; j < V; j++)
                y[j] = g(x[0][j], x[IN - 1][j]);
        } else if constexpr (Which < WF_CLIP)
            apply<A, V, Which + 1>(x, index, y);
    }
};

struct Times {
    double factor;
    template <class A> __device__ A operator()(A x, A) const
    {
        return A(factor) * x;
    }
};

struct Plus {
    double offset;
    template <class A> __device__ A operator()(A x, A) const
    {
        return x + A(offset);
    }
};

/* Of a variance, which is not below 0. */
struct Rsqrt {
    double eps;
    template <class A> __device__ A operator()(A x, A) const
    {
        return A(1) / sqrt((x > 0 ? x : A(0)) + A(eps));
    }
};

struct RsqrtGrad {
    double eps;
    template <class A> __device__ A operator()(A x, A dy) const
    {
        const A y = A(1) / sqrt((x > 0 ? x : A(0)) + A(eps));
        return x > 0 ? A(-0.5) * y * y * y * dy : A(0);
    }
};

struct Same {
    template <class A> __device__ A operator()(A x, A) const
    {
        return x;
    }
};

/* --- dropout --- */

struct Philox {
    uint32_t v[4];
};

/* Philox 4x32-10 as base/random.c has it: key seed, counter (index, stream). */
__device__ inline Philox philox(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    Philox c = { { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                   (uint32_t)(stream >> 32) } };
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t h0 = __umulhi(0xD2511F53u, c.v[0]), l0 = 0xD2511F53u * c.v[0];
        const uint32_t h1 = __umulhi(0xCD9E8D57u, c.v[2]), l1 = 0xCD9E8D57u * c.v[2];
        c = Philox{ { h1 ^ c.v[1] ^ k0, l1, h0 ^ c.v[3] ^ k1, l0 } };
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* As wf_dropout_mix() has it. */
__device__ inline uint64_t mix(uint64_t step)
{
    uint64_t z = step + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct Dropout {
    enum { IN = 1, INDEXED = 1 };
    uint64_t seed, stream;
    const uint64_t *step; /* in device memory: a captured launch is replayed in other steps */
    int64_t base;         /* index of the work's first element */
    uint32_t threshold;   /* kept when the upper 24 bits reach it */
    float scale;

    template <class A, int V>
    __device__ void apply(const A (&x)[1][V], int64_t index, A (&y)[V]) const
    {
        const uint64_t key = seed ^ mix(*step);
        Philox words = {};
#pragma unroll
        for (int j = 0; j < V; j++) {
            const uint64_t at = (uint64_t)(base + index + j);
            const int part = (int)(at & 3);
            if (j == 0 || part == 0)
                words = philox(key, stream, at >> 2);
            const uint32_t low = part & 1 ? words.v[1] : words.v[0];
            const uint32_t high = part & 1 ? words.v[3] : words.v[2];
            const uint32_t bits = part & 2 ? high : low;
            y[j] = bits >> 8 >= threshold ? x[0][j] * A(scale) : A(0);
        }
    }
};

template <class G> Each<G, 1> unary(G g)
{
    return Each<G, 1>{ g };
}
template <class G> Each<G, 2> binary(G g)
{
    return Each<G, 2>{ g };
}

/* f32 to a 16-bit type and back; true when that was it. */
static bool cast_wide(const Flat &s, struct CUstream_st *stream)
{
    const Each<Same, 1> f = unary(Same{});
    const int from = s.dtype[0], to = s.dtype[1];
    if (!flat_takes(s, 2, 8))
        return false;
    if (from == WF_F32 && to == WF_BF16)
        pointwise_wide<float, bf16, 8>(s, f, stream);
    else if (from == WF_F32 && to == WF_F16)
        pointwise_wide<float, f16, 8>(s, f, stream);
    else if (from == WF_BF16 && to == WF_F32)
        pointwise_wide<bf16, float, 8>(s, f, stream);
    else if (from == WF_F16 && to == WF_F32)
        pointwise_wide<f16, float, 8>(s, f, stream);
    else
        return false;
    return true;
}

/* --- dropout of points: by their coordinates --- */

struct PointDropout {
    const void *x;
    void *y;
    const int32_t *coords, *there;
    int32_t wide, width;
    uint64_t seed, stream;
    const uint64_t *step;
    uint32_t threshold;
    float scale;
};

template <class T> __global__ void __launch_bounds__(THREADS) point_dropout(const PointDropout f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, u = i / f.width;
    if (u >= *f.there)
        return;
    uint64_t place = 0; /* as wf_dropout_place() has it */
    for (int d = 0; d < f.wide; d++)
        place = mix(place ^ (uint32_t)f.coords[u * f.wide + d]);
    const uint64_t at = place * (uint64_t)f.width + (uint64_t)(i - u * f.width);
    const Philox words = philox(f.seed ^ mix(*f.step), f.stream, at >> 2);
    const bool kept = words.v[at & 3] >> 8 >= f.threshold;
    const arith<T> x = to_arith(((const T *)f.x)[i]);
    ((T *)f.y)[i] = To<T>::from(kept ? x * (arith<T>)f.scale : (arith<T>)0);
}

} // namespace wf

using namespace wf;

void wf_cuda_sparse_dropout(const struct wf_call *call)
{
    const struct wf_dropout_attrs *a = (const struct wf_dropout_attrs *)call->node->attrs;
    PointDropout f = {};
    f.x = call->in[0].data;
    f.y = call->out[0].data;
    f.coords = (const int32_t *)call->in[1].data;
    f.there = rows_there(call);
    f.wide = (int32_t)call->node->in[1]->shape.at[WF_C];
    f.width = (int32_t)call->node->in[0]->shape.at[WF_C];
    f.seed = call->seed;
    f.stream = (uint64_t)a->stream;
    f.step = wf_cuda_step(call);
    f.threshold = (uint32_t)ceil(a->p * 0x1p24);
    f.scale = wf_dropout_scale(a);
    const int64_t count = (call->work.hi[WF_N] - call->work.lo[WF_N]) * f.width;
    if (count > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            launch(point_dropout<decltype(t)>, blocks_for(count, THREADS), THREADS,
                   wf_cuda_stream(call), f);
        });
}

void wf_cuda_act(const struct wf_call *call)
{
    const struct wf_act_attrs *a = (const struct wf_act_attrs *)call->node->attrs;
    pointwise_call(call, AnyAct<Act, 1>{ (int)a->act, a->slope, a->lo, a->hi });
}

void wf_cuda_act_grad(const struct wf_call *call)
{
    const struct wf_act_attrs *a = (const struct wf_act_attrs *)call->node->attrs;
    pointwise_call(call, AnyAct<ActGrad, 2>{ (int)a->act, a->slope, a->lo, a->hi });
}

void wf_cuda_scale(const struct wf_call *call)
{
    const struct wf_scale_attrs *a = (const struct wf_scale_attrs *)call->node->attrs;
    pointwise_call(call, unary(Times{ a->factor }));
}

void wf_cuda_shift(const struct wf_call *call)
{
    const struct wf_shift_attrs *a = (const struct wf_shift_attrs *)call->node->attrs;
    pointwise_call(call, unary(Plus{ a->offset }));
}

void wf_cuda_rsqrt(const struct wf_call *call)
{
    const struct wf_rsqrt_attrs *a = (const struct wf_rsqrt_attrs *)call->node->attrs;
    pointwise_call(call, unary(Rsqrt{ a->eps }));
}

void wf_cuda_rsqrt_grad(const struct wf_call *call)
{
    const struct wf_rsqrt_attrs *a = (const struct wf_rsqrt_attrs *)call->node->attrs;
    pointwise_call(call, binary(RsqrtGrad{ a->eps }));
}

void wf_cuda_reverse(const struct wf_call *call)
{
    pointwise_call(call, unary(Same{}));
}

void wf_cuda_cast(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    const Side sides[2] = { side_at(call->in[0], call->work.lo),
                            side_at(call->out[0], call->work.lo) };
    const struct wf_shape extent = extents(call->work);
    if (!cast_wide(flat_over(extent, sides, 2), wf_cuda_stream(call)))
        pointwise_run(extent, sides, unary(Same{}), wf_cuda_stream(call));
}

void wf_cuda_dropout(const struct wf_call *call)
{
    const struct wf_dropout_attrs *a = (const struct wf_dropout_attrs *)call->node->attrs;
    const struct wf_shape &whole = call->node->out[0]->shape;
    Dropout f = { call->seed, (uint64_t)a->stream,           wf_cuda_step(call),
                  0,          (uint32_t)ceil(a->p * 0x1p24), wf_dropout_scale(a) };
    for (int axis = 0; axis < WF_AXES; axis++)
        f.base = f.base * whole.at[axis] + call->work.lo[axis];
    pointwise_call(call, f);
}
