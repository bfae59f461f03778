/*
 * Convolutions of any kind, for what cuDNN has no engine for: a product of two matrices in tiles of
 * 64 x 64, whose elements are looked up where they lie. Sums are f64; with
 * 16-bit images f32 within 512 terms.
 *
 *     conv, convt   positions x (taps, channels)  times  (taps, channels) x filters
 *     conv_wgrad    filters x positions           times  positions x (taps, channels)
 */
#include "device/cuda/device.cuh"

#include "device/cuda/depthwise.h"

namespace wf
{

enum { TILE = 64, DEEP = 16, ROUND = 32 /* tiles of DEEP that are summed in f32 */ };

/* What the three share. Channels count within a group; `first` are those of the group. */
struct ConvShape {
    int64_t stride[3], dilation[3], pad[3], image[3]; /* image: of what is looked up */
    Divisor kernel[3], channels;                      /* of K, or of the result's columns */
    int64_t lo[WF_AXES];                              /* of the work */
    Divisor extent[WF_AXES];
    bool shortens; /* factors to what tf32 holds */
};

struct At {
    int64_t n, x[3];
    bool valid;
};

/* Position number i of the work. */
__device__ inline At position(const ConvShape &s, int64_t i, int64_t count)
{
    At p;
    int64_t rest = i, place;
    p.valid = i < count;
#pragma unroll
    for (int a = 2; a >= 0; a--) {
        s.extent[WF_D + a].divide(p.valid ? rest : 0, &rest, &place);
        p.x[a] = s.lo[WF_D + a] + place;
    }
    p.n = s.lo[WF_N] + rest;
    return p;
}

/* Number k of (taps, channels) -> tap and channel. */
__device__ inline void tap_of(const ConvShape &s, int64_t k, int64_t tap[3], int64_t *c)
{
    s.channels.divide(k, &k, c);
    s.kernel[2].divide(k, &k, &tap[2]);
    s.kernel[1].divide(k, &k, &tap[1]);
    tap[0] = k;
}

template <class T>
__device__ inline float look_up(const Image &m, int64_t n, const int64_t x[3], int64_t c)
{
    return to_arith(((const T *)m.data)[m.at(n, x[0], x[1], x[2]) + c * m.stride[WF_C]]);
}

/* To ten digits behind the first, the way that tensor cores' own conversion goes: halves away from zero. */
__device__ inline float to_tf32(float x)
{
    const uint32_t bits = __float_as_uint(x);
    return (bits >> 23 & 0xff) == 0xff ? x : __uint_as_float((bits + 0x1000) & ~0x1fffu);
}

/* conv, and with Back convt. */
template <class T, bool Back> struct Forward {
    enum { K_FASTEST = 1 };
    typedef strict<T> Sum;
    typedef At Row;
    ConvShape s;
    Image x, w, y;
    Table bias;
    int64_t m, n, k;        /* positions, channels of y in a group, (taps, channels of x) */
    int64_t c_lo, c_hi;     /* channels of the work */
    int64_t in_group, base; /* channels of x in a group */

    __device__ Row row(int64_t i) const
    {
        return position(s, i, m);
    }
    __device__ float a(const Row &p, int64_t at, int64_t group) const
    {
        int64_t tap[3], c, from[3];
        bool inside = p.valid && at < k;
        tap_of(s, inside ? at : 0, tap, &c);
#pragma unroll
        for (int i = 0; i < 3; i++) {
            if (Back) {
                const int64_t scaled = p.x[i] + s.pad[i] - tap[i] * s.dilation[i];
                from[i] = scaled / s.stride[i];
                inside = inside && scaled >= 0 && from[i] * s.stride[i] == scaled;
            } else
                from[i] = p.x[i] * s.stride[i] + tap[i] * s.dilation[i] - s.pad[i];
            inside = inside && from[i] >= 0 && from[i] < s.image[i];
        }
        return inside ? look_up<T>(x, p.n, from, group * in_group + c) : 0.0f;
    }
    __device__ float b(int64_t at, int64_t column, int64_t group) const
    {
        int64_t tap[3], c;
        if (at >= k || column >= n)
            return 0.0f;
        tap_of(s, at, tap, &c);
        return Back ? look_up<T>(w, group * in_group + c, tap, column)
                    : look_up<T>(w, group * n + column, tap, c);
    }
    __device__ void store(const Row &p, int64_t column, int64_t group, double sum, int) const
    {
        const int64_t c = group * n + column;
        if (!p.valid || column >= n || c < c_lo || c >= c_hi)
            return;
        if (bias.data)
            sum += bias.get(0, c);
        ((T *)y.data)[y.at(p.n, p.x[0], p.x[1], p.x[2]) + c * y.stride[WF_C]] =
            To<T>::from((float)sum);
    }
    __device__ void range(int64_t *first, int64_t *end) const
    {
        *first = 0;
        *end = k;
    }
};

/* conv_wgrad: part `blockIdx.z % parts` of the positions. */
template <class T> struct WeightGrad {
    enum { K_FASTEST = 0 };
    typedef strict<T> Sum;
    typedef int64_t Row;
    ConvShape s;
    Image x, dy;
    double *part;    /* [part][group][m][n] */
    int64_t m, n, k; /* filters of a group, (taps, channels), positions */
    int64_t c_lo, c_hi, in_group, parts, each;

    __device__ Row row(int64_t i) const
    {
        return i;
    }
    __device__ float a(Row filter, int64_t at, int64_t group) const
    {
        const At p = position(s, at, k);
        const int64_t c = group * m + filter;
        if (!p.valid || filter >= m || c < c_lo || c >= c_hi)
            return 0.0f;
        return look_up<T>(dy, p.n, p.x, c);
    }
    __device__ float b(int64_t at, int64_t column, int64_t group) const
    {
        const At p = position(s, at, k);
        int64_t tap[3], c, from[3];
        bool inside = p.valid && column < n;
        tap_of(s, inside ? column : 0, tap, &c);
#pragma unroll
        for (int i = 0; i < 3; i++) {
            from[i] = p.x[i] * s.stride[i] + tap[i] * s.dilation[i] - s.pad[i];
            inside = inside && from[i] >= 0 && from[i] < s.image[i];
        }
        return inside ? look_up<T>(x, p.n, from, group * in_group + c) : 0.0f;
    }
    __device__ void store(Row filter, int64_t column, int64_t group, double sum, int which) const
    {
        const int64_t groups = gridDim.z / parts;
        if (filter < m && column < n)
            part[((which * groups + group) * m + filter) * n + column] = sum;
    }
    __device__ void range(int64_t *first, int64_t *end) const
    {
        *first = (int64_t)(blockIdx.z % parts) * each;
        *end = smaller(k, *first + each);
    }
};

/* gridDim: rows, columns, groups (times parts). Each of 256 threads makes 4 x 4 of a tile. */
template <class P> __global__ void __launch_bounds__(THREADS) product(const P f, const int parts)
{
    typedef typename P::Sum A;
    __shared__ float a[DEEP][TILE + 4], b[DEEP][TILE + 4];
    const int t = (int)threadIdx.x, which = (int)blockIdx.z % parts;
    const int64_t group = blockIdx.z / parts;
    const int64_t m0 = (int64_t)blockIdx.x * TILE, n0 = (int64_t)blockIdx.y * TILE;
    const int a_m = P::K_FASTEST ? t / 4 : t % TILE, a_k = P::K_FASTEST ? t % 4 * 4 : t / TILE * 4;
    const int b_n = t % TILE, b_k = t / TILE * 4;
    const typename P::Row row = f.row(m0 + a_m);
    double total[4][4] = {};
    A sum[4][4] = {};
    int64_t k0, end;
    f.range(&k0, &end);
    for (int round = 1; k0 < end; k0 += DEEP, round++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float x = k0 + a_k + i < end ? f.a(row, k0 + a_k + i, group) : 0.0f;
            const float y = k0 + b_k + i < end ? f.b(k0 + b_k + i, n0 + b_n, group) : 0.0f;
            a[a_k + i][a_m] = f.s.shortens ? to_tf32(x) : x;
            b[b_k + i][b_n] = f.s.shortens ? to_tf32(y) : y;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
            A av[4], bv[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                av[i] = (A)a[k][t / 16 * 4 + i];
                bv[i] = (A)b[k][t % 16 * 4 + i];
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fma_of(av[i], bv[j], sum[i][j]);
        }
        __syncthreads();
        if (round % ROUND == 0 || k0 + DEEP >= end)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    total[i][j] += (double)sum[i][j];
                    sum[i][j] = 0;
                }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const typename P::Row to = f.row(m0 + t / 16 * 4 + i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            f.store(to, n0 + t % 16 * 4 + j, group, total[i][j], which);
    }
}

struct AddParts {
    const double *part;
    int64_t parts, filters, columns; /* of all groups */
    Divisor by_columns, kernel[3], channels;
    Image dw;
};

__global__ void __launch_bounds__(THREADS) add_weight_parts(const AddParts f)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, filter, k, tap[3], c;
    if (i >= f.filters * f.columns)
        return;
    double sum = 0;
    for (int64_t p = 0; p < f.parts; p++)
        sum += f.part[p * f.filters * f.columns + i];
    f.by_columns.divide(i, &filter, &k);
    f.channels.divide(k, &k, &c);
    f.kernel[2].divide(k, &k, &tap[2]);
    f.kernel[1].divide(k, &k, &tap[1]);
    tap[0] = k;
    any_put(f.dw.dtype, f.dw.data, f.dw.at(filter, tap[0], tap[1], tap[2]) + c * f.dw.stride[WF_C],
            sum);
}

