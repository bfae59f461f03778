/*
 * Pooling of sparse tensors over kernel maps and over samples, and rows of samples at points.
 *
 * A thread makes one element. Sums over samples: rows lie in the order of samples, so each has a range, which
 * is cut into as many parts as blocks work on it; parts are added in order.
 */
#include "device/cuda/sparse.cuh"
#include "device/cuda/sparse_ops.h"

namespace wf
{

struct Pool {
    void *x, *y;
    const int32_t *map, *there;
    int32_t *index;
    int32_t columns, mode, width;
};

template <class T> __global__ void __launch_bounds__(THREADS) pool_kernel(const Pool f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, u = i / f.width;
    const int c = (int)(i - u * f.width);
    if (u >= *f.there)
        return;
    const T *const x = (const T *)f.x;
    strict<T> sum = 0;
    int32_t count = 0, from = -1;
    for (int k = 0; k < f.columns; k++) {
        const int32_t row = f.map[u * f.columns + k];
        if (row < 0)
            continue;
        const strict<T> v = to_strict(x[(int64_t)row * f.width + c]);
        const bool is_most = f.mode == WF_SPARSE_MAX && (from < 0 || v > sum || v != v);
        sum = f.mode != WF_SPARSE_MAX ? sum + v : is_most ? v : sum;
        from = is_most ? row : from;
        count++;
    }
    if (f.mode == WF_SPARSE_AVERAGE && count > 0)
        sum /= (strict<T>)count;
    ((T *)f.y)[i] = To<T>::from((arith<T>)sum);
    if (f.mode == WF_SPARSE_MAX)
        f.index[i] = from;
    else if (c == 0)
        f.index[u] = count;
}

/* x is dy, y is dx. */
template <class T> __global__ void __launch_bounds__(THREADS) pool_grad_kernel(const Pool f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, v = i / f.width;
    const int c = (int)(i - v * f.width);
    if (v >= *f.there)
        return;
    const T *const dy = (const T *)f.x;
    strict<T> sum = 0;
    for (int k = 0; k < f.columns; k++) {
        const int64_t u = f.map[v * f.columns + k];
        if (u < 0)
            continue;
        const strict<T> d = to_strict(dy[u * f.width + c]);
        if (f.mode == WF_SPARSE_SUM)
            sum += d;
        else if (f.mode == WF_SPARSE_AVERAGE)
            sum += d / (strict<T>)f.index[u];
        else if (f.index[u * f.width + c] == (int32_t)v)
            sum += d;
    }
    ((T *)f.y)[i] = To<T>::from((arith<T>)sum);
}

/* --- samples --- */

enum { PARTS = 64, LANES = 32, TALL = THREADS / LANES };

struct Samples {
    const void *x;
    const int32_t *coords, *there;
    double *table, *part; /* part: [sample][PARTS][2 * width] */
    void *y;
    const double *other; /* of a gradient: the table of maxima */
    int32_t wide, width, samples, is_max; /* wide: of coordinates */

    /* First row whose sample is not below. */
    __device__ int32_t first(int32_t sample) const
    {
        int32_t low = 0, high = *there;
        while (low < high) {
            const int32_t middle = low + (high - low) / 2;
            if (coords[(int64_t)middle * wide] < sample)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }
};

/* A sum, or a maximum and the row (plus 1) that has it: that of the first rows where they are equal. */
struct Most {
    double value, row;

