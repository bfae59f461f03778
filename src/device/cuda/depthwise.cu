/*
 * Convolutions in which every channel is a group of its own, for what cuDNN has no engine for.
 *
 * Forward, and the data gradient: a thread makes V channels of up to four positions along W, which share what they
 * read where the stride allows it; weights wait in shared memory, channel beside channel. A data gradient of stride
 * one is the same with the taps turned round. The weights' gradient: a block has one row of taps, its threads go over
 * segments of rows of the image, and their sums are added in a fixed order, in f64.
 */
#include "device/cuda/spatial.cuh"

#include "device/cuda/depthwise.h"

namespace wf
{

enum { CHANNELS_MOST = 64, TAPS_MOST = 128, ALONG = 4, ROW_MOST = 8, SEGMENT = 16 };

/* Threads of a block: `lanes` beside each other along C, V channels each, times slots for positions. */
struct Lanes {
    int64_t channels, first; /* of the work */
    int32_t lanes, chunks;

    __device__ int slots() const
    {
        return THREADS / lanes;
    }
};

static Lanes lanes_over(const struct wf_region &work, int v)
{
    Lanes l = { work.hi[WF_C] - work.lo[WF_C], work.lo[WF_C], 0, 0 };
    const int64_t vectors = ceil_div(l.channels, v);
    l.chunks = (int32_t)ceil_div(vectors, CHANNELS_MOST / v);
    l.lanes = (int32_t)ceil_div(vectors, l.chunks);
    return l;
}

/* Rows of the work in pieces along W. */
struct Pieces {
    int64_t count, lo[WF_AXES], end, length; /* end: of the work along W */
    Divisor rows[3], along;                  /* extents of D, H; pieces of a row */

    /* Where piece i begins; returns how many positions it has. */
    __device__ int at(int64_t i, Place *place) const
    {
        int64_t rest = i, part;
        along.divide(rest, &rest, &part);
        place->x[2] = lo[WF_W] + part * length;
        rows[1].divide(rest, &rest, &part);
        place->x[1] = lo[WF_H] + part;
        rows[0].divide(rest, &rest, &part);
        place->x[0] = lo[WF_D] + part;
        place->n = lo[WF_N] + rest;
        return (int)smaller<int64_t>(length, end - place->x[2]);
    }
};

static Pieces pieces_over(const struct wf_region &work, int64_t length)
{
    Pieces p = {};
    const struct wf_shape extent = extents(work);
    const int64_t along = ceil_div(extent.at[WF_W], length);
    p.count = extent.at[WF_N] * extent.at[WF_D] * extent.at[WF_H] * along;
    p.end = work.hi[WF_W];
    p.length = length;
    memcpy(p.lo, work.lo, sizeof p.lo);
    p.rows[0] = divisor(extent.at[WF_D], p.count);
    p.rows[1] = divisor(extent.at[WF_H], p.count);
    p.along = divisor(along, p.count);
    return p;
}

struct Window {
    int64_t kernel[3], stride[3], dilation[3], pad[3], image[3]; /* image: of what is read */