static ConvShape shape_of(const struct wf_conv_attrs *a, const struct wf_region &work,
                          const struct wf_shape &image, const int64_t kernel[3], int64_t channels)
{
    ConvShape s = {};
    const int64_t taps = kernel[0] * kernel[1] * kernel[2] * channels;
    int64_t count = 1;
    for (int i = 0; i < WF_AXES; i++)
        count *= i == WF_C ? 1 : larger<int64_t>(0, work.hi[i] - work.lo[i]);
    for (int i = 0; i < 3; i++) {
        s.stride[i] = a->stride[i];
        s.dilation[i] = a->dilation[i];
        s.pad[i] = a->pad_lo[i];
        s.image[i] = image.at[WF_D + i];
        s.kernel[i] = divisor(kernel[i], taps);
    }
    s.channels = divisor(channels, taps);
    for (int i = 0; i < WF_AXES; i++) {
        s.lo[i] = work.lo[i];
        s.extent[i] = divisor(larger<int64_t>(1, work.hi[i] - work.lo[i]), count);
    }
    return s;
}

static int64_t positions_of(const struct wf_region &work)
{
    int64_t count = 1;
    for (int i = 0; i < WF_C; i++)
        count *= larger<int64_t>(0, work.hi[i] - work.lo[i]);
    return count;
}