    __device__ void take(double v, double r, bool is_max)
    {
        if (!is_max)
            value += v;
        else if (r > 0 && (row == 0 || v > value || v != v)) {
            value = v;
            row = r;
        }
    }
};

template <class T> __global__ void __launch_bounds__(THREADS) samples_part(const Samples f)
{
    __shared__ Most most[TALL][LANES];
    const int lane = (int)threadIdx.x % LANES, step = (int)threadIdx.x / LANES;
    const int32_t sample = (int32_t)blockIdx.x, part = (int32_t)blockIdx.y;
    const int32_t c = (int32_t)blockIdx.z * LANES + lane;
    const int64_t first = f.first(sample), all = f.first(sample + 1) - first;
    const int64_t lo = first + all * part / PARTS, hi = first + all * (part + 1) / PARTS;
    const int64_t from = lo + (hi - lo) * step / TALL, end = lo + (hi - lo) * (step + 1) / TALL;
    Most mine = { 0, 0 };
    for (int64_t u = from; u < end && c < f.width; u++)
        mine.take((double)to_arith(((const T *)f.x)[u * f.width + c]), (double)(u + 1),
                  f.is_max != 0);
    most[step][lane] = mine;
    __syncthreads();
    if (step == 0 && c < f.width) {
        for (int s = 1; s < TALL; s++)
            mine.take(most[s][lane].value, most[s][lane].row, f.is_max != 0);
        double *const to = f.part + ((int64_t)sample * PARTS + part) * 2 * f.width;
        to[c] = mine.value;
        to[f.width + c] = mine.row;
    }
}

__global__ void __launch_bounds__(THREADS) samples_add(const Samples f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t sample = i / f.width, c = i - sample * f.width;
    if (sample >= f.samples)
        return;
    Most all = { 0, 0 };
    for (int p = 0; p < PARTS; p++) {
        const double *const from = f.part + (sample * PARTS + p) * 2 * f.width;
        all.take(from[c], from[f.width + c], f.is_max != 0);
    }
    double *const to = f.table + sample * (f.is_max ? 2 * f.width : f.width + 1);
    to[c] = all.value;
    if (f.is_max)
        to[f.width + c] = all.row;
    else if (c == 0)
        to[f.width] = (double)(f.first((int32_t)sample + 1) - f.first((int32_t)sample));
}

template <class T> __global__ void __launch_bounds__(THREADS) samples_rows(const Samples f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, u = i / f.width;
    if (u < *f.there)
        ((T *)f.y)[i] = ((const T *)f.x)[(int64_t)f.coords[u * f.wide] * f.samples + i - u * f.width];
}

template <class T> __global__ void __launch_bounds__(THREADS) samples_max_grad(const Samples f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, u = i / f.width;
    const int64_t c = i - u * f.width;
    if (u >= *f.there)
        return;
    const int64_t at = (int64_t)f.coords[u * f.wide] * 2 * f.width + c;
    const bool is_it = f.other[at + f.width] == (double)(u + 1);
    ((T *)f.y)[i] = is_it ? ((const T *)f.x)[at] : To<T>::from(0);
}

struct Take {
    Table t, y, dy;
    int64_t first, samples, channels, width, mean; /* of t: width */
};

__device__ inline double take_divisor(const Take &f, int64_t s)
{
    const double count = f.mean ? f.t.get(s, f.channels) : 1.0;
    return count > 0 ? count : 1.0;
}

__global__ void __launch_bounds__(THREADS) take_kernel(const Take f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, s = f.first + i / f.channels;
    if (i < f.samples * f.channels)
        f.y.put(s, i % f.channels, f.t.get(s, i % f.channels) / take_divisor(f, s));
}

__global__ void __launch_bounds__(THREADS) take_grad_kernel(const Take f)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, s = f.first + i / f.width;
    const int64_t c = i % f.width;
    if (i < f.samples * f.width)
        f.y.put(s, c, c < f.channels ? f.dy.get(s, c) / take_divisor(f, s) : 0.0);
}

static Pool pool_of(const struct wf_call *call, int32_t *index)
{
    const struct wf_sparse_pool_attrs *a = (const struct wf_sparse_pool_attrs *)call->node->attrs;
    return { call->in[0].data,
             call->out[0].data,
             (const int32_t *)call->in[1].data,
             rows_there(call),
             index,
             (int32_t)call->node->in[1]->shape.at[WF_C],
             (int32_t)a->mode,
             (int32_t)call->node->in[0]->shape.at[WF_C] };
}

static Samples samples_of(const struct wf_call *call, int coords)
{
    const struct wf_samples_attrs *a = (const struct wf_samples_attrs *)call->node->attrs;
    Samples f = {};
    f.x = call->in[0].data;
    f.coords = (const int32_t *)call->in[coords].data;
    f.there = rows_there(call);
    f.wide = (int32_t)call->node->in[coords]->shape.at[WF_C];
    f.width = (int32_t)a->channels;
    f.samples = (int32_t)a->samples;
    return f;
}

static void samples_run(const struct wf_call *call, bool is_max)
{
    struct CUstream_st *const stream = wf_cuda_stream(call);
    Samples f = samples_of(call, 1);
    f.table = (double *)call->out[0].data;
    f.part = (double *)call->scratch;
    f.is_max = is_max;
    if (capacity_of(call->work) < 1) {
        wf_cuda_set(&call->out[0], 0.0, stream);
        return;
    }
    with_type(call->in[0].dtype, [&](auto t) {
        launch(samples_part<decltype(t)>,
               dim3((unsigned)f.samples, PARTS, (unsigned)ceil_div(f.width, LANES)), THREADS, stream,
               f);
    });
    launch(samples_add, blocks_for((int64_t)f.samples * f.width, THREADS), THREADS, stream, f);
}

static Take take_of(const struct wf_call *call, const struct wf_view &table)
{
    const struct wf_samples_attrs *a = (const struct wf_samples_attrs *)call->node->attrs;
    Take f = {};
    f.t = table_of(table);
    f.y = table_of(call->out[0]);
    f.first = call->work.lo[WF_N];
    f.samples = capacity_of(call->work);
    f.channels = a->channels;
    f.width = call->node->out[0]->shape.at[WF_C];
    f.mean = a->mean;
    return f;
}

} // namespace wf

