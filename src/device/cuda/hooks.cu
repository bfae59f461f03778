/* Small kernels of the device's own. */
#include "device/cuda/device.cuh"
#include "device/cuda/hooks.h"

namespace wf
{

__global__ void store_kernel(uint64_t *to, uint64_t value)
{
    *to = value;
}

/* y is positions x channels, packed. V channels at a time where they are a multiple of it. */
template <class T, int V>
__global__ void bias_kernel(T *y, const float *bias, int64_t vectors, int64_t channels)
{
    const int64_t per_row = channels / V;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        const int64_t c = i % per_row * V;
        Vec<T, V> v;
        v.load(y + i * V);
        for (int k = 0; k < V; k++)
            v.set(k, v.get(k) + bias[c + k]);
        v.store(y + i * V);
    }
}

template <class T> __global__ void noise_kernel(T *to, int64_t count, uint32_t seed)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t h = (uint32_t)i * 2654435761u + seed; /* mixed as in MurmurHash3 */
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        h ^= h >> 16;
        to[i] = To<T>::from((float)(h >> 8) * (2.0f / 16777216.0f) - 1.0f);
    }
}

__global__ void clear_distance_kernel(struct wf_cuda_distance *d)
{
    d->apart = d->whole = 0;
    d->outside = 0;
}

template <class T>
__global__ void distance_kernel(const T *a, const T *b, int64_t count, struct wf_cuda_distance *d)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    double apart = 0, whole = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const double y = (double)to_arith(b[i]), x = (double)to_arith(a[i]);
        apart += (x - y) * (x - y);
        whole += y * y;
    }
    atomicAdd(&d->apart, apart);
    atomicAdd(&d->whole, whole);
}

template <class T>
__global__ void outside_kernel(const T *a, const T *b, int64_t count, double tolerance, double usual,
                               struct wf_cuda_distance *d)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const double size = usual * sqrt(d->whole / (double)count);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const double y = (double)to_arith(b[i]), x = (double)to_arith(a[i]);
        if (!(fabs(x - y) <= tolerance * (fabs(y) + size)))
            atomicAdd(&d->outside, 1ull);
    }
}

} // namespace wf

using namespace wf;

extern "C" void wf_cuda_store(uint64_t *to, uint64_t value, struct CUstream_st *stream)
{
    launch(store_kernel, dim3(1), 1, stream, to, value);
}

extern "C" void wf_cuda_add_bias(const struct wf_view *y, const float *bias,
                                 struct CUstream_st *stream)
{
    const struct wf_shape e = extents(y->box);
    const int64_t channels = e.at[WF_C], most = 1 << 16; /* blocks */
    int64_t count = 1;
    for (int a = 0; a < WF_AXES; a++)
        count *= e.at[a];
    with_type((int)y->dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const int wide = Wide<T>::V;
        T *const data = (T *)y->data;
        if (channels % wide == 0 && (uintptr_t)data % 16 == 0)
            launch(bias_kernel<T, Wide<T>::V>,
                   dim3((unsigned)smaller(ceil_div(count / wide, THREADS), most)), THREADS, stream,
                   data, bias, count / wide, channels);
        else
            launch(bias_kernel<T, 1>, dim3((unsigned)smaller(ceil_div(count, THREADS), most)),
                   THREADS, stream, data, bias, count, channels);
    });
}

extern "C" void wf_cuda_noise(void *to, int dtype, int64_t count, uint32_t seed,
                              struct CUstream_st *stream)
{
    const int64_t most = 1 << 16; /* blocks; each thread goes on in steps of the whole grid */
    with_type(dtype, [&](auto zero) {
        typedef decltype(zero) T;
        launch(noise_kernel<T>, dim3((unsigned)smaller(ceil_div(count, THREADS), most)), THREADS,
               stream, (T *)to, count, seed);
    });
}

extern "C" void wf_cuda_compare(const struct wf_cuda_compare *c)
{
    const dim3 blocks((unsigned)smaller(ceil_div(c->count, THREADS), (int64_t)1 << 10));
    launch(clear_distance_kernel, dim3(1), 1, c->stream, c->to);
    with_type(c->dtype, [&](auto zero) {
        typedef decltype(zero) T;
        const T *const a = (const T *)c->a, *const b = (const T *)c->b;
        launch(distance_kernel<T>, blocks, THREADS, c->stream, a, b, c->count, c->to);
        launch(outside_kernel<T>, blocks, THREADS, c->stream, a, b, c->count, c->tolerance,
               c->usual, c->to);
    });
}