    __device__ int64_t taps() const
    {
        return kernel[0] * kernel[1] * kernel[2];
    }
};

static Window window_of(const struct wf_conv_attrs *a, const int64_t kernel[3],
                        const struct wf_shape &image)
{
    Window w = {};
    for (int i = 0; i < 3; i++) {
        w.kernel[i] = kernel[i];
        w.stride[i] = a->stride[i];
        w.dilation[i] = a->dilation[i];
        w.pad[i] = a->pad_lo[i];
        w.image[i] = image.at[WF_D + i];
    }
    return w;
}

/* --- forward and data gradient --- */

enum Way {
    SLIDES /* along W by one */,
    STEPS,
    BACK /* of a stride: positions that are multiples of it */
};

struct Depthwise {
    Lanes lanes;
    Pieces pieces;
    Window window;
    Image x, w, y;
    Table bias;
    int32_t turned; /* taps from the last to the first */
};

/* The position that tap k of the result at `at` reads along an axis; -1: none. */
template <int How> __device__ int64_t source(const Window &w, int i, int64_t at, int64_t k)
{
    int64_t p = at * w.stride[i] - w.pad[i] + k * w.dilation[i];
    if (How == BACK) {
        p = at + w.pad[i] - k * w.dilation[i];
        if (p < 0 || p % w.stride[i] != 0)
            return -1;
        p /= w.stride[i];
    }
    return p < w.image[i] ? p : -1;
}

/* One row of taps, whose weights begin at `weights`. */
template <class T, int V, int How>
__device__ void add_row(const Depthwise &f, const T *row, const Place &at, int have,
                        const float *weights, int width, strict<T> (&sum)[ALONG][V])
{
    const int64_t step = f.x.stride[WF_W];
    const int taps = (int)f.window.kernel[2];
    Vec<T, V> v;
    if constexpr (How == SLIDES) {
        const int64_t first = at.x[2] - f.window.pad[2];
        for (int i = 0; i < taps + have - 1; i++) {
            const int64_t p = first + i;
            if (p < 0 || p >= f.window.image[2])
                continue;
            v.load(row + p * step);
#pragma unroll
            for (int o = 0; o < ALONG; o++)
                if (i >= o && i - o < taps)
#pragma unroll
                    for (int j = 0; j < V; j++)
                        sum[o][j] += (strict<T>)v.get(j) * (strict<T>)weights[(i - o) * width + j];
        }
    } else {
        for (int k = 0; k < taps; k++) {
            const int64_t p = source<How>(f.window, 2, at.x[2], k);
            if (p < 0)
                continue;
            v.load(row + p * step);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum[0][j] += (strict<T>)v.get(j) * (strict<T>)weights[k * width + j];
        }
    }
}

/* The weights of the block's channels, tap by tap. */
template <class T, int V> __device__ void stage(const Depthwise &f, float *weights)
{
    const int width = f.lanes.lanes * V, taps = (int)f.window.taps();
    for (int i = (int)threadIdx.x; i < taps * width; i += THREADS) {
        const int tap = i / width, t = f.turned ? taps - 1 - tap : tap;
        const int64_t c = (int64_t)blockIdx.y * width + i % width;
        const int64_t kw = t % f.window.kernel[2], rest = t / f.window.kernel[2];
        weights[i] = 0;
        if (c < f.lanes.channels)
            weights[i] = (float)to_arith(((const T *)f.w.data)[f.w.at(
                f.lanes.first + c, rest / f.window.kernel[1], rest % f.window.kernel[1], kw)]);
    }
    __syncthreads();
}

template <class T, int V, int How>
__global__ void __launch_bounds__(THREADS) depthwise(const Depthwise f)
{
    __shared__ float weights[TAPS_MOST * CHANNELS_MOST];
    stage<T, V>(f, weights);
    const int width = f.lanes.lanes * V, slot = (int)threadIdx.x / f.lanes.lanes;
    const int lane = (int)threadIdx.x % f.lanes.lanes;
    const int64_t c = (int64_t)blockIdx.y * width + (int64_t)lane * V;
    const int64_t piece = (int64_t)blockIdx.x * f.lanes.slots() + slot;
    if (slot >= f.lanes.slots() || c >= f.lanes.channels || piece >= f.pieces.count)
        return;
    Place at;
    const int have = f.pieces.at(piece, &at);
    at.c = f.lanes.first + c;
    strict<T> sum[ALONG][V] = {};
    for (int64_t kd = 0; kd < f.window.kernel[0]; kd++) {
        const int64_t d = source<How>(f.window, 0, at.x[0], kd);
        for (int64_t kh = 0; d >= 0 && kh < f.window.kernel[1]; kh++) {
            const int64_t h = source<How>(f.window, 1, at.x[1], kh);
            const int64_t from[3] = { d, h, 0 };
            if (h >= 0)
                add_row<T, V, How>(f, element<T>(f.x, at.n, from, at.c), at, have,
                                   weights +
                                       (kd * f.window.kernel[1] + kh) * f.window.kernel[2] * width +
                                       lane * V,
                                   width, sum);
        }
    }
#pragma unroll
    for (int o = 0; o < ALONG; o++) {
        if (o >= have)
            break;
        Vec<T, V> v;
#pragma unroll
        for (int j = 0; j < V; j++)
            v.set(j, (arith<T>)(sum[o][j] +
                                (f.bias.data ? (strict<T>)f.bias.get(0, at.c + j) : strict<T>(0))));
        v.store(element<T>(f.y, at.n, at.x, at.c));
        at.x[2]++;
    }
}

template <class T, int V> static void run(const struct wf_call *call, bool back)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)call->node->attrs;
    const struct wf_shape &w = call->node->in[1]->shape;
    Depthwise f = {};
    f.lanes = lanes_over(call->work, V);
    f.window = window_of(a, &w.at[WF_D], call->node->in[0]->shape);
    f.x = image_of(call->in[0]);
    f.w = image_of(call->in[1]);
    f.y = image_of(call->out[0]);
    f.bias = table_of(call->in[2]);
    const bool by_one = a->stride[0] == 1 && a->stride[1] == 1 && a->stride[2] == 1;
    if (back && by_one) {
        f.turned = 1;
        for (int i = 0; i < 3; i++)
            f.window.pad[i] = a->dilation[i] * (w.at[WF_D + i] - 1) - a->pad_lo[i];
    }
    const bool slides = a->stride[2] == 1 && a->dilation[2] == 1 && (!back || by_one);
    f.pieces = pieces_over(call->work, slides ? (int64_t)ALONG : 1);
    const dim3 grid((unsigned)ceil_div(f.pieces.count, THREADS / f.lanes.lanes),
                    (unsigned)f.lanes.chunks, 1);
    struct CUstream_st *const stream = wf_cuda_stream(call);
    if (slides)
        launch(depthwise<T, V, SLIDES>, grid, THREADS, stream, f);
    else if (back && !by_one)
        launch(depthwise<T, V, BACK>, grid, THREADS, stream, f);
    else
        launch(depthwise<T, V, STEPS>, grid, THREADS, stream, f);
}