using namespace wf;

void wf_cuda_sparse_pool(const struct wf_call *call)
{
    const Pool f = pool_of(call, (int32_t *)call->out[1].data);
    const int64_t count = capacity_of(call->work) * f.width;
    if (count > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            launch(pool_kernel<decltype(t)>, blocks_for(count, THREADS), THREADS,
                   wf_cuda_stream(call), f);
        });
}

void wf_cuda_sparse_pool_grad(const struct wf_call *call)
{
    const Pool f = pool_of(call, (int32_t *)call->in[2].data);
    const int64_t count = capacity_of(call->work) * f.width;
    if (count > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            launch(pool_grad_kernel<decltype(t)>, blocks_for(count, THREADS), THREADS,
                   wf_cuda_stream(call), f);
        });
}

bool wf_cuda_samples_prepare(struct wf_prepare *p, struct wf_err *)
{
    const struct wf_samples_attrs *a = (const struct wf_samples_attrs *)p->node->attrs;
    p->scratch_bytes = (size_t)(a->samples * PARTS * 2 * a->channels) * sizeof(double);
    return true;
}

void wf_cuda_sample_sums(const struct wf_call *call)
{
    samples_run(call, false);
}

void wf_cuda_sample_max(const struct wf_call *call)
{
    samples_run(call, true);
}

void wf_cuda_sample_rows(const struct wf_call *call)
{
    Samples f = samples_of(call, 1);
    const int64_t count = capacity_of(call->work) * f.width;
    f.y = call->out[0].data;
    f.samples = (int32_t)call->node->in[0]->shape.at[WF_C]; /* a row of the table */
    if (count > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            launch(samples_rows<decltype(t)>, blocks_for(count, THREADS), THREADS,
                   wf_cuda_stream(call), f);
        });
}

void wf_cuda_sample_max_grad(const struct wf_call *call)
{
    Samples f = samples_of(call, 2);
    const int64_t count = capacity_of(call->work) * f.width;
    f.y = call->out[0].data;
    f.other = (const double *)call->in[1].data;
    if (count > 0)
        with_type(call->in[0].dtype, [&](auto t) {
            launch(samples_max_grad<decltype(t)>, blocks_for(count, THREADS), THREADS,
                   wf_cuda_stream(call), f);
        });
}

void wf_cuda_sample_take(const struct wf_call *call)
{
    const Take f = take_of(call, call->in[0]);
    if (f.samples > 0)
        launch(take_kernel, blocks_for(f.samples * f.channels, THREADS), THREADS,
               wf_cuda_stream(call), f);
}

void wf_cuda_sample_take_grad(const struct wf_call *call)
{
    Take f = take_of(call, call->in[1]);
    f.dy = table_of(call->in[0]);
    if (f.samples > 0)
        launch(take_grad_kernel, blocks_for(f.samples * f.width, THREADS), THREADS,
               wf_cuda_stream(call), f);
}