template <class T, bool Back> static void forward_run(const struct wf_call *call)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_shape &w = call->node->in[1]->shape, &x = call->node->in[0]->shape;
    const int64_t filters = w.at[WF_N] / a->groups;
    Forward<T, Back> f = {};
    f.in_group = Back ? filters : w.at[WF_C];
    f.s = shape_of(a, call->work, x, &w.at[WF_D], f.in_group);
    f.s.shortens = wf_cuda_tf32(call);
    f.x = image_of(call->in[0]);
    f.w = image_of(call->in[1]);
    f.y = image_of(call->out[0]);
    f.bias = table_of(call->in[2]);
    f.m = positions_of(call->work);
    f.n = Back ? w.at[WF_C] : filters;
    f.k = w.at[WF_D] * w.at[WF_H] * w.at[WF_W] * f.in_group;
    f.c_lo = call->work.lo[WF_C];
    f.c_hi = call->work.hi[WF_C];
    const dim3 grid((unsigned)ceil_div(f.m, TILE), (unsigned)ceil_div(f.n, TILE),
                    (unsigned)a->groups);
    launch(product<Forward<T, Back>>, grid, THREADS, wf_cuda_stream(call), f, 1);
}

/* Parts of the positions, so that the GPU is filled: each at least 512. */
static int64_t weight_parts(const struct wf_node *node, const struct wf_region &work)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)node->attrs;
    const struct wf_shape &dw = node->out[0]->shape;
    const int64_t columns = dw.at[WF_D] * dw.at[WF_H] * dw.at[WF_W] * dw.at[WF_C];
    const int64_t tiles =
        a->groups * ceil_div(dw.at[WF_N] / a->groups, TILE) * ceil_div(columns, TILE);
    const int64_t most = ceil_div(positions_of(work), 512);
    return larger<int64_t>(1, smaller(most, ceil_div(528, tiles)));
}