/* --- the gradient of the weights --- */

struct DepthwiseGrad {
    Lanes lanes;
    Pieces pieces;
    Window window;
    Image x, dy, dw;
    double *part; /* [part][tap][channel] */
    int64_t parts, count;
};

/* A segment of a row: `sum` of the taps along W. */
template <class T, int V>
__device__ void add_segment(const DepthwiseGrad &f, const Place &at, const T *row, int have,
                            double (&total)[ROW_MOST][V])
{
    typename std::conditional<sizeof(T) == 2, float, double>::type sum[ROW_MOST][V] = {};
    const int taps = (int)f.window.kernel[2];
    const T *dy = element<T>(f.dy, at.n, at.x, at.c);
    for (int o = 0; o < have; o++, dy += f.dy.stride[WF_W]) {
        Vec<T, V> d, v;
        d.load(dy);
#pragma unroll
        for (int k = 0; k < ROW_MOST; k++) {
            const int64_t p =
                (at.x[2] + o) * f.window.stride[2] - f.window.pad[2] + k * f.window.dilation[2];
            if (k >= taps || p < 0 || p >= f.window.image[2])
                continue;
            v.load(row + p * f.x.stride[WF_W]);
#pragma unroll
            for (int j = 0; j < V; j++)
                sum[k][j] = fma_of((decltype(sum[0][0] + 0))v.get(j),
                                   (decltype(sum[0][0] + 0))d.get(j), sum[k][j]);
        }
    }
#pragma unroll
    for (int k = 0; k < ROW_MOST; k++)
#pragma unroll
        for (int j = 0; j < V; j++)
            total[k][j] += (double)sum[k][j];
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS) depthwise_wgrad(const DepthwiseGrad f)
{
    __shared__ double shared[THREADS];
    const int slots = f.lanes.slots(), slot = (int)threadIdx.x / f.lanes.lanes;
    const int lane = (int)threadIdx.x % f.lanes.lanes;
    const int64_t c = ((int64_t)blockIdx.y * f.lanes.lanes + lane) * V;
    const int64_t kd = blockIdx.z / f.window.kernel[1], kh = blockIdx.z % f.window.kernel[1];
    double total[ROW_MOST][V] = {};
    if (slot < slots && c < f.lanes.channels)
        for (int64_t i = (int64_t)blockIdx.x * slots + slot; i < f.pieces.count;
             i += f.parts * slots) {
            Place at;
            const int have = f.pieces.at(i, &at);
            at.c = f.lanes.first + c;
            const int64_t from[3] = { source<STEPS>(f.window, 0, at.x[0], kd),
                                      source<STEPS>(f.window, 1, at.x[1], kh), 0 };
            if (from[0] >= 0 && from[1] >= 0)
                add_segment<T, V>(f, at, element<T>(f.x, at.n, from, at.c), have, total);
        }
#pragma unroll
    for (int k = 0; k < ROW_MOST; k++)
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (k >= (int)f.window.kernel[2])
                continue;
            __syncthreads();
            shared[threadIdx.x] = total[k][j];
            __syncthreads();
            if (slot > 0 || c + j >= f.lanes.channels)
                continue;
            double sum = 0;
            for (int s = 0; s < slots; s++)
                sum += shared[s * f.lanes.lanes + lane];
            const int64_t tap = (int64_t)blockIdx.z * f.window.kernel[2] + k;
            f.part[((int64_t)blockIdx.x * f.window.taps() + tap) * f.lanes.channels + c + j] = sum;
        }
}