template <class T> static void weight_run(const struct wf_call *call)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_shape &dw = call->node->out[0]->shape, &x = call->node->in[0]->shape;
    struct CUstream_st *const stream = wf_cuda_stream(call);
    WeightGrad<T> f = {};
    f.in_group = dw.at[WF_C];
    f.s = shape_of(a, call->work, x, a->extent, f.in_group);
    f.s.shortens = wf_cuda_tf32(call);
    f.x = image_of(call->in[0]);
    f.dy = image_of(call->in[1]);
    f.part = (double *)call->scratch;
    f.m = dw.at[WF_N] / a->groups;
    f.n = a->extent[0] * a->extent[1] * a->extent[2] * f.in_group;
    f.k = positions_of(call->work);
    f.c_lo = call->work.lo[WF_C];
    f.c_hi = call->work.hi[WF_C];
    f.parts = weight_parts(call->node, call->work);
    f.each = ceil_div(ceil_div(f.k, f.parts), DEEP) * DEEP;
    const dim3 grid((unsigned)ceil_div(f.m, TILE), (unsigned)ceil_div(f.n, TILE),
                    (unsigned)(a->groups * f.parts));
    launch(product<WeightGrad<T>>, grid, THREADS, stream, f, (int)f.parts);
    AddParts add = {
        f.part, f.parts,      dw.at[WF_N],           f.n, divisor(f.n, dw.at[WF_N] * f.n),
        {},     f.s.channels, image_of(call->out[0])
    };
    for (int i = 0; i < 3; i++)
        add.kernel[i] = f.s.kernel[i];
    launch(add_weight_parts, blocks_for(dw.at[WF_N] * f.n, THREADS), THREADS, stream, add);
}

} // namespace wf

using namespace wf;

/* Those kernels do not shorten their factors. */
static bool is_depthwise(const struct wf_call *call, const struct wf_value *weights)
{
    return !wf_cuda_tf32(call) && wf_cuda_is_depthwise(call->node, &weights->shape);
}

void wf_cuda_conv(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    if (is_depthwise(call, call->node->in[1]))
        wf_cuda_depthwise(call, false);
    else
        with_type(call->in[0].dtype, [&](auto t) { forward_run<decltype(t), false>(call); });
}

void wf_cuda_convt(const struct wf_call *call)
{
    if (is_empty(call->work))
        return;
    if (is_depthwise(call, call->node->in[1]))
        wf_cuda_depthwise(call, true);
    else
        with_type(call->in[0].dtype, [&](auto t) { forward_run<decltype(t), true>(call); });
}

bool wf_cuda_conv_wgrad_prepare(struct wf_prepare *p, struct wf_err *)
{
    p->scratch_bytes =
        (size_t)(weight_parts(p->node, p->work) * wf_shape_count(p->node->out[0]->shape)) *
        sizeof(double);
    if (wf_cuda_is_depthwise(p->node, &p->node->out[0]->shape))
        p->scratch_bytes = larger(p->scratch_bytes, wf_cuda_depthwise_wgrad_scratch(p));
    return true;
}

void wf_cuda_conv_wgrad(const struct wf_call *call)
{
    if (is_empty(call->work))
        wf_cuda_set(&call->out[0], 0.0, wf_cuda_stream(call));
    else if (is_depthwise(call, call->node->out[0]))
        wf_cuda_depthwise_wgrad(call);
    else
        with_type(call->in[0].dtype, [&](auto t) { weight_run<decltype(t)>(call); });
}