/* Parts in their order; channels that the work does not have become zero. */
__global__ void __launch_bounds__(THREADS) add_depthwise_parts(const DepthwiseGrad f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, taps = f.window.taps();
    if (i >= f.count * taps)
        return;
    const int64_t c = i % f.count, tap = i / f.count, mine = c - f.lanes.first;
    double sum = 0;
    for (int64_t p = 0; p < f.parts && mine >= 0 && mine < f.lanes.channels; p++)
        sum += f.part[(p * taps + tap) * f.lanes.channels + mine];
    const int64_t kw = tap % f.window.kernel[2], rest = tap / f.window.kernel[2];
    any_put(f.dw.dtype, f.dw.data,
            f.dw.at(c, rest / f.window.kernel[1], rest % f.window.kernel[1], kw), sum);
}

enum { GRAD_V = 4 };

/* So many that the GPU is filled, each of some segments. */
static int64_t parts_of(const struct wf_node *node, const struct wf_region &work)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)node->attrs;
    if (is_empty(work))
        return 1;
    const Lanes l = lanes_over(work, GRAD_V);
    const int64_t rows = a->extent[0] * a->extent[1] * l.chunks;
    const int64_t most = ceil_div(pieces_over(work, SEGMENT).count, 4 * (THREADS / l.lanes));
    return larger<int64_t>(1, smaller(most, ceil_div(1056, rows)));
}

template <class T, int V> static void wgrad_run(const struct wf_call *call)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)call->node->attrs;
    struct CUstream_st *const stream = wf_cuda_stream(call);
    DepthwiseGrad f = {};
    f.lanes = lanes_over(call->work, V);
    f.pieces = pieces_over(call->work, SEGMENT);
    f.window = window_of(a, a->extent, call->node->in[0]->shape);
    f.x = image_of(call->in[0]);
    f.dy = image_of(call->in[1]);
    f.dw = image_of(call->out[0]);
    f.part = (double *)call->scratch;
    f.parts = parts_of(call->node, call->work);
    f.count = call->node->out[0]->shape.at[WF_N];
    const dim3 grid((unsigned)f.parts, (unsigned)f.lanes.chunks,
                    (unsigned)(a->extent[0] * a->extent[1]));
    launch(depthwise_wgrad<T, V>, grid, THREADS, stream, f);
    launch(add_depthwise_parts,
           blocks_for(f.count * a->extent[0] * a->extent[1] * a->extent[2], THREADS), THREADS,
           stream, f);
}

} // namespace wf

using namespace wf;

bool wf_cuda_is_depthwise(const struct wf_node *node, const struct wf_shape *weights)
{
    const struct wf_conv_attrs *a = (const struct wf_conv_attrs *)node->attrs;
    const int64_t taps = weights->at[WF_D] * weights->at[WF_H] * weights->at[WF_W];
    return a->groups > 1 && a->groups == weights->at[WF_N] && weights->at[WF_C] == 1 &&
           taps <= TAPS_MOST && weights->at[WF_W] <= ROW_MOST;
}

void wf_cuda_depthwise(const struct wf_call *call, bool back)
{
    const struct wf_view *const views[] = { &call->in[0], &call->out[0] };
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        if (spatial_takes(call->work, views, 2, Wide<T>::V))
            run<T, Wide<T>::V>(call, back);
        else
            run<T, 1>(call, back);
    });
}

size_t wf_cuda_depthwise_wgrad_scratch(const struct wf_prepare *p)
{
    return (size_t)(parts_of(p->node, p->work) * wf_shape_count(p->node->out[0]->shape)) *
           sizeof(double);
}

void wf_cuda_depthwise_wgrad(const struct wf_call *call)
{
    const struct wf_view *const views[] = { &call->in[0], &call->in[1] };
    with_type(call->in[0].dtype, [&](auto t) {
        typedef decltype(t) T;
        if (spatial_takes(call->work, views, 2, GRAD_V))
            wgrad_run<T, GRAD_V>(call);
        else
            wgrad_run<T, 1>(call);
    });
}
